/* fp8_smem.cuh - layout of shared memory, its mbarriers, and the Q blocks that the producer publishes there.
 *
 *     const smem_layout<cfg> at(smem);
 *     init_mbarriers<cfg>(at);
 *     const tile_for<cfg> here = take_Q_block(at, turn);      Q block number `turn` of this CTA
 *     at.K.stage(n) + chunk_of<cfg, cfg.B_c>(row, chunk)       16 bytes of a row of Q, K or V
 */
#ifndef FL_ATTENTION_FP8_SMEM_CUH
#define FL_ATTENTION_FP8_SMEM_CUH

#include "common/fp8.h"
#include "common/serving.h"
#include "kernels/attention/schedule.cuh"

/* Types of the first parameter, of a Q block, and of the part that a warpgroup keeps of it; with several lengths it
 * reads the rest again. */
struct served_rows {
    int row, KV_blocks, seq_q, seq_k, aligned; /* row i attends to keys before i + 1 + aligned */
};

template <bool serves>
struct types_of {
    using args = fp8_args;
    using tile = work_tile;
    using kept = work_tile;
};
template <>
struct types_of<true> {
    using args = serving_args;
    using tile = varlen_tile;
    using kept = served_rows;
};
template <fp8_config cfg>
using args_for = typename types_of<cfg.serves>::args;
template <fp8_config cfg>
using tile_for = typename types_of<cfg.serves>::tile;
template <fp8_config cfg>
using kept_for = typename types_of<cfg.serves>::kept;

__device__ __forceinline__ int seen_keys(const served_rows &rows, int end) {
    return min(rows.seq_k, end + rows.aligned);
}

enum { WARPGROUP = 128, GROUP_ROWS = 64, TRANSPOSERS = 3 /* warps */, TILE_ROW = 128 /* bytes */ };

/* Addresses of the rings, and of each computing warp's part of O. */
template <fp8_config cfg>
struct smem_layout {
    static constexpr uint32_t Q_bytes = cfg.B_r * cfg.d_head, KV_bytes = cfg.B_c * cfg.d_head;
    static constexpr int Vt_row_bytes = fp8_Vt_row_bytes(&cfg);
    static constexpr uint32_t Vt_bytes = cfg.d_head * Vt_row_bytes;
    static constexpr uint32_t O_bytes = /* of a warp; 0: it stays in registers */
        fp8_by_mma_sync(&cfg) ? 0 : 16 * cfg.d_head * (cfg.flush_blocks ? 4 : 2);
    static constexpr int Q_stages = fp8_Q_stages(&cfg), V_stages = fp8_V_stages(&cfg);
    ring<Q_stages, Q_bytes> Q;
    ring<cfg.stages, KV_bytes> K;
    ring<V_stages, KV_bytes> V;
    ring<V_stages, Vt_bytes> Vt; /* V transposed */
    tile_queue<cfg> Q_blocks;
    uint32_t O;

    __device__ __forceinline__ smem_layout(uint32_t smem) {
        Q.first_stage = (smem + 1023) / 1024 * 1024;
        K.first_stage = Q.first_stage + Q_stages * Q_bytes;
        V.first_stage = K.first_stage + cfg.stages * KV_bytes;
        Vt.first_stage = V.first_stage + V_stages * KV_bytes;
        O = Vt.first_stage + V_stages * Vt_bytes;
        Q_blocks.first_stage = O + cfg.n_warps * O_bytes;
        Q.first_full = Q_blocks.first_stage + queue_slots * (cfg.serves ? 64 : 32);
        Q.first_empty = Q.first_full + 8 * 2;
        K.first_full = Q.first_empty + 8 * 2;
        K.first_empty = K.first_full + 8 * cfg.stages;
        V.first_full = K.first_empty + 8 * cfg.stages;
        V.first_empty = V.first_full + 8 * cfg.stages;
        Vt.first_full = V.first_empty + 8 * cfg.stages;
        Vt.first_empty = Vt.first_full + 8 * cfg.stages;
        Q_blocks.first_full = Vt.first_empty + 8 * cfg.stages;
        Q_blocks.first_empty = Q_blocks.first_full + 8 * queue_slots;
    }
};

/* One thread sets up the mbarriers. */
template <fp8_config cfg>
__device__ __forceinline__ void init_mbarriers(const smem_layout<cfg> &at) {
    if (threadIdx.x == 0) {
        for (int n = 0; n < at.Q_stages; n++) at.Q.init(n, cfg.n_warps);
        for (int n = 0; n < cfg.stages; n++) {
            at.K.init(n, cfg.n_warps / 4);
            if (n >= at.V_stages) continue;
            at.V.init(n, TRANSPOSERS);
            mbarrier_init(at.Vt.full(n), TRANSPOSERS);
            mbarrier_init(at.Vt.empty(n), cfg.n_warps / 4);
        }
        for (int n = 0; n < queue_slots; n++) at.Q_blocks.init(n, cfg.n_warps + TRANSPOSERS);
        fence_mbarrier_init();
    }
    __syncthreads(); /* they are set up */
}

template <fp8_config cfg>
__device__ __forceinline__ tile_for<cfg> read_Q_block(const smem_layout<cfg> &at, int turn) {
    if constexpr (cfg.serves)
        return read_varlen_tile(at.Q_blocks, turn);
    else
        return read_tile(at.Q_blocks, turn);
}

/* Wait for the Q block number `turn` and read it. */
template <fp8_config cfg>
__device__ __forceinline__ tile_for<cfg> take_Q_block(const smem_layout<cfg> &at, int turn) {
    at.Q_blocks.wait_until_full(turn);
    const tile_for<cfg> here = read_Q_block(at, turn);
    arrive_as_warp(at.Q_blocks.empty(turn));
    return here;
}

/* Read the Q block in a computing warp, which keeps the slot until it has finished the block if there are several
 * lengths. */
template <fp8_config cfg>
__device__ __forceinline__ kept_for<cfg> keep_Q_block(const args_for<cfg> &args, const smem_layout<cfg> &at, int turn) {
    if constexpr (cfg.serves) {
        at.Q_blocks.wait_until_full(turn);
        const varlen_tile here = read_Q_block(at, turn);
        const int seq_q = here.seq.seq_q, seq_k = here.seq.seq_k;
        return {here.row, here.KV_blocks, seq_q, seq_k, args.causal ? seq_k - seq_q : 1 << 30};
    } else
        return take_Q_block(at, turn);
}

/* Swizzled position of 16 bytes in a row of `row_bytes`; rows of 64 bytes use the 64-byte swizzle. */
template <int row_bytes>
__device__ __forceinline__ uint32_t swizzled(uint32_t row, uint32_t chunk) {
    return chunk ^ (row_bytes == 64 ? row / 2 % 4 : row % 8);
}

/* Rows of Q, K and V have up to 128 bytes; with d_head 256 the second half of so many rows lies after the first. */
template <fp8_config cfg>
constexpr int row_bytes = cfg.d_head == 64 ? 64 : TILE_ROW;

template <fp8_config cfg, int rows>
__device__ __forceinline__ uint32_t chunk_of(uint32_t row, uint32_t chunk) {
    if constexpr (cfg.d_head == 256)
        return chunk / 8 * rows * TILE_ROW + row * TILE_ROW + swizzled<TILE_ROW>(row, chunk % 8) * 16;
    else
        return row * cfg.d_head + swizzled<cfg.d_head>(row, chunk) * 16;
}

#endif
