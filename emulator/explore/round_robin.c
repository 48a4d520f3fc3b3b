/* round_robin.c - CTAs that communicate through global memory: they run in turns on one thread of the host, so what
 * happens does not depend on how many threads there are. CTAs that only fetch work tiles, or combine partial results by
 * atomics and fences, use all threads (lookahead.h).
 */
#include "../machine/crew.h"
#include "../machine/interleaving.h"
#include "explore.h"
#include "lookahead.h"

#include <stdlib.h>
#include <string.h>

enum {
    SEEDED_CTAS = 8,  /* resident ones between which a seed switches, while they can continue */
    DRAWING_CTAS = 8, /* those that draw tickets in turn, each on a thread of the host if there are as many */
    EARLY_CTAS = 8    /* those that begin before their first turn, likewise */
};

/* Resident CTAs run on one host thread, so that their order does not depend on the number of threads. */
typedef struct grid_turns {
    crew *crew;
    worker *workers; /* as many as can be resident */
    int capacity, used, running, last;
    uint64_t changes, steps, random;
    worker *early[EARLY_CTAS]; /* whose clusters have begun, and have not had their first turn */
    int early_count;
} grid_turns;

/* True if its cluster has had a turn, and has not polled unsuccessfully since memory changed. */
static bool can_run(const grid_turns *g, const worker *each) {
    return each->runs && !each->is_early && each->polled_at != g->changes + 1;
}

/* The worker that takes up the next cluster; NULL when out of memory. */
static worker *start_next(grid_turns *g) {
    worker *self = g->workers;
    while (self->runs) self++;
    if (self == g->workers + g->used) {
        g->used++;
        if (!emu_hire(g->crew, self)) return NULL;
    }
    emu_start_cluster(&self->cluster, g->crew->next_cluster++);
    self->runs = true;
    self->polled_at = 0;
    g->running++;
    return self;
}

static void begin_turn(worker *self) {
    self->before = emu_progress_of(&self->cluster);
    self->cluster.drew = false;
    self->cluster.draws_apart = true;
}

/* A turn begins before it has come. */
static void begin_early(crew *c, worker *self) {
    begin_turn(self);
    self->begun = true;
    emu_lookahead_begin(c->lookahead, &self->cluster);
}

static bool has_next(const grid_turns *g) {
    return g->early_count || (g->running < g->capacity && g->crew->next_cluster < g->crew->cluster_total);
}

/* The worker of the next cluster, which has begun if others begin early; NULL when out of memory. */
static worker *enter_next(grid_turns *g) {
    crew *c = g->crew;
    if (!c->lookahead) return start_next(g);
    while (g->early_count < EARLY_CTAS && g->running < g->capacity && c->next_cluster < c->cluster_total) {
        worker *self = start_next(g);
        if (!self) return NULL;
        begin_early(c, self);
        self->is_early = true;
        g->early[g->early_count++] = self;
    }
    worker *first = g->early[0];
    memmove(g->early, g->early + 1, (size_t)--g->early_count * sizeof *g->early);
    first->is_early = false;
    return first;
}

/* The next one round of those that have just drawn a ticket, where there are enough; else NULL. */
static worker *choose_drawing(const grid_turns *g) {
    worker *next = NULL;
    int drawing = 0;
    for (int k = g->used; k >= 1; k--) {
        worker *each = &g->workers[(g->last + k) % g->used];
        if (!each->runs || !each->drew) continue;
        next = each;
        drawing++;
    }
    return drawing >= DRAWING_CTAS ? next : NULL;
}

/* New CTAs first, then those that have not polled since memory changed, in turns; with a seed any of a few. NULL where
 * all have polled in vain, or there is no memory. */
static worker *choose_cta(grid_turns *g, bool *complete) {
    const bool seeded = g->crew->launch->schedule != 0;
    int ready = 0, skipped = 0;
    worker *drawing = seeded ? NULL : choose_drawing(g);
    if (drawing) return drawing;
    for (int i = 0; i < g->used; i++) ready += can_run(g, &g->workers[i]);
    while (has_next(g)) {
        if (seeded && ready >= SEEDED_CTAS) break;
        worker *self = enter_next(g);
        *complete = self != NULL;
        if (!seeded || !self) return self;
        ready++;
    }
    if (seeded && ready) skipped = (int)((g->random = emu_mix(g->random)) % (uint64_t)ready);
    for (int k = 1; k <= g->used; k++) {
        int i = (g->last + k) % g->used;
        if (can_run(g, &g->workers[i]) && !skipped--) return &g->workers[i];
    }
    return NULL;
}

/* All resident CTAs have polled in vain. */
static bool ends_in_livelock(grid_turns *g, quiet *q) {
    const uint32_t of_cluster = g->workers->cluster.count;
    cta **all = malloc((size_t)g->running * of_cluster * sizeof(cta *));
    size_t count = 0;
    for (int i = 0; all && i < g->used; i++) {
        for (uint32_t k = 0; k < of_cluster && g->workers[i].runs; k++)
            if (!g->workers[i].cluster.ctas[k].ended) all[count++] = &g->workers[i].cluster.ctas[k];
    }
    bool ends = count && emu_lasts_too_long(q, g->changes, g->steps, all, count);
    if (ends)
        emu_report_livelock(all, count, g->steps - q->begin,
                            (g->crew->cluster_total - g->crew->next_cluster) * of_cluster);
    free(all);
    return ends;
}

/* The next cluster, if one is left, begins before its turn; false when out of memory. */
static bool begin_next(crew *c, worker *self) {
    if (c->next_cluster == c->cluster_total) return true;
    if (!self->cluster.ctas && !emu_hire(c, self)) return false;
    emu_start_cluster(&self->cluster, c->next_cluster++);
    emu_lookahead_begin(c->lookahead, &self->cluster);
    return true;
}

/* CTAs that ask nothing about each other have one turn each, to their end: so sums of numbers that are rounded do not
 * depend on the threads of the host. */
static bool run_in_order(crew *c, worker *workers, int capacity) {
    const int ahead = capacity < DRAWING_CTAS ? capacity : DRAWING_CTAS;
    bool complete = true, faulted = false;
    for (int i = 0; i < ahead && complete; i++) complete = begin_next(c, &workers[i]);
    for (uint64_t next = 0; complete && !faulted && next < c->cluster_total; next++) {
        worker *self = &workers[next % (uint64_t)ahead];
        cluster *own = &self->cluster;
        quiet q = {.changes = UINT64_MAX};
        cta_turn turn = emu_lookahead_turn(c->lookahead, own);
        emu_apply_postponed(own);
        for (; turn != TURN_ENDED; turn = emu_run_turn(own, false)) emu_check_livelock(&q, own);
        emu_end_cluster(c, own);
        faulted = emu_has_faulted(own);
        complete = !emu_is_out_of_memory(own);
        if (complete && !faulted) complete = begin_next(c, self);
    }
    if (faulted) atomic_store(&c->first_fault, c->cluster_total - 1); /* what the others found counts too */
    return complete;
}

bool emu_run_in_turns(crew *c, worker *workers, int capacity) {
    grid_turns g = {
        .crew = c, .workers = workers, .capacity = capacity, .last = -1, .random = emu_mix(c->launch->schedule)};
    quiet q = {.changes = UINT64_MAX};
    bool complete = true, faulted = false;
    if (c->only_draws) {
        const int threads = c->threads < DRAWING_CTAS ? (int)c->threads : DRAWING_CTAS;
        complete = (c->lookahead = emu_lookahead_new(threads > 1 ? threads : 0, emu_run_turn)) != NULL;
    }
    if (complete && c->only_draws && !c->polls) {
        complete = run_in_order(c, workers, capacity);
        emu_lookahead_free(c->lookahead);
        return complete;
    }
    while (complete && !faulted && (g.running || c->next_cluster < c->cluster_total)) {
        worker *self = choose_cta(&g, &complete);
        if (!complete) break;
        if (!self) {
            for (int i = 0; i < g.used; i++) workers[i].polled_at = 0;
            faulted = ends_in_livelock(&g, &q);
            continue;
        }
        if (!self->begun) begin_turn(self);
        self->begun = false;
        const cta_turn turn =
            c->lookahead ? emu_lookahead_turn(c->lookahead, &self->cluster) : emu_run_turn(&self->cluster, true);
        emu_apply_postponed(&self->cluster);
        const quiet after = emu_progress_of(&self->cluster);
        g.last = (int)(self - workers);
        g.changes += after.changes - self->before.changes + (turn == TURN_ENDED);
        g.steps += after.begin - self->before.begin;
        self->polled_at = turn == TURN_POLLS ? g.changes + 1 : 0;
        self->drew = turn == TURN_PAUSED && self->cluster.drew;
        if (c->lookahead && self->drew) begin_early(c, self);
        if (turn != TURN_ENDED) continue;
        self->runs = false;
        g.running--;
        emu_end_cluster(c, &self->cluster);
        faulted = emu_has_faulted(&self->cluster);
        complete = !emu_is_out_of_memory(&self->cluster);
    }
    emu_lookahead_free(c->lookahead);
    if (faulted) atomic_store(&c->first_fault, c->cluster_total - 1); /* what the others found counts too */
    return complete;
}

/* All CTAs are resident; whoever tells another waits for its turn. */
bool emu_run_explored(crew *c, worker *workers, int count) {
    cta **all = malloc((size_t)c->cta_total * sizeof(cta *));
    size_t ctas = 0;
    bool complete = all != NULL;
    for (int i = 0; complete && i < count; i++) {
        cluster *own = &workers[i].cluster;
        complete = emu_hire(c, &workers[i]);
        if (!complete) break;
        emu_start_cluster(own, c->next_cluster++);
        for (uint32_t k = 0; k < own->count; k++) all[ctas++] = &own->ctas[k];
    }
    emu_explorer_note_draws(c->explorer, c->only_draws && c->cta_total == c->cluster_total);
    if (complete) complete = emu_explorer_run(c->explorer, all, ctas);
    free(all);
    c->unfinished = !emu_explorer_ended(c->explorer);
    if (!complete || c->unfinished) return complete;
    for (int i = 0; i < count; i++) {
        emu_end_cluster(c, &workers[i].cluster);
        if (emu_has_faulted(&workers[i].cluster)) atomic_store(&c->first_fault, c->cluster_total - 1);
        complete &= !emu_is_out_of_memory(&workers[i].cluster);
    }
    return complete;
}
