/* arguments.c - see arguments.h */
#include "harness/arguments.h"
#include "harness/fp8.h"
#include "harness/serving.h"

union kernel_args problem_arguments(const struct problem *problem, attention_args attention,
                                    const uint64_t backward[N_BACKWARD], uint64_t serving) {
    if (problem->backward)
        return (union kernel_args){.backward_strided = backward_args_of(problem, attention, backward, serving)};
    if (problem->e4m3 && !problem->e4m3_serves) return (union kernel_args){.fp8 = e4m3_args(problem, attention)};
    return (union kernel_args){.extended = extended_args_of(problem, attention, serving)};
}
