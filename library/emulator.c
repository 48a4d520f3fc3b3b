#include "library/emulator.h"

#include "library/serving.h"
#include "runtime/launch.h"
#include "runtime/parameters.h"

#include <inttypes.h>
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

static fl_status make_tensors(emu_device *device, const KernelConfig *config, const struct call *call,
                              struct device_tensors *made, struct failure *failure) {
    static const char *const names[N_TENSORS] = {"Q", "K", "V", "O"};
    const uint64_t lse_bytes = sizeof(float) * (uint64_t)call_lse_elements(call);
    for (int t = 0; t < N_TENSORS; t++) {
        const enum tensor tensor = (enum tensor)t;
        const uint64_t bytes = 2 * (uint64_t)call_elements(call, tensor);
        made->tensors[t] = emu_alloc(device, names[t], bytes, EMU_BUFFER);
        if (!made->tensors[t]) return refuse_memory(failure, bytes, "a tensor of the emulator");
        call_pack(call, tensor, emu_host_bytes(device, made->tensors[t]));
    }
    made->lse = call->tensors.lse ? emu_alloc(device, "LSE", lse_bytes, EMU_BUFFER) : 0;
    const size_t tickets_bytes = (size_t)launch_workspace_bytes(config, &call->args.attention, MULTIPROCESSORS);
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
        const uint64_t bytes = 4 * (uint64_t)serving_array_elements(&call->problem, i);
        if (!bytes) continue;
        const uint64_t made = emu_alloc(device, serving_array_name(i), bytes, EMU_BUFFER);
        if (!made) return refuse_memory(failure, bytes, "an array of the emulator");
        memcpy(emu_host_bytes(device, made), serving_array(&call->tensors, i), bytes);
        serving_set_array(&packed->tensors, i, made);
    }
    serving_pass_arrays(&packed->tensors, &packed->args);
    return FL_OK;
}

/* The launch, to its end. Only bounds are checked; a kernel that is refused, stops or leaves them is an error. */
static fl_status run(emu_device *device, const struct choice *choice, const serving_args *serving,
                     struct failure *failure) {
    const KernelConfig *const config = &choice->instance->config;
    const attention_args *const args = &serving->attention;
    const launch_shape shape = launch_of(config, args, MULTIPROCESSORS);
    struct parameter_block block;
    emu_error error = {0};
    size_t count = 0;
    if (parameters_of_emulator(config, args, &block, failure)) return FL_ERROR;
    const emu_launch launch = {.entry = choice->instance->entry,
                               .grid = {shape.grid_x, shape.grid_y, shape.grid_z},
                               .block = {shape.threads, 1, 1},
                               .dynamic_shared = shape.smem_bytes,
                               .params = block.bytes,
                               .param_bytes = block.size};
    const emu_status ended = emu_run(device, choice->version->module, &launch, &error);
    if (ended == EMU_OK) return FL_OK;
    const emu_finding *const findings = emu_findings(device, &count);
    if (ended == EMU_REFUSED)
        return refuse(failure, FL_ERROR, "the emulator refuses %s: line %d of the PTX: %s", choice->instance->symbol,
                      error.line, error.text);
    return refuse(failure, FL_ERROR, "the emulator stopped %s: %s", choice->instance->symbol,
                  count ? findings[0].message : "no reason is known");
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
        attention_args *const args = &packed.args.attention;
        args->Q = (const void *)(uintptr_t)made.tensors[TENSOR_Q];
        args->K = (const void *)(uintptr_t)made.tensors[TENSOR_K];
        args->V = (const void *)(uintptr_t)made.tensors[TENSOR_V];
        args->O = (void *)(uintptr_t)made.tensors[TENSOR_O];
        args->LSE = (float *)(uintptr_t)made.lse;
        args->tickets = choice->instance->config.tickets ? (int32_t *)(uintptr_t)made.tickets : NULL;
        status = run(device, choice, &packed.args, failure);
    }
    if (!status) {
        call_unpack(call, emu_host_bytes(device, made.tensors[TENSOR_O]));
        if (made.lse)
            memcpy(call->tensors.lse, emu_host_bytes(device, made.lse),
                   sizeof(float) * (size_t)call_lse_elements(call));
    }
    emu_device_free(device);
    return status;
}
