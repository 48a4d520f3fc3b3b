/* test_image.c - embedded code: instances found in PTX, kernels found in cubins, broken images refused. */
#include "harness/config.h"
#include "harness/image.h"
#include "harness/sha256.h"
#include "harness/tests/tap.h"

#include <inttypes.h>
#include <stdlib.h>

#define SYMBOL(dtype)                                                                                                  \
    "_Z13flash_forwardIXtl12KernelConfigL5dtype" dtype                                                                 \
    "ELi128ELi64ELi64ELi4ELb1ELb0ELb0ELi0ELi0ELi0ELb0ELb0EEEEv12forward_args"

/* Known answers of FIPS 180-4's examples, and a text whose padding needs a block of its own. */
static void digests(void) {
    static const struct {
        const char *text, *start;
    } cases[] = {{"", "e3b0c44298fc1c14"},
                 {"abc", "ba7816bf8f01cfea"},
                 {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "248d6a61d20638b8"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sha256 hash;
        unsigned char digest[32];
        char hex[17];
        sha256_begin(&hash);
        for (const char *at = cases[i].text; *at; at++) sha256_add(&hash, at, 1);
        sha256_end(&hash, digest);
        for (int k = 0; k < 8; k++) snprintf(hex + 2 * k, 3, "%02x", digest[k]);
        ok(!strcmp(hex, cases[i].start), "sha256 of '%s' starts with %s", cases[i].text, hex);
    }
}

static struct code_image ptx_image(const char *text) {
    return (struct code_image){"ptx", (const unsigned char *)text, strlen(text)};
}

static void entries(void) {
    const char *good = ".version 8.0\n// .entry commented(\n.visible .entry " SYMBOL(
        "5") "(\n\t.param .b8 x\n)\n{ ret; }\n"
             "\t.entry " SYMBOL("15") " (\n)\n.weak .entry " SYMBOL("5") "(\n";
    struct code_image image = ptx_image(good);
    struct instance_table table;
    struct failure failure;
    ok(!instance_table_read(&table, &image, 1, &failure) && table.count == 3, "three entries are found");
    ok(table.count == 3 && table.instances[0].config.dtype == FP16 && table.instances[1].config.dtype == BF16 &&
           table.instances[1].entry == 1 && !strcmp(table.instances[1].symbol, SYMBOL("15")),
       "in the order of the PTX, with their configurations");
    KernelConfig config = table.instances[1].config;
    ok(instance_find(&table, &config) == &table.instances[1], "an instance is found by its configuration");
    config.swizzled = true;
    ok(instance_find(&table, &config) == NULL, "one that is not built is not");
    instance_table_free(&table);
    image = ptx_image(".visible .entry other(\n");
    ok(instance_table_read(&table, &image, 1, &failure) == STATUS_ERROR, "a foreign kernel is an error");
    says(failure.text, "other", "a foreign kernel");
    instance_table_free(&table);
    image = ptx_image(".version 8.0\n");
    ok(instance_table_read(&table, &image, 1, &failure) == STATUS_ERROR, "PTX without a kernel is an error");
    instance_table_free(&table);
    ok(instance_table_read(&table, &image, 0, &failure) == STATUS_ERROR, "no PTX is an error");
    instance_table_free(&table);
}

static void choice(void) {
    static const struct code_image images[] = {
        {"ptx", NULL, 0}, {"sm_80", NULL, 0}, {"sm_86", NULL, 0}, {"sm_90a", NULL, 0}, {"sm_120", NULL, 0}};
    static const struct {
        int major, minor;
        const char *kind;
    } cases[] = {
        {8, 0, "sm_80"}, {8, 6, "sm_86"}, {8, 9, "sm_86"},   {8, 5, "sm_80"},   {9, 0, "sm_90a"}, {9, 1, NULL},
        {7, 5, NULL},    {10, 0, NULL},   {12, 0, "sm_120"}, {12, 1, "sm_120"}, {0, 0, NULL}}; /* PTX is for no GPU */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct code_image *image = image_for_gpu(images, 5, cases[i].major, cases[i].minor);
        ok(cases[i].kind ? image && !strcmp(image->kind, cases[i].kind) : !image, "a GPU of capability %d.%d gets %s",
           cases[i].major, cases[i].minor, image ? image->kind : "none");
    }
    char text[40];
    image_kinds(images, 5, text, sizeof text);
    ok(!strcmp(text, "sm_80 sm_86 sm_90a sm_120"), "kinds: %s", text);
}

/* The code that this test is linked with: v01's. */
static void embedded(void) {
    struct instance_table table;
    struct failure failure;
    if (!ok(!instance_table_read(&table, fl_images, fl_image_count, &failure), "the embedded PTX is read")) return;
    ok(table.count >= 2, "it holds %zu instances", table.count);
    for (uint64_t i = 0; i < fl_image_count; i++) {
        if (!strcmp(fl_images[i].kind, "ptx")) {
            ok(fl_images[i].bytes[fl_images[i].size] == 0, "a zero byte follows the PTX");
            continue;
        }
        for (size_t k = 0; k < table.count; k++) {
            struct kernel_code code = {0};
            const enum status status = image_kernel_code(&fl_images[i], table.instances[k].symbol, &code, &failure);
            ok(!status && code.registers > 100 && code.registers <= 255 && code.code_bytes % 128 == 0 &&
                   strlen(code.hash) == 16,
               "%s instance %zu: %d registers, %" PRId64 " bytes, hash %s", fl_images[i].kind, k, code.registers,
               code.code_bytes, code.hash);
        }
        struct kernel_code code;
        ok(image_kernel_code(&fl_images[i], "nothing", &code, &failure) == STATUS_ERROR,
           "a missing kernel is an error");
        says(failure.text, "nothing", "a missing kernel");
    }
    instance_table_free(&table);
}

/* A constant bank of the kernel counts, but not bank 0, which holds the parameters: here it is renamed. */
static void constants(void) {
    struct instance_table table;
    struct failure failure;
    if (instance_table_read(&table, fl_images, fl_image_count, &failure)) return;
    for (uint64_t i = 0; i < fl_image_count; i++) {
        if (!strcmp(fl_images[i].kind, "ptx")) continue;
        struct code_image copy = fl_images[i];
        unsigned char *bytes = malloc(copy.size);
        char name[300];
        snprintf(name, sizeof name, ".nv.constant0.%s", table.instances[0].symbol);
        memcpy(bytes, copy.bytes, copy.size);
        copy.bytes = bytes;
        char *bank = memmem(bytes, copy.size, name, strlen(name) + 1);
        struct kernel_code before, after;
        if (ok(bank && !image_kernel_code(&copy, table.instances[0].symbol, &before, &failure), "%s: bank 0",
               copy.kind)) {
            bank[strlen(".nv.constant")] = '2';
            ok(!image_kernel_code(&copy, table.instances[0].symbol, &after, &failure) &&
                   strcmp(before.hash, after.hash) != 0,
               "%s: bank 2 changes the hash", copy.kind);
        }
        free(bytes);
    }
    instance_table_free(&table);
}

/* Cut and changed cubins: an error or an answer, never a read beyond the end (the sanitizers watch). */
static void broken(void) {
    const struct code_image *good = NULL;
    for (uint64_t i = 0; i < fl_image_count; i++)
        if (strcmp(fl_images[i].kind, "ptx") != 0) good = &fl_images[i];
    struct instance_table table;
    struct failure failure;
    if (!good || instance_table_read(&table, fl_images, fl_image_count, &failure)) return;
    uint64_t state = 1;
    int refused = 0, rounds = 0;
    for (uint64_t size = 0; size < good->size; size += 1 + good->size / 200, rounds++) {
        unsigned char *copy = malloc(size + 1);
        memcpy(copy, good->bytes, size);
        const struct code_image cut = {good->kind, copy, size};
        struct kernel_code code;
        refused += image_kernel_code(&cut, table.instances[0].symbol, &code, &failure) == STATUS_ERROR;
        free(copy);
    }
    ok(refused == rounds, "%d of %d cut cubins are refused", refused, rounds);
    for (rounds = 0; rounds < 300; rounds++) {
        unsigned char *copy = malloc(good->size);
        memcpy(copy, good->bytes, good->size);
        for (int change = 0; change < 20; change++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            /* the ELF header, then section headers and tables towards the end, where offsets and sizes stand */
            const uint64_t at =
                state & 1 << 20 ? (state >> 33) % 64 : good->size - 1 - (state >> 33) % (good->size / 4);
            copy[at] = (unsigned char)(state >> 55);
        }
        const struct code_image changed = {good->kind, copy, good->size};
        struct kernel_code code;
        (void)image_kernel_code(&changed, table.instances[0].symbol, &code, &failure);
        free(copy);
    }
    ok(true, "%d changed cubins are read or refused", rounds);
    instance_table_free(&table);
}

int main(void) {
    digests();
    entries();
    choice();
    embedded();
    constants();
    broken();
    return tap_done();
}
