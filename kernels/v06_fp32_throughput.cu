/* v06 - fewer fp32 instructions in the softmax
 *
 * parent    v05
 * idea      exp(s / sqrt(d) - m) = 2^(s c - m c), c = log2(e) / sqrt(d): one FMA and one ex2 an element
 * predict   loop 62 instructions shorter: FMUL 130 -> 68, FADD 64 -> 32, FFMA 2 -> 34; 3 % faster than v05
 * claims    loop_change@sm_80=-62±20 speedup@4096=1.03±0.01
 * config    (FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax
 * arch      sm_80
 */
#include "common/abi.h"
#include "common/config.h"
#include "common/debug.cuh"
#include "common/ptx_sm80.cuh"

/* The algorithm (FlashAttention-2, Dao 2023, algorithm 1): a CTA owns B_r rows of Q of one head and goes through K and
 * V in blocks of B_c rows. For every row it keeps the largest score so far (m), the sum of exp(score - m) so far (l)
 * and the output so far (O), and rescales l and O whenever m grows. At the end O / l is the softmax-weighted mean of V.
 *
 * Who holds what: warp w owns rows w * B_r / n_warps ... of Q, S, P and O, all columns. Every warp reads the whole K
 * and V block from shared memory. S, P and O stay in registers, in the fragment layouts of mma.m16n8k16 (ptx_sm80.cuh).
 *
 * Shared memory: Q block, K block, V block, rows of d_head elements of 16 bits. The result takes the place of Q.
 *
 * All loops but the one over KV blocks have constant bounds and are unrolled by the compiler (the largest only when
 * told to). They must be: registers have no addresses, so an array lives in them only if every index is a constant. */

/* Refuse what this version can't run, and every flag that it would not act on. */
template <KernelConfig cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.d_head == 128, "d_head must be 128: rows of 256 bytes, 16 chunks of 16 bytes");
    static_assert(cfg.n_warps == 4 || cfg.n_warps == 8, "n_warps must be 4 or 8");
    static_assert(cfg.B_r == 64 || cfg.B_r == 128, "B_r must be 64 or 128");
    static_assert(cfg.B_c == 32 || cfg.B_c == 64 || cfg.B_c == 128, "B_c must be 32, 64 or 128");
    static_assert(cfg.B_r % (16 * cfg.n_warps) == 0, "a warp owns whole 16-row tiles: B_r % (16 * n_warps) must be 0");
    static_assert(cfg.B_c % (4 * cfg.n_warps) == 0, "a warp copies 4 rows at a time: B_c % (4 * n_warps) must be 0");
    static_assert(cfg.B_r / cfg.n_warps * (cfg.B_c + cfg.d_head) <= 7168,
                  "S and O of a warp, in fp32, must leave a lane 31 of its 255 registers for operands");
    static_assert(!cfg.eager_load_blocks || cfg.async_copy, "eager_load_blocks needs async_copy: only that overlaps");
    static_assert(cfg.Q_mma_load_K_tiles == 0 || cfg.Q_mma_load_K_tiles == cfg.K_mma_load_K_tiles,
                  "Q is read in slices as wide as those of K, or, with Q_mma_load_K_tiles 0, once");
    static_assert(cfg.K_mma_load_K_tiles != 1 && (cfg.K_mma_load_K_tiles == 0 || 16 % cfg.K_mma_load_K_tiles == 0),
                  "K_mma_load_K_tiles must be 0 or a power of two from 2 to d_head / 8");
    static_assert(cfg.V_mma_load_K_tiles != 1 && (cfg.V_mma_load_K_tiles == 0 || 16 % cfg.V_mma_load_K_tiles == 0),
                  "V_mma_load_K_tiles must be 0 or a power of two from 2 to B_c / 8");
    static_assert(8 * cfg.V_mma_load_K_tiles <= cfg.B_c, "V_mma_load_K_tiles must be at most B_c / 8");
    static_assert(!cfg.mma_double_buffer_loads || cfg.K_mma_load_K_tiles + cfg.V_mma_load_K_tiles != 0,
                  "mma_double_buffer_loads needs slices: without load tiles there is nothing to read ahead");
    static_assert(!cfg.mma_double_buffer_loads ||
                      (16 * cfg.K_mma_load_K_tiles <= cfg.d_head && 16 * cfg.V_mma_load_K_tiles <= cfg.B_c),
                  "mma_double_buffer_loads needs two slices or more: load tiles of at most d_head / 16 and B_c / 16");
    static_assert(!cfg.lazy_rescale && cfg.stages == 0 && cfg.slack == 0 && !cfg.padded_rows && !cfg.split_tail,
                  "lazy_rescale, stages, slack, padded_rows and split_tail must be off: later versions bring them");
}

/* Operands come in 16x16 blocks: so many along a warp's own rows, along d_head and along the keys of a KV block. */
template <KernelConfig cfg>
constexpr int row_tiles = cfg.B_r / cfg.n_warps / 16;
template <KernelConfig cfg>
constexpr int d_steps = cfg.d_head / 16;
template <KernelConfig cfg>
constexpr int key_steps = cfg.B_c / 16;

/* Steps of 16 in one slice: the columns of Q and K, and the keys of V, that are in registers at a time. */
template <KernelConfig cfg>
constexpr int Q_slice = cfg.Q_mma_load_K_tiles == 0 ? d_steps<cfg> : cfg.Q_mma_load_K_tiles / 2;
template <KernelConfig cfg>
constexpr int K_slice = cfg.K_mma_load_K_tiles == 0 ? d_steps<cfg> : cfg.K_mma_load_K_tiles / 2;
template <KernelConfig cfg>
constexpr int V_slice = cfg.V_mma_load_K_tiles == 0 ? key_steps<cfg> : cfg.V_mma_load_K_tiles / 2;

/* Sets of registers for slices. With two, a slice is read while the mma of the slice before still use theirs. */
template <KernelConfig cfg>
constexpr int buffers = cfg.mma_double_buffer_loads ? 2 : 1;

/* The most registers a thread may have. Reading slices of Q and K, a 16-row warp fits 168: three CTAs an SM instead of
 * two. With all of Q in registers it takes 196; more make ptxas copy K fragments that it can use in place. */
template <KernelConfig cfg>
constexpr bool narrow_slices = cfg.B_r == 64 && cfg.B_c <= 64 && cfg.K_mma_load_K_tiles == 2;
template <KernelConfig cfg>
constexpr int max_registers = narrow_slices<cfg> ? (cfg.Q_mma_load_K_tiles == 0 ? 196 : 168) : 255;

/* What a lane holds: four registers (eight 16-bit elements) of each 16x16 operand block, four floats of each 16x8
 * accumulator tile, and two rows' values of m and l in each 16-row tile: rows lane / 4 and lane / 4 + 8. */
template <KernelConfig cfg>
using Q_fragments = uint32_t[row_tiles<cfg>][Q_slice<cfg>][4];
template <KernelConfig cfg>
using K_fragments = uint32_t[key_steps<cfg>][K_slice<cfg>][4];
template <KernelConfig cfg>
using V_fragments = uint32_t[V_slice<cfg>][d_steps<cfg>][4];
template <KernelConfig cfg>
using P_fragments = uint32_t[row_tiles<cfg>][key_steps<cfg>][4];
template <KernelConfig cfg>
using S_tiles = float[row_tiles<cfg>][2 * key_steps<cfg>][4];
template <KernelConfig cfg>
using O_tiles = float[row_tiles<cfg>][2 * d_steps<cfg>][4];
template <KernelConfig cfg>
using row_values = float[row_tiles<cfg>][2];

/* ---- global memory to shared memory ---- */

/* Byte offset of a 16-byte chunk (8 elements) within a block of rows of d_head elements. A row is 256 bytes, twice
 * round the 32 banks, so the same chunk of 8 rows would be 8 accesses to the same 4 banks. Swizzled, those are 8
 * different chunks, which cover all 32 banks; the chunks of one row stay within their half of it, permuted. */
template <KernelConfig cfg>
__device__ __forceinline__ uint32_t smem_offset(int row, int chunk) {
    if constexpr (cfg.swizzled) chunk ^= row % 8;
    return row * (cfg.d_head * 2) + chunk * 16;
}

/* Copy this warp's share of a block: `rows` rows from row `first_row` on. Eight lanes take 128 contiguous bytes of a
 * row, one L2 line, so that one instruction of the warp covers 4 rows x 64 columns. gmem is this lane's own first
 * element. */
template <KernelConfig cfg, int rows>
__device__ __forceinline__ void copy_gmem_to_smem(uint32_t smem_block, const uint16_t *gmem, int64_t seq_stride,
                                                  int first_row, int lane) {
    for (int row = 0; row < rows; row += 4) {
        for (int chunk = 0; chunk < cfg.d_head / 8; chunk += 8) {
            const uint32_t smem_addr = smem_block + smem_offset<cfg>(first_row + row + lane / 8, chunk + lane % 8);
            const uint16_t *source = gmem + row * seq_stride + chunk * 8;
            if constexpr (cfg.async_copy) {
                cp_async_16(smem_addr, source);
            } else {
                uint32_t value[4];
                ld_global_v4(value, source);
                st_shared_v4(smem_addr, value);
            }
        }
    }
    if constexpr (cfg.async_copy) cp_async_commit_group();
}

/* Hand a block over: wait for this thread's own copies, then for all threads of the CTA. Afterwards every warp sees
 * what was copied before, and what was read before may be overwritten. */
template <KernelConfig cfg>
__device__ __forceinline__ void hand_over() {
    if constexpr (cfg.async_copy) cp_async_wait_group<0>();
    __syncthreads();
}

/* ---- shared memory to registers ---- */

/* Q as A operands: tile i, step k is the 16x16 block of rows 16i and columns 16k. Matrices 0 to 3 of ldmatrix must be
 * its quarters (rows 0-7, 8-15 of columns 0-7, then of columns 8-15), so lanes 0-15 name the 16 rows of the left half
 * and lanes 16-31 those of the right half. */
template <KernelConfig cfg>
__device__ __forceinline__ void load_Q(Q_fragments<cfg> &Q, uint32_t smem_block, int first_row, int step, int lane) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int k = 0; k < Q_slice<cfg>; k++) {
            const int row = first_row + 16 * i + lane % 16, chunk = 2 * (step + k) + lane / 16;
            ldmatrix_x4(Q[i][k], smem_block + smem_offset<cfg>(row, chunk));
        }
    }
}

/* K as B operands of Q K^T: n runs over keys, k over d_head, and a row of K is a column of K^T, so no transposition is
 * needed. K[n][k] is the block of keys 16n and columns 16k, read like Q: registers 0 and 2 belong to the first 8 keys,
 * 1 and 3 to the other 8. */
template <KernelConfig cfg>
__device__ __forceinline__ void load_K(K_fragments<cfg> &K, uint32_t smem_block, int step, int lane) {
    for (int k = 0; k < K_slice<cfg>; k++) {
        for (int n = 0; n < key_steps<cfg>; n++)
            ldmatrix_x4(K[n][k], smem_block + smem_offset<cfg>(16 * n + lane % 16, 2 * (step + k) + lane / 16));
    }
}

/* V as B operands of P V: n runs over d_head, k over keys. Here a column of B is a column of V, so ldmatrix transposes:
 * V[k][n] is the block of keys 16k and columns 16n; registers 0 and 1 belong to the first 8 columns, 2 and 3 to the
 * other 8. */
template <KernelConfig cfg>
__device__ __forceinline__ void load_V(V_fragments<cfg> &V, uint32_t smem_block, int step, int lane) {
    for (int k = 0; k < V_slice<cfg>; k++) {
        for (int n = 0; n < d_steps<cfg>; n++)
            ldmatrix_x4_trans(V[k][n], smem_block + smem_offset<cfg>(16 * (step + k) + lane % 16, 2 * n + lane / 16));
    }
}

/* ---- tensor cores ---- */

template <KernelConfig cfg>
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (cfg.dtype == FP16)
        mma_m16n8k16_f16(d, a, b0, b1);
    else
        mma_m16n8k16_bf16(d, a, b0, b1);
}

/* S += Q K^T over the slice of columns that begins at `step`; where Q is held whole, its slice begins at 0. */
template <KernelConfig cfg>
__device__ __forceinline__ void mma_QK(S_tiles<cfg> &S, const Q_fragments<cfg> &Q, const K_fragments<cfg> &K,
                                       int step) {
    const int Q_step = cfg.Q_mma_load_K_tiles == 0 ? step : 0;
    for (int k = 0; k < K_slice<cfg>; k++) {
        for (int i = 0; i < row_tiles<cfg>; i++) {
            for (int n = 0; n < key_steps<cfg>; n++) {
                mma<cfg>(S[i][2 * n], Q[i][Q_step + k], K[n][k][0], K[n][k][2]);
                mma<cfg>(S[i][2 * n + 1], Q[i][Q_step + k], K[n][k][1], K[n][k][3]);
            }
        }
    }
}

/* O += P V over the slice of keys that begins at `step` */
template <KernelConfig cfg>
__device__ __forceinline__ void mma_PV(O_tiles<cfg> &O, const P_fragments<cfg> &P, const V_fragments<cfg> &V,
                                       int step) {
    for (int k = 0; k < V_slice<cfg>; k++) {
        for (int i = 0; i < row_tiles<cfg>; i++) {
            for (int n = 0; n < d_steps<cfg>; n++) {
                mma<cfg>(O[i][2 * n], P[i][step + k], V[k][n][0], V[k][n][1]);
                mma<cfg>(O[i][2 * n + 1], P[i][step + k], V[k][n][2], V[k][n][3]);
            }
        }
    }
}

/* ---- softmax: elements 0 and 1 of a tile are of the lane's first row (half 0), 2 and 3 of its second (half 1) ---- */

/* S *= 1 / sqrt(d_head) */
template <KernelConfig cfg>
__device__ __forceinline__ void scale_S(S_tiles<cfg> &S, float softmax_scale) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int n = 0; n < 2 * key_steps<cfg>; n++) {
            for (int e = 0; e < 4; e++) S[i][n][e] *= softmax_scale;
        }
    }
}

/* m_old = m, m = max(m, row maxima of S). The four lanes of a quad share a row; two butterfly shuffles give
 * each the maximum. */
template <KernelConfig cfg>
__device__ __forceinline__ void update_m(row_values<cfg> &m_old, row_values<cfg> &m, const S_tiles<cfg> &S) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int half = 0; half < 2; half++) {
            m_old[i][half] = m[i][half];
            for (int n = 0; n < 2 * key_steps<cfg>; n++) {
                m[i][half] = fmaxf(m[i][half], S[i][n][2 * half]);
                m[i][half] = fmaxf(m[i][half], S[i][n][2 * half + 1]);
            }
            m[i][half] = fmaxf(m[i][half], __shfl_xor_sync(0xffffffff, m[i][half], 2));
            m[i][half] = fmaxf(m[i][half], __shfl_xor_sync(0xffffffff, m[i][half], 1));
        }
    }
}

/* l and O were sums of exp(score - m_old); make them sums of exp(score - m). Before the first block m_old is -inf and
 * the factor exp(-inf) = 0. */
template <KernelConfig cfg>
__device__ __forceinline__ void rescale_l_O(row_values<cfg> &l, O_tiles<cfg> &O, const row_values<cfg> &m_old,
                                            const row_values<cfg> &m, float softmax_scale) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int half = 0; half < 2; half++) {
            const float growth = m_old[i][half] - m[i][half];
            const float factor = cfg.optimized_softmax ? ex2_approx(growth * softmax_scale) : __expf(growth);
            l[i][half] *= factor;
            for (int n = 0; n < 2 * d_steps<cfg>; n++) {
                O[i][n][2 * half] *= factor;
                O[i][n][2 * half + 1] *= factor;
            }
        }
    }
}

/* S = exp(S - m), and l += row sums of S over this lane's own columns; the quad adds up once, after the last block.
 * optimized_softmax: S and m are raw scores, and exp((S - m) / sqrt(d_head)) = 2^(S * scale - m * scale) is one FMA and
 * one ex2, as m * scale is computed once a row. */
template <KernelConfig cfg>
__device__ __forceinline__ void exponentiate_S(S_tiles<cfg> &S, row_values<cfg> &l, const row_values<cfg> &m,
                                               float softmax_scale) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        const float m_scaled[2] = {m[i][0] * softmax_scale, m[i][1] * softmax_scale};
        for (int n = 0; n < 2 * key_steps<cfg>; n++) {
            for (int e = 0; e < 4; e++) {
                if constexpr (cfg.optimized_softmax)
                    S[i][n][e] = ex2_approx(fmaf(S[i][n][e], softmax_scale, -m_scaled[e / 2]));
                else
                    S[i][n][e] = __expf(S[i][n][e] - m[i][e / 2]);
                l[i][e / 2] += S[i][n][e];
            }
        }
    }
}

template <KernelConfig cfg>
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
    return cfg.dtype == FP16 ? cvt_f16x2(low, high) : cvt_bf16x2(low, high);
}

/* P = S in 16 bits. Two 8-wide accumulator tiles of a lane are exactly its elements of one 16-wide A operand: no lane
 * needs a value of another. */
template <KernelConfig cfg>
__device__ __forceinline__ void round_S_to_P(P_fragments<cfg> &P, const S_tiles<cfg> &S) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int k = 0; k < key_steps<cfg>; k++) {
            for (int r = 0; r < 4; r++) {
                const float *pair = &S[i][2 * k + r / 2][r % 2 * 2];
                P[i][k][r] = round_pair<cfg>(pair[0], pair[1]);
            }
        }
    }
}

/* ---- epilogue ---- */

/* O /= l, after adding up the quad's partial sums. */
template <KernelConfig cfg>
__device__ __forceinline__ void divide_O_by_l(O_tiles<cfg> &O, row_values<cfg> &l) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int half = 0; half < 2; half++) {
            l[i][half] += __shfl_xor_sync(0xffffffff, l[i][half], 2);
            l[i][half] += __shfl_xor_sync(0xffffffff, l[i][half], 1);
            for (int n = 0; n < 2 * d_steps<cfg>; n++) {
                O[i][n][2 * half] /= l[i][half];
                O[i][n][2 * half + 1] /= l[i][half];
            }
        }
    }
}

/* Round O and put it into shared memory: 4 bytes a lane, an 8x8 tile an instruction. */
template <KernelConfig cfg>
__device__ __forceinline__ void store_O_to_smem(uint32_t smem_block, const O_tiles<cfg> &O, int first_row, int lane) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int n = 0; n < 2 * d_steps<cfg>; n++) {
            for (int half = 0; half < 2; half++) {
                const uint32_t offset = smem_offset<cfg>(first_row + 16 * i + 8 * half + lane / 4, n) + lane % 4 * 4;
                st_shared_u32(smem_block + offset, round_pair<cfg>(O[i][n][2 * half], O[i][n][2 * half + 1]));
            }
        }
    }
}

/* Copy this warp's rows of the result out, 16 bytes a lane, mapped as in copy_gmem_to_smem. */
template <KernelConfig cfg, int rows>
__device__ __forceinline__ void copy_smem_to_gmem(uint16_t *gmem, uint32_t smem_block, int64_t seq_stride,
                                                  int first_row, int lane) {
    for (int row = 0; row < rows; row += 4) {
        for (int chunk = 0; chunk < cfg.d_head / 8; chunk += 8) {
            uint32_t value[4];
            ld_shared_v4(value, smem_block + smem_offset<cfg>(first_row + row + lane / 8, chunk + lane % 8));
            st_global_v4(gmem + row * seq_stride + chunk * 8, value);
        }
    }
}

/* ---- the kernel: grid (seq / B_r, heads, batch), 32 * n_warps threads ---- */

template <KernelConfig cfg>
__global__ void __maxnreg__(max_registers<cfg>) flash_forward(const __grid_constant__ forward_args args) {
    check_config<cfg>();
    constexpr int Q_rows = cfg.B_r / cfg.n_warps, KV_rows = cfg.B_c / cfg.n_warps; /* a warp's share of each block */
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    extern __shared__ __align__(128) unsigned char smem[];
    const uint32_t Q_smem = __cvta_generic_to_shared(smem);
    const uint32_t K_smem = Q_smem + cfg.B_r * cfg.d_head * 2;
    const uint32_t V_smem = K_smem + cfg.B_c * cfg.d_head * 2;

    /* Where a lane's copies from row `row` of this head on begin, in elements: a tensor may have more than 2^31. */
    const auto gmem_offset = [&](int64_t row, int lane) {
        const int64_t head = blockIdx.z * args.batch_stride + blockIdx.y * args.head_stride;
        return head + (row + lane / 8) * args.seq_stride + lane % 8 * 8;
    };
    const int64_t Q_block = (int64_t)blockIdx.x * cfg.B_r;
    const uint16_t *Q_gmem = (const uint16_t *)args.Q + gmem_offset(Q_block + warp * Q_rows, lane);
    const uint16_t *K_gmem = (const uint16_t *)args.K + gmem_offset(warp * KV_rows, lane);
    const uint16_t *V_gmem = (const uint16_t *)args.V + gmem_offset(warp * KV_rows, lane);
    const auto copy_next_K = [&] {
        copy_gmem_to_smem<cfg, KV_rows>(K_smem, K_gmem, args.seq_stride, warp * KV_rows, lane);
        K_gmem += cfg.B_c * args.seq_stride;
    };
    const auto copy_next_V = [&] {
        copy_gmem_to_smem<cfg, KV_rows>(V_smem, V_gmem, args.seq_stride, warp * KV_rows, lane);
        V_gmem += cfg.B_c * args.seq_stride;
    };

    /* Q is copied once. A warp reads only rows that it copied itself: its own lanes are all it waits for. */
    Q_fragments<cfg> Q[buffers<cfg>];
    copy_gmem_to_smem<cfg, Q_rows>(Q_smem, Q_gmem, args.seq_stride, warp * Q_rows, lane);
    if constexpr (cfg.eager_load_blocks) copy_next_K();
    if constexpr (cfg.async_copy) cp_async_wait_group<cfg.eager_load_blocks ? 1 : 0>(); /* Q, not yet K */
    __syncwarp();
    if constexpr (cfg.Q_mma_load_K_tiles == 0) load_Q<cfg>(Q[0], Q_smem, warp * Q_rows, 0, lane);

    /* Scores are divided by sqrt(d_head); with optimized_softmax the exponential has base 2, log2(e) = 1.4426950. */
    const float softmax_scale = (cfg.optimized_softmax ? 1.44269504f : 1.0f) / sqrtf(cfg.d_head);
    O_tiles<cfg> O = {};
    row_values<cfg> m, l = {};
    for (int i = 0; i < row_tiles<cfg>; i++) m[i][0] = m[i][1] = -INFINITY;

    const int n_blocks = args.seq / cfg.B_c;
#pragma unroll 1
    for (int block = 0; block < n_blocks; block++) {
        if constexpr (!cfg.eager_load_blocks) copy_next_K();
        hand_over<cfg>(); /* K has arrived; eager: and all warps are through with the V block before */
        if constexpr (cfg.eager_load_blocks) copy_next_V();

        S_tiles<cfg> S = {};
        K_fragments<cfg> K[buffers<cfg>];
        const auto load_QK = [&](int step) {
            const int buffer = step / K_slice<cfg> % buffers<cfg>;
            if constexpr (cfg.Q_mma_load_K_tiles != 0) load_Q<cfg>(Q[buffer], Q_smem, warp * Q_rows, step, lane);
            load_K<cfg>(K[buffer], K_smem, step, lane);
        };
        if constexpr (cfg.mma_double_buffer_loads) load_QK(0);
#pragma unroll
        for (int step = 0; step < d_steps<cfg>; step += K_slice<cfg>) {
            const int read = step + (buffers<cfg> - 1) * K_slice<cfg>, buffer = step / K_slice<cfg> % buffers<cfg>;
            if (read < d_steps<cfg>) load_QK(read);
            mma_QK<cfg>(S, Q[cfg.Q_mma_load_K_tiles == 0 ? 0 : buffer], K[buffer], step);
        }
        dump_S<cfg>(args, block, S);

        if constexpr (!cfg.eager_load_blocks) copy_next_V();
        hand_over<cfg>(); /* V has arrived; eager: and all warps are through with K */
        if constexpr (cfg.eager_load_blocks)
            if (block + 1 < n_blocks) copy_next_K();

        row_values<cfg> m_old;
        if constexpr (!cfg.optimized_softmax) scale_S<cfg>(S, softmax_scale);
        update_m<cfg>(m_old, m, S);
        rescale_l_O<cfg>(l, O, m_old, m, softmax_scale);
        exponentiate_S<cfg>(S, l, m, softmax_scale);
        P_fragments<cfg> P;
        round_S_to_P<cfg>(P, S);
        dump_m<cfg>(args, block, m, cfg.optimized_softmax ? 1.0f : softmax_scale), dump_P<cfg>(args, block, P),
            dump_l<cfg>(args, block, l);

        V_fragments<cfg> V[buffers<cfg>];
        if constexpr (cfg.mma_double_buffer_loads) load_V<cfg>(V[0], V_smem, 0, lane);
#pragma unroll
        for (int step = 0; step < key_steps<cfg>; step += V_slice<cfg>) {
            const int read = step + (buffers<cfg> - 1) * V_slice<cfg>;
            if (read < key_steps<cfg>) load_V<cfg>(V[read / V_slice<cfg> % buffers<cfg>], V_smem, read, lane);
            mma_PV<cfg>(O, P, V[step / V_slice<cfg> % buffers<cfg>], step);
        }
        dump_O<cfg>(args, block, O);

        if constexpr (!cfg.eager_load_blocks)
            hand_over<cfg>(); /* all warps are through with K and V: the next block may overwrite them */
    }

    /* O takes the place of Q. A warp writes and reads its own rows only: again it waits for its own lanes only. The
     * thread's index is read anew, or the addresses that Q and O share would be kept in registers through the loop. */
    const int tid = read_tid_x(), O_warp = tid / 32, O_lane = tid % 32;
    uint16_t *O_gmem = (uint16_t *)args.O + gmem_offset(Q_block + O_warp * Q_rows, O_lane);
    divide_O_by_l<cfg>(O, l);
    store_O_to_smem<cfg>(Q_smem, O, O_warp * Q_rows, O_lane);
    __syncwarp();
    copy_smem_to_gmem<cfg, Q_rows>(O_gmem, Q_smem, args.seq_stride, O_warp * Q_rows, O_lane);
}

#include "instances.cuh"
