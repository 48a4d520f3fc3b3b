/* b02 - blocks and mma.sync
 *
 * parent    b01
 * idea      the same two passes with mma.sync: S and dP are in registers, become P and dS there, and go back into
 *           the tensor cores without leaving the warp
 * predict   products from 67 TFLOP/s of fp32 to what mma.sync gives on an H200, about 62 % of 990; FlashAttention-2
 *           with it reaches 284 at 4096 (README.md), with five products, copies ahead of use and one pass. Here
 *           seven products and nothing is copied ahead: 284 * 5 / 7 * 0.6 = 120 TFLOP/s, 0.21 of FA3, ten times b01
 * config    (FP16, 128, 64, 64, 4): backward_mma_sync
 * arch      sm_80
 */
#include "common/backward.h"
#include "common/ptx_sm80.cuh"
#include "kernels/backward/rows.cuh"

/* Both passes are one function. A CTA owns 64 rows of two tensors, which stay in shared memory, and streams blocks of
 * the two other tensors:
 *
 *     pass            own      others    scores           what is added up
 *     over queries    K, V     Q, dO     Sᵀ and dPᵀ       dV += Pᵀ dO, dK += dSᵀ Q
 *     over keys       Q, dO    K, V      S and dP         dQ += dS K
 *
 * The scores of a warp are those of its 16 own rows and of 32 other rows. Register layout: an accumulator of mma.sync
 * has, in lane 4g + t, columns 2t and 2t + 1 of rows g and g + 8. Two neighboring tiles of 8 columns, rounded to 16
 * bits, have the layout of the first operand of the next product (9.7.14.5.8), so P and dS need no shared memory. Rows
 * in shared memory are 16 bytes longer than d_head elements: eight rows of one chunk then are stored in different
 * banks. */

/* Refuse what this version can't run, and every flag that it would not act on. */
template <backward_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.instruction == MMA_SYNC, "instruction must be backward_mma_sync");
    static_assert(cfg.B_c == 16 * cfg.n_warps, "B_c must be 16 * n_warps: a warp has 16 rows");
    static_assert(cfg.B_r == cfg.B_c, "B_r must be B_c: a CTA has as many keys as queries");
    static_assert(cfg.B_r % 32 == 0, "B_r must be a multiple of 32: the rows of a step");
    static_assert(!cfg.dQ_sums, "dQ_sums must be off: one CTA adds up all of a row");
    static_assert(cfg.stages == 0, "stages must be 0: a block is copied when it is needed");
    static_assert(!cfg.tensor_copies, "tensor_copies must be off: threads copy");
    static_assert(!cfg.causal, "causal must be off: every query sees every key");
    static_assert(!cfg.grouped_heads, "grouped_heads must be off: each head has its own keys");
}

enum { STEP = 32 }; /* other rows whose scores a warp holds */

/* ---- blocks in shared memory ---- */

template <backward_config cfg>
constexpr int row_bytes = backward_row_bytes(&cfg);

/* Blocks of B_r rows in shared memory, by the address of the first byte. */
template <backward_config cfg>
__device__ __forceinline__ uint32_t chunk_address(uint32_t block, int row, int chunk) {
    return block + row * row_bytes<cfg> + chunk * 16;
}

/* Start the copy of B_r rows of a tensor. */
template <backward_config cfg>
__device__ __forceinline__ void copy_block(uint32_t block, const void *gmem, int64_t first, int64_t seq_stride) {
    constexpr int row_chunks = cfg.d_head / 8;
    for (int i = threadIdx.x; i < cfg.B_r * row_chunks; i += 32 * cfg.n_warps)
        cp_async_16(chunk_address<cfg>(block, i / row_chunks, i % row_chunks),
                    (const uint16_t *)gmem + first + i / row_chunks * seq_stride + i % row_chunks * 8);
}

/* ---- products ---- */

template <backward_config cfg>
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (cfg.dtype == FP16)
        mma_m16n8k16_f16(d, a, b0, b1);
    else
        mma_m16n8k16_bf16(d, a, b0, b1);
}

/* scores = own rows of the warp times other rows first ... first + 31, transposed. */
template <backward_config cfg>
__device__ __forceinline__ void multiply_rows(float (&scores)[STEP / 8][4], uint32_t own, uint32_t other, int first) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int tile = 0; tile < STEP / 8; tile++)
        for (int i = 0; i < 4; i++) scores[tile][i] = 0;
#pragma unroll
    for (int k = 0; k < cfg.d_head / 16; k++) {
        uint32_t a[4];
        ldmatrix_x4(a, chunk_address<cfg>(own, 16 * warp + lane % 16, 2 * k + lane / 16));
        for (int tile = 0; tile < STEP / 8; tile += 2) {
            uint32_t b[4];
            const int row = first + 8 * tile + lane % 8 + lane / 16 * 8;
            ldmatrix_x4(b, chunk_address<cfg>(other, row, 2 * k + lane / 8 % 2));
            mma<cfg>(scores[tile], a, b[0], b[1]);
            mma<cfg>(scores[tile + 1], a, b[2], b[3]);
        }
    }
}

/* sums += coefficients (own rows by other rows) times other rows first ... first + 31. */
template <backward_config cfg>
__device__ __forceinline__ void add_rows(float (&sums)[cfg.d_head / 8][4], const uint32_t (&coefficients)[STEP / 16][4],
                                         uint32_t other, int first) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < STEP / 16; k++)
        for (int tile = 0; tile < cfg.d_head / 8; tile += 2) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, chunk_address<cfg>(other, first + 16 * k + lane % 16, tile + lane / 16));
            mma<cfg>(sums[tile], coefficients[k], b[0], b[1]);
            mma<cfg>(sums[tile + 1], coefficients[k], b[2], b[3]);
        }
}

/* Scores as the first operand of a product. */
template <backward_config cfg>
__device__ __forceinline__ void round_scores(uint32_t (&a)[STEP / 16][4], const float (&scores)[STEP / 8][4]) {
    for (int k = 0; k < STEP / 16; k++)
        for (int i = 0; i < 4; i++) {
            const float (&from)[4] = scores[2 * k + i / 2];
            a[k][i] = round_pair<cfg>(from[i % 2 * 2], from[i % 2 * 2 + 1]);
        }
}

/* ---- the softmax and its gradient ---- */

/* Log-sum-exp times log2(e), and delta, of the queries of a block; in shared memory. */
struct statistics {
    float *lse, *delta;
};

/* Scores to probabilities, and dP to dS. Element i of a tile is of own row g + i / 2 * 8 and other row 2t + i % 2;
 * `query` numbers those of them that are queries, within the statistics. */
template <bool own_queries>
__device__ __forceinline__ void differentiate(float (&P)[STEP / 8][4], float (&dS)[STEP / 8][4], float exponent_scale,
                                              const statistics &of, int first_own, int first) {
    const int lane = threadIdx.x % 32;
    for (int tile = 0; tile < STEP / 8; tile++)
        for (int i = 0; i < 4; i++) {
            const int query = own_queries ? first_own + lane / 4 + i / 2 * 8 : first + 8 * tile + lane % 4 * 2 + i % 2;
            P[tile][i] = ex2_approx(P[tile][i] * exponent_scale - of.lse[query]);
            dS[tile][i] = P[tile][i] * (dS[tile][i] - of.delta[query]);
        }
}

/* ---- the passes ---- */

/* A tensor of this CTA's head: its offset in elements, and its row stride. */
struct head_rows {
    const void *gmem;
    int64_t first, stride;

    __device__ __forceinline__ head_rows(const void *tensor, const tensor_strides &strides)
        : gmem(tensor), first(blockIdx.z * strides.batch + blockIdx.y * strides.head), stride(strides.seq) {}
};

template <backward_config cfg>
__device__ __forceinline__ void copy_statistics(const backward_args &args, const statistics &to, int row) {
    const int64_t number = ((int64_t)blockIdx.z * args.heads + blockIdx.y) * args.seq_q + row + threadIdx.x;
    if (threadIdx.x >= cfg.B_r) return;
    to.lse[threadIdx.x] = args.LSE[number] * 1.44269504f;
    to.delta[threadIdx.x] = args.delta[number];
}

/* Write the warp's rows of a gradient, times a factor. */
template <backward_config cfg>
__device__ __forceinline__ void store_rows(void *gmem, const head_rows &rows, const float (&sums)[cfg.d_head / 8][4],
                                           float factor) {
    const int lane = threadIdx.x % 32, row = blockIdx.x * cfg.B_c + threadIdx.x / 32 * 16 + lane / 4;
    for (int tile = 0; tile < cfg.d_head / 8; tile++)
        for (int half = 0; half < 2; half++) {
            const int64_t at = rows.first + (row + 8 * half) * rows.stride + 8 * tile + lane % 4 * 2;
            *(uint32_t *)((uint16_t *)gmem + at) =
                round_pair<cfg>(factor * sums[tile][2 * half], factor * sums[tile][2 * half + 1]);
        }
}

/* The CTA's rows of two tensors meet all rows of the other two. Over queries: of_first is dK, of_second dV; over keys:
 * of_first is dQ. */
template <backward_config cfg, bool own_queries>
__device__ __forceinline__ void pass(const backward_args &args, uint32_t smem, const statistics &of,
                                     const head_rows (&own)[2], const head_rows (&other)[2],
                                     float (&of_first)[cfg.d_head / 8][4], float (&of_second)[cfg.d_head / 8][4]) {
    constexpr int block_bytes = cfg.B_r * row_bytes<cfg>;
    const int first_own = blockIdx.x * cfg.B_c, warp_row = threadIdx.x / 32 * 16;
    for (int t = 0; t < 2; t++)
        copy_block<cfg>(smem + t * block_bytes, own[t].gmem, own[t].first + first_own * own[t].stride, own[t].stride);
    if (own_queries) copy_statistics<cfg>(args, of, first_own);
    for (int block = 0; block < args.seq_q; block += cfg.B_r) {
        __syncthreads(); /* all warps have read the block before: it may be overwritten */
        for (int t = 0; t < 2; t++)
            copy_block<cfg>(smem + (2 + t) * block_bytes, other[t].gmem, other[t].first + block * other[t].stride,
                            other[t].stride);
        if (!own_queries) copy_statistics<cfg>(args, of, block);
        cp_async_commit_group();
        cp_async_wait_group<0>();
        __syncthreads(); /* all threads have copied their part of the block */
#pragma unroll 1
        for (int first = 0; first < cfg.B_r; first += STEP) {
            float P[STEP / 8][4], dS[STEP / 8][4];
            uint32_t a[STEP / 16][4];
            multiply_rows<cfg>(P, smem, smem + 2 * block_bytes, first);
            multiply_rows<cfg>(dS, smem + block_bytes, smem + 3 * block_bytes, first);
            differentiate<own_queries>(P, dS, args.softmax_scale * 1.44269504f, of, warp_row, first);
            if constexpr (!own_queries) {
                round_scores<cfg>(a, P);
                add_rows<cfg>(of_second, a, smem + 3 * block_bytes, first);
            }
            round_scores<cfg>(a, dS);
            add_rows<cfg>(of_first, a, smem + 2 * block_bytes, first);
        }
    }
}

/* ---- the kernel: grid (seq / B_c, heads, batch), 32 * n_warps threads ---- */

template <backward_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps) flash_backward(const __grid_constant__ backward_args args) {
    check_config<cfg>();
    extern __shared__ uint4 smem_chunks[];
    const uint32_t smem = __cvta_generic_to_shared(smem_chunks);
    float *const lse = (float *)((char *)smem_chunks + 4 * cfg.B_r * row_bytes<cfg>);
    const statistics of = {lse, lse + cfg.B_r};
    const head_rows Q(args.Q, args.Q_strides), K(args.K, args.K_strides), V(args.V, args.V_strides),
        dO(args.dO, args.O_strides);
    const head_rows keys[2] = {K, V}, queries[2] = {Q, dO};
    {
        float dK[cfg.d_head / 8][4] = {}, dV[cfg.d_head / 8][4] = {};
        pass<cfg, false>(args, smem, of, keys, queries, dK, dV);
        store_rows<cfg>(args.dK, K, dK, args.softmax_scale);
        store_rows<cfg>(args.dV, V, dV, 1);
    }
    __syncthreads(); /* all warps have read the blocks of the first pass: they may be overwritten */
    float dQ[cfg.d_head / 8][4] = {}, none[cfg.d_head / 8][4];
    pass<cfg, true>(args, smem, of, queries, keys, dQ, none);
    store_rows<cfg>(args.dQ, Q, dQ, args.softmax_scale);
}

#include "instances.cuh"
