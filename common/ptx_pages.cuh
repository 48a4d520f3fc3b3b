/* ptx_pages.cuh - TMA copies of one tile of a block.
 *
 *     copy_tile_to_smem(smem, map, mbarrier, row, tile, head, page);
 *     copy_heads_to_smem(smem, map, mbarrier, row, tile, group, sample);
 *
 * Conventions and section numbers: ptx_sm80.cuh.
 */
#ifndef FL_PTX_PAGES_CUH
#define FL_PTX_PAGES_CUH

#include "common/ptx_sm90a.cuh"

/* copy_tensor_to_smem of ptx_sm90a.cuh, from tile number `tile` of the rows on (9.7.9.25 cp.async.bulk.tensor). */
__device__ __forceinline__ void copy_tile_to_smem(uint32_t smem_addr, const tensor_map &map, uint32_t mbarrier, int row,
                                                  int tile, int head, int sample) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(smem_addr),
                 "l"(&map), "r"(0), "r"(row), "r"(tile), "r"(head), "r"(sample), "r"(mbarrier)
                 : "memory");
}

/* Copy rows of several heads, by a map {d_head, heads of a group, rows, groups, batch}: all heads of each row.
 */
__device__ __forceinline__ void copy_heads_to_smem(uint32_t smem_addr, const tensor_map &map, uint32_t mbarrier,
                                                   int row, int tile, int group, int sample) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(smem_addr),
                 "l"(&map), "r"(64 * tile), "r"(0), "r"(row), "r"(group), "r"(sample), "r"(mbarrier)
                 : "memory");
}

#endif
