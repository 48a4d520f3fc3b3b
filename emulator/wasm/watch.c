#include "watch.h"

#include "page.h"

#include <stdlib.h>

/* This file replaces machine/trace.c: the machine asks before each op whether it is traced. */

enum { CTAS = 128 }; /* that steps and registers are told apart of */

static struct {
    uint32_t stop, count;
    bool remembers;
    uint32_t *steps;
    size_t capacity;
    uint16_t *owners[CTAS]; /* by warp and slot: 1 + the register that was written there last */
    const uint32_t *turns;  /* pairs of a step and a warp */
    uint32_t turn_count;
    const cta *owner;
    int warp;
} watch = {.warp = -1};

void emu_watch_start(uint32_t stop, bool remember) {
    watch.stop = stop;
    watch.remembers = remember;
    watch.count = 0;
    watch.owner = NULL;
    watch.warp = -1;
    for (int i = 0; i < CTAS; i++) {
        free(watch.owners[i]);
        watch.owners[i] = NULL;
    }
}

void emu_watch_turns(const uint32_t *turns, uint32_t count) {
    watch.turns = turns;
    watch.turn_count = count;
}

const cta *emu_watch_machine(void) {
    return watch.owner;
}

int emu_watch_warp(void) {
    return watch.warp;
}

uint32_t emu_watch_count(void) {
    return watch.count;
}

const uint32_t *emu_watch_steps(void) {
    return watch.steps;
}

/* ---- registers and their slots ---- */

/* NULL when out of memory. */
static uint16_t *owners_of(const cta *m, const warp *w) {
    uint16_t **const owners = &watch.owners[m->cta_index % CTAS];
    const size_t slots = m->code->slot_count;
    if (!*owners) *owners = calloc(slots * MAX_WARPS + 1, sizeof **owners);
    return *owners ? *owners + slots * (size_t)w->index : NULL;
}

static void note_writes(const cta *m, const warp *w, const op *o) {
    uint16_t *const owners = owners_of(m, w);
    const uint16_t *const names = m->code->names[o - m->code->ops];
    for (int i = 0; owners && i < o->dests; i++) {
        const int slots = m->code->registers[names[i]].bits > 32 ? m->code->registers[names[i]].bits / 32 : 1;
        for (int k = 0; k < slots; k++) owners[o->r[i] + k] = (uint16_t)(names[i] + 1);
    }
}

bool emu_watch_holds(const cta *m, const warp *w, uint16_t name) {
    const virtual_register *const reg = &m->code->registers[name];
    const uint16_t *const owners = owners_of(m, w);
    if (reg->kind != REGISTER_PLAIN) return true;
    for (int k = 0; k < (reg->bits > 32 ? reg->bits / 32 : 1); k++)
        if (!owners || owners[reg->slot + k] != name + 1) return false;
    return true;
}

/* ---- what the machine asks ---- */

static void remember(const cta *m, const warp *w, const op *o) {
    if (watch.count == watch.capacity) {
        const size_t capacity = watch.capacity ? 2 * watch.capacity : 65536;
        uint32_t *const steps = realloc(watch.steps, capacity * sizeof *steps);
        if (!steps) {
            watch.remembers = false;
            return;
        }
        watch.steps = steps, watch.capacity = capacity;
    }
    watch.steps[watch.count] = (uint32_t)(m->cta_index % CTAS) << 25 | (uint32_t)w->index << 20 | o->instruction;
}

int emu_wanted_warp(const cta *m) {
    (void)m;
    for (uint32_t i = 0; i < watch.turn_count; i++)
        if (watch.turns[2 * i] == watch.count) return (int)watch.turns[2 * i + 1];
    return -1;
}

static bool ends_instruction(const cta *m, const op *o) {
    return o + 1 == m->code->ops + m->code->op_count || o[1].instruction != o->instruction;
}

bool emu_trace_wants(const cta *m, const warp *w, const op *o) {
    if (o->flags & FLAG_FIRST) {
        if (watch.count == watch.stop) {
            watch.owner = m;
            watch.warp = w->index;
            emu_page_leave(EMU_LEFT_STOPPED);
        }
        if (watch.remembers) remember(m, w, o);
        watch.count++;
    }
    if (!watch.remembers) note_writes(m, w, o); /* of a whole launch nobody asks */
    return watch.turn_count && emu_wanted_warp(m) >= 0 && ends_instruction(m, o);
}

bool emu_trace_op(const cta *m, const warp *w, const op *o, uint32_t mask) {
    (void)m, (void)w, (void)o, (void)mask;
    return true; /* the next step is the turn of a warp that was chosen by hand */
}

bool emu_check_trace(const emu_launch *launch, emu_error *error) {
    (void)launch;
    *error = (emu_error){0};
    return true;
}
