/* printf.c - the output of device printf: the host's snprintf() makes it, conversion by conversion, as on a GPU. */
#include "machine.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

static void append_output(cta *m, const char *text, size_t length) {
    if (!m->launch->output || !length) return;
    char *output = cta_reserve(m, m->output, m->output_length + length, &m->output_capacity, 1);
    if (!output) return;
    m->output = output;
    memcpy(m->output + m->output_length, text, length);
    m->output_length += length;
}

/* Append the result of snprintf() for a conversion, which may be as long as its width. */
static void append_converted(cta *m, const char *conversion, ...) {
    va_list arguments;
    va_start(arguments, conversion);
    const int length = vsnprintf(NULL, 0, conversion, arguments);
    va_end(arguments);
    if (!m->launch->output || length <= 0) return;
    char *output = cta_reserve(m, m->output, m->output_length + (size_t)length + 1, &m->output_capacity, 1);
    if (!output) return;
    m->output = output;
    va_start(arguments, conversion);
    vsnprintf(m->output + m->output_length, (size_t)length + 1, conversion, arguments);
    va_end(arguments);
    m->output_length += (size_t)length;
}

typedef struct argument_reader {
    const uint8_t *bytes;
    size_t left, used;
    int count; /* of arguments that were read */
} argument_reader;

static uint64_t next_argument(argument_reader *reader, size_t size) {
    uint64_t value = 0;
    size_t at = (reader->used + size - 1) / size * size;
    if (reader->bytes && at + size <= reader->left) memcpy(&value, reader->bytes + at, size);
    reader->used = at + size;
    reader->count++;
    return value;
}

/* A width or a precision: digits, or an argument where there is a '*'; 0 where there is neither. */
static int read_extent(const char **at, argument_reader *reader) {
    enum { MOST = 1 << 20 };
    int value = 0;
    if (**at == '*') {
        ++*at;
        value = (int32_t)next_argument(reader, 4);
    }
    for (; **at >= '0' && **at <= '9'; ++*at) value = value < MOST ? 10 * value + (**at - '0') : MOST;
    return value > MOST ? MOST : value < -MOST ? -MOST : value;
}

/* An integer of the width that its modifiers say. */
static uint64_t next_integer(argument_reader *reader, const char *modifiers, size_t length, bool is_signed) {
    if (length && strchr("lLzjt", *modifiers)) return next_argument(reader, 8);
    const uint64_t value = next_argument(reader, 4);
    if (!length) return is_signed ? (uint64_t)(int32_t)value : value;
    if (length == 1) return is_signed ? (uint64_t)(int16_t)value : (uint16_t)value; /* %hd */
    return is_signed ? (uint64_t)(int8_t)value : (uint8_t)value;                    /* %hhd */
}

/* One conversion of the format, from the '%' on; the number of format characters it took. Other text is not changed.
 */
static size_t print_conversion(cta *m, const char *format, argument_reader *reader) {
    char flags[8], piece[24];
    const size_t flag_count = strspn(format + 1, "-+ #0");
    const char *at = format + 1 + flag_count;
    argument_reader ahead = *reader;
    const int width = read_extent(&at, &ahead);
    int precision = -1;
    if (*at == '.') {
        at++;
        precision = read_extent(&at, &ahead);
    }
    const size_t modifiers = strspn(at, "hlLzjt");
    const char kind = at[modifiers];
    if (!kind || !strchr("%diouxXfFeEgGaAcsp", kind) || flag_count >= sizeof flags) {
        append_output(m, format, 1);
        return 1;
    }
    if (kind == '%') {
        append_output(m, "%", 1);
        return (size_t)(at - format) + modifiers + 1;
    }
    *reader = ahead;
    snprintf(flags, sizeof flags, "%.*s", (int)flag_count, format + 1);
    const bool integer = strchr("diouxX", kind) != NULL;
    snprintf(piece, sizeof piece, "%%%s*%s%s%c", flags, strchr("cp", kind) ? "" : ".*", integer ? "j" : "", kind);
    if (integer) {
        append_converted(m, piece, width, precision,
                         (uintmax_t)next_integer(reader, at, modifiers, kind == 'd' || kind == 'i'));
    } else if (kind == 'c') {
        append_converted(m, piece, width, (int)next_argument(reader, 4));
    } else if (kind == 's') {
        append_converted(m, piece, width, precision, emu_device_string(m, next_argument(reader, 8)));
    } else if (kind == 'p') {
        append_converted(m, piece, width, (void *)(uintptr_t)next_argument(reader, 8));
    } else {
        const uint64_t bits = next_argument(reader, 8);
        double value;
        memcpy(&value, &bits, sizeof value);
        append_converted(m, piece, width, precision, value);
    }
    return (size_t)(at - format) + modifiers + 1;
}

int emu_device_printf(cta *m, const char *format, const uint8_t *arguments, size_t argument_bytes) {
    argument_reader reader = {arguments, argument_bytes, 0, 0};
    while (*format) {
        size_t plain = strcspn(format, "%");
        append_output(m, format, plain);
        format += plain;
        if (*format) format += print_conversion(m, format, &reader);
    }
    return reader.count;
}
