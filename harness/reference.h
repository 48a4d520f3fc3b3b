/* reference.h - softmax(Q K^T / sqrt(d)) V in float64 on the CPU, for chosen rows of one head.
 *
 *     struct reference_scratch *scratch = reference_scratch_new(seq);
 *     reference_rows(&inputs, batch, head, rows, n_rows, output, weight, scratch);
 *
 * The score matrix is never kept beyond the rows at hand, so any size fits.
 */
#ifndef FL_REFERENCE_H
#define FL_REFERENCE_H

#include "harness/inputs.h"

#include <stdint.h>

enum { MAX_REFERENCE_ROWS = 16 }; /* at most, in one call */

struct reference_scratch; /* work space of one thread */

/* NULL when out of memory. Owned. */
struct reference_scratch *reference_scratch_new(int64_t seq);
void reference_scratch_free(struct reference_scratch *scratch);

/* For each of n_rows <= MAX_REFERENCE_ROWS rows of a head: output[i] = sum_j p_j v_j and weight[i] = sum_j p_j |v_j|,
 * both [n_rows][D_HEAD], with p the softmax of the row's scores. Scores are scaled by 1 / sqrt(d_head). */
void reference_rows(const struct inputs *inputs, int64_t batch, int64_t head, const int64_t *rows, int n_rows,
                    double (*output)[D_HEAD], double (*weight)[D_HEAD], struct reference_scratch *scratch);

#endif
