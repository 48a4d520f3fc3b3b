/* attention/fp8 - attention of e4m3 on Hopper
 *
 * config    (FP16, 128, 192, 96, 12): fp8_wgmma+stages_2+any_length+causal+persistent+tickets+grouped
 * others    (FP16, 64, 192, 128, 12): fp8_wgmma+stages_3+any_length+causal+persistent+tickets+grouped;
 *           (FP16, 256, 128, 64, 8): fp8_wgmma+stages_2+any_length+causal+persistent+tickets+grouped
 * accurate  (FP16, 128, 192, 96, 12):
 *           fp8_wgmma+stages_2+flush_5+rounded_l+any_length+causal+persistent+tickets+grouped;
 *           (FP16, 64, 192, 128, 12):
 *           fp8_wgmma+stages_3+flush_4+rounded_l+any_length+causal+persistent+tickets+grouped;
 *           (FP16, 256, 128, 64, 8):
 *           fp8_wgmma+stages_2+flush_7+rounded_l+any_length+causal+persistent+tickets+grouped
 * serving   (FP16, 128, 192, 96, 12):
 *           fp8_wgmma+stages_2+any_length+causal+persistent+tickets+grouped+serve;
 *           (FP16, 64, 192, 128, 12):
 *           fp8_wgmma+stages_3+any_length+causal+persistent+tickets+grouped+serve;
 *           (FP16, 128, 192, 96, 12):
 *           fp8_wgmma+stages_2+flush_5+rounded_l+any_length+causal+persistent+tickets+grouped+serve;
 *           (FP16, 64, 192, 128, 12):
 *           fp8_wgmma+stages_3+flush_4+rounded_l+any_length+causal+persistent+tickets+grouped+serve;
 *           (FP16, 256, 128, 64, 8):
 *           fp8_wgmma+stages_2+any_length+causal+persistent+tickets+grouped+serve;
 *           (FP16, 256, 128, 64, 8):
 *           fp8_wgmma+stages_2+flush_7+rounded_l+any_length+causal+persistent+tickets+grouped+serve
 * arch      sm_90a
 */
#include "common/fp8.h"
#include "common/ptx_fp8.cuh"
#include "common/serving.h"
#include "kernels/attention/kv.cuh"
#include "kernels/attention/schedule.cuh"

/* A CTA per multiprocessor takes Q blocks of 192 queries, each of its three computing warpgroups 64 of them. In a
 * fourth warpgroup the first thread draws Q blocks and has the copy engine bring Q and, block by block from the last
 * one on, 96 keys and values (with d_head 64 128) into rings; its other three warps transpose the values into a ring of
 * their own, whose rows have room for 128 keys. With d_head 256 two warpgroups of 64 queries take 64 keys at a time: O
 * of more does not fit their registers. Rows of Q, K and V are two of 128 bytes then, and those of Vᵀ have 64; with O
 * in fp32 there is room for one Q block and one block of values.
 *
 *     S = Q Kᵀ    both in shared memory
 *     O += P V    P in registers, V from shared memory as Vᵀ: its rows are columns of V and their elements are keys
 *
 * The products go on from one Q block to the next: S of a KV block, or of the first one of the next Q block, is started
 * before O of the KV block before. So the tensor cores have work while a warpgroup computes exponentials, and while it
 * stores O.
 *
 * What P costs: e4m3 has 3 bits of fraction and ends at 448; nothing below 2^-9 is left. P = 2^(s - m), and m is such
 * that P begins at 8. Since l has the same factor, O / l does not show it. m is the maximum of the first block that a
 * row sees as a whole; it rises where a P has become too large. Blocks that a row of the warpgroup may not see as a
 * whole take a running maximum.
 *
 * What the accumulator costs: wgmma of e4m3 keeps 13 bits of fraction and cuts (docs/emulator.md). With flush_blocks O
 * is added up in fp32 in shared memory each so many blocks, between the start of S and that of O. With rounded_sums l
 * is the sum of P as it was rounded to e4m3: where one weight is nearly all, its rounding cancels out.
 *
 * Who holds what: of 16 columns of S lane 4g + q has columns 2q, 2q + 1, 8 + 2q and 9 + 2q of rows g and g + 8: the
 * order of the keys in Vᵀ. Of 16 columns of O the even ones come first: the lane's pairs of two tiles are four
 * neighbours of a row.
 *
 * The transposition: ldmatrix.trans of 8 keys x 16 columns moves pairs of columns: with c = lane / 4 and q = lane % 4 a
 * lane gets columns 2c and 2c + 1 of keys 2q and 2q + 1. From two of them, of keys 0-7 and 8-15, PRMT takes column 2c
 * of keys 2q, 2q + 1, 8 + 2q, 9 + 2q, and column 2c + 1 of the same. stmatrix writes the four bytes side by side.
 *
 * Lengths: rows behind the last query are zeros that the copy engine makes up, and it writes none of them back. Keys
 * behind the last are zeros, too; their scores become -infinity. A row that sees no key has a m of -infinity; its l and
 * O are 0.
 *
 * Instances that serve take serving_args: sequences of several lengths, factors for each so many keys, O in e4m3. Rows
 * around those of a sequence are others' or NaN. So the transposing warps make values behind the last key zeros, rows
 * behind the last query have no say in whether P is lowered, and of 16 rows of which some are others' each lane writes
 * its own. A factor f of keys of V comes with the exponent: P = 2^(s + log2 f - m), of which l sums P / f. */

/* Refuse what this kernel can't run, and every flag that it would not act on. */
template <fp8_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.B_c == (cfg.d_head == 64    ? 128
                              : cfg.d_head == 128 ? 96
                                                  : 64),
                  "B_c must be 96, with d_head 64 128, with 256 64: more of S, P and O does not fit the registers");
    static_assert(cfg.n_warps == (cfg.d_head == 256 ? 8 : 12),
                  "n_warps must be 12, with d_head 256 8: warpgroups of 64 queries");
    static_assert(!cfg.V_transposed, "v_transposed must be off: the kernel transposes");
    static_assert(!cfg.K_permuted, "k_permuted must be off: the keys of V are permuted");
    static_assert(cfg.any_length && cfg.causal, "any_length and causal must be on: the kernel has the mask");
    static_assert(cfg.persistent && cfg.tickets, "persistent and tickets must be on: CTAs draw their Q blocks");
    static_assert(cfg.grouped_heads, "grouped must be on: heads may share K and V");
}

/* The first parameter, the place of a Q block, and what a warpgroup keeps of it: where there are several lengths, it
 * reads the rest again. */
struct served_rows {
    int row, KV_blocks, seq_q, seq_k, aligned; /* row i sees keys before i + 1 + aligned */
};

template <bool serves>
struct types_of {
    using args = fp8_args;
    using place = Q_place;
    using kept = Q_place;
};
template <>
struct types_of<true> {
    using args = serving_args;
    using place = served_place;
    using kept = served_rows;
};
template <fp8_config cfg>
using args_for = typename types_of<cfg.serves>::args;
template <fp8_config cfg>
using place_for = typename types_of<cfg.serves>::place;
template <fp8_config cfg>
using kept_for = typename types_of<cfg.serves>::kept;

__device__ __forceinline__ int seen_keys(const served_rows &rows, int end) {
    return min(rows.seq_k, end + rows.aligned);
}

enum { WARPGROUP = 128, GROUP_ROWS = 64, TRANSPOSERS = 3 /* warps */, TILE_ROW = 128 /* bytes */ };

/* ---- shared memory ---- */

/* Where everything is: rings, and what of O belongs to each computing warp. */
template <fp8_config cfg>
struct places {
    static constexpr uint32_t Q_bytes = cfg.B_r * cfg.d_head, KV_bytes = cfg.B_c * cfg.d_head;
    static constexpr int Vt_row_bytes = fp8_Vt_row_bytes(&cfg);
    static constexpr uint32_t Vt_bytes = cfg.d_head * Vt_row_bytes;
    static constexpr uint32_t O_bytes = 16 * cfg.d_head * (cfg.flush_blocks ? 4 : 2); /* of a warp */
    static constexpr int Q_stages = fp8_Q_stages(&cfg), V_stages = fp8_V_stages(&cfg);
    ring<Q_stages, Q_bytes> Q;
    ring<cfg.stages, KV_bytes> K;
    ring<V_stages, KV_bytes> V;
    ring<V_stages, Vt_bytes> Vt; /* V transposed */
    place_ring<cfg> Q_blocks;
    uint32_t O;

    __device__ __forceinline__ places(uint32_t smem) {
        Q.first_stage = (smem + 1023) / 1024 * 1024;
        K.first_stage = Q.first_stage + Q_stages * Q_bytes;
        V.first_stage = K.first_stage + cfg.stages * KV_bytes;
        Vt.first_stage = V.first_stage + V_stages * KV_bytes;
        O = Vt.first_stage + V_stages * Vt_bytes;
        Q_blocks.first_stage = O + cfg.n_warps * O_bytes;
        Q.first_full = Q_blocks.first_stage + place_slots * (cfg.serves ? 64 : 32);
        Q.first_empty = Q.first_full + 8 * 2;
        K.first_full = Q.first_empty + 8 * 2;
        K.first_empty = K.first_full + 8 * cfg.stages;
        V.first_full = K.first_empty + 8 * cfg.stages;
        V.first_empty = V.first_full + 8 * cfg.stages;
        Vt.first_full = V.first_empty + 8 * cfg.stages;
        Vt.first_empty = Vt.first_full + 8 * cfg.stages;
        Q_blocks.first_full = Vt.first_empty + 8 * cfg.stages;
        Q_blocks.first_empty = Q_blocks.first_full + 8 * place_slots;
    }
};

/* One thread sets up the mbarriers. */
template <fp8_config cfg>
__device__ __forceinline__ void init_mbarriers(const places<cfg> &at) {
    if (threadIdx.x == 0) {
        for (int n = 0; n < at.Q_stages; n++) at.Q.init(n, cfg.n_warps);
        for (int n = 0; n < cfg.stages; n++) {
            at.K.init(n, cfg.n_warps / 4);
            if (n >= at.V_stages) continue;
            at.V.init(n, TRANSPOSERS);
            mbarrier_init(at.Vt.full(n), TRANSPOSERS);
            mbarrier_init(at.Vt.empty(n), cfg.n_warps / 4);
        }
        for (int n = 0; n < place_slots; n++) at.Q_blocks.init(n, cfg.n_warps + TRANSPOSERS);
        fence_mbarrier_init();
    }
    __syncthreads(); /* they are set up */
}

/* Arrive once for the warp, when all of its lanes are here. */
__device__ __forceinline__ void arrive_as_warp(uint32_t mbarrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(mbarrier);
}

template <fp8_config cfg>
__device__ __forceinline__ place_for<cfg> read_Q_block(const places<cfg> &at, int turn) {
    if constexpr (cfg.serves)
        return read_served_place(at.Q_blocks, turn);
    else
        return read_place(at.Q_blocks, turn);
}

/* The Q block of a turn, for a warp. */
template <fp8_config cfg>
__device__ __forceinline__ place_for<cfg> take_Q_block(const places<cfg> &at, int turn) {
    at.Q_blocks.wait_until_full(turn);
    const place_for<cfg> here = read_Q_block(at, turn);
    arrive_as_warp(at.Q_blocks.empty(turn));
    return here;
}

/* The same for a computing warp. Where there are several lengths the place is its own until it is done with it. */
template <fp8_config cfg>
__device__ __forceinline__ kept_for<cfg> keep_Q_block(const args_for<cfg> &args, const places<cfg> &at, int turn) {
    if constexpr (cfg.serves) {
        at.Q_blocks.wait_until_full(turn);
        const served_place here = read_Q_block(at, turn);
        const int seq_q = here.seq.seq_q, seq_k = here.seq.seq_k;
        return {here.row, here.KV_blocks, seq_q, seq_k, args.causal ? seq_k - seq_q : 1 << 30};
    } else
        return take_Q_block(at, turn);
}

/* ---- copies: one thread ---- */

template <fp8_config cfg>
__device__ __forceinline__ void copy_Q(const tensor_maps &maps, const places<cfg> &at, int turn,
                                       const place_for<cfg> &here) {
    const Q_origin from = find_Q_origin(here);
    at.Q.wait_until_empty(turn);
    mbarrier_arrive_expect_tx(at.Q.full(turn), places<cfg>::Q_bytes);
    for (int group = 0; group < cfg.n_warps / 4; group++)
        copy_tensor_to_smem(at.Q.stage(turn) + group * GROUP_ROWS * cfg.d_head, maps.Q, at.Q.full(turn),
                            from.row + group * GROUP_ROWS, here.head, from.sample);
}

template <int stages, int bytes>
__device__ __forceinline__ void copy_block(const ring<stages, bytes> &to, const tensor_map &map, int n,
                                           const KV_place &from) {
    to.wait_until_empty(n);
    mbarrier_arrive_expect_tx(to.full(n), bytes);
    copy_tensor_to_smem(to.stage(n), map, to.full(n), from.row, from.head, from.sample);
}

/* A CTA's first Q block has the number of the CTA; it draws the others. */
template <fp8_config cfg>
__device__ __forceinline__ void produce(const fp8_args &args, const tensor_maps &maps, const places<cfg> &at) {
    const int Q_blocks = rows_of_Q_blocks<cfg>(args.seq_q) * args.heads * args.batch;
    int number = blockIdx.x, n = 0;
#pragma unroll 1
    for (int turn = 0;; turn++) {
        const Q_place here = number < Q_blocks ? find_Q_block<cfg>(args, number) : Q_place{-1, 0, 0, 0, 0};
        post_place(at.Q_blocks, turn, here);
        if (here.row < 0) break;
        copy_Q<cfg>(maps, at, turn, here);
        const int draw = max(0, here.KV_blocks - blocks_ahead);
#pragma unroll 1
        for (int i = 0; i < here.KV_blocks; i++, n++) {
            if (i == draw) number = draw_number(args, Q_blocks);
            const KV_place from = find_KV_block<cfg.B_c>(here, here.KV_blocks - 1 - i);
            copy_block(at.K, maps.K, n, from);
            copy_block(at.V, maps.V, n, from);
        }
    }
}

/* The same where only the device knows the lengths: a warp finds the Q blocks, and its first lane copies. Who draws the
 * last number has gone through all sequences. */
template <fp8_config cfg>
__device__ __forceinline__ void produce_for_sequences(const serving_args &args, const tensor_maps &maps,
                                                      const places<cfg> &at) {
    sequence_walk<cfg> walk{args};
    int drawn = -1, n = 0;
    walk.read(0);
#pragma unroll 1
    for (int turn = 0;; turn++) {
        const int number = turn > 0 ? gridDim.x + drawn : blockIdx.x, found = walk.find(number);
        if (found < 0) {
            const bool last = drawn >= 0 && drawn == walk.all_blocks() - 1;
            if (walk.lane == 0 && last) atomicExch(args.tickets, 0);
            if (walk.lane == 0) post_place(at.Q_blocks, turn, served_place{{-1}});
            break;
        }
        const int begin = __shfl_sync(0xffffffff, walk.begin, found);
        const served_place here = find_Q_block<cfg>(args, walk.first + found, number - begin);
        if (walk.lane == 0) {
            post_place(at.Q_blocks, turn, here);
            copy_Q<cfg>(maps, at, turn, here);
            const int draw = max(0, here.KV_blocks - blocks_ahead);
#pragma unroll 1
            for (int i = 0; i < here.KV_blocks; i++, n++) {
                if (i == draw) drawn = atomicAdd(args.tickets, 1);
                const KV_place from = find_KV_block<cfg.B_c>(here, here.KV_blocks - 1 - i);
                copy_block(at.K, maps.K, n, from);
                copy_block(at.V, maps.V, n, from);
            }
        }
        drawn = __shfl_sync(0xffffffff, drawn, 0);
    }
}

/* The place of 16 bytes in a row of `row_bytes`: with 64 the swizzle before that of 128. */
template <int row_bytes>
__device__ __forceinline__ uint32_t swizzled(uint32_t row, uint32_t chunk) {
    return chunk ^ (row_bytes == 64 ? row / 2 % 4 : row % 8);
}

/* Rows of Q, K and V have up to 128 bytes; with d_head 256 the second half of so many rows lies behind the first. */
template <fp8_config cfg>
constexpr int row_bytes = cfg.d_head == 64 ? 64 : TILE_ROW;

template <fp8_config cfg, int rows>
__device__ __forceinline__ uint32_t chunk_of(uint32_t row, uint32_t chunk) {
    if constexpr (cfg.d_head == 256)
        return chunk / 8 * rows * TILE_ROW + row * TILE_ROW + swizzled<TILE_ROW>(row, chunk % 8) * 16;
    else
        return row * cfg.d_head + swizzled<cfg.d_head>(row, chunk) * 16;
}

/* ---- transposition: three warps ---- */

/* Of the lane's keys 2q, 2q + 1, 8 + 2q, 9 + 2q those before `end`, as bits of four bytes. */
__device__ __forceinline__ uint32_t bytes_before(int end) {
    const int own = threadIdx.x % 4 * 2;
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++)
        if (own + i / 2 * 8 + i % 2 < end) bits |= 0xffu << 8 * i;
    return bits;
}

/* 16 keys and 32 columns; where the block is `cut`, of it the first `seen` keys, others become 0. Lanes give the
 * addresses of keys 0-7 and 8-15 of 16 columns, and of the same of the next 16; then those of 32 rows of V transposed,
 * 16 bytes of each. */
template <fp8_config cfg, bool cut>
__device__ __forceinline__ void transpose_unit(uint32_t V, uint32_t Vt, uint32_t keys, uint32_t columns, int seen) {
    const uint32_t lane = threadIdx.x % 32, key = 16 * keys + lane % 16, row = 32 * columns + lane;
    uint32_t from[4], to[4];
    ldmatrix_x4_trans(from, V + chunk_of<cfg, cfg.B_c>(key, 2 * columns + lane / 16));
    for (int i = 0; i < 4; i++) to[i] = __byte_perm(from[i / 2 * 2], from[i / 2 * 2 + 1], i % 2 ? 0x7531 : 0x6420);
    if (cut && (int)(16 * keys + 16) > seen)
        for (int i = 0; i < 4; i++) to[i] &= bytes_before(seen - (int)(16 * keys));
    stmatrix_x4(Vt + row * places<cfg>::Vt_row_bytes + swizzled<places<cfg>::Vt_row_bytes>(row, keys) * 16, to);
}

template <fp8_config cfg, bool cut>
__device__ __forceinline__ void transpose_block(uint32_t V, uint32_t Vt, int warp, int seen) {
    constexpr uint32_t column_units = cfg.d_head / 32;
#pragma unroll 4
    for (uint32_t unit = warp; unit < cfg.B_c / 16 * column_units; unit += TRANSPOSERS)
        transpose_unit<cfg, cut>(V, Vt, unit / column_units, unit % column_units, seen);
}

template <fp8_config cfg>
__device__ __forceinline__ void transpose(const places<cfg> &at, int warp) {
    int n = 0;
#pragma unroll 1
    for (int turn = 0;; turn++) {
        const place_for<cfg> here = take_Q_block(at, turn);
        if (here.row < 0) break;
        const int end = n + here.KV_blocks;
        int seen = cfg.B_c; /* keys of the sequence in a block: the first may have fewer */
        if constexpr (cfg.serves) seen = here.seq.seq_k - (here.KV_blocks - 1) * cfg.B_c;
#pragma unroll 1
        for (; n < end; n++) {
            const uint32_t V = at.V.stage(n), Vt = at.Vt.stage(n);
            at.V.wait_until_full(n);
            at.Vt.wait_until_empty(n);
            if (seen < cfg.B_c)
                transpose_block<cfg, true>(V, Vt, warp, seen);
            else
                transpose_block<cfg, false>(V, Vt, warp, seen);
            fence_proxy_async(); /* wgmma sees what this thread has stored */
            arrive_as_warp(at.Vt.full(n));
            arrive_as_warp(at.V.empty(n));
            seen = cfg.B_c;
        }
    }
}

/* ---- products: each is started and closed as a group ---- */

template <fp8_config cfg>
using scores = float[cfg.B_c / 8][4];
template <fp8_config cfg>
using weights = uint32_t[cfg.B_c / 32][4]; /* P in e4m3, as the first operand of wgmma */
template <fp8_config cfg>
using sums_of_V = float[cfg.d_head / 8][4];

/* With 64 bytes 8 rows are 512 bytes, and bits 62 and 63 say 2: the swizzle of 64-byte rows. */
template <int row_bytes>
__device__ __forceinline__ uint64_t rows_descriptor(uint32_t smem_addr) {
    return row_bytes == 64 ? (uint64_t)2 << 62 | (uint64_t)(512 / 16) << 32 | smem_addr / 16
                           : wgmma_descriptor(smem_addr, 0);
}

/* To columns 32k ... of so many rows, in units of 16 bytes. */
__device__ constexpr int step_of(int k, int rows) {
    return 2 * (k % 4) + k / 4 * (rows * TILE_ROW / 16);
}

template <fp8_config cfg>
__device__ __forceinline__ void start_S(scores<cfg> &S, uint32_t Q, uint32_t K) {
    const uint64_t a = rows_descriptor<row_bytes<cfg>>(Q), b = rows_descriptor<row_bytes<cfg>>(K);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < cfg.d_head / 32; k++)
        if constexpr (cfg.B_c == 64)
            wgmma_m64n64k32_e4m3(S, a + step_of(k, GROUP_ROWS), b + step_of(k, cfg.B_c), k > 0);
        else if constexpr (cfg.B_c == 96)
            wgmma_m64n96k32_e4m3(S, a + 2 * k, b + 2 * k, k > 0);
        else
            wgmma_m64n128k32_e4m3(S, a + 2 * k, b + 2 * k, k > 0);
    wgmma_commit_group();
}

template <fp8_config cfg>
__device__ __forceinline__ void start_O(sums_of_V<cfg> &O, const weights<cfg> &P, uint32_t Vt, bool accumulate) {
    const uint64_t b = rows_descriptor<places<cfg>::Vt_row_bytes>(Vt);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < cfg.B_c / 32; k++)
        if constexpr (cfg.d_head == 64)
            wgmma_m64n64k32_e4m3(O, P[k], b + 2 * k, k > 0 || accumulate);
        else if constexpr (cfg.d_head == 256)
            wgmma_m64n256k32_e4m3(O, P[k], b + 2 * k, k > 0 || accumulate);
        else
            wgmma_m64n128k32_e4m3(O, P[k], b + 2 * k, k > 0 || accumulate);
    wgmma_commit_group();
}

/* ---- the softmax; of a lane's two rows, g and g + 8, elements 0 and 1 of a tile are of the first ---- */

/* m: logarithm to base 2 of what stands for 1 in P, 2^3 times less than the maximum that it was taken from; l: the
 * lane's part of the sum. */
struct row_state {
    float m[2], l[2];
};

enum { P_BITS = 3, P_LARGEST = 448 }; /* P begins at 2^3 */

/* Of the block that begins at a key, what the warp's 16 rows don't see. */
template <int tiles>
__device__ __forceinline__ void mask_keys(const auto &rows, float (&S)[tiles][4], int first_key, int first_row) {
    if (first_key + 8 * tiles <= seen_keys(rows, first_row + 1)) return;
    const int lane = threadIdx.x % 32, own = lane % 4 * 2;
    for (int half = 0; half < 2; half++) {
        const int end = seen_keys(rows, first_row + lane / 4 + 8 * half + 1) - first_key - own;
        for (int tile = 0; tile < tiles; tile++)
            for (int i = 0; i < 2; i++)
                if (8 * tile + i >= end) S[tile][2 * half + i] = -INFINITY;
    }
}

/* The largest score of each row; all four lanes of it get it. */
template <int tiles>
__device__ __forceinline__ void find_maxima(float (&most)[2], const float (&S)[tiles][4]) {
    for (int half = 0; half < 2; half++) {
        most[half] = -INFINITY;
        for (int tile = 0; tile < tiles; tile++)
            most[half] = fmaxf(most[half], fmaxf(S[tile][2 * half], S[tile][2 * half + 1]));
        most[half] = fmaxf(most[half], __shfl_xor_sync(0xffffffff, most[half], 1));
        most[half] = fmaxf(most[half], __shfl_xor_sync(0xffffffff, most[half], 2));
    }
}

/* S to P, in place, and the lane's sums: a span of exponentials is on its way while the one before is added up. */
template <int tiles>
__device__ __forceinline__ void take_exponentials(float (&S)[tiles][4], float (&sum)[2], const float (&m)[2],
                                                  float exponent_scale) {
    constexpr int span = 4;
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int first = 0; first <= tiles; first += span) {
#pragma unroll
        for (int tile = first; tile < min(tiles, first + span); tile++)
            for (int i = 0; i < 4; i++) S[tile][i] = ex2_approx(S[tile][i] * exponent_scale - m[i / 2]);
#pragma unroll
        for (int tile = max(0, first - span); tile < first; tile += 2)
            for (int half = 0; half < 2; half++)
                sum[half] +=
                    S[tile][2 * half] + S[tile][2 * half + 1] + (S[tile + 1][2 * half] + S[tile + 1][2 * half + 1]);
    }
}

/* The same with the maximum of all blocks up to this one. `factor` is what is left of l and O, which have the one of
 * the blocks before. A row that has seen no key has no maximum, and its scores of -infinity become 0 with any. */
template <int tiles>
__device__ __forceinline__ void raise_m(float (&S)[tiles][4], float (&sum)[2], float (&m)[2], float (&factor)[2],
                                        float exponent_scale) {
    float most[2], finite[2];
    find_maxima(most, S);
    for (int half = 0; half < 2; half++) {
        const float before = m[half];
        m[half] = fmaxf(before, most[half] * exponent_scale - P_BITS);
        finite[half] = m[half] == -INFINITY ? 0 : m[half];
        factor[half] = ex2_approx(before - finite[half]);
    }
    take_exponentials(S, sum, finite, exponent_scale);
}

/* Whether a P of the warp may be more than e4m3 has, for then a sum is: all lanes get the same. Sums of numbers up to
 * 2^3 are less. */
__device__ __forceinline__ bool may_be_too_large(const float (&sum)[2]) {
    return __any_sync(0xffffffff, !(sum[0] < P_LARGEST && sum[1] < P_LARGEST)); /* NaN is not */
}

/* S of the warp's 16 rows once more, after its exponentials have overflowed: by mma.sync, with K from global memory.
 * `Q` is the place of these rows. */
template <fp8_config cfg>
__device__ __forceinline__ void compute_S_again(const args_for<cfg> &args, scores<cfg> &S, uint32_t Q, int first_key,
                                                const place_for<cfg> &here) {
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const KV_place from = find_KV_block<cfg.B_c>(here, 0);
    const uint8_t *const K = (const uint8_t *)args.K + from.sample * args.K_strides.batch +
                             from.head * args.K_strides.head + (from.row + first_key + g) * args.K_strides.seq + 4 * q;
    for (int k = 0; k < cfg.d_head / 32; k++) {
        uint32_t a[4];
        for (int i = 0; i < 4; i++) /* rows g and g + 8, then the next 16 bytes of them */
            a[i] = load_shared(Q + chunk_of<cfg, GROUP_ROWS>(g + i % 2 * 8, 2 * k + i / 2) + 4 * q);
        for (int tile = 0; tile < cfg.B_c / 8; tile++) {
            const uint32_t *const b = (const uint32_t *)(K + 8 * tile * args.K_strides.seq + 32 * k);
            if (k == 0)
                for (int i = 0; i < 4; i++) S[tile][i] = 0;
            mma_m16n8k32_e4m3(S[tile], a, b[0], b[4]);
        }
    }
}

/* P so that its largest is at most 2^3 again; `factor` is for l and O. A NaN stays one. Rows that are others' stay as
 * they are. */
template <fp8_config cfg>
__device__ __forceinline__ void lower_P(scores<cfg> &P, float (&sum)[2], float (&m)[2], float (&factor)[2],
                                        float exponent_scale, const auto &keep_own, const auto &find_S_again) {
    float most[2];
    find_maxima(most, P);
    keep_own(most);
    if (__any_sync(0xffffffff, most[0] == INFINITY || most[1] == INFINITY)) {
        find_S_again();
        raise_m(P, sum, m, factor, exponent_scale);
        return;
    }
    for (int half = 0; half < 2; half++) {
        const float rise = fmaxf(lg2_approx(most[half]) - P_BITS, 0);
        factor[half] = ex2_approx(-rise);
        m[half] += rise;
        sum[half] *= factor[half];
        for (int tile = 0; tile < cfg.B_c / 8; tile++)
            for (int i = 2 * half; i < 2 * half + 2; i++) P[tile][i] *= factor[half];
    }
}

/* The lane's pairs of two tiles of 8 keys are its four bytes of 16 keys. */
template <fp8_config cfg>
__device__ __forceinline__ void round_P(weights<cfg> &P, const scores<cfg> &S) {
    for (int chunk = 0; chunk < cfg.B_c / 16; chunk++)
        for (int half = 0; half < 2; half++) {
            const float (&first)[4] = S[2 * chunk], (&second)[4] = S[2 * chunk + 1];
            P[chunk / 2][chunk % 2 * 2 + half] =
                cvt_e4m3x4(first[2 * half], first[2 * half + 1], second[2 * half], second[2 * half + 1]);
        }
}

/* The lane's sums of rounded P: pairs in fp16, of up to 32 numbers up to 448. */
template <fp8_config cfg>
__device__ __forceinline__ void sum_rounded(float (&sum)[2], const weights<cfg> &P) {
    for (int half = 0; half < 2; half++) {
        uint32_t pair = 0;
        for (int chunk = 0; chunk < cfg.B_c / 16; chunk++) {
            const uint32_t four = P[chunk / 2][chunk % 2 * 2 + half];
            const uint32_t two = add_f16x2(cvt_f16x2_e4m3x2(four), cvt_f16x2_e4m3x2(four >> 16));
            pair = chunk ? add_f16x2(pair, two) : two;
        }
        sum[half] = cvt_f32_f16((uint16_t)pair) + cvt_f32_f16((uint16_t)(pair >> 16));
    }
}

template <fp8_config cfg>
__device__ __forceinline__ void scale_O(sums_of_V<cfg> &O, const float (&factor)[2]) {
    for (int tile = 0; tile < cfg.d_head / 8; tile++)
        for (int i = 0; i < 4; i++) O[tile][i] *= factor[i / 2];
}

/* ---- where each so many keys have factors of their own: 32 keys, four tiles, have the same ---- */

/* Of the keys from `key` on. `before` are those of other heads and sequences. */
__device__ __forceinline__ float factor_of_keys(const serving_args &args, const float *factors, int before, int key) {
    const int shift = __ffs(args.scale_keys) - 1;
    return factors ? factors[before + (min(key, args.seq_k - 1) >> shift)] : 1;
}

/* S to exponents to base 2, with that of V's factor. */
template <fp8_config cfg>
__device__ __forceinline__ void scale_S(const serving_args &args, scores<cfg> &S, int before, int first_key,
                                        float score_scale) {
#pragma unroll
    for (int chunk = 0; chunk < cfg.B_c / 32; chunk++) {
        const float of_K = score_scale * factor_of_keys(args, args.K_scales, before, first_key + 32 * chunk);
        const float of_V = lg2_approx(factor_of_keys(args, args.V_scales, before, first_key + 32 * chunk));
        for (int tile = 4 * chunk; tile < 4 * chunk + 4; tile++)
            for (int i = 0; i < 4; i++) S[tile][i] = S[tile][i] * of_K + of_V;
    }
}

/* The lane's sums of P without V's factors. Not of P as it was rounded: with a small factor of V nothing of a large
 * weight may be left. */
template <fp8_config cfg>
__device__ __forceinline__ void sum_without_factors(const serving_args &args, float (&sum)[2], const scores<cfg> &P,
                                                    int before, int first_key) {
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int chunk = 0; chunk < cfg.B_c / 32; chunk++) {
        const float of_V = factor_of_keys(args, args.V_scales, before, first_key + 32 * chunk);
        const float undone = ex2_approx(-lg2_approx(of_V));
        for (int half = 0; half < 2; half++) {
            float of_chunk = 0;
            for (int tile = 4 * chunk; tile < 4 * chunk + 4; tile++)
                of_chunk += P[tile][2 * half] + P[tile][2 * half + 1];
            sum[half] += of_chunk * undone;
        }
    }
}

/* ---- O in fp32: 16 bytes of each lane behind one another ---- */

/* What the warp has there, plus O; the first time, O. */
template <fp8_config cfg>
__device__ __forceinline__ void flush_O(uint32_t O_place, const sums_of_V<cfg> &O, bool first) {
    const uint32_t own = O_place + threadIdx.x % 32 * 16;
#pragma unroll
    for (int tile = 0; tile < cfg.d_head / 8; tile++) {
        float kept[4] = {};
        if (!first) load_floats(own + 512 * tile, kept);
        for (int i = 0; i < 4; i++) kept[i] += O[tile][i];
        store_floats(own + 512 * tile, kept);
    }
}

template <fp8_config cfg>
__device__ __forceinline__ void scale_flushed(uint32_t O_place, const float (&factor)[2]) {
    const uint32_t own = O_place + threadIdx.x % 32 * 16;
#pragma unroll 1
    for (int tile = 0; tile < cfg.d_head / 8; tile++) {
        float kept[4];
        load_floats(own + 512 * tile, kept);
        for (int i = 0; i < 4; i++) kept[i] *= factor[i / 2];
        store_floats(own + 512 * tile, kept);
    }
}

template <fp8_config cfg>
__device__ __forceinline__ void add_flushed(sums_of_V<cfg> &O, uint32_t O_place) {
    const uint32_t own = O_place + threadIdx.x % 32 * 16;
#pragma unroll
    for (int tile = 0; tile < cfg.d_head / 8; tile++) {
        float kept[4];
        load_floats(own + 512 * tile, kept);
        for (int i = 0; i < 4; i++) O[tile][i] += kept[i];
    }
}

/* ---- results ---- */

template <fp8_config cfg>
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
    return cfg.dtype == FP16 ? cvt_f16x2(low, high) : cvt_bf16x2(low, high);
}

/* The copy engine has read what the warp stored before. */
__device__ __forceinline__ void wait_for_store() {
    if (threadIdx.x % 32 == 0) bulk_wait_group_read<0>();
    __syncwarp();
}

/* The warp's 16 rows: through its own place in shared memory, tiles of 64 elements, to the tensor. Of 16 columns lane
 * 4g + q has columns 4q ... 4q + 3 of rows g and g + 8: the even ones in the first of two tiles. Stores of two rows
 * meet in the banks: twice the least wavefronts, once in a Q block. */
template <fp8_config cfg>
__device__ __forceinline__ void store_O(const tensor_maps &maps, uint32_t O_place, const sums_of_V<cfg> &O,
                                        const float (&factor)[2], int first_row, int head, int sample) {
    const int lane = threadIdx.x % 32, q = lane % 4;
    for (int u = 0; u < cfg.d_head / 16; u++)
        for (int half = 0; half < 2; half++) {
            const float (&even)[4] = O[2 * u], (&odd)[4] = O[2 * u + 1];
            const int row = lane / 4 + 8 * half, chunk = 2 * u + q / 2;
            const uint32_t tile_row = O_place + chunk / 8 * 16 * TILE_ROW + row * TILE_ROW;
            store_pair(tile_row + (chunk % 8 ^ row % 8) * 16 + q % 2 * 8,
                       round_pair<cfg>(even[2 * half] * factor[half], odd[2 * half] * factor[half]),
                       round_pair<cfg>(even[2 * half + 1] * factor[half], odd[2 * half + 1] * factor[half]));
        }
    fence_proxy_async(); /* the copy engine sees what this thread has stored */
    __syncwarp();        /* all lanes have stored */
    if (lane == 0) {
        copy_smem_to_tensor(maps.O, O_place, first_row, head, sample);
        bulk_commit_group();
    }
}

/* The same without the copy engine: each lane writes what it has of its rows, in e4m3 after a division by the factor
 * of the head. Four lanes write 16 columns. */
template <fp8_config cfg>
__device__ __forceinline__ void store_own_rows(const serving_args &args, const sums_of_V<cfg> &O,
                                               const float (&factor)[2], int first_row, const served_place &here) {
    const int lane = threadIdx.x % 32, q = lane % 4;
    const float of_head = args.O_e4m3 && args.O_scales ? 1 / args.O_scales[here.head] : 1;
    for (int half = 0; half < 2; half++) {
        const int row = first_row + lane / 4 + 8 * half;
        if (row >= here.seq.seq_q) continue;
        const int64_t at = here.seq.Q_sample * args.O_strides.batch + here.head * args.O_strides.head +
                           (here.seq.first_q + row) * args.O_strides.seq + 4 * q;
        for (int u = 0; u < cfg.d_head / 16; u++) {
            const float (&even)[4] = O[2 * u], (&odd)[4] = O[2 * u + 1];
            const float x = even[2 * half] * factor[half], y = odd[2 * half] * factor[half],
                        z = even[2 * half + 1] * factor[half], w = odd[2 * half + 1] * factor[half];
            if (args.O_e4m3)
                *(uint32_t *)((uint8_t *)args.O + at + 16 * u) =
                    cvt_e4m3x4(x * of_head, y * of_head, z * of_head, w * of_head);
            else
                *(uint2 *)((uint16_t *)args.O + at + 16 * u) = {round_pair<cfg>(x, y), round_pair<cfg>(z, w)};
        }
    }
}

/* The sequence, or the arguments, of which rows are; the first row of log-sum-exp of a head. */
__device__ __forceinline__ int rows_of(const fp8_args &args, const Q_place &) {
    return args.seq_q;
}
__device__ __forceinline__ int rows_of(const serving_args &, const served_place &here) {
    return here.seq.seq_q;
}
__device__ __forceinline__ int64_t first_LSE(const fp8_args &args, const Q_place &here) {
    return ((int64_t)here.sample * args.heads + here.head) * args.seq_q;
}
__device__ __forceinline__ int64_t first_LSE(const serving_args &args, const served_place &here) {
    return ((int64_t)here.seq.Q_sample * args.heads + here.head) * rows_of_Q(args) + here.seq.first_q;
}

__device__ __forceinline__ void store_LSE(const auto &args, const row_state &row, int first_row, const auto &here) {
    const int lane = threadIdx.x % 32;
    float *const LSE = args.LSE + first_LSE(args, here) + first_row + lane / 4;
    if (lane % 4 == 0)
        for (int half = 0; half < 2; half++)
            if (first_row + lane / 4 + 8 * half < rows_of(args, here))
                LSE[8 * half] = 0.69314718f * (row.m[half] + lg2_approx(row.l[half]));
}

/* ---- a computing warpgroup: 64 queries of each Q block ---- */

__device__ __forceinline__ float factor_of(const float *factors, int head) {
    return factors ? factors[head] : 1;
}

/* Of scores, to exponents to base 2. */
__device__ __forceinline__ float find_exponent_scale(const fp8_args &args, const Q_place &here) {
    return args.softmax_scale * args.Q_descale * args.K_descale * 1.44269504f * factor_of(args.Q_scales, here.head) *
           factor_of(args.K_scales, here.KV_head);
}
__device__ __forceinline__ float find_exponent_scale(const serving_args &args, const served_place &here) {
    return args.softmax_scale * 1.44269504f * factor_of(args.Q_scales, here.head) *
           (args.scale_keys ? 1 : factor_of(args.K_scales, here.KV_head));
}

/* Of O, before it is divided by l. */
__device__ __forceinline__ float find_V_descale(const fp8_args &args, const Q_place &here) {
    return args.V_descale * factor_of(args.V_scales, here.KV_head);
}
__device__ __forceinline__ float find_V_descale(const serving_args &args, const served_place &here) {
    return args.scale_keys ? 1 : factor_of(args.V_scales, here.KV_head);
}

/* Blocks from the first one on of which no row of the warpgroup sees a key, if it sees others: they are skipped. */
template <fp8_config cfg>
__device__ __forceinline__ int count_skipped(const auto &rows, const auto &here, int group) {
    const int end = seen_keys(rows, here.row + GROUP_ROWS * (group + 1));
    return max(0, here.KV_blocks - count_blocks<cfg.B_c>(end));
}

/* Blocks from the first one on that take a running maximum: those that a row of the warpgroup does not see as a whole,
 * and the next. */
template <fp8_config cfg>
__device__ __forceinline__ int count_running(const auto &rows, int blocks, int first_row) {
    const int seen = (max(seen_keys(rows, first_row + 1), 0) + cfg.B_c - 1) / cfg.B_c; /* by the first row */
    return min(blocks, blocks - seen + 1);
}

/* The first block of a Q block: S to P, m and l. */
template <fp8_config cfg>
__device__ __forceinline__ void begin_rows(const auto &rows, scores<cfg> &S, row_state &row, int first_row,
                                           int first_key, float exponent_scale) {
    float factor[2];
    row.m[0] = row.m[1] = -INFINITY;
    mask_keys(rows, S, first_key, first_row);
    raise_m(S, row.l, row.m, factor, exponent_scale);
}

template <fp8_config cfg>
__device__ __forceinline__ void finish_rows(const args_for<cfg> &args, const tensor_maps &maps, uint32_t O_place,
                                            sums_of_V<cfg> &O, row_state &row, int first_row,
                                            const place_for<cfg> &here, bool flushed) {
    float factor[2];
    const float V_descale = find_V_descale(args, here);
    if (flushed) {
        add_flushed<cfg>(O, O_place);
        __syncwarp(); /* all lanes have read */
    } else {
        wait_for_store();
    }
    for (int half = 0; half < 2; half++) {
        row.l[half] += __shfl_xor_sync(0xffffffff, row.l[half], 1);
        row.l[half] += __shfl_xor_sync(0xffffffff, row.l[half], 2);
        factor[half] = row.l[half] == 0 ? 0 : V_descale / row.l[half];
    }
    if constexpr (cfg.serves) {
        if (args.O_e4m3 || first_row + 16 > here.seq.seq_q)
            store_own_rows<cfg>(args, O, factor, first_row, here);
        else
            store_O<cfg>(maps, O_place, O, factor, here.seq.first_q + first_row, here.head, here.seq.Q_sample);
    } else
        store_O<cfg>(maps, O_place, O, factor, first_row, here.head, here.sample);
    if (args.LSE) store_LSE(args, row, first_row, here);
}

/* Blocks that the warpgroup has no use for: once all of its warps have seen that one is there, it may go. */
template <int stages, int bytes>
__device__ __forceinline__ void skip_blocks(const ring<stages, bytes> &blocks, int n, int skipped) {
    for (int end = n + skipped; n < end; n++) {
        blocks.wait_until_full(n);
        bar_sync(threadIdx.x / WARPGROUP, WARPGROUP);
        if (threadIdx.x % WARPGROUP == 0) mbarrier_arrive(blocks.empty(n));
    }
}

/* Where each so many keys have factors: what scores are multiplied by without those of K, and factors of other heads
 * and sequences, before those of this one. */
template <bool serves>
struct factors_of_keys {
    float score_scale;
    int before;
};
template <>
struct factors_of_keys<false> {};

/* Of the computing warps. Where a kernel serves, whether rows are copied out by the copy engine depends on it: ptxas
 * then takes the code behind for divergent unless it knows that the number is the same in all lanes, and moves each
 * descriptor of the loop from a register of each lane to a uniform one. */
template <fp8_config cfg>
__device__ __forceinline__ int computing_warp() {
    const int warp = threadIdx.x / 32;
    return (cfg.serves ? warp_uniform(warp) : warp) - 4;
}

/* S, P and O are variables of the kernel's, so that they stay in registers. */
template <fp8_config cfg>
struct consumer {
    const args_for<cfg> &args;
    const tensor_maps &maps;
    const places<cfg> &at;
    scores<cfg> &S;
    weights<cfg> &P;
    sums_of_V<cfg> &O;
    row_state &row, &next_row;
    kept_for<cfg> &here;
    const int group = warp_uniform(threadIdx.x / WARPGROUP) - 1, warp = computing_warp<cfg>();
    const bool lead = threadIdx.x % WARPGROUP == 0;
    const uint32_t O_place = at.O + warp * places<cfg>::O_bytes;
    float exponent_scale;
    int n = 0;            /* number of the block whose S is computed */
    int turn = 0;         /* number of the Q block */
    int skipped = 0;      /* blocks of it that the warpgroup does not see */
    int added = 0;        /* blocks in O since it was 0 */
    bool flushed = false; /* O was added up in shared memory */
    [[no_unique_address]] factors_of_keys<cfg.serves> factors = {};

    __device__ __forceinline__ uint32_t Q_rows(int turn) const {
        return at.Q.stage(turn) + group * GROUP_ROWS * cfg.d_head;
    }

    __device__ __forceinline__ void start_next_S(int turn, int n) const {
        at.K.wait_until_full(n);
        start_S<cfg>(S, Q_rows(turn), at.K.stage(n));
    }
    __device__ __forceinline__ void release_K(int n) const {
        if (lead) mbarrier_arrive(at.K.empty(n));
    }

    /* O of a block, while S of another one is on its way. */
    __device__ __forceinline__ void start_next_O(int n) {
        if (cfg.flush_blocks > 0 && added == cfg.flush_blocks) {
            if (!flushed) wait_for_store();
            flush_O<cfg>(O_place, O, !flushed);
            flushed = true, added = 0;
        }
        at.Vt.wait_until_full(n);
        start_O<cfg>(O, P, at.Vt.stage(n), added > 0);
        added++;
    }
    __device__ __forceinline__ void finish_O(int n) const {
        wgmma_wait_group<0>(O);
        if (lead) mbarrier_arrive(at.Vt.empty(n));
    }

    /* What is asked which keys rows see. */
    __device__ __forceinline__ const auto &keys_of(const kept_for<cfg> &rows) const {
        if constexpr (cfg.serves)
            return rows;
        else
            return args;
    }
    __device__ __forceinline__ bool keys_have_factors() const {
        if constexpr (cfg.serves)
            return args.scale_keys != 0;
        else
            return false;
    }
    __device__ __forceinline__ void find_factors(int turn, const kept_for<cfg> &rows) {
        if constexpr (cfg.serves) {
            const served_place place = read_Q_block(at, turn);
            exponent_scale = find_exponent_scale(args, place);
            if (!keys_have_factors()) return;
            factors.before =
                (place.sample * args.KV_heads + place.KV_head) * ((args.seq_k + args.scale_keys - 1) / args.scale_keys);
            factors.score_scale = exponent_scale, exponent_scale = 1;
        } else
            exponent_scale = find_exponent_scale(args, rows);
    }

    /* Where keys have factors, S becomes exponents at once. */
    __device__ __forceinline__ void apply_factors(int first_key) const {
        if constexpr (cfg.serves)
            if (keys_have_factors()) scale_S<cfg>(args, S, factors.before, first_key, factors.score_scale);
    }

    /* Where keys have factors, l sums P without them, and not as it was rounded. */
    __device__ __forceinline__ void undo_factors(float (&sum)[2], int first_key) const {
        if constexpr (cfg.serves)
            if (keys_have_factors()) sum_without_factors<cfg>(args, sum, S, factors.before, first_key);
    }

    __device__ __forceinline__ void round(float (&sum)[2], int first_key) const {
        round_P<cfg>(P, S);
        if constexpr (cfg.rounded_sums) sum_rounded<cfg>(sum, P);
        undo_factors(sum, first_key);
    }

    /* Of the lane's rows those of the sequence. */
    __device__ __forceinline__ void keep_own(float (&of_rows)[2]) const {
        if constexpr (cfg.serves) {
            const int rows = here.seq_q - (here.row + 16 * warp + threadIdx.x % 32 / 4);
            if (rows <= 0) of_rows[0] = 0;
            if (rows <= 8) of_rows[1] = 0;
        }
    }
    __device__ __forceinline__ bool must_be_lowered(const float (&sum)[2]) const {
        float own[2] = {sum[0], sum[1]};
        keep_own(own);
        return may_be_too_large(own);
    }
    __device__ __forceinline__ void find_S_again(int first_key) const {
        const uint32_t rows = Q_rows(turn) + warp % 4 * 16 * row_bytes<cfg>;
        if constexpr (cfg.serves) {
            compute_S_again<cfg>(args, S, rows, first_key, read_Q_block(at, turn));
            apply_factors(first_key);
        } else
            compute_S_again<cfg>(args, S, rows, first_key, here);
    }

    /* The first block of all. */
    __device__ __forceinline__ void begin() {
        find_factors(0, here);
        n = skipped = count_skipped<cfg>(keys_of(here), here, group);
        at.Q.wait_until_full(0);
        skip_blocks(at.K, 0, skipped);
        start_next_S(0, n);
        wgmma_wait_group<0>(S);
        release_K(n);
        skip_blocks(at.Vt, 0, skipped);
        apply_factors((here.KV_blocks - 1 - skipped) * cfg.B_c);
        begin_rows<cfg>(keys_of(here), S, row, here.row + 16 * warp, (here.KV_blocks - 1 - skipped) * cfg.B_c,
                        exponent_scale);
        round(row.l, (here.KV_blocks - 1 - skipped) * cfg.B_c);
    }

    /* Block number i of a Q block, the first `running` of which take a running maximum. */
    __device__ __forceinline__ void step(int i, int running) {
        const int first_key = (here.KV_blocks - 1 - i) * cfg.B_c;
        float sum[2], factor[2];
        bool lowered = false;
        n++;
        start_next_S(turn, n);
        start_next_O(n - 1);
        wgmma_wait_group<1>(S);
        release_K(n);
        apply_factors(first_key);
        if (i < running) {
            mask_keys(keys_of(here), S, first_key, here.row + 16 * warp);
            raise_m(S, sum, row.m, factor, exponent_scale);
        } else {
            take_exponentials(S, sum, row.m, exponent_scale);
            if (!cfg.rounded_sums) lowered = must_be_lowered(sum);
        }
        finish_O(n - 1);
        if constexpr (cfg.rounded_sums) {
            round_P<cfg>(P, S);
            sum_rounded<cfg>(sum, P);
            if (i >= running) lowered = must_be_lowered(sum);
            if (!lowered) undo_factors(sum, first_key);
        }
        if (lowered)
            lower_P<cfg>(
                S, sum, row.m, factor, exponent_scale, [&](float (&of_rows)[2]) { keep_own(of_rows); },
                [&] { find_S_again(first_key); });
        if (lowered || i < running) scale_sums(factor);
        if (!cfg.rounded_sums || lowered) round(sum, first_key);
        for (int half = 0; half < 2; half++) row.l[half] += sum[half];
    }

    __device__ __forceinline__ void scale_sums(const float (&factor)[2]) {
        for (int half = 0; half < 2; half++) row.l[half] *= factor[half];
        scale_O<cfg>(O, factor);
        if (flushed) scale_flushed<cfg>(O_place, factor);
    }

    __device__ __forceinline__ void take_steps() {
        const int running = count_running<cfg>(keys_of(here), here.KV_blocks, here.row + GROUP_ROWS * group);
        added = 0, flushed = false;
#pragma unroll 1
        for (int i = skipped + 1; i < here.KV_blocks; i++) step(i, running);
        arrive_as_warp(at.Q.empty(turn));
    }

    /* The end of a Q block, and the first block of the next, where there is one. */
    __device__ __forceinline__ void step_across(const kept_for<cfg> &next) {
        if (next.row >= 0) {
            skipped = count_skipped<cfg>(keys_of(next), next, group);
            find_factors(turn + 1, next);
            at.Q.wait_until_full(turn + 1);
            skip_blocks(at.K, n + 1, skipped);
            start_next_S(turn + 1, n + 1 + skipped);
            start_next_O(n);
            wgmma_wait_group<1>(S);
            release_K(n + 1 + skipped);
            apply_factors((next.KV_blocks - 1 - skipped) * cfg.B_c);
            begin_rows<cfg>(keys_of(next), S, next_row, next.row + 16 * warp, (next.KV_blocks - 1 - skipped) * cfg.B_c,
                            exponent_scale);
            finish_O(n);
            skip_blocks(at.Vt, n + 1, skipped);
        } else {
            start_next_O(n);
            finish_O(n);
        }
        if constexpr (cfg.serves) {
            finish_rows<cfg>(args, maps, O_place, O, row, here.row + 16 * warp, read_Q_block(at, turn), flushed);
            arrive_as_warp(at.Q_blocks.empty(turn));
        } else
            finish_rows<cfg>(args, maps, O_place, O, row, here.row + 16 * warp, here, flushed);
    }

    __device__ __forceinline__ void take_next(const kept_for<cfg> &next) {
        row = next_row, here = next, n += 1 + skipped, turn++;
        round(row.l, (here.KV_blocks - 1 - skipped) * cfg.B_c);
    }
};

template <fp8_config cfg>
__device__ __forceinline__ void attend(const args_for<cfg> &args, const tensor_maps &maps, const places<cfg> &at) {
    float S[cfg.B_c / 8][4], O[cfg.d_head / 8][4] = {};
    uint32_t P[cfg.B_c / 32][4];
    row_state row, next_row;
    kept_for<cfg> here = keep_Q_block<cfg>(args, at, 0);
    if (here.row < 0) return;
    consumer<cfg> share{args, maps, at, S, P, O, row, next_row, here};
    share.begin();
#pragma unroll 1
    for (;;) {
        share.take_steps();
        const kept_for<cfg> next = keep_Q_block<cfg>(args, at, share.turn + 1);
        share.step_across(next);
        if (next.row < 0) break;
        share.take_next(next);
    }
    if (threadIdx.x % 32 == 0) bulk_wait_group_read<0>(); /* shared memory lives as long as it is read */
}

/* ---- the kernel: a row of CTAs, of 32 * (n_warps + 4) threads ---- */

template <fp8_config cfg>
__device__ __forceinline__ void bring_blocks(const args_for<cfg> &args, const tensor_maps &maps,
                                             const places<cfg> &at) {
    const int warp = warp_uniform(threadIdx.x / 32);
    if (warp > 0)
        transpose<cfg>(at, warp - 1);
    else if constexpr (cfg.serves)
        produce_for_sequences<cfg>(args, maps, at);
    else if (threadIdx.x == 0)
        produce<cfg>(args, maps, at);
}

/* The body of both kernels below. 128 registers a thread at the start: 4 * 128 are 32 and three times 160; with two
 * computing warpgroups 3 * 168 are 40 and twice 232. */
#define FL_ATTEND(cfg, args, maps)                                                                                     \
    check_config<cfg>();                                                                                               \
    extern __shared__ char smem_bytes[];                                                                               \
    const places<cfg> at(__cvta_generic_to_shared(smem_bytes));                                                        \
    init_mbarriers<cfg>(at);                                                                                           \
    const int group = warp_uniform(threadIdx.x / WARPGROUP);                                                           \
    if (group == 0) {                                                                                                  \
        setmaxnreg_dec<cfg.n_warps == 8 ? 40 : 32>();                                                                  \
        bring_blocks<cfg>(args, maps, at);                                                                             \
    } else {                                                                                                           \
        setmaxnreg_inc<cfg.n_warps == 8 ? 232 : 160>();                                                                \
        attend<cfg>(args, maps, at);                                                                                   \
    }

template <fp8_config cfg>
__global__ void __launch_bounds__(32 * (cfg.n_warps + 4), 1)
    flash_forward(const __grid_constant__ fp8_args args, const __grid_constant__ tensor_maps maps) {
    FL_ATTEND(cfg, args, maps)
}

/* A kernel that serves. */
template <fp8_config cfg>
__global__ void __launch_bounds__(32 * (cfg.n_warps + 4), 1)
    flash_forward(const __grid_constant__ serving_args args, const __grid_constant__ tensor_maps maps) {
    FL_ATTEND(cfg, args, maps)
}

#include "instances.cuh"
