/* tensor_map.c - tensor maps: the rules of cuTensorMapEncodeTiled and ...Im2col, each with the value that breaks it. */
#include "tensor_map.h"

#include "../ptx/errors.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_PIXELS = 1024, MOST_STEP = 8 };

static bool check_dimension(const emu_tensor_info *info, uint32_t i, emu_error *error) {
    if (!info->sizes[i]) return emu_fail(error, "size %u of the tensor is 0", i);
    const uint32_t most = info->im2col && i == 1 ? MOST_PIXELS : 256;
    if ((!info->im2col || i < 2) && (!info->box[i] || info->box[i] > most))
        return emu_fail(error, "size %u of the box is %u: it must be from 1 to %u", i, info->box[i], most);
    if (info->steps[i] > MOST_STEP)
        return emu_fail(error, "element stride %u is %u: it must be from 1 to %d", i, info->steps[i], MOST_STEP);
    if (!i) return true;
    uint64_t stride = info->strides[i - 1];
    if (stride % 16 || stride >= 1ull << 40)
        return emu_fail(error, "stride %u is %" PRIu64 " bytes: it must be a multiple of 16, below 2^40", i, stride);
    return true;
}

/* The pixels of dimensions between the first and the last one. */
static bool check_pixels(const emu_tensor_info *info, emu_error *error) {
    static const int limits[] = {1 << 15, 1 << 7, 1 << 4}; /* of a tensor of 3, 4 and 5 dimensions */
    if (info->rank < 3) return emu_fail(error, "the tensor has %u dimensions: with im2col it has 3 to 5", info->rank);
    const int limit = limits[info->rank - 3];
    for (uint32_t i = 0; i + 2 < info->rank; i++) {
        const int lower = info->lower[i], upper = info->upper[i];
        if (lower < -limit || lower >= limit || upper < -limit || upper >= limit)
            return emu_fail(error, "corners %d and %d of dimension %u: with %u dimensions they are from %d to %d",
                            lower, upper, i + 1, info->rank, -limit, limit - 1);
    }
    return true;
}

bool emu_make_tensor_map(const emu_tensor_info *info, void *map, emu_error *error) {
    static const uint32_t spans[] = {0, 32, 64, 128, 128};
    if (info->rank < 1 || info->rank > EMU_TENSOR_RANK)
        return emu_fail(error, "the tensor has %u dimensions: it must have 1 to %d", info->rank, EMU_TENSOR_RANK);
    if (info->address % 16)
        return emu_fail(error, "the tensor starts at 0x%" PRIx64 ", which is not a multiple of 16", info->address);
    if (info->element_bytes != 1 && info->element_bytes != 2 && info->element_bytes != 4 && info->element_bytes != 8)
        return emu_fail(error, "an element has %u bytes: it must have 1, 2, 4 or 8", info->element_bytes);
    if (info->fills_NaN && !info->numbers)
        return emu_fail(error, "elements outside of a tensor of integers cannot become NaN");
    if ((unsigned)info->swizzle > EMU_SWIZZLE_128B_BY_32B)
        return emu_fail(error, "swizzle %d is unknown", (int)info->swizzle);
    for (uint32_t i = 0; i < info->rank; i++)
        if (!check_dimension(info, i, error)) return false;
    if (info->im2col && !check_pixels(info, error)) return false;
    uint32_t row = box_row_bytes(info), span = spans[info->swizzle];
    if (row % 16) return emu_fail(error, "a row of the box has %u bytes: it must be a multiple of 16", row);
    if (span && row > span)
        return emu_fail(error, "a row of the box has %u bytes: with this swizzle it has at most %u", row, span);
    tensor_map made = {.magic = TENSOR_MAP_MAGIC, .info = *info};
    memset(map, 0, EMU_TENSOR_MAP_BYTES);
    memcpy(map, &made, sizeof made);
    return true;
}
