/* fp8.h - problems with e4m3 Q, K and V (common/fp8.h): their device memory, and how far a kernel may be
 * from the reference.
 *
 *     fp8_args args = e4m3_args(&problem, attention);
 *     double bound = e4m3_O_bound(&problem, &reference, column);
 *
 * On the host an element is the 16 bits of its value in the type of O: fp16 and bf16 have every value of e4m3. The
 * reference takes these values, so that what is judged is the kernel and not how the inputs were rounded.
 *
 * An element of O passes where its error is at most 1.05 times the sum of
 *
 *  8 (u + x) (sqrt(sum p_j² v_j²) + |ref| sqrt(sum p_j²)), or (u + x) (sum p_j |v_j| + |ref|) where that is less
 *    u = 2^-4: P is rounded to 3 bits of fraction. Roundings are independent, so that the sum of them has a
 *    probabilistic bound (Hoeffding): 8 standard ones fail with a probability below 1e-13
 *  8 * 2^-18 sqrt(sum v_j²)
 *    the largest P is 2^8: one below 2^-6 has an error up to 2^-10
 *  2^-13 A (|sum of the signs of v_j| + 2 n + 8 sqrt(33 n)), or 2^-13 W (34 f + 8 sqrt(33 f)) where that is less
 *    the accumulator (docs/emulator.md, rule of the sums): each of the n = keys / 32 steps of wgmma cuts 33 terms
 *    and their sum towards zero, to units 2^-13 of the largest at most. A bounds the largest: what was added up so
 *    far, or one step's terms. Cuts of terms of one sign add up: where V has a mean, O becomes too small. With O
 *    added up in fp32 after f steps, the largest is that of these steps alone; together W = sum p_j |v_j| at most
 *  one rounding of O
 *
 * x = 8 sqrt(33 d_head / 32) 2^-13 S is the error of an exponent from the cuts of a score, S the largest that is added
 * up: of the scores, or 6 |q| |k| / sqrt(d_head), beyond which a partial sum of independent products seldom comes.
 * Log-sum-exp has the error x and, where l sums rounded P, 8 (u sqrt(sum p_j²) + 2^-18 sqrt(keys)).
 */
#ifndef FL_HARNESS_FP8_H
#define FL_HARNESS_FP8_H

#include "common/fp8.h"
#include "harness/problem.h"
#include "harness/reference.h"

#include <stdint.h>

/* Write a tensor as the device has it: bytes, and of V the transpose where the problem says so. */
void e4m3_spread(const struct problem *problem, enum tensor tensor, const uint16_t *contiguous, uint8_t *memory);

fp8_args e4m3_args(const struct problem *problem, attention_args attention);

double e4m3_O_bound(const struct problem *problem, const struct reference_row *row, int column);

/* Additional tolerance of log-sum-exp compared with inputs of 16 bits. */
double e4m3_lse_bound(const struct problem *problem, const struct reference_row *row);

#endif
