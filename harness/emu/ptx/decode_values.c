/* decode_values.c - from statements to ops: arithmetic, comparisons, moves and conversions of values in registers. */
#include "builder.h"
#include "decode_rules.h"

/* ---- arithmetic ---- */

static uint16_t lop3_table(decoder *dec, const operand *from) {
    if (from->kind != OPERAND_INTEGER || from->value < 0 || from->value > 255) {
        emu_refuse(dec, "the table of lop3 is a number from 0 to 255");
    }
    return emu_constant_register(dec, (uint64_t)from->value, 32);
}

void emu_decode_lanes(decoder *dec, const form_match *match) {
    const type_info *type = match->types[0];
    int count = match->operand_count, bits = match->operand_bits[0];
    emu_expect_operands(dec, count, count);
    uint16_t sources[4] = {0};
    for (int i = 1; i < count; i++) {
        int wanted = match->operand_bits[i];
        const operand *from = operand_at(dec, i);
        if (!wanted)
            sources[i - 1] = lop3_table(dec, from);
        else
            sources[i - 1] = wanted == type->bits ? emu_source_of_type(dec, from, type, EXACT)
                                                  : emu_source(dec, from, wanted, EXACT);
    }
    uint16_t to = emu_dest(dec, operand_at(dec, 0), bits);
    op *o = emu_emit(dec, count == 5 ? OP_LANES_4 : OP_LANES);
    o->run.lanes = dec->lanes;
    add_dest(o, to);
    for (int i = 1; i < count; i++) add_source(o, sources[i - 1]);
    if (emu_chose(match, "sat")) {
        o = emu_emit(dec, OP_LANES);
        o->run.lanes = emu_lanes_saturate_f32;
        add_dest(o, to);
        add_source(o, to);
    }
}

void emu_decode_compare(decoder *dec, const form_match *match) {
    bool combined = match->chosen[1] && strcmp(match->chosen[1], "ftz") && !emu_find_type(match->chosen[1]);
    emu_expect_operands(dec, combined ? 4 : 3, combined ? 4 : 3);
    const operand *to = operand_at(dec, 0);
    const type_info *type = match->types[0];
    bool ftz = emu_chose(match, "ftz");
    uint8_t wanted;
    compare_function *compare = emu_find_compare(match->chosen[0], type, ftz, &wanted);
    if (!compare) {
        emu_refuse(dec, "comparison .%s%s does not exist for .%s", match->chosen[0], ftz ? ".ftz" : "", type->name);
    }
    uint16_t a = emu_source_of_type(dec, operand_at(dec, 1), type, EXACT);
    uint16_t b = emu_source_of_type(dec, operand_at(dec, 2), type, EXACT);
    op *o = emu_emit(dec, OP_COMPARE);
    o->run.compare = compare;
    o->immediate = wanted;
    o->p[0] = emu_predicate(dec, to);
    o->p[1] = emu_optional_predicate(dec, to->second);
    add_source(o, a);
    add_source(o, b);
    if (!combined) return;
    o->detail = emu_chose(match, "and") ? COMBINE_AND : emu_chose(match, "or") ? COMBINE_OR : COMBINE_XOR;
    o->p[2] = emu_predicate(dec, operand_at(dec, 3));
    if (operand_at(dec, 3)->negated) o->flags |= FLAG_PREDICATE_NEGATED;
}

void emu_decode_select(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 4, 4);
    const type_info *type = match->types[0];
    uint16_t a = emu_source_of_type(dec, operand_at(dec, 1), type, EXACT);
    uint16_t b = emu_source_of_type(dec, operand_at(dec, 2), type, EXACT);
    op *o = emu_emit(dec, OP_SELECT);
    o->bytes = type->bits == 64 ? 8 : 4;
    add_dest(o, emu_dest(dec, operand_at(dec, 0), type->bits));
    add_source(o, a);
    add_source(o, b);
    o->p[2] = emu_predicate(dec, operand_at(dec, 3));
    if (operand_at(dec, 3)->negated) emu_refuse(dec, "selp takes no negated predicate");
}

/* mov, not, and, or, xor of predicates. A literal of mov.pred is made by "x xor x" and its opposite. */
void emu_decode_predicate(decoder *dec, const form_match *match) {
    const char *name = dec->in->opcode->pieces[0];
    bool two = !strcmp(name, "and") || !strcmp(name, "or") || !strcmp(name, "xor");
    (void)match;
    emu_expect_operands(dec, two ? 3 : 2, two ? 3 : 2);
    op *o = emu_emit(dec, OP_PREDICATE);
    o->p[0] = emu_predicate(dec, operand_at(dec, 0));
    const operand *a = operand_at(dec, 1);
    if (a->kind == OPERAND_INTEGER && !two) {
        o->detail = PREDICATE_MOVE;
        o->immediate = a->value ? 1 : 0;
        if (*name == 'n') o->immediate = !o->immediate;
        return;
    }
    o->p[1] = emu_predicate(dec, a);
    if (a->negated || o->p[1] == NO_PREDICATE) emu_refuse(dec, "a predicate without '!' is needed");
    o->detail = *name == 'm'   ? PREDICATE_MOVE
                : *name == 'n' ? PREDICATE_NOT
                : *name == 'a' ? PREDICATE_AND
                : *name == 'o' ? PREDICATE_OR
                               : PREDICATE_XOR;
    if (two) {
        o->p[2] = emu_predicate(dec, operand_at(dec, 2));
        if (operand_at(dec, 2)->negated || o->p[2] == NO_PREDICATE)
            emu_refuse(dec, "a predicate without '!' is needed");
    }
}

/* ---- moves ---- */

static void emit_lanes(decoder *dec, lane_function *lanes, uint16_t to, uint16_t a, int b, uint8_t flags) {
    op *o = emu_emit(dec, OP_LANES);
    o->run.lanes = lanes;
    o->flags |= flags;
    add_dest(o, to);
    add_source(o, a);
    if (b >= 0) add_source(o, (uint16_t)b);
}

static void decode_pack(decoder *dec, const operand *to, const operand *from, int bits) {
    int part = bits / from->count;
    if ((from->count != 2 && from->count != 4) || part < 16)
        emu_refuse(dec, "a vector of 2 or 4 parts of at least 16 bits is needed");
    lane_function *halves = part == 16 ? emu_lanes_pack_16 : part == 32 ? emu_lanes_pack_32 : emu_lanes_pack_64;
    uint16_t parts[4], target = emu_dest(dec, to, bits);
    for (int i = 0; i < from->count; i++) parts[i] = emu_source(dec, &from->items[i], part, EXACT);
    if (from->count == 2) {
        emit_lanes(dec, halves, target, parts[0], parts[1], FLAG_COPY);
        return;
    }
    uint16_t low = emu_scratch_register(dec, 2 * part), high = emu_scratch_register(dec, 2 * part);
    emit_lanes(dec, halves, low, parts[0], parts[1], FLAG_COPY);
    emit_lanes(dec, halves, high, parts[2], parts[3], FLAG_COPY);
    emit_lanes(dec, part == 16 ? emu_lanes_pack_32 : emu_lanes_pack_64, target, low, high, FLAG_COPY);
}

static void unpack_two(decoder *dec, const operand *to, uint16_t from, int part) {
    /* the source may be one of the destinations' neighbours only after both halves were read: copies keep it whole */
    if (to[0].kind != OPERAND_SINK) {
        emit_lanes(dec,
                   part == 16   ? emu_lanes_low_16
                   : part == 32 ? emu_lanes_low_32
                                : emu_lanes_low_64,
                   emu_dest(dec, &to[0], part), from, -1, FLAG_COPY);
    }
    if (to[1].kind != OPERAND_SINK) {
        emit_lanes(dec,
                   part == 16   ? emu_lanes_high_16
                   : part == 32 ? emu_lanes_high_32
                                : emu_lanes_high_64,
                   emu_dest(dec, &to[1], part), from, -1, FLAG_COPY);
    }
}

static void decode_unpack(decoder *dec, const operand *to, const operand *from, int bits) {
    int part = bits / to->count;
    if ((to->count != 2 && to->count != 4) || part < 16)
        emu_refuse(dec, "a vector of 2 or 4 parts of at least 16 bits is needed");
    uint16_t whole = emu_source(dec, from, bits, EXACT);
    if (to->count == 2) {
        unpack_two(dec, to->items, whole, part);
        return;
    }
    uint16_t low = emu_scratch_register(dec, 2 * part), high = emu_scratch_register(dec, 2 * part);
    emit_lanes(dec, part == 16 ? emu_lanes_low_32 : emu_lanes_low_64, low, whole, -1, FLAG_COPY);
    emit_lanes(dec, part == 16 ? emu_lanes_high_32 : emu_lanes_high_64, high, whole, -1, FLAG_COPY);
    unpack_two(dec, to->items, low, part);
    unpack_two(dec, to->items + 2, high, part);
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
                   emu_dest(dec, to, bits), value, -1, FLAG_COPY);
    }
}

static uint64_t window_of(state_space space) {
    return space == SPACE_SHARED  ? SHARED_WINDOW
           : space == SPACE_LOCAL ? LOCAL_WINDOW
           : space == SPACE_PARAM ? PARAM_WINDOW
           : space == SPACE_CONST ? CONST_WINDOW
                                  : 0;
}

void emu_decode_address_convert(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 2, 2);
    uint64_t window = window_of(match->space);
    uint16_t value = emu_source(dec, operand_at(dec, 1), 64, EXACT);
    int distance = emu_constant_register(dec, match->chosen[0] ? 0 - window : window, 64);
    emit_lanes(dec, emu_lanes_add_64, emu_dest(dec, operand_at(dec, 0), 64), value, distance, 0);
}

/* The window of a generic address is its top bits: shift them down and compare. */
void emu_decode_is_space(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 2, 2);
    uint64_t window = window_of(match->space) >> 59;
    uint16_t value = emu_source(dec, operand_at(dec, 1), 64, EXACT), top = emu_scratch_register(dec, 64);
    emit_lanes(dec, emu_lanes_shr_u64, top, value, emu_constant_register(dec, 59, 32), 0);
    op *o = emu_emit(dec, OP_COMPARE);
    uint8_t wanted;
    o->run.compare = emu_find_compare("eq", emu_find_type("u64"), false, &wanted);
    o->immediate = wanted;
    o->p[0] = emu_predicate(dec, operand_at(dec, 0));
    add_source(o, top);
    add_source(o, emu_constant_register(dec, window, 64));
}

/* Rounding and .relu as the conversion table writes them. */
static const char *rounding_name(const form_match *match) {
    static const char *const names[] = {"rni", "rzi", "rmi", "rpi", "rz"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (emu_chose(match, names[i])) return names[i];
    }
    if (emu_chose(match, "relu")) return "rn.relu";
    return emu_chose(match, "rn") ? "rn" : "";
}

/* The steps of a conversion, each but the last into a register of its own. */
static void emit_conversion(decoder *dec, const conversion *way, uint16_t to, uint16_t a, int b) {
    for (int i = 0; i < way->count; i++) {
        bool last = i + 1 == way->count;
        uint16_t result = last ? to : emu_scratch_register(dec, way->bits[i]);
        emit_lanes(dec, way->steps[i], result, a, i ? -1 : b, 0);
        a = result;
    }
}

void emu_decode_convert(decoder *dec, const form_match *match) {
    const type_info *to = match->types[0], *from = match->types[1];
    bool packed = to->family == 'H' || to->family == 'G';
    emu_expect_operands(dec, packed ? 3 : 2, packed ? 3 : 2);
    conversion way = dec->in->opcode->way;
    if (!way.count && !emu_find_conversion(rounding_name(match), emu_chose(match, "ftz"), to, from, &way))
        emu_refuse(dec, "this conversion is not supported");
    dec->in->opcode->way = way;
    uint16_t a = emu_source_of_type(dec, operand_at(dec, 1), from, WIDER);
    int b = packed ? emu_source_of_type(dec, operand_at(dec, 2), from, WIDER) : -1;
    const operand *target = operand_at(dec, 0);
    int bits = to->bits < 16 ? 16 : to->bits;
    int own = target->kind == OPERAND_REGISTER ? dec->code->registers[target->reg].bits : bits;
    bool integer = strchr("ubs", to->family) != NULL;
    if (own > bits && integer && own <= 64) {
        /* a wider destination holds the value extended by its type */
        uint16_t narrow = emu_scratch_register(dec, bits);
        emit_conversion(dec, &way, narrow, a, b);
        const type_info *signed_type = emu_find_type(bits == 16 ? "s16" : "s32");
        const type_info *unsigned_type = emu_find_type(bits == 16 ? "u16" : "u32");
        emu_find_conversion("", false, emu_find_type(own == 64 ? "u64" : "u32"),
                            to->family == 's' ? signed_type : unsigned_type, &way);
        emit_conversion(dec, &way, emu_dest(dec, target, own), narrow, -1);
        return;
    }
    emit_conversion(dec, &way, emu_dest(dec, target, bits), a, b);
    if (emu_chose(match, "sat"))
        emit_lanes(dec, emu_lanes_saturate_f32, emu_dest(dec, target, bits), emu_dest(dec, target, bits), -1, 0);
}
