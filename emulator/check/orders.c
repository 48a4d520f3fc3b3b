/* orders.c - whether the order of synchronisation is the same in every run of a CTA: docs/orders.md has the argument.
 *
 * An event is known to a warp if it lies before what the warp does now, by the clocks of shadow.c. Lanes of a warp
 * count as one. For each mbarrier the events of three phases are kept: the one at work and the two before it.
 *   - what counts in phase n knows all that counted in phase n - 1, else it may count there;
 *   - who waits for phase n - 1 knows all that counted in phase n - 2, else the wait may return too early;
 *   - and something that counts in phase n knows that wait, else the phase may complete and the wait misses its parity;
 *   - an arrival of phase n knows each expect_tx of it, else the phase may complete without the bytes.
 * The first holds at barriers of a part of the CTA, too.
 */
#include "orders.h"
#include "cells.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What a warp did last of its kind; stamp 0: nothing. */
typedef struct order_event {
    uint32_t stamp, instruction;
    int lane;
    bool known; /* to something that the phase waits for */
} order_event;

typedef struct order_phase {
    order_event arrivals[MAX_WARPS];
    order_event landing; /* the last: its stamp is of the engine */
    int landing_warp;
} order_phase;

typedef struct order_barrier {
    order_phase phases[3];        /* phase n at n % 3 */
    order_event waits[MAX_WARPS]; /* for phase n - 1 */
    order_event expects[MAX_WARPS];
} order_barrier;

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
    order_barrier mbarriers[MAX_MBARRIERS];
    named_order barriers[BARRIERS];
    order_event taken[MAX_WARPS]; /* registers, by setmaxnreg.inc */
    unsigned gaps;
    uint8_t *asked; /* by op: it is known what its answer "no" does */
};

/* ---- life ---- */

bool emu_orders_create(machine *m) {
    if (!m->engines || m->code->uses_cluster) return true;
    m->orders = calloc(1, sizeof *m->orders);
    if (m->orders) m->orders->asked = calloc(m->code->op_count + 1, 1);
    return m->orders && m->orders->asked;
}

void emu_orders_start_cta(machine *m) {
    if (!m->orders) return;
    memset(m->orders->barriers, 0, sizeof m->orders->barriers);
    memset(m->orders->taken, 0, sizeof m->orders->taken);
}

void emu_orders_free(machine *m) {
    if (m->orders) free(m->orders->asked);
    free(m->orders);
    m->orders = NULL;
}

/* Sums and the like, whose order does not matter where nobody looks at the results. */
static bool commutes(const op *o) {
    return o->kind == OP_ATOMIC && !o->asks && o->target == ATOMIC_INTEGER && o->detail <= ATOMIC_XOR;
}

unsigned emu_orders_gaps_of(const entry *code, bool checks, bool in_turns, bool explored, bool clusters,
                            bool races_unseen) {
    unsigned gaps = (checks ? 0 : GAP_UNCHECKED) | (in_turns && !explored ? GAP_MEMORY : 0) |
                    (clusters || code->uses_cluster ? GAP_CLUSTERS : 0) | (races_unseen ? GAP_RACES : 0);
    for (size_t i = 0; i < code->op_count; i++) {
        const op *o = &code->ops[i];
        if (!explored && (o->asks || (o->kind == OP_ATOMIC && !commutes(o)))) gaps |= GAP_MEMORY;
        if (explored && o->kind == OP_BULK && o->detail & BULK_REDUCES) gaps |= GAP_MEMORY;
        if (o->kind == OP_CLOCK) gaps |= GAP_TIME;
        if (o->kind == OP_CALL && (o->detail == CALL_MALLOC || o->detail == CALL_FREE)) gaps |= GAP_HEAP;
        if (o->kind == OP_BULK && o->detail & BULK_VALUES) gaps |= GAP_COPIES;
    }
    return gaps;
}

unsigned emu_orders_gaps(const machine *m) {
    return m->orders ? m->orders->gaps : 0;
}

static order_barrier *barrier_of(const machine *m, const mbarrier *bar) {
    return &m->orders->mbarriers[bar - m->mbarriers];
}

static order_phase *phase_of(const machine *m, const mbarrier *bar, uint64_t phase) {
    return &barrier_of(m, bar)->phases[phase % 3];
}

void emu_orders_init(machine *m, const mbarrier *bar) {
    memset(barrier_of(m, bar), 0, sizeof(order_barrier));
}

/* ---- order ---- */

static bool knows(const machine *m, const warp *w, uint32_t other, const order_event *e) {
    if (e->stamp <= m->base || other == (uint32_t)w->index) return true;
    for (int lane = 0; lane < (w->together ? 1 : LANES); lane++) {
        const uint32_t *row = row_of(m, w, lane) + other * LANES;
        if (row_of(m, w, lane)[clock_of_progress(m, other)] >= e->stamp) return true;
        for (int i = 0; i < LANES; i++)
            if (row[i] >= e->stamp) return true;
    }
    return false;
}

static bool knows_landing(const machine *m, const warp *w, const mbarrier *bar, uint32_t stamp) {
    const uint32_t engine = m->warp_count * LANES + emu_landing_of(m, bar) - LANDED_BY;
    for (int lane = 0; lane < (w->together ? 1 : LANES); lane++)
        if (row_of(m, w, lane)[engine] >= stamp) return true;
    return false;
}

/* What counted in a phase and is not known to a warp; NULL where all is. */
static const order_event *unknown_to(const machine *m, const warp *w, const mbarrier *bar, uint64_t phase, int *whose) {
    const order_phase *p = phase_of(m, bar, phase);
    for (uint32_t i = 0; i < m->warp_count; i++) {
        if (!p->arrivals[i].stamp || knows(m, w, i, &p->arrivals[i])) continue;
        *whose = (int)i;
        return &p->arrivals[i];
    }
    *whose = p->landing_warp;
    return p->landing.stamp && !knows_landing(m, w, bar, p->landing.stamp) ? &p->landing : NULL;
}

static int line_of(const machine *m, uint32_t instruction) {
    return emu_place_of(m->code, instruction).ptx_line;
}

static order_event event_of(const machine *m, const warp *w, int lane) {
    return (order_event){w->clock, m->here, lane, false};
}

/* ---- mbarriers ---- */

static void check_phase_before(machine *m, const warp *w, int lane, const mbarrier *bar, const char *what) {
    int whose;
    const order_event *missed = bar->phase ? unknown_to(m, w, bar, bar->phase - 1, &whose) : NULL;
    if (!missed) return;
    emu_report(m, EMU_PHASE_OVERRUN, missed->instruction, w, lane, whose * LANES + missed->lane, bar->address,
               "This %s counts in phase %" PRIu64
               " of the mbarrier at 0x%x. In another order it counts in phase %" PRIu64
               ": nothing makes this warp wait for what warp %d brings to that one.\n"
               "It is seen where warp %d is delayed before the other instruction: ptxrun --delay %d@%d.\n"
               "Let this warp wait for phase %" PRIu64 " first.",
               what, bar->phase, bar->address, bar->phase - 1, whose, whose, whose, line_of(m, missed->instruction),
               bar->phase - 1);
}

/* The waits of the phase at work that a warp knows cannot be overrun. */
static void mark_waits(machine *m, const warp *w, const mbarrier *bar) {
    order_event *waits = barrier_of(m, bar)->waits;
    for (uint32_t i = 0; i < m->warp_count; i++)
        if (waits[i].stamp && !waits[i].known) waits[i].known = knows(m, w, i, &waits[i]);
}

static void mark_expects(machine *m, const warp *w, const mbarrier *bar) {
    order_event *expects = barrier_of(m, bar)->expects;
    for (uint32_t i = 0; i < m->warp_count; i++)
        if (expects[i].stamp && !expects[i].known) expects[i].known = knows(m, w, i, &expects[i]);
}

void emu_orders_arrive(machine *m, const warp *w, int lane, const mbarrier *bar, bool relaxed) {
    order_event *last = &phase_of(m, bar, bar->phase)->arrivals[w->index];
    if (relaxed) m->orders->gaps |= GAP_RELAXED;
    if (last->stamp == w->clock && last->instruction == m->here) return; /* another lane */
    if (!relaxed) check_phase_before(m, w, lane, bar, "arrival");
    mark_waits(m, w, bar);
    mark_expects(m, w, bar);
    *last = event_of(m, w, lane);
}

void emu_orders_expect(machine *m, const warp *w, int lane, const mbarrier *bar, bool arrives) {
    if (arrives) return; /* it counts as that does */
    check_phase_before(m, w, lane, bar, "expect_tx");
    barrier_of(m, bar)->expects[w->index] = event_of(m, w, lane);
}

void emu_orders_issue(machine *m, const warp *w, int lane, const mbarrier *bar, bool arrives) {
    check_phase_before(m, w, lane, bar, arrives ? "arrival behind copies" : "copy");
    mark_waits(m, w, bar);
    if (arrives) mark_expects(m, w, bar);
    if (bar - m->mbarriers >= LANDINGS) m->orders->gaps |= GAP_MBARRIERS;
}

void emu_orders_land(machine *m, const mbarrier *bar, uint32_t instruction, int warp, int lane) {
    order_phase *p = phase_of(m, bar, bar->phase);
    const uint32_t stamp = bar->arriving[m->warp_count * LANES + emu_landing_of(m, bar) - LANDED_BY];
    p->landing = (order_event){stamp, instruction, lane, false};
    p->landing_warp = warp;
}

static void report_overrun(machine *m, const mbarrier *bar, uint32_t warp, const order_event *wait) {
    const uint32_t last = m->here;
    char waits[64] = "the one before phase 0, which counts as complete,";
    if (bar->phase) snprintf(waits, sizeof waits, "phase %" PRIu64, bar->phase - 1);
    m->here = wait->instruction;
    emu_report(m, EMU_PHASE_OVERRUN, last, &m->warps[warp], wait->lane, -1, bar->address,
               "This wait is for %s of the mbarrier at 0x%x. In another order phase %" PRIu64
               " completes before it: nothing that phase %" PRIu64 " waits for waits for this warp. The parity is the "
               "same for both then, and the warp sleeps on.\n"
               "It is seen where warp %u is delayed before this wait: ptxrun --delay %u@%d.\n"
               "Let the warp arrive where the threads that arrive at this mbarrier wait.",
               waits, bar->address, bar->phase, bar->phase, warp, warp, line_of(m, wait->instruction));
    m->here = last;
}

static void report_late_expect(machine *m, const mbarrier *bar, uint32_t warp, const order_event *expect) {
    const uint32_t last = m->here;
    m->here = expect->instruction;
    emu_report(m, EMU_ORDER_DEPENDENT, last, &m->warps[warp], expect->lane, -1, bar->address,
               "This expect_tx announces bytes of phase %" PRIu64
               " of the mbarrier at 0x%x. In another order that phase "
               "completes before it, without them: no arrival of the phase comes behind it.\n"
               "It is seen where warp %u is delayed before this instruction: ptxrun --delay %u@%d.\n"
               "Let the thread that announces arrive too: mbarrier.arrive.expect_tx.",
               bar->phase, bar->address, warp, warp, line_of(m, expect->instruction));
    m->here = last;
}

void emu_orders_complete(machine *m, const mbarrier *bar) {
    order_barrier *its = barrier_of(m, bar);
    for (uint32_t i = 0; i < m->warp_count; i++) {
        if (its->waits[i].stamp && !its->waits[i].known) report_overrun(m, bar, i, &its->waits[i]);
        if (its->expects[i].stamp && !its->expects[i].known) report_late_expect(m, bar, i, &its->expects[i]);
    }
    memset(its->waits, 0, sizeof its->waits);
    memset(its->expects, 0, sizeof its->expects);
    memset(phase_of(m, bar, bar->phase + 1), 0, sizeof(order_phase));
}

void emu_orders_wait(machine *m, const warp *w, int lane, const mbarrier *bar) {
    int whose;
    const order_event *missed = bar->phase > 1 ? unknown_to(m, w, bar, bar->phase - 2, &whose) : NULL;
    barrier_of(m, bar)->waits[w->index] = event_of(m, w, lane);
    if (!missed) return;
    emu_report(m, EMU_PHASE_OVERRUN, missed->instruction, w, lane, whose * LANES + missed->lane, bar->address,
               "This wait is for phase %" PRIu64
               " of the mbarrier at 0x%x. In another order it returns before that phase "
               "is complete: phase %" PRIu64 " need not be complete as the wait begins, and then the parity is that of "
               "the phase before.\n"
               "It is seen where warp %d is delayed before the other instruction: ptxrun --delay %d@%d.\n"
               "Let this warp wait for each phase in turn.",
               bar->phase - 1, bar->address, bar->phase - 2, whose, whose, line_of(m, missed->instruction));
}

/* ---- what an answer "no" does ---- */

enum { MOST_STEPS = 64 };

/* Goes on as a copy of a warp would until it is back at the op, or comes to one that does not work on registers alone;
 * false where that is so. */
static bool leads_back(const machine *m, warp *w, int32_t to, register_step *step) {
    for (int i = 0; i < MOST_STEPS; i++) {
        if (w->pc == to) return true;
        if (!step(m, w)) return false;
    }
    return false;
}

static bool same_state(const machine *m, const warp *a, const warp *b) {
    return a->pc == b->pc && a->active == b->active && same_registers(m->code, a, b);
}

static warp copy_warp(const machine *m, const warp *w, uint32_t *file) {
    warp copy = *w;
    copy.file = file;
    copy.predicates = file + (size_t)m->code->slot_count * LANES;
    copy_registers(m->code, w, &copy);
    return copy;
}

static void answer(warp *w, const op *o, uint32_t mask, bool yes) {
    if (o->p[0] != NO_PREDICATE) w->predicates[o->p[0]] = (w->predicates[o->p[0]] & ~mask) | (yes ? mask : 0);
}

/* Two answers "no" lead back to the op, the second changes no register, and a "yes" behind them does what one at once
 * does. w stands behind the op. */
static bool only_asks_again(const machine *m, const warp *w, const op *o, uint32_t mask, uint32_t *files[4],
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

void emu_orders_ask(machine *m, const warp *w, const op *o, uint32_t mask, register_step *step) {
    const size_t index = (size_t)(o - m->code->ops);
    if (w->split) m->orders->gaps |= GAP_PARTED;
    if (w->split || m->orders->asked[index]) return;
    m->orders->asked[index] = 1;
    const size_t words = register_words(m->code);
    uint32_t *room = aligned_alloc(64, 4 * words * sizeof *room), *files[4];
    for (int i = 0; room && i < 4; i++) files[i] = room + i * words;
    if (!room || !only_asks_again(m, w, o, mask, files, step)) m->orders->gaps |= GAP_POLLS;
    free(room);
}

/* ---- barriers of the CTA ---- */

void emu_orders_barrier(machine *m, const warp *w, int lane, uint32_t id) {
    named_order *its = &m->orders->barriers[id];
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

void emu_orders_release(machine *m, uint32_t id) {
    named_order *its = &m->orders->barriers[id];
    memcpy(its->before, its->now, sizeof its->before);
    memset(its->now, 0, sizeof its->now);
}

/* ---- wgmma ---- */

void emu_orders_product(machine *m, warp *w) {
    m->orders->products[w->index][w->wgmma_issued % PRODUCTS] = (product_issue){w->wgmma_issued, w->clock};
    emu_clock_tick(m, w);
}

void emu_orders_product_wait(machine *m, const warp *w, uint32_t wanted) {
    const uint32_t first = (uint32_t)w->index / 4 * 4;
    for (uint32_t i = first; i < first + 4; i++) {
        const product_issue *its = &m->orders->products[i][(wanted - 1) % PRODUCTS];
        if (its->serial == wanted - 1) emu_clock_learn(m, w, clock_of_progress(m, i), its->stamp);
    }
}

void emu_orders_registers(machine *m, const warp *w, bool more) {
    order_event *taken = m->orders->taken;
    if (w->register_changes > 1) m->orders->gaps |= GAP_REGISTERS;
    for (uint32_t i = 0; i < m->warp_count && !more; i++)
        if (taken[i].stamp && knows(m, w, i, &taken[i])) m->orders->gaps |= GAP_REGISTERS;
    if (more) taken[w->index] = event_of(m, w, 0);
}
