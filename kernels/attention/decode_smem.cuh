/* decode_smem.cuh - shape of attention/decode and attention/decode_mma_sync, and their shared memory.
 *
 *     const smem_layout<cfg> at = find_layout<cfg>();
 *     init_mbarriers<cfg>(at);
 *
 * Shared memory: a ring of KV blocks, each a box of K for each warp, then a box of V for each. A box is tiles of 64
 * columns one after the other, rows of 128 bytes, their 16-byte chunks swizzled (ptx_sm90a.cuh). Then two buffers of Q,
 * rows of d_head elements, the warps' sums, mbarriers, and two slots of pieces.
 */
#ifndef FL_ATTENTION_DECODE_SMEM_CUH
#define FL_ATTENTION_DECODE_SMEM_CUH

#include "common/decode_config.h"
#include "kernels/attention/ring.cuh"
#include "kernels/attention/shares.cuh"

/* ---- shape ---- */

template <decode_config cfg>
constexpr bool by_wgmma = cfg.instruction == WGMMA;

/* Warps with the same 16 rows of the row block divide its keys; warps with the same keys have other rows. */
template <decode_config cfg>
constexpr int row_groups = cfg.B_r / 16;
template <decode_config cfg>
constexpr int key_groups = cfg.n_warps / row_groups<cfg>;

/* One warp copies by TMA, four by cp.async. With 8 computing warps it is padded to a warpgroup of which three warps
 * idle, because only a warpgroup can give registers away. Warpgroups of wgmma also need the padding, because they begin
 * at multiples of four warps. */
template <decode_config cfg>
constexpr bool gives_registers = cfg.n_warps == 8 && !cfg.cp_async;
template <decode_config cfg>
constexpr int copy_warps = gives_registers<cfg> || by_wgmma<cfg> || cfg.cp_async ? 4 : 1;

/* Keys of a warp in a KV block, and numbers of 16x16 operand blocks along them and along d_head. */
template <decode_config cfg>
constexpr int warp_keys = cfg.B_c / key_groups<cfg>;
template <decode_config cfg>
constexpr int key_steps = warp_keys<cfg> / 16;
template <decode_config cfg>
constexpr int d_steps = cfg.d_head / 16;

/* True if an element of K and V is a byte, e4m3 or int8. */
template <decode_config cfg>
constexpr bool has_bytes = cfg.e4m3_cache || cfg.int8_cache;
template <decode_config cfg>
constexpr int element_bytes = has_bytes<cfg> ? 1 : 2;

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
constexpr int box_bytes = box_keys<cfg> * cfg.d_head * element_bytes<cfg>;
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

/* One lane of the copying warp arrives at the full mbarriers, each of the other warps at the empty ones. With cp.async
 * every copying thread arrives with its copies, and at those of Q one lane once more, for the piece. */
template <decode_config cfg>
__device__ __forceinline__ void init_mbarriers(const smem_layout<cfg> &at) {
    constexpr int of_KV = cfg.cp_async ? 32 * copy_warps<cfg> : 1, of_Q = cfg.cp_async ? 32 + 1 : 1;
    if (threadIdx.x == 32 * copy_warps<cfg>) { /* the first warp finds its range meanwhile */
        for (int stage = 0; stage < cfg.stages; stage++) at.KV.init(stage, cfg.n_warps, of_KV);
        for (int slot = 0; slot < 2; slot++) at.Q.init(slot, cfg.n_warps, of_Q);
        if constexpr (!cfg.cp_async) fence_mbarrier_init();
    }
    __syncthreads();
}

#endif
