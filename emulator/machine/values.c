/* values.c - the operations that work on registers alone, and the steps of a copy of a warp by them. */
#include "machine.h"

#include <fenv.h>

static const uint32_t lane_bit[LANES] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,  1u << 8,  1u << 9,  1u << 10,
    1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21,
    1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};

static void blend32(uint32_t *d, const uint32_t *from, uint32_t mask) {
    for (int i = 0; i < LANES; i++) d[i] = mask & lane_bit[i] ? from[i] : d[i];
}

static void blend64(uint64_t *d, const uint64_t *from, uint32_t mask) {
    for (int i = 0; i < LANES; i++) {
        if (mask >> i & 1) d[i] = from[i];
    }
}

void emu_exec_lanes(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m;
    uint64_t scratch[2 * LANES];
    uint32_t last_two[2 * LANES];
    void *d = mask == ALL_LANES ? (void *)slot32(w, o->r[0]) : scratch;
    const void *c = slot32(w, o->r[3]);
    if (o->kind == OP_LANES_4) {
        memcpy(last_two, c, LANES * sizeof *last_two);
        memcpy(last_two + LANES, slot32(w, o->r[4]), LANES * sizeof *last_two);
        c = last_two;
    }
    o->run.lanes(d, slot32(w, o->r[1]), slot32(w, o->r[2]), c);
    if (mask == ALL_LANES) return;
    if (o->bytes == 4) {
        blend32(slot32(w, o->r[0]), (const uint32_t *)(const void *)scratch, mask);
    } else {
        blend64(slot64(w, o->r[0]), scratch, mask);
        if (o->bytes == 16) blend64(slot64(w, o->r[0]) + LANES, scratch + LANES, mask);
    }
}

/* Lane functions round as the host's floating-point unit does. */
void emu_exec_rounded(cta *m, warp *w, const op *o, uint32_t mask) {
    static const int modes[] = {[ROUND_NEAREST] = FE_TONEAREST,
                                [ROUND_ZERO] = FE_TOWARDZERO,
                                [ROUND_DOWN] = FE_DOWNWARD,
                                [ROUND_UP] = FE_UPWARD};
    fesetround(modes[o->detail]);
    emu_exec_lanes(m, w, o, mask);
    fesetround(FE_TONEAREST);
}

void emu_exec_select(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m;
    uint32_t first = w->predicates[o->p[2]];
    if (o->bytes == 8) {
        uint64_t *d = slot64(w, o->r[0]);
        const uint64_t *a = slot64(w, o->r[1]), *b = slot64(w, o->r[2]);
        for (int i = 0; i < LANES; i++) d[i] = !(mask & lane_bit[i]) ? d[i] : first & lane_bit[i] ? a[i] : b[i];
        return;
    }
    uint32_t *d = slot32(w, o->r[0]);
    const uint32_t *a = slot32(w, o->r[1]), *b = slot32(w, o->r[2]);
    for (int i = 0; i < LANES; i++) d[i] = !(mask & lane_bit[i]) ? d[i] : first & lane_bit[i] ? a[i] : b[i];
}

static void set_predicate(warp *w, unsigned p, uint32_t value, uint32_t mask) {
    if (p != NO_PREDICATE) w->predicates[p] = (w->predicates[p] & ~mask) | (value & mask);
}

void emu_exec_compare(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m;
    uint32_t value = o->run.compare(slot32(w, o->r[0]), slot32(w, o->r[1]), (uint32_t)o->immediate), opposite = ~value;
    if (o->detail) {
        uint32_t other = w->predicates[o->p[2]] ^ (o->flags & FLAG_PREDICATE_NEGATED ? ALL_LANES : 0);
        value = o->detail == COMBINE_AND ? value & other : o->detail == COMBINE_OR ? value | other : value ^ other;
        opposite = o->detail == COMBINE_AND  ? opposite & other
                   : o->detail == COMBINE_OR ? opposite | other
                                             : opposite ^ other;
    }
    set_predicate(w, o->p[0], value, mask);
    set_predicate(w, o->p[1], opposite, mask);
}

void emu_exec_predicate(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m;
    uint32_t a = o->p[1] == NO_PREDICATE ? (o->immediate ? ALL_LANES : 0) : w->predicates[o->p[1]];
    uint32_t b = o->p[2] == NO_PREDICATE ? 0 : w->predicates[o->p[2]];
    uint32_t value = o->detail == PREDICATE_MOVE  ? a
                     : o->detail == PREDICATE_NOT ? ~a
                     : o->detail == PREDICATE_AND ? a & b
                     : o->detail == PREDICATE_OR  ? a | b
                                                  : a ^ b;
    set_predicate(w, o->p[0], value, mask);
}

bool emu_step_registers(cta *m, warp *w) {
    const op *o = &m->code->ops[w->pc];
    const uint32_t mask = lanes_on(w, o);
    if (o->kind == OP_JOIN && w->pc == w->join) return false;
    if (o->kind == OP_BRANCH && mask && mask != w->active) return false;
    w->pc++;
    if (o->kind == OP_BRANCH && mask) w->pc = o->target;
    if (!mask || o->kind == OP_JOIN || o->kind == OP_BRANCH || o->kind == OP_NOTHING) return true;
    if (o->kind == OP_LANES || o->kind == OP_LANES_4)
        emu_exec_lanes(m, w, o, mask);
    else if (o->kind == OP_COMPARE)
        emu_exec_compare(m, w, o, mask);
    else if (o->kind == OP_SELECT)
        emu_exec_select(m, w, o, mask);
    else if (o->kind == OP_PREDICATE)
        emu_exec_predicate(m, w, o, mask);
    else
        w->pc--;
    return o->kind <= OP_PREDICATE && o->kind != OP_ROUNDED && o->kind != OP_CARRY;
}
