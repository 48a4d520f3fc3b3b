/* half.c - arithmetic on f16 and bf16 registers, single and packed: as exact as f64 needs to be, and rounded once. */
#include "lane_loop.h"

#include <string.h>

/* A result that is rounded to odd may be rounded again, to fewer digits, as if it were exact: an inexact value never
 * looks like one on the border between two. Products of 16-bit values are exact in f64; sums and the step through f32
 * need it. */
static inline double add_odd(double x, double y) {
    double sum = x + y, part = sum - x, error = (x - (sum - part)) + (y - part);
    if (error == 0 || !isfinite(sum)) return sum;
    uint64_t bits;
    memcpy(&bits, &sum, 8);
    if (!(bits & 1)) bits += (error > 0) == (sum > 0) ? 1 : UINT64_MAX;
    memcpy(&sum, &bits, 8);
    return sum;
}

static inline float round_odd(double value) {
    float nearest = (float)value;
    if ((double)nearest == value || value != value || isinf(nearest)) return nearest;
    uint32_t bits = bits_of(nearest);
    if (bits & 1) return nearest;
    bool away = fabs((double)nearest) > fabs(value);
    return float_of(away ? bits - 1 : bits + 1);
}

/* An operation on exact values. One of fewer sources ignores the rest. */
typedef double operation(double x, double y, double z);

static double sum(double x, double y, double z) {
    (void)z;
    return add_odd(x, y);
}
static double difference(double x, double y, double z) {
    (void)z;
    return add_odd(x, -y);
}
static double product(double x, double y, double z) {
    (void)z;
    return x * y;
}
static double product_and_sum(double x, double y, double z) {
    return add_odd(x * y, z);
}
static double least(double x, double y, double z) {
    (void)z;
    return x != x ? y : y != y ? x : x < y || (x == y && signbit(x)) ? x : y;
}
static double most(double x, double y, double z) {
    (void)z;
    return x != x ? y : y != y ? x : x > y || (x == y && signbit(y)) ? x : y;
}
static double least_or_nan(double x, double y, double z) {
    return x != x ? x : y != y ? y : least(x, y, z);
}
static double most_or_nan(double x, double y, double z) {
    return x != x ? x : y != y ? y : most(x, y, z);
}
static double tangent(double x, double y, double z) {
    (void)y, (void)z;
    return tanh(x);
}
static double power_of_two(double x, double y, double z) {
    (void)y, (void)z;
    return exp2(x);
}

static double value_of(uint32_t bits, bool bfloat) {
    return (double)(bfloat ? bfloat_value(bits & 0xffffu) : half_value(bits & 0xffffu));
}

/* All lanes of registers that hold one value or, packed, two. */
static void half_lanes(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *c, operation *result_of,
                       bool bfloat, bool packed) {
    for (int i = 0; i < LANES; i++) {
        uint32_t bits = 0;
        for (int shift = 0; shift < (packed ? 32 : 16); shift += 16) {
            double x = value_of(a[i] >> shift, bfloat), y = value_of(b[i] >> shift, bfloat),
                   z = value_of(c[i] >> shift, bfloat);
            float result = round_odd(result_of(x, y, z));
            bits |= (bfloat ? bfloat_bits(result) : half_bits(result)) << shift;
        }
        d[i] = bits;
    }
}

#define HALF_LANES(name, result_of, bfloat, packed)                                                                    \
    void name(void *d, const void *a, const void *b, const void *c) {                                                  \
        half_lanes(d, a, b, c, result_of, bfloat, packed);                                                             \
    }
#define F16_LANES(name, result_of)                                                                                     \
    HALF_LANES(emu_lanes_##name##_f16, result_of, false, false)                                                        \
    HALF_LANES(emu_lanes_##name##_f16x2, result_of, false, true)
#define BF16_LANES(name, result_of)                                                                                    \
    HALF_LANES(emu_lanes_##name##_bf16, result_of, true, false)                                                        \
    HALF_LANES(emu_lanes_##name##_bf16x2, result_of, true, true)

#define BOTH_LANES(name, result_of)                                                                                    \
    F16_LANES(name, result_of)                                                                                         \
    BF16_LANES(name, result_of)
BOTH_LANES(add, sum)
BOTH_LANES(sub, difference)
BOTH_LANES(mul, product)
BOTH_LANES(fma, product_and_sum)
BOTH_LANES(min, least)
BOTH_LANES(max, most)
BOTH_LANES(min_nan, least_or_nan)
BOTH_LANES(max_nan, most_or_nan)
BOTH_LANES(tanh, tangent)
F16_LANES(ex2, power_of_two)

/* ex2.approx.ftz.bf16: bfloat16 has the exponents of f32, and a subnormal source gives 1 anyway. */
static uint32_t flush_bfloat(uint32_t half) {
    return half & 0x7f80u ? half : half & 0x8000u;
}
void emu_lanes_ex2_bf16(void *d, const void *a, const void *b, const void *c) {
    half_lanes(d, a, b, c, power_of_two, true, false);
    for (int i = 0; i < LANES; i++) ((uint32_t *)d)[i] = flush_bfloat(((uint32_t *)d)[i]);
}
void emu_lanes_ex2_bf16x2(void *d, const void *a, const void *b, const void *c) {
    half_lanes(d, a, b, c, power_of_two, true, true);
    for (int i = 0; i < LANES; i++) {
        uint32_t bits = ((uint32_t *)d)[i];
        ((uint32_t *)d)[i] = flush_bfloat(bits >> 16) << 16 | flush_bfloat(bits & 0xffffu);
    }
}

/* ---- modifiers, of one value or two ---- */

static uint32_t flush_half(uint32_t half) {
    return half & 0x7c00u ? half : half & 0x8000u;
}
static uint32_t saturate_half(uint32_t half) {
    return half & 0x8000u || half > 0x7c00u ? 0 : half > 0x3c00u ? 0x3c00u : half;
}
/* .relu: NaN stays, as the canonical one. */
static uint32_t positive_half(uint32_t half) {
    return (half & 0x7fffu) > 0x7c00u ? 0x7fffu : half & 0x8000u ? 0 : half;
}
static uint32_t positive_bfloat(uint32_t half) {
    return (half & 0x7fffu) > 0x7f80u ? 0x7fffu : half & 0x8000u ? 0 : half;
}

LANES_32(emu_lanes_flush_f16x2, flush_half(a >> 16) << 16 | flush_half(a & 0xffffu))
LANES_32(emu_lanes_saturate_f16x2, saturate_half(a >> 16) << 16 | saturate_half(a & 0xffffu))
LANES_32(emu_lanes_positive_f16x2, positive_half(a >> 16) << 16 | positive_half(a & 0xffffu))
LANES_32(emu_lanes_positive_bf16x2, positive_bfloat(a >> 16) << 16 | positive_bfloat(a & 0xffffu))

/* A NaN of min or max is the canonical one: it gets no sign. */
static uint32_t signed_half(uint32_t magnitude, uint32_t signs) {
    return magnitude == 0x7fffu ? magnitude : (magnitude & 0x7fffu) | (signs & 0x8000u);
}
LANES_32(emu_lanes_xorsign_16x2, signed_half(c >> 16, (a ^ b) >> 16) << 16 | signed_half(c & 0xffffu, a ^ b))

/* fma.oob: a product whose factor is 0x7ff7 or 0xfff7, which marks an element out of bounds, makes the result 0.
 */
static uint32_t in_bounds(uint32_t a, uint32_t b, uint32_t result) {
    return (a & 0x7fffu) == 0x7ff7u || (b & 0x7fffu) == 0x7ff7u ? 0 : result;
}
LANES_32(emu_lanes_in_bounds_16x2, in_bounds(a >> 16, b >> 16, c >> 16) << 16 | in_bounds(a, b, c & 0xffffu))

/* ---- signs: a NaN becomes the canonical one ---- */

static uint32_t with_sign(uint32_t half, uint32_t sign, uint32_t infinity) {
    return (half & 0x7fffu) > infinity ? 0x7fffu : (half & 0x7fffu) | sign;
}
#define SIGN_LOOPS(name, infinity, sign_of)                                                                            \
    LANES_32(emu_lanes_##name, with_sign(a & 0xffffu, sign_of(a), infinity))                                           \
    LANES_32(emu_lanes_##name##x2,                                                                                     \
             with_sign(a >> 16, sign_of(a >> 16), infinity) << 16 | with_sign(a & 0xffffu, sign_of(a), infinity))
#define OPPOSITE_SIGN(half) (~(half) & 0x8000u)
#define NO_SIGN(half) 0u
SIGN_LOOPS(neg_f16, 0x7c00u, OPPOSITE_SIGN)
SIGN_LOOPS(neg_bf16, 0x7f80u, OPPOSITE_SIGN)
SIGN_LOOPS(abs_f16, 0x7c00u, NO_SIGN)
SIGN_LOOPS(abs_bf16, 0x7f80u, NO_SIGN)
