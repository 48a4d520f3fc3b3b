/* builder.c - see builder.h */
#include "builder.h"

#include <inttypes.h>
#include <stdarg.h>

void emu_refuse(decoder *dec, const char *format, ...) {
    char reason[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    emu_load_fail(dec->load, dec->in->line, "%s, in '%.100s'", reason, dec->in->text);
}

op *emu_emit(decoder *dec, op_kind kind) {
    entry *code = dec->code;
    code->ops = load_grow(dec->load, code->ops, code->op_count, &code->op_capacity, sizeof *code->ops);
    op *o = &code->ops[code->op_count++];
    *o = (op){.kind = (uint8_t)kind,
              .guard = NO_PREDICATE,
              .p = {NO_PREDICATE, NO_PREDICATE, NO_PREDICATE},
              .instruction = dec->index,
              .target = -1,
              .join = -1};
    if (dec->in->guard != NO_REGISTER) {
        const virtual_register *guard = &code->registers[dec->in->guard];
        if (guard->bits != 1) emu_refuse(dec, "the guard is not a predicate");
        o->guard = guard->slot;
        if (dec->in->guard_negated) o->flags |= FLAG_GUARD_NEGATED;
    }
    if (dec->first) o->flags |= FLAG_FIRST;
    dec->first = false;
    return o;
}

void emu_expect_operands(decoder *dec, int least, int most) {
    int count = dec->in->operand_count;
    if (count < least || count > most) {
        if (least == most) emu_refuse(dec, "%d operands where %d are needed", count, least);
        emu_refuse(dec, "%d operands where %d to %d are needed", count, least, most);
    }
}

bool emu_chose(const form_match *match, const char *modifier) {
    for (int i = 0; i < match->chosen_count; i++) {
        const char *each = match->chosen[i];
        if (each && *each == *modifier && !strcmp(each, modifier)) return true;
    }
    return false;
}

/* ---- registers ---- */

uint16_t emu_add_register(loader *load, entry *code, int line, virtual_register reg) {
    if (code->register_count >= UINT16_MAX)
        emu_load_fail(load, line, "the entry needs more than 65535 registers and constants");
    code->registers =
        load_grow(load, code->registers, code->register_count, &code->register_capacity, sizeof *code->registers);
    code->registers[code->register_count] = reg;
    return (uint16_t)code->register_count++;
}

static uint16_t new_register(decoder *dec, virtual_register reg) {
    return emu_add_register(dec->load, dec->code, dec->in->line, reg);
}

static uint16_t constant_of(decoder *dec, register_kind kind, uint64_t value, int bits) {
    if (bits < 64) value &= (1ull << bits) - 1;
    int width = bits <= 32 ? 32 : bits;
    size_t at = (size_t)((value * 0x9e3779b97f4a7c15ull >> 40) + (uint64_t)width) % 1024;
    for (int probes = 0; dec->constants[at] && probes < 1024; at = (at + 1) % 1024, probes++) {
        const virtual_register *known = &dec->code->registers[dec->constants[at]];
        if (known->value == value && known->bits == width && known->kind == kind) return dec->constants[at];
    }
    uint16_t added = new_register(
        dec, (virtual_register){.prefix = "", .value = value, .kind = (uint8_t)kind, .bits = (uint8_t)width});
    if (!dec->constants[at]) dec->constants[at] = added;
    return added;
}

uint16_t emu_constant_register(decoder *dec, uint64_t value, int bits) {
    return constant_of(dec, REGISTER_CONSTANT, value, bits);
}

uint16_t emu_shared_register(decoder *dec, uint64_t address, int bits) {
    return constant_of(dec, REGISTER_SHARED_ADDRESS, address, bits);
}

static uint16_t special_register_of(decoder *dec, special_register which) {
    uint32_t *known = &dec->code->special_slots[which];
    if (!*known) {
        *known =
            1u + new_register(dec, (virtual_register){
                                       .prefix = "", .value = (uint64_t)which, .kind = REGISTER_SPECIAL, .bits = 32});
    }
    return (uint16_t)(*known - 1);
}

uint16_t emu_scratch_register(decoder *dec, int bits) {
    return new_register(dec, (virtual_register){.prefix = "(scratch)", .value = UINT64_MAX, .bits = (uint8_t)bits});
}

/* ---- functions ---- */

enum { MAX_ROUTINES = 2048 };

int emu_need_routine(decoder *dec, int index) {
    entry *code = dec->code;
    const function *wanted = &dec->load->module.functions[index];
    for (size_t i = 1; i < code->routine_count; i++) {
        if (code->routines[i].function == index) return (int)i;
    }
    if (!wanted->defined) emu_refuse(dec, "function '%.100s' has no body in this text", wanted->name);
    if (code->routine_count == MAX_ROUTINES)
        emu_load_fail(dec->load, 0, "entry '%.100s' calls more than %d functions", code->info.name, MAX_ROUTINES - 1);
    passed *formals = emu_load_alloc(dec->load, (size_t)(wanted->formal_count + 1) * sizeof *formals);
    for (int i = 0; i < wanted->formal_count; i++)
        formals[i] = (passed){wanted->formals[i].offset, wanted->formals[i].bytes};
    code->routines =
        load_grow(dec->load, code->routines, code->routine_count, &code->routine_capacity, sizeof *code->routines);
    code->routines[code->routine_count] = (routine){.name = wanted->name,
                                                    .function = index,
                                                    .formals = formals,
                                                    .results = wanted->results,
                                                    .formal_count = wanted->formal_count};
    return (int)code->routine_count++;
}

static void address_frame(decoder *dec, op *o, uint32_t offset) {
    o->space = SPACE_LOCAL;
    o->immediate = offset;
    if (dec->frame != NO_REGISTER) o->flags |= FLAG_WIDE_ADDRESS;
    add_source(o, dec->frame == NO_REGISTER ? emu_constant_register(dec, 0, 32) : (uint16_t)dec->frame);
}

/* Registers are passed in memory of their own width. */
static op *access_frame(decoder *dec, op_kind kind, uint16_t reg, const passed *where) {
    op *o = emu_emit(dec, kind);
    o->bytes = (uint8_t)where->bytes;
    o->vector = 1;
    if (kind == OP_LOAD) add_dest(o, reg);
    address_frame(dec, o, where->offset);
    if (kind == OP_STORE) add_source(o, reg);
    return o;
}

void emu_store_frame(decoder *dec, uint16_t reg, const passed *where) {
    access_frame(dec, OP_STORE, reg, where);
}

void emu_load_frame(decoder *dec, uint16_t reg, const passed *where) {
    const int bits = dec->code->registers[reg].bits;
    op *o = access_frame(dec, OP_LOAD, reg, where);
    o->detail = bits == 64 ? 1 : bits == 16 ? 16 : 0;
}

void emu_return_from_routine(decoder *dec) {
    const routine *own = &dec->code->routines[dec->routine];
    const function *from = &dec->load->module.functions[own->function];
    for (int i = 0; i < own->results; i++) {
        if (from->formals[i].in_register) emu_store_frame(dec, dec->formal_registers[i], &own->formals[i]);
    }
    emu_emit(dec, OP_RETURN);
}

/* The address of a variable in the frame of a function. */
static uint16_t frame_register(decoder *dec, const symbol *which, int64_t offset, int bits) {
    uint16_t distance = emu_constant_register(dec, which->offset + (uint64_t)offset, 64);
    uint16_t sum = emu_scratch_register(dec, 64);
    op *o = emu_emit(dec, OP_LANES);
    o->run.lanes = emu_lanes_add_64;
    add_dest(o, sum);
    add_source(o, (uint16_t)dec->frame);
    add_source(o, distance);
    if (bits == 64) return sum;
    uint16_t low = emu_scratch_register(dec, 32);
    o = emu_emit(dec, OP_LANES);
    o->run.lanes = emu_lanes_truncate;
    add_dest(o, low);
    add_source(o, sum);
    return low;
}

/* ---- symbols ---- */

uint64_t emu_symbol_address(const emu_module *module, const symbol *which) {
    if (which->space == SPACE_FUNCTION) return FUNCTION_WINDOW + 16ull * which->offset;
    if (which->space == SPACE_SHARED) return module->shared_base + (is_dynamic(which) ? 0 : which->offset);
    if (which->space == SPACE_GLOBAL || which->space == SPACE_CONST) {
        return ((uint64_t)which->buffer << BUFFER_SHIFT) + BUFFER_START + which->offset;
    }
    return which->offset;
}

void emu_await_dynamic(decoder *dec, enum awaiting what, uint32_t index) {
    dec->awaiting =
        load_grow(dec->load, dec->awaiting, dec->awaiting_count, &dec->awaiting_capacity, sizeof *dec->awaiting);
    dec->awaiting[dec->awaiting_count++] = (awaited){what, index};
}

/* The address of a variable as a constant. One in dynamic shared memory is no constant yet: it shares the register of
 * the last one that is alike, and no other. */
static uint16_t symbol_register(decoder *dec, const symbol *which, int64_t offset, int bits) {
    if (which->space == SPACE_LOCAL && dec->frame != NO_REGISTER) return frame_register(dec, which, offset, bits);
    if (which->space == SPACE_FUNCTION)
        dec->code->routines[emu_need_routine(dec, (int)which->offset)].address_taken = true;
    uint64_t value = emu_symbol_address(&dec->load->module, which) + (uint64_t)offset;
    if (which->space != SPACE_SHARED) return emu_constant_register(dec, value, bits);
    if (!is_dynamic(which)) return emu_shared_register(dec, value, bits);
    if (bits == 32) value = (uint32_t)value;
    for (size_t i = dec->awaiting_count; i-- > 0;) {
        if (dec->awaiting[i].what != AWAITING_REGISTER) continue;
        const virtual_register *last = &dec->code->registers[dec->awaiting[i].index];
        if (last->value == value && last->bits == bits) return (uint16_t)dec->awaiting[i].index;
        break;
    }
    uint16_t added = new_register(
        dec, (virtual_register){.prefix = "", .value = value, .kind = REGISTER_SHARED_ADDRESS, .bits = (uint8_t)bits});
    emu_await_dynamic(dec, AWAITING_REGISTER, added);
    return added;
}

/* ---- operands ---- */

static uint64_t literal_bits(decoder *dec, const operand *from, const type_info *type, int bits) {
    uint64_t value = (uint64_t)from->value;
    bool is_float = type && (type->family == 'f');
    if (type && strchr("hgHG", type->family)) emu_refuse(dec, "a number where .%s needs a register", type->name);
    if (from->kind == OPERAND_FLOAT32) {
        if (bits == 32) return value;
        if (bits != 64 || !is_float) emu_refuse(dec, "an f32 number where %d bits are needed", bits);
        uint32_t low = (uint32_t)value;
        float narrow;
        memcpy(&narrow, &low, sizeof narrow);
        double wide = (double)narrow;
        memcpy(&value, &wide, sizeof value);
        return value;
    }
    if (from->kind == OPERAND_FLOAT64) {
        if (bits == 64) return value;
        if (bits != 32 || !is_float) emu_refuse(dec, "an f64 number where %d bits are needed", bits);
        double wide;
        memcpy(&wide, &value, sizeof wide);
        float narrow = (float)wide;
        uint32_t result;
        memcpy(&result, &narrow, sizeof result);
        return result;
    }
    if (is_float) emu_refuse(dec, "an integer where a floating-point number is needed");
    return value;
}

/* On a device a part of shared memory belongs to the driver, and cooperative groups work in the upper half of it. Here
 * it is one more static variable of the entries that ask for it. */
static uint64_t reserved_address(decoder *dec, special_register which) {
    enum { RESERVED_BYTES = 1024 };
    if (!dec->reserved) {
        uint32_t offset = (dec->code->shared_bytes + 15) / 16 * 16;
        dec->reserved = dec->load->module.shared_base + offset;
        dec->code->shared_bytes = offset + RESERVED_BYTES;
    }
    bool begin = which == SPECIAL_RESERVED_BEGIN || which == SPECIAL_RESERVED_0;
    return dec->reserved + (begin ? 0 : which == SPECIAL_RESERVED_1 ? RESERVED_BYTES / 2 : RESERVED_BYTES);
}

/* A register that takes the time where it is read. */
static uint16_t clock_register(decoder *dec, special_register which, int bits) {
    int own = which == SPECIAL_CLOCK64 || which == SPECIAL_GLOBALTIMER ? 64 : 32;
    if (bits != own) emu_refuse(dec, "%s has %d bits where %d are needed", emu_special_name(which), own, bits);
    uint16_t result = emu_scratch_register(dec, bits);
    op *o = emu_emit(dec, OP_CLOCK);
    o->detail = (uint8_t)which;
    o->bytes = (uint8_t)(bits / 8);
    add_dest(o, result);
    return result;
}

/* A register and nothing about it. */
static inline bool is_plain(const operand *from) {
    return from->kind == OPERAND_REGISTER && !from->negated && from->second == NO_REGISTER;
}

uint16_t emu_source_of_type(decoder *dec, const operand *from, const type_info *type, enum width_rule rule) {
    int bits = type->bits < 16 ? 16 : type->bits;
    if (is_plain(from) && dec->code->registers[from->reg].bits == bits) return (uint16_t)from->reg;
    switch (from->kind) {
    case OPERAND_INTEGER:
    case OPERAND_FLOAT32:
    case OPERAND_FLOAT64:
        return emu_constant_register(dec, literal_bits(dec, from, type, bits), bits);
    case OPERAND_SYMBOL: {
        const symbol *which = &dec->load->module.symbols[from->symbol];
        if (bits < 32 || (bits == 32 && (which->space == SPACE_GLOBAL || which->space == SPACE_CONST))) {
            emu_refuse(dec, "the address of '%s' does not fit %d bits", which->name, bits);
        }
        return symbol_register(dec, which, from->value, bits);
    }
    case OPERAND_SPECIAL: {
        if (from->value >= SPECIAL_RESERVED_BEGIN)
            return emu_shared_register(dec, reserved_address(dec, (special_register)from->value), bits);
        if (from->value == SPECIAL_IS_EXPLICIT_CLUSTER)
            emu_refuse(dec, "%%is_explicit_cluster is a predicate where a register is needed");
        if (from->value >= SPECIAL_CLOCK) return clock_register(dec, (special_register)from->value, bits);
        if (bits == 32) return special_register_of(dec, (special_register)from->value);
        uint16_t whole = special_register_of(dec, (special_register)from->value);
        uint16_t result = emu_scratch_register(dec, bits);
        op *o = emu_emit(dec, OP_LANES);
        o->run.lanes = bits == 64 ? emu_lanes_wide_u32 : emu_lanes_low_16;
        add_dest(o, result);
        add_source(o, whole);
        return result;
    }
    case OPERAND_REGISTER:
        break;
    default:
        emu_refuse(dec, "a register or a number is needed");
    }
    if (!is_plain(from)) emu_refuse(dec, "'!' and '|' do not belong here");
    const virtual_register *reg = &dec->code->registers[from->reg];
    char name[64];
    emu_register_name(reg, name, sizeof name);
    if (reg->bits == 1) emu_refuse(dec, "predicate %s where a register is needed", name);
    if (rule == EXACT || reg->bits < bits) {
        emu_refuse(dec, "register %s has %d bits where %d are needed", name, reg->bits, bits);
    }
    if (reg->bits == 32) return (uint16_t)from->reg; /* a 16-bit reader looks at the low half only */
    if (reg->bits != 64) emu_refuse(dec, "register %s is too wide", name);
    uint16_t low = emu_scratch_register(dec, 32);
    op *o = emu_emit(dec, OP_LANES);
    o->run.lanes = emu_lanes_truncate;
    add_dest(o, low);
    add_source(o, (uint16_t)from->reg);
    return low;
}

uint16_t emu_source(decoder *dec, const operand *from, int bits, enum width_rule rule) {
    static const type_info plain[] = {{"b16", 16, 'b'}, {"b32", 32, 'b'}, {"b64", 64, 'b'}, {"b128", 128, 'b'}};
    return emu_source_of_type(dec, from, &plain[bits == 16 ? 0 : bits == 32 ? 1 : bits == 64 ? 2 : 3], rule);
}

uint16_t emu_dest(decoder *dec, const operand *to, int bits) {
    if (bits < 16) bits = 16;
    if (to->kind == OPERAND_SINK) return emu_scratch_register(dec, bits);
    if (to->kind != OPERAND_REGISTER || to->negated) emu_refuse(dec, "a destination register is needed");
    const virtual_register *reg = &dec->code->registers[to->reg];
    if (reg->bits != bits) {
        char name[64];
        emu_register_name(reg, name, sizeof name);
        emu_refuse(dec, "destination %s has %d bits where %d are needed", name, reg->bits, bits);
    }
    return (uint16_t)to->reg;
}

uint16_t emu_optional_predicate(decoder *dec, int reg) {
    if (reg == NO_REGISTER) return NO_PREDICATE;
    if (dec->code->registers[reg].bits != 1) emu_refuse(dec, "a predicate is needed");
    return dec->code->registers[reg].slot;
}

uint16_t emu_predicate(decoder *dec, const operand *which) {
    if (which->kind == OPERAND_SINK) return NO_PREDICATE;
    if (which->kind != OPERAND_REGISTER) emu_refuse(dec, "a predicate is needed");
    return emu_optional_predicate(dec, which->reg);
}

static uint16_t new_predicate(decoder *dec, const char *name) {
    uint16_t slot = (uint16_t)dec->code->predicate_count++;
    new_register(dec, (virtual_register){.prefix = name, .value = UINT64_MAX, .slot = slot, .bits = 1});
    return slot;
}

uint16_t emu_scratch_predicate(decoder *dec) {
    return new_predicate(dec, "(scratch)");
}

uint16_t emu_carry_predicate(decoder *dec) {
    if (dec->carry < 0) dec->carry = new_predicate(dec, "the carry (CC.CF)");
    return (uint16_t)dec->carry;
}

/* %is_explicit_cluster, the only special register that is a predicate. */
static uint16_t special_predicate(decoder *dec, const operand *from) {
    if (from->value != SPECIAL_IS_EXPLICIT_CLUSTER || from->negated) emu_refuse(dec, "a predicate is needed");
    uint16_t flag = special_register_of(dec, SPECIAL_IS_EXPLICIT_CLUSTER), none = emu_constant_register(dec, 0, 32);
    uint8_t wanted;
    op *o = emu_emit(dec, OP_COMPARE);
    o->run.compare = emu_find_compare("ne", emu_find_type("u32"), false, &wanted);
    o->immediate = wanted;
    o->p[0] = emu_scratch_predicate(dec);
    add_source(o, flag);
    add_source(o, none);
    return o->p[0];
}

uint16_t emu_predicate_source(decoder *dec, const operand *from) {
    if (from->kind == OPERAND_SPECIAL) return special_predicate(dec, from);
    bool number = from->kind == OPERAND_INTEGER;
    uint16_t known = number ? NO_PREDICATE : emu_predicate(dec, from);
    if (!number && known == NO_PREDICATE) emu_refuse(dec, "a predicate is needed");
    if (!number && !from->negated) return known;
    uint16_t result = emu_scratch_predicate(dec);
    op *o = emu_emit(dec, OP_PREDICATE);
    o->p[0] = result;
    o->p[1] = known;
    o->detail = number ? PREDICATE_MOVE : PREDICATE_NOT;
    o->immediate = number && from->value;
    return result;
}

/* ---- addresses and vectors ---- */

/* The space of [address]: a .param variable of a call scope is in the thread's own memory. */
static state_space real_space(decoder *dec, const operand *address, state_space stated) {
    if (address->symbol < 0) return stated == SPACE_PARAM && dec->frame != NO_REGISTER ? SPACE_LOCAL : stated;
    const symbol *which = &dec->load->module.symbols[address->symbol];
    if (stated == SPACE_PARAM && which->space == SPACE_LOCAL) return SPACE_LOCAL;
    bool same = which->space == stated || (which->space == SPACE_CONST && stated == SPACE_GLOBAL) ||
                (which->space == SPACE_SHARED && stated == SPACE_CLUSTER);
    if (stated == SPACE_GENERIC && (which->space == SPACE_GLOBAL || which->space == SPACE_SHARED ||
                                    which->space == SPACE_LOCAL)) /* as ptxas: a name says its space */
        return which->space;
    if (!same) emu_refuse(dec, "'%s' is not in the space of this access", which->name);
    return stated;
}

uint16_t emu_base_register(decoder *dec, const operand *address, state_space space) {
    const bool own = space == SPACE_SHARED || (space == SPACE_CLUSTER && address->symbol >= 0);
    return own ? emu_shared_register(dec, 0, 32) : emu_constant_register(dec, 0, 32);
}

void emu_add_address(decoder *dec, op *o, const operand *address, state_space space) {
    if (address->kind != OPERAND_ADDRESS) emu_refuse(dec, "an [address] is needed");
    o->space = (uint8_t)real_space(dec, address, space);
    if (space == SPACE_PARAM && o->space == SPACE_LOCAL) o->flags |= FLAG_PASSES;
    o->immediate = address->value;
    if (address->symbol >= 0) {
        const symbol *which = &dec->load->module.symbols[address->symbol];
        if (which->space == SPACE_LOCAL) {
            address_frame(dec, o, which->offset);
            o->immediate += address->value;
            return;
        }
        o->immediate += (int64_t)emu_symbol_address(&dec->load->module, which);
        if (is_dynamic(which)) emu_await_dynamic(dec, AWAITING_ADDRESS, (uint32_t)(o - dec->code->ops));
    }
    if (address->reg == NO_REGISTER) {
        add_source(o, emu_base_register(dec, address, (state_space)o->space));
        return;
    }
    const virtual_register *base = &dec->code->registers[address->reg];
    if (base->bits != 32 && base->bits != 64) emu_refuse(dec, "the register of an address has 32 or 64 bits");
    if (base->bits == 32 && (space == SPACE_GLOBAL || space == SPACE_GENERIC)) {
        emu_refuse(dec, "the address register has 32 bits where 64 are needed");
    }
    if (base->bits == 64) o->flags |= FLAG_WIDE_ADDRESS;
    add_source(o, (uint16_t)address->reg);
}

const operand *emu_elements(decoder *dec, const operand *whole, int count) {
    if (count == 1) return whole->kind == OPERAND_VECTOR && whole->count == 1 ? whole->items : whole;
    if (whole->kind != OPERAND_VECTOR || whole->count != count)
        emu_refuse(dec, "a vector of %d elements is needed", count);
    return whole->items;
}

int64_t emu_group_count(decoder *dec, int index, int64_t most) {
    const operand *groups = operand_at(dec, index);
    if (groups->kind != OPERAND_INTEGER || groups->value < 0 || groups->value > most)
        emu_refuse(dec, "a number of groups from 0 to %" PRId64 " is needed", most);
    return groups->value;
}

/* ---- operands that a row names ---- */

/* One operand of a row's text: "d.32|p", "[a]", "mask.32", with the width of the first type where it names none. */
typedef struct named_operand {
    char name; /* its first letter */
    bool has_predicate;
    int bits;
} named_operand;

/* Read the operand at *text and step over it; false at the end of the text. */
static bool next_named(const form_match *match, const char **text, named_operand *out) {
    const char *at = *text;
    const size_t length = strcspn(at, ",");
    const char *dot = memchr(at, '.', length);
    if (!*at) return false;
    *out = (named_operand){.name = *at, .has_predicate = memchr(at, '|', length) != NULL};
    if (dot)
        out->bits = dot[1] == '1' ? 16 : dot[1] == '3' ? 32 : 64;
    else if (match->type_count)
        out->bits = match->types[0]->bits;
    *text = at + length + (at[length] ? 2 : 0);
    return true;
}

op *emu_emit_operands(decoder *dec, const form_match *match) {
    named_operand each;
    uint16_t sources[MAX_OPERANDS], dest = 0, predicate = NO_PREDICATE;
    int count = 0, read = 0, address = -1;
    bool writes = false;
    for (const char *text = match->operands; next_named(match, &text, &each);) count++;
    emu_expect_operands(dec, count, count);
    count = 0;
    for (const char *text = match->operands; next_named(match, &text, &each); count++) {
        const operand *from = operand_at(dec, count);
        if (each.name == '[') {
            address = count;
        } else if (each.name == 'd') {
            writes = true;
            dest = emu_dest(dec, from, each.bits);
            if (!each.has_predicate && from->second != NO_REGISTER)
                emu_refuse(dec, "a second destination is not allowed");
            predicate = emu_optional_predicate(dec, from->second);
        } else {
            sources[read++] = emu_source(dec, from, each.bits, EXACT);
        }
    }
    op *o = emu_emit(dec, match->kind);
    o->p[0] = predicate;
    if (writes) add_dest(o, dest);
    if (address >= 0) emu_add_address(dec, o, operand_at(dec, address), match->space);
    for (int i = 0; i < read; i++) add_source(o, sources[i]);
    return o;
}
