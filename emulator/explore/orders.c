/* orders.c - whether the order of synchronization is the same in every run of a CTA: docs/internals.md has the
 * argument.
 *
 * An event is known to a warp if it happens before the warp's current instruction, by the clocks of shadow.c. Lanes of
 * a warp count as one; an actor is a warp of any CTA of the cluster. For each mbarrier the events of three phases are
 * kept: the one at work and the two before it.
 *   - what counts in phase n knows all that counted in phase n - 1, else it may count there;
 *   - who waits for phase n - 1 knows all that counted in phase n - 2, else the wait may return too early;
 *   - and something that counts in phase n knows that wait, else the phase may complete and the wait misses its parity;
 *   - an arrival of phase n knows each expect_tx of it, else the phase may complete without the bytes.
 * The first holds at barriers of a part of the CTA, too.
 */
#include "../check/orders.h"
#include "ages.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Last event of its kind of a warp; stamp 0: none. */
typedef struct order_event {
    uint32_t stamp, instruction;
    int lane;
    bool known; /* to something that the phase waits for */
} order_event;

/* The last copy that landed in a phase: its stamp is of the engine. */
typedef struct order_landing {
    order_event event;
    uint32_t actor;
} order_landing;

/* Events of each actor at an mbarrier: arrivals in phase n at n % 3, its wait for phase n - 1, its expect_tx. */
enum { WAITS = 3, EXPECTS, KINDS };

typedef struct named_order {
    order_event now[MAX_WARPS], before[MAX_WARPS];
} named_order;

/* When a warp issued its last products. */
enum { PRODUCTS = 256 };
typedef struct product_issue {
    uint32_t serial, stamp;
} product_issue;

struct orders {
    product_issue products[MAX_WARPS][PRODUCTS];
    order_event *events;                      /* [mbarriers][KINDS][actors] */
    order_landing landings[MAX_MBARRIERS][3]; /* phase n at n % 3 */
    uint32_t actors;
    named_order barriers[BARRIERS];
    order_event taken[MAX_WARPS]; /* registers, by setmaxnreg.inc */
    unsigned gaps;
    uint8_t *asked; /* by op: it is known what its answer "no" does */
};

/* ---- life ---- */

bool emu_orders_create(cta *m) {
    checks *const shadow = m->checks;
    if (!shadow->engines) return true;
    shadow->orders = calloc(1, sizeof *shadow->orders);
    if (!shadow->orders) return false;
    shadow->orders->actors = m->cluster->count * m->warp_count;
    shadow->orders->events =
        calloc((size_t)MAX_MBARRIERS * KINDS * shadow->orders->actors, sizeof *shadow->orders->events);
    shadow->orders->asked = calloc(m->code->op_count + 1, 1);
    return shadow->orders->events && shadow->orders->asked;
}

void emu_orders_start_cta(cta *m) {
    const checks *const shadow = m->checks;
    if (!shadow->orders) return;
    memset(shadow->orders->barriers, 0, sizeof shadow->orders->barriers);
    memset(shadow->orders->taken, 0, sizeof shadow->orders->taken);
}

void emu_orders_free(cta *m) {
    checks *const shadow = m->checks;
    if (shadow->orders) free(shadow->orders->asked);
    if (shadow->orders) free(shadow->orders->events);
    free(shadow->orders);
    shadow->orders = NULL;
}

/* Sums and the like, whose order does not matter where nobody looks at the results. */
static bool commutes(const op *o) {
    return o->kind == OP_ATOMIC && !o->asks && o->target == ATOMIC_INTEGER && o->detail <= ATOMIC_XOR;
}

unsigned emu_orders_gaps_of(const entry *code, bool checks, bool in_turns, bool explored, bool races_unseen) {
    unsigned gaps =
        (checks ? 0 : GAP_UNCHECKED) | (in_turns && !explored ? GAP_MEMORY : 0) | (races_unseen ? GAP_RACES : 0);
    for (size_t i = 0; i < code->op_count; i++) {
        const op *o = &code->ops[i];
        if (!explored && (o->asks || (o->kind == OP_ATOMIC && !commutes(o)))) gaps |= GAP_MEMORY;
        const bool reduces_there = o->kind == OP_BULK && o->detail & BULK_REDUCES && !(o->detail & BULK_STORE);
        if (explored && reduces_there) gaps |= GAP_MEMORY;
        if (o->kind == OP_CANCEL) gaps |= GAP_MEMORY;
        if (o->kind == OP_CLOCK) gaps |= GAP_TIME;
        if (o->kind == OP_CALL && (o->detail == CALL_MALLOC || o->detail == CALL_FREE)) gaps |= GAP_HEAP;
        if (o->kind == OP_BULK && o->detail & BULK_VALUES) gaps |= GAP_COPIES;
    }
    return gaps;
}

unsigned emu_orders_gaps(const cta *m) {
    const checks *const shadow = m->checks;
    return (m->checks && shadow->orders ? shadow->orders->gaps : 0) | (m->reads_early ? GAP_LOADS : 0);
}

/* By actor: the events of a kind at an mbarrier of m. */
static order_event *events_of(const cta *m, const mbarrier *bar, uint64_t kind) {
    const checks *const shadow = m->checks;
    return shadow->orders->events + ((size_t)(bar - m->mbarriers) * KINDS + kind) * shadow->orders->actors;
}

static order_landing *landing_of(const cta *m, const mbarrier *bar, uint64_t phase) {
    return &m->checks->orders->landings[bar - m->mbarriers][phase % 3];
}

static void forget(const cta *m, const mbarrier *bar, uint64_t kind) {
    memset(events_of(m, bar, kind), 0, m->checks->orders->actors * sizeof(order_event));
}

static uint32_t actor_of(const cta *m, const warp *w) {
    return m->rank * m->warp_count + (uint32_t)w->index;
}

void emu_orders_init(cta *m, const mbarrier *bar) {
    const checks *const shadow = m->checks;
    for (uint64_t kind = 0; kind < KINDS; kind++) forget(m, bar, kind);
    memset(shadow->orders->landings[bar - m->mbarriers], 0, sizeof shadow->orders->landings[0]);
}

/* ---- order ---- */

static bool knows(const cta *m, const warp *w, uint32_t other, const order_event *e) {
    if (e->stamp <= m->checks->base || other == (uint32_t)w->index) return true;
    for (int lane = 0; lane < (w->together ? 1 : LANES); lane++) {
        const uint32_t *row = row_of(m, w, lane) + other * LANES;
        if (row_of(m, w, lane)[clock_of_progress(m, other)] >= e->stamp) return true;
        for (int i = 0; i < LANES; i++)
            if (row[i] >= e->stamp) return true;
    }
    return false;
}

/* Events of an actor of any CTA. */
static bool knows_actor(const cta *m, const warp *w, uint32_t actor, const order_event *e) {
    const uint32_t rank = actor / m->warp_count, other = actor % m->warp_count;
    if (rank == m->rank) return knows(m, w, other, e);
    for (int lane = 0; lane < (w->together ? 1 : LANES); lane++) {
        uint32_t *tail = tail_of(m, row_of(m, w, lane));
        if (tail[actor] >= e->stamp || engines_of(m, tail, rank)[LANDINGS + m->warp_count + other] >= e->stamp)
            return true;
    }
    return false;
}

static bool knows_landing(const cta *m, const warp *w, const cta *at, const mbarrier *bar, uint32_t stamp) {
    for (int lane = 0; lane < (w->together ? 1 : LANES); lane++)
        if (known_engines(m, w, lane, at)[emu_landing_of(at, bar) - LANDED_BY] >= stamp) return true;
    return false;
}

/* Return an event that was counted in a phase of an mbarrier of `at` but does not happen before the warp; NULL if there
 * is none. */
static const order_event *unknown_to(const cta *m, const warp *w, const cta *at, const mbarrier *bar, uint64_t phase,
                                     uint32_t *whose) {
    const order_event *arrivals = events_of(at, bar, phase % 3);
    const order_landing *landing = landing_of(at, bar, phase);
    for (uint32_t i = 0; i < at->checks->orders->actors; i++) {
        if (!arrivals[i].stamp || knows_actor(m, w, i, &arrivals[i])) continue;
        *whose = i;
        return &arrivals[i];
    }
    *whose = landing->actor;
    return landing->event.stamp && !knows_landing(m, w, at, bar, landing->event.stamp) ? &landing->event : NULL;
}

typedef struct actor_name {
    char text[48];
} actor_name;

/* As a warp of `m` calls it. */
static actor_name name_of(const cta *m, uint32_t actor) {
    const uint32_t rank = actor / m->warp_count;
    actor_name name;
    snprintf(name.text, sizeof name.text, "warp %u", actor % m->warp_count);
    if (rank != m->rank)
        snprintf(name.text, sizeof name.text, "warp %u of the CTA with rank %u", actor % m->warp_count, rank);
    return name;
}

static int line_of(const cta *m, uint32_t instruction) {
    return emu_location_of(m->code, instruction).ptx_line;
}

static order_event event_of(const cta *m, const warp *w, int lane) {
    return (order_event){w->clock, m->here, lane, false};
}

/* ---- mbarriers ---- */

static void check_phase_before(cta *m, const warp *w, int lane, const cta *at, const mbarrier *bar, const char *what) {
    uint32_t whose;
    const order_event *missed = bar->phase ? unknown_to(m, w, at, bar, bar->phase - 1, &whose) : NULL;
    if (!missed) return;
    const uint32_t warp = whose % m->warp_count;
    const actor_name name = name_of(m, whose);
    emu_report(m, EMU_PHASE_OVERRUN, missed->instruction, w, lane, (int)warp * LANES + missed->lane, bar->address,
               "This %s counts in phase %" PRIu64
               " of the mbarrier at 0x%x. In another order it counts in phase %" PRIu64
               ": nothing makes this warp wait for what %s brings to that one.\n"
               "It is seen where %s is delayed before the other instruction: ptxrun --delay %u@%d.\n"
               "Let this warp wait for phase %" PRIu64 " first.",
               what, bar->phase, bar->address, bar->phase - 1, name.text, name.text, warp,
               line_of(m, missed->instruction), bar->phase - 1);
}

/* The waits of the phase at work that a warp knows cannot be overrun, or the expect_tx before an arrival of it. */
static void mark(cta *m, const warp *w, const cta *at, const mbarrier *bar, uint64_t kind) {
    order_event *events = events_of(at, bar, kind);
    for (uint32_t i = 0; i < at->checks->orders->actors; i++)
        if (events[i].stamp && !events[i].known) events[i].known = knows_actor(m, w, i, &events[i]);
}

void emu_orders_arrive(cta *m, const warp *w, int lane, cta *at, const mbarrier *bar, bool relaxed) {
    order_event *last = &events_of(at, bar, bar->phase % 3)[actor_of(m, w)];
    if (relaxed) m->checks->orders->gaps |= GAP_RELAXED;
    if (last->stamp == w->clock && last->instruction == m->here) return; /* another lane */
    if (!relaxed) check_phase_before(m, w, lane, at, bar, "arrival");
    mark(m, w, at, bar, WAITS);
    mark(m, w, at, bar, EXPECTS);
    *last = event_of(m, w, lane);
}

void emu_orders_expect(cta *m, const warp *w, int lane, cta *at, const mbarrier *bar) {
    check_phase_before(m, w, lane, at, bar, "expect_tx");
    events_of(at, bar, EXPECTS)[actor_of(m, w)] = event_of(m, w, lane);
}

void emu_orders_issue(cta *m, const warp *w, int lane, cta *at, const mbarrier *bar, bool arrives) {
    check_phase_before(m, w, lane, at, bar, arrives ? "arrival after copies" : "copy");
    mark(m, w, at, bar, WAITS);
    if (arrives) mark(m, w, at, bar, EXPECTS);
    if (bar - at->mbarriers >= LANDINGS) m->checks->orders->gaps |= GAP_MBARRIERS;
}

void emu_orders_land(cta *m, const warp *w, int lane, cta *at, const mbarrier *bar, uint32_t instruction) {
    const uint32_t stamp = bar->arriving[at->warp_count * LANES + emu_landing_of(at, bar) - LANDED_BY];
    *landing_of(at, bar, bar->phase) = (order_landing){{stamp, instruction, lane, false}, actor_of(m, w)};
}

static void report_overrun(cta *m, const mbarrier *bar, uint32_t warp, const order_event *wait) {
    const uint32_t last = m->here;
    char waits[64] = "the one before phase 0, which counts as complete,";
    if (bar->phase) snprintf(waits, sizeof waits, "phase %" PRIu64, bar->phase - 1);
    m->here = wait->instruction;
    emu_report(m, EMU_PHASE_OVERRUN, last, &m->warps[warp], wait->lane, -1, bar->address,
               "This wait is for %s of the mbarrier at 0x%x. In another order phase %" PRIu64
               " completes before it: nothing that phase %" PRIu64 " waits for waits for this warp. The parity is the "
               "same for both then, and the warp keeps waiting.\n"
               "It is seen where warp %u is delayed before this wait: ptxrun --delay %u@%d.\n"
               "Let the warp arrive where the threads that arrive at this mbarrier wait.",
               waits, bar->address, bar->phase, bar->phase, warp, warp, line_of(m, wait->instruction));
    m->here = last;
}

static void report_late_expect(cta *at, const mbarrier *bar, uint32_t actor, const order_event *expect) {
    cta *m = &at->cluster->ctas[actor / at->warp_count];
    const uint32_t last = m->here, completes = at->here, warp = actor % m->warp_count;
    m->here = expect->instruction;
    emu_report(m, EMU_ORDER_DEPENDENT, completes, &m->warps[warp], expect->lane, -1, bar->address,
               "This expect_tx announces bytes of phase %" PRIu64
               " of the mbarrier at 0x%x. In another order that phase "
               "completes before it, without them: no arrival of the phase follows it.\n"
               "It is seen where warp %u is delayed before this instruction: ptxrun --delay %u@%d.\n"
               "Let the thread that announces the bytes also arrive: mbarrier.arrive.expect_tx.",
               bar->phase, bar->address, warp, warp, line_of(m, expect->instruction));
    m->here = last;
}

void emu_orders_complete(cta *m, const mbarrier *bar) {
    const order_event *waits = events_of(m, bar, WAITS), *expects = events_of(m, bar, EXPECTS);
    for (uint32_t i = 0; i < m->checks->orders->actors; i++) {
        if (waits[i].stamp && !waits[i].known) report_overrun(m, bar, i % m->warp_count, &waits[i]);
        if (expects[i].stamp && !expects[i].known) report_late_expect(m, bar, i, &expects[i]);
    }
    forget(m, bar, WAITS);
    forget(m, bar, EXPECTS);
    forget(m, bar, (bar->phase + 1) % 3);
    *landing_of(m, bar, bar->phase + 1) = (order_landing){0};
}

void emu_orders_wait(cta *m, const warp *w, int lane, const mbarrier *bar) {
    uint32_t whose;
    const order_event *missed = bar->phase > 1 ? unknown_to(m, w, m, bar, bar->phase - 2, &whose) : NULL;
    events_of(m, bar, WAITS)[actor_of(m, w)] = event_of(m, w, lane);
    if (!missed) return;
    const uint32_t warp = whose % m->warp_count;
    emu_report(
        m, EMU_PHASE_OVERRUN, missed->instruction, w, lane, (int)warp * LANES + missed->lane, bar->address,
        "This wait is for phase %" PRIu64 " of the mbarrier at 0x%x. In another order it returns before that phase "
        "is complete: phase %" PRIu64 " need not be complete as the wait begins, and then the parity is that of "
        "the phase before.\n"
        "It is seen where %s is delayed before the other instruction: ptxrun --delay %u@%d.\n"
        "Let this warp wait for each phase in turn.",
        bar->phase - 1, bar->address, bar->phase - 2, name_of(m, whose).text, warp, line_of(m, missed->instruction));
}

/* ---- what an answer "no" does ---- */

enum { MOST_STEPS = 64 };

/* Goes on as a copy of a warp would until it is back at the op, or comes to one that does not work on registers alone;
 * false where that is so. */
static bool leads_back(cta *m, warp *w, int32_t to, register_step *step) {
    for (int i = 0; i < MOST_STEPS; i++) {
        if (w->pc == to) return true;
        if (!step(m, w)) return false;
    }
    return false;
}

static bool same_state(const cta *m, const warp *a, const warp *b) {
    return a->pc == b->pc && a->active == b->active && same_registers(m->code, a, b);
}

static warp copy_warp(const cta *m, const warp *w, uint32_t *file) {
    warp copy = *w;
    copy.file = file;
    copy.predicates = file + (size_t)m->code->slot_count * LANES;
    copy_registers(m->code, w, &copy);
    return copy;
}

static void answer(warp *w, const op *o, uint32_t mask, bool yes) {
    if (o->p[0] != NO_PREDICATE) w->predicates[o->p[0]] = (w->predicates[o->p[0]] & ~mask) | (yes ? mask : 0);
}

/* Two answers "no" lead back to the op, the second changes no register, and a "yes" after them does what one at once
 * does. w is just past the op. */
static bool only_asks_again(cta *m, const warp *w, const op *o, uint32_t mask, uint32_t *files[4],
                            register_step *step) {
    const int32_t at = w->pc - 1;
    warp once = copy_warp(m, w, files[0]);
    answer(&once, o, mask, false);
    if (!leads_back(m, &once, at, step)) return false;
    warp twice = copy_warp(m, &once, files[1]);
    twice.pc++;
    answer(&twice, o, mask, false);
    if (!leads_back(m, &twice, at, step) || !same_state(m, &once, &twice)) return false;
    warp first = copy_warp(m, w, files[2]), second = copy_warp(m, &twice, files[3]);
    second.pc++;
    answer(&first, o, mask, true);
    answer(&second, o, mask, true);
    for (int i = 0; i < MOST_STEPS && first.pc != at; i++)
        if (!step(m, &first) || !step(m, &second)) break;
    return same_state(m, &first, &second);
}

/* For a warp with diverged lanes: true if lanes other than the running ones do more than wait for the rest. */
static bool others_run(const warp *w) {
    for (int i = 0; w->split && i < w->depth; i++)
        if (w->stack[i].state != PATH_WAITS && w->stack[i].mask & live_lanes(w)) return true;
    return false;
}

void emu_orders_ask(cta *m, const warp *w, const op *o, uint32_t mask, register_step *step) {
    checks *const shadow = m->checks;
    const size_t index = (size_t)(o - m->code->ops);
    if (others_run(w)) shadow->orders->gaps |= GAP_PARTED;
    if (others_run(w) || shadow->orders->asked[index]) return;
    shadow->orders->asked[index] = 1;
    const size_t words = register_words(m->code);
    uint32_t *room = aligned_alloc(64, 4 * words * sizeof *room), *files[4];
    for (int i = 0; room && i < 4; i++) files[i] = room + i * words;
    if (!room || !only_asks_again(m, w, o, mask, files, step)) shadow->orders->gaps |= GAP_POLLS;
    free(room);
}

/* ---- barriers of the CTA ---- */

void emu_orders_barrier(cta *m, const warp *w, int lane, uint32_t id) {
    named_order *its = &m->checks->orders->barriers[id];
    for (uint32_t i = 0; i < m->warp_count; i++) {
        const order_event *e = &its->before[i];
        if (!e->stamp || knows(m, w, i, e)) continue;
        emu_report(m, EMU_PHASE_OVERRUN, e->instruction, w, lane, (int)i * LANES + e->lane, 0,
                   "This warp comes to barrier %u for the next time. In another order it is counted among those that "
                   "met there before: nothing makes it wait for warp %u, which was one of them.\n"
                   "It is seen where warp %u is delayed before the other instruction: ptxrun --delay %u@%d.\n"
                   "Take another barrier for the next meeting, or let this warp wait at this one (bar.sync).",
                   id, i, i, i, line_of(m, e->instruction));
        break;
    }
    its->now[w->index] = event_of(m, w, lane);
}

void emu_orders_release(cta *m, uint32_t id) {
    named_order *its = &m->checks->orders->barriers[id];
    memcpy(its->before, its->now, sizeof its->before);
    memset(its->now, 0, sizeof its->now);
}

/* ---- wgmma ---- */

void emu_orders_product(cta *m, warp *w) {
    m->checks->orders->products[w->index][w->wgmma_issued % PRODUCTS] = (product_issue){w->wgmma_issued, w->clock};
    emu_clock_tick(m, w);
}

void emu_orders_product_wait(cta *m, const warp *w, uint32_t wanted) {
    const uint32_t first = (uint32_t)w->index / 4 * 4;
    for (uint32_t i = first; i < first + 4; i++) {
        const product_issue *its = &m->checks->orders->products[i][(wanted - 1) % PRODUCTS];
        if (its->serial == wanted - 1) emu_clock_learn(m, w, clock_of_progress(m, i), its->stamp);
    }
}

void emu_orders_registers(cta *m, const warp *w, bool more) {
    checks *const shadow = m->checks;
    order_event *taken = shadow->orders->taken;
    if (w->register_changes > 1) shadow->orders->gaps |= GAP_REGISTERS;
    for (uint32_t i = 0; i < m->warp_count && !more; i++)
        if (taken[i].stamp && knows(m, w, i, &taken[i])) shadow->orders->gaps |= GAP_REGISTERS;
    if (more) taken[w->index] = event_of(m, w, 0);
}

/* ---- what is kept, for state.c ---- */

static void add_event(const cta *m, const ages *a, uint64_t *sum, const order_event *e, uint32_t actor) {
    const uint64_t age = age_since(a, a->actors[actor % m->warp_count], e->stamp);
    add_word(sum, age << 1 | e->known);
    if (age) add_word(sum, (uint64_t)e->instruction << 32 | (uint32_t)e->lane);
}

static void add_phases(const cta *m, const ages *a, uint64_t *sum, const mbarrier *bar) {
    const uint32_t landing = m->warp_count * LANES + emu_landing_of(m, bar) - LANDED_BY;
    for (uint32_t i = 0; i < m->checks->orders->actors; i++) {
        for (uint64_t back = 0; back < 3; back++)
            add_event(m, a, sum, &events_of(m, bar, (bar->phase + back) % 3)[i], i);
        for (uint64_t kind = WAITS; kind < KINDS; kind++) add_event(m, a, sum, &events_of(m, bar, kind)[i], i);
    }
    for (uint64_t back = 0; back < 3; back++) {
        const order_landing *last = landing_of(m, bar, bar->phase + back);
        add_word(sum, age_since(a, a->known[landing], last->event.stamp));
    }
}

void emu_add_orders(const cta *m, const ages *a, uint64_t *sum) {
    checks *const shadow = m->checks;
    for (int i = 0; shadow->orders && i < m->mbarrier_count; i++) add_phases(m, a, sum, &m->mbarriers[i]);
    for (uint32_t i = 0; shadow->orders && i < m->warp_count; i++) {
        const uint32_t issued = m->warps[i].wgmma_issued - 1;
        const product_issue *its = &shadow->orders->products[i][issued % PRODUCTS];
        for (int id = 0; id < BARRIERS; id++) {
            add_event(m, a, sum, &shadow->orders->barriers[id].now[i], i);
            add_event(m, a, sum, &shadow->orders->barriers[id].before[i], i);
        }
        add_event(m, a, sum, &shadow->orders->taken[i], i);
        if (its->serial == issued) add_word(sum, age_since(a, a->known[clock_of_progress(m, i)], its->stamp));
    }
}
