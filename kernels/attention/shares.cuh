/* shares.cuh - which keys of which rows a CTA has, where the keys of each KV head are divided among CTAs.
 *
 *     shared_line line = find_line<cfg>(args);
 *     for (int64_t at = line.begin(), end = line.end(); at < end; at += piece.blocks) piece = line.piece_at(at, end);
 *
 * The rows of a KV head in a sample are the queries of all its heads: row = query * group + head of the group, in row
 * blocks of B_r. The KV blocks of all row blocks stand in a line, and CTA number `share` of the head has as many of
 * them as the others: it begins within one row block, may have some whole ones, and ends within one. CTAs with the same
 * share read the same keys of all heads side by side, in the order of memory.
 */
#ifndef FL_ATTENTION_SHARES_CUH
#define FL_ATTENTION_SHARES_CUH

#include "common/abi.h"
#include "common/decode_config.h"
#include "kernels/attention/heads.cuh"
#include "kernels/attention/parts.cuh"
#include "kernels/attention/ring.cuh"

/* KV blocks of a row block that one CTA has, and the CTAs that have the others. After the last piece `row` is -1. */
struct piece {
    int row, sample;        /* the first row of the row block */
    int block, blocks;      /* the first KV block, and how many */
    int parts, first_share; /* parts of the row block, one for each CTA, and the first of the CTAs */
    int keys, first_slot;   /* cache.cuh: keys of the sequence, and the slot of the row block's first part */
};

/* Where the keys of a box lie: coordinates in the tensor maps of K and V. */
struct box_place {
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

    /* The CTA that has a block: the only one with start(share) <= at < start(share + 1). */
    __device__ __forceinline__ int share_with(int64_t at) const { return ((at + 1) * shares - 1) / total; }

    /* What begins at a place of the line and ends with its row block, or before `end`. */
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

    /* Keys of the sequence, and where those of a box lie, of the block that begins at `first_key`. */
    __device__ __forceinline__ int keys() const { return seq_k; }
    __device__ __forceinline__ box_place find_box(int first_key, int key, int sample) const {
        return {key, head, sample};
    }

    /* KV blocks of a part of a piece: it is one part. */
    __device__ __forceinline__ int most_blocks(const piece &own) const { return own.blocks; }

    /* Slots of the workspace for parts (parts.cuh): of all CTAs, of this one's part, and of all parts of a row block.
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

/* ---- pieces in shared memory: the copying warp posts them, the others read them ---- */

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
