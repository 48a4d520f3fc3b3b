/* watch.c - what a replay asks of the emulated GPU: memory that nothing wrote, first touches, and counters of launches.
 *
 * These functions are no part of CUDA. emulator/judge finds them by name.
 */
#include "driver.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)
CUresult cuEmulatedGpuPoison(CUdeviceptr address, size_t bytes, const void *pattern, size_t pattern_bytes);
CUresult cuEmulatedGpuTouchBegin(void);
CUresult cuEmulatedGpuTouched(void *how, CUdeviceptr address, size_t bytes);
#pragma GCC visibility pop

/* Fill memory with a pattern. A whole allocation of device memory counts as uninitialized from then on. */
CUresult cuEmulatedGpuPoison(CUdeviceptr address, size_t bytes, const void *pattern, size_t pattern_bytes) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(pattern && pattern_bytes)) status = CUDA_ERROR_INVALID_VALUE;
    uint8_t *to = status == CUDA_SUCCESS ? device_bytes(address, bytes) : NULL;
    if (status == CUDA_SUCCESS && !to) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && is_uninitialized_whole(address, bytes) &&
        !emu_mark_uninitialized(the_driver()->device, address))
        status = CUDA_ERROR_OUT_OF_MEMORY;
    const uint8_t *from = pattern;
    for (size_t i = 0; status == CUDA_SUCCESS && i < bytes; i++) to[i] = from[i % pattern_bytes];
    return driver_leave(status);
}

CUresult cuEmulatedGpuTouchBegin(void) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !emu_watch_touches(the_driver()->device)) status = CUDA_ERROR_OUT_OF_MEMORY;
    return driver_leave(status);
}

/* How bytes of one allocation were touched first since then: an emu_touch for each. */
CUresult cuEmulatedGpuTouched(void *how, CUdeviceptr address, size_t bytes) {
    CUresult status = driver_enter();
    const uint8_t *found = status == CUDA_SUCCESS ? emu_touches_of(the_driver()->device, address, bytes) : NULL;
    if (status == CUDA_SUCCESS && !(how && found)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) memcpy(how, found, bytes);
    return driver_leave(status);
}

/* ---- counters ---- */

/* Text of an instruction after its predicate. */
static const char *opcode_of(const emu_location *at) {
    const char *text = at->ptx;
    if (*text == '@') text += strcspn(text, " \t");
    return text + strspn(text, " \t");
}

/* An opcode and its line, as "ld.global.f32@12". */
static void write_opcode(FILE *to, const emu_location *at) {
    const char *text = opcode_of(at);
    fprintf(to, "\"%.*s@%d\"", (int)strcspn(text, " \t;\"\\"), text, at->ptx_line);
}

/* Add the bytes that an instruction moved from global memory, or to it. */
static void add_moved(const emu_counter *row, uint64_t *loaded, uint64_t *stored) {
    const char *text = opcode_of(&row->location);
    char opcode[100];
    snprintf(opcode, sizeof opcode, "%.*s", (int)strcspn(text, " \t;"), text);
    if (strstr(opcode, "async.bulk")) {
        if (strstr(opcode, ".global.shared")) *stored += row->bytes;
        if (strstr(opcode, ".shared::cluster.global") || strstr(opcode, ".shared::cta.global")) *loaded += row->bytes;
    } else if (row->sectors) {
        *(!strncmp(opcode, "st", 2) || !strncmp(opcode, "red", 3) ? stored : loaded) += row->bytes;
    }
}

static void write_rows(FILE *to, const emu_counters *counts, bool executed) {
    bool first = true;
    for (size_t i = 0; i < counts->count; i++) {
        const emu_counter *row = &counts->rows[i];
        if ((row->executed > 0) != executed || !row->location.ptx) continue;
        if (!first) fputs(", ", to);
        first = false;
        write_opcode(to, &row->location);
        if (executed) fprintf(to, ": %" PRIu64, row->executed);
    }
}

void write_counts(const char *kernel, const emu_counters *counts, const emu_exploration *seen) {
    const char *path = getenv("EMULATED_GPU_COUNTERS");
    FILE *to = path && *path ? fopen(path, "a") : NULL;
    if (!to) return;
    uint64_t loaded = 0, stored = 0;
    for (size_t i = 0; i < counts->count; i++)
        if (counts->rows[i].location.ptx) add_moved(&counts->rows[i], &loaded, &stored);
    fprintf(to,
            "{\"kernel\": \"%s\", \"steps\": %" PRIu64 ", \"sectors\": %" PRIu64 ", \"loaded\": %" PRIu64
            ", \"stored\": %" PRIu64 ", \"ctas\": %" PRIu64 ", \"races_unseen\": %s, \"orders\": %u, \"executed\": {",
            kernel, counts->steps, counts->total.sectors, loaded, stored, counts->ctas,
            counts->races_unseen ? "true" : "false", counts->orders);
    write_rows(to, counts, true);
    fputs("}, \"never\": [", to);
    write_rows(to, counts, false);
    fprintf(to, "], \"classes\": %" PRIu64 ", \"left\": %" PRIu64 ", \"differs\": %s}\n", seen->classes, seen->left,
            seen->difference[0] ? "true" : "false");
    fclose(to);
}
