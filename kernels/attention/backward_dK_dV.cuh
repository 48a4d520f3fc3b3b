/* backward_dK_dV.cuh - warpgroups 1 and 2, which compute P and dS and add up dK and dV.
 *
 *     multiply_keys_of_tile<cfg>(args, at);      the CTA has one tile: 64 keys for each warpgroup
 *     multiply_keys<cfg>(args, at);              the CTA fetches tiles and adds dQ in order
 *     multiply_columns<cfg>(args, at);           d_head 256: both warpgroups have the same keys
 */
#ifndef FL_ATTENTION_BACKWARD_DK_DV_CUH
#define FL_ATTENTION_BACKWARD_DK_DV_CUH

#include "kernels/attention/backward_products.cuh"
#include "kernels/attention/backward_results.cuh"
#include "kernels/attention/backward_softmax.cuh"

/* With serve, set the rows after the sequence to zero: those of the tile's K and V, and those of Q and dO in a stage.
 */
template <backward_config cfg>
__device__ __forceinline__ void clear_keys(const pass_args<cfg> &args, const smem_layout<cfg> &at,
                                           const work<cfg> &all) {
    if constexpr (cfg.serves)
        clear_rows<cfg.B_c, cfg.d_head>(at.K, at.V, keys_of<cfg>(args, all.seq) - all.KV_block * cfg.B_c);
}
template <backward_config cfg>
__device__ __forceinline__ void clear_queries(const pass_args<cfg> &args, const smem_layout<cfg> &at,
                                              const work<cfg> &all, int stage, int Q_block) {
    const uint32_t offset = stage * smem_layout<cfg>::Q_bytes;
    if constexpr (cfg.serves)
        clear_rows<cfg.B_r, cfg.d_head>(at.Q + offset, at.dO + offset,
                                        queries_of<cfg>(args, all.seq) - Q_block * cfg.B_r);
}

/* P of a Q block from its scores. */
template <backward_config cfg>
__device__ __forceinline__ void finish_P(const pass_args<cfg> &args, const work<cfg> &all, int Q_block, tiles<8> &P,
                                         uint32_t lse) {
    if constexpr (cfg.serves) {
        const key_band band = band_of<cfg>(args, all.seq, Q_block, all.KV_block);
        cap_scores<cfg>(args, P);
        take_exponentials(P, exponent_scale<cfg>(args), lse);
        if (band.template hides<cfg.B_r, cfg.B_c>()) mask_keys(P, band);
        return;
    }
    const int last_key =
        keys_of<cfg>(args, all.seq) - 1 - all.KV_block * cfg.B_c; /* of the last query, from the CTA's first */
    const int last = args.causal ? last_key - (queries_of<cfg>(args, all.seq) - 1) + Q_block * cfg.B_r : last_key;
    take_exponentials(P, args.softmax_scale * 1.44269504f, lse);
    if (last < cfg.B_c - 1) mask_keys(P, last, args.causal);
}

/* ---- one tile per CTA: d_head 64 and 128, in any order ---- */

/* Warpgroups 1 and 2: dK and dV of 64 keys. */
template <backward_config cfg>
struct own_keys {
    using of = smem_layout<cfg>;
    const pass_args<cfg> &args;
    const smem_layout<cfg> &at;
    const uint32_t own; /* the warpgroup's keys within a tile */
    key_sums<cfg> &dK, &dV;

    /* P of a block, rounded. */
    __device__ __forceinline__ void compute_P(const work<cfg> &all, int Q_block, fragments<4> &rounded, uint32_t Q,
                                              uint32_t lse) const {
        tiles<8> P;
        wgmma_fence();
        start_scores<cfg>(P, at.K + own, Q);
        wgmma_wait_group<0>(P);
        finish_P<cfg>(args, all, Q_block, P, lse);
        round_scores<cfg>(rounded, P);
    }

    /* dV beside dS, then dK. */
    __device__ __forceinline__ void step(const work<cfg> &all, int Q_block, int stage, int phase) const {
        const uint32_t Q = at.Q + stage * of::Q_bytes, dO = at.dO + stage * of::Q_bytes;
        const uint32_t lse = at.lse + stage * 2 * of::row_bytes, delta = lse + of::row_bytes;
        fragments<4> of_P, of_dS;
        wait_for_phase(at.full + 8 * stage, phase);
        clear_queries<cfg>(args, at, all, stage, Q_block);
        compute_P(all, Q_block, of_P, Q, lse);
        tiles<8> dS;
        wgmma_fence();
        start_scores<cfg>(dS, at.V + own, dO);
        copy_registers(of_dS, of_P);
        start_sums<cfg>(dV, of_P, dO);
        wgmma_wait_group<1>(dS);
        differentiate<cfg>(dS, of_dS, delta);
        multiply_by_slope<cfg>(args, dS, of_dS, lse);
        round_scores<cfg>(of_dS, dS);
        wait_for_phase(at.dS_empty + 8 * stage, phase - 1);
        store_dS(at.dS + stage * of::dS_bytes, of_dS);
        fence_proxy_async(); /* make this thread's stores visible to wgmma */
        arrive_as_warp(at.dS_full + 8 * stage);
        wgmma_fence();
        start_sums<cfg>(dK, of_dS, Q);
        wgmma_wait_group<0>(dK);
        wgmma_wait_group<0>(dV);
        arrive_as_warp(at.empty + 8 * stage);
    }
};

template <backward_config cfg>
__device__ __forceinline__ void multiply_keys_of_tile(const pass_args<cfg> &args, const smem_layout<cfg> &at) {
    const own_work<cfg> all(args);
    if (cfg.serves && all.KV_block < 0) return;
    key_sums<cfg> dK = {}, dV = {};
    const uint32_t first = (warp_uniform(threadIdx.x / WARPGROUP) - 1) * 64 * TILE_ROW;
    const own_keys<cfg> own{args, at, first, dK, dV};
    wait_for_phase(at.KV_full, 0);
    clear_keys<cfg>(args, at, all);
#pragma unroll 1
    for (int step = 0, block = 0; step < all.steps(); step++) {
        const int Q_block = q_block<cfg>{0, block}.block(all);
        own.step(all, Q_block, step % cfg.stages, step / cfg.stages);
        block = block + 1 < all.blocks ? block + 1 : 0;
    }
    store_rows<cfg>(args.dK, args.K_strides, keys_of<cfg>(args, all.seq), all, dK, args.softmax_scale);
    store_rows<cfg>(args.dV, args.V_strides, keys_of<cfg>(args, all.seq), all, dV, 1);
}

/* ---- in order ---- */

/* Warpgroups 1 and 2: dK and dV of 64 keys. P of a Q block is computed during dK of the block before. */
template <backward_config cfg>
struct keys {
    using of = smem_layout<cfg>;
    const pass_args<cfg> &args;
    const smem_layout<cfg> &at;
    const uint32_t own; /* the warpgroup's keys within a tile */
    fragments<4> &P;
    key_sums<cfg> &dK, &dV;
    ring_position<cfg.stages> now, before;

    __device__ __forceinline__ uint32_t Q(int stage) const { return at.Q + stage * of::Q_bytes; }
    __device__ __forceinline__ uint32_t dO(int stage) const { return at.dO + stage * of::Q_bytes; }
    __device__ __forceinline__ uint32_t lse(int stage) const { return at.lse + stage * 2 * of::row_bytes; }

    __device__ __forceinline__ void first_P(const work<cfg> &all, int Q_block) {
        tiles<8> scores;
        wait_for_phase(at.full + 8 * now.stage, now.phase);
        clear_queries<cfg>(args, at, all, now.stage, Q_block);
        wgmma_fence();
        start_scores<cfg>(scores, at.K + own, Q(now.stage));
        wgmma_wait_group<0>(scores);
        finish_P<cfg>(args, all, Q_block, scores, lse(now.stage));
        round_scores<cfg>(P, scores);
    }

    /* Compute dS of the current block during dK of the block before. */
    template <bool first>
    __device__ __forceinline__ void compute_dS() {
        tiles<8> dP;
        if constexpr (!first) bar_sync(2 + own / (64 * TILE_ROW), WARPGROUP); /* dS of the block before is there */
        wgmma_fence();
        start_scores<cfg>(dP, at.V + own, dO(now.stage));
        if constexpr (!first) start_dK<cfg>(dK, at.dS + before.stage * of::dS_bytes + own, Q(before.stage));
        wgmma_wait_group<first ? 0 : 1>(dP);
        differentiate<cfg>(dP, P, lse(now.stage) + of::row_bytes);
        multiply_by_slope<cfg>(args, dP, P, lse(now.stage));
        fragments<4> dS;
        round_scores<cfg>(dS, dP);
        wait_for_phase(at.dS_empty + 8 * now.stage, now.phase - 1);
        store_dS(at.dS + now.stage * of::dS_bytes, dS);
        fence_proxy_async(); /* make this thread's stores visible to wgmma */
        arrive_as_warp(at.dS_full + 8 * now.stage);
        if constexpr (!first) {
            wgmma_wait_group<0>(dK);
            arrive_as_warp(at.empty + 8 * before.stage);
        }
    }

    /* Compute dV, and P of the next block during it. */
    __device__ __forceinline__ void compute_P(const work<cfg> &all, int next_block) {
        before = now;
        now.advance();
        wait_for_phase(at.full + 8 * now.stage, now.phase);
        clear_queries<cfg>(args, at, all, now.stage, next_block);
        tiles<8> scores;
        wgmma_fence();
        start_scores<cfg>(scores, at.K + own, Q(now.stage));
        start_sums<cfg>(dV, P, dO(before.stage));
        wgmma_wait_group<1>(scores);
        finish_P<cfg>(args, all, next_block, scores, lse(now.stage));
        wgmma_wait_group<0>(dV);
        round_scores<cfg>(P, scores);
    }

    __device__ __forceinline__ void finish() {
        bar_sync(2 + own / (64 * TILE_ROW), WARPGROUP);
        wgmma_fence();
        start_sums<cfg>(dV, P, dO(now.stage));
        start_dK<cfg>(dK, at.dS + now.stage * of::dS_bytes + own, Q(now.stage));
        arrive_as_warp(at.KV_empty);
        wgmma_wait_group<0>(dV);
        wgmma_wait_group<0>(dK);
        arrive_as_warp(at.empty + 8 * now.stage);
        now.advance();
    }
};

template <backward_config cfg>
__device__ __forceinline__ void multiply_keys(const pass_args<cfg> &args, const smem_layout<cfg> &at) {
    key_sums<cfg> dK, dV;
    fragments<4> P;
    const uint32_t first = (warp_uniform(threadIdx.x / WARPGROUP) - 1) * 64 * TILE_ROW;
    keys<cfg> own{args, at, first, P, dK, dV};
    for (int turn = 0;; turn++) {
        wait_for_phase(at.KV_full, turn);
        const work<cfg> all = read_work<cfg>(at.posted(turn));
        if (all.KV_block < 0) break;
        for (int i = 0; i < cfg.d_head / 8; i++)
            for (int j = 0; j < 4; j++) dK[i][j] = dV[i][j] = 0;
        q_block<cfg> here;
        if (!cfg.serves || all.blocks) {
            clear_keys<cfg>(args, at, all);
            own.first_P(all, here.block(all));
            own.template compute_dS<true>();
#pragma unroll 1
            for (int left = args.heads / args.KV_heads * all.blocks - 1; left; left--) {
                here.advance(all);
                own.compute_P(all, here.block(all));
                own.template compute_dS<false>();
            }
            own.finish();
        } else {
            arrive_as_warp(at.KV_empty);
        }
        store_rows<cfg>(args.dK, args.K_strides, keys_of<cfg>(args, all.seq), all, dK, args.softmax_scale);
        store_rows<cfg>(args.dV, args.V_strides, keys_of<cfg>(args, all.seq), all, dV, 1);
    }
}

/* ---- d_head 256 ---- */

/* With d_head 256 a thread has registers for dK and dV of 64 keys and 128 columns. Each warpgroup computes P and dS of
 * 32 of the queries and leaves them in shared memory, then both read all of them: dV += Pᵀ dO, dK += dSᵀ Q for half of
 * the columns. */
template <backward_config cfg>
struct columns {
    using of = smem_layout<cfg>;
    const pass_args<cfg> &args;
    const smem_layout<cfg> &at;
    const int half; /* 0 or 1 */
    tiles<4> &S, &dP;
    key_sums<cfg> &dK, &dV;
    ring_position<cfg.stages> now;

    /* d = 64 keys times 32 queries. */
    __device__ __forceinline__ void start_half(tiles<4> &d, uint32_t keys, uint32_t queries) const {
        const uint64_t a = wgmma_descriptor(keys, 0), b = wgmma_descriptor(queries + half * 32 * TILE_ROW, 0);
#pragma unroll
        for (int k = 0; k < cfg.d_head / 16; k++) {
            const uint64_t of_a = a + k / 4 * (of::KV_tile / 16) + k % 4 * 2;
            const uint64_t of_b = b + k / 4 * (of::Q_tile / 16) + k % 4 * 2;
            if constexpr (cfg.dtype == FP16)
                wgmma_m64n32k16_f16(d, of_a, of_b, k > 0);
            else
                wgmma_m64n32k16_bf16(d, of_a, of_b, k > 0);
        }
        wgmma_commit_group();
    }

    /* sums += coefficients (64 keys by B_r queries, in shared memory) times 128 columns of the rows of Q or dO. */
    __device__ __forceinline__ void start_columns(key_sums<cfg> &sums, uint32_t coefficients, uint32_t other) const {
        const uint64_t a = wgmma_descriptor(coefficients, 0);
        const uint64_t b = wgmma_descriptor(other + half * 2 * of::Q_tile, of::Q_tile);
#pragma unroll
        for (int k = 0; k < cfg.B_r / 16; k++)
            if constexpr (cfg.dtype == FP16)
                wgmma_m64n128k16_f16_b_trans(sums, a + 2 * k, b + 128 * k, 1);
            else
                wgmma_m64n128k16_bf16_b_trans(sums, a + 2 * k, b + 128 * k, 1);
        wgmma_commit_group();
    }

    /* Put 64 keys by 32 queries into a tile of 64 by 64 in shared memory. */
    __device__ __forceinline__ void store_half(uint32_t smem, const uint32_t (&a)[2][4]) const {
        const int lane = threadIdx.x % 32, key = threadIdx.x % WARPGROUP / 32 * 16 + lane % 16;
        for (int k = 0; k < 2; k++)
            stmatrix_x4(smem + key * TILE_ROW + ((4 * half + 2 * k + lane / 16) ^ key % 8) * 16, a[k]);
    }

    /* P and dS of the warpgroup's queries from S and dP. */
    __device__ __forceinline__ void round_half(uint32_t (&of_P)[2][4], uint32_t (&of_dS)[2][4], uint32_t lse,
                                               const work<cfg> &all, int Q_block) const {
        const int lane = threadIdx.x % 32;
        const int last_key =
            keys_of<cfg>(args, all.seq) - 1 - all.KV_block * cfg.B_c - (threadIdx.x % WARPGROUP / 32 * 16 + lane / 4);
        const int of_first =
            args.causal ? last_key - (queries_of<cfg>(args, all.seq) - 1) + Q_block * cfg.B_r + half * 32 : last_key;
        if constexpr (cfg.serves) cap_scores<cfg>(args, S);
        for (int tile = 0; tile < 4; tile++) {
            const float2 of_row = load_pair(lse, tile), delta = load_pair(lse + of::row_bytes, tile);
            float P[4];
            for (int i = 0; i < 4; i++) {
                const int behind = args.causal ? 8 * tile + lane % 4 * 2 + i % 2 : 0;
                P[i] = ex2_approx(S[tile][i] * exponent_scale<cfg>(args) - (i % 2 ? of_row.y : of_row.x));
                if constexpr (cfg.serves) {
                    const key_band band = band_of<cfg>(args, all.seq, Q_block, all.KV_block);
                    const int key = threadIdx.x % WARPGROUP / 32 * 16 + lane / 4 + i / 2 * 8;
                    if (band.hides(half * 32 + 8 * tile + lane % 4 * 2 + i % 2, key)) P[i] = 0;
                } else if (i / 2 * 8 > of_first + behind) {
                    P[i] = 0;
                }
            }
            for (int i = 0; i < 2; i++) {
                uint32_t &pair = of_P[tile / 2][tile % 2 * 2 + i];
                float p[2];
                pair = round_pair<cfg.dtype>(P[2 * i], P[2 * i + 1]);
                widen_pair<cfg.dtype>(pair, p[0], p[1]);
                if constexpr (cfg.serves)
                    if (has_cap<cfg>(args)) {
                        p[0] *= slope_of_cap(p[0], of_row.x, tanh_per_exponent<cfg>(args));
                        p[1] *= slope_of_cap(p[1], of_row.y, tanh_per_exponent<cfg>(args));
                    }
                of_dS[tile / 2][tile % 2 * 2 + i] =
                    round_pair<cfg.dtype>(p[0] * (dP[tile][2 * i] - delta.x), p[1] * (dP[tile][2 * i + 1] - delta.y));
            }
        }
    }

    /* The stage holds a Q block: P and dS of the warpgroup's queries, then its columns of dV and dK. */
    __device__ __forceinline__ void step(const work<cfg> &all, int Q_block, bool last) {
        const int stage = now.stage;
        const uint32_t lse = at.lse + stage * 2 * of::row_bytes + half * 32 * sizeof(float);
        const uint32_t Q = at.Q + stage * of::Q_bytes, dO = at.dO + stage * of::Q_bytes;
        uint32_t of_P[2][4], of_dS[2][4];
        wait_for_phase(at.full + 8 * stage, now.phase);
        clear_queries<cfg>(args, at, all, stage, Q_block);
        wgmma_fence();
        start_half(S, at.K, Q);
        start_half(dP, at.V, dO);
        wgmma_wait_group<0>(S);
        wgmma_wait_group<0>(dP);
        if (last) arrive_as_warp(at.KV_empty);
        round_half(of_P, of_dS, lse, all, Q_block);
        wait_for_phase(at.dS_empty + 8 * stage, now.phase - 1);
        store_half(at.P + stage * of::P_bytes, of_P);
        store_half(at.dS + stage * of::dS_bytes, of_dS);
        fence_proxy_async(); /* make this thread's stores visible to wgmma */
        arrive_as_warp(at.dS_full + 8 * stage);
        bar_sync(2, 2 * WARPGROUP); /* the other half is there, and what both read of the block before is read */
        wgmma_fence();
        start_columns(dV, at.P + stage * of::P_bytes, dO);
        start_columns(dK, at.dS + stage * of::dS_bytes, Q);
        wgmma_wait_group<0>(dV);
        wgmma_wait_group<0>(dK);
        arrive_as_warp(at.empty + 8 * stage);
        now.advance();
    }
};

template <backward_config cfg>
__device__ __forceinline__ void multiply_columns(const pass_args<cfg> &args, const smem_layout<cfg> &at) {
    key_sums<cfg> dK, dV;
    tiles<4> S, dP;
    columns<cfg> own{args, at, warp_uniform(threadIdx.x / WARPGROUP) - 1, S, dP, dK, dV};
    for (int turn = 0;; turn++) {
        wait_for_phase(at.KV_full, turn);
        const work<cfg> all = read_work<cfg>(at.posted(turn));
        if (all.KV_block < 0) break;
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 4; j++) dK[i][j] = dV[i][j] = 0;
        q_block<cfg> here;
        if (cfg.serves && !all.blocks)
            arrive_as_warp(at.KV_empty);
        else
            clear_keys<cfg>(args, at, all);
#pragma unroll 1
        for (int left = args.heads / args.KV_heads * all.blocks; left; left--) {
            own.step(all, here.block(all), left == 1);
            here.advance(all);
        }
        store_rows<cfg>(args.dK, args.K_strides, keys_of<cfg>(args, all.seq), all, dK, args.softmax_scale);
        store_rows<cfg>(args.dV, args.V_strides, keys_of<cfg>(args, all.seq), all, dV, 1);
    }
}

#endif
