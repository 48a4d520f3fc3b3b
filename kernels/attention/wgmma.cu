/* attention/wgmma - Hopper: a producer, its consumers, and the tensor copy engine
 *
 * config    (FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong
 * others    (FP16, 64, 256, 64, 16): wgmma+stages_4+exp_16;
 *           (FP16, 256, 128, 64, 8): wgmma+stages_2+exp_16
 * serving   (FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve;
 *           (FP16, 64, 256, 64, 16): wgmma+stages_4+exp_16+serve;
 *           (FP16, 256, 128, 64, 8): wgmma+stages_2+exp_16+serve;
 *           (FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve+cap;
 *           (FP16, 64, 256, 64, 16): wgmma+stages_4+exp_16+serve+cap;
 *           (FP16, 256, 128, 64, 8): wgmma+stages_2+exp_16+serve+cap;
 *           (FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve+pages;
 *           (FP16, 64, 256, 64, 16): wgmma+stages_4+exp_16+serve+pages;
 *           (FP16, 256, 128, 64, 8): wgmma+stages_2+exp_16+serve+pages;
 *           (FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve+cap+pages;
 *           (FP16, 64, 256, 64, 16): wgmma+stages_4+exp_16+serve+cap+pages;
 *           (FP16, 256, 128, 64, 8): wgmma+stages_2+exp_16+serve+cap+pages;
 *           (FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve+pack;
 *           (FP16, 64, 256, 64, 16): wgmma+stages_4+exp_16+serve+pack;
 *           (FP16, 256, 128, 64, 8): wgmma+stages_2+exp_16+serve+pack;
 *           (FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve+pages+pack;
 *           (FP16, 64, 256, 64, 16): wgmma+stages_4+exp_16+serve+pages+pack;
 *           (FP16, 256, 128, 64, 8): wgmma+stages_2+exp_16+serve+pages+pack;
 *           (FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve+extend;
 *           (FP16, 64, 192, 64, 12): wgmma+stages_4+exp_16+serve+extend;
 *           (FP16, 256, 128, 64, 8): wgmma+stages_2+exp_16+serve+extend;
 *           (FP16, 512, 128, 64, 8): wgmma+stages_2+exp_16+serve+extend;
 *           (FP16, 192, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve+extend+dv_128;
 *           (FP16, 576, 64, 32, 8): wgmma+stages_2+exp_16+serve+extend+dv_512;
 *           (FP16, 576, 64, 32, 8): wgmma+stages_3+exp_16+serve+extend+dv_512+latent;
 *           (FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve+extend+bias;
 *           (FP16, 64, 192, 64, 12): wgmma+stages_4+exp_16+serve+extend+bias;
 *           (FP16, 256, 128, 64, 8): wgmma+stages_2+exp_16+serve+extend+bias;
 *           (FP16, 192, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve+extend+dv_128+bias;
 *           (FP16, 576, 64, 32, 8): wgmma+stages_2+exp_16+serve+extend+dv_512+bias;
 *           (FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve+extend+dropout+bias;
 *           (FP16, 64, 192, 64, 12): wgmma+stages_4+exp_16+serve+extend+dropout+bias;
 *           (FP16, 256, 128, 64, 8): wgmma+stages_2+exp_16+serve+extend+dropout+bias
 * arch      sm_90a
 */
#include "common/abi.h"
#include "common/attention_config.h"
#include "common/ptx_pages.cuh"
#include "common/ptx_sm90a.cuh"
#include "common/ptx_wgmma_boxes.cuh"
#include "kernels/attention/bias.cuh"
#include "kernels/attention/blocks.cuh"
#include "kernels/attention/cap.cuh"
#include "kernels/attention/dropout.cuh"
#include "kernels/attention/dump.cuh"
#include "kernels/attention/epilogue.cuh"
#include "kernels/attention/key_parts.cuh"
#include "kernels/attention/kv.cuh"
#include "kernels/attention/lengths.cuh"
#include "kernels/attention/mask.cuh"
#include "kernels/attention/ring.cuh"
#include "kernels/attention/schedule.cuh"
#include "kernels/attention/softmax.cuh"

/* One persistent CTA per SM processes one block of B_r rows of Q after another. It walks through the K and V that these
 * rows attend to in blocks of B_c keys, from the last to the first. schedule.cuh assigns the Q blocks, mask.cuh
 * determines the keys, kv.cuh and lengths.cuh their addresses, and softmax.cuh, cap.cuh and epilogue.cuh compute. This
 * file is the pipeline: who holds what, and who waits for whom.
 *
 * The CTA is three to five warpgroups. One thread of the first, the producer, starts all copies, or one warp where K
 * and V are stored in pages; one thread of another of its warps is the scheduler. With `serve` (varlen batches,
 * windows) the scheduler is an entire warp, and a third warp, the sweeper, sets V to zero past the end of a sequence
 * and before a window.
 * The other warpgroups, the consumers, have 64 rows each. Warp w of a consumer owns its rows 16w to 16w + 15 of Q, S, P
 * and O, all columns. S, P and O stay in registers, and so does Q if enough registers are left. wgmma reads P from
 * registers, and K, V and otherwise Q from shared memory. common/attention_fields.h explains the flags of the configs
 * above.
 *
 * Shared memory: two Q blocks, each with a part for each consumer, then rings of K and V blocks, then O in parts of 16
 * rows for each warp. With d_head above 128 O does not fit, and Q is a ring of parts: one Q block and, with d_head 256,
 * one more part in static shared memory. A block is tiles of 64 columns one after the other, rows of 128 bytes, their
 * 16-byte chunks swizzled as wgmma expects it (ptx_sm90a.cuh). Then mbarriers, and what the scheduler posts of Q
 * blocks.
 *
 * Rows of V may have fewer elements than those of K, a length of their own with `dv`. O of 512 columns does not fit the
 * registers of one consumer: two consumers share 64 rows, and each has half of O. Each of them multiplies half of the
 * columns of Q and K, and they add these halves of S through shared memory. Then both have the same S, m and l. With
 * `latent` V is the first columns of K: the ring of V is that of K, whose blocks are released after both products.
 *
 * With d_head = 512 two CTAs of a cluster share a Q block of 128 rows. Each does with its half of the columns of Q, K,
 * V and O what a CTA does with d_head = 256, and they add their halves of S through the shared memory of each other.
 *
 * S of the next KV block is started before O of this one, so that a consumer turns S into exponentials while O is
 * computed. The block after the last one of a Q block is the first of the next Q block. The stages, and the phases of
 * all mbarriers, continue through all Q blocks.
 */

/* ---- shape ---- */

/* Elements of a row of V and O, consumers that share rows, and the columns of V and O of each. */
template <attention_config cfg>
constexpr int d_head_v = attention_d_head_v(&cfg);
template <attention_config cfg>
constexpr int V_parts = attention_V_parts(&cfg);
template <attention_config cfg>
constexpr bool shares_rows = V_parts<cfg> > 1;
template <attention_config cfg>
constexpr bool shares_rows_in_cluster = cluster_ctas<cfg> > 1;
template <attention_config cfg>
constexpr int V_columns = d_head_v<cfg> / V_parts<cfg> / cluster_ctas<cfg>;
/* Columns of Q and K that a CTA has. */
template <attention_config cfg>
constexpr int QK_columns = cfg.d_head / cluster_ctas<cfg>;

template <attention_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.d_head == 64 || cfg.d_head == 128 || cfg.d_head == 256 || (cfg.d_head == 512 && cfg.extended) ||
                      (cfg.d_head_v > 0 && cfg.d_head % 64 == 0),
                  "d_head must be 64, 128 or 256, with extend 512, or with dv a multiple of 64: tiles have 64 columns");
    static_assert(cfg.d_head != 512 || (cfg.d_head_v == 0 && !cfg.biased),
                  "d_head must not be 512 with dv or bias: two CTAs have the same KV blocks, and half of V each");
    static_assert(cfg.d_head_v == 0 || cfg.d_head_v == 128 || cfg.d_head_v == 512,
                  "dv must be 128 or 512: a consumer has 128 or 256 columns of O");
    static_assert(cfg.n_warps == 8 || cfg.n_warps == 12 || cfg.n_warps == 16,
                  "n_warps must be 8, 12 or 16: two to four consumer warpgroups");
    static_assert(
        cfg.d_head_v == 512 ? cfg.B_r == 64 && cfg.n_warps == 8 : cfg.B_r == 16 * cfg.n_warps,
        "B_r must be 16 * n_warps, as wgmma gives each warp 16 rows, or 64 rows that 8 warps share with dv_512");
    static_assert(cfg.B_c == 64 || cfg.B_c == 128 || (cfg.B_c == 32 && cfg.d_head_v == 512),
                  "B_c must be 64 or 128, or 32 with dv_512: wgmma's n, in tiles of a constant number");
    static_assert(cfg.stages >= 2, "stages must be at least 2, as K is read one block ahead of V");
    static_assert(cfg.exp_columns >= 8 && cfg.B_c % cfg.exp_columns == 0,
                  "exp_columns must be at least 8 and divide B_c: exponentials are computed in equal blocks");
}

/* Numbers of 16x16 operand blocks along a CTA's columns of Q and K and along the keys of a KV block. */
template <attention_config cfg>
constexpr int d_steps = QK_columns<cfg> / 16;
template <attention_config cfg>
constexpr int key_steps = cfg.B_c / 16;

/* Registers of a warp's 16 rows (fragments.cuh). */
template <attention_config cfg>
using S_tiles = float[2 * key_steps<cfg>][4];
template <attention_config cfg>
using O_tiles = float[V_columns<cfg> / 8][4];
template <attention_config cfg>
using Q_fragments = uint32_t[d_steps<cfg>][4];
template <attention_config cfg>
using P_fragments = uint32_t[key_steps<cfg>][4];

/* Threads and rows of a warpgroup. */
constexpr int group_threads = 128, group_rows = 64;
template <attention_config cfg>
constexpr int consumers = cfg.n_warps / 4;

/* Parts of 64 rows of a Q block. */
template <attention_config cfg>
constexpr int row_groups = cfg.B_r / group_rows;

/* Registers of a thread: at launch an even share of the register file, then the producer's surplus goes to the
 * consumers. */
template <attention_config cfg>
constexpr int start_registers = 65536 / (group_threads + 32 * cfg.n_warps) / 8 * 8;
constexpr int producer_registers = 24;
template <attention_config cfg>
constexpr int consumer_registers =
    ((1 + consumers<cfg>)*start_registers<cfg> - producer_registers) / consumers<cfg> / 8 * 8;

/* True if registers hold Q. With d_head = 256 they are full of O, four consumers have too few, and biases need some. */
template <attention_config cfg>
constexpr bool Q_in_registers = cfg.d_head == 128 && !cfg.biased;

/* With shared rows: steps of 16 columns of the consumer's half of Q that registers hold, of 18. Shared memory is the
 * bottleneck there, because 64 rows read as many bytes of K as more rows would. */
template <attention_config cfg>
constexpr int Q_steps_in_registers = !shares_rows<cfg> || cfg.biased ? 0
                                     : cfg.latent                    ? 12
                                                                     : 10;

/* True if the parts of Q use the stages of a ring, each with its own mbarriers; otherwise two full Q blocks alternate.
 */
template <attention_config cfg>
constexpr bool Q_parts = cfg.d_head > 128;
template <attention_config cfg>
constexpr int parts_at_once = Q_parts<cfg> ? 1 : row_groups<cfg>;
template <attention_config cfg>
constexpr int Q_copies = row_groups<cfg> / parts_at_once<cfg>; /* of a Q block */
template <attention_config cfg>
constexpr bool one_more_part = cfg.d_head == 256;
template <attention_config cfg>
constexpr int Q_stages = Q_parts<cfg> ? row_groups<cfg> + one_more_part<cfg> : 2;
template <attention_config cfg>
constexpr int Q_fulls =
    Q_parts<cfg> ? 2 * row_groups<cfg> : 2; /* full mbarriers: two for each part if Q is a ring of parts */

/* True if TMA stores O. Four varlen consumers have no registers for both ways, packed GQA rows are too far apart, and a
 * copy of O would write columns that a shorter row does not have.
 */
template <attention_config cfg>
constexpr bool copies_O = !Q_parts<cfg> && !(cfg.serves && cfg.d_head == 64) && !cfg.packs && !cfg.extended;

/* True if K and V may be stored in pages. */
template <attention_config cfg>
constexpr bool may_be_paged = cfg.paged_kv || cfg.extended;

/* True if there may be a block mask, which tells the sweeper and the consumers which block of K and V a copy brings. */
template <attention_config cfg>
constexpr bool may_skip_blocks = cfg.biased;
/* True if consumers know of the first block that the mask does not hide: at other sizes that takes registers of the
 * loop, and more time than it saves. */
template <attention_config cfg>
constexpr bool finds_first_visible = may_skip_blocks<cfg> && cfg.d_head == 64;

/* ---- shared memory ---- */

/* Bytes of a row of a tile, of the rows of Q of a consumer, of a K and of a V block. */
constexpr int tile_row_bytes = 128;
template <attention_config cfg>
constexpr int Q_bytes = group_rows * QK_columns<cfg> * 2;
template <attention_config cfg>
constexpr int K_bytes = cfg.B_c * QK_columns<cfg> * 2;
template <attention_config cfg>
constexpr int V_bytes = cfg.latent ? K_bytes<cfg> : cfg.B_c * d_head_v<cfg> / cluster_ctas<cfg> * 2;

/* Bytes of a block of S in fp32, which a consumer leaves to the other one of its rows. */
template <attention_config cfg>
constexpr int S_bytes = shares_rows<cfg> || shares_rows_in_cluster<cfg> ? group_rows * cfg.B_c * 4 : 0;

/* Pieces of keys in which CTAs of a cluster exchange S, so that one is added while the next one comes. */
constexpr int S_pieces = 4;

/* A matrix in shared memory, for wgmma. In a cluster an address has the CTA's number above its 18 bits. */
template <attention_config cfg>
__device__ __forceinline__ uint64_t matrix_at(uint32_t smem_addr, uint32_t tile_bytes) {
    return wgmma_descriptor(shares_rows_in_cluster<cfg> ? smem_addr & 0x3ffff : smem_addr, tile_bytes);
}

/* Addresses in shared memory, called `at` below. */
template <attention_config cfg>
struct smem_layout {
    ring<Q_stages<cfg>, parts_at_once<cfg> * Q_bytes<cfg>, Q_fulls<cfg>> Q;
    ring<cfg.stages, K_bytes<cfg>> K;
    ring<cfg.stages, V_bytes<cfg>> V;
    tile_queue<cfg> queue;
    uint32_t last_Q, O, fetch, first_landed;

    /* K and V of block number n, for wgmma. */
    __device__ __forceinline__ uint64_t K_matrix(int n) const {
        return matrix_at<cfg>(K.first_stage, 0) + n % cfg.stages * (K_bytes<cfg> / 16);
    }
    __device__ __forceinline__ uint64_t V_matrix(int n) const {
        return matrix_at<cfg>(V.first_stage, cfg.B_c * tile_row_bytes) + n % cfg.stages * (V_bytes<cfg> / 16);
    }

    /* With a block mask: which KV block the copy number n of K brings, and its kinds, as block * 256 + kinds. */
    __device__ __forceinline__ uint32_t visible(int n) const {
        return first_landed + 8 * cfg.stages + 4 * (n % cfg.stages);
    }
    /* Which copy of V is number n of those that are swept. */
    __device__ __forceinline__ uint32_t swept(int n) const { return visible(n) + 4 * cfg.stages; }

    /* The mbarrier of block number n of those of V that are swept. */
    __device__ __forceinline__ uint32_t landed(int n) const { return first_landed + 8 * (n % cfg.stages); }

    /* In a cluster: the mbarriers of a warp's half of S from the other CTA, which comes in S_pieces, and of its own
     * half that is read there. */
    __device__ __forceinline__ uint32_t half_read(int warp) const { return first_landed + 16 * cfg.stages + 8 * warp; }
    __device__ __forceinline__ uint32_t half_landed(int warp, int piece) const {
        return half_read(cfg.n_warps + S_pieces * warp + piece);
    }
    /* Numbers of Q blocks that the other CTA fetched (schedule.cuh). */
    __device__ __forceinline__ uint32_t told() const { return half_landed(cfg.n_warps, 0); }

    /* Address of the parts that copy number n brings. */
    __device__ __forceinline__ uint32_t Q_stage(int n) const {
        return Q_parts<cfg> && n % Q_stages<cfg> == row_groups<cfg> ? last_Q : Q.stage(n);
    }
};

template <attention_config cfg>
__device__ __forceinline__ smem_layout<cfg> find_layout() {
    extern __shared__ __align__(1024) unsigned char smem[];
    smem_layout<cfg> at;
    at.Q.first_stage = __cvta_generic_to_shared(smem);
    at.K.first_stage = at.Q.first_stage + (Q_parts<cfg> ? 1 : Q_stages<cfg>)*row_groups<cfg> * Q_bytes<cfg>;
    if constexpr (one_more_part<cfg>) {
        __shared__ __align__(1024) unsigned char last_part[Q_bytes<cfg>];
        at.last_Q = __cvta_generic_to_shared(last_part);
    }
    at.V.first_stage = at.K.first_stage + (cfg.latent ? 0 : cfg.stages * K_bytes<cfg>);
    at.O = at.V.first_stage + cfg.stages * V_bytes<cfg>; /* or the halves of S */
    at.K.first_full = at.O + (Q_parts<cfg> ? consumers<cfg> * S_bytes<cfg> : row_groups<cfg> * Q_bytes<cfg>);
    at.V.first_full = at.K.first_full + 8 * cfg.stages;
    at.K.first_empty = at.V.first_full + 8 * cfg.stages;
    at.V.first_empty = at.K.first_empty + 8 * cfg.stages;
    at.Q.first_full = at.V.first_empty + 8 * cfg.stages;
    if constexpr (cfg.latent) at.V.first_full = at.K.first_full, at.V.first_empty = at.K.first_empty;
    at.Q.first_empty = at.Q.first_full + 8 * Q_fulls<cfg>;
    at.queue.first_full = at.Q.first_empty + 8 * Q_fulls<cfg>; /* a multiple of 16 */
    at.queue.first_empty = at.queue.first_full + 8 * queue_slots;
    at.fetch = at.queue.first_empty + 8 * queue_slots;
    at.queue.first_stage = at.fetch + 16;
    at.first_landed = at.queue.first_stage + (cfg.serves ? 64 * queue_slots : 0);
    return at;
}

/* One thread arrives at the full mbarriers, each consumer at the empty ones of K, V and the parts of Q, each warp at
 * those of full Q blocks and, with the producer and the sweeper, of the tile queue. */
template <attention_config cfg>
__device__ __forceinline__ void init_mbarriers(const smem_layout<cfg> &at) {
    if (threadIdx.x == 0) {
        for (int n = 0; n < Q_fulls<cfg>; n++) at.Q.init(n, Q_parts<cfg> ? V_parts<cfg> : cfg.n_warps);
        mbarrier_init(at.fetch, 1);
        for (int slot = 0; slot < queue_slots; slot++) at.queue.init(slot, cfg.n_warps + (cfg.serves ? 2 : 1));
        for (int stage = 0; stage < cfg.stages; stage++) {
            mbarrier_init(at.K.full(stage), 1);
            if (!cfg.latent) mbarrier_init(at.V.full(stage), 1);
            mbarrier_init(at.K.empty(stage), consumers<cfg>);
            if (!cfg.latent) mbarrier_init(at.V.empty(stage), consumers<cfg>);
            if (cfg.serves) mbarrier_init(at.landed(stage), 1);
        }
        if constexpr (shares_rows_in_cluster<cfg>)
            for (int n = 0; n < cfg.n_warps * (1 + S_pieces); n++) mbarrier_init(at.half_read(n), 1);
        if constexpr (shares_rows_in_cluster<cfg>)
            for (int slot = 0; slot < queue_slots; slot++) mbarrier_init(at.told() + 16 * slot + 8, 1);
        fence_mbarrier_init();
    }
    if constexpr (shares_rows_in_cluster<cfg>)
        cluster_sync();
    else
        __syncthreads();
}

/* ---- tensor cores ---- */

/* The 16 rows of this warp as fragments. Q_rows is the first of them in shared memory. */
template <attention_config cfg>
__device__ __forceinline__ void load_Q(Q_fragments<cfg> &Q, uint32_t Q_rows, int lane) {
    for (int k = 0; k < d_steps<cfg>; k++) {
        const int chunk = k % 4 * 2 + lane / 16;
        ldmatrix_x4(Q[k], Q_rows + (k / 4 * group_rows + lane % 16) * tile_row_bytes + (chunk ^ lane % 8) * 16);
    }
}

/* S = A K^T for 16 columns of Q and K, or S += A K^T. A is in registers or the descriptor of a matrix. */
template <attention_config cfg, typename A>
__device__ __forceinline__ void start_QK_step(S_tiles<cfg> &S, const A &a, uint64_t K, int accumulate) {
    if constexpr (cfg.B_c == 128 && cfg.dtype == FP16) wgmma_m64n128k16_f16(S, a, K, accumulate);
    if constexpr (cfg.B_c == 128 && cfg.dtype == BF16) wgmma_m64n128k16_bf16(S, a, K, accumulate);
    if constexpr (cfg.B_c == 64 && cfg.dtype == FP16) wgmma_m64n64k16_f16(S, a, K, accumulate);
    if constexpr (cfg.B_c == 64 && cfg.dtype == BF16) wgmma_m64n64k16_bf16(S, a, K, accumulate);
    if constexpr (cfg.B_c == 32 && cfg.dtype == FP16) wgmma_m64n32k16_f16(S, a, K, accumulate);
    if constexpr (cfg.B_c == 32 && cfg.dtype == BF16) wgmma_m64n32k16_bf16(S, a, K, accumulate);
}

/* Load fragments as load_Q() does, but only the first steps of a consumer's half of the columns, which begins at chunk
 * number `half`. */
template <attention_config cfg>
__device__ __forceinline__ void load_steps_of_Q(Q_fragments<cfg> &Q, uint32_t Q_rows, int half, int lane) {
    for (int step = 0; step < Q_steps_in_registers<cfg>; step++) {
        const int tile = step / 2, chunk = half + step % 2 * 2 + lane / 16;
        ldmatrix_x4(Q[4 * tile + step % 2],
                    Q_rows + (tile * group_rows + lane % 16) * tile_row_bytes + (chunk ^ lane % 8) * 16);
    }
}

/* Start S = Q K^T, a group of wgmma, one for each 16 columns of Q and K. Q is read from registers or, with the
 * descriptor Q_matrix, from shared memory. With shared rows a consumer multiplies the first or the second half of
 * each tile, to which the descriptors point. */
template <attention_config cfg>
__device__ __forceinline__ void start_QK(S_tiles<cfg> &S, const Q_fragments<cfg> &Q, uint64_t Q_matrix, uint64_t K) {
    wgmma_fence();
    for (int k = 0; k < d_steps<cfg>; k++) {
        if (shares_rows<cfg> && k % 4 >= 2) continue;
        const uint64_t K_step = K + k / 4 * (cfg.B_c * tile_row_bytes / 16) + k % 4 * 2;
        if (Q_in_registers<cfg> || k / 4 * 2 + k % 4 < Q_steps_in_registers<cfg>)
            start_QK_step<cfg>(S, Q[k], K_step, k != 0);
        else
            start_QK_step<cfg>(S, Q_matrix + k / 4 * (group_rows * tile_row_bytes / 16) + k % 4 * 2, K_step, k != 0);
    }
    wgmma_commit_group();
}

/* Start O += P V, a group of wgmma, one for each 16 keys. */
template <attention_config cfg>
__device__ __forceinline__ void start_PV(O_tiles<cfg> &O, const P_fragments<cfg> &P, uint64_t V) {
    wgmma_fence();
    for (int k = 0; k < key_steps<cfg>; k++) {
        const uint64_t V_step = V + k * (16 * tile_row_bytes / 16);
        if constexpr (V_columns<cfg> == 64 && cfg.dtype == FP16) wgmma_m64n64k16_f16_trans(O, P[k], V_step, 1);
        if constexpr (V_columns<cfg> == 64 && cfg.dtype == BF16) wgmma_m64n64k16_bf16_trans(O, P[k], V_step, 1);
        if constexpr (V_columns<cfg> == 128 && cfg.dtype == FP16) wgmma_m64n128k16_f16_trans(O, P[k], V_step, 1);
        if constexpr (V_columns<cfg> == 128 && cfg.dtype == BF16) wgmma_m64n128k16_bf16_trans(O, P[k], V_step, 1);
        if constexpr (V_columns<cfg> == 256 && cfg.dtype == FP16) wgmma_m64n256k16_f16_trans(O, P[k], V_step, 1);
        if constexpr (V_columns<cfg> == 256 && cfg.dtype == BF16) wgmma_m64n256k16_bf16_trans(O, P[k], V_step, 1);
    }
    wgmma_commit_group();
}

/* S = Q K^T again, of this warp's 16 rows: mma.sync has the same fragments as wgmma. Q_rows is in shared memory, the
 * first of the warp's in its part of Q. If the part has already been released, Q is read from global memory, where `Q`
 * is the first of the warp's rows, and last_row replaces the rows after it. K is the first of the block's rows in
 * global memory. Q and K may also be functions that return row number n, or NULL for zeros. Rows have `columns`
 * elements. */
template <attention_config cfg>
__device__ void compute_S_again(S_tiles<cfg> &S, uint32_t Q_rows, const auto Q, int64_t Q_stride, int last_row,
                                const auto K, int64_t K_stride, int columns, int lane) {
    for (int n = 0; n < 2 * key_steps<cfg>; n++)
        for (int e = 0; e < 4; e++) S[n][e] = 0;
    const auto exists = [&](int k, int right) { return !cfg.extended || 16 * k + 8 * right < columns; };
    uint32_t a[4]; /* 16 columns of Q */
    const auto load_columns = [&](int k) {
        const auto chunk = [&](int right) { return (k % 4 * 2 + right ^ lane % 8) * 16; };
        if constexpr (!Q_parts<cfg>) {
            ldmatrix_x4(a, Q_rows + (k / 4 * group_rows + lane % 16) * tile_row_bytes + chunk(lane / 16));
        } else {
            for (int r = 0; r < 4; r++) {
                if constexpr (cfg.packs) {
                    const uint16_t *const row = Q(lane / 4 + r % 2 * 8);
                    a[r] = row ? *(const uint32_t *)(row + 16 * k + r / 2 * 8 + lane % 4 * 2) : 0;
                } else {
                    const int row = min(lane / 4 + r % 2 * 8, last_row), column = 16 * k + r / 2 * 8 + lane % 4 * 2;
                    a[r] = exists(k, r / 2) ? *(const uint32_t *)(Q + row * Q_stride + column) : 0;
                }
            }
        }
    };
    const auto multiply = [&](int k, int n) {
        if constexpr (may_be_paged<cfg>) {
            const uint16_t *const row = K(8 * n + lane / 4), *const b = row + 16 * k + lane % 4 * 2;
            mma<cfg.dtype>(S[n], a, row && exists(k, 0) ? *(const uint32_t *)b : 0,
                           row && exists(k, 1) ? *(const uint32_t *)(b + 8) : 0);
        } else {
            const uint16_t *b = K + (8 * n + lane / 4) * K_stride + 16 * k + lane % 4 * 2;
            mma<cfg.dtype>(S[n], a, *(const uint32_t *)b, *(const uint32_t *)(b + 8));
        }
    };
    constexpr int tiles = 2 * key_steps<cfg>, at_once = cfg.extended ? 1 : tiles; /* addresses of keys take registers */
    for (int first = 0; first < tiles; first += at_once)
#pragma unroll 1
        for (int k = 0; k < cfg.d_head / 16; k++) {
            load_columns(k);
            for (int n = first; n < first + at_once; n++) multiply(k, n);
        }
}

/* ---- ping_pong: consumers take turns by named barriers, at which one waits and the other only arrives ---- */

template <attention_config cfg>
__device__ __forceinline__ void wait_for_turn(int group) {
    if constexpr (cfg.ping_pong) bar_sync(1 + group, 2 * group_threads);
}
template <attention_config cfg>
__device__ __forceinline__ void pass_turn(int group) {
    if constexpr (cfg.ping_pong) bar_arrive(1 + (group + 1) % consumers<cfg>, 2 * group_threads);
}

/* ---- sequences of several lengths ---- */

template <attention_config cfg>
__device__ __forceinline__ auto read_any_tile(const smem_layout<cfg> &at, int turn) {
    if constexpr (cfg.packs)
        return read_packed_tile(at.queue, turn);
    else if constexpr (splits_keys<cfg>)
        return read_part_tile(at.queue, turn);
    else if constexpr (cfg.serves)
        return read_varlen_tile(at.queue, turn);
    else
        return read_tile(at.queue, turn);
}

/* Rows of a KV block that some row of the Q block may attend to, from `first` to `end` - 1. The window hides the rows
 * before them, whose page may have been freed. The rows after them belong to the next sequence or are uninitialized.
 * Their scores are masked, but 0 times a NaN of V is NaN. So a warp, the sweeper, makes them zeros before the consumers
 * know of the block. */
struct rows_in_use {
    int first, end;
};
template <attention_config cfg>
__device__ __forceinline__ rows_in_use find_rows_in_use(const serving_args &args, const auto &tile, int block) {
    const key_range range = find_key_range(args, tile.seq.seq_q, tile.seq.seq_k);
    const int key = block * cfg.B_c, first = first_query(tile) + range.first;
    return {min(max(0, first - key), cfg.B_c), min(max(0, tile.seq.seq_k - key), cfg.B_c)};
}
template <attention_config cfg>
__device__ __forceinline__ bool is_swept(const rows_in_use &rows) {
    return rows.first > 0 || rows.end < cfg.B_c;
}

/* Zeros for rows from `row` to `end` - 1 of a block, 16 bytes a lane at a time; the swizzle permutes bytes within a
 * row. */
template <attention_config cfg>
__device__ __forceinline__ void clear_rows(uint32_t block, int row, int end, int lane) {
    for (int tile = 0; tile < V_bytes<cfg> / (cfg.B_c * tile_row_bytes); tile++)
#pragma unroll 1
        for (int at = row * tile_row_bytes + 16 * lane; at < end * tile_row_bytes; at += 16 * 32)
            store_shared_v4(block + tile * cfg.B_c * tile_row_bytes + at, 0, 0, 0, 0);
}

template <attention_config cfg>
__device__ __forceinline__ void sweep(const args_of<cfg> &args, const smem_layout<cfg> &at) {
    const int lane = threadIdx.x % 32;
    int copied = 0, swept = 0; /* blocks, for all Q blocks */
    const auto sweep_block = [&](int n, const rows_in_use &rows) {
        if (!is_swept<cfg>(rows)) return;
        wait_for_phase(at.landed(swept), swept / cfg.stages);
        if constexpr (may_skip_blocks<cfg>)
            if (args.block_mask) n = load_shared(at.swept(swept));
        clear_rows<cfg>(at.V.stage(n), 0, rows.first, lane);
        clear_rows<cfg>(at.V.stage(n), rows.end, cfg.B_c, lane);
        fence_proxy_async(); /* wgmma reads by the async proxy */
        __syncwarp();
        if (lane == 0) mbarrier_arrive(at.V.full(n));
        swept++;
    };
    for (int turn = 0;; turn++) {
        at.queue.wait_until_full(turn);
        const auto first = read_any_tile<cfg>(at, turn);
        __syncwarp();
        if (lane == 0) mbarrier_arrive(at.queue.empty(turn));
        if (first.row < 0) break;
        const int last_block = first.KV_blocks - 1, blocks = first.KV_blocks - first.first_block;
        sweep_block(copied, find_rows_in_use<cfg>(args, first, last_block));
        if (blocks > 1) sweep_block(copied + blocks - 1, find_rows_in_use<cfg>(args, first, first.first_block));
        copied += blocks;
    }
}

/* ---- the producer: one thread, which starts all copies ---- */

template <attention_config cfg>
struct producer {
    const args_of<cfg> &args;
    const tensor_maps &maps;
    const smem_layout<cfg> &at;

    __device__ __forceinline__ const tensor_map &map_of_V() const {
        if constexpr (cfg.latent) return maps.K;
        return maps.V;
    }

    /* V is copied a block after K, unless K holds it. */
    static constexpr int V_behind = cfg.latent ? 0 : 1;

    template <int bytes>
    static constexpr int tiles_of = bytes / (cfg.B_c * tile_row_bytes);

    /* The first tile of this CTA's columns, of `tiles`. */
    static __device__ __forceinline__ int first_tile(int tiles) {
        return shares_rows_in_cluster<cfg> ? cluster_rank() * tiles : 0;
    }

    /* Copy rows of Q, K or V to a block whose tiles have `tile_rows` rows. If they may be shorter than the block's, the
     * map has the elements of a row in one dimension, and a copy of one tile fills its missing columns with zeros. */
    template <int tile_rows, int tiles>
    __device__ __forceinline__ void copy_rows(uint32_t smem, const tensor_map &map, uint32_t full, int row, int head,
                                              int sample) const {
        if constexpr (cfg.extended)
            for (int tile = 0; tile < tiles; tile++)
                copy_heads_to_smem(smem + tile * tile_rows * tile_row_bytes, map, full, row, first_tile(tiles) + tile,
                                   head, sample);
        else
            copy_tensor_to_smem(smem, map, full, row, head, sample);
    }

    /* Block number n of the CTA. It may be copied once all consumers have read the block before it in the stage. */
    template <int bytes>
    __device__ __forceinline__ void copy_block(const ring<cfg.stages, bytes> &blocks, const tensor_map &map, int n,
                                               const KV_position &from) const {
        blocks.wait_until_empty(n);
        mbarrier_arrive_expect_tx(blocks.full(n), bytes);
        copy_rows<cfg.B_c, tiles_of<bytes>>(blocks.stage(n), map, blocks.full(n), from.row, from.head, from.sample);
    }

    /* Start copy number n of Q: the parts from `part` on that one copy brings. */
    __device__ __forceinline__ void copy_Q(int n, int part, const auto &first) const {
        const uint32_t smem = at.Q_stage(n), full = at.Q.full(n);
        at.Q.wait_until_empty(n);
        mbarrier_arrive_expect_tx(full, parts_at_once<cfg> * Q_bytes<cfg>);
        const Q_origin from = find_Q_origin(first);
        for (int i = 0; i < parts_at_once<cfg>; i++) {
            const uint32_t to = smem + i * Q_bytes<cfg>;
            if constexpr (cfg.packs)
                if (first.packing.shift) {
                    copy_heads_of_Q(to, full, first.packing.query((part + i) * group_rows), first);
                    continue;
                }
            copy_rows<group_rows, QK_columns<cfg> / 64>(to, maps.Q, full, from.row + (part + i) * group_rows,
                                                        first.head, from.sample);
        }
    }

    /* Copy a part of a Q block that packs several heads, from its query number `query` on. */
    __device__ __forceinline__ void copy_heads_of_Q(uint32_t smem, uint32_t full, int query,
                                                    const packed_tile &first) const {
        const Q_origin from = find_Q_origin(first);
        for (int tile = 0; tile < cfg.d_head / 64; tile++)
            copy_heads_to_smem(smem + tile * group_rows * tile_row_bytes, map_of_groups(maps), full, from.row + query,
                               tile, first.KV_head, from.sample);
    }

    __device__ __forceinline__ auto take_tile(int turn) const {
        at.queue.wait_until_full(turn);
        const auto first = read_any_tile<cfg>(at, turn);
        mbarrier_arrive(at.queue.empty(turn));
        return first;
    }

    /* V of a block that is swept: the sweeper passes it on to the consumers. */
    __device__ __forceinline__ void copy_to_sweeper(int n, int swept, const KV_position &from) const {
        at.V.wait_until_empty(n);
        if constexpr (may_skip_blocks<cfg>)
            if (args.block_mask) store_shared(at.swept(swept), n);
        mbarrier_arrive_expect_tx(at.landed(swept), V_bytes<cfg>);
        copy_rows<cfg.B_c, tiles_of<V_bytes<cfg>>>(at.V.stage(n), map_of_V(), at.landed(swept), from.row, from.head,
                                                   from.sample);
    }

    /* Only the last and the first block of a Q block may have rows that none of its rows attends to. */
    __device__ __forceinline__ bool sweeps(const auto &first, int block) const {
        const bool at_end = block == first.KV_blocks - 1 || block == first.first_block;
        return at_end && is_swept<cfg>(find_rows_in_use<cfg>(args, first, block));
    }

    /* Produce for windows and varlen batches. There may be no Q block. */
    __device__ __forceinline__ void produce_for_sequences() const {
        int copied = 0, swept = 0; /* blocks, for all Q blocks */
        bool sweep_V = false;
        KV_position V_from;
        const auto copy_V = [&] {
            if (sweep_V)
                copy_to_sweeper(copied - V_behind, swept++, V_from);
            else
                copy_block(at.V, map_of_V(), copied - V_behind, V_from);
        };
        for (int turn = 0;; turn++) {
            const auto first = take_tile(turn);
            if (first.row < 0) break;
            const int last = first.KV_blocks - 1, ahead = min(blocks_ahead, first.KV_blocks - first.first_block) - 1;
            copy_Q(turn * Q_copies<cfg>, 0, first);
#pragma unroll 1
            for (int block = last; block >= first.first_block; block--, copied++) {
                if (block - first.first_block == ahead) mbarrier_arrive(at.fetch);
                const KV_position K_from = find_KV_block<cfg.B_c>(first, block);
                if (!cfg.latent) copy_block(at.K, maps.K, copied, K_from);
                if (!cfg.latent && copied > 0) copy_V();
                V_from = K_from, sweep_V = sweeps(first, block);
                if (cfg.latent) copy_V();
                if (Q_parts<cfg> && block == last)
                    for (int copy = 1; copy < Q_copies<cfg>; copy++) copy_Q(turn * Q_copies<cfg> + copy, copy, first);
            }
        }
        if (!cfg.latent && copied > 0) copy_V();
    }

    /* ---- with a block mask: all lanes of the warp find the blocks, and the first one copies them ---- */

    __device__ __forceinline__ void produce_visible() const
        requires(may_skip_blocks<cfg>)
    {
        const bool leads = threadIdx.x == 0;
        int copied = 0, swept = 0; /* blocks, for all Q blocks */
        bool sweep_V = false;
        KV_position V_from;
        const auto copy_V = [&] {
            if (leads && sweep_V) copy_to_sweeper(copied - 1, swept, V_from);
            if (leads && !sweep_V) copy_block(at.V, maps.V, copied - 1, V_from);
            swept += sweep_V;
        };
        for (int turn = 0;; turn++) {
            at.queue.wait_until_full(turn);
            const auto first = read_any_tile<cfg>(at, turn);
            arrive_as_warp(at.queue.empty(turn));
            if (first.row < 0) break;
            visible_blocks<cfg> blocks{args, first};
            bool fetches = true;
            if (leads) copy_Q(turn * Q_copies<cfg>, 0, first);
            int block;
            uint32_t kinds;
#pragma unroll 1
            for (; blocks.find_next(block, kinds); copied++) {
                if (leads && fetches && block - first.first_block < blocks_ahead)
                    mbarrier_arrive(at.fetch), fetches = false;
                const KV_position K_from = find_KV_block<cfg.B_c>(first, block);
                if (leads) {
                    at.K.wait_until_empty(copied);
                    store_shared(at.visible(copied), block << 8 | kinds);
                    copy_block(at.K, maps.K, copied, K_from);
                }
                if (copied > 0) copy_V();
                V_from = K_from, sweep_V = sweeps(first, block);
                if (Q_parts<cfg> && leads && block == first.KV_blocks - 1)
                    for (int copy = 1; copy < Q_copies<cfg>; copy++) copy_Q(turn * Q_copies<cfg> + copy, copy, first);
            }
        }
        if (copied > 0) copy_V();
    }

    /* ---- K and V in pages: all lanes of the warp call these together ---- */

    using copies_of_block = page_copies<cfg.B_c, cfg.extended>;

    __device__ __forceinline__ void copy_Q_by_warp(int n, int part, const auto &first) const {
        at.Q.wait_until_empty(n);
        if (threadIdx.x == 0) copy_Q(n, part, first);
    }

    /* Block number n of the CTA. */
    template <int bytes>
    __device__ __forceinline__ void copy_pages(const ring<cfg.stages, bytes> &blocks, const tensor_map &map, int n,
                                               uint32_t full, const copies_of_block &copies,
                                               const KV_position &from) const {
        blocks.wait_until_empty(n);
        if (copies.lane == 0) mbarrier_arrive_expect_tx(full, bytes);
        __syncwarp(); /* no byte comes before it is expected */
        if (!copies.are_mine(tiles_of<bytes>)) return;
        const uint32_t smem = blocks.stage(n) + copies.bytes_before();
        if constexpr (cfg.extended)
            copy_heads_to_smem(smem, map, full, from.row, first_tile(tiles_of<bytes>) + copies.tile, from.head,
                               from.sample);
        else
            copy_tile_to_smem(smem, map, full, from.row, copies.tile, from.head, from.sample);
    }

    /* Produce for one length: as produce_for_sequences(). Numbers of pages are read a block ahead. */
    __device__ __forceinline__ void produce_from_pages() const {
        const copies_of_block copies{args};
        int copied = 0, swept = 0; /* blocks, for all Q blocks */
        bool sweep_V = false;
        KV_position V_from;
        const auto copy_V = [&] {
            const int n = copied - V_behind;
            copy_pages(at.V, map_of_V(), n, sweep_V ? at.landed(swept) : at.V.full(n), copies, V_from);
            swept += sweep_V;
        };
        for (int turn = 0;; turn++) {
            at.queue.wait_until_full(turn);
            const auto first = read_any_tile<cfg>(at, turn);
            __syncwarp();
            if (copies.lane == 0) mbarrier_arrive(at.queue.empty(turn));
            if (first.row < 0) break;
            const int last = first.KV_blocks - 1, ahead = min(blocks_ahead, first.KV_blocks - first.first_block) - 1;
            KV_position K_from = copies.find(first, last);
            copy_Q_by_warp(turn * Q_copies<cfg>, 0, first);
#pragma unroll 1
            for (int block = last; block >= first.first_block; block--, copied++) {
                const KV_position next = copies.find(first, max(block - 1, 0));
                if (copies.lane == 0 && block - first.first_block == ahead) mbarrier_arrive(at.fetch);
                if (!cfg.latent) copy_pages(at.K, maps.K, copied, at.K.full(copied), copies, K_from);
                if (!cfg.latent && copied > 0) copy_V();
                V_from = K_from, K_from = next;
                sweep_V = sweeps(first, block);
                if (cfg.latent) copy_V();
                if (Q_parts<cfg> && block == last)
                    for (int copy = 1; copy < Q_copies<cfg>; copy++)
                        copy_Q_by_warp(turn * Q_copies<cfg> + copy, copy, first);
            }
        }
        if (!cfg.latent && copied > 0) copy_V();
    }

    /* ---- K and V of one length for all ---- */

    /* V is copied after the K of the next block, as it is read after that. */
    __device__ __forceinline__ void produce() const {
        int copied = 0; /* K blocks, for all Q blocks */
        KV_position V_from;
        for (int turn = 0;; turn++) {
            const work_tile first = take_tile(turn);
            if (first.row < 0) break;
            copy_Q(turn * Q_copies<cfg>, 0, first); /* its stage is free while the consumers read the Q block before */
#pragma unroll 1
            for (int block = first.KV_blocks - 1; block >= 0; block--, copied++) {
                if (block == min(blocks_ahead, first.KV_blocks) - 1) mbarrier_arrive(at.fetch);
                const KV_position K_from = find_KV_block<cfg.B_c>(first, block);
                copy_block(at.K, maps.K, copied, K_from);
                if (copied > 0) copy_block(at.V, maps.V, copied - 1, V_from);
                V_from = K_from;
                /* The last V of the Q block before is copied ahead of everything that waits for its end. */
                if (Q_parts<cfg> && block == first.KV_blocks - 1)
                    for (int copy = 1; copy < Q_copies<cfg>; copy++) copy_Q(turn * Q_copies<cfg> + copy, copy, first);
            }
        }
        copy_block(at.V, maps.V, copied - 1, V_from);
    }
};

/* ---- a consumer: a warpgroup with 64 rows of each Q block ---- */

/* State of a consumer's Q block: its first row, or -1 if no work is left; the number of KV blocks that only other
 * consumers' rows attend to, which come first; and the number that its own rows attend to. */
struct Q_share {
    int row, unseen_blocks, seen_blocks;
};

/* Additional state for varlen batches and windows: the key range of the queries, the rows of the sequence, the shift
 * from a row to its query, the first key of the last KV block that is copied for the Q block, and the keys, counted
 * from there, that all rows attend to. */
template <bool serves>
struct served_share {
    key_range range;
    int rows, shift, last_key;
    common_keys common;
};
template <>
struct served_share<false> {};

/* For biases, the largest scores, dropout and block masks: where the bias begins for the Q block, the number of its
 * sequence and head, the kind of the KV block whose S comes next, the largest score of the lane so far, and whether all
 * blocks so far were hidden. */
template <bool biased>
struct bias_share {
    bias_origin origin;
    uint32_t sequence_and_head;
    int kind;
    float most;
    bool all_hidden;
};
template <>
struct bias_share<false> {};

/* Arrays that must stay in registers are separate variables, to which the struct refers, because the compiler splits a
 * struct only once every index into it is constant, which is too late for other optimizations. */
template <attention_config cfg>
struct consumer {
    const args_of<cfg> &args;
    const tensor_maps &maps;
    const smem_layout<cfg> &at;
    const int group;
    S_tiles<cfg> &S;
    Q_fragments<cfg> &Q;
    P_fragments<cfg> &P;
    O_tiles<cfg> &O;
    row_values &m, &l, &factor;

    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const bool leads = threadIdx.x % group_threads == 0;  /* the thread that arrives for the consumer */
    const float scale = 1.44269504f * score_factor(args); /* exponentials have base 2: log2(e) */

    /* Position of the consumer: the Q block and the KV block, both numbered for this CTA, its part of the Q block, and
     * the first key of the KV block whose S comes next. */
    int turn = 0, block = 0, key;
    int halves = 0; /* of S that CTAs of a cluster have exchanged */
    Q_share share;
    served_share<cfg.serves> served;
    bias_share<cfg.biased> bias;
    int unmasked_from; /* with `extend`: the first key from which on blocks may need no mask, cap and bias */
    const std::conditional_t<cfg.drops, dropout_key, no_dropout> random{args};
    float sum_limit; /* a block with larger sums is computed again; -1 if the warp has a large row (softmax.cuh) */

    debug_names<cfg> names;

    /* ---- Q ---- */

    /* The part of a Q block that this consumer owns. With a causal mask the parts attend to different numbers of KV
     * blocks, so a consumer alternates between the first and the last part. */
    __device__ __forceinline__ int part_of(int turn) const {
        if constexpr (shares_rows<cfg>) return 0;
        return args.causal && turn % 2 ? consumers<cfg> - 1 - group : group;
    }
    /* The part of the columns of V and O, and that of the tiles in shared memory. */
    __device__ __forceinline__ int V_part() const { return shares_rows_in_cluster<cfg> ? cluster_rank() : smem_part(); }
    __device__ __forceinline__ int smem_part() const { return shares_rows<cfg> ? group : 0; }
    /* The number of the copy that brings the part, and the addresses of the part and of this warp's first row. */
    __device__ __forceinline__ int Q_copy(int turn) const {
        return Q_parts<cfg> ? turn * row_groups<cfg> + part_of(turn) : turn;
    }
    __device__ __forceinline__ uint32_t Q_part(int turn) const {
        return at.Q_stage(Q_copy(turn)) + (Q_parts<cfg> ? 0 : part_of(turn)) * Q_bytes<cfg>;
    }
    __device__ __forceinline__ uint32_t Q_rows(int turn) const { return Q_part(turn) + 16 * warp * tile_row_bytes; }

    __device__ __forceinline__ void take_Q(int turn) {
        at.Q.wait_until_full(Q_copy(turn));
        if constexpr (Q_in_registers<cfg>) load_Q<cfg>(Q, Q_rows(turn), lane);
        if constexpr (Q_steps_in_registers<cfg> > 0) load_steps_of_Q<cfg>(Q, Q_rows(turn), 4 * smem_part(), lane);
    }

    __device__ __forceinline__ Q_share find_share(int turn) {
        at.queue.wait_until_full(turn);
        const auto tile = read_any_tile<cfg>(at, turn);
        names.take(args, tile);
        const int first = warp_uniform(tile.row), blocks = warp_uniform(tile.KV_blocks);
        const int row = first + part_of(turn) * group_rows;
        int end = row + group_rows; /* of the queries */
        if constexpr (cfg.packs) {
            served.shift = warp_uniform(tile.packing.shift);
            end = query(end - 1) + 1;
        }
        if constexpr (cfg.serves) {
            served.rows = warp_uniform(tile.seq.seq_q);
            served.range = find_key_range(args, served.rows, warp_uniform(tile.seq.seq_k));
            if constexpr (cfg.packs) served.rows <<= served.shift;
            served.last_key = warp_uniform(tile.first_block) * cfg.B_c;
            const common_keys common = find_common_keys(served.range, query(row), end);
            served.common = {warp_uniform(max(common.first, served.last_key)), warp_uniform(common.end)};
            unmasked_from = changes_scores() ? 0x7fffffff : served.common.first;
            if constexpr (cfg.biased) {
                const int sample = warp_uniform(max(tile.sample, 0)), head = warp_uniform(tile.head);
                bias = {find_bias(args, sample, head), (uint32_t)sample * args.heads + head, BLOCK_PARTIAL, -INFINITY,
                        true};
                if (skips_blocks()) return Q_share{first < 0 ? -1 : row, 0, blocks};
            }
        }
        int seen = count_seen<cfg.B_c>(keys_of_rows(), end, blocks);
        /* A part may have no block that these rows attend to: then they have one, whose scores are all masked. */
        if constexpr (splits_keys<cfg>) seen = max(seen, warp_uniform(tile.first_block) + 1);
        return Q_share{first < 0 ? -1 : row, blocks - seen, seen};
    }

    /* The query that a row is of. */
    __device__ __forceinline__ int query(int row) const {
        if constexpr (cfg.packs)
            return row >> served.shift;
        else
            return row;
    }

    /* The object that mask.cuh's functions query. */
    __device__ __forceinline__ const auto &keys_of_rows() const {
        if constexpr (cfg.serves)
            return served.range;
        else
            return args;
    }
    __device__ __forceinline__ int last_key() const {
        if constexpr (cfg.serves) return served.last_key;
        return 0;
    }
    __device__ __forceinline__ bool masks(int key) const {
        /* A function of the first term would take registers, as one for the body of change_and_mask_S() would. */
        if constexpr (cfg.biased)
            return (args.block_mask && (is_hidden() || biases() || all_were_hidden())) || key < unmasked_from ||
                   key + cfg.B_c > served.common.end;
        else if constexpr (cfg.extended)
            return key < unmasked_from || key + cfg.B_c > served.common.end;
        else if constexpr (cfg.serves)
            return is_masked<cfg.B_c>(served.common, key);
        else
            return is_masked<cfg.B_c>(args, share.row, key);
    }

    /* ---- K and V ---- */

    __device__ __forceinline__ void start_S(int block, int turn) {
        constexpr int half_tile = 4; /* 64 bytes */
        at.K.wait_until_full(block);
        start_QK<cfg>(S, Q, matrix_at<cfg>(Q_part(turn), 0) + smem_part() * half_tile,
                      at.K_matrix(block) + smem_part() * half_tile);
    }
    __device__ __forceinline__ void start_O(int block) {
        at.V.wait_until_full(block);
        start_PV<cfg>(O, P, at.V_matrix(block) + smem_part() * (V_columns<cfg> / 64 * cfg.B_c * tile_row_bytes / 16));
    }

    /* Release a block of a ring unread, once all warps of the consumer have observed its arrival. */
    template <int bytes>
    __device__ __forceinline__ void pass_block(const ring<cfg.stages, bytes> &blocks, int block) const {
        blocks.wait_until_full(block);
        bar_sync(1 + consumers<cfg> + group, group_threads);
        if (leads) mbarrier_arrive(blocks.empty(block));
    }
    __device__ __forceinline__ void pass_K(int block) const {
        wait_for_turn<cfg>(group);
        pass_block(at.K, block);
        pass_turn<cfg>(group);
    }

    /* S is computed: release K, unless it holds V, too, and, if no other S follows, the part of Q in the ring. If some
     * of Q is in registers, all warps must have loaded it, as they have at the barriers of add_other_half(). */
    __device__ __forceinline__ void release_K_and_add_other_half(int block, int turn, bool last) {
        if (leads && !cfg.latent) mbarrier_arrive(at.K.empty(block));
        if (!Q_steps_in_registers<cfg>) release_Q(turn, last);
        add_other_half();
        if (Q_steps_in_registers<cfg>) release_Q(turn, last);
    }
    __device__ __forceinline__ void release_Q(int turn, bool last) const {
        if (Q_parts<cfg> && leads && last) mbarrier_arrive(at.Q.empty(Q_copy(turn)));
    }
    __device__ __forceinline__ void release_V(int block) const {
        if (leads) mbarrier_arrive(at.V.empty(block));
        names.dump_PO(args, P, O);
    }

    /* ---- from S to P ---- */

    /* With shared rows: leave this half of S to the other consumer, and add its half. The sum is the same in both. */
    __device__ __forceinline__ void add_other_half() {
        if constexpr (shares_rows<cfg>) {
            constexpr int stored = 1 + 2 * consumers<cfg>, loaded = stored + 1; /* named barriers */
            const uint32_t mine = at.O + threadIdx.x % group_threads * 16 + group * S_bytes<cfg>,
                           others = mine + (1 - 2 * group) * S_bytes<cfg>;
            const auto at_tile = [](int n) { return n * group_threads * 16; };
            bar_sync(loaded, 2 * group_threads); /* the other one has the half before */
            for (int n = 0; n < 2 * key_steps<cfg>; n++)
                store_shared_v4(mine + at_tile(n), __float_as_int(S[n][0]), __float_as_int(S[n][1]),
                                __float_as_int(S[n][2]), __float_as_int(S[n][3]));
            bar_sync(stored, 2 * group_threads);
            for (int n = 0; n < 2 * key_steps<cfg>; n++) {
                int half[4];
                load_shared_v4(others + at_tile(n), half[0], half[1], half[2], half[3]);
                for (int e = 0; e < 4; e++) S[n][e] += __int_as_float(half[e]);
            }
        }
        if constexpr (shares_rows_in_cluster<cfg>) add_half_of_other_cta();
    }
    /* The same, with the warp of these rows in the other CTA of the cluster. */
    __device__ __forceinline__ void add_half_of_other_cta() {
        constexpr int tiles = 2 * key_steps<cfg> / S_pieces, piece_bytes = S_bytes<cfg> / 4 / S_pieces;
        const int other = 1 - cluster_rank(), number = 4 * group + warp;
        const uint32_t mine = at.O + number * (S_bytes<cfg> / 4) + 16 * lane, others = address_in_cluster(mine, other);
        const auto at_tile = [](int n) { return n * 32 * 16; };
        wait_for_phase(at.half_read(number), halves - 1);
        for (int n = 0; n < 2 * key_steps<cfg>; n++)
            store_async_v4(others + at_tile(n), address_in_cluster(at.half_landed(number, n / tiles), other), S[n]);
        if (lane < S_pieces) mbarrier_arrive_expect_tx(at.half_landed(number, lane), piece_bytes);
        for (int n = 0; n < 2 * key_steps<cfg>; n++) {
            int half[4];
            if (n % tiles == 0) wait_for_phase(at.half_landed(number, n / tiles), halves);
            load_shared_v4(mine + at_tile(n), half[0], half[1], half[2], half[3]);
            for (int e = 0; e < 4; e++) S[n][e] += __int_as_float(half[e]);
        }
        halves++;
        __syncwarp();
        if (lane == 0) mbarrier_arrive_in_cluster(address_in_cluster(at.half_read(number), other));
    }

    /* Factor of the scores. With a cap S is in units of the cap. */
    static __device__ __forceinline__ float score_factor(const args_of<cfg> &args) {
        if constexpr (cfg.cap) return args.softcap;
        if constexpr (cfg.extended)
            if (args.softcap > 0) return args.softcap;
        return args.softmax_scale;
    }
    __device__ __forceinline__ void cap_S() {
        if constexpr (cfg.cap) cap(S, args.softmax_scale / args.softcap);
    }

    __device__ __forceinline__ bool skips_blocks() const {
        if constexpr (may_skip_blocks<cfg>) return args.block_mask;
        return false;
    }
    /* True if every block gets a bias or a soft cap. Without them a block runs none of that code. */
    __device__ __forceinline__ bool changes_scores() const {
        if constexpr (cfg.biased) return args.softcap > 0 || args.alibi_slopes || (args.bias && !skips_blocks());
        if constexpr (cfg.extended) return args.softcap > 0;
        return false;
    }
    /* The same for this block. */
    __device__ __forceinline__ bool changes_block() const { return changes_scores() || biases(); }
    __device__ __forceinline__ bool biases() const {
        if constexpr (cfg.biased) return args.bias && bias.kind == BLOCK_PARTIAL;
        return false;
    }
    /* True if the block mask hides the KV block from the consumer's rows, but not from those of others. */
    __device__ __forceinline__ bool is_hidden() const {
        if constexpr (cfg.biased) return bias.kind == BLOCK_HIDDEN;
        return false;
    }
    /* The first block that is not hidden is masked: m is not yet known, and without that the scores would be computed
     * again. */
    __device__ __forceinline__ bool all_were_hidden() const { return finds_first_visible<cfg> && bias.all_hidden; }
    __device__ __forceinline__ void find_bias_rows(bias_row (&rows)[2]) const {
        for (int half = 0; half < 2; half++) {
            const int query = min(share.row + 16 * warp + lane / 4 + 8 * half, served.rows - 1);
            rows[half] = find_bias_row(args, bias.origin, query, query + served.range.seq_k - served.rows);
        }
    }
    __device__ __forceinline__ void change_scores() {
        row_values most;
        bias_row rows[2];
        find_bias_rows(rows);
        ::change_scores<cfg.dtype>(S, args, rows, key, served.range.seq_k, 1 / score_factor(args), lane, most,
                                   biases());
        if (args.max_logits) count_largest(most);
    }
    __device__ __forceinline__ void change_and_mask_S() {
        if constexpr (cfg.extended) {
            if (args.softcap > 0) cap(S, args.softmax_scale / args.softcap);
            const bool masked = is_hidden() || is_masked<cfg.B_c>(served.common, key);
            if constexpr (cfg.biased) {
                if (finds_first_visible<cfg> && !is_hidden()) bias.all_hidden = false;
                if (masked && args.max_logits) mask_S();
                if (biases() || args.alibi_slopes)
                    change_scores();
                else
                    count_largest();
            }
            if (!masked) return;
        }
        mask_S();
    }

    /* Rows past the end of a sequence do not count. */
    __device__ __forceinline__ void count_largest(const row_values &of_rows) {
        const int rows = served.rows - (share.row + 16 * warp + lane / 4);
        bias.most = fmaxf(bias.most, fmaxf(rows > 0 ? of_rows[0] : -INFINITY, rows > 8 ? of_rows[1] : -INFINITY));
    }
    __device__ __forceinline__ void count_largest() {
        if constexpr (cfg.biased) {
            if (!args.max_logits) return;
            row_values of_rows;
            find_lane_max(of_rows, S);
            count_largest(of_rows);
        }
    }
    /* At the end of a Q block. */
    __device__ __forceinline__ void store_largest() const {
        if constexpr (cfg.biased) {
            if (!args.max_logits) return;
            const float largest = unordered(warp_uniform(ordered(bias.most)));
            if (lane == 0 && largest > -INFINITY)
                raise(args.max_logits + bias.sequence_and_head, largest * score_factor(args));
        }
    }

    __device__ __forceinline__ void mask_S() {
        if constexpr (cfg.serves) {
            const auto of = [&](int row) { return query(share.row + 16 * warp + row); };
            const auto row_first = [&](int row) { return of(row) + served.range.first - key; };
            const auto row_end = [&](int row) { return is_hidden() ? 0 : seen_keys(served.range, of(row) + 1) - key; };
            mask(S, row_first, row_end, lane);
        } else
            mask(S, [&](int row) { return seen_keys(args, share.row + 16 * warp + row + 1) - key; }, lane);
    }

    /* Let m catch up with S in the rows for which `chosen` is true, and find sum_limit. */
    __device__ __forceinline__ void catch_up(row_values &m, row_values &l, const auto &chosen) {
        row_values lane_max, m_before = {m[0], m[1]}, l_before = {l[0], l[1]};
        find_lane_max(lane_max, S);
        update_m(m, l, factor, lane_max, scale);
        for (int half = 0; half < 2; half++)
            if (!chosen(half)) m[half] = m_before[half], l[half] = l_before[half], factor[half] = 1;
        sum_limit = __any_sync(0xffffffff, is_large(m[0]) || is_large(m[1])) ? -1 : most_sum<cfg.dtype>;
    }
    __device__ __forceinline__ void catch_up(row_values &m, row_values &l) {
        catch_up(m, l, [](int) { return true; });
    }

    /* S = exp(S - m), and sum += its sums, also in large rows. The loop has no registers for the scale of each row: it
     * uses one for all rows, and computes the blocks of a warp with large rows again. */
    __device__ __forceinline__ void exponentiate_any(row_values &sum, const row_values &m) {
        row_values scales;
        find_scales(scales, m, scale);
        exponentiate<cfg.exp_columns>(S, sum, m, scales);
    }

    /* The first S of a Q block: m is its maximum. */
    __device__ __forceinline__ void use_first_S(int block, int turn, row_values &m, row_values &l) {
        release_K_and_add_other_half(block, turn, key == last_key());
        cap_S();
        if (masks(key))
            change_and_mask_S();
        else
            count_largest();
        names.dump_S(args, S, share.row + 16 * warp, key);
        catch_up(m, l);
        exponentiate_any(l, m);
        names.dump_ml(args, m, l, scale);
    }

    __device__ __forceinline__ const uint16_t *find_K(const auto &first, int key) const {
        const KV_position from = find_KV_block<cfg.B_c>(first, 0);
        return find_row(args.K, args.K_strides, from.sample, first.KV_head, from.row + key);
    }
    /* Address of each row from `key` on in K that may be paged; NULL for a missing page. */
    __device__ __forceinline__ auto find_K(const auto &first, int key) const
        requires(may_be_paged<cfg>)
    {
        return [=, this](int row) -> const uint16_t * {
            if constexpr (cfg.extended)
                if (!args.pages)
                    return find_row(args.K, args.K_strides, first.seq.KV_sample, first.KV_head,
                                    first.seq.first_k + key + row);
            const int page = find_page(args, first, key + row);
            if ((unsigned)page >= (unsigned)args.n_pages) return NULL;
            return find_row(args.K, args.K_strides, page, first.KV_head, key + row & args.page_rows - 1);
        };
    }

    __device__ __forceinline__ const uint16_t *find_Q(const auto &first, int64_t row) const {
        return find_row(args.Q, args.Q_strides, find_Q_origin(first).sample, first.head,
                        row + first_row_of(sequence_of(first)));
    }
    /* Address of each packed row from `row` on; NULL if it belongs to no query or head. */
    __device__ __forceinline__ auto find_Q(const packed_tile &first, int64_t row) const {
        return [=, this](int n) -> const uint16_t * {
            const sequence &seq = first.seq;
            const int i = row + n;
            if (!first.packing.has(i, seq.seq_q)) return NULL;
            return find_row(args.Q, args.Q_strides, seq.Q_sample, first.head + first.packing.head(i),
                            seq.first_q + first.packing.query(i));
        };
    }

    /* The exponentials of a row do not fit, or the warp has large rows: compute the scores again, whose registers they
     * have taken. The m of other rows stays, so that the bits of a row do not depend on those in the same warp. No
     * block of a launch that changes scores comes here. */
    __device__ __forceinline__ void use_S_again(row_values &sum, bool masked) {
        const auto first = read_any_tile<cfg>(at, turn);
        const int64_t Q_row = share.row + 16 * warp;
        bool outgrown[2];
        for (int half = 0; half < 2; half++) {
            const unsigned lanes = __ballot_sync(0xffffffff, !(sum[half] <= most_sum<cfg.dtype>));
            outgrown[half] = is_large(m[half]) || (lanes >> (lane & ~3) & 15); /* four lanes share a row */
        }
        compute_S_again<cfg>(S, Q_rows(turn), find_Q(first, Q_row), args.Q_strides.seq,
                             sequence_of(first).seq_q - 1 - Q_row, find_K(first, key), args.K_strides.seq,
                             row_elements<cfg>(args), lane);
        cap_S();
        if (masked) mask_S();
        catch_up(m, l, [&](int half) { return outgrown[half]; });
        sum[0] = sum[1] = 0;
        exponentiate_any(sum, m);
    }

    /* State of the lane's rows. Rows past the end of a sequence may belong to another one. They are ignored, so that no
     * result depends on them. */
    __device__ __forceinline__ float largest_sum(const row_values &sum) const {
        if constexpr (cfg.serves) {
            const int rows = served.rows - (share.row + 16 * warp + lane / 4);
            return fmaxf(rows > 0 ? sum[0] : 0, rows > 8 ? sum[1] : 0);
        }
        return fmaxf(sum[0], sum[1]);
    }

    /* A masked block may be the first whose keys a row attends to. With `serve`, m is found in such rows alone, because
     * the bits of a row must not depend on which rows share its Q block, as chunks of a prompt do. */
    __device__ __forceinline__ void catch_up_in_masked_block() {
        const bool begins[] = {m[0] == no_maximum, m[1] == no_maximum};
        catch_up(m, l, [&](int half) { return !cfg.serves || changes_block() || begins[half]; });
    }

    /* A later S: m may lag behind. Returns whether O, a sum over the blocks before, must be multiplied by `factor`. */
    __device__ __forceinline__ bool use_S(int block, bool masked) {
        release_K_and_add_other_half(block, turn, key == last_key());
        cap_S();
        if (masked)
            change_and_mask_S();
        else
            count_largest();
        names.dump_S(args, S, share.row + 16 * warp, key);
        row_values sum = {};
        if (masked) {
            catch_up_in_masked_block();
            exponentiate_any(sum, m);
        } else {
            exponentiate<cfg.exp_columns>(S, sum, m, {scale, scale});
        }
        /* also for a NaN */
        const float limit = masked ? most_sum<cfg.dtype> : sum_limit;
        const bool outgrown = __any_sync(0xffffffff, !(largest_sum(sum) <= limit));
        const bool lags = (cfg.serves && !(masked && changes_block())) || !masked;
        if (outgrown && lags) [[unlikely]]
            use_S_again(sum, masked);
        l[0] += sum[0], l[1] += sum[1];
        names.dump_ml(args, m, l, scale);
        if (cfg.extended && !lags) return __any_sync(0xffffffff, factor[0] != 1 || factor[1] != 1);
        return outgrown || !lags;
    }

    __device__ __forceinline__ void take_P_from_S() {
        round_to_P<cfg.dtype>(P, S);
        if constexpr (cfg.drops) {
            const int row = share.row + 16 * warp + lane / 4;
            drop(P, random.for_this_block(), key, {row, row + 8}, bias.sequence_and_head, args.keep_from, lane);
        }
        names.round();
    }
    /* ---- O ---- */

    /* A warp's rows of O, tiles of 16 rows, go through memory of its own, once the engine has read those before. */
    __device__ __forceinline__ void copy_O(int row, int head, int sample) {
        const uint32_t smem = at.O + (4 * group + warp) * (Q_bytes<cfg> / 4);
        if (lane == 0) bulk_wait_group_read<0>();
        __syncwarp();
        store_O_to_smem<cfg.dtype>(smem, O, lane);
        fence_proxy_async(); /* the engine reads by the async proxy */
        __syncwarp();
        if (lane == 0) {
            copy_smem_to_tensor(maps.O, smem, row, head, sample);
            bulk_commit_group();
        }
    }
    /* The sink of a row is added once. */
    __device__ __forceinline__ bool has_sink(const auto &tile) const {
        if constexpr (splits_keys<cfg>)
            if (tile.parts > 1) return false;
        return args.sinks;
    }
    __device__ __forceinline__ void store_O(int first_row) {
        const auto first = read_any_tile<cfg>(at, turn);
        const int row = first_row + 16 * warp;
        const auto &seq = sequence_of(first);
        const int sample = find_Q_origin(first).sample;
        const auto packing = packing_of(first);
        for (int half = 0; half < 2; half++) m[half] = rescaled_m(m[half], scale);
        if constexpr (cfg.packs)
            divide_by_l(O, m, l, [&](int half) {
                const int head = min(packing.head(row + lane / 4 + 8 * half), packing.heads - 1); /* or of no head */
                return args.sinks ? args.sinks[first.head + head] : -INFINITY;
            });
        else if constexpr (cfg.serves)
            divide_by_l(O, m, l,
                        [=, sink = has_sink(first) ? args.sinks[first.head] : -INFINITY](int) { return sink; });
        else
            divide_by_l(O, l);
        if constexpr (cfg.drops) rescale(O, {args.dropout_scale, args.dropout_scale});
        if constexpr (splits_keys<cfg>)
            if (first.parts > 1)
                return store_key_part<cfg>(args, first, O, m, l, row + lane / 4, lane, V_part() * V_columns<cfg>);
        if (args.LSE && V_part() == 0) store_LSE(args, m, l, seq, packing, row + lane / 4, first.head, sample, lane);
        /* A copy writes 16 rows, and those past the end may be another sequence's. The compiler must know that the
         * lanes agree, or no loop counts in uniform registers. */
        if (!copies_O<cfg> || (cfg.serves && warp_uniform(row + 16 > seq.seq_q)))
            store_O_to_gmem<cfg.dtype, cfg.extended>(args, O, seq, packing, row + lane / 4, first.head, sample, lane,
                                                     V_part() * V_columns<cfg>);
        else
            copy_O(row + first_row_of(seq), first.head, sample);
    }

    /* With one length for all, seq_q is read from the arguments, because a copy would be read too early. */
    __device__ __forceinline__ const sequence &sequence_of(const varlen_tile &first) const { return first.seq; }
    __device__ __forceinline__ const attention_args &sequence_of(const work_tile &) const { return args; }

    /* ---- the loop ---- */

    /* With a block mask: the first key of KV block number `number` of the CTA, and its kind. One thread releases K for
     * all warps, and the producer then replaces what they read here. So they meet, the first time or, if no
     * wait_for_turn() follows, every time. */
    __device__ __forceinline__ void take_visible(int number, int turn, bool first = false) {
        if constexpr (may_skip_blocks<cfg>) {
            if (!args.block_mask) return;
            at.K.wait_until_full(number);
            const uint32_t visible = warp_uniform(load_shared(at.visible(number)));
            key = (visible >> 8) * cfg.B_c;
            bias.kind = visible >> 2 * part_of(turn) & 3;
            if (first || !cfg.ping_pong) bar_sync(1 + consumers<cfg> + group, group_threads);
        }
    }
    /* The KV block after the one that is used. */
    __device__ __forceinline__ void find_next_key() {
        const bool last = key == last_key();
        key -= cfg.B_c;
        if (!last) take_visible(block + 1, turn);
    }

    /* Up to the first P. */
    __device__ __forceinline__ void begin() {
        share = find_share(0);
        for (; block < share.unseen_blocks; block++) {
            pass_K(block);
            pass_block(at.V, block);
        }
        key = (share.seen_blocks - 1) * cfg.B_c;
        take_visible(block, 0, true);
        take_Q(0);
        start_S(block, 0);
        wgmma_wait_group<0>(S);
        use_first_S(block, 0, m, l);
        take_P_from_S();
    }

    /* Start the next S, and O of the block before, while S is turned into exponentials. */
    __device__ __forceinline__ void step(bool masked) {
        wait_for_turn<cfg>(group);
        start_S(block + 1, turn);
        start_O(block);
        pass_turn<cfg>(group);
        wgmma_wait_group<1>(S);
        const bool outgrown = use_S(block + 1, masked);
        wgmma_wait_group<0>(O);
        release_V(block);
        if (outgrown) rescale(O, factor);
        take_P_from_S();
    }

    /* The first S of the next Q block, and the last O of this one. */
    __device__ __forceinline__ void step_across(int first_seen, row_values &next_m, row_values &next_l) {
        for (int unseen = block + 1; unseen < first_seen; unseen++) pass_K(unseen);
        key = (share.seen_blocks - 1) * cfg.B_c;
        take_visible(first_seen, turn + 1);
        take_Q(turn + 1);
        wait_for_turn<cfg>(group);
        start_S(first_seen, turn + 1);
        start_O(block);
        pass_turn<cfg>(group);
        wgmma_wait_group<1>(S);
        use_first_S(first_seen, turn + 1, next_m, next_l);
    }

    /* Finish this Q block; `share` describes the next one. */
    __device__ __forceinline__ void finish(row_values &next_m, row_values &next_l) {
        const int last_row = share.row;
        store_largest();
        share = find_share(turn + 1);
        const int first_seen = block + 1 + share.unseen_blocks;
        if (share.row >= 0)
            step_across(first_seen, next_m, next_l);
        else
            start_O(block);
        wgmma_wait_group<0>(O);
        release_V(block++);
        for (; block < first_seen; block++) pass_block(at.V, block);
        store_O(last_row);
        __syncwarp();
    }

    /* Continue with the next Q block, whose S is computed. */
    __device__ __forceinline__ void take_next(const row_values &next_m, const row_values &next_l) {
        if (lane == 0) mbarrier_arrive(at.queue.empty(turn));
        take_P_from_S();
        for (int half = 0; half < 2; half++) m[half] = next_m[half], l[half] = next_l[half];
        for (int n = 0; n < V_columns<cfg> / 8; n++)
            for (int e = 0; e < 4; e++) O[n][e] = 0;
    }

    /* Windows mask blocks at both ends. Once one is not masked, only the beginning of the common keys ends the run of
     * such blocks. */
    __device__ __forceinline__ void step_through_window() {
        const int last = last_key();
#pragma unroll 1
        while (key >= last) {
#pragma unroll 1
            for (; key >= last && masks(key); key -= cfg.B_c, block++) step(true);
#pragma unroll 1
            for (; key >= served.common.first; key -= cfg.B_c, block++) step(false);
        }
    }
    /* A block mask leaves blocks out, and not every block may get a bias. */
    __device__ __forceinline__ void step_through_blocks() {
        const int last = last_key();
#pragma unroll 1
        while (key >= last) {
#pragma unroll 1
            for (; key >= last && masks(key); block++, find_next_key()) step(true);
#pragma unroll 1
            for (; key >= last && !masks(key); block++, find_next_key()) step(false);
        }
    }

    /* There may be fewer Q blocks than CTAs, because only the device knows the lengths. */
    __device__ __forceinline__ bool has_no_Q_block() const {
        at.queue.wait_until_full(0);
        return warp_uniform(read_tile(at.queue, 0).row) < 0;
    }

    __device__ __forceinline__ void attend() {
        if constexpr (cfg.serves)
            if (has_no_Q_block()) return;
        begin();
        for (;; turn++) {
            if constexpr (cfg.extended) {
                find_next_key();
                step_through_blocks();
            } else if constexpr (cfg.serves) {
                key -= cfg.B_c;
                step_through_window();
            } else {
                key -= cfg.B_c;
#pragma unroll 1
                for (; key >= 0 && is_masked<cfg.B_c>(args, share.row, key); key -= cfg.B_c, block++) step(true);
#pragma unroll 1
                for (; key >= 0; key -= cfg.B_c, block++) step(false);
            }
            if (!Q_parts<cfg> && lane == 0) mbarrier_arrive(at.Q.empty(turn));

            row_values next_m = {no_maximum, no_maximum}, next_l = {};
            finish(next_m, next_l);
            if (share.row < 0) break;
            take_next(next_m, next_l);
        }
        if (lane == 0) bulk_wait_group_read<0>(); /* shared memory must stay valid until TMA has read it */
    }
};

/* ---- the kernel: a CTA for each multiprocessor ---- */

template <attention_config cfg>
__device__ __forceinline__ void start_copies(const args_of<cfg> &args, const tensor_maps &maps,
                                             const smem_layout<cfg> &at) {
    setmaxnreg_dec<producer_registers>(); /* the producer gives back what it can */
    if constexpr (cfg.serves) {
        const int warp = warp_uniform(threadIdx.x / 32);
        const bool paged = cfg.paged_kv || (cfg.extended && args.pages != NULL);
        if (paged && warp == 0) producer<cfg>{args, maps, at}.produce_from_pages();
        bool visible = false;
        if constexpr (may_skip_blocks<cfg>) {
            visible = args.block_mask != NULL;
            if (visible && warp == 0) producer<cfg>{args, maps, at}.produce_visible();
        }
        if (!paged && !visible && threadIdx.x == 0) producer<cfg>{args, maps, at}.produce_for_sequences();
        const auto narrow = [&](auto &tile) {
            if constexpr (may_skip_blocks<cfg>)
                if (visible) narrow_to_visible<cfg>(args, tile);
        };
        if (warp == 1) schedule_sequences<cfg>(args, at.queue, at.fetch, narrow, at.told());
        if (warp == 2) sweep<cfg>(args, at);
    } else {
        if (threadIdx.x == 0) producer<cfg>{args, maps, at}.produce();
        if (threadIdx.x == 32) schedule<cfg>(args, at.queue, at.fetch);
    }
}

/* The body of the kernels below. It is no function: what lives in registers must be variables of the kernel. */
#define FL_ATTEND(cfg, args, maps)                                                                                     \
    check_config<cfg>();                                                                                               \
    const smem_layout<cfg> at = find_layout<cfg>();                                                                    \
    init_mbarriers<cfg>(at);                                                                                           \
    const int group = warp_uniform(threadIdx.x / group_threads);                                                       \
    if (group == 0) {                                                                                                  \
        start_copies<cfg>(args, maps, at);                                                                             \
    } else {                                                                                                           \
        setmaxnreg_inc<consumer_registers<cfg>>();                                                                     \
        if (group == consumers<cfg>) pass_turn<cfg>(group - 1); /* to the first */                                     \
        S_tiles<cfg> S;                                                                                                \
        Q_fragments<cfg> Q;                                                                                            \
        P_fragments<cfg> P;                                                                                            \
        O_tiles<cfg> O = {};                                                                                           \
        row_values m = {no_maximum, no_maximum}, l = {}, factor;                                                       \
        consumer<cfg>{args, maps, at, group - 1, S, Q, P, O, m, l, factor}.attend();                                   \
    }                                                                                                                  \
    if constexpr (shares_rows_in_cluster<cfg>) cluster_sync(); /* the other CTA stores and arrives here until then */

template <attention_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps + group_threads, 1)
    flash_forward(const __grid_constant__ attention_args args, const __grid_constant__ tensor_maps maps) {
    FL_ATTEND(cfg, args, maps)
}

/* Kernel for varlen batches. */
template <attention_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps + group_threads, 1)
    flash_forward(const __grid_constant__ serving_args args, const __grid_constant__ tensor_maps maps) {
    FL_ATTEND(cfg, args, maps)
}

/* Kernel for shorter rows and biases. */
template <attention_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps + group_threads, 1)
    flash_forward(const __grid_constant__ extended_args args, const __grid_constant__ tensor_maps maps) {
    if constexpr (splits_keys<cfg>)
        if (args.combines) return combine_key_parts<cfg>(args);
    FL_ATTEND(cfg, args, maps)
}
template <attention_config cfg>
    requires(cluster_ctas<cfg> > 1)
__global__ void __cluster_dims__(cluster_ctas<cfg>) __launch_bounds__(32 * cfg.n_warps + group_threads, 1)
    flash_forward(const __grid_constant__ extended_args args, const __grid_constant__ tensor_maps maps) {
    if (args.combines) return combine_key_parts<cfg>(args);
    FL_ATTEND(cfg, args, maps)
}

#include "instances.cuh"
