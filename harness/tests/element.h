/* element.h - one element of an input tensor, for tests that look at single ones.
 *
 *     double x = element(DIST_NORMAL, 1, TENSOR_Q, 12345);
 */
#ifndef FL_TESTS_ELEMENT_H
#define FL_TESTS_ELEMENT_H

#include "harness/inputs.h"

#include <stdint.h>

static inline float element(enum distribution dist, uint64_t seed, enum tensor tensor, int64_t index) {
    float values[4];
    input_block(dist, seed, tensor, (uint64_t)index / 4, values);
    return values[index % 4];
}

#endif
