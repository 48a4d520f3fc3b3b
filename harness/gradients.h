/* gradients.h - the backward pass in float64 on the CPU: its inputs, the gradients of chosen rows, and how far a kernel
 * may be from them.
 *
 *     backward_inputs_generate(&inputs, INFINITY, &failure);
 *     reference_dQ(&inputs, batch, head, rows, n_rows, dQ, scratch);
 *     verify_gradients(&inputs, &output, 256, &verdict, &failure);
 *
 * With s = scale q k, p = exp(s - lse), dp = dO v and ds = p (dp - delta), delta = dO O, the gradients are
 *
 *   dV = sum p dO        dK = scale sum ds q        dQ = scale sum ds k
 *
 * A kernel has O, log-sum-exp, p and ds in their formats. To first order, u the unit roundoff of the type (2^-11 for
 * fp16, 2^-8 for bf16), e = 2^-24 that of fp32, t half the least number of the type, n keys or queries in a sum:
 *
 *   p     p (u + x) + t, where x = e (d_head scale |q| |k| + 8 (|s| + |lse|) + 8) is the error of an exponent:
 *    a sum of d_head products, the roundings of s and lse, and ex2.approx
 *   ds    p ((u + x) |dp - delta| + a) + t |dp - delta| + u |ds| + t, where a = e d_head |dO| |v| for dp, and
 *    (u + e d_head) sum |dO O| + t sum |dO| for delta from an O that was rounded
 *    With a soft cap both have the factor 1 - (s / cap)², which a kernel computes from the rounded p: its error is
 *    2 |s / cap| ((u + x) / cap), times p |dp - delta|
 *   sum   of errors times factors, and e 8 sqrt(n) |term| for each (Higham and Mary 2019)
 *
 * and the result is rounded once: u |ref| + t. An element passes where its error is at most 1.05 times that.
 * NaN and infinity never pass, wherever they are.
 */
#ifndef FL_GRADIENTS_H
#define FL_GRADIENTS_H

#include "harness/inputs.h"
#include "harness/reference.h"
#include "harness/verify.h"
#include "runtime/status.h"

#include <math.h>
#include <stdint.h>

/* The results of the forward pass for a query row, in float64. */
struct query_row {
    double lse, delta;
    double delta_products; /* sum |dO O| */
    double dO_sum;         /* sum |dO| */
    double Q_length, dO_length;
};

/* A row of a gradient, and how far each element may be off before it is rounded. */
struct gradient_row {
    double value[MAX_D_HEAD], error[MAX_D_HEAD];
};

/* Make dO, and O and log-sum-exp as a forward pass leaves them, of inputs whose Q, K and V are there; on all cores.
 * A forward pass of more than `most_flop` (INFINITY: none is) is computed only for some pairs of a batch entry and a KV
 * head, spread over all, and only their gradients are compared: other heads get rows of V for O, and for log-sum-exp
 * that of scores that are normally distributed, which a kernel takes as long for. STATUS_ERROR when out of memory;
 * inputs_free() in any case. */
enum status backward_inputs_generate(struct inputs *inputs, double most_flop, struct failure *failure);

/* Pair number i of inputs->exact_pairs: sample * KV_heads + KV head. */
int64_t backward_exact_pair(const struct inputs *inputs, int64_t i);

struct gradient_scratch; /* work space of one thread */

/* NULL when out of memory. Owned. */
struct gradient_scratch *gradient_scratch_new(void);
void gradient_scratch_free(struct gradient_scratch *scratch);

/* dQ of query rows [n_rows] of a head, n_rows <= MAX_REFERENCE_ROWS. */
void reference_dQ(const struct inputs *inputs, int64_t batch, int64_t head, const int64_t *rows, int n_rows,
                  struct gradient_row *dQ, struct gradient_scratch *scratch);

/* dK and dV of key rows [n_rows] of a KV head: the sums over all heads that share it. */
void reference_dKV(const struct inputs *inputs, int64_t batch, int64_t KV_head, const int64_t *rows, int n_rows,
                   struct gradient_row *dK, struct gradient_row *dV, struct gradient_scratch *scratch);

/* The gradient of a head's sink, and how far a kernel may be from it: the sum over all rows of -p delta, where p =
 * exp(sink - lse), with errors as above. */
struct sink_gradient {
    double value, error;
};
struct sink_gradient reference_dsink(const struct inputs *inputs, int64_t head);

/* Compare `wanted` rows of dQ and as many of dK and dV, on all cores. STATUS_ERROR when out of memory; a wrong output
 * is no failure. */
enum status verify_gradients(const struct inputs *inputs, const struct output *output, int64_t wanted,
                             struct verdict *verdict, struct failure *failure);

#endif
