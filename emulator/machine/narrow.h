/* narrow.h - numbers of 8, 6 and 4 bits, their scales and their sums, as tcgen05.mma and mma.sync of sm_120a form them.
 *
 *     narrow_values a, b;                                   // 32 numbers along k each
 *     a.value[k] = emu_narrow_value(NARROW_E2M3, bits), a.exponent[k] = (int16_t)emu_exponent(a.value[k],
 * emu_narrow_least(NARROW_E2M3)); float sum = emu_narrow_sum(&a, &b, 1, 0, accumulator, false);
 */
#ifndef FL_EMU_NARROW_H
#define FL_EMU_NARROW_H

#include "../ptx/program.h"

enum { NARROW_TERMS = 32, NARROW_GROUP = 16, NARROW_GROUPS = 8 };

/* Values along k, with their exponents; zeros follow the last. */
typedef struct narrow_values {
    float value[NARROW_TERMS];
    int16_t exponent[NARROW_TERMS];
} narrow_values;

/* NaN for a format that does not exist. */
float emu_narrow_value(uint32_t format, uint32_t bits);
/* The smallest exponent of a format. */
int emu_narrow_least(uint32_t format);
/* A block scale: ue8m0 or ue4m3. */
float emu_narrow_scale(uint32_t byte, bool ue8m0);
/* Twice the value of each e2m1. */
extern const int8_t emu_narrow_twice[16];

/* The sum of the products, each times `scale`, whose exponent is `exponent`, and of `start`. The unit is that of an
 * exponent of at least `least`; to_odd: for a result that is rounded to f16 next, see mma.h. */
float emu_narrow_sum(const narrow_values *a, const narrow_values *b, double scale, int exponent, float start, int least,
                     bool to_odd);
/* The sum of groups of 16 products, which are four times as large here, times their scales, and of `start`; `in_scale`
 * groups share a scale. */
float emu_narrow_sum_groups(const int32_t *sums, const float *a_scales, const float *b_scales, uint32_t groups,
                            uint32_t in_scale, bool ue8m0, float start);

#endif
