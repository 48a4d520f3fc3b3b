/* ptx_cache.cuh - loads, stores and TMA copies that say how the caches should treat their bytes.
 *
 *     copy_tensor_to_smem(smem, map, mbarrier, row, head, sample, evict_first());
 *
 * Conventions and section numbers: ptx_sm80.cuh.
 */
#ifndef FL_PTX_CACHE_CUH
#define FL_PTX_CACHE_CUH

#include "common/ptx_sm90a.cuh"

/* For bytes that are read once: they leave the L2 cache before others (9.7.9.17 createpolicy). */
__device__ __forceinline__ uint64_t evict_first() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* copy_tensor_to_smem of ptx_sm90a.cuh, with a policy. */
__device__ __forceinline__ void copy_tensor_to_smem(uint32_t smem_addr, const tensor_map &map, uint32_t mbarrier,
                                                    int row, int head, int sample, uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%2, %3, %2, %4, %5}], [%6], %7;" ::"r"(smem_addr),
                 "l"(&map), "r"(0), "r"(row), "r"(head), "r"(sample), "r"(mbarrier), "l"(policy)
                 : "memory");
}

/* Load data that other CTAs wrote during this launch: from the L2 cache, bypassing L1, which may be stale (9.7.9.1). */
template <int n>
__device__ __forceinline__ void load_past_L1(float (&value)[n], const float *gmem) {
    static_assert(n == 1 || n == 2 || n == 4, "n must be 1, 2 or 4 floats: one load");
    if constexpr (n == 1) asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value[0]) : "l"(gmem) : "memory");
    if constexpr (n == 2)
        asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];" : "=f"(value[0]), "=f"(value[1]) : "l"(gmem) : "memory");
    if constexpr (n == 4)
        asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3])
                     : "l"(gmem)
                     : "memory");
}

#endif
