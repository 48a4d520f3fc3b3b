/* test_choice.c - which of some made-up versions runs a problem, on which GPU, and the sentence where none does. */
#include "common/tests/tap.h"
#include "library/choice.h"
#include "runtime/config.h"

#include <elf.h>
#include <stdlib.h>

enum { VERSIONS = 3, KB = 1024, STATIC_BYTES = 16 * KB };

/* v37 for contiguous tensors of one shape, v41 with a large and a small config, v46 for sm_90a alone. */
static const char WHOLE_BLOCKS[] = "(FP16, 128, 128, 64, 4): async+load_0_0_0_tiles";
static const char LARGE[] = "(FP16, 128, 256, 64, 8): async+load_2_2_2_tiles+stages_4+padded+any_length+causal+grouped";
static const char SMALL[] = "(FP16, 128, 128, 32, 4): async+load_2_2_2_tiles+stages_2+padded+any_length+causal+grouped";
static const char HOPPER[] = "(FP16, 128, 128, 128, 8): load_0_0_0_tiles+stages_2+tensor+any_length+causal+grouped";

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
    struct instance instances[VERSIONS][2];
};

static KernelConfig parse(const char *text) {
    struct failure failure;
    KernelConfig config;
    if (config_parse(text, &config, &failure)) {
        printf("Bail out! %s\n", failure.text);
        exit(1);
    }
    return config;
}

static void add(struct made_up *made, const char *version, const char *own, const char *other, const char *exact) {
    const size_t place = made->library.count++;
    struct embedded *const embedded = &made->versions[place];
    made->abouts[place] = (struct version){.version = version, .name = version, .config = own, .others = ""};
    made->instances[place][0] = (struct instance){.config = parse(own), .symbol = own};
    if (other) made->instances[place][1] = (struct instance){.config = parse(other), .symbol = other};
    *embedded = (struct embedded){.about = &made->abouts[place],
                                  .table = {made->instances[place], other ? 2 : 1},
                                  .n_own = 1,
                                  .code = {.images = exact ? made->sm_90a : made->sm_80,
                                           .count = exact ? 1 : 2,
                                           .version = version,
                                           .exact = exact,
                                           .holder = "this library",
                                           .goal = "lib",
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
    add(made, "v41", LARGE, SMALL, NULL);
    add(made, "v46", HOPPER, NULL, "sm_90a");
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
                               SMALLEST = {"small", "", 8, 6, 48 * KB}, NEWER = {"newer", "", 10, 0, 227 * KB};

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
    chosen(made, &call, &H200, "v37", WHOLE_BLOCKS, "whole blocks on an H200, by the committed order");
    ok(!choose(&made->library, &call, &H200, &choice, &failure) && choice.best && choice.measured, "it is measured");
    ok(!choose(&made->library, &call, &A100, &choice, &failure) && choice.best && !choice.measured &&
           choice.ranked_major == 9,
       "on an A100 the order of 9.0 is followed");
    call.problem.seq_q = call.problem.seq_k = 250;
    chosen(made, &call, &H200, "v46", HOPPER, "any length");
    chosen(made, &call, &A100, "v41", SMALL, "a GPU that cannot hold the version's own config");
    chosen(made, &call, NULL, "v41", LARGE, "the emulator takes versions for sm_80 first");
    call.problem.seq_q = call.problem.seq_k = 256;
    float lse;
    call.tensors.lse = &lse;
    chosen(made, &call, &H200, "v46", HOPPER, "log-sum-exp");
    call.tensors.lse = NULL;
    call.strided = true;
    chosen(made, &call, &H200, "v46", HOPPER, "strides in device memory");
    call.problem.memory = FL_HOST_MEMORY;
    chosen(made, &call, &H200, "v37", WHOLE_BLOCKS, "strides in host memory: it is packed");
}

/* Shared memory counts with its static part. */
static void shared_memory(const struct made_up *made) {
    const KernelConfig large = parse(LARGE);
    const int most = config_smem_bytes(&large) + STATIC_BYTES;
    const struct gpu_target just = {"just", "", 8, 0, most}, less = {"less", "", 8, 0, most - 1};
    struct call call = call_of("v41");
    chosen(made, &call, &just, "v41", LARGE, "as much shared memory as it needs");
    chosen(made, &call, &less, "v41", SMALL, "a byte less");
    call.problem.config = LARGE;
    refused(made, &call, &less, FL_UNAVAILABLE,
            "padded+any_length+causal+grouped needs 225344 bytes of shared memory per CTA, 16384 of them static: less "
            "has 225343; take a smaller B_r or B_c");
}

static void reasons(const struct made_up *made) {
    struct call call = call_of(NULL);
    call.problem.causal = 1;
    refused(made, &call, &SMALLEST, FL_UNAVAILABLE, "of them static: small has 49152");
    refused(made, &call, &NEWER, FL_UNAVAILABLE, "no machine code for newer, compute capability 10.0; this library");
    call.problem.d_head = 80;
    refused(made, &call, &H200, FL_UNSUPPORTED, "d_head 80: the versions of this library are for 128");
    call = call_of("v37");
    call.scaled = true;
    refused(made, &call, &H200, FL_UNSUPPORTED, "v37 multiplies scores by 1 / sqrt(d_head); v38 is the first");
    call.scaled = false;
    call.strided = true;
    refused(made, &call, &H200, FL_UNSUPPORTED, "strides: v37 takes contiguous tensors (bshd); v38 is the first");
    call.strided = false;
    call.problem.seq_q = call.problem.seq_k = 100;
    refused(made, &call, &H200, FL_UNSUPPORTED, "seq_q 100: must be a multiple of B_r = 128");
    call = call_of("v46");
    refused(made, &call, &A100, FL_UNAVAILABLE, "v46 is for sm_90a alone");
    call = call_of("v41");
    call.problem.config = LARGE;
    refused(made, &call, &A100, FL_UNAVAILABLE, "16384 of them static: A100 has");
    call.problem.config = SMALL;
    chosen(made, &call, &A100, "v41", SMALL, "by its short form");
}

int main(void) {
    struct made_up made;
    make(&made);
    best(&made);
    shared_memory(&made);
    reasons(&made);
    return tap_done();
}
