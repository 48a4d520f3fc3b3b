/* decode_matrix.c - from statements to ops: mma of all types but the two that mma.c has, and wmma. */
#include "builder.h"
#include "decode_rules.h"

#include <stdlib.h>

/* "m16n8k16" */
static matrix_shape find_shape(const form_match *match) {
    matrix_shape shape = {0};
    for (int i = 0; i < match->chosen_count; i++) {
        const char *each = match->chosen[i];
        if (!each || *each != 'm' || each[1] < '0' || each[1] > '9') continue;
        char *end;
        shape.m = (uint16_t)strtoul(each + 1, &end, 10);
        shape.n = (uint16_t)strtoul(end + 1, &end, 10);
        shape.k = (uint16_t)strtoul(end + 1, &end, 10);
    }
    return shape;
}

enum matrix_numbers emu_numbers_of(const type_info *type) {
    static const struct {
        const char *name;
        enum matrix_numbers numbers;
    } known[] = {{"f16", MATRIX_F16},  {"bf16", MATRIX_BF16}, {"tf32", MATRIX_TF32}, {"f32", MATRIX_F32},
                 {"f64", MATRIX_F64},  {"s32", MATRIX_S32},   {"s8", MATRIX_S8},     {"u8", MATRIX_U8},
                 {"s4", MATRIX_S4},    {"u4", MATRIX_U4},     {"b1", MATRIX_B1},     {"e4m3", MATRIX_E4M3},
                 {"e5m2", MATRIX_E5M2}};
    size_t i = 0;
    while (strcmp(known[i].name, type->name)) i++; /* the rows of matrices have no others */
    return known[i].numbers;
}

static bool is_wmma(const decoder *dec) {
    return !strcmp(dec->in->opcode->pieces[0], "wmma");
}

/* Registers of a fragment in a lane. */
static int fragment_registers(const decoder *dec, matrix_part part, matrix_shape shape, const type_info *type) {
    int elements = part == MATRIX_A ? shape.m * shape.k : part == MATRIX_B ? shape.k * shape.n : shape.m * shape.n;
    int registers = elements * type->bits / LANES / (type->bits == 64 ? 64 : 32);
    /* those of wmma's f16 factors hold every element more than once */
    return is_wmma(dec) && type->family == 'h' && part < MATRIX_C ? 8 : registers;
}

static const type_info *register_type(const type_info *type) {
    return emu_find_type(type->family == 'f' ? type->name : "b32");
}

static void take_sources(decoder *dec, int index, const type_info *type, int count, uint16_t *out) {
    const operand *from = emu_elements(dec, operand_at(dec, index), count);
    for (int i = 0; i < count; i++) out[i] = emu_source_of_type(dec, &from[i], register_type(type), EXACT);
}

static void take_dests(decoder *dec, int index, const type_info *type, int count, uint16_t *out) {
    const operand *to = emu_elements(dec, operand_at(dec, index), count);
    for (int i = 0; i < count; i++) out[i] = emu_dest(dec, &to[i], register_type(type)->bits);
}

static void describe(op *o, const form_match *match) {
    o->target = matrix_pack_shape(find_shape(match));
    if (emu_chose(match, "satfinite")) o->flags |= FLAG_SIGNED;
}

/* D = A * B + C. The registers of A and B are those of an op of its own, right before. */
void emu_decode_matrix(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 4, 4);
    const type_info *f16 = emu_find_type("f16");
    bool short_form = match->type_count == 2; /* wmma of f16 states the types of D and C alone */
    const type_info *d = match->types[0], *a = short_form ? f16 : match->types[1],
                    *b = short_form ? f16 : match->types[2], *c = match->types[match->type_count - 1];
    if ((a->bits == 8 || a->bits == 4) && a != b && is_wmma(dec)) emu_refuse(dec, "both factors are of one type");
    const matrix_shape shape = find_shape(match);
    const type_info *types[4] = {a, b, c, d};
    int counts[4];
    uint16_t regs[4][MAX_OPERANDS];
    for (int part = MATRIX_A; part <= MATRIX_D; part++)
        counts[part] = fragment_registers(dec, (matrix_part)part, shape, types[part]);
    for (int part = MATRIX_A; part <= MATRIX_C; part++)
        take_sources(dec, part + 1, types[part], counts[part], regs[part]);
    take_dests(dec, 0, d, counts[MATRIX_D], regs[MATRIX_D]);
    bool first = dec->first;
    op *o = emu_emit(dec, OP_FACTORS);
    o->flags &= (uint16_t)~FLAG_FIRST;
    for (int part = MATRIX_A; part <= MATRIX_B; part++)
        for (int i = 0; i < counts[part]; i++) add_source(o, regs[part][i]);
    dec->first = first;
    o = emu_emit(dec, match->kind);
    describe(o, match);
    o->detail = (uint8_t)(emu_numbers_of(a) | emu_numbers_of(b) << 4);
    o->bytes = (uint8_t)(emu_numbers_of(c) | emu_numbers_of(d) << 4);
    o->vector = (uint8_t)counts[MATRIX_A];
    if (emu_chose(match, "and")) o->flags |= FLAG_TRANSPOSE; /* of b1: else xor */
    for (int i = 0; i < counts[MATRIX_D]; i++) add_dest(o, regs[MATRIX_D][i]);
    for (int i = 0; i < counts[MATRIX_C]; i++) add_source(o, regs[MATRIX_C][i]);
}

/* Memory operands of loads and stores of wmma. */
static void decode_access(decoder *dec, const form_match *match, int address) {
    emu_expect_operands(dec, 2, 3);
    matrix_part part = emu_chose(match, "a")   ? MATRIX_A
                       : emu_chose(match, "b") ? MATRIX_B
                       : emu_chose(match, "c") ? MATRIX_C
                                               : MATRIX_D;
    const type_info *type = match->types[0];
    const matrix_shape shape = find_shape(match);
    bool load = match->kind == OP_WMMA_LOAD, columns = emu_chose(match, "col");
    int rows = part == MATRIX_B ? shape.k : shape.m, width = part == MATRIX_A ? shape.k : shape.n;
    int count = fragment_registers(dec, part, shape, type);
    uint16_t regs[MAX_OPERANDS], stride;
    if (load)
        take_dests(dec, 0, type, count, regs);
    else
        take_sources(dec, 1, type, count, regs);
    stride = dec->in->operand_count == 3 ? emu_source(dec, operand_at(dec, 2), 32, EXACT)
                                         : emu_constant_register(dec, (uint64_t)(columns ? rows : width), 32);
    op *o = emu_emit(dec, match->kind);
    describe(o, match);
    o->detail = (uint8_t)emu_numbers_of(type);
    o->vector = (uint8_t)part;
    o->bytes = (uint8_t)(type->bits < 8 ? 1 : type->bits / 8);
    if (columns) o->flags |= FLAG_TRANSPOSE;
    for (int i = 0; i < count && load; i++) add_dest(o, regs[i]);
    emu_add_address(dec, o, operand_at(dec, address), match->space);
    add_source(o, stride);
    for (int i = 0; i < count && !load; i++) add_source(o, regs[i]);
}

void emu_decode_wmma_load(decoder *dec, const form_match *match) {
    decode_access(dec, match, 1);
}

void emu_decode_wmma_store(decoder *dec, const form_match *match) {
    decode_access(dec, match, 0);
}
