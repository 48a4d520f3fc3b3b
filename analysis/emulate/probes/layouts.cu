/* layouts.cu - which elements of a matrix each lane holds, and where v02 stores a chunk in shared memory.
 *
 *     .venv/bin/python -m analysis layouts --write
 *
 * Each kernel is one warp that calls the functions of v02 and writes down what they return. The numbers in the matrices
 * name their own position, so that a lane's registers say which elements it holds.
 */
#include "kernels/mma_sync/v02_swizzle.cu"

constexpr KernelConfig with_swizzle = {
    .dtype = FP16, .d_head = 128, .B_r = 64, .B_c = 32, .n_warps = 4, .async_copy = true, .swizzled = true};
constexpr KernelConfig without_swizzle = {
    .dtype = FP16, .d_head = 128, .B_r = 64, .B_c = 32, .n_warps = 4, .async_copy = true};
constexpr int block_rows = 32, row_chunks = 16, chunk_elements = 8;

/* Byte offset of every chunk of a block, from its first byte. */
extern "C" __global__ void offsets(uint32_t *swizzled, uint32_t *plain) {
    for (int row = 0; row < block_rows; row++) {
        for (int chunk = threadIdx.x; chunk < row_chunks; chunk += 32) {
            swizzled[row * row_chunks + chunk] = smem_offset<with_swizzle>(row, chunk);
            plain[row * row_chunks + chunk] = smem_offset<without_swizzle>(row, chunk);
        }
    }
}

/* Byte offset that every lane gives to ldmatrix for the first 16x16 block. */
extern "C" __global__ void addresses(uint32_t *offset) {
    const smem_address<without_swizzle> at{0, 0, (int)threadIdx.x};
    offset[threadIdx.x] = at.at(0, 0);
}

/* Put a block of 32 rows and 128 columns into shared memory. */
__device__ void fill(uint32_t smem_block, const uint16_t *rows) {
    for (int at = threadIdx.x; at < block_rows * row_chunks; at += 32) {
        uint32_t value[4];
        ld_global_v4(value, rows + at * chunk_elements);
        st_shared_v4(smem_block + smem_offset<with_swizzle>(at / row_chunks, at % row_chunks), value);
    }
    __syncwarp();
}

/* The first 16x16 block as operands: A as v02 reads Q, B as it reads K, and B as it reads V. Four registers of a lane
 * each. */
extern "C" __global__ void operands(const uint16_t *rows, uint32_t *Q_held, uint32_t *K_held, uint32_t *V_held) {
    __shared__ __align__(128) uint16_t smem[block_rows * row_chunks * chunk_elements];
    const uint32_t block = __cvta_generic_to_shared(smem);
    fill(block, rows);
    const smem_address<with_swizzle> at{block, 0, (int)threadIdx.x};
    Q_fragments<with_swizzle> Q;
    K_fragments<with_swizzle> K;
    V_fragments<with_swizzle> V;
    load_Q<with_swizzle>(Q, at, 0);
    load_K<with_swizzle>(K, at, 0);
    load_V<with_swizzle>(V, at, 0);
    for (int r = 0; r < 4; r++) {
        Q_held[4 * threadIdx.x + r] = Q[0][r];
        K_held[4 * threadIdx.x + r] = K[0][r];
        V_held[4 * threadIdx.x + r] = V[0][r];
    }
}

/* S = Q K^T over 16 columns, and P of its first 16 columns: eight floats and four registers of a lane. */
extern "C" __global__ void scores(const uint16_t *Q_rows, const uint16_t *K_rows, float *S_held, uint32_t *P_held) {
    __shared__ __align__(128) uint16_t smem[2][block_rows * row_chunks * chunk_elements];
    const uint32_t Q_block = __cvta_generic_to_shared(smem[0]), K_block = __cvta_generic_to_shared(smem[1]);
    fill(Q_block, Q_rows);
    fill(K_block, K_rows);
    const smem_address<with_swizzle> Q_at{Q_block, 0, (int)threadIdx.x}, K_at{K_block, 0, (int)threadIdx.x};
    Q_fragments<with_swizzle> Q;
    K_fragments<with_swizzle> K;
    S_tiles<with_swizzle> S = {};
    P_fragments<with_swizzle> P;
    load_Q<with_swizzle>(Q, Q_at, 0);
    load_K<with_swizzle>(K, K_at, 0);
    mma_QK<with_swizzle>(S, Q, K);
    round_S_to_P<with_swizzle>(P, S, 0, 1);
    for (int e = 0; e < 8; e++) S_held[8 * threadIdx.x + e] = S[0][e / 4][e % 4];
    for (int r = 0; r < 4; r++) P_held[4 * threadIdx.x + r] = P[0][0][r];
}
