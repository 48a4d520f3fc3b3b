/* fa3_kernel.cu - one instantiation of FlashAttention-3's forward kernel as a C function.
 *
 *     nvcc -DFA3_NAME=fa3_fp16_d128_full_x2 -DFA3_ELEMENT=cutlass::half_t -DFA3_OUTPUT=cutlass::half_t \
 *         -DFA3_D_HEAD=128 -DFA3_CAUSAL=false -DFA3_CLUSTER=2 -I FA3/hopper -I CUTLASS/include ...
 *
 * make compiles this file once for each word of its list (make/peers.mk), which takes minutes. The arguments of the
 * kernel are therefore chosen elsewhere (fa3_call.cu).
 */
#include "harness/peers/fa3_checks.cuh"

#include "flash_fwd_launch_template.h"

/* Puts one launch into the stream. NULL, or why that failed. */
extern "C" const char *FA3_NAME(Flash_fwd_params *params, cudaStream_t stream) {
    constexpr bool is_local = false, softcap = false, varlen = false, paged = false, append = false, has_qv = false,
                   pack_gqa = false, split = false, V_column_major = false;
    try {
        run_flash_fwd<90, FA3_D_HEAD, FA3_D_HEAD, FA3_CLUSTER, FA3_ELEMENT, FA3_OUTPUT, FA3_CAUSAL, is_local, softcap,
                      varlen, paged, append, has_qv, pack_gqa, split, V_column_major>(*params, stream);
    } catch (const char *reason) {
        return reason;
    }
    return nullptr;
}
