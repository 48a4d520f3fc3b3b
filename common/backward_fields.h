/* backward_fields.h - the fields of a backward_config, the configuration of kernels/backward/ and
 * kernels/attention/backward.cu and backward_mma_sync.cu. common/config_fields.h describes the columns. */
#include "common/fields_begin.h"

/* clang-format off */
FIELD(enum dtype, dtype, "()", "element type of Q, K, V, O and of their gradients")
FIELD(int, d_head, "()", "elements of a head's row")
FIELD(int, B_r, "()", "query rows of a Q block")
FIELD(int, B_c, "()", "keys and values of a KV block, which a CTA keeps")
FIELD(int, n_warps, "()", "warps that compute")
FIELD(enum instruction, instruction, "backward_fma|backward_mma_sync|backward_wgmma",
      "what multiplies: plain multiply-adds, or what the tensor cores are given")
FIELD(bool, dQ_sums, "dq_sums", "dQ is added up in fp32 in global memory, and rounded by a kernel after this one")
FIELD(bool, in_order, "in_order", "with dq_sums: CTAs add to a Q block in the order of their keys")
FIELD(int, stages, "stages_N", "Q blocks in the ring; 0 is one, handed over by barriers")
FIELD(bool, tensor_copies, "tensor", "one thread has the tensor copy engine copy whole blocks")
FIELD(bool, causal, "causal", "a launch may ask for the causal mask: Q blocks that see none of the keys are skipped")
FIELD(bool, grouped_heads, "grouped", "several heads may share a KV head")
FIELD(bool, any_rows, "any_length", "any number of queries and of keys, and gradients with strides of their own")
FIELD(bool, serves, "serve", "sequences of several lengths, windows, soft caps, sinks: takes backward_serving_args")

RULE(d_head, cfg.d_head == 64 || cfg.d_head == 128 || cfg.d_head == 256, "must be 64, 128 or 256")
RULE(B_r, cfg.B_r >= 16 && cfg.B_r <= 128 && cfg.B_r % 16 == 0, "must be a multiple of 16 up to 128")
RULE(B_c, cfg.B_c >= 16 && cfg.B_c <= 128 && cfg.B_c % 16 == 0, "must be a multiple of 16 up to 128")
RULE(n_warps, cfg.n_warps >= 1 && cfg.n_warps <= 16, "must be from 1 to 16")
RULE(in_order, !cfg.in_order || cfg.dQ_sums, "must be off without dq_sums: no two CTAs add to one dQ")
RULE(stages, cfg.stages != 1, "must be 0 or at least 2: one block is copied while another is read")
RULE(any_rows, !cfg.any_rows || cfg.dQ_sums, "must be off without dq_sums: dQ of a last block has room there")
RULE(any_rows, !cfg.any_rows || cfg.tensor_copies || cfg.instruction == MMA_SYNC,
     "must be off without tensor or mma_sync: another kernel does not fill up a last block")
RULE(serves, !cfg.serves || cfg.any_rows, "must be off without any_length: sequences are no whole blocks")
RULE(tensor_copies, !cfg.tensor_copies || cfg.instruction == WGMMA, "must be off without wgmma")

HAS(BACKWARD_PASS, true)
HAS(OWN_STRIDES, cfg.any_rows && !cfg.tensor_copies)
HAS(CAUSAL, cfg.causal)
HAS(GROUPED_HEADS, cfg.grouped_heads)
HAS(TENSOR_COPIES, cfg.tensor_copies)
HAS(SERVES, cfg.serves)
/* clang-format on */

#include "common/fields_end.h"
