/* delayed.c - what comes later than its instruction: bulk reductions, and strong accesses to global memory.
 *
 * A store goes to a list of its warp, in which the warp itself finds it, and comes to memory by a turn. A load reads by
 * a turn, until which no op can use its registers. So threads see what PTX allows where it does not order two accesses.
 * Rules that are stricter than those of PTX are simple here: whatever is no access, no fence and no work on registers
 * waits for all of its warp, a fence by some lanes orders those of all, and a load is delayed only where another access
 * follows before a branch. Atomics and acquire loads are not delayed.
 */
#include "delayed.h"
#include "../check/races.h"
#include "../machine/addresses.h"
#include "../machine/boxes.h"
#include "../machine/machine.h"

#include <stdlib.h>

/* ---- sums ---- */

uint32_t emu_sum_of(const op *o, enum atomic_numbers numbers, uint32_t bytes, bool is_signed) {
    const uint32_t operation = o->kind == OP_BULK ? (uint32_t)o->target >> 8 : o->detail;
    const bool compares = operation == ATOMIC_MIN || operation == ATOMIC_MAX;
    if (o->asks || numbers != ATOMIC_INTEGER || operation > ATOMIC_XOR) return 0;
    return 1 + operation + (operation <= ATOMIC_MAX ? bytes << 8 : 0) + (uint32_t)(compares && is_signed) * (1 << 16);
}

/* ---- bulk reductions ---- */

static void add_range(cta *m, delayed_access *delayed, uint64_t address, uint64_t bytes) {
    byte_range *last = delayed->range_count ? &delayed->ranges[delayed->range_count - 1] : NULL;
    if (last && last->address + last->bytes == address) {
        last->bytes += bytes;
        return;
    }
    byte_range *more =
        cta_reserve(m, delayed->ranges, delayed->range_count + 1, &delayed->range_capacity, sizeof *more);
    if (!more) return;
    delayed->ranges = more;
    more[delayed->range_count++] = (byte_range){address, bytes};
}

static void add_row(cta *m, const bulk_copy *copy, const int32_t at[5], uint32_t shared, void *context) {
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

static void free_delayed(delayed_access *delayed) {
    for (int i = 0; i < LANES; i++) emu_global_forget(delayed->told[i]);
    free(delayed->copy.kept);
    free(delayed->ranges);
}

/* Room for one more; NULL when out of memory. */
static delayed_access *add_delayed(cta *m, warp *w, uint32_t instruction) {
    delayed_access *more = cta_reserve(m, m->delayed, m->delayed_count + 1, &m->delayed_capacity, sizeof *more);
    if (!more) return NULL;
    m->delayed = more;
    more += m->delayed_count++;
    *more = (delayed_access){.number = ++w->delayed_accesses, .instruction = instruction, .warp = w->index};
    return more;
}

static void add_reduction(cta *m, warp *w, const bulk_copy *copy) {
    delayed_access *delayed = add_delayed(m, w, copy->instruction);
    uint8_t *kept = malloc(copy->bytes);
    if (!delayed || !kept) {
        m->out_of_memory = m->faulted = true;
        free(kept);
        return;
    }
    memcpy(kept, m->shared + (copy->shared - m->shared_base), copy->bytes);
    delayed->sum = sum_of_copy(copy);
    delayed->copy = *copy;
    delayed->copy.kept = kept;
    if (copy->map.info.rank)
        emu_each_row(m, copy, add_row, delayed);
    else
        add_range(m, delayed, copy->address, copy->bytes);
}

void emu_delay_reductions(cta *m, warp *w) {
    for (size_t i = 0; i < m->bulk_count; i++) {
        bulk_copy *copy = &m->bulk[i];
        if (!copy->is_store || !copy->reduces || copy->has_turn) continue;
        copy->has_turn = true;
        add_reduction(m, w, copy);
    }
}

/* ---- stores ---- */

bool emu_is_delayed_store(const warp *w, const op *o, uint32_t mask) {
    uint64_t address;
    if (o->kind != OP_STORE || !(o->order & ORDER_STRONG)) return false;
    for (; mask; mask &= mask - 1)
        if (!touches_global(w, o, first_lane(mask), &address)) return false;
    return true;
}

delayed_access *emu_delay_store(cta *m, warp *w, const op *o) {
    delayed_access *delayed = add_delayed(m, w, o->instruction);
    if (!delayed) return NULL;
    delayed->fences = w->delayed_fences;
    delayed->releases = o->order & ORDER_RELEASE;
    delayed->order = o->order;
    delayed->bytes = (uint32_t)o->bytes * o->vector;
    delayed->stores = o;
    delayed->clock = w->clock;
    return delayed;
}

static void add_lane(cta *m, delayed_access *delayed, int lane, uint64_t address, uint8_t *there, const uint8_t *data) {
    delayed->lanes |= 1u << lane;
    delayed->at[lane] = address;
    delayed->there[lane] = there;
    if (data) memcpy(delayed->data[lane], data, delayed->bytes);
    if (there) add_range(m, delayed, address, delayed->bytes);
}

/* Others acquire what the thread knows now when they see the store. */
void emu_delay_store_lane(cta *m, warp *w, delayed_access *delayed, int lane, uint64_t address, uint8_t *there,
                          const uint8_t *data) {
    if (m->checks) {
        emu_global_write(m, w, lane, address, delayed->bytes, delayed->order, data, there);
        emu_note_output(m, delayed->instruction, address, delayed->bytes);
        delayed->told[lane] = emu_global_to_tell(m, w, lane, delayed->order);
    }
    add_lane(m, delayed, lane, address, there, data);
}

void emu_delayed_fence(warp *w) {
    w->delayed_fences++;
}

static bool is_store_of(const delayed_access *delayed, const warp *w) {
    return delayed->warp == w->index && !delayed->copy.reduces && !delayed->loads;
}

static bool meets(const delayed_access *delayed, uint64_t address, uint64_t bytes) {
    for (size_t i = 0; i < delayed->range_count; i++)
        if (delayed->ranges[i].address < address + bytes &&
            address < delayed->ranges[i].address + delayed->ranges[i].bytes)
            return true;
    return false;
}

static bool same_bytes(const delayed_access *a, const delayed_access *b) {
    for (size_t i = 0; i < a->range_count; i++)
        if (meets(b, a->ranges[i].address, a->ranges[i].bytes)) return true;
    return false;
}

/* The last store under way of a warp, of those up to a number, that touches some of the bytes; NULL for none. */
static const delayed_access *last_store(const cta *m, const warp *w, uint32_t until, uint64_t address, uint32_t bytes) {
    for (size_t i = m->delayed_count; i-- > 0;)
        if (is_store_of(&m->delayed[i], w) && m->delayed[i].number <= until && meets(&m->delayed[i], address, bytes))
            return &m->delayed[i];
    return NULL;
}

/* A lane's pending store to exactly these bytes; NULL if there is none. */
static const uint8_t *stored_by(const delayed_access *delayed, int lane, uint64_t address, uint32_t bytes) {
    if (!(delayed->lanes >> lane & 1) || delayed->at[lane] != address || delayed->bytes != bytes) return NULL;
    for (uint32_t rest = delayed->lanes & ~(1u << lane); rest; rest &= rest - 1) {
        const int other = first_lane(rest);
        if (delayed->at[other] < address + bytes && address < delayed->at[other] + bytes) return NULL;
    }
    return delayed->data[lane];
}

const uint8_t *emu_own_delayed(const cta *m, const warp *w, uint32_t until, int lane, uint64_t address,
                               uint32_t bytes) {
    const delayed_access *delayed = last_store(m, w, until, address, bytes);
    return delayed ? stored_by(delayed, lane, address, bytes) : NULL;
}

/* True if a load has to wait for stores before it that it cannot take its values from. */
static bool is_mixed(const cta *m, const delayed_access *load) {
    const warp *w = &m->warps[load->warp];
    for (uint32_t rest = load->lanes; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        const delayed_access *delayed = last_store(m, w, load->number, load->at[lane], load->bytes);
        if (delayed && !stored_by(delayed, lane, load->at[lane], load->bytes)) return true;
    }
    return false;
}

bool emu_delayed_is_due(const cta *m, const delayed_access *delayed) {
    if (delayed->loads) return !is_mixed(m, delayed);
    for (size_t i = 0; i < m->delayed_count && !delayed->copy.reduces; i++) {
        const delayed_access *other = &m->delayed[i];
        if (other->copy.reduces || other->warp != delayed->warp || other->number >= delayed->number) continue;
        const bool fenced = !other->loads && other->fences < delayed->fences;
        if (delayed->releases || fenced || same_bytes(other, delayed)) return false;
    }
    return true;
}

/* ---- loads ---- */

static bool works_on_registers(const op *o) {
    return o->kind <= OP_JOIN || o->kind == OP_ACTIVE_MASK || o->kind == OP_FACTORS || o->kind == OP_ADDRESS ||
           o->kind == OP_NOTHING;
}

static bool is_access(const op *o) {
    return o->kind == OP_LOAD || o->kind == OP_STORE || o->kind == OP_ATOMIC;
}

/* True if an op reads or writes what a load writes. Registers share a slot only with those of their size. */
static bool meets_registers(const op *o, const op *load) {
    for (int i = 0; i < load->dests; i++)
        for (int k = 0; k < o->dests + o->sources; k++)
            if (o->r[k] == load->r[i]) return true;
    return false;
}

/* True if another strong access follows before a branch and before an op that needs the load. */
static bool is_followed(const cta *m, const op *load) {
    for (const op *o = load + 1; o < m->code->ops + m->code->op_count; o++) {
        if (meets_registers(o, load) || o->kind == OP_BRANCH) return false;
        if (is_access(o) && o->order & ORDER_STRONG) return true;
        if (!is_access(o) && !works_on_registers(o)) return false;
    }
    return false;
}

static bool is_load_of(const delayed_access *delayed, const warp *w) {
    return delayed->warp == w->index && delayed->loads;
}

bool emu_is_delayed_load(const cta *m, const warp *w, const op *o, uint32_t mask) {
    uint64_t address;
    if (o->kind != OP_LOAD || !(o->order & ORDER_STRONG) || o->order & ORDER_ACQUIRE || w->split) return false;
    for (; mask; mask &= mask - 1)
        if (!touches_global(w, o, first_lane(mask), &address)) return false;
    return is_followed(m, o);
}

/* The checks count it as read now; what others published there is acquired as it reads. */
void emu_delay_load(cta *m, warp *w, const op *o, uint32_t mask, const uint64_t *addresses, uint8_t *const *bytes) {
    delayed_access *delayed = add_delayed(m, w, o->instruction);
    if (!delayed) return;
    delayed->loads = o;
    delayed->order = o->order;
    delayed->bytes = (uint32_t)o->bytes * o->vector;
    for (; mask; mask &= mask - 1) {
        const int lane = first_lane(mask);
        if (m->checks && bytes[lane]) emu_global_read(m, w, lane, addresses[lane], delayed->bytes, o->order);
        add_lane(m, delayed, lane, addresses[lane], bytes[lane], NULL);
    }
}

bool emu_delayed_concerns(const cta *m, const warp *w, const op *o) {
    for (size_t i = 0; i < m->delayed_count; i++)
        if (is_load_of(&m->delayed[i], w) && meets_registers(o, m->delayed[i].loads)) return true;
    return false;
}

/* As one number, the addresses of an access to global memory; 0 for another. */
static uint64_t addresses_of(const warp *w, const op *o, uint32_t mask) {
    uint64_t sum = 1, address;
    for (; mask; mask &= mask - 1) {
        if (!touches_global(w, o, first_lane(mask), &address)) return 0;
        sum = (sum ^ address) * 0x9e3779b97f4a7c15ull;
    }
    return sum;
}

/* An acquire load comes before later loads, because the stores that these meet are delayed here, and before a release.
 * A load that is delayed itself may come after everything but a release. */
void emu_note_overtaking(cta *m, warp *w, const op *o, uint32_t mask) {
    const uint64_t addresses = o->order & ORDER_STRONG ? addresses_of(w, o, mask) : 0;
    const bool releases = o->order & ORDER_RELEASE;
    if (!addresses) return;
    m->reads_early |= w->loaded && w->loaded != addresses;
    m->reads_early |= w->acquired && w->acquired != addresses && o->kind != OP_LOAD && !releases;
    m->reads_early |= w->delayed && w->delayed != addresses && releases;
    if (o->kind != OP_LOAD) return;
    if (o->order & ORDER_ACQUIRE)
        w->acquired = addresses;
    else if (emu_is_delayed_load(m, w, o, mask))
        w->delayed = addresses;
    else
        w->loaded = addresses;
}

/* ---- waits ---- */

/* True if an access meets what the warp has stored, other than by a load of all that the lane stored there. */
static bool meets_own_stores(const cta *m, const warp *w, const op *o, uint32_t mask) {
    const uint32_t bytes = (uint32_t)o->bytes * o->vector;
    for (uint64_t address; mask; mask &= mask - 1) {
        const int lane = first_lane(mask);
        if (!touches_global(w, o, lane, &address) || !last_store(m, w, UINT32_MAX, address, bytes)) continue;
        if (o->kind != OP_LOAD || !emu_own_delayed(m, w, UINT32_MAX, lane, address, bytes)) return true;
    }
    return false;
}

static bool any_store(const cta *m, const warp *w, uint32_t fences) {
    for (size_t i = 0; i < m->delayed_count; i++)
        if (is_store_of(&m->delayed[i], w) && m->delayed[i].fences < fences) return true;
    return false;
}

/* Loads and stores, atomics, fences but fence.sc and what works on registers need not wait for all stores. */
static bool waits_for_stores(const cta *m, const warp *w, const op *o, uint32_t mask) {
    if (works_on_registers(o) || !any_store(m, w, UINT32_MAX)) return false;
    if (o->kind == OP_FENCE) return o->order & ORDER_SC;
    if (o->kind == OP_LOAD) return !emu_is_delayed_load(m, w, o, mask) && meets_own_stores(m, w, o, mask);
    if (o->kind == OP_STORE && emu_is_delayed_store(w, o, mask)) return false;
    if (o->kind == OP_STORE) return o->order & ORDER_STRONG || meets_own_stores(m, w, o, mask);
    if (o->kind != OP_ATOMIC || o->order & ORDER_RELEASE) return true;
    return any_store(m, w, w->delayed_fences) || meets_own_stores(m, w, o, mask);
}

static bool meets_lanes(const warp *w, const delayed_access *delayed, const op *o, uint32_t mask) {
    for (uint64_t address; mask; mask &= mask - 1)
        if (touches_global(w, o, first_lane(mask), &address) && meets(delayed, address, (uint32_t)o->bytes * o->vector))
            return true;
    return false;
}

/* For one of them: an op that needs it or is at its bytes, or a release; a store that is delayed itself need not. */
static bool waits_for_load(const warp *w, const delayed_access *delayed, const op *o, uint32_t mask) {
    if (meets_registers(o, delayed->loads)) return true;
    if (!is_access(o)) return !works_on_registers(o);
    if (emu_is_delayed_store(w, o, mask)) return false;
    if (o->kind == OP_STORE && o->order & ORDER_STRONG) return true;
    return o->order & ORDER_RELEASE || meets_lanes(w, delayed, o, mask);
}

static bool waits_for_loads(const cta *m, const warp *w, const op *o, uint32_t mask) {
    for (size_t i = 0; i < m->delayed_count; i++)
        if (is_load_of(&m->delayed[i], w) && waits_for_load(w, &m->delayed[i], o, mask)) return true;
    return false;
}

static bool waits_for_sums(const cta *m, const warp *w, const op *o, uint32_t mask) {
    if (o->kind != OP_BULK_WAIT || o->detail) return false;
    for (size_t i = 0; i < m->delayed_count; i++)
        if (m->delayed[i].copy.reduces && bulk_waits_for(&m->delayed[i].copy, w, o, mask)) return true;
    return false;
}

bool emu_delayed_holds(cta *m, warp *w, const op *o, uint32_t mask) {
    if (o->kind == OP_FENCE || o->kind == OP_BARRIER) w->loaded = w->acquired = w->delayed = 0;
    if (!m->delayed_count) return false;
    if (!waits_for_sums(m, w, o, mask) && !waits_for_stores(m, w, o, mask) && !waits_for_loads(m, w, o, mask))
        return false;
    emu_try_again(m, w, o, mask);
    w->tries_again = false;
    w->state = WARP_HELD;
    w->waits_for_delayed = true;
    return true;
}

void emu_remove_delayed(cta *m, size_t index) {
    free_delayed(&m->delayed[index]);
    memmove(&m->delayed[index], &m->delayed[index + 1], (--m->delayed_count - index) * sizeof *m->delayed);
    for (uint32_t i = 0; i < m->warp_count; i++) {
        warp *w = &m->warps[i];
        if (w->state == WARP_HELD && w->waits_for_delayed) w->state = WARP_READY;
        w->waits_for_delayed &= w->state == WARP_HELD;
    }
}

void emu_forget_delayed(cta *m) {
    for (size_t i = 0; i < m->delayed_count; i++) free_delayed(&m->delayed[i]);
    m->delayed_count = 0;
}
