/* launch.c - launches: checks the arguments, spreads CTAs over threads of the host, collects what they leave. */
#include "../ptx/errors.h"
#include "crew.h"
#include "interleaving.h"
#include "machine.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LOCAL_BYTES = 512 << 10 };

/* ---- threads of the host ---- */

static uint64_t smaller_of(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* As many as the launch asks for, or the host has. */
static long host_threads(const emu_launch *l) {
    const long wanted = l->threads > 0 ? l->threads : sysconf(_SC_NPROCESSORS_ONLN);
    return l->trace.file || l->trace.events || wanted < 1 ? 1 : wanted;
}

static void run_cluster(crew *c, cluster *own, uint64_t index) {
    quiet q = {.changes = UINT64_MAX};
    emu_start_cluster(own, index);
    while (emu_run_turn(own, false) != TURN_ENDED) emu_check_livelock(&q, own);
    emu_end_cluster(c, own);
}

/* The cluster that runs as number `turn`: all in order, or a sample that is spread over the grid. The first and the
 * last are in it, because the edges of a problem are most often theirs. */
static uint64_t cluster_of_turn(const crew *c, uint64_t turn) {
    const uint64_t total = c->cluster_total, begin = turn * total / c->turns, end = (turn + 1) * total / c->turns;
    if (c->turns == total || !turn) return turn;
    return turn + 1 == c->turns ? total - 1 : begin + emu_mix(turn ^ c->launch->schedule) % (end - begin);
}

static void *work(void *argument) {
    worker *self = argument;
    crew *c = self->crew;
    cluster *own = &self->cluster;
    for (;;) {
        const uint64_t turn = atomic_fetch_add(&c->next_cluster, 1);
        const uint64_t index = turn < c->turns ? cluster_of_turn(c, turn) : c->cluster_total;
        /* CTAs after a fault are not run: what is found does not depend on how many threads there are */
        if (index >= c->cluster_total || index > atomic_load(&c->first_fault)) return NULL;
        run_cluster(c, own, index);
        uint64_t known = atomic_load(&c->first_fault);
        while (emu_has_faulted(own) && index < known && !atomic_compare_exchange_weak(&c->first_fault, &known, index)) {
        }
        if (emu_is_out_of_memory(own)) return NULL;
    }
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
        return emu_fail(error, "the cluster has %" PRIu64 " CTAs: more than %d are not possible and not supported",
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
    if (l->stale && !(l->checks && l->schedule))
        return emu_fail(error, "stale values need checks and the seed of a schedule");
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

/* Upper limit of a running CTA's memory: local memory only occupies what was touched. */
static uint64_t state_bytes(const emu_launch *l, const entry *code) {
    uint64_t threads = ((uint64_t)l->block[0] * l->block[1] * l->block[2] + LANES - 1) / LANES * LANES;
    uint64_t shared = code->shared_bytes + (uint64_t)l->dynamic_shared;
    uint64_t bytes = sizeof(cta) + shared + threads * (code->local_bytes + 4ull * code->slot_count);
    return bytes + (l->checks ? emu_checks_bytes(code, threads, shared) : 0);
}

/* Clusters to run. CTAs that tell each other something must all run. */
static uint64_t turns_of(const crew *c) {
    const uint64_t wanted = c->launch->sample / (c->cta_total / c->cluster_total);
    const bool all = !c->launch->sample || c->in_turns || c->explorer || c->code->cancels;
    return all || wanted >= c->cluster_total ? c->cluster_total : wanted ? wanted : 1;
}

/* Threads of the host: each runs a cluster at a time. */
static int worker_count(const crew *c) {
    const emu_launch *l = c->launch;
    const uint64_t state = state_bytes(l, c->code) * (c->cta_total / c->cluster_total);
    uint64_t most = smaller_of(MAX_STATE_BYTES / state + 1, smaller_of(c->cluster_total, MAX_THREADS));
    return (int)smaller_of((uint64_t)c->threads, most);
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

/* True if a reduction gives the same result in any order. */
static bool commutes(int32_t reduction) {
    return (reduction & 0xff) == ATOMIC_INTEGER && reduction >> 8 <= ATOMIC_XOR;
}

/* Integer sums and the like, whose order does not matter where nobody looks at the results. */
static bool any_order(const op *o) {
    return o->kind == OP_ATOMIC && !o->asks && o->target == ATOMIC_INTEGER && o->detail <= ATOMIC_XOR;
}

/* True if a program polls memory at all, or if what a CTA does can depend on what others did before. */
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
    c->in_turns |= c->launch->stale;
}

/* True if CTAs tell each other nothing but which work tiles are taken, by relaxed atomics in global memory, which order
 * nothing; all_turns: or store what none of them loads while it runs, by relaxed stores, or order their accesses by
 * fences next to the atomics, as those that combine partial results. Then another CTA can depend on what a CTA does
 * between two atomics only after the second, and a cluster may run before its turn as far as the next one. */
static bool only_draws(const entry *code, const emu_launch *l, bool all_turns) {
    if (l->schedule || l->first_finding_only) return false;
    for (size_t i = 0; i < code->op_count; i++) {
        const op *o = &code->ops[i];
        const bool wide = o->space == SPACE_GLOBAL || o->space == SPACE_GENERIC;
        if (o->kind == OP_CALL && (o->detail == CALL_MALLOC || o->detail == CALL_FREE)) return false;
        if (o->kind == OP_BULK && o->detail & BULK_STORE && o->detail & BULK_REDUCES) return false;
        if (o->kind == OP_FENCE && !(o->order & ORDER_CTA) && !all_turns) return false;
        if (wide && o->kind == OP_LOAD && (o->asks || o->order)) return false;
        if (wide && o->kind == OP_STORE && o->order && (!all_turns || o->order != ORDER_STRONG)) return false;
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
    for (int i = 0; i < count; i++) complete &= emu_hire(c, &workers[i]);
    if (!complete) return false;
    for (int i = 1; i < count; i++) {
        if (pthread_create(&threads[started], NULL, work, &workers[i])) break;
        started++;
    }
    work(&workers[0]); /* fewer threads than asked for do the same work */
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < count; i++) complete &= !emu_is_out_of_memory(&workers[i].cluster);
    return complete;
}

static void print_outputs(crew *c) {
    for (uint64_t i = 0; c->outputs && i < c->cta_total; i++) {
        if (c->outputs[i]) fputs(c->outputs[i], c->launch->output);
        free(c->outputs[i]);
    }
    free(c->outputs);
}

/* Reasons why the run does not represent all interleavings: see check/orders.h. */
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
    c.threads = code->cancels ? 1 : host_threads(launch); /* else it would matter who cancels */
    device->one_thread = c.threads == 1;
    c.only_draws = c.in_turns && only_draws(code, launch, !explorer);
    c.turns = turns_of(&c);
    int count = c.in_turns || c.explorer ? resident_clusters(&c) : worker_count(&c);
    if (c.explorer && (uint64_t)count < c.cluster_total)
        return emu_fail(error, "all orders of %" PRIu64 " CTAs, of which %d are resident together: take fewer",
                        c.cta_total, (int)(count * (c.cta_total / c.cluster_total))),
               EMU_REFUSED;
    worker *workers = calloc((size_t)count, sizeof *workers);
    bool complete = workers && prepare_device(device, module, code, launch->checks);
    if (complete && launch->checks)
        complete = emu_races_create(&c.races, code, launch, c.cluster,
                                    c.in_turns && (explorer || !c.only_draws || code->has_fence));
    if (complete && (launch->stale || (explorer && launch->checks)))
        complete = (c.stale = emu_stale_new(launch->schedule, explorer != NULL)) != NULL;
    if (complete && launch->output) complete = (c.outputs = calloc((size_t)c.cta_total, sizeof *c.outputs)) != NULL;
    if (complete)
        complete = c.explorer   ? emu_run_explored(&c, workers, count)
                   : c.in_turns ? emu_run_in_turns(&c, workers, count)
                                : run_workers(&c, workers, count);
    while (count > 1 && workers && !workers[count - 1].cluster.ctas) count--; /* those that had no CTA */
    if (complete && !c.unfinished && c.races && atomic_load(&c.first_fault) == UINT64_MAX)
        emu_report_grid_races(c.races, workers[0].cluster.ctas);
    if (complete && !c.unfinished) {
        complete = emu_merge_findings(&c, workers, count) && emu_finish_outputs(&c);
        emu_merge_counts(&c, workers, count);
    }
    emu_footprint_free(device->footprint);
    device->footprint = complete && launch->footprint && c.races ? emu_footprint_of(c.races, device, code) : NULL;
    print_outputs(&c);
    emu_written_end_launch(device, launch->checks);
    const unsigned orders = complete ? order_gaps(&c, workers, count) : 0;
    for (int i = 0; workers && i < count; i++) emu_free_cluster(&workers[i].cluster);
    free(workers);
    const bool races_unseen = emu_races_spent(c.races);
    emu_races_free(c.races);
    emu_stale_free(c.stale);
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
                                      .ctas = c.turns * (c.cta_total / c.cluster_total),
                                      .entry = launch->entry};
    if (atomic_load(&c.first_fault) != UINT64_MAX) return EMU_FAULT;
    return device->finding_count ? EMU_FINDINGS : EMU_OK;
}
