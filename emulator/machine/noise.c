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

/* A NaN of the format with this infinity gets other bits after its first. */
static inline uint64_t drawn_nan(uint64_t bits, uint64_t infinity) {
    const uint64_t last = infinity & -infinity; /* of the exponent */
    const bool is_nan = (bits & (infinity | (last - 1))) > infinity;
    return is_nan ? infinity | last >> 1 | (emu_mix(seed) & ((last >> 1) - 1)) : bits;
}

/* Other numbers change by 1 in this digit, where 0 is the last. */
static inline uint64_t drawn_digit(uint64_t bits, uint64_t infinity, int digit) {
    const uint64_t fraction = (infinity & -infinity) - 1, exponent = bits & infinity;
    const bool fixed = !exponent || exponent == infinity || !(bits & fraction);
    const uint64_t step = emu_mix(bits ^ seed) % 3 - 1;
    return fixed ? drawn_nan(bits, infinity) : bits + (step << digit);
}

/* name, type of a lane, infinity */
#define FORMATS(X)                                                                                                     \
    X(f32, uint32_t, 0x7f800000u)                                                                                      \
    X(f16, uint32_t, 0x7c00u)                                                                                          \
    X(bf16, uint32_t, 0x7f80u)                                                                                         \
    X(f64, uint64_t, 0x7ff0000000000000u)
#define FORMAT(name, type, infinity)                                                                                   \
    typedef type lane_##name;                                                                                          \
    static inline type nan_##name(type bits) {                                                                         \
        return (type)drawn_nan(bits, infinity);                                                                        \
    }                                                                                                                  \
    static inline type digit_##name(type bits) {                                                                       \
        return (type)drawn_digit(bits, infinity, 0);                                                                   \
    }
FORMATS(FORMAT)

/* Two numbers in a lane; `what` is nan or digit. */
#define IN_BOTH(what, name, type, half, width)                                                                         \
    static inline type what##_##name(type bits) {                                                                      \
        return (type)what##_##half((lane_##half)(bits >> width)) << width |                                            \
               what##_##half(bits & (((type)1 << width) - 1));                                                         \
    }
typedef uint32_t lane_f16x2, lane_bf16x2;
typedef uint64_t lane_f32x2;
IN_BOTH(nan, f16x2, uint32_t, f16, 16)
IN_BOTH(digit, f16x2, uint32_t, f16, 16)
IN_BOTH(nan, bf16x2, uint32_t, bf16, 16)
IN_BOTH(digit, bf16x2, uint32_t, bf16, 16)
IN_BOTH(nan, f32x2, uint64_t, f32, 32)

/* Upper 32 bits of an f64. PTX says which NaN it is. */
typedef uint64_t lane_high_f64;
static inline uint64_t digit_high_f64(uint64_t bits) {
    return bits << 1 > 0xffe0000000000000u ? bits : drawn_digit(bits, 0x7ff0000000000000u, 32);
}

/* Lane functions of approximations and the format of the results; PTX leaves their last digit open, and NaNs. */
#define APPROXIMATE(X)                                                                                                 \
    X(sqrt_f32, f32)                                                                                                   \
    X(sqrt_f32_ftz, f32)                                                                                               \
    X(rsqrt_f32, f32)                                                                                                  \
    X(rsqrt_f32_ftz, f32)                                                                                              \
    X(lg2_f32, f32)                                                                                                    \
    X(lg2_f32_ftz, f32)                                                                                                \
    X(sin_f32, f32)                                                                                                    \
    X(sin_f32_ftz, f32)                                                                                                \
    X(cos_f32, f32)                                                                                                    \
    X(cos_f32_ftz, f32)                                                                                                \
    X(tanh_f32, f32)                                                                                                   \
    X(ex2_f32, f32)                                                                                                    \
    X(ex2_f32_ftz, f32)                                                                                                \
    X(rcp_approx_f32, f32)                                                                                             \
    X(rcp_approx_f32_ftz, f32)                                                                                         \
    X(div_approx_f32, f32)                                                                                             \
    X(div_approx_f32_ftz, f32)                                                                                         \
    X(div_full_f32, f32)                                                                                               \
    X(div_full_f32_ftz, f32)                                                                                           \
    X(tanh_f16, f16)                                                                                                   \
    X(tanh_f16x2, f16x2)                                                                                               \
    X(tanh_bf16, bf16)                                                                                                 \
    X(tanh_bf16x2, bf16x2)                                                                                             \
    X(ex2_f16, f16)                                                                                                    \
    X(ex2_f16x2, f16x2)                                                                                                \
    X(ex2_bf16, bf16)                                                                                                  \
    X(ex2_bf16x2, bf16x2)                                                                                              \
    X(rsqrt_f64, f64)                                                                                                  \
    X(rcp_high_f64, high_f64)                                                                                          \
    X(rsqrt_high_f64, high_f64)

/* Lane functions of exact instructions. min and max are missing, because PTX says which NaN they return. */
#define IN_F32(X, name)                                                                                                \
    X(name##_f32, f32)                                                                                                 \
    X(name##_f32_ftz, f32)
#define IN_HALVES(X, name)                                                                                             \
    X(name##_f16, f16)                                                                                                 \
    X(name##_f16x2, f16x2)                                                                                             \
    X(name##_bf16, bf16)                                                                                               \
    X(name##_bf16x2, bf16x2)
#define IN_PAIRS(X, name)                                                                                              \
    X(name##_f32x2, f32x2)                                                                                             \
    X(name##_f32x2_ftz, f32x2)
#define ARITHMETIC(X, name)                                                                                            \
    IN_F32(X, name)                                                                                                    \
    IN_HALVES(X, name)                                                                                                 \
    IN_PAIRS(X, name)                                                                                                  \
    X(name##_f64, f64)
#define SIGNS(X, name)                                                                                                 \
    IN_F32(X, name)                                                                                                    \
    IN_HALVES(X, name)
#define SINGLE(X, name)                                                                                                \
    IN_F32(X, name)                                                                                                    \
    X(name##_f64, f64)
#define EXACT(X)                                                                                                       \
    ARITHMETIC(X, add)                                                                                                 \
    ARITHMETIC(X, sub)                                                                                                 \
    ARITHMETIC(X, mul)                                                                                                 \
    ARITHMETIC(X, fma)                                                                                                 \
    SIGNS(X, abs)                                                                                                      \
    SIGNS(X, neg)                                                                                                      \
    SINGLE(X, div)                                                                                                     \
    SINGLE(X, rcp)                                                                                                     \
    SINGLE(X, sqrt)

#define DRAWN(what, name, format)                                                                                      \
    static void what##_of_##name(void *d, const void *a, const void *b, const void *c) {                               \
        lane_##format *result = d;                                                                                     \
        emu_lanes_##name(d, a, b, c);                                                                                  \
        for (int i = 0; i < LANES; i++) result[i] = what##_##format(result[i]);                                        \
    }
#define DRAWN_DIGIT(name, format) DRAWN(digit, name, format)
#define DRAWN_NAN(name, format) DRAWN(nan, name, format)
APPROXIMATE(DRAWN_DIGIT)
EXACT(DRAWN_NAN)

lane_function *emu_drawn(lane_function *plain, bool exact) {
    static const struct {
        lane_function *plain, *drawn;
        bool is_digit;
    } rows[] = {
#define DIGIT_ROW(name, format) {emu_lanes_##name, digit_of_##name, true},
#define NAN_ROW(name, format) {emu_lanes_##name, nan_of_##name, false},
        APPROXIMATE(DIGIT_ROW) EXACT(NAN_ROW)};
    for (size_t i = 0; seed && i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].plain == plain && !(exact && rows[i].is_digit)) return rows[i].drawn;
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
