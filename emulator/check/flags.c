/* flags.c - order made by flags in shared memory: stores, loads and atomics that are .relaxed, .acquire or .release.
 *
 * They do not race with each other. Each address that one of them wrote keeps what the writers told, and who reads it
 * by one of them hears that. A .release tells what its thread knows, an .acquire learns what it hears. A .relaxed one
 * tells what a fence before it released, and the next fence learns what it heard; in a program with fences .volatile
 * accesses and atomics without an order are such, too. A fence of another thread counts where a barrier stands between.
 * In the memory of another CTA .relaxed hears as .acquire does. This can hide a missing fence, but never invents a
 * race.
 */
#include "cells.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static size_t row_count(const cta *m) {
    return (size_t)m->warp_count * LANES;
}

bool emu_flags_create(cta *m) {
    checks *const shadow = m->checks;
    const size_t words = row_count(m) * shadow->clock_width;
    if (!m->code->relaxed_flags) return true;
    shadow->fenced = malloc(words * sizeof *shadow->fenced);
    shadow->heard = malloc(words * sizeof *shadow->heard);
    shadow->heard_times = malloc(row_count(m) * sizeof *shadow->heard_times);
    return shadow->fenced && shadow->heard && shadow->heard_times;
}

static void forget(cta *m) {
    checks *const shadow = m->checks;
    for (size_t i = 0; i < shadow->flag_count; i++) free(shadow->flags[i].clocks);
    shadow->flag_count = 0;
}

void emu_flags_start_cta(cta *m) {
    const checks *const shadow = m->checks;
    const size_t words = row_count(m) * shadow->clock_width;
    forget(m);
    if (!shadow->fenced) return;
    memset(shadow->fenced, 0, words * sizeof *shadow->fenced);
    memset(shadow->heard, 0, words * sizeof *shadow->heard);
    memset(shadow->heard_times, 0, row_count(m) * sizeof *shadow->heard_times);
}

void emu_flags_free(cta *m) {
    const checks *const shadow = m->checks;
    forget(m);
    free(shadow->flags);
    free(shadow->fenced);
    free(shadow->heard);
    free(shadow->heard_times);
}

/* ---- fences ---- */

/* Data that a thread received, or that threads before it received. */
static void learn_heard(cta *m, warp *w, int lane) {
    const checks *const shadow = m->checks;
    uint32_t clocks[MOST_CLOCKS];
    memset(clocks, 0, m->checks->clock_width * sizeof *clocks);
    bool any = false;
    for (uint32_t t = 0; t < row_count(m); t++) {
        if (!shadow->heard_times[t] || !ordered(m, w, lane, t, shadow->heard_times[t])) continue;
        take_later(clocks, shadow->heard + t * shadow->clock_width, shadow->clock_width);
        any = true;
    }
    if (any) emu_clock_acquire(m, w, 1u << lane, clocks);
}

void emu_flag_fence(cta *m, warp *w, uint32_t mask) {
    const checks *const shadow = m->checks;
    if (!shadow->fenced) return;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        uint32_t *fenced = shadow->fenced + (size_t)(w->index * LANES + lane) * shadow->clock_width;
        learn_heard(m, w, lane);
        emu_clock_publish(m, w, 1u << lane, fenced);
    }
    emu_clock_tick(m, w);
}

void emu_hear(cta *m, const warp *w, uint32_t mask, const uint32_t *clocks) {
    checks *const shadow = m->checks;
    for (; shadow->heard && mask; mask &= mask - 1) {
        const size_t thread = (size_t)(w->index * LANES + first_lane(mask));
        take_later(shadow->heard + thread * shadow->clock_width, clocks, shadow->clock_width);
        shadow->heard_times[thread] = w->clock;
    }
}

void emu_tell_fenced(cta *m, const warp *w, int lane, cta *at, uint32_t *clocks) {
    const checks *const shadow = m->checks;
    if (!shadow->fenced) return;
    if (at != m) {
        emu_remote_tell_fenced(w, at, clocks);
        return;
    }
    for (uint32_t t = 0; t < row_count(m); t++) {
        const uint32_t *fenced = shadow->fenced + t * shadow->clock_width;
        if (fenced[t] && ordered(m, w, lane, t, fenced[t])) take_later(clocks, fenced, shadow->clock_width);
    }
}

/* ---- places ---- */

/* Clock that was published at an address, in the clocks of its CTA; NULL if there is none, or when out of memory. */
static uint32_t *told_at(cta *m, cta *at, uint32_t address, bool add) {
    for (size_t i = 0; i < at->checks->flag_count; i++)
        if (at->checks->flags[i].address == address) return at->checks->flags[i].clocks;
    if (!add) return NULL;
    flag *grown = cta_reserve(m, at->checks->flags, at->checks->flag_count + 1, &at->checks->flag_capacity,
                              sizeof *at->checks->flags);
    uint32_t *clocks = calloc(at->checks->clock_width, sizeof *clocks);
    if (grown) at->checks->flags = grown;
    if (grown && clocks) {
        at->checks->flags[at->checks->flag_count++] = (flag){address, clocks};
        return clocks;
    }
    free(clocks);
    m->out_of_memory = m->faulted = true;
    return NULL;
}

static void learn(cta *m, warp *w, int lane, cta *at, uint32_t address, unsigned order) {
    const uint32_t *told = w->stale >> lane & 1 ? NULL : told_at(m, at, address, false);
    emu_stale_synced(m, w);
    if (!told) return;
    if (at != m) {
        emu_remote_acquire(m, w, 1u << lane, at, told);
    } else if (order & ORDER_ACQUIRE) {
        emu_clock_acquire(m, w, 1u << lane, told);
    } else {
        emu_hear(m, w, 1u << lane, told);
    }
}

static void tell(cta *m, warp *w, int lane, cta *at, uint32_t address, unsigned order) {
    uint32_t *told = told_at(m, at, address, true);
    if (!told) return;
    if (!(order & ORDER_RELEASE))
        emu_tell_fenced(m, w, lane, at, told);
    else if (at == m)
        emu_clock_publish(m, w, 1u << lane, told);
    else
        emu_remote_publish(m, w, 1u << lane, at, told);
}

/* ---- accesses ---- */

uint32_t emu_flag_read(cta *m, warp *w, int lane, cta *at, uint32_t address, uint32_t bytes, unsigned order) {
    uint32_t undefined = 0;
    if (at != m) emu_remote_use(m, w, lane, at);
    settle_cells(at, first_cell(at, address), last_cell(at, address, bytes));
    for (uint32_t i = first_cell(at, address); i <= last_cell(at, address, bytes); i++) {
        const shadow_cell *cell = &at->checks->cells[i];
        if (cell->write_time == TIME_NEVER)
            undefined |= bytes_in_cell(at, address, bytes, (i << at->checks->cell_shift) + at->shared_base);
        else if (cell->write_time == TIME_IN_FLIGHT)
            emu_report_in_flight(m, w, lane, at, i, "reads");
        else if (cell->write_time && !(cell->write_who & WHO_ATOMIC))
            emu_check_writer(m, w, lane, at, i, "reads");
    }
    learn(m, w, lane, at, address, order);
    return undefined;
}

void emu_flag_write(cta *m, warp *w, int lane, cta *at, uint32_t address, uint32_t bytes, unsigned order) {
    settle_cells(at, first_cell(at, address), last_cell(at, address, bytes));
    for (uint32_t i = first_cell(at, address); i <= last_cell(at, address, bytes); i++)
        if (at->checks->cells[i].write_time == TIME_NEVER) at->checks->cells[i].write_time = 0;
    emu_flag_atomic(m, w, lane, at, address, bytes, order, false);
}

void emu_flag_atomic(cta *m, warp *w, int lane, cta *at, uint32_t address, uint32_t bytes, unsigned order, bool asks) {
    learn(m, w, lane, at, address, order);
    if (at == m)
        emu_on_shared_atomic(m, w, lane, address, bytes, asks);
    else
        emu_remote_atomic(m, w, lane, at, address, bytes);
    tell(m, w, lane, at, address, order);
}
