/* backward_copies.cuh - the thread that copies K, V, Q, dO and the statistics of queries to shared memory.
 *
 *     copier<cfg>{args, maps, at}.copy_all();                  tiles from the counter, one after the other
 *     copy_first<cfg>(...), copy_step<cfg>(..., step);         the one tile of this CTA
 */
#ifndef FL_ATTENTION_BACKWARD_COPIES_CUH
#define FL_ATTENTION_BACKWARD_COPIES_CUH

#include "kernels/attention/backward_smem.cuh"
#include "kernels/attention/backward_turns.cuh"

/* The thread that copies a Q block stores the number of its turn, this CTA's position, and the last position. */
template <backward_config cfg>
__device__ __forceinline__ void post_turn(const pass_args<cfg> &args, uint32_t smem, const work<cfg> &of, int head,
                                          int block) {
    const int first = first_in_order<cfg>(args, of, block), last = last_seen<cfg>(args, of.seq, block);
    const int number = (int)first_block_of<cfg>(args, of.seq, of.sample, head) + block;
    store_shared_v4(smem, number, position_in_order<cfg>(args, of, first, last), last - first, 0);
}

/* The copying thread fetches tiles. It copies K and V of a tile once those of the previous tile have been read, and Q
 * blocks as far ahead as there are stages, even into the next tile. */
template <backward_config cfg>
struct copier {
    using of = smem_layout<cfg>;
    const pass_args<cfg> &args;
    const tensor_maps &maps;
    const smem_layout<cfg> &at;
    int turn = 0; /* number of the tile that the next Q block belongs to */
    q_block<cfg> ahead;
    int count = 0; /* of Q blocks copied */

    __device__ __forceinline__ void fetch(int number) {
        int tile = fetch_tile<cfg>(args);
        work<cfg> found = find_work<cfg>(args, tile);
        while (cfg.serves && tile >= 0 && found.KV_block < 0) /* a number that is left over */
            found = find_work<cfg>(args, tile = fetch_tile<cfg>(args));
        post_work<cfg>(at.posted(number), found);
    }

    /* Copy K and V of a tile once those of the tile before are read; without a tile, publish that none is left. */
    __device__ __forceinline__ void copy_KV(int number) {
        const work<cfg> all = read_work<cfg>(at.posted(number));
        wait_for_phase(at.KV_empty, number - 1);
        if (all.KV_block < 0) {
            mbarrier_arrive(at.KV_full);
            return;
        }
        mbarrier_arrive_expect_tx(at.KV_full, 2 * of::KV_bytes);
        int row = all.KV_block * cfg.B_c;
        if constexpr (cfg.serves) row += all.seq.first_k;
        copy_tensor_to_smem(at.K, maps.K, at.KV_full, row, all.KV_head, sample_of<cfg>(all));
        copy_tensor_to_smem(at.V, maps.V, at.KV_full, row, all.KV_head, sample_of<cfg>(all));
    }

    __device__ __forceinline__ void copy_queries(const work<cfg> &all) {
        const int head = all.KV_head * (args.heads / args.KV_heads) + ahead.head, block = ahead.block(all);
        const float *const kept =
            args.delta + (first_block_of<cfg>(args, all.seq, all.sample, head) + block) * 2 * cfg.B_r;
        const int stage = count % cfg.stages;
        const uint32_t full = at.full + 8 * stage;
        wait_for_phase(at.empty + 8 * stage, count / cfg.stages - 1);
        if constexpr (cfg.in_order) post_turn<cfg>(args, at.turn + 16 * stage, all, head, block);
        mbarrier_arrive_expect_tx(full, 2 * (of::Q_bytes + of::row_bytes));
        int row = block * cfg.B_r;
        if constexpr (cfg.serves) row += all.seq.first_q;
        copy_tensor_to_smem(at.Q + stage * of::Q_bytes, maps.Q, full, row, head, sample_of<cfg>(all));
        copy_bytes_to_smem(at.lse + stage * 2 * of::row_bytes, kept, 2 * of::row_bytes, full);
        copy_tensor_to_smem(at.dO + stage * of::Q_bytes, maps.O, full, row, head, sample_of<cfg>(all));
        count++;
    }

    /* Copy Q blocks until `number` are copied, but none past the tile that follows number `now`. */
    __device__ __forceinline__ void copy_ahead(int until, int now) {
        while (count < until) {
            const work<cfg> all = read_work<cfg>(at.posted(turn));
            if (all.KV_block < 0) return;
            if (ahead.is_in(all, args.heads / args.KV_heads)) {
                copy_queries(all);
                ahead.advance(all);
                continue;
            }
            if (turn > now) return;
            fetch(++turn);
            ahead = q_block<cfg>();
        }
    }

    /* Tile number `now` is done. */
    __device__ __forceinline__ void begin_next(int now) {
        if (turn == now) {
            fetch(++turn);
            ahead = q_block<cfg>();
        }
        copy_KV(now + 1);
    }

    /* In order: copy all tiles, one after the other. The first stages - 1 Q blocks of a tile arrive during the last
     * products of the tile before, which still read K and V. */
    __device__ __forceinline__ void copy_all() {
        for (int number = 0;; number++) {
            fetch(number);
            const work<cfg> all = read_work<cfg>(at.posted(number));
            const int steps = all.KV_block < 0 ? 0 : args.heads / args.KV_heads * all.blocks;
            const int beside = min(steps, cfg.stages - 1);
            ahead = q_block<cfg>();
            for (int step = 0;; step++) {
                if (step == beside) copy_KV(number);
                if (step == steps) break;
                copy_queries(all);
                ahead.advance(all);
            }
            if (all.KV_block < 0) break;
        }
        for (int end = count + cfg.stages; count < end; count++) {
            const int stage = count % cfg.stages;
            wait_for_phase(at.empty + 8 * stage, count / cfg.stages - 1);
            store_shared_v4(at.turn + 16 * stage, -1, 0, 0, 0);
            mbarrier_arrive(at.full + 8 * stage);
        }
    }
};

/* Copy the Q block of a step and the statistics of its queries, once the stage's previous block is read. */
template <backward_config cfg>
__device__ __forceinline__ void copy_step(const pass_args<cfg> &args, const tensor_maps &maps,
                                          const smem_layout<cfg> &at, const own_work<cfg> &all, int step) {
    using of = smem_layout<cfg>;
    const int stage = step % cfg.stages, of_sequence = all.block(step) * cfg.B_r, head = all.head(step);
    const float *const kept =
        args.delta + (first_block_of<cfg>(args, all.seq, all.sample, head) + all.block(step)) * 2 * cfg.B_r;
    const uint32_t full = at.full + 8 * stage;
    wait_for_phase(at.empty + 8 * stage, step / cfg.stages - 1);
    mbarrier_arrive_expect_tx(full, 2 * (of::Q_bytes + of::row_bytes));
    int row = of_sequence;
    if constexpr (cfg.serves) row += all.seq.first_q;
    copy_tensor_to_smem(at.Q + stage * of::Q_bytes, maps.Q, full, row, head, sample_of<cfg>(all));
    copy_bytes_to_smem(at.lse + stage * 2 * of::row_bytes, kept, 2 * of::row_bytes, full);
    copy_tensor_to_smem(at.dO + stage * of::Q_bytes, maps.O, full, row, head, sample_of<cfg>(all));
}

/* K and V, and the Q block of the first step. */
template <backward_config cfg>
__device__ __forceinline__ void copy_first(const pass_args<cfg> &args, const tensor_maps &maps,
                                           const smem_layout<cfg> &at, const own_work<cfg> &all) {
    mbarrier_arrive_expect_tx(at.KV_full, 2 * smem_layout<cfg>::KV_bytes);
    int row = all.KV_block * cfg.B_c;
    if constexpr (cfg.serves) row += all.seq.first_k;
    copy_tensor_to_smem(at.K, maps.K, at.KV_full, row, all.KV_head, sample_of<cfg>(all));
    copy_tensor_to_smem(at.V, maps.V, at.KV_full, row, all.KV_head, sample_of<cfg>(all));
    if (!cfg.serves || all.steps()) copy_step<cfg>(args, maps, at, all, 0);
}

#endif
