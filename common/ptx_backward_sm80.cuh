/* ptx_backward_sm80.cuh - one PTX instruction per function: those that only the backward pass takes, from compute
 * capability 8.0 on.
 *
 *     red_add(sums + 32 * i, dQ[i]);
 *
 * Conventions: common/ptx_sm80.cuh.
 */
#ifndef FL_PTX_BACKWARD_SM80_CUH
#define FL_PTX_BACKWARD_SM80_CUH

#include "common/ptx_sm80.cuh"

/* Add to 4 bytes of global memory, in one step but in any order (9.7.13.6 red). */
__device__ __forceinline__ void red_add(float *gmem, float value) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(gmem), "f"(value) : "memory");
}

/* Two floats at a multiple of 8 (9.7.9.8 ld). */
__device__ __forceinline__ float2 ld_shared_v2_f32(uint32_t smem_addr) {
    float2 pair;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(smem_addr) : "memory");
    return pair;
}

#endif
