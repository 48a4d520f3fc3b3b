/* load.c - emu_load and emu_decode: memory of a module, errors of loading, and the queries about a loaded module. */
#include "../machine/machine.h"

#include <stdlib.h>

typedef struct arena_chunk {
    struct arena_chunk *next;
    size_t size;
    max_align_t bytes[];
} arena_chunk;

enum { CHUNK_BYTES = 256 * 1024 };

static arena_chunk *new_chunk(size_t size) {
    arena_chunk *chunk = calloc(1, sizeof *chunk + size);
    if (chunk) chunk->size = size;
    return chunk;
}

void *emu_arena_alloc(arena *memory, size_t bytes) {
    bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    arena_chunk *first = memory->chunks;
    if (first && bytes > CHUNK_BYTES / 4 && first->size - memory->used < bytes) {
        /* a chunk of its own, behind the one that has room for small things */
        arena_chunk *own = new_chunk(bytes);
        if (!own) return NULL;
        own->next = first->next;
        first->next = own;
        return own->bytes;
    }
    if (!first || first->size - memory->used < bytes) {
        arena_chunk *added = new_chunk(bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES);
        if (!added) return NULL;
        added->next = first;
        memory->chunks = added;
        memory->used = 0;
    }
    void *result = (char *)memory->chunks->bytes + memory->used;
    memory->used += bytes;
    return result;
}

void emu_arena_free(arena *memory) {
    while (memory->chunks) {
        arena_chunk *next = memory->chunks->next;
        free(memory->chunks);
        memory->chunks = next;
    }
}

void emu_load_fail(loader *load, int line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    load->error->line = line;
    vsnprintf(load->error->text, sizeof load->error->text, format, arguments);
    va_end(arguments);
    longjmp(load->escape, 1);
}

void *emu_load_alloc(loader *load, size_t bytes) {
    void *result = emu_arena_alloc(&load->module->memory, bytes);
    if (!result) emu_load_fail(load, 0, "out of memory");
    return result;
}

void *emu_load_larger(loader *load, const void *array, size_t count, size_t *capacity, size_t element_bytes) {
    size_t larger = *capacity ? *capacity * 2 : 64;
    while (larger <= count) larger *= 2; /* the array may come from elsewhere, with a capacity of its own */
    void *copy = emu_load_alloc(load, larger * element_bytes);
    if (count) memcpy(copy, array, count * element_bytes);
    *capacity = larger;
    return copy;
}

char *emu_load_text(loader *load, const char *begin, size_t length) {
    char *copy = emu_load_alloc(load, length + 1);
    memcpy(copy, begin, length);
    return copy;
}

static bool little_endian(void) {
    uint16_t probe = 1;
    uint8_t first;
    memcpy(&first, &probe, 1);
    return first == 1;
}

static bool read_module(loader *load, const char *ptx, size_t bytes) {
    if (setjmp(load->escape)) return false;
    emu_index_forms(load);
    emu_parse_module(load, ptx, bytes);
    return true;
}

emu_module *emu_load(const char *ptx, size_t bytes, emu_error *error) {
    *error = (emu_error){0};
    if (!little_endian()) {
        snprintf(error->text, sizeof error->text, "the emulator needs a little-endian host");
        return NULL;
    }
    emu_module *module = calloc(1, sizeof *module);
    loader *load = module ? emu_arena_alloc(&module->memory, sizeof *load) : NULL;
    if (load && !pthread_mutex_init(&load->lock, NULL)) module->load = load;
    if (!module || !module->load) {
        snprintf(error->text, sizeof error->text, "out of memory");
        emu_unload(module);
        return NULL;
    }
    load->module = module;
    load->error = error;
    if (read_module(load, ptx, bytes)) return module;
    emu_unload(module);
    return NULL;
}

static bool read_entry(loader *load, entry *code) {
    if (setjmp(load->escape)) return false;
    emu_parse_entry_body(load, code);
    emu_analyse_flow(load, code);
    return true;
}

bool emu_decode(const emu_module *module, int index, emu_error *error) {
    *error = (emu_error){0};
    if (!emu_entry(module, index)) {
        snprintf(error->text, sizeof error->text, "there is no entry %d: the module has %zu", index,
                 module->entry_count);
        return false;
    }
    loader *load = module->load;
    entry *code = &module->entries[index];
    pthread_mutex_lock(&load->lock);
    if (code->state == ENTRY_UNREAD) {
        load->error = &code->refusal;
        code->state = read_entry(load, code) ? ENTRY_READY : ENTRY_REFUSED;
    }
    *error = code->refusal;
    bool ready = code->state == ENTRY_READY;
    pthread_mutex_unlock(&load->lock);
    return ready;
}

void emu_unload(emu_module *module) {
    if (!module) return;
    if (module->load) pthread_mutex_destroy(&module->load->lock);
    emu_arena_free(&module->memory);
    free(module);
}

int emu_entry_count(const emu_module *module) {
    return (int)module->entry_count;
}

const emu_entry_info *emu_entry(const emu_module *module, int index) {
    return index >= 0 && (size_t)index < module->entry_count ? &module->entries[index].info : NULL;
}

emu_place emu_place_of(const entry *code, uint32_t instruction_index) {
    emu_place place = {0, "", "", 0, "", 0};
    if (instruction_index >= code->instruction_count) return place;
    const instruction *in = &code->instructions[instruction_index];
    place.ptx_line = in->line;
    place.ptx = in->text;
    if (in->location < 0) return place;
    const location *at = &code->locations[in->location];
    place.file = at->file;
    place.line = at->line;
    if (at->parent < 0) return place;
    while (at->parent >= 0) at = &code->locations[at->parent];
    place.caller_file = at->file;
    place.caller_line = at->line;
    return place;
}
