/* global.c - races in global memory: who touched which byte last, in this CTA, this cluster and, where CTAs tell each
 * other, in the grid.
 *
 * A cell covers the narrowest access of the entry to global memory. It remembers the last write and the last reads of
 * two threads, with the time that their CTA had. Two accesses of a cluster are ordered as those of shared memory are
 * (cells.h); of clusters that tell each other happens_before.c says it. Accesses that are .relaxed, .volatile or
 * stronger, and atomics, do not race with each other, unless the scope of one leaves out the other.
 */
#include "../machine/boxes.h"
#include "cells.h"
#include "races.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_BYTES (1ull << 30)

/* ---- pages ---- */

void **emu_page_slot(page_map *map, uint64_t number) {
    if (2 * map->count >= map->mask) {
        const page_map old = *map;
        const size_t mask = old.mask ? 2 * old.mask + 1 : 255;
        void **slots = calloc(mask + 1, sizeof *slots);
        if (!slots) return NULL;
        *map = (page_map){slots, mask, 0};
        for (size_t i = 0; old.slots && i <= old.mask; i++)
            if (old.slots[i]) {
                *emu_page_slot(map, *(uint64_t *)old.slots[i]) = old.slots[i];
                map->count++;
            }
        free(old.slots);
    }
    size_t at = (size_t)(number * 0x9e3779b97f4a7c15ull >> 32) & map->mask;
    while (map->slots[at] && *(uint64_t *)map->slots[at] != number) at = (at + 1) & map->mask;
    return &map->slots[at];
}

/* Memory for the cells of a cluster; NULL, and the launch reports it, if there is no more. */
static void *take_room(race_table *t, size_t bytes) {
    void *room = t->bytes + bytes > t->all->most_bytes ? NULL : malloc(bytes);
    if (room)
        t->bytes += bytes;
    else
        atomic_store(&t->all->spent, true);
    return room;
}

static page *make_page(race_table *t, uint64_t number) {
    page *made = t->spare;
    if (made)
        t->spare = made->next;
    else if ((made = take_room(t, sizeof *made)))
        made->covered = NULL;
    else
        return NULL;
    memset(made->pieces, 0, sizeof made->pieces);
    memset(made->stripes, 0, sizeof made->stripes);
    made->split = 0;
    made->number = number;
    made->next = t->touched;
    t->touched = made;
    return made;
}

/* NULL, and the launch says so, where there is no more room for it. */
static page *find_page(race_table *t, uint64_t number) {
    page **recent = &t->recent[number % RECENT];
    if (*recent && (*recent)->number == number) return *recent;
    page **slot = (page **)emu_page_slot(&t->map, number);
    if (!slot) atomic_store(&t->all->spent, true);
    if (slot && !*slot && (*slot = make_page(t, number))) t->map.count++;
    return slot && *slot ? (*recent = *slot) : NULL;
}

/* Cells of a piece that no longer needs them. */
typedef struct spare_cells {
    struct spare_cells *next;
} spare_cells;

/* A piece gets the cells of the launch; false, likewise. */
static bool split_piece(race_table *t, page *of, uint32_t offset) {
    const uint32_t count = COARSE >> t->all->shift, piece = offset / COARSE;
    spare_cells *const spare = t->spare_cells;
    global_cell *const cells = spare ? (void *)spare : take_room(t, count * sizeof *cells);
    if (!cells) return false;
    if (spare) t->spare_cells = spare->next;
    of->cells[piece] = cells;
    if (!of->pieces[piece].history) memset(cells, 0, count * sizeof *cells);
    for (uint32_t i = 0; i < count && of->pieces[piece].history; i++) {
        global_cell *cell = &cells[i];
        *cell = of->pieces[piece];
        cell->read.who += lane_of_stripe(of->stripes[piece][0], i << t->all->shift);
        cell->older.who += lane_of_stripe(of->stripes[piece][1], i << t->all->shift);
    }
    of->split |= 1u << piece;
    return true;
}

/* The cell of the launch at an address; NULL likewise. */
static global_cell *find_cell(race_table *t, uint64_t address) {
    page *of = find_page(t, address / PAGE_BYTES);
    const uint32_t offset = address % PAGE_BYTES;
    if (!of || (!is_split(of->split, offset) && !split_piece(t, of, offset))) return NULL;
    return cell_of_page(t->all, of, offset);
}

/* The cell that an address is in, and the address behind it; NULL likewise. */
static const global_cell *look_up(race_table *t, uint64_t address, uint64_t *next) {
    page *of = find_page(t, address / PAGE_BYTES);
    const uint32_t offset = address % PAGE_BYTES, bytes = of ? bytes_of_cell(t->all, of->split, offset) : COARSE;
    *next = (address / bytes + 1) * bytes;
    return of ? cell_of_page(t->all, of, offset) : NULL;
}

bool emu_global_was_written(const cta *m, uint64_t address) {
    race_table *t = m->cluster->races;
    uint64_t next;
    const global_cell *cell = t ? look_up(t, address, &next) : NULL;
    return !cell || cell->write.time; /* without it nobody knows */
}

/* The cells of a page's pieces are free. */
static void spare_pieces(race_table *t, const page *of) {
    for (uint32_t rest = of->split; rest; rest &= rest - 1) {
        spare_cells *spare = (void *)of->cells[first_lane(rest)];
        spare->next = t->spare_cells;
        t->spare_cells = spare;
    }
}

static void free_pages(page *each) {
    while (each) {
        page *next = each->next;
        free(each->covered);
        free(each);
        each = next;
    }
}

static void free_table(race_table *t) {
    for (const page *each = t->touched; each; each = each->next) spare_pieces(t, each);
    for (spare_cells *each = t->spare_cells, *next; each; each = next) {
        next = each->next;
        free(each);
    }
    free_pages(t->touched);
    free_pages(t->spare);
    free(t->map.slots);
}

/* ---- life ---- */

static uint32_t narrowest_access(const entry *code) {
    uint32_t bytes = 16;
    for (size_t i = 0; i < code->op_count; i++) {
        const op *o = &code->ops[i];
        const bool global = o->space == SPACE_GLOBAL || o->space == SPACE_GENERIC || o->space == SPACE_CONST;
        uint32_t own = 16;
        if (o->kind == OP_LOAD || o->kind == OP_STORE || o->kind == OP_ATOMIC) own = (uint32_t)o->bytes * o->vector;
        if (o->kind == OP_SURFACE) own = o->bytes * (uint32_t)o->immediate;
        if (o->kind == OP_WMMA_LOAD || o->kind == OP_WMMA_STORE || o->kind == OP_COPY_ASYNC) own = o->bytes;
        if (global && own && own < bytes) bytes = own;
    }
    return bytes;
}

bool emu_races_create(struct races **made, const entry *code, const emu_launch *launch, const uint32_t cluster[3],
                      bool in_turns) {
    races *r = *made = calloc(1, sizeof *r);
    if (!r) return false;
    *r = (races){.launch = launch, .in_turns = in_turns};
    memcpy(r->cluster, cluster, sizeof r->cluster);
    r->cluster_ctas = cluster[0] * cluster[1] * cluster[2];
    r->warps = (launch->block[0] * launch->block[1] * launch->block[2] + LANES - 1) / LANES;
    r->shift = (uint32_t)__builtin_ctz(narrowest_access(code));
    r->cells = PAGE_BYTES >> r->shift;
    r->most_bytes = launch->race_memory ? launch->race_memory : DEFAULT_BYTES;
    r->shared.all = r;
    return !pthread_mutex_init(&r->lock, NULL);
}

void emu_races_free(struct races *r) {
    if (!r) return;
    free_table(&r->shared);
    emu_forget_addresses(r);
    for (size_t i = 0; r->grid.slots && i <= r->grid.mask; i++) {
        grid_page *each = r->grid.slots[i];
        for (uint32_t rest = each ? each->split : 0; rest; rest &= rest - 1) free(each->cells[first_lane(rest)].all);
        free(each);
    }
    free(r->grid.slots);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

bool emu_races_spent(const struct races *r) {
    return r && atomic_load(&r->spent);
}

struct race_table *emu_race_table(struct races *r) {
    if (!r || r->in_turns) return r ? &r->shared : NULL;
    race_table *own = calloc(1, sizeof *own);
    if (own) own->all = r;
    return own;
}

void emu_race_table_free(struct race_table *t) {
    if (!t || t == &t->all->shared) return;
    free_table(t);
    free(t);
}

void emu_race_table_clear(struct race_table *t) {
    memset(t->recent, 0, sizeof t->recent);
    if (t->map.slots) memset(t->map.slots, 0, (t->map.mask + 1) * sizeof *t->map.slots);
    t->map.count = 0;
    while (t->touched) {
        page *each = t->touched;
        t->touched = each->next;
        spare_pieces(t, each);
        each->next = t->spare;
        t->spare = each;
    }
}

/* ---- order ---- */

/* True if an access lies before what a thread does now. */
bool emu_is_before(cta *m, const warp *w, int lane, const access_note *note, uint32_t rank) {
    if (note->time == TIME_UNTIL_WAIT) return false;
    if (note->cluster != (uint32_t)m->cluster->index) return emu_knows(m, w, lane, note, rank);
    if (rank == m->rank && ordered(m, w, lane, who_thread(note->who), note->time)) return true;
    if (rank != m->rank && ordered_in_cluster(m, w, lane, rank, note->who, note->time)) return true;
    return races_of(m)->in_turns && emu_knows(m, w, lane, note, rank);
}

/* True if neither of two accesses is one that races with everything. */
static bool both_strong(const cta *m, uint32_t who, const access_note *note, uint32_t rank) {
    if (!(who & note->who & WHO_ATOMIC)) return false;
    const bool same_cta = note->cluster == (uint32_t)m->cluster->index && rank == m->rank;
    return same_cta || !((who | note->who) & (uint32_t)WHO_NARROW);
}

/* ---- reports ---- */

void emu_describe_global_of(const emu_device *device, uint64_t address, char *out, size_t bytes) {
    const buffer *b = emu_find_buffer(device, address);
    const uint64_t offset = (address & ((1ull << BUFFER_SHIFT) - 1)) - BUFFER_START;
    if (b && b->name)
        snprintf(out, bytes, "0x%" PRIx64 ", byte %" PRIu64 " of buffer '%.60s'", address, offset, b->name);
    else
        snprintf(out, bytes, "0x%" PRIx64, address);
}

void emu_describe_global(const cta *m, uint64_t address, char *out, size_t bytes) {
    emu_describe_global_of(m->device, address, out, bytes);
}

void emu_locate_cta(const races *r, uint64_t cluster, uint32_t rank, uint32_t cta[3]) {
    for (int i = 0; i < 3; i++) {
        const uint64_t across = r->launch->grid[i] / r->cluster[i];
        cta[i] = (uint32_t)(cluster % across) * r->cluster[i] + rank % r->cluster[i];
        cluster /= across;
        rank /= r->cluster[i];
    }
}

void emu_report_global_race(cta *m, const races *r, const warp *w, int lane, uint64_t address, uint32_t who,
                            uint64_t cluster, uint32_t rank, const char *now, const char *then) {
    char where[160];
    uint32_t cta[3];
    const uint32_t thread = who_thread(who);
    emu_describe_global(m, address, where, sizeof where);
    emu_locate_cta(r, cluster, rank, cta);
    const bool same_cta = cta[0] == m->cta[0] && cta[1] == m->cta[1] && cta[2] == m->cta[2];
    emu_report(m, EMU_RACE, who_instruction(who), w, lane, (int)thread, address,
               "A race in global memory at %s: this thread %s what another thread %s, and nothing orders the two.\n"
               "The other thread: CTA (%u, %u, %u), warp %u, lane %u.\n"
               "%s",
               where, now, then, cta[0], cta[1], cta[2], thread / LANES, thread % LANES,
               same_cta
                   ? "Separate the two by a barrier that both pass: bar.sync (__syncthreads), or bar.warp.sync "
                     "(__syncwarp) within a warp."
                   : "Only the end of the kernel orders CTAs, or a release behind the one access (fence.acq_rel.gpu "
                     "or __threadfence(), then an atomic; or an atomic with .release) that an acquire before the "
                     "other has seen. Other threads of the two CTAs need a barrier to those that do so.");
}

static void report_unfinished(cta *m, const warp *w, int lane, uint64_t address, uint32_t who, const char *now) {
    char where[160];
    emu_describe_global(m, address, where, sizeof where);
    emu_report(m, EMU_ASYNC_IN_FLIGHT, who_instruction(who), w, lane, (int)who_thread(who), address,
               "This thread %s global memory at %s while a bulk copy may still write it.\n"
               "cp.async.bulk.wait_group.read waits until shared memory has been read: the thread that copies needs "
               "cp.async.bulk.wait_group without .read, and then synchronizes with this thread.",
               now, where);
}

/* For whoever asks what a CTA remembers: another thread of it was there before the ticket, or a store still is. */
static void note_meeting(const cta *m, const warp *w, int lane, const access_note *note) {
    checks *const shadow = m->checks;
    if (!shadow->ticket || note->cluster != (uint32_t)m->cluster->index) return;
    const bool other = who_thread(note->who) != (uint32_t)(w->index * LANES + lane);
    shadow->ticket->meets |= note->time == TIME_UNTIL_WAIT || (other && note->time <= shadow->ticket->since);
}

/* An access `now` of a cell that `then` touched before. */
static void check(cta *m, const warp *w, int lane, uint64_t address, const access_note *note, uint32_t rank,
                  const char *now, const char *then) {
    note_meeting(m, w, lane, note);
    if (emu_is_before(m, w, lane, note, rank)) return;
    if (note->time == TIME_UNTIL_WAIT && note->cluster == (uint32_t)m->cluster->index)
        report_unfinished(m, w, lane, address, note->who, now);
    else
        emu_report_global_race(m, races_of(m), w, lane, address, note->who, note->cluster, rank, now, then);
}

/* ---- accesses ---- */

static uint32_t hash(const uint8_t *bytes, uint32_t count) {
    uint32_t value = 2166136261u;
    uint64_t sum = 0, word;
    for (; count >= sizeof word; bytes += sizeof word, count -= (uint32_t)sizeof word) {
        memcpy(&word, bytes, sizeof word);
        add_word(&sum, word);
    }
    for (uint32_t i = 0; i < count; i++) value = (value ^ bytes[i]) * 16777619u;
    return value ^ (uint32_t)(sum >> 16);
}

/* For whoever asks what a CTA does with a ticket, in whatever order. */
static void note_work(const cta *m, uint64_t address, uint32_t bytes, bool writes, const uint8_t *data) {
    checks *const shadow = m->checks;
    if (!shadow->ticket) return;
    uint64_t sum = 1;
    add_word(&sum, address);
    add_word(&sum, (uint64_t)bytes << 1 | writes);
    for (uint32_t i = 0; data && i < bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, data + i, bytes - i < 8 ? bytes - i : 8);
        add_word(&sum, word);
    }
    shadow->ticket->sum += sum;
}

/* Facts that other checks need about an access; how: its meaning for bytes that nothing touched before. */
static inline void follow(const cta *m, uint64_t address, uint32_t bytes, emu_touch how, bool writes,
                          const uint8_t *data) {
    if (!m->checks->follows) return;
    emu_note_touch(m->device, address, bytes, how);
    note_work(m, address, bytes, writes, data);
}

static inline bool same_warp(const access_note *note, uint32_t note_rank, const access_note *own, uint32_t rank) {
    return note->cluster == own->cluster && note_rank == rank &&
           who_thread(note->who) / LANES == who_thread(own->who) / LANES;
}

/* Returns whether the last read becomes the older one. */
static inline bool note_read(global_cell *cell, access_note own, uint32_t rank) {
    const bool warp = same_warp(&cell->read, cell->read_rank, &own, rank);
    const bool ages = cell->read.time && !(warp && who_thread(cell->read.who) == who_thread(own.who)) &&
                      (!warp || !cell->older.time || same_warp(&cell->older, cell->older_rank, &own, rank));
    if (ages) {
        cell->older = cell->read;
        cell->older_rank = cell->read_rank;
    }
    cell->read = own;
    cell->read_rank = (uint8_t)rank;
    cell->history |= DID_READ | (own.who & WHO_ATOMIC ? DID_ASK : DID_LOAD);
    return ages;
}

static inline access_note own_note(const cta *m, const warp *w, int lane, unsigned order) {
    const bool narrow = order & ORDER_CTA || (order & ORDER_CLUSTER && m->cluster->count == 1);
    const uint32_t strength = (order & ORDER_STRONG ? WHO_ATOMIC : 0) | (narrow ? (uint32_t)WHO_NARROW : 0);
    return (access_note){w->clock, pack_who(m, w, lane) | strength, (uint32_t)m->cluster->index};
}

/* A read of a whole piece that nothing else was done to. False: its cells may differ then, and nothing is noted. */
static bool read_piece(race_table *t, uint64_t address, access_note own, uint32_t rank, uint8_t stripe) {
    page *of = find_page(t, address / PAGE_BYTES);
    if (!of || is_split(of->split, address % PAGE_BYTES)) return false;
    global_cell *cell = &of->pieces[address % PAGE_BYTES / COARSE];
    uint8_t *stripes = of->stripes[address % PAGE_BYTES / COARSE];
    if (cell->read.time && stripes[0] != stripe && same_warp(&cell->read, cell->read_rank, &own, rank)) return false;
    if (note_read(cell, own, rank)) stripes[1] = stripes[0];
    stripes[0] = stripe;
    return true;
}

/* A read of whole pieces of pages that nothing else was done to: how many of the bytes are such pieces. */
static uint32_t read_pieces(race_table *t, uint64_t address, uint32_t bytes, access_note own, uint32_t rank) {
    uint32_t read = 0;
    while (!(address % COARSE) && bytes - read >= COARSE && read_piece(t, address, own, rank, 0))
        read += COARSE, address += COARSE;
    return read;
}

/* The cell's entry of a covered atomic; NULL if there is none and none is added, or when out of memory. */
static covered_note *covered_of(const cta *m, uint64_t address, global_cell *cell, bool add) {
    race_table *t = m->cluster->races;
    page *of = cell->history & COVERS || add ? find_page(t, address / PAGE_BYTES) : NULL;
    if (!of) return NULL;
    if (!of->covered) of->covered = calloc(t->all->cells, sizeof *of->covered);
    return of->covered ? &of->covered[address % PAGE_BYTES >> t->all->shift] : NULL;
}

static void check_covered(cta *m, const warp *w, int lane, uint64_t address, global_cell *cell, uint32_t who,
                          const char *now) {
    const covered_note *old = cell->history & COVERS ? covered_of(m, address, cell, false) : NULL;
    if (old && !both_strong(m, who, &old->note, old->rank))
        check(m, w, lane, address, &old->note, old->rank, now, old->note.who & WHO_ATOMIC ? "updated" : "wrote");
}

static void report_constant(cta *m, const warp *w, int lane, const op *o, uint64_t address, uint32_t who) {
    char where[160];
    const bool texture = o->kind == OP_TEXTURE, constant = o->space == SPACE_CONST;
    emu_describe_global(m, address, where, sizeof where);
    emu_report(m, EMU_RACE, who_instruction(who), w, lane, (int)who_thread(who), address,
               "A race in global memory at %s: this thread reads by %s what this kernel wrote, and no barrier or fence "
               "orders such a load, which may return an older value from a cache.\n"
               "%s",
               where,
               texture    ? "a texture"
               : constant ? "ld.const"
                          : "ld.global.nc",
               texture    ? "Read it by a surface or by ld.global, or write it in an earlier launch."
               : constant ? "Write constants in an earlier launch or a copy, or read global memory instead."
                          : "Read it by ld.global: without __ldg() and without const __restrict__.");
}

void emu_global_constant_read(cta *m, const warp *w, int lane, const op *o, uint64_t address, uint32_t bytes) {
    race_table *t = m->cluster->races;
    if (!t) return;
    for (uint64_t at = address, next; at < address + bytes; at = next) {
        const global_cell *cell = look_up(t, at, &next);
        if (cell && cell->write.time &&
            emu_is_before(m, w, lane, &cell->write, cell->write_rank)) { /* else it is a plain race */
            report_constant(m, w, lane, o, at, cell->write.who);
            return;
        }
    }
}

void emu_global_read(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes, unsigned order) {
    race_table *t = m->cluster->races;
    if (!t) return;
    const uint32_t shift = t->all->shift;
    const access_note own = own_note(m, w, lane, order);
    const uint64_t end = (address + bytes - 1) >> shift;
    follow(m, address, bytes, EMU_READ_FIRST, false, NULL);
    for (uint64_t i = (address + read_pieces(t, address, bytes, own, m->rank)) >> shift; i <= end; i++) {
        global_cell *cell = find_cell(t, i << shift);
        if (!cell) continue;
        if (cell->write.time && !both_strong(m, own.who, &cell->write, cell->write_rank))
            check(m, w, lane, i << shift, &cell->write, cell->write_rank, "reads", "wrote");
        check_covered(m, w, lane, i << shift, cell, own.who, "reads");
        note_read(cell, own, m->rank);
    }
}

bool emu_global_piece_read(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes) {
    race_table *t = m->cluster->races;
    return t && read_piece(t, address, own_note(m, w, lane, 0), m->rank, (uint8_t)__builtin_ctz(bytes));
}

/* Earlier readers. */
static void check_readers(cta *m, const warp *w, int lane, uint64_t address, global_cell *cell, uint32_t who,
                          const char *now) {
    if (cell->read.time && !both_strong(m, who, &cell->read, cell->read_rank))
        check(m, w, lane, address, &cell->read, cell->read_rank, now, "read");
    if (cell->older.time && !both_strong(m, who, &cell->older, cell->older_rank))
        check(m, w, lane, address, &cell->older, cell->older_rank, now, "read");
    cell->read.time = cell->older.time = 0; /* once is enough */
}

/* An atomic covers a plain store before it: for a thread that is not ordered after the store, they race. It also covers
 * an atomic that nothing orders before it: a plain read that follows would see the last alone. If two are covered, the
 * one of another CTA is kept. If the result of an atomic is used, the thread may learn from it what happened before. */
static void note_covered(cta *m, const warp *w, int lane, uint64_t address, global_cell *cell, access_note own,
                         bool asks) {
    const access_note last = cell->write;
    const bool update = own.who & WHO_ATOMIC, strong = update && last.who & WHO_ATOMIC;
    const covered_note *old = covered_of(m, address, cell, false);
    const bool store = old && update && !(old->note.who & WHO_ATOMIC);
    if (!store && (!old || asks || !strong || emu_is_before(m, w, lane, &old->note, old->rank)))
        cell->history &= (uint8_t)~COVERS;
    if (!update || !last.time) return;
    if (strong && (asks || emu_is_before(m, w, lane, &last, cell->write_rank))) return;
    if (cell->history & COVERS && last.cluster == own.cluster && cell->write_rank == m->rank) return;
    covered_note *added = covered_of(m, address, cell, true);
    if (!added) return;
    *added = (covered_note){last, cell->write_rank};
    cell->history |= COVERS;
}

/* there: the bytes that data replaces; both NULL where these are not known. */
static void write_cell(cta *m, const warp *w, int lane, uint64_t address, global_cell *cell, access_note own,
                       const uint8_t *data, const uint8_t *there, uint32_t bytes, enum write_kind kind) {
    const bool update = kind != WRITE;
    const char *now = update ? "updates" : "writes";
    const bool same = data && there && who_instruction(cell->write.who) == m->here && !memcmp(data, there, bytes);
    if (cell->write.time && !same && !both_strong(m, own.who, &cell->write, cell->write_rank))
        check(m, w, lane, address, &cell->write, cell->write_rank, now, "wrote");
    check_covered(m, w, lane, address, cell, own.who, now);
    check_readers(m, w, lane, address, cell, own.who, now);
    /* a store that its own thread follows with an atomic remains a store for those that are not ordered after it */
    const bool covers_store = update && cell->write.time && !(cell->write.who & WHO_ATOMIC) &&
                              same_warp(&cell->write, cell->write_rank, &own, m->rank) &&
                              who_thread(cell->write.who) == who_thread(own.who) && cell->write.time == own.time;
    if (covers_store) own.who &= ~WHO_ATOMIC;
    note_covered(m, w, lane, address, cell, own, kind == UPDATE_AND_ASK);
    cell->write = own;
    cell->write_rank = (uint8_t)m->rank;
    cell->history &= (uint8_t)~LAST_ASYNC;
    cell->history |= own.who & WHO_ATOMIC ? DID_UPDATE : DID_WRITE;
    if (own.who & (uint32_t)WHO_NARROW && own.who & WHO_ATOMIC) cell->history |= DID_NARROW;
    if (data) cell->value = hash(data, bytes);
}

/* ---- copies under way that read what is written ---- */

static void report_map(cta *m, const warp *w, int lane, uint64_t address, const bulk_copy *copy) {
    char where[160];
    emu_describe_global(m, address, where, sizeof where);
    emu_report(m, EMU_ASYNC_IN_FLIGHT, copy->instruction, w, lane, copy->warp * LANES + copy->lane, address,
               "This thread changes the tensor map at %s while a bulk copy may still use it.\n"
               "A thread must first wait for the copy (%s), and tell this thread. Or let the next tensor have a map of "
               "its own.",
               where, copy->is_store ? "cp.async.bulk.wait_group.read" : "the phase of its mbarrier");
}

static void report_source(cta *m, const warp *w, int lane, uint64_t address, uint32_t instruction, uint32_t thread,
                          bool bulk) {
    char where[160];
    emu_describe_global(m, address, where, sizeof where);
    emu_report(m, EMU_ASYNC_IN_FLIGHT, instruction, w, lane, (int)thread, address,
               "This thread writes global memory at %s while a %s may still read it.\n%s", where,
               bulk ? "bulk copy" : "cp.async",
               bulk ? "A thread must first see the phase of the copy's mbarrier complete, and tell this thread."
                    : "Its thread must first wait for it (cp.async.wait_group or wait_all), and tell this thread.");
}

/* A bulk copy under way that reads some of these bytes, or whose tensor map they belong to; NULL if there is none. */
static const bulk_copy *bulk_reader(const cta *m, uint64_t address, uint32_t bytes) {
    for (uint32_t rank = 0; rank < m->cluster->count; rank++) {
        cta *from = &m->cluster->ctas[rank];
        for (size_t i = 0; i < from->bulk_count; i++) {
            const bulk_copy *copy = &from->bulk[i];
            if (emu_takes_map(copy, address, bytes) || emu_copies_from(from, copy, address, bytes)) return copy;
        }
    }
    return NULL;
}

static void check_sources(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes) {
    const uint8_t *begin = NULL;
    const bulk_copy *bulk = bulk_reader(m, address, bytes);
    if (bulk && emu_takes_map(bulk, address, bytes))
        report_map(m, w, lane, address, bulk);
    else if (bulk)
        report_source(m, w, lane, address, bulk->instruction, (uint32_t)(bulk->warp * LANES + bulk->lane), true);
    for (uint32_t i = 0; i < m->warp_count; i++) {
        const warp *from = &m->warps[i];
        if (!from->copy_count) continue;
        if (!begin) begin = emu_host_bytes(m->device, address);
        if (!begin || begin >= from->copies_end || begin + bytes <= from->copies_begin) continue;
        for (size_t k = 0; k < from->copy_count; k++) {
            const async_copy *copy = &from->copies[k];
            if (begin >= copy->source + copy->source_bytes || begin + bytes <= copy->source) continue;
            report_source(m, w, lane, address, copy->instruction, i * LANES + copy->lane, false);
            return;
        }
    }
}

/* Note a store to cells that nothing has accessed. False: something has, and nothing is noted. */
static inline bool write_new_cells(race_table *t, uint64_t address, uint32_t bytes, access_note own, uint32_t rank,
                                   const uint8_t *data) {
    const uint32_t shift = t->all->shift, count = bytes >> shift;
    global_cell *cells = find_cell(t, address); /* all in one piece */
    bool new = cells && count;
    for (uint32_t i = 0; i < count && new; i++) new = !cells[i].history;
    for (uint32_t i = 0; i < count && new; i++) {
        cells[i].write = own;
        cells[i].write_rank = (uint8_t)rank;
        cells[i].history = DID_WRITE;
        cells[i].value = hash(data + (i << shift), 1u << shift);
    }
    return new;
}

static void write_cells(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes, access_note own,
                        const uint8_t *data, const uint8_t *there, enum write_kind kind) {
    race_table *t = m->cluster->races;
    const uint32_t shift = t->all->shift;
    const uint64_t last = address + bytes - 1, end = last >> shift;
    follow(m, address, bytes, kind == WRITE ? EMU_WRITTEN_FIRST : EMU_READ_FIRST, true, data);
    emu_global_written(m, address, bytes);
    check_sources(m, w, lane, address, bytes);
    const bool plain = data && kind == WRITE && !(own.who & WHO_ATOMIC), one_piece = address / COARSE == last / COARSE;
    if (plain && one_piece && write_new_cells(t, address, bytes, own, m->rank, data)) return;
    for (uint64_t i = address >> shift; i <= end; i++) {
        global_cell *cell = find_cell(t, i << shift);
        if (!cell) continue;
        const uint64_t begin = i << shift < address ? address : i << shift;
        const uint64_t stop = (i + 1) << shift > address + bytes ? address + bytes : (i + 1) << shift;
        const uint64_t skipped = begin - address;
        write_cell(m, w, lane, begin, cell, own, data ? data + skipped : NULL, there ? there + skipped : NULL,
                   (uint32_t)(stop - begin), kind);
    }
}

uint32_t emu_global_lanes_write(cta *m, const warp *w, uint32_t lanes, const uint64_t *addresses, uint32_t bytes,
                                stored_values data) {
    race_table *t = m->cluster->races;
    uint64_t begin = UINT64_MAX, end = 0;
    uint32_t noted = 0;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        const uint64_t address = addresses[first_lane(rest)];
        begin = begin < address ? begin : address;
        end = end > address + bytes ? end : address + bytes;
    }
    const uint32_t range = end - begin < UINT32_MAX ? (uint32_t)(end - begin) : UINT32_MAX;
    if (!t || range == UINT32_MAX || bulk_reader(m, begin, range)) return 0; /* what cp.async read is no new cell */
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        if (!write_new_cells(t, addresses[lane], bytes, own_note(m, w, lane, 0), m->rank, data[lane])) break;
        emu_global_written(m, addresses[lane], bytes);
        noted |= 1u << lane;
    }
    return noted;
}

void emu_global_write(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes, unsigned order,
                      const uint8_t *data, const uint8_t *there) {
    if (m->cluster->races) write_cells(m, w, lane, address, bytes, own_note(m, w, lane, order), data, there, WRITE);
}

void emu_global_update(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes, unsigned order, bool asks) {
    if (m->cluster->races)
        write_cells(m, w, lane, address, bytes, own_note(m, w, lane, order | ORDER_STRONG), NULL, NULL,
                    asks ? UPDATE_AND_ASK : UPDATE);
}

/* ---- bulk copies ---- */

/* The cells that elements side by side fill: others at the ends are left out. */
static bool whole_cells(const race_table *t, uint64_t *address, uint32_t *bytes) {
    const uint64_t cell = 1ull << t->all->shift, begin = (*address + cell - 1) & ~(cell - 1),
                   end = (*address + *bytes) & ~(cell - 1);
    *address = begin;
    *bytes = end > begin ? (uint32_t)(end - begin) : 0;
    return end > begin;
}

static void check_proxy(cta *m, const warp *w, int lane, uint64_t address, const global_cell *cell) {
    const access_note *store = &cell->write;
    const bool own = store->cluster == (uint32_t)m->cluster->index && cell->write_rank == m->rank;
    char where[160];
    if (cell->history & LAST_ASYNC || !emu_is_before(m, w, lane, store, cell->write_rank))
        return; /* the latter is a race */
    if (own ? emu_proxy_sees(m, w, lane, who_thread(store->who), store->time, true) : races_of(m)->fenced) return;
    emu_describe_global(m, address, where, sizeof where);
    emu_report(
        m, EMU_MISSING_PROXY_FENCE, who_instruction(store->who), w, lane, (int)who_thread(store->who), address,
        "This bulk copy reads global memory at %s through the async proxy, but an ordinary store of this kernel "
        "wrote it, without a fence.proxy.async in between.\n"
        "The storing thread must execute fence.proxy.async (or fence.proxy.async.global) after the store, and then "
        "synchronize with the thread that copies.",
        where);
}

void emu_global_copy_read(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes) {
    race_table *t = m->cluster->races;
    if (m->checks->follows) emu_note_touch(m->device, address, bytes, EMU_READ_FIRST);
    if (!t || !whole_cells(t, &address, &bytes)) return;
    for (uint64_t at = address, next; at < address + bytes; at = next) {
        const global_cell *cell = look_up(t, at, &next);
        if (cell && cell->write.time) check_proxy(m, w, lane, at, cell);
    }
    emu_global_read(m, w, lane, address, bytes, 0);
}

void emu_global_write_begins(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes, const uint8_t *data) {
    race_table *t = m->cluster->races;
    const uint64_t begin = address;
    if (m->checks->follows) emu_note_touch(m->device, address, bytes, data ? EMU_WRITTEN_FIRST : EMU_READ_FIRST);
    if (!t || !whole_cells(t, &address, &bytes)) return;
    access_note own = own_note(m, w, lane, data ? 0 : ORDER_STRONG);
    own.time = TIME_UNTIL_WAIT;
    if (!data) emu_check_update(m, w, lane, address, bytes);
    write_cells(m, w, lane, address, bytes, own, data ? data + (address - begin) : NULL,
                emu_host_bytes(m->device, address), data ? WRITE : UPDATE);
}

void emu_global_write_ends(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes) {
    race_table *t = m->cluster->races;
    if (!t || !whole_cells(t, &address, &bytes)) return;
    const uint32_t shift = t->all->shift;
    const access_note own = own_note(m, w, lane, 0);
    for (uint64_t i = address >> shift; i < (address + bytes) >> shift; i++) {
        global_cell *cell = find_cell(t, i << shift);
        if (!cell || cell->write.time != TIME_UNTIL_WAIT || cell->write.cluster != own.cluster) continue;
        if (cell->write_rank != m->rank || who_thread(cell->write.who) != who_thread(own.who)) continue;
        cell->write.time = w->clock;
        cell->history |= LAST_ASYNC;
    }
}

/* ---- tensor maps, which copies use through a proxy of their own ---- */

/* The last writes by this kernel of a tensor map, as a number; 0: none, or one that is not ordered before a lane. */
static uint64_t writes_of_map(cta *m, const warp *w, int lane, uint64_t address) {
    race_table *t = m->cluster->races;
    uint64_t sum = 0;
    for (uint64_t at = address, next; t && at < address + EMU_TENSOR_MAP_BYTES; at = next) {
        const global_cell *cell = look_up(t, at, &next);
        if (cell && cell->write.time) {
            const access_note *write = &cell->write;
            const bool own_warp = write->cluster == (uint32_t)m->cluster->index && cell->write_rank == m->rank &&
                                  who_thread(write->who) / LANES == (uint32_t)w->index;     /* it may write together */
            if (!own_warp && !emu_is_before(m, w, lane, write, cell->write_rank)) return 0; /* else it is a race */
            add_word(&sum, at);
            add_word(&sum, (uint64_t)write->cluster << 32 | write->time);
            add_word(&sum, (uint64_t)write->who << 32 | cell->write_rank);
        }
    }
    return sum;
}

void emu_global_map_fence(cta *m, const warp *w, int lane, uint64_t address) {
    checks *const shadow = m->checks;
    const uint64_t written = writes_of_map(m, w, lane, address);
    map_fence *last = shadow->map_fence_count ? &shadow->map_fences[shadow->map_fence_count - 1] : NULL;
    if (!written || shadow->map_fence_count == MAP_FENCES) return;
    if (last && last->address == address && last->written == written && last->warp == (uint32_t)w->index)
        last->lanes |= 1u << lane;
    else
        shadow->map_fences[shadow->map_fence_count++] =
            (map_fence){address, written, (uint32_t)w->index, 1u << lane, w->clock};
}

/* True if a lane has executed a fence, or is ordered after a lane that has. */
static bool is_after_fence(const cta *m, const warp *w, int lane, const map_fence *f) {
    if (f->warp == (uint32_t)w->index && f->lanes >> lane & 1) return true;
    for (uint32_t rest = f->lanes; rest; rest &= rest - 1)
        if (ordered(m, w, lane, f->warp * LANES + (uint32_t)first_lane(rest), f->time)) return true;
    return false;
}

void emu_global_map_use(cta *m, const warp *w, int lane, uint64_t address) {
    const uint64_t written = writes_of_map(m, w, lane, address);
    if (!written) return;
    for (uint32_t rank = 0; rank < m->cluster->count; rank++) {
        const checks *of = m->cluster->ctas[rank].checks;
        if (of->map_fence_count == MAP_FENCES || (rank != m->rank && of->map_fence_count)) return; /* perhaps there */
    }
    for (uint32_t i = 0; i < m->checks->map_fence_count; i++) {
        const map_fence *f = &m->checks->map_fences[i];
        if (f->address == address && f->written == written && is_after_fence(m, w, lane, f)) return;
    }
    char where[160];
    emu_describe_global(m, address, where, sizeof where);
    emu_report(
        m, EMU_MISSING_PROXY_FENCE, UINT32_MAX, w, lane, -1, address,
        "This copy uses the tensor map at %s, which this kernel has written, without a fence.proxy.tensormap.\n"
        "A thread that is ordered after the write must execute fence.proxy.tensormap::generic.acquire.gpu [map], 128 "
        "before the copy.",
        where);
}

void emu_global_proxy_fence(cta *m, unsigned memory) {
    if (m->cluster->races && memory & FENCED_GLOBAL) atomic_store(&m->cluster->races->all->fenced, true);
}
