/* pipes.cuh - what wgmma of e4m3 costs by its number of columns: pipes_e4m3_nN_A, with A in shared memory (smem)
 * or in registers. pipes.cu includes it.
 *
 *     pipes_e4m3_n96_registers<<<multiprocessors, 32 * warps>>>(results, sums, groups);
 *
 * Every warpgroup starts `groups` groups of PIPE_GROUP products and waits for the group before the last one, as the
 * operations of pipes.cu do. These have a kernel for each width, as 256 columns take half of a thread's registers.
 */
#ifndef FL_PIPES_CUH
#define FL_PIPES_CUH

#include "common/ptx_fp8.cuh"
#include "harness/device/pipes.h"

/* The operands of d by tiles of 8 columns: FL_NAMES_n and FL_TILES_n of those that ptx_sm90a.cuh and ptx_fp8.cuh lack.
 */
#define FL_NAMES_1 "%0, %1, %2, %3"
#define FL_NAMES_2 FL_NAMES_1 ", %4, %5, %6, %7"
#define FL_NAMES_4 FL_NAMES_2 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define FL_NAMES_24                                                                                                    \
    FL_NAMES_16 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                   \
                "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define FL_TILES_1(d) FL_TILE(d, 0)
#define FL_TILES_2(d) FL_TILES_1(d), FL_TILE(d, 1)
#define FL_FIRST_4(d) FL_TILES_4(d, 0)
#define FL_TILES_24(d) FL_TILES_16(d), FL_TILES_4(d, 16), FL_TILES_4(d, 20)

/* d += a * b, with a in shared memory or in registers: the names of the operands after those of d. */
#define FL_PRODUCT(n, names, tiles, a_smem, b_smem, a_registers, b_registers)                                          \
    __device__ __forceinline__ void multiply_e4m3(float (&d)[n / 8][4], uint64_t a, uint64_t b) {                      \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3 {" names "}, " a_smem ", " b_smem       \
                     ", 1, 1, 1;"                                                                                      \
                     : tiles(d)                                                                                        \
                     : "l"(a), "l"(b));                                                                                \
    }                                                                                                                  \
    __device__ __forceinline__ void multiply_e4m3(float (&d)[n / 8][4], const uint32_t (&a)[4], uint64_t b) {          \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3 {" names "}, {" a_registers             \
                     "}, " b_registers ", 1, 1, 1;"                                                                    \
                     : tiles(d)                                                                                        \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                            \
    }
FL_PRODUCT(8, FL_NAMES_1, FL_TILES_1, "%4", "%5", "%4, %5, %6, %7", "%8")
FL_PRODUCT(16, FL_NAMES_2, FL_TILES_2, "%8", "%9", "%8, %9, %10, %11", "%12")
FL_PRODUCT(32, FL_NAMES_4, FL_FIRST_4, "%16", "%17", "%16, %17, %18, %19", "%20")
FL_PRODUCT(64, FL_NAMES_8, FL_TILES_8, "%32", "%33", "%32, %33, %34, %35", "%36")
FL_PRODUCT(96, FL_NAMES_12, FL_TILES_12, "%48", "%49", "%48, %49, %50, %51", "%52")
FL_PRODUCT(192, FL_NAMES_24, FL_TILES_24, "%96", "%97", "%96, %97, %98, %99", "%100")
FL_PRODUCT(256, FL_NAMES_32, FL_TILES_32, "%128", "%129", "%128, %129, %130, %131", "%132")
#undef FL_PRODUCT

template <int n, bool registers>
__device__ __forceinline__ void run_products(pipe_result *results, float *sums, int groups) {
    __shared__ alignas(1024) uint32_t a[64 * 32], b[n * 32]; /* K-major, rows of 128 bytes */
    for (int i = (int)threadIdx.x; i < 64 * 32; i += (int)blockDim.x) a[i] = random_e4m3(blockIdx.x * 65536 + i);
    for (int i = (int)threadIdx.x; i < n * 32; i += (int)blockDim.x) b[i] = random_e4m3(blockIdx.x * 98304 + i);
    fence_proxy_async();
    __syncthreads();
    const uint64_t a_matrix = wgmma_descriptor(smem_address(a), 0), b_matrix = wgmma_descriptor(smem_address(b), 0);
    uint32_t a_rmem[4];
    for (int i = 0; i < 4; i++) a_rmem[i] = random_e4m3(threadIdx.x * 4 + i);
    float d[n / 8][4] = {};
    const uint64_t start = read_clock(), start_ns = read_timer();
#pragma unroll 1
    for (int group = 0; group < groups; group++) {
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < PIPE_GROUP; k++)
            if constexpr (registers)
                multiply_e4m3(d, a_rmem, b_matrix + 2 * (k % 4));
            else
                multiply_e4m3(d, a_matrix + 2 * (k % 4), b_matrix + 2 * (k % 4));
        wgmma_commit_group();
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    const uint64_t cycles = read_clock() - start, ns = read_timer() - start_ns;
    if (threadIdx.x == 0) results[blockIdx.x] = {{cycles, 0}, {(uint64_t)groups * PIPE_GROUP, 0}, ns};
    float sum = 0;
    for (int i = 0; i < n / 8; i++) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
    sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

/* Warpgroups that start a group of products of 96 columns at the same time: when each has its results. */
extern "C" __global__ void __launch_bounds__(PIPE_GROUPS_THREADS, 1) pipes_groups(pipe_result *results, float *sums) {
    __shared__ alignas(1024) uint32_t a[64 * 32], b[96 * 32];
    for (int i = (int)threadIdx.x; i < 64 * 32; i += (int)blockDim.x) a[i] = random_e4m3(blockIdx.x * 65536 + i);
    for (int i = (int)threadIdx.x; i < 96 * 32; i += (int)blockDim.x) b[i] = random_e4m3(blockIdx.x * 98304 + i);
    fence_proxy_async();
    const uint64_t a_matrix = wgmma_descriptor(smem_address(a), 0), b_matrix = wgmma_descriptor(smem_address(b), 0);
    float d[12][4] = {};
    __syncthreads();
    const uint64_t start = read_clock(), start_ns = read_timer();
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < PIPE_GROUP; k++) multiply_e4m3(d, a_matrix + 2 * (k % 4), b_matrix + 2 * (k % 4));
    wgmma_commit_group();
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    const uint64_t cycles = read_clock() - start, ns = read_timer() - start_ns;
    if (threadIdx.x == 0) results[blockIdx.x] = {{cycles, 0}, {PIPE_GROUP, 0}, ns};
    __syncthreads();
    if (threadIdx.x % 32 == 0) results[blockIdx.x].ends[threadIdx.x / 32] = cycles;
    float sum = 0;
    for (int i = 0; i < 12; i++) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
    sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

#define FL_KERNEL(n, where, registers)                                                                                 \
    extern "C" __global__ void __launch_bounds__(PIPE_WIDE_THREADS, 1)                                                 \
        pipes_e4m3_n##n##_##where(pipe_result *results, float *sums, int groups) {                                     \
        run_products<n, registers>(results, sums, groups);                                                             \
    }
#define FL_WIDTH(n) FL_KERNEL(n, smem, false) FL_KERNEL(n, registers, true)
FL_PIPE_WIDTHS(FL_WIDTH)
#undef FL_WIDTH
#undef FL_KERNEL

#endif
