/* mma_rows.h - a row of a product by vectors of COLUMNS columns; mma.c includes it for 8 and for 16.
 *
 *     #define COLUMNS 8
 *     #define OF(name) name##8
 *     #include "mma_rows.h"
 *     ... sum = add_row8(sum, top_of8(sum, a, b, block, row, &beyond), a, b, block, row, &beyond);
 *
 * Both give the same bits, those of add_terms(). Rows of A are those of `block`; B has the values of the lower halves
 * of its words by column, 4 rows, then those of the upper halves, and the exponents of both.
 */
typedef float OF(row) __attribute__((vector_size(4 * COLUMNS)));
typedef int32_t OF(ints) __attribute__((vector_size(4 * COLUMNS)));
typedef uint32_t OF(words) __attribute__((vector_size(4 * COLUMNS)));
typedef int16_t OF(pairs) __attribute__((vector_size(4 * COLUMNS)));

/* A step of B: as halves, of COLUMNS columns. */
typedef struct OF(halves) {
    float low[4 * COLUMNS], high[4 * COLUMNS];
    int16_t exponent[4 * COLUMNS][2];
} OF(halves);

/* The larger of two in each element. GCC sees one instruction in the loop; clang does not, and has a word for it. */
#if defined(__clang__)
#define LARGER(name, type)                                                                                             \
    INLINED type name(type x, type y) {                                                                                \
        return __builtin_elementwise_max(x, y);                                                                        \
    }
#else
#define LARGER(name, type)                                                                                             \
    INLINED type name(type x, type y) {                                                                                \
        for (size_t i = 0; i < sizeof x / sizeof x[0]; i++) x[i] = x[i] > y[i] ? x[i] : y[i];                          \
        return x;                                                                                                      \
    }
#endif
LARGER(OF(larger_pairs), OF(pairs))
LARGER(OF(larger), OF(ints))
#undef LARGER

INLINED OF(row) OF(row_at)(const float *from) {
    OF(row) row;
    memcpy(&row, from, sizeof row);
    return row;
}

/* The exponents of COLUMNS products of lower halves, then those of upper halves. */
INLINED OF(pairs) OF(add_exponents)(const int16_t a[2], const int16_t b[][2]) {
    int32_t pair;
    OF(pairs) row;
    memcpy(&pair, a, sizeof pair);
    memcpy(&row, b, sizeof row);
    return row + (OF(pairs))((OF(ints)){0} + pair);
}

/* value * 2^places, without its fraction: `places` goes to the exponent field. Zeros become numbers below 1. */
INLINED OF(ints) OF(cut)(OF(row) value, OF(ints) places) {
    return __builtin_convertvector((OF(row))((OF(words))value + ((OF(words))places << 23)), OF(ints));
}

/* The largest exponents among the terms of a row, but at least SMALLEST. *beyond becomes negative in columns beyond the
 * limits. */
INLINED OF(ints)
    OF(top_of)(OF(row) sum, const halves (*a)[2], const OF(halves) * b, int block, int row, OF(ints) * beyond) {
    OF(pairs) pairs = OF(add_exponents)(a[0][block].exponent[4 * row], b[0].exponent);
#pragma GCC unroll 7
    for (int i = 1; i < 8; i++) {
        const int16_t *of_a = a[i / 4][block].exponent[4 * row + i % 4];
        pairs = OF(larger_pairs)(pairs, OF(add_exponents)(of_a, b[i / 4].exponent + COLUMNS * (i % 4)));
    }
    OF(ints) magnitude = (OF(ints))sum & 0x7fffffff;
    OF(ints) top = (magnitude >> 23) - 127 + ((magnitude == 0) & OF_ZERO);
    top = OF(larger)(top, OF(larger)((OF(ints))pairs << 16 >> 16, (OF(ints))pairs >> 16));
    *beyond |= (LARGEST - top) | ((top - SMALLEST) & (LEAST - top));
    return OF(larger)(top, (OF(ints)){0} + SMALLEST);
}

/* A row of the accumulator plus its products, where no exponent is larger than `top`. *beyond likewise. A product is
 * below 2^(PLACES + 2) units, so that eight of them are an int32_t; beyond the limits sums may wrap, so they are
 * unsigned. */
INLINED OF(row) OF(add_row)(OF(row) sum, OF(ints) top, const halves (*a)[2], const OF(halves) * b, int block, int row,
                            OF(ints) * beyond) {
    OF(ints) places = PLACES - top;
    OF(words) even = (OF(words))OF(cut)(sum, places), odd = {0};
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const halves *of_a = &a[i / 4][block];
        const float *low = b[i / 4].low + COLUMNS * (i % 4), *high = b[i / 4].high + COLUMNS * (i % 4);
        even += (OF(words))OF(cut)(of_a->low[4 * row + i % 4] * OF(row_at)(low), places);
        odd += (OF(words))OF(cut)(of_a->high[4 * row + i % 4] * OF(row_at)(high), places);
    }
    OF(ints) total = (OF(ints))(even + odd), size = total ^ total >> 31;
    *beyond |= (~(OF(ints))(even ^ odd) & ((OF(ints))even ^ total)) | (MOST_UNITS - size);
    OF(row) nearest = __builtin_convertvector(total, OF(row));
    OF(ints) too_far = (__builtin_convertvector(nearest, OF(ints)) ^ total >> 31) > size;
    OF(row) unit = (OF(row))((OF(words))(127 - places) << 23);
    return (OF(row))((OF(ints))nearest + too_far) * unit; /* one f32 nearer to zero where that is -1 */
}
