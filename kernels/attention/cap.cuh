/* cap.cuh - soft caps: scores that stay between -cap and cap (Gemma 2, 2024, section 2).
 *
 *     cap(S, softmax_scale / softcap);      S = tanh(S * softmax_scale / softcap): scores in units of the cap
 */
#ifndef FL_ATTENTION_CAP_CUH
#define FL_ATTENTION_CAP_CUH

#include "kernels/attention/fragments.cuh"

/* 1 / x (9.7.3.13 rcp); 1 / inf is 0. */
__device__ __forceinline__ float rcp_approx(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* tanh(x) = 1 - 2 / (1 + exp(2 x)). tanh.approx would be one instruction, but with 11 bits: of scores up to a cap of 50
 * it leaves the weights one or two correct digits. */
template <int n_tiles>
__device__ __forceinline__ void cap(tiles<n_tiles> &S, float factor) {
    const float to_base_2 = 2 * 1.44269504f * factor;
    for (int n = 0; n < n_tiles; n++)
        for (int e = 0; e < 4; e++) S[n][e] = fmaf(-2, rcp_approx(1 + ex2_approx(S[n][e] * to_base_2)), 1);
}

#endif
