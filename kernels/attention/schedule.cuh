/* schedule.cuh - which CTA computes which Q block, and in which order.
 *
 *     schedule<cfg>(args, places, draw);                    the scheduler, a thread: posts place after place
 *     places.wait_until_full(turn);
 *     const Q_place first = read_place(places, turn);       whoever computes: Q block number `turn` of this CTA
 *
 * A CTA's first Q block has the number of the CTA. The scheduler draws the others from a counter that all CTAs share:
 * a CTA that is free takes the next. Longest first, and sections of heads whose K and V stay in the L2 cache, are
 * FlashAttention-3's DynamicPersistentTileScheduler in idea, and so are its 32 MB.
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

/* The place of a Q block: where it begins (`first` where it is used), the head of K and V that its head attends to, and
 * the number of KV blocks that its rows see. Behind the last Q block `row` is -1. */
struct Q_place {
    int row, head, sample, KV_blocks, KV_head;
};

/* With its sequence, and the first KV block that its rows see. */
struct served_place : Q_place {
    int first_block;
    sequence seq;
};

/* With whose rows it has: `head` is the first of their heads, and rows count all of them. */
struct packed_place : served_place {
    head_packing packing;
};

__device__ __forceinline__ one_head packing_of(const Q_place &) {
    return {};
}
__device__ __forceinline__ head_packing packing_of(const packed_place &place) {
    return place.packing;
}

/* Whether the Q blocks of a kernel may have the queries of several heads. */
template <auto cfg>
constexpr bool packs_heads = [] {
    if constexpr (requires { cfg.packs; }) return cfg.packs;
    return false;
}();

/* Places of Q blocks: of the consumers, of the producer and the next, and one more for a power of two. */
constexpr int place_slots = 4;
template <auto cfg>
using place_ring = ring<place_slots, cfg.serves ? 64 : 32>;

/* KV blocks of a Q block that are not yet copied when the CTA draws its next Q block. More would assign Q blocks before
 * it is known which CTA will be free first, fewer would make the producer wait for the number. */
constexpr int blocks_ahead = 4;

/* Q blocks along seq_q; the last may be partly filled. */
template <auto cfg>
__device__ __forceinline__ int rows_of_Q_blocks(int seq_q) {
    return (seq_q + cfg.B_r - 1) / cfg.B_r;
}

/* Sections of heads, with the mask. All CTAs together should read the K and V of few heads at a time, some 32 MB: only
 * the first reader of a block then waits for memory, the others find it in the L2 cache. A section has several Q blocks
 * for every CTA: its last ones, which see few keys, let all CTAs end at the same time. */
template <auto cfg>
__device__ __forceinline__ int count_sections(int rows, int seq_k, int KV_heads, int group) {
    constexpr int wanted_bytes = 32 << 20;
    const int of_KV_head = min(rows, 4) * group;
    const int wanted = (gridDim.x + of_KV_head - 1) / of_KV_head;
    const int in_section = min(wanted, max(1, wanted_bytes / (4 * cfg.d_head) / seq_k));
    return max(1, (KV_heads + in_section / 2) / in_section);
}

/* A head, and how many Q blocks lie between one of its Q blocks and its end. */
struct numbered_block {
    int head, behind;
};

/* The order of the Q blocks of a launch, or of a sequence. The scheduler computes it once, because divisions take it
 * as long as a KV block takes the consumers.
 *
 * Q blocks are numbered along a head, then along the heads: CTAs that take neighbours read the same K and V at the same
 * time. With the mask neighbours of a head see different numbers of KV blocks. Then Q blocks are numbered along the
 * heads of a section, then from the last rows to the first, which see fewer keys, then along the sections. KV heads are
 * shared out evenly among the sections: the first ones have one more than the others. */
struct block_order {
    uint32_t rows;         /* Q blocks of a head */
    uint32_t section;      /* heads of a section that is not larger; 0 without sections */
    uint32_t group;        /* heads that share a KV head: as many more has a larger section */
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
__device__ __forceinline__ Q_place find_Q_block(const attention_args &args, const block_order &order, int number) {
    const auto [all_heads, behind] = order.find(number);
    const uint32_t sample = (uint32_t)all_heads / args.heads, head = all_heads - sample * args.heads;
    const int row = ((int)order.rows - 1 - behind) * cfg.B_r, keys = seen_keys(args, row + cfg.B_r);
    return {row, (int)head, (int)sample, count_blocks<cfg.B_c>(keys), (int)(head / order.group)};
}

/* ---- places: the scheduler posts them, the producer and the warps of the consumers read them ---- */

/* As many numbers are drawn as there are Q blocks. The CTA that draws the last sets the counter to 0 again. */
__device__ __forceinline__ int draw_number(const attention_args &args, int Q_blocks) {
    const int drawn = atomicAdd(args.tickets, 1);
    if (drawn == Q_blocks - 1) atomicExch(args.tickets, 0);
    return gridDim.x + drawn;
}

template <int bytes>
__device__ __forceinline__ void post_place(const ring<place_slots, bytes> &places, int turn, const Q_place &first) {
    places.wait_until_empty(turn);
    store_shared_v4(places.stage(turn), first.row, first.head, first.sample, first.KV_blocks);
    store_shared(places.stage(turn) + 16, first.KV_head);
    mbarrier_arrive(places.full(turn));
}

/* The slot is the reader's until it arrives at the empty mbarrier. */
template <int bytes>
__device__ __forceinline__ Q_place read_place(const ring<place_slots, bytes> &places, int turn) {
    Q_place place;
    load_shared_v4(places.stage(turn), place.row, place.head, place.sample, place.KV_blocks);
    place.KV_head = load_shared(places.stage(turn) + 16);
    return place;
}

/* Post the places of this CTA's Q blocks. A number is drawn each time that the producer arrives at `draw`. */
template <auto cfg>
__device__ __forceinline__ void schedule(const attention_args &args, const place_ring<cfg> &places, uint32_t draw) {
    const block_order order = find_order<cfg>(args);
    const int Q_blocks = order.rows * args.heads * args.batch;
    for (int turn = 0;; turn++) {
        int number = blockIdx.x;
        if (turn > 0) {
            wait_for_phase(draw, turn - 1);
            number = draw_number(args, Q_blocks);
        }
        const Q_place first = number < Q_blocks ? find_Q_block<cfg>(args, order, number) : Q_place{-1, 0, 0, 0, 0};
        post_place(places, turn, first);
        if (first.row < 0) break;
    }
}

/* ---- where sequences have lengths of their own, which only the device knows: a warp is the scheduler ---- */

template <int bytes>
__device__ __forceinline__ void post_place(const ring<place_slots, bytes> &places, int turn,
                                           const served_place &first) {
    const sequence &seq = first.seq;
    places.wait_until_empty(turn);
    store_shared_v4(places.stage(turn), first.row, first.head, first.sample, first.KV_blocks);
    store_shared_v4(places.stage(turn) + 16, first.KV_head, first.first_block, seq.seq_q, seq.seq_k);
    store_shared_v4(places.stage(turn) + 32, seq.first_q, seq.first_k, seq.Q_sample, seq.KV_sample);
    mbarrier_arrive(places.full(turn));
}

template <int bytes>
__device__ __forceinline__ void post_place(const ring<place_slots, bytes> &places, int turn,
                                           const packed_place &first) {
    places.wait_until_empty(turn);
    store_shared_v4(places.stage(turn) + 48, first.packing.shift, first.packing.heads, 0, 0);
    post_place(places, turn, (const served_place &)first);
}

template <int bytes>
__device__ __forceinline__ served_place read_served_place(const ring<place_slots, bytes> &places, int turn) {
    served_place place;
    sequence &seq = place.seq;
    load_shared_v4(places.stage(turn), place.row, place.head, place.sample, place.KV_blocks);
    load_shared_v4(places.stage(turn) + 16, place.KV_head, place.first_block, seq.seq_q, seq.seq_k);
    load_shared_v4(places.stage(turn) + 32, seq.first_q, seq.first_k, seq.Q_sample, seq.KV_sample);
    return place;
}

template <int bytes>
__device__ __forceinline__ packed_place read_packed_place(const ring<place_slots, bytes> &places, int turn) {
    packed_place place = {read_served_place(places, turn)};
    int unused;
    load_shared_v4(places.stage(turn) + 48, place.packing.shift, place.packing.heads, unused, unused);
    return place;
}

/* What the scheduler posts. */
template <auto cfg>
using place_of_sequence = std::conditional_t<packs_heads<cfg>, packed_place, served_place>;

/* Q blocks of a sequence. */
template <auto cfg>
__device__ __forceinline__ int count_Q_blocks(const serving_args &args, int seq_q) {
    if constexpr (packs_heads<cfg>) {
        const head_packing packing = find_packing<cfg.B_r>(args, seq_q);
        if (packing.shift) return rows_of_Q_blocks<cfg>(seq_q << packing.shift) * args.KV_heads;
    }
    return rows_of_Q_blocks<cfg>(seq_q) * args.heads;
}

/* Q blocks are numbered along the sequences. The numbers that a CTA draws ascend: a warp goes through the sequences
 * once, one for each lane at a time. */
template <auto cfg>
struct sequence_walk {
    const serving_args &args;
    const int lane = threadIdx.x % 32;
    int first = 0;  /* the sequence of lane 0 */
    int begin, end; /* the numbers of the Q blocks of the lane's sequence */

    __device__ __forceinline__ void read(int before) {
        const int sample = first + lane;
        int blocks = 0;
        if (sample < args.batch) blocks = count_Q_blocks<cfg>(args, find_sequence(args, sample).seq_q);
        end = blocks;
        for (int distance = 1; distance < 32; distance *= 2) {
            const int others = __shfl_up_sync(0xffffffff, end, distance);
            if (lane >= distance) end += others;
        }
        end += before, begin = end - blocks;
    }

    /* The lane whose sequence has the Q block, -1 behind the last one. Then all_blocks() are those of all sequences. */
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
__device__ __forceinline__ served_place find_Q_block(const serving_args &args, int sample, int number) {
    const sequence seq = find_sequence(args, sample);
    const key_range range = find_key_range(args, seq.seq_q, seq.seq_k);
    const int rows = rows_of_Q_blocks<cfg>(seq.seq_q), group = heads_in_group(args);
    const bool by_sections = args.causal || args.window_right >= 0;
    const block_order order = find_order<cfg>(rows, max(1, seq.seq_k), args.KV_heads, group, by_sections);
    const auto [head, behind] = order.find(number);
    const int row = (rows - 1 - behind) * cfg.B_r, blocks = count_blocks<cfg.B_c>(seen_keys(range, row + cfg.B_r));
    return {{row, head, sample, blocks, head / group}, first_seen<cfg.B_c>(range, row), seq};
}

/* The same where the queries of a group's heads may share it: then the group stands for a head. */
template <auto cfg>
    requires packs_heads<cfg>
__device__ __forceinline__ packed_place find_Q_block(const serving_args &args, int sample, int number) {
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

/* As above. As many numbers are drawn as all sequences have Q blocks; who draws the last has gone through them all. */
template <auto cfg>
__device__ __forceinline__ void schedule_sequences(const serving_args &args, const place_ring<cfg> &places,
                                                   uint32_t draw) {
    sequence_walk<cfg> walk{args};
    walk.read(0);
    for (int turn = 0;; turn++) {
        int drawn = -1;
        if (turn > 0) {
            wait_for_phase(draw, turn - 1);
            if (walk.lane == 0) drawn = atomicAdd(args.tickets, 1);
            drawn = __shfl_sync(0xffffffff, drawn, 0);
        }
        const int number = turn > 0 ? gridDim.x + drawn : blockIdx.x, found = walk.find(number);
        if (found < 0) {
            const bool last = drawn >= 0 && drawn == walk.all_blocks() - 1;
            if (walk.lane == 0 && last) atomicExch(args.tickets, 0);
            if (walk.lane == 0) post_place(places, turn, place_of_sequence<cfg>{{-1}});
            break;
        }
        const int begin = __shfl_sync(0xffffffff, walk.begin, found);
        const place_of_sequence<cfg> first = find_Q_block<cfg>(args, walk.first + found, number - begin);
        if (walk.lane == 0) post_place(places, turn, first);
    }
}

#endif
