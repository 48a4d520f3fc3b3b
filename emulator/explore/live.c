/* live.c - which registers of a decoded entry may still be read, before each op. */
#include "state.h"

#include <stdlib.h>

static uint32_t slots_of(const entry *code, size_t op, int operand) {
    const uint32_t bits = code->registers[code->names[op][operand]].bits;
    return bits == 128 ? 4 : bits == 64 ? 2 : 1;
}

static void set_bits(uint64_t *set, uint32_t first, uint32_t count, bool on) {
    for (uint32_t i = first; i < first + count; i++) {
        if (on)
            set[i / 64] |= 1ull << i % 64;
        else
            set[i / 64] &= ~(1ull << i % 64);
    }
}

/* From the sets after an op to that before it. */
static void step_back(const entry *code, size_t i, uint64_t *set) {
    const op *o = &code->ops[i];
    const uint32_t predicates = code->slot_count;
    const bool two = o->kind == OP_COMPARE;
    for (int k = 0; k < o->dests && o->guard == NO_PREDICATE; k++) set_bits(set, o->r[k], slots_of(code, i, k), false);
    if (o->guard == NO_PREDICATE && o->p[0] != NO_PREDICATE) set_bits(set, predicates + o->p[0], 1, false);
    if (o->guard == NO_PREDICATE && o->p[1] != NO_PREDICATE && two) set_bits(set, predicates + o->p[1], 1, false);
    for (int k = o->dests; k < o->dests + o->sources; k++) set_bits(set, o->r[k], slots_of(code, i, k), true);
    if (o->guard != NO_PREDICATE) set_bits(set, predicates + o->guard, 1, true);
    if (o->p[1] != NO_PREDICATE && !two) set_bits(set, predicates + o->p[1], 1, true);
    if (o->p[2] != NO_PREDICATE) set_bits(set, predicates + o->p[2], 1, true);
}

static bool has_calls(const entry *code) {
    for (size_t i = 0; i < code->op_count; i++)
        if (code->ops[i].kind == OP_CALL) return true;
    return code->routine_count > 1;
}

/* True if the set before op i has grown. */
static bool find_before(const entry *code, size_t words, uint64_t *sets, size_t i, uint64_t *set) {
    const op *o = &code->ops[i];
    const bool jumps = o->kind == OP_BRANCH, always = o->guard == NO_PREDICATE;
    const bool ends = o->kind == OP_EXIT || jumps;
    bool grown = false;
    for (size_t k = 0; k < words; k++) {
        set[k] = i + 1 < code->op_count && !(ends && always) ? sets[(i + 1) * words + k] : 0;
        if (jumps) set[k] |= sets[(size_t)o->target * words + k];
    }
    step_back(code, i, set);
    for (size_t k = 0; k < words; k++) {
        grown |= set[k] != sets[i * words + k];
        sets[i * words + k] = set[k];
    }
    return grown;
}

live_sets emu_find_live(const entry *code) {
    live_sets live = {.words = (code->slot_count + code->predicate_count + 64) / 64};
    live.sets = calloc(code->op_count + 1, live.words * sizeof *live.sets);
    if (!live.sets) return live;
    uint64_t *set = live.sets + code->op_count * live.words;
    if (has_calls(code)) memset(live.sets, 0xff, code->op_count * live.words * sizeof *live.sets);
    for (bool grown = !has_calls(code); grown;) {
        grown = false;
        for (size_t i = code->op_count; i-- > 0;) grown |= find_before(code, live.words, live.sets, i, set);
    }
    return live;
}
