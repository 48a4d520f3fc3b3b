/* v02 - swizzling
 *
 * parent    v01
 * idea      store chunk c of row r at position c XOR (r mod 8), so that eight rows of one column are in different banks
 * predict   loop grows to about 700 instructions on sm_80; no 8-way conflict is left: four times faster than v01
 * claims    loop@sm_80=700±2% speedup@4096=4±0.4
 * config    (FP16, 128, 64, 64, 4): async+swizzled+load_0_0_0_tiles
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
 * Register layout: warp w owns rows w * B_r / n_warps ... of Q, S, P and O, all columns. Every warp reads the entire K
 * and V block from shared memory. S, P and O stay in registers, in the fragment layouts of mma.m16n8k16 (ptx_sm80.cuh).
 *
 * Shared memory: Q block, K block, V block, rows of d_head elements of 16 bits. The result overwrites Q.
 *
 * All loops but the one over KV blocks have constant bounds. The compiler unrolls them, and must: registers have no
 * addresses, so an array can live in them only when every index is a constant. */

/* Refuse what this version can't run, and every flag that it would not act on. */
template <KernelConfig cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.d_head == 128, "d_head must be 128: rows of 256 bytes, 16 chunks of 16 bytes");
    static_assert(cfg.n_warps == 4 || cfg.n_warps == 8, "n_warps must be 4 or 8");
    static_assert(cfg.B_r == 64 || cfg.B_r == 128, "B_r must be 64 or 128");
    static_assert(cfg.B_c == 32 || cfg.B_c == 64 || cfg.B_c == 128, "B_c must be 32, 64 or 128");
    static_assert(cfg.B_r % (16 * cfg.n_warps) == 0, "a warp owns whole 16-row tiles: B_r % (16 * n_warps) must be 0");
    static_assert(cfg.B_r / cfg.n_warps * (cfg.B_c + cfg.d_head) <= 7168,
                  "S and O of a warp, in fp32, must leave a lane 31 of its 255 registers for operands");
    static_assert(cfg.async_copy, "async_copy must be on: blocks are copied without registers");
    static_assert(!cfg.eager_load_blocks, "eager_load_blocks must be off: a block is copied when it is needed");
    static_assert(cfg.Q_mma_load_K_tiles == 0, "Q_mma_load_K_tiles must be 0: all of Q is held in registers");
    static_assert(cfg.K_mma_load_K_tiles == 0, "K_mma_load_K_tiles must be 0: a K block is read before its matmul");
    static_assert(cfg.V_mma_load_K_tiles == 0, "V_mma_load_K_tiles must be 0: a V block is read before its matmul");
    static_assert(!cfg.mma_double_buffer_loads, "mma_double_buffer_loads must be off: there is one set of fragments");
    static_assert(!cfg.optimized_softmax, "optimized_softmax must be off: scores are scaled before the exponential");
    static_assert(!cfg.lazy_rescale && cfg.stages == 0 && cfg.slack == 0 && !cfg.padded_rows && !cfg.split_tail,
                  "lazy_rescale, stages, slack, padded_rows and split_tail must be off: later versions bring them");
}

/* Numbers of 16x16 operand blocks: along a warp's own rows, along d_head and along the keys of a KV block. */
template <KernelConfig cfg>
constexpr int row_tiles = cfg.B_r / cfg.n_warps / 16;
template <KernelConfig cfg>
constexpr int d_steps = cfg.d_head / 16;
template <KernelConfig cfg>
constexpr int key_steps = cfg.B_c / 16;

/* A lane holds four registers (eight 16-bit elements) of each 16x16 operand block, four floats of each 16x8 accumulator
 * tile, and two rows' values of m and l in each 16-row tile: rows lane / 4 and lane / 4 + 8. */
template <KernelConfig cfg>
using Q_fragments = uint32_t[row_tiles<cfg>][4];
template <KernelConfig cfg>
using K_fragments = uint32_t[key_steps<cfg>][4];
template <KernelConfig cfg>
using V_fragments = uint32_t[d_steps<cfg>][4];
template <KernelConfig cfg>
using P_fragments = uint32_t[row_tiles<cfg>][key_steps<cfg>][4];
template <KernelConfig cfg>
using S_tiles = float[row_tiles<cfg>][2 * key_steps<cfg>][4];
template <KernelConfig cfg>
using O_tiles = float[row_tiles<cfg>][2 * d_steps<cfg>][4];
template <KernelConfig cfg>
using row_values = float[row_tiles<cfg>][2];

/* ---- shared memory ---- */

/* Byte offset of a 16-byte chunk (8 elements) within a block of rows of d_head elements. A row is 256 bytes, twice
 * round the 32 banks, so the same chunk of 8 rows would be 8 accesses to the same 4 banks. After swizzling these are 8
 * different chunks, which cover all 32 banks; the chunks of one row are permuted within each half of the row. */
template <KernelConfig cfg>
__device__ __forceinline__ uint32_t smem_offset(int row, int chunk) {
    if constexpr (cfg.swizzled) chunk ^= row % 8;
    return row * (cfg.d_head * 2) + chunk * 16;
}

/* The address that a lane provides to ldmatrix in a block: its row of 16, from first_row on, and its chunk of two. */
template <KernelConfig cfg>
struct smem_address {
    uint32_t block; /* address of the block */
    int first_row, lane;

    /* The address `rows` rows (a multiple of 8) and `columns` columns (a multiple of 16) further on. */
    __device__ __forceinline__ uint32_t at(int rows, int columns) const {
        return block + smem_offset<cfg>(first_row + rows + lane % 16, columns / 8 + lane / 16);
    }
};

/* ---- global memory to shared memory ---- */

/* Rows that one instruction of a warp copies: eight lanes copy 128 contiguous bytes of a row, one L2 line. */
template <KernelConfig cfg>
constexpr int copy_rows = 4;

/* Copy this warp's part of a block: `rows` rows from first_row on. gmem points to this lane's first chunk. */
template <KernelConfig cfg, int rows>
__device__ __forceinline__ void copy_gmem_to_smem(uint32_t smem_block, const uint16_t *gmem, int64_t seq_stride,
                                                  int first_row, int lane) {
    for (int row = 0; row < rows; row += copy_rows<cfg>) {
        for (int column = 0; column < cfg.d_head; column += 64) {
            const uint32_t smem_addr = smem_block + smem_offset<cfg>(first_row + row + lane / 8, column / 8 + lane % 8);
            cp_async_16(smem_addr, gmem + row * seq_stride + column);
        }
    }
    cp_async_commit_group();
}

/* Hand a block over: wait for this thread's own copies, then for all threads of the CTA. Afterwards every warp can
 * read what was copied before, and what was read before may be overwritten. */
__device__ __forceinline__ void hand_over() {
    cp_async_wait_group<0>();
    __syncthreads();
}

/* ---- shared memory to registers ---- */

/* Q as A operands: tile i, step k is the 16x16 block of rows 16i and columns 16k. Matrices 0 to 3 of ldmatrix must be
 * its quarters (rows 0-7, 8-15 of columns 0-7, then of columns 8-15), so lanes 0-15 name the 16 rows of the left half
 * and lanes 16-31 those of the right half. */
template <KernelConfig cfg>
__device__ __forceinline__ void load_Q(Q_fragments<cfg> &Q, const smem_address<cfg> &Q_addr, int k) {
    for (int i = 0; i < row_tiles<cfg>; i++) ldmatrix_x4(Q[i], Q_addr.at(16 * i, 16 * k));
}

/* K as B operands of Q K^T: n runs over keys, k over d_head, and a row of K is a column of K^T, so no transposition is
 * needed. K[n] is the block of keys 16n and columns 16k, read like Q: registers 0 and 2 belong to the first 8 keys, 1
 * and 3 to the other 8. */
template <KernelConfig cfg>
__device__ __forceinline__ void load_K(K_fragments<cfg> &K, const smem_address<cfg> &K_addr, int k) {
    for (int n = 0; n < key_steps<cfg>; n++) ldmatrix_x4(K[n], K_addr.at(16 * n, 16 * k));
}

/* V as B operands of P V: n runs over d_head, k over keys. Here a column of B is a column of V, so ldmatrix transposes:
 * V[n] is the block of keys 16k and columns 16n; registers 0 and 1 belong to the first 8 columns, 2 and 3 to the
 * other 8. */
template <KernelConfig cfg>
__device__ __forceinline__ void load_V(V_fragments<cfg> &V, const smem_address<cfg> &V_addr, int k) {
    for (int n = 0; n < d_steps<cfg>; n++) ldmatrix_x4_trans(V[n], V_addr.at(16 * k, 16 * n));
}

/* ---- tensor cores ---- */

template <KernelConfig cfg>
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (cfg.dtype == FP16)
        mma_m16n8k16_f16(d, a, b0, b1);
    else
        mma_m16n8k16_bf16(d, a, b0, b1);
}

/* S += Q K^T over 16 columns of d_head */
template <KernelConfig cfg>
__device__ __forceinline__ void mma_QK(S_tiles<cfg> &S, const Q_fragments<cfg> &Q, const K_fragments<cfg> &K) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int n = 0; n < key_steps<cfg>; n++) {
            mma<cfg>(S[i][2 * n], Q[i], K[n][0], K[n][2]);
            mma<cfg>(S[i][2 * n + 1], Q[i], K[n][1], K[n][3]);
        }
    }
}

/* O += P V over the 16 keys of step k */
template <KernelConfig cfg>
__device__ __forceinline__ void mma_PV(O_tiles<cfg> &O, const P_fragments<cfg> &P, const V_fragments<cfg> &V, int k) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int n = 0; n < d_steps<cfg>; n++) {
            mma<cfg>(O[i][2 * n], P[i][k], V[n][0], V[n][1]);
            mma<cfg>(O[i][2 * n + 1], P[i][k], V[n][2], V[n][3]);
        }
    }
}

/* ---- softmax: elements 0 and 1 of a tile are of the lane's first row (half 0), 2 and 3 of its second (half 1) ---- */

/* S *= 1 / sqrt(d_head) */
template <KernelConfig cfg>
__device__ __forceinline__ void scale_S(S_tiles<cfg> &S, float softmax_scale) {
    for (int i = 0; i < row_tiles<cfg>; i++)
        for (int n = 0; n < 2 * key_steps<cfg>; n++)
            for (int e = 0; e < 4; e++) S[i][n][e] *= softmax_scale;
}

/* m = max(m, row maxima of S). The four lanes of a quad share a row; two butterfly shuffles give each the maximum. */
template <KernelConfig cfg>
__device__ __forceinline__ void update_m(row_values<cfg> &m, const S_tiles<cfg> &S) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int half = 0; half < 2; half++) {
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
                                            const row_values<cfg> &m) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int half = 0; half < 2; half++) {
            const float growth = m_old[i][half] - m[i][half];
            const float factor = __expf(growth);
            l[i][half] *= factor;
            for (int n = 0; n < 2 * d_steps<cfg>; n++) {
                O[i][n][2 * half] *= factor;
                O[i][n][2 * half + 1] *= factor;
            }
        }
    }
}

/* S = exp(S - m) in steps first to end - 1, and l += row sums of S over this lane's own columns; the quad adds up once,
 * after the last block. */
template <KernelConfig cfg>
__device__ __forceinline__ void exponentiate_S(S_tiles<cfg> &S, row_values<cfg> &l, const row_values<cfg> &m, int first,
                                               int end) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int n = 2 * first; n < 2 * end; n++) {
            for (int e = 0; e < 4; e++) {
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

/* P = S in 16 bits, in steps first to end - 1. Two 8-wide accumulator tiles of a lane are exactly its elements of one
 * 16-wide A operand: no lane needs a value of another. */
template <KernelConfig cfg>
__device__ __forceinline__ void round_S_to_P(P_fragments<cfg> &P, const S_tiles<cfg> &S, int first, int end) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int k = first; k < end; k++) {
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

/* Round O and store it in shared memory: 4 bytes per lane, one 8x8 tile per instruction. */
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

/* Copy rows of O to global memory, 16 bytes per lane, mapped as in copy_gmem_to_smem. */
template <KernelConfig cfg, int rows>
__device__ __forceinline__ void copy_smem_to_gmem(uint16_t *gmem, uint32_t smem_block, int64_t seq_stride,
                                                  int first_row, int lane) {
    for (int row = 0; row < rows; row += copy_rows<cfg>) {
        for (int column = 0; column < cfg.d_head; column += 64) {
            uint32_t value[4];
            ld_shared_v4(value, smem_block + smem_offset<cfg>(first_row + row + lane / 8, column / 8 + lane % 8));
            st_global_v4(gmem + (int64_t)row * seq_stride + column, value);
        }
    }
}

/* ---- the kernel: grid (seq / B_r, heads, batch), 32 * n_warps threads ----
 *
 * 255 registers are the most that a thread can have. Without this limit ptxas uses fewer, to fit more CTAs per SM, and
 * moves the loads of operands so close to their mma that every mma waits. */

template <KernelConfig cfg>
__global__ void __maxnreg__(255) flash_forward(const __grid_constant__ forward_args args) {
    check_config<cfg>();
    constexpr int row_bytes = cfg.d_head * 2;
    constexpr int Q_rows = cfg.B_r / cfg.n_warps; /* a warp's own */
    constexpr int KV_rows = cfg.B_c / cfg.n_warps;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    extern __shared__ __align__(128) unsigned char smem[];
    const uint32_t Q_smem = __cvta_generic_to_shared(smem);
    const uint32_t K_smem = Q_smem + cfg.B_r * row_bytes;
    const uint32_t V_smem = K_smem + cfg.B_c * row_bytes;

    /* Offset of a thread's first copy, in elements: 64-bit, because a tensor may have more than 2^31 elements. */
    const auto gmem_offset = [&](int64_t row, int lane) {
        const int64_t head = blockIdx.z * args.batch_stride + blockIdx.y * args.head_stride;
        return head + (row + lane / 8) * args.seq_stride + lane % 8 * 8;
    };
    const int64_t Q_block = (int64_t)blockIdx.x * cfg.B_r;
    const uint16_t *Q_gmem = (const uint16_t *)args.Q + gmem_offset(Q_block + warp * Q_rows, lane);
    const uint16_t *K_gmem = (const uint16_t *)args.K + gmem_offset(warp * KV_rows, lane);
    const uint16_t *V_gmem = (const uint16_t *)args.V + gmem_offset(warp * KV_rows, lane);
    const auto copy_K = [&] {
        copy_gmem_to_smem<cfg, KV_rows>(K_smem, K_gmem, args.seq_stride, warp * KV_rows, lane);
        K_gmem += cfg.B_c * args.seq_stride;
    };
    const auto copy_V = [&] {
        copy_gmem_to_smem<cfg, KV_rows>(V_smem, V_gmem, args.seq_stride, warp * KV_rows, lane);
        V_gmem += cfg.B_c * args.seq_stride;
    };

    /* The 16 rows and two chunks whose addresses the lanes provide to ldmatrix, in each block. */
    const smem_address<cfg> Q_addr{Q_smem, warp * Q_rows, lane};
    const smem_address<cfg> K_addr{K_smem, 0, lane};
    const smem_address<cfg> V_addr{V_smem, 0, lane};

    /* Q is copied once. A warp reads only rows that it copied itself, so it waits for its own lanes only. */
    Q_fragments<cfg> Q[d_steps<cfg>];
    copy_gmem_to_smem<cfg, Q_rows>(Q_smem, Q_gmem, args.seq_stride, warp * Q_rows, lane);
    cp_async_wait_group<0>();
    __syncwarp();
    for (int k = 0; k < d_steps<cfg>; k++) load_Q<cfg>(Q[k], Q_addr, k);

    const float softmax_scale = 1.0f / sqrtf(cfg.d_head);
    O_tiles<cfg> O = {};
    row_values<cfg> m, l = {};
    for (int i = 0; i < row_tiles<cfg>; i++) m[i][0] = m[i][1] = -INFINITY;

    const int n_blocks = args.seq / cfg.B_c;
#pragma unroll 1
    for (int block = 0; block < n_blocks; block++) {
        copy_K();
        hand_over(); /* K has arrived */

        S_tiles<cfg> S = {};
        K_fragments<cfg> K[d_steps<cfg>];
        for (int k = 0; k < d_steps<cfg>; k++) load_K<cfg>(K[k], K_addr, k);
        for (int k = 0; k < d_steps<cfg>; k++) mma_QK<cfg>(S, Q[k], K[k]);
        dump_S<cfg>(args, block, S);

        copy_V();
        hand_over(); /* V has arrived */

        row_values<cfg> m_old;
        scale_S<cfg>(S, softmax_scale);
        for (int i = 0; i < row_tiles<cfg>; i++) m_old[i][0] = m[i][0], m_old[i][1] = m[i][1];
        update_m<cfg>(m, S);
        rescale_l_O<cfg>(l, O, m_old, m);
        exponentiate_S<cfg>(S, l, m, 0, key_steps<cfg>);
        P_fragments<cfg> P;
        round_S_to_P<cfg>(P, S, 0, key_steps<cfg>);
        V_fragments<cfg> V[key_steps<cfg>];
        for (int k = 0; k < key_steps<cfg>; k++) load_V<cfg>(V[k], V_addr, k);
        for (int k = 0; k < key_steps<cfg>; k++) mma_PV<cfg>(O, P, V[k], k);
        dump_m<cfg>(args, block, m, softmax_scale);
        dump_P<cfg>(args, block, P), dump_l<cfg>(args, block, l), dump_O<cfg>(args, block, O);

        hand_over(); /* all warps have read K and V: both may be overwritten */
    }

    /* O overwrites Q. A warp writes and reads only its own rows, so it waits only for its own lanes. threadIdx is read
     * again, or the addresses that Q and O share would stay in registers through the loop. */
    const int O_thread = read_tid_x(), O_row = O_thread / 32 * Q_rows;
    uint16_t *O_gmem = (uint16_t *)args.O + gmem_offset(Q_block + O_row, O_thread % 32);
    divide_O_by_l<cfg>(O, l);
    store_O_to_smem<cfg>(Q_smem, O, O_thread / 32 * Q_rows, O_thread % 32);
    __syncwarp();
    copy_smem_to_gmem<cfg, Q_rows>(O_gmem, Q_smem, args.seq_stride, O_row, O_thread % 32);
}

#include "instances.cuh"
