/* serving.h - the serving_args of a problem, and the arrays on the device that they name.
 *
 *     serving_fill(&problem, memory);
 *     serving_args args = serving_args_of(&problem, attention, address);
 *
 * Memory has serving_bytes(&problem) bytes, which are to be copied to the device, to `address`.
 */
#ifndef FL_HARNESS_SERVING_H
#define FL_HARNESS_SERVING_H

#include "common/serving.h"
#include "harness/problem.h"

#include <stdint.h>

/* Offsets, lengths, sinks and a block mask, one array after another. */
int64_t serving_bytes(const struct problem *problem);
void serving_fill(const struct problem *problem, void *memory);

/* `attention` with what the problem adds; the arrays are at `address`. */
serving_args serving_args_of(const struct problem *problem, attention_args attention, uint64_t address);
extended_args extended_args_of(const struct problem *problem, attention_args attention, uint64_t address);

#endif
