/* schedule.c - who runs next: the warps of a CTA in turns, and what is said where none can continue.
 *
 * A warp runs until it must wait. One that polls memory, by loads that are volatile, relaxed or acquire or by atomics
 * whose result is used, lets others go first after POLLS_OF_A_TURN polls between which nothing in memory changed. If
 * all runnable warps have run, the CTA has polled unsuccessfully. launch.c then lets other CTAs run, because the CTA
 * may wait for their stores.
 */
#include "../machine/crew.h"
#include "../machine/interleaving.h"
#include "../machine/machine.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_VAIN_POLLS = 10000,
    MAX_VAIN_WAITS = 100,
    MAX_POLLS = 1 << 20,       /* of a CTA in one turn, though its stores change memory */
    MAX_SLICE = 1 << 20,       /* ops of a warp in a row, then other warps have a turn */
    MAX_SPLIT_TURNS = 1 << 16, /* warp instructions after which each path of a split warp had its turns */
    MAX_LOOP = 4096,           /* warp instructions of a loop that is recognized as endless */
    SEED_SLICE = 200,          /* the same with a seed */
    SEED_SLICES_OF_A_CTA = 8,  /* on average, with a seed */
    STALE_SLICE = 8,           /* as both, where loads may return earlier values */
    STALE_SLICES_OF_A_CTA = 2,
    SEED_EARLY_COPY = 4 /* turns of warps until a bulk copy lands that could wait, likewise */
};

static uint64_t next_random(cta *m) {
    return m->random = emu_mix(m->random);
}

static bool land_any_arrive(cta *m) {
    for (uint32_t i = 0; i < m->warp_count; i++) {
        if (emu_land_next_arrive(m, &m->warps[i])) return true;
    }
    return emu_land_next_bulk(m) || emu_land_next_tensor(m);
}

/* True if a warp is the one that the launch delays. */
static bool is_delayed(const cta *m, uint32_t i) {
    return m->launch->delay_line && m->launch->delay_warp == (int)i;
}

static bool waits_for_all(const cta *m, uint32_t i) {
    if (!is_delayed(m, i)) return false;
    const uint32_t instruction = m->code->ops[m->warps[i].pc].instruction;
    return emu_location_of(m->code, instruction).ptx_line == m->launch->delay_line;
}

/* A ready warp: the wanted one, the next one round or with a seed any; -1 when none is. */
static int choose_warp(cta *m, int last) {
    const int wanted = emu_wanted_warp(m);
    if (wanted >= 0 && (uint32_t)wanted < m->warp_count && m->warps[wanted].state == WARP_READY) return wanted;
    uint32_t offset = m->launch->schedule ? (uint32_t)(next_random(m) % m->warp_count) : (uint32_t)(last + 1);
    for (int late = 0; late < 2; late++) {
        for (uint32_t k = 0; k < m->warp_count; k++) {
            uint32_t i = (offset + k) % m->warp_count;
            if (m->warps[i].state == WARP_READY && waits_for_all(m, i) == late) return (int)i;
        }
        if (!late && m->launch->delay_line && land_any_arrive(m)) late = -1; /* it may have freed a warp */
    }
    return -1;
}

__attribute__((format(printf, 4, 5))) static void add_text(char *out, size_t bytes, size_t *used, const char *format,
                                                           ...) {
    if (*used >= bytes) return;
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(out + *used, bytes - *used, format, arguments);
    va_end(arguments);
    *used += more > 0 ? (size_t)more : 0;
}

static bool land_any_of_cluster(cluster *c) {
    const uint32_t first = c->ctas->launch->schedule ? (uint32_t)((c->random = emu_mix(c->random)) % c->count) : 0;
    for (uint32_t i = 0; i < c->count; i++) {
        if (land_any_arrive(&c->ctas[(first + i) % c->count])) return true;
    }
    return false;
}

/* Missing arrivals and bytes of the mbarrier for which a warp waits. */
static void describe_mbarrier(cta *m, const warp *w, char *out, size_t bytes) {
    const mbarrier *bar = emu_find_mbarrier(m, w->mbarrier_address);
    if (!bar) return;
    size_t used = 0;
    add_text(out, bytes, &used, "\n  mbarrier 0x%x: phase %" PRIu64 " needs %u of %u arrivals", bar->address,
             bar->phase, bar->pending, bar->expected);
    if (bar->bytes) {
        add_text(out, bytes, &used,
                 bar->bytes > 0 ? " and %" PRId64 " bytes that no copy brings" : " and got %" PRId64 " bytes too many",
                 bar->bytes > 0 ? bar->bytes : -bar->bytes);
        add_text(out, bytes, &used, " (announced %" PRId64 ", arrived %" PRId64 ")", bar->announced,
                 bar->announced - bar->bytes);
    }
    const seen_phase *seen = w->seen ? &w->seen[bar - m->mbarriers] : NULL;
    if (!seen || !seen->times || !seen->phase) return;
    add_text(out, bytes, &used, "\n  this warp last waited for phase %" PRIu64, seen->phase - 1);
    if (bar->phase > seen->phase + 1)
        add_text(out, bytes, &used, "; phases %" PRIu64 " to %" PRIu64 " have completed since, and it came too late",
                 seen->phase, bar->phase - 1);
}

/* For a warp that waits for its warpgroup: the warps that have issued fewer products. */
static void describe_products(const cta *m, const warp *w, char *out, size_t bytes) {
    const uint32_t begin = (uint32_t)w->index / 4 * 4;
    size_t used = 0;
    for (uint32_t i = begin; i < begin + 4 && i < m->warp_count; i++) {
        const warp *other = &m->warps[i];
        if ((int32_t)(other->wgmma_issued - w->wgmma_issued) < 0)
            add_text(out, bytes, &used, "\n  warp %u has issued %u wgmma, this warp %u: all four warps must", i,
                     other->wgmma_issued, w->wgmma_issued);
    }
}

/* Warps that have not arrived at the cluster barrier. */
static void describe_cluster_barrier(const cluster *c, char *out, size_t bytes) {
    bool any = false;
    size_t used = 0;
    add_text(out, bytes, &used, "\n  barrier.cluster, phase %" PRIu64 ": waits for", c->phase);
    for (uint32_t rank = 0; rank < c->count; rank++) {
        const cta *m = &c->ctas[rank];
        uint32_t missing = 0;
        for (uint32_t i = 0; i < m->warp_count; i++)
            missing += m->warps[i].state != WARP_DONE && !m->warps[i].cluster_arrived;
        if (!missing) continue;
        add_text(out, bytes, &used, "%s %u warp%s of CTA rank %u", any ? "," : "", missing, missing == 1 ? "" : "s",
                 rank);
        any = true;
    }
}

static uint32_t waits_at(const cta *m, const warp *w) {
    return m->code->ops[w->state == WARP_AT_BARRIER ? w->pc - 1 : w->pc].instruction;
}

/* True if all that is said of one of two warps holds for the other. */
static bool wait_alike(cta *m, const warp *a, const warp *b) {
    if (a->state != b->state || waits_at(m, a) != waits_at(m, b)) return false;
    if (a->state != WARP_AT_MBARRIER && a->state != WARP_POLLING)
        return a->state == WARP_AT_BARRIER || a->state == WARP_AT_CLUSTER;
    const mbarrier *bar = emu_find_mbarrier(m, a->mbarrier_address);
    return bar && a->mbarrier_address == b->mbarrier_address &&
           (!a->seen || a->seen[bar - m->mbarriers].phase == b->seen[bar - m->mbarriers].phase);
}

enum { SOURCE_BYTES = 32 };

static const char *source_line(const emu_location *at, char out[SOURCE_BYTES]) {
    out[0] = 0;
    if (at->own) snprintf(out, SOURCE_BYTES, "source line %d, ", at->own->line);
    return out;
}

/* The warps of a CTA that wait, a line for those side by side that wait for the same; the first of them. */
static const warp *list_waiting(cta *m, char *list, size_t bytes, bool *polling) {
    const warp *first = NULL;
    char rank[40] = "", warps[40], source[SOURCE_BYTES];
    if (m->cluster->count > 1) snprintf(rank, sizeof rank, "CTA rank %u, ", m->rank);
    for (uint32_t i = 0, last; i < m->warp_count; i = last + 1) {
        const warp *w = &m->warps[last = i];
        if (w->state == WARP_DONE) continue;
        while (last + 1 < m->warp_count && wait_alike(m, w, &m->warps[last + 1])) last++;
        *polling |= w->state == WARP_POLLING;
        if (!first) {
            first = w;
            m->here = waits_at(m, w);
        }
        emu_location location = emu_location_of(m->code, waits_at(m, w));
        size_t used = strlen(list);
        snprintf(warps, sizeof warps, last > i ? "warps %u to %u" : "warp %u", i, last);
        snprintf(list + used, bytes - used, "\n%s%s: %sPTX line %d: %.60s", rank, warps, source_line(&location, source),
                 location.ptx_line, location.ptx);
        used = strlen(list);
        if (w->state == WARP_AT_MBARRIER || w->state == WARP_POLLING)
            describe_mbarrier(m, w, list + used, bytes - used);
        if (w->state == WARP_AT_REGISTERS) emu_describe_registers(m, w, list + used, bytes - used);
        if (w->state == WARP_AT_TENSOR) emu_describe_tensor(m, w, list + used, bytes - used);
        if (w->state == WARP_AT_WGMMA) describe_products(m, w, list + used, bytes - used);
        if (w->state == WARP_AT_CLUSTER) describe_cluster_barrier(m->cluster, list + used, bytes - used);
    }
    return first;
}

static void report_deadlock(cluster *c) {
    char list[1800] = "";
    bool polling = false;
    const warp *first = NULL;
    cta *reporter = c->ctas;
    for (uint32_t rank = 0; rank < c->count; rank++) {
        const warp *waits = list_waiting(&c->ctas[rank], list, sizeof list, &polling);
        if (first || !waits) continue;
        first = waits;
        reporter = &c->ctas[rank];
    }
    const char *whose = c->count > 1 ? "cluster" : "CTA";
    emu_report(reporter, EMU_DEADLOCK, UINT32_MAX, first, -1, -1, 0, "Every remaining warp of the %s %s.%s", whose,
               polling ? "polls a barrier that nothing can complete anymore" : "waits, and none can free another",
               list);
    reporter->faulted = true;
}

/* No warp is ready and no copy can land: the next one that polls sees its poll fail, and may do something else. So may
 * one in a try_wait, whose time has a limit, unless it comes back again and again. Its index; -1 where there is none.
 */
static int let_poll_fail(cta *m, int last) {
    for (int waits = 0; waits < 2; waits++) {
        for (uint32_t k = 1; k <= m->warp_count; k++) {
            const uint32_t i = ((uint32_t)last + k) % m->warp_count;
            warp *w = &m->warps[i];
            if (w->state != (waits ? WARP_AT_MBARRIER : WARP_POLLING)) continue;
            if (waits && w->vain_waits++ >= MAX_VAIN_WAITS) continue;
            w->state = WARP_READY;
            w->poll_answers = true;
            return (int)i;
        }
    }
    return -1;
}

static bool all_done(const cta *m) {
    for (uint32_t i = 0; i < m->warp_count; i++) {
        if (m->warps[i].state != WARP_DONE) return false;
    }
    return true;
}

/* ---- polls ---- */

/* True if a warp that ran some warp instructions has gone on for long without a change of memory. */
static bool runs_quietly(const cta *m, warp *w, uint64_t steps) {
    if (w->quiet_changes != m->changes) w->quiet_steps = 0;
    w->quiet_changes = m->changes;
    w->quiet_steps += steps;
    if (w->quiet_steps < MAX_SLICE / 2) return false;
    w->quiet_steps = 0;
    return true;
}

/* True if a warp that has run for long is in a loop that leads back to the very same registers: it ends only if
 * somebody else changes memory. */
static bool runs_in_a_circle(cta *m, warp *w) {
    const size_t file = (size_t)m->code->slot_count * LANES * sizeof *w->file;
    const size_t predicates = (m->code->predicate_count + 1) * sizeof *w->predicates;
    const warp before = *w;
    const int least = w->split ? MAX_SPLIT_TURNS : 0; /* let other paths change registers before these are compared */
    const uint64_t changes = m->changes;
    uint8_t *kept = malloc(file + predicates);
    if (!kept) return false;
    memcpy(kept, w->file, file);
    memcpy(kept + file, w->predicates, predicates);
    bool same = false;
    for (int i = 0; i < 2 * least + MAX_LOOP && !same && !m->faulted && w->state == WARP_READY && m->changes == changes;
         i++) {
        emu_warp_run(m, w, 1);
        same = i >= least && w->pc == before.pc && w->active == before.active && w->exited == before.exited &&
               w->depth == before.depth && !memcmp(kept, w->file, file) &&
               !memcmp(kept + file, w->predicates, predicates);
    }
    free(kept);
    if (same && !w->polls && !before.polls)
        w->poll_instruction = m->code->ops[before.pc].instruction, w->poll_address = 0;
    return same && m->changes == changes;
}

static bool all_run_in_circles(cta *const *resident, size_t count) {
    for (size_t i = 0; i < count; i++) {
        cta *m = resident[i];
        for (uint32_t k = 0; k < m->warp_count; k++)
            if (m->warps[k].state == WARP_READY && !runs_in_a_circle(m, &m->warps[k])) return false;
    }
    return true;
}

/* True if they last for too long: their loops change nothing at all, or only registers, such as a number of polls after
 * which a loop ends. */
bool emu_lasts_too_long(quiet *q, uint64_t changes, uint64_t steps, cta *const *resident, size_t count) {
    enum { QUIET_STEPS = 1000000, MAX_QUIET_STEPS = 200000000 };
    if (q->changes != changes) *q = (quiet){changes, steps, steps};
    if (steps - q->checked < QUIET_STEPS) return false;
    q->checked = steps;
    return steps - q->begin > MAX_QUIET_STEPS || all_run_in_circles(resident, count);
}

static bool all_poll_in_vain(const cta *m) {
    for (uint32_t i = 0; i < m->warp_count; i++) {
        const warp *w = &m->warps[i];
        if (w->state == WARP_READY && w->vain_at != m->changes + 1) return false;
    }
    return true;
}

static bool any_held(const cta *m) {
    for (uint32_t i = 0; i < m->warp_count; i++)
        if (m->warps[i].state == WARP_HELD) return true;
    return false;
}

/* Warps of one CTA run. In a cluster nothing lands here, as other CTAs may be able to run. */
static cta_turn run_cta(cta *m, bool may_pause) {
    const bool seeded = m->launch->schedule != 0, alone = m->cluster->count == 1;
    bool ran = false;
    for (uint32_t i = 0; i < m->warp_count; i++) m->warps[i].vain_at = 0;
    m->polls = 0;
    while (!m->faulted) {
        int chosen = choose_warp(m, m->last_warp);
        if (chosen < 0) {
            if (all_done(m)) return TURN_ENDED;
            if (!alone) return TURN_WAITS;
            if (land_any_arrive(m)) continue;
            if (m->explores && any_held(m)) return TURN_HELD;
            chosen = m->vain_polls++ < MAX_VAIN_POLLS * m->warp_count ? let_poll_fail(m, m->last_warp) : -1;
            if (chosen < 0) {
                report_deadlock(m->cluster);
                break;
            }
        }
        if (!alone && ran && waits_for_all(m, (uint32_t)chosen)) return TURN_WAITS;
        ran = true;
        warp *w = &m->warps[chosen];
        const uint64_t begin = m->steps;
        const uint64_t slice = is_delayed(m, (uint32_t)chosen) ? 1
                               : seeded ? 1 + next_random(m) % (m->stale ? STALE_SLICE : SEED_SLICE)
                                        : MAX_SLICE;
        w->poll_failed = false;
        if (seeded && m->bulk_count && next_random(m) % SEED_EARLY_COPY == 0) emu_land_next_bulk(m);
        if (seeded && m->tensor && next_random(m) % SEED_EARLY_COPY == 0) emu_land_next_tensor(m);
        emu_warp_run(m, w, slice);
        m->last_warp = chosen;
        bool quiet = w->state == WARP_READY && runs_quietly(m, w, m->steps - begin);
        if (w->polls >= POLLS_OF_A_TURN || (quiet && runs_in_a_circle(m, w))) {
            w->polls = 0;
            w->vain_at = m->changes + 1;
            if (all_poll_in_vain(m) && !(alone && land_any_arrive(m))) {
                /* a warp that sleeps at an mbarrier may do something else after a poll that fails */
                if (alone && m->vain_polls++ < MAX_VAIN_POLLS * m->warp_count) let_poll_fail(m, m->last_warp);
                return TURN_POLLS;
            }
        }
        if (may_pause && m->cluster->drew) return TURN_PAUSED;
        if (may_pause && (m->polls >= MAX_POLLS ||
                          (seeded && next_random(m) % (m->stale ? STALE_SLICES_OF_A_CTA : SEED_SLICES_OF_A_CTA) == 0)))
            return TURN_PAUSED;
    }
    return TURN_ENDED;
}

/* ---- the CTAs of a cluster ---- */

static uint64_t changes_of(const cluster *c) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->count; i++) sum += c->ctas[i].changes;
    return sum;
}

/* late: or one that is delayed. */
static bool has_ready_warp(const cta *m, bool late) {
    for (uint32_t i = 0; i < m->warp_count; i++)
        if (m->warps[i].state == WARP_READY && (late || !waits_for_all(m, i))) return true;
    return false;
}

/* The next CTA round that can continue, or with a seed any; NULL where all wait, or have polled in vain. */
static cta *choose_cta(cluster *c) {
    uint32_t offset = c->last + 1;
    if (c->ctas->launch->schedule) offset = (uint32_t)((c->random = emu_mix(c->random)) % c->count);
    for (int late = 0; late < 2; late++) {
        const uint64_t polled = changes_of(c) + 1;
        for (uint32_t k = 0; k < c->count; k++) {
            cta *m = &c->ctas[(offset + k) % c->count];
            if (!m->ended && m->polled_at != polled && (has_ready_warp(m, late) || all_done(m))) return m;
        }
        if (!late && c->ctas->launch->delay_line && land_any_of_cluster(c)) late = -1; /* it may have freed a warp */
    }
    return NULL;
}

static bool let_any_poll_fail(cluster *c) {
    for (uint32_t i = 0; i < c->count; i++) {
        cta *m = &c->ctas[i];
        if (!m->ended && m->vain_polls++ < MAX_VAIN_POLLS * m->warp_count && let_poll_fail(m, m->last_warp) >= 0)
            return true;
    }
    return false;
}

/* No CTA can continue by itself. TURN_PAUSED where one can now. */
static cta_turn wait_together(cluster *c) {
    bool ended = true, polls = false, held = false;
    for (uint32_t i = 0; i < c->count; i++) {
        ended &= c->ctas[i].ended;
        polls |= has_ready_warp(&c->ctas[i], true);
        held |= any_held(&c->ctas[i]);
    }
    if (ended) return TURN_ENDED;
    if (land_any_of_cluster(c)) return TURN_PAUSED;
    if (held && !polls) return TURN_HELD;
    const bool freed = let_any_poll_fail(c);
    for (uint32_t i = 0; i < c->count; i++) c->ctas[i].polled_at = 0;
    if (polls) return TURN_POLLS;
    if (freed) return TURN_PAUSED;
    report_deadlock(c);
    return TURN_ENDED;
}

cta_turn emu_run_turn(cluster *c, bool may_pause) {
    if (c->count == 1) return run_cta(c->ctas, may_pause);
    for (uint32_t i = 0; i < c->count; i++)
        if (c->ctas[i].faulted) return TURN_ENDED;
    for (;;) {
        cta *m = choose_cta(c);
        if (!m) {
            const cta_turn turn = wait_together(c);
            if (turn != TURN_PAUSED) return turn;
            continue;
        }
        const cta_turn turn = run_cta(m, true);
        c->last = m->rank;
        m->polled_at = turn == TURN_POLLS ? changes_of(c) + 1 : 0;
        if (m->faulted) return TURN_ENDED;
        if (turn == TURN_ENDED) {
            m->ended = true;
            if (m->checks) emu_on_exit(m);
        }
        if (turn == TURN_PAUSED && may_pause) return turn;
    }
}

/* ---- livelock ---- */

enum { LISTED_WARPS = 8 };

static size_t list_warps(const cta *m, char *list, size_t bytes, int *listed) {
    size_t used = 0;
    char source[SOURCE_BYTES];
    for (uint32_t i = 0; i < m->warp_count; i++) {
        const warp *w = &m->warps[i];
        if (w->state == WARP_DONE || ++*listed > LISTED_WARPS || used >= bytes) continue;
        bool polls = w->state == WARP_READY;
        uint32_t at = polls                         ? w->poll_instruction
                      : w->state == WARP_AT_BARRIER ? m->code->ops[w->pc - 1].instruction
                                                    : m->code->ops[w->pc].instruction;
        emu_location location = emu_location_of(m->code, at);
        used += (size_t)snprintf(list + used, bytes - used, "\nCTA %" PRIu64 ", warp %u: %sPTX line %d: ", m->cta_index,
                                 i, source_line(&location, source), location.ptx_line);
        if (used < bytes) used += (size_t)snprintf(list + used, bytes - used, "%.60s", location.ptx);
        if (used < bytes && polls && w->poll_address)
            used += (size_t)snprintf(list + used, bytes - used, " polls 0x%" PRIx64, w->poll_address);
    }
    return used < bytes ? used : bytes - 1;
}

void emu_report_livelock(cta *const *resident, size_t count, uint64_t steps, uint64_t waiting) {
    char list[900] = "", more[300] = "";
    size_t used = 0;
    int listed = 0;
    for (size_t i = 0; i < count && used + 1 < sizeof list; i++)
        used += list_warps(resident[i], list + used, sizeof list - used, &listed);
    if (listed > LISTED_WARPS || used + 1 == sizeof list)
        snprintf(list + (used < sizeof list - 16 ? used : sizeof list - 16), 16, "\n…");
    if (waiting)
        snprintf(more, sizeof more,
                 "\n%zu CTAs are resident together; %" PRIu64
                 " more start only when one of these ends. A CTA must not wait for one that is not resident.",
                 count, waiting);
    cta *m = resident[0];
    const warp *first = NULL;
    for (uint32_t i = 0; i < m->warp_count && !first; i++)
        if (m->warps[i].state == WARP_READY) first = &m->warps[i];
    if (first) m->here = first->poll_instruction;
    char last[64] = "in this order of its accesses";
    if (steps) snprintf(last, sizeof last, "in the last %" PRIu64 " warp instructions", steps);
    emu_report(m, EMU_LIVELOCK, UINT32_MAX, first, -1, -1, first ? first->poll_address : 0,
               "Every remaining warp waits or polls, and no store changed memory %s.%s%s", last, more, list);
    m->faulted = true;
}

void emu_check_livelock(quiet *q, cluster *c) {
    const quiet now = emu_progress_of(c);
    cta *all[MAX_CLUSTER];
    size_t count = 0;
    for (uint32_t i = 0; i < c->count; i++)
        if (!c->ctas[i].ended) all[count++] = &c->ctas[i];
    if (emu_lasts_too_long(q, now.changes, now.begin, all, count))
        emu_report_livelock(all, count, now.begin - q->begin, 0);
}
