/* launch.c - launches: CTAs over host threads, and the order of warps. */
#include "launch.h"
#include "checks.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PATHS = 80, MAX_VAIN_POLLS = 10000 };

/* ---- machines ---- */

static void machine_free(machine *m) {
    for (uint32_t i = 0; m->warps && i < m->warp_count; i++) {
        warp *w = &m->warps[i];
        free(w->file);
        free(w->predicates);
        free(w->written);
        free(w->stack);
        free(w->copies);
        free(w->arrives);
    }
    for (size_t i = 0; i < m->finding_count; i++) free(m->findings[i].message);
    free(m->warps);
    free(m->shared);
    free(m->local);
    free(m->findings);
    free(m->counts);
    free(m->output);
    emu_shadow_free(m);
}

static void *zeroed(size_t bytes) {
    size_t whole = (bytes + 64) / 64 * 64;
    void *memory = aligned_alloc(64, whole);
    if (memory) memset(memory, 0, whole);
    return memory;
}

static bool machine_create(machine *m) {
    const entry *code = m->code;
    m->threads = m->launch->block[0] * m->launch->block[1] * m->launch->block[2];
    m->warp_count = (m->threads + LANES - 1) / LANES;
    uint32_t fixed = (code->shared_bytes + 127) / 128 * 128;
    m->shared_bytes = m->launch->dynamic_shared ? fixed + m->launch->dynamic_shared : code->shared_bytes;
    m->checks = m->launch->checks;
    m->warps = zeroed(m->warp_count * sizeof *m->warps);
    m->shared = zeroed(m->shared_bytes + 16);
    m->local = zeroed((size_t)m->warp_count * LANES * code->local_bytes + 16);
    m->counts = zeroed((code->instruction_count + 1) * sizeof *m->counts);
    bool complete = m->warps && m->shared && m->local && m->counts;
    for (uint32_t i = 0; complete && i < m->warp_count; i++) {
        warp *w = &m->warps[i];
        w->file = zeroed((size_t)code->slot_count * LANES * sizeof *w->file);
        w->predicates = zeroed((code->predicate_count + 1) * sizeof *w->predicates);
        w->written = zeroed((code->tracked_count + 1) * sizeof *w->written);
        w->stack = zeroed(MAX_PATHS * sizeof *w->stack);
        complete = w->file && w->predicates && w->written && w->stack;
    }
    return complete && (!m->checks || emu_shadow_create(m));
}

/* ---- start of a CTA ---- */

static uint32_t special_value(const machine *m, special_register which, uint32_t warp_index, uint32_t lane) {
    const emu_launch *l = m->launch;
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
static void fill_registers(const machine *m, warp *w) {
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

static void start_warp(machine *m, uint32_t index) {
    warp *w = &m->warps[index];
    uint32_t lanes = m->threads - index * LANES;
    w->index = (int)index;
    w->present = lanes >= LANES ? ALL_LANES : (1u << lanes) - 1;
    w->active = w->present;
    w->exited = 0;
    w->pc = 0;
    w->join = -1;
    w->depth = 0;
    w->split = w->forced = w->held = false;
    w->spins = w->turns = w->wanted = 0;
    w->state = WARP_READY;
    w->poll_failed = w->poll_answers = false;
    w->clock = 1;
    w->synced = 0;
    w->copy_count = w->arrive_count = 0;
    w->copy_serial = 0;
    memset(w->commits, 0, sizeof w->commits);
    memset(w->predicates, 0, (m->code->predicate_count + 1) * sizeof *w->predicates);
    memset(w->written, 0, (m->code->tracked_count + 1) * sizeof *w->written);
    fill_registers(m, w);
}

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static void start_cta(machine *m, uint64_t index) {
    const uint32_t *grid = m->launch->grid;
    m->cta_index = index;
    m->cta[0] = (uint32_t)(index % grid[0]);
    m->cta[1] = (uint32_t)(index / grid[0] % grid[1]);
    m->cta[2] = (uint32_t)(index / grid[0] / grid[1]);
    m->random = mix(m->launch->schedule ^ mix(index));
    m->faulted = false;
    m->here = 0;
    m->steps = 0;
    m->vain_polls = 0;
    m->output_length = 0;
    for (int i = 0; i < m->mbarrier_count; i++) m->mbarriers[i].live = false;
    m->mbarrier_count = 0;
    memset(m->shared, 0, m->shared_bytes);
    memset(m->local, 0, (size_t)m->warp_count * LANES * m->code->local_bytes);
    for (int i = 0; i < BARRIERS; i++) m->barriers[i] = (named_barrier){.clocks = m->barriers[i].clocks};
    for (uint32_t i = 0; i < m->warp_count; i++) start_warp(m, i);
    if (m->checks) emu_shadow_start_cta(m);
}

/* ---- order of warps ---- */

static uint64_t next_random(machine *m) {
    return m->random = mix(m->random);
}

/* A ready warp, the next one round or with a seed any; -1 when none is. */
static int choose_warp(machine *m, int last) {
    uint32_t offset = m->launch->schedule ? (uint32_t)(next_random(m) % m->warp_count) : (uint32_t)(last + 1);
    for (uint32_t k = 0; k < m->warp_count; k++) {
        uint32_t i = (offset + k) % m->warp_count;
        if (m->warps[i].state == WARP_READY) return (int)i;
    }
    return -1;
}

static bool land_any_arrive(machine *m) {
    for (uint32_t i = 0; i < m->warp_count; i++) {
        if (emu_land_next_arrive(m, &m->warps[i])) return true;
    }
    return false;
}

static void report_deadlock(machine *m) {
    char list[900] = "";
    bool polling = false;
    const warp *first = NULL;
    for (uint32_t i = 0; i < m->warp_count; i++) {
        const warp *w = &m->warps[i];
        if (w->state == WARP_DONE) continue;
        polling |= w->state == WARP_POLLING;
        uint32_t at = m->code->ops[w->state == WARP_AT_BARRIER ? w->pc - 1 : w->pc].instruction;
        if (!first) {
            first = w;
            m->here = at;
        }
        emu_place place = emu_place_of(m->code, at);
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "\nwarp %u: source line %d, PTX line %d: %.60s", i,
                 place.own ? place.own->line : 0, place.ptx_line, place.ptx);
    }
    emu_report(m, EMU_DEADLOCK, UINT32_MAX, first, -1, -1, 0, "%s%s",
               polling ? "Every warp of the CTA that is left polls a barrier that nothing can complete any more."
                       : "Every warp of the CTA that is left waits, and none can free another.",
               list);
    m->faulted = true;
}

/* No warp is ready and no copy can land: the next one that polls sees its poll fail, and may do something else. Its
 * index; -1 where none polls. */
static int let_poll_fail(machine *m, int last) {
    for (uint32_t k = 1; k <= m->warp_count; k++) {
        uint32_t i = ((uint32_t)last + k) % m->warp_count;
        if (m->warps[i].state != WARP_POLLING) continue;
        m->warps[i].state = WARP_READY;
        m->warps[i].poll_answers = true;
        return (int)i;
    }
    return -1;
}

static bool all_done(const machine *m) {
    for (uint32_t i = 0; i < m->warp_count; i++) {
        if (m->warps[i].state != WARP_DONE) return false;
    }
    return true;
}

static void run_cta(machine *m, uint64_t index) {
    int last = -1;
    start_cta(m, index);
    while (!m->faulted) {
        int chosen = choose_warp(m, last);
        if (chosen < 0) {
            if (all_done(m)) break;
            if (land_any_arrive(m)) continue;
            chosen = m->vain_polls++ < MAX_VAIN_POLLS * m->warp_count ? let_poll_fail(m, last) : -1;
            if (chosen < 0) {
                report_deadlock(m);
                break;
            }
        }
        warp *w = &m->warps[chosen];
        uint64_t budget = m->launch->schedule ? 1 + next_random(m) % 200 : UINT64_MAX;
        w->poll_failed = false;
        emu_warp_run(m, w, budget);
        last = chosen;
    }
    m->steps_total += m->steps;
}

/* ---- threads of the host ---- */

static void keep_output(crew *c, machine *m) {
    if (!m->output_length || !c->outputs) return;
    char *text = malloc(m->output_length + 1);
    if (!text) return;
    memcpy(text, m->output, m->output_length);
    text[m->output_length] = 0;
    c->outputs[m->cta_index] = text; /* each CTA has its own place */
}

static void *work(void *argument) {
    worker *self = argument;
    crew *c = self->crew;
    machine *m = &self->machine;
    for (;;) {
        uint64_t index = atomic_fetch_add(&c->next_cta, 1);
        /* CTAs behind a fault are not run: what is found does not depend on how many threads there are */
        if (index >= c->cta_total || index > atomic_load(&c->first_fault)) return NULL;
        run_cta(m, index);
        atomic_fetch_add(&c->device->ctas_done, 1);
        keep_output(c, m);
        uint64_t known = atomic_load(&c->first_fault);
        while (m->faulted && index < known && !atomic_compare_exchange_weak(&c->first_fault, &known, index)) {
        }
        if (m->out_of_memory) return NULL;
    }
}

/* ---- a launch ---- */

static emu_status refuse_launch(emu_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
static emu_status refuse_launch(emu_error *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    error->line = 0;
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return EMU_REFUSED;
}

static emu_status check_launch(const emu_module *module, const emu_launch *l, emu_error *error) {
    if (!emu_decode(module, l->entry, error)) return EMU_REFUSED;
    const entry *code = &module->entries[l->entry];
    uint64_t threads = 1;
    for (int i = 0; i < 3; i++) {
        if (!l->block[i] || !l->grid[i]) return refuse_launch(error, "a size of the grid or block is 0");
        if (l->block[i] > 1024) return refuse_launch(error, "a block has at most 1024 threads");
        if (i && l->grid[i] > 65535) return refuse_launch(error, "grid sizes y and z are at most 65535");
        if (code->required_threads[0] && code->required_threads[i] != l->block[i]) {
            return refuse_launch(error, "the entry is written for blocks of %u x %u x %u threads",
                                 code->required_threads[0], code->required_threads[1], code->required_threads[2]);
        }
        threads *= l->block[i];
    }
    if (l->grid[0] > 2147483647u) return refuse_launch(error, "grid size x is at most 2147483647");
    if (threads > 1024) return refuse_launch(error, "the block has %" PRIu64 " threads, above 1024", threads);
    if (code->info.max_threads && threads > code->info.max_threads) {
        return refuse_launch(error, "the block has %" PRIu64 " threads, above the %u that the entry was built for",
                             threads, code->info.max_threads);
    }
    if (l->param_bytes && !l->params)
        return refuse_launch(error, "params is NULL, but the entry takes %u bytes of parameters",
                             code->info.param_bytes);
    if (l->param_bytes != code->info.param_bytes) {
        return refuse_launch(error, "%zu bytes of parameters where the entry takes %u", l->param_bytes,
                             code->info.param_bytes);
    }
    uint64_t shared = (uint64_t)code->shared_bytes + l->dynamic_shared;
    if (shared > 227 * 1024) return refuse_launch(error, "%" PRIu64 " bytes of shared memory, above 232448", shared);
    if ((uint64_t)l->grid[0] * l->grid[1] * l->grid[2] > UINT32_MAX - 1)
        return refuse_launch(error, "more than 4294967294 CTAs");
    if (!emu_check_trace(l, error)) return EMU_REFUSED;
    return EMU_OK;
}

static int worker_count(const emu_launch *l, uint64_t ctas) {
    long wanted = l->threads > 0 ? l->threads : sysconf(_SC_NPROCESSORS_ONLN);
    if (l->trace.file || wanted < 1) wanted = 1;
    if (wanted > 256) wanted = 256;
    return (uint64_t)wanted > ctas ? (int)ctas : (int)wanted;
}

static bool prepare_device(emu_device *device, const entry *code, bool checks) {
    free(device->variables);
    free(device->rows);
    device->variables = calloc(1, code->variable_bytes + 16);
    device->variable_bytes = code->variable_bytes;
    device->rows = calloc(code->instruction_count + 1, sizeof *device->rows);
    if (!device->variables || !device->rows) return false;
    if (code->variable_bytes) memcpy(device->variables, code->variables, code->variable_bytes);
    return emu_prepare_outputs(device, checks);
}

static bool run_workers(crew *c, worker *workers, int count) {
    pthread_t threads[256];
    int started = 0;
    bool complete = true;
    for (int i = 0; i < count; i++) {
        workers[i].crew = c;
        workers[i].machine = (machine){.module = c->module, .code = c->code, .device = c->device, .launch = c->launch};
        complete &= machine_create(&workers[i].machine);
    }
    if (!complete) return false;
    for (int i = 1; i < count; i++) {
        if (pthread_create(&threads[started], NULL, work, &workers[i])) break;
        started++;
    }
    work(&workers[0]); /* fewer threads than asked for do the same work */
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < count; i++) complete &= !workers[i].machine.out_of_memory;
    return complete;
}

static void print_outputs(crew *c) {
    for (uint64_t i = 0; c->outputs && i < c->cta_total; i++) {
        if (c->outputs[i]) fputs(c->outputs[i], c->launch->output);
        free(c->outputs[i]);
    }
    free(c->outputs);
}

emu_status emu_run(emu_device *device, const emu_module *module, const emu_launch *launch, emu_error *error) {
    *error = (emu_error){0};
    device->counters = (emu_counters){0};
    emu_free_findings(device); /* of an earlier launch: this one may be refused */
    atomic_store(&device->ctas_done, 0);
    if (check_launch(module, launch, error) != EMU_OK) return EMU_REFUSED;
    const entry *code = &module->entries[launch->entry];
    crew c = {.device = device,
              .module = module,
              .code = code,
              .launch = launch,
              .cta_total = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2]};
    atomic_store(&c.first_fault, UINT64_MAX);
    int count = worker_count(launch, c.cta_total);
    worker *workers = zeroed((size_t)count * sizeof *workers);
    bool complete = workers && prepare_device(device, code, launch->checks);
    if (complete && launch->output) complete = (c.outputs = calloc((size_t)c.cta_total, sizeof *c.outputs)) != NULL;
    if (complete) complete = run_workers(&c, workers, count);
    if (complete) {
        complete = emu_merge_findings(&c, workers, count) && emu_finish_outputs(&c);
        emu_merge_counts(&c, workers, count);
    }
    print_outputs(&c);
    for (int i = 0; workers && i < count; i++) machine_free(&workers[i].machine);
    free(workers);
    if (!complete) return refuse_launch(error, "out of memory");
    const emu_counter total = device->counters.total;
    device->counters = (emu_counters){.rows = device->rows,
                                      .count = code->instruction_count,
                                      .regions = code->regions,
                                      .region_count = code->region_count,
                                      .total = total,
                                      .steps = device->counters.steps,
                                      .traced = device->counters.traced,
                                      .entry = launch->entry};
    if (atomic_load(&c.first_fault) != UINT64_MAX) return EMU_FAULT;
    return device->finding_count ? EMU_FINDINGS : EMU_OK;
}
