/* test_inputs.c - the generator's known answers and moments, and the 16-bit number types. */
#include "common/tests/tap.h"
#include "harness/half.h"
#include "harness/inputs.h"
#include "harness/philox.h"
#include "harness/tests/element.h"
#include "harness/tests/problems.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Known answers of philox4x32-10, from the test vectors of the Random123 library. */
static void known_answers(void) {
    static const struct {
        uint32_t counter[4], key[2], words[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t words[4];
        philox(cases[i].counter, cases[i].key, words);
        ok(!memcmp(words, cases[i].words, sizeof words), "philox known answer %zu", i);
    }
}

/* Mean, variance and the fourth moment of a distribution over the first elements of Q. */
static void moments(enum distribution dist, double mean, double variance, double fourth) {
    enum { COUNT = 200000 };
    double sums[3] = {0};
    for (int64_t i = 0; i < COUNT; i++) {
        const double x = (double)element(dist, 5, TENSOR_Q, i) - mean;
        sums[0] += x / COUNT;
        sums[1] += x * x / COUNT;
        sums[2] += x * x * x * x / COUNT;
    }
    ok(fabs(sums[0]) < 4 * sqrt(variance / COUNT), "%s: mean off by %.5f", distribution_name(dist), sums[0]);
    ok(fabs(sums[1] / variance - 1) < 0.02, "%s: variance %.5f", distribution_name(dist), sums[1]);
    ok(fabs(sums[2] / fourth - 1) < 0.04, "%s: fourth moment %.5f", distribution_name(dist), sums[2]);
}

static void values(void) {
    double worst = 0;
    float least = 1, most = 0;
    for (int i = 0; i < 1000; i++) {
        const float u = element(DIST_UNIFORM, 1, TENSOR_V, i);
        if (u < least) least = u;
        if (u > most) most = u;
    }
    ok(least >= 0 && most < 1 && least < 0.01 && most > 0.99, "uniform values fill [0, 1)");
    for (int i = 0; i < 1000; i++) {
        const double large = element(DIST_LARGE, 3, TENSOR_K, i), normal = element(DIST_NORMAL, 3, TENSOR_K, i);
        if (fabs(large - 8 * normal) > worst) worst = fabs(large - 8 * normal);
    }
    ok(worst < 1e-5, "large is eight times normal");
    ok(element(DIST_RAMP, 1, TENSOR_Q, 0) == 0 && element(DIST_RAMP, 9, TENSOR_V, 250) == 250.0f / 256 &&
           element(DIST_RAMP, 1, TENSOR_Q, 251 * 1000 + 17) == 17.0f / 256,
       "ramp names the index modulo 251");
    ok(element(DIST_NORMAL, 1, TENSOR_Q, 10) != element(DIST_NORMAL, 2, TENSOR_Q, 10), "the seed matters");
    ok(element(DIST_NORMAL, 1, TENSOR_Q, 10) != element(DIST_NORMAL, 1, TENSOR_K, 10), "the tensor matters");
    ok(element(DIST_NORMAL, 1, TENSOR_Q, 10) != element(DIST_NORMAL, 1ull << 40 | 1, TENSOR_Q, 10),
       "all 64 bits of the seed matter");
}

/* The inputs are the same on every machine: bits recorded once. */
static void recorded(void) {
    static const struct {
        enum distribution dist;
        enum tensor tensor;
        int64_t index;
        uint32_t bits;
    } cases[] = {
        {DIST_NORMAL, TENSOR_Q, 0, 0x3ec2c3e3},      {DIST_UNIFORM, TENSOR_Q, 1, 0x3f650a0e},
        {DIST_LARGE, TENSOR_Q, 12345, 0xc12706c2},   {DIST_NORMAL, TENSOR_Q, 4294967303, 0xbed24890},
        {DIST_UNIFORM, TENSOR_K, 0, 0x3ce0e380},     {DIST_LARGE, TENSOR_K, 1, 0x41ab4aed},
        {DIST_NORMAL, TENSOR_K, 12345, 0xbe93ca06},  {DIST_UNIFORM, TENSOR_K, 4294967303, 0x3f77164e},
        {DIST_LARGE, TENSOR_V, 0, 0xc05b93e6},       {DIST_NORMAL, TENSOR_V, 1, 0xbe103a07},
        {DIST_UNIFORM, TENSOR_V, 12345, 0x3f01dbeb}, {DIST_LARGE, TENSOR_V, 4294967303, 0x417c6d80},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t bits = bits_of(element(cases[i].dist, 1, cases[i].tensor, cases[i].index));
        ok(bits == cases[i].bits, "element %" PRId64 " of tensor %d, %s, is %08x as recorded", cases[i].index,
           cases[i].tensor, distribution_name(cases[i].dist), bits);
    }
}

static void tensors(void) {
    const struct problem problem = square(2, 3, 512, BF16, DIST_NORMAL, 11);
    struct inputs inputs;
    struct failure failure;
    int64_t wrong = 0;
    if (!ok(!inputs_generate(&inputs, &problem, &failure), "tensors are generated")) return;
    for (int t = 0; t < N_INPUTS; t++)
        for (int64_t i = 0; i < problem_elements(&problem, TENSOR_O); i += 97)
            wrong += inputs.tensors[t][i] != half_from_float(element(DIST_NORMAL, 11, (enum tensor)t, i), BF16);
    ok(wrong == 0, "every element is that of its index (%" PRId64 " are not)", wrong);
    inputs_free(&inputs);
}

/* Value of a 16-bit number by its definition. */
static double by_definition(uint16_t bits, enum dtype dtype) {
    const int mantissa_bits = dtype == FP16 ? 10 : 7, bias = dtype == FP16 ? 15 : 127;
    const int exponent = (bits & 0x7fff) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == (dtype == FP16 ? 31 : 255)) return mantissa ? NAN : sign * INFINITY;
    if (!exponent) return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

static void number_types(void) {
    for (int type = 0; type < 2; type++) {
        const enum dtype dtype = type ? BF16 : FP16;
        int wrong = 0, back = 0, middle = 0, special = 0;
        for (uint32_t bits = 0; bits < 65536; bits++) {
            const double value = by_definition((uint16_t)bits, dtype);
            const float widened = half_to_float((uint16_t)bits, dtype);
            wrong +=
                !(isnan(value) ? isnan(widened) : value == (double)widened && !signbit(value) == !signbit(widened));
            special += half_is_special((uint16_t)bits, dtype) != !isfinite(value);
            back += half_from_float(widened, dtype) != (isnan(value) ? HALF_NAN : bits);
        }
        ok(wrong == 0, "%s: all 65536 numbers widen to their value (%d do not)", type ? "bf16" : "fp16", wrong);
        ok(back == 0, "%s: and round back to themselves (%d do not)", type ? "bf16" : "fp16", back);
        ok(special == 0, "%s: NaN and infinity are told apart from numbers (%d are not)", type ? "bf16" : "fp16",
           special);
        const uint32_t infinity = dtype == FP16 ? 0x7c00 : 0x7f80;
        for (uint32_t bits = 0; bits + 1 < infinity; bits++) {
            const float a = half_to_float((uint16_t)bits, dtype), b = half_to_float((uint16_t)(bits + 1), dtype);
            const float half =
                a / 2 + b / 2; /* halves of fp16 and bf16 neighbors are exact in fp32 but at the very bottom */
            if ((double)half != ((double)a + (double)b) / 2) continue;
            middle += half_from_float(half, dtype) != (bits & 1 ? bits + 1 : bits);
            middle += half_from_float(nextafterf(half, 0), dtype) != bits;
            middle += half_from_float(nextafterf(half, INFINITY), dtype) != bits + 1;
        }
        ok(middle == 0, "%s: ties go to even and others to the nearest (%d do not)", type ? "bf16" : "fp16", middle);
    }
    ok(half_bits(65519.9f) == 0x7bff && half_bits(65520.0f) == 0x7c00 && half_bits(1e30f) == 0x7c00 &&
           half_bits(-1e30f) == 0xfc00 && half_bits(INFINITY) == 0x7c00,
       "fp16: what is too large becomes infinity");
    ok(bfloat_bits(3.4e38f) == 0x7f80 && bfloat_bits(-INFINITY) == 0xff80, "bf16: likewise");
    ok(half_bits(NAN) == HALF_NAN && bfloat_bits(NAN) == HALF_NAN, "NaN stays NaN");
}

/* Every element of every tensor has the other sign, and the same again. */
static void signs(void) {
    const struct problem problem = {.dtype = FP16,
                                    .batch = 1,
                                    .heads = 2,
                                    .KV_heads = 1,
                                    .seq_q = 3,
                                    .seq_k = 5,
                                    .d_head = 64,
                                    .dist = DIST_NORMAL,
                                    .seed = 7};
    struct inputs inputs, before;
    struct failure failure;
    if (inputs_generate(&inputs, &problem, &failure) || inputs_generate(&before, &problem, &failure)) abort();
    inputs_negate(&inputs);
    for (int t = 0; t < N_INPUTS; t++) {
        bool changed = true;
        const int64_t elements = problem_elements(&problem, (enum tensor)t);
        for (int64_t i = 0; i < elements; i++) {
            const float was = half_to_float(before.tensors[t][i], FP16), is = half_to_float(inputs.tensors[t][i], FP16);
            changed = changed && is == -was && signbit(is) != signbit(was);
        }
        ok(changed, "all %d elements of tensor %d change their sign", (int)elements, t);
    }
    inputs_negate(&inputs);
    ok(!memcmp(inputs.tensors[2], before.tensors[2], 2 * (size_t)problem_elements(&problem, TENSOR_V)), "and back");
    inputs_free(&inputs);
    inputs_free(&before);
}

int main(void) {
    signs();
    known_answers();
    moments(DIST_NORMAL, 0, 1, 3);
    moments(DIST_UNIFORM, 0.5, 1.0 / 12, 1.0 / 80);
    moments(DIST_LARGE, 0, 64, 3 * 4096);
    values();
    recorded();
    tensors();
    number_types();
    return tap_done();
}
