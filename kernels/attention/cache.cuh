/* cache.cuh - shares.cuh for KV caches: a length for each sequence, pages, and splits of a fixed size.
 *
 *     ragged_line line = find_line<cfg>(args);
 *     for (int64_t at = line.begin(), end = line.end(); at < end; at += piece.blocks) piece = line.piece_at(at, end);
 *     const box_position from = line.find_box(first_key, key, sample);
 *
 * As in shares.cuh, but a row block has as many KV blocks as its sequence. The copying warp walks along the sequence of
 * KV blocks, and its lanes hold the lengths of 32 sequences at a time. The computing warps read what it publishes.
 *
 * serving_args.split_keys fixes the size of the parts, by the sequence's keys. A CTA then processes the parts whose
 * first block is in its range, so that the boundaries of the parts, and with them each bit of the result, depend only
 * on the sequence. The parts of a row block are added up in the order of their keys (parts.cuh).
 */
#ifndef FL_ATTENTION_CACHE_CUH
#define FL_ATTENTION_CACHE_CUH

#include "common/serving.h"
#include "kernels/attention/shares.cuh"

/* Number of a row block of the walk's sequence: the one at position `at`. Divisions delay the first copy, and most
 * sequences have one row block. */
__device__ __forceinline__ int row_block_at(const auto &line, int64_t at) {
    const int64_t from_first = at - line.sequence_start();
    const int blocks = line.blocks_of(line.seq_k);
    return from_first < blocks ? 0 : from_first / blocks;
}

/* With parts of a fixed size, the first that begins at or after the start of the CTA's range. */
__device__ __forceinline__ int64_t begin_of(auto &line) {
    line.count_blocks();
    if (line.share >= line.shares) return line.end();
    const int64_t at = line.start(line.share);
    line.find(at);
    if (!line.part) return at;
    const int blocks = line.blocks_of(line.seq_k), part = line.part_of(line.seq_k);
    const int64_t first = line.sequence_start() + (int64_t)row_block_at(line, at) * blocks;
    const int block = (int(at - first) + part - 1) / part * part;
    return first + min(block, blocks);
}

/* Return the piece that begins at position `at` and ends with its row block, or with the last part that begins before
 * `end`. */
__device__ __forceinline__ piece piece_of(auto &line, int64_t at, int64_t end) {
    while (at >= line.sequence_end()) line.go_to_next();
    const int seq_blocks = line.blocks_of(line.seq_k), size = line.part ? line.part_of(line.seq_k) : 1;
    const int row_block = row_block_at(line, at);
    const int64_t first = line.sequence_start() + (int64_t)row_block * seq_blocks;
    const int block = at - first;
    const int64_t of_range = line.part ? (end - at + size - 1) / size * size : end - at;
    const int blocks = min((int64_t)seq_blocks - block, of_range);
    const bool whole = !line.part && blocks == seq_blocks;
    const int first_share = whole ? line.share : line.share_with(first);
    const int parts = line.part ? (seq_blocks + size - 1) / size
                      : whole   ? 1
                                : line.share_with(first + seq_blocks - 1) - first_share + 1;
    const int first_slot = (line.number_of(row_block) * line.args.KV_heads + line.head) * line.parts_of_longest();
    line.open_pages(block);
    return {row_block * line.rows, line.sample, block, blocks, parts, first_share, line.seq_k, first_slot};
}

struct ragged_line {
    const serving_args &args;
    int row_blocks, rows, B_c; /* row blocks of a sequence, rows and keys of a block */
    int part;                  /* KV blocks of the smallest part; 0: no fixed size */
    int head, share, shares;   /* KV head of this CTA, its number among those of the head */

    /* State of the copying warp: */
    int64_t total;             /* KV blocks of all row blocks */
    int chunk, known;          /* the first of 32 sequences, and the keys of the one of this lane */
    int sample, before, seq_k; /* position of the walk: KV blocks of the sequences before, for one row block; keys */
    int page_shift, first_page, page, next_page; /* of 32 pages, the one of this lane, and the one of the next 32 */

    __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }

    /* ---- sequences: all lanes of the copying warp call these together ---- */

    /* A sequence has at least one KV block, even without keys, because its rows must be written. */
    __device__ __forceinline__ int blocks_of(int keys) const { return max(1, (keys + B_c - 1) / B_c); }

    /* Keys of a sequence, clamped to the capacity of the cache; -1 past the last sequence. */
    __device__ __forceinline__ int length(int sample) const {
        if (sample >= args.batch) return -1;
        return args.KV_lengths ? min(max(args.KV_lengths[sample], 0), args.seq_k) : args.seq_k;
    }
    __device__ __forceinline__ void count_blocks() {
        int blocks = 0;
        for (int b = lane(); b < args.batch; b += 32) blocks += blocks_of(length(b));
        total = (int64_t)__reduce_add_sync(0xffffffff, blocks) * row_blocks;
        shares = min((int64_t)shares, total);
    }
    /* Go to a sequence of the chunk. */
    __device__ __forceinline__ void go_to(int in_chunk) {
        sample = chunk + in_chunk;
        seq_k = __shfl_sync(0xffffffff, known, in_chunk);
    }
    __device__ __forceinline__ void go_to_next() {
        before += blocks_of(seq_k);
        if (sample + 1 == chunk + 32) known = length((chunk += 32) + lane());
        go_to(sample + 1 - chunk);
    }
    /* Go to the sequence whose row blocks contain position `at`. */
    __device__ __forceinline__ void find(int64_t at) {
        const int block = row_blocks == 1 ? at : at / row_blocks;
        before = 0;
        for (chunk = 0; chunk < args.batch; chunk += 32) {
            known = length(chunk + lane());
            const int own = known < 0 ? 0 : blocks_of(known);
            int sum = own; /* of the lanes up to this one */
            for (int d = 1; d < 32; d *= 2) {
                const int of_others = __shfl_up_sync(0xffffffff, sum, d);
                if (lane() >= d) sum += of_others;
            }
            const unsigned behind = __ballot_sync(0xffffffff, before + sum > block);
            if (behind) {
                const int found = __ffs(behind) - 1;
                before += __shfl_sync(0xffffffff, sum - own, found);
                return go_to(found);
            }
            before += __shfl_sync(0xffffffff, sum, 31);
        }
    }

    /* ---- shares ---- */

    __device__ __forceinline__ int64_t start(int share) const { return total * share / shares; }
    __device__ __forceinline__ int share_with(int64_t at) const { return ((at + 1) * shares - 1) / total; }

    __device__ __forceinline__ int64_t begin() { return begin_of(*this); }
    __device__ __forceinline__ int64_t end() const { return share < shares ? start(share + 1) : 0; }

    __device__ __forceinline__ piece piece_at(int64_t at, int64_t end) { return piece_of(*this, at, end); }

    /* Start and end of the walk's sequence, and the slots of the row blocks before one of its own. */
    __device__ __forceinline__ int64_t sequence_start() const { return (int64_t)before * row_blocks; }
    __device__ __forceinline__ int64_t sequence_end() const {
        return (int64_t)(before + blocks_of(seq_k)) * row_blocks;
    }
    __device__ __forceinline__ int number_of(int row_block) const { return sample * row_blocks + row_block; }

    /* ---- pages ---- */

    /* Number of a page of the sequence. Numbers past its keys are not read. */
    __device__ __forceinline__ int read_page(int page) const {
        if (page << page_shift >= seq_k) return -1;
        return args.pages[(int64_t)sample * args.pages_of_sequence + page];
    }
    __device__ __forceinline__ void open_pages(int block) {
        if (!args.pages) return;
        first_page = block * B_c >> page_shift;
        page = read_page(first_page + lane());
        next_page = read_page(first_page + 32 + lane());
    }

    /* Coordinates of the keys of a lane's box, in the block that begins at `first_key`. The pages of a block are in one
     * set of 32, because their number is a power of two. Page -1 lies outside the map, where a copy reads zeros, as do
     * keys past the end of the sequence. */
    __device__ __forceinline__ box_position find_box(int first_key, int key, int sample) {
        if (!args.pages) return {key, head, key < seq_k ? sample : -1};
        if ((first_key >> page_shift) == first_page + 32) {
            first_page += 32, page = next_page;
            next_page = read_page(first_page + 32 + lane());
        }
        const int number = __shfl_sync(0xffffffff, page, (key >> page_shift) - first_page);
        return {key & ((1 << page_shift) - 1), head, key < seq_k ? number : -1};
    }

    /* ---- parts of a fixed size ---- */

    /* As decode_parts() counts them. */
    __device__ __forceinline__ int most_parts() const {
        return min(max(DECODE_ALL_PARTS / args.KV_heads, DECODE_LEAST_PARTS), DECODE_MOST_PARTS);
    }
    __device__ __forceinline__ int parts_of_longest() const {
        return part ? min((blocks_of(args.seq_k) + part - 1) / part, most_parts()) : 0;
    }
    /* KV blocks of a part of a sequence. */
    __device__ __forceinline__ int part_of(int keys) const {
        const int of_smallest = part * most_parts();
        return (blocks_of(keys) + of_smallest - 1) / of_smallest * part;
    }
    __device__ __forceinline__ bool has_parts_of_fixed_size() const { return part != 0; }

    /* ---- the functions of shared_line ---- */

    __device__ __forceinline__ int cta(int share, int heads) const { return share * heads + head; }
    __device__ __forceinline__ int keys() const { return seq_k; }
    __device__ __forceinline__ int most_blocks(const piece &own) const { return part ? part_of(own.keys) : own.blocks; }

    __device__ __forceinline__ int64_t slots() const {
        const int64_t row_blocks_of_all = (int64_t)args.batch * row_blocks * args.KV_heads;
        return part ? row_blocks_of_all * parts_of_longest() : 2 * (int64_t)gridDim.x;
    }
    __device__ __forceinline__ int64_t slot(const piece &own, int block) const {
        return part ? own.first_slot + block / part_of(own.keys) : 2 * (int64_t)blockIdx.x + (own.block == 0);
    }
    __device__ __forceinline__ slot_range slots_of(const piece &own) const {
        if (part) return {own.first_slot, 1, own.parts, 0};
        return {2 * (int64_t)cta(own.first_share, args.KV_heads) + 1, 2 * args.KV_heads, own.parts, 1};
    }
};

template <decode_config cfg>
__device__ __forceinline__ ragged_line find_line(const serving_args &args) {
    ragged_line line{args};
    line.row_blocks = ((int64_t)args.seq_q * heads_in_group(args) + cfg.B_r - 1) / cfg.B_r;
    line.rows = cfg.B_r, line.B_c = cfg.B_c, line.part = args.split_keys / cfg.B_c;
    line.head = blockIdx.x % args.KV_heads;
    line.share = blockIdx.x / args.KV_heads, line.shares = gridDim.x / args.KV_heads;
    line.page_shift = args.pages ? 31 - __clz(args.page_rows) : 0;
    return line;
}

#endif
