/* matrix.c - mma of f16 into f16, tf32, f64, e4m3 and e5m2, integers and bits, and wmma: loads, stores and products.
 *
 * Elements are taken from the registers of all lanes to whole matrices and back. Lane 4*g + t of an mma has row g of A
 * and column g of B, and in each register of r bits the elements t*e .. t*e + e - 1 of r/e, the number of its 4*e along
 * k; of C and D columns 2*t and 2*t + 1 of rows g and g + 8 (PTX ISA, "Matrix Fragments for mma"). The PTX ISA leaves
 * the fragments of wmma open. Here they are those of the mma instructions of 16 x 8 outputs that ptxas makes of them;
 * the 8 x 32 output is computed as a 32 x 8 one, and registers that are left over hold elements again.
 *
 * Sums of 16-bit and tf32 products are those of mma.c; an f16 result is such a sum rounded to the nearest. f64 is fused
 * multiply-adds in the order of k. Integers are exact and wrap, or are limited with .satfinite.
 */
#include "machine.h"
#include "mma.h"
#include "numbers.h"

#include <string.h>

enum { MAX_SIDE = 32, MAX_K = 256, ELEMENTS = 16 * MAX_K };

static int bits_of_numbers(enum matrix_numbers numbers) {
    static const int bits[] = {[MATRIX_F16] = 16, [MATRIX_BF16] = 16, [MATRIX_TF32] = 32, [MATRIX_F32] = 32,
                               [MATRIX_F64] = 64, [MATRIX_S32] = 32,  [MATRIX_S8] = 8,    [MATRIX_U8] = 8,
                               [MATRIX_S4] = 4,   [MATRIX_U4] = 4,    [MATRIX_B1] = 1,    [MATRIX_E4M3] = 8,
                               [MATRIX_E5M2] = 8};
    return bits[numbers];
}

/* ---- where elements are ---- */

typedef struct position {
    int row, column;
} position;

/* The element `of` of register r in a lane of A; that of B is the same with rows and columns exchanged, for n = 8. */
static position factor_position(int rows, int depth, int in_register, int lane, int r, int of) {
    int chunks = depth / (4 * in_register), halves = rows >= 16 ? 2 : 1;
    int of_block = r % (chunks * halves), block = r / (chunks * halves);
    return (position){8 * halves * block + lane / 4 + 8 * (of_block % halves),
                      of_block / halves * 4 * in_register + lane % 4 * in_register + of};
}

/* B is made of blocks of 8 columns, unless it takes the role of A. */
static position second_position(int columns, int depth, int in_register, int lane, int r, int of) {
    int chunks = depth / (4 * in_register);
    (void)columns;
    return (position){r % chunks * 4 * in_register + lane % 4 * in_register + of, 8 * (r / chunks) + lane / 4};
}

static position result_position(int rows, int lane, int element) {
    if (rows < 16) return (position){lane / 4, lane % 4 * 2 + element};
    int block = element / 4, in = element % 4, down = rows / 16;
    return (position){16 * (block % down) + lane / 4 + 8 * (in / 2), 8 * (block / down) + lane % 4 * 2 + in % 2};
}

static position turned(position at) {
    return (position){at.column, at.row};
}

/* Element `of` of register r of a lane. */
static position element_position(matrix_part part, matrix_shape shape, int bits, int lane, int r, int of) {
    int in_register = bits == 64 ? 1 : 32 / bits;
    bool wide = shape.m == 8 && shape.n == 32; /* computed as 32 x 8 */
    if (part == MATRIX_C || part == MATRIX_D) {
        position at = result_position(wide ? 32 : shape.m, lane, r * in_register + of);
        return wide ? turned(at) : at;
    }
    int elements = (part == MATRIX_A ? shape.m : shape.n) * shape.k;
    r %= elements / LANES / in_register;
    if (part == MATRIX_A)
        return wide ? turned(second_position(8, shape.k, in_register, lane, r, of))
                    : factor_position(shape.m, shape.k, in_register, lane, r, of);
    return wide ? turned(factor_position(32, shape.k, in_register, lane, r, of))
                : second_position(shape.n, shape.k, in_register, lane, r, of);
}

/* Offsets at which lanes 1 and 4 have element 0 of register 0. The elements of lane 4 * g + t are g and t times as far
 * from lane 0's. */
typedef struct fragment {
    position one, four;
} fragment;

static fragment fragment_of(matrix_part part, matrix_shape shape, int bits) {
    return (fragment){element_position(part, shape, bits, 1, 0, 0), element_position(part, shape, bits, 4, 0, 0)};
}

static position of_lane(const fragment *of, position first, int lane) {
    const int t = lane % 4, g = lane / 4;
    return (position){first.row + t * of->one.row + g * of->four.row,
                      first.column + t * of->one.column + g * of->four.column};
}

/* ---- products ---- */

/* The words of a register in all lanes, of 64 bits where an element has them. */
static void *words_of(const warp *w, unsigned reg, int bits) {
    return bits == 64 ? (void *)slot64(w, reg) : slot32(w, reg);
}

static uint64_t element_bits(const void *words, int lane, int bits, int of) {
    if (bits == 64) return ((const uint64_t *)words)[lane];
    uint32_t word = ((const uint32_t *)words)[lane];
    return bits == 32 ? word : word >> bits * of & ((1u << bits) - 1);
}

/* A matrix of numbers: values of floating-point ones with their exponents, or integers. */
typedef struct matrix {
    double value[ELEMENTS];
    int exponent[ELEMENTS];
    int64_t integer[ELEMENTS];
} matrix;

static int64_t integer_of(uint64_t bits, enum matrix_numbers numbers) {
    if (numbers == MATRIX_S8) return (int8_t)bits;
    if (numbers == MATRIX_S4) return (int64_t)(bits ^ 8) - 8;
    return numbers == MATRIX_S32 ? (int32_t)bits : (int64_t)bits;
}

static double e4m3_value(uint32_t bits) {
    uint32_t magnitude = bits & 0x7f;
    const uint32_t exponent = magnitude >> 3 ? magnitude >> 3 : 1; /* of a power of two, above 2^-10 */
    const double unit = (double)float_of((127 - 10 + exponent) << 23);
    double value = magnitude == 0x7f ? NAN : (magnitude >> 3 ? 8 + magnitude % 8 : magnitude) * unit;
    return bits & 0x80 ? -value : value;
}

static double value_of(uint64_t bits, enum matrix_numbers numbers) {
    switch (numbers) {
    case MATRIX_F16:
        return (double)half_value((uint32_t)bits);
    case MATRIX_BF16:
        return (double)bfloat_value((uint32_t)bits);
    case MATRIX_TF32: /* the lower 13 bits are not looked at */
        return (double)float_of((uint32_t)bits & 0xffffe000u);
    case MATRIX_F64:
        return double_of(bits);
    case MATRIX_E4M3:
        return e4m3_value((uint32_t)bits);
    case MATRIX_E5M2: /* the upper byte of an f16 */
        return (double)half_value((uint32_t)bits << 8);
    default:
        return (double)float_of((uint32_t)bits);
    }
}

static bool of_bytes(enum matrix_numbers numbers) {
    return numbers == MATRIX_E4M3 || numbers == MATRIX_E5M2;
}

/* The smallest exponent that a term can have. mma of bytes multiplies them as f16. */
static int least_exponent(enum matrix_numbers numbers, bool warpgroup) {
    if (numbers == MATRIX_E4M3 && warpgroup) return -6;
    return numbers == MATRIX_F16 || of_bytes(numbers) ? -14 : -126;
}

static void gather(matrix *out, void *const *registers, int count, matrix_part part, matrix_shape shape,
                   enum matrix_numbers numbers, bool warpgroup) {
    int bits = bits_of_numbers(numbers), in_register = bits == 64 ? 1 : 32 / bits;
    int width = part == MATRIX_A ? shape.k : shape.n;
    const fragment lanes = fragment_of(part, shape, bits);
    for (int i = 0; i < count * in_register; i++) {
        const int r = i / in_register, of = i % in_register;
        const position first = element_position(part, shape, bits, 0, r, of);
        for (int lane = 0; lane < LANES; lane++) {
            const position at = of_lane(&lanes, first, lane);
            const int to = at.row * width + at.column;
            const uint64_t element = element_bits(registers[r], lane, bits, of);
            out->integer[to] = integer_of(element, numbers);
            out->value[to] = value_of(element, numbers);
            out->exponent[to] = emu_exponent(out->value[to], least_exponent(numbers, warpgroup));
        }
    }
}

typedef float sum_function(const double *terms, int count, int top);

/* The products of `of` for those k of which k % 4 is one of `some`, added to an accumulator. */
static float add_products(const matrix *a, const matrix *b, matrix_shape shape, position of, unsigned some,
                          float accumulator, int top, sum_function *sum) {
    double terms[1 + MAX_SIDE] = {(double)accumulator};
    int count = 1;
    for (int k = 0; k < shape.k; k++) {
        int x = of.row * shape.k + k, y = k * shape.n + of.column;
        if (!(some >> k % 4 & 1)) continue;
        terms[count++] = a->value[x] * b->value[y];
        if (a->exponent[x] + b->exponent[y] > top) top = a->exponent[x] + b->exponent[y];
    }
    return sum(terms, count, top);
}

/* mma of e4m3 and e5m2: an H200 has none, and ptxas makes two mma of f16 of it. The first has the lower two bytes of
 * each register and begins with zero, the second adds the upper two; then an ordinary addition takes the accumulator.
 */
static float sum_of_halves(const matrix_product *of, const matrix *a, const matrix *b, float accumulator, position at) {
    const bool narrow = of->d == MATRIX_F16;
    float sum = 0;
    for (int upper = 0; upper < 2; upper++) {
        int top = emu_exponent((double)sum, narrow ? -14 : -126);
        sum =
            add_products(a, b, of->shape, at, upper ? 0xc : 3, sum, top, narrow ? emu_sum_terms_to_odd : emu_sum_terms);
        if (narrow) sum = half_value(half_bits(sum));
    }
    return sum + accumulator;
}

static float float_sum(const matrix_product *of, const matrix *a, const matrix *b, const matrix *c, position at) {
    const int element = at.row * of->shape.n + at.column;
    const float accumulator = (float)c->value[element];
    if (of_bytes(of->a) && !of->warpgroup) return sum_of_halves(of, a, b, accumulator, at);
    static sum_function *const sums[2][2] = {{emu_sum_terms, emu_sum_terms_to_odd},
                                             {emu_sum_byte_terms, emu_sum_byte_terms_to_odd}};
    sum_function *sum = sums[of_bytes(of->a)][of->d == MATRIX_F16];
    return add_products(a, b, of->shape, at, 0xf, accumulator, c->exponent[element], sum);
}

static double double_sum(const matrix *a, const matrix *b, const matrix *c, matrix_shape shape, int row, int column) {
    double sum = c->value[row * shape.n + column];
    for (int k = 0; k < shape.k; k++) sum = fma(a->value[row * shape.k + k], b->value[k * shape.n + column], sum);
    return sum;
}

static uint32_t integer_sum(const matrix_product *of, const matrix *a, const matrix *b, const matrix *c,
                            matrix_shape shape, int row, int column) {
    bool bits = of->a == MATRIX_B1;
    int64_t sum = c->integer[row * shape.n + column];
    for (int k = 0; k < shape.k; k++) {
        int64_t x = a->integer[row * shape.k + k], y = b->integer[k * shape.n + column];
        sum += !bits ? x * y : of->ands ? x & y : x ^ y;
    }
    if (of->limits) sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
    return (uint32_t)sum;
}

/* The bits of an output. */
static uint64_t result_bits(const matrix_product *of, const matrix *a, const matrix *b, const matrix *c, position at) {
    const matrix_shape shape = of->shape;
    if (of->d == MATRIX_S32) return integer_sum(of, a, b, c, shape, at.row, at.column);
    if (of->d == MATRIX_F64) {
        double sum = double_sum(a, b, c, shape, at.row, at.column);
        return sum != sum ? 0x7fffffffffffffffu : bits_of_double(sum);
    }
    float sum = float_sum(of, a, b, c, at);
    return of->d == MATRIX_F16 ? half_bits(sum) : canonical(sum);
}

static int register_count(int rows, int columns, int bits) {
    return rows * columns * bits / LANES / (bits == 64 ? 64 : 32);
}

void emu_multiply_matrices(const matrix_product *of, void *const *a_words, void *const *b_words, void *const *c_words,
                           void *const *d_words) {
    matrix a, b, c;
    const matrix_shape shape = of->shape;
    gather(&a, a_words, of->a_registers, MATRIX_A, shape, of->a, of->warpgroup);
    gather(&b, b_words, of->b_registers, MATRIX_B, shape, of->b, of->warpgroup);
    gather(&c, c_words, register_count(shape.m, shape.n, bits_of_numbers(of->c)), MATRIX_C, shape, of->c,
           of->warpgroup);
    const int bits = bits_of_numbers(of->d), in_register = bits == 16 ? 2 : 1;
    for (int i = 0; i < register_count(shape.m, shape.n, bits) * LANES; i++) {
        int r = i / LANES, lane = i % LANES;
        uint64_t word = 0;
        for (int element = 0; element < in_register; element++) {
            position at = element_position(MATRIX_D, shape, bits, lane, r, element);
            word |= result_bits(of, &a, &b, &c, at) << bits * element % 64;
        }
        if (bits == 64)
            ((uint64_t *)d_words[r])[lane] = word;
        else
            ((uint32_t *)d_words[r])[lane] = (uint32_t)word;
    }
}

static void find_words(const warp *w, const uint16_t *regs, int count, enum matrix_numbers numbers, void **words) {
    for (int i = 0; i < count; i++) words[i] = words_of(w, regs[i], bits_of_numbers(numbers));
}

void emu_exec_matrix(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m, (void)mask;
    const op *factors = o - 1;
    const matrix_product product = {.shape = matrix_unpack_shape(o->target),
                                    .a = (enum matrix_numbers)(o->detail & 15),
                                    .b = (enum matrix_numbers)(o->detail >> 4),
                                    .c = (enum matrix_numbers)(o->bytes & 15),
                                    .d = (enum matrix_numbers)(o->bytes >> 4),
                                    .a_registers = o->vector,
                                    .b_registers = factors->sources - o->vector,
                                    .limits = o->flags & FLAG_SIGNED,
                                    .ands = o->flags & FLAG_TRANSPOSE};
    void *a[MAX_OPERANDS], *b[MAX_OPERANDS], *c[MAX_OPERANDS], *d[MAX_OPERANDS];
    find_words(w, factors->r, product.a_registers, product.a, a);
    find_words(w, factors->r + product.a_registers, product.b_registers, product.b, b);
    find_words(w, o->r + o->dests, o->sources, product.c, c);
    find_words(w, o->r, o->dests, product.d, d);
    emu_multiply_matrices(&product, a, b, c, d);
}

/* ---- wmma.load and wmma.store ---- */

static state_space space_of(const op *o, uint64_t address) {
    return o->space != SPACE_GENERIC ? (state_space)o->space : address & SHARED_WINDOW ? SPACE_SHARED : SPACE_GLOBAL;
}

/* The host byte of an element, whose first bit in it is *shift; NULL where the address is bad. */
static uint8_t *element_bytes(cta *m, warp *w, const op *o, position at, int lane, int *shift, uint64_t *address) {
    const int stride_at = o->kind == OP_WMMA_LOAD ? o->dests + 1 : 1, bits = bits_of_numbers(o->detail);
    const uint64_t stride = slot32(w, o->r[stride_at])[lane];
    const bool columns = o->flags & FLAG_TRANSPOSE;
    uint64_t index = (uint64_t)(columns ? at.column : at.row) * stride + (uint64_t)(columns ? at.row : at.column);
    *address = emu_lane_address(w, o, o->kind == OP_WMMA_LOAD ? o->dests : 0, lane) + index * (unsigned)bits / 8;
    *shift = bits < 8 ? (int)(index * (unsigned)bits % 8) : 0;
    return emu_translate(m, w, (state_space)o->space, *address, bits < 8 ? 1 : (uint32_t)bits / 8, lane,
                         o->kind == OP_WMMA_LOAD ? "reads" : "writes");
}

static void count_register(cta *m, const op *o, const uint64_t *addresses) {
    const uint32_t bytes = o->bytes == 8 ? 8 : 4; /* of a register */
    uint32_t low[LANES];
    for (int i = 0; i < LANES; i++) low[i] = (uint32_t)addresses[i];
    if (space_of(o, addresses[0]) == SPACE_SHARED)
        emu_count_shared(m, o, low, bytes, ALL_LANES);
    else
        emu_count_global(m, o, addresses, bytes, ALL_LANES);
}

/* Registers that hold elements again are filled from memory once more, as a device does where it needs to. */
void emu_exec_wmma_load(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)mask;
    const matrix_shape shape = matrix_unpack_shape(o->target);
    const int bits = bits_of_numbers(o->detail), in_register = bits == 64 ? 1 : 32 / bits;
    const uint32_t bytes = bits < 8 ? 1 : (uint32_t)bits / 8;
    uint64_t words[MAX_OPERANDS][LANES] = {{0}}, addresses[LANES], address;
    for (int r = 0; r < o->dests; r++) {
        for (int i = 0; i < LANES * in_register; i++) {
            int lane = i / in_register, of = i % in_register, shift;
            position at = element_position((matrix_part)o->vector, shape, bits, lane, r, of);
            const uint8_t *from = element_bytes(m, w, o, at, lane, &shift, &address);
            uint64_t value = 0;
            if (!of) addresses[lane] = address;
            if (!from) continue;
            if (m->checks && space_of(o, address) == SPACE_SHARED)
                emu_on_shared_read(m, w, lane, (uint32_t)address, bytes);
            else if (m->checks && !(address & CONST_WINDOW))
                emu_on_global_read(m, w, lane, address, bytes, NULL);
            memcpy(&value, from, bytes);
            if (bits < 8) value = value >> shift & ((1u << bits) - 1);
            words[r][lane] |= value << bits * of % 64;
        }
        count_register(m, o, addresses);
    }
    for (int r = 0; r < o->dests; r++) {
        for (int lane = 0; lane < LANES; lane++) {
            if (bits == 64)
                slot64(w, o->r[r])[lane] = words[r][lane];
            else
                slot32(w, o->r[r])[lane] = (uint32_t)words[r][lane];
        }
    }
}

void emu_exec_wmma_store(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)mask;
    const matrix_shape shape = matrix_unpack_shape(o->target);
    const int bits = bits_of_numbers(o->detail), in_register = bits == 64 ? 1 : 32 / bits, first = 2;
    uint64_t addresses[LANES], address;
    for (int r = 0; r < o->sources - first; r++) {
        for (int i = 0; i < LANES * in_register; i++) {
            int lane = i / in_register, of = i % in_register, shift;
            position at = element_position(MATRIX_D, shape, bits, lane, r, of);
            uint8_t *to = element_bytes(m, w, o, at, lane, &shift, &address);
            uint64_t value = element_bits(words_of(w, o->r[first + r], bits), lane, bits, of);
            if (!of) addresses[lane] = address;
            if (!to) continue;
            if (m->checks && space_of(o, address) == SPACE_SHARED)
                emu_on_shared_write(m, w, lane, (uint32_t)address, (uint32_t)bits / 8, &value);
            if (m->checks && space_of(o, address) != SPACE_SHARED)
                emu_on_global_write(m, w, lane, address, (uint32_t)bits / 8, o, (const uint8_t *)&value, to);
            m->changes++;
            memcpy(to, &value, (size_t)bits / 8);
        }
        count_register(m, o, addresses);
    }
}
