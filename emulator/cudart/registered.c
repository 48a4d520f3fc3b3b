/* registered.c - what nvcc's code registers before main(): fatbins, kernels and variables. A fatbin becomes a module
 * when the first of its kernels or variables is used. */
#include "cudart.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct binary {
    const void *image; /* borrowed, as all that is registered */
    CUmodule module;   /* NULL until it is used */
} binary;

typedef struct symbol {
    const void *host; /* the address by which the program names it */
    const char *name;
    binary *from;
    struct symbol *next;
} symbol;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static symbol *kernels, *variables;

/* ---- registration; crt/host_runtime.h has the prototypes ---- */

#pragma GCC visibility push(default)
void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
char __cudaInitModule(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *tid,
                            uint3 *bid, dim3 *block, dim3 *grid, int *warp);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t bytes, int constant,
                       int global);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream);
#pragma GCC visibility pop

void **__cudaRegisterFatBinary(void *image) {
    binary *b = calloc(1, sizeof *b);
    if (!b) abort(); /* before main(), with no way to tell */
    b->image = image;
    return (void **)b;
}

void __cudaRegisterFatBinaryEnd(void **handle) {
    (void)handle;
}

char __cudaInitModule(void **handle) {
    (void)handle;
    return 1;
}

static void forget(symbol **list, const binary *b) {
    while (*list) {
        symbol *s = *list;
        if (s->from != b) {
            list = &s->next;
            continue;
        }
        *list = s->next;
        free(s);
    }
}

/* At the program's end, or when a library is unloaded. The driver may have ended before: its module is left to it. */
void __cudaUnregisterFatBinary(void **handle) {
    pthread_mutex_lock(&lock);
    forget(&kernels, (binary *)handle);
    forget(&variables, (binary *)handle);
    pthread_mutex_unlock(&lock);
    free(handle);
}

static void add(symbol **list, void **handle, const void *host, const char *name) {
    symbol *s = malloc(sizeof *s);
    if (!s) abort();
    pthread_mutex_lock(&lock);
    *s = (symbol){host, name, (binary *)handle, *list};
    *list = s;
    pthread_mutex_unlock(&lock);
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *tid,
                            uint3 *bid, dim3 *block, dim3 *grid, int *warp) {
    (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    add(&kernels, handle, host, name);
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t bytes, int constant,
                       int global) {
    (void)device, (void)ext, (void)bytes, (void)constant, (void)global;
    add(&variables, handle, host, name);
}

/* ---- finding ---- */

/* NULL where it was not registered; its module is loaded. */
static symbol *find(symbol *list, const void *host, CUresult *status) {
    pthread_mutex_lock(&lock);
    while (list && list->host != host && list != host) list = list->next;
    *status = list ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
    if (list && !list->from->module) *status = cuModuleLoadData(&list->from->module, list->from->image);
    pthread_mutex_unlock(&lock);
    return *status == CUDA_SUCCESS ? list : NULL;
}

CUresult find_kernel(const void *kernel, CUfunction *function) {
    CUresult status;
    const symbol *s = find(kernels, kernel, &status);
    return s ? cuModuleGetFunction(function, s->from->module, s->name) : status;
}

CUresult find_variable(const void *host, CUdeviceptr *at, size_t *bytes) {
    CUresult status;
    const symbol *s = find(variables, host, &status);
    return s ? cuModuleGetGlobal(at, bytes, s->from->module, s->name) : status;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
    pthread_mutex_lock(&lock);
    symbol *s = kernels;
    while (s && s->host != host) s = s->next;
    *kernel = (cudaKernel_t)s;
    pthread_mutex_unlock(&lock);
    return s ? cudaSuccess : runtime_failed(cudaErrorInvalidDeviceFunction);
}

/* ---- launches ---- */

typedef struct configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} configuration;

enum { DEEPEST = 16 }; /* arguments of a launch may launch, too */
static _Thread_local configuration pushed[DEEPEST];
static _Thread_local int depth;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
    if (depth == DEEPEST) return 1;
    pushed[depth++] = (configuration){grid, block, shared, stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (!depth) return runtime_failed(cudaErrorMissingConfiguration);
    const configuration *c = &pushed[--depth];
    *grid = c->grid;
    *block = c->block;
    *shared = c->shared;
    *(cudaStream_t *)stream = c->stream;
    return cudaSuccess;
}

static bool is_launchable(dim3 grid, dim3 block) {
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;
    return grid.x && grid.y && grid.z && threads && threads <= 1024;
}

/* CUDA_SUCCESS and the function, or the error of the launch is kept. */
static cudaError_t prepare(const void *kernel, dim3 grid, dim3 block, CUfunction *function) {
    CUresult status = runtime_enter();
    if (status != CUDA_SUCCESS) return runtime_leave(status);
    status = find_kernel(kernel, function);
    if (status == CUDA_ERROR_NOT_FOUND) return runtime_failed(cudaErrorInvalidDeviceFunction);
    if (status != CUDA_SUCCESS) return runtime_leave(status);
    return is_launchable(grid, block) ? cudaSuccess : runtime_failed(cudaErrorInvalidConfiguration);
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
    CUfunction function;
    const cudaError_t wrong = prepare(kernel, grid, block, &function);
    if (wrong) return wrong;
    return runtime_leave(cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared,
                                        stream, arguments, NULL));
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                                        cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

/* The attributes of both APIs are laid out alike, and have the same numbers. */
static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute), "attributes of launches");

static CUlaunchConfig driver_config(const cudaLaunchConfig_t *c) {
    return (CUlaunchConfig){.gridDimX = c->gridDim.x,
                            .gridDimY = c->gridDim.y,
                            .gridDimZ = c->gridDim.z,
                            .blockDimX = c->blockDim.x,
                            .blockDimY = c->blockDim.y,
                            .blockDimZ = c->blockDim.z,
                            .sharedMemBytes = (unsigned)c->dynamicSmemBytes,
                            .hStream = c->stream,
                            .attrs = (CUlaunchAttribute *)(void *)c->attrs,
                            .numAttrs = c->numAttrs};
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *kernel, void **arguments) {
    CUfunction function;
    if (!c) return runtime_failed(cudaErrorInvalidValue);
    const cudaError_t wrong = prepare(kernel, c->gridDim, c->blockDim, &function);
    if (wrong) return wrong;
    const CUlaunchConfig config = driver_config(c);
    return runtime_leave(cuLaunchKernelEx(&config, function, arguments, NULL));
}

/* CUTLASS asks how many clusters of a kernel are resident together, and refuses to launch it without an answer. */
typedef CUresult occupancy_of_clusters(int *found, CUfunction function, const CUlaunchConfig *config);

static cudaError_t ask_of_clusters(occupancy_of_clusters *ask, int *found, const void *kernel,
                                   const cudaLaunchConfig_t *c) {
    CUfunction function = NULL;
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS && !c) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = find_kernel(kernel, &function);
    if (status == CUDA_ERROR_NOT_FOUND) return runtime_failed(cudaErrorInvalidDeviceFunction);
    if (status != CUDA_SUCCESS) return runtime_leave(status);
    const CUlaunchConfig config = driver_config(c);
    return runtime_leave(ask(found, function, &config));
}

cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *kernel, const cudaLaunchConfig_t *config) {
    return ask_of_clusters(cuOccupancyMaxActiveClusters, clusters, kernel, config);
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int *size, const void *kernel, const cudaLaunchConfig_t *config) {
    return ask_of_clusters(cuOccupancyMaxPotentialClusterSize, size, kernel, config);
}
