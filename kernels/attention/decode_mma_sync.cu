/* attention/decode_mma_sync - Ampere and newer: attention/decode with cp.async
 *
 * config    (FP16, 128, 16, 64, 4): mma_sync+stages_3+cp_async
 * others    (FP16, 64, 16, 128, 4): mma_sync+stages_3+cp_async
 * smaller   (FP16, 128, 16, 64, 2): mma_sync+stages_2+cp_async;
 *           (FP16, 64, 16, 128, 2): mma_sync+stages_2+cp_async
 * serving   (FP16, 128, 16, 64, 4): mma_sync+stages_3+serve+cp_async;
 *           (FP16, 128, 32, 64, 4): mma_sync+stages_3+serve+cp_async;
 *           (FP16, 64, 16, 128, 4): mma_sync+stages_3+serve+cp_async;
 *           (FP16, 64, 32, 128, 4): mma_sync+stages_3+serve+cp_async;
 *           (FP16, 128, 16, 64, 2): mma_sync+stages_2+serve+cp_async;
 *           (FP16, 64, 16, 128, 2): mma_sync+stages_2+serve+cp_async;
 *           (FP16, 128, 16, 128, 4): mma_sync+stages_3+serve+e4m3+cp_async;
 *           (FP16, 128, 16, 128, 4): mma_sync+stages_3+serve+e4m3+ragged+cp_async;
 *           (FP16, 128, 16, 128, 2): mma_sync+stages_2+serve+e4m3+cp_async;
 *           (FP16, 128, 16, 128, 2): mma_sync+stages_2+serve+e4m3+ragged+cp_async;
 *           (FP16, 128, 16, 128, 4): mma_sync+stages_3+serve+cp_async+int8;
 *           (FP16, 128, 16, 128, 4): mma_sync+stages_3+serve+ragged+cp_async+int8;
 *           (FP16, 128, 16, 128, 2): mma_sync+stages_2+serve+cp_async+int8;
 *           (FP16, 128, 16, 128, 2): mma_sync+stages_2+serve+ragged+cp_async+int8
 * arch      sm_80
 */
#include "common/abi.h"
#include "common/decode_config.h"
#include "common/serving.h"
#include "kernels/attention/decode_consumer.cuh"
#include "kernels/attention/decode_smem.cuh"
#include "kernels/attention/ragged.cuh"

/* As attention/decode, but GPUs before Hopper have no TMA. Four warps copy, each thread 16 bytes at a time, to the
 * addresses where TMA would put them, so that the computing warps are the same. Each copying warp walks along the
 * sequences by itself and copies a quarter of the keys of each KV block; the first one also publishes the pieces.
 */

/* ---- shape ---- */

template <decode_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.cp_async, "cp_async must be on: attention/decode copies by TMA");
    static_assert(cfg.instruction == MMA_SYNC, "wgmma must be off: it is for Hopper");
    static_assert(cfg.d_head == 64 || cfg.d_head == 128, "d_head must be 64 or 128");
    static_assert(cfg.B_r == 16 || cfg.B_r == 32 || cfg.B_r == 64,
                  "B_r must be 16, 32 or 64: a warp has one mma's rows");
    static_assert(cfg.n_warps >= 1 && cfg.n_warps <= 8, "n_warps must be from 1 to 8");
    static_assert(16 * cfg.n_warps % cfg.B_r == 0, "n_warps must be a multiple of B_r / 16: all rows of all keys");
    static_assert(cfg.B_c * cfg.B_r % (256 * cfg.n_warps) == 0, "B_c must be a multiple of 16 keys for each key group");
    static_assert(cfg.B_c * cfg.B_r <= 1024 * cfg.n_warps,
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
                  "ragged must be off without e4m3 and int8: attention/mma_sync has others");
}

/* ---- the copying warps ---- */

template <decode_config cfg>
struct copier {
    static constexpr int KV_chunks = cfg.d_head * element_bytes<cfg> / 16;         /* 16 bytes of a row */
    static constexpr int Q_chunks = cfg.d_head / 8, rows_at_once = 32 / KV_chunks; /* of a warp */
    static constexpr int strip_keys = DECODE_PAGE_KEYS; /* keys of a box, or of a page, that a warp copies together */

    const attention_args &args;
    const smem_layout<cfg> &at;
    line_of<cfg> &line;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = heads_in_group(args);

    /* A query of the piece's sequence: its row and sample in the tensor. The sample is -1 past the last query. */
    struct query_position {
        int row, sample;
    };
    __device__ __forceinline__ query_position find_query(int query, const piece &of) const {
        if constexpr (cfg.ragged_queries)
            return {line.row_of(query), line.sample_of(query)};
        else
            return {query, query < args.seq_q ? of.sample : -1};
    }

    __device__ __forceinline__ void copy_Q(uint32_t Q_smem, const piece &of) const {
        for (int i = lane; i < cfg.B_r * Q_chunks; i += 32) {
            const int row = i / Q_chunks, chunk = i % Q_chunks, tile_row = row * (cfg.d_head / 64) + chunk / 8;
            const query_position from = find_query((of.row + row) / group, of);
            const int64_t head = line.head * group + (of.row + row) % group;
            const int64_t offset =
                from.sample * args.Q_strides.batch + head * args.Q_strides.head + from.row * args.Q_strides.seq;
            const bool exists = from.sample >= 0;
            cp_async_16_or_zeros(Q_smem + tile_row * tile_row_bytes + (chunk % 8 ^ tile_row % 8) * 16,
                                 (const uint16_t *)args.Q + (exists ? offset + 8 * chunk : 0), exists);
        }
    }

    /* Publish piece number `turn` and copy its rows of Q, once all warps have finished the piece before the last. */
    __device__ __forceinline__ void post(int turn, const piece &next) const {
        if (warp > 0) return;
        const uint32_t full = at.Q.full(turn);
        at.Q.wait_until_empty(turn);
        if (lane == 0) post_piece(at.piece(turn), next);
        if (next.row >= 0) copy_Q(at.Q.stage(turn), next);
        cp_async_mbarrier_arrive_noinc(full);
        if (lane == 0) mbarrier_arrive(full); /* for the piece, which no copy brings */
    }

    /* True if there is such a batch entry, or page. */
    __device__ __forceinline__ bool has(int sample) const {
        if constexpr (cfg.serves)
            if (line.args.pages) return (unsigned)sample < (unsigned)line.args.n_pages;
        return sample >= 0;
    }

    /* Copy this warp's strips of KV block number n of the CTA, each of 16 keys in one box, if there are any for the
     * warp that reads them. Keys past the end become zeros. */
    __device__ __forceinline__ void copy_block(int n, int block, int sample) {
        constexpr int strips = cfg.B_c / strip_keys / copy_warps<cfg>;
        const int first_key = block * cfg.B_c, left = line.keys() - first_key;
        const int readers = (left + warp_keys<cfg> - 1) / warp_keys<cfg>;
        const int filled = min(key_groups<cfg>, readers) * warp_keys<cfg>;
        box_position from[strips];
        for (int i = 0; i < strips; i++) {
            const int key = (warp * strips + i) * strip_keys;
            from[i] = line.find_box(first_key, first_key + key, sample);
        }
        at.KV.wait_until_empty(n);
        for (int i = 0; i < strips; i++) {
            const int key = (warp * strips + i) * strip_keys;
            if (key < filled) copy_strip(at.K_box(n, 0), from[i], key, has(from[i].sample) ? left - key : 0);
        }
        cp_async_mbarrier_arrive_noinc(at.KV.full(n));
    }
    /* A lane copies the same chunk of every rows_at_once-th row: its addresses differ by constants. */
    __device__ __forceinline__ void copy_strip(uint32_t boxes_smem, const box_position &from, int key,
                                               int there) const {
        const int row = lane / KV_chunks, chunk = lane % KV_chunks;
        const uint32_t first = consumer<cfg>::box_address(boxes_smem, key + row, chunk);
        const auto row_gmem = [&](const void *tensor, const tensor_strides &strides) {
            const int64_t offset =
                from.sample * strides.batch + line.head * strides.head + (from.row + row) * strides.seq;
            return (const char *)tensor + offset * element_bytes<cfg> + 16 * chunk;
        };
        const char *K = row_gmem(args.K, args.K_strides), *V = row_gmem(args.V, args.V_strides);
        const int64_t K_step = rows_at_once * args.K_strides.seq * element_bytes<cfg>;
        const int64_t V_step = rows_at_once * args.V_strides.seq * element_bytes<cfg>;
#pragma unroll
        for (int i = 0; i < strip_keys; i += rows_at_once, K += K_step, V += V_step) {
            const uint32_t smem_addr = (first ^ i % 8 * 16) + i * tile_row_bytes;
            const bool exists = row + i < there;
            cp_async_16_or_zeros(smem_addr, K, exists);
            cp_async_16_or_zeros(smem_addr + boxes<cfg> * box_bytes<cfg>, V, exists);
        }
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
        cp_async_commit_group();
        cp_async_wait_group<0>(); /* a thread that has ended has no copies under way */
    }
};

/* ---- the kernel ---- */

template <decode_config cfg>
__device__ __forceinline__ void attend(const auto &args) {
    check_config<cfg>();
    const smem_layout<cfg> at = find_layout<cfg>();
    auto line = make_line<cfg>(args);
    const bool copies = warp_uniform(threadIdx.x / 32) < copy_warps<cfg>;
    const int64_t from = copies ? line.begin() : 0;
    init_mbarriers<cfg>(at);
    if (copies) {
        copier<cfg>{args, at, line}.copy_all(from);
    } else {
        Q_fragments<cfg> Q;
        O_tiles<cfg> O;
        row_values m, l, scale, scales;
        consumer<cfg>{args, at, line, Q, O, m, l, scale, scales}.attend();
    }
}

template <decode_config cfg>
__global__ void __launch_bounds__(32 * (cfg.n_warps + copy_warps<cfg>), 1)
    flash_forward(const __grid_constant__ attention_args args) {
    attend<cfg>(args);
}
template <decode_config cfg>
__global__ void __launch_bounds__(32 * (cfg.n_warps + copy_warps<cfg>), 1)
    flash_forward(const __grid_constant__ serving_args args) {
    attend<cfg>(args);
}

#include "instances.cuh"
