/* fa3.c - FlashAttention-3 as a peer: which of the instantiations that make compiled runs a problem.
 *
 * KERNEL(name, dtype, d_head, causal, cluster) is a row of kernels.h, which make writes from its list. Only kernels
 * that are not causal are called so far. A causal one takes its work from a semaphore, which must be zero before each
 * launch: fa3_scratch() has to give it room then, and gpu.c has to clear it before the event that starts the clock.
 */
#include "harness/peers/fa3.h"
#include "harness/config.h"
#include "harness/peer.h"

#include <inttypes.h>
#include <kernels.h> /* generated */
#include <math.h>
#include <stddef.h>

typedef const char *(*fa3_kernel)(const fa3_launch *launch);

#define KERNEL(name, dtype, d_head, causal, cluster) const char *name(const fa3_launch *launch);
FA3_KERNELS
#undef KERNEL

static const struct {
    enum dtype dtype;
    int d_head;
    bool causal;
    int cluster;
    fa3_kernel run;
} KERNELS[] = {
#define KERNEL(name, dtype, d_head, causal, cluster) {dtype, d_head, causal, cluster, name},
    FA3_KERNELS
#undef KERNEL
};

/* CTAs that share K and V: FlashAttention-3 takes pairs where the number of Q blocks is even and the kernel is neither
 * causal nor for short heads. */
static int cluster_of(const struct problem *problem, bool causal) {
    enum { B_R = 128 };
    const int64_t Q_blocks = (problem->seq_q + B_R - 1) / B_R;
    return problem->d_head >= 128 && !causal && Q_blocks % 2 == 0 ? 2 : 1;
}

static fa3_kernel find(const struct problem *problem, bool causal, int cluster) {
    for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++)
        if (KERNELS[i].dtype == problem->dtype && KERNELS[i].d_head == problem->d_head && KERNELS[i].causal == causal &&
            KERNELS[i].cluster == cluster)
            return KERNELS[i].run;
    return NULL;
}

/* Log-sum-exp, which the kernel always writes. */
static int64_t fa3_scratch(const struct problem *problem) {
    return (int64_t)sizeof(float) * problem->batch * problem->heads * problem->seq_q;
}

static enum status fa3_enqueue(const struct peer_launch *launch, struct failure *failure) {
    const struct problem *problem = launch->problem;
    const bool causal = false;
    const int cluster = cluster_of(problem, causal);
    const fa3_kernel run = find(problem, causal, cluster);
    if (!run)
        return fail(failure, STATUS_USAGE,
                    "FlashAttention-3's kernel for %s, d_head %d, clusters of %d is not built: name it in FA3_KERNELS "
                    "of make/peers.mk; --seq %" PRId64 " needs it",
                    dtype_name(problem->dtype), problem->d_head, cluster, problem->seq_q);
    const fa3_launch call = {.Q = launch->Q,
                             .K = launch->K,
                             .V = launch->V,
                             .O = launch->O,
                             .lse = launch->scratch,
                             .batch = (int)problem->batch,
                             .heads = (int)problem->heads,
                             .seq = (int)problem->seq_q,
                             .scale = (float)(1 / sqrt(problem->d_head)),
                             .sms = launch->sms,
                             .stream = launch->stream};
    const char *reason = run(&call);
    return reason ? fail(failure, STATUS_ERROR, "FlashAttention-3: %s", reason) : STATUS_OK;
}

extern const struct peer fl_fa3;
const struct peer fl_fa3 = {
    .library = FA3_LIBRARY, .major = 9, .minor = 0, .scratch_bytes = fa3_scratch, .enqueue = fa3_enqueue};

/* There is no PTX and no cubin of ours in it. */
const struct code_image fl_images[1] = {{0}};
const uint64_t fl_image_count = 0;
