/* ptx_wgmma_boxes.cuh - wgmma on matrices that are stored in boxes of 16 rows, one box after the other.
 *
 *     const uint64_t K = box_descriptor(first_box, box_bytes);
 *     wgmma_of_boxes<FP16>(d, a, K + box_columns(k), 0);                   rows 0 to 7 of each box, columns 16k ...
 *     wgmma_of_boxes<FP16>(d, a, K + box_keys_8 + box_columns(k), 0);      rows 8 to 15
 *     wgmma_of_rows<FP16>(d, a, wgmma_descriptor(box, tile_bytes), 1);     one box, transposed
 *
 * A box is tiles of 64 columns one after the other, each 16 rows of 128 bytes, as the TMA unit writes it. The groups of
 * 8 rows of a K-major matrix are at equal distances, here those of boxes: so it has half of the rows of each.
 * Conventions: ptx_sm90a.cuh.
 */
#ifndef FL_PTX_WGMMA_BOXES_CUH
#define FL_PTX_WGMMA_BOXES_CUH

#include "common/ptx_sm90a.cuh"

/* 8 rows are box_bytes after the 8 before. */
__device__ __forceinline__ uint64_t box_descriptor(uint32_t smem_addr, uint32_t box_bytes) {
    return (uint64_t)1 << 62 | (uint64_t)(box_bytes / 16) << 32 | smem_addr / 16;
}

/* Offsets of the other rows of each box, and of columns from 16k on. */
constexpr uint64_t box_keys_8 = 8 * 128 / 16;
__device__ __forceinline__ constexpr uint64_t box_columns(int k) {
    return k / 4 * (16 * 128 / 16) + k % 4 * 2;
}

/* wgmma_m64n32k16_f16(d, a, b, accumulate): a in registers, b the descriptor of a K-major matrix. */
#define FL_WGMMA_32(type, ptx_type)                                                                                    \
    __device__ __forceinline__ void wgmma_m64n32k16_##type(float (&d)[4][4], const uint32_t (&a)[4], uint64_t b,       \
                                                           int accumulate) {                                           \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %21, 0; "                                                         \
                     "wgmma.mma_async.sync.aligned.m64n32k16.f32." ptx_type "." ptx_type                               \
                     " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "                       \
                     "{%16, %17, %18, %19}, %20, p, 1, 1, 0; }"                                                        \
                     : FL_TILES_4(d, 0)                                                                                \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                           \
    }
FL_WGMMA_32(f16, "f16")
FL_WGMMA_32(bf16, "bf16")
#undef FL_WGMMA_32

/* wgmma_m64n32k16_f16(d, a, b, accumulate): a and b are descriptors of K-major matrices. */
#define FL_WGMMA_32(type, ptx_type)                                                                                    \
    __device__ __forceinline__ void wgmma_m64n32k16_##type(float (&d)[4][4], uint64_t a, uint64_t b, int accumulate) { \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0; "                                                         \
                     "wgmma.mma_async.sync.aligned.m64n32k16.f32." ptx_type "." ptx_type                               \
                     " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "                       \
                     "%16, %17, p, 1, 1, 0, 0; }"                                                                      \
                     : FL_TILES_4(d, 0)                                                                                \
                     : "l"(a), "l"(b), "r"(accumulate));                                                               \
    }
FL_WGMMA_32(f16, "f16")
FL_WGMMA_32(bf16, "bf16")
#undef FL_WGMMA_32

template <int pending>
__device__ __forceinline__ void wgmma_wait_group(float (&d)[4][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %16;" : FL_TILES_4(d, 0) : "n"(pending) : "memory");
}

/* d[64 x 8 boxes] (+)= a * b, of 4 or 8 boxes. */
template <enum dtype type, int boxes>
__device__ __forceinline__ void wgmma_of_boxes(float (&d)[boxes][4], const uint32_t (&a)[4], uint64_t b,
                                               int accumulate) {
    static_assert(boxes == 4 || boxes == 8, "boxes must be 4 or 8: wgmma's n is 8 of each");
    if constexpr (boxes == 4 && type == FP16) wgmma_m64n32k16_f16(d, a, b, accumulate);
    if constexpr (boxes == 4 && type == BF16) wgmma_m64n32k16_bf16(d, a, b, accumulate);
    if constexpr (boxes == 8 && type == FP16) wgmma_m64n64k16_f16(d, a, b, accumulate);
    if constexpr (boxes == 8 && type == BF16) wgmma_m64n64k16_bf16(d, a, b, accumulate);
}

/* d[64 x 8 tiles] += a * b, b the 16 rows of a box, transposed. */
template <enum dtype type, int n_tiles>
__device__ __forceinline__ void wgmma_of_rows(float (&d)[n_tiles][4], const uint32_t (&a)[4], uint64_t b) {
    static_assert(n_tiles == 8 || n_tiles == 16, "n_tiles must be 8 or 16: rows of 64 or 128 elements");
    if constexpr (n_tiles == 8 && type == FP16) wgmma_m64n64k16_f16_trans(d, a, b, 1);
    if constexpr (n_tiles == 8 && type == BF16) wgmma_m64n64k16_bf16_trans(d, a, b, 1);
    if constexpr (n_tiles == 16 && type == FP16) wgmma_m64n128k16_f16_trans(d, a, b, 1);
    if constexpr (n_tiles == 16 && type == BF16) wgmma_m64n128k16_bf16_trans(d, a, b, 1);
}

#endif
