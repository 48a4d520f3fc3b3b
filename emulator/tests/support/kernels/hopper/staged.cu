/* staged.cu - wgmma on operands that cp.async brought: two stages,
 * C[64 x 64 per CTA] = A[64 x 128] B[64 per CTA x 128]'.
 */
#include "hopper.cuh"

namespace staged {

constexpr int K = 128, BLOCK_K = 32, BLOCKS = K / BLOCK_K, TILE_BYTES = 64 * BLOCK_K * 2;

extern __shared__ __align__(128) unsigned char memory[];

/* 64 rows of 32 values: four rows of 16 bytes each, eight rows of one kind together. */
DEVICE void copy_tile(uint32_t to, const uint16_t *from) {
    for (int i = threadIdx.x; i < 64 * 4; i += 128) {
        const int row = i / 4, part = i % 4;
        copy_16_bytes(to + row / 8 * 512 + part * 128 + row % 8 * 16, from + row * K + part * 8);
    }
}

extern "C" __global__ void __launch_bounds__(128) multiply_staged(const uint16_t *a, const uint16_t *b, float *c) {
    const uint32_t stages = shared_address(memory);
    b += blockIdx.x * 64 * K;
    auto load = [&](int block) {
        const uint32_t stage = stages + block % 2 * 2 * TILE_BYTES;
        copy_tile(stage, a + block * BLOCK_K);
        copy_tile(stage + TILE_BYTES, b + block * BLOCK_K);
    };
    float d[ACCUMULATORS] = {};
    load(0);
    commit_copies();
#pragma unroll 1
    for (int block = 0; block < BLOCKS; block++) {
        if (block + 1 < BLOCKS) load(block + 1);
        commit_copies();
        wait_for_copies<1>();
        fence_proxy();
        __syncthreads();
        const uint32_t stage = stages + block % 2 * 2 * TILE_BYTES;
        fence_products();
#pragma unroll
        for (int k = 0; k < BLOCK_K / 16; k++)
            multiply<true>(d, plain_descriptor(stage + k * 256, 128, 512),
                           plain_descriptor(stage + TILE_BYTES + k * 256, 128, 512));
        commit_products();
        wait_for_products<0>();
        pin(d);
    }
    write_tile(c + blockIdx.x * 64, gridDim.x * 64, d);
}

} // namespace staged
