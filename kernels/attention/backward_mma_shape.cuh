/* backward_mma_shape.cuh - how mma.sync divides a step of the backward pass among warps, and shared memory.
 *
 *     using shape = mma_shape<cfg>;
 *     const mma_smem<cfg> at(smem);
 *     ldmatrix_x4(a, along_row(at.K + first_operand<shape::row_bytes>(), k));      columns 16k ... of 16 keys
 *
 * A step multiplies the B_c keys of a tile by the B_r queries of a Q block. Two warps, a pair, have 32 keys; each of
 * them computes Sᵀ and dPᵀ of half of the queries.
 */
#ifndef FL_ATTENTION_BACKWARD_MMA_SHAPE_CUH
#define FL_ATTENTION_BACKWARD_MMA_SHAPE_CUH

#include "kernels/attention/backward_sequences.cuh"
#include "kernels/attention/fragments.cuh"

template <backward_config cfg>
struct mma_shape {
    static constexpr int threads = 32 * cfg.n_warps;
    static constexpr int keys = cfg.d_head == 256 ? 16 : 32; /* of a pair of warps, which compute their scores */
    static constexpr int queries = cfg.B_r / 2;              /* whose scores a warp computes */
    static constexpr int key_tiles = keys / 16, tiles = queries / 8, steps = queries / 16;

    /* True if a warp adds 64 columns of dK and dV over all queries, so that it needs P and dS of other warps, too: of
     * its partner, or with d_head 256 of three others. With d_head 64 a warp adds all columns over its own queries, and
     * the pair adds up at the end. */
    static constexpr bool exchanges = cfg.d_head != 64;
    static constexpr int team = cfg.d_head == 256 ? 4 : 2; /* warps that add up the gradients of the same 32 keys */
    static constexpr int stages = cfg.stages ? cfg.stages : 1, dO_stages = backward_dO_stages(&cfg);

    /* dQ is divided among the warps in tiles of dQ_rows x dQ_columns. */
    static constexpr int dQ_warps_across = cfg.d_head == 64 && cfg.B_r == 128 ? 2
                                           : cfg.d_head == 256                ? 4
                                                                              : cfg.n_warps / 2;
    static constexpr int dQ_columns = cfg.d_head / dQ_warps_across;
    static constexpr int dQ_rows = cfg.B_r / (cfg.n_warps / dQ_warps_across);

    static constexpr int row_bytes = 2 * cfg.d_head, dS_row_bytes = 2 * cfg.B_r;
};

/* Accumulators of a warp: Sᵀ or dPᵀ of the pair's keys, and 64 columns of a gradient of 32 keys. */
template <backward_config cfg>
using key_scores = tiles<mma_shape<cfg>::tiles>[mma_shape<cfg>::key_tiles];
using key_gradient = tiles<8>[2];

/* P or dS in 16 bits: as Sᵀ is divided among the lanes, it is the first operand of the products with dO and Q. */
template <backward_config cfg>
using key_operands = fragments<mma_shape<cfg>::steps>[mma_shape<cfg>::key_tiles];

/* The warp's pair, its half of the queries, and where its lane is in an accumulator tile. */
struct warp_position {
    int warp, pair, half, lane;

    __device__ __forceinline__ warp_position()
        : warp(threadIdx.x / 32), pair(threadIdx.x / 64), half(threadIdx.x / 32 % 2), lane(threadIdx.x % 32) {}
    __device__ __forceinline__ int row() const { return lane / 4; }        /* and 8 rows below */
    __device__ __forceinline__ int column() const { return lane % 4 * 2; } /* and the next one */
};

/* The first of the 32 keys, and of the 64 columns, whose gradients a warp adds up. */
template <backward_config cfg>
__device__ __forceinline__ int gradient_key(const warp_position &own) {
    return own.pair / (mma_shape<cfg>::team / 2) * 32;
}
template <backward_config cfg>
__device__ __forceinline__ int gradient_column(const warp_position &own) {
    return 64 * (mma_shape<cfg>::team == 4 ? own.warp % 4 : own.half);
}

/* ---- addresses ---- */

/* A block in shared memory is rows of d_head elements, or of B_r with dS. The 16-byte chunks of a row are swizzled:
 * chunk c of row r is stored at position c ^ (r % 8), so that ldmatrix reads eight rows from different banks. With rows
 * of 64 bytes, two of which fill the banks, it is c ^ (r / 2 % 4). */
template <int row_bytes>
__device__ __forceinline__ uint32_t chunk_address(uint32_t block, int row, int chunk) {
    static_assert(row_bytes >= 64);
    return block + row * row_bytes + ((chunk ^ (row_bytes == 64 ? row / 2 % 4 : row % 8)) << 4);
}

/* Chunk that this lane addresses for ldmatrix, counted from a block's first row. As a first operand, or as a second one
 * that is loaded transposed: 16 rows x 16 columns. As a second operand: two tiles of 8 rows. */
template <int row_bytes>
__device__ __forceinline__ uint32_t first_operand() {
    const int lane = threadIdx.x % 32;
    return chunk_address<row_bytes>(0, lane % 16, lane / 16);
}
template <int row_bytes>
__device__ __forceinline__ uint32_t second_operand() {
    const int lane = threadIdx.x % 32;
    return chunk_address<row_bytes>(0, lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

/* The address 16k columns further in the same rows. Blocks begin at multiples of a row's bytes, so the swizzle stays.
 */
__device__ __forceinline__ uint32_t along_row(uint32_t address, int k) {
    return address ^ (k << 5);
}

/* ---- shared memory ---- */

/* Addresses of the blocks and of the mbarriers. P and dS of a pair are in one block where shared memory is short. Warps
 * of a team of four use the mbarriers of its first warp. */
template <backward_config cfg>
struct mma_smem {
    using shape = mma_shape<cfg>;
    static constexpr int KV_bytes = cfg.B_c * shape::row_bytes, Q_bytes = cfg.B_r * shape::row_bytes;
    static constexpr int dS_bytes = cfg.B_c * shape::dS_row_bytes, row_values_bytes = 4 * cfg.B_r;
    static constexpr bool P_in_dS = backward_P_in_dS(&cfg);
    uint32_t K, V, Q, dO, dS, P, lse, delta;
    uint32_t Q_full, Q_empty, dO_full, dO_empty; /* of each stage */
    uint32_t dS_full, dS_empty;                  /* dS of all warps is stored; all warps have computed dQ from it */
    uint32_t P_full, P_empty, dS_of_warp;        /* of each warp, for its partner; or of a team of four */
    uint32_t turns;                              /* with in_order: 16 bytes for each warp */

    __device__ __forceinline__ mma_smem(uint32_t smem)
        : K(smem), V(K + KV_bytes), Q(V + KV_bytes), dO(Q + shape::stages * Q_bytes),
          dS(dO + shape::dO_stages * Q_bytes), P(P_in_dS ? dS : dS + dS_bytes),
          lse(shape::exchanges ? P + dS_bytes : dS + dS_bytes), delta(lse + shape::stages * row_values_bytes),
          Q_full(delta + shape::dO_stages * row_values_bytes), Q_empty(Q_full + 8 * shape::stages),
          dO_full(Q_empty + 8 * shape::stages), dO_empty(dO_full + 8 * shape::dO_stages),
          dS_full(dO_empty + 8 * shape::dO_stages), dS_empty(dS_full + 8), P_full(dS_empty + 8),
          P_empty(P_full + 8 * cfg.n_warps), dS_of_warp(P_empty + 8 * cfg.n_warps),
          turns(dS_of_warp + 8 * cfg.n_warps) {}

    /* The lane's 16 bytes of P of a warp, in the order of fragments; tile i of 16 keys and step k of 16 queries. */
    __device__ __forceinline__ uint32_t P_of(int warp, int i, int k) const {
        return P + warp * (dS_bytes / cfg.n_warps) + (i * shape::steps + k) * 512 + threadIdx.x % 32 * 16;
    }
};

template <backward_config cfg>
__device__ __forceinline__ void init_mbarriers(const mma_smem<cfg> &at) {
    using shape = mma_shape<cfg>;
    constexpr int sharing = shape::team == 4 ? 4 : 1;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < shape::stages; stage++) {
            mbarrier_init(at.Q_full + 8 * stage, shape::threads);
            mbarrier_init(at.Q_empty + 8 * stage, cfg.n_warps);
        }
        for (int stage = 0; stage < shape::dO_stages; stage++) {
            mbarrier_init(at.dO_full + 8 * stage, shape::threads);
            mbarrier_init(at.dO_empty + 8 * stage, cfg.n_warps);
        }
        mbarrier_init(at.dS_full, cfg.n_warps);
        mbarrier_init(at.dS_empty, cfg.n_warps);
        for (int warp = 0; warp < cfg.n_warps; warp++) {
            mbarrier_init(at.P_full + 8 * warp, sharing);
            mbarrier_init(at.P_empty + 8 * warp, sharing);
            mbarrier_init(at.dS_of_warp + 8 * warp, sharing);
        }
    }
    __syncthreads();
}

/* Wait until phase number `phase` of an mbarrier is complete; the first has number 0. */
__device__ __forceinline__ void wait_for(uint32_t mbarrier, int phase) {
    while (!mbarrier_test_wait_parity(mbarrier, phase & 1)) {
    }
}

/* Arrive once for the whole warp, after the accesses of all its lanes. */
__device__ __forceinline__ void arrive_of_warp(uint32_t mbarrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(mbarrier);
}
__device__ __forceinline__ void arrive_of_warp(uint32_t first, uint32_t second) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        mbarrier_arrive(first);
        mbarrier_arrive(second);
    }
}

#endif
