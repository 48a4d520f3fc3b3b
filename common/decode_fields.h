/* decode_fields.h - the fields of a decode_config, the configuration of kernels/attention/decode.cu.
 * common/config_fields.h describes the columns. */
#include "common/fields_begin.h"

/* clang-format off */
FIELD(enum dtype, dtype, "()", "element type of Q and O, and of K and V without e4m3 and int8")
FIELD(int, d_head, "()", "elements of a head's row")
FIELD(int, B_r, "()", "rows of a row block: the queries of all heads that share a KV head")
FIELD(int, B_c, "()", "keys and values of a KV block")
FIELD(int, n_warps, "()",
      "warps that compute, each with 16 rows and the keys of a key group: n_warps * 16 / B_r groups, with wgmma one")
FIELD(enum instruction, instruction, "mma_sync|wgmma", "what the tensor cores are given: wgmma from 64 rows on")
FIELD(bool, tensor_copies, "tensor", "the TMA copies the keys and values of each warp: always on without cp_async")
FIELD(int, stages, "stages_N", "KV blocks in the ring")
FIELD(bool, serves, "serve", "a length for each sequence, pages and parts of a size: takes serving_args")
FIELD(bool, e4m3_cache, "e4m3", "K and V are e4m3, a byte an element, with a scale for each KV head")
FIELD(bool, ragged_queries, "ragged",
      "with e4m3 or int8: each sequence has its own number of queries, and Q, or K and V, may be packed")
FIELD(bool, cp_async, "cp_async", "four warps copy the keys and values by cp.async, on every GPU since Ampere")
FIELD(bool, int8_cache, "int8", "K and V are int8, a byte an element, with a scale for each KV head")

RULE(d_head, cfg.d_head == 64 || cfg.d_head == 128, "must be 64 or 128")
RULE(B_r, cfg.instruction == WGMMA || cfg.B_r == 16 || cfg.B_r == 32 || cfg.B_r == 64,
     "must be 16, 32 or 64: a warp has the rows of one mma")
RULE(B_r, cfg.instruction != WGMMA || ((cfg.B_r == 64 || cfg.B_r == 128) && cfg.B_r == 16 * cfg.n_warps),
     "must be 64 or 128 with wgmma, and 16 * n_warps")
RULE(n_warps, cfg.n_warps >= 1 && cfg.n_warps <= 8, "must be from 1 to 8")
RULE(n_warps, 16 * cfg.n_warps % cfg.B_r == 0, "must be a multiple of B_r / 16")
RULE(B_c, cfg.instruction != WGMMA || cfg.B_c * cfg.d_head == 8192, "must be 8192 / d_head with wgmma")
RULE(serves, cfg.instruction != WGMMA || cfg.serves, "must be on with wgmma")
RULE(e4m3_cache, cfg.instruction != WGMMA || !cfg.e4m3_cache, "must be off with wgmma, which has 16-bit elements")
RULE(B_c, cfg.instruction == WGMMA ||
              (cfg.B_c > 0 && cfg.B_c * cfg.B_r % (256 * cfg.n_warps) == 0 && cfg.B_c * cfg.B_r <= 1024 * cfg.n_warps),
     "must be 16 to 64 keys for each of n_warps * 16 / B_r key groups, a multiple of 16")
RULE(B_c, !cfg.serves || cfg.B_c == 64 || cfg.B_c == 128, "must be 64 or 128 with serve: a power of two, as pages are")
RULE(e4m3_cache, !cfg.e4m3_cache || cfg.serves, "must be off without serve: serving_args have the scales")
RULE(e4m3_cache, !cfg.e4m3_cache || cfg.d_head == 128, "must be off unless d_head is 128: a row has 128 bytes")
RULE(int8_cache, !cfg.int8_cache || !cfg.e4m3_cache, "must be off with e4m3: an element has one type")
RULE(int8_cache, cfg.instruction != WGMMA || !cfg.int8_cache, "must be off with wgmma, which has 16-bit elements")
RULE(int8_cache, !cfg.int8_cache || cfg.serves, "must be off without serve: serving_args have the scales")
RULE(int8_cache, !cfg.int8_cache || cfg.d_head == 128, "must be off unless d_head is 128: a row has 128 bytes")
RULE(ragged_queries, !cfg.ragged_queries || cfg.e4m3_cache || cfg.int8_cache,
     "must be off without e4m3 and int8: attention/wgmma has 16 bits")
RULE(tensor_copies, cfg.tensor_copies != cfg.cp_async, "must be on without cp_async, and off with it")
RULE(cp_async, !cfg.cp_async || cfg.instruction == MMA_SYNC, "must be off with wgmma, which is for Hopper")
RULE(stages, cfg.stages >= 2, "must be at least 2: one block is copied while another is read")

HAS(ANY_LENGTH, true)
HAS(CAUSAL, true)
HAS(GROUPED_HEADS, true)
HAS(PACKED_HEADS, true)
HAS(TICKETS, true)
HAS(TENSOR_COPIES, !cfg.cp_async)
HAS(SERVES, cfg.serves)
HAS(SHARES_KEYS, true)
HAS(E4M3_CACHE, cfg.e4m3_cache)
HAS(INT8_CACHE, cfg.int8_cache)
HAS(RAGGED_QUERIES, cfg.ragged_queries)
HAS(PERSISTENT, true)
HAS(PRODUCER, true)
HAS(LAZY_RESCALE, true)
/* clang-format on */

#include "common/fields_end.h"
