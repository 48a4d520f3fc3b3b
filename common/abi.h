/* abi.h - the parameters of flash_forward, as the harness fills them and the kernels read them.
 *
 *     attention_args args = {.Q = q, .K = k, .V = v, .O = o, .Q_strides = ..., ...};
 *
 * Q, K, V and O are device addresses of tensors of 16-bit elements. Strides count elements; those of a row are stored
 * side by side.
 *
 * The kernels of the ladder take forward_args, the first bytes of attention_args: contiguous tensors of one shape, so
 * that the strides hold for all four, and softmax(Q·Kᵀ / sqrt(d_head)) without a mask.
 *
 * A kernel with TMA copies has a second parameter, the tensor maps; runtime/tensor_maps.h says what they describe.
 */
#ifndef FL_ABI_H
#define FL_ABI_H

#include <assert.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

typedef struct forward_args {
    const void *Q; /* [batch, seq, heads, d_head] */
    const void *K; /* [batch, seq, heads, d_head] */
    const void *V; /* [batch, seq, heads, d_head] */
    void *O;       /* [batch, seq, heads, d_head] */
    void *debug;   /* dump buffer of a kernel built with -DFA_DEBUG (debug.cuh), else unused */
    int64_t batch_stride;
    int64_t seq_stride;
    int64_t head_stride;
    int32_t seq; /* rows of Q, K and V; a multiple of B_r and of B_c */
    int32_t heads;
    int32_t batch;
} forward_args;

typedef struct tensor_strides {
    int64_t batch, seq, head;
} tensor_strides;

/* Begins as forward_args does. */
typedef struct attention_args {
    const void *Q; /* [batch, seq_q, heads, d_head] */
    const void *K; /* [batch, seq_k, KV_heads, d_head] */
    const void *V; /* like K */
    void *O;       /* like Q */
    void *debug;
    tensor_strides Q_strides;
    int32_t seq_q;
    int32_t heads; /* a multiple of KV_heads: head h reads KV head h / (heads / KV_heads) */
    int32_t batch;
    int32_t seq_k;
    tensor_strides K_strides, V_strides, O_strides;
    float *LSE;       /* [batch, heads, seq_q], contiguous: natural logarithm of the sum of exp(score * softmax_scale),
                         -inf where a row attends to no key, where O is 0; NULL: not wanted */
    int32_t *tickets; /* two words of device memory for a kernel with the field `tickets`, zero before each launch and
                         after it; else NULL */
    int32_t KV_heads;
    float softmax_scale; /* positive */
    int32_t causal;      /* not 0: row i attends to keys up to i + seq_k - seq_q, aligned to the bottom right */
    int32_t all_Q_rows;  /* of a backward pass of sequences that are packed, all rows together; else 0 */
    int32_t all_KV_rows;
    int32_t unused; /* up to 192 bytes, where tensor maps begin */
} attention_args;

#define FL_SAME_PLACE(of_forward, of_attention)                                                                        \
    static_assert(offsetof(forward_args, of_forward) == offsetof(attention_args, of_attention),                        \
                  #of_forward " of forward_args has the offset of " #of_attention " in attention_args")
FL_SAME_PLACE(Q, Q);
FL_SAME_PLACE(debug, debug);
FL_SAME_PLACE(batch_stride, Q_strides.batch);
FL_SAME_PLACE(seq_stride, Q_strides.seq);
FL_SAME_PLACE(head_stride, Q_strides.head);
FL_SAME_PLACE(seq, seq_q);
FL_SAME_PLACE(heads, heads);
FL_SAME_PLACE(batch, batch);
static_assert(sizeof(forward_args) == offsetof(attention_args, K_strides), "seq_k takes the padding of forward_args");
static_assert(sizeof(attention_args) == 192, "tensor maps follow it without padding");
#undef FL_SAME_PLACE

/* Description of a tensor for TMA: the driver's CUtensorMap, which only TMA reads. */
typedef struct tensor_map {
    alignas(64) uint64_t words[16];
} tensor_map;

typedef struct tensor_maps {
    tensor_map Q, K, V, O;
} tensor_maps;

#endif
