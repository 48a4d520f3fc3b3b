/* fake_fa3.c - kernels for harness/peers/fa3.c that launch v01 on the emulated driver: what test_peer.py needs to see a
 * peer without FlashAttention-3. Nothing is computed with a mask or other numbers of keys or KV heads; log-sum-exp is
 * 0.
 *
 * FAKE_FA3=fails: every launch fails. FAKE_FA3=says: each reports on stderr which kernel it is and what it was given.
 */
#include "harness/peers/fa3.h"
#include "runtime/cuda_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cuda_driver cuda;

/* Find v01's own instance of a type. */
static CUfunction v01(bool bf16) {
    static char ptx[1 << 20], symbol[2][400];
    static CUmodule module;
    static CUfunction functions[2];
    struct failure failure;
    if (functions[bf16]) return functions[bf16];
    FILE *const file = fopen("build/v01/v01.ptx", "r");
    if (!file || !fread(ptx, 1, sizeof ptx - 1, file) || fclose(file) || cuda_driver_open(&cuda, &failure)) abort();
    if (!module && cuda.cuModuleLoadData(&module, ptx)) abort();
    const char *at = ptx;
    while ((at = strstr(at, ".entry "))) {
        if (sscanf(at += 7, "%399[^(]", symbol[bf16]) == 1 && strstr(symbol[bf16], bf16 ? "dtype15E" : "dtype5E"))
            break;
    }
    if (cuda.cuModuleGetFunction(&functions[bf16], module, symbol[bf16]) ||
        cuda.cuFuncSetAttribute(functions[bf16], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 49152))
        abort();
    return functions[bf16];
}

/* A kernel is asked for its name alone. */
const char *fa3_call(fa3_kernel kernel, const fa3_launch *launch) {
    const char *mode = getenv("FAKE_FA3") ? getenv("FAKE_FA3") : "", *name = kernel(NULL, NULL);
    const attention_args args = launch->args;
    forward_args of_v01 = {
        args.Q,     args.K,     args.V,    args.O, NULL, args.Q_strides.batch, args.Q_strides.seq, args.Q_strides.head,
        args.seq_q, args.heads, args.batch};
    void *parameters[] = {&of_v01};
    if (!strcmp(mode, "fails")) return "made up";
    if (!strcmp(mode, "says"))
        fprintf(stderr, "%s on %d SMs, %d x %d x %d on %d KV heads%s, scale %.6f\n", name, launch->sms, args.seq_q,
                args.seq_k, launch->d_head, args.KV_heads, args.causal ? " causal" : "", (double)args.softmax_scale);
    if (args.causal || args.KV_heads != args.heads || args.seq_k != args.seq_q) return NULL;
    const CUfunction function = v01(launch->bf16);
    const size_t rows = (size_t)args.batch * (size_t)args.heads * (size_t)args.seq_q;
    if (cuda.cuMemsetD32Async((CUdeviceptr)(uintptr_t)args.LSE, 0, rows, launch->stream)) return "no room for LSE";
    return cuda.cuLaunchKernel(function, (unsigned)args.seq_q / 64, (unsigned)args.heads, (unsigned)args.batch, 128, 1,
                               1, 49152, launch->stream, parameters, NULL)
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
