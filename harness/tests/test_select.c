/* test_select.c - which instances a command line asks for, in which order, and what is said otherwise. */
#include "common/tests/tap.h"
#include "harness/select.h"
#include "runtime/config.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MADE = 10, CAPACITY = 16 };

static struct instance made[MADE];

/* Ten configurations that are as long as they come; the odd ones are bf16. */
static struct instance_table make_table(size_t count) {
    for (int i = 0; i < MADE; i++) {
        char text[200];
        struct failure failure;
        snprintf(text, sizeof text,
                 "(%s, 128, 256, 256, 8): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax+lazy+stages_%d",
                 i % 2 ? "BF16" : "FP16", 2 + i / 2);
        if (config_parse(text, &made[i].config, &failure)) ok(false, "%s: %s", text, failure.text);
        made[i].entry = i;
    }
    return (struct instance_table){made, count};
}

static void instances(void) {
    const struct instance *chosen[CAPACITY];
    struct instance_table table = make_table(MADE);
    struct options options = {.dtype = ANY_DTYPE, .n_configs = 1, .configs = {"all"}};
    struct failure failure;
    char text[CONFIG_TEXT_SIZE], twice[CONFIG_TEXT_SIZE];
    size_t count;
    ok(!select_instances(&options, &table, chosen, CAPACITY, &count, &failure) && count == MADE &&
           chosen[9] == &made[9],
       "all are chosen");
    ok(select_instances(&options, &table, chosen, MADE - 1, &count, &failure) == STATUS_USAGE,
       "more than there is room");
    says(failure.text, "more than 9 configs are chosen", "more than there is room");
    options.dtype = BF16;
    ok(!select_instances(&options, &table, chosen, CAPACITY, &count, &failure) && count == 5 && chosen[0] == &made[1],
       "all of one type");
    table.count = 1;
    ok(select_instances(&options, &table, chosen, CAPACITY, &count, &failure) == STATUS_USAGE, "none of the type");
    says(failure.text, "no bf16 config is built", "none of the type");
    table.count = MADE;
    options = (struct options){.dtype = ANY_DTYPE, .n_configs = 3};
    options.configs[0] = options.configs[2] = config_format(&made[4].config, text);
    options.configs[1] = config_format(&made[2].config, twice);
    ok(!select_instances(&options, &table, chosen, CAPACITY, &count, &failure) && count == 2 && chosen[0] == &made[4] &&
           chosen[1] == &made[2],
       "those that are named, in their order, each once");
    options.dtype = BF16;
    ok(select_instances(&options, &table, chosen, CAPACITY, &count, &failure) == STATUS_USAGE, "another type");
    says(failure.text, "is of type fp16, but --dtype is bf16", "another type");
}

static void what_is_not_built(void) {
    const struct instance *chosen[CAPACITY];
    struct instance_table table = make_table(MADE);
    struct options options = {
        .dtype = ANY_DTYPE, .n_configs = 1, .configs = {"(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles"}};
    struct failure failure;
    char text[CONFIG_TEXT_SIZE];
    size_t count;
    ok(select_instances(&options, &table, chosen, CAPACITY, &count, &failure) == STATUS_USAGE, "one that is not built");
    says(failure.text, "and 2 more, see --list", "one of 10");
    says(failure.text, "build it with: make v01 KERNELS=", "one that is not built");
    says(failure.text, config_format(&made[7].config, text), "the eighth");
    ok(!strstr(failure.text, config_format(&made[8].config, text)), "the ninth is not listed");
    table.count = 8;
    ok(select_instances(&options, &table, chosen, CAPACITY, &count, &failure) == STATUS_USAGE &&
           !strstr(failure.text, "more"),
       "eight are listed in full");
    options.configs[0] = "(FP16";
    ok(select_instances(&options, &table, chosen, CAPACITY, &count, &failure) == STATUS_USAGE, "one that is not read");
}

int main(void) {
    instances();
    what_is_not_built();
    return tap_done();
}
