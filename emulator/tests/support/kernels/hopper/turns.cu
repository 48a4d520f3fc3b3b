/* turns.cu - two warpgroups take turns with one place in shared memory, by named barriers: C = A B', 256 x 64 of
 * 256 x 32 values and 64 x 32. Warpgroup g multiplies the blocks of 64 rows g, g + 2. Each warpgroup
 * brings a half of B, and the barriers and fences of the turns are those of B too.
 */
#include "hopper.cuh"

namespace turns {

constexpr int K = 32, TILE_BYTES = 64 * K * 2, TURNS = 2;
constexpr int TURN_OF = 1, STAGED_BY = 3; /* the named barriers of warpgroup 0 */

extern __shared__ __align__(128) unsigned char memory[];

DEVICE void stage(unsigned char *to, const uint4 *from, int thread, int threads) {
    for (int i = thread; i < 64 * 4; i += threads) {
        const int row = i / 4, part = i % 4;
        *(uint4 *)(to + row / 8 * 512 + part * 128 + row % 8 * 16) = from[i];
    }
}

extern "C" __global__ void __launch_bounds__(256) multiply_turns(const uint4 *a, const uint4 *b, float *c) {
    const int group = threadIdx.x / 128, other = 1 - group;
    const uint32_t tiles = shared_address(memory);
    stage(memory + TILE_BYTES, b, threadIdx.x, 256);
    if (group == 1) arrive_named(TURN_OF, 256);
#pragma unroll 1
    for (int turn = 0; turn < TURNS; turn++) {
        const int block = 2 * turn + group;
        sync_named(TURN_OF + group, 256);
        stage(memory, a + block * 64 * (K / 8), threadIdx.x % 128, 128);
        fence_proxy();
        sync_named(STAGED_BY + group, 128);
        float d[ACCUMULATORS];
        fence_products();
        multiply<false>(d, plain_descriptor(tiles, 128, 512), plain_descriptor(tiles + TILE_BYTES, 128, 512));
        multiply<true>(d, plain_descriptor(tiles + 256, 128, 512),
                       plain_descriptor(tiles + TILE_BYTES + 256, 128, 512));
        commit_products();
        wait_for_products<0>();
        pin(d);
        if (block + 1 < 2 * TURNS) arrive_named(TURN_OF + other, 256);
        write_tile(c + block * 64 * 64, 64, d);
    }
}

} // namespace turns
