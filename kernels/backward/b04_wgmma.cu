/* b04 - wgmma
 *
 * parent    b03
 * idea      the five products by wgmma: a warpgroup has 64 keys, operands are read from shared memory in place,
 *           and 128 keys of a CTA halve what is read of Q and dO and what is added to dQ
 * credit    FlashAttention-3: dS goes through shared memory, the other products stay in the warpgroup
 * predict   the tensor pipe needs 2560 cycles for 64 queries and 128 keys. Nothing overlaps here: copies, products,
 *           exponentials and adding come one after the other with barriers between them, and one CTA fits a
 *           multiprocessor. A prototype with copies and products overlapped runs the pipe 65 % of the time at 538
 *           TFLOP/s (4096: README.md). Without the overlap, half of that share: 300 TFLOP/s, 1.8 times b03
 * config    (FP16, 128, 64, 128, 8): backward_wgmma+dq_sums
 * arch      sm_90a
 */
#include "common/backward.h"
#include "common/ptx_backward.cuh"
#include "kernels/backward/rows.cuh"

/* A CTA owns 128 keys, each of its two warpgroups 64 of them. For a block of 64 queries a warpgroup computes
 *
 *     Sᵀ = K Qᵀ, dPᵀ = V dOᵀ      64 keys x 64 queries; both operands in shared memory
 *     dV += Pᵀ dO, dK += dSᵀ Q    Pᵀ and dSᵀ are first operands in registers, as with mma.sync
 *     dQ = dS K                   64 queries x 64 of d_head columns, over all 128 keys: dSᵀ of both warpgroups is in
 *                                 shared memory, and wgmma reads it transposed
 *
 * Register layout: warp w of a warpgroup has rows 16w ... of its 64; a tile of 8 columns is held as with mma.sync. In
 * shared memory a block is a row of tiles of 64 elements, whose 16-byte chunks are swizzled (common/ptx_sm90a.cuh). */

/* Refuse what this version can't run, and every flag that it would not act on. */
template <backward_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.instruction == WGMMA, "instruction must be backward_wgmma");
    static_assert(cfg.d_head == 128, "d_head must be 128: a warpgroup has 64 columns of dQ");
    static_assert(cfg.B_r == 64 && cfg.B_c == 128 && cfg.n_warps == 8,
                  "B_r, B_c and n_warps must be 64, 128 and 8: two warpgroups of 64 keys");
    static_assert(cfg.dQ_sums, "dQ_sums must be on: every CTA adds its part of dQ");
    static_assert(!cfg.in_order, "in_order must be off: b03 shows it");
    static_assert(cfg.stages == 0, "stages must be 0: a block is copied when it is needed");
    static_assert(!cfg.tensor_copies, "tensor_copies must be off: threads copy");
    static_assert(!cfg.causal, "causal must be off: every query sees every key");
    static_assert(!cfg.grouped_heads, "grouped_heads must be off: each head has its own keys");
}

enum { WARPGROUP = 128, TILE_ROW = 128 /* bytes */, SPAN = 64 /* elements of a row of a tile */ };

/* ---- shared memory ---- */

template <backward_config cfg>
struct blocks {
    static constexpr uint32_t KV_tile = cfg.B_c * TILE_ROW, Q_tile = cfg.B_r * TILE_ROW;
    static constexpr uint32_t KV_bytes = cfg.d_head / SPAN * KV_tile, Q_bytes = cfg.d_head / SPAN * Q_tile;
    uint32_t K, V, Q, dO, dS, statistics; /* dS: the B_c keys are the rows of one tile, queries their elements */

    __device__ __forceinline__ blocks(uint32_t smem)
        : K((smem + 1023) / 1024 * 1024), V(K + KV_bytes), Q(V + KV_bytes), dO(Q + Q_bytes), dS(dO + Q_bytes),
          statistics(dS + cfg.B_c * TILE_ROW) {}
};

/* Position of a 16-byte chunk in a block of `rows` rows. */
__device__ __forceinline__ uint32_t chunk_address(uint32_t block, int rows, int row, int chunk) {
    return block + chunk / 8 * rows * TILE_ROW + row * TILE_ROW + (chunk % 8 ^ row % 8) * 16;
}

/* A tensor of this CTA's head: its offset in elements, and its row stride. */
struct head_rows {
    const void *gmem;
    int64_t first, stride;

    __device__ __forceinline__ head_rows(const void *tensor, const tensor_strides &strides)
        : gmem(tensor), first(blockIdx.z * strides.batch + blockIdx.y * strides.head), stride(strides.seq) {}
};

/* Start the copy of rows first_row, first_row + 1 ... */
template <backward_config cfg>
__device__ __forceinline__ void copy_block(uint32_t block, int rows, const head_rows &from, int first_row) {
    constexpr int row_chunks = cfg.d_head / 8;
    for (int i = threadIdx.x; i < rows * row_chunks; i += 32 * cfg.n_warps)
        cp_async_16(chunk_address(block, rows, i / row_chunks, i % row_chunks),
                    (const uint16_t *)from.gmem + from.first + (first_row + i / row_chunks) * from.stride +
                        i % row_chunks * 8);
}

/* Log-sum-exp times log2(e) of the queries of a block, after it delta. */
template <backward_config cfg>
__device__ __forceinline__ void copy_statistics(const backward_args &args, float *statistics, int first_row) {
    const int64_t number = ((int64_t)blockIdx.z * args.heads + blockIdx.y) * args.seq_q + first_row + threadIdx.x;
    if (threadIdx.x >= cfg.B_r) return;
    statistics[threadIdx.x] = args.LSE[number] * 1.44269504f;
    statistics[cfg.B_r + threadIdx.x] = args.delta[number];
}

/* ---- products: each is started and closed as a group ---- */

/* d = 64 rows of a block of B_c rows times all rows of a block of B_r rows, transposed. */
template <backward_config cfg>
__device__ __forceinline__ void start_scores(float (&d)[8][4], uint32_t own, uint32_t other) {
    const uint64_t a = wgmma_descriptor(own, 0), b = wgmma_descriptor(other, 0);
#pragma unroll
    for (int k = 0; k < cfg.d_head / 16; k++) {
        const uint64_t of_a = a + k / 4 * (blocks<cfg>::KV_tile / 16) + k % 4 * 2;
        const uint64_t of_b = b + k / 4 * (blocks<cfg>::Q_tile / 16) + k % 4 * 2;
        if constexpr (cfg.dtype == FP16)
            wgmma_m64n64k16_f16(d, of_a, of_b, k > 0);
        else
            wgmma_m64n64k16_bf16(d, of_a, of_b, k > 0);
    }
    wgmma_commit_group();
}

/* sums += coefficients (64 keys by B_r queries) times the rows of Q or dO. */
template <backward_config cfg>
__device__ __forceinline__ void start_sums(float (&sums)[16][4], const uint32_t (&coefficients)[4][4], uint32_t other) {
    const uint64_t b = wgmma_descriptor(other, blocks<cfg>::Q_tile);
#pragma unroll
    for (int k = 0; k < cfg.B_r / 16; k++)
        if constexpr (cfg.dtype == FP16)
            wgmma_m64n128k16_f16_trans(sums, coefficients[k], b + 128 * k, 1);
        else
            wgmma_m64n128k16_bf16_trans(sums, coefficients[k], b + 128 * k, 1);
    wgmma_commit_group();
}

/* dQ of B_r queries and the 64 columns of a tile of K, over B_c keys. */
template <backward_config cfg>
__device__ __forceinline__ void start_dQ(float (&dQ)[8][4], uint32_t dS, uint32_t K_tile) {
    const uint64_t a = wgmma_descriptor(dS, 0), b = wgmma_descriptor(K_tile, 0);
#pragma unroll
    for (int k = 0; k < cfg.B_c / 16; k++)
        if constexpr (cfg.dtype == FP16)
            wgmma_m64n64k16_f16_both_trans(dQ, a + 128 * k, b + 128 * k, k > 0);
        else
            wgmma_m64n64k16_bf16_both_trans(dQ, a + 128 * k, b + 128 * k, k > 0);
    wgmma_commit_group();
}

/* ---- the softmax and its gradient ---- */

/* Scores as the first operand of a product. */
template <backward_config cfg>
__device__ __forceinline__ void round_scores(uint32_t (&a)[4][4], const float (&scores)[8][4]) {
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 4; i++) {
            const float (&from)[4] = scores[2 * k + i / 2];
            a[k][i] = round_pair<cfg>(from[i % 2 * 2], from[i % 2 * 2 + 1]);
        }
}

/* Element i of a tile is of query 2t + i % 2 of its eight. */
__device__ __forceinline__ int query_of(int tile, int i) {
    return 8 * tile + threadIdx.x % 4 * 2 + i % 2;
}

__device__ __forceinline__ void take_exponentials(float (&P)[8][4], float exponent_scale, const float *lse) {
    for (int tile = 0; tile < 8; tile++)
        for (int i = 0; i < 4; i++) P[tile][i] = ex2_approx(P[tile][i] * exponent_scale - lse[query_of(tile, i)]);
}

__device__ __forceinline__ void differentiate(float (&dS)[8][4], const float (&P)[8][4], const float *delta) {
    for (int tile = 0; tile < 8; tile++)
        for (int i = 0; i < 4; i++) dS[tile][i] = P[tile][i] * (dS[tile][i] - delta[query_of(tile, i)]);
}

/* Put dSᵀ of the warpgroup's keys into shared memory. Lanes provide the addresses of keys 0-7 and 8-15 of eight
 * queries, then of the next eight queries. */
__device__ __forceinline__ void store_dS(uint32_t dS, const uint32_t (&a)[4][4]) {
    const int lane = threadIdx.x % 32, key = threadIdx.x / 32 * 16 + lane % 16;
    for (int k = 0; k < 4; k++) stmatrix_x4(dS + key * TILE_ROW + ((2 * k + lane / 16) ^ key % 8) * 16, a[k]);
}

/* ---- results ---- */

/* Add the warpgroup's 64 columns of dQ to the sums of B_r queries. */
template <backward_config cfg>
__device__ __forceinline__ void add_dQ(const backward_args &args, const float (&dQ)[8][4], int first_row) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, columns = threadIdx.x / WARPGROUP * SPAN;
    const int64_t row = ((int64_t)blockIdx.z * args.heads + blockIdx.y) * args.seq_q + first_row + 16 * warp + lane / 4;
    float *const sums = args.sums + row * cfg.d_head + columns + lane % 4 * 2;
    for (int tile = 0; tile < 8; tile++)
        for (int half = 0; half < 2; half++)
            red_add_v2(sums + half * 8 * cfg.d_head + 8 * tile, dQ[tile][2 * half], dQ[tile][2 * half + 1]);
}

/* Write the warp's 16 keys of a gradient, times a factor. */
template <backward_config cfg>
__device__ __forceinline__ void store_rows(void *gmem, const head_rows &rows, const float (&sums)[16][4],
                                           float factor) {
    const int lane = threadIdx.x % 32, row = blockIdx.x * cfg.B_c + threadIdx.x / 32 * 16 + lane / 4;
    for (int tile = 0; tile < 16; tile++)
        for (int half = 0; half < 2; half++) {
            const int64_t at = rows.first + (row + 8 * half) * rows.stride + 8 * tile + lane % 4 * 2;
            *(uint32_t *)((uint16_t *)gmem + at) =
                round_pair<cfg>(factor * sums[tile][2 * half], factor * sums[tile][2 * half + 1]);
        }
}

/* ---- the kernel: grid (seq / B_c, heads, batch), 32 * n_warps threads ---- */

template <backward_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps) flash_backward(const __grid_constant__ backward_args args) {
    check_config<cfg>();
    extern __shared__ char smem_bytes[];
    const uint32_t smem = __cvta_generic_to_shared(smem_bytes);
    const blocks<cfg> in(smem);
    float *const statistics = (float *)(smem_bytes + (in.statistics - smem));
    const head_rows Q(args.Q, args.Q_strides), K(args.K, args.K_strides), V(args.V, args.V_strides),
        dO(args.dO, args.O_strides);
    const int warpgroup = threadIdx.x / WARPGROUP;
    const uint32_t own = warpgroup * 64 * TILE_ROW; /* the warpgroup's keys within a tile */

    float dK[16][4] = {}, dV[16][4] = {};
    copy_block<cfg>(in.K, cfg.B_c, K, blockIdx.x * cfg.B_c);
    copy_block<cfg>(in.V, cfg.B_c, V, blockIdx.x * cfg.B_c);
    for (int block = 0; block < args.seq_q; block += cfg.B_r) {
        __syncthreads(); /* all warps have read the block before, and its dS: they may be overwritten */
        copy_block<cfg>(in.Q, cfg.B_r, Q, block);
        copy_block<cfg>(in.dO, cfg.B_r, dO, block);
        copy_statistics<cfg>(args, statistics, block);
        cp_async_commit_group();
        cp_async_wait_group<0>();
        fence_proxy_async(); /* make this thread's copies visible to wgmma */
        __syncthreads();     /* all threads have copied their part of the block */

        float P[8][4], dS[8][4], dQ[8][4];
        uint32_t of_P[4][4], of_dS[4][4];
        wgmma_fence();
        start_scores<cfg>(P, in.K + own, in.Q);
        start_scores<cfg>(dS, in.V + own, in.dO);
        wgmma_wait_group<1>(P);
        take_exponentials(P, args.softmax_scale * 1.44269504f, statistics);
        round_scores<cfg>(of_P, P);
        wgmma_wait_group<0>(dS);
        differentiate(dS, P, statistics + cfg.B_r);
        round_scores<cfg>(of_dS, dS);
        store_dS(in.dS, of_dS);
        fence_proxy_async(); /* make this thread's stores visible to wgmma */
        __syncthreads();     /* both warpgroups have stored dS */
        wgmma_fence();
        start_sums<cfg>(dV, of_P, in.dO);
        start_sums<cfg>(dK, of_dS, in.Q);
        start_dQ<cfg>(dQ, in.dS, in.K + warpgroup * blocks<cfg>::KV_tile);
        wgmma_wait_group<0>(dQ);
        wgmma_wait_group<0>(dK);
        wgmma_wait_group<0>(dV);
        add_dQ<cfg>(args, dQ, block);
    }
    store_rows<cfg>(args.dK, K, dK, args.softmax_scale);
    store_rows<cfg>(args.dV, V, dV, 1);
}

#include "instances.cuh"
