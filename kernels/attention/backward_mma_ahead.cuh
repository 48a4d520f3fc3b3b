/* backward_mma_ahead.cuh - a tile with d_head 128: computes Sᵀ of the next Q block beside the products of this one.
 *
 *     multiply_ahead<cfg>(args, at, steps, dK, dV);
 *
 * The order of a warp, in which exponentials, dS and stores stand beside products:
 *
 *     dPᵀ = V dOᵀ     dV += Pᵀ dO: own half of the queries, with dS; the partner's half
 *     Sᵀ = K Qᵀ of the next     dK += dSᵀ Q: own half, the partner's half, with P of the next     dQ = dS K
 *
 * P and dS are read again from shared memory instead of kept: registers hold either of them, S or dP, and dK and dV.
 * Q has two stages, dO one.
 */
#ifndef FL_ATTENTION_BACKWARD_MMA_AHEAD_CUH
#define FL_ATTENTION_BACKWARD_MMA_AHEAD_CUH

#include "kernels/attention/backward_mma_results.cuh"
#include "kernels/attention/backward_mma_softmax.cuh"

/* The first 16 rows that a warp reads of a block, as a second operand: of a half of the queries, from the first of the
 * 64 columns that the warp adds up. */
template <backward_config cfg>
__device__ __forceinline__ uint32_t columns_of(uint32_t block, int half) {
    using shape = mma_shape<cfg>;
    const int column = shape::exchanges ? gradient_column<cfg>(warp_position()) : 0;
    return block + first_operand<shape::row_bytes>() + 2 * column + half * shape::queries * shape::row_bytes;
}

/* Sᵀ of a stage's queries, or dPᵀ with V and dO. */
template <backward_config cfg>
__device__ __forceinline__ void multiply_half(key_scores<cfg> &scores, uint32_t keys, uint32_t queries) {
    using shape = mma_shape<cfg>;
    const warp_position own;
    multiply_rows<cfg>(scores, keys + own.pair * shape::keys * shape::row_bytes + first_operand<shape::row_bytes>(),
                       queries + own.half * shape::queries * shape::row_bytes + second_operand<shape::row_bytes>());
}
template <backward_config cfg>
__device__ __forceinline__ void compute_S(key_scores<cfg> &S, const mma_smem<cfg> &at, int stage) {
    for (int i = 0; i < mma_shape<cfg>::key_tiles; i++)
        for (int tile = 0; tile < mma_shape<cfg>::tiles; tile++)
            for (int e = 0; e < 4; e++) S[i][tile][e] = 0;
    multiply_half<cfg>(S, at.K, at.Q + stage * mma_smem<cfg>::Q_bytes);
}
template <backward_config cfg>
__device__ __forceinline__ void compute_dP(key_scores<cfg> &dP, const mma_smem<cfg> &at, int stage) {
    begin_dP<cfg>(dP, at.delta + stage * mma_smem<cfg>::row_values_bytes);
    multiply_half<cfg>(dP, at.V, at.dO + stage * mma_smem<cfg>::Q_bytes);
}

/* Cap a step's scores, and mask them if one of its queries does not attend to all keys of the tile. */
template <backward_config cfg>
__device__ __forceinline__ void mask(const pass_args<cfg> &args, const tile_steps<cfg> &steps,
                                     const step_position &step, key_scores<cfg> &S) {
    if constexpr (cfg.serves) {
        for (int i = 0; i < mma_shape<cfg>::key_tiles; i++) cap_scores<cfg>(args, S[i]);
        const key_band band = steps.band(args, step);
        if (band.template hides<cfg.B_r, cfg.B_c>()) mask_band<cfg>(S, band);
        return;
    }
    const int last = steps.last_key(args, step);
    if (last >= cfg.B_c - 1) return;
    if (args.causal)
        mask_after<cfg, true>(S, last);
    else
        mask_after<cfg, false>(S, last);
}

/* dQ of a Q block, added to its sums. `beside` runs between the halves of the product. */
template <backward_config cfg, typename function>
__device__ __forceinline__ void add_to_dQ(const pass_args<cfg> &args, const mma_smem<cfg> &at,
                                          const tile_steps<cfg> &steps, const step_position &now, int number,
                                          const function &beside) {
    dQ_tile<cfg> dQ = {};
    wait_for(at.dS_full, number);
    multiply_dS<cfg, 0, cfg.B_c / 32>(dQ, at);
    beside();
    multiply_dS<cfg, cfg.B_c / 32, cfg.B_c / 16>(dQ, at);
    arrive_of_warp(at.dS_empty);
    if constexpr (cfg.in_order) wait_for_own_turn<cfg>(args, at, steps, now);
    add_dQ<cfg>(args.sums + steps.number(now) * (cfg.B_r * cfg.d_head), dQ);
}

/* What a warp does of a tile, in methods of a screen each. `number` is that of a step. */
template <backward_config cfg>
struct ahead {
    using shape = mma_shape<cfg>;
    using of = mma_smem<cfg>;
    const pass_args<cfg> &args;
    const mma_smem<cfg> &at;
    const tile_steps<cfg> &steps;
    const float to_exponent;
    key_scores<cfg> S;
    key_operands<cfg> P;

    __device__ __forceinline__ ahead(const pass_args<cfg> &of, const mma_smem<cfg> &smem, const tile_steps<cfg> &tile)
        : args(of), at(smem), steps(tile), to_exponent(exponent_scale<cfg>(of)) {}

    /* P of the first Q block, before the loop. */
    __device__ __forceinline__ void begin() {
        wait_for(at.Q_full, 0);
        compute_S<cfg>(S, at, 0);
        mask<cfg>(args, steps, steps.first(), S);
#pragma unroll
        for (int tile = 0; tile < shape::tiles; tile++) take_exponentials<cfg>(P, S, tile, to_exponent, at.lse);
        for (int k = 0; k < shape::steps; k++) store_P<cfg>(at, P, k);
        arrive_of_warp(at.P_full + 8 * warp_position().warp);
    }

    /* dP, and dV of the warp's own queries with dS. A step's dS is stored after the loads of the next one: ptxas moves
     * no load from shared memory before a store. */
    __device__ __forceinline__ void add_own_dV(key_gradient &dV, int number) {
        const int warp = warp_position().warp;
        key_scores<cfg> dP;
        key_operands<cfg> dS;
        wait_for(at.dO_full, number);
        compute_dP<cfg>(dP, at, 0);
        if (number) wait_for(at.dS_empty, number - 1);
        const uint32_t dO = columns_of<cfg>(at.dO, warp_position().half);
        const uint32_t lse = at.lse + number % 2 * of::row_values_bytes;
#pragma unroll
        for (int k = 0; k < shape::steps; k++) {
            column_operand b;
            uint32_t own[2][4];
            load_columns<cfg>(b, dO, k);
            load_P<cfg>(own, at, warp, k);
            if (k) store_dS<cfg>(at, dS, k - 1);
            multiply_columns<cfg>(dV, own[0], own[1], b);
            differentiate<cfg>(args, dS, own[0], own[1], dP, k, lse);
        }
        store_dS<cfg>(at, dS, shape::steps - 1);
        arrive_of_warp(at.dS_of_warp + 8 * warp, at.dS_full);
    }

    /* dV of the partner's queries, with its P. */
    __device__ __forceinline__ void add_other_dV(key_gradient &dV, int number) {
        const int partner = warp_position().warp ^ 1;
        const uint32_t dO = columns_of<cfg>(at.dO, 1 - warp_position().half);
        wait_for(at.P_full + 8 * partner, number);
#pragma unroll
        for (int k = 0; k < shape::steps; k++) {
            column_operand b;
            uint32_t other[2][4];
            load_P<cfg>(other, at, partner, k);
            load_columns<cfg>(b, dO, k);
            multiply_columns<cfg>(dV, other[0], other[1], b);
        }
        arrive_of_warp(at.P_empty + 8 * partner, at.dO_empty);
    }

    /* S of the next Q block, whose dO is copied meanwhile; zeros after the last. */
    __device__ __forceinline__ void compute_next_S(const step_position &next, int number) {
        if (!steps.has(next)) {
            for (int i = 0; i < 2; i++)
                for (int tile = 0; tile < shape::tiles; tile++)
                    for (int e = 0; e < 4; e++) S[i][tile][e] = 0;
            return;
        }
        const int stage = (number + 1) % 2;
        wait_for(at.Q_full + 8 * stage, (number + 1) / 2);
        compute_S<cfg>(S, at, stage);
        wait_for(at.dO_empty, number);
        copy_dO<cfg>(args, at, steps, next, 0);
        mask<cfg>(args, steps, next, S);
    }

    /* dK of both halves of the queries, with P of the next Q block. After the last step P is computed from zeros and
     * stored, too; nobody reads it. */
    __device__ __forceinline__ void add_dK(key_gradient &dK, int number) {
        const int warp = warp_position().warp, half = warp_position().half, stage = number % 2;
        const uint32_t Q = at.Q + stage * of::Q_bytes, lse = at.lse + (1 - stage) * of::row_values_bytes;
        wait_for(at.P_empty + 8 * warp, number);
#pragma unroll
        for (int n = 0; n < shape::tiles; n++) {
            const int of_half = n < shape::steps ? half : 1 - half, k = n % shape::steps;
            if (n == shape::steps) wait_for(at.dS_of_warp + 8 * (warp ^ 1), number);
            column_operand b;
            uint32_t dS[2][4];
            load_columns<cfg>(b, columns_of<cfg>(Q, of_half), k);
            load_dS<cfg>(dS, dS_operand<cfg>(at, of_half), k);
            if (n && n % 2 == 0) store_P<cfg>(at, P, n / 2 - 1);
            multiply_columns<cfg>(dK, dS[0], dS[1], b);
            take_exponentials<cfg>(P, S, n, to_exponent, lse);
        }
        store_P<cfg>(at, P, shape::steps - 1);
        arrive_of_warp(at.Q_empty + 8 * stage, at.P_full + 8 * warp);
    }
};

template <backward_config cfg>
__device__ __forceinline__ void multiply_ahead(const pass_args<cfg> &args, const mma_smem<cfg> &at,
                                               const tile_steps<cfg> &steps, key_gradient &dK, key_gradient &dV) {
    step_position now = steps.first();
    if (!steps.has(now)) return;
    copy_keys<cfg>(steps, at.K, args.K, args.K_strides);
    copy_Q<cfg>(args, at, steps, now, 0);
    copy_keys<cfg>(steps, at.V, args.V, args.V_strides);
    copy_dO<cfg>(args, at, steps, now, 0);
    if (steps.has(steps.next(now))) copy_Q<cfg>(args, at, steps, steps.next(now), 1);
    ahead<cfg> warp(args, at, steps);
    warp.begin();
#pragma unroll 1
    for (int number = 0; steps.has(now); number++) {
        const step_position next = steps.next(now), after = steps.next(next);
        warp.add_own_dV(dV, number);
        if (cfg.in_order && number) pass_turn<cfg>(args, at);
        warp.add_other_dV(dV, number);
        warp.compute_next_S(next, number);
        warp.add_dK(dK, number);
        add_to_dQ<cfg>(args, at, steps, now, number, [] {});
        if (steps.has(after)) {
            wait_for(at.Q_empty + 8 * (number % 2), number / 2);
            copy_Q<cfg>(args, at, steps, after, number % 2);
        }
        now = next;
    }
    if constexpr (cfg.in_order) pass_turn<cfg>(args, at);
}

#endif
