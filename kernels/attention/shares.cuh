/* shares.cuh - splits the keys of each KV head among its CTAs.
 *
 *     shared_line line = find_line<cfg>(args);
 *     for (int64_t at = line.begin(), end = line.end(); at < end; at += piece.blocks) piece = line.piece_at(at, end);
 *
 * The rows of a KV head in a batch entry are the queries of all its heads: row = query * group + head of the group, in
 * row blocks of B_r. The KV blocks of all row blocks form one sequence, which is split evenly among the head's CTAs, as
 * in Stream-K. A CTA's range may start and end inside a row block. CTAs with the same `share` number read the same keys
 * of all heads at the same time, in the order of memory.
 */
#ifndef FL_ATTENTION_SHARES_CUH
#define FL_ATTENTION_SHARES_CUH

#include "common/abi.h"
#include "common/decode_config.h"
#include "kernels/attention/heads.cuh"
#include "kernels/attention/parts.cuh"
#include "kernels/attention/ring.cuh"

/* Consecutive KV blocks of a row block that one CTA processes, and the CTAs that process the rest of the row block.
 * `row` is -1 if no work is left. */
struct piece {
    int row, sample;        /* the first row of the row block */
    int block, blocks;      /* the first KV block, and how many */
    int parts, first_share; /* partial results of the row block, one for each CTA, and the first of the CTAs */
    int keys, first_slot;   /* cache.cuh: keys of the sequence, and the slot of the row block's first partial result */
};

/* Coordinates of the keys of a box in the tensor maps of K and V. */
struct box_position {
    int row, head, sample;
};

struct shared_line {
    int row_blocks, KV_blocks, rows; /* of a row block: KV_blocks, rows */
    int64_t total;                   /* KV blocks of all row blocks */
    int head, share, shares;         /* KV head of this CTA, its number among those of the head */
    int seq_k, heads;

    __device__ __forceinline__ int64_t start(int share) const { return total * share / shares; }
    __device__ __forceinline__ int64_t begin() const { return start(share); }
    __device__ __forceinline__ int64_t end() const { return start(share + 1); }

    /* The CTA that processes a block: the only one with start(share) <= at < start(share + 1). */
    __device__ __forceinline__ int share_with(int64_t at) const { return ((at + 1) * shares - 1) / total; }

    /* Return the piece that begins at position `at` and ends with its row block, or before `end`. */
    __device__ __forceinline__ piece piece_at(int64_t at, int64_t end) const {
        const int64_t row_block = at / KV_blocks, first = row_block * KV_blocks;
        const int block = at - first, blocks = min((int64_t)KV_blocks - block, end - at);
        const int first_share = blocks == KV_blocks ? share : share_with(first);
        const int parts = blocks == KV_blocks ? 1 : share_with(first + KV_blocks - 1) - first_share + 1;
        const int sample = row_block / row_blocks;
        return {int(row_block - (int64_t)sample * row_blocks) * rows, sample, block, blocks, parts, first_share, 0, 0};
    }

    /* CTAs are numbered along the heads. */
    __device__ __forceinline__ int cta(int share, int heads) const { return share * heads + head; }

    /* Keys of the sequence, and the coordinates of those of a box in the block that begins at `first_key`. */
    __device__ __forceinline__ int keys() const { return seq_k; }
    __device__ __forceinline__ box_position find_box(int first_key, int key, int sample) const {
        return {key, head, sample};
    }

    __device__ __forceinline__ bool has_parts_of_fixed_size() const { return false; }

    /* KV blocks of a partial result of a piece: the entire piece. */
    __device__ __forceinline__ int most_blocks(const piece &own) const { return own.blocks; }

    /* Workspace slots (parts.cuh) of all CTAs, of this CTA's partial result, and of all partial results of a row block.
     */
    __device__ __forceinline__ int64_t slots() const { return 2 * (int64_t)gridDim.x; }
    __device__ __forceinline__ int64_t slot(const piece &own, int block) const {
        return 2 * (int64_t)blockIdx.x + (own.block == 0);
    }
    __device__ __forceinline__ slot_range slots_of(const piece &own) const {
        return {2 * (int64_t)cta(own.first_share, heads) + 1, 2 * heads, own.parts, 1};
    }
};

template <decode_config cfg>
__device__ __forceinline__ shared_line find_line(const attention_args &args) {
    const int row_blocks = ((int64_t)args.seq_q * heads_in_group(args) + cfg.B_r - 1) / cfg.B_r;
    const int KV_blocks = max(1, (args.seq_k + cfg.B_c - 1) / cfg.B_c);
    return {row_blocks,
            KV_blocks,
            cfg.B_r,
            (int64_t)args.batch * row_blocks * KV_blocks,
            int(blockIdx.x % args.KV_heads),
            int(blockIdx.x / args.KV_heads),
            int(gridDim.x / args.KV_heads),
            args.seq_k,
            args.KV_heads};
}

/* ---- pieces in shared memory: the copying warp publishes them, the other warps read them ---- */

constexpr int piece_bytes = 32;

__device__ __forceinline__ void post_piece(uint32_t smem_addr, const piece &next) {
    store_shared_v4(smem_addr, next.row, next.sample, next.block, next.blocks);
    store_shared_v4(smem_addr + 16, next.parts, next.first_share, next.keys, next.first_slot);
}

__device__ __forceinline__ piece read_piece(uint32_t smem_addr) {
    piece next;
    load_shared_v4(smem_addr, next.row, next.sample, next.block, next.blocks);
    load_shared_v4(smem_addr + 16, next.parts, next.first_share, next.keys, next.first_slot);
    return next;
}

#endif
