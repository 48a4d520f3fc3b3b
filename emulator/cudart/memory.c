/* memory.c - memory, copies and variables. */
#include "cudart.h"

#include <stdint.h>
#include <string.h>

static CUdeviceptr address_of(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}

/* ---- allocation ---- */

cudaError_t cudaMalloc(void **at, size_t bytes) {
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS && !at) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return runtime_leave(status);
    *at = NULL;
    CUdeviceptr made = 0;
    if (bytes) status = cuMemAlloc(&made, bytes);
    if (status == CUDA_SUCCESS) *at = (void *)(uintptr_t)made;
    return runtime_leave(status);
}

cudaError_t cudaMallocManaged(void **at, size_t bytes, unsigned flags) {
    CUresult status = runtime_enter();
    CUdeviceptr made = 0;
    if (status == CUDA_SUCCESS && !at) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = cuMemAllocManaged(&made, bytes, flags);
    if (status == CUDA_SUCCESS) *at = (void *)(uintptr_t)made;
    return runtime_leave(status);
}

cudaError_t cudaMallocPitch(void **at, size_t *pitch, size_t width, size_t height) {
    CUresult status = runtime_enter();
    CUdeviceptr made = 0;
    if (status == CUDA_SUCCESS && !at) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = cuMemAllocPitch(&made, pitch, width, height, 16);
    if (status == CUDA_SUCCESS) *at = (void *)(uintptr_t)made;
    return runtime_leave(status);
}

cudaError_t cudaFree(void *at) {
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS && at) status = cuMemFree(address_of(at));
    return runtime_leave(status);
}

cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags) {
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS) status = cuMemHostAlloc(at, bytes, flags);
    return runtime_leave(status);
}

cudaError_t cudaMallocHost(void **at, size_t bytes) {
    return cudaHostAlloc(at, bytes, 0);
}

cudaError_t cudaFreeHost(void *at) {
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS && at) status = cuMemFreeHost(at);
    return runtime_leave(status);
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags) {
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS) status = cuMemHostRegister(at, bytes, flags);
    return runtime_leave(status);
}

cudaError_t cudaHostUnregister(void *at) {
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS) status = cuMemHostUnregister(at);
    return runtime_leave(status);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
    CUresult status = runtime_enter();
    CUdeviceptr at = 0;
    if (status == CUDA_SUCCESS && !device) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = cuMemHostGetDevicePointer(&at, host, flags);
    if (status == CUDA_SUCCESS) *device = (void *)(uintptr_t)at;
    return runtime_leave(status);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS) status = cuMemGetInfo(available, total);
    return runtime_leave(status);
}

static enum cudaMemoryType type_of(CUdeviceptr at) {
    unsigned type = 0;
    int managed = 0;
    if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at)) return cudaMemoryTypeUnregistered;
    cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at);
    return managed ? cudaMemoryTypeManaged : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *pointer) {
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS && !a) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return runtime_leave(status);
    memset(a, 0, sizeof *a);
    a->type = type_of(address_of(pointer));
    const bool is_device = a->type == cudaMemoryTypeDevice, is_known = a->type != cudaMemoryTypeUnregistered;
    a->device = is_known ? 0 : -2; /* cudaInvalidDeviceId */
    a->devicePointer = is_known ? (void *)(uintptr_t)pointer : NULL;
    a->hostPointer = is_device ? NULL : (void *)(uintptr_t)pointer;
    return cudaSuccess;
}

/* ---- copies ---- */

static CUmemorytype side(enum cudaMemcpyKind kind, bool is_source) {
    const bool is_device =
        kind == cudaMemcpyDeviceToDevice || kind == (is_source ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice);
    if (kind == cudaMemcpyDefault) return CU_MEMORYTYPE_UNIFIED;
    return is_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

/* stream: NULL for a copy that has happened when the call returns. */
static CUresult copy(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                     enum cudaMemcpyKind kind, const cudaStream_t *stream) {
    if ((unsigned)kind > cudaMemcpyDefault || width > to_pitch || width > from_pitch) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_MEMCPY2D rows = {.srcMemoryType = side(kind, true),
                                .srcHost = from,
                                .srcDevice = address_of(from),
                                .srcPitch = from_pitch,
                                .dstMemoryType = side(kind, false),
                                .dstHost = to,
                                .dstDevice = address_of(to),
                                .dstPitch = to_pitch,
                                .WidthInBytes = width,
                                .Height = height};
    if (!width || !height) return CUDA_SUCCESS;
    return stream ? cuMemcpy2DAsync(&rows, *stream) : cuMemcpy2D(&rows);
}

static cudaError_t checked_copy(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                size_t height, enum cudaMemcpyKind kind, const cudaStream_t *stream) {
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS && ((unsigned)kind > cudaMemcpyDefault))
        return runtime_failed(cudaErrorInvalidMemcpyDirection);
    if (status == CUDA_SUCCESS) status = copy(to, to_pitch, from, from_pitch, width, height, kind, stream);
    return runtime_leave(status);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return checked_copy(to, to_pitch, from, from_pitch, width, height, kind, &stream);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                         enum cudaMemcpyKind kind) {
    return checked_copy(to, to_pitch, from, from_pitch, width, height, kind, NULL);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    return cudaMemcpy2D(to, bytes, from, bytes, bytes, 1, kind);
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream) {
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS && bytes) status = cuMemsetD8Async(address_of(at), (unsigned char)value, bytes, stream);
    return runtime_leave(status);
}

cudaError_t cudaMemset(void *at, int value, size_t bytes) {
    return cudaMemsetAsync(at, value, bytes, NULL);
}

cudaError_t cudaMemset2DAsync(void *at, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS && width && height)
        status = cuMemsetD2D8Async(address_of(at), pitch, (unsigned char)value, width, height, stream);
    return runtime_leave(status);
}

cudaError_t cudaMemset2D(void *at, size_t pitch, int value, size_t width, size_t height) {
    return cudaMemset2DAsync(at, pitch, value, width, height, NULL);
}

/* ---- variables ---- */

static cudaError_t of_symbol(CUresult status) {
    return status == CUDA_ERROR_NOT_FOUND ? runtime_failed(cudaErrorInvalidSymbol) : runtime_leave(status);
}

cudaError_t cudaGetSymbolAddress(void **at, const void *symbol) {
    CUresult status = runtime_enter();
    CUdeviceptr found = 0;
    if (status == CUDA_SUCCESS && !at) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = find_variable(symbol, &found, NULL);
    if (status == CUDA_SUCCESS) *at = (void *)(uintptr_t)found;
    return of_symbol(status);
}

cudaError_t cudaGetSymbolSize(size_t *bytes, const void *symbol) {
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS) status = find_variable(symbol, NULL, bytes);
    return of_symbol(status);
}

/* Address of `bytes` bytes at `offset` in a variable. */
static CUresult part_of(const void *symbol, size_t bytes, size_t offset, void **at) {
    CUdeviceptr found = 0;
    size_t whole = 0;
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS) status = find_variable(symbol, &found, &whole);
    if (status == CUDA_SUCCESS && (offset > whole || bytes > whole - offset)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) *at = (void *)(uintptr_t)(found + offset);
    return status;
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes, size_t offset,
                                    enum cudaMemcpyKind kind, cudaStream_t stream) {
    void *at;
    const CUresult status = part_of(symbol, bytes, offset, &at);
    return status == CUDA_SUCCESS ? cudaMemcpyAsync(at, from, bytes, kind, stream) : of_symbol(status);
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset,
                               enum cudaMemcpyKind kind) {
    void *at;
    const CUresult status = part_of(symbol, bytes, offset, &at);
    return status == CUDA_SUCCESS ? cudaMemcpy(at, from, bytes, kind) : of_symbol(status);
}

cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t bytes, size_t offset,
                                      enum cudaMemcpyKind kind, cudaStream_t stream) {
    void *at;
    const CUresult status = part_of(symbol, bytes, offset, &at);
    return status == CUDA_SUCCESS ? cudaMemcpyAsync(to, at, bytes, kind, stream) : of_symbol(status);
}

cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind) {
    void *at;
    const CUresult status = part_of(symbol, bytes, offset, &at);
    return status == CUDA_SUCCESS ? cudaMemcpy(to, at, bytes, kind) : of_symbol(status);
}
