/* explore.h - one launch in every order of its accesses to flags and counters that can matter (explore.c).
 *
 *     explorer *x = emu_explorer_new();
 *     do emu_explorer_run(x, ctas, count); // from the same memory each time
 *     while (emu_explorer_next(x));
 */
#ifndef FL_EMU_EXPLORE_H
#define FL_EMU_EXPLORE_H

#include "machine.h"

/* Of one launch, over its runs. Owned: emu_explorer_free(). NULL when out of memory. */
explorer *emu_explorer_new(void);
void emu_explorer_free(explorer *x);
/* The CTAs of a run, all resident, run to their end in the order that is next. False when out of memory. */
bool emu_explorer_run(explorer *x, machine **ctas, size_t count);
/* What became of that run: it was left as another one stands for it; it had more accesses than are followed. */
bool emu_explorer_ended(const explorer *x); /* neither of the two */
bool emu_explorer_spent(const explorer *x);
/* Choose the order of the next run; false where there is none left. */
bool emu_explorer_next(explorer *x);
/* Orders that are known and have not run. */
uint64_t emu_explorer_pending(const explorer *x);
/* The next run is the first one again. */
void emu_explorer_restart(explorer *x);
/* What the last run did otherwise than the one before: the access that went first, and in whose place. */
void emu_explorer_describe(const explorer *x, const entry *code, char *out, size_t bytes);

#endif
