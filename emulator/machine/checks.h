/* checks.h - what the machine tells the checks: machine/ calls these functions, check/ has them.
 *
 *     if (m->checks) emu_shadow_read(m, w, lane, address, bytes);
 *     emu_report(m, EMU_TRAP, UINT32_MAX, w, lane, -1, 0, "The program stops itself here: trap.");
 *
 * The checks see the whole machine, but change only what machine.h lists under "checks".
 */
#ifndef FL_EMU_CHECKS_H
#define FL_EMU_CHECKS_H

#include "machine.h"

/* A finding at the instruction that is executed (m->here). other: index of the counterpart's instruction, UINT32_MAX
 * for none; other_thread: its thread, -1 for none; w NULL and lane -1 where it is about no warp or lane. The sentences
 * stand in lines of their own. */
__attribute__((format(printf, 8, 9))) void emu_report(cta *m, emu_class class_, uint32_t other, const warp *w, int lane,
                                                      int other_thread, uint64_t address, const char *format, ...);

/* The findings that a text says not to report, as emu_launch.ignore has it; false with what is wrong in *error. */
bool emu_parse_ignored(const char *text, ignored_list *list, emu_error *error);
/* Whether a finding at two places, of which the second may be none, is not to be reported. */
bool emu_is_ignored(const ignored_list *list, emu_class class_, const emu_place *here, const emu_place *other);

/* Whether two findings have one cause: the same class and the same two lines, in a race in either order; of undefined
 * values from shared memory the same line that reads them. */
bool emu_same_cause(const entry *code, const finding_record *a, const finding_record *b);

/* Every function below is called with checks on only. address is that of shared memory. */
bool emu_shadow_create(cta *m);
void emu_shadow_start_cta(cta *m);
void emu_shadow_free(cta *m);
/* The bytes that are undefined, by bit, where there are any. */
enum { STORED_UNDEFINED = 1 << 16 }; /* some of them were stored so */
uint32_t emu_shadow_read(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes);
/* After a write: its value was one that nothing gave. */
void emu_shadow_undefined(cta *m, uint32_t address, uint32_t bytes);
/* undefined.c */
void emu_start_undefined(cta *m, warp *w);
/* Lanes enter a function: registers that it may read before it writes them are undefined. */
void emu_enter_undefined(const entry *code, warp *w, const routine *to, uint32_t mask);
/* What is undefined in the registers of a function that calls itself: a word for each slot and each predicate. */
void emu_save_undefined(const entry *code, const warp *w, const routine *of, uint32_t *saved);
void emu_restore_undefined(const entry *code, warp *w, const routine *of, const uint32_t *saved, uint32_t mask);
void emu_note_undefined(cta *m, warp *w, unsigned slot, uint32_t lanes, uint32_t address, bool stored);
/* Before an op runs, of a warp with undefined values; mask may be 0. */
void emu_follow_undefined(cta *m, warp *w, const op *o, uint32_t mask);
/* data: the bytes to be written, to excuse lanes that write the same; NULL for a write that excuses nothing */
void emu_shadow_write(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes, const void *data);
void emu_shadow_atomic(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes);
void emu_shadow_issue(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes);
/* What landed in a cell: nothing, or a copy without a clock of its own, or one of the engine behind LANDED_BY. */
enum { LANDED_NOTHING, LANDED, LANDED_BY };
void emu_shadow_land(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes, uint32_t stamp,
                     uint32_t instruction, unsigned landing);
/* cp.async land that an mbarrier is told of, by an arrival with a stamp: who waits for the phase knows it. It is what
 * landed in their cells. */
unsigned emu_copies_land(cta *m, const warp *w, mbarrier *bar, const async_arrive *arrive);
/* Lanes have waited for their cp.async themselves. */
void emu_copies_waited(cta *m, warp *w, uint32_t mask);
void emu_engine_lands(cta *m, const warp *w, const bulk_copy *copy, mbarrier *bar);
void emu_clock_full_barrier(cta *m);
void emu_clock_warp_sync(cta *m, warp *w, uint32_t mask);
/* Lanes tell what they know to `clocks`, or learn what stands there. */
void emu_clock_publish(cta *m, const warp *w, uint32_t mask, uint32_t *clocks);
void emu_clock_acquire(cta *m, warp *w, uint32_t mask, const uint32_t *clocks);
uint32_t emu_clock_tick(cta *m, warp *w);
/* All lanes of a warp know what a thread did up to a stamp. */
void emu_clock_learn(cta *m, const warp *w, uint32_t thread, uint32_t stamp);
/* A read by the async proxy, on behalf of a lane: it may happen any time between the two calls. stamp: the clock of the
 * warp that others must know to know that it is done. */
void emu_async_read_begins(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes);
void emu_async_read_ends(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes, uint32_t stamp);
/* Likewise of pieces of 16 bytes, on behalf of lane 0; the end is that of several reads. */
void emu_product_reads_begin(cta *m, const warp *w, const uint32_t *addresses, uint32_t count);
void emu_product_reads_end(cta *m, const warp *w, const uint32_t *addresses, uint32_t count, uint32_t reads);
/* A bulk copy that a lane starts writes what ordinary instructions have read: a proxy fence must lie between. */
void emu_check_async_write(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes);
/* A fence.proxy.async of a thread: the async proxy sees what the thread knows of in a fenced_memory. */
void emu_proxy_fence(cta *m, warp *w, uint32_t mask, unsigned memory);
/* A fence.mbarrier_init of a thread: the async proxy sees the mbarriers that it has initialised. */
void emu_init_fence(cta *m, warp *w, uint32_t mask);
/* A copy that a lane starts counts at an mbarrier: it must see its initialisation. */
void emu_check_init_fence(cta *m, const warp *w, int lane, const mbarrier *bar);

/* check/cluster.c: accesses to the shared memory of another CTA of the cluster, `at`, where address is one of that. */
uint32_t emu_remote_read(cta *m, const warp *w, int lane, cta *at, uint32_t address, uint32_t bytes);
void emu_remote_write(cta *m, const warp *w, int lane, cta *at, uint32_t address, uint32_t bytes);
void emu_remote_atomic(cta *m, const warp *w, int lane, cta *at, uint32_t address, uint32_t bytes);
void emu_remote_issue(cta *m, const warp *w, int lane, cta *at, uint32_t address, uint32_t bytes);
/* A copy has landed that counts at an mbarrier there. */
void emu_remote_land(cta *m, const warp *w, const bulk_copy *copy, mbarrier *bar);
/* A use of an mbarrier there: its init must be visible. */
void emu_remote_mbarrier(cta *m, const warp *w, int lane, cta *at, uint32_t address);
/* Lanes tell what they know to clocks of another CTA; a copy of a thread tells of its stamp alone. */
void emu_remote_publish(cta *m, const warp *w, uint32_t mask, cta *at, uint32_t *clocks);
void emu_remote_tell(const cta *m, const warp *w, const cta *at, uint32_t *clocks, uint32_t stamp);
/* How far warps had come that the thread of a copy knew as it issued it: the mbarrier there completes its phase behind
 * them, though the copy tells nothing of what they did. */
void emu_remote_tell_progress(const cta *m, const warp *w, int lane, const cta *at, uint32_t *clocks);
/* Lanes learn what stands in clocks of another CTA. */
void emu_remote_acquire(cta *m, warp *w, uint32_t mask, const cta *at, const uint32_t *clocks);
/* The barrier of the cluster: an arrival, which if relaxed tells what the last fence released, and a wait. */
void emu_cluster_publish(cta *m, warp *w, uint32_t mask, bool relaxed);
void emu_cluster_acquire(cta *m, warp *w, uint32_t mask);
void emu_cluster_fence(cta *m, warp *w);
/* check/flags.c: for a CTA with its clocks; false when out of memory. */
bool emu_flags_create(cta *m);
void emu_flags_start_cta(cta *m);
void emu_flags_free(cta *m);
/* Accesses that order threads, to the shared memory of a CTA of the cluster, which may be the own one. */
uint32_t emu_flag_read(cta *m, warp *w, int lane, cta *at, uint32_t address, uint32_t bytes, unsigned order);
void emu_flag_write(cta *m, warp *w, int lane, cta *at, uint32_t address, uint32_t bytes, unsigned order);
void emu_flag_atomic(cta *m, warp *w, int lane, cta *at, uint32_t address, uint32_t bytes, unsigned order);
/* A fence of threads; and what fences before released goes to clocks of a CTA, at a relaxed arrival. */
void emu_flag_fence(cta *m, warp *w, uint32_t mask);
void emu_tell_fenced(cta *m, const warp *w, int lane, cta *at, uint32_t *clocks);
/* Lanes that waited .relaxed: they learn what stands in clocks at their next fence. */
void emu_hear(cta *m, const warp *w, uint32_t mask, const uint32_t *clocks);

/* check/global.c: races in global memory. For a launch, */
bool emu_races_create(struct races **made, const entry *code, const emu_launch *launch, const uint32_t cluster[3],
                      bool in_turns);
void emu_races_free(struct races *r);
/* whether some memory was not watched, as that would have taken too much, */
bool emu_races_spent(const struct races *r);
/* for the clusters of a worker, NULL when out of memory, and as one ends. */
struct race_table *emu_race_table(struct races *r);
void emu_race_table_free(struct race_table *t);
void emu_race_table_clear(struct race_table *t);
/* check/grid.c */
void emu_races_end_cluster(struct race_table *t);
void emu_report_grid_races(struct races *r, cta *m);
/* Accesses; order: an access_order. data: the bytes to be written, and those that they replace; NULL where these are
 * not known. */
void emu_global_read(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes, unsigned order);
void emu_global_write(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes, unsigned order,
                      const uint8_t *data, const uint8_t *there);
void emu_global_update(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes, unsigned order);
/* The same of a bulk copy that a thread issues, of elements side by side. A write lasts until the thread has waited for
 * the whole copy; without data it updates what is there. */
void emu_global_copy_read(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes);
void emu_global_write_begins(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes, const uint8_t *data);
void emu_global_write_ends(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes);
void emu_global_proxy_fence(cta *m, unsigned memory);
/* check/orders.c: whether one run stands for all orders of its warps and copies. The machine tells what it does at
 * mbarriers and at barriers of a part of the CTA, before the clocks of the warp change. cta.orders is NULL where
 * there is nothing to look at. */
/* For a CTA with clocks; false when out of memory. */
bool emu_orders_create(cta *m);
void emu_orders_start_cta(cta *m);
void emu_orders_free(cta *m);
/* What keeps it from doing so, by bit: in the program and its launch, and in what a CTA ran. */
unsigned emu_orders_gaps_of(const entry *code, bool checks, bool in_turns, bool explored, bool races_unseen);
unsigned emu_orders_gaps(const cta *m);
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
typedef bool register_step(cta *m, warp *copy);
void emu_orders_ask(cta *m, const warp *w, const op *o, uint32_t mask, register_step *step);
/* A warp comes to a barrier of the CTA, and those that wait there go on. */
void emu_orders_barrier(cta *m, const warp *w, int lane, uint32_t id);
void emu_orders_release(cta *m, uint32_t id);
/* A warp issues its part of a wgmma; one that has waited for the whole knows that the others have come so far. */
void emu_orders_product(cta *m, warp *w);
void emu_orders_product_wait(cta *m, const warp *w, uint32_t wanted);
/* setmaxnreg */
void emu_orders_registers(cta *m, const warp *w, bool more);

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
/* Where its warps stand, and its mbarriers. */
uint64_t emu_waits(const cta *m);

/* explore/happens_before.c: what CTAs know of each other. */
void emu_order_start_cta(cta *m);
void emu_order_free(cta *m);
/* A strong access learns what was told at its address, or tells. */
void emu_global_learn(cta *m, warp *w, int lane, uint64_t address, unsigned order);
void emu_global_tell(cta *m, warp *w, int lane, uint64_t address, unsigned order);
/* The same in two: what a store tells, owned: emu_global_forget(), and that others see it. */
struct knowledge *emu_global_to_tell(cta *m, warp *w, int lane, unsigned order);
void emu_global_told(cta *m, uint64_t address, unsigned order, const struct knowledge *what);
void emu_global_forget(struct knowledge *what);
void emu_global_fence(cta *m, warp *w, uint32_t lanes, unsigned order);
/* A CTA ends: what other CTAs did to its memory must be ordered before that. */
void emu_check_exit(cta *m);

#endif
