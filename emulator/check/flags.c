/* flags.c - order made by flags in shared memory: stores, loads and atomics that are .relaxed, .acquire or .release.
 *
 * They do not race with each other. Each place that one of them wrote keeps what the writers knew, and who reads it by
 * one of them learns that. .relaxed counts as .release or .acquire: a fence may stand beside it. In a program with
 * fences so do .volatile accesses and atomics without an order. That can hide a fence that is missing, never invent a
 * race.
 */
#include "cells.h"

#include <stdlib.h>
#include <string.h>

/* What was told at a place, in the clocks of its CTA; NULL where nothing was, or when out of memory. */
static uint32_t *told_at(machine *m, machine *at, uint32_t address, bool add) {
    for (size_t i = 0; i < at->flag_count; i++)
        if (at->flags[i].address == address) return at->flags[i].clocks;
    if (!add) return NULL;
    flag *grown = machine_reserve(m, at->flags, at->flag_count + 1, &at->flag_capacity, sizeof *at->flags);
    uint32_t *clocks = calloc(at->clock_width, sizeof *clocks);
    if (grown) at->flags = grown;
    if (grown && clocks) {
        at->flags[at->flag_count++] = (flag){address, clocks};
        return clocks;
    }
    free(clocks);
    m->out_of_memory = m->faulted = true;
    return NULL;
}

static void learn(machine *m, warp *w, int lane, machine *at, uint32_t address) {
    const uint32_t *told = told_at(m, at, address, false);
    if (told && at == m) emu_clock_acquire(m, w, 1u << lane, told);
    if (told && at != m) emu_remote_acquire(m, w, 1u << lane, at, told);
}

static void tell(machine *m, warp *w, int lane, machine *at, uint32_t address) {
    uint32_t *told = told_at(m, at, address, true);
    if (!told) return;
    if (at == m)
        emu_clock_publish(m, w, 1u << lane, told);
    else
        emu_remote_publish(m, w, 1u << lane, at, told);
}

uint32_t emu_flag_read(machine *m, warp *w, int lane, machine *at, uint32_t address, uint32_t bytes) {
    uint32_t undefined = 0;
    if (at != m) emu_remote_use(m, w, lane, at);
    for (uint32_t i = first_cell(at, address); i <= last_cell(at, address, bytes); i++) {
        const shadow_cell *cell = &at->cells[i];
        if (cell->write_time == TIME_NEVER)
            undefined |= bytes_in_cell(at, address, bytes, (i << at->cell_shift) + SHARED_BASE);
        else if (cell->write_time == TIME_IN_FLIGHT)
            emu_report_in_flight(m, w, lane, at, i, "reads");
        else if (cell->write_time && !(cell->write_who & WHO_ATOMIC))
            emu_check_writer(m, w, lane, at, i, "reads");
    }
    learn(m, w, lane, at, address);
    return undefined;
}

void emu_flag_write(machine *m, warp *w, int lane, machine *at, uint32_t address, uint32_t bytes) {
    for (uint32_t i = first_cell(at, address); i <= last_cell(at, address, bytes); i++)
        if (at->cells[i].write_time == TIME_NEVER) at->cells[i].write_time = 0;
    emu_flag_atomic(m, w, lane, at, address, bytes);
}

void emu_flag_atomic(machine *m, warp *w, int lane, machine *at, uint32_t address, uint32_t bytes) {
    learn(m, w, lane, at, address);
    if (at == m)
        emu_shadow_atomic(m, w, lane, address, bytes);
    else
        emu_remote_atomic(m, w, lane, at, address, bytes);
    tell(m, w, lane, at, address);
}
