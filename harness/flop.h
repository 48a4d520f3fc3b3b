/* flop.h - how much a problem costs.
 *
 *     double tflops = problem_flop(&problem) / seconds / 1e12;
 */
#ifndef FL_FLOP_H
#define FL_FLOP_H

#include "harness/problem.h"

/* Floating-point operations of the two matmuls, of the five of a backward problem, 4 * d_head for each pair of a query
 * and a key that it sees: what FlashAttention-2, FlashAttention-3 and cuDNN quote, 4 * batch * heads * seq^2 * d_head
 * without a mask. */
double problem_flop(const struct problem *problem);

/* The published ladder's count, which adds 6 for each pair for the softmax. */
double problem_attn_flop(const struct problem *problem);

#endif
