/* tensor_fields.c - tensor maps that a kernel makes: tensormap.replace writes the fields of one, beginning with 128
 * bytes of zeros or with another map, and tensormap.cp_fenceproxy copies it to global memory. */
#include "machine.h"

#include <inttypes.h>
#include <string.h>

/* The elemtype field, as emu_tensor_info has it. */
typedef struct element_type {
    uint8_t bytes, numbers;
    bool is_signed, rounds, flushes;
} element_type;

static const element_type elements[] = {
    {.bytes = 1},
    {.bytes = 2},
    {.bytes = 4},
    {.bytes = 4, .is_signed = true},
    {.bytes = 8},
    {.bytes = 8, .is_signed = true},
    {.bytes = 2, .numbers = ATOMIC_F16},
    {.bytes = 4, .numbers = ATOMIC_F32},
    {.bytes = 4, .numbers = ATOMIC_F32, .flushes = true},
    {.bytes = 8, .numbers = ATOMIC_F64},
    {.bytes = 2, .numbers = ATOMIC_BF16},
    {.bytes = 4, .numbers = ATOMIC_F32, .rounds = true},
    {.bytes = 4, .numbers = ATOMIC_F32, .rounds = true, .flushes = true},
};

enum { ELEMENT_TYPES = sizeof elements / sizeof elements[0], PIECE = 16, HALF = EMU_TENSOR_MAP_BYTES / 2 };

static void report_value(cta *m, const warp *w, int lane, uint64_t address, const char *field, uint64_t value,
                         const char *rule) {
    emu_report(m, EMU_BAD_TENSOR_MAP, UINT32_MAX, w, lane, -1, address,
               "The %s of the tensor map at 0x%" PRIx64 " becomes %" PRIu64 ": %s.", field, address, value, rule);
}

static bool is_zeros(const uint8_t *bytes) {
    for (int i = 0; i < EMU_TENSOR_MAP_BYTES; i++)
        if (bytes[i]) return false;
    return true;
}

/* The 128 bytes; NULL after a report. */
static uint8_t *find_bytes(cta *m, warp *w, int lane, state_space space, uint64_t address, const char *verb) {
    uint8_t *bytes = emu_translate(m, w, space, address, HALF, lane, verb);
    return bytes && emu_translate(m, w, space, address + HALF, HALF, lane, verb) ? bytes : NULL;
}

static bool is_shared(state_space space, uint64_t address) {
    return space == SPACE_SHARED || (space == SPACE_GENERIC && address & SHARED_WINDOW);
}

/* The address in shared memory, of which the checks are told; 0 for another space. */
static uint32_t shared_address(state_space space, uint64_t address) {
    return is_shared(space, address) ? (uint32_t)address : 0;
}

static uint64_t own_address(state_space space, const warp *w, uint64_t address) {
    return is_shared(space, address) ? relative_address(w, address) : address;
}

static void note_read(cta *m, warp *w, int lane, uint32_t shared) {
    for (uint32_t at = 0; m->checks && shared && at < EMU_TENSOR_MAP_BYTES; at += PIECE)
        emu_on_shared_read(m, w, lane, shared + at, PIECE);
}

static void note_write(cta *m, warp *w, int lane, uint32_t shared, const uint8_t *bytes) {
    for (uint32_t at = 0; m->checks && shared && at < EMU_TENSOR_MAP_BYTES; at += PIECE)
        emu_on_shared_write(m, w, lane, shared + at, PIECE, bytes + at);
}

/* False after a report. */
static bool set_field(cta *m, const warp *w, int lane, uint64_t address, const op *o, uint64_t value,
                      emu_tensor_info *info) {
    const int64_t axis = o->immediate;
    switch (o->detail) {
    case FIELD_ADDRESS:
        info->address = value;
        return true;
    case FIELD_RANK:
        info->rank = (uint32_t)value + 1;
        if (value < EMU_TENSOR_RANK) return true;
        report_value(m, w, lane, address, "rank", value, "it is that of the tensor less 1, from 0 to 4");
        return false;
    case FIELD_BOX:
        info->box[axis] = (uint32_t)value;
        return true;
    case FIELD_SIZE:
        info->sizes[axis] = (uint32_t)value;
        return true;
    case FIELD_STRIDE:
        info->strides[axis] = value;
        return true;
    case FIELD_ELEMENT_STRIDE:
        info->steps[axis] = (uint8_t)value;
        if (value >= 1 && value <= 8) return true;
        report_value(m, w, lane, address, "element stride", value, "it is from 1 to 8");
        return false;
    case FIELD_ELEMENT:
        if (value < ELEMENT_TYPES) {
            info->element_bytes = elements[value].bytes;
            info->numbers = elements[value].numbers;
            info->is_signed = elements[value].is_signed;
            info->rounds = elements[value].rounds;
            info->flushes = elements[value].flushes;
            return true;
        }
        report_value(m, w, lane, address, "element type", value, "the emulator has 0 to 12");
        return false;
    case FIELD_SWIZZLE:
        info->swizzle = (emu_swizzle)value;
        if (value <= EMU_SWIZZLE_128B) return true;
        report_value(m, w, lane, address, "swizzle mode", value, "the emulator has 0 to 3");
        return false;
    case FIELD_FILL:
        info->fills_NaN = value == 1;
        if (value <= 1) return true;
        report_value(m, w, lane, address, "fill mode", value, "it is 0 or 1");
        return false;
    default: /* interleave */
        if (!value) return true;
        report_value(m, w, lane, address, "interleave layout", value, "the emulator has 0 alone");
        return false;
    }
}

/* Zeros in all fields: one dimension, and elements of type 0. */
static void begin_map(tensor_map *map) {
    map->magic = TENSOR_MAP_MAGIC;
    map->info.rank = 1;
    map->info.element_bytes = elements[0].bytes;
}

/* r: the address, the value. */
void emu_exec_tensor_field(cta *m, warp *w, const op *o, uint32_t mask) {
    for (; mask; mask &= mask - 1) {
        const int lane = first_lane(mask);
        const uint64_t address = own_address((state_space)o->space, w, slot64(w, o->r[0])[lane]);
        uint8_t *bytes = find_bytes(m, w, lane, (state_space)o->space, address, "changes the tensor map in");
        if (!bytes) continue;
        const uint32_t shared = shared_address((state_space)o->space, address);
        note_read(m, w, lane, shared);
        tensor_map map;
        memcpy(&map, bytes, sizeof map);
        if (is_zeros(bytes)) {
            begin_map(&map);
        } else if (map.magic != TENSOR_MAP_MAGIC) {
            emu_report(m, EMU_BAD_TENSOR_MAP, UINT32_MAX, w, lane, -1, address,
                       "The 128 bytes at 0x%" PRIx64 " are neither zeros nor a tensor map of this emulator.", address);
            continue;
        }
        if (!set_field(m, w, lane, address, o, slot64(w, o->r[1])[lane], &map.info)) continue;
        if (m->checks && o->space == SPACE_GLOBAL)
            emu_on_global_write(m, w, lane, address, EMU_TENSOR_MAP_BYTES, NULL, (const uint8_t *)&map, bytes);
        memcpy(bytes, &map, sizeof map);
        note_write(m, w, lane, shared, bytes);
        m->changes++;
    }
}

/* r: the addresses of the copy in global memory and of the map in shared memory. A warp does it once. */
void emu_exec_tensor_map_fence(cta *m, warp *w, const op *o, uint32_t mask) {
    for (; m->checks && mask; mask &= mask - 1)
        emu_on_map_fence(m, w, first_lane(mask), slot64(w, o->r[0])[first_lane(mask)]);
}

void emu_exec_tensor_map_copy(cta *m, warp *w, const op *o, uint32_t mask) {
    if (!mask) return;
    const int lane = first_lane(mask);
    const uint64_t to = slot64(w, o->r[0])[lane], from = relative_address(w, slot64(w, o->r[1])[lane]);
    const uint8_t *source = find_bytes(m, w, lane, SPACE_SHARED, from, "copies the tensor map from");
    uint8_t *target = find_bytes(m, w, lane, SPACE_GLOBAL, to, "copies the tensor map to");
    if (!source || !target) return;
    note_read(m, w, lane, (uint32_t)from);
    if (m->checks) emu_on_global_write(m, w, lane, to, EMU_TENSOR_MAP_BYTES, o, source, target);
    memcpy(target, source, EMU_TENSOR_MAP_BYTES);
    m->changes++;
}
