/* b03 - one pass, dQ added in global memory
 *
 * parent    b02
 * idea      five products instead of seven: dS, once computed, also gives this KV block's part of dQ, which is added to
 *           fp32 sums in global memory, by atomics or, with in_order, in the order of the keys
 * predict   5 / 7 of the mma of b02, 1.25 to 1.4 times as fast: 150 to 170 TFLOP/s, where adding does not bind. It is
 *           4 * d_head bytes for each query and KV block, 32 KB for 64 queries: a prototype lost 10 to 12 % by
 *           it at 128 keys (README.md), and here are 64. in_order waits: FlashAttention-3's is 7 to 20 % slower than
 *           its other form; here 10 %
 * config    (FP16, 128, 64, 64, 4): backward_mma_sync+dq_sums
 * ordered   (FP16, 128, 64, 64, 4): backward_mma_sync+dq_sums+in_order
 * arch      sm_80
 */
#include "common/backward.h"
#include "common/ptx_sm80.cuh"
#include "kernels/backward/rows.cuh"

/* A CTA owns 64 keys: K and V stay in shared memory, while blocks of Q and dO are streamed. The scores of a warp are
 * those of its 16 keys and of 32 queries:
 *
 *     Sᵀ = K Qᵀ, dPᵀ = V dOᵀ      dV += Pᵀ dO, dK += dSᵀ Q: as in b02, without leaving the warp
 *     dQ = dS K                   16 queries of a warp, all 64 keys: dS goes through shared memory
 *
 * All CTAs of a head add to the same dQ. fp32 sums in global memory take it (row_sums sets them to 0), and round_dQ
 * rounds them at the end. A reduction there is atomic, but its order is not fixed, and a sum of floats depends on the
 * order. With in_order each Q block has a turn: the number of the KV block that may add. A CTA that has added passes
 * the turn on, so that every run produces the same bits; the last one resets it to 0. CTAs start in the order of their
 * numbers, so that whoever waits waits for one that runs.
 *
 * Register layout: an accumulator of mma.sync has, in lane 4g + t, columns 2t and 2t + 1 of rows g and g + 8. Two
 * neighboring tiles of 8 columns, rounded to 16 bits, have the layout of the first operand of the next product
 * (9.7.14.5.8). Rows in shared memory are 16 bytes longer than their elements: eight rows of one chunk then are stored
 * in different banks. */

/* Refuse what this version can't run, and every flag that it would not act on. */
template <backward_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.instruction == MMA_SYNC, "instruction must be backward_mma_sync");
    static_assert(cfg.B_c == 16 * cfg.n_warps, "B_c must be 16 * n_warps: a warp has 16 rows");
    static_assert(cfg.B_r == 16 * cfg.n_warps, "B_r must be 16 * n_warps: a warp has 16 rows of dQ");
    static_assert(cfg.B_r % 32 == 0, "B_r must be a multiple of 32: the rows of a step");
    static_assert(cfg.dQ_sums, "dQ_sums must be on: every CTA adds its part of dQ");
    static_assert(cfg.stages == 0, "stages must be 0: a block is copied when it is needed");
    static_assert(!cfg.tensor_copies, "tensor_copies must be off: threads copy");
    static_assert(!cfg.causal, "causal must be off: every query sees every key");
    static_assert(!cfg.grouped_heads, "grouped_heads must be off: each head has its own keys");
}

enum { STEP = 32 }; /* queries whose scores a warp holds */

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

/* Scores to probabilities, and dP to dS. Element i of a tile is of query 2t + i % 2 of the tile; `first` is the first
 * of them within the block. */
__device__ __forceinline__ void differentiate(float (&P)[STEP / 8][4], float (&dS)[STEP / 8][4], float exponent_scale,
                                              const statistics &of, int first) {
    const int lane = threadIdx.x % 32;
    for (int tile = 0; tile < STEP / 8; tile++)
        for (int i = 0; i < 4; i++) {
            const int query = first + 8 * tile + lane % 4 * 2 + i % 2;
            P[tile][i] = ex2_approx(P[tile][i] * exponent_scale - of.lse[query]);
            dS[tile][i] = P[tile][i] * (dS[tile][i] - of.delta[query]);
        }
}

/* ---- dQ ---- */

/* Address of dS of a key in shared memory: rows of B_r queries plus 16 bytes of padding. */
template <backward_config cfg>
__device__ __forceinline__ uint32_t dS_address(uint32_t dS, int key, int query) {
    return dS + key * (2 * cfg.B_r + 16) + 2 * query;
}

/* Put dSᵀ of the warp's keys and of queries first ... first + 31 into shared memory. */
template <backward_config cfg>
__device__ __forceinline__ void store_dS(uint32_t dS, const uint32_t (&a)[STEP / 16][4], int first) {
    const int lane = threadIdx.x % 32, key = threadIdx.x / 32 * 16 + lane / 4;
    for (int k = 0; k < STEP / 16; k++)
        for (int i = 0; i < 4; i++)
            st_shared_u32(dS_address<cfg>(dS, key + i % 2 * 8, first + 16 * k + i / 2 * 8 + lane % 4 * 2), a[k][i]);
}

/* dQ of the warp's 16 queries and of all keys of the CTA. dS is transposed on its way to the tensor cores: lanes give
 * the addresses of eight queries of keys 0-7, of the next eight queries, and of the same of keys 8-15. */
template <backward_config cfg>
__device__ __forceinline__ void multiply_dS(float (&dQ)[cfg.d_head / 8][4], uint32_t dS, uint32_t K) {
    const int lane = threadIdx.x % 32, query = threadIdx.x / 32 * 16;
#pragma unroll
    for (int k = 0; k < cfg.B_c / 16; k++) {
        uint32_t a[4];
        ldmatrix_x4_trans(a, dS_address<cfg>(dS, 16 * k + lane / 16 * 8 + lane % 8, query + lane / 8 % 2 * 8));
        for (int tile = 0; tile < cfg.d_head / 8; tile += 2) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, chunk_address<cfg>(K, 16 * k + lane % 16, tile + lane / 16));
            mma<cfg>(dQ[tile], a, b[0], b[1]);
            mma<cfg>(dQ[tile + 1], a, b[2], b[3]);
        }
    }
}

/* Add to 4 bytes of global memory, in one step but in any order (9.7.13.6 red). */
__device__ __forceinline__ void red_add(float *gmem, float value) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(gmem), "f"(value) : "memory");
}

/* Add the warp's 16 rows to the sums of queries first, first + 1 ... */
template <backward_config cfg>
__device__ __forceinline__ void add_dQ(const backward_args &args, const float (&dQ)[cfg.d_head / 8][4], int first) {
    const int lane = threadIdx.x % 32, row = first + threadIdx.x / 32 * 16 + lane / 4;
    float *const sums = args.sums + (((int64_t)blockIdx.z * args.heads + blockIdx.y) * args.seq_q + row) * cfg.d_head;
    for (int tile = 0; tile < cfg.d_head / 8; tile++)
        for (int i = 0; i < 4; i++)
            red_add(sums + i / 2 * 8 * cfg.d_head + 8 * tile + lane % 4 * 2 + i % 2, dQ[tile][i]);
}

/* ---- turns ---- */

/* Acquire and release: a CTA that observes the turn also observes everything that was added before the turn was passed
 * on (8.9). */
__device__ __forceinline__ int ld_acquire(const int *gmem) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(gmem) : "memory");
    return value;
}
__device__ __forceinline__ void st_release(int *gmem, int value) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(gmem), "r"(value) : "memory");
}

template <backward_config cfg>
__device__ __forceinline__ int *turn_of(const backward_args &args, int first) {
    const int blocks = args.seq_q / cfg.B_r;
    return args.turns + ((int64_t)blockIdx.z * args.heads + blockIdx.y) * blocks + first / cfg.B_r;
}

/* One thread waits for the CTA's turn, and the barrier orders the others after it. */
template <backward_config cfg>
__device__ __forceinline__ void wait_for_turn(const backward_args &args, int first) {
    if (threadIdx.x == 0)
        while (ld_acquire(turn_of<cfg>(args, first)) != (int)blockIdx.x) {
        }
    __syncthreads();
}

/* The barrier lets all threads add before one passes the turn on. */
template <backward_config cfg>
__device__ __forceinline__ void pass_turn(const backward_args &args, int first) {
    __syncthreads();
    if (threadIdx.x == 0) st_release(turn_of<cfg>(args, first), blockIdx.x + 1 == gridDim.x ? 0 : blockIdx.x + 1);
}

/* ---- the pass ---- */

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

/* Compute dK and dV of the CTA's keys over all queries, and add their part of dQ. */
template <backward_config cfg>
__device__ __forceinline__ void pass(const backward_args &args, uint32_t smem, uint32_t dS_block, const statistics &of,
                                     const head_rows (&own)[2], const head_rows (&other)[2],
                                     float (&dK)[cfg.d_head / 8][4], float (&dV)[cfg.d_head / 8][4]) {
    constexpr int KV_bytes = cfg.B_c * row_bytes<cfg>, Q_bytes = cfg.B_r * row_bytes<cfg>;
    const uint32_t K = smem, V = smem + KV_bytes, Q = smem + 2 * KV_bytes, dO = Q + Q_bytes;
    for (int t = 0; t < 2; t++)
        copy_block<cfg>(smem + t * KV_bytes, own[t].gmem, own[t].first + blockIdx.x * cfg.B_c * own[t].stride,
                        own[t].stride);
    for (int block = 0; block < args.seq_q; block += cfg.B_r) {
        /* No barrier: since all warps stored dS nothing reads Q and dO, and dS waits for the barrier that follows. */
        for (int t = 0; t < 2; t++)
            copy_block<cfg>(Q + t * Q_bytes, other[t].gmem, other[t].first + block * other[t].stride, other[t].stride);
        copy_statistics<cfg>(args, of, block);
        cp_async_commit_group();
        cp_async_wait_group<0>();
        __syncthreads(); /* all threads have copied their part of the block */
#pragma unroll 1
        for (int first = 0; first < cfg.B_r; first += STEP) {
            float P[STEP / 8][4], dS[STEP / 8][4];
            uint32_t a[STEP / 16][4];
            multiply_rows<cfg>(P, K, Q, first);
            multiply_rows<cfg>(dS, V, dO, first);
            differentiate(P, dS, args.softmax_scale * 1.44269504f, of, first);
            round_scores<cfg>(a, P);
            add_rows<cfg>(dV, a, dO, first);
            round_scores<cfg>(a, dS);
            add_rows<cfg>(dK, a, Q, first);
            store_dS<cfg>(dS_block, a, first);
        }
        __syncthreads(); /* all warps have stored their keys of dS */
        float dQ[cfg.d_head / 8][4] = {};
        multiply_dS<cfg>(dQ, dS_block, K);
        if constexpr (cfg.in_order) wait_for_turn<cfg>(args, block);
        add_dQ<cfg>(args, dQ, block);
        if constexpr (cfg.in_order) pass_turn<cfg>(args, block);
    }
}

/* ---- the kernel: grid (seq / B_c, heads, batch), 32 * n_warps threads ---- */

template <backward_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps) flash_backward(const __grid_constant__ backward_args args) {
    check_config<cfg>();
    extern __shared__ uint4 smem_chunks[];
    const uint32_t smem = __cvta_generic_to_shared(smem_chunks);
    constexpr int rows_bytes = 2 * (cfg.B_c + cfg.B_r) * row_bytes<cfg>;
    float *const lse = (float *)((char *)smem_chunks + rows_bytes);
    const statistics of = {lse, lse + cfg.B_r};
    const head_rows Q(args.Q, args.Q_strides), K(args.K, args.K_strides), V(args.V, args.V_strides),
        dO(args.dO, args.O_strides);
    float dK[cfg.d_head / 8][4] = {}, dV[cfg.d_head / 8][4] = {};
    pass<cfg>(args, smem, smem + rows_bytes + 8 * cfg.B_r, of, {K, V}, {Q, dO}, dK, dV);
    store_rows<cfg>(args.dK, K, dK, args.softmax_scale);
    store_rows<cfg>(args.dV, V, dV, 1);
}

#include "instances.cuh"
