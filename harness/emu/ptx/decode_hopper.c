/* decode_hopper.c - from statements to ops: what sm_90 and sm_90a add. */
#include "builder.h"
#include "decode_rules.h"

#include <stdlib.h>

/* An operand that must be one of two numbers. */
static bool is_second(decoder *dec, int index, int64_t first, int64_t second, const char *name) {
    const operand *which = operand_at(dec, index);
    if (which->kind != OPERAND_INTEGER || (which->value != first && which->value != second))
        emu_refuse(dec, "%s is %d or %d", name, (int)first, (int)second);
    return which->value == second;
}

void emu_decode_proxy_fence(decoder *dec, const form_match *match) {
    (void)match;
    emu_expect_operands(dec, 0, 0);
    emu_emit(dec, OP_PROXY_FENCE);
}

/* ---- wgmma ---- */

/* Whether the products are added to the accumulators: a predicate or a number. */
static uint16_t scale_d(decoder *dec, const operand *which, uint8_t *detail) {
    if (which->kind == OPERAND_INTEGER) {
        if (which->value) *detail |= WGMMA_ADDS;
        return NO_PREDICATE;
    }
    uint16_t predicate = emu_predicate(dec, which);
    if (predicate == NO_PREDICATE || which->negated) emu_refuse(dec, "scale-d is a predicate, 0 or 1");
    return predicate;
}

static int columns_of(const form_match *match) {
    for (int i = 0; i < match->chosen_count; i++) {
        if (match->chosen[i] && !strncmp(match->chosen[i], "m64n", 4)) return atoi(match->chosen[i] + 4);
    }
    return 0;
}

/* One op for every eight columns, as many registers have place in one. The first does the work of all. */
void emu_decode_wgmma(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 7, 8);
    const int columns = columns_of(match), accumulators = columns / 2;
    const operand *to = operand_at(dec, 0), *from = operand_at(dec, 1);
    const bool registers = from->kind == OPERAND_VECTOR;
    emu_expect_operands(dec, registers ? 7 : 8, registers ? 7 : 8);
    if (to->kind != OPERAND_VECTOR || to->count != accumulators)
        emu_refuse(dec, "D is a vector of %d registers for %d columns", accumulators, columns);
    if (registers && from->count != 4) emu_refuse(dec, "A is a descriptor or a vector of 4 registers");
    uint8_t detail = emu_chose(match, "bf16") ? WGMMA_BF16 : 0;
    uint16_t a[4], b = emu_source(dec, operand_at(dec, 2), 64, EXACT);
    for (int i = 0; i < (registers ? 4 : 1); i++)
        a[i] = registers ? emu_source(dec, &from->items[i], 32, EXACT) : emu_source(dec, from, 64, EXACT);
    const uint16_t adds = scale_d(dec, operand_at(dec, 3), &detail);
    if (registers) detail |= WGMMA_A_REGISTERS;
    if (is_second(dec, 4, 1, -1, "scale-a")) detail |= WGMMA_NEGATE_A;
    if (is_second(dec, 5, 1, -1, "scale-b")) detail |= WGMMA_NEGATE_B;
    if (!registers && is_second(dec, 6, 0, 1, "trans-a")) detail |= WGMMA_TRANSPOSE_A;
    if (is_second(dec, registers ? 6 : 7, 0, 1, "trans-b")) detail |= WGMMA_TRANSPOSE_B;
    for (int j = 0; j < columns / 8; j++) {
        op *o = emu_emit(dec, OP_WGMMA);
        o->detail = detail;
        o->vector = (uint8_t)(columns / 8);
        o->immediate = j;
        o->p[2] = adds;
        for (int i = 0; i < 4; i++) add_dest(o, emu_dest(dec, &to->items[4 * j + i], 32));
        add_source(o, b);
        for (int i = 0; i < (registers ? 4 : 1); i++) add_source(o, a[i]);
        for (int i = 0; i < 4 && (detail & WGMMA_ADDS || adds != NO_PREDICATE); i++) add_source(o, o->r[i]);
    }
}

void emu_decode_wgmma_order(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 0, 0);
    emu_emit(dec, emu_chose(match, "fence") ? OP_WGMMA_FENCE : OP_WGMMA_COMMIT);
}

void emu_decode_wgmma_wait(decoder *dec, const form_match *match) {
    (void)match;
    emu_expect_operands(dec, 1, 1);
    const operand *groups = operand_at(dec, 0);
    if (groups->kind != OPERAND_INTEGER || groups->value < 0 || groups->value > 7)
        emu_refuse(dec, "a number of groups from 0 to 7 is needed");
    emu_emit(dec, OP_WGMMA_WAIT)->immediate = groups->value;
}
