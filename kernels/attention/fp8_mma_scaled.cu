/* attention/fp8_mma_scaled - GeForce Blackwell: attention of e4m3 by mma.sync with scales of blocks
 *
 * config    (FP16, 128, 128, 64, 8):
 *           fp8_mma_sync+stages_4+flush_1+rounded_l+any_length+causal+persistent+tickets+grouped+scaled
 * others    (FP16, 64, 128, 128, 8):
 *           fp8_mma_sync+stages_4+flush_1+rounded_l+any_length+causal+persistent+tickets+grouped+scaled;
 *           (FP16, 256, 64, 64, 4):
 *           fp8_mma_sync+stages_2+flush_1+rounded_l+any_length+causal+persistent+tickets+grouped+scaled
 * serving   (FP16, 128, 128, 64, 8):
 *           fp8_mma_sync+stages_4+flush_1+rounded_l+any_length+causal+persistent+tickets+grouped+serve+scaled;
 *           (FP16, 64, 128, 128, 8):
 *           fp8_mma_sync+stages_4+flush_1+rounded_l+any_length+causal+persistent+tickets+grouped+serve+scaled;
 *           (FP16, 256, 64, 64, 4):
 *           fp8_mma_sync+stages_2+flush_1+rounded_l+any_length+causal+persistent+tickets+grouped+serve+scaled
 * arch      sm_120a
 */
#include "common/fp8.h"

/* The tensor cores of GeForce cards with compute capability 12.0 add products of e4m3 in fp32 at half the rate of fp16
 * sums, but block-scaled products at the full rate: 737 instead of 370 TFLOP/s on an RTX 5090 and 202 instead of 102 on
 * an RTX 5060 Ti, as others measured (main-horse.github.io/posts/5090-mm-perf, flashinfer issue 3628). 32 elements of
 * a row of Q, K or P, or of a column of V, share a scale, which is a power of two. It is 1 here: the largest P of each
 * row is 2^8 without it, and the scales of a call, which fp8_scales.cuh applies, need not be powers of two. */

/* Reject configurations of other kernels. common/fp8_fields.h rejects what no kernel with mma.sync supports. */
template <fp8_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.block_scaled, "scaled must be on: attention/fp8_mma_sync has products without scales");
}

#include "kernels/attention/fp8_mma.cuh"

#include "instances.cuh"
