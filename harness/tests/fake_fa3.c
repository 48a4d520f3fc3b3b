/* fake_fa3.c - kernels for harness/peers/fa3.c on the made-up GPU (fake_cuda.c), which computes any flash_forward: what
 * test_peer.py needs to see a peer without FlashAttention-3.
 *
 * FAKE_FA3=fails: every launch fails. FAKE_FA3=says: each names itself on stderr.
 */
#include "common/abi.h"
#include "harness/cuda_driver.h"
#include "harness/peers/fa3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *launch(const fa3_launch *launch, const char *name, int dtype) {
    struct failure failure;
    static struct cuda_driver cuda;
    static CUfunction function;
    char symbol[100];
    const char *mode = getenv("FAKE_FA3") ? getenv("FAKE_FA3") : "";
    const int64_t d_head = 128, seq_stride = launch->heads * d_head;
    forward_args args = {.Q = launch->Q,
                         .K = launch->K,
                         .V = launch->V,
                         .O = launch->O,
                         .batch_stride = launch->seq * seq_stride,
                         .seq_stride = seq_stride,
                         .head_stride = d_head,
                         .seq = launch->seq};
    void *parameters[] = {&args};
    if (!strcmp(mode, "fails")) return "made up";
    if (!strcmp(mode, "says")) fprintf(stderr, "%s on %d SMs, scale %.6f\n", name, launch->sms, (double)launch->scale);
    /* Device memory is host memory: the log-sum-exp must have room. */
    memset(launch->lse, 0, sizeof(float) * (size_t)launch->batch * (size_t)launch->heads * (size_t)launch->seq);
    if (!cuda.library && cuda_driver_open(&cuda, &failure)) return "no driver";
    snprintf(symbol, sizeof symbol, "flash_forward L5dtype%dE ELi128ELi128", dtype);
    if (!function && cuda.cuModuleGetFunction(&function, NULL, symbol)) return "no function";
    return cuda.cuLaunchKernel(function, (unsigned)launch->seq / 128, (unsigned)launch->heads, (unsigned)launch->batch,
                               384, 1, 1, 0, launch->stream, parameters, NULL)
               ? "no launch"
               : NULL;
}

#define KERNEL(name, dtype)                                                                                            \
    const char *name(const fa3_launch *at);                                                                            \
    const char *name(const fa3_launch *at) {                                                                           \
        return launch(at, #name, dtype);                                                                               \
    }
KERNEL(fa3_fp16_d128_full_x1, 5)
KERNEL(fa3_fp16_d128_full_x2, 5)
KERNEL(fa3_bf16_d128_full_x2, 15)
