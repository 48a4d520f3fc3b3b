/* v48 - neighbours
 *
 * parent    v46
 * idea      without a mask Q blocks with successive numbers are of one head, as in v42, and not of one head each: CTAs
 *           that draw one after the other read the same block of K or V at the same time, which the L2 cache can serve
 *           by one access, and what a launch saves in energy it gains in clock, since the power limit sets that
 * predict   as many cycles as v46; without a mask 1.03 of its speed at d 128, 1.04 at d 256 with 2048 rows, and 1.01 at
 *           d 64, where exponentials bind; with the mask as v46: there a row of Q blocks sees fewer keys than the next,
 *           so that neighbours in a head are never at the same block
 * claims    speedup@512=1.02±0.02 speedup@4096=1.03±0.015 speedup[d256]@2048=1.04 speedup[d64]@4096=1.01
 * config    (FP16, 128, 128, 128, 8):
 *           eager+swizzled+load_0_0_0_tiles+opt_softmax+lazy+stages_2+persistent+tensor+producer+qk_ahead+ping_pong
 *           +double_q+exp_32+first_max+early_k+any_length+causal+grouped+tickets
 * others    (FP16, 64, 256, 64, 16):
 *           eager+swizzled+load_0_0_0_tiles+opt_softmax+lazy+stages_4+persistent+tensor+producer+qk_ahead+double_q
 *           +exp_16+first_max+early_k+any_length+causal+grouped+tickets;
 *           (FP16, 256, 128, 64, 8):
 *           eager+swizzled+load_0_0_0_tiles+opt_softmax+lazy+stages_2+persistent+tensor+producer+qk_ahead
 *           +exp_16+first_max+early_k+any_length+causal+grouped+tickets
 * arch      sm_90a
 */
#include "common/abi.h"
#include "common/config.h"
#include "common/debug.cuh"
#include "common/ptx_sm90a.cuh"

/* The algorithm (FlashAttention-2, Dao 2023, algorithm 1): a CTA owns B_r rows of Q of one head and goes through K and
 * V in blocks of B_c rows. For every row it keeps the largest score so far (m), the sum of exp(score - m) so far (l)
 * and the output so far (O). At the end O / l is the softmax-weighted mean of V, whatever m is: it cancels out. So m
 * may lag behind the largest score, as long as exp(score - m) fits the 16 bits of P and fp32 holds the sums. Here m is
 * the maximum of the first KV block. It catches up, and l and O are rescaled, once the exponentials of a lane and block
 * add up to more than 2^15 in fp16, which goes up to 65504, or 2^60 in bf16. P has the same relative rounding as
 * below 1. KV blocks go from the last to the first.
 *
 * Who holds what: the CTA is three to five warpgroups. One thread of the first, the producer, starts all copies. The
 * others, the consumers, have 64 rows each.
 *
 * Warp w of a warpgroup owns its rows 16w to 16w + 15 of Q, S, P and O, all columns. S, P and O stay in registers, in
 * the fragment layouts of mma.m16n8k16, and so does Q where there are registers left. wgmma reads K, V and else Q from
 * shared memory, P from registers.
 *
 * Shared memory: two Q blocks, each in a part for each consumer, then rings of K and V blocks, then O in parts of 16
 * rows for each warp. With d_head = 256 there is one Q block and no place for O.
 *
 * A block is tiles of 64 columns one after the other, rows of 64 elements of 16 bits, their 16-byte chunks swizzled as
 * wgmma expects it (ptx_sm90a.cuh).
 *
 * Then mbarriers: full ones, at which the bytes of a copy arrive, and for every stage of K and V an empty one, at which
 * each consumer arrives once it has read the stage. At that of a Q block each warp arrives.
 *
 * A CTA takes one Q block after another. Its first has the number of the CTA. A second warp of the producer's
 * warpgroup, the scheduler, draws the others from a counter that all CTAs share, and posts where they begin. The
 * stages, and the phases of all mbarriers, continue through all Q blocks.
 *
 * The last Q block and the last KV block of a sequence may be partly filled. In shared memory the rest are zeros. Rows
 * of O there are not stored. Scores of keys there are masked: -inf, whose exponential is 0.
 *
 * Causal: row i sees keys up to i + seq_k - seq_q. KV blocks that no row of a Q block sees are skipped, and those that
 * no row of a consumer sees are released unread. Those that some of its rows do not see are masked. Up to the last of
 * these the maximum is found in every block: a row may see no key before.
 *
 * All loops but the one over KV blocks have constant bounds and are unrolled by the compiler. They must be: registers
 * have no addresses, so an array lives in them only if every index is a constant. */

/* Refuse what this version can't run, and every flag that it would not act on. */
template <KernelConfig cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.d_head == 64 || cfg.d_head == 128 || cfg.d_head == 256, "d_head must be 64, 128 or 256");
    static_assert(cfg.n_warps == 8 || cfg.n_warps == 12 || cfg.n_warps == 16,
                  "n_warps must be 8, 12 or 16: two to four consumer warpgroups");
    static_assert(cfg.B_r == 16 * cfg.n_warps, "B_r must be 16 * n_warps: wgmma gives each warp 16 rows");
    static_assert(cfg.B_c == 64 || cfg.B_c == 128, "B_c must be 64 or 128: wgmma's n, in tiles of a constant number");
    static_assert(cfg.tensor_copies, "tensor_copies must be on: the copy engine copies blocks");
    static_assert(cfg.producer, "producer must be on: a warpgroup of its own starts the copies");
    static_assert(cfg.QK_ahead, "QK_ahead must be on: S of the next block is started before O of this one");
    static_assert(cfg.double_buffer_Q || cfg.d_head == 256,
                  "double_buffer_Q must be on, except with d_head = 256: the next Q block arrives during this one");
    static_assert(cfg.first_max, "first_max must be on: m is the maximum of the first KV block");
    static_assert(cfg.early_release, "early_release must be on: K is released before its exponentials are computed");
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
    static_assert(cfg.persistent, "persistent must be on: a CTA takes one Q block after another");
    static_assert(cfg.any_length, "any_length must be on: the kernel takes attention_args");
    static_assert(cfg.causal, "causal must be on: a launch may ask for the mask");
    static_assert(cfg.grouped_heads, "grouped must be on: a launch decides by its heads");
    static_assert(cfg.tickets, "tickets must be on: CTAs draw Q blocks from a counter in global memory");
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

/* Registers of a thread: at the start as many as the file has for each, then what the producer leaves the consumers. */
template <KernelConfig cfg>
constexpr int start_registers = 65536 / (group_threads + 32 * cfg.n_warps) / 8 * 8;
constexpr int producer_registers = 24;
template <KernelConfig cfg>
constexpr int consumer_registers =
    ((1 + consumers<cfg>)*start_registers<cfg> - producer_registers) / consumers<cfg> / 8 * 8;

/* Whether registers hold Q. Those of d_head = 256 are full of O, and those of four consumers are few. */
template <KernelConfig cfg>
constexpr bool Q_in_registers = cfg.d_head == 128;
template <KernelConfig cfg>
constexpr int Q_stages = cfg.double_buffer_Q ? 2 : 1;

/* What a lane holds: four registers (eight 16-bit elements) of each 16x16 block of Q and P, four floats of each 16x8
 * tile of S and O, and its two rows' values of m and l: rows lane / 4 and lane / 4 + 8. */
template <KernelConfig cfg>
using Q_fragments = uint32_t[d_steps<cfg>][4];
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

/* Places of Q blocks: of the consumers, of the producer and the next, and one more for a power of two. */
constexpr int place_slots = 4;

/* KV blocks of a Q block that are not yet copied when the CTA draws its next Q block. More would assign Q blocks before
 * it is known which CTA will be free first, fewer would make the producer wait for the number. */
constexpr int blocks_ahead = 4;

/* Addresses of what lies there. */
struct smem_places {
    uint32_t Q, K, V, O, Q_full, K_full, V_full, Q_empty, K_empty, V_empty, draw, place, place_full, place_empty;
};
template <KernelConfig cfg>
__device__ __forceinline__ smem_places find_places() {
    extern __shared__ __align__(1024) unsigned char smem[];
    smem_places at;
    at.Q = __cvta_generic_to_shared(smem);
    at.K = at.Q + Q_stages<cfg> * consumers<cfg> * Q_bytes<cfg>;
    at.V = at.K + cfg.stages * KV_bytes<cfg>;
    at.O = at.V + cfg.stages * KV_bytes<cfg>;
    at.K_full = at.O + (cfg.double_buffer_Q ? consumers<cfg> * Q_bytes<cfg> : 0);
    at.V_full = at.K_full + 8 * cfg.stages;
    at.K_empty = at.V_full + 8 * cfg.stages;
    at.V_empty = at.K_empty + 8 * cfg.stages;
    at.Q_full = at.V_empty + 8 * cfg.stages;
    at.Q_empty = at.Q_full + 8 * 2;
    at.place_full = at.Q_empty + 8 * 2;
    at.place_empty = at.place_full + 8 * place_slots;
    at.draw = at.place_empty + 8 * place_slots;
    at.place = at.draw + 16;
    return at;
}

/* ---- Q blocks ---- */

/* Where a Q block begins, the head of K and V that its head attends to, and the number of KV blocks that its rows see:
 * at least one, which masks may empty. */
struct Q_place {
    int row, head, sample, KV_blocks, KV_head;
};
constexpr int place_bytes = 32; /* in shared memory */

/* Q blocks along seq_q; the last may be partly filled. */
template <KernelConfig cfg>
__device__ __forceinline__ int rows_of_Q_blocks(const attention_args &args) {
    return (args.seq_q + cfg.B_r - 1) / cfg.B_r;
}

/* Heads of Q that make a section, with the mask. All CTAs together should read the K and V of few heads at a time, at
 * most 32 MB: only the first reader of a block then waits for memory, the others find it in the L2 cache. A section has
 * several Q blocks for every CTA: its last ones, which see few keys, let all CTAs end at the same time. */
template <KernelConfig cfg>
__device__ __forceinline__ int heads_of_section(const attention_args &args) {
    constexpr int most_bytes = 32 << 20;
    const int group = args.heads / args.KV_heads, of_head = min(rows_of_Q_blocks<cfg>(args), 4) * group;
    const int wanted = (gridDim.x + of_head - 1) / of_head;
    const int fitting = max(1, most_bytes / (4 * cfg.d_head) / args.seq_k);
    return min(args.heads * args.batch, min(wanted, fitting) * group);
}

/* Q blocks are numbered along a head, then along the heads: CTAs that take neighbours read the same K and V at the same
 * time. With the mask neighbours of a head see different numbers of KV blocks. Then Q blocks are numbered along the
 * heads of a section, then from the last rows to the first, which see fewer keys, then along the sections. */
template <KernelConfig cfg>
__device__ __forceinline__ Q_place find_Q_block(const attention_args &args, int number) {
    const int rows = rows_of_Q_blocks<cfg>(args);
    int head = number / rows, behind = number % rows; /* Q blocks of the head between this one and its end */
    if (args.causal) {
        const int of_section = heads_of_section<cfg>(args), section = number / (of_section * rows);
        const int heads = min(of_section, args.heads * args.batch - section * of_section);
        const int in_section = number % (of_section * rows);
        head = section * of_section + in_section % heads, behind = in_section / heads;
    }
    const int row = (rows - 1 - behind) * cfg.B_r;
    int keys = args.seq_k;
    if (args.causal) keys = min(keys, row + cfg.B_r + args.seq_k - args.seq_q);
    return {row, head % args.heads, head / args.heads, max(1, (keys + cfg.B_c - 1) / cfg.B_c),
            head % args.heads / (args.heads / args.KV_heads)};
}

/* ---- mbarriers ---- */

/* Set up the mbarriers. One thread arrives at the full ones, with the bytes of its copies, and each consumer at the
 * empty ones. */
template <KernelConfig cfg>
__device__ __forceinline__ void init_mbarriers(const smem_places &at) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < 2; stage++)
            mbarrier_init(at.Q_full + 8 * stage, 1), mbarrier_init(at.Q_empty + 8 * stage, cfg.n_warps);
        mbarrier_init(at.draw, 1);
        for (int slot = 0; slot < place_slots; slot++) {
            mbarrier_init(at.place_full + 8 * slot, 1);
            mbarrier_init(at.place_empty + 8 * slot, cfg.n_warps + 1);
        }
        for (int stage = 0; stage < cfg.stages; stage++) {
            mbarrier_init(at.K_full + 8 * stage, 1), mbarrier_init(at.V_full + 8 * stage, 1);
            mbarrier_init(at.K_empty + 8 * stage, consumers<cfg>);
            mbarrier_init(at.V_empty + 8 * stage, consumers<cfg>);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
}

/* Wait until phase number `phase` of an mbarrier is complete; it may be at most one phase behind. Number -1, before the
 * first, is complete from the start. */
__device__ __forceinline__ void wait_for_phase(uint32_t mbarrier, int phase) {
    while (!mbarrier_try_wait_parity(mbarrier, phase & 1)) {
    }
}

/* ---- turns, with ping_pong: named barriers, at which the one consumer waits and the other only arrives ---- */

template <KernelConfig cfg>
__device__ __forceinline__ void wait_for_turn(int group) {
    if constexpr (cfg.ping_pong) bar_sync(1 + group, 2 * group_threads);
}
template <KernelConfig cfg>
__device__ __forceinline__ void pass_turn(int group) {
    if constexpr (cfg.ping_pong) bar_arrive(1 + (group + 1) % consumers<cfg>, 2 * group_threads);
}

/* ---- tensor cores ---- */

template <KernelConfig cfg>
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (cfg.dtype == FP16)
        mma_m16n8k16_f16(d, a, b0, b1);
    else
        mma_m16n8k16_bf16(d, a, b0, b1);
}

/* The 16 rows of this warp as fragments. Q_rows is the first of them in shared memory. */
template <KernelConfig cfg>
__device__ __forceinline__ void load_Q(Q_fragments<cfg> &Q, uint32_t Q_rows, int lane) {
    for (int k = 0; k < d_steps<cfg>; k++) {
        const int chunk = k % 4 * 2 + lane / 16;
        ldmatrix_x4(Q[k], Q_rows + (k / 4 * group_rows + lane % 16) * tile_row_bytes + (chunk ^ lane % 8) * 16);
    }
}

/* S = A K^T for 16 columns of Q and K, or S += A K^T. A is in registers or the descriptor of a matrix. */
template <KernelConfig cfg, typename A>
__device__ __forceinline__ void start_QK_step(S_tiles<cfg> &S, const A &a, uint64_t K, int accumulate) {
    if constexpr (cfg.B_c == 128 && cfg.dtype == FP16) wgmma_m64n128k16_f16(S, a, K, accumulate);
    if constexpr (cfg.B_c == 128 && cfg.dtype == BF16) wgmma_m64n128k16_bf16(S, a, K, accumulate);
    if constexpr (cfg.B_c == 64 && cfg.dtype == FP16) wgmma_m64n64k16_f16(S, a, K, accumulate);
    if constexpr (cfg.B_c == 64 && cfg.dtype == BF16) wgmma_m64n64k16_bf16(S, a, K, accumulate);
}

/* Start S = Q K^T, a group of wgmma, one for each 16 columns of Q and K. Q is read from registers or, with the
 * descriptor Q_matrix, from shared memory. */
template <KernelConfig cfg>
__device__ __forceinline__ void start_QK(S_tiles<cfg> &S, const Q_fragments<cfg> &Q, uint64_t Q_matrix, uint64_t K) {
    wgmma_fence();
    for (int k = 0; k < d_steps<cfg>; k++) {
        const uint64_t K_step = K + k / 4 * (cfg.B_c * tile_row_bytes / 16) + k % 4 * 2;
        if constexpr (Q_in_registers<cfg>)
            start_QK_step<cfg>(S, Q[k], K_step, k != 0);
        else
            start_QK_step<cfg>(S, Q_matrix + k / 4 * (group_rows * tile_row_bytes / 16) + k % 4 * 2, K_step, k != 0);
    }
    wgmma_commit_group();
}

/* Start O += P V, a group of wgmma, one for each 16 keys. */
template <KernelConfig cfg>
__device__ __forceinline__ void start_PV(O_tiles<cfg> &O, const P_fragments<cfg> &P, uint64_t V) {
    wgmma_fence();
    for (int k = 0; k < key_steps<cfg>; k++) {
        const uint64_t V_step = V + k * (16 * tile_row_bytes / 16);
        if constexpr (cfg.d_head == 64 && cfg.dtype == FP16) wgmma_m64n64k16_f16_trans(O, P[k], V_step, 1);
        if constexpr (cfg.d_head == 64 && cfg.dtype == BF16) wgmma_m64n64k16_bf16_trans(O, P[k], V_step, 1);
        if constexpr (cfg.d_head == 128 && cfg.dtype == FP16) wgmma_m64n128k16_f16_trans(O, P[k], V_step, 1);
        if constexpr (cfg.d_head == 128 && cfg.dtype == BF16) wgmma_m64n128k16_bf16_trans(O, P[k], V_step, 1);
        if constexpr (cfg.d_head == 256 && cfg.dtype == FP16) wgmma_m64n256k16_f16_trans(O, P[k], V_step, 1);
        if constexpr (cfg.d_head == 256 && cfg.dtype == BF16) wgmma_m64n256k16_bf16_trans(O, P[k], V_step, 1);
    }
    wgmma_commit_group();
}

/* S = Q K^T again, of this warp's 16 rows: mma.sync has the same fragments as wgmma. Q_rows is in shared memory, the
 * first of the warp's in its part of Q. K is the first of the block's rows in global memory. */
template <KernelConfig cfg>
__device__ void compute_S_again(S_tiles<cfg> &S, uint32_t Q_rows, const uint16_t *K, int64_t seq_stride, int lane) {
    for (int n = 0; n < 2 * key_steps<cfg>; n++)
        for (int e = 0; e < 4; e++) S[n][e] = 0;
#pragma unroll 1
    for (int k = 0; k < d_steps<cfg>; k++) {
        const auto chunk = [&](int right) { return (k % 4 * 2 + right ^ lane % 8) * 16; };
        uint32_t a[4];
        ldmatrix_x4(a, Q_rows + (k / 4 * group_rows + lane % 16) * tile_row_bytes + chunk(lane / 16));
        for (int n = 0; n < 2 * key_steps<cfg>; n++) {
            const uint16_t *b = K + (8 * n + lane / 4) * seq_stride + 16 * k + lane % 4 * 2;
            mma<cfg>(S[n], a, *(const uint32_t *)b, *(const uint32_t *)(b + 8));
        }
    }
}

/* ---- softmax: elements 0 and 1 of a tile are of the lane's first row (half 0), 2 and 3 of its second (half 1) ---- */

/* m is held as -maximum * softmax_scale, which one FMA adds to a score: before the first block it is more than any
 * finite score yields. It is finite, so that with it too the exponential of a masked score, -inf, is 0. */
constexpr float no_maximum = 0x1p127f;

/* Mask the scores of keys that this lane's rows, `row` and `row` + 8, do not see. `key` is the first of the block. */
template <KernelConfig cfg>
__device__ __forceinline__ void mask_S(S_tiles<cfg> &S, const attention_args &args, int row, int key, int lane) {
    for (int half = 0; half < 2; half++) {
        int keys = args.seq_k;
        if (args.causal) keys = min(keys, row + 8 * half + 1 + args.seq_k - args.seq_q);
        const int seen = keys - key - lane % 4 * 2; /* of the block, from this lane's first column on */
        for (int n = 0; n < 2 * key_steps<cfg>; n++)
            for (int e = 0; e < 2; e++)
                if (8 * n + e >= seen) S[n][2 * half + e] = -INFINITY;
    }
}

/* Most that the exponentials of a lane's row and block may add up to. */
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

/* Let m catch up with the row maxima: the four lanes of a quad share a row, and two butterfly shuffles give each the
 * maximum. l and O were sums of exp(score - m_old): `factor` makes them sums of exp(score - m). */
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
 * With optimized_softmax S is raw scores: exp((S - maximum) * scale) = 2^(S * softmax_scale + m): one FMA, one ex2.
 * Exponentials are computed in blocks of exp_columns columns. Beside each, those of the block before are added up. */
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
        inverse[half] = l[half] == 0 ? 0 : 1 / l[half]; /* 0 where a row sees no key */
    }
    rescale_O<cfg>(O, inverse);
}

/* Store ln(sum of exp(score)) of this warp's rows that exist, `row` and `row` + 8 in this lane; l is added up. */
__device__ __forceinline__ void store_LSE(const attention_args &args, const row_values &m, const row_values &l, int row,
                                          int head, int sample, int lane) {
    float *const LSE = args.LSE + ((int64_t)sample * args.heads + head) * args.seq_q;
    for (int half = 0; half < 2; half++)
        if (lane % 4 == 0 && row + 8 * half < args.seq_q)
            LSE[row + 8 * half] = 0.69314718f * (lg2_approx(l[half]) - m[half]);
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

/* Round O and store the rows of this warp that exist to global memory, without a place in shared memory. A lane has 4
 * bytes of a row in each of four tiles. The quad swaps them: a lane gets all 16 bytes of the tile with its number. */
template <KernelConfig cfg>
__device__ __forceinline__ void store_O_to_gmem(const attention_args &args, const O_tiles<cfg> &O, int row, int head,
                                                int sample, int lane) {
    const int column = lane % 4;
    uint16_t *const first =
        (uint16_t *)args.O + sample * args.O_strides.batch + head * args.O_strides.head + 8 * column;
    for (int half = 0; half < 2; half++) {
        const bool exists = row + 8 * half < args.seq_q;
        uint16_t *const out = first + (row + 8 * half) * args.O_strides.seq;
        for (int n = 0; n < 2 * d_steps<cfg>; n += 4) {
            uint32_t pairs[4];
            for (int i = 0; i < 4; i++) pairs[i] = round_pair<cfg>(O[n + i][2 * half], O[n + i][2 * half + 1]);
            /* Swap with the lane whose number differs in bit 1, then in bit 0: each gives what the other collects. */
            for (int bit = 2; bit > 0; bit /= 2)
                for (int i = 0; i < 4; i++) {
                    if (i & bit) continue;
                    const bool upper = column & bit;
                    const uint32_t other = __shfl_xor_sync(0xffffffff, upper ? pairs[i] : pairs[i + bit], bit);
                    if (upper)
                        pairs[i] = other;
                    else
                        pairs[i + bit] = other;
                }
            if (exists) *(uint4 *)(out + 8 * n) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        }
    }
}

/* ---- the scheduler: one thread ---- */

/* Post the places of this CTA's Q blocks; behind the last comes one whose row is -1. */
template <KernelConfig cfg>
__device__ __forceinline__ void schedule(const attention_args &args, const smem_places &at) {
    const int Q_blocks = rows_of_Q_blocks<cfg>(args) * args.heads * args.batch;
    for (int turn = 0;; turn++) {
        int number = blockIdx.x;
        if (turn > 0) {
            /* As many numbers are drawn as there are Q blocks. The CTA that draws the last sets the counter to 0 again.
             */
            wait_for_phase(at.draw, turn - 1);
            const int drawn = atomicAdd(args.tickets, 1);
            if (drawn == Q_blocks - 1) atomicExch(args.tickets, 0);
            number = gridDim.x + drawn;
        }
        const Q_place first = number < Q_blocks ? find_Q_block<cfg>(args, number) : Q_place{-1, 0, 0, 0, 0};
        const int slot = turn % place_slots;
        wait_for_phase(at.place_empty + 8 * slot, turn / place_slots - 1);
        store_shared_v4(at.place + place_bytes * slot, first.row, first.head, first.sample, first.KV_blocks);
        store_shared(at.place + place_bytes * slot + 16, first.KV_head);
        mbarrier_arrive(at.place_full + 8 * slot);
        if (first.row < 0) break;
    }
}

/* Read the place of Q block number `turn` of this CTA; the slot is the reader's until it arrives at place_empty. */
__device__ __forceinline__ Q_place read_place(const smem_places &at, int turn) {
    const uint32_t slot = at.place + place_bytes * (turn % place_slots);
    Q_place place;
    load_shared_v4(slot, place.row, place.head, place.sample, place.KV_blocks);
    place.KV_head = load_shared(slot + 16);
    return place;
}
__device__ __forceinline__ void wait_for_place(const smem_places &at, int turn) {
    wait_for_phase(at.place_full + 8 * (turn % place_slots), turn / place_slots);
}

/* ---- the producer: one thread ---- */

/* Blocks take the stages in turn: block b is number b / stages in its stage, and the phases of both mbarriers have that
 * number. It may be copied once all consumers have read the block before it in the stage. V is copied after the K of
 * the next block, as it is read after that. */
template <KernelConfig cfg>
__device__ __forceinline__ void produce(const attention_args &args, const tensor_maps &maps, const smem_places &at) {
    const auto copy_block = [&](uint32_t ring, const tensor_map &map, uint32_t full, uint32_t empty, int block,
                                const Q_place &from) {
        const int stage = block % cfg.stages;
        wait_for_phase(empty + 8 * stage, block / cfg.stages - 1);
        mbarrier_arrive_expect_tx(full + 8 * stage, KV_bytes<cfg>);
        copy_tensor_to_smem(ring + stage * KV_bytes<cfg>, map, full + 8 * stage, from.row, from.head, from.sample);
    };
    int copied = 0; /* K blocks, for all Q blocks */
    Q_place V_from; /* V is copied after the K of the next block */
    for (int turn = 0;; turn++) {
        wait_for_place(at, turn);
        const Q_place first = read_place(at, turn);
        mbarrier_arrive(at.place_empty + 8 * (turn % place_slots));
        if (first.row < 0) break;

        const int Q_stage = turn % Q_stages<cfg>;
        const uint32_t Q_smem = at.Q + Q_stage * consumers<cfg> * Q_bytes<cfg>, Q_full = at.Q_full + 8 * Q_stage;
        wait_for_phase(at.Q_empty + 8 * Q_stage, turn / Q_stages<cfg> - 1);
        mbarrier_arrive_expect_tx(Q_full, consumers<cfg> * Q_bytes<cfg>);
        for (int group = 0; group < consumers<cfg>; group++)
            copy_tensor_to_smem(Q_smem + group * Q_bytes<cfg>, maps.Q, Q_full, first.row + group * group_rows,
                                first.head, first.sample);
#pragma unroll 1
        for (int block = first.KV_blocks - 1; block >= 0; block--, copied++) {
            if (block == min(blocks_ahead, first.KV_blocks) - 1) mbarrier_arrive(at.draw);
            const Q_place K_from = {block * cfg.B_c, first.KV_head, first.sample};
            copy_block(at.K, maps.K, at.K_full, at.K_empty, copied, K_from);
            if (copied > 0) copy_block(at.V, maps.V, at.V_full, at.V_empty, copied - 1, V_from);
            V_from = K_from;
        }
    }
    copy_block(at.V, maps.V, at.V_full, at.V_empty, copied - 1, V_from);
}

/* ---- a consumer's work ---- */

template <KernelConfig cfg>
__device__ __forceinline__ void attend(const attention_args &args, const tensor_maps &maps, const smem_places &at,
                                       int group) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const bool leads = threadIdx.x % group_threads == 0; /* the thread that arrives for the consumer */
    const uint32_t O_smem = at.O + (4 * group + warp) * (Q_bytes<cfg> / 4);
    const uint64_t K_matrix = wgmma_descriptor(at.K, 0);
    const uint64_t V_matrix = wgmma_descriptor(at.V, cfg.B_c * tile_row_bytes);
    constexpr int next_stage = KV_bytes<cfg> / 16; /* in descriptors */

    /* With optimized_softmax the exponential has base 2, log2(e) = 1.4426950. */
    const float softmax_scale = 1.44269504f * args.softmax_scale;
    S_tiles<cfg> S;
    Q_fragments<cfg> Q;
    P_fragments<cfg> P;
    O_tiles<cfg> O = {};
    row_values m = {no_maximum, no_maximum}, l = {}, factor;
    /* For the debug hooks: the Q block that is taken, numbered along seq_q, then heads, then batch, and what S and P
     * are of. */
    int Q_block = 0;
    debug_place S_dumped = 0, P_dumped = 0;
    const auto name_Q_block = [&](const Q_place &first) {
        Q_block = (first.sample * args.heads + first.head) * rows_of_Q_blocks<cfg>(args) + first.row / cfg.B_r;
    };
    /* The part of a Q block that this consumer owns. With a causal mask the parts see different numbers of KV blocks:
     * it is the first and the last part in turn. */
    const auto part_of = [&](int turn) { return args.causal && turn % 2 ? consumers<cfg> - 1 - group : group; };
    /* That part, and the first of this warp's rows of it, in shared memory. */
    const auto Q_part = [&](int turn) {
        return at.Q + (turn % Q_stages<cfg> * consumers<cfg> + part_of(turn)) * Q_bytes<cfg>;
    };
    const auto Q_rows = [&](int turn) { return Q_part(turn) + 16 * warp * tile_row_bytes; };
    const auto start_S = [&](int block, int turn) {
        wait_for_phase(at.K_full + 8 * (block % cfg.stages), block / cfg.stages);
        start_QK<cfg>(S, Q, wgmma_descriptor(Q_part(turn), 0), K_matrix + block % cfg.stages * next_stage);
    };
    const auto start_O = [&](int block) {
        wait_for_phase(at.V_full + 8 * (block % cfg.stages), block / cfg.stages);
        start_PV<cfg>(O, P, V_matrix + block % cfg.stages * next_stage);
    };
    /* What a consumer has to know of a Q block: its first row in it, or -1 after the last Q block, the KV blocks that
     * only other consumers' rows see, which come first, and those that its own rows see. */
    struct Q_share {
        int row, unseen_blocks, seen_blocks;
    };
    const auto find_part = [&](int turn) {
        wait_for_place(at, turn);
        const Q_place place = read_place(at, turn);
        name_Q_block(place);
        const int first = warp_uniform(place.row), blocks = warp_uniform(place.KV_blocks);
        const int row = first + part_of(turn) * group_rows, keys = row + group_rows + args.seq_k - args.seq_q;
        const int seen = args.causal ? min(blocks, max(1, (keys + cfg.B_c - 1) / cfg.B_c)) : blocks;
        return Q_share{first < 0 ? -1 : row, blocks - seen, seen};
    };
    /* Release a block of a ring unread, once all warps of the consumer have seen that it is there. */
    const auto pass_block = [&](uint32_t full, uint32_t empty, int block) {
        wait_for_phase(full + 8 * (block % cfg.stages), block / cfg.stages);
        bar_sync(1 + consumers<cfg> + group, group_threads);
        if (leads) mbarrier_arrive(empty + 8 * (block % cfg.stages));
    };
    /* Whether some row of this consumer does not see a key of the block, or sees no key behind it. */
    const auto is_masked = [&](int row, int key) {
        return key + cfg.B_c > (args.causal ? row + args.seq_k - args.seq_q : args.seq_k);
    };
    const auto mask = [&](int row, int key) { mask_S<cfg>(S, args, row + 16 * warp + lane / 4, key, lane); };
    /* From S to exponentials, for the first block of a Q block. */
    const auto use_first_S = [&](int block, int row, int key, row_values &m, row_values &l) {
        if (leads) mbarrier_arrive(at.K_empty + 8 * (block % cfg.stages));
        if (is_masked(row, key)) mask(row, key);
        S_dumped = {debug_block<cfg>(args, Q_block, key / cfg.B_c), row % cfg.B_r + 16 * warp};
        dump_S<cfg>(args, S_dumped, S);
        row_values lane_max;
        find_lane_max<cfg>(lane_max, S);
        update_m(m, l, factor, lane_max, softmax_scale);
        exponentiate_S<cfg>(S, l, m, softmax_scale);
        dump_m<cfg>(args, S_dumped, m, -softmax_scale), dump_l<cfg>(args, S_dumped, l);
    };
    /* The same for later blocks; `key` is the first. Returns whether O, a sum over the blocks before, must be
     * multiplied by `factor`. */
    const auto use_S = [&](int block, int turn, int row, int key, bool masked) {
        if (leads) mbarrier_arrive(at.K_empty + 8 * (block % cfg.stages));
        if (masked) mask(row, key);
        S_dumped = {debug_block<cfg>(args, Q_block, key / cfg.B_c), row % cfg.B_r + 16 * warp};
        dump_S<cfg>(args, S_dumped, S);
        row_values sum = {}, lane_max;
        if (masked) {
            find_lane_max<cfg>(lane_max, S);
            update_m(m, l, factor, lane_max, softmax_scale);
        }
        exponentiate_S<cfg>(S, sum, m, softmax_scale);
        const bool outgrown = __any_sync(0xffffffff, !(fmaxf(sum[0], sum[1]) <= most_sum<cfg>));
        if (outgrown && !masked) [[unlikely]] { /* also for a NaN */
            const tensor_strides &K = args.K_strides;
            const Q_place first = read_place(at, turn);
            const int64_t head = first.sample * K.batch + first.KV_head * K.head;
            compute_S_again<cfg>(S, Q_rows(turn), (const uint16_t *)args.K + head + key * K.seq, K.seq, lane);
            find_lane_max<cfg>(lane_max, S);
            update_m(m, l, factor, lane_max, softmax_scale);
            sum[0] = sum[1] = 0;
            exponentiate_S<cfg>(S, sum, m, softmax_scale);
        }
        l[0] += sum[0], l[1] += sum[1];
        dump_m<cfg>(args, S_dumped, m, -softmax_scale), dump_l<cfg>(args, S_dumped, l);
        return masked || outgrown;
    };
    const auto take_P_from_S = [&] {
        round_S_to_P<cfg>(P, S);
        P_dumped = S_dumped;
    };
    const auto use_O = [&](int block) {
        if (leads) mbarrier_arrive(at.V_empty + 8 * (block % cfg.stages));
        dump_P<cfg>(args, P_dumped, P), dump_O<cfg>(args, P_dumped, O);
    };
    /* A warp's rows of O, tiles of 16 rows, take a place of their own, once the engine has read the previous ones. */
    const auto store_O = [&](int turn, int first_row) {
        const Q_place first = read_place(at, turn);
        const int row = first_row + 16 * warp;
        divide_O_by_l<cfg>(O, l);
        if (args.LSE) store_LSE(args, m, l, row + lane / 4, first.head, first.sample, lane);
        if constexpr (!cfg.double_buffer_Q) {
            store_O_to_gmem<cfg>(args, O, row + lane / 4, first.head, first.sample, lane);
        } else {
            if (lane == 0) bulk_wait_group_read<0>();
            __syncwarp();
            store_O_to_smem<cfg>(O_smem, O, lane);
            fence_proxy_async(); /* the engine reads by the async proxy */
            __syncwarp();
            if (lane == 0) {
                copy_smem_to_tensor(maps.O, O_smem, row, first.head, first.sample);
                bulk_commit_group();
            }
        }
    };

    /* O of a block is computed while the warpgroup turns S of the next block to exponentials. The block after the last
     * one of a Q block is the first of the next. */
    int block = 0; /* KV blocks of this CTA */
    Q_share part = find_part(0);
    for (; block < part.unseen_blocks; block++) {
        wait_for_turn<cfg>(group);
        pass_block(at.K_full, at.K_empty, block);
        pass_turn<cfg>(group);
        pass_block(at.V_full, at.V_empty, block);
    }
    int key = (part.seen_blocks - 1) * cfg.B_c; /* the first of the KV block */
    wait_for_phase(at.Q_full, 0);
    if constexpr (Q_in_registers<cfg>) load_Q<cfg>(Q, Q_rows(0), lane);
    start_S(block, 0);
    wgmma_wait_group<0>(S);
    use_first_S(block, part.row, key, m, l);
    take_P_from_S();
    for (int turn = 0;; turn++) {
        const auto step = [&](bool masked) {
            wait_for_turn<cfg>(group);
            start_S(block + 1, turn);
            start_O(block);
            pass_turn<cfg>(group);
            wgmma_wait_group<1>(S);
            const bool outgrown = use_S(block + 1, turn, part.row, key, masked);
            wgmma_wait_group<0>(O);
            use_O(block);
            if (outgrown) rescale_O<cfg>(O, factor);
            take_P_from_S();
        };
        key -= cfg.B_c;
#pragma unroll 1
        for (; key >= 0 && is_masked(part.row, key); key -= cfg.B_c, block++) step(true);
#pragma unroll 1
        for (; key >= 0; key -= cfg.B_c, block++) step(false);
        if (lane == 0) mbarrier_arrive(at.Q_empty + 8 * (turn % Q_stages<cfg>));

        const int last_row = part.row;
        part = find_part(turn + 1);
        const int seen = block + 1 + part.unseen_blocks;
        row_values next_m = {no_maximum, no_maximum}, next_l = {};
        if (part.row >= 0) {
            for (int unseen = block + 1; unseen < seen; unseen++) {
                wait_for_turn<cfg>(group);
                pass_block(at.K_full, at.K_empty, unseen);
                pass_turn<cfg>(group);
            }
            key = (part.seen_blocks - 1) * cfg.B_c;
            wait_for_phase(at.Q_full + 8 * ((turn + 1) % Q_stages<cfg>), (turn + 1) / Q_stages<cfg>);
            if constexpr (Q_in_registers<cfg>) load_Q<cfg>(Q, Q_rows(turn + 1), lane);
            wait_for_turn<cfg>(group);
            start_S(seen, turn + 1);
            start_O(block);
            pass_turn<cfg>(group);
            wgmma_wait_group<1>(S);
            use_first_S(seen, part.row, key, next_m, next_l);
        } else {
            start_O(block);
        }
        wgmma_wait_group<0>(O);
        use_O(block++);
        for (; block < seen; block++) pass_block(at.V_full, at.V_empty, block);
        store_O(turn, last_row);
        __syncwarp();
        if (part.row < 0) break;
        if (lane == 0) mbarrier_arrive(at.place_empty + 8 * (turn % place_slots));
        take_P_from_S();
        for (int half = 0; half < 2; half++) m[half] = next_m[half], l[half] = next_l[half];
        for (int n = 0; n < 2 * d_steps<cfg>; n++)
            for (int e = 0; e < 4; e++) O[n][e] = 0;
    }
    if (lane == 0) bulk_wait_group_read<0>(); /* shared memory stays until the engine has read it */
}

/* ---- the kernel: a CTA for each multiprocessor, a producer and its consumers ---- */

template <KernelConfig cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps + group_threads, 1)
    flash_forward(const __grid_constant__ attention_args args, const __grid_constant__ tensor_maps maps) {
    check_config<cfg>();
    const smem_places at = find_places<cfg>();
    init_mbarriers<cfg>(at);
    const int group = warp_uniform(threadIdx.x / group_threads);
    if (group == 0) { /* the producer gives back what it can */
        setmaxnreg_dec<producer_registers>();
        if (threadIdx.x == 0) produce<cfg>(args, maps, at);
        if (threadIdx.x == 32) schedule<cfg>(args, at);
    } else {
        setmaxnreg_inc<consumer_registers<cfg>>();
        if (group == consumers<cfg>) pass_turn<cfg>(group - 1);
        attend<cfg>(args, maps, at, group - 1);
    }
}

#include "instances.cuh"
