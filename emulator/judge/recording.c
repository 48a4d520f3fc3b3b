/* recording.c - the reader of recordings: every count, number and length is checked here. */
#include "recording.h"

#include "json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (1ull << 30)
enum { MOST_RECORDS = 200000, LONGEST_LINE = 600 };

static const struct {
    const char *name;
    int numbers;
    bool has_data;
} KINDS[RECORD_KINDS] = {
    [RECORD_VERSION] = {"flashladder-recording", 1, false},
    [RECORD_ALLOC] = {"alloc", 3, false},
    [RECORD_FREE] = {"free", 1, false},
    [RECORD_MODULE] = {"module", 1, true},
    [RECORD_UNLOAD] = {"unload", 1, false},
    [RECORD_VARIABLE] = {"variable", 3, true},
    [RECORD_REFUSED] = {"refused", 0, true},
    [RECORD_WRITE] = {"write", 1, true},
    [RECORD_COPY] = {"copy", 3, false},
    [RECORD_READ] = {"read", 2, false},
    [RECORD_SET] = {"set", 6, false},
    [RECORD_PARAMETERS] = {"parameters", 2, true},
    [RECORD_LAUNCH] = {"launch", 13, true},
    [RECORD_TENSOR_MAP] = {"tensormap", 21, true},
    [RECORD_STREAM] = {"stream", 1, false},
    [RECORD_EVENT] = {"event", 1, false},
    [RECORD_WAIT] = {"wait", 1, false},
    [RECORD_HOST] = {"host", 0, false},
    [RECORD_RACE] = {"race", 0, true},
    [RECORD_MARK] = {"mark", 0, true},
};

const char *record_name(record_kind kind) {
    return KINDS[kind].name;
}

/* ---- one record ---- */

/* A decimal number up to 2^64 - 1, of which *at is the first digit; *at then points past it. */
static bool read_number(const char **at, uint64_t *number) {
    const char *first = *at;
    for (*number = 0; **at >= '0' && **at <= '9'; ++*at) {
        const uint64_t digit = (uint64_t)(**at - '0');
        if (*number > (UINT64_MAX - digit) / 10) return false;
        *number = *number * 10 + digit;
    }
    return *at > first;
}

/* The kind and the numbers of a line, the last of which is the length of the data. */
static bool read_line(record *r, const char *line, uint64_t *bytes) {
    const char *at = line + strcspn(line, " ");
    for (r->kind = 0; r->kind < RECORD_KINDS; r->kind++)
        if (strlen(KINDS[r->kind].name) == (size_t)(at - line) &&
            !memcmp(KINDS[r->kind].name, line, (size_t)(at - line)))
            break;
    if (r->kind == RECORD_KINDS) return false;
    for (int i = 0; i <= KINDS[r->kind].numbers; i++)
        if (*at++ != ' ' || !read_number(&at, i < KINDS[r->kind].numbers ? &r->numbers[i] : bytes)) return false;
    return !*at && (KINDS[r->kind].has_data || !*bytes);
}

/* Read the record at an offset, which then points past it. */
static bool read_record(record *r, const uint8_t *text, size_t size, size_t *offset) {
    char line[LONGEST_LINE];
    const size_t room = size - *offset < sizeof line ? size - *offset : sizeof line;
    const uint8_t *first = text + *offset, *end = memchr(first, '\n', room);
    if (!end || memchr(first, 0, (size_t)(end - first))) return false;
    memcpy(line, first, (size_t)(end - first));
    line[end - first] = 0;
    uint64_t bytes;
    *r = (record){0};
    if (!read_line(r, line, &bytes)) return false;
    const size_t left = size - *offset - (size_t)(end - first) - 1;
    if (left < 1 || bytes > left - 1 || end[1 + bytes] != '\n') return false;
    r->data = end + 1;
    r->bytes = (size_t)bytes;
    *offset += (size_t)(end - first) + 2 + r->bytes;
    return true;
}

bool record_text(const record *r, size_t offset, char *text, size_t bytes) {
    if (offset >= r->bytes || r->bytes - offset >= bytes || memchr(r->data + offset, 0, r->bytes - offset))
        return false;
    memcpy(text, r->data + offset, r->bytes - offset);
    text[r->bytes - offset] = 0;
    return true;
}

/* ---- marks ---- */

static bool is_mark(const record *r, const char *text) {
    return r->kind == RECORD_MARK && r->bytes == strlen(text) && !memcmp(r->data, text, r->bytes);
}

static bool read_name(const char **at, char name[NAME_BYTES]) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    const size_t length = strspn(*at, letters);
    if (!length || length >= NAME_BYTES) return false;
    memcpy(name, *at, length);
    name[length] = 0;
    *at += length;
    return true;
}

/* Add the buffer of a mark "input NAME ADDRESS BYTES ..."; a later mark of that name replaces it. Other marks are
 * skipped; false where the mark is malformed, or one too many. */
static bool read_mark(const record *r, const char *kind, marked_buffers *to) {
    char text[LONGEST_LINE];
    marked_buffer found = {0};
    const size_t length = strlen(kind), shown = r->bytes < sizeof text - 1 ? r->bytes : sizeof text - 1;
    if (r->kind != RECORD_MARK || shown <= length || memcmp(r->data, kind, length) != 0 || r->data[length] != ' ')
        return true;
    memcpy(text, r->data, shown);
    text[shown] = 0;
    const char *at = text + length + 1;
    if (!read_name(&at, found.name) || *at++ != ' ' || !read_number(&at, &found.address) || *at++ != ' ' ||
        !read_number(&at, &found.bytes) || (*at && *at != ' '))
        return false;
    size_t i = 0;
    while (i < to->count && strcmp(to->all[i].name, found.name) != 0) i++;
    if (i == MOST_BUFFERS) return false;
    if (i == to->count) to->count++;
    to->all[i] = found;
    return true;
}

/* The last call that returned, the inputs before it and the outputs within. */
static bool find_call(recording *r) {
    size_t begin = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (is_mark(&r->records[i], "call")) begin = i + 1;
        if (!begin || !is_mark(&r->records[i], "return")) continue;
        r->call = begin;
        r->end = i;
        begin = 0;
    }
    for (size_t i = 0; i < r->end; i++) {
        if (i < r->call && !read_mark(&r->records[i], "input", &r->inputs)) return false;
        if (i >= r->call && !read_mark(&r->records[i], "output", &r->outputs)) return false;
    }
    return true;
}

/* ---- the file ---- */

static uint8_t *read_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    uint8_t *text = NULL;
    const long length = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    if (length >= 0 && (uint64_t)length <= MOST_BYTES) text = malloc((size_t)length + 1);
    rewind(file);
    if (text && fread(text, 1, (size_t)length, file) != (size_t)length) {
        free(text);
        text = NULL;
    }
    fclose(file);
    *bytes = text ? (size_t)length : 0;
    return text;
}

static bool add_record(recording *r, const record *added) {
    if (!(r->count & (r->count - 1))) { /* a power of two: the array is full */
        record *more = realloc(r->records, (2 * r->count + 1) * sizeof *more);
        if (!more) return false;
        r->records = more;
    }
    r->records[r->count++] = *added;
    return true;
}

static bool read_records(recording *r, size_t size, char error[RECORDING_ERROR]) {
    record one;
    for (size_t offset = 0; offset < size;) {
        if (r->count == MOST_RECORDS) {
            snprintf(error, RECORDING_ERROR, "more than %d records", MOST_RECORDS);
            return false;
        }
        if (!read_record(&one, r->text, size, &offset) || (one.kind == RECORD_VERSION) != !r->count ||
            (one.kind == RECORD_VERSION && one.numbers[0] != 1)) {
            snprintf(error, RECORDING_ERROR, "byte %zu begins no record of a recording of version 1", offset);
            return false;
        }
        if (!add_record(r, &one)) {
            snprintf(error, RECORDING_ERROR, "out of memory");
            return false;
        }
    }
    if (r->count && find_call(r)) return true;
    snprintf(error, RECORDING_ERROR, r->count ? "a mark of an input or an output is malformed" : "it is empty");
    return false;
}

bool recording_read(recording *r, const char *path, char error[RECORDING_ERROR]) {
    size_t size = 0;
    *r = (recording){0};
    r->text = read_file(path, &size);
    if (!r->text) snprintf(error, RECORDING_ERROR, "the file cannot be read, or has more than 1 GiB");
    if (r->text && read_records(r, size, error)) return true;
    recording_free(r);
    return false;
}

void recording_free(recording *r) {
    free(r->text);
    free(r->records);
    *r = (recording){0};
}

/* ---- as text ---- */

static uint64_t hash_of(const record *r) {
    uint64_t hash = 14695981039346656037ull;
    for (size_t i = 0; i < r->bytes; i++) hash = (hash ^ r->data[i]) * 1099511628211ull;
    return hash;
}

/* The data that is text for a reader: all but PTX, bytes and the parameters of a kernel. */
static void list_text(const record *r) {
    const size_t skipped = r->kind == RECORD_LAUNCH ? (size_t)r->numbers[12] : 0;
    if (r->kind == RECORD_MODULE || r->kind == RECORD_WRITE || r->kind == RECORD_TENSOR_MAP || skipped > r->bytes)
        return;
    if (!r->bytes) return;
    fputs(", \"text\": ", stdout);
    json_text(stdout, (const char *)r->data + skipped, r->bytes - skipped);
}

void recording_list(const recording *r) {
    for (size_t i = 0; i < r->count; i++) {
        const record *each = &r->records[i];
        const char *at = !r->call || i + 1 < r->call ? "setup" : i < r->end ? "call" : "after";
        printf("{\"kind\": \"%s\", \"at\": \"%s\", \"numbers\": [", record_name(each->kind), at);
        for (int k = 0; k < KINDS[each->kind].numbers; k++) printf("%s%" PRIu64, k ? ", " : "", each->numbers[k]);
        printf("], \"bytes\": %zu, \"hash\": \"%016" PRIx64 "\"", each->bytes, hash_of(each));
        list_text(each);
        puts("}");
    }
}
