/* backward_smem.cuh - the layout of shared memory and its mbarriers.
 *
 *     const smem_layout<cfg> at(smem);
 *     init_mbarriers<cfg>(at);
 *     wait_for_phase(at.full + 8 * stage, phase);
 *     clear_rows<cfg.B_r, cfg.d_head>(at.Q, at.dO, rows);     with serve
 *
 * backward.cu describes the synchronization.
 */
#ifndef FL_ATTENTION_BACKWARD_SMEM_CUH
#define FL_ATTENTION_BACKWARD_SMEM_CUH

#include "kernels/attention/backward_schedule.cuh"
#include "kernels/attention/ring.cuh"

enum {
    WARPGROUP = 128,
    KEY_WARPS = 8,
    DQ_WARPS = 4,
    TILE_ROW = 128 /* bytes */,
    SPAN = 64 /* elements of a row of a tile */
};

/* Addresses in shared memory. Data of a block exists once per stage. */
template <backward_config cfg>
struct smem_layout {
    static constexpr uint32_t KV_tile = cfg.B_c * TILE_ROW, Q_tile = cfg.B_r * TILE_ROW;
    static constexpr uint32_t KV_bytes = cfg.d_head / SPAN * KV_tile, Q_bytes = cfg.d_head / SPAN * Q_tile;
    static constexpr uint32_t dS_bytes = cfg.B_c * TILE_ROW, row_bytes = cfg.B_r * sizeof(float);
    static constexpr uint32_t P_bytes = cfg.d_head == 256 ? dS_bytes : 0;
    uint32_t K, V, Q, dO, dS, P, lse; /* dS: the B_c keys are the rows of one tile, queries their elements; delta is
                                      after log-sum-exp */
    uint32_t KV_full, KV_empty, full, empty, dS_full, dS_empty, tile;
    uint32_t turn, turn_there, added; /* with in_order */

    __device__ __forceinline__ smem_layout(uint32_t smem)
        : K((smem + 1023) / 1024 * 1024), V(K + KV_bytes), Q(V + KV_bytes), dO(Q + cfg.stages * Q_bytes),
          dS(dO + cfg.stages * Q_bytes), P(dS + cfg.stages * dS_bytes), lse(P + cfg.stages * P_bytes),
          KV_full(lse + cfg.stages * 2 * row_bytes), KV_empty(KV_full + 8), full(KV_empty + 8),
          empty(full + 8 * cfg.stages), dS_full(empty + 8 * cfg.stages), dS_empty(dS_full + 8 * cfg.stages),
          tile((dS_empty + 8 * cfg.stages + 15) / 16 * 16), turn(tile + 128), turn_there(turn + 16 * cfg.stages),
          added(turn_there + 8 * cfg.stages) {}

    /* Published data of the CTA's tile number `turn`; there are two slots, for the current tile and the next. */
    __device__ __forceinline__ uint32_t posted(int turn) const { return tile + turn % 2 * (cfg.serves ? 64 : 32); }
};

/* A stage of a ring and the number of its phase. */
template <int stages>
struct ring_position {
    int stage = 0, phase = 0;
    __device__ __forceinline__ void advance() {
        if (++stage == stages) stage = 0, phase++;
    }
};

/* One thread initializes the mbarriers. The full mbarriers expect one arrival, from the thread that starts the copies.
 */
template <backward_config cfg>
__device__ __forceinline__ void init_mbarriers(const smem_layout<cfg> &at) {
    if (threadIdx.x == 0) {
        mbarrier_init(at.KV_full, 1);
        if (is_dynamic<cfg>) mbarrier_init(at.KV_empty, KEY_WARPS + (cfg.in_order ? DQ_WARPS : 0));
        for (int stage = 0; stage < cfg.stages; stage++) {
            mbarrier_init(at.full + 8 * stage, 1);
            mbarrier_init(at.empty + 8 * stage, KEY_WARPS + cfg.in_order);
            mbarrier_init(at.dS_full + 8 * stage, KEY_WARPS);
            mbarrier_init(at.dS_empty + 8 * stage, DQ_WARPS);
            if (cfg.in_order) mbarrier_init(at.turn_there + 8 * stage, 1);
            if (cfg.in_order) mbarrier_init(at.added + 8 * stage, DQ_WARPS);
        }
        fence_mbarrier_init();
    }
    __syncthreads(); /* they are set up */
}

/* Two blocks of B rows hold `used` rows of their sequence. The rows behind them belong to another sequence or to none,
 * and become zeros, because 0 times their NaN would be NaN. All threads of warpgroups 1 and 2, when the blocks have
 * arrived; warpgroup 0 sees the zeros because it waits for dS_full. */
template <int B, int d_head>
__device__ __forceinline__ void clear_rows(uint32_t one, uint32_t other, int used) {
    constexpr int threads = 2 * WARPGROUP, chunks = TILE_ROW / 16;
    if (used >= B) return;
    for (int chunk = used * chunks + threadIdx.x - WARPGROUP; chunk < B * chunks; chunk += threads)
        for (int tile = 0; tile < d_head / SPAN; tile++) {
            const uint32_t at = tile * B * TILE_ROW + 16 * chunk;
            store_shared_v4(one + at, 0, 0, 0, 0);
            store_shared_v4(other + at, 0, 0, 0, 0);
        }
    fence_proxy_async(); /* wgmma and the copies after it see what this thread has stored */
    bar_sync(4, threads);
}

#endif
