/* wgmma.c - wgmma.mma_async: matrix products of a warpgroup, which land when a warp waits for them.
 *
 * The four warps of a warpgroup issue the same instructions; each holds 16 of the 64 rows. The products are computed as
 * late as the program allows: when the first of the warps waits for the group, and then for all four. Until then shared
 * memory that they read is marked, and so are the accumulators of a warp until that warp has waited.
 *
 * A warp's part of m64nNk16 is N/8 times m16n8k16 (of tf32 m16n8k8, of integers m16n8k32): the fragments have its
 * layouts, and the sums follow its rule (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate"; the sums
 * of f32 from 16-bit factors were compared with an H200's).
 */
#include "machine.h"
#include "mma.h"

#include <inttypes.h>
#include <string.h>

enum { WARPGROUP = 4, CHUNK = 16 /* bytes of a row of a core matrix */ };

/* ---- descriptors (PTX ISA, "Matrix descriptor format") ---- */

typedef struct operand_layout {
    uint32_t start, leading, stride; /* bytes */
    uint32_t swizzle;                /* which of the bits 7 to 9 of an address are added to bits 4 to 6 */
    uint32_t base;                   /* rows of 128 bytes by which the pattern of the swizzle is moved */
    uint32_t row;                    /* bytes from a row of a core matrix to the next */
    bool along_k;                    /* the values of one row of M or N are contiguous */
} operand_layout;

static operand_layout layout_of(uint64_t descriptor, bool transposed) {
    static const uint32_t swizzles[] = {0, 7, 3, 1}, rows[] = {16, 128, 64, 32};
    unsigned mode = (unsigned)(descriptor >> 62);
    return (operand_layout){(uint32_t)(descriptor & 0x3fff) << 4,
                            (uint32_t)(descriptor >> 16 & 0x3fff) << 4,
                            (uint32_t)(descriptor >> 32 & 0x3fff) << 4,
                            swizzles[mode],
                            (uint32_t)(descriptor >> 49 & 7),
                            rows[mode],
                            !transposed};
}

/* The addresses of the rows of a core matrix: the one of `block` along M or N and `half` along K. */
static void row_addresses(const operand_layout *at, uint32_t block, uint32_t half, uint32_t out[8]) {
    uint32_t offset;
    if (!at->swizzle)
        offset = block * at->stride + half * at->leading;
    else if (at->along_k)
        offset = block * at->stride + half * CHUNK;
    else
        offset = block % (at->row / CHUNK) * CHUNK + block / (at->row / CHUNK) * at->leading + half * at->stride;
    const uint32_t first = at->start + offset, step = at->row, base = at->base, swizzle = at->swizzle;
    for (uint32_t row = 0; row < 8; row++) {
        const uint32_t address = first + row * step;
        out[row] = address ^ (((address >> 7) - base) & swizzle) << 4;
    }
}

enum { CHUNKS = 16 /* of two core matrices side by side along K */ };

static void chunk_addresses(const operand_layout *at, uint32_t block, uint32_t out[CHUNKS]) {
    for (uint32_t half = 0; half < 2; half++) row_addresses(at, block, half, out + 8 * half);
}

/* ---- one product of a warp ---- */

static bool inside(const cta *m, uint32_t address) {
    uint32_t offset = address - m->shared_base;
    return offset < m->shared_bytes && m->shared_bytes - offset >= CHUNK;
}

/* True if all chunks of an operand are inside, but for some where a closer look would tell. */
static bool all_inside(const cta *m, const operand_layout *at, uint32_t blocks) {
    uint32_t offset = 7 * at->row;
    if (at->along_k || !at->swizzle)
        offset += (blocks - 1) * at->stride + (at->swizzle ? CHUNK : at->leading);
    else
        offset += at->row + blocks * CHUNK / at->row * at->leading + at->stride;
    const uint32_t least = at->start & ~127u, most = (at->start + offset) | 127u;
    return least >= m->shared_base && most - m->shared_base < m->shared_bytes;
}

/* A chunk outside of shared memory is zeros; where checks are on, its product was reported. */
static const uint8_t *chunk_bytes(const cta *m, uint32_t address) {
    static const uint8_t zeros[CHUNK];
    return inside(m, address) ? m->shared + (address - m->shared_base) : zeros;
}

/* A core matrix as the register of a fragment: lane 4*row + t has word t of its row, the values 2*t and 2*t + 1 along K
 * or value t of 32 bits. */
static void gather(const cta *m, const operand_layout *at, uint32_t block, uint32_t half, uint32_t negated,
                   uint32_t words[LANES]) {
    uint32_t addresses[8];
    row_addresses(at, block, half, addresses);
    if (at->along_k) {
        for (uint32_t row = 0; row < 8; row++) memcpy(words + 4 * row, chunk_bytes(m, addresses[row]), CHUNK);
    } else {
        uint16_t values[8][8]; /* [k][row] */
        for (uint32_t k = 0; k < 8; k++) memcpy(values[k], chunk_bytes(m, addresses[k]), CHUNK);
        for (int row = 0; row < 8; row++) {
            for (int t = 0; t < 4; t++)
                words[4 * row + t] = values[2 * t][row] | (uint32_t)values[2 * t + 1][row] << 16;
        }
    }
    for (int i = 0; negated && i < LANES; i++) words[i] ^= negated;
}

static enum matrix_numbers first_numbers(const op *o) {
    return (enum matrix_numbers)(o->bytes & 15);
}

static uint32_t sign_of(const op *o, enum wgmma_detail which) {
    static const uint32_t signs[] = {[MATRIX_F16] = 0x80008000u,
                                     [MATRIX_BF16] = 0x80008000u,
                                     [MATRIX_TF32] = 0x80000000u,
                                     [MATRIX_E4M3] = 0x80808080u,
                                     [MATRIX_E5M2] = 0x80808080u};
    return o->detail & which ? signs[first_numbers(o)] : 0;
}

/* Eight columns: d += a * b. */
static void multiply_columns(const op *o, uint32_t *const d[4], uint32_t a[4][LANES], uint32_t b[2][LANES]) {
    const enum matrix_numbers first = first_numbers(o), second = (enum matrix_numbers)(o->bytes >> 4);
    const bool integers = first == MATRIX_S8 || first == MATRIX_U8,
               bytes = integers || first == MATRIX_E4M3 || first == MATRIX_E5M2;
    const enum matrix_numbers sums = integers ? MATRIX_S32 : o->dests == 4 ? MATRIX_F32 : MATRIX_F16;
    const matrix_product product = {.shape = {16, 8,
                                              bytes                  ? 32
                                              : first == MATRIX_TF32 ? 8
                                                                     : 16},
                                    .a = first,
                                    .b = second,
                                    .c = sums,
                                    .d = sums,
                                    .a_registers = 4,
                                    .b_registers = 2,
                                    .limits = o->flags & FLAG_SIGNED,
                                    .warpgroup = true};
    void *const a_words[] = {a[0], a[1], a[2], a[3]}, *const b_words[] = {b[0], b[1]};
    void *const d_words[] = {d[0], d[1], d[2], d[3]};
    emu_multiply_matrices(&product, a_words, b_words, d_words, d_words);
}

/* A of the rows of warp w. */
static void take_a(const cta *m, const warp *w, const wgmma *each, uint32_t a[4][LANES]) {
    const op *o = each->o;
    const uint32_t negated = sign_of(o, WGMMA_NEGATE_A), block = 2 * ((uint32_t)w->index % WARPGROUP);
    if (o->detail & WGMMA_A_REGISTERS) {
        for (int i = 0; i < 4 * LANES; i++) a[i / LANES][i % LANES] = each->fragment[i / LANES][i % LANES] ^ negated;
        return;
    }
    operand_layout layout = layout_of(each->a, o->detail & WGMMA_TRANSPOSE_A);
    for (uint32_t i = 0; i < 4; i++) gather(m, &layout, block + i % 2, i / 2, negated, a[i]);
}

/* B of eight columns. */
static void take_b(const cta *m, const wgmma *each, uint32_t columns, uint32_t b[2][LANES]) {
    operand_layout layout = layout_of(each->b, each->o->detail & WGMMA_TRANSPOSE_B);
    for (uint32_t half = 0; half < 2; half++)
        gather(m, &layout, columns, half, sign_of(each->o, WGMMA_NEGATE_B), b[half]);
}

/* Their accumulators, which are zeros where the product does not add to them. */
static void take_d(warp *w, const wgmma *each, uint32_t columns, uint32_t *d[4]) {
    const op *o = each->o;
    for (int i = 0; i < o->dests; i++) {
        d[i] = slot32(w, o[columns].r[i]);
        if (!each->adds) memset(d[i], 0, LANES * sizeof *d[i]);
    }
}

/* The rows of warp w. */
static void multiply(const cta *m, warp *w, const wgmma *each) {
    uint32_t a[4][LANES], b[2][LANES], *d[4] = {NULL};
    take_a(m, w, each, a);
    for (uint32_t j = 0; j < each->o->vector; j++) {
        take_b(m, each, j, b);
        take_d(w, each, j, d);
        multiply_columns(each->o, d, a, b);
    }
}

/* The rows of four warps that issued one product, of f16 or bf16 with sums of f32. */
static void multiply_together(const cta *m, warp *first, uint32_t serial) {
    const wgmma *leader = &first->wgmmas[serial - first->wgmma_landed];
    const bool bfloat = first_numbers(leader->o) == MATRIX_BF16;
    uint32_t words[4][LANES], *d[8];
    const uint32_t *const registers[] = {words[0], words[1], words[2], words[3]};
    mma_a a[WARPGROUP];
    mma_b b[2];
    for (int i = 0; i < WARPGROUP; i++) {
        take_a(m, &first[i], &first[i].wgmmas[serial - first[i].wgmma_landed], words);
        emu_widen_a(&a[i], registers, bfloat);
    }
    const uint32_t blocks = leader->o->vector;
    for (uint32_t j = 0; j < blocks; j += 2) {
        const uint32_t count = j + 1 < blocks ? 2 : 1;
        for (uint32_t k = 0; k < count; k++) {
            take_b(m, leader, j + k, words);
            emu_widen_b(&b[k], registers, bfloat);
        }
        for (int i = 0; i < WARPGROUP; i++) {
            for (uint32_t k = 0; k < count; k++) take_d(&first[i], leader, j + k, d + 4 * k);
            emu_add_products(d, (const uint32_t *const *)d, &a[i], b, count);
        }
    }
}

/* ---- what a product reads ---- */

/* A product is one of the warpgroup: who has waited for its part knows that the others have read, too. CUTLASS relies
 * on it; PTX speaks of the threads that wait alone. */
static bool waits_for_group(const cta *m) {
    return m->checks && !m->launch->wgmma_wait_per_warp;
}

typedef void chunks_function(cta *m, const warp *w, const uint32_t *addresses, uint32_t count, void *context);

/* Chunks inside shared memory. */
static void visit_operand(cta *m, const warp *w, const operand_layout *at, uint32_t blocks, chunks_function *visit,
                          void *context) {
    const bool all = all_inside(m, at, blocks);
    for (uint32_t block = 0; block < blocks; block++) {
        uint32_t addresses[CHUNKS], count = all ? CHUNKS : 0;
        chunk_addresses(at, block, addresses);
        for (uint32_t i = 0; i < CHUNKS && !all; i++) {
            addresses[count] = addresses[i];
            count += inside(m, addresses[i]);
        }
        visit(m, w, addresses, count, context);
    }
}

void emu_wgmma_chunks(const cta *m, const op *o, bool of_a, uint64_t descriptor, uint32_t *offsets) {
    const operand_layout at = layout_of(descriptor, o->detail & (of_a ? WGMMA_TRANSPOSE_A : WGMMA_TRANSPOSE_B));
    const uint32_t blocks = of_a ? 2 * WARPGROUP : o->vector;
    for (uint32_t block = 0; block < blocks; block++) chunk_addresses(&at, block, offsets + CHUNKS * block);
    for (uint32_t i = 0; i < CHUNKS * blocks; i++) offsets[i] -= m->shared_base;
}

/* Every chunk of shared memory that a product of the whole warpgroup reads. */
static void visit_chunks(cta *m, const warp *w, const wgmma *each, chunks_function *visit, void *context) {
    operand_layout layout = layout_of(each->b, each->o->detail & WGMMA_TRANSPOSE_B);
    visit_operand(m, w, &layout, each->o->vector, visit, context);
    if (each->o->detail & WGMMA_A_REGISTERS) return;
    layout = layout_of(each->a, each->o->detail & WGMMA_TRANSPOSE_A);
    visit_operand(m, w, &layout, 2 * WARPGROUP, visit, context);
}

static void begin_chunks(cta *m, const warp *w, const uint32_t *addresses, uint32_t count, void *writers) {
    emu_on_product_read(m, w, addresses, count, writers);
}

/* *reads: how many end. */
static void end_chunks(cta *m, const warp *w, const uint32_t *addresses, uint32_t count, void *reads) {
    emu_on_product_read_end(m, w, addresses, count, *(const uint32_t *)reads);
}

static bool is_alike(const wgmma *a, const wgmma *b) {
    return a->o == b->o && a->b == b->b && (a->o->detail & WGMMA_A_REGISTERS || a->a == b->a);
}

/* Product `serial` of the warpgroup, of which the warp issues its part: all four read the same. */
static void begin_reads(cta *m, const warp *w, wgmma *each, uint32_t serial) {
    const warp *first = &m->warps[w->index / WARPGROUP * WARPGROUP];
    for (int i = 0; i < WARPGROUP && waits_for_group(m) && !each->is_read_again; i++) {
        const warp *other = &first[i];
        if (other == w || (int32_t)(other->wgmma_issued - serial) <= 0) continue;
        const wgmma *its = &other->wgmmas[serial - other->wgmma_landed];
        each->is_read_again =
            !its->is_read_again && is_alike(each, its) && emu_on_product_read_again(m, w, &its->writers);
    }
    if (!each->is_read_again) visit_chunks(m, w, each, begin_chunks, &each->writers);
}

/* ---- registers ---- */

/* Virtual registers, not slots: ptxas gives an unfinished product registers of its own, whatever shares a slot here. */
static const uint16_t *registers_of(const cta *m, const op *o) {
    return m->code->names[o - m->code->ops];
}

/* A product begins to use its registers, or ends. */
static void note_use(const cta *m, warp *w, const op *o, int by) {
    for (int j = 0; j < o->vector; j++) {
        const uint16_t *names = registers_of(m, &o[j]);
        for (int i = 0; i < o->dests; i++)
            w->wgmma_uses[names[i]].adding = (uint8_t)(w->wgmma_uses[names[i]].adding + by);
    }
    const uint16_t *a = registers_of(m, o) + o->dests + WGMMA_A;
    for (int i = 0; o->detail & WGMMA_A_REGISTERS && i < 4; i++)
        w->wgmma_uses[a[i]].reading = (uint8_t)(w->wgmma_uses[a[i]].reading + by);
}

static void register_name(const cta *m, uint16_t name, char *out, size_t bytes) {
    emu_register_name(&m->code->registers[name], out, bytes);
}

/* The last unfinished product of a warp that adds to a register. */
static const op *adder_of(const cta *m, const warp *w, uint16_t name) {
    for (size_t i = w->wgmma_count; i-- > 0;) {
        const op *o = w->wgmmas[i].o;
        for (int j = 0; j < o->vector; j++) {
            const uint16_t *names = registers_of(m, &o[j]);
            for (int k = 0; k < o->dests; k++)
                if (names[k] == name) return o;
        }
    }
    return NULL;
}

static const op *reader_of(const cta *m, const warp *w, uint16_t name) {
    for (size_t i = w->wgmma_count; i-- > 0;) {
        const op *o = w->wgmmas[i].o;
        const uint16_t *a = registers_of(m, o) + o->dests + WGMMA_A;
        for (int k = 0; o->detail & WGMMA_A_REGISTERS && k < 4; k++)
            if (a[k] == name) return o;
    }
    return NULL;
}

static void report_in_flight(cta *m, const warp *w, uint16_t name, bool written) {
    char text[64];
    const bool adding = w->wgmma_uses[name].adding;
    const op *by = adding ? adder_of(m, w, name) : reader_of(m, w, name);
    register_name(m, name, text, sizeof text);
    emu_report(m, EMU_REGISTER_IN_FLIGHT, by ? by->instruction : UINT32_MAX, w, -1, -1, 0,
               "Register %s is %s while a wgmma.mma_async that %s is unfinished.\n"
               "The warp must wait first: wgmma.commit_group, then wgmma.wait_group for that group.",
               text, written ? "written" : "read", adding ? "adds to it" : "takes it as a part of A");
}

void emu_check_registers(cta *m, warp *w, const op *o) {
    const uint16_t *names = registers_of(m, o);
    wgmma_use *uses = w->wgmma_uses;
    const int count = o->dests + o->sources;
    /* a copy leaves the choice of registers to ptxas: it touches none that a product uses */
    const bool copies = o->kind == OP_LANES && o->run.lanes == emu_lanes_mov_32;
    for (int i = 0; i < count; i++) {
        const wgmma_use *use = &uses[names[i]];
        if (!use->adding && (!use->reading || (copies && i >= o->dests))) continue;
        report_in_flight(m, w, names[i], i < o->dests);
        break;
    }
    if (copies) {
        const bool plain = m->code->registers[names[1]].kind == REGISTER_PLAIN;
        uses[names[0]].touched = plain ? uses[names[1]].touched : 0;
        return;
    }
    for (int i = 0; i < count; i++) uses[names[i]].touched = w->wgmma_fences + 1;
}

static void check_fenced(cta *m, const warp *w, const uint16_t *names, int count, const char *what) {
    for (int i = 0; i < count; i++) {
        if (w->wgmma_uses[names[i]].touched != w->wgmma_fences + 1) continue;
        char text[64];
        register_name(m, names[i], text, sizeof text);
        emu_report(m, EMU_WGMMA_MISUSE, UINT32_MAX, w, -1, -1, 0,
                   "Register %s of %s was used by another instruction, without a wgmma.fence before this wgmma.\n"
                   "wgmma runs asynchronously: only wgmma.fence orders it after the warp's own accesses of registers.",
                   text, what);
        return;
    }
}

/* An unfinished product may add to the same registers if it has the same shape. */
static void check_shape(cta *m, const warp *w, const op *o) {
    const uint16_t name = registers_of(m, o)[0];
    const op *before = w->wgmma_uses[name].adding ? adder_of(m, w, name) : NULL;
    if (!before || before->vector == o->vector) return;
    char text[64];
    register_name(m, name, text, sizeof text);
    emu_report(m, EMU_WGMMA_MISUSE, before->instruction, w, -1, -1, 0,
               "Register %s is an accumulator of this wgmma with %d columns and of an unfinished one with %d.\n"
               "Only products of one shape follow each other without wgmma.wait_group and wgmma.fence.",
               text, 8 * o->vector, 8 * before->vector);
}

static void check_product_registers(cta *m, const warp *w, const op *o) {
    if (!w->wgmma_fences) {
        emu_report(m, EMU_WGMMA_MISUSE, UINT32_MAX, w, -1, -1, 0,
                   "This is the first wgmma of the warp, without a wgmma.fence before it.\n"
                   "wgmma runs asynchronously: only wgmma.fence orders it after the warp's own accesses of registers.");
        return;
    }
    for (int j = 0; j < o->vector; j++) check_fenced(m, w, registers_of(m, &o[j]), o->dests, "the accumulators");
    check_shape(m, w, o);
    if (!(o->detail & WGMMA_A_REGISTERS)) return;
    const uint16_t *a = registers_of(m, o) + o->dests + WGMMA_A;
    check_fenced(m, w, a, 4, "A");
    for (int i = 0; i < 4; i++)
        if (w->wgmma_uses[a[i]].adding) report_in_flight(m, w, a[i], false);
}

void emu_exec_wgmma_fence(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m, (void)mask;
    (void)o;
    w->wgmma_fences++;
}

/* ---- issue ---- */

/* The other warps of the group, where they wait for this one, look again. */
static void wake_group(cta *m, const warp *w) {
    uint32_t first = (uint32_t)w->index / WARPGROUP * WARPGROUP;
    for (uint32_t i = first; i < first + WARPGROUP && i < m->warp_count; i++) {
        if (m->warps[i].state == WARP_AT_WGMMA) m->warps[i].state = WARP_READY;
    }
}

static void check_descriptor(cta *m, const warp *w, const char *name, const operand_layout *at, uint32_t blocks) {
    for (uint32_t block = 0; block < blocks && !all_inside(m, at, blocks); block++) {
        uint32_t addresses[CHUNKS];
        chunk_addresses(at, block, addresses);
        for (uint32_t i = 0; i < CHUNKS; i++) {
            const uint32_t address = addresses[i];
            if (inside(m, address)) continue;
            emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, 0, -1, address,
                       "The descriptor of %s reaches 0x%x, outside of the %u bytes of shared memory of the CTA.\n"
                       "It starts at 0x%x, with a leading offset of %u and a stride offset of %u bytes.",
                       name, address, m->shared_bytes, at->start, at->leading, at->stride);
            return;
        }
    }
}

/* All lanes of a warp must give the same descriptor. */
static void check_uniform(cta *m, const warp *w, const op *o, unsigned source, const char *name) {
    const uint64_t *values = slot64(w, o->r[o->dests + source]);
    for (int lane = 1; lane < LANES; lane++) {
        if (values[lane] == values[0]) continue;
        emu_report(m, EMU_WGMMA_MISUSE, UINT32_MAX, w, lane, -1, 0,
                   "Lanes of the warp give different descriptors of %s to a wgmma: 0x%" PRIx64
                   " and, in lane %d, 0x%" PRIx64 ".",
                   name, values[0], lane, values[lane]);
        return;
    }
}

/* Bits 14, 15, 30, 31, 46 to 48 and 52 to 61 are nothing. */
static void check_bits(cta *m, const warp *w, const char *name, uint64_t descriptor) {
    const uint64_t unused = 3ull << 14 | 3ull << 30 | 7ull << 46 | 0x3ffull << 52;
    if (!(descriptor & unused)) return;
    emu_report(m, EMU_WGMMA_MISUSE, UINT32_MAX, w, -1, -1, 0,
               "The descriptor of %s is 0x%" PRIx64 ", with bits 0x%" PRIx64 " that belong to no field.\n"
               "The address and both offsets are counted in 16 bytes and have 14 bits each: (value & 0x3ffff) >> 4.",
               name, descriptor, descriptor & unused);
}

static void check_scale(cta *m, const warp *w, const op *o) {
    const uint32_t lanes = o->p[2] == NO_PREDICATE ? 0 : w->predicates[o->p[2]];
    if (!lanes || lanes == ALL_LANES) return;
    emu_report(m, EMU_WGMMA_MISUSE, UINT32_MAX, w, first_lane(lanes & 1 ? ~lanes : lanes), -1, 0,
               "Lanes of the warp give different values of scale-d to a wgmma: %u of 32 add to the accumulators.",
               population(lanes));
}

static void check_product(cta *m, const warp *w, const wgmma *each) {
    const op *o = each->o;
    operand_layout layout = layout_of(each->b, o->detail & WGMMA_TRANSPOSE_B);
    check_scale(m, w, o);
    check_uniform(m, w, o, WGMMA_B, "B");
    check_bits(m, w, "B", each->b);
    check_descriptor(m, w, "B", &layout, o->vector);
    if (o->detail & WGMMA_A_REGISTERS) return;
    layout = layout_of(each->a, o->detail & WGMMA_TRANSPOSE_A);
    check_uniform(m, w, o, WGMMA_A, "A");
    check_bits(m, w, "A", each->a);
    check_descriptor(m, w, "A", &layout, 2 * WARPGROUP);
}

void emu_exec_wgmma(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)mask;
    if (o->immediate) return; /* the op of the first columns does it all */
    if (m->warp_count < ((uint32_t)w->index / WARPGROUP + 1) * WARPGROUP) {
        emu_report(m, EMU_WGMMA_MISUSE, UINT32_MAX, w, -1, -1, 0,
                   "wgmma is an instruction of four warps, and the CTA has no whole warpgroup for warp %d.", w->index);
        m->faulted = true;
        return;
    }
    wgmma *products = cta_reserve(m, w->wgmmas, w->wgmma_count + 1, &w->wgmma_capacity, sizeof *products);
    if (!products) return;
    w->wgmmas = products;
    wgmma *each = &w->wgmmas[w->wgmma_count];
    *each = (wgmma){.o = o, .group = w->wgmma_commits, .b = slot64(w, o->r[o->dests + WGMMA_B])[0]};
    each->adds = o->p[2] == NO_PREDICATE ? o->detail & WGMMA_ADDS : w->predicates[o->p[2]] & 1;
    if (o->detail & WGMMA_A_REGISTERS) {
        for (int i = 0; i < 4; i++)
            memcpy(each->fragment[i], slot32(w, o->r[o->dests + WGMMA_A + i]), sizeof each->fragment[i]);
    } else {
        each->a = slot64(w, o->r[o->dests + WGMMA_A])[0];
    }
    if (m->checks) {
        check_product(m, w, each);
        check_product_registers(m, w, o);
        note_use(m, w, o, 1);
        begin_reads(m, w, each, w->wgmma_issued);
    }
    if (m->checks) emu_on_product_issue(m, w);
    w->wgmma_count++;
    w->wgmma_issued++;
    wake_group(m, w);
}

/* ---- landing ---- */

/* The warp of the four that has not issued the same product as the first; they all have issued one. */
static const warp *who_disagrees(const warp *first, uint32_t serial) {
    const wgmma *each = &first->wgmmas[serial - first->wgmma_landed];
    for (int i = 1; i < WARPGROUP; i++) {
        const wgmma *its = &first[i].wgmmas[serial - first[i].wgmma_landed];
        if (!is_alike(each, its) || its->adds != each->adds) return &first[i];
    }
    return NULL;
}

static void report_disagreement(cta *m, const warp *first, const warp *other, uint32_t serial) {
    const wgmma *each = &first->wgmmas[serial - first->wgmma_landed];
    const wgmma *its = &other->wgmmas[serial - other->wgmma_landed];
    const bool same_a = each->o->detail & WGMMA_A_REGISTERS || each->a == its->a;
    emu_report(m, EMU_WGMMA_MISUSE, its->o->instruction, first, -1, other->index * LANES, 0,
               "The warps of a warpgroup disagree: warps %d and %d issue different wgmma instructions or give %s.\n"
               "All four must execute the same wgmma with the same descriptors.",
               first->index, other->index,
               its->o != each->o   ? "different operands"
               : its->b != each->b ? "different descriptors of B"
               : !same_a           ? "different descriptors of A"
                                   : "different values of scale-d");
}

static bool sums_16_bits(const op *o) {
    return o->dests == 4 && (first_numbers(o) == MATRIX_F16 || first_numbers(o) == MATRIX_BF16);
}

/* A product has a stamp of its own: other warps may wait for it alone, and then know nothing of the next. */
static void end_group_reads(cta *m, warp *observer, warp *first, uint32_t serial, bool alike) {
    const uint32_t stamp = emu_on_epoch(m, observer);
    uint32_t reads = 0;
    for (int i = 0; i < WARPGROUP; i++) {
        wgmma *its = &first[i].wgmmas[serial - first[i].wgmma_landed];
        its->reader = (uint32_t)observer->index, its->read = stamp;
        reads = (alike ? reads : 0) + !its->is_read_again;
        if (!alike || i == WARPGROUP - 1) visit_chunks(m, observer, its, end_chunks, &reads);
    }
}

/* The products up to `wanted`, in the order of issue, for all warps of the group. */
static void compute(cta *m, warp *observer, uint32_t wanted) {
    uint32_t *done = &m->wgmma_done[observer->index / WARPGROUP], here = m->here;
    warp *first = &m->warps[observer->index / WARPGROUP * WARPGROUP];
    for (; *done != wanted; ++*done) {
        const wgmma *leader = &first->wgmmas[*done - first->wgmma_landed];
        m->here = leader->o->instruction;
        const warp *other = who_disagrees(first, *done);
        if (other && m->checks) report_disagreement(m, first, other, *done);
        if (!other && sums_16_bits(leader->o)) {
            multiply_together(m, first, *done);
        } else {
            for (int i = 0; i < WARPGROUP; i++) multiply(m, &first[i], &first[i].wgmmas[*done - first[i].wgmma_landed]);
        }
        if (waits_for_group(m)) end_group_reads(m, observer, first, *done, !other);
    }
    m->here = here;
}

/* A warp has waited for its part of some products, and of nobody else's. */
static void end_own_reads(cta *m, warp *w, uint32_t count) {
    if (count) emu_on_epoch(m, w);
    const uint32_t here = m->here;
    uint32_t one = 1;
    for (uint32_t i = 0; i < count; i++) {
        m->here = w->wgmmas[i].o->instruction;
        visit_chunks(m, w, &w->wgmmas[i], end_chunks, &one);
    }
    m->here = here;
}

/* The products that a wait leaves unfinished are those of the last `groups` committed groups, and what is not
 * committed.
 */
static uint32_t products_to_wait_for(const warp *w, int64_t groups) {
    uint32_t count = 0;
    while (count < w->wgmma_count && (int64_t)w->wgmmas[count].group < (int64_t)w->wgmma_commits - groups) count++;
    return count;
}

void emu_exec_wgmma_wait(cta *m, warp *w, const op *o, uint32_t mask) {
    uint32_t count = products_to_wait_for(w, o->immediate), wanted = w->wgmma_landed + count;
    warp *first = &m->warps[w->index / WARPGROUP * WARPGROUP];
    for (int i = 0; count && i < WARPGROUP; i++) {
        if ((int32_t)(first[i].wgmma_issued - wanted) >= 0) continue;
        emu_try_again(m, w, o, mask); /* when the other warp has issued its part */
        w->state = WARP_AT_WGMMA;
        return;
    }
    if (count && (int32_t)(m->wgmma_done[w->index / WARPGROUP] - wanted) < 0) compute(m, w, wanted);
    for (uint32_t i = 0; m->checks && i < count; i++) note_use(m, w, w->wgmmas[i].o, -1);
    for (uint32_t i = 0; waits_for_group(m) && i < count; i++)
        emu_on_product_known(m, w, w->wgmmas[i].reader, w->wgmmas[i].read);
    if (m->checks && !waits_for_group(m)) end_own_reads(m, w, count);
    w->wgmma_count -= count;
    w->wgmma_landed = wanted;
    memmove(w->wgmmas, w->wgmmas + count, w->wgmma_count * sizeof *w->wgmmas);
    if (m->checks) emu_on_product_wait(m, w, count, wanted, mask);
}

void emu_exec_wgmma_commit(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m, (void)mask;
    (void)o;
    w->wgmma_commits++;
}
