/* decode_control.c - from statements to ops: branches, exits, calls, and what does nothing here. */
#include "builder.h"
#include "decode_rules.h"

/* Labels may follow: where branches go is known at the end of the entry. */
void emu_decode_branch(decoder *dec, const form_match *match) {
    (void)match;
    emu_expect_operands(dec, 1, 1);
    const operand *where = operand_at(dec, 0);
    if (where->kind != OPERAND_LABEL) emu_refuse(dec, "a label is needed");
    dec->branches =
        load_grow(dec->load, dec->branches, dec->branch_count, &dec->branch_capacity, sizeof *dec->branches);
    dec->branches[dec->branch_count++] = (branch){*where, (uint32_t)dec->code->op_count};
    emu_emit(dec, OP_BRANCH);
}

static void branch_to(decoder *dec, const operand *where, uint16_t guard) {
    dec->branches =
        load_grow(dec->load, dec->branches, dec->branch_count, &dec->branch_capacity, sizeof *dec->branches);
    dec->branches[dec->branch_count++] = (branch){*where, (uint32_t)dec->code->op_count};
    op *o = emu_emit(dec, OP_BRANCH);
    o->guard = guard;
    o->flags &= (uint16_t)~FLAG_GUARD_NEGATED;
}

static const branch_table *find_table(const decoder *dec, const operand *where) {
    const entry_body *body = dec->code->body;
    for (const branch_table *each = body->tables; each; each = each->next) {
        if (each->own.length != where->length || memcmp(each->own.name, where->name, where->length)) continue;
        for (int scope = (int)where->value; scope >= 0; scope = body->scope_parents[scope]) {
            if (scope == each->own.scope) return each;
        }
    }
    return NULL;
}

/* The labels one after another: each comparison, then a branch of the lanes that it holds for. */
void emu_decode_branch_indexed(decoder *dec, const form_match *match) {
    (void)match;
    emu_expect_operands(dec, 2, 2);
    const operand *where = operand_at(dec, 1);
    const branch_table *table = where->kind == OPERAND_LABEL ? find_table(dec, where) : NULL;
    if (!table) emu_refuse(dec, "a .branchtargets ahead of this is needed");
    const uint16_t index = emu_source(dec, operand_at(dec, 0), 32, EXACT), chosen = emu_scratch_predicate(dec);
    const int guard = dec->in->guard;
    for (int i = 0; i < table->count; i++) {
        const uint16_t number = emu_constant_register(dec, (uint64_t)i, 32);
        uint8_t wanted;
        op *o = emu_emit(dec, OP_COMPARE);
        o->run.compare = emu_find_compare("eq", emu_find_type("u32"), false, &wanted);
        o->immediate = wanted;
        o->p[0] = chosen;
        if (guard != NO_REGISTER) { /* where it does not hold, no lane is chosen */
            o->detail = COMBINE_AND;
            o->p[2] = o->guard;
            if (o->flags & FLAG_GUARD_NEGATED) o->flags |= FLAG_PREDICATE_NEGATED;
            o->guard = NO_PREDICATE;
            o->flags &= (uint16_t)~FLAG_GUARD_NEGATED;
        }
        add_source(o, index);
        add_source(o, number);
        branch_to(dec, &table->targets[i], chosen);
    }
    if (guard == NO_REGISTER) emu_emit(dec, OP_TRAP)->detail = TRAP_NO_TARGET;
}

void emu_decode_exit(decoder *dec, const form_match *match) {
    (void)match;
    emu_expect_operands(dec, 0, 0);
    if (dec->routine && !strcmp(dec->in->opcode->pieces[0], "ret"))
        emu_return_from_routine(dec);
    else
        emu_emit(dec, OP_EXIT);
}

void emu_decode_nothing(decoder *dec, const form_match *match) {
    emu_emit(dec, match->kind);
}

/* A form whose op needs nothing but the operands of its row. */
void emu_decode_plain(decoder *dec, const form_match *match) {
    emu_emit_operands(dec, match);
}

/* ---- calls ---- */

static const struct built_in {
    const char *name;
    int results, parameters;
    enum call_target target;
} built_ins[] = {
    {"vprintf", 1, 2, CALL_PRINTF}, /* its result may be left out */
    {"__assertfail", 0, 5, CALL_ASSERT},
    {"malloc", 1, 1, CALL_MALLOC},
    {"free", 0, 1, CALL_FREE},
};

static const struct built_in *find_built_in(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof built_ins / sizeof *built_ins; i++) {
        if (strlen(built_ins[i].name) == length && !memcmp(built_ins[i].name, name, length)) return &built_ins[i];
    }
    return NULL;
}

/* Operands of a call: a list of results, the function, a list of parameters, and for calls by address a prototype. */
typedef struct call_operands {
    const operand *results, *target, *parameters;
    int result_count, parameter_count;
} call_operands;

static call_operands split_operands(decoder *dec) {
    call_operands c = {0};
    int at = 0;
    if (operand_at(dec, at)->kind == OPERAND_LIST) {
        c.results = operand_at(dec, at)->items;
        c.result_count = operand_at(dec, at++)->count;
    }
    c.target = operand_at(dec, at++);
    if (at < dec->in->operand_count && operand_at(dec, at)->kind == OPERAND_LIST) {
        c.parameters = operand_at(dec, at)->items;
        c.parameter_count = operand_at(dec, at++)->count;
    }
    const bool by_address = c.target->kind == OPERAND_REGISTER;
    emu_expect_operands(dec, at, at + by_address);
    return c;
}

/* A register or a number is passed in memory too: room for it in the frame of the caller. */
static passed temporary(decoder *dec, uint32_t bytes) {
    entry *code = dec->code;
    passed where = {(code->local_bytes + bytes - 1) / bytes * bytes, bytes};
    code->local_bytes = where.offset + bytes;
    return where;
}

static const symbol *local_variable(const decoder *dec, const operand *each) {
    const symbol *which = each->kind == OPERAND_SYMBOL ? &dec->load->module.symbols[each->symbol] : NULL;
    return which && which->space == SPACE_LOCAL && !each->value ? which : NULL;
}

/* Memory of the caller in which a parameter or result is passed. formal: NULL in a call by address. */
static passed pass(decoder *dec, const operand *each, const formal *as, bool result) {
    const symbol *variable = local_variable(dec, each);
    if (variable) {
        if (as && variable->bytes != as->bytes)
            emu_refuse(dec, "'%.60s' has %u bytes where the function takes %u", variable->name,
                       (unsigned)variable->bytes, as->bytes);
        return (passed){variable->offset, (uint32_t)variable->bytes};
    }
    if (!as || as->bytes * 8 != as->bits || as->bits > 64)
        emu_refuse(dec, "an argument is not a .param variable of this scope");
    passed where = temporary(dec, as->bytes);
    if (!result) emu_store_frame(dec, emu_source(dec, each, as->bits < 16 ? 16 : as->bits, WIDER), &where);
    return where;
}

static void decode_built_in(decoder *dec, const call_operands *c, const struct built_in *what, call_site *site) {
    if (c->parameter_count != what->parameters) emu_refuse(dec, "the call needs %d arguments", what->parameters);
    if (c->result_count > what->results) emu_refuse(dec, "the call gives %d results", what->results);
    for (int i = 0; i < c->result_count + c->parameter_count; i++) {
        const operand *each = i < c->result_count ? &c->results[i] : &c->parameters[i - c->result_count];
        if (!local_variable(dec, each)) emu_refuse(dec, "an argument is not a .param variable of this scope");
    }
    site->callee = CALLEE_BUILT_IN;
}

void emu_decode_call(decoder *dec, const form_match *match) {
    (void)match;
    entry *code = dec->code;
    const call_operands c = split_operands(dec);
    const function *called = NULL;
    const struct built_in *built_in = NULL;
    call_site site = {.caller = dec->routine,
                      .callee = CALLEE_BY_ADDRESS,
                      .results = c.result_count,
                      .actual_count = c.result_count + c.parameter_count};
    int address = NO_REGISTER;
    if (c.target->kind == OPERAND_SYMBOL && dec->load->module.symbols[c.target->symbol].space == SPACE_FUNCTION) {
        const uint32_t index = dec->load->module.symbols[c.target->symbol].offset;
        called = &dec->load->module.functions[index];
        if (!called->defined) built_in = find_built_in(called->name, strlen(called->name));
        if (!built_in) site.callee = emu_need_routine(dec, (int)index);
    } else if (c.target->kind == OPERAND_REGISTER) {
        address = emu_source(dec, c.target, 64, EXACT);
        dec->calls_by_address = true;
    } else {
        if (c.target->kind == OPERAND_LABEL) built_in = find_built_in(c.target->name, c.target->length);
        if (!built_in) emu_refuse(dec, "a call needs a function that is declared before it, or a register");
    }
    if (built_in) {
        decode_built_in(dec, &c, built_in, &site);
    } else if (called && (c.result_count != called->results || site.actual_count != called->formal_count)) {
        emu_refuse(dec, "%d results and %d arguments where '%.60s' has %d and %d", c.result_count, c.parameter_count,
                   called->name, called->results, called->formal_count - called->results);
    }
    passed *actuals = emu_load_alloc(dec->load, (size_t)(site.actual_count + 1) * sizeof *actuals);
    for (int i = 0; i < site.actual_count; i++) {
        const bool result = i < c.result_count;
        const formal *as = called && !built_in ? &called->formals[i] : NULL;
        actuals[i] = pass(dec, result ? &c.results[i] : &c.parameters[i - c.result_count], as, result);
    }
    site.actuals = actuals;
    op *o = emu_emit(dec, match->kind);
    o->detail = (uint8_t)(built_in ? built_in->target : CALL_ROUTINE);
    o->immediate = (int64_t)code->call_count;
    if (address != NO_REGISTER) add_source(o, (uint16_t)address);
    code->calls = load_grow(dec->load, code->calls, code->call_count, &code->call_capacity, sizeof *code->calls);
    code->calls[code->call_count++] = site;
    for (int i = 0; i < c.result_count; i++) {
        if (!local_variable(dec, &c.results[i]) && c.results[i].kind != OPERAND_SINK)
            emu_load_frame(dec, emu_dest(dec, &c.results[i], called->formals[i].bits), &actuals[i]);
    }
}
