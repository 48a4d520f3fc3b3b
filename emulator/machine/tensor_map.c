/* tensor_map.c - tensor maps: the rules of cuTensorMapEncodeTiled, each with the value that breaks it. */
#include "tensor_map.h"

#include "../ptx/errors.h"

#include <inttypes.h>
#include <string.h>

static bool check_dimension(const emu_tensor_info *info, uint32_t i, emu_error *error) {
    if (!info->sizes[i]) return emu_fail(error, "size %u of the tensor is 0", i);
    if (!info->box[i] || info->box[i] > 256)
        return emu_fail(error, "size %u of the box is %u: it must be from 1 to 256", i, info->box[i]);
    if (!i) return true;
    uint64_t stride = info->strides[i - 1];
    if (stride % 16 || stride >= 1ull << 40)
        return emu_fail(error, "stride %u is %" PRIu64 " bytes: it must be a multiple of 16, below 2^40", i, stride);
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
    uint32_t row = box_row_bytes(info), span = spans[info->swizzle];
    if (row % 16) return emu_fail(error, "a row of the box has %u bytes: it must be a multiple of 16", row);
    if (span && row > span)
        return emu_fail(error, "a row of the box has %u bytes: with this swizzle it has at most %u", row, span);
    tensor_map made = {.magic = TENSOR_MAP_MAGIC, .info = *info};
    memset(map, 0, EMU_TENSOR_MAP_BYTES);
    memcpy(map, &made, sizeof made);
    return true;
}
