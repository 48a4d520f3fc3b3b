/* on_gpu.h - the problem of attention.h in the memory of a GPU, whose context is current.
 *
 *     attention_on_gpu(&cuda, &attention, problem, "attention/wgmma");
 *     fl_status status = fl_forward(library, &attention.asked, &attention.tensors, stream);
 *     ok(attention_right_after(&cuda, &attention, stream), "O and log-sum-exp are right");
 *     attention_free_on_gpu(&cuda, &attention);
 */
#ifndef FL_ON_GPU_H
#define FL_ON_GPU_H

#include "harness/device/attention.h"
#include "runtime/cuda_driver.h"

/* Device memory with a copy of these bytes, or zeros where there are none. */
static inline CUdeviceptr on_gpu(const struct cuda_driver *cuda, const void *bytes, size_t size) {
    CUdeviceptr address;
    void *zeros = bytes ? NULL : calloc(1, size);
    if (cuda->cuMemAlloc_v2(&address, size) || cuda->cuMemcpyHtoD_v2(address, bytes ? bytes : zeros, size)) abort();
    free(zeros);
    return address;
}

/* `attention.tensors` are addresses of the GPU. */
static inline void attention_on_gpu(const struct cuda_driver *cuda, struct attention *attention, struct problem problem,
                                    const char *version) {
    CUdeviceptr addresses[N_TENSORS], lse = 0;
    attention_new(attention, problem);
    for (int t = 0; t < N_TENSORS; t++)
        addresses[t] = on_gpu(cuda, attention->memory[t], (size_t)problem_device_bytes(&problem, (enum tensor)t));
    if (problem.lse) lse = on_gpu(cuda, attention->lse, (size_t)problem_device_lse_bytes(&problem));
    attention->tensors = (fl_tensors){.size = sizeof attention->tensors,
                                      .q = (const void *)(uintptr_t)addresses[TENSOR_Q],
                                      .k = (const void *)(uintptr_t)addresses[TENSOR_K],
                                      .v = (const void *)(uintptr_t)addresses[TENSOR_V],
                                      .o = (void *)(uintptr_t)addresses[TENSOR_O],
                                      .lse = (float *)(uintptr_t)lse};
    if (attention->served) attention->on_gpu = on_gpu(cuda, attention->served, (size_t)serving_bytes(&problem));
    if (attention->served) attention_serve(attention, attention->on_gpu);
    attention->asked.memory = FL_DEVICE_MEMORY;
    attention->asked.version = version;
}

/* Copy O and log-sum-exp back once the stream has come to its end. */
static inline bool attention_read(const struct cuda_driver *cuda, struct attention *attention, CUstream stream) {
    const struct problem *const problem = &attention->inputs.problem;
    if (cuda->cuStreamSynchronize(stream)) return false;
    if (cuda->cuMemcpyDtoH_v2(attention->memory[TENSOR_O], (CUdeviceptr)(uintptr_t)attention->tensors.o,
                              (size_t)problem_device_bytes(problem, TENSOR_O)))
        return false;
    return !problem->lse || !cuda->cuMemcpyDtoH_v2(attention->lse, (CUdeviceptr)(uintptr_t)attention->tensors.lse,
                                                   (size_t)problem_device_lse_bytes(problem));
}

/* True if O is correct then. */
static inline bool attention_right_after(const struct cuda_driver *cuda, struct attention *attention, CUstream stream) {
    return attention_read(cuda, attention, stream) && attention_right(attention);
}

static inline void attention_free_on_gpu(const struct cuda_driver *cuda, struct attention *attention) {
    const void *const addresses[] = {attention->tensors.q, attention->tensors.k, attention->tensors.v,
                                     attention->tensors.o, attention->tensors.lse};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++)
        if (addresses[i]) cuda->cuMemFree_v2((CUdeviceptr)(uintptr_t)addresses[i]);
    if (attention->on_gpu) cuda->cuMemFree_v2(attention->on_gpu);
    attention_free(attention);
}

#endif
