/* boxes.h - addresses of the rows of a tensor copy in global memory (boxes.c).
 *
 *     emu_each_row(m, copy, move_row, NULL);
 */
#ifndef FL_EMU_BOXES_H
#define FL_EMU_BOXES_H

#include "machine.h"

enum { MAX_ROW_BYTES = 256 * 8 };

/* Rows are chunks of 16 bytes in shared memory, whose order the swizzle changes. */
static inline uint32_t swizzled(const emu_tensor_info *info, uint32_t address) {
    static const uint32_t masks[] = {0, 1, 3, 7, 3};
    if (info->swizzle == EMU_SWIZZLE_128B_BY_32B) return address ^ (address >> 7 & 3) << 5;
    return address ^ (address >> 7 & masks[info->swizzle]) << 4;
}

/* The row of a box that begins at `at`, as far as the tensor has it: its bytes, from column *first of the box on. */
uint32_t emu_bytes_inside(const bulk_copy *copy, const int32_t at[5], uint64_t *address, uint32_t *first);
/* Each row of the box, with the address of its bytes in shared memory. */
typedef void row_function(cta *m, const bulk_copy *copy, const int32_t at[5], uint32_t shared, void *context);
void emu_each_row(cta *m, const bulk_copy *copy, row_function *visit, void *context);
/* True if a copy in flight reads some of these bytes of global memory; or takes its tensor map from there. */
bool emu_copies_from(cta *m, const bulk_copy *copy, uint64_t address, uint32_t bytes);
bool emu_takes_map(const bulk_copy *copy, uint64_t address, uint32_t bytes);

#endif
