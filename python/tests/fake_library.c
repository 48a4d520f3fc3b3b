/* fake_library.c - the functions of flashladder.h that write down what they are given: a GPU is not needed to see what
 * the Python package hands on. Neither O nor log-sum-exp is computed.
 *
 *     cc -shared -fPIC -Iinclude -o libflashladder.so python/tests/fake_library.c
 */
#include "flashladder.h"

#include <stdlib.h>
#include <string.h>

#ifndef FAKE_ABI
#define FAKE_ABI FL_ABI
#endif

struct fl_library {
    int opened;
};

struct fake_call {
    fl_problem problem;
    fl_tensors tensors;
    void *stream;
    int64_t calls;
    char version[32];
};

__attribute__((visibility("default"))) struct fake_call fake_last;
__attribute__((visibility("default"))) fl_status fake_status; /* what the next calls return */

uint32_t fl_abi(void) {
    return FAKE_ABI;
}

const char *fl_release(void) {
    return "0.0.1 (fake)";
}

const char *fl_error(void) {
    return "the fake library was told to fail";
}

fl_status fl_open(fl_backend backend, fl_library **library) {
    *library = calloc(1, sizeof **library);
    return backend == FL_AUTO ? FL_OK : FL_INVALID;
}

void fl_close(fl_library *library) {
    free(library);
}

fl_status fl_describe(fl_library *library, fl_description *description) {
    if (!library || description->size != sizeof *description) return FL_INVALID;
    *description = (fl_description){sizeof *description, FL_GPU, 1, 4, 0, ""};
    return FL_OK;
}

fl_status fl_device(fl_library *library, int32_t device, fl_device_info *info) {
    if (!library || info->size != sizeof *info || device) return FL_INVALID;
    *info = (fl_device_info){sizeof *info, "fake GPU", 9, 0, 132, 1, 1LL << 37};
    return FL_OK;
}

/* Two versions of two instances each; the second one of v90 has no causal mask. */
fl_status fl_kernel(fl_library *library, int32_t kernel, fl_kernel_info *info) {
    if (!library || info->size != sizeof *info || kernel < 0 || kernel > 3) return FL_INVALID;
    *info = (fl_kernel_info){.size = sizeof *info,
                             .archs = "sm_80 sm_90",
                             .dtype = kernel % 2 ? FL_BF16 : FL_FP16,
                             .d_head = kernel % 2 ? 128 : 64,
                             .features = FL_ANY_LENGTH | (kernel == 1 ? 0 : FL_CAUSAL),
                             .own = 1};
    strcpy(info->version, "cut");
    strcpy(info->kernel, kernel < 2 ? "v90" : "v91");
    strcpy(info->name, kernel < 2 ? "one" : "another");
    strcpy(info->config, kernel % 2 ? "(BF16, 128)" : "(FP16, 64)");
    return FL_OK;
}

fl_status fl_query(fl_library *library, const fl_problem *problem, fl_support *support) {
    if (!library || problem->size != sizeof *problem || support->size != sizeof *support) return FL_INVALID;
    if (fake_status) return fake_status;
    *support = (fl_support){.size = sizeof *support, .version = "cut", .config = "(FP16, 64)", .measured = 1};
    strcpy(support->kernel, "v91");
    strcpy(support->order, "it is fake");
    return FL_OK;
}

/* Arguments of the last backward call. */
__attribute__((visibility("default"))) fl_gradients fake_gradients;

fl_status fl_query_backward(fl_library *library, const fl_problem *problem, fl_support *support) {
    const fl_status status = fl_query(library, problem, support);
    if (!status && problem->memory == FL_DEVICE_MEMORY) support->workspace_bytes = 1000;
    return status;
}

fl_status fl_backward(fl_library *library, const fl_problem *problem, const fl_tensors *tensors,
                      const fl_gradients *gradients, void *stream) {
    if (gradients->size != sizeof *gradients) return FL_INVALID;
    fake_gradients = *gradients;
    return fl_forward(library, problem, tensors, stream);
}

/* Handler that flashladder.jax registers; it is never called. */
void *fl_xla_ffi_attention(void *frame) {
    return frame;
}

void *fl_xla_ffi_attention_host(void *frame) {
    return frame;
}

void *fl_xla_ffi_serve(void *frame) {
    return frame;
}

void *fl_xla_ffi_serve_host(void *frame) {
    return frame;
}

void *fl_xla_ffi_backward(void *frame) {
    return frame;
}

void *fl_xla_ffi_backward_host(void *frame) {
    return frame;
}

fl_status fl_forward(fl_library *library, const fl_problem *problem, const fl_tensors *tensors, void *stream) {
    const size_t without_arrays = offsetof(fl_tensors, cu_seqlens_q);
    if (!library || problem->size != sizeof *problem) return FL_INVALID;
    if (tensors->size != (problem->arrays ? sizeof *tensors : without_arrays) && tensors->size != sizeof *tensors)
        return FL_INVALID;
    const int64_t calls = fake_last.calls;
    fake_last = (struct fake_call){.problem = *problem, .stream = stream, .calls = calls + 1};
    memcpy(&fake_last.tensors, tensors, tensors->size);
    strncpy(fake_last.version, problem->version ? problem->version : "", sizeof fake_last.version - 1);
    return fake_status;
}
