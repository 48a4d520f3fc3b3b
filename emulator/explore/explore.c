/* explore.c - every order of the accesses to flags and counters that can matter, by running a launch again and again.
 *
 * An access that orders threads or asks what others have written waits for its transition (WARP_HELD). Delayed effects
 * have their own transitions (delayed.c). Between two transitions whatever can run without one does: docs/internals.md
 * says why the order of that does not matter. So a run is a sequence of transitions. Two transitions are dependent
 * where they touch the same bytes and not both only read or both only add. Orders that differ by transitions that are
 * not dependent are one class, of which one run is enough: source sets (Abdulla, Aronsson, Jonsson, Sagonas, Optimal
 * Dynamic Partial Order Reduction, 2014) choose which transitions to exchange, sleep sets leave what was seen. A poll
 * whose answer leads back to itself and changes nothing is a wait: it has no transition until its answer is another.
 *
 * A strong load may also return an earlier value, where PTX allows it (stale.c). That is a run of its own only if the
 * load cannot go before the write that it does not see: the run in which it does is of another class.
 *
 * A run that departs from the one before begins anew and repeats the transitions that the two have in common. Or, where
 * the system has copies of a process, the process waits at each transition that could be another, while a copy of it
 * goes on; when that has ended, the next copy takes another transition there.
 */
#include "explore.h"
#include "../check/races.h"
#include "../machine/addresses.h"
#include "../machine/crew.h"
#include "../machine/interleaving.h"
#include "copies.h"
#include "delayed.h"
#include "stale.h"
#include "tile_counter.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TRANSITIONS = 20000, MOST_STEPS = 64, MOST_POLLS = 64, MANY_WAYS = 512, MOST_EARLIER = 16 };

typedef enum access_kind { READS, ADDS, WRITES } access_kind;

/* Bytes that a delayed access touches. They are kept as long as the explorer. */
typedef struct range_set {
    struct range_set *next;
    size_t count;
    byte_range ranges[];
} range_set;

/* A warp, or what it does delayed. */
typedef struct actor {
    uint64_t cta;
    uint32_t warp, delayed; /* delayed: the number of that, else 0 */
} actor;

/* An actor that waits for its transition, and what it touches then. */
typedef struct candidate {
    actor who;
    uint32_t instruction, size;
    uint32_t since; /* transitions that had been taken when it came */
    access_kind kind;
    uint32_t sum; /* of those that add: see emu_sum_of() */
    int count;
    uint64_t at[LANES];
    const range_set *delayed; /* instead of these; NULL for a warp */
    bool draws;               /* one lane adds to a number in global memory, and looks at what was there */
    bool enabled;             /* no wait, or one that is over */
    bool done, sleeps;
} candidate;

typedef struct transition {
    candidate *candidates;
    size_t count, capacity, taken;
    uint64_t *before;          /* bits: transitions that come before this one in every run of the class */
    bool *chosen;              /* by candidate: to be tried here */
    bool is_shared;            /* by copies: chosen is theirs */
    bool is_listed;            /* earlier values are: those that the load which was taken may return */
    size_t value_count, value; /* 0: the last value, n: values[n - 1] */
    earlier_value values[MOST_EARLIER];
} transition;

/* Memory that the copies of a process share. Entries of one depth are consecutive. */
enum { MOST_DEPTH = 256, MOST_SHARED = 256 };
struct shared_orders {
    emu_exploration seen;
    uint32_t gaps;
    bool stops;  /* no other run is wanted */
    bool failed; /* there was no memory, no process, or no room for so many transitions or candidates */
    size_t count;
    actor order[MOST_TRANSITIONS]; /* of the run that stopped the others */
    earlier_value values[MOST_TRANSITIONS];
    bool chosen[MOST_DEPTH][MOST_SHARED];
};

struct explorer {
    transition *transitions;
    size_t count, capacity; /* that were taken, in the run or to be repeated */
    size_t repeated;        /* those of the run to come */
    size_t departed;        /* where that departs from the run before, and which was taken there */
    size_t instead_of;
    bool left, spent, failed;
    struct shared_orders *shared; /* NULL where each run begins anew */
    size_t depth;                 /* processes that wait for this one */
    bool explored;                /* copies have run what there was */
    bool only_draws;              /* CTAs tell each other nothing but tickets */
    tickets *tickets;             /* NULL where each order is of a class of its own */
    bool *races;                  /* transitions that the last one could have come before */
    range_set *ranges;
};

explorer *emu_explorer_new(void) {
    return calloc(1, sizeof(explorer));
}

static void forget_from(explorer *x, size_t first) {
    for (size_t i = first; i < x->count; i++) {
        free(x->transitions[i].candidates);
        free(x->transitions[i].before);
        if (!x->transitions[i].is_shared) free(x->transitions[i].chosen);
    }
    if (first < x->count) x->count = first;
}

void emu_explorer_free(explorer *x) {
    if (!x) return;
    emu_tickets_free(x->tickets);
    forget_from(x, 0);
    free(x->transitions);
    free(x->races);
    for (range_set *each = x->ranges, *next; each; each = next) {
        next = each->next;
        free(each);
    }
    emu_free_shared(x->shared, sizeof *x->shared);
    free(x);
}

bool emu_explorer_ended(const explorer *x) {
    return !x->left && !x->spent;
}

bool emu_explorer_spent(const explorer *x) {
    return x->spent;
}

bool emu_explorer_read_earlier(const explorer *x) {
    for (size_t i = 0; i < x->count; i++)
        if (x->transitions[i].value) return true;
    return false;
}

bool emu_explorer_failed(const explorer *x) {
    return x->failed;
}

void emu_explorer_restart(explorer *x) {
    forget_from(x, 0);
    x->repeated = 0;
    emu_free_shared(x->shared, sizeof *x->shared);
    x->shared = NULL;
    x->explored = false;
    emu_explorer_leave_tickets(x);
}

/* ---- transitions ---- */

static bool same_actor(const candidate *a, const candidate *b) {
    return a->who.cta == b->who.cta && a->who.warp == b->who.warp && a->who.delayed == b->who.delayed;
}

static size_t range_count(const candidate *c) {
    return c->delayed ? c->delayed->count : (size_t)c->count;
}

static byte_range range_of(const candidate *c, size_t i) {
    return c->delayed ? c->delayed->ranges[i] : (byte_range){c->at[i], c->size};
}

static bool overlap(const candidate *a, const candidate *b) {
    for (size_t i = 0; i < range_count(a); i++) {
        const byte_range x = range_of(a, i);
        for (size_t k = 0; k < range_count(b); k++) {
            const byte_range y = range_of(b, k);
            if (x.address < y.address + y.bytes && y.address < x.address + x.bytes) return true;
        }
    }
    return false;
}

static bool commute(const candidate *a, const candidate *b) {
    return a->kind == b->kind && (a->kind == READS || (a->kind == ADDS && a->sum == b->sum));
}

static bool dependent(const candidate *a, const candidate *b) {
    return same_actor(a, b) || (!commute(a, b) && overlap(a, b));
}

static const candidate *taken_at(const explorer *x, size_t i) {
    return &x->transitions[i].candidates[x->transitions[i].taken];
}

static bool bit(const uint64_t *bits, size_t i) {
    return bits[i / 64] >> i % 64 & 1;
}

/* Turn i comes before, and what comes before that. */
static void add_before(const explorer *x, uint64_t *bits, size_t i) {
    for (size_t k = 0; k <= i / 64; k++) bits[k] |= x->transitions[i].before[k];
    bits[i / 64] |= 1ull << i % 64;
}

/* True if the warp of a transition was there at transition i, and waited for another answer. */
static bool waited_at(const transition *t, const candidate *c) {
    for (size_t k = 0; k < t->count; k++)
        if (same_actor(&t->candidates[k], c) && t->candidates[k].since == c->since) return !t->candidates[k].enabled;
    return false;
}

/* True if the last transition is one that transition i alone has freed: it cannot come before that. */
static bool freed_by(const explorer *x, size_t i, size_t last) {
    const candidate *c = taken_at(x, last);
    bool alone = waited_at(&x->transitions[i], c);
    for (size_t k = i + 1; k < last && alone; k++)
        alone = bit(x->transitions[k].before, i) || !dependent(taken_at(x, k), c);
    return alone;
}

/* Let the interleaving be explored in which something runs before transition i that no order puts after it. */
static void exchange(explorer *x, size_t i, size_t last) {
    transition *at = &x->transitions[i];
    bool *first = NULL;
    for (size_t k = i + 1; k <= last; k++) {
        const uint64_t *before = x->transitions[k].before;
        if (k != last && bit(before, i)) continue;
        bool is_first = true;
        for (size_t j = i + 1; j < k && is_first; j++) is_first = !bit(before, j) || bit(x->transitions[j].before, i);
        for (size_t c = 0; c < at->count && is_first; c++) {
            const candidate *each = &at->candidates[c];
            if (!same_actor(each, taken_at(x, k)) || !each->enabled) continue;
            if (at->chosen[c]) return;
            if (!first) first = &at->chosen[c];
        }
    }
    if (first) *first = true;
    for (size_t c = 0; c < at->count && !first; c++) at->chosen[c] = true;
}

/* A transition was taken: what comes before it, and which of those could have come after it. The event that ended a
 * wait happens before it, but earlier events may have happened later: the thread that takes a lock may have been first.
 */
static bool order_last(explorer *x) {
    const size_t last = x->count - 1, words = last / 64 + 1;
    const candidate *c = taken_at(x, last);
    uint64_t *before = calloc(words, sizeof *before), *fixed = calloc(words, sizeof *fixed);
    bool *races = calloc(last + 1, sizeof *races);
    const bool complete = before && fixed && races;
    x->transitions[last].before = before;
    if (complete && c->since) add_before(x, fixed, c->since - 1);
    for (size_t i = last; complete && i-- > 0;) {
        if (!dependent(taken_at(x, i), c)) continue;
        races[i] = !bit(fixed, i);
        add_before(x, waited_at(&x->transitions[i], c) ? before : fixed, i);
    }
    for (size_t i = 0; complete && i < words; i++) before[i] |= fixed[i];
    for (size_t i = 0; complete && i < last; i++)
        if (races[i] && !same_actor(taken_at(x, i), c) && !freed_by(x, i, last)) exchange(x, i, last);
    free(fixed);
    free(x->races);
    x->races = races;
    return complete;
}

/* ---- what a warp is about to do ---- */

static void find_kind(candidate *c, const op *o) {
    const bool atomic = o->kind == OP_ATOMIC;
    c->sum = atomic ? emu_sum_of(o, (enum atomic_numbers)o->target, o->bytes, o->flags & FLAG_SIGNED) : 0;
    c->kind = o->kind == OP_LOAD ? READS : c->sum ? ADDS : WRITES;
}

static bool draws(const warp *w, const op *o, const candidate *c) {
    return o->kind == OP_ATOMIC && o->asks && o->target == ATOMIC_INTEGER && o->detail == ATOMIC_ADD &&
           o->vector == 1 && population(w->held) == 1 && !(c->at[0] >> 63);
}

/* True if a compare-and-swap, or an exchange, would change nothing. */
static bool changes_nothing(cta *m, const warp *w, const op *o, const candidate *c) {
    if ((o->detail != ATOMIC_CAS && o->detail != ATOMIC_EXCH) || o->vector > 1 || o->bytes > 8 || o->bytes < 4 ||
        c->count != 1)
        return false;
    uint64_t address, value = 0;
    const int lane = first_lane(w->held);
    uint32_t local;
    const bool shared = emu_touches(w, o, lane, &address);
    const cta *at = shared ? emu_owner(m, address, &local) : m;
    if (!at) return false;
    const uint8_t *bytes = shared ? at->shared + (local - m->shared_base) : emu_host_bytes(m->device, address);
    const unsigned first = o->r[o->dests + 1]; /* what should be there, or is to be */
    if (!bytes || population(w->held) != 1) return false;
    memcpy(&value, bytes, o->bytes);
    const bool same = value == (o->bytes == 8 ? slot64(w, first)[lane] : slot32(w, first)[lane]);
    return same == (o->detail == ATOMIC_EXCH);
}

/* The access that a copy of a warp would make, without executing it. */
static void ask(cta *m, warp *copy, const op *o) {
    const op_counts counts = m->counts[o->instruction];
    const uint64_t polls = m->polls;
    struct checks *const checks = m->checks;
    m->checks = NULL;
    copy->granted = true;
    copy->pc++;
    if (o->kind == OP_LOAD)
        emu_exec_load(m, copy, o, copy->held);
    else
        emu_exec_atomic(m, copy, o, copy->held);
    m->checks = checks;
    m->polls = polls;
    m->counts[o->instruction] = counts;
}

/* Ask and run until the warp asks again; false if it never does. `branch`: the warp's state at the first branch. */
static bool leads_back(cta *m, warp *copy, warp *branch, const op *o) {
    const int32_t at = copy->pc;
    bool branched = false;
    ask(m, copy, o);
    for (int i = 0; i < MOST_STEPS; i++) {
        if (copy->pc == at) return branched && same_registers(m->code, copy, branch);
        if (m->code->ops[copy->pc].kind == OP_BRANCH && !branched) {
            copy_registers(m->code, copy, branch);
            branched = true;
        }
        if (emu_delayed_concerns(m, copy, &m->code->ops[copy->pc]) || !emu_step_registers(m, copy)) return false;
    }
    return false;
}

/* True if the answer leads back to the question, with nothing done after the first branch: then a warp waits. */
static bool asks_in_vain(cta *m, const warp *w, const candidate *c) {
    const op *o = &m->code->ops[w->pc];
    if (w->split || !o->asks || (o->kind == OP_ATOMIC && !changes_nothing(m, w, o, c))) return false;
    const size_t words = register_words(m->code);
    uint32_t *room = aligned_alloc(64, 2 * words * sizeof *room);
    if (!room) return false;
    warp copy = *w, branch = *w;
    copy.file = room;
    copy.predicates = room + (size_t)m->code->slot_count * LANES;
    branch.file = room + words;
    branch.predicates = branch.file + (size_t)m->code->slot_count * LANES;
    copy_registers(m->code, w, &copy);
    const bool vain = leads_back(m, &copy, &branch, o);
    free(room);
    return vain;
}

static candidate describe(cta *m, const warp *w) {
    const op *o = &m->code->ops[w->pc];
    candidate c = {.who = {m->cta_index, (uint32_t)w->index, 0},
                   .instruction = o->instruction,
                   .size = (uint32_t)o->bytes * o->vector};
    find_kind(&c, o);
    for (uint32_t rest = w->held; rest; rest &= rest - 1) {
        uint64_t address;
        uint32_t local;
        const bool shared = emu_touches(w, o, first_lane(rest), &address);
        const cta *at = shared ? emu_owner(m, address, &local) : NULL;
        if (at) address = 1ull << 63 | at->cta_index << 32 | local;
        bool known = false;
        for (int i = 0; i < c.count && !known; i++) known = c.at[i] == address;
        if (!known) c.at[c.count++] = address;
    }
    c.draws = draws(w, o, &c);
    c.enabled = !asks_in_vain(m, w, &c);
    return c;
}

/* The bytes that it accesses, equal for transitions that access the same bytes; NULL when out of memory. */
static const range_set *ranges_of(explorer *x, const delayed_access *delayed) {
    const size_t bytes = delayed->range_count * sizeof *delayed->ranges;
    range_set *found = x->ranges;
    while (found && (found->count != delayed->range_count || memcmp(found->ranges, delayed->ranges, bytes)))
        found = found->next;
    if (found) return found;
    range_set *made = malloc(sizeof *made + bytes);
    if (!made) return NULL;
    *made = (range_set){x->ranges, delayed->range_count};
    memcpy(made->ranges, delayed->ranges, bytes);
    return x->ranges = made;
}

static candidate describe_late(explorer *x, const cta *m, const delayed_access *delayed) {
    return (candidate){.who = {m->cta_index, (uint32_t)delayed->warp, delayed->number},
                       .instruction = delayed->instruction,
                       .kind = delayed->loads ? READS
                               : delayed->sum ? ADDS
                                              : WRITES,
                       .sum = delayed->sum,
                       .delayed = ranges_of(x, delayed),
                       .enabled = true};
}

/* ---- a run ---- */

static bool add_candidate(const explorer *x, transition *now, const candidate *c) {
    candidate *more = emu_reserve(now->candidates, now->count + 1, &now->capacity, sizeof *more);
    if (!more) return false;
    now->candidates = more;
    more[now->count] = *c;
    more[now->count++].since = (uint32_t)x->count;
    return true;
}

/* State of one CTA. False when out of memory. */
static bool list_actors(explorer *x, cta *m, transition *now) {
    for (size_t i = 0; i < m->delayed_count; i++) {
        if (!emu_delayed_is_due(m, &m->delayed[i])) continue;
        const candidate c = describe_late(x, m, &m->delayed[i]);
        if (!c.delayed || !add_candidate(x, now, &c)) return false;
    }
    for (uint32_t i = 0; i < m->warp_count; i++) {
        const warp *w = &m->warps[i];
        if (w->state != WARP_HELD || w->waits_for_delayed) continue;
        const candidate c = describe(m, w);
        if (!add_candidate(x, now, &c)) return false;
    }
    return true;
}

/* Actors that currently wait for their transition. False when out of memory. */
static bool list_candidates(explorer *x, cta **ctas, size_t count, transition *now) {
    *now = (transition){0};
    if (ctas[0]->stale) emu_stale_choose(ctas[0]->stale, NULL, 0); /* polls ask for the last values */
    for (size_t k = 0; k < count; k++)
        if (!list_actors(x, ctas[k], now)) return false;
    const transition *last = x->count ? &x->transitions[x->count - 1] : NULL;
    for (size_t i = 0; last && i < now->count; i++) {
        candidate *c = &now->candidates[i];
        for (size_t k = 0; k < last->count; k++) {
            const candidate *was = &last->candidates[k];
            if (k == last->taken || !same_actor(c, was)) continue;
            c->since = was->since;
            c->sleeps = (was->sleeps || was->done) && !dependent(was, &last->candidates[last->taken]);
        }
    }
    return true;
}

/* The first that may run, of those that represent more than was explored; count if there is none. */
static size_t choose(const transition *now) {
    size_t i = 0;
    while (i < now->count && (!now->candidates[i].enabled || now->candidates[i].sleeps)) i++;
    return i;
}

static bool any_enabled(const transition *now) {
    for (size_t i = 0; i < now->count; i++)
        if (now->candidates[i].enabled) return true;
    return false;
}

static void store_lanes(cta *m, const delayed_access *delayed) {
    const warp *w = &m->warps[delayed->warp];
    for (uint32_t rest = delayed->lanes; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        if (m->stale)
            emu_stale_write(m, w, delayed->clock, lane, delayed->stores, delayed->at[lane], delayed->there[lane],
                            delayed->bytes);
        memcpy(delayed->there[lane], delayed->data[lane], delayed->bytes);
        if (m->checks) emu_global_told(m, delayed->at[lane], delayed->order, delayed->told[lane]);
    }
}

static void load_lanes(cta *m, const delayed_access *delayed) {
    warp *w = &m->warps[delayed->warp];
    uint8_t *from[LANES] = {NULL};
    uint32_t own_lanes = 0;
    for (uint32_t rest = delayed->lanes; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        const uint8_t *own = emu_own_delayed(m, w, delayed->number, lane, delayed->at[lane], delayed->bytes);
        from[lane] = own ? (uint8_t *)(uintptr_t)own : delayed->there[lane];
        own_lanes |= (uint32_t)(own != NULL) << lane;
    }
    if (m->stale) emu_stale_load(m, w, delayed->loads, delayed->lanes & ~own_lanes, delayed->at, from);
    for (uint32_t rest = m->checks ? delayed->lanes & ~own_lanes & ~w->stale : 0; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        if (from[lane]) emu_global_learn(m, w, lane, delayed->at[lane], delayed->order);
    }
    emu_finish_load(w, delayed->loads, from, delayed->lanes);
    w->stale = 0;
}

static void let_late_happen(cta *m, const actor *who) {
    for (size_t i = 0; i < m->delayed_count; i++) {
        const delayed_access *delayed = &m->delayed[i];
        if (delayed->number != who->delayed || (uint32_t)delayed->warp != who->warp) continue;
        if (delayed->copy.reduces)
            emu_bulk_moves(m, &delayed->copy);
        else if (delayed->loads)
            load_lanes(m, delayed);
        else
            store_lanes(m, delayed);
        m->changes += !delayed->loads;
        emu_remove_delayed(m, i);
        break;
    }
}

static cta *cta_of(cta **ctas, size_t count, const candidate *c) {
    for (size_t k = 0; k < count; k++)
        if (ctas[k]->cta_index == c->who.cta) return ctas[k];
    return ctas[0];
}

static void grant(cta **ctas, size_t count, const candidate *c) {
    cta *m = cta_of(ctas, count, c);
    m->polled_at = 0;
    if (c->who.delayed) {
        let_late_happen(m, &c->who);
        return;
    }
    warp *w = &m->warps[c->who.warp];
    w->state = WARP_READY;
    w->granted = true;
    w->polls = 0;
}

/* Lists the earlier values that a load may return at its transition. */
static size_t list_earlier(cta *m, const candidate *c, earlier_value *values) {
    const warp *w = &m->warps[c->who.warp];
    for (size_t i = 0; i < m->delayed_count && c->who.delayed; i++) {
        const delayed_access *d = &m->delayed[i];
        if (d->number == c->who.delayed && (uint32_t)d->warp == c->who.warp)
            return emu_stale_list(m, w, d->loads, d->lanes, d->at, values, MOST_EARLIER);
    }
    const op *o = &m->code->ops[w->pc];
    uint64_t addresses[LANES] = {0};
    for (uint32_t rest = w->held; rest; rest &= rest - 1)
        addresses[first_lane(rest)] = lane_address(w, o, o->dests, first_lane(rest));
    return emu_stale_list(m, w, o, w->held, addresses, values, MOST_EARLIER);
}

/* True if a poll that returns this value asks again. */
static bool only_asks_again(cta *m, const candidate *c, const earlier_value *value) {
    emu_stale_choose(m->stale, value, 0);
    return !c->who.delayed && asks_in_vain(m, &m->warps[c->who.warp], c);
}

/* Earlier values that the last transition may read, where no run of another class reads them. */
static void list_values(const explorer *x, transition *t, cta **ctas, size_t count) {
    const candidate *c = &t->candidates[t->taken];
    cta *m = cta_of(ctas, count, c);
    earlier_value found[MOST_EARLIER];
    t->is_listed = true;
    const size_t listed = m->stale && c->kind == READS ? list_earlier(m, c, found) : 0;
    for (size_t i = 0; i < listed; i++)
        if (found[i].transition && !x->races[found[i].transition - 1] && !only_asks_again(m, c, &found[i]))
            t->values[t->value_count++] = found[i];
}

static void grant_at(const explorer *x, size_t i, cta **ctas, size_t count) {
    const transition *t = &x->transitions[i];
    const earlier_value *value = t->value ? &t->values[t->value - 1] : NULL;
    if (ctas[0]->stale) emu_stale_choose(ctas[0]->stale, value, (uint32_t)i + 1);
    grant(ctas, count, &t->candidates[t->taken]);
}

static bool is_open(const transition *t, size_t i) {
    const candidate *c = &t->candidates[i];
    return t->chosen[i] && c->enabled && !c->done && !c->sleeps;
}

/* Takes another transition instead of the last one, or lets that return an earlier value; false where none is wanted.
 */
static bool take_other(explorer *x) {
    transition *t = &x->transitions[x->count - 1];
    x->instead_of = t->taken;
    x->departed = x->count - 1;
    if (t->value < t->value_count) {
        t->value++;
        x->repeated = x->count;
        return true;
    }
    t->candidates[t->taken].done = true;
    t->is_listed = false;
    t->value = t->value_count = 0;
    for (size_t i = 0; i < t->count; i++) {
        if (!is_open(t, i)) continue;
        t->taken = i;
        x->repeated = x->count;
        free(t->before);
        t->before = NULL;
        x->failed = !order_last(x);
        return !x->failed;
    }
    return false;
}

/* ---- copies ---- */

/* Copies of this process may add alternatives to a transition. */
static bool share_transition(explorer *x, transition *t) {
    struct shared_orders *shared = x->shared;
    if (x->depth == MOST_DEPTH || t->count > MOST_SHARED) {
        shared->stops = shared->failed = true;
        return false;
    }
    bool *chosen = shared->chosen[x->depth];
    memcpy(chosen, t->chosen, t->count * sizeof *chosen);
    free(t->chosen);
    t->chosen = chosen;
    return t->is_shared = true;
}

/* Goes on in a copy of this process and, when that has ended, in others that take other transitions here. False in the
 * process itself, when none is left; then it has nothing more to do, and if it is a copy it ends. */
static bool go_on_in_copies(explorer *x, size_t at, cta **ctas, size_t count) {
    transition *t = &x->transitions[at];
    size_t open = t->value_count - t->value;
    for (size_t i = 0; i < t->count; i++)
        open += t->candidates[i].enabled && !t->candidates[i].done && !t->candidates[i].sleeps;
    if (open < 2) return true;
    for (bool more = share_transition(x, t); more; more = !x->shared->stops && take_other(x)) {
        if (!t->is_listed) list_values(x, t, ctas, count);
        const copy_result copy = emu_run_copy();
        if (copy == COPY_ITSELF) {
            x->depth++;
            return true;
        }
        if (copy == COPY_FAILED) x->shared->stops = x->shared->failed = true;
        forget_from(x, at + 1);
        t = &x->transitions[at];
    }
    if (x->failed) x->shared->stops = x->shared->failed = true;
    x->left = x->explored = true;
    if (x->depth) emu_end_copy();
    return false;
}

/* ---- tickets ---- */

void emu_explorer_note_draws(explorer *x, bool only_draws) {
    x->only_draws = only_draws;
}

/* True if in the last run all draw from one counter, and nothing else has a transition until all have; then who drew.
 */
static bool list_owners(const explorer *x, uint64_t *owners, size_t *draws) {
    *draws = 0;
    for (size_t i = 0; i < x->count; i++) {
        const candidate *c = taken_at(x, i), *first = taken_at(x, 0);
        if (c->draws && (*draws < i || c->at[0] != first->at[0] || c->size != first->size)) return false;
        if (c->draws) owners[(*draws)++] = c->who.cta;
    }
    return *draws > 0;
}

bool emu_explorer_use_tickets(explorer *x, uint64_t ctas) {
    uint64_t *owners = x->only_draws ? malloc((x->count + 1) * sizeof *owners) : NULL;
    size_t draws;
    if (owners && list_owners(x, owners, &draws) && emu_ways_to_draw(owners, draws) > MANY_WAYS)
        x->tickets = emu_tickets_new(owners, draws, ctas);
    free(owners);
    return x->tickets != NULL;
}

void emu_explorer_leave_tickets(explorer *x) {
    emu_tickets_free(x->tickets);
    x->tickets = NULL;
}

const tickets *emu_explorer_tickets(const explorer *x) {
    return x->tickets;
}

bool emu_explorer_plan(explorer *x) {
    return emu_tickets_plan(x->tickets);
}

/* The transition of one of those that wait: all draw from the counter, or all tickets are drawn. NULL where that is not
 * so.
 */
static const candidate *choose_drawing(explorer *x, cta **ctas, size_t count, const transition *now) {
    const candidate *counter = taken_at(x, 0);
    uint64_t value = 0;
    if (emu_tickets_all_drawn(x->tickets)) return now->count == 1 && !now->candidates->draws ? now->candidates : NULL;
    for (size_t i = 0; i < now->count; i++) {
        const candidate *c = &now->candidates[i];
        if (!c->draws || c->at[0] != counter->at[0] || c->size != counter->size) return NULL;
    }
    void *bytes = emu_host_bytes(ctas[0]->device, counter->at[0]);
    if (!bytes) return NULL;
    memcpy(&value, bytes, counter->size);
    const int chosen = emu_tickets_draw(x->tickets, ctas, count, &value);
    memcpy(bytes, &value, counter->size);
    for (size_t i = 0; i < now->count && chosen >= 0; i++)
        if (now->candidates[i].who.cta == ctas[chosen]->cta_index) return &now->candidates[i];
    return NULL;
}

/* Likewise, where tickets are drawn as planned. */
static bool take_ticket(explorer *x, cta **ctas, size_t count) {
    transition now;
    x->failed = !list_candidates(x, ctas, count, &now);
    const candidate *chosen = !x->failed && now.count ? choose_drawing(x, ctas, count, &now) : NULL;
    x->left = now.count && !chosen;
    if (chosen) grant(ctas, count, chosen);
    free(now.candidates);
    return chosen != NULL;
}

/* ---- transitions of a run ---- */

/* The next transition is taken; false where there is none, or an end to the run. */
static bool take_transition(explorer *x, cta **ctas, size_t count, size_t *position) {
    if (x->tickets) return take_ticket(x, ctas, count);
    if (*position < x->repeated) {
        transition *t = &x->transitions[*position];
        if (!t->is_listed) list_values(x, t, ctas, count);
        if (x->shared && !go_on_in_copies(x, *position, ctas, count)) return false;
        grant_at(x, (*position)++, ctas, count);
        return true;
    }
    transition now;
    x->failed = !list_candidates(x, ctas, count, &now);
    transition *more = x->failed ? NULL : emu_reserve(x->transitions, x->count + 1, &x->capacity, sizeof *more);
    now.chosen = calloc(now.count + 1, sizeof *now.chosen);
    x->failed |= !more || !now.chosen;
    if (more) x->transitions = more;
    now.taken = choose(&now);
    x->left = !x->failed && now.taken == now.count && any_enabled(&now);
    x->spent = x->count >= MOST_TRANSITIONS;
    if (x->failed || now.taken == now.count || x->spent) {
        free(now.candidates);
        free(now.chosen);
        return false;
    }
    now.chosen[now.taken] = true;
    x->transitions[x->count++] = now;
    ++*position;
    x->failed = !order_last(x);
    if (x->failed) return false;
    list_values(x, &x->transitions[x->count - 1], ctas, count);
    if (x->shared && !go_on_in_copies(x, x->count - 1, ctas, count)) return false;
    grant_at(x, x->count - 1, ctas, count);
    return true;
}

/* Whatever can run without a transition does: the CTAs of a cluster run side by side. False if one is at fault. */
static bool run_between(const explorer *x, cta **ctas, size_t count) {
    for (size_t k = 0; k < count; k += ctas[k]->cluster->count) {
        cluster *c = ctas[k]->cluster;
        if (x->tickets && !emu_tickets_runs(x->tickets, k)) continue;
        cta_turn turn = c->count == 1 && c->ctas->ended ? TURN_ENDED : TURN_PAUSED;
        for (int polls = 0; turn != TURN_ENDED && turn != TURN_HELD; polls += turn == TURN_POLLS) {
            if (polls > MOST_POLLS) emu_report_livelock(&ctas[k], c->count, 0, 0);
            turn = emu_run_turn(c, false);
        }
        if (emu_has_faulted(c)) return false;
        for (uint32_t i = 0; i < c->count; i++) c->ctas[i].ended |= turn == TURN_ENDED;
    }
    return true;
}

bool emu_explorer_run(explorer *x, cta **ctas, size_t count) {
    size_t position = 0, left = 0;
    x->left = x->spent = x->failed = false;
    if (x->tickets && !emu_tickets_begin(x->tickets, ctas, count)) return false;
    while (run_between(x, ctas, count) && take_transition(x, ctas, count, &position)) {
    }
    if (x->tickets && emu_tickets_solo(x->tickets)) {
        emu_tickets_end(x->tickets, ctas, count);
        x->left = true;
    }
    if (x->left || x->spent || x->failed) return !x->failed;
    for (size_t k = 0; k < count; k++) {
        cta *m = ctas[k];
        if (m->faulted) return true;
        for (uint32_t i = 0; i < m->warp_count; i++)
            if (m->warps[i].state == WARP_HELD) m->warps[i].state = WARP_READY;
        if (!m->ended) ctas[left++] = m;
    }
    if (left) emu_report_livelock(ctas, left, 0, 0);
    if (x->tickets && !left) emu_tickets_end(x->tickets, ctas, count);
    return !x->tickets || !emu_tickets_failed(x->tickets);
}

/* ---- the next run ---- */

bool emu_explorer_next(explorer *x) {
    while (x->count) {
        if (take_other(x)) return true;
        if (x->failed) return false;
        forget_from(x, x->count - 1);
    }
    return false;
}

uint64_t emu_explorer_pending(const explorer *x) {
    uint64_t pending = 0;
    for (size_t i = 0; i < x->count; i++) pending += x->transitions[i].value_count - x->transitions[i].value;
    for (size_t i = 0; i < x->count; i++)
        for (size_t k = 0; k < x->transitions[i].count; k++)
            pending += k != x->transitions[i].taken && is_open(&x->transitions[i], k);
    return pending;
}

void emu_explorer_use_copies(explorer *x, const emu_exploration *seen) {
    x->shared = emu_shared_memory(sizeof *x->shared);
    if (x->shared) x->shared->seen = *seen;
}

bool emu_explorer_is_copy(const explorer *x) {
    return x->depth > 0;
}

bool emu_explorer_explored(const explorer *x) {
    return x->explored;
}

emu_exploration *emu_explorer_shared(const explorer *x) {
    return x->shared ? &x->shared->seen : NULL;
}

void emu_explorer_end_copy(explorer *x, bool stops, bool failed, uint32_t gaps) {
    struct shared_orders *shared = x->shared;
    shared->stops |= stops;
    shared->failed |= failed || x->failed;
    shared->gaps |= gaps;
    shared->count = stops && !x->left ? x->count : 0; /* what another run represents adds nothing */
    for (size_t i = 0; i < shared->count; i++) {
        const transition *t = &x->transitions[i];
        shared->order[i] = taken_at(x, i)->who;
        shared->values[i] = t->value ? t->values[t->value - 1] : (earlier_value){0};
    }
    emu_end_copy();
}

/* The transitions of the run that stopped the others are those of the next. */
static bool repeat(explorer *x, const struct shared_orders *shared) {
    for (size_t i = 0; i < shared->count; i++) {
        transition *more = emu_reserve(x->transitions, x->count + 1, &x->capacity, sizeof *more);
        candidate *taken = calloc(1, sizeof *taken);
        if (more) x->transitions = more;
        if (!more || !taken) {
            free(taken);
            return false;
        }
        *taken = (candidate){.who = shared->order[i]};
        x->transitions[x->count++] = (transition){.candidates = taken,
                                                  .count = 1,
                                                  .is_listed = true,
                                                  .value_count = shared->values[i].key != 0,
                                                  .value = shared->values[i].key != 0,
                                                  .values = {shared->values[i]}};
        x->repeated = x->count;
    }
    return true;
}

bool emu_explorer_leave_copies(explorer *x, emu_exploration *seen, uint32_t *gaps) {
    struct shared_orders *shared = x->shared;
    x->shared = NULL;
    emu_explorer_restart(x);
    *seen = shared->seen;
    *gaps |= shared->gaps;
    const bool complete = !shared->failed && repeat(x, shared);
    if (!complete) emu_explorer_restart(x);
    emu_free_shared(shared, sizeof *shared);
    return complete;
}

typedef struct actor_name {
    char text[80];
} actor_name;

static actor_name name_of(const candidate *c) {
    actor_name name;
    snprintf(name.text, sizeof name.text, "%swarp %u of CTA %" PRIu64, c->who.delayed ? "a delayed access of " : "",
             c->who.warp, c->who.cta);
    return name;
}

void emu_explorer_describe(const explorer *x, const entry *code, char *out, size_t bytes) {
    *out = 0;
    if (x->tickets) {
        emu_tickets_describe(x->tickets, out, bytes);
        return;
    }
    if (x->departed >= x->count) return;
    const candidate *now = taken_at(x, x->departed), *was = &x->transitions[x->departed].candidates[x->instead_of];
    if (x->transitions[x->departed].value) {
        snprintf(out, bytes, "%s reads an earlier value at PTX line %d", name_of(now).text,
                 emu_location_of(code, now->instruction).ptx_line);
        return;
    }
    snprintf(out, bytes, "%s goes first at PTX line %d, and not %s at line %d", name_of(now).text,
             emu_location_of(code, now->instruction).ptx_line, name_of(was).text,
             emu_location_of(code, was->instruction).ptx_line);
}
