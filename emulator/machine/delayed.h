/* delayed.h - what comes later than its instruction, in a run of an explorer: it has a turn of its own (delayed.c,
 * explore.c).
 *
 *     if (m->explores) emu_late_reductions(m, w); // then m->late has them, and each has a turn
 */
#ifndef FL_EMU_DELAYED_H
#define FL_EMU_DELAYED_H

#include "machine.h"

typedef struct byte_range {
    uint64_t address, bytes;
} byte_range;

/* Sums and the like that are the same in any order have one number, 0 where the order matters. */
uint32_t emu_sum_of(const op *o, enum atomic_numbers numbers, uint32_t bytes, bool is_signed);

/* A bulk reduction, which lands at any time until its thread has waited for the whole of it; a store to global memory
 * that is volatile, relaxed or a release, which other threads see at any time until a fence.sc of its thread; or a load
 * from there that is volatile or relaxed, which reads at any time until a fence, or an op that needs what it reads. */
typedef struct late_access {
    uint32_t number, instruction; /* number: of the warp, from 1 on */
    int warp;
    uint32_t sum;
    byte_range *ranges; /* in global memory */
    size_t range_count, range_capacity;
    bulk_copy copy;  /* of a reduction, else without one; its bytes are owned */
    uint32_t fences; /* of a store: those of the warp before it */
    bool releases;
    const op *loads; /* of a load, else NULL */
    unsigned order;
    uint32_t lanes, bytes;
    uint64_t at[LANES];
    uint8_t *there[LANES], data[LANES][16];
    struct knowledge *told[LANES]; /* see explore/happens_before.c */
} late_access;

/* A warp has issued bulk copies: those that reduce land by a turn. */
void emu_late_reductions(cta *m, warp *w);
/* Whether other threads see a store later; then a new write, to which lanes are added. NULL when out of memory. */
bool emu_is_late_store(const warp *w, const op *o, uint32_t mask);
late_access *emu_late_store(cta *m, warp *w, const op *o);
void emu_late_add_lane(cta *m, late_access *late, int lane, uint64_t address, uint8_t *there, const uint8_t *data);
/* Whether a load may read later: another access comes before an op that needs it. Then as for a store. */
bool emu_is_late_load(const cta *m, const warp *w, const op *o, uint32_t mask);
late_access *emu_late_load(cta *m, warp *w, const op *o);
/* Whether an op reads or writes a register that a load under way will write. */
bool emu_late_concerns(const cta *m, const warp *w, const op *o);
/* What a lane stored itself at these very bytes, by the warp's accesses up to a number, and others do not see yet; NULL
 * for nothing. */
const uint8_t *emu_late_own(const cta *m, const warp *w, uint32_t until, int lane, uint64_t address, uint32_t bytes);
/* Whether an op has to wait for what its warp did before, which comes later; then the warp does. */
bool emu_late_holds(cta *m, warp *w, const op *o, uint32_t mask);
/* A warp executes an access: whether it might come before a load that was before it, which no turn here does. */
void emu_late_note(cta *m, warp *w, const op *o, uint32_t mask);
/* A fence other than fence.sc: what is stored behind it comes behind what was stored before. */
void emu_late_fence(warp *w);
/* Whether it can come now: what must come before has. */
bool emu_late_is_due(const cta *m, const late_access *late);
/* It has come: those that wait for it look again. */
void emu_late_remove(cta *m, size_t index);
void emu_late_forget(cta *m);

#endif
