/* test_choice.c - which of some made-up versions runs a problem, on which GPU, and the sentence where none does. */
#include "common/tests/tap.h"
#include "library/choice.h"
#include "library/gradients.h"
#include "library/ranking.h"
#include "library/serving.h"
#include "runtime/config.h"
#include "runtime/launch.h"

#include <elf.h>
#include <math.h>
#include <stdlib.h>

enum { VERSIONS = 6, KB = 1024, STATIC_BYTES = 16 * KB };

/* v37 requires contiguous tensors of one shape, attention/mma_sync has two configs, attention/wgmma requires sm_90a. */
static const char WHOLE_BLOCKS[] = "(FP16, 128, 128, 64, 4): async+load_0_0_0_tiles";
static const char LARGE[] = "(FP16, 128, 256, 64, 8): mma_sync+stages_4";
static const char SMALL[] = "(FP16, 128, 128, 32, 4): mma_sync+stages_2";
static const char HOPPER[] = "(FP16, 128, 128, 128, 8): wgmma+stages_2";

/* A cubin that says of one kernel how much static shared memory it has. */
struct cubin {
    Elf64_Ehdr header;
    Elf64_Shdr sections[2];
    char names[300];
};

struct made_up {
    struct cubin cubin; /* of LARGE */
    struct code_image sm_80[2], sm_90a[1];
    struct fl_library library;
    struct embedded versions[VERSIONS];
    struct version abouts[VERSIONS];
    struct instance instances[VERSIONS][5];
};

static struct kernel_config parse(const char *text) {
    struct failure failure;
    struct kernel_config config;
    if (config_parse(text, &config, &failure)) {
        printf("Bail out! %s\n", failure.text);
        exit(1);
    }
    return config;
}

static void add(struct made_up *made, const char *version, const char *own, const char *other, const char *exact) {
    const size_t index = made->library.count++;
    struct embedded *const embedded = &made->versions[index];
    made->abouts[index] = (struct version){.version = version, .name = version, .config = own, .others = ""};
    made->instances[index][0] = (struct instance){.config = parse(own), .symbol = own};
    size_t count = 1;
    if (other) {
        /* Others of its size come first: they are for another type and for other heads. */
        for (; count < 4; count++) made->instances[index][count] = (struct instance){parse(other), .symbol = other};
        made->instances[index][1].config.dtype = BF16;
        made->instances[index][1].symbol = "the one for bf16";
        made->instances[index][2].config.d_head = 64;
        made->instances[index][2].symbol = "the one for heads of 64";
    }
    *embedded = (struct embedded){.about = &made->abouts[index],
                                  .table = {made->instances[index], count},
                                  .n_own = 1,
                                  .code = {.images = exact ? made->sm_90a : made->sm_80,
                                           .count = exact ? 1 : 2,
                                           .version = version,
                                           .arch = exact ? exact : "sm_80",
                                           .exact = exact,
                                           .holder = "this library",
                                           .goal = version,
                                           .instead = ""}};
    embedded->own[0] = parse(own);
}

static void make(struct made_up *made) {
    struct cubin *const cubin = &made->cubin;
    const struct code_image image = {"sm_80", (const void *)cubin, sizeof *cubin};
    *made = (struct made_up){.sm_80 = {image, image}, .sm_90a = {image}};
    made->sm_80[1].kind = "sm_90";
    made->sm_90a[0].kind = "sm_90a";
    const Elf64_Shdr names = {.sh_name = sizeof cubin->names - 1, /* "" */
                              .sh_type = SHT_STRTAB,
                              .sh_offset = offsetof(struct cubin, names),
                              .sh_size = sizeof cubin->names},
                     shared = {.sh_type = SHT_NOBITS, .sh_size = STATIC_BYTES};
    *cubin = (struct cubin){.header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                                       .e_machine = 190,
                                       .e_shoff = offsetof(struct cubin, sections),
                                       .e_shnum = 2},
                            .sections = {names, shared}};
    snprintf(cubin->names, sizeof cubin->names, ".nv.shared.%s", LARGE);
    made->library.versions = made->versions;
    add(made, "v37", WHOLE_BLOCKS, NULL, NULL);
    add(made, "attention/mma_sync", LARGE, SMALL, NULL);
    add(made, "attention/wgmma", HOPPER, NULL, "sm_90a");
}

static struct call call_of(const char *version) {
    struct failure failure;
    struct call call;
    fl_problem problem = {.size = sizeof problem, .device = -1, .batch = 1, .heads = 2, .kv_heads = 2, .d_head = 128};
    problem.seq_q = problem.seq_k = 256;
    problem.version = version;
    if (call_read(&problem, &call, &failure)) {
        printf("Bail out! %s\n", failure.text);
        exit(1);
    }
    return call;
}

static const struct gpu_target H200 = {"H200", "", 9, 0, 227 * KB}, A100 = {"A100", "", 8, 0, 163 * KB},
                               SMALLEST = {"small", "", 8, 6, 48 * KB}, NEWER = {"newer", "", 10, 0, 227 * KB},
                               L4 = {"L4", "", 8, 9, 99 * KB}, RTX_5090 = {"RTX 5090", "", 12, 0, 99 * KB},
                               GB10 = {"GB10", "", 12, 1, 99 * KB};

static void chosen(const struct made_up *made, const struct call *call, const struct gpu_target *target,
                   const char *version, const char *symbol, const char *what) {
    struct choice choice;
    struct failure failure = {""};
    const fl_status status = choose(&made->library, call, target, &choice, &failure);
    ok(!status && !strcmp(choice.version->about->version, version) && !strcmp(choice.instance->symbol, symbol),
       "%s: %s %s", what, version, status ? failure.text : "");
}

static void refused(const struct made_up *made, const struct call *call, const struct gpu_target *target,
                    fl_status expected, const char *words) {
    struct choice choice;
    struct failure failure = {""};
    const fl_status status = choose(&made->library, call, target, &choice, &failure);
    ok(status == expected, "status %d", status);
    says(failure.text, words, "the reason");
}

static void best(const struct made_up *made) {
    struct call call = call_of(NULL);
    struct choice choice;
    struct failure failure;
    chosen(made, &call, &H200, "attention/wgmma", HOPPER, "on an H200, by the committed order");
    ok(!choose(&made->library, &call, &H200, &choice, &failure) && choice.best && choice.measured, "it is measured");
    ok(!choose(&made->library, &call, &A100, &choice, &failure) && choice.best && !choice.measured &&
           choice.ranked_major == 9,
       "on an A100 the order of 9.0 is followed");
    call.problem.seq_q = call.problem.seq_k = 250;
    chosen(made, &call, &H200, "attention/wgmma", HOPPER, "any length");
    chosen(made, &call, &A100, "attention/mma_sync", SMALL, "a GPU that cannot hold the version's own config");
    chosen(made, &call, NULL, "attention/mma_sync", LARGE, "the emulator takes kernels for sm_80 first");
    call.problem.seq_q = call.problem.seq_k = 256;
    float lse;
    call.tensors.lse = &lse;
    chosen(made, &call, &H200, "attention/wgmma", HOPPER, "log-sum-exp");
    call.tensors.lse = NULL, call.strided = true;
    chosen(made, &call, &H200, "attention/wgmma", HOPPER, "strides in device memory");
    call.problem.version = "v37", call.problem.memory = FL_HOST_MEMORY;
    chosen(made, &call, &H200, "v37", WHOLE_BLOCKS, "strides in host memory: it is packed");
}

/* Shared memory counts with its static part. */
static void shared_memory(const struct made_up *made) {
    const struct kernel_config large = parse(LARGE);
    const int most = launch_smem_bytes(&large) + STATIC_BYTES;
    const struct gpu_target just = {"just", "", 8, 0, most}, less = {"less", "", 8, 0, most - 1};
    struct call call = call_of("attention/mma_sync");
    chosen(made, &call, &just, "attention/mma_sync", LARGE, "as much shared memory as it needs");
    chosen(made, &call, &less, "attention/mma_sync", SMALL, "a byte less");
    call.problem.config = LARGE;
    refused(made, &call, &less, FL_UNAVAILABLE,
            "mma_sync+stages_4 needs 225344 bytes of shared memory per CTA, 16384 of them static: less "
            "has 225343; use a smaller B_r or B_c");
}

static void reasons(const struct made_up *made) {
    struct call call = call_of(NULL);
    call.problem.causal = 1;
    refused(made, &call, &SMALLEST, FL_UNAVAILABLE, "of them static: small has 49152");
    refused(made, &call, &NEWER, FL_UNAVAILABLE, "sm_90; build with: make ARCHS=\"80 90 100\" attention.mma_sync");
    call.problem.d_head = call.problem.d_head_v = 80;
    refused(made, &call, &H200, FL_UNSUPPORTED, "d_head 80: the kernels of this library support 128");
    call = call_of("v37"), call.scaled = true, call.problem.scale = 0.5f;
    refused(made, &call, &H200, FL_UNSUPPORTED,
            "scale 0.5: v37 multiplies scores by 1 / sqrt(d_head); attention/mma_sync accepts a");
    call.scaled = false, call.strided = true;
    refused(made, &call, &H200, FL_UNSUPPORTED,
            "strides: v37 requires contiguous tensors (bshd); attention/mma_sync accepts strides");
    call.strided = false, call.problem.seq_k = 384;
    refused(made, &call, &H200, FL_UNSUPPORTED, "seq_q 256, seq_k 384: v37 requires as many keys as queries");
    call.problem.seq_q = call.problem.seq_k = 100;
    refused(made, &call, &H200, FL_UNSUPPORTED, "seq_q 100: must be a multiple of B_r = 128");
    call = call_of("attention/wgmma");
    refused(made, &call, &A100, FL_UNAVAILABLE, "attention/wgmma was built for sm_90a");
    call = call_of("attention/mma_sync"), call.problem.config = LARGE;
    refused(made, &call, &A100, FL_UNAVAILABLE, "16384 of them static: A100 has");
    call.problem.config = SMALL;
    chosen(made, &call, &A100, "attention/mma_sync", SMALL, "by its short form");
}

/* A library of versions that all compute the same, under other names. */
static void make_equals(struct made_up *made, size_t count, const char *const *names) {
    make(made);
    made->library.count = 0;
    for (size_t i = 0; i < count; i++) add(made, names[i], SMALL, NULL, NULL);
}

/* The library chooses the kernel that the ranking of the measured case names first, whatever their order. */
static void rankings(void) {
    for (size_t i = 0; i < sizeof RANKINGS / sizeof *RANKINGS; i++) {
        const struct ranking *const row = &RANKINGS[i];
        char names[2][32];
        const int read = sscanf(row->versions, "%31s %31s", names[0], names[1]);
        for (int order = 0; order < 2 && read == 2; order++) {
            const char *const both[] = {names[order], names[1 - order]};
            struct gpu_target target = H200;
            struct made_up made;
            make_equals(&made, 2, both);
            for (int v = 0; v < 2; v++) {
                made.instances[v][0].config.d_head = made.versions[v].own[0].d_head = row->d_head;
                made.instances[v][0].symbol = LARGE; /* the cubin's */
            }
            struct call call = call_of(NULL);
            call.problem.d_head = call.problem.d_head_v = row->d_head, call.problem.causal = row->causal;
            target.major = row->major, target.minor = row->minor;
            chosen(&made, &call, &target, names[0], LARGE, row->versions);
        }
        ok(read == 2, "d_head %d, causal %d: two kernels were measured", row->d_head, row->causal);
    }
}

/* Versions that nobody has measured come last: first other names, of these those for one architecture, then numbers. */
static void not_measured(void) {
    static const char *const names[] = {"v900", "v902", "v901", "attention/mma_sync"};
    static const char *const living[] = {"v900", "attention/new", "attention/newer", "attention/wgm"};
    struct call call = call_of(NULL);
    struct made_up made;
    struct choice choice;
    struct failure failure;
    make_equals(&made, 3, names);
    chosen(&made, &call, &H200, "v902", SMALL, "the newest of three");
    ok(!choose(&made.library, &call, &H200, &choice, &failure) && choice.best && !choice.measured, "none is measured");
    make_equals(&made, 4, names);
    chosen(&made, &call, &H200, "attention/mma_sync", SMALL, "one that is measured before newer ones that are not");
    make_equals(&made, 2, living);
    chosen(&made, &call, &H200, "attention/new", SMALL, "a name without a number before versions");
    add(&made, living[2], SMALL, NULL, "sm_90a");
    chosen(&made, &call, &H200, "attention/newer", SMALL, "for this GPU alone");
    add(&made, "attention/mma_sync", SMALL, NULL, NULL);
    chosen(&made, &call, &H200, "attention/mma_sync", SMALL, "one that is measured before all of them");
    make_equals(&made, 1, &living[3]);
    ok(!choose(&made.library, &call, &H200, &choice, &failure) && !choice.measured,
       "the beginning of a measured name is another name");
}

/* Whole names come before those that callers of FL_ABI 1 know. */
static void short_names(void) {
    static const char *const names[] = {"attention/mma_sync", "attention/v37", "v37"};
    struct made_up made;
    struct call call;
    make_equals(&made, 3, names);
    for (int i = 0; i < 3; i++) {
        call = call_of(names[i]);
        chosen(&made, &call, &H200, names[i], SMALL, "a whole name");
    }
    call = call_of("mma_syn");
    chosen(&made, &call, &H200, "attention/mma_sync", SMALL, "7 characters of the name");
    call = call_of("mma_sync");
    refused(&made, &call, &H200, FL_INVALID, "version 'mma_sync': this library contains attention/mma_sync ");
}

/* Each removed version is rejected with the kernel that replaces it, and its neighbors as any unknown name. */
static void removed(const struct made_up *made) {
    static const char *const cases[][2] = {
        {"v38", "version 'v38': was removed from the ladder; use attention/mma_sync"},
        {"v42", "version 'v42': was removed from the ladder; use attention/wgmma"},
        {"v36", "version 'v36': this library contains v37 "},
        {"v53", "version 'v53': this library contains v37 "},
        {"v4x", "version 'v4x': this library contains v37 "},
        {"v042", "version 'v042': this library contains v37 "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct call call = call_of(cases[i][0]);
        refused(made, &call, &H200, FL_INVALID, cases[i][1]);
    }
}

/* A kernel whose CTAs share out keys: the first for few rows, in which the heads of a group count, else the last. */
static void few_rows(void) {
    static const char decode[] = "(FP16, 128, 16, 64, 4): mma_sync+tensor+stages_3";
    static const struct {
        int32_t seq_q, heads, kv_heads, batch, seq_k;
        bool few;
    } cases[] = {{1, 8, 2, 1, 256, true},    {4, 8, 2, 9, 256, true},    {5, 8, 2, 1, 256, false},
                 {16, 3, 3, 1, 256, true},   {17, 3, 3, 1, 1023, false}, {1, 32, 1, 1, 256, false},
                 {17, 3, 3, 1, 1024, true},  {32, 8, 8, 4, 4096, true},  {32, 8, 8, 5, 4096, false},
                 {33, 8, 8, 4, 4096, false}, {1024, 1, 1, 1, 4096, true}};
    struct made_up made;
    struct choice choice;
    struct failure failure;
    make(&made);
    add(&made, "attention/decode", decode, NULL, "sm_90a");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct call call = call_of(NULL);
        call.problem.seq_q = cases[i].seq_q, call.problem.seq_k = cases[i].seq_k, call.problem.batch = cases[i].batch;
        call.problem.heads = cases[i].heads, call.problem.kv_heads = cases[i].kv_heads;
        chosen(&made, &call, &H200, cases[i].few ? "attention/decode" : "attention/wgmma",
               cases[i].few ? decode : HOPPER, "rows");
        ok(!choose(&made.library, &call, &H200, &choice, &failure) && choice.few_rows == cases[i].few, "and why");
        chosen(&made, &call, &A100, "attention/mma_sync", SMALL, "another GPU");
        chosen(&made, &call, NULL, "attention/mma_sync", LARGE, "the emulator");
    }
    make_equals(&made, 0, NULL);
    add(&made, "attention/decode", decode, NULL, "sm_90a");
    const struct call many = call_of(NULL);
    chosen(&made, &many, &H200, "attention/decode", decode, "many rows, where there is no other");
}

/* CTAs share out keys only where that is faster. In each row: sequences, their keys, and the keys of a part. */
static void parts_of_keys(void) {
    static const int32_t cases[][3] = {{1, 128, 0}, {1, 512, 32}, {32, 512, 0}, {32, 4096, 1024}};
    static const char MLA[] = "(FP16, 576, 64, 32, 8): wgmma+stages_2+exp_16+serve+extend+dv_512";
    struct kernel_config config;
    struct failure failure;
    const bool read = !config_parse(MLA, &config, &failure);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fl_problem problem = {.seq_k = cases[i][1]};
        extended_args args = {.serving.attention = {.batch = cases[i][0], .heads = 1, .KV_heads = 1, .seq_q = 64}};
        serving_fit(&config, &problem, 132, &args);
        ok(read && args.serving.split_keys == cases[i][2], "%d of %d keys", cases[i][0], cases[i][1]);
    }
}

/* The kernels of e4m3: one for Hopper, one for 12.0, and one for 8.9 and newer. */
static void products_of_e4m3(void) {
#define OF_MMA                                                                                                         \
    "(FP16, 128, 128, 64, 8): fp8_mma_sync+stages_4+flush_1+rounded_l+any_length+causal+persistent+tickets+grouped"
    static const char HOPPERS[] = "(FP16, 128, 192, 96, 12): fp8_wgmma+stages_2+any_length", OTHERS[] = OF_MMA,
                      SCALED[] = OF_MMA "+scaled";
    struct call call = call_of(NULL);
    struct made_up made;
    make(&made);
    struct code_image images[] = {made.sm_80[0], made.sm_80[0], made.sm_80[0]};
    images[0].kind = "sm_89", images[1].kind = "sm_120", images[2].kind = "sm_120a";
    add(&made, "attention/fp8_mma_sync", OTHERS, NULL, NULL);
    add(&made, "attention/fp8", HOPPERS, NULL, "sm_90a");
    add(&made, "attention/fp8_mma_scaled", SCALED, NULL, "sm_120a");
    made.versions[3].code.images = images, made.versions[3].code.arch = "sm_89",
    made.versions[5].code.images = images + 2;
    call.problem.q_dtype = call.problem.kv_dtype = FL_E4M3;
    chosen(&made, &call, &L4, "attention/fp8_mma_sync", OTHERS, "an L4");
    chosen(&made, &call, &RTX_5090, "attention/fp8_mma_scaled", SCALED, "an RTX 5090");
    chosen(&made, &call, &GB10, "attention/fp8_mma_sync", OTHERS, "a GB10");
    chosen(&made, &call, &H200, "attention/fp8", HOPPERS, "an H200");
    chosen(&made, &call, NULL, "attention/fp8", HOPPERS, "the emulator");
    refused(&made, &call, &A100, FL_UNAVAILABLE,
            "A100: has compute capability 8.0; attention/fp8_mma_sync needs at least 8.9, for mma.sync of e4m3");
}

/* ---- gradients ---- */

static void gradients_by(const struct made_up *made, const char *version, bool in_order,
                         const struct gpu_target *target, const char *symbol) {
    const struct call call = call_of(version);
    struct choice choice;
    struct failure failure = {""};
    const fl_status status = gradients_choose(&made->library, &call, in_order, target, &choice, &failure);
    ok(!status && !strcmp(choice.instance->symbol, symbol), "%s: gradients by %s %s",
       target ? target->name : "emulator", symbol, status ? failure.text : "");
}

/* An H200 has a kernel of its own; any other GPU takes the first form of the other kernel that fits. Deterministic
 * gradients have instances of their own, on other GPUs only with the flag serve; the workspace that is asked for fits
 * either call. */
static void gradients(void) {
    static const char
        ANY[] = "(FP16, 128, 128, 128, 8): backward_wgmma+dq_sums+stages_2+tensor+causal+any_length",
        ORDERED[] = "(FP16, 128, 64, 128, 16): backward_wgmma+dq_sums+in_order+stages_3+tensor+causal+any_length",
        FORMS[5][110] = {"(FP16, 128, 128, 128, 8): backward_mma_sync+dq_sums+stages_2+causal+any_length",
                         "(FP16, 128, 128, 128, 8): backward_mma_sync+dq_sums+causal+any_length",
                         "(FP16, 128, 64, 64, 4): backward_mma_sync+dq_sums+stages_2+causal+any_length",
                         "(FP16, 128, 128, 128, 8): backward_mma_sync+dq_sums+in_order+causal+any_length+serve",
                         "(FP16, 128, 64, 64, 4): backward_mma_sync+dq_sums+in_order+stages_2+causal+any_length+serve"};
    static const struct gpu_target whole = {"whole", "", 8, 0, 227 * KB};
    const struct call call = call_of(NULL);
    struct made_up made;
    struct choice choice;
    struct failure failure;
    make(&made);
    add(&made, "attention/backward", ANY, NULL, "sm_90a");
    add(&made, "attention/backward_mma_sync", FORMS[0], NULL, NULL);
    made.library.backward = &made.versions[3], made.library.backward_count = 2, made.library.count = 3;
    made.instances[3][1] = (struct instance){.config = parse(ORDERED), .symbol = ORDERED};
    made.versions[3].table.count = 2;
    for (int i = 0; i < 5; i++) made.instances[4][i] = (struct instance){.config = parse(FORMS[i]), .symbol = FORMS[i]};
    made.versions[4].table.count = 5;
    gradients_by(&made, NULL, false, &H200, ANY);
    gradients_by(&made, NULL, false, NULL, ANY);
    gradients_by(&made, NULL, false, &whole, FORMS[0]);
    gradients_by(&made, NULL, false, &A100, FORMS[1]);
    gradients_by(&made, NULL, false, &L4, FORMS[2]);
    gradients_by(&made, "attention/backward_mma_sync", false, &H200, FORMS[0]);
    gradients_by(&made, NULL, true, &H200, ORDERED);
    gradients_by(&made, NULL, true, &A100, FORMS[3]);
    gradients_by(&made, NULL, true, &L4, FORMS[4]);
    ok(gradients_choose(&made.library, &call, true, &SMALLEST, &choice, &failure) == FL_UNAVAILABLE, "48 KB");
    ok(gradients_choose(&made.library, &call, false, &SMALLEST, &choice, &failure) == FL_UNAVAILABLE, "48 KB");
    says(failure.text, "needs 99232 bytes of shared memory per CTA, 0 of them static: small has 49152", "the least");
    const fl_status status = gradients_query(&made.library, &call, &H200, &choice, &failure);
    const int64_t least = gradients_workspace_bytes(&made.instances[3][1].config, &call);
    ok(!status && !strcmp(choice.instance->symbol, ANY) && choice.workspace_bytes >= least && least > 0 &&
           choice.workspace_bytes >= gradients_workspace_bytes(&choice.instance->config, &call),
       "%d bytes are enough in order, too, which needs %d", (int)choice.workspace_bytes, (int)least);
}

int main(void) {
    struct made_up made;
    make(&made);
    best(&made);
    shared_memory(&made);
    reasons(&made);
    rankings();
    not_measured();
    short_names();
    removed(&made);
    few_rows();
    parts_of_keys();
    products_of_e4m3();
    gradients();
    return tap_done();
}
