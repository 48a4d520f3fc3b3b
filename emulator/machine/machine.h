/* machine.h - the machine that runs a program (../ptx/program.h); not for users of emu.h.
 *
 * launch.c spreads CTAs over host threads; warp.c executes the ops of a warp, by lane functions (../ptx/lanes.h) and
 * the functions below; counters.c counts. What it does the checks watch: checks.h.
 *
 * A register slot is 32 lanes of 32 bits; a 64-bit register takes two slots and is an array of 32 uint64_t.
 * A predicate is one word with a bit per lane.
 */
#ifndef FL_EMU_MACHINE_H
#define FL_EMU_MACHINE_H

#include "../check/events.h"
#include "../ptx/lanes.h"
#include "tensor_map.h"

#include <stdatomic.h>
#include <string.h>

struct races;
struct race_table;
struct cta_order;
struct orders;
typedef struct explorer explorer;

typedef enum path_state {
    PATH_RUNS,
    PATH_WAITS, /* for other lanes of the warp */
    PATH_SLEEPS /* until an mbarrier is complete */
} path_state;

/* Lanes that run together. Where a warp is split the paths are disjoint and without joins, see paths.c. */
typedef struct path {
    int32_t pc, join;
    uint32_t mask;
    path_state state;
    uint32_t turns, wanted; /* see warp */
    int32_t frame;
} path;

/* One call of a function, by the lanes of a path. */
typedef struct call_frame {
    int32_t caller; /* frame, -1 in the entry */
    int32_t return_pc;
    int depth, routine;
    const call_site *site;
    uint32_t instruction;
    bool apart;           /* the warp was split since: the position after the call is not on the stack */
    uint32_t lanes;       /* that have not returned; 0: the frame is free */
    uint32_t base[LANES]; /* where the frame of the caller begins in the thread's local memory */
    uint32_t *saved;      /* registers that the function had where it was called before, else NULL */
} call_frame;

enum { MAX_PATHS = 80 }; /* of the calls within calls each */

typedef enum warp_state {
    WARP_READY,
    WARP_AT_BARRIER,
    WARP_AT_MBARRIER,  /* in a try_wait: until the phase is complete */
    WARP_AT_WGMMA,     /* until the other warps of its warpgroup have issued what it waits for */
    WARP_AT_REGISTERS, /* in a setmaxnreg.inc: until other warps give registers back */
    WARP_AT_TENSOR,    /* in a tcgen05.alloc: until columns are freed */
    WARP_AT_CLUSTER,   /* in a barrier.cluster.wait: until all threads of the cluster have arrived */
    WARP_HELD,         /* before an access that waits for its turn: see explore.c */
    WARP_POLLING,      /* before a test_wait that would fail: likewise, or until no other warp can run */
    WARP_DONE,
    WARP_FAULT
} warp_state;

typedef struct async_copy {
    const uint8_t *source;
    uint32_t target; /* address in shared memory */
    uint32_t group;  /* of its lane */
    uint32_t serial; /* within the warp */
    uint32_t instruction;
    uint8_t lane, bytes, source_bytes;
} async_copy;

/* A bulk copy under way: cp.async.bulk and cp.async.bulk.tensor. */
typedef struct bulk_copy {
    tensor_map map;     /* as it was when the copy was issued; without rank for one of `bytes` side by side */
    uint64_t map_at;    /* its address */
    uint8_t *memory;    /* global, without a map, */
    uint64_t address;   /* and its address */
    uint32_t source;    /* in shared memory of the CTA that copies, else 0 */
    const op *reduces;  /* elements instead of copying them, else NULL */
    uint8_t values[16]; /* of a store that lands later */
    bool has_values;
    uint8_t *kept;         /* what the source held as the copy was issued; NULL: what it holds */
    struct cta *to;        /* the CTA of `shared` */
    struct cta *counts_at; /* that of the mbarrier: another one of the pair with .cta_group::2 only */
    int32_t rows[4];       /* of a gather: its four rows, at the second coordinate */
    bool gathers;
    int32_t corner[5];  /* of the box in the tensor; im2col: the first pixel */
    int32_t offsets[3]; /* im2col: from a pixel to the one that is copied for it, in dimension 1, 2, 3 */
    uint32_t shared, bytes;
    uint32_t mbarrier; /* that gets the bytes; 0 for a store */
    uint64_t phase;    /* of that mbarrier when the copy was issued */
    uint32_t instruction, stamp;
    uint32_t group; /* of the thread, for a store */
    int warp;
    uint8_t lane;
    bool is_store;
    bool has_turn; /* of its own, to land in: see delayed.c */
} bulk_copy;

typedef struct async_arrive {
    uint32_t address, instruction;
    uint32_t serial; /* copies of the lane with a smaller one must land first */
    uint32_t stamp;
    uint8_t lane;
    bool counts; /* not .noinc: the pending count was raised when issued */
} async_arrive;

/* A wgmma.mma_async that a warp has issued and not waited for. */
typedef struct wgmma {
    const op *o;                 /* of its first columns */
    uint64_t a, b;               /* descriptors */
    uint32_t group;              /* of the warp */
    bool adds;                   /* to the accumulators */
    uint32_t reader, read;       /* the warp that waited first, and its stamp when the warpgroup had read B and A */
    product_writers writers;     /* of B and A; empty where another warp has looked at them */
    bool is_read_again;          /* likewise: its reads count as those of that warp */
    uint32_t fragment[4][LANES]; /* A, where it is in registers */
} wgmma;

/* The last phase of an mbarrier that a warp has waited for, plus 1, and how often it has. */
typedef struct seen_phase {
    uint64_t phase;
    uint32_t times;
} seen_phase;

/* Use of a register by wgmma. */
typedef struct wgmma_use {
    uint32_t touched; /* 1 + the fences that the warp had executed when an instruction last read or wrote it */
    uint8_t adding;   /* unfinished products that add to it */
    uint8_t reading;  /* unfinished products of which it is a part of A */
} wgmma_use;

typedef struct warp {
    uint32_t *file; /* slots, LANES words each */
    uint32_t *predicates;
    struct undefined *undefined;                /* by slot, then by predicate: see check/undefined.c */
    uint32_t undefined_count, undefined_stores; /* how many have such lanes; lanes of the store at work */
    int32_t pc, join;
    uint32_t active, exited, present; /* lanes; present: those the block has */
    path *stack;
    int depth;
    size_t stack_capacity;
    call_frame *frames;
    int frame_count;
    size_t frame_capacity;
    int32_t frame;              /* of the path at work, -1 in the entry */
    uint32_t frame_base[LANES]; /* where it begins in the thread's local memory */
    bool split;                 /* the stack is a list of paths, each of which may run */
    bool forced;                /* the path at work waits in vain: its next op runs with the lanes that are there */
    bool tries_again;           /* the last op did not run */
    uint32_t spins;             /* turns of loops that may wait for other lanes, since lanes parted last */
    uint32_t turns;             /* that the path at work had since the warp was split */
    uint32_t wanted;            /* lanes that it has waited for since it came to an instruction with a member mask */
    int index;
    uint32_t rank_bits; /* the CTA's rank in the cluster, at its bits of a shared address */
    warp_state state;
    uint32_t barrier_id;
    uint32_t barrier_result;
    bool poll_failed;       /* a test_wait just failed, or memory was polled in vain: let others go first */
    bool poll_answers;      /* the next test_wait or try_wait answers, even if the answer is no */
    uint32_t vain_waits;    /* try_wait that answered so, since one was true */
    bool granted;           /* a turn: see explore.c */
    uint32_t held;          /* lanes of the access that waits for one */
    bool waits_for_delayed; /* it waits for what it does late, and has no turn: see delayed.c */
    uint32_t delayed_accesses, delayed_fences; /* so far, and fences between them */
    uint64_t loaded, acquired, delayed;        /* where its last strong loads were, and no fence since; else 0 */
    uint32_t mbarrier_address;
    struct seen_phase *seen; /* by mbarrier; NULL without checks */
    /* of memory that is polled: see schedule.c */
    uint32_t polls, poll_instruction;
    uint64_t poll_address, poll_changes, vain_at; /* vain_at: 1 + cta.changes when it had polled in vain */
    uint64_t quiet_steps, quiet_changes;          /* what it ran since memory changed */
    bool together;                                /* all lanes know the same of other threads: see shadow.c */
    uint32_t clock;                               /* time stamp of this warp's accesses */
    uint32_t synced; /* accesses of the warp up to this stamp are ordered for all of its lanes */
    uint32_t commits[LANES], bulk_commits[LANES];
    uint32_t cluster_arrived; /* lanes, at the barrier of the cluster: of its phase that is not complete */
    uint64_t cluster_phase;   /* of the last arrival */
    bool cluster_waits;       /* it arrived, and has not waited since */
    uint32_t *released; /* what it knew at its last fence beyond the CTA: as the clocks of the cluster; NULL likewise */
    wgmma *wgmmas;      /* from number wgmma_landed to wgmma_issued */
    size_t wgmma_count, wgmma_capacity;
    uint32_t wgmma_issued, wgmma_landed, wgmma_commits;
    uint32_t registers; /* a thread, after a setmaxnreg; else 0 */
    uint32_t register_changes;
    uint32_t stale, fences_known; /* lanes whose load returns what was before the launch; see explore/stale.c */
    uint32_t wgmma_fences;        /* executed so far */
    struct wgmma_use *wgmma_uses; /* by virtual register; NULL without checks or wgmma */
    bool tensor_loads;            /* tcgen05.ld that nothing has waited for; with checks only */
    /* a check of the registers of each op: of wgmma or of tensor memory; NULL without checks or these */
    void (*check_registers)(struct cta *m, struct warp *w, const op *o);
    async_copy *copies;
    size_t copy_count, copy_capacity;
    const uint8_t *copies_begin, *copies_end; /* bounds of what the copies in flight read */
    uint32_t copy_serial;
    async_arrive *arrives;
    size_t arrive_count, arrive_capacity;
} warp;

typedef struct buffer {
    char *name;
    uint8_t *bytes; /* NULL once it is freed */
    void *block;    /* of memory that contains them; NULL if they are the host's */
    uint64_t size;  /* 0 likewise */
    emu_buffer_kind kind;
    bool in_heap;                  /* of malloc() on the device */
    _Atomic uint64_t *output;      /* owned: who stored to it, for outputs while checks are on; see device.c */
    struct written_bytes *written; /* see check/written.c; NULL: all bytes count as written */
    uint8_t *touches;              /* owned: an emu_touch for each byte, see check/touch.c; NULL: nobody asks */
} buffer;

struct emu_device {
    unsigned architecture; /* 90; 0: as the modules say */
    uint64_t heap_bytes;   /* of the buffers that malloc() on the device made */
    buffer *buffers;
    size_t buffer_count, buffer_capacity;
    uint8_t *variables; /* .global and .const of the module that ran last, address id 0 */
    uint32_t variable_bytes;
    uint64_t module;                     /* serial of that module, 0 for none */
    _Alignas(8) uint8_t grid_barrier[8]; /* at GRID_BARRIER */
    emu_finding *findings;
    size_t finding_count;
    emu_counter *rows;
    emu_counters counters;
    struct texture *textures; /* see texture.c */
    size_t texture_count, texture_capacity;
    atomic_flag wide_atomics;   /* taken while an atomic of 16 bytes is at work */
    bool one_thread;            /* of the host runs the launch */
    _Atomic uint64_t ctas_done; /* of the launch at work, or of the last */
    bool watches_touches;
    struct emu_footprint *footprint; /* owned: of the last launch, see check/footprint.c; NULL for none */
};

/* ---- checks ---- */

/* Lanes of a register that hold an uninitialized value, and the origin of that value. */
typedef struct undefined {
    uint32_t lanes, origin;
    uint32_t given;   /* lowest bits that have a value in all these lanes, as packed parts have */
    uint64_t address; /* that it was loaded from */
} undefined;

/* Findings not to report. */
typedef struct ignored {
    emu_class class_;
    int line; /* of the CUDA source, or of the PTX where there is no other; 0 for all */
} ignored;

enum { MAX_IGNORED = 64 };
typedef struct ignored_list {
    ignored items[MAX_IGNORED];
    size_t count;
} ignored_list;

typedef struct finding_record {
    emu_class class_;
    uint32_t here, other; /* instruction index, UINT32_MAX for none */
    uint64_t count, cta, cluster;
    int warp, lane, other_warp, other_lane;
    uint64_t address;
    char *message;
} finding_record;

typedef struct finding_list {
    finding_record *records; /* owned, with their messages */
    size_t count, capacity;
    const ignored_list *ignored;
} finding_list;

typedef struct named_barrier {
    uint32_t arrived; /* threads */
    uint32_t expected;
    uint32_t popcount; /* of bar.red */
    bool any_true, any_false;
    uint32_t *clocks; /* what the arrived threads know */
} named_barrier;

typedef struct mbarrier {
    uint32_t address;
    uint32_t expected, pending;
    int64_t bytes;     /* that copies still bring before the phase completes */
    int64_t announced; /* bytes, by expect_tx in this phase */
    uint64_t phase;
    bool live;
    uint32_t init_thread, init_stamp, fence_stamp; /* of mbarrier.init, and of the first fence of that thread since */
    uint32_t *arriving, *completed;                /* clocks of the current and the last completed phase */
    uint32_t told_by, told_at; /* 1 + the warp of the last arrival in this phase, which knew the same in all lanes; 0:
                                  none; and its time */
} mbarrier;

enum { BARRIERS = 16, MAX_MBARRIERS = 256, COUNTER_FIELDS = 7 };

typedef struct op_counts {
    uint64_t executed, lanes, wavefronts, ideal, sectors, requests, bytes;
} op_counts;

typedef enum cta_turn {
    TURN_ENDED,  /* the CTA, or at fault: cta.faulted */
    TURN_PAUSED, /* it could continue */
    TURN_HELD,   /* its warps wait for turns, or for those that do */
    TURN_WAITS,  /* for other CTAs of the cluster */
    TURN_POLLS   /* whatever could run polls memory, in vain until another CTA changes it */
} cta_turn;

/* CTAs that are at work together, of which each can touch the shared memory of all; one CTA where a launch has no
 * clusters. */
typedef struct cluster {
    struct cta *ctas; /* [count] by rank */
    uint32_t count, size[3];
    bool is_explicit;
    _Atomic uint64_t *next; /* of the launch: the next cluster that has not begun, of `total` */
    uint64_t total;
    uint64_t index;       /* x + X * (y + Y * z), with the grid as X x Y x Z clusters */
    uint32_t position[3]; /* of the cluster in the grid */
    uint64_t phase;       /* of its barrier */
    uint32_t *clocks; /* [2][clock_count] what those know that have arrived, and what those of the phase before knew;
                         NULL where nobody asks */
    uint32_t clock_count; /* warps and engines of all CTAs */
    uint64_t random;
    uint32_t last;    /* CTA that had a turn */
    bool draws_apart; /* other warps run after each fetch: see launch.c */
    bool drew;        /* a ticket, in the turn at work */
    uint32_t draws;
    struct lookahead *lookahead; /* threads that run it before its turn; NULL: its turns run one after the other */
    struct cluster *next_ahead;  /* the rest is lookahead.c's */
    enum { AHEAD_NOT, AHEAD_BEGINS, AHEAD_RUNS, AHEAD_DONE } ahead_state;
    cta_turn turn_ahead;
    bool has_turn;
    struct postponed_atomic *postponed; /* atomics without a result, which the cluster executed before its turn */
    size_t postponed_count, postponed_capacity;
    uint64_t postponed_begin, postponed_end; /* of the addresses that they update */
    struct race_table *races;                /* see check/global.c; NULL without checks */
} cluster;

/* A CTA: its warps, its shared memory, and what runs and checks it. */
typedef struct cta {
    const emu_module *module;
    const entry *code;
    emu_device *device;
    const emu_launch *launch;
    cluster *cluster;
    uint32_t rank; /* in the cluster */
    bool ended;
    uint64_t
        polled_at; /* 1 + the changes of the cluster's memory when it had polled in vain; 0 where it can continue */
    uint32_t cta[3];
    uint64_t cta_index;
    uint32_t threads, warp_count;
    warp *warps;
    uint8_t *shared;
    uint32_t shared_base, shared_bytes; /* address of its first byte; size */
    uint8_t *local;
    struct checks *checks; /* NULL without checks: see check/events.h */
    finding_list findings;
    named_barrier barriers[BARRIERS];
    mbarrier mbarriers[MAX_MBARRIERS];
    int mbarrier_count;
    bulk_copy *bulk; /* under way */
    size_t bulk_count, bulk_capacity;
    struct tensor_memory *tensor;       /* NULL without tcgen05 */
    uint32_t wgmma_done[MAX_WARPS / 4]; /* products of each warpgroup that are computed */
    op_counts *counts;                  /* by instruction */
    uint64_t steps, steps_total, traced;
    uint32_t vain_polls;            /* that failed as no warp could run, since a barrier last freed one */
    bool explores;                  /* accesses that threads tell each other by wait for their turn: see explore.c */
    struct delayed_access *delayed; /* then: what comes later, and has one too */
    size_t delayed_count, delayed_capacity;
    bool reads_early;           /* an access might overtake a load in a way that no turn here does */
    struct stale_values *stale; /* see explore/stale.c; NULL: loads return the last value */
    bool watches;               /* whether a store changes memory: the program polls */
    uint64_t changes, polls;
    int last_warp;
    uint64_t random;
    bool faulted, out_of_memory;
    uint32_t here; /* instruction being executed, for messages */
    char *output;  /* device printf of this CTA */
    size_t output_length, output_capacity;
} cta;

/* True if a thread's wait for groups covers that store. */
static inline bool bulk_waits_for(const bulk_copy *copy, const warp *w, const op *o, uint32_t mask) {
    const bool mine = copy->is_store && copy->warp == w->index && mask >> copy->lane & 1;
    return mine && (int64_t)copy->group < (int64_t)w->bulk_commits[copy->lane] - o->immediate;
}

/* NULL where no buffer was ever */
static inline buffer *emu_find_buffer(const emu_device *device, uint64_t address) {
    uint64_t number = address >> BUFFER_SHIFT;
    return number >= 1 && number <= device->buffer_count ? &device->buffers[number - 1] : NULL;
}

static inline uint32_t *slot32(const warp *w, unsigned slot) {
    return w->file + (size_t)slot * LANES;
}
static inline uint64_t *slot64(const warp *w, unsigned slot) {
    return (uint64_t *)(void *)slot32(w, slot);
}
/* Words of a warp's registers and predicates, a multiple of 64 bytes. */
static inline size_t register_words(const entry *code) {
    return ((size_t)code->slot_count * LANES + code->predicate_count + 1 + 15) / 16 * 16;
}
static inline void copy_registers(const entry *code, const warp *from, warp *to) {
    memcpy(to->file, from->file, (size_t)code->slot_count * LANES * sizeof *to->file);
    memcpy(to->predicates, from->predicates, (code->predicate_count + 1) * sizeof *to->predicates);
}
static inline bool same_registers(const entry *code, const warp *a, const warp *b) {
    return !memcmp(a->file, b->file, (size_t)code->slot_count * LANES * sizeof *a->file) &&
           !memcmp(a->predicates, b->predicates, (code->predicate_count + 1) * sizeof *a->predicates);
}
/* A shared address as the machine uses it: from bit CTA_SHIFT on the rank of its CTA XOR the own one, 0 for memory of
 * the own CTA. A program sees the rank itself. */
static inline uint64_t relative_address(const warp *w, uint64_t address) {
    return address ^ w->rank_bits;
}
static inline int first_lane(uint32_t mask) {
    return __builtin_ctz(mask);
}
static inline uint32_t live_lanes(const warp *w) {
    return w->present & ~w->exited;
}
static inline uint32_t population(uint32_t mask) {
    return mask == ALL_LANES ? LANES : (uint32_t)__builtin_popcount(mask);
}

/* Lanes on for an op: active and, where there is a guard, allowed by it. */
static inline uint32_t lanes_on(const warp *w, const op *o) {
    if (o->guard == NO_PREDICATE) return w->active;
    uint32_t guard = w->predicates[o->guard];
    return w->active & (o->flags & FLAG_GUARD_NEGATED ? ~guard : guard);
}

/* emu_reserve(); without memory the machine is at fault. */
static inline void *cta_reserve(cta *m, void *array, size_t wanted, size_t *capacity, size_t element_bytes) {
    void *reserved = emu_reserve(array, wanted, capacity, element_bytes);
    if (!reserved) m->out_of_memory = m->faulted = true;
    return reserved;
}

static inline uint64_t emu_mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

enum { POLLS_OF_A_TURN = 32, MOST_DRAWS = 4096 };
/* An op that asks what other threads have written: after some in a row without a change others go first. */
static inline void note_poll(cta *m, warp *w, const op *o, uint64_t address) {
    if (w->poll_changes != m->changes) w->polls = 0;
    w->poll_changes = m->changes;
    w->poll_address = address;
    w->poll_instruction = o->instruction;
    m->polls++;
    if (++w->polls >= POLLS_OF_A_TURN) w->poll_failed = true;
}

/* The lane whose value a lane takes in a shuffle, and whether that is within its segment. */
static inline int shuffled_from(const warp *w, const op *o, int lane, bool *within) {
    const uint32_t b = slot32(w, o->r[2])[lane], c = slot32(w, o->r[3])[lane];
    const uint32_t segment = c >> 8 & 31, clamp = c & 31, amount = b & 31;
    const int high = (int)(((uint32_t)lane & segment) | (clamp & ~segment));
    int from = (int)(((uint32_t)lane & segment) | (amount & ~segment));
    if (o->detail == SHUFFLE_UP) from = lane - (int)amount;
    if (o->detail == SHUFFLE_DOWN) from = lane + (int)amount;
    if (o->detail == SHUFFLE_BFLY) from = lane ^ (int)amount;
    *within = o->detail == SHUFFLE_UP ? from >= high : from <= high;
    return *within ? from & 31 : lane;
}

/* Execute an op for the lanes of a mask. Every operation has a handler, which its row in forms_table.h names. */
typedef void op_handler(cta *m, warp *w, const op *o, uint32_t mask);
#define OP_ROW(kind, lanes, handler, text) op_handler handler;
#include "../ptx/forms_table.h"

/* warp.c: run until the warp must wait, is done, or budget instructions have run. */
void emu_warp_run(cta *m, warp *w, uint64_t budget);
/* values.c: the next op of a copy of a warp, if it works on registers alone and keeps the lanes together; else false.
 */
bool emu_step_registers(cta *m, warp *w);

/* memory.c */
void emu_finish_load(warp *w, const op *o, uint8_t *const *bytes, uint32_t mask); /* of a late one */
/* The turn of a cluster has come: its postponed atomics update memory, in the order in which they were executed. */
void emu_apply_postponed(cluster *c);
/* Host bytes of an access, or NULL after reporting why there are none. */
uint8_t *emu_translate(cta *m, warp *w, state_space space, uint64_t address, uint32_t bytes, int lane,
                       const char *verb);
uint64_t emu_lane_address(const warp *w, const op *o, unsigned source, int lane);
/* The address that a lane accesses; whether it is one of the shared memory of the CTA. */
bool emu_touches(const warp *w, const op *o, int lane, uint64_t *address);
const char *emu_device_string(cta *m, uint64_t generic_address);

/* noise.c: what a CTA sees of time and of the GPU. Without noise there is one multiprocessor, number 0. */
uint64_t emu_drawn_time(uint64_t steps);
uint32_t emu_drawn_multiprocessors(void);
uint32_t emu_drawn_multiprocessor(uint64_t cta);

/* memory.c: elements side by side are added to others and the like, as an OP_BULK says. Subnormals of f32 count, or
 * are flushed to zero. */
void emu_reduce(cta *m, const op *o, bool flushes, uint8_t *at, const uint8_t *from, uint32_t bytes);

/* device.c: remember who wrote bytes of an output. */
void emu_note_output(cta *m, uint32_t instruction, uint64_t address, uint32_t bytes);
/* Record an atomic. Several threads may update one address, so it never counts as written twice. */
void emu_note_output_update(cta *m, uint64_t address, uint32_t bytes);

/* bulk.c */
/* Let a copy to shared memory land; false where there is none. */
bool emu_land_next_bulk(cta *m);
/* Effect of a copy on memory. */
void emu_bulk_moves(cta *m, const bulk_copy *copy);
/* At the end of a CTA its stores land. */
void emu_land_stores(cta *m);
/* Describe what a warp in a setmaxnreg.inc waits for. */
void emu_describe_registers(const cta *m, const warp *w, char *out, size_t bytes);
/* Report copies that are still in flight as the CTA ends. */
void emu_check_no_bulk_left(cta *m);

/* wgmma.c */
/* Checks of registers around wgmma: that op `o` leaves those of unfinished products alone. */
void emu_check_registers(cta *m, warp *w, const op *o);
/* Addresses in shared memory of the 16-byte rows of the core matrices of A or B: for each block of eight along M or
 * N eight rows, then the eight of the other half along K. */
void emu_wgmma_chunks(const cta *m, const op *o, bool of_a, uint64_t descriptor, uint32_t *offsets);

/* tensor_memory.c, tensor_jobs.c */
/* Let the jobs of the tensor core be done that a commit tells of; false where there are none. */
bool emu_land_next_tensor(cta *m);
/* Describe what a warp in a tcgen05.alloc waits for. */
void emu_describe_tensor(const cta *m, const warp *w, char *out, size_t bytes);
/* Report what still runs or is allocated as the CTA ends. */
void emu_check_tensor_exit(cta *m);
/* At the end of a cluster, for the checks: commits that no warp has waited for. */
void emu_land_last_commits(cta *m);

/* async.c */
/* Let the copies land that an arrive of this warp waits for, and do the oldest arrive; false when there is none. */
bool emu_land_next_arrive(cta *m, warp *w);

/* sync.c */
/* Report that lanes `wanted` do not reach the point where lanes `mask` are. */
void emu_report_divergent(cta *m, const warp *w, uint32_t wanted, uint32_t mask);
void emu_check_all_lanes(cta *m, warp *w, uint32_t mask);
/* Lanes, all that have not ended, arrive at a barrier of the CTA. They may have come to different instructions: `o` and
 * its operands are those of `lane`. */
void emu_arrive_at_barrier(cta *m, warp *w, const op *o, uint32_t mask, int lane);
/* After lanes left: barriers may be complete without them. */
void emu_barriers_after_exit(cta *m);

/* cluster.c: addresses of shared memory in a cluster, and its barrier */
/* The CTA of a relative address of shared::cluster, *local: the address there; NULL where no CTA has that rank. */
cta *emu_owner(cta *m, uint64_t address, uint32_t *local);
/* As before, with a report, also if that CTA has ended. */
cta *emu_expect_owner(cta *m, const warp *w, int lane, uint64_t address, const char *verb, uint32_t *local);
/* After lanes left: the barrier may be complete without them. */
void emu_cluster_after_exit(cta *m);

/* mbarrier.c */
mbarrier *emu_find_mbarrier(cta *m, uint32_t address);
void emu_mbarrier_arrive(cta *m, mbarrier *bar, uint32_t count);
/* Bytes that a phase waits for besides arrivals: more, or with a negative number fewer, as they come. */
void emu_mbarrier_bytes(cta *m, mbarrier *bar, int64_t bytes);

/* counters.c */
void emu_count_shared(cta *m, const op *o, const uint32_t *addresses, uint32_t bytes, uint32_t mask);
void emu_count_ldmatrix(cta *m, const op *o, const uint32_t *addresses, unsigned matrices);
void emu_count_global(cta *m, const op *o, const uint64_t *addresses, uint32_t bytes, uint32_t mask);
/* The op at work cannot run yet: it is tried again, and only the last attempt counts. The caller says what the warp
 * waits for. */
void emu_try_again(cta *m, warp *w, const op *o, uint32_t mask);

/* printf.c: how many arguments the format took, which is what the device's printf() returns. */
int emu_device_printf(cta *m, const char *format, const uint8_t *arguments, size_t argument_bytes);

/* trace.c */
bool emu_trace_wants(const cta *m, const warp *w, const op *o);
void emu_note_instruction(emu_events *events, const cta *m, const warp *w, const op *o); /* events.c */
/* After a requested op: whether the warp lets another go first, */
bool emu_trace_op(const cta *m, const warp *w, const op *o, uint32_t mask);
/* which is this one, -1: any. */
int emu_wanted_warp(const cta *m);

/* variables.c: those of the module at work, and of one more body, at their addresses; false when out of memory */
bool emu_keep_variables(emu_device *device, const emu_module *module, const uint8_t *initial, uint32_t bytes);

#endif
