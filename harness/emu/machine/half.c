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

F16_LANES(add, sum)
F16_LANES(sub, difference)
F16_LANES(mul, product)
F16_LANES(fma, product_and_sum)
F16_LANES(min, least)
F16_LANES(max, most)
F16_LANES(ex2, power_of_two)
BF16_LANES(add, sum)
BF16_LANES(sub, difference)
BF16_LANES(mul, product)
BF16_LANES(fma, product_and_sum)
BF16_LANES(min, least)
BF16_LANES(max, most)

#define BIT_LOOP(name, value)                                                                                          \
    void name(void *vd, const void *va, const void *vb, const void *vc) {                                              \
        uint32_t *d = vd;                                                                                              \
        const uint32_t *a = va;                                                                                        \
        (void)vb, (void)vc;                                                                                            \
        for (int i = 0; i < LANES; i++) d[i] = value;                                                                  \
    }

BIT_LOOP(emu_lanes_neg_f16, a[i] ^ 0x8000u)
BIT_LOOP(emu_lanes_neg_bf16, a[i] ^ 0x8000u)
BIT_LOOP(emu_lanes_neg_f16x2, a[i] ^ 0x80008000u)
BIT_LOOP(emu_lanes_neg_bf16x2, a[i] ^ 0x80008000u)
BIT_LOOP(emu_lanes_abs_f16, a[i] & 0x7fffu)
BIT_LOOP(emu_lanes_abs_bf16, a[i] & 0x7fffu)
BIT_LOOP(emu_lanes_abs_f16x2, a[i] & 0x7fff7fffu)
BIT_LOOP(emu_lanes_abs_bf16x2, a[i] & 0x7fff7fffu)
