/* test_config.c - short forms and kernel symbols: the cases shared with Python, round trips, broken input. */
#include "common/tests/tap.h"
#include "runtime/config.h"
#include "runtime/launch.h"
#include "runtime/parameters.h"

#include <stdint.h>
#include <stdlib.h>

/* Lines `ok<TAB>text<TAB>canonical form` and `bad<TAB>text<TAB>word the message must contain`. */
static void shared_cases(void) {
    char line[2000];
    int cases = 0;
    FILE *file = fopen("analysis/tests/fixtures/config_cases.txt", "r");
    if (!ok(file != NULL, "the shared cases can be read")) return;
    while (fgets(line, sizeof line, file)) {
        struct kernel_config config;
        struct failure failure = {""};
        char again[CONFIG_TEXT_SIZE];
        line[strcspn(line, "\n")] = 0;
        char *text = strchr(line, '\t'), *expected = text ? strchr(text + 1, '\t') : NULL;
        if (line[0] == '#' || !line[0]) continue;
        if (!ok(expected != NULL, "three fields in: %s", line)) continue;
        *text++ = 0;
        *expected++ = 0;
        cases++;
        const enum status status = config_parse(text, &config, &failure);
        if (!strcmp(line, "ok")) {
            if (!ok(status == STATUS_OK, "reads '%s'", text)) printf("# %s\n", failure.text);
            if (status == STATUS_OK) ok(!strcmp(config_format(&config, again), expected), "prints %s", expected);
        } else {
            ok(status == STATUS_USAGE, "refuses '%s'", text);
            says(failure.text, expected, text);
        }
    }
    fclose(file);
    ok(cases > 40, "%d shared cases", cases);
}

/* The sizes that every version has, at their limits. */
static void limits(void) {
    static const struct {
        const char *text, *said; /* "": taken */
    } cases[] = {{"(FP16, 0, 64, 64, 4): async+load_0_0_0_tiles", "d_head = 0: must be from 1 to 65536"},
                 {"(FP16, 65552, 64, 64, 4): async+load_0_0_0_tiles", "d_head = 65552: must be from 1 to 65536"},
                 {"(FP16, 128, 0, 64, 4): async+load_0_0_0_tiles", "B_r = 0: must be from 1 to 65536"},
                 {"(FP16, 128, 65552, 64, 4): async+load_0_0_0_tiles", "B_r = 65552: must be from 1 to 65536"},
                 {"(FP16, 128, 64, 0, 4): async+load_0_0_0_tiles", "B_c = 0: must be from 1 to 65536"},
                 {"(FP16, 128, 64, 65552, 4): async+load_0_0_0_tiles", "B_c = 65552: must be from 1 to 65536"},
                 {"(FP16, 128, 64, 64, 0): async+load_0_0_0_tiles", "n_warps = 0: must be from 1 to 65536"},
                 {"(FP16, 128, 64, 64, 65537): async+load_0_0_0_tiles", "n_warps = 65537: must be from 1 to 65536"},
                 {"(FP16, 128, 16, 64, 1): async+load_0_0_0_tiles", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kernel_config config;
        struct failure failure = {""};
        const enum status status = config_parse(cases[i].text, &config, &failure);
        ok((status == STATUS_OK) == !*cases[i].said, "%s: %s", cases[i].text, status ? failure.text : "taken");
        if (*cases[i].said) says(failure.text, cases[i].said, cases[i].text);
    }
}

/* Symbols with each field alone, whatever its position, and with the family. */
static void equality(void) {
    const struct kernel_config base = {.dtype = FP16};
    ok(config_equal(&base, &(struct kernel_config){.dtype = FP16}), "a configuration equals its copy");
    struct kernel_config other = {.family = FAMILY_DECODE, .dtype = FP16};
    ok(!config_equal(&base, &other) && !config_equal(&other, &base), "but not one of another family");
    for (int id = 0; id < N_FAMILIES; id++) {
        int count;
        const struct field *const fields = FAMILIES[id].fields(&count);
        const struct kernel_config zero = {.family = (enum family_id)id};
        for (int i = 0; i < count && *fields[i].word; i++) {
            other = zero;
            config_set(&other, &fields[i], 1);
            ok(!config_equal(&zero, &other) && !config_equal(&other, &zero), "nor one with another %s of %s",
               fields[i].name, FAMILIES[id].name);
        }
    }
}

static bool decodes(const char *symbol, const char *expected) {
    struct kernel_config config;
    char text[CONFIG_TEXT_SIZE];
    return config_from_symbol(symbol, strlen(symbol), &config) && !strcmp(config_format(&config, text), expected);
}

static void symbols(void) {
#define BEFORE "_Z13flash_forwardIXtl12KernelConfig"
#define FIRST BEFORE "L5dtype5ELi128ELi64ELi64ELi4ELb1ELb0ELb0ELi0ELi0ELi0ELb0ELb0E"
#define LATER "Lb0ELi0ELi0ELb0ELb0ELb0E" HOPPER UNUSED
#define HOPPER "Lb0ELb0ELb0ELb0ELb0ELi0ELb0ELb0E"
#define UNUSED "Lb0ELb0ELb0ELb0ELb0E"
#define MAPS "11tensor_maps"
#define AFTER "EEEv12forward_args"
    static const char *const bad[] = {
        "",
        "flash_forward",
        FIRST,
        "_Z13flash_forwardv",
        FIRST AFTER "x",
        "x" FIRST AFTER,
        BEFORE "L5dtype5ELi128ELi64ELi64E" AFTER, /* four values */
        FIRST LATER "Lb1E" AFTER,                 /* an unknown field in use */
        FIRST "Lb2E" AFTER,                       /* no such bool, lazy_rescale */
        FIRST LATER AFTER MAPS MAPS,
        FIRST LATER "EEEv" MAPS,
        FIRST LATER "EEEv14attention_args",                   /* of another family */
        FIRST "Lb0ELi0ELi0ELb0ELb0ELb0E" HOPPER "Lb1E" AFTER, /* a field that is always 0 */
        MAPS,
        FIRST "Lb1ELb0E" AFTER,                                                               /* bool for int */
        FIRST "Lb0" AFTER,                                                                    /* no end of a literal */
        BEFORE "L5dtype7ELi128ELi64ELi64ELi4ELb1ELb0ELb0ELi0ELi0ELi0ELb0ELb0E" AFTER,         /* no such type */
        BEFORE "L5dtype5ELi128ELi64ELi64ELi4ELb2ELb0ELb0ELi0ELi0ELi0ELb0ELb0E" AFTER,         /* no such bool */
        BEFORE "L5dtype5ELi128ELi64ELi64ELi4ELi1ELb0ELb0ELi0ELi0ELi0ELb0ELb0E" AFTER,         /* int for bool */
        BEFORE "L5dtype5ELin128ELi64ELi64ELi4ELb1ELb0ELb0ELi0ELi0ELi0ELb0ELb0E" AFTER,        /* negative */
        BEFORE "L5dtype5ELi12800000000ELi64ELi64ELi4ELb1ELb0ELb0ELi0ELi0ELi0ELb0ELb0E" AFTER, /* too long */
    };
    ok(decodes(FIRST AFTER, "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles"), "a symbol of thirteen values");
    ok(decodes(BEFORE "L5dtype5ELi128ELi64ELi64ELi4E" AFTER, "(FP16, 128, 64, 64, 4): load_0_0_0_tiles"),
       "a symbol of the parenthesis alone");
    ok(decodes(FIRST LATER AFTER, "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles"), "the later fields, all zero");
    ok(decodes(FIRST LATER "Lb0ELi0E" AFTER, "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles"), "unknown fields, zero");
    ok(decodes(FIRST "Lb1ELi4E" AFTER, "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles+lazy+stages_4"),
       "some of the later fields");
    ok(decodes(FIRST "Lb0ELi5ELi2ELb0ELb1ELb0E" AFTER,
               "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles+stages_5+slack_2+split_tail"),
       "fields between zeros");
    ok(decodes(FIRST "Lb0ELi5ELi2ELb1ELb1ELb1E" AFTER,
               "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles+stages_5+slack_2+padded+split_tail+persistent"),
       "every later field gets its own value");
    ok(decodes(FIRST "Lb0ELi2ELi0ELb0ELb0ELb1ELb1ELb1ELb1ELb1ELb1ELi16ELb1ELb1E" AFTER MAPS,
               "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles+stages_2+persistent+tensor+producer+qk_ahead+ping_pong+"
               "double_q+exp_16+first_max+early_k"),
       "every field of tensor copies gets its own value, followed by the second parameter");
    ok(decodes(BEFORE "L5dtype15ELi128ELi128ELi32ELi8ELb1ELb1ELb1ELi2ELi4ELi8ELb1ELb1E" AFTER,
               "(BF16, 128, 128, 32, 8): async+eager+swizzled+load_2_4_8_tiles+buffer+opt_softmax"),
       "every field gets its own value");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct kernel_config config;
        ok(!config_from_symbol(bad[i], strlen(bad[i]), &config), "not a symbol of ours: '%s'", bad[i]);
    }
}

/* The grid of 16 heads on 132 multiprocessors. 4096 Q blocks leave 4 for the last wave, of which 32 slices are one
 * wave; 512 leave 116, too many for slices to be worth it. */
#define WGMMA_KERNEL "(FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong"
#define MMA_SYNC_KERNEL "(FP16, 128, 256, 64, 8): mma_sync+stages_4"
static void launch_shapes(void) {
#define TENSOR "(FP16, 128, 128, 128, 8): load_0_0_0_tiles+stages_2+tensor"
#define BLOCKS "(FP16, 128, 256, 64, 8): async+eager+load_2_2_2_tiles+opt_softmax+lazy+stages_4+slack_1+padded"
    static const struct {
        const char *config;
        int seq, batch;
        uint32_t x, y, z;
    } cases[] = {
        {TENSOR, 4096, 16, 32, 16, 16},
        {TENSOR "+producer", 4096, 16, 32, 16, 16},
        {TENSOR "+persistent+producer", 4096, 16, 132, 1, 1},
        {TENSOR "+persistent+producer", 512, 1, 64, 1, 1}, /* fewer blocks than multiprocessors */
        {BLOCKS, 4096, 16, 16, 16, 16},
        {BLOCKS "+split_tail", 4096, 16, 4092 + 32, 1, 1},
        {BLOCKS "+split_tail", 512, 16, 512, 1, 1},
        {BLOCKS "+split_tail+persistent", 4096, 16, 132, 2, 1},
        {BLOCKS "+split_tail+persistent", 512, 16, 132, 1, 1},
        {BLOCKS "+split_tail+persistent", 512, 1, 32, 1, 1},        /* fewer blocks than multiprocessors */
        {BLOCKS "+split_tail+persistent", 256, 1, 132, 1 + 1, 1},   /* all of them in slices */
        {BLOCKS "+split_tail+persistent", 16384, 1, 132, 1 + 7, 1}, /* 1024 leave 100: slices for seven waves */
        {WGMMA_KERNEL, 129, 2, 64, 1, 1},
        {MMA_SYNC_KERNEL, 257, 2, 132, 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kernel_config config;
        struct failure failure;
        config_parse(cases[i].config, &config, &failure);
        const attention_args args = {
            .seq_q = cases[i].seq, .seq_k = cases[i].seq, .heads = 16, .batch = cases[i].batch};
        const launch_shape shape = launch_of(&config, &args, 132);
        ok(shape.grid_x == cases[i].x && shape.grid_y == cases[i].y && shape.grid_z == cases[i].z,
           "grid %u x %u x %u at %d x %d: %s", shape.grid_x, shape.grid_y, shape.grid_z, cases[i].batch, cases[i].seq,
           strchr(cases[i].config, '+'));
    }
}

/* Threads and shared memory of kernels for sm_90a. A block of 128 rows has 32 KB. */
static void shared_memory(void) {
    enum { KB = 1024, EXTRA = 1024 /* so that blocks begin at 1024 bytes */ + 1024 /* mbarriers */ };
    static const struct {
        const char *config;
        uint32_t threads, bytes;
    } cases[] = {
        {"(FP16, 128, 64, 128, 4): async+swizzled+load_0_0_0_tiles", 128, 16 * KB + 2 * 32 * KB},
        {"(FP16, 128, 64, 128, 4): load_0_0_0_tiles+tensor", 128, 16 * KB + 2 * 32 * KB + EXTRA},
        {TENSOR, 256, 32 * KB + 4 * 32 * KB + EXTRA},
        {TENSOR "+producer", 384, 32 * KB + 4 * 32 * KB + EXTRA},
        {TENSOR "+persistent+producer", 384, 32 * KB + 4 * 32 * KB + EXTRA},
        {TENSOR "+persistent+producer+double_q", 384, 2 * 32 * KB + 4 * 32 * KB + 32 * KB + EXTRA},
        {WGMMA_KERNEL, 384, 2 * 32 * KB + 4 * 32 * KB + 32 * KB + EXTRA},
        {"(BF16, 64, 256, 64, 16): wgmma+stages_4+exp_16", 640, 3 * 32 * KB + 8 * 8 * KB + EXTRA},
        {"(FP16, 256, 128, 64, 8): wgmma+stages_2+exp_16", 384, 64 * KB + 4 * 32 * KB + EXTRA},
        {MMA_SYNC_KERNEL, 256, (256 + 8 * 64) * (2 * 128 + 16) + 4 * 16},
    };
    const attention_args args = {.seq_q = 4096, .seq_k = 4096, .heads = 16, .batch = 16};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kernel_config config;
        struct failure failure;
        ok(!config_parse(cases[i].config, &config, &failure), "reads %s", cases[i].config);
        const launch_shape shape = launch_of(&config, &args, 132);
        ok(shape.threads == cases[i].threads && shape.smem_bytes == cases[i].bytes, "%u threads, %u bytes: %s",
           shape.threads, shape.smem_bytes, strchr(cases[i].config, ':'));
        ok(launch_threads(&config) == (int)shape.threads && launch_smem_bytes(&config) == (int)shape.smem_bytes,
           "in every launch");
    }
}

static void refuses(const char *const symbols[], size_t count) {
    struct kernel_config config;
    for (size_t i = 0; i < count; i++)
        ok(!config_from_symbol(symbols[i], strlen(symbols[i]), &config), "refuses %s", symbols[i]);
}

/* Symbols of an attention_config. */
static void attention_symbols(void) {
#define ATTENTION "_Z13flash_forwardIXtl16attention_configL5dtype5ELi128ELi128ELi128ELi8E"
#define PARAMETERS "EEEv14attention_args"
#define SERVING "EEEv12serving_args"
    static const char *const bad[] = {
        ATTENTION PARAMETERS,                                      /* no instruction */
        ATTENTION "L11instruction0ELi2ELi32ELb1E" PARAMETERS MAPS, /* no such instruction */
        ATTENTION "L11instruction3ELi2ELi32ELb1E" PARAMETERS MAPS,
        ATTENTION "Li2ELi2ELi32ELb1E" PARAMETERS MAPS,                  /* int for the instruction */
        ATTENTION "L11instruction2ELi2ELi32ELb1E" AFTER MAPS,           /* these kernels take attention_args */
        BEFORE "L5dtype5ELi128ELi128ELi128ELi8EL11instruction2E" AFTER, /* of the ladder */
        ATTENTION "L11instruction2ELi2ELi32ELb1ELb1E" PARAMETERS MAPS,  /* that serves, without serving_args */
        ATTENTION "L11instruction2ELi2ELi32ELb1ELb0E" SERVING MAPS,     /* with them, and does not serve */
        ATTENTION
        "L11instruction2ELi2ELi32ELb1ELb1ELb0ELb0ELb0ELb1E" SERVING MAPS, /* shorter rows, without their args */
        ATTENTION "L11instruction2ELi2ELi32ELb1ELb0ELb0ELb0ELb0ELb0ELb1E" PARAMETERS MAPS, /* an unknown field in use */
    };
    static const struct {
        const char *symbol, *config;
    } good[] = {
        {ATTENTION "L11instruction2ELi2ELi32ELb1E" PARAMETERS MAPS, WGMMA_KERNEL},
        {ATTENTION "L11instruction2ELi2ELi32ELb1ELb1E" SERVING MAPS, WGMMA_KERNEL "+serve"},
        {ATTENTION "L11instruction2ELi2ELi32ELb0ELb1ELb1E" SERVING MAPS,
         "(FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+serve+cap"},
        {ATTENTION "L11instruction2ELi2ELi32ELb1ELb1ELb0ELb1E" SERVING MAPS, WGMMA_KERNEL "+serve+pages"},
        {ATTENTION "L11instruction2ELi2ELi32ELb1ELb1ELb0ELb1ELb1E" SERVING MAPS, WGMMA_KERNEL "+serve+pages+pack"},
        {ATTENTION "L11instruction2ELi2ELi32ELb1ELb1ELb0ELb0ELb0ELb1EEEEv13extended_args" MAPS,
         WGMMA_KERNEL "+serve+extend"},
        {ATTENTION "L11instruction2ELi2ELi32ELb1ELb1ELb0ELb0ELb0ELb1ELi128ELb0ELb0ELb1EEEEv13extended_args" MAPS,
         WGMMA_KERNEL "+serve+extend+dv_128+bias"},
        {ATTENTION "L11instruction1ELi4E" PARAMETERS, "(FP16, 128, 128, 128, 8): mma_sync+stages_4"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ok(decodes(good[i].symbol, good[i].config), "a symbol of %s", good[i].config);
    refuses(bad, sizeof bad / sizeof *bad);
}

/* Symbols of a backward_config: what serves has parameters of its own. */
static void backward_symbols(void) {
#define BACKWARD_VALUES                                                                                                \
    "IXtl15backward_configL5dtype5ELi128ELi64ELi128ELi12EL11instruction2ELb1ELb0ELi2ELb1ELb1ELb1ELb1E"
#define CONFIG "(FP16, 128, 64, 128, 12): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length"
    static const char *const bad[] = {
        "_Z14flash_backward" BACKWARD_VALUES "Lb1EEEEv13backward_args" MAPS,
        "_Z14flash_backward" BACKWARD_VALUES "Lb0EEEEv21backward_serving_args" MAPS,
    };
    ok(decodes("_Z14flash_backward" BACKWARD_VALUES "EEEv13backward_args" MAPS, CONFIG), "a backward pass");
    ok(decodes("_Z14flash_backward" BACKWARD_VALUES "Lb1EEEEv21backward_serving_args" MAPS, CONFIG "+serve"),
       "one that serves");
    refuses(bad, sizeof bad / sizeof *bad);
}

/* A flag of one family in a configuration of another, a shape alone, and an instruction that no family has. */
static void flags_of_other_families(void) {
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"(BF16, 128, 16, 64, 4): mma_sync+tensor+stages_3+pages", "'pages' is a flag of attention, not of decode; "},
        {"(FP16, 128, 128, 128, 8): wgmma+stages_2+e4m3", "'e4m3' is a flag of decode, not of attention; "},
        {"(FP16, 128, 128, 128, 8): async+wgmma+stages_2", "'async' is a flag of ladder, not of attention; "},
        {"(FP16, 128, 64, 64, 4): load_0_0_0_tiles+causal", "'causal' is a flag of fp8, backward, not of ladder; "},
        {"(FP16, 128, 64, 64, 4): load_0_0_0_tiles+pack", "'pack' is a flag of attention, not of ladder; "},
        {"(FP16, 128, 128, 128, 8): fp8_wgmma+stages_2+dq_sums", "'dq_sums' is a flag of backward, not of fp8; "},
        {"(FP16, 128, 64, 128, 12): backward_wgmma+flush_8", "'flush_8' is a flag of fp8, not of backward; "},
        {"(FP16, 128, 128, 128, 8): fp8_wgmma+wgmma", "'fp8_wgmma' is a flag of fp8, not of attention; "},
        {"(FP16, 128, 128, 128, 8): fp8_fma+stages_2", "unknown flag 'fp8_fma'; write one of async"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kernel_config config;
        struct failure failure = {""};
        ok(config_parse(cases[i].text, &config, &failure) == STATUS_USAGE, "%s: rejected", cases[i].text);
        says(failure.text, cases[i].said, cases[i].text);
    }
}

/* Configurations, and what each of them has. */
static void features(void) {
    static const struct {
        const char *text;
        enum family_id family;
        unsigned has;
    } cases[] = {
#define GENERAL (1u << ANY_LENGTH | 1u << CAUSAL | 1u << GROUPED_HEADS | 1u << TICKETS)
        {TENSOR, FAMILY_LADDER, 1u << TENSOR_COPIES},
        {BLOCKS, FAMILY_LADDER, 0},
        {WGMMA_KERNEL, FAMILY_ATTENTION, GENERAL | 1u << TENSOR_COPIES},
        {WGMMA_KERNEL "+serve+cap+pages", FAMILY_ATTENTION,
         GENERAL | 1u << TENSOR_COPIES | 1u << SERVES | 1u << CAP | 1u << PAGED_KV},
        {WGMMA_KERNEL "+serve+extend+bias", FAMILY_ATTENTION,
         GENERAL | 1u << TENSOR_COPIES | 1u << SERVES | 1u << SERVES_ALL | 1u << EXTENDED | 1u << BIAS},
        {MMA_SYNC_KERNEL, FAMILY_ATTENTION, GENERAL | 1u << PACKED_HEADS},
        {MMA_SYNC_KERNEL "+serve", FAMILY_ATTENTION, GENERAL | 1u << PACKED_HEADS | 1u << SERVES | 1u << SERVES_ALL},
        {"(FP16, 128, 16, 64, 4): mma_sync+stages_3+serve+cp_async", FAMILY_DECODE,
         GENERAL | 1u << PACKED_HEADS | 1u << SERVES | 1u << SHARES_KEYS},
        {"(BF16, 128, 16, 128, 4): mma_sync+tensor+stages_3+serve+e4m3+ragged", FAMILY_DECODE,
         GENERAL | 1u << TENSOR_COPIES | 1u << PACKED_HEADS | 1u << SERVES | 1u << SHARES_KEYS | 1u << E4M3_CACHE |
             1u << RAGGED_QUERIES},
        {"(FP16, 128, 128, 128, 8): fp8_wgmma+stages_2+any_length+causal", FAMILY_FP8,
         1u << E4M3_INPUTS | 1u << TENSOR_COPIES | 1u << ANY_LENGTH | 1u << CAUSAL},
        {"(FP16, 64, 64, 64, 4): fp8_mma_sync+stages_2+flush_1+rounded_l+any_length+causal+persistent+tickets+grouped",
         FAMILY_FP8, GENERAL | 1u << E4M3_INPUTS},
        {CONFIG, FAMILY_BACKWARD, 1u << BACKWARD_PASS | 1u << TENSOR_COPIES | 1u << CAUSAL | 1u << GROUPED_HEADS},
    };
    const unsigned of_kernel = (1u << PERSISTENT) - 1; /* the features after these say how it works */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kernel_config config;
        struct failure failure = {""};
        ok(!config_parse(cases[i].text, &config, &failure), "reads %s %s", cases[i].text, failure.text);
        const unsigned has = FAMILIES[config.family].features(&config) & of_kernel;
        ok(config.family == cases[i].family && has == cases[i].has, "is of %s, has %x", FAMILIES[config.family].name,
           has);
    }
}

/* Grid of a kernel whose CTAs split the keys: as many CTAs for each KV head as there are, but none without keys. */
static void shared_keys(void) {
    static const struct {
        int batch, heads, KV_heads, seq_q, seq_k;
        unsigned ctas;
    } cases[] = {{16, 32, 8, 1, 32768, 128}, {1, 32, 8, 1, 32768, 128},  {1, 32, 8, 1, 130, 24}, {1, 8, 8, 1, 1, 8},
                 {2, 8, 8, 17, 1, 32},       {1, 200, 200, 1, 999, 200}, {9, 8, 1, 4, 64, 18}};
    struct kernel_config config, other;
    struct failure failure = {""};
    ok(!config_parse("(BF16, 128, 16, 64, 4): mma_sync+tensor+stages_3", &config, &failure), "reads it");
    ok(!config_parse("(BF16, 128, 256, 64, 8): mma_sync+stages_4", &other, &failure), "reads mma_sync");
    ok(config_has(&config, SHARES_KEYS) && !config_has(&other, SHARES_KEYS), "they are not of one kernel");
    ok(launch_threads(&config) == 160 && launch_smem_bytes(&config) == 143872, "five warps, 140 KiB");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const attention_args args = {.batch = cases[i].batch,
                                     .heads = cases[i].heads,
                                     .KV_heads = cases[i].KV_heads,
                                     .seq_q = cases[i].seq_q,
                                     .seq_k = cases[i].seq_k};
        const launch_shape shape = launch_of(&config, &args, 132);
        const int64_t counters = launch_counter_bytes(&config),
                      rows = cases[i].seq_q * cases[i].heads / cases[i].KV_heads;
        const int64_t parts =
            (int64_t)shape.grid_x > args.KV_heads ? 2 * (int64_t)shape.grid_x * (rows < 16 ? rows : 16) : 0;
        ok(shape.grid_x == cases[i].ctas && shape.grid_y == 1 && shape.grid_z == 1, "%u CTAs", shape.grid_x);
        ok(!parts || counters >= 4 * (int64_t)shape.grid_x, "a word for each");
        ok(launch_workspace_bytes(&config, &args, 132) <= launch_most_bytes(&config, 132), "no more than the most");
        ok(launch_workspace_bytes(&config, &args, 132) == counters + parts * 129 * 4, "two slots for each");
        ok(launch_workspace_bytes(&other, &args, 132) == TICKETS_BYTES, "two words for another kernel");
    }
}

/* Grid for sequences with different numbers of queries: the rows of all of them fill 32 row blocks of 16, and
 * each of 7 sequences may have one more. */
static void ragged_queries(void) {
    enum { ROW_BYTES = 129 * 4, PARTS = 3 };
    serving_args args = {.attention = {.batch = 7, .heads = 8, .KV_heads = 2, .seq_q = 100, .seq_k = 700}};
    attention_args *const front = &args.attention;
    struct kernel_config config;
    struct failure failure;
    ok(!config_parse("(BF16, 128, 16, 128, 4): mma_sync+tensor+stages_3+serve+e4m3+ragged", &config, &failure) &&
           config_has(&config, RAGGED_QUERIES),
       "reads it");
    const int64_t counters = launch_counter_bytes(&config);
    args.Q_rows = 128;
    ok(launch_of(&config, front, 132).grid_x == 132, "CTAs for all row blocks");
    ok(launch_workspace_bytes(&config, front, 132) == launch_most_bytes(&config, 132), "two slots for each");
    args.split_keys = 256;
    ok(launch_workspace_bytes(&config, front, 132) == counters + (32 + 7) * 2 * PARTS * 16 * ROW_BYTES,
       "a buffer for each part of a row block");
    args.Q_rows = 0;
    ok(launch_workspace_bytes(&config, front, 132) == counters + 7 * 25 * 2 * PARTS * 16 * ROW_BYTES,
       "without offsets each has seq_q queries at most");
    front->KV_heads = 8, front->seq_k = 100000;
    ok(launch_workspace_bytes(&config, front, 132) == counters + 7 * 7 * 8 * 16 * 16 * ROW_BYTES,
       "16 parts of a long sequence, with which 8 KV heads fill a GPU");
    front->KV_heads = 1;
    ok(launch_workspace_bytes(&config, front, 132) == counters + 7 * 50 * 64 * 16 * ROW_BYTES,
       "64 parts with one KV head");
    front->KV_heads = 2;
    front->seq_q = front->seq_k = front->batch = 1;
    ok(launch_of(&config, front, 132).grid_x == 2, "one CTA for each KV head");
}

/* Results of parts of the keys follow the counters of another kernel. A second launch adds them up. */
static void parts_of_keys(void) {
    extended_args args = {.serving.attention = {.batch = 2, .heads = 3, .KV_heads = 3, .seq_q = 5, .seq_k = 700}};
    const attention_args *const front = &args.serving.attention;
    struct kernel_config config;
    struct failure failure;
    ok(!config_parse(WGMMA_KERNEL "+serve+extend", &config, &failure) && config_has(&config, SPLITS_KEYS), "reads it");
    ok(launch_count(&config, front) == 1 && launch_of(&config, front, 132).grid_x == 6, "a CTA for each Q block");
    args.serving.split_keys = 128;
    ok(launch_count(&config, front) == 2 && launch_of(&config, front, 132).grid_x == 132, "all multiprocessors");
    ok(launch_workspace_bytes(&config, front, 132) == 4 * DECODE_COUNTERS + 6 * 6 * 5 * (128 + 4) * 4, "six parts");
}

int main(void) {
    shared_cases();
    limits();
    equality();
    symbols();
    launch_shapes();
    shared_memory();
    attention_symbols();
    backward_symbols();
    flags_of_other_families();
    features();
    shared_keys();
    ragged_queries();
    parts_of_keys();
    return tap_done();
}
