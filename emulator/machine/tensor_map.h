/* tensor_map.h - what the 128 opaque bytes of a tensor map hold on the emulator: emu_make_tensor_map() writes them. */
#ifndef FL_EMU_TENSOR_MAP_H
#define FL_EMU_TENSOR_MAP_H

#include "../emu.h"

#define TENSOR_MAP_MAGIC 0x70616d6c666c6675ull

typedef struct tensor_map {
    uint64_t magic;
    emu_tensor_info info;
} tensor_map;

_Static_assert(sizeof(tensor_map) <= EMU_TENSOR_MAP_BYTES, "a tensor map has 128 bytes");

/* Bytes of global memory that so many bytes of shared memory have: fewer of elements of 4 or 6 bits, which are padded
 * there. */
static inline uint32_t tensor_global_bytes(const emu_tensor_info *info, uint32_t bytes) {
    return info->packing == EMU_FOURS_PADDED ? bytes / 2 : info->packing == EMU_SIXES_PADDED ? bytes / 4 * 3 : bytes;
}
/* Elements from one of a box to the next. */
static inline int32_t box_step(const emu_tensor_info *info, uint32_t dimension) {
    return info->steps[dimension] ? info->steps[dimension] : 1;
}
/* Elements of the box in a dimension after the first one. */
static inline uint32_t box_size(const emu_tensor_info *info, uint32_t dimension) {
    const uint32_t step = (uint32_t)box_step(info, dimension);
    return info->im2col ? info->box[dimension] : (info->box[dimension] + step - 1) / step;
}
/* Bytes of a row of the box, and of the whole box. */
static inline uint32_t box_row_bytes(const emu_tensor_info *info) {
    return info->box[0] * info->element_bytes;
}
static inline uint32_t box_bytes(const emu_tensor_info *info) {
    uint32_t bytes = box_row_bytes(info);
    for (uint32_t i = 1; i < (info->im2col ? 2 : info->rank); i++) bytes *= box_size(info, i);
    return bytes;
}

#endif
