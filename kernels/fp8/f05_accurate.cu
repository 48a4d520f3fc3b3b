/* f05 - O in fp32, l of the rounded P
 *
 * parent    f02
 * idea      the accumulator of wgmma keeps 13 bits of fraction and cuts: where V has a mean, O becomes too small, the
 *           more the longer. Every fourth block O is added up in fp32 in shared memory and begins anew. And l sums P as
 *           it was rounded, so that O / l has weights that sum to 1
 * predict   a prototype that flushed every fourth block lost 6 to 9 % (854, 878 and 863 for 905, 960 and 938 TFLOP/s at
 *           2048, 8192 and 16384) and was 0.43 % too small with V of N(1, 1), at 4096 keys as at 16384, where it had
 *           been 5 and 18 %. Summing the rounded P takes about 100 instructions more of the 440 of a block: 5 %. 690
 *           TFLOP/s at 4096, non-causal, 0.88 times f02
 * config    (FP16, 128, 128, 128, 8): fp8_wgmma+stages_2+flush_4+rounded_l
 * arch      sm_90a
 */
#include "common/fp8.h"
#include "common/ptx_fp8.cuh"

/* A CTA has 128 queries of a head, each of its two computing warpgroups 64 of them. In a third warpgroup a thread of
 * the first warp starts the TMA copies of Q and, block by block from the last one on, 128 keys and values into two
 * rings; the other three warps transpose the values into a third ring.
 *
 *     S = Q Kᵀ    64 queries x 128 keys; both in shared memory, a row of 128 elements is a row of 128 bytes
 *     O += P V    P in registers, V from shared memory as Vᵀ: its rows are columns of V and their elements are keys
 *
 * Precision of P: e4m3 has 3 fraction bits and ends at 448. P = 2^(s - m) is at most 1, where nothing below 2^-9 is
 * left. P is scaled by 256, which adds 8 bits of range; l has the same factor, so O / l does not change.
 *
 * The transposition: ldmatrix.trans of 8 keys x 16 columns moves pairs of columns: with c = lane / 4 and q = lane % 4 a
 * lane gets columns 2c and 2c + 1 of keys 2q and 2q + 1. From two of them, of keys 0-7 and 8-15, PRMT takes column 2c
 * of keys 2q, 2q + 1, 8 + 2q, 9 + 2q, and column 2c + 1 of the same. stmatrix writes the four bytes contiguously.
 *
 * Register layout: of 16 columns of S lane 4g + q has columns 2q, 2q + 1, 8 + 2q and 9 + 2q of rows g and g + 8: the
 * order of the keys in Vᵀ. The even ones of 16 columns of O come first, so that the lane's pairs of two tiles are four
 * neighbors of a row.
 *
 * Source of the error: an instruction adds 32 products to the accumulator and truncates all of them, and the sum, to
 * units 2^-13 of the largest (docs/emulator.md). In long sums the largest is the accumulator itself, and each product
 * loses up to one unit. With flush_N the accumulator holds at most N blocks. Earlier blocks are summed in fp32 in
 * shared memory, 64 numbers per thread, relative to the m of their time; `carry` is the factor that accounts for later
 * changes of m. */

/* Refuse what this version can't run, and every flag that it would not act on. */
template <fp8_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.B_c == 128, "B_c must be 128: the keys of a row of V transposed");
    static_assert(cfg.n_warps == 8, "n_warps must be 8: two warpgroups of 64 queries");
    static_assert(!cfg.V_transposed, "v_transposed must be off: the kernel transposes");
    static_assert(!cfg.K_permuted, "k_permuted must be off: the keys of V are permuted");
    static_assert(cfg.flush_blocks > 0, "flush_N must be at least 1: O is added up in fp32");
    static_assert(cfg.rounded_sums, "rounded_l must be on: l sums the rounded P");
    static_assert(!cfg.any_length, "any_length must be off: blocks are whole");
    static_assert(!cfg.causal, "causal must be off: every query sees every key");
    static_assert(!cfg.persistent, "persistent must be off: a CTA has one Q block");
}

enum { WARPGROUP = 128, GROUP_ROWS = 64, TILE_ROW = 128 /* bytes */, TRANSPOSERS = 3 /* warps */ };

/* ---- shared memory ---- */

/* Addresses in shared memory. Data of a KV block exists once per stage. */
template <fp8_config cfg>
struct smem_layout {
    static constexpr uint32_t Q_bytes = cfg.B_r * TILE_ROW, K_bytes = cfg.B_c * TILE_ROW;
    static constexpr uint32_t V_bytes = cfg.B_c * TILE_ROW, Vt_bytes = cfg.d_head * TILE_ROW;
    static constexpr uint32_t O_warp_bytes = 16 * cfg.d_head * 2;
    uint32_t Q, K, V, Vt, O, sums; /* Vt: V transposed; sums: O in fp32 */
    uint32_t Q_full, K_full, K_empty, V_full, V_empty, Vt_full, Vt_empty;

    __device__ __forceinline__ smem_layout(uint32_t smem)
        : Q((smem + 1023) / 1024 * 1024), K(Q + Q_bytes), V(K + cfg.stages * K_bytes), Vt(V + cfg.stages * V_bytes),
          O(Vt + cfg.stages * Vt_bytes), sums(O + cfg.n_warps * O_warp_bytes),
          Q_full(sums + 2 * cfg.n_warps * O_warp_bytes), K_full(Q_full + 8), K_empty(K_full + 8 * cfg.stages),
          V_full(K_empty + 8 * cfg.stages), V_empty(V_full + 8 * cfg.stages), Vt_full(V_empty + 8 * cfg.stages),
          Vt_empty(Vt_full + 8 * cfg.stages) {}
};

/* ---- mbarriers ---- */

/* One thread sets them up. A full one of a copy has one arrival, of the thread that starts it; an empty one has one of
 * each computing warpgroup. Transposing warps arrive each. */
template <fp8_config cfg>
__device__ __forceinline__ void init_mbarriers(const smem_layout<cfg> &at) {
    if (threadIdx.x == 0) {
        mbarrier_init(at.Q_full, 1);
        for (int stage = 0; stage < cfg.stages; stage++) {
            mbarrier_init(at.K_full + 8 * stage, 1);
            mbarrier_init(at.V_full + 8 * stage, 1);
            mbarrier_init(at.K_empty + 8 * stage, cfg.n_warps / 4);
            mbarrier_init(at.V_empty + 8 * stage, TRANSPOSERS);
            mbarrier_init(at.Vt_full + 8 * stage, TRANSPOSERS);
            mbarrier_init(at.Vt_empty + 8 * stage, cfg.n_warps / 4);
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

template <fp8_config cfg>
__device__ __forceinline__ void copy_V(const tensor_maps &maps, const smem_layout<cfg> &at, const step<cfg> &to,
                                       int key) {
    const uint32_t full = at.V_full + 8 * to.stage;
    wait_for_phase(at.V_empty + 8 * to.stage, to.phase - 1);
    mbarrier_arrive_expect_tx(full, smem_layout<cfg>::V_bytes);
    copy_tensor_to_smem(at.V + to.stage * smem_layout<cfg>::V_bytes, maps.V, full, key, blockIdx.y, blockIdx.z);
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

/* ---- transposition: three warps ---- */

/* 16 keys and 32 columns. Lanes provide the addresses of keys 0-7 and 8-15 of 16 columns, then of the next 16 columns;
 * then those of 32 rows of transposed V, 16 bytes each. */
__device__ __forceinline__ void transpose_unit(uint32_t V, uint32_t Vt, int keys, int columns) {
    const int lane = threadIdx.x % 32, key = 16 * keys + lane % 16, row = 32 * columns + lane;
    uint32_t from[4], to[4];
    ldmatrix_x4_trans(from, V + key * TILE_ROW + ((2 * columns + lane / 16) ^ key % 8) * 16);
    for (int i = 0; i < 4; i++) to[i] = __byte_perm(from[i / 2 * 2], from[i / 2 * 2 + 1], i % 2 ? 0x7531 : 0x6420);
    stmatrix_x4(Vt + row * TILE_ROW + (keys ^ row % 8) * 16, to);
}

/* Arrive once for the warp, when all of its lanes are here. */
__device__ __forceinline__ void arrive_as_warp(uint32_t mbarrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(mbarrier);
}

template <fp8_config cfg>
__device__ __forceinline__ void transpose(const fp8_args &args, const smem_layout<cfg> &at, int warp) {
    constexpr int column_units = cfg.d_head / 32;
    const int blocks = args.seq_k / cfg.B_c;
#pragma unroll 1
    for (int i = 0; i < blocks; i++) {
        const step<cfg> now(i);
        const uint32_t V = at.V + now.stage * smem_layout<cfg>::V_bytes,
                       Vt = at.Vt + now.stage * smem_layout<cfg>::Vt_bytes;
        wait_for_phase(at.V_full + 8 * now.stage, now.phase);
        wait_for_phase(at.Vt_empty + 8 * now.stage, now.phase - 1);
#pragma unroll 4
        for (int unit = warp; unit < cfg.B_c / 16 * column_units; unit += TRANSPOSERS)
            transpose_unit(V, Vt, unit / column_units, unit % column_units);
        fence_proxy_async(); /* make this thread's stores visible to wgmma */
        arrive_as_warp(at.Vt_full + 8 * now.stage);
        arrive_as_warp(at.V_empty + 8 * now.stage);
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

/* O is overwritten where it begins again. */
template <fp8_config cfg>
__device__ __forceinline__ void start_O(float (&O)[16][4], const uint32_t (&P)[cfg.B_c / 32][4], uint32_t Vt,
                                        bool anew) {
    const uint64_t b = wgmma_descriptor(Vt, 0);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < cfg.B_c / 32; k++) wgmma_m64n128k32_e4m3(O, P[k], b + 2 * k, k > 0 || !anew);
    wgmma_commit_group();
}

/* ---- the softmax; of a lane's two rows, g and g + 8, elements 0 and 1 of a tile are of the first ---- */

/* m: base-2 logarithm of the score that maps to P = 1, 2^8 times less than the largest; l: the lane's part of the sum
 * of P after rounding. */
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
            for (int i = 2 * half; i < 2 * half + 2; i++) S[tile][i] = ex2_approx(S[tile][i] * exponent_scale - m);
    }
}

/* The sum of four numbers in e4m3. */
__device__ __forceinline__ float sum_of(uint32_t bytes) {
    const uint32_t low = cvt_f16x2_e4m3x2(bytes), high = cvt_f16x2_e4m3x2(bytes >> 16);
    return (cvt_f32_f16((uint16_t)low) + cvt_f32_f16((uint16_t)(low >> 16))) +
           (cvt_f32_f16((uint16_t)high) + cvt_f32_f16((uint16_t)(high >> 16)));
}

/* P in e4m3 as the first operand of wgmma, and its sum: the lane's pairs of two tiles of 8 keys are its four bytes of
 * 16. */
template <fp8_config cfg>
__device__ __forceinline__ void round_P(uint32_t (&P)[cfg.B_c / 32][4], row_state &row,
                                        const float (&S)[cfg.B_c / 8][4]) {
    for (int chunk = 0; chunk < cfg.B_c / 16; chunk++)
        for (int half = 0; half < 2; half++) {
            const float (&first)[4] = S[2 * chunk], (&second)[4] = S[2 * chunk + 1];
            uint32_t &four = P[chunk / 2][chunk % 2 * 2 + half];
            four = cvt_e4m3x4(first[2 * half], first[2 * half + 1], second[2 * half], second[2 * half + 1]);
            row.l[half] += sum_of(four);
        }
}

__device__ __forceinline__ void scale_O(float (&O)[16][4], const float (&factor)[2]) {
    for (int tile = 0; tile < 16; tile++)
        for (int i = 0; i < 4; i++) O[tile][i] *= factor[i / 2];
}

/* ---- O in fp32: each thread has its own numbers ---- */

/* sums = carry * sums + O, or sums = O the first time. */
__device__ __forceinline__ void flush(uint32_t sums, const float (&O)[16][4], const float (&carry)[2], bool begun) {
    for (int tile = 0; tile < 16; tile++) {
        float x[4] = {};
        if (begun) load_floats(sums + tile * WARPGROUP * 16, x);
        for (int i = 0; i < 4; i++) x[i] = x[i] * carry[i / 2] + O[tile][i];
        store_floats(sums + tile * WARPGROUP * 16, x);
    }
}

/* O += carry * sums */
__device__ __forceinline__ void take_back(uint32_t sums, float (&O)[16][4], const float (&carry)[2]) {
    for (int tile = 0; tile < 16; tile++) {
        float x[4];
        load_floats(sums + tile * WARPGROUP * 16, x);
        for (int i = 0; i < 4; i++) O[tile][i] += x[i] * carry[i / 2];
    }
}

/* ---- results ---- */

template <fp8_config cfg>
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
    return cfg.dtype == FP16 ? cvt_f16x2(low, high) : cvt_bf16x2(low, high);
}

/* The warp's 16 rows: through its own part of shared memory, two tiles of 64 elements, to the tensor. Lane 4g + q has
 * columns 4q ... 4q + 3 of rows g and g + 8: the even ones in the first of two tiles. Stores of two rows meet in the
 * banks: twice the least wavefronts, once in a Q block. */
template <fp8_config cfg>
__device__ __forceinline__ void store_O(const tensor_maps &maps, uint32_t O_addr, const float (&O)[16][4],
                                        const float (&factor)[2], int first_row) {
    const int lane = threadIdx.x % 32, q = lane % 4;
    for (int u = 0; u < 8; u++)
        for (int half = 0; half < 2; half++) {
            const float (&even)[4] = O[2 * u], (&odd)[4] = O[2 * u + 1];
            const int row = lane / 4 + 8 * half, chunk = 2 * u + q / 2;
            const uint32_t tile_row = O_addr + chunk / 8 * 16 * TILE_ROW + row * TILE_ROW;
            store_pair(tile_row + (chunk % 8 ^ row % 8) * 16 + q % 2 * 8,
                       round_pair<cfg>(even[2 * half] * factor[half], odd[2 * half] * factor[half]),
                       round_pair<cfg>(even[2 * half + 1] * factor[half], odd[2 * half + 1] * factor[half]));
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
    const uint32_t sums = at.sums + group * GROUP_ROWS * cfg.d_head * 4 + threadIdx.x % WARPGROUP * 16;
    float S[cfg.B_c / 8][4], O[16][4] = {}, factor[2], carry[2] = {};
    uint32_t P[cfg.B_c / 32][4];
    row_state row;

    wait_for_phase(at.Q_full, 0);
    wait_for_phase(at.K_full, 0);
    start_S<cfg>(S, Q, at.K);
    wgmma_wait_group<0>(S);
    if (lead) mbarrier_arrive(at.K_empty);
    take_exponentials(S, row, factor, exponent_scale);
    round_P<cfg>(P, row, S);
    bool anew = true;
#pragma unroll 1
    for (int i = 1; i < blocks; i++) {
        const step<cfg> now(i), before(i - 1);
        wait_for_phase(at.K_full + 8 * now.stage, now.phase);
        start_S<cfg>(S, Q, at.K + now.stage * of::K_bytes);
        wait_for_phase(at.Vt_full + 8 * before.stage, before.phase);
        start_O<cfg>(O, P, at.Vt + before.stage * of::Vt_bytes, anew);
        wgmma_wait_group<1>(S);
        if (lead) mbarrier_arrive(at.K_empty + 8 * now.stage);
        take_exponentials(S, row, factor, exponent_scale);
        wgmma_wait_group<0>(O);
        if (lead) mbarrier_arrive(at.Vt_empty + 8 * before.stage);
        anew = i % cfg.flush_blocks == 0;
        if (anew)
            flush(sums, O, carry, i > cfg.flush_blocks);
        else
            scale_O(O, factor);
        for (int half = 0; half < 2; half++) carry[half] = anew ? factor[half] : carry[half] * factor[half];
        round_P<cfg>(P, row, S);
    }
    const step<cfg> last(blocks - 1);
    wait_for_phase(at.Vt_full + 8 * last.stage, last.phase);
    start_O<cfg>(O, P, at.Vt + last.stage * of::Vt_bytes, anew);
    wgmma_wait_group<0>(O);
    if (blocks > cfg.flush_blocks) take_back(sums, O, carry);

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
    if (group == 0) { /* 168 registers a thread at the start: 3 * 168 are 40 and twice 232 */
        setmaxnreg_dec<40>();
        const int warp = warp_uniform(threadIdx.x / 32);
        if (warp > 0) transpose<cfg>(args, at, warp - 1);
        if (threadIdx.x == 0) produce<cfg>(args, maps, at);
    } else {
        setmaxnreg_inc<232>();
        attend<cfg>(args, maps, at, group - 1);
    }
}

#include "instances.cuh"
