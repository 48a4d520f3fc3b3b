/* f01 - V transposed by the caller
 *
 * parent    none
 * idea      wgmma of e4m3, which multiplies twice as many elements in its time: Q and K as stored, V transposed by
 *           the caller, as bytes have no transposing form, and P in e4m3, moved between lanes by shuffles
 * credit    FlashAttention-3 has P at most 256 in e4m3, and the pipeline: S of the next block during O of this one
 * predict   a prototype that needs no shuffles, with CTAs that stay and Q in registers, has 916 TFLOP/s (4096:
 *           README.md); staying gave 6 % in fp16. A block of 128 keys takes 32 SHFL of each warp, 256 cycles of a
 *           multiprocessor whose tensor cores need 1024 for it and ran at half their speed: 10 % more. 780 TFLOP/s at
 *           4096, non-causal
 * config    (FP16, 128, 128, 128, 8): fp8_wgmma+stages_2+v_transposed
 * arch      sm_90a
 */
#include "common/fp8.h"
#include "common/ptx_fp8.cuh"

/* A CTA has 128 queries of a head, each of its two computing warpgroups 64 of them. One thread of a third warpgroup has
 * TMA bring Q and, block by block from the last one on, 128 keys and values into two rings.
 *
 *     S = Q Kᵀ    64 queries x 128 keys; both in shared memory, a row of 128 elements is a row of 128 bytes
 *     O += P V    P in registers, V from shared memory as Vᵀ: its rows are columns of V and their elements are keys
 *
 * wgmma of 16-bit elements can read a matrix by columns. The form for bytes cannot, so the caller stores V as [batch,
 * heads, d_head, seq].
 *
 * Precision of P: e4m3 has 3 fraction bits and ends at 448. P = 2^(s - m) is at most 1, where nothing below 2^-9 is
 * left. P is scaled by 256, which adds 8 bits of range; l has the same factor, so O / l does not change.
 *
 * Register layout: of 8 columns of S lane 4g + q has columns 2q and 2q + 1 of rows g and g + 8. As the first operand of
 * the next product it must have keys 4q ... 4q + 3 of 16: the pairs of two neighbouring lanes. */

/* Refuse what this version can't run, and every flag that it would not act on. */
template <fp8_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.B_c == 128, "B_c must be 128: a row of V transposed has 128 bytes");
    static_assert(cfg.n_warps == 8, "n_warps must be 8: two warpgroups of 64 queries");
    static_assert(cfg.V_transposed, "v_transposed must be on: the kernel does not transpose");
    static_assert(!cfg.K_permuted, "k_permuted must be off: shuffles move P");
    static_assert(cfg.flush_blocks == 0, "flush_N must be 0: O stays in the accumulator");
    static_assert(!cfg.rounded_sums, "rounded_l must be off: l sums P before it is rounded");
    static_assert(!cfg.any_length, "any_length must be off: blocks are whole");
    static_assert(!cfg.causal, "causal must be off: every query sees every key");
    static_assert(!cfg.persistent, "persistent must be off: a CTA has one Q block");
}

enum { WARPGROUP = 128, GROUP_ROWS = 64, TILE_ROW = 128 /* bytes */ };

/* ---- shared memory ---- */

/* Addresses in shared memory. Data of a KV block exists once per stage. */
template <fp8_config cfg>
struct smem_layout {
    static constexpr uint32_t Q_bytes = cfg.B_r * TILE_ROW, K_bytes = cfg.B_c * TILE_ROW;
    static constexpr uint32_t V_bytes = cfg.d_head * TILE_ROW, O_warp_bytes = 16 * cfg.d_head * 2;
    uint32_t Q, K, V, O;
    uint32_t Q_full, K_full, K_empty, V_full, V_empty;

    __device__ __forceinline__ smem_layout(uint32_t smem)
        : Q((smem + 1023) / 1024 * 1024), K(Q + Q_bytes), V(K + cfg.stages * K_bytes), O(V + cfg.stages * V_bytes),
          Q_full(O + cfg.n_warps * O_warp_bytes), K_full(Q_full + 8), K_empty(K_full + 8 * cfg.stages),
          V_full(K_empty + 8 * cfg.stages), V_empty(V_full + 8 * cfg.stages) {}
};

/* ---- mbarriers ---- */

/* One thread sets them up. A full one has one arrival, of the thread that starts the copy; an empty one has one of each
 * computing warpgroup. */
template <fp8_config cfg>
__device__ __forceinline__ void init_mbarriers(const smem_layout<cfg> &at) {
    if (threadIdx.x == 0) {
        mbarrier_init(at.Q_full, 1);
        for (int stage = 0; stage < cfg.stages; stage++) {
            mbarrier_init(at.K_full + 8 * stage, 1);
            mbarrier_init(at.V_full + 8 * stage, 1);
            mbarrier_init(at.K_empty + 8 * stage, cfg.n_warps / 4);
            mbarrier_init(at.V_empty + 8 * stage, cfg.n_warps / 4);
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

/* Step number i of a ring: its stage, and how often that was used before. */
template <fp8_config cfg>
struct step {
    int stage, phase;
    __device__ __forceinline__ step(int i) : stage(i % cfg.stages), phase(i / cfg.stages) {}
};

/* ---- copies: one thread ---- */

template <fp8_config cfg>
__device__ __forceinline__ void copy_Q(const tensor_maps &maps, const smem_layout<cfg> &at) {
    mbarrier_arrive_expect_tx(at.Q_full, smem_layout<cfg>::Q_bytes);
    for (int group = 0; group < cfg.n_warps / 4; group++)
        copy_tensor_to_smem(at.Q + group * GROUP_ROWS * TILE_ROW, maps.Q, at.Q_full,
                            blockIdx.x * cfg.B_r + group * GROUP_ROWS, blockIdx.y, blockIdx.z);
}

template <fp8_config cfg>
__device__ __forceinline__ void copy_K(const tensor_maps &maps, const smem_layout<cfg> &at, const step<cfg> &to,
                                       int key) {
    const uint32_t full = at.K_full + 8 * to.stage;
    wait_for_phase(at.K_empty + 8 * to.stage, to.phase - 1);
    mbarrier_arrive_expect_tx(full, smem_layout<cfg>::K_bytes);
    copy_tensor_to_smem(at.K + to.stage * smem_layout<cfg>::K_bytes, maps.K, full, key, blockIdx.y, blockIdx.z);
}

/* In the map of V the keys are the elements of a row. */
template <fp8_config cfg>
__device__ __forceinline__ void copy_V(const tensor_maps &maps, const smem_layout<cfg> &at, const step<cfg> &to,
                                       int key) {
    const uint32_t full = at.V_full + 8 * to.stage;
    wait_for_phase(at.V_empty + 8 * to.stage, to.phase - 1);
    mbarrier_arrive_expect_tx(full, smem_layout<cfg>::V_bytes);
    copy_box_to_smem(at.V + to.stage * smem_layout<cfg>::V_bytes, maps.V, full, key, 0, 0, blockIdx.y, blockIdx.z);
}

template <fp8_config cfg>
__device__ __forceinline__ void produce(const fp8_args &args, const tensor_maps &maps, const smem_layout<cfg> &at) {
    const int blocks = args.seq_k / cfg.B_c;
    copy_Q<cfg>(maps, at);
#pragma unroll 1
    for (int i = 0; i < blocks; i++) {
        const int key = (blocks - 1 - i) * cfg.B_c;
        copy_K<cfg>(maps, at, step<cfg>(i), key);
        copy_V<cfg>(maps, at, step<cfg>(i), key);
    }
}

/* ---- products: each is started and closed as a group ---- */

template <fp8_config cfg>
__device__ __forceinline__ void start_S(float (&S)[cfg.B_c / 8][4], uint32_t Q, uint32_t K) {
    const uint64_t a = wgmma_descriptor(Q, 0), b = wgmma_descriptor(K, 0);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < cfg.d_head / 32; k++) wgmma_m64n128k32_e4m3(S, a + 2 * k, b + 2 * k, k > 0);
    wgmma_commit_group();
}

template <fp8_config cfg>
__device__ __forceinline__ void start_O(float (&O)[16][4], const uint32_t (&P)[cfg.B_c / 32][4], uint32_t V) {
    const uint64_t b = wgmma_descriptor(V, 0);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < cfg.B_c / 32; k++) wgmma_m64n128k32_e4m3(O, P[k], b + 2 * k, 1);
    wgmma_commit_group();
}

/* ---- the softmax; of a lane's two rows, g and g + 8, elements 0 and 1 of a tile are of the first ---- */

/* m: base-2 logarithm of the score that maps to P = 1, 2^8 times less than the largest; l: the lane's part of the sum.
 */
struct row_state {
    float m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
};

enum { P_BITS = 8 }; /* P is at most 2^8, which e4m3 has exactly */

/* The largest score of each row; all four lanes of it get it. */
template <int tiles>
__device__ __forceinline__ void find_maxima(float (&most)[2], const float (&S)[tiles][4]) {
    for (int half = 0; half < 2; half++) {
        most[half] = -INFINITY;
        for (int tile = 0; tile < tiles; tile++)
            most[half] = fmaxf(most[half], fmaxf(S[tile][2 * half], S[tile][2 * half + 1]));
        most[half] = fmaxf(most[half], __shfl_xor_sync(0xffffffff, most[half], 1));
        most[half] = fmaxf(most[half], __shfl_xor_sync(0xffffffff, most[half], 2));
    }
}

/* Turn S into P in place. `factor` is what is left of l and O, which have the maximum of the blocks before. */
template <int tiles>
__device__ __forceinline__ void take_exponentials(float (&S)[tiles][4], row_state &row, float (&factor)[2],
                                                  float exponent_scale) {
    float most[2];
    find_maxima(most, S);
    for (int half = 0; half < 2; half++) {
        const float m = fmaxf(row.m[half], most[half] * exponent_scale - P_BITS);
        factor[half] = ex2_approx(row.m[half] - m);
        row.m[half] = m;
        row.l[half] *= factor[half];
        for (int tile = 0; tile < tiles; tile++)
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                S[tile][i] = ex2_approx(S[tile][i] * exponent_scale - m);
                row.l[half] += S[tile][i];
            }
    }
}

/* P in e4m3 as the first operand of wgmma. The lane rounds its two pairs of two tiles of 8 keys to four bytes. The keys
 * that it needs are the first pairs or the second ones of lanes 0 and 1 or 2 and 3 of its quad. */
template <fp8_config cfg>
__device__ __forceinline__ void round_P(uint32_t (&P)[cfg.B_c / 32][4], const float (&S)[cfg.B_c / 8][4]) {
    const int q = threadIdx.x % 4;
    for (int chunk = 0; chunk < cfg.B_c / 16; chunk++)
        for (int half = 0; half < 2; half++) {
            const float (&first)[4] = S[2 * chunk], (&second)[4] = S[2 * chunk + 1];
            const uint32_t own =
                cvt_e4m3x4(first[2 * half], first[2 * half + 1], second[2 * half], second[2 * half + 1]);
            const uint32_t left = __shfl_sync(0xffffffff, own, q % 2 * 2, 4);
            const uint32_t right = __shfl_sync(0xffffffff, own, q % 2 * 2 + 1, 4);
            P[chunk / 2][chunk % 2 * 2 + half] = __byte_perm(left, right, q < 2 ? 0x5410 : 0x7632);
        }
}

__device__ __forceinline__ void scale_O(float (&O)[16][4], const float (&factor)[2]) {
    for (int tile = 0; tile < 16; tile++)
        for (int i = 0; i < 4; i++) O[tile][i] *= factor[i / 2];
}

/* ---- results ---- */

template <fp8_config cfg>
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
    return cfg.dtype == FP16 ? cvt_f16x2(low, high) : cvt_bf16x2(low, high);
}

/* The warp's 16 rows: through its own part of shared memory, two tiles of 64 elements, to the tensor. Lanes provide the
 * addresses of rows 0-7 and 8-15 of eight columns, then of the next eight columns. */
template <fp8_config cfg>
__device__ __forceinline__ void store_O(const tensor_maps &maps, uint32_t O_addr, const float (&O)[16][4],
                                        const float (&factor)[2], int first_row) {
    const int lane = threadIdx.x % 32, row = lane % 16;
    for (int u = 0; u < 8; u++) {
        uint32_t pairs[4];
        for (int i = 0; i < 4; i++) {
            const float (&from)[4] = O[2 * u + i / 2];
            pairs[i] = round_pair<cfg>(from[i % 2 * 2] * factor[i % 2], from[i % 2 * 2 + 1] * factor[i % 2]);
        }
        const int chunk = 2 * u + lane / 16;
        stmatrix_x4(O_addr + chunk / 8 * 16 * TILE_ROW + row * TILE_ROW + (chunk % 8 ^ row % 8) * 16, pairs);
    }
    fence_proxy_async(); /* make this thread's stores visible to TMA */
    __syncwarp();        /* all lanes have stored */
    if (lane == 0) {
        copy_smem_to_tensor(maps.O, O_addr, first_row, blockIdx.y, blockIdx.z);
        bulk_commit_group();
        bulk_wait_group_read<0>(); /* the shared memory lives as long as it is read */
    }
}

__device__ __forceinline__ void store_LSE(const fp8_args &args, const row_state &row, int first_row) {
    const int lane = threadIdx.x % 32;
    float *const LSE = args.LSE + ((int64_t)blockIdx.z * args.heads + blockIdx.y) * args.seq_q + first_row + lane / 4;
    if (lane % 4 == 0)
        for (int half = 0; half < 2; half++) LSE[8 * half] = 0.69314718f * (row.m[half] + lg2_approx(row.l[half]));
}

/* ---- a computing warpgroup: 64 queries ---- */

template <fp8_config cfg>
__device__ __forceinline__ void attend(const fp8_args &args, const tensor_maps &maps, const smem_layout<cfg> &at,
                                       int group) {
    using of = smem_layout<cfg>;
    const bool lead = threadIdx.x % WARPGROUP == 0;
    const int blocks = args.seq_k / cfg.B_c;
    const uint32_t Q = at.Q + group * GROUP_ROWS * TILE_ROW;
    const float exponent_scale = args.softmax_scale * args.Q_descale * args.K_descale * 1.44269504f;
    float S[cfg.B_c / 8][4], O[16][4] = {}, factor[2];
    uint32_t P[cfg.B_c / 32][4];
    row_state row;

    wait_for_phase(at.Q_full, 0);
    wait_for_phase(at.K_full, 0);
    start_S<cfg>(S, Q, at.K);
    wgmma_wait_group<0>(S);
    if (lead) mbarrier_arrive(at.K_empty);
    take_exponentials(S, row, factor, exponent_scale);
    round_P<cfg>(P, S);
#pragma unroll 1
    for (int i = 1; i < blocks; i++) {
        const step<cfg> now(i), before(i - 1);
        wait_for_phase(at.K_full + 8 * now.stage, now.phase);
        start_S<cfg>(S, Q, at.K + now.stage * of::K_bytes);
        wait_for_phase(at.V_full + 8 * before.stage, before.phase);
        start_O<cfg>(O, P, at.V + before.stage * of::V_bytes);
        wgmma_wait_group<1>(S);
        if (lead) mbarrier_arrive(at.K_empty + 8 * now.stage);
        take_exponentials(S, row, factor, exponent_scale);
        wgmma_wait_group<0>(O);
        if (lead) mbarrier_arrive(at.V_empty + 8 * before.stage);
        scale_O(O, factor);
        round_P<cfg>(P, S);
    }
    const step<cfg> last(blocks - 1);
    wait_for_phase(at.V_full + 8 * last.stage, last.phase);
    start_O<cfg>(O, P, at.V + last.stage * of::V_bytes);
    wgmma_wait_group<0>(O);

    for (int half = 0; half < 2; half++) {
        row.l[half] += __shfl_xor_sync(0xffffffff, row.l[half], 1);
        row.l[half] += __shfl_xor_sync(0xffffffff, row.l[half], 2);
        factor[half] = args.V_descale / row.l[half];
    }
    const int warp = threadIdx.x / 32 - 4, first_row = blockIdx.x * cfg.B_r + 16 * warp;
    store_O<cfg>(maps, at.O + warp * of::O_warp_bytes, O, factor, first_row);
    if (args.LSE) store_LSE(args, row, first_row);
}

/* ---- the kernel: grid (seq_q / B_r, heads, batch), 32 * (n_warps + 4) threads ---- */

template <fp8_config cfg>
__global__ void __launch_bounds__(32 * (cfg.n_warps + 4), 1)
    flash_forward(const __grid_constant__ fp8_args args, const __grid_constant__ tensor_maps maps) {
    check_config<cfg>();
    extern __shared__ char smem_bytes[];
    const smem_layout<cfg> at(__cvta_generic_to_shared(smem_bytes));
    init_mbarriers<cfg>(at);
    const int group = warp_uniform(threadIdx.x / WARPGROUP);
    if (group == 0) { /* 168 registers per thread at launch; the copying warps give registers to the computing ones */
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0) produce<cfg>(args, maps, at);
    } else {
        setmaxnreg_inc<240>();
        attend<cfg>(args, maps, at, group - 1);
    }
}

#include "instances.cuh"
