/* special.h - ex2 and rcp of f32 as the special function unit of an H200 computes them, bit for bit.
 *
 *     uint32_t half = special_rcp(bits_of(2.0f));     // 0x3f000000
 *
 * The unit adds a constant, a linear and a quadratic term and cuts the sum (Oberman and Siu, "A high-performance
 * area-efficient multifunction interpolator", ARITH 2005). The upper bits of the argument choose the terms, the lower
 * ones, l, are the variable. Its square lacks the partial products below 2^-15. The terms and this rule were found from
 * the outputs for all mantissas; tests/records/special.h200.csv has sums over the outputs for all 2^32 arguments.
 *
 * Subnormal arguments and results are zero here. Instructions without .ftz scale around it: see special.c.
 */
#ifndef FL_EMU_SPECIAL_H
#define FL_EMU_SPECIAL_H

#include "numbers.h"
#include "special_table.h"

/* Constant terms count quarters of the result's last digit. The others and what is added before the cut count 2^-15 of
 * it; l counts 2^-17 of an interval of ex2 and 2^-16 of one of rcp, and a square 2^-15 of an interval's. */
enum { EX2_BIAS = 6114, RCP_BIAS = 2023 };

/* The square of l < 2^17 in units of 2^19. A partial product l_i * l_j has the weight 2^(i + j + 1), or 2^2i for i = j;
 * those below 2^19 are missing. The rows of bits from 9 on lack none. */
static inline uint32_t square_row(uint32_t l, int i) {
    return (0 - (l >> i & 1)) & l >> (18 - i);
}
static inline uint32_t special_square(uint32_t l) {
    uint32_t upper = l >> 10, square = 2 * upper * (upper + (l >> 9 & 1));
    /* no loop: compilers vectorise what is around this */
    square += square_row(l, 8) + square_row(l, 7) + square_row(l, 6) + square_row(l, 5);
    return square + square_row(l, 4) + square_row(l, 3) + square_row(l, 2);
}

/* Split the argument of 2^x: the exponent field of the result, 0 or 255 past the ends, above the fraction. It is cut to
 * 23 bits, towards zero, and the fraction of a negative one is its ones' complement; a fraction of zero stays
 * zero. */
static inline uint32_t ex2_position(uint32_t x) {
    uint32_t magnitude = x & 0x7fffffffu, negative = 0 - (x >> 31);
    uint32_t bounded = magnitude < 0x43200000u ? magnitude : 0x43200000u; /* 160, far beyond both ends */
    int32_t fixed = (int32_t)(float_of(bounded) * 0x1p23f), fraction = fixed & 0x7fffff;
    uint32_t mirrored = fraction ? negative : 0;
    /* -n is ~n + 1, and mirrored is -1 */
    int32_t field = (int32_t)(127 + (((uint32_t)fixed >> 23) ^ negative) - negative + mirrored);
    field = field > 0 ? field : 0;
    field = field < 255 ? field : 255;
    return (uint32_t)field << 23 | ((uint32_t)fraction ^ (mirrored & 0x7fffffu));
}

/* 2^x of the position of x, with the terms of its interval. */
static inline uint32_t ex2_at(uint32_t x, uint32_t position, uint32_t constant, uint32_t linear, uint32_t quadratic) {
    uint32_t l = position & 0x1ffffu, field = position & 0x7f800000u;
    uint32_t rest = (constant & 3) * 0x2000 + EX2_BIAS + linear * (l & 1) + quadratic * special_square(l);
    uint32_t mantissa = (constant >> 2) + ((linear * (l >> 1) + (rest >> 1)) >> 14); /* halves fit 32 bits */
    mantissa = field == 0 || field == 0x7f800000u ? 0 : mantissa;
    return (int32_t)(x & 0x7fffffffu) > 0x7f800000 ? CANONICAL_NAN : field + mantissa;
}

static inline uint32_t special_ex2(uint32_t x) {
    uint32_t position = ex2_position(x), row = position >> 17 & 63;
    return ex2_at(x, position, EX2_CONSTANT[row], EX2_LINEAR[row], EX2_QUADRATIC[row]);
}

/* 1/x. */
static inline uint32_t special_rcp(uint32_t x) {
    uint32_t magnitude = x & 0x7fffffffu, row = x >> 16 & 0x7fu, l = x & 0xffffu;
    uint32_t constant = RCP_CONSTANT[row], linear = RCP_LINEAR[row]; /* to be subtracted */
    uint32_t square = special_square(2 * l);                         /* as of 17 bits, the last of them zero */
    int32_t rest = (int32_t)((constant & 3) * 0x2000 + RCP_BIAS + RCP_QUADRATIC[row] * square - linear * (l & 1));
    uint32_t value = (constant >> 2) + (uint32_t)(((rest >> 1) - (int32_t)(linear * (l >> 1))) >> 14);
    int32_t field = 253 - (int32_t)(magnitude >> 23);
    uint32_t result = flushed(((uint32_t)field << 23) + value - 0x800000u);
    result = field < 0 ? 0 : result;
    result = magnitude < 0x00800000u ? 0x7f800000u : result;
    return (int32_t)magnitude > 0x7f800000 ? CANONICAL_NAN : result | (x & 0x80000000u);
}

#endif
