/* fa3_call.cu - how FlashAttention-3 is called: its parameters from ours, as its own Python interface sets them.
 *
 *     const char *reason = fa3_call(fa3_bf16_d64_causal_x1, &launch);
 */
#include "harness/peers/fa3.h"

#include "flash.h"

static void set_strides(const tensor_strides &strides, int64_t &batch, int64_t &row, int64_t &head) {
    batch = strides.batch;
    row = strides.seq;
    head = strides.head;
}

static int rounded_up(int length) {
    return (length + 127) / 128 * 128;
}

const char *fa3_call(fa3_kernel kernel, const fa3_launch *launch) {
    const attention_args &args = launch->args;
    Flash_fwd_params params = {};
    params.q_ptr = const_cast<void *>(args.Q);
    params.k_ptr = const_cast<void *>(args.K);
    params.v_ptr = const_cast<void *>(args.V);
    params.o_ptr = args.O;
    params.softmax_lse_ptr = args.LSE;
    set_strides(args.Q_strides, params.q_batch_stride, params.q_row_stride, params.q_head_stride);
    set_strides(args.K_strides, params.k_batch_stride, params.k_row_stride, params.k_head_stride);
    set_strides(args.V_strides, params.v_batch_stride, params.v_row_stride, params.v_head_stride);
    set_strides(args.O_strides, params.o_batch_stride, params.o_row_stride, params.o_head_stride);
    params.v_dim_stride = 1;
    params.b = params.b_k = args.batch;
    params.h = args.heads;
    params.h_k = args.KV_heads;
    params.seqlen_q = args.seq_q;
    params.seqlen_k = args.seq_k;
    params.seqlen_q_rounded = rounded_up(args.seq_q);
    params.seqlen_k_rounded = rounded_up(args.seq_k);
    params.d = params.d_rounded = params.dv = params.dv_rounded = launch->d_head;
    params.scale_softmax = args.softmax_scale;
    params.is_bf16 = launch->bf16;
    params.is_e4m3 = launch->e4m3;
    params.is_causal = args.causal != 0;
    params.window_size_left = args.seq_k - 1;
    params.window_size_right = args.causal ? 0 : args.seq_q - 1;
    params.num_splits = 1;
    params.p_dropout = params.rp_dropout = 1.f;
    params.arch = 90;
    params.num_sm = launch->sms;
    params.tile_count_semaphore = launch->semaphore;
    params.skip_scheduler_metadata_computation = true;
    return kernel(&params, static_cast<CUstream_st *>(launch->stream));
}
