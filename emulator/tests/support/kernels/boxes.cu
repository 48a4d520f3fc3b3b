/* boxes.cu - one thread of each CTA lets the copy engine bring a box of a tensor to shared memory and, where the box
 * does not begin before the tensor, back to another; boxes begin before the tensor and end past it.
 */
#include <cuda.h>
#include <stdint.h>

constexpr uint32_t BYTES = 32 * 8 * 2, STEP_X = 8, STEP_Y = 3;

extern __shared__ __align__(1024) unsigned char box[];

extern "C" __global__ void boxes(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to,
                                 uint32_t *raw) {
    const uint32_t shared = (uint32_t)__cvta_generic_to_shared(box), barrier = shared + 8192;
    const int32_t x = (int32_t)(blockIdx.x * STEP_X) - 8, y = (int32_t)(blockIdx.y * STEP_Y) - 3;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(BYTES) : "memory");
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
            "[%2];" ::"r"(shared),
            "l"(&from), "r"(barrier), "r"(x), "r"(y)
            : "memory");
    }
    uint32_t done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(barrier)
                     : "memory");
    const uint32_t *words = reinterpret_cast<const uint32_t *>(box);
    for (uint32_t i = threadIdx.x; i < BYTES / 4; i += blockDim.x)
        raw[(blockIdx.y * gridDim.x + blockIdx.x) * (BYTES / 4) + i] = words[i];
    if (threadIdx.x == 0 && x >= 0 && y >= 0) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%1, {%2, %3}], [%0];" ::"r"(shared),
                     "l"(&to), "r"(x), "r"(y)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
