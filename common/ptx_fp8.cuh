/* ptx_fp8.cuh - one PTX instruction per function: those that only the fp8 kernels take, for sm_90a.
 *
 *     wgmma_m64n128k32_e4m3(S, Q_descriptor, K_descriptor, 0);
 *     uint32_t four = cvt_e4m3x4(p[0], p[1], p[2], p[3]);
 *
 * Conventions: common/ptx_sm90a.cuh.
 */
#ifndef FL_PTX_FP8_CUH
#define FL_PTX_FP8_CUH

#include "common/ptx_sm90a.cuh"

/* ---- wgmma of e4m3: d[64 x n] (+)= a[64x32] * b[32 x n], d of fp32 (9.7.15) ----
 *
 * Tiles of d are those of 16-bit elements. Both matrices are K-major: there is no other form for bytes. In shared
 * memory a row of 128 bytes has 128 elements, and wgmma_descriptor() names a matrix as there; columns 32k ... : 2 * k.
 * a in registers: with g = lane / 4 and q = lane % 4 a lane holds, lower column in the lower byte,
 *     a[0] row g,     columns 4q ... 4q + 3         a[2] row g,     columns 16 + 4q ...
 *     a[1] row g + 8, columns 4q ... 4q + 3         a[3] row g + 8, columns 16 + 4q ...
 */

#define FL_NAMES_12 FL_NAMES_8 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define FL_TILES_12(d) FL_TILES_8(d), FL_TILES_4(d, 8)

/* a and b are descriptors. */
#define FL_WGMMA_E4M3(n, tiles, a_name, b_name, accumulate_name)                                                       \
    __device__ __forceinline__ void wgmma_m64n##n##k32_e4m3(float (&d)[tiles][4], uint64_t a, uint64_t b,              \
                                                            int accumulate) {                                          \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " accumulate_name ", 0; "                                         \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3 {" FL_NAMES_##tiles                     \
                     "}, " a_name ", " b_name ", p, 1, 1; }"                                                           \
                     : FL_TILES_##tiles(d)                                                                             \
                     : "l"(a), "l"(b), "r"(accumulate));                                                               \
    }
FL_WGMMA_E4M3(64, 8, "%32", "%33", "%34")
FL_WGMMA_E4M3(96, 12, "%48", "%49", "%50")
FL_WGMMA_E4M3(128, 16, "%64", "%65", "%66")
#undef FL_WGMMA_E4M3

/* a in registers, b a descriptor. */
__device__ __forceinline__ void wgmma_m64n128k32_e4m3(float (&d)[16][4], const uint32_t (&a)[4], uint64_t b,
                                                      int accumulate) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %69, 0; "
                 "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" FL_NAMES_16
                 "}, {%64, %65, %66, %67}, %68, p, 1, 1; }"
                 : FL_TILES_16(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

__device__ __forceinline__ void wgmma_m64n64k32_e4m3(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b,
                                                     int accumulate) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0; "
                 "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {" FL_NAMES_8
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1; }"
                 : FL_TILES_8(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

__device__ __forceinline__ void wgmma_m64n256k32_e4m3(float (&d)[32][4], const uint32_t (&a)[4], uint64_t b,
                                                      int accumulate) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %133, 0; "
                 "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {" FL_NAMES_32
                 "}, {%128, %129, %130, %131}, %132, p, 1, 1; }"
                 : FL_TILES_32(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

template <int pending>
__device__ __forceinline__ void wgmma_wait_group(float (&d)[12][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %48;" : FL_TILES_12(d) : "n"(pending) : "memory");
}

/* The product of a warp by mma.sync (9.7.14.5.10): d[16x8] += a[16x32] * b[32x8], a as above. With g = lane / 4 and q =
 * lane % 4 a lane holds column g of b: b0 its rows 4q ... 4q + 3, b1 16 + 4q ... */
__device__ __forceinline__ void mma_m16n8k32_e4m3(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The same product by the instruction of sm_120a that scales each row of a and column of b by a power of two, here by
 * 2^0: the exponent 127 of ue8m0, in byte 0 of every lane's word (9.7.14.3). */
__device__ __forceinline__ void mma_m16n8k32_e4m3_scaled_by_1(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                              uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, %10, {0, 0}, %10, {0, 0};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(127));
}

/* ---- e4m3 (9.7.9.22 cvt) ---- */

/* Four floats to as many bytes, the first in the lowest, rounded to nearest even; what is too large becomes 448. */
__device__ __forceinline__ uint32_t cvt_e4m3x4(float a, float b, float c, float d) {
    uint32_t bytes;
    asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; "
        "mov.b32 %0, {low, high}; }"
        : "=r"(bytes)
        : "f"(a), "f"(b), "f"(c), "f"(d));
    return bytes;
}

/* The lower two bytes as a pair of fp16 numbers, exactly. */
__device__ __forceinline__ uint32_t cvt_f16x2_e4m3x2(uint32_t bytes) {
    uint32_t pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((uint16_t)bytes));
    return pair;
}

/* Sums of two pairs of fp16 numbers. */
__device__ __forceinline__ uint32_t add_f16x2(uint32_t a, uint32_t b) {
    uint32_t sum;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
}

/* Four numbers, times e4m3_factor, as fp16: a pair of bytes 0 and 2, and one of bytes 1 and 3. For GPUs before 8.9,
 * which have no cvt from e4m3. The exponent and the fraction move to those of fp16, where the bias is 8 larger, so that
 * the pair is 2^-8 of its value. The product is exact, and only 480, which has the bits of a NaN, becomes infinite. */
constexpr float e4m3_factor = 144;
__device__ __forceinline__ void widen_e4m3x4(uint32_t bytes, uint32_t (&pairs)[2]) {
    for (int odd = 0; odd < 2; odd++) {
        const uint32_t upper = odd ? bytes : bytes << 8; /* the number is the upper byte of each half */
        const uint32_t number = upper >> 1 & 0x3f803f80 | upper & 0x80008000;
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pairs[odd]) : "r"(number), "r"(0x78807880)); /* 144 * 2^8 */
    }
}

/* Four int8 numbers as fp16, exactly, in pairs of the same order. With its sign bit flipped a byte b is b + 128, and in
 * the fraction of the fp16 number 1024 it makes 1024 + 128 + b. */
__device__ __forceinline__ void widen_int8x4(uint32_t bytes, uint32_t (&pairs)[2]) {
    for (int odd = 0; odd < 2; odd++)
        pairs[odd] = add_f16x2(__byte_perm(bytes ^ 0x80808080, 0x64646464, odd ? 0x4341 : 0x4240), 0xe480e480);
}

/* ---- the TMA unit, with a coordinate for each of five dimensions (9.7.9.27) ---- */

__device__ __forceinline__ void copy_box_to_smem(uint32_t smem_addr, const tensor_map &map, uint32_t mbarrier, int c0,
                                                 int c1, int c2, int c3, int c4) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(smem_addr),
                 "l"(&map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "r"(mbarrier)
                 : "memory");
}

/* ---- four floats in shared memory, at a multiple of 16 bytes (9.7.9.11 st, 9.7.9.8 ld) ---- */

__device__ __forceinline__ void store_floats(uint32_t smem_addr, const float (&x)[4]) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(smem_addr), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
}
__device__ __forceinline__ void load_floats(uint32_t smem_addr, float (&x)[4]) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "r"(smem_addr)
                 : "memory");
}

/* Two words, at a multiple of 8 bytes. */
__device__ __forceinline__ void load_pair(uint32_t smem_addr, uint32_t &a, uint32_t &b) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(smem_addr) : "memory");
}
__device__ __forceinline__ void store_pair(uint32_t smem_addr, uint32_t a, uint32_t b) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(smem_addr), "r"(a), "r"(b) : "memory");
}

#endif
