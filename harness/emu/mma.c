/* mma.c - mma.sync.m16n8k16 and m16n8k8: fragments to small float matrices, and a dense loop.
 *
 * A product of two 11-bit or 8-bit mantissas is exact in f32 (but for bf16 products below 2^-126), so multiplying and
 * adding in f32 is the fma chain d = fma(a[k], b[k], d) in order of k. Devices sum in other orders and widths: their
 * results may differ by one rounding step.
 *
 * Layouts (PTX ISA, "Matrix Fragments for mma.m16n8k16"): lane 4*g + t of a register that holds two halves has elements
 * 2*t and 2*t + 1 of row g of an 8x8 block; so the 64 halves of a register over the lanes are that block, row by row.
 */
#include "machine.h"
#include "numbers.h"

typedef float block8[8][8];

/* 8x8 block of 16-bit values, two in each lane's word. */
static inline void widen_half(float *restrict out, const uint32_t *restrict words) {
    for (int i = 0; i < LANES; i++) {
        out[2 * i] = half_value(words[i] & 0xffffu);
        out[2 * i + 1] = half_value(words[i] >> 16);
    }
}

static inline void widen_bfloat(float *restrict out, const uint32_t *restrict words) {
    for (int i = 0; i < LANES; i++) {
        out[2 * i] = float_of(words[i] << 16);
        out[2 * i + 1] = float_of(words[i] & 0xffff0000u);
    }
}

/* sum[row][column] += a[row][k] * b[column][k], k in order; four rows at a time stay in registers */
static inline __attribute__((always_inline)) void multiply_block(float sum[8][8], const float a[8][8],
                                                                 const float b[8][8]) {
    float by_k[8][8];
    for (int k = 0; k < 8; k++) {
        for (int n = 0; n < 8; n++) by_k[k][n] = b[n][k];
    }
    for (int row = 0; row < 8; row += 4) {
        float s[4][8];
        memcpy(s, sum[row], sizeof s);
        for (int k = 0; k < 8; k++) {
            for (int r = 0; r < 4; r++) {
                for (int n = 0; n < 8; n++) s[r][n] += a[row + r][k] * by_k[k][n];
            }
        }
        memcpy(sum[row], s, sizeof s);
    }
}

static inline __attribute__((always_inline)) void mma_lanes(const warp *w, const op *o) {
    float a[4][8][8], b[2][8][8], sum[2][8][8];
    int steps = o->vector, a_registers = 2 * steps;
    const uint16_t *sources = o->r + 4;
    for (int i = 0; i < a_registers + steps; i++) {
        float *out = i < a_registers ? a[i][0] : b[i - a_registers][0];
        if (o->detail == MMA_BF16)
            widen_bfloat(out, slot32(w, sources[i]));
        else
            widen_half(out, slot32(w, sources[i]));
    }
    const uint16_t *c = sources + a_registers + steps;
    for (int half = 0; half < 2; half++) {
        const uint32_t *even = slot32(w, c[2 * half]), *odd = slot32(w, c[2 * half + 1]);
        float *out = sum[half][0];
        for (int i = 0; i < LANES; i++) {
            out[2 * i] = float_of(even[i]);
            out[2 * i + 1] = float_of(odd[i]);
        }
    }
    for (int step = 0; step < steps; step++) {
        multiply_block(sum[0], (const float (*)[8])a[2 * step], (const float (*)[8])b[step]);
        multiply_block(sum[1], (const float (*)[8])a[2 * step + 1], (const float (*)[8])b[step]);
    }
    for (int half = 0; half < 2; half++) {
        uint32_t *even = slot32(w, o->r[2 * half]), *odd = slot32(w, o->r[2 * half + 1]);
        const float *in = sum[half][0];
        for (int i = 0; i < LANES; i++) {
            even[i] = canonical(in[2 * i]);
            odd[i] = canonical(in[2 * i + 1]);
        }
    }
}

#if defined(__GNUC__) && defined(__x86_64__)
/* The same source for wider vectors; contraction to fma would change nothing, for the products are exact. */
__attribute__((target("avx2"))) static void mma_wide(const warp *w, const op *o) {
    mma_lanes(w, o);
}
static bool have_wide(void) {
    return __builtin_cpu_supports("avx2");
}
#else
static void mma_wide(const warp *w, const op *o) {
    mma_lanes(w, o);
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
        mma_lanes(w, o);
}
