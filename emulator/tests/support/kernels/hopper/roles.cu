/* roles.cu - a producer warpgroup gives registers to two consumer warpgroups: C = A B', 128 x 64 of 128 x 320 values
 * and 64 x 320; A stays in shared memory, B comes through a ring of two stages.
 */
#include "hopper.cuh"

namespace roles {

constexpr int BLOCKS = 5, BOX_BYTES = 64 * 64 * 2, STAGES = 2, CONSUMERS = 2;

extern __shared__ __align__(1024) unsigned char memory[];

extern "C" __global__ void __launch_bounds__(384, 1)
    multiply_roles(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float *c) {
    const uint32_t rows = shared_address(memory), stages = rows + CONSUMERS * BLOCKS * BOX_BYTES;
    const uint32_t full = stages + STAGES * BOX_BYTES, empty = full + 8 * STAGES, rows_full = empty + 8 * STAGES;
    const int role = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            init_barrier(full + 8 * stage, 1);
            init_barrier(empty + 8 * stage, CONSUMERS);
        }
        init_barrier(rows_full, 1);
        fence_barrier_init();
    }
    __syncthreads();
    if (role == 0) {
        give_registers<24>();
        if (threadIdx.x / 32 != 0 || !elected()) return;
        arrive_expect(rows_full, CONSUMERS * BLOCKS * BOX_BYTES);
        for (int i = 0; i < CONSUMERS * BLOCKS; i++)
            load_box(rows + i * BOX_BYTES, &a, rows_full, i % BLOCKS * 64, i / BLOCKS * 64);
#pragma unroll 1
        for (int block = 0; block < BLOCKS; block++) {
            const uint32_t slot = block % STAGES;
            wait(empty + 8 * slot, (block / STAGES & 1) ^ 1);
            arrive_expect(full + 8 * slot, BOX_BYTES);
            load_box(stages + slot * BOX_BYTES, &b, full + 8 * slot, block * 64, 0);
        }
        return;
    }
    take_registers<240>();
    float d[ACCUMULATORS] = {};
    wait(rows_full, 0);
#pragma unroll 1
    for (int block = 0; block < BLOCKS; block++) {
        const uint32_t slot = block % STAGES;
        const uint64_t own = swizzled_descriptor(rows + ((role - 1) * BLOCKS + block) * BOX_BYTES);
        const uint64_t shared = swizzled_descriptor(stages + slot * BOX_BYTES);
        wait(full + 8 * slot, block / STAGES & 1);
        fence_products();
#pragma unroll
        for (int k = 0; k < 4; k++) multiply<true>(d, own + 2 * k, shared + 2 * k);
        commit_products();
        wait_for_products<0>();
        pin(d);
        if (threadIdx.x % 128 == 0) arrive(empty + 8 * slot);
    }
    write_tile(c + (role - 1) * 64 * 64, 64, d);
}

} // namespace roles
