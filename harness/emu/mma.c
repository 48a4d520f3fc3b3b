/* mma.c - mma.sync.m16n8k16 and m16n8k8: fragments to small float matrices, and a dense loop.
 *
 * A product of two 11-bit or 8-bit mantissas is exact in f32 (but for bf16 products below 2^-126), so multiplying and
 * adding in f32 is the fma chain d = fma(a[k], b[k], d) in order of k. Devices sum in other orders and widths: their
 * results may differ by one rounding step.
 *
 * Layouts (PTX ISA, "Matrix Fragments for mma.m16n8k16"): lane 4*g + t of a register that holds two halves has elements
 * 2*t and 2*t + 1 of row g of an 8x8 block. B is stored by columns: its word of lane 4*n + t has rows k = 2*t and
 * 2*t + 1 of column n. Lane 4*g + t of the two accumulators of a block has columns 2*t and 2*t + 1 of row g, one each.
 * So a row is kept with its even columns first, 0 2 4 6 1 3 5 7, and is then four lanes of each accumulator.
 */
#include "machine.h"
#include "numbers.h"

/* Values of a register of two halves: the lower halves of all lanes, then the upper ones. */
typedef struct halves {
    float low[LANES], high[LANES];
} halves;

#if defined(__GNUC__)
/* Eight columns at once; without this extension the plain loop below does the same. */
typedef float row8 __attribute__((vector_size(32)));
static inline void add_scaled(row8 *sum, float factor, row8 row) {
    *sum += factor * row;
}
#else
typedef struct row8 {
    float column[8];
} row8;
static inline void add_scaled(row8 *sum, float factor, row8 row) {
    for (int n = 0; n < 8; n++) sum->column[n] += factor * row.column[n];
}
#endif

static inline row8 row_at(const float *from) {
    row8 row;
    memcpy(&row, from, sizeof row);
    return row;
}

/* A row from four lanes of each accumulator, and back. Word 4*n + t of a register of B goes to row t, where column n
 * stands. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAVE_SHUFFLE
#endif
#endif
#if defined(HAVE_SHUFFLE)
typedef float row4 __attribute__((vector_size(16)));
static inline row8 join_row(const uint32_t *even, const uint32_t *odd) {
    row4 first, second;
    memcpy(&first, even, sizeof first);
    memcpy(&second, odd, sizeof second);
    return __builtin_shufflevector(first, second, 0, 1, 2, 3, 4, 5, 6, 7);
}
static inline void part_row(float *even, float *odd, row8 row) {
    row4 first = __builtin_shufflevector(row, row, 0, 1, 2, 3), second = __builtin_shufflevector(row, row, 4, 5, 6, 7);
    memcpy(even, &first, sizeof first);
    memcpy(odd, &second, sizeof second);
}
static inline void transpose(uint32_t *out, const uint32_t *words) {
    row8 in[4], by_t[4];
    memcpy(in, words, sizeof in);
    row8 a = __builtin_shufflevector(in[0], in[1], 0, 8, 1, 9, 4, 12, 5, 13);
    row8 b = __builtin_shufflevector(in[2], in[3], 0, 8, 1, 9, 4, 12, 5, 13);
    row8 c = __builtin_shufflevector(in[0], in[1], 2, 10, 3, 11, 6, 14, 7, 15);
    row8 d = __builtin_shufflevector(in[2], in[3], 2, 10, 3, 11, 6, 14, 7, 15);
    by_t[0] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
    by_t[1] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    by_t[2] = __builtin_shufflevector(c, d, 0, 1, 8, 9, 4, 5, 12, 13);
    by_t[3] = __builtin_shufflevector(c, d, 2, 3, 10, 11, 6, 7, 14, 15);
    memcpy(out, by_t, sizeof by_t);
}
#else
static inline row8 join_row(const uint32_t *even, const uint32_t *odd) {
    float row[8];
    memcpy(row, even, 16);
    memcpy(row + 4, odd, 16);
    return row_at(row);
}
static inline void part_row(float *even, float *odd, row8 row) {
    memcpy(even, &row, 16);
    memcpy(odd, (const float *)(const void *)&row + 4, 16);
}
static inline void transpose(uint32_t *out, const uint32_t *words) {
    for (int t = 0; t < 4; t++) {
        for (int i = 0; i < 4; i++) {
            out[8 * t + i] = words[8 * i + t];
            out[8 * t + 4 + i] = words[8 * i + 4 + t];
        }
    }
}
#endif

/* One 16-bit value of a word as f32. */
static inline float widen(uint32_t half, bool bfloat) {
    return bfloat ? bfloat_value(half) : half_value(half);
}

static inline __attribute__((always_inline)) void widen_halves(halves *restrict out, const uint32_t *restrict words,
                                                               bool bfloat) {
    for (int i = 0; i < LANES; i++) out->low[i] = widen(words[i] & 0xffffu, bfloat);
    for (int i = 0; i < LANES; i++) out->high[i] = widen(words[i] >> 16, bfloat);
}

/* sum += a times b over 8 values of k in order; four rows at a time stay in registers */
static inline __attribute__((always_inline)) void multiply_block(row8 sum[8], const halves *a, const halves *b) {
    for (int row = 0; row < 8; row += 4) {
        row8 s0 = sum[row], s1 = sum[row + 1], s2 = sum[row + 2], s3 = sum[row + 3];
        for (int t = 0; t < 4; t++) {
            const float *low = a->low + 4 * row + t, *high = a->high + 4 * row + t;
            row8 b_even = row_at(b->low + 8 * t), b_odd = row_at(b->high + 8 * t);
            add_scaled(&s0, low[0], b_even);
            add_scaled(&s1, low[4], b_even);
            add_scaled(&s2, low[8], b_even);
            add_scaled(&s3, low[12], b_even);
            add_scaled(&s0, high[0], b_odd);
            add_scaled(&s1, high[4], b_odd);
            add_scaled(&s2, high[8], b_odd);
            add_scaled(&s3, high[12], b_odd);
        }
        sum[row] = s0, sum[row + 1] = s1, sum[row + 2] = s2, sum[row + 3] = s3;
    }
}

static inline __attribute__((always_inline)) void mma_lanes(const warp *w, const op *o, bool bfloat) {
    halves a[4], b[2];
    row8 sum[2][8];
    int steps = o->vector, a_registers = 2 * steps;
    const uint16_t *sources = o->r + 4, *c = sources + a_registers + steps;
    for (int i = 0; i < a_registers; i++) widen_halves(&a[i], slot32(w, sources[i]), bfloat);
    for (int i = 0; i < steps; i++) {
        uint32_t rows[LANES];
        transpose(rows, slot32(w, sources[a_registers + i]));
        widen_halves(&b[i], rows, bfloat);
    }
    /* all sources are read before the first destination is written: they may share slots */
    for (int block = 0; block < 2; block++) {
        const uint32_t *even = slot32(w, c[2 * block]), *odd = slot32(w, c[2 * block + 1]);
        for (int row = 0; row < 8; row++) sum[block][row] = join_row(even + 4 * row, odd + 4 * row);
    }
    for (int block = 0; block < 2; block++) {
        float even[LANES], odd[LANES];
        for (int step = 0; step < steps; step++) multiply_block(sum[block], &a[2 * step + block], &b[step]);
        for (int row = 0; row < 8; row++) part_row(even + 4 * row, odd + 4 * row, sum[block][row]);
        uint32_t *d_even = slot32(w, o->r[2 * block]), *d_odd = slot32(w, o->r[2 * block + 1]);
        for (int i = 0; i < LANES; i++) d_even[i] = canonical(even[i]);
        for (int i = 0; i < LANES; i++) d_odd[i] = canonical(odd[i]);
    }
}

static void mma_plain(const warp *w, const op *o) {
    if (o->detail == MMA_BF16)
        mma_lanes(w, o, true);
    else
        mma_lanes(w, o, false);
}

#if defined(__GNUC__) && defined(__x86_64__)
/* The same source for wider registers: the results are the same bits. */
__attribute__((target("avx2"))) static void mma_wide(const warp *w, const op *o) {
    if (o->detail == MMA_BF16)
        mma_lanes(w, o, true);
    else
        mma_lanes(w, o, false);
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
