/* config_library.c - lib/libflconfig.so: what runtime/config.h and runtime/launch.h answer, for
 * analysis/ladder/config.py.
 *
 *     flconfig_read("(FP16, 128, 64, 64, 4): load_0_0_0_tiles")     {"family":0,"values":[5,128,...],"part":2}
 *
 * A configuration is the number of its family and the values of its fields. A text that is returned stays until the
 * next call of the thread.
 */
#include "runtime/config.h"
#include "runtime/launch.h"
#include "runtime/tensor_maps.h"

#include <string.h>

#define EXPORT __attribute__((visibility("default")))
EXPORT const char *flconfig_families(void);
EXPORT const char *flconfig_read(const char *text);
EXPORT const char *flconfig_describe(int family, const int *values);
EXPORT void flconfig_grid(int family, const int *values, const int *sizes, uint32_t *grid);

static _Thread_local struct json answer;

static void begin(char bracket) {
    json_free(&answer);
    answer = (struct json){0};
    json_open(&answer, NULL, bracket);
}

static const char *end(char bracket) {
    json_close(&answer, bracket);
    return answer.failed ? NULL : answer.text;
}

static struct kernel_config config_of(int family, const int *values) {
    struct kernel_config config = {.family = (enum family_id)family};
    int count;
    const struct field *const fields = FAMILIES[family].fields(&count);
    for (int i = 0; i < count; i++) config_set(&config, &fields[i], values[i]);
    return config;
}

/* The rows of common/families.h: [{"name", "type", "function", "features", "fields": [{"name", "word", ...}]}] */
const char *flconfig_families(void) {
    static const char *const types[] = {"dtype", "instruction", "int", "bool"};
    static const char *const features[N_FEATURES] = {
#define FEATURE(name) #name,
        FEATURES(FEATURE)
#undef FEATURE
    };
    begin('{');
    json_open(&answer, "features", '[');
    for (int i = 0; i < N_FEATURES; i++) json_string(&answer, NULL, features[i]);
    json_close(&answer, ']');
    json_open(&answer, "families", '[');
    for (const struct family *family = FAMILIES; family < FAMILIES + N_FAMILIES; family++) {
        int count;
        const struct field *const fields = family->fields(&count);
        json_open(&answer, NULL, '{');
        json_string(&answer, "name", family->name);
        json_string(&answer, "type", family->type);
        json_string(&answer, "function", family->function);
        json_open(&answer, "fields", '[');
        for (int i = 0; i < count; i++) {
            json_open(&answer, NULL, '{');
            json_string(&answer, "name", fields[i].name);
            json_string(&answer, "type", types[fields[i].type]);
            json_string(&answer, "word", fields[i].word);
            json_open(&answer, "notes", '[');
            for (int n = 0; n < FIELD_NOTES && fields[i].notes[n]; n++) json_string(&answer, NULL, fields[i].notes[n]);
            json_close(&answer, ']');
            json_close(&answer, '}');
        }
        json_close(&answer, ']');
        json_close(&answer, '}');
    }
    json_close(&answer, ']');
    return end('}');
}

/* A short form, or the symbol of a kernel, whose part json["part"] is; {"error"} for any other text. */
const char *flconfig_read(const char *text) {
    struct kernel_config config;
    struct failure failure = {""};
    enum kernel_part part = PART_MAIN;
    begin('{');
    if (strncmp(text, "_Z", 2)) {
        if (config_parse(text, &config, &failure)) part = PART_NONE;
    } else if (!(part = config_part_from_symbol(text, strlen(text), &config))) {
        fail(&failure, STATUS_USAGE, "'%s': not the symbol of a kernel with a configuration", text);
    }
    if (!part) {
        json_string(&answer, "error", failure.text);
        return end('}');
    }
    int count;
    const struct field *const fields = FAMILIES[config.family].fields(&count);
    json_int(&answer, "part", part);
    json_int(&answer, "family", config.family);
    json_open(&answer, "values", '[');
    for (int i = 0; i < count; i++) json_int(&answer, NULL, config_value(&config, &fields[i]));
    json_close(&answer, ']');
    return end('}');
}

/* Rows that a tensor copy moves, and bytes of an element: of Q, K, V and O. */
static void add_tensors(const struct kernel_config *config) {
    const serving_args args = {.attention = {.seq_q = 1, .seq_k = 1, .heads = 1, .KV_heads = 1, .batch = 1},
                               .page_rows = config->B_c};
    struct tensor_layout layouts[N_TENSORS];
    tensor_layouts(&args.attention, config, layouts);
    json_open(&answer, "box_rows", '[');
    for (int t = 0; t < N_TENSORS; t++) json_int(&answer, NULL, layouts[t].box[1]);
    json_close(&answer, ']');
    json_open(&answer, "element_bytes", '[');
    for (int t = 0; t < N_TENSORS; t++) json_int(&answer, NULL, layouts[t].element_bytes);
    json_close(&answer, ']');
}

/* All that follows from the fields; {"error"} where a rule is broken. */
const char *flconfig_describe(int family, const int *values) {
    const struct kernel_config config = config_of(family, values);
    struct failure failure;
    char text[CONFIG_TEXT_SIZE], symbol[CONFIG_SYMBOL_SIZE];
    begin('{');
    if (config_check(&config, NULL, &failure)) {
        json_string(&answer, "error", failure.text);
        return end('}');
    }
    json_string(&answer, "short_form", config_format(&config, text));
    json_string(&answer, "symbol", config_symbol(&config, symbol));
    json_string(&answer, "args", config_args(&config)->type);
    json_int(&answer, "features", FAMILIES[family].features(&config));
    json_int(&answer, "threads", launch_threads(&config));
    json_int(&answer, "smem_bytes", launch_smem_bytes(&config));
    json_int(&answer, "counter_bytes", launch_counter_bytes(&config));
    json_int(&answer, "bytes_of_cta", launch_most_bytes(&config, 1) - launch_most_bytes(&config, 0));
    add_tensors(&config);
    return end('}');
}

/* sizes: seq_q, seq_k, heads, batch, multiprocessors; of a launch without a mask, with a KV head for each head. */
void flconfig_grid(int family, const int *values, const int *sizes, uint32_t *grid) {
    const struct kernel_config config = config_of(family, values);
    const serving_args args = {.attention = {.seq_q = sizes[0],
                                             .seq_k = sizes[1],
                                             .heads = sizes[2],
                                             .KV_heads = sizes[2],
                                             .batch = sizes[3],
                                             .all_Q_rows = sizes[3] * sizes[0],
                                             .all_KV_rows = sizes[3] * sizes[1]}};
    const launch_shape shape = launch_of(&config, &args.attention, sizes[4]);
    grid[0] = shape.grid_x, grid[1] = shape.grid_y, grid[2] = shape.grid_z;
}
