/* backward_softmax.cuh - from scores to P, and from P and dP to dS.
 *
 *     take_exponentials(S, scale, lse);        P instead of S
 *     mask_keys(P, last, causal);
 *     differentiate<cfg>(dP, P, delta);        dS = P ∘ (dP - delta) instead of dP
 *     store_dS(smem, dS);
 *
 * With serve also cap_scores(), mask_keys(P, band) and multiply_by_slope().
 */
#ifndef FL_ATTENTION_BACKWARD_SOFTMAX_CUH
#define FL_ATTENTION_BACKWARD_SOFTMAX_CUH

#include "kernels/attention/backward_cap.cuh"
#include "kernels/attention/backward_smem.cuh"
#include "kernels/attention/fragments.cuh"

/* Scores as the first operand of a product. */
template <backward_config cfg>
__device__ __forceinline__ void round_scores(fragments<4> &a, const tiles<8> &scores) {
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 4; i++) {
            const float (&from)[4] = scores[2 * k + i / 2];
            a[k][i] = round_pair<cfg.dtype>(from[i % 2 * 2], from[i % 2 * 2 + 1]);
        }
}

/* Two neighboring floats in shared memory, for the queries of elements 0 and 1 of a tile, and of 2 and 3. */
__device__ __forceinline__ float2 load_pair(uint32_t smem_addr, int tile) {
    float2 pair;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(pair.x), "=f"(pair.y)
                 : "r"(smem_addr + 4 * (8 * tile + threadIdx.x % 4 * 2))
                 : "memory");
    return pair;
}

__device__ __forceinline__ void take_exponentials(tiles<8> &P, float exponent_scale, uint32_t lse) {
    for (int tile = 0; tile < 8; tile++) {
        const float2 of = load_pair(lse, tile);
        for (int i = 0; i < 4; i++) P[tile][i] = ex2_approx(P[tile][i] * exponent_scale - (i % 2 ? of.y : of.x));
    }
}

/* Set P to 0 for keys after `last`, the last that the first query of the block attends to, counted from the first key
 * of the CTA. With the causal mask each query attends to one key more than the one before it. */
__device__ __forceinline__ void mask_keys(tiles<8> &P, int last, bool causal) {
    const int lane = threadIdx.x % 32, key = (threadIdx.x - WARPGROUP) / 32 * 16 + lane / 4;
    for (int tile = 0; tile < 8; tile++)
        for (int i = 0; i < 4; i++)
            if (key + i / 2 * 8 > last + (causal ? 8 * tile + lane % 4 * 2 + i % 2 : 0)) P[tile][i] = 0;
}

/* Set P to 0 for the keys that a query does not attend to. */
__device__ __forceinline__ void mask_keys(tiles<8> &P, const key_band &band) {
    const int lane = threadIdx.x % 32, key = (threadIdx.x - WARPGROUP) / 32 * 16 + lane / 4;
    for (int tile = 0; tile < 8; tile++)
        for (int i = 0; i < 4; i++)
            if (band.hides(8 * tile + lane % 4 * 2 + i % 2, key + i / 2 * 8)) P[tile][i] = 0;
}

/* Copy to separate registers; the compiler would otherwise use one register for both. */
template <int steps>
__device__ __forceinline__ void copy_registers(fragments<steps> &to, const fragments<steps> &from) {
    for (int k = 0; k < steps; k++)
        for (int i = 0; i < 4; i++) asm volatile("mov.b32 %0, %1;" : "=r"(to[k][i]) : "r"(from[k][i]));
}

/* Turn dP into dS in place, with the rounded P. */
template <backward_config cfg>
__device__ __forceinline__ void differentiate(tiles<8> &dS, const fragments<4> &P, uint32_t delta) {
    for (int tile = 0; tile < 8; tile++) {
        const float2 of = load_pair(delta, tile);
        for (int half = 0; half < 2; half++) {
            float p[2];
            widen_pair<cfg.dtype>(P[tile / 2][tile % 2 * 2 + half], p[0], p[1]);
            dS[tile][2 * half] = p[0] * (dS[tile][2 * half] - of.x);
            dS[tile][2 * half + 1] = p[1] * (dS[tile][2 * half + 1] - of.y);
        }
    }
}

/* Multiply dS by the derivative of the soft cap, if there is one, which follows from P and the log-sum-exp. */
template <backward_config cfg>
__device__ __forceinline__ void multiply_by_slope(const pass_args<cfg> &args, tiles<8> &dS, const fragments<4> &P,
                                                  uint32_t lse) {
    if (!has_cap<cfg>(args)) return;
    const float per_cap = tanh_per_exponent<cfg>(args);
    for (int tile = 0; tile < 8; tile++) {
        const float2 of = load_pair(lse, tile);
        for (int half = 0; half < 2; half++) {
            float p[2];
            widen_pair<cfg.dtype>(P[tile / 2][tile % 2 * 2 + half], p[0], p[1]);
            dS[tile][2 * half] *= slope_of_cap(p[0], of.x, per_cap);
            dS[tile][2 * half + 1] *= slope_of_cap(p[1], of.y, per_cap);
        }
    }
}

/* Put dSᵀ of the warpgroup's keys into shared memory. Lanes provide the addresses of keys 0-7 and 8-15 of eight
 * queries, then of the next eight queries. */
__device__ __forceinline__ void store_dS(uint32_t dS, const fragments<4> &a) {
    const int lane = threadIdx.x % 32, key = (threadIdx.x - WARPGROUP) / 32 * 16 + lane % 16;
    for (int k = 0; k < 4; k++) stmatrix_x4(dS + key * TILE_ROW + ((2 * k + lane / 16) ^ key % 8) * 16, a[k]);
}

#endif
