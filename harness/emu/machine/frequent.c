/* frequent.c - the lane functions that attention kernels run most, compiled for wider vectors too. */
#include "lane_loop.h"

/* Before a function: also compile it for wider vectors and choose at load time. The results are the same bits. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__) &&                       \
    !defined(__SANITIZE_ADDRESS__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

#define WIDE_32(name, value) WIDE LANES_32(name, value)
#define WIDE_64(name, value) WIDE LANES_64(name, value)
#define WIDE_F32_FTZ(name, value)                                                                                      \
    VALUE_F32(name, value)                                                                                             \
    WIDE_32(name, FLUSHING(name##_of))

WIDE_32(emu_lanes_mov_32, a)
WIDE_64(emu_lanes_mov_64, a)
WIDE_32(emu_lanes_add_32, a + b)
WIDE_64(emu_lanes_add_64, a + b)
WIDE_F32_FTZ(emu_lanes_add_f32_ftz, x + y)
WIDE_F32_FTZ(emu_lanes_sub_f32_ftz, x - y)
WIDE_F32_FTZ(emu_lanes_mul_f32_ftz, (x * y))
WIDE_F32_FTZ(emu_lanes_fma_f32_ftz, fmaf(x, y, z))
WIDE_F32_FTZ(emu_lanes_div_f32_ftz, x / y)
WIDE_F32_FTZ(emu_lanes_max_f32_ftz, larger(x, y))

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

void emu_lanes_ex2_f32(void *d, const void *a, const void *b, const void *c) {
    (void)b, (void)c;
    exp2_lanes(d, a);
}

void emu_lanes_ex2_f32_ftz(void *d, const void *a, const void *b, const void *c) {
    (void)b, (void)c;
    uint32_t *result = d;
    exp2_lanes(result, a); /* a subnormal source gives 1 with or without flushing */
    for (int i = 0; i < LANES; i++) result[i] = flushed(result[i]);
}

/* cvt.rn.f16x2.f32 d, a, b: a goes to the upper half */
WIDE_32(emu_lanes_f16x2_rn, half_bits(float_of(a)) << 16 | half_bits(float_of(b)))
WIDE_32(emu_lanes_bf16x2_rn, bfloat_bits(float_of(a)) << 16 | bfloat_bits(float_of(b)))
