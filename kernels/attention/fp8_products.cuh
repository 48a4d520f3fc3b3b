/* fp8_products.cuh - S = Q Kᵀ and O += P V. start_S and start_O start and commit one group of wgmma each.
 *
 *     start_S<cfg>(S, Q_rows, K);
 *     start_O<cfg>(O, P, Vt, accumulate);
 *     compute_S_again<cfg>(args, S, Q, first_key, here);       by mma.sync, where the exponentials of S overflowed
 */
#ifndef FL_ATTENTION_FP8_PRODUCTS_CUH
#define FL_ATTENTION_FP8_PRODUCTS_CUH

#include "common/ptx_fp8.cuh"
#include "kernels/attention/fp8_smem.cuh"
#include "kernels/attention/kv.cuh"

template <fp8_config cfg>
using scores = float[cfg.B_c / 8][4];
template <fp8_config cfg>
using weights = uint32_t[cfg.B_c / 32][4]; /* P in e4m3, as the first operand of wgmma */
template <fp8_config cfg>
using sums_of_V = float[cfg.d_head / 8][4];

/* With 64-byte rows, 8 rows are 512 bytes, and bits 62 and 63 are 2: the swizzle of 64-byte rows. */
template <int row_bytes>
__device__ __forceinline__ uint64_t rows_descriptor(uint32_t smem_addr) {
    return row_bytes == 64 ? (uint64_t)2 << 62 | (uint64_t)(512 / 16) << 32 | smem_addr / 16
                           : wgmma_descriptor(smem_addr, 0);
}

/* Offset of columns 32k ... of `rows` rows, in units of 16 bytes. */
__device__ constexpr int step_of(int k, int rows) {
    return 2 * (k % 4) + k / 4 * (rows * TILE_ROW / 16);
}

template <fp8_config cfg>
__device__ __forceinline__ void start_S(scores<cfg> &S, uint32_t Q, uint32_t K) {
    const uint64_t a = rows_descriptor<row_bytes<cfg>>(Q), b = rows_descriptor<row_bytes<cfg>>(K);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < cfg.d_head / 32; k++)
        if constexpr (cfg.B_c == 64)
            wgmma_m64n64k32_e4m3(S, a + step_of(k, GROUP_ROWS), b + step_of(k, cfg.B_c), k > 0);
        else if constexpr (cfg.B_c == 96)
            wgmma_m64n96k32_e4m3(S, a + 2 * k, b + 2 * k, k > 0);
        else
            wgmma_m64n128k32_e4m3(S, a + 2 * k, b + 2 * k, k > 0);
    wgmma_commit_group();
}

template <fp8_config cfg>
__device__ __forceinline__ void start_O(sums_of_V<cfg> &O, const weights<cfg> &P, uint32_t Vt, bool accumulate) {
    const uint64_t b = rows_descriptor<smem_layout<cfg>::Vt_row_bytes>(Vt);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < cfg.B_c / 32; k++)
        if constexpr (cfg.d_head == 64)
            wgmma_m64n64k32_e4m3(O, P[k], b + 2 * k, k > 0 || accumulate);
        else if constexpr (cfg.d_head == 256)
            wgmma_m64n256k32_e4m3(O, P[k], b + 2 * k, k > 0 || accumulate);
        else
            wgmma_m64n128k32_e4m3(O, P[k], b + 2 * k, k > 0 || accumulate);
    wgmma_commit_group();
}

/* S of the warp's 16 rows once more, after its exponentials have overflowed: by mma.sync, with K from global memory.
 * `Q` is the address of these rows. */
template <fp8_config cfg>
__device__ __forceinline__ void compute_S_again(const args_for<cfg> &args, scores<cfg> &S, uint32_t Q, int first_key,
                                                const tile_for<cfg> &here) {
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const KV_position from = find_KV_block<cfg.B_c>(here, 0);
    const uint8_t *const K = (const uint8_t *)args.K + from.sample * args.K_strides.batch +
                             from.head * args.K_strides.head + (from.row + first_key + g) * args.K_strides.seq + 4 * q;
    for (int k = 0; k < cfg.d_head / 32; k++) {
        uint32_t a[4];
        for (int i = 0; i < 4; i++) /* rows g and g + 8, then the next 16 bytes of them */
            a[i] = load_shared(Q + chunk_of<cfg, GROUP_ROWS>(g + i % 2 * 8, 2 * k + i / 2) + 4 * q);
        for (int tile = 0; tile < cfg.B_c / 8; tile++) {
            const uint32_t *const b = (const uint32_t *)(K + 8 * tile * args.K_strides.seq + 32 * k);
            if (k == 0)
                for (int i = 0; i < 4; i++) S[tile][i] = 0;
            mma_m16n8k32_e4m3(S[tile], a, b[0], b[4]);
        }
    }
}

#endif
