/* backward_mma_in_turn.cuh - a tile whose Q blocks are processed one after the other.
 *
 *     multiply_in_turn<cfg>(args, at, steps, dK, dV);
 *
 * With d_head 64 P and dS stay in registers, and Q and dO have two stages:
 *
 *     Sᵀ = K Qᵀ, P     dPᵀ = V dOᵀ, dS     dV += Pᵀ dO     dK += dSᵀ Q     dQ = dS K
 *
 * With d_head 128 P and dS of a pair go through the same space in shared memory, and Q and dO have one stage each: a
 * block is copied while the products that do not read it run.
 *
 *     Sᵀ, P     dPᵀ     dV with dS, of both halves     dS is stored     dK of both halves     dQ
 *
 * With d_head 256 the pairs have 16 keys each, so that S, P, dP and dS need few registers. Both P and dS go through
 * shared memory to the four warps that add 64 columns each of the gradients of 32 keys:
 *
 *     Sᵀ, P is stored     dPᵀ, dS is stored     dV     dK     dQ
 */
#ifndef FL_ATTENTION_BACKWARD_MMA_IN_TURN_CUH
#define FL_ATTENTION_BACKWARD_MMA_IN_TURN_CUH

#include "kernels/attention/backward_mma_ahead.cuh"

/* Sᵀ of a step with the mask. With two stages, the next Q block is copied meanwhile. */
template <backward_config cfg>
__device__ __forceinline__ void compute_masked_S(const pass_args<cfg> &args, const mma_smem<cfg> &at,
                                                 const tile_steps<cfg> &steps, const step_position &now, int number,
                                                 key_scores<cfg> &S) {
    constexpr int stages = mma_shape<cfg>::stages;
    const int stage = number % stages, other = (number + 1) % stages;
    const step_position next = steps.next(now);
    wait_for(at.Q_full + 8 * stage, number / stages);
    compute_S<cfg>(S, at, stage);
    if (stages == 2 && steps.has(next)) {
        if (number) wait_for(at.Q_empty + 8 * other, (number - 1) / 2);
        copy_Q<cfg>(args, at, steps, next, other);
    }
    mask<cfg>(args, steps, now, S);
}

/* d_head 64: P and dS of the warp's own queries. dS is stored for dQ, too. */
template <backward_config cfg>
__device__ __forceinline__ void compute_P_and_dS(const pass_args<cfg> &args, const mma_smem<cfg> &at,
                                                 const tile_steps<cfg> &steps, const step_position &now, int number,
                                                 key_operands<cfg> &P, key_operands<cfg> &dS) {
    using shape = mma_shape<cfg>;
    const int stage = number % 2, other = (number + 1) % 2;
    const uint32_t lse = at.lse + stage * mma_smem<cfg>::row_values_bytes;
    const step_position next = steps.next(now);
    {
        key_scores<cfg> S;
        compute_masked_S<cfg>(args, at, steps, now, number, S);
#pragma unroll
        for (int tile = 0; tile < shape::tiles; tile++)
            take_exponentials<cfg>(P, S, tile, exponent_scale<cfg>(args), lse);
    }
    key_scores<cfg> dP;
    wait_for(at.dO_full + 8 * stage, number / 2);
    compute_dP<cfg>(dP, at, stage);
    if (steps.has(next)) {
        if (number) wait_for(at.dO_empty + 8 * other, (number - 1) / 2);
        copy_dO<cfg>(args, at, steps, next, other);
    }
    if (number) wait_for(at.dS_empty, number - 1);
#pragma unroll
    for (int k = 0; k < shape::steps; k++) {
        differentiate<cfg>(args, dS, P[0][k], P[1][k], dP, k, lse);
        store_dS<cfg>(at, dS, k);
    }
    arrive_of_warp(at.dS_full);
}

/* gradient += coefficients times the warp's own rows of a Q block. */
template <backward_config cfg>
__device__ __forceinline__ void add_own_rows(key_gradient &gradient, const key_operands<cfg> &coefficients,
                                             uint32_t block) {
    const uint32_t rows = columns_of<cfg>(block, warp_position().half);
#pragma unroll
    for (int k = 0; k < mma_shape<cfg>::steps; k++) {
        column_operand b;
        load_columns<cfg>(b, rows, k);
        multiply_columns<cfg>(gradient, coefficients[0][k], coefficients[1][k], b);
    }
}

/* d_head 128: S, P, dP and dV of a step. dS of the warp's queries stays in registers. */
template <backward_config cfg>
__device__ __forceinline__ void add_dV_of_both(const pass_args<cfg> &args, const mma_smem<cfg> &at,
                                               const tile_steps<cfg> &steps, const step_position &now, int number,
                                               key_gradient &dV, key_operands<cfg> &dS) {
    using shape = mma_shape<cfg>;
    const warp_position own;
    {
        key_scores<cfg> S;
        key_operands<cfg> P;
        compute_masked_S<cfg>(args, at, steps, now, number, S);
        if (number) wait_for(at.dS_empty, number - 1); /* P is stored where dS was */
#pragma unroll
        for (int k = 0; k < shape::steps; k++) {
            for (int tile = 2 * k; tile < 2 * k + 2; tile++)
                take_exponentials<cfg>(P, S, tile, exponent_scale<cfg>(args), at.lse);
            store_P<cfg>(at, P, k);
        }
        arrive_of_warp(at.P_full + 8 * own.warp);
    }
    key_scores<cfg> dP;
    wait_for(at.dO_full, number);
    compute_dP<cfg>(dP, at, 0);
#pragma unroll
    for (int n = 0; n < shape::tiles; n++) {
        const bool mine = n < shape::steps;
        const int k = n % shape::steps, of_half = mine ? own.half : 1 - own.half;
        if (n == shape::steps) wait_for(at.P_full + 8 * (own.warp ^ 1), number);
        column_operand b;
        uint32_t P[2][4];
        load_columns<cfg>(b, columns_of<cfg>(at.dO, of_half), k);
        load_P<cfg>(P, at, mine ? own.warp : own.warp ^ 1, k);
        multiply_columns<cfg>(dV, P[0], P[1], b);
        if (mine) differentiate<cfg>(args, dS, P[0], P[1], dP, k, at.lse);
    }
    arrive_of_warp(at.P_empty + 8 * (own.warp ^ 1), at.dO_empty);
}

/* d_head 128: store dS where P was once the partner has read it, and add dK of both halves. */
template <backward_config cfg>
__device__ __forceinline__ void add_dK_of_both(const pass_args<cfg> &args, const mma_smem<cfg> &at,
                                               const tile_steps<cfg> &steps, const step_position &now, int number,
                                               key_gradient &dK, const key_operands<cfg> &dS) {
    using shape = mma_shape<cfg>;
    const warp_position own;
    const step_position next = steps.next(now);
    const uint32_t mine = columns_of<cfg>(at.Q, own.half), other = columns_of<cfg>(at.Q, 1 - own.half);
    wait_for(at.P_empty + 8 * own.warp, number);
#pragma unroll
    for (int k = 0; k < shape::steps; k++) store_dS<cfg>(at, dS, k);
    arrive_of_warp(at.dS_of_warp + 8 * own.warp, at.dS_full);
#pragma unroll
    for (int k = 0; k < shape::steps; k++) {
        column_operand b;
        load_columns<cfg>(b, mine, k);
        multiply_columns<cfg>(dK, dS[0][k], dS[1][k], b);
    }
    if (steps.has(next)) {
        wait_for(at.dO_empty, number);
        copy_dO<cfg>(args, at, steps, next, 0);
    }
    wait_for(at.dS_of_warp + 8 * (own.warp ^ 1), number);
#pragma unroll
    for (int k = 0; k < shape::steps; k++) {
        column_operand b;
        uint32_t a[2][4];
        load_dS<cfg>(a, dS_operand<cfg>(at, 1 - own.half), k);
        load_columns<cfg>(b, other, k);
        multiply_columns<cfg>(dK, a[0], a[1], b);
    }
    arrive_of_warp(at.Q_empty);
}

/* d_head 256: store P and dS of the warp's keys and queries for its team, and dS for dQ. */
template <backward_config cfg>
__device__ __forceinline__ void share_P_and_dS(const pass_args<cfg> &args, const mma_smem<cfg> &at,
                                               const tile_steps<cfg> &steps, const step_position &now, int number) {
    using shape = mma_shape<cfg>;
    const int of_team = 8 * (warp_position().warp / shape::team * shape::team);
    const uint32_t lse = at.lse + number % shape::stages * mma_smem<cfg>::row_values_bytes;
    key_operands<cfg> P, dS;
    {
        key_scores<cfg> S;
        compute_masked_S<cfg>(args, at, steps, now, number, S);
#pragma unroll
        for (int tile = 0; tile < shape::tiles; tile++)
            take_exponentials<cfg>(P, S, tile, exponent_scale<cfg>(args), lse);
    }
    if (number) wait_for(at.P_empty + of_team, number - 1);
    for (int k = 0; k < shape::steps; k++) store_P<cfg>(at, P, k);
    arrive_of_warp(at.P_full + of_team);
    key_scores<cfg> dP;
    wait_for(at.dO_full, number);
    compute_dP<cfg>(dP, at, 0);
    if (number) wait_for(at.dS_empty, number - 1);
#pragma unroll
    for (int k = 0; k < shape::steps; k++) {
        differentiate<cfg>(args, dS, P[0][k], P[0][k], dP, k, lse);
        store_dS<cfg>(at, dS, k);
    }
    arrive_of_warp(at.dS_of_warp + of_team, at.dS_full);
}

/* d_head 256: dV and dK of a step, over all of its queries. The next dO is copied when all warps have read this one. */
template <backward_config cfg>
__device__ __forceinline__ void add_shared(const pass_args<cfg> &args, const mma_smem<cfg> &at,
                                           const tile_steps<cfg> &steps, const step_position &now, int number,
                                           key_gradient &dV, key_gradient &dK) {
    using shape = mma_shape<cfg>;
    const int first = warp_position().warp / shape::team * shape::team, stage = number % shape::stages;
    const step_position next = steps.next(now);
    const uint32_t dO = columns_of<cfg>(at.dO, 0), Q = columns_of<cfg>(at.Q + stage * mma_smem<cfg>::Q_bytes, 0);
    wait_for(at.P_full + 8 * first, number);
#pragma unroll
    for (int k = 0; k < cfg.B_r / 16; k++) {
        column_operand b;
        uint32_t P[2][4];
        load_columns<cfg>(b, dO, k);
        for (int i = 0; i < 2; i++) ld_shared_v4(P[i], at.P_of(first + 2 * i + k / shape::steps, 0, k % shape::steps));
        multiply_columns<cfg>(dV, P[0], P[1], b);
    }
    arrive_of_warp(at.P_empty + 8 * first, at.dO_empty);
    wait_for(at.dS_of_warp + 8 * first, number);
#pragma unroll
    for (int k = 0; k < cfg.B_r / 16; k++) {
        column_operand b;
        uint32_t dS[2][4];
        load_columns<cfg>(b, Q, k);
        load_dS<cfg>(dS, dS_operand<cfg>(at, 0), k);
        multiply_columns<cfg>(dK, dS[0], dS[1], b);
    }
    arrive_of_warp(at.Q_empty + 8 * stage);
    if (!steps.has(next)) return;
    wait_for(at.dO_empty, number);
    copy_dO<cfg>(args, at, steps, next, 0);
}

template <backward_config cfg>
__device__ __forceinline__ void multiply_in_turn(const pass_args<cfg> &args, const mma_smem<cfg> &at,
                                                 const tile_steps<cfg> &steps, key_gradient &dK, key_gradient &dV) {
    step_position now = steps.first();
    if (!steps.has(now)) return;
    copy_keys<cfg>(steps, at.K, args.K, args.K_strides);
    copy_Q<cfg>(args, at, steps, now, 0);
    copy_keys<cfg>(steps, at.V, args.V, args.V_strides);
    copy_dO<cfg>(args, at, steps, now, 0);
#pragma unroll 1
    for (int number = 0; steps.has(now); number++) {
        const step_position next = steps.next(now);
        if constexpr (cfg.d_head == 256) {
            share_P_and_dS<cfg>(args, at, steps, now, number);
            if (cfg.in_order && number) pass_turn<cfg>(args, at);
            add_shared<cfg>(args, at, steps, now, number, dV, dK);
        } else if constexpr (mma_shape<cfg>::exchanges) {
            key_operands<cfg> dS;
            add_dV_of_both<cfg>(args, at, steps, now, number, dV, dS);
            if (cfg.in_order && number) pass_turn<cfg>(args, at);
            add_dK_of_both<cfg>(args, at, steps, now, number, dK, dS);
        } else {
            const int stage = number % 2;
            key_operands<cfg> P, dS;
            compute_P_and_dS<cfg>(args, at, steps, now, number, P, dS);
            if (cfg.in_order && number) pass_turn<cfg>(args, at);
            add_own_rows<cfg>(dV, P, at.dO + stage * mma_smem<cfg>::Q_bytes);
            arrive_of_warp(at.dO_empty + 8 * stage);
            add_own_rows<cfg>(dK, dS, at.Q + stage * mma_smem<cfg>::Q_bytes);
            arrive_of_warp(at.Q_empty + 8 * stage);
        }
        add_to_dQ<cfg>(args, at, steps, now, number, [&] {
            if (mma_shape<cfg>::stages > 1 || !steps.has(next)) return;
            wait_for(at.Q_empty, number);
            copy_Q<cfg>(args, at, steps, next, 0);
        });
        now = next;
    }
    if constexpr (cfg.in_order) pass_turn<cfg>(args, at);
}

#endif
