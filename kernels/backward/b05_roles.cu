/* b05 - tensor copies and three roles
 *
 * parent    b04
 * idea      one thread has the copy engine bring Q, dO and their statistics into a ring; two warpgroups keep dK and dV,
 *           a third multiplies dQ and adds it; mbarriers hand blocks over, and no barrier of the CTA is left
 * credit    FlashAttention-3's backward has a warp of its own that adds dQ; here a warpgroup multiplies it, too
 * predict   copies, dQ and adding run beside the other products. In line for a block are S, the exponentials, dP, dS,
 *           dV and dK, with 2048 of the block's 2560 cycles of the tensor pipe, but for each warpgroup by itself: the
 *           products of one fill the arithmetic of the other. A prototype of this shape that also overlaps within a
 *           warpgroup has 538 TFLOP/s at 4096 (README.md), b04 with no overlap 300: 450, 1.5 times b04
 * config    (FP16, 128, 64, 128, 12): backward_wgmma+dq_sums+stages_2+tensor
 * arch      sm_90a
 */
#include "common/backward.h"
#include "common/ptx_backward.cuh"
#include "kernels/backward/rows.cuh"

/* A CTA owns 128 keys of a head. Warpgroups 1 and 2 have 64 of them each, and never wait for each other. For a block of
 * 64 queries
 *
 *     warpgroups 1, 2    Sᵀ = K Qᵀ, dPᵀ = V dOᵀ, dV += Pᵀ dO, dK += dSᵀ Q; dSᵀ goes to shared memory
 *     warpgroup 0        dQ = dS K, 64 columns at a time, added to the sums; its first thread starts all copies
 *
 * Synchronization, at mbarriers, each of a stage of the ring:
 *
 *     full       the bytes of Q, dO, log-sum-exp and delta have come          8 warps wait
 *     empty      the 8 warps have read them                                   the copying thread waits
 *     dS_full    the 8 warps have stored dS                                   warpgroup 0 waits
 *     dS_empty   warpgroup 0 has multiplied it                                8 warps wait
 *
 * A warpgroup has room for dK and dV (128 registers of a thread) and for one block of scores: P is kept in 16 bits
 * alone once S is gone. Warpgroup 0 gives registers to the other two.
 *
 * Register layout: warp w of a warpgroup has rows 16w ... of its 64; a tile of 8 columns is held as with mma.sync. In
 * shared memory a block is a row of tiles of 64 elements, whose 16-byte chunks are swizzled (common/ptx_sm90a.cuh). */

/* Refuse what this version can't run, and every flag that it would not act on. */
template <backward_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.instruction == WGMMA, "instruction must be backward_wgmma");
    static_assert(cfg.d_head == 128, "d_head must be 128: a warpgroup has 64 columns of dQ");
    static_assert(cfg.B_r == 64 && cfg.B_c == 128 && cfg.n_warps == 12,
                  "B_r, B_c and n_warps must be 64, 128 and 12: two warpgroups of 64 keys, one for dQ");
    static_assert(cfg.dQ_sums, "dQ_sums must be on: every CTA adds its part of dQ");
    static_assert(!cfg.in_order, "in_order must be off: b03 shows it");
    static_assert(cfg.stages == 2, "stages must be 2: one block is copied while another is read");
    static_assert(cfg.tensor_copies, "tensor_copies must be on: the copy engine copies blocks");
    static_assert(!cfg.causal, "causal must be off: every query sees every key");
    static_assert(!cfg.grouped_heads, "grouped_heads must be off: each head has its own keys");
}

enum { WARPGROUP = 128, KEY_WARPS = 8, TILE_ROW = 128 /* bytes */, SPAN = 64 /* elements of a row of a tile */ };

/* ---- shared memory ---- */

/* Addresses in shared memory. Data of a block exists once per stage. */
template <backward_config cfg>
struct smem_layout {
    static constexpr uint32_t KV_tile = cfg.B_c * TILE_ROW, Q_tile = cfg.B_r * TILE_ROW;
    static constexpr uint32_t KV_bytes = cfg.d_head / SPAN * KV_tile, Q_bytes = cfg.d_head / SPAN * Q_tile;
    static constexpr uint32_t dS_bytes = cfg.B_c * TILE_ROW, row_bytes = cfg.B_r * sizeof(float);
    uint32_t K, V, Q, dO, dS, lse, delta; /* dS: the B_c keys are the rows of one tile, queries their elements */
    uint32_t KV_full, full, empty, dS_full, dS_empty;

    __device__ __forceinline__ smem_layout(uint32_t smem)
        : K((smem + 1023) / 1024 * 1024), V(K + KV_bytes), Q(V + KV_bytes), dO(Q + cfg.stages * Q_bytes),
          dS(dO + cfg.stages * Q_bytes), lse(dS + cfg.stages * dS_bytes), delta(lse + cfg.stages * row_bytes),
          KV_full(delta + cfg.stages * row_bytes), full(KV_full + 8), empty(full + 8 * cfg.stages),
          dS_full(empty + 8 * cfg.stages), dS_empty(dS_full + 8 * cfg.stages) {}
};

/* ---- mbarriers ---- */

/* One thread sets them up. Full ones have one arrival, of the thread that starts the copies. */
template <backward_config cfg>
__device__ __forceinline__ void init_mbarriers(const smem_layout<cfg> &at) {
    if (threadIdx.x == 0) {
        mbarrier_init(at.KV_full, 1);
        for (int stage = 0; stage < cfg.stages; stage++) {
            mbarrier_init(at.full + 8 * stage, 1);
            mbarrier_init(at.empty + 8 * stage, KEY_WARPS);
            mbarrier_init(at.dS_full + 8 * stage, KEY_WARPS);
            mbarrier_init(at.dS_empty + 8 * stage, 4);
        }
        fence_mbarrier_init();
    }
    __syncthreads(); /* they are set up */
}

/* Wait until phase number `phase` of an mbarrier is complete; the mbarrier may lag by at most one phase. Number -1,
 * before the first, is. */
__device__ __forceinline__ void wait_for_phase(uint32_t mbarrier, int phase) {
    while (!mbarrier_try_wait_parity(mbarrier, phase & 1)) {
    }
}

/* Arrive once for the warp, when all of its lanes are here. */
__device__ __forceinline__ void arrive_as_warp(uint32_t mbarrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(mbarrier);
}

/* ---- copies: one thread ---- */

template <backward_config cfg>
__device__ __forceinline__ void copy_KV(const tensor_maps &maps, const smem_layout<cfg> &at) {
    mbarrier_arrive_expect_tx(at.KV_full, 2 * smem_layout<cfg>::KV_bytes);
    copy_tensor_to_smem(at.K, maps.K, at.KV_full, blockIdx.x * cfg.B_c, blockIdx.y, blockIdx.z);
    copy_tensor_to_smem(at.V, maps.V, at.KV_full, blockIdx.x * cfg.B_c, blockIdx.y, blockIdx.z);
}

/* Block number `block` and the statistics of its queries, once the block that had the stage before is read. */
template <backward_config cfg>
__device__ __forceinline__ void copy_queries(const backward_args &args, const tensor_maps &maps,
                                             const smem_layout<cfg> &at, int block) {
    using of = smem_layout<cfg>;
    const int stage = block % cfg.stages, row = block * cfg.B_r;
    const int64_t number = ((int64_t)blockIdx.z * args.heads + blockIdx.y) * args.seq_q + row;
    const uint32_t full = at.full + 8 * stage;
    wait_for_phase(at.empty + 8 * stage, block / cfg.stages - 1);
    mbarrier_arrive_expect_tx(full, 2 * (of::Q_bytes + of::row_bytes));
    copy_tensor_to_smem(at.Q + stage * of::Q_bytes, maps.Q, full, row, blockIdx.y, blockIdx.z);
    copy_bytes_to_smem(at.lse + stage * of::row_bytes, args.LSE + number, of::row_bytes, full);
    copy_tensor_to_smem(at.dO + stage * of::Q_bytes, maps.O, full, row, blockIdx.y, blockIdx.z);
    copy_bytes_to_smem(at.delta + stage * of::row_bytes, args.delta + number, of::row_bytes, full);
}

/* ---- products: each is started and closed as a group ---- */

/* d = 64 rows of a block of B_c rows times all rows of a block of B_r rows, transposed. */
template <backward_config cfg>
__device__ __forceinline__ void start_scores(float (&d)[8][4], uint32_t own, uint32_t other) {
    const uint64_t a = wgmma_descriptor(own, 0), b = wgmma_descriptor(other, 0);
#pragma unroll
    for (int k = 0; k < cfg.d_head / 16; k++) {
        const uint64_t of_a = a + k / 4 * (smem_layout<cfg>::KV_tile / 16) + k % 4 * 2;
        const uint64_t of_b = b + k / 4 * (smem_layout<cfg>::Q_tile / 16) + k % 4 * 2;
        if constexpr (cfg.dtype == FP16)
            wgmma_m64n64k16_f16(d, of_a, of_b, k > 0);
        else
            wgmma_m64n64k16_bf16(d, of_a, of_b, k > 0);
    }
    wgmma_commit_group();
}

/* sums += coefficients (64 keys by B_r queries) times the rows of Q or dO. */
template <backward_config cfg>
__device__ __forceinline__ void start_sums(float (&sums)[16][4], const uint32_t (&coefficients)[4][4], uint32_t other) {
    const uint64_t b = wgmma_descriptor(other, smem_layout<cfg>::Q_tile);
#pragma unroll
    for (int k = 0; k < cfg.B_r / 16; k++)
        if constexpr (cfg.dtype == FP16)
            wgmma_m64n128k16_f16_trans(sums, coefficients[k], b + 128 * k, 1);
        else
            wgmma_m64n128k16_bf16_trans(sums, coefficients[k], b + 128 * k, 1);
    wgmma_commit_group();
}

/* dQ of B_r queries and the 64 columns of a tile of K, over B_c keys. */
template <backward_config cfg>
__device__ __forceinline__ void start_dQ(float (&dQ)[8][4], uint32_t dS, uint32_t K_tile) {
    const uint64_t a = wgmma_descriptor(dS, 0), b = wgmma_descriptor(K_tile, 0);
#pragma unroll
    for (int k = 0; k < cfg.B_c / 16; k++)
        if constexpr (cfg.dtype == FP16)
            wgmma_m64n64k16_f16_both_trans(dQ, a + 128 * k, b + 128 * k, k > 0);
        else
            wgmma_m64n64k16_bf16_both_trans(dQ, a + 128 * k, b + 128 * k, k > 0);
    wgmma_commit_group();
}

/* ---- the softmax and its gradient ---- */

/* Scores as the first operand of a product. */
template <backward_config cfg>
__device__ __forceinline__ void round_scores(uint32_t (&a)[4][4], const float (&scores)[8][4]) {
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 4; i++) {
            const float (&from)[4] = scores[2 * k + i / 2];
            a[k][i] = round_pair<cfg>(from[i % 2 * 2], from[i % 2 * 2 + 1]);
        }
}

/* Two neighbouring floats in shared memory: those of the queries of elements 0 and 1 of a tile, and of 2 and 3. */
__device__ __forceinline__ float2 load_pair(uint32_t smem_addr, int tile) {
    float2 pair;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(pair.x), "=f"(pair.y)
                 : "r"(smem_addr + 4 * (8 * tile + threadIdx.x % 4 * 2))
                 : "memory");
    return pair;
}

__device__ __forceinline__ void take_exponentials(float (&P)[8][4], float exponent_scale, uint32_t lse) {
    for (int tile = 0; tile < 8; tile++) {
        const float2 of = load_pair(lse, tile);
        for (int i = 0; i < 4; i++)
            P[tile][i] = ex2_approx(P[tile][i] * exponent_scale - (i % 2 ? of.y : of.x) * 1.44269504f);
    }
}

/* Turn dP into dS in place, with the rounded P. */
template <backward_config cfg>
__device__ __forceinline__ void differentiate(float (&dS)[8][4], const uint32_t (&P)[4][4], uint32_t delta) {
    for (int tile = 0; tile < 8; tile++) {
        const float2 of = load_pair(delta, tile);
        for (int half = 0; half < 2; half++) {
            float p[2];
            widen_pair<cfg>(P[tile / 2][tile % 2 * 2 + half], p[0], p[1]);
            dS[tile][2 * half] = p[0] * (dS[tile][2 * half] - of.x);
            dS[tile][2 * half + 1] = p[1] * (dS[tile][2 * half + 1] - of.y);
        }
    }
}

/* Put dSᵀ of the warpgroup's keys into shared memory. Lanes provide the addresses of keys 0-7 and 8-15 of eight
 * queries, then of the next eight queries. */
__device__ __forceinline__ void store_dS(uint32_t dS, const uint32_t (&a)[4][4]) {
    const int lane = threadIdx.x % 32, key = (threadIdx.x - WARPGROUP) / 32 * 16 + lane % 16;
    for (int k = 0; k < 4; k++) stmatrix_x4(dS + key * TILE_ROW + ((2 * k + lane / 16) ^ key % 8) * 16, a[k]);
}

/* ---- results ---- */

/* Add columns first_column ... first_column + 63 of dQ to the sums of B_r queries. */
template <backward_config cfg>
__device__ __forceinline__ void add_dQ(const backward_args &args, const float (&dQ)[8][4], int first_row,
                                       int first_column) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t row = ((int64_t)blockIdx.z * args.heads + blockIdx.y) * args.seq_q + first_row + 16 * warp + lane / 4;
    float *const sums = args.sums + row * cfg.d_head + first_column + lane % 4 * 2;
    for (int tile = 0; tile < 8; tile++)
        for (int half = 0; half < 2; half++)
            red_add_v2(sums + half * 8 * cfg.d_head + 8 * tile, dQ[tile][2 * half], dQ[tile][2 * half + 1]);
}

/* Write the warp's 16 keys of a gradient, times a factor. */
template <backward_config cfg>
__device__ __forceinline__ void store_rows(void *gmem, const tensor_strides &strides, const float (&sums)[16][4],
                                           float factor) {
    const int lane = threadIdx.x % 32;
    const int row = blockIdx.x * cfg.B_c + (threadIdx.x - WARPGROUP) / 32 * 16 + lane / 4;
    const int64_t first = blockIdx.z * strides.batch + blockIdx.y * strides.head + row * strides.seq;
    for (int tile = 0; tile < 16; tile++)
        for (int half = 0; half < 2; half++)
            *(uint32_t *)((uint16_t *)gmem + first + 8 * half * strides.seq + 8 * tile + lane % 4 * 2) =
                round_pair<cfg>(factor * sums[tile][2 * half], factor * sums[tile][2 * half + 1]);
}

/* ---- the roles ---- */

/* Warpgroup 0: copies one block ahead, dQ of the block at hand. */
template <backward_config cfg>
__device__ __forceinline__ void copy_and_multiply_dQ(const backward_args &args, const tensor_maps &maps,
                                                     const smem_layout<cfg> &at) {
    const int blocks = args.seq_q / cfg.B_r;
    const bool copies = threadIdx.x == 0;
    if (copies) {
        copy_KV<cfg>(maps, at);
        copy_queries<cfg>(args, maps, at, 0);
    }
    __syncwarp();
    wait_for_phase(at.KV_full, 0);
    for (int block = 0; block < blocks; block++) {
        const int stage = block % cfg.stages;
        if (copies && block + 1 < blocks) copy_queries<cfg>(args, maps, at, block + 1);
        __syncwarp();
        wait_for_phase(at.dS_full + 8 * stage, block / cfg.stages);
#pragma unroll 1
        for (int half = 0; half < 2; half++) {
            float dQ[8][4];
            wgmma_fence();
            start_dQ<cfg>(dQ, at.dS + stage * smem_layout<cfg>::dS_bytes, at.K + half * smem_layout<cfg>::KV_tile);
            wgmma_wait_group<0>(dQ);
            if (half) arrive_as_warp(at.dS_empty + 8 * stage);
            add_dQ<cfg>(args, dQ, block * cfg.B_r, half * SPAN);
        }
    }
}

/* Warpgroups 1 and 2: dK and dV of 64 keys. */
template <backward_config cfg>
__device__ __forceinline__ void multiply_keys(const backward_args &args, const smem_layout<cfg> &at) {
    using of = smem_layout<cfg>;
    const int blocks = args.seq_q / cfg.B_r;
    const uint32_t own =
        (warp_uniform(threadIdx.x / WARPGROUP) - 1) * 64 * TILE_ROW; /* the warpgroup's keys within a tile */
    float dK[16][4] = {}, dV[16][4] = {};
    wait_for_phase(at.KV_full, 0);
#pragma unroll 1
    for (int block = 0; block < blocks; block++) {
        const int stage = block % cfg.stages, phase = block / cfg.stages;
        const uint32_t Q = at.Q + stage * of::Q_bytes, dO = at.dO + stage * of::Q_bytes;
        uint32_t of_P[4][4], of_dS[4][4];
        wait_for_phase(at.full + 8 * stage, phase);
        {
            float P[8][4];
            wgmma_fence();
            start_scores<cfg>(P, at.K + own, Q);
            wgmma_wait_group<0>(P);
            take_exponentials(P, args.softmax_scale * 1.44269504f, at.lse + stage * of::row_bytes);
            round_scores<cfg>(of_P, P);
        }
        float dS[8][4];
        wgmma_fence();
        start_scores<cfg>(dS, at.V + own, dO);
        wgmma_wait_group<0>(dS);
        differentiate<cfg>(dS, of_P, at.delta + stage * of::row_bytes);
        round_scores<cfg>(of_dS, dS);
        wait_for_phase(at.dS_empty + 8 * stage, phase - 1);
        store_dS(at.dS + stage * of::dS_bytes, of_dS);
        fence_proxy_async(); /* make this thread's stores visible to wgmma */
        arrive_as_warp(at.dS_full + 8 * stage);
        wgmma_fence();
        start_sums<cfg>(dV, of_P, dO);
        start_sums<cfg>(dK, of_dS, Q);
        wgmma_wait_group<0>(dK);
        wgmma_wait_group<0>(dV);
        arrive_as_warp(at.empty + 8 * stage);
    }
    store_rows<cfg>(args.dK, args.K_strides, dK, args.softmax_scale);
    store_rows<cfg>(args.dV, args.V_strides, dV, 1);
}

/* ---- the kernel: grid (seq / B_c, heads, batch), 32 * n_warps threads ---- */

template <backward_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps, 1)
    flash_backward(const __grid_constant__ backward_args args, const __grid_constant__ tensor_maps maps) {
    check_config<cfg>();
    extern __shared__ char smem_bytes[];
    const smem_layout<cfg> at(__cvta_generic_to_shared(smem_bytes));
    init_mbarriers<cfg>(at);
    if (warp_uniform(threadIdx.x / WARPGROUP) == 0) {
        setmaxnreg_dec<72>();
        copy_and_multiply_dQ<cfg>(args, maps, at);
    } else {
        setmaxnreg_inc<216>();
        multiply_keys<cfg>(args, at);
    }
}

#include "instances.cuh"
