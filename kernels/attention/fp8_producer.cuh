/* fp8_producer.cuh - the first warpgroup: one warp copies Q, K and V, and three warps transpose V.
 *
 *     bring_blocks<cfg>(args, maps, at);
 */
#ifndef FL_ATTENTION_FP8_PRODUCER_CUH
#define FL_ATTENTION_FP8_PRODUCER_CUH

#include "kernels/attention/fp8_smem.cuh"
#include "kernels/attention/kv.cuh"

/* ---- copies: one thread ---- */

template <fp8_config cfg>
__device__ __forceinline__ void copy_Q(const tensor_maps &maps, const smem_layout<cfg> &at, int turn,
                                       const tile_for<cfg> &here) {
    const Q_origin from = find_Q_origin(here);
    at.Q.wait_until_empty(turn);
    mbarrier_arrive_expect_tx(at.Q.full(turn), smem_layout<cfg>::Q_bytes);
    for (int group = 0; group < cfg.n_warps / 4; group++)
        copy_tensor_to_smem(at.Q.stage(turn) + group * GROUP_ROWS * cfg.d_head, maps.Q, at.Q.full(turn),
                            from.row + group * GROUP_ROWS, here.head, from.sample);
}

template <int stages, int bytes>
__device__ __forceinline__ void copy_block(const ring<stages, bytes> &to, const tensor_map &map, int n,
                                           const KV_position &from) {
    to.wait_until_empty(n);
    mbarrier_arrive_expect_tx(to.full(n), bytes);
    copy_tensor_to_smem(to.stage(n), map, to.full(n), from.row, from.head, from.sample);
}

/* CTA i starts with Q block i and fetches the others. */
template <fp8_config cfg>
__device__ __forceinline__ void produce(const fp8_args &args, const tensor_maps &maps, const smem_layout<cfg> &at) {
    const block_order order = find_order<cfg>(args);
    const int Q_blocks = order.rows * args.heads * args.batch;
    int number = blockIdx.x, n = 0;
#pragma unroll 1
    for (int turn = 0;; turn++) {
        const work_tile here = number < Q_blocks ? find_Q_block<cfg>(args, order, number) : work_tile{-1, 0, 0, 0, 0};
        publish_tile(at.Q_blocks, turn, here);
        if (here.row < 0) break;
        copy_Q<cfg>(maps, at, turn, here);
        const int fetch = max(0, here.KV_blocks - blocks_ahead);
#pragma unroll 1
        for (int i = 0; i < here.KV_blocks; i++, n++) {
            if (i == fetch) number = fetch_tile_number(args, Q_blocks);
            const KV_position from = find_KV_block<cfg.B_c>(here, here.KV_blocks - 1 - i);
            copy_block(at.K, maps.K, n, from);
            copy_block(at.V, maps.V, n, from);
        }
    }
}

/* Produce for varlen batches, whose lengths only the device knows: a warp finds the Q blocks, and its first lane
 * copies. The CTA that fetches the last number has walked through all sequences. */
template <fp8_config cfg>
__device__ __forceinline__ void produce_for_sequences(const serving_args &args, const tensor_maps &maps,
                                                      const smem_layout<cfg> &at) {
    sequence_walk<cfg> walk{args};
    int fetched = -1, n = 0;
    walk.read(0);
#pragma unroll 1
    for (int turn = 0;; turn++) {
        const int number = turn > 0 ? gridDim.x + fetched : blockIdx.x, found = walk.find(number);
        if (found < 0) {
            const bool last = fetched >= 0 && fetched == walk.all_blocks() - 1;
            if (walk.lane == 0 && last) atomicExch(args.tickets, 0);
            if (walk.lane == 0) publish_tile(at.Q_blocks, turn, varlen_tile{{-1}});
            break;
        }
        const int begin = __shfl_sync(0xffffffff, walk.begin, found);
        const varlen_tile here = find_Q_block<cfg>(args, walk.first + found, number - begin);
        if (walk.lane == 0) {
            publish_tile(at.Q_blocks, turn, here);
            copy_Q<cfg>(maps, at, turn, here);
            const int fetch = max(0, here.KV_blocks - blocks_ahead);
#pragma unroll 1
            for (int i = 0; i < here.KV_blocks; i++, n++) {
                if (i == fetch) fetched = atomicAdd(args.tickets, 1);
                const KV_position from = find_KV_block<cfg.B_c>(here, here.KV_blocks - 1 - i);
                copy_block(at.K, maps.K, n, from);
                copy_block(at.V, maps.V, n, from);
            }
        }
        fetched = __shfl_sync(0xffffffff, fetched, 0);
    }
}

/* ---- transposition: three warps ---- */

/* Byte mask of the lane's keys 2q, 2q + 1, 8 + 2q, 9 + 2q that come before `end`. */
__device__ __forceinline__ uint32_t bytes_before(int end) {
    const int own = threadIdx.x % 4 * 2;
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++)
        if (own + i / 2 * 8 + i % 2 < end) bits |= 0xffu << 8 * i;
    return bits;
}

/* Transpose 16 keys and 32 columns; if the block is `cut`, only its first `seen` keys, while others become 0. Lanes
 * provide the addresses of keys 0-7 and 8-15 of 16 columns, then of the next 16 columns; then those of 32 rows of
 * transposed V, 16 bytes each. */
template <fp8_config cfg, bool cut>
__device__ __forceinline__ void transpose_unit(uint32_t V, uint32_t Vt, uint32_t keys, uint32_t columns, int seen) {
    const uint32_t lane = threadIdx.x % 32, key = 16 * keys + lane % 16, row = 32 * columns + lane;
    uint32_t from[4], to[4];
    ldmatrix_x4_trans(from, V + chunk_of<cfg, cfg.B_c>(key, 2 * columns + lane / 16));
    for (int i = 0; i < 4; i++) to[i] = __byte_perm(from[i / 2 * 2], from[i / 2 * 2 + 1], i % 2 ? 0x7531 : 0x6420);
    if (cut && (int)(16 * keys + 16) > seen)
        for (int i = 0; i < 4; i++) to[i] &= bytes_before(seen - (int)(16 * keys));
    stmatrix_x4(Vt + row * smem_layout<cfg>::Vt_row_bytes + swizzled<smem_layout<cfg>::Vt_row_bytes>(row, keys) * 16,
                to);
}

template <fp8_config cfg, bool cut>
__device__ __forceinline__ void transpose_block(uint32_t V, uint32_t Vt, int warp, int seen) {
    constexpr uint32_t column_units = cfg.d_head / 32;
#pragma unroll 4
    for (uint32_t unit = warp; unit < cfg.B_c / 16 * column_units; unit += TRANSPOSERS)
        transpose_unit<cfg, cut>(V, Vt, unit / column_units, unit % column_units, seen);
}

template <fp8_config cfg>
__device__ __forceinline__ void transpose(const smem_layout<cfg> &at, int warp) {
    int n = 0;
#pragma unroll 1
    for (int turn = 0;; turn++) {
        const tile_for<cfg> here = take_Q_block(at, turn);
        if (here.row < 0) break;
        const int end = n + here.KV_blocks;
        int seen = cfg.B_c; /* keys of the sequence in a block: the first may have fewer */
        if constexpr (cfg.serves) seen = here.seq.seq_k - (here.KV_blocks - 1) * cfg.B_c;
#pragma unroll 1
        for (; n < end; n++) {
            const uint32_t V = at.V.stage(n), Vt = at.Vt.stage(n);
            at.V.wait_until_full(n);
            at.Vt.wait_until_empty(n);
            if (seen < cfg.B_c)
                transpose_block<cfg, true>(V, Vt, warp, seen);
            else
                transpose_block<cfg, false>(V, Vt, warp, seen);
            fence_proxy_async(); /* make this thread's stores visible to wgmma */
            arrive_as_warp(at.Vt.full(n));
            arrive_as_warp(at.V.empty(n));
            seen = cfg.B_c;
        }
    }
}

template <fp8_config cfg>
__device__ __forceinline__ void bring_blocks(const args_for<cfg> &args, const tensor_maps &maps,
                                             const smem_layout<cfg> &at) {
    const int warp = warp_uniform(threadIdx.x / 32);
    if (warp > 0)
        transpose<cfg>(at, warp - 1);
    else if constexpr (cfg.serves)
        produce_for_sequences<cfg>(args, maps, at);
    else if (threadIdx.x == 0)
        produce<cfg>(args, maps, at);
}

#endif
