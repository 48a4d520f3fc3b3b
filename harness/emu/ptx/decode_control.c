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

void emu_decode_exit(decoder *dec, const form_match *match) {
    (void)match;
    emu_expect_operands(dec, 0, 0);
    emu_emit(dec, OP_EXIT);
}

void emu_decode_trap(decoder *dec, const form_match *match) {
    (void)match;
    emu_expect_operands(dec, 0, 0);
    emu_emit(dec, OP_TRAP);
}

void emu_decode_nothing(decoder *dec, const form_match *match) {
    (void)match;
    emu_emit(dec, OP_NOTHING);
}

static bool is_named(const operand *which, const char *name) {
    return which->length == strlen(name) && !memcmp(which->name, name, which->length);
}

/* Parameters of a call are variables of the thread's own memory: their offsets are what the built-in reads. */
void emu_decode_call(decoder *dec, const form_match *match) {
    (void)match;
    const operand *name = NULL, *arguments = NULL;
    for (int i = 0; i < dec->in->operand_count; i++) {
        const operand *each = operand_at(dec, i);
        if (each->kind == OPERAND_LABEL) name = each;
        if (each->kind == OPERAND_LIST && name) arguments = each;
    }
    bool print = name && is_named(name, "vprintf"), assertion = name && is_named(name, "__assertfail");
    if (!print && !assertion) emu_refuse(dec, "calls are supported to vprintf and __assertfail only");
    int wanted = print ? 2 : 5;
    if (!arguments || arguments->count != wanted) emu_refuse(dec, "the call needs %d arguments", wanted);
    op *o = emu_emit(dec, OP_CALL);
    o->detail = print ? CALL_PRINTF : CALL_ASSERT;
    for (int i = 0; i < 4; i++) {
        const operand *each = &arguments->items[i < wanted ? i : wanted - 1];
        if (each->kind != OPERAND_SYMBOL || dec->load->module.symbols[each->symbol].space != SPACE_LOCAL) {
            emu_refuse(dec, "an argument is not a .param variable of this scope");
        }
        /* offsets of the arguments, as constants that are never read through registers */
        o->r[8 + i] = (uint16_t)(dec->load->module.symbols[each->symbol].offset);
        if (dec->load->module.symbols[each->symbol].offset > UINT16_MAX)
            emu_refuse(dec, "too much local memory before a call");
    }
}
