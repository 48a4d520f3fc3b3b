/* written.c - which bytes of global memory something has written, in the buffers that emu_mark_uninitialized() was
 * called for.
 *
 * A bit per byte says that it was written before this launch, and another that this launch has written it. A thread
 * must not depend on what other CTAs write at the same time, so what this launch has written counts only where the
 * cells of global.c have the write: of the own cluster, or of all where CTAs communicate. The end of the launch joins
 * the two. So findings do not depend on the number of host threads.
 */
#include "races.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xcd, CHUNK_BITS = 32768 };
#define MOST_POISONED (16ull << 20) /* larger buffers keep their zeros: most of them is never touched */

/* Bits by byte of the buffer, that a launch has set; touched: by CHUNK_BITS of them, some are ones. */
typedef struct launch_bits {
    uint8_t *bits, *touched;
} launch_bits;

typedef struct written_bytes {
    uint8_t *before;       /* a bit per byte: written before this launch */
    launch_bits now, last; /* by this launch, and by the one before */
    uint64_t chunks;
} written_bytes;

static size_t bitmap_bytes(uint64_t bytes) {
    return (size_t)(bytes / 8 + 1);
}

void emu_written_free(buffer *b) {
    written_bytes *written = b->written;
    if (!written) return;
    free(written->before);
    free(written->now.bits);
    free(written->now.touched);
    free(written->last.bits);
    free(written->last.touched);
    free(written);
    b->written = NULL;
}

bool emu_mark_uninitialized(emu_device *device, uint64_t address) {
    buffer *b = emu_find_buffer(device, address);
    if (!b || !b->bytes) return true;
    emu_written_free(b);
    written_bytes *written = b->written = calloc(1, sizeof *written);
    if (!written) return false;
    const size_t bytes = bitmap_bytes(b->size), chunks = (size_t)(b->size / CHUNK_BITS + 1);
    *written = (written_bytes){.before = calloc(1, bytes),
                               .now = {calloc(1, bytes), calloc(1, chunks)},
                               .last = {calloc(1, bytes), calloc(1, chunks)},
                               .chunks = chunks};
    if (b->size <= MOST_POISONED) memset(b->bytes, POISON, (size_t)b->size);
    if (written->before && written->now.bits && written->now.touched && written->last.bits && written->last.touched)
        return true;
    emu_written_free(b);
    return false;
}

/* The buffer of an address if its bytes are followed, and the offset there; else NULL. */
static const buffer *followed(const emu_device *device, uint64_t address, uint64_t *offset) {
    const buffer *b = emu_find_buffer(device, address);
    *offset = (address & ((1ull << BUFFER_SHIFT) - 1)) - BUFFER_START;
    return b && b->written && *offset < b->size ? b : NULL;
}

/* Set bits of a bitmap that other threads of the host may set at the same time. */
static void set_bits(uint8_t *bits, uint64_t first, uint64_t count) {
    for (const uint64_t end = first + count; first < end;) {
        const unsigned low = first % 8, high = end - first < 8 - low ? low + (unsigned)(end - first) : 8;
        const uint8_t mask = (uint8_t)((1u << high) - (1u << low));
        uint8_t *at = &bits[first / 8];
        if ((__atomic_load_n(at, __ATOMIC_RELAXED) & mask) != mask) __atomic_fetch_or(at, mask, __ATOMIC_RELAXED);
        first += high - low;
    }
}

static bool has_bit(const uint8_t *bits, uint64_t i) {
    return bits[i / 8] >> i % 8 & 1;
}

static bool has_all(const uint8_t *bits, uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count;) {
        const bool aligned = i % 8 == 0 && first + count - i >= 8;
        if (aligned ? bits[i / 8] != 0xff : !has_bit(bits, i)) return false;
        i += aligned ? 8 : 1;
    }
    return true;
}

static uint64_t inside(const buffer *b, uint64_t offset, uint64_t bytes) {
    return bytes < b->size - offset ? bytes : b->size - offset;
}

/* ---- the host ---- */

void emu_note_written(emu_device *device, uint64_t address, uint64_t bytes) {
    uint64_t offset;
    emu_note_touch(device, address, bytes, EMU_WRITTEN_FIRST);
    const buffer *b = followed(device, address, &offset);
    if (!b || !bytes) return;
    const uint64_t first = (offset + 7) / 8 * 8, end = offset + inside(b, offset, bytes), last = end / 8 * 8;
    if (first >= last) {
        set_bits(b->written->before, offset, end - offset);
        return;
    }
    set_bits(b->written->before, offset, first - offset);
    memset(&b->written->before[first / 8], 0xff, (size_t)((last - first) / 8));
    set_bits(b->written->before, last, end - last);
}

void emu_note_copied(emu_device *device, uint64_t to, uint64_t from, uint64_t bytes) {
    uint64_t source, target;
    emu_note_touch(device, from, bytes, EMU_READ_FIRST);
    emu_note_touch(device, to, bytes, EMU_WRITTEN_FIRST);
    const buffer *b = followed(device, from, &source), *of = followed(device, to, &target);
    if (!of) return;
    if (!b || has_all(b->written->before, source, inside(b, source, bytes))) {
        emu_note_written(device, to, bytes);
        return;
    }
    for (uint64_t i = 0; i < inside(b, source, bytes) && i < inside(of, target, bytes); i++) {
        uint8_t *at = &of->written->before[(target + i) / 8];
        const uint8_t bit = (uint8_t)(1u << (target + i) % 8);
        *at = has_bit(b->written->before, source + i) ? *at | bit : (uint8_t)(*at & ~bit);
    }
}

/* ---- kernels ---- */

/* Start of a chunk's set bits, and the bytes of its bits. */
static size_t chunk_bytes(const buffer *b, uint64_t chunk, size_t *first) {
    const size_t all = bitmap_bytes(b->size);
    *first = (size_t)chunk * CHUNK_BITS / 8;
    return all - *first < CHUNK_BITS / 8 ? all - *first : CHUNK_BITS / 8;
}

static void end_launch(const buffer *b, written_bytes *written) {
    for (uint64_t chunk = 0; chunk < written->chunks; chunk++) {
        size_t first;
        const size_t count = chunk_bytes(b, chunk, &first);
        if (written->last.touched[chunk]) memset(written->last.bits + first, 0, count);
        written->last.touched[chunk] = 0;
        for (size_t k = first; written->now.touched[chunk] && k < first + count; k++)
            written->before[k] |= written->now.bits[k];
    }
    const launch_bits last = written->last;
    written->last = written->now;
    written->now = last;
}

void emu_written_end_launch(emu_device *device, bool checks) {
    for (size_t i = 0; i < device->buffer_count; i++) {
        buffer *b = &device->buffers[i];
        if (b->written && checks) end_launch(b, b->written);
        if (!checks) emu_written_free(b);
    }
}

void emu_global_written(const cta *m, uint64_t address, uint32_t bytes) {
    uint64_t offset;
    const buffer *b = followed(m->device, address, &offset);
    if (!b || has_all(b->written->now.bits, offset, inside(b, offset, bytes))) return;
    set_bits(b->written->now.bits, offset, inside(b, offset, bytes));
    for (uint64_t chunk = offset / CHUNK_BITS; chunk <= (offset + bytes - 1) / CHUNK_BITS; chunk++)
        if (chunk < b->written->chunks) __atomic_store_n(&b->written->now.touched[chunk], 1, __ATOMIC_RELAXED);
}

bool emu_written_by_last(const cta *m, uint64_t address, uint32_t bytes) {
    uint64_t offset;
    const buffer *b = followed(m->device, address, &offset);
    for (uint64_t i = 0; b && i < inside(b, offset, bytes); i++)
        if (has_bit(b->written->last.bits, offset + i)) return true;
    return false;
}

bool emu_global_was_set(const cta *m, uint64_t address, uint32_t bytes) {
    uint64_t offset;
    const buffer *b = followed(m->device, address, &offset);
    return !b || (inside(b, offset, bytes) == bytes && has_all(b->written->before, offset, bytes));
}

uint32_t emu_global_unwritten(cta *m, uint64_t address, uint32_t bytes) {
    uint64_t offset;
    const buffer *b = followed(m->device, address, &offset);
    uint32_t unwritten = 0;
    if (!b || has_all(b->written->before, offset, bytes)) return 0;
    for (uint32_t i = 0; i < bytes; i++)
        if (!has_bit(b->written->before, offset + i) && !emu_global_was_written(m, address + i)) unwritten |= 1u << i;
    return unwritten;
}

void emu_check_update(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes) {
    enum { AT_ONCE = 16 };
    const uint64_t end = address + bytes;
    while (address < end &&
           !emu_global_unwritten(m, address, end - address < AT_ONCE ? (uint32_t)(end - address) : AT_ONCE))
        address += AT_ONCE;
    if (address >= end) return;
    char where[160];
    emu_describe_global(m, address, where, sizeof where);
    emu_report(m, EMU_UNINITIALISED_GLOBAL, UINT32_MAX, w, lane, -1, address,
               "This instruction updates global memory at %s, which nothing has written: the result depends on what "
               "was left there.\n"
               "Set it first, for example by cudaMemset().",
               where);
}
