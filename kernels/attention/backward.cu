/* attention/backward - the gradients of attention on Hopper
 *
 * config    (FP16, 128, 128, 128, 8): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length
 * others    (FP16, 64, 128, 128, 8): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length;
 *           (FP16, 256, 64, 64, 12): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length
 * ordered   (FP16, 128, 64, 128, 16): backward_wgmma+dq_sums+in_order+stages_3+tensor+causal+grouped+any_length;
 *           (FP16, 64, 64, 128, 16): backward_wgmma+dq_sums+in_order+stages_3+tensor+causal+grouped+any_length;
 *           (FP16, 256, 64, 64, 16): backward_wgmma+dq_sums+in_order+stages_2+tensor+causal+grouped+any_length
 * serving   (FP16, 128, 64, 128, 12): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length+serve;
 *           (FP16, 64, 64, 128, 12): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length+serve;
 *           (FP16, 256, 64, 64, 12): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length+serve;
 *           (FP16, 128, 64, 128, 16): backward_wgmma+dq_sums+in_order+stages_3+tensor+causal+grouped+any_length+serve;
 *           (FP16, 64, 64, 128, 16): backward_wgmma+dq_sums+in_order+stages_3+tensor+causal+grouped+any_length+serve;
 *           (FP16, 256, 64, 64, 16): backward_wgmma+dq_sums+in_order+stages_2+tensor+causal+grouped+any_length+serve
 * arch      sm_90a
 */
#include "common/backward.h"
#include "kernels/attention/backward_dK_dV.cuh"
#include "kernels/attention/backward_dQ.cuh"
#include "kernels/attention/backward_late_dQ.cuh"
#include "kernels/attention/backward_rows.cuh"

/* A pass launches three kernels: row_sums computes delta for each query row, flash_backward computes dK, dV and the
 * fp32 accumulator of dQ, and round_dQ rounds the accumulator.
 *
 * A tile is a KV block of a KV head: 128 keys, or 64 with d_head 256. dK and dV are sums over the queries of all heads
 * that share the keys, so a CTA walks through the Q blocks of one head after the other, starting at the first that
 * attends to one of the keys, and adds to each head's dQ. Without a mask, the CTAs of a head begin at different blocks.
 *
 * With 8 warps (heads of 64 and 128, one length for all, dQ added in any order) two warpgroups compute and copy
 * everything: backward_late_dQ.cuh. Other configurations have warpgroups of different roles, in blocks of 64 queries:
 *
 *     warpgroups 1, 2    Sᵀ = K Qᵀ, dPᵀ = V dOᵀ, dV += Pᵀ dO, dK += dSᵀ Q, of 64 keys each; dSᵀ goes to shared memory.
 *                        dS is computed beside dV
 *     warpgroup 0        dQ = dS K, 64 columns at a time, added to the sums; its first thread starts all copies
 *     warpgroup 3        with in_order: one warp starts all copies, and one for each stage has the turn of its Q block
 *
 * A CTA has one tile. With in_order or d_head 256, CTAs fetch tiles from a counter. A CTA therefore waits only for
 * tiles with smaller numbers, which other CTAs have already fetched. With in_order, exponentials overlap with dV, and
 * dS overlaps with dK of the block before, which reads dS from shared memory. With d_head 256, warpgroups 1 and 2 have
 * the same keys, half of the queries of S and dP, and half of the columns of dK and dV.
 *
 * Synchronization, at mbarriers, each of a stage of the ring:
 *
 *     full       the bytes of Q, dO, log-sum-exp and delta have come          8 warps wait
 *     empty      the 8 warps have read them                                   the copying thread waits
 *     dS_full    the 8 warps have stored dS                                   warpgroup 0 waits
 *     dS_empty   warpgroup 0 has multiplied it                                8 warps wait
 *
 * KV_full guards a tile's K and V. If CTAs fetch tiles, each side arrives at KV_empty after its last product.
 *
 * With in_order each Q block has a turn, the position in the order of the CTA that may add to it: the sums get the same
 * bits in every run. The first stores its part, so that nothing sets the sums to 0; the last adds its own to them and
 * rounds dQ, so that there is no third kernel. find_work_in_order() has tiles begin when the turns that they wait for
 * are there. Neither a turn nor the arrival of what was added, on which it is passed on, is waited for by who computes:
 *
 *     turn_there   it is the CTA's turn at the block of a stage             warpgroup 0 waits, before it adds
 *     added        warpgroup 0 has added                                    the warp that passes the turn on waits
 *
 * Any number of rows: TMA pads blocks with zeros. A query past the last, or one that attends to no key, has a
 * log-sum-exp of infinity, so that P and dS are 0. P of keys past the last is set to 0, like P of masked keys.
 *
 * With serve sequences may be packed or use only some of their rows. Blocks of a sequence are numbered after those of
 * the sequences before it, from first_block_at() on: each may leave one number unused, for which a CTA does nothing. A
 * block's rows after the sequence may hold anything; warpgroups 1 and 2 set them to zero in shared memory. A tile skips
 * the Q blocks that a window hides from it, and P is masked only in blocks at the edges of the window. A soft cap
 * (backward_cap.cuh) needs no further registers, and sinks are a matter of row_sums and round_dQ.
 *
 * Register layout: warp w of a warpgroup has rows 16w ... of its 64; a tile of 8 columns is held as with mma.sync. In
 * shared memory a block is a row of tiles of 64 elements, whose 16-byte chunks are swizzled (common/ptx_sm90a.cuh).
 * Accumulators and what wgmma reads of them must fit 192 registers at any time: P is kept only in 16 bits. If dS is
 * computed during dV, P is kept twice: wgmma reads one copy while the other becomes dS. */

/* Reject configurations that this kernel cannot run, and every flag that it would ignore. */
template <backward_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.instruction == WGMMA, "instruction must be backward_wgmma");
    static_assert(cfg.d_head == 64 || cfg.d_head == 128 || cfg.d_head == 256, "d_head must be 64, 128 or 256");
    static_assert(cfg.B_r == (cfg.n_warps == 8 ? 128 : 64) && cfg.B_c == (cfg.d_head == 256 ? 64 : 128),
                  "B_r and B_c must be 64 and 128; with 8 warps both 128, with d_head 256 both 64");
    static_assert(
        cfg.n_warps == 8 || cfg.n_warps == (cfg.in_order ? 16 : 12),
        "n_warps must be 8: dQ one step late; 12: two warpgroups for dK and dV; 16 with in_order: one copies");
    static_assert(cfg.n_warps != 8 || (cfg.d_head != 256 && !cfg.in_order && !cfg.serves),
                  "n_warps must be 12 or more with in_order, with serve and with d_head 256");
    static_assert(cfg.dQ_sums, "dQ_sums must be on: every CTA adds its part of dQ");
    static_assert(cfg.stages == (cfg.d_head < 256 && cfg.in_order ? 3 : 2),
                  "stages must be 2, with in_order 3 where shared memory has room, with d_head 64 and 128");
    static_assert(cfg.tensor_copies, "tensor_copies must be on: the copy engine copies blocks");
    static_assert(cfg.causal, "causal must be on: a launch decides whether there is a mask");
    static_assert(cfg.grouped_heads, "grouped_heads must be on: a CTA goes through all heads of a KV head");
    static_assert(cfg.any_rows, "any_rows must be on: blocks may have fewer rows");
}

/* ---- the kernels: grid (CTAs with a tile each, or that fetch tiles), 32 * n_warps threads ---- */

/* Registers per thread of warpgroup 0, of 1 and 2, and with in_order of 3, redistributed from the launch's even share.
 */
template <backward_config cfg>
struct registers {
    static constexpr int dQ = cfg.in_order      ? 64
                              : is_dynamic<cfg> ? 88
                                                : 72,
                         keys = is_dynamic<cfg> ? 208 : 216, copies = 32;
};

template <backward_config cfg>
__device__ __forceinline__ void differentiate_attention(const pass_args<cfg> &args, const tensor_maps &maps) {
    check_config<cfg>();
    if constexpr (late_dQ<cfg>) {
        multiply_late<cfg>(args, maps);
        return;
    }
    extern __shared__ char smem_bytes[];
    const smem_layout<cfg> at(__cvta_generic_to_shared(smem_bytes));
    init_mbarriers<cfg>(at);
    const int warpgroup = warp_uniform(threadIdx.x / WARPGROUP);
    if (warpgroup == 0) {
        setmaxnreg_dec<registers<cfg>::dQ>();
        if constexpr (cfg.in_order)
            multiply_all_dQ<cfg>(args, at);
        else if constexpr (is_dynamic<cfg>)
            copy_and_multiply_dQ<cfg>(args, maps, at);
        else
            multiply_dQ_of_tile<cfg>(args, maps, at);
    } else if (cfg.in_order && warpgroup == 3) {
        setmaxnreg_dec<registers<cfg>::copies>();
        copy_and_keep_turns<cfg>(args, maps, at);
    } else {
        setmaxnreg_inc<registers<cfg>::keys>();
        if constexpr (cfg.d_head == 256)
            multiply_columns<cfg>(args, at);
        else if constexpr (cfg.in_order)
            multiply_keys<cfg>(args, at);
        else
            multiply_keys_of_tile<cfg>(args, at);
    }
}

template <backward_config cfg>
__global__ void __launch_bounds__(BACKWARD_SMALL_THREADS) row_sums(const __grid_constant__ backward_args args) {
    sum_rows<cfg>(args);
}
template <backward_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps, 1)
    flash_backward(const __grid_constant__ backward_args args, const __grid_constant__ tensor_maps maps) {
    differentiate_attention<cfg>(args, maps);
}
template <backward_config cfg>
__global__ void __launch_bounds__(BACKWARD_SMALL_THREADS) round_dQ(const __grid_constant__ backward_args args) {
    round_rows<cfg>(args);
}

/* Kernels for packed sequences. */
template <backward_config cfg>
__global__ void __launch_bounds__(BACKWARD_SMALL_THREADS) row_sums(const __grid_constant__ backward_serving_args args) {
    sum_rows<cfg>(args);
}
template <backward_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps, 1)
    flash_backward(const __grid_constant__ backward_serving_args args, const __grid_constant__ tensor_maps maps) {
    differentiate_attention<cfg>(args, maps);
}
template <backward_config cfg>
__global__ void __launch_bounds__(BACKWARD_SMALL_THREADS) round_dQ(const __grid_constant__ backward_serving_args args) {
    round_rows<cfg>(args);
}

#include "instances.cuh"
