/* fragments.cu - wgmma with A in registers and two groups in flight: C1 = 3 A B1', C2 = A B2', 64 x 32 values each. */
#include "hopper.cuh"

namespace fragments {

constexpr int K = 32, TILE_BYTES = 64 * K * 2;

extern __shared__ __align__(128) unsigned char memory[];

extern "C" __global__ void __launch_bounds__(128)
    multiply_fragments(const uint32_t *a, const uint4 *b, float *c) { /* b: [2][64][K] */
    const int thread = threadIdx.x, row = thread / 32 * 16 + thread % 32 / 4, pair = thread % 4;
    const uint32_t tiles = shared_address(memory);
    for (int i = thread; i < 2 * 64 * 4; i += 128) {
        const int tile = i / 256, b_row = i / 4 % 64, part = i % 4;
        *(uint4 *)(memory + tile * TILE_BYTES + b_row / 8 * 512 + part * 128 + b_row % 8 * 16) = b[i];
    }
    uint32_t fragment[2][4];
#pragma unroll
    for (int i = 0; i < 8; i++)
        fragment[i / 4][i % 4] = a[(row + i % 2 * 8) * (K / 2) + i / 4 * 8 + i % 4 / 2 * 4 + pair];
    fence_proxy();
    __syncthreads();
    float d[ACCUMULATORS], e[ACCUMULATORS];
    const uint64_t first = plain_descriptor(tiles, 128, 512);
    const uint64_t second = plain_descriptor(tiles + TILE_BYTES, 128, 512);
    fence_products();
    multiply<false>(d, fragment[0], first);
    multiply<true>(d, fragment[1], first + 16);
    commit_products();
    multiply<false>(e, fragment[0], second);
    multiply<true>(e, fragment[1], second + 16);
    commit_products();
    wait_for_products<1>();
    pin(d);
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; i++) d[i] *= 2;
    wait_for_products<0>();
    pin(e);
    write_tile(c + 64, 128, e);
    fence_products();
    multiply<true>(d, fragment[0], first);
    multiply<true>(d, fragment[1], first + 16);
    commit_products();
    wait_for_products<0>();
    pin(d);
    write_tile(c, 128, d);
}

} // namespace fragments
