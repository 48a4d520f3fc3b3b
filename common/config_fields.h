/* config_fields.h - the fields of a KernelConfig and the rules between them: the one list that C and Python read.
 *
 *     #define FIELD(type, name, word, mma_sync, wgmma, help) type name;
 *     #include "common/config_fields.h"
 *
 * Include it wherever something is needed for each field or for each rule. A macro that is not defined counts as
 * empty, and all are undefined at the end. analysis reads the rows as text: a literal stays a literal.
 *
 * FIELD(type, name, word, mma_sync, wgmma, help)
 *   type   `enum dtype`, `int` or `bool`
 *   name   in KernelConfig. The order is that of the struct, of kernel symbols and of the short form: a new field goes
 *          to the end, and it is zero in older configurations, so that every short form keeps its meaning
 *   word   in the short form. "()" is the next value in the parenthesis. The word of a bool stands there or not.
 *          A capital letter stands for a number: "stages_N" is left out where the field is 0. Fields in a row with the
 *          same word share an item; it is always there, and its numbers may be 0
 *   mma_sync, wgmma
 *          the first version of kernels/mma_sync and of kernels/wgmma that acts on the field; "" where none does. Older
 *          versions of the folder refuse it
 *   help   what the field means, in units
 *
 * RULE(name, holds, sentence)
 *   name      of the field that a broken rule is reported for, as "NAME = VALUE: SENTENCE" and, in a parenthesis, the
 *             values of the other fields in `holds`
 *   holds     an integer expression over cfg.FIELD, true, false and numbers
 *   sentence  what the value must be, and why where that is not plain
 * Rules are tried in this order and the first broken one is reported, so a rule may rely on those before it.
 */
#ifndef FIELD
#define FIELD(type, name, word, mma_sync, wgmma, help)
#endif
#ifndef RULE
#define RULE(name, holds, sentence)
#endif

/* clang-format off */
FIELD(enum dtype, dtype, "()", "v00", "v26", "element type of Q, K, V and O")
FIELD(int, d_head, "()", "v00", "v26", "elements of a head's row")
FIELD(int, B_r, "()", "v00", "v26", "query rows of a CTA")
FIELD(int, B_c, "()", "v00", "v26", "keys and values of a KV block")
FIELD(int, n_warps, "()", "v00", "v26", "warps of a CTA that compute, each with B_r / n_warps query rows")
FIELD(bool, async_copy, "async", "v00b", "v26", "blocks are copied by cp.async, without going through registers")
FIELD(bool, eager_load_blocks, "eager", "v03", "v26", "each copy is started one step early")
FIELD(bool, swizzled, "swizzled", "v02", "v26",
      "the 16-byte chunks of a row in shared memory are permuted by the row number")
FIELD(int, Q_mma_load_K_tiles, "load_Q_K_V_tiles", "v04", "", "8-wide fragments of Q read for one step of S; 0 is all")
FIELD(int, K_mma_load_K_tiles, "load_Q_K_V_tiles", "v04", "", "8-wide fragments of K read for one step of S; 0 is all")
FIELD(int, V_mma_load_K_tiles, "load_Q_K_V_tiles", "v04", "", "8-wide fragments of V read for one step of O; 0 is all")
FIELD(bool, mma_double_buffer_loads, "buffer", "v05", "", "fragments of the next step are read during the present one")
FIELD(bool, optimized_softmax, "opt_softmax", "v06", "v26", "scale and maximum of the scores are one multiply-add")
FIELD(bool, lazy_rescale, "lazy", "v17", "v31",
      "l and O are rescaled only where a row's maximum outgrows the one in use by a threshold")
FIELD(int, stages, "stages_N", "v19", "v28", "blocks in the ring of K and V; 0 is one of each, handed over by barriers")
FIELD(int, slack, "slack_N", "v20", "", "KV blocks by which the warps may drift apart")
FIELD(bool, padded_rows, "padded", "v21", "", "rows in shared memory are 16 bytes longer than d_head elements")
FIELD(bool, split_tail, "split_tail", "v23", "",
      "Q blocks of a last, partly filled wave of CTAs are cut into one slice per warp")
FIELD(bool, persistent, "persistent", "v25", "v32", "one CTA per multiprocessor takes one Q block after another")
FIELD(bool, tensor_copies, "tensor", "", "v27",
      "one thread has the tensor copy engine copy a whole block, which a tensor map describes")
FIELD(bool, producer, "producer", "", "v28", "the CTA has one warpgroup more, at its front, that only issues copies")
FIELD(bool, QK_ahead, "qk_ahead", "", "v29", "QK of the next KV block is issued before PV of the present one")
FIELD(bool, ping_pong, "ping_pong", "", "v30",
      "the warpgroups take turns: one multiplies while the other computes exponentials")
FIELD(bool, double_buffer_Q, "double_q", "", "v33", "the next Q block is copied while the present one is in use")
FIELD(int, exp_columns, "exp_N", "", "v34",
      "columns of S whose exponentials are computed while those before them are summed; 0 is all")
FIELD(bool, first_max, "first_max", "", "v35",
      "the maximum of the first KV block stays in use until a row's sum outgrows a threshold")
FIELD(bool, early_release, "early_k", "", "v36",
      "a K block is released once S is computed, and no later pass reads it again")
FIELD(bool, any_length, "any_length", "", "",
      "any numbers of queries and keys, strides of each tensor, a softmax scale, log-sum-exp: takes attention_args")
FIELD(bool, causal, "causal", "", "",
      "a launch may ask for the causal mask: blocks that no row sees are skipped, the longest Q blocks come first")
FIELD(bool, grouped_heads, "grouped", "", "", "several heads may share a KV head")
FIELD(bool, packed_heads, "packed", "", "",
      "where queries are few, those of all heads of a KV head are the rows of one Q block")
FIELD(bool, tickets, "tickets", "", "", "CTAs draw Q blocks from a counter in global memory, the longest first")

RULE(d_head, cfg.d_head >= 1 && cfg.d_head <= 65536, "must be from 1 to 65536")
RULE(B_r, cfg.B_r >= 1 && cfg.B_r <= 65536, "must be from 1 to 65536")
RULE(B_c, cfg.B_c >= 1 && cfg.B_c <= 65536, "must be from 1 to 65536")
RULE(n_warps, cfg.n_warps >= 1 && cfg.n_warps <= 65536, "must be from 1 to 65536")
RULE(d_head, cfg.d_head % 16 == 0, "must be a multiple of 16, the depth of one mma")
RULE(d_head, cfg.d_head % 64 == 0 || !cfg.tensor_copies,
     "must be a multiple of 64 with tensor: a copy takes rows in steps of 128 bytes")
RULE(B_c, cfg.B_c % 16 == 0, "must be a multiple of 16, the depth of one mma")
RULE(B_r, cfg.B_r % (16 * cfg.n_warps) == 0, "must be a multiple of 16 rows for each warp")
RULE(Q_mma_load_K_tiles, cfg.Q_mma_load_K_tiles >= 0 && cfg.Q_mma_load_K_tiles != 1 &&
     (cfg.Q_mma_load_K_tiles & (cfg.Q_mma_load_K_tiles - 1)) == 0, "must be 0 or a power of two from 2 on")
RULE(K_mma_load_K_tiles, cfg.K_mma_load_K_tiles >= 0 && cfg.K_mma_load_K_tiles != 1 &&
     (cfg.K_mma_load_K_tiles & (cfg.K_mma_load_K_tiles - 1)) == 0, "must be 0 or a power of two from 2 on")
RULE(V_mma_load_K_tiles, cfg.V_mma_load_K_tiles >= 0 && cfg.V_mma_load_K_tiles != 1 &&
     (cfg.V_mma_load_K_tiles & (cfg.V_mma_load_K_tiles - 1)) == 0, "must be 0 or a power of two from 2 on")
RULE(Q_mma_load_K_tiles, cfg.Q_mma_load_K_tiles <= cfg.d_head / (cfg.mma_double_buffer_loads ? 16 : 8),
     "must be at most d_head / 8, with buffer d_head / 16")
RULE(K_mma_load_K_tiles, cfg.K_mma_load_K_tiles <= cfg.d_head / (cfg.mma_double_buffer_loads ? 16 : 8),
     "must be at most d_head / 8, with buffer d_head / 16")
RULE(V_mma_load_K_tiles, cfg.V_mma_load_K_tiles <= cfg.B_c / (cfg.mma_double_buffer_loads ? 16 : 8),
     "must be at most B_c / 8, with buffer B_c / 16")
RULE(Q_mma_load_K_tiles, cfg.Q_mma_load_K_tiles == 0 || cfg.Q_mma_load_K_tiles == cfg.K_mma_load_K_tiles,
     "must be 0 or equal to K's: a step of S reads both")
RULE(stages, cfg.stages == 0 || cfg.stages >= 2, "must be 0 or at least 2")
RULE(slack, cfg.slack >= 0 && cfg.slack <= (cfg.stages ? cfg.stages - 2 : 0),
     "must be from 0 to stages - 2, so that one block at least is fetched ahead, and 0 without stages")
RULE(padded_rows, !cfg.padded_rows || !cfg.swizzled, "must be off with swizzled: either of them keeps the banks apart")
RULE(tensor_copies, !cfg.tensor_copies || !cfg.padded_rows,
     "must be off with padded: a tensor map permutes the 16-byte chunks of a row and leaves no space behind it")
RULE(B_c, cfg.B_c <= 256 || !cfg.tensor_copies, "must be at most 256 with tensor, the most rows that one copy takes")
RULE(n_warps, cfg.n_warps % 4 == 0 || !cfg.tensor_copies, "must be a multiple of 4 with tensor: whole warpgroups")
RULE(producer, !cfg.producer || cfg.tensor_copies, "must be off without tensor: one thread copies whole blocks")
RULE(persistent, !cfg.persistent || cfg.split_tail || cfg.producer,
     "must be off without split_tail and without producer: else nothing numbers the Q blocks along the grid")
RULE(ping_pong, !cfg.ping_pong || cfg.n_warps >= 8, "must be off with fewer than 8 warps, two warpgroups")
RULE(double_buffer_Q, !cfg.double_buffer_Q || (cfg.producer && cfg.persistent),
     "must be off without producer and persistent: only then is there a next Q block, and a thread that copies it")
RULE(exp_columns, cfg.exp_columns % 8 == 0, "must be 0 or a multiple of 8, the columns of one tile of S")
RULE(exp_columns, cfg.exp_columns == 0 || cfg.B_c % cfg.exp_columns == 0, "must be 0 or divide B_c")
RULE(early_release, !cfg.early_release || cfg.first_max,
     "must be off without first_max: a pass over S that needs K again is rare only there")
RULE(causal, !cfg.causal || cfg.any_length, "must be off without any_length: forward_args cannot ask for a mask")
RULE(grouped_heads, !cfg.grouped_heads || cfg.any_length,
     "must be off without any_length: forward_args has one number of heads")
RULE(packed_heads, !cfg.packed_heads || cfg.grouped_heads, "must be off without grouped: each head has its own keys")
RULE(tickets, !cfg.tickets || (cfg.persistent && cfg.any_length),
     "must be off without persistent and any_length: CTAs draw from a counter in attention_args")
/* clang-format on */

#undef FIELD
#undef RULE
