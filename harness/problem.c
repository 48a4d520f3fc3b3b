#include "harness/problem.h"

#include "harness/about.h"
#include "runtime/abilities.h"
#include "runtime/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const int64_t MAX_SIZE = 1 << 30; /* of one dimension */

const char *distribution_name(enum distribution dist) {
    static const char *const names[] = {"normal", "uniform", "large", "ramp"};
    return names[dist];
}

const char *layout_name(enum layout layout) {
    static const char *const names[] = {"bshd", "bhsd", "padded", "packed"};
    return names[layout];
}

struct problem problem_square(int64_t batch, int64_t heads, int64_t seq) {
    return (struct problem){.batch = batch,
                            .heads = heads,
                            .KV_heads = heads,
                            .seq_q = seq,
                            .seq_k = seq,
                            .d_head = 128,
                            .dtype = FP16,
                            .seed = 1,
                            .descale = {1, 1, 1}};
}

#define FIELD(name) {offsetof(struct problem, name), sizeof(((struct problem *)NULL)->name)}
static const struct {
    size_t offset, bytes;
} FIELDS[] = {FIELD(batch),       FIELD(heads),        FIELD(KV_heads),
              FIELD(seq_q),       FIELD(seq_k),        FIELD(d_head),
              FIELD(dtype),       FIELD(dist),         FIELD(seed),
              FIELD(backward),    FIELD(causal),       FIELD(lse),
              FIELD(scale),       FIELD(layout),       FIELD(windowed),
              FIELD(window_left), FIELD(window_right), FIELD(softcap),
              FIELD(sinks),       FIELD(page_rows),    FIELD(split_keys),
              FIELD(cache_e4m3),  FIELD(e4m3),         FIELD(e4m3_serves),
              FIELD(descale),     FIELD(transposed_V), FIELD(rounded_sums_of_P),
              FIELD(summed_keys), FIELD(d_head_v),     FIELD(cache_int8),
              FIELD(block_mask),  FIELD(mask_seed),    FIELD(drops),
              FIELD(latent)};

bool problem_equal(const struct problem *a, const struct problem *b) {
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++)
        if (memcmp((const char *)a + FIELDS[i].offset, (const char *)b + FIELDS[i].offset, FIELDS[i].bytes) != 0)
            return false;
    return a->Q_lengths == b->Q_lengths && a->KV_lengths == b->KV_lengths;
}

static bool of_keys(enum tensor tensor) {
    return tensor == TENSOR_K || tensor == TENSOR_V;
}

int64_t problem_rows(const struct problem *problem, enum tensor tensor) {
    return of_keys(tensor) ? problem->seq_k : problem->seq_q;
}

int64_t problem_heads(const struct problem *problem, enum tensor tensor) {
    return of_keys(tensor) ? problem->KV_heads : problem->heads;
}

int problem_d_head(const struct problem *problem, enum tensor tensor) {
    const bool of_V = tensor == TENSOR_V || tensor == TENSOR_O;
    return of_V && problem->d_head_v ? problem->d_head_v : problem->d_head;
}

int64_t problem_elements(const struct problem *problem, enum tensor tensor) {
    return problem->batch * problem_heads(problem, tensor) * problem_rows(problem, tensor) *
           problem_d_head(problem, tensor);
}

int64_t problem_bytes(const struct problem *problem, enum tensor tensor) {
    return 2 * problem_elements(problem, tensor);
}

int64_t problem_all_bytes(const struct problem *problem) {
    int64_t bytes = 0;
    for (int t = 0; t < N_TENSORS; t++) bytes += problem_bytes(problem, (enum tensor)t);
    return bytes;
}

int64_t problem_length(const struct problem *problem, enum tensor tensor, int64_t batch) {
    const struct number_list *const lengths = of_keys(tensor) ? problem->KV_lengths : problem->Q_lengths;
    return lengths ? lengths->values[batch] : problem_rows(problem, tensor);
}

int64_t problem_rows_before(const struct problem *problem, enum tensor tensor, int64_t batch) {
    int64_t rows = 0;
    for (int64_t b = 0; b < batch; b++) rows += problem_length(problem, tensor, b);
    return rows;
}

bool problem_is_ragged(const struct problem *problem) {
    return problem->Q_lengths || problem->KV_lengths;
}

bool problem_is_served(const struct problem *problem) {
    return problem_is_ragged(problem) || problem->layout == LAYOUT_PACKED || problem->windowed ||
           problem->softcap > 0 || problem->sinks || problem->page_rows || problem->split_keys ||
           problem_has_cache_of_bytes(problem) || problem->e4m3_serves || problem->block_mask;
}

int64_t problem_lse_bytes(const struct problem *problem) {
    return (int64_t)sizeof(float) * problem->batch * problem->heads * problem->seq_q;
}

int64_t problem_device_lse_bytes(const struct problem *problem) {
    const int64_t rows = problem->layout == LAYOUT_PACKED ? problem_rows_before(problem, TENSOR_Q, problem->batch)
                                                          : problem->batch * problem->seq_q;
    return (int64_t)sizeof(float) * problem->heads * rows;
}

int64_t problem_row_offset(const struct problem *problem, enum tensor tensor, int64_t batch, int64_t head,
                           int64_t row) {
    return ((batch * problem_rows(problem, tensor) + row) * problem_heads(problem, tensor) + head) *
           problem_d_head(problem, tensor);
}

/* Rows of the pages up to the one in which a sequence ends. */
static int64_t pages_before(const struct problem *problem, int64_t batch) {
    int64_t pages = 0;
    for (int64_t b = 0; b < batch; b++)
        pages += (problem_length(problem, TENSOR_K, b) + problem->page_rows - 1) / problem->page_rows;
    return pages;
}

int64_t problem_pages_of_sequence(const struct problem *problem) {
    return (problem->seq_k + problem->page_rows - 1) / problem->page_rows;
}

/* Pages are SCATTER apart and wrap around as often as needed: their number is no multiple of it. */
enum { SCATTER = 7 };

int64_t problem_pages(const struct problem *problem) {
    const int64_t used = pages_before(problem, problem->batch);
    return used + 1 + ((used + 1) % SCATTER == 0);
}

int64_t problem_page(const struct problem *problem, int64_t batch, int64_t number) {
    return (pages_before(problem, batch) + number) * SCATTER % problem_pages(problem);
}

static bool is_paged(const struct problem *problem, enum tensor tensor) {
    return of_keys(tensor) && problem->page_rows;
}

bool problem_has_cache_of_bytes(const struct problem *problem) {
    return problem->cache_e4m3 || problem->cache_int8;
}

bool problem_is_of_bytes(const struct problem *problem, enum tensor tensor) {
    return (problem->e4m3 && tensor != TENSOR_O) || (problem_has_cache_of_bytes(problem) && of_keys(tensor));
}

static int64_t element_bytes(const struct problem *problem, enum tensor tensor) {
    return problem_is_of_bytes(problem, tensor) ? 1 : 2;
}

float problem_cache_scale(const struct problem *problem, enum tensor tensor, int64_t KV_head) {
    return (float)problem->descale[tensor] * (1 + (float)(KV_head % 4) / 4) / (problem->cache_int8 ? INT8_ONE : 1);
}

tensor_strides problem_strides(const struct problem *problem, enum tensor tensor) {
    const int64_t rows = is_paged(problem, tensor) ? problem->page_rows : problem_rows(problem, tensor),
                  heads = problem_heads(problem, tensor), d_head = problem_d_head(problem, tensor);
    const int64_t step = 16 / element_bytes(problem, tensor);
    const int64_t gap = problem->layout == LAYOUT_PADDED ? step * (1 + (int64_t)tensor) : 0; /* 16 bytes and more */
    if (problem->layout == LAYOUT_BHSD)
        return (tensor_strides){.batch = heads * rows * d_head, .seq = d_head, .head = rows * d_head};
    const int64_t head = d_head + gap, seq = heads * head + gap;
    return (tensor_strides){.batch = rows * seq + gap, .seq = seq, .head = head};
}

int64_t problem_device_bytes(const struct problem *problem, enum tensor tensor) {
    const int64_t bytes = element_bytes(problem, tensor);
    if (problem->e4m3 && problem->layout != LAYOUT_PACKED) return bytes * problem_elements(problem, tensor);
    const tensor_strides strides = problem_strides(problem, tensor);
    const bool paged = is_paged(problem, tensor);
    if (problem->layout == LAYOUT_PACKED && !paged)
        return bytes * problem_rows_before(problem, tensor, problem->batch) * problem_heads(problem, tensor) *
               problem_d_head(problem, tensor);
    const int64_t samples = paged ? problem_pages(problem) : problem->batch;
    const int64_t rows = paged ? problem->page_rows : problem_rows(problem, tensor);
    return bytes * ((samples - 1) * strides.batch + (rows - 1) * strides.seq +
                    (problem_heads(problem, tensor) - 1) * strides.head + problem_d_head(problem, tensor));
}

struct key_span problem_seen_keys(const struct problem *problem, int64_t batch, int64_t row) {
    const int64_t keys = problem_length(problem, TENSOR_K, batch);
    const int64_t own = row + keys - problem_length(problem, TENSOR_Q, batch); /* the key of the row */
    const bool left = problem->windowed && problem->window_left >= 0;
    const bool right = problem->causal || (problem->windowed && problem->window_right >= 0);
    struct key_span seen = {0, keys};
    if (left && own - problem->window_left > 0) seen.first = own - problem->window_left;
    if (right && own + (problem->causal ? 0 : problem->window_right) + 1 < keys)
        seen.end = own + (problem->causal ? 0 : problem->window_right) + 1;
    if (seen.end < seen.first) seen.end = seen.first;
    return seen;
}

/* Values that a score may have, some of them far from it. */
double problem_sink(const struct problem *problem, int64_t head) {
    return problem->sinks ? (double)((head * 7 + (int64_t)problem->seed) % 11) - 5.5 : -INFINITY;
}

double problem_scale(const struct problem *problem) {
    return problem->scale > 0 ? (float)problem->scale : 1 / sqrt(problem->d_head);
}

int64_t problem_default_batch(int64_t seq) {
    return seq <= 4096 ? 16 : seq <= 8192 ? 8 : 4;
}

attention_args problem_args(const struct problem *problem) {
    return (attention_args){.Q_strides = problem_strides(problem, TENSOR_Q),
                            .seq_q = (int32_t)problem->seq_q,
                            .heads = (int32_t)problem->heads,
                            .batch = (int32_t)problem->batch,
                            .seq_k = (int32_t)problem->seq_k,
                            .K_strides = problem_strides(problem, TENSOR_K),
                            .V_strides = problem_strides(problem, TENSOR_V),
                            .O_strides = problem_strides(problem, TENSOR_O),
                            .KV_heads = (int32_t)problem->KV_heads,
                            .softmax_scale = (float)problem_scale(problem),
                            .causal = problem->causal};
}

/* The option of the problem that requires serving_args, as on the command line; NULL if there is none. */
static const char *serving_option(const struct problem *problem) {
    return problem->windowed      ? "--window"
           : problem->softcap > 0 ? "--softcap"
           : problem->sinks       ? "--sinks"
           : problem->page_rows   ? "--page-rows"
           : problem->split_keys  ? "--split-keys"
           : problem->block_mask  ? "--block-mask"
                                  : NULL;
}

static const char *served_option(const struct problem *problem) {
    return problem->Q_lengths                 ? "--seqlens-q"
           : problem->KV_lengths              ? "--seqlens-k"
           : problem->layout == LAYOUT_PACKED ? "--layout packed"
                                              : serving_option(problem);
}

/* Parts of a size are whole KV blocks. */
static enum status check_parts(const struct problem *problem, const struct kernel_config *config,
                               struct failure *failure) {
    if (problem->split_keys % config->B_c == 0) return STATUS_OK;
    return fail(failure, STATUS_USAGE, "--split-keys %" PRId64 ": must be a multiple of %d, the KV block size B_c",
                problem->split_keys, config->B_c);
}

/* attention/decode: lengths of keys, pages and parts of a size, and with the word ragged several lengths of queries. */
static enum status check_cache(const struct problem *problem, const struct kernel_config *config,
                               struct failure *failure) {
    char text[CONFIG_TEXT_SIZE];
    const bool ragged = config_has(config, RAGGED_QUERIES);
    const char *const of_lengths = problem->Q_lengths                 ? "--seqlens-q"
                                   : problem->layout == LAYOUT_PACKED ? "--layout packed"
                                                                      : NULL;
    const char *const others = problem->windowed     ? "--window"
                               : problem->sinks      ? "--sinks"
                               : problem->block_mask ? "--block-mask"
                                                     : NULL;
    const char *const lacks = !ragged && of_lengths ? of_lengths : others;
    if (lacks && lacks == of_lengths && problem_has_cache_of_bytes(problem))
        return fail(failure, STATUS_USAGE, "%s: config %s does not support it; use a config with the flag ragged",
                    lacks, config_format(config, text));
    if (lacks)
        return fail(failure, STATUS_USAGE, "%s: %s does not support it; use attention/wgmma", lacks, about_version());
    return check_parts(problem, config, failure);
}

/* attention/wgmma: pages with a config that has them, parts of a size and block masks with the flag extend. */
static enum status check_no_cache(const struct problem *problem, const struct kernel_config *config,
                                  struct failure *failure) {
    char text[CONFIG_TEXT_SIZE];
    if (problem->block_mask && (problem->page_rows || problem->split_keys))
        return fail(failure, STATUS_USAGE, "--block-mask: cannot be combined with %s; remove one of them",
                    problem->page_rows ? "--page-rows" : "--split-keys");
    if (problem->split_keys && !config_has(config, SPLITS_KEYS))
        return fail(
            failure, STATUS_USAGE,
            "--split-keys: config %s of %s does not support it; use attention/decode, or attention/wgmma with a "
            "config that has the flag extend",
            config_format(config, text), about_version());
    if (!config_takes(config, PAGED_KV, problem->page_rows > 0))
        return fail(failure, STATUS_USAGE, "--page-rows: config %s %s", config_format(config, text),
                    problem->page_rows ? "does not support it; use one with the flag pages"
                                       : "requires it; set the rows per page");
    if (problem->block_mask && !config_has(config, BIAS))
        return fail(failure, STATUS_USAGE, "--block-mask: config %s does not support it; use one with the flag bias",
                    config_format(config, text));
    return check_parts(problem, config, failure);
}

static enum status check_page_rows(int64_t rows, struct failure *failure) {
    if (!rows || (rows >= DECODE_PAGE_KEYS && !(rows & (rows - 1)))) return STATUS_OK;
    return fail(failure, STATUS_USAGE, "--page-rows %" PRId64 ": must be a power of two, %d or more", rows,
                DECODE_PAGE_KEYS);
}

static enum status check_lengths(const struct problem *problem, struct failure *failure) {
    const struct number_list *const lists[] = {problem->Q_lengths, problem->KV_lengths};
    for (int i = 0; i < 2; i++)
        if (lists[i] && lists[i]->count != problem->batch)
            return fail(failure, STATUS_USAGE,
                        "%s: has %d lengths for %" PRId64 " sequences; give one length per sequence",
                        i ? "--seqlens-k" : "--seqlens-q", lists[i]->count, problem->batch);
    if (problem->layout == LAYOUT_PACKED)
        for (int t = 0; t <= TENSOR_K; t++)
            if (!problem_rows_before(problem, (enum tensor)t, problem->batch))
                return fail(failure, STATUS_USAGE, "%s: every length is 0; at least one must be positive",
                            t == TENSOR_K && problem->KV_lengths != problem->Q_lengths ? "--seqlens-k" : "--seqlens-q");
    return STATUS_OK;
}

static enum status check_served(const struct problem *problem, const struct kernel_config *config,
                                struct failure *failure) {
    const char *const option = served_option(problem);
    char text[CONFIG_TEXT_SIZE];
    if (option && !config_has(config, SERVES))
        return fail(
            failure, STATUS_USAGE,
            "%s: config %s of %s does not support it; use attention/wgmma with a config that has the flag serve",
            option, config_format(config, text), about_version());
    if (problem->softcap > 0 && !config_takes(config, CAP, true))
        return fail(failure, STATUS_USAGE, "--softcap %g: config %s does not support it; use one with the flag cap",
                    problem->softcap, config_format(config, text));
    if (config_has(config, CAP) && !(problem->softcap > 0))
        return fail(failure, STATUS_USAGE, "--softcap: config %s requires it; set a positive value",
                    config_format(config, text));
    enum status status = config_has(config, SERVES) && config_has(config, SHARES_KEYS)
                             ? check_cache(problem, config, failure)
                             : check_no_cache(problem, config, failure);
    if (status || (status = check_page_rows(problem->page_rows, failure))) return status;
    return check_lengths(problem, failure);
}

static enum status check_sizes(const struct problem *problem, struct failure *failure) {
    static const int64_t max_grid = 65535, max_elements = (int64_t)1 << 36;
    const struct {
        const char *option;
        int64_t value, most;
    } sizes[] = {{"--batch", problem->batch, max_grid},
                 {"--heads", problem->heads, max_grid},
                 {"--kv-heads", problem->KV_heads, max_grid},
                 {problem->seq_q == problem->seq_k ? "--seq" : "--seq-q", problem->seq_q, MAX_SIZE},
                 {"--seq-k", problem->seq_k, MAX_SIZE}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].value < 1)
            return fail(failure, STATUS_USAGE, "%s %" PRId64 ": must be positive", sizes[i].option, sizes[i].value);
        if (sizes[i].value > sizes[i].most)
            return fail(failure, STATUS_USAGE, "%s %" PRId64 ": must be at most %" PRId64, sizes[i].option,
                        sizes[i].value, sizes[i].most);
    }
    if (problem->heads % problem->KV_heads)
        return fail(failure, STATUS_USAGE,
                    "--kv-heads %" PRId64 ": must divide --heads, %" PRId64
                    ", because the same number of heads shares each KV head",
                    problem->KV_heads, problem->heads);
    for (int t = 0; t <= TENSOR_K; t++) { /* Q as O, K as V */
        const int64_t heads = problem_heads(problem, (enum tensor)t), rows = problem_rows(problem, (enum tensor)t);
        if (problem->batch * heads > max_elements / problem->d_head / rows)
            return fail(failure, STATUS_USAGE,
                        "batch %" PRId64 " x heads %" PRId64 " x seq %" PRId64
                        " x d_head %d: the product must be at most %" PRId64 " elements",
                        problem->batch, heads, rows, problem->d_head, max_elements);
    }
    return STATUS_OK;
}

/* The ability that the configuration lacks for the problem, with the first version that has it. */
static enum status check_abilities(const struct problem *problem, const struct kernel_config *config,
                                   struct failure *failure) {
    char KV_heads[40], seq_k[60], scale[40], layout[40];
    snprintf(KV_heads, sizeof KV_heads, "--kv-heads %" PRId64, problem->KV_heads);
    snprintf(seq_k, sizeof seq_k, "--seq-q %" PRId64 " --seq-k %" PRId64, problem->seq_q, problem->seq_k);
    snprintf(scale, sizeof scale, "--scale %g", problem->scale);
    snprintf(layout, sizeof layout, "--layout %s", layout_name(problem->layout));
    const struct {
        enum ability ability;
        bool asked;
        const char *option;
    } rules[] = {{ABILITY_CAUSAL, problem->causal, "--causal"},
                 {ABILITY_GROUPED, problem->KV_heads != problem->heads, KV_heads},
                 {ABILITY_KEYS, problem->seq_q != problem->seq_k, seq_k},
                 {ABILITY_SCALE, problem->scale > 0, scale},
                 {ABILITY_LSE, problem->lse, "--lse"},
                 {ABILITY_STRIDES, problem->layout != LAYOUT_BSHD && problem->layout != LAYOUT_PACKED, layout}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].asked && !config_able(config, rules[i].ability))
            return fail_ability(failure, rules[i].ability, about_version(), about_exact(), rules[i].option);
    return STATUS_OK;
}

/* The ability that the kernels of a backward pass lack. */
static enum status check_backward(const struct problem *problem, const struct kernel_config *config,
                                  struct failure *failure) {
    const char *const served = served_option(problem);
    char text[CONFIG_TEXT_SIZE];
    const struct {
        bool asked;
        const char *sentence;
    } rules[] = {{problem->lse, "--lse: is an input of the backward pass, not a result; remove it"},
                 {problem->layout != LAYOUT_BSHD && problem->layout != LAYOUT_PACKED,
                  "--layout: must be bshd or packed for the backward pass"},
                 {problem->seq_q != problem->seq_k && !config->backward.any_rows,
                  "--seq-q and --seq-k: must be equal without the flag any_length"},
                 {problem->causal && !config_has(config, CAUSAL), "--causal: needs a config with the flag causal"},
                 {problem->KV_heads != problem->heads && !config_has(config, GROUPED_HEADS),
                  "--kv-heads: needs a config with the flag grouped"}};
    if (problem->page_rows || problem->split_keys || problem->block_mask)
        return fail(failure, STATUS_USAGE, "%s: the backward pass does not support it; remove it",
                    problem->page_rows    ? "--page-rows"
                    : problem->split_keys ? "--split-keys"
                                          : "--block-mask");
    if (served && !config_has(config, SERVES))
        return fail(failure, STATUS_USAGE, "%s: needs a config of attention/backward with the flag serve, not %s of %s",
                    served, config_format(config, text), about_version());
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].asked)
            return fail(failure, STATUS_USAGE, "%s; this is %s of %s", rules[i].sentence, config_format(config, text),
                        about_version());
    const int block = config->B_r > config->B_c ? config->B_r : config->B_c;
    const int64_t below = problem->seq_q / block * block;
    if (config->backward.any_rows) return check_lengths(problem, failure);
    if (problem->seq_q == below) return STATUS_OK;
    return fail(failure, STATUS_USAGE,
                "--seq %" PRId64 ": must be a multiple of %d, the larger block of %s; use %" PRId64 " or %" PRId64,
                problem->seq_q, block, config_format(config, text), below ? below : block,
                below ? below + block : 2 * block);
}

/* Query rows or keys that are no whole blocks. */
static enum status check_whole_blocks(const struct kernel_config *config, const char *option, int64_t rows, int block,
                                      struct failure *failure) {
    char text[CONFIG_TEXT_SIZE];
    const int64_t below = rows / block * block;
    if (rows == below || config_has(config, ANY_LENGTH)) return STATUS_OK;
    return fail(failure, STATUS_USAGE,
                "%s %" PRId64 ": must be a multiple of %d, a block of %s; use %" PRId64 " or %" PRId64, option, rows,
                block, config_format(config, text), below ? below : block, below ? below + block : 2 * block);
}

/* The ability that kernels of e4m3 lack. */
static enum status check_fp8(const struct problem *problem, const struct kernel_config *config,
                             struct failure *failure) {
    const char *const served = served_option(problem);
    char text[CONFIG_TEXT_SIZE];
    const struct {
        bool asked;
        const char *sentence;
    } rules[] = {{problem->layout != LAYOUT_BSHD && problem->layout != LAYOUT_PACKED,
                  "--layout: must be bshd or packed for fp8 kernels"},
                 {problem->KV_heads != problem->heads && !config_has(config, GROUPED_HEADS),
                  "--kv-heads: needs a config with the flag grouped"},
                 {problem->causal && !config_has(config, CAUSAL), "--causal: needs a config with the flag causal"}};
    if (serving_option(problem))
        return fail(failure, STATUS_USAGE, "%s: fp8 kernels do not support it; remove it", serving_option(problem));
    if (served && !config_has(config, SERVES))
        return fail(failure, STATUS_USAGE, "%s: needs a config with the flag serve, not %s of %s", served,
                    config_format(config, text), about_version());
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].asked)
            return fail(failure, STATUS_USAGE, "%s; this is %s of %s", rules[i].sentence, config_format(config, text),
                        about_version());
    const char *const of_rows = problem->seq_q == problem->seq_k ? "--seq" : "--seq-q";
    enum status status = check_whole_blocks(config, of_rows, problem->seq_q, config->B_r, failure);
    if (!status) status = check_lengths(problem, failure);
    return status ? status : check_whole_blocks(config, "--seq-k", problem->seq_k, config->B_c, failure);
}

static enum status check_no_descale(const struct problem *problem, struct failure *failure) {
    static const char *const options[N_INPUTS] = {"--descale-q", "--descale-k", "--descale-v"};
    for (int t = 0; t < N_INPUTS; t++)
        if (problem->descale[t] != 1 && !problem_is_of_bytes(problem, (enum tensor)t))
            return fail(failure, STATUS_USAGE, "%s %g: %s does not read e4m3%s", options[t], problem->descale[t],
                        about_version(),
                        problem_has_cache_of_bytes(problem) ? " queries"
                                                            : "; use attention/fp8 or a version of kernels/fp8/");
    return STATUS_OK;
}

enum status problem_check(const struct problem *problem, const struct kernel_config *config, struct failure *failure) {
    const int most_V = config_d_head_v(config), d_head_v = problem_d_head(problem, TENSOR_V);
    const char *const rule = config_has(config, EXTENDED) ? "a multiple of 8 up to " : "";
    enum status status;
    if (!config_fits(config, problem->d_head, most_V))
        return fail(failure, STATUS_USAGE, "--d-head %d: must be %s%d, the head size of the config", problem->d_head,
                    rule, config->d_head);
    if (!config_fits(config, problem->d_head, d_head_v))
        return fail(failure, STATUS_USAGE, "--d-head-v %d: must be %s%d, the rows of V of the config%s", d_head_v, rule,
                    most_V, *rule ? "" : "; use attention/wgmma or attention/mma_sync with the flag extend");
    if ((status = check_sizes(problem, failure))) return status;
    if (problem->e4m3) return check_fp8(problem, config, failure);
    if ((status = check_no_descale(problem, failure))) return status;
    if (problem->backward) return check_backward(problem, config, failure);
    if ((status = check_abilities(problem, config, failure)) || (status = check_served(problem, config, failure)))
        return status;
    return check_blocks(config, about_exact(), "--seq", problem->seq_q, failure);
}
