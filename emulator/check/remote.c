/* remote.c - what other CTAs of the cluster left in the shared memory of a CTA: who touched which cell.
 *
 * A cell that a thread of another CTA wrote last says TIME_REMOTE, and what that was stands in remote_cells, which are
 * made when the first of them touches the memory. cluster.c fills them in.
 */
#include "cells.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

bool emu_cluster_create(cta *m) {
    const uint32_t count = tail_count(m);
    bool complete = true;
    for (uint32_t i = 0; i < m->warp_count; i++)
        complete &= (m->warps[i].released = calloc(count, sizeof(uint32_t))) != NULL;
    m->cluster->clock_count = count;
    if (!m->cluster->clocks) m->cluster->clocks = calloc(2 * (size_t)count, sizeof(uint32_t));
    return complete && m->cluster->clocks;
}

static void forget(cta *m) {
    checks *const shadow = m->checks;
    if (!shadow->remote) return;
    free(shadow->remote->writes);
    free(shadow->remote->writers);
    free(shadow->remote->reads);
    free(shadow->remote->last);
    free(shadow->remote);
    shadow->remote = NULL;
}

void emu_cluster_start_cta(cta *m) {
    const uint32_t count = tail_count(m);
    forget(m);
    for (uint32_t i = 0; i < m->warp_count && count; i++) memset(m->warps[i].released, 0, count * sizeof(uint32_t));
    if (count) memset(m->cluster->clocks, 0, 2 * (size_t)count * sizeof(uint32_t));
}

void emu_cluster_free(cta *m) {
    forget(m);
    for (uint32_t i = 0; m->warps && i < m->warp_count; i++) free(m->warps[i].released);
}

bool emu_make_remote_cells(cta *m, cta *at) {
    if (at->checks->remote) return true;
    const size_t cells = at->checks->cell_count, count = at->cluster->count;
    remote_cells *made = at->checks->remote = calloc(1, sizeof *made);
    if (made) {
        made->writes = calloc(cells, sizeof *made->writes);
        made->writers = calloc(cells, 1);
        made->reads = calloc(cells * count, sizeof *made->reads);
        made->last = calloc(tail_count(at), sizeof *made->last);
    }
    if (made && made->writes && made->writers && made->reads && made->last) return true;
    m->out_of_memory = m->faulted = true;
    forget(at);
    return false;
}

void emu_join_tails(cta *m) {
    uint32_t all[MOST_ENGINES + MOST_TAIL];
    const uint32_t threads = m->warp_count * LANES, count = m->checks->clock_width - threads;
    memset(all, 0, count * sizeof *all);
    for (int write = 0; write < 2; write++) {
        for (uint32_t i = 0; i < m->warp_count; i++) {
            for (int lane = 0; lane < (m->warps[i].together ? 1 : LANES); lane++) {
                uint32_t *tail = row_of(m, &m->warps[i], lane) + threads;
                if (write)
                    memcpy(tail, all, count * sizeof *tail);
                else
                    take_later(all, tail, count);
            }
        }
    }
}

/* ---- checks ---- */

void emu_report_remote_race(cta *m, const warp *w, int lane, const cta *at, uint32_t index, uint32_t rank, uint32_t who,
                            const char *now, const char *before) {
    const uint32_t address = (index << at->checks->cell_shift) + at->shared_base;
    char owner[48] = "", other[48] = "its own CTA";
    const uint32_t thread = who_thread(who);
    if (at != m) snprintf(owner, sizeof owner, " of the CTA with rank %u", at->rank);
    if (rank != m->rank) snprintf(other, sizeof other, "the CTA with rank %u", rank);
    emu_report(
        m, EMU_RACE, who_instruction(who), w, lane, (int)thread, address,
        "A race in shared memory%s at 0x%x: this thread, of the CTA with rank %u, %s what a thread of %s %s, and "
        "nothing orders the two.\n"
        "The other thread: warp %u, lane %u.\n"
        "Separate the two by barrier.cluster.arrive and wait, or by an mbarrier at which one thread arrives with "
        ".release.cluster and the other one waits.",
        owner, address, m->rank, now, other, before, thread / LANES, thread % LANES);
}

void emu_check_remote_writer(cta *m, const warp *w, int lane, cta *at, uint32_t index, const char *verb) {
    const shadow_cell *cell = &at->checks->cells[index];
    const bool remote = cell->write_time == TIME_REMOTE;
    const uint32_t rank = remote ? at->checks->remote->writers[index] - 1u : at->rank;
    const uint32_t stamp = remote ? at->checks->remote->writes[index].time : cell->write_time;
    if (!ordered_in_cluster(m, w, lane, rank, cell->write_who, stamp))
        emu_report_remote_race(m, w, lane, at, index, rank, cell->write_who, verb, "wrote");
}

void emu_check_remote_readers(cta *m, const warp *w, int lane, cta *at, uint32_t index) {
    for (uint32_t rank = 0; at->checks->remote && rank < m->cluster->count; rank++) {
        remote_access *read = &at->checks->remote->reads[(size_t)index * m->cluster->count + rank];
        if (!read->time || ordered_in_cluster(m, w, lane, rank, read->who, read->time)) continue;
        emu_report_remote_race(m, w, lane, at, index, rank, read->who, "writes", "read");
        read->time = 0; /* once is enough */
    }
}
