/* verify.h - compare what a launch left with the float64 reference, element by element.
 *
 *     verify_output(&inputs, &output, 256, &verdict, &failure);
 *     if (!verdict.pass) printf("largest error: %g\n", verdict.max_error);
 *
 * An element of O passes when |o - ref| <= u * (sum_j p_j |v_j| + |ref|) * (1 + 0.05 * s) + 1e-6, u the unit roundoff
 * of the type: 2^-11 for fp16, 2^-8 for bf16. This allows one rounding of P and one of O, and 5 % for the fp32
 * arithmetic, whose errors grow with the scores: s is 1, or the ratio of the scale to 1 / sqrt(d_head) if that is
 * larger.
 *
 * harness/fp8.h has the bounds for e4m3 inputs.
 *
 * Log-sum-exp is fp32 throughout, e = 2^-24 its unit roundoff. A kernel computes m * scale + ln(l) with m a score that
 * it subtracts, l the sum of exp2((score - m) * scale * log2(e)). lse_bound() adds up, in units of e and to first
 * order, with M the largest |score * scale|:
 *
 *  d_head * scale * sum_j p_j |q| |k_j|
 *    the scores: the bound of a sum of d_head products in any order. A score that is off by x moves log-sum-exp
 *    by p_j x
 *  8 * sqrt(keys)
 *    the sum l: the probabilistic bound of keys roundings (Higham and Mary 2019), which fails with a probability
 *    below 1e-13
 *  15 * M
 *    scale * log2(e) is off by 2 roundings, of differences up to 2 M and of m; the exponent, m * scale, and a
 *    scale of 1 / sqrt(d_head) in fp32 are rounded
 *  6 * (|lse| + M) + 9
 *    ex2.approx and lg2.approx are off by up to 2^-22, 4 e; the rest are the products by ln 2 and the last sum;
 *    |ln(l)| is at most |lse| + M
 *
 * and 5 % more for the terms of higher order. It must be -infinity if a row attends to no key, and otherwise a number.
 *
 * NaN and infinity never pass, wherever they are in the outputs, in a compared row or not.
 */
#ifndef FL_VERIFY_H
#define FL_VERIFY_H

#include "harness/inputs.h"
#include "harness/reference.h"
#include "runtime/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Column of the first wrong element: LSE_COLUMN where it is one of log-sum-exp. */
enum { LSE_COLUMN = -1 };

struct wrong_element {
    const char *gradient; /* "dQ"; NULL for O and log-sum-exp */
    int64_t batch, row, head, column;
    double got, expected, bound;
};

struct verdict {
    bool pass;
    int64_t rows;          /* compared with the reference */
    int64_t elements;      /* of O in them, and of log-sum-exp; or of the gradients */
    int64_t mismatches;    /* compared elements beyond their bound */
    int64_t specials;      /* NaN and infinity in the whole output, except -infinity where it belongs */
    int64_t strays;        /* elements written between the rows of O */
    double max_error;      /* largest |o - ref|; infinite where an element is NaN */
    double max_over_bound; /* largest |o - ref| / bound */
    bool has_lse;          /* log-sum-exp was compared */
    double lse_max_error;  /* the same of log-sum-exp */
    double lse_max_over_bound;
    bool has_gradients;              /* dQ, dK and dV were compared, not O */
    double relative_error[N_INPUTS]; /* of their compared rows, |x - ref| / |ref| with the lengths of the vectors */
    struct wrong_element first;      /* by batch, row, head, column; valid when mismatches > 0 */
};

/* Judge one element: its error relative to the largest of its kind, and if it is wrong. */
void verdict_compare(const struct wrong_element *element, double *max_error, double *max_over_bound,
                     struct verdict *part);

/* Add what another part of the output gave. */
void verdict_merge(struct verdict *into, const struct verdict *part);

/* Largest error that log-sum-exp of a row may have. */
double lse_bound(const struct problem *problem, const struct reference_row *reference);

/* Rows to compare: `wanted` of them (or all: CHECK_ALL of options.h, or a number not below their total) spread over all
 * heads and over the length, chosen by the seed. Returns how many; chosen[i] is (batch * heads + head) * seq_q + row in
 * rising order, owned by the caller; NULL when out of memory. */
int64_t choose_rows(const struct problem *problem, int64_t wanted, int64_t **chosen);

/* Compare `wanted` rows, on all cores. STATUS_ERROR when out of memory; a wrong output is no failure. */
enum status verify_output(const struct inputs *inputs, const struct output *output, int64_t wanted,
                          struct verdict *verdict, struct failure *failure);

#endif
