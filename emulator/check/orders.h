/* orders.h - what keeps a run from standing for all orders: orders.c finds it, print.c says it.
 *
 *     if (gaps & GAP_HEAP) puts("malloc");
 *
 * Why a run stands for all orders, by the rules of docs/internals.md. Take any point of another run, and say that what
 * was done until then is a part D of the same events, closed under →. The warp or copy that is next has done and read
 * the same, as there is no race, and does the same instruction. At an mbarrier the state is a function of D: by rule 1
 * something of phase n is in D only if all of phase n − 1 is, and within a phase sums do not ask for the order. By
 * rule 4 the arrivals are complete only when all bytes are announced: these are 0 if and only if all have landed. A
 * wait returns if phase n − 1 is complete and only then: rule 3 says that at least n − 1 phases are, rule 2 that phase
 * n is not, and the parity tells the rest. So D with the event is again such a part. If D is not all, a first event
 * that is missing can happen: no deadlock. Accesses that → orders in one run are ordered in each: no race.
 */
#ifndef FL_EMU_ORDERS_H
#define FL_EMU_ORDERS_H

#include "checks.h"

/* Unverified cases, by bit. */
enum order_gap {
    GAP_UNCHECKED = 1,  /* the checks are off */
    GAP_MEMORY = 2,     /* flags, counters and sums in memory */
    GAP_POLLS = 4,      /* a wait whose answer "no" does more than ask again */
    GAP_RELAXED = 8,    /* arrivals that order nothing */
    GAP_MBARRIERS = 16, /* more mbarriers of copies than there are clocks */
    GAP_COPIES = 32,    /* st.async and red.async */
    GAP_REGISTERS = 64, /* registers that go from warp to warp more than once */
    GAP_TIME = 128,     /* the program reads a clock */
    GAP_HEAP = 256,     /* malloc */
    GAP_RACES = 512,    /* races in global memory went unseen */
    GAP_PARTED = 1024,  /* lanes of a warp that wait apart */
    GAP_LOADS = 2048    /* loads that accesses behind them may overtake */
};

/* Events for orders.c, before the clocks of the warp change. Call it only where checks.orders is not NULL. */

/* For a CTA with clocks; false when out of memory. */
bool emu_orders_create(cta *m);
void emu_orders_start_cta(cta *m);
void emu_orders_free(cta *m);
/* An mbarrier begins. */
void emu_orders_init(cta *m, const mbarrier *bar);
/* An arrival, or complete_tx, at an mbarrier of a CTA of the cluster. */
void emu_orders_arrive(cta *m, const warp *w, int lane, cta *at, const mbarrier *bar, bool relaxed);
/* An expect_tx, without an arrival that comes with it. */
void emu_orders_expect(cta *m, const warp *w, int lane, cta *at, const mbarrier *bar);
/* A copy is issued that counts at the mbarrier, or an arrival that comes behind copies; and it lands, in `at`. */
void emu_orders_issue(cta *m, const warp *w, int lane, cta *at, const mbarrier *bar, bool arrives);
void emu_orders_land(cta *m, const warp *w, int lane, cta *at, const mbarrier *bar, uint32_t instruction);
/* A phase is complete, and the next one has not begun. */
void emu_orders_complete(cta *m, const mbarrier *bar);
/* A wait that is about to return, and one that may be answered no: what the program does then is tried on copies of the
 * warp, op by op. A step is false where the op does not work on registers alone. */
void emu_orders_wait(cta *m, const warp *w, int lane, const mbarrier *bar);
void emu_orders_ask(cta *m, const warp *w, const op *o, uint32_t mask, register_step *step);
/* A warp comes to a barrier of the CTA, and those that wait there go on. */
void emu_orders_barrier(cta *m, const warp *w, int lane, uint32_t id);
void emu_orders_release(cta *m, uint32_t id);
/* A warp issues its part of a wgmma; one that has waited for the whole knows that the others have come so far. */
void emu_orders_product(cta *m, warp *w);
void emu_orders_product_wait(cta *m, const warp *w, uint32_t wanted);
/* setmaxnreg */
void emu_orders_registers(cta *m, const warp *w, bool more);

#endif
