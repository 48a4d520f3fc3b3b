/* mma_record.cu - writes what a GPU's mma.sync computes, for test_mma.py to hold the emulator against.
 *
 *     nvcc -std=c++20 -arch=sm_90 -I. -o mma_record harness/emu/tests/mma_record.cu
 *     ./mma_record > harness/emu/tests/records/mma.h200.csv
 *
 * One line per lane: the form, the kind of numbers, the lane and its registers of A, B, C and D in hexadecimal. The
 * inputs are the same in every run. Exit status 1: the GPU could not be used.
 */
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/ptx_sm80.cuh"

constexpr int LANES = 32;

struct lane_registers {
    uint32_t a[4], b[2];
    float c[4], d[4];
};

enum form { K16_F16, K16_BF16, K8_F16, K8_BF16, FORMS };
constexpr const char *FORM_NAMES[FORMS] = {"m16n8k16.f16", "m16n8k16.bf16", "m16n8k8.f16", "m16n8k8.bf16"};

/* What the 16-bit operands and the accumulators are made of. */
enum kind { CLOSE, ANY_FINITE, WEIGHTS, FULL, CANCELLING, TINY, ZEROS, NOT_FINITE, OVERFLOWING, KINDS };
constexpr const char *KIND_NAMES[KINDS] = {"close", "any finite", "weights",    "full",       "cancelling",
                                           "tiny",  "zeros",      "not finite", "overflowing"};

__global__ void multiply(lane_registers *lanes, int form) {
    lane_registers &at = lanes[threadIdx.x];
    float d[4] = {at.c[0], at.c[1], at.c[2], at.c[3]};
    switch (form) {
    case K16_F16:
        mma_m16n8k16_f16(d, at.a, at.b[0], at.b[1]);
        break;
    case K16_BF16:
        mma_m16n8k16_bf16(d, at.a, at.b[0], at.b[1]);
        break;
    case K8_F16:
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(at.a[0]), "r"(at.a[1]), "r"(at.b[0]));
        break;
    case K8_BF16:
        asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(at.a[0]), "r"(at.a[1]), "r"(at.b[0]));
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

static float accumulator(int kind, bool bfloat) {
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
    float result;
    memcpy(&result, &value, sizeof result);
    return result;
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
        const bool bfloat = form == K16_BF16 || form == K8_BF16;
        for (int kind = 0; kind < KINDS; kind++) {
            for (int lane = 0; lane < LANES; lane++) {
                for (uint32_t &a : lanes[lane].a) a = pair(kind, bfloat);
                for (uint32_t &b : lanes[lane].b) b = pair(kind, bfloat);
                for (float &c : lanes[lane].c) c = accumulator(kind, bfloat);
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
