/* ptx_backward.cuh - one PTX instruction per function: those that only the backward pass takes, for sm_90a.
 *
 *     wgmma_m64n64k16_f16_both_trans(dQ, dS_descriptor, K_descriptor, 1);
 *     red_add_v2(sums, dQ[0], dQ[1]);
 *
 * Conventions: common/ptx_sm90a.cuh.
 */
#ifndef FL_PTX_BACKWARD_CUH
#define FL_PTX_BACKWARD_CUH

#include "common/ptx_sm90a.cuh"

/* d[64 x 64] (+)= a * b, both descriptors of transposed matrices: a row of shared memory is a column of a, and a row of
 * b. Rows 16k ... of either: 128 * k. */
#define FL_WGMMA_BOTH_TRANS(type, ptx_type)                                                                            \
    __device__ __forceinline__ void wgmma_m64n64k16_##type##_both_trans(float (&d)[8][4], uint64_t a, uint64_t b,      \
                                                                        int accumulate) {                              \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; "                                                         \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." ptx_type "." ptx_type " {" FL_NAMES_8               \
                     "}, %32, %33, p, 1, 1, 1, 1; }"                                                                   \
                     : FL_TILES_8(d)                                                                                   \
                     : "l"(a), "l"(b), "r"(accumulate));                                                               \
    }
FL_WGMMA_BOTH_TRANS(f16, "f16")
FL_WGMMA_BOTH_TRANS(bf16, "bf16")
#undef FL_WGMMA_BOTH_TRANS

/* Start to copy bytes, a multiple of 16, that lie one behind the other; they arrive at the mbarrier (9.7.9.25.4.1). */
__device__ __forceinline__ void copy_bytes_to_smem(uint32_t smem_addr, const void *gmem, uint32_t bytes,
                                                   uint32_t mbarrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem_addr),
        "l"(gmem), "r"(bytes), "r"(mbarrier)
        : "memory");
}

/* Add two floats to 8 bytes of global memory, each in one step but in any order (9.7.13.6 red). */
__device__ __forceinline__ void red_add_v2(float *gmem, float first, float second) {
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(gmem), "f"(first), "f"(second) : "memory");
}

/* The same of four floats in 16 bytes. */
__device__ __forceinline__ void red_add_v4(float *gmem, const float (&d)[4]) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(gmem), "f"(d[0]), "f"(d[1]),
                 "f"(d[2]), "f"(d[3])
                 : "memory");
}

#endif
