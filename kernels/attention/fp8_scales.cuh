/* fp8_scales.cuh - the scales of Q, K and V, of a head or of blocks of keys.
 *
 *     row_scales<cfg> scales;
 *     scales.find(args, here);                       for each Q block
 *     scales.apply(args, S, first_key);              where groups of keys have scales of their own
 *     ... scales.exponent_scale                from scores to exponents to base 2
 *     scales.undo(args, sum, P, first_key);
 *
 * 32 keys, four tiles of S, share a scale.
 */
#ifndef FL_ATTENTION_FP8_SCALES_CUH
#define FL_ATTENTION_FP8_SCALES_CUH

#include "common/fp8.h"
#include "kernels/attention/fp8_products.cuh"
#include "kernels/attention/schedule.cuh"

__device__ __forceinline__ float factor_of(const float *factors, int head) {
    return factors ? factors[head] : 1;
}

/* Factor from scores to base-2 exponents. */
__device__ __forceinline__ float find_exponent_scale(const fp8_args &args, const work_tile &here) {
    return args.softmax_scale * args.Q_descale * args.K_descale * 1.44269504f * factor_of(args.Q_scales, here.head) *
           factor_of(args.K_scales, here.KV_head);
}
__device__ __forceinline__ float find_exponent_scale(const serving_args &args, const varlen_tile &here) {
    return args.softmax_scale * 1.44269504f * factor_of(args.Q_scales, here.head) *
           (args.scale_keys ? 1 : factor_of(args.K_scales, here.KV_head));
}

/* Factor of O, before it is divided by l. */
__device__ __forceinline__ float find_V_descale(const fp8_args &args, const work_tile &here) {
    return args.V_descale * factor_of(args.V_scales, here.KV_head);
}
__device__ __forceinline__ float find_V_descale(const serving_args &args, const varlen_tile &here) {
    return args.scale_keys ? 1 : factor_of(args.V_scales, here.KV_head);
}

/* Scales for groups of keys: the factor of scores without the scales of K, and the number of scales of the heads and
 * sequences before this one. */
template <bool serves>
struct factors_of_keys {
    float score_scale;
    int before;
};
template <>
struct factors_of_keys<false> {};

/* Scales of the keys from `key` on. `before` are those of other heads and sequences. */
__device__ __forceinline__ float factor_of_keys(const serving_args &args, const float *factors, int before, int key) {
    const int shift = __ffs(args.scale_keys) - 1;
    return factors ? factors[before + (min(key, args.seq_k - 1) >> shift)] : 1;
}

/* S to exponents to base 2, with that of V's factor. */
template <fp8_config cfg>
__device__ __forceinline__ void scale_S(const serving_args &args, scores<cfg> &S, int before, int first_key,
                                        float score_scale) {
#pragma unroll
    for (int chunk = 0; chunk < cfg.B_c / 32; chunk++) {
        const float of_K = score_scale * factor_of_keys(args, args.K_scales, before, first_key + 32 * chunk);
        const float of_V = lg2_approx(factor_of_keys(args, args.V_scales, before, first_key + 32 * chunk));
        for (int tile = 4 * chunk; tile < 4 * chunk + 4; tile++)
            for (int i = 0; i < 4; i++) S[tile][i] = S[tile][i] * of_K + of_V;
    }
}

/* The lane's sums of P without V's factors. Not of P after rounding: with a small factor of V nothing of a large weight
 * may be left. */
template <fp8_config cfg>
__device__ __forceinline__ void sum_without_factors(const serving_args &args, float (&sum)[2], const scores<cfg> &P,
                                                    int before, int first_key) {
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int chunk = 0; chunk < cfg.B_c / 32; chunk++) {
        const float of_V = factor_of_keys(args, args.V_scales, before, first_key + 32 * chunk);
        const float undone = ex2_approx(-lg2_approx(of_V));
        for (int half = 0; half < 2; half++) {
            float of_chunk = 0;
            for (int tile = 4 * chunk; tile < 4 * chunk + 4; tile++)
                of_chunk += P[tile][2 * half] + P[tile][2 * half + 1];
            sum[half] += of_chunk * undone;
        }
    }
}

/* The scales of the rows of a Q block. */
template <fp8_config cfg>
struct row_scales {
    float exponent_scale;
    [[no_unique_address]] factors_of_keys<cfg.serves> factors = {};

    __device__ __forceinline__ static bool are_of_keys(const args_for<cfg> &args) {
        if constexpr (cfg.serves)
            return args.scale_keys != 0;
        else
            return false;
    }
    __device__ __forceinline__ void find(const args_for<cfg> &args, const tile_for<cfg> &here) {
        exponent_scale = find_exponent_scale(args, here);
        if constexpr (cfg.serves) {
            if (!are_of_keys(args)) return;
            factors.before =
                (here.sample * args.KV_heads + here.KV_head) * ((args.seq_k + args.scale_keys - 1) / args.scale_keys);
            factors.score_scale = exponent_scale, exponent_scale = 1;
        }
    }

    /* With scales for groups of keys, S is converted to exponents immediately. */
    __device__ __forceinline__ void apply(const args_for<cfg> &args, scores<cfg> &S, int first_key) const {
        if constexpr (cfg.serves)
            if (are_of_keys(args)) scale_S<cfg>(args, S, factors.before, first_key, factors.score_scale);
    }

    /* With scales for groups of keys, l sums P without the scales, before rounding. */
    __device__ __forceinline__ void undo(const args_for<cfg> &args, float (&sum)[2], const scores<cfg> &P,
                                         int first_key) const {
        if constexpr (cfg.serves)
            if (are_of_keys(args)) sum_without_factors<cfg>(args, sum, P, factors.before, first_key);
    }
};

#endif
