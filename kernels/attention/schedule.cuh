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
#include "kernels/attention/mask.cuh"
#include "kernels/attention/ring.cuh"

/* Where a Q block begins, the head of K and V that its head attends to, and the number of KV blocks that its rows see.
 * Behind the last Q block `row` is -1. */
struct Q_place {
    int row, head, sample, KV_blocks, KV_head;
};

/* Places of Q blocks: of the consumers, of the producer and the next, and one more for a power of two. */
constexpr int place_slots = 4, place_bytes = 32;
using place_ring = ring<place_slots, place_bytes>;

/* KV blocks of a Q block that are not yet copied when the CTA draws its next Q block. More would assign Q blocks before
 * it is known which CTA will be free first, fewer would make the producer wait for the number. */
constexpr int blocks_ahead = 4;

/* Q blocks along seq_q; the last may be partly filled. */
template <attention_config cfg>
__device__ __forceinline__ int rows_of_Q_blocks(const attention_args &args) {
    return (args.seq_q + cfg.B_r - 1) / cfg.B_r;
}

/* Sections of heads, with the mask. All CTAs together should read the K and V of few heads at a time, some 32 MB: only
 * the first reader of a block then waits for memory, the others find it in the L2 cache. A section has several Q blocks
 * for every CTA: its last ones, which see few keys, let all CTAs end at the same time. */
template <attention_config cfg>
__device__ __forceinline__ int count_sections(const attention_args &args, int KV_heads, int group) {
    constexpr int wanted_bytes = 32 << 20;
    const int of_KV_head = min(rows_of_Q_blocks<cfg>(args), 4) * group;
    const int wanted = (gridDim.x + of_KV_head - 1) / of_KV_head;
    const int in_section = min(wanted, max(1, wanted_bytes / (4 * cfg.d_head) / args.seq_k));
    return max(1, (KV_heads + in_section / 2) / in_section);
}

/* Q blocks are numbered along a head, then along the heads: CTAs that take neighbours read the same K and V at the same
 * time. With the mask neighbours of a head see different numbers of KV blocks. Then Q blocks are numbered along the
 * heads of a section, then from the last rows to the first, which see fewer keys, then along the sections. KV heads are
 * shared out evenly among the sections. */
template <attention_config cfg>
__device__ __forceinline__ Q_place find_Q_block(const attention_args &args, int number) {
    const int rows = rows_of_Q_blocks<cfg>(args), group = heads_in_group(args);
    int head = number / rows, behind = number % rows; /* Q blocks of the head between this one and its end */
    if (args.causal) {
        const int KV_heads = args.KV_heads * args.batch, sections = count_sections<cfg>(args, KV_heads, group);
        /* The first sections have one KV head more than the others. */
        const int fewest = KV_heads / sections, in_larger = KV_heads % sections * (fewest + 1), KV_head = head / group;
        const bool larger = KV_head < in_larger;
        const int begin = larger ? 0 : in_larger, size = larger ? fewest + 1 : fewest;
        const int first = (begin + (KV_head - begin) / size * size) * group, heads = size * group;
        const int in_section = number - first * rows;
        head = first + in_section % heads, behind = in_section / heads;
    }
    const int row = (rows - 1 - behind) * cfg.B_r, keys = seen_keys(args, row + cfg.B_r);
    return {row, head % args.heads, head / args.heads, count_blocks<cfg.B_c>(keys), head % args.heads / group};
}

/* ---- places: the scheduler posts them, the producer and the warps of the consumers read them ---- */

/* As many numbers are drawn as there are Q blocks. The CTA that draws the last sets the counter to 0 again. */
__device__ __forceinline__ int draw_number(const attention_args &args, int Q_blocks) {
    const int drawn = atomicAdd(args.tickets, 1);
    if (drawn == Q_blocks - 1) atomicExch(args.tickets, 0);
    return gridDim.x + drawn;
}

__device__ __forceinline__ void post_place(const place_ring &places, int turn, const Q_place &first) {
    places.wait_until_empty(turn);
    store_shared_v4(places.stage(turn), first.row, first.head, first.sample, first.KV_blocks);
    store_shared(places.stage(turn) + 16, first.KV_head);
    mbarrier_arrive(places.full(turn));
}

/* The slot is the reader's until it arrives at the empty mbarrier. */
__device__ __forceinline__ Q_place read_place(const place_ring &places, int turn) {
    Q_place place;
    load_shared_v4(places.stage(turn), place.row, place.head, place.sample, place.KV_blocks);
    place.KV_head = load_shared(places.stage(turn) + 16);
    return place;
}

/* Post the places of this CTA's Q blocks. A number is drawn each time that the producer arrives at `draw`. */
template <attention_config cfg>
__device__ __forceinline__ void schedule(const attention_args &args, const place_ring &places, uint32_t draw) {
    const int Q_blocks = rows_of_Q_blocks<cfg>(args) * args.heads * args.batch;
    for (int turn = 0;; turn++) {
        int number = blockIdx.x;
        if (turn > 0) {
            wait_for_phase(draw, turn - 1);
            number = draw_number(args, Q_blocks);
        }
        const Q_place first = number < Q_blocks ? find_Q_block<cfg>(args, number) : Q_place{-1, 0, 0, 0, 0};
        post_place(places, turn, first);
        if (first.row < 0) break;
    }
}

#endif
