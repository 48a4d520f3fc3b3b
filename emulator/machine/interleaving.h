/* interleaving.h - which warp, CTA or delayed access goes next: machine/ calls these functions, explore/ has them.
 *
 *     while (emu_run_turn(c, false) != TURN_ENDED) puts("its warps poll");
 *
 * A launch whose CTAs do not communicate runs each cluster to its end. The CTAs of any other one run in turns. A run of
 * an explorer (cta.explores) stops each access that can tell a thread what another did until the explorer chooses it.
 */
#ifndef FL_EMU_INTERLEAVING_H
#define FL_EMU_INTERLEAVING_H

#include "machine.h"

struct crew;
struct worker;
struct quiet;

/* schedule.c: warps of a cluster run until one of these is the case; may_pause: let other clusters run between. */
cta_turn emu_run_turn(cluster *c, bool may_pause);
/* Whether warps that only poll have polled for too long: their loops change nothing at all, or only registers, such as
 * a number of polls after which a loop ends. changes, steps: of memory, and warp instructions, so far. */
bool emu_lasts_too_long(struct quiet *q, uint64_t changes, uint64_t steps, cta *const *resident, size_t count);
/* All resident CTAs, whose warps wait or poll; steps: for how long, 0 for ever in this order; waiting: CTAs that are
 * not resident yet. */
void emu_report_livelock(cta *const *resident, size_t count, uint64_t steps, uint64_t waiting);

/* round_robin.c: the clusters of a launch, of which `capacity` are resident, run in turns; or all of them in the order
 * that the explorer chooses. False when out of memory. */
bool emu_run_in_turns(struct crew *c, struct worker *workers, int capacity);
bool emu_run_explored(struct crew *c, struct worker *workers, int count);

/* lookahead.c: an atomic of a cluster waits for its turn; false where the launch has ended at a fault, and the cluster
 * must stop. */
bool emu_lookahead_waits(cluster *c);

/* ---- delayed.c: what happens after its instruction, in a run of an explorer ---- */

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
