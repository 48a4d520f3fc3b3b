/* attention_fields.h - the fields of an attention_config, the configuration of kernels/attention/mma_sync.cu and
 * wgmma.cu. common/config_fields.h describes the columns. */
#include "common/fields_begin.h"

/* clang-format off */
FIELD(enum dtype, dtype, "()", "element type of Q, K, V and O")
FIELD(int, d_head, "()", "elements of a head's row")
FIELD(int, B_r, "()", "query rows of a Q block")
FIELD(int, B_c, "()", "keys and values of a KV block")
FIELD(int, n_warps, "()", "warps that compute, each with B_r / n_warps query rows")
FIELD(enum instruction, instruction, "mma_sync|wgmma", "what the tensor cores are given")
FIELD(int, stages, "stages_N", "blocks in the rings of K and of V")
FIELD(int, exp_columns, "exp_N",
      "columns of S whose exponentials are computed while those before them are summed; 0 is all")
FIELD(bool, ping_pong, "ping_pong", "the warpgroups take turns: one multiplies while the other computes exponentials")
FIELD(bool, serves, "serve", "sequences of several lengths, windows and sinks: takes serving_args")
FIELD(bool, cap, "cap", "with serve and wgmma: a soft cap of the scores; mma_sync needs no flag for it")
FIELD(bool, paged_kv, "pages", "with serve and wgmma: K and V are in pages that a table names; mma_sync needs no flag")
FIELD(bool, packs, "pack",
      "with serve and wgmma: a Q block may have the queries of all heads that share a KV head; mma_sync needs no flag")
FIELD(bool, extended, "extend",
      "with serve: shorter rows than d_head, with wgmma also pages and caps; with mma_sync also what bias has")
FIELD(int, d_head_v, "dv_N",
      "with extend: elements of a row of V and O, of which each of the warps that share rows has a part; 0 is d_head")
FIELD(bool, drops, "dropout",
      "with bias: weights may be dropped, whose random bits take registers; mma_sync needs no flag for it")
FIELD(bool, latent, "latent", "with dv and wgmma: V is the first columns of K (MLA), which are copied once for both")
FIELD(bool, biased, "bias", "with extend and wgmma: biases, block masks and largest scores, which take registers")

RULE(d_head, cfg.d_head >= 16 && cfg.d_head <= 576 && cfg.d_head % 16 == 0, "must be a multiple of 16 up to 576")
RULE(B_r, cfg.B_r >= 16 && cfg.B_r <= 65536, "must be from 16 to 65536")
RULE(B_c, cfg.B_c >= 16 && cfg.B_c <= 256 && cfg.B_c % 16 == 0, "must be a multiple of 16 up to 256")
RULE(n_warps, cfg.n_warps >= 1 && cfg.n_warps <= 32, "must be from 1 to 32")
RULE(B_r, cfg.B_r % (16 * cfg.n_warps) == 0 || (cfg.d_head_v > 0 && 16 * cfg.n_warps % cfg.B_r == 0),
     "must be a multiple of 16 rows for each warp; with dv several warps may share 16 rows")
RULE(stages, cfg.stages >= 2, "must be at least 2: one block is copied while another is read")
RULE(exp_columns, cfg.exp_columns % 8 == 0, "must be 0 or a multiple of 8, the columns of one tile of S")
RULE(ping_pong, !cfg.ping_pong || cfg.instruction == WGMMA, "must be off with mma_sync: its warps go at their own pace")
RULE(cap, !cfg.cap || cfg.serves, "must be off without serve: serving_args say what the cap is")
RULE(paged_kv, !cfg.paged_kv || cfg.serves, "must be off without serve: serving_args have the table")
RULE(packs, !cfg.packs || cfg.serves, "must be off without serve: only sequences of few queries leave Q blocks empty")
RULE(cap, !cfg.cap || cfg.instruction == WGMMA, "must be off with mma_sync: with serve it reads the cap at run time")
RULE(paged_kv, !cfg.paged_kv || cfg.instruction == WGMMA,
     "must be off with mma_sync: with serve it looks for a table at run time")
RULE(extended, !cfg.extended || cfg.serves, "must be off without serve: serving_args have the number of elements")
RULE(extended, !cfg.extended || !(cfg.cap || cfg.paged_kv || cfg.packs),
     "must be off with cap, pages and pack: it reads the cap and the table at run time")
RULE(packs, !cfg.packs || cfg.instruction == WGMMA, "must be off with mma_sync: with serve it always packs")
RULE(biased, !cfg.biased || cfg.extended, "must be off without extend: extended_args have the biases")
RULE(biased, !cfg.biased || cfg.instruction == WGMMA,
     "must be off with mma_sync: with extend it reads biases at run time")
RULE(drops, !cfg.drops || cfg.biased, "must be off without bias: only its instances have the registers")

RULE(d_head_v, cfg.d_head_v == 0 || cfg.extended,
     "must be off without extend: extended_args have the number of elements")
RULE(d_head_v, cfg.d_head_v >= 0 && cfg.d_head_v <= 512 && cfg.d_head_v % 64 == 0, "must be a multiple of 64 up to 512")
RULE(latent, !cfg.latent || (cfg.d_head_v > 0 && cfg.d_head_v < cfg.d_head),
     "must be off unless dv is less than d_head: V is the first columns of K")
RULE(latent, !cfg.latent || cfg.instruction == WGMMA, "must be off with mma_sync: it copies V apart from K")
RULE(latent, !(cfg.latent && cfg.biased), "must be off with bias: a block mask needs a ring of V")

HAS(ANY_LENGTH, true)
HAS(CAUSAL, true)
HAS(GROUPED_HEADS, true)
HAS(PACKED_HEADS, cfg.instruction == MMA_SYNC)
HAS(TICKETS, true)
HAS(TENSOR_COPIES, cfg.instruction == WGMMA)
HAS(SERVES, cfg.serves)
HAS(SERVES_ALL, cfg.serves && (cfg.instruction == MMA_SYNC || cfg.extended))
HAS(EXTENDED, cfg.extended)
HAS(BIAS, cfg.extended && (cfg.biased || cfg.instruction == MMA_SYNC))
HAS(DROPOUT, cfg.drops)
HAS(LATENT, cfg.latent)
HAS(CAP, cfg.cap)
HAS(PAGED_KV, cfg.paged_kv)
HAS(PACKS, cfg.packs)
HAS(SPLITS_KEYS, cfg.extended && !cfg.biased && cfg.instruction == WGMMA)
HAS(PERSISTENT, true)
HAS(SPLIT_TAIL, cfg.instruction == MMA_SYNC)
HAS(PRODUCER, cfg.instruction == WGMMA)
HAS(DOUBLE_BUFFER_Q, cfg.instruction == WGMMA && cfg.d_head <= 128)
HAS(LAZY_RESCALE, true)
HAS(FIRST_MAX, cfg.instruction == WGMMA)
HAS(PADDED_ROWS, cfg.instruction == MMA_SYNC)
/* clang-format on */

#include "common/fields_end.h"
