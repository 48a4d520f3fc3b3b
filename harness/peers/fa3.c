/* fa3.c - FlashAttention-3 as a peer: which of the instantiations that make compiled runs a problem.
 *
 * KERNEL(name, dtype, d_head, causal, cluster) is a row of kernels.h, which make writes from its list.
 */
#include "harness/peers/fa3.h"
#include "harness/peer.h"
#include "runtime/config.h"

#include <inttypes.h>
#include <kernels.h> /* generated */
#include <stddef.h>

#define KERNEL(name, dtype, d_head, causal, cluster)                                                                   \
    const char *name(struct Flash_fwd_params *params, struct CUstream_st *stream);
FA3_KERNELS
#undef KERNEL

static const struct row {
    enum dtype dtype;
    int d_head;
    bool causal;
    int cluster;
    fa3_kernel kernel;
} KERNELS[] = {
#define KERNEL(name, dtype, d_head, causal, cluster) {dtype, d_head, causal, cluster, name},
    FA3_KERNELS
#undef KERNEL
};

/* The kernel that FlashAttention-3's own dispatch chooses for a problem, without packing of heads and without splits. A
 * mask that hides nothing from one query is none. CTAs share K and V in pairs where the number of Q blocks is even and
 * the kernel is neither causal nor for short heads nor of e4m3. */
static struct row wanted(const struct problem *problem) {
    enum { B_R = 128 };
    const int64_t Q_blocks = (problem->seq_q + B_R - 1) / B_R;
    const bool causal = problem->causal && problem->seq_q > 1;
    const bool pairs = problem->d_head >= 128 && !causal && !problem->e4m3 && Q_blocks % 2 == 0;
    return (struct row){problem->dtype, problem->d_head, causal, pairs ? 2 : 1, NULL};
}

static fa3_kernel find(const struct row *wanted) {
    for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++) {
        const struct row *row = &KERNELS[i];
        if (row->dtype == wanted->dtype && row->d_head == wanted->d_head && row->causal == wanted->causal &&
            row->cluster == wanted->cluster)
            return row->kernel;
    }
    return NULL;
}

/* Scratch memory: the counter that the CTAs of a causal kernel draw from, then log-sum-exp, which the kernel always
 * writes. */
enum { COUNTER_BYTES = 16 };

static int64_t fa3_scratch(const struct problem *problem) {
    return COUNTER_BYTES + problem_lse_bytes(problem);
}

static enum status fa3_enqueue(const struct peer_launch *launch, struct failure *failure) {
    const struct problem *problem = launch->problem;
    const struct row row = wanted(problem);
    const fa3_kernel kernel = find(&row);
    if (!kernel)
        return fail(failure, STATUS_USAGE,
                    "FlashAttention-3's kernel %s_d%d_%s_x%d is not built: name it in FA3_KERNELS of make/peers.mk; "
                    "seq_q %" PRId64 " needs it",
                    FA3_E4M3            ? "e4m3"
                    : row.dtype == FP16 ? "fp16"
                                        : "bf16",
                    row.d_head, row.causal ? "causal" : "full", row.cluster, problem->seq_q);
    fa3_launch call = {.args = problem_args(problem),
                       .d_head = problem->d_head,
                       .bf16 = problem->dtype == BF16 && !problem->e4m3,
                       .e4m3 = problem->e4m3,
                       .semaphore = launch->scratch,
                       .sms = launch->sms,
                       .stream = launch->stream};
    call.args.Q = launch->Q;
    call.args.K = launch->K;
    call.args.V = launch->V;
    call.args.O = launch->O;
    call.args.LSE = launch->lse ? launch->lse : (float *)((char *)launch->scratch + COUNTER_BYTES);
    call.args.causal = row.causal;
    const char *reason = fa3_call(kernel, &call);
    return reason ? fail(failure, STATUS_ERROR, "FlashAttention-3: %s", reason) : STATUS_OK;
}

extern const struct peer fl_fa3;
const struct peer fl_fa3 = {.library = FA3_LIBRARY,
                            .e4m3 = FA3_E4M3,
                            .major = 9,
                            .minor = 0,
                            .scratch_bytes = fa3_scratch,
                            .cleared_bytes = COUNTER_BYTES,
                            .enqueue = fa3_enqueue};

/* It holds no PTX and no cubin of ours. */
const struct code_image fl_images[1] = {{0}};
const uint64_t fl_image_count = 0;
