/* bias.cuh - numbers that are added to the scores: a bias or a mask in global memory, and ALiBi (Press et al. 2022).
 *
 *     const bias_origin origin = find_bias(args, sample, head);
 *     const bias_row rows[2] = {find_bias_row(args, origin, query, position), ...};      the two rows of a lane
 *     change_scores<FP16>(S, args, rows, key, seq_k, 1 / factor, lane, most, args.bias != NULL);
 *
 * S is in units of `factor`, the softmax scale or the cap, so it is the bias divided by it that is added. Keys are
 * counted from the first of the sequence, and `key` is the first of the block.
 *
 * With args.max_logits, `most` becomes the largest score of each row before the change, of the keys that neither S nor
 * the bias hides; NaN is ignored.
 *
 * The lanes of a quad read eight neighboring elements of a row. Nothing is read of keys past the sequence, whose scores
 * are masked.
 */
#ifndef FL_ATTENTION_BIAS_CUH
#define FL_ATTENTION_BIAS_CUH

#include "common/serving.h"
#include "kernels/attention/fragments.cuh"
#include "kernels/attention/softmax.cuh"

/* ---- the largest scores ---- */

/* An integer that is larger for larger floats, and back. */
__device__ __forceinline__ int ordered(float value) {
    const int bits = __float_as_int(value);
    return bits ^ (bits >> 31 & 0x7fffffff);
}
__device__ __forceinline__ float unordered(int value) {
    return __int_as_float(value ^ (value >> 31 & 0x7fffffff));
}

/* *most = max(*most, value), for floats other than NaN: bits of negative ones descend. */
__device__ __forceinline__ void raise(float *most, float value) {
    if (value >= 0)
        atomicMax((int *)most, __float_as_int(value) & 0x7fffffff); /* -0 would be less than any number */
    else
        atomicMin((unsigned *)most, __float_as_uint(value));
}

/* ---- biases ---- */

/* Elements before the first of a sequence and head, and the head's slope. */
struct bias_origin {
    int64_t first;
    float slope;
};

__device__ __forceinline__ bias_origin find_bias(const extended_args &args, int sample, int head) {
    return {sample * args.bias_strides.batch + head * args.bias_strides.head,
            args.alibi_slopes ? args.alibi_slopes[sample * args.alibi_batch_stride + head] : 0};
}

/* The first element of a query, and the key at distance 0 from it. */
struct bias_row {
    int64_t first;
    float slope;
    int position;
};

__device__ __forceinline__ bias_row find_bias_row(const extended_args &args, const bias_origin &origin, int query,
                                                  int position) {
    return {origin.first + query * args.bias_strides.seq, origin.slope, position};
}

/* ---- elements: what a load brings, as the number that is added ---- */

template <enum dtype type>
struct bias_bytes {
    using element = uint8_t;
    using pair = uint16_t;
    static __device__ __forceinline__ float value(element hidden_if_0) { return hidden_if_0 ? 0 : -INFINITY; }
    static __device__ __forceinline__ void values(pair two, float &low, float &high) {
        low = value(two & 0xff), high = value(two >> 8);
    }
};
template <enum dtype type>
struct bias_halves {
    using element = uint16_t;
    using pair = uint32_t;
    static __device__ __forceinline__ void values(pair two, float &low, float &high) {
        widen_pair<type>(two, low, high);
    }
    static __device__ __forceinline__ float value(element one) {
        float low, high;
        values(one, low, high);
        return low;
    }
};
template <enum dtype type>
struct bias_floats {
    using element = float;
    using pair = float2;
    static __device__ __forceinline__ float value(element one) { return one; }
    static __device__ __forceinline__ void values(pair two, float &low, float &high) { low = two.x, high = two.y; }
};

/* `left` are the keys of the sequence from the lane's first one on. With `pairs` all keys of the block exist, and two
 * neighbors are one load. The lanes meet after a few loads, or the compiler starts more than it has registers for. */
template <typename form, bool pairs, bool finds_most, int n_tiles>
__device__ __forceinline__ void add_elements(tiles<n_tiles> &S, const void *bias, const bias_row (&rows)[2], int first,
                                             int left, float inverse, row_values &most) {
    for (int half = 0; half < 2; half++) {
        const auto *const row = (const typename form::element *)bias + rows[half].first + first;
        for (int n = 0; n < n_tiles; n++) {
            constexpr int words_of_tile = pairs && sizeof(typename form::pair) <= 4 ? 1 : 2;
            if (n * words_of_tile % 16 == 0) __syncwarp();
            float added[2] = {};
            if constexpr (pairs)
                form::values(*(const typename form::pair *)(row + 8 * n), added[0], added[1]);
            else
                for (int e = 0; e < 2; e++)
                    if (8 * n + e < left) added[e] = form::value(row[8 * n + e]);
            if constexpr (finds_most)
                for (int e = 0; e < 2; e++)
                    if (added[e] > -INFINITY) most[half] = fmaxf(most[half], S[n][2 * half + e]);
            for (int e = 0; e < 2; e++) S[n][2 * half + e] = fmaf(added[e], inverse, S[n][2 * half + e]);
        }
    }
}

/* S += bias * inverse. */
template <enum dtype type, int n_tiles>
__device__ __forceinline__ void add_bias(tiles<n_tiles> &S, const extended_args &args, const bias_row (&rows)[2],
                                         int key, int seq_k, float inverse, int lane, row_values &most) {
    const int first = key + lane % 4 * 2;
    const bool pairs = args.bias_pairs && key + 8 * n_tiles <= seq_k;
    const auto add = [&]<typename form>(form) {
        if (args.max_logits)
            add_elements<form, false, true>(S, args.bias, rows, first, seq_k - first, inverse, most);
        else if (pairs)
            add_elements<form, true, false>(S, args.bias, rows, first, seq_k - first, inverse, most);
        else
            add_elements<form, false, false>(S, args.bias, rows, first, seq_k - first, inverse, most);
    };
    if (args.bias_type == BIAS_BYTES) add(bias_bytes<type>{});
    if (args.bias_type == BIAS_HALVES) add(bias_halves<type>{});
    if (args.bias_type == BIAS_FLOATS) add(bias_floats<type>{});
}

/* S -= slope * |distance| * inverse. */
template <int n_tiles>
__device__ __forceinline__ void add_alibi(tiles<n_tiles> &S, const bias_row (&rows)[2], int key, float inverse,
                                          int lane) {
    for (int half = 0; half < 2; half++) {
        const float factor = -rows[half].slope * inverse;
        const float distance = rows[half].position - key - lane % 4 * 2; /* exact up to 2^24 */
        for (int n = 0; n < n_tiles; n++)
            for (int e = 0; e < 2; e++)
                S[n][2 * half + e] = fmaf(fabsf(distance - (8 * n + e)), factor, S[n][2 * half + e]);
    }
}

__device__ __forceinline__ bool has_bias(const extended_args &args) {
    return args.bias != NULL || args.alibi_slopes != NULL;
}

template <enum dtype type, int n_tiles>
__device__ __forceinline__ void change_scores(tiles<n_tiles> &S, const extended_args &args, const bias_row (&rows)[2],
                                              int key, int seq_k, float inverse, int lane, row_values &most,
                                              bool biased) {
    most[0] = most[1] = -INFINITY;
    if (args.max_logits && !biased) find_lane_max(most, S);
    if (biased) add_bias<type>(S, args, rows, key, seq_k, inverse, lane, most);
    if (args.alibi_slopes) add_alibi(S, rows, key, inverse, lane);
}

#endif
