/* tcgen05_mma.c - products of tcgen05.mma: descriptors, where matrices are, and their sums.
 *
 * D has 64 or 128 rows in a CTA, and A as many; with .cta_group::2 each CTA of the pair has half of the rows of A and
 * D, and half of the columns of B in its shared memory (PTX ISA, "Data Path Layout Organization"). A row of the
 * instruction is 32 bytes along k: 16 f16, 8 tf32, 32 bytes, 64 numbers of 4 bits; or 48 bytes, 96 of these (sm_103a).
 *
 * The sums are those that MMA-Sim (Xie et al., arXiv 2511.10909) found for a B200. They are also the words that a
 * B200's wmma (tests/records/b200.csv) and tcgen05 (tcgen05.b200.csv, of each kind) computed. One instruction along k
 * is one sum of exact products and the accumulator, with a unit 25 binary places below the largest exponent, each term
 * cut to that unit and the sum cut to f32, or rounded once to an f16. Block scales are part of a term of mxf8f6f4. mxf4
 * and mxf4nvf4 add 16 products exactly, scale such a sum, and add these with a unit 35 places below the largest
 * exponent of two scales or of the accumulator.
 */
#include "mma.h"
#include "narrow.h"
#include "numbers.h"
#include "tensor_memory.h"

#include <stdio.h>

enum { MOST_ROWS = 128, MOST_COLUMNS = 256, MOST_K = 128, MOST_SCALES = 6, ROW_BYTES = 64, STEP = 16 };
#define NARROW_NAMES "0 (e4m3), 1 (e5m2), 3 (e2m3), 4 (e3m2) or 5 (e2m1)"
enum { LEAST_TOP = -133 }; /* exponent that the unit of bf16 and tf32 follows where all terms are below it */

/* ---- the descriptor of an instruction ---- */

static uint32_t bits_at(uint32_t word, int first, int count) {
    return word >> first & ((1u << count) - 1);
}

static uint32_t element_bytes(enum tensor_kind kind) {
    return kind == KIND_F16 ? 2 : kind == KIND_TF32 ? 4 : 1;
}

tensor_product emu_tensor_product(const tensor_job *job) {
    const uint32_t i = job->how, detail = job->o->detail;
    const bool sparse = detail & TENSOR_SPARSE, scaled = detail & TENSOR_SCALED;
    tensor_product p = {.kind = (enum tensor_kind)job->o->bytes,
                        .pair = detail & TENSOR_PAIR,
                        .stationary = detail & TENSOR_STATIONARY,
                        .zero_columns = job->zero_columns,
                        .n = bits_at(i, 17, 6) * 8,
                        .a_format = bits_at(i, 7, 3),
                        .b_format = bits_at(i, 10, 3),
                        .negate_a = bits_at(i, 13, 1),
                        .negate_b = bits_at(i, 14, 1),
                        .transpose_a = bits_at(i, 15, 1),
                        .transpose_b = bits_at(i, 16, 1)};
    const bool fours = p.kind == KIND_MXF4 || p.kind == KIND_MXF4NVF4;
    p.element_bytes = element_bytes(p.kind);
    p.m = bits_at(i, 24, 5) * 16;
    p.d_format = scaled ? 1 : bits_at(i, 4, 2);
    if (scaled) {
        p.ue8m0 = bits_at(i, 23, 1);
        p.b_id = bits_at(i, 4, 2), p.a_id = bits_at(i, 29, 2);
    }
    p.a_bytes = p.b_bytes = 32;
    p.k = fours ? 64 : 32 / p.element_bytes;
    if (fours && bits_at(i, 31, 1)) p.k = 96, p.a_bytes = p.b_bytes = 48;
    p.sparse = sparse;
    p.index_id = sparse && p.element_bytes > 1 ? bits_at(i, 0, 2) : 0;
    if (sparse) p.k *= 2, p.b_bytes *= 2;
    p.rows = p.pair ? p.m / 2 : p.m;
    p.columns_of_b = p.pair ? p.n / 2 : p.n;
    return p;
}

/* Values of the fields of an instruction descriptor, by kind: PTX ISA, "Instruction descriptor". */
static const struct {
    uint8_t operands, sums; /* one bit for each type */
    const char *operand_names, *sum_names;
    uint32_t unused; /* bits of no field */
} fields_of[] = {
    [KIND_F16] = {0x03, 0x03, "0 (f16) or 1 (bf16)", "0 (f16) or 1 (f32)", 0x20800048},
    [KIND_TF32] = {0x04, 0x02, "2 (tf32)", "1 (f32)", 0x20800048},
    [KIND_F8F6F4] = {0x3b, 0x03, NARROW_NAMES, "0 (f16) or 1 (f32)", 0x20800048},
    [KIND_I8] = {0x03, 0x04, "0 (u8) or 1 (s8)", "2 (s32)", 0x20806040},
    [KIND_MXF8F6F4] = {0x3b, 0x02, NARROW_NAMES, "f32", 0x8700004b},
    [KIND_MXF4] = {0x02, 0x02, "1 (e2m1)", "f32", 0x0701904b},
    [KIND_MXF4NVF4] = {0x02, 0x02, "1 (e2m1)", "f32", 0x0701904b},
};

/* M and N that do not exist; NULL if they do. */
static const char *shape_error(const tensor_product *p, bool scaled) {
    if (p->stationary) {
        if (p->m != 32 && p->m != 64 && p->m != 128) return "with .ws M is 32, 64 or 128";
        return p->n == 64 || p->n == 128 || p->n == 256 ? NULL : "with .ws N is 64, 128 or 256";
    }
    if (p->pair && p->m != 128 && p->m != 256) return "with .cta_group::2 M is 128 or 256";
    if (!p->pair && p->m != 64 && p->m != 128) return "with .cta_group::1 M is 64 or 128";
    if (!p->pair && p->m != 128 && scaled) return "with .block_scale and .cta_group::1 M is 128";
    /* CuTe allows 128 rows as few columns as 64, and its example 93 multiplies so. */
    const bool fine = !p->pair && !p->sparse && p->kind <= KIND_F8F6F4, bytes = p->kind == KIND_I8 && !p->pair;
    const uint32_t unit = p->m == 64 || fine || (bytes && p->n == 8) ? 8 : 16;
    if (p->n < unit || p->n > 256 || p->n % unit)
        return unit == 8 ? "N is a multiple of 8 up to 256" : "N is a multiple of 16 up to 256";
    return NULL;
}

/* Scales of another type than those of the kind, or that begin within a word where none do. */
static const char *scale_error(const tensor_product *p, uint32_t scales) {
    if (!p->ue8m0 && (p->kind != KIND_MXF4NVF4 || scales == 2))
        return "bit 23 is 0, for scales in ue4m3, which need .kind::mxf4nvf4 with four in a row";
    if (p->k == 96 || scales == 1 || !((p->a_id | p->b_id) & (scales == 4 ? 3 : 1))) return NULL;
    return scales == 4 ? "bits 4, 5, 29 and 30 are 0 for four scales in a row"
                       : "bits 4 and 29 are 0 for two scales in a row, which begin at byte 0 or 2 of a word";
}

bool emu_tensor_product_error(const tensor_job *job, const tensor_product *p, char *out, size_t bytes) {
    const unsigned detail = job->o->detail;
    const bool scaled = detail & TENSOR_SCALED;
    const uint32_t sparse = job->how >> 2 & 1;
    const uint32_t shifts = scaled || p->stationary ? 0 : 3u << 30; /* the field that .ws has */
    const uint32_t unused = job->how & (fields_of[p->kind].unused | shifts);
    const char *error = shape_error(p, scaled);
    if (!error && p->stationary && p->zero_columns >> 56) error = "a mask that shifts columns is not supported";
    if (!error && p->k == 192) error = "bit 31 asks for K = 96, which a sparse A does not have";
    if (!error && scaled) error = scale_error(p, job->o->vector);
    if (!error && sparse != p->sparse)
        error = sparse ? "bit 2 says that A is sparse, which needs tcgen05.mma.sp" : "bit 2 is 1 for tcgen05.mma.sp";
    if (error)
        snprintf(out, bytes, "%s", error);
    else if (unused)
        snprintf(out, bytes, "bits 0x%x must be 0 for this kind", unused);
    else if (!(fields_of[p->kind].operands >> p->a_format & 1) || !(fields_of[p->kind].operands >> p->b_format & 1))
        snprintf(out, bytes, "A has type %u and B type %u, and the types of this kind are %s", p->a_format, p->b_format,
                 fields_of[p->kind].operand_names);
    else if (!(fields_of[p->kind].sums >> p->d_format & 1))
        snprintf(out, bytes, "D has type %u, and the types of this kind are %s", p->d_format,
                 fields_of[p->kind].sum_names);
    else
        return false;
    return true;
}

/* ---- where matrices are ---- */

uint32_t emu_tensor_parts(const tensor_product *p) {
    if (p->stationary) return TENSOR_LANES / p->m;
    return p->pair && p->rows == 64 ? 2 : 1;
}

void emu_tensor_position(const tensor_product *p, uint32_t row, uint32_t n, uint32_t *lane, uint32_t *column) {
    const uint32_t parts = emu_tensor_parts(p), width = p->n / parts;
    *lane = row + n / width * p->rows;
    *column = n % width;
    if (p->rows == 64 && parts == 1) *lane = row / 16 * 32 + row % 16;
}

uint32_t emu_tensor_row_lane(const tensor_product *p, uint32_t row, uint32_t part) {
    return p->rows == 64 && !p->pair && !p->stationary ? row / 16 * 32 + row % 16 : row + part * p->rows;
}

/* Lanes by 16 that rows of D or of parts of A take. */
static uint8_t lanes_of_rows(const tensor_product *p, uint32_t address, uint32_t parts) {
    uint8_t lanes = 0;
    for (uint32_t row = 0; row < p->rows; row += 16)
        for (uint32_t part = 0; part < parts; part++)
            lanes |= (uint8_t)(1 << (emu_tensor_row_lane(p, row, part) + tensor_lane(address)) / 16 % 8);
    return lanes;
}

static uint32_t rounded_up(uint32_t value, uint32_t unit) {
    return (value + unit - 1) / unit;
}

/* Scales of a row of A or of a column of B: with K = 96 one for 16 or 32 numbers still. */
static uint32_t scales_of_row(const tensor_product *p, const tensor_job *job) {
    return p->k == 96 ? job->o->vector / 2 * 3 : job->o->vector;
}

/* Columns of tensor memory that a word of scales of each row takes where another word follows. */
static uint32_t scale_columns(const tensor_product *p, bool of_b) {
    return rounded_up(of_b ? p->n : p->rows, 128) * 4;
}

/* Columns of the scales of A or of B. */
static uint32_t columns_of_scales(const tensor_product *p, const tensor_job *job, bool of_b) {
    const uint32_t id = of_b ? p->b_id : p->a_id, columns = rounded_up(of_b ? p->n : p->rows, 32);
    const uint32_t words = p->k == 96 ? rounded_up(id + scales_of_row(p, job), 4) : 1;
    return (words - 1) * scale_columns(p, of_b) + columns;
}

/* Columns of the indices of a sparse A. */
static uint32_t index_columns(const tensor_product *p) {
    return p->element_bytes == 1 ? 2 : 1;
}

uint32_t emu_tensor_regions(const tensor_job *job, tensor_region out[MOST_TENSOR_REGIONS]) {
    uint32_t count = 0;
    if (job->o->kind == OP_TENSOR_COPY) {
        const uint32_t columns = job->o->vector <= COPY_4X256 ? 8 : 4;
        out[count++] = (tensor_region){.column = tensor_column(job->d),
                                       .columns = columns,
                                       .lanes = job->o->vector == COPY_4X256 ? 0x55 : 0xff,
                                       .writes = true,
                                       .name = "tcgen05.cp"};
        return count;
    }
    if (job->o->kind == OP_TENSOR_SHIFT) {
        out[count++] = (tensor_region){.column = tensor_column(job->d),
                                       .columns = 8,
                                       .lanes = (uint8_t)(3 << tensor_lane(job->d) / 32 % 4 * 2),
                                       .reads = true,
                                       .writes = true,
                                       .name = "tcgen05.shift"};
        return count;
    }
    const tensor_product p = emu_tensor_product(job);
    out[count++] = (tensor_region){.column = tensor_column(job->d),
                                   .columns = p.n / emu_tensor_parts(&p),
                                   .lanes = lanes_of_rows(&p, job->d, emu_tensor_parts(&p)),
                                   .reads = job->adds,
                                   .writes = true,
                                   .name = "D of tcgen05.mma"};
    if (job->o->detail & TENSOR_A_THERE)
        out[count++] = (tensor_region){.column = tensor_column(job->a_there),
                                       .columns = p.a_bytes / 4,
                                       .lanes = lanes_of_rows(&p, job->a_there, emu_tensor_parts(&p)),
                                       .reads = true,
                                       .name = "A of tcgen05.mma"};
    if (job->o->detail & TENSOR_SPARSE)
        out[count++] = (tensor_region){.column = tensor_column(job->indices) + p.index_id,
                                       .columns = index_columns(&p),
                                       .lanes = lanes_of_rows(&p, job->indices, 1),
                                       .reads = true,
                                       .name = "the indices of A of tcgen05.mma"};
    for (int i = 0; i < 2 && job->o->detail & TENSOR_SCALED; i++)
        out[count++] = (tensor_region){.column = tensor_column(job->scales[i]),
                                       .columns = columns_of_scales(&p, job, i),
                                       .lanes = (uint8_t)(3 << tensor_lane(job->scales[i]) / 32 % 4 * 2),
                                       .reads = true,
                                       .name = i ? "the scales of B of tcgen05.mma" : "the scales of A of tcgen05.mma"};
    return count;
}

/* ---- shared memory ---- */

tensor_layout emu_tensor_layout(uint64_t d, bool transposed, uint32_t element_bytes_) {
    /* by the swizzle: 0 none, 1 of 128 bytes by 32, 2 of 128, 4 of 64, 6 of 32 bytes */
    static const uint32_t rows[] = {16, 128, 128, 16, 64, 16, 32, 16}, masks[] = {0, 3, 7, 0, 3, 0, 1, 0};
    const unsigned mode = (unsigned)(d >> 61);
    return (tensor_layout){.start = (uint32_t)(d & 0x3fff) << 4,
                           .leading_is_next = d >> 52 & 1 && masks[mode],
                           .leading = (uint32_t)(d >> 16 & 0x3fff) << 4,
                           .stride = (uint32_t)(d >> 32 & 0x3fff) << 4,
                           .row = rows[mode],
                           .mask = masks[mode],
                           .base = (uint32_t)(d >> 49 & 7),
                           .atom = mode == 1 ? 32 : 16,
                           .element_bytes = element_bytes_,
                           .along_k = !transposed};
}

static uint32_t swizzled(const tensor_layout *l, uint32_t address) {
    if (!l->mask) return address;
    if (l->atom == 32) return address ^ (address >> 7 & l->mask) << 5;
    return address ^ (((address >> 7) - l->base) & l->mask) << 4;
}

uint32_t emu_tensor_chunk(const tensor_layout *l, uint32_t row, uint32_t chunk) {
    uint32_t at = l->start;
    if (l->along_k && l->leading_is_next) { /* past the end of a row of shared memory: from the next tile's rows on */
        const uint32_t in_row = l->start % l->row / TENSOR_CHUNK + chunk, chunks = l->row / TENSOR_CHUNK;
        at = in_row < chunks ? l->start + chunk * TENSOR_CHUNK : l->leading + (in_row - chunks) * TENSOR_CHUNK;
        at += row / 8 * l->stride + row % 8 * l->row;
    } else if (l->along_k) {
        at += row / 8 * l->stride + row % 8 * l->row + chunk * (l->mask ? TENSOR_CHUNK : l->leading);
    } else if (!l->mask) {
        at += chunk * l->stride + row / 8 * l->leading + row % 8 * TENSOR_CHUNK;
    } else {
        const uint32_t side_by_side = l->row / TENSOR_CHUNK, group = l->atom == 32 ? 4 : 8;
        at += chunk / side_by_side * l->leading + row / group * l->stride + row % group * l->row +
              chunk % side_by_side * TENSOR_CHUNK;
    }
    return swizzled(l, at);
}

const uint8_t *emu_tensor_chunk_bytes(const cta *at, uint32_t address) {
    static const uint8_t zeros[TENSOR_CHUNK];
    return inside_shared(at, address) ? at->shared + (address - at->shared_base) : zeros;
}

uint32_t emu_tensor_chunks(const tensor_job *job, bool of_a, uint32_t out[MOST_TENSOR_CHUNKS]) {
    static const uint32_t copied[] = {128, 4, 128, 64, 64, 32};
    uint32_t count = 0, rows, bytes;
    tensor_layout l;
    if (job->o->kind == OP_TENSOR_SHIFT) return 0;
    if (job->o->kind == OP_TENSOR_COPY) {
        if (!of_a) return 0;
        l = emu_tensor_layout(job->b, false, 1);
        rows = copied[job->o->vector], bytes = job->o->vector <= COPY_4X256 ? 32 : 16;
    } else {
        const tensor_product p = emu_tensor_product(job);
        if (of_a && job->o->detail & TENSOR_A_THERE) return 0;
        l = emu_tensor_layout(of_a ? job->a : job->b, of_a ? p.transpose_a : p.transpose_b, p.element_bytes);
        rows = of_a ? p.rows : p.columns_of_b, bytes = of_a ? p.a_bytes : p.b_bytes;
    }
    const uint32_t lines = l.along_k ? rows : bytes / l.element_bytes;
    const uint32_t chunks = (l.along_k ? bytes : rows * l.element_bytes) / TENSOR_CHUNK;
    for (uint32_t r = 0; r < lines; r++)
        for (uint32_t c = 0; c < chunks && count < MOST_TENSOR_CHUNKS; c++) out[count++] = emu_tensor_chunk(&l, r, c);
    return count;
}

uint32_t emu_tensor_chunk_bytes_used(const tensor_job *job, bool of_a) {
    enum { NUMBERS = 16 };
    if (job->o->kind == OP_TENSOR_COPY) return NUMBERS * job->o->bytes / 8;
    const tensor_product p = emu_tensor_product(job);
    const uint32_t format = of_a ? p.a_format : p.b_format;
    if ((p.kind != KIND_F8F6F4 && p.kind != KIND_MXF8F6F4) || format <= NARROW_E5M2) return TENSOR_CHUNK;
    return format == NARROW_E2M1 ? NUMBERS / 2 : NUMBERS * 6 / 8;
}

/* ---- operands as rows of bytes along k ---- */

typedef uint8_t operand_row[ROW_BYTES + TENSOR_CHUNK];

static void gather_shared(const cta *at, const tensor_layout *l, uint32_t rows, uint32_t bytes, operand_row *out) {
    if (l->along_k) {
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t c = 0; c < bytes / TENSOR_CHUNK; c++)
                memcpy(out[r] + TENSOR_CHUNK * c, emu_tensor_chunk_bytes(at, emu_tensor_chunk(l, r, c)), TENSOR_CHUNK);
        return;
    }
    const uint32_t size = l->element_bytes, each = TENSOR_CHUNK / size;
    for (uint32_t k = 0; k < bytes / size; k++) {
        for (uint32_t c = 0; c < rows / each; c++) {
            const uint8_t *from = emu_tensor_chunk_bytes(at, emu_tensor_chunk(l, k, c));
            for (uint32_t i = 0; i < each; i++) memcpy(out[c * each + i] + k * size, from + i * size, size);
        }
    }
}

/* True for a column of B that counts as zeros: PTX ISA, "Zero-Column Mask Descriptor". Each part of D that lies side by
 * side with the others has a mask of its own, which alternates from its first span on and is cut at its start. */
static bool is_zeroed(const tensor_product *p, uint32_t n) {
    const uint64_t mask = p->zero_columns;
    const uint32_t width = p->n / emu_tensor_parts(p), part = n / width;
    const uint32_t kept = (uint32_t)(mask >> 40 & 255) + 1, zeros = (uint32_t)(mask >> 48 & 255) + 1;
    const uint32_t at = (n % width + (uint32_t)(mask >> 8 * part & 255)) % (kept + zeros);
    if (!(mask >> 39 & 1)) return false;
    return mask >> (32 + part) & 1 ? at < zeros : at >= kept;
}

/* A for a part of D, which has its own rows in its own lanes. With .ashift a row is that of the lane before; the first
 * stays. */
static void gather_there(const cta *at, const tensor_product *p, const tensor_job *job, uint32_t part,
                         operand_row *out) {
    const bool shifts = job->o->detail & TENSOR_SHIFTED;
    for (uint32_t r = 0; r < p->rows; r++) {
        const uint32_t lane = emu_tensor_row_lane(p, shifts && r ? r - 1 : r, part) + tensor_lane(job->a_there);
        for (uint32_t c = 0; c < p->a_bytes / 4; c++)
            memcpy(out[r] + 4 * c, tensor_word(at->tensor, lane, tensor_column(job->a_there) + c), 4);
    }
}

/* Negate elements of whole bytes; smaller ones are negated when their values are read. */
static void negate(const tensor_product *p, uint32_t format, operand_row *rows, uint32_t count, uint32_t bytes) {
    const bool smaller = p->kind == KIND_MXF4 || p->kind == KIND_MXF4NVF4 || (p->element_bytes == 1 && format > 1);
    for (uint32_t r = 0; r < count && !smaller; r++)
        for (uint32_t i = p->element_bytes - 1; i < bytes; i += p->element_bytes) rows[r][i] ^= 0x80;
}

/* ---- numbers of 8, 6 and 4 bits ---- */

/* Number k of a row: 6 or 4 bits each are the first 12 or 8 of 16 bytes, or in tensor memory a byte each. */
static uint32_t number_of(uint32_t format, const uint8_t *row, uint32_t k, bool bytes) {
    if (format <= NARROW_E5M2) return row[k];
    if (bytes) return format == NARROW_E2M1 ? row[k] >> 2 & 15 : row[k] & 63;
    const uint8_t *chunk = row + k / 16 * 16;
    const uint32_t bits = format == NARROW_E2M1 ? 4 : 6, at = k % 16 * bits;
    return (chunk[at / 8] | (uint32_t)chunk[at / 8 + 1] << 8) >> at % 8 & ((1u << bits) - 1);
}

/* ---- sparse A ---- */

void emu_tensor_index_lanes(const tensor_product *p, uint32_t row, uint32_t lanes[2]) {
    lanes[0] = emu_tensor_row_lane(p, p->element_bytes == 1 ? row : row & ~8u, 0);
    lanes[1] = p->element_bytes == 1 ? lanes[0] : emu_tensor_row_lane(p, row | 8u, 0);
}

/* Take the indices of a row along k. For bytes they are in two columns of the row's lane. For f16 and tf32, one column
 * has the indices of rows r and r + 8 in its lower and upper halves: lane r for the first half of k and lane r + 8 for
 * the second, as in CuTe. */
static void take_indices(const cta *at, const tensor_product *p, const tensor_job *job, uint32_t row,
                         uint32_t words[2]) {
    const uint32_t first = tensor_lane(job->indices), column = tensor_column(job->indices) + p->index_id;
    uint32_t lanes[2];
    emu_tensor_index_lanes(p, row, lanes);
    for (uint32_t i = 0; i < 2; i++)
        words[i] = *tensor_word(at->tensor, first + lanes[i], column + (p->element_bytes == 1 ? i : 0));
    if (p->element_bytes == 1) return;
    const uint32_t shift = row & 8 ? 16 : 0;
    words[0] = (words[0] >> shift & 0xffff) | words[1] >> shift << 16;
}

/* Two bits for each kept element of a group of four, which say where; of tf32 four bits for one of two. mxf4 keeps
 * pairs. Other numbers of 4 and 6 bits get a byte each; bytes: they have one. */
static void expand_row(const tensor_product *p, const operand_row stored, bool bytes, const uint32_t *indices,
                       uint8_t *out) {
    const uint32_t size = p->element_bytes, kept = p->a_bytes / size;
    const bool smaller = (p->kind == KIND_F8F6F4 || p->kind == KIND_MXF8F6F4) && p->a_format > NARROW_E5M2;
    memset(out, 0, p->b_bytes);
    for (uint32_t i = 0; i < kept; i++) {
        uint32_t to;
        if (p->kind == KIND_TF32) {
            const uint32_t which = indices[i / 8] >> i % 8 * 4 & 15;
            to = 2 * i + (which == 0xe);
        } else {
            to = i / 2 * 4 + (indices[i / 16] >> i % 16 * 2 & 3);
        }
        if (smaller)
            out[to] = (uint8_t)(number_of(p->a_format, stored, i, bytes) << (p->a_format == NARROW_E2M1 ? 2 : 0));
        else
            memcpy(out + to * size, stored + i * size, size);
    }
}

static void expand(const cta *at, const tensor_product *p, const tensor_job *job, operand_row *rows) {
    for (uint32_t r = 0; r < p->rows; r++) {
        operand_row dense;
        uint32_t words[2];
        take_indices(at, p, job, r, words);
        expand_row(p, rows[r], job->o->detail & TENSOR_A_THERE, words, dense);
        memcpy(rows[r], dense, ROW_BYTES);
    }
}

/* ---- D ---- */

/* The addend of the products of an element of D. */
static uint32_t accumulator(const tensor_product *p, const tensor_job *job, uint32_t word) {
    if (!job->adds) return 0;
    if (p->d_format == 0) word = bits_of(half_value(word & 0xffff));
    return job->o->immediate ? bits_of(ldexpf(float_of(word), -(int)job->o->immediate)) : word;
}

static bool is_off(const tensor_job *job, uint32_t lane) {
    return job->o->detail & TENSOR_MASKED && job->lanes_off[lane / 32 % 8] >> lane % 32 & 1;
}

/* A block of 16 rows and eight columns, as the registers of an mma; and back. */
static void move_block(const cta *at, const tensor_product *p, const tensor_job *job, uint32_t first, uint32_t n,
                       uint32_t words[4][LANES], bool back) {
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t lane, column;
        emu_tensor_position(p, first + i, n, &lane, &column);
        if (back && is_off(job, lane)) continue;
        uint32_t *cells = tensor_word(at->tensor, lane + tensor_lane(job->d), column + tensor_column(job->d));
        for (uint32_t c = 0; c < 8; c++) {
            uint32_t *word = &words[2 * (i / 8) + c % 2][i % 8 * 4 + c / 2];
            if (!back)
                *word = accumulator(p, job, cells[c]);
            else
                cells[c] = *word;
        }
    }
}

/* Words of fragments: of 16 rows of A, and of eight columns of B. */
static void a_words(const operand_row *rows, uint32_t offset, uint32_t out[4][LANES]) {
    for (int i = 0; i < 4; i++)
        for (int g = 0; g < 8; g++) memcpy(&out[i][4 * g], rows[g + i % 2 * 8] + offset + i / 2 * 16, 16);
}
static void b_words(const operand_row *rows, uint32_t offset, uint32_t out[2][LANES]) {
    for (int i = 0; i < 2; i++)
        for (int g = 0; g < 8; g++) memcpy(&out[i][4 * g], rows[g] + offset + i * 16, 16);
}

/* ---- products of one CTA ---- */

typedef struct operands {
    const cta *at;
    const tensor_product *p;
    const tensor_job *job;
    uint32_t first, end; /* columns of D */
    _Alignas(16) operand_row a[MOST_ROWS], b[MOST_COLUMNS];
} operands;

/* Element (row, n) of D; NULL where its lane is left alone. */
static uint32_t *element_of(const operands *of, uint32_t row, uint32_t n) {
    uint32_t lane, column;
    emu_tensor_position(of->p, row, n, &lane, &column);
    if (is_off(of->job, lane)) return NULL;
    return tensor_word(of->at->tensor, lane + tensor_lane(of->job->d), column + tensor_column(of->job->d));
}

/* Values of a row of f16 or bf16, and their exponents. */
typedef struct half_row {
    double value[2 * STEP];
    int exponent[2 * STEP];
} half_row;

static void take_halves(const operand_row row, uint32_t count, bool bfloat, half_row *out) {
    for (uint32_t k = 0; k < count; k++) {
        uint16_t bits;
        memcpy(&bits, row + 2 * k, sizeof bits);
        out->value[k] = (double)(bfloat ? bfloat_value(bits) : half_value(bits));
        out->exponent[k] = emu_exponent(out->value[k], bfloat ? -126 : -14);
    }
}

/* D of f16: each sum of a step is rounded once, as mma.sync of a B200 rounds it. */
static void multiply_to_halves(const operands *of) {
    static _Thread_local half_row a[MOST_ROWS], b[MOST_COLUMNS];
    const tensor_product *p = of->p;
    for (uint32_t i = 0; i < p->rows; i++) take_halves(of->a[i], p->k, p->a_format, &a[i]);
    for (uint32_t n = of->first; n < of->end; n++) take_halves(of->b[n], p->k, p->b_format, &b[n]);
    for (uint32_t n = of->first; n < of->end; n++) {
        for (uint32_t i = 0; i < p->rows; i++) {
            uint32_t *element = element_of(of, i, n);
            if (!element) continue;
            float sum = float_of(accumulator(p, of->job, *element));
            for (uint32_t first = 0; first < p->k; first += STEP) {
                double terms[STEP + 1] = {(double)sum};
                int top = emu_exponent((double)sum, -126);
                for (uint32_t k = first; k < first + STEP; k++) {
                    const int exponent = a[i].exponent[k] + b[n].exponent[k];
                    terms[k - first + 1] = a[i].value[k] * b[n].value[k];
                    if (exponent > top) top = exponent;
                }
                sum = half_value(half_bits(emu_sum_terms_to_odd(terms, STEP + 1, top)));
            }
            *element = half_bits(sum);
        }
    }
}

/* The sum of products of bf16 that are below 2^LEAST_TOP, or cancel. */
static uint32_t tiny_sum(const operands *of, uint32_t row, uint32_t n) {
    half_row a, b;
    float sum = 0;
    take_halves(of->a[row], of->p->k, true, &a);
    take_halves(of->b[n], of->p->k, true, &b);
    for (uint32_t first = 0; first < of->p->k; first += STEP) {
        double terms[STEP + 1] = {(double)sum};
        int top = emu_exponent((double)sum, -126);
        for (uint32_t k = first; k < first + STEP; k++) {
            const int exponent = a.exponent[k] + b.exponent[k];
            terms[k - first + 1] = a.value[k] * b.value[k];
            if (exponent > top) top = exponent;
        }
        sum = emu_sum_terms(terms, STEP + 1, top < LEAST_TOP ? LEAST_TOP : top);
    }
    return bits_of(sum);
}

static bool is_empty(const operand_row row, uint32_t bytes) {
    static const operand_row zeros;
    return !memcmp(row, zeros, bytes);
}

/* The least exponent of the values of bf16 in some rows; zeros have none, so it is OF_INFINITY if all are zeros. */
static int least_exponent(const operand_row *rows, uint32_t count, uint32_t k) {
    int least = OF_INFINITY;
    for (uint32_t i = 0; i < count * k; i++) {
        uint16_t bits;
        memcpy(&bits, rows[i / k] + 2 * (i % k), sizeof bits);
        const int field = bits >> 7 & 0xff, exponent = (field ? field : 1) - 127;
        if (bits & 0x7fff && exponent < least) least = exponent;
    }
    return least;
}

/* Sums of bf16 that the unit of tiny terms may change: subnormal ones, or zeros, without an addend. There are none if
 * no term is below 2^LEAST_TOP. */
static void correct_tiny(const operands *of, uint32_t row, uint32_t n, uint32_t before[4][LANES],
                         uint32_t words[4][LANES]) {
    bool are_tiny = false;
    for (uint32_t i = 0; i < 4 * LANES; i++) are_tiny |= !(words[i / LANES][i % LANES] & 0x7f800000u);
    if (!are_tiny) return;
    for (uint32_t i = 0; i < 16; i++) {
        for (uint32_t c = 0; c < 8; c++) {
            const uint32_t at = 2 * (i / 8) + c % 2, lane = i % 8 * 4 + c / 2;
            if (before[at][lane] << 1 || words[at][lane] & 0x7f800000u) continue;
            if (is_empty(of->a[row + i], 2 * of->p->k) || is_empty(of->b[n + c], 2 * of->p->k)) continue;
            words[at][lane] = tiny_sum(of, row + i, n + c);
        }
    }
}

static void multiply_halves(const operands *of) {
    static _Thread_local mma_a wide_a[MOST_ROWS / 16][2];
    const tensor_product *p = of->p;
    const uint32_t steps = p->k / STEP;
    int least_a[MOST_ROWS / 16] = {0}, least_b[2] = {0};
    uint32_t words[8][LANES], before[8][LANES]; /* of two blocks of eight columns */
    uint32_t *d[8];
    for (int i = 0; i < 8; i++) d[i] = words[i];
    const uint32_t *const *const registers = (const uint32_t *const *)d;
    for (uint32_t i = 0; i < p->rows / 16; i++) {
        for (uint32_t s = 0; s < steps; s++) {
            a_words(of->a + 16 * i, 32 * s, words);
            emu_widen_a(&wide_a[i][s], registers, p->a_format);
        }
        if (p->a_format) least_a[i] = least_exponent(of->a + 16 * i, 16, p->k);
    }
    for (uint32_t n = of->first; n < of->end; n += 16) {
        const uint32_t blocks = n + 8 < of->end ? 2 : 1;
        mma_b wide_b[2][2]; /* [step][block] */
        for (uint32_t k = 0; k < blocks; k++) {
            for (uint32_t s = 0; s < steps; s++) {
                b_words(of->b + n + 8 * k, 32 * s, words);
                emu_widen_b(&wide_b[s][k], registers, p->b_format);
            }
            if (p->a_format) least_b[k] = least_exponent(of->b + n + 8 * k, 8, p->k);
        }
        for (uint32_t i = 0; i < p->rows / 16; i++) {
            for (uint32_t k = 0; k < blocks; k++)
                move_block(of->at, p, of->job, 16 * i, n + 8 * k, words + 4 * k, false);
            memcpy(before, words, 4 * blocks * sizeof *before);
            for (uint32_t s = 0; s < steps; s++) emu_add_products(d, registers, &wide_a[i][s], wide_b[s], blocks);
            for (uint32_t k = 0; k < blocks; k++) {
                if (least_a[i] + least_b[k] < LEAST_TOP)
                    correct_tiny(of, 16 * i, n + 8 * k, before + 4 * k, words + 4 * k);
                move_block(of->at, p, of->job, 16 * i, n + 8 * k, words + 4 * k, true);
            }
        }
    }
}

static int16_t integer_at(const operand_row row, uint32_t k, bool is_signed) {
    return is_signed ? (int8_t)row[k] : row[k];
}

static void multiply_integers(const operands *of) {
    static _Thread_local int16_t a[MOST_ROWS][MOST_K], b[MOST_COLUMNS][MOST_K];
    const tensor_product *p = of->p;
    const bool limits = bits_at(of->job->how, 3, 1);
    for (uint32_t k = 0; k < p->k; k++) {
        for (uint32_t i = 0; i < p->rows; i++) a[i][k] = integer_at(of->a[i], k, p->a_format);
        for (uint32_t n = of->first; n < of->end; n++) b[n][k] = integer_at(of->b[n], k, p->b_format);
    }
    for (uint32_t n = of->first; n < of->end; n++) {
        for (uint32_t i = 0; i < p->rows; i++) {
            uint32_t *element = element_of(of, i, n);
            if (!element) continue;
            int32_t products = 0;
            for (uint32_t k = 0; k < p->k; k++) products += a[i][k] * b[n][k];
            int64_t sum = (int64_t)(of->job->adds ? (int32_t)*element : 0) + products;
            if (limits) sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
            *element = (uint32_t)sum;
        }
    }
}

/* ---- numbers that are an f32 each ---- */

/* The values of the numbers of a row, or of the f32 of tf32, from element `first` on. */
typedef struct number_table {
    float value[256];
    int16_t exponent[256];
} number_table;

static void fill_table(number_table *t, uint32_t format, bool negative) {
    for (uint32_t i = 0; i < 256; i++) {
        const float value = emu_narrow_value(format, i);
        t->value[i] = negative ? -value : value;
        t->exponent[i] = (int16_t)emu_exponent((double)value, emu_narrow_least(format));
    }
}

static void take_numbers(const number_table *t, uint32_t format, const uint8_t *row, uint32_t first, bool bytes,
                         narrow_values *out) {
    for (uint32_t k = 0; k < NARROW_TERMS; k++) {
        const uint32_t number = number_of(format, row, first + k, bytes);
        out->value[k] = t->value[number];
        out->exponent[k] = t->exponent[number];
    }
}

/* Eight of them. */
static void take_words(const uint8_t *row, uint32_t first, narrow_values *out) {
    enum { WORDS = 8 };
    for (uint32_t k = 0; k < NARROW_TERMS; k++) out->value[k] = 0, out->exponent[k] = OF_ZERO;
    for (uint32_t k = 0; k < WORDS; k++) {
        uint32_t word;
        memcpy(&word, row + 4 * (first + k), sizeof word);
        out->value[k] = float_of(word & 0xffffe000u); /* the lower 13 bits are not looked at */
        out->exponent[k] = (int16_t)emu_exponent((double)out->value[k], -126);
    }
}

/* A scale of a row of A or of a column of B: those of 32 rows are in words of 32 lanes, those of the next 32 in the
 * next column. With K = 96 the scales go on in the next word of a row, after those of all rows, in steps of 128 rows as
 * CUTLASS has them. */
static float scale_of(const operands *of, bool of_b, uint32_t row, uint32_t which) {
    const uint32_t address = of->job->scales[of_b], id = of_b ? of->p->b_id : of->p->a_id;
    const uint32_t byte = of->p->k == 96 ? id + which : ((of->job->o->vector == 4 ? 0 : id) + which) % 4;
    const uint32_t column = row / 32 + byte / 4 * scale_columns(of->p, of_b);
    const uint32_t word =
        *tensor_word(of->at->tensor, tensor_lane(address) + row % 32, tensor_column(address) + column);
    return emu_narrow_scale(word >> byte % 4 * 8 & 255, of->p->ue8m0);
}

/* tf32, and numbers of 8, 6 and 4 bits with or without a scale of each row: one sum for every 8 or 32 along k. */
static void multiply_values(const operands *of) {
    static _Thread_local narrow_values a[MOST_ROWS], b[MOST_COLUMNS];
    const tensor_product *p = of->p;
    const bool words = p->kind == KIND_TF32, scaled = of->job->o->detail & TENSOR_SCALED;
    const bool of_bytes = of->job->o->detail & (TENSOR_A_THERE | TENSOR_SPARSE);
    number_table tables[2];
    float scales[MOST_ROWS];
    fill_table(&tables[0], p->a_format, p->negate_a && p->a_format > NARROW_E5M2);
    fill_table(&tables[1], p->b_format, p->negate_b && p->b_format > NARROW_E5M2);
    for (uint32_t i = 0; i < p->rows; i++) scales[i] = scaled ? scale_of(of, false, i, 0) : 1;
    for (uint32_t first = 0; first < p->k; first += words ? 8 : NARROW_TERMS) {
        for (uint32_t i = 0; i < p->rows; i++)
            words ? take_words(of->a[i], first, &a[i])
                  : take_numbers(&tables[0], p->a_format, of->a[i], first, of_bytes, &a[i]);
        for (uint32_t n = of->first; n < of->end; n++)
            words ? take_words(of->b[n], first, &b[n])
                  : take_numbers(&tables[1], p->b_format, of->b[n], first, false, &b[n]);
        for (uint32_t n = of->first; n < of->end; n++) {
            const float scale = scaled ? scale_of(of, true, n, 0) : 1;
            for (uint32_t i = 0; i < p->rows; i++) {
                uint32_t *element = element_of(of, i, n);
                if (!element) continue;
                const double both = (double)scale * (double)scales[i];
                const int exponent = both == 1 ? 0 : emu_exponent(both, -254);
                const float start =
                    float_of(first ? (p->d_format == 0 ? bits_of(half_value(*element & 0xffff)) : *element)
                                   : accumulator(p, of->job, *element));
                const float sum =
                    emu_narrow_sum(&a[i], &b[n], both, exponent, start, words ? LEAST_TOP : OF_ZERO, p->d_format == 0);
                *element = p->d_format == 0 ? half_bits(sum) : canonical(sum);
            }
        }
    }
}

/* ---- numbers of 4 bits with scales within a row ---- */

/* Twice the values of a row. */
static void take_fours(const uint8_t *row, uint32_t count, bool negative, int8_t *out) {
    for (uint32_t k = 0; k < count; k++) {
        const int8_t value = emu_narrow_twice[row[k / 2] >> k % 2 * 4 & 15];
        out[k] = negative ? (int8_t)-value : value;
    }
}

static void multiply_fours(const operands *of) {
    static _Thread_local int8_t a[MOST_ROWS][MOST_K], b[MOST_COLUMNS][MOST_K];
    static _Thread_local float a_scales[MOST_ROWS][MOST_SCALES], b_scales[MOST_COLUMNS][MOST_SCALES];
    const tensor_product *p = of->p;
    const uint32_t scales = scales_of_row(p, of->job), groups = p->k / NARROW_GROUP, in_scale = groups / scales;
    for (uint32_t i = 0; i < p->rows; i++) {
        take_fours(of->a[i], p->k, p->negate_a, a[i]);
        for (uint32_t s = 0; s < scales; s++) a_scales[i][s] = scale_of(of, false, i, s);
    }
    for (uint32_t n = of->first; n < of->end; n++) {
        take_fours(of->b[n], p->k, p->negate_b, b[n]);
        for (uint32_t s = 0; s < scales; s++) b_scales[n][s] = scale_of(of, true, n, s);
    }
    for (uint32_t n = of->first; n < of->end; n++) {
        for (uint32_t i = 0; i < p->rows; i++) {
            uint32_t *element = element_of(of, i, n);
            int32_t sums[NARROW_GROUPS] = {0};
            if (!element) continue;
            for (uint32_t g = 0; g < groups; g++)
                for (uint32_t k = g * NARROW_GROUP; k < (g + 1) * NARROW_GROUP; k++) sums[g] += a[i][k] * b[n][k];
            const float start = float_of(accumulator(p, of->job, *element));
            *element =
                canonical(emu_narrow_sum_groups(sums, a_scales[i], b_scales[n], groups, in_scale, p->ue8m0, start));
        }
    }
}

static void multiply(const operands *of) {
    const tensor_product *p = of->p;
    if (p->kind == KIND_F16 && p->d_format == 0)
        multiply_to_halves(of);
    else if (p->kind == KIND_F16)
        multiply_halves(of);
    else if (p->kind == KIND_I8)
        multiply_integers(of);
    else if (p->kind == KIND_MXF4 || p->kind == KIND_MXF4NVF4)
        multiply_fours(of);
    else
        multiply_values(of);
}

void emu_tensor_multiply(cta *m, const tensor_job *job) {
    static _Thread_local operands of;
    const tensor_product p = emu_tensor_product(job);
    const bool there = job->o->detail & TENSOR_A_THERE;
    const tensor_layout a = emu_tensor_layout(job->a, p.transpose_a, p.element_bytes);
    const tensor_layout b = emu_tensor_layout(job->b, p.transpose_b, p.element_bytes);
    of.p = &p;
    of.job = job;
    for (uint32_t which = 0; which <= (uint32_t)p.pair; which++)
        gather_shared(cta_of_job(m, job, which), &b, p.columns_of_b, p.b_bytes, of.b + which * p.columns_of_b);
    for (uint32_t n = 0; n < p.n; n++)
        if (is_zeroed(&p, n)) memset(of.b[n], 0, sizeof of.b[n]);
    if (p.negate_b) negate(&p, p.b_format, of.b, p.n, p.b_bytes);
    for (uint32_t which = 0; which <= (uint32_t)p.pair; which++) {
        of.at = cta_of_job(m, job, which);
        const uint32_t parts = there ? emu_tensor_parts(&p) : 1;
        for (uint32_t part = 0; part < parts; part++) {
            of.first = part * (p.n / parts), of.end = of.first + p.n / parts;
            if (there)
                gather_there(of.at, &p, job, part, of.a);
            else
                gather_shared(of.at, &a, p.rows, p.a_bytes, of.a);
            if (p.negate_a) negate(&p, p.a_format, of.a, p.rows, p.a_bytes);
            if (job->o->detail & TENSOR_SPARSE) expand(of.at, &p, job, of.a);
            multiply(&of);
        }
    }
}
