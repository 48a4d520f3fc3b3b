/* lengths.cuh - which rows of Q, and of K and V, belong to a sequence.
 *
 *     const sequence seq = find_sequence(args, sample);
 *     copy_tensor_to_smem(smem, maps.Q, mbarrier, seq.first_q + row, head, seq.Q_sample);
 *
 * Without serving_args each sequence is a batch entry with seq_q and seq_k rows.
 */
#ifndef FL_ATTENTION_LENGTHS_CUH
#define FL_ATTENTION_LENGTHS_CUH

#include "common/attention_config.h"
#include "common/serving.h"

#include <type_traits>

/* The first parameter of a kernel. */
template <attention_config cfg>
using args_of =
    std::conditional_t<cfg.extended, extended_args, std::conditional_t<cfg.serves, serving_args, attention_args>>;

/* Elements of a row of Q and K, and of V and O. */
template <attention_config cfg>
__device__ __forceinline__ int row_elements(const args_of<cfg> &args) {
    if constexpr (cfg.extended)
        return args.d_head;
    else
        return cfg.d_head;
}
template <attention_config cfg>
__device__ __forceinline__ int V_row_elements(const args_of<cfg> &args) {
    if constexpr (cfg.extended)
        return args.d_head_v;
    else
        return cfg.d_head;
}

/* Number of used rows, the first of them, and the batch entry that holds them. */
struct sequence {
    int seq_q, seq_k, first_q, first_k, Q_sample, KV_sample;
};

struct rows_of_tensor {
    int first, rows, sample;
};

/* Rows of sequence `sample`, at most `most`, of a tensor that with offsets has `all` rows. Array entries are clamped,
 * so the rows always lie inside the tensor. */
__device__ __forceinline__ rows_of_tensor find_rows(const int32_t *offsets, const int32_t *lengths, int sample, int all,
                                                    int most) {
    rows_of_tensor found = {0, most, sample};
    if (offsets) {
        found.first = min(max(offsets[sample], 0), all), found.sample = 0;
        found.rows = min(max(min(offsets[sample + 1], all), found.first) - found.first, most);
    }
    if (lengths) found.rows = min(max(lengths[sample], 0), found.rows);
    return found;
}

__device__ __forceinline__ sequence find_sequence(const serving_args &args, int sample) {
    const rows_of_tensor Q = find_rows(args.Q_offsets, args.Q_lengths, sample, args.Q_rows, args.seq_q);
    const rows_of_tensor KV = find_rows(args.KV_offsets, args.KV_lengths, sample, args.KV_rows, args.seq_k);
    return {Q.rows, KV.rows, Q.first, KV.first, Q.sample, KV.sample};
}

/* First row of a sequence, and rows of log-sum-exp of a head. */
__device__ __forceinline__ int first_row_of(const attention_args &) {
    return 0;
}
__device__ __forceinline__ int first_row_of(const sequence &seq) {
    return seq.first_q;
}
__device__ __forceinline__ int rows_of_Q(const attention_args &args) {
    return args.seq_q;
}
__device__ __forceinline__ int rows_of_Q(const serving_args &args) {
    return args.Q_offsets ? args.Q_rows : args.seq_q;
}

#endif
