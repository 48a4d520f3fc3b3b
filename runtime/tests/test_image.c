/* test_image.c - embedded code: instances found in PTX, kernels found in cubins, broken images refused. */
#include "common/tests/tap.h"
#include "runtime/config.h"
#include "runtime/image.h"
#include "runtime/sha256.h"

#include <elf.h>
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
    struct kernel_config config = table.instances[1].config;
    ok(instance_find(&table, &config) == &table.instances[1], "an instance is found by its configuration");
    config.ladder.swizzled = true;
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
    static const struct {
        struct code_image images[2];
        const char *kind;
    } pairs[] = {{{{"sm_90", NULL, 0}, {"sm_90a", NULL, 0}}, "sm_90a"},
                 {{{"sm_90a", NULL, 0}, {"sm_90", NULL, 0}}, "sm_90a"},
                 {{{"sm_86", NULL, 0}, {"sm_80", NULL, 0}}, "sm_86"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const struct code_image *const both = pairs[i].images;
        const struct code_image *image = image_for_gpu(both, 2, both[0].kind[3] - '0', i < 2 ? 0 : 9);
        ok(image && !strcmp(image->kind, pairs[i].kind), "of %s and %s: %s", both[0].kind, both[1].kind,
           image ? image->kind : "none");
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

/* ---- cubins made here, section by section ---- */

enum {
    SHSTRTAB,
    STRTAB,
    SYMTAB,
    INFO,
    TEXT,
    BANK_3,
    BANK_2,
    OTHER_BANK,
    BANK_0,
    SHARED,
    OTHER_SHARED,
    RESERVED,
    SECTIONS
};

struct made {
    Elf64_Ehdr header;
    Elf64_Shdr sections[SECTIONS];
    char names[300], strings[16];
    Elf64_Sym symbols[3];
    unsigned char info[24], text[128], bank_3[8], bank_2[8], other_bank[8], bank_0[8];
};

/* A cubin of a kernel, "k", with 40 registers and 2000 bytes of shared memory besides the driver's; tests change it. */
static struct made make_cubin(void) {
    static const char *const names[SECTIONS] = {".shstrtab",       ".strtab",          ".symtab",
                                                ".nv.info",        ".text.k",          ".nv.constant3.k",
                                                ".nv.constant2.k", ".nv.constant2.kk", ".nv.constant0.k",
                                                ".nv.shared.k",    ".nv.shared.kk",    ".nv.shared.reserved.0"};
    static const size_t offsets[SECTIONS] = {
        offsetof(struct made, names),  offsetof(struct made, strings),    offsetof(struct made, symbols),
        offsetof(struct made, info),   offsetof(struct made, text),       offsetof(struct made, bank_3),
        offsetof(struct made, bank_2), offsetof(struct made, other_bank), offsetof(struct made, bank_0)};
    static const size_t sizes[SECTIONS] = {300, 16, 3 * sizeof(Elf64_Sym), 24, 128, 8, 8, 8, 8, 3024, 5000, 0};
    struct made made = {.header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                                   .e_machine = 190,
                                   .e_shoff = offsetof(struct made, sections),
                                   .e_shnum = SECTIONS,
                                   .e_shstrndx = SHSTRTAB},
                        .strings = "\0k\0object",
                        /* format 4, attribute, 16-bit length, symbol, number */
                        .info = {4, 0x12, 8, 0, 2, 0, 0, 0, 99, 0, 0, 0, 4, 0x2f, 8, 0, 2, 0, 0, 0, 40, 0, 0, 0}};
    for (int i = 0, at = 1; i < SECTIONS; i++) {
        made.sections[i] = (Elf64_Shdr){
            .sh_name = (Elf64_Word)at, .sh_type = SHT_PROGBITS, .sh_offset = offsets[i], .sh_size = sizes[i]};
        at += 1 + snprintf(made.names + at, sizeof made.names - (size_t)at, "%s", names[i]);
    }
    for (int i = SHARED; i <= RESERVED; i++) made.sections[i].sh_type = SHT_NOBITS;
    made.symbols[1] = (Elf64_Sym){.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT)};
    made.symbols[2] = (Elf64_Sym){.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC)};
    memset(made.text, 1, sizeof made.text);
    memset(made.bank_3, 3, sizeof made.bank_3);
    memset(made.bank_2, 2, sizeof made.bank_2);
    return made;
}

/* Data read from the cubin, of which `size` bytes are there; registers are 0 and the hash empty where it is refused.
 */
static struct kernel_code read_made(const struct made *made, size_t size, struct failure *failure) {
    struct kernel_code code = {0};
    unsigned char *copy = malloc(size); /* of just that size: the sanitizers see a read past it */
    memcpy(copy, made, size);
    const struct code_image image = {"sm_80", copy, size};
    int bytes = 0;
    const enum status status = image_static_smem(&image, "k", &bytes, failure);
    if (image_kernel_code(&image, "k", &code, failure))
        code = (struct kernel_code){0};
    else
        ok(!status && bytes == code.static_smem, "alone: %d bytes of static shared memory", bytes);
    free(copy);
    return code;
}

static bool is_refused(const struct made *made, size_t size, const char *word) {
    struct failure failure = {""};
    const struct kernel_code code = read_made(made, size, &failure);
    return !code.hash[0] && strstr(failure.text, word);
}

static void made_cubins(void) {
    const struct made good = make_cubin();
    struct made made = good;
    struct failure failure;
    struct sha256 hash;
    unsigned char digest[32];
    char hex[17];
    sha256_begin(&hash);
    sha256_add(&hash, good.text, sizeof good.text);
    sha256_add(&hash, good.bank_2, sizeof good.bank_2);
    sha256_add(&hash, good.bank_3, sizeof good.bank_3);
    sha256_end(&hash, digest);
    for (int k = 0; k < 8; k++) snprintf(hex + 2 * k, 3, "%02x", digest[k]);
    struct kernel_code code = read_made(&good, sizeof good, &failure);
    ok(code.code_bytes == 128, "a cubin made here is read");
    ok(!strcmp(code.hash, hex), "the hash is that of the code and of its constant banks but 0, in rising order");
    ok(code.registers == 40, "the registers are those of the symbol that is the function: %d", code.registers);

    ok(code.static_smem == 2000, "static shared memory without the driver's own: %d", code.static_smem);
    made.sections[RESERVED].sh_name = 0;
    ok(read_made(&made, sizeof made, &failure).static_smem == 3024, "all of it where the driver's has no section");
    made.sections[SHARED].sh_name = 0;
    ok(read_made(&made, sizeof made, &failure).static_smem == 0, "none of another kernel");
    made = good;
    made.sections[SHARED].sh_size = 1000;
    ok(read_made(&made, sizeof made, &failure).static_smem == 0, "and never less than none");

    struct {
        struct made made;
        unsigned char odd, sections[sizeof good.sections];
    } moved = {.made = good};
    moved.made.header.e_shoff = offsetof(struct made, header) + sizeof good + 1;
    memcpy(moved.sections, good.sections, sizeof good.sections);
    ok(read_made(&moved.made, sizeof moved, &failure).registers == 40,
       "section headers at an odd offset, as of sm_120");

    made.sections[TEXT].sh_info = 50u << 24 | 2;
    ok(read_made(&made, sizeof made, &failure).registers == 40, "the attribute goes before the section header");
    made.info[13] = 0x30;
    ok(read_made(&made, sizeof made, &failure).registers == 50, "which serves where there is no attribute");
    made = good;
    made.info[16] = 1;
    ok(read_made(&made, sizeof made, &failure).registers == 0, "the registers of another symbol do not count");
    made = good;
    made.sections[TEXT].sh_info = 50u << 24;
    made.info[14] = 9;
    ok(read_made(&made, sizeof made, &failure).registers == 50, "nor a record that ends past its section");
    made = good;
    made.sections[INFO].sh_size = 12 + 7;
    ok(read_made(&made, sizeof made, &failure).registers == 0, "nor one of which a part is missing");

#define REFUSED(change, word, what)                                                                                    \
    made = good;                                                                                                       \
    change;                                                                                                            \
    ok(is_refused(&made, sizeof made, word), "refused: %s", what)
    REFUSED(made.header.e_ident[EI_CLASS] = ELFCLASS32, "an incomplete cubin", "32 bits");
    REFUSED(made.header.e_machine = 62, "an incomplete cubin", "code for a CPU");
    REFUSED(made.header.e_ident[0] = 0, "an incomplete cubin", "no ELF file");
    REFUSED(made.header.e_shoff++, "an incomplete cubin", "section headers that begin a byte later");
    REFUSED(made.header.e_shnum = 60000, "an incomplete cubin", "more section headers than there is room for");
    REFUSED(made.header.e_shstrndx = SECTIONS, "an incomplete cubin", "no section of names");
    REFUSED(made.sections[BANK_0].sh_size = sizeof made, "an incomplete cubin", "a section that ends past the file");
    REFUSED(made.sections[BANK_0].sh_offset = sizeof made + 1, "an incomplete cubin", "one that begins past it");
    REFUSED(made.sections[SHSTRTAB].sh_size = 0, "an incomplete cubin", "names of no bytes");
    REFUSED(made.names[sizeof made.names - 1] = 'x', "an incomplete cubin", "names without an end");
    REFUSED(made.symbols[2].st_info = STT_OBJECT, "contains no kernel k", "a symbol that is no function");
    REFUSED(made.symbols[2].st_name = 3, "contains no kernel k", "a function of another name");
    REFUSED(made.sections[STRTAB].sh_size = 2, "contains no kernel k", "a name that ends past the table");
    REFUSED(made.sections[SYMTAB].sh_size -= 1, "contains no kernel k", "a symbol of which a byte is missing");
    REFUSED(made.sections[TEXT].sh_type = SHT_NOBITS, "contains no kernel k", "a kernel without code");
    for (int i = 0; i < SECTIONS; i++) {
        made = good;
        made.sections[i].sh_name = 0;
        const bool needed = i == STRTAB || i == SYMTAB || i == TEXT;
        ok(is_refused(&made, sizeof made, "contains no kernel k") == needed, "section %d is %sneeded", i,
           needed ? "" : "not ");
    }
    int refused = 0;
    for (size_t size = 0; size < sizeof good; size++) refused += is_refused(&good, size, "an incomplete cubin");
    ok(refused == sizeof good, "%d of %zu shorter ones are refused", refused, sizeof good);
    made = good;
    made.sections[BANK_0].sh_type = SHT_NOBITS;
    made.sections[BANK_0].sh_size = sizeof made;
    ok(read_made(&made, sizeof made, &failure).registers == 40, "a section without bytes takes no room in the file");
}

int main(void) {
    digests();
    entries();
    choice();
    embedded();
    made_cubins();
    return tap_done();
}
