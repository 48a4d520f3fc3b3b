/* pairs.c - f32x2: two f32 in a register of 64 bits, each as the f32 instruction has it. */
#include "lane_loop.h"

#define LOW(x) ((uint32_t)(x))
#define HIGH(x) ((uint32_t)((x) >> 32))
#define PAIR(low, high) ((uint64_t)(high) << 32 | (low))
#define HALF(name, part) canonical(name(float_of(part(a)), float_of(part(b)), float_of(part(c))))
#define HALF_FTZ(name, part)                                                                                           \
    flushed(canonical(name(flushed_value(part(a)), flushed_value(part(b)), flushed_value(part(c)))))
#define LANES_PAIR(name, value)                                                                                        \
    VALUE_F32(name, value)                                                                                             \
    LANES_64(name, PAIR(HALF(name##_of, LOW), HALF(name##_of, HIGH)))                                                  \
    LANES_64(name##_ftz, PAIR(HALF_FTZ(name##_of, LOW), HALF_FTZ(name##_of, HIGH)))

LANES_PAIR(emu_lanes_add_f32x2, x + y)
LANES_PAIR(emu_lanes_sub_f32x2, x - y)
LANES_PAIR(emu_lanes_mul_f32x2, (x * y))
LANES_PAIR(emu_lanes_fma_f32x2, fmaf(x, y, z))
