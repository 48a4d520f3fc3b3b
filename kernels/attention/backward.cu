/* attention/backward - the gradients of attention on Hopper
 *
 * config    (FP16, 128, 64, 128, 12): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length
 * others    (FP16, 64, 64, 128, 12): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length
 * ordered   (FP16, 128, 64, 128, 12): backward_wgmma+dq_sums+in_order+stages_2+tensor+causal+grouped+any_length;
 *           (FP16, 64, 64, 128, 12): backward_wgmma+dq_sums+in_order+stages_2+tensor+causal+grouped+any_length
 * arch      sm_90a
 */
#include "common/backward.h"
#include "common/ptx_backward.cuh"
#include "kernels/attention/fragments.cuh"

/* Three kernels make a pass: row_sums computes what each query row has of the forward pass, flash_backward the
 * gradients by K and V and the sums of dQ, and round_dQ rounds these.
 *
 * A CTA of flash_backward owns 128 keys of a KV head. dK and dV are sums over the queries of all heads that share the
 * keys: the CTA goes through the Q blocks of one head after the other, from the first that sees one of the keys, and
 * adds to each head's dQ. Warpgroups 1 and 2 have 64 keys each, and never wait for each other. For a block of 64
 * queries
 *
 *     warpgroups 1, 2    Sᵀ = K Qᵀ, dPᵀ = V dOᵀ, dV += Pᵀ dO, dK += dSᵀ Q; dSᵀ goes to shared memory
 *     warpgroup 0        dQ = dS K, 64 columns at a time, added to the sums; its first thread starts all copies
 *
 * Who waits for whom, at mbarriers, each of a stage of the ring:
 *
 *     full       the bytes of Q, dO, log-sum-exp and delta have come          8 warps wait
 *     empty      the 8 warps have read them                                   the copying thread waits
 *     dS_full    the 8 warps have stored dS                                   warpgroup 0 waits
 *     dS_empty   warpgroup 0 has multiplied it                                8 warps wait
 *
 * With in_order each Q block has a turn, the number of the CTA that may add to it: the sums get the same bits in every
 * run. CTAs start in the order of their numbers, and whoever waits waits for a smaller one.
 *
 * Any number of rows: the copy engine fills up blocks with zeros. A query behind the last has a log-sum-exp of
 * infinity, so that P and dS are 0, and so has one that sees no key. P of keys behind the last is set to 0 as that of
 * masked ones.
 *
 * Who holds what: warp w of a warpgroup has rows 16w ... of its 64; a tile of 8 columns is held as with mma.sync. In
 * shared memory a block is a row of tiles of 64 elements, whose 16-byte chunks are swizzled (common/ptx_sm90a.cuh). P
 * is kept in 16 bits alone once S is gone, twice: wgmma reads one of them for dV, while the other becomes dS. */

/* Refuse what this kernel can't run, and every flag that it would not act on. */
template <backward_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.instruction == WGMMA, "instruction must be backward_wgmma");
    static_assert(cfg.d_head == 64 || cfg.d_head == 128,
                  "d_head must be 64 or 128: a thread has no registers for dK and dV of more columns");
    static_assert(cfg.B_r == 64 && cfg.B_c == 128 && cfg.n_warps == 12,
                  "B_r, B_c and n_warps must be 64, 128 and 12: two warpgroups of 64 keys, one for dQ");
    static_assert(cfg.dQ_sums, "dQ_sums must be on: every CTA adds its part of dQ");
    static_assert(cfg.stages == 2, "stages must be 2: one block is copied while another is read");
    static_assert(cfg.tensor_copies, "tensor_copies must be on: the copy engine copies blocks");
    static_assert(cfg.causal, "causal must be on: a launch decides whether there is a mask");
    static_assert(cfg.grouped_heads, "grouped_heads must be on: a CTA goes through all heads of a KV head");
    static_assert(cfg.any_rows, "any_rows must be on: blocks may have fewer rows");
}

enum { WARPGROUP = 128, KEY_WARPS = 8, TILE_ROW = 128 /* bytes */, SPAN = 64 /* elements of a row of a tile */ };

/* dK or dV of a warp's 16 keys. */
template <backward_config cfg>
using key_sums = tiles<cfg.d_head / 8>;

/* ---- rows: the kernels before and behind ---- */

/* Two elements as floats. */
template <backward_config cfg>
__device__ __forceinline__ void widen_pair(uint32_t pair, float &low, float &high) {
    low = cfg.dtype == FP16 ? cvt_f32_f16((uint16_t)pair) : __uint_as_float(pair << 16);
    high = cfg.dtype == FP16 ? cvt_f32_f16((uint16_t)(pair >> 16)) : __uint_as_float(pair & 0xffff0000);
}

/* Where the first of a head's Q blocks is among those of all heads. */
template <backward_config cfg>
__device__ __forceinline__ int64_t first_block_of(const backward_args &args, int head) {
    return ((int64_t)blockIdx.z * args.heads + head) * ((args.seq_q + cfg.B_r - 1) / cfg.B_r);
}

/* 16 bytes of O and dO for each thread, a row for d_head / 8 lanes. Rows behind the last get what makes P and dS 0. */
template <backward_config cfg>
__global__ void __launch_bounds__(BACKWARD_SMALL_THREADS) row_sums(const __grid_constant__ backward_args args) {
    constexpr int lanes = cfg.d_head / 8;
    const int row = blockIdx.x * (BACKWARD_SMALL_THREADS / lanes) + threadIdx.x / lanes, chunk = threadIdx.x % lanes;
    const bool there = row < args.seq_q;
    float sum = 0;
    if (there) {
        const tensor_strides &strides = args.O_strides;
        const int64_t at = blockIdx.z * strides.batch + row * strides.seq + blockIdx.y * strides.head + 8 * chunk;
        uint32_t O[4], dO[4];
        ld_global_v4(O, (const uint16_t *)args.O + at);
        ld_global_v4(dO, (const uint16_t *)args.dO + at);
        for (int i = 0; i < 4; i++) {
            float a, b, c, d;
            widen_pair<cfg>(O[i], a, b);
            widen_pair<cfg>(dO[i], c, d);
            sum += a * c + b * d;
        }
    }
    for (int distance = lanes / 2; distance; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
    const int64_t block = first_block_of<cfg>(args, blockIdx.y) + row / cfg.B_r;
    const uint32_t zeros[4] = {};
    float *const sums = args.sums + (block * cfg.B_r + row % cfg.B_r) * cfg.d_head;
    for (int half = 0; half < 2; half++) st_global_v4(sums + (half * lanes + chunk) * 4, zeros);
    if (chunk) return;
    const int64_t number = ((int64_t)blockIdx.z * args.heads + blockIdx.y) * args.seq_q + row;
    const float lse = there ? args.LSE[number] : -INFINITY;
    float *const kept = args.delta + block * 2 * cfg.B_r + row % cfg.B_r;
    kept[0] = lse == -INFINITY ? INFINITY : lse * 1.44269504f;
    kept[cfg.B_r] = sum;
    if (cfg.in_order && row % cfg.B_r == 0) args.turns[block] = 0;
}

/* 8 columns of dQ for each thread: a half warp has those of 16 rows, 512 bytes of sums that lie one behind the other.
 */
template <backward_config cfg>
__global__ void __launch_bounds__(BACKWARD_SMALL_THREADS) round_dQ(const __grid_constant__ backward_args args) {
    constexpr int chunks = cfg.d_head / 8;
    const int number = blockIdx.x * BACKWARD_SMALL_THREADS + threadIdx.x;
    const int row = number / 16 / chunks * 16 + number % 16, chunk = number / 16 % chunks;
    if (row >= args.seq_q) return;
    const int64_t block = first_block_of<cfg>(args, blockIdx.y) + row / cfg.B_r;
    const int tile = (chunk / 8 * (cfg.B_r / 16) + row % cfg.B_r / 16) * 8 + chunk % 8;
    const float *const sums = args.sums + block * (cfg.B_r * cfg.d_head) + tile * 128 + row % 8 * 16 + row % 16 / 8 * 2;
    uint32_t pairs[4];
    for (int i = 0; i < 4; i++) {
        const float2 pair = *(const float2 *)(sums + 4 * i);
        pairs[i] = round_pair<cfg.dtype>(args.softmax_scale * pair.x, args.softmax_scale * pair.y);
    }
    const tensor_strides &strides = args.Q_strides;
    const int64_t at = blockIdx.z * strides.batch + row * strides.seq + blockIdx.y * strides.head + 8 * chunk;
    st_global_v4((uint16_t *)args.dQ + at, pairs);
}

/* ---- shared memory ---- */

/* Where everything is; what belongs to a block is there once for each stage. */
template <backward_config cfg>
struct places {
    static constexpr uint32_t KV_tile = cfg.B_c * TILE_ROW, Q_tile = cfg.B_r * TILE_ROW;
    static constexpr uint32_t KV_bytes = cfg.d_head / SPAN * KV_tile, Q_bytes = cfg.d_head / SPAN * Q_tile;
    static constexpr uint32_t dS_bytes = cfg.B_c * TILE_ROW, row_bytes = cfg.B_r * sizeof(float);
    uint32_t K, V, Q, dO, dS, lse; /* dS: the B_c keys are the rows of one tile, queries their elements; delta is behind
                                      log-sum-exp */
    uint32_t KV_full, full, empty, dS_full, dS_empty;

    __device__ __forceinline__ places(uint32_t smem)
        : K((smem + 1023) / 1024 * 1024), V(K + KV_bytes), Q(V + KV_bytes), dO(Q + cfg.stages * Q_bytes),
          dS(dO + cfg.stages * Q_bytes), lse(dS + cfg.stages * dS_bytes), KV_full(lse + cfg.stages * 2 * row_bytes),
          full(KV_full + 8), empty(full + 8 * cfg.stages), dS_full(empty + 8 * cfg.stages),
          dS_empty(dS_full + 8 * cfg.stages) {}
};

/* ---- what a CTA computes ---- */

/* Its heads, and of each the Q blocks that see its keys. Steps number them, one head behind the other. */
template <backward_config cfg>
struct work {
    int heads, first_head, first_block, blocks;

    __device__ __forceinline__ work(const backward_args &args)
        : heads(args.heads / args.KV_heads), first_head(blockIdx.y * heads) {
        const int unseen =
            (int)blockIdx.x * cfg.B_c - (args.seq_k - args.seq_q); /* queries before any that sees them */
        first_block = args.causal && unseen > 0 ? unseen / cfg.B_r : 0;
        blocks = (args.seq_q + cfg.B_r - 1) / cfg.B_r - first_block;
    }
    __device__ __forceinline__ int steps() const { return heads * blocks; }
    __device__ __forceinline__ int head(int step) const { return first_head + step / blocks; }
    __device__ __forceinline__ int block(int step) const { return first_block + step % blocks; }
};

/* ---- mbarriers ---- */

/* One thread sets them up. Full ones have one arrival, of the thread that starts the copies. */
template <backward_config cfg>
__device__ __forceinline__ void init_mbarriers(const places<cfg> &at) {
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

/* Wait until phase number `phase` of an mbarrier is complete; it may be at most one phase behind. Number -1, before the
 * first, is. */
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
__device__ __forceinline__ void copy_KV(const tensor_maps &maps, const places<cfg> &at) {
    mbarrier_arrive_expect_tx(at.KV_full, 2 * places<cfg>::KV_bytes);
    copy_tensor_to_smem(at.K, maps.K, at.KV_full, blockIdx.x * cfg.B_c, blockIdx.y, blockIdx.z);
    copy_tensor_to_smem(at.V, maps.V, at.KV_full, blockIdx.x * cfg.B_c, blockIdx.y, blockIdx.z);
}

/* The Q block of a step and the statistics of its queries, once the block that had the stage before is read. */
template <backward_config cfg>
__device__ __forceinline__ void copy_queries(const backward_args &args, const tensor_maps &maps, const places<cfg> &at,
                                             const work<cfg> &all, int step) {
    using of = places<cfg>;
    const int stage = step % cfg.stages, row = all.block(step) * cfg.B_r, head = all.head(step);
    const float *const kept = args.delta + (first_block_of<cfg>(args, head) + all.block(step)) * 2 * cfg.B_r;
    const uint32_t full = at.full + 8 * stage;
    wait_for_phase(at.empty + 8 * stage, step / cfg.stages - 1);
    mbarrier_arrive_expect_tx(full, 2 * (of::Q_bytes + of::row_bytes));
    copy_tensor_to_smem(at.Q + stage * of::Q_bytes, maps.Q, full, row, head, blockIdx.z);
    copy_bytes_to_smem(at.lse + stage * 2 * of::row_bytes, kept, 2 * of::row_bytes, full);
    copy_tensor_to_smem(at.dO + stage * of::Q_bytes, maps.O, full, row, head, blockIdx.z);
}

/* ---- products: each is started and closed as a group ---- */

/* d = 64 rows of a block of B_c rows times all rows of a block of B_r rows, transposed. */
template <backward_config cfg>
__device__ __forceinline__ void start_scores(tiles<8> &d, uint32_t own, uint32_t other) {
    const uint64_t a = wgmma_descriptor(own, 0), b = wgmma_descriptor(other, 0);
#pragma unroll
    for (int k = 0; k < cfg.d_head / 16; k++) {
        const uint64_t of_a = a + k / 4 * (places<cfg>::KV_tile / 16) + k % 4 * 2;
        const uint64_t of_b = b + k / 4 * (places<cfg>::Q_tile / 16) + k % 4 * 2;
        if constexpr (cfg.dtype == FP16)
            wgmma_m64n64k16_f16(d, of_a, of_b, k > 0);
        else
            wgmma_m64n64k16_bf16(d, of_a, of_b, k > 0);
    }
    wgmma_commit_group();
}

/* sums += coefficients (64 keys by B_r queries) times the rows of Q or dO. */
template <backward_config cfg>
__device__ __forceinline__ void start_sums(key_sums<cfg> &sums, const fragments<4> &coefficients, uint32_t other) {
    const uint64_t b = wgmma_descriptor(other, places<cfg>::Q_tile);
#pragma unroll
    for (int k = 0; k < cfg.B_r / 16; k++) {
        if constexpr (cfg.d_head == 64 && cfg.dtype == FP16)
            wgmma_m64n64k16_f16_trans(sums, coefficients[k], b + 128 * k, 1);
        if constexpr (cfg.d_head == 64 && cfg.dtype == BF16)
            wgmma_m64n64k16_bf16_trans(sums, coefficients[k], b + 128 * k, 1);
        if constexpr (cfg.d_head == 128 && cfg.dtype == FP16)
            wgmma_m64n128k16_f16_trans(sums, coefficients[k], b + 128 * k, 1);
        if constexpr (cfg.d_head == 128 && cfg.dtype == BF16)
            wgmma_m64n128k16_bf16_trans(sums, coefficients[k], b + 128 * k, 1);
    }
    wgmma_commit_group();
}

/* dQ of B_r queries and the 64 columns of a tile of K, over B_c keys. */
template <backward_config cfg>
__device__ __forceinline__ void start_dQ(tiles<8> &dQ, uint32_t dS, uint32_t K_tile) {
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
__device__ __forceinline__ void round_scores(fragments<4> &a, const tiles<8> &scores) {
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 4; i++) {
            const float (&from)[4] = scores[2 * k + i / 2];
            a[k][i] = round_pair<cfg.dtype>(from[i % 2 * 2], from[i % 2 * 2 + 1]);
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

__device__ __forceinline__ void take_exponentials(tiles<8> &P, float exponent_scale, uint32_t lse) {
    for (int tile = 0; tile < 8; tile++) {
        const float2 of = load_pair(lse, tile);
        for (int i = 0; i < 4; i++) P[tile][i] = ex2_approx(P[tile][i] * exponent_scale - (i % 2 ? of.y : of.x));
    }
}

/* P = 0 of keys behind `last`, the last that the first query of the block sees, from the first key of the CTA on. With
 * the causal mask each query sees one key more than the one before it. */
__device__ __forceinline__ void mask(tiles<8> &P, int last, bool causal) {
    const int lane = threadIdx.x % 32, key = (threadIdx.x - WARPGROUP) / 32 * 16 + lane / 4;
    for (int tile = 0; tile < 8; tile++)
        for (int i = 0; i < 4; i++)
            if (key + i / 2 * 8 > last + (causal ? 8 * tile + lane % 4 * 2 + i % 2 : 0)) P[tile][i] = 0;
}

/* Registers of their own with the same values: the compiler would take one register for both. */
__device__ __forceinline__ void copy_registers(fragments<4> &to, const fragments<4> &from) {
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 4; i++) asm volatile("mov.b32 %0, %1;" : "=r"(to[k][i]) : "r"(from[k][i]));
}

/* dP to dS, in place; P as it was rounded. */
template <backward_config cfg>
__device__ __forceinline__ void differentiate(tiles<8> &dS, const fragments<4> &P, uint32_t delta) {
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

/* Put dSᵀ of the warpgroup's keys into shared memory. Lanes give the addresses of keys 0-7 and 8-15 of eight queries,
 * and of the same of the next eight. */
__device__ __forceinline__ void store_dS(uint32_t dS, const fragments<4> &a) {
    const int lane = threadIdx.x % 32, key = (threadIdx.x - WARPGROUP) / 32 * 16 + lane % 16;
    for (int k = 0; k < 4; k++) stmatrix_x4(dS + key * TILE_ROW + ((2 * k + lane / 16) ^ key % 8) * 16, a[k]);
}

/* ---- results ---- */

/* Add 64 columns of dQ to the sums of a Q block. */
__device__ __forceinline__ void add_dQ(float *sums, const tiles<8> &dQ) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int tile = 0; tile < 8; tile++) red_add_v4(sums + ((warp * 8 + tile) * 32 + lane) * 4, dQ[tile]);
}

/* Acquire and release: what a CTA added before it passed the turn is there for the one that sees it (8.9). */
__device__ __forceinline__ int ld_acquire(const int *gmem) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(gmem) : "memory");
    return value;
}
__device__ __forceinline__ void st_release(int *gmem, int value) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(gmem), "r"(value) : "memory");
}

/* One thread of warpgroup 0 waits for the CTA's turn, and the barrier gives it to the others. */
__device__ __forceinline__ void wait_for_turn(const int *turn) {
    if (threadIdx.x == 0)
        while (ld_acquire(turn) != (int)blockIdx.x) {
        }
    bar_sync(1, WARPGROUP);
}

/* The barrier lets all threads add before one passes the turn on. */
__device__ __forceinline__ void pass_turn(int *turn) {
    bar_sync(1, WARPGROUP);
    if (threadIdx.x == 0) st_release(turn, blockIdx.x + 1);
}

/* Write the warp's 16 keys of a gradient, times a factor. */
template <backward_config cfg>
__device__ __forceinline__ void store_rows(void *gmem, const tensor_strides &strides, int seq_k,
                                           const key_sums<cfg> &sums, float factor) {
    const int lane = threadIdx.x % 32;
    const int row = blockIdx.x * cfg.B_c + (threadIdx.x - WARPGROUP) / 32 * 16 + lane / 4;
    const int64_t first = blockIdx.z * strides.batch + blockIdx.y * strides.head + row * strides.seq;
    for (int half = 0; half < 2; half++)
        for (int tile = 0; tile < cfg.d_head / 8 && row + 8 * half < seq_k; tile++)
            *(uint32_t *)((uint16_t *)gmem + first + 8 * half * strides.seq + 8 * tile + lane % 4 * 2) =
                round_pair<cfg.dtype>(factor * sums[tile][2 * half], factor * sums[tile][2 * half + 1]);
}

/* ---- the roles ---- */

/* P of 64 keys, rounded. The first query of the block sees the keys up to `last`, from the CTA's first on. */
template <backward_config cfg>
__device__ __forceinline__ void compute_P(fragments<4> &rounded, uint32_t K, uint32_t Q, uint32_t lse,
                                          const backward_args &args, int last) {
    tiles<8> P;
    wgmma_fence();
    start_scores<cfg>(P, K, Q);
    wgmma_wait_group<0>(P);
    take_exponentials(P, args.softmax_scale * 1.44269504f, lse);
    if (last < cfg.B_c - 1) mask(P, last, args.causal);
    round_scores<cfg>(rounded, P);
}

/* Warpgroup 0: copies one block ahead, dQ of the block at hand. */
template <backward_config cfg>
__device__ __forceinline__ void copy_and_multiply_dQ(const backward_args &args, const tensor_maps &maps,
                                                     const places<cfg> &at) {
    constexpr int spans = cfg.d_head / SPAN;
    const work<cfg> all(args);
    const bool copies = threadIdx.x == 0;
    if (copies) {
        copy_KV<cfg>(maps, at);
        copy_queries<cfg>(args, maps, at, all, 0);
    }
    __syncwarp();
    wait_for_phase(at.KV_full, 0);
    for (int step = 0; step < all.steps(); step++) {
        const int stage = step % cfg.stages;
        if (copies && step + 1 < all.steps()) copy_queries<cfg>(args, maps, at, all, step + 1);
        __syncwarp();
        wait_for_phase(at.dS_full + 8 * stage, step / cfg.stages);
        const int64_t block = first_block_of<cfg>(args, all.head(step)) + all.block(step);
#pragma unroll 1
        for (int span = 0; span < spans; span++) {
            tiles<8> dQ;
            wgmma_fence();
            start_dQ<cfg>(dQ, at.dS + stage * places<cfg>::dS_bytes, at.K + span * places<cfg>::KV_tile);
            wgmma_wait_group<0>(dQ);
            if (span == spans - 1) arrive_as_warp(at.dS_empty + 8 * stage);
            if (cfg.in_order && span == 0) wait_for_turn(args.turns + block);
            add_dQ(args.sums + (block * spans + span) * (cfg.B_r * SPAN), dQ);
        }
        if (cfg.in_order) pass_turn(args.turns + block);
    }
}

/* Warpgroups 1 and 2: dK and dV of 64 keys. */
template <backward_config cfg>
__device__ __forceinline__ void multiply_keys(const backward_args &args, const places<cfg> &at) {
    using of = places<cfg>;
    const work<cfg> all(args);
    const int steps = all.steps();
    const uint32_t own =
        (warp_uniform(threadIdx.x / WARPGROUP) - 1) * 64 * TILE_ROW; /* the warpgroup's keys within a tile */
    key_sums<cfg> dK = {}, dV = {};
    const int last_key = args.seq_k - 1 - (int)blockIdx.x * cfg.B_c; /* of the last query, from the CTA's first */
    const int first_last = args.causal ? last_key - (args.seq_q - 1) + all.first_block * cfg.B_r : last_key;
    wait_for_phase(at.KV_full, 0);
#pragma unroll 1
    for (int step = 0, block = 0; step < steps; step++) {
        const int stage = step % cfg.stages, phase = step / cfg.stages;
        const uint32_t Q = at.Q + stage * of::Q_bytes, dO = at.dO + stage * of::Q_bytes;
        const uint32_t lse = at.lse + stage * 2 * of::row_bytes, delta = lse + of::row_bytes;
        fragments<4> of_P, of_dS;
        wait_for_phase(at.full + 8 * stage, phase);
        compute_P<cfg>(of_P, at.K + own, Q, lse, args, args.causal ? first_last + block * cfg.B_r : last_key);
        tiles<8> dS;
        wgmma_fence();
        start_scores<cfg>(dS, at.V + own, dO);
        copy_registers(of_dS, of_P);
        start_sums<cfg>(dV, of_P, dO);
        wgmma_wait_group<1>(dS);
        differentiate<cfg>(dS, of_dS, delta);
        round_scores<cfg>(of_dS, dS);
        wait_for_phase(at.dS_empty + 8 * stage, phase - 1);
        store_dS(at.dS + stage * of::dS_bytes, of_dS);
        fence_proxy_async(); /* wgmma sees what this thread has stored */
        arrive_as_warp(at.dS_full + 8 * stage);
        wgmma_fence();
        start_sums<cfg>(dK, of_dS, Q);
        wgmma_wait_group<0>(dK);
        wgmma_wait_group<0>(dV);
        arrive_as_warp(at.empty + 8 * stage);
        block = block + 1 < all.blocks ? block + 1 : 0;
    }
    store_rows<cfg>(args.dK, args.K_strides, args.seq_k, dK, args.softmax_scale);
    store_rows<cfg>(args.dV, args.V_strides, args.seq_k, dV, 1);
}

/* ---- the kernel: grid (KV blocks, KV heads, batch), 32 * n_warps threads ---- */

template <backward_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps, 1)
    flash_backward(const __grid_constant__ backward_args args, const __grid_constant__ tensor_maps maps) {
    check_config<cfg>();
    extern __shared__ char smem_bytes[];
    const places<cfg> at(__cvta_generic_to_shared(smem_bytes));
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
