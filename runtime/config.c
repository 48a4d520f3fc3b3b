#include "runtime/config.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum type { TYPE_DTYPE, TYPE_INT, TYPE_BOOL };

static const struct {
    const char *name, *word, *mma_sync, *wgmma;
    enum type type;
    size_t offset;
} FIELDS[] = {
#define FIELD(type, name, word, mma_sync, wgmma, help)                                                                 \
    {#name,                                                                                                            \
     word,                                                                                                             \
     mma_sync,                                                                                                         \
     wgmma,                                                                                                            \
     _Generic(((KernelConfig *)0)->name, bool: TYPE_BOOL, int: TYPE_INT, default: TYPE_DTYPE),                         \
     offsetof(KernelConfig, name)},
#include "common/config_fields.h"
};
enum { N_FIELDS = sizeof FIELDS / sizeof *FIELDS };

enum {
    WORDS_SIZE = 1 /* the words of all items, or the names of all fields */
#define FIELD(type, name, word, mma_sync, wgmma, help) +sizeof word + sizeof #name
#include "common/config_fields.h"
};

static const struct {
    const char *name, *number;
    enum dtype dtype;
} DTYPES[] = {{"FP16", "5", FP16}, {"BF16", "15", BF16}};

const char *dtype_name(enum dtype dtype) {
    return dtype == FP16 ? "fp16" : "bf16";
}

const char *config_field_since(const char *name, bool one_architecture) {
    for (int i = 0; i < N_FIELDS; i++)
        if (!strcmp(FIELDS[i].name, name)) return one_architecture ? FIELDS[i].wgmma : FIELDS[i].mma_sync;
    return "";
}

static int value_of(const KernelConfig *config, int field) {
    const char *const place = (const char *)config + FIELDS[field].offset;
    switch (FIELDS[field].type) {
    case TYPE_DTYPE:
        return (int)*(const enum dtype *)place;
    case TYPE_INT:
        return *(const int *)place;
    default:
        return *(const bool *)place;
    }
}

static void set_value(KernelConfig *config, int field, int value) {
    char *const place = (char *)config + FIELDS[field].offset;
    switch (FIELDS[field].type) {
    case TYPE_DTYPE:
        *(enum dtype *)place = (enum dtype)value;
        break;
    case TYPE_INT:
        *(int *)place = value;
        break;
    default:
        *(bool *)place = value;
        break;
    }
}

/* The field after the last of those that share the word of this one: of one item, or of the parenthesis. */
static int item_end(int first) {
    int end = first + 1;
    while (end < N_FIELDS && !strcmp(FIELDS[end].word, FIELDS[first].word)) end++;
    return end;
}

/* A text that grows; what does not fit is cut. */
struct writer {
    char *text;
    size_t size, length;
};

static void __attribute__((format(printf, 2, 3))) append(struct writer *writer, const char *format, ...) {
    const size_t left = writer->size - writer->length;
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(writer->text + writer->length, left, format, arguments);
    va_end(arguments);
    writer->length += length < 0 ? 0 : (size_t)length < left ? (size_t)length : left - 1;
}

static void append_value(struct writer *writer, const KernelConfig *config, int field) {
    const int value = value_of(config, field);
    switch (FIELDS[field].type) {
    case TYPE_DTYPE:
        append(writer, "%s", value == FP16 ? "FP16" : "BF16");
        break;
    case TYPE_INT:
        append(writer, "%d", value);
        break;
    default:
        append(writer, "%s", value ? "true" : "false");
        break;
    }
}

/* A piece of text, without the blanks around it. */
struct span {
    const char *start;
    int length;
};

static struct span trimmed(const char *start, const char *end) {
    while (start < end && isspace((unsigned char)*start)) start++;
    while (start < end && isspace((unsigned char)end[-1])) end--;
    return (struct span){start, (int)(end - start)};
}

static bool span_is(struct span span, const char *word) {
    return strlen(word) == (size_t)span.length && !strncasecmp(span.start, word, (size_t)span.length);
}

/* A decimal number of at most nine digits; -1 for anything else. */
static int span_number(struct span span) {
    int value = 0;
    if (span.length < 1 || span.length > 9) return -1;
    for (int i = 0; i < span.length; i++) {
        if (!isdigit((unsigned char)span.start[i])) return -1;
        value = 10 * value + (span.start[i] - '0');
    }
    return value;
}

static enum status parse_dtype(struct span span, const char *text, KernelConfig *config, struct failure *failure) {
    for (size_t i = 0; i < sizeof DTYPES / sizeof *DTYPES; i++)
        if (span_is(span, DTYPES[i].name) || span_is(span, DTYPES[i].number)) {
            config->dtype = DTYPES[i].dtype;
            return STATUS_OK;
        }
    return fail(failure, STATUS_USAGE, "config '%s': unknown dtype '%.*s': expected FP16 or BF16", text, span.length,
                span.start);
}

/* "(dtype, d_head, B_r, B_c, n_warps)" */
static enum status parse_shape(struct span shape, const char *text, KernelConfig *config, struct failure *failure) {
    char names[WORDS_SIZE];
    struct writer known = {names, sizeof names, 0};
    const int expected = item_end(0);
    for (int i = 0; i < expected; i++) append(&known, "%s%s", i ? ", " : "", FIELDS[i].name);
    if (shape.length < 2 || shape.start[0] != '(' || shape.start[shape.length - 1] != ')')
        return fail(failure, STATUS_USAGE, "config '%s': expected '(%s):', found '%.*s'", text, names, shape.length,
                    shape.start);
    const char *const end = shape.start + shape.length - 1;
    int found = 1;
    for (const char *at = shape.start; at < end; at++) found += *at == ',';
    if (found != expected)
        return fail(failure, STATUS_USAGE, "config '%s': expected %d values in the parenthesis (%s), found %d", text,
                    expected, names, found);
    const char *start = shape.start + 1;
    for (int i = 0; i < expected; i++) {
        const char *const comma = memchr(start, ',', (size_t)(end - start)), *const stop = comma ? comma : end;
        const struct span part = trimmed(start, stop);
        const int number = span_number(part);
        if (FIELDS[i].type == TYPE_DTYPE) {
            const enum status status = parse_dtype(part, text, config, failure);
            if (status) return status;
        } else if (number < 0) {
            return fail(failure, STATUS_USAGE, "config '%s': %s = '%.*s': must be a number of at most 9 digits", text,
                        FIELDS[i].name, part.length, part.start);
        } else {
            set_value(config, i, number);
        }
        start = stop + 1;
    }
    return STATUS_OK;
}

/* How many characters of a word stand before its first number; all of them in the word of a bool. */
static int before_numbers(const char *word) {
    int length = 0;
    while (word[length] && !isupper((unsigned char)word[length])) length++;
    return length;
}

/* Whether an item has the form of the word of a field, and the values it gives to the fields that share the word. */
static bool read_item(struct span item, int field, int *values) {
    const char *at = item.start, *const end = item.start + item.length;
    const int numbers = item_end(field) - field;
    int n = 0;
    values[0] = true;
    for (const char *word = FIELDS[field].word; *word; word++) {
        if (isupper((unsigned char)*word)) {
            const char *stop = at;
            while (stop < end && isdigit((unsigned char)*stop)) stop++;
            if (numbers == 1 && at < end && *at == '0') return false; /* a field that is 0 has no item */
            if ((values[n++] = span_number((struct span){at, (int)(stop - at)})) < 0) return false;
            at = stop;
        } else if (at == end || *at++ != *word) {
            return false;
        }
    }
    return at == end;
}

/* Read one item into the config; `seen` says for each field whether its item was there. */
static enum status parse_item(struct span item, const char *text, KernelConfig *config, bool *seen,
                              struct failure *failure) {
    char words[WORDS_SIZE];
    struct writer known = {words, sizeof words, 0};
    for (int i = item_end(0); i < N_FIELDS; i = item_end(i)) {
        const char *const word = FIELDS[i].word;
        const int end = item_end(i), before = before_numbers(word);
        int values[N_FIELDS];
        append(&known, "%s%s", known.length ? ", " : "", word);
        if (read_item(item, i, values)) {
            if (seen[i])
                return fail(failure, STATUS_USAGE, "config '%s': repeated feature '%.*s'", text, item.length,
                            item.start);
            seen[i] = true;
            for (int field = i; field < end; field++) set_value(config, field, values[field - i]);
            return STATUS_OK;
        }
        if (word[before] && item.length >= before && !memcmp(item.start, word, (size_t)before))
            return fail(failure, STATUS_USAGE,
                        "config '%s': '%.*s' must have the form %s with numbers from %d to 999999999", text,
                        item.length, item.start, word, end - i == 1);
    }
    return fail(failure, STATUS_USAGE, "config '%s': unknown feature '%.*s': expected one of %s", text, item.length,
                item.start, words);
}

static enum status parse_features(struct span list, const char *text, KernelConfig *config, struct failure *failure) {
    bool seen[N_FIELDS] = {0};
    const char *const end = list.start + list.length;
    for (const char *start = list.start; start <= end;) {
        const char *plus = memchr(start, '+', (size_t)(end - start));
        if (!plus) plus = end;
        const enum status status = parse_item(trimmed(start, plus), text, config, seen, failure);
        if (status) return status;
        start = plus + 1;
    }
    for (int i = item_end(0); i < N_FIELDS; i = item_end(i))
        if (item_end(i) - i > 1 && !seen[i])
            return fail(failure, STATUS_USAGE, "config '%s': the item %s is missing", text, FIELDS[i].word);
    return STATUS_OK;
}

/* Whether an expression of a rule holds "cfg.NAME". */
static bool names_field(const char *expression, const char *name) {
    const size_t length = strlen(name);
    while ((expression = strstr(expression, "cfg."))) {
        expression += strlen("cfg.");
        if (!strncmp(expression, name, length) && !isalnum((unsigned char)expression[length]) &&
            expression[length] != '_')
            return true;
    }
    return false;
}

/* "B_r = 64: must be a multiple of 16 rows for each warp (n_warps = 8)" */
static enum status broken(const KernelConfig *config, const char *text, const char *name, const char *holds,
                          const char *sentence, struct failure *failure) {
    char value[16], others[WORDS_SIZE + N_FIELDS * 16];
    struct writer subject = {value, sizeof value, 0}, rest = {others, sizeof others, 0};
    others[0] = 0;
    for (int i = 0; i < N_FIELDS; i++) {
        if (!strcmp(FIELDS[i].name, name)) {
            append_value(&subject, config, i);
        } else if (names_field(holds, FIELDS[i].name)) {
            append(&rest, "%s%s = ", rest.length ? ", " : " (", FIELDS[i].name);
            append_value(&rest, config, i);
        }
    }
    return fail(failure, STATUS_USAGE, "config '%s': %s = %s: %s%s%s", text, name, value, sentence, others,
                rest.length ? ")" : "");
}

static enum status check(const KernelConfig *config, const char *text, struct failure *failure) {
    const KernelConfig cfg = *config;
#define RULE(name, holds, sentence)                                                                                    \
    if (!(holds)) return broken(config, text, #name, #holds, sentence, failure);
#include "common/config_fields.h"
    return STATUS_OK;
}

enum status config_parse(const char *text, KernelConfig *config, struct failure *failure) {
    const char *const end = text + strcspn(text, "|");
    const char *colon = memrchr(text, ':', (size_t)(end - text));
    const struct span shape = trimmed(text, colon ? colon : end);
    *config = (KernelConfig){.dtype = FP16};
    enum status status = parse_shape(shape, text, config, failure);
    if (status) return status;
    if (!colon)
        return fail(failure, STATUS_USAGE, "config '%s': ':' and the features are missing after '%.*s'", text,
                    shape.length, shape.start);
    status = parse_features(trimmed(colon + 1, end), text, config, failure);
    return status ? status : check(config, text, failure);
}

char *config_format(const KernelConfig *config, char *text) {
    struct writer form = {text, CONFIG_TEXT_SIZE, 0};
    for (int i = 0; i < item_end(0); i++) {
        append(&form, "%s", i ? ", " : "(");
        append_value(&form, config, i);
    }
    append(&form, "): ");
    const size_t shape_length = form.length;
    for (int i = item_end(0); i < N_FIELDS; i = item_end(i)) {
        int field = i;
        if (item_end(i) - i == 1 && !value_of(config, i)) continue;
        if (form.length > shape_length) append(&form, "+");
        for (const char *word = FIELDS[i].word; *word; word++) {
            if (isupper((unsigned char)*word))
                append_value(&form, config, field++);
            else
                append(&form, "%c", *word);
        }
    }
    return text;
}

/* Read one literal such as "Li128E", "Lb1E" or "L5dtype15E" at *at; false where there is none of this type. */
static bool symbol_value(const char **at, const char *end, enum type type, int *value) {
    static const char *const starts[] = {[TYPE_DTYPE] = "L5dtype", [TYPE_INT] = "Li", [TYPE_BOOL] = "Lb"};
    const size_t length = strlen(starts[type]);
    const char *p = *at;
    if ((size_t)(end - p) < length || memcmp(p, starts[type], length) != 0) return false;
    p += length;
    const char *const stop = memchr(p, 'E', (size_t)(end - p));
    if (!stop || (*value = span_number((struct span){p, (int)(stop - p)})) < 0) return false;
    if (type == TYPE_DTYPE && *value != FP16 && *value != BF16) return false;
    if (type == TYPE_BOOL && *value > 1) return false;
    *at = stop + 1;
    return true;
}

/* Cut `ending` off a text of *length bytes, where it is there. */
static bool cut_ending(const char *text, size_t *length, const char *ending) {
    const size_t cut = strlen(ending);
    if (*length < cut || memcmp(text + *length - cut, ending, cut) != 0) return false;
    *length -= cut;
    return true;
}

bool config_from_symbol(const char *symbol, size_t length, KernelConfig *config) {
    static const char before[] = "_Z13flash_forwardIXtl12KernelConfig";
    cut_ending(symbol, &length, "11tensor_maps"); /* the second parameter of a kernel with tensor copies */
    const bool general = cut_ending(symbol, &length, "EEEv14attention_args");
    if (!general && !cut_ending(symbol, &length, "EEEv12forward_args")) return false;
    if (length < strlen(before) || memcmp(symbol, before, strlen(before)) != 0) return false;
    const char *at = symbol + strlen(before), *const end = symbol + length;
    int value;
    *config = (KernelConfig){.dtype = FP16};
    for (int i = 0; i < N_FIELDS && (i < item_end(0) || at < end); i++) { /* a symbol may lack the later ones */
        if (!symbol_value(&at, end, FIELDS[i].type, &value)) return false;
        set_value(config, i, value);
    }
    while (at < end) /* fields added after those known here: only their zero means what we know */
        if (!(symbol_value(&at, end, TYPE_BOOL, &value) || symbol_value(&at, end, TYPE_INT, &value)) || value != 0)
            return false;
    return config->any_length == general;
}

bool config_equal(const KernelConfig *a, const KernelConfig *b) {
    for (int i = 0; i < N_FIELDS; i++)
        if (value_of(a, i) != value_of(b, i)) return false;
    return true;
}

static void add_dtype(struct json *json, const char *name, enum dtype dtype) {
    json_string(json, name, dtype_name(dtype));
}

void config_json(struct json *json, const char *name, const KernelConfig *config) {
    json_open(json, name, '{');
#define FIELD(type, name, word, mma_sync, wgmma, help)                                                                 \
    _Generic(config->name, bool: json_bool, int: json_int, default: add_dtype)(json, #name, config->name);
#include "common/config_fields.h"
    json_close(json, '}');
}
