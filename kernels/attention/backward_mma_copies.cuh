/* backward_mma_copies.cuh - the steps of a tile, and the copies of its rows to shared memory with cp.async.
 *
 *     const tile_steps<cfg> steps(args, found);
 *     for (step_position now = steps.first(); steps.has(now); now = steps.next(now))
 *     copy_Q<cfg>(args, at, steps, now, stage);
 *
 * All threads copy, and each arrives at the mbarrier of the block by cp.async.mbarrier.arrive. Rows past the last
 * become zeros.
 */
#ifndef FL_ATTENTION_BACKWARD_MMA_COPIES_CUH
#define FL_ATTENTION_BACKWARD_MMA_COPIES_CUH

#include "kernels/attention/backward_mma_shape.cuh"
#include "kernels/attention/backward_schedule.cuh"

/* The tile of this CTA. With serve the KV blocks of all sequences are numbered along x. With in_order thread 0 fetches
 * the tile before init_mbarriers(), so that CTAs wait only for tiles that others have fetched. */
template <backward_config cfg>
__device__ __forceinline__ void fetch_own_tile(const pass_args<cfg> &args, const mma_smem<cfg> &at) {
    if (cfg.in_order && threadIdx.x == 0) st_shared_u32(at.turns, fetch_tile<cfg>(args));
}
template <backward_config cfg>
__device__ __forceinline__ work<cfg> own_tile(const pass_args<cfg> &args, const mma_smem<cfg> &at) {
    if constexpr (cfg.in_order) {
        int tile, unused;
        load_shared_v4(at.turns, tile, unused, unused, unused);
        __syncthreads(); /* all threads have read it: warp 0 keeps its turn there */
        return find_work_in_order<cfg>(args, tile);
    } else if constexpr (cfg.serves)
        return find_packed_work<cfg>(args, blockIdx.x, blockIdx.y);
    else
        return find_work<cfg>(args, blockIdx.x);
}

/* A step of a tile: a Q block of a head. */
struct step_position {
    int head, block;
};

/* The Q blocks that attend to the tile's keys: those of one head of the KV head after those of another. */
template <backward_config cfg>
struct tile_steps {
    work<cfg> tile;
    int first_head, end_head, end_block, seq_q, seq_k;
    int first_number, head_blocks; /* of the first head's first Q block in the workspace, and blocks of a head */
    int first_row_q, first_row_k;  /* of the sequence in its tensors */

    __device__ __forceinline__ tile_steps(const pass_args<cfg> &args, const work<cfg> &found)
        : tile(found), seq_q(queries_of<cfg>(args, found.seq)), seq_k(keys_of<cfg>(args, found.seq)), first_row_q(0),
          first_row_k(0) {
        const int group = args.heads / args.KV_heads;
        first_head = tile.KV_head * group;
        first_number = (int)first_block_of<cfg>(args, tile.seq, tile.sample, first_head);
        head_blocks = count_Q_blocks<cfg>(args);
        end_head = tile.blocks > 0 ? first_head + group : first_head;
        end_block = tile.first_block + tile.blocks;
        if constexpr (cfg.serves) first_row_q = found.seq.first_q, first_row_k = found.seq.first_k;
    }
    __device__ __forceinline__ step_position first() const { return {first_head, tile.first_block}; }
    __device__ __forceinline__ bool has(const step_position &at) const { return at.head < end_head; }
    __device__ __forceinline__ step_position next(const step_position &at) const {
        return at.block + 1 < end_block ? step_position{at.head, at.block + 1}
                                        : step_position{at.head + 1, tile.first_block};
    }
    __device__ __forceinline__ int first_key() const { return tile.KV_block * cfg.B_c; }
    /* The Q block among those of all heads, as the workspace numbers them. */
    __device__ __forceinline__ int64_t number(const step_position &at) const {
        return first_number + (at.head - first_head) * head_blocks + at.block;
    }
    /* With serve: keys of the tile that the queries of the Q block attend to. */
    __device__ __forceinline__ key_band band(const pass_args<cfg> &args, const step_position &at) const {
        return band_of<cfg>(args, tile.seq, at.block, tile.KV_block);
    }
    /* Last key of the tile that the first query of the Q block attends to, counted from the first key of the tile. With
     * the causal mask each query attends to one key more than the query before it. */
    __device__ __forceinline__ int last_key(const pass_args<cfg> &args, const step_position &at) const {
        return (args.causal ? at.block * cfg.B_r + seq_k - seq_q : seq_k - 1) - first_key();
    }
};

/* Copy `rows` rows of d_head elements, of which the first `there` exist: eight threads copy 128 bytes of a row. */
template <backward_config cfg, int rows>
__device__ __forceinline__ void copy_rows(uint32_t block, const uint16_t *gmem, int64_t seq_stride, int there) {
    using shape = mma_shape<cfg>;
    constexpr int at_once = shape::threads / 8;
    const int row = threadIdx.x / 8, chunk = threadIdx.x % 8;
    const uint32_t to = chunk_address<shape::row_bytes>(block, row, chunk);
    const uint16_t *from = gmem + row * seq_stride + 8 * chunk;
#pragma unroll
    for (int first = 0; first < rows; first += at_once, from += at_once * seq_stride)
#pragma unroll
        for (int column = 0; column < cfg.d_head; column += 64)
            cp_async_16_or_zeros(to + first * shape::row_bytes + 2 * column, from + column, first + row < there);
}

/* The B_c keys of K or V. */
template <backward_config cfg>
__device__ __forceinline__ void copy_keys(const tile_steps<cfg> &steps, uint32_t block, const void *gmem,
                                          const tensor_strides &strides) {
    const int64_t first = sample_of<cfg>(steps.tile) * strides.batch + steps.tile.KV_head * strides.head +
                          (steps.first_row_k + steps.first_key()) * strides.seq;
    copy_rows<cfg, cfg.B_c>(block, (const uint16_t *)gmem + first, strides.seq, steps.seq_k - steps.first_key());
}

/* A Q block of Q or dO and a value for each of its rows, in a stage; they arrive at `full`. */
template <backward_config cfg>
__device__ __forceinline__ void copy_block(const tile_steps<cfg> &steps, const step_position &step, uint32_t block,
                                           const void *gmem, const tensor_strides &strides, uint32_t row_values,
                                           const float *values, uint32_t full) {
    const int row = step.block * cfg.B_r;
    const int64_t first =
        sample_of<cfg>(steps.tile) * strides.batch + step.head * strides.head + (steps.first_row_q + row) * strides.seq;
    copy_rows<cfg, cfg.B_r>(block, (const uint16_t *)gmem + first, strides.seq, steps.seq_q - row);
    if (threadIdx.x < cfg.B_r / 4) cp_async_16(row_values + 16 * threadIdx.x, values + 4 * threadIdx.x);
    cp_async_mbarrier_arrive_noinc(full);
}

template <backward_config cfg>
__device__ __forceinline__ void copy_Q(const pass_args<cfg> &args, const mma_smem<cfg> &at,
                                       const tile_steps<cfg> &steps, const step_position &step, int stage) {
    using of = mma_smem<cfg>;
    copy_block<cfg>(steps, step, at.Q + stage * of::Q_bytes, args.Q, args.Q_strides,
                    at.lse + stage * of::row_values_bytes, args.delta + steps.number(step) * 2 * cfg.B_r,
                    at.Q_full + 8 * stage);
}

template <backward_config cfg>
__device__ __forceinline__ void copy_dO(const pass_args<cfg> &args, const mma_smem<cfg> &at,
                                        const tile_steps<cfg> &steps, const step_position &step, int stage) {
    using of = mma_smem<cfg>;
    copy_block<cfg>(steps, step, at.dO + stage * of::Q_bytes, args.dO, args.O_strides,
                    at.delta + stage * of::row_values_bytes, args.delta + steps.number(step) * 2 * cfg.B_r + cfg.B_r,
                    at.dO_full + 8 * stage);
}

#endif
