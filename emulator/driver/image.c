/* image.c - the PTX in what a program gives to cuModuleLoadData(): text, a fatbin, nvcc's wrapper of one, or a cubin.
 *
 * A cubin that was compiled with -lineinfo or -G holds its PTX for debuggers, in a section of its own; one that nvlink
 * made has such a section for each of its parts.
 *
 * The layout of a fatbin is documented nowhere; this is what nvcc 12 and 13 write. PTX in it is plain, or compressed by
 * LZ4 (nvcc 12) or Zstandard (nvcc 13); libzstd.so.1 expands the latter where the machine has it.
 */
#include "driver.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

enum { WRAPPER_MAGIC = 0x466243b1, WRAPPER_OF_PARTS = 2 };
/* Descriptor that nvcc passes to the runtime. */
typedef struct wrapper {
    uint32_t magic, version;
    const uint8_t *fatbin;
    const uint8_t *const
        *parts; /* of separate compilation: the fatbin of each, ended by NULL; fatbin is what nvlink made */
} wrapper;

enum { KIND_PTX = 1, KIND_CUBIN = 2, FLAG_LZ4 = 0x2000, FLAG_ZSTD = 0x8000 };
#define FATBIN_MAGIC 0xba55ed50u

/* Header of each program of a fatbin. */
typedef struct program_header {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t payload_bytes; /* of the fatbin after the header */
    uint32_t compressed_bytes, options;
    uint16_t minor, major; /* of the format */
    uint32_t architecture; /* 90 */
    uint32_t name_offset, name_bytes;
    uint64_t flags, reserved, expanded_bytes; /* 0 where it is not compressed */
} program_header;

/* ---- LZ4 ---- */

/* A length that begins in four bits, and continues in bytes of 255. */
static bool read_length(const uint8_t **from, const uint8_t *end, size_t *length) {
    if (*length != 15) return true;
    uint8_t more = 255;
    while (more == 255) {
        if (*from == end) return false;
        more = *(*from)++;
        *length += more;
    }
    return true;
}

bool image_expand(const uint8_t *from, size_t bytes, uint8_t *to, size_t wanted) {
    const uint8_t *end = from + bytes;
    size_t made = 0;
    while (from < end) {
        const uint8_t token = *from++;
        size_t literals = token >> 4, match = token & 15;
        if (!read_length(&from, end, &literals)) return false;
        if (literals > (size_t)(end - from) || literals > wanted - made) return false;
        memcpy(to + made, from, literals);
        made += literals;
        from += literals;
        if (from == end) break;
        if (end - from < 2) return false;
        const size_t distance = from[0] | (size_t)from[1] << 8;
        from += 2;
        if (!read_length(&from, end, &match)) return false;
        match += 4;
        if (!distance || distance > made || match > wanted - made) return false;
        for (size_t i = 0; i < match; i++, made++) to[made] = to[made - distance]; /* they may overlap */
    }
    return made == wanted;
}

/* ---- Zstandard ---- */

static bool expand_zstd(const uint8_t *from, size_t bytes, uint8_t *to, size_t wanted) {
    typedef size_t decompress(void *, size_t, const void *, size_t);
    void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "ZSTD_decompress") : NULL;
    if (!symbol) {
        driver_say("the program's PTX is compressed by Zstandard, and there is no libzstd.so.1 to expand it: install "
                   "libzstd, or compile with `nvcc --compress-mode=none`");
        if (library) dlclose(library);
        return false;
    }
    decompress *expand;
    memcpy(&expand, &symbol, sizeof expand);
    const size_t made = expand(to, wanted, from, bytes);
    dlclose(library);
    return made == wanted;
}

/* ---- fatbins ---- */

/* The bytes of a program, ended by a zero byte; NULL where it cannot be read. */
static char *program_bytes(const program_header *h, const uint8_t *payload) {
    const bool compressed = h->flags & (FLAG_LZ4 | FLAG_ZSTD);
    const uint64_t bytes = compressed ? h->expanded_bytes : h->payload_bytes;
    if (bytes > 1u << 30 || (compressed && h->compressed_bytes > h->payload_bytes)) return NULL;
    char *text = calloc(1, bytes + 1);
    if (!text) return NULL;
    bool whole = true;
    if (!compressed)
        memcpy(text, payload, bytes);
    else if (h->flags & FLAG_ZSTD)
        whole = expand_zstd(payload, h->compressed_bytes, (uint8_t *)text, bytes);
    else
        whole = image_expand(payload, h->compressed_bytes, (uint8_t *)text, bytes);
    if (whole) return text;
    free(text);
    return NULL;
}

/* Suitability of PTX for the device: 0 means none. PTX of .target sm_90a runs on that architecture alone, that of
 * sm_100f also on later ones of its family. */
static int suits(const char *text, const architecture *a) {
    const char *target = strstr(text, ".target");
    target = target ? strstr(target, "sm_") : NULL;
    if (!target) return 0;
    char *end;
    const long number = strtol(target + 3, &end, 10), ours = 10L * a->major + a->minor;
    if (*end == 'f') return number / 10 == ours / 10 && number <= ours && a->specific ? 1000 + (int)number : 0;
    if (*end == 'a') return number == ours && a->specific ? 2000 : 0;
    return number <= ours ? 1 + (int)number : 0;
}

/* ---- texts ---- */

/* A module begins with .version and .address_size, which a text has once: of a later one they become blank. */
static void blank_heading(char *text) {
    static const char *const headings[] = {".version", ".address_size"};
    for (int i = 0; i < 2; i++) {
        char *at = strstr(text, headings[i]);
        if (at) memset(at, ' ', strcspn(at, "\n"));
    }
}

bool image_join(char **text, size_t *bytes, char *more) {
    const size_t length = strlen(more);
    char *joined = realloc(*text, *bytes + length + 2);
    if (joined) {
        if (*bytes) blank_heading(more);
        snprintf(joined + *bytes, length + 2, "%s\n", more);
        *text = joined;
        *bytes += length + 1;
    }
    free(more);
    return joined != NULL;
}

/* ---- cubins ---- */

/* The lines of a section, each of which ends in a zero byte, after an eight-byte header; NULL when out of memory. */
static char *lines_of(const uint8_t *section, size_t bytes) {
    enum { SECTION_HEADER = 8 };
    const size_t length = bytes > SECTION_HEADER ? bytes - SECTION_HEADER : 0;
    char *text = malloc(length + 1);
    if (!text) return NULL;
    for (size_t i = 0; i < length; i++)
        text[i] = section[SECTION_HEADER + i] ? (char)section[SECTION_HEADER + i] : '\n';
    text[length] = 0;
    return text;
}

/* The PTX in a cubin; NULL where it has none. */
static char *cubin_ptx(const uint8_t *cubin) {
    static const char wanted[] = ".nv_debug_ptx_txt";
    Elf64_Ehdr file;
    Elf64_Shdr section, names;
    char *text = NULL;
    size_t bytes = 0;
    memcpy(&file, cubin, sizeof file);
    if (file.e_ident[EI_CLASS] != ELFCLASS64 || file.e_machine != EM_CUDA || file.e_shentsize != sizeof section ||
        file.e_shstrndx >= file.e_shnum)
        return NULL;
    memcpy(&names, cubin + file.e_shoff + file.e_shstrndx * sizeof names, sizeof names);
    for (int i = 0; i < file.e_shnum; i++) {
        memcpy(&section, cubin + file.e_shoff + (size_t)i * sizeof section, sizeof section);
        if (section.sh_type != SHT_PROGBITS || section.sh_name >= names.sh_size ||
            strncmp((const char *)cubin + names.sh_offset + section.sh_name, wanted, sizeof wanted - 1) != 0)
            continue;
        char *more = lines_of(cubin + section.sh_offset, section.sh_size);
        if (!more || !image_join(&text, &bytes, more)) break;
    }
    return text;
}

/* ---- images ---- */

static char *program_text(const program_header *h, const uint8_t *payload) {
    if (h->kind != KIND_PTX && h->kind != KIND_CUBIN) return NULL;
    char *bytes = program_bytes(h, payload);
    if (!bytes || h->kind == KIND_PTX) return bytes;
    char *text = h->expanded_bytes + h->payload_bytes > sizeof(Elf64_Ehdr) ? cubin_ptx((uint8_t *)bytes) : NULL;
    free(bytes);
    return text;
}

/* The programs of fatbins: how many there are, and the .target of one in PTX that does not suit the device. */
typedef struct found {
    int programs;
    char target[16]; /* empty: none */
} found;

static void keep_target(const char *text, char target[16]) {
    const char *at = strstr(text, ".target sm_");
    if (at) snprintf(target, 16, "%.*s", (int)strcspn(at + 8, ", \t\r\n"), at + 8);
}

static void say_other_target(const char *what, const char *target) {
    driver_say("%s is PTX for %s, which does not run on %s: emulated-gpu --arch chooses another device", what, target,
               the_driver()->architecture->name);
}

/* The PTX of a fatbin that suits the device best; NULL where none of its programs does. */
static char *find_ptx(const uint8_t *fatbin, found *all) {
    uint16_t header_bytes;
    uint64_t bytes;
    memcpy(&header_bytes, fatbin + 6, sizeof header_bytes);
    memcpy(&bytes, fatbin + 8, sizeof bytes);
    char *best = NULL;
    int best_suits = 0;
    for (uint64_t at = 0; at + sizeof(program_header) <= bytes;) {
        program_header h;
        const uint8_t *program = fatbin + header_bytes + at;
        memcpy(&h, program, sizeof h);
        if (h.header_bytes < sizeof h || h.header_bytes + h.payload_bytes > bytes - at) break;
        at += h.header_bytes + h.payload_bytes;
        all->programs++;
        char *text = program_text(&h, program + h.header_bytes);
        const int suited = text ? suits(text, the_driver()->architecture) : 0;
        if (suited > best_suits) {
            free(best);
            best = text;
            best_suits = suited;
        } else {
            if (text && !suited) keep_target(text, all->target);
            free(text);
        }
    }
    return best;
}

static char *reject_programs(const found *all, CUresult *status) {
    const architecture *a = the_driver()->architecture;
    *status = CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (all->target[0]) {
        say_other_target("a program in a fatbin", all->target);
        return NULL;
    }
    driver_say("none of %d programs in a fatbin is PTX for %s: the emulator runs PTX, not machine code; compile with "
               "`nvcc -gencode arch=compute_%d%d%s,code=compute_%d%d%s`",
               all->programs, a->name, a->major, a->minor, a->specific ? "a" : "", a->major, a->minor,
               a->specific ? "a" : "");
    return NULL;
}

static char *fatbin_ptx(const uint8_t *fatbin, CUresult *status) {
    found all = {0};
    char *text = find_ptx(fatbin, &all);
    return text ? text : reject_programs(&all, status);
}

/* The PTX of the parts of a program that nvcc compiled separately (-rdc=true): nvlink links machine code only. NVIDIA's
 * library for launches on the device is such a part, too, without PTX; a program that needs it is refused later. */
static char *linked_ptx(const uint8_t *const *parts, CUresult *status) {
    char *text = NULL;
    size_t bytes = 0;
    found all = {0};
    for (; *parts; parts++) {
        char *more = find_ptx(*parts, &all);
        if (more && !image_join(&text, &bytes, more)) {
            free(text);
            *status = CUDA_ERROR_OUT_OF_MEMORY;
            return NULL;
        }
    }
    return text ? text : reject_programs(&all, status);
}

char *image_ptx(const void *image, CUresult *status) {
    uint32_t magic;
    *status = CUDA_ERROR_INVALID_VALUE;
    if (!image) return NULL;
    const uint8_t *bytes = image;
    if (bytes[0] && bytes[1] && bytes[2]) {
        memcpy(&magic, bytes, sizeof magic);
        if (magic == WRAPPER_MAGIC) {
            wrapper w;
            memcpy(&w, bytes, sizeof w);
            if (w.version == WRAPPER_OF_PARTS && w.parts && w.parts[0]) return linked_ptx(w.parts, status);
            bytes = w.fatbin;
            memcpy(&magic, bytes, sizeof magic);
        }
        if (magic == FATBIN_MAGIC) return fatbin_ptx(bytes, status);
        if (!memcmp(bytes, "\177ELF", 4)) {
            char *text = cubin_ptx(bytes);
            if (text && suits(text, the_driver()->architecture)) return text;
            char its[16] = "another GPU";
            if (text) keep_target(text, its);
            if (text)
                say_other_target("a cubin", its);
            else
                driver_say("a module is machine code (a cubin): the emulator runs PTX, which nvcc and ptxas leave in a "
                           "cubin only with -lineinfo or -G, and Numba with @cuda.jit(lineinfo=True)");
            free(text);
            *status = CUDA_ERROR_NO_BINARY_FOR_GPU;
            return NULL;
        }
    }
    const char *target = strstr(image, ".target sm_");
    if (target && !suits(target, the_driver()->architecture)) {
        char its[16];
        keep_target(target, its);
        say_other_target("a module", its);
        *status = CUDA_ERROR_INVALID_PTX;
        return NULL;
    }
    char *text = strdup(image);
    *status = text ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    return text;
}
