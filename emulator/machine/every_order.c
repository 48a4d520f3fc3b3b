/* every_order.c - emu_run_orders(): a launch again and again, from the same memory, in the orders that explore.c names.
 */
#include "../ptx/errors.h"
#include "crew.h"
#include "explore.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What buffers and variables hold, side by side. */
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

/* Of the outputs, or of all buffers where none is one: what the first run left that this one has not. */
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

/* Runs until there is a finding, a difference, or nothing left. */
static emu_status run_all(emu_device *device, const emu_module *module, emu_launch launch, uint64_t most_runs,
                          explorer *x, snapshot kept[2], emu_exploration *seen, emu_error *error) {
    char order[200];
    uint32_t gaps = 0;
    for (;;) {
        const emu_status status = emu_run_with(device, module, &launch, x, error);
        gaps = device->counters.orders |= gaps; /* of any run */
        if (status == EMU_REFUSED) return status;
        seen->runs++;
        seen->classes += emu_explorer_ended(x);
        seen->left = emu_explorer_pending(x) + emu_explorer_spent(x);
        if (status != EMU_OK) return status;
        emu_explorer_describe(x, &module->entries[launch.entry], order, sizeof order);
        if (seen->runs == 1)
            copy_memory(device, &kept[1], true);
        else if (emu_explorer_ended(x))
            compare(device, &kept[1], order, seen);
        if (seen->difference[0]) return EMU_FINDINGS;
        if (emu_explorer_spent(x) || seen->runs == most_runs || !emu_explorer_next(x)) return EMU_OK;
        launch.output = NULL; /* once is enough */
        launch.trace = (emu_trace){0};
        copy_memory(device, &kept[0], false);
    }
}

emu_status emu_run_orders(emu_device *device, const emu_module *module, const emu_launch *launch, uint64_t most_runs,
                          emu_exploration *seen, emu_error *error) {
    const size_t size = memory_bytes(device);
    snapshot kept[2] = {{malloc(size + 1), size}, {malloc(size + 1), size}};
    explorer *x = emu_explorer_new();
    emu_status status = EMU_REFUSED;
    *seen = (emu_exploration){0};
    if (kept[0].bytes && kept[1].bytes && x) {
        copy_memory(device, &kept[0], true);
        status = run_all(device, module, *launch, most_runs, x, kept, seen, error);
        if (status == EMU_OK && seen->runs > 1) {
            emu_launch quiet = *launch;
            quiet.output = NULL;
            quiet.trace = (emu_trace){0};
            const uint32_t gaps = device->counters.orders;
            copy_memory(device, &kept[0], false);
            emu_explorer_restart(x);
            status = emu_run_with(device, module, &quiet, x, error);
            device->counters.orders |= gaps;
        }
    } else {
        emu_fail(error, "out of memory");
    }
    emu_explorer_free(x);
    free(kept[0].bytes);
    free(kept[1].bytes);
    return status;
}
