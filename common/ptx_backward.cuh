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

/* d[64 x 128] (+)= a * b, the same; b has two tiles. */
#define FL_WGMMA_BOTH_TRANS_128(type, ptx_type)                                                                        \
    __device__ __forceinline__ void wgmma_m64n128k16_##type##_both_trans(float (&d)[16][4], uint64_t a, uint64_t b,    \
                                                                         int accumulate) {                             \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; "                                                         \
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32." ptx_type "." ptx_type " {" FL_NAMES_16             \
                     "}, %64, %65, p, 1, 1, 1, 1; }"                                                                   \
                     : FL_TILES_16(d)                                                                                  \
                     : "l"(a), "l"(b), "r"(accumulate));                                                               \
    }
FL_WGMMA_BOTH_TRANS_128(f16, "f16")
FL_WGMMA_BOTH_TRANS_128(bf16, "bf16")
#undef FL_WGMMA_BOTH_TRANS_128

/* d[64 x 128] += a * b, where b alone is transposed. */
#define FL_WGMMA_B_TRANS(type, ptx_type)                                                                               \
    __device__ __forceinline__ void wgmma_m64n128k16_##type##_b_trans(float (&d)[16][4], uint64_t a, uint64_t b,       \
                                                                      int accumulate) {                                \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; "                                                         \
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32." ptx_type "." ptx_type " {" FL_NAMES_16             \
                     "}, %64, %65, p, 1, 1, 0, 1; }"                                                                   \
                     : FL_TILES_16(d)                                                                                  \
                     : "l"(a), "l"(b), "r"(accumulate));                                                               \
    }
FL_WGMMA_B_TRANS(f16, "f16")
FL_WGMMA_B_TRANS(bf16, "bf16")
#undef FL_WGMMA_B_TRANS
#define FL_WGMMA_B_TRANS_64(type, ptx_type)                                                                            \
    __device__ __forceinline__ void wgmma_m64n64k16_##type##_b_trans(float (&d)[8][4], uint64_t a, uint64_t b,         \
                                                                     int accumulate) {                                 \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; "                                                         \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." ptx_type "." ptx_type " {" FL_NAMES_8               \
                     "}, %32, %33, p, 1, 1, 0, 1; }"                                                                   \
                     : FL_TILES_8(d)                                                                                   \
                     : "l"(a), "l"(b), "r"(accumulate));                                                               \
    }
FL_WGMMA_B_TRANS_64(f16, "f16")
FL_WGMMA_B_TRANS_64(bf16, "bf16")
#undef FL_WGMMA_B_TRANS_64

#define FL_NAMES_4 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"

/* d[64 x 32] (+)= a * b, as wgmma_m64n64k16_f16(). */
#define FL_WGMMA_32(type, ptx_type)                                                                                    \
    __device__ __forceinline__ void wgmma_m64n32k16_##type(float (&d)[4][4], uint64_t a, uint64_t b, int accumulate) { \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0; "                                                         \
                     "wgmma.mma_async.sync.aligned.m64n32k16.f32." ptx_type "." ptx_type " {" FL_NAMES_4               \
                     "}, %16, %17, p, 1, 1, 0, 0; }"                                                                   \
                     : FL_TILES_4(d, 0)                                                                                \
                     : "l"(a), "l"(b), "r"(accumulate));                                                               \
    }
FL_WGMMA_32(f16, "f16")
FL_WGMMA_32(bf16, "bf16")
#undef FL_WGMMA_32
#undef FL_NAMES_4

/* stmatrix_x4() of transposed matrices: lane 8i + r gives the address of column r of matrix i. */
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t smem_addr, const uint32_t (&fragment)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_addr),
                 "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3])
                 : "memory");
}

template <int pending>
__device__ __forceinline__ void wgmma_wait_group(float (&d)[4][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %16;" : FL_TILES_4(d, 0) : "n"(pending) : "memory");
}

/* Start to copy bytes, a multiple of 16, that are packed; they arrive at the mbarrier (9.7.9.25.4.1). */
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

/* Add four floats in 16 bytes. */
__device__ __forceinline__ void red_add_v4(float *gmem, const float (&d)[4]) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(gmem), "f"(d[0]), "f"(d[1]),
                 "f"(d[2]), "f"(d[3])
                 : "memory");
}

#endif
