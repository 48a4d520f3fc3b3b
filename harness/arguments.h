/* arguments.h - the first parameter of a kernel, for a problem and the addresses of its tensors.
 *
 *     const union kernel_args args = problem_arguments(&problem, attention, backward, serving);
 *
 * attention: the tensors of the forward pass. backward: by enum backward_memory; serving: of the arrays of a serving
 * problem; both 0 where the problem has none.
 */
#ifndef FL_ARGUMENTS_H
#define FL_ARGUMENTS_H

#include "harness/backward.h"
#include "runtime/parameters.h"

union kernel_args problem_arguments(const struct problem *problem, attention_args attention,
                                    const uint64_t backward[N_BACKWARD], uint64_t serving);

#endif
