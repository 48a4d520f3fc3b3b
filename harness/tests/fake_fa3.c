/* fake_fa3.c - kernels for harness/peers/fa3.c on the made-up GPU (fake_cuda.c), which computes any flash_forward: what
 * test_peer.py needs to see a peer without FlashAttention-3. Nothing is computed with a mask or other numbers of keys
 * or KV heads.
 *
 * FAKE_FA3=fails: every launch fails. FAKE_FA3=says: each says on stderr which kernel it is and what it was given.
 */
#include "harness/peers/fa3.h"
#include "runtime/cuda_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A kernel is asked for its name alone. */
const char *fa3_call(fa3_kernel kernel, const fa3_launch *launch) {
    struct failure failure;
    static struct cuda_driver cuda;
    static CUfunction function;
    char symbol[100];
    const char *mode = getenv("FAKE_FA3") ? getenv("FAKE_FA3") : "", *name = kernel(NULL, NULL);
    attention_args args = launch->args;
    void *parameters[] = {&args};
    if (!strcmp(mode, "fails")) return "made up";
    if (!strcmp(mode, "says"))
        fprintf(stderr, "%s on %d SMs, %d x %d x %d on %d KV heads%s, scale %.6f\n", name, launch->sms, args.seq_q,
                args.seq_k, launch->d_head, args.KV_heads, args.causal ? " causal" : "", (double)args.softmax_scale);
    /* Device memory is host memory: the log-sum-exp must have room. */
    memset(args.LSE, 0, sizeof(float) * (size_t)args.batch * (size_t)args.heads * (size_t)args.seq_q);
    if (args.causal || args.KV_heads != args.heads || args.seq_k != args.seq_q) return NULL;
    if (!cuda.library && cuda_driver_open(&cuda, &failure)) return "no driver";
    snprintf(symbol, sizeof symbol, "flash_forward L5dtype%dE ELi%dELi128", launch->bf16 ? 15 : 5, launch->d_head);
    if (!function && cuda.cuModuleGetFunction(&function, NULL, symbol)) return "no function";
    return cuda.cuLaunchKernel(function, (unsigned)args.seq_q / 128, (unsigned)args.heads, (unsigned)args.batch, 384, 1,
                               1, 0, launch->stream, parameters, NULL)
               ? "no launch"
               : NULL;
}

#define KERNEL(name)                                                                                                   \
    const char *name(struct Flash_fwd_params *params, struct CUstream_st *stream);                                     \
    const char *name(struct Flash_fwd_params *params, struct CUstream_st *stream) {                                    \
        (void)params, (void)stream;                                                                                    \
        return #name;                                                                                                  \
    }
KERNEL(fa3_fp16_d128_full_x1)
KERNEL(fa3_fp16_d128_full_x2)
KERNEL(fa3_bf16_d128_full_x2)
KERNEL(fa3_fp16_d64_causal_x1)
