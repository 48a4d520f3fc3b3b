/* memory.c - loads, stores, atomics, ldmatrix and stmatrix over the address spaces.
 *
 * A device address is (buffer number << 36) + BUFFER_START + offset; number 0 holds the variables of the module. Bounds
 * and alignment are always checked: a load from a bad address gives zeros, a store to one is dropped.
 */
#include "addresses.h"
#include "interleaving.h"
#include "lane_loop.h"
#include "machine.h"

#include <inttypes.h>
#include <string.h>

uint64_t emu_lane_address(const warp *w, const op *o, unsigned source, int lane) {
    return lane_address(w, o, source, lane);
}

/* ---- from addresses to host bytes ---- */

static void report_bounds(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes, const char *verb,
                          const char *what) {
    emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, lane, -1, address,
               "This instruction %s %u bytes at 0x%" PRIx64
               ", %s.\nThe emulator loads zeros from there and drops stores; "
               "a device may fault or corrupt other data.",
               verb, bytes, address, what);
}

/* ---- before the turn of a cluster ---- */

/* An atomic of a warp that updates memory when the turn of its cluster has come. */
typedef struct postponed_atomic {
    cta *m;
    const op *o;
    uint8_t *bytes[LANES]; /* NULL for a lane that is off */
    uint8_t values[LANES][16];
} postponed_atomic;

/* A cluster that runs before its turn waits for it. */
static void wait_for_turn(cta *m) {
    if (!emu_lookahead_waits(m->cluster))
        m->faulted = true; /* as another CTA is */
    else
        emu_apply_postponed(m->cluster);
}

static bool meets_postponed(const cluster *c, uint64_t address, uint32_t bytes) {
    return c->postponed_count && address < c->postponed_end && c->postponed_begin < address + bytes;
}

static uint8_t *global_bytes(cta *m, const warp *w, uint64_t address, uint32_t bytes, int lane, const char *verb) {
    uint64_t number = address >> BUFFER_SHIFT;
    uint64_t offset = (address & ((1ull << BUFFER_SHIFT) - 1)) - BUFFER_START;
    emu_device *device = m->device;
    if (meets_postponed(m->cluster, address, bytes)) wait_for_turn(m);
    if (number == 0 && offset < device->variable_bytes && device->variable_bytes - offset >= bytes) {
        return device->variables + offset;
    }
    const buffer *b = emu_find_buffer(device, address);
    if (b && offset < b->size && b->size - offset >= bytes) return b->bytes + offset;
    if (address >= GRID_BARRIER && address + bytes <= GRID_BARRIER + sizeof device->grid_barrier)
        return device->grid_barrier + (address - GRID_BARRIER);
    char what[200] = "outside every buffer";
    if (address < 4096) {
        snprintf(what, sizeof what, "near address 0: a null pointer");
    } else if (b && !b->bytes && b->name) {
        snprintf(what, sizeof what, "in buffer '%.60s', which was freed", b->name);
    } else if (b && b->bytes && (int64_t)offset < 0) {
        snprintf(what, sizeof what, "%" PRIu64 " bytes before buffer '%.60s'", 0 - offset, b->name);
    } else if (b && b->bytes) {
        snprintf(what, sizeof what, "byte %" PRIu64 " of buffer '%.60s', which has %" PRIu64, offset, b->name, b->size);
    }
    report_bounds(m, w, lane, address, bytes, verb, what);
    return NULL;
}

static uint8_t *window_bytes(cta *m, const warp *w, uint8_t *memory, uint64_t offset, uint64_t size, uint64_t address,
                             uint32_t bytes, int lane, const char *verb, const char *name) {
    if (offset < size && size - offset >= bytes) return memory + offset;
    char what[160];
    snprintf(what, sizeof what, "byte %" PRId64 " of %s, which has %" PRIu64, (int64_t)offset, name, size);
    report_bounds(m, w, lane, address, bytes, verb, what);
    return NULL;
}

uint8_t *emu_translate(cta *m, warp *w, state_space space, uint64_t address, uint32_t bytes, int lane,
                       const char *verb) {
    if (address & (bytes - 1)) {
        emu_report(m, EMU_MISALIGNED, UINT32_MAX, w, lane, -1, address,
                   "This instruction %s %u bytes at 0x%" PRIx64
                   ", which is not a multiple of %u. Devices stop with a fault here.",
                   verb, bytes, address, bytes);
        return NULL;
    }
    if (space == SPACE_GENERIC) {
        if (address & SHARED_WINDOW)
            address -= SHARED_WINDOW, space = address >> CTA_SHIFT ? SPACE_CLUSTER : SPACE_SHARED;
        else if (address & LOCAL_WINDOW)
            space = SPACE_LOCAL, address -= LOCAL_WINDOW;
        else if (address & PARAM_WINDOW)
            space = SPACE_PARAM, address -= PARAM_WINDOW;
        else if (address & CONST_WINDOW)
            space = SPACE_CONST, address -= CONST_WINDOW;
        else
            space = SPACE_GLOBAL;
    }
    switch (space) {
    case SPACE_SHARED:
        return window_bytes(m, w, m->shared, address - m->shared_base, m->shared_bytes, address, bytes, lane, verb,
                            "the shared memory of the CTA");
    case SPACE_CLUSTER: {
        uint32_t local;
        const cta *at = emu_expect_owner(m, w, lane, address, verb, &local);
        return at ? window_bytes(m, w, at->shared, local - m->shared_base, at->shared_bytes, address, bytes, lane, verb,
                                 "the shared memory of that CTA")
                  : NULL;
    }
    case SPACE_LOCAL:
        return window_bytes(m, w, m->local + (size_t)(w->index * LANES + lane) * m->code->local_bytes, address,
                            m->code->local_bytes, address, bytes, lane, verb, "the thread's local memory");
    case SPACE_PARAM:
        /* parameters are only ever read: the decoder has no st.param to them */
        return window_bytes(m, w, (uint8_t *)(uintptr_t)m->launch->params, address, m->launch->param_bytes, address,
                            bytes, lane, verb, "the parameters");
    default:
        return global_bytes(m, w, address, bytes, lane, verb);
    }
}

const char *emu_device_string(cta *m, uint64_t address) {
    address &= ~CONST_WINDOW;
    const buffer *own = emu_find_buffer(m->device, address); /* of a module that has its variables apart */
    const uint8_t *text = own ? own->bytes : m->device->variables;
    const uint64_t bytes = own ? own->size : m->device->variable_bytes;
    const uint64_t offset = (address & ((1ull << BUFFER_SHIFT) - 1)) - BUFFER_START;
    if (offset >= bytes || !memchr(text + offset, 0, (size_t)(bytes - offset))) return "(not a string)";
    return (const char *)text + offset;
}

/* The CTA whose shared memory an access goes to, and the address there. */
static inline cta *owner_of(cta *m, const op *o, uint64_t address, uint32_t *local) {
    *local = (uint32_t)address;
    return o->space == SPACE_SHARED ? m : emu_owner(m, (uint32_t)address, local);
}

static inline uint32_t note_shared_read(cta *m, warp *w, const op *o, int lane, uint64_t address, uint32_t bytes) {
    uint32_t local;
    cta *at = owner_of(m, o, address, &local);
    if (at == m && !(o->flags & FLAG_ORDERS)) return emu_on_shared_read(m, w, lane, local, bytes);
    return emu_on_cluster_read(m, w, lane, at, local, bytes, o);
}

static inline void note_shared_write(cta *m, warp *w, const op *o, int lane, uint64_t address, uint32_t bytes,
                                     const uint8_t *data) {
    uint32_t local;
    cta *at = owner_of(m, o, address, &local);
    if (at == m && !(o->flags & FLAG_ORDERS) && !w->undefined_stores)
        emu_on_shared_write(m, w, lane, local, bytes, data);
    else
        emu_on_cluster_write(m, w, lane, at, local, bytes, o, data);
}

static void note_shared_atomic(cta *m, warp *w, const op *o, int lane, uint64_t address, uint32_t bytes) {
    uint32_t local;
    cta *at = owner_of(m, o, address, &local);
    emu_on_cluster_atomic(m, w, lane, at, local, bytes, o);
}

/* Polling threads read again. */
static void note_remote_change(cta *m, const op *o, uint64_t address) {
    uint32_t local;
    cta *at = owner_of(m, o, address, &local);
    if (at != m) at->changes++;
}

static inline void note_change(cta *m, const op *o, state_space space, uint64_t address) {
    m->changes++;
    if (space == SPACE_SHARED && o->space != SPACE_SHARED) note_remote_change(m, o, address);
}

/* ---- loads and stores ---- */

typedef struct access {
    uint64_t addresses[LANES];
    uint8_t *bytes[LANES]; /* NULL where the address is bad or the lane is off */
    uint32_t size;
    state_space space;
} access;

static void count_access(cta *m, const op *o, const access *a, uint32_t mask) {
    if (a->space == SPACE_SHARED) {
        uint32_t low[LANES];
        for (int i = 0; i < LANES; i++) low[i] = (uint32_t)a->addresses[i];
        emu_count_shared(m, o, low, a->size, mask);
    } else if (a->space == SPACE_GLOBAL) {
        emu_count_global(m, o, a->addresses, a->size, mask);
    } else {
        m->counts[o->instruction].bytes += (uint64_t)population(mask) * a->size;
    }
}

bool emu_touches(const warp *w, const op *o, int lane, uint64_t *address) {
    *address = emu_lane_address(w, o, o->kind == OP_STORE ? 0 : o->dests, lane);
    const bool shared = effective_space(o, *address) == SPACE_SHARED;
    if (shared && o->space == SPACE_GENERIC) *address -= SHARED_WINDOW;
    return shared;
}

/* True if an access that threads tell each other by has to wait for its turn, as it has not come yet. */
static bool is_held(cta *m, warp *w, const op *o, uint32_t mask) {
    const bool tells = o->kind == OP_ATOMIC || o->asks || o->flags & (FLAG_ORDERS | FLAG_MAY_ORDER);
    if (!tells) return false;
    const bool granted = w->granted;
    w->granted = false;
    if (granted) return false;
    emu_try_again(m, w, o, mask);
    w->state = WARP_HELD;
    w->held = mask;
    return true;
}

/* Find the bytes of all lanes at once, if they are aligned and in one buffer, or in shared memory. Otherwise false. */
static bool resolve_together(const cta *m, const op *o, uint32_t mask, access *a) {
    const uint64_t some = a->addresses[first_lane(mask)];
    const bool shared = o->space == SPACE_SHARED;
    const buffer *b = effective_space(o, some) == SPACE_GLOBAL ? emu_find_buffer(m->device, some) : NULL;
    if (!shared && (!b || !b->bytes || m->cluster->postponed_count)) return false;
    const uint64_t start = shared ? m->shared_base : (some >> BUFFER_SHIFT << BUFFER_SHIFT) + BUFFER_START;
    const uint64_t size = shared ? m->shared_bytes : b->size;
    uint8_t *const memory = shared ? m->shared : b->bytes;
    bool fits = size >= a->size;
    for (uint32_t rest = mask; rest && fits; rest &= rest - 1) {
        const int i = first_lane(rest);
        const uint64_t offset = a->addresses[i] - start;
        fits = offset <= size - a->size && !(a->addresses[i] & (a->size - 1));
        a->bytes[i] = memory + offset;
    }
    return fits;
}

static void resolve(cta *m, warp *w, const op *o, unsigned source, uint32_t mask, const char *verb, access *a) {
    a->size = (uint32_t)o->bytes * o->vector;
    for (int i = 0; i < LANES; i++) {
        a->bytes[i] = NULL;
        a->addresses[i] = mask >> i & 1 ? lane_address(w, o, source, i) : 0;
    }
    const bool together = resolve_together(m, o, mask, a);
    for (int i = 0; i < LANES && !together; i++) {
        if (!(mask >> i & 1)) continue;
        a->bytes[i] = emu_translate(m, w, (state_space)o->space, a->addresses[i], a->size, i, verb);
        if (effective_space(o, a->addresses[i]) == SPACE_CONST) a->addresses[i] &= ~CONST_WINDOW;
    }
    a->space = effective_space(o, a->addresses[first_lane(mask)]);
    count_access(m, o, a, mask);
}

static uint64_t extend(uint64_t value, uint32_t bytes, bool is_signed) {
    if (bytes == 1) return is_signed ? (uint64_t)(int8_t)value : value & 0xff;
    if (bytes == 2) return is_signed ? (uint64_t)(int16_t)value : value & 0xffff;
    if (bytes == 4) return is_signed ? (uint64_t)(int32_t)value : value & 0xffffffffu;
    return value;
}

static void load_words(warp *w, const op *o, const access *a, uint32_t mask) {
    uint32_t *d[4];
    for (int k = 0; k < o->vector; k++) d[k] = slot32(w, o->r[k]);
    for (int i = 0; i < LANES; i++) {
        if (!(mask >> i & 1)) continue;
        uint32_t words[4] = {0};
        if (a->bytes[i]) memcpy(words, a->bytes[i], a->size);
        for (int k = 0; k < o->vector; k++) d[k][i] = words[k];
    }
}

static void load_element(warp *w, const op *o, const access *a, int k, int lane) {
    uint64_t value[2] = {0, 0};
    if (a->bytes[lane]) memcpy(value, a->bytes[lane] + k * o->bytes, o->bytes);
    if (o->bytes == 16) {
        slot64(w, o->r[k])[lane] = value[0];
        slot64(w, o->r[k])[LANES + lane] = value[1];
        return;
    }
    value[0] = extend(value[0], o->bytes, o->flags & FLAG_SIGNED);
    if (o->detail >> k & 1)
        slot64(w, o->r[k])[lane] = value[0];
    else
        slot32(w, o->r[k])[lane] = o->detail >> (k + 4) & 1 ? (uint16_t)value[0] : (uint32_t)value[0];
}

static void load_registers(warp *w, const op *o, const access *a, uint32_t mask) {
    if (o->bytes == 4 && !o->detail) {
        load_words(w, o, a, mask);
        return;
    }
    for (int i = 0; i < LANES; i++) {
        for (int k = 0; k < o->vector && mask >> i & 1; k++) load_element(w, o, a, k, i);
    }
}

/* Uninitialized bytes of each lane's load. */
static void note_undefined_loads(cta *m, warp *w, const op *o, const access *a, const uint32_t *undefined) {
    const uint32_t element = (1u << o->bytes) - 1;
    for (int k = 0; k < o->vector; k++) {
        uint32_t lanes = 0;
        uint64_t address = 0;
        bool stored = false;
        for (int i = LANES - 1; i >= 0; i--) {
            if (!(undefined[i] >> (k * o->bytes) & element)) continue;
            lanes |= 1u << i;
            address = effective_space(o, a->addresses[i]) == SPACE_SHARED ? (uint32_t)a->addresses[i] : a->addresses[i];
            stored = undefined[i] & STORED_UNDEFINED;
        }
        emu_on_undefined_load(m, w, o->r[k], lanes, address, stored);
    }
}

/* The lanes that load what they have stored and others do not see yet. */
static uint32_t take_own(const cta *m, const warp *w, access *a, uint32_t mask) {
    uint32_t own = 0;
    for (; mask && a->space == SPACE_GLOBAL; mask &= mask - 1) {
        const int lane = first_lane(mask);
        const uint8_t *stored = emu_own_delayed(m, w, UINT32_MAX, lane, a->addresses[lane], a->size);
        if (!stored) continue;
        a->bytes[lane] = (uint8_t *)(uintptr_t)stored; /* to read */
        own |= 1u << lane;
    }
    return own;
}

void emu_exec_load(cta *m, warp *w, const op *o, uint32_t mask) {
    access a;
    const bool is_delayed = m->explores && emu_is_delayed_load(m, w, o, mask);
    if (m->explores && !is_delayed && is_held(m, w, o, mask)) return;
    if (m->explores) emu_note_overtaking(m, w, o, mask);
    resolve(m, w, o, o->dests, mask, "reads", &a);
    if (is_delayed) {
        emu_delay_load(m, w, o, mask, a.addresses, a.bytes);
        return;
    }
    if (o->asks) note_poll(m, w, o, a.addresses[first_lane(mask)]);
    const uint32_t own = m->delayed_count ? take_own(m, w, &a, mask) : 0;
    if (m->stale) emu_stale_load(m, w, o, mask & ~own, a.addresses, a.bytes);
    uint32_t undefined[LANES] = {0}, any = 0;
    if (m->checks && (a.space == SPACE_SHARED || o->space == SPACE_GENERIC)) {
        for (int i = 0; i < LANES; i++) {
            if (a.bytes[i] && effective_space(o, a.addresses[i]) == SPACE_SHARED) {
                undefined[i] = note_shared_read(m, w, o, i, a.addresses[i], a.size);
                any |= undefined[i];
            }
        }
    }
    if (m->checks && (a.space == SPACE_GLOBAL || a.space == SPACE_CONST || o->space == SPACE_GENERIC)) {
        uint32_t reads = 0, noted = 0;
        for (int i = 0; i < LANES; i++)
            reads |= (uint32_t)(a.bytes[i] && !(own >> i & 1) && is_in_global(o, a.addresses[i])) << i;
        for (int i = 0; i < LANES; i++) {
            if (!((reads & ~noted) >> i & 1)) continue;
            const uint32_t together = emu_on_lanes_read(m, w, i, reads, a.addresses, a.size, o);
            noted |= together;
            if (!together) any |= undefined[i] = emu_on_global_read(m, w, i, a.addresses[i], a.size, o);
        }
    }
    if (any) note_undefined_loads(m, w, o, &a, undefined);
    load_registers(w, o, &a, mask);
    w->stale = 0;
}

void emu_finish_load(warp *w, const op *o, uint8_t *const *bytes, uint32_t mask) {
    access a = {.size = (uint32_t)o->bytes * o->vector};
    memcpy(a.bytes, bytes, sizeof a.bytes);
    load_registers(w, o, &a, mask);
}

/* memcpy(), without a call for the sizes of an access. */
static inline void copy_bytes(uint8_t *to, const void *from, uint32_t bytes) {
    if (bytes == 2)
        memcpy(to, from, 2);
    else if (bytes == 4)
        memcpy(to, from, 4);
    else if (bytes == 8)
        memcpy(to, from, 8);
    else if (bytes == 16)
        memcpy(to, from, 16);
    else
        memcpy(to, from, bytes);
}

static inline void gather_element(const warp *w, const op *o, int k, int lane, uint8_t *out) {
    unsigned reg = o->r[1 + k];
    if (o->bytes == 16) {
        memcpy(out, &slot64(w, reg)[lane], 8);
        memcpy(out + 8, &slot64(w, reg)[LANES + lane], 8);
    } else if (o->bytes == 8) {
        memcpy(out, &slot64(w, reg)[lane], 8);
    } else {
        copy_bytes(out, &slot32(w, reg)[lane], o->bytes);
    }
}

void emu_exec_store(cta *m, warp *w, const op *o, uint32_t mask) {
    access a;
    const bool is_delayed = m->explores && emu_is_delayed_store(w, o, mask);
    if (m->explores && !is_delayed && is_held(m, w, o, mask)) return;
    if (m->explores) emu_note_overtaking(m, w, o, mask);
    if (m->cluster->lookahead && o->order && o->space != SPACE_SHARED) wait_for_turn(m);
    if (m->faulted) return;
    resolve(m, w, o, 0, mask, "writes", &a);
    struct delayed_access *delayed = is_delayed ? emu_delay_store(m, w, o) : NULL;
    stored_values data;
    uint32_t global = 0;
    for (int i = 0; i < LANES; i++) {
        if (!a.bytes[i]) continue;
        global |= (uint32_t)(effective_space(o, a.addresses[i]) == SPACE_GLOBAL) << i;
        for (int k = 0, at = 0; k < o->vector && at + o->bytes <= (int)sizeof data[i]; k++, at += o->bytes) {
            gather_element(w, o, k, i, data[i] + at);
        }
    }
    const uint32_t noted =
        m->checks && global && !delayed ? emu_on_lanes_write(m, w, global, a.addresses, a.size, o, data) : 0;
    for (int i = 0; i < LANES; i++) {
        if (!a.bytes[i]) continue;
        if (delayed) {
            emu_delay_store_lane(m, w, delayed, i, a.addresses[i], a.bytes[i], data[i]);
            continue;
        }
        state_space space = effective_space(o, a.addresses[i]);
        if (m->checks && space == SPACE_SHARED) note_shared_write(m, w, o, i, a.addresses[i], a.size, data[i]);
        if (m->checks && (global & ~noted) >> i & 1)
            emu_on_global_write(m, w, i, a.addresses[i], a.size, o, data[i], a.bytes[i]);
        if (m->stale) emu_stale_write(m, w, w->clock, i, o, a.addresses[i], a.bytes[i], a.size);
        if (!m->watches || memcmp(a.bytes[i], data[i], a.size)) note_change(m, o, space, a.addresses[i]);
        copy_bytes(a.bytes[i], data[i], a.size);
    }
    w->undefined_stores = 0;
    if (m->checks) emu_on_access_end(m, w, o);
}

/* ---- atomics ---- */

/* An element of at most 16 bytes. */
typedef struct element {
    uint64_t low, high;
} element;

static element register_element(const warp *w, unsigned reg, int lane, uint32_t bytes) {
    if (bytes == 16) return (element){slot64(w, reg)[lane], slot64(w, reg)[LANES + lane]};
    return (element){bytes == 8 ? slot64(w, reg)[lane] : slot32(w, reg)[lane], 0};
}

static uint64_t integer_result(const op *o, uint64_t old, uint64_t value) {
    bool is_signed = o->flags & FLAG_SIGNED;
    int64_t a = (int64_t)extend(old, o->bytes, is_signed), b = (int64_t)extend(value, o->bytes, is_signed);
    bool less = is_signed ? a < b : (uint64_t)a < (uint64_t)b;
    switch ((enum atomic_operation)o->detail) {
    case ATOMIC_ADD:
        return old + value;
    case ATOMIC_MIN:
        return less ? old : value;
    case ATOMIC_MAX:
        return less ? value : old;
    case ATOMIC_AND:
        return old & value;
    case ATOMIC_OR:
        return old | value;
    case ATOMIC_XOR:
        return old ^ value;
    case ATOMIC_INC:
        return old >= value ? 0 : old + 1;
    case ATOMIC_DEC:
        return !old || old > value ? value : old - 1;
    default:
        return value;
    }
}

/* A sum in f32 is rounded once more without harm: it has more than twice the digits of a 16-bit number. */
static uint32_t half_result(const op *o, uint32_t old, uint32_t value, bool bfloat) {
    float a = bfloat ? bfloat_value(old) : half_value(old), b = bfloat ? bfloat_value(value) : half_value(value);
    float result = o->detail == ATOMIC_ADD ? a + b : o->detail == ATOMIC_MIN ? smaller(a, b) : larger(a, b);
    return bfloat ? bfloat_bits(result) : half_bits(result);
}

/* Devices flush subnormals of f32 in global memory only. */
static uint32_t single_result(state_space space, uint32_t old, uint32_t value) {
    if (space == SPACE_GLOBAL) return flushed(canonical(flushed_value(old) + flushed_value(value)));
    return canonical(float_of(old) + float_of(value));
}

static uint64_t double_result(uint64_t old, uint64_t value) {
    double sum = double_of(old) + double_of(value);
    return sum != sum ? 0x7fffffffffffffffu : bits_of_double(sum); /* the NaN of a device */
}

static element atomic_result(const op *o, state_space space, element old, element value, element swap) {
    if (o->detail == ATOMIC_CAS) return old.low == value.low && old.high == value.high ? swap : old;
    if (o->detail == ATOMIC_EXCH) return value;
    const uint32_t a = (uint32_t)old.low, b = (uint32_t)value.low;
    switch ((enum atomic_numbers)o->target) {
    case ATOMIC_INTEGER:
        return (element){integer_result(o, old.low, value.low), 0};
    case ATOMIC_F32:
        return (element){single_result(space, a, b), 0};
    case ATOMIC_F64:
        return (element){double_result(old.low, value.low), 0};
    case ATOMIC_F16:
    case ATOMIC_BF16:
        return (element){half_result(o, a & 0xffff, b & 0xffff, o->target == ATOMIC_BF16), 0};
    default:
        break;
    }
    bool bfloat = o->target == ATOMIC_BF16X2;
    return (element){half_result(o, a & 0xffff, b & 0xffff, bfloat) | half_result(o, a >> 16, b >> 16, bfloat) << 16,
                     0};
}

/* Elements of 16 bytes have no lock-free operations of the language. *changed becomes true where memory does. */
static element update_wide(cta *m, const op *o, uint8_t *at, element value, element swap, bool *changed) {
    element old;
    while (atomic_flag_test_and_set(&m->device->wide_atomics)) {
    }
    memcpy(&old, at, sizeof old);
    element next = atomic_result(o, SPACE_GLOBAL, old, value, swap);
    memcpy(at, &next, sizeof next);
    *changed |= next.low != old.low || next.high != old.high;
    atomic_flag_clear(&m->device->wide_atomics);
    return old;
}

#define UPDATE(type)                                                                                                   \
    do {                                                                                                               \
        type *cell = (type *)(void *)at, next;                                                                         \
        type known = __atomic_load_n(cell, __ATOMIC_SEQ_CST);                                                          \
        do {                                                                                                           \
            next = (type)atomic_result(o, space, (element){known, 0}, value, swap).low;                                \
        } while (!__atomic_compare_exchange_n(cell, &known, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));         \
        *changed |= next != known;                                                                                     \
        return (element){known, 0};                                                                                    \
    } while (0)

static element update_bytes(cta *m, const op *o, state_space space, uint8_t *at, element value, element swap,
                            bool *changed) {
    if (o->bytes == 16) return update_wide(m, o, at, value, swap, changed);
    if (o->bytes == 8) UPDATE(uint64_t);
    if (o->bytes == 2) UPDATE(uint16_t);
    UPDATE(uint32_t);
}

void emu_reduce(cta *m, const op *o, bool flushes, uint8_t *at, const uint8_t *from, uint32_t bytes) {
    const state_space as = flushes ? SPACE_GLOBAL : SPACE_SHARED; /* whose atomics of f32 flush, and do not */
    const op each = {
        .detail = (uint8_t)(o->target >> 8), .target = o->target & 0xff, .bytes = o->bytes, .flags = o->flags};
    bool changed = false;
    for (uint32_t i = 0; i < bytes; i += o->bytes) {
        element value = {0};
        memcpy(&value.low, from + i, o->bytes);
        update_bytes(m, &each, as, at + i, value, (element){0}, &changed);
    }
}

static void put_element(warp *w, unsigned reg, int lane, uint32_t bytes, element value) {
    if (bytes < 8) {
        slot32(w, reg)[lane] = (uint32_t)value.low;
        return;
    }
    slot64(w, reg)[lane] = value.low;
    if (bytes == 16) slot64(w, reg)[LANES + lane] = value.high;
}

/* A ticket was drawn, or a slot in a list: what the CTA does with it another CTA may do in another order. */
static void note_draw(cta *m, warp *w, const op *o, bool changed) {
    cluster *c = m->cluster;
    const bool counts = o->detail == ATOMIC_ADD || o->detail == ATOMIC_INC || o->detail == ATOMIC_DEC;
    if (!c->draws_apart || !changed || !o->asks || !counts || o->target != ATOMIC_INTEGER) return;
    c->drew = w->poll_failed = c->draws++ < MOST_DRAWS;
}

enum { MOST_POSTPONED = 1 << 16 };

/* True if an atomic whose result nobody reads can update memory later; it counts as executed now. */
static bool can_postpone(const cta *m, const warp *w, const op *o, uint32_t mask) {
    uint64_t address;
    const cluster *c = m->cluster;
    if (o->asks || o->flags & FLAG_ORDERS || o->detail == ATOMIC_CAS || o->bytes * o->vector > 16 ||
        c->postponed_count >= MOST_POSTPONED)
        return false;
    for (; mask; mask &= mask - 1)
        if (!touches_global(w, o, first_lane(mask), &address)) return false;
    return true;
}

/* The room for it; NULL when out of memory. */
static postponed_atomic *postpone(cta *m, const op *o) {
    cluster *c = m->cluster;
    postponed_atomic *more = cta_reserve(m, c->postponed, c->postponed_count + 1, &c->postponed_capacity, sizeof *more);
    if (!more) return NULL;
    if (!c->postponed_count) c->postponed_begin = UINT64_MAX, c->postponed_end = 0;
    c->postponed = more;
    more += c->postponed_count;
    *more = (postponed_atomic){.m = m, .o = o};
    return more;
}

static void postpone_lane(const warp *w, postponed_atomic *later, const access *a, int lane) {
    const op *o = later->o;
    cluster *c = later->m->cluster;
    later->bytes[lane] = a->bytes[lane];
    if (!a->bytes[lane]) return;
    for (int k = 0; k < o->vector; k++) {
        const element value = register_element(w, o->r[o->dests + 1 + k], lane, o->bytes);
        memcpy(later->values[lane] + k * o->bytes, &value, o->bytes);
    }
    if (a->addresses[lane] < c->postponed_begin) c->postponed_begin = a->addresses[lane];
    if (a->addresses[lane] + a->size > c->postponed_end) c->postponed_end = a->addresses[lane] + a->size;
}

void emu_apply_postponed(cluster *c) {
    for (size_t i = 0; i < c->postponed_count; i++) {
        const postponed_atomic *each = &c->postponed[i];
        const op *o = each->o;
        bool changed = false;
        for (int at = 0; at < LANES * o->vector; at++) {
            const int lane = at / o->vector, k = at % o->vector;
            element value = {0};
            if (!each->bytes[lane]) continue;
            memcpy(&value, each->values[lane] + k * o->bytes, o->bytes);
            update_bytes(each->m, o, SPACE_GLOBAL, each->bytes[lane] + k * o->bytes, value, (element){0}, &changed);
        }
    }
    c->postponed_count = 0;
}

/* Before its turn a cluster must not update memory that others see. Returns whether the atomic is postponed. */
static bool run_before_turn(cta *m, warp *w, const op *o, uint32_t mask) {
    access a;
    const bool is_early = emu_lookahead_is_early(m->cluster) && can_postpone(m, w, o, mask);
    if (!is_early) {
        wait_for_turn(m);
        return m->faulted;
    }
    postponed_atomic *later = postpone(m, o);
    const size_t before = m->cluster->postponed_count;
    m->cluster->postponed_count = 0; /* it need not wait for those at the same addresses */
    resolve(m, w, o, o->dests, mask, "updates", &a);
    m->cluster->postponed_count = before;
    for (int i = 0; later && i < LANES; i++) {
        if (m->checks && a.bytes[i]) emu_on_global_atomic(m, w, i, a.addresses[i], a.size, o);
        postpone_lane(w, later, &a, i);
        if (a.bytes[i]) m->changes++;
    }
    if (later) m->cluster->postponed_count++;
    if (m->checks) emu_on_access_end(m, w, o);
    return true;
}

void emu_exec_atomic(cta *m, warp *w, const op *o, uint32_t mask) {
    access a;
    bool any_changed = false;
    if (m->explores && is_held(m, w, o, mask)) return;
    if (m->explores) emu_note_overtaking(m, w, o, mask);
    if (m->cluster->lookahead && o->space != SPACE_SHARED && run_before_turn(m, w, o, mask)) return;
    resolve(m, w, o, o->dests, mask, "updates", &a);
    const uint16_t *values = o->r + o->dests + 1;
    for (int i = 0; i < LANES; i++) {
        if (!a.bytes[i]) continue;
        state_space space = effective_space(o, a.addresses[i]);
        if (m->checks && space == SPACE_SHARED) note_shared_atomic(m, w, o, i, a.addresses[i], a.size);
        if (m->checks && space == SPACE_GLOBAL) emu_on_global_atomic(m, w, i, a.addresses[i], a.size, o);
        if (m->stale) emu_stale_write(m, w, w->clock, i, o, a.addresses[i], a.bytes[i], a.size);
        bool changed = false;
        for (int k = 0; k < o->vector; k++) {
            element value = register_element(w, values[k], i, o->bytes), swap = {0, 0};
            if (o->bytes == 2) value.low &= 0xffff;
            if (o->detail == ATOMIC_CAS) swap = register_element(w, values[o->vector], i, o->bytes);
            element old = update_bytes(m, o, space, a.bytes[i] + k * o->bytes, value, swap, &changed);
            put_element(w, o->r[k], i, o->bytes, old);
        }
        const bool counts = changed || (m->cluster->lookahead && !o->asks); /* as one that is postponed */
        if (counts) note_change(m, o, space, a.addresses[i]);
        any_changed |= changed && space == SPACE_GLOBAL;
    }
    if (m->checks) emu_on_access_end(m, w, o);
    if (o->asks) note_poll(m, w, o, a.addresses[first_lane(mask)]);
    note_draw(m, w, o, any_changed);
}

/* An instruction that names memory without touching it. */
void emu_exec_address(cta *m, warp *w, const op *o, uint32_t mask) {
    for (; mask; mask &= mask - 1) {
        int lane = first_lane(mask);
        emu_translate(m, w, (state_space)o->space, emu_lane_address(w, o, 0, lane), (uint32_t)o->bytes * o->vector,
                      lane, "names");
    }
}

/* ---- st.bulk ---- */

void emu_exec_zeros(cta *m, warp *w, const op *o, uint32_t mask) {
    enum { STEP = 8, MOST = 1 << 24 };
    static const uint8_t zeros[STEP];
    for (; mask; mask &= mask - 1) {
        const int lane = first_lane(mask);
        const uint64_t window = o->space == SPACE_GENERIC ? SHARED_WINDOW : 0,
                       bytes = slot64(w, o->r[o->sources - 1])[lane];
        const uint64_t first = emu_lane_address(w, o, 0, lane) - window;
        if (bytes % STEP || bytes > MOST) {
            emu_report(m, EMU_MISALIGNED, UINT32_MAX, w, lane, -1, first,
                       "st.bulk of %" PRIu64 " bytes: it must be a multiple of 8, up to 16 MiB.", bytes);
            continue;
        }
        for (uint64_t at = first; at < first + bytes; at += STEP) {
            uint8_t *to = emu_translate(m, w, SPACE_SHARED, at, STEP, lane, "writes");
            if (!to) break;
            if (m->checks) emu_on_shared_write(m, w, lane, (uint32_t)at, STEP, zeros);
            memset(to, 0, STEP);
        }
        m->changes++;
    }
}

/* ---- ldmatrix and stmatrix: lane i gives the address of row i % 8 of matrix i / 8 ---- */

static void spread_matrix(uint32_t *d, const uint8_t *const rows[8], bool transposed) {
    if (!transposed) {
        for (int row = 0; row < 8; row++) memcpy(d + 4 * row, rows[row], 16);
        return;
    }
    uint16_t values[8][8];
    for (int row = 0; row < 8; row++) memcpy(values[row], rows[row], 16);
    for (int column = 0; column < 8; column++) {
        for (int pair = 0; pair < 4; pair++) {
            d[4 * column + pair] = values[2 * pair][column] | (uint32_t)values[2 * pair + 1][column] << 16;
        }
    }
}

/* Sixteen rows of bytes, transposed: a lane gets column `lane / 4` of four rows, and the one eight columns on. */
static void spread_bytes(uint32_t *d, uint32_t *next, const uint8_t *const rows[16]) {
    for (int lane = 0; lane < LANES; lane++) {
        uint8_t bytes[2][4];
        for (int i = 0; i < 8; i++) bytes[i / 4][i % 4] = rows[lane % 4 * 4 + i % 4][lane / 4 + i / 4 * 8];
        memcpy(&d[lane], bytes[0], 4);
        memcpy(&next[lane], bytes[1], 4);
    }
}

/* Address of the rows of 16 bytes; NULL, and reported, if it is not shared memory. */
static void matrix_rows(cta *m, warp *w, const op *o, const char *verb, uint32_t *addresses, uint8_t **rows) {
    const uint64_t window = o->space == SPACE_GENERIC ? SHARED_WINDOW : 0;
    for (int i = 0; i < o->vector * 8; i++) {
        uint64_t whole = emu_lane_address(w, o, o->dests, i) - window, offset = whole - m->shared_base;
        addresses[i] = (uint32_t)whole;
        rows[i] = m->shared + offset;
        if ((offset & 15) || offset >= m->shared_bytes || m->shared_bytes - offset < 16)
            rows[i] = emu_translate(m, w, SPACE_SHARED, whole, 16, i, verb);
    }
}

/* The lane that gets bytes 2 * part and 2 * part + 1 of a row of a matrix, or the first of two that get one each. */
static int lane_of_part(const op *o, int row, int part) {
    if (o->detail & MATRIX_OF_BYTES) return 8 * (part % 4) + row / 4;
    return o->flags & FLAG_TRANSPOSE ? 4 * part + row / 2 : 4 * row + part / 2;
}

/* Uninitialized bytes of each row: a lane gets four bytes of a row, or transposed two bytes of each of two rows, or of
 * bytes one of each of four rows. */
static void note_undefined_rows(cta *m, warp *w, const op *o, const uint32_t *addresses, const uint32_t *undefined) {
    for (int k = 0; k < o->vector; k++) {
        uint32_t lanes = 0, address = 0;
        bool stored = false;
        const bool of_bytes = o->detail & MATRIX_OF_BYTES;
        const int height = of_bytes ? 16 : 8, first = height * (k * 8 / height), from = of_bytes ? k % 2 * 4 : 0;
        for (int row = height - 1; row >= 0; row--) {
            uint32_t bytes = undefined[first + row];
            if (!bytes) continue;
            address = addresses[first + row];
            stored = bytes & STORED_UNDEFINED;
            for (int part = from; part < (of_bytes ? from + 4 : 8); part++) {
                const uint32_t two = bytes >> (2 * part) & 3;
                const int lane = lane_of_part(o, row, part);
                lanes |= of_bytes ? (two & 1) << lane | two >> 1 << (lane + 4) : (uint32_t)(two != 0) << lane;
            }
        }
        emu_on_undefined_load(m, w, o->r[k], lanes, address, stored);
    }
}

/* The 16 numbers of `bits` bits at the start of a row, as bytes. */
static void widen_row(const uint8_t *row, uint32_t bits, uint8_t bytes[16]) {
    for (uint32_t i = 0; i < 16; i++) {
        const uint32_t at = i * bits, pair = row[at / 8] | (uint32_t)row[at / 8 + 1] << 8;
        bytes[i] = (uint8_t)(pair >> at % 8 & ((1u << bits) - 1));
    }
}

/* `detail`: bits of an element that becomes a byte, or 0; with MATRIX_OF_BYTES of 16 by 16 bytes. */
void emu_exec_ldmatrix(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)mask;
    static const uint8_t zeros[16];
    uint8_t wide[LANES][16];
    uint32_t addresses[LANES];
    uint8_t *found[LANES];
    const uint8_t *rows[LANES];
    int count = o->vector * 8;
    uint32_t undefined[LANES] = {0}, any = 0;
    matrix_rows(m, w, o, "reads", addresses, found);
    for (int i = 0; i < count; i++) rows[i] = found[i] ? found[i] : zeros;
    for (int i = 0; i < count && m->checks; i++) {
        if (found[i]) any |= undefined[i] = emu_on_shared_read(m, w, i, addresses[i], 16);
    }
    if (any) note_undefined_rows(m, w, o, addresses, undefined);
    const uint32_t bits = o->detail & ~MATRIX_OF_BYTES;
    for (int i = 0; i < count && bits; i++) {
        widen_row(rows[i], bits, wide[i]);
        rows[i] = wide[i];
    }
    const bool of_bytes = o->detail & MATRIX_OF_BYTES;
    for (int k = 0; k < o->vector; k += 1 + of_bytes) {
        if (of_bytes)
            spread_bytes(slot32(w, o->r[k]), slot32(w, o->r[k + 1]), rows + 8 * k);
        else
            spread_matrix(slot32(w, o->r[k]), rows + 8 * k, o->flags & FLAG_TRANSPOSE);
    }
    emu_count_ldmatrix(m, o, addresses, o->vector);
}

/* The words of a fragment as rows, each of four; transposed, they are its columns. */
static void gather_matrix(uint32_t *rows, const uint32_t *words, bool transposed) {
    const uint8_t *at[8];
    for (int row = 0; row < 8; row++) at[row] = (const uint8_t *)(words + 4 * row);
    spread_matrix(rows, at, transposed); /* its own inverse */
}

/* Bytes, transposed: a lane has two rows of column `lane / 4`, and of the one eight columns on. */
static void gather_bytes(uint32_t rows[LANES], const uint32_t *words) {
    uint8_t *bytes = (uint8_t *)rows;
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 4; i++)
            bytes[16 * (lane % 4 * 2 + i % 2) + lane / 4 + i / 2 * 8] = (uint8_t)(words[lane] >> 8 * i);
}

/* With MATRIX_OF_BYTES matrices of 16 by 8 bytes. */
void emu_exec_stmatrix(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)mask;
    uint32_t addresses[LANES], words[LANES];
    uint8_t *rows[LANES];
    matrix_rows(m, w, o, "writes", addresses, rows);
    for (int k = 0; k < o->vector; k++) {
        if (o->detail & MATRIX_OF_BYTES)
            gather_bytes(words, slot32(w, o->r[1 + k]));
        else
            gather_matrix(words, slot32(w, o->r[1 + k]), o->flags & FLAG_TRANSPOSE);
        for (int row = 0; row < 8; row++) {
            int lane = 8 * k + row;
            if (!rows[lane]) continue;
            if (m->checks) emu_on_shared_write(m, w, lane, addresses[lane], 16, words + 4 * row);
            memcpy(rows[lane], words + 4 * row, 16);
            m->changes++;
        }
    }
    emu_count_ldmatrix(m, o, addresses, o->vector);
}

/* The transposed matrix of a warp. */
void emu_exec_movmatrix(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m, (void)mask;
    uint32_t words[LANES];
    gather_matrix(words, slot32(w, o->r[1]), true);
    memcpy(slot32(w, o->r[0]), words, sizeof words);
}
