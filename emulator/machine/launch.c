/* launch.c - launches: CTAs over host threads, or in turns where they tell each other. */
#include "../ptx/errors.h"
#include "lookahead.h"
#include "calls.h"
#include "crew.h"
#include "../explore/explore.h"
#include "delayed.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LOCAL_BYTES = 512 << 10 };

/* ---- machines ---- */

static void cta_free(cta *m) {
    emu_shadow_free(m); /* reads the warps */
    emu_flags_free(m);
    emu_orders_free(m);
    emu_order_free(m);
    for (uint32_t i = 0; m->warps && i < m->warp_count; i++) {
        warp *w = &m->warps[i];
        free(w->file);
        free(w->predicates);
        free(w->undefined);
        free(w->stack);
        emu_free_calls(w);
        free(w->copies);
        free(w->wgmmas);
        free(w->wgmma_uses);
        free(w->seen);
        free(w->arrives);
    }
    for (size_t i = 0; i < m->finding_count; i++) free(m->findings[i].message);
    free(m->warps);
    free(m->shared);
    free(m->local);
    free(m->findings);
    free(m->bulk);
    free(m->unfinished);
    emu_late_forget(m);
    m->reads_early = false;
    free(m->late);
    free(m->counts);
    free(m->output);
}

static void *zeroed(size_t bytes) {
    size_t whole = (bytes + 64) / 64 * 64;
    void *memory = aligned_alloc(64, whole);
    if (memory) memset(memory, 0, whole);
    return memory;
}

/* Pages that nobody touches take no room: a large local memory is a new one for each CTA. */
static bool create_local(cta *m) {
    free(m->local);
    m->local = calloc((size_t)m->warp_count * LANES, m->code->local_bytes + 1);
    return m->local != NULL;
}

static void free_cluster(cluster *c) {
    for (uint32_t i = 0; c->ctas && i < c->count; i++) cta_free(&c->ctas[i]);
    free(c->ctas);
    free(c->clocks);
    emu_race_table_free(c->races);
}

static bool cta_create(cta *m) {
    const entry *code = m->code;
    m->threads = m->launch->block[0] * m->launch->block[1] * m->launch->block[2];
    m->warp_count = (m->threads + LANES - 1) / LANES;
    uint32_t fixed = (code->shared_bytes + 127) / 128 * 128;
    m->shared_bytes = m->launch->dynamic_shared ? fixed + m->launch->dynamic_shared : code->shared_bytes;
    m->checks = m->launch->checks;
    m->warps = zeroed(m->warp_count * sizeof *m->warps);
    m->shared = zeroed(m->shared_bytes + 16);
    m->counts = zeroed((code->instruction_count + 1) * sizeof *m->counts);
    bool complete = m->warps && m->shared && m->counts && create_local(m);
    for (uint32_t i = 0; complete && i < m->warp_count; i++) {
        warp *w = &m->warps[i];
        w->file = zeroed((size_t)code->slot_count * LANES * sizeof *w->file);
        w->predicates = zeroed((code->predicate_count + 1) * sizeof *w->predicates);
        w->undefined = zeroed((code->slot_count + code->predicate_count + 1) * sizeof *w->undefined);
        w->stack = zeroed(MAX_PATHS * sizeof *w->stack);
        w->stack_capacity = MAX_PATHS;
        complete = w->file && w->predicates && w->undefined && w->stack;
        if (!m->checks || !code->uses_wgmma) continue;
        w->wgmma_uses = zeroed(code->register_count * sizeof *w->wgmma_uses);
        complete &= w->wgmma_uses != NULL;
    }
    return complete && (!m->checks || (emu_shadow_create(m) && emu_flags_create(m) && emu_orders_create(m)));
}

/* ---- start of a CTA ---- */

static uint32_t cluster_value(const cta *m, special_register which) {
    const cluster *c = m->cluster;
    switch (which) {
    case SPECIAL_CLUSTERID_X:
    case SPECIAL_CLUSTERID_Y:
    case SPECIAL_CLUSTERID_Z:
        return c->place[which - SPECIAL_CLUSTERID_X];
    case SPECIAL_NCLUSTERID_X:
    case SPECIAL_NCLUSTERID_Y:
    case SPECIAL_NCLUSTERID_Z:
        return m->launch->grid[which - SPECIAL_NCLUSTERID_X] / c->size[which - SPECIAL_NCLUSTERID_X];
    case SPECIAL_CLUSTER_CTAID_X:
    case SPECIAL_CLUSTER_CTAID_Y:
    case SPECIAL_CLUSTER_CTAID_Z:
        return m->cta[which - SPECIAL_CLUSTER_CTAID_X] % c->size[which - SPECIAL_CLUSTER_CTAID_X];
    case SPECIAL_CLUSTER_NCTAID_X:
    case SPECIAL_CLUSTER_NCTAID_Y:
    case SPECIAL_CLUSTER_NCTAID_Z:
        return c->size[which - SPECIAL_CLUSTER_NCTAID_X];
    case SPECIAL_CLUSTER_CTARANK:
        return m->rank;
    case SPECIAL_CLUSTER_NCTARANK:
        return c->count;
    default:
        return c->is_explicit;
    }
}

static uint32_t special_value(const cta *m, special_register which, uint32_t warp_index, uint32_t lane) {
    const emu_launch *l = m->launch;
    if (which >= SPECIAL_CLUSTERID_X && which <= SPECIAL_IS_EXPLICIT_CLUSTER) return cluster_value(m, which);
    uint32_t thread = warp_index * LANES + lane;
    switch (which) {
    case SPECIAL_TID_X:
        return thread % l->block[0];
    case SPECIAL_TID_Y:
        return thread / l->block[0] % l->block[1];
    case SPECIAL_TID_Z:
        return thread / l->block[0] / l->block[1];
    case SPECIAL_NTID_X:
    case SPECIAL_NTID_Y:
    case SPECIAL_NTID_Z:
        return l->block[which - SPECIAL_NTID_X];
    case SPECIAL_CTAID_X:
    case SPECIAL_CTAID_Y:
    case SPECIAL_CTAID_Z:
        return m->cta[which - SPECIAL_CTAID_X];
    case SPECIAL_NCTAID_X:
    case SPECIAL_NCTAID_Y:
    case SPECIAL_NCTAID_Z:
        return l->grid[which - SPECIAL_NCTAID_X];
    case SPECIAL_LANEID:
        return lane;
    case SPECIAL_WARPID:
        return warp_index;
    case SPECIAL_NWARPID:
        return m->warp_count;
    case SPECIAL_LANEMASK_EQ:
        return 1u << lane;
    case SPECIAL_LANEMASK_LT:
        return (1u << lane) - 1;
    case SPECIAL_LANEMASK_LE:
        return (1u << lane) | ((1u << lane) - 1);
    case SPECIAL_LANEMASK_GT:
        return ~((1u << lane) | ((1u << lane) - 1));
    case SPECIAL_LANEMASK_GE:
        return ~((1u << lane) - 1);
    case SPECIAL_DYNAMIC_SHARED:
        return l->dynamic_shared;
    case SPECIAL_TOTAL_SHARED:
        return m->shared_bytes;
    case SPECIAL_NSMID:
        return 1; /* one multiprocessor, number 0, runs everything */
    default:
        return 0;
    }
}

/* Constants and special registers live in slots like others; the rest starts at zero, so that runs repeat exactly. */
static void fill_registers(const cta *m, warp *w) {
    const entry *code = m->code;
    memset(w->file, 0, (size_t)code->slot_count * LANES * sizeof *w->file);
    for (size_t v = 0; v < code->register_count; v++) {
        const virtual_register *reg = &code->registers[v];
        if (reg->kind == REGISTER_PLAIN) continue;
        for (uint32_t lane = 0; lane < LANES; lane++) {
            if (reg->kind == REGISTER_SPECIAL) {
                slot32(w, reg->slot)[lane] = special_value(m, (special_register)reg->value, (uint32_t)w->index, lane);
            } else if (reg->bits == 32) {
                slot32(w, reg->slot)[lane] = (uint32_t)reg->value;
            } else {
                slot64(w, reg->slot)[lane] = reg->value;
            }
        }
    }
}

static void start_warp(cta *m, uint32_t index) {
    warp *w = &m->warps[index];
    uint32_t lanes = m->threads - index * LANES;
    w->index = (int)index;
    w->present = lanes >= LANES ? ALL_LANES : (1u << lanes) - 1;
    w->active = w->present;
    w->exited = 0;
    w->pc = 0;
    w->join = -1;
    w->depth = 0;
    w->frame = -1;
    memset(w->frame_base, 0, sizeof w->frame_base);
    emu_leave_calls(w, ALL_LANES);
    w->split = w->forced = w->tries_again = false;
    w->spins = w->turns = w->wanted = 0;
    w->state = WARP_READY;
    w->waits_for_late = false;
    w->late_accesses = w->late_fences = 0;
    w->loaded = w->acquired = w->delayed = 0;
    w->poll_failed = w->poll_answers = false;
    w->polls = 0;
    w->quiet_steps = w->quiet_changes = w->poll_changes = 0;
    w->clock = 1;
    w->together = true;
    w->synced = 0;
    w->copy_count = w->arrive_count = w->wgmma_count = 0;
    w->registers = 0;
    memset(w->bulk_commits, 0, sizeof w->bulk_commits);
    w->wgmma_issued = w->wgmma_landed = w->wgmma_commits = 0;
    w->register_changes = 0;
    if (w->seen) memset(w->seen, 0, MAX_MBARRIERS * sizeof *w->seen);
    w->wgmma_fences = 0;
    if (w->wgmma_uses) memset(w->wgmma_uses, 0, m->code->register_count * sizeof *w->wgmma_uses);
    w->copy_serial = 0;
    w->cluster_arrived = 0;
    w->cluster_phase = 0;
    w->cluster_waits = false;
    memset(w->commits, 0, sizeof w->commits);
    memset(w->predicates, 0, (m->code->predicate_count + 1) * sizeof *w->predicates);
    if (m->checks) emu_start_undefined(m, w);
    fill_registers(m, w);
}

static void clear_local(cta *m) {
    enum { LARGE = 1 << 20 };
    size_t bytes = (size_t)m->warp_count * LANES * m->code->local_bytes;
    if (bytes <= LARGE)
        memset(m->local, 0, bytes);
    else if (!create_local(m))
        m->out_of_memory = m->faulted = true;
}

static void start_cta(cta *m) {
    const uint32_t *grid = m->launch->grid;
    uint32_t rest = m->rank;
    for (int i = 0; i < 3; i++) {
        m->cta[i] = m->cluster->place[i] * m->cluster->size[i] + rest % m->cluster->size[i];
        rest /= m->cluster->size[i];
    }
    m->cta_index = m->cta[0] + (uint64_t)grid[0] * (m->cta[1] + (uint64_t)grid[1] * m->cta[2]);
    m->random = emu_mix(m->launch->schedule ^ emu_mix(m->cta_index));
    m->ended = false;
    m->polled_at = 0;
    m->faulted = false;
    m->here = 0;
    m->steps = 0;
    m->vain_polls = 0;
    m->changes = 0;
    m->last_warp = -1;
    m->output_length = 0;
    for (int i = 0; i < m->mbarrier_count; i++) m->mbarriers[i].live = false;
    m->mbarrier_count = 0;
    m->bulk_count = m->unfinished_count = 0;
    emu_late_forget(m);
    memset(m->wgmma_done, 0, sizeof m->wgmma_done);
    memset(m->shared, 0, m->shared_bytes);
    clear_local(m);
    for (int i = 0; i < BARRIERS; i++) m->barriers[i] = (named_barrier){.clocks = m->barriers[i].clocks};
    for (uint32_t i = 0; i < m->warp_count; i++) start_warp(m, i);
    if (m->checks) emu_shadow_start_cta(m);
    if (m->checks) emu_flags_start_cta(m);
    if (m->checks) emu_order_start_cta(m);
    if (m->checks) emu_orders_start_cta(m);
}

static void start_cluster(cluster *c, uint64_t index) {
    const uint32_t *grid = c->ctas->launch->grid;
    uint64_t rest = index;
    for (int i = 0; i < 3; i++) {
        c->place[i] = (uint32_t)(rest % (grid[i] / c->size[i]));
        rest /= grid[i] / c->size[i];
    }
    c->index = index;
    c->phase = 0;
    c->draws = 0;
    c->last = c->count - 1;
    c->random = emu_mix(c->ctas->launch->schedule ^ emu_mix(~index));
    for (uint32_t i = 0; i < c->count; i++) start_cta(&c->ctas[i]);
}

/* ---- threads of the host ---- */

static uint64_t smaller_of(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* As many as the launch asks for, or the host has. */
static long host_threads(const emu_launch *l) {
    const long wanted = l->threads > 0 ? l->threads : sysconf(_SC_NPROCESSORS_ONLN);
    return l->trace.file || l->trace.events || wanted < 1 ? 1 : wanted;
}

static void keep_output(crew *c, cta *m) {
    if (!m->output_length || !c->outputs) return;
    char *text = malloc(m->output_length + 1);
    if (!text) return;
    memcpy(text, m->output, m->output_length);
    text[m->output_length] = 0;
    c->outputs[m->cta_index] = text; /* each CTA has its own place */
}

/* Whether they last for too long: their loops change nothing at all, or only registers, such as a number of polls after
 * which a loop ends. */
static bool lasts_too_long(quiet *q, uint64_t changes, uint64_t steps, cta *const *resident, size_t count) {
    enum { QUIET_STEPS = 1000000, MAX_QUIET_STEPS = 200000000 };
    if (q->changes != changes) *q = (quiet){changes, steps, steps};
    if (steps - q->checked < QUIET_STEPS) return false;
    q->checked = steps;
    return steps - q->begin > MAX_QUIET_STEPS || emu_all_run_in_circles(resident, count);
}

/* CTAs for a worker; false when out of memory. */
static bool hire(crew *c, worker *self) {
    cluster *own = &self->cluster;
    self->crew = c;
    *own = (cluster){.count = c->cluster[0] * c->cluster[1] * c->cluster[2],
                     .size = {c->cluster[0], c->cluster[1], c->cluster[2]},
                     .is_explicit = c->is_explicit};
    own->ctas = calloc(own->count, sizeof *own->ctas);
    own->races = emu_race_table(c->races);
    bool complete = own->ctas && (own->races || !c->races);
    for (uint32_t i = 0; complete && i < own->count; i++) {
        cta *m = &own->ctas[i];
        *m = (cta){.module = c->module, .code = c->code, .device = c->device, .launch = c->launch};
        m->cluster = own;
        m->rank = i;
        m->watches = c->polls;
        m->explores = c->explorer != NULL;
        m->ignored = &c->ignored;
        complete = cta_create(m);
    }
    return complete;
}

static bool has_faulted(const cluster *c) {
    bool faulted = false;
    for (uint32_t i = 0; i < c->count; i++) faulted |= c->ctas[i].faulted;
    return faulted;
}

static bool is_out_of_memory(const cluster *c) {
    bool out = false;
    for (uint32_t i = 0; c->ctas && i < c->count; i++) out |= c->ctas[i].out_of_memory;
    return out;
}

/* What its CTAs have done so far. */
static quiet progress_of(const cluster *c) {
    quiet sum = {0};
    for (uint32_t i = 0; i < c->count; i++) {
        sum.changes += c->ctas[i].changes;
        sum.begin += c->ctas[i].steps;
    }
    return sum;
}

static void end_cluster(crew *c, cluster *ended) {
    for (uint32_t i = 0; i < ended->count; i++) {
        cta *m = &ended->ctas[i];
        if (m->checks && m->bulk_count && !has_faulted(ended)) emu_check_no_bulk_left(m);
        emu_land_stores(m);
        m->steps_total += m->steps;
        atomic_fetch_add(&c->device->ctas_done, 1);
        keep_output(c, m);
        emu_order_free(m);
    }
    if (ended->races) emu_races_end_cluster(ended->races);
}

/* No warp is ready that does anything but poll. */
static void check_livelock(quiet *q, cluster *c) {
    const quiet now = progress_of(c);
    cta *all[MAX_CLUSTER];
    size_t count = 0;
    for (uint32_t i = 0; i < c->count; i++)
        if (!c->ctas[i].ended) all[count++] = &c->ctas[i];
    if (lasts_too_long(q, now.changes, now.begin, all, count)) emu_report_livelock(all, count, now.begin - q->begin, 0);
}

static void run_cluster(crew *c, cluster *own, uint64_t index) {
    quiet q = {.changes = UINT64_MAX};
    start_cluster(own, index);
    while (emu_run_turn(own, false) != TURN_ENDED) check_livelock(&q, own);
    end_cluster(c, own);
}

static void *work(void *argument) {
    worker *self = argument;
    crew *c = self->crew;
    cluster *own = &self->cluster;
    for (;;) {
        uint64_t index = atomic_fetch_add(&c->next_cluster, 1);
        /* CTAs behind a fault are not run: what is found does not depend on how many threads there are */
        if (index >= c->cluster_total || index > atomic_load(&c->first_fault)) return NULL;
        run_cluster(c, own, index);
        uint64_t known = atomic_load(&c->first_fault);
        while (has_faulted(own) && index < known && !atomic_compare_exchange_weak(&c->first_fault, &known, index)) {
        }
        if (is_out_of_memory(own)) return NULL;
    }
}

/* ---- CTAs that tell each other ---- */

/* Those that are resident, on one thread of the host: so their order does not depend on how many threads there are. */
typedef struct grid_turns {
    crew *crew;
    worker *workers; /* as many as can be resident */
    int capacity, used, running, last;
    uint64_t changes, steps, random;
} grid_turns;

enum {
    SEEDED_CTAS = 8, /* resident ones between which a seed switches, while they can continue */
    DRAWING_CTAS = 8 /* those that draw tickets in turn, each on a thread of the host if there are as many */
};

static bool has_polled(const grid_turns *g, const worker *each) {
    return each->polled_at == g->changes + 1;
}

/* The worker that takes up the next cluster; NULL when out of memory. */
static worker *start_next(grid_turns *g) {
    worker *self = g->workers;
    while (self->runs) self++;
    if (self == g->workers + g->used) {
        g->used++;
        if (!hire(g->crew, self)) return NULL;
    }
    start_cluster(&self->cluster, g->crew->next_cluster++);
    self->runs = true;
    self->polled_at = 0;
    g->running++;
    return self;
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
    for (int i = 0; i < g->used; i++) ready += g->workers[i].runs && !has_polled(g, &g->workers[i]);
    while (g->running < g->capacity && g->crew->next_cluster < g->crew->cluster_total) {
        if (seeded && ready >= SEEDED_CTAS) break;
        worker *self = start_next(g);
        *complete = self != NULL;
        if (!seeded || !self) return self;
        ready++;
    }
    if (seeded && ready) skipped = (int)((g->random = emu_mix(g->random)) % (uint64_t)ready);
    for (int k = 1; k <= g->used; k++) {
        int i = (g->last + k) % g->used;
        if (g->workers[i].runs && !has_polled(g, &g->workers[i]) && !skipped--) return &g->workers[i];
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
    bool ends = count && lasts_too_long(q, g->changes, g->steps, all, count);
    if (ends)
        emu_report_livelock(all, count, g->steps - q->begin,
                            (g->crew->cluster_total - g->crew->next_cluster) * of_cluster);
    free(all);
    return ends;
}

static void begin_turn(worker *self) {
    self->before = progress_of(&self->cluster);
    self->cluster.drew = false;
    self->cluster.draws_apart = true;
}

static bool run_in_turns(crew *c, worker *workers, int capacity) {
    grid_turns g = {
        .crew = c, .workers = workers, .capacity = capacity, .last = -1, .random = emu_mix(c->launch->schedule)};
    quiet q = {.changes = UINT64_MAX};
    bool complete = true, faulted = false;
    if (c->only_draws) {
        const uint64_t threads = smaller_of((uint64_t)host_threads(c->launch), DRAWING_CTAS);
        complete = (c->ahead = emu_ahead_new(threads > 1 ? (int)threads : 0, emu_run_turn)) != NULL;
    }
    while (complete && !faulted && (g.running || c->next_cluster < c->cluster_total)) {
        worker *self = choose_cta(&g, &complete);
        if (!complete) break;
        if (!self) {
            for (int i = 0; i < g.used; i++) workers[i].polled_at = 0;
            faulted = ends_in_livelock(&g, &q);
            continue;
        }
        const bool begun = c->ahead && self->drew;
        if (!begun) begin_turn(self);
        const cta_turn turn = c->ahead ? emu_ahead_turn(c->ahead, &self->cluster) : emu_run_turn(&self->cluster, true);
        const quiet after = progress_of(&self->cluster);
        g.last = (int)(self - workers);
        g.changes += after.changes - self->before.changes + (turn == TURN_ENDED);
        g.steps += after.begin - self->before.begin;
        self->polled_at = turn == TURN_POLLS ? g.changes + 1 : 0;
        self->drew = turn == TURN_PAUSED && self->cluster.drew;
        if (c->ahead && self->drew) {
            begin_turn(self);
            emu_ahead_begin(c->ahead, &self->cluster);
        }
        if (turn != TURN_ENDED) continue;
        self->runs = false;
        g.running--;
        end_cluster(c, &self->cluster);
        faulted = has_faulted(&self->cluster);
        complete = !is_out_of_memory(&self->cluster);
    }
    emu_ahead_free(c->ahead);
    if (faulted) atomic_store(&c->first_fault, c->cluster_total - 1); /* what the others found counts too */
    return complete;
}

/* All CTAs are resident; whoever tells another waits for its turn. */
static bool run_explored(crew *c, worker *workers, int count) {
    cta **all = malloc((size_t)c->cta_total * sizeof(cta *));
    size_t ctas = 0;
    bool complete = all != NULL;
    for (int i = 0; complete && i < count; i++) {
        cluster *own = &workers[i].cluster;
        complete = hire(c, &workers[i]);
        if (!complete) break;
        start_cluster(own, c->next_cluster++);
        for (uint32_t k = 0; k < own->count; k++) all[ctas++] = &own->ctas[k];
    }
    if (complete) complete = emu_explorer_run(c->explorer, all, ctas);
    free(all);
    if (!complete || !emu_explorer_ended(c->explorer)) return complete;
    for (int i = 0; i < count; i++) {
        end_cluster(c, &workers[i].cluster);
        if (has_faulted(&workers[i].cluster)) atomic_store(&c->first_fault, c->cluster_total - 1);
        complete &= !is_out_of_memory(&workers[i].cluster);
    }
    return complete;
}

/* ---- a launch ---- */

/* The clusters of a launch, as it asks for them or as the entry is written. */
static bool find_clusters(const entry *code, const emu_launch *l, crew *c, emu_error *error) {
    const uint32_t *required = code->info.cluster, *asked = l->cluster;
    const bool asks = asked[0] || asked[1] || asked[2];
    uint64_t count = 1;
    c->is_explicit = asks || required[0];
    if (code->explicit_cluster && !c->is_explicit)
        return emu_fail(error, "the entry is written for clusters (.explicitcluster), and the launch has none");
    for (int i = 0; i < 3; i++) {
        c->cluster[i] = asks ? asked[i] : required[0] ? required[i] : 1;
        if (!c->cluster[i]) return emu_fail(error, "a size of the cluster is 0");
        if (required[0] && c->cluster[i] != required[i])
            return emu_fail(error, "the entry is written for clusters of %u x %u x %u CTAs", required[0], required[1],
                            required[2]);
        if (l->grid[i] % c->cluster[i])
            return emu_fail(error, "size %c of the grid is %u, not a multiple of the cluster's %u", 'x' + i, l->grid[i],
                            c->cluster[i]);
        count *= c->cluster[i];
    }
    if (count > MAX_CLUSTER)
        return emu_fail(error, "the cluster has %" PRIu64 " CTAs: more than %d are not portable and not supported",
                        count, MAX_CLUSTER);
    if (code->max_cluster_rank && count > code->max_cluster_rank)
        return emu_fail(error, "the cluster has %" PRIu64 " CTAs, above the %u of .maxclusterrank", count,
                        code->max_cluster_rank);
    c->cta_total = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    c->cluster_total = c->cta_total / count;
    return true;
}

static bool check_size(const char *what, int i, uint32_t size, uint32_t most, emu_error *error) {
    if (size && size <= most) return true;
    return emu_fail(error, "size %c of the %s is %u: it must be from 1 to %u", 'x' + i, what, size, most);
}

static bool check_launch(const emu_module *module, const emu_launch *l, emu_error *error) {
    static const uint32_t most_CTAs[] = {2147483647, 65535, 65535}, most_threads[] = {1024, 1024, 64};
    if (!emu_decode(module, l->entry, error)) return false;
    const entry *code = &module->entries[l->entry];
    uint64_t threads = 1;
    for (int i = 0; i < 3; i++) {
        if (!check_size("grid", i, l->grid[i], most_CTAs[i], error) ||
            !check_size("block", i, l->block[i], most_threads[i], error))
            return false;
        if (code->required_threads[0] && code->required_threads[i] != l->block[i]) {
            return emu_fail(error, "the entry is written for blocks of %u x %u x %u threads", code->required_threads[0],
                            code->required_threads[1], code->required_threads[2]);
        }
        threads *= l->block[i];
    }
    if (threads > 1024) return emu_fail(error, "the block has %" PRIu64 " threads, above 1024", threads);
    if (code->info.max_threads && threads > code->info.max_threads) {
        return emu_fail(error, "the block has %" PRIu64 " threads, above the %u that the entry was built for", threads,
                        code->info.max_threads);
    }
    if (l->param_bytes && !l->params)
        return emu_fail(error, "params is NULL, but the entry takes %u bytes of parameters", code->info.param_bytes);
    if (l->param_bytes != code->info.param_bytes) {
        return emu_fail(error, "%zu bytes of parameters where the entry takes %u", l->param_bytes,
                        code->info.param_bytes);
    }
    uint64_t shared = (uint64_t)code->shared_bytes + l->dynamic_shared;
    if (shared > 227 * 1024) return emu_fail(error, "%" PRIu64 " bytes of shared memory, above 232448", shared);
    if (code->local_bytes > MAX_LOCAL_BYTES)
        return emu_fail(error, "%u bytes of local memory per thread, above %d", code->local_bytes, MAX_LOCAL_BYTES);
    if ((uint64_t)l->grid[0] * l->grid[1] * l->grid[2] > UINT32_MAX - 1)
        return emu_fail(error, "more than 4294967294 CTAs");
    return emu_check_trace(l, error);
}

enum { MAX_THREADS = 256 };
#define MAX_STATE_BYTES (4ull << 30) /* of the CTAs at work together */

/* What a CTA at work needs, at most: local memory takes only what was touched. */
static uint64_t state_bytes(const emu_launch *l, const entry *code) {
    uint64_t threads = ((uint64_t)l->block[0] * l->block[1] * l->block[2] + LANES - 1) / LANES * LANES;
    uint64_t shared = code->shared_bytes + (uint64_t)l->dynamic_shared, cells = shared / code->granule_bytes + 1;
    uint64_t bytes = sizeof(cta) + shared + threads * (code->local_bytes + 4ull * code->slot_count);
    if (l->checks) bytes += cells * sizeof(shadow_cell);
    if (l->checks && code->needs_clocks)
        bytes += 4 * threads * (threads + BARRIERS + 2 * MAX_MBARRIERS) + cells * threads / LANES * sizeof(warp_read);
    if (l->checks && code->relaxed_flags) bytes += 8 * threads * threads;
    return bytes;
}

/* Threads of the host: each runs a cluster at a time. */
static int worker_count(const crew *c) {
    const emu_launch *l = c->launch;
    const uint64_t state = state_bytes(l, c->code) * (c->cta_total / c->cluster_total);
    uint64_t most = smaller_of(MAX_STATE_BYTES / state + 1, smaller_of(c->cluster_total, MAX_THREADS));
    return (int)smaller_of((uint64_t)host_threads(l), most);
}

/* Clusters that are resident together, on as many multiprocessors as an A100 has, of which a program cannot have more
 * than there is memory for. How many registers ptxas gives a thread is not known, and limits nothing here. */
static int resident_clusters(const crew *c) {
    const emu_launch *l = c->launch;
    const entry *code = c->code;
    enum { SMS = 108, SM_THREADS = 2048, SM_CTAS = 32, SM_SHARED = 164 << 10, CTA_RESERVED = 1 << 10 };
    uint64_t threads = ((uint64_t)l->block[0] * l->block[1] * l->block[2] + LANES - 1) / LANES * LANES;
    uint64_t shared = (uint64_t)code->shared_bytes + l->dynamic_shared + CTA_RESERVED;
    uint64_t of_sm = smaller_of(SM_CTAS, smaller_of(SM_THREADS / threads, SM_SHARED / shared));
    uint64_t of_cluster = c->cta_total / c->cluster_total, most = SMS * (of_sm ? of_sm : 1) / of_cluster;
    return (int)smaller_of(c->cluster_total, smaller_of(most, MAX_STATE_BYTES / of_cluster / state_bytes(l, code) + 1));
}

/* ---- programs whose CTAs tell each other ---- */

/* Whether a reduction gives the same in any order. */
static bool commutes(int32_t reduction) {
    return (reduction & 0xff) == ATOMIC_INTEGER && reduction >> 8 <= ATOMIC_XOR;
}

/* Integer sums and the like, whose order does not matter where nobody looks at the results. */
static bool any_order(const op *o) {
    return o->kind == OP_ATOMIC && !o->asks && o->target == ATOMIC_INTEGER && o->detail <= ATOMIC_XOR;
}

/* Whether a program polls memory at all, and whether what a CTA does can depend on what others did before. */
static void find_communication(crew *c) {
    const entry *code = c->code;
    for (size_t i = 0; i < code->op_count; i++) {
        const op *o = &code->ops[i];
        bool wide = o->space == SPACE_GLOBAL || o->space == SPACE_GENERIC;
        c->polls |= o->asks;
        c->in_turns |= o->kind == OP_CALL && (o->detail == CALL_MALLOC || o->detail == CALL_FREE);
        c->in_turns |= o->kind == OP_BULK && o->detail & BULK_STORE && o->detail & BULK_REDUCES &&
                       (o->detail & BULK_TENSOR || !commutes(o->target));
        c->in_turns |= wide && (o->asks || o->kind == OP_ATOMIC) && !any_order(o);
    }
}

/* Whether CTAs tell each other nothing but tickets: relaxed atomics in global memory, which order nothing. What one of
 * them does between two atomics is then its own affair, in any order, and stores between them are as in a program
 * without tickets. */
static bool only_draws(const entry *code, const emu_launch *l) {
    if (l->schedule || l->first_finding_only) return false;
    for (size_t i = 0; i < code->op_count; i++) {
        const op *o = &code->ops[i];
        const bool wide = o->space == SPACE_GLOBAL || o->space == SPACE_GENERIC;
        if (o->kind == OP_CALL && (o->detail == CALL_MALLOC || o->detail == CALL_FREE)) return false;
        if (o->kind == OP_BULK && o->detail & BULK_STORE && o->detail & BULK_REDUCES) return false;
        if (o->kind == OP_FENCE && !(o->order & ORDER_CTA)) return false;
        if (wide && (o->kind == OP_LOAD || o->kind == OP_STORE) && (o->asks || o->order)) return false;
        if (wide && o->kind == OP_ATOMIC && o->order & (ORDER_ACQUIRE | ORDER_RELEASE | ORDER_CTA)) return false;
    }
    return true;
}

static bool prepare_device(emu_device *device, const emu_module *module, const entry *code, bool checks) {
    free(device->rows);
    memset(device->grid_barrier, 0, sizeof device->grid_barrier);
    device->rows = calloc(code->instruction_count + 1, sizeof *device->rows);
    if (!device->rows || !emu_keep_variables(device, module, code->variables, code->variable_bytes)) return false;
    return emu_prepare_outputs(device, checks);
}

static bool run_workers(crew *c, worker *workers, int count) {
    pthread_t threads[256];
    int started = 0;
    bool complete = true;
    for (int i = 0; i < count; i++) complete &= hire(c, &workers[i]);
    if (!complete) return false;
    for (int i = 1; i < count; i++) {
        if (pthread_create(&threads[started], NULL, work, &workers[i])) break;
        started++;
    }
    work(&workers[0]); /* fewer threads than asked for do the same work */
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < count; i++) complete &= !is_out_of_memory(&workers[i].cluster);
    return complete;
}

static void print_outputs(crew *c) {
    for (uint64_t i = 0; c->outputs && i < c->cta_total; i++) {
        if (c->outputs[i]) fputs(c->outputs[i], c->launch->output);
        free(c->outputs[i]);
    }
    free(c->outputs);
}

/* What keeps the run from standing for all orders: see check/orders.h. */
static unsigned order_gaps(const crew *c, const worker *workers, int count) {
    unsigned gaps =
        emu_orders_gaps_of(c->code, c->launch->checks, c->in_turns, c->explorer != NULL, emu_races_spent(c->races));
    for (int i = 0; i < count; i++)
        for (uint32_t k = 0; k < workers[i].cluster.count; k++) gaps |= emu_orders_gaps(&workers[i].cluster.ctas[k]);
    return gaps;
}

emu_status emu_run(emu_device *device, const emu_module *module, const emu_launch *launch, emu_error *error) {
    return emu_run_with(device, module, launch, NULL, error);
}

/* Without an explorer: see emu_run(). */
emu_status emu_run_with(emu_device *device, const emu_module *module, const emu_launch *launch, explorer *explorer,
                        emu_error *error) {
    *error = (emu_error){0};
    device->counters = (emu_counters){0};
    emu_free_findings(device); /* of an earlier launch: this one may be refused */
    atomic_store(&device->ctas_done, 0);
    if (!check_launch(module, launch, error)) return EMU_REFUSED;
    const entry *code = &module->entries[launch->entry];
    crew c = {.device = device, .module = module, .code = code, .launch = launch};
    if (!find_clusters(code, launch, &c, error)) return EMU_REFUSED;
    c.explorer = explorer;
    if (!emu_parse_ignored(launch->ignore, &c.ignored, error)) return EMU_REFUSED;
    atomic_store(&c.first_fault, UINT64_MAX);
    find_communication(&c);
    c.only_draws = c.in_turns && !explorer && only_draws(code, launch);
    int count = c.in_turns || c.explorer ? resident_clusters(&c) : worker_count(&c);
    if (c.explorer)
        emu_explorer_note_draws(c.explorer, c.in_turns && c.cta_total == c.cluster_total && only_draws(code, launch));
    if (c.explorer && (uint64_t)count < c.cluster_total)
        return emu_fail(error, "all orders of %" PRIu64 " CTAs, of which %d are resident together: take fewer",
                        c.cta_total, (int)(count * (c.cta_total / c.cluster_total))),
               EMU_REFUSED;
    worker *workers = calloc((size_t)count, sizeof *workers);
    bool complete = workers && prepare_device(device, module, code, launch->checks);
    if (complete && launch->checks)
        complete = emu_races_create(&c.races, code, launch, c.cluster, c.in_turns && !c.only_draws);
    if (complete && launch->output) complete = (c.outputs = calloc((size_t)c.cta_total, sizeof *c.outputs)) != NULL;
    if (complete)
        complete = c.explorer   ? run_explored(&c, workers, count)
                   : c.in_turns ? run_in_turns(&c, workers, count)
                                : run_workers(&c, workers, count);
    const bool ended = !c.explorer || emu_explorer_ended(c.explorer);
    while (count > 1 && workers && !workers[count - 1].cluster.ctas) count--; /* those that had no CTA */
    if (complete && ended && c.races && atomic_load(&c.first_fault) == UINT64_MAX)
        emu_report_grid_races(c.races, workers[0].cluster.ctas);
    if (complete && ended) {
        complete = emu_merge_findings(&c, workers, count) && emu_finish_outputs(&c);
        emu_merge_counts(&c, workers, count);
    }
    print_outputs(&c);
    const unsigned orders = complete ? order_gaps(&c, workers, count) : 0;
    for (int i = 0; workers && i < count; i++) free_cluster(&workers[i].cluster);
    free(workers);
    const bool races_unseen = emu_races_spent(c.races);
    emu_races_free(c.races);
    if (!complete) {
        emu_fail(error, "out of memory");
        return EMU_REFUSED;
    }
    const emu_counter total = device->counters.total;
    device->counters = (emu_counters){.rows = device->rows,
                                      .count = code->instruction_count,
                                      .regions = code->regions,
                                      .region_count = code->region_count,
                                      .total = total,
                                      .steps = device->counters.steps,
                                      .traced = device->counters.traced,
                                      .races_unseen = races_unseen,
                                      .orders = orders,
                                      .entry = launch->entry};
    if (atomic_load(&c.first_fault) != UINT64_MAX) return EMU_FAULT;
    return device->finding_count ? EMU_FINDINGS : EMU_OK;
}
