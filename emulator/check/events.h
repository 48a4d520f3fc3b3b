/* events.h - what a CTA does, as the checks see it: machine/ calls these functions, check/ and explore/ have them.
 *
 *     emu_on_fence(m, w, o, mask); // where m->checks is not NULL
 *
 * This header is all that machine/ knows of check/. cta.checks is owned by the checks: emu_checks_create() makes it and
 * emu_checks_free() releases it; it is NULL without checks. A function emu_on_*() reports one event. Call it only with
 * checks, from the thread of the host that runs the CTA, in the order of the events, and with cta.here as the
 * instruction. The checks read the CTA and its warps but change only what is theirs. They report what they find.
 */
#ifndef FL_EMU_EVENTS_H
#define FL_EMU_EVENTS_H

#include "../ptx/program.h"

struct cta;
struct warp;
struct cluster;
struct async_copy;
struct async_arrive;
struct bulk_copy;
struct tensor_job;
struct mbarrier;
struct ignored_list;
struct finding_record;
struct races;
struct race_table;
struct buffer;

/* ---- findings ---- */

/* Report a finding at the instruction that is executed (cta.here), with checks or without. other: index of the
 * counterpart's instruction, UINT32_MAX for none; other_thread: its thread, -1 for none; w NULL and lane -1 where it
 * concerns no warp or lane. Each line of the text is one sentence or more. */
__attribute__((format(printf, 8, 9))) void emu_report(struct cta *m, emu_class class_, uint32_t other,
                                                      const struct warp *w, int lane, int other_thread,
                                                      uint64_t address, const char *format, ...);

/* The findings that a text says not to report, as emu_launch.ignore has it; false with what is wrong in *error. */
bool emu_parse_ignored(const char *text, struct ignored_list *list, emu_error *error);
/* True if a finding at two places, of which the second may be none, is not to be reported. */
bool emu_is_ignored(const struct ignored_list *list, emu_class class_, const emu_location *here,
                    const emu_location *other);
/* True if two findings have one cause: the same class and the same two lines, in a race in either order; of
 * uninitialized values from shared memory the same line that reads them. */
bool emu_same_cause(const entry *code, const struct finding_record *a, const struct finding_record *b);

/* ---- lifecycle ---- */

/* The checks of a CTA, whose warps exist: false when out of memory. They serve one CTA after another: each begins with
 * emu_checks_start(), when its warps have started, and ends with emu_checks_end(). */
bool emu_checks_create(struct cta *m);
void emu_checks_start(struct cta *m);
void emu_checks_end(struct cta *m);
void emu_checks_free(struct cta *m);
/* Bytes that they need for each CTA, at most. */
uint64_t emu_checks_bytes(const entry *code, uint64_t threads, uint64_t shared_bytes);

/* Races in global memory. For a launch; ordered: its CTAs run in turns and may tell each other more than work tiles. */
bool emu_races_create(struct races **made, const entry *code, const emu_launch *launch, const uint32_t cluster[3],
                      bool ordered);
void emu_races_free(struct races *r);
/* True if some memory was not watched, as that would have taken too much. */
bool emu_races_spent(const struct races *r);
/* For the clusters of a worker: NULL when out of memory. */
struct race_table *emu_race_table(struct races *r);
void emu_race_table_free(struct race_table *t);
void emu_races_end_cluster(struct race_table *t);
/* At the end of the launch: races between clusters that nothing orders. m: any CTA. */
void emu_report_grid_races(struct races *r, struct cta *m);

/* Return the bytes of global memory that a launch accessed; NULL if out of memory. Owned: emu_footprint_free(). */
struct emu_footprint *emu_footprint_of(const struct races *r, const emu_device *device, const entry *code);

/* Why a run does not stand for all interleavings, as bits of orders.h: from the program and its launch, and from what a
 * CTA ran. */
unsigned emu_orders_gaps_of(const entry *code, bool checks, bool in_turns, bool explored, bool races_unseen);
unsigned emu_orders_gaps(const struct cta *m);

/* ---- accesses ---- */

/* A lane accesses shared memory of its CTA by an ordinary instruction, before the access happens. A read returns the
 * bytes that are uninitialized, by bit, and STORED_UNDEFINED if some of them were stored so. data: the bytes to be
 * written, which excuse lanes that write the same; NULL: nothing excuses. */
enum { STORED_UNDEFINED = 1 << 16 };
uint32_t emu_on_shared_read(struct cta *m, const struct warp *w, int lane, uint32_t address, uint32_t bytes);
void emu_on_shared_write(struct cta *m, const struct warp *w, int lane, uint32_t address, uint32_t bytes,
                         const void *data);
/* asks: something uses the result. */
void emu_on_shared_atomic(struct cta *m, const struct warp *w, int lane, uint32_t address, uint32_t bytes, bool asks);
/* Any access to shared memory: of `at`, a CTA of the cluster, by an instruction that may order threads (FLAG_ORDERS) or
 * store uninitialized values (warp.undefined_stores). */
uint32_t emu_on_cluster_read(struct cta *m, struct warp *w, int lane, struct cta *at, uint32_t address, uint32_t bytes,
                             const op *o);
void emu_on_cluster_write(struct cta *m, struct warp *w, int lane, struct cta *at, uint32_t address, uint32_t bytes,
                          const op *o, const void *data);
void emu_on_cluster_atomic(struct cta *m, struct warp *w, int lane, struct cta *at, uint32_t address, uint32_t bytes,
                           const op *o);
/* A lane accesses global memory, likewise. o: the instruction, NULL for an ordinary access that no output counts. A
 * read of up to 32 bytes returns those that are uninitialized, by bit. data, there: the bytes to be written, and those
 * that they replace. */
uint32_t emu_on_global_read(struct cta *m, struct warp *w, int lane, uint64_t address, uint32_t bytes, const op *o);
void emu_on_global_write(struct cta *m, struct warp *w, int lane, uint64_t address, uint32_t bytes, const op *o,
                         const uint8_t *data, const uint8_t *there);
void emu_on_global_atomic(struct cta *m, struct warp *w, int lane, uint64_t address, uint32_t bytes, const op *o);
/* Note that lanes from `lane` on, of `lanes`, read the next 128 bytes, `bytes` each. Returns these lanes; 0 where they
 * do not, or each must be looked at alone. */
uint32_t emu_on_lanes_read(struct cta *m, const struct warp *w, int lane, uint32_t lanes, const uint64_t *addresses,
                           uint32_t bytes, const op *o);
/* Note that lanes store `bytes` each to memory that this launch has not accessed. Returns the lanes before the first
 * one that does something else, which are noted. */
typedef uint8_t stored_values[32][16]; /* by lane */
uint32_t emu_on_lanes_write(struct cta *m, const struct warp *w, uint32_t lanes, const uint64_t *addresses,
                            uint32_t bytes, const op *o, stored_values data);
/* A store or an atomic has happened, in all of its lanes. */
void emu_on_access_end(struct cta *m, struct warp *w, const op *o);
/* Start a new epoch of the warp: later accesses happen after its accesses so far. Returns the epoch. */
uint32_t emu_on_epoch(struct cta *m, struct warp *w);

/* explore/stale.c: a warp has synchronized with others in some way; it executes a fence of threads. */
void emu_stale_synced(const struct cta *m, struct warp *w);
void emu_stale_fence(const struct cta *m, struct warp *w, const op *o);

/* ---- uninitialized values ---- */

/* An op is about to run in a warp that has uninitialized registers (warp.undefined_count); mask may be 0. */
void emu_on_op(struct cta *m, struct warp *w, const op *o, uint32_t mask);
/* Lanes of a register got an uninitialized value from an address in shared memory, or in a buffer; stored: somebody
 * stored it so. */
void emu_on_undefined_load(struct cta *m, struct warp *w, unsigned slot, uint32_t lanes, uint64_t address, bool stored);
/* Lanes have got, by a shuffle, the register of a lane that does not take part in it. */
void emu_on_undefined_shuffle(struct cta *m, struct warp *w, unsigned slot, uint32_t lanes);
/* A launch ends: what it has written is written. Without checks nobody has noted it, so that all memory counts so. */
void emu_written_end_launch(emu_device *device, bool checks);
/* A buffer is freed. */
void emu_written_free(struct buffer *b);
void emu_touches_free(struct buffer *b);
/* A buffer is new on a device whose touches are watched. False when out of memory. */
bool emu_watch_buffer(struct buffer *b);
/* Lanes enter a function: registers that it may read before it writes them are uninitialized. */
void emu_on_call(const entry *code, struct warp *w, const routine *to, uint32_t mask);
/* Uninitialized registers of a recursive function: a word for each slot and each predicate. */
void emu_save_undefined(const entry *code, const struct warp *w, const routine *of, uint32_t *saved);
void emu_restore_undefined(const entry *code, struct warp *w, const routine *of, const uint32_t *saved, uint32_t mask);

/* ---- cp.async ---- */

/* A lane issues a copy to shared memory at `target`, of which `taken` bytes come from global memory, where the host has
 * them at `from`. noted: emu_on_lanes_read() has noted that it reads them. */
void emu_on_copy_issue(struct cta *m, struct warp *w, int lane, uint32_t target, uint32_t bytes, uint64_t source,
                       const uint8_t *from, uint32_t taken, bool noted);
/* Lanes have waited for copies of their own, which have completed. */
void emu_on_copy_wait(struct cta *m, struct warp *w, uint32_t mask);
/* A lane issues an arrival that comes after its copies so far; then the arrival is due, and the copies are about to
 * complete; then it counts. bar: NULL where there is no mbarrier any more. The second returns what completed them. */
void emu_on_copy_arrive_issue(struct cta *m, struct warp *w, int lane, const struct mbarrier *bar);
unsigned emu_on_copies_complete(struct cta *m, const struct warp *w, struct mbarrier *bar,
                                const struct async_arrive *arrive);
void emu_on_copy_arrive(struct cta *m, const struct warp *w, struct mbarrier *bar, const struct async_arrive *arrive);
/* A copy has completed. stamp: the epoch in which its thread, or an arrival, made it visible; by: what
 * emu_on_copies_complete() returned, 0 for a wait. */
void emu_on_copy_complete(struct cta *m, const struct warp *w, const struct async_copy *copy, uint32_t stamp,
                          unsigned by);

/* ---- bulk copies, st.async and red.async ---- */

/* A copy to shared memory is about to be issued, and its bytes count at an mbarrier of copy->counts_at. */
void emu_on_bulk_count(struct cta *m, struct warp *w, const struct bulk_copy *copy, struct mbarrier *bar);
/* A copy is issued. */
void emu_on_bulk_issue(struct cta *m, struct warp *w, const struct bulk_copy *copy);
/* A copy to shared memory has completed; bar: NULL where its mbarrier is gone. Its bytes do not count yet. */
void emu_on_bulk_complete(struct cta *m, const struct bulk_copy *copy, struct mbarrier *bar);
/* A copy to global memory has read its source; and a thread has waited until such copies are visible. */
void emu_on_bulk_store_read(struct cta *m, const struct bulk_copy *copy);
void emu_on_bulk_store_wait(struct cta *m, struct warp *w, const op *o, uint32_t mask);

/* ---- mbarriers ---- */

/* A lane uses an mbarrier of `at`, a CTA of the cluster. */
void emu_on_mbarrier_use(struct cta *m, struct warp *w, int lane, struct cta *at, uint32_t address);
/* A lane has initialized it. */
void emu_on_mbarrier_init(struct cta *m, const struct warp *w, int lane, struct mbarrier *bar);
/* An arrival is about to count, at an mbarrier of `at`. */
void emu_on_mbarrier_arrive(struct cta *m, const struct warp *w, int lane, struct cta *at, struct mbarrier *bar,
                            bool relaxed);
/* An expect_tx or a complete_tx without an arrival, likewise. */
void emu_on_mbarrier_bytes(struct cta *m, const struct warp *w, int lane, struct cta *at, const struct mbarrier *bar,
                           bool completes);
/* A phase is complete, and the next one has not begun. */
void emu_on_phase(struct cta *m, struct mbarrier *bar);
/* A wait is about to ask. step: the next op of a copy of the warp, false where it does not work on registers only. */
typedef bool register_step(struct cta *m, struct warp *copy);
void emu_on_mbarrier_ask(struct cta *m, const struct warp *w, const op *o, uint32_t mask, register_step *step);
/* Lanes see that the phase of bars[lane] is complete; bars[lane] may be NULL. */
void emu_on_mbarrier_wait(struct cta *m, struct warp *w, uint32_t lanes, struct mbarrier *const *bars, bool relaxed);

/* ---- barriers and fences ---- */

void emu_on_warp_barrier(struct cta *m, struct warp *w, uint32_t mask);
/* A warp comes to a barrier of the CTA, waits: not by bar.arrive; and the barrier completes, before those that wait
 * continue. */
void emu_on_barrier_arrive(struct cta *m, struct warp *w, uint32_t mask, uint32_t id, bool waits);
void emu_on_barrier_complete(struct cta *m, uint32_t id);
/* The barrier of the cluster. */
void emu_on_cluster_arrive(struct cta *m, struct warp *w, uint32_t mask, bool relaxed);
void emu_on_cluster_complete(struct cluster *c);
void emu_on_cluster_wait(struct cta *m, struct warp *w, uint32_t mask);
/* fence and membar; fence.proxy.async of some memory (FENCED_…); fence.mbarrier_init. */
void emu_on_fence(struct cta *m, struct warp *w, const op *o, uint32_t mask);
void emu_on_proxy_fence(struct cta *m, struct warp *w, uint32_t mask, unsigned memory);
void emu_on_init_fence(struct cta *m, struct warp *w, uint32_t mask);
/* A lane executes fence.proxy.tensormap with .acquire for a tensor map, or starts a copy that uses it. */
void emu_on_map_fence(struct cta *m, struct warp *w, int lane, uint64_t address);
void emu_on_map_use(struct cta *m, struct warp *w, int lane, uint64_t address);
/* griddepcontrol.wait. */
void emu_on_grid_wait(struct cta *m, struct warp *w, uint32_t mask);
/* A CTA of a cluster has ended, and others of the cluster may run on. */
void emu_on_exit(struct cta *m);

/* ---- warpgroups ---- */

/* Who wrote what a wgmma reads, as the first warp of the four found it: warps that wrote, and when. The other warps
 * need not look at each chunk as long as nothing else is written. */
enum { MAX_WRITERS = 16 };
typedef struct product_writers {
    uint32_t count; /* MAX_WRITERS + 1: too many, or some are unordered */
    uint64_t writes;
    struct {
        uint32_t warp, time, landing;
    } of[MAX_WRITERS];
} product_writers;

/* A wgmma reads chunks of 16 bytes of shared memory at any time between two events, of which the second ends `reads`
 * of them. Before the first, *writers is empty. */
void emu_on_product_read(struct cta *m, const struct warp *w, const uint32_t *addresses, uint32_t count,
                         product_writers *writers);
/* True if a warp may read what another one has read: then its own look at the chunks would find nothing. */
bool emu_on_product_read_again(struct cta *m, const struct warp *w, const product_writers *writers);
void emu_on_product_read_end(struct cta *m, const struct warp *w, const uint32_t *addresses, uint32_t count,
                             uint32_t reads);
/* A warp issues its part of a wgmma. */
void emu_on_product_issue(struct cta *m, struct warp *w);
/* It knows that a warp has seen the end of the reads of a product, in an epoch of that warp. */
void emu_on_product_known(struct cta *m, const struct warp *w, uint32_t reader, uint32_t stamp);
/* It has waited for `count` products, up to number `wanted`. */
void emu_on_product_wait(struct cta *m, struct warp *w, uint32_t count, uint32_t wanted, uint32_t mask);
/* ---- tensor memory ---- */

/* A warp loads or stores at an address; it has waited for its loads or for its stores; it has executed a tcgen05.fence.
 * An op reads or writes registers of loads that nothing has waited for. */
void emu_on_tensor_access(struct cta *m, struct warp *w, const op *o, uint32_t address);
void emu_on_tensor_wait(struct cta *m, struct warp *w, bool stores, uint32_t mask);
void emu_on_tensor_fence(struct cta *m, struct warp *w, bool after);
void emu_on_tensor_registers(struct cta *m, struct warp *w, const op *o);
/* Columns are about to be freed. */
void emu_on_tensor_dealloc(struct cta *m, struct warp *w, int lane, uint32_t first, uint32_t columns);
/* A job of the tensor core is issued, and it is done. */
void emu_on_tensor_issue(struct cta *m, struct warp *w, const struct tensor_job *job);
void emu_on_tensor_done(struct cta *m, const struct tensor_job *job);
/* A commit is issued: what its thread knows, owned. Then it is about to count at an mbarrier of `at`. */
uint32_t *emu_on_tensor_commit(struct cta *m, struct warp *w, const struct tensor_job *job);
void emu_on_tensor_arrive(struct cta *m, const struct tensor_job *job, struct cta *at, struct mbarrier *bar);

/* A setmaxnreg takes more registers, or gives some back. */
void emu_on_registers(struct cta *m, const struct warp *w, bool more);

#endif
