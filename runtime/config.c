#include "runtime/config.h"

#include "common/attention_config.h"
#include "common/backward.h"
#include "common/decode_config.h"
#include "common/fp8.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum type { TYPE_DTYPE, TYPE_INSTRUCTION, TYPE_INT, TYPE_BOOL };

struct field {
    const char *name, *word, *mma_sync, *wgmma;
    enum type type;
    size_t offset;
};
#define TYPE_OF(name)                                                                                                  \
    _Generic(((KernelConfig *)0)->name,                                                                                \
        bool: TYPE_BOOL,                                                                                               \
        int: TYPE_INT,                                                                                                 \
        enum dtype: TYPE_DTYPE,                                                                                        \
        enum instruction: TYPE_INSTRUCTION)
static const struct field LADDER_FIELDS[] = {
#define FIELD(type, name, word, mma_sync, wgmma, help)                                                                 \
    {#name, word, mma_sync, wgmma, TYPE_OF(name), offsetof(KernelConfig, name)},
#include "common/config_fields.h"
};
static const struct field ATTENTION_FIELDS[] = {
#define FIELD(type, name, word, help) {#name, word, "", "", TYPE_OF(name), offsetof(KernelConfig, name)},
#include "common/attention_fields.h"
};
static const struct field DECODE_FIELDS[] = {
#define FIELD(type, name, word, help) {#name, word, "", "", TYPE_OF(name), offsetof(KernelConfig, name)},
#include "common/decode_fields.h"
};
enum { MAX_FIELDS = sizeof LADDER_FIELDS / sizeof *LADDER_FIELDS };
static const struct field BACKWARD_FIELDS[] = {
#define FIELD(type, name, word, help) {#name, word, "", "", TYPE_OF(name), offsetof(KernelConfig, name)},
#include "common/backward_fields.h"
};
static const struct field FP8_FIELDS[] = {
#define FIELD(type, name, word, help) {#name, word, "", "", TYPE_OF(name), offsetof(KernelConfig, name)},
#include "common/fp8_fields.h"
};
static_assert(sizeof FP8_FIELDS <= sizeof LADDER_FIELDS, "MAX_FIELDS are those of the longest list");
static_assert(sizeof BACKWARD_FIELDS <= sizeof LADDER_FIELDS, "MAX_FIELDS are those of the longest list");
static_assert(sizeof ATTENTION_FIELDS <= sizeof LADDER_FIELDS, "MAX_FIELDS are those of the longest list");
static_assert(sizeof DECODE_FIELDS <= sizeof LADDER_FIELDS, "MAX_FIELDS are those of the longest list");

/* The fields that a configuration is written with: those of the ladder, of an attention_config, a decode_config,
 * a backward_config or an fp8_config. */
struct list {
    const char *start; /* of a kernel's symbol */
    const struct field *fields;
    int count;
};
static const struct list LADDER = {"_Z13flash_forwardIXtl12KernelConfig", LADDER_FIELDS, MAX_FIELDS};
static const struct list ATTENTION = {"_Z13flash_forwardIXtl16attention_config", ATTENTION_FIELDS,
                                      sizeof ATTENTION_FIELDS / sizeof *ATTENTION_FIELDS};

static const struct list DECODE = {"_Z13flash_forwardIXtl13decode_config", DECODE_FIELDS,
                                   sizeof DECODE_FIELDS / sizeof *DECODE_FIELDS};

static const struct list BACKWARD = {"_Z14flash_backwardIXtl15backward_config", BACKWARD_FIELDS,
                                     sizeof BACKWARD_FIELDS / sizeof *BACKWARD_FIELDS};

static const struct list FP8 = {"_Z13flash_forwardIXtl10fp8_config", FP8_FIELDS,
                                sizeof FP8_FIELDS / sizeof *FP8_FIELDS};

static const struct list *list_of(const KernelConfig *config) {
    return !config->instruction         ? &LADDER
           : config_is_fp8(config)      ? &FP8
           : config_is_backward(config) ? &BACKWARD
           : config_shares_keys(config) ? &DECODE
                                        : &ATTENTION;
}

enum {
    WORDS_SIZE = 1 /* the words of all items, or the names of all fields */
#define FIELD(type, name, word, mma_sync, wgmma, help) +sizeof word + sizeof #name
#include "common/config_fields.h"
};

/* Of a configuration with the fields of a living kernel, the words of the ladder that follow from them. */
static void add_words(const struct list *list, KernelConfig *config) {
    const KernelConfig cfg = *config;
#define FOLLOWS(name, value) config->name = (value);
    if (list == &ATTENTION) {
#include "common/attention_fields.h"
    }
#define FOLLOWS(name, value) config->name = (value);
    if (list == &DECODE) {
#include "common/decode_fields.h"
    }
#define FOLLOWS(name, value) config->name = (value);
    if (list == &FP8) {
#include "common/fp8_fields.h"
    }
}

static const struct {
    const char *name, *number;
    enum dtype dtype;
} DTYPES[] = {{"FP16", "5", FP16}, {"BF16", "15", BF16}};

/* The word for an instruction in the short forms of a list. */
static const char *instruction_name(const struct list *list, enum instruction instruction) {
    static const char *const forward[] = {
        [MMA_SYNC] = "mma_sync", [WGMMA] = "wgmma", [FMA] = "fma", [FP8_WGMMA] = "fp8_wgmma"};
    static const char *const backward[] = {
        [MMA_SYNC] = "backward_mma_sync", [WGMMA] = "backward_wgmma", [FMA] = "backward_fma"};
    return (list == &BACKWARD ? backward : forward)[instruction];
}

const char *dtype_name(enum dtype dtype) {
    return dtype == FP16 ? "fp16" : "bf16";
}

static int value_of(const KernelConfig *config, const struct field *field) {
    const char *const place = (const char *)config + field->offset;
    switch (field->type) {
    case TYPE_DTYPE:
        return (int)*(const enum dtype *)place;
    case TYPE_INSTRUCTION:
        return (int)*(const enum instruction *)place;
    case TYPE_INT:
        return *(const int *)place;
    default:
        return *(const bool *)place;
    }
}

static void set_value(KernelConfig *config, const struct field *field, int value) {
    char *const place = (char *)config + field->offset;
    switch (field->type) {
    case TYPE_DTYPE:
        *(enum dtype *)place = (enum dtype)value;
        break;
    case TYPE_INSTRUCTION:
        *(enum instruction *)place = (enum instruction)value;
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
static int item_end(const struct list *list, int first) {
    int end = first + 1;
    while (end < list->count && !strcmp(list->fields[end].word, list->fields[first].word)) end++;
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

static void append_value(struct writer *writer, const KernelConfig *config, const struct field *field) {
    const int value = value_of(config, field);
    switch (field->type) {
    case TYPE_DTYPE:
        append(writer, "%s", value == FP16 ? "FP16" : "BF16");
        break;
    case TYPE_INSTRUCTION:
        append(writer, "%s", instruction_name(&ATTENTION, (enum instruction)value));
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
static enum status parse_shape(struct span shape, const char *text, const struct list *list, KernelConfig *config,
                               struct failure *failure) {
    char names[WORDS_SIZE];
    struct writer known = {names, sizeof names, 0};
    const int expected = item_end(list, 0);
    for (int i = 0; i < expected; i++) append(&known, "%s%s", i ? ", " : "", list->fields[i].name);
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
        if (list->fields[i].type == TYPE_DTYPE) {
            const enum status status = parse_dtype(part, text, config, failure);
            if (status) return status;
        } else if (number < 0) {
            return fail(failure, STATUS_USAGE, "config '%s': %s = '%.*s': must be a number of at most 9 digits", text,
                        list->fields[i].name, part.length, part.start);
        } else {
            set_value(config, &list->fields[i], number);
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

/* The instruction that an item names in the short forms of a list, else 0. Plain multiply-adds are those of a
 * backward_config alone, wgmma of e4m3 those of an fp8_config. */
static enum instruction read_instruction(const struct list *list, struct span item) {
    const int first = list == &FP8 ? (int)FP8_WGMMA : (int)MMA_SYNC;
    const int last = list == &FP8 ? first : list == &BACKWARD ? (int)FMA : (int)WGMMA;
    for (int one = first; one <= last; one++) {
        const char *const name = instruction_name(list, (enum instruction)one);
        if (strlen(name) == (size_t)item.length && !memcmp(name, item.start, strlen(name)))
            return (enum instruction)one;
    }
    return 0;
}

/* Whether an item has the form of the word of a field, and the values it gives to the fields that share the word. */
static bool read_item(struct span item, const struct list *list, int field, int *values) {
    const char *at = item.start, *const end = item.start + item.length;
    const int numbers = item_end(list, field) - field;
    int n = 0;
    if (list->fields[field].type == TYPE_INSTRUCTION) return (values[0] = (int)read_instruction(list, item)) != 0;
    values[0] = true;
    for (const char *word = list->fields[field].word; *word; word++) {
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
static enum status parse_item(struct span item, const char *text, const struct list *list, KernelConfig *config,
                              bool *seen, struct failure *failure) {
    char words[WORDS_SIZE];
    struct writer known = {words, sizeof words, 0};
    for (int i = item_end(list, 0); i < list->count; i = item_end(list, i)) {
        const char *const word = list->fields[i].word;
        const int end = item_end(list, i), before = before_numbers(word);
        int values[MAX_FIELDS];
        append(&known, "%s%s", known.length ? ", " : "", word);
        if (read_item(item, list, i, values)) {
            if (seen[i])
                return fail(failure, STATUS_USAGE, "config '%s': repeated feature '%.*s'", text, item.length,
                            item.start);
            seen[i] = true;
            for (int field = i; field < end; field++) set_value(config, &list->fields[field], values[field - i]);
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

/* The item at the front of what is left of a list, which is cut off; false at its end. */
static bool next_item(struct span *left, struct span *item) {
    if (left->length < 0) return false;
    const char *const end = left->start + left->length, *plus = memchr(left->start, '+', (size_t)left->length);
    if (!plus) plus = end;
    *item = trimmed(left->start, plus);
    *left = (struct span){plus + 1, (int)(end - plus) - 1};
    return true;
}

/* A living kernel's configuration names its instruction, and so does a backward_config; one of the ladder has no such
 * item. Tensor copies in words are those of a decode_config. */
static const struct list *list_of_features(struct span features) {
    bool tensor = false, any = false;
    for (struct span item; next_item(&features, &item);) {
        if (read_instruction(&BACKWARD, item)) return &BACKWARD;
        if (read_instruction(&FP8, item)) return &FP8;
        any = any || read_instruction(&ATTENTION, item);
        tensor = tensor || (item.length == 6 && !memcmp(item.start, "tensor", 6));
    }
    return !any ? &LADDER : tensor ? &DECODE : &ATTENTION;
}

static enum status parse_features(struct span features, const char *text, const struct list *list, KernelConfig *config,
                                  struct failure *failure) {
    bool seen[MAX_FIELDS] = {0};
    for (struct span item; next_item(&features, &item);) {
        const enum status status = parse_item(item, text, list, config, seen, failure);
        if (status) return status;
    }
    for (int i = item_end(list, 0); i < list->count; i = item_end(list, i))
        if (item_end(list, i) - i > 1 && !seen[i])
            return fail(failure, STATUS_USAGE, "config '%s': the item %s is missing", text, list->fields[i].word);
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
static enum status broken(const struct list *list, const KernelConfig *config, const char *text, const char *name,
                          const char *holds, const char *sentence, struct failure *failure) {
    char value[16], others[WORDS_SIZE + MAX_FIELDS * 16];
    struct writer subject = {value, sizeof value, 0}, rest = {others, sizeof others, 0};
    others[0] = 0;
    for (const struct field *field = list->fields; field < list->fields + list->count; field++) {
        if (!strcmp(field->name, name)) {
            append_value(&subject, config, field);
        } else if (names_field(holds, field->name)) {
            append(&rest, "%s%s = ", rest.length ? ", " : " (", field->name);
            append_value(&rest, config, field);
        }
    }
    return fail(failure, STATUS_USAGE, "config '%s': %s = %s: %s%s%s", text, name, value, sentence, others,
                rest.length ? ")" : "");
}

static enum status check(const struct list *list, const KernelConfig *config, const char *text,
                         struct failure *failure) {
    const KernelConfig cfg = *config;
#define RULE(name, holds, sentence)                                                                                    \
    if (!(holds)) return broken(list, config, text, #name, #holds, sentence, failure);
    if (list == &ATTENTION) {
#include "common/attention_fields.h"
        return STATUS_OK;
    }
#define RULE(name, holds, sentence)                                                                                    \
    if (!(holds)) return broken(list, config, text, #name, #holds, sentence, failure);
    if (list == &DECODE) {
#include "common/decode_fields.h"
        return STATUS_OK;
    }
#define RULE(name, holds, sentence)                                                                                    \
    if (!(holds)) return broken(list, config, text, #name, #holds, sentence, failure);
    if (list == &BACKWARD) {
#include "common/backward_fields.h"
        return STATUS_OK;
    }
#define RULE(name, holds, sentence)                                                                                    \
    if (!(holds)) return broken(list, config, text, #name, #holds, sentence, failure);
    if (list == &FP8) {
#include "common/fp8_fields.h"
        return STATUS_OK;
    }
#define RULE(name, holds, sentence)                                                                                    \
    if (!(holds)) return broken(list, config, text, #name, #holds, sentence, failure);
#include "common/config_fields.h"
    return STATUS_OK;
}

enum status config_parse(const char *text, KernelConfig *config, struct failure *failure) {
    const char *const end = text + strcspn(text, "|");
    const char *colon = memrchr(text, ':', (size_t)(end - text));
    const struct span shape = trimmed(text, colon ? colon : end);
    const struct span features = colon ? trimmed(colon + 1, end) : (struct span){end, 0};
    const struct list *const list = list_of_features(features);
    *config = (KernelConfig){.dtype = FP16};
    enum status status = parse_shape(shape, text, list, config, failure);
    if (status) return status;
    if (!colon)
        return fail(failure, STATUS_USAGE, "config '%s': ':' and the features are missing after '%.*s'", text,
                    shape.length, shape.start);
    status = parse_features(features, text, list, config, failure);
    if (status || (status = check(list, config, text, failure))) return status;
    add_words(list, config);
    return STATUS_OK;
}

char *config_format(const KernelConfig *config, char *text) {
    const struct list *const list = list_of(config);
    const int shape = item_end(list, 0);
    struct writer form = {text, CONFIG_TEXT_SIZE, 0};
    for (int i = 0; i < shape; i++) {
        append(&form, "%s", i ? ", " : "(");
        append_value(&form, config, &list->fields[i]);
    }
    append(&form, "): ");
    const size_t shape_length = form.length;
    for (int i = shape; i < list->count; i = item_end(list, i)) {
        const struct field *field = &list->fields[i];
        if (item_end(list, i) - i == 1 && !value_of(config, field)) continue;
        if (form.length > shape_length) append(&form, "+");
        if (field->type == TYPE_INSTRUCTION) {
            append(&form, "%s", instruction_name(list, (enum instruction)value_of(config, field)));
            continue;
        }
        for (const char *word = list->fields[i].word; *word; word++) {
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
    static const char *const starts[] = {
        [TYPE_DTYPE] = "L5dtype", [TYPE_INSTRUCTION] = "L11instruction", [TYPE_INT] = "Li", [TYPE_BOOL] = "Lb"};
    const size_t length = strlen(starts[type]);
    const char *p = *at;
    if ((size_t)(end - p) < length || memcmp(p, starts[type], length) != 0) return false;
    p += length;
    const char *const stop = memchr(p, 'E', (size_t)(end - p));
    if (!stop || (*value = span_number((struct span){p, (int)(stop - p)})) < 0) return false;
    if (type == TYPE_DTYPE && *value != FP16 && *value != BF16) return false;
    if (type == TYPE_INSTRUCTION && (*value < MMA_SYNC || *value > (int)FP8_WGMMA)) return false;
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

static bool starts_with(const char *symbol, size_t length, const char *start) {
    return length >= strlen(start) && !memcmp(symbol, start, strlen(start));
}

/* The values of a list's fields, and behind them zeros: only their zero means what we know. */
static bool symbol_values(const char *at, const char *end, const struct list *list, KernelConfig *config) {
    int value;
    for (int i = 0; i < list->count && (i < item_end(list, 0) || at < end); i++) { /* the later ones may be missing */
        if (!symbol_value(&at, end, list->fields[i].type, &value)) return false;
        set_value(config, &list->fields[i], value);
    }
    while (at < end)
        if (!(symbol_value(&at, end, TYPE_BOOL, &value) || symbol_value(&at, end, TYPE_INT, &value)) || value != 0)
            return false;
    return true;
}

/* `function` is the start of the symbol that stands in place of "_Z14flash_backward". */
static bool backward_from_symbol(const char *symbol, size_t length, const char *function, KernelConfig *config) {
    const char *const values = strstr(BACKWARD.start, "IXtl");
    const bool serves = cut_ending(symbol, &length, "EEEv21backward_serving_args");
    if (!serves && !cut_ending(symbol, &length, "EEEv13backward_args")) return false;
    if (!starts_with(symbol, length, function)) return false;
    symbol += strlen(function), length -= strlen(function);
    if (!starts_with(symbol, length, values)) return false;
    *config = (KernelConfig){.dtype = FP16};
    return symbol_values(symbol + strlen(values), symbol + length, &BACKWARD, config) && config->instruction &&
           config->serves == serves;
}

enum kernel_part config_part_from_symbol(const char *symbol, size_t length, KernelConfig *config) {
    static const struct {
        const char *function;
        enum kernel_part part;
    } small[] = {{"_Z8row_sums", PART_BEFORE}, {"_Z8round_dQ", PART_BEHIND}};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        if (backward_from_symbol(symbol, length, small[i].function, config)) return small[i].part;
    return config_from_symbol(symbol, length, config) ? PART_MAIN : PART_NONE;
}

static bool fp8_from_symbol(const char *symbol, size_t length, KernelConfig *config) {
    const bool serves = cut_ending(symbol, &length, "EEEv12serving_args");
    if (!serves && !cut_ending(symbol, &length, "EEEv8fp8_args")) return false;
    if (!starts_with(symbol, length, FP8.start)) return false;
    *config = (KernelConfig){.dtype = FP16};
    if (!symbol_values(symbol + strlen(FP8.start), symbol + length, &FP8, config)) return false;
    add_words(&FP8, config);
    return config_is_fp8(config) && config->serves == serves;
}

bool config_from_symbol(const char *symbol, size_t length, KernelConfig *config) {
    const bool maps = cut_ending(symbol, &length, "11tensor_maps"); /* the parameter behind the first */
    if (backward_from_symbol(symbol, length, "_Z14flash_backward", config)) return config->tensor_copies == maps;
    if (maps && fp8_from_symbol(symbol, length, config)) return true;
    const bool serves = cut_ending(symbol, &length, "EEEv12serving_args");
    const bool general = serves || cut_ending(symbol, &length, "EEEv14attention_args");
    if (!general && !cut_ending(symbol, &length, "EEEv12forward_args")) return false;
    const struct list *const list = starts_with(symbol, length, ATTENTION.start) ? &ATTENTION
                                    : starts_with(symbol, length, DECODE.start)  ? &DECODE
                                                                                 : &LADDER;
    if (!starts_with(symbol, length, list->start)) return false;
    *config = (KernelConfig){.dtype = FP16};
    if (!symbol_values(symbol + strlen(list->start), symbol + length, list, config)) return false;
    if (config->instruction > WGMMA) return false;
    add_words(list, config);
    if (list != list_of(config)) return false;
    return config->any_length == general && config->serves == serves;
}

bool config_shares_keys(const KernelConfig *config) {
    return config->instruction && config->packed_heads && config->tensor_copies;
}

bool config_is_backward(const KernelConfig *config) {
    return config->instruction && !config->any_length && !config_is_fp8(config);
}

bool config_is_fp8(const KernelConfig *config) {
    return config->instruction == FP8_WGMMA;
}

bool config_has_pages(const KernelConfig *config) {
    return list_of(config) == &ATTENTION && config->paged_kv;
}

bool config_packs(const KernelConfig *config) {
    return list_of(config) == &ATTENTION && config->packs;
}

bool config_has_e4m3_cache(const KernelConfig *config) {
    return config_shares_keys(config) && config->e4m3_cache;
}

bool config_has_ragged_queries(const KernelConfig *config) {
    return config_shares_keys(config) && config->ragged_queries;
}

bool config_equal(const KernelConfig *a, const KernelConfig *b) {
    for (int i = 0; i < LADDER.count; i++)
        if (value_of(a, &LADDER_FIELDS[i]) != value_of(b, &LADDER_FIELDS[i])) return false;
    return a->instruction == b->instruction && a->serves == b->serves && a->cap == b->cap;
}

void config_json(struct json *json, const char *name, const KernelConfig *config) {
    const struct list *const list = list_of(config);
    json_open(json, name, '{');
    for (const struct field *field = list->fields; field < list->fields + list->count; field++) {
        const int value = value_of(config, field);
        if (field->type == TYPE_DTYPE)
            json_string(json, field->name, dtype_name((enum dtype)value));
        else if (field->type == TYPE_INSTRUCTION)
            json_string(json, field->name, instruction_name(&ATTENTION, (enum instruction)value));
        else if (field->type == TYPE_BOOL)
            json_bool(json, field->name, value);
        else
            json_int(json, field->name, value);
    }
    json_close(json, '}');
}
