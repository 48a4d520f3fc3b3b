/* e4m3.h - e4m3 numbers as their bytes: a sign, 4 bits of exponent with bias 7, 3 of fraction.
 *
 *     uint8_t byte = e4m3_from_float(0.3f); // 0x2a: 0.3125
 *     float value = e4m3_to_float(byte);
 */
#ifndef FL_E4M3_H
#define FL_E4M3_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { E4M3_BIAS = 7, E4M3_FRACTION = 3, E4M3_NAN = 0x7f, E4M3_LARGEST = 0x7e /* 448 */ };

/* NaN of 0x7f and 0xff. There is no infinity. A byte without its sign, shifted, is a float with the exponent of e4m3,
 * subnormal where the byte is. */
static inline float e4m3_to_float(uint8_t byte) {
    const uint32_t bits = (uint32_t)(byte & 0x7f) << (23 - E4M3_FRACTION);
    float size;
    memcpy(&size, &bits, sizeof size);
    size = bits >> (23 - E4M3_FRACTION) == E4M3_NAN ? NAN : size * 0x1p120f; /* 127 - E4M3_BIAS */
    return byte & 0x80 ? -size : size;
}

/* Round to nearest even; what is too large becomes 448, NaN 0x7f. No calls: inputs have 10^8 elements. */
static inline uint8_t e4m3_from_float(float value) {
    const uint8_t sign = signbit(value) ? 0x80 : 0;
    const float size = fabsf(value);
    uint32_t bits;
    if (isnan(value)) return E4M3_NAN;
    if (size >= 448) return sign | E4M3_LARGEST;
    if (size < 0x1p-6f) { /* in units of 2^-9, 8 of which are the byte of 2^-6 */
        const float rounded = size * 0x1p9f + 0x1p23f;
        memcpy(&bits, &rounded, sizeof bits);
        return sign | (uint8_t)bits;
    }
    memcpy(&bits, &size, sizeof bits);
    bits += 0x7ffff + (bits >> (23 - E4M3_FRACTION) & 1); /* a carry goes on into the exponent */
    return sign | (uint8_t)((bits >> (23 - E4M3_FRACTION)) - ((127 - E4M3_BIAS) << E4M3_FRACTION));
}

/* The nearest int8 number; those outside become 127 or -127. */
static inline int8_t int8_from_float(float value) {
    return (int8_t)lrintf(fminf(fmaxf(value, -127), 127));
}

#endif
