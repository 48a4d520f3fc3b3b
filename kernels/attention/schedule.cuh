/* schedule.cuh - dynamic tile scheduler: assigns Q blocks to persistent CTAs.
 *
 *     schedule<cfg>(args, queue, fetch);                     scheduler thread: publishes the CTA's Q blocks, one by one
 *     queue.wait_until_full(turn);
 *     const work_tile first = read_tile(queue, turn);        producer and consumers: the CTA's Q block number `turn`
 *
 * CTA i starts with Q block i. The scheduler fetches every further Q block from a counter in global memory that all
 * CTAs share, so a CTA gets new work as soon as it is free. With a causal mask the longest Q blocks come first, and the
 * heads are processed in sections whose K and V, about 32 MB, fit in the L2 cache. Both ideas and the 32 MB come from
 * FlashAttention-3's DynamicPersistentTileScheduler.
 */
#ifndef FL_ATTENTION_SCHEDULE_CUH
#define FL_ATTENTION_SCHEDULE_CUH

#include "common/abi.h"
#include "common/attention_config.h"
#include "kernels/attention/heads.cuh"
#include "kernels/attention/lengths.cuh"
#include "kernels/attention/mask.cuh"
#include "kernels/attention/ring.cuh"

#include <type_traits>

/* A Q block: its first row, head and batch entry, its head of K and V, and the number of KV blocks that its rows attend
 * to. `row` is -1 if no work is left. */
struct work_tile {
    int row, head, sample, KV_blocks, KV_head;
};

/* A Q block of a varlen batch: adds its sequence and the first KV block that its rows attend to. */
struct varlen_tile : work_tile {
    int first_block;
    sequence seq;
};

/* A Q block with a part of its keys: several CTAs share them out (key_parts.cuh). */
struct part_tile : varlen_tile {
    int part, parts;
};

/* A Q block that packs the rows of several heads: `head` is the first of them, and rows count the rows of all. */
struct packed_tile : varlen_tile {
    head_packing packing;
};

__device__ __forceinline__ one_head packing_of(const work_tile &) {
    return {};
}
__device__ __forceinline__ head_packing packing_of(const packed_tile &tile) {
    return tile.packing;
}

/* True if a Q block may pack the queries of several heads. With mma_sync threads copy each row of Q, from any head. */
template <auto cfg>
constexpr bool packs_heads = [] {
    if constexpr (requires { cfg.packs; }) return cfg.packs || cfg.instruction == MMA_SYNC;
    return false;
}();

/* CTAs of a cluster, which share Q blocks. */
template <auto cfg>
constexpr int cluster_ctas = [] {
    if constexpr (requires { cfg.d_head_v; }) return attention_cluster(&cfg);
    return 1;
}();

/* True if several CTAs may share out the keys of a Q block. */
template <auto cfg>
constexpr bool splits_keys = [] {
    if constexpr (requires { cfg.extended; }) return cfg.extended && !cfg.biased && cfg.instruction == WGMMA;
    return false;
}();

/* Slots in the queue of Q blocks: one for the consumers' block, one for the producer's, one for the next, and a fourth
 * to make the count a power of two. */
constexpr int queue_slots = 4;
template <auto cfg>
using tile_queue = ring<queue_slots, cfg.serves ? 64 : 32>;

/* Number of KV blocks that remain to be copied when the CTA fetches its next Q block. A larger number would assign Q
 * blocks before it is known which CTA will be free first; a smaller one would make the producer wait for the number. */
constexpr int blocks_ahead = 4;

/* Q blocks along seq_q; the last may be partly filled. */
template <auto cfg>
__device__ __forceinline__ int rows_of_Q_blocks(int seq_q) {
    return (seq_q + cfg.B_r - 1) / cfg.B_r;
}

/* Number of sections into which a masked launch divides its KV heads. All CTAs work on one section at a time. Its K and
 * V take about 32 MB, so only the first reader of a block waits for memory and the others hit in L2. Each section has
 * several Q blocks per CTA and ends with the shortest ones, so that all CTAs finish at about the same time. */
template <auto cfg>
__device__ __forceinline__ int count_sections(int rows, int seq_k, int KV_heads, int group) {
    constexpr int wanted_bytes = 32 << 20;
    const int of_KV_head = min(rows, 4) * group;
    const int wanted = (gridDim.x + of_KV_head - 1) / of_KV_head;
    const int in_section = min(wanted, max(1, wanted_bytes / (4 * cfg.d_head) / seq_k));
    return max(1, (KV_heads + in_section / 2) / in_section);
}

/* A head, and the number of Q blocks between one of its Q blocks and its last. */
struct numbered_block {
    int head, behind;
};

/* The order of the Q blocks of a launch, or of a sequence. The scheduler computes it once, because its divisions take
 * as long as the consumers need for a KV block.
 *
 * Without a mask, numbers run along a head and then across heads, so that CTAs with neighboring numbers read the same K
 * and V at the same time. With a mask, neighbors in a head attend to different numbers of keys. Numbers then run across
 * the heads of a section, from the last (longest) Q block of each head to the first, and then to the next section.
 * Sections differ by at most one KV head. */
struct block_order {
    uint32_t rows;         /* Q blocks of a head */
    uint32_t section;      /* heads of a section that is not larger; 0 without sections */
    uint32_t group;        /* heads that share a KV head: a larger section has as many more */
    uint32_t larger_heads; /* heads of all larger sections */

    __device__ __forceinline__ numbered_block find(uint32_t number) const {
        if (section == 0) {
            const uint32_t head = number / rows;
            return {(int)head, (int)(number - head * rows)};
        }
        const bool larger = number < larger_heads * rows;
        const uint32_t heads = larger ? section + group : section, first_head = larger ? 0 : larger_heads;
        const uint32_t from_first = number - first_head * rows, sections_before = from_first / (heads * rows);
        const uint32_t in_section = from_first - sections_before * heads * rows, behind = in_section / heads;
        return {(int)(first_head + sections_before * heads + in_section - behind * heads), (int)behind};
    }
};

template <auto cfg>
__device__ __forceinline__ block_order find_order(int rows, int seq_k, int KV_heads, int group, bool by_sections) {
    if (!by_sections) return {(uint32_t)rows, 0, (uint32_t)group, 0};
    const int sections = count_sections<cfg>(rows, seq_k, KV_heads, group), fewest = KV_heads / sections;
    const int larger_heads = KV_heads % sections * (fewest + 1) * group;
    return {(uint32_t)rows, (uint32_t)(fewest * group), (uint32_t)group, (uint32_t)larger_heads};
}
template <auto cfg>
__device__ __forceinline__ block_order find_order(const attention_args &args) {
    return find_order<cfg>(rows_of_Q_blocks<cfg>(args.seq_q), args.seq_k, args.KV_heads * args.batch,
                           heads_in_group(args), args.causal);
}

template <auto cfg>
__device__ __forceinline__ work_tile find_Q_block(const attention_args &args, const block_order &order, int number) {
    const auto [all_heads, behind] = order.find(number);
    const uint32_t sample = (uint32_t)all_heads / args.heads, head = all_heads - sample * args.heads;
    const int row = ((int)order.rows - 1 - behind) * cfg.B_r, keys = seen_keys(args, row + cfg.B_r);
    return {row, (int)head, (int)sample, count_blocks<cfg.B_c>(keys), (int)(head / order.group)};
}

/* ---- the tile queue: the scheduler publishes Q blocks, the producer and the consumers' warps read them ---- */

/* Fetch the number of the CTA's next Q block. It is at least Q_blocks if no work is left. A launch makes exactly
 * Q_blocks fetches, and the last one resets the counter for the next launch. */
__device__ __forceinline__ int fetch_tile_number(const attention_args &args, int Q_blocks) {
    const int fetched = atomicAdd(args.tickets, 1);
    if (fetched == Q_blocks - 1) atomicExch(args.tickets, 0);
    return gridDim.x + fetched;
}

template <int bytes>
__device__ __forceinline__ void publish_tile(const ring<queue_slots, bytes> &queue, int turn, const work_tile &first) {
    queue.wait_until_empty(turn);
    store_shared_v4(queue.stage(turn), first.row, first.head, first.sample, first.KV_blocks);
    store_shared(queue.stage(turn) + 16, first.KV_head);
    mbarrier_arrive(queue.full(turn));
}

/* The slot belongs to the reader until it arrives at the empty mbarrier. */
template <int bytes>
__device__ __forceinline__ work_tile read_tile(const ring<queue_slots, bytes> &queue, int turn) {
    work_tile tile;
    load_shared_v4(queue.stage(turn), tile.row, tile.head, tile.sample, tile.KV_blocks);
    tile.KV_head = load_shared(queue.stage(turn) + 16);
    return tile;
}

/* Publish this CTA's Q blocks. The scheduler fetches a number each time the producer arrives at `fetch`. */
template <auto cfg>
__device__ __forceinline__ void schedule(const attention_args &args, const tile_queue<cfg> &queue, uint32_t fetch) {
    const block_order order = find_order<cfg>(args);
    const int Q_blocks = order.rows * args.heads * args.batch;
    for (int turn = 0;; turn++) {
        int number = blockIdx.x;
        if (turn > 0) {
            wait_for_phase(fetch, turn - 1);
            number = fetch_tile_number(args, Q_blocks);
        }
        const work_tile first = number < Q_blocks ? find_Q_block<cfg>(args, order, number) : work_tile{-1, 0, 0, 0, 0};
        publish_tile(queue, turn, first);
        if (first.row < 0) break;
    }
}

/* ---- varlen batches, whose lengths only the device knows: an entire warp is the scheduler ---- */

template <int bytes>
__device__ __forceinline__ void publish_tile(const ring<queue_slots, bytes> &queue, int turn,
                                             const varlen_tile &first) {
    const sequence &seq = first.seq;
    queue.wait_until_empty(turn);
    store_shared_v4(queue.stage(turn), first.row, first.head, first.sample, first.KV_blocks);
    store_shared_v4(queue.stage(turn) + 16, first.KV_head, first.first_block, seq.seq_q, seq.seq_k);
    store_shared_v4(queue.stage(turn) + 32, seq.first_q, seq.first_k, seq.Q_sample, seq.KV_sample);
    mbarrier_arrive(queue.full(turn));
}

template <int bytes>
__device__ __forceinline__ void publish_tile(const ring<queue_slots, bytes> &queue, int turn,
                                             const packed_tile &first) {
    queue.wait_until_empty(turn);
    store_shared_v4(queue.stage(turn) + 48, first.packing.shift, first.packing.heads, 0, 0);
    publish_tile(queue, turn, (const varlen_tile &)first);
}

template <int bytes>
__device__ __forceinline__ void publish_tile(const ring<queue_slots, bytes> &queue, int turn, const part_tile &first) {
    queue.wait_until_empty(turn);
    store_shared_v4(queue.stage(turn) + 48, first.part, first.parts, 0, 0);
    publish_tile(queue, turn, (const varlen_tile &)first);
}

template <int bytes>
__device__ __forceinline__ varlen_tile read_varlen_tile(const ring<queue_slots, bytes> &queue, int turn) {
    varlen_tile tile;
    sequence &seq = tile.seq;
    load_shared_v4(queue.stage(turn), tile.row, tile.head, tile.sample, tile.KV_blocks);
    load_shared_v4(queue.stage(turn) + 16, tile.KV_head, tile.first_block, seq.seq_q, seq.seq_k);
    load_shared_v4(queue.stage(turn) + 32, seq.first_q, seq.first_k, seq.Q_sample, seq.KV_sample);
    return tile;
}

template <int bytes>
__device__ __forceinline__ packed_tile read_packed_tile(const ring<queue_slots, bytes> &queue, int turn) {
    packed_tile tile = {read_varlen_tile(queue, turn)};
    int unused;
    load_shared_v4(queue.stage(turn) + 48, tile.packing.shift, tile.packing.heads, unused, unused);
    return tile;
}

template <int bytes>
__device__ __forceinline__ part_tile read_part_tile(const ring<queue_slots, bytes> &queue, int turn) {
    part_tile tile = {read_varlen_tile(queue, turn)};
    int unused[2];
    load_shared_v4(queue.stage(turn) + 48, tile.part, tile.parts, unused[0], unused[1]);
    return tile;
}

/* The type that the scheduler publishes. */
template <auto cfg>
using tile_of_sequence =
    std::conditional_t<packs_heads<cfg>, packed_tile, std::conditional_t<splits_keys<cfg>, part_tile, varlen_tile>>;

/* Parts into which the keys of each Q block of a sequence are split, of args.split_keys keys each. The last part has
 * the rest, so a Q block must have as many blocks as the one with the fewest: the first has the first end of its keys,
 * and the last the last beginning. */
template <auto cfg>
__device__ __forceinline__ int count_key_parts(const serving_args &args, const sequence &seq) {
    if (args.split_keys == 0) return 1;
    const key_range range = find_key_range(args, seq.seq_q, seq.seq_k);
    const int last_row = (rows_of_Q_blocks<cfg>(seq.seq_q) - 1) * cfg.B_r, part_blocks = args.split_keys / cfg.B_c;
    const int blocks = count_blocks<cfg.B_c>(seen_keys(range, cfg.B_r)) - first_seen<cfg.B_c>(range, last_row);
    return max(1, (blocks + part_blocks - 1) / part_blocks);
}

/* Q blocks of a sequence, each as often as there are parts of its keys. */
template <auto cfg>
__device__ __forceinline__ int count_Q_blocks(const serving_args &args, const sequence &seq) {
    const int seq_q = seq.seq_q;
    if constexpr (splits_keys<cfg>) return rows_of_Q_blocks<cfg>(seq_q) * args.heads * count_key_parts<cfg>(args, seq);
    if constexpr (packs_heads<cfg>) {
        const head_packing packing = find_packing<cfg.B_r>(args, seq_q);
        if (packing.shift) return rows_of_Q_blocks<cfg>(seq_q << packing.shift) * args.KV_heads;
    }
    return rows_of_Q_blocks<cfg>(seq_q) * args.heads;
}

/* Q blocks are numbered along the sequences. The numbers that a CTA fetches ascend, so a warp walks through the
 * sequences once, one per lane at a time. */
template <auto cfg>
struct sequence_walk {
    const serving_args &args;
    const int lane = threadIdx.x % 32;
    int first = 0;  /* the sequence of lane 0 */
    int begin, end; /* the numbers of the Q blocks of the lane's sequence */

    __device__ __forceinline__ void read(int before) {
        const int sample = first + lane;
        int blocks = 0;
        if (sample < args.batch) blocks = count_Q_blocks<cfg>(args, find_sequence(args, sample));
        end = blocks;
        for (int distance = 1; distance < 32; distance *= 2) {
            const int others = __shfl_up_sync(0xffffffff, end, distance);
            if (lane >= distance) end += others;
        }
        end += before, begin = end - blocks;
    }

    /* Return the lane whose sequence has the Q block, or -1 past the last one; then all_blocks() counts the blocks of
     * all sequences. */
    __device__ __forceinline__ int find(int number) {
        for (;; first += 32, read(all_blocks())) {
            const unsigned later = __ballot_sync(0xffffffff, number < end);
            if (later) return __ffs(later) - 1;
            if (first + 32 >= args.batch) return -1;
        }
    }
    __device__ __forceinline__ int all_blocks() const { return __shfl_sync(0xffffffff, end, 31); }
};

template <auto cfg>
__device__ __forceinline__ varlen_tile find_Q_block(const serving_args &args, const sequence &seq, int sample,
                                                    int number) {
    const key_range range = find_key_range(args, seq.seq_q, seq.seq_k);
    const int rows = rows_of_Q_blocks<cfg>(seq.seq_q), group = heads_in_group(args);
    const bool by_sections = args.causal || args.window_right >= 0;
    const block_order order = find_order<cfg>(rows, max(1, seq.seq_k), args.KV_heads, group, by_sections);
    const auto [head, behind] = order.find(number);
    const int row = (rows - 1 - behind) * cfg.B_r, blocks = count_blocks<cfg.B_c>(seen_keys(range, row + cfg.B_r));
    return {{row, head, sample, blocks, head / group}, first_seen<cfg.B_c>(range, row), seq};
}

template <auto cfg>
__device__ __forceinline__ varlen_tile find_Q_block(const serving_args &args, int sample, int number) {
    return find_Q_block<cfg>(args, find_sequence(args, sample), sample, number);
}

/* Parts of one Q block have neighboring numbers. */
template <auto cfg>
    requires splits_keys<cfg>
__device__ __forceinline__ part_tile find_Q_block(const serving_args &args, int sample, int number) {
    const sequence seq = find_sequence(args, sample);
    const int parts = count_key_parts<cfg>(args, seq), part = number % parts, part_blocks = args.split_keys / cfg.B_c;
    part_tile tile = {find_Q_block<cfg>(args, seq, sample, number / parts), part, parts};
    tile.first_block += part * part_blocks;
    if (part < parts - 1) tile.KV_blocks = tile.first_block + part_blocks;
    return tile;
}

/* Walk along sequences with packed GQA rows: a group counts as one head. */
template <auto cfg>
    requires packs_heads<cfg>
__device__ __forceinline__ packed_tile find_Q_block(const serving_args &args, int sample, int number) {
    const sequence seq = find_sequence(args, sample);
    const key_range range = find_key_range(args, seq.seq_q, seq.seq_k);
    const head_packing packing = find_packing<cfg.B_r>(args, seq.seq_q);
    const int rows = rows_of_Q_blocks<cfg>(seq.seq_q << packing.shift), group = heads_in_group(args) / packing.heads;
    const bool by_sections = args.causal || args.window_right >= 0;
    const block_order order = find_order<cfg>(rows, max(1, seq.seq_k), args.KV_heads, group, by_sections);
    const auto [head, behind] = order.find(number);
    const int row = (rows - 1 - behind) * cfg.B_r, end = packing.query(row + cfg.B_r - 1) + 1;
    const int blocks = count_blocks<cfg.B_c>(seen_keys(range, end)), first = packing.query(row);
    return {{{row, head * packing.heads, sample, blocks, head / group}, first_seen<cfg.B_c>(range, first), seq},
            packing};
}

/* Fetch a number for a turn after the first. In a cluster the first CTA fetches it and tells the other one, by a slot
 * of 16 bytes with an mbarrier. The consumers of both add up each S together, so four slots suffice. */
template <auto cfg>
__device__ __forceinline__ int fetch_for_cluster(const serving_args &args, int turn, uint32_t told) {
    if (cluster_ctas<cfg> == 1) return atomicAdd(args.tickets, 1);
    const uint32_t slot = told + 16 * ((turn - 1) % queue_slots), landed = slot + 8;
    if (cluster_rank() == 0) {
        const int fetched = atomicAdd(args.tickets, 1);
        store_async(address_in_cluster(slot, 1), address_in_cluster(landed, 1), fetched);
        return fetched;
    }
    mbarrier_arrive_expect_tx(landed, 4);
    wait_for_phase(landed, (turn - 1) / queue_slots);
    return load_shared(slot);
}

/* Publish the Q blocks of a varlen batch. A launch makes as many fetches as all sequences have Q blocks; the CTA that
 * makes the last has walked through all sequences. narrow(tile) may leave KV blocks at both ends out.
 */
template <auto cfg>
__device__ __forceinline__ void schedule_sequences(const serving_args &args, const tile_queue<cfg> &queue,
                                                   uint32_t fetch, const auto &narrow, uint32_t told = 0) {
    sequence_walk<cfg> walk{args};
    walk.read(0);
    for (int turn = 0;; turn++) {
        int fetched = -1;
        if (turn > 0) {
            wait_for_phase(fetch, turn - 1);
            if (walk.lane == 0) fetched = fetch_for_cluster<cfg>(args, turn, told);
            fetched = __shfl_sync(0xffffffff, fetched, 0);
        }
        const int number = (turn > 0 ? gridDim.x : blockIdx.x) / cluster_ctas<cfg> + (turn > 0 ? fetched : 0);
        const int found = walk.find(number);
        if (found < 0) {
            const bool last = fetched >= 0 && fetched == walk.all_blocks() - 1;
            if (walk.lane == 0 && last && (cluster_ctas<cfg> == 1 || cluster_rank() == 0)) atomicExch(args.tickets, 0);
            if (walk.lane == 0) publish_tile(queue, turn, tile_of_sequence<cfg>{{-1}});
            break;
        }
        const int begin = __shfl_sync(0xffffffff, walk.begin, found);
        tile_of_sequence<cfg> first = find_Q_block<cfg>(args, walk.first + found, number - begin);
        narrow(first);
        if (walk.lane == 0) publish_tile(queue, turn, first);
    }
}

#endif
