/* layouts_wgmma.cu - which elements of S each thread of a warpgroup holds after wgmma, asked of v37.
 *
 *     .venv/bin/python -m analysis layouts --write
 *
 * The kernel is one warpgroup that puts Q and K into shared memory as the copy engine would, calls the functions of v37
 * and writes down the first 16 columns of S.
 */
#include "kernels/wgmma/v37_q_in_registers.cu"

constexpr KernelConfig config = {.dtype = FP16, .d_head = 128, .B_r = 128, .B_c = 64, .n_warps = 8, .swizzled = true};
constexpr int tile_chunks = 8, row_chunks = 16, chunk_elements = 8;

/* Put 64 rows of 128 columns into shared memory: two tiles of 64 columns, the chunks of a row swizzled. */
__device__ void fill(uint32_t smem_block, const uint16_t *rows) {
    for (int at = threadIdx.x; at < group_rows * row_chunks; at += group_threads) {
        const int row = at / row_chunks, chunk = at % row_chunks;
        const uint32_t tile = smem_block + chunk / tile_chunks * group_rows * tile_row_bytes;
        uint32_t value[4];
        ld_global_v4(value, rows + at * chunk_elements);
        st_shared_v4(tile + row * tile_row_bytes + (chunk % tile_chunks ^ row % 8) * 16, value);
    }
}

/* S = Q K^T: of every thread the eight floats of its first 16 columns. */
extern "C" __global__ void scores(const uint16_t *Q_rows, const uint16_t *K_rows, float *S_held) {
    extern __shared__ __align__(1024) unsigned char smem[];
    const uint32_t Q_block = __cvta_generic_to_shared(smem), K_block = Q_block + Q_bytes<config>;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    fill(Q_block, Q_rows);
    fill(K_block, K_rows);
    fence_proxy_async();
    __syncthreads();
    Q_fragments<config> Q;
    S_tiles<config> S;
    load_Q<config>(Q, Q_block + 16 * warp * tile_row_bytes, lane);
    start_QK<config>(S, Q, wgmma_descriptor(K_block, config.B_c * tile_row_bytes));
    wgmma_wait_group<0>(S);
    for (int e = 0; e < 8; e++) S_held[8 * threadIdx.x + e] = S[e / 4][e % 4];
}
