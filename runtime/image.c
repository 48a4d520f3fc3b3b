#include "runtime/image.h"

#include "runtime/config.h"
#include "runtime/sha256.h"

#include <elf.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct code_image *image_find(const struct code_image *images, uint64_t count, const char *kind) {
    for (uint64_t i = 0; i < count; i++)
        if (!strcmp(images[i].kind, kind)) return &images[i];
    return NULL;
}

/* "sm_80" to 8 and 0; false for the PTX. A kind with a suffix ("sm_90a") runs on exactly that architecture. */
static bool kind_capability(const char *kind, int *major, int *minor, bool *exact) {
    char *end;
    if (strncmp(kind, "sm_", 3)) return false;
    const long number = strtol(kind + 3, &end, 10);
    *major = (int)number / 10;
    *minor = (int)number % 10;
    *exact = *end == 'a';
    return true;
}

const struct code_image *image_for_gpu(const struct code_image *images, uint64_t count, int major, int minor) {
    const struct code_image *best = NULL;
    int best_minor = -1;
    for (uint64_t i = 0; i < count; i++) {
        int has_major, has_minor;
        bool exact;
        if (!kind_capability(images[i].kind, &has_major, &has_minor, &exact)) continue;
        if (has_major != major || has_minor > minor || (exact && has_minor != minor)) continue;
        if (has_minor < best_minor || (has_minor == best_minor && !exact)) continue;
        best = &images[i];
        best_minor = has_minor;
    }
    return best;
}

void image_kinds(const struct code_image *images, uint64_t count, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (!strcmp(images[i].kind, "ptx")) continue;
        const int n = snprintf(text + used, size - used, "%s%s", used ? " " : "", images[i].kind);
        if (n < 0 || (size_t)n >= size - used) return;
        used += (size_t)n;
    }
}

/* The next ".entry NAME" at or after `at` that begins a line (after .visible or .weak); NULL at the end. */
static const char *next_entry(const char *at, size_t *length) {
    static const char word[] = ".entry ";
    for (const char *line = at; line && *line; line = strchr(line, '\n')) {
        while (*line == ' ' || *line == '\t' || *line == '\n') line++;
        if (*line != '.') continue; /* an instruction, as nearly all lines are */
        if (!strncmp(line, ".visible ", 9)) line += 9;
        if (!strncmp(line, ".weak ", 6)) line += 6;
        if (strncmp(line, word, strlen(word)) != 0) continue;
        const char *name = line + strlen(word);
        *length = strcspn(name, "( \t\n");
        return name;
    }
    return NULL;
}

/* The instance of a configuration, which is added where there is none; NULL when out of memory. */
static struct instance *instance_with(struct instance_table *table, const struct kernel_config *config) {
    for (size_t i = 0; i < table->count; i++)
        if (config_has(config, BACKWARD_PASS) && config_equal(&table->instances[i].config, config))
            return &table->instances[i];
    struct instance *const grown = realloc(table->instances, (table->count + 1) * sizeof *grown);
    if (!grown) return NULL;
    table->instances = grown;
    grown[table->count] = (struct instance){.config = *config};
    return &grown[table->count++];
}

static enum status add_kernel(struct instance_table *table, const char *name, size_t length, int entry,
                              struct failure *failure) {
    struct kernel_config config;
    char *const symbol = strndup(name, length);
    if (!symbol) return fail_memory(failure, length, "a kernel's name");
    const enum kernel_part part = config_part_from_symbol(name, length, &config);
    struct instance *const one = part ? instance_with(table, &config) : NULL;
    if (!one) {
        const enum status status =
            part ? fail_memory(failure, sizeof *one, "the table of instances")
                 : fail(failure, STATUS_ERROR, "the PTX holds a kernel that is not a flash_forward instance: %s",
                        symbol);
        free(symbol);
        return status;
    }
    if (part == PART_MAIN) one->symbol = symbol, one->entry = entry;
    if (part == PART_BEFORE) one->before = (struct small_kernel){symbol, entry};
    if (part == PART_AFTER) one->after = (struct small_kernel){symbol, entry};
    return STATUS_OK;
}

enum status instance_table_read(struct instance_table *table, const struct code_image *images, uint64_t count,
                                struct failure *failure) {
    const struct code_image *ptx = image_find(images, count, "ptx");
    size_t length;
    int entry = 0;
    *table = (struct instance_table){0};
    if (!ptx) return fail(failure, STATUS_ERROR, "this executable contains no PTX; build it again with make");
    for (const char *name = next_entry((const char *)ptx->bytes, &length); name;
         name = next_entry(name + length, &length)) {
        const enum status status = add_kernel(table, name, length, entry++, failure);
        if (status) return status;
    }
    for (size_t i = 0; i < table->count; i++)
        if (!table->instances[i].symbol)
            return fail(
                failure, STATUS_ERROR, "the PTX holds a kernel without its flash_backward: %s",
                (table->instances[i].before.symbol ? table->instances[i].before : table->instances[i].after).symbol);
    if (!table->count) return fail(failure, STATUS_ERROR, "the PTX of this executable contains no kernel");
    return STATUS_OK;
}

void instance_table_free(struct instance_table *table) {
    for (size_t i = 0; i < table->count; i++) {
        const struct instance *const one = &table->instances[i];
        free((char *)one->symbol);
        free((char *)one->before.symbol);
        free((char *)one->after.symbol);
    }
    free(table->instances);
    *table = (struct instance_table){0};
}

const struct instance *instance_find(const struct instance_table *table, const struct kernel_config *config) {
    for (size_t i = 0; i < table->count; i++)
        if (config_equal(&table->instances[i].config, config)) return &table->instances[i];
    return NULL;
}

/* ---- cubins ---- */

/* A section header. From sm_100 on ptxas stores the table at any offset. */
typedef Elf64_Shdr section_header __attribute__((aligned(1)));

struct cubin {
    const unsigned char *bytes;
    uint64_t size;
    const section_header *sections;
    int count;
    const char *names;
    uint64_t names_size;
};

static bool inside(uint64_t size, uint64_t offset, uint64_t length) {
    return offset <= size && length <= size - offset;
}

static bool cubin_open(const struct code_image *image, struct cubin *cubin) {
    enum { EM_CUDA_MACHINE = 190 };
    const Elf64_Ehdr *header = (const void *)image->bytes;
    if (image->size < sizeof *header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return false;
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != EM_CUDA_MACHINE) return false;
    if (!inside(image->size, header->e_shoff, header->e_shnum * sizeof(section_header))) return false;
    if (header->e_shstrndx >= header->e_shnum) return false;
    *cubin = (struct cubin){.bytes = image->bytes,
                            .size = image->size,
                            .sections = (const void *)(image->bytes + header->e_shoff),
                            .count = header->e_shnum};
    for (int i = 0; i < cubin->count; i++)
        if (cubin->sections[i].sh_type != SHT_NOBITS &&
            !inside(image->size, cubin->sections[i].sh_offset, cubin->sections[i].sh_size))
            return false;
    cubin->names = (const char *)image->bytes + cubin->sections[header->e_shstrndx].sh_offset;
    cubin->names_size = cubin->sections[header->e_shstrndx].sh_size;
    return cubin->names_size > 0 && cubin->names[cubin->names_size - 1] == 0;
}

static const char *section_name(const struct cubin *cubin, int i) {
    return cubin->sections[i].sh_name < cubin->names_size ? cubin->names + cubin->sections[i].sh_name : "";
}

/* The section called prefix + suffix, NULL where there is none. */
static const section_header *section_find(const struct cubin *cubin, const char *prefix, const char *suffix) {
    const size_t length = strlen(prefix);
    for (int i = 0; i < cubin->count; i++) {
        const char *name = section_name(cubin, i);
        if (!strncmp(name, prefix, length) && !strcmp(name + length, suffix)) return &cubin->sections[i];
    }
    return NULL;
}

/* Index of a symbol in the symbol table, -1 where there is none. */
static int64_t symbol_index(const struct cubin *cubin, const char *symbol) {
    const section_header *table = section_find(cubin, ".symtab", ""), *names = section_find(cubin, ".strtab", "");
    if (!table || !names) return -1;
    const size_t length = strlen(symbol) + 1;
    for (uint64_t i = 0; (i + 1) * sizeof(Elf64_Sym) <= table->sh_size; i++) {
        Elf64_Sym entry;
        memcpy(&entry, cubin->bytes + table->sh_offset + i * sizeof entry, sizeof entry);
        if (ELF64_ST_TYPE(entry.st_info) == STT_FUNC && inside(names->sh_size, entry.st_name, length) &&
            !memcmp(cubin->bytes + names->sh_offset + entry.st_name, symbol, length))
            return (int64_t)i;
    }
    return -1;
}

/* Registers of a function from .nv.info: records of format, attribute, 16-bit length and, for format 4, that many
 * bytes, here a symbol index and a number. 0 where the attribute is missing. */
static int info_registers(const struct cubin *cubin, int64_t symbol) {
    enum { FORMAT_BYTES = 4, REGISTER_COUNT = 0x2f };
    const section_header *info = section_find(cubin, ".nv.info", "");
    if (!info) return 0;
    const unsigned char *at = cubin->bytes + info->sh_offset, *const end = at + info->sh_size;
    while (end - at >= 4) {
        const unsigned format = at[0], attribute = at[1];
        const uint32_t length = format == FORMAT_BYTES ? at[2] | (uint32_t)at[3] << 8 : 0;
        at += 4;
        if (length > (uint64_t)(end - at)) return 0;
        if (attribute == REGISTER_COUNT && length == 8) {
            uint32_t pair[2];
            memcpy(pair, at, sizeof pair);
            if (pair[0] == symbol) return (int)pair[1];
        }
        at += length;
    }
    return 0;
}

/* Static shared memory of a kernel: the size of its section. From compute capability 9.0 on the driver's own bytes are
 * the first of it. They do not count against what a CTA may have, and a section of their own says that they are there.
 */
static int static_smem(const struct cubin *cubin, const char *symbol) {
    enum { RESERVED_BYTES = 1024 };
    const section_header *const section = section_find(cubin, ".nv.shared.", symbol);
    const int reserved = section_find(cubin, ".nv.shared.reserved.", "0") ? RESERVED_BYTES : 0;
    const int bytes = section && section->sh_size <= INT_MAX ? (int)section->sh_size : 0;
    return bytes > reserved ? bytes - reserved : 0;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Add the constant banks of a function, in the order of their names; bank 0 holds the parameters and is left out. */
static void hash_constants(const struct cubin *cubin, const char *symbol, struct sha256 *hash) {
    const char *banks[16];
    size_t count = 0;
    for (int i = 0; i < cubin->count && count < 16; i++) {
        static const char prefix[] = ".nv.constant";
        const char *name = section_name(cubin, i);
        char *end;
        if (strncmp(name, prefix, sizeof prefix - 1)) continue;
        const long bank = strtol(name + sizeof prefix - 1, &end, 10);
        if (bank > 0 && *end == '.' && !strcmp(end + 1, symbol)) banks[count++] = name;
    }
    qsort(banks, count, sizeof *banks, compare_names);
    for (size_t i = 0; i < count; i++) {
        const section_header *bank = section_find(cubin, banks[i], "");
        if (bank->sh_type != SHT_NOBITS) sha256_add(hash, cubin->bytes + bank->sh_offset, bank->sh_size);
    }
}

static enum status open_image(const struct code_image *image, struct cubin *cubin, struct failure *failure) {
    if (cubin_open(image, cubin)) return STATUS_OK;
    return fail(failure, STATUS_ERROR,
                "the embedded %s code (%" PRIu64 " bytes) is an incomplete cubin; build it again with make",
                image->kind, image->size);
}

enum status image_static_smem(const struct code_image *image, const char *symbol, int *bytes, struct failure *failure) {
    struct cubin cubin;
    const enum status status = open_image(image, &cubin, failure);
    if (!status) *bytes = static_smem(&cubin, symbol);
    return status;
}

enum status image_kernel_code(const struct code_image *image, const char *symbol, struct kernel_code *code,
                              struct failure *failure) {
    struct cubin cubin;
    const enum status status = open_image(image, &cubin, failure);
    if (status) return status;
    const section_header *text = section_find(&cubin, ".text.", symbol);
    const int64_t index = symbol_index(&cubin, symbol);
    if (!text || index < 0 || text->sh_type == SHT_NOBITS)
        return fail(failure, STATUS_ERROR, "the embedded %s code contains no kernel %s; build it again with make",
                    image->kind, symbol);
    code->registers = info_registers(&cubin, index);
    if (!code->registers) code->registers = (int)(text->sh_info >> 24); /* where older toolkits keep the number */
    code->code_bytes = (int64_t)text->sh_size;
    code->static_smem = static_smem(&cubin, symbol);
    struct sha256 hash;
    unsigned char digest[32];
    sha256_begin(&hash);
    sha256_add(&hash, cubin.bytes + text->sh_offset, text->sh_size);
    hash_constants(&cubin, symbol, &hash);
    sha256_end(&hash, digest);
    for (int i = 0; i < 8; i++) snprintf(code->hash + 2 * i, 3, "%02x", digest[i]);
    return STATUS_OK;
}
