/* device.c - devices: their buffers, and the findings and counters that a launch leaves there. */
#include "crew.h"
#include "machine.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BUFFERS = 65536 };

/* Stores to an output, by granule: the bytes that they wrote, up to OUTPUT_COUNT; whether an atomic did,
 * OUTPUT_UPDATED; and, by the shifts, the smallest index of an instruction and of a CTA. Then follow the largest
 * indices of CTAs, by granule, where several stores met: memory that is not touched otherwise. */
enum { OUTPUT_GRANULE = 2, OUTPUT_COUNT = 3, OUTPUT_UPDATED = 4, OUTPUT_INSTRUCTION_SHIFT = 3, OUTPUT_CTA_SHIFT = 32 };
static_assert(sizeof(uint64_t) + sizeof(uint32_t) == EMU_OUTPUT_COST * OUTPUT_GRANULE, "emu.h says what they take");

emu_device *emu_device_new(void) {
    return calloc(1, sizeof(emu_device));
}

void emu_set_architecture(emu_device *device, unsigned architecture) {
    device->architecture = architecture;
}

void emu_free_findings(emu_device *device) {
    for (size_t i = 0; i < device->finding_count; i++) free((void *)(uintptr_t)device->findings[i].message);
    free(device->findings);
    device->findings = NULL;
    device->finding_count = 0;
}

void emu_device_free(emu_device *device) {
    if (!device) return;
    for (size_t i = 0; i < device->buffer_count; i++) {
        free(device->buffers[i].name);
        free(device->buffers[i].block);
        free(device->buffers[i].output);
        emu_written_free(&device->buffers[i]);
        emu_touches_free(&device->buffers[i]);
    }
    emu_free_findings(device);
    emu_footprint_free(device->footprint);
    free(device->buffers);
    free(device->variables);
    free(device->rows);
    free(device->textures);
    free(device);
}

/* Buffers up to a number; NULL when out of memory. */
static buffer *buffers_up_to(emu_device *device, size_t number) {
    buffer *buffers = emu_reserve(device->buffers, number, &device->buffer_capacity, sizeof *buffers);
    if (!buffers) return NULL;
    device->buffers = buffers;
    while (device->buffer_count < number) device->buffers[device->buffer_count++] = (buffer){0};
    return &device->buffers[number - 1];
}

/* A slot for one more buffer; NULL when there is none. Slots of freed buffers are taken last, so that a pointer into
 * a freed buffer is found as long as possible. */
static buffer *buffer_slot(emu_device *device) {
    for (size_t i = 0; device->buffer_count == MAX_BUFFERS && i < MAX_BUFFERS; i++) {
        if (!device->buffers[i].bytes) return &device->buffers[i];
    }
    return device->buffer_count == MAX_BUFFERS ? NULL : buffers_up_to(device, device->buffer_count + 1);
}

/* The slot whose device address is this host address; NULL where it is taken, or the address begins no buffer. */
static buffer *slot_at(emu_device *device, uint64_t address) {
    const uint64_t number = address >> BUFFER_SHIFT;
    if ((address & ((1ull << BUFFER_SHIFT) - 1)) != BUFFER_START || !number || number > MAX_BUFFERS) return NULL;
    const buffer *there = emu_find_buffer(device, address);
    if (there && there->bytes) return NULL;
    return there || number <= device->buffer_count ? &device->buffers[number - 1] : buffers_up_to(device, number);
}

static uint64_t address_of(const emu_device *device, const buffer *b) {
    return ((uint64_t)(b - device->buffers + 1) << BUFFER_SHIFT) + BUFFER_START;
}

/* Put a buffer into its slot, which may be NULL: 0 then. */
static uint64_t put_buffer(emu_device *device, buffer *slot, const buffer *b) {
    if (!slot || !b->name || !b->bytes) {
        free(b->name);
        free(b->block);
        return 0;
    }
    free(slot->name);
    *slot = *b;
    if (device->watches_touches) emu_watch_buffer(slot);
    return address_of(device, slot);
}

uint64_t emu_alloc(emu_device *device, const char *name, uint64_t bytes, emu_buffer_kind kind) {
    if (!bytes || bytes > 16ull << 30) return 0;
    buffer b = {.name = emu_copy_text(name), .size = bytes, .kind = kind};
    enum { ALIGNMENT = 256 };
    b.block = calloc(1, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT - 1);
    if (b.block) b.bytes = (uint8_t *)b.block + (0 - (uintptr_t)b.block) % ALIGNMENT;
    return put_buffer(device, b.name && b.bytes ? buffer_slot(device) : NULL, &b);
}

uint64_t emu_map(emu_device *device, const char *name, void *host, uint64_t bytes) {
    if (!bytes || bytes > 16ull << 30) return 0;
    const buffer b = {.name = emu_copy_text(name), .bytes = host, .size = bytes};
    buffer *slot = slot_at(device, (uint64_t)(uintptr_t)host);
    return put_buffer(device, slot ? slot : buffer_slot(device), &b);
}

bool emu_free(emu_device *device, uint64_t address) {
    buffer *b = emu_find_buffer(device, address);
    if (!b || !b->bytes || (address & ((1ull << BUFFER_SHIFT) - 1)) != BUFFER_START) return false;
    free(b->block);
    free(b->output);
    emu_written_free(b);
    emu_touches_free(b);
    b->bytes = NULL;
    b->block = NULL;
    b->output = NULL;
    b->size = 0;
    return true;
}

void *emu_host_bytes(emu_device *device, uint64_t address) {
    const buffer *b = emu_find_buffer(device, address);
    uint64_t offset = (address & ((1ull << BUFFER_SHIFT) - 1)) - BUFFER_START;
    if (!(address >> BUFFER_SHIFT) && offset < device->variable_bytes) return device->variables + offset;
    return b && offset < b->size ? b->bytes + offset : NULL;
}

uint64_t emu_ctas_done(const emu_device *device) {
    return device->ctas_done;
}

const emu_finding *emu_findings(const emu_device *device, size_t *count) {
    *count = device->finding_count;
    return device->findings;
}

const emu_counters *emu_counts(const emu_device *device) {
    return &device->counters;
}

/* ---- what a launch leaves ---- */

static int by_cta(const void *a, const void *b) {
    const finding_record *x = a, *y = b;
    if (x->cta != y->cta) return x->cta < y->cta ? -1 : 1;
    if (x->here != y->here) return x->here < y->here ? -1 : 1;
    if (x->warp != y->warp) return x->warp < y->warp ? -1 : 1;
    if (x->lane != y->lane) return x->lane < y->lane ? -1 : 1;
    return strcmp(x->message, y->message); /* a race in the CTA and one with another, found by two threads */
}

static bool add_finding(emu_device *device, const emu_finding *finding) {
    emu_finding *all = realloc(device->findings, (device->finding_count + 1) * sizeof *all);
    if (!all) return false;
    device->findings = all;
    all[device->finding_count++] = *finding;
    return true;
}

static bool is_of_orders(const finding_record *r) {
    return r->class_ == EMU_PHASE_OVERRUN || r->class_ == EMU_ORDER_DEPENDENT || r->class_ == EMU_CTA_NOT_STARTED;
}

/* The statement about other interleavings follows from these. */
static bool goes_first(const finding_record *r) {
    return r->class_ == EMU_RACE || r->class_ == EMU_ASYNC_IN_FLIGHT || r->class_ == EMU_BARRIER_MISUSE ||
           r->class_ == EMU_DIVERGENT_SYNC || r->class_ == EMU_DEADLOCK || r->class_ == EMU_LIVELOCK;
}

static void leave_out_orders(finding_record *all, size_t total, uint64_t fault) {
    bool any = false;
    for (size_t i = 0; i < total; i++) any |= all[i].cluster <= fault && goes_first(&all[i]);
    for (size_t i = 0; any && i < total; i++) {
        if (!is_of_orders(&all[i])) continue;
        free(all[i].message);
        all[i].message = NULL;
    }
}

/* All records of all workers in CTA order; those of one cause are counted into the first. */
bool emu_merge_findings(crew *c, worker *workers, int count) {
    size_t total = 0;
    const uint32_t ctas = c->cluster[0] * c->cluster[1] * c->cluster[2];
    for (uint32_t i = 0; i < (uint32_t)count * ctas; i++)
        total += workers[i / ctas].cluster.ctas[i % ctas].findings.count;
    finding_record *all = malloc((total + 1) * sizeof *all);
    if (!all) return false;
    total = 0;
    for (uint32_t i = 0; i < (uint32_t)count * ctas; i++) {
        cta *m = &workers[i / ctas].cluster.ctas[i % ctas];
        for (size_t k = 0; k < m->findings.count; k++) all[total++] = m->findings.records[k];
        m->findings.count = 0; /* the messages are ours now */
    }
    qsort(all, total, sizeof *all, by_cta);
    uint64_t fault = atomic_load(&c->first_fault);
    bool complete = true;
    leave_out_orders(all, total, fault);
    for (size_t i = 0; i < total; i++) {
        finding_record *r = &all[i];
        if (!r->message) continue;
        for (size_t k = i + 1; k < total; k++) {
            if (!all[k].message || !emu_same_cause(c->code, &all[k], r)) continue;
            r->count += all[k].cluster > fault ? 0 : all[k].count;
            free(all[k].message);
            all[k].message = NULL;
        }
        const uint32_t *grid = c->launch->grid;
        emu_finding finding = {.class_ = r->class_,
                               .count = r->count,
                               .here = emu_location_of(c->code, r->here),
                               .other = emu_location_of(c->code, r->other),
                               .cta = {(uint32_t)(r->cta % grid[0]), (uint32_t)(r->cta / grid[0] % grid[1]),
                                       (uint32_t)(r->cta / grid[0] / grid[1])},
                               .warp = r->warp,
                               .lane = r->lane,
                               .other_warp = r->other_warp,
                               .other_lane = r->other_lane,
                               .address = r->address,
                               .message = r->message};
        if (r->cluster > fault || !add_finding(c->device, &finding)) {
            complete &= r->cluster > fault;
            free(r->message);
        }
    }
    free(all);
    return complete;
}

void emu_merge_counts(crew *c, worker *workers, int count) {
    emu_device *device = c->device;
    const entry *code = c->code;
    emu_counter *total = &device->counters.total;
    const uint32_t ctas = c->cluster[0] * c->cluster[1] * c->cluster[2], machines = (uint32_t)count * ctas;
    for (size_t i = 0; i < code->instruction_count; i++) {
        emu_counter *row = &device->rows[i];
        *row = (emu_counter){.location = emu_location_of(code, (uint32_t)i),
                             .group = code->instructions[i].group,
                             .region = code->instructions[i].region};
        for (uint32_t k = 0; k < machines; k++) {
            const op_counts *from = &workers[k / ctas].cluster.ctas[k % ctas].counts[i];
            row->executed += from->executed;
            row->lanes += from->lanes;
            row->wavefronts += from->wavefronts;
            row->ideal += from->ideal;
            row->sectors += from->sectors;
            row->requests += from->requests;
            row->bytes += from->bytes;
        }
        total->executed += row->executed;
        total->lanes += row->lanes;
        total->wavefronts += row->wavefronts;
        total->ideal += row->ideal;
        total->sectors += row->sectors;
        total->requests += row->requests;
        total->bytes += row->bytes;
    }
    for (uint32_t k = 0; k < machines; k++) {
        device->counters.steps += workers[k / ctas].cluster.ctas[k % ctas].steps_total;
        device->counters.traced += workers[k / ctas].cluster.ctas[k % ctas].traced;
    }
}

/* ---- outputs that were not written exactly once ---- */

static uint64_t granules_of(const buffer *b) {
    return (b->size + OUTPUT_GRANULE - 1) / OUTPUT_GRANULE;
}

static _Atomic uint32_t *last_cta_of(const buffer *b, uint64_t granule) {
    return (_Atomic uint32_t *)(void *)(b->output + granules_of(b)) + granule;
}

static bool report_output(crew *c, const buffer *b, emu_class class_, uint64_t first, uint64_t granules) {
    char text[700];
    const uint64_t writes = atomic_load(&b->output[first]);
    const bool twice = class_ == EMU_OUTPUT_WRITTEN_TWICE;
    const uint32_t at = twice ? (uint32_t)writes >> OUTPUT_INSTRUCTION_SHIFT : UINT32_MAX;
    emu_location location = emu_location_of(c->code, at), none = emu_location_of(c->code, UINT32_MAX);
    if (emu_is_ignored(&c->ignored, class_, &location, &none)) return true;
    int used = snprintf(text, sizeof text, "%s: buffer '%.80s'", emu_class_name(class_), b->name);
    if (location.own)
        used +=
            snprintf(text + used, sizeof text - (size_t)used, " at %.200s:%d", location.own->file, location.own->line);
    if (location.ptx_line)
        used += snprintf(text + used, sizeof text - (size_t)used, ", PTX line %d", location.ptx_line);
    uint64_t bytes = granules * OUTPUT_GRANULE;
    if (first * OUTPUT_GRANULE + bytes > b->size) bytes = b->size - first * OUTPUT_GRANULE;
    if (!twice) {
        snprintf(text + used, sizeof text - (size_t)used,
                 "\n  %" PRIu64 " of %" PRIu64 " bytes of this output were never written; the first is byte %" PRIu64
                 ".\n"
                 "  A reader of the result gets old memory there.",
                 bytes, b->size, first * OUTPUT_GRANULE);
    } else {
        const uint32_t lowest = (uint32_t)(writes >> OUTPUT_CTA_SHIFT), highest = atomic_load(last_cta_of(b, first));
        snprintf(text + used, sizeof text - (size_t)used,
                 "\n  %" PRIu64 " bytes of this output were written more than once; the first is byte %" PRIu64
                 ", by CTAs %u and %u "
                 "(x + grid_x * (y + grid_y * z)).\n  Threads overwrite one another, or do the same work twice.",
                 bytes, first * OUTPUT_GRANULE, lowest, highest);
    }
    emu_finding finding = {.class_ = class_,
                           .count = bytes,
                           .here = location,
                           .other = emu_location_of(c->code, UINT32_MAX),
                           .warp = -1,
                           .lane = -1,
                           .other_warp = -1,
                           .other_lane = -1,
                           .message = emu_copy_text(text)};
    if (finding.message && add_finding(c->device, &finding)) return true;
    free((void *)(uintptr_t)finding.message);
    return false;
}

static bool check_output(crew *c, const buffer *b) {
    uint64_t granules = granules_of(b), never = 0, twice = 0, first_never = 0, first_twice = 0;
    for (uint64_t i = 0; i < granules; i++) {
        const uint64_t record = atomic_load_explicit(&b->output[i], memory_order_relaxed);
        const uint32_t count = record & OUTPUT_COUNT;
        uint64_t whole = b->size - i * OUTPUT_GRANULE < OUTPUT_GRANULE ? b->size - i * OUTPUT_GRANULE : OUTPUT_GRANULE;
        if (count < whole && !(record & OUTPUT_UPDATED) && !never++) first_never = i;
        if (count > whole && !twice++) first_twice = i;
    }
    bool complete = true;
    if (never) complete &= report_output(c, b, EMU_OUTPUT_NEVER_WRITTEN, first_never, never);
    if (twice) complete &= report_output(c, b, EMU_OUTPUT_WRITTEN_TWICE, first_twice, twice);
    return complete;
}

static uint64_t smaller_of(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Another store after that of `known`. The order of the two does not matter to what is kept. */
static void add_store(_Atomic uint64_t *writes, _Atomic uint32_t *last_cta, uint64_t known, uint64_t store) {
    const uint64_t instruction_of = OUTPUT_COUNT | OUTPUT_UPDATED, count_of = OUTPUT_COUNT;
    uint32_t last = atomic_load_explicit(last_cta, memory_order_relaxed);
    uint64_t both;
    do {
        const uint64_t bytes = smaller_of((known & count_of) + (store & count_of), OUTPUT_COUNT);
        const uint64_t instruction =
            known & count_of ? smaller_of((uint32_t)(known & ~instruction_of), (uint32_t)(store & ~instruction_of))
                             : (uint32_t)(store & ~instruction_of);
        const uint64_t cta = known & count_of ? smaller_of(known >> OUTPUT_CTA_SHIFT, store >> OUTPUT_CTA_SHIFT)
                                              : store >> OUTPUT_CTA_SHIFT;
        both = cta << OUTPUT_CTA_SHIFT | instruction | (known & OUTPUT_UPDATED) | bytes;
    } while (!atomic_compare_exchange_weak(writes, &known, both));
    const uint32_t before = (uint32_t)(known >> OUTPUT_CTA_SHIFT), own = (uint32_t)(store >> OUTPUT_CTA_SHIFT);
    const uint32_t larger = known & count_of && before > own ? before : own;
    while (last < larger && !atomic_compare_exchange_weak(last_cta, &last, larger)) {
    }
}

void emu_note_output(cta *m, uint32_t instruction, uint64_t address, uint32_t bytes) {
    const buffer *b = emu_find_buffer(m->device, address);
    if (!b || !b->output) return;
    uint64_t offset = (address & ((1ull << BUFFER_SHIFT) - 1)) - BUFFER_START;
    const uint64_t store = m->cta_index << OUTPUT_CTA_SHIFT | (uint64_t)instruction << OUTPUT_INSTRUCTION_SHIFT |
                           (bytes < OUTPUT_GRANULE ? bytes : OUTPUT_GRANULE);
    for (uint64_t g = offset / OUTPUT_GRANULE; g <= (offset + bytes - 1) / OUTPUT_GRANULE; g++) {
        uint64_t known = atomic_load_explicit(&b->output[g], memory_order_relaxed);
        if (!known && m->device->one_thread)
            atomic_store_explicit(&b->output[g], store, memory_order_relaxed);
        else if (known || !atomic_compare_exchange_strong(&b->output[g], &known, store))
            add_store(&b->output[g], last_cta_of(b, g), known, store);
    }
}

void emu_note_output_update(cta *m, uint64_t address, uint32_t bytes) {
    const buffer *b = emu_find_buffer(m->device, address);
    if (!b || !b->output) return;
    const uint64_t offset = (address & ((1ull << BUFFER_SHIFT) - 1)) - BUFFER_START;
    for (uint64_t g = offset / OUTPUT_GRANULE; g <= (offset + bytes - 1) / OUTPUT_GRANULE; g++)
        atomic_fetch_or_explicit(&b->output[g], OUTPUT_UPDATED, memory_order_relaxed);
}

bool emu_prepare_outputs(emu_device *device, bool checks) {
    for (size_t i = 0; i < device->buffer_count; i++) {
        buffer *b = &device->buffers[i];
        free(b->output);
        b->output = NULL;
        if (!checks || b->kind != EMU_OUTPUT || !b->bytes) continue;
        b->output = calloc((size_t)granules_of(b), EMU_OUTPUT_COST * OUTPUT_GRANULE);
        if (!b->output) return false;
    }
    return true;
}

bool emu_finish_outputs(crew *c) {
    bool complete = true;
    for (size_t i = 0; i < c->device->buffer_count; i++) {
        buffer *b = &c->device->buffers[i];
        if (b->output && atomic_load(&c->first_fault) == UINT64_MAX) complete &= check_output(c, b);
        free(b->output);
        b->output = NULL;
    }
    return complete;
}
