/* convert.c - cvt and setp: the lane functions, and emu_find_conversion() and emu_find_compare() to choose among them.
 *
 * A function for each pair of types would be hundreds. So a conversion is a few steps: the frequent pairs have one
 * function; integers pass through 64 bits; everything else passes through f64, which loses nothing:
 *
 *     cvt.u8.s16:      s16 -> 64 bits -> u8
 *     cvt.sat.u8.s16:  s16 -> clamped 64 bits -> u8
 *     cvt.rn.f16.s32:  s32 -> f64 -> f16
 *     cvt.rzi.s32.f32: f32 -> f64 -> an integral f64 -> s32
 *
 * A 64-bit integer that f64 cannot hold is rounded to odd: an odd result is as good as an exact one for rounding again
 * to fewer digits.
 */
#include "lane_loop.h"

#include <string.h>

#define CONVERT_LOOP(name, D, A, value)                                                                                \
    static void name(void *vd, const void *va, const void *vb, const void *vc) {                                       \
        D *d = vd;                                                                                                     \
        const A *pa = va;                                                                                              \
        (void)vb, (void)vc;                                                                                            \
        _Pragma("GCC ivdep")                                                                                           \
        for (int i = 0; i < LANES; i++) {                                                                              \
            const A a = pa[i];                                                                                         \
            d[i] = (D)(value);                                                                                         \
        }                                                                                                              \
    }

/* ---- integers to 64 bits by their type, and back to the low bits ---- */

CONVERT_LOOP(wide_u8, uint64_t, uint32_t, a & 0xffu)
CONVERT_LOOP(wide_s8, uint64_t, uint32_t, (int64_t)(int8_t)a)
CONVERT_LOOP(wide_u16, uint64_t, uint32_t, a & 0xffffu)
CONVERT_LOOP(wide_s16, uint64_t, uint32_t, (int64_t)(int16_t)a)
CONVERT_LOOP(wide_s32, uint64_t, uint32_t, (int64_t)(int32_t)a)
CONVERT_LOOP(low_u8, uint32_t, uint64_t, a & 0xffu)
CONVERT_LOOP(low_s8, uint32_t, uint64_t, (uint16_t)(int8_t)a)
CONVERT_LOOP(low_16, uint32_t, uint64_t, a & 0xffffu)
CONVERT_LOOP(f32_u64, uint32_t, uint64_t, bits_of((float)a))
CONVERT_LOOP(f32_s64, uint32_t, uint64_t, bits_of((float)(int64_t)a))

/* cvt.sat between integers: clamped to the other type, in 64 bits, before the low bits are taken. */
#define CLAMP_S64(low, high) ((int64_t)a<(low) ? (low) : (int64_t)a>(high) ? (high) : (int64_t)a)
#define CLAMP_U64(high) (a > (uint64_t)(high) ? (uint64_t)(high) : a)
CONVERT_LOOP(u8_of_s64, uint64_t, uint64_t, CLAMP_S64(0, UINT8_MAX))
CONVERT_LOOP(s8_of_s64, uint64_t, uint64_t, CLAMP_S64(INT8_MIN, INT8_MAX))
CONVERT_LOOP(u16_of_s64, uint64_t, uint64_t, CLAMP_S64(0, UINT16_MAX))
CONVERT_LOOP(s16_of_s64, uint64_t, uint64_t, CLAMP_S64(INT16_MIN, INT16_MAX))
CONVERT_LOOP(u32_of_s64, uint64_t, uint64_t, CLAMP_S64(0, (int64_t)UINT32_MAX))
CONVERT_LOOP(s32_of_s64, uint64_t, uint64_t, CLAMP_S64(INT32_MIN, INT32_MAX))
CONVERT_LOOP(u64_of_s64, uint64_t, uint64_t, CLAMP_S64(0, INT64_MAX))
CONVERT_LOOP(u8_of_u64, uint64_t, uint64_t, CLAMP_U64(UINT8_MAX))
CONVERT_LOOP(s8_of_u64, uint64_t, uint64_t, CLAMP_U64(INT8_MAX))
CONVERT_LOOP(u16_of_u64, uint64_t, uint64_t, CLAMP_U64(UINT16_MAX))
CONVERT_LOOP(s16_of_u64, uint64_t, uint64_t, CLAMP_U64(INT16_MAX))
CONVERT_LOOP(u32_of_u64, uint64_t, uint64_t, CLAMP_U64(UINT32_MAX))
CONVERT_LOOP(s32_of_u64, uint64_t, uint64_t, CLAMP_U64(INT32_MAX))
CONVERT_LOOP(s64_of_u64, uint64_t, uint64_t, CLAMP_U64(INT64_MAX))

/* 64 bits to f64 rounded to odd. */
static inline uint64_t odd_f64(uint64_t magnitude, bool negative) {
    int spare = magnitude >> 53 ? 11 - __builtin_clzll(magnitude) : 0;
    uint64_t kept = magnitude >> spare, lost = magnitude & ((1ull << spare) - 1);
    double value = ldexp((double)(kept | (lost != 0)), spare);
    return bits_of_double(negative ? -value : value);
}
CONVERT_LOOP(f64_odd_u64, uint64_t, uint64_t, odd_f64(a, false))
CONVERT_LOOP(f64_odd_s64, uint64_t, uint64_t, odd_f64((int64_t)a < 0 ? 0 - a : a, (int64_t)a < 0))

CONVERT_LOOP(f64_u64, uint64_t, uint64_t, bits_of_double((double)a))
CONVERT_LOOP(f64_s64, uint64_t, uint64_t, bits_of_double((double)(int64_t)a))

/* ---- f64 to integers: round, clamp to the range; NaN gives the top bit alone where either side has 64 bits, else 0
 * ---- */

static inline uint64_t to_signed(double x, int bits, bool nan_is_zero) {
    double limit = bits == 64 ? 0x1p63 : ldexp(1.0, bits - 1);
    if (x != x) return nan_is_zero ? 0 : UINT64_MAX << (bits - 1);
    if (x >= limit) return (uint64_t)(bits == 64 ? INT64_MAX : (int64_t)(limit - 1));
    if (x < -limit) return (uint64_t)(bits == 64 ? INT64_MIN : (int64_t)-limit);
    return (uint64_t)(int64_t)x;
}

static inline uint64_t to_unsigned(double x, int bits, bool nan_is_zero) {
    double limit = ldexp(1.0, bits);
    if (x != x) return nan_is_zero ? 0 : 1ull << (bits - 1);
    if (x <= 0) return 0;
    return x >= limit ? (bits == 64 ? UINT64_MAX : (uint64_t)(limit - 1)) : (uint64_t)x;
}

CONVERT_LOOP(f64_rni, uint64_t, uint64_t, bits_of_double(rint(double_of(a))))
CONVERT_LOOP(f64_rzi, uint64_t, uint64_t, bits_of_double(trunc(double_of(a))))
CONVERT_LOOP(f64_rmi, uint64_t, uint64_t, bits_of_double(floor(double_of(a))))
CONVERT_LOOP(f64_rpi, uint64_t, uint64_t, bits_of_double(ceil(double_of(a))))
/* name##_wide: from f64; the others are for values that came from narrower types. */
#define CLAMP_LOOPS(type, D, bits, to, keep)                                                                           \
    CONVERT_LOOP(type##_f64, D, uint64_t, to(double_of(a), bits, (bits) < 64) & (keep))                                \
    CONVERT_LOOP(type##_f64_wide, D, uint64_t, to(double_of(a), bits, false) & (keep))
CLAMP_LOOPS(u8, uint32_t, 8, to_unsigned, 0xffu)
CLAMP_LOOPS(s8, uint32_t, 8, to_signed, 0xffffu)
CLAMP_LOOPS(u16, uint32_t, 16, to_unsigned, 0xffffu)
CLAMP_LOOPS(s16, uint32_t, 16, to_signed, 0xffffu)
CLAMP_LOOPS(u32, uint32_t, 32, to_unsigned, UINT32_MAX)
CLAMP_LOOPS(s32, uint32_t, 32, to_signed, UINT32_MAX)
CLAMP_LOOPS(u64, uint64_t, 64, to_unsigned, UINT64_MAX)
CLAMP_LOOPS(s64, uint64_t, 64, to_signed, UINT64_MAX)

/* ---- float to float ---- */

CONVERT_LOOP(f32_f32, uint32_t, uint32_t, a)
CONVERT_LOOP(f32_f32_ftz, uint32_t, uint32_t, flushed(canonical(float_of(a))))
CONVERT_LOOP(f32_f64, uint32_t, uint64_t, canonical((float)double_of(a)))
CONVERT_LOOP(f32_f64_ftz, uint32_t, uint64_t, flushed(canonical((float)double_of(a))))
CONVERT_LOOP(f64_f32, uint64_t, uint32_t, bits_of_double((double)float_of(a)))
CONVERT_LOOP(f64_f32_ftz, uint64_t, uint32_t, bits_of_double((double)flushed_value(a)))
CONVERT_LOOP(f64_f16, uint64_t, uint32_t, bits_of_double((double)half_value(a)))
CONVERT_LOOP(f64_bf16, uint64_t, uint32_t, bits_of_double((double)bfloat_value(a)))
CONVERT_LOOP(f32_f16, uint32_t, uint32_t, canonical(half_value(a)))
CONVERT_LOOP(f32_bf16, uint32_t, uint32_t, a << 16)
CONVERT_LOOP(f32_bf16_ftz, uint32_t, uint32_t, flushed(canonical(bfloat_value(a))))
CONVERT_LOOP(f16_f32, uint32_t, uint32_t, half_bits(float_of(a)))
CONVERT_LOOP(f16_f32_rz, uint32_t, uint32_t, half_bits_rz(float_of(a)))
CONVERT_LOOP(bf16_f32, uint32_t, uint32_t, bfloat_bits(float_of(a)))
CONVERT_LOOP(bf16_f32_rz, uint32_t, uint32_t, bfloat_bits_rz(float_of(a)))

/* cvt.rn.f16x2.f32 d, a, b: a goes to the upper half; frequent.c has the plain .rn */
#define PACK_LOOP(name, to_bits)                                                                                       \
    static void name(void *vd, const void *va, const void *vb, const void *vc) {                                       \
        uint32_t *d = vd;                                                                                              \
        const uint32_t *a = va, *b = vb;                                                                               \
        (void)vc;                                                                                                      \
        _Pragma("GCC ivdep")                                                                                           \
        for (int i = 0; i < LANES; i++) {                                                                              \
            d[i] = to_bits(float_of(a[i])) << 16 | to_bits(float_of(b[i]));                                            \
        }                                                                                                              \
    }
PACK_LOOP(f16x2_rz, half_bits_rz)
PACK_LOOP(bf16x2_rz, bfloat_bits_rz)

/* ---- f64 to the narrow formats, rounded once ---- */

typedef struct narrow_format {
    int precision, smallest; /* digits with the hidden one; exponent of the smallest normal number */
    uint32_t largest;        /* bits of the largest number */
    uint32_t infinity, nan;  /* e4m3 has no infinity: its conversions are all .satfinite */
    int width;
} narrow_format;

static const narrow_format F16 = {11, -14, 0x7bff, 0x7c00, 0x7fff, 16}, BF16 = {8, -126, 0x7f7f, 0x7f80, 0x7fff, 16},
                           E4M3 = {4, -6, 0x7e, 0x7e, 0x7f, 8}, E5M2 = {3, -14, 0x7b, 0x7c, 0x7f, 8},
                           TF32 = {11, -126, 0x3fbff, 0x3fc00, 0x3ffff, 19},
                           /* of 6 and 4 bits: NaN becomes the largest number */
    E2M3 = {4, 0, 0x1f, 0x1f, 0x1f, 6}, E3M2 = {3, -2, 0x1f, 0x1f, 0x1f, 6}, E2M1 = {2, 0, 7, 7, 7, 4};

enum narrow_rounding { NARROW_RN, NARROW_RZ, NARROW_RM, NARROW_RP, NARROW_RS };

/* The bits of a magnitude, which is finite. NARROW_RS adds `share` of the last bit and cuts. */
static uint32_t round_magnitude(double magnitude, bool negative, const narrow_format *to, enum narrow_rounding how,
                                double share) {
    int exponent;
    if (magnitude == 0) return 0;
    frexp(magnitude, &exponent);
    if (--exponent < to->smallest) exponent = to->smallest;
    /* in units of the last bit: exact, then rounded to an integer */
    double units = ldexp(magnitude, to->precision - 1 - exponent), whole = floor(units), rest = units - whole;
    bool up = how == NARROW_RN   ? rest > 0.5 || (rest == 0.5 && fmod(whole, 2) == 1)
              : how == NARROW_RZ ? false
              : how == NARROW_RS ? rest + share >= 1
                                 : rest > 0 && negative == (how == NARROW_RM);
    return ((uint32_t)(exponent - to->smallest) << (to->precision - 1)) + (uint32_t)whole + up;
}

static uint32_t narrow_by(double value, const narrow_format *to, enum narrow_rounding how, double share, bool finite) {
    bool negative = signbit(value);
    if (value != value) return to->nan;
    uint32_t sign = (uint32_t)negative << (to->width - 1);
    if (isinf(value)) return sign | (finite ? to->largest : to->infinity);
    uint32_t bits = round_magnitude(fabs(value), negative, to, how, share);
    if (bits <= to->largest) return sign | bits;
    bool stops = finite || how == NARROW_RZ || (how == NARROW_RM && !negative) || (how == NARROW_RP && negative);
    return sign | (stops ? to->largest : to->infinity);
}

static uint32_t narrow(double value, const narrow_format *to, enum narrow_rounding how, bool finite) {
    return narrow_by(value, to, how, 0, finite);
}

#define NARROW_LOOPS(name, to)                                                                                         \
    CONVERT_LOOP(name##_rn, uint32_t, uint64_t, narrow(double_of(a), &(to), NARROW_RN, false))                         \
    CONVERT_LOOP(name##_rz, uint32_t, uint64_t, narrow(double_of(a), &(to), NARROW_RZ, false))                         \
    CONVERT_LOOP(name##_rm, uint32_t, uint64_t, narrow(double_of(a), &(to), NARROW_RM, false))                         \
    CONVERT_LOOP(name##_rp, uint32_t, uint64_t, narrow(double_of(a), &(to), NARROW_RP, false))
NARROW_LOOPS(f16, F16)
NARROW_LOOPS(bf16, BF16)

/* .relu: what is negative becomes +0, NaN stays. */
static inline float positive(float x) {
    return x < 0.0f || x == 0.0f ? 0.0f : x;
}
/* The forms with .relu, .satfinite or both, from f32: two sources side by side in one result. */
#define PAIR_LOOP(name, to, how, finite, view)                                                                         \
    static void name(void *vd, const void *va, const void *vb, const void *vc) {                                       \
        uint32_t *d = vd;                                                                                              \
        const uint32_t *a = va, *b = vb;                                                                               \
        (void)vc;                                                                                                      \
        for (int i = 0; i < LANES; i++) {                                                                              \
            uint32_t high = narrow((double)view(float_of(a[i])), &(to), how, finite);                                  \
            d[i] = high << (to).width | narrow((double)view(float_of(b[i])), &(to), how, finite);                      \
        }                                                                                                              \
    }
#define ONE_AND_PAIR(name, to, how, finite, view)                                                                      \
    PAIR_LOOP(name, to, how, finite, view)                                                                             \
    CONVERT_LOOP(name##_one, uint32_t, uint32_t, narrow((double)view(float_of(a)), &(to), how, finite))
#define PAIR_LOOPS(name, to)                                                                                           \
    ONE_AND_PAIR(name##_rn_relu, to, NARROW_RN, false, positive)                                                       \
    ONE_AND_PAIR(name##_rz_relu, to, NARROW_RZ, false, positive)                                                       \
    ONE_AND_PAIR(name##_rn_finite, to, NARROW_RN, true, )                                                              \
    ONE_AND_PAIR(name##_rz_finite, to, NARROW_RZ, true, )                                                              \
    ONE_AND_PAIR(name##_rn_relu_finite, to, NARROW_RN, true, positive)                                                 \
    ONE_AND_PAIR(name##_rz_relu_finite, to, NARROW_RZ, true, positive)
PAIR_LOOPS(f16_pair, F16)
PAIR_LOOPS(bf16_pair, BF16)

/* Pairs of 8, 6 or 4 bits, `apart` bits from each other, from two f32, an f16x2 or a bf16x2. */
#define HIGH_HALF(a) ((a) >> 16)
#define LOW_HALF(a) ((a) & 0xffffu)
#define SMALL(to, value) narrow((double)(value), &(to), NARROW_RN, true)
#define FROM_SINGLES(name, to, apart, view)                                                                            \
    static void name(void *vd, const void *va, const void *vb, const void *vc) {                                       \
        uint32_t *d = vd;                                                                                              \
        const uint32_t *a = va, *b = vb;                                                                               \
        (void)vc;                                                                                                      \
        for (int i = 0; i < LANES; i++)                                                                                \
            d[i] = SMALL(to, view(float_of(a[i]))) << (apart) | SMALL(to, view(float_of(b[i])));                       \
    }
#define FROM_HALVES(name, to, apart, view)                                                                             \
    CONVERT_LOOP(name, uint32_t, uint32_t, SMALL(to, view(HIGH_HALF(a))) << (apart) | SMALL(to, view(LOW_HALF(a))))
#define POSITIVE_HALF(a) positive(half_value(a))
#define POSITIVE_BFLOAT(a) positive(bfloat_value(a))

/* One of them as f16, which holds them all. */
static uint32_t half_of_small(uint32_t bits, const narrow_format *from) {
    const uint32_t digits = (uint32_t)from->precision - 1, magnitude = bits & ((1u << (from->width - 1)) - 1);
    const uint32_t exponent = magnitude >> digits, fraction = magnitude & ((1u << digits) - 1);
    const uint32_t whole = exponent ? fraction | 1u << digits : fraction;
    const uint32_t sign = (bits >> (from->width - 1) & 1) << 15;
    if (magnitude > from->largest) return magnitude == from->infinity ? sign | 0x7c00u : 0x7fffu;
    const double value = ldexp((double)whole, (exponent ? (int)exponent : 1) - 1 + from->smallest - (int)digits);
    return sign | narrow(value, &F16, NARROW_RN, false);
}
#define SMALL_LOOPS(name, of, apart)                                                                                   \
    FROM_SINGLES(name##_f32, of, apart, )                                                                              \
    FROM_SINGLES(name##_f32_relu, of, apart, positive)                                                                 \
    FROM_HALVES(name##_f16x2, of, apart, half_value)                                                                   \
    FROM_HALVES(name##_f16x2_relu, of, apart, POSITIVE_HALF)                                                           \
    FROM_HALVES(name##_bf16x2, of, apart, bfloat_value)                                                                \
    FROM_HALVES(name##_bf16x2_relu, of, apart, POSITIVE_BFLOAT)                                                        \
    CONVERT_LOOP(f16x2_##name, uint32_t, uint32_t, half_of_small(a >> (apart), &(of)) << 16 | half_of_small(a, &(of)))
SMALL_LOOPS(e4m3x2, E4M3, 8)
SMALL_LOOPS(e5m2x2, E5M2, 8)
SMALL_LOOPS(e2m3x2, E2M3, 8)
SMALL_LOOPS(e3m2x2, E3M2, 8)
SMALL_LOOPS(e2m1x2, E2M1, 4)
/* Exact for what was one of them. */
static uint32_t bfloat_of_half(uint32_t half) {
    return (uint32_t)narrow((double)half_value(half), &BF16, NARROW_RZ, false);
}
CONVERT_LOOP(bf16x2_f16x2, uint32_t, uint32_t, bfloat_of_half(HIGH_HALF(a)) << 16 | bfloat_of_half(LOW_HALF(a)))

/* Rounded with random bits c: of f16x2 and bf16x2 the upper half for a and the lower for b, else the lower for both. */
#define RANDOM_PAIR(name, to, apart, of_a, count, finite, view)                                                        \
    static void name(void *vd, const void *va, const void *vb, const void *vc) {                                       \
        uint32_t *d = vd;                                                                                              \
        const uint32_t *a = va, *b = vb, *c = vc;                                                                      \
        for (int i = 0; i < LANES; i++) {                                                                              \
            const double high = (double)(c[i] >> (of_a) & ((1u << (count)) - 1)) / (1 << (count));                     \
            const double low = (double)(c[i] & ((1u << (count)) - 1)) / (1 << (count));                                \
            const uint32_t first = narrow_by((double)view(float_of(a[i])), &(to), NARROW_RS, high, finite);            \
            d[i] = first << (apart) | narrow_by((double)view(float_of(b[i])), &(to), NARROW_RS, low, finite);          \
        }                                                                                                              \
    }
#define RANDOM_HALVES(name, to, count)                                                                                 \
    RANDOM_PAIR(random_##name, to, 16, 16, count, false, )                                                             \
    RANDOM_PAIR(random_##name##_relu, to, 16, 16, count, false, positive)                                              \
    RANDOM_PAIR(random_##name##_finite, to, 16, 16, count, true, )                                                     \
    RANDOM_PAIR(random_##name##_relu_finite, to, 16, 16, count, true, positive)
#define RANDOM_SMALL(name, to, apart)                                                                                  \
    RANDOM_PAIR(random_##name, to, apart, 0, 16, true, )                                                               \
    RANDOM_PAIR(random_##name##_relu, to, apart, 0, 16, true, positive)
RANDOM_HALVES(f16x2, F16, 13)
RANDOM_HALVES(bf16x2, BF16, 16)
RANDOM_SMALL(e4m3x4, E4M3, 8)
RANDOM_SMALL(e5m2x4, E5M2, 8)
RANDOM_SMALL(e2m3x4, E2M3, 8)
RANDOM_SMALL(e3m2x4, E3M2, 8)
RANDOM_SMALL(e2m1x4, E2M1, 4)

/* ue8m0 is the exponent field of an f32, of a magnitude that is cut or rounded up to a power of two. */
static inline uint32_t power_field(uint32_t bits, bool up, bool finite) {
    const uint32_t magnitude = bits & 0x7fffffffu, fraction = magnitude & 0x7fffffu, least = 0x400000 /* 2^-127 */;
    if (magnitude > 0x7f800000u) return 0xff;
    const uint32_t field = (magnitude >> 23) + (up && (magnitude >> 23 ? fraction != 0 : fraction > least));
    return finite && field > 0xfe ? 0xfe : field;
}
#define POWER_LOOPS(name, up, finite)                                                                                  \
    static void name##_f32(void *vd, const void *va, const void *vb, const void *vc) {                                 \
        uint32_t *d = vd;                                                                                              \
        const uint32_t *a = va, *b = vb;                                                                               \
        (void)vc;                                                                                                      \
        for (int i = 0; i < LANES; i++) d[i] = power_field(a[i], up, finite) << 8 | power_field(b[i], up, finite);     \
    }                                                                                                                  \
    CONVERT_LOOP(name##_bf16x2, uint32_t, uint32_t,                                                                    \
                 power_field(a & 0xffff0000u, up, finite) << 8 | power_field(a << 16, up, finite))
POWER_LOOPS(ue8m0x2_rz, false, false)
POWER_LOOPS(ue8m0x2_rp, true, false)
POWER_LOOPS(ue8m0x2_rz_finite, false, true)
POWER_LOOPS(ue8m0x2_rp_finite, true, true)
static inline uint32_t bfloat_of_power(uint32_t field) {
    return field == 0xff ? 0x7fff : field ? field << 7 : 0x40;
}
CONVERT_LOOP(bf16x2_ue8m0x2, uint32_t, uint32_t, bfloat_of_power(a >> 8 & 0xff) << 16 | bfloat_of_power(a & 0xff))

/* tf32 uses the upper 19 of 32 bits. rna adds half a unit and truncates; infinities and NaN are only truncated. */
static inline uint32_t tf32_rna(uint32_t bits, bool finite) {
    bool number = (bits & 0x7fffffffu) < 0x7f800000u;
    uint32_t rounded = (number ? bits + 0x1000u : bits) & 0xffffe000u;
    bool too_large = (rounded & 0x7fffffffu) == 0x7f800000u;
    return finite && too_large ? (rounded & 0x80000000u) | 0x7f7fe000u : rounded;
}
CONVERT_LOOP(tf32_f32_rna, uint32_t, uint32_t, tf32_rna(a, false))
CONVERT_LOOP(tf32_f32_rna_finite, uint32_t, uint32_t, tf32_rna(a, true))
#define TF32_LOOPS(name, how, finite)                                                                                  \
    CONVERT_LOOP(name, uint32_t, uint32_t, narrow((double)float_of(a), &TF32, how, finite) << 13)                      \
    CONVERT_LOOP(name##_relu, uint32_t, uint32_t, narrow((double)positive(float_of(a)), &TF32, how, finite) << 13)
TF32_LOOPS(tf32_f32_rn, NARROW_RN, false)
TF32_LOOPS(tf32_f32_rz, NARROW_RZ, false)
TF32_LOOPS(tf32_f32_rn_finite, NARROW_RN, true)
TF32_LOOPS(tf32_f32_rz_finite, NARROW_RZ, true)

/* ---- cvt.pack: a above b, each clamped from s32; c is moved up by as much ---- */

static inline uint32_t clamped_field(uint32_t value, int32_t low, int32_t high, int bits) {
    int32_t x = (int32_t)value;
    return (uint32_t)(x < low ? low : x > high ? high : x) & ((1u << bits) - 1);
}
#define PACK_FIELDS(name, low, high, bits)                                                                             \
    LANES_32(name, (bits) == 16 ? clamped_field(a, low, high, bits) << 16 | clamped_field(b, low, high, bits)          \
                                : c << (2 * (bits) & 31) | clamped_field(a, low, high, bits) << (bits) |               \
                                      clamped_field(b, low, high, bits))
PACK_FIELDS(emu_lanes_pack_u16, 0, UINT16_MAX, 16)
PACK_FIELDS(emu_lanes_pack_s16, INT16_MIN, INT16_MAX, 16)
PACK_FIELDS(emu_lanes_pack_u8, 0, UINT8_MAX, 8)
PACK_FIELDS(emu_lanes_pack_s8, INT8_MIN, INT8_MAX, 8)
PACK_FIELDS(emu_lanes_pack_u4, 0, 15, 4)
PACK_FIELDS(emu_lanes_pack_s4, -8, 7, 4)
PACK_FIELDS(emu_lanes_pack_u2, 0, 3, 2)
PACK_FIELDS(emu_lanes_pack_s2, -2, 1, 2)

/* ---- choice ---- */

typedef struct named_function {
    const char *name;
    lane_function *lanes;
} named_function;

static const named_function to_wide[] = {{"u8", wide_u8},
                                         {"s8", wide_s8},
                                         {"u16", wide_u16},
                                         {"s16", wide_s16},
                                         {"u32", emu_lanes_wide_u32},
                                         {"s32", wide_s32},
                                         {"u64", emu_lanes_mov_64},
                                         {"s64", emu_lanes_mov_64}};
static const named_function from_wide[] = {{"u8", low_u8},
                                           {"s8", low_s8},
                                           {"u16", low_16},
                                           {"s16", low_16},
                                           {"u32", emu_lanes_truncate},
                                           {"s32", emu_lanes_truncate},
                                           {"u64", emu_lanes_mov_64},
                                           {"s64", emu_lanes_mov_64}};
static const named_function clamps[] = {{"u8", u8_f64},   {"s8", s8_f64},   {"u16", u16_f64}, {"s16", s16_f64},
                                        {"u32", u32_f64}, {"s32", s32_f64}, {"u64", u64_f64}, {"s64", s64_f64}};
static const named_function clamps_of_f64[] = {{"u8", u8_f64_wide},   {"s8", s8_f64_wide},   {"u16", u16_f64_wide},
                                               {"s16", s16_f64_wide}, {"u32", u32_f64_wide}, {"s32", s32_f64_wide},
                                               {"u64", u64_f64_wide}, {"s64", s64_f64_wide}};
static const named_function roundings[] = {{"rni", f64_rni}, {"rzi", f64_rzi}, {"rmi", f64_rmi}, {"rpi", f64_rpi}};
/* cvt.sat of integers, by the type that is clamped to. */
static const named_function from_signed[] = {{"u8", u8_of_s64},   {"s8", s8_of_s64},   {"u16", u16_of_s64},
                                             {"s16", s16_of_s64}, {"u32", u32_of_s64}, {"s32", s32_of_s64},
                                             {"u64", u64_of_s64}};
static const named_function from_unsigned[] = {{"u8", u8_of_u64},   {"s8", s8_of_u64},   {"u16", u16_of_u64},
                                               {"s16", s16_of_u64}, {"u32", u32_of_u64}, {"s32", s32_of_u64},
                                               {"s64", s64_of_u64}};
static const named_function to_f64[] = {
    {"f16", f64_f16}, {"bf16", f64_bf16}, {"f32", f64_f32}, {"f64", emu_lanes_mov_64}};
static const named_function to_f16[] = {{"rn", f16_rn}, {"rz", f16_rz}, {"rm", f16_rm}, {"rp", f16_rp}};
static const named_function to_bf16[] = {{"rn", bf16_rn}, {"rz", bf16_rz}, {"rm", bf16_rm}, {"rp", bf16_rp}};

#define NAMED(table, name) find_named(table, sizeof(table) / sizeof *(table), name)
static lane_function *find_named(const named_function *table, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(table[i].name, name)) return table[i].lanes;
    }
    return NULL;
}

/* Conversions of one step: the frequent ones, and those between packed formats. */
typedef struct direct_conversion {
    const char *rounding, *to, *from;
    bool relu, finite;
    lane_function *lanes, *flushing; /* flushing: with .ftz, NULL where there is none */
} direct_conversion;

#define WITH_MODIFIERS(rounding, to, name)                                                                             \
    {rounding, to, "f32", true, false, name##_relu_one, NULL},                                                         \
        {rounding, to, "f32", false, true, name##_finite_one, NULL},                                                   \
        {rounding, to, "f32", true, true, name##_relu_finite_one, NULL},                                               \
        {rounding, to "x2", "f32", true, false, name##_relu, NULL},                                                    \
        {rounding, to "x2", "f32", false, true, name##_finite, NULL}, {                                                \
        rounding, to "x2", "f32", true, true, name##_relu_finite, NULL                                                 \
    }
#define SMALL_PAIRS(type, name)                                                                                        \
    {"rn", type, "f32", false, true, name##_f32, NULL}, {"rn", type, "f32", true, true, name##_f32_relu, NULL},        \
        {"rn", type, "f16x2", false, true, name##_f16x2, NULL},                                                        \
        {"rn", type, "f16x2", true, true, name##_f16x2_relu, NULL},                                                    \
        {"rn", type, "bf16x2", false, true, name##_bf16x2, NULL},                                                      \
        {"rn", type, "bf16x2", true, true, name##_bf16x2_relu, NULL}, {                                                \
        "rn", "f16x2", type, false, false, f16x2_##name, NULL                                                          \
    }
static const direct_conversion direct_conversions[] = {
    {"", "f32", "f32", false, false, f32_f32, f32_f32_ftz},
    {"rn", "f32", "f64", false, false, f32_f64, f32_f64_ftz},
    {"", "f64", "f32", false, false, f64_f32, f64_f32_ftz},
    {"", "f64", "f64", false, false, emu_lanes_mov_64, NULL},
    {"", "f64", "f16", false, false, f64_f16, NULL},
    {"", "f32", "f16", false, false, f32_f16, f32_f16},
    {"", "f32", "bf16", false, false, f32_bf16, f32_bf16_ftz},
    {"rn", "f16", "f32", false, false, f16_f32, f16_f32},
    {"rz", "f16", "f32", false, false, f16_f32_rz, NULL},
    {"rn", "bf16", "f32", false, false, bf16_f32, NULL},
    {"rz", "bf16", "f32", false, false, bf16_f32_rz, NULL},
    {"rn", "f16x2", "f32", false, false, emu_lanes_f16x2_rn, NULL},
    {"rz", "f16x2", "f32", false, false, f16x2_rz, NULL},
    {"rn", "bf16x2", "f32", false, false, emu_lanes_bf16x2_rn, NULL},
    {"rz", "bf16x2", "f32", false, false, bf16x2_rz, NULL},
    WITH_MODIFIERS("rn", "f16", f16_pair_rn),
    WITH_MODIFIERS("rz", "f16", f16_pair_rz),
    WITH_MODIFIERS("rn", "bf16", bf16_pair_rn),
    WITH_MODIFIERS("rz", "bf16", bf16_pair_rz),
    SMALL_PAIRS("e4m3x2", e4m3x2),
    SMALL_PAIRS("e5m2x2", e5m2x2),
    SMALL_PAIRS("e2m3x2", e2m3x2),
    SMALL_PAIRS("e3m2x2", e3m2x2),
    SMALL_PAIRS("e2m1x2", e2m1x2),
    {"rz", "ue8m0x2", "f32", false, false, ue8m0x2_rz_f32, NULL},
    {"rp", "ue8m0x2", "f32", false, false, ue8m0x2_rp_f32, NULL},
    {"rz", "ue8m0x2", "f32", false, true, ue8m0x2_rz_finite_f32, NULL},
    {"rp", "ue8m0x2", "f32", false, true, ue8m0x2_rp_finite_f32, NULL},
    {"rz", "ue8m0x2", "bf16x2", false, false, ue8m0x2_rz_bf16x2, NULL},
    {"rp", "ue8m0x2", "bf16x2", false, false, ue8m0x2_rp_bf16x2, NULL},
    {"rz", "ue8m0x2", "bf16x2", false, true, ue8m0x2_rz_finite_bf16x2, NULL},
    {"rp", "ue8m0x2", "bf16x2", false, true, ue8m0x2_rp_finite_bf16x2, NULL},
    {"rn", "bf16x2", "ue8m0x2", false, false, bf16x2_ue8m0x2, NULL},
    {"rna", "tf32", "f32", false, false, tf32_f32_rna, NULL},
    {"rna", "tf32", "f32", false, true, tf32_f32_rna_finite, NULL},
    {"rn", "tf32", "f32", false, false, tf32_f32_rn, NULL},
    {"rz", "tf32", "f32", false, false, tf32_f32_rz, NULL},
    {"rn", "tf32", "f32", true, false, tf32_f32_rn_relu, NULL},
    {"rz", "tf32", "f32", true, false, tf32_f32_rz_relu, NULL},
    {"rn", "tf32", "f32", false, true, tf32_f32_rn_finite, NULL},
    {"rz", "tf32", "f32", false, true, tf32_f32_rz_finite, NULL},
    {"rn", "tf32", "f32", true, true, tf32_f32_rn_finite_relu, NULL},
    {"rz", "tf32", "f32", true, true, tf32_f32_rz_finite_relu, NULL},
};

static lane_function *find_direct(const conversion_request *request) {
    for (size_t i = 0; i < sizeof direct_conversions / sizeof *direct_conversions; i++) {
        const direct_conversion *c = &direct_conversions[i];
        if (!strcmp(c->to, request->to->name) && !strcmp(c->from, request->from->name) &&
            !strcmp(c->rounding, request->rounding) && c->relu == request->relu && c->finite == request->finite)
            return request->ftz ? c->flushing : c->lanes;
    }
    return NULL;
}

lane_function *emu_find_stochastic(const char *to, bool relu, bool finite) {
    static const struct {
        const char *to;
        bool relu, finite;
        lane_function *lanes;
    } all[] = {{"f16x2", false, false, random_f16x2},         {"f16x2", true, false, random_f16x2_relu},
               {"f16x2", false, true, random_f16x2_finite},   {"f16x2", true, true, random_f16x2_relu_finite},
               {"bf16x2", false, false, random_bf16x2},       {"bf16x2", true, false, random_bf16x2_relu},
               {"bf16x2", false, true, random_bf16x2_finite}, {"bf16x2", true, true, random_bf16x2_relu_finite},
               {"e4m3x4", false, true, random_e4m3x4},        {"e4m3x4", true, true, random_e4m3x4_relu},
               {"e5m2x4", false, true, random_e5m2x4},        {"e5m2x4", true, true, random_e5m2x4_relu},
               {"e2m3x4", false, true, random_e2m3x4},        {"e2m3x4", true, true, random_e2m3x4_relu},
               {"e3m2x4", false, true, random_e3m2x4},        {"e3m2x4", true, true, random_e3m2x4_relu},
               {"e2m1x4", false, true, random_e2m1x4},        {"e2m1x4", true, true, random_e2m1x4_relu}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].to, to) && all[i].relu == relu && all[i].finite == finite) return all[i].lanes;
    return NULL;
}

/* Append a step whose result has that many bits; a step that is not there makes the whole conversion unknown. */
static void add_step(conversion *way, lane_function *lanes, int bits) {
    way->steps[way->count] = lanes;
    way->bits[way->count++] = (uint8_t)(bits < 16 ? 16 : bits);
}

static void integer_steps(conversion *way, const conversion_request *request) {
    const type_info *to = request->to, *from = request->from;
    if (from->bits < 64) add_step(way, NAMED(to_wide, from->name), 64);
    if (request->sat)
        add_step(way, from->family == 's' ? NAMED(from_signed, to->name) : NAMED(from_unsigned, to->name), 64);
    if (to->bits < 64 || !way->count) add_step(way, NAMED(from_wide, to->name), to->bits);
}

/* An integer to f64 without loss; to f32 and f64 as results, rounded at once. */
static void steps_from_integer(conversion *way, const type_info *to, const type_info *from) {
    bool is_signed = from->family == 's';
    if (from->bits < 64) add_step(way, NAMED(to_wide, from->name), 64);
    if (to->family != 'f')
        add_step(way, is_signed ? f64_odd_s64 : f64_odd_u64, 64);
    else if (to->bits == 32)
        add_step(way, is_signed ? f32_s64 : f32_u64, 32);
    else
        add_step(way, is_signed ? f64_s64 : f64_u64, 64);
}

/* Through f64: there, perhaps to an integral value, and to the other type. */
static void steps_by_f64(conversion *way, const conversion_request *request) {
    const type_info *to = request->to, *from = request->from;
    lane_function *integral = NAMED(roundings, request->rounding);
    const char *rounding = *request->rounding && !integral ? request->rounding : "rn";
    bool from_integer = strchr("us", from->family), flushes = request->ftz && !strcmp(from->name, "f32");
    if (from_integer)
        steps_from_integer(way, to, from);
    else if (from->bits < 64 || !integral)
        add_step(way, flushes ? f64_f32_ftz : NAMED(to_f64, from->name), 64);
    if (integral) add_step(way, integral, 64);
    if (strchr("us", to->family))
        add_step(way, from->bits == 64 ? NAMED(clamps_of_f64, to->name) : NAMED(clamps, to->name), to->bits);
    else if (to->family == 'f' && to->bits == 32 && !from_integer)
        add_step(way, request->ftz ? f32_f64_ftz : f32_f64, 32);
    else if (to->family != 'f')
        add_step(way, to->family == 'h' ? NAMED(to_f16, rounding) : NAMED(to_bf16, rounding), 16);
}

/* The modifiers of a float result that are steps of their own. */
static void add_modifiers(conversion *way, const conversion_request *request) {
    const type_info *to = request->to;
    const bool decoded = strchr("HG", to->family) && request->from->family == 'E';
    if (request->relu && decoded) add_step(way, emu_lanes_positive_f16x2, 32);
    if (decoded && to->family == 'G' && strcmp(request->from->name, "ue8m0x2")) add_step(way, bf16x2_f16x2, 32);
    if (!request->sat || strchr("us", to->family)) return;
    add_step(way,
             to->family == 'h' ? emu_lanes_saturate_f16x2
             : to->bits == 64  ? emu_lanes_saturate_f64
                               : emu_lanes_saturate_f32,
             to->bits);
}

bool emu_find_conversion(const conversion_request *request, conversion *way) {
    static const char *const directed[] = {[ROUND_ZERO] = "rz", [ROUND_DOWN] = "rm", [ROUND_UP] = "rp"};
    const type_info *to = request->to, *from = request->from;
    conversion_request plain = *request;
    *way = (conversion){0};
    if (from->family == 'E') plain.relu = false;
    if (from->family == 'E' && strcmp(from->name, "ue8m0x2")) plain.to = emu_find_type("f16x2");
    lane_function *direct = find_direct(&plain);
    if (direct)
        add_step(way, direct, to->bits);
    else if (strchr("us", from->family) && strchr("us", to->family))
        integer_steps(way, request);
    else if (!request->relu && !request->finite && strchr("usfhg", from->family) && strchr("usfhg", to->family))
        steps_by_f64(way, request);
    for (uint8_t i = ROUND_ZERO; i <= ROUND_UP && !direct; i++) {
        if (!strcmp(directed[i], request->rounding)) way->rounding = i;
    }
    add_modifiers(way, request);
    for (int i = 0; i < way->count; i++) {
        if (!way->steps[i]) return false;
    }
    return way->count > 0;
}

/* ---- comparisons: a bit per lane where the relation of the two values is one of the wanted ---- */

enum { LESS = 1, EQUAL = 2, GREATER = 4, UNORDERED = 8 };

#define COMPARE_LOOP(name, A, T, view)                                                                                 \
    static uint32_t name(const void *va, const void *vb, uint32_t wanted) {                                            \
        const A *pa = va, *pb = vb;                                                                                    \
        uint32_t result = 0;                                                                                           \
        for (int i = 0; i < LANES; i++) {                                                                              \
            const T x = view(pa[i]), y = view(pb[i]);                                                                  \
            uint32_t relation = x < y ? LESS : x > y ? GREATER : x == y ? EQUAL : UNORDERED;                           \
            result |= (uint32_t)((relation & wanted) != 0) << i;                                                       \
        }                                                                                                              \
        return result;                                                                                                 \
    }
#define LOW_16(a) (uint16_t)(a)
COMPARE_LOOP(compare_u16, uint32_t, uint16_t, LOW_16)
COMPARE_LOOP(compare_s16, uint32_t, int16_t, (int16_t))
COMPARE_LOOP(compare_u32, uint32_t, uint32_t, )
COMPARE_LOOP(compare_s32, uint32_t, int32_t, (int32_t))
COMPARE_LOOP(compare_u64, uint64_t, uint64_t, )
COMPARE_LOOP(compare_s64, uint64_t, int64_t, (int64_t))
COMPARE_LOOP(compare_f32, uint32_t, float, float_of)
COMPARE_LOOP(compare_f32_ftz, uint32_t, float, flushed_value)
COMPARE_LOOP(compare_f64, uint64_t, double, double_of)
COMPARE_LOOP(compare_f16, uint32_t, float, half_value)
COMPARE_LOOP(compare_bf16, uint32_t, float, bfloat_value)
static inline float flushed_half_value(uint32_t half) {
    return half_value(half & 0x7c00u ? half : half & 0x8000u);
}
COMPARE_LOOP(compare_f16_ftz, uint32_t, float, flushed_half_value)

/* testp: the kind of number that the first source is. */
enum { KIND_NORMAL = 1, KIND_SUBNORMAL = 2, KIND_ZERO = 4, KIND_INFINITE = 8, KIND_NAN = 16 };
static uint32_t kind_of(double value, double smallest) {
    double magnitude = fabs(value);
    if (value != value) return KIND_NAN;
    if (isinf(value)) return KIND_INFINITE;
    return magnitude >= smallest ? KIND_NORMAL : magnitude > 0 ? KIND_SUBNORMAL : KIND_ZERO;
}
#define TEST_LOOP(name, A, view, smallest)                                                                             \
    static uint32_t name(const void *va, const void *vb, uint32_t wanted) {                                            \
        const A *pa = va;                                                                                              \
        uint32_t result = 0;                                                                                           \
        (void)vb;                                                                                                      \
        for (int i = 0; i < LANES; i++)                                                                                \
            result |= (uint32_t)((kind_of((double)view(pa[i]), smallest) & wanted) != 0) << i;                         \
        return result;                                                                                                 \
    }
TEST_LOOP(test_f32, uint32_t, float_of, 0x1p-126)
TEST_LOOP(test_f64, uint64_t, double_of, 0x1p-1022)

static const struct {
    const char *type;
    compare_function *compare;
} compare_functions[] = {
    {"b16", compare_u16},   {"b32", compare_u32},   {"b64", compare_u64},     {"u16", compare_u16},
    {"u32", compare_u32},   {"u64", compare_u64},   {"s16", compare_s16},     {"s32", compare_s32},
    {"s64", compare_s64},   {"f32", compare_f32},   {"f64", compare_f64},     {"f16", compare_f16},
    {"bf16", compare_bf16}, {"f16x2", compare_f16}, {"bf16x2", compare_bf16},
};

/* ne is ordered for floats: false with a NaN; the ..u forms are true with one. */
static const struct {
    const char *name, *families; /* of type_info */
    uint8_t wanted;
} comparisons[] = {
    {"eq", "busfhgHG", EQUAL},
    {"ne", "busfhgHG", LESS | GREATER},
    {"lt", "usfhgHG", LESS},
    {"le", "usfhgHG", LESS | EQUAL},
    {"gt", "usfhgHG", GREATER},
    {"ge", "usfhgHG", GREATER | EQUAL},
    {"lo", "u", LESS},
    {"ls", "u", LESS | EQUAL},
    {"hi", "u", GREATER},
    {"hs", "u", GREATER | EQUAL},
    {"equ", "fhgHG", EQUAL | UNORDERED},
    {"neu", "fhgHG", LESS | GREATER | UNORDERED},
    {"ltu", "fhgHG", LESS | UNORDERED},
    {"leu", "fhgHG", LESS | EQUAL | UNORDERED},
    {"gtu", "fhgHG", GREATER | UNORDERED},
    {"geu", "fhgHG", GREATER | EQUAL | UNORDERED},
    {"num", "fhgHG", LESS | EQUAL | GREATER},
    {"nan", "fhgHG", UNORDERED},
};

compare_function *emu_find_compare(const char *name, const type_info *type, bool ftz, uint8_t *wanted) {
    *wanted = 0;
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++) {
        if (!strcmp(comparisons[i].name, name) && strchr(comparisons[i].families, type->family))
            *wanted = comparisons[i].wanted;
    }
    if (!*wanted) return NULL;
    if (ftz && strchr("hH", type->family)) return compare_f16_ftz;
    if (ftz) return strcmp(type->name, "f32") ? NULL : compare_f32_ftz;
    for (size_t i = 0; i < sizeof compare_functions / sizeof *compare_functions; i++) {
        if (!strcmp(compare_functions[i].type, type->name)) return compare_functions[i].compare;
    }
    return NULL;
}

compare_function *emu_find_test(const char *property, const type_info *type, uint8_t *wanted) {
    static const struct {
        const char *name;
        uint8_t kinds;
    } properties[] = {{"finite", KIND_NORMAL | KIND_SUBNORMAL | KIND_ZERO},
                      {"infinite", KIND_INFINITE},
                      {"number", KIND_NORMAL | KIND_SUBNORMAL | KIND_ZERO | KIND_INFINITE},
                      {"notanumber", KIND_NAN},
                      {"normal", KIND_NORMAL | KIND_ZERO}, /* as the PTX ISA has it */
                      {"subnormal", KIND_SUBNORMAL}};
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
        if (!strcmp(properties[i].name, property)) *wanted = properties[i].kinds;
    }
    return type->bits == 64 ? test_f64 : test_f32;
}
