/* half.c - arithmetic on f16 and bf16 registers, single and packed: as exact as f64 needs to be, and rounded once. */
#include "machine.h"
#include "numbers.h"

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

static inline double least(double x, double y) {
    return x != x ? y : y != y ? x : x < y || (x == y && signbit(x)) ? x : y;
}
static inline double most(double x, double y) {
    return x != x ? y : y != y ? x : x > y || (x == y && signbit(y)) ? x : y;
}

#define HALF_LOOP(name, value_of, to_bits, value)                                                                      \
    static inline uint32_t name##_bits(uint32_t a, uint32_t b, uint32_t c) {                                           \
        double x = (double)value_of(a & 0xffffu), y = (double)value_of(b & 0xffffu),                                   \
               z = (double)value_of(c & 0xffffu);                                                                      \
        (void)x, (void)y, (void)z;                                                                                     \
        return to_bits(round_odd(value));                                                                              \
    }                                                                                                                  \
    void name(void *vd, const void *va, const void *vb, const void *vc) {                                              \
        uint32_t *d = vd;                                                                                              \
        const uint32_t *a = va, *b = vb, *c = vc;                                                                      \
        for (int i = 0; i < LANES; i++) d[i] = name##_bits(a[i], b[i], c[i]);                                          \
    }                                                                                                                  \
    void name##x2(void *vd, const void *va, const void *vb, const void *vc) {                                          \
        uint32_t *d = vd;                                                                                              \
        const uint32_t *a = va, *b = vb, *c = vc;                                                                      \
        for (int i = 0; i < LANES; i++) {                                                                              \
            d[i] = name##_bits(a[i], b[i], c[i]) | name##_bits(a[i] >> 16, b[i] >> 16, c[i] >> 16) << 16;              \
        }                                                                                                              \
    }

#define BOTH_HALVES(operation, value)                                                                                  \
    HALF_LOOP(lanes_##operation##_f16, half_value, half_bits, value)                                                   \
    HALF_LOOP(lanes_##operation##_bf16, bfloat_value, bfloat_bits, value)

BOTH_HALVES(add, add_odd(x, y))
BOTH_HALVES(sub, add_odd(x, -y))
BOTH_HALVES(mul, x *y)
BOTH_HALVES(fma, add_odd(x *y, z))
BOTH_HALVES(min, least(x, y))
BOTH_HALVES(max, most(x, y))
HALF_LOOP(lanes_ex2_f16, half_value, half_bits, exp2(x))

#define BIT_LOOP(name, value)                                                                                          \
    void name(void *vd, const void *va, const void *vb, const void *vc) {                                              \
        uint32_t *d = vd;                                                                                              \
        const uint32_t *a = va;                                                                                        \
        (void)vb, (void)vc;                                                                                            \
        for (int i = 0; i < LANES; i++) d[i] = value;                                                                  \
    }

BIT_LOOP(lanes_neg_f16, a[i] ^ 0x8000u)
BIT_LOOP(lanes_neg_bf16, a[i] ^ 0x8000u)
BIT_LOOP(lanes_neg_f16x2, a[i] ^ 0x80008000u)
BIT_LOOP(lanes_neg_bf16x2, a[i] ^ 0x80008000u)
BIT_LOOP(lanes_abs_f16, a[i] & 0x7fffu)
BIT_LOOP(lanes_abs_bf16, a[i] & 0x7fffu)
BIT_LOOP(lanes_abs_f16x2, a[i] & 0x7fff7fffu)
BIT_LOOP(lanes_abs_bf16x2, a[i] & 0x7fff7fffu)
