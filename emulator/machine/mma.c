/* mma.c - mma.sync.m16n8k16 and m16n8k8: fragments to small matrices, and sums as an H200's tensor cores form them.
 *
 * The k products of an output and its accumulator are one sum of k + 1 exact terms. The largest exponent among them
 * sets the unit, 25 bits below it. Every term is cut to whole units, the cut terms are added exactly, and the
 * sum is cut to an f32; all cuts are towards zero. A product's exponent is that of its factors added, a subnormal has
 * the smallest one of its format, and a zero has none. The PTX ISA leaves all this open: it is what an H200 computes,
 * bit for bit, in the outputs recorded in tests/records/mma.h200.csv. Other devices cut elsewhere. wgmma of e4m3 and
 * e5m2 has a unit 13 bits below, and of an f32 sum it keeps 14 bits (tests/records/wgmma.h200.csv).
 *
 * Layouts (PTX ISA, "Matrix Fragments for mma.m16n8k16"): lane 4*g + t of a register that holds two halves has elements
 * 2*t and 2*t + 1 of row g of an 8x8 block. B is stored by columns: its word of lane 4*n + t has rows k = 2*t and
 * 2*t + 1 of column n. Lane 4*g + t of the two accumulators of a block has columns 2*t and 2*t + 1 of row g, one each.
 * So a row is kept with its even columns first, 0 2 4 6 1 3 5 7, and is then four lanes of each accumulator.
 */
#include "mma.h"

#include "machine.h"
#include "numbers.h"

#include <string.h>

/* The unit of a sum is this many bits below its largest exponent, and a sum has this many bits. */
enum { PLACES = 25, BITS = 24, BYTE_PLACES = 13, BYTE_BITS = 14 };

/* Sums of exponents with OF_ZERO are below LEAST, with OF_INFINITY above MOST. */
enum { LEAST = -2048, MOST = 2048 };

/* Operands of an mma. A step is 8 values of k, of which m16n8k8 has zeros in the second; a block is 8 rows of A, of C
 * and of D. */
typedef struct factors {
    const halves (*a)[2]; /* [step][block]: lane 4*row + t */
    const halves *b;      /* [step]: 8*t + n */
} factors;

/* The exponent of a 16-bit number with `bits` bits of mantissa and its largest exponent field. */
static int16_t exponent_of(uint16_t half, int bits, int16_t last) {
    int16_t magnitude = (int16_t)(half & 0x7fff), field = (int16_t)(magnitude >> bits);
    int16_t none = (int16_t)((magnitude == 0) * OF_ZERO + (field == last) * OF_INFINITY);
    return (int16_t)((field > 1 ? field : 1) - last / 2 + none);
}

static void widen(halves *out, const uint32_t *words, bool bfloat) {
    int bits = bfloat ? 7 : 10;
    int16_t last = bfloat ? 255 : 31;
    for (int i = 0; i < LANES; i++) {
        uint32_t low = words[i] & 0xffffu, high = words[i] >> 16;
        out->low[i] = bfloat ? bfloat_value(low) : half_value(low);
        out->high[i] = bfloat ? bfloat_value(high) : half_value(high);
        out->exponent[i][0] = exponent_of((uint16_t)low, bits, last);
        out->exponent[i][1] = exponent_of((uint16_t)high, bits, last);
    }
}

int emu_exponent(double value, int least) {
    int bits;
    if (!isfinite(value)) return OF_INFINITY;
    if (value == 0) return OF_ZERO;
    frexp(value, &bits);
    return bits - 1 > least ? bits - 1 : least;
}

/* The terms are doubles: these, their cuts and the sum of the cuts are exact. */
static float sum_terms(const double *terms, int count, int top, int places, int precision, bool to_odd) {
    double sum = 0;
    int bits;
    if (top < LEAST) return 0;
    if (top > MOST) {
        for (int i = 0; i < count; i++) sum += terms[i];
        return (float)sum; /* not finite */
    }
    int scale = places - top;
    double scaling = ldexp(1, scale);
    for (int i = 0; i < count; i++) sum += (double)(int64_t)(terms[i] * scaling);
    /* an f32 has no bits below 2^-149 */
    frexp(sum, &bits);
    int dropped = bits - precision > scale - 149 ? bits - precision : scale - 149;
    double whole = ldexp(sum, -dropped), kept = trunc(whole);
    if (to_odd && kept != whole && fmod(kept, 2) == 0) kept += sum < 0 ? -1 : 1;
    return (float)ldexp(kept + 0.0, dropped - scale); /* a sum that is cut to nothing is +0 */
}

float emu_sum_terms(const double *terms, int count, int top) {
    return sum_terms(terms, count, top, PLACES, BITS, false);
}

float emu_sum_terms_to_odd(const double *terms, int count, int top) {
    return sum_terms(terms, count, top, PLACES, BITS, true);
}

float emu_sum_byte_terms(const double *terms, int count, int top) {
    return sum_terms(terms, count, top, BYTE_PLACES, BYTE_BITS, false);
}

float emu_sum_byte_terms_to_odd(const double *terms, int count, int top) {
    return sum_terms(terms, count, top, BYTE_PLACES, BITS, true);
}

/* One output of a row of a block. */
static float add_terms(const factors *of, int block, int row, int n, float accumulator) {
    double terms[17] = {accumulator};
    int count = 1, top = emu_exponent((double)accumulator, -126);
    for (int step = 0; step < 2; step++) {
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
    return emu_sum_terms(terms, count, top);
}

/* The accumulators of a block, its even and odd columns, plus their products. */
static void add_block(float out[8][8], const uint32_t *even, const uint32_t *odd, const factors *of, int block) {
    for (int row = 0; row < 8; row++) {
        for (int n = 0; n < 8; n++) {
            float accumulator = float_of(n < 4 ? even[4 * row + n] : odd[4 * row + n - 4]);
            out[row][n] = float_of(canonical(add_terms(of, block, row, n, accumulator)));
        }
    }
}

/* Word 4*n + t of a register of B goes to row t, which holds column n. */
static void transpose(uint32_t *out, const uint32_t *words) {
    for (int t = 0; t < 4; t++) {
        for (int i = 0; i < 4; i++) {
            out[8 * t + i] = words[8 * i + t];
            out[8 * t + 4 + i] = words[8 * i + 4 + t];
        }
    }
}

static void widen_a(mma_a *out, const uint32_t *const a[4], bool bfloat) {
    for (int i = 0; i < 4; i++) widen(&out->of[i / 2][i % 2], a[i], bfloat);
}

static void widen_b(mma_b *out, const uint32_t *const b[2], bool bfloat) {
    uint32_t rows[LANES];
    for (int step = 0; step < 2; step++) {
        transpose(rows, b[step]);
        widen(&out->of[step], rows, bfloat);
    }
}

static void multiply(float out[2][8][8], const uint32_t *const c[4], const factors *of) {
    for (int block = 0; block < 2; block++) add_block(out[block], c[2 * block], c[2 * block + 1], of, block);
}

/* The steps of a product: with vectors of the host or without. */
struct products {
    void (*widen_a)(mma_a *out, const uint32_t *const a[4], bool bfloat);
    void (*widen_b)(mma_b *out, const uint32_t *const b[2], bool bfloat);
    void (*multiply)(float out[2][8][8], const uint32_t *const c[4], const factors *of);
    void (*multiply_twice)(float out[2][2][8][8], const uint32_t *const c[8], const mma_a *a,
                           const mma_b *b); /* or NULL */
};
static const struct products plain_products = {widen_a, widen_b, multiply, NULL};

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector) && __has_builtin(__builtin_convertvector)
#define VECTORS
#endif
#endif
#if defined(VECTORS)
/* The product of eight columns at once, if the compiler has these extensions, and of sixteen, if the host has AVX-512.
 */
typedef float row4 __attribute__((vector_size(16)));

/* Also without optimization: a function of its own passes vectors another way than multiply8() and its like, which are
 * compiled for other instructions. */
#define INLINED static inline __attribute__((always_inline))

/* Limits of the vectors: exponents with which the unit is a normal f32 and cut() needs no negative shift, and whole
 * units that are an int32_t when they are rounded to 24 bits. */
enum { SMALLEST = -100, LARGEST = PLACES, MOST_UNITS = 0x7fffff00 };

#define COLUMNS 8
#define OF(name) name##8
#include "mma_rows.h"
#undef COLUMNS
#undef OF
#define COLUMNS 16
#define OF(name) name##16
#include "mma_rows.h"

INLINED ints8 ints_at(const uint32_t *from) {
    ints8 row;
    memcpy(&row, from, sizeof row);
    return row;
}

/* The values of eight 16-bit numbers. */
INLINED row8 values_of(words8 half, bool bfloat) {
    if (bfloat) return (row8)(half << 16);
    words8 magnitude = (half & 0x7fff) << 13;
    ints8 scaled = (ints8)((row8)magnitude * 0x1p112f), not_finite = (ints8)magnitude >= 0x0f800000;
    return (row8)(scaled | (not_finite & 0x7f800000) | (ints8)((half & 0x8000) << 16));
}

/* The exponents of sixteen 16-bit numbers with `bits` bits of mantissa and an exponent field of at most `last`. */
INLINED pairs8 exponents_of(pairs8 halves, int bits, int16_t last) {
    int16_t bias = last / 2;
    pairs8 magnitude = halves & 0x7fff, field = magnitude >> bits,
           exponent = larger_pairs8(field, (pairs8){0} + 1) - bias;
    return exponent + ((magnitude == 0) & OF_ZERO) + ((field == last) & OF_INFINITY);
}

INLINED void widen8(halves *out, const uint32_t *words, bool bfloat) {
#pragma GCC unroll 4
    for (int lane = 0; lane < LANES; lane += 8) {
        words8 word = (words8)ints_at(words + lane);
        row8 low = values_of(word & 0xffff, bfloat), high = values_of(word >> 16, bfloat);
        pairs8 exponents = bfloat ? exponents_of((pairs8)word, 7, 255) : exponents_of((pairs8)word, 10, 31);
        memcpy(out->low + lane, &low, sizeof low);
        memcpy(out->high + lane, &high, sizeof high);
        memcpy(out->exponent[lane], &exponents, sizeof exponents);
    }
}

INLINED row8 join_row(const uint32_t *even, const uint32_t *odd) {
    row4 first, second;
    memcpy(&first, even, sizeof first);
    memcpy(&second, odd, sizeof second);
    return __builtin_shufflevector(first, second, 0, 1, 2, 3, 4, 5, 6, 7);
}

INLINED void add_block8(float out[8][8], const uint32_t *even, const uint32_t *odd, const factors *of, int block) {
    ints8 beyond = {0}, tops[8];
    for (int row = 0; row < 8; row++)
        tops[row] =
            top_of8(join_row(even + 4 * row, odd + 4 * row), of->a, (const halves8 *)of->b, block, row, &beyond);
    for (int row = 0; row < 8; row++) {
        row8 sum = join_row(even + 4 * row, odd + 4 * row);
        sum = add_row8(sum, tops[row], of->a, (const halves8 *)of->b, block, row, &beyond);
        memcpy(out[row], &sum, sizeof sum);
    }
    bool found = false;
    for (int n = 0; n < 8; n++) found |= beyond[n] < 0;
    if (found) add_block(out, even, odd, of, block);
}

INLINED void transpose8(uint32_t *out, const uint32_t *words) {
    ints8 in0 = ints_at(words), in1 = ints_at(words + 8), in2 = ints_at(words + 16), in3 = ints_at(words + 24);
    ints8 a = __builtin_shufflevector(in0, in1, 0, 8, 1, 9, 4, 12, 5, 13);
    ints8 b = __builtin_shufflevector(in2, in3, 0, 8, 1, 9, 4, 12, 5, 13);
    ints8 c = __builtin_shufflevector(in0, in1, 2, 10, 3, 11, 6, 14, 7, 15);
    ints8 d = __builtin_shufflevector(in2, in3, 2, 10, 3, 11, 6, 14, 7, 15);
    ints8 row[4] = {
        __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13),
        __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15),
        __builtin_shufflevector(c, d, 0, 1, 8, 9, 4, 5, 12, 13),
        __builtin_shufflevector(c, d, 2, 3, 10, 11, 6, 7, 14, 15),
    };
    for (int t = 0; t < 4; t++) memcpy(out + 8 * t, &row[t], sizeof row[t]);
}

#if defined(__x86_64__) && !defined(_WIN32)
#define MULTIPLY8 __attribute__((target("avx2")))
#define MULTIPLY16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
static bool have_vectors(void) {
    return __builtin_cpu_supports("avx2");
}
static bool have_wide_vectors(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
#define MULTIPLY8
#define MULTIPLY16
static bool have_vectors(void) {
    return true;
}
static bool have_wide_vectors(void) {
    return false;
}
#endif

MULTIPLY8 static void widen_a8(mma_a *out, const uint32_t *const a[4], bool bfloat) {
    for (int i = 0; i < 4; i++) widen8(&out->of[i / 2][i % 2], a[i], bfloat);
}

MULTIPLY8 static void widen_b8(mma_b *out, const uint32_t *const b[2], bool bfloat) {
    uint32_t rows[LANES];
    for (int step = 0; step < 2; step++) {
        transpose8(rows, b[step]);
        widen8(&out->of[step], rows, bfloat);
    }
}

MULTIPLY8 static void multiply8(float out[2][8][8], const uint32_t *const c[4], const factors *of) {
    for (int block = 0; block < 2; block++) add_block8(out[block], c[2 * block], c[2 * block + 1], of, block);
}

/* B of two blocks of eight columns. */
INLINED void join_columns(halves16 *to, const halves *first, const halves *second) {
    for (int t = 0; t < 4; t++) {
        memcpy(to->low + 16 * t, first->low + 8 * t, 8 * sizeof *to->low);
        memcpy(to->low + 16 * t + 8, second->low + 8 * t, 8 * sizeof *to->low);
        memcpy(to->high + 16 * t, first->high + 8 * t, 8 * sizeof *to->high);
        memcpy(to->high + 16 * t + 8, second->high + 8 * t, 8 * sizeof *to->high);
        memcpy(to->exponent + 16 * t, first->exponent + 8 * t, 8 * sizeof *to->exponent);
        memcpy(to->exponent + 16 * t + 8, second->exponent + 8 * t, 8 * sizeof *to->exponent);
    }
}

MULTIPLY16 static void multiply16(float out[2][2][8][8], const uint32_t *const *c, const mma_a *a, const mma_b *b) {
    halves16 wide[2];
    for (int step = 0; step < 2; step++) join_columns(&wide[step], &b[0].of[step], &b[1].of[step]);
    for (int block = 0; block < 2; block++) {
        const uint32_t *const *even = c + 2 * block, *const *odd = even + 1;
        row16 sums[8];
        ints16 beyond = {0}, tops[8];
        for (int row = 0; row < 8; row++) {
            sums[row] = __builtin_shufflevector(join_row(even[0] + 4 * row, odd[0] + 4 * row),
                                                join_row(even[4] + 4 * row, odd[4] + 4 * row), 0, 1, 2, 3, 4, 5, 6, 7,
                                                8, 9, 10, 11, 12, 13, 14, 15);
            tops[row] = top_of16(sums[row], a->of, wide, block, row, &beyond);
        }
        for (int row = 0; row < 8; row++) {
            const row16 sum = add_row16(sums[row], tops[row], a->of, wide, block, row, &beyond);
            memcpy(out[0][block][row], &sum, sizeof sum / 2);
            memcpy(out[1][block][row], (const char *)&sum + sizeof sum / 2, sizeof sum / 2);
        }
        bool found = false;
        for (int n = 0; n < 16; n++) found |= beyond[n] < 0;
        for (int i = 0; i < 2 && found; i++)
            add_block(out[i][block], even[4 * i], odd[4 * i], &(factors){a->of, b[i].of}, block);
    }
}

static const struct products *products(void) {
    static const struct products all[] = {
        {widen_a8, widen_b8, multiply8, NULL},
        {widen_a8, widen_b8, multiply8, multiply16},
    };
    return !have_vectors() ? &plain_products : &all[have_wide_vectors()];
}
#else
static const struct products *products(void) {
    return &plain_products;
}
#endif

void emu_widen_a(mma_a *out, const uint32_t *const a[4], bool bfloat) {
    products()->widen_a(out, a, bfloat);
}

void emu_widen_b(mma_b *out, const uint32_t *const b[2], bool bfloat) {
    products()->widen_b(out, b, bfloat);
}

/* Two blocks of columns at once, where the host can. */
static bool add_twice(uint32_t *const *d, const uint32_t *const *c, const mma_a *a, const mma_b *b) {
    float out[2][2][8][8];
    if (!products()->multiply_twice) return false;
    products()->multiply_twice(out, c, a, b);
    for (int i = 0; i < 8; i++) {
        for (int row = 0; row < 8; row++)
            memcpy(d[i] + 4 * row, out[i / 4][i / 2 % 2][row] + 4 * (i % 2), 4 * sizeof *d[i]);
    }
    return true;
}

void emu_add_products(uint32_t *const *d, const uint32_t *const *c, const mma_a *a, const mma_b *b, uint32_t blocks) {
    if (blocks == 2 && add_twice(d, c, a, b)) return;
    for (; blocks--; b++, c += 4, d += 4) {
        const factors of = {a->of, b->of};
        float out[2][8][8];
        products()->multiply(out, c, &of);
        for (int i = 0; i < 4; i++) {
            for (int row = 0; row < 8; row++) memcpy(d[i] + 4 * row, out[i / 2][row] + 4 * (i % 2), 4 * sizeof *d[i]);
        }
    }
}

void emu_exec_mma(cta *m, warp *w, const op *o, uint32_t mask) {
    static const uint32_t zeros[LANES];
    (void)m, (void)mask;
    const int steps = o->vector;
    const bool bfloat = o->detail == MMA_BF16;
    const uint16_t *a = o->r + 4, *b = a + 2 * steps, *c = b + steps;
    const uint32_t *a_words[4], *b_words[2], *c_words[4];
    uint32_t *d_words[4];
    mma_a wide_a;
    mma_b wide_b;
    for (int i = 0; i < 4; i++) {
        a_words[i] = i < 2 * steps ? slot32(w, a[i]) : zeros;
        c_words[i] = slot32(w, c[i]);
        d_words[i] = slot32(w, o->r[i]);
    }
    for (int i = 0; i < 2; i++) b_words[i] = i < steps ? slot32(w, b[i]) : zeros;
    emu_widen_a(&wide_a, a_words, bfloat);
    emu_widen_b(&wide_b, b_words, bfloat);
    /* all sources are read before the first destination is written: they may share slots */
    emu_add_products(d_words, c_words, &wide_a, &wide_b, 1);
}
