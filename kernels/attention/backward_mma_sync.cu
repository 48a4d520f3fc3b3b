/* attention/backward_mma_sync - the gradients of attention on Ampere and newer
 *
 * config    (FP16, 128, 128, 128, 8): backward_mma_sync+dq_sums+stages_2+causal+grouped+any_length
 * others    (FP16, 64, 128, 128, 8): backward_mma_sync+dq_sums+stages_2+causal+grouped+any_length
 * smaller   (FP16, 128, 128, 128, 8): backward_mma_sync+dq_sums+causal+grouped+any_length;
 *           (FP16, 128, 64, 64, 4): backward_mma_sync+dq_sums+stages_2+causal+grouped+any_length;
 *           (FP16, 64, 64, 128, 8): backward_mma_sync+dq_sums+stages_2+causal+grouped+any_length
 * serving   (FP16, 128, 128, 128, 8): backward_mma_sync+dq_sums+stages_2+causal+grouped+any_length+serve;
 *           (FP16, 64, 128, 128, 8): backward_mma_sync+dq_sums+stages_2+causal+grouped+any_length+serve;
 *           (FP16, 128, 128, 128, 8): backward_mma_sync+dq_sums+causal+grouped+any_length+serve;
 *           (FP16, 128, 64, 64, 4): backward_mma_sync+dq_sums+stages_2+causal+grouped+any_length+serve;
 *           (FP16, 64, 64, 128, 8): backward_mma_sync+dq_sums+stages_2+causal+grouped+any_length+serve;
 *           (FP16, 256, 64, 64, 8): backward_mma_sync+dq_sums+stages_2+causal+grouped+any_length+serve;
 *           (FP16, 256, 64, 64, 8): backward_mma_sync+dq_sums+causal+grouped+any_length+serve;
 *           (FP16, 256, 32, 32, 4): backward_mma_sync+dq_sums+stages_2+causal+grouped+any_length+serve
 * ordered   (FP16, 128, 128, 128, 8): backward_mma_sync+dq_sums+in_order+causal+grouped+any_length+serve;
 *           (FP16, 64, 128, 128, 8): backward_mma_sync+dq_sums+in_order+stages_2+causal+grouped+any_length+serve;
 *           (FP16, 128, 64, 64, 4): backward_mma_sync+dq_sums+in_order+stages_2+causal+grouped+any_length+serve;
 *           (FP16, 64, 64, 128, 8): backward_mma_sync+dq_sums+in_order+stages_2+causal+grouped+any_length+serve;
 *           (FP16, 256, 64, 64, 8): backward_mma_sync+dq_sums+in_order+causal+grouped+any_length+serve;
 *           (FP16, 256, 32, 32, 4): backward_mma_sync+dq_sums+in_order+stages_2+causal+grouped+any_length+serve
 * arch      sm_80
 */
#include "common/backward.h"
#include "kernels/attention/backward_mma_ahead.cuh"
#include "kernels/attention/backward_mma_in_turn.cuh"
#include "kernels/attention/backward_rows.cuh"

/* A pass launches three kernels: row_sums computes delta for each query row and clears the sums of dQ, flash_backward
 * computes dK, dV and the sums of dQ, and round_dQ rounds the sums.
 *
 * A CTA has a tile, the B_c keys of a KV block, and walks through the Q blocks that attend to them, of all heads that
 * share the keys. Its warps are pairs with 32 keys each. A warp computes Sᵀ and dPᵀ of half of a block's queries;
 * the accumulators of mma.sync, rounded to 16 bits, are the first operands of dV += Pᵀ dO and dK += dSᵀ Q. dS also
 * goes to shared memory, from where all warps read all keys of it for dQ = dS K.
 *
 * With d_head 128 registers hold 64 columns of dK and dV for a warp, over all queries; half of P and dS then comes from
 * the partner through shared memory. With d_head 64 a warp has all columns over its own queries. With d_head 256 a
 * pair has 16 keys, and four warps share the columns of 32 keys.
 *
 * Nothing in the loop waits for all threads. Warps meet at mbarriers, each of a block in shared memory, half a product
 * or more after the arrival that they wait for:
 *
 *     Q_full, dO_full       the copies of all threads have come          all warps wait
 *     Q_empty, dO_empty     all warps have read the block                all threads wait, before they copy the next
 *     dS_full, dS_empty     all warps have stored dS; have computed dQ   all warps wait
 *     P_full, P_empty       one warp has stored P; its partner has read it
 *     dS_of_warp            one warp has stored dS                       its partner waits
 *
 * With serve sequences may be packed or use only some of their rows, and their blocks are numbered one sequence after
 * the other (backward_sequences.cuh). A tile skips the Q blocks that a window hides from it. A soft cap needs no
 * further registers (backward_cap.cuh), and sinks are a matter of row_sums and round_dQ.
 *
 * With in_order the sums get the same bits in every run. A warp adds to its own part of a Q block's dQ, and each part
 * has a turn, the position of the CTA that may add to it (backward_turns.cuh). A warp passes the turn on during the
 * next step, when its additions have long arrived, so that the release does not wait for them. CTAs fetch tiles from a
 * counter and therefore wait only for tiles that others have fetched.
 *
 * Any number of rows: rows past the last are zeros in shared memory. A query past the last, or one that attends to no
 * key, has a log-sum-exp of infinity, so that P and dS are 0. Scores of keys past the last become -inf, like masked
 * ones. */

/* Reject configurations that this kernel cannot run, and every flag that it would ignore. */
template <backward_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.instruction == MMA_SYNC, "instruction must be backward_mma_sync");
    static_assert(cfg.d_head == 64 || cfg.d_head == 128 || cfg.d_head == 256, "d_head must be 64, 128 or 256");
    static_assert(cfg.B_r == 64 || cfg.B_r == (cfg.d_head == 256 ? 32 : 128),
                  "B_r must be 64 or 128, with d_head 256 32 or 64");
    static_assert(cfg.B_c == (cfg.d_head == 256 ? 8 : 16) * cfg.n_warps,
                  "B_c must be 16 * n_warps, with d_head 256 8 * n_warps: a pair of warps has 32 or 16 keys");
    static_assert(cfg.n_warps == 4 || cfg.n_warps == 8, "n_warps must be 4 or 8");
    static_assert(cfg.d_head != 64 || cfg.n_warps == 8, "n_warps must be 8 with d_head 64");
    static_assert(cfg.stages == 2 || (cfg.stages == 0 && cfg.d_head != 64),
                  "stages must be 2; 0 without d_head 64: Q and dO have one block each");
    static_assert(cfg.dQ_sums, "dQ_sums must be on: every CTA adds its part of dQ");
    static_assert(!cfg.in_order || cfg.serves, "in_order must be off without serve: with it all problems are served");
    static_assert(!cfg.tensor_copies, "tensor_copies must be off: threads copy");
    static_assert(cfg.causal, "causal must be on: a launch decides whether there is a mask");
    static_assert(cfg.grouped_heads, "grouped_heads must be on: a CTA goes through all heads of a KV head");
    static_assert(cfg.any_rows, "any_rows must be on: blocks may have fewer rows");
}

/* ---- the kernels: grid (tiles), with serve without in_order (tiles of a head, KV heads), 32 * n_warps threads ---- */

template <backward_config cfg>
__global__ void __launch_bounds__(BACKWARD_SMALL_THREADS) row_sums(const __grid_constant__ backward_strided_args args) {
    sum_rows<cfg>(args);
}

template <backward_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps) flash_backward(const __grid_constant__ backward_strided_args args) {
    check_config<cfg>();
    extern __shared__ __align__(1024) char smem_bytes[];
    const mma_smem<cfg> at(__cvta_generic_to_shared(smem_bytes));
    fetch_own_tile<cfg>(args, at);
    init_mbarriers<cfg>(at);
    const work<cfg> tile = own_tile<cfg>(args, at);
    if (cfg.serves && tile.KV_block < 0) return; /* a number that is left over */
    const tile_steps<cfg> steps(args, tile);
    key_gradient dK = {}, dV = {};
    if constexpr (cfg.d_head == 128 && cfg.stages == 2)
        multiply_ahead<cfg>(args, at, steps, dK, dV);
    else
        multiply_in_turn<cfg>(args, at, steps, dK, dV);
    store_gradients<cfg>(args, at, steps, dK, dV);
}

template <backward_config cfg>
__global__ void __launch_bounds__(BACKWARD_SMALL_THREADS) round_dQ(const __grid_constant__ backward_strided_args args) {
    round_rows<cfg>(args);
}

#include "instances.cuh"
