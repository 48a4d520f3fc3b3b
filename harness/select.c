#include "harness/select.h"

#include "harness/about.h"
#include "runtime/abilities.h"
#include "runtime/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Error for a configuration that is not built, with what is built and how to build it. */
static enum status not_built(const struct kernel_config *config, const struct instance_table *table,
                             struct failure *failure) {
    enum { LISTED = 8 };
    char text[CONFIG_TEXT_SIZE], list[(LISTED + 1) * CONFIG_TEXT_SIZE] = "";
    size_t used = 0;
    for (size_t i = 0; i < table->count && i < LISTED; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "\n    %s",
                                 config_format(&table->instances[i].config, text));
    if (table->count > LISTED)
        snprintf(list + used, sizeof list - used, "\n    and %zu more, see --list", table->count - LISTED);
    config_format(config, text);
    return fail(failure, STATUS_USAGE,
                "--config %s: is not built; choose one of these:%s\nor build it: make %s KERNELS=\"%s\"", text, list,
                about_version(), text);
}

static enum status choose(const struct instance *instance, const struct instance **chosen, size_t capacity,
                          size_t *count, struct failure *failure) {
    for (size_t i = 0; i < *count; i++)
        if (chosen[i] == instance) return STATUS_OK; /* named twice */
    if (*count == capacity)
        return fail(failure, STATUS_USAGE, "--config: more than %zu configs are chosen; choose fewer", capacity);
    chosen[(*count)++] = instance;
    return STATUS_OK;
}

/* Choose every instance, of one type where --dtype is given, for one size of heads where --d-head is. */
static enum status choose_all(const struct options *options, const struct instance_table *table,
                              const struct instance **chosen, size_t capacity, size_t *count, struct failure *failure) {
    for (size_t i = 0; i < table->count; i++) {
        const struct kernel_config *config = &table->instances[i].config;
        if (options->dtype != ANY_DTYPE && config->dtype != options->dtype) continue;
        if (options->d_head && config->d_head != options->d_head) continue;
        const enum status status = choose(&table->instances[i], chosen, capacity, count, failure);
        if (status) return status;
    }
    if (!*count && options->d_head)
        return fail(failure, STATUS_USAGE, "--d-head %" PRId64 ": no built config has this head size; --list shows all",
                    options->d_head);
    if (!*count)
        return fail(failure, STATUS_USAGE, "--dtype %s: no built config has this type; --list shows all",
                    dtype_name(options->dtype));
    return STATUS_OK;
}

/* The version has no configuration for the size; `sizes` lists those it has. Versions of the ladder have one. */
static enum status fail_size(int64_t d_head, const char *sizes, struct failure *failure) {
    const bool of_ladder = about_version()[0] == 'v';
    return fail(failure, STATUS_USAGE, "--d-head %" PRId64 ": %s supports %s%s%s%s", d_head, about_version(), sizes,
                of_ladder ? "; " : "", of_ladder ? general_kernel(about_exact()) : "",
                of_ladder ? " supports more sizes" : "");
}

/* True if only kernels with extended_args compute what the command line asks for. Parts of the keys have a size with
 * SHARES_KEYS, too. */
static bool asks_for_extended(const struct options *options) {
    struct kernel_config own;
    struct failure ignored;
    const bool shares_keys = !config_parse(about_config(), &own, &ignored) && config_has(&own, SHARES_KEYS);
    return options->d_head_v || options->block_mask.kind || (options->split_keys && !shares_keys);
}

/* True if only kernels with serving_args compute what the command line asks for. */
static bool asks_for_serving(const struct options *options) {
    return options->Q_lengths.count || options->KV_lengths.count || options->layout == LAYOUT_PACKED ||
           options->window.left >= 0 || options->window.right >= 0 || options->softcap > 0 || options->sinks ||
           options->page_rows || options->split_keys || asks_for_extended(options);
}

/* True if there is a number of heads of which a KV head has several. */
static bool groups_heads(const struct options *options) {
    for (int i = 0; i < options->heads.count; i++)
        if (packs_group(options->heads.values[i], options->KV_heads)) return true;
    return false;
}

/* The next configuration of a list of the header; false at its end. */
static bool next_config(const char **forms, struct kernel_config *config) {
    struct failure ignored;
    while (**forms) {
        char text[CONFIG_TEXT_SIZE];
        const size_t length = strcspn(*forms, ";");
        snprintf(text, sizeof text, "%.*s", (int)length, *forms);
        *forms += length + ((*forms)[length] == ';');
        if (!config_parse(text, config, &ignored)) return true;
    }
    return false;
}

/* The configuration for heads of d_head elements that serves, with a cap and pages where there are, and one that packs
 * the heads of a group; false where the header has none. */
static bool serving_config(const struct options *options, struct kernel_config *config) {
    struct failure ignored;
    struct kernel_config own;
    const bool cap = options->softcap > 0, pages = options->page_rows > 0;
    const bool packs = !cap && groups_heads(options);
    if (config_parse(about_config(), &own, &ignored)) return false;
    const int64_t d_head = options->d_head ? options->d_head : own.d_head;
    for (const char *forms = about_serving(); next_config(&forms, config);)
        if (config->d_head == d_head && config_takes(config, CAP, cap) &&
            (config_has(config, SHARES_KEYS) ||
             (config_takes(config, PAGED_KV, pages) && config_takes(config, PACKS, packs))))
            return true;
    return false;
}

/* The smallest extended configuration whose rows hold those that are asked for; false where the header has none. */
static bool extended_config(const struct options *options, struct kernel_config *best) {
    struct failure ignored;
    struct kernel_config config;
    bool found = false;
    if (config_parse(about_config(), &config, &ignored)) return false;
    const int64_t d_head = options->d_head ? options->d_head : config.d_head;
    const int64_t d_head_v = options->d_head_v ? options->d_head_v : d_head;
    for (const char *forms = about_serving(); next_config(&forms, &config);) {
        if (!config_has(&config, EXTENDED) || config.d_head < d_head ||
            (options->block_mask.kind && !config_has(&config, BIAS)) || config_d_head_v(&config) < d_head_v ||
            (found && config.d_head >= best->d_head))
            continue;
        *best = config;
        found = true;
    }
    return found;
}

/* The most elements that a row of Q, K and V may have in an extended configuration; 0 where there is none. */
static int largest_extended(void) {
    struct kernel_config config;
    int largest = 0;
    for (const char *forms = about_serving(); next_config(&forms, &config);) {
        const int d_head_v = config_d_head_v(&config), most = config.d_head < d_head_v ? config.d_head : d_head_v;
        if (config_has(&config, EXTENDED) && most > largest) largest = most;
    }
    return largest;
}

/* The version's own configuration for heads of d_head elements: that of its header, or one of the others there. */
static enum status own_config(int64_t d_head, struct kernel_config *config, struct failure *failure) {
    char sizes[100];
    enum status status = config_parse(about_config(), config, failure);
    if (status || !d_head || config->d_head == d_head) return status;
    size_t used = (size_t)snprintf(sizes, sizeof sizes, "%d", config->d_head);
    for (const char *form = about_others(); *form; form += strcspn(form, ";") + 1) {
        char text[CONFIG_TEXT_SIZE];
        snprintf(text, sizeof text, "%.*s", (int)strcspn(form, ";"), form);
        if ((status = config_parse(text, config, failure)) || config->d_head == d_head) return status;
        if (used < sizeof sizes) used += (size_t)snprintf(sizes + used, sizeof sizes - used, ", %d", config->d_head);
    }
    const int largest = largest_extended();
    if (largest && used < sizeof sizes)
        snprintf(sizes + used, sizeof sizes - used, " and multiples of 8 up to %d", largest);
    return fail_size(d_head, sizes, failure);
}

enum status select_instances(const struct options *options, const struct instance_table *table,
                             const struct instance **chosen, size_t capacity, size_t *count, struct failure *failure) {
    const bool own = options->n_configs == 0;
    *count = 0;
    for (int i = 0; i < (own ? 1 : options->n_configs); i++) {
        const char *const text = own ? "" : options->configs[i];
        struct kernel_config config;
        enum status status;
        if (!strcmp(text, "all")) {
            if ((status = choose_all(options, table, chosen, capacity, count, failure))) return status;
            continue;
        }
        const bool extended = asks_for_extended(options);
        if (!own || !asks_for_serving(options) ||
            !(extended ? extended_config(options, &config) : serving_config(options, &config))) {
            status = own ? own_config(options->d_head, &config, failure) : config_parse(text, &config, failure);
            if (status && !(own && extended_config(options, &config))) return status;
        }
        if (own && options->dtype != ANY_DTYPE) config.dtype = options->dtype;
        if (options->dtype != ANY_DTYPE && config.dtype != options->dtype)
            return fail(failure, STATUS_USAGE, "--config '%s': has type %s, but --dtype is %s; remove one of them",
                        text, dtype_name(config.dtype), dtype_name(options->dtype));
        if (options->d_head && config.d_head != options->d_head && !config_has(&config, EXTENDED))
            return fail(failure, STATUS_USAGE,
                        "--config '%s': has d_head %d, but --d-head is %" PRId64 "; remove one of them", text,
                        config.d_head, options->d_head);
        const struct instance *instance = instance_find(table, &config);
        if (!instance) return not_built(&config, table, failure);
        if ((status = choose(instance, chosen, capacity, count, failure))) return status;
    }
    return STATUS_OK;
}
