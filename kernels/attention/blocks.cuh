/* blocks.cuh - block masks: which KV blocks of a Q block are visible, as FlexAttention's BlockMask has them.
 *
 *     narrow_to_visible<cfg>(args, tile);               the scheduler's warp: the first and the last visible block
 *     visible_blocks<cfg> blocks{args, tile};           the producer's warp
 *     while (blocks.find_next(block, kinds)) ...        the visible blocks from the last to the first, and their kinds
 *
 * A consumer has 64 rows of a Q block, whose kind is two bits of `kinds`. If no block is visible, the last one stays,
 * and all of its scores become -infinity.
 */
#ifndef FL_ATTENTION_BLOCKS_CUH
#define FL_ATTENTION_BLOCKS_CUH

#include "common/attention_config.h"
#include "common/serving.h"
#include "kernels/attention/schedule.cuh"

__device__ __forceinline__ int kind_of_block(const extended_args &args, int sample, int head, int query, int key) {
    const tensor_strides &strides = args.block_mask_strides;
    const uint8_t *const row =
        args.block_mask + sample * strides.batch + head * strides.head + (query >> args.mask_query_shift) * strides.seq;
    return min(row[key >> args.mask_key_shift], (uint8_t)BLOCK_FULL);
}

/* The kinds of a KV block for each 64 rows of a Q block: two bits each, 0 past the end of the sequence. */
template <attention_config cfg>
__device__ __forceinline__ uint32_t kinds_of_block(const extended_args &args, const varlen_tile &tile, int block) {
    uint32_t kinds = 0;
    for (int part = 0; part < cfg.B_r / 64; part++) {
        const int row = tile.row + 64 * part;
        if (row < tile.seq.seq_q)
            kinds |= kind_of_block(args, tile.sample, tile.head, row, block * cfg.B_c) << 2 * part;
    }
    return kinds;
}

template <attention_config cfg>
__device__ __forceinline__ void narrow_to_visible(const extended_args &args, varlen_tile &tile) {
    const int lane = threadIdx.x % 32, end = tile.KV_blocks;
    int first = -1, last = -1;
    for (int from = tile.first_block; from < end; from += 32) {
        const bool visible = from + lane < end && kinds_of_block<cfg>(args, tile, from + lane);
        const unsigned lanes = __ballot_sync(0xffffffff, visible);
        if (lanes && first < 0) first = from + __ffs(lanes) - 1;
        if (lanes) last = from + 31 - __clz(lanes);
    }
    tile.first_block = first < 0 ? end - 1 : first;
    tile.KV_blocks = last < 0 ? end : last + 1;
}

/* Each lane has one of 32 candidates, lane 0 the last of them. */
template <attention_config cfg>
struct visible_blocks {
    const extended_args &args;
    const varlen_tile &tile;
    const int lane = threadIdx.x % 32;
    int candidate = tile.KV_blocks + 31; /* that of lane 0 */
    unsigned left = 0;                   /* lanes whose candidates are visible and come next */
    uint32_t kinds = 0;                  /* of the lane's candidate */

    __device__ __forceinline__ bool find_next(int &block, uint32_t &kinds_of_next) {
        while (!left) {
            if (candidate - 32 < tile.first_block) return false;
            candidate -= 32;
            const bool exists = candidate - lane >= tile.first_block;
            kinds = exists ? kinds_of_block<cfg>(args, tile, candidate - lane) : 0;
            const bool at_end = candidate - lane == tile.KV_blocks - 1; /* even if it is hidden */
            left = __ballot_sync(0xffffffff, kinds != 0 || at_end);
        }
        const int next = __ffs(left) - 1;
        left &= left - 1;
        block = candidate - next;
        kinds_of_next = __shfl_sync(0xffffffff, kinds, next);
        return true;
    }
};

#endif
