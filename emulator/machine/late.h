/* late.h - what a warp writes later than it says, in a run of an explorer: it has a turn of its own (late.c,
 * explore.c).
 *
 *     if (m->explores) emu_late_reductions(m, w);
 *     for (size_t i = 0; i < m->late_count; i++) emu_late_happens(m, i);
 */
#ifndef FL_EMU_LATE_H
#define FL_EMU_LATE_H

#include "machine.h"

typedef struct byte_range {
    uint64_t address, bytes;
} byte_range;

/* Sums and the like that are the same in any order have one number, 0 where the order matters. */
uint32_t emu_sum_of(const op *o, enum atomic_numbers numbers, uint32_t bytes, bool is_signed);

/* A bulk reduction: it lands at any time until its thread has waited for the whole of it. */
typedef struct late_write {
    uint32_t number; /* of the warp, from 1 on */
    uint32_t sum;
    bulk_copy copy;     /* whose bytes are owned */
    byte_range *ranges; /* in global memory */
    size_t range_count, range_capacity;
} late_write;

/* A warp has issued bulk copies: those that reduce land by a turn. */
void emu_late_reductions(machine *m, warp *w);
/* Whether an op has to wait for what its warp wrote before, which comes later; then the warp does. */
bool emu_late_holds(machine *m, warp *w, const op *o, uint32_t mask);
void emu_late_happens(machine *m, size_t index);
void emu_late_forget(machine *m);

#endif
