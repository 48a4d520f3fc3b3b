/* wgmma.cu - kernels that show how wgmma forms its sums and where its descriptors point.
 *
 * sums_*, halves_* and tf32_* multiply operands of four kinds; bytes_*, of e4m3 (4) and e5m2 (5), of six. In rows_*
 * shared memory holds its own indexes, and a unit matrix brings them out. The kernels make their inputs themselves:
 * records/wgmma.h200.csv holds hashes of what they computed on an H200.
 */
#include <cstdint>

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

/* The same of bytes, 32 along K, in products of 8 columns or 256. `chain` products follow each other in one group and
 * add to the same sums. */
#define D4 "{%0, %1, %2, %3}"
#define D2 "{%0, %1}"
#define D128                                                                                                           \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "  \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "   \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, "   \
    "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, "   \
    "%90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "   \
    "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}"
#define ACC32(i) ACC8(i), ACC8(i + 8), ACC8(i + 16), ACC8(i + 24)
#define BYTES_REGISTERS(types, d, first, second, ...)                                                                  \
    asm volatile("wgmma.mma_async.sync.aligned." types d                                                               \
                 : __VA_ARGS__                                                                                         \
                 : "r"(first[0]), "r"(first[1]), "r"(first[2]), "r"(first[3]), "l"(second))
#define BYTES_SHARED(types, d, first, second, ...)                                                                     \
    asm volatile("wgmma.mma_async.sync.aligned." types d : __VA_ARGS__ : "l"(first), "l"(second))

/* Close to 1; far apart; any finite one; any bits; zeros, in every other trial with subnormals among them; a few sizes
 * of both signs, which cancel. */
enum { BYTE_KINDS = 6 };

__device__ uint8_t byte_operand(int kind, bool e5m2, uint32_t seed) {
    const uint32_t bits = mix(seed), more = mix(seed + 1), mantissas = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
    const uint32_t sign = bits & 0x80, fraction = bits & ((1u << mantissas) - 1), top = e5m2 ? 0x7b : 0x7e;
    switch (kind) {
    case 0:
        return (uint8_t)(sign | (bias - 2 + more % 4) << mantissas | fraction);
    case 1:
        return (uint8_t)(sign | (bias - 6 + more % 13) << mantissas | fraction);
    case 2:
        return (uint8_t)(sign | more % (top + 1));
    case 3:
        return (uint8_t)bits;
    case 4:
        return (uint8_t)(sign | (seed >> 20 & 1 && more % 3 == 0 ? fraction : 0));
    default:
        return (uint8_t)(sign | (more % 4 ? bias + 6 : bias - more / 4 % 4) << mantissas);
    }
}

__device__ uint32_t byte_operands(int kind, bool e5m2, uint32_t seed) {
    uint32_t word = 0;
    for (int i = 0; i < 4; i++) word |= (uint32_t)byte_operand(kind, e5m2, seed + 2 * i) << 8 * i;
    return word;
}

__device__ uint32_t byte_accumulator(int kind, uint32_t seed) {
    if (kind != 4) return __float_as_uint(accumulator(kind == 5 ? 1 : kind, seed));
    const uint32_t bits = mix(seed);
    return bits % 3 ? bits & 0x80000000 : bits & 0x800fffff;
}

__device__ uint32_t half_accumulators(int kind, uint32_t seed) {
    if (kind != 4) return operand_word(false, kind == 5 ? 1 : kind, seed);
    return mix(seed) & 0x80008000;
}

/* out: [trials][threads][COLUMNS / 2], of halves a quarter */
template <bool FIRST_E5M2, bool SECOND_E5M2, bool INTO_HALVES, bool REGISTERS, int COLUMNS_OF_D = 8, int CHAIN = 1>
__device__ void byte_sums(float *out) {
    constexpr int WORDS = COLUMNS_OF_D / (INTO_HALVES ? 4 : 2), ROWS = 64 + COLUMNS_OF_D, TILE = ROWS * 32;
    const int thread = threadIdx.x, kind = blockIdx.x % BYTE_KINDS, group = thread % 32 / 4;
    const uint32_t seed = blockIdx.x << 20;
    uint32_t *words = (uint32_t *)shared_memory, h[2];
    for (uint32_t i = thread; i < CHAIN * ROWS * 8; i += 128)
        words[i / (ROWS * 8) * TILE / 4 + plain_word(i / 8 % ROWS, i % 8)] =
            byte_operands(kind, i / 8 % ROWS < 64 ? FIRST_E5M2 : SECOND_E5M2, seed + 8 * i);
    publish();
    float d[COLUMNS_OF_D / 2];
    for (int i = 0; i < WORDS; i++) {
        const uint32_t at = seed + 0x80000 + 4 * (thread * WORDS + i);
        if constexpr (INTO_HALVES)
            h[i] = half_accumulators(kind, at);
        else
            d[i] = __uint_as_float(byte_accumulator(kind, at));
    }
    uint32_t a[CHAIN][4];
    for (int i = 0; i < 4 * CHAIN; i++) {
        const uint32_t row = thread / 32 * 16 + group + i % 2 * 8;
        a[i / 4][i % 4] = words[i / 4 * TILE / 4 + plain_word(row, i % 4 / 2 * 4 + thread % 4)];
    }
    fence();
    for (int i = 0; i < CHAIN; i++) {
        const uint64_t first = descriptor(shared_base() + i * TILE, 128, 256);
        const uint64_t second = descriptor(shared_base() + i * TILE + 2048, 128, 256);
        if constexpr (COLUMNS_OF_D == 256)
            BYTES_REGISTERS("m64n256k32.f32.e4m3.e4m3 ", D128 ", {%128, %129, %130, %131}, %132, 1, 1, 1;", a[i],
                            second, ACC32(0), ACC32(32), ACC32(64), ACC32(96));
#define F32_REGISTERS(types)                                                                                           \
    BYTES_REGISTERS("m64n8k32.f32." types " ", D4 ", {%4, %5, %6, %7}, %8, 1, 1, 1;", a[i], second, "+f"(d[0]),        \
                    "+f"(d[1]), "+f"(d[2]), "+f"(d[3]))
#define F32_SHARED(types)                                                                                              \
    BYTES_SHARED("m64n8k32.f32." types " ", D4 ", %4, %5, 1, 1, 1;", first, second, "+f"(d[0]), "+f"(d[1]),            \
                 "+f"(d[2]), "+f"(d[3]))
#define F16_REGISTERS(types)                                                                                           \
    BYTES_REGISTERS("m64n8k32.f16." types " ", D2 ", {%2, %3, %4, %5}, %6, 1, 1, 1;", a[i], second, "+r"(h[0]),        \
                    "+r"(h[1]))
#define F16_SHARED(types)                                                                                              \
    BYTES_SHARED("m64n8k32.f16." types " ", D2 ", %2, %3, 1, 1, 1;", first, second, "+r"(h[0]), "+r"(h[1]))
#define OF_TYPES(types)                                                                                                \
    if constexpr (INTO_HALVES && REGISTERS)                                                                            \
        F16_REGISTERS(types);                                                                                          \
    else if constexpr (INTO_HALVES)                                                                                    \
        F16_SHARED(types);                                                                                             \
    else if constexpr (REGISTERS)                                                                                      \
        F32_REGISTERS(types);                                                                                          \
    else                                                                                                               \
        F32_SHARED(types)
        else if constexpr (FIRST_E5M2 && SECOND_E5M2) {
            OF_TYPES("e5m2.e5m2");
        } else if constexpr (FIRST_E5M2) {
            OF_TYPES("e5m2.e4m3");
        } else if constexpr (SECOND_E5M2) {
            OF_TYPES("e4m3.e5m2");
        } else {
            OF_TYPES("e4m3.e4m3");
        }
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < WORDS; i++) {
        if constexpr (INTO_HALVES)
            asm volatile("" : "+r"(h[i])::"memory");
        else
            asm volatile("" : "+f"(d[i])::"memory");
    }
    for (int i = 0; i < WORDS; i++)
        out[(blockIdx.x * 128 + thread) * WORDS + i] = INTO_HALVES ? __uint_as_float(h[i % 2]) : d[i];
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
KERNEL(bytes_44_registers, (byte_sums<false, false, false, true>))
KERNEL(bytes_44_shared, (byte_sums<false, false, false, false>))
KERNEL(bytes_44_halves_registers, (byte_sums<false, false, true, true>))
KERNEL(bytes_44_halves_shared, (byte_sums<false, false, true, false>))
KERNEL(bytes_45_registers, (byte_sums<false, true, false, true>))
KERNEL(bytes_45_shared, (byte_sums<false, true, false, false>))
KERNEL(bytes_45_halves_registers, (byte_sums<false, true, true, true>))
KERNEL(bytes_45_halves_shared, (byte_sums<false, true, true, false>))
KERNEL(bytes_54_registers, (byte_sums<true, false, false, true>))
KERNEL(bytes_54_shared, (byte_sums<true, false, false, false>))
KERNEL(bytes_54_halves_registers, (byte_sums<true, false, true, true>))
KERNEL(bytes_54_halves_shared, (byte_sums<true, false, true, false>))
KERNEL(bytes_55_registers, (byte_sums<true, true, false, true>))
KERNEL(bytes_55_shared, (byte_sums<true, true, false, false>))
KERNEL(bytes_55_halves_registers, (byte_sums<true, true, true, true>))
KERNEL(bytes_55_halves_shared, (byte_sums<true, true, true, false>))
KERNEL(bytes_44_256_columns, (byte_sums<false, false, false, true, 256>))
KERNEL(bytes_44_chain, (byte_sums<false, false, false, true, 8, 4>))
KERNEL(rows_of_a, (rows<false, true>))
KERNEL(rows_of_a_transposed, (rows<true, true>))
KERNEL(rows_of_b, (rows<false, false>))
KERNEL(rows_of_b_transposed, (rows<true, false>))
