/* warpgroup.c - what warps of sm_90 share besides memory: the CTA's registers; and elect.sync. */
#include "paths.h"

enum { WARPGROUP = 4, FILE_REGISTERS = 65536 };

/* Registers of a thread at entry, as ptxas gives them to a CTA that fills the multiprocessor. */
static uint32_t registers_at_entry(const machine *m) {
    uint32_t each = FILE_REGISTERS / (m->warp_count * LANES) / 8 * 8;
    return each > 248 ? 248 : each;
}

static uint32_t registers_of(const machine *m, const warp *w) {
    return w->registers ? w->registers : registers_at_entry(m);
}

/* What the other warps of the CTA leave of the registers that it began with. */
static int64_t registers_left(const machine *m, const warp *w) {
    int64_t left = (int64_t)registers_at_entry(m) * m->warp_count;
    for (uint32_t i = 0; i < m->warp_count; i++) {
        if (&m->warps[i] != w && m->warps[i].state != WARP_DONE) left -= registers_of(m, &m->warps[i]);
    }
    return left;
}

void emu_exec_max_registers(machine *m, warp *w, const op *o, uint32_t mask) {
    const uint32_t wanted = (uint32_t)o->immediate, has = registers_of(m, w);
    emu_check_all_lanes(m, w, mask);
    if (o->detail ? wanted < has : wanted > has) {
        emu_report(m, EMU_WGMMA_MISUSE, UINT32_MAX, w, -1, -1, 0,
                   "setmaxnreg.%s %u in a warp whose threads have %u registers: the number may only %s.",
                   o->detail ? "inc" : "dec", wanted, has, o->detail ? "grow" : "shrink");
        return;
    }
    if (wanted > registers_left(m, w)) {
        emu_try_again(m, w, o, mask); /* when others have given registers back */
        w->state = WARP_AT_REGISTERS;
        return;
    }
    w->registers = wanted;
    for (uint32_t i = 0; i < m->warp_count && !o->detail; i++) {
        if (m->warps[i].state == WARP_AT_REGISTERS) m->warps[i].state = WARP_READY;
    }
}

void emu_exec_elect(machine *m, warp *w, const op *o, uint32_t mask) {
    (void)m;
    const uint32_t leader = (uint32_t)first_lane(mask);
    for (uint32_t rest = mask; rest; rest &= rest - 1) slot32(w, o->r[0])[first_lane(rest)] = leader;
    if (o->p[0] != NO_PREDICATE) w->predicates[o->p[0]] = (w->predicates[o->p[0]] & ~mask) | 1u << leader;
}
