/* noise.c - chooses what PTX leaves open: last digits of approximations, bits of NaNs, clocks, multiprocessors.
 *
 * A program that knows the emulator by such bits behaves as on a GPU under noise, or differs between two seeds. The
 * lane functions of approximate instructions are replaced when a program is decoded, so that nothing is slower without
 * noise. Within a run the same value always becomes the same one, as on a GPU. A power of two stays exact, because
 * programs may rely on 2^0 = 1.
 */
#include "machine.h"

static uint64_t seed; /* 0: no noise */

void emu_set_noise(uint64_t number) {
    seed = number;
}

/* ---- values ---- */

/* -1, 0 or 1 for a value. */
static inline int32_t step_of(uint64_t bits) {
    return (int32_t)(emu_mix(bits ^ seed) % 3) - 1;
}

static inline uint32_t drawn_f32(uint32_t bits) {
    const uint32_t exponent = bits & 0x7f800000u;
    const bool fixed = !exponent || exponent == 0x7f800000u || !(bits & 0x7fffffu);
    return fixed ? bits : bits + (uint32_t)step_of(bits);
}

/* Value in a 16-bit format with this many fraction bits. */
static inline uint32_t drawn_half(uint32_t bits, int fraction) {
    const uint32_t infinity = 0x7fffu >> fraction << fraction, exponent = bits & infinity;
    const bool fixed = !exponent || exponent == infinity || !(bits & ((1u << fraction) - 1));
    return fixed ? bits : (bits + (uint32_t)step_of(bits)) & 0xffffu;
}

/* By 1 in the last digit of an instruction's result. */
static inline uint64_t drawn_f64(uint64_t bits, int last) {
    const uint64_t exponent = bits & 0x7ff0000000000000ull;
    const bool fixed = !exponent || exponent == 0x7ff0000000000000ull || !(bits & 0xfffffffffffffull);
    return fixed ? bits : bits + ((uint64_t)(int64_t)step_of(bits) << last);
}

/* A NaN with other bits after its first; PTX leaves those of f64 open. */
static inline uint64_t drawn_nan(uint64_t bits) {
    const bool is_nan = (bits & 0x7fffffffffffffffull) > 0x7ff0000000000000ull;
    return is_nan ? 0x7ff8000000000000ull | emu_mix(seed) >> 13 : bits;
}

#define DRAWN(type, name, value)                                                                                       \
    static void drawn_##name(void *d, const void *a, const void *b, const void *c) {                                   \
        type *result = d;                                                                                              \
        emu_lanes_##name(d, a, b, c);                                                                                  \
        for (int i = 0; i < LANES; i++) {                                                                              \
            const type bits = result[i];                                                                               \
            result[i] = value;                                                                                         \
        }                                                                                                              \
    }

/* name, type of a lane, value drawn of its bits, and whether an exact instruction draws it too */
#define ROWS(X)                                                                                                        \
    X(sqrt_f32, uint32_t, drawn_f32(bits), false)                                                                      \
    X(sqrt_f32_ftz, uint32_t, drawn_f32(bits), false)                                                                  \
    X(rsqrt_f32, uint32_t, drawn_f32(bits), false)                                                                     \
    X(rsqrt_f32_ftz, uint32_t, drawn_f32(bits), false)                                                                 \
    X(lg2_f32, uint32_t, drawn_f32(bits), false)                                                                       \
    X(lg2_f32_ftz, uint32_t, drawn_f32(bits), false)                                                                   \
    X(sin_f32, uint32_t, drawn_f32(bits), false)                                                                       \
    X(sin_f32_ftz, uint32_t, drawn_f32(bits), false)                                                                   \
    X(cos_f32, uint32_t, drawn_f32(bits), false)                                                                       \
    X(cos_f32_ftz, uint32_t, drawn_f32(bits), false)                                                                   \
    X(tanh_f32, uint32_t, drawn_f32(bits), false)                                                                      \
    X(ex2_f32, uint32_t, drawn_f32(bits), false)                                                                       \
    X(ex2_f32_ftz, uint32_t, drawn_f32(bits), false)                                                                   \
    X(rcp_approx_f32, uint32_t, drawn_f32(bits), false)                                                                \
    X(rcp_approx_f32_ftz, uint32_t, drawn_f32(bits), false)                                                            \
    X(div_approx_f32, uint32_t, drawn_f32(bits), false)                                                                \
    X(div_approx_f32_ftz, uint32_t, drawn_f32(bits), false)                                                            \
    X(div_full_f32, uint32_t, drawn_f32(bits), false)                                                                  \
    X(div_full_f32_ftz, uint32_t, drawn_f32(bits), false)                                                              \
    X(tanh_f16, uint32_t, drawn_half(bits, 10), false)                                                                 \
    X(tanh_f16x2, uint32_t, drawn_half(bits >> 16, 10) << 16 | drawn_half(bits & 0xffffu, 10), false)                  \
    X(tanh_bf16, uint32_t, drawn_half(bits, 7), false)                                                                 \
    X(tanh_bf16x2, uint32_t, drawn_half(bits >> 16, 7) << 16 | drawn_half(bits & 0xffffu, 7), false)                   \
    X(ex2_f16, uint32_t, drawn_half(bits, 10), false)                                                                  \
    X(ex2_f16x2, uint32_t, drawn_half(bits >> 16, 10) << 16 | drawn_half(bits & 0xffffu, 10), false)                   \
    X(ex2_bf16, uint32_t, drawn_half(bits, 7), false)                                                                  \
    X(ex2_bf16x2, uint32_t, drawn_half(bits >> 16, 7) << 16 | drawn_half(bits & 0xffffu, 7), false)                    \
    X(rsqrt_f64, uint64_t, drawn_f64(bits, 0), false)                                                                  \
    X(rcp_high_f64, uint64_t, drawn_f64(bits, 32), false)                                                              \
    X(rsqrt_high_f64, uint64_t, drawn_f64(bits, 32), false)                                                            \
    X(add_f64, uint64_t, drawn_nan(bits), true)                                                                        \
    X(sub_f64, uint64_t, drawn_nan(bits), true)                                                                        \
    X(mul_f64, uint64_t, drawn_nan(bits), true)                                                                        \
    X(fma_f64, uint64_t, drawn_nan(bits), true)                                                                        \
    X(div_f64, uint64_t, drawn_nan(bits), true)                                                                        \
    X(rcp_f64, uint64_t, drawn_nan(bits), true)                                                                        \
    X(sqrt_f64, uint64_t, drawn_nan(bits), true)

#define FUNCTION(name, type, value, exact) DRAWN(type, name, value)
ROWS(FUNCTION)

lane_function *emu_drawn(lane_function *plain, bool exact) {
    static const struct {
        lane_function *plain, *drawn;
        bool exact;
    } rows[] = {
#define ROW(name, type, value, exact) {emu_lanes_##name, drawn_##name, exact},
        ROWS(ROW)};
    for (size_t i = 0; seed && i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].plain == plain && (rows[i].exact || !exact)) return rows[i].drawn;
    return plain;
}

/* ---- time and position ---- */

uint64_t emu_drawn_time(uint64_t steps) {
    return seed ? (emu_mix(seed) >> 20) + steps * (1 + seed % 5) : steps;
}

uint32_t emu_drawn_multiprocessors(void) {
    enum { FEWEST = 64, MORE = 128 };
    return seed ? FEWEST + (uint32_t)(emu_mix(seed) % MORE) : 1;
}

uint32_t emu_drawn_multiprocessor(uint64_t cta) {
    return seed ? (uint32_t)(emu_mix(seed ^ cta) % emu_drawn_multiprocessors()) : 0;
}
