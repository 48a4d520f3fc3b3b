/* mma.c - mma.sync.m16n8k16 and m16n8k8: fragments to small float matrices, and a dense loop.
 *
 * A product of two 11-bit or 8-bit mantissas is exact in f32 (but for bf16 products below 2^-126), so multiplying and
 * adding in f32 is the fma chain d = fma(a[k], b[k], d) in order of k. Devices sum in other orders and widths: their
 * results may differ by one rounding step.
 *
 * Layouts (PTX ISA, "Matrix Fragments for mma.m16n8k16"): lane 4*g + t of a register that holds two halves has elements
 * 2*t and 2*t + 1 of row g of an 8x8 block; so the 64 halves of a register over the lanes are that block, row by row.
 * B is stored by columns: its word of lane 4*n + t has rows k = 2*t and 2*t + 1 of column n.
 */
#include "machine.h"
#include "numbers.h"

#if defined(__GNUC__)
/* Eight columns at once; without this extension the plain loops below do the same. */
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

/* One 16-bit value of a word as f32. */
static inline float widen(uint32_t half, bool bfloat) {
    return bfloat ? bfloat_value(half) : half_value(half);
}

/* A register of A as an 8x8 block, row by row. */
static inline void widen_rows(float *restrict out, const uint32_t *restrict words, bool bfloat) {
    for (int i = 0; i < LANES; i++) {
        out[2 * i] = widen(words[i] & 0xffffu, bfloat);
        out[2 * i + 1] = widen(words[i] >> 16, bfloat);
    }
}

/* A register of B as rows of k, each with the 8 columns. */
static inline void widen_columns(float (*restrict out)[8], const uint32_t *restrict words, bool bfloat) {
    for (int t = 0; t < 4; t++) {
        uint32_t column[8];
        for (int n = 0; n < 8; n++) column[n] = words[4 * n + t];
        for (int n = 0; n < 8; n++) out[2 * t][n] = widen(column[n] & 0xffffu, bfloat);
        for (int n = 0; n < 8; n++) out[2 * t + 1][n] = widen(column[n] >> 16, bfloat);
    }
}

/* sum += a times b over 8 values of k in order; four rows at a time stay in registers */
static inline __attribute__((always_inline)) void multiply_block(row8 sum[8], const float a[64], const float (*b)[8]) {
    row8 by_k[8];
    memcpy(by_k, b, sizeof by_k);
    for (int row = 0; row < 8; row += 4) {
        row8 s0 = sum[row], s1 = sum[row + 1], s2 = sum[row + 2], s3 = sum[row + 3];
        const float *from = a + 8 * row;
        for (int k = 0; k < 8; k++) {
            add_scaled(&s0, from[k], by_k[k]);
            add_scaled(&s1, from[8 + k], by_k[k]);
            add_scaled(&s2, from[16 + k], by_k[k]);
            add_scaled(&s3, from[24 + k], by_k[k]);
        }
        sum[row] = s0, sum[row + 1] = s1, sum[row + 2] = s2, sum[row + 3] = s3;
    }
}

static inline __attribute__((always_inline)) void mma_lanes(const warp *w, const op *o, bool bfloat) {
    float a[4][64], b[2][8][8], flat[64];
    row8 sum[2][8];
    int steps = o->vector, a_registers = 2 * steps;
    const uint16_t *sources = o->r + 4, *c = sources + a_registers + steps;
    for (int i = 0; i < a_registers; i++) widen_rows(a[i], slot32(w, sources[i]), bfloat);
    for (int i = 0; i < steps; i++) widen_columns(b[i], slot32(w, sources[a_registers + i]), bfloat);
    for (int half = 0; half < 2; half++) {
        const uint32_t *even = slot32(w, c[2 * half]), *odd = slot32(w, c[2 * half + 1]);
        for (int i = 0; i < LANES; i++) {
            flat[2 * i] = float_of(even[i]);
            flat[2 * i + 1] = float_of(odd[i]);
        }
        memcpy(sum[half], flat, sizeof flat);
    }
    for (int step = 0; step < steps; step++) {
        multiply_block(sum[0], a[2 * step], (const float (*)[8])b[step]);
        multiply_block(sum[1], a[2 * step + 1], (const float (*)[8])b[step]);
    }
    for (int half = 0; half < 2; half++) {
        uint32_t *even = slot32(w, o->r[2 * half]), *odd = slot32(w, o->r[2 * half + 1]);
        memcpy(flat, sum[half], sizeof flat);
        for (int i = 0; i < LANES; i++) {
            even[i] = canonical(flat[2 * i]);
            odd[i] = canonical(flat[2 * i + 1]);
        }
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
