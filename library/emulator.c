#include "library/emulator.h"

#include "library/serving.h"
#include "runtime/launch.h"
#include "runtime/parameters.h"

#include <fenv.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Few, so that a small problem has whole waves of CTAs and a part of one. */
enum { MULTIPROCESSORS = 16 };

fl_status emulator_prepare(struct fl_library *library, const struct choice *choice, struct failure *failure) {
    struct embedded *const version = choice->version;
    const struct code_image *const ptx = image_find(version->about->images, *version->about->image_count, "ptx");
    emu_error error = {0};
    pthread_mutex_lock(&library->lock);
    if (!version->module) version->module = emu_load((const char *)ptx->bytes, ptx->size, &error);
    const bool loaded = version->module && emu_decode(version->module, choice->instance->entry, &error);
    pthread_mutex_unlock(&library->lock);
    if (loaded) return FL_OK;
    return refuse(failure, FL_ERROR, "the emulator cannot load the PTX of %s: line %d: %s", version->about->version,
                  error.line, error.text);
}

/* Tensors of the emulator's device. */
struct device_tensors {
    uint64_t tensors[N_TENSORS];
    uint64_t lse, tickets; /* lse is 0 where it is not wanted */
};

/* A buffer of the emulator's device; 0 and the failure where there is no memory. */
static uint64_t make_buffer(emu_device *device, const char *name, uint64_t bytes, struct failure *failure) {
    const uint64_t made = emu_alloc(device, name, bytes, EMU_BUFFER);
    if (!made) refuse_memory(failure, bytes, "a tensor of the emulator");
    return made;
}

/* A tensor on the emulator's device. Inputs without gaps stay where they are: two copies of a cache may be more than
 * this machine has memory for. */
static uint64_t make_tensor(emu_device *device, const struct call *call, enum tensor tensor, struct failure *failure) {
    static const char *const names[N_TENSORS] = {"Q", "K", "V", "O"};
    const uint64_t bytes = call_bytes(call, tensor);
    if (tensor == TENSOR_O || !call_is_contiguous(call, tensor)) {
        const uint64_t made = make_buffer(device, names[tensor], bytes, failure);
        if (made) call_pack(call, tensor, emu_host_bytes(device, made));
        return made;
    }
    const uint64_t mapped = emu_map(device, names[tensor], (void *)(uintptr_t)call_address(call, tensor), bytes);
    if (!mapped) refuse_memory(failure, bytes, "a tensor of the emulator");
    return mapped;
}

static fl_status make_tensors(emu_device *device, const struct kernel_config *config, const struct call *call,
                              struct device_tensors *made, struct failure *failure) {
    const uint64_t lse_bytes = sizeof(float) * (uint64_t)call_lse_elements(call);
    for (int t = 0; t < N_TENSORS; t++)
        if (!(made->tensors[t] = make_tensor(device, call, (enum tensor)t, failure))) return FL_ERROR;
    made->lse = call->tensors.lse ? emu_alloc(device, "LSE", lse_bytes, EMU_BUFFER) : 0;
    extended_args args = call->args;
    serving_fit(config, &call->problem, MULTIPROCESSORS, &args);
    const size_t tickets_bytes = (size_t)launch_workspace_bytes(config, &args.serving.attention, MULTIPROCESSORS);
    made->tickets = emu_alloc(device, "tickets", tickets_bytes, EMU_BUFFER);
    if (!made->tickets || (call->tensors.lse && !made->lse))
        return refuse_memory(failure, lse_bytes, "log-sum-exp in the emulator");
    memset(emu_host_bytes(device, made->tickets), 0, tickets_bytes);
    if (made->lse) memcpy(emu_host_bytes(device, made->lse), call->tensors.lse, lse_bytes);
    return FL_OK;
}

/* Lengths, pages and sinks. */
static fl_status make_arrays(emu_device *device, const struct call *call, struct call *packed,
                             struct failure *failure) {
    for (int i = 0; i < N_ARRAYS; i++) {
        const uint64_t bytes = (uint64_t)serving_array_bytes(&call->problem, i);
        if (!bytes) continue;
        const uint64_t made = emu_alloc(device, serving_array_name(i), bytes, EMU_BUFFER);
        if (!made) return refuse_memory(failure, bytes, "an array of the emulator");
        float *const copied = (float *)emu_host_bytes(device, made);
        memcpy(copied, serving_array(&call->tensors, i), bytes);
        for (size_t n = 0; i == MAX_LOGITS && n < bytes / sizeof *copied; n++) copied[n] = -INFINITY;
        serving_set_array(&packed->tensors, i, made);
    }
    serving_pass_arrays(&packed->tensors, &packed->args);
    return FL_OK;
}

/* Call emu_run() with a GPU's arithmetic, whatever mode the caller's thread has: XLA's threads flush subnormal numbers.
 */
static emu_status run_as_gpu(emu_device *device, const emu_module *module, const emu_launch *launch, emu_error *error) {
    fenv_t callers;
    fegetenv(&callers);
    fesetenv(FE_DFL_ENV);
    const emu_status ended = emu_run(device, module, launch, error);
    fesetenv(&callers);
    return ended;
}

/* A launch, to its end. Only bounds are checked; a kernel that is refused, stops or leaves them is an error. */
static fl_status run_launch(emu_device *device, const struct embedded *version, const emu_launch *launch,
                            const char *symbol, struct failure *failure) {
    emu_error error = {0};
    size_t count = 0;
    const emu_status ended = run_as_gpu(device, version->module, launch, &error);
    if (ended == EMU_OK) return FL_OK;
    const emu_finding *const findings = emu_findings(device, &count);
    if (ended == EMU_REFUSED)
        return refuse(failure, FL_ERROR, "the emulator rejects %s: line %d of the PTX: %s", symbol, error.line,
                      error.text);
    return refuse(failure, FL_ERROR, "the emulator stopped %s: %s", symbol,
                  count ? findings[0].message : "the reason is unknown");
}

static emu_launch launch_with(int entry, const launch_shape *shape, const struct parameter_block *block) {
    return (emu_launch){.entry = entry,
                        .grid = {shape->grid_x, shape->grid_y, shape->grid_z},
                        .block = {shape->threads, 1, 1},
                        .dynamic_shared = shape->smem_bytes,
                        .params = block->bytes,
                        .param_bytes = block->size};
}

static fl_status run(emu_device *device, const struct choice *choice, const struct call *call,
                     struct failure *failure) {
    const struct kernel_config *const config = &choice->instance->config;
    extended_args fitted = call->args;
    serving_fit(config, &call->problem, MULTIPROCESSORS, &fitted);
    union kernel_args first = serving_kernel_args(config, &fitted);
    const attention_args *const args = &first.attention;
    const launch_shape shape = launch_of(config, args, MULTIPROCESSORS);
    struct parameter_block block;
    fl_status status = FL_OK;
    for (int i = 0; i < launch_count(config, args) && !status; i++) {
        if (i > 0) first.extended.combines = 1;
        if (parameters_of_emulator(config, args, &block, failure)) return FL_ERROR;
        const emu_launch launch = launch_with(choice->instance->entry, &shape, &block);
        status = run_launch(device, choice->version, &launch, choice->instance->symbol, failure);
    }
    return status;
}

fl_status emulator_forward(struct fl_library *library, const struct choice *choice, const struct call *call,
                           struct failure *failure) {
    struct call packed = *call;
    struct device_tensors made = {0};
    fl_status status = emulator_prepare(library, choice, failure);
    if (status) return status;
    emu_device *const device = emu_device_new();
    if (!device) return refuse(failure, FL_ERROR, "out of memory for the emulator");
    status = make_tensors(device, &choice->instance->config, call, &made, failure);
    if (!status) status = make_arrays(device, call, &packed, failure);
    if (!status) {
        call_make_contiguous(&packed);
        attention_args *const args = &packed.args.serving.attention;
        args->Q = (const void *)(uintptr_t)made.tensors[TENSOR_Q];
        args->K = (const void *)(uintptr_t)made.tensors[TENSOR_K];
        args->V = (const void *)(uintptr_t)made.tensors[TENSOR_V];
        args->O = (void *)(uintptr_t)made.tensors[TENSOR_O];
        args->LSE = (float *)(uintptr_t)made.lse;
        args->tickets = config_has(&choice->instance->config, TICKETS) ? (int32_t *)(uintptr_t)made.tickets : NULL;
        status = run(device, choice, &packed, failure);
    }
    if (!status) {
        call_unpack(call, emu_host_bytes(device, made.tensors[TENSOR_O]));
        if (made.lse)
            memcpy(call->tensors.lse, emu_host_bytes(device, made.lse),
                   sizeof(float) * (size_t)call_lse_elements(call));
        if (call->tensors.max_logits)
            memcpy(call->tensors.max_logits, emu_host_bytes(device, (uint64_t)(uintptr_t)packed.tensors.max_logits),
                   (size_t)serving_array_bytes(&call->problem, MAX_LOGITS));
    }
    emu_device_free(device);
    return status;
}

/* ---- gradients ---- */

/* All tensors without gaps; the addresses of *packed become those of the device. */
static fl_status make_gradients(emu_device *device, const struct gradient_call *asked, struct gradient_call *packed,
                                struct failure *failure) {
    const struct call *const call = &asked->call;
    const uint64_t O_bytes = 2 * (uint64_t)call_elements(call, TENSOR_O);
    const uint64_t lse_bytes = sizeof(float) * (uint64_t)call_lse_elements(call);
    uint64_t tensors[N_TENSORS], gradients[N_GRADIENTS];
    for (int t = 0; t < N_TENSORS; t++)
        if (!(tensors[t] = make_tensor(device, call, (enum tensor)t, failure))) return FL_ERROR;
    for (int i = 0; i < N_GRADIENTS; i++) {
        const uint64_t bytes = 2 * (uint64_t)call_elements(call, gradient_of(i));
        if (!(gradients[i] = make_buffer(device, gradient_name(i), bytes, failure))) return FL_ERROR;
    }
    const uint64_t dout = make_buffer(device, "dO", O_bytes, failure);
    const uint64_t lse = dout ? make_buffer(device, "LSE", lse_bytes, failure) : 0;
    if (!lse) return FL_ERROR;
    gradients_pack(asked, emu_host_bytes(device, dout));
    memcpy(emu_host_bytes(device, lse), call->tensors.lse, lse_bytes);
    packed->call.tensors.q = (const void *)(uintptr_t)tensors[TENSOR_Q];
    packed->call.tensors.k = (const void *)(uintptr_t)tensors[TENSOR_K];
    packed->call.tensors.v = (const void *)(uintptr_t)tensors[TENSOR_V];
    packed->call.tensors.o = (void *)(uintptr_t)tensors[TENSOR_O];
    packed->call.tensors.lse = (float *)(uintptr_t)lse;
    packed->gradients.dout = (const void *)(uintptr_t)dout;
    packed->gradients.dq = (void *)(uintptr_t)gradients[0];
    packed->gradients.dk = (void *)(uintptr_t)gradients[1];
    packed->gradients.dv = (void *)(uintptr_t)gradients[2];
    const size_t dsinks_bytes = gradients_dsinks_bytes(asked);
    const uint64_t dsinks = dsinks_bytes ? make_buffer(device, "dsinks", dsinks_bytes, failure) : 0;
    packed->gradients.dsinks = (float *)(uintptr_t)dsinks;
    return dsinks_bytes && !dsinks ? FL_ERROR : FL_OK;
}

/* The kernels one after the other. */
static fl_status run_backward(emu_device *device, const struct choice *choice, const struct gradient_call *packed,
                              struct failure *failure) {
    const struct instance *const instance = choice->instance;
    const uint64_t bytes = (uint64_t)gradients_workspace_bytes(&instance->config, &packed->call);
    const uint64_t workspace = make_buffer(device, "workspace", bytes, failure);
    if (!workspace) return FL_ERROR;
    const backward_strided_args args = gradients_args(packed, &instance->config, workspace);
    const attention_args *const attention = &args.serving.backward.attention;
    struct step steps[MOST_STEPS];
    struct parameter_block block;
    const int count = backward_steps(instance, attention, MULTIPROCESSORS, steps);
    if (parameters_of_emulator(&instance->config, attention, &block, failure)) return FL_ERROR;
    const size_t all_bytes = block.size;
    for (int i = 0; i < count; i++) {
        block.size = steps[i].main ? all_bytes : config_args(&instance->config)->bytes;
        const emu_launch launch = launch_with(steps[i].entry, &steps[i].shape, &block);
        const fl_status status = run_launch(device, choice->version, &launch, steps[i].symbol, failure);
        if (status) return status;
    }
    return FL_OK;
}

/* Decode the small kernels, too. */
static fl_status prepare_backward(struct fl_library *library, const struct choice *choice, struct failure *failure) {
    struct choice one = *choice;
    const struct small_kernel small[] = {choice->instance->before, choice->instance->after};
    fl_status status = emulator_prepare(library, choice, failure);
    for (size_t i = 0; i < sizeof small / sizeof *small && !status; i++) {
        struct instance kernel = *choice->instance;
        kernel.entry = small[i].entry;
        one.instance = &kernel;
        status = emulator_prepare(library, &one, failure);
    }
    return status;
}

fl_status emulator_backward(struct fl_library *library, const struct choice *choice, const struct gradient_call *asked,
                            struct failure *failure) {
    struct gradient_call packed = *asked;
    fl_status status = prepare_backward(library, choice, failure);
    if (status) return status;
    emu_device *const device = emu_device_new();
    if (!device) return refuse(failure, FL_ERROR, "out of memory for the emulator");
    status = make_gradients(device, asked, &packed, failure);
    if (!status) status = make_arrays(device, &asked->call, &packed.call, failure);
    gradients_make_contiguous(&packed);
    if (!status) status = run_backward(device, choice, &packed, failure);
    for (int i = 0; i < N_GRADIENTS && !status; i++)
        gradients_unpack(asked, i, emu_host_bytes(device, (uint64_t)(uintptr_t)gradient_address(&packed, i)));
    if (!status && asked->gradients.dsinks)
        memcpy(asked->gradients.dsinks, emu_host_bytes(device, (uint64_t)(uintptr_t)packed.gradients.dsinks),
               gradients_dsinks_bytes(asked));
    emu_device_free(device);
    return status;
}
