/* footprint.c - what an operation did to global memory, to compare two that nothing orders: see
 * emu_compare_footprints().
 *
 * The footprint of a launch comes from the cells of its search for races. It has runs of bytes to which the same
 * instructions did the same, in the order of their addresses.
 */
#include "races.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = DID_READ | DID_WRITE | DID_UPDATE | DID_LOAD | DID_ASK, MOST_RUNS = 1 << 20 };

typedef struct access_run {
    uint64_t address, bytes;
    uint32_t did, reader, writer; /* DID_… of races.h; instructions */
} access_run;

struct emu_footprint {
    char *name;
    const entry *code; /* NULL of a copy */
    access_run *runs;
    size_t count, capacity;
};

emu_footprint *emu_footprint_new(const char *name) {
    emu_footprint *made = calloc(1, sizeof *made);
    if (made) made->name = emu_copy_text(name);
    return made;
}

void emu_footprint_free(emu_footprint *f) {
    if (!f) return;
    free(f->name);
    free(f->runs);
    free(f);
}

/* Runs after the first MOST_RUNS are left out. */
static void add_run(emu_footprint *f, access_run run) {
    access_run *last = f->count ? &f->runs[f->count - 1] : NULL;
    if (last && last->address + last->bytes == run.address && last->did == run.did && last->reader == run.reader &&
        last->writer == run.writer) {
        last->bytes += run.bytes;
        return;
    }
    access_run *more = f->count < MOST_RUNS ? emu_reserve(f->runs, f->count + 1, &f->capacity, sizeof *more) : NULL;
    if (!more) return;
    f->runs = more;
    more[f->count++] = run;
}

void emu_footprint_add(emu_footprint *f, uint64_t address, uint64_t bytes, bool writes) {
    if (bytes) add_run(f, (access_run){address, bytes, writes ? DID_WRITE : DID_READ | DID_LOAD, 0, 0});
}

/* ---- launches ---- */

static int by_number(const void *a, const void *b) {
    const uint64_t x = **(uint64_t *const *)a, y = **(uint64_t *const *)b;
    return x < y ? -1 : x > y;
}

/* The cell at an offset in a page. */
static access_run run_of(const races *r, void *of, uint32_t offset) {
    page *own = of;
    const grid_page *merged = of;
    const uint32_t split = r->in_turns ? own->split : merged->split;
    access_run run = {.address = *(const uint64_t *)of * PAGE_BYTES + offset, .bytes = bytes_of_cell(r, split, offset)};
    if (r->in_turns) {
        const global_cell *cell = cell_of_page(r, own, offset);
        run.did = cell->history & KINDS;
        run.reader = who_instruction(cell->read.who);
        run.writer = who_instruction(cell->write.who);
    } else {
        const grid_cell cell = emu_grid_cell(r, merged, offset);
        run.did = cell.history & KINDS;
        run.reader = emu_grid_instruction(cell.reads.least);
        run.writer = emu_grid_instruction(cell.writes.least ? cell.writes.least : cell.updates.least);
    }
    if (!(run.did & DID_READ)) run.reader = 0;
    if (!(run.did & (DID_WRITE | DID_UPDATE))) run.writer = 0;
    return run;
}

static void add_page(emu_footprint *f, const races *r, void *of) {
    access_run run;
    for (uint32_t offset = 0; offset < PAGE_BYTES; offset += (uint32_t)run.bytes) {
        run = run_of(r, of, offset);
        if (run.did) add_run(f, run);
    }
}

static bool is_in_heap(const emu_device *device, uint64_t address) {
    const buffer *b = emu_find_buffer(device, address);
    return b && b->in_heap;
}

struct emu_footprint *emu_footprint_of(const struct races *r, const emu_device *device, const entry *code) {
    size_t count = 0;
    void **pages = malloc((r->in_turns ? r->shared.map.count + 1 : r->grid.count + 1) * sizeof *pages);
    emu_footprint *made = pages ? emu_footprint_new(code->info.name) : NULL;
    if (!made) {
        free(pages);
        return NULL;
    }
    const page_map *map = r->in_turns ? &r->shared.map : &r->grid;
    for (size_t i = 0; map->slots && i <= map->mask; i++)
        if (map->slots[i]) pages[count++] = map->slots[i];
    qsort(pages, count, sizeof *pages, by_number);
    made->code = code;
    for (size_t i = 0; i < count; i++)
        if (!is_in_heap(device, *(const uint64_t *)pages[i] * PAGE_BYTES)) add_page(made, r, pages[i]);
    free(pages);
    return made;
}

emu_footprint *emu_take_footprint(emu_device *device) {
    emu_footprint *taken = device->footprint;
    device->footprint = NULL;
    return taken;
}

/* ---- comparison ---- */

/* Strong accesses, and atomics, do not race with each other. */
static bool conflict(uint32_t a, uint32_t b) {
    return a & DID_WRITE || b & DID_WRITE || (a & DID_UPDATE && b & DID_LOAD) || (b & DID_UPDATE && a & DID_LOAD);
}

/* The next two runs that share bytes, from *i and *k on; false at the end. */
static bool next_shared(const emu_footprint *a, const emu_footprint *b, size_t *i, size_t *k) {
    while (*i < a->count && *k < b->count) {
        const access_run *x = &a->runs[*i], *y = &b->runs[*k];
        if (x->address + x->bytes <= y->address)
            ++*i;
        else if (y->address + y->bytes <= x->address)
            ++*k;
        else
            return true;
    }
    return false;
}

/* Skip the one of two runs that ends first. */
static void skip(const emu_footprint *a, const emu_footprint *b, size_t *i, size_t *k) {
    const access_run *x = &a->runs[*i], *y = &b->runs[*k];
    if (x->address + x->bytes < y->address + y->bytes)
        ++*i;
    else
        ++*k;
}

static bool is_written(uint32_t did) {
    return did & (DID_WRITE | DID_UPDATE);
}

static emu_location location_in(const emu_footprint *f, const access_run *run) {
    if (!f->code) return (emu_location){.ptx = ""};
    return emu_location_of(f->code, is_written(run->did) ? run->writer : run->reader);
}

static void describe(emu_device *device, const emu_footprint *now, const emu_footprint *before, const access_run *x,
                     const access_run *y, emu_finding *found) {
    char where[160], sentences[900];
    const uint64_t address = x->address > y->address ? x->address : y->address;
    emu_describe_global_of(device, address, where, sizeof where);
    snprintf(sentences, sizeof sentences,
             "A race in global memory at %s: this %s %s what %s%.100s %s before, and no stream, event or wait orders "
             "the two, so they may overlap.\n"
             "Put both on one stream, or let this stream wait for an event that is recorded after the other "
             "(cuStreamWaitEvent, cudaStreamWaitEvent), or wait for the other on the host.",
             where, now->code ? "kernel" : "operation",
             x->did & DID_WRITE    ? "writes"
             : x->did & DID_UPDATE ? "updates"
                                   : "reads",
             before->code ? "kernel " : "", before->name,
             y->did & DID_WRITE    ? "wrote"
             : y->did & DID_UPDATE ? "updated"
                                   : "read");
    *found = (emu_finding){.class_ = EMU_RACE,
                           .count = 1,
                           .here = location_in(now, x),
                           .other = location_in(before, y),
                           .warp = -1,
                           .lane = -1,
                           .other_warp = -1,
                           .other_lane = -1,
                           .address = address};
    found->message = emu_compose_message(EMU_RACE, &found->here, "", sentences, &found->other);
}

bool emu_compare_footprints(emu_device *device, const emu_footprint *now, const emu_footprint *before,
                            const char *ignore, emu_finding *found) {
    const access_run *first = NULL, *other = NULL;
    for (size_t i = 0, k = 0; next_shared(now, before, &i, &k); skip(now, before, &i, &k)) {
        const access_run *x = &now->runs[i], *y = &before->runs[k];
        if (x->did & DID_ASK && y->did & DID_UPDATE) return false; /* a flag, which may order the two */
        if (first || !conflict(x->did, y->did)) continue;
        first = x;
        other = y;
    }
    ignored_list list = {0};
    emu_error error;
    if (!first || !emu_parse_ignored(ignore, &list, &error)) return false;
    describe(device, now, before, first, other, found);
    if (!emu_is_ignored(&list, EMU_RACE, &found->here, &found->other)) return found->message != NULL;
    free((void *)(uintptr_t)found->message);
    return false;
}
