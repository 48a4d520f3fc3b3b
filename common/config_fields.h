/* config_fields.h - the fields of a KernelConfig, the configuration of the ladder's kernels, and the rules between
 * them.
 *
 *     #define FIELD(type, name, word, ...) type name;
 *     #include "common/config_fields.h"
 *
 * Include a fields file, or common/families.h for all of them, wherever something is needed for each row. A macro that
 * is not defined counts as empty, and all are undefined at the end. Every fields file has these rows:
 *
 * FIELD(type, name, word, help, ...)
 *   type   `enum dtype`, `enum instruction`, `int` or `bool`
 *   name   in the struct. The order is that of the struct, of kernel symbols and of the short form: a new field goes
 *          to the end, and it is zero in older configurations, so that every short form keeps its meaning. The first
 *          five fields are the same in every family
 *   word   in the short form. "()" is the next value in the parenthesis. The word of a bool appears if it is true. A
 *          capital letter means a number: "stages_N" is left out where the field is 0. Adjacent fields with the
 *          same word share an item; it is always there, and its numbers may be 0. The word of an instruction lists its
 *          values, "mma_sync|wgmma", by which a reader recognizes the family. Fields with the word "" are the last:
 *          they are always 0, and only the struct and symbols have them
 *   help   what the field means, in units
 *   ...    in this file the first version of kernels/mma_sync and of kernels/wgmma that acts on the field; "" where
 *          none does. Older versions of the folder reject it
 *
 * RULE(name, holds, sentence)
 *   name      of the field that a broken rule is reported for, as "NAME = VALUE: SENTENCE" and, in a parenthesis, the
 *             values of the other fields in `holds`
 *   holds     an integer expression over cfg.FIELD
 *   sentence  what the value must be, and why where that is not plain
 * Rules are tried in this order and the first broken one is reported, so a rule may rely on those before it.
 *
 * HAS(feature, holds)
 *   A feature of runtime/config.h that a kernel has if `holds`, an expression over cfg.FIELD.
 */
#include "common/fields_begin.h"

/* clang-format off */
FIELD(enum dtype, dtype, "()", "element type of Q, K, V and O", "v00", "v26")
FIELD(int, d_head, "()", "elements of a head's row", "v00", "v26")
FIELD(int, B_r, "()", "query rows of a CTA", "v00", "v26")
FIELD(int, B_c, "()", "keys and values of a KV block", "v00", "v26")
FIELD(int, n_warps, "()", "warps of a CTA that compute, each with B_r / n_warps query rows", "v00", "v26")
FIELD(bool, async_copy, "async", "blocks are copied by cp.async, without going through registers", "v00b", "v26")
FIELD(bool, eager_load_blocks, "eager", "each copy is started one step early", "v03", "v26")
FIELD(bool, swizzled, "swizzled",
      "the 16-byte chunks of a row in shared memory are permuted by the row number", "v02", "v26")
FIELD(int, Q_mma_load_K_tiles, "load_Q_K_V_tiles", "8-wide fragments of Q read for one step of S; 0 is all", "v04", "")
FIELD(int, K_mma_load_K_tiles, "load_Q_K_V_tiles", "8-wide fragments of K read for one step of S; 0 is all", "v04", "")
FIELD(int, V_mma_load_K_tiles, "load_Q_K_V_tiles", "8-wide fragments of V read for one step of O; 0 is all", "v04", "")
FIELD(bool, mma_double_buffer_loads, "buffer", "fragments of the next step are read during the present one", "v05", "")
FIELD(bool, optimized_softmax, "opt_softmax", "scale and maximum of the scores are one multiply-add", "v06", "v26")
FIELD(bool, lazy_rescale, "lazy",
      "l and O are rescaled only where a row's maximum outgrows the one in use by a threshold", "v17", "v31")
FIELD(int, stages, "stages_N", "blocks in the ring of K and V; 0 is one of each, handed over by barriers", "v19", "v28")
FIELD(int, slack, "slack_N", "KV blocks by which the warps may drift apart", "v20", "")
FIELD(bool, padded_rows, "padded", "rows in shared memory are 16 bytes longer than d_head elements", "v21", "")
FIELD(bool, split_tail, "split_tail",
      "Q blocks of a last, partly filled wave of CTAs are cut into one slice per warp", "v23", "")
FIELD(bool, persistent, "persistent", "one CTA per multiprocessor takes one Q block after another", "v25", "v32")
FIELD(bool, tensor_copies, "tensor",
      "one thread has the tensor copy engine copy a whole block, which a tensor map describes", "", "v27")
FIELD(bool, producer, "producer", "the CTA has one warpgroup more, at its front, that only issues copies", "", "v28")
FIELD(bool, QK_ahead, "qk_ahead", "QK of the next KV block is issued before PV of the present one", "", "v29")
FIELD(bool, ping_pong, "ping_pong",
      "the warpgroups take turns: one multiplies while the other computes exponentials", "", "v30")
FIELD(bool, double_buffer_Q, "double_q", "the next Q block is copied while the present one is in use", "", "v33")
FIELD(int, exp_columns, "exp_N",
      "columns of S whose exponentials are computed while those before them are summed; 0 is all", "", "v34")
FIELD(bool, first_max, "first_max",
      "the maximum of the first KV block stays in use until a row's sum outgrows a threshold", "", "v35")
FIELD(bool, early_release, "early_k",
      "a K block is released once S is computed, and no later pass reads it again", "", "v36")
FIELD(bool, unused_1, "", "always false: keeps the symbols", "", "")
FIELD(bool, unused_2, "", "always false: keeps the symbols", "", "")
FIELD(bool, unused_3, "", "always false: keeps the symbols", "", "")
FIELD(bool, unused_4, "", "always false: keeps the symbols", "", "")
FIELD(bool, unused_5, "", "always false: keeps the symbols", "", "")

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
     "must be off with padded: a tensor map permutes the 16-byte chunks of a row and leaves no space after it")
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

HAS(TENSOR_COPIES, cfg.tensor_copies)
/* clang-format on */

#include "common/fields_end.h"
