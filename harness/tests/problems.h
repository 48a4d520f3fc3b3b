/* problems.h - problems for tests. */
#ifndef FL_TESTS_PROBLEMS_H
#define FL_TESTS_PROBLEMS_H

#include "harness/problem.h"

/* problem_square() with inputs of this type, kind and seed. */
static inline struct problem square(int64_t batch, int64_t heads, int64_t seq, enum dtype dtype, enum distribution dist,
                                    uint64_t seed) {
    struct problem problem = problem_square(batch, heads, seq);
    problem.dtype = dtype;
    problem.dist = dist;
    problem.seed = seed;
    return problem;
}

#endif
