/* loader.c - see loader.h */
#include "loader.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

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

static void *arena_alloc(arena *memory, size_t bytes) {
    bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    arena_chunk *first = memory->chunks;
    if (first && bytes > CHUNK_BYTES / 4 && first->size - memory->used < bytes) {
        /* a chunk of its own, after the one that has space for small objects */
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

static void arena_free(arena *memory) {
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
    void *result = arena_alloc(&load->memory, bytes);
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

loader *emu_loader_new(void) {
    loader *load = calloc(1, sizeof *load);
    if (load && pthread_mutex_init(&load->lock, NULL)) {
        free(load);
        load = NULL;
    }
    if (load) load->module.load = load;
    return load;
}

void emu_loader_free(loader *load) {
    if (!load) return;
    pthread_mutex_destroy(&load->lock);
    arena_free(&load->memory);
    free(load);
}
