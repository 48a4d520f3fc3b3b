/* stores.cu - every warp stages tiles of 16 x 64 halves and lets the copy engine store them: O = X + X, 64 x 192. */
#include "hopper.cuh"

namespace stores {

constexpr int TILES = 3, WIDTH = TILES * 64, STAGED_BYTES = 16 * 64 * 2;

extern __shared__ __align__(1024) unsigned char memory[];

/* Of two halves. */
DEVICE uint32_t doubled(uint32_t x) {
    asm("add.f16x2 %0, %0, %0;" : "+r"(x));
    return x;
}

extern "C" __global__ void __launch_bounds__(128) store_boxes(const uint4 *x, const __grid_constant__ CUtensorMap o) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned char *staged = memory + warp * STAGED_BYTES;
#pragma unroll 1
    for (int tile = 0; tile < TILES; tile++) {
        if (lane == 0) wait_until_read<0>();
        __syncwarp();
        for (int i = lane; i < 16 * 8; i += 32) {
            const int row = i / 8, part = i % 8;
            uint4 values = x[(warp * 16 + row) * (WIDTH / 8) + tile * 8 + part];
            values = {doubled(values.x), doubled(values.y), doubled(values.z), doubled(values.w)};
            *(uint4 *)(staged + row * 128 + ((part ^ row % 8) * 16)) = values;
        }
        fence_proxy();
        __syncwarp();
        if (lane == 0) {
            store_box(&o, shared_address(staged), tile * 64, warp * 16);
            commit_stores();
        }
    }
    if (lane == 0) wait_for_stores<0>();
}

} // namespace stores
