/* cta.c - CTAs and their clusters: what they hold, how they start and how they end. */
#include "calls.h"
#include "crew.h"
#include "interleaving.h"
#include "tensor_memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- machines ---- */

static void cta_free(cta *m) {
    emu_checks_free(m); /* reads the warps */
    emu_tensor_free(m);
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
    for (size_t i = 0; i < m->findings.count; i++) free(m->findings.records[i].message);
    free(m->warps);
    free(m->shared);
    free(m->local);
    free(m->findings.records);
    free(m->bulk);
    emu_forget_delayed(m);
    m->reads_early = false;
    free(m->delayed);
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

void emu_free_cluster(cluster *c) {
    for (uint32_t i = 0; c->ctas && i < c->count; i++) cta_free(&c->ctas[i]);
    free(c->ctas);
    free(c->clocks);
    free(c->postponed);
    emu_race_table_free(c->races);
}

static bool cta_create(cta *m) {
    const entry *code = m->code;
    m->threads = m->launch->block[0] * m->launch->block[1] * m->launch->block[2];
    m->warp_count = (m->threads + LANES - 1) / LANES;
    m->shared_base = m->module->shared_base;
    m->shared_bytes = m->launch->dynamic_shared ? code->dynamic_begin + m->launch->dynamic_shared : code->shared_bytes;
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
        if (m->launch->checks && code->uses_tensor_memory) w->check_registers = emu_on_tensor_registers;
        if (!m->launch->checks || !code->uses_wgmma) continue;
        w->check_registers = emu_check_registers;
        w->wgmma_uses = zeroed(code->register_count * sizeof *w->wgmma_uses);
        complete &= w->wgmma_uses != NULL;
    }
    complete &= !code->uses_tensor_memory || emu_tensor_create(m);
    return complete && (!m->launch->checks || emu_checks_create(m));
}

/* ---- start of a CTA ---- */

static uint32_t cluster_value(const cta *m, special_register which) {
    const cluster *c = m->cluster;
    switch (which) {
    case SPECIAL_CLUSTERID_X:
    case SPECIAL_CLUSTERID_Y:
    case SPECIAL_CLUSTERID_Z:
        return c->position[which - SPECIAL_CLUSTERID_X];
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
        return emu_drawn_multiprocessors();
    case SPECIAL_SMID:
        return emu_drawn_multiprocessor(m->cta_index);
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
            } else {
                const uint64_t value = reg->value + (reg->kind == REGISTER_SHARED_ADDRESS ? w->rank_bits : 0);
                if (reg->bits == 32)
                    slot32(w, reg->slot)[lane] = (uint32_t)value;
                else
                    slot64(w, reg->slot)[lane] = value;
            }
        }
    }
}

static void start_warp(cta *m, uint32_t index) {
    warp *w = &m->warps[index];
    uint32_t lanes = m->threads - index * LANES;
    w->index = (int)index;
    w->rank_bits = m->rank << CTA_SHIFT;
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
    w->waits_for_delayed = false;
    w->delayed_accesses = w->delayed_fences = 0;
    w->loaded = w->acquired = w->delayed = 0;
    w->poll_failed = w->poll_answers = false;
    w->vain_waits = 0;
    w->polls = 0;
    w->stale = w->fences_known = 0;
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
    w->tensor_loads = false;
    w->wgmma_fences = 0;
    if (w->wgmma_uses) memset(w->wgmma_uses, 0, m->code->register_count * sizeof *w->wgmma_uses);
    w->copy_serial = 0;
    w->cluster_arrived = 0;
    w->cluster_phase = 0;
    w->cluster_waits = false;
    memset(w->commits, 0, sizeof w->commits);
    memset(w->predicates, 0, (m->code->predicate_count + 1) * sizeof *w->predicates);
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
        m->cta[i] = m->cluster->position[i] * m->cluster->size[i] + rest % m->cluster->size[i];
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
    m->bulk_count = 0;
    emu_forget_delayed(m);
    memset(m->wgmma_done, 0, sizeof m->wgmma_done);
    memset(m->shared, 0, m->shared_bytes);
    clear_local(m);
    for (int i = 0; i < BARRIERS; i++) m->barriers[i] = (named_barrier){.clocks = m->barriers[i].clocks};
    for (uint32_t i = 0; i < m->warp_count; i++) start_warp(m, i);
    emu_tensor_start(m);
    if (m->checks) emu_checks_start(m);
}

void emu_start_cluster(cluster *c, uint64_t index) {
    const uint32_t *grid = c->ctas->launch->grid;
    uint64_t rest = index;
    for (int i = 0; i < 3; i++) {
        c->position[i] = (uint32_t)(rest % (grid[i] / c->size[i]));
        rest /= grid[i] / c->size[i];
    }
    c->index = index;
    c->phase = 0;
    c->draws = 0;
    c->postponed_count = 0;
    c->last = c->count - 1;
    c->random = emu_mix(c->ctas->launch->schedule ^ emu_mix(~index));
    for (uint32_t i = 0; i < c->count; i++) start_cta(&c->ctas[i]);
}

/* ---- clusters ---- */

static void keep_output(crew *c, cta *m) {
    if (!m->output_length || !c->outputs) return;
    char *text = malloc(m->output_length + 1);
    if (!text) return;
    memcpy(text, m->output, m->output_length);
    text[m->output_length] = 0;
    c->outputs[m->cta_index] = text; /* each CTA has its own slot */
}

/* CTAs for a worker; false when out of memory. */
bool emu_hire(crew *c, worker *self) {
    cluster *own = &self->cluster;
    self->crew = c;
    *own = (cluster){.count = c->cluster[0] * c->cluster[1] * c->cluster[2],
                     .size = {c->cluster[0], c->cluster[1], c->cluster[2]},
                     .next = &c->next_cluster,
                     .total = c->cluster_total,
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
        m->stale = c->stale;
        m->findings.ignored = &c->ignored;
        complete = cta_create(m);
    }
    return complete;
}

bool emu_has_faulted(const cluster *c) {
    bool faulted = false;
    for (uint32_t i = 0; i < c->count; i++) faulted |= c->ctas[i].faulted;
    return faulted;
}

bool emu_is_out_of_memory(const cluster *c) {
    bool out = false;
    for (uint32_t i = 0; c->ctas && i < c->count; i++) out |= c->ctas[i].out_of_memory;
    return out;
}

/* Work that its CTAs have done so far. */
quiet emu_progress_of(const cluster *c) {
    quiet sum = {0};
    for (uint32_t i = 0; i < c->count; i++) {
        sum.changes += c->ctas[i].changes;
        sum.begin += c->ctas[i].steps;
    }
    return sum;
}

void emu_end_cluster(crew *c, cluster *ended) {
    for (uint32_t i = 0; i < ended->count; i++)
        if (ended->ctas[i].checks && !emu_has_faulted(ended)) emu_land_last_commits(&ended->ctas[i]);
    for (uint32_t i = 0; i < ended->count; i++) {
        cta *m = &ended->ctas[i];
        if (m->checks && m->bulk_count && !emu_has_faulted(ended)) emu_check_no_bulk_left(m);
        if (m->checks && !emu_has_faulted(ended)) emu_check_tensor_exit(m);
        emu_land_stores(m);
        m->steps_total += m->steps;
        atomic_fetch_add(&c->device->ctas_done, 1);
        keep_output(c, m);
        if (m->checks) emu_checks_end(m);
    }
    if (ended->races) emu_races_end_cluster(ended->races);
}
