/* backward_sequences.cuh - the rows, Q blocks and KV blocks of a sequence.
 *
 *     const own_sequence<cfg> seq = ...;                  empty unless the kernel serves
 *     first_block_of<cfg>(args, seq, sample, head) + n    the number of its Q block n among those of all heads
 *     first_seeing<cfg>(args, seq, KV_block)              the first Q block that attends to a key of the KV block
 *
 * Without offsets every sequence is a batch entry, and the parameters hold its lengths.
 */
#ifndef FL_ATTENTION_BACKWARD_SEQUENCES_CUH
#define FL_ATTENTION_BACKWARD_SEQUENCES_CUH

#include "common/backward.h"
#include "kernels/attention/lengths.cuh"

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
    const rows_of_tensor Q = find_rows(args.Q_offsets, nullptr, sample, args.all_Q_rows, args.seq_q);
    const rows_of_tensor KV = find_rows(args.KV_offsets, nullptr, sample, args.all_KV_rows, args.seq_k);
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

/* The sequence that has a block: the last whose first one has this number or one before. Offsets of `all` rows. */
__device__ __forceinline__ int sequence_of_block(const int32_t *offsets, int batch, int all, int rows, int number) {
    int found = 0, behind = batch;
    while (behind - found > 1) {
        const int sample = found + (behind - found) / 2;
        const int first = first_block_at(min(max(offsets[sample], 0), all), sample, rows);
        (first <= number ? found : behind) = sample;
    }
    return found;
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
        return (int64_t)head * count_Q_blocks<cfg>(args) + first_block_at(seq.first_q, sample, cfg.B_r);
    else
        return ((int64_t)sample * args.heads + head) * ((args.seq_q + cfg.B_r - 1) / cfg.B_r);
}

/* First Q block with a query that attends to a key of the KV block. */
template <backward_config cfg>
__device__ __forceinline__ int first_seeing(const backward_args &args, const own_sequence<cfg> &seq, int KV_block) {
    const int unseen = KV_block * cfg.B_c - (keys_of<cfg>(args, seq) - queries_of<cfg>(args, seq)); /* before any */
    return args.causal && unseen > 0 ? unseen / cfg.B_r : 0;
}

/* Last KV block with a key that a query of the Q block attends to. */
template <backward_config cfg>
__device__ __forceinline__ int last_seen(const backward_args &args, const own_sequence<cfg> &seq, int Q_block) {
    const int last = (keys_of<cfg>(args, seq) - 1) / cfg.B_c;
    const int behind_first = (Q_block + 1) * cfg.B_r - 1; /* queries of this block and those before, but one */
    return args.causal ? min(last, (behind_first + keys_of<cfg>(args, seq) - queries_of<cfg>(args, seq)) / cfg.B_c)
                       : last;
}

#endif
