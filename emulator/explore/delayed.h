/* delayed.h - accesses that happen after their instruction, in a run of an explorer: each has a transition of its own.
 *
 *     if (emu_delayed_is_due(m, &m->delayed[i])) emu_remove_delayed(m, i); // it has happened
 *
 * interleaving.h has what the machine calls.
 */
#ifndef FL_EMU_DELAYED_H
#define FL_EMU_DELAYED_H

#include "../machine/interleaving.h"

typedef struct byte_range {
    uint64_t address, bytes;
} byte_range;

/* Sums and the like that are the same in any order have one number, 0 where the order matters. */
uint32_t emu_sum_of(const op *o, enum atomic_numbers numbers, uint32_t bytes, bool is_signed);

/* A bulk reduction, which happens at any time until its thread has waited for the whole of it; a store to global memory
 * that is volatile, relaxed or a release, which other threads see at any time until a fence.sc of its thread; or a load
 * from there that is volatile or relaxed, which reads at any time until a fence, or an op that needs what it reads. */
typedef struct delayed_access {
    uint32_t number, instruction; /* number: of the warp, from 1 on */
    int warp;
    uint32_t sum;
    byte_range *ranges; /* in global memory */
    size_t range_count, range_capacity;
    bulk_copy copy;  /* of a reduction, else without one; its bytes are owned */
    uint32_t fences; /* of a store: those of the warp before it */
    bool releases;
    const op *loads;  /* of a load, else NULL */
    const op *stores; /* likewise */
    uint32_t clock;   /* of the warp at the store */
    unsigned order;
    uint32_t lanes, bytes;
    uint64_t at[LANES];
    uint8_t *there[LANES], data[LANES][16];
    struct vector_clock *told[LANES]; /* see explore/happens_before.c */
} delayed_access;

/* True if an op reads or writes a register that a delayed load will write. */
bool emu_delayed_concerns(const cta *m, const warp *w, const op *o);
/* True if it can happen now: what must come before has happened. */
bool emu_delayed_is_due(const cta *m, const struct delayed_access *delayed);
/* It has happened: warps that wait for it look again. */
void emu_remove_delayed(cta *m, size_t index);

#endif
