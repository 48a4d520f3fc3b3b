/* cluster.c - accesses to the shared memory of another CTA of the cluster, and how knowledge goes from CTA to CTA.
 *
 * Each CTA has a time of its own. A thread knows of its own CTA thread by thread (shadow.c), and of the others warp by
 * warp: the row of its clock continues with a stamp for each warp of each CTA, and for the engines of each. This can
 * hide a race between lanes of one warp of another CTA, but never invents one. Knowledge goes from CTA to CTA by an
 * arrival at an mbarrier of another CTA, by a copy that lands there, and by the barrier of the cluster.
 *
 * A cell that a thread of another CTA wrote last says TIME_REMOTE, and what that was stands in remote_cells.
 */
#include "cells.h"

#include <stdlib.h>
#include <string.h>

/* ---- knowledge ---- */

/* Clock of a warp's lanes, by warp of the cluster. */
static void gather_knowledge(const cta *m, const warp *w, uint32_t mask, uint32_t *to) {
    const checks *const shadow = m->checks;
    uint32_t *own = to + m->rank * m->warp_count;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        uint32_t *row = row_of(m, w, first_lane(rest));
        take_later(to, tail_of(m, row), tail_count(m));
        take_later(engines_of(m, to, m->rank), row + m->warp_count * LANES, shadow->engines);
        for (uint32_t t = 0; t < m->warp_count * LANES; t++)
            if (own[t / LANES] < row[t]) own[t / LANES] = row[t];
        if (w->together) break;
    }
    for (uint32_t k = 0; k < m->warp_count; k++)
        if (own[k] < shadow->base) own[k] = shadow->base;
    if (own[w->index] < w->clock) own[w->index] = w->clock;
}

/* Convert that clock to the form of a CTA's clocks. */
static void spread_knowledge(const cta *at, const uint32_t *from, uint32_t *clocks) {
    const uint32_t *own = from + at->rank * at->warp_count;
    for (uint32_t t = 0; t < at->warp_count * LANES; t++)
        if (clocks[t] < own[t / LANES]) clocks[t] = own[t / LANES];
    take_later(tail_of(at, clocks), from, tail_count(at));
    take_later(clocks + at->warp_count * LANES, engines_of(at, tail_of(at, clocks), at->rank), at->checks->engines);
}

void emu_remote_publish(cta *m, const warp *w, uint32_t mask, cta *at, uint32_t *clocks) {
    uint32_t known[MOST_TAIL];
    memset(known, 0, tail_count(m) * sizeof *known);
    gather_knowledge(m, w, mask, known);
    spread_knowledge(at, known, clocks);
}

void emu_remote_publish_row(const cta *m, uint32_t *row, const cta *at, uint32_t *clocks) {
    uint32_t known[MOST_TAIL];
    memcpy(known, tail_of(m, row), tail_count(m) * sizeof *known);
    uint32_t *own = known + m->rank * m->warp_count;
    take_later(engines_of(m, known, m->rank), row + m->warp_count * LANES, m->checks->engines);
    for (uint32_t t = 0; t < m->warp_count * LANES; t++)
        if (own[t / LANES] < row[t]) own[t / LANES] = row[t];
    spread_knowledge(at, known, clocks);
}

void emu_remote_acquire(cta *m, warp *w, uint32_t mask, const cta *at, const uint32_t *clocks) {
    uint32_t known[MOST_TAIL], own[MOST_CLOCKS];
    memset(known, 0, tail_count(m) * sizeof *known);
    memset(own, 0, m->checks->clock_width * sizeof *own);
    for (uint32_t t = 0; t < at->warp_count * LANES; t++) {
        uint32_t *of_warp = &known[at->rank * at->warp_count + t / LANES];
        if (*of_warp < clocks[t]) *of_warp = clocks[t];
    }
    take_later(known, clocks + (at->checks->clock_width - tail_count(at)), tail_count(at));
    take_later(engines_of(at, known, at->rank), clocks + at->warp_count * LANES, at->checks->engines);
    spread_knowledge(m, known, own);
    emu_clock_acquire(m, w, mask, own);
}

void emu_remote_tell(const cta *m, const warp *w, const cta *at, uint32_t *clocks, uint32_t stamp) {
    uint32_t *own = &tail_of(at, clocks)[m->rank * m->warp_count + (uint32_t)w->index];
    if (*own < stamp) *own = stamp;
}

void emu_remote_tell_fenced(const warp *w, const cta *at, uint32_t *clocks) {
    spread_knowledge(at, w->released, clocks);
}

/* Progress of warps without their accesses: a relaxed arrival publishes only this. */
static void tell_progress(const cta *m, const warp *w, uint32_t mask, uint32_t *to) {
    uint32_t known[MOST_TAIL];
    memset(known, 0, tail_count(m) * sizeof *known);
    const uint32_t first = LANDINGS + m->warp_count;
    if (!m->checks->engines) return;
    gather_knowledge(m, w, mask, known);
    for (uint32_t rank = 0; rank < m->cluster->count; rank++) {
        take_later(engines_of(m, to, rank) + first, engines_of(m, known, rank) + first, m->warp_count);
        take_later(engines_of(m, to, rank) + first, known + rank * m->warp_count, m->warp_count);
    }
}

void emu_remote_tell_progress(const cta *m, const warp *w, int lane, const cta *at, uint32_t *clocks) {
    uint32_t known[MOST_TAIL];
    memset(known, 0, tail_count(m) * sizeof *known);
    tell_progress(m, w, 1u << lane, known);
    take_later(tail_of(at, clocks), known, tail_count(at));
    take_later(clocks + at->warp_count * LANES, engines_of(at, known, at->rank), at->checks->engines);
}

void emu_on_cluster_arrive(cta *m, warp *w, uint32_t mask, bool relaxed) {
    if (relaxed) {
        for (uint32_t rank = 0; rank < m->cluster->count; rank++) m->cluster->ctas[rank].checks->peers_started = true;
        take_later(m->cluster->clocks, w->released, tail_count(m));
        tell_progress(m, w, mask, m->cluster->clocks);
    } else {
        gather_knowledge(m, w, mask, m->cluster->clocks);
    }
    emu_clock_tick(m, w);
}

void emu_on_cluster_complete(cluster *c) {
    if (c->clocks) memcpy(c->clocks + c->clock_count, c->clocks, c->clock_count * sizeof *c->clocks);
}

void emu_on_cluster_wait(cta *m, warp *w, uint32_t mask) {
    uint32_t clocks[MOST_CLOCKS];
    memset(clocks, 0, m->checks->clock_width * sizeof *clocks);
    spread_knowledge(m, m->cluster->clocks + m->cluster->clock_count, clocks);
    emu_clock_acquire(m, w, mask, clocks);
    w->synced = w->clock;
    emu_clock_tick(m, w);
    emu_stale_synced(m, w);
}

void emu_cluster_fence(cta *m, warp *w) {
    gather_knowledge(m, w, live_lanes(w), w->released);
    emu_clock_tick(m, w);
}

/* ---- accesses ---- */

/* Threads of the CTA itself, by warp the lanes that read last. */
static void check_own_readers(cta *m, const warp *w, int lane, cta *at, uint32_t index) {
    const uint32_t who = at->checks->cells[index].read_who & (WHO_INSTRUCTIONS - 1);
    for (uint32_t k = 0; k < at->warp_count; k++) {
        warp_read *last = read_by(at, k, index);
        if (!last->lanes) continue;
        const uint32_t thread = k * LANES + (uint32_t)first_lane(last->lanes);
        if (ordered_in_cluster(m, w, lane, at->rank, thread << WHO_THREAD_SHIFT, last->time)) continue;
        emu_report_remote_race(m, w, lane, at, index, at->rank, who | thread << WHO_THREAD_SHIFT, "writes", "read");
        last->lanes = 0; /* once is enough */
    }
}

static void note_last(cta *m, const warp *w, cta *at, uint32_t who, uint32_t stamp) {
    remote_access *last = &at->checks->remote->last[m->rank * m->warp_count + (uint32_t)w->index];
    if (last->time <= stamp) *last = (remote_access){stamp, who};
}

/* A thread must know of something that a thread of the other CTA did: only then that CTA has surely started. */
static void check_started(cta *m, const warp *w, int lane, const cta *at) {
    uint32_t *tail = tail_of(m, row_of(m, w, lane));
    const uint32_t *engines = engines_of(m, tail, at->rank);
    bool known = m->checks->peers_started;
    for (uint32_t k = 0; k < m->warp_count; k++) known |= tail[at->rank * m->warp_count + k] != 0;
    for (uint32_t k = 0; k < m->checks->engines; k++) known |= engines[k] != 0;
    if (known) return;
    emu_report(m, EMU_CTA_NOT_STARTED, UINT32_MAX, w, lane, -1, 0,
               "This thread, of the CTA with rank %u, uses shared memory of the CTA with rank %u, and that CTA may not "
               "have started: nothing orders this access after anything that its threads do.\n"
               "Let all CTAs of the cluster pass a barrier.cluster (cluster.sync()) first.",
               m->rank, at->rank);
    m->checks->peers_started = true; /* once is enough */
}

void emu_remote_use(cta *m, const warp *w, int lane, cta *at) {
    check_started(m, w, lane, at);
    if (emu_make_remote_cells(m, at)) note_last(m, w, at, pack_who(m, w, lane), w->clock);
}

uint32_t emu_remote_read(cta *m, const warp *w, int lane, cta *at, uint32_t address, uint32_t bytes) {
    const uint32_t who = pack_who(m, w, lane);
    uint32_t undefined = 0;
    if (!emu_make_remote_cells(m, at)) return 0;
    for (uint32_t i = first_cell(at, address); i <= last_cell(at, address, bytes); i++) {
        const shadow_cell *cell = &at->checks->cells[i];
        at->checks->remote->reads[(size_t)i * m->cluster->count + m->rank] = (remote_access){w->clock, who};
        if (cell->write_time == TIME_NEVER) {
            undefined |= bytes_in_cell(at, address, bytes, (i << at->checks->cell_shift) + at->shared_base);
        } else if (cell->write_time == TIME_IN_FLIGHT) {
            emu_report_in_flight(m, w, lane, at, i, "reads");
        } else {
            emu_check_writer(m, w, lane, at, i, "reads");
        }
    }
    note_last(m, w, at, who, w->clock);
    check_started(m, w, lane, at);
    return undefined;
}

static void write_cells(cta *m, const warp *w, int lane, cta *at, uint32_t address, uint32_t bytes, uint32_t time,
                        bool atomic) {
    const uint32_t who = pack_who(m, w, lane) | (atomic ? WHO_ATOMIC : 0);
    if (!emu_make_remote_cells(m, at)) return;
    if (at->mbarrier_count) emu_check_mbarrier_bytes(m, w, lane, at, address, bytes);
    if (at->checks->async_units) emu_check_async_readers(m, w, lane, at, address, bytes);
    at->checks->writes++;
    settle_cells(at, first_cell(at, address), last_cell(at, address, bytes));
    for (uint32_t i = first_cell(at, address); i <= last_cell(at, address, bytes); i++) {
        shadow_cell *cell = &at->checks->cells[i];
        const bool both_atomic = atomic && cell->write_who & WHO_ATOMIC;
        if (cell->write_time == TIME_IN_FLIGHT) {
            emu_report_in_flight(m, w, lane, at, i, time == TIME_IN_FLIGHT ? "starts another copy to" : "writes");
        } else if (cell->write_time && cell->write_time != TIME_NEVER && !both_atomic) {
            emu_check_writer(m, w, lane, at, i, "writes");
        }
        check_own_readers(m, w, lane, at, i);
        emu_check_remote_readers(m, w, lane, at, i);
        cell->write_time = time;
        cell->write_who = who;
        if (at->checks->async_written) at->checks->async_written[i] = LANDED_NOTHING;
        at->checks->remote->writers[i] = (uint8_t)(m->rank + 1);
        at->checks->remote->writes[i] = (remote_access){w->clock, who};
    }
    note_last(m, w, at, who, w->clock);
}

void emu_remote_write(cta *m, const warp *w, int lane, cta *at, uint32_t address, uint32_t bytes) {
    write_cells(m, w, lane, at, address, bytes, TIME_REMOTE, false);
    check_started(m, w, lane, at);
}

void emu_remote_atomic(cta *m, const warp *w, int lane, cta *at, uint32_t address, uint32_t bytes) {
    for (uint32_t i = first_cell(at, address); i <= last_cell(at, address, bytes); i++) {
        if (at->checks->cells[i].write_time != TIME_NEVER) continue;
        emu_report(m, EMU_UNINITIALISED_SHARED, UINT32_MAX, w, lane, -1, address,
                   "This thread updates shared memory of the CTA with rank %u at 0x%x, which nothing has written.\n"
                   "Shared memory starts with whatever an earlier CTA left there.",
                   at->rank, address);
        at->checks->cells[i].write_time = 0; /* once is enough */
    }
    write_cells(m, w, lane, at, address, bytes, TIME_REMOTE, true);
    check_started(m, w, lane, at);
}

void emu_remote_issue(cta *m, const warp *w, int lane, cta *at, uint32_t address, uint32_t bytes) {
    write_cells(m, w, lane, at, address, bytes, TIME_IN_FLIGHT, false);
}

void emu_remote_land(cta *m, const warp *w, const bulk_copy *copy, mbarrier *bar) {
    cta *at = copy->to;
    const uint32_t address = copy->shared, bytes = copy->bytes, instruction = copy->instruction;
    const int lane = copy->lane;
    const uint32_t who = (instruction & (WHO_INSTRUCTIONS - 1)) | (uint32_t)(w->index * LANES + lane)
                                                                      << WHO_THREAD_SHIFT;
    if (!emu_make_remote_cells(m, at)) return;
    const bool counts = bar && !copy->has_values;
    cta *by = copy->counts_at;
    const uint32_t stamp = counts ? emu_engine_ticks(by, bar) : copy->stamp;
    const unsigned landing = counts ? emu_landing_of(by, bar) | (by == at ? 0 : LANDED_AT_PEER) : LANDED;
    at->checks->writes++;
    for (uint32_t i = first_cell(at, address); i <= last_cell(at, address, bytes); i++) {
        at->checks->cells[i].write_time = TIME_REMOTE;
        at->checks->cells[i].write_who = who;
        at->checks->remote->writers[i] = (uint8_t)(m->rank + 1);
        at->checks->remote->writes[i] = (remote_access){stamp, who};
        if (at->checks->async_written) at->checks->async_written[i] = (uint8_t)landing;
    }
    note_last(m, w, at, who, copy->stamp);
}

void emu_remote_mbarrier(cta *m, const warp *w, int lane, cta *at, uint32_t address) {
    const uint32_t who = pack_who(m, w, lane), index = first_cell(at, address);
    const shadow_cell *cell = &at->checks->cells[index];
    if (!emu_make_remote_cells(m, at)) return;
    note_last(m, w, at, who, w->clock);
    if (cell->write_time == TIME_REMOTE || ordered_in_cluster(m, w, lane, at->rank, cell->write_who, cell->write_time))
        return;
    emu_report(m, EMU_BARRIER_MISUSE, who_instruction(cell->write_who), w, lane, (int)who_thread(cell->write_who),
               address,
               "This thread, of the CTA with rank %u, uses the mbarrier at 0x%x of the CTA with rank %u, and nothing "
               "orders its mbarrier.init before that.\n"
               "After mbarrier.init execute fence.mbarrier_init.release.cluster, then a barrier.cluster that both CTAs "
               "pass.",
               m->rank, address, at->rank);
}

/* ---- the end of a CTA ---- */

/* The latest that any thread of a CTA knows of a warp of the cluster. */
static uint32_t known_by_any(const cta *m, uint32_t which) {
    uint32_t latest = 0;
    for (uint32_t i = 0; i < m->warp_count; i++) {
        for (int lane = 0; lane < (m->warps[i].together ? 1 : LANES); lane++) {
            const uint32_t known = tail_of(m, row_of(m, &m->warps[i], lane))[which];
            if (latest < known) latest = known;
        }
    }
    return latest;
}

static void report_exit(cta *m, uint32_t rank, uint32_t instruction, int warp_index, int lane) {
    cta *other = &m->cluster->ctas[rank];
    const uint32_t here = other->here;
    other->here = instruction;
    emu_report(other, EMU_CTA_EXITED, UINT32_MAX, &other->warps[warp_index], lane, -1, 0,
               "This thread, of the CTA with rank %u, uses shared memory of the CTA with rank %u, and that CTA may end "
               "before: its threads wait for nothing that follows this access.\n"
               "A CTA must not end before the others are done with its memory: let all of them pass a barrier.cluster "
               "first.",
               rank, m->rank);
    other->here = here;
}

void emu_on_exit(cta *m) {
    checks *const shadow = m->checks;
    const uint32_t warps = m->warp_count;
    for (uint32_t i = 0; shadow->remote && i < m->cluster->count * warps; i++) {
        const remote_access *last = &shadow->remote->last[i];
        if (last->time > known_by_any(m, i))
            report_exit(m, i / warps, who_instruction(last->who), (int)(i % warps),
                        (int)(who_thread(last->who) % LANES));
    }
    for (uint32_t rank = 0; rank < m->cluster->count; rank++) {
        const cta *other = &m->cluster->ctas[rank];
        for (size_t i = 0; i < other->bulk_count && other != m; i++) {
            const bulk_copy *copy = &other->bulk[i];
            if (copy->to == m) report_exit(m, rank, copy->instruction, copy->warp, copy->lane);
        }
    }
}
