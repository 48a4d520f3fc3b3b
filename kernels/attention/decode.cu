/* attention/decode - Hopper: few queries, many keys, which all CTAs share out
 *
 * config    (FP16, 128, 16, 64, 4): mma_sync+tensor+stages_3
 * others    (FP16, 64, 16, 128, 4): mma_sync+tensor+stages_3
 * serving   (FP16, 128, 16, 64, 4): mma_sync+tensor+stages_3+serve;
 *           (FP16, 128, 32, 64, 4): mma_sync+tensor+stages_3+serve;
 *           (FP16, 128, 64, 64, 4): wgmma+tensor+stages_4+serve;
 *           (FP16, 128, 128, 64, 8): wgmma+tensor+stages_4+serve;
 *           (FP16, 64, 16, 128, 4): mma_sync+tensor+stages_3+serve;
 *           (FP16, 64, 32, 128, 4): mma_sync+tensor+stages_3+serve;
 *           (FP16, 64, 64, 128, 4): wgmma+tensor+stages_6+serve;
 *           (FP16, 64, 128, 128, 8): wgmma+tensor+stages_6+serve;
 *           (FP16, 128, 16, 128, 4): mma_sync+tensor+stages_3+serve+e4m3;
 *           (FP16, 128, 64, 128, 8): mma_sync+tensor+stages_3+serve+e4m3;
 *           (FP16, 128, 16, 128, 4): mma_sync+tensor+stages_3+serve+e4m3+ragged;
 *           (FP16, 128, 64, 128, 8): mma_sync+tensor+stages_3+serve+e4m3+ragged;
 *           (FP16, 128, 16, 128, 4): mma_sync+tensor+stages_3+serve+int8;
 *           (FP16, 128, 16, 128, 4): mma_sync+tensor+stages_3+serve+ragged+int8
 * arch      sm_90a
 */
#include "common/abi.h"
#include "common/decode_config.h"
#include "common/ptx_cache.cuh"
#include "common/serving.h"
#include "kernels/attention/decode_consumer.cuh"
#include "kernels/attention/decode_smem.cuh"
#include "kernels/attention/ragged.cuh"

/* Each key and value is read once, so the kernel takes as long as memory does: copies of K and V must be in flight all
 * the time on all SMs. The rows of a block are the queries of all heads that share a KV head (shares.cuh), so that one
 * read serves all of them. The KV blocks of a KV head are split evenly among its CTAs.
 *
 * A CTA processes its range in pieces, each of KV blocks of one row block. One warp copies: it publishes each piece
 * with its rows of Q, and keeps a ring of KV blocks full across pieces. The other warps compute (decode_consumer.cuh).
 *
 * From 64 rows on, mma.sync would be slower than memory. A warpgroup then has 64 rows of all keys and multiplies them
 * by wgmma, which reads K and V from shared memory itself. As in attention/wgmma, S of a block is computed while O of
 * the block before is. Nothing has to be added up at the end of a piece. wgmma needs groups of 8 rows at equal
 * distances, while a box holds two groups in 2 KB or 4 KB. One S therefore covers the first eight keys of all boxes,
 * and a second S the other eight (ptx_wgmma_boxes.cuh).
 */

/* ---- shape ---- */

template <decode_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.d_head == 64 || cfg.d_head == 128, "d_head must be 64 or 128");
    static_assert(cfg.instruction == WGMMA || cfg.B_r == 16 || cfg.B_r == 32 || cfg.B_r == 64,
                  "B_r must be 16, 32 or 64: a warp has one mma's rows");
    static_assert(cfg.instruction != WGMMA || ((cfg.B_r == 64 || cfg.B_r == 128) && cfg.B_r == 16 * cfg.n_warps),
                  "B_r must be 64 or 128 with wgmma, and 16 * n_warps: a warpgroup has 64 rows of all keys");
    static_assert(cfg.instruction != WGMMA || cfg.B_c * cfg.d_head == 8192,
                  "B_c must be 8192 / d_head with wgmma: the numbers of keys that ptx_wgmma_boxes.cuh has");
    static_assert(cfg.instruction != WGMMA || (cfg.serves && !cfg.e4m3_cache && !cfg.int8_cache),
                  "serve must be on, e4m3 and int8 off with wgmma: boxes of 16 keys of 16 bits");
    static_assert(cfg.tensor_copies, "tensor must be on: attention/decode_mma_sync copies by cp.async");
    static_assert(cfg.n_warps >= 1 && cfg.n_warps <= 8, "n_warps must be from 1 to 8");
    static_assert(16 * cfg.n_warps % cfg.B_r == 0, "n_warps must be a multiple of B_r / 16: all rows of all keys");
    static_assert(cfg.B_c * cfg.B_r % (256 * cfg.n_warps) == 0, "B_c must be a multiple of 16 keys for each key group");
    static_assert(cfg.instruction == WGMMA || cfg.B_c * cfg.B_r <= 1024 * cfg.n_warps,
                  "B_c must be at most 64 keys for each warp: S is in registers");
    static_assert(cfg.stages >= 2, "stages must be at least 2: one block is copied while another is read");
    static_assert(!cfg.serves || cfg.B_c == 64 || cfg.B_c == 128,
                  "B_c must be a power of two with serve, as pages are");
    static_assert(
        !cfg.e4m3_cache || (cfg.serves && cfg.d_head == 128),
        "e4m3 must be off without serve, which has the scales, and unless d_head is 128: a row has 128 bytes");
    static_assert(!cfg.int8_cache || (cfg.serves && cfg.d_head == 128 && !cfg.e4m3_cache),
                  "int8 must be off with e4m3, without serve, which has the scales, and unless d_head is 128: a row "
                  "has 128 bytes");
    static_assert(!cfg.ragged_queries || cfg.e4m3_cache || cfg.int8_cache,
                  "ragged must be off without e4m3 and int8: attention/wgmma has others");
}

/* ---- the copying warp ---- */

template <decode_config cfg>
struct copier {
    const attention_args &args;
    const tensor_maps &maps;
    const smem_layout<cfg> &at;
    line_of<cfg> &line;
    const int lane = threadIdx.x % 32;
    const uint64_t policy = evict_first();

    /* Publish piece number `turn` and copy its rows of Q, one per lane, once all warps have finished the piece before
     * the last. Rows past the last query lie outside the map: they become zeros. */
    __device__ __forceinline__ void post(int turn, const piece &next) const {
        const uint32_t full = at.Q.full(turn);
        at.Q.wait_until_empty(turn);
        if (lane == 0) {
            post_piece(at.piece(turn), next);
            mbarrier_arrive_expect_tx(full, next.row < 0 ? 0 : Q_bytes<cfg>);
        }
        __syncwarp(); /* no byte comes before it is expected */
        if (next.row < 0) return;
        const int group = heads_in_group(args);
#pragma unroll
        for (int i = lane; i < cfg.B_r; i += 32) {
            const int row = next.row + i;
            if constexpr (cfg.ragged_queries)
                copy_tensor_to_smem(at.Q.stage(turn) + i * row_bytes<cfg>, maps.Q, full, line.row_of(row / group),
                                    line.head * group + row % group, line.sample_of(row / group));
            else
                copy_tensor_to_smem(at.Q.stage(turn) + i * row_bytes<cfg>, maps.Q, full, row / group,
                                    line.head * group + row % group, next.sample);
        }
    }

    /* Copy KV block number n of the CTA: a lane copies a box of K and of V, if there are keys for its warp. */
    __device__ __forceinline__ void copy_block(int n, int block, int sample) {
        constexpr int warp_boxes = warp_keys<cfg> / box_keys<cfg>;
        const uint32_t full = at.KV.full(n);
        const int key = block * cfg.B_c + lane * box_keys<cfg>;
        const int warps = (line.keys() - block * cfg.B_c + warp_keys<cfg> - 1) / warp_keys<cfg>;
        const int filled = min(key_groups<cfg>, warps) * warp_boxes;
        const box_position from = line.find_box(block * cfg.B_c, key, sample);
        at.KV.wait_until_empty(n);
        if (lane == 0) mbarrier_arrive_expect_tx(full, filled * 2 * box_bytes<cfg>);
        __syncwarp(); /* no byte comes before it is expected */
        if (lane >= filled) return;
        copy_tensor_to_smem(at.K_box(n, lane), maps.K, full, from.row, from.head, from.sample, policy);
        copy_tensor_to_smem(at.V_box(n, lane), maps.V, full, from.row, from.head, from.sample, policy);
    }

    /* The CTA's range begins at `from`. */
    __device__ __forceinline__ void copy_all(int64_t from) {
        int turn = 0, copied = 0;
        piece next;
        for (const int64_t end = line.end(); from < end; from += next.blocks, turn++) {
            next = line.piece_at(from, end);
            post(turn, next);
#pragma unroll 1
            for (int block = next.block; block < next.block + next.blocks; block++, copied++) {
                copy_block(copied, block, next.sample);
                __syncwarp();
            }
        }
        post(turn, {-1, 0, 0, 0, 0, 0});
    }
};

/* ---- the kernel ---- */

template <decode_config cfg>
__device__ __forceinline__ void attend(const auto &args, const tensor_maps &maps) {
    check_config<cfg>();
    const smem_layout<cfg> at = find_layout<cfg>();
    auto line = make_line<cfg>(args);
    if (threadIdx.x == 0) prefetch_tensor_map(maps.Q), prefetch_tensor_map(maps.K), prefetch_tensor_map(maps.V);
    const int64_t from = threadIdx.x < 32 ? line.begin() : 0;
    init_mbarriers<cfg>(at);
    if (threadIdx.x < 32 * copy_warps<cfg>) {
        if constexpr (gives_registers<cfg>) setmaxnreg_dec<56>();
        if (threadIdx.x < 32) copier<cfg>{args, maps, at, line}.copy_all(from);
    } else {
        if constexpr (gives_registers<cfg>) setmaxnreg_inc<224>();
        Q_fragments<cfg> Q;
        O_tiles<cfg> O;
        row_values m, l, scale, scales;
        consumer<cfg>{args, at, line, Q, O, m, l, scale, scales}.attend();
    }
}

template <decode_config cfg>
__global__ void __launch_bounds__(32 * (cfg.n_warps + copy_warps<cfg>), 1)
    flash_forward(const __grid_constant__ attention_args args, const __grid_constant__ tensor_maps maps) {
    attend<cfg>(args, maps);
}
template <decode_config cfg>
__global__ void __launch_bounds__(32 * (cfg.n_warps + copy_warps<cfg>), 1)
    flash_forward(const __grid_constant__ serving_args args, const __grid_constant__ tensor_maps maps) {
    attend<cfg>(args, maps);
}

#include "instances.cuh"
