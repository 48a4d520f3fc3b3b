/* verify.h - compare an output with the float64 reference, element by element.
 *
 *     verify_output(&inputs, output, 256, &verdict, &failure);
 *     if (!verdict.pass) printf("largest error: %g\n", verdict.max_error);
 *
 * An element passes when |o - ref| <= u * (sum_j p_j |v_j| + |ref|) * 1.05 + 1e-6, u the unit roundoff of the type:
 * 2^-11 for fp16, 2^-8 for bf16. That is one rounding of P and one of O; 5 % are for the fp32 arithmetic. NaN and
 * infinity never pass, wherever they stand in the output, in a compared row or not.
 */
#ifndef FL_VERIFY_H
#define FL_VERIFY_H

#include "harness/inputs.h"
#include "harness/status.h"

#include <stdbool.h>
#include <stdint.h>

struct wrong_element {
    int64_t batch, row, head, column;
    double got, expected, bound;
};

struct verdict {
    bool pass;
    int64_t rows;               /* compared with the reference */
    int64_t elements;           /* of them */
    int64_t mismatches;         /* compared elements beyond their bound */
    int64_t specials;           /* NaN and infinity in the whole output */
    double max_error;           /* largest |o - ref|; infinite where an element is NaN */
    double max_over_bound;      /* largest |o - ref| / bound */
    struct wrong_element first; /* by batch, row, head, column; valid when mismatches > 0 */
};

/* Rows to compare: `wanted` of them (or all: CHECK_ALL of options.h, or a number not below their total) spread over all
 * heads and over the length, chosen by the seed. Returns how many; chosen[i] is (batch * heads + head) * seq + row in
 * rising order, owned by the caller. 0 when out of memory. */
int64_t choose_rows(const struct problem *problem, int64_t wanted, int64_t **chosen);

/* Compare `wanted` rows, on all cores. STATUS_ERROR when out of memory; a wrong output is no failure. */
enum status verify_output(const struct inputs *inputs, const uint16_t *output, int64_t wanted, struct verdict *verdict,
                          struct failure *failure);

#endif
