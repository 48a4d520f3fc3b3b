/* gpu.c - the GPU back end: the CUDA driver API, opened at run time, every call checked. */
#include "harness/about.h"
#include "harness/arguments.h"
#include "harness/backend.h"
#include "harness/backward.h"
#include "harness/device/stamp.h"
#include "harness/peer.h"
#include "harness/serving.h"
#include "harness/stats.h"
#include "harness/tensor_memory.h"
#include "runtime/cuda_driver.h"
#include "runtime/gpu_kernel.h"
#include "runtime/launch.h"
#include "runtime/parameters.h"
#include "runtime/tensor_maps.h"

#include <inttypes.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

/* Stamps of the SMs before and after something that is timed. */
struct stamps {
    clock_stamp before[MAX_STAMPS], after[MAX_STAMPS];
};

/* A burst that is queued, or the last that was taken: the next one is idle from its end on. */
struct queued_burst {
    int64_t launches;
    uint64_t epoch;
    bool follows; /* the burst before was queued at the time */
    CUevent start, end;
};
enum { BURST_SLOTS = MAX_BURSTS + 1 };

/* State that the host and the helper kernels share, in host memory mapped to the GPU. */
struct shared_memory {
    struct stamps stamps[BURST_SLOTS]; /* a sample takes the first */
    uint32_t released;                 /* 0: the stream is held, 1: go, 2: the kernel gave up waiting */
};

struct gpu {
    struct backend backend;
    struct cuda_driver cuda;
    CUdevice device;
    CUcontext context;
    int shared_bytes_most;
    CUmodule module, helpers;
    CUfunction hold, stamp, peak[2]; /* peak of fp16 and of bf16 */
    CUstream stream;
    CUevent start, end;
    struct queued_burst bursts[BURST_SLOTS]; /* in turn */
    int64_t n_queued, n_taken;               /* bursts so far */
    struct shared_memory *shared;
    CUdeviceptr shared_address;
    CUdeviceptr flush;
    int64_t flush_bytes;
    uint64_t epoch;
    bool may_hold; /* false once the holding kernel gave up: something makes launches wait for their end */
    /* the problem and the instance at hand */
    struct problem problem;
    CUdeviceptr tensors[N_TENSORS];
    CUdeviceptr lse; /* 0 where it is not wanted */
    CUdeviceptr tickets;
    CUdeviceptr serving; /* lengths and sinks */
    CUdeviceptr dump;
    CUdeviceptr scratch; /* of a peer */
    CUdeviceptr backward[N_BACKWARD];
    struct gpu_kernel kernel;
    struct gpu_kernel small[2]; /* of a backward pass, before the kernel and after it */
    bool draws;                 /* the kernel has tickets */
    tensor_maps maps;           /* filled for a kernel with tensor copies */
    launch_shape shape, small_shape;
    int launches;
    const char *symbol;
};

#define CHECK(call, ...)                                                                                               \
    do {                                                                                                               \
        const enum status check_status = cuda_check(cuda, (call), failure, __VA_ARGS__);                               \
        if (check_status) return check_status;                                                                         \
    } while (0)

static void free_address(struct gpu *gpu, CUdeviceptr *address) {
    if (*address) gpu->cuda.cuMemFree_v2(*address);
    *address = 0;
}

static void gpu_close(struct backend *backend) {
    struct gpu *gpu = (struct gpu *)backend;
    const struct cuda_driver *cuda = &gpu->cuda;
    if (gpu->context) {
        for (int t = 0; t < N_TENSORS; t++) free_address(gpu, &gpu->tensors[t]);
        free_address(gpu, &gpu->lse);
        free_address(gpu, &gpu->tickets);
        free_address(gpu, &gpu->serving);
        for (int i = 0; i < N_BACKWARD; i++) free_address(gpu, &gpu->backward[i]);
        free_address(gpu, &gpu->dump);
        free_address(gpu, &gpu->scratch);
        free_address(gpu, &gpu->flush);
        if (gpu->shared) cuda->cuMemFreeHost(gpu->shared);
        if (gpu->start) cuda->cuEventDestroy_v2(gpu->start);
        if (gpu->end) cuda->cuEventDestroy_v2(gpu->end);
        for (int i = 0; i < BURST_SLOTS; i++) {
            if (gpu->bursts[i].start) cuda->cuEventDestroy_v2(gpu->bursts[i].start);
            if (gpu->bursts[i].end) cuda->cuEventDestroy_v2(gpu->bursts[i].end);
        }
        if (gpu->module) cuda->cuModuleUnload(gpu->module);
        if (gpu->helpers) cuda->cuModuleUnload(gpu->helpers);
        if (gpu->stream) cuda->cuStreamDestroy_v2(gpu->stream);
        cuda->cuDevicePrimaryCtxRelease_v2(gpu->device);
    }
    cuda_driver_close(&gpu->cuda);
    free(gpu);
}

/* ---- the device ---- */

/* The version of the driver package where the kernel module tells it, else the CUDA version it supports. */
static void driver_version(int cuda_version, char *text, size_t size) {
    char package[32] = "";
    FILE *file = fopen("/sys/module/nvidia/version", "r");
    if (file) {
        if (fscanf(file, "%31s", package) != 1) package[0] = 0;
        fclose(file);
    }
    snprintf(text, size, "%s%sCUDA %d.%d", package, package[0] ? ", " : "", cuda_version / 1000,
             cuda_version % 1000 / 10);
}

static enum status read_device(struct gpu *gpu, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    struct device_info *info = &gpu->backend.device;
    int version, clock_khz, l2_bytes;
    size_t memory;
    const struct {
        int attribute, *value;
        const char *name;
    } attributes[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &info->major, "compute capability"},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &info->minor, "compute capability"},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &info->sms, "number of SMs"},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2_bytes, "size of the L2 cache"},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &clock_khz, "clock rate"},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &gpu->shared_bytes_most, "shared memory of a CTA"}};
    CHECK(cuda->cuDriverGetVersion(&version), "cuDriverGetVersion");
    CHECK(cuda->cuDeviceGetName(info->name, sizeof info->name, gpu->device), "cuDeviceGetName");
    CHECK(cuda->cuDeviceTotalMem_v2(&memory, gpu->device), "cuDeviceTotalMem");
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        CHECK(cuda->cuDeviceGetAttribute(attributes[i].value, attributes[i].attribute, gpu->device),
              "cuDeviceGetAttribute of the %s", attributes[i].name);
    if (cuda->cuDeviceGetPCIBusId(info->pci_bus_id, sizeof info->pci_bus_id, gpu->device)) info->pci_bus_id[0] = 0;
    info->l2_bytes = l2_bytes;
    info->memory_bytes = (int64_t)memory;
    info->clock_hz = 1e3 * clock_khz;
    driver_version(version, info->driver, sizeof info->driver);
    return STATUS_OK;
}

static struct gpu_target target_of(const struct gpu *gpu) {
    const struct device_info *device = &gpu->backend.device;
    return (struct gpu_target){device->name, device->driver, device->major, device->minor, gpu->shared_bytes_most};
}

/* The version's code, or that of the helper kernels. */
static struct gpu_code code_of(const struct code_image *images, uint64_t count) {
    return (struct gpu_code){.images = images,
                             .count = count,
                             .version = about_version(),
                             .arch = images == fl_images ? about_arch() : "sm_80",
                             .exact = images == fl_images ? about_exact() : NULL,
                             .toolkit = about_toolkit(),
                             .holder = "this executable",
                             .goal = about_version(),
                             .instead = "; the emulator runs it anywhere (--backend emu)"};
}

static enum status open_device(struct gpu *gpu, int ordinal, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    int count = 0;
    const enum status status = cuda_driver_start(cuda, &count, failure);
    if (status) return status;
    if (ordinal >= count)
        return fail(failure, STATUS_USAGE, "--device %d: must be less than %d, the number of GPUs", ordinal, count);
    CHECK(cuda->cuDeviceGet(&gpu->device, ordinal), "cuDeviceGet %d", ordinal);
    return read_device(gpu, failure);
}

/* Everything that timing needs: helper kernels, events, memory shared with the host, a buffer that fills the L2. */
static enum status open_helpers(struct gpu *gpu, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    const struct gpu_code code = code_of(fl_device_images, fl_device_image_count);
    const struct gpu_target target = target_of(gpu);
    const struct code_image *image = gpu_code_find(&code, &target, failure);
    if (!image) return STATUS_CANNOT_RUN;
    enum status status = gpu_code_load(cuda, &code, &target, image, &gpu->helpers, failure);
    if (status) return status;
    const struct {
        const char *name;
        CUfunction *function;
    } kernels[] = {{"hold_stream", &gpu->hold},
                   {"stamp_clocks", &gpu->stamp},
                   {"mma_peak_fp16", &gpu->peak[0]},
                   {"mma_peak_bf16", &gpu->peak[1]}};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        CHECK(cuda->cuModuleGetFunction(kernels[i].function, gpu->helpers, kernels[i].name),
              "cuModuleGetFunction of %s", kernels[i].name);
    CHECK(cuda->cuEventCreate(&gpu->start, CU_EVENT_DEFAULT), "cuEventCreate");
    CHECK(cuda->cuEventCreate(&gpu->end, CU_EVENT_DEFAULT), "cuEventCreate");
    for (int i = 0; i < BURST_SLOTS; i++) {
        CHECK(cuda->cuEventCreate(&gpu->bursts[i].start, CU_EVENT_DEFAULT), "cuEventCreate");
        CHECK(cuda->cuEventCreate(&gpu->bursts[i].end, CU_EVENT_DEFAULT), "cuEventCreate");
    }
    CHECK(cuda->cuMemHostAlloc((void **)&gpu->shared, sizeof *gpu->shared, CU_MEMHOSTALLOC_DEVICEMAP),
          "cuMemHostAlloc of %zu bytes", sizeof *gpu->shared);
    memset(gpu->shared, 0, sizeof *gpu->shared);
    CHECK(cuda->cuMemHostGetDevicePointer_v2(&gpu->shared_address, gpu->shared, 0), "cuMemHostGetDevicePointer");
    gpu->flush_bytes = 2 * gpu->backend.device.l2_bytes;
    if (gpu->flush_bytes < 1 << 24) gpu->flush_bytes = 1 << 24;
    CHECK(cuda->cuMemAlloc_v2(&gpu->flush, (size_t)gpu->flush_bytes), "cuMemAlloc of %" PRId64 " bytes to flush the L2",
          gpu->flush_bytes);
    gpu->may_hold = true;
    return STATUS_OK;
}

/* ---- one problem ---- */

static enum status synchronize(const struct gpu *gpu, const char *what, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    CHECK(cuda->cuStreamSynchronize(gpu->stream), "%s", what);
    return STATUS_OK;
}

static enum status allocate(const struct gpu *gpu, CUdeviceptr *address, int64_t bytes, const char *what,
                            struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    size_t available, total;
    CHECK(cuda->cuMemGetInfo_v2(&available, &total), "cuMemGetInfo");
    if ((uint64_t)bytes > available)
        return fail(failure, STATUS_ERROR,
                    "%s needs %.2f GB of GPU memory, but only %.2f of %.2f GB are free; use a smaller --batch", what,
                    (double)bytes / 1e9, (double)available / 1e9, (double)total / 1e9);
    CHECK(cuda->cuMemAlloc_v2(address, (size_t)bytes), "cuMemAlloc of %" PRId64 " bytes for %s", bytes, what);
    return STATUS_OK;
}

/* Copy a tensor to the GPU, to an address, laid out as the problem says. */
static enum status upload_to(const struct gpu *gpu, CUdeviceptr address, enum tensor tensor, const uint16_t *contiguous,
                             struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    const int64_t bytes = problem_device_bytes(&gpu->problem, tensor);
    uint16_t *memory = NULL;
    if (!tensor_is_contiguous(&gpu->problem) || problem_is_of_bytes(&gpu->problem, tensor)) {
        if (!(memory = malloc((size_t)bytes))) return fail_memory(failure, (uint64_t)bytes, "a tensor's layout");
        tensor_spread(&gpu->problem, tensor, contiguous, memory);
    }
    const CUresult copied = cuda->cuMemcpyHtoD_v2(address, memory ? memory : contiguous, (size_t)bytes);
    free(memory);
    CHECK(copied, "cuMemcpyHtoD of %" PRId64 " bytes", bytes);
    return STATUS_OK;
}

static enum status upload(const struct gpu *gpu, enum tensor tensor, const uint16_t *contiguous,
                          struct failure *failure) {
    return upload_to(gpu, gpu->tensors[tensor], tensor, contiguous, failure);
}

/* Copy what serving_args name, where the problem has it. */
static enum status upload_serving(struct gpu *gpu, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    const int64_t bytes = serving_bytes(&gpu->problem);
    free_address(gpu, &gpu->serving);
    if (!problem_is_served(&gpu->problem)) return STATUS_OK;
    const enum status status = allocate(gpu, &gpu->serving, bytes, "lengths and sinks", failure);
    if (status) return status;
    void *const memory = malloc((size_t)bytes);
    if (!memory) return fail_memory(failure, (uint64_t)bytes, "lengths and sinks");
    serving_fill(&gpu->problem, memory);
    const CUresult copied = cuda->cuMemcpyHtoD_v2(gpu->serving, memory, (size_t)bytes);
    free(memory);
    CHECK(copied, "cuMemcpyHtoD of %" PRId64 " bytes", bytes);
    return STATUS_OK;
}

/* Allocate what a backward problem needs in addition to the tensors, and copy what the forward pass left. */
static enum status set_backward(struct gpu *gpu, const struct inputs *inputs, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    const struct problem *problem = &gpu->problem;
    const int64_t lse_bytes = problem_device_lse_bytes(problem);
    enum status status = allocate(gpu, &gpu->lse, lse_bytes, "log-sum-exp", failure);
    for (int i = 0; i < N_BACKWARD && !status; i++) {
        const int64_t bytes = backward_bytes(problem, (enum backward_memory)i);
        if ((status = allocate(gpu, &gpu->backward[i], bytes, backward_name((enum backward_memory)i), failure))) break;
        CHECK(cuda->cuMemsetD8Async(gpu->backward[i], 0, (size_t)bytes, gpu->stream), "cuMemsetD8Async of %s",
              backward_name((enum backward_memory)i));
    }
    if (status || (status = synchronize(gpu, "setting the gradients to zero", failure))) return status;
    float *const lse = malloc((size_t)lse_bytes);
    if (!lse) return fail_memory(failure, (uint64_t)lse_bytes, "log-sum-exp");
    lse_spread(problem, inputs->lse, lse);
    const CUresult copied = cuda->cuMemcpyHtoD_v2(gpu->lse, lse, (size_t)lse_bytes);
    free(lse);
    CHECK(copied, "cuMemcpyHtoD of log-sum-exp");
    status = upload(gpu, TENSOR_O, inputs->O, failure);
    return status ? status : upload_to(gpu, gpu->backward[OF_DO], TENSOR_O, inputs->dO, failure);
}

static enum status gpu_set_problem(struct backend *backend, const struct inputs *inputs, struct failure *failure) {
    struct gpu *gpu = (struct gpu *)backend;
    const struct cuda_driver *cuda = &gpu->cuda;
    const struct problem *problem = &gpu->problem;
    size_t available, total;
    enum status status;
    uint64_t bytes = 0;
    for (int t = 0; t < N_TENSORS; t++) free_address(gpu, &gpu->tensors[t]);
    free_address(gpu, &gpu->lse);
    for (int i = 0; i < N_BACKWARD; i++) free_address(gpu, &gpu->backward[i]);
    gpu->problem = inputs->problem;
    for (int t = 0; t < N_TENSORS; t++) bytes += (uint64_t)problem_device_bytes(problem, (enum tensor)t);
    for (int i = 0; i < N_BACKWARD && problem->backward; i++)
        bytes += (uint64_t)backward_bytes(problem, (enum backward_memory)i);
    CHECK(cuda->cuMemGetInfo_v2(&available, &total), "cuMemGetInfo");
    if (bytes > available)
        return fail(failure, STATUS_ERROR,
                    "batch %" PRId64 ", heads %" PRId64 ", seq %" PRId64
                    " needs %.2f GB of GPU memory, but only %.2f of %.2f GB are free; use a smaller --batch",
                    problem->batch, problem->heads, problem->seq_q, (double)bytes / 1e9, (double)available / 1e9,
                    (double)total / 1e9);
    for (int t = 0; t < N_TENSORS; t++) {
        const enum tensor tensor = (enum tensor)t;
        status = allocate(gpu, &gpu->tensors[t], problem_device_bytes(problem, tensor), "a tensor", failure);
        if (!status && tensor != TENSOR_O) status = upload(gpu, tensor, inputs->tensors[t], failure);
        if (status) return status;
    }
    if ((status = upload_serving(gpu, failure))) return status;
    if (problem->backward) return set_backward(gpu, inputs, failure);
    return problem->lse ? allocate(gpu, &gpu->lse, problem_device_lse_bytes(problem), "log-sum-exp", failure)
                        : STATUS_OK;
}

static enum status gpu_renew_inputs(struct backend *backend, const struct inputs *inputs, struct failure *failure) {
    struct gpu *gpu = (struct gpu *)backend;
    enum status status = STATUS_OK;
    for (int t = 0; t < N_INPUTS && !status; t++) status = upload(gpu, (enum tensor)t, inputs->tensors[t], failure);
    return status;
}

/* ---- a library's kernel instead of the version's ---- */

static enum status check_peer(const struct gpu *gpu, const struct peer *peer, struct failure *failure) {
    const struct device_info *device = &gpu->backend.device;
    if (device->major == peer->major && device->minor == peer->minor) return STATUS_OK;
    return fail(failure, STATUS_CANNOT_RUN,
                "%s was built for sm_90a, which needs compute capability %d.%d, but %s has %d.%d", about_version(),
                peer->major, peer->minor, device->name, device->major, device->minor);
}

static enum status set_peer(struct gpu *gpu, const struct peer *peer, struct failure *failure) {
    const int64_t bytes = peer->scratch_bytes(&gpu->problem);
    gpu->symbol = about_version();
    free_address(gpu, &gpu->scratch);
    return bytes ? allocate(gpu, &gpu->scratch, bytes, "the library's workspace", failure) : STATUS_OK;
}

/* ---- one instance ---- */

/* Memory that CTAs share: counters, which a kernel leaves at zero, followed by bytes that it does not read before it
 * writes them. */
static enum status set_tickets(struct gpu *gpu, const struct kernel_config *config, int sms, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    const serving_args args = serving_args_of(&gpu->problem, problem_args(&gpu->problem), gpu->serving);
    const int64_t bytes = launch_workspace_bytes(config, &args.attention, sms), zeros = launch_counter_bytes(config);
    free_address(gpu, &gpu->tickets);
    CHECK(cuda->cuMemAlloc_v2(&gpu->tickets, (size_t)bytes), "cuMemAlloc of %" PRId64 " bytes for the tickets", bytes);
    CHECK(cuda->cuMemsetD8Async(gpu->tickets, POISON_BYTE, (size_t)bytes, gpu->stream),
          "cuMemsetD8Async of the tickets");
    CHECK(cuda->cuMemsetD8Async(gpu->tickets, 0, (size_t)zeros, gpu->stream), "cuMemsetD8Async of the tickets");
    return synchronize(gpu, "setting the tickets to zero", failure);
}

static union kernel_args arguments_of(const struct gpu *gpu) {
    attention_args args = problem_args(&gpu->problem);
    args.Q = (const void *)(uintptr_t)gpu->tensors[TENSOR_Q];
    args.K = (const void *)(uintptr_t)gpu->tensors[TENSOR_K];
    args.V = (const void *)(uintptr_t)gpu->tensors[TENSOR_V];
    args.O = (void *)(uintptr_t)gpu->tensors[TENSOR_O];
    args.debug = (void *)(uintptr_t)gpu->dump;
    args.LSE = (float *)(uintptr_t)gpu->lse;
    args.tickets = gpu->draws ? (int32_t *)(uintptr_t)gpu->tickets : NULL;
    uint64_t backward[N_BACKWARD];
    for (int i = 0; i < N_BACKWARD; i++) backward[i] = gpu->backward[i];
    return problem_arguments(&gpu->problem, args, backward, gpu->serving);
}

static enum status enqueue_peer(const struct gpu *gpu, const struct peer *peer, struct failure *failure) {
    const backward_args backward = arguments_of(gpu).backward;
    const struct peer_launch launch = {.problem = &gpu->problem,
                                       .Q = (const void *)(uintptr_t)gpu->tensors[TENSOR_Q],
                                       .K = (const void *)(uintptr_t)gpu->tensors[TENSOR_K],
                                       .V = (const void *)(uintptr_t)gpu->tensors[TENSOR_V],
                                       .O = (void *)(uintptr_t)gpu->tensors[TENSOR_O],
                                       .scratch = (void *)(uintptr_t)gpu->scratch,
                                       .lse = (float *)(uintptr_t)gpu->lse,
                                       .backward = gpu->problem.backward ? &backward : NULL,
                                       .sms = gpu->backend.device.sms,
                                       .stream = gpu->stream};
    return peer->enqueue(&launch, failure);
}

/* The small kernels of a backward pass. */
static enum status find_small(struct gpu *gpu, const struct instance *instance, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    const struct small_kernel of[2] = {instance->before, instance->after};
    for (int i = 0; i < 2; i++) {
        gpu->small[i] = (struct gpu_kernel){.symbol = of[i].symbol};
        if (of[i].symbol)
            CHECK(cuda->cuModuleGetFunction(&gpu->small[i].function, gpu->module, of[i].symbol),
                  "cuModuleGetFunction of %s", of[i].symbol);
    }
    return STATUS_OK;
}

static bool gpu_fits(const struct backend *backend, const struct instance *instance) {
    struct failure ignored;
    const struct gpu_code code = code_of(fl_images, fl_image_count);
    const struct gpu_target target = target_of((const struct gpu *)backend);
    const struct code_image *const image = gpu_code_find(&code, &target, &ignored);
    return image && !gpu_smem_check(&code, image, &target, instance, &ignored);
}

static enum status gpu_set_instance(struct backend *backend, const struct instance *instance, struct kernel_code *code,
                                    struct failure *failure) {
    struct gpu *gpu = (struct gpu *)backend;
    const struct cuda_driver *cuda = &gpu->cuda;
    const struct problem *problem = &gpu->problem;
    *code = (struct kernel_code){0};
    if (about_peer()) return set_peer(gpu, about_peer(), failure);
    const struct gpu_code embedded = code_of(fl_images, fl_image_count);
    const struct gpu_target target = target_of(gpu);
    const struct code_image *image = gpu_code_find(&embedded, &target, failure);
    if (!image) return STATUS_CANNOT_RUN;
    enum status status = image_kernel_code(image, instance->symbol, code, failure);
    if (status || (status = gpu_smem_check(&embedded, image, &target, instance, failure))) return status;
    const int sms = about_dumps() ? 1 : backend->device.sms; /* with one there is no split tail: it leaves no dump */
    gpu->draws = config_has(&instance->config, TICKETS);
    if (gpu->draws && (status = set_tickets(gpu, &instance->config, sms, failure))) return status;
    const union kernel_args args = arguments_of(gpu);
    gpu->shape = launch_of(&instance->config, &args.attention, sms);
    gpu->launches = launch_count(&instance->config, &args.attention);
    gpu->symbol = instance->symbol;
    if (!gpu->module && (status = gpu_code_load(cuda, &embedded, &target, image, &gpu->module, failure))) return status;
    if ((status = gpu_kernel_find(cuda, gpu->module, instance, &gpu->kernel, failure))) return status;
    if (problem->backward) gpu->small_shape = backward_small_shape(&instance->config.backward, &args.attention);
    if ((status = find_small(gpu, instance, failure))) return status;
    if (!config_has(&instance->config, TENSOR_COPIES)) return STATUS_OK;
    struct tensor_layout layouts[N_TENSORS];
    tensor_layouts(&args.attention, &instance->config, layouts);
    return tensor_maps_of_driver(cuda, problem->dtype, layouts, &gpu->maps, failure);
}

/* Work before each launch that is not part of it: the zeros that a baseline requires. */
static enum status prepare_launch(const struct gpu *gpu, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    const int64_t bytes = about_peer() ? about_peer()->cleared_bytes : 0;
    if (bytes)
        CHECK(cuda->cuMemsetD8Async(gpu->scratch, 0, (size_t)bytes, gpu->stream),
              "cuMemsetD8Async of %" PRId64 " bytes of %s", bytes, about_version());
    return STATUS_OK;
}

static enum status enqueue_kernel(const struct gpu *gpu, struct failure *failure) {
    if (about_peer()) return enqueue_peer(gpu, about_peer(), failure);
    union kernel_args args = arguments_of(gpu);
    const struct {
        const struct gpu_kernel *kernel;
        const launch_shape *shape;
        bool left_out;
    } steps[] = {{&gpu->small[0], &gpu->small_shape, false},
                 {&gpu->kernel, &gpu->shape, false},
                 {&gpu->kernel, &gpu->shape, gpu->launches < 2},
                 {&gpu->small[1], &gpu->small_shape, false}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (!steps[i].kernel->function || steps[i].left_out) continue;
        if (i == 2) args.extended.combines = 1;
        const enum status status = gpu_kernel_launch(&gpu->cuda, steps[i].kernel, steps[i].shape, &args.attention,
                                                     &gpu->maps, gpu->stream, failure);
        if (status) return status;
    }
    return STATUS_OK;
}

static enum status poison_gradients(const struct gpu *gpu, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    for (int i = 0; i < N_BACKWARD; i++) {
        const enum backward_memory what = (enum backward_memory)i;
        if (backward_is_written(what))
            CHECK(cuda->cuMemsetD8Async(gpu->backward[i], POISON_BYTE, (size_t)backward_bytes(&gpu->problem, what),
                                        gpu->stream),
                  "cuMemsetD8Async of %s", backward_name(what));
    }
    return synchronize(gpu, "filling the gradients with NaN", failure);
}

static enum status gpu_poison(struct backend *backend, struct failure *failure) {
    struct gpu *gpu = (struct gpu *)backend;
    const struct cuda_driver *cuda = &gpu->cuda;
    const struct problem *problem = &gpu->problem;
    CHECK(cuda->cuCtxSynchronize(), "cuCtxSynchronize"); /* so that nothing that goes on elsewhere writes over it */
    if (problem->backward) return poison_gradients(gpu, failure);
    CHECK(cuda->cuMemsetD8Async(gpu->tensors[TENSOR_O], POISON_BYTE, (size_t)problem_device_bytes(problem, TENSOR_O),
                                gpu->stream),
          "cuMemsetD8Async of the output");
    if (gpu->lse)
        CHECK(cuda->cuMemsetD8Async(gpu->lse, POISON_BYTE, (size_t)problem_device_lse_bytes(problem), gpu->stream),
              "cuMemsetD8Async of log-sum-exp");
    return synchronize(gpu, "filling the output with NaN", failure);
}

static enum status gpu_launch(struct backend *backend, struct failure *failure) {
    struct gpu *gpu = (struct gpu *)backend;
    enum status status = prepare_launch(gpu, failure);
    if (!status) status = enqueue_kernel(gpu, failure);
    return status ? status : synchronize(gpu, gpu->symbol, failure);
}

static enum status read_lse(const struct gpu *gpu, struct output *output, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    const size_t bytes = (size_t)problem_device_lse_bytes(&gpu->problem);
    float *const memory = malloc(bytes);
    if (!memory) return fail_memory(failure, bytes, "log-sum-exp");
    const CUresult copied = cuda->cuMemcpyDtoH_v2(memory, gpu->lse, bytes);
    if (!copied) output->strays += lse_gather(&gpu->problem, memory, output->lse);
    free(memory);
    CHECK(copied, "cuMemcpyDtoH of log-sum-exp");
    return STATUS_OK;
}

static enum status read_gradients(const struct gpu *gpu, struct output *output, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    for (int t = 0; t < N_INPUTS; t++) {
        const int64_t bytes = problem_device_bytes(&gpu->problem, (enum tensor)t);
        const bool packed = !tensor_is_contiguous(&gpu->problem);
        uint16_t *const memory = packed ? malloc((size_t)bytes) : NULL;
        if (packed && !memory) return fail_memory(failure, (uint64_t)bytes, "a gradient's layout");
        const CUresult copied =
            cuda->cuMemcpyDtoH_v2(memory ? memory : output->gradients[t], gpu->backward[OF_DQ + t], (size_t)bytes);
        if (memory && !copied)
            output->strays += tensor_gather(&gpu->problem, (enum tensor)t, memory, output->gradients[t]);
        free(memory);
        CHECK(copied, "cuMemcpyDtoH of %s", backward_name((enum backward_memory)(OF_DQ + t)));
    }
    if (output->dsinks)
        CHECK(cuda->cuMemcpyDtoH_v2(output->dsinks, gpu->backward[OF_DSINKS],
                                    (size_t)backward_bytes(&gpu->problem, OF_DSINKS)),
              "cuMemcpyDtoH of dsinks");
    return STATUS_OK;
}

static enum status gpu_read_output(struct backend *backend, struct output *output, struct failure *failure) {
    struct gpu *gpu = (struct gpu *)backend;
    const struct cuda_driver *cuda = &gpu->cuda;
    const struct problem *problem = &gpu->problem;
    const int64_t bytes = problem_device_bytes(problem, TENSOR_O);
    uint16_t *memory = NULL;
    output->strays = 0;
    if (problem->backward) return read_gradients(gpu, output, failure);
    if (!tensor_is_contiguous(problem) && !(memory = malloc((size_t)bytes)))
        return fail_memory(failure, (uint64_t)bytes, "the output's layout");
    const CUresult copied = cuda->cuMemcpyDtoH_v2(memory ? memory : output->O, gpu->tensors[TENSOR_O], (size_t)bytes);
    if (memory && !copied) output->strays = tensor_gather(problem, TENSOR_O, memory, output->O);
    free(memory);
    CHECK(copied, "cuMemcpyDtoH of %" PRId64 " bytes", bytes);
    return gpu->lse ? read_lse(gpu, output, failure) : STATUS_OK;
}

static enum status gpu_set_dump(struct backend *backend, int64_t bytes, struct failure *failure) {
    struct gpu *gpu = (struct gpu *)backend;
    const struct cuda_driver *cuda = &gpu->cuda;
    free_address(gpu, &gpu->dump);
    const enum status status = allocate(gpu, &gpu->dump, bytes, "the dump", failure);
    if (status) return status;
    CHECK(cuda->cuMemsetD8Async(gpu->dump, POISON_BYTE, (size_t)bytes, gpu->stream), "cuMemsetD8Async of the dump");
    return synchronize(gpu, "filling the dump with NaN", failure);
}

static enum status gpu_read_dump(struct backend *backend, int64_t offset, void *bytes, int64_t size,
                                 struct failure *failure) {
    struct gpu *gpu = (struct gpu *)backend;
    const struct cuda_driver *cuda = &gpu->cuda;
    CHECK(cuda->cuMemcpyDtoH_v2(bytes, gpu->dump + (uint64_t)offset, (size_t)size), "cuMemcpyDtoH of the dump");
    return STATUS_OK;
}

/* ---- timing ---- */

static enum status enqueue_helper(const struct gpu *gpu, CUfunction function, const char *name, unsigned grid,
                                  unsigned threads, void **parameters, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    CHECK(cuda->cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, 0, gpu->stream, parameters, NULL),
          "cuLaunchKernel of %s", name);
    return STATUS_OK;
}

static enum status enqueue_hold(struct gpu *gpu, struct failure *failure) {
    uint64_t address = gpu->shared_address + offsetof(struct shared_memory, released), timeout_ns = 200000000;
    void *parameters[] = {&address, &timeout_ns};
    gpu->shared->released = !gpu->may_hold;
    return enqueue_helper(gpu, gpu->hold, "hold_stream", 1, 1, parameters, failure);
}

static enum status enqueue_stamp(struct gpu *gpu, size_t offset, struct failure *failure) {
    uint64_t address = gpu->shared_address + offset;
    void *parameters[] = {&address, &gpu->epoch};
    return enqueue_helper(gpu, gpu->stamp, "stamp_clocks", 2 * (unsigned)gpu->backend.device.sms, 1024, parameters,
                          failure);
}

/* Median over the SMs that wrote both stamps; 0 where none did. */
static double clock_between(const struct stamps *stamps, uint64_t epoch) {
    double clocks[MAX_STAMPS];
    size_t count = 0;
    for (int i = 0; i < MAX_STAMPS; i++) {
        const clock_stamp *before = &stamps->before[i], *after = &stamps->after[i];
        if (before->epoch == epoch && after->epoch == epoch && after->ns > before->ns)
            clocks[count++] = 1e9 * (double)(after->cycles - before->cycles) / (double)(after->ns - before->ns);
    }
    return count ? median(clocks, count) : 0;
}

/* Nanoseconds between the stamps, median over the SMs that wrote both; 0 where none did. */
static double time_between(const struct stamps *stamps, uint64_t epoch) {
    double times[MAX_STAMPS];
    size_t count = 0;
    for (int i = 0; i < MAX_STAMPS; i++) {
        const clock_stamp *before = &stamps->before[i], *after = &stamps->after[i];
        if (before->epoch == epoch && after->epoch == epoch && after->ns > before->ns)
            times[count++] = (double)(after->ns - before->ns);
    }
    return count ? median(times, count) : 0;
}

/* A flush does not reach lines of the L2 that a launch or its library made persisting, nor the part that is set aside
 * for them: no line persists any longer, and no part is set aside. A GPU that cannot do so has none. */
static enum status end_persistence(const struct gpu *gpu, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    const CUresult limited = cuda->cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0);
    if (limited != CUDA_ERROR_UNSUPPORTED_LIMIT) CHECK(limited, "cuCtxSetLimit of lines that persist in the L2");
    const CUresult reset = cuda->cuCtxResetPersistingL2Cache();
    if (reset != CUDA_ERROR_NOT_SUPPORTED) CHECK(reset, "cuCtxResetPersistingL2Cache");
    return STATUS_OK;
}

/* Queue everything while the stream is held, so that the launch, its events and its stamps follow each other without
 * waiting for the host; then let it run. */
static enum status gpu_sample(struct backend *backend, bool cold, struct sample *sample, struct failure *failure) {
    struct gpu *gpu = (struct gpu *)backend;
    const struct cuda_driver *cuda = &gpu->cuda;
    float milliseconds;
    gpu->epoch++;
    enum status status = end_persistence(gpu, failure);
    if (status || (status = enqueue_hold(gpu, failure))) return status;
    if (cold)
        CHECK(cuda->cuMemsetD8Async(gpu->flush, (unsigned char)gpu->epoch, (size_t)gpu->flush_bytes, gpu->stream),
              "cuMemsetD8Async of the buffer that flushes the L2");
    if ((status = prepare_launch(gpu, failure))) return status;
    if ((status = enqueue_stamp(gpu, offsetof(struct shared_memory, stamps[0].before), failure))) return status;
    CHECK(cuda->cuEventRecord(gpu->start, gpu->stream), "cuEventRecord");
    if ((status = enqueue_kernel(gpu, failure))) return status;
    CHECK(cuda->cuEventRecord(gpu->end, gpu->stream), "cuEventRecord");
    if ((status = enqueue_stamp(gpu, offsetof(struct shared_memory, stamps[0].after), failure))) return status;
    volatile uint32_t *released = &gpu->shared->released;
    if (*released == 2) gpu->may_hold = false;
    *released = 1;
    if ((status = synchronize(gpu, gpu->symbol, failure))) return status;
    CHECK(cuda->cuEventElapsedTime(&milliseconds, gpu->start, gpu->end), "cuEventElapsedTime");
    const struct stamps *stamps = gpu->shared->stamps;
    *sample = (struct sample){.ns = 1e6 * milliseconds,
                              .sm_clock_hz = clock_between(stamps, gpu->epoch),
                              .stamps_ns = time_between(stamps, gpu->epoch)};
    return STATUS_OK;
}

static enum status gpu_queue_burst(struct backend *backend, int64_t launches, struct failure *failure) {
    struct gpu *gpu = (struct gpu *)backend;
    const struct cuda_driver *cuda = &gpu->cuda;
    const size_t slot = (size_t)(gpu->n_queued % BURST_SLOTS), stamps = slot * sizeof(struct stamps);
    struct queued_burst *burst = &gpu->bursts[slot];
    burst->launches = launches;
    burst->epoch = ++gpu->epoch;
    burst->follows = gpu->n_queued > gpu->n_taken;
    CHECK(cuda->cuEventRecord(burst->start, gpu->stream), "cuEventRecord");
    enum status status = enqueue_stamp(gpu, stamps + offsetof(struct shared_memory, stamps[0].before), failure);
    for (int64_t i = 0; i < launches && !status; i++) {
        status = prepare_launch(gpu, failure);
        if (!status) status = enqueue_kernel(gpu, failure);
    }
    if (!status) status = enqueue_stamp(gpu, stamps + offsetof(struct shared_memory, stamps[0].after), failure);
    if (status) return status;
    CHECK(cuda->cuEventRecord(burst->end, gpu->stream), "cuEventRecord");
    gpu->n_queued++;
    return STATUS_OK;
}

static enum status gpu_take_burst(struct backend *backend, struct burst *burst, struct failure *failure) {
    struct gpu *gpu = (struct gpu *)backend;
    const struct cuda_driver *cuda = &gpu->cuda;
    const size_t slot = (size_t)(gpu->n_taken % BURST_SLOTS);
    const struct queued_burst *oldest = &gpu->bursts[slot];
    const CUevent end_before = gpu->bursts[(slot + BURST_SLOTS - 1) % BURST_SLOTS].end;
    float milliseconds, idle = 0;
    *burst = (struct burst){0};
    const CUresult result = cuda->cuEventQuery(oldest->end);
    if (result == CUDA_ERROR_NOT_READY) return STATUS_OK;
    CHECK(result, "%s", gpu->symbol);
    CHECK(cuda->cuEventElapsedTime(&milliseconds, oldest->start, oldest->end), "cuEventElapsedTime");
    if (oldest->follows) CHECK(cuda->cuEventElapsedTime(&idle, end_before, oldest->start), "cuEventElapsedTime");
    gpu->n_taken++;
    *burst = (struct burst){.launches = oldest->launches,
                            .ns = 1e6 * milliseconds,
                            .idle_ns = 1e6 * idle,
                            .sm_clock_hz = clock_between(&gpu->shared->stamps[slot], oldest->epoch)};
    return STATUS_OK;
}

/* Load every helper and the memset before anything is held: a first launch may have to wait for an idle GPU. */
static enum status warm_helpers(struct gpu *gpu, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    gpu->may_hold = false;
    enum status status = enqueue_hold(gpu, failure);
    gpu->may_hold = true;
    if (status || (status = enqueue_stamp(gpu, offsetof(struct shared_memory, stamps[0].before), failure)))
        return status;
    CHECK(cuda->cuMemsetD8Async(gpu->flush, 0, (size_t)gpu->flush_bytes, gpu->stream), "cuMemsetD8Async");
    return synchronize(gpu, "the first launch of the helper kernels", failure);
}

/* One timed run of the peak kernel. */
static enum status time_peak(struct gpu *gpu, CUfunction function, int iterations, CUdeviceptr out, double *seconds,
                             struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    void *parameters[] = {&out, &iterations};
    float milliseconds;
    CHECK(cuda->cuEventRecord(gpu->start, gpu->stream), "cuEventRecord");
    const enum status status =
        enqueue_helper(gpu, function, "mma_peak", 2 * (unsigned)gpu->backend.device.sms, 256, parameters, failure);
    if (status) return status;
    CHECK(cuda->cuEventRecord(gpu->end, gpu->stream), "cuEventRecord");
    CHECK(cuda->cuStreamSynchronize(gpu->stream), "mma_peak");
    CHECK(cuda->cuEventElapsedTime(&milliseconds, gpu->start, gpu->end), "cuEventElapsedTime");
    *seconds = milliseconds / 1e3;
    return STATUS_OK;
}

static enum status gpu_peak(struct backend *backend, enum dtype dtype, double *tflops, struct failure *failure) {
    enum { FIRST_ITERATIONS = 4000, WARPS = 8, PER_ITERATION = 8 };
    /* of a warp for one m16n8k16, or for its part of one m64n128k16 */
    const double operations = about_exact() ? 2.0 * 16 * 128 * 16 : 2.0 * 16 * 8 * 16, wanted_seconds = 0.02;
    struct gpu *gpu = (struct gpu *)backend;
    const struct cuda_driver *cuda = &gpu->cuda;
    const CUfunction function = gpu->peak[dtype == BF16];
    const int ctas = 2 * backend->device.sms;
    double seconds;
    CUdeviceptr out = 0;
    CHECK(cuda->cuMemAlloc_v2(&out, (size_t)ctas * 32 * WARPS * sizeof(float)), "cuMemAlloc for mma_peak");
    int iterations = FIRST_ITERATIONS;
    enum status status = time_peak(gpu, function, iterations, out, &seconds, failure); /* loads it */
    if (!status) status = time_peak(gpu, function, iterations, out, &seconds, failure);
    if (!status && seconds > 0 && seconds < wanted_seconds) iterations = (int)(iterations * wanted_seconds / seconds);
    if (!status) status = time_peak(gpu, function, iterations, out, &seconds, failure);
    free_address(gpu, &out);
    if (!status) *tflops = operations * PER_ITERATION * WARPS * ctas * iterations / seconds / 1e12;
    return status;
}

static const struct backend_ops GPU_OPS = {
    .name = "gpu",
    .close = gpu_close,
    .fits = gpu_fits,
    .set_problem = gpu_set_problem,
    .renew_inputs = gpu_renew_inputs,
    .set_instance = gpu_set_instance,
    .poison = gpu_poison,
    .launch = gpu_launch,
    .read_output = gpu_read_output,
    .set_dump = gpu_set_dump,
    .read_dump = gpu_read_dump,
    .sample = gpu_sample,
    .queue_burst = gpu_queue_burst,
    .take_burst = gpu_take_burst,
    .peak = gpu_peak,
};

static enum status open_all(struct gpu *gpu, int device, bool timed, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    enum status status = cuda_driver_open(&gpu->cuda, failure);
    if (status || (status = open_device(gpu, device, failure))) return status;
    if (about_peer() && (status = check_peer(gpu, about_peer(), failure))) return status;
    const struct gpu_code code = code_of(fl_images, fl_image_count);
    const struct gpu_target target = target_of(gpu);
    if (!about_peer() && !gpu_code_find(&code, &target, failure)) return STATUS_CANNOT_RUN;
    CHECK(cuda->cuDevicePrimaryCtxRetain(&gpu->context, gpu->device), "cuDevicePrimaryCtxRetain");
    CHECK(cuda->cuCtxSetCurrent(gpu->context), "cuCtxSetCurrent");
    /* cuMemcpyHtoD returns once pageable bytes are staged, and the rest of the copy runs in the default stream: ours
     * must wait for that one, or a launch may read a tensor before it has arrived. */
    CHECK(cuda->cuStreamCreate(&gpu->stream, CU_STREAM_DEFAULT), "cuStreamCreate");
    if (!timed) return STATUS_OK;
    if ((status = open_helpers(gpu, failure))) return status;
    return warm_helpers(gpu, failure);
}

enum status gpu_open(struct backend **backend, int device, bool timed, struct failure *failure) {
    struct gpu *gpu = aligned_alloc(alignof(struct gpu), sizeof *gpu); /* the driver wants tensor maps aligned */
    if (!gpu) return fail_memory(failure, sizeof *gpu, "the GPU's state");
    memset(gpu, 0, sizeof *gpu);
    gpu->backend.ops = &GPU_OPS;
    const enum status status = open_all(gpu, device, timed, failure);
    if (status)
        gpu_close(&gpu->backend);
    else
        *backend = &gpu->backend;
    return status;
}
