/* alu.c - integer, logic, move and f32/f64 instructions, all 32 lanes at once.
 *
 * Every function computes all lanes, those switched off too; the caller blends. A destination may be the very slot of
 * a source: each lane reads its inputs before it writes. Loops are plain so that compilers vectorise them.
 */
#include "machine.h"
#include "numbers.h"

/* One lane function: T is the type of destination lanes, A, B and C those of the sources, `value` their expression. */
#define LANE_LOOP(name, T, A, B, C, value)                                                                             \
    WIDE void name(void *vd, const void *va, const void *vb, const void *vc) {                                         \
        T *d = vd;                                                                                                     \
        const A *pa = va;                                                                                              \
        const B *pb = vb;                                                                                              \
        const C *pc = vc;                                                                                              \
        _Pragma("GCC ivdep")                                                                                           \
        for (int i = 0; i < LANES; i++) {                                                                              \
            const A a = pa[i];                                                                                         \
            const B b = pb[i];                                                                                         \
            const C c = pc[i];                                                                                         \
            (void)a, (void)b, (void)c;                                                                                 \
            d[i] = (T)(value);                                                                                         \
        }                                                                                                              \
    }
#define LANES_32(name, value) LANE_LOOP(name, uint32_t, uint32_t, uint32_t, uint32_t, value)
#define LANES_64(name, value) LANE_LOOP(name, uint64_t, uint64_t, uint64_t, uint64_t, value)
#define LANES_16(name, value) LANE_LOOP(name, uint32_t, uint32_t, uint32_t, uint32_t, (value) & 0xffffu)

/* Signed views; conversion to a narrower signed type keeps the low bits on every compiler this builds with. */
#define S16(x) ((int32_t)(int16_t)(x))
#define S32(x) ((int32_t)(x))
#define S64(x) ((int64_t)(x))

static inline uint64_t high_u64(uint64_t a, uint64_t b) {
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32), cross = a0 * b1 + (uint32_t)middle;
    return a1 * b1 + (middle >> 32) + (cross >> 32);
}

static inline uint64_t high_s64(uint64_t a, uint64_t b) {
    return high_u64(a, b) - (S64(a) < 0 ? b : 0) - (S64(b) < 0 ? a : 0);
}

LANES_16(lanes_add_16, a + b)
LANES_32(lanes_add_32, a + b)
LANES_64(lanes_add_64, a + b)
LANES_16(lanes_sub_16, a - b)
LANES_32(lanes_sub_32, a - b)
LANES_64(lanes_sub_64, a - b)
LANES_16(lanes_mul_lo_16, a *b)
LANES_32(lanes_mul_lo_32, a *b)
LANES_64(lanes_mul_lo_64, a *b)
LANES_16(lanes_mul_hi_u16, a *b >> 16)
LANES_16(lanes_mul_hi_s16, (uint32_t)(S16(a) * S16(b)) >> 16)
LANES_32(lanes_mul_hi_u32, (uint64_t)a *b >> 32)
LANES_32(lanes_mul_hi_s32, (uint64_t)((int64_t)S32(a) * S32(b)) >> 32)
LANES_64(lanes_mul_hi_u64, high_u64(a, b))
LANES_64(lanes_mul_hi_s64, high_s64(a, b))
LANES_32(lanes_mul_wide_u16, a *b)
LANES_32(lanes_mul_wide_s16, S16(a) * S16(b))
LANE_LOOP(lanes_mul_wide_u32, uint64_t, uint32_t, uint32_t, uint32_t, (uint64_t)a *b)
LANE_LOOP(lanes_mul_wide_s32, uint64_t, uint32_t, uint32_t, uint32_t, (int64_t)S32(a) * S32(b))
LANES_16(lanes_mad_lo_16, a *b + c)
LANES_32(lanes_mad_lo_32, a *b + c)
LANES_64(lanes_mad_lo_64, a *b + c)
LANES_32(lanes_mad_hi_u32, ((uint64_t)a * b >> 32) + c)
LANES_32(lanes_mad_hi_s32, ((uint64_t)((int64_t)S32(a) * S32(b)) >> 32) + c)
LANES_32(lanes_mad_wide_u16, a *b + c)
LANES_32(lanes_mad_wide_s16, (uint32_t)(S16(a) * S16(b)) + c)
LANE_LOOP(lanes_mad_wide_u32, uint64_t, uint32_t, uint32_t, uint64_t, (uint64_t)a *b + c)
LANE_LOOP(lanes_mad_wide_s32, uint64_t, uint32_t, uint32_t, uint64_t, (uint64_t)((int64_t)S32(a) * S32(b)) + c)
LANES_32(lanes_mul24_u32, (a & 0xffffffu) * (b & 0xffffffu))
LANES_32(lanes_mul24_s32, (uint32_t)(S32(a << 8) >> 8) * (uint32_t)(S32(b << 8) >> 8))
LANES_32(lanes_sad_u32, c + (a > b ? a - b : b - a))
LANES_32(lanes_sad_s32, c + (S32(a) > S32(b) ? a - b : b - a))

/* Division by zero gives all ones, the remainder then is the dividend, as observed on devices. */
LANES_16(lanes_div_u16, b ? a / b : 0xffffu)
LANES_16(lanes_div_s16, b ? (uint32_t)(S16(a) / S16(b)) : 0xffffu)
LANES_32(lanes_div_u32, b ? a / b : 0xffffffffu)
LANES_32(lanes_div_s32, b ? (b == 0xffffffffu ? 0 - a : (uint32_t)(S32(a) / S32(b))) : 0xffffffffu)
LANES_64(lanes_div_u64, b ? a / b : UINT64_MAX)
LANES_64(lanes_div_s64, b ? (b == UINT64_MAX ? 0 - a : (uint64_t)(S64(a) / S64(b))) : UINT64_MAX)
LANES_16(lanes_rem_u16, b ? a % b : a)
LANES_16(lanes_rem_s16, b ? (uint32_t)(S16(a) % S16(b)) : a)
LANES_32(lanes_rem_u32, b ? a % b : a)
LANES_32(lanes_rem_s32, b ? (b == 0xffffffffu ? 0 : (uint32_t)(S32(a) % S32(b))) : a)
LANES_64(lanes_rem_u64, b ? a % b : a)
LANES_64(lanes_rem_s64, b ? (b == UINT64_MAX ? 0 : (uint64_t)(S64(a) % S64(b))) : a)

LANES_16(lanes_abs_s16, S16(a) < 0 ? 0 - a : a)
LANES_32(lanes_abs_s32, S32(a) < 0 ? 0 - a : a)
LANES_64(lanes_abs_s64, S64(a) < 0 ? 0 - a : a)
LANES_16(lanes_neg_16, 0 - a)
LANES_32(lanes_neg_32, 0 - a)
LANES_64(lanes_neg_64, 0 - a)
LANES_16(lanes_min_u16, a < b ? a : b)
LANES_16(lanes_min_s16, S16(a) < S16(b) ? a : b)
LANES_32(lanes_min_u32, a < b ? a : b)
LANES_32(lanes_min_s32, S32(a) < S32(b) ? a : b)
LANES_64(lanes_min_u64, a < b ? a : b)
LANES_64(lanes_min_s64, S64(a) < S64(b) ? a : b)
LANES_16(lanes_max_u16, a > b ? a : b)
LANES_16(lanes_max_s16, S16(a) > S16(b) ? a : b)
LANES_32(lanes_max_u32, a > b ? a : b)
LANES_32(lanes_max_s32, S32(a) > S32(b) ? a : b)
LANES_64(lanes_max_u64, a > b ? a : b)
LANES_64(lanes_max_s64, S64(a) > S64(b) ? a : b)

LANES_32(lanes_and_16, a &b)
LANES_32(lanes_and_32, a &b)
LANES_64(lanes_and_64, a &b)
LANES_32(lanes_or_16, a | b)
LANES_32(lanes_or_32, a | b)
LANES_64(lanes_or_64, a | b)
LANES_32(lanes_xor_16, a ^ b)
LANES_32(lanes_xor_32, a ^ b)
LANES_64(lanes_xor_64, a ^ b)
LANES_16(lanes_not_16, ~a)
LANES_32(lanes_not_32, ~a)
LANES_64(lanes_not_64, ~a)

/* Shifts clamp: an amount of the width or more shifts everything out. */
LANES_16(lanes_shl_16, b > 15 ? 0 : a << (b & 15))
LANES_32(lanes_shl_32, b > 31 ? 0 : a << (b & 31))
LANE_LOOP(lanes_shl_64, uint64_t, uint64_t, uint32_t, uint32_t, b > 63 ? 0 : a << (b & 63))
LANES_16(lanes_shr_u16, b > 15 ? 0 : a >> (b & 15))
LANES_16(lanes_shr_s16, S16(a) >> (b > 15 ? 15 : b))
LANES_32(lanes_shr_u32, b > 31 ? 0 : a >> (b & 31))
LANES_32(lanes_shr_s32, S32(a) >> (b > 31 ? 31 : b))
LANE_LOOP(lanes_shr_u64, uint64_t, uint64_t, uint32_t, uint32_t, b > 63 ? 0 : a >> (b & 63))
LANE_LOOP(lanes_shr_s64, uint64_t, uint64_t, uint32_t, uint32_t, S64(a) >> (b > 63 ? 63 : b))

/* shf: a holds the low, b the high half. */
#define FUNNEL ((uint64_t)b << 32 | a)
#define CLAMPED (c > 32 ? 32 : c)
LANES_32(lanes_shf_l_wrap, (FUNNEL << (c & 31)) >> 32)
LANES_32(lanes_shf_l_clamp, (FUNNEL << CLAMPED) >> 32)
LANES_32(lanes_shf_r_wrap, FUNNEL >> (c & 31))
LANES_32(lanes_shf_r_clamp, FUNNEL >> CLAMPED)

static inline uint64_t extract(uint64_t value, uint32_t position, uint32_t length, uint32_t width, bool is_signed) {
    position &= 0xff, length &= 0xff;
    uint32_t top = position + length - 1 < width - 1 ? position + length - 1 : width - 1;
    uint64_t sign = is_signed && length ? value >> top & 1 : 0;
    uint64_t field = position < width ? value >> position : 0;
    uint32_t kept = position < width ? width - position : 0;
    if (length < kept) kept = length;
    uint64_t mask = kept >= 64 ? UINT64_MAX : (1ull << kept) - 1;
    return (field & mask) | (sign ? ~mask : 0);
}

LANES_32(lanes_bfe_u32, extract(a, b, c, 32, false))
LANES_32(lanes_bfe_s32, extract(a, b, c, 32, true))
LANE_LOOP(lanes_bfe_u64, uint64_t, uint64_t, uint32_t, uint32_t, extract(a, b, c, 64, false))
LANE_LOOP(lanes_bfe_s64, uint64_t, uint64_t, uint32_t, uint32_t, extract(a, b, c, 64, true))

static inline uint64_t reversed(uint64_t value, int bits) {
    uint64_t result = 0;
    for (int i = 0; i < bits; i++) result |= (value >> i & 1) << (bits - 1 - i);
    return result;
}

LANES_32(lanes_popc_32, __builtin_popcount(a))
LANE_LOOP(lanes_popc_64, uint32_t, uint64_t, uint64_t, uint64_t, __builtin_popcountll(a))
LANES_32(lanes_clz_32, a ? __builtin_clz(a) : 32)
LANE_LOOP(lanes_clz_64, uint32_t, uint64_t, uint64_t, uint64_t, a ? __builtin_clzll(a) : 64)
LANES_32(lanes_brev_32, reversed(a, 32))
LANES_64(lanes_brev_64, reversed(a, 64))
LANES_32(lanes_bfind_u32, a ? 31 - __builtin_clz(a) : -1)
LANES_32(lanes_bfind_s32, (S32(a) < 0 ? ~a : a) ? 31 - __builtin_clz(S32(a) < 0 ? ~a : a) : -1)
LANES_32(lanes_bmsk_clamp, a > 31 ? 0 : (b > 31 ? 0xffffffffu : (1u << b) - 1) << a)
LANES_32(lanes_szext_u32, b > 31 ? a : extract(a, 0, b, 32, false))
LANES_32(lanes_szext_s32, b > 31 ? a : extract(a, 0, b, 32, true))

LANES_32(lanes_mov_32, a)
LANES_64(lanes_mov_64, a)
LANE_LOOP(lanes_truncate, uint32_t, uint64_t, uint64_t, uint64_t, a)
LANES_32(lanes_pack_16, (a & 0xffffu) | b << 16)
LANES_32(lanes_low_16, a & 0xffffu)
LANES_32(lanes_high_16, a >> 16)
LANE_LOOP(lanes_pack_32, uint64_t, uint32_t, uint32_t, uint32_t, a | (uint64_t)b << 32)
LANE_LOOP(lanes_low_32, uint32_t, uint64_t, uint64_t, uint64_t, a)
LANE_LOOP(lanes_high_32, uint32_t, uint64_t, uint64_t, uint64_t, a >> 32)

/* A 128-bit register is 32 low halves followed by 32 high halves. */
void lanes_mov_128(void *d, const void *a, const void *b, const void *c) {
    (void)b, (void)c;
    memmove(d, a, 2 * LANES * sizeof(uint64_t));
}
void lanes_pack_64(void *d, const void *a, const void *b, const void *c) {
    (void)c;
    memcpy(d, a, LANES * sizeof(uint64_t));
    memcpy((uint64_t *)d + LANES, b, LANES * sizeof(uint64_t));
}
void lanes_low_64(void *d, const void *a, const void *b, const void *c) {
    (void)b, (void)c;
    memcpy(d, a, LANES * sizeof(uint64_t));
}
void lanes_high_64(void *d, const void *a, const void *b, const void *c) {
    (void)b, (void)c;
    memcpy(d, (const uint64_t *)a + LANES, LANES * sizeof(uint64_t));
}

/* ---- instructions of four sources: the fourth follows the third in memory, see decode.c ---- */

#define FOURTH(type) const type *fourth = (const type *)vc + LANES

/* a, b, c and the 8-bit truth table: bit (a*4 + b*2 + c) of the table is the result. */
static inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t result = 0;
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t term = (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
        result |= table >> i & 1 ? term : 0;
    }
    return result;
}

static inline uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t pick = selector >> (4 * i) & 15, byte = (uint32_t)(bytes >> (8 * (pick & 7)) & 0xff);
        if (pick & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}

static inline uint64_t insert(uint64_t field, uint64_t into, uint32_t position, uint32_t length, uint32_t width) {
    position &= 0xff, length &= 0xff;
    if (position >= width || !length) return into;
    uint64_t mask = length >= 64 ? UINT64_MAX : (1ull << length) - 1;
    return (into & ~(mask << position)) | (field & mask) << position;
}

LANES_32(lanes_prmt, permute(a, b, c))

void lanes_lop3(void *vd, const void *va, const void *vb, const void *vc) {
    uint32_t *d = vd;
    const uint32_t *a = va, *b = vb, *c = vc;
    FOURTH(uint32_t);
    uint32_t table = fourth[0];
    _Pragma("GCC ivdep")
    for (int i = 0; i < LANES; i++) d[i] = lop3(a[i], b[i], c[i], table);
}

void lanes_bfi_32(void *vd, const void *va, const void *vb, const void *vc) {
    uint32_t *d = vd;
    const uint32_t *a = va, *b = vb, *c = vc;
    FOURTH(uint32_t);
    for (int i = 0; i < LANES; i++) d[i] = (uint32_t)insert(a[i], b[i], c[i], fourth[i], 32);
}

void lanes_bfi_64(void *vd, const void *va, const void *vb, const void *vc) {
    uint64_t *d = vd;
    const uint64_t *a = va, *b = vb;
    const uint32_t *c = vc;
    FOURTH(uint32_t);
    for (int i = 0; i < LANES; i++) d[i] = insert(a[i], b[i], c[i], fourth[i], 64);
}

/* ---- f32 and f64 ---- */

/* Plain and flushing form of an f32 instruction; x, y, z are the values of the sources. */
#define LANES_F32(name, value)                                                                                         \
    static inline float name##_of(float x, float y, float z) {                                                         \
        (void)x, (void)y, (void)z;                                                                                     \
        return value;                                                                                                  \
    }                                                                                                                  \
    LANES_32(name, canonical(name##_of(float_of(a), float_of(b), float_of(c))))                                        \
    LANES_32(name##_ftz, flushed(canonical(name##_of(flushed_value(a), flushed_value(b), flushed_value(c)))))

/* min and max take the number where one source is NaN, and order -0 below +0. */
static inline float smaller(float x, float y) {
    float least = x < y ? x : y;
    least = x == y ? float_of(bits_of(x) | bits_of(y)) : least;
    least = x != x ? y : least;
    return y != y ? x : least;
}

static inline float larger(float x, float y) {
    float most = x > y ? x : y;
    most = x == y ? float_of(bits_of(x) & bits_of(y)) : most;
    most = x != x ? y : most;
    return y != y ? x : most;
}

/* 2^x with a relative error below 1e-9 before the rounding to f32: x = n + f, |f| <= 1/2, and a polynomial for 2^f. In
 * three loops of one width each, which compilers vectorise. */
WIDE static void exp2_lanes(uint32_t *d, const uint32_t *bits) {
    double power[LANES];
    float whole[LANES], rest[LANES];
    for (int i = 0; i < LANES; i++) {
        float x = float_of(bits[i]);
        x = x > 160.0f ? 160.0f : x;
        x = x < -160.0f ? -160.0f : x;
        whole[i] = (x + 0x1.8p23f) - 0x1.8p23f;
        rest[i] = x - whole[i];
    }
    for (int i = 0; i < LANES; i++) {
        double t = (double)rest[i] * 0x1.62e42fefa39efp-1, sum = 1.0 / 40320;
        sum = sum * t + 1.0 / 5040;
        sum = sum * t + 1.0 / 720;
        sum = sum * t + 1.0 / 120;
        sum = sum * t + 1.0 / 24;
        sum = sum * t + 1.0 / 6;
        sum = sum * t + 0.5;
        sum = sum * t + 1.0;
        power[i] = sum * t + 1.0;
    }
    for (int i = 0; i < LANES; i++) {
        /* the bits of n + 1023 in the exponent: n is in the low bits of n + 1.5 * 2^52 */
        uint64_t exponent = (bits_of_double((double)whole[i] + 0x1.8p52) + 1023) << 52;
        power[i] *= double_of(exponent);
    }
    for (int i = 0; i < LANES; i++) {
        bool nan = (bits[i] & 0x7fffffffu) > 0x7f800000u;
        d[i] = nan ? CANONICAL_NAN : bits_of((float)power[i]);
    }
}

void lanes_ex2_f32(void *d, const void *a, const void *b, const void *c) {
    (void)b, (void)c;
    exp2_lanes(d, a);
}

void lanes_ex2_f32_ftz(void *d, const void *a, const void *b, const void *c) {
    (void)b, (void)c;
    uint32_t *result = d;
    exp2_lanes(result, a); /* a subnormal source gives 1 with or without flushing */
    for (int i = 0; i < LANES; i++) result[i] = flushed(result[i]);
}

LANES_F32(lanes_add_f32, x + y)
LANES_F32(lanes_sub_f32, x - y)
LANES_F32(lanes_mul_f32, x *y)
LANES_F32(lanes_fma_f32, fmaf(x, y, z))
LANES_F32(lanes_div_f32, x / y)
LANES_F32(lanes_min_f32, smaller(x, y))
LANES_F32(lanes_max_f32, larger(x, y))
LANES_F32(lanes_rcp_f32, 1.0f / x)
LANES_F32(lanes_sqrt_f32, sqrtf(x))
LANES_F32(lanes_rsqrt_f32, (float)(1.0 / sqrt((double)x)))
LANES_F32(lanes_lg2_f32, (float)log2((double)x))
LANES_F32(lanes_sin_f32, (float)sin((double)x))
LANES_F32(lanes_cos_f32, (float)cos((double)x))
LANES_32(lanes_min_nan_f32, canonical(float_of(a) != float_of(a)   ? float_of(a)
                                      : float_of(b) != float_of(b) ? float_of(b)
                                                                   : smaller(float_of(a), float_of(b))))
LANES_32(lanes_max_nan_f32, canonical(float_of(a) != float_of(a)   ? float_of(a)
                                      : float_of(b) != float_of(b) ? float_of(b)
                                                                   : larger(float_of(a), float_of(b))))
LANES_32(lanes_tanh_f32, canonical((float)tanh((double)float_of(a))))
LANES_32(lanes_abs_f32, a & 0x7fffffffu)
LANES_32(lanes_abs_f32_ftz, flushed(a) & 0x7fffffffu)
LANES_32(lanes_neg_f32, a ^ 0x80000000u)
LANES_32(lanes_neg_f32_ftz, flushed(a) ^ 0x80000000u)
LANES_32(lanes_copysign_f32, (b & 0x7fffffffu) | (a & 0x80000000u))
LANES_32(lanes_saturate_f32, bits_of(float_of(a) > 0.0f ? (float_of(a) < 1.0f ? float_of(a) : 1.0f) : 0.0f))

static inline double smaller_double(double x, double y) {
    double least = x < y ? x : y;
    least = x == y ? double_of(bits_of_double(x) | bits_of_double(y)) : least;
    least = x != x ? y : least;
    return y != y ? x : least;
}

static inline double larger_double(double x, double y) {
    double most = x > y ? x : y;
    most = x == y ? double_of(bits_of_double(x) & bits_of_double(y)) : most;
    most = x != x ? y : most;
    return y != y ? x : most;
}

#define LANES_F64(name, value) LANES_64(name, bits_of_double(value))
#define X double_of(a)
#define Y double_of(b)
#define Z double_of(c)
LANES_F64(lanes_add_f64, X + Y)
LANES_F64(lanes_sub_f64, X - Y)
LANES_F64(lanes_mul_f64, X *Y)
LANES_F64(lanes_fma_f64, fma(X, Y, Z))
LANES_F64(lanes_div_f64, X / Y)
LANES_F64(lanes_min_f64, smaller_double(X, Y))
LANES_F64(lanes_max_f64, larger_double(X, Y))
LANES_F64(lanes_rcp_f64, 1.0 / X)
LANES_F64(lanes_sqrt_f64, sqrt(X))
LANES_64(lanes_abs_f64, a & 0x7fffffffffffffffull)
LANES_64(lanes_neg_f64, a ^ 0x8000000000000000ull)
