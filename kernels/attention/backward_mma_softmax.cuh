/* backward_mma_softmax.cuh - from scores to P and from dP to dS with mma.sync.
 *
 *     mask_after<cfg, true>(S, last_key);                   the causal mask
 *     mask_band<cfg>(S, band);                              with serve: windows, too
 *     take_exponentials<cfg>(P, S, tile, scale, lse);       P of 8 queries in 16 bits
 *     differentiate<cfg>(args, dS, P0, P1, dP, k, lse);     dS = P ∘ dP of 16 queries; dP began at -delta
 *     store_dS<cfg>(at, dS, k);
 */
#ifndef FL_ATTENTION_BACKWARD_MMA_SOFTMAX_CUH
#define FL_ATTENTION_BACKWARD_MMA_SOFTMAX_CUH

#include "common/ptx_backward_sm80.cuh"
#include "kernels/attention/backward_cap.cuh"
#include "kernels/attention/backward_mma_shape.cuh"

/* The values of two neighboring queries of a tile, from an array of the Q block in shared memory. */
template <backward_config cfg>
__device__ __forceinline__ float2 load_pair(uint32_t row_values, int tile) {
    const warp_position own;
    return ld_shared_v2_f32(row_values + 4 * (own.half * mma_shape<cfg>::queries + 8 * tile + own.column()));
}

/* Set the scores of keys after `last`, the last key that the block's first query attends to, to -inf. With the causal
 * mask each query attends to one key more than the query before it. */
template <backward_config cfg, bool causal>
__device__ __forceinline__ void mask_after(key_scores<cfg> &S, int last) {
    const warp_position own;
    const int first_query = causal ? own.half * mma_shape<cfg>::queries + own.column() : 0;
    const int behind =
        own.pair * mma_shape<cfg>::keys + own.row() - first_query - last; /* of the lane's first key and query */
    for (int tile = 0; tile < mma_shape<cfg>::tiles; tile++)
        for (int i = 0; i < mma_shape<cfg>::key_tiles; i++)
            for (int e = 0; e < 4; e++)
                if (behind > (causal ? 8 * tile + e % 2 : 0) - (16 * i + e / 2 * 8)) S[i][tile][e] = -INFINITY;
}

/* Set the scores of keys that a query does not attend to to -inf. */
template <backward_config cfg>
__device__ __forceinline__ void mask_band(key_scores<cfg> &S, const key_band &band) {
    const warp_position own;
    const int query = own.half * mma_shape<cfg>::queries + own.column();
    const int key = own.pair * mma_shape<cfg>::keys + own.row();
    for (int tile = 0; tile < mma_shape<cfg>::tiles; tile++)
        for (int i = 0; i < mma_shape<cfg>::key_tiles; i++)
            for (int e = 0; e < 4; e++)
                if (band.hides(query + 8 * tile + e % 2, key + 16 * i + e / 2 * 8)) S[i][tile][e] = -INFINITY;
}

/* P of the 8 queries of a tile. */
template <backward_config cfg>
__device__ __forceinline__ void take_exponentials(key_operands<cfg> &P, const key_scores<cfg> &S, int tile,
                                                  float exponent_scale, uint32_t lse) {
    const float2 of = load_pair<cfg>(lse, tile);
    for (int i = 0; i < mma_shape<cfg>::key_tiles; i++)
        for (int half = 0; half < 2; half++)
            P[i][tile / 2][tile % 2 * 2 + half] =
                round_pair<cfg.dtype>(ex2_approx(S[i][tile][2 * half] * exponent_scale - of.x),
                                      ex2_approx(S[i][tile][2 * half + 1] * exponent_scale - of.y));
}

/* Begin the sums of dP at -delta. */
template <backward_config cfg>
__device__ __forceinline__ void begin_dP(key_scores<cfg> &dP, uint32_t delta) {
#pragma unroll
    for (int tile = 0; tile < mma_shape<cfg>::tiles; tile++) {
        const float2 of = load_pair<cfg>(delta, tile);
        for (int i = 0; i < mma_shape<cfg>::key_tiles; i++)
            for (int e = 0; e < 4; e++) dP[i][tile][e] = e % 2 ? of.y : of.x;
    }
}

/* dS of 16 queries, with the derivative of the soft cap if there is one. P1 belongs to the second tile of keys. */
template <backward_config cfg>
__device__ __forceinline__ void differentiate(const pass_args<cfg> &args, key_operands<cfg> &dS,
                                              const uint32_t (&P0)[4], const uint32_t (&P1)[4], key_scores<cfg> &dP,
                                              int k, uint32_t lse) {
    if (has_cap<cfg>(args)) {
        const float per_cap = tanh_per_exponent<cfg>(args);
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const float2 of = load_pair<cfg>(lse, 2 * k + r / 2);
            for (int i = 0; i < mma_shape<cfg>::key_tiles; i++) {
                float low, high;
                widen_pair<cfg.dtype>(i ? P1[r] : P0[r], low, high);
                dP[i][2 * k + r / 2][r % 2 * 2] *= slope_of_cap(low, of.x, per_cap);
                dP[i][2 * k + r / 2][r % 2 * 2 + 1] *= slope_of_cap(high, of.y, per_cap);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < mma_shape<cfg>::key_tiles; i++)
        for (int r = 0; r < 4; r++) {
            float low, high;
            widen_pair<cfg.dtype>(i ? P1[r] : P0[r], low, high);
            const float (&of)[4] = dP[i][2 * k + r / 2];
            dS[i][k][r] = round_pair<cfg.dtype>(low * of[r % 2 * 2], high * of[r % 2 * 2 + 1]);
        }
}

/* Store dS of the warp's keys and of 16 queries: a row of B_r queries for each key. */
template <backward_config cfg>
__device__ __forceinline__ void store_dS(const mma_smem<cfg> &at, const key_operands<cfg> &dS, int k) {
    using shape = mma_shape<cfg>;
    const warp_position own;
    const uint32_t first =
        chunk_address<shape::dS_row_bytes>(at.dS, own.pair * shape::keys + own.row(), own.half * shape::tiles);
#pragma unroll
    for (int i = 0; i < shape::key_tiles; i++)
        for (int r = 0; r < 4; r++)
            st_shared_u32(((first + 2 * own.column()) ^ ((2 * k + r / 2) << 4)) +
                              (16 * i + r % 2 * 8) * shape::dS_row_bytes,
                          dS[i][k][r]);
}

/* This lane's address of dS of the 32 keys, as a first operand, from the first query of a half on. */
template <backward_config cfg>
__device__ __forceinline__ uint32_t dS_operand(const mma_smem<cfg> &at, int half) {
    using shape = mma_shape<cfg>;
    const uint32_t first =
        at.dS + gradient_key<cfg>(warp_position()) * shape::dS_row_bytes + first_operand<shape::dS_row_bytes>();
    return along_row(first, half * shape::steps);
}

/* Load dS of 32 keys and 16 queries. */
template <backward_config cfg>
__device__ __forceinline__ void load_dS(uint32_t (&a)[2][4], uint32_t operand, int k) {
    for (int i = 0; i < 2; i++) ldmatrix_x4(a[i], along_row(operand, k) + 16 * i * mma_shape<cfg>::dS_row_bytes);
}

/* P of 16 queries, in the order of fragments. */
template <backward_config cfg>
__device__ __forceinline__ void store_P(const mma_smem<cfg> &at, const key_operands<cfg> &P, int k) {
    for (int i = 0; i < mma_shape<cfg>::key_tiles; i++) st_shared_v4(at.P_of(warp_position().warp, i, k), P[i][k]);
}
template <backward_config cfg>
__device__ __forceinline__ void load_P(uint32_t (&P)[2][4], const mma_smem<cfg> &at, int warp, int k) {
    for (int i = 0; i < 2; i++) ld_shared_v4(P[i], at.P_of(warp, i, k));
}

#endif
