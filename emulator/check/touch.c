/* touch.c - how each byte of global memory was touched first: written, or read before anything wrote it.
 *
 * A byte for each byte of a buffer, from emu_watch_touches() on. An atomic counts as a read. CTAs run at the same time
 * on several threads of the host. Where it would matter which of them comes first, the search for races reports them.
 */
#include "races.h"

#include <stdlib.h>

bool emu_watch_buffer(buffer *b) {
    free(b->touches);
    b->touches = b->bytes ? calloc(1, (size_t)b->size) : NULL;
    return b->touches || !b->bytes;
}

bool emu_watch_touches(emu_device *device) {
    bool complete = true;
    device->watches_touches = true;
    for (size_t i = 0; i < device->buffer_count; i++) complete &= emu_watch_buffer(&device->buffers[i]);
    return complete;
}

void emu_touches_free(buffer *b) {
    free(b->touches);
    b->touches = NULL;
}

void emu_note_touch(const emu_device *device, uint64_t address, uint64_t bytes, emu_touch how) {
    const buffer *b = emu_find_buffer(device, address);
    const uint64_t offset = (address & ((1ull << BUFFER_SHIFT) - 1)) - BUFFER_START;
    if (!b || !b->touches || offset >= b->size) return;
    const uint64_t end = bytes < b->size - offset ? offset + bytes : b->size;
    for (uint64_t i = offset; i < end; i++) {
        uint8_t untouched = EMU_UNTOUCHED;
        if (!__atomic_load_n(&b->touches[i], __ATOMIC_RELAXED))
            __atomic_compare_exchange_n(&b->touches[i], &untouched, (uint8_t)how, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED);
    }
}

const uint8_t *emu_touches_of(const emu_device *device, uint64_t address, uint64_t bytes) {
    const buffer *b = emu_find_buffer(device, address);
    const uint64_t offset = (address & ((1ull << BUFFER_SHIFT) - 1)) - BUFFER_START;
    return b && b->touches && offset < b->size && bytes <= b->size - offset ? b->touches + offset : NULL;
}
