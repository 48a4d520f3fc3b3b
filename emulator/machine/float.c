/* float.c - f32 and f64 instructions, all 32 lanes at once. */
#include "lane_loop.h"

/* The plain form of an f32 instruction, and both. */
#define PLAIN_F32(name, value) VALUE_F32(name, value) LANES_32(name, PLAIN(name##_of))
#define LANES_F32(name, value)                                                                                         \
    PLAIN_F32(name, value)                                                                                             \
    LANES_32(name##_ftz, FLUSHING(name##_of))

/* Their flushing forms are in frequent.c. */
PLAIN_F32(emu_lanes_add_f32, x + y)
PLAIN_F32(emu_lanes_sub_f32, x - y)
PLAIN_F32(emu_lanes_mul_f32, (x * y))
PLAIN_F32(emu_lanes_fma_f32, fmaf(x, y, z))
PLAIN_F32(emu_lanes_div_f32, x / y)
PLAIN_F32(emu_lanes_max_f32, larger(x, y))

/* f32 and, as the first or the first two sources, f16 or bf16. */
#define MIXED(type, view)                                                                                              \
    LANES_32(emu_lanes_add_f32_##type, canonical(view(a) + float_of(b)))                                               \
    LANES_32(emu_lanes_sub_f32_##type, canonical(view(a) - float_of(b)))                                               \
    LANES_32(emu_lanes_fma_f32_##type, canonical(fmaf(view(a), view(b), float_of(c))))
MIXED(f16, half_value)
MIXED(bf16, bfloat_value)

LANES_F32(emu_lanes_min_f32, smaller(x, y))
LANES_F32(emu_lanes_rcp_f32, 1.0f / x)
LANES_F32(emu_lanes_sqrt_f32, sqrtf(x))
LANES_F32(emu_lanes_rsqrt_f32, (float)(1.0 / sqrt((double)x)))
LANES_F32(emu_lanes_lg2_f32, (float)log2((double)x))
LANES_F32(emu_lanes_sin_f32, (float)sin((double)x))
LANES_F32(emu_lanes_cos_f32, (float)cos((double)x))
LANES_32(emu_lanes_min_nan_f32, canonical(float_of(a) != float_of(a)   ? float_of(a)
                                          : float_of(b) != float_of(b) ? float_of(b)
                                                                       : smaller(float_of(a), float_of(b))))
LANES_32(emu_lanes_max_nan_f32, canonical(float_of(a) != float_of(a)   ? float_of(a)
                                          : float_of(b) != float_of(b) ? float_of(b)
                                                                       : larger(float_of(a), float_of(b))))
LANES_32(emu_lanes_tanh_f32, canonical((float)tanh((double)float_of(a))))
LANES_32(emu_lanes_abs_f32, canonical(float_of(a & 0x7fffffffu)))
LANES_32(emu_lanes_abs_f32_ftz, canonical(float_of(flushed(a) & 0x7fffffffu)))
LANES_32(emu_lanes_neg_f32, canonical(float_of(a ^ 0x80000000u)))
LANES_32(emu_lanes_neg_f32_ftz, canonical(float_of(flushed(a) ^ 0x80000000u)))
LANES_32(emu_lanes_copysign_f32, (b & 0x7fffffffu) | (a & 0x80000000u))
LANES_64(emu_lanes_copysign_f64, (b & 0x7fffffffffffffffull) | (a & 0x8000000000000000ull))
LANES_32(emu_lanes_xorsign_f32, (c & 0x7fffffffu) | (c > 0x7f800000u ? 0 : (a ^ b) & 0x80000000u))
LANES_32(emu_lanes_flush_f32, flushed(a))
LANES_32(emu_lanes_saturate_f32, bits_of(float_of(a) > 0.0f ? (float_of(a) < 1.0f ? float_of(a) : 1.0f) : 0.0f))

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

/* 1 / sqrt(x), the error of one Newton step from the last digit. */
static inline double reciprocal_root(double x) {
    double root = sqrt(x), guess = 1.0 / root;
    if (!(guess > 0.0) || !isfinite(guess) || !isfinite(root)) return guess;
    double error = fma(-root, guess, 1.0), below = fma(-root, root, x) / (2.0 * root);
    return fma(guess, error - below * guess, guess);
}

/* rsqrt.approx.ftz.f64 sees the upper 32 bits of its source and gives those of a result. Subnormals count as zero. */
static inline uint64_t high_reciprocal_root(uint64_t bits) {
    bool small = !(bits & 0x7ff0000000000000ull);
    double x = double_of(bits & (small ? 0x8000000000000000ull : 0xffffffff00000000ull)), value = 1.0 / sqrt(x);
    return value != value ? 0x7fffffff00000000ull : bits_of_double(value) & 0xffffffff00000000ull;
}

#define LANES_F64(name, value) LANES_64(name, bits_of_double(value))
#define X double_of(a)
#define Y double_of(b)
#define Z double_of(c)
LANES_F64(emu_lanes_add_f64, X + Y)
LANES_F64(emu_lanes_sub_f64, X - Y)
LANES_F64(emu_lanes_mul_f64, (X * Y))
LANES_F64(emu_lanes_fma_f64, fma(X, Y, Z))
LANES_F64(emu_lanes_div_f64, X / Y)
LANES_F64(emu_lanes_min_f64, smaller_double(X, Y))
LANES_F64(emu_lanes_max_f64, larger_double(X, Y))
LANES_F64(emu_lanes_rcp_f64, 1.0 / X)
LANES_F64(emu_lanes_sqrt_f64, sqrt(X))
LANES_F64(emu_lanes_rsqrt_f64, reciprocal_root(X))
LANES_F64(emu_lanes_saturate_f64, X > 0.0 ? (X < 1.0 ? X : 1.0) : 0.0)
LANES_64(emu_lanes_rsqrt_high_f64, high_reciprocal_root(a))
LANES_64(emu_lanes_abs_f64, a & 0x7fffffffffffffffull)
LANES_64(emu_lanes_neg_f64, a ^ 0x8000000000000000ull)
