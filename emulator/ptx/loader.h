/* loader.h - what all parts of loading need: memory that lives as long as the module, and errors.
 *
 *     if (setjmp(load->escape)) return false;      // load_fail() ends up here
 *     op *ops = emu_load_alloc(load, count * sizeof *ops);
 *     emu_load_fail(load, line, "opcode '%s' is not supported", name);
 */
#ifndef FL_EMU_LOADER_H
#define FL_EMU_LOADER_H

#include "program.h"

#include <pthread.h>
#include <setjmp.h>

/* Memory that is freed as a whole. */
typedef struct arena {
    struct arena_chunk *chunks;
    size_t used;
} arena;

typedef struct loader {
    emu_module module;
    arena memory;
    pthread_mutex_t lock; /* of what changes after emu_load: this loader and its parser, the arena, entries */
    emu_error *error;
    jmp_buf escape; /* where emu_load_fail() goes: to emu_load or emu_decode */
    struct parser *parser;
    double version;        /* of PTX, as the text names it */
    unsigned architecture; /* of the device, or of .target: 90 */
    unsigned target;       /* of .target, and its letter: sm_100f is 100 and 'f', sm_90 90 and 0 */
    char target_letter;
    uint16_t *first_form, *next_form; /* the table of forms by opcode */
} loader;

/* A loader with an empty module; NULL when out of memory. Owned: emu_loader_free() frees the module too. */
loader *emu_loader_new(void);
void emu_loader_free(loader *load);

_Noreturn void emu_load_fail(loader *load, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Zeroed memory, of which only what is written takes pages where much is asked for. */
void *emu_load_alloc(loader *load, size_t bytes);
/* A larger copy of an array; the arena keeps the old one until the end. */
void *emu_load_larger(loader *load, const void *array, size_t count, size_t *capacity, size_t element_bytes);
/* Grow it when it is full. */
static inline void *load_grow(loader *load, void *array, size_t count, size_t *capacity, size_t element_bytes) {
    return count < *capacity ? array : emu_load_larger(load, array, count, capacity, element_bytes);
}
/* A copy that ends in a zero byte. */
char *emu_load_text(loader *load, const char *begin, size_t length);

#endif
