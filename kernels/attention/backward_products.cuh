/* backward_products.cuh - the products of the backward pass. Each function starts and commits one group of wgmma.
 *
 *     start_scores<cfg>(S, K, Q);          Sᵀ = K Qᵀ, and dPᵀ = V dOᵀ
 *     start_sums<cfg>(dV, P, dO);          dV += Pᵀ dO, and dK += dSᵀ Q, with the first operand in registers
 *     start_dK<cfg>(dK, dS, Q);            the same with dSᵀ in shared memory
 *     start_dQ<cfg>(dQ, dS, K_tile);       dQ = dS K, 64 columns
 */
#ifndef FL_ATTENTION_BACKWARD_PRODUCTS_CUH
#define FL_ATTENTION_BACKWARD_PRODUCTS_CUH

#include "common/ptx_backward.cuh"
#include "kernels/attention/backward_smem.cuh"
#include "kernels/attention/fragments.cuh"

/* dK or dV of a warp's 16 keys. */
template <backward_config cfg>
using key_sums = tiles<cfg.d_head == 64 ? 8 : 16>;

/* d = 64 rows of a block of B_c rows times all rows of a block of B_r rows, transposed. */
template <backward_config cfg>
__device__ __forceinline__ void start_scores(tiles<8> &d, uint32_t own, uint32_t other) {
    const uint64_t a = wgmma_descriptor(own, 0), b = wgmma_descriptor(other, 0);
#pragma unroll
    for (int k = 0; k < cfg.d_head / 16; k++) {
        const uint64_t of_a = a + k / 4 * (smem_layout<cfg>::KV_tile / 16) + k % 4 * 2;
        const uint64_t of_b = b + k / 4 * (smem_layout<cfg>::Q_tile / 16) + k % 4 * 2;
        if constexpr (cfg.dtype == FP16)
            wgmma_m64n64k16_f16(d, of_a, of_b, k > 0);
        else
            wgmma_m64n64k16_bf16(d, of_a, of_b, k > 0);
    }
    wgmma_commit_group();
}

/* sums += coefficients (64 keys by B_r queries) times the rows of Q or dO. */
template <backward_config cfg>
__device__ __forceinline__ void start_sums(key_sums<cfg> &sums, const fragments<4> &coefficients, uint32_t other) {
    const uint64_t b = wgmma_descriptor(other, smem_layout<cfg>::Q_tile);
#pragma unroll
    for (int k = 0; k < cfg.B_r / 16; k++) {
        if constexpr (cfg.d_head == 64 && cfg.dtype == FP16)
            wgmma_m64n64k16_f16_trans(sums, coefficients[k], b + 128 * k, 1);
        if constexpr (cfg.d_head == 64 && cfg.dtype == BF16)
            wgmma_m64n64k16_bf16_trans(sums, coefficients[k], b + 128 * k, 1);
        if constexpr (cfg.d_head == 128 && cfg.dtype == FP16)
            wgmma_m64n128k16_f16_trans(sums, coefficients[k], b + 128 * k, 1);
        if constexpr (cfg.d_head == 128 && cfg.dtype == BF16)
            wgmma_m64n128k16_bf16_trans(sums, coefficients[k], b + 128 * k, 1);
    }
    wgmma_commit_group();
}

/* sums += coefficients, 64 keys by B_r queries in shared memory, times the rows of Q. */
template <backward_config cfg>
__device__ __forceinline__ void start_dK(key_sums<cfg> &sums, uint32_t coefficients, uint32_t other) {
    const uint64_t a = wgmma_descriptor(coefficients, 0), b = wgmma_descriptor(other, smem_layout<cfg>::Q_tile);
#pragma unroll
    for (int k = 0; k < cfg.B_r / 16; k++) {
        if constexpr (cfg.d_head == 64 && cfg.dtype == FP16)
            wgmma_m64n64k16_f16_b_trans(sums, a + 2 * k, b + 128 * k, 1);
        if constexpr (cfg.d_head == 64 && cfg.dtype == BF16)
            wgmma_m64n64k16_bf16_b_trans(sums, a + 2 * k, b + 128 * k, 1);
        if constexpr (cfg.d_head != 64 && cfg.dtype == FP16)
            wgmma_m64n128k16_f16_b_trans(sums, a + 2 * k, b + 128 * k, 1);
        if constexpr (cfg.d_head != 64 && cfg.dtype == BF16)
            wgmma_m64n128k16_bf16_b_trans(sums, a + 2 * k, b + 128 * k, 1);
    }
    wgmma_commit_group();
}

/* dQ of B_r queries and the 64 columns of a tile of K, over B_c keys. */
template <backward_config cfg>
__device__ __forceinline__ void start_dQ(tiles<8> &dQ, uint32_t dS, uint32_t K_tile) {
    const uint64_t a = wgmma_descriptor(dS, 0), b = wgmma_descriptor(K_tile, 0);
#pragma unroll
    for (int k = 0; k < cfg.B_c / 16; k++)
        if constexpr (cfg.dtype == FP16)
            wgmma_m64n64k16_f16_both_trans(dQ, a + 128 * k, b + 128 * k, k > 0);
        else
            wgmma_m64n64k16_bf16_both_trans(dQ, a + 128 * k, b + 128 * k, k > 0);
    wgmma_commit_group();
}

#endif
