/* ring.cu - a producer warp fills a ring of two stages with boxes, and a warpgroup multiplies them: C = A B', 64 x 64
 * of 64 x 320 values each.
 */
#include "hopper.cuh"

namespace ring {

constexpr int BLOCKS = 5, BOX_BYTES = 64 * 64 * 2, STAGES = 2;

extern __shared__ __align__(1024) unsigned char memory[];

extern "C" __global__ void __launch_bounds__(160)
    multiply_ring(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float *c) {
    const uint32_t stages = shared_address(memory), full = stages + STAGES * 2 * BOX_BYTES, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            init_barrier(full + 8 * stage, 1);
            init_barrier(empty + 8 * stage, 1);
        }
        fence_barrier_init();
    }
    __syncthreads();
    if (threadIdx.x / 32 == 4) {
        if (threadIdx.x % 32 == 0) {
#pragma unroll 1
            for (int block = 0; block < BLOCKS; block++) {
                const uint32_t slot = block % STAGES, stage = stages + slot * 2 * BOX_BYTES;
                wait(empty + 8 * slot, (block / STAGES & 1) ^ 1);
                arrive_expect(full + 8 * slot, 2 * BOX_BYTES);
                load_box(stage, &a, full + 8 * slot, block * 64, 0);
                load_box(stage + BOX_BYTES, &b, full + 8 * slot, block * 64, 0);
            }
        }
        return;
    }
    float d[ACCUMULATORS] = {};
#pragma unroll 1
    for (int block = 0; block < BLOCKS; block++) {
        const uint32_t slot = block % STAGES, stage = stages + slot * 2 * BOX_BYTES;
        wait(full + 8 * slot, block / STAGES & 1);
        fence_products();
#pragma unroll
        for (int k = 0; k < 4; k++)
            multiply<true>(d, swizzled_descriptor(stage) + 2 * k, swizzled_descriptor(stage + BOX_BYTES) + 2 * k);
        commit_products();
        wait_for_products<0>();
        pin(d);
        if (threadIdx.x == 0) arrive(empty + 8 * slot);
    }
    write_tile(c, 64, d);
}

} // namespace ring
