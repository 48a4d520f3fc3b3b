/* fa3_backward_kernel.cu - one instantiation of FlashAttention-3's backward pass as a C function: all of its
 * kernels.
 *
 *     nvcc -DFA3_NAME=fa3_bf16_d128_causal_any -DFA3_ELEMENT=cutlass::bfloat16_t -DFA3_D_HEAD=128 -DFA3_CAUSAL=true \
 *         -DFA3_IN_ORDER=false -I FA3/hopper -I CUTLASS/include ...
 *
 * make compiles this file once for each word of its list (make/peers.mk). fa3_backward_call.cu chooses the arguments of
 * a call.
 */
#include "harness/peers/fa3_checks.cuh"

#include "flash_bwd_launch_template.h"

/* Block sizes, and how products are shared among warpgroups: those of FlashAttention-3's own dispatch
 * (run_mha_bwd_hdim64, run_mha_bwd_hdim128 and run_mha_bwd_hdim256). */
template <int d_head, bool causal>
static void run(Flash_bwd_params &params, cudaStream_t stream) {
    constexpr bool local = false, softcap = false, varlen = false, in_order = FA3_IN_ORDER, grouped = false;
    if constexpr (d_head == 64)
        run_flash_bwd<90, 64, 128, 128, FA3_ELEMENT, causal, local, softcap, varlen, in_order, grouped, 2, 2, true,
                      false, false, 2, 1, 2, 2, false>(params, stream);
    else if constexpr (d_head == 128)
        run_flash_bwd<90, 128, causal ? 64 : 80, 128, FA3_ELEMENT, causal, local, softcap, varlen, in_order, grouped, 2,
                      2, true, false, !causal, 2, 1, 2, 1, false>(params, stream);
    else
        run_flash_bwd < 90, 256, 64, 80, FA3_ELEMENT, causal, local, softcap, varlen,
            in_order &&d_head<256, grouped, 1, 1, false, true, true, 2, 1, 1, 1, false>(params, stream);
}

/* Puts one pass into the stream. NULL, or why that failed. */
extern "C" const char *FA3_NAME(Flash_bwd_params *params, cudaStream_t stream) {
    try {
        run<FA3_D_HEAD, FA3_CAUSAL>(*params, stream);
    } catch (const char *reason) {
        return reason;
    }
    return nullptr;
}
