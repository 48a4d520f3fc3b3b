/* reference.h - softmax(Q K^T * scale) V and its log-sum-exp in float64 on the CPU, for chosen rows of one head.
 *
 *     struct reference_scratch *scratch = reference_scratch_new(&problem);
 *     reference_rows(&inputs, batch, head, rows, n_rows, results, scratch);
 *
 * The score matrix is never kept beyond the rows at hand, so any size fits.
 */
#ifndef FL_REFERENCE_H
#define FL_REFERENCE_H

#include "harness/inputs.h"

#include <stdint.h>

enum { MAX_REFERENCE_ROWS = 16 }; /* at most, in one call */

/* The correct values of one row; p is the softmax of its scores. A row that sees no key has zeros, and lse is
 * -infinity. Keys that it does not see are not read: a NaN there is in no result. Kernels promise less for V:
 * include/flashladder.h. */
struct reference_row {
    double output[MAX_D_HEAD]; /* sum_j p_j v_j */
    double weight[MAX_D_HEAD]; /* sum_j p_j |v_j| */
    double lse;                /* log sum_j exp(score_j), with the sink of the head among the scores */
    int64_t keys;              /* that the row sees */
    double largest;            /* |score_j| of all keys that the row sees */
    double products; /* |q| * scale * sum_j p_j |k_j|, with the lengths of the vectors: no less than the mean of
                        the scores' sums of |products| */

    /* For an e4m3 problem (harness/fp8.h), else 0. Sums of outputs over the keys up to a multiple of 32. */
    double p_squares;                 /* sum_j p_j² */
    double term_squares[MAX_D_HEAD];  /* sum_j (p_j v_j)² */
    double V_squares[MAX_D_HEAD];     /* sum_j v_j² */
    double signs[MAX_D_HEAD];         /* positive less negative v_j */
    double largest_sum[MAX_D_HEAD];   /* |sum of p_j v_j up to there| */
    double largest_terms[MAX_D_HEAD]; /* sum of p_j |v_j| of 32 keys */
};

struct reference_scratch; /* work space of one thread */

/* NULL when out of memory. Owned. */
struct reference_scratch *reference_scratch_new(const struct problem *problem);
void reference_scratch_free(struct reference_scratch *scratch);

/* The rows [n_rows] of a head, n_rows <= MAX_REFERENCE_ROWS. */
void reference_rows(const struct inputs *inputs, int64_t batch, int64_t head, const int64_t *rows, int n_rows,
                    struct reference_row *results, struct reference_scratch *scratch);

#endif
