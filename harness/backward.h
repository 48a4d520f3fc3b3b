/* backward.h - buffers of a backward problem in addition to Q, K, V, O and log-sum-exp, shared by both back
 * ends.
 *
 *     for (int i = 0; i < N_BACKWARD; i++) addresses[i] = allocate(backward_bytes(&problem, i));
 *     backward_strided_args args = backward_args_of(&problem, attention, addresses, 0);
 */
#ifndef FL_HARNESS_BACKWARD_H
#define FL_HARNESS_BACKWARD_H

#include "common/backward.h"
#include "harness/inputs.h"
#include "runtime/launch.h"

#include <stdint.h>

enum backward_memory { OF_DO, OF_DQ, OF_DK, OF_DV, OF_DELTA, OF_SUMS, OF_TURNS, OF_DSINKS, N_BACKWARD };

/* "dO", ... */
const char *backward_name(enum backward_memory what);
int64_t backward_bytes(const struct problem *problem, enum backward_memory what);

/* True if a launch writes it, so that it is filled with NaN before; the turns are zeros. */
bool backward_is_written(enum backward_memory what);

/* `serving` is the address of the arrays of serving_fill(). */
backward_strided_args backward_args_of(const struct problem *problem, attention_args attention,
                                       const uint64_t addresses[N_BACKWARD], uint64_t serving);

#endif
