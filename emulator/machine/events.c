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
    const machine *machine;
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

static void write_stretch(emu_events *events, const cta_events *cta, int warp, const stretch *runs) {
    if (runs->from == runs->to) return;
    const emu_place place = emu_place_of(cta->code, runs->instruction);
    FILE *const file = begin(events, 'X', cta->cta, WARP_ROW + warp, runs->from);
    fprintf(file, ",\"dur\":%" PRIu64 ",\"name\":\"line %d\",\"args\":{\"instructions\":%" PRIu64 ",\"PTX line\":%d,",
            runs->to - runs->from, place.own ? place.own->line : 0, runs->to - runs->from, place.ptx_line);
    fputs("\"first\":", file);
    write_text(file, place.ptx ? place.ptx : "");
    fputs("}}", file);
}

static void write_slice(emu_events *events, uint64_t cta, int row, uint64_t from, uint64_t to, const char *name) {
    if (from < to)
        fprintf(begin(events, 'X', cta, row, from), ",\"dur\":%" PRIu64 ",\"name\":\"%s\"}", to - from, name);
}

static void write_count(emu_events *events, const cta_events *cta, int warp, const char *what, size_t count) {
    fprintf(begin(events, 'C', cta->cta, WARP_ROW + warp, cta->now),
            ",\"name\":\"%s under way, warp %d\",\"args\":{\"%s\":%zu}}", what, warp, what, count);
}

/* kind 'b' or 'e' */
static void write_copy(emu_events *events, const cta_events *cta, const copy_events *each, char kind) {
    const bulk_copy *copy = &each->copy;
    const emu_tensor_info *info = &copy->map.info;
    const emu_place place = emu_place_of(cta->code, copy->instruction);
    FILE *const file = begin(events, kind, cta->cta, WARP_ROW + copy->warp, cta->now);
    fprintf(file, ",\"cat\":\"copy\",\"id\":%" PRIu64 ",\"name\":\"%s of warp %d, line %d\"", each->id,
            copy->is_store ? "store" : "copy", copy->warp, place.own ? place.own->line : 0);
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

static void end_state(emu_events *events, const cta_events *cta, int warp) {
    const warp_events *w = &cta->warps[warp];
    if (waits[w->state]) write_slice(events, cta->cta, WARP_ROW + warp, w->since, cta->now, waits[w->state]);
}

static void look_at_warps(emu_events *events, cta_events *cta, const machine *m) {
    for (int i = 0; i < (int)m->warp_count; i++) {
        warp_events *known = &cta->warps[i];
        const warp *w = &m->warps[i];
        if (w->state != known->state) {
            end_state(events, cta, i);
            known->state = w->state;
            known->since = cta->now;
        }
        if (w->copy_count != known->copies) write_count(events, cta, i, "cp.async", known->copies = w->copy_count);
        if (w->wgmma_count != known->products) write_count(events, cta, i, "wgmma", known->products = w->wgmma_count);
    }
}

static void look_at_mbarriers(emu_events *events, cta_events *cta, const machine *m) {
    for (int i = 0; i < m->mbarrier_count; i++) {
        const mbarrier *bar = &m->mbarriers[i];
        if (i == cta->mbarrier_count) {
            cta->mbarrier_count++;
            cta->phases[i] = bar->phase;
            cta->since[i] = cta->now;
            name_row(events, "thread_name", cta->cta, MBARRIER_ROW + i, "mbarrier at 0x%x", bar->address);
        }
        if (bar->phase == cta->phases[i]) continue;
        char name[40];
        snprintf(name, sizeof name, "phase %" PRIu64, cta->phases[i]);
        write_slice(events, cta->cta, MBARRIER_ROW + i, cta->since[i], cta->now, name);
        cta->phases[i] = bar->phase;
        cta->since[i] = cta->now;
    }
}

static copy_events *known_copy(const cta_events *cta, const bulk_copy *copy) {
    for (size_t i = 0; i < cta->copy_count; i++) {
        const bulk_copy *known = &cta->copies[i].copy;
        if (known->stamp == copy->stamp && known->warp == copy->warp && known->lane == copy->lane &&
            known->instruction == copy->instruction && known->shared == copy->shared && known->to == copy->to)
            return &cta->copies[i];
    }
    return NULL;
}

static void look_at_copies(emu_events *events, cta_events *cta, const machine *m) {
    for (size_t i = 0; i < cta->copy_count; i++) cta->copies[i].under_way = false;
    for (size_t i = 0; i < m->bulk_count; i++) {
        copy_events *known = known_copy(cta, &m->bulk[i]);
        if (!known) {
            copy_events *more = emu_reserve(cta->copies, cta->copy_count + 1, &cta->copy_capacity, sizeof *more);
            if (!more) {
                events->out_of_memory = true;
                return;
            }
            cta->copies = more;
            known = &cta->copies[cta->copy_count++];
            *known = (copy_events){.copy = m->bulk[i], .id = ++events->copies};
            write_copy(events, cta, known, 'b');
        }
        known->under_way = true;
    }
    size_t kept = 0;
    for (size_t i = 0; i < cta->copy_count; i++) {
        if (cta->copies[i].under_way)
            cta->copies[kept++] = cta->copies[i];
        else
            write_copy(events, cta, &cta->copies[i], 'e');
    }
    cta->copy_count = kept;
}

/* ---- CTAs ---- */

/* What is still open ends with the CTA. */
static void close_cta(emu_events *events, cta_events *cta) {
    for (uint32_t i = 0; i < cta->warp_count; i++) {
        write_stretch(events, cta, (int)i, &cta->warps[i].runs);
        end_state(events, cta, (int)i);
    }
    for (size_t i = 0; i < cta->copy_count; i++) write_copy(events, cta, &cta->copies[i], 'e');
    free(cta->copies);
}

static void open_cta(emu_events *events, cta_events *cta, const machine *m) {
    *cta = (cta_events){.machine = m, .code = m->code, .cta = m->cta_index, .warp_count = m->warp_count};
    name_row(events, "process_name", cta->cta, 0, "CTA %" PRIu64 " (steps of the emulator, no time)", cta->cta);
    for (uint32_t i = 0; i < m->warp_count; i++)
        name_row(events, "thread_name", cta->cta, WARP_ROW + (int)i, "warp %u", i);
}

/* NULL when out of memory. */
static cta_events *cta_of(emu_events *events, const machine *m) {
    size_t i = 0;
    while (i < events->cta_count && events->ctas[i].machine != m) i++;
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
    const emu_place place = emu_place_of(code, instruction);
    return place.own ? place.own->line : 0;
}

void emu_note_instruction(emu_events *events, const machine *m, const warp *w, const op *o) {
    cta_events *const cta = cta_of(events, m);
    if (!cta) return;
    stretch *const runs = &cta->warps[w->index].runs;
    const uint64_t began = m->steps - 1;
    cta->now = m->steps;
    if (runs->to != began || line_of(cta->code, runs->instruction) != line_of(cta->code, o->instruction)) {
        write_stretch(events, cta, w->index, runs);
        *runs = (stretch){.from = began, .instruction = o->instruction};
    }
    runs->to = cta->now;
    look_at_warps(events, cta, m);
    look_at_mbarriers(events, cta, m);
    look_at_copies(events, cta, m);
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
