/* explore.h - one launch in every order of its accesses to flags and counters that can matter (explore.c).
 *
 *     explorer *x = emu_explorer_new();
 *     do emu_explorer_run(x, ctas, count); // from the same memory each time
 *     while (emu_explorer_next(x));
 */
#ifndef FL_EMU_EXPLORE_H
#define FL_EMU_EXPLORE_H

#include "../machine/machine.h"

/* State of one launch over its runs. Owned: emu_explorer_free(). NULL when out of memory. */
explorer *emu_explorer_new(void);
void emu_explorer_free(explorer *x);
/* The CTAs of a run, all resident, run to their end in the order that is next. False when out of memory. */
bool emu_explorer_run(explorer *x, cta **ctas, size_t count);
/* Outcome of that run: it was abandoned because another one represents it; it had more accesses than are followed. */
bool emu_explorer_ended(const explorer *x); /* neither of the two */
bool emu_explorer_spent(const explorer *x);
/* Some load of that run returned an earlier value: it is in no class of orders. */
bool emu_explorer_read_earlier(const explorer *x);
/* The launch's CTAs share only tickets. */
void emu_explorer_note_draws(explorer *x, bool only_draws);
/* After the first run: whether CTAs share a counter alone, and draw in very many ways. Then the next runs are those
 * that tile_counter.h plans, until they are left; then it returns to the classes after the first run. */
bool emu_explorer_use_tickets(explorer *x, uint64_t ctas);
void emu_explorer_leave_tickets(explorer *x);
bool emu_explorer_plan(explorer *x);
const struct tickets *emu_explorer_tickets(const explorer *x);
/* Choose the order of the next run; false where there is none left, or no memory. */
bool emu_explorer_next(explorer *x);
bool emu_explorer_failed(const explorer *x);
/* Orders that are known and have not run. */
uint64_t emu_explorer_pending(const explorer *x);
/* The next run is the first one again. */
void emu_explorer_restart(explorer *x);
/* From the next run on copies of the process run what departs from it (copies.h), where the system has them. Results
 * continue in memory that they share; NULL if there are none. */
void emu_explorer_use_copies(explorer *x, const emu_exploration *seen);
emu_exploration *emu_explorer_shared(const explorer *x);
/* True if this is a copy, whose run has ended: it ends by the next call. stops: no other run is wanted. gaps: of any
 * run so far. */
bool emu_explorer_is_copy(const explorer *x);
void emu_explorer_end_copy(explorer *x, bool stops, bool failed, uint32_t gaps);
/* True if copies have run what was left. Then their memory is given back, and the next run is the one that stopped the
 * others, or the first. False where a copy could not be made: what was seen is not all. */
bool emu_explorer_explored(const explorer *x);
bool emu_explorer_leave_copies(explorer *x, emu_exploration *seen, uint32_t *gaps);
/* Difference between the last run and the one before: the access that went first, and the one that it replaced. */
void emu_explorer_describe(const explorer *x, const entry *code, char *out, size_t bytes);

#endif
