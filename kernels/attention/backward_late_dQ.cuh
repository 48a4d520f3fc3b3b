/* backward_late_dQ.cuh - one tile per CTA: two warpgroups copy and compute everything, and dQ follows one step later.
 *
 *     multiply_late<cfg>(args, maps);
 *
 * A step processes a Q block of 128 queries. Each warpgroup has 64 of the tile's 128 keys for S, dP, dK and dV, and 64
 * of the queries for dQ. dK and dV take half of a thread's registers; S, then dQ, then dP a quarter; P, then dS an
 * eighth. This leaves no registers for a third warpgroup. A step of a warpgroup with d_head 128:
 *
 *     S(i), while dK(i - 1) finishes                         then P, rounded
 *     half of dQ(i - 1), half of dV(i), and again            each half of dQ is added during the half of dV after it
 *     dP(i)                                                  then dS, rounded, in place of P and to shared memory
 *     dK(i)
 *
 * dQ needs dS of both warpgroups. One step later it waits for neither of them. The additions leave the SM slowly, and
 * shared memory accesses queue up behind them, so dQ is added in halves. Warpgroup 0, whose first thread starts the
 * copies, starts S after warpgroup 1 has finished S, so that the exponentials of one overlap with products of the
 * other.
 *
 * With d_head 64, registers are left for more overlap: dP(i) is started right after S(i), P and dS have registers of
 * their own, and dS is computed during dQ(i - 1) and dV(i). Shared memory holds dS of two steps.
 */
#ifndef FL_ATTENTION_BACKWARD_LATE_DQ_CUH
#define FL_ATTENTION_BACKWARD_LATE_DQ_CUH

#include "kernels/attention/backward_products.cuh"
#include "kernels/attention/backward_results.cuh"
#include "kernels/attention/backward_softmax.cuh"
#include "kernels/attention/epilogue.cuh"

/* ---- shared memory ---- */

/* Addresses. Blocks are tiles of 64 columns and 128 rows. The rows of dS are queries, its columns keys. The log-sum-exp
 * of the queries is copied with Q, their delta with dO. */
template <backward_config cfg>
struct late_layout {
    static constexpr uint32_t tile = 128 * TILE_ROW, block_bytes = cfg.d_head / SPAN * tile, dS_bytes = 2 * tile;
    static constexpr uint32_t row_bytes = cfg.B_r * sizeof(float);
    static constexpr int dS_stages = cfg.d_head == 64 ? 2 : 1;
    uint32_t K;

    __device__ __forceinline__ uint32_t V() const { return K + block_bytes; }
    __device__ __forceinline__ uint32_t Q(int stage) const { return V() + (1 + stage) * block_bytes; }
    __device__ __forceinline__ uint32_t dO(int stage) const { return V() + (1 + cfg.stages + stage) * block_bytes; }
    __device__ __forceinline__ uint32_t dS(int stage) const {
        return V() + (1 + 2 * cfg.stages) * block_bytes + stage % dS_stages * dS_bytes;
    }
    __device__ __forceinline__ uint32_t lse(int stage) const {
        return dS(0) + dS_stages * dS_bytes + stage * 2 * row_bytes;
    }
    __device__ __forceinline__ uint32_t delta(int stage) const { return lse(stage) + row_bytes; }

    /* Mbarriers: a copy has arrived (full), all warps have read a stage or dS (empty), all warps have stored dS. */
    __device__ __forceinline__ uint32_t K_full() const { return lse(cfg.stages); }
    __device__ __forceinline__ uint32_t V_full() const { return K_full() + 8; }
    __device__ __forceinline__ uint32_t dS_empty() const { return K_full() + 16; }
    __device__ __forceinline__ uint32_t dS_full(int stage) const { return K_full() + 24 + 8 * (stage % dS_stages); }
    __device__ __forceinline__ uint32_t Q_full(int stage) const { return K_full() + 40 + 8 * stage; }
    __device__ __forceinline__ uint32_t dO_full(int stage) const { return Q_full(cfg.stages + stage); }
    __device__ __forceinline__ uint32_t empty(int stage) const { return Q_full(2 * cfg.stages + stage); }
};

template <backward_config cfg>
__device__ __forceinline__ void init_mbarriers(const late_layout<cfg> &at) {
    if (threadIdx.x == 0) {
        mbarrier_init(at.K_full(), 1), mbarrier_init(at.V_full(), 1);
        mbarrier_init(at.dS_empty(), KEY_WARPS);
        for (int stage = 0; stage < at.dS_stages; stage++) mbarrier_init(at.dS_full(stage), KEY_WARPS);
        for (int stage = 0; stage < cfg.stages; stage++) {
            mbarrier_init(at.Q_full(stage), 1), mbarrier_init(at.dO_full(stage), 1);
            mbarrier_init(at.empty(stage), KEY_WARPS);
        }
        fence_mbarrier_init();
    }
    __syncthreads(); /* the mbarriers are initialized */
}

/* ---- which Q block ---- */

/* The Q block of a step; `from_first` counts from the first block that attends to the keys. */
struct late_step {
    int head, from_first;

    template <backward_config cfg>
    __device__ __forceinline__ void advance(const own_work<cfg> &all) {
        if (++from_first == all.blocks) from_first = 0;
        if (from_first == all.start) head++;
    }
};
/* Its number among those of all heads. */
template <backward_config cfg>
__device__ __forceinline__ int64_t block_number(const pass_args<cfg> &args, const own_work<cfg> &all,
                                                const late_step &step) {
    return first_block_of<cfg>(args, all.seq, all.sample, step.head) + all.first_block + step.from_first;
}

/* ---- copies: one thread ---- */

/* Q and dO of a step, with the statistics of their queries. */
template <backward_config cfg>
__device__ __forceinline__ void copy_late_step(const pass_args<cfg> &args, const tensor_maps &maps,
                                               const late_layout<cfg> &at, const own_work<cfg> &all,
                                               const late_step &step, int stage) {
    using of = late_layout<cfg>;
    const float *const kept = args.delta + block_number<cfg>(args, all, step) * 2 * cfg.B_r;
    const int row = (all.first_block + step.from_first) * cfg.B_r;
    mbarrier_arrive_expect_tx(at.Q_full(stage), of::block_bytes + of::row_bytes);
    copy_tensor_to_smem(at.Q(stage), maps.Q, at.Q_full(stage), row, step.head, all.sample);
    copy_bytes_to_smem(at.lse(stage), kept, of::row_bytes, at.Q_full(stage));
    mbarrier_arrive_expect_tx(at.dO_full(stage), of::block_bytes + of::row_bytes);
    copy_tensor_to_smem(at.dO(stage), maps.O, at.dO_full(stage), row, step.head, all.sample);
    copy_bytes_to_smem(at.delta(stage), kept + cfg.B_r, of::row_bytes, at.dO_full(stage));
}

/* ---- products: each starts and commits a group of wgmma ---- */

/* d = 64 rows of K or V times the 128 rows of Q or dO, transposed. */
template <backward_config cfg>
__device__ __forceinline__ void start_late_scores(tiles<16> &d, uint32_t own, uint32_t other) {
    const uint64_t a = wgmma_descriptor(own, 0), b = wgmma_descriptor(other, 0);
#pragma unroll
    for (int k = 0; k < cfg.d_head / 16; k++) {
        const int offset = k / 4 * (late_layout<cfg>::tile / 16) + k % 4 * 2;
        if constexpr (cfg.dtype == FP16)
            wgmma_m64n128k16_f16(d, a + offset, b + offset, k > 0);
        else
            wgmma_m64n128k16_bf16(d, a + offset, b + offset, k > 0);
    }
    wgmma_commit_group();
}

/* sums += coefficients times the rows of Q or dO, for the queries of operands `first` to `end` - 1, 16 each. Without
 * `accumulate` the first product sets the sums. */
template <backward_config cfg>
__device__ __forceinline__ void start_late_sums(key_sums<cfg> &sums, const fragments<8> &coefficients, uint32_t other,
                                                int first, int end, int accumulate) {
    const uint64_t b = wgmma_descriptor(other, late_layout<cfg>::tile);
#pragma unroll
    for (int k = first; k < end; k++) {
        const int adds = k > 0 ? 1 : accumulate;
        if constexpr (cfg.d_head == 64 && cfg.dtype == FP16)
            wgmma_m64n64k16_f16_trans(sums, coefficients[k], b + 128 * k, adds);
        if constexpr (cfg.d_head == 64 && cfg.dtype == BF16)
            wgmma_m64n64k16_bf16_trans(sums, coefficients[k], b + 128 * k, adds);
        if constexpr (cfg.d_head == 128 && cfg.dtype == FP16)
            wgmma_m64n128k16_f16_trans(sums, coefficients[k], b + 128 * k, adds);
        if constexpr (cfg.d_head == 128 && cfg.dtype == BF16)
            wgmma_m64n128k16_bf16_trans(sums, coefficients[k], b + 128 * k, adds);
    }
    wgmma_commit_group();
}

/* dQ of 64 queries and the 64 columns of a tile of K, over all keys. */
template <backward_config cfg>
__device__ __forceinline__ void start_late_dQ(tiles<8> &dQ, uint32_t dS, uint32_t K_tile) {
    const uint64_t a = wgmma_descriptor(dS, 0), b = wgmma_descriptor(K_tile, 0);
#pragma unroll
    for (int k = 0; k < cfg.B_c / 16; k++) {
        const uint64_t of_dS = a + k / 4 * (late_layout<cfg>::tile / 16) + k % 4 * 2;
        if constexpr (cfg.dtype == FP16)
            wgmma_m64n64k16_f16_b_trans(dQ, of_dS, b + 128 * k, k > 0);
        else
            wgmma_m64n64k16_bf16_b_trans(dQ, of_dS, b + 128 * k, k > 0);
    }
    wgmma_commit_group();
}

/* ---- from S to P, and from dP to dS: the statistics of eight tiles are loaded together, to wait for them once ---- */

constexpr int tiles_at_once = 8;
using late_statistics = float2[tiles_at_once];

__device__ __forceinline__ void load_statistics(late_statistics &of, uint32_t smem, int first) {
#pragma unroll
    for (int i = 0; i < tiles_at_once; i++) of[i] = load_pair(smem, first + i);
}

/* P = exp(S - log-sum-exp), rounded; 0 for keys after `last`, the last of the tile that the first query attends to.
 * With the causal mask each query attends to one more key than the query before it. */
template <backward_config cfg, bool masked>
__device__ __forceinline__ void round_exponentials(fragments<8> &P, const tiles<16> &S, float scale, uint32_t lse,
                                                   int last, bool causal) {
    const int lane = threadIdx.x % 32, key = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int first = 0; first < 16; first += tiles_at_once) {
        late_statistics of;
        load_statistics(of, lse, first);
#pragma unroll
        for (int tile = first; tile < first + tiles_at_once; tile++) {
            float p[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                p[i] = ex2_approx(S[tile][i] * scale - (i % 2 ? of[tile - first].y : of[tile - first].x));
                if (masked && key + i / 2 * 8 > last + (causal ? 8 * tile + lane % 4 * 2 + i % 2 : 0)) p[i] = 0;
            }
            for (int half = 0; half < 2; half++)
                P[tile / 2][tile % 2 * 2 + half] = round_pair<cfg.dtype>(p[2 * half], p[2 * half + 1]);
        }
    }
}

/* P to dS = P (dP - delta), rounded, in place: eight tiles. */
template <backward_config cfg>
__device__ __forceinline__ void round_dS(fragments<8> &P, const tiles<16> &dP, const late_statistics &delta,
                                         int first) {
#pragma unroll
    for (int tile = first; tile < first + tiles_at_once; tile++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t &pair = P[tile / 2][tile % 2 * 2 + half];
            float p[2];
            widen_pair<cfg.dtype>(pair, p[0], p[1]);
            pair = round_pair<cfg.dtype>(p[0] * (dP[tile][2 * half] - delta[tile - first].x),
                                         p[1] * (dP[tile][2 * half + 1] - delta[tile - first].y));
        }
}

/* Store eight tiles of dS in shared memory, transposed. Lanes provide the addresses of queries 0-7 for keys 0-7 and
 * 8-15 of the warp, then those of queries 8-15. */
template <backward_config cfg>
__device__ __forceinline__ void store_late_dS(uint32_t dS, const fragments<8> &of, int first) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, chunk = warp % 4 * 2 + lane / 8 % 2;
    const uint32_t row =
        dS + warp / 4 * late_layout<cfg>::tile + (lane / 16 * 8 + lane % 8) * TILE_ROW + (chunk ^ lane % 8) * 16;
#pragma unroll
    for (int k = first / 2; k < (first + tiles_at_once) / 2; k++) stmatrix_x4_trans(row + k * 16 * TILE_ROW, of[k]);
}

/* ---- the results ---- */

/* Write the warp's 16 keys of a gradient, times a factor, 16 bytes a lane. */
template <backward_config cfg>
__device__ __forceinline__ void store_late_rows(void *gmem, const tensor_strides &strides, int seq_k,
                                                const work<cfg> &of, const key_sums<cfg> &sums, float factor) {
    const int lane = threadIdx.x % 32, row = of.KV_block * cfg.B_c + threadIdx.x / 32 * 16 + lane / 4;
    uint16_t *const first =
        (uint16_t *)gmem + of.sample * strides.batch + of.KV_head * strides.head + row * strides.seq + lane % 4 * 8;
    for (int half = 0; half < 2; half++)
        for (int tile = 0; tile < cfg.d_head / 8; tile += 4) {
            uint32_t pairs[4];
            for (int i = 0; i < 4; i++)
                pairs[i] =
                    round_pair<cfg.dtype>(factor * sums[tile + i][2 * half], factor * sums[tile + i][2 * half + 1]);
            transpose_quad(pairs, lane % 4);
            if (row + 8 * half < seq_k) st_global_v4(first + 8 * half * strides.seq + 8 * tile, pairs);
        }
}

/* ---- a tile ---- */

/* The struct refers to arrays in registers, which must be variables of the kernel. */
template <backward_config cfg>
struct late_tile {
    using of = late_layout<cfg>;
    const pass_args<cfg> &args;
    const tensor_maps &maps;
    const of at;
    const own_work<cfg> &all;
    key_sums<cfg> &dK, &dV;
    fragments<8> &P, &dS; /* one array with d_head 128 */

    const int group = warp_uniform(threadIdx.x / WARPGROUP);
    const uint32_t own_K = at.K + group * 64 * TILE_ROW, own_V = at.V() + group * 64 * TILE_ROW;

    __device__ __forceinline__ void copy_first(late_step step, int steps) const {
        const int row = all.KV_block * cfg.B_c;
        mbarrier_arrive_expect_tx(at.K_full(), of::block_bytes);
        copy_tensor_to_smem(at.K, maps.K, at.K_full(), row, all.KV_head, all.sample);
        copy_late_step<cfg>(args, maps, at, all, step, 0);
        mbarrier_arrive_expect_tx(at.V_full(), of::block_bytes);
        copy_tensor_to_smem(at.V(), maps.V, at.V_full(), row, all.KV_head, all.sample);
        step.advance(all);
        if (steps > 1) copy_late_step<cfg>(args, maps, at, all, step, 1);
    }

    __device__ __forceinline__ void copy_next(int step, int stage, const late_step &next) const {
        wait_for_phase(at.empty(1 - stage), (step + 1) / 2 - 1);
        copy_late_step<cfg>(args, maps, at, all, next, 1 - stage);
    }

    __device__ __forceinline__ void round_P(const tiles<16> &S, int stage, int last) const {
        const float scale = args.softmax_scale * 1.44269504f;
        if (last < cfg.B_c - 1)
            round_exponentials<cfg, true>(P, S, scale, at.lse(stage), last, args.causal);
        else
            round_exponentials<cfg, false>(P, S, scale, at.lse(stage), last, args.causal);
    }

    /* dS in place of P, and in shared memory. If that has one dS only, dQ of the step before must have read it. */
    __device__ __forceinline__ void store_dS(fragments<8> &P, const tiles<16> &dP, int step, int stage) const {
        late_statistics delta, next_delta;
        load_statistics(delta, at.delta(stage), 0);
        round_dS<cfg>(P, dP, delta, 0);
        load_statistics(next_delta, at.delta(stage), tiles_at_once);
        if constexpr (of::dS_stages == 1) wait_for_phase(at.dS_empty(), step - 1);
        store_late_dS<cfg>(at.dS(stage), P, 0);
        round_dS<cfg>(P, dP, next_delta, tiles_at_once);
        store_late_dS<cfg>(at.dS(stage), P, tiles_at_once);
        fence_proxy_async(); /* wgmma reads through the async proxy */
    }

    __device__ __forceinline__ void wait_for_dS(int step) const {
        wait_for_phase(at.dS_full(step), step / of::dS_stages);
    }
    __device__ __forceinline__ uint32_t own_dS(int step) const { return at.dS(step) + group * 64 * TILE_ROW; }

    /* ---- d_head 128 ---- */

    /* S, and dK of the step before ends. */
    __device__ __forceinline__ void compute_P(int step, int stage, int last) const {
        tiles<16> S;
        wait_for_phase(at.Q_full(stage), step / 2);
        if (group == 0) bar_sync(2 + stage, 2 * WARPGROUP);
        wgmma_fence();
        start_late_scores<cfg>(S, own_K, at.Q(stage));
        if (step == 0) wait_for_phase(at.V_full(), 0);
        wgmma_wait_group<0>(S);
        wgmma_wait_group<0>(dK);
        if (step > 0) arrive_as_warp(at.empty(1 - stage));
        if (group == 1) bar_arrive(2 + stage, 2 * WARPGROUP);
        round_P(S, stage, last);
    }

    /* dV, beside dQ of the step before. */
    __device__ __forceinline__ void compute_dV(int step, int stage, float *sums) const {
        wait_for_phase(at.dO_full(stage), step / 2);
        if (step == 0) {
            wgmma_fence();
            start_late_sums<cfg>(dV, P, at.dO(stage), 0, 8, 0);
            return;
        }
        tiles<8> left, right;
        wait_for_dS(step - 1);
        wgmma_fence();
        start_late_dQ<cfg>(left, own_dS(step - 1), at.K);
        start_late_sums<cfg>(dV, P, at.dO(stage), 0, 4, 1);
        start_late_dQ<cfg>(right, own_dS(step - 1), at.K + of::tile);
        start_late_sums<cfg>(dV, P, at.dO(stage), 4, 8, 1);
        wgmma_wait_group<3>(left);
        add_dQ(sums, left);
        wgmma_wait_group<1>(right);
        arrive_as_warp(at.dS_empty());
        add_dQ(sums + cfg.B_r * SPAN, right);
    }

    __device__ __forceinline__ void compute_dS(int step, int stage, const late_step &next, bool copies) const {
        tiles<16> dP;
        wgmma_fence();
        start_late_scores<cfg>(dP, own_V, at.dO(stage));
        if (copies) copy_next(step, stage, next);
        __syncwarp();
        wgmma_wait_group<0>(dP);
        wgmma_wait_group<0>(dV);
        store_dS(P, dP, step, stage);
        arrive_as_warp(at.dS_full(step));
    }

    /* ---- d_head 64 ---- */

    /* A warp arrives at dS_full only after its dQ of the step before is complete. The other warpgroup waits for that
     * before its next dQ, so the older dS is free when it stores the next one. */
    __device__ __forceinline__ void step_of_64(int step, int stage, int last, float *sums, const late_step &next,
                                               bool copies) const {
        tiles<16> S, dP;
        wait_for_phase(at.Q_full(stage), step / 2);
        if (step == 0) wait_for_phase(at.V_full(), 0);
        wgmma_fence();
        start_late_scores<cfg>(S, own_K, at.Q(stage));
        wait_for_phase(at.dO_full(stage), step / 2);
        wgmma_fence();
        start_late_scores<cfg>(dP, own_V, at.dO(stage));
        wgmma_wait_group<1>(S);
        wgmma_wait_group<1>(dK);
        if (step > 0) arrive_as_warp(at.empty(1 - stage));
        round_P(S, stage, last);
        copy_registers(dS, P);
        if (copies) copy_next(step, stage, next);
        __syncwarp();
        if (step > 0) {
            tiles<8> dQ;
            wait_for_dS(step - 1);
            wgmma_fence();
            start_late_dQ<cfg>(dQ, own_dS(step - 1), at.K);
            start_late_sums<cfg>(dV, P, at.dO(stage), 0, 8, 1);
            wgmma_wait_group<2>(dP);
            store_dS(dS, dP, step, stage);
            wgmma_wait_group<1>(dQ);
            arrive_as_warp(at.dS_full(step));
            add_dQ(sums, dQ);
        } else {
            wgmma_fence();
            start_late_sums<cfg>(dV, P, at.dO(stage), 0, 8, 0);
            wgmma_wait_group<1>(dP);
            store_dS(dS, dP, step, stage);
            arrive_as_warp(at.dS_full(step));
        }
        wgmma_wait_group<0>(dV);
    }

    /* ---- the loop ---- */

    __device__ __forceinline__ float *sums_of(const late_step &step) const {
        return args.sums + block_number<cfg>(args, all, step) * (cfg.B_r * cfg.d_head);
    }

    __device__ __forceinline__ void multiply() const {
        const int steps = all.steps();
        const int last_key = keys_of<cfg>(args, all.seq) - 1 - all.KV_block * cfg.B_c; /* of the last query */
        const int first_last =
            args.causal ? last_key - (queries_of<cfg>(args, all.seq) - 1) + all.first_block * cfg.B_r : last_key;
        late_step now = {all.KV_head * all.heads, all.start};
        float *sums = nullptr; /* of dQ of the step before */
        if (threadIdx.x == 0) copy_first(now, steps);
        __syncwarp();
        wait_for_phase(at.K_full(), 0);
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
            const int stage = step % 2;
            const int last = args.causal ? first_last + now.from_first * cfg.B_r : last_key;
            const bool copies = threadIdx.x == 0 && step > 0 && step + 1 < steps;
            if constexpr (cfg.d_head == 64) {
                float *const before = sums;
                sums = sums_of(now);
                now.advance(all);
                step_of_64(step, stage, last, before, now, copies);
            } else {
                compute_P(step, stage, last);
                compute_dV(step, stage, sums);
                sums = sums_of(now);
                now.advance(all);
                compute_dS(step, stage, now, copies);
            }
            wgmma_fence();
            start_late_sums<cfg>(dK, dS, at.Q(stage), 0, 8, step > 0);
        }
        wgmma_wait_group<0>(dK);
        wait_for_dS(steps - 1);
#pragma unroll 1
        for (int span = 0; span < cfg.d_head / SPAN; span++) {
            tiles<8> dQ;
            wgmma_fence();
            start_late_dQ<cfg>(dQ, own_dS(steps - 1), at.K + span * of::tile);
            wgmma_wait_group<0>(dQ);
            add_dQ(sums + span * cfg.B_r * SPAN, dQ);
        }
    }
};

template <backward_config cfg>
__device__ __forceinline__ void multiply_late(const pass_args<cfg> &args, const tensor_maps &maps) {
    extern __shared__ __align__(1024) unsigned char late_smem[];
    const late_layout<cfg> at{(uint32_t)__cvta_generic_to_shared(late_smem)};
    const own_work<cfg> all(args);
    init_mbarriers<cfg>(at);
    key_sums<cfg> dK, dV;
    fragments<8> P, own_dS;
    fragments<8> &dS = cfg.d_head == 64 ? own_dS : P;
    late_tile<cfg>{args, maps, at, all, dK, dV, P, dS}.multiply();
    store_late_rows<cfg>(args.dK, args.K_strides, keys_of<cfg>(args, all.seq), all, dK, args.softmax_scale);
    store_late_rows<cfg>(args.dV, args.V_strides, keys_of<cfg>(args, all.seq), all, dV, 1);
}

#endif
