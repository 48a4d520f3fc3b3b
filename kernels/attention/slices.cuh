/* slices.cuh - assigns the Q blocks of mma_sync.cu, and slices of Q blocks (the rows of one warp), to CTAs.
 *
 *     groups = groups_of<cfg>(args);                                      one thread, once
 *     find_tile<cfg, false>(tiles.tile[slot], args, groups, number);   one thread, for its CTA
 *     fetch<cfg>(tiles, args, groups, turn + 1);
 *
 * CTA i starts with Q block i and fetches every further one from a counter that all CTAs share. Longest Q blocks first,
 * and sections of heads whose K and V, about 32 MB, stay in the L2 cache, are ideas of FlashAttention-3's
 * DynamicPersistentTileScheduler.
 *
 * A varlen batch has no slices. A warp finds each of its Q blocks by schedule.cuh's walk along the sequences.
 */
#ifndef FL_ATTENTION_SLICES_CUH
#define FL_ATTENTION_SLICES_CUH

#include "common/abi.h"
#include "common/attention_config.h"
#include "common/debug.cuh"
#include "common/ptx_sm80.cuh"
#include "kernels/attention/schedule.cuh"

/* Quotient of two nonnegative numbers; an unsigned division takes fewer instructions. */
__device__ __forceinline__ int divide(int number, int by) {
    return (uint32_t)number / (uint32_t)by;
}

/* ---- how a launch is divided ---- */

/* `size` heads share a KV head. If their queries fill fewer Q blocks together, `packed` is `size` and each query has a
 * row for each head; otherwise `packed` is 1. `all_heads` counts packed heads once. Each has `Q_blocks` full blocks,
 * followed by `behind` slices of a partly filled one. The first `whole` Q blocks are not cut into slices. The first
 * `slicers` CTAs process all `slices`. With the causal mask the Q blocks of one section of heads come before those of
 * the next; `larger` sections have `section` + 1 heads, the others `section`. */
struct head_groups {
    int size, packed, rows, all_heads, Q_blocks, behind, whole, slices, slicers, section, larger;
};
template <attention_config cfg>
__device__ __forceinline__ head_groups groups_of(const attention_args &args) {
    constexpr int n_warps = cfg.n_warps, Q_rows = cfg.B_r / n_warps;
    const auto blocks = [&](int heads) { return (args.seq_q * heads + cfg.B_r - 1) / cfg.B_r; };
    const int size = args.heads == args.KV_heads ? 1 : divide(args.heads, args.KV_heads);
    /* Debug hooks exclude this, because their records describe one head. */
    const int packed = !debug_dumps && blocks(size) < size * blocks(1) ? size : 1, rows = args.seq_q * packed;
    const int all_heads = (packed == 1 ? args.heads : args.KV_heads) * args.batch, ctas = gridDim.x;
    /* In the time of 3 KV blocks a slice reads one for each warp; starting and finishing it takes the same time again.
     * The rows after the last full Q block become slices if these take less than 3/4 of a Q block's time. Q blocks of a
     * last, partial wave become slices if all CTAs together finish them in less than a Q block's time.
     */
    const int KV_blocks = (args.seq_k + cfg.B_c - 1) / cfg.B_c, of_slice = 3 * (KV_blocks + n_warps);
    const int few = (rows % cfg.B_r + Q_rows - 1) / Q_rows;
    const int behind = 4 * few * of_slice < 3 * n_warps * KV_blocks ? few : 0;
    const int Q_blocks = behind > 0 ? rows / cfg.B_r : blocks(packed), all = Q_blocks * all_heads;
    const int left = all - divide(all, ctas) * ctas, waves = divide(left * n_warps + ctas - 1, ctas);
    const int whole = !args.causal && waves * of_slice < n_warps * KV_blocks ? all - left : all;
    const int slices = (all - whole) * n_warps + behind * all_heads;
    /* CTAs without a Q block in the last wave take the slices, if they finish them in a Q block's time. */
    const int idle = whole < all || left == 0 || args.causal ? 0 : ctas - left;
    const int slicers = slices * of_slice < idle * n_warps * KV_blocks ? idle : ctas;
    /* FlashAttention-3's sections: 32 MB of K and V stay in L2. All have about the same size, because a short last one
     * would leave CTAs without work. */
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

/* Number of keys that a query attends to, none if negative. With the causal mask the last is as far from the last key
 * as the query is from the last query. */
__device__ __forceinline__ int keys_of(const attention_args &args, int query) {
    return args.seq_k + (args.causal ? min(query + 1 - args.seq_q, 0) : 0);
}

/* Warps with rows of their own. With dv the other ones have the same rows and other columns of O. */
template <attention_config cfg>
constexpr int row_warps = cfg.n_warps / attention_V_parts(&cfg);
template <attention_config cfg>
__device__ __forceinline__ int row_warp_of(int warp) {
    return row_warps<cfg> < cfg.n_warps ? warp % row_warps<cfg> : warp;
}

/* First row of a warp in its Q block. With the causal mask later rows attend to more keys. Warps w and w + 4 share a
 * scheduler, so they get rows from opposite ends of the block.
 */
template <attention_config cfg>
__device__ __forceinline__ int rows_of_warp(int warp) {
    if constexpr (row_warps<cfg> < cfg.n_warps) return row_warp_of<cfg>(warp) * (cfg.B_r / row_warps<cfg>);
    return (warp < 4 ? warp : cfg.n_warps + 3 - warp) * (cfg.B_r / cfg.n_warps);
}

/* ---- from the number of a Q block or slice to its address ---- */

/* A Q block or slice: the offsets of its head in each tensor and in LSE, its first row (-1 if no work is left), its
 * number of KV blocks, and the number of Q blocks before it in memory, for the debug hooks. */
struct located_tile {
    int64_t Q, K, V, O, LSE;
    int first, KV_blocks, number;
};

/* A Q block of a varlen batch. Its keys are counted from the first one of the first KV block that its rows attend to,
 * which is key `first_key` of the sequence, and so are the range's. A window hides the first `hidden` of them from all
 * rows; their pages may have been freed. */
struct located_varlen_tile : located_tile {
    key_range range;
    int first_key, hidden;
    int rows, sample, head; /* of the sequence, its number, and the first of the heads whose rows the block packs */
    int shift, heads;       /* a head_packing */
};

/* A Q block or slice with its addresses, and where its CTA is in the walk along the sequences. */
template <bool serves>
struct walk_position {};
template <>
struct walk_position<true> {
    int first, begin[32], end[32]; /* as in sequence_walk, for each lane */
};
template <attention_config cfg>
using tile_with_address = std::conditional_t<cfg.serves, located_varlen_tile, located_tile>;

/* State that the warps of a CTA share: the Q block or slice number `turn` in slot turn % 4, and the slot's mbarrier, at
 * which the thread that found it arrives. A warp may be at most two turns behind that thread. It also holds the queries
 * of each warp's rows, for this turn and the next, and the number of the slice.
 */
template <attention_config cfg>
struct cta_tiles {
    tile_with_address<cfg> tile[queue_slots];
    uint64_t found[queue_slots];
    int queries[cfg.n_warps][2][cfg.B_r / row_warps<cfg>];
    int slice;
    walk_position<cfg.serves> walk;
};

/* Find a Q block or slice. One thread does this for the CTA, because integer divisions take tens of instructions each.
 *
 * Q blocks are numbered along seq, then heads, then batch. With the causal mask they are numbered along the heads of a
 * section, then from the end of seq to its beginning, so those with the most keys come first. */
template <attention_config cfg, bool slice>
__device__ __forceinline__ void find_tile(located_tile &tile, const attention_args &args, const head_groups &groups,
                                          int number) {
    constexpr int Q_rows = cfg.B_r / cfg.n_warps;
    int heads_before, position, part = 0;
    const int left = (groups.Q_blocks * groups.all_heads - groups.whole) * cfg.n_warps; /* slices of full Q blocks */
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
    tile.number = heads_before * (groups.Q_blocks + (groups.behind > 0)) + position;
    heads_before *= groups.packed;
    const int batch = divide(heads_before, args.heads), head = heads_before - batch * args.heads;
    const auto first_of = [&](const tensor_strides &strides, int head) {
        return batch * strides.batch + head * strides.head;
    };
    const int KV_head = groups.size == 1 ? head : divide(head, groups.size);
    tile.Q = first_of(args.Q_strides, head), tile.O = first_of(args.O_strides, head);
    tile.K = first_of(args.K_strides, KV_head), tile.V = first_of(args.V_strides, KV_head);
    tile.LSE = (int64_t)heads_before * args.seq_q;
    tile.first = first;
    tile.KV_blocks = first < end ? (keys_of(args, query_of(groups, end - 1)) + cfg.B_c - 1) / cfg.B_c : 0;
}

/* Fetch the next Q block of the CTA. A launch makes as many fetches as there are Q blocks, and the last one resets the
 * counter. */
template <attention_config cfg>
__device__ __forceinline__ void fetch(cta_tiles<cfg> &tiles, const attention_args &args, const head_groups &groups,
                                      uint32_t turn) {
    const int fetched = atomicAdd(args.tickets, 1), slot = turn % queue_slots, number = gridDim.x + fetched;
    if (fetched == groups.whole - 1) atomicExch(args.tickets, 0);
    tiles.tile[slot].first = -1;
    if (number < groups.whole) find_tile<cfg, false>(tiles.tile[slot], args, groups, number);
    mbarrier_arrive(__cvta_generic_to_shared(&tiles.found[slot]));
}

/* ---- varlen batches ---- */

template <attention_config cfg>
__device__ __forceinline__ void locate_tile(located_varlen_tile &tile, const serving_args &args,
                                            const packed_tile &from) {
    const sequence &seq = from.seq;
    const int first_key = from.first_block * cfg.B_c;
    const auto first_of = [](const tensor_strides &strides, int sample, int head, int row) {
        return sample * strides.batch + head * strides.head + row * strides.seq;
    };
    /* A page is a batch entry, and its rows are found for each block. */
    const auto first_KV_of = [&](const tensor_strides &strides) {
        return args.pages ? from.KV_head * strides.head
                          : first_of(strides, seq.KV_sample, from.KV_head, seq.first_k + first_key);
    };
    tile.Q = first_of(args.Q_strides, seq.Q_sample, from.head, seq.first_q);
    tile.O = first_of(args.O_strides, seq.Q_sample, from.head, seq.first_q);
    tile.K = first_KV_of(args.K_strides), tile.V = first_KV_of(args.V_strides);
    tile.LSE = ((int64_t)seq.Q_sample * args.heads + from.head) * rows_of_Q(args) + seq.first_q;
    tile.first = from.row, tile.KV_blocks = from.KV_blocks - from.first_block, tile.number = 0;
    const key_range range = find_key_range(args, seq.seq_q, seq.seq_k);
    tile.range = {range.seq_k - first_key, range.first - first_key, range.end - first_key};
    tile.first_key = first_key, tile.hidden = max(0, from.packing.query(from.row) + tile.range.first);
    tile.rows = seq.seq_q << from.packing.shift, tile.sample = from.sample, tile.head = from.head;
    tile.shift = from.packing.shift, tile.heads = from.packing.heads;
}

/* Find the CTA's Q block number `turn`. All lanes of a warp call this together. The other warps may wait for this one,
 * so the numbers of 32 sequences' Q blocks stay in shared memory until the walk moves on. As in schedule_sequences(), a
 * launch makes as many fetches as all sequences have Q blocks, and the last one resets the counter. */
template <attention_config cfg>
__device__ __forceinline__ void find_varlen_tile(cta_tiles<cfg> &tiles, const serving_args &args, uint32_t turn) {
    located_varlen_tile &tile = tiles.tile[turn % queue_slots];
    sequence_walk<cfg> walk{args};
    int fetched = -1;
    if (turn > 0 && walk.lane == 0) fetched = atomicAdd(args.tickets, 1);
    fetched = __shfl_sync(0xffffffff, fetched, 0);
    walk.first = tiles.walk.first, walk.begin = tiles.walk.begin[walk.lane], walk.end = tiles.walk.end[walk.lane];
    const int number = turn > 0 ? gridDim.x + fetched : blockIdx.x, found = walk.find(number);
    if (found >= 0) {
        const int begin = __shfl_sync(0xffffffff, walk.begin, found);
        const packed_tile from = find_Q_block<cfg>(args, walk.first + found, number - begin);
        if (walk.lane == 0) locate_tile<cfg>(tile, args, from);
    } else if (walk.all_blocks() - 1 == fetched && walk.lane == 0) {
        atomicExch(args.tickets, 0);
    }
    tiles.walk.begin[walk.lane] = walk.begin, tiles.walk.end[walk.lane] = walk.end;
    __syncwarp(); /* all lanes have read `first` and stored their sequences' numbers */
    if (walk.lane == 0) {
        if (found < 0) tile.first = -1;
        tiles.walk.first = walk.first;
        mbarrier_arrive(__cvta_generic_to_shared(&tiles.found[turn % queue_slots]));
    }
    __syncwarp();
}

#endif
