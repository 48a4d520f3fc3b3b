#include "harness/config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    size_t offset;
    bool after_load; /* stands behind load_Q_K_V_tiles */
} FEATURES[] = {
    {"async", offsetof(KernelConfig, async_copy), false},
    {"eager", offsetof(KernelConfig, eager_load_blocks), false},
    {"swizzled", offsetof(KernelConfig, swizzled), false},
    {"buffer", offsetof(KernelConfig, mma_double_buffer_loads), true},
    {"opt_softmax", offsetof(KernelConfig, optimized_softmax), true},
    {"lazy", offsetof(KernelConfig, lazy_rescale), true},
    {"padded", offsetof(KernelConfig, padded_rows), true},
    {"split_tail", offsetof(KernelConfig, split_tail), true},
    {"persistent", offsetof(KernelConfig, persistent), true},
};
enum { N_FEATURES = sizeof FEATURES / sizeof *FEATURES, FIRST_AFTER_COUNTS = 6 };

/* Items with a number, "stages_4"; they stand between "lazy" and "padded", and zero is not printed. */
static const struct {
    const char *name;
    size_t offset;
} COUNTS[] = {{"stages", offsetof(KernelConfig, stages)}, {"slack", offsetof(KernelConfig, slack)}};
enum { N_COUNTS = sizeof COUNTS / sizeof *COUNTS };

static const struct {
    const char *name;
    enum dtype dtype;
} DTYPES[] = {{"fp16", FP16}, {"bf16", BF16}};

static bool *feature_of(KernelConfig *config, int i) {
    return (bool *)((char *)config + FEATURES[i].offset);
}

static int *count_of(KernelConfig *config, int i) {
    return (int *)((char *)config + COUNTS[i].offset);
}

const char *dtype_name(enum dtype dtype) {
    return dtype == FP16 ? "fp16" : "bf16";
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

static enum status parse_dtype(struct span span, const char *text, enum dtype *dtype, struct failure *failure) {
    for (size_t i = 0; i < sizeof DTYPES / sizeof *DTYPES; i++)
        if (span_is(span, DTYPES[i].name) || span_number(span) == (int)DTYPES[i].dtype) {
            *dtype = DTYPES[i].dtype;
            return STATUS_OK;
        }
    return fail(failure, STATUS_USAGE, "config '%s': unknown dtype '%.*s'; FP16 (5) and BF16 (15) exist", text,
                span.length, span.start);
}

/* "(dtype, d_head, B_r, B_c, n_warps)" */
static enum status parse_shape(struct span shape, const char *text, KernelConfig *config, struct failure *failure) {
    if (shape.length < 2 || shape.start[0] != '(' || shape.start[shape.length - 1] != ')')
        return fail(failure, STATUS_USAGE, "config '%s': expected '(dtype, d_head, B_r, B_c, n_warps):', found '%.*s'",
                    text, shape.length, shape.start);
    int *const numbers[] = {&config->d_head, &config->B_r, &config->B_c, &config->n_warps};
    const char *const end = shape.start + shape.length - 1;
    int parts = 0;
    for (const char *start = shape.start + 1; start <= end; parts++) {
        const char *comma = memchr(start, ',', (size_t)(end - start));
        if (!comma) comma = end;
        const struct span part = trimmed(start, comma);
        if (parts == 0) {
            const enum status status = parse_dtype(part, text, &config->dtype, failure);
            if (status) return status;
        } else if (parts <= 4 && (*numbers[parts - 1] = span_number(part)) < 0) {
            return fail(failure, STATUS_USAGE, "config '%s': '%.*s' is not a number", text, part.length, part.start);
        }
        start = comma + 1;
    }
    if (parts != 5)
        return fail(failure, STATUS_USAGE,
                    "config '%s': expected 4 numbers after the dtype (d_head, B_r, B_c, n_warps), found %d", text,
                    parts - 1);
    return STATUS_OK;
}

/* "load_Q_K_V_tiles"; false where the item is not of that form. */
static bool parse_load(struct span item, KernelConfig *config) {
    static const char before[] = "load_", after[] = "_tiles";
    int *const tiles[] = {&config->Q_mma_load_K_tiles, &config->K_mma_load_K_tiles, &config->V_mma_load_K_tiles};
    const char *at = item.start + strlen(before);
    const char *const end = item.start + item.length - strlen(after);
    if (end <= at || strncmp(item.start, before, strlen(before)) != 0 || strncmp(end, after, strlen(after)) != 0)
        return false;
    for (int i = 0; i < 3; i++) {
        const char *stop = at;
        while (stop < end && *stop != '_') stop++;
        if ((i == 2) != (stop == end)) return false;
        if ((*tiles[i] = span_number((struct span){at, (int)(stop - at)})) < 0) return false;
        at = stop + 1;
    }
    return true;
}

/* "stages_4" or "slack_1": the place of its number in the config and the number; NULL where the item is neither. */
static int *parse_count(struct span item, KernelConfig *config, int *value) {
    for (int i = 0; i < N_COUNTS; i++) {
        const int length = (int)strlen(COUNTS[i].name);
        if (item.length <= length + 1 || memcmp(item.start, COUNTS[i].name, (size_t)length) != 0 ||
            item.start[length] != '_' || item.start[length + 1] == '0')
            continue;
        *value = span_number((struct span){item.start + length + 1, item.length - length - 1});
        if (*value > 0) return count_of(config, i);
    }
    return NULL;
}

static enum status parse_features(struct span list, const char *text, KernelConfig *config, struct failure *failure) {
    bool seen_load = false;
    const char *const end = list.start + list.length;
    for (const char *start = list.start; start <= end;) {
        const char *plus = memchr(start, '+', (size_t)(end - start));
        if (!plus) plus = end;
        const struct span item = trimmed(start, plus);
        start = plus + 1;
        bool *flag = NULL;
        for (int i = 0; i < N_FEATURES; i++)
            if (strlen(FEATURES[i].name) == (size_t)item.length && !memcmp(item.start, FEATURES[i].name, item.length))
                flag = feature_of(config, i);
        if (!flag && item.length > 4 && !strncmp(item.start, "load", 4)) {
            if (!parse_load(item, config))
                return fail(failure, STATUS_USAGE, "config '%s': '%.*s' is not of the form load_Q_K_V_tiles", text,
                            item.length, item.start);
            flag = &seen_load;
        }
        int value = 0, *const count = parse_count(item, config, &value);
        if (!flag && !count)
            return fail(failure, STATUS_USAGE,
                        "config '%s': unknown feature '%.*s'; known are async, eager, swizzled, load_Q_K_V_tiles, "
                        "buffer, opt_softmax, lazy, stages_N, slack_N, padded, split_tail, persistent",
                        text, item.length, item.start);
        if (count ? *count : *flag)
            return fail(failure, STATUS_USAGE, "config '%s': repeated feature '%.*s'", text, item.length, item.start);
        if (count)
            *count = value;
        else
            *flag = true;
    }
    if (!seen_load) return fail(failure, STATUS_USAGE, "config '%s': load_Q_K_V_tiles is missing", text);
    return STATUS_OK;
}

enum status config_check(const KernelConfig *config, const char *text, struct failure *failure) {
    const struct {
        const char *name;
        int value;
    } positive[] = {
        {"d_head", config->d_head}, {"B_r", config->B_r}, {"B_c", config->B_c}, {"n_warps", config->n_warps}};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i].value <= 0 || positive[i].value > 65536)
            return fail(failure, STATUS_USAGE, "config '%s': %s = %d: must be positive and at most 65536", text,
                        positive[i].name, positive[i].value);
    if (config->d_head % 64)
        return fail(failure, STATUS_USAGE, "config '%s': d_head = %d: must be a multiple of 64", text, config->d_head);
    if (config->B_c % 16)
        return fail(failure, STATUS_USAGE, "config '%s': B_c = %d: must be a multiple of 16, the depth of one mma",
                    text, config->B_c);
    if (config->B_r % (16 * config->n_warps))
        return fail(
            failure, STATUS_USAGE,
            "config '%s': B_r = %d: must be a multiple of 16 rows for each of n_warps = %d warps, that is of %d", text,
            config->B_r, config->n_warps, 16 * config->n_warps);
    const int per_step = config->mma_double_buffer_loads ? 16 : 8;
    const struct {
        const char *name, *depth_name;
        int tiles, depth;
    } loads[] = {{"Q_mma_load_K_tiles", "d_head", config->Q_mma_load_K_tiles, config->d_head},
                 {"K_mma_load_K_tiles", "d_head", config->K_mma_load_K_tiles, config->d_head},
                 {"V_mma_load_K_tiles", "B_c", config->V_mma_load_K_tiles, config->B_c}};
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        if (loads[i].tiles == 1 || (loads[i].tiles & (loads[i].tiles - 1)))
            return fail(failure, STATUS_USAGE, "config '%s': %s = %d: must be 0 or a power of two from 2 on", text,
                        loads[i].name, loads[i].tiles);
        if (loads[i].tiles > loads[i].depth / per_step)
            return fail(failure, STATUS_USAGE, "config '%s': %s = %d: must be at most %s / %d = %d", text,
                        loads[i].name, loads[i].tiles, loads[i].depth_name, per_step, loads[i].depth / per_step);
    }
    if (config->Q_mma_load_K_tiles && config->Q_mma_load_K_tiles != config->K_mma_load_K_tiles)
        return fail(failure, STATUS_USAGE,
                    "config '%s': Q_mma_load_K_tiles = %d: must be 0 or equal to K_mma_load_K_tiles = %d", text,
                    config->Q_mma_load_K_tiles, config->K_mma_load_K_tiles);
    if (config->stages == 1)
        return fail(failure, STATUS_USAGE, "config '%s': stages = 1: must be 0 or at least 2", text);
    if (config->slack > (config->stages ? config->stages - 2 : 0))
        return fail(failure, STATUS_USAGE,
                    "config '%s': slack = %d: must be from 0 to stages - 2, so that one block at least is fetched "
                    "ahead, and 0 without stages",
                    text, config->slack);
    if (config->swizzled && config->padded_rows)
        return fail(failure, STATUS_USAGE,
                    "config '%s': padded_rows = true: must be false where swizzled = true, either keeps the banks "
                    "apart",
                    text);
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
    return status ? status : config_check(config, text, failure);
}

char *config_format(const KernelConfig *config, char *text) {
    KernelConfig copy = *config;
    int n = snprintf(text, CONFIG_TEXT_SIZE, "(%s, %d, %d, %d, %d): ", config->dtype == FP16 ? "FP16" : "BF16",
                     config->d_head, config->B_r, config->B_c, config->n_warps);
    for (int i = 0; i < N_FEATURES && !FEATURES[i].after_load; i++)
        if (*feature_of(&copy, i)) n += snprintf(text + n, CONFIG_TEXT_SIZE - (size_t)n, "%s+", FEATURES[i].name);
    n += snprintf(text + n, CONFIG_TEXT_SIZE - (size_t)n, "load_%d_%d_%d_tiles", config->Q_mma_load_K_tiles,
                  config->K_mma_load_K_tiles, config->V_mma_load_K_tiles);
    for (int i = 0; i < N_FEATURES; i++) {
        for (int k = 0; k < N_COUNTS && i == FIRST_AFTER_COUNTS; k++)
            if (*count_of(&copy, k))
                n += snprintf(text + n, CONFIG_TEXT_SIZE - (size_t)n, "+%s_%d", COUNTS[k].name, *count_of(&copy, k));
        if (FEATURES[i].after_load && *feature_of(&copy, i))
            n += snprintf(text + n, CONFIG_TEXT_SIZE - (size_t)n, "+%s", FEATURES[i].name);
    }
    return text;
}

/* Read one literal such as "Li128E", "Lb1E" or "L5dtype15E" at *at; false where there is none of this type. */
static bool symbol_value(const char **at, const char *end, const char *type, int *value) {
    const size_t length = strlen(type);
    const char *p = *at;
    if ((size_t)(end - p) < length || memcmp(p, type, length) != 0) return false;
    p += length;
    const char *const stop = memchr(p, 'E', (size_t)(end - p));
    if (!stop || (*value = span_number((struct span){p, (int)(stop - p)})) < 0) return false;
    *at = stop + 1;
    return true;
}

bool config_from_symbol(const char *symbol, size_t length, KernelConfig *config) {
    static const char before[] = "_Z13flash_forwardIXtl12KernelConfig", after[] = "EEEv12forward_args";
    static const char types[] = "diiiibbbiiibbbiibbb"; /* of the fields in order: dtype, int, bool */
    enum { FIELDS = sizeof types - 1, FIRST_FIELDS = 13 };
    if (length < strlen(before) + strlen(after) || memcmp(symbol, before, strlen(before)) != 0 ||
        memcmp(symbol + length - strlen(after), after, strlen(after)) != 0)
        return false;
    const char *at = symbol + strlen(before), *const end = symbol + length - strlen(after);
    int values[FIELDS] = {0};
    for (int i = 0; i < FIELDS && (i < FIRST_FIELDS || at < end); i++) { /* a symbol may lack the later ones */
        if (!symbol_value(&at, end, types[i] == 'd' ? "L5dtype" : types[i] == 'b' ? "Lb" : "Li", &values[i]))
            return false;
        if (types[i] == 'b' && values[i] > 1) return false;
    }
    for (int later; at < end;) /* fields added after those known here: only their zero means what we know */
        if (!(symbol_value(&at, end, "Lb", &later) || symbol_value(&at, end, "Li", &later)) || later != 0) return false;
    if (values[0] != FP16 && values[0] != BF16) return false;
    *config = (KernelConfig){(enum dtype)values[0],
                             values[1],
                             values[2],
                             values[3],
                             values[4],
                             values[5],
                             values[6],
                             values[7],
                             values[8],
                             values[9],
                             values[10],
                             values[11],
                             values[12],
                             values[13],
                             values[14],
                             values[15],
                             values[16],
                             values[17],
                             values[18]};
    return true;
}

bool config_equal(const KernelConfig *a, const KernelConfig *b) {
    KernelConfig x = *a, y = *b;
    for (int i = 0; i < N_FEATURES; i++)
        if (*feature_of(&x, i) != *feature_of(&y, i)) return false;
    for (int i = 0; i < N_COUNTS; i++)
        if (*count_of(&x, i) != *count_of(&y, i)) return false;
    return a->dtype == b->dtype && a->d_head == b->d_head && a->B_r == b->B_r && a->B_c == b->B_c &&
           a->n_warps == b->n_warps && a->Q_mma_load_K_tiles == b->Q_mma_load_K_tiles &&
           a->K_mma_load_K_tiles == b->K_mma_load_K_tiles && a->V_mma_load_K_tiles == b->V_mma_load_K_tiles;
}
