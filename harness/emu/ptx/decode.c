/* decode.c - an entry from statements to ops: each statement by the rule of its form; labels and dynamic shared memory
 * at the end. */
#include "decode.h"

#include "forms.h"

enum { DYNAMIC_SHARED_ALIGNMENT = 128 };

/* ---- what is known at the end of the entry only ---- */

/* Dynamic shared memory begins behind all static variables, the last of which is known at the end of the entry. */
static void place_dynamic(decoder *dec) {
    entry *code = dec->code;
    const int64_t base =
        (code->shared_bytes + DYNAMIC_SHARED_ALIGNMENT - 1) / DYNAMIC_SHARED_ALIGNMENT * DYNAMIC_SHARED_ALIGNMENT;
    for (size_t i = 0; i < dec->awaiting_count; i++) {
        const awaited *each = &dec->awaiting[i];
        if (each->what == AWAITING_REGISTER) {
            virtual_register *reg = &code->registers[each->index];
            reg->value += (uint64_t)base;
            if (reg->bits == 32) reg->value = (uint32_t)reg->value;
        } else if (each->what == AWAITING_ADDRESS) {
            code->ops[each->index].immediate += base;
        } else {
            op *o = &code->ops[each->index];
            if (o->target + base > INT32_MAX)
                emu_load_fail(dec->load, code->instructions[o->instruction].line,
                              "the offset does not fit shared memory");
            o->target += (int32_t)base;
        }
    }
}

/* The labels of an entry by name and scope: in each place 1 + an index, or 0. */
typedef struct label_table {
    const entry_body *body;
    uint32_t *places;
    size_t mask;
} label_table;

/* The place of a label, or the free one where it belongs. */
static uint32_t *label_place(const label_table *table, const char *name, uint32_t length, int scope) {
    uint32_t hash = (uint32_t)scope * 0x9e3779b9u;
    for (uint32_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)name[i]) * 16777619u;
    for (size_t at = hash ^ hash >> 15;; at++) {
        uint32_t *place = &table->places[at & table->mask];
        const label *known = *place ? &table->body->labels[*place - 1] : NULL;
        if (!known || (known->scope == scope && known->length == length && !memcmp(known->name, name, length)))
            return place;
    }
}

static label_table index_labels(decoder *dec) {
    label_table table = {.body = dec->code->body, .mask = 15};
    while (table.mask < 2 * table.body->label_count) table.mask = 2 * table.mask + 1;
    table.places = emu_load_alloc(dec->load, (table.mask + 1) * sizeof *table.places);
    for (size_t i = 0; i < table.body->label_count; i++) {
        const label *each = &table.body->labels[i];
        uint32_t *place = label_place(&table, each->name, each->length, each->scope);
        if (*place)
            emu_load_fail(dec->load, each->line, "label '%.*s' is defined twice: line %d has it too",
                          each->length > 60 ? 60 : (int)each->length, each->name, table.body->labels[*place - 1].line);
        *place = (uint32_t)i + 1;
    }
    return table;
}

/* From the scope of a branch outwards. */
static const label *find_label(const label_table *table, const operand *where) {
    for (int scope = (int)where->value; scope >= 0; scope = table->body->scope_parents[scope]) {
        uint32_t index = *label_place(table, where->name, where->length, scope);
        if (index) return &table->body->labels[index - 1];
    }
    return NULL;
}

static void place_branches(decoder *dec) {
    entry *code = dec->code;
    const label_table labels = index_labels(dec);
    for (size_t i = 0; i < dec->branch_count; i++) {
        const operand *where = &dec->branches[i].label;
        op *o = &code->ops[dec->branches[i].op];
        const instruction *in = &code->instructions[o->instruction];
        const label *to = find_label(&labels, where);
        if (!to)
            emu_load_fail(dec->load, in->line, "label '%.*s' is not defined here, in '%.100s'",
                          where->length > 60 ? 60 : (int)where->length, where->name, in->text);
        o->target = (int32_t)to->op;
    }
}

/* ---- an entry ---- */

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

decoder *emu_decode_begin(loader *load, entry *code) {
    static const statement nothing = {.text = "", .guard = NO_REGISTER};
    decoder *dec = emu_load_alloc(load, sizeof *dec);
    dec->load = load;
    dec->code = code;
    dec->in = &nothing;
    dec->carry = -1;
    code->granule_bytes = 16;
    emu_scratch_register(dec, 32); /* register 0 stands for none in tables of registers */
    return dec;
}

void emu_decode_statement(decoder *dec, const statement *in) {
    entry *code = dec->code;
    dec->in = in;
    dec->first = true;
    dec->index = (uint32_t)code->instruction_count - 1;
    if (!in->opcode->form) in->opcode->form = emu_find_form(dec->load, in, &in->opcode->match);
    const form *form = in->opcode->form;
    dec->lanes = form->lanes;
    code->instructions[dec->index].group = form->row.group;
    form->decode(dec, &in->opcode->match);
    if (dec->first) emu_emit(dec, OP_NOTHING); /* such as a mov to nowhere */
}

void emu_decode_end(decoder *dec) {
    entry *code = dec->code;
    const statement end = {.text = "(end of the entry)", .guard = NO_REGISTER};
    dec->in = &end;
    dec->first = false;
    emu_emit(dec, OP_EXIT); /* falling off the end returns */
    place_branches(dec);
    place_dynamic(dec);
    for (size_t i = 0; i < code->op_count; i++) note_shared_use(code, &code->ops[i]);
}
