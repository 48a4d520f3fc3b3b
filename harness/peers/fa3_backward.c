/* fa3_backward.c - FlashAttention-3's backward pass as a peer: which of the instantiations that make compiled runs a
 * problem.
 *
 * KERNEL(name, dtype, d_head, causal, in_order) is a row of kernels.h, which make writes from its list.
 * fl_fa3_ordered is the deterministic kernel.
 */
#include "harness/peers/fa3_backward.h"
#include "harness/peer.h"
#include "runtime/config.h"

#include <kernels.h> /* generated */
#include <stddef.h>

#define KERNEL(name, dtype, d_head, causal, in_order)                                                                  \
    const char *name(struct Flash_bwd_params *params, struct CUstream_st *stream);
FA3_KERNELS
#undef KERNEL

static const struct row {
    enum dtype dtype;
    int d_head;
    bool causal, in_order;
    fa3_backward_kernel kernel;
} KERNELS[] = {
#define KERNEL(name, dtype, d_head, causal, in_order) {dtype, d_head, causal, in_order, name},
    FA3_KERNELS
#undef KERNEL
};

/* Queries of a Q block: of FlashAttention-3's own dispatch (fa3_backward_kernel.cu). */
static int B_r_of(int d_head, bool causal) {
    return d_head == 64 ? 128 : d_head == 128 && !causal ? 80 : 64;
}

static int64_t fa3_scratch(const struct problem *problem) {
    const attention_args args = problem_args(problem);
    return fa3_backward_bytes(&args, problem->d_head, B_r_of(problem->d_head, problem->causal));
}

static enum status fa3_enqueue(const struct peer_launch *launch, bool in_order, struct failure *failure) {
    const struct problem *problem = launch->problem;
    fa3_backward_kernel kernel = NULL;
    for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++) {
        const struct row *row = &KERNELS[i];
        if (row->dtype == problem->dtype && row->d_head == problem->d_head && row->causal == problem->causal &&
            row->in_order == in_order && problem->heads == problem->KV_heads)
            kernel = row->kernel;
    }
    if (!kernel)
        return fail(failure, STATUS_USAGE,
                    "FlashAttention-3's backward kernel for %s, d_head %d, %s%s is not built: name it in "
                    "FA3_BACKWARD_KERNELS of make/peers.mk; there is none for grouped heads",
                    problem->dtype == FP16 ? "fp16" : "bf16", problem->d_head, problem->causal ? "causal" : "full",
                    in_order ? ", deterministic" : "");
    fa3_backward_launch call = {.args = *launch->backward,
                                .d_head = problem->d_head,
                                .B_r = B_r_of(problem->d_head, problem->causal),
                                .bf16 = problem->dtype == BF16,
                                .in_order = in_order,
                                .scratch = launch->scratch,
                                .sms = launch->sms,
                                .stream = launch->stream};
    const char *reason = fa3_backward_call(kernel, &call);
    return reason ? fail(failure, STATUS_ERROR, "FlashAttention-3: %s", reason) : STATUS_OK;
}

static enum status enqueue_any(const struct peer_launch *launch, struct failure *failure) {
    return fa3_enqueue(launch, false, failure);
}
static enum status enqueue_ordered(const struct peer_launch *launch, struct failure *failure) {
    return fa3_enqueue(launch, true, failure);
}

extern const struct peer fl_fa3_backward, fl_fa3_ordered;
const struct peer fl_fa3_backward = {.library = FA3_LIBRARY,
                                     .backward = true,
                                     .major = 9,
                                     .minor = 0,
                                     .scratch_bytes = fa3_scratch,
                                     .enqueue = enqueue_any};
const struct peer fl_fa3_ordered = {.library = FA3_LIBRARY,
                                    .backward = true,
                                    .major = 9,
                                    .minor = 0,
                                    .scratch_bytes = fa3_scratch,
                                    .enqueue = enqueue_ordered};

/* It holds no PTX and no cubin of ours. */
const struct code_image fl_images[1] = {{0}};
const uint64_t fl_image_count = 0;
