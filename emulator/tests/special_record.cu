/* special_record.cu - writes sums over what a GPU's special function unit computes, for test_special.c.
 *
 *     nvcc -std=c++20 -arch=sm_90 -o special_record emulator/tests/special_record.cu
 *     ./special_record > emulator/tests/records/special.h200.csv
 *
 * One line for each opcode and each block of 2^23 arguments that share sign and exponent: the sum of output *
 * (2 * mantissa + 1) over the bits of the outputs, modulo 2^64. The second operand of a division is a fixed function of
 * the first. Exit status 1: the GPU could not be used.
 */
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

constexpr uint32_t BLOCKS = 512, BLOCK = 1u << 23;

/* Bits without a pattern that every block would share. */
__device__ uint32_t divisor_of(uint32_t x) {
    x = x * 2654435761u + 0x9e3779b9u;
    x = (x ^ x >> 15) * 0x85ebca6bu;
    return x ^ x >> 13;
}

#define UNARY(name, opcode)                                                                                            \
    struct name {                                                                                                      \
        static constexpr const char *NAME = opcode;                                                                    \
        static __device__ float of(uint32_t x) {                                                                       \
            float y;                                                                                                   \
            asm volatile(opcode " %0, %1;" : "=f"(y) : "f"(__uint_as_float(x)));                                       \
            return y;                                                                                                  \
        }                                                                                                              \
    };
#define BINARY(name, opcode)                                                                                           \
    struct name {                                                                                                      \
        static constexpr const char *NAME = opcode;                                                                    \
        static __device__ float of(uint32_t x) {                                                                       \
            float y;                                                                                                   \
            asm volatile(opcode " %0, %1, %2;"                                                                         \
                         : "=f"(y)                                                                                     \
                         : "f"(__uint_as_float(x)), "f"(__uint_as_float(divisor_of(x))));                              \
            return y;                                                                                                  \
        }                                                                                                              \
    };
UNARY(ex2, "ex2.approx.f32")
UNARY(ex2_ftz, "ex2.approx.ftz.f32")
UNARY(rcp, "rcp.approx.f32")
UNARY(rcp_ftz, "rcp.approx.ftz.f32")
BINARY(div_approx, "div.approx.f32")
BINARY(div_approx_ftz, "div.approx.ftz.f32")
BINARY(div_full, "div.full.f32")
BINARY(div_full_ftz, "div.full.ftz.f32")

template <typename F>
__global__ void add_outputs(unsigned long long *sums) {
    uint32_t x = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long sum = __float_as_uint(F::of(x)) * (2ull * (x % BLOCK) + 1);
    for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_down_sync(~0u, sum, lanes);
    if (threadIdx.x % 32 == 0) atomicAdd(&sums[x / BLOCK], sum);
}

template <typename F>
static void record() {
    unsigned long long *on_gpu, sums[BLOCKS];
    cudaMalloc(&on_gpu, sizeof sums);
    cudaMemset(on_gpu, 0, sizeof sums);
    add_outputs<F><<<1u << 24, 256>>>(on_gpu);
    cudaMemcpy(sums, on_gpu, sizeof sums, cudaMemcpyDeviceToHost);
    cudaFree(on_gpu);
    for (uint32_t block = 0; block < BLOCKS; block++) printf("%s,%u,%016llx\n", F::NAME, block, sums[block]);
}

int main() {
    puts("opcode,block,sum");
    record<ex2>(), record<ex2_ftz>(), record<rcp>(), record<rcp_ftz>();
    record<div_approx>(), record<div_approx_ftz>(), record<div_full>(), record<div_full_ftz>();
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) fprintf(stderr, "special_record: %s\n", cudaGetErrorString(error));
    return error != cudaSuccess;
}
