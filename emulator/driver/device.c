/* device.c - the one device: cuInit(), what it is called and what it can do. */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const architecture architectures[] = {
    {"sm_80", 8, 0, 166912, 167936, 64, false},   {"sm_86", 8, 6, 101376, 102400, 48, false},
    {"sm_89", 8, 9, 101376, 102400, 48, false},   {"sm_90", 9, 0, 232448, 233472, 64, true},
    {"sm_90a", 9, 0, 232448, 233472, 64, true},   {"sm_100a", 10, 0, 232448, 233472, 64, true},
    {"sm_103a", 10, 3, 232448, 233472, 64, true}, {"sm_120a", 12, 0, 101376, 102400, 48, true},
};

enum { ARCHITECTURES = sizeof architectures / sizeof architectures[0] };
#define DEFAULT_ARCHITECTURE "sm_90a"

/* The first is small, so that a program that fills the GPU is emulated in a short time. The others have the numbers of
 * NVIDIA's architecture white papers and tuning guides; L2 of H100, and L2 and bus of H200, as their drivers say. */
static const gpu_model models[] = {
    {"small", DEFAULT_ARCHITECTURE, 8, 40 << 10, 5120},
    {"A100", "sm_80", 108, 40 << 10, 5120},
    {"RTX3090", "sm_86", 82, 6 << 10, 384},
    {"RTX4090", "sm_89", 128, 72 << 10, 384},
    {"H100", "sm_90a", 132, 50 << 10, 5120},
    {"H200", "sm_90a", 132, 60 << 10, 6016},
    {"B200", "sm_100a", 148, 126 << 10, 8192},
    {"RTX5090", "sm_120a", 170, 96 << 10, 512},
};

enum { MODELS = sizeof models / sizeof models[0] };

/* The most warp instructions of a CTA: minutes of emulation. */
enum { STEP_LIMIT = 1000000000 };

static driver state;
static bool forked; /* this process is the child of one that had called cuInit() */
static pthread_mutex_t lock;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void after_fork(void) {
    forked |= state.device != NULL;
}

/* Host functions may call what needs no device; so the lock is recursive. */
static void prepare(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    pthread_atfork(NULL, NULL, after_fork);
}

driver *the_driver(void) {
    return &state;
}

CUresult driver_enter(void) {
    pthread_once(&once, prepare);
    if (forked) {
        static _Atomic int said;
        if (!said++)
            driver_say("this process was forked from one that uses the GPU, and cannot use it itself, as with CUDA: "
                       "start processes by spawn, or call cuInit in the child first");
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    pthread_mutex_lock(&lock);
    return state.device ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult driver_enter_work(void) {
    CUresult status = driver_enter();
    return status == CUDA_SUCCESS ? state.failure : status;
}

CUresult driver_leave(CUresult status) {
    if (!forked) pthread_mutex_unlock(&lock);
    return status;
}

/* ---- cuInit ---- */

/* A number of the environment; false with a sentence where it is none. */
static bool read_number(const char *name, uint64_t *value) {
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return true;
    *value = strtoull(text, &end, 10);
    if (!*end && *text != '-') return true;
    driver_say("%s=%s is not a number from 0 on", name, text);
    return false;
}

static bool read_model(void) {
    const char *wanted = getenv("EMULATED_GPU_MODEL");
    if (!wanted || !*wanted) wanted = models[0].name;
    for (int i = 0; i < MODELS; i++) {
        state.model = &models[i];
        if (!strcmp(wanted, models[i].name)) return true;
    }
    driver_say("EMULATED_GPU_MODEL=%s is none of small, A100, RTX3090, RTX4090, H100, H200, B200 and RTX5090", wanted);
    return false;
}

/* Return the model's, unless the environment names one. */
static bool read_architecture(void) {
    const char *wanted = getenv("EMULATED_GPU_ARCH");
    if (!wanted || !*wanted) wanted = state.model->architecture;
    for (int i = 0; i < ARCHITECTURES; i++) {
        state.architecture = &architectures[i];
        if (!strcmp(wanted, architectures[i].name)) return true;
    }
    driver_say("EMULATED_GPU_ARCH=%s is none of sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100a, sm_103a and sm_120a",
               wanted);
    return false;
}

/* Addresses below 2^47 are left to memory that host and device share: there the device's address is the host's. A GPU
 * has no others, so recordings and their replays use some that Linux gives to no program. */
static bool reserve_addresses(emu_device *device) {
    enum { LAST_OF_HOST = 2047, BEFORE_RECORDED = 1407 };
    const bool as_recorded = is_recording() || getenv("EMULATED_GPU_REPLAY");
    const uint64_t number = as_recorded ? BEFORE_RECORDED : LAST_OF_HOST;
    char *last = (char *)(uintptr_t)((number << 36) + (1ull << 28));
    const uint64_t address = emu_map(device, "", last, 1);
    return address && emu_free(device, address);
}

static CUresult start(void) {
    uint64_t noise = 0;
    state.step_limit = STEP_LIMIT;
    if (!read_model() || !read_architecture() || !read_number("EMULATED_GPU_SCHEDULE", &state.schedule) ||
        !read_number("EMULATED_GPU_STEPS", &state.step_limit) || !read_number("EMULATED_GPU_NOISE", &noise) ||
        !read_number("EMULATED_GPU_CTAS", &state.sample) || !read_number("EMULATED_GPU_ORDERS", &state.orders))
        return CUDA_ERROR_INVALID_VALUE;
    emu_set_noise(noise);
    emu_device *device = emu_device_new();
    if (!device || !reserve_addresses(device)) {
        emu_device_free(device);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    emu_set_architecture(device, 10 * (unsigned)state.architecture->major + (unsigned)state.architecture->minor);
    state.device = device;
    return CUDA_SUCCESS;
}

/* JAX asks for the number of devices and no more: it would take the CPU in silence. With /dev/nvidia0 it calls
 * nvmlInit_v2 of libnvidia-ml.so.1, and then needs memory that cuMemMap maps. */
static void tell_jax(const void *caller) {
    static _Atomic int said;
    Dl_info from;
    if (!dladdr(caller, &from) || !from.dli_fname || !strstr(from.dli_fname, "/jax_cuda") || said++) return;
    driver_say("%s is of JAX, which cannot run here: it looks for /dev/nvidia0, and XLA needs cuMemMap. JAX takes the "
               "CPU",
               from.dli_fname);
}

CUresult cuInit(unsigned flags) {
    CUresult status = driver_enter();
    tell_jax(__builtin_return_address(0));
    if (forked) return driver_leave(status);
    if (flags) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (status == CUDA_ERROR_NOT_INITIALIZED) status = start();
    return driver_leave(status);
}

CUresult cuDriverGetVersion(int *version) {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

/* ---- devices ---- */

CUresult check_device(CUdevice device) {
    if (!device) return CUDA_SUCCESS;
    driver_say("device %d was asked for: there is one emulated GPU, device 0", device);
    return CUDA_ERROR_INVALID_DEVICE;
}

/* A call that asks something of a device: whether its answer can be written. */
static CUresult enter_device(const void *answer, CUdevice device) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !answer) status = CUDA_ERROR_INVALID_VALUE;
    return status == CUDA_SUCCESS ? check_device(device) : status;
}

CUresult cuDeviceGetCount(int *count) {
    CUresult status = enter_device(count, 0);
    if (status == CUDA_SUCCESS) *count = 1;
    return driver_leave(status);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    CUresult status = enter_device(device, ordinal);
    if (status == CUDA_SUCCESS) *device = 0;
    return driver_leave(status);
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    CUresult status = enter_device(name, device);
    if (status == CUDA_SUCCESS && length <= 0) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS)
        snprintf(name, (size_t)length, "flashladder emulator (%s)", the_driver()->architecture->name);
    return driver_leave(status);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    CUresult status = enter_device(uuid, device);
    if (status == CUDA_SUCCESS) memcpy(uuid->bytes, "flashladder emu", sizeof uuid->bytes);
    return driver_leave(status);
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
    CUresult status = enter_device(bytes, device);
    if (status == CUDA_SUCCESS) *bytes = DEVICE_MEMORY;
    return driver_leave(status);
}

CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device) {
    static const char zeros[] = "0000:00:00.0";
    CUresult status = enter_device(id, device);
    if (status == CUDA_SUCCESS && length < (int)sizeof zeros) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) memcpy(id, zeros, sizeof zeros);
    return driver_leave(status);
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id) {
    CUresult status = enter_device(device, 0);
    if (status == CUDA_SUCCESS && (!id || strcmp(id, "0000:00:00.0") != 0)) status = CUDA_ERROR_INVALID_DEVICE;
    if (status == CUDA_SUCCESS) *device = 0;
    return driver_leave(status);
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    CUresult status = enter_device(major && minor ? major : NULL, device);
    if (status == CUDA_SUCCESS) {
        *major = the_driver()->architecture->major;
        *minor = the_driver()->architecture->minor;
    }
    return driver_leave(status);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    CUresult status = enter_device(can, device);
    if (status == CUDA_SUCCESS) status = check_device(peer);
    if (status == CUDA_SUCCESS) *can = 0;
    return driver_leave(status);
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer) {
    (void)attribute;
    return cuDeviceCanAccessPeer(value, device, peer);
}

/* ---- attributes ---- */

/* Attributes that are the same for all; those of an architecture or of a model are below, and every other is 0: "no".
 */
typedef struct attribute {
    CUdevice_attribute which;
    int value;
} attribute;

static const attribute attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000}, /* kHz: the clock of events ticks once a nanosecond */
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
};

static int value_of(CUdevice_attribute which, const architecture *a, const gpu_model *model) {
    switch ((int)which) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return model->multiprocessors;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        return model->l2_KiB << 10;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
        return model->bus_bits;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return a->major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return a->minor;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return a->shared_per_block;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        return a->shared_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return 32 * a->warps;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
        return a->warps / 2;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED:
        return a->major >= 9;
    default:
        for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++)
            if (attributes[i].which == which) return attributes[i].value;
        return 0;
    }
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
    CUresult status = enter_device(value, device);
    if (status == CUDA_SUCCESS && (which <= 0 || which >= CU_DEVICE_ATTRIBUTE_MAX)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) *value = value_of(which, the_driver()->architecture, the_driver()->model);
    return driver_leave(status);
}
