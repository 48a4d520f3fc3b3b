/* attention/mma_sync - Ampere and newer: all warps copy, compute, and go at their own pace
 *
 * config    (FP16, 128, 256, 64, 8): mma_sync+stages_4
 * others    (FP16, 64, 256, 128, 8): mma_sync+stages_4;
 *           (FP16, 96, 256, 64, 8): mma_sync+stages_4;
 *           (FP16, 192, 128, 32, 8): mma_sync+stages_4;
 *           (FP16, 256, 128, 32, 8): mma_sync+stages_4
 * smaller   (FP16, 128, 256, 32, 8): mma_sync+stages_4;
 *           (FP16, 128, 128, 32, 8): mma_sync+stages_2;
 *           (FP16, 64, 256, 64, 8): mma_sync+stages_4;
 *           (FP16, 64, 128, 32, 8): mma_sync+stages_4;
 *           (FP16, 96, 256, 64, 8): mma_sync+stages_2;
 *           (FP16, 96, 128, 64, 8): mma_sync+stages_2;
 *           (FP16, 192, 128, 32, 8): mma_sync+stages_2;
 *           (FP16, 192, 64, 32, 4): mma_sync+stages_2;
 *           (FP16, 256, 128, 32, 8): mma_sync+stages_2;
 *           (FP16, 256, 64, 16, 4): mma_sync+stages_2
 * serving   (FP16, 128, 256, 64, 8): mma_sync+stages_4+serve;
 *           (FP16, 64, 256, 128, 8): mma_sync+stages_4+serve;
 *           (FP16, 96, 256, 64, 8): mma_sync+stages_4+serve;
 *           (FP16, 192, 128, 32, 8): mma_sync+stages_4+serve;
 *           (FP16, 256, 128, 32, 8): mma_sync+stages_4+serve;
 *           (FP16, 128, 256, 32, 8): mma_sync+stages_4+serve;
 *           (FP16, 128, 128, 32, 8): mma_sync+stages_2+serve;
 *           (FP16, 64, 256, 64, 8): mma_sync+stages_4+serve;
 *           (FP16, 64, 128, 32, 8): mma_sync+stages_4+serve;
 *           (FP16, 96, 128, 64, 8): mma_sync+stages_2+serve;
 *           (FP16, 192, 64, 32, 4): mma_sync+stages_2+serve;
 *           (FP16, 256, 128, 32, 8): mma_sync+stages_2+serve;
 *           (FP16, 256, 64, 16, 4): mma_sync+stages_2+serve;
 *           (FP16, 64, 128, 32, 8): mma_sync+stages_4+serve+extend;
 *           (FP16, 128, 128, 32, 8): mma_sync+stages_2+serve+extend;
 *           (FP16, 256, 64, 16, 4): mma_sync+stages_2+serve+extend;
 *           (FP16, 576, 32, 16, 4): mma_sync+stages_2+serve+extend+dv_512;
 *           (FP16, 576, 16, 16, 4): mma_sync+stages_2+serve+extend+dv_512
 * arch      sm_80
 */
#include "common/abi.h"
#include "common/attention_config.h"
#include "common/debug.cuh"
#include "common/ptx_sm80.cuh"
#include "kernels/attention/bias.cuh"
#include "kernels/attention/blocks.cuh"
#include "kernels/attention/cap.cuh"
#include "kernels/attention/dropout.cuh"
#include "kernels/attention/epilogue.cuh"
#include "kernels/attention/fragments.cuh"
#include "kernels/attention/lengths.cuh"
#include "kernels/attention/mask.cuh"
#include "kernels/attention/slices.cuh"
#include "kernels/attention/softmax.cuh"

/* The algorithm (FlashAttention-2, Dao 2023, algorithm 1): a CTA owns B_r rows of Q of one head and goes through K and
 * V in blocks of B_c rows. For every row it keeps the largest score so far (m), the sum of exp(score - m) so far (l)
 * and the output so far (O). At the end O / l is the softmax-weighted mean of V, whatever m is: it cancels out. m may
 * therefore lag behind the largest score, as long as exp(score - m) fits the 16 bits of P and fp32 holds the sums. Here
 * m catches up, and l and O are rescaled, once the exponential of a score would be more than 2^8. P is then at most
 * 2^8, while fp16 ends at 65504, and its relative rounding is the same as below 1.
 *
 * Keys may end within a KV block. It comes first, so blocks run from the last to the first. Its missing rows of K and V
 * are zeros, and their scores become -inf. Missing rows of Q are copies of the last one, and nothing stores their O.
 *
 * Register layout: warp w owns rows w * B_r / n_warps ... of Q, S, P and O, all columns. Every warp reads the entire K
 * and V block from shared memory. S, P and O stay in registers, in the fragment layouts of mma.m16n8k16 (ptx_sm80.cuh).
 *
 * A CTA takes one Q block after another. While it reads the last KV block of one, the first KV blocks of the next
 * are being copied to shared memory. So it fetches the next Q block a few KV blocks before the end. Slices of other Q
 * blocks, the rows of one warp, may come before its own Q blocks. There all warps have the same rows. Warp w processes
 * KV blocks w, w + n_warps, ...; at the end the warps add up their O and l, scaled to the largest of their m.
 *
 * Shared memory: Q block, then a ring of stages, each a K and a V block; rows of d_head elements of 16 bits and 16
 * bytes of padding. Then two mbarriers for each stage: full, at which the copies of all threads arrive, and
 * empty, at which every warp arrives once it has read the stage.
 * The partial sums of l are spilled to shared memory of their own from one block to the next.
 *
 * O of 512 columns does not fit the registers of one warp. With `dv` several warps have the same rows: each computes
 * all of their S and multiplies P by its own columns of V. They copy the rows of Q together, and one stores
 * log-sum-exp.
 *
 * With `serve` the kernel reads lengths, windows, sinks, soft caps and pages from serving_args. Threads copy each row
 * of K and V by its address, so that pages need no configuration of their own, and rows that all rows of a Q block
 * ignore become zeros.
 *
 * All loops but the one over KV blocks have constant bounds and are unrolled by the compiler (the largest only when
 * told to). They must be: registers have no addresses, so an array lives in them only if every index is a constant. */

/* ---- shape ---- */

/* Elements of a row of V and O, warps that share rows, and the columns of V and O of each. */
template <attention_config cfg>
constexpr int d_head_v = attention_d_head_v(&cfg);
template <attention_config cfg>
constexpr int V_parts = attention_V_parts(&cfg);
template <attention_config cfg>
constexpr int V_columns = d_head_v<cfg> / V_parts<cfg>;

/* Number of full blocks by which the warps of a CTA may drift apart. */
template <attention_config cfg>
constexpr int slack = cfg.stages >= 4 ? 1 : 0;

template <attention_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.d_head % 32 == 0, "d_head must be a multiple of 32: four or eight threads copy a row");
    static_assert(cfg.n_warps == 4 || cfg.n_warps == 8, "n_warps must be 4 or 8");
    static_assert(cfg.B_r == 64 || cfg.B_r == 128 || cfg.B_r == 256 || (cfg.d_head_v > 0 && cfg.B_r < 64),
                  "B_r must be 64, 128 or 256, or with dv 16 or 32");
    static_assert(cfg.B_c == 16 || cfg.B_c == 32 || cfg.B_c == 64 || cfg.B_c == 128, "B_c must be 16, 32, 64 or 128");
    static_assert(cfg.B_r % (16 * cfg.n_warps) == 0 || cfg.d_head_v > 0,
                  "a warp owns whole 16-row tiles: B_r % (16 * n_warps) must be 0");
    static_assert(cfg.d_head_v > 0 ? 16 * cfg.B_c + cfg.B_r * cfg.d_head_v / cfg.n_warps <= 7168
                                   : cfg.B_r / cfg.n_warps * (cfg.B_c + cfg.d_head) <= 7168,
                  "S and O of a warp, in fp32, must leave a lane 31 of its 255 registers for operands");
    static_assert(cfg.stages == 2 || cfg.stages == 4 || cfg.stages == 8,
                  "stages must be 2, 4 or 8: a power of two, as a block's stage is its number modulo stages");
    static_assert(cfg.exp_columns == 0, "exp_columns must be 0: exponentials of 16 keys are computed before their mma");
    static_assert(cfg.B_c % (cfg.n_warps * (cfg.d_head % 64 == 0 ? 4 : 8)) == 0,
                  "the CTA copies whole rows: 4 or, where d_head is no multiple of 64, 8 of each warp must divide B_c");
    static_assert(cfg.B_r * (cfg.d_head + 4) * 4 <= (cfg.B_r + 2 * cfg.stages * cfg.B_c) * (cfg.d_head + 8) * 2,
                  "the warps' partial results of a slice, in fp32, must fit the tile of Q, K and V");
    static_assert(cfg.d_head_v == 0 || cfg.d_head % 64 == 0,
                  "d_head must be a multiple of 64 with dv: as many threads copy a row of V as of K");
}

/* Numbers of 16x16 operand blocks: along a warp's rows, along d_head, along its columns of V, and along the keys of a
 * KV block. */
template <attention_config cfg>
constexpr int row_tiles = cfg.B_r / row_warps<cfg> / 16;
template <attention_config cfg>
constexpr int d_steps = cfg.d_head / 16;
template <attention_config cfg>
constexpr int V_steps = V_columns<cfg> / 16;
template <attention_config cfg>
constexpr int key_steps = cfg.B_c / 16;

/* True if registers hold all of Q; otherwise 16 columns at a time are read from shared memory. With d_head = 192 Q is
 * read so often that registers pay off, and its warps have 16 rows, so registers suffice. */
template <attention_config cfg>
constexpr bool Q_in_registers = cfg.d_head == 192;
template <attention_config cfg>
constexpr int Q_slices = Q_in_registers<cfg> ? d_steps<cfg> : 1;

/* A lane holds four registers (eight 16-bit elements) of each 16x16 operand block, four floats of each 16x8 accumulator
 * tile, and two rows' values of m and l in each 16-row tile: rows lane / 4 and lane / 4 + 8. */
template <attention_config cfg>
using Q_fragments = uint32_t[row_tiles<cfg>][4];
template <attention_config cfg>
using K_fragments = uint32_t[key_steps<cfg>][4];
template <attention_config cfg>
using V_fragments = uint32_t[V_steps<cfg>][4];
template <attention_config cfg>
using P_fragments = uint32_t[row_tiles<cfg>][key_steps<cfg>][4];
template <attention_config cfg>
using S_tiles = float[row_tiles<cfg>][2 * key_steps<cfg>][4];
template <attention_config cfg>
using O_tiles = float[row_tiles<cfg>][2 * V_steps<cfg>][4];
template <attention_config cfg>
using rows_values = float[row_tiles<cfg>][2];

/* ---- shared memory ---- */

/* Byte offset of an element, of a column that is a multiple of 8, within a block. A row has 16 bytes of padding: it is
 * an odd number of times 4 banks, so that the same 16 bytes of 8 rows are 8 times 4 different banks. */
template <attention_config cfg>
constexpr int row_bytes = cfg.d_head * 2 + 16;
template <attention_config cfg>
__device__ constexpr uint32_t smem_offset(int row, int column) {
    return row * row_bytes<cfg> + column * 2;
}
template <attention_config cfg>
__device__ constexpr uint32_t V_smem_offset(int row, int column) {
    if constexpr (d_head_v<cfg> == cfg.d_head) return smem_offset<cfg>(row, column);
    return row * (d_head_v<cfg> * 2 + 16) + column * 2;
}

/* Bytes of a stage of the ring, a K and a V block. */
template <attention_config cfg>
constexpr int stage_bytes = smem_offset<cfg>(cfg.B_c, 0) + V_smem_offset<cfg>(cfg.B_c, 0);

/* ---- global memory to shared memory ---- */

/* Threads that copy a row, and rows that one instruction of the CTA copies: eight threads copy 128 contiguous bytes of
 * it, one L2 line, or four copy half a line where d_head is no multiple of 64. */
template <attention_config cfg>
constexpr int row_threads = cfg.d_head % 64 == 0 ? 8 : 4;
template <attention_config cfg>
constexpr int copy_rows = 32 * cfg.n_warps / row_threads<cfg>;

/* Address of an element `row` rows after gmem: 32 bits hold a row and the elements between two rows. */
__device__ __forceinline__ const uint16_t *row_of(const uint16_t *gmem, int row, int seq_stride) {
    return (const uint16_t *)mad_wide_s32(2 * row, seq_stride, (int64_t)gmem);
}

/* Copy a block of `rows` rows of Q or K, or of V. smem_first and gmem are this thread's own first chunk. With
 * `checked`, the rows before `first` and from `there` on, counted from that chunk's row, become zeros, and so do
 * `extended` columns from `columns` on, counted from its column. */
template <attention_config cfg, int rows, bool of_V = false>
__device__ __forceinline__ void copy_gmem_to_smem(uint32_t smem_first, const uint16_t *gmem, int seq_stride,
                                                  bool checked = false, int there = rows, int first = 0,
                                                  int columns = cfg.d_head) {
    for (int column = 0; column < (of_V ? d_head_v<cfg> : cfg.d_head); column += 8 * row_threads<cfg>) {
        for (int row = 0; row < rows; row += copy_rows<cfg>) {
            const uint16_t *chunk = (row == 0 ? gmem : row_of(gmem, row, seq_stride)) + column;
            const uint32_t offset = of_V ? V_smem_offset<cfg>(row, column) : smem_offset<cfg>(row, column);
            if (checked)
                cp_async_16_or_zeros(smem_first + offset, chunk,
                                     row < there && (!cfg.serves || row >= first) &&
                                         (!cfg.extended || column < columns));
            else
                cp_async_16(smem_first + offset, chunk);
        }
    }
}

extern __shared__ __align__(128) unsigned char smem[];

/* Set up the mbarriers of all stages: every thread arrives at a full one with its copies, every warp at an empty one.
 */
template <attention_config cfg>
__device__ __forceinline__ void init_mbarriers() {
    const uint32_t full = __cvta_generic_to_shared(smem) + smem_offset<cfg>(cfg.B_r, 0) + cfg.stages * stage_bytes<cfg>;
    const uint32_t empty = full + 8 * cfg.stages;
    if (threadIdx.x < cfg.stages) {
        mbarrier_init(full + 8 * threadIdx.x, 32 * cfg.n_warps);
        mbarrier_init(empty + 8 * threadIdx.x, cfg.n_warps);
    }
    __syncthreads();
}

/* ---- shared memory to registers ---- */

/* Q as A operands: tile i, step k is the 16x16 block of rows 16i and columns 16k. Matrices 0 to 3 of ldmatrix must be
 * its quarters (rows 0-7, 8-15 of columns 0-7, then of columns 8-15), so lanes 0-15 name the 16 rows of the left half
 * and lanes 16-31 those of the right half. */
template <attention_config cfg>
__device__ __forceinline__ void load_Q(Q_fragments<cfg> &Q, uint32_t Q_addr, int k) {
    for (int i = 0; i < row_tiles<cfg>; i++) ldmatrix_x4(Q[i], Q_addr + smem_offset<cfg>(16 * i, 16 * k));
}

/* K as B operands of Q K^T: n runs over keys, k over d_head, and a row of K is a column of K^T, so no transposition is
 * needed. K[n] is the block of keys 16n and columns 16k. Unlike for Q the second matrix of ldmatrix is the first 8
 * keys' right half: registers 0 and 1 belong to the first 8 keys, 2 and 3 to the other 8. */
template <attention_config cfg>
__device__ __forceinline__ void load_K(K_fragments<cfg> &K, uint32_t K_addr, int k) {
    for (int n = 0; n < key_steps<cfg>; n++) ldmatrix_x4(K[n], K_addr + smem_offset<cfg>(16 * n, 16 * k));
}

/* V as B operands of P V: n runs over d_head, k over keys. Here a column of B is a column of V, so ldmatrix transposes:
 * V[n] is the block of keys 16k and columns 16n; registers 0 and 1 belong to the first 8 columns, 2 and 3 to the
 * other 8. */
template <attention_config cfg>
__device__ __forceinline__ void load_V(V_fragments<cfg> &V, uint32_t V_addr, int k) {
    for (int n = 0; n < V_steps<cfg>; n++) ldmatrix_x4_trans(V[n], V_addr + V_smem_offset<cfg>(16 * k, 16 * n));
}

/* ---- tensor cores ---- */

/* S += Q K^T over one slice of 16 columns. All row tiles use an operand of K before the next operand is used. */
template <attention_config cfg>
__device__ __forceinline__ void mma_QK(S_tiles<cfg> &S, const Q_fragments<cfg> &Q, const K_fragments<cfg> &K) {
    for (int n = 0; n < key_steps<cfg>; n++) {
        for (int i = 0; i < row_tiles<cfg>; i++) mma<cfg.dtype>(S[i][2 * n], Q[i], K[n][0], K[n][1]);
        for (int i = 0; i < row_tiles<cfg>; i++) mma<cfg.dtype>(S[i][2 * n + 1], Q[i], K[n][2], K[n][3]);
    }
}

/* S += Q K^T, a slice of 16 columns after another. */
template <attention_config cfg>
__device__ __forceinline__ void multiply_QK(S_tiles<cfg> &S, Q_fragments<cfg> (&Q)[Q_slices<cfg>], uint32_t Q_addr,
                                            uint32_t K_addr) {
    K_fragments<cfg> K;
#pragma unroll
    for (int k = 0; k < d_steps<cfg>; k++) {
        if constexpr (!Q_in_registers<cfg>) load_Q<cfg>(Q[0], Q_addr, k);
        load_K<cfg>(K, K_addr, k);
        mma_QK<cfg>(S, Q[k % Q_slices<cfg>], K);
    }
}

/* O += P V over slice k of 16 keys, in the same order */
template <attention_config cfg>
__device__ __forceinline__ void mma_PV(O_tiles<cfg> &O, const P_fragments<cfg> &P, const V_fragments<cfg> &V, int k) {
    for (int n = 0; n < V_steps<cfg>; n++) {
        for (int i = 0; i < row_tiles<cfg>; i++) mma<cfg.dtype>(O[i][2 * n], P[i][k], V[n][0], V[n][1]);
        for (int i = 0; i < row_tiles<cfg>; i++) mma<cfg.dtype>(O[i][2 * n + 1], P[i][k], V[n][2], V[n][3]);
    }
}

/* ---- softmax: elements 0 and 1 of a tile are of the lane's first row (half 0), 2 and 3 of its second (half 1) ---- */

/* row_end(row) is the first key, counted from that of the block, that row number `row` of the warp does not attend to.
 */
template <attention_config cfg>
__device__ __forceinline__ void mask_S(S_tiles<cfg> &S, const auto &row_end, int lane) {
    for (int i = 0; i < row_tiles<cfg>; i++) mask(S[i], [&](int row) { return row_end(16 * i + row); }, lane);
}

/* m is held as -maximum * softmax_scale, which one FMA adds to a score: before the row attends to a key it is
 * no_maximum, which is finite, so that exp(-inf - m) is 0. */
constexpr float most_lag = 8; /* log2 of the largest exponential */

/* lane_max = row maxima of S over this lane's own columns. Return true if a score of the warp's rows exceeds its m by
 * too much; also for the first block, and for a NaN. */
template <attention_config cfg>
__device__ __forceinline__ bool outgrows_m(rows_values<cfg> &lane_max, const rows_values<cfg> &m, const S_tiles<cfg> &S,
                                           const rows_values<cfg> &scales) {
    float lag = -INFINITY;
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int half = 0; half < 2; half++) {
            lane_max[i][half] = fmaxf(S[i][0][2 * half], S[i][0][2 * half + 1]);
            for (int n = 1; n < 2 * key_steps<cfg>; n++)
                lane_max[i][half] = fmaxf(lane_max[i][half], fmaxf(S[i][n][2 * half], S[i][n][2 * half + 1]));
            lag = fmaxf(lag, fmaf(lane_max[i][half], scales[i][half], m[i][half]));
        }
    }
    return __any_sync(0xffffffff, !(lag <= most_lag));
}

/* Update m to the row maxima: the four lanes of a quad share a row, and two butterfly shuffles give each the maximum. l
 * and O were sums of exp(score - m_old); make them sums of exp(score - m). */
template <attention_config cfg>
__device__ __forceinline__ void update_m(rows_values<cfg> &m, rows_values<cfg> &l, O_tiles<cfg> &O,
                                         rows_values<cfg> &scales, const rows_values<cfg> &lane_max,
                                         float softmax_scale) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int half = 0; half < 2; half++) {
            float row_max = lane_max[i][half];
            row_max = fmaxf(row_max, __shfl_xor_sync(0xffffffff, row_max, 2));
            row_max = fmaxf(row_max, __shfl_xor_sync(0xffffffff, row_max, 1));
            const float m_old = m[i][half];
            m[i][half] = fminf(m_old, -row_max * scale_of_row(-row_max * softmax_scale, softmax_scale));
            scales[i][half] = scale_of_row(m[i][half], softmax_scale);
            const float factor = ex2_approx(m[i][half] - m_old);
            l[i][half] *= factor;
            for (int n = 0; n < 2 * V_steps<cfg>; n++) {
                O[i][n][2 * half] *= factor;
                O[i][n][2 * half + 1] *= factor;
            }
        }
    }
}

/* S = exp(S - m) in slices first to end - 1, and l += row sums of S over this lane's own columns; the quad adds up
 * once, after the last block. S is raw scores: exp((S - maximum) * softmax_scale) = 2^(S * scale + m) is one FMA and
 * one ex2. */
template <attention_config cfg>
__device__ __forceinline__ void exponentiate_S(S_tiles<cfg> &S, rows_values<cfg> &l, const rows_values<cfg> &m,
                                               const rows_values<cfg> &scales, int first, int end) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int n = 2 * first; n < 2 * end; n++) {
            for (int e = 0; e < 4; e++) {
                S[i][n][e] = ex2_approx(fmaf(S[i][n][e], scales[i][e / 2], m[i][e / 2]));
                l[i][e / 2] += S[i][n][e];
            }
        }
    }
}

/* P = S in 16 bits, in slices first to end - 1. Two 8-wide accumulator tiles of a lane are exactly its elements of one
 * 16-wide A operand: no lane needs a value of another. */
template <attention_config cfg>
__device__ __forceinline__ void round_S_to_P(P_fragments<cfg> &P, const S_tiles<cfg> &S, int first, int end) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int k = first; k < end; k++) {
            for (int r = 0; r < 4; r++) {
                const float *pair = &S[i][2 * k + r / 2][r % 2 * 2];
                P[i][k][r] = round_pair<cfg.dtype>(pair[0], pair[1]);
            }
        }
    }
}

/* Spill l to shared memory, or reload it: `slot` is this thread's own. l is not used between two blocks, while S, O and
 * the fragments need the registers. The store also enforces an order: later reads of shared memory wait for the sums.
 * Otherwise the compiler would delay the sums to the end of the block, with all of S still in registers. */
template <attention_config cfg>
__device__ __forceinline__ void spill_l(rows_values<cfg> &slot, const rows_values<cfg> &l) {
    for (int i = 0; i < row_tiles<cfg>; i++) slot[i][0] = l[i][0], slot[i][1] = l[i][1];
}
template <attention_config cfg>
__device__ __forceinline__ void reload_l(rows_values<cfg> &l, const rows_values<cfg> &slot) {
    spill_l<cfg>(l, slot);
}

/* O += P V: every slice of S becomes P just before its mma, and drop(P, k) may drop weights of it. l is spilled. */
template <attention_config cfg>
__device__ __forceinline__ void multiply_PV(O_tiles<cfg> &O, P_fragments<cfg> &P, S_tiles<cfg> &S, rows_values<cfg> &l,
                                            rows_values<cfg> &l_slot, const rows_values<cfg> &m,
                                            const rows_values<cfg> &scales, uint32_t V_addr, const auto &drop) {
    V_fragments<cfg> V;
#pragma unroll
    for (int k = 0; k < key_steps<cfg>; k++) {
        exponentiate_S<cfg>(S, l, m, scales, k, k + 1);
        round_S_to_P<cfg>(P, S, k, k + 1);
        drop(k);
        if (k == key_steps<cfg> - 1) spill_l<cfg>(l_slot, l);
        load_V<cfg>(V, V_addr, k);
        mma_PV<cfg>(O, P, V, k);
    }
}

/* ---- epilogue ---- */

/* ln of the sum of exp(score * softmax_scale), whose base-2 terms are l and m: -inf where l is 0. */
__device__ __forceinline__ float log_sum_exp(float l, float m) {
    return (lg2_approx(l) - m) * 0.693147181f;
}

/* O *= 1 / l, after adding up the quad's partial sums. O stays 0 where the row attends to no key. */
template <attention_config cfg>
__device__ __forceinline__ void divide_O_by_l(O_tiles<cfg> &O, rows_values<cfg> &l) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int half = 0; half < 2; half++) {
            l[i][half] += __shfl_xor_sync(0xffffffff, l[i][half], 2);
            l[i][half] += __shfl_xor_sync(0xffffffff, l[i][half], 1);
            const float inverse = l[i][half] == 0 ? 0 : 1 / l[i][half];
            for (int n = 0; n < 2 * V_steps<cfg>; n++) {
                O[i][n][2 * half] *= inverse;
                O[i][n][2 * half + 1] *= inverse;
            }
        }
    }
}

/* Round O and store `columns` columns of those rows, counted from the lane's first, that exist, at gmem(row), bypassing
 * L1. A lane has 4 bytes of each of four 8x8 tiles; the quad exchanges them, so that its lane q gets the 16 contiguous
 * bytes of tile q: first lanes 1 apart, for tiles 0 and 1 and for 2 and 3, then 2 apart. */
template <attention_config cfg>
__device__ __forceinline__ void store_O(const auto &gmem, const O_tiles<cfg> &O, int lane, const auto &exists,
                                        int columns) {
#pragma unroll
    for (int row = 0; row < 16 * row_tiles<cfg>; row += 8) {
        uint16_t *const row_gmem = gmem(row);
#pragma unroll
        for (int n = 0; n < 2 * V_steps<cfg>; n += 4) {
            uint32_t value[4];
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const float *pair = &O[row / 16][n + q][row % 16 / 4];
                value[q] = round_pair<cfg.dtype>(pair[0], pair[1]);
            }
#pragma unroll
            for (int swap = 0; swap < 4; swap++) {
                const int apart = swap / 2 + 1;
                uint32_t &low = value[swap % 2 * (3 - apart)], &high = value[swap % 2 * (3 - apart) + apart];
                const uint32_t other = __shfl_xor_sync(0xffffffff, lane & apart ? low : high, apart);
                if (lane & apart)
                    low = other;
                else
                    high = other;
            }
            if (exists(row) && (!cfg.extended || 8 * (n + lane % 4) < columns))
                st_global_v4_no_allocate(row_gmem + 8 * n, value);
        }
    }
}

/* A warp's partial result of a slice: for each row O, then l and m. 4 extra columns keep rows in different banks. */
template <attention_config cfg>
using slice_partial = float[cfg.B_r / cfg.n_warps][cfg.d_head + 4];

/* Store this warp's partial result, scaled to the largest m of all warps. A warp without a block has the factor 0. */
template <attention_config cfg>
__device__ __forceinline__ void store_partial(slice_partial<cfg> *partials, const rows_values<cfg> &m,
                                              rows_values<cfg> &l, const O_tiles<cfg> &O, int warp, int lane) {
    __syncthreads(); /* all warps have read Q and the ring, which the partial results overwrite */
    for (int i = 0; i < row_tiles<cfg>; i++)
        for (int half = 0; half < 2; half++)
            if (lane % 4 == 0) partials[warp][16 * i + 8 * half + lane / 4][cfg.d_head + 1] = m[i][half];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < row_tiles<cfg>; i++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = 16 * i + 8 * half + lane / 4;
            float m_all = m[i][half];
            for (int w = 0; w < cfg.n_warps; w++) m_all = fminf(m_all, partials[w][row][cfg.d_head + 1]);
            const float factor = ex2_approx(m_all - m[i][half]);
            for (int n = 0; n < 2 * V_steps<cfg>; n++) {
                float *pair = &partials[warp][row][8 * n + lane % 4 * 2];
                pair[0] = O[i][n][2 * half] * factor, pair[1] = O[i][n][2 * half + 1] * factor;
            }
            l[i][half] += __shfl_xor_sync(0xffffffff, l[i][half], 2);
            l[i][half] += __shfl_xor_sync(0xffffffff, l[i][half], 1);
            if (lane % 4 == 0) partials[warp][row][cfg.d_head] = l[i][half] * factor;
        }
    }
    __syncthreads();
}

/* O and LSE of a slice: add up all partial results, divide by l, round and store. A thread has 8 columns of every 64.
 */
template <attention_config cfg>
__device__ __forceinline__ void combine_partials(const auto &gmem, const auto &LSE, const slice_partial<cfg> *partials,
                                                 int first_row, int first_column, int there) {
    for (int row = 0; row < cfg.B_r / cfg.n_warps && row < there; row += copy_rows<cfg>) {
        for (int column = 0; column < cfg.d_head; column += 8 * row_threads<cfg>) {
            float l = 0, m = no_maximum, O[8] = {};
            for (int w = 0; w < cfg.n_warps; w++) {
                m = fminf(m, partials[w][first_row + row][cfg.d_head + 1]);
                l += partials[w][first_row + row][cfg.d_head];
                for (int n = 0; n < 8; n++) O[n] += partials[w][first_row + row][first_column + column + n];
            }
            uint32_t value[4];
            const float inverse = l == 0 ? 0 : 1 / l;
            for (int n = 0; n < 4; n++) value[n] = round_pair<cfg.dtype>(O[2 * n] * inverse, O[2 * n + 1] * inverse);
            if (first_column + column == 0) LSE(row, log_sum_exp(l, m));
            st_global_v4_no_allocate(gmem(row) + column, value);
        }
    }
}

/* ---- one Q block of the CTA, or a slice, as a warp processes it ---- */

/* Shared variables are allocated in the order in which their functions are compiled; these come first. */
template <attention_config cfg>
__device__ __forceinline__ cta_tiles<cfg> &shared_tiles() {
    __shared__ cta_tiles<cfg> tiles;
    return tiles;
}

/* With windows: the first key from which on all rows of a warp attend to keys, and any of them. */
struct key_window {
    int all_see, any_sees;
};

/* Arrays that live in registers are variables of attend(), to which the struct refers. threadIdx is read again, by
 * read_tid_x(), for copies and at the end, or addresses would be kept in registers through the loop. */
template <attention_config cfg, bool slice>
struct Q_work {
    static constexpr int Q_rows = cfg.B_r / row_warps<cfg>;        /* of a warp */
    static constexpr int warp_rows = copy_rows<cfg> / cfg.n_warps; /* rows that it copies at a time */
    /* Blocks copied ahead of the one that is read. This leaves slack + 1 stages: a warp that starts to copy waits only
     * for warps that are more than `slack` full blocks behind. Fewer blocks than that are filled up with zeros. */
    static constexpr int ahead = cfg.stages - 1 - slack<cfg>;

    const args_of<cfg> &args;
    const head_groups &groups; /* without varlen batches */
    cta_tiles<cfg> &tiles;
    const uint32_t turn;
    const uint16_t *(&KV_rows)[32 * cfg.n_warps][2];
    uint32_t &read; /* KV blocks that the CTA has read so far */
    Q_fragments<cfg> (&Q)[Q_slices<cfg>];
    O_tiles<cfg> &O;
    rows_values<cfg> &m, &scales, &l, &l_slot; /* l is spilled to this thread's own slot from one block to the next */

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t Q_smem = __cvta_generic_to_shared(smem);
    const uint32_t K_smem = Q_smem + smem_offset<cfg>(cfg.B_r, 0);
    const uint32_t V_smem = K_smem + smem_offset<cfg>(cfg.B_c, 0);
    const uint32_t full = K_smem + cfg.stages * stage_bytes<cfg>, empty = full + 8 * cfg.stages;
    /* The 16 rows and two chunks whose addresses the lanes provide to ldmatrix, in Q and in the first stage. */
    const uint32_t Q_addr =
        Q_smem + smem_offset<cfg>((slice ? 0 : (V_parts<cfg> > 1 ? warp % row_warps<cfg> : warp) * Q_rows) + lane % 16,
                                  lane / 16 * 8);
    const uint32_t K_first = K_smem + smem_offset<cfg>(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8);
    const uint32_t V_first =
        V_smem + (d_head_v<cfg> == cfg.d_head ? smem_offset<cfg>(lane % 16, lane / 16 * 8)
                                              : V_smem_offset<cfg>(lane % 16, lane / 16 * 8 + first_V_column(warp)));
    float softmax_scale; /* exponentials have base 2: log2(e) */

    /* Keys that all rows of the warp attend to, and keys that any of them attends to; the number of the block past the
     * last. */
    int all_see, any_sees;
    key_window window; /* with serve: the same for the first keys */
    uint32_t all_read;

    /* The first of a warp's columns of V and O. */
    static __device__ __forceinline__ int first_V_column(int warp) {
        return V_parts<cfg> > 1 ? warp / row_warps<cfg> * V_columns<cfg> : 0;
    }

    /* Wait for the warps that share the rows of this one. */
    static __device__ __forceinline__ void sync_rows(int warp) {
        if constexpr (V_parts<cfg> > 1)
            bar_sync(1 + row_warp_of<cfg>(warp), 32 * V_parts<cfg>);
        else
            __syncwarp();
    }

    /* ---- work tiles ---- */

    using Q_tile = tile_with_address<cfg>;
    __device__ __forceinline__ const Q_tile &own() const { return tiles.tile[turn % queue_slots]; }
    __device__ __forceinline__ const Q_tile &next() const { return tiles.tile[(turn + 1) % queue_slots]; }
    __device__ __forceinline__ int (&own_queries() const)[Q_rows] { return tiles.queries[read_tid_x() / 32][turn % 2]; }
    __device__ __forceinline__ int (&next_queries() const)[Q_rows] {
        return tiles.queries[read_tid_x() / 32][(turn + 1) % 2];
    }

    /* Rows of all queries of the tile's heads, and the query of a row. */
    __device__ __forceinline__ int rows_of(const Q_tile &tile) const {
        if constexpr (cfg.serves)
            return tile.rows;
        else
            return groups.rows;
    }
    __device__ __forceinline__ int query(const Q_tile &tile, int row) const {
        if constexpr (cfg.serves)
            return min(row, tile.rows - 1) >> tile.shift;
        else
            return query_of(groups, row);
    }
    /* The head of a row, which has the query, counted from the first head of its Q block. Where a row belongs to no
     * head, it is the last. */
    __device__ __forceinline__ int head_of(const Q_tile &tile, int row, int query) const {
        if constexpr (cfg.serves)
            return min(min(row, tile.rows - 1) & (1 << tile.shift) - 1, tile.heads - 1);
        else
            return min(row, groups.rows - 1) - query * groups.packed;
    }
    __device__ __forceinline__ bool exists(int row) const {
        if constexpr (cfg.serves)
            return row < own().rows && (row & (1 << own().shift) - 1) < own().heads;
        else
            return row < groups.rows;
    }

    /* Elements between a row, which has the query, and the first element of its Q block's first head. */
    __device__ __forceinline__ int64_t offset_of(const Q_tile &tile, int row, int query,
                                                 const tensor_strides &strides) const {
        const int head = head_of(tile, row, query);
        return mad_wide_s32(query, strides.seq, head * strides.head);
    }

    __device__ __forceinline__ void find_queries(const Q_tile &tile, int (&queries)[Q_rows]) const {
        const int thread = read_tid_x(), lane = thread % 32;
        if (lane < Q_rows)
            queries[lane] = query(tile, tile.first + (slice ? 0 : rows_of_warp<cfg>(thread / 32)) + lane);
        __syncwarp();
    }

    /* End of the keys that a query attends to. */
    __device__ __forceinline__ int end_of_keys(int query) const {
        if constexpr (cfg.serves)
            return seen_keys(own().range, query + 1);
        else
            return keys_of(args, query);
    }

    /* ---- copies ---- */

    /* Number of columns of a row of Q and K, and of V, from the thread's first on. */
    __device__ __forceinline__ int columns_left(int thread) const {
        return row_elements<cfg>(args) - thread % row_threads<cfg> * 8;
    }
    __device__ __forceinline__ int V_columns_left(int thread) const {
        return V_row_elements<cfg>(args) - thread % row_threads<cfg> * 8;
    }

    __device__ __forceinline__ void find_KV(const Q_tile &tile) const {
        const int thread = read_tid_x();
        int row = thread / row_threads<cfg>;
        const int column = thread % row_threads<cfg> * 8;
        if constexpr (cfg.serves)
            if (args.pages) row = 0;
        KV_rows[thread][0] = (const uint16_t *)args.K + tile.K + row * args.K_strides.seq + column;
        KV_rows[thread][1] = (const uint16_t *)args.V + tile.V + row * args.V_strides.seq + column;
    }

    /* Blocks use the stages cyclically: the CTA's block `number` is number / stages in its stage, and the phases of
     * both mbarriers have that number. It may be copied once the block before it in the stage has been read by all
     * warps. */
    __device__ __forceinline__ void copy_KV(const Q_tile &tile, bool checked, int block, uint32_t number) const {
        if constexpr (cfg.serves)
            copy_served_KV(tile, checked, block, number);
        else
            copy_KV_of_one_length(checked, block, number);
    }
    __device__ __forceinline__ void copy_KV_of_one_length(bool checked, int block, uint32_t number) const {
        const int tid = slice ? read_tid_x() : threadIdx.x, row = tid / row_threads<cfg>, stage = number % cfg.stages;
        const uint32_t offset = stage * stage_bytes<cfg> + smem_offset<cfg>(row, tid % row_threads<cfg> * 8);
        const int first = block * cfg.B_c, there = args.seq_k - first - row;
        const int K_stride = args.K_strides.seq, V_stride = args.V_strides.seq;
        const uint16_t *K = row_of(KV_rows[tid][0], first, K_stride), *V = row_of(KV_rows[tid][1], first, V_stride);
        wait_for_phase(empty + 8 * stage, number / cfg.stages - 1);
        copy_gmem_to_smem<cfg, cfg.B_c>(K_smem + offset, K, K_stride, checked, there);
        copy_gmem_to_smem<cfg, cfg.B_c>(V_smem + offset, V, V_stride, checked, there);
        cp_async_mbarrier_arrive_noinc(full + 8 * stage);
    }

    /* As above, for a sequence. The first rows of its first block may be hidden. */
    __device__ __forceinline__ void copy_served_KV(const located_varlen_tile &tile, bool checked, int block,
                                                   uint32_t number) const {
        const int tid = threadIdx.x, row = tid / row_threads<cfg>, stage = number % cfg.stages;
        const uint32_t offset = stage * stage_bytes<cfg> + smem_offset<cfg>(row, tid % row_threads<cfg> * 8);
        const uint32_t V_offset = stage * stage_bytes<cfg> + V_smem_offset<cfg>(row, tid % row_threads<cfg> * 8);
        const int first = block * cfg.B_c;
        wait_for_phase(empty + 8 * stage, number / cfg.stages - 1);
        if (args.pages) {
            copy_pages(tile, offset, V_offset, first + row);
        } else {
            const int K_stride = args.K_strides.seq, V_stride = args.V_strides.seq;
            const uint16_t *K = row_of(KV_rows[tid][0], first, K_stride), *V = row_of(KV_rows[tid][1], first, V_stride);
            const bool full_rows = row_elements<cfg>(args) == cfg.d_head && V_row_elements<cfg>(args) == d_head_v<cfg>;
            if (!checked && block > 0 && full_rows) {
                copy_gmem_to_smem<cfg, cfg.B_c>(K_smem + offset, K, K_stride);
                copy_gmem_to_smem<cfg, cfg.B_c, true>(V_smem + V_offset, V, V_stride);
            } else {
                const int there = tile.range.seq_k - first - row, visible = tile.hidden - first - row;
                copy_gmem_to_smem<cfg, cfg.B_c>(K_smem + offset, K, K_stride, true, there, visible, columns_left(tid));
                copy_gmem_to_smem<cfg, cfg.B_c, true>(V_smem + V_offset, V, V_stride, true, there, visible,
                                                      V_columns_left(tid));
            }
        }
        cp_async_mbarrier_arrive_noinc(full + 8 * stage);
    }
    /* The thread's rows of a block, from `key` on. Numbers of pages beyond the sequence, and hidden ones, are not read;
     * a missing page is zeros. */
    __device__ __forceinline__ void copy_pages(const located_varlen_tile &tile, uint32_t offset, uint32_t V_offset,
                                               int key) const {
        const int tid = threadIdx.x, page_shift = 31 - __clz(args.page_rows);
        const int32_t *const pages = args.pages + (int64_t)tile.sample * args.pages_of_sequence;
        for (int row = 0; row < cfg.B_c; row += copy_rows<cfg>) {
            const int in_tile = key + row, in_sequence = tile.first_key + in_tile;
            const bool used = in_tile >= tile.hidden && in_tile < tile.range.seq_k;
            const int page = used ? pages[in_sequence >> page_shift] : -1;
            const int row_of_page = in_sequence & args.page_rows - 1;
            const bool there = (unsigned)page < (unsigned)args.n_pages;
            const auto row_at = [&](const uint16_t *first, const tensor_strides &strides) {
                return first + (there ? page * strides.batch + row_of_page * strides.seq : 0);
            };
            copy_gmem_to_smem<cfg, 1>(K_smem + offset + smem_offset<cfg>(row, 0),
                                      row_at(KV_rows[tid][0], args.K_strides), 0, true, there, 0, columns_left(tid));
            copy_gmem_to_smem<cfg, 1, true>(V_smem + V_offset + V_smem_offset<cfg>(row, 0),
                                            row_at(KV_rows[tid][1], args.V_strides), 0, true, there, 0,
                                            V_columns_left(tid));
        }
    }

    /* A warp, or those that share rows, copies the rows of Q that it reads. All warps read a slice, so each copies a
     * part of it. */
    __device__ __forceinline__ void copy_Q(const Q_tile &tile, const int (&queries)[Q_rows]) const {
        const int thread = read_tid_x(), column = thread % row_threads<cfg> * 8;
        const int own_row = (slice ? thread : thread % 32) / row_threads<cfg> +
                            (V_parts<cfg> > 1 ? thread / 32 / row_warps<cfg> * warp_rows : 0);
        const uint16_t *Q_gmem = (const uint16_t *)args.Q + tile.Q + column;
        const int first = tile.first + (slice ? 0 : rows_of_warp<cfg>(thread / 32));
        const uint32_t Q_copy =
            Q_smem + smem_offset<cfg>(own_row + (slice ? 0 : row_warp_of<cfg>(thread / 32) * Q_rows), column);
        sync_rows(thread / 32); /* all lanes have read the previous Q */
#pragma unroll 1
        for (int row = 0; row < Q_rows && (!slice || own_row + row < Q_rows);
             row += slice ? copy_rows<cfg> : warp_rows * V_parts<cfg>)
            copy_gmem_to_smem<cfg, 1>(
                Q_copy + smem_offset<cfg>(row, 0),
                Q_gmem + offset_of(tile, first + own_row + row, queries[own_row + row], args.Q_strides), 0,
                cfg.extended, 1, 0, columns_left(thread));
        cp_async_commit_group();
    }

    /* Copy the block that is `ahead` of this one, of this Q block or of the next. */
    __device__ __forceinline__ void copy_ahead(int block) const {
        if (block >= ahead) {
            copy_KV(own(), false, block - ahead, read + ahead);
        } else if (!slice && next().first >= 0) {
            if (block == 0) copy_Q(next(), next_queries());
            if (block == ahead - 1) find_KV(next());
            copy_KV(next(), true, max(ahead, next().KV_blocks) + block - ahead, read + ahead);
        }
    }

    /* ---- the loop ---- */

    __device__ __forceinline__ void begin() {
        const int n_blocks = max(ahead, own().KV_blocks);
        if (slice || turn == 0) {
            find_queries(own(), own_queries());
            copy_Q(own(), own_queries());
            find_KV(own());
#pragma unroll 1
            for (uint32_t number = 0; number < ahead; number++)
                copy_KV(own(), true, n_blocks - 1 - number, read + number);
        }
        cp_async_wait_group<0>();
        slice ? __syncthreads() : sync_rows(warp); /* wait for the copies of the other threads */
        if constexpr (Q_in_registers<cfg>)
            for (int k = 0; k < d_steps<cfg>; k++) load_Q<cfg>(Q[k], Q_addr, k);
        softmax_scale = 1.44269504f * score_factor();
        for (int i = 0; i < row_tiles<cfg>; i++)
            for (int half = 0; half < 2; half++) m[i][half] = no_maximum, scales[i][half] = softmax_scale;
        spill_l<cfg>(l_slot, l);
        /* As results of a reduction they are uniform and need no register per lane. */
        all_see = __reduce_max_sync(0xffffffff, end_of_keys(own_queries()[0]));
        const bool any_row = own().first + (slice ? 0 : rows_of_warp<cfg>(warp)) < rows_of(own());
        any_sees = __reduce_max_sync(0xffffffff, any_row ? end_of_keys(own_queries()[Q_rows - 1]) : 0);
        if constexpr (cfg.serves) {
            window.all_see = __reduce_max_sync(0xffffffff, own_queries()[Q_rows - 1] + own().range.first);
            window.any_sees = __reduce_max_sync(0xffffffff, own_queries()[0] + own().range.first);
        }
        all_read = read + n_blocks;
    }

    /* Factor of the scores. With a cap S is in units of the cap. */
    __device__ __forceinline__ float score_factor() const {
        if constexpr (cfg.serves)
            if (args.softcap > 0) return args.softcap;
        return args.softmax_scale;
    }

    /* Blocks that the warp's rows do not attend to: it copies its part and waits for all copies, because they may
     * belong to a block that no warp reads. */
    __device__ __forceinline__ void skip_unseen(int left) {
#pragma unroll 1
        for (; (int)(all_read - read) > left && (int)(all_read - 1 - read) * cfg.B_c >= any_sees; read++)
            pass_block(all_read - 1 - read);
    }
    __device__ __forceinline__ void pass_block(int block) const {
        copy_ahead(block);
        wait_for_phase(full + 8 * (read % cfg.stages), read / cfg.stages);
        if (lane == 0) mbarrier_arrive(empty + 8 * (read % cfg.stages));
    }

    /* A masked block has its own copy of the multiplication: one path for both would move S between registers, but not
     * in a slice. */
    __device__ __forceinline__ void compute_S(S_tiles<cfg> &S, int block, uint32_t K_addr) const {
        if constexpr (cfg.serves) return compute_served_S(S, block, K_addr);
        const bool masked = all_see < (block + 1) * cfg.B_c;
        const auto row_end = [&](int row) { return end_of_keys(own_queries()[row]) - block * cfg.B_c; };
        if (slice) multiply_QK<cfg>(S, Q, Q_addr, K_addr);
        if (masked) {
            if (!slice) multiply_QK<cfg>(S, Q, Q_addr, K_addr);
            mask_S<cfg>(S, row_end, read_tid_x() % 32);
        } else if (!slice) {
            multiply_QK<cfg>(S, Q, Q_addr, K_addr);
        }
    }

    __device__ __forceinline__ void compute_served_S(S_tiles<cfg> &S, int block, uint32_t K_addr) const {
        const int first_key = block * cfg.B_c;
        const bool masked = all_see < first_key + cfg.B_c || window.all_see > first_key;
        const bool changed = has_bias() || finds_most() || masks_blocks();
        if (!masked && args.softcap == 0 && !changed) return multiply_QK<cfg>(S, Q, Q_addr, K_addr);
        multiply_QK<cfg>(S, Q, Q_addr, K_addr);
        if (args.softcap > 0) {
#pragma unroll
            for (int i = 0; i < row_tiles<cfg>; i++) cap(S[i], args.softmax_scale / args.softcap);
        }
        if (finds_most() && masked) mask_served_S(S, first_key);
        if (finds_most()) hide_rows(S, block);
        if (has_bias() || finds_most()) add_bias_to_S(S, first_key);
        if (masked) mask_served_S(S, first_key);
        hide_rows(S, block);
    }
    __device__ __forceinline__ bool has_bias() const {
        if constexpr (cfg.extended) return ::has_bias(args);
        return false;
    }
    __device__ __forceinline__ bool masks_blocks() const {
        if constexpr (cfg.extended) return args.block_mask != NULL;
        return false;
    }
    __device__ __forceinline__ bool finds_most() const {
        if constexpr (cfg.extended) return args.max_logits != NULL;
        return false;
    }
    /* The rows of a group's heads may share a Q block: each lane has the head of its own. Keys of the tile are counted
     * from its first KV block, those of the bias from the first of the sequence. */
    __device__ __forceinline__ void add_bias_to_S(S_tiles<cfg> &S, int first_key) const {
        if constexpr (cfg.extended) {
            const located_varlen_tile &tile = own();
            const int key = tile.first_key + first_key, seq_k = tile.first_key + tile.range.seq_k;
            const int seq_q = tile.rows >> tile.shift;
            const float inverse = 1 / score_factor();
#pragma unroll
            for (int i = 0; i < row_tiles<cfg>; i++) {
                row_values most;
                bias_row rows[2];
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int row = 16 * i + 8 * half + lane / 4, query = own_queries()[row];
                    const bias_origin origin = find_bias(args, tile.sample, head_of_lane(row));
                    rows[half] = find_bias_row(args, origin, query, query + seq_k - seq_q);
                }
                change_scores<cfg.dtype>(S[i], args, rows, key, seq_k, inverse, lane, most, args.bias != NULL);
                if (args.max_logits) raise_max_logits(most, 16 * i + lane / 4);
            }
        }
    }
    /* True if the block mask hides the block from a row of the warp, or from all. */
    __device__ __forceinline__ bool is_hidden(int block, int row) const {
        return !kind_of_block(args, own().sample, head_of_lane(row), own_queries()[row],
                              own().first_key + block * cfg.B_c);
    }
    __device__ __forceinline__ bool is_hidden(int block) const {
        if (!args.block_mask) return false;
        bool hidden = true;
        for (int row = lane / 4; row < Q_rows; row += 8) hidden = hidden && is_hidden(block, row);
        return __all_sync(0xffffffff, hidden);
    }
    __device__ __forceinline__ void hide_rows(S_tiles<cfg> &S, int block) const {
        if constexpr (cfg.extended) {
            if (!args.block_mask) return;
#pragma unroll
            for (int i = 0; i < row_tiles<cfg>; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    if (!is_hidden(block, 16 * i + 8 * half + lane / 4)) continue;
                    for (int n = 0; n < 2 * key_steps<cfg>; n++) S[i][n][2 * half] = S[i][n][2 * half + 1] = -INFINITY;
                }
        }
    }
    /* The head of a row of the warp. */
    __device__ __forceinline__ int head_of_lane(int row) const {
        return own().head +
               head_of(own(), own().first + rows_of_warp<cfg>(read_tid_x() / 32) + row, own_queries()[row]);
    }
    /* `row` is the lane's first. Rows past the end of a sequence do not count. */
    __device__ __forceinline__ void raise_max_logits(const row_values &most, int row) const {
        for (int half = 0; half < 2; half++) {
            float largest = fmaxf(-INFINITY, most[half]);
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 2));
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 1));
            const bool counts = exists(own().first + rows_of_warp<cfg>(read_tid_x() / 32) + row + 8 * half);
            if (lane % 4 == 0 && counts && largest > -INFINITY)
                raise(args.max_logits + (int64_t)own().sample * args.heads + head_of_lane(row + 8 * half),
                      largest * score_factor());
        }
    }

    /* Random words of the rows for the block, and dropout of 16 of its keys. */
    __device__ __forceinline__ void find_random(random_words (&random)[row_tiles<cfg>][2], int block) const {
        if constexpr (cfg.extended) {
            if (!args.keep_from) return;
            const int key = own().first_key + block * cfg.B_c;
#pragma unroll
            for (int i = 0; i < row_tiles<cfg>; i++)
                for (int half = 0; half < 2; half++) {
                    const int row = 16 * i + 8 * half + lane / 4;
                    const uint32_t head = (uint32_t)own().sample * args.heads + head_of_lane(row);
                    random[i][half] = find_random_words(dropout_key{args}, key, own_queries()[row], head, lane);
                }
        }
    }
    __device__ __forceinline__ void drop_slice(P_fragments<cfg> &P, const random_words (&random)[row_tiles<cfg>][2],
                                               int block, int k) const {
        if constexpr (cfg.extended) {
            if (!args.keep_from) return;
            const int s = (own().first_key + block * cfg.B_c) / 16 % 4 + k;
            for (int i = 0; i < row_tiles<cfg>; i++)
                for (int half = 0; half < 2; half++) {
                    const auto &word = random[i][half].word;
                    const uint32_t chosen = s == 0 ? word[0] : s == 1 ? word[1] : s == 2 ? word[2] : word[3];
                    drop_pairs(P[i][k][half], P[i][k][2 + half], chosen, args.keep_from);
                }
        }
    }
    __device__ __forceinline__ void mask_served_S(S_tiles<cfg> &S, int first_key) const {
#pragma unroll
        for (int i = 0; i < row_tiles<cfg>; i++) {
            const auto query = [&](int row) { return own_queries()[16 * i + row]; };
            const auto row_first = [&](int row) { return query(row) + own().range.first - first_key; };
            const auto row_end = [&](int row) { return end_of_keys(query(row)) - first_key; };
            mask(S[i], row_first, row_end, read_tid_x() % 32);
        }
    }

    __device__ __forceinline__ void use_block(int block, int stage) {
        const uint32_t K_addr = K_first + stage * stage_bytes<cfg>, V_addr = V_first + stage * stage_bytes<cfg>;
        wait_for_phase(full + 8 * stage, read / cfg.stages); /* wait for the copies of all threads */
        S_tiles<cfg> S = {};
        compute_S(S, block, K_addr);
        const int rows = slice ? own().first % cfg.B_r : rows_of_warp<cfg>(read_tid_x() / 32);
        const debug_position dumped(debug_block<cfg>(args, own().number, block), rows);
        dump_S<cfg>(args, dumped, S);

        copy_ahead(block);

        rows_values<cfg> lane_max;
        const bool outgrown = outgrows_m<cfg>(lane_max, m, S, scales);
        reload_l<cfg>(l, l_slot);
        if (outgrown) update_m<cfg>(m, l, O, scales, lane_max, softmax_scale);
        P_fragments<cfg> P;
        random_words random[row_tiles<cfg>][2];
        find_random(random, block);
        const auto drop = [&](int k) { drop_slice(P, random, block, k); };
        multiply_PV<cfg>(O, P, S, l, l_slot, m, scales, V_addr, drop);
        dump_m<cfg>(args, dumped, m, -softmax_scale);
        dump_P<cfg>(args, dumped, P), dump_l<cfg>(args, dumped, l), dump_O<cfg>(args, dumped, O);
        __syncwarp();
        if (lane == 0) mbarrier_arrive(empty + 8 * stage); /* this warp has read K and V */
    }

    /* All blocks but the last `left`. */
    __device__ __forceinline__ void use_blocks(int left) {
#pragma unroll 1
        for (; (int)(all_read - read) > left; read++) {
            const int block = all_read - 1 - read;
            const int stage = read % cfg.stages;
            /* This warp copies its part of another warp's blocks and reads nothing. */
            if (slice && block % cfg.n_warps != warp) {
                if (block >= ahead) copy_KV(own(), false, block - ahead, read + ahead);
                if (lane == 0) mbarrier_arrive(empty + 8 * stage);
                continue;
            }
            if (cfg.serves && (block + 1) * cfg.B_c <= window.any_sees) {
                pass_block(block);
                continue;
            }
            if constexpr (cfg.extended)
                if (is_hidden(block)) {
                    pass_block(block);
                    continue;
                }
            use_block(block, stage);
        }
    }

    /* With `left` blocks to go, one warp fetches the next Q block, a different one each time; later all warps read it.
     */
    __device__ __forceinline__ void find_next(int left) const {
        if (left > ahead) {
            const int thread = read_tid_x();
            if constexpr (cfg.serves) {
                if (warp_uniform(thread / 32) == turn % cfg.n_warps) find_varlen_tile<cfg>(tiles, args, turn + 1);
            } else if (thread == turn % cfg.n_warps * 32) {
                fetch<cfg>(tiles, args, groups, turn + 1);
            }
            __syncwarp();
        } else if (left > 0) {
            const uint32_t slot = (turn + 1) % queue_slots;
            wait_for_phase(__cvta_generic_to_shared(&tiles.found[slot]), (turn + 1) / queue_slots);
            if (next().first >= 0) find_queries(next(), next_queries());
        }
    }

    /* ---- the end ---- */

    __device__ __forceinline__ void store() {
        const int thread = read_tid_x(), O_lane = thread % 32, warp_row = slice ? thread / 32 * warp_rows : 0;
        const Q_tile &ended = own();
        constexpr int O_threads = slice ? row_threads<cfg> : 4;
        const int O_row = warp_row + O_lane / O_threads, O_column = O_lane % O_threads * 8;
        const int first = ended.first + (slice ? 0 : rows_of_warp<cfg>(thread / 32)) + O_row;
        const int there = rows_of(ended) - first;
        const auto stored = [&](int row) {
            if constexpr (cfg.serves) return exists(first + row);
            return row < there;
        };
        const int first_column = first_V_column(thread / 32);
        uint16_t *O_first = (uint16_t *)args.O + ended.O + O_column + first_column;
        const auto own_offset = [&](int row, const tensor_strides &strides) {
            return offset_of(ended, first + row, own_queries()[O_row + row], strides);
        };
        const auto O_gmem = [&](int row) { return O_first + own_offset(row, args.O_strides); };
        const auto store_LSE = [&](int row, float LSE) {
            const tensor_strides strides = {0, 1, rows_of_Q(args)};
            if (args.LSE != NULL && stored(row)) args.LSE[ended.LSE + own_offset(row, strides)] = LSE;
        };
        reload_l<cfg>(l, l_slot);
        for (int i = 0; i < row_tiles<cfg>; i++)
            for (int half = 0; half < 2; half++) m[i][half] = rescaled_m(m[i][half], softmax_scale);
        if constexpr (slice) {
            slice_partial<cfg> *partials = (slice_partial<cfg> *)smem;
            store_partial<cfg>(partials, m, l, O, thread / 32, O_lane);
            const int of_slice = copy_rows<cfg> > Q_rows ? min(there, Q_rows - O_row) : there;
            read = all_read; /* the same in all threads, as the compiler sees here */
            combine_partials<cfg>(O_gmem, store_LSE, partials, O_row, O_column, of_slice);
        } else {
            if constexpr (cfg.serves)
                divide_O_with_sinks(first);
            else
                divide_O_by_l<cfg>(O, l);
            store_O<cfg>(O_gmem, O, O_lane, stored, V_row_elements<cfg>(args) - first_column);
            if (O_column == 0 && first_column == 0)
                for (int row = 0; row < Q_rows; row += 8)
                    store_LSE(row, log_sum_exp(l[row / 16][row % 16 / 8], m[row / 16][row % 16 / 8]));
        }
    }

    /* `first` is the lane's first row. */
    __device__ __forceinline__ void divide_O_with_sinks(int first) {
        const located_varlen_tile &tile = own();
#pragma unroll
        for (int i = 0; i < row_tiles<cfg>; i++)
            divide_by_l(O[i], m[i], l[i], [&](int half) {
                const int row = first + 16 * i + 8 * half;
                return args.sinks ? args.sinks[tile.head + head_of(tile, row, 0)] : -INFINITY;
            });
        if constexpr (cfg.extended)
            if (args.keep_from)
#pragma unroll
                for (int i = 0; i < row_tiles<cfg>; i++) rescale(O[i], {args.dropout_scale, args.dropout_scale});
    }

    /* While there are two more blocks than those after which the next Q block's are copied, the next is fetched. */
    __device__ __forceinline__ void attend() {
        begin();
#pragma unroll 1
        for (int left = slice ? 0 : ahead + 2; left >= 0; left = left > ahead ? ahead : left - ahead) {
            skip_unseen(left);
            use_blocks(left);
            find_next(left);
        }
        store();
    }
};

/* Process Q block number `turn` of the CTA, or a slice before the first. The work tile must have been found. The CTA
 * has read `read` KV blocks so far. */
template <attention_config cfg, bool slice>
__device__ __forceinline__ void attend(const args_of<cfg> &args, const head_groups &groups, cta_tiles<cfg> &tiles,
                                       uint32_t turn, uint32_t &read) {
    __shared__ __align__(16) const uint16_t *KV_rows[32 * cfg.n_warps][2];
    Q_fragments<cfg> Q[Q_slices<cfg>];
    O_tiles<cfg> O = {};
    rows_values<cfg> m, scales, l = {};
    __shared__ __align__(16) rows_values<cfg> l_slots[32 * cfg.n_warps];
    Q_work<cfg, slice>{args, groups, tiles, turn, KV_rows, read, Q, O, m, scales, l, l_slots[threadIdx.x]}.attend();
}

/* A CTA processes its slices, then the Q block that has its number, then those that it fetches. */
template <attention_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps) flash_forward(const __grid_constant__ attention_args args) {
    check_config<cfg>();
    __shared__ head_groups groups;
    cta_tiles<cfg> &tiles = shared_tiles<cfg>();
    if (threadIdx.x == 0) {
        groups = groups_of<cfg>(args);
        for (int slot = 0; slot < queue_slots; slot++) mbarrier_init(__cvta_generic_to_shared(&tiles.found[slot]), 1);
        mbarrier_arrive(__cvta_generic_to_shared(&tiles.found[0]));
        tiles.slice = blockIdx.x < groups.slicers ? blockIdx.x : groups.slices;
    }
    init_mbarriers<cfg>();
    uint32_t read = 0;
    while (tiles.slice < groups.slices) {
        if (threadIdx.x == 0) find_tile<cfg, true>(tiles.tile[0], args, groups, tiles.slice);
        __syncthreads();
        attend<cfg, true>(args, groups, tiles, 0, read);
        if (threadIdx.x == 0) tiles.slice += groups.slicers;
        __syncthreads(); /* all threads have read the slice's sums and its work tile */
    }
    if (blockIdx.x >= groups.whole) return;
    if (threadIdx.x == 0) find_tile<cfg, false>(tiles.tile[0], args, groups, blockIdx.x);
    __syncthreads();
    for (uint32_t turn = 0; tiles.tile[turn % queue_slots].first >= 0; turn++)
        attend<cfg, false>(args, groups, tiles, turn, read);
}

/* A CTA processes Q blocks of varlen batches. */
template <attention_config cfg>
__device__ __forceinline__ void attend_sequences(const args_of<cfg> &args) {
    check_config<cfg>();
    const head_groups no_groups = {};
    cta_tiles<cfg> &tiles = shared_tiles<cfg>();
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < queue_slots; slot++) mbarrier_init(__cvta_generic_to_shared(&tiles.found[slot]), 1);
        tiles.walk = {-32}; /* no sequence: the walk begins by moving on to the first 32 */
    }
    init_mbarriers<cfg>();
    if (warp_uniform(threadIdx.x / 32) == 0) find_varlen_tile<cfg>(tiles, args, 0);
    __syncthreads();
    uint32_t read = 0;
    for (uint32_t turn = 0; tiles.tile[turn % queue_slots].first >= 0; turn++)
        attend<cfg, false>(args, no_groups, tiles, turn, read);
}

/* Kernels for varlen batches, and for shorter rows and biases. */
template <attention_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps) flash_forward(const __grid_constant__ serving_args args) {
    attend_sequences<cfg>(args);
}
template <attention_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps) flash_forward(const __grid_constant__ extended_args args) {
    attend_sequences<cfg>(args);
}

#include "instances.cuh"
