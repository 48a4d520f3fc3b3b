/* wgmma_peak.cu - how fast wgmma runs: m64nNk16 with A from shared memory or from registers, alone and together with
 * others.
 *
 * peak.c launches wgmma_peak_TYPE_nN_A with one CTA per multiprocessor. Every warpgroup has accumulators of its own and
 * starts wgmma without a pause; where `companion` is not 0, the last warpgroup executes such instructions until the
 * first one is done. The numbers multiplied are random, as zeros cost less power.
 */
#include "common/ptx_sm90a.cuh"
#include "harness/device/wgmma_peak.h"

#define NAMES_32                                                                                                       \
    FL_NAMES_16 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                   \
                "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                     \
                "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "         \
                "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define NAMES_16 FL_NAMES_16
#define NAMES_8 FL_NAMES_8
#define TILES_8(d) FL_TILES_8(d)
#define TILES_16(d) FL_TILES_16(d)
#define TILES_32(d) FL_TILES_16(d), FL_TILES_4(d, 16), FL_TILES_4(d, 20), FL_TILES_4(d, 24), FL_TILES_4(d, 28)

/* d += a * b, with a from shared memory or from registers: the operands after those of d. */
#define WGMMA(tiles, n, type, a_smem, b_smem, a_registers, b_registers)                                                \
    __device__ __forceinline__ void multiply_##type(float (&d)[tiles][4], uint64_t a, uint64_t b) {                    \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " {" NAMES_##tiles              \
                     "}, " a_smem ", " b_smem ", 1, 1, 1, 0, 0;"                                                       \
                     : TILES_##tiles(d)                                                                                \
                     : "l"(a), "l"(b));                                                                                \
    }                                                                                                                  \
    __device__ __forceinline__ void multiply_##type(float (&d)[tiles][4], const uint32_t (&a)[4], uint64_t b) {        \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " {" NAMES_##tiles              \
                     "}, {" a_registers "}, " b_registers ", 1, 1, 1, 0;"                                              \
                     : TILES_##tiles(d)                                                                                \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                            \
    }
WGMMA(8, 64, f16, "%32", "%33", "%32, %33, %34, %35", "%36")
WGMMA(8, 64, bf16, "%32", "%33", "%32, %33, %34, %35", "%36")
WGMMA(16, 128, f16, "%64", "%65", "%64, %65, %66, %67", "%68")
WGMMA(16, 128, bf16, "%64", "%65", "%64, %65, %66, %67", "%68")
WGMMA(32, 256, f16, "%128", "%129", "%128, %129, %130, %131", "%132")
WGMMA(32, 256, bf16, "%128", "%129", "%128, %129, %130, %131", "%132")

struct operands {
    uint16_t a[64 * 64], b[256 * 64]; /* K-major, rows of 128 bytes */
};

/* 16 bits with a random sign and mantissa, 1/2 <= |x| < 1. */
__device__ uint16_t random_element(uint32_t seed, bool bf16) {
    seed = (seed ^ seed >> 16) * 0x7feb352du;
    seed = (seed ^ seed >> 15) * 0x846ca68bu;
    return bf16 ? ((seed ^ seed >> 16) & 0x807f) | 0x3f00 : ((seed ^ seed >> 16) & 0x83ff) | 0x3800;
}

__device__ uint64_t read_clock() {
    uint64_t cycles;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
    return cycles;
}
__device__ uint64_t read_timer() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

enum { COMPANION_UNROLLED = 64 };

/* One instruction on each of eight numbers; nothing of it may be left out. */
#define ON_EIGHT(text)                                                                                                 \
    for (int i = 0; i < COMPANION_UNROLLED; i++) asm volatile(text : "+f"(x[i % 8]) : "f"(c))

__device__ void execute(int companion, float (&x)[8], float c) {
    switch (companion) {
    case COMPANION_EX2:
#pragma unroll
        ON_EIGHT("ex2.approx.ftz.f32 %0, %0;");
        return;
    case COMPANION_FMA:
#pragma unroll
        ON_EIGHT("fma.rn.ftz.f32 %0, %0, %1, %1;");
        return;
    case COMPANION_ADD:
#pragma unroll
        ON_EIGHT("add.rn.ftz.f32 %0, %0, %1;");
        return;
    case COMPANION_MAX:
#pragma unroll
        ON_EIGHT("max.ftz.f32 %0, %0, %1;");
        return;
    default:
#pragma unroll
        ON_EIGHT("{ .reg .b32 p; cvt.rn.f16x2.f32 p, %0, %1; mov.b32 %0, p; }");
    }
}

__device__ bool is_done(uint32_t done) {
    uint32_t value;
    asm volatile("ld.relaxed.cta.shared.u32 %0, [%1];" : "=r"(value) : "r"(done) : "memory");
    return value;
}

/* The further warpgroup: as many rounds as there is time for. */
__device__ void run_companion(int companion, uint32_t done, wgmma_result *result, float *sum) {
    float x[8];
    for (int i = 0; i < 8; i++) x[i] = 1.0f + (float)(threadIdx.x + i) * 0x1p-12f;
    uint64_t rounds = 0;
    const uint64_t start = read_clock();
    while (!is_done(done)) {
#pragma unroll 1
        for (int i = 0; i < COMPANION_PER_ROUND / COMPANION_UNROLLED; i++) execute(companion, x, 0.999f);
        rounds++;
    }
    const uint64_t cycles = read_clock() - start;
    if (threadIdx.x % 128 == 0) {
        result->own_cycles = cycles;
        result->others = rounds * COMPANION_PER_ROUND;
    }
    for (int i = 0; i < 8; i++) *sum += x[i];
}

template <int n, bool bf16, bool registers>
__device__ void wgmma_peak(wgmma_result *results, float *sums, int iterations, int companion) {
    __shared__ alignas(1024) operands smem;
    __shared__ uint32_t done;
    const int warpgroup = (int)threadIdx.x / 128, last = (int)blockDim.x / 128 - 1;
    for (int i = (int)threadIdx.x; i < (int)(sizeof smem / 2); i += (int)blockDim.x)
        smem.a[i] = random_element((uint32_t)(blockIdx.x * 65536 + i), bf16); /* b follows a */
    if (threadIdx.x == 0) {
        done = 0;
        results[blockIdx.x] = {};
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();

    wgmma_result *const result = &results[blockIdx.x];
    float sum = 0;
    if (companion != COMPANION_NOTHING && warpgroup == last) {
        run_companion(companion, (uint32_t)__cvta_generic_to_shared(&done), result, &sum);
    } else {
        const uint64_t a = wgmma_descriptor((uint32_t)__cvta_generic_to_shared(smem.a), 0);
        const uint64_t b = wgmma_descriptor((uint32_t)__cvta_generic_to_shared(smem.b), 0);
        uint32_t a_rmem[4];
        for (int i = 0; i < 4; i++)
            a_rmem[i] = (uint32_t)random_element(threadIdx.x * 8 + i, bf16) << 16 |
                        random_element(threadIdx.x * 8 + 4 + i, bf16);
        float d[n / 8][4] = {};
        const uint64_t start = read_clock(), start_ns = read_timer();
#pragma unroll 1
        for (int i = 0; i < iterations; i++) {
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < WGMMA_PER_ITERATION; k++) {
                const uint64_t step = 2 * (k % 4);
                if constexpr (registers && bf16)
                    multiply_bf16(d, a_rmem, b + step);
                else if constexpr (registers)
                    multiply_f16(d, a_rmem, b + step);
                else if constexpr (bf16)
                    multiply_bf16(d, a + step, b + step);
                else
                    multiply_f16(d, a + step, b + step);
            }
            wgmma_commit_group();
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); /* the other group continues */
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        const uint64_t cycles = read_clock() - start, ns = read_timer() - start_ns;
        if (threadIdx.x == 0) {
            asm volatile("st.relaxed.cta.shared.u32 [%0], 1;" ::"r"((uint32_t)__cvta_generic_to_shared(&done))
                         : "memory");
            result->cycles = cycles;
            result->ns = ns;
            result->wgmma = (uint64_t)iterations * WGMMA_PER_ITERATION;
        }
        for (int i = 0; i < n / 8; i++) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
    }
    sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

#define KERNEL(type, bf16, n, a, registers)                                                                            \
    extern "C" __global__ void __launch_bounds__(WGMMA_MOST_THREADS, 1)                                                \
        wgmma_peak_##type##_n##n##_##a(wgmma_result *results, float *sums, int iterations, int companion) {            \
        wgmma_peak<n, bf16, registers>(results, sums, iterations, companion);                                          \
    }
#define KERNELS(n)                                                                                                     \
    KERNEL(fp16, false, n, smem, false)                                                                                \
    KERNEL(fp16, false, n, registers, true)                                                                            \
    KERNEL(bf16, true, n, smem, false)                                                                                 \
    KERNEL(bf16, true, n, registers, true)
KERNELS(64)
KERNELS(128)
KERNELS(256)
