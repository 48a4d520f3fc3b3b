/* special.c - instructions around the special function unit: rcp and div, approximate, as ptxas expands them.
 *
 * If an instruction does not flush, ptxas scales its sources so that the unit receives no subnormal. ex2 is in
 * frequent.c.
 */
#include "special.h"
#include "lane_loop.h"

static const float LEAST_NORMAL = 0x1p-126f, LARGE = 0x1p126f;

/* The power of two that takes a divisor away from both ends of the range, from the lower one only if `small`. */
static inline float scale_of(float divisor, bool small) {
    float magnitude = fabsf(divisor);
    return magnitude > LARGE ? 0.25f : small && magnitude < LEAST_NORMAL ? 0x1p24f : 1.0f;
}

static inline float reciprocal(float x) {
    return float_of(special_rcp(bits_of(x)));
}

static inline float scaled_reciprocal(float x) {
    float scale = scale_of(x, true);
    return reciprocal(x * scale) * scale;
}

static inline float divide(float x, float y) {
    float scale = fabsf(y) < LEAST_NORMAL ? 0x1p24f : 1.0f;
    return x * scale * reciprocal(y * scale);
}

static inline float divide_full(float x, float y, bool small) {
    float scale = scale_of(y, small);
    return x * scale * reciprocal(y * scale);
}

LANES_32(emu_lanes_rcp_approx_f32, canonical(scaled_reciprocal(float_of(a))))
LANES_32(emu_lanes_rcp_approx_f32_ftz, special_rcp(a))
LANES_32(emu_lanes_div_approx_f32, canonical(divide(float_of(a), float_of(b))))
LANES_32(emu_lanes_div_approx_f32_ftz, flushed(canonical(flushed_value(a) * reciprocal(flushed_value(b)))))
LANES_32(emu_lanes_div_full_f32, canonical(divide_full(float_of(a), float_of(b), true)))
LANES_32(emu_lanes_div_full_f32_ftz, flushed(canonical(divide_full(flushed_value(a), flushed_value(b), false))))

/* rcp.approx.ftz.f64: the unit sees the upper 32 bits. The 20 of the fraction that are among them are looked up as
 * those of an f32, and of the result as many are kept. */
static inline uint64_t high_reciprocal(uint64_t bits) {
    uint32_t high = (uint32_t)(bits >> 32), magnitude = high & 0x7fffffffu, sign = high & 0x80000000u;
    uint32_t result = special_rcp(0x3f800000u | (high & 0xfffffu) << 3);
    int32_t exponent = 1023 + 1023 - (int32_t)(magnitude >> 20) + (int32_t)(result >> 23) - 127;
    uint32_t value = exponent <= 0 ? 0 : (uint32_t)exponent << 20 | (result >> 3 & 0xfffffu);
    if (magnitude < 0x00100000u) value = 0x7ff00000u;
    if (magnitude == 0x7ff00000u) value = 0;
    return (uint64_t)(magnitude > 0x7ff00000u ? 0x7fffffffu : sign | value) << 32;
}
LANES_64(emu_lanes_rcp_high_f64, high_reciprocal(a))
