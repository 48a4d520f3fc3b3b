/* fp8_fields.h - the fields of an fp8_config, the configuration of kernels/fp8/ and of fp8.cu, fp8_mma_sync.cu and
 * fp8_mma_scaled.cu in kernels/attention/. common/config_fields.h describes the columns. */
#include "common/fields_begin.h"

/* clang-format off */
FIELD(enum dtype, dtype, "()", "element type of O; Q, K and V are e4m3")
FIELD(int, d_head, "()", "elements of a head's row")
FIELD(int, B_r, "()", "query rows of a CTA")
FIELD(int, B_c, "()", "keys and values of a KV block")
FIELD(int, n_warps, "()", "warps that compute, each with 16 query rows; 4 more bring the blocks")
FIELD(enum instruction, instruction, "fp8_wgmma|fp8_mma_sync", "what multiplies e4m3: wgmma or mma.sync")
FIELD(int, stages, "stages_N", "blocks in the rings of K and of V")
FIELD(bool, V_transposed, "v_transposed", "the caller gives V transposed, contiguous [batch, heads, d_head, seq]")
FIELD(bool, K_permuted, "k_permuted", "the tensor map of K permutes its rows, so that P stays in its lanes")
FIELD(int, flush_blocks, "flush_N", "KV blocks after which O is added up in fp32; 0 is never")
FIELD(bool, rounded_sums, "rounded_l", "l sums P as it was rounded to e4m3")
FIELD(bool, any_length, "any_length", "any number of queries and keys: keys past the last are masked")
FIELD(bool, causal, "causal", "a launch may ask for the causal mask: KV blocks that no row sees are skipped")
FIELD(bool, persistent, "persistent", "one CTA per multiprocessor takes one Q block after another")
FIELD(bool, tickets, "tickets", "CTAs draw their Q blocks from a counter, the longest first")
FIELD(bool, grouped_heads, "grouped", "heads may share K and V, and each head has descale factors of its own")
FIELD(bool, serves, "serve", "a length for each sequence, factors of keys, O in e4m3 too: takes serving_args")
FIELD(bool, block_scaled, "scaled", "mma.sync of sm_120a that scales blocks, here by 1: faster than without scales")

RULE(d_head, cfg.d_head == 64 || cfg.d_head == 128 || cfg.d_head == 256,
     "must be 64, 128 or 256: there is no fp8 kernel for another head size")
RULE(n_warps, cfg.n_warps == 8 || cfg.n_warps == (cfg.instruction == FP8_MMA_SYNC ? 4 : 12),
     "must be 8, or 12 with fp8_wgmma, or 4 with fp8_mma_sync: more than 8 would leave S and O too few registers")
RULE(B_r, cfg.B_r == 16 * cfg.n_warps, "must be 16 rows for each warp")
RULE(B_c, cfg.B_c >= 32 && cfg.B_c <= 128 && cfg.B_c % 32 == 0, "must be a multiple of 32 up to 128")
RULE(stages, cfg.stages >= 2, "must be at least 2: one block is copied while another is read")
RULE(K_permuted, !cfg.K_permuted || cfg.V_transposed,
     "must be off where V is transposed in the kernel: that permutes, too")
RULE(any_length, !cfg.any_length || !cfg.V_transposed, "must be off with v_transposed: a row of V has all keys")
RULE(tickets, !cfg.tickets || cfg.persistent, "must be off without persistent: other CTAs have one Q block")
RULE(serves, !cfg.serves || cfg.tickets, "must be off without tickets: only kernels/attention/ serves")
RULE(causal, !cfg.causal || cfg.any_length, "must be off without any_length, which has the mask")

RULE(B_c, cfg.instruction != FP8_MMA_SYNC || cfg.B_c + cfg.d_head <= (cfg.n_warps == 4 ? 320 : 192),
     "must be with fp8_mma_sync at most 192 - d_head, or 320 - d_head with 4 warps: S and O are in registers")
RULE(V_transposed, cfg.instruction != FP8_MMA_SYNC || !cfg.V_transposed,
     "must be off with fp8_mma_sync: the kernel transposes")
RULE(flush_blocks, cfg.instruction != FP8_MMA_SYNC || cfg.flush_blocks == 1,
     "must be 1 with fp8_mma_sync: O of each block is added up in fp32")
RULE(rounded_sums, cfg.instruction != FP8_MMA_SYNC || cfg.rounded_sums,
     "must be on with fp8_mma_sync: l sums P as it was rounded")
RULE(causal, cfg.instruction != FP8_MMA_SYNC || cfg.causal, "must be on with fp8_mma_sync: the kernel has the mask")
RULE(tickets, cfg.instruction != FP8_MMA_SYNC || cfg.tickets,
     "must be on with fp8_mma_sync: CTAs fetch their Q blocks")
RULE(grouped_heads, cfg.instruction != FP8_MMA_SYNC || cfg.grouped_heads,
     "must be on with fp8_mma_sync: heads may share K and V")
RULE(block_scaled, cfg.instruction == FP8_MMA_SYNC || !cfg.block_scaled,
     "must be off with fp8_wgmma: only mma.sync has scales of blocks")

HAS(E4M3_INPUTS, true)
HAS(ANY_LENGTH, cfg.any_length)
HAS(CAUSAL, cfg.causal)
HAS(GROUPED_HEADS, cfg.grouped_heads)
HAS(TICKETS, cfg.tickets)
HAS(TENSOR_COPIES, cfg.instruction == FP8_WGMMA)
HAS(SERVES, cfg.serves)
/* clang-format on */

#include "common/fields_end.h"
