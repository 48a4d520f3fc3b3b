/* mbarrier.c - barrier objects in shared memory: phases, arrivals, and what an arrival tells those that wait.
 *
 * A state is the number of the phase at arrival and the arrivals pending then. Parity P waits for the completion of the
 * phase of that parity.
 */
#include "paths.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const uint64_t PHASE = (1ull << MBARRIER_PENDING_SHIFT) - 1;

mbarrier *emu_find_mbarrier(cta *m, uint32_t address) {
    for (int i = 0; i < m->mbarrier_count; i++) {
        if (m->mbarriers[i].live && m->mbarriers[i].address == address) return &m->mbarriers[i];
    }
    return NULL;
}

static bool phase_done(const mbarrier *bar, uint64_t parity) {
    return (bar->phase & 1) != (parity & 1);
}

static uint32_t mbarrier_address(const warp *w, const op *o, int lane) {
    uint64_t address = emu_lane_address(w, o, o->dests, lane);
    return (uint32_t)(o->space == SPACE_GENERIC ? address - SHARED_WINDOW : address);
}

/* The object an instruction names; NULL after a report. mbarrier.inval notes a write itself: as a read too it would
 * hide who read last. */
static mbarrier *expect_mbarrier(cta *m, warp *w, const op *o, int lane) {
    uint32_t address = mbarrier_address(w, o, lane);
    if (!emu_translate(m, w, SPACE_SHARED, address, 8, lane, "uses the mbarrier of")) return NULL;
    mbarrier *bar = emu_find_mbarrier(m, address);
    if (!bar) {
        emu_report(
            m, EMU_BARRIER_MISUSE, UINT32_MAX, w, lane, -1, address,
            "There is no mbarrier at 0x%x: mbarrier.init must come first, and a barrier before other threads use it.",
            address);
    } else if (m->checks && o->kind != OP_MBARRIER_INVALIDATE) {
        emu_on_mbarrier_use(m, w, lane, m, address);
    }
    return bar;
}

/* True if one of some lanes makes the same mbarrier as a lane, with the same count: then it does not matter who. */
static bool made_by(const warp *w, const op *o, uint32_t lanes, int lane) {
    const uint32_t *counts = slot32(w, o->r[1]), address = mbarrier_address(w, o, lane);
    for (; lanes; lanes &= lanes - 1) {
        int other = first_lane(lanes);
        if (mbarrier_address(w, o, other) == address && counts[other] == counts[lane]) return true;
    }
    return false;
}

void emu_exec_mbarrier_init(cta *m, warp *w, const op *o, uint32_t mask) {
    const uint32_t all = mask;
    for (; mask; mask &= mask - 1) {
        int lane = first_lane(mask);
        if (made_by(w, o, all & ~mask, lane)) continue;
        uint32_t address = mbarrier_address(w, o, lane), count = slot32(w, o->r[1])[lane];
        uint8_t *bytes = emu_translate(m, w, SPACE_SHARED, address, 8, lane, "makes an mbarrier of");
        if (!bytes) continue;
        mbarrier *bar = emu_find_mbarrier(m, address);
        if (bar || count == 0 || count > 1048575) {
            emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, w, lane, -1, address,
                       bar ? "The mbarrier at 0x%x is initialized a second time without mbarrier.inval in between."
                           : "The mbarrier at 0x%x gets a count that is not between 1 and 1048575.",
                       address);
            continue;
        }
        for (int i = 0; i < m->mbarrier_count && !bar; i++) {
            if (!m->mbarriers[i].live) bar = &m->mbarriers[i];
        }
        if (!bar && m->mbarrier_count < MAX_MBARRIERS) bar = &m->mbarriers[m->mbarrier_count++];
        if (!bar) {
            emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, w, lane, -1, address, "More than %d mbarriers live at once.",
                       MAX_MBARRIERS);
            continue;
        }
        if (m->checks) emu_on_shared_write(m, w, lane, address, 8, NULL);
        memset(bytes, 0, 8);
        uint32_t *arriving = bar->arriving, *completed = bar->completed;
        *bar = (mbarrier){.address = address,
                          .expected = count,
                          .pending = count,
                          .live = true,
                          .arriving = arriving,
                          .completed = completed};
        if (m->checks) emu_on_mbarrier_init(m, w, lane, bar);
    }
}

/* A copy that a CTA of the cluster has under way, and that counts at an mbarrier of `m`; NULL without one. */
static const bulk_copy *copy_that_counts(const cta *m, const cta *from, const mbarrier *bar) {
    for (size_t i = 0; i < from->bulk_count; i++) {
        const bulk_copy *copy = &from->bulk[i];
        if (!copy->is_store && copy->counts_at == m && copy->mbarrier == bar->address) return copy;
    }
    return NULL;
}

/* An mbarrier that is about to go must not be waited for, and no copy may count at it. */
static void check_unused(cta *m, const warp *w, int lane, const mbarrier *bar) {
    for (uint32_t rank = 0; rank < m->cluster->count; rank++) {
        const bulk_copy *copy = copy_that_counts(m, &m->cluster->ctas[rank], bar);
        if (!copy) continue;
        char whose[48] = "";
        if (rank != m->rank) snprintf(whose, sizeof whose, " that the CTA with rank %u started", rank);
        emu_report(m, EMU_BARRIER_MISUSE, copy->instruction, w, lane, copy->warp * LANES + copy->lane, bar->address,
                   "The mbarrier at 0x%x ends while a copy of %u bytes%s, which counts at it, is under way.\n"
                   "Wait for its phase %" PRIu64 " first.",
                   bar->address, copy->bytes, whose, bar->phase);
        return;
    }
    for (uint32_t i = 0; i < m->warp_count; i++) {
        const warp *other = &m->warps[i];
        bool waits = other->state == WARP_AT_MBARRIER || other->state == WARP_POLLING;
        if (!waits || other->mbarrier_address != bar->address) continue;
        emu_report(m, EMU_BARRIER_MISUSE, m->code->ops[other->pc].instruction, w, lane, other->index * LANES,
                   bar->address,
                   "The mbarrier at 0x%x ends while warp %d waits for its phase %" PRIu64 ".\n"
                   "Before mbarrier.inval all its users must pass a barrier.",
                   bar->address, other->index, bar->phase);
        return;
    }
}

void emu_exec_mbarrier_invalidate(cta *m, warp *w, const op *o, uint32_t mask) {
    for (; mask; mask &= mask - 1) {
        int lane = first_lane(mask);
        mbarrier *bar = expect_mbarrier(m, w, o, lane);
        if (!bar) continue;
        if (m->checks) check_unused(m, w, lane, bar);
        bar->live = false;
        if (m->checks) emu_on_shared_write(m, w, lane, bar->address, 8, NULL);
    }
}

static void complete_phase(cta *m, mbarrier *bar) {
    if (bar->pending || bar->bytes) return;
    if (m->checks) emu_on_phase(m, bar);
    bar->phase++;
    bar->announced = 0;
    m->changes++;
    m->vain_polls = 0;
    bar->pending = bar->expected;
    for (uint32_t i = 0; i < m->warp_count; i++) {
        warp *w = &m->warps[i];
        bool waits = w->state == WARP_AT_MBARRIER || w->state == WARP_POLLING;
        if (waits && (w->split || w->mbarrier_address == bar->address)) w->state = WARP_READY;
        emu_wake_paths(w);
    }
}

/* An instruction of a CTA of the cluster counts at an mbarrier of `owner`, which may complete a phase. */
static void count_at(const cta *m, cta *owner, mbarrier *bar, uint32_t arrivals, int64_t bytes) {
    const uint32_t here = owner->here;
    owner->here = m->here;
    bar->pending -= arrivals;
    bar->bytes += bytes;
    complete_phase(owner, bar);
    owner->here = here;
}

void emu_mbarrier_arrive(cta *m, mbarrier *bar, uint32_t count) {
    bar->pending -= count;
    complete_phase(m, bar);
}

void emu_mbarrier_bytes(cta *m, mbarrier *bar, int64_t bytes) {
    bar->bytes += bytes;
    complete_phase(m, bar);
}

/* expect_tx: before the arrival that comes with it. */
static void announce(cta *m, const warp *w, int lane, mbarrier *bar, uint32_t bytes) {
    enum { MAX_BYTES = (1 << 20) - 1 };
    bar->bytes += bytes;
    bar->announced += bytes;
    if (bar->bytes > MAX_BYTES)
        emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, w, lane, -1, bar->address,
                   "The mbarrier at 0x%x expects %" PRId64 " bytes: an mbarrier counts up to %d.", bar->address,
                   bar->bytes, MAX_BYTES);
}

/* Find the mbarrier of an instruction that may name one of another CTA of the cluster: *owner. */
static mbarrier *expect_mbarrier_of_any(cta *m, warp *w, const op *o, int lane, cta **owner) {
    const uint64_t address = emu_lane_address(w, o, o->dests, lane) - (o->space == SPACE_GENERIC ? SHARED_WINDOW : 0);
    uint32_t local;
    *owner = m;
    if (!(address >> CTA_SHIFT) || o->space == SPACE_SHARED) return expect_mbarrier(m, w, o, lane);
    *owner = emu_expect_owner(m, w, lane, address, "uses the mbarrier in", &local);
    if (!*owner || !emu_translate(m, w, SPACE_CLUSTER, address, 8, lane, "uses the mbarrier of")) return NULL;
    mbarrier *bar = emu_find_mbarrier(*owner, local);
    if (!bar) {
        emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, w, lane, -1, address,
                   "There is no mbarrier at 0x%x in the CTA with rank %u: its mbarrier.init must come first, then "
                   "fence.mbarrier_init.release.cluster and a barrier.cluster that both CTAs pass.",
                   local, (*owner)->rank);
    } else if (m->checks && *owner != m) {
        emu_on_mbarrier_use(m, w, lane, *owner, local);
    }
    return bar;
}

/* expect_tx and complete_tx without an arrival. */
void emu_exec_mbarrier_bytes(cta *m, warp *w, const op *o, uint32_t mask) {
    for (; mask; mask &= mask - 1) {
        int lane = first_lane(mask);
        cta *owner;
        mbarrier *bar = expect_mbarrier_of_any(m, w, o, lane, &owner);
        const uint32_t bytes = slot32(w, o->r[1])[lane];
        if (!bar) continue;
        if (m->checks) emu_on_mbarrier_bytes(m, w, lane, owner, bar, o->detail);
        if (!o->detail) announce(m, w, lane, bar, bytes);
        count_at(m, owner, bar, 0, o->detail ? -(int64_t)bytes : 0);
    }
    if (m->checks) emu_on_epoch(m, w);
}

void emu_exec_mbarrier_arrive(cta *m, warp *w, const op *o, uint32_t mask) {
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = first_lane(rest);
        uint32_t count = slot32(w, o->r[2])[lane];
        cta *owner;
        mbarrier *bar = expect_mbarrier_of_any(m, w, o, lane, &owner);
        if (!bar) continue;
        slot64(w, o->r[0])[lane] = (bar->phase & PHASE) | (uint64_t)bar->pending << MBARRIER_PENDING_SHIFT;
        if (count == 0 || count > bar->pending) {
            emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, w, lane, -1, bar->address,
                       "The mbarrier at 0x%x gets %u arrivals while it waits for %u: mbarrier.init announced fewer.",
                       bar->address, count, bar->pending);
            continue;
        }
        if (o->detail & MBARRIER_NO_COMPLETE && count == bar->pending && !bar->bytes)
            emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, w, lane, -1, bar->address,
                       "This arrival completes phase %" PRIu64 " of the mbarrier at 0x%x, and .noComplete says that it "
                       "does not.",
                       bar->phase, bar->address);
        if (m->checks) emu_on_mbarrier_arrive(m, w, lane, owner, bar, o->detail & MBARRIER_RELAXED);
        if (o->detail & MBARRIER_DROP) bar->expected -= count;
        if (o->sources > 2) announce(m, w, lane, bar, slot32(w, o->r[3])[lane]);
        count_at(m, owner, bar, count, 0);
    }
    if (m->checks) emu_on_epoch(m, w);
}

/* A warp that polls sleeps instead, and its next poll succeeds: how often a GPU would poll depends on time, which is
 * not modeled. With a schedule seed about half of the polls fail first, those of try_wait too, whose time has a limit:
 * so the code after a failed one runs, and a wait that is no loop shows what it waits for too little. */
static bool poll_fails(const cta *m) {
    return m->launch->schedule && m->random >> 35 & 1;
}

/* No instruction reads the answer. */
static void report_unheeded(cta *m, const warp *w, uint32_t mask, bool blocking) {
    emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, w, first_lane(mask), -1, 0,
               "The program ignores the result of this mbarrier.%s, which may be false: %s.\n"
               "Repeat it in a loop until the result is true.",
               blocking ? "try_wait" : "test_wait", blocking ? "it waits for a limited time" : "it does not wait");
}

static void answer_wait(cta *m, warp *w, const op *o, uint32_t mask) {
    uint32_t done = 0;
    mbarrier *last = NULL, *bars[LANES] = {NULL};
    bool answers = w->poll_answers;
    w->poll_answers = false;
    bool parity = o->detail & MBARRIER_PARITY, blocking = o->detail & MBARRIER_BLOCKING;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = first_lane(rest);
        mbarrier *bar = expect_mbarrier(m, w, o, lane);
        if (!bar) {
            m->faulted = true; /* reported: a wait here never ends, and what follows relies on it */
            continue;
        }
        uint64_t phase = parity ? slot32(w, o->r[1])[lane] : slot64(w, o->r[1])[lane] & PHASE;
        bool complete = parity ? phase_done(bar, phase) : (bar->phase & PHASE) != phase;
        if (complete) bars[lane] = bar;
        done |= (uint32_t)complete << lane;
        if (!complete) last = bar;
    }
    if (m->checks) emu_on_mbarrier_wait(m, w, done, bars, o->detail & MBARRIER_HEARS);
    /* where some lanes may continue, the answer is given: what they saw complete need not be so later */
    const bool sleeps = blocking ? !(answers || poll_fails(m)) : !(done || answers || poll_fails(m));
    if (m->checks && o->flags & FLAG_UNHEEDED) report_unheeded(m, w, mask, blocking);
    if (last && sleeps) {
        emu_try_again(m, w, o, mask); /* when it is complete */
        w->state = blocking ? WARP_AT_MBARRIER : WARP_POLLING;
        w->mbarrier_address = last->address;
        return;
    }
    if (o->p[0] != NO_PREDICATE) w->predicates[o->p[0]] = (w->predicates[o->p[0]] & ~mask) | done;
    w->poll_failed = last != NULL;
    if (done) w->vain_waits = 0;
}

void emu_exec_mbarrier_wait(cta *m, warp *w, const op *o, uint32_t mask) {
    if (m->checks) emu_on_mbarrier_ask(m, w, o, mask, emu_step_registers);
    answer_wait(m, w, o, mask);
    if (w->state != WARP_READY) emu_path_sleeps(m, w);
}
