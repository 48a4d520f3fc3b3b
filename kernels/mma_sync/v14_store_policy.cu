/* v14 - cache policy of the output stores
 *
 * parent    v13
 * idea      O is written once and not read again here: its lines need no space in L1
 * predict   loop unchanged, 16 stores carry another policy; time unchanged within 0.5 %
 * claims    loop_change@sm_80=0±2 speedup@4096=1±0.005
 * config    (FP16, 128, 128, 64, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax
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
 * The partial sums of l are spilled to shared memory of their own from one block to the next.
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
    static_assert(cfg.B_r / cfg.n_warps * (cfg.B_c + cfg.d_head) <= 7168,
                  "S and O of a warp, in fp32, must leave a lane 31 of its 255 registers for operands");
    static_assert(cfg.async_copy, "async_copy must be on: blocks are copied without registers");
    static_assert(cfg.eager_load_blocks, "eager_load_blocks must be on: each copy is started one step early");
    static_assert(cfg.swizzled, "swizzled must be on: it costs nothing in the KV loop");
    static_assert(cfg.optimized_softmax, "optimized_softmax must be on: scale and maximum are one multiply-add");
    static_assert(cfg.Q_mma_load_K_tiles == 0 || cfg.Q_mma_load_K_tiles == 2, "Q_mma_load_K_tiles must be 0 or 2");
    static_assert(cfg.K_mma_load_K_tiles == 2, "K_mma_load_K_tiles must be 2: K is read in slices of 16 columns");
    static_assert(cfg.V_mma_load_K_tiles == 2, "V_mma_load_K_tiles must be 2: V is read in slices of 16 keys");
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

/* Slices of K, V and Q that registers hold at a time. A slice is 16 columns of Q and K, or 16 keys of V. Load tiles of
 * 0 mean all slices of a block; otherwise there is one or, with mma_double_buffer_loads, two: the next slice is read
 * while the mma of a slice still use its registers. */
template <KernelConfig cfg>
constexpr int K_buffers = cfg.mma_double_buffer_loads ? 2 : 1;
template <KernelConfig cfg>
constexpr int V_buffers = cfg.mma_double_buffer_loads ? 2 : 1;
template <KernelConfig cfg>
constexpr int Q_buffers = cfg.Q_mma_load_K_tiles == 0 ? d_steps<cfg> : K_buffers<cfg>;

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
    return row * (cfg.d_head * 2) + (chunk ^ row % 8) * 16;
}

/* The addresses that a thread reads or writes in a block, swizzled once. All its rows agree mod 8, so the swizzle XORs
 * every chunk with the same three bits r, and (chunk + 2k) ^ r is (chunk ^ r) ^ 2k where the sum does not carry. So 16
 * and 32 columns on are an XOR with 32 and 64 bytes, and 8 rows or 64 columns on are a constant.
 * From an even chunk on, moving by 8 columns is also an XOR with 16 bytes. */
template <KernelConfig cfg>
struct smem_address {
    uint32_t block; /* address of the block */
    uint32_t chunk; /* offset of the thread's own chunk, swizzled */

    /* The address `rows` rows (a multiple of 8) and `columns` columns (of 16; from chunk 0 on, of 8) further on. */
    __device__ __forceinline__ uint32_t at(int rows, int columns) const {
        return block + (chunk ^ columns % 64 * 2) + rows * (cfg.d_head * 2) + columns / 64 * 128;
    }
};

/* ---- global memory to shared memory ---- */

/* Rows that one instruction of the CTA copies: eight threads copy 128 contiguous bytes of a row, one L2 line. */
template <KernelConfig cfg>
constexpr int copy_rows = 4 * cfg.n_warps;

/* Copy a block of `rows` rows. smem_first and gmem are this thread's own first chunk. 32 bits hold a row's distance
 * within a block: at most 128 rows of at most 65535 heads. */
template <KernelConfig cfg, int rows>
__device__ __forceinline__ void copy_gmem_to_smem(uint32_t smem_first, const uint16_t *gmem, int seq_stride) {
    for (int row = 0; row < rows; row += copy_rows<cfg>) {
        for (int column = 0; column < cfg.d_head; column += 64)
            cp_async_16(smem_first + row * (cfg.d_head * 2) + column * 2, gmem + (int64_t)row * seq_stride + column);
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
 * needed. K[n] is the block of keys 16n and columns 16k. Unlike for Q the second matrix of ldmatrix is the first 8
 * keys' right half: registers 0 and 1 belong to the first 8 keys, 2 and 3 to the other 8. */
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

/* S += Q K^T over one slice of 16 columns. All row tiles use an operand of K before the next operand is used. */
template <KernelConfig cfg>
__device__ __forceinline__ void mma_QK(S_tiles<cfg> &S, const Q_fragments<cfg> &Q, const K_fragments<cfg> &K) {
    for (int n = 0; n < key_steps<cfg>; n++) {
        for (int i = 0; i < row_tiles<cfg>; i++) mma<cfg>(S[i][2 * n], Q[i], K[n][0], K[n][1]);
        for (int i = 0; i < row_tiles<cfg>; i++) mma<cfg>(S[i][2 * n + 1], Q[i], K[n][2], K[n][3]);
    }
}

/* O += P V over slice k of 16 keys, in the same order */
template <KernelConfig cfg>
__device__ __forceinline__ void mma_PV(O_tiles<cfg> &O, const P_fragments<cfg> &P, const V_fragments<cfg> &V, int k) {
    for (int n = 0; n < d_steps<cfg>; n++) {
        for (int i = 0; i < row_tiles<cfg>; i++) mma<cfg>(O[i][2 * n], P[i][k], V[n][0], V[n][1]);
        for (int i = 0; i < row_tiles<cfg>; i++) mma<cfg>(O[i][2 * n + 1], P[i][k], V[n][2], V[n][3]);
    }
}

/* ---- softmax: elements 0 and 1 of a tile are of the lane's first row (half 0), 2 and 3 of its second (half 1) ---- */

/* m = max(m, row maxima of S), in the first block without the old m. The four lanes of a quad share a row; two
 * butterfly shuffles give each the maximum. */
template <KernelConfig cfg, bool first>
__device__ __forceinline__ void update_m(row_values<cfg> &m, const S_tiles<cfg> &S) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int half = 0; half < 2; half++) {
            for (int n = 0; n < 2 * key_steps<cfg>; n++) {
                m[i][half] = first && n == 0 ? S[i][n][2 * half] : fmaxf(m[i][half], S[i][n][2 * half]);
                m[i][half] = fmaxf(m[i][half], S[i][n][2 * half + 1]);
            }
            m[i][half] = fmaxf(m[i][half], __shfl_xor_sync(0xffffffff, m[i][half], 2));
            m[i][half] = fmaxf(m[i][half], __shfl_xor_sync(0xffffffff, m[i][half], 1));
        }
    }
}

/* l and O were sums of exp(score - m_old); make them sums of exp(score - m). */
template <KernelConfig cfg>
__device__ __forceinline__ void rescale_l_O(row_values<cfg> &l, O_tiles<cfg> &O, const row_values<cfg> &m_old,
                                            const row_values<cfg> &m, float softmax_scale) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int half = 0; half < 2; half++) {
            const float growth = m_old[i][half] - m[i][half];
            const float factor = ex2_approx(growth * softmax_scale);
            l[i][half] *= factor;
            for (int n = 0; n < 2 * d_steps<cfg>; n++) {
                O[i][n][2 * half] *= factor;
                O[i][n][2 * half + 1] *= factor;
            }
        }
    }
}

/* S = exp(S - m) in slices first to end - 1, and l += row sums of S over this lane's own columns; the quad adds up
 * once, after the last block. With optimized_softmax S and m are raw scores: exp((S - m) / sqrt(d_head)) = 2^(S * scale
 * - m * scale) is one FMA and one ex2, as m * scale is computed once per row. */
template <KernelConfig cfg>
__device__ __forceinline__ void exponentiate_S(S_tiles<cfg> &S, row_values<cfg> &l, const row_values<cfg> &m,
                                               float softmax_scale, int first, int end) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        const float m_scaled[2] = {m[i][0] * softmax_scale, m[i][1] * softmax_scale};
        for (int n = 2 * first; n < 2 * end; n++) {
            for (int e = 0; e < 4; e++) {
                S[i][n][e] = ex2_approx(fmaf(S[i][n][e], softmax_scale, -m_scaled[e / 2]));
                l[i][e / 2] += S[i][n][e];
            }
        }
    }
}

template <KernelConfig cfg>
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
    return cfg.dtype == FP16 ? cvt_f16x2(low, high) : cvt_bf16x2(low, high);
}

/* P = S in 16 bits, in slices first to end - 1. Two 8-wide accumulator tiles of a lane are exactly its elements of one
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

/* Spill l to shared memory, or reload it: `slot` is this thread's own. l is not used between two blocks, while S, O and
 * the fragments need the registers. The store also enforces an order: later reads of shared memory wait for the sums.
 * Otherwise the compiler would delay the sums to the end of the block, with all of S still in registers. */
template <KernelConfig cfg>
__device__ __forceinline__ void spill_l(row_values<cfg> &slot, const row_values<cfg> &l) {
    for (int i = 0; i < row_tiles<cfg>; i++) slot[i][0] = l[i][0], slot[i][1] = l[i][1];
}
template <KernelConfig cfg>
__device__ __forceinline__ void reload_l(row_values<cfg> &l, const row_values<cfg> &slot) {
    spill_l<cfg>(l, slot);
}

/* ---- epilogue ---- */

/* O *= 1 / l, after adding up the quad's partial sums. */
template <KernelConfig cfg>
__device__ __forceinline__ void divide_O_by_l(O_tiles<cfg> &O, row_values<cfg> &l) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int half = 0; half < 2; half++) {
            l[i][half] += __shfl_xor_sync(0xffffffff, l[i][half], 2);
            l[i][half] += __shfl_xor_sync(0xffffffff, l[i][half], 1);
            const float inverse = 1.0f / l[i][half];
            for (int n = 0; n < 2 * d_steps<cfg>; n++) {
                O[i][n][2 * half] *= inverse;
                O[i][n][2 * half + 1] *= inverse;
            }
        }
    }
}

/* Round O and store it in shared memory: 4 bytes per lane, one 8x8 tile per instruction. */
template <KernelConfig cfg>
__device__ __forceinline__ void store_O_to_smem(const smem_address<cfg> &O_addr, const O_tiles<cfg> &O) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int n = 0; n < 2 * d_steps<cfg>; n++) {
            for (int half = 0; half < 2; half++) {
                const uint32_t pair = round_pair<cfg>(O[i][n][2 * half], O[i][n][2 * half + 1]);
                st_shared_u32(O_addr.at(16 * i + 8 * half, 8 * n), pair);
            }
        }
    }
}

/* Copy rows of O to global memory, bypassing L1, 16 bytes per lane, mapped as in copy_gmem_to_smem. */
template <KernelConfig cfg, int rows>
__device__ __forceinline__ void copy_smem_to_gmem(uint16_t *gmem, uint32_t smem_first, int seq_stride) {
    for (int row = 0; row < rows; row += copy_rows<cfg>) {
        for (int column = 0; column < cfg.d_head; column += 64) {
            uint32_t value[4];
            ld_shared_v4(value, smem_first + row * (cfg.d_head * 2) + column * 2);
            st_global_v4_no_allocate(gmem + (int64_t)row * seq_stride + column, value);
        }
    }
}

/* ---- KV blocks: the first has neither a maximum nor sums before it ---- */

struct first_block {
    static constexpr bool first = true;
};
struct later_block {
    static constexpr bool first = false;
};

/* ---- the kernel: grid (seq / B_r, heads, batch), 32 * n_warps threads ---- */

template <KernelConfig cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps) flash_forward(const __grid_constant__ forward_args args) {
    check_config<cfg>();
    constexpr int row_bytes = cfg.d_head * 2;
    constexpr int Q_rows = cfg.B_r / cfg.n_warps; /* a warp's own */
    /* With the lane read separately, ptxas keeps the addresses of ldmatrix and does not recompute them. */
    const int warp = threadIdx.x / 32, lane = read_tid_x() % 32;

    extern __shared__ __align__(128) unsigned char smem[];
    const uint32_t Q_smem = __cvta_generic_to_shared(smem);
    const uint32_t K_smem = Q_smem + cfg.B_r * row_bytes;
    const uint32_t V_smem = K_smem + cfg.B_c * row_bytes;

    /* Offset of a thread's first copy, in elements: 64-bit, because a tensor may have more than 2^31 elements. */
    const int copy_row = threadIdx.x / 8, copy_chunk = threadIdx.x % 8;
    const uint32_t copy_offset = smem_offset<cfg>(copy_row, copy_chunk);
    const int64_t head = blockIdx.z * args.batch_stride + blockIdx.y * args.head_stride;
    const auto gmem_offset = [&](int64_t row, int chunk) { return head + row * args.seq_stride + chunk * 8; };
    const int64_t Q_block = (int64_t)blockIdx.x * cfg.B_r;
    const int64_t Q_offset = gmem_offset(Q_block + copy_row, copy_chunk);
    const int64_t KV_offset = gmem_offset(copy_row, copy_chunk);
    const int KV_step = cfg.B_c * args.seq_stride;
    const int n_blocks = args.seq / cfg.B_c;
    const auto copy_K = [&](int block) {
        const uint16_t *K_gmem = (const uint16_t *)args.K + KV_offset + (int64_t)block * KV_step;
        copy_gmem_to_smem<cfg, cfg.B_c>(K_smem + copy_offset, K_gmem, args.seq_stride);
    };
    const auto copy_V = [&](int block) {
        const uint16_t *V_gmem = (const uint16_t *)args.V + KV_offset + (int64_t)block * KV_step;
        copy_gmem_to_smem<cfg, cfg.B_c>(V_smem + copy_offset, V_gmem, args.seq_stride);
    };

    /* The 16 rows and two chunks whose addresses the lanes provide to ldmatrix, in each block. */
    const smem_address<cfg> Q_addr{Q_smem, smem_offset<cfg>(warp * Q_rows + lane % 16, lane / 16)};
    const smem_address<cfg> K_addr{K_smem, smem_offset<cfg>(lane % 8 + lane / 16 * 8, lane / 8 % 2)};
    const smem_address<cfg> V_addr{V_smem, smem_offset<cfg>(lane % 16, lane / 16)};

    /* Q is copied once, by all warps for all warps. */
    Q_fragments<cfg> Q[Q_buffers<cfg>];
    copy_gmem_to_smem<cfg, cfg.B_r>(Q_smem + copy_offset, (const uint16_t *)args.Q + Q_offset, args.seq_stride);
    copy_K(n_blocks - 1);
    if constexpr (cfg.Q_mma_load_K_tiles == 0) {
        cp_async_wait_group<1>(); /* Q, not yet K */
        __syncthreads();
        for (int k = 0; k < d_steps<cfg>; k++) load_Q<cfg>(Q[k], Q_addr, k);
    }

    /* Scores are divided by sqrt(d_head); with optimized_softmax the exponential has base 2, log2(e) = 1.4426950. */
    const float softmax_scale = 1.44269504f / sqrtf(cfg.d_head);
    O_tiles<cfg> O = {};
    row_values<cfg> m, l = {};
    __shared__ __align__(16) row_values<cfg> l_slots[32 * cfg.n_warps];
    row_values<cfg> &l_slot = l_slots[threadIdx.x];

    const auto process_block = [&](auto kind, int block) {
        hand_over(); /* K has arrived, and all warps have read the previous V block */
        copy_V(block);

        S_tiles<cfg> S = {};
        K_fragments<cfg> K[K_buffers<cfg>];
        const auto load_QK = [&](int k) {
            if constexpr (cfg.Q_mma_load_K_tiles != 0) load_Q<cfg>(Q[k % Q_buffers<cfg>], Q_addr, k);
            load_K<cfg>(K[k % K_buffers<cfg>], K_addr, k);
        };
        for (int k = 0; k < K_buffers<cfg> - 1; k++) load_QK(k);
#pragma unroll
        for (int k = 0; k < d_steps<cfg>; k++) {
            const int read = k + K_buffers<cfg> - 1;
            if (read < d_steps<cfg>) load_QK(read);
            mma_QK<cfg>(S, Q[k % Q_buffers<cfg>], K[k % K_buffers<cfg>]);
        }
        dump_S<cfg>(args, block, S);

        hand_over(); /* V has arrived, and all warps have read K */
        if (block > 0) copy_K(block - 1);

        if constexpr (kind.first) {
            update_m<cfg, true>(m, S);
        } else {
            row_values<cfg> m_old;
            for (int i = 0; i < row_tiles<cfg>; i++) m_old[i][0] = m[i][0], m_old[i][1] = m[i][1];
            update_m<cfg, false>(m, S);
            reload_l<cfg>(l, l_slot);
            rescale_l_O<cfg>(l, O, m_old, m, softmax_scale);
        }
        P_fragments<cfg> P;
        V_fragments<cfg> V[V_buffers<cfg>];
        for (int k = 0; k < V_buffers<cfg> - 1; k++) load_V<cfg>(V[k], V_addr, k);
#pragma unroll
        for (int k = 0; k < key_steps<cfg>; k++) {
            exponentiate_S<cfg>(S, l, m, softmax_scale, k, k + 1);
            round_S_to_P<cfg>(P, S, k, k + 1);
            if (k == key_steps<cfg> - 1) spill_l<cfg>(l_slot, l);
            const int read = k + V_buffers<cfg> - 1;
            if (read < key_steps<cfg>) load_V<cfg>(V[read % V_buffers<cfg>], V_addr, read);
            mma_PV<cfg>(O, P, V[k % V_buffers<cfg>], k);
        }
        dump_m<cfg>(args, block, m, 1.0f);
        dump_P<cfg>(args, block, P), dump_l<cfg>(args, block, l), dump_O<cfg>(args, block, O);
    };
    process_block(first_block{}, n_blocks - 1);
#pragma unroll 1
    for (int block = n_blocks - 2; block >= 0; block--) process_block(later_block{}, block);

    /* O overwrites Q. A warp writes its own rows, which no other warp reads, then copies rows of all. threadIdx is read
     * again, or the addresses that Q and O share would stay in registers through the loop. */
    const int O_thread = read_tid_x(), O_row = O_thread / 8, O_chunk = O_thread % 8;
    const int64_t O_offset = gmem_offset(Q_block + O_row, O_chunk);
    reload_l<cfg>(l, l_slot);
    divide_O_by_l<cfg>(O, l);
    const int O_lane = O_thread % 32;
    const smem_address<cfg> O_addr{Q_smem + O_lane % 4 * 4, smem_offset<cfg>(O_thread / 32 * Q_rows + O_lane / 4, 0)};
    store_O_to_smem<cfg>(O_addr, O);
    __syncthreads();
    copy_smem_to_gmem<cfg, cfg.B_r>((uint16_t *)args.O + O_offset, Q_smem + smem_offset<cfg>(O_row, O_chunk),
                                    args.seq_stride);
}

#include "instances.cuh"
