/* mma.h - sums as tensor cores form them: what mma.c has and matrix.c and wgmma.c use too.
 *
 *     int top = emu_exponent(accumulator, -126);           // the largest exponent among the terms
 *     float sum = emu_sum_terms(terms, 17, top);
 *     emu_widen_a(&a, a_words, false), emu_widen_b(&b, b_words, false);
 *     emu_add_products(d_words, c_words, &a, &b, 1);
 */
#ifndef FL_EMU_MMA_H
#define FL_EMU_MMA_H

#include "../ptx/program.h"

/* The exponents of numbers that have none: the sum with any other is far below or above all others. */
enum { OF_ZERO = -4096, OF_INFINITY = 8192 };

/* The exponent of a number of a format whose smallest one is `least`. */
int emu_exponent(double value, int least);
/* The terms, cut to entire units 25 bits below the largest exponent, added, and cut to an f32. */
float emu_sum_terms(const double *terms, int count, int top);
/* Likewise, but where the cut loses something the last bit becomes 1: rounding to f16 then is as from the exact sum. */
float emu_sum_terms_to_odd(const double *terms, int count, int top);

/* The sums of wgmma of e4m3 and e5m2: units of 13 bits, and an f32 keeps 14 bits of the sum. */
float emu_sum_byte_terms(const double *terms, int count, int top);
float emu_sum_byte_terms_to_odd(const double *terms, int count, int top);

/* Values of a register of two halves, the lower halves of all lanes and then the upper ones, and the exponents of both
 * halves of each lane. */
typedef struct halves {
    float low[LANES], high[LANES];
    int16_t exponent[LANES][2];
} halves;

/* A and B of an m16n8k16 of f16 or bf16, ready to be multiplied: once for all products that take them. */
typedef struct mma_a {
    halves of[2][2]; /* [step of 8 values of k][block of 8 rows] */
} mma_a;
typedef struct mma_b {
    halves of[2];
} mma_b;

void emu_widen_a(mma_a *out, const uint32_t *const a[4], bool bfloat);
void emu_widen_b(mma_b *out, const uint32_t *const b[2], bool bfloat);
/* d = a * b + c for one or two blocks of eight columns, by registers of f32, four a block; those of d may be those of
 * c, or what a and b were made of. */
void emu_add_products(uint32_t *const *d, const uint32_t *const *c, const mma_a *a, const mma_b *b, uint32_t blocks);

/* D = A * B + C. */
typedef struct matrix_product {
    matrix_shape shape;
    enum matrix_numbers a, b, c, d;
    int a_registers, b_registers; /* of a lane */
    bool limits;                  /* integers that are too large become the largest */
    bool warpgroup;               /* a part of a wgmma: sums of e4m3 and e5m2 are others there */
    bool ands;                    /* products of bits are `and`, not `xor` */
} matrix_product;

/* The matrices are given by the words of each of their registers in all lanes, as mma has them; those of D may be those
 * of C. */
void emu_multiply_matrices(const matrix_product *of, void *const *a_words, void *const *b_words, void *const *c_words,
                           void *const *d_words);

#endif
