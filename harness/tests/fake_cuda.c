/* fake_cuda.c - a libcuda.so.1 without a GPU, with a clock of its own: what test_cli.py needs to see every exit status
 * and message of gpu.c, and every figure that is timed, the same on a busy machine and on an idle one. For the library
 * it has GPUs, contexts, streams and captures, and takes calls of several threads; fake_log() tells what they did.
 *
 *     cc -shared -fPIC -I. -o DIR/libcuda.so.1 harness/tests/fake_cuda.c -lm -ldl
 *     FAKE_CUDA=cc=75 LD_LIBRARY_PATH=DIR LD_PRELOAD=DIR/libcuda.so.1 bin/v01
 *
 * Device memory is host memory, and flash_forward is computed in double precision. What goes into the stream waits
 * there until the host synchronises or copies, and then runs in its order; each operation takes a time that is written
 * below, and nothing else takes any. A host that asks for an event passes the time of one operation, and one that works
 * (fake_host_works) the time of those that fit. LD_PRELOAD makes the host read that clock too. FAKE_CUDA holds words
 * separated by commas; a LIST is numbers separated by colons, one for each launch of flash_forward, and then from the
 * first again:
 *     hidden         there are GPUs, but none that the process may use
 *     no_device      cuInit finds no GPU                 broken     cuInit fails
 *     cc=86          compute capability 8.6 (default 90) smem=N     shared memory of a block
 *     devices=N      GPUs (default 1, at most 8)         old=N      the first N of them have compute capability 7.5
 *     sms=N          multiprocessors (default 4)         l2=N       bytes of the L2 (default 1 MiB)
 *     memory=N       bytes of GPU memory                 host_kb=N  kilobytes that the host has, 0: it does not tell
 *     fault          launches fail with an illegal address
 *     idle           flash_forward writes nothing        late       only the first launch writes
 *     off            one element is off by 1 percent     early      ... in the first launch alone
 *     lse_off        one value of log-sum-exp is off by 0.01
 *     lse_late       only the first launch writes log-sum-exp
 *     stray          an element behind the first row of O is written too; both of kernels with attention_args alone
 *     decay          right at first, wrong from the third launch on
 * What a kernel might do to seem faster than it is; test_cheats.py has a test of each:
 *     part           the second half of the CTAs is left out
 *     replay         later launches write what the first one computed, whatever their inputs are
 *     escapes        launches end after 1 us, and their work goes on beside the stream
 *     escapes_later  ... after the first launch
 *     lazy           launches end at once, and their work is done when the host reads the output
 *     timer          events tell a hundredth of the time
 *     coarse         P has three bits of mantissa, as in e4m3
 *     aliased        O is written over Q
 *     clobbers       Q is overwritten with O behind the launch
 *     stale          memory holds a right output from before, and a launch writes only if nobody has filled O since
 *     rows=LIST      all other rows of O are zeros; row 0 is the first of the first head, and seq that of the next head
 *     persists       the tensors are made lines that persist in the L2, in a part that is set aside for them
 *     no_persisting  the GPU has no such lines
 *     times=LIST     ms of flash_forward (default 20); a fifth less where the L2 holds its tensors
 *     tires          flash_forward takes a quarter longer when 60 ms have passed since the GPU last rested for half a
 * second clocks=LIST    MHz of the SMs (default 1500)       uneven=P   each SM is slower than the one before by P
 * percent package        the kernel module says that it is 570.86.15 no_package     the kernel module says nothing
 *     fails=NAME:N   the call of the driver's function NAME after N others of it fails
 *     left           what the host did not give back is named on stderr at the end
 *     blind          no SM writes its stamps             missed     all SMs but the first miss one of two stamps
 *     half_blind     no SM writes the stamps of every second pair
 *     still          the nanoseconds of all SMs but the first stand still
 *     serial         launches return when they have ended, as under a profiler
 *     log            what the stream runs is named on stderr, in its order
 */
#include "harness/tests/fake_cuda.h"
#include "common/serving.h"
#include "harness/device/pipes.h"
#include "harness/device/stamp.h"
#include "harness/device/wgmma_peak.h"
#include "harness/e4m3.h"
#include "harness/half.h"
#include "harness/inputs.h"
#include "runtime/cuda_driver.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A primary context of a GPU, or one that cuCtxCreate_v2 made. */
struct CUctx_st {
    int device;
    uint64_t id;
};

struct CUmod_st {
    CUcontext context;
    CUfunction functions; /* those that were looked up */
};

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

struct CUfunc_st {
    CUcontext context;
    CUfunction next;
    char name[400];
    int shared_bytes; /* dynamic shared memory it may be launched with */
    int loaded;       /* the first launch loads it */
};

/* An event holds the time at which the stream came to it, 0 until it is recorded; until then it is pending. */
struct CUevent_st {
    uint64_t ns;
    int pending;
};

/* Held by every call that reads or writes what follows. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t used_bytes;
static double now_ns = 1000, now_cycles = 1000;
#define MOST_WORK 2e10            /* that one flash_forward computes, in multiplications */
static int launches;              /* of flash_forward, that have run */
static int faulted;               /* every later call fails too */
static int uploads;               /* copies to the device so far */
static int cached;                /* the tensors are in the L2 */
static int persisting, set_aside; /* they persist, and they have a part of the L2 */
static const void *last_filled;   /* what the last memset wrote */
struct operation;
static struct operation *escaped; /* a launch that has ended and not yet computed anything */
static double escaped_until_ns;

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

/* Whether this call is the one that FAKE_CUDA lets fail. Another FAKE_CUDA counts from 0. */
static int fails(const char *name) {
    static long long calls;
    static char counted[200];
    const char *text = getenv("FAKE_CUDA"), *at = text ? strstr(text, "fails=") : NULL;
    const size_t length = strlen(name);
    if (!at || strncmp(at + strlen("fails="), name, length) != 0 || at[strlen("fails=") + length] != ':') return 0;
    if (strcmp(counted, text) != 0) {
        snprintf(counted, sizeof counted, "%s", text);
        calls = 0;
    }
    return calls++ == strtoll(at + strlen("fails=") + length + 1, NULL, 10);
}

#define TRY(name)                                                                                                      \
    do {                                                                                                               \
        if (fails(#name)) return 999;                                                                                  \
    } while (0)

/* What was made and not yet given back. */
static struct {
    int contexts, modules, streams, events, pinned;
} made;

static void __attribute__((destructor)) say_what_is_left(void) {
    if (mode("left"))
        fprintf(stderr, "left: %d contexts, %d modules, %d streams, %d events, %d pinned, %zu bytes\n", made.contexts,
                made.modules, made.streams, made.events, made.pinned, used_bytes);
}

/* The number of a LIST for the launch of flash_forward that comes next. */
static double next_of(const char *word, double initial) {
    const char *text = getenv("FAKE_CUDA"), *at = text ? strstr(text, word) : NULL;
    if (!at) return initial;
    double numbers[100];
    int count = 0;
    char *end = (char *)(uintptr_t)at + strlen(word) - 1;
    do numbers[count++] = strtod(end + 1, &end);
    while (*end == ':' && count < 100);
    if ((*end && *end != ',') || numbers[0] <= 0) {
        fprintf(stderr, "FAKE_CUDA='%s': %s takes at most 100 numbers separated by colons\n", text, word);
        abort();
    }
    return numbers[launches % count];
}

static double rested_at_ns; /* when the GPU last did nothing for half a second */

static void pass_time(double ns) {
    now_ns += ns;
    now_cycles += ns * next_of("clocks=", 1500) / 1e3;
}

/* ---- the host: its clock is the GPU's, and its memory is what the test says ---- */

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (clock != CLOCK_MONOTONIC) return (int)syscall(SYS_clock_gettime, clock, time);
    *time = (struct timespec){(time_t)(now_ns / 1e9), (long)fmod(now_ns, 1e9)};
    return 0;
}

void fake_host_works(double ns);

int nanosleep(const struct timespec *time, struct timespec *left) {
    (void)left;
    fake_host_works(1e9 * (double)time->tv_sec + (double)time->tv_nsec);
    return 0;
}

FILE *fopen(const char *name, const char *how) {
    static char text[100];
    if (!strcmp(name, "/sys/module/nvidia/version") && (mode("package") || mode("no_package")))
        return fmemopen(text, (size_t)snprintf(text, sizeof text, mode("package") ? "570.86.15\n" : "\n"), "r");
    const long long host_kb = setting("host_kb=", -1);
    FILE *(*const real)(const char *, const char *) =
        (FILE * (*)(const char *, const char *))(uintptr_t)dlsym(RTLD_NEXT, "fopen");
    if (strcmp(name, "/proc/meminfo") != 0 || host_kb < 0) return real(name, how);
    if (host_kb)
        snprintf(text, sizeof text, "MemTotal:  99999999 kB\nMemAvailable:  %lld kB\nBuffers:  7 kB\n", host_kb);
    else
        snprintf(text, sizeof text, "MemTotal:  99999999 kB\n");
    return fmemopen(text, strlen(text), "r");
}

/* ---- the device ---- */

CUresult cuInit(unsigned flags) {
    TRY(cuInit);
    if (flags) return 1; /* CUDA_ERROR_INVALID_VALUE */
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
    TRY(cuDriverGetVersion);
    return *version = 13000, 0;
}
CUresult cuDeviceGetCount(int *count) {
    TRY(cuDeviceGetCount);
    return *count = mode("hidden") ? 0 : (int)setting("devices=", 1), 0;
}
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    TRY(cuDeviceGet);
    return *device = ordinal, ordinal >= setting("devices=", 1) ? 101 : 0; /* CUDA_ERROR_INVALID_DEVICE */
}
CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    TRY(cuDeviceGetName);
    (void)device;
    snprintf(name, (size_t)length, "Fake GPU");
    return 0;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
    TRY(cuDeviceGetPCIBusId);
    (void)device;
    snprintf(text, (size_t)length, "0000:1b:00.0");
    return 0;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    TRY(cuDeviceGetAttribute);
    const int capability = device < (int)setting("old=", 0) ? 75 : (int)setting("cc=", 90);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return *value = capability / 10, 0;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return *value = capability % 10, 0;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return *value = (int)setting("sms=", 4), 0;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        return *value = (int)setting("l2=", 1 << 20), 0;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        return *value = 1500000, 0;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return *value = (int)setting("smem=", 232448), 0;
    default:
        return 1;
    }
}

static size_t memory_bytes(void) {
    return (size_t)setting("memory=", 1LL << 32);
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    TRY(cuDeviceTotalMem_v2);
    (void)device;
    return *bytes = memory_bytes(), 0;
}

/* ---- contexts: each thread has a stack of them ---- */

enum { MAX_DEVICES = 8, MAX_STACK = 16 };
static struct CUctx_st primaries[MAX_DEVICES] = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}, {7, 8}};
static _Thread_local CUcontext stack[MAX_STACK];
static _Thread_local int depth;

static CUcontext current(void) {
    return depth ? stack[depth - 1] : NULL;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    TRY(cuDevicePrimaryCtxRetain);
    return made.contexts++, *context = &primaries[device], 0;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    TRY(cuDevicePrimaryCtxRelease_v2);
    return (void)device, made.contexts--, 0;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    TRY(cuCtxSetCurrent);
    if (!depth) depth = 1;
    return stack[depth - 1] = context, 0;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
    TRY(cuCtxGetCurrent);
    return *context = current(), 0;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
    TRY(cuCtxPushCurrent_v2);
    if (depth == MAX_STACK) return 999;
    return stack[depth++] = context, 0;
}
CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    TRY(cuCtxPopCurrent_v2);
    if (!depth) return 201; /* CUDA_ERROR_INVALID_CONTEXT */
    return *context = stack[--depth], 0;
}
CUresult cuCtxGetDevice(CUdevice *device) {
    TRY(cuCtxGetDevice);
    return current() ? (*device = current()->device, 0) : 201;
}
CUresult cuCtxGetId(CUcontext context, uint64_t *id) {
    TRY(cuCtxGetId);
    return *id = context->id, 0;
}

CUresult cuCtxSetLimit(int limit, size_t value) {
    TRY(cuCtxSetLimit);
    if (mode("no_persisting")) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (limit != CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return 1; /* CUDA_ERROR_INVALID_VALUE */
    if (mode("log")) fprintf(stderr, "set_aside %zu\n", value);
    return set_aside = value > 0, 0;
}
CUresult cuCtxResetPersistingL2Cache(void) {
    TRY(cuCtxResetPersistingL2Cache);
    if (mode("no_persisting")) return CUDA_ERROR_NOT_SUPPORTED;
    if (mode("log")) fprintf(stderr, "reset_persisting\n");
    return persisting = 0;
}

/* ---- captures ---- */

enum { MAX_STREAMS = 8192 };
struct CUstream_st {
    CUcontext context;
    uint64_t id;
    struct CUgraph_st *graph; /* what is being captured */
};
static CUstream streams[MAX_STREAMS];
static int n_streams, n_capturing;
static uint64_t stream_ids = 10;
static _Thread_local int capture_mode; /* 0: global */
static struct fake_log log_kept;

struct fake_log *fake_log(void);
struct fake_log *fake_log(void) {
    log_kept.held = made.contexts + made.modules + made.streams;
    log_kept.held_bytes = (int64_t)used_bytes;
    return &log_kept;
}

/* What must not be called while a stream is being captured, unless the thread says that it is no part of that. */
static int unsafe(void) {
    return n_capturing && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
}

CUresult cuThreadExchangeStreamCaptureMode(int *how) {
    TRY(cuThreadExchangeStreamCaptureMode);
    const int before = capture_mode;
    capture_mode = *how;
    return *how = before, 0;
}

static int is_stream(CUstream stream) {
    for (int i = 0; i < n_streams; i++)
        if (streams[i] == stream) return 1;
    return 0;
}
/* 400 is CUDA_ERROR_INVALID_HANDLE. */
CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    TRY(cuStreamGetCtx);
    pthread_mutex_lock(&lock);
    const int known = is_stream(stream);
    pthread_mutex_unlock(&lock);
    return known ? (*context = stream->context, 0) : 400;
}
CUresult cuStreamGetId(CUstream stream, uint64_t *id) {
    TRY(cuStreamGetId);
    return *id = (uintptr_t)stream <= 2 ? 8 * current()->id + (uintptr_t)stream : 1000 + stream->id, 0;
}
CUresult cuStreamIsCapturing(CUstream stream, int *status) {
    TRY(cuStreamIsCapturing);
    return *status = (uintptr_t)stream > 2 && stream->graph, 0;
}

/* ---- modules ---- */

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    TRY(cuModuleLoadData);
    (void)image;
    if (unsafe()) return 900; /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
    pthread_mutex_lock(&lock);
    made.modules++;
    log_kept.modules++;
    pthread_mutex_unlock(&lock);
    *module = calloc(1, sizeof **module);
    (*module)->context = current();
    return 0;
}
CUresult cuModuleUnload(CUmodule module) {
    TRY(cuModuleUnload);
    for (CUfunction function = module->functions, next; function; function = next) {
        next = function->next;
        free(function);
    }
    return free(module), made.modules--, 0;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    TRY(cuModuleGetFunction);
    *function = calloc(1, sizeof **function);
    (*function)->context = module ? module->context : current();
    if (module) {
        (*function)->next = module->functions;
        module->functions = *function;
    }
    snprintf((*function)->name, sizeof(*function)->name, "%s", name);
    (*function)->shared_bytes = 48 << 10;
    return 0;
}
CUresult cuFuncLoad(CUfunction function) {
    TRY(cuFuncLoad);
    return (void)function, 0;
}
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    TRY(cuFuncSetAttribute);
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) function->shared_bytes = value;
    return 0;
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    TRY(cuMemGetInfo_v2);
    *total = memory_bytes();
    *available = *total - used_bytes;
    return 0;
}

/* Blocks of device memory and of host memory that the GPU sees; each begins 64 bytes before its address. */
struct block {
    struct block *next;
    size_t bytes;
    int kind, device;
};
static struct block *blocks;

static char *block_start(struct block *block) {
    return (char *)block + 64;
}

static struct block *new_block(size_t bytes, int kind) {
    struct block *block = calloc(1, bytes + 64);
    if (!block) return NULL;
    *block = (struct block){blocks, bytes, kind, current() ? current()->device : 0};
    return blocks = block;
}

static void free_block(const void *start) {
    for (struct block **at = &blocks; *at; at = &(*at)->next) {
        struct block *const block = *at;
        if (block_start(block) != start) continue;
        *at = block->next;
        free(block);
        return;
    }
}

CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr address) {
    TRY(cuPointerGetAttributes);
    const char *const at = (const char *)(uintptr_t)address;
    pthread_mutex_lock(&lock);
    struct block *block = blocks;
    while (block && (at < block_start(block) || at >= block_start(block) + block->bytes)) block = block->next;
    for (unsigned i = 0; i < count; i++) {
        const int attribute = attributes[i];
        *(int *)values[i] = !block ? attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? -2 : 0
                            : attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE    ? block->kind
                            : attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? block->device
                                                                               : 0;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    TRY(cuMemAlloc_v2);
    if (unsafe()) return 900; /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
    pthread_mutex_lock(&lock);
    struct block *block = bytes <= memory_bytes() - used_bytes ? new_block(bytes, CU_MEMORYTYPE_DEVICE) : NULL;
    if (block) used_bytes += bytes;
    log_kept.allocations++;
    pthread_mutex_unlock(&lock);
    if (!block) return 2;
    *address = (CUdeviceptr)(uintptr_t)block_start(block);
    return 0;
}
static CUresult run_stream(void);
CUresult cuMemFree_v2(CUdeviceptr address) {
    TRY(cuMemFree_v2);
    pthread_mutex_lock(&lock);
    run_stream();
    used_bytes -= ((struct block *)(uintptr_t)(address - 64))->bytes;
    free_block((const void *)(uintptr_t)address);
    pthread_mutex_unlock(&lock);
    return 0;
}
CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    TRY(cuMemHostAlloc);
    (void)flags;
    pthread_mutex_lock(&lock);
    *memory = block_start(new_block(bytes, CU_MEMORYTYPE_HOST));
    pthread_mutex_unlock(&lock);
    return made.pinned++, 0;
}
CUresult cuMemFreeHost(void *memory) {
    TRY(cuMemFreeHost);
    pthread_mutex_lock(&lock);
    free_block(memory);
    pthread_mutex_unlock(&lock);
    return made.pinned--, 0;
}
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *memory, unsigned flags) {
    TRY(cuMemHostGetDevicePointer_v2);
    (void)flags;
    return *address = (CUdeviceptr)(uintptr_t)memory, 0;
}

/* ---- flash_forward ---- */

/* What this driver writes into a tensor map: the layout of the tensor, and a word that says who made it. */
enum { MADE_HERE = 0xfa4e };
struct map_layout {
    uint64_t made_here, address, strides[4];
    uint32_t sizes[5], dtype, element_bytes;
};

/* Takes elements of 16 bits and bytes, in five dimensions alone. */
CUresult cuTensorMapEncodeTiled(void *map, int data_type, uint32_t rank, CUdeviceptr address, const uint64_t *sizes,
                                const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,
                                int interleave, int swizzle, int l2_promotion, int fill) {
    TRY(cuTensorMapEncodeTiled);
    struct map_layout layout = {.made_here = MADE_HERE, .address = address};
    const bool bytes = data_type == CU_TENSOR_MAP_DATA_TYPE_UINT8;
    const bool known =
        bytes || data_type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || data_type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    layout.dtype = data_type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ? BF16 : FP16;
    layout.element_bytes = bytes ? 1 : 2;
    if ((uintptr_t)map % 64 || address % 16 || rank != 5 || !known) return 1;
    if (interleave || swizzle != CU_TENSOR_MAP_SWIZZLE_128B || l2_promotion > 3 || fill ||
        box[0] * layout.element_bytes > 128)
        return 1;
    for (int i = 0; i < 5; i++) {
        if (!sizes[i] || !box[i] || box[i] > 256 || element_strides[i] != 1 || (i && strides[i - 1] % 16)) return 1;
        layout.sizes[i] = (uint32_t)sizes[i];
        if (i) layout.strides[i - 1] = strides[i - 1];
    }
    memset(map, 0, sizeof(tensor_map));
    memcpy(map, &layout, sizeof layout);
    return 0;
}

/* What a kernel with tensor copies reads: nothing but the maps. */
static forward_args args_of_maps(const tensor_maps *maps, enum dtype dtype) {
    const tensor_map *all[] = {&maps->Q, &maps->K, &maps->V, &maps->O};
    struct map_layout layouts[4];
    for (int t = 0; t < 4; t++) {
        memcpy(&layouts[t], all[t], sizeof *layouts);
        if (layouts[t].made_here != MADE_HERE || layouts[t].dtype != dtype ||
            memcmp(layouts[t].strides, layouts[0].strides, sizeof layouts->strides) != 0) {
            fprintf(stderr, "tensor map %d is not one of this problem\n", t);
            abort();
        }
    }
    return (forward_args){.Q = (const void *)(uintptr_t)layouts[TENSOR_Q].address,
                          .K = (const void *)(uintptr_t)layouts[TENSOR_K].address,
                          .V = (const void *)(uintptr_t)layouts[TENSOR_V].address,
                          .O = (void *)(uintptr_t)layouts[TENSOR_O].address,
                          .seq_stride = (int64_t)layouts[0].strides[0] / 2,
                          .head_stride = (int64_t)layouts[0].strides[2] / 2,
                          .batch_stride = (int64_t)layouts[0].strides[3] / 2,
                          .seq = (int32_t)layouts[0].sizes[1]};
}

/* Whether a kernel takes attention_args, or serving_args, which begin as these. */
static bool serves(const struct CUfunc_st *function) {
    return strstr(function->name, "12serving_args") != NULL;
}
static bool is_general(const struct CUfunc_st *function) {
    return serves(function) || strstr(function->name, "14attention_args");
}

/* Of a kernel with attention_args: it reads tensors where its maps say. One that packs heads has Q, as groups of them,
 * in the place of O, and stores O without a map. */
static void take_maps(attention_args *args, const tensor_maps *maps, enum dtype dtype) {
    const tensor_map *all[] = {&maps->Q, &maps->K, &maps->V, &maps->O};
    tensor_strides *strides[] = {&args->Q_strides, &args->K_strides, &args->V_strides, &args->O_strides};
    struct map_layout layouts[4];
    for (int t = 0; t < 4; t++) {
        memcpy(&layouts[t], all[t], sizeof *layouts);
        if (layouts[t].made_here != MADE_HERE || (layouts[t].element_bytes == 2 && layouts[t].dtype != dtype)) {
            fprintf(stderr, "tensor map %d is not one of this problem\n", t);
            abort();
        }
        if (t == TENSOR_O && layouts[t].address == layouts[TENSOR_Q].address) continue;
        strides[t]->seq = (int64_t)layouts[t].strides[0] / layouts[t].element_bytes;
        strides[t]->head = (int64_t)layouts[t].strides[2] / layouts[t].element_bytes;
        strides[t]->batch = (int64_t)layouts[t].strides[3] / layouts[t].element_bytes;
    }
    args->Q = (const void *)(uintptr_t)layouts[TENSOR_Q].address;
    args->K = (const void *)(uintptr_t)layouts[TENSOR_K].address;
    args->V = (const void *)(uintptr_t)layouts[TENSOR_V].address;
    if (layouts[TENSOR_O].address != layouts[TENSOR_Q].address) args->O = (void *)(uintptr_t)layouts[TENSOR_O].address;
}

/* With three bits of mantissa behind the first one, where FAKE_CUDA says so. */
static double coarse(double x) {
    int exponent;
    const double mantissa = frexp(x, &exponent);
    return mode("coarse") ? ldexp(rint(16 * mantissa), exponent - 4) : x;
}

/* What the CTAs of the grid compute: rows [64 x, 64 x + 64) of head y of batch z where B_r is 64. */
static void forward(const forward_args *args, enum dtype dtype, int B_r, const unsigned *grid) {
    const uint16_t *Q = args->Q, *K = args->K, *V = args->V;
    uint16_t *O = args->O;
    double *p = malloc((size_t)args->seq * sizeof *p);
    for (unsigned cta = 0; cta < grid[0] * grid[1] * grid[2] / (mode("part") ? 2 : 1); cta++) {
        const int64_t start =
            cta / grid[0] / grid[1] * args->batch_stride + cta / grid[0] % grid[1] * args->head_stride;
        for (int row = (int)(cta % grid[0]) * B_r, end = row + B_r; row < end && row < args->seq; row++) {
            const uint16_t *q = Q + start + row * args->seq_stride;
            double most = -INFINITY, sum = 0;
            for (int j = 0; j < args->seq; j++) {
                p[j] = 0;
                for (int c = 0; c < 128; c++)
                    p[j] += half_to_float(q[c], dtype) * half_to_float(K[start + j * args->seq_stride + c], dtype);
                p[j] /= sqrt(128);
                if (p[j] > most) most = p[j];
            }
            for (int j = 0; j < args->seq; j++) sum += p[j] = coarse(exp(p[j] - most));
            for (int c = 0; c < 128; c++) {
                double o = 0;
                for (int j = 0; j < args->seq; j++)
                    o += p[j] / sum * half_to_float(V[start + j * args->seq_stride + c], dtype);
                O[start + row * args->seq_stride + c] = half_from_float((float)o, dtype);
            }
        }
    }
    free(p);
}

static void spoil(uint16_t *element, double error, enum dtype dtype) {
    *element = half_from_float((float)(half_to_float(*element, dtype) + error), dtype);
}

/* Zeros in all rows but those of FAKE_CUDA's rows=LIST, of one sample. */
static void leave_rows_out(const forward_args *args, unsigned heads) {
    const char *const text = getenv("FAKE_CUDA"), *const list = text ? strstr(text, "rows=") : NULL;
    for (int i = 0; list && i < (int)heads * args->seq; i++) {
        char *end = (char *)(uintptr_t)list + strlen("rows=") - 1;
        bool kept = false;
        do kept |= strtol(end + 1, &end, 10) == i;
        while (*end == ':');
        uint16_t *const row =
            (uint16_t *)args->O + i / args->seq * args->head_stride + i % args->seq * args->seq_stride;
        if (!kept) memset(row, 0, 128 * sizeof *row);
    }
}

/* The same launch again writes the same bits: they are computed once for each grid and each upload. */
static void forward_again(const forward_args *args, enum dtype dtype, int B_r, const unsigned *grid) {
    static unsigned done_grid[3];
    static int done_uploads;
    static uint16_t *bits;
    const size_t elements = (size_t)grid[2] * (size_t)args->batch_stride;
    if (!bits || (done_uploads != uploads && !mode("replay")) || mode("clobbers") ||
        memcmp(done_grid, grid, sizeof done_grid) != 0) {
        forward(args, dtype, B_r, grid);
        memcpy(done_grid, grid, sizeof done_grid);
        done_uploads = uploads;
        free(bits);
        bits = malloc(2 * elements);
        memcpy(bits, args->O, 2 * elements);
    } else {
        memcpy(args->O, bits, 2 * elements);
    }
    leave_rows_out(args, grid[1]);
    if (mode("off") || (mode("early") && launches == 1)) spoil((uint16_t *)args->O + 5, 0.01, dtype);
    for (size_t i = 0; i < elements && mode("decay") && launches > 2; i++) spoil((uint16_t *)args->O + i, 1, dtype);
}

/* Used rows of a sequence, the first of them, and the sample of the tensors in which they lie. */
struct sequence {
    int seq_q, seq_k, first_q, first_k, q_sample, kv_sample;
};

static struct sequence sequence_of(const serving_args *args, int batch) {
    const int32_t *const q = args->Q_offsets, *const k = args->KV_offsets;
    struct sequence seq = {args->attention.seq_q, args->attention.seq_k, 0, 0, batch, batch};
    if (q) seq.seq_q = q[batch + 1] - q[batch], seq.first_q = q[batch], seq.q_sample = 0;
    if (k) seq.seq_k = k[batch + 1] - k[batch], seq.first_k = k[batch], seq.kv_sample = 0;
    if (args->Q_lengths) seq.seq_q = args->Q_lengths[batch];
    if (args->KV_lengths) seq.seq_k = args->KV_lengths[batch];
    return seq;
}

/* Element c of row `key` of a sequence of K or V: bytes of e4m3 where KV heads have scales. */
static double element(const serving_args *args, const struct sequence *seq, bool of_V, int batch, int KV_head, int key,
                      int c, enum dtype dtype) {
    const attention_args *const attention = &args->attention;
    const tensor_strides strides = of_V ? attention->V_strides : attention->K_strides;
    const void *const tensor = of_V ? attention->V : attention->K;
    const float *const scales = of_V ? args->V_scales : args->K_scales;
    int64_t sample = seq->kv_sample, row = seq->first_k + key;
    if (args->pages) {
        sample = args->pages[(int64_t)batch * args->pages_of_sequence + key / args->page_rows];
        row = key % args->page_rows;
    }
    const int64_t at = sample * strides.batch + row * strides.seq + KV_head * strides.head + c;
    if (scales) return scales[KV_head] * e4m3_to_float(((const uint8_t *)tensor)[at]);
    return half_to_float(((const uint16_t *)tensor)[at], dtype);
}

/* One row of general attention, O and log-sum-exp; zeros and -infinity or the sink where it sees no key. */
static void attend_row(const serving_args *serving, enum dtype dtype, int d_head, int batch, int head, int row,
                       double *p) {
    const attention_args *const args = &serving->attention;
    const struct sequence seq = sequence_of(serving, batch);
    const tensor_strides q = args->Q_strides, o = args->O_strides;
    const int KV_head = head / (args->heads / args->KV_heads);
    const int64_t at = seq.first_q + row;
    const uint16_t *Q = (const uint16_t *)args->Q + seq.q_sample * q.batch + head * q.head + at * q.seq;
    uint16_t *O = (uint16_t *)args->O + seq.q_sample * o.batch + head * o.head + at * o.seq;
    const int last = row + seq.seq_k - seq.seq_q, left = serving->window_left, right = serving->window_right;
    const int first = left >= 0 && last > left ? last - left : 0;
    int end = args->causal && last + 1 < seq.seq_k ? last + 1 : seq.seq_k;
    if (right >= 0 && last + right + 1 < end) end = last + right + 1;
    double most = serving->sinks ? serving->sinks[head] : -INFINITY, sum = serving->sinks ? 1 : 0;
    for (int j = first; j < end; j++) {
        p[j] = 0;
        for (int c = 0; c < d_head; c++)
            p[j] += half_to_float(Q[c], dtype) * element(serving, &seq, false, batch, KV_head, j, c, dtype);
        p[j] *= args->softmax_scale;
        if (serving->softcap > 0) p[j] = serving->softcap * tanh(p[j] / serving->softcap);
        if (p[j] > most) sum *= exp(most - p[j]), most = p[j];
    }
    for (int j = first; j < end; j++) sum += p[j] = exp(p[j] - most);
    for (int c = 0; c < d_head; c++) {
        double value = 0;
        for (int j = first; j < end; j++)
            value += p[j] / sum * element(serving, &seq, true, batch, KV_head, j, c, dtype);
        O[c] = half_from_float((float)value, dtype);
    }
    const int64_t rows = serving->Q_offsets ? serving->Q_rows : args->seq_q;
    if (args->LSE)
        args->LSE[((int64_t)seq.q_sample * args->heads + head) * rows + at] =
            (float)(sum > 0 ? most + log(sum) : -INFINITY);
}

/* What a grid of a kernel with attention_args or serving_args computes together. */
static void attend(const serving_args *serving, enum dtype dtype, int d_head) {
    const attention_args *const args = &serving->attention;
    double *p = malloc((size_t)args->seq_k * sizeof *p);
    for (int batch = 0; batch < args->batch; batch++)
        for (int head = 0; head < args->heads; head++)
            for (int row = 0; row < sequence_of(serving, batch).seq_q; row++)
                attend_row(serving, dtype, d_head, batch, head, row, p);
    if (mode("off")) spoil((uint16_t *)args->O + 5, 0.01, dtype);
    if (mode("lse_off") && args->LSE) args->LSE[1] += 0.01f;
    if (mode("stray")) ((uint16_t *)args->O)[d_head] = 0; /* behind the first row */
    free(p);
}

/* ---- the stream ---- */

enum kind { MEMSET, RECORD, LAUNCH };

struct operation {
    enum kind kind;
    CUevent event;
    uint64_t address;
    unsigned char value;
    size_t bytes;
    CUfunction function;
    unsigned grid[3], threads;
    union {
        forward_args forward;
        uint64_t words[2];
        struct {
            uint64_t out;
            int iterations, beside;
            pipe_job job;
        } peak;           /* of harness/device/ */
    } parameters;         /* as they were at the launch */
    serving_args general; /* of a kernel with attention_args, with those alone */
};
static struct operation queue[1000]; /* of all streams: one after the other is an order that they may have */
static int queued;

enum { MAX_NODES = 100 };
struct CUgraph_st {
    struct operation nodes[MAX_NODES];
    int count;
};

/* Stamps of the SMs that a grid reaches: 2048 threads fill one. */
static void stamp_clocks(const struct operation *op) {
    static int stamped;
    clock_stamp *stamps = (clock_stamp *)(uintptr_t)op->parameters.words[0];
    const int reached = (int)(op->grid[0] * op->threads / 2048), sms = (int)setting("sms=", 4);
    const int index = stamped++; /* the first is that of the warm-up */
    for (int i = 0; i < reached && i < sms; i++) {
        const double slower = pow(1 - 0.01 * (double)setting("uneven=", 0), i);
        const int missed = mode("missed") && i > 0;
        if (mode("blind") || (missed && index % 4 > 1) || (mode("half_blind") && (index + 1) / 2 % 2)) continue;
        stamps[i] = (clock_stamp){op->parameters.words[1], (uint64_t)(now_cycles * slower * (missed ? 0.1 : 1)),
                                  mode("still") && i > 0 ? 1000 : (uint64_t)now_ns};
    }
    pass_time(1e3);
}

static void hold_stream(const struct operation *op) {
    volatile uint32_t *released = (uint32_t *)(uintptr_t)op->parameters.words[0];
    if (*released) return;
    pass_time((double)op->parameters.words[1]); /* nobody releases it any more: it gives up */
    *released = 2;
}

/* 100 TFLOP/s with fp16 and 80 with bf16, and 10 us a launch; eight m16n8k16 each iteration of each warp. */
static void mma_peak(const struct operation *op) {
    const unsigned warps = op->grid[0] * op->threads / 32;
    const double flop = 8 * 2.0 * 16 * 8 * 16 * warps * op->parameters.peak.iterations;
    pass_time(1e4 + flop / (strstr(op->function->name, "bf16") ? 80e3 : 100e3));
}

/* n / 2 cycles for each m64nNk16 of an SM, an eighth more beside other instructions, of which one takes 9 cycles. */
static void wgmma_peak(const struct operation *op) {
    const int beside = op->parameters.peak.beside;
    const uint64_t n = (uint64_t)strtol(strstr(op->function->name, "_n") + 2, NULL, 10);
    const uint64_t warpgroups = op->threads / 128 - (beside != 0);
    wgmma_result result = {.wgmma = (uint64_t)op->parameters.peak.iterations * WGMMA_PER_ITERATION};
    result.cycles = result.wgmma * warpgroups * n / 2 * (beside ? 9 : 8) / 8;
    result.ns = result.cycles * 2 / 3;
    if (beside) result.others = 1000, result.own_cycles = 9000;
    for (unsigned i = 0; i < op->grid[0]; i++) ((wgmma_result *)(uintptr_t)op->parameters.peak.out)[i] = result;
    pass_time((double)result.ns);
}

static int first_number(const struct operation *op, const char *before) {
    return (int)strtol(strstr(op->function->name, before) + strlen(before), NULL, 10);
}

/* Multiplications of a launch of flash_forward: pairs of a row of Q and one of K, and each of their elements. */
static double work_of(const struct operation *op) {
    const attention_args *general = &op->general.attention;
    if (is_general(op->function))
        return (double)general->batch * general->heads * general->seq_q * general->seq_k * first_number(op, "ELi");
    return (double)op->grid[0] * op->grid[1] * op->grid[2] * first_number(op, "ELi128ELi") *
           op->parameters.forward.seq * 128;
}

static void compute(const struct operation *op);

/* The work of a launch that ended at once is done when its time is over, or when the host reads. */
static void finish_escaped(bool host_reads) {
    if (!escaped || (mode("lazy") ? !host_reads : now_ns < escaped_until_ns)) return;
    compute(escaped);
    free(escaped);
    escaped = NULL;
}

static void flash_forward(const struct operation *op) {
    const bool tired = mode("tires") && now_ns - rested_at_ns > 6e7;
    const double ns = 1e6 * next_of("times=", 20) * (cached ? 0.8 : 1) * (tired ? 1.25 : 1);
    const bool escapes = mode("escapes") || mode("lazy") || (mode("escapes_later") && launches > 0);
    pass_time(!escapes ? ns : mode("lazy") ? 0 : 1e3);
    cached = 1;
    if (mode("persists")) persisting = set_aside = 1;
    launches++;
    faulted = mode("fault");
    if (escapes) {
        free(escaped);
        escaped = malloc(sizeof *escaped);
        *escaped = *op;
        escaped_until_ns = now_ns + ns;
        return;
    }
    compute(op);
}

static void compute(const struct operation *op) {
    if (mode("idle") || (mode("late") && launches > 1)) return;
    if (mode("stale") && op->parameters.forward.O == last_filled) return;
    if (is_general(op->function)) {
        serving_args args = op->general;
        if (mode("lse_late") && launches > 1) args.attention.LSE = NULL;
        attend(&args, strstr(op->function->name, "L5dtype15E") ? BF16 : FP16, first_number(op, "ELi"));
    } else {
        const enum dtype dtype = strstr(op->function->name, "L5dtype15E") ? BF16 : FP16;
        forward_args args = op->parameters.forward;
        if (mode("aliased")) args.O = (void *)(uintptr_t)args.Q;
        forward_again(&args, dtype, first_number(op, "ELi128ELi"), op->grid);
        if (mode("clobbers"))
            memcpy((void *)(uintptr_t)args.Q, args.O, 2 * (size_t)op->grid[2] * (size_t)args.batch_stride);
    }
}

/* Two cycles for each operation, nine for those beside it, 1000 for each copy and load; no time for the rest. A product
 * of pipes_e4m3 is an operation. Warps of a scheduler are done one after the other. */
static void pipes(const struct operation *op) {
    if (strstr(op->function->name, "link") || strstr(op->function->name, "empty")) return;
    const pipe_job job = op->parameters.peak.job;
    const bool product = strstr(op->function->name, "_n") != NULL;
    const bool alone = !product && strstr(op->function->name, "_");
    const uint64_t count = alone || product ? 100 : (uint64_t)job.rounds * PIPE_ROUND;
    pipe_result result = {.cycles = {count * (alone ? 1000 : 2)}, .count = {count}};
    result.ns = result.cycles[0] * 2 / 3;
    if (!alone && !product && job.beside) result.count[1] = 1000, result.cycles[1] = 9000;
    for (int warp = 0; warp < PIPE_MOST_WARPS; warp++) result.ends[warp] = (uint64_t)(warp / 4 + 1) * result.cycles[0];
    for (unsigned i = 0; i < op->grid[0]; i++) ((pipe_result *)(uintptr_t)op->parameters.peak.out)[i] = result;
    pass_time((double)result.ns);
}

static void run_operation(const struct operation *op) {
    static const struct {
        const char *name;
        void (*run)(const struct operation *op);
    } kernels[] = {{"stamp_clocks", stamp_clocks},
                   {"hold_stream", hold_stream},
                   {"wgmma_peak", wgmma_peak},
                   {"mma_peak", mma_peak},
                   {"pipes", pipes},
                   {"flash_forward", flash_forward}};
    finish_escaped(false);
    if (op->kind == MEMSET) {
        if (mode("log")) fprintf(stderr, "memset %zu of 0x%02x\n", op->bytes, op->value & 0xffu);
        last_filled = memset((void *)(uintptr_t)op->address, op->value, op->bytes);
        pass_time((double)op->bytes / 16);
        if (op->bytes >= 2 * (size_t)setting("l2=", 1 << 20) && !persisting && !set_aside) cached = 0;
    } else if (op->kind == RECORD) {
        if (mode("log")) fprintf(stderr, "record\n");
        *op->event = (struct CUevent_st){(uint64_t)now_ns, 0};
    } else {
        for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
            if (!strstr(op->function->name, kernels[i].name)) continue;
            if (mode("log"))
                fprintf(stderr, "%s %u x %u x %u, %u\n", kernels[i].name, op->grid[0], op->grid[1], op->grid[2],
                        op->threads);
            if (!op->function->loaded) pass_time(5e7);
            op->function->loaded = 1;
            kernels[i].run(op);
            break;
        }
    }
}

static CUresult run_stream(void) {
    for (int i = 0; i < queued; i++)
        if (!faulted) run_operation(&queue[i]);
    queued = 0;
    return faulted ? 700 : 0;
}

static CUresult run_one(void) {
    if (!queued) return faulted ? 700 : 0;
    const struct operation first = queue[0];
    memmove(queue, queue + 1, (size_t)--queued * sizeof *queue);
    if (!faulted) run_operation(&first);
    return faulted ? 700 : 0;
}

/* The host works for so long, and the stream beside it; fake_nvml.c calls it. */
void fake_host_works(double ns) {
    const double end = now_ns + ns;
    while (queued && now_ns < end) run_one();
    if (end - now_ns >= 5e8) rested_at_ns = end;
    if (now_ns < end) pass_time(end - now_ns);
}

static CUresult enqueue(struct operation op, CUstream stream) {
    struct CUgraph_st *const graph = (uintptr_t)stream > 2 ? stream->graph : NULL;
    CUresult result = 0;
    pthread_mutex_lock(&lock);
    if (queued == sizeof queue / sizeof *queue || (graph && graph->count == MAX_NODES))
        result = 999;
    else if (graph)
        graph->nodes[graph->count++] = op;
    else
        queue[queued++] = op;
    if (!result && !graph && mode("serial")) result = run_stream();
    pthread_mutex_unlock(&lock);
    return result;
}

/* A copy waits for the stream, which is one that the default stream waits for. */
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    TRY(cuMemcpyHtoD_v2);
    pthread_mutex_lock(&lock);
    const CUresult error = run_stream();
    uploads++;
    cached = 0;
    if (!error) memcpy((void *)(uintptr_t)to, from, bytes);
    pthread_mutex_unlock(&lock);
    return error;
}
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    TRY(cuMemcpyDtoH_v2);
    pthread_mutex_lock(&lock);
    const CUresult error = run_stream();
    finish_escaped(true);
    if (!error) memcpy(to, (const void *)(uintptr_t)from, bytes);
    pthread_mutex_unlock(&lock);
    return error;
}
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
    TRY(cuMemsetD8Async);
    return enqueue((struct operation){.kind = MEMSET, .address = address, .value = value, .bytes = count}, stream);
}
/* Of values whose bytes are not alike at once. */
CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, CUstream stream) {
    TRY(cuMemsetD32Async);
    (void)stream;
    for (size_t i = 0; i < count; i++) ((unsigned *)(uintptr_t)address)[i] = value;
    return 0;
}

/* The default stream waits for those with the flag 0 alone, and they for it: uploads go through it. */
CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    TRY(cuStreamCreate);
    if (flags != CU_STREAM_DEFAULT && flags != CU_STREAM_NON_BLOCKING) return 1; /* CUDA_ERROR_INVALID_VALUE */
    pthread_mutex_lock(&lock);
    const int full = n_streams == MAX_STREAMS;
    if (!full) {
        *stream = calloc(1, sizeof **stream);
        **stream = (struct CUstream_st){.context = current(), .id = stream_ids++};
        streams[n_streams++] = *stream;
        made.streams++;
    }
    pthread_mutex_unlock(&lock);
    return full ? 2 : 0;
}
CUresult cuStreamDestroy_v2(CUstream stream) {
    TRY(cuStreamDestroy_v2);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_streams; i++)
        if (streams[i] == stream) {
            streams[i] = streams[--n_streams];
            free(stream);
            made.streams--;
            break;
        }
    pthread_mutex_unlock(&lock);
    return 0;
}
CUresult cuStreamSynchronize(CUstream stream) {
    TRY(cuStreamSynchronize);
    if (unsafe() || ((uintptr_t)stream > 2 && stream->graph)) return 900; /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
    pthread_mutex_lock(&lock);
    log_kept.synchronisations++;
    const CUresult result = run_stream();
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuCtxSynchronize(void) {
    TRY(cuCtxSynchronize);
    if (unsafe()) return 900;
    pthread_mutex_lock(&lock);
    const CUresult result = run_stream();
    if (escaped && now_ns < escaped_until_ns) pass_time(escaped_until_ns - now_ns);
    finish_escaped(false);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int how) {
    (void)how;
    pthread_mutex_lock(&lock);
    stream->graph = calloc(1, sizeof *stream->graph);
    n_capturing++;
    pthread_mutex_unlock(&lock);
    return 0;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    pthread_mutex_lock(&lock);
    *graph = stream->graph;
    stream->graph = NULL;
    n_capturing--;
    pthread_mutex_unlock(&lock);
    return 0;
}
/* The graph is what is launched. */
CUresult cuGraphInstantiateWithFlags(CUgraphExec *launched, CUgraph graph, unsigned long long flags) {
    return (void)flags, *launched = (CUgraphExec)graph, 0;
}
CUresult cuGraphLaunch(CUgraphExec launched, CUstream stream) {
    const struct CUgraph_st *const graph = (const struct CUgraph_st *)launched;
    CUresult result = 0;
    for (int i = 0; i < graph->count && !result; i++) result = enqueue(graph->nodes[i], stream);
    return result;
}
CUresult cuGraphExecDestroy(CUgraphExec launched) {
    return (void)launched, 0;
}
CUresult cuGraphDestroy(CUgraph graph) {
    return free(graph), 0;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    TRY(cuEventCreate);
    (void)flags;
    return made.events++, *event = calloc(1, sizeof **event), 0;
}
CUresult cuEventDestroy_v2(CUevent event) {
    TRY(cuEventDestroy_v2);
    return free(event), made.events--, 0;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
    TRY(cuEventRecord);
    event->pending = 1;
    return enqueue((struct operation){.kind = RECORD, .event = event}, stream);
}
CUresult cuEventQuery(CUevent event) {
    TRY(cuEventQuery);
    if (!event->pending) return faulted ? 700 : 0;
    const CUresult error = run_one();
    return error ? error : event->pending ? 600 : 0; /* CUDA_ERROR_NOT_READY */
}
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    TRY(cuEventElapsedTime);
    if (!start->pending && !start->ns) return 400;  /* CUDA_ERROR_INVALID_HANDLE: nobody has recorded it */
    if (start->pending || end->pending) return 600; /* CUDA_ERROR_NOT_READY */
    *milliseconds = (float)((double)(end->ns - start->ns) / (mode("timer") ? 1e8 : 1e6));
    return 0;
}

/* A kernel of a backward pass: it is written down. */
static CUresult keep_backward(CUfunction function, void **parameters, CUstream stream, CUcontext context) {
    const enum dtype dtype = strstr(function->name, "L5dtype15E") ? BF16 : FP16;
    struct fake_launch launch = {.symbol = function->name,
                                 .stream = stream,
                                 .device = context->device,
                                 .captured = (uintptr_t)stream > 2 && stream->graph,
                                 .backward = *(backward_args *)parameters[0]};
    launch.inputs = launch.backward.attention;
    launch.inputs.O = (void *)(uintptr_t)launch.backward.dO;
    if (strstr(function->name, "11tensor_maps")) take_maps(&launch.inputs, parameters[1], dtype);
    pthread_mutex_lock(&lock);
    log_kept.launches[log_kept.n_launches++ % FAKE_LAUNCHES] = launch;
    pthread_mutex_unlock(&lock);
    return 0;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters,
                        void **extra) {
    TRY(cuLaunchKernel);
    struct operation op = {
        .kind = LAUNCH, .function = function, .grid = {grid_x, grid_y, grid_z}, .threads = block_x * block_y * block_z};
    const CUcontext context = (uintptr_t)stream > 2 ? stream->context : current();
    (void)extra;
    if (!context) return 201;                     /* CUDA_ERROR_INVALID_CONTEXT */
    if (context != function->context) return 400; /* CUDA_ERROR_INVALID_HANDLE */
    if (!grid_x || !grid_y || !grid_z || !block_x || block_x > 1024 || shared_bytes > (unsigned)function->shared_bytes)
        return 1; /* CUDA_ERROR_INVALID_VALUE */
    if (strstr(function->name, "13backward_args")) return keep_backward(function, parameters, stream, context);
    if (strstr(function->name, "flash_forward")) {
        const enum dtype dtype = strstr(function->name, "L5dtype15E") ? BF16 : FP16;
        const bool maps = strstr(function->name, "11tensor_maps") != NULL;
        if (is_general(function)) {
            op.general = serves(function) ? *(serving_args *)parameters[0]
                                          : serving_of_one_length(*(attention_args *)parameters[0]);
            if (maps) take_maps(&op.general.attention, parameters[1], dtype);
        } else {
            op.parameters.forward = maps ? args_of_maps(parameters[1], dtype) : *(forward_args *)parameters[0];
        }
        if (work_of(&op) > MOST_WORK && !mode("idle")) {
            fprintf(stderr,
                    "the made-up driver computes on one core: %.0f billion multiplications would take minutes; "
                    "take a smaller --seq, --heads or --batch\n",
                    work_of(&op) / 1e9);
            return 1; /* CUDA_ERROR_INVALID_VALUE */
        }
    } else if (strstr(function->name, "wgmma_peak")) {
        op.parameters.peak.out = *(uint64_t *)parameters[0];
        op.parameters.peak.iterations = *(int *)parameters[2];
        op.parameters.peak.beside = *(int *)parameters[3];
    } else if (strstr(function->name, "mma_peak")) {
        op.parameters.peak.out = *(uint64_t *)parameters[0];
        op.parameters.peak.iterations = *(int *)parameters[1];
    } else if (strstr(function->name, "pipes")) {
        if (!strstr(function->name, "empty")) op.parameters.peak.out = *(uint64_t *)parameters[0];
        if (!strcmp(function->name, "pipes")) op.parameters.peak.job = *(pipe_job *)parameters[2];
    } else {
        op.parameters.words[0] = *(uint64_t *)parameters[0];
        op.parameters.words[1] = *(uint64_t *)parameters[1];
    }
    const CUresult result = enqueue(op, stream);
    if (!result && is_general(function)) {
        pthread_mutex_lock(&lock);
        log_kept.launches[log_kept.n_launches++ % FAKE_LAUNCHES] =
            (struct fake_launch){.symbol = function->name,
                                 .stream = stream,
                                 .device = context->device,
                                 .captured = (uintptr_t)stream > 2 && stream->graph,
                                 .tickets = op.general.attention.tickets};
        pthread_mutex_unlock(&lock);
    }
    return result;
}
