/* decode.c - from parsed instructions to ops: operands, moves, arithmetic, comparisons and control. */
#include "decode.h"

enum { DYNAMIC_SHARED_ALIGNMENT = 128 };

void refuse(decoder *dec, const char *format, ...) {
    char reason[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    load_fail(dec->load, dec->in->line, "%s, in '%.100s'", reason, dec->in->text);
}

op *emit(decoder *dec, op_kind kind) {
    entry *code = dec->code;
    code->ops = load_grow(dec->load, code->ops, code->op_count, &dec->op_capacity, sizeof *code->ops);
    op *o = &code->ops[code->op_count++];
    *o = (op){.kind = (uint8_t)kind,
              .guard = NO_PREDICATE,
              .p = {NO_PREDICATE, NO_PREDICATE, NO_PREDICATE},
              .instruction = dec->index,
              .target = -1,
              .join = -1};
    if (dec->in->guard != NO_REGISTER) {
        const virtual_register *guard = &code->registers[dec->in->guard];
        if (guard->bits != 1) refuse(dec, "the guard is not a predicate");
        o->guard = guard->slot;
        if (dec->in->guard_negated) o->flags |= FLAG_GUARD_NEGATED;
    }
    if (dec->first) o->flags |= FLAG_FIRST;
    dec->first = false;
    return o;
}

const operand *operand_at(decoder *dec, int index) {
    if (index >= dec->in->operand_count) refuse(dec, "operand %d is missing", index + 1);
    return &dec->in->operands[index];
}

void expect_operands(decoder *dec, int least, int most) {
    int count = dec->in->operand_count;
    if (count < least || count > most) {
        if (least == most) refuse(dec, "%d operands where %d are needed", count, least);
        refuse(dec, "%d operands where %d to %d are needed", count, least, most);
    }
}

bool chose(const form_match *match, const char *modifier) {
    for (int i = 0; i < MAX_PIECES; i++) {
        if (match->chosen[i] && !strcmp(match->chosen[i], modifier)) return true;
    }
    return false;
}

/* ---- registers ---- */

static uint16_t add_register(decoder *dec, virtual_register reg) {
    entry *code = dec->code;
    if (code->register_count >= UINT16_MAX) refuse(dec, "the entry needs more than 65535 registers and constants");
    code->registers =
        load_grow(dec->load, code->registers, code->register_count, &dec->register_capacity, sizeof *code->registers);
    reg.tracked = -1;
    code->registers[code->register_count] = reg;
    return (uint16_t)code->register_count++;
}

uint16_t constant_register(decoder *dec, uint64_t value, int bits) {
    if (bits < 64) value &= (1ull << bits) - 1;
    int width = bits <= 32 ? 32 : bits;
    size_t at = (size_t)((value * 0x9e3779b97f4a7c15ull >> 40) + (uint64_t)width) % 1024;
    for (int probes = 0; dec->constants[at] && probes < 1024; at = (at + 1) % 1024, probes++) {
        const virtual_register *known = &dec->code->registers[dec->constants[at]];
        if (known->value == value && known->bits == width) return dec->constants[at];
    }
    uint16_t added = add_register(
        dec, (virtual_register){.prefix = "", .value = value, .kind = REGISTER_CONSTANT, .bits = (uint8_t)width});
    if (!dec->constants[at]) dec->constants[at] = added;
    return added;
}

uint16_t special_register_of(decoder *dec, special_register which) {
    uint32_t *known = &dec->code->special_slots[which];
    if (!*known) {
        *known =
            1u + add_register(dec, (virtual_register){
                                       .prefix = "", .value = (uint64_t)which, .kind = REGISTER_SPECIAL, .bits = 32});
    }
    return (uint16_t)(*known - 1);
}

uint16_t scratch_register(decoder *dec, int bits) {
    return add_register(dec, (virtual_register){.prefix = "(scratch)", .value = UINT64_MAX, .bits = (uint8_t)bits});
}

void add_dest(op *o, uint16_t reg) {
    o->r[o->dests++] = reg;
}
void add_source(op *o, uint16_t reg) {
    o->r[o->dests + o->sources++] = reg;
}

uint64_t symbol_address(decoder *dec, const symbol *which) {
    if (which->space == SPACE_SHARED) {
        uint32_t dynamic = (dec->code->shared_bytes + DYNAMIC_SHARED_ALIGNMENT - 1) / DYNAMIC_SHARED_ALIGNMENT *
                           DYNAMIC_SHARED_ALIGNMENT;
        return SHARED_BASE + (which->offset == UINT32_MAX ? dynamic : which->offset);
    }
    if (which->space == SPACE_GLOBAL || which->space == SPACE_CONST) return BUFFER_START + which->offset;
    return which->offset;
}

static uint64_t literal_bits(decoder *dec, const operand *from, const type_info *type, int bits) {
    uint64_t value = (uint64_t)from->value;
    bool is_float = type && (type->family == 'f');
    if (from->kind == OPERAND_FLOAT32) {
        if (bits != 32) refuse(dec, "an f32 number where %d bits are needed", bits);
        return value;
    }
    if (from->kind == OPERAND_FLOAT64) {
        if (bits == 64) return value;
        if (bits != 32 || !is_float) refuse(dec, "an f64 number where %d bits are needed", bits);
        double wide;
        memcpy(&wide, &value, sizeof wide);
        float narrow = (float)wide;
        uint32_t result;
        memcpy(&result, &narrow, sizeof result);
        return result;
    }
    if (is_float) refuse(dec, "an integer where a floating-point number is needed");
    return value;
}

uint16_t source_of_type(decoder *dec, const operand *from, const type_info *type, enum width_rule rule) {
    int bits = type->bits < 16 ? 16 : type->bits;
    switch (from->kind) {
    case OPERAND_INTEGER:
    case OPERAND_FLOAT32:
    case OPERAND_FLOAT64:
        return constant_register(dec, literal_bits(dec, from, type, bits), bits);
    case OPERAND_SYMBOL: {
        const symbol *which = &dec->load->module->symbols[from->symbol];
        if (bits < 32 || (bits == 32 && (which->space == SPACE_GLOBAL || which->space == SPACE_CONST))) {
            refuse(dec, "the address of '%s' does not fit %d bits", which->name, bits);
        }
        return constant_register(dec, symbol_address(dec, which) + (uint64_t)from->value, bits);
    }
    case OPERAND_SPECIAL: {
        if (bits == 32) return special_register_of(dec, (special_register)from->value);
        uint16_t whole = special_register_of(dec, (special_register)from->value);
        uint16_t result = scratch_register(dec, bits);
        op *o = emit(dec, OP_LANES);
        o->run.lanes = bits == 64 ? lanes_wide_u32 : lanes_low_16;
        add_dest(o, result);
        add_source(o, whole);
        return result;
    }
    case OPERAND_REGISTER:
        break;
    default:
        refuse(dec, "a register or a number is needed");
    }
    if (from->negated || from->second != NO_REGISTER) refuse(dec, "'!' and '|' do not belong here");
    const virtual_register *reg = &dec->code->registers[from->reg];
    if (reg->bits == bits) return (uint16_t)from->reg;
    char name[64];
    register_name(reg, name, sizeof name);
    if (reg->bits == 1) refuse(dec, "predicate %s where a register is needed", name);
    if (rule == EXACT || reg->bits < bits) {
        refuse(dec, "register %s has %d bits where %d are needed", name, reg->bits, bits);
    }
    if (reg->bits == 32) return (uint16_t)from->reg; /* a 16-bit reader looks at the low half only */
    if (reg->bits != 64) refuse(dec, "register %s is too wide", name);
    uint16_t low = scratch_register(dec, 32);
    op *o = emit(dec, OP_LANES);
    o->run.lanes = lanes_truncate;
    o->flags |= FLAG_COPY;
    add_dest(o, low);
    add_source(o, (uint16_t)from->reg);
    return low;
}

uint16_t source(decoder *dec, const operand *from, int bits, enum width_rule rule) {
    static const type_info plain[] = {{"b16", 16, 'b'}, {"b32", 32, 'b'}, {"b64", 64, 'b'}, {"b128", 128, 'b'}};
    return source_of_type(dec, from, &plain[bits == 16 ? 0 : bits == 32 ? 1 : bits == 64 ? 2 : 3], rule);
}

uint16_t dest(decoder *dec, const operand *to, int bits) {
    if (bits < 16) bits = 16;
    if (to->kind == OPERAND_SINK) return scratch_register(dec, bits);
    if (to->kind != OPERAND_REGISTER || to->negated) refuse(dec, "a destination register is needed");
    const virtual_register *reg = &dec->code->registers[to->reg];
    if (reg->bits != bits) {
        char name[64];
        register_name(reg, name, sizeof name);
        refuse(dec, "destination %s has %d bits where %d are needed", name, reg->bits, bits);
    }
    return (uint16_t)to->reg;
}

uint16_t optional_predicate(decoder *dec, int reg) {
    if (reg == NO_REGISTER) return NO_PREDICATE;
    if (dec->code->registers[reg].bits != 1) refuse(dec, "a predicate is needed");
    return dec->code->registers[reg].slot;
}

uint16_t predicate(decoder *dec, const operand *which) {
    if (which->kind == OPERAND_SINK) return NO_PREDICATE;
    if (which->kind != OPERAND_REGISTER) refuse(dec, "a predicate is needed");
    return optional_predicate(dec, which->reg);
}

/* ---- arithmetic ---- */

/* Width of an operand as the form's text has it: "a.32" or that of the type. */
static int stated_bits(const char *text, int otherwise) {
    const char *comma = strchr(text, ','), *dot = strchr(text, '.');
    if (!dot || (comma && dot > comma)) return otherwise;
    return dot[1] == '1' ? 16 : dot[1] == '3' ? 32 : 64;
}

static uint16_t lop3_table(decoder *dec, const operand *from) {
    if (from->kind != OPERAND_INTEGER || from->value < 0 || from->value > 255) {
        refuse(dec, "the table of lop3 is a number from 0 to 255");
    }
    return constant_register(dec, (uint64_t)from->value, 32);
}

void decode_lanes(decoder *dec, const form_match *match) {
    const type_info *type = match->types[0];
    const char *text = dec->form->row.operands;
    int count = 1;
    for (const char *c = text; *c; c++) count += *c == ',';
    expect_operands(dec, count, count);
    int bits = stated_bits(text, type->bits);
    uint16_t sources[4] = {0};
    for (int i = 1; i < count; i++) {
        text = strchr(text, ',') + 2;
        int wanted = stated_bits(text, type->bits);
        const operand *from = operand_at(dec, i);
        if (*text == 'i')
            sources[i - 1] = lop3_table(dec, from);
        else
            sources[i - 1] =
                wanted == type->bits ? source_of_type(dec, from, type, EXACT) : source(dec, from, wanted, EXACT);
    }
    uint16_t to = dest(dec, operand_at(dec, 0), bits);
    op *o = emit(dec, count == 5 ? OP_LANES_4 : OP_LANES);
    o->run.lanes = dec->form->lanes;
    add_dest(o, to);
    for (int i = 1; i < count; i++) add_source(o, sources[i - 1]);
    if (chose(match, "sat")) {
        o = emit(dec, OP_LANES);
        o->run.lanes = lanes_saturate_f32;
        add_dest(o, to);
        add_source(o, to);
    }
}

void decode_compare(decoder *dec, const form_match *match) {
    bool combined = match->chosen[1] && strcmp(match->chosen[1], "ftz") && !find_type(match->chosen[1]);
    expect_operands(dec, combined ? 4 : 3, combined ? 4 : 3);
    const operand *to = operand_at(dec, 0);
    const type_info *type = match->types[0];
    bool ftz = chose(match, "ftz");
    uint8_t wanted;
    compare_function *compare = find_compare(match->chosen[0], type, ftz, &wanted);
    if (!compare) {
        refuse(dec, "comparison .%s%s does not exist for .%s", match->chosen[0], ftz ? ".ftz" : "", type->name);
    }
    uint16_t a = source_of_type(dec, operand_at(dec, 1), type, EXACT);
    uint16_t b = source_of_type(dec, operand_at(dec, 2), type, EXACT);
    op *o = emit(dec, OP_COMPARE);
    o->run.compare = compare;
    o->immediate = wanted;
    o->p[0] = predicate(dec, to);
    o->p[1] = optional_predicate(dec, to->second);
    add_source(o, a);
    add_source(o, b);
    if (!combined) return;
    o->detail = chose(match, "and") ? COMBINE_AND : chose(match, "or") ? COMBINE_OR : COMBINE_XOR;
    o->p[2] = predicate(dec, operand_at(dec, 3));
    if (operand_at(dec, 3)->negated) o->flags |= FLAG_PREDICATE_NEGATED;
}

void decode_select(decoder *dec, const form_match *match) {
    expect_operands(dec, 4, 4);
    const type_info *type = match->types[0];
    uint16_t a = source_of_type(dec, operand_at(dec, 1), type, EXACT);
    uint16_t b = source_of_type(dec, operand_at(dec, 2), type, EXACT);
    op *o = emit(dec, OP_SELECT);
    o->bytes = type->bits == 64 ? 8 : 4;
    add_dest(o, dest(dec, operand_at(dec, 0), type->bits));
    add_source(o, a);
    add_source(o, b);
    o->p[2] = predicate(dec, operand_at(dec, 3));
    if (operand_at(dec, 3)->negated) refuse(dec, "selp takes no negated predicate");
}

/* mov, not, and, or, xor of predicates. A literal of mov.pred is made by "x xor x" and its opposite. */
void decode_predicate(decoder *dec, const form_match *match) {
    const char *name = dec->in->opcode->pieces[0];
    bool two = !strcmp(name, "and") || !strcmp(name, "or") || !strcmp(name, "xor");
    (void)match;
    expect_operands(dec, two ? 3 : 2, two ? 3 : 2);
    op *o = emit(dec, OP_PREDICATE);
    o->p[0] = predicate(dec, operand_at(dec, 0));
    const operand *a = operand_at(dec, 1);
    if (a->kind == OPERAND_INTEGER && !two) {
        o->detail = PREDICATE_MOVE;
        o->immediate = a->value ? 1 : 0;
        if (*name == 'n') o->immediate = !o->immediate;
        return;
    }
    o->p[1] = predicate(dec, a);
    if (a->negated || o->p[1] == NO_PREDICATE) refuse(dec, "a predicate without '!' is needed");
    o->detail = *name == 'm'   ? PREDICATE_MOVE
                : *name == 'n' ? PREDICATE_NOT
                : *name == 'a' ? PREDICATE_AND
                : *name == 'o' ? PREDICATE_OR
                               : PREDICATE_XOR;
    if (two) {
        o->p[2] = predicate(dec, operand_at(dec, 2));
        if (operand_at(dec, 2)->negated || o->p[2] == NO_PREDICATE) refuse(dec, "a predicate without '!' is needed");
    }
}

/* ---- moves ---- */

static void emit_lanes(decoder *dec, lane_function *lanes, uint16_t to, uint16_t a, int b, uint8_t flags) {
    op *o = emit(dec, OP_LANES);
    o->run.lanes = lanes;
    o->flags |= flags;
    add_dest(o, to);
    add_source(o, a);
    if (b >= 0) add_source(o, (uint16_t)b);
}

static void decode_pack(decoder *dec, const operand *to, const operand *from, int bits) {
    int part = bits / from->count;
    if ((from->count != 2 && from->count != 4) || part < 16)
        refuse(dec, "a vector of 2 or 4 parts of at least 16 bits is needed");
    lane_function *halves = part == 16 ? lanes_pack_16 : part == 32 ? lanes_pack_32 : lanes_pack_64;
    uint16_t parts[4], target = dest(dec, to, bits);
    for (int i = 0; i < from->count; i++) parts[i] = source(dec, &from->items[i], part, EXACT);
    if (from->count == 2) {
        emit_lanes(dec, halves, target, parts[0], parts[1], FLAG_COPY);
        return;
    }
    uint16_t low = scratch_register(dec, 2 * part), high = scratch_register(dec, 2 * part);
    emit_lanes(dec, halves, low, parts[0], parts[1], FLAG_COPY);
    emit_lanes(dec, halves, high, parts[2], parts[3], FLAG_COPY);
    emit_lanes(dec, part == 16 ? lanes_pack_32 : lanes_pack_64, target, low, high, FLAG_COPY);
}

static void unpack_two(decoder *dec, const operand *to, uint16_t from, int part) {
    /* the source may be one of the destinations' neighbours only after both halves were read: copies keep it whole */
    if (to[0].kind != OPERAND_SINK) {
        emit_lanes(dec,
                   part == 16   ? lanes_low_16
                   : part == 32 ? lanes_low_32
                                : lanes_low_64,
                   dest(dec, &to[0], part), from, -1, FLAG_COPY);
    }
    if (to[1].kind != OPERAND_SINK) {
        emit_lanes(dec,
                   part == 16   ? lanes_high_16
                   : part == 32 ? lanes_high_32
                                : lanes_high_64,
                   dest(dec, &to[1], part), from, -1, FLAG_COPY);
    }
}

static void decode_unpack(decoder *dec, const operand *to, const operand *from, int bits) {
    int part = bits / to->count;
    if ((to->count != 2 && to->count != 4) || part < 16)
        refuse(dec, "a vector of 2 or 4 parts of at least 16 bits is needed");
    uint16_t whole = source(dec, from, bits, EXACT);
    if (to->count == 2) {
        unpack_two(dec, to->items, whole, part);
        return;
    }
    uint16_t low = scratch_register(dec, 2 * part), high = scratch_register(dec, 2 * part);
    emit_lanes(dec, part == 16 ? lanes_low_32 : lanes_low_64, low, whole, -1, FLAG_COPY);
    emit_lanes(dec, part == 16 ? lanes_high_32 : lanes_high_64, high, whole, -1, FLAG_COPY);
    unpack_two(dec, to->items, low, part);
    unpack_two(dec, to->items + 2, high, part);
}

void decode_move(decoder *dec, const form_match *match) {
    expect_operands(dec, 2, 2);
    const operand *to = operand_at(dec, 0), *from = operand_at(dec, 1);
    int bits = match->types[0]->bits;
    if (from->kind == OPERAND_VECTOR && from->count) {
        decode_pack(dec, to, from, bits);
    } else if (to->kind == OPERAND_VECTOR && to->count) {
        decode_unpack(dec, to, from, bits);
    } else if (from->kind == OPERAND_LABEL) {
        refuse(dec, "'%.60s' is not known", from->name);
    } else {
        uint16_t value = source_of_type(dec, from, match->types[0], EXACT);
        emit_lanes(dec,
                   bits == 128  ? lanes_mov_128
                   : bits == 64 ? lanes_mov_64
                                : lanes_mov_32,
                   dest(dec, to, bits), value, -1, FLAG_COPY);
    }
}

static uint64_t window_of(state_space space) {
    return space == SPACE_SHARED  ? SHARED_WINDOW
           : space == SPACE_LOCAL ? LOCAL_WINDOW
           : space == SPACE_PARAM ? PARAM_WINDOW
           : space == SPACE_CONST ? CONST_WINDOW
                                  : 0;
}

state_space space_named(const char *name) {
    if (!name) return SPACE_GENERIC;
    if (!strncmp(name, "shared", 6)) return SPACE_SHARED;
    if (!strcmp(name, "global")) return SPACE_GLOBAL;
    if (!strcmp(name, "local")) return SPACE_LOCAL;
    if (!strcmp(name, "const")) return SPACE_CONST;
    return SPACE_PARAM;
}

void decode_address_convert(decoder *dec, const form_match *match) {
    expect_operands(dec, 2, 2);
    uint64_t window = window_of(space_named(match->chosen[1]));
    uint16_t value = source(dec, operand_at(dec, 1), 64, EXACT);
    int distance = constant_register(dec, match->chosen[0] ? 0 - window : window, 64);
    emit_lanes(dec, lanes_add_64, dest(dec, operand_at(dec, 0), 64), value, distance, 0);
}

/* The window of a generic address is its top bits: shift them down and compare. */
void decode_is_space(decoder *dec, const form_match *match) {
    expect_operands(dec, 2, 2);
    uint64_t window = window_of(space_named(match->chosen[0])) >> 59;
    uint16_t value = source(dec, operand_at(dec, 1), 64, EXACT), top = scratch_register(dec, 64);
    emit_lanes(dec, lanes_shr_u64, top, value, constant_register(dec, 59, 32), 0);
    op *o = emit(dec, OP_COMPARE);
    uint8_t wanted;
    o->run.compare = find_compare("eq", find_type("u64"), false, &wanted);
    o->immediate = wanted;
    o->p[0] = predicate(dec, operand_at(dec, 0));
    add_source(o, top);
    add_source(o, constant_register(dec, window, 64));
}

/* Rounding and .relu as the conversion table writes them. */
static const char *rounding_name(const form_match *match) {
    static const char *const names[] = {"rni", "rzi", "rmi", "rpi", "rz"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (chose(match, names[i])) return names[i];
    }
    if (chose(match, "relu")) return "rn.relu";
    return chose(match, "rn") ? "rn" : "";
}

/* The steps of a conversion, each but the last into a register of its own. */
static void emit_conversion(decoder *dec, const conversion *way, uint16_t to, uint16_t a, int b) {
    for (int i = 0; i < way->count; i++) {
        bool last = i + 1 == way->count;
        uint16_t result = last ? to : scratch_register(dec, way->bits[i]);
        emit_lanes(dec, way->steps[i], result, a, i ? -1 : b, 0);
        a = result;
    }
}

void decode_convert(decoder *dec, const form_match *match) {
    const type_info *to = match->types[0], *from = match->types[1];
    bool packed = to->family == 'H' || to->family == 'G';
    expect_operands(dec, packed ? 3 : 2, packed ? 3 : 2);
    conversion way;
    if (!find_conversion(rounding_name(match), chose(match, "ftz"), to, from, &way))
        refuse(dec, "this conversion is not supported");
    uint16_t a = source_of_type(dec, operand_at(dec, 1), from, WIDER);
    int b = packed ? source_of_type(dec, operand_at(dec, 2), from, WIDER) : -1;
    const operand *target = operand_at(dec, 0);
    int bits = to->bits < 16 ? 16 : to->bits;
    int own = target->kind == OPERAND_REGISTER ? dec->code->registers[target->reg].bits : bits;
    bool integer = strchr("ubs", to->family) != NULL;
    if (own > bits && integer && own <= 64) {
        /* a wider destination holds the value extended by its type */
        uint16_t narrow = scratch_register(dec, bits);
        emit_conversion(dec, &way, narrow, a, b);
        const type_info *signed_type = find_type(bits == 16 ? "s16" : "s32");
        const type_info *unsigned_type = find_type(bits == 16 ? "u16" : "u32");
        find_conversion("", false, find_type(own == 64 ? "u64" : "u32"),
                        to->family == 's' ? signed_type : unsigned_type, &way);
        emit_conversion(dec, &way, dest(dec, target, own), narrow, -1);
        return;
    }
    emit_conversion(dec, &way, dest(dec, target, bits), a, b);
    if (chose(match, "sat"))
        emit_lanes(dec, lanes_saturate_f32, dest(dec, target, bits), dest(dec, target, bits), -1, 0);
}

/* ---- control ---- */

static uint32_t label_target(decoder *dec, const operand *where) {
    const entry *code = dec->code;
    if (where->kind != OPERAND_LABEL) refuse(dec, "a label is needed");
    for (int scope = (int)where->value; scope >= 0; scope = code->scope_parents[scope]) {
        for (size_t i = 0; i < code->label_count; i++) {
            if (code->labels[i].scope == scope && !strcmp(code->labels[i].name, where->name))
                return code->labels[i].instruction;
        }
    }
    refuse(dec, "label '%.60s' is not defined here", where->name);
}

void decode_branch(decoder *dec, const form_match *match) {
    (void)match;
    expect_operands(dec, 1, 1);
    op *o = emit(dec, OP_BRANCH);
    o->target = (int32_t)label_target(dec, operand_at(dec, 0)); /* an instruction until decode_entry is through */
}

void decode_exit(decoder *dec, const form_match *match) {
    (void)match;
    expect_operands(dec, 0, 0);
    emit(dec, OP_EXIT);
}

void decode_trap(decoder *dec, const form_match *match) {
    (void)match;
    expect_operands(dec, 0, 0);
    emit(dec, OP_TRAP);
}

void decode_nothing(decoder *dec, const form_match *match) {
    (void)match;
    emit(dec, OP_NOTHING);
}

/* Parameters of a call are variables of the thread's own memory: their offsets are what the built-in reads. */
void decode_call(decoder *dec, const form_match *match) {
    (void)match;
    const operand *name = NULL, *arguments = NULL;
    for (int i = 0; i < dec->in->operand_count; i++) {
        const operand *each = operand_at(dec, i);
        if (each->kind == OPERAND_LABEL) name = each;
        if (each->kind == OPERAND_LIST && name) arguments = each;
    }
    bool print = name && !strcmp(name->name, "vprintf"), assertion = name && !strcmp(name->name, "__assertfail");
    if (!print && !assertion) refuse(dec, "calls are supported to vprintf and __assertfail only");
    int wanted = print ? 2 : 5;
    if (!arguments || arguments->count != wanted) refuse(dec, "the call needs %d arguments", wanted);
    op *o = emit(dec, OP_CALL);
    o->detail = print ? CALL_PRINTF : CALL_ASSERT;
    for (int i = 0; i < 4; i++) {
        const operand *each = &arguments->items[i < wanted ? i : wanted - 1];
        if (each->kind != OPERAND_SYMBOL || dec->load->module->symbols[each->symbol].space != SPACE_LOCAL) {
            refuse(dec, "an argument is not a .param variable of this scope");
        }
        /* offsets of the arguments, as constants that are never read through registers */
        o->r[8 + i] = (uint16_t)(dec->load->module->symbols[each->symbol].offset);
        if (dec->load->module->symbols[each->symbol].offset > UINT16_MAX)
            refuse(dec, "too much local memory before a call");
    }
}

/* ---- an entry ---- */

static void number_predicates(entry *code) {
    for (size_t i = 0; i < code->register_count; i++) {
        if (code->registers[i].bits == 1) code->registers[i].slot = (uint16_t)code->predicate_count++;
    }
}

/* Shared memory is checked in units of the narrowest access to it; which barriers occur decides how order is kept. */
static void note_shared_use(entry *code, const op *o) {
    bool shared = o->space == SPACE_SHARED || o->space == SPACE_GENERIC;
    if ((o->kind == OP_LOAD || o->kind == OP_STORE || o->kind == OP_ATOMIC) && shared &&
        o->bytes * o->vector < (int)code->granule_bytes) {
        code->granule_bytes = (uint32_t)(o->bytes * o->vector);
    }
    if (o->kind == OP_COPY_ASYNC && o->bytes < code->granule_bytes) code->granule_bytes = o->bytes;
    if (o->kind >= OP_MBARRIER_INIT && o->kind <= OP_MBARRIER_INVALIDATE && code->granule_bytes > 8)
        code->granule_bytes = 8;
    if ((o->kind >= OP_MBARRIER_INIT && o->kind <= OP_MBARRIER_INVALIDATE) || o->kind == OP_COPY_ARRIVE)
        code->needs_clocks = true;
    if (o->kind == OP_BARRIER && (o->sources > 1 || o->detail == BARRIER_ARRIVE)) code->needs_clocks = true;
}

void decode_entry(loader *load, entry *code) {
    decoder *dec = load_alloc(load, sizeof *dec);
    dec->load = load;
    dec->code = code;
    code->leader_ops = load_alloc(load, (code->instruction_count + 1) * sizeof *code->leader_ops);
    code->granule_bytes = 16;
    number_predicates(code);
    if (!code->register_count) scratch_register(dec, 32); /* so that register 0 is no constant */
    for (dec->index = 0; dec->index < code->instruction_count; dec->index++) {
        instruction *in = &code->instructions[dec->index];
        dec->in = in;
        dec->first = true;
        if (!in->opcode->form) in->opcode->form = find_form(load, in, &in->opcode->match);
        dec->form = in->opcode->form;
        in->group = dec->form->row.group;
        code->leader_ops[dec->index] = (uint32_t)code->op_count;
        dec->form->decode(dec, &in->opcode->match);
        if (dec->first) emit(dec, OP_NOTHING); /* such as a mov to nowhere */
    }
    instruction end = {.line = code->instruction_count ? code->instructions[code->instruction_count - 1].line : 0,
                       .location = -1,
                       .text = "(end of the entry)",
                       .guard = NO_REGISTER};
    dec->in = &end;
    dec->first = false;
    code->leader_ops[code->instruction_count] = (uint32_t)code->op_count;
    dec->index = code->instruction_count ? (uint32_t)code->instruction_count - 1 : 0;
    emit(dec, OP_EXIT); /* falling off the end returns */
    for (size_t i = 0; i < code->op_count; i++) {
        if (code->ops[i].kind == OP_BRANCH) code->ops[i].target = (int32_t)code->leader_ops[code->ops[i].target];
        note_shared_use(code, &code->ops[i]);
    }
}
