/* boxes.c - the boxes of tensor copies, row by row, and whether a copy reads what is written. */
#include "boxes.h"

#include <string.h>

/* Return the address of a row of the box in global memory, from the tensor's column 0; *inside: the tensor has it. */
static uint64_t row_address(const emu_tensor_info *info, const int32_t at[5], bool *inside) {
    uint64_t address = info->address;
    *inside = true;
    for (uint32_t i = 1; i < info->rank; i++) {
        *inside &= at[i] >= 0 && (uint32_t)at[i] < info->sizes[i];
        address += (uint64_t)(int64_t)at[i] * info->strides[i - 1];
    }
    return address;
}

/* The columns of a row of the box that the tensor has: from `first`, `count` of them. */
static uint32_t columns_inside(const emu_tensor_info *info, int32_t corner, uint32_t *first) {
    int64_t begin = corner < 0 ? -(int64_t)corner : 0, end = (int64_t)info->sizes[0] - corner;
    if (end > info->box[0]) end = info->box[0];
    *first = begin < end ? (uint32_t)begin : 0;
    return begin < end ? (uint32_t)(end - begin) : 0;
}

uint32_t emu_bytes_inside(const bulk_copy *copy, const int32_t at[5], uint64_t *address, uint32_t *first) {
    const emu_tensor_info *info = &copy->map.info;
    bool inside;
    const uint64_t row = row_address(info, at, &inside);
    const uint32_t count = inside ? columns_inside(info, at[0], first) : 0;
    const uint64_t column = (uint64_t)((int64_t)at[0] + *first);
    if (count)
        *address = row + (info->packing > EMU_FOURS ? tensor_global_bytes(info, (uint32_t)column)
                                                    : column * info->element_bytes);
    return count * info->element_bytes;
}

/* The pixel after `pixel`: the dimensions between the first and the last one run from `lower` to the tensor's last
 * pixel plus `upper`. */
static void next_pixel(const emu_tensor_info *info, int32_t pixel[5]) {
    const uint32_t last = info->rank - 1;
    for (uint32_t i = 1; i < last; i++) {
        pixel[i] += box_step(info, i);
        if ((int64_t)pixel[i] < (int64_t)info->sizes[i] + info->upper[i - 1]) return;
        pixel[i] = info->lower[i - 1];
    }
    pixel[last] += box_step(info, last);
}

static void each_pixel(cta *m, const bulk_copy *copy, row_function *visit, void *context) {
    const emu_tensor_info *info = &copy->map.info;
    const uint32_t bytes = box_row_bytes(info);
    int32_t pixel[5];
    memcpy(pixel, copy->corner, sizeof pixel);
    for (uint32_t done = 0; done < copy->bytes; done += bytes) {
        int32_t at[5];
        memcpy(at, pixel, sizeof at);
        for (uint32_t i = 1; i + 1 < info->rank; i++) at[i] += copy->offsets[i - 1];
        visit(m, copy, at, copy->shared + done, context);
        next_pixel(info, pixel);
    }
}

void emu_each_row(cta *m, const bulk_copy *copy, row_function *visit, void *context) {
    const emu_tensor_info *info = &copy->map.info;
    const uint32_t bytes = box_row_bytes(info);
    uint32_t step[5] = {0};
    if (info->im2col) {
        each_pixel(m, copy, visit, context);
        return;
    }
    for (uint32_t done = 0; done < copy->bytes; done += bytes) {
        int32_t at[5] = {copy->corner[0]};
        for (uint32_t i = 1; i < info->rank; i++) at[i] = copy->corner[i] + (int32_t)step[i] * box_step(info, i);
        if (copy->gathers) at[1] = copy->rows[done / bytes];
        visit(m, copy, at, copy->shared + done, context);
        for (uint32_t i = 1; i < info->rank; i++) {
            if (++step[i] < box_size(info, i)) break;
            step[i] = 0;
        }
    }
}

/* A write, and whether a row meets it. */
typedef struct write_range {
    uint64_t address;
    uint32_t bytes;
    bool met;
} write_range;

static bool overlaps(const write_range *write, uint64_t address, uint64_t bytes) {
    return write->address < address + bytes && address < write->address + write->bytes;
}

static void meet_row(cta *m, const bulk_copy *copy, const int32_t at[5], uint32_t shared, void *context) {
    write_range *write = context;
    uint64_t address = 0;
    uint32_t first = 0;
    const uint32_t bytes = emu_bytes_inside(copy, at, &address, &first);
    (void)m;
    (void)shared;
    write->met |= bytes && overlaps(write, address, tensor_global_bytes(&copy->map.info, bytes));
}

bool emu_copies_from(cta *m, const bulk_copy *copy, uint64_t address, uint32_t bytes) {
    write_range write = {address, bytes, false};
    const emu_tensor_info *info = &copy->map.info;
    if (copy->is_store || copy->source || copy->has_values) return false;
    if (!info->rank) return overlaps(&write, copy->address, copy->bytes);
    uint64_t size = (uint64_t)info->sizes[0] * info->element_bytes;
    for (uint32_t i = 1; i < info->rank; i++) size += (uint64_t)(info->sizes[i] - 1) * info->strides[i - 1];
    if (overlaps(&write, info->address, size)) emu_each_row(m, copy, meet_row, &write);
    return write.met;
}

bool emu_takes_map(const bulk_copy *copy, uint64_t address, uint32_t bytes) {
    const write_range write = {address, bytes, false};
    return copy->map.info.rank && overlaps(&write, copy->map_at, EMU_TENSOR_MAP_BYTES);
}
