/* alu.c - integer, logic and move instructions, all 32 lanes at once; float.c and half.c have those of floats,
 * frequent.c those that kernels run most. */
#include "lane_loop.h"
#include "machine.h"

#include <string.h>

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

LANES_16(emu_lanes_add_16, a + b)
LANES_16(emu_lanes_sub_16, a - b)
LANES_32(emu_lanes_sub_32, a - b)
LANES_64(emu_lanes_sub_64, a - b)
LANES_16(emu_lanes_mul_lo_16, (a * b))
LANES_32(emu_lanes_mul_lo_32, (a * b))
LANES_64(emu_lanes_mul_lo_64, (a * b))
LANES_16(emu_lanes_mul_hi_u16, (a * b) >> 16)
LANES_16(emu_lanes_mul_hi_s16, (uint32_t)(S16(a) * S16(b)) >> 16)
LANES_32(emu_lanes_mul_hi_u32, ((uint64_t)a * b) >> 32)
LANES_32(emu_lanes_mul_hi_s32, (uint64_t)((int64_t)S32(a) * S32(b)) >> 32)
LANES_64(emu_lanes_mul_hi_u64, high_u64(a, b))
LANES_64(emu_lanes_mul_hi_s64, high_s64(a, b))
LANES_32(emu_lanes_mul_wide_u16, (a * b))
LANES_32(emu_lanes_mul_wide_s16, S16(a) * S16(b))
LANE_LOOP(emu_lanes_mul_wide_u32, uint64_t, uint32_t, uint32_t, uint32_t, ((uint64_t)a * b))
LANE_LOOP(emu_lanes_mul_wide_s32, uint64_t, uint32_t, uint32_t, uint32_t, (int64_t)S32(a) * S32(b))
LANES_16(emu_lanes_mad_lo_16, (a * b) + c)
LANES_32(emu_lanes_mad_lo_32, (a * b) + c)
LANES_64(emu_lanes_mad_lo_64, (a * b) + c)
LANES_32(emu_lanes_mad_hi_u32, ((uint64_t)a * b >> 32) + c)
LANES_32(emu_lanes_mad_hi_s32, ((uint64_t)((int64_t)S32(a) * S32(b)) >> 32) + c)
LANES_32(emu_lanes_mad_wide_u16, (a * b) + c)
LANES_32(emu_lanes_mad_wide_s16, (uint32_t)(S16(a) * S16(b)) + c)
LANE_LOOP(emu_lanes_mad_wide_u32, uint64_t, uint32_t, uint32_t, uint64_t, ((uint64_t)a * b) + c)
LANE_LOOP(emu_lanes_mad_wide_s32, uint64_t, uint32_t, uint32_t, uint64_t, (uint64_t)((int64_t)S32(a) * S32(b)) + c)
LANES_16(emu_lanes_mad_hi_u16, ((a * b) >> 16) + c)
LANES_16(emu_lanes_mad_hi_s16, ((uint32_t)(S16(a) * S16(b)) >> 16) + c)
LANES_64(emu_lanes_mad_hi_u64, high_u64(a, b) + c)
LANES_64(emu_lanes_mad_hi_s64, high_s64(a, b) + c)

static inline uint32_t clamped_s32(int64_t value) {
    return (uint32_t)(value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value);
}

LANES_32(emu_lanes_add_sat_s32, clamped_s32((int64_t)S32(a) + S32(b)))
LANES_32(emu_lanes_sub_sat_s32, clamped_s32((int64_t)S32(a) - S32(b)))
LANES_32(emu_lanes_mad_hi_sat_s32, clamped_s32(((int64_t)S32(a) * S32(b) >> 32) + S32(c)))

/* The 48-bit product of the low 24 bits: lo is its bits 0 to 31, hi its bits 16 to 47. */
#define LOW_24(x) ((x) & 0xffffffu)
#define LOW_S24(x) ((int64_t)(S32((x) << 8) >> 8))
LANES_32(emu_lanes_mul24_lo_u32, LOW_24(a) * LOW_24(b))
LANES_32(emu_lanes_mul24_lo_s32, LOW_S24(a) * LOW_S24(b))
LANES_32(emu_lanes_mul24_hi_u32, (uint64_t)LOW_24(a) * LOW_24(b) >> 16)
LANES_32(emu_lanes_mul24_hi_s32, LOW_S24(a) * LOW_S24(b) >> 16)
LANES_32(emu_lanes_mad24_lo_u32, LOW_24(a) * LOW_24(b) + c)
LANES_32(emu_lanes_mad24_lo_s32, (uint64_t)(LOW_S24(a) * LOW_S24(b)) + c)
LANES_32(emu_lanes_mad24_hi_u32, ((uint64_t)LOW_24(a) * LOW_24(b) >> 16) + c)
LANES_32(emu_lanes_mad24_hi_s32, (uint64_t)(LOW_S24(a) * LOW_S24(b) >> 16) + c)
LANES_32(emu_lanes_mad24_hi_sat_s32, clamped_s32((LOW_S24(a) * LOW_S24(b) >> 16) + S32(c)))

LANES_16(emu_lanes_sad_u16, c + (a > b ? a - b : b - a))
LANES_16(emu_lanes_sad_s16, c + (S16(a) > S16(b) ? a - b : b - a))
LANES_32(emu_lanes_sad_u32, c + (a > b ? a - b : b - a))
LANES_32(emu_lanes_sad_s32, c + (S32(a) > S32(b) ? a - b : b - a))
LANES_64(emu_lanes_sad_u64, c + (a > b ? a - b : b - a))
LANES_64(emu_lanes_sad_s64, c + (S64(a) > S64(b) ? a - b : b - a))

/* Sums of products of the bytes of a with those of b, or of the halves of a with two bytes of b; each by its type. */
#define BYTE_u(x, i) ((int32_t)(uint8_t)((x) >> (8 * (i))))
#define BYTE_s(x, i) ((int32_t)(int8_t)((x) >> (8 * (i))))
#define HALF_u(x, i) ((int32_t)(uint16_t)((x) >> (16 * (i))))
#define HALF_s(x, i) ((int32_t)(int16_t)((x) >> (16 * (i))))
#define PRODUCT_4(A, B, i) (uint32_t)(BYTE_##A(a, i) * BYTE_##B(b, i))
#define PRODUCT_2(A, B, i, first) (uint32_t)(HALF_##A(a, i) * BYTE_##B(b, (first) + (i)))
#define DOT_PRODUCTS(A, B)                                                                                             \
    LANES_32(emu_lanes_dp4a_##A##B,                                                                                    \
             c + PRODUCT_4(A, B, 0) + PRODUCT_4(A, B, 1) + PRODUCT_4(A, B, 2) + PRODUCT_4(A, B, 3))                    \
    LANES_32(emu_lanes_dp2a_lo_##A##B, c + PRODUCT_2(A, B, 0, 0) + PRODUCT_2(A, B, 1, 0))                              \
    LANES_32(emu_lanes_dp2a_hi_##A##B, c + PRODUCT_2(A, B, 0, 2) + PRODUCT_2(A, B, 1, 2))
DOT_PRODUCTS(u, u)
DOT_PRODUCTS(u, s)
DOT_PRODUCTS(s, u)
DOT_PRODUCTS(s, s)

/* Division by zero gives all ones, the remainder then is the dividend, as observed on devices. */
LANES_16(emu_lanes_div_u16, b ? a / b : 0xffffu)
LANES_16(emu_lanes_div_s16, b ? (uint32_t)(S16(a) / S16(b)) : 0xffffu)
LANES_32(emu_lanes_div_u32, b ? a / b : 0xffffffffu)
LANES_32(emu_lanes_div_s32, b ? (b == 0xffffffffu ? 0 - a : (uint32_t)(S32(a) / S32(b))) : 0xffffffffu)
LANES_64(emu_lanes_div_u64, b ? a / b : UINT64_MAX)
LANES_64(emu_lanes_div_s64, b ? (b == UINT64_MAX ? 0 - a : (uint64_t)(S64(a) / S64(b))) : UINT64_MAX)
LANES_16(emu_lanes_rem_u16, b ? a % b : a)
LANES_16(emu_lanes_rem_s16, b ? (uint32_t)(S16(a) % S16(b)) : a)
LANES_32(emu_lanes_rem_u32, b ? a % b : a)
LANES_32(emu_lanes_rem_s32, b ? (b == 0xffffffffu ? 0 : (uint32_t)(S32(a) % S32(b))) : a)
LANES_64(emu_lanes_rem_u64, b ? a % b : a)
LANES_64(emu_lanes_rem_s64, b ? (b == UINT64_MAX ? 0 : (uint64_t)(S64(a) % S64(b))) : a)

LANES_16(emu_lanes_abs_s16, S16(a) < 0 ? 0 - a : a)
LANES_32(emu_lanes_abs_s32, S32(a) < 0 ? 0 - a : a)
LANES_64(emu_lanes_abs_s64, S64(a) < 0 ? 0 - a : a)
LANES_16(emu_lanes_neg_16, 0 - a)
LANES_32(emu_lanes_neg_32, 0 - a)
LANES_64(emu_lanes_neg_64, 0 - a)
LANES_16(emu_lanes_min_u16, a < b ? a : b)
LANES_16(emu_lanes_min_s16, S16(a) < S16(b) ? a : b)
LANES_32(emu_lanes_min_u32, a < b ? a : b)
LANES_32(emu_lanes_min_s32, S32(a) < S32(b) ? a : b)
LANES_64(emu_lanes_min_u64, a < b ? a : b)
LANES_64(emu_lanes_min_s64, S64(a) < S64(b) ? a : b)
LANES_16(emu_lanes_max_u16, a > b ? a : b)
LANES_16(emu_lanes_max_s16, S16(a) > S16(b) ? a : b)
LANES_32(emu_lanes_max_u32, a > b ? a : b)
LANES_32(emu_lanes_max_s32, S32(a) > S32(b) ? a : b)
LANES_64(emu_lanes_max_u64, a > b ? a : b)
LANES_64(emu_lanes_max_s64, S64(a) > S64(b) ? a : b)

#define RELU_S32(x) (S32(x) < 0 ? 0 : (x))
LANES_32(emu_lanes_min_relu_s32, RELU_S32(S32(a) < S32(b) ? a : b))
LANES_32(emu_lanes_max_relu_s32, RELU_S32(S32(a) > S32(b) ? a : b))

/* Two integers of 16 bits side by side: the value of a half is an expression of its sources x and y. */
#define LANES_16X2(name, type, value)                                                                                  \
    static inline uint32_t name##_half(uint32_t from_a, uint32_t from_b) {                                             \
        const type x = (type)from_a, y = (type)from_b;                                                                 \
        return (uint32_t)(value) & 0xffffu;                                                                            \
    }                                                                                                                  \
    LANES_32(name, name##_half(a >> 16, b >> 16) << 16 | name##_half(a & 0xffffu, b & 0xffffu))
LANES_16X2(emu_lanes_add_16x2, uint16_t, x + y)
LANES_16X2(emu_lanes_min_u16x2, uint16_t, x < y ? x : y)
LANES_16X2(emu_lanes_max_u16x2, uint16_t, x > y ? x : y)
LANES_16X2(emu_lanes_min_s16x2, int16_t, x < y ? x : y)
LANES_16X2(emu_lanes_max_s16x2, int16_t, x > y ? x : y)
LANES_16X2(emu_lanes_min_relu_s16x2, int16_t, x < 0 || y < 0 ? 0 : x < y ? x : y)
LANES_16X2(emu_lanes_max_relu_s16x2, int16_t, x < 0 && y < 0 ? 0 : x > y ? x : y)

/* Four integers of 8 bits side by side, likewise. */
#define LANES_8X4(name, type, value)                                                                                   \
    static inline uint32_t name##_byte(uint32_t from_a, uint32_t from_b) {                                             \
        const type x = (type)from_a, y = (type)from_b;                                                                 \
        return (uint32_t)(value) & 0xffu;                                                                              \
    }                                                                                                                  \
    LANES_32(name, name##_byte(a >> 24, b >> 24) << 24 | name##_byte(a >> 16, b >> 16) << 16 |                         \
                       name##_byte(a >> 8, b >> 8) << 8 | name##_byte(a, b))
#define WITHIN(value, least, most) ((value) < (least) ? (least) : (value) > (most) ? (most) : (value))
LANES_8X4(emu_lanes_min_u8x4, uint8_t, x < y ? x : y)
LANES_8X4(emu_lanes_max_u8x4, uint8_t, x > y ? x : y)
LANES_8X4(emu_lanes_min_s8x4, int8_t, x < y ? x : y)
LANES_8X4(emu_lanes_max_s8x4, int8_t, x > y ? x : y)
LANES_8X4(emu_lanes_add_8x4, uint8_t, x + y)
LANES_8X4(emu_lanes_sub_8x4, uint8_t, x - y)
LANES_8X4(emu_lanes_neg_8x4, uint8_t, ((void)y, -x))
LANES_8X4(emu_lanes_add_sat_u8x4, uint8_t, WITHIN(x + y, 0, UINT8_MAX))
LANES_8X4(emu_lanes_sub_sat_u8x4, uint8_t, WITHIN(x - y, 0, UINT8_MAX))
LANES_8X4(emu_lanes_add_sat_s8x4, int8_t, WITHIN(x + y, INT8_MIN, INT8_MAX))
LANES_8X4(emu_lanes_sub_sat_s8x4, int8_t, WITHIN(x - y, INT8_MIN, INT8_MAX))

LANES_32(emu_lanes_and_16, (a & b))
LANES_32(emu_lanes_and_32, (a & b))
LANES_64(emu_lanes_and_64, (a & b))
LANES_32(emu_lanes_or_16, a | b)
LANES_32(emu_lanes_or_32, a | b)
LANES_64(emu_lanes_or_64, a | b)
LANES_32(emu_lanes_xor_16, a ^ b)
LANES_32(emu_lanes_xor_32, a ^ b)
LANES_64(emu_lanes_xor_64, a ^ b)
LANES_16(emu_lanes_not_16, ~a)
LANES_32(emu_lanes_not_32, ~a)
LANES_64(emu_lanes_not_64, ~a)
LANES_32(emu_lanes_cnot_16, (a & 0xffffu) == 0)
LANES_32(emu_lanes_cnot_32, a == 0)
LANES_64(emu_lanes_cnot_64, a == 0)

/* Shifts clamp: an amount of the width or more shifts everything out. */
LANES_16(emu_lanes_shl_16, b > 15 ? 0 : a << (b & 15))
LANES_32(emu_lanes_shl_32, b > 31 ? 0 : a << (b & 31))
LANE_LOOP(emu_lanes_shl_64, uint64_t, uint64_t, uint32_t, uint32_t, b > 63 ? 0 : a << (b & 63))
LANES_16(emu_lanes_shr_u16, b > 15 ? 0 : a >> (b & 15))
LANES_16(emu_lanes_shr_s16, S16(a) >> (b > 15 ? 15 : b))
LANES_32(emu_lanes_shr_u32, b > 31 ? 0 : a >> (b & 31))
LANES_32(emu_lanes_shr_s32, S32(a) >> (b > 31 ? 31 : b))
LANE_LOOP(emu_lanes_shr_u64, uint64_t, uint64_t, uint32_t, uint32_t, b > 63 ? 0 : a >> (b & 63))
LANE_LOOP(emu_lanes_shr_s64, uint64_t, uint64_t, uint32_t, uint32_t, S64(a) >> (b > 63 ? 63 : b))

/* shf: a holds the low, b the high half. */
#define FUNNEL ((uint64_t)b << 32 | a)
#define CLAMPED (c > 32 ? 32 : c)
LANES_32(emu_lanes_shf_l_wrap, (FUNNEL << (c & 31)) >> 32)
LANES_32(emu_lanes_shf_l_clamp, (FUNNEL << CLAMPED) >> 32)
LANES_32(emu_lanes_shf_r_wrap, FUNNEL >> (c & 31))
LANES_32(emu_lanes_shf_r_clamp, FUNNEL >> CLAMPED)

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

LANES_32(emu_lanes_bfe_u32, extract(a, b, c, 32, false))
LANES_32(emu_lanes_bfe_s32, extract(a, b, c, 32, true))
LANE_LOOP(emu_lanes_bfe_u64, uint64_t, uint64_t, uint32_t, uint32_t, extract(a, b, c, 64, false))
LANE_LOOP(emu_lanes_bfe_s64, uint64_t, uint64_t, uint32_t, uint32_t, extract(a, b, c, 64, true))

static inline uint64_t reversed(uint64_t value, int bits) {
    uint64_t result = 0;
    for (int i = 0; i < bits; i++) result |= (value >> i & 1) << (bits - 1 - i);
    return result;
}

LANES_32(emu_lanes_popc_32, __builtin_popcount(a))
LANE_LOOP(emu_lanes_popc_64, uint32_t, uint64_t, uint64_t, uint64_t, __builtin_popcountll(a))
LANES_32(emu_lanes_clz_32, a ? __builtin_clz(a) : 32)
LANE_LOOP(emu_lanes_clz_64, uint32_t, uint64_t, uint64_t, uint64_t, a ? __builtin_clzll(a) : 64)
LANES_32(emu_lanes_brev_32, reversed(a, 32))
LANES_64(emu_lanes_brev_64, reversed(a, 64))

/* The highest bit that differs from the sign; .shiftamt: how far it is from the top. */
static inline uint32_t highest(uint64_t value) {
    return value ? 63 - (uint32_t)__builtin_clzll(value) : UINT32_MAX;
}
static inline uint32_t distance(uint32_t position, uint32_t top) {
    return position == UINT32_MAX ? position : top - position;
}
#define MAGNITUDE_32(x) (S32(x) < 0 ? ~(x) : (x))
#define MAGNITUDE_64(x) (S64(x) < 0 ? ~(x) : (x))
#define WIDE_SOURCE(name, value) LANE_LOOP(name, uint32_t, uint64_t, uint64_t, uint64_t, value)
LANES_32(emu_lanes_bfind_u32, highest(a))
LANES_32(emu_lanes_bfind_s32, highest(MAGNITUDE_32(a)))
WIDE_SOURCE(emu_lanes_bfind_u64, highest(a))
WIDE_SOURCE(emu_lanes_bfind_s64, highest(MAGNITUDE_64(a)))
LANES_32(emu_lanes_bfind_shiftamt_u32, distance(highest(a), 31))
LANES_32(emu_lanes_bfind_shiftamt_s32, distance(highest(MAGNITUDE_32(a)), 31))
WIDE_SOURCE(emu_lanes_bfind_shiftamt_u64, distance(highest(a), 63))
WIDE_SOURCE(emu_lanes_bfind_shiftamt_s64, distance(highest(MAGNITUDE_64(a)), 63))

/* fns: the c-th set bit of a from bit b on, upwards or downwards; with c 0, bit b itself. */
static inline uint32_t find_nth_set(uint32_t mask, uint32_t base, int32_t offset) {
    uint32_t left = offset < 0 ? 0 - (uint32_t)offset : (uint32_t)offset;
    if (!offset) return base < 32 && mask >> base & 1 ? base : UINT32_MAX;
    for (uint32_t at = base; at < 32; at += offset > 0 ? 1u : UINT32_MAX) {
        if (mask >> at & 1 && !--left) return at;
    }
    return UINT32_MAX;
}
LANES_32(emu_lanes_fns, find_nth_set(a, b, S32(c)))

LANES_32(emu_lanes_bmsk_clamp, a > 31 ? 0 : (b > 31 ? 0xffffffffu : (1u << b) - 1) << a)
LANES_32(emu_lanes_bmsk_wrap, ((1u << (b & 31)) - 1) << (a & 31))
LANES_32(emu_lanes_szext_u32, b > 31 ? a : extract(a, 0, b, 32, false))
LANES_32(emu_lanes_szext_s32, b > 31 ? a : extract(a, 0, b, 32, true))
LANES_32(emu_lanes_szext_wrap_u32, extract(a, 0, b & 31, 32, false))
LANES_32(emu_lanes_szext_wrap_s32, extract(a, 0, b & 31, 32, true))

LANE_LOOP(emu_lanes_truncate, uint32_t, uint64_t, uint64_t, uint64_t, a)
LANE_LOOP(emu_lanes_wide_u32, uint64_t, uint32_t, uint32_t, uint32_t, a)
LANES_32(emu_lanes_pack_8, (a & 0xffu) | (b & 0xffu) << 8)
LANES_32(emu_lanes_low_8, a & 0xffu)
LANES_32(emu_lanes_high_8, a >> 8 & 0xffu)
LANES_32(emu_lanes_pack_16, (a & 0xffffu) | b << 16)
LANES_32(emu_lanes_low_16, a & 0xffffu)
LANES_32(emu_lanes_high_16, a >> 16)
LANE_LOOP(emu_lanes_pack_32, uint64_t, uint32_t, uint32_t, uint32_t, a | (uint64_t)b << 32)
LANE_LOOP(emu_lanes_low_32, uint32_t, uint64_t, uint64_t, uint64_t, a)
LANE_LOOP(emu_lanes_high_32, uint32_t, uint64_t, uint64_t, uint64_t, a >> 32)

/* A 128-bit register is 32 low halves followed by 32 high halves. */
void emu_lanes_mov_128(void *d, const void *a, const void *b, const void *c) {
    (void)b, (void)c;
    memmove(d, a, 2 * LANES * sizeof(uint64_t));
}
void emu_lanes_pack_64(void *d, const void *a, const void *b, const void *c) {
    (void)c;
    memcpy(d, a, LANES * sizeof(uint64_t));
    memcpy((uint64_t *)d + LANES, b, LANES * sizeof(uint64_t));
}
void emu_lanes_low_64(void *d, const void *a, const void *b, const void *c) {
    (void)b, (void)c;
    memcpy(d, a, LANES * sizeof(uint64_t));
}
void emu_lanes_high_64(void *d, const void *a, const void *b, const void *c) {
    (void)b, (void)c;
    memcpy(d, (const uint64_t *)a + LANES, LANES * sizeof(uint64_t));
}

/* ---- instructions of four sources: the fourth follows the third in memory, see OP_LANES_4 ---- */

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

LANES_32(emu_lanes_prmt, permute(a, b, c))
/* The modes of prmt: the selector that the low two bits of c denote. */
#define PERMUTE_MODE(mode, ...)                                                                                        \
    static const uint32_t mode##_selectors[4] = {__VA_ARGS__};                                                         \
    LANES_32(emu_lanes_prmt_##mode, permute(a, b, mode##_selectors[c & 3]))
PERMUTE_MODE(f4e, 0x3210, 0x4321, 0x5432, 0x6543)
PERMUTE_MODE(b4e, 0x5670, 0x6701, 0x7012, 0x0123)
PERMUTE_MODE(rc8, 0x0000, 0x1111, 0x2222, 0x3333)
PERMUTE_MODE(ecl, 0x3210, 0x3211, 0x3222, 0x3333)
PERMUTE_MODE(ecr, 0x0000, 0x1110, 0x2210, 0x3210)
PERMUTE_MODE(rc16, 0x1010, 0x3232, 0x1010, 0x3232)

void emu_lanes_lop3(void *vd, const void *va, const void *vb, const void *vc) {
    uint32_t *d = vd;
    const uint32_t *a = va, *b = vb, *c = vc;
    FOURTH(uint32_t);
    uint32_t table = fourth[0];
    _Pragma("GCC ivdep")
    for (int i = 0; i < LANES; i++) d[i] = lop3(a[i], b[i], c[i], table);
}

void emu_lanes_bfi_32(void *vd, const void *va, const void *vb, const void *vc) {
    uint32_t *d = vd;
    const uint32_t *a = va, *b = vb, *c = vc;
    FOURTH(uint32_t);
    for (int i = 0; i < LANES; i++) d[i] = (uint32_t)insert(a[i], b[i], c[i], fourth[i], 32);
}

void emu_lanes_bfi_64(void *vd, const void *va, const void *vb, const void *vc) {
    uint64_t *d = vd;
    const uint64_t *a = va, *b = vb;
    const uint32_t *c = vc;
    FOURTH(uint32_t);
    for (int i = 0; i < LANES; i++) d[i] = insert(a[i], b[i], c[i], fourth[i], 64);
}

/* ---- sums with a carry ---- */

typedef struct sum_with_carry {
    uint64_t value;
    bool carry;
} sum_with_carry;

/* x + y + carry, of `bits` bits. */
static sum_with_carry add_carry(uint64_t x, uint64_t y, bool carry, int bits) {
    uint64_t sum = x + y, whole = sum + carry;
    if (bits == 64) return (sum_with_carry){whole, sum < x || whole < sum};
    return (sum_with_carry){whole & ((1ull << bits) - 1), whole >> bits & 1};
}

static uint64_t half_of_product(uint64_t x, uint64_t y, bool high, bool is_signed, int bits) {
    if (!high) return x * y;
    if (bits == 64) return is_signed ? high_s64(x, y) : high_u64(x, y);
    if (!is_signed) return x * y >> bits;
    return (uint64_t)((bits == 16 ? S16(x) * (int64_t)S16(y) : S32(x) * (int64_t)S32(y)) >> bits);
}

static uint64_t lane_value(const warp *w, unsigned slot, int bits, int lane) {
    return bits == 64 ? slot64(w, slot)[lane] : slot32(w, slot)[lane] & (bits == 16 ? 0xffffu : 0xffffffffu);
}

/* A subtraction adds the complement of y, as devices do: its carry is 1 where it borrows nothing, also for an addc. */
void emu_exec_carry(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m;
    int bits = 8 * o->bytes;
    uint64_t keep = bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
    const bool sub = o->detail == CARRY_SUB;
    uint32_t carries = o->p[2] == NO_PREDICATE ? -(uint32_t)sub : w->predicates[o->p[2]], result = 0;
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1)) continue;
        const bool carry = carries >> lane & 1;
        uint64_t x = lane_value(w, o->r[1], bits, lane), y = lane_value(w, o->r[2], bits, lane);
        if (o->sources == 3) {
            x = half_of_product(x, y, o->detail == CARRY_MAD_HI, o->flags & FLAG_SIGNED, bits) & keep;
            y = lane_value(w, o->r[3], bits, lane);
        }
        sum_with_carry sum = add_carry(x, sub ? ~y & keep : y, carry, bits);
        if (o->immediate)
            sum.value = clamped_s32(sub ? (int64_t)S32(x) - S32(y) - !carry : (int64_t)S32(x) + S32(y) + carry);
        if (bits == 64)
            slot64(w, o->r[0])[lane] = sum.value;
        else
            slot32(w, o->r[0])[lane] = (uint32_t)sum.value;
        result |= (uint32_t)sum.carry << lane;
    }
    if (o->p[0] != NO_PREDICATE) w->predicates[o->p[0]] = (w->predicates[o->p[0]] & ~mask) | (result & mask);
}
