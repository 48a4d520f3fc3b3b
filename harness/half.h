/* half.h - fp16 and bf16 numbers as their 16 bits, by their type; the emulator has the conversions.
 *
 *     uint16_t bits = half_from_float(0.1f, BF16);
 *     float value = half_to_float(bits, BF16);
 */
#ifndef FL_HALF_H
#define FL_HALF_H

#include "common/config.h"
#include "emulator/machine/numbers.h"

#include <stdbool.h>
#include <stdint.h>

/* A quiet NaN in both types. */
enum { HALF_NAN = 0x7fff };

static inline float half_to_float(uint16_t bits, enum dtype dtype) {
    return dtype == FP16 ? half_value(bits) : bfloat_value(bits);
}

/* Round to nearest even; too large becomes infinity, NaN becomes HALF_NAN. */
static inline uint16_t half_from_float(float value, enum dtype dtype) {
    return (uint16_t)(dtype == FP16 ? half_bits(value) : bfloat_bits(value));
}

/* NaN or infinity. */
static inline bool half_is_special(uint16_t bits, enum dtype dtype) {
    return (bits & 0x7fff) >= (dtype == FP16 ? 0x7c00 : 0x7f80);
}

#endif
