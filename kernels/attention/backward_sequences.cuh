/* backward_sequences.cuh - the rows, Q blocks and KV blocks of a sequence, and the keys that its queries attend to.
 *
 *     const own_sequence<cfg> seq = ...;                  empty unless the kernel serves
 *     first_block_of<cfg>(args, seq, sample, head) + n    the number of its Q block n among those of all heads
 *     first_seeing<cfg>(args, seq, KV_block)              the first Q block that attends to a key of the KV block
 *     end_seeing<cfg>(args, seq, KV_block)                the first one after it that attends to none
 *     const key_band band(range, Q_block * B_r, key);     which keys of a KV block the queries of a Q block attend to
 *
 * Without offsets every sequence is a batch entry. Kernels that serve number the rows of all batch entries one after
 * the other, as if they were packed.
 */
#ifndef FL_ATTENTION_BACKWARD_SEQUENCES_CUH
#define FL_ATTENTION_BACKWARD_SEQUENCES_CUH

#include "common/backward.h"
#include "kernels/attention/lengths.cuh"
#include "kernels/attention/mask.cuh"

/* The first parameter of the kernels. */
template <bool tensor_copies, bool serves>
struct pass_args_type {
    using type = backward_strided_args;
};
template <>
struct pass_args_type<true, false> {
    using type = backward_args;
};
template <>
struct pass_args_type<true, true> {
    using type = backward_serving_args;
};
template <backward_config cfg>
using pass_args = typename pass_args_type<cfg.tensor_copies, cfg.serves>::type;

/* True if the last CTA in order rounds dQ. */
template <backward_config cfg>
constexpr bool rounds_in_order = backward_rounds_in_order(&cfg);
/* Number of turns of a Q block with in_order. */
template <backward_config cfg>
constexpr int turns_of_block = backward_turns(&cfg);

/* The rows of a sequence. Without offsets it is a batch entry. */
struct no_sequence {};
template <bool serves>
struct sequence_type {
    using type = no_sequence;
};
template <>
struct sequence_type<true> {
    using type = sequence;
};
template <backward_config cfg>
using own_sequence = typename sequence_type<cfg.serves>::type;

__device__ __forceinline__ sequence find_sequence(const backward_serving_args &args, int sample) {
    const rows_of_tensor Q = find_rows(args.Q_offsets, args.Q_lengths, sample, args.all_Q_rows, args.seq_q);
    const rows_of_tensor KV = find_rows(args.KV_offsets, args.KV_lengths, sample, args.all_KV_rows, args.seq_k);
    return {Q.rows, KV.rows, Q.first, KV.first, Q.sample, KV.sample};
}
template <backward_config cfg>
__device__ __forceinline__ int queries_of(const backward_args &args, const own_sequence<cfg> &seq) {
    if constexpr (cfg.serves) return seq.seq_q;
    return args.seq_q;
}
template <backward_config cfg>
__device__ __forceinline__ int keys_of(const backward_args &args, const own_sequence<cfg> &seq) {
    if constexpr (cfg.serves) return seq.seq_k;
    return args.seq_k;
}

/* The number of a sequence's first block of `rows` rows, where its first row is number `first`. No block has a number
 * of another sequence: floor(a) + ceil(b) <= floor(a + b) + 1. */
__device__ __forceinline__ int first_block_at(int first, int sample, int rows) {
    return first / rows + sample;
}

/* The rows of all sequences: `all` with offsets, otherwise `of_sample` for each batch entry. */
struct all_rows {
    const int32_t *offsets;
    int batch, all, of_sample;

    /* Number of a sequence's first row. */
    __device__ __forceinline__ int first(int sample) const {
        return offsets ? min(max(offsets[sample], 0), all) : sample * of_sample;
    }
    __device__ __forceinline__ int first_block(int sample, int rows) const {
        return first_block_at(first(sample), sample, rows);
    }
    /* The last sequence whose number is not larger than `number`; numbers do not decrease. */
    __device__ __forceinline__ int last_sequence(int number, const auto &number_of) const {
        int found = 0, behind = batch;
        while (behind - found > 1) {
            const int sample = found + (behind - found) / 2;
            (number_of(sample) <= number ? found : behind) = sample;
        }
        return found;
    }
    /* The sequence that has a block, or a row. */
    __device__ __forceinline__ int sequence_of_block(int rows, int number) const {
        return last_sequence(number, [&](int sample) { return first_block(sample, rows); });
    }
    __device__ __forceinline__ int sequence_of_row(int row) const {
        return last_sequence(row, [&](int sample) { return first(sample); });
    }
};
__device__ __forceinline__ all_rows queries_of_all(const backward_serving_args &args) {
    return {args.Q_offsets, args.batch, args.all_Q_rows, args.seq_q};
}
__device__ __forceinline__ all_rows keys_of_all(const backward_serving_args &args) {
    return {args.KV_offsets, args.batch, args.all_KV_rows, args.seq_k};
}

/* Number of the first Q block, or KV block, of a sequence of batch entry or number `sample`. */
template <backward_config cfg>
__device__ __forceinline__ int first_Q_block(const backward_serving_args &args, const sequence &seq, int sample) {
    return first_block_at(args.Q_offsets ? seq.first_q : sample * args.seq_q, sample, cfg.B_r);
}
template <backward_config cfg>
__device__ __forceinline__ int first_KV_block(const backward_serving_args &args, const sequence &seq, int sample) {
    return first_block_at(args.KV_offsets ? seq.first_k : sample * args.seq_k, sample, cfg.B_c);
}

/* Blocks of a head, as backward_Q_blocks() and backward_KV_blocks() have them. */
template <backward_config cfg>
__device__ __forceinline__ int count_Q_blocks(const backward_args &args) {
    return cfg.serves ? args.all_Q_rows / cfg.B_r + args.batch : (args.seq_q + cfg.B_r - 1) / cfg.B_r;
}
template <backward_config cfg>
__device__ __forceinline__ int count_KV_blocks(const backward_args &args) {
    return cfg.serves ? args.all_KV_rows / cfg.B_c + args.batch : (args.seq_k + cfg.B_c - 1) / cfg.B_c;
}

/* Index of a head's first Q block among those of all heads. */
template <backward_config cfg>
__device__ __forceinline__ int64_t first_block_of(const pass_args<cfg> &args, const own_sequence<cfg> &seq, int sample,
                                                  int head) {
    if constexpr (cfg.serves)
        return (int64_t)head * count_Q_blocks<cfg>(args) + first_Q_block<cfg>(args, seq, sample);
    else
        return ((int64_t)sample * args.heads + head) * ((args.seq_q + cfg.B_r - 1) / cfg.B_r);
}

/* ---- which keys, with windows ---- */

__device__ __forceinline__ key_range key_range_of(const backward_serving_args &args, const sequence &seq) {
    constexpr int before_all = -(1 << 30);
    const int right = args.causal ? 0 : args.window_right, aligned = seq.seq_k - seq.seq_q;
    return {seq.seq_k, args.window_left < 0 ? before_all : aligned - args.window_left,
            right < 0 ? seq.seq_k : aligned + right};
}

/* First Q block with a query that attends to a key of the KV block. */
template <backward_config cfg>
__device__ __forceinline__ int first_seeing(const pass_args<cfg> &args, const own_sequence<cfg> &seq, int KV_block) {
    if constexpr (cfg.serves) return max(0, KV_block * cfg.B_c - key_range_of(args, seq).end) / cfg.B_r;
    const int unseen = KV_block * cfg.B_c - (keys_of<cfg>(args, seq) - queries_of<cfg>(args, seq)); /* before any */
    return args.causal && unseen > 0 ? unseen / cfg.B_r : 0;
}

/* First Q block after those whose queries attend to a key of the KV block. */
template <backward_config cfg>
__device__ __forceinline__ int end_seeing(const pass_args<cfg> &args, const own_sequence<cfg> &seq, int KV_block) {
    int rows = queries_of<cfg>(args, seq);
    if constexpr (cfg.serves)
        rows = min(rows, max(0, min((KV_block + 1) * cfg.B_c, seq.seq_k) - key_range_of(args, seq).first));
    return (rows + cfg.B_r - 1) / cfg.B_r;
}

/* Last KV block with a key that a query of the Q block attends to. */
template <backward_config cfg>
__device__ __forceinline__ int last_seen(const pass_args<cfg> &args, const own_sequence<cfg> &seq, int Q_block) {
    const int last = (keys_of<cfg>(args, seq) - 1) / cfg.B_c;
    const int behind_first = (Q_block + 1) * cfg.B_r - 1; /* queries of this block and those before, but one */
    if constexpr (cfg.serves) return min(last, (behind_first + key_range_of(args, seq).end) / cfg.B_c);
    return args.causal ? min(last, (behind_first + keys_of<cfg>(args, seq) - queries_of<cfg>(args, seq)) / cfg.B_c)
                       : last;
}

/* Keys of a KV block that the queries of a Q block attend to, both counted from the first of the block: query i attends
 * to keys from i + left to i + right, up to `last`. */
struct key_band {
    int left, right, last;

    __device__ __forceinline__ key_band(const key_range &range, int query, int key)
        : left(query + range.first - key), right(query + range.end - key), last(range.seq_k - 1 - key) {}
    /* True if one of the queries does not attend to all keys. */
    template <int B_r, int B_c>
    __device__ __forceinline__ bool hides() const {
        return left + B_r - 1 > 0 || min(right, last) < B_c - 1;
    }
    __device__ __forceinline__ bool hides(int query, int key) const {
        return key > last || key - query > right || key - query < left;
    }
};
template <backward_config cfg>
__device__ __forceinline__ key_band band_of(const backward_serving_args &args, const sequence &seq, int Q_block,
                                            int KV_block) {
    return {key_range_of(args, seq), Q_block * cfg.B_r, KV_block * cfg.B_c};
}

#endif
