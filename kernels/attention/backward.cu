/* attention/backward - the gradients of attention on Hopper
 *
 * config    (FP16, 128, 64, 128, 12): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length
 * others    (FP16, 64, 64, 128, 12): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length;
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
#include "kernels/attention/backward_rows.cuh"

/* Three kernels make a pass: row_sums computes what each query row has of the forward pass, flash_backward the
 * gradients by K and V and the sums of dQ, and round_dQ rounds these.
 *
 * A tile is a KV block of a KV head: 128 keys, with d_head 256 64. dK and dV are sums over the queries of all heads
 * that share the keys: a CTA goes through the Q blocks of one head after the other, from the first that sees one of the
 * keys, and adds to each head's dQ. CTAs of a head begin at blocks of their own where there is no mask.
 *
 *     warpgroups 1, 2    Sᵀ = K Qᵀ, dPᵀ = V dOᵀ, dV += Pᵀ dO, dK += dSᵀ Q, of 64 keys each; dSᵀ goes to shared memory.
 *                        dS is computed beside dV
 *     warpgroup 0        dQ = dS K, 64 columns at a time, added to the sums; its first thread starts all copies
 *     warpgroup 3        with in_order: one warp starts all copies, and one for each stage has the turn of its Q block
 *
 * A CTA has one tile. With in_order or d_head 256 CTAs draw tiles from a counter, which is behind what a CTA waits for:
 * whoever has a smaller number has drawn it. With in_order exponentials run beside dV, and dS beside dK of the block
 * before, which reads dS from shared memory. With d_head 256 warpgroups 1 and 2 have the same keys, half of the queries
 * of S and dP, half of the columns of dK, dV.
 *
 * Who waits for whom, at mbarriers, each of a stage of the ring:
 *
 *     full       the bytes of Q, dO, log-sum-exp and delta have come          8 warps wait
 *     empty      the 8 warps have read them                                   the copying thread waits
 *     dS_full    the 8 warps have stored dS                                   warpgroup 0 waits
 *     dS_empty   warpgroup 0 has multiplied it                                8 warps wait
 *
 * KV_full of a tile's K and V; where CTAs draw, KV_empty, for which the last product of each side arrives.
 *
 * With in_order each Q block has a turn, the place in the order of the CTA that may add to it: the sums get the same
 * bits in every run. The first stores its part, so that nothing sets the sums to 0; the last adds its own to them and
 * rounds dQ, so that there is no third kernel. find_work_in_order() has tiles begin when the turns that they wait for
 * are there. Neither a turn nor the arrival of what was added, on which it is passed on, is waited for by who computes:
 *
 *     turn_there   it is the CTA's turn at the block of a stage             warpgroup 0 waits, before it adds
 *     added        warpgroup 0 has added                                    the warp that passes the turn on waits
 *
 * Any number of rows: the copy engine fills up blocks with zeros. A query behind the last has a log-sum-exp of
 * infinity, so that P and dS are 0, and so has one that sees no key. P of keys behind the last is set to 0 as that of
 * masked ones.
 *
 * With serve the sequences lie one behind the other. Blocks of a sequence are numbered behind those of the sequences
 * before it, from first_block_at() on: each may have left one number over, for which there is nothing to do. A block's
 * rows behind the sequence are those of the next one: warpgroups 1 and 2 set them to zero in shared memory.
 *
 * Who holds what: warp w of a warpgroup has rows 16w ... of its 64; a tile of 8 columns is held as with mma.sync. In
 * shared memory a block is a row of tiles of 64 elements, whose 16-byte chunks are swizzled (common/ptx_sm90a.cuh).
 * Accumulators and what wgmma reads of them must fit 192 registers at any time: P is kept in 16 bits alone, where dS is
 * computed beside dV twice: wgmma reads one of them while the other becomes dS. */

/* Refuse what this kernel can't run, and every flag that it would not act on. */
template <backward_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.instruction == WGMMA, "instruction must be backward_wgmma");
    static_assert(cfg.d_head == 64 || cfg.d_head == 128 || cfg.d_head == 256, "d_head must be 64, 128 or 256");
    static_assert(cfg.B_r == 64 && cfg.B_c == (cfg.d_head == 256 ? 64 : 128),
                  "B_r and B_c must be 64 and 128, with d_head 256 64");
    static_assert(cfg.n_warps == (cfg.in_order ? 16 : 12),
                  "n_warps must be 12: two warpgroups for dK and dV; 16 with in_order: one copies");
    static_assert(cfg.dQ_sums, "dQ_sums must be on: every CTA adds its part of dQ");
    static_assert(cfg.stages == (cfg.d_head < 256 && cfg.in_order ? 3 : 2),
                  "stages must be 2, with in_order 3 where shared memory has room, with d_head 64 and 128");
    static_assert(cfg.tensor_copies, "tensor_copies must be on: the copy engine copies blocks");
    static_assert(cfg.causal, "causal must be on: a launch decides whether there is a mask");
    static_assert(cfg.grouped_heads, "grouped_heads must be on: a CTA goes through all heads of a KV head");
    static_assert(cfg.any_rows, "any_rows must be on: blocks may have fewer rows");
}

/* ---- the kernels: grid (CTAs with a tile each, or that draw tiles), 32 * n_warps threads ---- */

/* Registers of warpgroup 0, of 1 and 2, and in order of 3: what the CTA is launched with, shared out anew. */
template <backward_config cfg>
struct registers {
    static constexpr int dQ = cfg.in_order ? 64 : draws<cfg> ? 88 : 72, keys = draws<cfg> ? 208 : 216, copies = 32;
};

template <backward_config cfg>
__device__ __forceinline__ void differentiate_attention(const pass_args<cfg> &args, const tensor_maps &maps) {
    check_config<cfg>();
    extern __shared__ char smem_bytes[];
    const places<cfg> at(__cvta_generic_to_shared(smem_bytes));
    init_mbarriers<cfg>(at);
    const int warpgroup = warp_uniform(threadIdx.x / WARPGROUP);
    if (warpgroup == 0) {
        setmaxnreg_dec<registers<cfg>::dQ>();
        if constexpr (cfg.in_order)
            multiply_all_dQ<cfg>(args, at);
        else if constexpr (draws<cfg>)
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

/* Those that serve. */
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
