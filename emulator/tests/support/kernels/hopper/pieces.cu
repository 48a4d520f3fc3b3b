/* pieces.cu - bulk copies of one dimension in a pipeline: y = 2 x + 1 in pieces of 512 bytes, two on their way in and
 * two on their way out.
 */
#include "hopper.cuh"

namespace pieces {

constexpr int COUNT = 5, THREADS = 128, BYTES = THREADS * 4, SLOTS = 2;

extern __shared__ __align__(128) unsigned char memory[];

extern "C" __global__ void __launch_bounds__(THREADS) copy_pieces(const float *x, float *y) {
    const uint32_t in = shared_address(memory), out = in + SLOTS * BYTES, full = out + SLOTS * BYTES;
    const int thread = threadIdx.x;
    auto load = [&](int piece) {
        const uint32_t slot = piece % SLOTS;
        arrive_expect(full + 8 * slot, BYTES);
        load_bytes(in + slot * BYTES, x + piece * THREADS, BYTES, full + 8 * slot);
    };
    if (thread == 0) {
        for (int slot = 0; slot < SLOTS; slot++) init_barrier(full + 8 * slot, 1);
        fence_barrier_init();
        for (int piece = 0; piece < SLOTS; piece++) load(piece);
    }
    __syncthreads();
#pragma unroll 1
    for (int piece = 0; piece < COUNT; piece++) {
        const int slot = piece % SLOTS;
        wait_in_ptx(full + 8 * slot, piece / SLOTS & 1);
        const float value = ((const float *)(memory + slot * BYTES))[thread];
        if (thread == 0) wait_until_read<SLOTS - 1>();
        __syncthreads();
        ((float *)(memory + (SLOTS + slot) * BYTES))[thread] = 2 * value + 1;
        fence_proxy();
        __syncthreads();
        if (thread == 0) {
            store_bytes(y + piece * THREADS, out + slot * BYTES, BYTES);
            commit_stores();
            if (piece + SLOTS < COUNT) load(piece + SLOTS);
        }
    }
    if (thread == 0) wait_for_stores<0>();
}

} // namespace pieces
