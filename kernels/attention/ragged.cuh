/* ragged.cuh - cache.cuh for sequences with different numbers of queries, and for packed keys.
 *
 *     line_of<cfg> line = find_line<cfg>(args);
 *     const query_rows queries = find_queries(args, sample);
 *
 * A sequence has as many row blocks as its queries need, each with all KV blocks of the sequence; without queries it
 * has none. The CTAs therefore split the keys of a mixed batch as they split those of a batch that only decodes. Each
 * row block reads its keys again, so long prefills are slow.
 */
#ifndef FL_ATTENTION_RAGGED_CUH
#define FL_ATTENTION_RAGGED_CUH

#include "kernels/attention/cache.cuh"
#include "kernels/attention/lengths.cuh"

#include <type_traits>

struct ragged_queries_line : ragged_line {
    int group; /* rows of a query */

    /* State of the copying warp: */
    sequence known_rows, own; /* of this lane's sequence of the 32, and of the walk's */
    int64_t behind;           /* KV blocks of the row blocks before the walk's sequence */

    /* ---- sequences: all lanes of the copying warp call these together ---- */

    __device__ __forceinline__ int row_blocks_of(int queries) const { return (queries * group + rows - 1) / rows; }
    __device__ __forceinline__ int64_t blocks_of_all(const sequence &seq) const {
        return (int64_t)row_blocks_of(seq.seq_q) * blocks_of(seq.seq_k);
    }
    /* Sequences past the last one have no rows. */
    __device__ __forceinline__ sequence read_sequence(int sample) const {
        return sample < args.batch ? find_sequence(args, sample) : sequence{};
    }
    __device__ __forceinline__ void count_blocks() {
        total = 0;
        for (int b = lane(); b < args.batch; b += 32) total += blocks_of_all(read_sequence(b));
        for (int d = 16; d > 0; d /= 2) total += __shfl_xor_sync(0xffffffff, total, d);
        shares = min((int64_t)shares, total);
    }
    /* Go to a sequence of the chunk. */
    __device__ __forceinline__ void go_to(int in_chunk) {
        sample = chunk + in_chunk;
        own.seq_q = __shfl_sync(0xffffffff, known_rows.seq_q, in_chunk);
        own.seq_k = seq_k = __shfl_sync(0xffffffff, known_rows.seq_k, in_chunk);
        own.first_q = __shfl_sync(0xffffffff, known_rows.first_q, in_chunk);
        own.first_k = __shfl_sync(0xffffffff, known_rows.first_k, in_chunk);
        own.Q_sample = __shfl_sync(0xffffffff, known_rows.Q_sample, in_chunk);
        own.KV_sample = __shfl_sync(0xffffffff, known_rows.KV_sample, in_chunk);
    }
    __device__ __forceinline__ void go_to_next() {
        behind += blocks_of_all(own);
        if (sample + 1 == chunk + 32) known_rows = read_sequence((chunk += 32) + lane());
        go_to(sample + 1 - chunk);
    }
    /* Go to the sequence whose row blocks contain position `at`. */
    __device__ __forceinline__ void find(int64_t at) {
        behind = 0;
        for (chunk = 0; chunk < args.batch; chunk += 32) {
            known_rows = read_sequence(chunk + lane());
            const int64_t blocks = blocks_of_all(known_rows);
            int64_t sum = blocks; /* of the lanes up to this one */
            for (int d = 1; d < 32; d *= 2) {
                const int64_t of_others = __shfl_up_sync(0xffffffff, sum, d);
                if (lane() >= d) sum += of_others;
            }
            const unsigned past = __ballot_sync(0xffffffff, behind + sum > at);
            if (past) {
                const int found = __ffs(past) - 1;
                behind += __shfl_sync(0xffffffff, sum - blocks, found);
                return go_to(found);
            }
            behind += __shfl_sync(0xffffffff, sum, 31);
        }
    }

    /* ---- shares ---- */

    __device__ __forceinline__ int64_t sequence_start() const { return behind; }
    __device__ __forceinline__ int64_t sequence_end() const { return behind + blocks_of_all(own); }
    __device__ __forceinline__ int64_t begin() { return begin_of(*this); }
    __device__ __forceinline__ piece piece_at(int64_t at, int64_t end) { return piece_of(*this, at, end); }

    /* A number that no row block of another sequence has: the rows before it fill that many row blocks, and each
     * sequence may have one more that is partly filled. */
    __device__ __forceinline__ int number_of(int row_block) const {
        const int before = args.Q_offsets ? own.first_q * group / rows + sample : sample * row_blocks;
        return before + row_block;
    }
    __device__ __forceinline__ int64_t slots() const {
        const int64_t numbers = args.Q_offsets ? args.Q_rows * group / rows + args.batch : args.batch * row_blocks;
        return part ? numbers * args.KV_heads * parts_of_longest() : 2 * (int64_t)gridDim.x;
    }

    /* ---- rows of the tensors: coordinates outside the map are read as zeros ---- */

    /* Rows of a query of the walk's sequence, and of its keys. */
    __device__ __forceinline__ int row_of(int query) const { return own.first_q + query; }
    __device__ __forceinline__ int sample_of(int query) const { return query < own.seq_q ? own.Q_sample : -1; }
    __device__ __forceinline__ box_position find_box(int first_key, int key, int sample) {
        if (args.pages) return ragged_line::find_box(first_key, key, sample);
        return {own.first_k + key, head, key < seq_k ? own.KV_sample : -1};
    }
};

/* The type of the split for a configuration. */
template <decode_config cfg>
using line_of = std::conditional_t<!cfg.serves, shared_line,
                                   std::conditional_t<cfg.ragged_queries, ragged_queries_line, ragged_line>>;

template <decode_config cfg>
__device__ __forceinline__ line_of<cfg> make_line(const attention_args &args) {
    return find_line<cfg>(args);
}
template <decode_config cfg>
__device__ __forceinline__ line_of<cfg> make_line(const serving_args &args) {
    if constexpr (cfg.ragged_queries)
        return {find_line<cfg>(args), heads_in_group(args)};
    else
        return find_line<cfg>(args);
}

/* Queries of a sequence: the first, their number, the batch entry of Q and O that holds them, and its rows. */
struct query_rows {
    int first, count, sample, all;
};

__device__ __forceinline__ query_rows find_queries(const serving_args &args, int sample) {
    const rows_of_tensor found = find_rows(args.Q_offsets, args.Q_lengths, sample, args.Q_rows, args.seq_q);
    return {found.first, found.rows, found.sample, rows_of_Q(args)};
}

#endif
