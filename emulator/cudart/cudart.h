/* cudart.h - libcudart.so.13 over libcuda.so.1: what its parts share.
 *
 *     cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
 *         CUresult status = runtime_enter();             // cuInit() and the primary context, at the first call
 *         if (status == CUDA_SUCCESS) status = cuStreamSynchronize(stream);
 *         return runtime_leave(status);                  // what cudaGetLastError() tells
 *     }
 *
 * The runtime of the toolkit asks the driver for tables that are documented nowhere. This one calls documented
 * functions of the driver alone, so it runs over the emulated one; programs linked with `nvcc -cudart shared` load it.
 *
 *   registered.c   what the code that nvcc adds to a program registers: fatbins, kernels, variables; launches
 *   texture.c      arrays, textures and surfaces
 *   forwarded.c    functions that are one of the driver's: more of streams, pools and graphs
 *   memory.c       memory and copies                calls.c   device, streams, events, graphs, functions, the last
 * error errors.c       results by name                  refused.c every other function, refused by name
 */
#ifndef FL_EMU_CUDART_H
#define FL_EMU_CUDART_H

#include <assert.h>
#include <stdbool.h>

#pragma GCC visibility push(default)
#include <cuda.h>
#include <cuda_runtime_api.h>
cudaError_t cudaProfilerStart(void); /* of cuda_profiler_api.h, as the next */
cudaError_t cudaProfilerStop(void);
#pragma GCC visibility pop

/* CUDA_SUCCESS, or why no call can do anything. */
CUresult runtime_enter(void);
/* Convert to a result of the runtime: the numbers are equal. Kept for cudaGetLastError(). */
cudaError_t runtime_leave(CUresult status);
cudaError_t runtime_failed(cudaError_t error);

/* One call of the driver as one of the runtime. */
#define RUN(call)                                                                                                      \
    CUresult status = runtime_enter();                                                                                 \
    if (status == CUDA_SUCCESS) status = (call);                                                                       \
    return runtime_leave(status)

/* By the address that a program has for a kernel, or the handle of __cudaGetKernel(); the module is loaded if it was
 * not. CUDA_ERROR_NOT_FOUND where no such kernel was registered. */
CUresult find_kernel(const void *kernel, CUfunction *function);
/* The entry of a variable: its address and bytes. */
CUresult find_variable(const void *symbol, CUdeviceptr *at, size_t *bytes);

#endif
