/* fake_cuda.c - a libcuda.so.1 without a GPU: what test_cli.py needs to see every exit status and message of gpu.c.
 *
 *     cc -shared -fPIC -I. -o DIR/libcuda.so.1 harness/tests/fake_cuda.c -lm
 *     FAKE_CUDA=cc=75 LD_LIBRARY_PATH=DIR bin/v01
 *
 * Device memory is host memory, streams run at once, flash_forward is computed in double precision. FAKE_CUDA holds
 * words separated by commas:
 *     no_device      cuInit finds no GPU                 broken     cuInit fails
 *     cc=86          compute capability 8.6 (default 90) smem=N     shared memory of a block
 *     memory=N       bytes of GPU memory                 fault      launches fail with an illegal address
 *     idle           flash_forward writes nothing        late       only the first launch writes
 *     off            one element is off by 1 percent     decay      right at first, wrong from the third launch on
 *     noisy          times vary by half                  slow       the SM clock is a third of its peak
 *     serial         launches return when they have ended, as under a profiler
 *     count          every launch is named on stderr
 */
#include "common/abi.h"
#include "harness/cuda_driver.h"
#include "harness/device/stamp.h"
#include "harness/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUfunc_st {
    char name[400];
};

static size_t used_bytes;
static uint64_t now_ns = 1000, now_cycles = 1000;
static int launches;

/* Whether FAKE_CUDA holds a word. */
static int mode(const char *word) {
    const char *text = getenv("FAKE_CUDA");
    const size_t length = strlen(word);
    for (const char *at = text; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, word, length) && (at[length] == ',' || !at[length])) return 1;
    return 0;
}

/* The number behind "word=", else `initial`. */
static long long setting(const char *word, long long initial) {
    const char *text = getenv("FAKE_CUDA"), *at = text ? strstr(text, word) : NULL;
    if (!at) return initial;
    char *end;
    const long long number = strtoll(at + strlen(word), &end, 10);
    if (end == at + strlen(word) || (*end && *end != ',')) {
        fprintf(stderr, "FAKE_CUDA='%s': %s takes a whole number\n", text, word);
        abort();
    }
    return number;
}

CUresult cuInit(unsigned flags) {
    (void)flags;
    return mode("no_device") ? 100 : mode("broken") ? 999 : 0;
}

CUresult cuGetErrorName(CUresult error, const char **name) {
    *name = error == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                           : "CUDA_ERROR_UNKNOWN";
    return 0;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = error == 700 ? "an illegal memory access was encountered" : "made up";
    return 0;
}

CUresult cuDriverGetVersion(int *version) {
    return *version = 13000, 0;
}
CUresult cuDeviceGetCount(int *count) {
    return *count = 1, 0;
}
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    return *device = ordinal, 0;
}
CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    (void)device;
    snprintf(name, (size_t)length, "Fake GPU");
    return 0;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    const int capability = (int)setting("cc=", 90);
    (void)device;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return *value = capability / 10, 0;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return *value = capability % 10, 0;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return *value = 4, 0;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        return *value = 1 << 20, 0;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        return *value = 1500000, 0;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return *value = (int)setting("smem=", 232448), 0;
    default:
        return 1;
    }
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    (void)device;
    return *bytes = (size_t)setting("memory=", 1LL << 32), 0;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    (void)device;
    return *context = (CUcontext)(uintptr_t)1, 0;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return (void)device, 0;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    return (void)context, 0;
}
CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    (void)image;
    return *module = (CUmodule)(uintptr_t)1, 0;
}
CUresult cuModuleUnload(CUmodule module) {
    return (void)module, 0;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    (void)module;
    *function = calloc(1, sizeof **function);
    snprintf((*function)->name, sizeof(*function)->name, "%s", name);
    return 0;
}
CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
    (void)attribute, (void)function;
    return *value = 200, 0;
}
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    (void)function, (void)attribute, (void)value;
    return 0;
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    cuDeviceTotalMem_v2(total, 0);
    *available = *total - used_bytes;
    return 0;
}

/* Each block is preceded by its size. */
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    size_t available, total;
    cuMemGetInfo_v2(&available, &total);
    size_t *block = bytes <= available ? calloc(1, bytes + 64) : NULL;
    if (!block) return 2;
    *block = bytes;
    used_bytes += bytes;
    *address = (CUdeviceptr)(uintptr_t)block + 64;
    return 0;
}
CUresult cuMemFree_v2(CUdeviceptr address) {
    size_t *block = (size_t *)(uintptr_t)(address - 64);
    used_bytes -= *block;
    free(block);
    return 0;
}
CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    (void)flags;
    return *memory = calloc(1, bytes), 0;
}
CUresult cuMemFreeHost(void *memory) {
    return free(memory), 0;
}
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *memory, unsigned flags) {
    (void)flags;
    return *address = (CUdeviceptr)(uintptr_t)memory, 0;
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    return memcpy((void *)(uintptr_t)to, from, bytes), 0;
}
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    return memcpy(to, (const void *)(uintptr_t)from, bytes), 0;
}
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
    (void)stream;
    return memset((void *)(uintptr_t)address, value, count), 0;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    if (flags != CU_STREAM_DEFAULT) return 1; /* CUDA_ERROR_INVALID_VALUE: uploads go through the default stream */
    return *stream = (CUstream)(uintptr_t)1, 0;
}
CUresult cuStreamDestroy_v2(CUstream stream) {
    return (void)stream, 0;
}
CUresult cuStreamSynchronize(CUstream stream) {
    (void)stream;
    return mode("fault") && launches ? 700 : 0;
}

/* An event holds the time at which it was recorded. */
CUresult cuEventCreate(CUevent *event, unsigned flags) {
    (void)flags;
    return *event = calloc(1, sizeof(uint64_t)), 0;
}
CUresult cuEventDestroy_v2(CUevent event) {
    return free(event), 0;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
    (void)stream;
    return *(uint64_t *)event = now_ns, 0;
}
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    *milliseconds = (float)((double)(*(uint64_t *)end - *(uint64_t *)start) / 1e6);
    return 0;
}

static void forward(const forward_args *args, enum dtype dtype, unsigned batches) {
    const uint16_t *Q = args->Q, *K = args->K, *V = args->V;
    uint16_t *O = args->O;
    double *p = malloc((size_t)args->seq * sizeof *p);
    for (int64_t head = 0; head < (int64_t)batches * args->heads; head++)
        for (int row = 0; row < args->seq; row++) {
            const int64_t start = head / args->heads * args->batch_stride + head % args->heads * args->head_stride;
            const uint16_t *q = Q + start + row * args->seq_stride;
            double most = -INFINITY, sum = 0;
            for (int j = 0; j < args->seq; j++) {
                p[j] = 0;
                for (int c = 0; c < 128; c++)
                    p[j] += half_to_float(q[c], dtype) * half_to_float(K[start + j * args->seq_stride + c], dtype);
                p[j] /= sqrt(128);
                if (p[j] > most) most = p[j];
            }
            for (int j = 0; j < args->seq; j++) sum += p[j] = exp(p[j] - most);
            for (int c = 0; c < 128; c++) {
                double o = 0;
                for (int j = 0; j < args->seq; j++)
                    o += p[j] / sum * half_to_float(V[start + j * args->seq_stride + c], dtype);
                if (mode("off") && head == 0 && row == 0 && c == 5) o += 0.01;
                if (mode("decay") && launches > 2) o += 1;
                O[start + row * args->seq_stride + c] = half_from_float((float)o, dtype);
            }
        }
    free(p);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters,
                        void **extra) {
    (void)grid_x, (void)grid_y, (void)block_x, (void)block_y, (void)block_z, (void)shared_bytes, (void)stream;
    (void)extra;
    if (mode("count")) fprintf(stderr, "launch %.17s\n", function->name);
    if (strstr(function->name, "stamp_clocks")) {
        clock_stamp *stamps = *(clock_stamp **)parameters[0];
        for (int i = 0; i < 4; i++)
            stamps[i] = (clock_stamp){*(uint64_t *)parameters[1], now_cycles + (uint64_t)i, now_ns};
        return 0;
    }
    if (strstr(function->name, "hold_stream")) {
        volatile uint32_t *released = *(uint32_t **)parameters[0];
        if (mode("serial") && !*released) *released = 2; /* it gives up, as nobody can release it */
        return 0;
    }
    uint64_t ns = 20000000;
    if (mode("noisy")) ns += (uint64_t)rand() % 20000000;
    now_ns += ns;
    now_cycles += ns * (mode("slow") ? 1 : 3) / 2;
    if (!strstr(function->name, "flash_forward")) return 0;
    launches++;
    if (mode("idle") || (mode("late") && launches > 1)) return 0;
    forward(parameters[0], strstr(function->name, "L5dtype15E") ? BF16 : FP16, grid_z);
    return 0;
}
