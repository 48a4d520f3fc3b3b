/* backward_mma_products.cuh - the products of a step with mma.sync, each by one warp.
 *
 *     multiply_rows<cfg>(S, at.K, Q);                       Sᵀ = K Qᵀ
 *     multiply_columns<cfg>(dV, P[0][k], P[1][k], dO);      dV += Pᵀ dO for 16 queries
 *     multiply_dS<cfg>(dQ, at);                             dQ = dS K
 */
#ifndef FL_ATTENTION_BACKWARD_MMA_PRODUCTS_CUH
#define FL_ATTENTION_BACKWARD_MMA_PRODUCTS_CUH

#include "kernels/attention/backward_mma_shape.cuh"

/* scores += own rows of the pair times other rows of the warp's half, over d_head. `own` and `other` are addresses of
 * this lane. */
template <backward_config cfg>
__device__ __forceinline__ void multiply_rows(key_scores<cfg> &scores, uint32_t own, uint32_t other) {
    using shape = mma_shape<cfg>;
#pragma unroll
    for (int k = 0; k < cfg.d_head / 16; k++) {
        uint32_t a[shape::key_tiles][4];
        for (int i = 0; i < shape::key_tiles; i++) ldmatrix_x4(a[i], along_row(own, k) + 16 * i * shape::row_bytes);
#pragma unroll
        for (int tile = 0; tile < shape::tiles; tile += 2) {
            uint32_t b[4];
            ldmatrix_x4(b, along_row(other, k) + 8 * tile * shape::row_bytes);
            for (int i = 0; i < shape::key_tiles; i++) mma<cfg.dtype>(scores[i][tile], a[i], b[0], b[1]);
            for (int i = 0; i < shape::key_tiles; i++) mma<cfg.dtype>(scores[i][tile + 1], a[i], b[2], b[3]);
        }
    }
}

/* 16 rows x 64 columns, as a second operand. */
using column_operand = fragments<4>;

/* Rows 16k ... after the row that `first` is this lane's address of. */
template <backward_config cfg>
__device__ __forceinline__ void load_columns(column_operand &b, uint32_t first, int k) {
#pragma unroll
    for (int n = 0; n < 4; n++) ldmatrix_x4_trans(b[n], along_row(first, n) + 16 * k * mma_shape<cfg>::row_bytes);
}

/* gradient += coefficients of 32 keys and 16 queries, times the 16 rows. */
template <backward_config cfg>
__device__ __forceinline__ void multiply_columns(key_gradient &gradient, const uint32_t (&a0)[4],
                                                 const uint32_t (&a1)[4], const column_operand &b) {
#pragma unroll
    for (int n = 0; n < 4; n++)
        for (int tile = 0; tile < 2; tile++) {
            mma<cfg.dtype>(gradient[0][2 * n + tile], a0, b[n][2 * tile], b[n][2 * tile + 1]);
            mma<cfg.dtype>(gradient[1][2 * n + tile], a1, b[n][2 * tile], b[n][2 * tile + 1]);
        }
}

/* A warp's tile of dQ. */
template <backward_config cfg>
using dQ_tile = tiles<mma_shape<cfg>::dQ_columns / 8>[mma_shape<cfg>::dQ_rows / 16];

template <backward_config cfg>
struct dQ_position {
    int row, column;
    __device__ __forceinline__ dQ_position() {
        using shape = mma_shape<cfg>;
        const int warp = threadIdx.x / 32;
        row = warp / shape::dQ_warps_across * shape::dQ_rows;
        column = warp % shape::dQ_warps_across * shape::dQ_columns;
    }
};

/* dQ += dS K for the keys from 16 * first to 16 * end - 1 of the tile. dS is stored with a row for each key and is
 * transposed on its way to the tensor cores. */
template <backward_config cfg, int first, int end>
__device__ __forceinline__ void multiply_dS(dQ_tile<cfg> &dQ, const mma_smem<cfg> &at) {
    using shape = mma_shape<cfg>;
    const dQ_position<cfg> own;
    const uint32_t dS = along_row(at.dS + second_operand<shape::dS_row_bytes>(), own.row / 16);
    const uint32_t K = along_row(at.K + first_operand<shape::row_bytes>(), own.column / 16);
#pragma unroll
    for (int k = first; k < end; k++) {
        uint32_t a[shape::dQ_rows / 16][4];
#pragma unroll
        for (int i = 0; i < shape::dQ_rows / 16; i++)
            ldmatrix_x4_trans(a[i], along_row(dS, i) + 16 * k * shape::dS_row_bytes);
#pragma unroll
        for (int j = 0; j < shape::dQ_columns / 16; j++) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, along_row(K, j) + 16 * k * shape::row_bytes);
            for (int i = 0; i < shape::dQ_rows / 16; i++) mma<cfg.dtype>(dQ[i][2 * j], a[i], b[0], b[1]);
            for (int i = 0; i < shape::dQ_rows / 16; i++) mma<cfg.dtype>(dQ[i][2 * j + 1], a[i], b[2], b[3]);
        }
    }
}

#endif
