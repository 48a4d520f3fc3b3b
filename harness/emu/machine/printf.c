/* printf.c - the output of device printf. */
#include "machine.h"

#include <inttypes.h>
#include <string.h>

static void append_output(machine *m, const char *text, size_t length) {
    if (!m->launch->output || !length) return;
    char *output = machine_reserve(m, m->output, m->output_length + length, &m->output_capacity, 1);
    if (!output) return;
    m->output = output;
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
        append_output(m, format, 1);
        return 1;
    }
    if (kind == '%') {
        append_output(m, "%", 1);
    } else if (strchr("diouxX", kind)) {
        uint64_t value = next_argument(reader, wide ? 8 : 4);
        if (!wide && (kind == 'd' || kind == 'i')) value = (uint64_t)(int64_t)(int32_t)value;
        snprintf(piece, sizeof piece, "%.*sj%c", (int)length, format, kind);
        append_output(m, text, (size_t)snprintf(text, sizeof text, piece, (uintmax_t)value) % sizeof text);
    } else if (strchr("fFeEgGaA", kind)) {
        uint64_t bits = next_argument(reader, 8);
        double value;
        memcpy(&value, &bits, sizeof value);
        snprintf(piece, sizeof piece, "%.*s%c", (int)length, format, kind);
        append_output(m, text, (size_t)snprintf(text, sizeof text, piece, value) % sizeof text);
    } else if (kind == 'c') {
        char c = (char)next_argument(reader, 4);
        append_output(m, &c, 1);
    } else if (kind == 's') {
        const char *string = emu_device_string(m, next_argument(reader, 8));
        append_output(m, string, strlen(string));
    } else {
        uint64_t value = next_argument(reader, 8);
        append_output(m, text, (size_t)snprintf(text, sizeof text, "0x%" PRIx64, value));
    }
    return length + modifiers + 1;
}

void emu_device_printf(machine *m, const char *format, const uint8_t *arguments, size_t argument_bytes) {
    argument_reader reader = {arguments, argument_bytes, 0};
    while (*format) {
        size_t plain = strcspn(format, "%");
        append_output(m, format, plain);
        format += plain;
        if (*format) format += print_conversion(m, format, &reader);
    }
}
