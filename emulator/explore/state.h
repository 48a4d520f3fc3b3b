/* state.h - whether two runs of a CTA that wait for a work tile go on alike: see state.c.
 *
 *     if (emu_state(m, first, kept, &live) == before) puts("both do the same with the same work tile");
 */
#ifndef FL_EMU_STATE_H
#define FL_EMU_STATE_H

#include "../check/checks.h"

/* check/live.c: by op the registers that may be read from there on, bits for slots and then for predicates. Owned:
 * free(sets), which is NULL when out of memory. */
typedef struct live_sets {
    uint64_t *sets;
    size_t words; /* of each */
} live_sets;
live_sets emu_find_live(const entry *code);
/* check/state.c: what a CTA remembers that waits for a turn, as a number: two runs of it with the same one go on alike.
 * first: its time as it came to its first turn; kept: by cell of shared memory, whether what is there counts. 0: this
 * cannot be said. */
uint64_t emu_state(const cta *m, uint32_t first, const bool *kept, const live_sets *live);
/* Progress of its warps and mbarriers. */
uint64_t emu_waits(const cta *m);

#endif
