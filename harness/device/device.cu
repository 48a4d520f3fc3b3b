/* device.cu - the helper kernels of the harness: hold the stream, stamp the clocks, find the peak of the tensor cores.
 *
 * harness/gpu.c launches them by their unmangled names. The parameters are plain values and device addresses.
 */
#include "common/ptx_sm80.cuh"
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "common/ptx_sm90a.cuh"
#endif
#include "harness/device/stamp.h"

/* Keep the stream waiting until *released becomes 1, so that launches queued after this one run without gaps. After
 * timeout_ns the kernel gives up and sets *released to 2: under a profiler a launch may return only when it has ended.
 * One thread.
 */
extern "C" __global__ void hold_stream(volatile uint32_t *released, uint64_t timeout_ns) {
    uint64_t start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start)::"memory");
    do {
        if (*released) return;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    } while (now - start < timeout_ns);
    *released = 2;
}

/* Write each SM's cycle counter and the time at which it was read to stamps[SM]. Launched with two CTAs of 1024 threads
 * an SM, which reach every SM; two of them on one SM write values a few cycles apart, and either pair will do. */
extern "C" __global__ void stamp_clocks(clock_stamp *stamps, uint64_t epoch) {
    if (threadIdx.x != 0) return;
    uint32_t sm;
    clock_stamp stamp = {epoch, 0, 0};
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u64 %0, %%clock64;\n\tmov.u64 %1, %%globaltimer;" : "=l"(stamp.cycles), "=l"(stamp.ns)::"memory");
    if (sm < MAX_STAMPS) stamps[sm] = stamp;
}

/* Pairs of 16-bit numbers with random signs and mantissas, 1/2 <= |x| < 1: zeros would cost less power than data. */
__device__ uint32_t random_pair(uint32_t seed, uint32_t keep, uint32_t exponent) {
    seed = (seed ^ seed >> 16) * 0x7feb352du;
    seed = (seed ^ seed >> 15) * 0x846ca68bu;
    return ((seed ^ seed >> 16) & keep) | exponent;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
/* For versions that multiply by wgmma: each iteration of a warpgroup eight m64n128k16, both operands in shared memory,
 * which the warpgroups share. */
template <bool bf16>
__device__ void mma_peak(float *out, int iterations) {
    constexpr int a_rows = 64, b_rows = 128, words = 64 / 2; /* of a row */
    __shared__ alignas(1024) uint32_t operands[(a_rows + b_rows) * words];
    for (int i = threadIdx.x; i < (a_rows + b_rows) * words; i += blockDim.x)
        operands[i] = random_pair(blockIdx.x * (a_rows + b_rows) * words + i, bf16 ? 0x807f807f : 0x83ff83ff,
                                  bf16 ? 0x3f003f00 : 0x38003800);
    fence_proxy_async();
    __syncthreads();
    const uint32_t smem_addr = (uint32_t)__cvta_generic_to_shared(operands);
    const uint64_t a = wgmma_descriptor(smem_addr, 0), b = wgmma_descriptor(smem_addr + a_rows * words * 4, 0);
    float d[16][4] = {};
    for (int n = 0; n < iterations; n++) {
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 8; k++) {
            if constexpr (bf16)
                wgmma_m64n128k16_bf16(d, a + 2 * (k % 4), b + 2 * (k % 4), 1);
            else
                wgmma_m64n128k16_f16(d, a + 2 * (k % 4), b + 2 * (k % 4), 1);
        }
        wgmma_commit_group();
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); /* the group before this one */
    }
    wgmma_wait_group<0>(d);
    float sum = 0;
    for (int i = 0; i < 16; i++) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
#else
/* For the others: each iteration of a warp one m16n8k16 on each of eight independent accumulators. */
template <bool bf16>
__device__ void mma_peak(float *out, int iterations) {
    constexpr int accumulators = 8;
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t a[2][4], b[4];
    float d[accumulators][4] = {};
    for (int i = 0; i < 12; i++) {
        const uint32_t pair =
            random_pair(thread * 12 + i, bf16 ? 0x807f807f : 0x83ff83ff, bf16 ? 0x3f003f00 : 0x38003800);
        (i < 8 ? a[i / 4][i % 4] : b[i - 8]) = pair;
    }
    for (int n = 0; n < iterations; n++) {
#pragma unroll
        for (int i = 0; i < accumulators; i++) {
            if constexpr (bf16)
                mma_m16n8k16_bf16(d[i], a[i % 2], b[i / 2 % 2 * 2], b[i / 2 % 2 * 2 + 1]);
            else
                mma_m16n8k16_f16(d[i], a[i % 2], b[i / 2 % 2 * 2], b[i / 2 % 2 * 2 + 1]);
        }
    }
    float sum = 0;
    for (int i = 0; i < accumulators; i++) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
    out[thread] = sum;
}
#endif

extern "C" __global__ void mma_peak_fp16(float *out, int iterations) {
    mma_peak<false>(out, iterations);
}
extern "C" __global__ void mma_peak_bf16(float *out, int iterations) {
    mma_peak<true>(out, iterations);
}
