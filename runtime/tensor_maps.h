/* tensor_maps.h - tensor maps of a kernel with TMA copies, for the driver and the emulator.
 *
 *     struct tensor_layout layouts[N_TENSORS];
 *     tensor_layouts(&args, &config, layouts);
 *
 * A map is 5-D: {64, seq, d_head / 64, heads, batch}, with each tensor's own numbers and strides; past the last row
 * a copy reads zeros and writes nothing. A copy takes whole rows of one head: the elements of a row in
 * steps of 64, so that a box in shared memory is d_head / 64 blocks of 128-byte rows, whose 16-byte chunks are permuted
 * by the row number (128B swizzle). Rows of a box: 64 of Q, those of a warpgroup; B_c of K and V; 16 of O, those of a
 * warp. If CTAs split the keys of a KV head: one row of Q; of K and V the keys of a warp, or 16 where a page may have
 * no more, whose rows are too far apart for a miss to bring the next. For pages of fewer rows than B_c: the rows of a
 * page, of one tile. If a Q block may pack queries of several heads, the map of O describes Q as {d_head, heads of a
 * group, seq_q, KV_heads, batch}, in boxes of 64 rows of one tile. If rows may be shorter than the configuration's
 * d_head, the maps of Q, K and V are {elements of a row, 1, rows, heads, batch}, in boxes of one tile.
 *
 * A row of 128 bytes has 128 e4m3 elements; with d_head 64 rows have 64 bytes (64B swizzle). V that the caller
 * transposed has the keys in dimension 0 and d_head in dimension 1. K with permuted rows is {heads * d_head, 2, 4, 2,
 * batch * seq / 16}: of 16 keys, key 4q + 2t + e is in row 8t + 2q + e of a block.
 */
#ifndef FL_TENSOR_MAPS_H
#define FL_TENSOR_MAPS_H

#include "runtime/config.h"
#include "runtime/cuda_driver.h"
#include "runtime/status.h"
#include "runtime/tensors.h"

#include <stdint.h>

enum { TENSOR_RANK = 5 };

/* Dimension 0 is the one whose elements are contiguous. */
struct tensor_layout {
    uint64_t address;
    uint64_t sizes[TENSOR_RANK];       /* elements */
    uint64_t strides[TENSOR_RANK - 1]; /* bytes from an element to the next of dimension 1, 2, ... */
    uint32_t box[TENSOR_RANK];         /* elements that one copy moves */
    int element_bytes;                 /* 2, or 1 of e4m3 */
    int row_bytes;                     /* of a tile in shared memory, which the swizzle permutes: 128, or 64 */
    int L2_promotion;                  /* bytes that a miss in the L2 cache brings, as the driver numbers them */
};

/* The layouts of Q, K, V and O: addresses, sizes and strides are those of the arguments; those of a serving_args, whose
 * front `args` is, where the configuration serves. */
void tensor_layouts(const attention_args *args, const struct kernel_config *config,
                    struct tensor_layout layouts[N_TENSORS]);

/* The second parameter of flash_forward, by the driver's cuTensorMapEncodeTiled. STATUS_ERROR where a map is refused.
 */
enum status tensor_maps_of_driver(const struct cuda_driver *cuda, enum dtype dtype,
                                  const struct tensor_layout layouts[N_TENSORS], tensor_maps *maps,
                                  struct failure *failure);

#endif
