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
 *           (FP16, 128, 64, 128, 8): mma_sync+tensor+stages_3+serve+e4m3+ragged
 * arch      sm_90a
 */
#include "common/abi.h"
#include "common/decode_config.h"
#include "common/ptx_cache.cuh"
#include "common/ptx_fp8.cuh"
#include "common/ptx_wgmma_boxes.cuh"
#include "common/serving.h"
#include "kernels/attention/fragments.cuh"
#include "kernels/attention/heads.cuh"
#include "kernels/attention/mask.cuh"
#include "kernels/attention/parts.cuh"
#include "kernels/attention/ragged.cuh"
#include "kernels/attention/ring.cuh"
#include "kernels/attention/shares.cuh"
#include "kernels/attention/softmax.cuh"

/* Each key and value is read once, so the kernel takes as long as memory does: copies of K and V must be in flight all
 * the time on all SMs. The rows of a block are the queries of all heads that share a KV head (shares.cuh), so that one
 * read serves all of them. The KV blocks of a KV head are split evenly among its CTAs.
 *
 * A CTA processes its range in pieces, each of KV blocks of one row block. One warp copies: it publishes each piece
 * with its rows of Q, and keeps a ring of KV blocks full across pieces. The other warps compute. Each has all rows, and
 * the keys of one TMA box of each KV block, so that no two warps read the same K and V. At the end of a piece they add
 * up their O and l, scaled to the largest of their m. If this is only a partial result, it goes to the workspace, and
 * the last CTA that stores one for a row block combines them in the order of the keys (parts.cuh).
 *
 * From 64 rows on, mma.sync would be slower than memory. A warpgroup then has 64 rows of all keys and multiplies them
 * by wgmma, which reads K and V from shared memory itself. As in attention/wgmma, S of a block is computed while O of
 * the block before is. Nothing has to be added up at the end of a piece. wgmma needs groups of 8 rows at equal
 * distances, while a box holds two groups in 2 KB or 4 KB. One S therefore covers the first eight keys of all boxes,
 * and a second S the other eight (ptx_wgmma_boxes.cuh).
 *
 * K and V in e4m3 are copied as bytes and converted to 16 bits, without rounding, before mma: half the bytes take half
 * the time. ldmatrix gives a lane four neighboring columns of 16 of K, so Q is read in that order. ldmatrix.trans moves
 * pairs of columns of V, so the even ones of 16 columns of O form one tile and the odd ones the next, and a lane's four
 * are neighbors.
 *
 * Shared memory: a ring of KV blocks, each a box of K for each warp, then a box of V for each. A box is tiles of 64
 * columns one after the other, rows of 128 bytes, their 16-byte chunks swizzled (ptx_sm90a.cuh). Then two buffers of Q,
 * rows of d_head elements, the warps' sums, mbarriers, and two slots of pieces.
 */

/* ---- shape ---- */

template <decode_config cfg>
constexpr bool by_wgmma = cfg.instruction == WGMMA;

/* Warps with the same 16 rows of the row block divide its keys; warps with the same keys have other rows. */
template <decode_config cfg>
constexpr int row_groups = cfg.B_r / 16;
template <decode_config cfg>
constexpr int key_groups = cfg.n_warps / row_groups<cfg>;

template <decode_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.d_head == 64 || cfg.d_head == 128, "d_head must be 64 or 128");
    static_assert(cfg.instruction == WGMMA || cfg.B_r == 16 || cfg.B_r == 32 || cfg.B_r == 64,
                  "B_r must be 16, 32 or 64: a warp has one mma's rows");
    static_assert(cfg.instruction != WGMMA || ((cfg.B_r == 64 || cfg.B_r == 128) && cfg.B_r == 16 * cfg.n_warps),
                  "B_r must be 64 or 128 with wgmma, and 16 * n_warps: a warpgroup has 64 rows of all keys");
    static_assert(cfg.instruction != WGMMA || cfg.B_c * cfg.d_head == 8192,
                  "B_c must be 8192 / d_head with wgmma: the numbers of keys that ptx_wgmma_boxes.cuh has");
    static_assert(cfg.instruction != WGMMA || (cfg.serves && !cfg.e4m3_cache),
                  "serve must be on and e4m3 off with wgmma: boxes of 16 keys of 16 bits");
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
    static_assert(!cfg.ragged_queries || cfg.e4m3_cache, "ragged must be off without e4m3: attention/wgmma has others");
}

/* One warp copies. With 8 computing warps it is padded to a warpgroup of which three warps idle, because only a
 * warpgroup can give registers away. Warpgroups of wgmma also need the padding, because they begin at multiples of four
 * warps. */
template <decode_config cfg>
constexpr bool gives_registers = cfg.n_warps == 8;
template <decode_config cfg>
constexpr int copy_warps = gives_registers<cfg> || by_wgmma<cfg> ? 4 : 1;

/* Keys of a warp in a KV block, and numbers of 16x16 operand blocks along them and along d_head. */
template <decode_config cfg>
constexpr int warp_keys = cfg.B_c / key_groups<cfg>;
template <decode_config cfg>
constexpr int key_steps = warp_keys<cfg> / 16;
template <decode_config cfg>
constexpr int d_steps = cfg.d_head / 16;

/* Keys of one TMA copy. The smallest page holds them. */
template <decode_config cfg>
constexpr int box_keys = cfg.serves ? DECODE_PAGE_KEYS : warp_keys<cfg>;
template <decode_config cfg>
constexpr int boxes = cfg.B_c / box_keys<cfg>;

/* Registers of a warp's 16 rows (fragments.cuh). */
template <decode_config cfg>
using S_tiles = float[2 * key_steps<cfg>][4];
template <decode_config cfg>
using O_tiles = float[2 * d_steps<cfg>][4];
template <decode_config cfg>
using Q_fragments = uint32_t[d_steps<cfg>][4];

/* Columns of a row that a lane has where a warp has the row. */
template <decode_config cfg>
constexpr int lane_columns = cfg.d_head / 32;

/* ---- shared memory ---- */

constexpr int tile_row_bytes = 128;
template <decode_config cfg>
constexpr int row_bytes = cfg.d_head * 2; /* of Q */
template <decode_config cfg>
constexpr int box_bytes = box_keys<cfg> * cfg.d_head * (cfg.e4m3_cache ? 1 : 2);
template <decode_config cfg>
constexpr int KV_bytes = 2 * boxes<cfg> * box_bytes<cfg>;
template <decode_config cfg>
constexpr int Q_bytes = cfg.B_r * row_bytes<cfg>;

/* Floats of a row of a warp's O in shared memory; the padding keeps the rows of a quad of lanes in different banks. */
template <decode_config cfg>
constexpr int sum_row = cfg.d_head + 8;

/* Sums that the key groups combine at the end of a piece; empty if there is one group. */
template <decode_config cfg>
struct warp_sums {
    float O[key_groups<cfg>][cfg.B_r][sum_row<cfg>];
    float m[key_groups<cfg>][cfg.B_r], l[key_groups<cfg>][cfg.B_r];
};

template <decode_config cfg>
struct smem_layout {
    ring<cfg.stages, KV_bytes<cfg>> KV;
    ring<2, Q_bytes<cfg>> Q;
    uint32_t pieces, arrived;
    warp_sums<cfg> *sums;

    __device__ __forceinline__ uint32_t K_box(int n, int box) const { return KV.stage(n) + box * box_bytes<cfg>; }
    __device__ __forceinline__ uint32_t V_box(int n, int box) const { return K_box(n, boxes<cfg> + box); }
    __device__ __forceinline__ uint32_t piece(int turn) const { return pieces + turn % 2 * piece_bytes; }
};

template <decode_config cfg>
__device__ __forceinline__ smem_layout<cfg> find_layout() {
    extern __shared__ __align__(1024) unsigned char smem[];
    constexpr int sums = cfg.stages * KV_bytes<cfg> + 2 * Q_bytes<cfg>;
    constexpr int sum_bytes = by_wgmma<cfg> ? 0 : sizeof(warp_sums<cfg>);
    smem_layout<cfg> at;
    at.KV.first_stage = __cvta_generic_to_shared(smem);
    at.Q.first_stage = at.KV.first_stage + cfg.stages * KV_bytes<cfg>;
    at.sums = (warp_sums<cfg> *)(smem + sums);
    at.pieces = at.KV.first_stage + sums + sum_bytes;
    at.KV.first_full = at.pieces + 2 * piece_bytes;
    at.KV.first_empty = at.KV.first_full + 8 * cfg.stages;
    at.Q.first_full = at.KV.first_empty + 8 * cfg.stages;
    at.Q.first_empty = at.Q.first_full + 2 * 8;
    at.arrived = at.Q.first_empty + 2 * 8;
    return at;
}

/* One lane of the copying warp arrives at the full mbarriers, each of the other warps at the empty ones. */
template <decode_config cfg>
__device__ __forceinline__ void init_mbarriers(const smem_layout<cfg> &at) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < cfg.stages; stage++) at.KV.init(stage, cfg.n_warps);
        for (int slot = 0; slot < 2; slot++) at.Q.init(slot, cfg.n_warps);
        fence_mbarrier_init();
    }
    __syncthreads();
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

    __device__ __forceinline__ void copy_all() {
        int turn = 0, copied = 0;
        piece next;
        for (int64_t from = line.begin(), end = line.end(); from < end; from += next.blocks, turn++) {
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

/* ---- the other warps ---- */

/* m may lag behind the largest score, as long as exponentials are at most 2^8: it cancels out in O / l. */
constexpr float most_lag = 8;

/* Scale of the elements of K or V of a KV head. */
template <decode_config cfg>
__device__ __forceinline__ float scale_of(const attention_args &args, const float *serving_args::*scales, int head) {
    const float *const of_heads = static_cast<const serving_args &>(args).*scales;
    return of_heads ? of_heads[head] : 1;
}

/* P and V are fp16 if V is e4m3, because fp16 represents every e4m3 value. */
template <decode_config cfg>
constexpr dtype P_type = cfg.e4m3_cache ? FP16 : cfg.dtype;

/* The lower two bytes as 16-bit elements. */
template <enum dtype type>
__device__ __forceinline__ uint32_t widen_pair(uint32_t bytes) {
    return type == FP16 ? cvt_f16x2_e4m3x2(bytes) : cvt_bf16x2_e4m3x2(bytes);
}

/* Arrays that live in registers are variables of their own, to which the struct refers (wgmma.cu). */
template <decode_config cfg>
struct consumer {
    const attention_args &args;
    const smem_layout<cfg> &at;
    const line_of<cfg> &line;
    Q_fragments<cfg> &Q;
    O_tiles<cfg> &O;
    row_values &m, &l, &scales; /* scales: of the scores of each row (softmax.cuh) */

    const int warp = threadIdx.x / 32 - copy_warps<cfg>, lane = threadIdx.x % 32;
    const int key_group = warp / row_groups<cfg>, first_row = warp % row_groups<cfg> * 16;
    const int group = heads_in_group(args), all_rows = args.seq_q * group;
    const float scale = scale_of_scores(); /* exponentials have base 2: log2(e) */
    piece own;
    query_rows own_queries; /* of the piece's sequence, if lengths differ */

    __device__ __forceinline__ query_rows queries() const {
        if constexpr (cfg.ragged_queries) return own_queries;
        return {0, args.seq_q, own.sample, args.seq_q};
    }

    __device__ __forceinline__ float scale_of_scores() const {
        const float scale = 1.44269504f * args.softmax_scale;
        if constexpr (cfg.e4m3_cache) return scale * scale_of<cfg>(args, &serving_args::K_scales, line.head);
        return scale;
    }

    /* ---- operands: ldmatrix names a row of 8 columns with each lane ---- */

    /* The rows of a Q block are tiles of 64 columns next to each other; the swizzle counts their 128 bytes. */
    __device__ __forceinline__ void load_Q(uint32_t Q_smem) {
        for (int k = 0; k < d_steps<cfg>; k++) {
            const int tile_row = (first_row + lane % 16) * (cfg.d_head / 64) + k / 4, chunk = k % 4 * 2 + lane / 16;
            ldmatrix_x4(Q[k], Q_smem + tile_row * tile_row_bytes + (chunk ^ tile_row % 8) * 16);
        }
    }
    /* The lane has four neighboring columns of 16, as with K. */
    __device__ __forceinline__ void load_Q_for_bytes(uint32_t Q_smem) {
        for (int k = 0; k < d_steps<cfg>; k++)
            for (int half = 0; half < 2; half++) {
                const int row = first_row + lane / 4 + 8 * half, tile_row = row * (cfg.d_head / 64) + k / 4;
                const int chunk = k % 4 * 2 + lane % 4 / 2;
                load_pair(Q_smem + tile_row * tile_row_bytes + (chunk ^ tile_row % 8) * 16 + lane % 2 * 8, Q[k][half],
                          Q[k][2 + half]);
            }
    }
    /* Address of 16-byte chunk `chunk` of a key's row in the boxes of a warp. */
    __device__ __forceinline__ static uint32_t box_address(uint32_t first_box, int key, int chunk) {
        const uint32_t box = first_box + key / box_keys<cfg> * box_bytes<cfg>;
        return box + (chunk / 8 * box_keys<cfg> + key % box_keys<cfg>)*tile_row_bytes + (chunk % 8 ^ key % 8) * 16;
    }

    /* S = Q K^T over the warp's keys. A row of K is a column of K^T: nothing is transposed. */
    __device__ __forceinline__ void multiply_QK(S_tiles<cfg> &S, uint32_t K) const {
        const int key = lane / 16 * 8 + lane % 8, right = lane / 8 % 2;
        for (int k = 0; k < d_steps<cfg>; k++)
            for (int n = 0; n < key_steps<cfg>; n++) {
                uint32_t b[4];
                ldmatrix_x4(b, box_address(K, 16 * n + key, 2 * k + right));
                mma<cfg.dtype>(S[2 * n], Q[k], b[0], b[1]);
                mma<cfg.dtype>(S[2 * n + 1], Q[k], b[2], b[3]);
            }
    }
    __device__ __forceinline__ void multiply_QK_of_bytes(S_tiles<cfg> &S, uint32_t K) const {
        const int key = lane / 16 * 8 + lane % 8, right = lane / 8 % 2;
        for (int k = 0; k < d_steps<cfg>; k += 2)
            for (int n = 0; n < key_steps<cfg>; n++) {
                uint32_t b[4]; /* keys 0-7 of columns 16k and 16k + 16, keys 8-15 of the same */
                ldmatrix_x4(b, box_address(K, 16 * n + key, k + right));
                for (int r = 0; r < 4; r++)
                    mma<cfg.dtype>(S[2 * n + r / 2], Q[k + r % 2], widen_pair<cfg.dtype>(b[r]),
                                   widen_pair<cfg.dtype>(b[r] >> 16));
            }
    }
    /* O += P V. A column of V is a column of the operand: ldmatrix transposes. Rows of V from `end` on become zeros,
     * because they follow the sequence and a NaN multiplied by 0 stays a NaN. */
    template <bool has_end>
    __device__ __forceinline__ void multiply_PV(const fragments<key_steps<cfg>> &P, uint32_t V, int end) {
        const int key = lane % 16, right = lane / 16;
        for (int k = 0; k < key_steps<cfg>; k++)
            for (int n = 0; n < d_steps<cfg>; n++) {
                uint32_t b[4];
                ldmatrix_x4_trans(b, box_address(V, 16 * k + key, 2 * n + right));
                if constexpr (has_end)
                    for (int r = 0; r < 4; r++) b[r] &= elements_before(end - (16 * k + r % 2 * 8 + lane % 4 * 2));
                mma<cfg.dtype>(O[2 * n], P[k], b[0], b[1]);
                mma<cfg.dtype>(O[2 * n + 1], P[k], b[2], b[3]);
            }
    }

    template <bool has_end>
    __device__ __forceinline__ void multiply_PV_of_bytes(const fragments<key_steps<cfg>> &P, uint32_t V, int end) {
        const int key = lane % 16, right = lane / 16;
        for (int k = 0; k < key_steps<cfg>; k++)
            for (int n = 0; n < d_steps<cfg>; n += 2) {
                uint32_t b[4]; /* pairs of columns of keys 0-7 and 8-15, of columns 16n ..., then 16n + 16 ... */
                ldmatrix_x4_trans(b, box_address(V, 16 * k + key, n + right));
                for (int i = 0; i < 4; i++) {
                    const uint32_t bytes = __byte_perm(b[i / 2 * 2], b[i / 2 * 2 + 1], i % 2 ? 0x7531 : 0x6420);
                    uint32_t v[2] = {widen_pair<FP16>(bytes), widen_pair<FP16>(bytes >> 16)};
                    if constexpr (has_end)
                        for (int r = 0; r < 2; r++) v[r] &= elements_before(end - (16 * k + r * 8 + lane % 4 * 2));
                    mma<FP16>(O[2 * n + i], P[k], v[0], v[1]);
                }
            }
    }

    /* ---- the same by wgmma: of all keys of a block, and the rows of a warpgroup ---- */

    /* Tiles of S for the first eight keys of each box, and for the last eight. */
    using half_S = float[key_steps<cfg>][4];

    __device__ __forceinline__ void start_S(half_S &first, half_S &others, int n) const {
        const uint64_t boxes = box_descriptor(at.K_box(n, 0), box_bytes<cfg>);
        wgmma_fence();
        for (int k = 0; k < d_steps<cfg>; k++) {
            const uint64_t from = boxes + box_columns(k);
            wgmma_of_boxes<cfg.dtype>(first, Q[k], from, k != 0);
            wgmma_of_boxes<cfg.dtype>(others, Q[k], from + box_keys_8, k != 0);
        }
        wgmma_commit_group();
    }
    /* Wait for S, but for `pending` groups after it. */
    template <int pending>
    __device__ __forceinline__ static void take_S(S_tiles<cfg> &S, half_S &first, half_S &others) {
        wgmma_wait_group<pending>(first);
        wgmma_wait_group<pending>(others);
        for (int n = 0; n < key_steps<cfg>; n++)
            for (int e = 0; e < 4; e++) S[2 * n][e] = first[n][e], S[2 * n + 1][e] = others[n][e];
    }
    __device__ __forceinline__ void start_O(const fragments<key_steps<cfg>> &P, int n) {
        wgmma_fence();
        for (int k = 0; k < key_steps<cfg>; k++)
            wgmma_of_rows<cfg.dtype>(O, P[k], wgmma_descriptor(at.V_box(n, k), DECODE_PAGE_KEYS * tile_row_bytes));
        wgmma_commit_group();
    }
    /* O is computed, and block n read by all lanes. */
    __device__ __forceinline__ void finish_O(int n) {
        wgmma_wait_group<0>(O);
        __syncwarp();
        if (lane == 0) mbarrier_arrive(at.KV.empty(n));
    }

    /* Zero the rows of V from `end` to the end of their box; later rows of the block were copied as zeros. */
    __device__ __forceinline__ void clear_rows(int n, int end) const {
        constexpr int chunks = cfg.d_head / 8; /* of a row, 16 bytes */
        const int rows = -end & box_keys<cfg> - 1;
        for (int i = 32 * warp + lane; i < rows * chunks; i += 32 * cfg.n_warps)
            store_shared_v4(box_address(at.V_box(n, 0), end + i / chunks, i % chunks), 0, 0, 0, 0);
        fence_proxy_async(); /* wgmma reads by the async proxy */
        meet();
    }

    /* A mask of the first `count` of two elements. */
    __device__ __forceinline__ static uint32_t elements_before(int count) {
        return count >= 2 ? 0xffffffff : count == 1 ? 0xffff : 0;
    }

    /* ---- one KV block ---- */

    /* Keys of the sequence. */
    __device__ __forceinline__ int seq_k() const { return cfg.serves ? own.keys : args.seq_k; }

    /* First key that a row of the warp does not attend to. */
    __device__ __forceinline__ int row_end(int row) const {
        const int query = (own.row + first_row + row) / group;
        return args.causal ? min(seq_k(), query + 1 + seq_k() - queries().count) : seq_k();
    }
    /* End of the keys that the warp's last row, and therefore any of its rows, attends to. */
    __device__ __forceinline__ int keys_end() const { return cfg.ragged_queries ? row_end(15) : seq_k(); }

    /* Update m if an exponential would exceed 2^most_lag: in the first block, and for a NaN. */
    __device__ __forceinline__ void catch_up(const S_tiles<cfg> &S) {
        row_values lane_max, factor;
        find_lane_max(lane_max, S);
        if (!lags(lane_max)) return;
        update_m(m, l, factor, lane_max, scale);
        find_scales(scales, m, scale);
        rescale(O, factor);
    }
    /* Update m while O is being computed. Return true if O must then be multiplied by `factor`. */
    __device__ __forceinline__ bool lags(const S_tiles<cfg> &S, row_values &factor) {
        row_values lane_max;
        find_lane_max(lane_max, S);
        if (!lags(lane_max)) return false;
        update_m(m, l, factor, lane_max, scale);
        find_scales(scales, m, scale);
        return true;
    }
    /* Whether an exponential of the warp would be more than 2^most_lag. */
    __device__ __forceinline__ bool lags(const row_values &lane_max) const {
        const float lag = fmaxf(fmaf(lane_max[0], scales[0], m[0]), fmaf(lane_max[1], scales[1], m[1]));
        return __any_sync(0xffffffff, !(lag <= most_lag));
    }

    /* The warp's keys of KV block number n of the CTA, from `key` on. */
    __device__ __forceinline__ void use_keys(int n, int key) {
        const int first_box = key_group * (warp_keys<cfg> / box_keys<cfg>);
        const uint32_t V = at.V_box(n, first_box);
        S_tiles<cfg> S = {};
        fragments<key_steps<cfg>> P;
        if constexpr (cfg.e4m3_cache)
            multiply_QK_of_bytes(S, at.K_box(n, first_box));
        else
            multiply_QK(S, at.K_box(n, first_box));
        if (key + warp_keys < cfg >> row_end(0)) mask(S, [&](int row) { return row_end(row) - key; }, lane);
        catch_up(S);
        exponentiate<warp_keys<cfg>>(S, l, m, scales);
        round_to_P<P_type<cfg>>(P, S);
        const bool has_end = cfg.serves && key + warp_keys<cfg> > seq_k();
        if constexpr (cfg.e4m3_cache)
            has_end ? multiply_PV_of_bytes<true>(P, V, seq_k() - key) : multiply_PV_of_bytes<false>(P, V, 0);
        else
            has_end ? multiply_PV<true>(P, V, seq_k() - key) : multiply_PV<false>(P, V, 0);
    }

    /* Turn S of a block into P while O of the block before is computed. Return true if O must then be multiplied by
     * `factor`. */
    __device__ __forceinline__ bool turn_to_P(S_tiles<cfg> &S, row_values &factor, int key) {
        if (key + cfg.B_c > row_end(0)) mask(S, [&](int row) { return row_end(row) - key; }, lane);
        const bool outgrown = lags(S, factor);
        exponentiate<cfg.B_c / 2>(S, l, m, scales);
        return outgrown;
    }

    __device__ __forceinline__ void clear_sums() {
        for (int half = 0; half < 2; half++) m[half] = no_maximum, l[half] = 0, scales[half] = scale;
        for (int n = 0; n < 2 * d_steps<cfg>; n++)
            for (int e = 0; e < 4; e++) O[n][e] = 0;
    }

    /* Process all keys of the blocks by wgmma: S of each block overlaps with O of the block before. */
    __device__ __forceinline__ void use_blocks_by_wgmma(int read, int first_block, int blocks) {
        clear_sums();
        half_S first, others;
        S_tiles<cfg> S;
        fragments<key_steps<cfg>> P;
        row_values factor;
        const int first_key = first_block * cfg.B_c;
        at.KV.wait_until_full(read);
        if (first_key >= seq_k()) { /* a sequence without keys has a block */
            if (lane == 0) mbarrier_arrive(at.KV.empty(read));
            return;
        }
        start_S(first, others, read);
        take_S<0>(S, first, others);
        turn_to_P(S, factor, first_key);
        round_to_P<cfg.dtype>(P, S);
#pragma unroll 1
        for (int i = 1; i < blocks; i++) {
            at.KV.wait_until_full(read + i);
            start_S(first, others, read + i);
            start_O(P, read + i - 1);
            take_S<1>(S, first, others);
            const bool outgrown = turn_to_P(S, factor, first_key + i * cfg.B_c);
            finish_O(read + i - 1);
            if (outgrown) rescale(O, factor);
            round_to_P<cfg.dtype>(P, S);
        }
        const int last = blocks - 1, end = seq_k() - first_key - last * cfg.B_c;
        if (end < cfg.B_c) clear_rows(read + last, end);
        start_O(P, read + last);
        finish_O(read + last);
    }

    /* O, m and l of `blocks` KV blocks from `first` on; the CTA has read `read` before. */
    __device__ __forceinline__ void use_blocks(int read, int first, int blocks) {
        clear_sums();
#pragma unroll 1
        for (int i = 0; i < blocks; i++) {
            const int key = (first + i) * cfg.B_c + key_group * warp_keys<cfg>;
            at.KV.wait_until_full(read + i);
            if (key < keys_end()) use_keys(read + i, key);
            __syncwarp(); /* all lanes have read K and V */
            if (lane == 0) mbarrier_arrive(at.KV.empty(read + i));
        }
    }

    /* ---- the end of a piece ---- */

    /* All warps that compute meet. */
    __device__ __forceinline__ static void meet() { bar_sync(1, 32 * cfg.n_warps); }

    __device__ __forceinline__ void store_sums() const {
        warp_sums<cfg> &sums = *at.sums;
        for (int half = 0; half < 2; half++) {
            const int row = first_row + lane / 4 + 8 * half;
            float *const O_row = &sums.O[key_group][row][lane % 4 * (cfg.e4m3_cache ? 4 : 2)];
            float l_row = l[half];
            l_row += __shfl_xor_sync(0xffffffff, l_row, 2); /* the quad's partial sums */
            l_row += __shfl_xor_sync(0xffffffff, l_row, 1);
            if constexpr (cfg.e4m3_cache)
                for (int n = 0; n < 2 * d_steps<cfg>; n += 2)
                    *(float4 *)(O_row + 8 * n) =
                        make_float4(O[n][2 * half], O[n + 1][2 * half], O[n][2 * half + 1], O[n + 1][2 * half + 1]);
            else
                for (int n = 0; n < 2 * d_steps<cfg>; n++)
                    *(float2 *)(O_row + 8 * n) = make_float2(O[n][2 * half], O[n][2 * half + 1]);
            if (lane % 4 == 0) sums.m[key_group][row] = rescaled_m(m[half], scale), sums.l[key_group][row] = l_row;
        }
    }
    /* A row of all key groups' sums. */
    __device__ __forceinline__ row_part<lane_columns<cfg>> add_sums(int row) const {
        const warp_sums<cfg> &sums = *at.sums;
        row_sum<lane_columns<cfg>> sum;
        float m_least = sums.m[0][row];
        for (int g = 1; g < key_groups<cfg>; g++) m_least = fminf(m_least, sums.m[g][row]);
        for (int g = 0; g < key_groups<cfg>; g++) {
            float O_row[lane_columns<cfg>];
            for (int i = 0; i < lane_columns<cfg>; i++) O_row[i] = sums.O[g][row][lane_columns<cfg> * lane + i];
            sum.add(O_row, sums.l[g][row], ex2_approx(m_least - sums.m[g][row]));
        }
        return sum.result(m_least);
    }
    __device__ __forceinline__ void store_whole(int row, row_part<lane_columns<cfg>> whole) const {
        const int query = (own.row + row) / group, head = line.head * group + (own.row + row) % group;
        if constexpr (cfg.e4m3_cache) {
            const float factor = scale_of<cfg>(args, &serving_args::V_scales, line.head);
            for (float &element : whole.O) element *= factor;
        }
        const query_rows of = queries();
        store_row<cfg.dtype>(args, whole, of.all, of.first + query, head, of.sample, lane);
    }

    /* A row that is stored in a quad of lanes, two columns of each tile in a lane. */
    __device__ __forceinline__ void store_in_quads(const part_slots &slots, int64_t slot, int last_row) const {
        for (int half = 0; half < 2; half++) {
            const int row = first_row + lane / 4 + 8 * half;
            float l_row = l[half];
            l_row += __shfl_xor_sync(0xffffffff, l_row, 2); /* the quad's partial sums */
            l_row += __shfl_xor_sync(0xffffffff, l_row, 1);
            if (row >= last_row) continue;
            const float inverse = l_row == 0 ? 0 : 1 / l_row, lse = lg2_approx(l_row) - rescaled_m(m[half], scale);
            if (own.parts == 1) {
                const int query = (own.row + row) / group, head = line.head * group + (own.row + row) % group;
                uint16_t *const O_row = find_O_row(args, query, head, own.sample);
                for (int n = 0; n < 2 * d_steps<cfg>; n++)
                    *(uint32_t *)(O_row + 8 * n + lane % 4 * 2) =
                        round_pair<cfg.dtype>(O[n][2 * half] * inverse, O[n][2 * half + 1] * inverse);
                if (lane % 4 == 0) store_lse(args, lse, args.seq_q, query, head, own.sample);
            } else {
                const int64_t at = slot * slots.rows + row;
                for (int n = 0; n < 2 * d_steps<cfg>; n++)
                    *(float2 *)(slots.O + at * cfg.d_head + 8 * n + lane % 4 * 2) =
                        make_float2(O[n][2 * half] * inverse, O[n][2 * half + 1] * inverse);
                if (lane % 4 == 0) slots.lse[at] = lse;
            }
        }
    }

    /* Add up the key groups' results of the row block, or of a part of it. Warps alternate rows. */
    __device__ __forceinline__ void finish_part(const part_slots &slots, int64_t slot, int last_row) const {
        store_sums();
        meet();
        for (int row = warp; row < last_row; row += cfg.n_warps) {
            const row_part<lane_columns<cfg>> part = add_sums(row);
            if (own.parts == 1)
                store_whole(row, part);
            else
                store_part(slots, slot, row, lane, part);
        }
    }

    /* Return true if this CTA is the last to store its `stored` parts of the row block. All threads can then read what
     * the other CTAs stored, and the count is zero again. */
    __device__ __forceinline__ bool arrive_last(const part_slots &slots, int stored) const {
        int *const count = slots.arrived + line.cta(own.first_share, args.KV_heads);
        __threadfence(); /* the parts, before the count */
        meet();
        if (cfg.serves && stored == own.parts) return true; /* the count may already serve the next row block */
        if (warp == 0 && lane == 0) {
            const int before = atomicAdd(count, stored);
            if (before == own.parts - stored) atomicExch(count, 0);
            store_shared(at.arrived, before);
        }
        meet();
        __threadfence(); /* the count, before the parts of others */
        return load_shared(at.arrived) == own.parts - stored;
    }

    /* Process the KV blocks of a piece, which is one part of its row block, or several if parts have a fixed size. */
    __device__ __forceinline__ void use_piece(int read) {
        const int rows = cfg.ragged_queries ? own_queries.count * group : all_rows;
        const int most = line.most_blocks(own), last_row = min(cfg.B_r, rows - own.row);
        const part_slots slots = find_slots<cfg>(args, line.slots(), cfg.ragged_queries ? cfg.B_r : rows);
        int first = 0, stored = 0;
        do {
            if (!by_wgmma<cfg> && stored) meet(); /* the sums are read: they may be written again */
            const int part_blocks = min(most, own.blocks - first);
            if constexpr (by_wgmma<cfg>)
                use_blocks_by_wgmma(read + first, own.block + first, part_blocks);
            else
                use_blocks(read + first, own.block + first, part_blocks);
            const int64_t slot = line.slot(own, own.block + first);
            if constexpr (by_wgmma<cfg>)
                store_in_quads(slots, slot, last_row);
            else
                finish_part(slots, slot, last_row);
            first += most, stored++;
        } while (cfg.serves && first < own.blocks);
        if (own.parts > 1 && arrive_last(slots, stored))
            for (int row = warp; row < last_row; row += cfg.n_warps)
                store_whole(row, combine_parts<lane_columns<cfg>>(slots, line.slots_of(own), row, lane));
        meet(); /* the sums are read, and the count: both may be written again */
    }

    __device__ __forceinline__ void attend() {
        for (int turn = 0, read = 0;; turn++, read += own.blocks) {
            at.Q.wait_until_full(turn);
            own = read_piece(at.piece(turn));
            if (own.row < 0) break;
            if constexpr (cfg.ragged_queries)
                own_queries = find_queries(static_cast<const serving_args &>(args), own.sample);
            if constexpr (cfg.e4m3_cache)
                load_Q_for_bytes(at.Q.stage(turn));
            else
                load_Q(at.Q.stage(turn));
            __syncwarp(); /* all lanes have read the piece and Q */
            if (lane == 0) mbarrier_arrive(at.Q.empty(turn));
            use_piece(read);
        }
    }
};

/* ---- the kernel ---- */

template <decode_config cfg>
__device__ __forceinline__ void attend(const auto &args, const tensor_maps &maps) {
    check_config<cfg>();
    const smem_layout<cfg> at = find_layout<cfg>();
    auto line = make_line<cfg>(args);
    init_mbarriers<cfg>(at);
    if (threadIdx.x < 32 * copy_warps<cfg>) {
        if constexpr (gives_registers<cfg>) setmaxnreg_dec<56>();
        if (threadIdx.x < 32) copier<cfg>{args, maps, at, line}.copy_all();
    } else {
        if constexpr (gives_registers<cfg>) setmaxnreg_inc<224>();
        Q_fragments<cfg> Q;
        O_tiles<cfg> O;
        row_values m, l, scales;
        consumer<cfg>{args, at, line, Q, O, m, l, scales}.attend();
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
