/* races.h - what the checks of global memory (global.c, happens_before.c, grid.c) have in common.
 *
 * global.c keeps the last accesses of each cell. If the CTAs of a launch communicate, happens_before.c orders threads
 * of different clusters. Otherwise nothing orders two clusters, and grid.c combines their accesses.
 */
#ifndef FL_EMU_RACES_H
#define FL_EMU_RACES_H

#include "cells.h"

#include <pthread.h>

enum { PAGE_BYTES = 4096, WHO_NARROW = (int)0x80000000u /* an access of scope .cta */ };
#define TIME_UNTIL_WAIT 0xffffffffu /* of a bulk store: its thread has not waited for the whole of it */

typedef struct access_note {
    uint32_t time, who, cluster; /* time 0: none */
} access_note;

/* Accesses of a cluster to a cell. DID_LOAD and DID_ASK: reads that are plain, and strong; LAST_ASYNC: a bulk copy
 * wrote last; DID_NARROW: the scope of an update leaves other clusters out; COVERS: the page has a covered_note of the
 * cell. */
enum cell_history {
    DID_READ = 1,
    DID_WRITE = 2,
    DID_UPDATE = 4,
    LAST_ASYNC = 8,
    DID_NARROW = 16,
    COVERS = 32,
    DID_LOAD = 64,
    DID_ASK = 128
};

typedef struct global_cell {
    access_note write, read, older; /* older: a read by another thread than the last */
    uint32_t value;                 /* a hash of what was written last */
    uint8_t write_rank, read_rank, older_rank, history;
} global_cell;

/* An atomic that nothing orders before the last one of a cell, which covers it. */
typedef struct covered_note {
    access_note note;
    uint32_t rank;
} covered_note;

/* A page has a cell for each piece of COARSE bytes, until something else is done than to read the whole piece. One
 * thread reads it, or lanes side by side that read 1 << stripe bytes each: then the note is of the first. */
enum { COARSE = 128, PIECES = PAGE_BYTES / COARSE };
typedef struct page {
    uint64_t number;
    struct page *next;
    covered_note *covered; /* by cell of the launch, of covered atomics; NULL as long as there is none */
    uint32_t split;        /* pieces, by bit, that have `cells` */
    global_cell *cells[PIECES], pieces[PIECES];
    uint8_t stripes[PIECES][2]; /* of `read` and of `older`; 0: one thread */
} page;

typedef struct page_map {
    void **slots; /* of pages that begin with their number */
    size_t mask, count;
} page_map;

enum { RECENT = 1024 };
/* The cells of a cluster at a time, or of all clusters where they tell each other. */
typedef struct race_table {
    struct races *all;
    page_map map;
    page *touched, *spare;
    page *recent[RECENT];
    struct spare_cells *spare_cells; /* of a piece that no longer needs them */
    uint64_t bytes;
} race_table;

/* Accesses of clusters to a cell, each as cluster, rank, thread and instruction: the first and the last. */
typedef struct extremes {
    uint64_t least, greatest; /* 1 + the number; 0: none */
} extremes;

typedef struct grid_cell {
    extremes writes, reads, updates;
    uint32_t value;
    bool differs;    /* two clusters wrote what is not the same, or by two instructions */
    bool narrow;     /* the scope of an update leaves other clusters out */
    uint8_t history; /* of all clusters: see cell_history */
} grid_cell;

/* The only access of all clusters to a cell, as extremes have it; 0: none. history: DID_READ, DID_WRITE or DID_UPDATE,
 * and more. */
typedef struct single_access {
    uint64_t access;
    uint32_t value;
    uint8_t history;
} single_access;

typedef struct grid_page {
    uint64_t number;
    uint32_t split, met; /* pieces that have cells; met: those where two accesses met in a cell */
    union {
        single_access *single;
        grid_cell *all; /* of those */
    } cells[PIECES];
    grid_cell pieces[PIECES];
    uint8_t stripes[PIECES][2]; /* of the first and of the last read */
} grid_page;

/* Threads that are known up to a time, by number; shared, and never changed. */
typedef struct known_thread {
    uint64_t number;
    uint32_t time;
} known_thread;

typedef struct vector_clock {
    _Atomic uint32_t references;
    size_t count;
    known_thread threads[];
} vector_clock;

/* An address in global memory that orders threads, and what those knew that wrote there. cta: 1 + that of the scope. */
typedef struct told_address {
    uint64_t address, cta;
    vector_clock *told;
} told_address;

/* One launch. */
typedef struct races {
    const emu_launch *launch;
    uint32_t cluster[3], cluster_ctas, warps;
    uint32_t shift, cells; /* of a cell; in a page */
    bool in_turns;
    _Atomic bool fenced; /* some thread has executed a fence.proxy.async for global memory */
    _Atomic bool spent;  /* more would take too much memory or time */
    uint64_t most_bytes;
    race_table shared; /* in turns: of all clusters */
    told_address *addresses;
    size_t address_mask, address_count;
    uint64_t merged;      /* threads of vector_clock */
    pthread_mutex_t lock; /* in turns: see lock_races(); else: of grid */
    page_map grid;        /* else */
    uint64_t grid_bytes;
} races;

/* global.c: a page, which is *made if it is new; NULL when out of memory. */
void **emu_page_slot(page_map *map, uint64_t number);
/* global.c: a race with an access by a thread of any CTA. */
void emu_report_global_race(cta *m, const races *r, const warp *w, int lane, uint64_t address, uint32_t who,
                            uint64_t cluster, uint32_t rank, const char *now, const char *then);
/* global.c: an address in words. */
void emu_describe_global(const cta *m, uint64_t address, char *out, size_t bytes);
/* global.c: whether this launch has written a byte, as far as the own cluster may know; true where nobody asks. */
bool emu_global_was_written(const cta *m, uint64_t address);
/* global.c: a global address in words, for a caller without a CTA. */
void emu_describe_global_of(const emu_device *device, uint64_t address, char *out, size_t bytes);
/* grid.c: the cell of a page, and the instruction of an access as extremes have it. */
grid_cell emu_grid_cell(const races *r, const grid_page *of, uint32_t offset);
uint32_t emu_grid_instruction(uint64_t packed);
/* report.c: a finding in words: its class and instruction, who executed it ("" for nobody), sentences, and the other
 * instruction, without a line for none. Owned. */
char *emu_compose_message(emu_class class_, const emu_location *here, const char *thread, const char *sentences,
                          const emu_location *other);
/* global.c: true if an access happened before what a thread does now. */
bool emu_is_before(cta *m, const warp *w, int lane, const access_note *note, uint32_t rank);
/* The coordinates of a CTA. */
void emu_locate_cta(const races *r, uint64_t cluster, uint32_t rank, uint32_t cta[3]);
/* happens_before.c: whether a thread knows of an access by another cluster. */
bool emu_knows(cta *m, const warp *w, int lane, const access_note *note, uint32_t rank);
void emu_forget_addresses(races *r);

static inline uint64_t global_cta(const races *r, uint64_t cluster, uint32_t rank) {
    return cluster * r->cluster_ctas + rank;
}

/* The note of the lane that read a byte of a piece, as `who`. */
static inline uint32_t lane_of_stripe(uint8_t stripe, uint32_t offset) {
    return stripe ? (offset >> stripe) << WHO_THREAD_SHIFT : 0;
}

static inline bool is_split(uint32_t split, uint32_t offset) {
    return split >> offset / COARSE & 1;
}

/* Bytes of the cell at an offset in a page, and the cell. */
static inline uint32_t bytes_of_cell(const races *r, uint32_t split, uint32_t offset) {
    return is_split(split, offset) ? 1u << r->shift : COARSE;
}

static inline global_cell *cell_of_page(const races *r, page *of, uint32_t offset) {
    const uint32_t piece = offset / COARSE;
    return is_split(of->split, offset) ? &of->cells[piece][offset % COARSE >> r->shift] : &of->pieces[piece];
}

static inline races *races_of(const cta *m) {
    return m->cluster->races->all;
}

/* Clusters in turns share their cells and clocks. Those that run before their turn (lookahead.h) use them by a lock. */
static inline void lock_races(const cta *m) {
    if (m->cluster->lookahead && m->cluster->races && races_of(m)->in_turns) pthread_mutex_lock(&races_of(m)->lock);
}

static inline void unlock_races(const cta *m) {
    if (m->cluster->lookahead && m->cluster->races && races_of(m)->in_turns) pthread_mutex_unlock(&races_of(m)->lock);
}

/* ---- global.c: by lock_races() ---- */

/* Accesses; order: an access_order. data: the bytes to be written, and those that they replace; NULL where these are
 * not known. */
void emu_global_read(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes, unsigned order);
void emu_global_write(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes, unsigned order,
                      const uint8_t *data, const uint8_t *there);
void emu_global_update(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes, unsigned order, bool asks);
/* See emu_on_lanes_read(): false where nothing is noted. */
bool emu_global_piece_read(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes);
/* See emu_on_lanes_write(): the lanes. */
uint32_t emu_global_lanes_write(cta *m, const warp *w, uint32_t lanes, const uint64_t *addresses, uint32_t bytes,
                                stored_values data);
/* A load with FLAG_CONSTANT: whether this kernel wrote there before. */
void emu_global_constant_read(cta *m, const warp *w, int lane, const op *o, uint64_t address, uint32_t bytes);
/* An access by a bulk copy that a thread issues, to contiguous elements. A write lasts until the thread has waited for
 * the whole copy; without data it updates what is there. */
void emu_global_copy_read(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes);
void emu_global_write_begins(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes, const uint8_t *data);
void emu_global_write_ends(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes);
void emu_global_proxy_fence(cta *m, unsigned memory);
/* See emu_on_map_fence(). */
void emu_global_map_fence(cta *m, const warp *w, int lane, uint64_t address);
void emu_global_map_use(cta *m, const warp *w, int lane, uint64_t address);
/* For the next cluster of a worker. */
void emu_race_table_clear(struct race_table *t);

/* ---- written.c ---- */

/* A kernel writes bytes; the bits of those, up to 32, that nothing has written; an atomic or a reduction updates bytes,
 * which something must have written. */
void emu_global_written(const cta *m, uint64_t address, uint32_t bytes);
/* touch.c: bytes are touched; nothing happens where they were before, or nobody asks. */
void emu_note_touch(const emu_device *device, uint64_t address, uint64_t bytes, emu_touch how);
uint32_t emu_global_unwritten(cta *m, uint64_t address, uint32_t bytes);
/* True if all these bytes of a buffer were written before this launch, or nobody asks. */
bool emu_global_was_set(const cta *m, uint64_t address, uint32_t bytes);
void emu_check_update(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes);

/* True if the launch before has written one of these bytes. */
bool emu_written_by_last(const cta *m, uint64_t address, uint32_t bytes);

/* ---- launches.c ---- */

bool emu_launches_create(cta *m);
void emu_launches_start_cta(cta *m);
void emu_launches_free(cta *m);
/* An access to what the launch before may still write. */
void emu_check_launch_before(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes, const char *verb);

/* ---- explore/happens_before.c: what CTAs know of each other ---- */

void emu_order_start_cta(cta *m);
void emu_order_free(cta *m);
/* A strong access learns what was told at its address, or tells. */
void emu_global_learn(cta *m, warp *w, int lane, uint64_t address, unsigned order);
void emu_global_tell(cta *m, warp *w, int lane, uint64_t address, unsigned order);
/* A store in two steps: its published clock, owned: emu_global_forget(), and its visibility to others. */
struct vector_clock *emu_global_to_tell(cta *m, warp *w, int lane, unsigned order);
void emu_global_told(cta *m, uint64_t address, unsigned order, const struct vector_clock *what);
void emu_global_forget(struct vector_clock *what);
void emu_global_fence(cta *m, warp *w, uint32_t lanes, unsigned order);

#endif
