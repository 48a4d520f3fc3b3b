/* fake_fa3_backward.c - kernels for harness/peers/fa3_backward.c that compute nothing: what test_peer.py needs to see
 * which of them is called, and with what.
 *
 * FAKE_FA3=fails: every pass fails. Else each says on stderr which kernel it is and what it was given.
 */
#include "harness/peers/fa3_backward.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t fa3_backward_bytes(const attention_args *args, int d_head, int B_r) {
    return (int64_t)args->seq_q * d_head * B_r;
}

/* A kernel is asked for its name alone. */
const char *fa3_backward_call(fa3_backward_kernel kernel, const fa3_backward_launch *launch) {
    const backward_args *const args = &launch->args;
    const attention_args *const of = &args->attention;
    if (getenv("FAKE_FA3") && !strcmp(getenv("FAKE_FA3"), "fails")) return "made up";
    const bool there = of->Q && of->K && of->V && of->O && of->LSE && args->dO && args->dQ && args->dK && args->dV;
    fprintf(stderr, "%s on %d SMs, %d x %d x %d, B_r %d%s%s%s\n", kernel(NULL, NULL), launch->sms, of->seq_q, of->seq_k,
            launch->d_head, launch->B_r, launch->bf16 ? " bf16" : "", launch->in_order ? " in order" : "",
            there && launch->scratch ? "" : ", without a tensor");
    return NULL;
}

#define KERNEL(name)                                                                                                   \
    const char *name(struct Flash_bwd_params *params, struct CUstream_st *stream);                                     \
    const char *name(struct Flash_bwd_params *params, struct CUstream_st *stream) {                                    \
        (void)params, (void)stream;                                                                                    \
        return #name;                                                                                                  \
    }
KERNEL(fa3_bf16_d128_full_any)
KERNEL(fa3_bf16_d128_causal_any)
KERNEL(fa3_bf16_d128_full_ordered)
