/* report.c - findings in words, and the output of device printf. */
#include "../machine/machine.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MOST_FINDINGS = 256 }; /* distinct ones of one host thread */

static const char *const class_names[EMU_CLASSES] = {
    [EMU_RACE] = "race",
    [EMU_ASYNC_IN_FLIGHT] = "async-in-flight",
    [EMU_UNINITIALISED_SHARED] = "uninitialised-shared",
    [EMU_UNINITIALISED_REGISTER] = "uninitialised-register",
    [EMU_OUT_OF_BOUNDS] = "out-of-bounds",
    [EMU_MISALIGNED] = "misaligned",
    [EMU_BARRIER_MISUSE] = "barrier-misuse",
    [EMU_DIVERGENT_SYNC] = "divergent-sync",
    [EMU_DEADLOCK] = "deadlock",
    [EMU_STEP_LIMIT] = "step-limit",
    [EMU_OUTPUT_NEVER_WRITTEN] = "output-never-written",
    [EMU_OUTPUT_WRITTEN_TWICE] = "output-written-twice",
    [EMU_ASSERT] = "assert",
    [EMU_TRAP] = "trap",
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

static size_t append_place(char *out, size_t bytes, size_t used, const emu_place *place) {
    if (place->line) used = append(out, bytes, used, " at %s:%d", place->file, place->line);
    if (place->caller_line)
        used = append(out, bytes, used, ", called from %s:%d", place->caller_file, place->caller_line);
    if (place->ptx_line)
        used = append(out, bytes, used, "%s PTX line %d: %s", place->line ? "," : " at", place->ptx_line, place->ptx);
    return used;
}

/* Header, the sentences indented, and the place of the counterpart. */
static char *compose(const machine *m, const finding_record *record, const char *sentences) {
    char text[3000];
    size_t used = append(text, sizeof text, 0, "%s", class_names[record->class_]);
    emu_place here = emu_place_of(m->code, record->here), other = emu_place_of(m->code, record->other);
    used = append_place(text, sizeof text, used, &here);
    used = append(text, sizeof text, used, "\n  CTA (%u, %u, %u)", m->cta[0], m->cta[1], m->cta[2]);
    if (record->warp >= 0) used = append(text, sizeof text, used, ", warp %d", record->warp);
    if (record->lane >= 0) used = append(text, sizeof text, used, ", lane %d", record->lane);
    used = append(text, sizeof text, used, "\n  ");
    for (; *sentences && used + 3 < sizeof text; sentences++) {
        text[used++] = *sentences;
        text[used] = 0;
        if (*sentences == '\n') used = append(text, sizeof text, used, "  ");
    }
    if (record->other != UINT32_MAX) {
        used = append(text, sizeof text, used, "\n  The other instruction is");
        append_place(text, sizeof text, used, &other);
    }
    return strdup(text);
}

static finding_record *find_record(machine *m, emu_class class_, uint32_t other) {
    for (size_t i = 0; i < m->finding_count; i++) {
        finding_record *each = &m->findings[i];
        if (each->class_ == class_ && each->here == m->here && each->other == other) return each;
    }
    return NULL;
}

void emu_report(machine *m, emu_class class_, uint32_t other, const warp *w, int lane, int other_thread,
                uint64_t address, const char *format, ...) {
    finding_record *record = find_record(m, class_, other);
    if (record) {
        record->count++;
        return;
    }
    if (m->finding_count == MOST_FINDINGS) return;
    if (m->finding_count == m->finding_capacity) {
        size_t larger = m->finding_capacity ? 2 * m->finding_capacity : 16;
        finding_record *all = realloc(m->findings, larger * sizeof *all);
        if (!all) {
            m->out_of_memory = m->faulted = true;
            return;
        }
        m->findings = all;
        m->finding_capacity = larger;
    }
    record = &m->findings[m->finding_count++];
    *record = (finding_record){.class_ = class_,
                               .here = m->here,
                               .other = other,
                               .count = 1,
                               .cta = m->cta_index,
                               .warp = w ? w->index : -1,
                               .lane = lane,
                               .other_warp = -1,
                               .other_lane = -1,
                               .address = address};
    if (other_thread >= 0) {
        record->other_warp = other_thread / LANES;
        record->other_lane = other_thread % LANES;
    }
    char sentences[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentences, sizeof sentences, format, arguments);
    va_end(arguments);
    record->message = compose(m, record, sentences);
    m->faulted |= m->launch->first_finding_only;
    if (!record->message) m->out_of_memory = m->faulted = true;
}

/* ---- printf of the device ---- */

void emu_append_output(machine *m, const char *text, size_t length) {
    if (!m->launch->output) return;
    if (m->output_length + length > m->output_capacity) {
        size_t larger = 2 * (m->output_length + length) + 256;
        char *output = realloc(m->output, larger);
        if (!output) {
            m->out_of_memory = m->faulted = true;
            return;
        }
        m->output = output;
        m->output_capacity = larger;
    }
    memcpy(m->output + m->output_length, text, length);
    m->output_length += length;
}

typedef struct argument_reader {
    const uint8_t *bytes;
    size_t left, used;
} argument_reader;

static uint64_t next_argument(argument_reader *reader, size_t size) {
    uint64_t value = 0;
    size_t at = (reader->used + size - 1) / size * size;
    if (reader->bytes && at + size <= reader->left) memcpy(&value, reader->bytes + at, size);
    reader->used = at + size;
    return value;
}

/* One conversion of the format, from the '%' on; the number of format characters it took. */
static size_t print_conversion(machine *m, const char *format, argument_reader *reader) {
    char piece[32], text[512];
    size_t length = 1 + strspn(format + 1, "-+ #0123456789.");
    size_t modifiers = strspn(format + length, "hlLzjt");
    bool wide = memchr(format + length, 'l', modifiers) || memchr(format + length, 'z', modifiers) ||
                memchr(format + length, 'j', modifiers) || memchr(format + length, 't', modifiers);
    char kind = format[length + modifiers];
    if (!kind || length > 16) {
        emu_append_output(m, format, 1);
        return 1;
    }
    if (kind == '%') {
        emu_append_output(m, "%", 1);
    } else if (strchr("diouxX", kind)) {
        uint64_t value = next_argument(reader, wide ? 8 : 4);
        if (!wide && (kind == 'd' || kind == 'i')) value = (uint64_t)(int64_t)(int32_t)value;
        snprintf(piece, sizeof piece, "%.*sll%c", (int)length, format, kind);
        emu_append_output(m, text, (size_t)snprintf(text, sizeof text, piece, value) % sizeof text);
    } else if (strchr("fFeEgGaA", kind)) {
        uint64_t bits = next_argument(reader, 8);
        double value;
        memcpy(&value, &bits, sizeof value);
        snprintf(piece, sizeof piece, "%.*s%c", (int)length, format, kind);
        emu_append_output(m, text, (size_t)snprintf(text, sizeof text, piece, value) % sizeof text);
    } else if (kind == 'c') {
        char c = (char)next_argument(reader, 4);
        emu_append_output(m, &c, 1);
    } else if (kind == 's') {
        const char *string = emu_device_string(m, next_argument(reader, 8));
        emu_append_output(m, string, strlen(string));
    } else {
        uint64_t value = next_argument(reader, 8);
        emu_append_output(m, text, (size_t)snprintf(text, sizeof text, "0x%" PRIx64, value));
    }
    return length + modifiers + 1;
}

void emu_device_printf(machine *m, const char *format, const uint8_t *arguments, size_t argument_bytes) {
    argument_reader reader = {arguments, argument_bytes, 0};
    while (*format) {
        size_t plain = strcspn(format, "%");
        emu_append_output(m, format, plain);
        format += plain;
        if (*format) format += print_conversion(m, format, &reader);
    }
}
