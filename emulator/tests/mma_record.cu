/* mma_record.cu - writes what a GPU's mma.sync computes, for test_mma.py to hold the emulator against.
 *
 *     nvcc -std=c++20 -arch=sm_90 -o mma_record emulator/tests/mma_record.cu
 *     ./mma_record > emulator/tests/records/mma.h200.csv
 *
 * One line per lane: the form, the kind of numbers, the lane and its registers of A, B, C and D in hexadecimal. The
 * inputs are the same in every run. Exit status 1: the GPU could not be used.
 */
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

constexpr int LANES = 32;

struct lane_registers {
    uint32_t a[4], b[2];
    uint32_t c[4], d[4]; /* f32, or two pairs of f16 and two zeros */
};

/* The types behind the shape: of A and B, then of C and D where they are not f32. */
enum form {
    K16_F16,
    K16_BF16,
    K8_F16,
    K8_BF16,
    K16_F16_F16,
    K8_F16_F16,
    K8_TF32,
    K4_TF32,
    K32_E4M3,
    K32_E5M2,
    K32_MIXED,
    K16_E4M3,
    K32_E4M3_F16,
    FORMS
};
constexpr const char *FORM_NAMES[FORMS] = {"m16n8k16.f16",     "m16n8k16.bf16",   "m16n8k8.f16",        "m16n8k8.bf16",
                                           "m16n8k16.f16.f16", "m16n8k8.f16.f16", "m16n8k8.tf32",       "m16n8k4.tf32",
                                           "m16n8k32.e4m3",    "m16n8k32.e5m2",   "m16n8k32.e4m3.e5m2", "m16n8k16.e4m3",
                                           "m16n8k32.e4m3.f16"};
enum numbers { HALVES, BFLOATS, TF32, E4M3, E5M2 }; /* A and B */
constexpr enum numbers A_NUMBERS[FORMS] = {HALVES, BFLOATS, HALVES, BFLOATS, HALVES, HALVES, TF32,
                                           TF32,   E4M3,    E5M2,   E4M3,    E4M3,   E4M3};
constexpr enum numbers B_NUMBERS[FORMS] = {HALVES, BFLOATS, HALVES, BFLOATS, HALVES, HALVES, TF32,
                                           TF32,   E4M3,    E5M2,   E5M2,    E4M3,   E4M3};

/* What the operands and the accumulators are made of. */
enum kind { CLOSE, ANY_FINITE, WEIGHTS, FULL, CANCELLING, TINY, ZEROS, NOT_FINITE, OVERFLOWING, KINDS };
constexpr const char *KIND_NAMES[KINDS] = {"close", "any finite", "weights",    "full",       "cancelling",
                                           "tiny",  "zeros",      "not finite", "overflowing"};

#define SUM_F32(shape, a, b) "mma.sync.aligned." shape ".row.col.f32." a "." b ".f32 "
#define SUM_F16(shape, type) "mma.sync.aligned." shape ".row.col.f16." type "." type ".f16 "

/* Four sums in four registers; A in two or four, B in one or two. */
#define MULTIPLY_4_2_1(text)                                                                                           \
    asm(text "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"                                                     \
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                                               \
        : "r"(at.a[0]), "r"(at.a[1]), "r"(at.b[0]))
#define MULTIPLY_4_4_2(text)                                                                                           \
    asm(text "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                         \
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                                               \
        : "r"(at.a[0]), "r"(at.a[1]), "r"(at.a[2]), "r"(at.a[3]), "r"(at.b[0]), "r"(at.b[1]))
#define MULTIPLY_2_2_1(text)                                                                                           \
    asm(text "{%0, %1}, {%2, %3}, {%4}, {%0, %1};" : "+r"(d[0]), "+r"(d[1]) : "r"(at.a[0]), "r"(at.a[1]), "r"(at.b[0]))
#define MULTIPLY_2_4_2(text)                                                                                           \
    asm(text "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"                                                         \
        : "+r"(d[0]), "+r"(d[1])                                                                                       \
        : "r"(at.a[0]), "r"(at.a[1]), "r"(at.a[2]), "r"(at.a[3]), "r"(at.b[0]), "r"(at.b[1]))

__global__ void multiply(lane_registers *lanes, int form) {
    lane_registers &at = lanes[threadIdx.x];
    uint32_t d[4] = {at.c[0], at.c[1], at.c[2], at.c[3]};
    switch (form) {
    case K16_F16:
        MULTIPLY_4_4_2(SUM_F32("m16n8k16", "f16", "f16"));
        break;
    case K16_BF16:
        MULTIPLY_4_4_2(SUM_F32("m16n8k16", "bf16", "bf16"));
        break;
    case K8_F16:
        MULTIPLY_4_2_1(SUM_F32("m16n8k8", "f16", "f16"));
        break;
    case K8_BF16:
        MULTIPLY_4_2_1(SUM_F32("m16n8k8", "bf16", "bf16"));
        break;
    case K16_F16_F16:
        MULTIPLY_2_4_2(SUM_F16("m16n8k16", "f16"));
        break;
    case K8_F16_F16:
        MULTIPLY_2_2_1(SUM_F16("m16n8k8", "f16"));
        break;
    case K8_TF32:
        MULTIPLY_4_4_2(SUM_F32("m16n8k8", "tf32", "tf32"));
        break;
    case K4_TF32:
        MULTIPLY_4_2_1(SUM_F32("m16n8k4", "tf32", "tf32"));
        break;
    case K32_E4M3:
        MULTIPLY_4_4_2(SUM_F32("m16n8k32", "e4m3", "e4m3"));
        break;
    case K32_E5M2:
        MULTIPLY_4_4_2(SUM_F32("m16n8k32", "e5m2", "e5m2"));
        break;
    case K32_MIXED:
        MULTIPLY_4_4_2(SUM_F32("m16n8k32", "e4m3", "e5m2"));
        break;
    case K16_E4M3:
        MULTIPLY_4_2_1(SUM_F32("m16n8k16", "e4m3", "e4m3"));
        break;
    case K32_E4M3_F16:
        MULTIPLY_2_4_2(SUM_F16("m16n8k32", "e4m3"));
        break;
    }
    for (int i = 0; i < 4; i++) at.d[i] = d[i];
}

static uint32_t state = 2463534242u;

/* A number below `limit`. */
static uint32_t below(uint32_t limit) {
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    return (state >> 7) % limit;
}

/* A floating-point number of `bits` bits of mantissa, from its sign, its exponent (0 for [1, 2)) and mantissa;
 * exponents that the format lacks give its smallest subnormal binade or its largest one. */
static uint32_t number(int bits, int bias, uint32_t negative, int exponent, uint32_t mantissa) {
    int field = exponent + bias, sign = bits == 23 ? 31 : 15;
    field = field < 0 ? 0 : field > 2 * bias ? 2 * bias : field;
    return negative << sign | (uint32_t)field << bits | (mantissa & ((1u << bits) - 1));
}

/* One 16-bit operand. */
static uint32_t operand(int kind, bool bfloat) {
    const int bits = bfloat ? 7 : 10, bias = bfloat ? 127 : 15;
    const uint32_t negative = below(2), mantissa = below(1u << bits), last = (2u * bias + 1) << bits;
    switch (kind) {
    case CLOSE:
        return number(bits, bias, negative, (int)below(5) - 3, mantissa);
    case ANY_FINITE:
        return number(bits, bias, negative, (int)below(2 * bias + 1) - bias, mantissa);
    case WEIGHTS:
        return number(bits, bias, below(8) == 0, -(int)below(8), mantissa);
    case FULL:
        return number(bits, bias, below(64) == 0, 0, ~below(4));
    case CANCELLING:
        return number(bits, bias, negative, (int)below(2), mantissa & 3u << (bits - 2));
    case TINY:
        return number(bits, bias, negative, (bfloat ? -72 : -15) + (int)below(6), mantissa);
    case ZEROS:
        return below(3) == 0 ? number(bits, bias, negative, 0, 0) : negative << 15;
    case NOT_FINITE:
        return below(24) == 0 ? negative << 15 | last | (below(2) ? mantissa : 0)
                              : number(bits, bias, negative, 0, mantissa);
    default:
        return number(bits, bias, below(4) == 0, bfloat ? 58 + (int)below(6) : 15, mantissa);
    }
}

static uint32_t pair(int kind, bool bfloat) {
    const uint32_t low = operand(kind, bfloat);
    return low | operand(kind, bfloat) << 16;
}

/* One number of tf32: a bfloat's range, three bits more, and 13 bits that are not looked at. */
static uint32_t tf32_operand(int kind) {
    const uint32_t wide = operand(kind, true);
    return wide << 16 | below(1u << 16);
}

/* One number of e4m3 or e5m2: the latter is the upper byte of a half. */
static uint32_t byte_operand(int kind, bool e5m2) {
    if (e5m2) return operand(kind, false) >> 8;
    const uint32_t negative = below(2) << 7, mantissa = below(8);
    switch (kind) {
    case CLOSE:
        return negative | (4 + below(5)) << 3 | mantissa;
    case WEIGHTS:
        return (below(8) == 0) << 7 | (7 - below(7)) << 3 | mantissa;
    case FULL:
        return (below(64) == 0) << 7 | 7 << 3 | 7;
    case CANCELLING:
        return negative | (7 + below(2)) << 3 | (mantissa & 6);
    case TINY:
        return negative | below(2) << 3 | mantissa;
    case ZEROS:
        return negative | (below(3) == 0) * 7 << 3;
    case NOT_FINITE:
        return negative | (below(24) == 0 ? 0x7f : 7 << 3 | mantissa);
    case OVERFLOWING:
        return (below(4) == 0) << 7 | (14 + below(2)) << 3 | (mantissa & 6);
    default:
        return negative | below(0x7f);
    }
}

static uint32_t word(int kind, enum numbers numbers) {
    uint32_t bytes = 0;
    for (int i = 0; numbers >= E4M3 && i < 4; i++) bytes |= byte_operand(kind, numbers == E5M2) << 8 * i;
    if (numbers >= E4M3) return bytes;
    return numbers == TF32 ? tf32_operand(kind) : pair(kind, numbers == BFLOATS);
}

static uint32_t accumulator(int kind, bool bfloat) {
    const uint32_t negative = below(2), mantissa = below(1u << 23);
    uint32_t value = 0;
    switch (kind) {
    case ANY_FINITE:
        value = number(23, 127, negative, (int)below(bfloat ? 254 : 60) - (bfloat ? 127 : 30), mantissa);
        break;
    case TINY:
        value = number(23, 127, negative, (bfloat ? -146 : -32) + (int)below(24), mantissa);
        break;
    case ZEROS:
        value = below(8) == 0 ? negative << 31 | below(3) : negative << 31;
        break;
    case NOT_FINITE:
        value = below(8) == 0 ? negative << 31 | 0x7f800000u | (below(2) ? mantissa : 0) : 0x3f800000u | mantissa;
        break;
    case OVERFLOWING:
        value = number(23, 127, negative, 127 - (int)below(2), ~below(256));
        break;
    default:
        value = number(23, 127, negative, (int)below(12) - 6, mantissa);
    }
    return value;
}

static void check(cudaError_t error) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "mma_record: %s\n", cudaGetErrorString(error));
    exit(1);
}

int main() {
    lane_registers *lanes;
    check(cudaMallocHost(&lanes, LANES * sizeof *lanes));
    printf("form,kind,lane,a0,a1,a2,a3,b0,b1,c0,c1,c2,c3,d0,d1,d2,d3\n");
    for (int form = 0; form < FORMS; form++) {
        const bool wide_range = A_NUMBERS[form] == BFLOATS || A_NUMBERS[form] == TF32;
        const bool narrow = form == K16_F16_F16 || form == K8_F16_F16 || form == K32_E4M3_F16;
        for (int kind = 0; kind < KINDS; kind++) {
            for (int lane = 0; lane < LANES; lane++) {
                for (uint32_t &a : lanes[lane].a) a = word(kind, A_NUMBERS[form]);
                for (uint32_t &b : lanes[lane].b) b = word(kind, B_NUMBERS[form]);
                for (uint32_t &c : lanes[lane].c) c = narrow ? pair(kind, false) : accumulator(kind, wide_range);
            }
            multiply<<<1, LANES>>>(lanes, form);
            check(cudaDeviceSynchronize());
            for (int lane = 0; lane < LANES; lane++) {
                uint32_t registers[14];
                memcpy(registers, &lanes[lane], sizeof registers);
                printf("%s,%s,%d", FORM_NAMES[form], KIND_NAMES[kind], lane);
                for (uint32_t each : registers) printf(",%08x", each);
                printf("\n");
            }
        }
    }
    check(cudaFreeHost(lanes));
    return 0;
}
