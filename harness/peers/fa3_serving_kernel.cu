/* fa3_serving_kernel.cu - one instantiation of FlashAttention-3's forward kernel for heads of 128 and O of bf16, as
 * servers call it, as a C function; or, with FA3_COMBINE, the kernel that merges parts.
 *
 *     nvcc -DFA3_NAME=fa3_pages -DFA3_ELEMENT=cutlass::bfloat16_t -DFA3_VARLEN=true -DFA3_PAGES=true \
 *         -DFA3_SPLIT=true -DFA3_CAUSAL=false -DFA3_LOCAL=false -DFA3_PACK=true -I FA3/hopper -I CUTLASS/include ...
 *
 * FA3_PAGES: pages that are no multiples of a KV block, which cp.async reads.
 */
#ifdef FA3_COMBINE
#include "flash_fwd_combine_launch_template.h"

extern "C" void FA3_NAME(Flash_fwd_params *params, cudaStream_t stream) {
    using element = cutlass::bfloat16_t;
    if (params->num_splits <= 32)
        run_flash_fwd_combine<90, 8, 128, 5, false, false, element, float>(*params, stream, true);
    else
        run_flash_fwd_combine<90, 8, 128, 7, false, false, element, float>(*params, stream, true);
}
#else
#include "flash_fwd_launch_template.h"

extern "C" void FA3_NAME(Flash_fwd_params *params, cudaStream_t stream) {
    constexpr bool softcap = false, append = false, has_qv = false, V_column_major = false;
    run_flash_fwd<90, 128, 128, 1, FA3_ELEMENT, cutlass::bfloat16_t, FA3_CAUSAL, FA3_LOCAL, softcap, FA3_VARLEN,
                  FA3_PAGES, append, has_qv, FA3_PACK, FA3_SPLIT, V_column_major>(*params, stream);
}
#endif
