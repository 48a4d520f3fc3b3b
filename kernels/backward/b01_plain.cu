/* b01 - plain
 *
 * parent    none
 * idea      the products of the backward pass in plain CUDA C: P computed again from log-sum-exp, one pass over the
 *           queries for dK and dV, one over the keys for dQ
 * predict   seven products instead of five (S and dP in both passes), all in fp32 multiply-adds: 2 * 7 * d_head
 *           operations a pair of query and key in the five's 2 * 5 * d_head. fp32 gives 67 TFLOP/s on an H200; each
 *           multiply-add comes with a conversion and half a shared-memory read, so a quarter of the issue slots
 *           multiply: 67 / 4 * 5 / 7 = 12 TFLOP/s, 0.02 of FA3 (565 at 4096: README.md)
 * config    (FP16, 128, 32, 32, 4): backward_fma
 * arch      sm_80
 */
#include "common/backward.h"
#include "common/ptx_sm80.cuh"
#include "kernels/backward/rows.cuh"

/* The backward pass. With S = scale Q Kᵀ, P = softmax(S), O = P V, and dO the gradient of a scalar loss with respect to
 * O, the gradients with respect to Q, K and V are
 *
 *     dV = Pᵀ dO      dP = dO Vᵀ      dS = P ∘ (dP - delta)      dK = scale dSᵀ Q      dQ = scale dS K
 *
 * S and P are as large as seq * seq and were never stored. The forward pass stores the log-sum-exp of each row, so each
 * probability can be computed independently: P[i][j] = exp(S[i][j] - lse[i]), without a running maximum. The gradient
 * of the softmax needs one more number for each row, delta[i] = sum over j of P[i][j] dP[i][j]. It is also the sum of
 * dO[i] ∘ O[i], which a small kernel computes before this one (rows.cuh).
 *
 * dK and dV are sums over all queries, dQ is one over all keys. So a CTA makes two passes: first its threads hold rows
 * of K and V and go through all queries; then they hold the same rows of Q and dO and go through all keys. No CTA adds
 * to another CTA's output, but S and dP are computed twice.
 *
 * Register layout: four threads share a row; each has every fourth chunk of 8 columns of the two own rows and of what
 * is added up for them, in fp32 in registers. The other two tensors are copied to shared memory in blocks of B_r rows,
 * and all threads read the same row at the same time. */

/* Refuse what this version can't run, and every flag that it would not act on. */
template <backward_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.instruction == FMA, "instruction must be backward_fma: there are no tensor cores");
    static_assert(cfg.B_r == 8 * cfg.n_warps, "B_r must be 8 * n_warps: four threads share a row");
    static_assert(cfg.B_c == cfg.B_r, "B_c must be B_r: a CTA has as many keys as queries");
    static_assert(!cfg.dQ_sums, "dQ_sums must be off: one CTA adds up all of a row");
    static_assert(cfg.stages == 0, "stages must be 0: a block is copied when it is needed");
    static_assert(!cfg.tensor_copies, "tensor_copies must be off: threads copy");
    static_assert(!cfg.causal, "causal must be off: every query sees every key");
    static_assert(!cfg.grouped_heads, "grouped_heads must be off: each head has its own keys");
}

/* A chunk: eight elements of a row, the 16 bytes that a thread reads or writes at once. */
struct chunk {
    alignas(16) uint32_t pair[4];
};

/* The columns of a row that a thread has: chunks quarter, quarter + 4, quarter + 8 ... as floats. */
template <backward_config cfg>
struct quarter_row {
    static constexpr int chunks = cfg.d_head / 32;
    float x[chunks][8];

    __device__ __forceinline__ void load(const void *row, int quarter) {
        for (int c = 0; c < chunks; c++) take(((const chunk *)row)[4 * c + quarter], c);
    }
    __device__ __forceinline__ void take(const chunk &from, int c) {
        for (int i = 0; i < 4; i++) widen_pair<cfg>(from.pair[i], x[c][2 * i], x[c][2 * i + 1]);
    }
    __device__ __forceinline__ void store(void *row, int quarter, float factor) const {
        for (int c = 0; c < chunks; c++) {
            uint32_t pairs[4];
            for (int i = 0; i < 4; i++) pairs[i] = round_pair<cfg>(factor * x[c][2 * i], factor * x[c][2 * i + 1]);
            st_global_v4((chunk *)row + 4 * c + quarter, pairs);
        }
    }
    /* The quarter's part of a product of two rows; x += factor * row. */
    __device__ __forceinline__ float dot(const quarter_row &other) const {
        float sum = 0;
        for (int c = 0; c < chunks; c++)
            for (int e = 0; e < 8; e++) sum += x[c][e] * other.x[c][e];
        return sum;
    }
    __device__ __forceinline__ void add(float factor, const quarter_row &other) {
        for (int c = 0; c < chunks; c++)
            for (int e = 0; e < 8; e++) x[c][e] += factor * other.x[c][e];
    }
};

/* The sum over the four threads of a row; all of them get it. */
__device__ __forceinline__ float sum_of_row(float part) {
    part += __shfl_xor_sync(0xffffffff, part, 1);
    return part + __shfl_xor_sync(0xffffffff, part, 2);
}

/* Copy B_r rows to shared memory, a chunk per thread and step. */
template <backward_config cfg>
__device__ __forceinline__ void copy_block(chunk *block, const void *gmem, int64_t first, int64_t seq_stride) {
    constexpr int row_chunks = cfg.d_head / 8;
    for (int i = threadIdx.x; i < cfg.B_r * row_chunks; i += 32 * cfg.n_warps)
        block[i] = *(const chunk *)((const uint16_t *)gmem + first + i / row_chunks * seq_stride + i % row_chunks * 8);
}

/* exp(score - lse), of a score before its scale. */
__device__ __forceinline__ float probability(float score, float scale, float lse) {
    return __expf(score * scale - lse);
}

/* Start of the rows of this CTA's head: elements in a tensor, and rows in log-sum-exp and delta. */
__device__ __forceinline__ int64_t head_offset(const tensor_strides &strides) {
    return blockIdx.z * strides.batch + blockIdx.y * strides.head;
}

/* dK and dV of the CTA's rows: this thread's key meets all queries. */
template <backward_config cfg>
__device__ __forceinline__ void pass_over_queries(const backward_args &args, chunk *first, chunk *second,
                                                  float *statistics) {
    constexpr int row_chunks = cfg.d_head / 8;
    const int quarter = threadIdx.x % 4, row = blockIdx.x * cfg.B_c + threadIdx.x / 4;
    const int64_t of_Q = head_offset(args.Q_strides), of_dO = head_offset(args.O_strides);
    const int64_t of_K = head_offset(args.K_strides) + row * args.K_strides.seq;
    const int64_t of_V = head_offset(args.V_strides) + row * args.V_strides.seq;
    const int64_t rows_before = ((int64_t)blockIdx.z * args.heads + blockIdx.y) * args.seq_q;
    quarter_row<cfg> K, V, dK = {}, dV = {};
    K.load((const uint16_t *)args.K + of_K, quarter);
    V.load((const uint16_t *)args.V + of_V, quarter);
    for (int block = 0; block < args.seq_q; block += cfg.B_r) {
        __syncthreads(); /* all threads have read the block before: it may be overwritten */
        copy_block<cfg>(first, args.Q, of_Q + block * args.Q_strides.seq, args.Q_strides.seq);
        copy_block<cfg>(second, args.dO, of_dO + block * args.O_strides.seq, args.O_strides.seq);
        if (threadIdx.x < cfg.B_r) {
            statistics[threadIdx.x] = args.LSE[rows_before + block + threadIdx.x];
            statistics[cfg.B_r + threadIdx.x] = args.delta[rows_before + block + threadIdx.x];
        }
        __syncthreads(); /* all threads have copied their part of the block */
#pragma unroll 1
        for (int query = 0; query < cfg.B_r; query++) {
            quarter_row<cfg> Q, dO;
            Q.load(first + query * row_chunks, quarter);
            dO.load(second + query * row_chunks, quarter);
            const float P = probability(sum_of_row(K.dot(Q)), args.softmax_scale, statistics[query]);
            const float dS = P * (sum_of_row(V.dot(dO)) - statistics[cfg.B_r + query]);
            dV.add(P, dO);
            dK.add(dS, Q);
        }
    }
    dK.store((uint16_t *)args.dK + of_K, quarter, args.softmax_scale);
    dV.store((uint16_t *)args.dV + of_V, quarter, 1);
}

/* dQ of the CTA's rows: this thread's query meets all keys. */
template <backward_config cfg>
__device__ __forceinline__ void pass_over_keys(const backward_args &args, chunk *first, chunk *second) {
    constexpr int row_chunks = cfg.d_head / 8;
    const int quarter = threadIdx.x % 4, row = blockIdx.x * cfg.B_r + threadIdx.x / 4;
    const int64_t of_K = head_offset(args.K_strides), of_V = head_offset(args.V_strides);
    const int64_t of_Q = head_offset(args.Q_strides) + row * args.Q_strides.seq;
    const int64_t of_dO = head_offset(args.O_strides) + row * args.O_strides.seq;
    const int64_t number = ((int64_t)blockIdx.z * args.heads + blockIdx.y) * args.seq_q + row;
    const float lse = args.LSE[number], delta = args.delta[number];
    quarter_row<cfg> Q, dO, dQ = {};
    Q.load((const uint16_t *)args.Q + of_Q, quarter);
    dO.load((const uint16_t *)args.dO + of_dO, quarter);
    for (int block = 0; block < args.seq_k; block += cfg.B_c) {
        __syncthreads(); /* all threads have read the block before: it may be overwritten */
        copy_block<cfg>(first, args.K, of_K + block * args.K_strides.seq, args.K_strides.seq);
        copy_block<cfg>(second, args.V, of_V + block * args.V_strides.seq, args.V_strides.seq);
        __syncthreads(); /* all threads have copied their part of the block */
#pragma unroll 1
        for (int key = 0; key < cfg.B_c; key++) {
            quarter_row<cfg> K, V;
            K.load(first + key * row_chunks, quarter);
            V.load(second + key * row_chunks, quarter);
            const float P = probability(sum_of_row(Q.dot(K)), args.softmax_scale, lse);
            dQ.add(P * (sum_of_row(dO.dot(V)) - delta), K);
        }
    }
    dQ.store((uint16_t *)args.dQ + of_Q, quarter, args.softmax_scale);
}

/* ---- the kernel: grid (seq / B_c, heads, batch), 32 * n_warps threads ---- */

template <backward_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps) flash_backward(const __grid_constant__ backward_args args) {
    check_config<cfg>();
    extern __shared__ chunk smem[];
    chunk *const second = smem + cfg.B_r * cfg.d_head / 8;
    pass_over_queries<cfg>(args, smem, second, (float *)(second + cfg.B_r * cfg.d_head / 8));
    pass_over_keys<cfg>(args, smem, second);
}

#include "instances.cuh"
