/* backward_cap.cuh - soft caps in the backward pass: capped scores, and the derivative of the cap.
 *
 *     cap_scores<cfg>(args, S);                                    S in units of the cap
 *     exponent_scale<cfg>(args)                                    from S to an exponent of 2
 *     dS *= slope_of_cap(P, lse, tanh_per_exponent<cfg>(args));
 *
 * A scaled score x becomes cap * tanh(x / cap), whose derivative by x is 1 - tanh(x / cap)². No register keeps the
 * hyperbolic tangent until dS is computed: cap * tanh(x / cap) = log(P) + log-sum-exp. P has 16 bits, which moves the
 * derivative by at most 2^-7 / cap with bf16 and 2^-10 / cap with fp16, less than the rounding of dS for caps from 4
 * on.
 */
#ifndef FL_ATTENTION_BACKWARD_CAP_CUH
#define FL_ATTENTION_BACKWARD_CAP_CUH

#include "kernels/attention/backward_sequences.cuh"
#include "kernels/attention/cap.cuh"

template <backward_config cfg>
__device__ __forceinline__ bool has_cap(const pass_args<cfg> &args) {
    if constexpr (cfg.serves) return args.softcap > 0;
    return false;
}

/* S = tanh(S * softmax_scale / softcap), if there is a cap. */
template <backward_config cfg, int n_tiles>
__device__ __forceinline__ void cap_scores(const pass_args<cfg> &args, tiles<n_tiles> &S) {
    if constexpr (cfg.serves)
        if (args.softcap > 0) cap(S, args.softmax_scale / args.softcap);
}

/* Factor of the scores, or of capped scores, in the exponents of 2. */
template <backward_config cfg>
__device__ __forceinline__ float exponent_scale(const pass_args<cfg> &args) {
    if constexpr (cfg.serves) return (args.softcap > 0 ? args.softcap : args.softmax_scale) * 1.44269504f;
    return args.softmax_scale * 1.44269504f;
}

/* 1 / exponent_scale() with a cap. */
template <backward_config cfg>
__device__ __forceinline__ float tanh_per_exponent(const pass_args<cfg> &args) {
    return rcp_approx(exponent_scale<cfg>(args));
}

/* 1 - tanh², with the log-sum-exp times log2 e; 0 where P is 0. fmaxf() also turns a NaN into 0: that of a query that
 * attends to no key. */
__device__ __forceinline__ float slope_of_cap(float P, float lse, float tanh_per_exponent) {
    const float t = (lg2_approx(P) + lse) * tanh_per_exponent;
    return fmaxf(0, fmaf(-t, t, 1));
}

#endif
