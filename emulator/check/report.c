/* report.c - findings in words. */
#include "checks.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FINDINGS = 256 }; /* distinct ones of one host thread */

static const char *const class_names[EMU_CLASSES] = {
    [EMU_RACE] = "race",
    [EMU_ASYNC_IN_FLIGHT] = "async-in-flight",
    [EMU_UNINITIALISED_SHARED] = "uninitialised-shared",
    [EMU_UNINITIALISED_REGISTER] = "uninitialised-register",
    [EMU_UNINITIALISED_GLOBAL] = "uninitialised-global",
    [EMU_OUT_OF_BOUNDS] = "out-of-bounds",
    [EMU_MISALIGNED] = "misaligned",
    [EMU_BARRIER_MISUSE] = "barrier-misuse",
    [EMU_DIVERGENT_SYNC] = "divergent-sync",
    [EMU_DEADLOCK] = "deadlock",
    [EMU_LIVELOCK] = "livelock",
    [EMU_STEP_LIMIT] = "step-limit",
    [EMU_OUTPUT_NEVER_WRITTEN] = "output-never-written",
    [EMU_OUTPUT_WRITTEN_TWICE] = "output-written-twice",
    [EMU_ASSERT] = "assert",
    [EMU_TRAP] = "trap",
    [EMU_REGISTER_IN_FLIGHT] = "register-in-flight",
    [EMU_WGMMA_MISUSE] = "wgmma-misuse",
    [EMU_BAD_TENSOR_MAP] = "bad-tensor-map",
    [EMU_MISSING_PROXY_FENCE] = "missing-proxy-fence",
    [EMU_CTA_EXITED] = "cta-exited",
    [EMU_CTA_NOT_STARTED] = "cta-not-started",
    [EMU_MISSING_INIT_FENCE] = "missing-init-fence",
    [EMU_PHASE_OVERRUN] = "phase-overrun",
    [EMU_ORDER_DEPENDENT] = "order-dependent",
    [EMU_TMEM_MISUSE] = "tmem-misuse",
    [EMU_TMEM_RACE] = "tmem-race",
    [EMU_TMEM_IN_FLIGHT] = "tmem-in-flight",
    [EMU_TMEM_UNINITIALISED] = "tmem-uninitialised",
};

const char *emu_class_name(emu_class class_) {
    return (unsigned)class_ < EMU_CLASSES ? class_names[class_] : "unknown";
}

static size_t append(char *out, size_t bytes, size_t used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static size_t append(char *out, size_t bytes, size_t used, const char *format, ...) {
    if (used >= bytes) return used;
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(out + used, bytes - used, format, arguments);
    va_end(arguments);
    return used + (more > 0 ? (size_t)more : 0);
}

/* The own line, the PTX, and where the code was inlined, from the inside out. */
static size_t append_location(char *out, size_t bytes, size_t used, const emu_location *location) {
    if (location->own) used = append(out, bytes, used, " at %s:%d", location->own->file, location->own->line);
    if (location->ptx_line)
        used = append(out, bytes, used, "%s PTX line %d: %s", location->own ? "," : " at", location->ptx_line,
                      location->ptx);
    if (!location->frame || !location->frame->caller) return used;
    used = append(out, bytes, used, "\n  inlined:");
    for (const emu_frame *f = location->frame; f; f = f->caller) {
        const char *slash = strrchr(f->file, '/');
        used = append(out, bytes, used, "%s %s:%d", f == location->frame ? "" : " in", slash ? slash + 1 : f->file,
                      f->line);
    }
    return used;
}

char *emu_compose_message(emu_class class_, const emu_location *here, const char *thread, const char *sentences,
                          const emu_location *other) {
    char text[3000];
    size_t used = append(text, sizeof text, 0, "%s", class_names[class_]);
    used = append_location(text, sizeof text, used, here);
    if (*thread) used = append(text, sizeof text, used, "\n  %s", thread);
    used = append(text, sizeof text, used, "\n  ");
    for (; *sentences && used + 3 < sizeof text; sentences++) {
        text[used++] = *sentences;
        text[used] = 0;
        if (*sentences == '\n') used = append(text, sizeof text, used, "  ");
    }
    if (other->ptx_line) {
        used = append(text, sizeof text, used, "\n  The other instruction is");
        append_location(text, sizeof text, used, other);
    }
    return emu_copy_text(text);
}

static char *compose(const cta *m, const finding_record *record, const char *sentences) {
    char thread[120];
    const emu_location here = emu_location_of(m->code, record->here), other = emu_location_of(m->code, record->other);
    size_t used = append(thread, sizeof thread, 0, "CTA (%u, %u, %u)", m->cta[0], m->cta[1], m->cta[2]);
    if (record->warp >= 0) used = append(thread, sizeof thread, used, ", warp %d", record->warp);
    if (record->lane >= 0) append(thread, sizeof thread, used, ", lane %d", record->lane);
    return emu_compose_message(record->class_, &here, thread, sentences, &other);
}

bool emu_same_cause(const entry *code, const finding_record *a, const finding_record *b) {
    if (a->class_ != b->class_) return false;
    /* what was read has one cause, however many instructions take it */
    const bool loaded = a->class_ == EMU_UNINITIALISED_SHARED || a->class_ == EMU_UNINITIALISED_GLOBAL;
    if (loaded && a->other != UINT32_MAX) return emu_same_line(code, a->other, b->other);
    if (emu_same_line(code, a->here, b->here) && emu_same_line(code, a->other, b->other)) return true;
    return a->class_ == EMU_RACE && emu_same_line(code, a->here, b->other) && emu_same_line(code, a->other, b->here);
}

/* ---- findings not to report ---- */

/* After the others a CTA cannot continue, or not as a device would. */
static bool may_ignore(emu_class class_) {
    return class_ < EMU_BARRIER_MISUSE || class_ == EMU_OUTPUT_NEVER_WRITTEN || class_ == EMU_OUTPUT_WRITTEN_TWICE ||
           class_ == EMU_MISSING_PROXY_FENCE || class_ == EMU_MISSING_INIT_FENCE || class_ == EMU_CTA_NOT_STARTED ||
           class_ == EMU_PHASE_OVERRUN || class_ == EMU_ORDER_DEPENDENT;
}

static bool fail_ignored(emu_error *error, const char *item, size_t length, const char *reason) {
    size_t used = (size_t)snprintf(error->text, sizeof error->text, "ignore '%.*s': %s",
                                   (int)(length < 60 ? length : 60), item, reason);
    for (int i = 0; i < EMU_CLASSES && used < sizeof error->text; i++)
        if (may_ignore((emu_class)i))
            used +=
                (size_t)snprintf(error->text + used, sizeof error->text - used, "%s %s", i ? "," : "", class_names[i]);
    return false;
}

static bool parse_item(const char *item, size_t length, ignored *to, emu_error *error) {
    const char *at = memchr(item, '@', length), *end = item + length;
    size_t name = at ? (size_t)(at - item) : length;
    int class_ = 0;
    while (class_ < EMU_CLASSES && (strlen(class_names[class_]) != name || memcmp(class_names[class_], item, name)))
        class_++;
    if (class_ == EMU_CLASSES) return fail_ignored(error, item, length, "no such class of findings; there are");
    if (!may_ignore((emu_class)class_))
        return fail_ignored(error, item, length, "a CTA cannot continue after that; what can be ignored is");
    long line = 0;
    char *rest = NULL;
    if (at) line = strtol(at + 1, &rest, 10);
    if (at && (rest == at + 1 || rest != end || line < 1 || line > INT32_MAX))
        return fail_ignored(error, item, length, "should be CLASS or CLASS@LINE, with a CLASS of");
    *to = (ignored){(emu_class)class_, (int)line};
    return true;
}

bool emu_parse_ignored(const char *text, ignored_list *list, emu_error *error) {
    list->count = 0;
    while (text && *text) {
        size_t length = strcspn(text, ",");
        if (list->count == MAX_IGNORED) {
            snprintf(error->text, sizeof error->text, "more than %d classes and lines to ignore", MAX_IGNORED);
            return false;
        }
        if (!parse_item(text, length, &list->items[list->count++], error)) return false;
        text += length + (text[length] == ',');
    }
    return true;
}

static bool is_line(const emu_location *location, int line) {
    return location->own ? location->own->line == line : location->ptx_line == line;
}

bool emu_is_ignored(const ignored_list *list, emu_class class_, const emu_location *here, const emu_location *other) {
    for (size_t i = 0; i < list->count; i++) {
        const ignored *each = &list->items[i];
        if (each->class_ == class_ && (!each->line || is_line(here, each->line) || is_line(other, each->line)))
            return true;
    }
    return false;
}

/* ---- records ---- */

static bool is_ignored(const cta *m, emu_class class_, uint32_t other) {
    if (!m->findings.ignored->count) return false;
    emu_location here = emu_location_of(m->code, m->here), there = emu_location_of(m->code, other);
    return emu_is_ignored(m->findings.ignored, class_, &here, &there);
}

/* The functions that the lanes are in, from the inside out, and where each was called. */
static void append_calls(const cta *m, const warp *w, char *out, size_t bytes) {
    enum { MAX_SHOWN = 6 };
    size_t used = strlen(out);
    int frame = w ? w->frame : -1;
    for (int shown = 0; frame >= 0 && shown < MAX_SHOWN; shown++) {
        const call_frame *each = &w->frames[frame];
        const emu_location location = emu_location_of(m->code, each->instruction);
        used = append(out, bytes, used, "\n%s function '%.80s', called at ", shown ? "in" : "This is in",
                      m->code->routines[each->routine].name);
        if (location.own) used = append(out, bytes, used, "%.120s:%d, ", location.own->file, location.own->line);
        used = append(out, bytes, used, "PTX line %d", location.ptx_line);
        frame = each->caller;
    }
    if (frame >= 0) append(out, bytes, used, "\nand %d more calls", w->frames[frame].depth);
}

static finding_record *find_record(cta *m, emu_class class_, uint32_t other) {
    const finding_record wanted = {.class_ = class_, .here = m->here, .other = other};
    for (size_t i = 0; i < m->findings.count; i++) {
        if (emu_same_cause(m->code, &m->findings.records[i], &wanted)) return &m->findings.records[i];
    }
    return NULL;
}

void emu_report(cta *m, emu_class class_, uint32_t other, const warp *w, int lane, int other_thread, uint64_t address,
                const char *format, ...) {
    if (is_ignored(m, class_, other)) return;
    finding_record *record = find_record(m, class_, other);
    if (record) {
        record->count++;
        return;
    }
    if (m->findings.count == MAX_FINDINGS) return;
    finding_record *all =
        cta_reserve(m, m->findings.records, m->findings.count + 1, &m->findings.capacity, sizeof *all);
    if (!all) return;
    m->findings.records = all;
    record = &m->findings.records[m->findings.count++];
    *record = (finding_record){.class_ = class_,
                               .here = m->here,
                               .other = other,
                               .count = 1,
                               .cta = m->cta_index,
                               .cluster = m->cluster->index,
                               .warp = w ? w->index : -1,
                               .lane = lane,
                               .other_warp = -1,
                               .other_lane = -1,
                               .address = address};
    if (other_thread >= 0) {
        record->other_warp = other_thread / LANES;
        record->other_lane = other_thread % LANES;
    }
    char sentences[2400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentences, sizeof sentences, format, arguments);
    va_end(arguments);
    append_calls(m, w, sentences, sizeof sentences);
    record->message = compose(m, record, sentences);
    m->faulted |= m->launch->first_finding_only;
    if (!record->message) m->out_of_memory = m->faulted = true;
}
