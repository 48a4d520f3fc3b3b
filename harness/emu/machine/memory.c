/* memory.c - loads, stores, atomics and ldmatrix over the address spaces.
 *
 * A device address is (buffer number << 36) + BUFFER_START + offset; number 0 holds the variables of the module. Bounds
 * and alignment are always checked: a load from a bad address gives zeros, a store to one is dropped.
 */
#include "checks.h"
#include "numbers.h"

#include <inttypes.h>
#include <string.h>

buffer *emu_find_buffer(emu_device *device, uint64_t address) {
    uint64_t number = address >> BUFFER_SHIFT;
    return number >= 1 && number <= device->buffer_count ? &device->buffers[number - 1] : NULL;
}

uint64_t emu_lane_address(const warp *w, const op *o, unsigned source, int lane) {
    uint64_t base = o->flags & FLAG_WIDE_ADDRESS ? slot64(w, o->r[source])[lane] : slot32(w, o->r[source])[lane];
    return base + (uint64_t)o->immediate;
}

/* ---- from addresses to host bytes ---- */

static void report_bounds(machine *m, const warp *w, int lane, uint64_t address, uint32_t bytes, const char *verb,
                          const char *what) {
    emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, lane, -1, address,
               "This instruction %s %u bytes at 0x%" PRIx64
               ", %s.\nA load from there gives zeros here, a store is dropped; "
               "a device may fault or corrupt other data.",
               verb, bytes, address, what);
}

static uint8_t *global_bytes(machine *m, const warp *w, uint64_t address, uint32_t bytes, int lane, const char *verb) {
    uint64_t number = address >> BUFFER_SHIFT;
    uint64_t offset = (address & ((1ull << BUFFER_SHIFT) - 1)) - BUFFER_START;
    emu_device *device = m->device;
    if (number == 0 && offset < device->variable_bytes && device->variable_bytes - offset >= bytes) {
        return device->variables + offset;
    }
    const buffer *b = emu_find_buffer(device, address);
    if (b && offset < b->size && b->size - offset >= bytes) return b->bytes + offset;
    char what[200] = "where no buffer lies";
    if (address < 4096) {
        snprintf(what, sizeof what, "near address 0: a null pointer");
    } else if (b && (int64_t)offset < 0) {
        snprintf(what, sizeof what, "%" PRIu64 " bytes before buffer '%.60s'", 0 - offset, b->name);
    } else if (b) {
        snprintf(what, sizeof what, "byte %" PRIu64 " of buffer '%.60s', which has %" PRIu64, offset, b->name, b->size);
    }
    report_bounds(m, w, lane, address, bytes, verb, what);
    return NULL;
}

static uint8_t *window_bytes(machine *m, const warp *w, uint8_t *memory, uint64_t offset, uint64_t size,
                             uint64_t address, uint32_t bytes, int lane, const char *verb, const char *name) {
    if (offset < size && size - offset >= bytes) return memory + offset;
    char what[160];
    snprintf(what, sizeof what, "byte %" PRId64 " of %s, which has %" PRIu64, (int64_t)offset, name, size);
    report_bounds(m, w, lane, address, bytes, verb, what);
    return NULL;
}

uint8_t *emu_translate(machine *m, warp *w, state_space space, uint64_t address, uint32_t bytes, int lane,
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
            space = SPACE_SHARED, address -= SHARED_WINDOW;
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
        return window_bytes(m, w, m->shared, address - SHARED_BASE, m->shared_bytes, address, bytes, lane, verb,
                            "the shared memory of the CTA");
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

const char *emu_device_string(machine *m, uint64_t address) {
    uint64_t offset = (address & ~CONST_WINDOW) - BUFFER_START;
    if (offset >= m->device->variable_bytes) return "(not a string)";
    const uint8_t *text = m->device->variables + offset;
    return memchr(text, 0, m->device->variable_bytes - (size_t)offset) ? (const char *)text : "(not a string)";
}

/* Which space an access really goes to, for checks and counters. */
static state_space effective_space(const op *o, uint64_t address) {
    if (o->space != SPACE_GENERIC) return (state_space)o->space;
    return address & SHARED_WINDOW  ? SPACE_SHARED
           : address & LOCAL_WINDOW ? SPACE_LOCAL
           : address & PARAM_WINDOW ? SPACE_PARAM
           : address & CONST_WINDOW ? SPACE_CONST
                                    : SPACE_GLOBAL;
}

/* ---- loads and stores ---- */

typedef struct access {
    uint64_t addresses[LANES];
    uint8_t *bytes[LANES]; /* NULL where the address is bad or the lane is off */
    uint32_t size;
    state_space space;
} access;

static void count_access(machine *m, const op *o, const access *a, uint32_t mask) {
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

static void resolve(machine *m, warp *w, const op *o, unsigned source, uint32_t mask, const char *verb, access *a) {
    a->size = (uint32_t)o->bytes * o->vector;
    for (int i = 0; i < LANES; i++) {
        a->bytes[i] = NULL;
        a->addresses[i] = 0;
        if (!(mask >> i & 1)) continue;
        a->addresses[i] = emu_lane_address(w, o, source, i);
        a->bytes[i] = emu_translate(m, w, (state_space)o->space, a->addresses[i], a->size, i, verb);
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

void emu_exec_load(machine *m, warp *w, const op *o, uint32_t mask) {
    access a;
    resolve(m, w, o, o->dests, mask, "reads", &a);
    if (m->checks && (a.space == SPACE_SHARED || o->space == SPACE_GENERIC)) {
        for (int i = 0; i < LANES; i++) {
            if (a.bytes[i] && effective_space(o, a.addresses[i]) == SPACE_SHARED) {
                emu_shadow_read(m, w, i, (uint32_t)a.addresses[i], a.size);
            }
        }
    }
    if (o->bytes == 4 && !o->detail) {
        load_words(w, o, &a, mask);
        return;
    }
    for (int i = 0; i < LANES; i++) {
        for (int k = 0; k < o->vector && mask >> i & 1; k++) load_element(w, o, &a, k, i);
    }
}

/* Remember who wrote an output: order between CTAs does not matter to what is kept. */
static void keep_least(_Atomic uint32_t *least, uint32_t value) {
    uint32_t known = atomic_load_explicit(least, memory_order_relaxed);
    while ((!known || value < known) && !atomic_compare_exchange_weak(least, &known, value)) {
    }
}

static void note_output(machine *m, const op *o, uint64_t address, uint32_t bytes) {
    const buffer *b = emu_find_buffer(m->device, address);
    if (!b || !b->output) return;
    uint64_t offset = (address & ((1ull << BUFFER_SHIFT) - 1)) - BUFFER_START;
    uint32_t cta = (uint32_t)m->cta_index + 1;
    for (uint64_t g = offset / OUTPUT_GRANULE; g <= (offset + bytes - 1) / OUTPUT_GRANULE; g++) {
        output_record *record = &b->output[g];
        if (atomic_fetch_add_explicit(&record->count, bytes < OUTPUT_GRANULE ? bytes : OUTPUT_GRANULE,
                                      memory_order_relaxed) == 0) {
            keep_least(&record->instruction, o->instruction + 1);
            keep_least(&record->first_cta, cta);
        } else {
            keep_least(&record->first_cta, cta);
            keep_least(&record->last_cta, UINT32_MAX - cta); /* kept as distance from the top: the greatest wins */
            keep_least(&record->instruction, o->instruction + 1);
        }
    }
}

static void gather_element(const warp *w, const op *o, int k, int lane, uint8_t *out) {
    unsigned reg = o->r[1 + k];
    if (o->bytes == 16) {
        memcpy(out, &slot64(w, reg)[lane], 8);
        memcpy(out + 8, &slot64(w, reg)[LANES + lane], 8);
    } else if (o->bytes == 8) {
        memcpy(out, &slot64(w, reg)[lane], 8);
    } else {
        memcpy(out, &slot32(w, reg)[lane], o->bytes);
    }
}

void emu_exec_store(machine *m, warp *w, const op *o, uint32_t mask) {
    access a;
    resolve(m, w, o, 0, mask, "writes", &a);
    for (int i = 0; i < LANES; i++) {
        if (!a.bytes[i]) continue;
        uint8_t data[16];
        for (int k = 0, at = 0; k < o->vector && at + o->bytes <= (int)sizeof data; k++, at += o->bytes) {
            gather_element(w, o, k, i, data + at);
        }
        state_space space = effective_space(o, a.addresses[i]);
        if (m->checks && space == SPACE_SHARED) emu_shadow_write(m, w, i, (uint32_t)a.addresses[i], a.size, data);
        if (m->checks && space == SPACE_GLOBAL) note_output(m, o, a.addresses[i], a.size);
        memcpy(a.bytes[i], data, a.size);
    }
}

/* ---- atomics ---- */

static uint64_t atomic_result(const op *o, uint64_t old, uint64_t value, uint64_t swap) {
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
    case ATOMIC_EXCH:
        return value;
    case ATOMIC_CAS:
        return old == value ? swap : old;
    case ATOMIC_FLOAT_ADD:
        return bits_of(float_of((uint32_t)old) + float_of((uint32_t)value));
    }
    return old;
}

static uint64_t register_value(const warp *w, unsigned reg, int lane, uint32_t bytes) {
    return bytes == 8 ? slot64(w, reg)[lane] : slot32(w, reg)[lane];
}

static uint64_t update_bytes(const op *o, uint8_t *at, uint64_t value, uint64_t swap) {
    if (o->bytes == 8) {
        uint64_t old = __atomic_load_n((uint64_t *)(void *)at, __ATOMIC_SEQ_CST), next;
        do {
            next = atomic_result(o, old, value, swap);
        } while (!__atomic_compare_exchange_n((uint64_t *)(void *)at, &old, next, false, __ATOMIC_SEQ_CST,
                                              __ATOMIC_SEQ_CST));
        return old;
    }
    uint32_t old = __atomic_load_n((uint32_t *)(void *)at, __ATOMIC_SEQ_CST), next;
    do {
        next = (uint32_t)atomic_result(o, old, value, swap);
    } while (
        !__atomic_compare_exchange_n((uint32_t *)(void *)at, &old, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}

void emu_exec_atomic(machine *m, warp *w, const op *o, uint32_t mask) {
    access a;
    resolve(m, w, o, 1, mask, "updates", &a);
    for (int i = 0; i < LANES; i++) {
        if (!a.bytes[i]) continue;
        uint64_t value = register_value(w, o->r[2], i, o->bytes);
        uint64_t swap = o->detail == ATOMIC_CAS ? register_value(w, o->r[3], i, o->bytes) : 0;
        if (m->checks && effective_space(o, a.addresses[i]) == SPACE_SHARED) {
            emu_shadow_atomic(m, w, i, (uint32_t)a.addresses[i], a.size);
        }
        uint64_t old = update_bytes(o, a.bytes[i], value, swap);
        if (o->bytes == 8)
            slot64(w, o->r[0])[i] = old;
        else
            slot32(w, o->r[0])[i] = (uint32_t)old;
    }
}

/* ---- ldmatrix: lane i gives the address of row i % 8 of matrix i / 8 ---- */

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

void emu_exec_ldmatrix(machine *m, warp *w, const op *o, uint32_t mask) {
    static const uint8_t zeros[16];
    uint64_t whole[LANES];
    uint32_t addresses[LANES];
    const uint8_t *rows[LANES];
    const uint64_t window = o->space == SPACE_GENERIC ? SHARED_WINDOW : 0;
    int count = o->vector * 8;
    emu_check_all_lanes(m, w, mask);
    for (int i = 0; i < count; i++) whole[i] = emu_lane_address(w, o, o->dests, i) - window;
    for (int i = 0; i < count; i++) addresses[i] = (uint32_t)whole[i];
    for (int i = 0; i < count; i++) {
        uint64_t offset = whole[i] - SHARED_BASE;
        if (!(offset & 15) && offset < m->shared_bytes && m->shared_bytes - offset >= 16) {
            rows[i] = m->shared + offset;
        } else {
            emu_translate(m, w, SPACE_SHARED, whole[i], 16, i, "reads");
            rows[i] = zeros;
        }
    }
    for (int i = 0; i < count && m->checks; i++) {
        if (rows[i] != zeros) emu_shadow_read(m, w, i, addresses[i], 16);
    }
    for (int k = 0; k < o->vector; k++) spread_matrix(slot32(w, o->r[k]), rows + 8 * k, o->flags & FLAG_TRANSPOSE);
    emu_count_ldmatrix(m, o, addresses, o->vector);
}
