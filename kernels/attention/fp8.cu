/* attention/fp8 - attention of e4m3 on Hopper
 *
 * config    (FP16, 128, 192, 96, 12): fp8_wgmma+stages_2+any_length+causal+persistent+tickets+grouped
 * others    (FP16, 64, 192, 128, 12): fp8_wgmma+stages_3+any_length+causal+persistent+tickets+grouped;
 *           (FP16, 256, 128, 64, 8): fp8_wgmma+stages_2+any_length+causal+persistent+tickets+grouped
 * accurate  (FP16, 128, 192, 96, 12):
 *           fp8_wgmma+stages_2+flush_5+rounded_l+any_length+causal+persistent+tickets+grouped;
 *           (FP16, 64, 192, 128, 12):
 *           fp8_wgmma+stages_3+flush_4+rounded_l+any_length+causal+persistent+tickets+grouped;
 *           (FP16, 256, 128, 64, 8):
 *           fp8_wgmma+stages_2+flush_7+rounded_l+any_length+causal+persistent+tickets+grouped
 * serving   (FP16, 128, 192, 96, 12):
 *           fp8_wgmma+stages_2+any_length+causal+persistent+tickets+grouped+serve;
 *           (FP16, 64, 192, 128, 12):
 *           fp8_wgmma+stages_3+any_length+causal+persistent+tickets+grouped+serve;
 *           (FP16, 128, 192, 96, 12):
 *           fp8_wgmma+stages_2+flush_5+rounded_l+any_length+causal+persistent+tickets+grouped+serve;
 *           (FP16, 64, 192, 128, 12):
 *           fp8_wgmma+stages_3+flush_4+rounded_l+any_length+causal+persistent+tickets+grouped+serve;
 *           (FP16, 256, 128, 64, 8):
 *           fp8_wgmma+stages_2+any_length+causal+persistent+tickets+grouped+serve;
 *           (FP16, 256, 128, 64, 8):
 *           fp8_wgmma+stages_2+flush_7+rounded_l+any_length+causal+persistent+tickets+grouped+serve
 * arch      sm_90a
 */
#include "kernels/attention/fp8_epilogue.cuh"
#include "kernels/attention/fp8_producer.cuh"
#include "kernels/attention/fp8_products.cuh"
#include "kernels/attention/fp8_scales.cuh"
#include "kernels/attention/fp8_softmax.cuh"

/* One persistent CTA per SM processes Q blocks of 192 queries, 64 in each of its three computing warpgroups. In a
 * fourth warpgroup the first thread fetches Q blocks and starts the TMA copies of Q and, from the last block to the
 * first, of 96 keys and values (128 with d_head 64) into rings. The other three warps transpose the values into a
 * separate ring, whose rows hold up to 128 keys. With d_head 256 two warpgroups of 64 queries process 64 keys at a
 * time, because a larger O would not fit in registers. Rows of Q, K and V are two of 128 bytes then, and those of Vᵀ
 * have 64; with O in fp32 there is room for one Q block and one block of values.
 *
 *     S = Q Kᵀ    both in shared memory
 *     O += P V    P in registers, V from shared memory as Vᵀ: its rows are columns of V and their elements are keys
 *
 * The products continue from one Q block to the next: S of a KV block, or of the first one of the next Q block, is
 * started before O of the KV block before. The tensor cores therefore have work while a warpgroup computes
 * exponentials, and while it stores O.
 *
 * Precision of P: e4m3 has 3 fraction bits, ends at 448 and has no value below 2^-9. P = 2^(s - m), and m is
 * such that P begins at 8. l has the same factor, so it cancels in O / l. m is the maximum of the first block that a
 * row attends to entirely; it rises when a P becomes too large. Blocks that a row of the warpgroup may only partly
 * attend to use a running maximum.
 *
 * Precision of the accumulator: wgmma of e4m3 keeps 13 fraction bits and truncates (docs/emulator.md). With
 * flush_blocks O is added to an fp32 accumulator in shared memory every flush_blocks blocks, between the start of S and
 * that of O. With rounded_sums l is the sum of P after rounding to e4m3, so the rounding of a dominant weight cancels
 * out.
 *
 * Register layout: of 16 columns of S lane 4g + q has columns 2q, 2q + 1, 8 + 2q and 9 + 2q of rows g and g + 8: the
 * order of the keys in Vᵀ. The even ones of 16 columns of O come first, so that a lane's pairs of two tiles are four
 * neighbors of a row.
 *
 * The transposition: ldmatrix.trans of 8 keys x 16 columns moves pairs of columns: with c = lane / 4 and q = lane % 4 a
 * lane gets columns 2c and 2c + 1 of keys 2q and 2q + 1. From two of them, of keys 0-7 and 8-15, PRMT takes column 2c
 * of keys 2q, 2q + 1, 8 + 2q, 9 + 2q, and column 2c + 1 of the same. stmatrix writes the four bytes contiguously.
 *
 * Lengths: rows past the last query are zeros that TMA makes up, and it writes none of them back. Keys past the last
 * are also zeros; their scores become -infinity. A row that attends to no key has a m of -infinity; its l and O are 0.
 *
 * Instances with `serves` take serving_args: sequences of different lengths, scales for groups of keys, O in e4m3. Rows
 * around those of a sequence are others' or NaN. So the transposing warps make values past the last key zeros, rows
 * past the last query have no say in whether P is lowered, and of 16 rows of which some are others' each lane writes
 * its own. A scale f of keys of V is added to the exponent: P = 2^(s + log2 f - m), and l sums P / f. */

/* Reject configurations that this kernel cannot run, and every flag that it would ignore. */
template <fp8_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.B_c == (cfg.d_head == 64    ? 128
                              : cfg.d_head == 128 ? 96
                                                  : 64),
                  "B_c must be 96, with d_head 64 128, with 256 64: more of S, P and O does not fit the registers");
    static_assert(cfg.n_warps == (cfg.d_head == 256 ? 8 : 12),
                  "n_warps must be 12, with d_head 256 8: warpgroups of 64 queries");
    static_assert(!cfg.V_transposed, "v_transposed must be off: the kernel transposes");
    static_assert(!cfg.K_permuted, "k_permuted must be off: the keys of V are permuted");
    static_assert(cfg.any_length && cfg.causal, "any_length and causal must be on: the kernel has the mask");
    static_assert(cfg.persistent && cfg.tickets, "persistent and tickets must be on: CTAs fetch their Q blocks");
    static_assert(cfg.grouped_heads, "grouped must be on: heads may share K and V");
}

/* ---- a computing warpgroup: 64 queries of each Q block ---- */

/* Number of leading blocks to skip, because no row of the warpgroup attends to their keys.
 */
template <fp8_config cfg>
__device__ __forceinline__ int count_skipped(const auto &rows, const auto &here, int group) {
    const int end = seen_keys(rows, here.row + GROUP_ROWS * (group + 1));
    return max(0, here.KV_blocks - count_blocks<cfg.B_c>(end));
}

/* Number of leading blocks that use a running maximum: those that a row of the warpgroup attends to only partly, and
 * the next one. */
template <fp8_config cfg>
__device__ __forceinline__ int count_running(const auto &rows, int blocks, int first_row) {
    const int seen = (max(seen_keys(rows, first_row + 1), 0) + cfg.B_c - 1) / cfg.B_c; /* by the first row */
    return min(blocks, blocks - seen + 1);
}

/* The first block of a Q block: S to P, m and l. */
template <fp8_config cfg>
__device__ __forceinline__ void begin_rows(const auto &rows, scores<cfg> &S, row_state &row, int first_row,
                                           int first_key, float exponent_scale) {
    float factor[2];
    row.m[0] = row.m[1] = -INFINITY;
    mask_keys(rows, S, first_key, first_row);
    raise_m(S, row.l, row.m, factor, exponent_scale);
}

/* Release blocks that the warpgroup does not use, once all of its warps have observed their arrival. */
template <int stages, int bytes>
__device__ __forceinline__ void skip_blocks(const ring<stages, bytes> &blocks, int n, int skipped) {
    for (int end = n + skipped; n < end; n++) {
        blocks.wait_until_full(n);
        bar_sync(threadIdx.x / WARPGROUP, WARPGROUP);
        if (threadIdx.x % WARPGROUP == 0) mbarrier_arrive(blocks.empty(n));
    }
}

/* Registers of the computing warps. In varlen kernels it decides whether TMA copies rows out. ptxas treats the
 * following code as divergent unless it knows that the number is uniform, and then moves each descriptor of the loop
 * from a register of each lane to a uniform one. */
template <fp8_config cfg>
__device__ __forceinline__ int computing_warp() {
    const int warp = threadIdx.x / 32;
    return (cfg.serves ? warp_uniform(warp) : warp) - 4;
}

/* S, P and O are variables of the kernel, so that they stay in registers. */
template <fp8_config cfg>
struct consumer {
    const args_for<cfg> &args;
    const tensor_maps &maps;
    const smem_layout<cfg> &at;
    scores<cfg> &S;
    weights<cfg> &P;
    sums_of_V<cfg> &O;
    row_state &row, &next_row;
    kept_for<cfg> &here;
    const int group = warp_uniform(threadIdx.x / WARPGROUP) - 1, warp = computing_warp<cfg>();
    const bool lead = threadIdx.x % WARPGROUP == 0;
    const uint32_t O_addr = at.O + warp * smem_layout<cfg>::O_bytes;
    int n = 0;            /* number of the block whose S is computed */
    int turn = 0;         /* number of the Q block */
    int skipped = 0;      /* blocks of it that the warpgroup does not attend to */
    int added = 0;        /* blocks in O since it was 0 */
    bool flushed = false; /* O was added up in shared memory */
    row_scales<cfg> scales;

    __device__ __forceinline__ uint32_t Q_rows(int turn) const {
        return at.Q.stage(turn) + group * GROUP_ROWS * cfg.d_head;
    }

    __device__ __forceinline__ void start_next_S(int turn, int n) const {
        at.K.wait_until_full(n);
        start_S<cfg>(S, Q_rows(turn), at.K.stage(n));
    }
    __device__ __forceinline__ void release_K(int n) const {
        if (lead) mbarrier_arrive(at.K.empty(n));
    }

    /* O of a block, while S of another one is on its way. */
    __device__ __forceinline__ void start_next_O(int n) {
        if (cfg.flush_blocks > 0 && added == cfg.flush_blocks) {
            if (!flushed) wait_for_store();
            flush_O<cfg>(O_addr, O, !flushed);
            flushed = true, added = 0;
        }
        at.Vt.wait_until_full(n);
        start_O<cfg>(O, P, at.Vt.stage(n), added > 0);
        added++;
    }
    __device__ __forceinline__ void finish_O(int n) const {
        wgmma_wait_group<0>(O);
        if (lead) mbarrier_arrive(at.Vt.empty(n));
    }

    /* The object that mask.cuh's functions query. */
    __device__ __forceinline__ const auto &keys_of(const kept_for<cfg> &rows) const {
        if constexpr (cfg.serves)
            return rows;
        else
            return args;
    }
    __device__ __forceinline__ void find_scales(int turn, const kept_for<cfg> &rows) {
        if constexpr (cfg.serves) {
            const varlen_tile tile = read_Q_block(at, turn);
            scales.find(args, tile);
        } else
            scales.find(args, rows);
    }

    __device__ __forceinline__ void round(float (&sum)[2], int first_key) const {
        round_P<cfg>(P, S);
        if constexpr (cfg.rounded_sums) sum_rounded<cfg>(sum, P);
        scales.undo(args, sum, S, first_key);
    }

    /* The lane's rows that belong to the sequence. */
    __device__ __forceinline__ void keep_own(float (&of_rows)[2]) const {
        if constexpr (cfg.serves) {
            const int rows = here.seq_q - (here.row + 16 * warp + threadIdx.x % 32 / 4);
            if (rows <= 0) of_rows[0] = 0;
            if (rows <= 8) of_rows[1] = 0;
        }
    }
    __device__ __forceinline__ bool must_be_lowered(const float (&sum)[2]) const {
        float own[2] = {sum[0], sum[1]};
        keep_own(own);
        return may_be_too_large(own);
    }
    __device__ __forceinline__ void find_S_again(int first_key) const {
        const uint32_t rows = Q_rows(turn) + warp % 4 * 16 * row_bytes<cfg>;
        if constexpr (cfg.serves) {
            compute_S_again<cfg>(args, S, rows, first_key, read_Q_block(at, turn));
            scales.apply(args, S, first_key);
        } else
            compute_S_again<cfg>(args, S, rows, first_key, here);
    }

    /* The first block of all. */
    __device__ __forceinline__ void begin() {
        find_scales(0, here);
        n = skipped = count_skipped<cfg>(keys_of(here), here, group);
        at.Q.wait_until_full(0);
        skip_blocks(at.K, 0, skipped);
        start_next_S(0, n);
        wgmma_wait_group<0>(S);
        release_K(n);
        skip_blocks(at.Vt, 0, skipped);
        scales.apply(args, S, (here.KV_blocks - 1 - skipped) * cfg.B_c);
        begin_rows<cfg>(keys_of(here), S, row, here.row + 16 * warp, (here.KV_blocks - 1 - skipped) * cfg.B_c,
                        scales.exponent_scale);
        round(row.l, (here.KV_blocks - 1 - skipped) * cfg.B_c);
    }

    /* Block number i of a Q block, the first `running` of which take a running maximum. */
    __device__ __forceinline__ void step(int i, int running) {
        const int first_key = (here.KV_blocks - 1 - i) * cfg.B_c;
        float sum[2], factor[2];
        bool lowered = false;
        n++;
        start_next_S(turn, n);
        start_next_O(n - 1);
        wgmma_wait_group<1>(S);
        release_K(n);
        scales.apply(args, S, first_key);
        if (i < running) {
            mask_keys(keys_of(here), S, first_key, here.row + 16 * warp);
            raise_m(S, sum, row.m, factor, scales.exponent_scale);
        } else {
            take_exponentials(S, sum, row.m, scales.exponent_scale);
            if (!cfg.rounded_sums) lowered = must_be_lowered(sum);
        }
        finish_O(n - 1);
        if constexpr (cfg.rounded_sums) {
            round_P<cfg>(P, S);
            sum_rounded<cfg>(sum, P);
            if (i >= running) lowered = must_be_lowered(sum);
            if (!lowered) scales.undo(args, sum, S, first_key);
        }
        if (lowered)
            lower_P<cfg>(
                S, sum, row.m, factor, scales.exponent_scale, [&](float (&of_rows)[2]) { keep_own(of_rows); },
                [&] { find_S_again(first_key); });
        if (lowered || i < running) scale_sums(factor);
        if (!cfg.rounded_sums || lowered) round(sum, first_key);
        for (int half = 0; half < 2; half++) row.l[half] += sum[half];
    }

    __device__ __forceinline__ void scale_sums(const float (&factor)[2]) {
        for (int half = 0; half < 2; half++) row.l[half] *= factor[half];
        scale_O<cfg>(O, factor);
        if (flushed) scale_flushed<cfg>(O_addr, factor);
    }

    __device__ __forceinline__ void take_steps() {
        const int running = count_running<cfg>(keys_of(here), here.KV_blocks, here.row + GROUP_ROWS * group);
        added = 0, flushed = false;
#pragma unroll 1
        for (int i = skipped + 1; i < here.KV_blocks; i++) step(i, running);
        arrive_as_warp(at.Q.empty(turn));
    }

    /* The end of a Q block, and the first block of the next, where there is one. */
    __device__ __forceinline__ void step_across(const kept_for<cfg> &next) {
        if (next.row >= 0) {
            skipped = count_skipped<cfg>(keys_of(next), next, group);
            find_scales(turn + 1, next);
            at.Q.wait_until_full(turn + 1);
            skip_blocks(at.K, n + 1, skipped);
            start_next_S(turn + 1, n + 1 + skipped);
            start_next_O(n);
            wgmma_wait_group<1>(S);
            release_K(n + 1 + skipped);
            scales.apply(args, S, (next.KV_blocks - 1 - skipped) * cfg.B_c);
            begin_rows<cfg>(keys_of(next), S, next_row, next.row + 16 * warp, (next.KV_blocks - 1 - skipped) * cfg.B_c,
                            scales.exponent_scale);
            finish_O(n);
            skip_blocks(at.Vt, n + 1, skipped);
        } else {
            start_next_O(n);
            finish_O(n);
        }
        if constexpr (cfg.serves) {
            finish_rows<cfg>(args, maps, O_addr, O, row, here.row + 16 * warp, read_Q_block(at, turn), flushed);
            arrive_as_warp(at.Q_blocks.empty(turn));
        } else
            finish_rows<cfg>(args, maps, O_addr, O, row, here.row + 16 * warp, here, flushed);
    }

    __device__ __forceinline__ void take_next(const kept_for<cfg> &next) {
        row = next_row, here = next, n += 1 + skipped, turn++;
        round(row.l, (here.KV_blocks - 1 - skipped) * cfg.B_c);
    }
};

template <fp8_config cfg>
__device__ __forceinline__ void attend(const args_for<cfg> &args, const tensor_maps &maps, const smem_layout<cfg> &at) {
    float S[cfg.B_c / 8][4], O[cfg.d_head / 8][4] = {};
    uint32_t P[cfg.B_c / 32][4];
    row_state row, next_row;
    kept_for<cfg> here = keep_Q_block<cfg>(args, at, 0);
    if (here.row < 0) return;
    consumer<cfg> share{args, maps, at, S, P, O, row, next_row, here};
    share.begin();
#pragma unroll 1
    for (;;) {
        share.take_steps();
        const kept_for<cfg> next = keep_Q_block<cfg>(args, at, share.turn + 1);
        share.step_across(next);
        if (next.row < 0) break;
        share.take_next(next);
    }
    if (threadIdx.x % 32 == 0) bulk_wait_group_read<0>(); /* shared memory lives as long as it is read */
}

/* ---- the kernel: a row of CTAs, of 32 * (n_warps + 4) threads ---- */

/* The body of both kernels below. 128 registers a thread at the start: 4 * 128 are 32 and three times 160; with two
 * computing warpgroups 3 * 168 are 40 and twice 232. */
#define FL_ATTEND(cfg, args, maps)                                                                                     \
    check_config<cfg>();                                                                                               \
    extern __shared__ char smem_bytes[];                                                                               \
    const smem_layout<cfg> at(__cvta_generic_to_shared(smem_bytes));                                                   \
    init_mbarriers<cfg>(at);                                                                                           \
    const int group = warp_uniform(threadIdx.x / WARPGROUP);                                                           \
    if (group == 0) {                                                                                                  \
        setmaxnreg_dec<cfg.n_warps == 8 ? 40 : 32>();                                                                  \
        bring_blocks<cfg>(args, maps, at);                                                                             \
    } else {                                                                                                           \
        setmaxnreg_inc<cfg.n_warps == 8 ? 232 : 160>();                                                                \
        attend<cfg>(args, maps, at);                                                                                   \
    }

template <fp8_config cfg>
__global__ void __launch_bounds__(32 * (cfg.n_warps + 4), 1)
    flash_forward(const __grid_constant__ fp8_args args, const __grid_constant__ tensor_maps maps) {
    FL_ATTEND(cfg, args, maps)
}

/* Kernel for varlen batches. */
template <fp8_config cfg>
__global__ void __launch_bounds__(32 * (cfg.n_warps + 4), 1)
    flash_forward(const __grid_constant__ serving_args args, const __grid_constant__ tensor_maps maps) {
    FL_ATTEND(cfg, args, maps)
}

#include "instances.cuh"
