/* abi.h - the parameters of flash_forward, as the harness fills them and the kernels read them.
 *
 *     forward_args args = {.Q = q, .K = k, .V = v, .O = o, .batch_stride = ..., ...};
 *
 * Q, K, V and O are device addresses of contiguous (batch, seq, heads, d_head) tensors of 16-bit elements.
 * Strides count elements and hold for all four tensors. Softmax is that of Q·Kᵀ / sqrt(d_head), without a mask.
 *
 * A kernel with tensor copies has a second parameter, the tensor maps; harness/tensor_maps.h says what they describe.
 */
#ifndef FL_ABI_H
#define FL_ABI_H

#include <stdalign.h>
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

/* What the tensor copy engine reads of a tensor: the driver's CUtensorMap, whose bits nobody else reads. */
typedef struct tensor_map {
    alignas(64) uint64_t words[16];
} tensor_map;

typedef struct tensor_maps {
    tensor_map Q, K, V, O;
} tensor_maps;

#endif
