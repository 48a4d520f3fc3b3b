/* faulty_cuda.c - the emulated libcuda.so.1 with a clock of its own, more GPUs, and the faults that a test asks for.
 *
 *     cc -shared -fPIC -I. -o DIR/libcuda.so.1 harness/tests/faulty_cuda.c -lm
 *     FAKE_CUDA=cc=75 LD_LIBRARY_PATH=DIR LD_PRELOAD=DIR/libcuda.so.1 bin/v01
 *
 * Calls go to the emulated driver, which runs every launch and memset at once. A stream here only passes time: its
 * operations wait until the host synchronizes or copies, and each of them takes a time that is written below. A host
 * that asks for an event passes the time of one operation, and one that works (fake_host_works) the time of those that
 * fit. LD_PRELOAD makes the host read that clock too. The kernels of harness/device/ are not run; their results follow
 * from the clock. Once events are recorded, a launch that repeats the one before it is not run again. FAKE_CUDA holds
 * words separated by commas; a LIST is numbers separated by colons, one for each launch of flash_forward, then from the
 * first again:
 *     hidden         there are GPUs, but none that the process may use
 *     no_device      cuInit finds no GPU                 broken     cuInit fails
 *     cc=86          compute capability 8.6 (default 90) smem=N     shared memory of a block
 *     devices=N      GPUs (default 1, at most 8)         old=N      the first N of them have compute capability 7.5
 *     sms=N          multiprocessors (default 4)         l2=N       bytes of the L2 (default 1 MiB)
 *     memory=N       bytes of GPU memory                 host_kb=N  kilobytes that the host has; 0: unknown
 *     package        the kernel module reports 570.86.15 no_package the kernel module reports nothing
 *     fails=NAME:N   the call of the driver's function NAME after N others of it fails
 *     fault          launches fail with an illegal address
 *     left           report on stderr at the end what the host did not give back
 *     log            report on stderr what the stream runs, in its order
 *     times=LIST     ms of flash_forward (default 20); a fifth less where the L2 holds its tensors
 *     clocks=LIST    MHz of the SMs (default 1500)       uneven=P   each SM is slower than the one before by P percent
 *     tires          flash_forward takes a quarter longer when 60 ms have passed since the GPU last rested for 0.5 s
 *     blind          no SM writes its stamps             missed     all SMs but the first miss one of two stamps
 *     half_blind     no SM writes the stamps of every second pair
 *     serial         launches return when they have ended, as under a profiler
 * Wrong results of flash_forward. The output is what the host last filled with POISON_BYTE, O and then log-sum-exp:
 *     idle           it writes nothing                   late       only the first launch writes
 *     off            one element is off by 1 percent     early      ... in the first launch alone
 *     lse_off        a value of log-sum-exp is off       lse_late   only the first launch writes log-sum-exp
 *     stray          element 128 of O is 0               decay      correct at first, wrong from the third launch on
 * What a kernel might do to seem faster than it is; test_cheats.py has a test of each:
 *     part           the second half of the heads is left out
 *     replay         later launches write what the first one computed, whatever their inputs are
 *     escapes        launches end after 1 us, and their work goes on outside the stream
 *     escapes_later  ... after the first launch
 *     lazy           launches end at once, and their work is done when the host reads the output
 *     timer          events report a hundredth of the time
 *     coarse         V is rounded to three bits of mantissa, as in e4m3
 *     aliased        O is written over Q
 *     clobbers       Q is overwritten with O after the launch
 *     stale          memory holds a correct output from before; a launch writes only if nobody has filled O since
 *     rows=LIST      all other rows of O are zeros; row 0 is the first of the first head, and seq that of the next head
 *     persists       tensors become lines that persist in the L2, in a part that is set aside for them
 *     no_persisting  the GPU has no such lines
 */
#include "harness/tests/faulty_cuda.h"
#include "common/serving.h"
#include "harness/backend.h"
#include "harness/device/pipes.h"
#include "harness/device/stamp.h"
#include "harness/device/wgmma_peak.h"
#include "harness/half.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef EMULATED
#define EMULATED "lib/emulated/libcuda.so.1" /* from the folder of the project */
#endif

struct CUmod_st {
    CUmodule real; /* NULL for the image "made up": its kernels are those of harness/device/ */
    CUcontext context;
    CUfunction functions;
};

struct CUfunc_st {
    CUfunction real, next;
    CUcontext context;
    char name[400];
    int loaded; /* the first launch loads it */
};

/* The time at which the stream came to an event, 0 until it is recorded. */
struct CUevent_st {
    uint64_t ns;
    int pending;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double now_ns = 1000, now_cycles = 1000, rested_at_ns;

/* ---- what the test asks for ---- */

static const char *value_after(const char *word) {
    const char *text = getenv("FAKE_CUDA"), *at = text ? strstr(text, word) : NULL;
    return at ? at + strlen(word) : NULL;
}

/* True if FAKE_CUDA contains a word. */
static int mode(const char *word) {
    const char *text = getenv("FAKE_CUDA");
    const size_t length = strlen(word);
    for (const char *at = text; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, word, length) && (at[length] == ',' || !at[length])) return 1;
    return 0;
}

/* The number after "word=", else `initial`. */
static long long setting(const char *word, long long initial) {
    const char *const at = value_after(word);
    return at ? strtoll(at, NULL, 10) : initial;
}

static int launches; /* of flash_forward whose time has passed */

/* The number of a LIST for the launch of flash_forward that comes next. */
static double next_of(const char *word, double initial) {
    double numbers[100];
    int count = 0;
    char *end = (char *)(uintptr_t)value_after(word);
    if (!end) return initial;
    do numbers[count++] = strtod(end + (*end == ':'), &end);
    while (*end == ':' && count < 100);
    return numbers[launches % count];
}

/* True if FAKE_CUDA makes this call fail. Another FAKE_CUDA counts from 0. */
static int fails(const char *name) {
    static long long calls;
    static char counted[200];
    const char *const text = getenv("FAKE_CUDA"), *const at = value_after("fails=");
    const size_t length = strlen(name);
    if (!at || strncmp(at, name, length) != 0 || at[length] != ':') return 0;
    if (strcmp(counted, text) != 0) {
        snprintf(counted, sizeof counted, "%s", text);
        calls = 0;
    }
    return calls++ == strtoll(at + length + 1, NULL, 10);
}

#define TRY(name)                                                                                                      \
    do {                                                                                                               \
        if (fails(#name)) return 999;                                                                                  \
    } while (0)

/* ---- the emulated driver ---- */

static uintptr_t address_of(const char *name) {
    static void *emulated;
    /* Preloaded, these functions would replace those that the emulated driver calls in itself. */
    if (!emulated) emulated = dlopen(EMULATED, RTLD_NOW | RTLD_LOCAL | (getenv("LD_PRELOAD") ? RTLD_DEEPBIND : 0));
    const uintptr_t address = emulated ? (uintptr_t)dlsym(emulated, name) : 0;
    if (!address) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    return address;
}
#define REAL(name) ((__typeof__(&name))address_of(#name))

/* Objects that were created and not yet released. */
static struct {
    int contexts, modules, streams, events, pinned;
} made;
static size_t used_bytes;
static struct fake_log log_kept;
static int n_capturing;
static _Thread_local int capture_mode; /* 0: global */

struct fake_log *fake_log(void);
struct fake_log *fake_log(void) {
    log_kept.held = made.contexts + made.modules + made.streams;
    log_kept.held_bytes = (int64_t)used_bytes;
    return &log_kept;
}

static void __attribute__((destructor)) say_what_is_left(void) {
    if (mode("left"))
        fprintf(stderr, "left: %d contexts, %d modules, %d streams, %d events, %d pinned, %zu bytes\n", made.contexts,
                made.modules, made.streams, made.events, made.pinned, used_bytes);
}

/* Calls that fail while a stream is being captured, unless the thread states that it takes no part in it. */
static int unsafe(void) {
    return n_capturing && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
}

/* Functions that only count their calls: arguments are integers and addresses, at most 12. */
#define FORWARD(name)                                                                                                  \
    CUresult name(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h,      \
                  uint64_t i, uint64_t j, uint64_t k, uint64_t l) {                                                    \
        TRY(name);                                                                                                     \
        return REAL(name)(a, b, c, d, e, f, g, h, i, j, k, l);                                                         \
    }
FORWARD(cuGetErrorName)
FORWARD(cuGetErrorString)
FORWARD(cuDriverGetVersion)
FORWARD(cuCtxSetCurrent)
FORWARD(cuCtxGetCurrent)
FORWARD(cuCtxPushCurrent_v2)
FORWARD(cuCtxPopCurrent_v2)
FORWARD(cuCtxGetId)
FORWARD(cuMemHostGetDevicePointer_v2)
FORWARD(cuMemsetD32Async)
FORWARD(cuStreamIsCapturing)
FORWARD(cuStreamGetCaptureInfo_v2)
FORWARD(cuTensorMapEncodeTiled)
FORWARD(cuGraphInstantiateWithFlags)
FORWARD(cuGraphLaunch)
FORWARD(cuGraphExecDestroy)
FORWARD(cuGraphDestroy)

/* ---- the host: its clock is the GPU's, and its memory is what the test says ---- */

static void pass_time(double ns) {
    now_ns += ns;
    now_cycles += ns * next_of("clocks=", 1500) / 1e3;
}

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
    FILE *(*const real)(const char *, const char *) =
        (FILE * (*)(const char *, const char *))(uintptr_t)dlsym(RTLD_NEXT, "fopen");
    if (!strcmp(name, "/sys/module/nvidia/version") && (mode("package") || mode("no_package")))
        snprintf(text, sizeof text, mode("package") ? "570.86.15\n" : "\n");
    else if (!strcmp(name, "/proc/meminfo") && setting("host_kb=", 0))
        snprintf(text, sizeof text, "MemTotal:  99999999 kB\nMemAvailable:  %lld kB\n", setting("host_kb=", 0));
    else if (!strcmp(name, "/proc/meminfo") && value_after("host_kb="))
        snprintf(text, sizeof text, "MemTotal:  99999999 kB\n");
    else
        return real(name, how);
    return fmemopen(text, strlen(text), "r");
}

/* ---- the GPUs ---- */

enum { MAX_DEVICES = 8 };
static CUcontext contexts[MAX_DEVICES]; /* the primary ones; the emulated driver has one GPU, and others are made */

CUresult cuInit(unsigned flags) {
    TRY(cuInit);
    return mode("no_device") ? 100 : mode("broken") ? 999 : REAL(cuInit)(flags);
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
    return snprintf(name, (size_t)length, "Fake GPU"), 0;
}
CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
    TRY(cuDeviceGetPCIBusId);
    (void)device;
    return snprintf(text, (size_t)length, "0000:1b:00.0"), 0;
}
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    TRY(cuDeviceGetAttribute);
    const int capability = device < (int)setting("old=", 0) ? 75 : (int)setting("cc=", 90);
    const struct {
        int attribute;
        long long value;
    } all[] = {{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, capability / 10},
               {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, capability % 10},
               {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, setting("sms=", 4)},
               {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, setting("l2=", 1 << 20)},
               {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1500000},
               {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, setting("smem=", 232448)}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].attribute == attribute) return *value = (int)all[i].value, 0;
    return 1;
}

static size_t memory_bytes(void) {
    return (size_t)setting("memory=", 1LL << 32);
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    TRY(cuDeviceTotalMem_v2);
    (void)device;
    return *bytes = memory_bytes(), 0;
}
CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    TRY(cuMemGetInfo_v2);
    *total = memory_bytes();
    return *available = *total - used_bytes, 0;
}

static int device_of(CUcontext context) {
    for (int i = 0; i < MAX_DEVICES; i++)
        if (contexts[i] && contexts[i] == context) return i;
    return 0;
}

static CUcontext current(void) {
    CUcontext context = NULL;
    ((CUresult (*)(CUcontext *))address_of("cuCtxGetCurrent"))(&context);
    return context;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    TRY(cuDevicePrimaryCtxRetain);
    CUresult status = 0;
    CUcontext popped;
    made.contexts++;
    if (!device)
        status = REAL(cuDevicePrimaryCtxRetain)(&contexts[0], 0);
    else if (!contexts[device]) {
        status = ((CUresult (*)(CUcontext *, unsigned, CUdevice))address_of("cuCtxCreate_v2"))(&contexts[device], 0, 0);
        ((CUresult (*)(CUcontext *))address_of("cuCtxPopCurrent_v2"))(&popped);
    }
    return *context = contexts[device], status;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    TRY(cuDevicePrimaryCtxRelease_v2);
    return made.contexts--, device ? 0 : REAL(cuDevicePrimaryCtxRelease_v2)(0);
}
CUresult cuCtxGetDevice(CUdevice *device) {
    TRY(cuCtxGetDevice);
    return current() ? (*device = device_of(current()), 0) : 201; /* CUDA_ERROR_INVALID_CONTEXT */
}

/* ---- streams ---- */

enum { MAX_STREAMS = 8192 };
static struct {
    CUstream stream;
    CUcontext context;
} streams[MAX_STREAMS];
static int n_streams;

static CUcontext context_of(CUstream stream) {
    for (int i = 0; i < n_streams; i++)
        if (streams[i].stream == stream) return streams[i].context;
    return NULL;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    TRY(cuStreamCreate);
    pthread_mutex_lock(&lock);
    const CUresult status = n_streams == MAX_STREAMS ? 2 : REAL(cuStreamCreate)(stream, flags);
    if (!status) {
        streams[n_streams].stream = *stream;
        streams[n_streams++].context = current();
        made.streams++;
    }
    pthread_mutex_unlock(&lock);
    return status;
}
CUresult cuStreamDestroy_v2(CUstream stream) {
    TRY(cuStreamDestroy_v2);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_streams; i++)
        if (streams[i].stream == stream) {
            streams[i] = streams[--n_streams];
            made.streams--;
            break;
        }
    pthread_mutex_unlock(&lock);
    return REAL(cuStreamDestroy_v2)(stream);
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    TRY(cuStreamGetCtx);
    pthread_mutex_lock(&lock);
    *context = context_of(stream);
    pthread_mutex_unlock(&lock);
    return *context ? 0 : 400; /* CUDA_ERROR_INVALID_HANDLE */
}
CUresult cuStreamGetId(CUstream stream, uint64_t *id) {
    TRY(cuStreamGetId);
    const CUresult status = REAL(cuStreamGetId)(stream, id);
    *id = (uintptr_t)stream <= 2 ? 8 * (uint64_t)device_of(current()) + (uintptr_t)stream : 1000 + *id;
    return status;
}
CUresult cuThreadExchangeStreamCaptureMode(int *how) {
    TRY(cuThreadExchangeStreamCaptureMode);
    const int before = capture_mode;
    capture_mode = *how;
    return *how = before, 0;
}
CUresult cuStreamBeginCapture_v2(CUstream stream, int how) {
    return n_capturing++, REAL(cuStreamBeginCapture_v2)(stream, how);
}
CUresult cuStreamEndCapture(CUstream stream, void **graph) {
    return n_capturing--, REAL(cuStreamEndCapture)(stream, graph);
}
static int is_captured(CUstream stream) {
    int status = 0;
    ((CUresult (*)(CUstream, int *))address_of("cuStreamIsCapturing"))(stream, &status);
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* ---- modules ---- */

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    TRY(cuModuleLoadData);
    if (unsafe()) return 900; /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
    CUmodule real = NULL;
    CUresult status = strcmp(image, "made up") ? REAL(cuModuleLoadData)(&real, image) : 0;
    if (status) return status;
    pthread_mutex_lock(&lock);
    made.modules++;
    log_kept.modules++;
    pthread_mutex_unlock(&lock);
    *module = calloc(1, sizeof **module);
    **module = (struct CUmod_st){real, current(), NULL};
    return 0;
}
CUresult cuModuleUnload(CUmodule module) {
    TRY(cuModuleUnload);
    const CUresult status = module->real ? REAL(cuModuleUnload)(module->real) : 0;
    for (CUfunction function = module->functions, next; function; function = next) {
        next = function->next;
        free(function);
    }
    return free(module), made.modules--, status;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    TRY(cuModuleGetFunction);
    CUfunction real = NULL;
    const CUresult status = module->real ? REAL(cuModuleGetFunction)(&real, module->real, name) : 0;
    if (status) return status;
    *function = calloc(1, sizeof **function);
    **function = (struct CUfunc_st){.real = real, .next = module->functions, .context = module->context};
    snprintf((*function)->name, sizeof(*function)->name, "%s", name);
    return module->functions = *function, 0;
}
CUresult cuFuncLoad(CUfunction function) {
    TRY(cuFuncLoad);
    return function->real ? REAL(cuFuncLoad)(function->real) : 0;
}
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    TRY(cuFuncSetAttribute);
    return function->real ? REAL(cuFuncSetAttribute)(function->real, attribute, value) : 0;
}

/* ---- memory ---- */

enum { MAX_BLOCKS = 4096 };
static struct {
    CUdeviceptr address;
    size_t bytes;
    int device;
} blocks[MAX_BLOCKS];
static int n_blocks;
static CUresult run_stream(void);

static CUresult to_device(CUdeviceptr to, const void *from, size_t bytes) {
    return ((CUresult (*)(CUdeviceptr, const void *, size_t))address_of("cuMemcpyHtoD_v2"))(to, from, bytes);
}
static CUresult to_host(void *to, CUdeviceptr from, size_t bytes) {
    return ((CUresult (*)(void *, CUdeviceptr, size_t))address_of("cuMemcpyDtoH_v2"))(to, from, bytes);
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    TRY(cuMemAlloc_v2);
    if (unsafe()) return 900;
    pthread_mutex_lock(&lock);
    log_kept.allocations++;
    const bool fits = bytes <= memory_bytes() - used_bytes && n_blocks < MAX_BLOCKS;
    const CUresult status = fits ? REAL(cuMemAlloc_v2)(address, bytes) : 2;
    if (!status) {
        blocks[n_blocks].address = *address;
        blocks[n_blocks].device = device_of(current());
        used_bytes += blocks[n_blocks++].bytes = bytes;
    }
    pthread_mutex_unlock(&lock);
    return status;
}
static void forget_output(CUdeviceptr address);
CUresult cuMemFree_v2(CUdeviceptr address) {
    TRY(cuMemFree_v2);
    pthread_mutex_lock(&lock);
    run_stream();
    forget_output(address);
    for (int i = 0; i < n_blocks; i++)
        if (blocks[i].address == address) {
            used_bytes -= blocks[i].bytes;
            blocks[i] = blocks[--n_blocks];
            break;
        }
    pthread_mutex_unlock(&lock);
    return REAL(cuMemFree_v2)(address);
}
CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr address) {
    TRY(cuPointerGetAttributes);
    const CUresult status = REAL(cuPointerGetAttributes)(count, attributes, values, address);
    pthread_mutex_lock(&lock);
    for (int b = 0; b < n_blocks; b++)
        for (unsigned i = 0; i < count && address - blocks[b].address < blocks[b].bytes; i++)
            if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *(int *)values[i] = blocks[b].device;
    pthread_mutex_unlock(&lock);
    return status;
}
CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    TRY(cuMemHostAlloc);
    return made.pinned++, REAL(cuMemHostAlloc)(memory, bytes, flags);
}
CUresult cuMemFreeHost(void *memory) {
    TRY(cuMemFreeHost);
    return made.pinned--, REAL(cuMemFreeHost)(memory);
}

/* ---- what launches write ---- */

/* O and log-sum-exp, or gradients: what was filled with POISON_BYTE. */
enum { MAX_OUTPUTS = 8, MAX_OUTPUT_BYTES = 1 << 24 };
static struct output_memory {
    CUdeviceptr address;
    size_t bytes;
} outputs[MAX_OUTPUTS];
static int n_outputs;
static int changes;             /* of inputs and outputs, by the host */
static CUdeviceptr last_filled; /* what the last memset wrote */
static int events_recorded;     /* launches are timed */
static int enqueued;            /* launches of flash_forward */

static void forget_output(CUdeviceptr address) {
    for (int i = 0; i < n_outputs; i++)
        if (outputs[i].address == address) {
            memmove(outputs + i, outputs + i + 1, (size_t)(--n_outputs - i) * sizeof *outputs);
            changes++;
            return;
        }
}

static void note_fill(CUdeviceptr address, unsigned char value, size_t bytes) {
    last_filled = address;
    if (bytes >= MAX_OUTPUT_BYTES) return; /* the buffer that flushes the L2 */
    forget_output(address);
    if (value == POISON_BYTE && n_outputs < MAX_OUTPUTS) outputs[n_outputs++] = (struct output_memory){address, bytes};
    changes++;
}

static size_t output_bytes(void) {
    size_t bytes = 0;
    for (int i = 0; i < n_outputs; i++) bytes += outputs[i].bytes;
    return bytes;
}

/* All outputs in one block of the host, owned; and back. */
static uint8_t *read_outputs(void) {
    uint8_t *const copy = malloc(output_bytes() + 1), *at = copy;
    for (int i = 0; i < n_outputs; at += outputs[i++].bytes) to_host(at, outputs[i].address, outputs[i].bytes);
    return copy;
}
static void write_outputs(const uint8_t *copy) {
    for (int i = 0; i < n_outputs; copy += outputs[i++].bytes) to_device(outputs[i].address, copy, outputs[i].bytes);
}

static enum dtype dtype_of(const struct CUfunc_st *function) {
    return strstr(function->name, "L5dtype15E") ? BF16 : FP16;
}

static void spoil(uint16_t *elements, size_t count, double error, enum dtype dtype) {
    for (size_t i = 0; i < count; i++)
        elements[i] = half_from_float((float)(half_to_float(elements[i], dtype) + error), dtype);
}

/* Zeros in all rows but those of FAKE_CUDA's rows=LIST. */
static void leave_rows_out(uint16_t *O, const forward_args *args) {
    for (int i = 0; value_after("rows=") && i < args->heads * args->seq; i++) {
        char *end = (char *)(uintptr_t)value_after("rows=");
        bool kept = false;
        do kept |= strtol(end + (*end == ':'), &end, 10) == i;
        while (*end == ':');
        if (!kept) memset(O + i / args->seq * args->head_stride + i % args->seq * args->seq_stride, 0, 256);
    }
}

/* The bytes of a tensor as large as O. */
static void round_V(const forward_args *args, enum dtype dtype, uint16_t *V, bool back) {
    const size_t count = outputs[0].bytes / 2;
    static uint16_t rounded[MAX_OUTPUT_BYTES / 2];
    if (!back) to_host(V, (CUdeviceptr)(uintptr_t)args->V, 2 * count);
    for (size_t i = 0; i < count; i++) {
        int exponent;
        const double mantissa = frexp(half_to_float(V[i], dtype), &exponent);
        rounded[i] = back ? V[i] : half_from_float((float)ldexp(rint(16 * mantissa), exponent - 4), dtype);
    }
    to_device((CUdeviceptr)(uintptr_t)args->V, rounded, 2 * count);
}

/* Wrong results that FAKE_CUDA asks for, of a launch that wrote correct ones. */
static void spoil_outputs(const struct CUfunc_st *function, const forward_args *args) {
    const enum dtype dtype = dtype_of(function);
    uint8_t *const copy = read_outputs();
    uint16_t *const O = (uint16_t *)copy;
    if (mode("off") || (mode("early") && enqueued == 1)) spoil(O + 5, 1, 0.01, dtype);
    if (mode("decay") && enqueued > 2) spoil(O, outputs[0].bytes / 2, 1, dtype);
    if (mode("stray")) O[128] = 0;
    if (n_outputs > 1 && mode("lse_off")) ((float *)(copy + outputs[0].bytes))[1] += 0.01f;
    if (n_outputs > 1 && mode("lse_late") && enqueued > 1)
        memset(copy + outputs[0].bytes, POISON_BYTE, outputs[1].bytes);
    leave_rows_out(O, args);
    write_outputs(copy);
    if (mode("clobbers")) to_device((CUdeviceptr)(uintptr_t)args->Q, copy, outputs[0].bytes);
    free(copy);
}

typedef CUresult (*launch_function)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                    CUstream, void **, void **);

/* Launch on the emulated driver, unless nothing would be written that is not there already. */
static CUresult launch_now(CUfunction function, const unsigned *grid, unsigned threads, unsigned shared_bytes,
                           CUstream stream, void **parameters) {
    static CUfunction last;
    static int last_changes;
    static uint8_t *first_outputs;
    const bool again = events_recorded && function == last && changes == last_changes && !mode("decay");
    const bool idle = mode("idle") || mode("fault") || (mode("late") && enqueued > 1) ||
                      (mode("stale") && n_outputs && outputs[n_outputs - 1].address == last_filled);
    const launch_function real = (launch_function)address_of("cuLaunchKernel");
    forward_args args = {0};
    if (idle || (again && !mode("escapes_later")) || (events_recorded && !n_outputs)) return 0;
    if (mode("replay") && first_outputs) return write_outputs(first_outputs), 0;
    if (strstr(function->name, "forward_args")) memcpy(&args, parameters[0], sizeof args);
    void *const instead[] = {&args, parameters[strstr(function->name, "tensor_maps") ? 1 : 0]};
    uint16_t *const V = mode("coarse") ? malloc(outputs[0].bytes) : NULL;
    if (V) round_V(&args, dtype_of(function), V, false);
    if (mode("aliased")) args.O = (void *)(uintptr_t)args.Q;
    const CUresult status = real(function->real, grid[0], mode("part") ? grid[1] / 2 : grid[1], grid[2], threads, 1, 1,
                                 shared_bytes, stream, args.seq ? (void **)(uintptr_t)instead : parameters, NULL);
    if (V) round_V(&args, dtype_of(function), V, true);
    free(V);
    if (n_outputs && !status) spoil_outputs(function, &args);
    if (mode("replay")) first_outputs = read_outputs();
    last = function;
    last_changes = changes;
    return status;
}

/* ---- the stream, which passes time ---- */

enum kind { MEMSET, RECORD, LAUNCH };

struct operation {
    enum kind kind;
    CUevent event;
    unsigned char value;
    size_t bytes;
    CUfunction function;
    unsigned grid[3], threads;
    uint8_t *escaped; /* owned: what a launch writes after its end */
    union {
        uint64_t words[2];
        struct {
            uint64_t out;
            int iterations, companion;
            pipe_job job;
        } peak;   /* of harness/device/ */
    } parameters; /* as they were at the launch */
};
static struct operation queue[1000]; /* of all streams: one after the other is an order that they may have */
static int queued;
static int faulted;               /* every later call fails too */
static int cached;                /* the tensors are in the L2 */
static int persisting, set_aside; /* they persist, and they have a part of the L2 */
static uint8_t *escaped;
static double escaped_until_ns;

CUresult cuCtxSetLimit(int limit, size_t value) {
    TRY(cuCtxSetLimit);
    if (mode("no_persisting")) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (mode("log")) fprintf(stderr, "set_aside %zu\n", value);
    return set_aside = value > 0, REAL(cuCtxSetLimit)(limit, value);
}
CUresult cuCtxResetPersistingL2Cache(void) {
    TRY(cuCtxResetPersistingL2Cache);
    if (mode("no_persisting")) return CUDA_ERROR_NOT_SUPPORTED;
    if (mode("log")) fprintf(stderr, "reset_persisting\n");
    return persisting = 0;
}

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
                                  (uint64_t)now_ns};
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

/* n / 2 cycles for each m64nNk16 of an SM, an eighth more with companion instructions, of which one takes 9 cycles. */
static void wgmma_peak(const struct operation *op) {
    const int companion = op->parameters.peak.companion;
    const uint64_t n = (uint64_t)strtol(strstr(op->function->name, "_n") + 2, NULL, 10);
    const uint64_t warpgroups = op->threads / 128 - (companion != 0);
    wgmma_result result = {.wgmma = (uint64_t)op->parameters.peak.iterations * WGMMA_PER_ITERATION};
    result.cycles = result.wgmma * warpgroups * n / 2 * (companion ? 9 : 8) / 8;
    result.ns = result.cycles * 2 / 3;
    if (companion) result.others = 1000, result.own_cycles = 9000;
    for (unsigned i = 0; i < op->grid[0]; i++)
        to_device(op->parameters.peak.out + i * sizeof result, &result, sizeof result);
    pass_time((double)result.ns);
}

/* Two cycles for each operation, nine for its companions, 1000 for each copy and load; no time for the rest. A product
 * of pipes_e4m3 is an operation. Warps of a scheduler are done one after the other. */
static void pipes(const struct operation *op) {
    if (strstr(op->function->name, "link") || strstr(op->function->name, "empty")) return;
    const pipe_job job = op->parameters.peak.job;
    const bool product = strstr(op->function->name, "_n") != NULL;
    const bool alone = !product && strstr(op->function->name, "_");
    const uint64_t count = alone || product ? 100 : (uint64_t)job.rounds * PIPE_ROUND;
    pipe_result result = {.cycles = {count * (alone ? 1000 : 2)}, .count = {count}};
    result.ns = result.cycles[0] * 2 / 3;
    if (!alone && !product && job.companion) result.count[1] = 1000, result.cycles[1] = 9000;
    for (int warp = 0; warp < PIPE_MOST_WARPS; warp++) result.ends[warp] = (uint64_t)(warp / 4 + 1) * result.cycles[0];
    for (unsigned i = 0; i < op->grid[0]; i++)
        to_device(op->parameters.peak.out + i * sizeof result, &result, sizeof result);
    pass_time((double)result.ns);
}

/* Write what a launch left to do when its time is over, or when the host reads. */
static void finish_escaped(bool host_reads) {
    if (!escaped || (mode("lazy") ? !host_reads : now_ns < escaped_until_ns)) return;
    write_outputs(escaped);
    free(escaped);
    escaped = NULL;
}

static void flash_forward(const struct operation *op) {
    const bool tired = mode("tires") && now_ns - rested_at_ns > 6e7;
    const double ns = 1e6 * next_of("times=", 20) * (cached ? 0.8 : 1) * (tired ? 1.25 : 1);
    pass_time(!op->escaped ? ns : mode("lazy") ? 0 : 1e3);
    cached = 1;
    if (mode("persists")) persisting = set_aside = 1;
    launches++;
    faulted = mode("fault");
    if (!op->escaped) return;
    free(escaped);
    escaped = op->escaped;
    escaped_until_ns = now_ns + ns;
}

/* The longer name first. */
static const struct kernel {
    const char *name;
    void (*run)(const struct operation *op);
} kernels[] = {{"stamp_clocks", stamp_clocks},
               {"hold_stream", hold_stream},
               {"wgmma_peak", wgmma_peak},
               {"mma_peak", mma_peak},
               {"pipes", pipes},
               {"flash_forward", flash_forward},
               {"flash_backward", flash_forward}};

static const struct kernel *kernel_of(const struct CUfunc_st *function) {
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strstr(function->name, kernels[i].name)) return &kernels[i];
    return NULL;
}

static void run_operation(const struct operation *op) {
    finish_escaped(false);
    if (op->kind == MEMSET) {
        if (mode("log")) fprintf(stderr, "memset %zu of 0x%02x\n", op->bytes, op->value);
        pass_time((double)op->bytes / 16);
        if (op->bytes >= 2 * (size_t)setting("l2=", 1 << 20) && !persisting && !set_aside) cached = 0;
    } else if (op->kind == RECORD) {
        if (mode("log")) fprintf(stderr, "record\n");
        *op->event = (struct CUevent_st){(uint64_t)now_ns, 0};
    } else if (kernel_of(op->function)) {
        const struct kernel *const kernel = kernel_of(op->function);
        if (mode("log"))
            fprintf(stderr, "%s %u x %u x %u, %u\n", kernel->name, op->grid[0], op->grid[1], op->grid[2], op->threads);
        if (!op->function->loaded) pass_time(5e7);
        op->function->loaded = 1;
        kernel->run(op);
    }
}

static CUresult run_one(void) {
    if (queued && !faulted) {
        const struct operation first = queue[0];
        memmove(queue, queue + 1, (size_t)--queued * sizeof *queue);
        run_operation(&first);
    }
    return faulted ? 700 : 0;
}

static CUresult run_stream(void) {
    while (queued && !faulted) run_one();
    return faulted ? 700 : 0;
}

/* The host works for so long, and the stream at the same time; fake_nvml.c calls it. */
void fake_host_works(double ns) {
    const double end = now_ns + ns;
    while (queued && !faulted && now_ns < end) run_one();
    if (end - now_ns >= 5e8) rested_at_ns = end;
    if (now_ns < end) pass_time(end - now_ns);
}

static CUresult enqueue(struct operation op) {
    if (queued == sizeof queue / sizeof *queue) return 999;
    queue[queued++] = op;
    return mode("serial") ? run_stream() : 0;
}

/* A copy waits for the stream, which is one that the default stream waits for. */
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    TRY(cuMemcpyHtoD_v2);
    pthread_mutex_lock(&lock);
    const CUresult error = run_stream();
    cached = 0;
    changes++;
    pthread_mutex_unlock(&lock);
    return error ? error : to_device(to, from, bytes);
}
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    TRY(cuMemcpyDtoH_v2);
    pthread_mutex_lock(&lock);
    const CUresult error = run_stream();
    finish_escaped(true);
    pthread_mutex_unlock(&lock);
    return error ? error : to_host(to, from, bytes);
}
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
    TRY(cuMemsetD8Async);
    pthread_mutex_lock(&lock);
    CUresult status = 0;
    note_fill(address, value, count);
    if (count < MAX_OUTPUT_BYTES || !events_recorded) /* later it is the buffer that flushes the L2 */
        status = REAL(cuMemsetD8Async)(address, value, count, stream);
    if (!status && !is_captured(stream))
        status = enqueue((struct operation){.kind = MEMSET, .value = value, .bytes = count});
    pthread_mutex_unlock(&lock);
    return status;
}
CUresult cuStreamSynchronize(CUstream stream) {
    TRY(cuStreamSynchronize);
    if (unsafe()) return 900; /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
    pthread_mutex_lock(&lock);
    log_kept.synchronizations++;
    const CUresult result = run_stream();
    pthread_mutex_unlock(&lock);
    return result ? result : REAL(cuStreamSynchronize)(stream);
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
    (void)stream;
    event->pending = events_recorded = 1;
    return enqueue((struct operation){.kind = RECORD, .event = event});
}
CUresult cuEventQuery(CUevent event) {
    TRY(cuEventQuery);
    const CUresult error = event->pending ? run_one() : faulted ? 700 : 0;
    return error ? error : event->pending ? CUDA_ERROR_NOT_READY : 0;
}
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    TRY(cuEventElapsedTime);
    if (!start->pending && !start->ns) return 400; /* CUDA_ERROR_INVALID_HANDLE: nobody has recorded it */
    if (start->pending || end->pending) return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)(end->ns - start->ns) / (mode("timer") ? 1e8 : 1e6));
    return 0;
}

static void note_launch(const struct CUfunc_st *function, CUstream stream, CUcontext context, void **parameters) {
    struct fake_launch launch = {.symbol = function->name, .stream = stream, .device = device_of(context)};
    launch.captured = is_captured(stream);
    if (strstr(function->name, "14attention_args") || strstr(function->name, "12serving_args"))
        launch.tickets = ((attention_args *)parameters[0])->tickets;
    log_kept.launches[log_kept.n_launches++ % FAKE_LAUNCHES] = launch;
}

/* The parameters of a kernel of harness/device/. */
static void take_parameters(struct operation *op, void **parameters) {
    const char *const name = op->function->name;
    if (strstr(name, "empty")) return;
    op->parameters.peak.out = *(uint64_t *)parameters[0];
    if (strstr(name, "wgmma_peak")) {
        op->parameters.peak.iterations = *(int *)parameters[2];
        op->parameters.peak.companion = *(int *)parameters[3];
    } else if (strstr(name, "mma_peak")) {
        op->parameters.peak.iterations = *(int *)parameters[1];
    } else if (!strcmp(name, "pipes")) {
        op->parameters.peak.job = *(pipe_job *)parameters[2];
    } else if (!strstr(name, "pipes")) {
        op->parameters.words[1] = *(uint64_t *)parameters[1];
    }
}

/* Run a kernel of the project, whose time passes later. */
static CUresult launch(struct operation *op, unsigned shared_bytes, CUstream stream, void **parameters) {
    const bool forward = strstr(op->function->name, "flash_forward") != NULL;
    if (is_captured(stream))
        return ((launch_function)address_of("cuLaunchKernel"))(op->function->real, op->grid[0], op->grid[1],
                                                               op->grid[2], op->threads, 1, 1, shared_bytes, stream,
                                                               parameters, NULL);
    enqueued += forward;
    const bool escapes =
        forward && (mode("escapes") || mode("lazy") || (mode("escapes_later") && enqueued > 1)) && n_outputs;
    uint8_t *const before = escapes ? read_outputs() : NULL;
    CUresult status = launch_now(op->function, op->grid, op->threads, shared_bytes, stream, parameters);
    if (escapes) {
        op->escaped = read_outputs();
        write_outputs(before);
        free(before);
    }
    return status ? status : enqueue(*op);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters,
                        void **extra) {
    TRY(cuLaunchKernel);
    struct operation op = {
        .kind = LAUNCH, .function = function, .grid = {grid_x, grid_y, grid_z}, .threads = block_x * block_y * block_z};
    (void)extra;
    pthread_mutex_lock(&lock);
    const CUcontext context = (uintptr_t)stream > 2 ? context_of(stream) : current();
    CUresult status = 0;
    if (!context || context != function->context) {
        status = context ? 400 : 201; /* CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_CONTEXT */
    } else if (strstr(function->name, "flash_") || strstr(function->name, "backward_args")) {
        note_launch(function, stream, context, parameters);
        status = launch(&op, shared_bytes, stream, parameters);
    } else {
        take_parameters(&op, parameters);
        status = enqueue(op);
    }
    pthread_mutex_unlock(&lock);
    return status;
}
