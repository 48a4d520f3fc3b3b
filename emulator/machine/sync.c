/* sync.c - what warps do together: barriers, shuffles, votes. */
#include "lane_loop.h"
#include "machine.h"

#include <string.h>

void emu_report_divergent(cta *m, const warp *w, uint32_t wanted, uint32_t mask) {
    uint32_t missing = wanted & ~mask, gone = missing & w->exited;
    emu_report(m, EMU_DIVERGENT_SYNC, UINT32_MAX, w, first_lane(missing), -1, 0,
               "This instruction needs lanes 0x%08x of the warp together, but only 0x%08x are here.\n"
               "The others (the first is lane %d) %s: the result is undefined on a device, or it hangs.\n"
               "Move it to a point that all of these lanes reach.",
               wanted, mask, first_lane(missing), gone == missing ? "have ended without it" : "took another path");
}

void emu_check_all_lanes(cta *m, warp *w, uint32_t mask) {
    if (mask != ALL_LANES) emu_report_divergent(m, w, ALL_LANES, mask);
}

void emu_exec_warp_barrier(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)o;
    if (m->checks) emu_on_warp_barrier(m, w, mask);
}

/* ---- barriers of the CTA ---- */

static uint32_t live_threads(const cta *m) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < m->warp_count; i++) {
        if (m->warps[i].state != WARP_DONE) count += LANES;
    }
    return count;
}

static void write_reduction(cta *m, warp *w, const named_barrier *bar) {
    const op *o = &m->code->ops[w->pc - 1];
    uint32_t mask = w->active;
    if (o->detail == BARRIER_RED_POPC) {
        for (int i = 0; i < LANES; i++) {
            if (mask >> i & 1) slot32(w, o->r[0])[i] = bar->popcount;
        }
    } else if (o->p[0] != NO_PREDICATE) {
        bool value = o->detail == BARRIER_RED_AND ? !bar->any_false : bar->any_true;
        w->predicates[o->p[0]] = (w->predicates[o->p[0]] & ~mask) | (value ? mask : 0);
    }
}

static void release_barrier(cta *m, uint32_t id) {
    named_barrier *bar = &m->barriers[id];
    m->vain_polls = 0;
    if (m->checks) emu_on_barrier_complete(m, id);
    for (uint32_t i = 0; i < m->warp_count; i++) {
        warp *w = &m->warps[i];
        if (w->state != WARP_AT_BARRIER || w->barrier_id != id) continue;
        w->state = WARP_READY;
        if (m->code->ops[w->pc - 1].detail >= BARRIER_RED_AND) write_reduction(m, w, bar);
    }
    *bar = (named_barrier){.clocks = bar->clocks};
}

static void release_if_complete(cta *m, uint32_t id) {
    named_barrier *bar = &m->barriers[id];
    uint32_t wanted = bar->expected ? bar->expected : live_threads(m);
    if (bar->arrived && bar->arrived >= wanted) release_barrier(m, id);
}

void emu_barriers_after_exit(cta *m) {
    for (uint32_t id = 0; id < BARRIERS; id++) {
        if (m->barriers[id].arrived && !m->barriers[id].expected) release_if_complete(m, id);
    }
}

static bool barrier_operands(cta *m, const warp *w, const op *o, int lane, uint32_t *id, uint32_t *count) {
    *id = slot32(w, o->r[o->dests])[lane];
    *count = o->sources > 1 ? slot32(w, o->r[o->dests + 1])[lane] : 0;
    if (*id >= BARRIERS) {
        emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, w, lane, -1, 0,
                   "Barrier %u does not exist: a CTA has barriers 0 to 15.", *id);
        return false;
    }
    if (o->sources > 1 && (*count == 0 || *count % LANES || *count > m->warp_count * LANES)) {
        emu_report(
            m, EMU_BARRIER_MISUSE, UINT32_MAX, w, lane, -1, 0,
            "Barrier %u: %u threads are expected, but the number must be a multiple of 32, at most the %u of the CTA.",
            *id, *count, m->warp_count * LANES);
        return false;
    }
    uint32_t arrived = m->barriers[*id].arrived, expected = m->barriers[*id].expected;
    if (arrived && expected != *count) {
        emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, w, lane, -1, 0,
                   "Barrier %u: this warp names %u threads, those that wait already named %u (0 means all).\n"
                   "All warps that meet at a barrier must name the same number.",
                   *id, *count, expected);
        return false;
    }
    return true;
}

void emu_exec_barrier(cta *m, warp *w, const op *o, uint32_t mask) {
    if (mask != live_lanes(w)) {
        emu_report_divergent(m, w, live_lanes(w), mask);
        m->faulted = true;
        return;
    }
    emu_arrive_at_barrier(m, w, o, mask, first_lane(mask));
}

void emu_arrive_at_barrier(cta *m, warp *w, const op *o, uint32_t mask, int lane) {
    uint32_t id, count;
    if (!barrier_operands(m, w, o, lane, &id, &count)) {
        m->faulted = true;
        return;
    }
    named_barrier *bar = &m->barriers[id];
    bar->expected = count;
    bar->arrived += LANES;
    if (o->detail >= BARRIER_RED_AND) {
        uint32_t value = w->predicates[o->p[2]] ^ (o->flags & FLAG_PREDICATE_NEGATED ? ALL_LANES : 0);
        bar->popcount += population(value & mask);
        bar->any_true |= (value & mask) != 0;
        bar->any_false |= (~value & mask) != 0;
    }
    if (m->checks) emu_on_barrier_arrive(m, w, mask, id, o->detail != BARRIER_ARRIVE);
    if (o->detail != BARRIER_ARRIVE) {
        w->state = WARP_AT_BARRIER;
        w->barrier_id = id;
    }
    release_if_complete(m, id);
}

/* ---- shuffles, votes and their like ---- */

void emu_exec_shuffle(cta *m, warp *w, const op *o, uint32_t mask) {
    uint32_t *d = slot32(w, o->r[0]);
    uint32_t values[LANES], results[LANES], inside = 0, bad = 0;
    memcpy(values, slot32(w, o->r[1]), sizeof values);
    for (int lane = 0; lane < LANES; lane++) {
        bool within;
        const int from = shuffled_from(w, o, lane, &within);
        inside |= (uint32_t)within << lane;
        results[lane] = values[from];
        if (mask >> lane & 1 && !(mask >> from & 1)) bad |= 1u << lane;
    }
    if (bad && m->checks) emu_on_undefined_shuffle(m, w, o->r[0], bad);
    for (int lane = 0; lane < LANES; lane++) d[lane] = mask >> lane & 1 ? results[lane] : d[lane];
    if (o->p[0] != NO_PREDICATE) w->predicates[o->p[0]] = (w->predicates[o->p[0]] & ~mask) | (inside & mask);
}

void emu_exec_vote(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m;
    uint32_t votes = (w->predicates[o->p[2]] ^ (o->flags & FLAG_PREDICATE_NEGATED ? ALL_LANES : 0)) & mask;
    bool result = o->detail == VOTE_ANY   ? votes != 0
                  : o->detail == VOTE_ALL ? votes == mask
                                          : votes == 0 || votes == mask;
    if (o->detail == VOTE_BALLOT) {
        for (int i = 0; i < LANES; i++) {
            if (mask >> i & 1) slot32(w, o->r[0])[i] = votes;
        }
    } else if (o->p[0] != NO_PREDICATE) {
        w->predicates[o->p[0]] = (w->predicates[o->p[0]] & ~mask) | (result ? mask : 0);
    }
}

static uint32_t combine(const op *o, uint32_t a, uint32_t b) {
    bool less = o->flags & FLAG_SIGNED ? (int32_t)a < (int32_t)b : a < b;
    switch ((enum atomic_operation)o->detail) {
    case ATOMIC_MIN:
        return less ? a : b;
    case ATOMIC_MAX:
        return less ? b : a;
    case ATOMIC_AND:
        return a & b;
    case ATOMIC_OR:
        return a | b;
    case ATOMIC_XOR:
        return a ^ b;
    default:
        return a + b;
    }
}

/* NaN counts only with .NaN, or where there is nothing else. */
static uint32_t combine_floats(const op *o, const uint32_t *values, uint32_t mask) {
    float best = NAN;
    bool any_nan = false;
    for (; mask; mask &= mask - 1) {
        const uint32_t bits = values[first_lane(mask)];
        const float value = float_of(o->immediate & REDUX_ABS ? bits & 0x7fffffffu : bits);
        any_nan |= value != value;
        best = o->detail == ATOMIC_MIN ? smaller(best, value) : larger(best, value);
    }
    return any_nan && o->immediate & REDUX_NAN ? CANONICAL_NAN : canonical(best);
}

void emu_exec_redux(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m;
    const uint32_t *values = slot32(w, o->r[1]);
    uint32_t result = values[first_lane(mask)];
    for (uint32_t rest = o->immediate ? 0 : mask & (mask - 1); rest; rest &= rest - 1)
        result = combine(o, result, values[first_lane(rest)]);
    if (o->immediate) result = combine_floats(o, values, mask);
    for (int i = 0; i < LANES; i++) {
        if (mask >> i & 1) slot32(w, o->r[0])[i] = result;
    }
}

void emu_exec_match(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m;
    uint32_t results[LANES] = {0};
    for (int i = 0; i < LANES; i++) {
        for (int k = 0; k < LANES; k++) {
            bool same = o->bytes == 8 ? slot64(w, o->r[1])[i] == slot64(w, o->r[1])[k]
                                      : slot32(w, o->r[1])[i] == slot32(w, o->r[1])[k];
            results[i] |= (uint32_t)(same && mask >> k & 1) << k;
        }
    }
    bool same = results[first_lane(mask)] == mask;
    for (int i = 0; i < LANES; i++) {
        if (mask >> i & 1) slot32(w, o->r[0])[i] = o->detail == MATCH_ANY ? results[i] : same ? mask : 0;
    }
    if (o->p[0] != NO_PREDICATE) w->predicates[o->p[0]] = (w->predicates[o->p[0]] & ~mask) | (same ? mask : 0);
}

void emu_exec_elect(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m;
    const uint32_t leader = (uint32_t)first_lane(mask);
    for (uint32_t rest = mask; rest; rest &= rest - 1) slot32(w, o->r[0])[first_lane(rest)] = leader;
    if (o->p[0] != NO_PREDICATE) w->predicates[o->p[0]] = (w->predicates[o->p[0]] & ~mask) | 1u << leader;
}
