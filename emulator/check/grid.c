/* grid.c - races in global memory between clusters that never tell each other: nothing but the end of the kernel orders
 * them, so a byte that one of them writes is no other's.
 *
 * They run on several threads of the host. As a cluster ends, what it did goes to cells of the launch, which keep the
 * first and the last cluster of each kind of access: the same in any order.
 */
#include "races.h"

#include <stdlib.h>
#include <string.h>

enum { WHO_BITS = 30, RANK_BITS = 4 };
_Static_assert(MAX_CLUSTER <= 1 << RANK_BITS, "a rank has its bits");

static uint64_t pack(const access_note *note, uint32_t rank) {
    return 1 + (((uint64_t)note->cluster << RANK_BITS | rank) << WHO_BITS | (note->who & ((1u << WHO_BITS) - 1)));
}
static uint64_t cluster_of(uint64_t packed) {
    return (packed - 1) >> (WHO_BITS + RANK_BITS);
}
static uint32_t rank_of(uint64_t packed) {
    return (uint32_t)((packed - 1) >> WHO_BITS) & ((1u << RANK_BITS) - 1);
}
static uint32_t who_of(uint64_t packed) {
    return (uint32_t)(packed - 1) & ((1u << WHO_BITS) - 1);
}

uint32_t emu_grid_instruction(uint64_t packed) {
    return packed ? who_instruction(who_of(packed)) : 0;
}

static void add(extremes *to, const access_note *note, uint32_t rank) {
    const uint64_t packed = pack(note, rank);
    if (!to->least || packed < to->least) to->least = packed;
    if (packed > to->greatest) to->greatest = packed;
}

static void add_cell(grid_cell *to, const global_cell *cell) {
    if (cell->history & DID_READ) add(&to->reads, &cell->read, cell->read_rank);
    if (cell->history & DID_UPDATE) add(&to->updates, &cell->write, cell->write_rank);
    to->narrow |= (cell->history & DID_NARROW) != 0;
    to->history |= cell->history;
    if (!(cell->history & DID_WRITE)) return;
    const uint64_t known = to->writes.least;
    to->differs |=
        known && (to->value != cell->value || who_instruction(who_of(known)) != who_instruction(cell->write.who));
    to->value = cell->value;
    add(&to->writes, &cell->write, cell->write_rank);
}

static grid_cell cell_of_single(const single_access *one) {
    const extremes both = {one->access, one->access};
    grid_cell cell = {.value = one->value, .narrow = one->history & DID_NARROW, .history = one->history};
    *(one->history & DID_READ ? &cell.reads : one->history & DID_WRITE ? &cell.writes : &cell.updates) = both;
    return cell;
}

grid_cell emu_grid_cell(const races *r, const grid_page *of, uint32_t offset) {
    const uint32_t piece = offset / COARSE, at = offset % COARSE >> r->shift;
    if (!is_split(of->split, offset)) return of->pieces[piece];
    return is_split(of->met, offset) ? of->cells[piece].all[at] : cell_of_single(&of->cells[piece].single[at]);
}

/* Memory for the cells of the launch; NULL, and it reports that, if there is no more. */
static void *take_room(races *r, size_t bytes) {
    void *room = r->grid_bytes + bytes > r->most_bytes ? NULL : calloc(1, bytes);
    if (room)
        r->grid_bytes += bytes;
    else
        atomic_store(&r->spent, true);
    return room;
}

static grid_page *find_page(races *r, uint64_t number) {
    grid_page **slot = (grid_page **)emu_page_slot(&r->grid, number);
    if (!slot) atomic_store(&r->spent, true);
    if (!slot || *slot) return slot ? *slot : NULL;
    if (!(*slot = take_room(r, sizeof **slot))) return NULL;
    (*slot)->number = number;
    r->grid.count++;
    return *slot;
}

/* Room for all accesses to the cells of a piece; false when out of memory. */
static bool make_cells(races *r, grid_page *of, uint32_t piece) {
    const uint32_t count = COARSE >> r->shift;
    grid_cell *all = take_room(r, count * sizeof *all);
    for (uint32_t i = 0; all && i < count; i++) {
        const uint32_t offset = i << r->shift;
        all[i] = emu_grid_cell(r, of, piece * COARSE + offset);
        if (of->split >> piece & 1) continue;
        all[i].reads.least += lane_of_stripe(of->stripes[piece][0], offset);
        all[i].reads.greatest += lane_of_stripe(of->stripes[piece][1], offset);
    }
    if (!all) return false;
    if (of->split >> piece & 1) {
        free(of->cells[piece].single);
        r->grid_bytes -= count * sizeof *of->cells[piece].single;
    }
    of->cells[piece].all = all;
    of->split |= 1u << piece;
    of->met |= 1u << piece;
    return true;
}

/* An access to a cell that had none, unless there are two. */
static bool add_single(single_access *to, const global_cell *cell) {
    const uint32_t kinds = cell->history & (DID_READ | DID_WRITE | DID_UPDATE), reads = kinds & DID_READ;
    if (to->access || kinds & (kinds - 1)) return false;
    *to = (single_access){pack(reads ? &cell->read : &cell->write, reads ? cell->read_rank : cell->write_rank),
                          kinds & DID_WRITE ? cell->value : 0, cell->history};
    return true;
}

/* Add a cluster's accesses to a piece to the launch's cell for the whole piece. */
static void add_coarse(grid_page *to, const page *from, uint32_t piece) {
    grid_cell *sum = &to->pieces[piece];
    const extremes before = sum->reads;
    add_cell(sum, &from->pieces[piece]);
    if (sum->reads.least != before.least) to->stripes[piece][0] = from->stripes[piece][0];
    if (sum->reads.greatest != before.greatest) to->stripes[piece][1] = from->stripes[piece][0];
}

/* A piece of a page of a cluster. */
static void add_piece(races *r, grid_page *to, page *from, uint32_t piece) {
    const uint32_t count = COARSE >> r->shift;
    const bool split = from->split >> piece & 1;
    if (!split && !from->pieces[piece].history) return;
    if (!split && !(to->split >> piece & 1)) {
        add_coarse(to, from, piece);
        return;
    }
    if (!(to->split >> piece & 1)) {
        if (to->pieces[piece].history) {
            if (!make_cells(r, to, piece)) return;
        } else {
            if (!(to->cells[piece].single = take_room(r, count * sizeof *to->cells[piece].single))) return;
            to->split |= 1u << piece;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        const global_cell *cell = split ? &from->cells[piece][i] : &from->pieces[piece];
        if (!cell->history) continue;
        global_cell own;
        if (!split) {
            own = *cell;
            own.read.who += lane_of_stripe(from->stripes[piece][0], i << r->shift);
            cell = &own;
        }
        if (!(to->met >> piece & 1) && add_single(&to->cells[piece].single[i], cell)) continue;
        if (!(to->met >> piece & 1) && !make_cells(r, to, piece)) return;
        add_cell(&to->cells[piece].all[i], cell);
    }
}

void emu_races_end_cluster(struct race_table *t) {
    races *r = t->all;
    if (r->in_turns) return;
    pthread_mutex_lock(&r->lock);
    for (page *each = t->touched; each; each = each->next) {
        grid_page *to = find_page(r, each->number);
        for (uint32_t piece = 0; to && piece < PIECES; piece++) add_piece(r, to, each, piece);
    }
    pthread_mutex_unlock(&r->lock);
    emu_race_table_clear(t);
}

/* ---- reports ---- */

/* One CTA of the launch reports in the name of any CTA. */
static void report(races *r, cta *m, uint64_t address, uint64_t here, uint64_t other, const char *now,
                   const char *then) {
    const uint32_t *grid = r->launch->grid, thread = who_thread(who_of(here));
    warp *w = &m->warps[thread / LANES];
    emu_locate_cta(r, cluster_of(here), rank_of(here), m->cta);
    m->cta_index = m->cta[0] + (uint64_t)grid[0] * (m->cta[1] + (uint64_t)grid[1] * m->cta[2]);
    m->cluster->index = cluster_of(here);
    m->here = who_instruction(who_of(here));
    w->frame = -1;
    emu_report_global_race(m, r, w, (int)(thread % LANES), address, who_of(other), cluster_of(other), rank_of(other),
                           now, then);
}

/* Two accesses by two clusters, of which the first is one of `a`. */
static bool find_pair(const extremes *a, const extremes *b, uint64_t *here, uint64_t *other) {
    if (!a->least || !b->least) return false;
    *here = a->least;
    *other = b->least;
    if (cluster_of(*here) == cluster_of(*other)) *other = b->greatest;
    if (cluster_of(*here) != cluster_of(*other)) return true;
    *here = a->greatest;
    return cluster_of(*here) != cluster_of(*other);
}

static void check_cell(races *r, cta *m, uint64_t address, const grid_cell *cell) {
    uint64_t here, other;
    if (cell->differs && find_pair(&cell->writes, &cell->writes, &here, &other))
        report(r, m, address, other, here, "writes", "wrote");
    if (find_pair(&cell->writes, &cell->reads, &here, &other)) report(r, m, address, here, other, "writes", "read");
    if (cell->history & DID_LOAD && find_pair(&cell->updates, &cell->reads, &here, &other))
        report(r, m, address, here, other, "updates", "read");
    if (find_pair(&cell->updates, &cell->writes, &here, &other)) report(r, m, address, here, other, "updates", "wrote");
    if (cell->narrow && find_pair(&cell->updates, &cell->updates, &here, &other))
        report(r, m, address, other, here, "updates", "updated, in a scope that leaves out one of the two");
}

static int by_number(const void *a, const void *b) {
    const grid_page *x = *(grid_page *const *)a, *y = *(grid_page *const *)b;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Behind the findings of the machine, which depend on the CTAs that it ran: those of one cause are not yet one. */
static void append_findings(cta *m, finding_record *findings, size_t found) {
    const size_t count = m->findings.count;
    finding_record *all = cta_reserve(m, m->findings.records, count + found, &m->findings.capacity, sizeof *all);
    if (!all) return;
    m->findings.records = all;
    memcpy(all + count, findings, found * sizeof *all);
    m->findings.count += found;
}

/* Pages in order, so that what is described does not depend on which was made first. */
void emu_report_grid_races(struct races *r, cta *m) {
    page_map *map = &r->grid;
    size_t count = 0;
    finding_record *const before = m->findings.records;
    const size_t found_before = m->findings.count, room = m->findings.capacity;
    m->findings.records = NULL;
    m->findings.count = m->findings.capacity = 0;
    for (size_t i = 0; map->slots && i <= map->mask; i++)
        if (map->slots[i]) map->slots[count++] = map->slots[i];
    if (count) qsort(map->slots, count, sizeof *map->slots, by_number);
    for (size_t i = 0; i < count; i++) {
        grid_page *each = map->slots[i];
        for (uint32_t at = 0; at < PAGE_BYTES && each->met; at += bytes_of_cell(r, each->split, at)) {
            const grid_cell cell = emu_grid_cell(r, each, at);
            if (cell.writes.least || cell.updates.least) check_cell(r, m, each->number * PAGE_BYTES + at, &cell);
        }
    }
    for (size_t i = count; map->slots && i <= map->mask; i++) map->slots[i] = NULL;
    finding_record *const found = m->findings.records;
    const size_t found_count = m->findings.count;
    m->findings.records = before;
    m->findings.count = found_before;
    m->findings.capacity = room;
    if (found_count) append_findings(m, found, found_count);
    free(found);
}
