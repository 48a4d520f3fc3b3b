/* checks.h - what the checks of a CTA keep, and what their sources call of each other; events.h is what others call.
 *
 *     const checks *k = m->checks;
 *     if (stamp <= k->base) puts("before a barrier that all threads have passed");
 */
#ifndef FL_EMU_CHECKS_H
#define FL_EMU_CHECKS_H

#include "../machine/machine.h"
#include "events.h"

typedef struct shadow_cell {
    uint32_t write_time; /* stamp, or one of the marks below */
    uint32_t write_who;
    uint32_t read_time;
    uint32_t read_who;
} shadow_cell;

/* The last fence.proxy.async of a thread. */
enum { FENCES = 8 };
typedef struct proxy_fences {
    uint32_t stamps[FENCES], next;
} proxy_fences;

/* A write of shared memory, and what completed it. */
typedef struct checked_write {
    uint32_t time, who, landing;
} checked_write;

/* The end of a product's reads, by the thread that observed it; time 0: none. */
typedef struct product_read {
    uint32_t time, who;
} product_read;

/* A unit is 16 bytes of shared memory. It counts the reads of the async proxy in flight, and has the instruction of the
 * last. Copies and products access entire units, so a unit also keeps the last copy to it and the last products that
 * two threads observed. Its cells get these notes when anything else needs them: see settle_cells(). */
enum { ASYNC_UNIT = 16, PRODUCT_READERS = 2 };
typedef struct async_unit {
    uint32_t count, instruction;
    product_read ended[PRODUCT_READERS];
    checked_write written; /* time 0: the cells have it */
} async_unit;

/* The last read of a cell by a warp, and by which of its lanes. */
typedef struct warp_read {
    uint32_t time, lanes;
} warp_read;

#define TIME_IN_FLIGHT 0xffffffffu
#define TIME_NEVER 0xfffffffeu
#define TIME_REMOTE 0xfffffffdu /* a thread of another CTA: see remote_cells */

/* An access by a thread of another CTA of the cluster, with a stamp of that CTA. */
typedef struct remote_access {
    uint32_t time, who;
} remote_access;

/* Accesses of other CTAs to the shared memory of this one; created at the first of them. */
typedef struct remote_cells {
    remote_access *writes; /* [cells], where the cell says TIME_REMOTE or TIME_IN_FLIGHT */
    uint8_t *writers;      /* [cells] 1 + the rank of that CTA; 0 where it is this one */
    remote_access *reads;  /* [cells][CTAs of the cluster]: the last of each */
    remote_access *last;   /* [CTAs of the cluster][warps]: the last access of each warp */
} remote_cells;

/* Writes that happen before what lane 0 of warp `observer` - 1 does, and that the async proxy sees: those that the
 * lanes of one warp made up to `time` and that `landing` completed. */
typedef struct known_writes {
    uint32_t time, landing, observer;
} known_writes;

/* who: instruction (20 bits), thread (10 bits), and two flags. */
#define WHO_MANY_LANES 0x40000000u
#define WHO_MANY_WARPS 0x80000000u
#define WHO_ATOMIC 0x40000000u
#define WHO_AGAIN 0x40000000u     /* of a product_read: its thread also observed the reads before */
#define WHO_UNDEFINED 0x80000000u /* of a write: the value was one that nothing gave */

/* An atomic on a cell that nothing orders before the last one, which covers it; time 0: none. */
typedef struct covered_update {
    uint32_t time, who;
} covered_update;

/* The first griddepcontrol.wait of a warp, and the lanes that have executed one. */
typedef struct grid_wait {
    uint32_t time, lanes;
} grid_wait;

/* The CTA's work with its current ticket: see tile_counter.c. */
typedef struct ticket_work {
    uint64_t sum;      /* of its accesses to global memory, and of what they write */
    uint32_t draws;    /* tickets that it waited for so far */
    uint16_t *written; /* by cell of shared memory: tickets that it had waited for then */
    bool *looked;      /* by cell: it was written or read since the last */
    bool **kept;       /* by ticket, by cell: what is known to be read behind that wait, and not written before */
    bool reads_more;   /* of other cells: they are kept now */
    uint32_t since;    /* when it waited for the last ticket */
    bool meets;        /* threads of the CTA at bytes of global memory, of which one was there before */
} ticket_work;

/* An address in shared memory that orders threads, and what those knew that wrote it: see check/flags.c. */
typedef struct flag {
    uint32_t address, *clocks;
} flag;

/* fence.proxy.tensormap of some lanes of a warp for a tensor map, whose last writes are `written` as a number. */
enum { MAP_FENCES = 16 };
typedef struct map_fence {
    uint64_t address, written;
    uint32_t warp, lanes, time;
} map_fence;

typedef struct checks {
    shadow_cell *cells;
    uint32_t cell_shift, cell_count;
    uint32_t now, base;   /* epoch; what happened up to epoch `base` is ordered before what any thread does */
    uint32_t settled;     /* base, or 0 where an uninitialized value was stored: writes up to it need no look */
    bool undefined_cells; /* an uninitialized value was stored */
    undefined stored;     /* the last of them */
    known_writes known[MAX_WARPS]; /* by the warp that wrote */
    uint64_t writes;               /* how often cells got another last write */
    covered_update *covered;       /* by cell; NULL until an atomic covers another */
    bool covers;                   /* one has, since the last barrier of the CTA */
    uint32_t *clocks;              /* [threads][clock_width] where the entry or the cluster needs them, else NULL */
    uint32_t clock_width;          /* the threads, the engines and, in a cluster, the warps of all its CTAs */
    uint32_t engines;              /* clocks of what works next to the warps, see cells.h; 0 where there are none */
    flag *flags;
    size_t flag_count, flag_capacity;
    uint32_t *fenced, *heard; /* [threads][clock_width] see flags.c; NULL without entry.relaxed_flags */
    uint32_t *heard_times;    /* [threads] likewise */
    bool peers_started; /* CTAs of the cluster, as a relaxed barrier says and clocks do not; or that one may not have is
                           reported */
    remote_cells *remote;           /* NULL as long as no other CTA has touched the shared memory */
    warp_read *warp_reads;          /* [warps][cells] with clocks, else NULL */
    uint32_t last_reads[MAX_WARPS]; /* epoch of the last read of each warp, likewise */
    proxy_fences *proxy_fences;     /* by thread, of shared, then of global memory; NULL without the async proxy */
    uint32_t *fence_knows;          /* the clock that each thread had at its last one, likewise: see known_at_fence() */
    uint32_t fenced_together[2];    /* warps, by bit, all of whose lanes executed it as one and knew the same */
    bool copies_arrive;             /* mbarriers wait for cp.async, which then have clocks of their own */
    uint8_t *read_generic;          /* by cell: an ordinary read was the last; NULL where nobody asks */
    uint8_t *async_written;         /* by cell: what completed the last write, LANDED_…; NULL likewise */
    async_unit *async_units;        /* by 16 bytes of shared memory; NULL without the async proxy */
    bulk_copy *unfinished;          /* stores that have been read, and whose thread has not waited for the rest */
    size_t unfinished_count, unfinished_capacity;
    struct tensor_shadow *tensor; /* see check/tensor_memory.c; NULL without tcgen05 */
    grid_wait *grid_waits;        /* by warp; NULL where the launch does not overlap the one before */
    map_fence map_fences[MAP_FENCES];
    uint32_t map_fence_count;   /* MAP_FENCES: some are forgotten, and no map is checked */
    struct cta_order *order;    /* see explore/happens_before.c */
    struct orders *orders;      /* see explore/orders.c; NULL without mbarriers */
    struct ticket_work *ticket; /* see explore/tile_counter.c; NULL where nobody asks */
    bool follows;               /* each access to global memory: for `ticket`, or for touch.c */
} checks;

static inline struct orders *orders_of(const cta *m) {
    return m->checks->orders;
}

/* ---- shadow.c ---- */

bool emu_shadow_create(cta *m);
void emu_shadow_start_cta(cta *m);
void emu_shadow_free(cta *m);
/* After a write: its value was one that nothing gave. */
void emu_shadow_undefined(cta *m, uint32_t address, uint32_t bytes);
/* undefined.c */
void emu_start_undefined(cta *m, warp *w);
void emu_shadow_issue(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes);
/* The copy that completed in a cell: none, one without its own clock, or one of the async proxy after LANDED_BY. */
enum { LANDED_NOTHING, LANDED, LANDED_BY, LANDED_AT_PEER = 128 /* with it: of the other CTA of the pair */ };
void emu_shadow_land(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes, uint32_t stamp,
                     uint32_t instruction, unsigned landing);
/* cp.async land that an mbarrier is told of, by an arrival with a stamp: who waits for the phase knows it. It is what
 * landed in their cells. */
unsigned emu_copies_land(cta *m, const warp *w, mbarrier *bar, const async_arrive *arrive);
/* Lanes have waited for their cp.async themselves. */
void emu_copies_waited(cta *m, warp *w, uint32_t mask);
void emu_engine_lands(cta *m, const warp *w, const bulk_copy *copy, mbarrier *bar);
void emu_clock_full_barrier(cta *m);
/* Lanes tell what they know to `clocks`, or learn what stands there. */
void emu_clock_publish(cta *m, const warp *w, uint32_t mask, uint32_t *clocks);
void emu_clock_acquire(cta *m, warp *w, uint32_t mask, const uint32_t *clocks);
uint32_t emu_clock_tick(cta *m, warp *w);
/* All lanes of a warp know what a thread did up to a stamp. */
void emu_clock_learn(cta *m, const warp *w, uint32_t thread, uint32_t stamp);
/* Report what a read by the async proxy, on behalf of a lane, may miss: values, order or a proxy fence. */
void emu_check_async_source(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes);
/* Such a read may happen any time between the two calls. checked: its bytes that matter are. stamp: the clock of the
 * warp that others must know to know that it is done. */
void emu_async_read_begins(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes, bool checked);
void emu_async_read_ends(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes, uint32_t stamp);
/* See settle_cells(). */
void emu_settle_unit(const cta *m, uint32_t unit);
/* A bulk copy that a lane starts writes what ordinary instructions have read: a proxy fence must lie between. */
void emu_check_async_write(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes);
/* A fence.proxy.async of a thread: the async proxy sees what the thread knows of in a fenced_memory. */
void emu_proxy_fence(cta *m, warp *w, uint32_t mask, unsigned memory);
/* A fence.mbarrier_init of a thread: the async proxy sees the mbarriers that it has initialized. */
void emu_init_fence(cta *m, warp *w, uint32_t mask);
/* A copy that a lane starts counts at an mbarrier: it must see its initialization. */
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
/* Progress of the warps that the thread of a copy knew when it issued the copy. The mbarrier there completes its phase
 * after them, although the copy publishes nothing that they did. */
void emu_remote_tell_progress(const cta *m, const warp *w, int lane, const cta *at, uint32_t *clocks);
/* Lanes learn what stands in clocks of another CTA. */
void emu_remote_acquire(cta *m, warp *w, uint32_t mask, const cta *at, const uint32_t *clocks);
void emu_cluster_fence(cta *m, warp *w);
/* Convert clocks of this CTA to clocks of another. */
void emu_remote_publish_row(const cta *m, uint32_t *row, const cta *at, uint32_t *clocks);
/* check/tensor_memory.c: for a CTA with its clocks; false when out of memory. */
bool emu_tensor_shadow_create(cta *m);
void emu_tensor_shadow_start(cta *m);
void emu_tensor_shadow_free(cta *m);
/* undefined.c: lanes of a register got an undefined value from tensor memory, one of them from an address. */
void emu_on_undefined_tensor_load(cta *m, warp *w, unsigned slot, uint32_t lanes, uint32_t address);
/* check/flags.c: for a CTA with its clocks; false when out of memory. */
bool emu_flags_create(cta *m);
void emu_flags_start_cta(cta *m);
void emu_flags_free(cta *m);
/* Accesses that order threads, to the shared memory of a CTA of the cluster, which may be the own one. */
uint32_t emu_flag_read(cta *m, warp *w, int lane, cta *at, uint32_t address, uint32_t bytes, unsigned order);
void emu_flag_write(cta *m, warp *w, int lane, cta *at, uint32_t address, uint32_t bytes, unsigned order);
void emu_flag_atomic(cta *m, warp *w, int lane, cta *at, uint32_t address, uint32_t bytes, unsigned order, bool asks);
/* A fence of threads; and what fences before released goes to clocks of a CTA, at a relaxed arrival. */
void emu_flag_fence(cta *m, warp *w, uint32_t mask);
void emu_tell_fenced(cta *m, const warp *w, int lane, cta *at, uint32_t *clocks);
/* Lanes that waited .relaxed: they learn what stands in clocks at their next fence. */
void emu_hear(cta *m, const warp *w, uint32_t mask, const uint32_t *clocks);

#endif
