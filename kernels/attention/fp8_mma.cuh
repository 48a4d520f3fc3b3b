/* fp8_mma.cuh - attention of e4m3 by mma.sync: the code of attention/fp8_mma_sync and attention/fp8_mma_scaled.
 *
 *     #include "kernels/attention/fp8_mma.cuh"    after check_config<cfg>(), which rejects what the kernel lacks
 *
 * One persistent CTA per SM processes Q blocks of 128 queries, 16 in each of its 8 computing warps (with d_head 256 64
 * queries in 4 warps, because a larger O would not fit in registers). Of 4 more warps the first fetches Q blocks, and
 * three copy Q and, from the last block to the first, K and V into rings by cp.async. All of it takes at most 99 KB of
 * shared memory, as much as 8.9 and 12.0 have.
 *
 *     S = Q Kᵀ    both in shared memory, by ldmatrix
 *     O += P V    P in registers, V in shared memory with keys as rows; mma.sync needs four keys of a column in a word
 *
 * The transposition: as in attention/fp8, ldmatrix.trans of 8 keys x 16 columns gives a lane two columns of two keys,
 * and PRMT of two such words, of keys 0-7 and 8-15, makes four keys of one column. The order of these keys is that of
 * the lane's columns of S, so P needs no shuffles. Each warp transposes V for itself: tensor cores that multiply 16
 * rows of e4m3 in 16 cycles or more leave time for it.
 *
 * Precision: mma.sync of e4m3 on 8.9 and 12.0 is reported to keep 13 fraction bits and to truncate, as wgmma does. So O
 * of each KV block begins at 0 and is added to O in fp32. P is 2^8 where its score is the maximum of the row so far:
 * e4m3 ends at 448 and has no value below 2^-9. l is the sum of P after rounding to e4m3.
 *
 * Lengths: rows past the last query or key are zeros in shared memory; nothing outside a sequence is read. Scores of
 * such keys become -infinity. Each lane writes those of its rows of O that exist. */
#ifndef FL_ATTENTION_FP8_MMA_CUH
#define FL_ATTENTION_FP8_MMA_CUH

#include "kernels/attention/fp8_epilogue.cuh"
#include "kernels/attention/fp8_scales.cuh"
#include "kernels/attention/fp8_smem.cuh"
#include "kernels/attention/fp8_softmax.cuh"
#include "kernels/attention/kv.cuh"
#include "kernels/attention/schedule.cuh"

enum { COPIERS = 3 /* warps */, COMPUTING_FROM = 4 /* warp */, MAXIMUM_BITS = 8 /* P of a maximum is 2^8 */ };

/* ---- shared memory: that of attention/fp8 without transposed V and O ---- */

/* The mbarrier at which the copying warps ask for another Q block. */
template <fp8_config cfg>
__device__ __forceinline__ uint32_t fetch_mbarrier(const smem_layout<cfg> &at) {
    return at.Q_blocks.first_empty + 8 * queue_slots;
}

/* All copying threads arrive at a full mbarrier with their copies, each computing warp at an empty one. */
template <fp8_config cfg>
__device__ __forceinline__ void init_mbarriers_of_copies(const smem_layout<cfg> &at) {
    if (threadIdx.x == 0) {
        for (int n = 0; n < at.Q_stages; n++) at.Q.init(n, cfg.n_warps, 32 * COPIERS);
        for (int n = 0; n < cfg.stages; n++) {
            at.K.init(n, cfg.n_warps, 32 * COPIERS);
            at.V.init(n, cfg.n_warps, 32 * COPIERS);
        }
        for (int n = 0; n < queue_slots; n++) at.Q_blocks.init(n, cfg.n_warps + COPIERS);
        mbarrier_init(fetch_mbarrier(at), 1);
    }
    __syncthreads(); /* they are set up */
}

/* ---- the copying warps ---- */

__device__ __forceinline__ int count_keys(const fp8_args &args, const work_tile &) {
    return args.seq_k;
}
__device__ __forceinline__ int count_keys(const serving_args &, const varlen_tile &here) {
    return here.seq.seq_k;
}

template <fp8_config cfg>
struct copier {
    static constexpr int chunks = cfg.d_head / 16, rows_at_once = 32 / chunks; /* of a warp */

    const args_for<cfg> &args;
    const smem_layout<cfg> &at;
    const int warp = threadIdx.x / 32 - 1, lane = threadIdx.x % 32;

    /* Copy this warp's share of `rows` rows. Those from `there` on become zeros. */
    template <int rows>
    __device__ __forceinline__ void copy_rows(uint32_t to, const void *tensor, const tensor_strides &strides,
                                              const KV_position &from, int there) const {
        const uint8_t *const first = (const uint8_t *)tensor + from.sample * strides.batch + from.head * strides.head +
                                     from.row * strides.seq + lane % chunks * 16;
#pragma unroll 4
        for (int row = warp * rows_at_once + lane / chunks; row < rows; row += COPIERS * rows_at_once) {
            const bool exists = row < there;
            cp_async_16_or_zeros(to + chunk_of<cfg, rows>(row, lane % chunks),
                                 exists ? first + row * strides.seq : first, exists);
        }
    }

    __device__ __forceinline__ void copy_Q(int turn, const tile_for<cfg> &here) const {
        const Q_origin from = find_Q_origin(here);
        at.Q.wait_until_empty(turn);
        copy_rows<cfg.B_r>(at.Q.stage(turn), args.Q, args.Q_strides, {from.row, here.head, from.sample},
                           rows_of(args, here) - here.row);
        cp_async_mbarrier_arrive_noinc(at.Q.full(turn));
    }
    __device__ __forceinline__ void copy_block(const auto &to, const void *tensor, const tensor_strides &strides, int n,
                                               const KV_position &from, int there) const {
        to.wait_until_empty(n);
        copy_rows<cfg.B_c>(to.stage(n), tensor, strides, from, there);
        cp_async_mbarrier_arrive_noinc(to.full(n));
    }

    __device__ __forceinline__ void copy_all() const {
        int n = 0;
#pragma unroll 1
        for (int turn = 0;; turn++) {
            const tile_for<cfg> here = take_Q_block(at, turn);
            if (here.row < 0) break;
            copy_Q(turn, here);
            const int fetch = max(0, here.KV_blocks - blocks_ahead), keys = count_keys(args, here);
#pragma unroll 1
            for (int i = 0; i < here.KV_blocks; i++, n++) {
                const int block = here.KV_blocks - 1 - i;
                if (i == fetch && threadIdx.x == 32) mbarrier_arrive(fetch_mbarrier(at));
                const KV_position from = find_KV_block<cfg.B_c>(here, block);
                copy_block(at.K, args.K, args.K_strides, n, from, keys - block * cfg.B_c);
                copy_block(at.V, args.V, args.V_strides, n, from, keys - block * cfg.B_c);
                __syncwarp();
            }
        }
        cp_async_commit_group();
        cp_async_wait_group<0>(); /* a thread that has ended has no copies under way */
    }
};

/* ---- a computing warp: 16 queries of each Q block ---- */

/* d += a b, of 16 rows, 32 products each, and 8 columns. */
template <fp8_config cfg>
__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (cfg.block_scaled)
        mma_m16n8k32_e4m3_scaled_by_1(d, a, b0, b1);
    else
        mma_m16n8k32_e4m3(d, a, b0, b1);
}

/* S of the warp's rows: 16 keys and 32 columns at a time. */
template <fp8_config cfg>
__device__ __forceinline__ void compute_S(scores<cfg> &S, uint32_t Q, uint32_t K, int first_row) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < cfg.d_head / 32; k++) {
        uint32_t a[4];
        ldmatrix_x4(a, Q + chunk_of<cfg, cfg.B_r>(first_row + lane % 16, 2 * k + lane / 16));
#pragma unroll
        for (int keys = 0; keys < cfg.B_c / 16; keys++) {
            uint32_t b[4]; /* the two halves of the columns of keys 0-7, then of keys 8-15 */
            ldmatrix_x4(b, K + chunk_of<cfg, cfg.B_c>(16 * keys + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
            multiply<cfg>(S[2 * keys], a, b[0], b[1]);
            multiply<cfg>(S[2 * keys + 1], a, b[2], b[3]);
        }
    }
}

/* Four operands of 16 keys of V, for the even columns of 16, the odd ones, and those of the next 16. */
template <fp8_config cfg>
__device__ __forceinline__ void load_V(uint32_t (&b)[4], uint32_t V, int keys, int columns) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t from[4];
    ldmatrix_x4_trans(from, V + chunk_of<cfg, cfg.B_c>(16 * keys + lane % 16, 2 * columns + lane / 16));
    for (int i = 0; i < 4; i++) b[i] = __byte_perm(from[i / 2 * 2], from[i / 2 * 2 + 1], i % 2 ? 0x7531 : 0x6420);
}

/* O += P V, 32 columns at a time. */
template <fp8_config cfg>
__device__ __forceinline__ void add_O(sums_of_V<cfg> &O, const weights<cfg> &P, uint32_t V) {
#pragma unroll
    for (int columns = 0; columns < cfg.d_head / 32; columns++) {
        float of_block[4][4] = {};
#pragma unroll
        for (int k = 0; k < cfg.B_c / 32; k++) {
            uint32_t b0[4], b1[4];
            load_V<cfg>(b0, V, 2 * k, columns);
            load_V<cfg>(b1, V, 2 * k + 1, columns);
            for (int i = 0; i < 4; i++) multiply<cfg>(of_block[i], P[k], b0[i], b1[i]);
        }
        for (int i = 0; i < 4; i++)
            for (int element = 0; element < 4; element++) O[4 * columns + i][element] += of_block[i][element];
    }
}

/* S, P and O are variables of the kernel, so that they stay in registers. */
template <fp8_config cfg>
struct consumer {
    const args_for<cfg> &args;
    const smem_layout<cfg> &at;
    sums_of_V<cfg> &O;
    const int warp = threadIdx.x / 32 - COMPUTING_FROM;
    row_state row = {};
    row_scales<cfg> scales;
    int n = 0; /* number of the KV block */

    /* The object that mask.cuh's functions query. */
    __device__ __forceinline__ const auto &keys_of(const kept_for<cfg> &rows) const {
        if constexpr (cfg.serves)
            return rows;
        else
            return args;
    }

    /* Arrivals with copies do not make the threads that wait for them wait for what the copying threads waited for: the
     * stage before has been released. */
    __device__ __forceinline__ void release(const auto &blocks) const {
        blocks.wait_until_empty(n);
        arrive_as_warp(blocks.empty(n));
    }

    /* Release a block that none of the warp's rows attends to. */
    __device__ __forceinline__ void skip(const auto &blocks) const {
        blocks.wait_until_full(n);
        release(blocks);
    }

    __device__ __forceinline__ void use_block(int turn, const kept_for<cfg> &here, int first_key) {
        const int first_row = here.row + 16 * warp;
        scores<cfg> S = {};
        weights<cfg> P;
        float sum[2], factor[2];
        at.K.wait_until_full(n);
        compute_S<cfg>(S, at.Q.stage(turn), at.K.stage(n), 16 * warp);
        release(at.K);
        scales.apply(args, S, first_key);
        mask_keys(keys_of(here), S, first_key, first_row);
        raise_m<MAXIMUM_BITS>(S, sum, row.m, factor, scales.exponent_scale);
        round_P<cfg>(P, S);
        sum_rounded<cfg>(sum, P);
        scales.undo(args, sum, S, first_key);
        if (__any_sync(0xffffffff, factor[0] != 1 || factor[1] != 1)) {
            for (int half = 0; half < 2; half++) row.l[half] *= factor[half];
            scale_O<cfg>(O, factor);
        }
        for (int half = 0; half < 2; half++) row.l[half] += sum[half];
        at.V.wait_until_full(n);
        add_O<cfg>(O, P, at.V.stage(n));
        release(at.V);
    }

    /* As store_own_rows(), whose loops the compiler leaves rolled with d_head 256. */
    __device__ __forceinline__ void store_O_rows(const tile_for<cfg> &here, const float (&factor)[2],
                                                 int first_row) const {
        const float of_head = find_e4m3_factor(args, here);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = first_row + threadIdx.x % 32 / 4 + 8 * half;
            if (row >= rows_of(args, here)) continue;
            const int64_t at = find_O_offset(args, here, row);
#pragma unroll
            for (int u = 0; u < cfg.d_head / 16; u++) store_columns<cfg>(args, O, u, half, factor, of_head, at);
        }
    }

    __device__ __forceinline__ void finish(const tile_for<cfg> &here) {
        const int first_row = here.row + 16 * warp;
        float factor[2];
        find_O_factors(factor, row, find_V_descale(args, here));
        store_O_rows(here, factor, first_row);
        if (args.LSE) store_LSE(args, row, first_row, here);
    }

    /* Process Q block number `turn`; false if there is none. */
    __device__ __forceinline__ bool attend(int turn) {
        const kept_for<cfg> here = keep_Q_block<cfg>(args, at, turn);
        if (here.row < 0) return false;
        if constexpr (cfg.serves)
            scales.find(args, read_Q_block(at, turn));
        else
            scales.find(args, here);
        row = {{-INFINITY, -INFINITY}, {0, 0}};
#pragma unroll
        for (int tile = 0; tile < cfg.d_head / 8; tile++)
            for (int i = 0; i < 4; i++) O[tile][i] = 0;
        const int seen = count_blocks<cfg.B_c>(seen_keys(keys_of(here), here.row + 16 * (warp + 1)));
        at.Q.wait_until_full(turn);
#pragma unroll 1
        for (int block = here.KV_blocks - 1; block >= 0; block--, n++) {
            if (block >= seen) {
                skip(at.K), skip(at.V);
                continue;
            }
            use_block(turn, here, block * cfg.B_c);
        }
        at.Q.wait_until_empty(turn);
        arrive_as_warp(at.Q.empty(turn));
        if constexpr (cfg.serves) {
            finish(read_Q_block(at, turn));
            arrive_as_warp(at.Q_blocks.empty(turn));
        } else
            finish(here);
        return true;
    }
};

/* ---- the kernel: a row of CTAs, of 32 * (n_warps + 4) threads ---- */

template <fp8_config cfg>
__device__ __forceinline__ void attend(const args_for<cfg> &args) {
    check_config<cfg>();
    extern __shared__ char smem_bytes[];
    const smem_layout<cfg> at(__cvta_generic_to_shared(smem_bytes));
    init_mbarriers_of_copies<cfg>(at);
    const int warp = warp_uniform(threadIdx.x / 32);
    if (warp == 0) {
        if constexpr (cfg.serves)
            schedule_sequences<cfg>(args, at.Q_blocks, fetch_mbarrier(at), [](const varlen_tile &) {});
        else if (threadIdx.x == 0)
            schedule<cfg>(args, at.Q_blocks, fetch_mbarrier(at));
    } else if (warp < COMPUTING_FROM) {
        copier<cfg>{args, at}.copy_all();
    } else {
        sums_of_V<cfg> O;
        consumer<cfg> rows{args, at, O};
#pragma unroll 1
        for (int turn = 0; rows.attend(turn); turn++) {
        }
    }
}

template <fp8_config cfg>
__global__ void __launch_bounds__(32 * (cfg.n_warps + 4), 1) flash_forward(const __grid_constant__ fp8_args args) {
    attend<cfg>(args);
}

/* Kernel for varlen batches. */
template <fp8_config cfg>
__global__ void __launch_bounds__(32 * (cfg.n_warps + 4), 1) flash_forward(const __grid_constant__ serving_args args) {
    attend<cfg>(args);
}

#endif
