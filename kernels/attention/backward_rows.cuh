/* backward_rows.cuh - the two small kernels: row_sums before flash_backward and round_dQ after it.
 *
 *     sum_rows<cfg>(args);      delta and the scaled log-sum-exp of each query, and cleared sums or turns
 *     round_rows<cfg>(args);    dQ in 16 bits from its fp32 sums
 *     sum_sinks<cfg>(args);     gradients of sinks, from what sum_rows() left
 *
 * The first two write rows of full Q blocks. Rows past the last query get values that make P and dS zero.
 */
#ifndef FL_ATTENTION_BACKWARD_ROWS_CUH
#define FL_ATTENTION_BACKWARD_ROWS_CUH

#include "kernels/attention/backward_sequences.cuh"
#include "kernels/attention/fragments.cuh"

/* A query row for a thread of the small kernels, which have rows of full Q blocks: its block among those of all heads,
 * and the row within the sequence. `there` is false for unused block numbers. */
template <backward_config cfg>
struct query {
    int row;
    [[no_unique_address]] own_sequence<cfg> seq;
    int64_t of_all; /* with serve */

    __device__ __forceinline__ query(const pass_args<cfg> &args, int number) : row(number) {
        if constexpr (cfg.serves) {
            const int of_head = number / cfg.B_r;
            const int sample = queries_of_all(args).sequence_of_block(cfg.B_r, of_head);
            seq = find_sequence(args, sample);
            row -= first_Q_block<cfg>(args, seq, sample) * cfg.B_r;
            of_all = (int64_t)blockIdx.y * count_Q_blocks<cfg>(args) + of_head;
        }
    }
    __device__ __forceinline__ bool there(const pass_args<cfg> &args) const {
        return (!cfg.serves || row >= 0) && row < queries_of<cfg>(args, seq);
    }
    __device__ __forceinline__ int64_t block(const pass_args<cfg> &args) const {
        if constexpr (cfg.serves) return of_all;
        return first_block_of<cfg>(args, seq, blockIdx.z, blockIdx.y) + row / cfg.B_r;
    }
    /* Address of 8 elements of a tensor with these strides. */
    __device__ __forceinline__ int64_t offset(const tensor_strides &strides, int chunk) const {
        if constexpr (cfg.serves)
            return seq.Q_sample * strides.batch + (seq.first_q + row) * strides.seq + blockIdx.y * strides.head +
                   8 * chunk;
        return blockIdx.z * strides.batch + row * strides.seq + blockIdx.y * strides.head + 8 * chunk;
    }
    /* Among the rows of log-sum-exp. */
    __device__ __forceinline__ int64_t number(const pass_args<cfg> &args) const {
        if constexpr (cfg.serves) {
            if (args.Q_offsets) return (int64_t)blockIdx.y * args.all_Q_rows + seq.first_q + row;
            return ((int64_t)seq.Q_sample * args.heads + blockIdx.y) * args.seq_q + row;
        }
        return ((int64_t)blockIdx.z * args.heads + blockIdx.y) * args.seq_q + row;
    }
};

/* Strides of the gradients. */
template <backward_config cfg>
__device__ __forceinline__ const tensor_strides &dQ_strides_of(const pass_args<cfg> &args) {
    if constexpr (cfg.tensor_copies)
        return args.Q_strides;
    else
        return args.dQ_strides;
}
template <backward_config cfg>
__device__ __forceinline__ const tensor_strides &dK_strides_of(const pass_args<cfg> &args) {
    if constexpr (cfg.tensor_copies)
        return args.K_strides;
    else
        return args.dK_strides;
}
template <backward_config cfg>
__device__ __forceinline__ const tensor_strides &dV_strides_of(const pass_args<cfg> &args) {
    if constexpr (cfg.tensor_copies)
        return args.V_strides;
    else
        return args.dV_strides;
}

/* Rows that no sequence uses get gradients of 0: those before the first sequence and past the last, and with lengths
 * those past the used ones of each sequence. */
template <backward_config cfg>
__device__ __forceinline__ void clear_others(void *gradient, const tensor_strides &strides, const all_rows &rows,
                                             const int32_t *lengths) {
    constexpr int lanes = cfg.d_head / 8, at_once = BACKWARD_SMALL_THREADS / lanes;
    if (!rows.offsets && !lengths) return;
    const int first = rows.first(0), end = rows.first(rows.batch), chunk = threadIdx.x % lanes;
    const uint32_t zeros[4] = {};
    for (int number = blockIdx.x * at_once + threadIdx.x / lanes; number < rows.all; number += gridDim.x * at_once) {
        bool used = number >= first && number < end;
        int row = number, sample = 0;
        if (lengths) {
            const int sequence = rows.sequence_of_row(number);
            const int of_sequence = number - rows.first(sequence);
            used &= of_sequence < find_rows(rows.offsets, lengths, sequence, rows.all, rows.of_sample).rows;
            if (!rows.offsets) row = of_sequence, sample = sequence;
        }
        if (!used)
            st_global_v4((uint16_t *)gradient + sample * strides.batch + row * strides.seq + blockIdx.y * strides.head +
                             8 * chunk,
                         zeros);
    }
}
template <backward_config cfg>
__device__ __forceinline__ void clear_other_rows(const pass_args<cfg> &args) {
    clear_others<cfg>(args.dQ, dQ_strides_of<cfg>(args), queries_of_all(args), args.Q_lengths);
    if (blockIdx.y >= args.KV_heads) return;
    clear_others<cfg>(args.dK, dK_strides_of<cfg>(args), keys_of_all(args), args.KV_lengths);
    clear_others<cfg>(args.dV, dV_strides_of<cfg>(args), keys_of_all(args), args.KV_lengths);
}

/* 16 bytes of O and dO for each thread, d_head / 8 lanes per row. Rows past the last get values that make P and dS 0.
 */
template <backward_config cfg>
__device__ __forceinline__ void sum_rows(const pass_args<cfg> &args) {
    constexpr int lanes = cfg.d_head / 8, turns = turns_of_block<cfg>;
    const int number = blockIdx.x * (BACKWARD_SMALL_THREADS / lanes) + threadIdx.x / lanes, chunk = threadIdx.x % lanes;
    const query<cfg> own(args, number);
    const bool there = own.there(args);
    float sum = 0;
    if (there) {
        const tensor_strides &strides = args.O_strides;
        const int64_t at = own.offset(strides, chunk);
        uint32_t O[4], dO[4];
        ld_global_v4(O, (const uint16_t *)args.O + at);
        ld_global_v4(dO, (const uint16_t *)args.dO + at);
        for (int i = 0; i < 4; i++) {
            float a, b, c, d;
            widen_pair<cfg.dtype>(O[i], a, b);
            widen_pair<cfg.dtype>(dO[i], c, d);
            sum += a * c + b * d;
        }
    }
    for (int distance = lanes / 2; distance; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
    const int64_t block = own.block(args);
    const uint32_t zeros[4] = {};
    if constexpr (!rounds_in_order<cfg>) {
        float *const sums = args.sums + (block * cfg.B_r + number % cfg.B_r) * cfg.d_head;
        for (int half = 0; half < 2; half++) st_global_v4(sums + (half * lanes + chunk) * 4, zeros);
    } else if (there && (own.row / cfg.B_r < first_seeing<cfg>(args, own.seq, 0) ||
                         (cfg.serves && !keys_of<cfg>(args, own.seq)))) {
        st_global_v4((uint16_t *)args.dQ + own.offset(dQ_strides_of<cfg>(args), chunk), zeros);
    }
    if constexpr (cfg.serves) clear_other_rows<cfg>(args);
    if (chunk) return;
    const int64_t of_lse = own.number(args);
    const float lse = there ? args.LSE[of_lse] : -INFINITY;
    float *const kept = args.delta + block * 2 * cfg.B_r + number % cfg.B_r;
    kept[0] = lse == -INFINITY ? INFINITY : lse * 1.44269504f;
    kept[cfg.B_r] = cfg.tensor_copies ? sum : -sum; /* mma.sync begins the sums of dP with it */
    if (cfg.in_order && number % cfg.B_r == 0)
        for (int turn = 0; turn < turns; turn++) args.turns[BACKWARD_COUNTERS + block * turns + turn] = 0;
    if (block == 0 && number == 0) args.turns[0] = 0;
}

/* Offset of a row's first two columns in a tile of 16 rows x 8 columns of the accumulator, and the sums of two columns.
 * Of each lane the tile has four elements side by side, or with mma.sync an element of all lanes. */
template <backward_config cfg>
__device__ __forceinline__ int first_sums(int row) {
    return cfg.tensor_copies ? row % 8 * 16 + row % 16 / 8 * 2 : row % 8 * 4 + row % 16 / 8 * 64;
}
template <backward_config cfg>
__device__ __forceinline__ float2 load_sums(const float *first, int pair) {
    if constexpr (cfg.tensor_copies) return *(const float2 *)(first + 4 * pair);
    return make_float2(first[pair], first[pair + 32]);
}

/* The gradient of a head's sink, by one CTA, in a fixed order. Rows that a sequence does not use have an infinite
 * log-sum-exp and add nothing. */
template <backward_config cfg>
__device__ __forceinline__ void sum_sinks(const pass_args<cfg> &args) {
    __shared__ float sums[BACKWARD_SMALL_THREADS / 32];
    const int rows = count_Q_blocks<cfg>(args) * cfg.B_r;
    const float *const kept = args.delta + (int64_t)blockIdx.y * rows * 2;
    const float sink = args.sinks[blockIdx.y] * 1.44269504f;
    float sum = 0;
    for (int row = threadIdx.x; row < rows; row += BACKWARD_SMALL_THREADS) {
        const float *const own = kept + row / cfg.B_r * 2 * cfg.B_r + row % cfg.B_r;
        sum += ex2_approx(sink - own[0]) * own[cfg.B_r];
    }
    for (int distance = 16; distance; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int warp = 1; warp < BACKWARD_SMALL_THREADS / 32; warp++) sum += sums[warp];
    args.dsinks[blockIdx.y] = cfg.tensor_copies ? -sum : sum; /* without tensor_copies -delta is kept */
}

/* 8 columns of dQ for each thread: a half warp processes those of 16 rows, 512 contiguous bytes of the accumulator.
 */
template <backward_config cfg>
__device__ __forceinline__ void round_rows(const pass_args<cfg> &args) {
    constexpr int chunks = cfg.d_head / 8;
    if constexpr (cfg.serves)
        if (args.dsinks && blockIdx.x == 0) sum_sinks<cfg>(args);
    if constexpr (rounds_in_order<cfg>) return; /* the last CTA in order has rounded dQ */
    const int thread = blockIdx.x * BACKWARD_SMALL_THREADS + threadIdx.x;
    const int number = thread / 16 / chunks * 16 + thread % 16, chunk = thread / 16 % chunks;
    const query<cfg> own(args, number);
    if (!own.there(args)) return;
    const int64_t block = own.block(args);
    const int tile = (chunk / 8 * (cfg.B_r / 16) + number % cfg.B_r / 16) * 8 + chunk % 8;
    const float *const sums = args.sums + block * (cfg.B_r * cfg.d_head) + tile * 128 + first_sums<cfg>(number);
    uint32_t pairs[4];
    for (int i = 0; i < 4; i++) {
        const float2 pair = load_sums<cfg>(sums, i);
        pairs[i] = round_pair<cfg.dtype>(args.softmax_scale * pair.x, args.softmax_scale * pair.y);
    }
    const tensor_strides &strides = dQ_strides_of<cfg>(args);
    const int64_t at = own.offset(strides, chunk);
    st_global_v4((uint16_t *)args.dQ + at, pairs);
}

#endif
