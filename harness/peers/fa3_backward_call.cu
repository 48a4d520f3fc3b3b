/* fa3_backward_call.cu - how FlashAttention-3's backward pass is called: its parameters from ours, as its own Python
 * interface sets them.
 *
 *     const char *reason = fa3_backward_call(fa3_bf16_d64_full_any, &launch);
 */
#include "harness/peers/fa3_backward.h"

#include "flash.h"

static int rounded_up(int length, int block) {
    return (length + block - 1) / block * block;
}

/* Offsets in its workspace, in bytes. */
struct workspace {
    int64_t delta, lse, turns, bytes;

    workspace(const attention_args &args, int d_head, int B_r) {
        const int64_t heads = (int64_t)args.batch * args.heads, rows = heads * rounded_up(args.seq_q, B_r);
        delta = sizeof(float) * rows * d_head;
        lse = delta + sizeof(float) * rows;
        turns = lse + sizeof(float) * rows;
        bytes = turns + sizeof(int) * heads * ((args.seq_q + B_r - 1) / B_r);
    }
};

int64_t fa3_backward_bytes(const attention_args *args, int d_head, int B_r) {
    return workspace(*args, d_head, B_r).bytes;
}

const char *fa3_backward_call(fa3_backward_kernel kernel, const fa3_backward_launch *launch) {
    const attention_args &args = launch->args;
    const workspace of(args, launch->d_head, launch->B_r);
    Flash_bwd_params params = {};
    params.q_ptr = const_cast<void *>(args.Q);
    params.k_ptr = const_cast<void *>(args.K);
    params.v_ptr = const_cast<void *>(args.V);
    params.o_ptr = args.O;
    params.softmax_lse_ptr = args.LSE;
    params.do_ptr = const_cast<void *>(launch->args.dO);
    params.dq_ptr = launch->args.dQ;
    params.dk_ptr = launch->args.dK;
    params.dv_ptr = launch->args.dV;
    params.q_batch_stride = params.dq_batch_stride = args.Q_strides.batch;
    params.q_row_stride = params.dq_row_stride = args.Q_strides.seq;
    params.q_head_stride = params.dq_head_stride = args.Q_strides.head;
    params.k_batch_stride = params.dk_batch_stride = args.K_strides.batch;
    params.k_row_stride = params.dk_row_stride = args.K_strides.seq;
    params.k_head_stride = params.dk_head_stride = args.K_strides.head;
    params.v_batch_stride = params.dv_batch_stride = args.V_strides.batch;
    params.v_row_stride = params.dv_row_stride = args.V_strides.seq;
    params.v_head_stride = params.dv_head_stride = args.V_strides.head;
    params.o_batch_stride = params.do_batch_stride = args.O_strides.batch;
    params.o_row_stride = params.do_row_stride = args.O_strides.seq;
    params.o_head_stride = params.do_head_stride = args.O_strides.head;
    params.v_dim_stride = 1;
    params.b = params.b_k = args.batch;
    params.h = args.heads;
    params.h_k = args.KV_heads;
    params.seqlen_q = args.seq_q;
    params.seqlen_k = args.seq_k;
    params.seqlen_q_rounded = rounded_up(args.seq_q, launch->B_r);
    params.seqlen_k_rounded = rounded_up(args.seq_k, 128);
    params.total_q = args.batch * args.seq_q;
    params.total_k = args.batch * args.seq_k;
    params.d = params.d_rounded = params.dv = params.dv_rounded = launch->d_head;
    char *const scratch = static_cast<char *>(launch->scratch);
    params.dq_accum_ptr = scratch;
    params.dsoftmax_sum = scratch + of.delta;
    params.softmax_lse_log2_ptr = scratch + of.lse;
    params.dq_semaphore = reinterpret_cast<int *>(scratch + of.turns);
    params.scale_softmax = args.softmax_scale;
    params.is_bf16 = launch->bf16;
    params.is_causal = args.causal != 0;
    params.window_size_left = args.seq_k - 1;
    params.window_size_right = args.causal ? 0 : args.seq_q - 1;
    params.deterministic = launch->in_order;
    params.p_dropout = params.rp_dropout = 1.f;
    params.arch = 90;
    params.num_sm = launch->sms;
    return kernel(&params, static_cast<CUstream_st *>(launch->stream));
}
