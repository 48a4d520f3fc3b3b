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
/* True if warps have only polled for too long: their loops change nothing at all, or only registers, such as a number
 * of polls after which a loop ends. changes, steps: of memory, and warp instructions, so far. */
bool emu_lasts_too_long(struct quiet *q, uint64_t changes, uint64_t steps, cta *const *resident, size_t count);
/* Reports a livelock of a cluster, no warp of which can do anything but poll, if that lasts too long. */
void emu_check_livelock(struct quiet *q, cluster *c);
/* All resident CTAs, whose warps wait or poll; steps: for how long, 0 for ever in this order; waiting: CTAs that are
 * not resident yet. */
void emu_report_livelock(cta *const *resident, size_t count, uint64_t steps, uint64_t waiting);

/* round_robin.c: the clusters of a launch, of which `capacity` are resident, run in turns; or all of them in the order
 * that the explorer chooses. False when out of memory. */
bool emu_run_in_turns(struct crew *c, struct worker *workers, int capacity);
bool emu_run_explored(struct crew *c, struct worker *workers, int count);

/* lookahead.c: what a cluster tells others waits for its turn; false where the launch has ended at a fault, and the
 * cluster must stop. */
bool emu_lookahead_waits(cluster *c);
/* True if a cluster runs before its turn. */
bool emu_lookahead_is_early(cluster *c);

/* ---- delayed.c: accesses that happen after their instruction, in a run of an explorer ---- */

struct delayed_access;

/* A warp has issued bulk copies: those that reduce happen by a transition of their own. */
void emu_delay_reductions(cta *m, warp *w);
/* True if other threads see a store later. Then an access to which its lanes are added; NULL when out of memory. */
bool emu_is_delayed_store(const warp *w, const op *o, uint32_t mask);
struct delayed_access *emu_delay_store(cta *m, warp *w, const op *o);
void emu_delay_store_lane(cta *m, warp *w, struct delayed_access *delayed, int lane, uint64_t address, uint8_t *there,
                          const uint8_t *data);
/* True if a load may read later: another access comes before an op that needs it. Then it does; by lane: its address
 * and bytes, NULL where there are none. */
bool emu_is_delayed_load(const cta *m, const warp *w, const op *o, uint32_t mask);
void emu_delay_load(cta *m, warp *w, const op *o, uint32_t mask, const uint64_t *addresses, uint8_t *const *bytes);
/* A lane's own store to exactly these bytes, by accesses of the warp up to a number, that is not visible to others yet;
 * NULL if there is none. */
const uint8_t *emu_own_delayed(const cta *m, const warp *w, uint32_t until, int lane, uint64_t address, uint32_t bytes);
/* True if an op has to wait for delayed accesses of its warp; then the warp does. */
bool emu_delayed_holds(cta *m, warp *w, const op *o, uint32_t mask);
/* A warp executes an access: note whether it might overtake a load before it in a way that no transition does. */
void emu_note_overtaking(cta *m, warp *w, const op *o, uint32_t mask);
/* A fence other than fence.sc: stores after it become visible after stores before it. */
void emu_delayed_fence(warp *w);
void emu_forget_delayed(cta *m);

/* ---- stale.c: loads that return an earlier value, where m->stale is not NULL ---- */

/* Owned: emu_stale_free(). NULL when out of memory. */
struct stale_values *emu_stale_new(uint64_t seed, bool explored);
void emu_stale_free(struct stale_values *s);
/* A lane is about to write bytes; clock: the warp's at the instruction. */
void emu_stale_write(cta *m, const warp *w, uint32_t clock, int lane, const op *o, uint64_t address,
                     const uint8_t *there, uint32_t bytes);
/* Lanes are about to load: by lane the address, and the bytes, which become others if the lane reads an earlier value;
 * warp.stale has the lanes that read what was there before the launch. */
void emu_stale_load(cta *m, warp *w, const op *o, uint32_t mask, const uint64_t *addresses, uint8_t **bytes);

#endif
