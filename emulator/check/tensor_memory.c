/* tensor_memory.c - who touched tensor memory last, and which of its words have a value.
 *
 * A job of the tensor core is known to be done to those that know its serial number: the clock of the warp that issued
 * it, among the engines of its CTA (cells.h). tcgen05.commit brings that number to an mbarrier, with what its thread
 * knew as it was issued. A cell is 16 lanes of a column; it has the last job that wrote it and the last that read it,
 * the last tcgen05.st and the last tcgen05.ld. Whether words have a value is kept by lane, column and half.
 *
 * Three rules of PTX are broken by published code on purpose, as ptxas makes more of it than PTX promises; they are
 * checked only in a strict launch: tcgen05.wait::ld before a loaded register is used, tcgen05.wait::st before another
 * thread is told, and tcgen05.fence around a synchronization of threads.
 */
#include "../machine/tensor_memory.h"
#include "cells.h"
#include "orders.h"

#include <inttypes.h>
#include <stdlib.h>

enum { CELL_LANES = 16, CELL_ROWS = TENSOR_LANES / CELL_LANES, SLABS = TENSOR_LANES / LANES };

/* A job that touched a cell; serial 0: none. */
typedef struct job_use {
    const op *o;
    uint32_t serial, stamp, d, how;
    uint8_t rank, warp, lane;
} job_use;

/* A warp that did; stamp 0: none. */
typedef struct warp_use {
    uint32_t stamp, instruction;
    uint8_t warp;
    bool waited; /* wait::ld or wait::st followed, or a loaded register was read */
} warp_use;

typedef struct tensor_cell {
    job_use written, read;
    warp_use stored, loaded;
} tensor_cell;

enum { TENSOR_FENCES = 8 };
typedef struct tensor_warp {
    uint32_t *pending;                    /* by virtual register: 1 + the instruction of the load that writes it */
    uint32_t low, high;                   /* columns of its loads and stores that nothing has waited for */
    uint32_t before[TENSOR_FENCES], next; /* epochs of its last tcgen05.fence::before_thread_sync */
    uint32_t *after;     /* its clock at the last tcgen05.fence::after_thread_sync; NULL unless strict */
    uint32_t after_base; /* what a barrier of the CTA had ordered then */
} tensor_warp;

typedef struct tensor_shadow {
    tensor_cell cells[CELL_ROWS][TENSOR_COLUMNS];
    uint32_t given[2][SLABS][TENSOR_COLUMNS]; /* lanes that have a value, of each half of a word */
    tensor_warp warps[MAX_WARPS];
} tensor_shadow;

static tensor_shadow *shadow_of(const cta *m) {
    return m->checks->tensor;
}

/* ---- lifecycle ---- */

bool emu_tensor_shadow_create(cta *m) {
    if (!m->code->uses_tensor_memory) return true;
    tensor_shadow *s = m->checks->tensor = calloc(1, sizeof *s);
    bool complete = s != NULL;
    for (uint32_t i = 0; complete && i < m->warp_count; i++) {
        s->warps[i].pending = calloc(m->code->register_count + 1, sizeof(uint32_t));
        complete = s->warps[i].pending != NULL;
        if (!m->launch->strict_tcgen05) continue;
        s->warps[i].after = calloc(m->checks->clock_width, sizeof(uint32_t));
        complete &= s->warps[i].after != NULL;
    }
    return complete;
}

void emu_tensor_shadow_start(cta *m) {
    tensor_shadow *s = shadow_of(m);
    if (!s) return;
    memset(s->cells, 0, sizeof s->cells);
    memset(s->given, 0, sizeof s->given);
    for (uint32_t i = 0; i < m->warp_count; i++) {
        tensor_warp *each = &s->warps[i];
        memset(each->pending, 0, m->code->register_count * sizeof *each->pending);
        if (each->after) memset(each->after, 0, m->checks->clock_width * sizeof *each->after);
        memset(each->before, 0, sizeof each->before);
        each->next = each->after_base = 0;
        each->low = TENSOR_COLUMNS, each->high = 0;
    }
}

void emu_tensor_shadow_free(cta *m) {
    tensor_shadow *s = shadow_of(m);
    for (uint32_t i = 0; s && i < m->warp_count; i++) {
        free(s->warps[i].pending);
        free(s->warps[i].after);
    }
    free(s);
    m->checks->tensor = NULL;
}

/* ---- what a thread knows ---- */

static uint32_t clock_of_jobs(const cta *m, uint32_t warp) {
    return LANDINGS + 2 * m->warp_count + warp;
}

static bool knows_job(const cta *m, const warp *w, int lane, const job_use *use) {
    const cta *at = &m->cluster->ctas[use->rank];
    return known_engines(m, w, lane, at)[clock_of_jobs(at, use->warp)] >= use->serial;
}

/* True if a fence::after_thread_sync of the warp knew it. */
static bool fence_knows_job(const cta *m, const warp *w, const job_use *use) {
    const cta *at = &m->cluster->ctas[use->rank];
    uint32_t *row = shadow_of(m)->warps[w->index].after;
    const uint32_t *engines = at == m ? row + m->warp_count * LANES : engines_of(m, tail_of(m, row), use->rank);
    return (use->rank == m->rank && use->warp == w->index) || engines[clock_of_jobs(at, use->warp)] >= use->serial;
}

static uint32_t who_of(const warp_use *use) {
    return (uint32_t)use->warp * LANES << WHO_THREAD_SHIFT;
}

/* True if what a warp of `at` did lies before what a lane does now. */
static bool knows_warp(const cta *m, const warp *w, int lane, const cta *at, const warp_use *use) {
    if (at == m && use->warp == w->index) return true;
    return use->waited && ordered_in_cluster(m, w, lane, at->rank, who_of(use), use->stamp);
}

/* True if it executed fence::before_thread_sync behind that, and this is known. */
static bool is_fenced(const cta *m, const warp *w, int lane, const cta *at, const warp_use *use) {
    if (at == m && use->warp == w->index) return true;
    const tensor_warp *its = &shadow_of(at)->warps[use->warp];
    for (int i = 0; i < TENSOR_FENCES; i++) {
        const uint32_t fence = its->before[i];
        if (fence >= use->stamp && ordered_in_cluster(m, w, lane, at->rank, who_of(use), fence)) return true;
    }
    return false;
}

/* True if a fence::after_thread_sync of the warp knew it. Not asked of the other CTA of a pair. */
static bool fence_knows_warp(const cta *m, const warp *w, const cta *at, const warp_use *use) {
    const tensor_warp *own = &shadow_of(m)->warps[w->index];
    if (at != m || use->warp == w->index || use->stamp <= own->after_base) return true;
    return own->after[use->warp * LANES] >= use->stamp;
}

/* ---- reports ---- */

/* The current access to a cell. */
typedef struct toucher {
    cta *m, *at; /* that of the thread, and of the cell */
    const warp *w;
    int lane;
    const tensor_job *job; /* NULL: a warp itself, by tcgen05.ld, .st or .dealloc */
    const char *name;
    bool reads, writes;
} toucher;

static void report_job(const toucher *by, const job_use *use, uint32_t row, uint32_t column, bool written) {
    const bool jobs = by->job != NULL;
    emu_report(
        by->m, jobs ? EMU_TMEM_RACE : EMU_TMEM_IN_FLIGHT, use->o->instruction, by->w, by->lane,
        use->rank == by->m->rank ? use->warp * LANES + use->lane : -1, row * CELL_LANES << 16 | column,
        "%s %s tensor memory in lanes %u to %u of column %u while another tcgen05 instruction may still %s it.\n%s",
        by->name, by->writes ? "writes" : "reads", row * CELL_LANES, row * CELL_LANES + CELL_LANES - 1, column,
        written ? "write" : "read",
        jobs ? "PTX promises no order between the two: wait for the first one by tcgen05.commit and its mbarrier."
             : "tcgen05.commit must follow that one, and a wait for the phase of its mbarrier must come before "
               "this.");
}

static void report_warp(const toucher *by, const warp_use *use, uint32_t row, uint32_t column, bool stored) {
    const char *wait = stored ? "wait::st" : "wait::ld";
    emu_report(by->m, EMU_TMEM_RACE, use->instruction, by->w, by->lane, by->at == by->m ? use->warp * LANES : -1,
               row * CELL_LANES << 16 | column,
               "%s %s tensor memory in lanes %u to %u of column %u, which warp %u %s, and %s%s.", by->name,
               by->writes ? "writes" : "reads", row * CELL_LANES, row * CELL_LANES + CELL_LANES - 1, column, use->warp,
               stored ? "stores to" : "loads",
               use->waited ? "nothing orders the two" : "that warp has not waited: it needs tcgen05.",
               use->waited ? "" : wait);
}

static void report_fence(const toucher *by, uint32_t instruction, bool after) {
    emu_report(
        by->m, EMU_TMEM_MISUSE, instruction, by->w, by->lane, -1, 0,
        after ? "%s follows a synchronization with the thread of the other instruction, and no "
                "tcgen05.fence::after_thread_sync is between the two."
              : "%s is ordered by a synchronization of threads, and the thread of the other instruction executed no "
                "tcgen05.fence::before_thread_sync before that.",
        by->name);
}

/* ---- order ---- */

static bool is_job_before(const toucher *by, const job_use *use) {
    if (!use->serial || knows_job(by->m, by->w, by->lane, use)) return true;
    if (!by->job) return false;
    const tensor_job first = {.o = use->o, .d = use->d, .how = use->how, .warp = use->warp};
    const bool same = use->rank == by->m->rank && use->warp == by->w->index;
    const uint32_t who = ((uint32_t)use->warp * LANES + use->lane) << WHO_THREAD_SHIFT;
    return emu_keeps_order(&first, by->job, by->m->launch->strict_tcgen05) &&
           (same || ordered_in_cluster(by->m, by->w, by->lane, use->rank, who, use->stamp));
}

static void check_job_use(const toucher *by, job_use *use, uint32_t row, uint32_t column, bool written) {
    if (!is_job_before(by, use))
        report_job(by, use, row, column, written);
    else if (by->m->launch->strict_tcgen05 && use->serial && knows_job(by->m, by->w, by->lane, use) &&
             !fence_knows_job(by->m, by->w, use))
        report_fence(by, use->o->instruction, true);
    else
        return;
    use->serial = 0; /* once is enough */
}

static void check_warp_use(const toucher *by, warp_use *use, uint32_t row, uint32_t column, bool stored) {
    if (!use->stamp) return;
    if (!knows_warp(by->m, by->w, by->lane, by->at, use))
        report_warp(by, use, row, column, stored);
    else if (by->m->launch->strict_tcgen05 && !is_fenced(by->m, by->w, by->lane, by->at, use))
        report_fence(by, use->instruction, false);
    else if (by->m->launch->strict_tcgen05 && !fence_knows_warp(by->m, by->w, by->at, use))
        report_fence(by, use->instruction, true);
    else
        return;
    use->stamp = 0;
}

static void check_cell(const toucher *by, uint32_t row, uint32_t column) {
    tensor_cell *cell = &shadow_of(by->at)->cells[row][column];
    if (cell->written.serial) check_job_use(by, &cell->written, row, column, true);
    if (cell->stored.stamp) check_warp_use(by, &cell->stored, row, column, true);
    if (!by->writes) return;
    if (cell->read.serial) check_job_use(by, &cell->read, row, column, false);
    if (cell->loaded.stamp) check_warp_use(by, &cell->loaded, row, column, false);
}

/* ---- values ---- */

static bool is_given(const tensor_shadow *s, uint32_t half, uint32_t lane, uint32_t column) {
    return s->given[half][lane / LANES % SLABS][column] >> lane % LANES & 1;
}

static void give(tensor_shadow *s, uint32_t half, uint32_t lane, uint32_t column, bool value) {
    uint32_t *lanes = &s->given[half][lane / LANES % SLABS][column];
    *lanes = (*lanes & ~(1u << lane % LANES)) | (uint32_t)value << lane % LANES;
}

static void follow_store(cta *m, const warp *w, const op *o, uint32_t address) {
    tensor_shadow *s = shadow_of(m);
    const bool packed = o->detail & TENSOR_PACKED;
    for (uint32_t k = 0; k < o->vector; k++) {
        const uint32_t absent = w->undefined_count ? w->undefined[o->r[1 + k]].lanes : 0;
        for (uint32_t l = 0; l < LANES; l++) {
            uint32_t row, column;
            emu_tensor_element(o, (uint32_t)o->target + k, l, &row, &column);
            row += tensor_lane(address), column += tensor_column(address);
            for (uint32_t half = 0; half < 2; half++) {
                give(s, half, row, column, !(absent >> l & 1));
                if (packed) give(s, half, row, column + 1, !(absent >> l & 1));
            }
        }
    }
}

/* A word whose lower half has a value counts: an f16 of D leaves the upper one. */
static void follow_load(cta *m, warp *w, const op *o, uint32_t address) {
    const tensor_shadow *s = shadow_of(m);
    const bool packed = o->detail & TENSOR_PACKED;
    for (uint32_t k = 0; k < o->vector; k++) {
        uint32_t absent = 0, where = address;
        for (uint32_t l = 0; l < LANES; l++) {
            uint32_t row, column;
            emu_tensor_element(o, (uint32_t)o->target + k, l, &row, &column);
            row += tensor_lane(address), column += tensor_column(address);
            if (is_given(s, 0, row, column) && (!packed || is_given(s, 0, row, column + 1))) continue;
            absent |= 1u << l;
            where = row << 16 | column;
        }
        if (absent) emu_on_undefined_tensor_load(m, w, o->r[k], absent, where);
    }
}

/* Rows of A and D, by the part of D, and columns of D, that a product makes undefined in a CTA. */
typedef struct absent_values {
    bool rows[TENSOR_LANES], columns[2 * TENSOR_LANES], any; /* row + part * rows */
} absent_values;

static bool words_given(const tensor_shadow *s, uint32_t lane, uint32_t column, uint32_t words) {
    bool all = true;
    for (uint32_t c = column; c < column + words; c++) all &= is_given(s, 0, lane, c) && is_given(s, 1, lane, c);
    return all;
}

static void find_absent(const tensor_shadow *s, const tensor_job *job, const tensor_product *p, absent_values *out) {
    const unsigned detail = job->o->detail;
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < p->rows * emu_tensor_parts(p); i++) {
        const uint32_t row = i % p->rows, lane = emu_tensor_row_lane(p, row, i / p->rows);
        bool given = true;
        if (detail & TENSOR_A_THERE)
            given &= words_given(s, lane + tensor_lane(job->a_there), tensor_column(job->a_there), p->a_bytes / 4);
        if (detail & TENSOR_SPARSE) {
            uint32_t lanes[2];
            emu_tensor_index_lanes(p, row, lanes);
            for (int k = 0; k < 2; k++)
                given &= words_given(s, lanes[k] + tensor_lane(job->indices), tensor_column(job->indices) + p->index_id,
                                     p->element_bytes == 1 ? 2 : 1);
        }
        if (detail & TENSOR_SCALED)
            given &=
                words_given(s, row % 32 + tensor_lane(job->scales[0]), tensor_column(job->scales[0]) + row / 32, 1);
        out->rows[i] = !given;
        out->any |= !given;
    }
    for (uint32_t n = 0; n < p->n && detail & TENSOR_SCALED; n++) {
        out->columns[n] =
            !words_given(s, n % 32 + tensor_lane(job->scales[1]), tensor_column(job->scales[1]) + n / 32, 1);
        out->any |= out->columns[n];
    }
}

static void follow_product(cta *at, const tensor_job *job) {
    tensor_shadow *s = shadow_of(at);
    const tensor_product p = emu_tensor_product(job);
    absent_values absent;
    find_absent(s, job, &p, &absent);
    if (job->adds && !absent.any) return; /* what D has stays as it is */
    const uint32_t width = p.n / emu_tensor_parts(&p);
    for (uint32_t n = 0; n < p.n; n++) {
        for (uint32_t row = 0; row < p.rows; row++) {
            uint32_t lane, column;
            emu_tensor_position(&p, row, n, &lane, &column);
            if (job->o->detail & TENSOR_MASKED && job->lanes_off[lane / 32 % 8] >> lane % 32 & 1) continue;
            lane += tensor_lane(job->d), column += tensor_column(job->d);
            bool given = !absent.rows[row + n / width * p.rows] && !absent.columns[n];
            if (job->adds) given &= is_given(s, 0, lane, column);
            give(s, 0, lane, column, given);
            give(s, 1, lane, column, given && p.d_format != 0);
        }
    }
}

static void follow_job(cta *at, const tensor_job *job) {
    tensor_shadow *s = shadow_of(at);
    tensor_region region[MOST_TENSOR_REGIONS];
    if (job->o->kind == OP_TENSOR_MMA) {
        follow_product(at, job);
        return;
    }
    emu_tensor_regions(job, region);
    for (uint32_t c = region->column; c < region->column + region->columns; c++) {
        for (uint32_t half = 0; half < 2; half++) {
            for (uint32_t slab = 0; slab < SLABS; slab++) {
                uint32_t *lanes = &s->given[half][slab][c];
                if (job->o->kind == OP_TENSOR_COPY)
                    *lanes |= job->o->vector == COPY_4X256 ? 1 : ALL_LANES;
                else if (slab == tensor_lane(job->d) / LANES % SLABS)
                    *lanes = *lanes << 1 | (*lanes & 1);
            }
        }
    }
}

/* ---- loads and stores ---- */

static void note_pending(cta *m, const warp *w, const op *o) {
    const uint16_t *names = m->code->names[o - m->code->ops];
    tensor_warp *own = &shadow_of(m)->warps[w->index];
    for (uint32_t k = 0; k < o->vector; k++) own->pending[names[k]] = 1 + o->instruction;
}

void emu_on_tensor_access(cta *m, warp *w, const op *o, uint32_t address) {
    tensor_shadow *s = shadow_of(m);
    tensor_warp *own = &s->warps[w->index];
    const bool stores = o->kind == OP_TENSOR_STORE, strict = m->launch->strict_tcgen05;
    const toucher by = {
        .m = m, .at = m, .w = w, .name = stores ? "tcgen05.st" : "tcgen05.ld", .reads = !stores, .writes = stores};
    const uint32_t halves = (o->detail & 7) == SHAPE_32X32 ? 2 : 1, first = tensor_lane(address) / CELL_LANES;
    for (uint32_t k = 0; k < o->vector; k++) {
        for (uint32_t l = 0; l < LANES; l++) {
            uint32_t row, column;
            emu_tensor_element(o, (uint32_t)o->target + k, l, &row, &column);
            column += tensor_column(address);
            for (uint32_t packed = 0; packed <= (o->detail & TENSOR_PACKED ? 1u : 0u); packed++, column++) {
                for (uint32_t half = 0; half < halves; half++) {
                    const uint32_t at = (first + half) % CELL_ROWS;
                    tensor_cell *cell = &s->cells[at][column];
                    warp_use *use = stores ? &cell->stored : &cell->loaded;
                    if (use->stamp == w->clock && use->warp == w->index && use->instruction == o->instruction) continue;
                    check_cell(&by, at, column);
                    *use = (warp_use){w->clock, o->instruction, (uint8_t)w->index, stores && !strict};
                    if (stores) cell->loaded.stamp = 0;
                }
                if (column < own->low) own->low = column;
                if (column >= own->high) own->high = column + 1;
            }
            if (halves == 2) break; /* all lanes of a register are in one column */
        }
    }
    if (stores) {
        follow_store(m, w, o, address);
    } else {
        follow_load(m, w, o, address);
        note_pending(m, w, o);
        w->tensor_loads = true;
    }
}

/* Loads or stores of a warp are done: those of an instruction, or all. */
static void end_accesses(cta *m, const warp *w, bool stores, uint32_t instruction) {
    tensor_shadow *s = shadow_of(m);
    const tensor_warp *own = &s->warps[w->index];
    for (uint32_t at = 0; at < CELL_ROWS; at++) {
        for (uint32_t c = own->low; c < own->high; c++) {
            warp_use *use = stores ? &s->cells[at][c].stored : &s->cells[at][c].loaded;
            if (!use->stamp || use->waited || use->warp != w->index) continue;
            if (instruction != UINT32_MAX && use->instruction != instruction) continue;
            use->stamp = w->clock;
            use->waited = true;
        }
    }
}

static void end_loads(cta *m, warp *w, uint32_t instruction) {
    tensor_warp *own = &shadow_of(m)->warps[w->index];
    end_accesses(m, w, false, instruction);
    w->tensor_loads = false;
    for (size_t i = 0; i < m->code->register_count; i++) {
        if (own->pending[i] == 1 + instruction || instruction == UINT32_MAX) own->pending[i] = 0;
        w->tensor_loads |= own->pending[i] != 0;
    }
}

void emu_on_tensor_wait(cta *m, warp *w, bool stores, uint32_t mask) {
    if (stores)
        end_accesses(m, w, true, UINT32_MAX);
    else
        end_loads(m, w, UINT32_MAX);
    emu_on_warp_barrier(m, w, mask);
}

static void report_pending(cta *m, const warp *w, uint16_t name, uint32_t instruction, bool written) {
    char text[64];
    emu_register_name(&m->code->registers[name], text, sizeof text);
    emu_report(m, EMU_REGISTER_IN_FLIGHT, instruction, w, -1, -1, 0,
               "Register %s is %s while a tcgen05.ld that writes it is unfinished.\n"
               "The warp must wait first: tcgen05.wait::ld.",
               text, written ? "written" : "read");
}

void emu_on_tensor_registers(cta *m, warp *w, const op *o) {
    if (!w->tensor_loads) return;
    const uint16_t *names = m->code->names[o - m->code->ops];
    tensor_warp *own = &shadow_of(m)->warps[w->index];
    for (int i = 0; i < o->dests + o->sources; i++) {
        const uint32_t load = own->pending[names[i]];
        if (!load || load == 1 + o->instruction) continue; /* of one that reduces: see decode_blackwell.c */
        if (m->launch->strict_tcgen05) report_pending(m, w, names[i], load - 1, i < o->dests);
        end_loads(m, w, load - 1);
        return;
    }
}

void emu_on_tensor_fence(cta *m, warp *w, bool after) {
    tensor_warp *own = &shadow_of(m)->warps[w->index];
    if (after && own->after) {
        memcpy(own->after, row_of(m, w, first_lane(w->active)), m->checks->clock_width * sizeof *own->after);
        own->after_base = m->checks->base;
    }
    if (!after) own->before[own->next++ % TENSOR_FENCES] = w->clock;
    emu_clock_tick(m, w);
}

/* ---- allocation ---- */

void emu_on_tensor_dealloc(cta *m, warp *w, int lane, uint32_t first, uint32_t columns) {
    tensor_shadow *s = shadow_of(m);
    const toucher by = {.m = m, .at = m, .w = w, .lane = lane, .name = "tcgen05.dealloc", .writes = true};
    for (uint32_t row = 0; row < CELL_ROWS; row++) {
        for (uint32_t c = first; c < first + columns; c++) {
            check_cell(&by, row, c);
            s->cells[row][c] = (tensor_cell){.stored.stamp = 0};
        }
    }
    for (uint32_t half = 0; half < 2; half++)
        for (uint32_t slab = 0; slab < SLABS; slab++)
            memset(&s->given[half][slab][first], 0, columns * sizeof(uint32_t));
}

/* ---- jobs ---- */

static void touch_region(const toucher *base, const tensor_region *region) {
    toucher by = *base;
    tensor_shadow *s = shadow_of(by.at);
    const tensor_job *job = by.job;
    const job_use use = {.o = job->o,
                         .serial = job->serial,
                         .stamp = job->stamp,
                         .d = job->d,
                         .how = job->how,
                         .rank = (uint8_t)by.m->rank,
                         .warp = (uint8_t)job->warp,
                         .lane = job->lane};
    by.name = region->name;
    by.reads = region->reads, by.writes = region->writes;
    for (uint32_t row = 0; row < CELL_ROWS; row++) {
        if (!(region->lanes >> row & 1)) continue;
        for (uint32_t c = region->column; c < region->column + region->columns; c++) {
            tensor_cell *cell = &s->cells[row][c];
            if (cell->written.serial || cell->stored.stamp || (by.writes && (cell->read.serial || cell->loaded.stamp)))
                check_cell(&by, row, c);
            if (by.writes) {
                cell->written = use;
                cell->read.serial = 0;
                cell->stored.stamp = cell->loaded.stamp = 0;
            } else {
                cell->read = use;
            }
        }
    }
}

/* Shared memory of the other CTA of a pair: its order and its values; the fences of its threads are not followed. */
static void begin_reads(cta *m, const warp *w, const tensor_job *job, cta *at, bool of_a) {
    uint32_t addresses[MOST_TENSOR_CHUNKS];
    const uint32_t count = emu_tensor_chunks(job, of_a, addresses), bytes = emu_tensor_chunk_bytes_used(job, of_a);
    for (uint32_t i = 0; i < count; i++) {
        if (at == m) {
            emu_async_read_begins(m, w, job->lane, addresses[i], bytes, false);
            continue;
        }
        if (emu_remote_read(m, w, job->lane, at, addresses[i], bytes))
            emu_report(m, EMU_UNINITIALISED_SHARED, UINT32_MAX, w, job->lane, -1, addresses[i],
                       "tcgen05 reads shared memory of the CTA with rank %u at 0x%x, which nothing has written.",
                       at->rank, addresses[i]);
        async_unit *read = &at->checks->async_units[(addresses[i] - at->shared_base) / TENSOR_CHUNK];
        read->count++;
        read->instruction = m->here;
    }
}

static void end_reads(cta *m, const tensor_job *job, cta *at, bool of_a) {
    uint32_t addresses[MOST_TENSOR_CHUNKS];
    const uint32_t count = emu_tensor_chunks(job, of_a, addresses), bytes = emu_tensor_chunk_bytes_used(job, of_a);
    for (uint32_t i = 0; i < count; i++) {
        if (at == m)
            emu_async_read_ends(m, &m->warps[job->warp], job->lane, addresses[i], bytes, job->stamp);
        else
            at->checks->async_units[(addresses[i] - at->shared_base) / TENSOR_CHUNK].count--;
    }
}

void emu_on_tensor_issue(cta *m, warp *w, const tensor_job *job) {
    tensor_region regions[MOST_TENSOR_REGIONS];
    const uint32_t count = emu_tensor_regions(job, regions);
    for (uint32_t which = 0; which <= is_pair_job(job); which++) {
        cta *at = cta_of_job(m, job, which);
        const toucher by = {.m = m, .at = at, .w = w, .lane = job->lane, .job = job};
        for (uint32_t i = count; i-- > 0;) touch_region(&by, &regions[i]); /* D comes last */
        begin_reads(m, w, job, at, true);
        begin_reads(m, w, job, at, false);
    }
}

void emu_on_tensor_done(cta *m, const tensor_job *job) {
    for (uint32_t which = 0; which <= is_pair_job(job); which++) {
        cta *at = cta_of_job(m, job, which);
        follow_job(at, job);
        end_reads(m, job, at, true);
        end_reads(m, job, at, false);
    }
}

/* ---- commits ---- */

uint32_t *emu_on_tensor_commit(cta *m, warp *w, const tensor_job *job) {
    for (uint32_t rest = job->ranks; rest; rest &= rest - 1) {
        cta *at = &m->cluster->ctas[first_lane(rest)];
        const mbarrier *bar = emu_find_mbarrier(at, job->mbarrier);
        emu_on_mbarrier_use(m, w, job->lane, at, job->mbarrier);
        if (orders_of(m)) emu_orders_issue(m, w, job->lane, at, bar, true);
        if (orders_of(m) && at != m) emu_remote_tell_progress(m, w, job->lane, at, bar->arriving);
    }
    uint32_t *known = calloc(m->checks->clock_width, sizeof *known);
    if (!known)
        m->out_of_memory = m->faulted = true;
    else
        emu_clock_publish(m, w, 1u << job->lane, known);
    return known;
}

void emu_on_tensor_arrive(cta *m, const tensor_job *job, cta *at, mbarrier *bar) {
    const warp *w = &m->warps[job->warp];
    uint32_t *own = &job->known[m->warp_count * LANES + clock_of_jobs(m, (uint32_t)job->warp)];
    if (*own < job->serial) *own = job->serial;
    if (at == m)
        take_later(bar->arriving, job->known, m->checks->clock_width);
    else
        emu_remote_publish_row(m, job->known, at, bar->arriving);
    emu_engine_ticks(at, bar);
    if (orders_of(m)) emu_orders_land(m, w, job->lane, at, bar, job->o->instruction);
}
