/* hopper.cuh - one PTX instruction of sm_90a per function, for the small kernels of this folder.
 *
 * Addresses of shared memory are 32-bit numbers. A wait asks until the phase of a parity is complete.
 */
#ifndef FL_TESTS_HOPPER_CUH
#define FL_TESTS_HOPPER_CUH

#include <cuda.h>
#include <stdint.h>

#define DEVICE static __device__ __forceinline__

DEVICE uint32_t shared_address(const void *pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* ---- mbarriers ---- */

DEVICE void init_barrier(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
DEVICE void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
DEVICE void arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
DEVICE void arrive_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
DEVICE bool has_completed(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done;
}
DEVICE void wait(uint32_t barrier, uint32_t parity) {
    while (!has_completed(barrier, parity)) {
    }
}

/* The same as a loop in PTX. */
DEVICE void wait_in_ptx(uint32_t barrier, uint32_t parity) {
    asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\n"
                 "bra again;\ndone:\n}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* ---- copies ---- */

DEVICE void copy_16_bytes(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
DEVICE void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int GROUPS>
DEVICE void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}
DEVICE void load_box(uint32_t to, const CUtensorMap *map, uint32_t barrier, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
                 "[%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(x), "r"(y)
                 : "memory");
}
DEVICE void store_box(const CUtensorMap *map, uint32_t from, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%1, {%2, %3}], [%0];" ::"r"(from), "l"(map),
                 "r"(x), "r"(y)
                 : "memory");
}
DEVICE void load_bytes(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}
DEVICE void store_bytes(void *to, uint32_t from, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
                 : "memory");
}
DEVICE void commit_stores() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Until all but the last groups have read shared memory, or have written global memory too. */
template <int GROUPS>
DEVICE void wait_until_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(GROUPS) : "memory");
}
template <int GROUPS>
DEVICE void wait_for_stores() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(GROUPS) : "memory");
}
/* What threads have stored can be read by wgmma and by copies. */
DEVICE void fence_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- warps ---- */

template <int BARRIER, int THREADS>
DEVICE void sync_named() {
    asm volatile("bar.sync %0, %1;" ::"n"(BARRIER), "n"(THREADS) : "memory");
}
DEVICE void sync_named(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
DEVICE void arrive_named(int barrier, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
template <int REGISTERS>
DEVICE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
DEVICE void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
DEVICE bool elected() {
    uint32_t is;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(is));
    return is;
}

/* ---- wgmma: m64n64k16 of fp16 ---- */

constexpr int ACCUMULATORS = 32;

/* Without a swizzle: rows of 16 bytes, eight of them together; offsets in bytes along K and along rows. */
DEVICE uint64_t plain_descriptor(uint32_t address, uint32_t leading, uint32_t stride) {
    return (address & 0x3ffff) >> 4 | (uint64_t)(leading / 16) << 16 | (uint64_t)(stride / 16) << 32;
}
/* Rows of 128 bytes with the 128-byte swizzle, as a copy of a box leaves them. */
DEVICE uint64_t swizzled_descriptor(uint32_t address) {
    return (address & 0x3ffff) >> 4 | (uint64_t)(1024 / 16) << 32 | 1ull << 62;
}

DEVICE void fence_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
DEVICE void commit_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int GROUPS>
DEVICE void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
}
/* Nothing that uses the accumulators moves ahead of this. */
DEVICE void pin(float (&d)[ACCUMULATORS]) {
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; i++) asm volatile("" : "+f"(d[i])::"memory");
}

#define D8(i)                                                                                                          \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),        \
        "+f"(d[i + 7])
#define D_OPERAND                                                                                                      \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                          \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

/* d = a b' (+ d): a and b in shared memory. */
template <bool ADDS>
DEVICE void multiply(float (&d)[ACCUMULATORS], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " D_OPERAND ", %32, %33, %34, 1, 1, 0, 0;"
                 : D8(0), D8(8), D8(16), D8(24)
                 : "l"(a), "l"(b), "n"(ADDS ? 1 : 0));
}
/* Likewise with a in registers. */
template <bool ADDS>
DEVICE void multiply(float (&d)[ACCUMULATORS], const uint32_t *a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " D_OPERAND
                 ", {%32, %33, %34, %35}, %36, %37, 1, 1, 0;"
                 : D8(0), D8(8), D8(16), D8(24)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADDS ? 1 : 0));
}

/* Accumulators of a warpgroup to 64 rows of 64 columns. */
DEVICE void write_tile(float *to, int pitch, const float (&d)[ACCUMULATORS]) {
    const int thread = threadIdx.x % 128, row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; i++)
        to[(row + i % 4 / 2 * 8) * pitch + i / 4 * 8 + column + i % 2] = d[i];
}

#endif
