/* events.c - what happened in a launch, as a trace that ui.perfetto.dev and chrome://tracing show.
 *
 * A process is a CTA, a thread one of its warps or mbarriers; copies of the engine are asynchronous events. A unit of
 * time is one warp instruction of the CTA, in the order in which the emulator ran them, which is no time of a GPU.
 * Nothing else in the machine knows of this: what copies, mbarriers and other warps do is seen by looking at them after
 * each instruction. ("Trace Event Format", Google 2016.)
 */
#include "machine.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { WARP_ROW = 1, MBARRIER_ROW = 100 }; /* numbers of threads */

/* Instructions of a warp side by side that come from one line of the source. */
typedef struct stretch {
    uint64_t from, to; /* empty where they are equal */
    uint32_t instruction;
} stretch;

typedef struct warp_events {
    stretch runs;
    warp_state state;
    uint64_t since; /* it is in that state */
    size_t copies, products;
} warp_events;

typedef struct copy_events {
    bulk_copy copy;
    uint64_t id;
    bool under_way;
} copy_events;

typedef struct cta_events {
    const cta *owner;
    const entry *code;
    uint64_t cta, now;
    warp_events warps[MAX_WARPS];
    uint32_t warp_count;
    uint64_t phases[MAX_MBARRIERS], since[MAX_MBARRIERS];
    int mbarrier_count;
    copy_events *copies;
    size_t copy_count, copy_capacity;
} cta_events;

struct emu_events {
    FILE *file;
    cta_events *ctas;
    size_t cta_count, cta_capacity;
    uint64_t copies; /* so far */
    bool further, out_of_memory;
};

/* ---- writing ---- */

static void write_text(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', file);
        fputc((unsigned char)*text < ' ' ? ' ' : *text, file);
    }
    fputc('"', file);
}

/* Begins an event; its other fields and a brace follow. */
static FILE *begin(emu_events *events, char kind, uint64_t cta, int row, uint64_t time) {
    fprintf(events->file, "%s{\"ph\":\"%c\",\"pid\":%" PRIu64 ",\"tid\":%d,\"ts\":%" PRIu64,
            events->further ? ",\n" : "", kind, cta + 1, row, time);
    events->further = true;
    return events->file;
}

__attribute__((format(printf, 5, 6))) static void name_row(emu_events *events, const char *what, uint64_t cta, int row,
                                                           const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    FILE *const file = begin(events, 'M', cta, row, 0);
    fprintf(file, ",\"name\":\"%s\",\"args\":{\"name\":\"", what);
    vfprintf(file, format, arguments);
    fprintf(file, "\"}}");
    va_end(arguments);
}

static void write_stretch(emu_events *events, const cta_events *track, int warp, const stretch *runs) {
    if (runs->from == runs->to) return;
    const emu_location location = emu_location_of(track->code, runs->instruction);
    FILE *const file = begin(events, 'X', track->cta, WARP_ROW + warp, runs->from);
    fprintf(file, ",\"dur\":%" PRIu64 ",\"name\":\"line %d\",\"args\":{\"instructions\":%" PRIu64 ",\"PTX line\":%d,",
            runs->to - runs->from, location.own ? location.own->line : 0, runs->to - runs->from, location.ptx_line);
    fputs("\"first\":", file);
    write_text(file, location.ptx ? location.ptx : "");
    fputs("}}", file);
}

static void write_slice(emu_events *events, uint64_t cta, int row, uint64_t from, uint64_t to, const char *name) {
    if (from < to)
        fprintf(begin(events, 'X', cta, row, from), ",\"dur\":%" PRIu64 ",\"name\":\"%s\"}", to - from, name);
}

static void write_count(emu_events *events, const cta_events *track, int warp, const char *what, size_t count) {
    fprintf(begin(events, 'C', track->cta, WARP_ROW + warp, track->now),
            ",\"name\":\"%s under way, warp %d\",\"args\":{\"%s\":%zu}}", what, warp, what, count);
}

/* kind 'b' or 'e' */
static void write_copy(emu_events *events, const cta_events *track, const copy_events *each, char kind) {
    const bulk_copy *copy = &each->copy;
    const emu_tensor_info *info = &copy->map.info;
    const emu_location location = emu_location_of(track->code, copy->instruction);
    FILE *const file = begin(events, kind, track->cta, WARP_ROW + copy->warp, track->now);
    fprintf(file, ",\"cat\":\"copy\",\"id\":%" PRIu64 ",\"name\":\"%s of warp %d, line %d\"", each->id,
            copy->is_store ? "store" : "copy", copy->warp, location.own ? location.own->line : 0);
    if (kind == 'b') {
        fprintf(file, ",\"args\":{\"bytes\":%u,\"shared\":%u,\"mbarrier\":%u", copy->bytes, copy->shared,
                copy->mbarrier);
        for (uint32_t i = 0; i < info->rank; i++)
            fprintf(file, ",\"dimension %u\":\"%u from %d\"", i, info->box[i], copy->corner[i]);
        fputc('}', file);
    }
    fputc('}', file);
}

/* ---- what happened since the last look ---- */

static const char *const waits[] = {
    [WARP_AT_BARRIER] = "waits at a barrier",
    [WARP_AT_MBARRIER] = "waits at an mbarrier",
    [WARP_AT_WGMMA] = "waits for its warpgroup",
    [WARP_AT_REGISTERS] = "waits for registers",
    [WARP_AT_CLUSTER] = "waits for the cluster",
    [WARP_POLLING] = "polls an mbarrier",
    [WARP_FAULT] = NULL,
};

static void end_state(emu_events *events, const cta_events *track, int warp) {
    const warp_events *w = &track->warps[warp];
    if (waits[w->state]) write_slice(events, track->cta, WARP_ROW + warp, w->since, track->now, waits[w->state]);
}

static void look_at_warps(emu_events *events, cta_events *track, const cta *m) {
    for (int i = 0; i < (int)m->warp_count; i++) {
        warp_events *known = &track->warps[i];
        const warp *w = &m->warps[i];
        if (w->state != known->state) {
            end_state(events, track, i);
            known->state = w->state;
            known->since = track->now;
        }
        if (w->copy_count != known->copies) write_count(events, track, i, "cp.async", known->copies = w->copy_count);
        if (w->wgmma_count != known->products) write_count(events, track, i, "wgmma", known->products = w->wgmma_count);
    }
}

static void look_at_mbarriers(emu_events *events, cta_events *track, const cta *m) {
    for (int i = 0; i < m->mbarrier_count; i++) {
        const mbarrier *bar = &m->mbarriers[i];
        if (i == track->mbarrier_count) {
            track->mbarrier_count++;
            track->phases[i] = bar->phase;
            track->since[i] = track->now;
            name_row(events, "thread_name", track->cta, MBARRIER_ROW + i, "mbarrier at 0x%x", bar->address);
        }
        if (bar->phase == track->phases[i]) continue;
        char name[40];
        snprintf(name, sizeof name, "phase %" PRIu64, track->phases[i]);
        write_slice(events, track->cta, MBARRIER_ROW + i, track->since[i], track->now, name);
        track->phases[i] = bar->phase;
        track->since[i] = track->now;
    }
}

static copy_events *known_copy(const cta_events *track, const bulk_copy *copy) {
    for (size_t i = 0; i < track->copy_count; i++) {
        const bulk_copy *known = &track->copies[i].copy;
        if (known->stamp == copy->stamp && known->warp == copy->warp && known->lane == copy->lane &&
            known->instruction == copy->instruction && known->shared == copy->shared && known->to == copy->to)
            return &track->copies[i];
    }
    return NULL;
}

static void look_at_copies(emu_events *events, cta_events *track, const cta *m) {
    for (size_t i = 0; i < track->copy_count; i++) track->copies[i].under_way = false;
    for (size_t i = 0; i < m->bulk_count; i++) {
        copy_events *known = known_copy(track, &m->bulk[i]);
        if (!known) {
            copy_events *more = emu_reserve(track->copies, track->copy_count + 1, &track->copy_capacity, sizeof *more);
            if (!more) {
                events->out_of_memory = true;
                return;
            }
            track->copies = more;
            known = &track->copies[track->copy_count++];
            *known = (copy_events){.copy = m->bulk[i], .id = ++events->copies};
            write_copy(events, track, known, 'b');
        }
        known->under_way = true;
    }
    size_t kept = 0;
    for (size_t i = 0; i < track->copy_count; i++) {
        if (track->copies[i].under_way)
            track->copies[kept++] = track->copies[i];
        else
            write_copy(events, track, &track->copies[i], 'e');
    }
    track->copy_count = kept;
}

/* ---- CTAs ---- */

/* Open events end with the CTA. */
static void close_cta(emu_events *events, cta_events *track) {
    for (uint32_t i = 0; i < track->warp_count; i++) {
        write_stretch(events, track, (int)i, &track->warps[i].runs);
        end_state(events, track, (int)i);
    }
    for (size_t i = 0; i < track->copy_count; i++) write_copy(events, track, &track->copies[i], 'e');
    free(track->copies);
}

static void open_cta(emu_events *events, cta_events *track, const cta *m) {
    *track = (cta_events){.owner = m, .code = m->code, .cta = m->cta_index, .warp_count = m->warp_count};
    name_row(events, "process_name", track->cta, 0, "CTA %" PRIu64 " (steps of the emulator, no time)", track->cta);
    for (uint32_t i = 0; i < m->warp_count; i++)
        name_row(events, "thread_name", track->cta, WARP_ROW + (int)i, "warp %u", i);
}

/* NULL when out of memory. */
static cta_events *cta_of(emu_events *events, const cta *m) {
    size_t i = 0;
    while (i < events->cta_count && events->ctas[i].owner != m) i++;
    if (i < events->cta_count && events->ctas[i].cta == m->cta_index) return &events->ctas[i];
    if (i < events->cta_count) {
        close_cta(events, &events->ctas[i]);
    } else {
        cta_events *more = emu_reserve(events->ctas, i + 1, &events->cta_capacity, sizeof *more);
        if (!more) {
            events->out_of_memory = true;
            return NULL;
        }
        events->ctas = more;
        events->cta_count++;
    }
    open_cta(events, &events->ctas[i], m);
    return &events->ctas[i];
}

static int line_of(const entry *code, uint32_t instruction) {
    const emu_location location = emu_location_of(code, instruction);
    return location.own ? location.own->line : 0;
}

void emu_note_instruction(emu_events *events, const cta *m, const warp *w, const op *o) {
    cta_events *const track = cta_of(events, m);
    if (!track) return;
    stretch *const runs = &track->warps[w->index].runs;
    const uint64_t began = m->steps - 1;
    track->now = m->steps;
    if (runs->to != began || line_of(track->code, runs->instruction) != line_of(track->code, o->instruction)) {
        write_stretch(events, track, w->index, runs);
        *runs = (stretch){.from = began, .instruction = o->instruction};
    }
    runs->to = track->now;
    look_at_warps(events, track, m);
    look_at_mbarriers(events, track, m);
    look_at_copies(events, track, m);
}

emu_events *emu_events_begin(FILE *file) {
    emu_events *const events = calloc(1, sizeof *events);
    if (!events) return NULL;
    events->file = file;
    fputs(
        "{\"otherData\":{\"time\":\"a unit is one warp instruction of the CTA, in the order in which the emulator ran "
        "them: no time of a GPU\"},\n\"traceEvents\":[\n",
        file);
    return events;
}

bool emu_events_end(emu_events *events) {
    for (size_t i = 0; i < events->cta_count; i++) close_cta(events, &events->ctas[i]);
    fputs("\n]}\n", events->file);
    const bool complete = !events->out_of_memory && !ferror(events->file);
    free(events->ctas);
    free(events);
    return complete;
}
