/* fa3_kernel.cu - one instantiation of FlashAttention-3's forward kernel behind a C function.
 *
 *     nvcc -DFA3_NAME=fa3_fp16_d128_full_x2 -DFA3_ELEMENT=cutlass::half_t -DFA3_D_HEAD=128 -DFA3_CAUSAL=false \
 *         -DFA3_CLUSTER=2 -I FA3/hopper -I CUTLASS/include ...
 *
 * make compiles this file once for each word of its list (make/peers.mk).
 */
#include "harness/peers/fa3.h"

/* FlashAttention-3 ends the process where a call fails. Its macros are replaced before anything of it uses them. */
#include "cuda_check.h"
#undef CHECK_CUDA
#undef CHECK_CUTLASS
#define CHECK_CUDA(call)                                                                                               \
    do {                                                                                                               \
        const cudaError_t check_status = (call);                                                                       \
        if (check_status != cudaSuccess) throw cudaGetErrorString(check_status);                                       \
    } while (0)
#define CHECK_CUTLASS(call)                                                                                            \
    do {                                                                                                               \
        const cutlass::Status check_status = (call);                                                                   \
        if (check_status != cutlass::Status::kSuccess) throw cutlass::cutlassGetStatusString(check_status);            \
    } while (0)

#include "flash_fwd_launch_template.h"

extern "C" const char *FA3_NAME(const fa3_launch *launch) {
    constexpr bool is_local = false, softcap = false, varlen = false, paged = false, append = false, has_qv = false,
                   pack_gqa = false, split = false, V_column_major = false;
    Flash_fwd_params params = {};
    const int64_t head_stride = FA3_D_HEAD, row_stride = head_stride * launch->heads,
                  batch_stride = row_stride * launch->seq;
    params.q_ptr = const_cast<void *>(launch->Q);
    params.k_ptr = const_cast<void *>(launch->K);
    params.v_ptr = const_cast<void *>(launch->V);
    params.o_ptr = launch->O;
    params.softmax_lse_ptr = launch->lse;
    params.q_row_stride = params.k_row_stride = params.v_row_stride = params.o_row_stride = row_stride;
    params.q_head_stride = params.k_head_stride = params.v_head_stride = params.o_head_stride = head_stride;
    params.q_batch_stride = params.k_batch_stride = params.v_batch_stride = params.o_batch_stride = batch_stride;
    params.v_dim_stride = 1;
    params.b = params.b_k = launch->batch;
    params.h = params.h_k = launch->heads;
    params.seqlen_q = params.seqlen_k = params.seqlen_q_rounded = params.seqlen_k_rounded = launch->seq;
    params.d = params.d_rounded = params.dv = params.dv_rounded = FA3_D_HEAD;
    params.scale_softmax = launch->scale;
    params.is_bf16 = std::is_same_v<FA3_ELEMENT, cutlass::bfloat16_t>;
    params.is_causal = FA3_CAUSAL;
    params.window_size_left = launch->seq - 1;
    params.window_size_right = FA3_CAUSAL ? 0 : launch->seq - 1;
    params.num_splits = 1;
    params.p_dropout = params.rp_dropout = 1.f;
    params.arch = 90;
    params.num_sm = launch->sms;
    params.tile_count_semaphore = launch->semaphore;
    params.skip_scheduler_metadata_computation = true;
    try {
        run_flash_fwd<90, FA3_D_HEAD, FA3_D_HEAD, FA3_CLUSTER, FA3_ELEMENT, FA3_ELEMENT, FA3_CAUSAL, is_local, softcap,
                      varlen, paged, append, has_qv, pack_gqa, split, V_column_major>(
            params, static_cast<cudaStream_t>(launch->stream));
    } catch (const char *reason) {
        return reason;
    }
    return nullptr;
}
