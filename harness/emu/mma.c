/* mma.c - mma.sync.m16n8k16 and m16n8k8: fragments to small matrices, and sums as an H200's tensor cores form them.
 *
 * The k products of an output and its accumulator are one sum of k + 1 exact terms. The largest exponent among them
 * sets the unit, 25 binary places below it. Every term is cut to whole units, the cut terms are added exactly, and the
 * sum is cut to an f32; all cuts are towards zero. A product's exponent is that of its factors added, a subnormal has
 * the smallest one of its format, and a zero has none. The PTX ISA leaves all this open: it is what an H200 computes,
 * bit for bit, in the outputs recorded in tests/mma.h200.csv. Other devices cut elsewhere.
 *
 * Layouts (PTX ISA, "Matrix Fragments for mma.m16n8k16"): lane 4*g + t of a register that holds two halves has elements
 * 2*t and 2*t + 1 of row g of an 8x8 block. B is stored by columns: its word of lane 4*n + t has rows k = 2*t and
 * 2*t + 1 of column n. Lane 4*g + t of the two accumulators of a block has columns 2*t and 2*t + 1 of row g, one each.
 * So a row is kept with its even columns first, 0 2 4 6 1 3 5 7, and is then four lanes of each accumulator.
 */
#include "machine.h"
#include "numbers.h"

/* The unit of a sum is this many binary places below its largest exponent. */
enum { PLACES = 25 };

/* The exponents of numbers that have none: the sum with any other is below LEAST or above MOST. */
enum { OF_ZERO = -4096, OF_INFINITY = 8192, LEAST = -2048, MOST = 2048 };

/* Values of a register of two halves, the lower halves of all lanes and then the upper ones, and the exponents of both
 * halves of each lane. */
typedef struct halves {
    float low[LANES], high[LANES];
    int16_t exponent[LANES][2];
} halves;

/* What an mma multiplies. A block is 8 rows of A, a step 8 values of k. */
typedef struct factors {
    halves a[2][2]; /* [step][block]: lane 4*row + t */
    halves b[2];    /* [step]: 8*t + n */
    int steps;
} factors;

/* The exponent of a 16-bit number with `bits` bits of mantissa and its largest exponent field. */
static inline __attribute__((always_inline)) int16_t exponent_of(uint16_t half, int bits, int16_t last) {
    int16_t magnitude = (int16_t)(half & 0x7fff), field = (int16_t)(magnitude >> bits);
    int16_t none = (int16_t)((magnitude == 0) * OF_ZERO + (field == last) * OF_INFINITY);
    return (int16_t)((field > 1 ? field : 1) - last / 2 + none);
}

static inline __attribute__((always_inline)) void widen_halves(halves *restrict out, const uint32_t *restrict words,
                                                               bool bfloat) {
    uint16_t pairs[2 * LANES];
    memcpy(pairs, words, sizeof pairs);
    int16_t *exponent = out->exponent[0];
    if (bfloat) {
        for (int i = 0; i < LANES; i++) out->low[i] = bfloat_value(words[i] & 0xffffu);
        for (int i = 0; i < LANES; i++) out->high[i] = bfloat_value(words[i] >> 16);
        for (int i = 0; i < 2 * LANES; i++) exponent[i] = exponent_of(pairs[i], 7, 255);
    } else {
        for (int i = 0; i < LANES; i++) out->low[i] = half_value(words[i] & 0xffffu);
        for (int i = 0; i < LANES; i++) out->high[i] = half_value(words[i] >> 16);
        for (int i = 0; i < 2 * LANES; i++) exponent[i] = exponent_of(pairs[i], 10, 31);
    }
}

/* One output of a row of a block. The terms are doubles: these, their cuts and the sum of the cuts are exact. */
static float add_terms(const factors *of, int block, int row, int n, float accumulator) {
    double terms[17] = {accumulator}, sum = 0;
    int count = 1, top = OF_ZERO, bits;
    if (accumulator != 0 && isfinite(accumulator)) {
        frexp(accumulator, &bits);
        top = bits - 1 > -126 ? bits - 1 : -126;
    }
    for (int step = 0; step < of->steps; step++) {
        const halves *a = &of->a[step][block], *b = &of->b[step];
        for (int i = 4 * row, j = n; j < LANES; i++, j += 8) {
            terms[count++] = (double)a->low[i] * b->low[j];
            terms[count++] = (double)a->high[i] * b->high[j];
            for (int upper = 0; upper < 2; upper++) {
                int exponent = a->exponent[i][upper] + b->exponent[j][upper];
                if (exponent > top) top = exponent;
            }
        }
    }
    if (top < LEAST) return 0;
    int scale = PLACES - (top < MOST ? top : 0);
    for (int i = 0; i < count; i++) sum += trunc(ldexp(terms[i], scale));
    if (!isfinite(sum)) return (float)sum;
    /* an f32 has 24 bits, and none below 2^-149 */
    frexp(sum, &bits);
    int dropped = bits - 24 > scale - 149 ? bits - 24 : scale - 149;
    return (float)ldexp(trunc(ldexp(sum, -dropped)), dropped - scale);
}

static void add_block_exactly(float out[8][8], float sums[8][8], const factors *of, int block) {
    for (int row = 0; row < 8; row++) {
        for (int n = 0; n < 8; n++) out[row][n] = float_of(canonical(add_terms(of, block, row, n, sums[row][n])));
    }
}

#if defined(__GNUC__)
/* Eight columns at once; without this extension add_terms() does the same. */
typedef float row8 __attribute__((vector_size(32)));
typedef int32_t ints8 __attribute__((vector_size(32)));
typedef uint32_t words8 __attribute__((vector_size(32)));
typedef int16_t pairs8 __attribute__((vector_size(32)));

static inline row8 row_at(const float *from) {
    row8 row;
    memcpy(&row, from, sizeof row);
    return row;
}

/* The exponents of eight products of lower halves and, beside them, of upper halves. */
static inline pairs8 add_exponents(const int16_t a[2], const int16_t b[][2]) {
    int32_t pair;
    pairs8 row;
    memcpy(&pair, a, sizeof pair);
    memcpy(&row, b, sizeof row);
    return row + (pairs8)((ints8){0} + pair);
}

/* The larger of two in each place; compilers see one instruction in this loop. */
#define LARGER(name, type)                                                                                             \
    static inline type name(type x, type y) {                                                                          \
        for (size_t i = 0; i < sizeof x / sizeof x[0]; i++) x[i] = x[i] > y[i] ? x[i] : y[i];                          \
        return x;                                                                                                      \
    }
LARGER(larger_pairs, pairs8)
LARGER(larger, ints8)

/* Limits of add_row(): exponents with which the unit and all that a sum keeps are normal f32 numbers, and whole units
 * that are an int32_t when they are rounded to 24 bits. */
enum { NORMAL = 100, LARGEST = 0x7fffff00 };

/* A row of the accumulator plus its products. *beyond becomes non-zero in columns beyond the limits, where the result
 * has no meaning. A product is below 2^(PLACES + 2) units, so that eight of them are an int32_t. */
static inline __attribute__((always_inline)) row8 add_row(row8 sum, const factors *of, int block, int row,
                                                          ints8 *beyond) {
    pairs8 pairs = (pairs8){0} + OF_ZERO;
    for (int step = 0; step < of->steps; step++) {
        const halves *a = &of->a[step][block], *b = &of->b[step];
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++)
            pairs = larger_pairs(pairs, add_exponents(a->exponent[4 * row + t], b->exponent + 8 * t));
    }
    ints8 magnitude = (ints8)sum & 0x7fffffff;
    ints8 top = (magnitude >> 23) - 127 + ((magnitude == 0) & OF_ZERO);
    top = larger(top, larger((ints8)pairs << 16 >> 16, (ints8)pairs >> 16));
    *beyond |= (top > NORMAL) | ((top < -NORMAL) & (top > LEAST));
    top = larger(top, (ints8){0} - NORMAL);
    /* powers of two, made in the exponent field of an f32 */
    row8 per_unit = (row8)((words8)(127 + PLACES - top) << 23), unit = (row8)((words8)(127 - PLACES + top) << 23);
    ints8 even = __builtin_convertvector(sum * per_unit, ints8), odd = {0};
    for (int step = 0; step < of->steps; step++) {
        const halves *a = &of->a[step][block], *b = &of->b[step];
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++) {
            even += __builtin_convertvector(a->low[4 * row + t] * row_at(b->low + 8 * t) * per_unit, ints8);
            odd += __builtin_convertvector(a->high[4 * row + t] * row_at(b->high + 8 * t) * per_unit, ints8);
        }
    }
    ints8 total = (ints8)((words8)even + (words8)odd), sign = total >> 31;
    *beyond |= ((~(even ^ odd) & (even ^ total)) < 0) | ((total ^ sign) > LARGEST);
    row8 nearest = __builtin_convertvector(total, row8);
    ints8 too_far = (__builtin_convertvector(nearest, ints8) ^ sign) > (total ^ sign);
    return (row8)((ints8)nearest + too_far) * unit; /* one f32 nearer to zero where that is -1 */
}

/* The accumulator of a block plus its products. */
static inline __attribute__((always_inline)) void add_block(float out[8][8], float sums[8][8], const factors *of,
                                                            int block) {
    ints8 beyond = {0};
    for (int row = 0; row < 8; row++) {
        row8 sum = add_row(row_at(sums[row]), of, block, row, &beyond);
        memcpy(out[row], &sum, sizeof sum);
    }
    int32_t found = 0;
    for (int n = 0; n < 8; n++) found |= beyond[n];
    if (found) add_block_exactly(out, sums, of, block);
}
#else
static void add_block(float out[8][8], float sums[8][8], const factors *of, int block) {
    add_block_exactly(out, sums, of, block);
}
#endif

/* Word 4*n + t of a register of B goes to row t, where column n stands. */
#if defined(__GNUC__) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAVE_SHUFFLE
#endif
#endif
#if defined(HAVE_SHUFFLE)
static inline void transpose(uint32_t *out, const uint32_t *words) {
    ints8 in[4], by_t[4];
    memcpy(in, words, sizeof in);
    ints8 a = __builtin_shufflevector(in[0], in[1], 0, 8, 1, 9, 4, 12, 5, 13);
    ints8 b = __builtin_shufflevector(in[2], in[3], 0, 8, 1, 9, 4, 12, 5, 13);
    ints8 c = __builtin_shufflevector(in[0], in[1], 2, 10, 3, 11, 6, 14, 7, 15);
    ints8 d = __builtin_shufflevector(in[2], in[3], 2, 10, 3, 11, 6, 14, 7, 15);
    by_t[0] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
    by_t[1] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    by_t[2] = __builtin_shufflevector(c, d, 0, 1, 8, 9, 4, 5, 12, 13);
    by_t[3] = __builtin_shufflevector(c, d, 2, 3, 10, 11, 6, 7, 14, 15);
    memcpy(out, by_t, sizeof by_t);
}
#else
static inline void transpose(uint32_t *out, const uint32_t *words) {
    for (int t = 0; t < 4; t++) {
        for (int i = 0; i < 4; i++) {
            out[8 * t + i] = words[8 * i + t];
            out[8 * t + 4 + i] = words[8 * i + 4 + t];
        }
    }
}
#endif

static inline __attribute__((always_inline)) void mma_lanes(const warp *w, const op *o) {
    factors of;
    of.steps = o->vector;
    float sums[2][8][8], out[8][8];
    bool bfloat = o->detail == MMA_BF16;
    const uint16_t *a = o->r + 4, *b = a + 2 * of.steps, *c = b + of.steps;
    /* all sources are read before the first destination is written: they may share slots */
    for (int step = 0; step < of.steps; step++) {
        uint32_t rows[LANES];
        transpose(rows, slot32(w, b[step]));
        widen_halves(&of.b[step], rows, bfloat);
        for (int block = 0; block < 2; block++)
            widen_halves(&of.a[step][block], slot32(w, a[2 * step + block]), bfloat);
    }
    for (int block = 0; block < 2; block++) {
        const uint32_t *even = slot32(w, c[2 * block]), *odd = slot32(w, c[2 * block + 1]);
        for (int row = 0; row < 8; row++) {
            memcpy(sums[block][row], even + 4 * row, 4 * sizeof *even);
            memcpy(sums[block][row] + 4, odd + 4 * row, 4 * sizeof *odd);
        }
    }
    for (int block = 0; block < 2; block++) {
        add_block(out, sums[block], &of, block);
        uint32_t *even = slot32(w, o->r[2 * block]), *odd = slot32(w, o->r[2 * block + 1]);
        for (int row = 0; row < 8; row++) {
            memcpy(even + 4 * row, out[row], 4 * sizeof *even);
            memcpy(odd + 4 * row, out[row] + 4, 4 * sizeof *odd);
        }
    }
}

static void mma_plain(const warp *w, const op *o) {
    mma_lanes(w, o);
}

#if defined(__GNUC__) && defined(__x86_64__)
/* The same source for wider registers: the results are the same bits. */
__attribute__((target("avx2"))) static void mma_wide(const warp *w, const op *o) {
    mma_lanes(w, o);
}
static bool have_wide(void) {
    return __builtin_cpu_supports("avx2");
}
#else
static void mma_wide(const warp *w, const op *o) {
    mma_plain(w, o);
}
static bool have_wide(void) {
    return false;
}
#endif

void exec_mma(warp *w, const op *o, uint32_t mask) {
    (void)mask; /* all lanes, or check_all_lanes() has said so */
    if (have_wide())
        mma_wide(w, o);
    else
        mma_plain(w, o);
}
