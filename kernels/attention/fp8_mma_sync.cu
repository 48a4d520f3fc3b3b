/* attention/fp8_mma_sync - Ada and newer: attention of e4m3 by mma.sync
 *
 * config    (FP16, 128, 128, 64, 8):
 *           fp8_mma_sync+stages_4+flush_1+rounded_l+any_length+causal+persistent+tickets+grouped
 * others    (FP16, 64, 128, 128, 8):
 *           fp8_mma_sync+stages_4+flush_1+rounded_l+any_length+causal+persistent+tickets+grouped;
 *           (FP16, 256, 64, 64, 4):
 *           fp8_mma_sync+stages_2+flush_1+rounded_l+any_length+causal+persistent+tickets+grouped
 * serving   (FP16, 128, 128, 64, 8):
 *           fp8_mma_sync+stages_4+flush_1+rounded_l+any_length+causal+persistent+tickets+grouped+serve;
 *           (FP16, 64, 128, 128, 8):
 *           fp8_mma_sync+stages_4+flush_1+rounded_l+any_length+causal+persistent+tickets+grouped+serve;
 *           (FP16, 256, 64, 64, 4):
 *           fp8_mma_sync+stages_2+flush_1+rounded_l+any_length+causal+persistent+tickets+grouped+serve
 * arch      sm_89
 */
#include "common/fp8.h"

/* Reject configurations of other kernels. common/fp8_fields.h rejects what no kernel with mma.sync supports. */
template <fp8_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.instruction == FP8_MMA_SYNC, "instruction must be fp8_mma_sync: attention/fp8 has wgmma");
}

#include "kernels/attention/fp8_mma.cuh"

#include "instances.cuh"
