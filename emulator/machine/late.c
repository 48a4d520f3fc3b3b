/* late.c - what a warp writes later than it says: bulk reductions, and strong stores to global memory.
 *
 * A store goes to a list of its warp, in which the warp itself finds it, and comes to memory by a turn. So threads see
 * what PTX allows where it orders neither two stores nor a store and a load behind it. Rules that are stricter than
 * those of PTX are simple here: whatever is no access, no fence but fence.sc and no work on registers waits for all
 * stores of its warp, and a fence by some lanes orders those of all. Loads and atomics are not late.
 */
#include "late.h"
#include "addresses.h"
#include "boxes.h"
#include "checks.h"

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
    for (int i = 0; i < LANES; i++) emu_global_forget(late->told[i]);
    free(late->copy.kept);
    free(late->ranges);
}

/* Room for one more; NULL when out of memory. */
static late_write *add_late(machine *m, warp *w, uint32_t instruction) {
    late_write *more = machine_reserve(m, m->late, m->late_count + 1, &m->late_capacity, sizeof *more);
    if (!more) return NULL;
    m->late = more;
    more += m->late_count++;
    *more = (late_write){.number = ++w->late_writes, .instruction = instruction, .warp = w->index};
    return more;
}

static void add_reduction(machine *m, warp *w, const bulk_copy *copy) {
    late_write *late = add_late(m, w, copy->instruction);
    uint8_t *kept = malloc(copy->bytes);
    if (!late || !kept) {
        m->out_of_memory = m->faulted = true;
        free(kept);
        return;
    }
    memcpy(kept, m->shared + (copy->shared - SHARED_BASE), copy->bytes);
    late->sum = sum_of_copy(copy);
    late->copy = *copy;
    late->copy.kept = kept;
    if (copy->map.info.rank)
        emu_each_row(m, copy, add_row, late);
    else
        add_range(m, late, copy->address, copy->bytes);
}

void emu_late_reductions(machine *m, warp *w) {
    for (size_t i = 0; i < m->bulk_count; i++) {
        bulk_copy *copy = &m->bulk[i];
        if (!copy->is_store || !copy->reduces || copy->has_turn) continue;
        copy->has_turn = true;
        add_reduction(m, w, copy);
    }
}

/* ---- stores ---- */

bool emu_is_late_store(const warp *w, const op *o, uint32_t mask) {
    uint64_t address;
    if (o->kind != OP_STORE || !(o->order & ORDER_STRONG)) return false;
    for (; mask; mask &= mask - 1)
        if (!touches_global(w, o, first_lane(mask), &address)) return false;
    return true;
}

late_write *emu_late_store(machine *m, warp *w, const op *o) {
    late_write *late = add_late(m, w, o->instruction);
    if (!late) return NULL;
    late->fences = w->late_fences;
    late->releases = o->order & ORDER_RELEASE;
    late->order = o->order;
    late->bytes = (uint32_t)o->bytes * o->vector;
    return late;
}

void emu_late_add_lane(machine *m, late_write *late, int lane, uint64_t address, uint8_t *to, const uint8_t *data) {
    late->lanes |= 1u << lane;
    late->at[lane] = address;
    late->to[lane] = to;
    memcpy(late->data[lane], data, late->bytes);
    add_range(m, late, address, late->bytes);
}

void emu_late_fence(warp *w) {
    w->late_fences++;
}

static bool is_store_of(const late_write *late, const warp *w) {
    return late->warp == w->index && !late->copy.reduces;
}

static bool meets(const late_write *late, uint64_t address, uint64_t bytes) {
    for (size_t i = 0; i < late->range_count; i++)
        if (late->ranges[i].address < address + bytes && address < late->ranges[i].address + late->ranges[i].bytes)
            return true;
    return false;
}

static bool same_bytes(const late_write *a, const late_write *b) {
    for (size_t i = 0; i < a->range_count; i++)
        if (meets(b, a->ranges[i].address, a->ranges[i].bytes)) return true;
    return false;
}

bool emu_late_is_due(const machine *m, const late_write *late) {
    for (size_t i = 0; i < m->late_count && !late->copy.reduces; i++) {
        const late_write *other = &m->late[i];
        if (other->copy.reduces || other->warp != late->warp || other->number >= late->number) continue;
        if (late->releases || other->fences < late->fences || same_bytes(other, late)) return false;
    }
    return true;
}

/* The last store under way of a warp that touches some of the bytes; NULL where there is none. */
static const late_write *last_store(const machine *m, const warp *w, uint64_t address, uint32_t bytes) {
    for (size_t i = m->late_count; i-- > 0;)
        if (is_store_of(&m->late[i], w) && meets(&m->late[i], address, bytes)) return &m->late[i];
    return NULL;
}

const uint8_t *emu_late_own(const machine *m, const warp *w, int lane, uint64_t address, uint32_t bytes) {
    const late_write *late = last_store(m, w, address, bytes);
    const bool own = late && late->lanes >> lane & 1 && late->at[lane] == address && late->bytes == bytes;
    for (uint32_t rest = own ? late->lanes & ~(1u << lane) : 0; rest; rest &= rest - 1) {
        const int other = first_lane(rest);
        if (late->at[other] < address + bytes && address < late->at[other] + bytes) return NULL;
    }
    return own ? late->data[lane] : NULL;
}

/* ---- loads ---- */

/* As one number, the addresses of an access to global memory; 0 for another. */
static uint64_t addresses_of(const warp *w, const op *o, uint32_t mask) {
    uint64_t sum = 1, address;
    for (; mask; mask &= mask - 1) {
        if (!touches_global(w, o, first_lane(mask), &address)) return 0;
        sum = (sum ^ address) * 0x9e3779b97f4a7c15ull;
    }
    return sum;
}

/* An acquire load comes before loads behind it, as the stores that these meet are late here, and before a release. */
void emu_late_note(machine *m, warp *w, const op *o, uint32_t mask) {
    const uint64_t addresses = o->order & ORDER_STRONG ? addresses_of(w, o, mask) : 0;
    const bool ordered = o->kind == OP_LOAD || o->order & ORDER_RELEASE;
    if (!addresses) return;
    m->reads_early |= w->loaded && w->loaded != addresses;
    m->reads_early |= w->acquired && w->acquired != addresses && !ordered;
    if (o->kind == OP_LOAD) *(o->order & ORDER_ACQUIRE ? &w->acquired : &w->loaded) = addresses;
}

/* ---- waits ---- */

static bool works_on_registers(const op *o) {
    return o->kind <= OP_JOIN || o->kind == OP_ACTIVE_MASK || o->kind == OP_FACTORS || o->kind == OP_ADDRESS ||
           o->kind == OP_NOTHING;
}

/* Whether an access meets what the warp has stored, other than by a load of all that the lane stored there. */
static bool meets_own_stores(const machine *m, const warp *w, const op *o, uint32_t mask) {
    const uint32_t bytes = (uint32_t)o->bytes * o->vector;
    for (uint64_t address; mask; mask &= mask - 1) {
        const int lane = first_lane(mask);
        if (!touches_global(w, o, lane, &address) || !last_store(m, w, address, bytes)) continue;
        if (o->kind != OP_LOAD || !emu_late_own(m, w, lane, address, bytes)) return true;
    }
    return false;
}

static bool any_store(const machine *m, const warp *w, uint32_t fences) {
    for (size_t i = 0; i < m->late_count; i++)
        if (is_store_of(&m->late[i], w) && m->late[i].fences < fences) return true;
    return false;
}

/* Loads and stores, atomics, fences but fence.sc and what works on registers need not wait for all stores. */
static bool waits_for_stores(const machine *m, const warp *w, const op *o, uint32_t mask) {
    if (works_on_registers(o) || !any_store(m, w, UINT32_MAX)) return false;
    if (o->kind == OP_FENCE) return o->order & ORDER_SC;
    if (o->kind == OP_LOAD) return meets_own_stores(m, w, o, mask);
    if (o->kind == OP_STORE && emu_is_late_store(w, o, mask)) return false;
    if (o->kind == OP_STORE) return o->order & ORDER_STRONG || meets_own_stores(m, w, o, mask);
    if (o->kind != OP_ATOMIC || o->order & ORDER_RELEASE) return true;
    return any_store(m, w, w->late_fences) || meets_own_stores(m, w, o, mask);
}

static bool waits_for_sums(const machine *m, const warp *w, const op *o, uint32_t mask) {
    if (o->kind != OP_BULK_WAIT || o->detail) return false;
    for (size_t i = 0; i < m->late_count; i++)
        if (m->late[i].copy.reduces && bulk_waits_for(&m->late[i].copy, w, o, mask)) return true;
    return false;
}

bool emu_late_holds(machine *m, warp *w, const op *o, uint32_t mask) {
    if (o->kind == OP_FENCE || o->kind == OP_BARRIER) w->loaded = w->acquired = 0;
    if (!m->late_count || !(waits_for_sums(m, w, o, mask) || waits_for_stores(m, w, o, mask))) return false;
    emu_try_again(m, w, o, mask);
    w->tries_again = false;
    w->state = WARP_HELD;
    w->waits_for_late = true;
    return true;
}

void emu_late_remove(machine *m, size_t index) {
    free_late(&m->late[index]);
    memmove(&m->late[index], &m->late[index + 1], (--m->late_count - index) * sizeof *m->late);
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
