/* e4m3.h - e4m3 numbers as their bytes: a sign, 4 bits of exponent with bias 7, 3 of fraction.
 *
 *     uint8_t byte = e4m3_from_float(0.3f); // 0x2a: 0.3125
 *     float value = e4m3_to_float(byte);
 */
#ifndef FL_E4M3_H
#define FL_E4M3_H

#include <math.h>
#include <stdint.h>

enum { E4M3_BIAS = 7, E4M3_FRACTION = 3, E4M3_NAN = 0x7f, E4M3_LARGEST = 0x7e /* 448 */ };

/* NaN of 0x7f and 0xff. There is no infinity. */
static inline float e4m3_to_float(uint8_t byte) {
    const int exponent = byte >> E4M3_FRACTION & 15, fraction = byte & 7;
    const float size = exponent ? ldexpf((float)(8 + fraction), exponent - E4M3_BIAS - E4M3_FRACTION)
                                : ldexpf((float)fraction, 1 - E4M3_BIAS - E4M3_FRACTION);
    if ((byte & 0x7f) == E4M3_NAN) return NAN;
    return byte & 0x80 ? -size : size;
}

/* Round to nearest even; what is too large becomes 448, NaN 0x7f. */
static inline uint8_t e4m3_from_float(float value) {
    const uint8_t sign = signbit(value) ? 0x80 : 0;
    const float size = fabsf(value);
    int exponent;
    if (isnan(value)) return E4M3_NAN;
    if (size >= 448) return sign | E4M3_LARGEST;
    frexpf(size, &exponent); /* size is below 2^exponent; of 0 that is 1 */
    if (size == 0 || exponent < 2 - E4M3_BIAS) exponent = 2 - E4M3_BIAS;
    /* in units of the last place; 16 of them are 8 of the next exponent, which the addition carries over */
    const int units = (int)nearbyintf(ldexpf(size, E4M3_FRACTION + 1 - exponent));
    return sign | (uint8_t)(units + ((exponent - 2 + E4M3_BIAS) << E4M3_FRACTION));
}

#endif
