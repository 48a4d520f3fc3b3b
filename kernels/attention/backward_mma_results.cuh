/* backward_mma_results.cuh - adds dQ to its fp32 sums, and writes dK and dV, with mma.sync.
 *
 *     wait_for_own_turn<cfg>(args, at, steps, now);         with in_order
 *     add_dQ<cfg>(sums_of_block, dQ);
 *     pass_turn<cfg>(args, at);
 *     store_gradients<cfg>(args, at, steps, dK, dV);
 */
#ifndef FL_ATTENTION_BACKWARD_MMA_RESULTS_CUH
#define FL_ATTENTION_BACKWARD_MMA_RESULTS_CUH

#include "common/ptx_backward_sm80.cuh"
#include "kernels/attention/backward_mma_copies.cuh"
#include "kernels/attention/backward_mma_products.cuh"
#include "kernels/attention/backward_turns.cuh"

/* Add a warp's tile of dQ to the sums of a Q block: 128 floats for each tile of 16 rows x 8 columns, four times those
 * of the 32 lanes side by side, in the order that round_rows() reads. */
template <backward_config cfg>
__device__ __forceinline__ void add_dQ(float *sums, const dQ_tile<cfg> &dQ) {
    const dQ_position<cfg> own;
    const int tile = (own.column / 64 * (cfg.B_r / 16) + own.row / 16) * 8 + own.column % 64 / 8;
    float *const first = sums + tile * 128 + threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < mma_shape<cfg>::dQ_rows / 16; i++)
        for (int j = 0; j < mma_shape<cfg>::dQ_columns / 8; j++)
            for (int e = 0; e < 4; e++) red_add(first + ((i * 8 + j) * 4 + e) * 32, dQ[i][j][e]);
}

/* With in_order each warp waits until the CTAs before this one have added to its part of a Q block, and keeps in shared
 * memory which turn it will pass on, with which value. */
template <backward_config cfg>
__device__ __forceinline__ void wait_for_own_turn(const pass_args<cfg> &args, const mma_smem<cfg> &at,
                                                  const tile_steps<cfg> &steps, const step_position &now) {
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) {
        const int first = first_in_order<cfg>(args, steps.tile, now.block);
        const int last = last_seen<cfg>(args, steps.tile.seq, now.block);
        const int own = position_in_order<cfg>(args, steps.tile, first, last);
        const int turn = BACKWARD_COUNTERS + (int)steps.number(now) * cfg.n_warps + warp;
        wait_for_turn(args.turns + turn, own);
        store_shared_v4(at.turns + 16 * warp, turn, own + 1, 0, 0);
    }
    __syncwarp();
}

/* Pass on the turn of a step. A warp does so during the next step, when what it added has long arrived. */
template <backward_config cfg>
__device__ __forceinline__ void pass_turn(const pass_args<cfg> &args, const mma_smem<cfg> &at) {
    __syncwarp(); /* all lanes have added */
    if (threadIdx.x % 32) return;
    int turn, next, unused;
    load_shared_v4(at.turns + threadIdx.x / 32 * 16, turn, next, unused, unused);
    st_release(args.turns + turn, next);
}

/* Round 32 keys x 64 columns of a gradient, times a factor, to the warp's own 32 rows of shared memory, and write them
 * from there, eight lanes for 128 bytes of a row. `block` is the address of the tile's first row and of the columns. */
template <backward_config cfg>
__device__ __forceinline__ void store_rows(uint16_t *gmem, int64_t seq_stride, int there, uint32_t block,
                                           const key_gradient &gradient, float factor) {
    using shape = mma_shape<cfg>;
    const warp_position own;
    const int first = gradient_key<cfg>(own);
    for (int i = 0; i < 2; i++)
        for (int half = 0; half < 2; half++)
            for (int tile = 0; tile < 8; tile++)
                st_shared_u32(chunk_address<shape::row_bytes>(block, first + 16 * i + 8 * half + own.row(), tile) +
                                  2 * own.column(),
                              round_pair<cfg.dtype>(factor * gradient[i][tile][2 * half],
                                                    factor * gradient[i][tile][2 * half + 1]));
    __syncwarp();
    for (int row = first + own.lane / 8; row < min(first + 32, there); row += 4) {
        uint32_t chunk[4];
        ld_shared_v4(chunk, chunk_address<shape::row_bytes>(block, row, own.lane % 8));
        st_global_v4(gmem + row * seq_stride + own.lane % 8 * 8, chunk);
    }
}

/* Put a gradient into shared memory, and add what is there: 16 bytes for each lane. */
__device__ __forceinline__ void store_partial(uint32_t smem, const key_gradient &gradient) {
    for (int i = 0; i < 2; i++)
        for (int tile = 0; tile < 8; tile++) {
            uint32_t bits[4];
            for (int e = 0; e < 4; e++) bits[e] = __float_as_uint(gradient[i][tile][e]);
            st_shared_v4(smem + ((i * 8 + tile) * 32 + threadIdx.x % 32) * 16, bits);
        }
}
__device__ __forceinline__ void add_partial(key_gradient &gradient, uint32_t smem) {
    for (int i = 0; i < 2; i++)
        for (int tile = 0; tile < 8; tile++) {
            uint32_t bits[4];
            ld_shared_v4(bits, smem + ((i * 8 + tile) * 32 + threadIdx.x % 32) * 16);
            for (int e = 0; e < 4; e++) gradient[i][tile][e] += __uint_as_float(bits[e]);
        }
}

/* The two warps of a pair have sums over different queries: warp 0 adds up dK, warp 1 dV. */
template <backward_config cfg>
__device__ __forceinline__ void add_pair(const mma_smem<cfg> &at, key_gradient &dK, key_gradient &dV) {
    constexpr int bytes = 32 * 64 * 4;
    const warp_position own;
    if (own.half)
        store_partial(at.K + own.warp * bytes, dK);
    else
        store_partial(at.K + own.warp * bytes, dV);
    __syncthreads();
    if (own.half)
        add_partial(dV, at.K + (own.warp ^ 1) * bytes);
    else
        add_partial(dK, at.K + (own.warp ^ 1) * bytes);
    __syncthreads(); /* the rows of K and V are written next */
}

/* Write dK and dV of the tile's keys, by way of the space of K and V, which no warp reads any more. */
template <backward_config cfg>
__device__ __forceinline__ void store_gradients(const pass_args<cfg> &args, const mma_smem<cfg> &at,
                                                const tile_steps<cfg> &steps, key_gradient &dK, key_gradient &dV) {
    using shape = mma_shape<cfg>;
    const warp_position own;
    const work<cfg> &tile = steps.tile;
    const int row = steps.first_row_k + steps.first_key(), there = steps.seq_k - steps.first_key();
    const int column = shape::exchanges ? gradient_column<cfg>(own) : 0;
    const tensor_strides &of_K = args.dK_strides, &of_V = args.dV_strides;
    uint16_t *const to_dK =
        (uint16_t *)args.dK + sample_of<cfg>(tile) * of_K.batch + tile.KV_head * of_K.head + row * of_K.seq + column;
    uint16_t *const to_dV =
        (uint16_t *)args.dV + sample_of<cfg>(tile) * of_V.batch + tile.KV_head * of_V.head + row * of_V.seq + column;
    __syncthreads();
    if constexpr (!shape::exchanges) add_pair<cfg>(at, dK, dV);
    if (shape::exchanges || own.half == 0)
        store_rows<cfg>(to_dK, of_K.seq, there, at.K + 2 * column, dK, args.softmax_scale);
    if (shape::exchanges || own.half == 1) store_rows<cfg>(to_dV, of_V.seq, there, at.V + 2 * column, dV, 1);
}

#endif
