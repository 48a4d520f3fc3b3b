/* v00a - mma
 *
 * parent    v00
 * idea      both products on tensor cores: a warp owns 16 rows of Q, and mma multiplies 16 x 16 by 16 x 8 elements
 * predict   loop about 900 instructions per block of 64 keys, not 430 per key: 128 HMMA, 384 loads from shared memory
 *           for their operands; about 160 registers on sm_80; the bank conflicts of those loads hold it at 0.13 of
 *           FA2 (H200)
 * claims    loop@sm_80=900±15% registers@sm_80=160±20 fa2@4096=0.13±0.03
 * config    (FP16, 128, 64, 64, 4): load_0_0_0_tiles
 * arch      sm_80
 */
#include "common/abi.h"
#include "common/config.h"
#include "common/ptx_sm80.cuh"

/* The online softmax of v00, a block of B_c keys at a time: the scores S = Q K^T of a warp's 16 rows, the exponentials
 * P of S - m in 16 bits, then O += P V. The tensor cores compute both products. An instruction mma.m16n8k16 adds A B to
 * D: A has 16 x 16 elements, B 16 x 8, D 16 x 8 floats. No lane holds a matrix; each holds a fragment of it, given by
 * its group g = lane / 4 and its pair t = 2 * (lane % 4), as 16-bit pairs (ptx_sm80.cuh):
 *
 *     A   rows g and g + 8, columns t, t + 1, t + 8, t + 9      D   rows g and g + 8, columns t, t + 1
 *     B   rows t, t + 1, t + 8, t + 9, column g
 *
 * Q K^T: A is Q, and column g of B is key g, so a pair of B is contiguous in a row of K. P V: two neighboring D of S
 * have the fragments of one A, so P never leaves its lane; a row of B is a key, so a pair of B comes from two rows of
 * V.
 *
 * Register layout: warp w owns rows 16 w to 16 w + 15 of the Q block, of S, P and O; the four lanes of a group share
 * rows g and g + 8. All warps copy K and V to shared memory in blocks of B_c rows, and every warp reads all of them. */

constexpr int d_head = 128, B_r = 64, B_c = 64, n_threads = 128;
constexpr int row_chunks = d_head / 8;

/* Refuse what this version can't run, and every flag that it would not act on. */
template <KernelConfig cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.d_head == 128, "d_head must be 128: the one size that this version is written for");
    static_assert(cfg.B_r == 64 && cfg.B_c == 64,
                  "B_r and B_c must be 64: the one size of blocks that it is written for");
    static_assert(cfg.n_warps == 4, "n_warps must be 4: a warp owns the 16 rows of one mma");
    static_assert(!cfg.async_copy, "async_copy must be off: blocks are copied through registers");
    static_assert(!cfg.swizzled, "swizzled must be off: rows of shared memory are stored in plain order");
    static_assert(!cfg.eager_load_blocks, "eager_load_blocks must be off: a block is copied when it is needed");
    static_assert(cfg.Q_mma_load_K_tiles == 0, "Q_mma_load_K_tiles must be 0: all of Q is held in registers");
    static_assert(cfg.K_mma_load_K_tiles == 0, "K_mma_load_K_tiles must be 0: operands are read before each mma");
    static_assert(cfg.V_mma_load_K_tiles == 0, "V_mma_load_K_tiles must be 0: operands are read before each mma");
    static_assert(!cfg.mma_double_buffer_loads,
                  "mma_double_buffer_loads must be off: operands are read before each mma");
    static_assert(!cfg.optimized_softmax, "optimized_softmax must be off: scores are scaled before the exponential");
}

/* A chunk: eight elements of a row, the 16 bytes that a thread copies at once. */
struct chunk {
    alignas(16) uint16_t element[8];
};

/* Copy a block of B_c rows to shared memory, a chunk per thread and step. */
__device__ __forceinline__ void copy_block(uint16_t *block, const uint16_t *gmem, int64_t seq_stride) {
    for (int i = threadIdx.x; i < B_c * row_chunks; i += n_threads)
        ((chunk *)block)[i] = *(const chunk *)(gmem + i / row_chunks * seq_stride + i % row_chunks * 8);
}

/* Load two contiguous elements, and two elements of neighboring rows of a block. */
__device__ __forceinline__ uint32_t pair_of_row(const uint16_t *at) {
    return *(const uint32_t *)at;
}
__device__ __forceinline__ uint32_t pair_of_column(const uint16_t *at) {
    return at[0] | (uint32_t)at[d_head] << 16;
}

/* d += a b, and two floats as a pair of elements, rounded to nearest even. */
__device__ __forceinline__ void mma(dtype type, float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if (type == FP16)
        mma_m16n8k16_f16(d, a, b0, b1);
    else
        mma_m16n8k16_bf16(d, a, b0, b1);
}
__device__ __forceinline__ uint32_t round_pair(dtype type, float low, float high) {
    return type == FP16 ? cvt_f16x2(low, high) : cvt_bf16x2(low, high);
}

/* The largest value, and the sum, of the four lanes that share a row. */
__device__ __forceinline__ float largest_of_row(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}
__device__ __forceinline__ float sum_of_row(float x) {
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

/* ---- the kernel: grid (seq / B_r, heads, batch), 128 threads ---- */

template <KernelConfig cfg>
__global__ void flash_forward(const __grid_constant__ forward_args args) {
    check_config<cfg>();
    extern __shared__ __align__(16) uint16_t smem[];
    uint16_t *const K = smem, *const V = smem + B_c * d_head;

    /* The first of this lane's two rows, and its first column. The second row is 8 rows further on. */
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
    const int64_t head = blockIdx.z * args.batch_stride + blockIdx.y * args.head_stride;
    const int64_t row = head + ((int64_t)blockIdx.x * B_r + 16 * warp + g) * args.seq_stride + t;

    uint32_t Q[d_head / 16][4]; /* the A operands of 16 columns each */
    for (int k = 0; k < d_head / 16; k++)
        for (int r = 0; r < 4; r++)
            Q[k][r] = pair_of_row((const uint16_t *)args.Q + row + r % 2 * 8 * args.seq_stride + 16 * k + r / 2 * 8);

    float O[d_head / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {}; /* m and l of rows g and g + 8 */
#pragma unroll 1
    for (int64_t block = 0; block < args.seq; block += B_c) {
        __syncthreads(); /* all threads have read the block before: it may be overwritten */
        copy_block(K, (const uint16_t *)args.K + head + block * args.seq_stride, args.seq_stride);
        copy_block(V, (const uint16_t *)args.V + head + block * args.seq_stride, args.seq_stride);
        __syncthreads(); /* all threads have copied their part of the block */

        float S[B_c / 8][4] = {}; /* the D of 8 keys each */
        for (int n = 0; n < B_c / 8; n++) {
            for (int k = 0; k < d_head / 16; k++) {
                const uint16_t *key = K + (8 * n + g) * d_head + 16 * k + t;
                mma(cfg.dtype, S[n], Q[k], pair_of_row(key), pair_of_row(key + 8));
            }
        }

        for (int half = 0; half < 2; half++) { /* rows g and g + 8: elements 0, 1 and elements 2, 3 of each D */
            float m_new = m[half];
            for (int n = 0; n < B_c / 8; n++) {
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                    S[n][e] /= sqrtf(d_head);
                    m_new = fmaxf(m_new, S[n][e]);
                }
            }
            m_new = largest_of_row(m_new);
            const float shrink = __expf(m[half] - m_new); /* before the first block, exp(-inf) = 0 */
            m[half] = m_new;
            l[half] *= shrink;
            for (int n = 0; n < d_head / 8; n++) O[n][2 * half] *= shrink, O[n][2 * half + 1] *= shrink;
            for (int n = 0; n < B_c / 8; n++) {
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                    S[n][e] = __expf(S[n][e] - m_new);
                    l[half] += S[n][e]; /* over this lane's own columns: the four lanes add up after the last block */
                }
            }
        }

        for (int k = 0; k < B_c / 16; k++) {
            uint32_t P[4]; /* the A operand of 16 keys: two D of S */
            for (int r = 0; r < 4; r++)
                P[r] = round_pair(cfg.dtype, S[2 * k + r / 2][r % 2 * 2], S[2 * k + r / 2][r % 2 * 2 + 1]);
            for (int n = 0; n < d_head / 8; n++) {
                const uint16_t *value = V + (16 * k + t) * d_head + 8 * n + g;
                mma(cfg.dtype, O[n], P, pair_of_column(value), pair_of_column(value + 8 * d_head));
            }
        }
    }

    for (int half = 0; half < 2; half++) {
        const float sum = sum_of_row(l[half]);
        for (int n = 0; n < d_head / 8; n++)
            *(uint32_t *)((uint16_t *)args.O + row + half * 8 * args.seq_stride + 8 * n) =
                round_pair(cfg.dtype, O[n][2 * half] / sum, O[n][2 * half + 1] / sum);
    }
}

#include "instances.cuh"
