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

typedef struct written_bytes {
    uint8_t *before, *now; /* by eight bytes of the buffer */
    uint8_t *touched;      /* by CHUNK_BITS of now: it has ones */
    uint64_t chunks;
} written_bytes;

static size_t bitmap_bytes(uint64_t bytes) {
    return (size_t)(bytes / 8 + 1);
}

void emu_written_free(buffer *b) {
    if (!b->written) return;
    free(b->written->before);
    free(b->written->now);
    free(b->written->touched);
    free(b->written);
    b->written = NULL;
}

bool emu_mark_uninitialized(emu_device *device, uint64_t address) {
    buffer *b = emu_find_buffer(device, address);
    if (!b || !b->bytes) return true;
    if (!b->written) b->written = calloc(1, sizeof *b->written);
    written_bytes *written = b->written;
    if (!written) return false;
    *written = (written_bytes){.before = calloc(1, bitmap_bytes(b->size)),
                               .now = calloc(1, bitmap_bytes(b->size)),
                               .chunks = b->size / CHUNK_BITS + 1};
    written->touched = calloc(1, (size_t)written->chunks);
    if (b->size <= MOST_POISONED) memset(b->bytes, POISON, (size_t)b->size);
    if (written->before && written->now && written->touched) return true;
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

void emu_written_end_launch(emu_device *device, bool checks) {
    for (size_t i = 0; i < device->buffer_count; i++) {
        written_bytes *written = device->buffers[i].written;
        if (!written) continue;
        if (!checks) emu_written_free(&device->buffers[i]);
        for (uint64_t chunk = 0; checks && chunk < written->chunks; chunk++) {
            if (!written->touched[chunk]) continue;
            const size_t first = (size_t)chunk * CHUNK_BITS / 8, all = bitmap_bytes(device->buffers[i].size);
            const size_t count = all - first < CHUNK_BITS / 8 ? all - first : CHUNK_BITS / 8;
            for (size_t k = first; k < first + count; k++) written->before[k] |= written->now[k];
            memset(written->now + first, 0, count);
            written->touched[chunk] = 0;
        }
    }
}

void emu_global_written(const cta *m, uint64_t address, uint32_t bytes) {
    uint64_t offset;
    const buffer *b = followed(m->device, address, &offset);
    if (!b || has_all(b->written->before, offset, inside(b, offset, bytes))) return;
    set_bits(b->written->now, offset, inside(b, offset, bytes));
    for (uint64_t chunk = offset / CHUNK_BITS; chunk <= (offset + bytes - 1) / CHUNK_BITS; chunk++)
        if (chunk < b->written->chunks) __atomic_store_n(&b->written->touched[chunk], 1, __ATOMIC_RELAXED);
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
