/* v00 - plain
 *
 * parent    none
 * idea      softmax(Q K^T / sqrt(d)) V in plain CUDA C, one key after another: the online softmax and no tensor cores
 * predict   loop about 430 instructions per key, 320 of them conversions, multiplications and additions of the two
 *           products; about 170 registers on sm_80; 0.03 of FA2 (H200)
 * claims    loop@sm_80=430±15% registers@sm_80=170±20 fa2@4096=0.03±0.01
 * config    (FP16, 128, 64, 32, 4): load_0_0_0_tiles
 * arch      sm_80
 */
#include "common/abi.h"
#include "common/config.h"
#include "common/ptx_sm80.cuh"

/* Attention without any optimization. For one row q of Q, softmax(q K^T / sqrt(d)) V is
 *
 *     sum over keys of exp(s[key] - m) * V[key]  divided by  the sum of exp(s[key] - m),  s[key] = q K[key] / sqrt(d)
 *
 * where m is the row's largest score; without it exp() would overflow. But m is known only after the last key. The
 * online softmax (Milakov and Gimelshein 2018) keeps the largest score so far, and shrinks both sums by
 * exp(m - m_new) whenever a larger one appears. So one pass over K and V is enough, and no score is ever stored.
 *
 * Register layout: two threads share a row of Q and O, in fp32 in registers; each has every second chunk of 8 columns.
 * All threads copy K and V to shared memory in blocks of B_c rows, and read the same row at the same time. */

/* Refuse what this version can't run, and every flag that it would not act on. */
template <KernelConfig cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.d_head == 128, "d_head must be 128: 64 columns of Q and O in the registers of each thread");
    static_assert(cfg.B_r == 16 * cfg.n_warps, "B_r must be 16 * n_warps: two threads share a row");
    static_assert(cfg.B_r <= 128 && cfg.B_c <= 128,
                  "B_r and B_c must be at most 128: their rows must fit into shared memory");
    static_assert(!cfg.async_copy, "async_copy must be off: blocks are copied through registers");
    static_assert(!cfg.swizzled, "swizzled must be off: rows of shared memory are stored in plain order");
    static_assert(!cfg.eager_load_blocks, "eager_load_blocks must be off: a block is copied when it is needed");
    static_assert(cfg.Q_mma_load_K_tiles == 0, "Q_mma_load_K_tiles must be 0: there are no tiles without tensor cores");
    static_assert(cfg.K_mma_load_K_tiles == 0, "K_mma_load_K_tiles must be 0: there are no tiles without tensor cores");
    static_assert(cfg.V_mma_load_K_tiles == 0, "V_mma_load_K_tiles must be 0: there are no tiles without tensor cores");
    static_assert(!cfg.mma_double_buffer_loads, "mma_double_buffer_loads must be off: there are no fragments");
    static_assert(!cfg.optimized_softmax, "optimized_softmax must be off: scores are scaled before the exponential");
}

/* A chunk: eight elements of a row, the 16 bytes that a thread reads or writes at once. */
struct chunk {
    alignas(16) uint16_t element[8];
};

/* An element as a float, and two floats as a pair of elements, rounded to nearest even. */
template <KernelConfig cfg>
__device__ __forceinline__ float widen(uint16_t element) {
    return cfg.dtype == FP16 ? cvt_f32_f16(element) : __uint_as_float((uint32_t)element << 16);
}
template <KernelConfig cfg>
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
    return cfg.dtype == FP16 ? cvt_f16x2(low, high) : cvt_bf16x2(low, high);
}

/* Copy a block of B_c rows to shared memory, a chunk per thread and step. */
template <KernelConfig cfg>
__device__ __forceinline__ void copy_block(chunk *block, const void *gmem, int64_t first, int64_t seq_stride) {
    constexpr int row_chunks = cfg.d_head / 8;
    for (int i = threadIdx.x; i < cfg.B_c * row_chunks; i += 32 * cfg.n_warps)
        block[i] = *(const chunk *)((const uint16_t *)gmem + first + i / row_chunks * seq_stride + i % row_chunks * 8);
}

/* ---- the kernel: grid (seq / B_r, heads, batch), 32 * n_warps threads ---- */

template <KernelConfig cfg>
__global__ void flash_forward(const __grid_constant__ forward_args args) {
    check_config<cfg>();
    constexpr int row_chunks = cfg.d_head / 8, own_chunks = row_chunks / 2;
    extern __shared__ chunk smem[];
    chunk *const K = smem, *const V = smem + cfg.B_c * row_chunks;

    /* This thread's row and half of it: chunks half, half + 2, half + 4 ... */
    const int half = threadIdx.x % 2;
    const int64_t head = blockIdx.z * args.batch_stride + blockIdx.y * args.head_stride;
    const int64_t row = head + ((int64_t)blockIdx.x * cfg.B_r + threadIdx.x / 2) * args.seq_stride;

    float q[own_chunks][8], O[own_chunks][8] = {}, m = -INFINITY, l = 0;
    for (int c = 0; c < own_chunks; c++) {
        const chunk Q = *(const chunk *)((const uint16_t *)args.Q + row + (2 * c + half) * 8);
        for (int e = 0; e < 8; e++) q[c][e] = widen<cfg>(Q.element[e]) / sqrtf(cfg.d_head);
    }

    for (int64_t block = 0; block < args.seq; block += cfg.B_c) {
        __syncthreads(); /* all threads have read the block before: it may be overwritten */
        copy_block<cfg>(K, args.K, head + block * args.seq_stride, args.seq_stride);
        copy_block<cfg>(V, args.V, head + block * args.seq_stride, args.seq_stride);
        __syncthreads(); /* all threads have copied their part of the block */

#pragma unroll 1
        for (int key = 0; key < cfg.B_c; key++) {
            float s = 0;
            for (int c = 0; c < own_chunks; c++) {
                const chunk k = K[key * row_chunks + 2 * c + half];
                for (int e = 0; e < 8; e++) s += q[c][e] * widen<cfg>(k.element[e]);
            }
            s += __shfl_xor_sync(0xffffffff, s, 1); /* the other half of the row */

            const float m_new = fmaxf(m, s);
            const float shrink = __expf(m - m_new), p = __expf(s - m_new); /* before the first key, exp(-inf) = 0 */
            m = m_new;
            l = l * shrink + p;
            for (int c = 0; c < own_chunks; c++) {
                const chunk v = V[key * row_chunks + 2 * c + half];
                for (int e = 0; e < 8; e++) O[c][e] = O[c][e] * shrink + p * widen<cfg>(v.element[e]);
            }
        }
    }

    for (int c = 0; c < own_chunks; c++) {
        uint32_t pairs[4];
        for (int i = 0; i < 4; i++) pairs[i] = round_pair<cfg>(O[c][2 * i] / l, O[c][2 * i + 1] / l);
        st_global_v4((uint16_t *)args.O + row + (2 * c + half) * 8, pairs);
    }
}

#include "instances.cuh"
