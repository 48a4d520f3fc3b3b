#include "runtime/config.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- what follows from common/families.h ---- */

#define TYPE_OF(type, name)                                                                                            \
    _Generic(((type *)0)->name,                                                                                        \
        bool: TYPE_BOOL,                                                                                               \
        int: TYPE_INT,                                                                                                 \
        enum dtype: TYPE_DTYPE,                                                                                        \
        enum instruction: TYPE_INSTRUCTION)

/* clang-format off */
#define FAMILY(id, name, type, ...)                                                                                    \
    static_assert(offsetof(type, n_warps) == offsetof(KernelConfig, n_warps), "families begin with the same fields");  \
    static const struct field *name##_fields(int *count) {                                                             \
        typedef type fields_of;                                                                                        \
        static const struct field fields[] = {
#define FIELD(type, name, word, ...)                                                                                   \
            {#name, word, TYPE_OF(fields_of, name), offsetof(fields_of, name), {__VA_ARGS__}},
#define END_FAMILY                                                                                                     \
        };                                                                                                             \
        *count = sizeof fields / sizeof *fields;                                                                       \
        return fields;                                                                                                 \
    }
#include "common/families.h"

#define FAMILY(id, name, type, ...)                                                                                    \
    static const struct rule *name##_broken(const struct kernel_config *config) {                                      \
        const type cfg = config->name;
#define RULE(name, holds, sentence)                                                                                    \
        if (!(holds)) {                                                                                                \
            static const struct rule rule = {#name, #holds, sentence};                                                 \
            return &rule;                                                                                              \
        }
#define END_FAMILY                                                                                                     \
        return NULL;                                                                                                   \
    }
#include "common/families.h"

#define FAMILY(id, name, type, prefix, ...)                                                                            \
    static launch_shape name##_launch(const struct kernel_config *config, const attention_args *args,                  \
                                      int64_t multiprocessors) {                                                       \
        return prefix##_launch_shape(&config->name, args, multiprocessors);                                            \
    }                                                                                                                  \
    static unsigned name##_features(const struct kernel_config *config) {                                              \
        const type cfg = config->name;                                                                                 \
        (void)cfg;                                                                                                     \
        return 0
#define HAS(feature, holds) | ((holds) ? 1u << feature : 0)
#define END_FAMILY ; }
#include "common/families.h"

const struct family FAMILIES[N_FAMILIES] = {
#define FAMILY(id, name, type, prefix, mark, function, args, serving_args)                                             \
    [FAMILY_##id] = {#name, #type, mark, #function, name##_fields, name##_broken, name##_features, name##_launch,      \
                     {#args, sizeof(args)}, {#serving_args, sizeof(serving_args)}},
#include "common/families.h"
};

union fields { /* as many bytes as the longest list has fields */
#define FAMILY(id, name, ...) char name[0
#define FIELD(type, name, word, ...) +1
#define END_FAMILY ];
#include "common/families.h"
};
union words { /* as many as the words of all items take, or the names of all fields */
#define FAMILY(id, name, ...) char name[1
#define FIELD(type, name, word, ...) +sizeof word + sizeof #name
#define END_FAMILY ];
#include "common/families.h"
};
enum { MAX_FIELDS = sizeof(union fields), WORDS_SIZE = sizeof(union words) };
/* clang-format on */

/* A family with its fields at hand. */
struct list {
    enum family_id id;
    const struct family *family;
    const struct field *fields;
    int count; /* of those that a short form has; those after them are always 0 */
    int all;
};

static struct list list_of(enum family_id id) {
    struct list list = {.id = id, .family = &FAMILIES[id]};
    list.fields = list.family->fields(&list.all);
    while (list.count < list.all && *list.fields[list.count].word) list.count++;
    return list;
}

bool config_has(const struct kernel_config *config, enum feature feature) {
    return FAMILIES[config->family].features(config) >> feature & 1;
}

const struct parameter *config_args(const struct kernel_config *config) {
    static const struct parameter strided = {"backward_strided_args", sizeof(backward_strided_args)};
    static const struct parameter extended = {"extended_args", sizeof(extended_args)};
    const struct family *const family = &FAMILIES[config->family];
    return config_has(config, OWN_STRIDES) ? &strided
           : config_has(config, EXTENDED)  ? &extended
           : config_has(config, SERVES)    ? &family->serving_args
                                           : &family->args;
}

/* ---- values ---- */

static const struct {
    const char *name, *number;
    enum dtype dtype;
} DTYPES[] = {{"FP16", "5", FP16}, {"BF16", "15", BF16}};

const char *dtype_name(enum dtype dtype) {
    return dtype == FP16 ? "fp16" : "bf16";
}

/* "mma_sync", NULL for a number that is no instruction. */
static const char *instruction_name(int instruction) {
    static const char *const names[] = {[MMA_SYNC] = "mma_sync",
                                        [WGMMA] = "wgmma",
                                        [FMA] = "fma",
                                        [FP8_WGMMA] = "fp8_wgmma",
                                        [FP8_MMA_SYNC] = "fp8_mma_sync"};
    return instruction >= 0 && (size_t)instruction < sizeof names / sizeof *names ? names[instruction] : NULL;
}

/* Address of a field: every family's struct begins at the start of the union. */
static const char *field_of(const struct kernel_config *config, const struct field *field) {
    return (const char *)&config->dtype + field->offset;
}

int config_value(const struct kernel_config *config, const struct field *field) {
    const char *const at = field_of(config, field);
    switch (field->type) {
    case TYPE_DTYPE:
        return (int)*(const enum dtype *)at;
    case TYPE_INSTRUCTION:
        return (int)*(const enum instruction *)at;
    case TYPE_INT:
        return *(const int *)at;
    default:
        return *(const bool *)at;
    }
}

void config_set(struct kernel_config *config, const struct field *field, int value) {
    char *const at = (char *)config + (field_of(config, field) - (const char *)config);
    switch (field->type) {
    case TYPE_DTYPE:
        *(enum dtype *)at = (enum dtype)value;
        break;
    case TYPE_INSTRUCTION:
        *(enum instruction *)at = (enum instruction)value;
        break;
    case TYPE_INT:
        *(int *)at = value;
        break;
    default:
        *(bool *)at = value;
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

static void append_value(struct writer *writer, const struct kernel_config *config, const struct field *field) {
    const int value = config_value(config, field);
    switch (field->type) {
    case TYPE_DTYPE:
        append(writer, "%s", value == FP16 ? "FP16" : "BF16");
        break;
    case TYPE_INSTRUCTION:
        append(writer, "%s", instruction_name(value));
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

static enum status parse_dtype(struct span span, const char *text, struct kernel_config *config,
                               struct failure *failure) {
    for (size_t i = 0; i < sizeof DTYPES / sizeof *DTYPES; i++)
        if (span_is(span, DTYPES[i].name) || span_is(span, DTYPES[i].number)) {
            config->dtype = DTYPES[i].dtype;
            return STATUS_OK;
        }
    return fail(failure, STATUS_USAGE, "config '%s': unknown dtype '%.*s'; write FP16 or BF16", text, span.length,
                span.start);
}

/* "(dtype, d_head, B_r, B_c, n_warps)" */
static enum status parse_shape(struct span shape, const char *text, const struct list *list,
                               struct kernel_config *config, struct failure *failure) {
    char names[WORDS_SIZE];
    struct writer known = {names, sizeof names, 0};
    const int expected = item_end(list, 0);
    for (int i = 0; i < expected; i++) append(&known, "%s%s", i ? ", " : "", list->fields[i].name);
    if (shape.length < 2 || shape.start[0] != '(' || shape.start[shape.length - 1] != ')')
        return fail(failure, STATUS_USAGE, "config '%s': must begin with '(%s):', not '%.*s'", text, names,
                    shape.length, shape.start);
    const char *const end = shape.start + shape.length - 1;
    int found = 1;
    for (const char *at = shape.start; at < end; at++) found += *at == ',';
    if (found != expected)
        return fail(failure, STATUS_USAGE, "config '%s': must have %d values in parentheses (%s), not %d", text,
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
            config_set(config, &list->fields[i], number);
        }
        start = stop + 1;
    }
    return STATUS_OK;
}

/* Number of characters of a flag before its first number; the full length for a bool. */
static int before_numbers(const char *word) {
    int length = 0;
    while (word[length] && !isupper((unsigned char)word[length])) length++;
    return length;
}

/* Length of the next name of "mma_sync|wgmma". */
static size_t alternative(const char *words) {
    return strcspn(words, "|");
}

/* The instruction whose name ends a word, the longest name: WGMMA of "backward_wgmma". 0 where there is none. */
static int instruction_of(const char *word, size_t length) {
    int found = 0;
    for (int one = 1; instruction_name(one); one++) {
        const char *const name = instruction_name(one);
        const size_t n = strlen(name);
        const bool ends = n <= length && !memcmp(word + length - n, name, n);
        if (ends && (!found || n > strlen(instruction_name(found)))) found = one;
    }
    return found;
}

/* The instruction that an item names, of the words of a field; 0 for another item. */
static int read_instruction(const char *words, struct span item) {
    for (size_t n; (n = alternative(words)); words += n + (words[n] == '|'))
        if (n == (size_t)item.length && !memcmp(words, item.start, n)) return instruction_of(words, n);
    return 0;
}

/* Append the word of an instruction, of those of its field. */
static void append_instruction(struct writer *writer, const char *words, int instruction) {
    for (size_t n; (n = alternative(words)); words += n + (words[n] == '|'))
        if (instruction_of(words, n) == instruction) append(writer, "%.*s", (int)n, words);
}

/* True if an item has the form of the word of a field, and the values it gives to the fields that share the word. */
static bool read_item(struct span item, const struct list *list, int field, int *values) {
    const char *at = item.start, *const end = item.start + item.length;
    const int numbers = item_end(list, field) - field;
    int n = 0;
    if (list->fields[field].type == TYPE_INSTRUCTION)
        return (values[0] = read_instruction(list->fields[field].word, item)) != 0;
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

/* The field of a family whose item has this form; -1 for none. */
static int item_field(struct span item, const struct list *list) {
    int values[MAX_FIELDS];
    for (int i = item_end(list, 0); i < list->count; i = item_end(list, i))
        if (read_item(item, list, i, values)) return i;
    return -1;
}

/* "config '...': 'pages' is a flag of attention, not of decode; write one of ..." */
static enum status fail_item(struct span item, const char *text, const struct list *list, const char *words,
                             struct failure *failure) {
    char names[N_FAMILIES * 20] = "";
    struct writer owners = {names, sizeof names, 0};
    for (int id = 0; id < N_FAMILIES; id++) {
        const struct list other = list_of(id);
        if (item_field(item, &other) >= 0) append(&owners, "%s%s", owners.length ? ", " : "", other.family->name);
    }
    if (owners.length)
        return fail(failure, STATUS_USAGE, "config '%s': '%.*s' is a flag of %s, not of %s; write one of %s", text,
                    item.length, item.start, names, list->family->name, words);
    return fail(failure, STATUS_USAGE, "config '%s': unknown flag '%.*s'; write one of %s", text, item.length,
                item.start, words);
}

/* Read one item into the config; `seen` says for each field whether its item was there. */
static enum status parse_item(struct span item, const char *text, const struct list *list, struct kernel_config *config,
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
                return fail(failure, STATUS_USAGE, "config '%s': repeated flag '%.*s'", text, item.length, item.start);
            seen[i] = true;
            for (int field = i; field < end; field++) config_set(config, &list->fields[field], values[field - i]);
            return STATUS_OK;
        }
        if (word[before] && item.length >= before && !memcmp(item.start, word, (size_t)before))
            return fail(failure, STATUS_USAGE,
                        "config '%s': '%.*s' must have the form %s with numbers from %d to 999999999", text,
                        item.length, item.start, word, end - i == 1);
    }
    return fail_item(item, text, list, words, failure);
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

/* True if an item is one of "tensor|cp_async". */
static bool span_is_one_of(struct span item, const char *words) {
    for (size_t n; (n = alternative(words)); words += n + (words[n] == '|'))
        if (n == (size_t)item.length && !memcmp(words, item.start, n)) return true;
    return false;
}

/* The family that the features name by an instruction, and its mark where another one has the same; else the ladder. */
static enum family_id family_of_features(struct span features) {
    int found = FAMILY_LADDER;
    for (int id = 0; id < N_FAMILIES; id++) {
        const struct list list = list_of(id);
        bool instruction = false, marked = !*list.family->mark;
        struct span left = features;
        for (struct span item; next_item(&left, &item);) {
            const int field = item_field(item, &list);
            instruction = instruction || (field >= 0 && list.fields[field].type == TYPE_INSTRUCTION);
            marked = marked || span_is_one_of(item, list.family->mark);
        }
        if (instruction && marked && (found == FAMILY_LADDER || *list.family->mark)) found = id;
    }
    return (enum family_id)found;
}

static enum status parse_features(struct span features, const char *text, const struct list *list,
                                  struct kernel_config *config, struct failure *failure) {
    bool seen[MAX_FIELDS] = {0};
    for (struct span item; next_item(&features, &item);) {
        const enum status status = parse_item(item, text, list, config, seen, failure);
        if (status) return status;
    }
    for (int i = item_end(list, 0); i < list->count; i = item_end(list, i))
        if (item_end(list, i) - i > 1 && !seen[i])
            return fail(failure, STATUS_USAGE, "config '%s': the flag %s is missing", text, list->fields[i].word);
    return STATUS_OK;
}

/* True if an expression of a rule holds "cfg.NAME". */
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
static enum status broken(const struct list *list, const struct kernel_config *config, const char *text,
                          const struct rule *rule, struct failure *failure) {
    char value[16], others[WORDS_SIZE + MAX_FIELDS * 16];
    struct writer subject = {value, sizeof value, 0}, rest = {others, sizeof others, 0};
    others[0] = 0;
    for (const struct field *field = list->fields; field < list->fields + list->count; field++) {
        if (!strcmp(field->name, rule->field)) {
            append_value(&subject, config, field);
        } else if (names_field(rule->holds, field->name)) {
            append(&rest, "%s%s = ", rest.length ? ", " : " (", field->name);
            append_value(&rest, config, field);
        }
    }
    return fail(failure, STATUS_USAGE, "%s%s%s%s = %s: %s%s%s", text ? "config '" : "", text ? text : "",
                text ? "': " : "", rule->field, value, rule->sentence, others, rest.length ? ")" : "");
}

enum status config_check(const struct kernel_config *config, const char *text, struct failure *failure) {
    const struct list list = list_of(config->family);
    const struct rule *const rule = list.family->broken(config);
    return rule ? broken(&list, config, text, rule, failure) : STATUS_OK;
}

enum status config_parse(const char *text, struct kernel_config *config, struct failure *failure) {
    const char *const end = text + strcspn(text, "|");
    const char *colon = memrchr(text, ':', (size_t)(end - text));
    const struct span shape = trimmed(text, colon ? colon : end);
    const struct span features = colon ? trimmed(colon + 1, end) : (struct span){end, 0};
    const struct list list = list_of(family_of_features(features));
    *config = (struct kernel_config){.family = list.id};
    enum status status = parse_shape(shape, text, &list, config, failure);
    if (status) return status;
    if (!colon)
        return fail(failure, STATUS_USAGE, "config '%s': ':' and the flags are missing after '%.*s'", text,
                    shape.length, shape.start);
    status = parse_features(features, text, &list, config, failure);
    return status ? status : config_check(config, text, failure);
}

char *config_format(const struct kernel_config *config, char *text) {
    const struct list own = list_of(config->family), *const list = &own;
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
        if (item_end(list, i) - i == 1 && !config_value(config, field)) continue;
        if (form.length > shape_length) append(&form, "+");
        if (field->type == TYPE_INSTRUCTION) {
            append_instruction(&form, field->word, config_value(config, field));
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

static const char *const LITERALS[] = {
    [TYPE_DTYPE] = "L5dtype", [TYPE_INSTRUCTION] = "L11instruction", [TYPE_INT] = "Li", [TYPE_BOOL] = "Lb"};

/* Read one literal such as "Li128E", "Lb1E" or "L5dtype15E" at *at; false where there is none of this type. */
static bool symbol_value(const char **at, const char *end, enum field_type type, int *value) {
    const size_t length = strlen(LITERALS[type]);
    const char *p = *at;
    if ((size_t)(end - p) < length || memcmp(p, LITERALS[type], length) != 0) return false;
    p += length;
    const char *const stop = memchr(p, 'E', (size_t)(end - p));
    if (!stop || (*value = span_number((struct span){p, (int)(stop - p)})) < 0) return false;
    if (type == TYPE_DTYPE && *value != FP16 && *value != BF16) return false;
    if (type == TYPE_INSTRUCTION && !instruction_name(*value)) return false;
    if (type == TYPE_BOOL && *value > 1) return false;
    *at = stop + 1;
    return true;
}

static bool starts_with(const char *symbol, size_t length, const char *start) {
    return length >= strlen(start) && !memcmp(symbol, start, strlen(start));
}

/* "_Z13flash_forwardIXtl12KernelConfig" */
static void append_start(struct writer *writer, const struct family *family, const char *function) {
    append(writer, "_Z%zu%sIXtl%zu%s", strlen(function), function, strlen(family->type), family->type);
}

/* "EEEv12forward_args", followed in a main kernel by "11tensor_maps". */
static void append_parameters(struct writer *writer, const struct kernel_config *config, bool main) {
    const char *const args = config_args(config)->type;
    append(writer, "EEEv%zu%s%s", strlen(args), args, main && config_has(config, TENSOR_COPIES) ? "11tensor_maps" : "");
}

char *config_symbol(const struct kernel_config *config, char *symbol) {
    const struct list list = list_of(config->family);
    struct writer writer = {symbol, CONFIG_SYMBOL_SIZE, 0};
    append_start(&writer, list.family, list.family->function);
    for (int i = 0; i < list.all; i++)
        append(&writer, "%s%dE", LITERALS[list.fields[i].type], config_value(config, &list.fields[i]));
    append_parameters(&writer, config, true);
    return symbol;
}

/* Read the values of a family's fields at *at and the zeros after them; we understand no other value there. */
static bool symbol_values(const char **at, const char *end, const struct list *list, struct kernel_config *config) {
    int value;
    for (int i = 0; i < list->count && (i < item_end(list, 0) || (*at < end && **at == 'L')); i++) {
        if (!symbol_value(at, end, list->fields[i].type, &value)) return false;
        config_set(config, &list->fields[i], value);
    }
    while (*at < end && **at == 'L')
        if (!(symbol_value(at, end, TYPE_BOOL, &value) || symbol_value(at, end, TYPE_INT, &value)) || value != 0)
            return false;
    return true;
}

/* True if a family that names instructions has one of its own. */
static bool has_instruction(const struct list *list, const struct kernel_config *config) {
    for (int i = 0; i < list->count; i++) {
        char word[WORDS_SIZE] = "";
        struct writer writer = {word, sizeof word, 0};
        if (list->fields[i].type != TYPE_INSTRUCTION) continue;
        append_instruction(&writer, list->fields[i].word, config_value(config, &list->fields[i]));
        return *word != 0;
    }
    return true;
}

/* Launch shape of a family's kernel `function`; only the main one has tensor maps. */
static bool read_symbol(const char *symbol, size_t length, const struct list *list, const char *function, bool main,
                        struct kernel_config *config) {
    char start[100], parameters[100];
    struct writer starts = {start, sizeof start, 0}, ends = {parameters, sizeof parameters, 0};
    append_start(&starts, list->family, function);
    if (!starts_with(symbol, length, start)) return false;
    *config = (struct kernel_config){.family = list->id, .dtype = FP16};
    const char *at = symbol + strlen(start), *const end = symbol + length;
    if (!symbol_values(&at, end, list, config) || !has_instruction(list, config)) return false;
    append_parameters(&ends, config, main);
    return strlen(parameters) == (size_t)(end - at) && !memcmp(at, parameters, strlen(parameters));
}

bool config_from_symbol(const char *symbol, size_t length, struct kernel_config *config) {
    for (int id = 0; id < N_FAMILIES; id++) {
        const struct list list = list_of(id);
        if (read_symbol(symbol, length, &list, list.family->function, true, config)) return true;
    }
    return false;
}

enum kernel_part config_part_from_symbol(const char *symbol, size_t length, struct kernel_config *config) {
    const struct list list = list_of(FAMILY_BACKWARD);
    if (read_symbol(symbol, length, &list, "row_sums", false, config)) return PART_BEFORE;
    if (read_symbol(symbol, length, &list, "round_dQ", false, config)) return PART_AFTER;
    return config_from_symbol(symbol, length, config) ? PART_MAIN : PART_NONE;
}

bool config_equal(const struct kernel_config *a, const struct kernel_config *b) {
    const struct list list = list_of(a->family);
    for (int i = 0; i < list.count && a->family == b->family; i++)
        if (config_value(a, &list.fields[i]) != config_value(b, &list.fields[i])) return false;
    return a->family == b->family;
}

void config_json(struct json *json, const char *name, const struct kernel_config *config) {
    const struct list own = list_of(config->family), *const list = &own;
    json_open(json, name, '{');
    for (const struct field *field = list->fields; field < list->fields + list->count; field++) {
        const int value = config_value(config, field);
        if (field->type == TYPE_DTYPE)
            json_string(json, field->name, dtype_name((enum dtype)value));
        else if (field->type == TYPE_INSTRUCTION)
            json_string(json, field->name, instruction_name(value));
        else if (field->type == TYPE_BOOL)
            json_bool(json, field->name, value);
        else
            json_int(json, field->name, value);
    }
    json_close(json, '}');
}
