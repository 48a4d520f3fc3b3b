/* ptx_sm80.cuh - one PTX instruction per function, all of them available from compute capability 8.0 on.
 *
 *     ldmatrix_x4(a, smem_addr);
 *     mma_m16n8k16_f16(d, a, b0, b1);
 *
 * Section numbers are those of the PTX ISA, version 8.x and 9.x. Pointers are generic or global; a parameter named
 * smem_addr is a byte address in the shared window, as __cvta_generic_to_shared gives it.
 *
 * The compiler does not look into an asm statement: it knows the operands and nothing else.
 * - An instruction that computes a value from its operands is a plain asm: it may be moved, merged or dropped.
 * - An instruction that reads or writes memory, or waits for it, is `asm volatile` with a "memory" clobber. Without it
 *   a load from shared memory would look like a function of its address and leave the KV loop.
 */
#ifndef FL_PTX_SM80_CUH
#define FL_PTX_SM80_CUH

#include <stdint.h>

/* ---- global memory to shared memory, without registers (9.7.9.25 "Asynchronous copy") ---- */

/* Start a copy of 16 bytes. Both addresses are multiples of 16. .cg keeps the line out of L1; L2::128B lets L2 fetch
 * the entire 128-byte line. The bytes are there for this thread after cp_async_wait_group, for others after a barrier.
 */
__device__ __forceinline__ void cp_async_16(uint32_t smem_addr, const void *gmem) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(smem_addr), "l"(gmem) : "memory");
}

/* Copy 16 bytes if `exists`; otherwise the 16 bytes become zeros, and gmem, which may be any address, is not read. */
__device__ __forceinline__ void cp_async_16_or_zeros(uint32_t smem_addr, const void *gmem, bool exists) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(smem_addr), "l"(gmem),
                 "r"(exists ? 16 : 0)
                 : "memory");
}

/* Close the group of this thread's copies started since the last commit. */
__device__ __forceinline__ void cp_async_commit_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Wait until at most `pending` of this thread's youngest groups are unfinished. */
template <int pending>
__device__ __forceinline__ void cp_async_wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/* ---- 16-byte and 4-byte loads and stores (9.7.9.8 ld, 9.7.9.11 st); v4 addresses are multiples of 16 ---- */

__device__ __forceinline__ void ld_global_v4(uint32_t (&value)[4], const void *gmem) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
                 : "l"(gmem)
                 : "memory");
}

__device__ __forceinline__ void st_global_v4(void *gmem, const uint32_t (&value)[4]) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(gmem), "r"(value[0]), "r"(value[1]), "r"(value[2]),
                 "r"(value[3])
                 : "memory");
}

/* Store without going through L1, for bytes that are not read again soon. relaxed.sys names the memory model's order
 * and scope (8.8), which the cache operation needs; for a kernel's own results it adds no requirement. */
__device__ __forceinline__ void st_global_v4_no_allocate(void *gmem, const uint32_t (&value)[4]) {
    asm volatile("st.relaxed.sys.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(gmem), "r"(value[0]),
                 "r"(value[1]), "r"(value[2]), "r"(value[3])
                 : "memory");
}

__device__ __forceinline__ void ld_shared_v4(uint32_t (&value)[4], uint32_t smem_addr) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
                 : "r"(smem_addr)
                 : "memory");
}

__device__ __forceinline__ void st_shared_v4(uint32_t smem_addr, const uint32_t (&value)[4]) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(smem_addr), "r"(value[0]), "r"(value[1]),
                 "r"(value[2]), "r"(value[3])
                 : "memory");
}

__device__ __forceinline__ void st_shared_u32(uint32_t smem_addr, uint32_t value) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(smem_addr), "r"(value) : "memory");
}

/* ---- shared memory to tensor-core fragments (9.7.14.5.15 ldmatrix) ---- */

/* Load four 8x8 matrices of 16-bit elements. Lane 8i + r gives the address of row r (16 bytes) of matrix i; every lane
 * gets, in fragment[i], elements 2 * (lane % 4) and 2 * (lane % 4) + 1 of row lane / 4 of matrix i. All 32 lanes
 * call. */
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&fragment)[4], uint32_t smem_addr) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(smem_addr)
                 : "memory");
}

/* Load with every 8x8 matrix transposed: a lane gets two elements of one column. */
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&fragment)[4], uint32_t smem_addr) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(smem_addr)
                 : "memory");
}

/* ---- matrix multiply-accumulate (9.7.14.5.8, "Matrix Fragments for mma.m16n8k16 with floating point type") ----
 *
 * d[16x8] += a[16x16] * b[16x8], a and b of 16-bit elements, d of fp32. With g = lane / 4 and t = 2 * (lane % 4), a
 * lane holds, as 16-bit pairs, lower column (a) or row (b) first:
 *     a[0] row g,     columns t, t + 1         b0  rows t, t + 1,         column g
 *     a[1] row g + 8, columns t, t + 1         b1  rows t + 8, t + 9,     column g
 *     a[2] row g,     columns t + 8, t + 9     d[0], d[1]  row g,     columns t, t + 1
 *     a[3] row g + 8, columns t + 8, t + 9     d[2], d[3]  row g + 8, columns t, t + 1
 */

__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* ---- two floats to a pair of 16-bit elements, rounded to nearest even (9.7.9.22 cvt); low is the lower column ---- */

__device__ __forceinline__ uint32_t cvt_f16x2(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ uint32_t cvt_bf16x2(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* ---- a 16-bit element to a float, exactly (9.7.9.22 cvt) ---- */

__device__ __forceinline__ float cvt_f32_f16(uint16_t bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

/* ---- 2 to the power of x (9.7.3.20 ex2); the largest relative error is 2^-22.5 and ex2(-inf) is 0 ---- */

__device__ __forceinline__ float ex2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- logarithm to base 2 (9.7.3.19 lg2); lg2(0) is -inf ---- */

__device__ __forceinline__ float lg2_approx(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- 32-bit factors, 64-bit sum (9.7.1.4 mad) ---- */

/* a * b + c. The compiler would widen a factor that is the same in an entire loop before it, and then multiply 64 bits
 * by
 * 64. */
__device__ __forceinline__ int64_t mad_wide_s32(int32_t a, int32_t b, int64_t c) {
    int64_t sum;
    asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(sum) : "r"(a), "r"(b), "l"(c));
    return sum;
}

/* ---- thread index in the CTA (10.1 %tid) ----
 *
 * Unlike threadIdx.x this is volatile: it is read here, and values that depend on it are computed after it.
 */
__device__ __forceinline__ uint32_t read_tid_x() {
    uint32_t tid;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(tid));
    return tid;
}

/* ---- a value that all lanes of the warp have (9.7.13.7 redux.sync) ----
 *
 * It comes back in a uniform register. The compiler then knows that loops and branches that depend on it are the same
 * for all lanes, and keeps what they count, such as the descriptors of wgmma, in uniform registers too. If a role whose
 * code synchronizes the lanes, for example by a shuffle, is chosen by threadIdx.x / 32 itself, the compiler assumes
 * that the lanes of a warp may be apart ever after, also in the KV loop, and adds instructions that bring them
 * together.
 */
__device__ __forceinline__ int warp_uniform(int value) {
    int uniform;
    asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(uniform) : "r"(value));
    return uniform;
}

/* ---- mbarrier: a counter in shared memory that threads and copies arrive at (9.7.13.15 "mbarrier") ----
 *
 * An mbarrier is 8 bytes at a multiple of 8. Its phase is complete after `count` arrivals; then the next phase begins,
 * with the same count. Phases are distinguished by their parity: the first has parity 0.
 */

/* Set up for phases of `count` arrivals. One thread does it; the others may use it after a barrier. */
__device__ __forceinline__ void mbarrier_init(uint32_t smem_addr, uint32_t count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(smem_addr), "r"(count) : "memory");
}

/* Arrive once. Earlier reads and writes of this thread happen before every thread that observes the completed phase. */
__device__ __forceinline__ void mbarrier_arrive(uint32_t smem_addr) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(smem_addr) : "memory");
}

/* Let all copies that this thread started with cp.async arrive once, together, when they are done; .noinc counts that
 * arrival among the `count` of mbarrier_init. */
__device__ __forceinline__ void cp_async_mbarrier_arrive_noinc(uint32_t smem_addr) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(smem_addr) : "memory");
}

/* True if the phase of this parity is complete: true for the phase before the current one, so that a wait for parity 1
 * right after mbarrier_init ends at once. */
__device__ __forceinline__ bool mbarrier_test_wait_parity(uint32_t smem_addr, uint32_t parity) {
    uint32_t done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(smem_addr), "r"(parity)
                 : "memory");
    return done != 0;
}

#endif
