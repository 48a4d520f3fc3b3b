#include "library/gpu.h"

#include "library/gradients.h"
#include "library/serving.h"
#include "library/workspaces.h"
#include "runtime/config.h"
#include "runtime/cuda_driver.h"
#include "runtime/launch.h"
#include "runtime/parameters.h"
#include "runtime/tensor_maps.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One GPU of the process. */
struct device {
    CUdevice handle;
    char name[128];
    int sms;
    int64_t memory_bytes;
    struct gpu_target target;
    bool usable;       /* there is machine code for it */
    CUcontext primary; /* retained from the first use on, NULL before; under the library's lock */
};

/* State of a version in one context. */
struct loaded {
    CUmodule module;
    struct gpu_kernel (*kernels)[MOST_STEPS]; /* of each instance, in their order; no function before its first use */
};

/* A context that a call came with. It stays in the list until the library is closed. */
struct context {
    CUcontext handle;
    uint64_t id; /* a later context may have the same handle */
    struct device *device;
    struct loaded *versions;
    CUdeviceptr pool; /* of the workspaces; 0 before the first kernel that needs one */
    struct workspaces workspaces;
    struct context *next;
};

struct gpus {
    struct cuda_driver cuda;
    char driver[32];
    int count;
    struct device *devices;
    struct context *contexts; /* under the library's lock */
};

/* Everything about a problem that does not depend on addresses or on the stream. */
struct plan {
    struct context *context;
    const struct kernel_config *config;
    struct gpu_kernel kernel;
    launch_shape shape;
    int launches;
    int64_t workspace_bytes;
};

/* The last call of this thread: the next one most often has the same problem in the same context. */
static _Thread_local struct {
    bool known; /* `call` is what the next three say */
    unsigned char problem[sizeof(fl_problem)];
    char version[32], config[FL_MAX_CONFIG];
    struct call call;
    uint64_t library; /* whose plan it is; 0: there is none */
    uint64_t context;
    CUcontext handle;
    bool lse, latent;
    struct plan plan;
} last;

/* FL_ERROR, with the driver's word, where a call of the driver fails. */
static fl_status driver_error(const struct cuda_driver *cuda, CUresult result, struct failure *failure,
                              const char *what) {
    return cuda_check(cuda, result, failure, "%s", what) ? FL_ERROR : FL_OK;
}

#define TRY(call, what)                                                                                                \
    do {                                                                                                               \
        const fl_status try_status = driver_error(cuda, (call), failure, what);                                        \
        if (try_status) return try_status;                                                                             \
    } while (0)

/* ---- the GPUs ---- */

static fl_status read_device(struct gpus *gpus, int ordinal, struct failure *failure) {
    const struct cuda_driver *const cuda = &gpus->cuda;
    struct device *const device = &gpus->devices[ordinal];
    struct gpu_target *const target = &device->target;
    size_t memory;
    TRY(cuda->cuDeviceGet(&device->handle, ordinal), "cuDeviceGet");
    TRY(cuda->cuDeviceGetName(device->name, sizeof device->name, device->handle), "cuDeviceGetName");
    TRY(cuda->cuDeviceTotalMem_v2(&memory, device->handle), "cuDeviceTotalMem");
    const struct {
        int attribute, *value;
    } attributes[] = {{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &target->major},
                      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &target->minor},
                      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &device->sms},
                      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &target->shared_bytes}};
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        TRY(cuda->cuDeviceGetAttribute(attributes[i].value, attributes[i].attribute, device->handle),
            "cuDeviceGetAttribute");
    device->memory_bytes = (int64_t)memory;
    target->name = device->name;
    target->driver = gpus->driver;
    return FL_OK;
}

/* True if any version has machine code for a GPU; else *failure says what the newest of them lacks. */
static bool has_code(const struct fl_library *library, const struct device *device, struct failure *failure) {
    for (size_t i = 0; i < all_embedded(library); i++)
        if (gpu_code_find(&library->versions[i].code, &device->target, failure)) return true;
    return false;
}

static fl_status read_devices(struct fl_library *library, struct gpus *gpus, struct failure *failure) {
    const struct cuda_driver *const cuda = &gpus->cuda;
    int version, count = 0, usable = 0;
    const enum status started = cuda_driver_start(cuda, &count, failure);
    if (started) return status_of(started);
    TRY(cuda->cuDriverGetVersion(&version), "cuDriverGetVersion");
    snprintf(gpus->driver, sizeof gpus->driver, "CUDA %d.%d", version / 1000, version % 1000 / 10);
    if (!(gpus->devices = calloc((size_t)count, sizeof *gpus->devices)))
        return refuse_memory(failure, sizeof *gpus->devices, "the GPUs");
    gpus->count = count;
    for (int i = 0; i < count; i++) {
        const fl_status status = read_device(gpus, i, failure);
        if (status) return status;
        usable += gpus->devices[i].usable = has_code(library, &gpus->devices[i], failure);
    }
    return usable ? FL_OK : FL_UNAVAILABLE;
}

fl_status gpus_open(struct fl_library *library, struct failure *failure) {
    struct gpus *const gpus = calloc(1, sizeof *gpus);
    if (!gpus) return refuse_memory(failure, sizeof *gpus, "the GPUs");
    library->gpus = gpus;
    fl_status status = status_of(cuda_driver_open(&gpus->cuda, failure));
    if (!status) status = read_devices(library, gpus, failure);
    if (status) gpus_close(library);
    return status;
}

int gpus_count(const struct fl_library *library) {
    return library->gpus ? library->gpus->count : 0;
}

void gpus_describe(const struct fl_library *library, int device, fl_device_info *info) {
    const struct device *const found = &library->gpus->devices[device];
    *info = (fl_device_info){.major = found->target.major,
                             .minor = found->target.minor,
                             .sms = found->sms,
                             .usable = found->usable,
                             .memory_bytes = found->memory_bytes};
    snprintf(info->name, sizeof info->name, "%s", found->name);
}

/* ---- contexts ---- */

/* Make a context current, unless it is; *pushed says whether leave() has to undo it. */
static fl_status enter(const struct cuda_driver *cuda, CUcontext context, bool *pushed, struct failure *failure) {
    CUcontext current = NULL;
    *pushed = false;
    TRY(cuda->cuCtxGetCurrent(&current), "cuCtxGetCurrent");
    if (current == context) return FL_OK;
    TRY(cuda->cuCtxPushCurrent_v2(context), "cuCtxPushCurrent");
    *pushed = true;
    return FL_OK;
}

static void leave(const struct cuda_driver *cuda, bool pushed) {
    CUcontext popped;
    if (pushed) cuda->cuCtxPopCurrent_v2(&popped);
}

/* The GPU's primary context, retained once; under the lock. */
static fl_status primary_of(const struct cuda_driver *cuda, struct device *device, struct failure *failure) {
    if (device->primary) return FL_OK;
    TRY(cuda->cuDevicePrimaryCtxRetain(&device->primary, device->handle), "cuDevicePrimaryCtxRetain");
    return FL_OK;
}

static fl_status primary_context(struct fl_library *library, int ordinal, CUcontext *context, struct failure *failure) {
    struct device *const device = &library->gpus->devices[ordinal];
    pthread_mutex_lock(&library->lock);
    const fl_status status = primary_of(&library->gpus->cuda, device, failure);
    *context = device->primary;
    pthread_mutex_unlock(&library->lock);
    return status;
}

static void context_free(struct fl_library *library, struct context *context) {
    for (size_t i = 0; context->versions && i < all_embedded(library); i++) free(context->versions[i].kernels);
    free(context->versions);
    free(context);
}

/* The context is current. */
static fl_status make_context(struct fl_library *library, CUcontext handle, uint64_t id, struct context **made,
                              struct failure *failure) {
    struct gpus *const gpus = library->gpus;
    const struct cuda_driver *const cuda = &gpus->cuda;
    CUdevice device;
    TRY(cuda->cuCtxGetDevice(&device), "cuCtxGetDevice");
    struct context *const context = calloc(1, sizeof *context);
    if (context) context->versions = calloc(all_embedded(library), sizeof *context->versions);
    if (!context || !context->versions) {
        if (context) context_free(library, context);
        return refuse_memory(failure, sizeof *context, "a context");
    }
    context->handle = handle;
    context->id = id;
    for (int i = 0; i < gpus->count; i++)
        if (gpus->devices[i].handle == device) context->device = &gpus->devices[i];
    fl_status status = context->device ? FL_OK : refuse(failure, FL_ERROR, "the driver has no GPU for the context");
    for (size_t i = 0; i < all_embedded(library) && !status; i++) {
        const size_t kernels = library->versions[i].table.count;
        context->versions[i].kernels = calloc(kernels, sizeof *context->versions[i].kernels);
        if (!context->versions[i].kernels) status = refuse_memory(failure, kernels, "kernels");
    }
    if (status) return context_free(library, context), status;
    context->next = gpus->contexts;
    gpus->contexts = context;
    *made = context;
    return FL_OK;
}

/* State of the library in a context, which is current. Under the lock. */
static fl_status find_context(struct fl_library *library, CUcontext handle, uint64_t id, struct context **found,
                              struct failure *failure) {
    for (struct context *context = library->gpus->contexts; context; context = context->next)
        if (context->id == id && context->handle == handle) return *found = context, FL_OK;
    return make_context(library, handle, id, found, failure);
}

/* Release what was loaded. A context that is gone took it along. */
static void unload_context(const struct fl_library *library, struct context *context) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    struct failure ignored;
    bool pushed;
    if (enter(cuda, context->handle, &pushed, &ignored)) return;
    for (size_t i = 0; i < all_embedded(library); i++)
        if (context->versions[i].module) cuda->cuModuleUnload(context->versions[i].module);
    if (context->pool) cuda->cuMemFree_v2(context->pool);
    for (int i = 0; i < context->workspaces.n_chunks; i++) cuda->cuMemFree_v2(context->workspaces.chunks[i]);
    leave(cuda, pushed);
}

void gpus_close(struct fl_library *library) {
    struct gpus *const gpus = library->gpus;
    for (struct context *context = gpus->contexts, *next; context; context = next) {
        next = context->next;
        unload_context(library, context);
        context_free(library, context);
    }
    for (int i = 0; i < gpus->count; i++)
        if (gpus->devices[i].primary) gpus->cuda.cuDevicePrimaryCtxRelease_v2(gpus->devices[i].handle);
    free(gpus->devices);
    cuda_driver_close(&gpus->cuda);
    free(gpus);
    library->gpus = NULL;
}

/* ---- which context a call is for ---- */

/* The handles of the default streams, of all threads and of one, have no context of their own. */
static bool is_default_stream(const void *stream) {
    return (uintptr_t)stream <= CU_STREAM_PER_THREAD;
}

static fl_status check_host_stream(const void *stream, struct failure *failure) {
    if (!stream) return FL_OK;
    return refuse(failure, FL_INVALID, "stream %p: must be NULL with host memory, where the call waits for O", stream);
}

static fl_status check_device(const struct fl_library *library, int device, struct failure *failure) {
    if (device < library->gpus->count) return FL_OK;
    return refuse(failure, FL_INVALID, "device %d: must be below %d, the number of GPUs", device, library->gpus->count);
}

/* The driver's attributes of an address; all zero and ordinal -1 if it is unknown. */
struct memory {
    unsigned kind, managed;
    int ordinal;
};

static struct memory memory_at(const struct cuda_driver *cuda, const void *address) {
    struct memory memory = {.ordinal = -1};
    int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *values[] = {&memory.kind, &memory.managed, &memory.ordinal};
    if (!cuda->cuPointerGetAttributes(3, attributes, values, (CUdeviceptr)(uintptr_t)address)) return memory;
    return (struct memory){.ordinal = -1};
}

/* The driver is asked in each call: memory may have been freed since the last one. */
static fl_status check_pointer(const struct cuda_driver *cuda, const struct context *context, const char *name,
                               const void *address, int ordinal, struct failure *failure) {
    const struct memory memory = memory_at(cuda, address);
    if (memory.managed || (memory.kind == CU_MEMORYTYPE_DEVICE && memory.ordinal == ordinal)) return FL_OK;
    if (memory.kind == CU_MEMORYTYPE_DEVICE)
        return refuse(failure, FL_INVALID,
                      "%s %p: is memory of GPU %d; must be memory of GPU %d, %s, which runs the call", name, address,
                      memory.ordinal, ordinal, context->device->name);
    return refuse(failure, FL_INVALID, "%s %p: must be device memory of GPU %d: %s", name, address, ordinal,
                  memory.kind == CU_MEMORYTYPE_HOST
                      ? "it is host memory mapped for the GPU"
                      : "the driver does not recognize it; it is host memory or was freed");
}

static fl_status check_pointers(const struct fl_library *library, const struct context *context,
                                const struct call *call, struct failure *failure) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    const fl_tensors *const tensors = &call->tensors;
    const int ordinal = (int)(context->device - library->gpus->devices);
    const struct {
        const char *name;
        const void *address;
    } all[] = {{"q", tensors->q}, {"k", tensors->k},     {"v", tensors->v},
               {"o", tensors->o}, {"lse", tensors->lse}, {"workspace", tensors->workspace}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i].address) continue;
        const fl_status status = check_pointer(cuda, context, all[i].name, all[i].address, ordinal, failure);
        if (status) return status;
    }
    for (int i = 0; i < N_ARRAYS; i++) {
        const void *const address = serving_array(&call->tensors, i);
        const fl_status status =
            address ? check_pointer(cuda, context, serving_array_name(i), address, ordinal, failure) : FL_OK;
        if (status) return status;
    }
    return FL_OK;
}

/* The context of the stream, else the current one if it is of the GPU that is asked for, else the primary one. */
static fl_status context_of(struct fl_library *library, const fl_problem *problem, const void *q, CUstream stream,
                            CUcontext *context, struct failure *failure) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    CUdevice current = -1;
    if (!is_default_stream(stream)) {
        if (!cuda->cuStreamGetCtx(stream, context)) return FL_OK;
        return refuse(failure, FL_INVALID,
                      "stream %p: the driver does not recognize it; pass an existing stream or NULL",
                      (const void *)stream);
    }
    TRY(cuda->cuCtxGetCurrent(context), "cuCtxGetCurrent");
    if (*context && problem->device < 0) return FL_OK;
    if (*context) TRY(cuda->cuCtxGetDevice(&current), "cuCtxGetDevice");
    if (*context && current == library->gpus->devices[problem->device].handle) return FL_OK;
    const int ordinal = problem->device >= 0 ? problem->device : q ? memory_at(cuda, q).ordinal : -1;
    if (ordinal >= 0 && ordinal < library->gpus->count) return primary_context(library, ordinal, context, failure);
    return refuse(failure, FL_INVALID,
                  "q %p: must be device memory; no context is current, and the driver finds no GPU that owns it", q);
}

/* ---- loading ---- */

/* Device memory for workspaces, zeroed by a stream that waits for no other. */
static fl_status make_zeros(const struct cuda_driver *cuda, size_t bytes, CUdeviceptr *made, struct failure *failure) {
    CUstream stream;
    CUdeviceptr zeros = 0;
    TRY(cuda->cuMemAlloc_v2(&zeros, bytes), "cuMemAlloc of the workspaces");
    fl_status status =
        driver_error(cuda, cuda->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), failure, "cuStreamCreate");
    if (!status) {
        status = driver_error(cuda, cuda->cuMemsetD8Async(zeros, 0, bytes, stream), failure,
                              "cuMemsetD8Async of the workspaces");
        const CUresult ended = cuda->cuStreamSynchronize(stream);
        if (!status) status = driver_error(cuda, ended, failure, "setting the workspaces to zero");
        cuda->cuStreamDestroy_v2(stream);
    }
    if (status)
        cuda->cuMemFree_v2(zeros);
    else
        *made = zeros;
    return status;
}

static fl_status make_pool(const struct cuda_driver *cuda, struct context *context, struct failure *failure) {
    return context->pool ? FL_OK : make_zeros(cuda, WORKSPACES_BYTES, &context->pool, failure);
}

static fl_status add_chunk(const struct cuda_driver *cuda, struct workspaces *workspaces, uint64_t least,
                           struct failure *failure) {
    CUdeviceptr chunk;
    const uint64_t bytes = least > CHUNK_BYTES ? least : CHUNK_BYTES;
    const fl_status status = make_zeros(cuda, bytes, &chunk, failure);
    if (status) return status;
    workspaces->chunks[workspaces->n_chunks++] = chunk;
    workspaces->used = 0;
    workspaces->size = bytes;
    return FL_OK;
}

/* The pool of workspaces for the launches of a kernel. */
static fl_status make_workspaces(const struct cuda_driver *cuda, struct context *context,
                                 const struct kernel_config *config, struct failure *failure) {
    const fl_status status = config_has(config, TICKETS) ? make_pool(cuda, context, failure) : FL_OK;
    const bool large = config_has(config, SHARES_KEYS) || config_has(config, SPLITS_KEYS);
    if (status || !large || context->workspaces.n_chunks) return status;
    return add_chunk(cuda, &context->workspaces, 0, failure);
}

/* The kernels of an instance: one, or those of a backward pass in their order. */
static fl_status find_kernels(const struct cuda_driver *cuda, CUmodule module, const struct instance *instance,
                              struct gpu_kernel found[MOST_STEPS], struct failure *failure) {
    const struct small_kernel small[] = {instance->before, instance->after};
    fl_status status = status_of(gpu_kernel_find(cuda, module, instance, &found[0], failure));
    if (status) return status;
    if (cuda->cuFuncLoad) TRY(cuda->cuFuncLoad(found[0].function), "cuFuncLoad");
    for (int i = 0; i < 2; i++) {
        found[1 + i] = (struct gpu_kernel){.symbol = small[i].symbol};
        if (!small[i].symbol) continue;
        TRY(cuda->cuModuleGetFunction(&found[1 + i].function, module, small[i].symbol), "cuModuleGetFunction");
        if (cuda->cuFuncLoad) TRY(cuda->cuFuncLoad(found[1 + i].function), "cuFuncLoad");
    }
    return FL_OK;
}

static fl_status load(struct fl_library *library, struct context *context, const struct choice *choice,
                      struct gpu_kernel kernels[MOST_STEPS], struct failure *failure) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    const struct gpu_target *const target = &context->device->target;
    const struct embedded *const version = choice->version;
    struct loaded *const loaded = &context->versions[version - library->versions];
    struct gpu_kernel *const known = loaded->kernels[choice->instance - version->table.instances];
    fl_status status;
    if (!loaded->module) {
        const struct code_image *const image = gpu_code_find(&version->code, target, failure);
        if (!image) return FL_UNAVAILABLE;
        if ((status = status_of(gpu_code_load(cuda, &version->code, target, image, &loaded->module, failure))))
            return status;
    }
    if (!known[0].function) {
        struct gpu_kernel found[MOST_STEPS];
        if ((status = find_kernels(cuda, loaded->module, choice->instance, found, failure))) return status;
        memcpy(known, found, sizeof found);
    }
    memcpy(kernels, known, sizeof *loaded->kernels);
    return make_workspaces(cuda, context, &choice->instance->config, failure);
}

/* Loading and allocating are no part of a capture, whichever thread has one at work. */
static fl_status load_relaxed(struct fl_library *library, struct context *context, const struct choice *choice,
                              struct gpu_kernel kernels[MOST_STEPS], struct failure *failure) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    TRY(cuda->cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
    const fl_status status = load(library, context, choice, kernels, failure);
    cuda->cuThreadExchangeStreamCaptureMode(&mode);
    return status;
}

/* State of the library in the context, which is current and must belong to the requested GPU. Under the lock. */
static fl_status context_for(struct fl_library *library, CUcontext handle, uint64_t id, const struct call *call,
                             struct context **context, struct failure *failure) {
    const fl_status status = find_context(library, handle, id, context, failure);
    if (status) return status;
    const struct device *const device = (*context)->device;
    const int ordinal = (int)(device - library->gpus->devices);
    if (call->problem.device < 0 || call->problem.device == ordinal) return FL_OK;
    return refuse(failure, FL_INVALID, "device %d: the stream is of GPU %d, %s", call->problem.device, ordinal,
                  device->name);
}

/* The plan of a problem in the context, which is current. */
static fl_status make_plan(struct fl_library *library, CUcontext handle, uint64_t id, const struct call *call,
                           struct plan *plan, struct failure *failure) {
    struct gpu_kernel kernels[MOST_STEPS];
    struct choice choice;
    pthread_mutex_lock(&library->lock);
    fl_status status = context_for(library, handle, id, call, &plan->context, failure);
    if (!status) status = choose(library, call, &plan->context->device->target, &choice, failure);
    if (!status) status = load_relaxed(library, plan->context, &choice, kernels, failure);
    pthread_mutex_unlock(&library->lock);
    if (status) return status;
    plan->kernel = kernels[0];
    plan->config = &choice.instance->config;
    const int sms = plan->context->device->sms;
    extended_args args = call->args;
    const attention_args *const front = &args.serving.attention;
    serving_fit(plan->config, &call->problem, sms, &args);
    plan->shape = launch_of(plan->config, front, sms);
    plan->launches = launch_count(plan->config, front);
    plan->workspace_bytes = launch_workspace_bytes(plan->config, front, sms);
    return FL_OK;
}

/* ---- launches in the caller's stream ---- */

static bool same_text(const char *kept, const char *given) {
    return given ? !strcmp(kept, given) : !kept[0];
}

/* The bytes of a problem that has at most those known here, without its strings. */
static void write_key(const fl_problem *problem, unsigned char key[sizeof(fl_problem)]) {
    fl_problem copy = {0};
    memcpy(&copy, problem, problem->size);
    copy.version = copy.config = NULL;
    memcpy(key, &copy, sizeof copy);
}

/* True if the thread's last call had this problem. */
static bool is_last_problem(const fl_problem *problem) {
    unsigned char key[sizeof *problem];
    if (!last.known || problem->size > sizeof *problem || problem->size < offsetof(fl_problem, arrays)) return false;
    write_key(problem, key);
    return !memcmp(key, last.problem, sizeof key) && same_text(last.version, problem->version) &&
           same_text(last.config, problem->config);
}

/* Read the arguments of a call into `last`. The strings are the caller's, who may change them afterwards. */
static fl_status read_call(const fl_problem *problem, const fl_tensors *tensors, struct failure *failure) {
    fl_status status;
    if (!problem || !is_last_problem(problem)) {
        last.known = false;
        last.library = 0;
        if ((status = call_read(problem, &last.call, failure))) return status;
        const char *const version = problem->version ? problem->version : "";
        const char *const config = problem->config ? problem->config : "";
        if (problem->size <= sizeof *problem && strlen(version) < sizeof last.version &&
            strlen(config) < sizeof last.config) {
            write_key(problem, last.problem);
            strcpy(last.version, version);
            strcpy(last.config, config);
            last.known = true;
        }
    }
    last.call.problem.version = problem->version;
    last.call.problem.config = problem->config;
    return call_read_tensors(tensors, &last.call, failure);
}

/* An id of a stream that no other one has: its own, but for the default stream of this thread the thread's, since one
 * handle means those of all threads. */
static CUresult stream_id(const struct cuda_driver *cuda, CUstream stream, uint64_t *id) {
    static _Atomic uint64_t threads;
    static _Thread_local uint64_t thread; /* 0: not numbered yet */
    if ((uintptr_t)stream != CU_STREAM_PER_THREAD) return cuda->cuStreamGetId(stream, id);
    if (!thread) thread = atomic_fetch_add(&threads, 1) + 1;
    *id = thread | UINT64_C(1) << 62;
    return CUDA_SUCCESS;
}

/* A large workspace, of a new chunk where the last has too few bytes left; under the library's lock. */
static fl_status cut_large(const struct cuda_driver *cuda, struct workspaces *workspaces, uint64_t bytes,
                           uint64_t *address, struct failure *failure) {
    if ((*address = workspaces_cut(workspaces, bytes))) return FL_OK;
    if (workspaces->n_chunks == MOST_CHUNKS)
        return refuse(failure, FL_ERROR,
                      "all %d workspace allocations are in use; pass your own in fl_tensors.workspace, "
                      "or open the library again",
                      MOST_CHUNKS);
    const fl_status status = add_chunk(cuda, workspaces, (bytes + 255) / 256 * 256, failure);
    if (!status) *address = workspaces_cut(workspaces, bytes);
    return status;
}

/* Allocate a workspace from any thread for the stream at this number; the allocation is not part of another thread's
 * capture. A stream's earlier workspace stays allocated, because launches in flight may use it. Under the lock. */
static fl_status make_large(const struct cuda_driver *cuda, struct workspaces *workspaces, uint64_t bytes,
                            uint64_t number, uint64_t *address, struct failure *failure) {
    const uint64_t known = atomic_load(&workspaces->bytes[number]); /* another thread may have been here */
    *address = atomic_load(&workspaces->large[number]);
    if (known >= bytes) return FL_OK;
    if (known && bytes < 2 * known) bytes = 2 * known;
    const fl_status status = cut_large(cuda, workspaces, bytes, address, failure);
    if (status) return status;
    atomic_store(&workspaces->large[number], *address);
    atomic_store(&workspaces->bytes[number], bytes);
    return FL_OK;
}

/* The same for a captured launch: that of the launch before it in the same stream and capture, which it follows, if
 * that is large enough. Under the lock. */
static fl_status make_captured(const struct cuda_driver *cuda, struct workspaces *workspaces, uint64_t bytes,
                               CUstream stream, uint64_t *address, struct failure *failure) {
    int capturing;
    uint64_t capture;
    TRY(cuda->cuStreamGetCaptureInfo_v2(stream, &capturing, &capture, NULL, NULL, NULL), "cuStreamGetCaptureInfo");
    const uint64_t handle = (uint64_t)(uintptr_t)stream;
    const bool follows = workspaces->last_captured.capture == capture && workspaces->last_captured.stream == handle;
    *address = workspaces->last_captured.address;
    if (*address && follows && workspaces->last_captured.bytes >= bytes) return FL_OK;
    const fl_status status = cut_large(cuda, workspaces, bytes, address, failure);
    if (status) return status;
    workspaces->last_captured.capture = capture, workspaces->last_captured.stream = handle;
    workspaces->last_captured.address = *address, workspaces->last_captured.bytes = bytes;
    return FL_OK;
}

/* Workspace of CTAs that split keys: a stream's is as large as any launch of the kernel so far needs, at the number of
 * its small workspace; a captured launch's is as large as that launch needs. */
static fl_status find_large(struct fl_library *library, const struct plan *plan, CUstream stream, bool capturing,
                            uint64_t number, int32_t **tickets, struct failure *failure) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    struct workspaces *const workspaces = &plan->context->workspaces;
    uint64_t bytes = (uint64_t)plan->workspace_bytes, address;
    const uint64_t most = capturing ? 0 : (uint64_t)launch_most_bytes(plan->config, plan->context->device->sms);
    if (bytes < most) bytes = most;
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (!capturing && atomic_load(&workspaces->bytes[number]) >= bytes)
        return *tickets = (int32_t *)(uintptr_t)atomic_load(&workspaces->large[number]), FL_OK;
    TRY(cuda->cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
    pthread_mutex_lock(&library->lock);
    const fl_status status = capturing ? make_captured(cuda, workspaces, bytes, stream, &address, failure)
                                       : make_large(cuda, workspaces, bytes, number, &address, failure);
    pthread_mutex_unlock(&library->lock);
    cuda->cuThreadExchangeStreamCaptureMode(&mode);
    if (!status) *tickets = (int32_t *)(uintptr_t)address;
    return status;
}

/* Workspace of the CTAs: the caller's, else that of the stream, else of the captured launch. */
static fl_status find_tickets(struct fl_library *library, const struct plan *plan, const struct call *call,
                              CUstream stream, int32_t **tickets, struct failure *failure) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    struct context *const context = plan->context;
    int capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    uint64_t id, offset;
    *tickets = call->tensors.workspace;
    if (*tickets) return FL_OK;
    TRY(cuda->cuStreamIsCapturing(stream, &capturing), "cuStreamIsCapturing");
    if (!capturing) TRY(stream_id(cuda, stream, &id), "cuStreamGetId");
    const bool found = capturing ? workspaces_of_graph(&context->workspaces, &offset)
                                 : workspaces_of_stream(&context->workspaces, id, &offset);
    if (found && (config_has(plan->config, SHARES_KEYS) || plan->launches > 1))
        return find_large(library, plan, stream, capturing, offset / WORKSPACE_BYTES, tickets, failure);
    if (found) return *tickets = (int32_t *)(uintptr_t)(context->pool + offset), FL_OK;
    return refuse(
        failure, FL_ERROR,
        "all %d workspaces for %s are in use; pass your own in fl_tensors.workspace, or open the library again",
        capturing ? GRAPH_WORKSPACES : STREAM_WORKSPACES, capturing ? "captured launches" : "streams");
}

/* -infinity for results. */
static fl_status fill(const struct cuda_driver *cuda, const float *results, size_t count, const char *name,
                      CUstream stream, struct failure *failure) {
    const float infinity = -INFINITY;
    unsigned bits;
    memcpy(&bits, &infinity, sizeof bits);
    return driver_error(cuda, cuda->cuMemsetD32Async((CUdeviceptr)(uintptr_t)results, bits, count, stream), failure,
                        name);
}

static fl_status launch(struct fl_library *library, const struct plan *plan, const struct call *call, CUstream stream,
                        struct failure *failure) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    struct tensor_layout layouts[N_TENSORS];
    tensor_maps maps;
    extended_args extended = call->args;
    attention_args *const args = &extended.serving.attention;
    args->Q = call->tensors.q;
    args->K = call->tensors.k;
    args->V = call->tensors.v;
    args->O = call->tensors.o;
    args->LSE = call->tensors.lse;
    serving_pass_arrays(&call->tensors, &extended);
    serving_fit(plan->config, &call->problem, plan->context->device->sms, &extended);
    if (config_has(plan->config, TICKETS)) {
        const fl_status status = find_tickets(library, plan, call, stream, &args->tickets, failure);
        if (status) return status;
    }
    if (config_has(plan->config, TENSOR_COPIES)) {
        tensor_layouts(args, plan->config, layouts);
        const enum status status = tensor_maps_of_driver(cuda, plan->config->dtype, layouts, &maps, failure);
        if (status) return status_of(status);
    }
    union kernel_args first = serving_kernel_args(plan->config, &extended);
    if (extended.max_logits) {
        const size_t count = (size_t)serving_array_bytes(&call->problem, MAX_LOGITS) / sizeof(float);
        const fl_status status =
            fill(cuda, extended.max_logits, count, "cuMemsetD32Async of max_logits", stream, failure);
        if (status) return status;
    }
    enum status status = STATUS_OK;
    for (int i = 0; i < plan->launches && !status; i++) {
        if (i > 0) first.extended.combines = 1;
        status = gpu_kernel_launch(cuda, &plan->kernel, &plan->shape, &first.attention, &maps, stream, failure);
    }
    return status_of(status);
}

/* No key: O = 0 and log-sum-exp = -infinity. */
static fl_status clear(struct fl_library *library, const struct call *call, CUstream stream, struct failure *failure) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    if (!call_is_contiguous(call, TENSOR_O))
        return refuse(failure, FL_UNSUPPORTED, "seq_k 0: O = 0 can only be written to a contiguous o");
    TRY(cuda->cuMemsetD8Async((CUdeviceptr)(uintptr_t)call->tensors.o, 0, call_bytes(call, TENSOR_O), stream),
        "cuMemsetD8Async of O");
    return call->tensors.lse ? fill(cuda, call->tensors.lse, (size_t)call_lse_elements(call),
                                    "cuMemsetD32Async of log-sum-exp", stream, failure)
                             : FL_OK;
}

/* In the context of the call, which is current. */
static fl_status forward_here(struct fl_library *library, CUcontext handle, CUstream stream, struct failure *failure) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    const struct call *const call = &last.call;
    const bool lse = call->tensors.lse != NULL, latent = call_is_latent(call);
    uint64_t id;
    TRY(cuda->cuCtxGetId(handle, &id), "cuCtxGetId");
    if (last.library != library->id || last.handle != handle || last.context != id || last.lse != lse ||
        last.latent != latent) {
        last.library = 0;
        const fl_status status = make_plan(library, handle, id, call, &last.plan, failure);
        if (status) return status;
        last.library = library->id;
        last.handle = handle;
        last.context = id;
        last.lse = lse;
        last.latent = latent;
    }
    const fl_status status = check_pointers(library, last.plan.context, call, failure);
    if (status) return status;
    return call->problem.seq_k ? launch(library, &last.plan, call, stream, failure)
                               : clear(library, call, stream, failure);
}

static fl_status forward_device(struct fl_library *library, CUstream stream, struct failure *failure) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    CUcontext context;
    bool pushed;
    fl_status status = context_of(library, &last.call.problem, last.call.tensors.q, stream, &context, failure);
    if (status || (status = enter(cuda, context, &pushed, failure))) return status;
    status = forward_here(library, context, stream, failure);
    leave(cuda, pushed);
    return status;
}

/* ---- host memory ---- */

static int first_usable(const struct gpus *gpus) {
    int i = 0;
    while (i < gpus->count - 1 && !gpus->devices[i].usable) i++;
    return i;
}

/* Device memory for one call, freed at its end. */
struct copies {
    CUdeviceptr tensors[N_TENSORS], arrays[N_ARRAYS], lse, workspace;
    CUstream stream;
};

static fl_status upload(const struct cuda_driver *cuda, const struct call *call, enum tensor tensor, CUdeviceptr to,
                        struct failure *failure) {
    const size_t bytes = call_bytes(call, tensor);
    const void *from = call_address(call, tensor);
    void *packed = NULL;
    if (call->strided) {
        if (!(packed = malloc(bytes))) return refuse_memory(failure, bytes, "a contiguous copy of a tensor");
        call_pack(call, tensor, packed);
        from = packed;
    }
    const CUresult copied = cuda->cuMemcpyHtoD_v2(to, from, bytes);
    free(packed);
    return driver_error(cuda, copied, failure, "cuMemcpyHtoD of a tensor");
}

static fl_status download(const struct cuda_driver *cuda, const struct call *call, const struct copies *copies,
                          struct failure *failure) {
    const size_t bytes = call_bytes(call, TENSOR_O);
    void *packed = NULL;
    if (call->strided && !(packed = malloc(bytes))) return refuse_memory(failure, bytes, "a contiguous copy of O");
    const CUresult copied = cuda->cuMemcpyDtoH_v2(packed ? packed : call->tensors.o, copies->tensors[TENSOR_O], bytes);
    if (packed && !copied) call_unpack(call, packed);
    free(packed);
    TRY(copied, "cuMemcpyDtoH of O");
    if (call->tensors.lse)
        TRY(cuda->cuMemcpyDtoH_v2(call->tensors.lse, copies->lse, sizeof(float) * (size_t)call_lse_elements(call)),
            "cuMemcpyDtoH of log-sum-exp");
    if (call->tensors.max_logits)
        TRY(cuda->cuMemcpyDtoH_v2(call->tensors.max_logits, copies->arrays[MAX_LOGITS],
                                  (size_t)serving_array_bytes(&call->problem, MAX_LOGITS)),
            "cuMemcpyDtoH of max_logits");
    return FL_OK;
}

/* Lengths, pages and sinks, and log-sum-exp, of which a kernel may leave rows as they are. */
static fl_status upload_arrays(const struct cuda_driver *cuda, const struct call *call, struct copies *copies,
                               struct failure *failure) {
    const size_t lse_bytes = sizeof(float) * (size_t)call_lse_elements(call);
    for (int i = 0; i < N_ARRAYS; i++) {
        const size_t bytes = (size_t)serving_array_bytes(&call->problem, i);
        if (!bytes) continue;
        TRY(cuda->cuMemAlloc_v2(&copies->arrays[i], bytes), "cuMemAlloc of an array");
        TRY(cuda->cuMemcpyHtoD_v2(copies->arrays[i], serving_array(&call->tensors, i), bytes),
            "cuMemcpyHtoD of an array");
    }
    if (!call->tensors.lse) return FL_OK;
    TRY(cuda->cuMemAlloc_v2(&copies->lse, lse_bytes), "cuMemAlloc of log-sum-exp");
    TRY(cuda->cuMemcpyHtoD_v2(copies->lse, call->tensors.lse, lse_bytes), "cuMemcpyHtoD of log-sum-exp");
    return FL_OK;
}

static fl_status make_copies(const struct cuda_driver *cuda, const struct plan *plan, const struct call *call,
                             struct copies *copies, struct failure *failure) {
    const size_t workspace_bytes = (size_t)plan->workspace_bytes;
    for (int t = 0; t < N_TENSORS; t++) {
        const enum tensor tensor = (enum tensor)t;
        TRY(cuda->cuMemAlloc_v2(&copies->tensors[t], call_bytes(call, tensor)), "cuMemAlloc of a tensor");
        const bool written = tensor == TENSOR_O && !call->problem.arrays; /* every row */
        const fl_status status = written ? FL_OK : upload(cuda, call, tensor, copies->tensors[t], failure);
        if (status) return status;
    }
    const fl_status status = upload_arrays(cuda, call, copies, failure);
    if (status) return status;
    TRY(cuda->cuMemAlloc_v2(&copies->workspace, workspace_bytes), "cuMemAlloc of a workspace");
    /* The copies may still be under way in the default stream, which this stream waits for. */
    TRY(cuda->cuStreamCreate(&copies->stream, CU_STREAM_DEFAULT), "cuStreamCreate");
    TRY(cuda->cuMemsetD8Async(copies->workspace, 0, workspace_bytes, copies->stream), "cuMemsetD8Async");
    return FL_OK;
}

static void free_copies(const struct cuda_driver *cuda, const struct copies *copies) {
    for (int t = 0; t < N_TENSORS; t++)
        if (copies->tensors[t]) cuda->cuMemFree_v2(copies->tensors[t]);
    for (int i = 0; i < N_ARRAYS; i++)
        if (copies->arrays[i]) cuda->cuMemFree_v2(copies->arrays[i]);
    if (copies->lse) cuda->cuMemFree_v2(copies->lse);
    if (copies->workspace) cuda->cuMemFree_v2(copies->workspace);
    if (copies->stream) cuda->cuStreamDestroy_v2(copies->stream);
}

/* The primary context is current. */
static fl_status forward_copies(struct fl_library *library, CUcontext handle, const struct call *call,
                                struct failure *failure) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    struct copies copies = {0};
    struct plan plan;
    uint64_t id;
    TRY(cuda->cuCtxGetId(handle, &id), "cuCtxGetId");
    fl_status status = make_plan(library, handle, id, call, &plan, failure);
    if (status) return status;
    if (!(status = make_copies(cuda, &plan, call, &copies, failure))) {
        struct call packed = *call;
        call_make_contiguous(&packed);
        packed.tensors.q = (const void *)(uintptr_t)copies.tensors[TENSOR_Q];
        packed.tensors.k = (const void *)(uintptr_t)copies.tensors[TENSOR_K];
        packed.tensors.v = (const void *)(uintptr_t)copies.tensors[TENSOR_V];
        packed.tensors.o = (void *)(uintptr_t)copies.tensors[TENSOR_O];
        packed.tensors.lse = (float *)(uintptr_t)copies.lse;
        packed.tensors.workspace = (void *)(uintptr_t)copies.workspace;
        for (int i = 0; i < N_ARRAYS; i++) serving_set_array(&packed.tensors, i, copies.arrays[i]);
        status = launch(library, &plan, &packed, copies.stream, failure);
    }
    if (!status) status = driver_error(cuda, cuda->cuStreamSynchronize(copies.stream), failure, plan.kernel.symbol);
    if (!status) status = download(cuda, call, &copies, failure);
    free_copies(cuda, &copies);
    return status;
}

static fl_status forward_host(struct fl_library *library, const struct call *call, struct failure *failure) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    const int ordinal = call->problem.device >= 0 ? call->problem.device : first_usable(library->gpus);
    CUcontext context;
    bool pushed;
    if (!call->problem.seq_k) return call_clear(call), FL_OK;
    fl_status status = primary_context(library, ordinal, &context, failure);
    if (status || (status = enter(cuda, context, &pushed, failure))) return status;
    status = forward_copies(library, context, call, failure);
    leave(cuda, pushed);
    return status;
}

/* ---- what flashladder.c calls ---- */

fl_status gpu_forward(struct fl_library *library, const fl_problem *problem, const fl_tensors *tensors, void *stream,
                      struct failure *failure) {
    fl_status status = read_call(problem, tensors, failure);
    if (status || (status = check_device(library, last.call.problem.device, failure))) return status;
    if (call_is_empty(&last.call)) return FL_OK;
    if (last.call.problem.memory == FL_DEVICE_MEMORY) return forward_device(library, stream, failure);
    if ((status = check_host_stream(stream, failure))) return status;
    return forward_host(library, &last.call, failure);
}

/* The GPU of a problem before any tensor is known: the one that is asked for, else that of the current context, else
 * the first that can be used. */
static fl_status device_of(const struct fl_library *library, const struct call *call, int *ordinal,
                           struct failure *failure) {
    const struct gpus *const gpus = library->gpus;
    CUcontext context = NULL;
    CUdevice device;
    const fl_status status = check_device(library, call->problem.device, failure);
    if (status) return status;
    *ordinal = call->problem.device >= 0 ? call->problem.device : first_usable(gpus);
    if (call->problem.device >= 0 || call->problem.memory == FL_HOST_MEMORY) return FL_OK;
    if (gpus->cuda.cuCtxGetCurrent(&context) || !context || gpus->cuda.cuCtxGetDevice(&device)) return FL_OK;
    for (int i = 0; i < gpus->count; i++)
        if (gpus->devices[i].handle == device) *ordinal = i;
    return FL_OK;
}

fl_status gpu_query(struct fl_library *library, const struct call *call, struct choice *choice,
                    struct failure *failure) {
    int ordinal;
    const fl_status status = device_of(library, call, &ordinal, failure);
    if (status) return status;
    const struct device *const device = &library->gpus->devices[ordinal];
    const fl_status chosen = choose(library, call, &device->target, choice, failure);
    if (chosen || !config_has(&choice->instance->config, TICKETS)) return chosen;
    extended_args args = call->args;
    serving_fit(&choice->instance->config, &call->problem, device->sms, &args);
    choice->workspace_bytes = launch_workspace_bytes(&choice->instance->config, &args.serving.attention, device->sms);
    return FL_OK;
}

fl_status gpu_prepare(struct fl_library *library, const struct call *call, struct failure *failure) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    struct plan plan;
    CUcontext context = NULL;
    CUdevice device = -1;
    bool pushed;
    uint64_t id;
    int ordinal;
    fl_status status = device_of(library, call, &ordinal, failure);
    if (status) return status;
    TRY(cuda->cuCtxGetCurrent(&context), "cuCtxGetCurrent");
    if (context) TRY(cuda->cuCtxGetDevice(&device), "cuCtxGetDevice");
    const bool current = context && device == library->gpus->devices[ordinal].handle;
    if (!current || call->problem.memory == FL_HOST_MEMORY)
        status = primary_context(library, ordinal, &context, failure);
    if (status || (status = enter(cuda, context, &pushed, failure))) return status;
    status = driver_error(cuda, cuda->cuCtxGetId(context, &id), failure, "cuCtxGetId");
    if (!status) status = make_plan(library, context, id, call, &plan, failure);
    leave(cuda, pushed);
    return status;
}

/* ---- gradients ---- */

fl_status gpu_query_backward(struct fl_library *library, const struct call *call, struct choice *choice,
                             struct failure *failure) {
    int ordinal;
    const fl_status status = device_of(library, call, &ordinal, failure);
    if (status) return status;
    return gradients_query(library, call, &library->gpus->devices[ordinal].target, choice, failure);
}

/* The instance and its kernels in the context, which is current. */
static fl_status plan_backward(struct fl_library *library, CUcontext handle, const struct gradient_call *asked,
                               struct context **context, struct choice *choice, struct gpu_kernel kernels[MOST_STEPS],
                               struct failure *failure) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    uint64_t id;
    TRY(cuda->cuCtxGetId(handle, &id), "cuCtxGetId");
    pthread_mutex_lock(&library->lock);
    fl_status status = context_for(library, handle, id, &asked->call, context, failure);
    if (!status)
        status = gradients_choose(library, &asked->call, asked->gradients.deterministic, &(*context)->device->target,
                                  choice, failure);
    if (!status) status = load_relaxed(library, *context, choice, kernels, failure);
    pthread_mutex_unlock(&library->lock);
    return status;
}

/* Put the kernels of a pass into the stream: tensors and workspace are device memory. */
static fl_status launch_backward(const struct cuda_driver *cuda, const struct instance *instance, int sms,
                                 const struct gpu_kernel kernels[MOST_STEPS], const struct gradient_call *asked,
                                 CUdeviceptr workspace, CUstream stream, struct failure *failure) {
    const struct kernel_config *const config = &instance->config;
    const struct gpu_kernel *const in_order[] = {&kernels[1], &kernels[0], &kernels[2]};
    backward_strided_args args = gradients_args(asked, config, workspace);
    const attention_args *const attention = &args.serving.backward.attention;
    struct tensor_layout layouts[N_TENSORS];
    struct step steps[MOST_STEPS];
    tensor_maps maps;
    fl_status status = FL_OK;
    if (config_has(config, TENSOR_COPIES)) {
        tensor_layouts(attention, config, layouts);
        status = status_of(tensor_maps_of_driver(cuda, config->dtype, layouts, &maps, failure));
    }
    gradients_write_strides(config, &args);
    const int count = backward_steps(instance, attention, sms, steps);
    for (int i = 0; i < count && !status; i++)
        status = status_of(gpu_kernel_launch(cuda, in_order[i], &steps[i].shape, attention, &maps, stream, failure));
    return status;
}

static fl_status check_gradient_pointers(const struct fl_library *library, const struct context *context,
                                         const struct gradient_call *asked, struct failure *failure) {
    const int ordinal = (int)(context->device - library->gpus->devices);
    const fl_gradients *const gradients = &asked->gradients;
    const struct {
        const char *name;
        const void *address;
    } all[] = {{"dout", gradients->dout},
               {"dq", gradients->dq},
               {"dk", gradients->dk},
               {"dv", gradients->dv},
               {"dsinks", gradients->dsinks}};
    fl_status status = check_pointers(library, context, &asked->call, failure);
    for (size_t i = 0; i < sizeof all / sizeof *all && !status; i++)
        if (all[i].address)
            status = check_pointer(&library->gpus->cuda, context, all[i].name, all[i].address, ordinal, failure);
    return status;
}

/* No query or no key: the gradients that have elements are 0. */
static fl_status clear_gradients(const struct cuda_driver *cuda, const struct gradient_call *asked, CUstream stream,
                                 struct failure *failure) {
    for (int i = 0; i < N_GRADIENTS; i++) {
        const int64_t head = asked->call.problem.d_head, elements = call_elements(&asked->call, gradient_of(i));
        const int64_t seq = head * call_heads(&asked->call, gradient_of(i));
        const tensor_strides strides = gradient_strides(asked, i);
        if (!elements) continue;
        if (strides.head != head || strides.seq != seq ||
            strides.batch != seq * call_rows(&asked->call, gradient_of(i)))
            return refuse(failure, FL_UNSUPPORTED, "no query or no key: %s = 0 can only be written to a contiguous %s",
                          gradient_name(i), gradient_name(i));
        TRY(cuda->cuMemsetD8Async((CUdeviceptr)(uintptr_t)gradient_address(asked, i), 0, 2 * (size_t)elements, stream),
            "cuMemsetD8Async of a gradient");
    }
    const size_t dsinks_bytes = gradients_dsinks_bytes(asked);
    if (dsinks_bytes)
        TRY(cuda->cuMemsetD8Async((CUdeviceptr)(uintptr_t)asked->gradients.dsinks, 0, dsinks_bytes, stream),
            "cuMemsetD8Async of dsinks");
    return FL_OK;
}

/* In the context of the call, which is current. */
static fl_status backward_here(struct fl_library *library, CUcontext handle, const struct gradient_call *asked,
                               CUstream stream, struct failure *failure) {
    struct gpu_kernel kernels[MOST_STEPS];
    struct context *context;
    struct choice choice;
    fl_status status = plan_backward(library, handle, asked, &context, &choice, kernels, failure);
    if (!status) status = check_gradient_pointers(library, context, asked, failure);
    if (status) return status;
    if (gradients_are_zero(asked)) return clear_gradients(&library->gpus->cuda, asked, stream, failure);
    if (!asked->call.tensors.workspace) {
        status = gradients_query(library, &asked->call, &context->device->target, &choice, failure);
        return status ? status
                      : refuse(failure, FL_INVALID,
                               "workspace: must be %" PRId64 " bytes of device memory, as fl_query_backward() reports",
                               choice.workspace_bytes);
    }
    return launch_backward(&library->gpus->cuda, choice.instance, context->device->sms, kernels, asked,
                           (CUdeviceptr)(uintptr_t)asked->call.tensors.workspace, stream, failure);
}

/* ---- gradients of host memory ---- */

enum {
    OF_WORKSPACE,
    OF_LSE,
    OF_DOUT,
    OF_DSINKS,
    OF_ARRAYS,
    OF_TENSORS = OF_ARRAYS + N_ARRAYS,
    OF_GRADIENTS = OF_TENSORS + N_TENSORS
};

/* Device memory for one call. */
struct gradient_copies {
    CUdeviceptr of[OF_GRADIENTS + N_GRADIENTS];
    CUstream stream;
};

/* Allocate, and copy from the host where there is something. */
static fl_status make_copy(const struct cuda_driver *cuda, CUdeviceptr *made, size_t bytes, const void *from,
                           struct failure *failure) {
    TRY(cuda->cuMemAlloc_v2(made, bytes), "cuMemAlloc of a tensor");
    if (from) TRY(cuda->cuMemcpyHtoD_v2(*made, from, bytes), "cuMemcpyHtoD of a tensor");
    return FL_OK;
}

static fl_status make_gradient_copies(const struct cuda_driver *cuda, const struct gradient_call *asked,
                                      const struct kernel_config *config, struct gradient_copies *copies,
                                      uint16_t *packed, struct failure *failure) {
    const struct call *const call = &asked->call;
    fl_status status =
        make_copy(cuda, &copies->of[OF_WORKSPACE], (size_t)gradients_workspace_bytes(config, call), NULL, failure);
    if (!status)
        status = make_copy(cuda, &copies->of[OF_LSE], sizeof(float) * (size_t)call_lse_elements(call),
                           call->tensors.lse, failure);
    for (int i = 0; i < N_ARRAYS && !status; i++) {
        const size_t bytes = (size_t)serving_array_bytes(&call->problem, i);
        if (bytes)
            status = make_copy(cuda, &copies->of[OF_ARRAYS + i], bytes, serving_array(&call->tensors, i), failure);
    }
    if (!status && asked->gradients.dsinks)
        status = make_copy(cuda, &copies->of[OF_DSINKS], gradients_dsinks_bytes(asked), NULL, failure);
    gradients_pack(asked, packed);
    if (!status)
        status = make_copy(cuda, &copies->of[OF_DOUT], 2 * (size_t)call_elements(call, TENSOR_O), packed, failure);
    for (int t = 0; t < N_TENSORS && !status; t++) {
        call_pack(call, (enum tensor)t, packed);
        status = make_copy(cuda, &copies->of[OF_TENSORS + t], 2 * (size_t)call_elements(call, (enum tensor)t), packed,
                           failure);
    }
    for (int i = 0; i < N_GRADIENTS && !status; i++)
        status = make_copy(cuda, &copies->of[OF_GRADIENTS + i], 2 * (size_t)call_elements(call, gradient_of(i)), NULL,
                           failure);
    /* The copies may still be under way in the default stream, which this stream waits for. */
    if (!status) TRY(cuda->cuStreamCreate(&copies->stream, CU_STREAM_DEFAULT), "cuStreamCreate");
    return status;
}

/* The call on the copies. */
static struct gradient_call call_of_copies(const struct gradient_call *asked, const struct gradient_copies *copies) {
    struct gradient_call made = *asked;
    gradients_make_contiguous(&made);
    made.call.tensors.q = (const void *)(uintptr_t)copies->of[OF_TENSORS + TENSOR_Q];
    made.call.tensors.k = (const void *)(uintptr_t)copies->of[OF_TENSORS + TENSOR_K];
    made.call.tensors.v = (const void *)(uintptr_t)copies->of[OF_TENSORS + TENSOR_V];
    made.call.tensors.o = (void *)(uintptr_t)copies->of[OF_TENSORS + TENSOR_O];
    made.call.tensors.lse = (float *)(uintptr_t)copies->of[OF_LSE];
    for (int i = 0; i < N_ARRAYS; i++) serving_set_array(&made.call.tensors, i, copies->of[OF_ARRAYS + i]);
    made.gradients.dout = (const void *)(uintptr_t)copies->of[OF_DOUT];
    made.gradients.dq = (void *)(uintptr_t)copies->of[OF_GRADIENTS];
    made.gradients.dk = (void *)(uintptr_t)copies->of[OF_GRADIENTS + 1];
    made.gradients.dv = (void *)(uintptr_t)copies->of[OF_GRADIENTS + 2];
    made.gradients.dsinks = (float *)(uintptr_t)copies->of[OF_DSINKS];
    return made;
}

/* The primary context is current. `packed` holds any of the tensors. */
static fl_status backward_copies(struct fl_library *library, CUcontext handle, const struct gradient_call *asked,
                                 uint16_t *packed, struct failure *failure) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    struct gradient_copies copies = {0};
    struct gpu_kernel kernels[MOST_STEPS];
    struct context *context;
    struct choice choice;
    fl_status status = plan_backward(library, handle, asked, &context, &choice, kernels, failure);
    if (status) return status;
    if (gradients_are_zero(asked)) return gradients_clear(asked), FL_OK;
    status = make_gradient_copies(cuda, asked, &choice.instance->config, &copies, packed, failure);
    if (!status) {
        const struct gradient_call made = call_of_copies(asked, &copies);
        status = launch_backward(cuda, choice.instance, context->device->sms, kernels, &made, copies.of[OF_WORKSPACE],
                                 copies.stream, failure);
    }
    if (!status) status = driver_error(cuda, cuda->cuStreamSynchronize(copies.stream), failure, kernels[0].symbol);
    for (int i = 0; i < N_GRADIENTS && !status; i++) {
        const size_t bytes = 2 * (size_t)call_elements(&asked->call, gradient_of(i));
        status = driver_error(cuda, cuda->cuMemcpyDtoH_v2(packed, copies.of[OF_GRADIENTS + i], bytes), failure,
                              "cuMemcpyDtoH of a gradient");
        if (!status) gradients_unpack(asked, i, packed);
    }
    if (!status && asked->gradients.dsinks)
        status = driver_error(
            cuda, cuda->cuMemcpyDtoH_v2(asked->gradients.dsinks, copies.of[OF_DSINKS], gradients_dsinks_bytes(asked)),
            failure, "cuMemcpyDtoH of dsinks");
    for (size_t i = 0; i < sizeof copies.of / sizeof *copies.of; i++)
        if (copies.of[i]) cuda->cuMemFree_v2(copies.of[i]);
    if (copies.stream) cuda->cuStreamDestroy_v2(copies.stream);
    return status;
}

static fl_status backward_host(struct fl_library *library, CUcontext handle, const struct gradient_call *asked,
                               struct failure *failure) {
    const int64_t of_Q = call_elements(&asked->call, TENSOR_Q), of_K = call_elements(&asked->call, TENSOR_K);
    const size_t bytes = 2 * (size_t)(of_Q > of_K ? of_Q : of_K) + 1;
    uint16_t *const packed = malloc(bytes);
    if (!packed) return refuse_memory(failure, bytes, "a contiguous copy of a tensor");
    const fl_status status = backward_copies(library, handle, asked, packed, failure);
    free(packed);
    return status;
}

fl_status gpu_backward(struct fl_library *library, const fl_problem *problem, const fl_tensors *tensors,
                       const fl_gradients *gradients, void *stream, struct failure *failure) {
    const struct cuda_driver *const cuda = &library->gpus->cuda;
    struct gradient_call asked;
    CUcontext context;
    bool pushed;
    fl_status status = gradients_read(problem, tensors, gradients, &asked, failure);
    if (status || (status = check_device(library, asked.call.problem.device, failure))) return status;
    if (!asked.call.problem.batch) return FL_OK;
    const bool host = asked.call.problem.memory == FL_HOST_MEMORY;
    const int ordinal = asked.call.problem.device >= 0 ? asked.call.problem.device : first_usable(library->gpus);
    const void *const any = asked.call.tensors.q ? asked.call.tensors.q : asked.call.tensors.k;
    if (host && (status = check_host_stream(stream, failure))) return status;
    status = host ? primary_context(library, ordinal, &context, failure)
                  : context_of(library, &asked.call.problem, any, stream, &context, failure);
    if (status || (status = enter(cuda, context, &pushed, failure))) return status;
    status = host ? backward_host(library, context, &asked, failure)
                  : backward_here(library, context, &asked, stream, failure);
    leave(cuda, pushed);
    return status;
}
