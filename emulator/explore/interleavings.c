/* interleavings.c - emu_run_orders(): a launch again and again, from the same memory, in the orders that explore.c
 * names.
 */
#include "../machine/crew.h"
#include "../ptx/errors.h"
#include "explore.h"
#include "tile_counter.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Contents of buffers and variables, concatenated. */
typedef struct snapshot {
    uint8_t *bytes;
    size_t size;
} snapshot;

static size_t memory_bytes(const emu_device *device) {
    size_t size = device->variable_bytes;
    for (size_t i = 0; i < device->buffer_count; i++) size += device->buffers[i].bytes ? device->buffers[i].size : 0;
    return size;
}

static void copy(void *memory, uint8_t *kept, size_t bytes, bool keeps) {
    if (keeps && bytes) memcpy(kept, memory, bytes);
    if (!keeps && bytes) memcpy(memory, kept, bytes);
}

/* Keeps what the device holds, or puts it back. */
static void copy_memory(emu_device *device, snapshot *s, bool keeps) {
    uint8_t *at = s->bytes;
    copy(device->variables, at, device->variable_bytes, keeps);
    at += device->variable_bytes;
    for (size_t i = 0; i < device->buffer_count; i++) {
        const buffer *b = &device->buffers[i];
        if (!b->bytes) continue;
        copy(b->bytes, at, b->size, keeps);
        at += b->size;
    }
}

/* First difference between this run and the first one, in the outputs, or in all buffers if there are none. */
static void compare(const emu_device *device, const snapshot *first, const char *order, emu_exploration *seen) {
    const uint8_t *at = first->bytes + device->variable_bytes;
    bool outputs = false;
    for (size_t i = 0; i < device->buffer_count; i++) outputs |= device->buffers[i].kind == EMU_OUTPUT;
    for (size_t i = 0; i < device->buffer_count; at += device->buffers[i].bytes ? device->buffers[i].size : 0, i++) {
        const buffer *b = &device->buffers[i];
        if (!b->bytes || (outputs && b->kind != EMU_OUTPUT) || !memcmp(at, b->bytes, b->size)) continue;
        uint64_t byte = 0;
        while (at[byte] == b->bytes[byte]) byte++;
        snprintf(seen->difference, sizeof seen->difference,
                 "buffer '%.60s' is 0x%02x at byte %" PRIu64 " in the first run and 0x%02x in run %" PRIu64
                 ", where %s",
                 b->name, at[byte], byte, b->bytes[byte], seen->runs, order);
        return;
    }
}

/* State of one exploration. */
typedef struct every_order {
    emu_device *device;
    const emu_module *module;
    emu_launch launch;
    uint64_t most_runs;
    explorer *x;
    snapshot before, first; /* what the device held, and what the first run left */
    uint32_t gaps;          /* of any run */
} every_order;

static emu_status run_once(every_order *e, emu_error *error) {
    copy_memory(e->device, &e->before, false);
    const emu_status status = emu_run_with(e->device, e->module, &e->launch, e->x, error);
    e->launch.output = NULL; /* once is enough */
    e->launch.trace = (emu_trace){0};
    e->gaps |= e->device->counters.orders;
    return status;
}

/* Add the result of a run. Whether no other is wanted. */
static bool judge_run(every_order *e, emu_status status, emu_exploration *seen) {
    char order[200];
    seen->runs++;
    seen->classes += emu_explorer_ended(e->x) && !emu_explorer_read_earlier(e->x);
    seen->left = emu_explorer_pending(e->x) + emu_explorer_spent(e->x);
    if (status != EMU_OK) return true;
    emu_explorer_describe(e->x, &e->module->entries[e->launch.entry], order, sizeof order);
    if (seen->runs == 1)
        copy_memory(e->device, &e->first, true);
    else if (emu_explorer_ended(e->x))
        compare(e->device, &e->first, order, seen);
    return seen->difference[0] || emu_explorer_spent(e->x) || seen->runs == e->most_runs;
}

/* Add the result of a run by tickets. Whether no other is wanted. */
static bool judge_tickets(every_order *e, emu_status status, emu_exploration *seen) {
    const tickets *t = emu_explorer_tickets(e->x);
    char order[200];
    seen->runs++;
    seen->classes = emu_tickets_run(t);
    seen->left = emu_tickets_left(t);
    if (status != EMU_OK) return true;
    emu_explorer_describe(e->x, &e->module->entries[e->launch.entry], order, sizeof order);
    if (emu_explorer_ended(e->x)) compare(e->device, &e->first, order, seen);
    return seen->difference[0] || seen->runs == e->most_runs;
}

/* After the first run: CTA by CTA where they share a counter alone. False where they do not, or it is not worth while.
 */
static bool run_tickets(every_order *e, emu_exploration *seen, emu_status *status, emu_error *error) {
    const uint32_t *grid = e->launch.grid;
    emu_exploration own = {.runs = 1, .by_tickets = true};
    emu_status last = EMU_OK;
    bool stops = false;
    if (seen->runs == e->most_runs || !emu_explorer_use_tickets(e->x, (uint64_t)grid[0] * grid[1] * grid[2]))
        return false;
    while (!stops && emu_explorer_plan(e->x)) {
        last = run_once(e, error);
        if (last != EMU_REFUSED && !emu_tickets_hold(emu_explorer_tickets(e->x)) && last == EMU_OK) break;
        stops = last == EMU_REFUSED || judge_tickets(e, last, &own);
    }
    const bool holds = stops || emu_tickets_hold(emu_explorer_tickets(e->x));
    emu_explorer_leave_tickets(e->x);
    if (!holds) return false;
    *seen = own;
    *status = last;
    return true;
}

/* Runs until there is a finding, a difference, or nothing left; false where copies have failed. */
static bool run_all(every_order *e, bool copies, emu_exploration *seen, emu_status *status, emu_error *error) {
    *seen = (emu_exploration){0};
    do {
        *status = run_once(e, error);
        if (emu_explorer_explored(e->x)) {
            bool all = emu_explorer_leave_copies(e->x, seen, &e->gaps);
            if (all) *status = run_once(e, error); /* what has stopped the copies, for its findings */
            return all;
        }
        emu_exploration *shared = emu_explorer_shared(e->x);
        const bool refused = *status == EMU_REFUSED, stops = refused || judge_run(e, *status, shared ? shared : seen);
        if (emu_explorer_is_copy(e->x)) emu_explorer_end_copy(e->x, stops, refused, e->gaps);
        if (shared) *seen = *shared;
        if (stops || (seen->runs == 1 && !shared && run_tickets(e, seen, status, error))) break;
        if (copies && !shared) emu_explorer_use_copies(e->x, seen);
    } while (emu_explorer_next(e->x));
    if (!emu_explorer_failed(e->x)) return true;
    emu_fail(error, "out of memory");
    *status = EMU_REFUSED;
    return true;
}

emu_status emu_run_orders(emu_device *device, const emu_module *module, const emu_launch *launch, uint64_t most_runs,
                          emu_exploration *seen, emu_error *error) {
    const size_t size = memory_bytes(device);
    every_order e = {.device = device,
                     .module = module,
                     .launch = *launch,
                     .most_runs = most_runs,
                     .x = emu_explorer_new(),
                     .before = {malloc(size + 1), size},
                     .first = {malloc(size + 1), size}};
    emu_status status = EMU_REFUSED;
    *seen = (emu_exploration){0};
    if (e.before.bytes && e.first.bytes && e.x) {
        copy_memory(device, &e.before, true);
        if (!run_all(&e, true, seen, &status, error)) run_all(&e, false, seen, &status, error);
        if (status == EMU_OK && seen->difference[0]) {
            status = EMU_FINDINGS;
        } else if (status == EMU_OK && seen->runs > 1) {
            emu_explorer_restart(e.x);
            status = run_once(&e, error);
        }
        device->counters.orders |= e.gaps;
    } else {
        emu_fail(error, "out of memory");
    }
    emu_explorer_free(e.x);
    free(e.before.bytes);
    free(e.first.bytes);
    return status;
}
