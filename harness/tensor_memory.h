/* tensor_memory.h - the tensors in the memory of the device: copies between a layout and the host's contiguous order.
 *
 *     tensor_spread(&problem, TENSOR_Q, values, device);
 *
 * Gaps are filled with POISON_BYTE, so that a kernel that reads one computes NaN.
 */
#ifndef FL_TENSOR_MEMORY_H
#define FL_TENSOR_MEMORY_H

#include "harness/problem.h"

#include <stdbool.h>
#include <stdint.h>

/* True if a tensor has the same layout on the device as on the host. */
bool tensor_is_contiguous(const struct problem *problem);

/* Lay a contiguous tensor out as on the device; `memory` has problem_device_bytes(). */
void tensor_spread(const struct problem *problem, enum tensor tensor, const uint16_t *contiguous, uint16_t *memory);

/* The way back. Returns how many elements of the gaps are no longer poison; in a backward problem, which sets them to
 * 0, how many are not 0. */
int64_t tensor_gather(const struct problem *problem, enum tensor tensor, const uint16_t *memory, uint16_t *contiguous);

/* Log-sum-exp in the host's order, [batch, heads, seq_q], 0 for rows that do not exist; returns how many floats of such
 * rows were written. */
void lse_spread(const struct problem *problem, const float *contiguous, float *memory);
int64_t lse_gather(const struct problem *problem, const float *memory, float *contiguous);

#endif
