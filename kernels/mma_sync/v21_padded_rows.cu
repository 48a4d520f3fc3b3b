/* v21 - padded rows
 *
 * parent    v20
 * idea      rows of 272 bytes in shared memory instead of the swizzle: every address is one register plus a constant
 * predict   no XOR and no address registers but one for each of Q, K and V; loop 20 instructions shorter; 2 % faster
 * claims    loop_change@sm_80=-20±7 speedup@4096=1.02±0.01
 * config    (FP16, 128, 256, 64, 8): async+eager+load_2_2_2_tiles+opt_softmax+lazy+stages_4+slack_1+padded
 * arch      sm_80
 */
#include "common/abi.h"
#include "common/config.h"
#include "common/debug.cuh"
#include "common/ptx_sm80.cuh"

/* The algorithm (FlashAttention-2, Dao 2023, algorithm 1): a CTA owns B_r rows of Q of one head and goes through K and
 * V in blocks of B_c rows. For every row it keeps the largest score so far (m), the sum of exp(score - m) so far (l)
 * and the output so far (O). At the end O / l is the softmax-weighted mean of V, whatever m is: it cancels out. m may
 * therefore trail the largest score, as long as exp(score - m) fits the 16 bits of P and fp32 holds the sums. Here
 * m catches up, and l and O are rescaled, once the exponential of a score would be more than 2^8. P is then at most
 * 2^8, while fp16 ends at 65504, and its relative rounding is the same as below 1.
 *
 * Register layout: warp w owns rows w * B_r / n_warps ... of Q, S, P and O, all columns. Every warp reads the entire K
 * and V block from shared memory. S, P and O stay in registers, in the fragment layouts of mma.m16n8k16 (ptx_sm80.cuh).
 *
 * Shared memory: Q block, then a ring of stages, each a K and a V block; rows of d_head elements of 16 bits and 16
 * bytes of padding. The result overwrites Q. Then two mbarriers for each stage: full, at which the copies of all
 * threads arrive, and empty, at which every warp arrives once it has read the stage. The partial sums of l are spilled
 * to shared memory of their own from one block to the next.
 *
 * All loops but the one over KV blocks have constant bounds and are unrolled by the compiler (the largest only when
 * told to). They must be: registers have no addresses, so an array lives in them only if every index is a constant. */

/* Refuse what this version can't run, and every flag that it would not act on. */
template <KernelConfig cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.d_head == 128, "d_head must be 128: rows of 256 bytes, 16 chunks of 16 bytes");
    static_assert(cfg.n_warps == 4 || cfg.n_warps == 8, "n_warps must be 4 or 8");
    static_assert(cfg.B_r == 64 || cfg.B_r == 128 || cfg.B_r == 256, "B_r must be 64, 128 or 256");
    static_assert(cfg.B_c == 32 || cfg.B_c == 64 || cfg.B_c == 128, "B_c must be 32, 64 or 128");
    static_assert(cfg.B_r % (16 * cfg.n_warps) == 0, "a warp owns whole 16-row tiles: B_r % (16 * n_warps) must be 0");
    static_assert(cfg.B_r / cfg.n_warps * (cfg.B_c + cfg.d_head) <= 7168,
                  "S and O of a warp, in fp32, must leave a lane 31 of its 255 registers for operands");
    static_assert(cfg.async_copy, "async_copy must be on: blocks are copied without registers");
    static_assert(cfg.eager_load_blocks, "eager_load_blocks must be on: each copy is started one step early");
    static_assert(!cfg.swizzled && cfg.padded_rows, "swizzled must be off and padded_rows on: padding is enough");
    static_assert(cfg.optimized_softmax, "optimized_softmax must be on: scale and maximum are one multiply-add");
    static_assert(cfg.Q_mma_load_K_tiles == 0 || cfg.Q_mma_load_K_tiles == 2, "Q_mma_load_K_tiles must be 0 or 2");
    static_assert(cfg.lazy_rescale, "lazy_rescale must be on: l and O are rescaled when they need to be");
    static_assert(cfg.stages == 2 || cfg.stages == 4 || cfg.stages == 8,
                  "stages must be 2, 4 or 8: a power of two, as a block's stage is its number modulo stages");
    static_assert(cfg.slack >= 0 && cfg.slack <= cfg.stages - 2, "slack must be from 0 to stages - 2");
    static_assert(!cfg.split_tail, "split_tail must be off: every CTA takes one Q block");
    static_assert(cfg.K_mma_load_K_tiles == 2, "K_mma_load_K_tiles must be 2: K is read in slices of 16 columns");
    static_assert(cfg.V_mma_load_K_tiles == 2, "V_mma_load_K_tiles must be 2: V is read in slices of 16 keys");
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

/* Byte offset of an element, of a column that is a multiple of 8, within a block. A row is 256 bytes and 16 of padding:
 * 4 banks more than twice round the 32, so that the same 16 bytes of 8 rows are 8 times 4 different banks. */
template <KernelConfig cfg>
constexpr int row_bytes = config_row_bytes(&cfg);
template <KernelConfig cfg>
__device__ constexpr uint32_t smem_offset(int row, int column) {
    return row * row_bytes<cfg> + column * 2;
}

/* ---- global memory to shared memory ---- */

/* Rows that one instruction of the CTA copies: eight threads copy 128 contiguous bytes of a row, one L2 line. */
template <KernelConfig cfg>
constexpr int copy_rows = 4 * cfg.n_warps;

/* Copy a block of `rows` rows. smem_first and gmem are this thread's own first chunk. 32 bits hold a row's distance
 * within a block: at most 256 rows of at most 65535 heads. */
template <KernelConfig cfg, int rows>
__device__ __forceinline__ void copy_gmem_to_smem(uint32_t smem_first, const uint16_t *gmem, int seq_stride) {
    for (int column = 0; column < cfg.d_head; column += 64) {
        for (int row = 0; row < rows; row += copy_rows<cfg>)
            cp_async_16(smem_first + smem_offset<cfg>(row, column), gmem + (int64_t)row * seq_stride + column);
    }
}

/* Set up the mbarriers of all stages: every thread arrives at a full one with its copies, every warp at an empty one.
 */
template <KernelConfig cfg>
__device__ __forceinline__ void init_mbarriers(uint32_t full, uint32_t empty) {
    if (threadIdx.x < cfg.stages) {
        mbarrier_init(full + 8 * threadIdx.x, 32 * cfg.n_warps);
        mbarrier_init(empty + 8 * threadIdx.x, cfg.n_warps);
    }
    __syncthreads();
}

/* Wait until phase number `phase` of an mbarrier is complete; the mbarrier may lag by at most one phase. Number -1,
 * before the first, is complete from the start. */
__device__ __forceinline__ void wait_for_phase(uint32_t mbarrier, int phase) {
    while (!mbarrier_test_wait_parity(mbarrier, phase & 1)) {
    }
}

/* ---- shared memory to registers ---- */

/* Q as A operands: tile i, step k is the 16x16 block of rows 16i and columns 16k. Matrices 0 to 3 of ldmatrix must be
 * its quarters (rows 0-7, 8-15 of columns 0-7, then of columns 8-15), so lanes 0-15 name the 16 rows of the left half
 * and lanes 16-31 those of the right half. */
template <KernelConfig cfg>
__device__ __forceinline__ void load_Q(Q_fragments<cfg> &Q, uint32_t Q_addr, int k) {
    for (int i = 0; i < row_tiles<cfg>; i++) ldmatrix_x4(Q[i], Q_addr + smem_offset<cfg>(16 * i, 16 * k));
}

/* K as B operands of Q K^T: n runs over keys, k over d_head, and a row of K is a column of K^T, so no transposition is
 * needed. K[n] is the block of keys 16n and columns 16k. Unlike for Q the second matrix of ldmatrix is the first 8
 * keys' right half: registers 0 and 1 belong to the first 8 keys, 2 and 3 to the other 8. */
template <KernelConfig cfg>
__device__ __forceinline__ void load_K(K_fragments<cfg> &K, uint32_t K_addr, int k) {
    for (int n = 0; n < key_steps<cfg>; n++) ldmatrix_x4(K[n], K_addr + smem_offset<cfg>(16 * n, 16 * k));
}

/* V as B operands of P V: n runs over d_head, k over keys. Here a column of B is a column of V, so ldmatrix transposes:
 * V[n] is the block of keys 16k and columns 16n; registers 0 and 1 belong to the first 8 columns, 2 and 3 to the
 * other 8. */
template <KernelConfig cfg>
__device__ __forceinline__ void load_V(V_fragments<cfg> &V, uint32_t V_addr, int k) {
    for (int n = 0; n < d_steps<cfg>; n++) ldmatrix_x4_trans(V[n], V_addr + smem_offset<cfg>(16 * k, 16 * n));
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

/* S += Q K^T: the slices are read from shared memory K_buffers - 1 ahead of their mma. Q keeps its registers. */
template <KernelConfig cfg>
__device__ __forceinline__ void multiply_QK(S_tiles<cfg> &S, Q_fragments<cfg> (&Q)[Q_buffers<cfg>], uint32_t Q_addr,
                                            uint32_t K_addr) {
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

/* m is held as -maximum * softmax_scale, which one FMA adds to a score: before the first block it is +inf. */
constexpr float most_lag = 8; /* log2 of the largest exponential */

/* lane_max = row maxima of S over this lane's own columns. Return true if a score of the warp's rows exceeds its m by
 * too much; also for the first block, and for a NaN. */
template <KernelConfig cfg>
__device__ __forceinline__ bool outgrows_m(row_values<cfg> &lane_max, const row_values<cfg> &m, const S_tiles<cfg> &S,
                                           float softmax_scale) {
    float lag = -INFINITY;
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int half = 0; half < 2; half++) {
            lane_max[i][half] = fmaxf(S[i][0][2 * half], S[i][0][2 * half + 1]);
            for (int n = 1; n < 2 * key_steps<cfg>; n++)
                lane_max[i][half] = fmaxf(lane_max[i][half], fmaxf(S[i][n][2 * half], S[i][n][2 * half + 1]));
            lag = fmaxf(lag, fmaf(lane_max[i][half], softmax_scale, m[i][half]));
        }
    }
    return __any_sync(0xffffffff, !(lag <= most_lag));
}

/* Update m to the row maxima: the four lanes of a quad share a row, and two butterfly shuffles give each the maximum. l
 * and O were sums of exp(score - m_old); make them sums of exp(score - m). */
template <KernelConfig cfg>
__device__ __forceinline__ void update_m(row_values<cfg> &m, row_values<cfg> &l, O_tiles<cfg> &O,
                                         const row_values<cfg> &lane_max, float softmax_scale) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int half = 0; half < 2; half++) {
            float row_max = lane_max[i][half];
            row_max = fmaxf(row_max, __shfl_xor_sync(0xffffffff, row_max, 2));
            row_max = fmaxf(row_max, __shfl_xor_sync(0xffffffff, row_max, 1));
            const float m_old = m[i][half];
            m[i][half] = fminf(m_old, -row_max * softmax_scale);
            const float factor = ex2_approx(m[i][half] - m_old);
            l[i][half] *= factor;
            for (int n = 0; n < 2 * d_steps<cfg>; n++) {
                O[i][n][2 * half] *= factor;
                O[i][n][2 * half + 1] *= factor;
            }
        }
    }
}

/* S = exp(S - m) in slices first to end - 1, and l += row sums of S over this lane's own columns; the quad adds up
 * once, after the last block. With optimized_softmax S is raw scores: exp((S - maximum) / sqrt(d_head)) = 2^(S * scale
 * + m) is one FMA and one ex2. */
template <KernelConfig cfg>
__device__ __forceinline__ void exponentiate_S(S_tiles<cfg> &S, row_values<cfg> &l, const row_values<cfg> &m,
                                               float softmax_scale, int first, int end) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int n = 2 * first; n < 2 * end; n++) {
            for (int e = 0; e < 4; e++) {
                S[i][n][e] = ex2_approx(fmaf(S[i][n][e], softmax_scale, m[i][e / 2]));
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
__device__ __forceinline__ void store_O_to_smem(uint32_t O_addr, const O_tiles<cfg> &O) {
    for (int i = 0; i < row_tiles<cfg>; i++) {
        for (int n = 0; n < 2 * d_steps<cfg>; n++) {
            for (int half = 0; half < 2; half++) {
                const uint32_t pair = round_pair<cfg>(O[i][n][2 * half], O[i][n][2 * half + 1]);
                st_shared_u32(O_addr + smem_offset<cfg>(16 * i + 8 * half, 8 * n), pair);
            }
        }
    }
}

/* Copy rows of O to global memory, bypassing L1, 16 bytes per lane, mapped as in copy_gmem_to_smem. */
template <KernelConfig cfg, int rows>
__device__ __forceinline__ void copy_smem_to_gmem(uint16_t *gmem, uint32_t smem_first, int seq_stride) {
    for (int column = 0; column < cfg.d_head; column += 64) {
        for (int row = 0; row < rows; row += copy_rows<cfg>) {
            uint32_t value[4];
            ld_shared_v4(value, smem_first + smem_offset<cfg>(row, column));
            st_global_v4_no_allocate(gmem + (int64_t)row * seq_stride + column, value);
        }
    }
}

/* ---- the kernel: grid (seq / B_r, heads, batch), 32 * n_warps threads ---- */

/* The elements between two rows of a tensor are args.seq_stride, or known_stride where that is not 0. */
template <KernelConfig cfg, int known_stride>
__device__ __forceinline__ void attend(const forward_args &args) {
    const int seq_stride = known_stride != 0 ? known_stride : args.seq_stride;
    constexpr int Q_rows = cfg.B_r / cfg.n_warps; /* a warp's own */
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    extern __shared__ __align__(128) unsigned char smem[];
    const uint32_t Q_smem = __cvta_generic_to_shared(smem);
    const uint32_t K_smem = Q_smem + smem_offset<cfg>(cfg.B_r, 0);
    const uint32_t V_smem = K_smem + smem_offset<cfg>(cfg.B_c, 0);
    constexpr int stage_bytes = smem_offset<cfg>(2 * cfg.B_c, 0);
    const uint32_t full = K_smem + cfg.stages * stage_bytes, empty = full + 8 * cfg.stages;
    init_mbarriers<cfg>(full, empty);

    /* Offset of a thread's first copy, in elements: 64-bit, because a tensor may have more than 2^31 elements. */
    const int copy_row = threadIdx.x / 8, copy_chunk = threadIdx.x % 8;
    const uint32_t copy_offset = smem_offset<cfg>(copy_row, copy_chunk * 8);
    const int64_t head = blockIdx.z * args.batch_stride + blockIdx.y * args.head_stride;
    const int64_t Q_offset = head + ((int64_t)blockIdx.x * cfg.B_r + copy_row) * seq_stride + copy_chunk * 8;
    const int64_t KV_offset = head + copy_row * seq_stride + copy_chunk * 8;
    const int KV_step = cfg.B_c * seq_stride;
    const int n_blocks = args.seq / cfg.B_c;
    /* Blocks use the stages cyclically: block b is number b / stages in its stage, and the phases of both mbarriers
     * have that number. It may be copied once the block before it in the stage has been read by all warps. */
    const auto copy_KV = [&](int block) {
        const int stage = block % cfg.stages, offset = stage * stage_bytes + copy_offset;
        const int64_t KV_block = KV_offset + (int64_t)block * KV_step;
        wait_for_phase(empty + 8 * stage, block / cfg.stages - 1);
        copy_gmem_to_smem<cfg, cfg.B_c>(K_smem + offset, (const uint16_t *)args.K + KV_block, seq_stride);
        copy_gmem_to_smem<cfg, cfg.B_c>(V_smem + offset, (const uint16_t *)args.V + KV_block, seq_stride);
        cp_async_mbarrier_arrive_noinc(full + 8 * stage);
    };

    /* The 16 rows and two chunks whose addresses the lanes provide to ldmatrix, in Q and in the first stage. */
    const uint32_t Q_addr = Q_smem + smem_offset<cfg>(warp * Q_rows + lane % 16, lane / 16 * 8);
    const uint32_t K_first = K_smem + smem_offset<cfg>(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8);
    const uint32_t V_first = V_smem + smem_offset<cfg>(lane % 16, lane / 16 * 8);

    /* Q is copied once, by all warps for all warps. */
    Q_fragments<cfg> Q[Q_buffers<cfg>];
    copy_gmem_to_smem<cfg, cfg.B_r>(Q_smem + copy_offset, (const uint16_t *)args.Q + Q_offset, seq_stride);
    cp_async_commit_group();
    /* Blocks copied ahead of the one that is read. This leaves slack + 1 stages: a warp that starts to copy waits only
     * for warps that lag by more than `slack` full blocks. */
    constexpr int ahead = cfg.stages - 1 - cfg.slack;
#pragma unroll 1
    for (int block = 0; block < ahead && block < n_blocks; block++) copy_KV(block);
    cp_async_wait_group<0>(); /* the committed copies, those of Q */
    __syncthreads();
    if constexpr (cfg.Q_mma_load_K_tiles == 0)
        for (int k = 0; k < d_steps<cfg>; k++) load_Q<cfg>(Q[k], Q_addr, k);

    /* Scores are divided by sqrt(d_head); with optimized_softmax the exponential has base 2, log2(e) = 1.4426950. */
    const float softmax_scale = 1.44269504f / sqrtf(cfg.d_head);
    O_tiles<cfg> O = {};
    row_values<cfg> m, l = {};
    __shared__ __align__(16) row_values<cfg> l_slots[32 * cfg.n_warps];
    row_values<cfg> &l_slot = l_slots[threadIdx.x];

    for (int i = 0; i < row_tiles<cfg>; i++) m[i][0] = m[i][1] = INFINITY;
    spill_l<cfg>(l_slot, l);
#pragma unroll 1
    for (int block = 0; block < n_blocks; block++) {
        const int stage = block % cfg.stages;
        const uint32_t K_addr = K_first + stage * stage_bytes, V_addr = V_first + stage * stage_bytes;
        wait_for_phase(full + 8 * stage, block / cfg.stages); /* wait for the copies of all threads */

        S_tiles<cfg> S = {};
        multiply_QK<cfg>(S, Q, Q_addr, K_addr);
        dump_S<cfg>(args, block, S);

        if (block + ahead < n_blocks) copy_KV(block + ahead);

        row_values<cfg> lane_max;
        const bool outgrown = outgrows_m<cfg>(lane_max, m, S, softmax_scale);
        reload_l<cfg>(l, l_slot);
        if (outgrown) update_m<cfg>(m, l, O, lane_max, softmax_scale);
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
        dump_m<cfg>(args, block, m, -softmax_scale);
        dump_P<cfg>(args, block, P), dump_l<cfg>(args, block, l), dump_O<cfg>(args, block, O);
        __syncwarp();
        if (lane == 0) mbarrier_arrive(empty + 8 * stage); /* this warp has read K and V */
    }

    /* O overwrites Q. A warp writes its own rows, which no other warp reads, then copies rows of all. threadIdx is read
     * again, or the addresses that Q and O share would stay in registers through the loop. */
    const int O_thread = read_tid_x(), O_row = O_thread / 8, O_chunk = O_thread % 8;
    const int64_t O_offset = head + ((int64_t)blockIdx.x * cfg.B_r + O_row) * seq_stride + O_chunk * 8;
    reload_l<cfg>(l, l_slot);
    divide_O_by_l<cfg>(O, l);
    const int O_lane = O_thread % 32;
    store_O_to_smem<cfg>(Q_smem + smem_offset<cfg>(O_thread / 32 * Q_rows + O_lane / 4, O_lane % 4 * 2), O);
    __syncthreads();
    copy_smem_to_gmem<cfg, cfg.B_r>((uint16_t *)args.O + O_offset, Q_smem + smem_offset<cfg>(O_row, O_chunk * 8),
                                    seq_stride);
}

template <KernelConfig cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps) flash_forward(const __grid_constant__ forward_args args) {
    check_config<cfg>();
    constexpr int stride_of_16_heads = 16 * cfg.d_head;
    if (args.seq_stride == stride_of_16_heads)
        attend<cfg, stride_of_16_heads>(args);
    else
        attend<cfg, 0>(args);
}

#include "instances.cuh"
