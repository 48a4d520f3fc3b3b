/* half.h - fp16 and bf16 numbers as their 16 bits: widening and rounding to nearest even.
 *
 *     uint16_t bits = half_from_float(0.1f, BF16);
 *     float value = half_to_float(bits, BF16);
 */
#ifndef FL_HALF_H
#define FL_HALF_H

#include "common/config.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A quiet NaN in both types. */
enum { HALF_NAN = 0xffff };

static inline float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float bf16_to_float(uint16_t bits) {
    return float_of_bits((uint32_t)bits << 16);
}

/* Exact for every value: a multiplication moves the exponent, which also normalises subnormal numbers. */
static inline float fp16_to_float(uint16_t bits) {
    const uint32_t magnitude = (uint32_t)(bits & 0x7fff) << 13, sign = (uint32_t)(bits & 0x8000) << 16;
    const uint32_t finite = bits_of_float(float_of_bits(magnitude) * 0x1p112f);
    const uint32_t special = magnitude | 0x7f800000; /* infinity and NaN keep their mantissa */
    return float_of_bits((magnitude < 0x7c00u << 13 ? finite : special) | sign);
}

static inline float half_to_float(uint16_t bits, enum dtype dtype) {
    return dtype == FP16 ? fp16_to_float(bits) : bf16_to_float(bits);
}

static inline uint16_t bf16_from_float(float value) {
    const uint32_t bits = bits_of_float(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return HALF_NAN;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* a carry moves into the exponent by itself */
}

static inline uint16_t fp16_from_float(float value) {
    const uint32_t bits = bits_of_float(value), magnitude = bits & 0x7fffffff;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (magnitude > 0x7f800000) return HALF_NAN;
    if (magnitude >= bits_of_float(65536.0f)) return sign | 0x7c00;
    if (magnitude < bits_of_float(0x1p-14f)) /* the addition rounds to multiples of 2^-24 */
        return (uint16_t)(sign | (bits_of_float(float_of_bits(magnitude) + 0.5f) - bits_of_float(0.5f)));
    return (uint16_t)(sign | ((magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

/* Round to nearest even; too large becomes infinity. */
static inline uint16_t half_from_float(float value, enum dtype dtype) {
    return dtype == FP16 ? fp16_from_float(value) : bf16_from_float(value);
}

/* NaN or infinity. */
static inline bool half_is_special(uint16_t bits, enum dtype dtype) {
    return (bits & 0x7fff) >= (dtype == FP16 ? 0x7c00 : 0x7f80);
}

#endif
