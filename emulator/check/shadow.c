/* shadow.c - who touched which byte of shared memory last, and what is ordered before what.
 *
 * Time is a counter of the CTA that ticks at every synchronization. An access carries the stamp its warp has then.
 * "Ordered before a thread" means one of:
 *   - stamp <= m->checks->base: every thread has passed a barrier of the whole CTA since;
 *   - the same thread made it, or the same warp did and stamp <= warp.synced: a bar.warp.sync of all lanes lies
 * between;
 *   - the thread's own clock says so: vector clocks per thread, kept only for entries with mbarriers, flags, barriers
 *     of a part of the CTA or of a warp (entry.needs_clocks), where m->checks->clocks[thread][other] is the last stamp
 * of other that thread knows
 *   - for the target of a bulk copy, the thread's own clock says so of the engine of its mbarrier: it has waited for
 *     the phase that the copy belongs to, or knows of a wait
 * A cell covers the narrowest access of the entry to shared memory. It remembers the last write and the last read;
 * reads by several lanes or warps that are not ordered are kept as "many", which is enough to find a later unordered
 * write. With vector clocks it remembers for each warp which lanes read last.
 */
#include "cells.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

/* True if mbarriers wait for cp.async. */
static bool has_arrivals(const entry *code) {
    for (size_t i = 0; i < code->op_count; i++)
        if (code->ops[i].kind == OP_COPY_ARRIVE) return true;
    return false;
}

bool emu_shadow_create(cta *m) {
    checks *const shadow = m->checks;
    uint32_t granule = m->code->granule_bytes;
    shadow->cell_shift = (uint32_t)__builtin_ctz(granule);
    shadow->cell_count = (m->shared_bytes >> shadow->cell_shift) + 1;
    shadow->cells = malloc(shadow->cell_count * sizeof *shadow->cells);
    if (!shadow->cells) return false;
    const bool in_cluster = m->code->uses_cluster || m->cluster->count > 1;
    const uint32_t clocks_of_warp = m->code->uses_tensor_memory ? 3 : 2;
    shadow->engines = m->code->needs_clocks ? LANDINGS + clocks_of_warp * m->warp_count : 0;
    const uint32_t tail = in_cluster ? m->cluster->count * (m->warp_count + shadow->engines) : 0;
    shadow->copies_arrive = shadow->engines && has_arrivals(m->code);
    shadow->clock_width = m->warp_count * LANES + shadow->engines + tail;
    if (!m->code->needs_clocks && !tail) return true;
    size_t threads = (size_t)m->warp_count * LANES, width = shadow->clock_width;
    shadow->clocks = malloc(threads * width * sizeof *shadow->clocks);
    shadow->warp_reads = malloc((size_t)shadow->cell_count * m->warp_count * sizeof *shadow->warp_reads);
    bool complete = shadow->clocks && shadow->warp_reads;
    for (uint32_t i = 0; i < m->warp_count; i++)
        complete &= (m->warps[i].seen = malloc(MAX_MBARRIERS * sizeof *m->warps[i].seen)) != NULL;
    if (m->code->uses_async_proxy || shadow->copies_arrive)
        complete &= (shadow->async_written = malloc(shadow->cell_count)) != NULL;
    if (m->code->uses_async_proxy) {
        shadow->async_units = malloc((m->shared_bytes / 16 + 1) * sizeof *shadow->async_units);
        shadow->proxy_fences = malloc(2 * threads * sizeof *shadow->proxy_fences);
        shadow->fence_knows = malloc(2 * threads * (threads + tail) * sizeof *shadow->fence_knows);
        complete &= shadow->async_units && shadow->proxy_fences && shadow->fence_knows;
        if (m->launch->fence_behind_reads) complete &= (shadow->read_generic = malloc(shadow->cell_count)) != NULL;
    }
    for (int i = 0; i < BARRIERS; i++) complete &= (m->barriers[i].clocks = malloc(width * sizeof(uint32_t))) != NULL;
    for (int i = 0; i < MAX_MBARRIERS; i++) {
        complete &= (m->mbarriers[i].arriving = malloc(width * sizeof(uint32_t))) != NULL;
        complete &= (m->mbarriers[i].completed = malloc(width * sizeof(uint32_t))) != NULL;
    }
    return complete && (!tail || emu_cluster_create(m));
}

void emu_shadow_free(cta *m) {
    const checks *const shadow = m->checks;
    emu_cluster_free(m);
    free(shadow->cells);
    free(shadow->covered);
    free(shadow->clocks);
    free(shadow->warp_reads);
    free(shadow->async_units);
    free(shadow->async_written);
    free(shadow->read_generic);
    free(shadow->proxy_fences);
    free(shadow->fence_knows);
    for (int i = 0; i < BARRIERS; i++) free(m->barriers[i].clocks);
    for (int i = 0; i < MAX_MBARRIERS; i++) {
        free(m->mbarriers[i].arriving);
        free(m->mbarriers[i].completed);
    }
}

void emu_shadow_start_cta(cta *m) {
    checks *const shadow = m->checks;
    for (uint32_t i = 0; i < shadow->cell_count; i++) shadow->cells[i] = (shadow_cell){TIME_NEVER, 0, 0, 0};
    shadow->base = shadow->settled = 0;
    shadow->undefined_cells = shadow->covers = shadow->peers_started = false;
    shadow->map_fence_count = 0;
    memset(shadow->known, 0, sizeof shadow->known);
    memset(shadow->last_reads, 0, sizeof shadow->last_reads);
    shadow->now = 1;
    if (!shadow->clocks) return;
    size_t threads = (size_t)m->warp_count * LANES;
    for (uint32_t i = 0; i < m->warp_count; i++)
        memset(row_of(m, &m->warps[i], 0), 0, shadow->clock_width * sizeof *shadow->clocks);
    memset(shadow->warp_reads, 0, (size_t)shadow->cell_count * m->warp_count * sizeof *shadow->warp_reads);
    if (shadow->async_written) memset(shadow->async_written, 0, shadow->cell_count);
    if (shadow->async_units) {
        memset(shadow->async_units, 0, (m->shared_bytes / 16 + 1) * sizeof *shadow->async_units);
        memset(shadow->proxy_fences, 0, 2 * threads * sizeof *shadow->proxy_fences);
        memset(shadow->fenced_together, 0, sizeof shadow->fenced_together);
        if (shadow->read_generic) memset(shadow->read_generic, 0, shadow->cell_count);
    }
    for (int i = 0; i < BARRIERS; i++) memset(m->barriers[i].clocks, 0, shadow->clock_width * sizeof(uint32_t));
    emu_cluster_start_cta(m);
}

/* ---- order ---- */

uint32_t emu_clock_tick(cta *m, warp *w) {
    return w->clock = ++m->checks->now;
}

void emu_clock_full_barrier(cta *m) {
    checks *const shadow = m->checks;
    shadow->base = shadow->now++;
    if (!shadow->undefined_cells) shadow->settled = shadow->base;
    shadow->covers = false;
    for (uint32_t i = 0; i < m->warp_count; i++) m->warps[i].clock = shadow->now;
    if (shadow->clock_width > m->warp_count * LANES) emu_join_tails(m);
}

unsigned emu_landing_of(const cta *m, const mbarrier *bar) {
    return LANDED_BY + (unsigned)(bar - m->mbarriers) % LANDINGS;
}

uint32_t emu_engine_ticks(cta *m, mbarrier *bar) {
    return bar->arriving[m->warp_count * LANES + emu_landing_of(m, bar) - LANDED_BY] = ++m->checks->now;
}

unsigned emu_copies_land(cta *m, const warp *w, mbarrier *bar, const async_arrive *arrive) {
    const uint32_t clock = clock_of_copies(m, (uint32_t)w->index);
    emu_engine_ticks(m, bar);
    if (bar->arriving[clock] < arrive->stamp) bar->arriving[clock] = arrive->stamp;
    return LANDED_BY + clock - m->warp_count * LANES;
}

void emu_copies_waited(cta *m, warp *w, uint32_t mask) {
    const uint32_t clock = clock_of_copies(m, (uint32_t)w->index);
    for (; mask; mask &= mask - 1) row_of(m, w, first_lane(mask))[clock] = w->clock - 1; /* an arrival ticks */
}

void emu_engine_lands(cta *m, const warp *w, const bulk_copy *copy, mbarrier *bar) {
    const uint32_t now = emu_engine_ticks(m, bar);
    emu_shadow_land(m, w, copy->lane, copy->shared, copy->bytes, now, copy->instruction, emu_landing_of(m, bar));
}

void emu_clock_publish(cta *m, const warp *w, uint32_t mask, uint32_t *clocks) {
    const checks *const shadow = m->checks;
    if (!shadow->clocks) return;
    const uint32_t first = (uint32_t)w->index * LANES;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = first_lane(rest);
        if (!w->together || rest == mask) take_later(clocks, row_of(m, w, lane), shadow->clock_width);
        if (clocks[first + (uint32_t)lane] < w->clock) clocks[first + (uint32_t)lane] = w->clock;
    }
    for (uint32_t t = first; t < first + LANES; t++) {
        if (clocks[t] < w->synced) clocks[t] = w->synced;
    }
}

/* Lanes that are about to know different things get rows of their own. */
static void part_rows(cta *m, warp *w) {
    if (!w->together) return;
    const uint32_t *shared = row_of(m, w, 0);
    w->together = false;
    for (int lane = 1; lane < LANES; lane++)
        memcpy(row_of(m, w, lane), shared, m->checks->clock_width * sizeof *shared);
}

void emu_clock_acquire(cta *m, warp *w, uint32_t mask, const uint32_t *clocks) {
    const checks *const shadow = m->checks;
    if (!shadow->clocks) return;
    if (live_lanes(w) & ~mask) part_rows(m, w);
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        take_later(row_of(m, w, first_lane(rest)), clocks, shadow->clock_width);
        if (w->together) return;
    }
}

/* Lanes tell each other what they know; those outside of the mask learn nothing, and nobody learns of them. */
static void sync_some(cta *m, warp *w, uint32_t mask) {
    uint32_t all[MOST_CLOCKS];
    memset(all, 0, m->checks->clock_width * sizeof *all);
    emu_clock_publish(m, w, mask, all);
    emu_clock_acquire(m, w, mask, all);
    emu_clock_tick(m, w);
}

void emu_on_warp_barrier(cta *m, warp *w, uint32_t mask) {
    const checks *const shadow = m->checks;
    emu_stale_synced(m, w);
    if (shadow->clocks && live_lanes(w) & ~mask) {
        sync_some(m, w, mask);
        return;
    }
    w->synced = w->clock;
    if (shadow->clocks && !w->together) {
        uint32_t all[MOST_CLOCKS];
        memset(all, 0, shadow->clock_width * sizeof *all);
        for (uint32_t rest = mask; rest; rest &= rest - 1)
            take_later(all, row_of(m, w, first_lane(rest)), shadow->clock_width);
        w->together = true;
        memcpy(row_of(m, w, 0), all, shadow->clock_width * sizeof *all);
    }
    emu_clock_tick(m, w);
}

/* ---- reports ---- */

static void describe(char *out, size_t bytes, uint32_t who, bool many) {
    uint32_t thread = who_thread(who);
    snprintf(out, bytes, "warp %u, lane %u%s", thread / LANES, thread % LANES, many ? " (and others)" : "");
}

static void report_race(cta *m, const warp *w, int lane, uint32_t address, uint32_t who, bool many, const char *now,
                        const char *before) {
    char other[64];
    describe(other, sizeof other, who, many);
    emu_report(m, EMU_RACE, who_instruction(who), w, lane, (int)who_thread(who), address,
               "A race in shared memory at 0x%x: this thread %s what another thread %s, and nothing orders the two.\n"
               "The other thread: %s.\n"
               "Separate the two by a barrier that both pass: bar.sync (__syncthreads), or bar.warp.sync (__syncwarp) "
               "within a warp.",
               address, now, before, other);
}

/* State of the CTA's own copies in flight. */
static const mbarrier *mbarrier_of_copy_to(const cta *m, uint32_t address, uint64_t *phase) {
    for (size_t i = 0; i < m->bulk_count; i++) {
        const bulk_copy *copy = &m->bulk[i];
        if (copy->is_store || copy->to != m || address - copy->shared >= copy->bytes) continue;
        *phase = copy->phase;
        for (int k = 0; k < m->mbarrier_count; k++)
            if (m->mbarriers[k].live && m->mbarriers[k].address == copy->mbarrier) return &m->mbarriers[k];
    }
    return NULL;
}

/* The phase for which a warp that accesses the target of a bulk copy has waited at its mbarrier. */
static void describe_wait(cta *m, const warp *w, uint32_t address, char *out, size_t bytes) {
    uint64_t phase = 0;
    const mbarrier *bar = mbarrier_of_copy_to(m, address, &phase);
    if (!bar || !w->seen) return;
    const seen_phase *seen = &w->seen[bar - m->mbarriers];
    int used = snprintf(out, bytes, "\nThe copy belongs to phase %" PRIu64 " of the mbarrier at 0x%x; this warp ",
                        phase, bar->address);
    if (used < 0 || (size_t)used >= bytes) return;
    out += used, bytes -= (size_t)used;
    if (!seen->times)
        snprintf(out, bytes, "has not waited for any.");
    else if (!seen->phase)
        snprintf(out, bytes, "has waited for the one before phase 0, which counts as complete.");
    else
        snprintf(out, bytes, "last waited for phase %" PRIu64 "%s.", seen->phase - 1,
                 seen->times > 1 ? ", more than once: its parity did not change" : "");
}

void emu_report_in_flight(cta *m, const warp *w, int lane, const cta *at, uint32_t index, const char *verb) {
    const uint32_t who = at->checks->cells[index].write_who,
                   address = (index << at->checks->cell_shift) + at->shared_base;
    const uint32_t writer =
        at->checks->remote && at->checks->remote->writers[index] ? at->checks->remote->writers[index] - 1u : at->rank;
    char other[64], of_cta[48] = "", waited[200] = "";
    const char *text = m->code->instructions[who_instruction(who)].text;
    const bool store = strstr(text, "st.async") != NULL, bulk = store || strstr(text, "cp.async.bulk") != NULL;
    describe(other, sizeof other, who, false);
    if (bulk && at == m) describe_wait(m, w, address, waited, sizeof waited);
    if (writer != m->rank) snprintf(of_cta, sizeof of_cta, " of the CTA with rank %u", writer);
    emu_report(
        m, EMU_ASYNC_IN_FLIGHT, who_instruction(who), w, lane, (int)who_thread(who), address,
        "This thread %s shared memory at 0x%x while a %s is still in flight to it.\n"
        "The copy was issued by %s%s.\n%s%s",
        verb, address,
        store  ? "st.async"
        : bulk ? "bulk copy"
               : "cp.async",
        other, of_cta,
        bulk ? "The thread that reads must wait for the phase of its mbarrier, which counts the bytes: "
               "mbarrier.try_wait."
             : "Its thread must wait for it (cp.async.wait_group or wait_all), and then a barrier must follow for "
               "the others.",
        waited);
}

static void report_never(cta *m, const warp *w, int lane, uint32_t address) {
    emu_report(m, EMU_UNINITIALISED_SHARED, UINT32_MAX, w, lane, -1, address,
               "This thread updates shared memory at 0x%x, which nothing has written in this CTA.\n"
               "Shared memory starts with whatever an earlier CTA left there.",
               address);
}

static checked_write last_write(const checks *shadow, uint32_t index) {
    const shadow_cell *cell = &shadow->cells[index];
    return (checked_write){cell->write_time, cell->write_who,
                           shadow->async_written ? shadow->async_written[index] : LANDED_NOTHING};
}

static inline bool is_same_write(const checked_write *a, const checked_write *b) {
    return a->time == b->time && a->who == b->who && a->landing == b->landing;
}

/* True if a write that has landed lies before what a lane does. A thread ordered after the issue of a bulk copy is not
 * ordered after its completion; only a wait for its phase orders that. */
static bool lies_before(const cta *m, const warp *w, int lane, const checked_write *write) {
    if (write->landing <= LANDED) return ordered(m, w, lane, who_thread(write->who), write->time);
    return row_of(m, w, lane)[m->warp_count * LANES + write->landing - LANDED_BY] >= write->time;
}

static bool written_before(const cta *m, const warp *w, int lane, uint32_t index) {
    const checked_write write = last_write(m->checks, index);
    return lies_before(m, w, lane, &write);
}

static void report_writer(cta *m, const warp *w, int lane, uint32_t index, const char *verb) {
    const checks *const shadow = m->checks;
    if (shadow->async_written && shadow->async_written[index] > LANDED)
        emu_report_in_flight(m, w, lane, m, index, verb);
    else
        report_race(m, w, lane, (index << shadow->cell_shift) + m->shared_base, shadow->cells[index].write_who, false,
                    verb, "wrote");
}

/* The CTA whose engine completed a copy to a CTA. */
static const cta *engine_cta(const cta *at, unsigned landing) {
    return landing & LANDED_AT_PEER ? &at->cluster->ctas[at->rank ^ 1] : at;
}

void emu_check_writer(cta *m, const warp *w, int lane, cta *at, uint32_t index, const char *verb) {
    const bool remote = at->checks->cells[index].write_time == TIME_REMOTE;
    const uint32_t stamp = remote ? at->checks->remote->writes[index].time : at->checks->cells[index].write_time;
    const unsigned landing = at->checks->async_written ? at->checks->async_written[index] : LANDED_NOTHING;
    if (at == m && !remote) {
        if (!written_before(m, w, lane, index)) report_writer(m, w, lane, index, verb);
    } else if (landing < LANDED_BY) {
        emu_check_remote_writer(m, w, lane, at, index, verb);
    } else if (known_engines(m, w, lane, engine_cta(at, landing))[(landing & ~LANDED_AT_PEER) - LANDED_BY] < stamp) {
        emu_report_in_flight(m, w, lane, at, index, verb);
    }
}

/* ---- atomics over atomics ---- */

/* An access that is no atomic, to a cell of which one atomic covers another. */
static void check_covered(cta *m, const warp *w, int lane, uint32_t index, const char *verb) {
    const checks *const shadow = m->checks;
    const covered_update *old = &shadow->covered[index];
    if (old->time > shadow->base && !ordered(m, w, lane, who_thread(old->who), old->time))
        report_race(m, w, lane, (index << shadow->cell_shift) + m->shared_base, old->who, false, verb, "updated");
}

/* An atomic whose result nothing uses covers one that nothing orders before it: a plain read that follows would see the
 * last one only. If two are covered, the one of another warp is kept. If the result is used, the thread may learn from
 * it what happened before. */
static void note_covered(cta *m, const warp *w, int lane, uint32_t index, enum write_kind kind) {
    checks *const shadow = m->checks;
    const shadow_cell *cell = &shadow->cells[index];
    const bool both = kind != WRITE && cell->write_who & WHO_ATOMIC && cell->write_time < TIME_REMOTE;
    covered_update *old = shadow->covers ? &shadow->covered[index] : NULL;
    const bool stays = old && old->time > shadow->base && both && kind == UPDATE &&
                       !ordered(m, w, lane, who_thread(old->who), old->time);
    if (old && !stays) old->time = 0;
    if (!both || kind != UPDATE || ordered(m, w, lane, who_thread(cell->write_who), cell->write_time)) return;
    if (stays && who_thread(cell->write_who) / LANES == (uint32_t)w->index) return;
    if (!shadow->covers) {
        const size_t bytes = shadow->cell_count * sizeof *shadow->covered;
        if (!shadow->covered) shadow->covered = malloc(bytes);
        if (!shadow->covered) return;
        memset(shadow->covered, 0, bytes);
        shadow->covers = true;
    }
    shadow->covered[index] = (covered_update){cell->write_time, cell->write_who & ~(uint32_t)WHO_ATOMIC};
}

/* ---- reads ---- */

/* A cell is read that was written before the CTA waited for tickets: then it remembers that. */
static void remember(ticket_work *ticket, uint32_t index) {
    ticket->looked[index] = true;
    for (uint32_t k = ticket->written[index]; k < ticket->draws; k++) {
        ticket->reads_more |= !ticket->kept[k][index];
        ticket->kept[k][index] = true;
    }
}

static inline void note_memory(const cta *m, uint32_t index) {
    const checks *const shadow = m->checks;
    if (shadow->ticket && !shadow->ticket->looked[index]) remember(shadow->ticket, index);
}

/* A read of a cell that was written since the last barrier of the CTA, or never: the bytes that are undefined. */
static uint32_t slow_read(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes, uint32_t index) {
    checks *const shadow = m->checks;
    const shadow_cell *cell = &shadow->cells[index];
    const uint32_t at = (index << shadow->cell_shift) + m->shared_base;
    if (cell->write_time == TIME_NEVER) return bytes_in_cell(m, address, bytes, at);
    if (cell->write_time == TIME_IN_FLIGHT) {
        emu_report_in_flight(m, w, lane, m, index, "reads");
        return 0;
    }
    if (cell->write_time == TIME_REMOTE)
        emu_check_writer(m, w, lane, m, index, "reads");
    else if (cell->write_time > shadow->base && !written_before(m, w, lane, index))
        report_writer(m, w, lane, index, "reads");
    if (shadow->covers) check_covered(m, w, lane, index, "reads");
    return cell->write_who & WHO_UNDEFINED ? bytes_in_cell(m, address, bytes, at) | STORED_UNDEFINED : 0;
}

/* With clocks every warp has a note of its own, and the cell says only who was the last. again: so was the one before.
 */
static inline void note_warp_reads(const cta *m, uint32_t who, uint32_t first, uint32_t last, uint32_t stamp,
                                   bool again) {
    checks *const shadow = m->checks;
    const uint32_t self = 1u << who_thread(who) % LANES, base = shadow->base, reader = who_thread(who) / LANES;
    warp_read *read = read_by(m, reader, first);
    if (shadow->last_reads[reader] < stamp) shadow->last_reads[reader] = stamp;
    for (shadow_cell *cell = &shadow->cells[first], *const end = &shadow->cells[last]; cell <= end; cell++, read++) {
        const bool others = !again && cell->read_time > base && who_thread(cell->read_who ^ who);
        *read = (warp_read){stamp, self | (read->time == stamp ? read->lanes : 0)};
        cell->read_who = who | (others ? WHO_MANY_LANES : 0);
        cell->read_time = stamp;
    }
}

static inline void set_writer(checks *shadow, uint32_t index, const checked_write *write) {
    shadow->cells[index].write_time = write->time;
    shadow->cells[index].write_who = write->who;
    if (shadow->async_written) shadow->async_written[index] = (uint8_t)write->landing;
}

static void forget_generic(const checks *shadow, uint32_t first, uint32_t last) {
    if (shadow->read_generic) memset(shadow->read_generic + first, false, last - first + 1);
}

void emu_settle_unit(const cta *m, uint32_t unit) {
    checks *const shadow = m->checks;
    async_unit *const of = &shadow->async_units[unit];
    const uint32_t cells = ASYNC_UNIT >> shadow->cell_shift, first = unit * cells, last = first + cells - 1;
    const checked_write written = of->written;
    for (uint32_t i = first; i <= last && written.time; i++) set_writer(shadow, i, &written);
    of->written.time = 0;
    uint32_t k = of->ended[1].time && of->ended[1].time < of->ended[0].time; /* the earlier one first */
    if (of->ended[0].time) forget_generic(shadow, first, last);
    for (uint32_t i = 0; i < PRODUCT_READERS; i++, k ^= 1) {
        const product_read each = of->ended[k];
        of->ended[k].time = 0;
        if (each.time) note_warp_reads(m, each.who & ~WHO_AGAIN, first, last, each.time, each.who & WHO_AGAIN);
    }
}

/* True if a thread's note can replace a note of a unit: its own, none, or one before a barrier that all have passed. */
static inline bool can_replace(const cta *m, const product_read *ended, uint32_t who) {
    return !who_thread(ended->who ^ who) || !ended->time ||
           (ended->time <= m->checks->base && !m->checks->read_generic && m->cluster->count == 1);
}

/* Note that a product that read a unit has ended. A third thread's note needs the cells. */
static void note_product(const cta *m, uint32_t unit, uint32_t who, uint32_t stamp) {
    product_read *ended = m->checks->async_units[unit].ended;
    uint32_t k = !can_replace(m, &ended[0], who);
    if (k && !can_replace(m, &ended[1], who)) {
        emu_settle_unit(m, unit);
        k = 0;
    }
    const bool again = ended[k].time > ended[k ^ 1].time && !who_thread(ended[k].who ^ who);
    ended[k] = (product_read){stamp, who | (again ? WHO_AGAIN : 0)};
}

static void note_read(const cta *m, const warp *w, uint32_t who, shadow_cell *cell) {
    if (cell->read_time <= m->checks->base) {
        cell->read_who = who;
    } else {
        uint32_t before = cell->read_who;
        bool same_warp = who_thread(before) / LANES == (uint32_t)w->index;
        uint32_t flags = before & WHO_MANY_WARPS;
        if (!same_warp)
            flags = WHO_MANY_WARPS;
        else if (cell->read_time > w->synced)
            flags |= (before & WHO_MANY_LANES) | (who_thread(before) != who_thread(who) ? WHO_MANY_LANES : 0);
        cell->read_who = who | flags;
    }
    cell->read_time = w->clock;
}

uint32_t emu_on_shared_read(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes) {
    checks *const shadow = m->checks;
    uint32_t first = (address - m->shared_base) >> shadow->cell_shift,
             last = (address - m->shared_base + bytes - 1) >> shadow->cell_shift;
    uint32_t who = pack_who(m, w, lane), undefined = 0;
    settle_cells(m, first, last);
    for (uint32_t i = first; i <= last; i++) {
        shadow_cell *cell = &shadow->cells[i];
        if (cell->write_time > shadow->settled) undefined |= slow_read(m, w, lane, address, bytes, i);
        if (shadow->warp_reads)
            note_warp_reads(m, who, i, i, w->clock, false);
        else
            note_read(m, w, who, cell);
        if (shadow->read_generic) shadow->read_generic[i] = true;
        note_memory(m, i);
    }
    return undefined;
}

void emu_shadow_undefined(cta *m, uint32_t address, uint32_t bytes) {
    checks *const shadow = m->checks;
    uint32_t first = (address - m->shared_base) >> shadow->cell_shift,
             last = (address - m->shared_base + bytes - 1) >> shadow->cell_shift;
    shadow->writes++;
    settle_cells(m, first, last);
    for (uint32_t i = first; i <= last; i++) shadow->cells[i].write_who |= WHO_UNDEFINED;
    shadow->undefined_cells = true;
    shadow->settled = 0;
}

/* ---- writes ---- */

static inline void note_new(ticket_work *ticket, uint32_t index) {
    ticket->written[index] = (uint16_t)ticket->draws;
    ticket->looked[index] = true;
}

enum { ALL_ORDERED = -1 };

/* The thread of a read that nothing orders before this write, or ALL_ORDERED. Without clocks of the threads it is the
 * last reader. */
static int unordered_reader(const cta *m, const warp *w, int lane, const shadow_cell *cell, uint32_t index) {
    const checks *const shadow = m->checks;
    uint32_t who = cell->read_who, thread = who_thread(who);
    if (cell->read_time <= shadow->base) return ALL_ORDERED;
    if (!shadow->clocks) {
        bool same_warp = thread / LANES == (uint32_t)w->index && !(who & WHO_MANY_WARPS);
        if (same_warp && cell->read_time <= w->synced) return ALL_ORDERED;
        return same_warp && thread == (uint32_t)(w->index * LANES + lane) && !(who & WHO_MANY_LANES) ? ALL_ORDERED
                                                                                                     : (int)thread;
    }
    /* of each warp the lanes that read last: what earlier readers did goes unseen */
    for (uint32_t other = 0; other < m->warp_count; other++) {
        const warp_read *last = read_by(m, other, index);
        for (uint32_t lanes = last->time > shadow->base ? last->lanes : 0; lanes; lanes &= lanes - 1) {
            thread = other * LANES + (uint32_t)first_lane(lanes);
            if (!ordered(m, w, lane, thread, last->time)) return (int)thread;
        }
    }
    return ALL_ORDERED;
}

/* True if two threads write the same value by one instruction, which leaves no doubt about the result: compilers let
 * warps do the same work, and people let them load the same table. */
static bool same_value(const cta *m, const shadow_cell *cell, uint32_t address, uint32_t cell_address, uint32_t bytes,
                       const uint8_t *data) {
    if (who_instruction(cell->write_who) != m->here || !data) return false;
    uint32_t begin = cell_address > address ? cell_address : address;
    uint32_t end = cell_address + (1u << m->checks->cell_shift);
    if (end > address + bytes) end = address + bytes;
    return begin < end && !memcmp(m->shared + (begin - m->shared_base), data + (begin - address), end - begin);
}

void emu_check_mbarrier_bytes(cta *m, const warp *w, int lane, const cta *at, uint32_t address, uint32_t bytes) {
    for (int i = 0; i < at->mbarrier_count; i++) {
        const mbarrier *bar = &at->mbarriers[i];
        if (!bar->live || address + bytes <= bar->address || address >= bar->address + 8) continue;
        emu_report(
            m, EMU_BARRIER_MISUSE, UINT32_MAX, w, lane, -1, address,
            "This thread writes 0x%x, inside the mbarrier object at 0x%x.\nOnly mbarrier instructions may touch it "
            "until "
            "mbarrier.inval.",
            address, bar->address);
    }
}

/* ---- the async proxy: what wgmma and bulk copies read ---- */

/* True if the async proxy may still read what is written: then that is said. */
bool emu_check_async_readers(cta *m, const warp *w, int lane, const cta *at, uint32_t address, uint32_t bytes) {
    uint32_t first = (address - m->shared_base) / ASYNC_UNIT,
             last = (address - m->shared_base + bytes - 1) / ASYNC_UNIT;
    for (uint32_t i = first; i <= last; i++) {
        if (!at->checks->async_units[i].count) continue;
        emu_report(m, EMU_ASYNC_IN_FLIGHT, at->checks->async_units[i].instruction, w, lane, -1, address,
                   "This thread writes shared memory at 0x%x while a wgmma or a bulk copy may still read it.\n"
                   "The reader must wait first (wgmma.wait_group or cp.async.bulk.wait_group.read) and then tell "
                   "this thread, by an mbarrier or a barrier.",
                   address);
        return true;
    }
    return false;
}

/* True if the async proxy sees a store of `thread` at `stamp`: a fence.proxy.async lies between that store and the
 * observer, executed by the one or by the other. */
bool emu_proxy_sees(const cta *m, const warp *w, int lane, uint32_t thread, uint32_t stamp, bool global) {
    checks *const shadow = m->checks;
    uint32_t self = (uint32_t)(w->index * LANES + lane), threads = m->warp_count * LANES;
    const struct proxy_fences *its = &shadow->proxy_fences[global * threads + thread];
    if (shadow->proxy_fences[global * threads + self].next && known_at_fence(m, self, global)[thread] >= stamp)
        return true;
    for (int i = 0; i < FENCES; i++) {
        uint32_t fence = its->stamps[i];
        if (fence >= stamp && fence && ordered(m, w, lane, thread, fence)) return true;
    }
    return false;
}

/* The clock of a store to shared memory by a thread of another CTA. */
static bool proxy_sees_remote(const cta *m, const warp *w, int lane, uint32_t rank, const remote_access *store) {
    const uint32_t thread = who_thread(store->who), self = (uint32_t)(w->index * LANES + lane);
    const struct proxy_fences *its = &m->cluster->ctas[rank].checks->proxy_fences[thread];
    for (int i = 0; i < FENCES; i++) {
        const uint32_t fence = its->stamps[i];
        if (fence >= store->time && ordered_in_cluster(m, w, lane, rank, store->who, fence)) return true;
    }
    const uint32_t *tail = known_at_fence(m, self, false) + m->warp_count * LANES;
    return m->checks->proxy_fences[self].next && tail[rank * m->warp_count + thread / LANES] >= store->time;
}

/* True if a write by the CTA is a store that the async proxy does not see, and no race: that is reported as one. */
static bool is_unfenced_here(const cta *m, const warp *w, int lane, const checked_write *write) {
    const uint32_t thread = who_thread(write->who);
    return write->time && !write->landing && ordered(m, w, lane, thread, write->time) &&
           !emu_proxy_sees(m, w, lane, thread, write->time, false);
}

/* Likewise of the last write of a cell, by any CTA. */
static bool is_unfenced(const cta *m, const warp *w, int lane, uint32_t index) {
    checks *const shadow = m->checks;
    const checked_write write = last_write(shadow, index);
    if (write.time != TIME_REMOTE) return is_unfenced_here(m, w, lane, &write);
    if (write.landing) return false;
    const remote_access *store = &shadow->remote->writes[index];
    const uint32_t rank = shadow->remote->writers[index] - 1u;
    return ordered_in_cluster(m, w, lane, rank, store->who, store->time) && !proxy_sees_remote(m, w, lane, rank, store);
}

static void check_proxy(cta *m, const warp *w, int lane, uint32_t address, const shadow_cell *cell) {
    const checks *const shadow = m->checks;
    const uint32_t thread = who_thread(cell->write_who);
    char other[112];
    if (!is_unfenced(m, w, lane, (uint32_t)(cell - shadow->cells))) return;
    describe(other, sizeof other, cell->write_who, false);
    if (cell->write_time == TIME_REMOTE) {
        const size_t used = strlen(other);
        snprintf(other + used, sizeof other - used, " of the CTA with rank %u",
                 shadow->remote->writers[cell - shadow->cells] - 1u);
    }
    emu_report(m, EMU_MISSING_PROXY_FENCE, who_instruction(cell->write_who), w, lane, (int)thread, address,
               "This instruction reads shared memory at 0x%x through the async proxy, but an ordinary store wrote it, "
               "without a fence.proxy.async in between.\n"
               "The store: %s.\n"
               "The storing thread must execute fence.proxy.async after the store, before the barrier that this warp "
               "waits for.",
               address, other);
}

static void report_unset(cta *m, const warp *w, int lane, uint32_t address) {
    emu_report(m, EMU_UNINITIALISED_SHARED, UINT32_MAX, w, lane, -1, address,
               "A wgmma, tcgen05 or bulk copy reads shared memory at 0x%x, which this CTA has not written.\n"
               "Shared memory starts with whatever an earlier CTA left there.",
               address);
}

/* True if lane 0 of a warp is ordered after all that the lanes of another did up to a time. */
static bool knows_warp(const cta *m, const warp *w, uint32_t writer, uint32_t time) {
    if (time <= m->checks->base || (writer == (uint32_t)w->index && time <= w->synced)) return true;
    const uint32_t *row = row_of(m, w, 0) + writer * LANES;
    bool knows = true;
    for (int i = 0; i < LANES; i++) knows &= row[i] >= time;
    return knows;
}

/* True if the async proxy sees, for lane 0 of a warp, all that the lanes of another stored up to a time. */
static bool proxy_sees_warp(const cta *m, const warp *w, uint32_t writer, uint32_t time) {
    const uint32_t self = (uint32_t)w->index * LANES, *fenced = known_at_fence(m, self, false) + writer * LANES;
    bool sees = m->checks->proxy_fences[self].next;
    for (int i = 0; i < LANES; i++) sees &= fenced[i] >= time;
    if (sees) return true; /* by the fence of lane 0, which is usual */
    sees = true;
    for (uint32_t i = 0; i < LANES && sees; i++) sees = emu_proxy_sees(m, w, 0, writer * LANES + i, time, false);
    return sees;
}

/* True if the writes of any lane of a warp lie before what lane 0 of another does, and the async proxy sees them. What
 * a lane knows it goes on to know. */
static bool knows_writes(const cta *m, const warp *w, uint32_t writer, uint32_t time, uint32_t landing) {
    checks *const shadow = m->checks;
    known_writes *known = &shadow->known[writer];
    const known_writes these = {time, landing, (uint32_t)w->index + 1};
    if (known->time == time && known->landing == landing && known->observer == these.observer) return true;
    if (time >= TIME_REMOTE) return false;
    if (time && !landing && !proxy_sees_warp(m, w, writer, time)) return false;
    if (landing > LANDED && time > shadow->base && row_of(m, w, 0)[m->warp_count * LANES + landing - LANDED_BY] < time)
        return false;
    if (landing <= LANDED && !knows_warp(m, w, writer, time)) return false;
    *known = these;
    return true;
}

/* True if the async proxy may read what a write left: it lies before, and has a value. */
static bool is_in_order(const cta *m, const warp *w, int lane, const checked_write *write) {
    if (write->time >= TIME_REMOTE || write->who & WHO_UNDEFINED || is_unfenced_here(m, w, lane, write)) return false;
    return write->time <= m->checks->base || lies_before(m, w, lane, write);
}

static void check_async_read(cta *m, const warp *w, int lane, uint32_t first, uint32_t last) {
    checks *const shadow = m->checks;
    settle_cells(m, first, last);
    for (uint32_t i = first; i <= last; i++) {
        shadow_cell *cell = &shadow->cells[i];
        uint32_t at = (i << shadow->cell_shift) + m->shared_base;
        const checked_write write = last_write(shadow, i);
        if (is_in_order(m, w, lane, &write)) continue;
        if (cell->write_time > shadow->settled && slow_read(m, w, lane, at, 1u << shadow->cell_shift, i))
            report_unset(m, w, lane, at);
        if (cell->write_time < TIME_NEVER) check_proxy(m, w, lane, at, cell);
    }
}

static inline async_unit *count_async_read(const cta *m, uint32_t address) {
    async_unit *unit = &m->checks->async_units[(address - m->shared_base) / ASYNC_UNIT];
    unit->count++;
    unit->instruction = m->here;
    return unit;
}

static void note_async_memory(const cta *m, uint32_t address) {
    for (uint32_t i = first_cell(m, address); m->checks->ticket && i <= last_cell(m, address, ASYNC_UNIT); i++)
        note_memory(m, i);
}

void emu_check_async_source(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes) {
    check_async_read(m, w, lane, first_cell(m, address), last_cell(m, address, bytes));
}

void emu_async_read_begins(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes, bool checked) {
    if (!checked) emu_check_async_source(m, w, lane, address, bytes);
    for (uint32_t i = 0; i < bytes; i += ASYNC_UNIT) {
        count_async_read(m, address + i);
        note_async_memory(m, address + i);
    }
}

static void add_writer(product_writers *writers, uint32_t warp, uint32_t time, uint32_t landing) {
    if (writers->count < MAX_WRITERS) {
        writers->of[writers->count].warp = warp;
        writers->of[writers->count].time = time;
        writers->of[writers->count].landing = landing;
    }
    if (writers->count <= MAX_WRITERS) writers->count++;
}

/* True if a product may read what a write left; then it is one of its writers. */
static bool add_known(cta *m, const warp *w, const checked_write *write, product_writers *writers) {
    const uint32_t writer = who_thread(write->who) / LANES;
    bool listed = false;
    if (write->who & WHO_UNDEFINED || !knows_writes(m, w, writer, write->time, write->landing)) return false;
    for (uint32_t k = 0; k < writers->count && k < MAX_WRITERS; k++)
        listed |= writers->of[k].warp == writer && writers->of[k].time == write->time &&
                  writers->of[k].landing == write->landing;
    if (!listed) add_writer(writers, writer, write->time, write->landing);
    return true;
}

/* True if a product may read what a write left. *known: lane 0 is ordered after all that its warp did until then. */
static bool is_readable(cta *m, const warp *w, const checked_write *write, bool *known, product_writers *writers) {
    *known = add_known(m, w, write, writers);
    if (!*known) writers->count = MAX_WRITERS + 1;
    return *known || is_in_order(m, w, 0, write);
}

/* Look at the cells of a unit, and report what is wrong. Returns whether nothing is. */
static bool look_at(cta *m, const warp *w, uint32_t first, uint32_t last, bool *known, product_writers *writers) {
    bool in_order = true;
    settle_cells(m, first, last);
    for (uint32_t i = first; i <= last; i++) {
        const checked_write write = last_write(m->checks, i);
        if (is_readable(m, w, &write, known, writers)) continue;
        check_async_read(m, w, 0, i, i);
        in_order = false;
    }
    return in_order;
}

/* True if a write is in order because another one is, whose warp (if known) or thread and time it shares. */
static inline bool is_alike(const checked_write *write, const checked_write *other, bool known) {
    const uint32_t same = known ? WHO_UNDEFINED | (1023 & ~(LANES - 1u)) << WHO_THREAD_SHIFT : UINT32_MAX;
    return write->time == other->time && write->landing == other->landing && !((write->who ^ other->who) & same);
}

void emu_on_product_read(cta *m, const warp *w, const uint32_t *addresses, uint32_t count, product_writers *writers) {
    const checks *const shadow = m->checks;
    const uint32_t cells = ASYNC_UNIT >> shadow->cell_shift;
    checked_write before = {0};           /* the last write of the unit before */
    bool in_order = false, known = false; /* of `before` */
    writers->writes = shadow->writes;
    for (uint32_t i = 0; i < count; i++) {
        const async_unit *unit = count_async_read(m, addresses[i]);
        const uint32_t first = first_cell(m, addresses[i]), last = first + cells - 1;
        const checked_write written = unit->written;
        bool alike = in_order && (!written.time || is_alike(&written, &before, known));
        for (uint32_t k = first; k <= last && alike && !written.time; k++) {
            const checked_write each = last_write(shadow, k);
            alike = is_alike(&each, &before, known);
        }
        if (!alike) {
            in_order = (written.time && is_readable(m, w, &written, &known, writers)) ||
                       look_at(m, w, first, last, &known, writers);
            before = unit->written.time ? written : last_write(shadow, last);
        }
        if (shadow->ticket) note_async_memory(m, addresses[i]);
    }
}

bool emu_on_product_read_again(cta *m, const warp *w, const product_writers *writers) {
    if (writers->count > MAX_WRITERS || writers->writes != m->checks->writes || m->checks->ticket) return false;
    bool known = true;
    for (uint32_t i = 0; i < writers->count && known; i++)
        known = knows_writes(m, w, writers->of[i].warp, writers->of[i].time, writers->of[i].landing);
    return known;
}

void emu_async_read_ends(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes, uint32_t stamp) {
    const uint32_t first = first_cell(m, address), last = last_cell(m, address, bytes);
    settle_cells(m, first, last);
    note_warp_reads(m, pack_who(m, w, lane), first, last, stamp, false);
    forget_generic(m->checks, first, last);
    for (uint32_t i = 0; i < bytes; i += ASYNC_UNIT)
        m->checks->async_units[(address - m->shared_base + i) / ASYNC_UNIT].count--;
}

void emu_on_product_read_end(cta *m, const warp *w, const uint32_t *addresses, uint32_t count, uint32_t reads) {
    const uint32_t who = pack_who(m, w, 0);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t unit = (addresses[i] - m->shared_base) / ASYNC_UNIT;
        note_product(m, unit, who, w->clock);
        m->checks->async_units[unit].count -= reads;
    }
}

/* A thread that read a cell, and whose read the async proxy does not see, and no race: that is reported as one.
 * ALL_ORDERED where there is none. */
static int unfenced_reader(const cta *m, const warp *w, int lane, uint32_t index) {
    for (uint32_t k = 0; k < m->warp_count; k++) {
        const warp_read *last = read_by(m, k, index);
        for (uint32_t lanes = last->lanes; lanes; lanes &= lanes - 1) {
            const uint32_t thread = k * LANES + (uint32_t)first_lane(lanes);
            if (ordered(m, w, lane, thread, last->time) && !emu_proxy_sees(m, w, lane, thread, last->time, false))
                return (int)thread;
        }
    }
    return ALL_ORDERED;
}

void emu_check_async_write(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes) {
    checks *const shadow = m->checks;
    int reader = ALL_ORDERED;
    if (!shadow->read_generic) return;
    settle_cells(m, first_cell(m, address), last_cell(m, address, bytes));
    for (uint32_t i = first_cell(m, address); i <= last_cell(m, address, bytes); i++) {
        if (shadow->read_generic[i] && reader == ALL_ORDERED &&
            (reader = unfenced_reader(m, w, lane, i)) != ALL_ORDERED)
            emu_report(
                m, EMU_MISSING_PROXY_FENCE, who_instruction(shadow->cells[i].read_who), w, lane, reader,
                (i << shadow->cell_shift) + m->shared_base,
                "This bulk copy writes shared memory at 0x%x through the async proxy, but an ordinary instruction "
                "has read it, without a fence.proxy.async in between: the copy may come first.\n"
                "The reading thread must execute fence.proxy.async after the read, before a barrier that this warp "
                "waits for; or this thread must execute it after that barrier.",
                (i << shadow->cell_shift) + m->shared_base);
        shadow->read_generic[i] = false;
    }
}

/* State of the mbarriers that a thread has initialized: a fence follows. */
static void note_init_fence(cta *m, uint32_t thread, uint32_t stamp) {
    for (int i = 0; i < m->mbarrier_count; i++) {
        mbarrier *bar = &m->mbarriers[i];
        if (bar->live && bar->init_thread == thread && !bar->fence_stamp) bar->fence_stamp = stamp;
    }
}

/* Lanes that executed a fence apart get rows of their own. */
static void part_fences(const cta *m, const warp *w, bool global) {
    checks *const shadow = m->checks;
    const uint32_t first = (uint32_t)w->index * LANES;
    if (!(shadow->fenced_together[global] >> w->index & 1)) return;
    const uint32_t *shared = known_at_fence(m, first, global);
    shadow->fenced_together[global] &= ~(1u << w->index);
    for (uint32_t i = 1; i < LANES; i++)
        memcpy(known_at_fence(m, first + i, global), shared, (m->warp_count * LANES + tail_count(m)) * sizeof *shared);
}

/* Store the vector clock of a lane, or of all lanes that executed the fence together, at a fence. */
static void keep_known(const cta *m, const warp *w, int lane, bool global) {
    const uint32_t threads = m->warp_count * LANES, base = m->checks->base;
    uint32_t *knows = known_at_fence(m, (uint32_t)(w->index * LANES + lane), global), *row = row_of(m, w, lane);
    for (uint32_t t = 0; t < threads; t++) knows[t] = row[t] < base ? base : row[t];
    for (uint32_t t = (uint32_t)w->index * LANES; t < ((uint32_t)w->index + 1) * LANES; t++)
        knows[t] = knows[t] < w->synced ? w->synced : knows[t];
    memcpy(knows + threads, tail_of(m, row), tail_count(m) * sizeof *knows);
}

static void note_proxy_fence(cta *m, const warp *w, uint32_t mask, bool global) {
    checks *const shadow = m->checks;
    const uint32_t first = (uint32_t)w->index * LANES;
    const bool together = w->together && mask == live_lanes(w);
    if (!together) part_fences(m, w, global);
    if (together) shadow->fenced_together[global] |= 1u << w->index;
    if (together) keep_known(m, w, 0, global);
    for (; mask; mask &= mask - 1) {
        const int lane = first_lane(mask);
        struct proxy_fences *its = &shadow->proxy_fences[global * m->warp_count * LANES + first + (uint32_t)lane];
        its->stamps[its->next++ % FENCES] = w->clock;
        if (!together) keep_known(m, w, lane, global);
        if (!together) known_at_fence(m, first + (uint32_t)lane, global)[first + (uint32_t)lane] = w->clock;
    }
}

void emu_proxy_fence(cta *m, warp *w, uint32_t mask, unsigned memory) {
    if (!m->checks->proxy_fences) return;
    if (memory & FENCED_SHARED) note_proxy_fence(m, w, mask, false);
    if (memory & FENCED_GLOBAL) note_proxy_fence(m, w, mask, true);
    for (; memory & FENCED_SHARED && mask; mask &= mask - 1)
        note_init_fence(m, (uint32_t)(w->index * LANES + first_lane(mask)), w->clock);
    emu_clock_tick(m, w);
}

void emu_init_fence(cta *m, warp *w, uint32_t mask) {
    for (; mask; mask &= mask - 1) note_init_fence(m, (uint32_t)(w->index * LANES + first_lane(mask)), w->clock);
    emu_clock_tick(m, w);
}

void emu_check_init_fence(cta *m, const warp *w, int lane, const mbarrier *bar) {
    if (!m->checks->proxy_fences || !ordered(m, w, lane, bar->init_thread, bar->init_stamp))
        return; /* the latter is a race */
    if (bar->fence_stamp && ordered(m, w, lane, bar->init_thread, bar->fence_stamp)) return;
    if (emu_proxy_sees(m, w, lane, bar->init_thread, bar->init_stamp, false)) return;
    emu_report(
        m, EMU_MISSING_INIT_FENCE, UINT32_MAX, w, lane, (int)bar->init_thread, bar->address,
        "This copy counts its bytes at the mbarrier at 0x%x through the async proxy, but no fence follows the "
        "mbarrier.init.\n"
        "The initializing thread must execute fence.mbarrier_init.release.cluster after it, before a barrier that "
        "this warp waits for.",
        bar->address);
}

void emu_clock_learn(cta *m, const warp *w, uint32_t thread, uint32_t stamp) {
    for (int lane = 0; m->checks->clocks && lane < (w->together ? 1 : LANES); lane++) {
        uint32_t *known_stamp = &row_of(m, w, lane)[thread];
        if (*known_stamp < stamp) *known_stamp = stamp;
    }
}

/* True if all products that the units of some cells keep lie before what a lane does. */
static bool products_are_known(const cta *m, const warp *w, int lane, uint32_t first, uint32_t last) {
    const checks *const shadow = m->checks;
    const uint32_t end = ((last + 1) << shadow->cell_shift) - 1;
    product_read known = {0};
    for (uint32_t i = (first << shadow->cell_shift) / ASYNC_UNIT; i <= end / ASYNC_UNIT; i++) {
        for (int k = 0; k < PRODUCT_READERS && shadow->async_units[i].ended[k].time; k++) {
            const product_read each = shadow->async_units[i].ended[k];
            if (each.time == known.time && each.who == known.who) continue;
            if (!ordered(m, w, lane, who_thread(each.who), each.time)) return false;
            known = each;
        }
    }
    return true;
}

/* True if all reads of many cells lie before what a lane does. If they are few, or a lane that read is less ordered
 * than others of its warp, it checks lane by lane. */
static bool reads_are_known(const cta *m, const warp *w, int lane, uint32_t first, uint32_t last) {
    const checks *const shadow = m->checks;
    enum { MANY = 64 };
    if (!shadow->clocks || last - first < MANY) return false;
    if (shadow->async_units && !products_are_known(m, w, lane, first, last)) return false;
    for (uint32_t k = 0; k < m->warp_count; k++) {
        if (shadow->last_reads[k] <= shadow->base) continue;
        const warp_read *reads = read_by(m, k, first);
        const bool alike = !memcmp(reads, reads + 1, (last - first) * sizeof *reads);
        uint32_t latest = 0, lanes = 0;
        for (uint32_t i = 0; i <= (alike ? 0 : last - first); i++) {
            latest = latest > reads[i].time ? latest : reads[i].time;
            lanes |= reads[i].lanes;
        }
        for (; lanes && latest > shadow->base; lanes &= lanes - 1)
            if (!ordered(m, w, lane, k * LANES + (uint32_t)first_lane(lanes), latest)) return false;
    }
    return true;
}

/* before: a write of a cell that lies before; such cells stand side by side. */
static void check_written(cta *m, const warp *w, int lane, uint32_t i, uint32_t address, uint32_t bytes,
                          const uint8_t *data, bool copies, checked_write *before) {
    const shadow_cell *cell = &m->checks->cells[i];
    if (cell->write_time == TIME_IN_FLIGHT)
        emu_report_in_flight(m, w, lane, m, i, copies ? "starts another copy to" : "writes");
    else if (cell->write_time == TIME_REMOTE)
        emu_check_writer(m, w, lane, m, i, "writes");
    else if (written_before(m, w, lane, i))
        *before = last_write(m->checks, i);
    else if (!same_value(m, cell, address, (i << m->checks->cell_shift) + m->shared_base, bytes, data))
        report_writer(m, w, lane, i, "writes");
}

/* Check what a write or an atomic replaces. An atomic may cover another. Return the flags of `who`. */
static uint32_t replace_write(cta *m, const warp *w, int lane, uint32_t i, uint32_t who, enum write_kind kind) {
    checks *const shadow = m->checks;
    const shadow_cell *cell = &shadow->cells[i];
    const bool atomic = kind != WRITE;
    /* a store that its own thread follows with an atomic remains a store for those that are not ordered after it */
    const bool covers_store = atomic && !shadow->clocks && cell->write_time > shadow->base &&
                              cell->write_time > w->synced && cell->write_time < TIME_NEVER &&
                              !(cell->write_who & WHO_ATOMIC) && who_thread(cell->write_who) == who_thread(who);
    if (!atomic && shadow->covers) check_covered(m, w, lane, i, "writes");
    note_covered(m, w, lane, i, kind);
    return atomic && !covers_store ? WHO_ATOMIC : 0;
}

static void check_reads(cta *m, const warp *w, int lane, uint32_t i) {
    shadow_cell *cell = &m->checks->cells[i];
    const int reader = unordered_reader(m, w, lane, cell, i);
    if (reader == ALL_ORDERED) return;
    report_race(m, w, lane, (i << m->checks->cell_shift) + m->shared_base,
                who_instruction(cell->read_who) | (uint32_t)reader << WHO_THREAD_SHIFT,
                cell->read_who & (WHO_MANY_LANES | WHO_MANY_WARPS), "writes", "read");
    cell->read_time = 0; /* once is enough */
}

/* True if units can keep a copy to these bytes. */
static inline bool has_units(const cta *m, uint32_t address, uint32_t bytes) {
    const checks *const shadow = m->checks;
    return shadow->async_units && !(((address - m->shared_base) | bytes) % ASYNC_UNIT) && !shadow->ticket &&
           !shadow->covers && m->cluster->count == 1;
}

/* Begin a copy to a unit. reads_known: all reads of it lie before. before: see check_written(). */
static void issue_unit(cta *m, const warp *w, int lane, uint32_t unit, bool reads_known, checked_write *before) {
    checks *const shadow = m->checks;
    async_unit *const of = &shadow->async_units[unit];
    const uint32_t cells = ASYNC_UNIT >> shadow->cell_shift, first = unit * cells, last = first + cells - 1;
    const checked_write old = of->written;
    const bool old_products = of->ended[0].time <= shadow->base && of->ended[1].time <= shadow->base;
    bool quiet = reads_known || old_products || products_are_known(m, w, lane, first, last);
    for (uint32_t i = first; i <= last && !reads_known; i++) quiet &= shadow->cells[i].read_time <= shadow->base;
    if (old.time > shadow->base && !is_same_write(&old, before)) {
        const bool lies = old.time < TIME_REMOTE && lies_before(m, w, lane, &old);
        if (lies) *before = old;
        quiet &= lies;
    }
    if (!quiet) emu_settle_unit(m, unit);
    for (uint32_t i = first; i <= last && !of->written.time; i++) {
        const checked_write write = last_write(shadow, i);
        if (write.time > shadow->base && write.time != TIME_NEVER && !is_same_write(&write, before))
            check_written(m, w, lane, i, 0, 0, NULL, true, before);
        if (!reads_known && shadow->cells[i].read_time > shadow->base) check_reads(m, w, lane, i);
    }
    of->written = (checked_write){TIME_IN_FLIGHT, pack_who(m, w, lane), LANDED_NOTHING};
}

static void write_cells(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes, const uint8_t *data,
                        uint32_t time, enum write_kind kind) {
    checks *const shadow = m->checks;
    const uint32_t first = first_cell(m, address), last = last_cell(m, address, bytes), base = shadow->base;
    const uint32_t who = pack_who(m, w, lane);
    if (m->mbarrier_count) emu_check_mbarrier_bytes(m, w, lane, m, address, bytes);
    /* once is enough: other warps of the warpgroup, which read later, have no race with it */
    if (shadow->async_units && emu_check_async_readers(m, w, lane, m, address, bytes) && time < TIME_REMOTE) time = 0;
    const bool known = reads_are_known(m, w, lane, first, last);
    checked_write before = {0};
    shadow->writes++;
    if (time == TIME_IN_FLIGHT && has_units(m, address, bytes)) {
        for (uint32_t i = 0; i < bytes; i += ASYNC_UNIT)
            issue_unit(m, w, lane, (address - m->shared_base + i) / ASYNC_UNIT, known, &before);
        return;
    }
    settle_cells(m, first, last);
    for (uint32_t i = first; i <= last; i++) {
        shadow_cell *cell = &shadow->cells[i];
        if (cell->write_time > base && cell->write_time != TIME_NEVER) {
            const checked_write old = last_write(shadow, i);
            const bool as_before = is_same_write(&old, &before);
            const bool both_atomic = kind != WRITE && old.who & WHO_ATOMIC && old.time != TIME_IN_FLIGHT;
            if (!as_before && !both_atomic)
                check_written(m, w, lane, i, address, bytes, data, time == TIME_IN_FLIGHT, &before);
        }
        if (!known && cell->read_time > base) check_reads(m, w, lane, i);
        const uint32_t flags = kind != WRITE || shadow->covers ? replace_write(m, w, lane, i, who, kind) : 0;
        if (shadow->ticket) note_new(shadow->ticket, i);
        cell->write_time = time;
        cell->write_who = who | flags;
    }
    if (shadow->async_written) memset(shadow->async_written + first, LANDED_NOTHING, last - first + 1);
    for (uint32_t i = first; shadow->remote && i <= last; i++) {
        emu_check_remote_readers(m, w, lane, m, i);
        shadow->remote->writers[i] = 0;
    }
}

void emu_on_shared_write(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes, const void *data) {
    write_cells(m, w, lane, address, bytes, data, w->clock, WRITE);
}

/* An atomic reads too, but atomics are ordered among themselves. */
void emu_on_shared_atomic(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes, bool asks) {
    checks *const shadow = m->checks;
    uint32_t first = (address - m->shared_base) >> shadow->cell_shift,
             last = (address - m->shared_base + bytes - 1) >> shadow->cell_shift;
    settle_cells(m, first, last);
    for (uint32_t i = first; i <= last; i++) {
        note_memory(m, i);
        if (shadow->cells[i].write_time == TIME_NEVER) {
            report_never(m, w, lane, (i << shadow->cell_shift) + m->shared_base);
            shadow->cells[i].write_time = 0; /* once is enough */
        }
    }
    write_cells(m, w, lane, address, bytes, NULL, w->clock, asks ? UPDATE_AND_ASK : UPDATE);
}

void emu_shadow_issue(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes) {
    write_cells(m, w, lane, address, bytes, NULL, TIME_IN_FLIGHT, WRITE);
}

void emu_shadow_land(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes, uint32_t stamp,
                     uint32_t instruction, unsigned landing) {
    checks *const shadow = m->checks;
    const uint32_t thread = (uint32_t)(w->index * LANES + lane), begin = (address - m->shared_base) / ASYNC_UNIT,
                   first = first_cell(m, address), last = last_cell(m, address, bytes);
    const checked_write write = {stamp, (instruction & (WHO_INSTRUCTIONS - 1)) | thread << WHO_THREAD_SHIFT, landing};
    const bool units = stamp && has_units(m, address, bytes);
    shadow->writes++;
    for (uint32_t i = 0; units && i < bytes / ASYNC_UNIT; i++) shadow->async_units[begin + i].written = write;
    if (!units) settle_cells(m, first, last);
    for (uint32_t i = first; !units && i <= last; i++) set_writer(shadow, i, &write);
}
