/* warpgroup.c - what warps of sm_90 share besides memory: the CTA's registers. */
#include "machine.h"

#include <inttypes.h>

enum { WARPGROUP = 4, FILE_REGISTERS = 65536 };

/* Registers of a thread at entry: as many as .maxnreg says, else as ptxas gives to a CTA that shares the multiprocessor
 * with as few as .minnctapersm allows. */
static uint32_t registers_at_entry(const cta *m) {
    if (m->code->max_registers) return m->code->max_registers / 8 * 8;
    const uint32_t ctas = m->code->min_ctas ? m->code->min_ctas : 1;
    uint32_t each = FILE_REGISTERS / (m->warp_count * LANES * ctas) / 8 * 8;
    return each > 248 ? 248 : each;
}

static uint32_t registers_of(const cta *m, const warp *w) {
    return w->registers ? w->registers : registers_at_entry(m);
}

/* Registers that the other warps of the CTA leave of the initial ones. Only setmaxnreg.dec gives some back. */
static int64_t registers_left(const cta *m, const warp *w) {
    int64_t left = (int64_t)registers_at_entry(m) * m->warp_count;
    for (uint32_t i = 0; i < m->warp_count; i++)
        if (&m->warps[i] != w) left -= registers_of(m, &m->warps[i]);
    return left;
}

void emu_describe_registers(const cta *m, const warp *w, char *out, size_t bytes) {
    const uint32_t wanted = (uint32_t)m->code->ops[w->pc].immediate;
    const int64_t left = registers_left(m, w);
    snprintf(
        out, bytes,
        "\n  it requests %u registers per thread, %u in all; the CTA began with %u, and the other warps leave %" PRId64,
        wanted, wanted * LANES, registers_at_entry(m) * m->warp_count * LANES, left > 0 ? left * LANES : 0);
}

/* The warps of a warpgroup must ask for the same. */
static void check_same_request(cta *m, const warp *w, uint32_t wanted) {
    const uint32_t first = (uint32_t)w->index / WARPGROUP * WARPGROUP;
    for (uint32_t i = first; i < first + WARPGROUP && i < m->warp_count; i++) {
        const warp *other = &m->warps[i];
        if (other == w || other->register_changes != w->register_changes || other->registers == wanted) continue;
        emu_report(m, EMU_WGMMA_MISUSE, UINT32_MAX, w, -1, other->index * LANES, 0,
                   "Warps %d and %d of a warpgroup ask for %u and %u registers: all four must execute the same "
                   "setmaxnreg.",
                   w->index, other->index, wanted, other->registers);
        return;
    }
}

void emu_exec_max_registers(cta *m, warp *w, const op *o, uint32_t mask) {
    const uint32_t wanted = (uint32_t)o->immediate, has = registers_of(m, w);
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
    w->register_changes++;
    if (m->checks) emu_on_registers(m, w, o->detail);
    check_same_request(m, w, wanted);
    for (uint32_t i = 0; i < m->warp_count && !o->detail; i++) {
        if (m->warps[i].state == WARP_AT_REGISTERS) m->warps[i].state = WARP_READY;
    }
}
