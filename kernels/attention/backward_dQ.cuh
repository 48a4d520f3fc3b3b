/* backward_dQ.cuh - warpgroup 0, which computes dQ, and with in_order warpgroup 3, which copies and passes the turns
 * on.
 *
 *     multiply_dQ_of_tile<cfg>(args, maps, at);        the CTA has one tile
 *     copy_and_multiply_dQ<cfg>(args, maps, at);       it fetches tiles
 *     multiply_all_dQ<cfg>(args, at);                  it fetches tiles and adds in order
 *     copy_and_keep_turns<cfg>(args, maps, at);        warpgroup 3
 */
#ifndef FL_ATTENTION_BACKWARD_DQ_CUH
#define FL_ATTENTION_BACKWARD_DQ_CUH

#include "kernels/attention/backward_copies.cuh"
#include "kernels/attention/backward_products.cuh"
#include "kernels/attention/backward_results.cuh"

/* Address of a head's block of dQ. */
template <backward_config cfg>
struct block_of_dQ {
    const work<cfg> &of;
    int head, Q_block;
    int64_t number;

    __device__ __forceinline__ block_of_dQ(const pass_args<cfg> &args, const work<cfg> &all, const q_block<cfg> &here)
        : of(all), head(all.KV_head * (args.heads / args.KV_heads) + here.head), Q_block(here.block(all)),
          number(first_block_of<cfg>(args, all.seq, all.sample, head) + Q_block) {}
    __device__ __forceinline__ float *sums(const backward_args &args) const {
        return args.sums + number * (cfg.B_r * cfg.d_head);
    }
};

/* dQ of a block, from dS in a stage. */
template <backward_config cfg>
__device__ __forceinline__ void multiply_dQ(const backward_args &args, const smem_layout<cfg> &at,
                                            const block_of_dQ<cfg> &block, int stage) {
    constexpr int spans = cfg.d_head / SPAN;
    float *sums = block.sums(args);
#pragma unroll 1
    for (int span = 0; span < spans; span++, sums += cfg.B_r * SPAN) {
        tiles<8> dQ;
        wgmma_fence();
        start_dQ<cfg>(dQ, at.dS + stage * smem_layout<cfg>::dS_bytes, at.K + span * smem_layout<cfg>::KV_tile);
        wgmma_wait_group<0>(dQ);
        if (span == spans - 1) arrive_as_warp(at.dS_empty + 8 * stage);
        add_dQ(sums, dQ);
    }
}

/* Warpgroup 0: copies, and dQ of the block at hand. */
template <backward_config cfg>
__device__ __forceinline__ void copy_and_multiply_dQ(const pass_args<cfg> &args, const tensor_maps &maps,
                                                     const smem_layout<cfg> &at) {
    const bool copies = threadIdx.x == 0;
    copier<cfg> copier{args, maps, at};
    int step = 0;
    if (copies) {
        copier.fetch(0);
        copier.copy_KV(0);
    }
    for (int turn = 0;; turn++) {
        __syncwarp();
        wait_for_phase(at.KV_full, turn);
        if (read_work<cfg>(at.posted(turn)).KV_block < 0) break;
        for (q_block<cfg> here; here.is_in(read_work<cfg>(at.posted(turn)), args.heads / args.KV_heads); step++) {
            const int stage = step % cfg.stages;
            if (copies) copier.copy_ahead(step + cfg.stages, turn);
            const work<cfg> all = read_work<cfg>(at.posted(turn));
            const block_of_dQ<cfg> block(args, all, here);
            __syncwarp();
            wait_for_phase(at.dS_full + 8 * stage, step / cfg.stages);
            multiply_dQ<cfg>(args, at, block, stage);
            here.advance(all);
        }
        bar_sync(1, WARPGROUP); /* all have multiplied with K */
        if (copies) copier.begin_next(turn);
    }
}

/* Warpgroup 0: copies one block ahead, dQ of the block at hand. */
template <backward_config cfg>
__device__ __forceinline__ void multiply_dQ_of_tile(const pass_args<cfg> &args, const tensor_maps &maps,
                                                    const smem_layout<cfg> &at) {
    constexpr int spans = cfg.d_head / SPAN;
    const own_work<cfg> all(args);
    const bool copies = threadIdx.x == 0;
    if (cfg.serves && all.KV_block < 0) return;
    if (copies) copy_first<cfg>(args, maps, at, all);
    __syncwarp();
    wait_for_phase(at.KV_full, 0);
    for (int step = 0; step < all.steps(); step++) {
        const int stage = step % cfg.stages;
        if (copies && step + 1 < all.steps()) copy_step<cfg>(args, maps, at, all, step + 1);
        __syncwarp();
        wait_for_phase(at.dS_full + 8 * stage, step / cfg.stages);
        const int64_t block = first_block_of<cfg>(args, all.seq, all.sample, all.head(step)) + all.block(step);
#pragma unroll 1
        for (int span = 0; span < spans; span++) {
            tiles<8> dQ;
            wgmma_fence();
            start_dQ<cfg>(dQ, at.dS + stage * smem_layout<cfg>::dS_bytes, at.K + span * smem_layout<cfg>::KV_tile);
            wgmma_wait_group<0>(dQ);
            if (span == spans - 1) arrive_as_warp(at.dS_empty + 8 * stage);
            add_dQ(args.sums + (block * spans + span) * (cfg.B_r * SPAN), dQ);
        }
    }
}

/* ---- in order: dQ and its turns ---- */

/* One warp for each stage handles the turn of its Q block: one thread waits for the turn, and passes it on when the
 * CTA's additions have arrived. Warpgroup 0 therefore waits for neither. */
template <backward_config cfg>
__device__ __forceinline__ void keep_turns(const backward_args &args, const smem_layout<cfg> &at, int stage) {
    for (int phase = 0;; phase++) {
        int number, own, last, unused;
        wait_for_phase(at.full + 8 * stage, phase);
        load_shared_v4(at.turn + 16 * stage, number, own, last, unused);
        mbarrier_arrive(at.empty + 8 * stage);
        if (number < 0) break;
        int *const turn = args.turns + BACKWARD_COUNTERS + number;
        wait_for_turn(turn, own);
        mbarrier_arrive(at.turn_there + 8 * stage);
        wait_for_phase(at.added + 8 * stage, phase);
        if (own < last) st_release(turn, own + 1);
    }
}

/* Add 64 columns of a block: the first CTA in order stores its partial result, the last one adds the accumulated values
 * to its own and rounds dQ. */
template <backward_config cfg>
__device__ __forceinline__ void add_in_order(const pass_args<cfg> &args, const block_of_dQ<cfg> &block, int span,
                                             tiles<8> &dQ) {
    float *const sums = block.sums(args) + span * (cfg.B_r * SPAN);
    const int first = first_in_order<cfg>(args, block.of, block.Q_block);
    const int end = last_seen<cfg>(args, block.of.seq, block.Q_block), last = end - first;
    const int own = position_in_order<cfg>(args, block.of, first, end);
    if (own == last) {
        if (last > 0) take_sums(dQ, sums);
        store_dQ<cfg>(args, block.of, block.head, block.Q_block, span * SPAN, dQ);
    } else if (own == 0) {
        store_sums(sums, dQ);
    } else {
        add_dQ(sums, dQ);
    }
}

/* dQ of a block, from dS in a stage. `ends`: nothing reads the tile's K after it. */
template <backward_config cfg>
__device__ __forceinline__ void multiply_dQ_in_order(const pass_args<cfg> &args, const smem_layout<cfg> &at,
                                                     const block_of_dQ<cfg> &block,
                                                     const ring_position<cfg.stages> &now, bool ends) {
    constexpr int spans = cfg.d_head / SPAN;
    const int stage = now.stage;
    wait_for_phase(at.dS_full + 8 * stage, now.phase);
#pragma unroll 1
    for (int span = 0; span < spans; span++) {
        tiles<8> dQ;
        wgmma_fence();
        start_dQ<cfg>(dQ, at.dS + stage * smem_layout<cfg>::dS_bytes, at.K + span * smem_layout<cfg>::KV_tile);
        wgmma_wait_group<0>(dQ);
        if (span == spans - 1) {
            arrive_as_warp(at.dS_empty + 8 * stage);
            if (ends) arrive_as_warp(at.KV_empty);
        }
        if (span == 0) wait_for_phase(at.turn_there + 8 * stage, now.phase);
        add_in_order<cfg>(args, block, span, dQ);
    }
    arrive_as_warp(at.added + 8 * stage);
}

/* Warpgroup 0. */
template <backward_config cfg>
__device__ __forceinline__ void multiply_all_dQ(const pass_args<cfg> &args, const smem_layout<cfg> &at) {
    ring_position<cfg.stages> now;
    for (int turn = 0;; turn++) {
        wait_for_phase(at.KV_full, turn);
        const work<cfg> all = read_work<cfg>(at.posted(turn));
        if (all.KV_block < 0) break;
        if (cfg.serves && !all.blocks) arrive_as_warp(at.KV_empty);
        q_block<cfg> here;
#pragma unroll 1
        for (int left = args.heads / args.KV_heads * all.blocks; left; left--) {
            multiply_dQ_in_order<cfg>(args, at, block_of_dQ<cfg>(args, all, here), now, left == 1);
            here.advance(all);
            now.advance();
        }
    }
}

/* Warpgroup 3: one warp copies, the others handle the turns. */
template <backward_config cfg>
__device__ __forceinline__ void copy_and_keep_turns(const pass_args<cfg> &args, const tensor_maps &maps,
                                                    const smem_layout<cfg> &at) {
    const int warp = warp_uniform(threadIdx.x % WARPGROUP / 32);
    if (threadIdx.x % 32) return;
    if (warp == 0)
        copier<cfg>{args, maps, at}.copy_all();
    else if (warp <= cfg.stages)
        keep_turns<cfg>(args, at, warp - 1);
}

#endif
