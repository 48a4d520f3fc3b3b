/* ptx_sm90a.cuh - one PTX instruction per function, those that compute capability 9.0 has in addition ("sm_90a").
 *
 *     wgmma_fence();
 *     wgmma_m64n128k16_f16(S, Q_descriptor, K_descriptor, 0);
 *     wgmma_commit_group();
 *     wgmma_wait_group<0>(S);
 *
 * Conventions, section numbers and what the compiler knows of an asm statement: ptx_sm80.cuh. A warpgroup is four
 * warps, the first of which has a number that is a multiple of 4; all of its threads call a wgmma function together.
 */
#ifndef FL_PTX_SM90A_CUH
#define FL_PTX_SM90A_CUH

#include "common/abi.h"
#include "common/ptx_sm80.cuh"

/* ---- wgmma: a warpgroup multiplies, while its threads continue (9.7.15 "Asynchronous Warpgroup Level Matrix") ----
 *
 * d[64 x n] (+)= a[64x16] * b[16 x n], a and b of 16-bit elements, d of fp32. Warp w of the warpgroup has rows 16w to
 * 16w + 15 of d, n / 8 tiles of 8 columns: tile d[i] is what d is in mma.m16n8k16. a in registers is what a is there.
 * d = a * b where `accumulate` is 0.
 *
 * In shared memory a matrix is a row of tiles, each of 64 elements (128 bytes) times any number of rows, one row after
 * the other, at a multiple of 1024 bytes. The 16-byte chunks of a row are swizzled: chunk c of row r is stored at
 * position c ^ (r % 8). wgmma_descriptor() names such a matrix. The first element of a block is added to it in units of
 * 16 bytes:
 *     K-major (a, and b as in Q K^T: a row of K is a column of b)   columns 16k ... of a tile: 2 * k
 *     transposed (b as in P V: a row of V is a row of b)            rows 16k ... : 128 * k
 */

/* Tiles of a transposed matrix are `tile_bytes` apart; a K-major one, of which an instruction reads one tile only,
 * has no use for it. 8 rows are 1024 bytes; bits 62 and 63 say 1: the swizzle of 128-byte rows. */
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t smem_addr, uint32_t tile_bytes) {
    return (uint64_t)1 << 62 | (uint64_t)(1024 / 16) << 32 | (uint64_t)(tile_bytes / 16) << 16 | smem_addr / 16;
}

/* The operands of d: n / 8 tiles of four registers. */
#define FL_TILE(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define FL_TILES_4(d, i) FL_TILE(d, i), FL_TILE(d, i + 1), FL_TILE(d, i + 2), FL_TILE(d, i + 3)
#define FL_TILES_8(d) FL_TILES_4(d, 0), FL_TILES_4(d, 4)
#define FL_TILES_16(d) FL_TILES_8(d), FL_TILES_4(d, 8), FL_TILES_4(d, 12)
#define FL_TILES_32(d) FL_TILES_16(d), FL_TILES_4(d, 16), FL_TILES_4(d, 20), FL_TILES_4(d, 24), FL_TILES_4(d, 28)
#define FL_NAMES_8                                                                                                     \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FL_NAMES_16                                                                                                    \
    FL_NAMES_8 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                    \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define FL_NAMES_32                                                                                                    \
    FL_NAMES_16 ", "                                                                                                   \
                "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                     \
                "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                     \
                "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "         \
                "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/* wgmma_m64n128k16_f16(d, a, b, accumulate): a and b are descriptors of K-major matrices. */
#define FL_WGMMA(n, tiles, type, ptx_type, a_name, b_name, accumulate_name)                                            \
    __device__ __forceinline__ void wgmma_m64n##n##k16_##type(float (&d)[tiles][4], uint64_t a, uint64_t b,            \
                                                              int accumulate) {                                        \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " accumulate_name ", 0; "                                         \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." ptx_type "." ptx_type " {" FL_NAMES_##tiles     \
                     "}, " a_name ", " b_name ", p, 1, 1, 0, 0; }"                                                     \
                     : FL_TILES_##tiles(d)                                                                             \
                     : "l"(a), "l"(b), "r"(accumulate));                                                               \
    }

/* wgmma_m64n128k16_f16(d, a, b, accumulate): a in registers, b the descriptor of a K-major matrix. */
#define FL_WGMMA_REGISTERS(n, tiles, type, ptx_type, a_names, b_name, accumulate_name)                                 \
    __device__ __forceinline__ void wgmma_m64n##n##k16_##type(float (&d)[tiles][4], const uint32_t (&a)[4],            \
                                                              uint64_t b, int accumulate) {                            \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " accumulate_name ", 0; "                                         \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." ptx_type "." ptx_type " {" FL_NAMES_##tiles     \
                     "}, {" a_names "}, " b_name ", p, 1, 1, 0; }"                                                     \
                     : FL_TILES_##tiles(d)                                                                             \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                           \
    }

/* wgmma_m64n128k16_f16_trans(d, a, b, accumulate): a in registers, b the descriptor of a transposed matrix. */
#define FL_WGMMA_TRANS(n, tiles, type, ptx_type, a_names, b_name, accumulate_name)                                     \
    __device__ __forceinline__ void wgmma_m64n##n##k16_##type##_trans(float (&d)[tiles][4], const uint32_t (&a)[4],    \
                                                                      uint64_t b, int accumulate) {                    \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " accumulate_name ", 0; "                                         \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." ptx_type "." ptx_type " {" FL_NAMES_##tiles     \
                     "}, {" a_names "}, " b_name ", p, 1, 1, 1; }"                                                     \
                     : FL_TILES_##tiles(d)                                                                             \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                           \
    }

FL_WGMMA(64, 8, f16, "f16", "%32", "%33", "%34")
FL_WGMMA(64, 8, bf16, "bf16", "%32", "%33", "%34")
FL_WGMMA(128, 16, f16, "f16", "%64", "%65", "%66")
FL_WGMMA(128, 16, bf16, "bf16", "%64", "%65", "%66")
FL_WGMMA_REGISTERS(64, 8, f16, "f16", "%32, %33, %34, %35", "%36", "%37")
FL_WGMMA_REGISTERS(64, 8, bf16, "bf16", "%32, %33, %34, %35", "%36", "%37")
FL_WGMMA_REGISTERS(128, 16, f16, "f16", "%64, %65, %66, %67", "%68", "%69")
FL_WGMMA_REGISTERS(128, 16, bf16, "bf16", "%64, %65, %66, %67", "%68", "%69")
FL_WGMMA_TRANS(64, 8, f16, "f16", "%32, %33, %34, %35", "%36", "%37")
FL_WGMMA_TRANS(64, 8, bf16, "bf16", "%32, %33, %34, %35", "%36", "%37")
FL_WGMMA_TRANS(128, 16, f16, "f16", "%64, %65, %66, %67", "%68", "%69")
FL_WGMMA_TRANS(128, 16, bf16, "bf16", "%64, %65, %66, %67", "%68", "%69")

FL_WGMMA_TRANS(256, 32, f16, "f16", "%128, %129, %130, %131", "%132", "%133")
FL_WGMMA_TRANS(256, 32, bf16, "bf16", "%128, %129, %130, %131", "%132", "%133")

#undef FL_WGMMA
#undef FL_WGMMA_REGISTERS
#undef FL_WGMMA_TRANS

/* Before the first wgmma, and again once threads have written registers that the next wgmma reads. */
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Close the group of the wgmma started since the last commit. */
__device__ __forceinline__ void wgmma_commit_group() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Wait until at most `pending` of the youngest groups are unfinished. Until then nobody may touch the registers and the
 * shared memory of a group. d is a result of the groups waited for: as an operand it keeps the compiler from reading
 * it earlier. */
template <int pending>
__device__ __forceinline__ void wgmma_wait_group(float (&d)[8][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %32;" : FL_TILES_8(d) : "n"(pending) : "memory");
}
template <int pending>
__device__ __forceinline__ void wgmma_wait_group(float (&d)[16][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %64;" : FL_TILES_16(d) : "n"(pending) : "memory");
}
template <int pending>
__device__ __forceinline__ void wgmma_wait_group(float (&d)[32][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %128;" : FL_TILES_32(d) : "n"(pending) : "memory");
}

/* ---- proxies (8.5): wgmma and TMA reach shared memory by a way of their own, the async proxy ---- */

/* Make this thread's writes to shared memory, and those that it observed, visible to the async proxy. */
__device__ __forceinline__ void fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- mbarrier that counts bytes (9.7.13.15): a phase is complete once all threads have arrived and as many bytes as
 * they announced ---- */

/* After mbarrier_init, before the barrier of the CTA: TMA may use the mbarriers from then on. */
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrive once, and announce bytes that copies will bring. */
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t smem_addr, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(smem_addr), "r"(bytes) : "memory");
}

/* Like mbarrier_test_wait_parity, but the thread may sleep for a while before the answer is false. */
__device__ __forceinline__ bool mbarrier_try_wait_parity(uint32_t smem_addr, uint32_t parity) {
    uint32_t done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(smem_addr), "r"(parity)
                 : "memory");
    return done != 0;
}

/* ---- clusters of CTAs (9.7.9.23 mapa, 9.7.13.4 barrier.cluster, 9.7.9.14 st.async) ---- */

/* Number of this CTA in its cluster (10.1 %cluster_ctarank). */
__device__ __forceinline__ int cluster_rank() {
    int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* Wait for all threads of the cluster that have not ended. */
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

/* The address at which CTA number `rank` of the cluster has what this CTA has at smem_addr. */
__device__ __forceinline__ uint32_t address_in_cluster(uint32_t smem_addr, int rank) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(smem_addr), "r"(rank));
    return there;
}

/* Arrive at the mbarrier of another CTA, which orders what this thread has read before what that CTA writes next. */
__device__ __forceinline__ void mbarrier_arrive_in_cluster(uint32_t cluster_addr) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_addr) : "memory");
}

/* Start to store 4 or 16 bytes in another CTA. They arrive at its mbarrier. */
__device__ __forceinline__ void store_async(uint32_t cluster_addr, uint32_t cluster_mbarrier, int value) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(cluster_addr),
                 "r"(value), "r"(cluster_mbarrier)
                 : "memory");
}
__device__ __forceinline__ void store_async_v4(uint32_t cluster_addr, uint32_t cluster_mbarrier, const float (&a)[4]) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     cluster_addr),
                 "r"(__float_as_int(a[0])), "r"(__float_as_int(a[1])), "r"(__float_as_int(a[2])),
                 "r"(__float_as_int(a[3])), "r"(cluster_mbarrier)
                 : "memory");
}

/* ---- the TMA unit (9.7.9.27 "Tensor Data Movement"): one thread starts the copy of an entire block ----
 *
 * A map describes a tensor (batch, heads, seq, d_head) as five dimensions, with d_head in tiles of 64, and the rows of
 * a block. In shared memory a block is the row of swizzled tiles that wgmma reads.
 */

/* Fetch the map, so that the first copy does not wait for it. */
__device__ __forceinline__ void prefetch_tensor_map(const tensor_map &map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/* Start to copy the block that begins at a row of a head. Its bytes arrive at the mbarrier. */
__device__ __forceinline__ void copy_tensor_to_smem(uint32_t smem_addr, const tensor_map &map, uint32_t mbarrier,
                                                    int row, int head, int sample) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %2, %4, %5}], [%6];" ::"r"(smem_addr),
                 "l"(&map), "r"(0), "r"(row), "r"(head), "r"(sample), "r"(mbarrier)
                 : "memory");
}

/* Start to copy a block to the tensor. */
__device__ __forceinline__ void copy_smem_to_tensor(const tensor_map &map, uint32_t smem_addr, int row, int head,
                                                    int sample) {
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %1, %3, %4}], [%5];" ::"l"(&map),
        "r"(0), "r"(row), "r"(head), "r"(sample), "r"(smem_addr)
        : "memory");
}

/* Close the group of this thread's copies to tensors since the last commit. */
__device__ __forceinline__ void bulk_commit_group() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Wait until at most `pending` of this thread's youngest groups still read shared memory. */
template <int pending>
__device__ __forceinline__ void bulk_wait_group_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

/* ---- fragments to shared memory (9.7.14.5.16 stmatrix) ---- */

/* Store four 8x8 matrices of 16-bit elements, the reverse of ldmatrix_x4: lane 8i + r gives the address of row r of
 * matrix i. */
__device__ __forceinline__ void stmatrix_x4(uint32_t smem_addr, const uint32_t (&fragment)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_addr), "r"(fragment[0]),
                 "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3])
                 : "memory");
}

/* ---- integers in shared memory, four of them at a multiple of 16 bytes (9.7.9.11 st, 9.7.9.8 ld) ---- */

__device__ __forceinline__ void store_shared(uint32_t smem_addr, int value) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(smem_addr), "r"(value) : "memory");
}
__device__ __forceinline__ int load_shared(uint32_t smem_addr) {
    int value;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(smem_addr) : "memory");
    return value;
}

__device__ __forceinline__ void store_shared_v4(uint32_t smem_addr, int a, int b, int c, int d) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(smem_addr), "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}
__device__ __forceinline__ void load_shared_v4(uint32_t smem_addr, int &a, int &b, int &c, int &d) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(smem_addr)
                 : "memory");
}

/* ---- roles of warpgroups (9.7.18 setmaxnreg, 9.7.13.1 bar) ---- */

/* Give back registers, or wait for them: from here on each thread of the warpgroup has `registers` of them. */
template <int registers>
__device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

/* Named barriers 1 to 15; __syncthreads() is number 0. `threads` counts those that wait and those that only arrive. */
__device__ __forceinline__ void bar_sync(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void bar_arrive(int barrier, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

#endif
