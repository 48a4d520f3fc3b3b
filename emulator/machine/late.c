/* late.c - what a warp writes later than it says. */
#include "late.h"
#include "boxes.h"

#include <stdlib.h>

/* ---- sums ---- */

uint32_t emu_sum_of(const op *o, enum atomic_numbers numbers, uint32_t bytes, bool is_signed) {
    const uint32_t operation = o->kind == OP_BULK ? (uint32_t)o->target >> 8 : o->detail;
    const bool compares = operation == ATOMIC_MIN || operation == ATOMIC_MAX;
    if (o->asks || numbers != ATOMIC_INTEGER || operation > ATOMIC_XOR) return 0;
    return 1 + operation + (operation <= ATOMIC_MAX ? bytes << 8 : 0) + (uint32_t)(compares && is_signed) * (1 << 16);
}

/* ---- bulk reductions ---- */

static void add_range(machine *m, late_write *late, uint64_t address, uint64_t bytes) {
    byte_range *last = late->range_count ? &late->ranges[late->range_count - 1] : NULL;
    if (last && last->address + last->bytes == address) {
        last->bytes += bytes;
        return;
    }
    byte_range *more = machine_reserve(m, late->ranges, late->range_count + 1, &late->range_capacity, sizeof *more);
    if (!more) return;
    late->ranges = more;
    more[late->range_count++] = (byte_range){address, bytes};
}

static void add_row(machine *m, const bulk_copy *copy, const int32_t at[5], uint32_t shared, void *context) {
    uint64_t address = 0;
    uint32_t first = 0;
    const uint32_t bytes = emu_bytes_inside(copy, at, &address, &first);
    (void)shared;
    if (bytes) add_range(m, context, address, bytes);
}

static uint32_t sum_of_copy(const bulk_copy *copy) {
    const op *o = copy->reduces;
    const emu_tensor_info *info = &copy->map.info;
    if (info->rank) return emu_sum_of(o, info->numbers, info->element_bytes, info->is_signed);
    return emu_sum_of(o, (enum atomic_numbers)(o->target & 0xff), o->bytes, o->flags & FLAG_SIGNED);
}

static void free_late(late_write *late) {
    free(late->copy.kept);
    free(late->ranges);
}

static void add_reduction(machine *m, warp *w, const bulk_copy *copy) {
    late_write late = {.number = ++w->late_writes, .sum = sum_of_copy(copy), .copy = *copy};
    late_write *more = machine_reserve(m, m->late, m->late_count + 1, &m->late_capacity, sizeof *more);
    if (more) m->late = more;
    late.copy.kept = malloc(copy->bytes);
    if (late.copy.kept) memcpy(late.copy.kept, m->shared + (copy->shared - SHARED_BASE), copy->bytes);
    if (copy->map.info.rank)
        emu_each_row(m, copy, add_row, &late);
    else
        add_range(m, &late, copy->address, copy->bytes);
    if (!more || !late.copy.kept || m->out_of_memory) {
        m->out_of_memory = m->faulted = true;
        free_late(&late);
        return;
    }
    more[m->late_count++] = late;
}

void emu_late_reductions(machine *m, warp *w) {
    for (size_t i = 0; i < m->bulk_count; i++) {
        bulk_copy *copy = &m->bulk[i];
        if (!copy->is_store || !copy->reduces || copy->has_turn) continue;
        copy->has_turn = true;
        add_reduction(m, w, copy);
    }
}

/* ---- turns ---- */

static bool waits(const machine *m, const warp *w, const op *o, uint32_t mask) {
    if (o->kind != OP_BULK_WAIT || o->detail) return false;
    for (size_t i = 0; i < m->late_count; i++)
        if (emu_bulk_waits_for(&m->late[i].copy, w, o, mask)) return true;
    return false;
}

bool emu_late_holds(machine *m, warp *w, const op *o, uint32_t mask) {
    if (!m->late_count || !waits(m, w, o, mask)) return false;
    emu_try_again(m, w, o, mask);
    w->tries_again = false;
    w->state = WARP_HELD;
    w->waits_for_late = true;
    return true;
}

/* Those that wait for it look again. */
void emu_late_happens(machine *m, size_t index) {
    late_write late = m->late[index];
    memmove(&m->late[index], &m->late[index + 1], (--m->late_count - index) * sizeof late);
    emu_bulk_moves(m, &late.copy);
    m->changes++;
    free_late(&late);
    for (uint32_t i = 0; i < m->warp_count; i++) {
        warp *w = &m->warps[i];
        if (w->state == WARP_HELD && w->waits_for_late) w->state = WARP_READY;
        w->waits_for_late &= w->state == WARP_HELD;
    }
}

void emu_late_forget(machine *m) {
    for (size_t i = 0; i < m->late_count; i++) free_late(&m->late[i]);
    m->late_count = 0;
}
