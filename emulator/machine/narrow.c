/* narrow.c - sums of numbers of 8, 6 and 4 bits, and mma.sync of sm_120a with or without block scales.
 *
 * The sums are those that MMA-Sim (Xie et al., arXiv 2511.10909) found: tcgen05_mma.c describes them. MMA-Sim models
 * the GPUs of sm_120a likewise; nobody measured these products for this emulator.
 *
 * Fragments are those of mma.m16n8k32 of bytes and of mma.m16n8k64 of 4 bits. A number of 6 bits is the lower part of
 * its byte, one of 4 bits the middle. The scales of row r of A are in lane r % 8 * 4 + r / 8, or two lanes after it,
 * those of column n of B in one of the four lanes from 4 * n on (PTX ISA, "Block Scaling for mma.sync").
 */
#include "narrow.h"

#include "machine.h"
#include "mma.h"
#include "numbers.h"

enum { PLACES = 25, GROUP_PLACES = 35 };

/* ---- numbers ---- */

const int8_t emu_narrow_twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* A sign, `exponents` bits and `fraction` bits; e4m3 has one NaN, e5m2 infinities and NaN. */
static float small_value(uint32_t bits, int exponents, int fraction) {
    const uint32_t part = bits & ((1u << fraction) - 1), field = bits >> fraction & ((1u << exponents) - 1);
    const int bias = (1 << (exponents - 1)) - 1;
    float value = ldexpf((float)(part + (field ? 1u << fraction : 0)), (int)(field ? field : 1) - bias - fraction);
    if (exponents == 4 && field == 15 && part == 7) value = NAN;
    if (exponents == 5 && field == 31) value = part ? NAN : INFINITY;
    return bits >> (exponents + fraction) & 1 ? -value : value;
}

float emu_narrow_value(uint32_t format, uint32_t bits) {
    static const int8_t fields[][2] = {{4, 3}, {5, 2}, {0, 0}, {2, 3}, {3, 2}, {2, 1}};
    return format > NARROW_E2M1 || format == 2 ? NAN : small_value(bits, fields[format][0], fields[format][1]);
}

int emu_narrow_least(uint32_t format) {
    static const int8_t least[] = {-6, -14, 0, 0, -2, 0};
    return format > NARROW_E2M1 ? 0 : least[format];
}

float emu_narrow_scale(uint32_t byte, bool ue8m0) {
    if (ue8m0) return byte == 255 ? NAN : ldexpf(1, (int)byte - 127);
    return small_value(byte & 127, 4, 3);
}

/* ---- sums ---- */

/* The sum as doubles. */
static float sum_slowly(const narrow_values *a, const narrow_values *b, double scale, int exponent, float start,
                        int least, bool to_odd) {
    double terms[NARROW_TERMS + 1] = {(double)start};
    int top = emu_exponent((double)start, -126);
    if (top < least) top = least;
    for (int i = 0; i < NARROW_TERMS; i++) {
        const int each = a->exponent[i] + b->exponent[i] + exponent;
        terms[i + 1] = (double)a->value[i] * (double)b->value[i] * scale;
        if (each > top) top = each;
    }
    return (to_odd ? emu_sum_terms_to_odd : emu_sum_terms)(terms, NARROW_TERMS + 1, top);
}

/* Whole units to an f32, cut to 24 bits; to_odd: as emu_sum_terms_to_odd() cuts. */
static float cut_units(int64_t units, int exponent, bool to_odd) {
    const uint64_t size = units < 0 ? -(uint64_t)units : (uint64_t)units;
    const int dropped = size ? 64 - __builtin_clzll(size) - 24 : 0;
    uint64_t whole = dropped > 0 ? size >> dropped << dropped : size;
    if (to_odd && whole != size) whole |= 1ull << dropped;
    const int64_t kept = (int64_t)whole;
    return (float)(units < 0 ? -kept : kept) * float_of((uint32_t)(exponent + 127) << 23);
}

/* A faster sum with the same result: a product is below 2^(PLACES + 2) units, so that four of them fit an int32_t. */
float emu_narrow_sum(const narrow_values *a, const narrow_values *b, double scale, int exponent, float start, int least,
                     bool to_odd) {
    enum { LEAST = -70, MOST = 90 };
    int16_t most = a->exponent[0] + b->exponent[0];
    for (int i = 0; i < NARROW_TERMS; i++) {
        const int16_t each = (int16_t)(a->exponent[i] + b->exponent[i]);
        most = each > most ? each : most;
    }
    const uint32_t magnitude = bits_of(start) & 0x7fffffffu;
    if (!magnitude && most < OF_ZERO / 2 && scale == scale) return 0;
    const int of_start = magnitude ? (int)(magnitude >> 23) - 127 : OF_ZERO;
    const int of_products = most + exponent, top = of_products > of_start ? of_products : of_start;
    if (top < LEAST || top > MOST || exponent < LEAST || exponent > MOST || scale != scale)
        return sum_slowly(a, b, scale, exponent, start, least, to_odd);
    const int places = PLACES - top + exponent;
    if (places < -126 || places > 127) return sum_slowly(a, b, scale, exponent, start, least, to_odd);
    const float units = float_of((uint32_t)(places + 127) << 23), own = float_of((uint32_t)(PLACES - top + 127) << 23);
    int32_t sums[8] = {0};
    for (int i = 0; i < NARROW_TERMS; i += 8)
        for (int k = 0; k < 8; k++) sums[k] += (int32_t)(a->value[i + k] * b->value[i + k] * units);
    int64_t total = (int64_t)(start * own);
    for (int k = 0; k < 8; k++) total += sums[k];
    return cut_units(total, top - PLACES, to_odd);
}

float emu_narrow_sum_groups(const int32_t *sums, const float *a_scales, const float *b_scales, uint32_t groups,
                            uint32_t in_scale, bool ue8m0, float start) {
    const int least = ue8m0 ? -127 : -6;
    double terms[NARROW_GROUPS + 1] = {(double)start};
    int top = emu_exponent((double)start, -126);
    for (uint32_t g = 0; g < groups; g++) {
        const double x = (double)a_scales[g / in_scale], y = (double)b_scales[g / in_scale];
        const int exponent = sums[g] ? emu_exponent(x, least) + emu_exponent(y, least) : OF_ZERO;
        terms[g + 1] = sums[g] * 0.25 * x * y;
        if (x != x || y != y) terms[g + 1] = NAN;
        if (exponent > top) top = exponent;
    }
    /* emu_sum_terms() has a unit 25 bits below the exponent that it gets */
    return emu_sum_terms(terms, (int)groups + 1, top > OF_ZERO ? top - (GROUP_PLACES - PLACES) : top);
}

/* ---- mma.sync ---- */

enum { ROWS = 16, COLUMNS = 8, MOST_SCALES = 4 };

/* Operands of an OP_NARROW and of the OP_FACTORS before it. */
typedef struct fragments {
    const uint32_t *a[4], *b[4], *c[4];
    const uint32_t *indices;   /* of a sparse A; else NULL */
    const uint32_t *scales[2]; /* of A and B */
    uint32_t byte[2], lane[2]; /* where they are: the first byte, and the first lane */
} fragments;

static void find_fragments(warp *w, const op *o, fragments *f) {
    const op *factors = o - 1;
    const bool sparse = o->target;
    const uint16_t *scales = factors->r + (sparse ? 9 : 6);
    for (int i = 0; i < 4; i++) f->a[i] = slot32(w, factors->r[i]);
    for (int i = 0; i < (sparse ? 4 : 2); i++) f->b[i] = slot32(w, factors->r[4 + i]);
    if (sparse) f->indices = slot32(w, factors->r[8]);
    for (int i = 0; i < o->sources; i++) f->c[i] = slot32(w, o->r[o->dests + i]);
    for (int i = 0; i < 2 && o->vector; i++) {
        f->scales[i] = slot32(w, scales[3 * i]);
        f->byte[i] = slot32(w, scales[3 * i + 1])[0] & 3;
        f->lane[i] = slot32(w, scales[3 * i + 2])[0] & 3;
    }
}

/* Scale `which` of a row of A or of a column of B. */
static float scale_at(const fragments *f, bool of_b, int row, int which, bool ue8m0) {
    const uint32_t lane =
        of_b ? (uint32_t)row * 4 + f->lane[1] : (uint32_t)(row % 8 * 4 + row / 8) + 2 * (f->lane[0] & 1);
    const uint32_t word = f->scales[of_b][lane];
    return emu_narrow_scale(word >> ((f->byte[of_b] + (uint32_t)which) % 4 * 8) & 255, ue8m0);
}

/* The bits of number k of a row of A or of a column of B, of which a register has `each`. */
static uint32_t number_at(const fragments *f, bool of_b, int row, int k, int each) {
    const int lane = row % 8 * 4 + k % (4 * each) / each, step = k / (4 * each), bits = 32 / each;
    const uint32_t word = of_b ? f->b[step][lane] : f->a[row / 8 + 2 * step][lane];
    return word >> (k % each * bits) & ((1u << bits) - 1);
}

/* The number along k that stored number `k` of a row of a sparse A is: two bits say which two of four, or of numbers of
 * 4 bits which two pairs of four. A lane has the bits of 16 of them. */
static int place_in_row(const fragments *f, int row, int k, int each) {
    if (!f->indices) return k;
    const int in_one = each / 4, unit = k / in_one; /* a number or a pair */
    const uint32_t word = f->indices[row % 8 * 4 + row / 8 + 2 * (unit / 16)];
    return (unit / 2 * 4 + (int)(word >> unit % 16 * 2 & 3)) * in_one + k % in_one;
}

/* Row `of_row` of A; or of B column `row`, the numbers that meet those of that row of A. */
static void take_row(const fragments *f, bool of_b, int row, int of_row, uint32_t format, narrow_values *out) {
    for (int k = 0; k < NARROW_TERMS; k++) {
        const uint32_t byte = number_at(f, of_b, row, of_b ? place_in_row(f, of_row, k, 4) : k, 4);
        out->value[k] = emu_narrow_value(format, format == NARROW_E2M1   ? byte >> 2 & 15
                                                 : format <= NARROW_E5M2 ? byte
                                                                         : byte & 63);
        out->exponent[k] = (int16_t)emu_exponent((double)out->value[k], emu_narrow_least(format));
    }
}

static void multiply_bytes(const op *o, const fragments *f, float start[ROWS][COLUMNS], float sum[ROWS][COLUMNS]) {
    narrow_values a[ROWS], b[COLUMNS];
    for (int row = 0; row < ROWS; row++) take_row(f, false, row, row, o->detail & 15, &a[row]);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const int row = i / COLUMNS, n = i % COLUMNS;
        double scale = 1;
        if (!row || f->indices) take_row(f, true, n, row, o->detail >> 4, &b[n]);
        if (o->vector) scale = (double)scale_at(f, false, row, 0, true) * (double)scale_at(f, true, n, 0, true);
        const int exponent = scale == 1 ? 0 : emu_exponent(scale, -254);
        sum[row][n] = emu_narrow_sum(&a[row], &b[n], scale, exponent, start[row][n], OF_ZERO, o->dests == 2);
    }
}

static void multiply_fours(const op *o, const fragments *f, float start[ROWS][COLUMNS], float sum[ROWS][COLUMNS]) {
    enum { GROUPS = 4 };
    const bool ue8m0 = o->immediate;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const int row = i / COLUMNS, n = i % COLUMNS;
        int32_t sums[NARROW_GROUPS] = {0};
        float scales[2][MOST_SCALES];
        for (int k = 0; k < GROUPS * NARROW_GROUP; k++)
            sums[k / NARROW_GROUP] += emu_narrow_twice[number_at(f, false, row, k, 8)] *
                                      emu_narrow_twice[number_at(f, true, n, place_in_row(f, row, k, 8), 8)];
        for (int which = 0; which < o->vector; which++) {
            scales[0][which] = scale_at(f, false, row, which, ue8m0);
            scales[1][which] = scale_at(f, true, n, which, ue8m0);
        }
        sum[row][n] =
            emu_narrow_sum_groups(sums, scales[0], scales[1], GROUPS, GROUPS / o->vector, ue8m0, start[row][n]);
    }
}

void emu_exec_narrow(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m, (void)mask;
    const bool half = o->dests == 2;
    float start[ROWS][COLUMNS], sum[ROWS][COLUMNS];
    fragments f = {0};
    find_fragments(w, o, &f);
    for (int i = 0; i < 4 * LANES; i++) { /* register i of four f32, or a half of one of two */
        const int lane = i / 4, at = i % 4, row = lane / 4 + 8 * (at / 2), n = lane % 4 * 2 + at % 2;
        const uint32_t word = f.c[half ? at / 2 : at][lane];
        start[row][n] = half ? half_value(word >> 16 * (at % 2) & 0xffff) : float_of(word);
    }
    (o->bytes ? multiply_fours : multiply_bytes)(o, &f, start, sum);
    for (int i = 0; i < 4 * LANES; i++) {
        const int lane = i / 4, at = i % 4, row = lane / 4 + 8 * (at / 2), n = lane % 4 * 2 + at % 2;
        uint32_t *word = &slot32(w, o->r[half ? at / 2 : at])[lane];
        if (!half)
            *word = canonical(sum[row][n]);
        else
            *word = at % 2 ? (*word & 0xffff) | half_bits(sum[row][n]) << 16 : half_bits(sum[row][n]);
    }
}
