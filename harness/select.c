#include "harness/select.h"

#include "harness/about.h"
#include "harness/config.h"

#include <stdio.h>
#include <string.h>

/* Error for a configuration that is not built, with what is built and how to build it. */
static enum status not_built(const KernelConfig *config, const struct instance_table *table, struct failure *failure) {
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
                "config %s is not built; the built ones are:%s\nbuild it with: make %s KERNELS=\"%s\"", text, list,
                about_version(), text);
}

static enum status choose(const struct instance *instance, const struct instance **chosen, size_t capacity,
                          size_t *count, struct failure *failure) {
    for (size_t i = 0; i < *count; i++)
        if (chosen[i] == instance) return STATUS_OK; /* named twice */
    if (*count == capacity) return fail(failure, STATUS_USAGE, "more than %zu configs are chosen", capacity);
    chosen[(*count)++] = instance;
    return STATUS_OK;
}

/* Choose every instance, of one type where --dtype is given. */
static enum status choose_all(const struct options *options, const struct instance_table *table,
                              const struct instance **chosen, size_t capacity, size_t *count, struct failure *failure) {
    for (size_t i = 0; i < table->count; i++) {
        if (options->dtype != ANY_DTYPE && table->instances[i].config.dtype != options->dtype) continue;
        const enum status status = choose(&table->instances[i], chosen, capacity, count, failure);
        if (status) return status;
    }
    if (!*count) return fail(failure, STATUS_USAGE, "no %s config is built, see --list", dtype_name(options->dtype));
    return STATUS_OK;
}

enum status select_instances(const struct options *options, const struct instance_table *table,
                             const struct instance **chosen, size_t capacity, size_t *count, struct failure *failure) {
    const bool own = options->n_configs == 0;
    *count = 0;
    for (int i = 0; i < (own ? 1 : options->n_configs); i++) {
        const char *text = own ? about_config() : options->configs[i];
        KernelConfig config;
        enum status status;
        if (!strcmp(text, "all")) {
            if ((status = choose_all(options, table, chosen, capacity, count, failure))) return status;
            continue;
        }
        if ((status = config_parse(text, &config, failure))) return status;
        if (own && options->dtype != ANY_DTYPE) config.dtype = options->dtype;
        if (options->dtype != ANY_DTYPE && config.dtype != options->dtype)
            return fail(failure, STATUS_USAGE, "--config '%s' is of type %s, but --dtype is %s: drop one of them", text,
                        dtype_name(config.dtype), dtype_name(options->dtype));
        const struct instance *instance = instance_find(table, &config);
        if (!instance) return not_built(&config, table, failure);
        if ((status = choose(instance, chosen, capacity, count, failure))) return status;
    }
    return STATUS_OK;
}

static int list_count(const struct number_list *list) {
    return list->count ? list->count : 1;
}

int64_t problem_count(const struct options *options) {
    return (int64_t)list_count(&options->seq) * list_count(&options->heads) * list_count(&options->batch);
}

static int64_t value_at(const struct number_list *list, int64_t i, int64_t initial) {
    return list->count ? list->values[i] : initial;
}

void problem_at(const struct options *options, bool gpu, int64_t i, enum dtype dtype, struct problem *problem) {
    const int batches = list_count(&options->batch), heads = list_count(&options->heads);
    const int64_t seq = value_at(&options->seq, i / batches / heads, gpu ? 4096 : 256);
    const int64_t batch = options->tokens ? options->tokens / seq : gpu ? problem_default_batch(seq) : 1;
    const int64_t n_heads = value_at(&options->heads, i / batches % heads, gpu ? 16 : 2);
    *problem = problem_square(value_at(&options->batch, i % batches, batch), n_heads, seq);
    problem->dtype = dtype;
    problem->dist = options->dist;
    problem->seed = (uint64_t)options->seed;
}
