/* decode_values.c - from statements to ops: arithmetic, comparisons, moves and conversions of values in registers. */
#include "builder.h"
#include "decode_rules.h"
#include "forms.h"

/* An op of one lane function. b: -1 where there is one source only. */
static void emit_lanes(decoder *dec, lane_function *lanes, uint16_t to, uint16_t a, int b) {
    op *o = emu_emit(dec, OP_LANES);
    o->run.lanes = lanes;
    add_dest(o, to);
    add_source(o, a);
    if (b >= 0) add_source(o, (uint16_t)b);
}

static enum rounding rounding_of(const form_match *match) {
    if (emu_chose(match, "rz")) return ROUND_ZERO;
    if (emu_chose(match, "rm")) return ROUND_DOWN;
    return emu_chose(match, "rp") ? ROUND_UP : ROUND_NEAREST;
}

/* ---- arithmetic ---- */

static uint16_t lop3_table(decoder *dec, const operand *from) {
    if (from->kind != OPERAND_INTEGER || from->value < 0 || from->value > 255) {
        emu_refuse(dec, "the table of lop3 is a number from 0 to 255");
    }
    return emu_constant_register(dec, (uint64_t)from->value, 32);
}

/* Separate steps for modifiers of the sources or the result of a type. Functions of the packed types also serve the
 * single ones: the upper half of their registers is 0. */
typedef struct steps {
    const char *families; /* of type_info; f: 32 bits */
    lane_function *flush, *magnitude, *sign, *saturate, *positive;
} steps;

static const steps *steps_of(const type_info *type) {
    static const steps all[] = {
        {"f", emu_lanes_flush_f32, emu_lanes_abs_f32, emu_lanes_xorsign_f32, emu_lanes_saturate_f32, NULL},
        {"hH", emu_lanes_flush_f16x2, emu_lanes_abs_f16x2, emu_lanes_xorsign_16x2, emu_lanes_saturate_f16x2,
         emu_lanes_positive_f16x2},
        {"gG", NULL, emu_lanes_abs_bf16x2, emu_lanes_xorsign_16x2, NULL, emu_lanes_positive_bf16x2},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strchr(all[i].families, type->family) && type->bits <= 32) return &all[i];
    }
    return NULL;
}

/* A source after a step, in a register of its own. */
static uint16_t after_step(decoder *dec, lane_function *step, uint16_t from, int bits) {
    uint16_t result = emu_scratch_register(dec, bits);
    emit_lanes(dec, step, result, from, -1);
    return result;
}

static int lane_sources(decoder *dec, const form_match *match, uint16_t *sources) {
    const type_info *type = match->types[0];
    int count = match->operand_count;
    emu_expect_operands(dec, count, count);
    for (int i = 1; i < count; i++) {
        int wanted = match->operand_bits[i];
        const operand *from = operand_at(dec, i);
        if (!wanted)
            sources[i - 1] = lop3_table(dec, from);
        else
            sources[i - 1] = wanted == type->bits ? emu_source_of_type(dec, from, type, EXACT)
                                                  : emu_source(dec, from, wanted, EXACT);
    }
    return count - 1;
}

static void emit_function(decoder *dec, const form_match *match, uint16_t to, const uint16_t *sources, int count) {
    enum rounding rounding = rounding_of(match);
    op *o = emu_emit(dec, rounding ? OP_ROUNDED : count == 4 ? OP_LANES_4 : OP_LANES);
    o->run.lanes = dec->lanes;
    o->detail = (uint8_t)rounding;
    add_dest(o, to);
    for (int i = 0; i < count; i++) add_source(o, sources[i]);
}

/* A form with modifiers that its lane function does not know: they are steps before and after it. */
static void emit_with_steps(decoder *dec, const form_match *match, uint16_t to, uint16_t *sources, int count) {
    const steps *known = steps_of(match->types[0]);
    int bits = match->types[0]->bits;
    bool flushes = match->flushes && known && known->flush, signs = emu_chose(match, "xorsign");
    uint16_t plain[4], result = emu_scratch_register(dec, bits);
    for (int i = 0; i < count; i++) {
        if (flushes) sources[i] = after_step(dec, known->flush, sources[i], bits);
        plain[i] = sources[i];
        if (signs) sources[i] = after_step(dec, known->magnitude, sources[i], bits);
    }
    emit_function(dec, match, result, sources, count);
    if (flushes) result = after_step(dec, known->flush, result, bits);
    if (emu_chose(match, "sat")) result = after_step(dec, known->saturate, result, bits);
    if (emu_chose(match, "relu")) result = after_step(dec, known->positive, result, bits);
    lane_function *last = signs ? known->sign : emu_chose(match, "oob") ? emu_lanes_in_bounds_16x2 : NULL;
    if (last) {
        uint16_t combined = emu_scratch_register(dec, bits);
        emit_lanes(dec, last, combined, plain[0], plain[1]);
        add_source(&dec->code->ops[dec->code->op_count - 1], result);
        result = combined;
    }
    emit_lanes(dec, bits == 64 ? emu_lanes_mov_64 : emu_lanes_mov_32, to, result, -1);
}

/* min and max of three: those of two, and of the result and the third. */
static bool decode_three(decoder *dec, const form_match *match) {
    if (match->operand_count != 3 || dec->in->operand_count != 4 || strcmp(match->types[0]->name, "f32") != 0 ||
        emu_chose(match, "xorsign") || strncmp(dec->in->opcode->pieces[0], "m", 1) != 0)
        return false;
    emu_expect_target(dec->load, "a min or max of three", dec->in->line);
    uint16_t sources[3], first = emu_scratch_register(dec, 32), result = emu_scratch_register(dec, 32);
    for (int i = 0; i < 3; i++) {
        sources[i] = emu_source_of_type(dec, operand_at(dec, i + 1), match->types[0], EXACT);
        if (match->flushes) sources[i] = after_step(dec, emu_lanes_flush_f32, sources[i], 32);
        if (emu_chose(match, "abs")) sources[i] = after_step(dec, emu_lanes_abs_f32, sources[i], 32);
    }
    emit_function(dec, match, first, sources, 2);
    sources[0] = first, sources[1] = sources[2];
    emit_function(dec, match, result, sources, 2);
    emit_lanes(dec, emu_lanes_mov_32, emu_dest(dec, operand_at(dec, 0), 32), result, -1);
    return true;
}

void emu_decode_lanes(decoder *dec, const form_match *match) {
    if (match->types[0]->family == 'F') dec->code->uses_f32x2 = true;
    if (decode_three(dec, match)) return;
    if (emu_chose(match, "abs") && !emu_chose(match, "xorsign"))
        emu_refuse(dec, ".abs requires .xorsign or three sources");
    uint16_t sources[4] = {0};
    int count = lane_sources(dec, match, sources);
    uint16_t to = emu_dest(dec, operand_at(dec, 0), match->operand_bits[0]);
    bool is_float = strchr("fhgHG", match->types[0]->family) != NULL;
    if (is_float && (match->flushes || emu_chose(match, "xorsign") || emu_chose(match, "relu") ||
                     emu_chose(match, "oob") || (emu_chose(match, "sat") && match->types[0]->family != 'f'))) {
        emit_with_steps(dec, match, to, sources, count);
        return;
    }
    emit_function(dec, match, to, sources, count);
    if (is_float && emu_chose(match, "sat")) emit_lanes(dec, emu_lanes_saturate_f32, to, to, -1);
}

/* add.cc, addc, sub.cc, subc, mad.cc, madc: the carry of each lane is a predicate without a name. */
void emu_decode_carry(decoder *dec, const form_match *match) {
    const char *name = dec->in->opcode->pieces[0];
    const type_info *type = match->types[0];
    int count = *name == 'm' ? 4 : 3;
    bool reads = name[3] == 'c', saturates = emu_chose(match, "sat");
    uint16_t sources[3] = {0};
    emu_expect_operands(dec, count, count);
    for (int i = 1; i < count; i++) sources[i - 1] = emu_source_of_type(dec, operand_at(dec, i), type, EXACT);
    uint16_t to = emu_dest(dec, operand_at(dec, 0), type->bits), carry = emu_carry_predicate(dec);
    op *o = emu_emit(dec, match->kind);
    o->detail = *name == 'a'             ? CARRY_ADD
                : *name == 's'           ? CARRY_SUB
                : emu_chose(match, "lo") ? CARRY_MAD_LO
                                         : CARRY_MAD_HI;
    o->bytes = (uint8_t)(type->bits / 8);
    o->immediate = saturates;
    if (type->family == 's') o->flags |= FLAG_SIGNED;
    if (emu_chose(match, "cc")) o->p[0] = carry;
    if (reads) o->p[2] = carry;
    add_dest(o, to);
    for (int i = 1; i < count; i++) add_source(o, sources[i - 1]);
}

/* lop3.or d|p: p says whether the result has a bit, combined with a predicate. */
void emu_decode_lop3(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 6, 6);
    const operand *to = operand_at(dec, 0);
    uint16_t sources[4];
    for (int i = 0; i < 3; i++) sources[i] = emu_source(dec, operand_at(dec, i + 1), 32, EXACT);
    sources[3] = lop3_table(dec, operand_at(dec, 4));
    uint16_t with = emu_predicate_source(dec, operand_at(dec, 5)), result = emu_scratch_register(dec, 32), zero, target;
    zero = emu_constant_register(dec, 0, 32);
    target = emu_dest(dec, to, 32);
    op *o = emu_emit(dec, OP_LANES_4);
    o->run.lanes = emu_lanes_lop3;
    add_dest(o, result);
    for (int i = 0; i < 4; i++) add_source(o, sources[i]);
    uint8_t wanted;
    compare_function *compare = emu_find_compare("ne", emu_find_type("b32"), false, &wanted);
    o = emu_emit(dec, OP_COMPARE);
    o->run.compare = compare;
    o->immediate = wanted;
    o->p[0] = emu_optional_predicate(dec, to->second);
    o->p[2] = with;
    o->detail = emu_chose(match, "and") ? COMBINE_AND : COMBINE_OR;
    add_source(o, result);
    add_source(o, zero);
    emit_lanes(dec, emu_lanes_mov_32, target, result, -1);
}

/* ---- comparisons ---- */

/* A comparison with what its results are combined with. */
typedef struct comparison {
    compare_function *compare;
    uint8_t wanted, combine;
    uint16_t with; /* predicate, or NO_PREDICATE */
} comparison;

static comparison find_comparison(decoder *dec, const form_match *match, const type_info *type, int with_operand) {
    static const char *const combines[] = {"", "and", "or", "xor"}; /* by compare_combine */
    comparison found = {.with = NO_PREDICATE};
    bool ftz = emu_chose(match, "ftz");
    found.compare = emu_find_compare(match->chosen[0], type, ftz, &found.wanted);
    if (!found.compare) {
        emu_refuse(dec, "comparison .%s%s does not exist for .%s", match->chosen[0], ftz ? ".ftz" : "", type->name);
    }
    for (int i = COMBINE_AND; i <= COMBINE_XOR; i++) {
        if (emu_chose(match, combines[i])) found.combine = (uint8_t)i;
    }
    int wanted = with_operand + (found.combine ? 1 : 0);
    emu_expect_operands(dec, wanted, wanted);
    return found;
}

/* The third predicate of a comparison; what it takes to read it is emitted ahead of the comparison. */
static void read_third(decoder *dec, comparison *how, int operand) {
    if (how->combine) how->with = emu_predicate_source(dec, operand_at(dec, operand));
}

static void emit_compare(decoder *dec, const comparison *how, uint16_t p, uint16_t q, uint16_t a, uint16_t b) {
    op *o = emu_emit(dec, OP_COMPARE);
    o->run.compare = how->compare;
    o->immediate = how->wanted;
    o->p[0] = p;
    o->p[1] = q;
    o->p[2] = how->with;
    o->detail = how->combine;
    add_source(o, a);
    add_source(o, b);
}

static bool is_packed(const type_info *type) {
    return type->family == 'H' || type->family == 'G';
}

void emu_decode_compare(decoder *dec, const form_match *match) {
    const type_info *type = match->types[0];
    comparison how = find_comparison(dec, match, type, 3);
    const operand *to = operand_at(dec, 0);
    uint16_t a = emu_source_of_type(dec, operand_at(dec, 1), type, EXACT);
    uint16_t b = emu_source_of_type(dec, operand_at(dec, 2), type, EXACT);
    uint16_t p = emu_predicate(dec, to), q = emu_optional_predicate(dec, to->second);
    if (q != NO_PREDICATE && (type->family == 'h' || type->family == 'g'))
        emu_refuse(dec, "a comparison of .%s has one predicate only", type->name);
    read_third(dec, &how, 3);
    if (!is_packed(type)) {
        emit_compare(dec, &how, p, q, a, b);
        return;
    }
    uint16_t high_a = after_step(dec, emu_lanes_high_16, a, 32), high_b = after_step(dec, emu_lanes_high_16, b, 32);
    uint16_t low = q != NO_PREDICATE && p == how.with ? emu_scratch_predicate(dec) : p;
    emit_compare(dec, &how, low, NO_PREDICATE, a, b);
    if (q == NO_PREDICATE) return;
    emit_compare(dec, &how, q, NO_PREDICATE, high_a, high_b);
    if (low == p) return;
    op *o = emu_emit(dec, OP_PREDICATE);
    o->p[0] = p;
    o->p[1] = low;
}

static void emit_select(decoder *dec, int bits, uint16_t to, uint16_t p, uint16_t a, uint16_t b) {
    op *o = emu_emit(dec, OP_SELECT);
    o->bytes = bits == 64 ? 8 : 4;
    o->p[2] = p;
    add_dest(o, to);
    add_source(o, a);
    add_source(o, b);
}

/* Result of set if the comparison holds. */
static uint64_t set_value(const type_info *to) {
    switch (to->family) {
    case 'f':
        return 0x3f800000u;
    case 'h':
    case 'H':
        return 0x3c00u;
    case 'g':
    case 'G':
        return 0x3f80u;
    default:
        return to->bits == 16 ? 0xffffu : 0xffffffffu;
    }
}

void emu_decode_set(decoder *dec, const form_match *match) {
    const type_info *to = match->types[0], *type = match->types[1];
    comparison how = find_comparison(dec, match, type, 3);
    bool packed = is_packed(type);
    uint16_t a = emu_source_of_type(dec, operand_at(dec, 1), type, EXACT);
    uint16_t b = emu_source_of_type(dec, operand_at(dec, 2), type, EXACT);
    uint16_t target = emu_dest(dec, operand_at(dec, 0), to->bits);
    uint64_t value = packed && !is_packed(to) ? 0xffffu : set_value(to);
    uint16_t holds = emu_constant_register(dec, value, packed ? 32 : to->bits);
    uint16_t zero = emu_constant_register(dec, 0, packed ? 32 : to->bits), p = emu_scratch_predicate(dec);
    read_third(dec, &how, 3);
    if (!packed) {
        emit_compare(dec, &how, p, NO_PREDICATE, a, b);
        emit_select(dec, to->bits, target, p, holds, zero);
        return;
    }
    uint16_t halves[2], q = emu_scratch_predicate(dec);
    uint16_t high_a = after_step(dec, emu_lanes_high_16, a, 32), high_b = after_step(dec, emu_lanes_high_16, b, 32);
    emit_compare(dec, &how, p, NO_PREDICATE, a, b);
    emit_compare(dec, &how, q, NO_PREDICATE, high_a, high_b);
    for (int i = 0; i < 2; i++) {
        halves[i] = emu_scratch_register(dec, 32);
        emit_select(dec, 32, halves[i], i ? q : p, holds, zero);
    }
    emit_lanes(dec, emu_lanes_pack_16, target, halves[0], halves[1]);
}

void emu_decode_test(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 2, 2);
    const type_info *type = match->types[0];
    comparison how = {.with = NO_PREDICATE};
    how.compare = emu_find_test(match->chosen[0], type, &how.wanted);
    uint16_t a = emu_source_of_type(dec, operand_at(dec, 1), type, EXACT);
    emit_compare(dec, &how, emu_predicate(dec, operand_at(dec, 0)), NO_PREDICATE, a, a);
}

void emu_decode_select(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 4, 4);
    const type_info *type = match->types[0];
    uint16_t a = emu_source_of_type(dec, operand_at(dec, 1), type, EXACT);
    uint16_t b = emu_source_of_type(dec, operand_at(dec, 2), type, EXACT);
    uint16_t to = emu_dest(dec, operand_at(dec, 0), type->bits), p = emu_predicate_source(dec, operand_at(dec, 3));
    emit_select(dec, type->bits, to, p, a, b);
}

/* slct: a where c >= 0, -0 included. */
void emu_decode_sign_select(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 4, 4);
    const type_info *type = match->types[0];
    comparison how = {.with = NO_PREDICATE};
    how.compare = emu_find_compare("ge", match->types[1], emu_chose(match, "ftz"), &how.wanted);
    uint16_t a = emu_source_of_type(dec, operand_at(dec, 1), type, EXACT);
    uint16_t b = emu_source_of_type(dec, operand_at(dec, 2), type, EXACT);
    uint16_t c = emu_source_of_type(dec, operand_at(dec, 3), match->types[1], EXACT);
    uint16_t to = emu_dest(dec, operand_at(dec, 0), type->bits), p = emu_scratch_predicate(dec);
    emit_compare(dec, &how, p, NO_PREDICATE, c, emu_constant_register(dec, 0, 32));
    emit_select(dec, type->bits, to, p, a, b);
}

/* mov, not, and, or, xor of predicates. */
void emu_decode_predicate(decoder *dec, const form_match *match) {
    const char *name = dec->in->opcode->pieces[0];
    bool two = !strcmp(name, "and") || !strcmp(name, "or") || !strcmp(name, "xor");
    (void)match;
    emu_expect_operands(dec, two ? 3 : 2, two ? 3 : 2);
    uint16_t a = emu_predicate_source(dec, operand_at(dec, 1));
    uint16_t b = two ? emu_predicate_source(dec, operand_at(dec, 2)) : NO_PREDICATE;
    op *o = emu_emit(dec, OP_PREDICATE);
    o->p[0] = emu_predicate(dec, operand_at(dec, 0));
    o->p[1] = a;
    o->p[2] = b;
    o->detail = *name == 'm'   ? PREDICATE_MOVE
                : *name == 'n' ? PREDICATE_NOT
                : *name == 'a' ? PREDICATE_AND
                : *name == 'o' ? PREDICATE_OR
                               : PREDICATE_XOR;
}

/* ---- moves ---- */

/* A register of 8 bits takes 16. */
static int bits_held(int part) {
    return part < 16 ? 16 : part;
}

/* Functions for vectors with elements of 8, 16, 32 and 64 bits. */
static const struct halves {
    lane_function *pack, *low, *high;
} HALVES[] = {
    {emu_lanes_pack_8, emu_lanes_low_8, emu_lanes_high_8},
    {emu_lanes_pack_16, emu_lanes_low_16, emu_lanes_high_16},
    {emu_lanes_pack_32, emu_lanes_low_32, emu_lanes_high_32},
    {emu_lanes_pack_64, emu_lanes_low_64, emu_lanes_high_64},
};

static const struct halves *halves_of(decoder *dec, int count, int part) {
    if ((count != 2 && count != 4) || part < 8)
        emu_refuse(dec, "a vector of 2 or 4 parts of at least 8 bits is needed");
    return &HALVES[__builtin_ctz((unsigned)part) - 3];
}

static void decode_pack(decoder *dec, const operand *to, const operand *from, int bits) {
    int part = bits / from->count;
    const struct halves *halves = halves_of(dec, from->count, part);
    uint16_t parts[4], target = emu_dest(dec, to, bits);
    for (int i = 0; i < from->count; i++) parts[i] = emu_source(dec, &from->items[i], bits_held(part), EXACT);
    if (from->count == 2) {
        emit_lanes(dec, halves->pack, target, parts[0], parts[1]);
        return;
    }
    uint16_t low = emu_scratch_register(dec, 2 * part), high = emu_scratch_register(dec, 2 * part);
    emit_lanes(dec, halves->pack, low, parts[0], parts[1]);
    emit_lanes(dec, halves->pack, high, parts[2], parts[3]);
    emit_lanes(dec, halves[1].pack, target, low, high);
}

/* The source may be one of the destinations' neighbors only after both halves were read: copies keep it whole. */
static void unpack_two(decoder *dec, const operand *to, uint16_t from, int part, const struct halves *halves) {
    if (to[0].kind != OPERAND_SINK) emit_lanes(dec, halves->low, emu_dest(dec, &to[0], bits_held(part)), from, -1);
    if (to[1].kind != OPERAND_SINK) emit_lanes(dec, halves->high, emu_dest(dec, &to[1], bits_held(part)), from, -1);
}

static void decode_unpack(decoder *dec, const operand *to, const operand *from, int bits) {
    int part = bits / to->count;
    const struct halves *halves = halves_of(dec, to->count, part);
    uint16_t whole = emu_source(dec, from, bits, EXACT);
    if (to->count == 2) {
        unpack_two(dec, to->items, whole, part, halves);
        return;
    }
    uint16_t low = emu_scratch_register(dec, 2 * part), high = emu_scratch_register(dec, 2 * part);
    emit_lanes(dec, halves[1].low, low, whole, -1);
    emit_lanes(dec, halves[1].high, high, whole, -1);
    unpack_two(dec, to->items, low, part, halves);
    unpack_two(dec, to->items + 2, high, part, halves);
}

void emu_decode_move(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 2, 2);
    const operand *to = operand_at(dec, 0), *from = operand_at(dec, 1);
    int bits = match->types[0]->bits;
    if (from->kind == OPERAND_VECTOR && from->count) {
        decode_pack(dec, to, from, bits);
    } else if (to->kind == OPERAND_VECTOR && to->count) {
        decode_unpack(dec, to, from, bits);
    } else if (from->kind == OPERAND_LABEL) {
        emu_refuse(dec, "'%.*s' is not known", from->length > 60 ? 60 : (int)from->length, from->name);
    } else {
        uint16_t value = emu_source_of_type(dec, from, match->types[0], EXACT);
        emit_lanes(dec,
                   bits == 128  ? emu_lanes_mov_128
                   : bits == 64 ? emu_lanes_mov_64
                                : emu_lanes_mov_32,
                   emu_dest(dec, to, bits), value, -1);
    }
}

/* All elements are read before one is written: "{%r1, %r2}, {%r2, %r1}" swaps. */
void emu_decode_move_vector(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 2, 2);
    const type_info *type = match->types[0];
    const int count = match->vector;
    if (type->bits * count > 128) emu_refuse(dec, "a move takes at most 16 bytes");
    lane_function *move = type->bits == 64 ? emu_lanes_mov_64 : emu_lanes_mov_32;
    const operand *from = operand_at(dec, 1), *to = emu_elements(dec, operand_at(dec, 0), count);
    const bool each = from->kind == OPERAND_VECTOR;
    if (each) from = emu_elements(dec, from, count);
    uint16_t values[4];
    for (int i = 0; i < count; i++) {
        values[i] = emu_scratch_register(dec, type->bits);
        emit_lanes(dec, move, values[i], emu_source_of_type(dec, &from[each ? i : 0], type, EXACT), -1);
    }
    for (int i = 0; i < count; i++) {
        if (to[i].kind != OPERAND_SINK) emit_lanes(dec, move, emu_dest(dec, &to[i], type->bits), values[i], -1);
    }
}

static uint64_t window_of(state_space space) {
    return space == SPACE_SHARED || space == SPACE_CLUSTER ? SHARED_WINDOW
           : space == SPACE_LOCAL                          ? LOCAL_WINDOW
           : space == SPACE_PARAM                          ? PARAM_WINDOW
           : space == SPACE_CONST                          ? CONST_WINDOW
                                                           : 0;
}

void emu_decode_address_convert(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 2, 2);
    uint64_t window = window_of(match->space);
    uint16_t value = emu_source(dec, operand_at(dec, 1), 64, EXACT);
    int distance = emu_constant_register(dec, match->chosen[0] ? 0 - window : window, 64);
    emit_lanes(dec, emu_lanes_add_64, emu_dest(dec, operand_at(dec, 0), 64), value, distance);
}

/* The window of a generic address is its top bits: shift them down and compare. In shared memory the rank follows,
 * which must be the CTA's own. */
void emu_decode_is_space(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 2, 2);
    const unsigned shift = match->space == SPACE_SHARED ? CTA_SHIFT : 59;
    uint64_t window = window_of(match->space) >> shift;
    uint16_t value = emu_source(dec, operand_at(dec, 1), 64, EXACT), top = emu_scratch_register(dec, 64);
    if (match->space == SPACE_SHARED) {
        const uint16_t relative = emu_scratch_register(dec, 64);
        emit_lanes(dec, emu_lanes_xor_64, relative, value, emu_shared_register(dec, 0, 64));
        value = relative;
    }
    emit_lanes(dec, emu_lanes_shr_u64, top, value, emu_constant_register(dec, shift, 32));
    op *o = emu_emit(dec, OP_COMPARE);
    uint8_t wanted;
    o->run.compare = emu_find_compare("eq", emu_find_type("u64"), false, &wanted);
    o->immediate = wanted;
    o->p[0] = emu_predicate(dec, operand_at(dec, 0));
    add_source(o, top);
    add_source(o, emu_constant_register(dec, window, 64));
}

/* ---- conversions ---- */

/* Rounding as the conversions name it. */
static const char *rounding_name(const form_match *match) {
    static const char *const names[] = {"rni", "rzi", "rmi", "rpi", "rn", "rna", "rz", "rm", "rp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (emu_chose(match, names[i])) return names[i];
    }
    return "";
}

/* .sat does something only where the source type has values that the other lacks: else PTX refuses it. */
static bool can_saturate(const type_info *to, const type_info *from) {
    bool from_signed = from->family == 's', to_signed = to->family == 's';
    if (from_signed && !to_signed) return true;
    return from->bits - from_signed > to->bits - to_signed;
}

/* The steps of a conversion, each but the last into a register of its own. */
static void emit_conversion(decoder *dec, const conversion *way, uint16_t to, uint16_t a, int b) {
    for (int i = 0; i < way->count; i++) {
        bool last = i + 1 == way->count;
        uint16_t result = last ? to : emu_scratch_register(dec, way->bits[i]);
        emit_lanes(dec, way->steps[i], result, a, i ? -1 : b);
        op *o = &dec->code->ops[dec->code->op_count - 1];
        if (way->rounding) o->kind = OP_ROUNDED;
        o->detail = way->rounding;
        a = result;
    }
}

static conversion find_conversion(decoder *dec, const form_match *match) {
    const type_info *to = match->types[0], *from = match->types[1];
    bool saturates = emu_chose(match, "sat"), integers = strchr("us", to->family) && strchr("us", from->family);
    conversion way = dec->in->opcode->way;
    if (way.count) return way;
    if (saturates && integers && !can_saturate(to, from))
        emu_refuse(dec, ".sat has no use here: every .%s is a .%s", from->name, to->name);
    const conversion_request request = {.rounding = rounding_name(match),
                                        .ftz = emu_chose(match, "ftz"),
                                        .sat = saturates,
                                        .relu = emu_chose(match, "relu"),
                                        .finite = emu_chose(match, "satfinite"),
                                        .to = to,
                                        .from = from};
    if (!emu_find_conversion(&request, &way)) emu_refuse(dec, "this conversion is not supported");
    return dec->in->opcode->way = way;
}

void emu_decode_convert(decoder *dec, const form_match *match) {
    const type_info *to = match->types[0], *from = match->types[1];
    bool pair = from->family == 'f' && strchr("HGE", to->family);
    emu_expect_operands(dec, pair ? 3 : 2, pair ? 3 : 2);
    conversion way = find_conversion(dec, match);
    uint16_t a = emu_source_of_type(dec, operand_at(dec, 1), from, WIDER);
    int b = pair ? emu_source_of_type(dec, operand_at(dec, 2), from, WIDER) : -1;
    const operand *target = operand_at(dec, 0);
    int bits = to->bits < 16 ? 16 : to->bits;
    int own = target->kind == OPERAND_REGISTER ? dec->code->registers[target->reg].bits : bits;
    if (own > bits && strchr("us", to->family) && own <= 64) {
        /* a wider destination holds the value extended by its type */
        uint16_t narrow = emu_scratch_register(dec, bits);
        emit_conversion(dec, &way, narrow, a, b);
        const conversion_request wider = {
            .rounding = "",
            .to = emu_find_type(own == 64 ? "u64" : "u32"),
            .from = emu_find_type(to->family == 's' ? (bits == 16 ? "s16" : "s32") : (bits == 16 ? "u16" : "u32"))};
        emu_find_conversion(&wider, &way);
        emit_conversion(dec, &way, emu_dest(dec, target, own), narrow, -1);
        return;
    }
    emit_conversion(dec, &way, emu_dest(dec, target, bits), a, b);
}

static void emit_three(decoder *dec, lane_function *lanes, uint16_t to, uint16_t a, uint16_t b, uint16_t c) {
    emit_lanes(dec, lanes, to, a, b);
    add_source(&dec->code->ops[dec->code->op_count - 1], c);
}

/* cvt.rs: two values and random bits, or two such pairs, each with the random bytes that prmt selects. */
void emu_decode_stochastic(decoder *dec, const form_match *match) {
    const type_info *to = match->types[0], *from = match->types[1];
    const bool four = strstr(to->name, "x4"), narrow = to->bits == 16;
    lane_function *lanes = emu_find_stochastic(to->name, emu_chose(match, "relu"), emu_chose(match, "satfinite"));
    const int operands = four ? 3 : 4;
    uint16_t values[4], pairs[2];
    emu_expect_operands(dec, operands, operands);
    const operand *list = four ? emu_elements(dec, operand_at(dec, 1), 4) : NULL;
    for (int i = 0; i < (four ? 4 : 2); i++)
        values[i] = emu_source_of_type(dec, list ? &list[i] : operand_at(dec, 1 + i), from, WIDER);
    const uint16_t random = emu_source(dec, operand_at(dec, operands - 1), 32, EXACT);
    const uint16_t target = emu_dest(dec, operand_at(dec, 0), to->bits);
    if (!four) {
        emit_three(dec, lanes, target, values[0], values[1], random);
        return;
    }
    static const uint32_t bytes[2][2] = {{0x4432, 0x4410}, {0x4431, 0x4420}};
    const uint16_t zero = emu_constant_register(dec, 0, 32);
    for (int i = 0; i < 2; i++) {
        const uint16_t own = emu_scratch_register(dec, 32);
        pairs[i] = emu_scratch_register(dec, 32);
        emit_three(dec, emu_lanes_prmt, own, random, zero, emu_constant_register(dec, bytes[narrow][i], 32));
        emit_three(dec, lanes, pairs[i], values[2 * i], values[2 * i + 1], own);
    }
    const uint16_t order = emu_constant_register(dec, narrow ? 0x7740 : 0x5410, 32);
    emit_three(dec, emu_lanes_prmt, target, pairs[1], pairs[0], order);
}

/* cvt.pack: both values clamped to the narrow type, side by side, and c moved up to make room for them. */
void emu_decode_pack(decoder *dec, const form_match *match) {
    static const struct {
        const char *type;
        lane_function *lanes;
    } packs[] = {{"u16", emu_lanes_pack_u16}, {"s16", emu_lanes_pack_s16}, {"u8", emu_lanes_pack_u8},
                 {"s8", emu_lanes_pack_s8},   {"u4", emu_lanes_pack_u4},   {"s4", emu_lanes_pack_s4},
                 {"u2", emu_lanes_pack_u2},   {"s2", emu_lanes_pack_s2}};
    const type_info *from = emu_find_type("s32");
    size_t which = 0;
    while (strcmp(packs[which].type, match->chosen[2])) which++;
    int count = which < 2 ? 3 : 4;
    uint16_t sources[3];
    emu_expect_operands(dec, count, count);
    for (int i = 1; i < count; i++) sources[i - 1] = emu_source_of_type(dec, operand_at(dec, i), from, EXACT);
    emit_lanes(dec, packs[which].lanes, emu_dest(dec, operand_at(dec, 0), 32), sources[0], sources[1]);
    if (count == 4) add_source(&dec->code->ops[dec->code->op_count - 1], sources[2]);
}
