/* v35 - no maximum in the loop
 *
 * parent    v34
 * idea      m is the maximum of the first KV block; later blocks only check that the sums of their exponentials are not
 *           too large, and if they are, one warp computes its scores again
 * predict   64 FMNMX fewer in every block; the check needs 2 FADD and a vote; K stays until after the check: 1 % faster
 * claims    speedup@4096=1.01±0.01
 * config    (FP16, 128, 128, 128, 8):
 *           eager+swizzled+load_0_0_0_tiles+opt_softmax+lazy+stages_2+persistent+tensor+producer+qk_ahead+ping_pong
 *           +double_q+exp_32+first_max
 * arch      sm_90a
 */
#include "common/abi.h"
#include "common/config.h"
#include "common/debug.cuh"
#include "common/ptx_sm90a.cuh"

/* The algorithm (FlashAttention-2, Dao 2023, algorithm 1): a CTA owns B_r rows of Q of one head and goes through K and
 * V in blocks of B_c rows. For every row it keeps the largest score so far (m), the sum of exp(score - m) so far (l)
 * and the output so far (O). At the end O / l is the softmax-weighted mean of V, whatever m is: it cancels out. m may
 * therefore trail the largest score, as long as exp(score - m) fits the 16 bits of P and fp32 holds the sums. Here
 * m is the maximum of the first KV block. m is updated, and l and O are rescaled, once the exponentials of a lane and
 * block add up to more than 2^15 in fp16, which goes up to 65504, or 2^60 in bf16. P has the same relative rounding as
 * below 1.
 *
 * Register layout: the CTA is three warpgroups. One thread of the first, the producer, starts all copies. The other
 * two, the consumers, have 64 rows each.
 *
 * Warp w of a warpgroup owns its rows 16w to 16w + 15 of Q, S, P and O, all columns. S, P and O stay in registers, in
 * the fragment layouts of mma.m16n8k16. wgmma reads Q, K and V from shared memory and P from registers.
 *
 * Shared memory: two Q blocks, each with a part for each consumer, then rings of K and V blocks, then O in parts of 16
 * rows for each warp.
 *
 * A block is two tiles of 64 columns one after the other, rows of 64 elements of 16 bits, their 16-byte chunks swizzled
 * as wgmma expects it (ptx_sm90a.cuh).
 *
 * Then mbarriers: full ones, at which the bytes of a copy arrive, and for every stage of K and V an empty one, at which
 * each consumer arrives once it has read the stage. Each warp arrives at the empty ones of Q and K.
 *
 * A CTA takes one Q block after another. The stages, and the phases of all mbarriers, continue through all of them.
 *
 * All loops but the one over KV blocks have constant bounds and are unrolled by the compiler. They must be: registers
 * have no addresses, so an array lives in them only if every index is a constant. */

/* Refuse what this version can't run, and every flag that it would not act on. */
template <KernelConfig cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.d_head == 128, "d_head must be 128: two tiles of 64 columns");
    static_assert(cfg.n_warps == 8, "n_warps must be 8: two consumer warpgroups");
    static_assert(cfg.B_r == 16 * cfg.n_warps, "B_r must be 16 * n_warps: wgmma gives each warp 16 rows");
    static_assert(cfg.B_c == 64 || cfg.B_c == 128, "B_c must be 64 or 128: wgmma's n, in tiles of a constant number");
    static_assert(cfg.tensor_copies, "tensor_copies must be on: the copy engine copies blocks");
    static_assert(cfg.producer, "producer must be on: a warpgroup of its own starts the copies");
    static_assert(cfg.QK_ahead, "QK_ahead must be on: S of the next block is started before O of this one");
    static_assert(cfg.double_buffer_Q, "double_buffer_Q must be on: the next Q block arrives during this one");
    static_assert(cfg.first_max, "first_max must be on: m is the maximum of the first KV block");
    static_assert(cfg.exp_columns >= 8 && cfg.B_c % cfg.exp_columns == 0,
                  "exp_columns must be at least 8 and divide B_c: exponentials are computed in equal blocks");
    static_assert(!cfg.async_copy, "async_copy must be off: blocks are not copied by cp.async");
    static_assert(cfg.eager_load_blocks, "eager_load_blocks must be on: each copy is started one step early");
    static_assert(cfg.swizzled, "swizzled must be on: wgmma reads swizzled rows");
    static_assert(cfg.optimized_softmax, "optimized_softmax must be on: scale and maximum are one multiply-add");
    static_assert(cfg.Q_mma_load_K_tiles == 0 && cfg.K_mma_load_K_tiles == 0 && cfg.V_mma_load_K_tiles == 0,
                  "load tiles must be 0: wgmma reads shared memory itself");
    static_assert(!cfg.mma_double_buffer_loads, "buffer must be off: there are no fragments of K and V");
    static_assert(cfg.lazy_rescale, "lazy_rescale must be on: l and O are rescaled when they need to be");
    static_assert(cfg.stages >= 2 && cfg.slack == 0,
                  "stages must be at least 2, as K is read one block ahead of V, and slack 0");
    static_assert(!cfg.padded_rows, "padded_rows must be off: wgmma reads swizzled rows");
    static_assert(!cfg.split_tail, "split_tail must be off: a CTA has whole Q blocks");
    static_assert(cfg.persistent, "persistent must be on: a CTA takes the Q blocks that are a whole grid apart");
}

/* Numbers of 16x16 operand blocks along d_head and along the keys of a KV block. */
template <KernelConfig cfg>
constexpr int d_steps = cfg.d_head / 16;
template <KernelConfig cfg>
constexpr int key_steps = cfg.B_c / 16;

/* Threads and rows of a warpgroup. */
constexpr int group_threads = 128, group_rows = 64;
template <KernelConfig cfg>
constexpr int consumers = cfg.n_warps / 4;

/* A lane holds four registers (eight 16-bit elements) of each 16x16 block of P, four floats of each 16x8 tile of S and
 * O, and its two rows' values of m and l: rows lane / 4 and lane / 4 + 8. */
template <KernelConfig cfg>
using P_fragments = uint32_t[key_steps<cfg>][4];
template <KernelConfig cfg>
using S_tiles = float[2 * key_steps<cfg>][4];
template <KernelConfig cfg>
using O_tiles = float[2 * d_steps<cfg>][4];
using row_values = float[2];

/* ---- shared memory ---- */

/* Bytes of a row of a tile, of the rows of Q of a warpgroup and of a K or V block. */
constexpr int tile_row_bytes = 128;
template <KernelConfig cfg>
constexpr int Q_bytes = group_rows * cfg.d_head * 2;
template <KernelConfig cfg>
constexpr int KV_bytes = cfg.B_c * cfg.d_head * 2;

/* Addresses in shared memory. */
struct smem_layout {
    uint32_t Q, K, V, O, Q_full, K_full, V_full, Q_empty, K_empty, V_empty;
};
template <KernelConfig cfg>
__device__ __forceinline__ smem_layout find_layout() {
    extern __shared__ __align__(1024) unsigned char smem[];
    smem_layout at;
    at.Q = __cvta_generic_to_shared(smem);
    at.K = at.Q + 2 * consumers<cfg> * Q_bytes<cfg>;
    at.V = at.K + cfg.stages * KV_bytes<cfg>;
    at.O = at.V + cfg.stages * KV_bytes<cfg>;
    at.K_full = at.O + consumers<cfg> * Q_bytes<cfg>;
    at.V_full = at.K_full + 8 * cfg.stages;
    at.K_empty = at.V_full + 8 * cfg.stages;
    at.V_empty = at.K_empty + 8 * cfg.stages;
    at.Q_full = at.V_empty + 8 * cfg.stages;
    at.Q_empty = at.Q_full + 8 * 2;
    return at;
}

/* ---- Q blocks: numbered along seq, then heads, then batch ---- */

/* Coordinates of a block. */
struct block_position {
    int row, head, sample;
};
template <KernelConfig cfg>
__device__ __forceinline__ block_position find_Q_block(const forward_args &args, int number) {
    const int Q_blocks = args.seq / cfg.B_r, head = number / Q_blocks;
    return {number % Q_blocks * cfg.B_r, head % args.heads, head / args.heads};
}

/* ---- mbarriers ---- */

/* Set up the mbarriers. One thread arrives at the full ones, with the bytes of its copies, and each consumer at the
 * empty ones. */
template <KernelConfig cfg>
__device__ __forceinline__ void init_mbarriers(const smem_layout &at) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < 2; stage++)
            mbarrier_init(at.Q_full + 8 * stage, 1), mbarrier_init(at.Q_empty + 8 * stage, cfg.n_warps);
        for (int stage = 0; stage < cfg.stages; stage++) {
            mbarrier_init(at.K_full + 8 * stage, 1), mbarrier_init(at.V_full + 8 * stage, 1);
            mbarrier_init(at.K_empty + 8 * stage, cfg.n_warps);
            mbarrier_init(at.V_empty + 8 * stage, consumers<cfg>);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
}

/* Wait until phase number `phase` of an mbarrier is complete; the mbarrier may lag by at most one phase. Number -1,
 * before the first, is complete from the start. */
__device__ __forceinline__ void wait_for_phase(uint32_t mbarrier, int phase) {
    while (!mbarrier_try_wait_parity(mbarrier, phase & 1)) {
    }
}

/* ---- turns, with ping_pong: named barriers, at which the one consumer waits and the other only arrives ---- */

template <KernelConfig cfg>
__device__ __forceinline__ void wait_for_turn(int group) {
    if constexpr (cfg.ping_pong) bar_sync(1 + group, consumers<cfg> * group_threads);
}
template <KernelConfig cfg>
__device__ __forceinline__ void pass_turn(int group) {
    if constexpr (cfg.ping_pong) bar_arrive(1 + (group + 1) % consumers<cfg>, consumers<cfg> * group_threads);
}

/* ---- tensor cores ---- */

template <KernelConfig cfg>
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (cfg.dtype == FP16)
        mma_m16n8k16_f16(d, a, b0, b1);
    else
        mma_m16n8k16_bf16(d, a, b0, b1);
}

/* Start S = Q K^T, a group of wgmma, one for each 16 columns of Q and K. */
template <KernelConfig cfg>
__device__ __forceinline__ void start_QK(S_tiles<cfg> &S, uint64_t Q, uint64_t K) {
    wgmma_fence();
    for (int k = 0; k < d_steps<cfg>; k++) {
        const uint64_t Q_step = Q + k / 4 * (group_rows * tile_row_bytes / 16) + k % 4 * 2;
        const uint64_t K_step = K + k / 4 * (cfg.B_c * tile_row_bytes / 16) + k % 4 * 2;
        if constexpr (cfg.B_c == 128 && cfg.dtype == FP16) wgmma_m64n128k16_f16(S, Q_step, K_step, k != 0);
        if constexpr (cfg.B_c == 128 && cfg.dtype == BF16) wgmma_m64n128k16_bf16(S, Q_step, K_step, k != 0);
        if constexpr (cfg.B_c == 64 && cfg.dtype == FP16) wgmma_m64n64k16_f16(S, Q_step, K_step, k != 0);
        if constexpr (cfg.B_c == 64 && cfg.dtype == BF16) wgmma_m64n64k16_bf16(S, Q_step, K_step, k != 0);
    }
    wgmma_commit_group();
}

/* Start O += P V, a group of wgmma, one for each 16 keys. */
template <KernelConfig cfg>
__device__ __forceinline__ void start_PV(O_tiles<cfg> &O, const P_fragments<cfg> &P, uint64_t V) {
    wgmma_fence();
    for (int k = 0; k < key_steps<cfg>; k++) {
        const uint64_t V_step = V + k * (16 * tile_row_bytes / 16);
        if constexpr (cfg.dtype == FP16) wgmma_m64n128k16_f16_trans(O, P[k], V_step, 1);
        if constexpr (cfg.dtype == BF16) wgmma_m64n128k16_bf16_trans(O, P[k], V_step, 1);
    }
    wgmma_commit_group();
}

/* S = Q K^T again, of this warp's 16 rows: mma.sync has the same fragments as wgmma. Q_rows and K are in shared memory,
 * Q_rows the first of the warp's in its part of Q. */
template <KernelConfig cfg>
__device__ void compute_S_again(S_tiles<cfg> &S, uint32_t Q_rows, uint32_t K, int lane) {
    for (int n = 0; n < 2 * key_steps<cfg>; n++)
        for (int e = 0; e < 4; e++) S[n][e] = 0;
#pragma unroll 1
    for (int k = 0; k < d_steps<cfg>; k++) {
        const auto chunk = [&](int right) { return (k % 4 * 2 + right ^ lane % 8) * 16; };
        uint32_t a[4], b[4];
        ldmatrix_x4(a, Q_rows + (k / 4 * group_rows + lane % 16) * tile_row_bytes + chunk(lane / 16));
        for (int n = 0; n < key_steps<cfg>; n++) {
            const int key = 16 * n + lane % 8 + lane / 16 * 8;
            ldmatrix_x4(b, K + (k / 4 * cfg.B_c + key) * tile_row_bytes + chunk(lane / 8 % 2));
            mma<cfg>(S[2 * n], a, b[0], b[1]), mma<cfg>(S[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* ---- softmax: elements 0 and 1 of a tile are of the lane's first row (half 0), 2 and 3 of its second (half 1) ---- */

/* m is held as -maximum * softmax_scale, which one FMA adds to a score: before the first block it is +inf. */

/* The largest sum allowed for the exponentials of a lane's row and block. */
template <KernelConfig cfg>
constexpr float most_sum = cfg.dtype == FP16 ? 0x1p15f : 0x1p60f;

/* lane_max = row maxima of S over this lane's own columns. */
template <KernelConfig cfg>
__device__ __forceinline__ void find_lane_max(row_values &lane_max, const S_tiles<cfg> &S) {
    for (int half = 0; half < 2; half++) {
        lane_max[half] = fmaxf(S[0][2 * half], S[0][2 * half + 1]);
        for (int n = 1; n < 2 * key_steps<cfg>; n++)
            lane_max[half] = fmaxf(lane_max[half], fmaxf(S[n][2 * half], S[n][2 * half + 1]));
    }
}

/* Update m to the row maxima: the four lanes of a quad share a row, and two butterfly shuffles give each the maximum. l
 * and O were sums of exp(score - m_old): `factor` makes them sums of exp(score - m). */
__device__ __forceinline__ void update_m(row_values &m, row_values &l, row_values &factor, const row_values &lane_max,
                                         float softmax_scale) {
    for (int half = 0; half < 2; half++) {
        float row_max = lane_max[half];
        row_max = fmaxf(row_max, __shfl_xor_sync(0xffffffff, row_max, 2));
        row_max = fmaxf(row_max, __shfl_xor_sync(0xffffffff, row_max, 1));
        const float m_old = m[half];
        m[half] = fminf(m_old, -row_max * softmax_scale);
        factor[half] = ex2_approx(m[half] - m_old);
        l[half] *= factor[half];
    }
}

template <KernelConfig cfg>
__device__ __forceinline__ void rescale_O(O_tiles<cfg> &O, const row_values &factor) {
    for (int n = 0; n < 2 * d_steps<cfg>; n++)
        for (int e = 0; e < 4; e++) O[n][e] *= factor[e / 2];
}

/* S = exp(S - m), and l += row sums of S over this lane's own columns; the quad adds up once, after the last block.
 * With optimized_softmax S is raw scores: exp((S - maximum) / sqrt(d_head)) = 2^(S * scale + m) is one FMA and one ex2.
 * Exponentials are computed in blocks of exp_columns columns. Meanwhile those of the block before are added. */
template <KernelConfig cfg>
__device__ __forceinline__ void exponentiate_S(S_tiles<cfg> &S, row_values &l, const row_values &m,
                                               float softmax_scale) {
    constexpr int tiles = cfg.exp_columns / 8;
    const auto add_pairs = [&](int first) {
        for (int n = first; n < first + tiles; n++)
            for (int half = 0; half < 2; half++) l[half] += S[n][2 * half] + S[n][2 * half + 1];
    };
    for (int first = 0; first < 2 * key_steps<cfg>; first += tiles) {
        for (int n = first; n < first + tiles; n++)
            for (int e = 0; e < 4; e++) S[n][e] = ex2_approx(fmaf(S[n][e], softmax_scale, m[e / 2]));
        if (first > 0) add_pairs(first - tiles);
    }
    add_pairs(2 * key_steps<cfg> - tiles);
}

template <KernelConfig cfg>
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
    return cfg.dtype == FP16 ? cvt_f16x2(low, high) : cvt_bf16x2(low, high);
}

/* P = S in 16 bits. Two 8-wide tiles of a lane are exactly its elements of one 16-wide A operand: no lane needs a value
 * of another. */
template <KernelConfig cfg>
__device__ __forceinline__ void round_S_to_P(P_fragments<cfg> &P, const S_tiles<cfg> &S) {
    for (int k = 0; k < key_steps<cfg>; k++) {
        for (int r = 0; r < 4; r++) {
            const float *pair = &S[2 * k + r / 2][r % 2 * 2];
            P[k][r] = round_pair<cfg>(pair[0], pair[1]);
        }
    }
}

/* ---- epilogue ---- */

/* O *= 1 / l, after adding up the quad's partial sums. */
template <KernelConfig cfg>
__device__ __forceinline__ void divide_O_by_l(O_tiles<cfg> &O, row_values &l) {
    row_values inverse;
    for (int half = 0; half < 2; half++) {
        l[half] += __shfl_xor_sync(0xffffffff, l[half], 2);
        l[half] += __shfl_xor_sync(0xffffffff, l[half], 1);
        inverse[half] = 1.0f / l[half];
    }
    rescale_O<cfg>(O, inverse);
}

/* Round O and store the 16 rows of this warp to a block of their own. Lanes 0 to 15 name the rows of the left 8 columns
 * of a 16x16 block, lanes 16 to 31 those of the right 8. */
template <KernelConfig cfg>
__device__ __forceinline__ void store_O_to_smem(uint32_t smem, const O_tiles<cfg> &O, int lane) {
    const uint32_t row = smem + lane % 16 * tile_row_bytes;
    for (int n = 0; n < d_steps<cfg>; n++) {
        const int chunk = n % 4 * 2 + lane / 16;
        uint32_t value[4];
        for (int q = 0; q < 4; q++)
            value[q] = round_pair<cfg>(O[2 * n + q / 2][q % 2 * 2], O[2 * n + q / 2][q % 2 * 2 + 1]);
        stmatrix_x4(row + n / 4 * (16 * tile_row_bytes) + (chunk ^ lane % 8) * 16, value);
    }
}

/* ---- the producer: one thread ---- */

/* Blocks use the stages cyclically: block b is number b / stages in its stage, and the phases of both mbarriers have
 * that number. It may be copied once both consumers have read the block before it in the stage. V is copied after the K
 * of the next block, as it is read after that. */
template <KernelConfig cfg>
__device__ __forceinline__ void produce(const forward_args &args, const tensor_maps &maps, const smem_layout &at) {
    const int Q_blocks = args.seq / cfg.B_r * args.heads * args.batch, n_blocks = args.seq / cfg.B_c;
    const auto copy_block = [&](uint32_t ring, const tensor_map &map, uint32_t full, uint32_t empty, int block,
                                const block_position &from) {
        const int stage = block % cfg.stages;
        wait_for_phase(empty + 8 * stage, block / cfg.stages - 1);
        mbarrier_arrive_expect_tx(full + 8 * stage, KV_bytes<cfg>);
        copy_tensor_to_smem(ring + stage * KV_bytes<cfg>, map, full + 8 * stage, from.row, from.head, from.sample);
    };
    int copied = 0;        /* K blocks, for all Q blocks */
    block_position V_from; /* V is copied after the K of the next block */
    for (int number = blockIdx.x, turn = 0; number < Q_blocks; number += gridDim.x, turn++) {
        const block_position first = find_Q_block<cfg>(args, number);
        const uint32_t Q_smem = at.Q + turn % 2 * consumers<cfg> * Q_bytes<cfg>, Q_full = at.Q_full + 8 * (turn % 2);
        wait_for_phase(at.Q_empty + 8 * (turn % 2), turn / 2 - 1);
        mbarrier_arrive_expect_tx(Q_full, consumers<cfg> * Q_bytes<cfg>);
        for (int group = 0; group < consumers<cfg>; group++)
            copy_tensor_to_smem(Q_smem + group * Q_bytes<cfg>, maps.Q, Q_full, first.row + group * group_rows,
                                first.head, first.sample);
#pragma unroll 1
        for (int block = 0; block < n_blocks; block++, copied++) {
            const block_position K_from = {block * cfg.B_c, first.head, first.sample};
            copy_block(at.K, maps.K, at.K_full, at.K_empty, copied, K_from);
            if (copied > 0) copy_block(at.V, maps.V, at.V_full, at.V_empty, copied - 1, V_from);
            V_from = K_from;
        }
    }
    copy_block(at.V, maps.V, at.V_full, at.V_empty, copied - 1, V_from);
}

/* ---- a consumer's work ---- */

template <KernelConfig cfg>
__device__ __forceinline__ void attend(const forward_args &args, const tensor_maps &maps, const smem_layout &at,
                                       int group) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const bool leads = threadIdx.x % group_threads == 0; /* the thread that arrives for the consumer */
    const uint32_t Q_smem = at.Q + group * Q_bytes<cfg>, O_smem = at.O + (4 * group + warp) * (Q_bytes<cfg> / 4);
    const uint64_t Q_matrix = wgmma_descriptor(Q_smem, 0), K_matrix = wgmma_descriptor(at.K, 0);
    const uint64_t V_matrix = wgmma_descriptor(at.V, cfg.B_c * tile_row_bytes);
    constexpr int next_stage = KV_bytes<cfg> / 16, next_Q = consumers<cfg> * Q_bytes<cfg> / 16; /* in descriptors */
    const int Q_blocks = args.seq / cfg.B_r * args.heads * args.batch, n_blocks = args.seq / cfg.B_c;

    /* Scores are divided by sqrt(d_head); with optimized_softmax the exponential has base 2, log2(e) = 1.4426950. */
    const float softmax_scale = 1.44269504f / sqrtf(cfg.d_head);
    S_tiles<cfg> S;
    P_fragments<cfg> P;
    O_tiles<cfg> O = {};
    row_values m = {INFINITY, INFINITY}, l = {}, factor;
    const auto start_S = [&](int block, int turn) {
        wait_for_phase(at.K_full + 8 * (block % cfg.stages), block / cfg.stages);
        start_QK<cfg>(S, Q_matrix + turn % 2 * next_Q, K_matrix + block % cfg.stages * next_stage);
    };
    const auto start_O = [&](int block) {
        wait_for_phase(at.V_full + 8 * (block % cfg.stages), block / cfg.stages);
        start_PV<cfg>(O, P, V_matrix + block % cfg.stages * next_stage);
    };
    /* Turn S into exponentials, for the first block of a Q block. */
    const auto use_first_S = [&](int block, row_values &m, row_values &l) {
        dump_S<cfg>(args, block, S);
        row_values lane_max;
        find_lane_max<cfg>(lane_max, S);
        update_m(m, l, factor, lane_max, softmax_scale);
        exponentiate_S<cfg>(S, l, m, softmax_scale);
        if (lane == 0) mbarrier_arrive(at.K_empty + 8 * (block % cfg.stages));
        dump_m<cfg>(args, block, m, -softmax_scale), dump_l<cfg>(args, block, l);
    };
    /* Turn S into exponentials, for later blocks. Returns whether O, a sum over the blocks before, must be multiplied
     * by `factor`. */
    const auto use_S = [&](int block, int turn) {
        dump_S<cfg>(args, block, S);
        row_values sum = {};
        exponentiate_S<cfg>(S, sum, m, softmax_scale);
        const bool outgrown = __any_sync(0xffffffff, !(fmaxf(sum[0], sum[1]) <= most_sum<cfg>));
        if (outgrown) [[unlikely]] { /* also for a NaN */
            const uint32_t Q_rows = Q_smem + turn % 2 * (next_Q * 16) + 16 * warp * tile_row_bytes;
            compute_S_again<cfg>(S, Q_rows, at.K + block % cfg.stages * KV_bytes<cfg>, lane);
            row_values lane_max;
            find_lane_max<cfg>(lane_max, S);
            update_m(m, l, factor, lane_max, softmax_scale);
            sum[0] = sum[1] = 0;
            exponentiate_S<cfg>(S, sum, m, softmax_scale);
        }
        __syncwarp(); /* all lanes have read K */
        if (lane == 0) mbarrier_arrive(at.K_empty + 8 * (block % cfg.stages));
        l[0] += sum[0], l[1] += sum[1];
        dump_m<cfg>(args, block, m, -softmax_scale), dump_l<cfg>(args, block, l);
        return outgrown;
    };
    const auto use_O = [&](int block) {
        if (leads) mbarrier_arrive(at.V_empty + 8 * (block % cfg.stages));
        dump_P<cfg>(args, block, P), dump_O<cfg>(args, block, O);
    };
    /* A warp's rows of O, two tiles of 16 rows, take 4 KB of their own, once the engine has read the previous ones. */
    const auto store_O = [&](int number) {
        divide_O_by_l<cfg>(O, l);
        if (lane == 0) bulk_wait_group_read<0>();
        __syncwarp();
        store_O_to_smem<cfg>(O_smem, O, lane);
        fence_proxy_async(); /* the engine reads by the async proxy */
        __syncwarp();
        if (lane == 0) {
            const block_position first = find_Q_block<cfg>(args, number);
            copy_smem_to_tensor(maps.O, O_smem, first.row + group * group_rows + 16 * warp, first.head, first.sample);
            bulk_commit_group();
        }
    };

    /* O of a block is computed while the warpgroup turns S of the next block into exponentials. The block after the
     * last one of a Q block is the first of the next. */
    int block = 0, turn = 0; /* KV blocks and Q blocks of this CTA */
    wait_for_phase(at.Q_full, 0);
    start_S(0, 0);
    wgmma_wait_group<0>(S);
    use_first_S(0, m, l);
    round_S_to_P<cfg>(P, S);
    for (int number = blockIdx.x;; number += gridDim.x, turn++) {
#pragma unroll 1
        for (const int last = block + n_blocks - 1; block < last; block++) {
            wait_for_turn<cfg>(group);
            start_S(block + 1, turn);
            start_O(block);
            pass_turn<cfg>(group);
            wgmma_wait_group<1>(S);
            const bool outgrown = use_S(block + 1, turn);
            wgmma_wait_group<0>(O);
            use_O(block);
            if (outgrown) rescale_O<cfg>(O, factor);
            round_S_to_P<cfg>(P, S);
        }
        if (lane == 0) mbarrier_arrive(at.Q_empty + 8 * (turn % 2));

        const bool more = number + gridDim.x < Q_blocks;
        row_values next_m = {INFINITY, INFINITY}, next_l = {};
        if (more) {
            wait_for_phase(at.Q_full + 8 * ((turn + 1) % 2), (turn + 1) / 2);
            wait_for_turn<cfg>(group);
            start_S(block + 1, turn + 1);
            start_O(block);
            pass_turn<cfg>(group);
            wgmma_wait_group<1>(S);
            use_first_S(block + 1, next_m, next_l);
        } else {
            start_O(block);
        }
        wgmma_wait_group<0>(O);
        use_O(block++);
        store_O(number);
        if (!more) break;
        round_S_to_P<cfg>(P, S);
        for (int half = 0; half < 2; half++) m[half] = next_m[half], l[half] = next_l[half];
        for (int n = 0; n < 2 * d_steps<cfg>; n++)
            for (int e = 0; e < 4; e++) O[n][e] = 0;
    }
    if (lane == 0) bulk_wait_group_read<0>(); /* shared memory must stay valid until TMA has read it */
}

/* ---- the kernel: a CTA for each multiprocessor, a producer and two consumers ---- */

template <KernelConfig cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps + group_threads, 1)
    flash_forward(const __grid_constant__ forward_args args, const __grid_constant__ tensor_maps maps) {
    check_config<cfg>();
    const smem_layout at = find_layout<cfg>();
    init_mbarriers<cfg>(at);
    const int group = threadIdx.x / group_threads;
    if (group == 0) { /* 168 registers per thread fill the file at the start: the producer gives back what it can */
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0) produce<cfg>(args, maps, at);
    } else {
        setmaxnreg_inc<240>();
        if (group == 2) pass_turn<cfg>(group - 1);
        attend<cfg>(args, maps, at, group - 1);
    }
}

#include "instances.cuh"
