/* slices.cuh - which CTA of mma_sync.cu computes which Q block, or which slice of one: the rows of one warp.
 *
 *     groups = groups_of<cfg>(args);                                      one thread, once
 *     find_place<cfg, false>(places.place[slot], args, groups, number);   one thread, for its CTA
 *     draw<cfg>(places, args, groups, turn + 1);
 *
 * A CTA's first Q block has the number of the CTA. It draws the others from a counter that all CTAs share: a CTA that
 * is free takes the next. Longest first, and sections of heads whose K and V stay in the L2 cache, are
 * FlashAttention-3's DynamicPersistentTileScheduler in idea, and so are its 32 MB.
 */
#ifndef FL_ATTENTION_SLICES_CUH
#define FL_ATTENTION_SLICES_CUH

#include "common/abi.h"
#include "common/attention_config.h"
#include "common/debug.cuh"
#include "common/ptx_sm80.cuh"

/* Quotient of numbers that are not negative: without signs it takes fewer instructions. */
__device__ __forceinline__ int divide(int number, int by) {
    return (uint32_t)number / (uint32_t)by;
}

/* ---- how a launch is shared out ---- */

/* `size` heads share a KV head. Where the queries of these fill fewer Q blocks together, `packed` is as many, and each
 * query has a row for each of them; else it is 1. `all_heads` counts packed heads once. Each of them has `Q_blocks`,
 * and behind them `behind` slices of a last, partly filled one. Of all Q blocks the first `whole` are not cut into
 * slices. The first `slicers` CTAs share all `slices`. With the causal mask the Q blocks of a section of heads come
 * before those of the next: `larger` sections have a head more than the others, which have `section`. */
struct head_groups {
    int size, packed, rows, all_heads, Q_blocks, behind, whole, slices, slicers, section, larger;
};
template <attention_config cfg>
__device__ __forceinline__ head_groups groups_of(const attention_args &args) {
    constexpr int n_warps = cfg.n_warps, Q_rows = cfg.B_r / n_warps;
    const auto blocks = [&](int heads) { return (args.seq_q * heads + cfg.B_r - 1) / cfg.B_r; };
    const int size = args.heads == args.KV_heads ? 1 : divide(args.heads, args.KV_heads);
    /* Not under the debug hooks: their records are of one head. */
    const int packed = !debug_dumps && blocks(size) < size * blocks(1) ? size : 1, rows = args.seq_q * packed;
    const int all_heads = (packed == 1 ? args.heads : args.KV_heads) * args.batch, ctas = gridDim.x;
    /* In the time of 3 KV blocks a slice reads as many as there are warps, and begins and ends in the same time again.
     * A few rows behind the last full Q block become slices, if these take less than 3/4 of a Q block's time. Q blocks
     * left over for a last turn become slices, if all CTAs together are ready with them in less than a Q block's time.
     */
    const int KV_blocks = (args.seq_k + cfg.B_c - 1) / cfg.B_c, of_slice = 3 * (KV_blocks + n_warps);
    const int few = (rows % cfg.B_r + Q_rows - 1) / Q_rows;
    const int behind = 4 * few * of_slice < 3 * n_warps * KV_blocks ? few : 0;
    const int Q_blocks = behind > 0 ? rows / cfg.B_r : blocks(packed), all = Q_blocks * all_heads;
    const int left = all - divide(all, ctas) * ctas, waves = divide(left * n_warps + ctas - 1, ctas);
    const int whole = !args.causal && waves * of_slice < n_warps * KV_blocks ? all - left : all;
    const int slices = (all - whole) * n_warps + behind * all_heads;
    /* CTAs without a Q block in the last turn take the slices, if they are ready with them in a Q block's time. */
    const int idle = whole < all || left == 0 || args.causal ? 0 : ctas - left;
    const int slicers = slices * of_slice < idle * n_warps * KV_blocks ? idle : ctas;
    /* FlashAttention-3's sections: 32 MB of K and V stay in L2. Alike, as a short last one leaves CTAs without work. */
    const int KV_heads = max(divide((8 << 20) / cfg.d_head, args.seq_k), 1);
    const int most = min(KV_heads * (packed == 1 ? size : 1), all_heads);
    const int sections = divide(all_heads + most / 2, most), section = divide(all_heads, sections);
    return {size,
            packed,
            rows,
            all_heads,
            Q_blocks,
            behind,
            whole,
            slices,
            slicers,
            section,
            all_heads - sections * section};
}

/* ---- rows, queries and keys ---- */

/* The query of a row; a row beyond the last is the last one. */
__device__ __forceinline__ int query_of(const head_groups &groups, int row) {
    const int there = min(row, groups.rows - 1);
    return groups.packed == 1 ? there : divide(there, groups.packed);
}

/* Keys that a query sees, none if negative: all, or those up to the key that is as far from the last as the query. */
__device__ __forceinline__ int keys_of(const attention_args &args, int query) {
    return args.seq_k + (args.causal ? min(query + 1 - args.seq_q, 0) : 0);
}

/* First row of a warp in its Q block. With the causal mask a warp sees the more keys the later its rows are. Warps w
 * and w + 4 share a scheduler: the rows of one are as far from the first as those of the other from the last. */
template <attention_config cfg>
__device__ __forceinline__ int rows_of_warp(int warp) {
    return (warp < 4 ? warp : cfg.n_warps + 3 - warp) * (cfg.B_r / cfg.n_warps);
}

/* ---- where the Q block or slice of a number lies ---- */

/* Where a Q block or slice lies: the first elements of its head in each tensor and the first LSE; the first row, or -1
 * where a CTA has no more Q blocks; the number of KV blocks; how many Q blocks come before it in memory, for the debug
 * hooks. */
struct Q_place {
    int64_t Q, K, V, O, LSE;
    int first, KV_blocks, number;
};

/* What the warps of a CTA share: the place of its Q block or slice number `turn` in slot turn % 4, and the
 * mbarrier of the slot, at which the thread that found the place arrives. A warp may be behind that thread by two
 * turns, but not by more. And the queries of each warp's rows, of this turn and the next, and the number of the slice.
 */
constexpr int place_slots = 4;
template <attention_config cfg>
struct cta_places {
    Q_place place[place_slots];
    uint64_t found[place_slots];
    int queries[cfg.n_warps][2][cfg.B_r / cfg.n_warps];
    int slice;
};

/* Find the place of a Q block or slice. One thread does it for the CTA: integer divisions take tens of instructions
 * each.
 *
 * Q blocks are numbered along seq, then heads, then batch. Causal ones are numbered along the heads of a section, then
 * from the end of seq to its beginning: those with the most keys come first. */
template <attention_config cfg, bool slice>
__device__ __forceinline__ void find_place(Q_place &place, const attention_args &args, const head_groups &groups,
                                           int number) {
    constexpr int Q_rows = cfg.B_r / cfg.n_warps;
    int heads_before, position, part = 0;
    const int left = (groups.Q_blocks * groups.all_heads - groups.whole) * cfg.n_warps; /* slices of whole Q blocks */
    if (slice && number >= left) {
        heads_before = divide(number - left, groups.behind);
        position = groups.Q_blocks, part = number - left - heads_before * groups.behind;
    } else if (!slice && args.causal) {
        const int before = groups.larger * (groups.section + 1); /* heads of the larger sections */
        const bool larger = number < before * groups.Q_blocks;
        const int heads = groups.section + larger, from = larger ? 0 : before;
        const int behind = number - from * groups.Q_blocks, section = divide(behind, heads * groups.Q_blocks);
        const int in_section = behind - section * heads * groups.Q_blocks, quotient = divide(in_section, heads);
        heads_before = from + section * heads + in_section - quotient * heads;
        position = groups.Q_blocks - 1 - quotient;
    } else {
        const int block = slice ? groups.whole + number / cfg.n_warps : number;
        heads_before = divide(block, groups.Q_blocks);
        position = block - heads_before * groups.Q_blocks, part = slice ? number % cfg.n_warps : 0;
    }
    const int first = position * cfg.B_r + part * Q_rows, end = min(first + (slice ? Q_rows : cfg.B_r), groups.rows);
    place.number = heads_before * (groups.Q_blocks + (groups.behind > 0)) + position;
    heads_before *= groups.packed;
    const int batch = divide(heads_before, args.heads), head = heads_before - batch * args.heads;
    const auto first_of = [&](const tensor_strides &strides, int head) {
        return batch * strides.batch + head * strides.head;
    };
    const int KV_head = groups.size == 1 ? head : divide(head, groups.size);
    place.Q = first_of(args.Q_strides, head), place.O = first_of(args.O_strides, head);
    place.K = first_of(args.K_strides, KV_head), place.V = first_of(args.V_strides, KV_head);
    place.LSE = (int64_t)heads_before * args.seq_q;
    place.first = first;
    place.KV_blocks = first < end ? (keys_of(args, query_of(groups, end - 1)) + cfg.B_c - 1) / cfg.B_c : 0;
}

/* Draw the next Q block of the CTA. As many numbers are drawn as there are Q blocks; who draws the last sets the
 * counter to 0 again. */
template <attention_config cfg>
__device__ __forceinline__ void draw(cta_places<cfg> &places, const attention_args &args, const head_groups &groups,
                                     uint32_t turn) {
    const int drawn = atomicAdd(args.tickets, 1), slot = turn % place_slots, number = gridDim.x + drawn;
    if (drawn == groups.whole - 1) atomicExch(args.tickets, 0);
    places.place[slot].first = -1;
    if (number < groups.whole) find_place<cfg, false>(places.place[slot], args, groups, number);
    mbarrier_arrive(__cvta_generic_to_shared(&places.found[slot]));
}

#endif
