/* wgmma_record.cu - writes hashes of what a GPU's wgmma computes, for test_wgmma.py to hold the emulator against.
 *
 *     nvcc -std=c++20 -gencode=arch=compute_90a,code=sm_90a -o wgmma_record emulator/tests/wgmma_record.cu
 *     ./wgmma_record > emulator/tests/records/wgmma.h200.csv
 *
 * Two questions: how sums are formed (sums_*, halves_* and tf32_*: operands of four kinds), and where a descriptor
 * points (rows_*: shared memory holds its own indexes, and a unit matrix brings them out). The kernels make their
 * inputs themselves, so that the emulator runs the very same PTX. One line for each kernel and CTA: FNV-1a over the
 * words of its output. Exit status 1: the GPU could not be used.
 */
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int COLUMNS = 64, ACCUMULATORS = COLUMNS / 2;
constexpr uint32_t INDEXES = 32768; /* halves of shared memory that hold their own index */

extern __shared__ __align__(1024) uint16_t shared_memory[];

#define ACC8(i)                                                                                                        \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),        \
        "+f"(d[i + 7])
#define D32                                                                                                            \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                          \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define MULTIPLY_SHARED(type, trans)                                                                                   \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " D32 ", %32, %33, 1, 1, 1, " trans ";" \
                 : ACC8(0), ACC8(8), ACC8(16), ACC8(24)                                                                \
                 : "l"(a_descriptor), "l"(b_descriptor))
#define MULTIPLY_REGISTERS(type, trans)                                                                                \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " D32                                   \
                 ", {%32, %33, %34, %35}, %36, 1, 1, 1, " trans ";"                                                    \
                 : ACC8(0), ACC8(8), ACC8(16), ACC8(24)                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_descriptor))

__device__ void fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ void finish(float (&d)[ACCUMULATORS]) {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < ACCUMULATORS; i++) asm volatile("" : "+f"(d[i])::"memory");
}
__device__ void publish() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}
/* Without a swizzle: rows of 16 bytes, 8 of them together, offsets to the next eight values along K and rows. */
__device__ uint64_t descriptor(uint32_t address, uint32_t leading, uint32_t stride) {
    return (address & 0x3ffff) >> 4 | (uint64_t)(leading / 16) << 16 | (uint64_t)(stride / 16) << 32;
}
__device__ uint32_t plain_index(uint32_t row, uint32_t k) {
    return (row / 8 * 256 + k / 8 * 128 + row % 8 * 16 + k % 8 * 2) / 2;
}
__device__ uint32_t shared_base() {
    return (uint32_t)__cvta_generic_to_shared(shared_memory);
}

/* ---- sums ---- */

__device__ uint32_t mix(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* Close to 1, far apart, any finite number, any bits. */
__device__ uint16_t operand(int kind, bool bfloat, uint32_t seed) {
    const uint32_t bits = mix(seed), exponents = bfloat ? 8 : 5, mantissas = 15 - exponents;
    const uint32_t last = (1u << exponents) - 1, bias = last / 2, spread = kind == 0 ? 4 : 13;
    const uint32_t field = kind == 2 ? mix(seed + 1) % last : bias - spread / 2 + mix(seed + 1) % spread;
    return (uint16_t)(kind == 3 ? bits : (bits & 0x8000) | field << mantissas | (bits & ((1u << mantissas) - 1)));
}
__device__ float accumulator(int kind, uint32_t seed) {
    const uint32_t bits = mix(seed), spread = kind == 0 ? 7 : 41;
    const uint32_t field = kind == 2 ? mix(seed + 1) % 255 : 127 - spread / 2 + mix(seed + 1) % spread;
    if (bits % 8 == 0) return 0;
    return __uint_as_float(kind == 3 ? mix(bits) : (bits & 0x807fffff) | field << 23);
}

/* grid: trials; a trial is of kind blockIdx.x % 4. out: [trials][threads][ACCUMULATORS] */
template <bool BFLOAT, bool REGISTERS>
__device__ void sums(float *out) {
    const int thread = threadIdx.x, kind = blockIdx.x % 4, group = thread % 32 / 4, pair = thread % 4 * 2;
    const uint32_t seed = blockIdx.x << 20;
    for (uint32_t i = thread; i < 64 * 16; i += 128)
        shared_memory[plain_index(i / 16, i % 16)] = operand(kind, BFLOAT, seed + 4 * i);
    for (uint32_t i = thread; i < COLUMNS * 16; i += 128)
        shared_memory[1024 + plain_index(i / 16, i % 16)] = operand(kind, BFLOAT, seed + 0x40000 + 4 * i);
    publish();
    float d[ACCUMULATORS];
    for (int i = 0; i < ACCUMULATORS; i++) d[i] = accumulator(kind, seed + 0x80000 + 4 * (thread * ACCUMULATORS + i));
    uint32_t a[4];
    for (int i = 0; i < 4; i++) {
        const uint32_t row = thread / 32 * 16 + group + i % 2 * 8, k = i / 2 * 8 + pair;
        a[i] = shared_memory[plain_index(row, k)] | (uint32_t)shared_memory[plain_index(row, k + 1)] << 16;
    }
    const uint64_t a_descriptor = descriptor(shared_base(), 128, 256);
    const uint64_t b_descriptor = descriptor(shared_base() + 2048, 128, 256);
    fence();
    if constexpr (REGISTERS && BFLOAT)
        MULTIPLY_REGISTERS("bf16", "0");
    else if constexpr (REGISTERS)
        MULTIPLY_REGISTERS("f16", "0");
    else if constexpr (BFLOAT)
        MULTIPLY_SHARED("bf16", "0, 0");
    else
        MULTIPLY_SHARED("f16", "0, 0");
    finish(d);
    for (int i = 0; i < ACCUMULATORS; i++) out[(blockIdx.x * 128 + thread) * ACCUMULATORS + i] = d[i];
}

/* The same of tf32, eight along K and 13 bits that are not looked at, and of halves into halves. */
#define D16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define HALVES8(i)                                                                                                     \
    "+r"(h[i]), "+r"(h[i + 1]), "+r"(h[i + 2]), "+r"(h[i + 3]), "+r"(h[i + 4]), "+r"(h[i + 5]), "+r"(h[i + 6]),        \
        "+r"(h[i + 7])
#define MULTIPLY_TF32(a_operand, ...)                                                                                  \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 " D32 ", " a_operand ", 1, 1, 1;"                \
                 : ACC8(0), ACC8(8), ACC8(16), ACC8(24)                                                                \
                 : __VA_ARGS__)
#define MULTIPLY_HALVES(a_operand, trans, ...)                                                                         \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16 " D16 ", " a_operand ", 1, 1, 1, " trans ";"      \
                 : HALVES8(0), HALVES8(8)                                                                              \
                 : __VA_ARGS__)

__device__ uint32_t operand_word(bool tf32, int kind, uint32_t seed) {
    if (tf32) return (uint32_t)operand(kind, true, seed) << 16 | (mix(seed + 2) & 0xffff);
    return operand(kind, false, seed) | (uint32_t)operand(kind, false, seed + 2) << 16;
}

/* Word w of a row of 32 bytes. */
__device__ uint32_t plain_word(uint32_t row, uint32_t w) {
    return plain_index(row, 2 * w) / 2;
}

/* grid and kinds as above. out: [trials][threads][ACCUMULATORS], of halves the first half of that */
template <bool INTO_HALVES, bool REGISTERS>
__device__ void other_sums(float *out) {
    const int thread = threadIdx.x, kind = blockIdx.x % 4, group = thread % 32 / 4;
    const uint32_t seed = blockIdx.x << 20;
    uint32_t *words = (uint32_t *)shared_memory;
    for (uint32_t i = thread; i < (64 + COLUMNS) * 8; i += 128)
        words[plain_word(i / 8, i % 8)] = operand_word(!INTO_HALVES, kind, seed + 4 * i);
    publish();
    uint32_t a[4], h[ACCUMULATORS / 2];
    float d[ACCUMULATORS];
    for (int i = 0; i < 4; i++) {
        const uint32_t row = thread / 32 * 16 + group + i % 2 * 8;
        a[i] = words[plain_word(row, i / 2 * 4 + thread % 4)];
    }
    for (int i = 0; i < ACCUMULATORS; i++) d[i] = accumulator(kind, seed + 0x80000 + 4 * (thread * ACCUMULATORS + i));
    for (int i = 0; i < ACCUMULATORS / 2; i++)
        h[i] = operand_word(false, kind, seed + 0x80000 + 4 * (thread * ACCUMULATORS + i));
    const uint64_t a_descriptor = descriptor(shared_base(), 128, 256);
    const uint64_t b_descriptor = descriptor(shared_base() + 2048, 128, 256);
    fence();
    if constexpr (INTO_HALVES && REGISTERS)
        MULTIPLY_HALVES("{%16, %17, %18, %19}, %20", "0", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
                        "l"(b_descriptor));
    else if constexpr (INTO_HALVES)
        MULTIPLY_HALVES("%16, %17", "0, 0", "l"(a_descriptor), "l"(b_descriptor));
    else if constexpr (REGISTERS)
        MULTIPLY_TF32("{%32, %33, %34, %35}, %36", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_descriptor));
    else
        MULTIPLY_TF32("%32, %33", "l"(a_descriptor), "l"(b_descriptor));
    finish(d);
    for (int i = 0; i < ACCUMULATORS / 2; i++) asm volatile("" : "+r"(h[i])::"memory");
    constexpr int COUNT = INTO_HALVES ? ACCUMULATORS / 2 : ACCUMULATORS;
    for (int i = 0; i < COUNT; i++)
        out[(blockIdx.x * 128 + thread) * COUNT + i] = INTO_HALVES ? __uint_as_float(h[i % (ACCUMULATORS / 2)]) : d[i];
}

/* ---- descriptors ---- */

/* A descriptor of each swizzle with offsets, starts and base offsets that stay inside the first 64 KB. */
__device__ uint64_t tried_descriptor(uint32_t cta) {
    const uint32_t steps[] = {1, 3, 8, 16, 32, 64, 100, 128};
    uint32_t leading = steps[mix(cta) % 8] * 16, stride = steps[mix(cta + 1000) % 8] * 16;
    uint32_t start = mix(cta + 2000) % 8 * 1024, base = 0;
    if (cta % 16 >= 4) start += mix(cta + 3000) % 8 * 128;
    if (cta % 16 >= 8) start += mix(cta + 4000) % 3 * 32;
    if (cta % 16 >= 12) base = mix(cta + 5000) % 8;
    return descriptor(shared_base() + start, leading, stride) | (uint64_t)base << 49 | (uint64_t)(cta % 4) << 62;
}

/* out: [CTAs][2][threads][ACCUMULATORS]: indexes of shared memory, their lower 10 bits and the rest. */
template <bool TRANSPOSED, bool OF_A>
__device__ void rows(float *out) {
    const int thread = threadIdx.x, group = thread % 32 / 4, pair = thread % 4 * 2;
    uint16_t *unit = shared_memory + INDEXES;
    for (uint32_t i = thread; i < COLUMNS * 16; i += 128)
        unit[plain_index(i / 16, i % 16)] = i / 16 == i % 16 ? 0x3c00 : 0;
    for (int part = 0; part < 2; part++) {
        __syncthreads();
        for (uint32_t i = thread; i < INDEXES; i += 128)
            asm("cvt.rn.f16.u32 %0, %1;" : "=h"(shared_memory[i]) : "r"(part ? i >> 10 : i & 1023));
        publish();
        float d[ACCUMULATORS] = {0};
        if constexpr (OF_A) {
            const uint64_t a_descriptor = tried_descriptor(blockIdx.x);
            const uint64_t b_descriptor = descriptor(shared_base() + 2 * INDEXES, 128, 256);
            fence();
            if constexpr (TRANSPOSED)
                MULTIPLY_SHARED("f16", "1, 0");
            else
                MULTIPLY_SHARED("f16", "0, 0");
        } else {
            const uint64_t b_descriptor = tried_descriptor(blockIdx.x);
            uint32_t a[4];
            for (int i = 0; i < 4; i++) {
                const int row = thread / 32 * 16 + group + i % 2 * 8, k = i / 2 * 8 + pair;
                a[i] = (row == k ? 0x3c00u : 0) | (row == k + 1 ? 0x3c000000u : 0);
            }
            fence();
            if constexpr (TRANSPOSED)
                MULTIPLY_REGISTERS("f16", "1");
            else
                MULTIPLY_REGISTERS("f16", "0");
        }
        finish(d);
        for (int i = 0; i < ACCUMULATORS; i++) out[((blockIdx.x * 2 + part) * 128 + thread) * ACCUMULATORS + i] = d[i];
    }
}

#define KERNEL(name, body)                                                                                             \
    extern "C" __global__ void __launch_bounds__(128) name(float *out) {                                               \
        body(out);                                                                                                     \
    }
KERNEL(sums_f16_shared, (sums<false, false>))
KERNEL(sums_f16_registers, (sums<false, true>))
KERNEL(sums_bf16_shared, (sums<true, false>))
KERNEL(sums_bf16_registers, (sums<true, true>))
KERNEL(halves_shared, (other_sums<true, false>))
KERNEL(halves_registers, (other_sums<true, true>))
KERNEL(tf32_shared, (other_sums<false, false>))
KERNEL(tf32_registers, (other_sums<false, true>))
KERNEL(rows_of_a, (rows<false, true>))
KERNEL(rows_of_a_transposed, (rows<true, true>))
KERNEL(rows_of_b, (rows<false, false>))
KERNEL(rows_of_b_transposed, (rows<true, false>))

/* ---- the record ---- */

constexpr int SHARED_BYTES = 2 * INDEXES + 2048;

static uint64_t hash(const uint32_t *words, size_t count) {
    uint64_t sum = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < count; i++) sum = (sum ^ words[i]) * 0x100000001b3ull;
    return sum;
}

static void record(const char *name, void (*kernel)(float *), int ctas, size_t words) {
    std::vector<uint32_t> out(ctas * words);
    float *on_gpu;
    cudaMalloc(&on_gpu, out.size() * 4);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    kernel<<<ctas, 128, SHARED_BYTES>>>(on_gpu);
    cudaMemcpy(out.data(), on_gpu, out.size() * 4, cudaMemcpyDeviceToHost);
    cudaFree(on_gpu);
    for (int cta = 0; cta < ctas; cta++)
        printf("%s,%d,%016llx\n", name, cta, (unsigned long long)hash(&out[cta * words], words));
}

int main() {
    constexpr size_t TILE = 128 * ACCUMULATORS;
    puts("kernel,cta,hash");
    record("sums_f16_shared", sums_f16_shared, 64, TILE);
    record("sums_f16_registers", sums_f16_registers, 64, TILE);
    record("sums_bf16_shared", sums_bf16_shared, 64, TILE);
    record("sums_bf16_registers", sums_bf16_registers, 64, TILE);
    record("rows_of_a", rows_of_a, 128, 2 * TILE);
    record("rows_of_a_transposed", rows_of_a_transposed, 128, 2 * TILE);
    record("rows_of_b", rows_of_b, 128, 2 * TILE);
    record("rows_of_b_transposed", rows_of_b_transposed, 128, 2 * TILE);
    record("halves_shared", halves_shared, 64, TILE / 2);
    record("halves_registers", halves_registers, 64, TILE / 2);
    record("tf32_shared", tf32_shared, 64, TILE);
    record("tf32_registers", tf32_registers, 64, TILE);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) fprintf(stderr, "wgmma_record: %s\n", cudaGetErrorString(error));
    return error != cudaSuccess;
}
