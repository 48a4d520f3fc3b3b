/* frequent.c - the lane functions that attention kernels run most, compiled for wider vectors too. */
#include "lane_loop.h"
#include "special.h"

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

/* Below -126 the result may be subnormal, which the unit does not give: ptxas squares the root. */
static inline float power_of_two(float x) {
    float half = x < -126.0f ? 0.5f * x : x, power = float_of(special_ex2(bits_of(half)));
    return x < -126.0f ? power * power : power;
}

WIDE_32(emu_lanes_ex2_f32, canonical(power_of_two(float_of(a))))

/* special_ex2() of each lane, in loops that compilers vectorize except for the look-up. */
WIDE void emu_lanes_ex2_f32_ftz(void *d, const void *a, const void *b, const void *c) {
    (void)b, (void)c;
    uint32_t *result = d, position[LANES], constant[LANES], linear[LANES], quadratic[LANES];
    const uint32_t *x = a;
    for (int i = 0; i < LANES; i++) position[i] = ex2_position(x[i]);
    for (int i = 0; i < LANES; i++) {
        uint32_t row = position[i] >> 17 & 63;
        constant[i] = EX2_CONSTANT[row];
        linear[i] = EX2_LINEAR[row];
        quadratic[i] = EX2_QUADRATIC[row];
    }
#pragma GCC ivdep
    for (int i = 0; i < LANES; i++) result[i] = ex2_at(x[i], position[i], constant[i], linear[i], quadratic[i]);
}

/* cvt.rn.f16x2.f32 d, a, b: a goes to the upper half */
WIDE_32(emu_lanes_f16x2_rn, half_bits(float_of(a)) << 16 | half_bits(float_of(b)))
WIDE_32(emu_lanes_bf16x2_rn, bfloat_bits(float_of(a)) << 16 | bfloat_bits(float_of(b)))
