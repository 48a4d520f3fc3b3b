/* float.c - f32 and f64 instructions, all 32 lanes at once. */
#include "lane_loop.h"

/* Plain and flushing form of an f32 instruction; x, y, z are the values of the sources. */
#define VALUE_F32(name, value)                                                                                         \
    static inline float name##_of(float x, float y, float z) {                                                         \
        (void)x, (void)y, (void)z;                                                                                     \
        return value;                                                                                                  \
    }
#define PLAIN(f) canonical(f(float_of(a), float_of(b), float_of(c)))
#define FLUSHING(f) flushed(canonical(f(flushed_value(a), flushed_value(b), flushed_value(c))))
#define LANES_F32(name, value)                                                                                         \
    VALUE_F32(name, value)                                                                                             \
    LANES_32(name, PLAIN(name##_of))                                                                                   \
    LANES_32(name##_ftz, FLUSHING(name##_of))
#define FREQUENT_F32(name, value)                                                                                      \
    VALUE_F32(name, value)                                                                                             \
    FREQUENT_32(name, PLAIN(name##_of))                                                                                \
    FREQUENT_32(name##_ftz, FLUSHING(name##_of))

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

FREQUENT_F32(lanes_add_f32, x + y)
FREQUENT_F32(lanes_sub_f32, x - y)
FREQUENT_F32(lanes_mul_f32, x *y)
FREQUENT_F32(lanes_fma_f32, fmaf(x, y, z))
FREQUENT_F32(lanes_div_f32, x / y)
FREQUENT_F32(lanes_min_f32, smaller(x, y))
FREQUENT_F32(lanes_max_f32, larger(x, y))
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
