/* numbers.h - bits and values of the floating-point formats, as inline functions that compilers vectorise.
 *
 *     float x = half_value(0x3c00);              // 1.0f
 *     uint16_t h = half_bits(1.0f);              // round to nearest even
 */
#ifndef FL_EMU_NUMBERS_H
#define FL_EMU_NUMBERS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t bits_of_double(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Every NaN result of an f32 instruction has these bits on the device. */
static const uint32_t CANONICAL_NAN = 0x7fffffffu;

static inline uint32_t canonical(float value) {
    return value != value ? CANONICAL_NAN : bits_of(value);
}

/* Subnormals become zero of the same sign. */
static inline uint32_t flushed(uint32_t bits) {
    return bits & 0x7f800000u ? bits : bits & 0x80000000u;
}
static inline float flushed_value(uint32_t bits) {
    return float_of(flushed(bits));
}

/* f16: shift the exponent field to its position and scale by 2^112, which is exact for subnormals too. The comparison
 * is a signed one, which compilers vectorise. */
static inline float half_value(uint32_t half) {
    uint32_t magnitude = (half & 0x7fffu) << 13;
    uint32_t scaled = bits_of(float_of(magnitude) * 0x1p112f);
    uint32_t not_finite = (int32_t)magnitude >= 0x0f800000 ? 0x7f800000u : 0;
    return float_of(scaled | not_finite | (half & 0x8000u) << 16);
}

static inline float bfloat_value(uint32_t bfloat) {
    return float_of(bfloat << 16);
}

/* Round to nearest even. Overflow gives infinity, NaN gives 0x7fff. */
static inline uint32_t half_bits(float value) {
    uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    /* below 2^-14 the result is subnormal: adding 0.5 rounds at 2^-24 */
    uint32_t small = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    uint32_t result = magnitude < 0x38800000u ? small : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00u : result;
    result = magnitude > 0x7f800000u ? 0x7fffu : result | sign;
    return result;
}

static inline uint32_t bfloat_bits(float value) {
    uint32_t bits = bits_of(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded;
}

/* Toward zero. */
static inline uint32_t half_bits_rz(float value) {
    uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    if (magnitude > 0x7f800000u) return 0x7fffu;
    if (magnitude == 0x7f800000u) return sign | 0x7c00u;
    if (magnitude >= 0x47800000u) return sign | 0x7bffu;
    if (magnitude < 0x38800000u) return sign | (uint32_t)(float_of(magnitude) * 0x1p24f);
    return sign | (magnitude - 0x38000000u) >> 13;
}

static inline uint32_t bfloat_bits_rz(float value) {
    uint32_t bits = bits_of(value);
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : bits >> 16;
}

#endif
