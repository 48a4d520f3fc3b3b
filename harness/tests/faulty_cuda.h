/* faulty_cuda.h - what fake_log() of faulty_cuda.c tells a test of the calls that it took. */
#ifndef FL_TESTS_FAKE_CUDA_H
#define FL_TESTS_FAKE_CUDA_H

#include "runtime/cuda_driver.h"

#include <stdint.h>

/* A launch of a kernel with attention_args, or of one of a backward pass. */
struct fake_launch {
    const char *symbol;
    CUstream stream;
    int device;
    int captured;
    const int32_t *tickets;
};

enum { FAKE_LAUNCHES = 256 };
struct fake_log {
    int modules, allocations, synchronizations; /* calls */
    int held;                                   /* contexts, modules and streams that were not given back */
    int64_t held_bytes;                         /* likewise of device memory */
    int n_launches;
    struct fake_launch launches[FAKE_LAUNCHES]; /* the last ones: number i is at i % FAKE_LAUNCHES */
};

#endif
