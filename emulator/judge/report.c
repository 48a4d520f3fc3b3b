/* report.c - what a replay shows, as files. README.md describes them. */
#include "report.h"

#include "json.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { WRITTEN_FIRST = 1, READ_FIRST = 2 }; /* an emu_touch of emu.h */

/* Mark the bytes of a memory that are of an input or an output. */
static void mark_given(const memory *m, const marked_buffers *buffers, uint8_t *how) {
    for (size_t i = 0; i < buffers->count; i++) {
        const marked_buffer *b = &buffers->all[i];
        const uint64_t first = b->address > m->address ? b->address : m->address;
        const uint64_t own_end = m->address + m->bytes, end = b->address + b->bytes;
        if (first < own_end && end > first)
            memset(how + (first - m->address), 0, (end < own_end ? end : own_end) - first);
    }
}

/* How each byte of memory was touched first, owned; zeros where the driver does not say. */
static uint8_t *touches(replay *r, uint64_t address, uint64_t bytes) {
    const memory *m = replay_find(r, address, bytes);
    uint8_t *how = m ? calloc(1, bytes + 1) : NULL;
    if (how && r->cuda->touched && bytes) r->cuda->touched(how, replay_address(m, address), bytes);
    return how;
}

/* Bytes of an allocation on this device, owned. */
static uint8_t *contents(replay *r, uint64_t address, uint64_t bytes) {
    uint8_t *data = malloc(bytes + 1);
    if (data && replay_read(r, address, data, bytes)) return data;
    free(data);
    return NULL;
}

bool report_before(replay *r) {
    for (size_t i = 0; i < r->memory_count; i++) {
        memory *m = &r->memories[i];
        free(m->before);
        m->before = NULL;
        if (!m->live || m->in_call) continue;
        m->before = contents(r, m->address, m->bytes);
        if (!m->before) return !r->status && replay_fail(r, REPLAY_NO_MEMORY, "out of memory");
    }
    return !r->cuda->touch_begin || replay_check(r, r->cuda->touch_begin(), "a watch of memory");
}

/* ---- files ---- */

static FILE *create(replay *r, const char *folder, const char *name, const char *kind) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, kind);
    FILE *to = fopen(path, "wb");
    if (!to) replay_fail(r, REPLAY_NO_MEMORY, "%s cannot be written", path);
    return to;
}

bool report_save(replay *r, const char *folder, const char *name, const char *kind, const void *data, uint64_t bytes) {
    FILE *to = create(r, folder, name, kind);
    if (!to) return false;
    const bool whole = fwrite(data, 1, bytes, to) == bytes;
    return (!fclose(to) && whole) || replay_fail(r, REPLAY_NO_MEMORY, "%s%s cannot be written", name, kind);
}

/* ---- buffers that marks name ---- */

static uint64_t count_touches(const uint8_t *how, uint64_t bytes, unsigned kind) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < bytes; i++) count += how[i] == kind;
    return count;
}

/* A count of touched bytes, which a GPU does not tell. */
static void write_touched(const replay *r, FILE *to, const char *key, uint64_t count) {
    if (r->cuda->touched)
        fprintf(to, ", \"%s\": %" PRIu64, key, count);
    else
        fprintf(to, ", \"%s\": null", key);
}

static bool write_input(replay *r, FILE *to, const char *folder, const marked_buffer *b, const uint8_t *given) {
    uint8_t *how = touches(r, b->address, b->bytes), *now = contents(r, b->address, b->bytes);
    uint64_t changed = 0;
    for (uint64_t i = 0; how && now && given && i < b->bytes; i++) changed += now[i] != given[i];
    const bool done = how && now && (!r->cuda->touched || report_save(r, folder, b->name, ".touch", how, b->bytes));
    if (done) {
        fprintf(to, "\"%s\": {\"bytes\": %" PRIu64 ", \"changed\": %" PRIu64, b->name, b->bytes, changed);
        write_touched(r, to, "unread", b->bytes - count_touches(how, b->bytes, READ_FIRST));
        fputs("}", to);
    }
    free(how);
    free(now);
    return done;
}

static bool write_output(replay *r, FILE *to, const char *folder, const marked_buffer *b) {
    uint8_t *how = touches(r, b->address, b->bytes), *now = contents(r, b->address, b->bytes);
    const bool done = how && now && report_save(r, folder, b->name, ".out", now, b->bytes) &&
                      (!r->cuda->touched || report_save(r, folder, b->name, ".touch", how, b->bytes));
    if (done) {
        fprintf(to, "\"%s\": {\"bytes\": %" PRIu64, b->name, b->bytes);
        write_touched(r, to, "unset", count_touches(how, b->bytes, READ_FIRST));
        write_touched(r, to, "unwritten", count_touches(how, b->bytes, 0));
        fputs("}", to);
    }
    free(how);
    free(now);
    return done;
}

/* ---- state ---- */

static void describe(FILE *to, const observation *seen) {
    const memory *m = &seen->of;
    char text[120];
    if (m->kind == MEMORY_VARIABLE)
        snprintf(text, sizeof text, "variable %.100s", m->name);
    else
        snprintf(text, sizeof text, "buffer 0x%" PRIx64 " of %" PRIu64 " bytes", m->address, m->bytes);
    fputs("{\"where\": ", to);
    json_text(to, text, strlen(text));
    fprintf(to, ", \"bytes\": %" PRIu64 ", \"first\": %" PRIu64 "}", seen->bytes, seen->first);
}

/* Bytes that the call read before it wrote them, and left changed, so that they can tell the next call something. Those
 * of inputs and outputs are written before it. */
static observation left_changed(replay *r, const memory *m) {
    observation seen = {.of = *m};
    uint8_t *how = touches(r, m->address, m->bytes), *now = contents(r, m->address, m->bytes);
    if (how) mark_given(m, &r->recorded->inputs, how);
    if (how) mark_given(m, &r->recorded->outputs, how);
    for (uint64_t i = 0; how && now && i < m->bytes; i++)
        if (how[i] == READ_FIRST && now[i] != m->before[i] && !seen.bytes++) seen.first = i;
    free(how);
    free(now);
    return seen;
}

static void write_state(replay *r, FILE *to) {
    bool first = true;
    for (size_t i = 0; i < r->memory_count; i++) {
        if (!r->memories[i].before || !r->memories[i].live) continue;
        const observation seen = left_changed(r, &r->memories[i]);
        if (!seen.bytes) continue;
        fputs(first ? "" : ", ", to);
        first = false;
        describe(to, &seen);
    }
}

/* ---- all ---- */

static void write_kernels(const replay *r, FILE *to) {
    for (uint64_t i = 0; i < r->launches; i++) {
        const record *at = r->launched[i];
        fputs(i ? ", " : "", to);
        json_text(to, (const char *)at->data + at->numbers[12], at->bytes - (size_t)at->numbers[12]);
    }
}

static bool write_findings(replay *r, FILE *to, const char *folder, uint8_t *const *given) {
    const recording *recorded = r->recorded;
    bool done = true;
    fputs(",\n \"outputs\": {", to);
    for (size_t i = 0; done && i < recorded->outputs.count; i++) {
        fputs(i ? ", " : "", to);
        done = write_output(r, to, folder, &recorded->outputs.all[i]);
    }
    fputs("},\n \"inputs\": {", to);
    for (size_t i = 0; done && i < recorded->inputs.count; i++) {
        fputs(i ? ", " : "", to);
        done = write_input(r, to, folder, &recorded->inputs.all[i], given[i]);
    }
    fputs("},\n \"unset\": [", to);
    for (size_t i = 0; i < r->unset_count; i++) {
        fputs(i ? ", " : "", to);
        describe(to, &r->unset[i]);
    }
    fputs("],\n \"state\": [", to);
    write_state(r, to);
    fprintf(to,
            "],\n \"launches\": %" PRIu64 ", \"host_functions\": %" PRIu64 ", \"host_reads\": %" PRIu64
            ",\n \"kernels\": [",
            r->launches, r->host_functions, r->host_reads);
    write_kernels(r, to);
    fputs("]", to);
    return done;
}

bool report_write(replay *r, const char *folder, uint8_t *const *given) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) return replay_fail(r, REPLAY_NO_MEMORY, "out of memory");
    fputs(", \"device\": ", to);
    json_text(to, r->device, strlen(r->device));
    const bool done = r->status == REPLAYED && (r->is_timed || write_findings(r, to, folder, given));
    if ((fclose(to) || !done) && !r->status) replay_fail(r, REPLAY_NO_MEMORY, "out of memory");
    FILE *file = create(r, folder, "result", ".json");
    if (file) {
        fputs("{\"error\": ", file);
        if (r->status)
            json_text(file, r->error, strlen(r->error));
        else
            fprintf(file, "null%s", text);
        fputs("}\n", file);
        if (fclose(file)) replay_fail(r, REPLAY_NO_MEMORY, "result.json cannot be written");
    }
    free(text);
    return r->status == REPLAYED;
}
