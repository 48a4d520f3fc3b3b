#include "library/serving.h"

#include "runtime/config.h"
#include "runtime/launch.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- arrays ---- */

static const struct {
    const char *name, *bit;
    size_t in_tensors, in_args;
} ARRAYS[N_ARRAYS] = {
    {"cu_seqlens_q", "FL_CU_SEQLENS_Q", offsetof(fl_tensors, cu_seqlens_q), offsetof(serving_args, Q_offsets)},
    {"cu_seqlens_k", "FL_CU_SEQLENS_K", offsetof(fl_tensors, cu_seqlens_k), offsetof(serving_args, KV_offsets)},
    {"seqlens_q", "FL_SEQLENS_Q", offsetof(fl_tensors, seqlens_q), offsetof(serving_args, Q_lengths)},
    {"seqlens_k", "FL_SEQLENS_K", offsetof(fl_tensors, seqlens_k), offsetof(serving_args, KV_lengths)},
    {"block_table", "FL_BLOCK_TABLE", offsetof(fl_tensors, block_table), offsetof(serving_args, pages)},
    {"sinks", "FL_SINKS", offsetof(fl_tensors, sinks), offsetof(serving_args, sinks)},
    {"k_scales", "FL_K_SCALES", offsetof(fl_tensors, k_scales), offsetof(serving_args, K_scales)},
    {"v_scales", "FL_V_SCALES", offsetof(fl_tensors, v_scales), offsetof(serving_args, V_scales)},
    {"q_scales", "FL_Q_SCALES", offsetof(fl_tensors, q_scales), offsetof(serving_args, Q_scales)},
    {"o_scales", "FL_O_SCALES", offsetof(fl_tensors, o_scales), offsetof(serving_args, O_scales)},
    {"bias", "FL_BIAS", offsetof(fl_tensors, bias), offsetof(extended_args, bias)},
    {"alibi_slopes", "FL_ALIBI_SLOPES", offsetof(fl_tensors, alibi_slopes), offsetof(extended_args, alibi_slopes)},
    {"max_logits", "FL_MAX_LOGITS", offsetof(fl_tensors, max_logits), offsetof(extended_args, max_logits)},
    {"rng_state", "FL_RNG_STATE", offsetof(fl_tensors, rng_state), offsetof(extended_args, rng_state)},
    {"block_mask", "FL_BLOCK_MASK", offsetof(fl_tensors, block_mask), offsetof(extended_args, block_mask)},
};

const char *serving_array_name(int i) {
    return ARRAYS[i].name;
}

const void *serving_array(const fl_tensors *tensors, int i) {
    const void *address;
    memcpy(&address, (const char *)tensors + ARRAYS[i].in_tensors, sizeof address);
    return address;
}

/* Factors of K, and of V. */
static int64_t key_scales(const fl_problem *problem) {
    const int64_t keys = problem->scale_keys, blocks = keys ? (problem->seq_k + keys - 1) / keys : 1;
    return problem->kv_heads * (keys ? problem->batch * blocks : 1);
}

/* Entries that are read of a row of the block table, which may be a slice of a wider table. */
static int64_t pages_in_use(const fl_problem *problem) {
    return problem->page_rows > 0 ? (problem->seq_k + (int64_t)problem->page_rows - 1) / problem->page_rows : 0;
}

/* Bytes of an element of the bias, and elements up to the last. */
static int64_t bias_bytes(const fl_problem *problem) {
    return problem->bias_dtype == FL_BIAS_BYTES ? 1 : problem->bias_dtype == FL_BIAS_DTYPE ? 2 : 4;
}
static int64_t bias_span(const fl_problem *problem) {
    const fl_strides *const strides = &problem->bias;
    return (problem->batch - 1) * strides->batch + (problem->heads - 1) * strides->head +
           (problem->seq_q - 1) * strides->seq + problem->seq_k;
}

/* Blocks of a row, and blocks up to the last. */
static int64_t mask_columns(const fl_problem *problem) {
    return (problem->seq_k + (int64_t)problem->mask_keys - 1) / problem->mask_keys;
}
static int64_t mask_span(const fl_problem *problem) {
    const fl_strides *const strides = &problem->block_mask;
    const int64_t rows = (problem->seq_q + (int64_t)problem->mask_queries - 1) / problem->mask_queries;
    return (problem->batch - 1) * strides->batch + (problem->heads - 1) * strides->head + (rows - 1) * strides->seq +
           mask_columns(problem);
}

int64_t serving_array_bytes(const fl_problem *problem, int i) {
    enum { BIAS = 10, MASK = 14 };
    if (i == MASK) return problem->arrays & FL_BLOCK_MASK ? mask_span(problem) : 0;
    if (i == BIAS) return problem->arrays & FL_BIAS ? bias_bytes(problem) * bias_span(problem) : 0;
    const int64_t batch = problem->batch, of_keys = key_scales(problem), heads = problem->heads,
                  pages = batch ? (batch - 1) * problem->pages_of_sequence + pages_in_use(problem) : 0,
                  slopes = heads + (batch ? batch - 1 : 0) * problem->alibi_batch;
    enum { WORDS_OF_STATE = 4 };
    const int64_t counts[N_ARRAYS] = {batch + 1, batch + 1, batch, batch, pages,  heads,         of_keys,
                                      of_keys,   heads,     heads, 0,     slopes, batch * heads, WORDS_OF_STATE};
    return problem->arrays >> i & 1 ? 4 * counts[i] : 0;
}

void serving_set_array(fl_tensors *tensors, int i, uint64_t address) {
    const void *const pointer = (const void *)(uintptr_t)address;
    memcpy((char *)tensors + ARRAYS[i].in_tensors, &pointer, sizeof pointer);
}

void serving_pass_arrays(const fl_tensors *tensors, extended_args *args) {
    for (int i = 0; i < N_ARRAYS; i++)
        memcpy((char *)args + ARRAYS[i].in_args, (const char *)tensors + ARRAYS[i].in_tensors, sizeof(void *));
}

/* ---- a problem ---- */

bool serving_all_e4m3(const fl_problem *problem) {
    return problem->q_dtype == FL_E4M3;
}

/* K and V are e4m3 or int8, and Q is not. */
static bool has_bytes(const fl_problem *problem) {
    return problem->kv_dtype && !serving_all_e4m3(problem);
}

int32_t serving_cache_dtype(const struct kernel_config *config) {
    return config_has(config, E4M3_CACHE) ? FL_E4M3 : config_has(config, INT8_CACHE) ? FL_INT8 : 0;
}

enum { OF_SEVERAL_NUMBERS = FL_CU_SEQLENS_Q | FL_CU_SEQLENS_K | FL_SEQLENS_Q };

bool serving_ragged_bytes(const fl_problem *problem) {
    return has_bytes(problem) && problem->arrays & OF_SEVERAL_NUMBERS;
}

/* Scales and types of an e4m3 problem. */
enum { SCALES = FL_K_SCALES | FL_V_SCALES | FL_Q_SCALES | FL_O_SCALES };

const char *serving_asked(const fl_problem *problem) {
    if (has_bytes(problem)) return "kv_dtype";
    for (int i = 0; i < N_ARRAYS; i++)
        if (problem->arrays & ~(uint32_t)SCALES & 1u << i) return ARRAYS[i].name;
    return problem->windowed      ? "window"
           : problem->softcap > 0 ? "softcap"
           : problem->split_keys  ? "split_keys"
           : problem->scale_keys  ? "scale_keys"
           : problem->o_dtype     ? "o_dtype"
                                  : serving_extended(problem);
}

const char *serving_extended(const fl_problem *problem) {
    return problem->arrays & FL_BIAS           ? "bias"
           : problem->arrays & FL_ALIBI_SLOPES ? "alibi_slopes"
           : problem->dropout_p > 0            ? "dropout_p"
           : problem->arrays & FL_MAX_LOGITS   ? "max_logits"
           : problem->arrays & FL_BLOCK_MASK   ? "block_mask"
                                               : NULL;
}

/* Numbers that are read where something else is asked for, and else are 0. */
static fl_status check_numbers(const fl_problem *problem, struct failure *failure) {
    static const int64_t MOST_STRIDE = (int64_t)1 << 36;
    const uint32_t arrays = problem->arrays;
    const struct {
        const char *name, *with;
        bool read;
        int64_t value, least, most;
    } numbers[] = {
        {"total_q", "FL_CU_SEQLENS_Q in arrays", arrays & FL_CU_SEQLENS_Q, problem->total_q, 0, 1 << 30},
        {"total_k", "FL_CU_SEQLENS_K in arrays", arrays & FL_CU_SEQLENS_K, problem->total_k, 1, 1 << 30},
        {"n_pages", "FL_BLOCK_TABLE in arrays", arrays & FL_BLOCK_TABLE, problem->n_pages, 1, 1 << 30},
        {"page_rows", "FL_BLOCK_TABLE in arrays", arrays & FL_BLOCK_TABLE, problem->page_rows, DECODE_PAGE_KEYS,
         1 << 20},
        {"pages_of_sequence", "FL_BLOCK_TABLE in arrays", arrays & FL_BLOCK_TABLE, problem->pages_of_sequence, 1,
         1 << 26},
        {"windowed", "", true, problem->windowed, 0, 1},
        {"window_left", "windowed", problem->windowed, problem->window_left, -1, 1 << 30},
        {"window_right", "windowed", problem->windowed, problem->window_right, -1, 1 << 30},
        {"split_keys", "", true, problem->split_keys, 0, 1 << 30},
        {"sums", "q_dtype FL_E4M3", serving_all_e4m3(problem), problem->sums, 0, FL_SUMS_ACCURATE},
        {"scale_keys", "q_dtype FL_E4M3", serving_all_e4m3(problem), problem->scale_keys, 0, 1 << 30},
        {"bias_dtype", "FL_BIAS in arrays", arrays & FL_BIAS, problem->bias_dtype, FL_BIAS_BYTES, FL_BIAS_FLOAT},
        {"bias.batch", "FL_BIAS in arrays", arrays & FL_BIAS, problem->bias.batch, 0, MOST_STRIDE},
        {"bias.seq", "FL_BIAS in arrays", arrays & FL_BIAS, problem->bias.seq, 0, MOST_STRIDE},
        {"bias.head", "FL_BIAS in arrays", arrays & FL_BIAS, problem->bias.head, 0, MOST_STRIDE},
        {"alibi_batch", "FL_ALIBI_SLOPES in arrays", arrays & FL_ALIBI_SLOPES, problem->alibi_batch, 0, INT32_MAX},
        {"rng_seed", "dropout_p", problem->dropout_p > 0, problem->rng_seed, INT64_MIN, INT64_MAX},
        {"rng_offset", "dropout_p", problem->dropout_p > 0, problem->rng_offset, INT64_MIN, INT64_MAX},
        {"mask_queries", "FL_BLOCK_MASK in arrays", arrays & FL_BLOCK_MASK, problem->mask_queries, 128, 1 << 30},
        {"mask_keys", "FL_BLOCK_MASK in arrays", arrays & FL_BLOCK_MASK, problem->mask_keys, 128, 1 << 30},
        {"block_mask.batch", "FL_BLOCK_MASK in arrays", arrays & FL_BLOCK_MASK, problem->block_mask.batch, 0,
         MOST_STRIDE},
        {"block_mask.seq", "FL_BLOCK_MASK in arrays", arrays & FL_BLOCK_MASK, problem->block_mask.seq, 0, MOST_STRIDE},
        {"block_mask.head", "FL_BLOCK_MASK in arrays", arrays & FL_BLOCK_MASK, problem->block_mask.head, 0,
         MOST_STRIDE},
        {"seq_k", "", (arrays & ~(uint32_t)SCALES) != 0, problem->seq_k, 1, 1 << 30}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (!numbers[i].read && numbers[i].value && *numbers[i].with)
            return refuse(failure, FL_INVALID, "%s %" PRId64 ": must be 0 without %s", numbers[i].name,
                          numbers[i].value, numbers[i].with);
        if (numbers[i].read && (numbers[i].value < numbers[i].least || numbers[i].value > numbers[i].most))
            return refuse(failure, FL_INVALID, "%s %" PRId64 ": must be from %" PRId64 " to %" PRId64 "%s%s",
                          numbers[i].name, numbers[i].value, numbers[i].least, numbers[i].most,
                          *numbers[i].with ? " with " : "", numbers[i].with);
    }
    if (problem->alibi_batch && problem->alibi_batch != problem->heads)
        return refuse(failure, FL_INVALID, "alibi_batch %d: must be 0, or %d, heads", problem->alibi_batch,
                      problem->heads);
    return FL_OK;
}

static fl_status check_pages(const fl_problem *problem, struct failure *failure) {
    const int64_t rows = problem->page_rows, keys = rows * problem->pages_of_sequence;
    if (problem->arrays & FL_CU_SEQLENS_K)
        return refuse(
            failure, FL_INVALID,
            "block_table: cannot be combined with cu_seqlens_k; use seqlens_k for the lengths of a paged cache");
    if (rows & (rows - 1))
        return refuse(failure, FL_INVALID, "page_rows %" PRId64 ": must be a power of two, %d or more", rows,
                      DECODE_PAGE_KEYS);
    if (problem->seq_k > keys)
        return refuse(failure, FL_INVALID,
                      "seq_k %d: must be at most %" PRId64 ", pages_of_sequence %d times page_rows %" PRId64,
                      problem->seq_k, keys, problem->pages_of_sequence, rows);
    return FL_OK;
}

static fl_status check_scales(const fl_problem *problem, struct failure *failure) {
    enum { LEAST_KEYS = 32 };
    if (problem->kv_dtype != 0 && problem->kv_dtype != FL_E4M3 && problem->kv_dtype != FL_INT8)
        return refuse(failure, FL_INVALID,
                      "kv_dtype %d: must be FL_E4M3, %d, FL_INT8, %d, or 0 if K and V have type dtype",
                      problem->kv_dtype, FL_E4M3, FL_INT8);
    if (problem->arrays & (FL_K_SCALES | FL_V_SCALES) && !problem->kv_dtype)
        return refuse(failure, FL_INVALID,
                      "%s: requires kv_dtype FL_E4M3 or FL_INT8; set kv_dtype or remove it from arrays",
                      problem->arrays & FL_K_SCALES ? "k_scales" : "v_scales");
    if (problem->q_dtype != 0 && (problem->q_dtype != FL_E4M3 || problem->kv_dtype != FL_E4M3))
        return refuse(failure, FL_INVALID,
                      "q_dtype %d: must be FL_E4M3, %d, and kv_dtype too, or 0 if Q has type dtype", problem->q_dtype,
                      FL_E4M3);
    if (problem->arrays & FL_Q_SCALES && !problem->q_dtype)
        return refuse(failure, FL_INVALID, "q_scales: requires q_dtype FL_E4M3; set q_dtype or remove it from arrays");
    if (problem->o_dtype != 0 && (problem->o_dtype != FL_E4M3 || !problem->q_dtype))
        return refuse(failure, FL_INVALID, "o_dtype %d: must be FL_E4M3, %d, and q_dtype too, or 0 if O has type dtype",
                      problem->o_dtype, FL_E4M3);
    if (problem->arrays & FL_O_SCALES && !problem->o_dtype)
        return refuse(failure, FL_INVALID, "o_scales: requires o_dtype FL_E4M3; set o_dtype or remove it from arrays");
    if (problem->scale_keys && (problem->scale_keys < LEAST_KEYS || problem->scale_keys & (problem->scale_keys - 1)))
        return refuse(failure, FL_INVALID, "scale_keys %d: must be 0 or a power of two, %d or more",
                      problem->scale_keys, LEAST_KEYS);
    return FL_OK;
}

/* The feature that only attention/wgmma supports, or only attention/decode; NULL if the problem uses none. */
static const char *asked_of_wgmma(const fl_problem *problem) {
    const uint32_t arrays = problem->arrays & ~(uint32_t)(has_bytes(problem) ? OF_SEVERAL_NUMBERS : 0);
    return arrays & FL_CU_SEQLENS_Q   ? "cu_seqlens_q"
           : arrays & FL_CU_SEQLENS_K ? "cu_seqlens_k"
           : arrays & FL_SEQLENS_Q    ? "seqlens_q"
           : arrays & FL_SINKS        ? "sinks"
           : problem->windowed        ? "window"
           : problem->softcap > 0     ? "softcap"
                                      : serving_extended(problem);
}
/* attention/wgmma does not divide the keys of a row if split_keys is given, so it takes that, too, and without pages
 * from some rows on it is faster. The choice between the two must not depend on the batch. */
static const char *asked_of_decode(const fl_problem *problem) {
    enum { FEW_ROWS = 128 };
    const int64_t rows = (int64_t)problem->seq_q * (problem->heads / problem->kv_heads);
    if (has_bytes(problem)) return "kv_dtype";
    const bool sized = (problem->d_head == 64 || problem->d_head == 128) && problem->d_head_v == problem->d_head;
    if (!problem->split_keys || !sized || asked_of_wgmma(problem)) return NULL;
    return problem->arrays & FL_BLOCK_TABLE ? "block_table" : rows <= FEW_ROWS ? "split_keys" : NULL;
}

/* The feature that kernels of e4m3 do not support; they support lengths and scales. */
static const char *unsupported_option(const fl_problem *problem) {
    return problem->arrays & FL_BLOCK_TABLE ? "block_table"
           : problem->arrays & FL_SINKS     ? "sinks"
           : problem->windowed              ? "window"
           : problem->softcap > 0           ? "softcap"
           : problem->split_keys            ? "split_keys"
                                            : serving_extended(problem);
}

/* The feature that no kernel supports. */
static fl_status check_together(const fl_problem *problem, struct failure *failure) {
    const char *const wgmmas = asked_of_wgmma(problem), *const decodes = asked_of_decode(problem);
    if (serving_all_e4m3(problem) && unsupported_option(problem))
        return refuse(failure, FL_UNSUPPORTED,
                      "%s: cannot be combined with q_dtype; attention/fp8 and attention/fp8_mma_sync support only "
                      "lengths and scales",
                      unsupported_option(problem));
    if (wgmmas && decodes)
        return refuse(failure, FL_UNSUPPORTED,
                      "%s: cannot be combined with %s; attention/wgmma supports the first, attention/decode the second",
                      wgmmas, decodes);
    if (problem->kv_dtype && problem->d_head_v != problem->d_head)
        return refuse(failure, FL_UNSUPPORTED, "d_head_v %d: must be d_head, %d, with kv_dtype", problem->d_head_v,
                      problem->d_head);
    if (has_bytes(problem) && problem->d_head != 128)
        return refuse(failure, FL_UNSUPPORTED, "d_head %d: must be 128 for a cache of e4m3 or int8", problem->d_head);
    return FL_OK;
}

fl_status serving_check(const fl_problem *problem, struct failure *failure) {
    enum { PART = 128 };
    if (problem->arrays >> N_ARRAYS)
        return refuse(failure, FL_INVALID, "arrays 0x%x: must be a combination of the %d bits of fl_array",
                      problem->arrays, N_ARRAYS);
    fl_status status = check_numbers(problem, failure);
    if (status || (status = check_scales(problem, failure))) return status;
    if (!(problem->softcap >= 0) || isinf(problem->softcap))
        return refuse(failure, FL_INVALID, "softcap %g: must be positive, or 0 to disable it",
                      (double)problem->softcap);
    if (!(problem->dropout_p >= 0 && problem->dropout_p < 1))
        return refuse(failure, FL_INVALID, "dropout_p %g: must be at least 0 and less than 1",
                      (double)problem->dropout_p);
    if (problem->arrays & FL_RNG_STATE && problem->dropout_p == 0)
        return refuse(failure, FL_INVALID, "rng_state: requires dropout_p; set it or remove FL_RNG_STATE from arrays");
    if (problem->arrays & FL_BLOCK_MASK &&
        (problem->mask_queries & (problem->mask_queries - 1) || problem->mask_keys & (problem->mask_keys - 1)))
        return refuse(failure, FL_INVALID, "mask_queries %d, mask_keys %d: must be powers of two, 128 or more",
                      problem->mask_queries, problem->mask_keys);
    if (problem->arrays & FL_BLOCK_MASK && problem->arrays & FL_BLOCK_TABLE)
        return refuse(failure, FL_UNSUPPORTED,
                      "block_mask: cannot be combined with block_table; pass keys without pages");
    if (problem->split_keys % PART)
        return refuse(failure, FL_INVALID, "split_keys %d: must be a multiple of %d", problem->split_keys, PART);
    status = problem->arrays & FL_BLOCK_TABLE ? check_pages(problem, failure) : FL_OK;
    return status ? status : check_together(problem, failure);
}

static serving_args lengths_of_problem(const fl_problem *problem, attention_args attention) {
    serving_args args = serving_of_one_length(attention);
    args.Q_rows = problem->total_q;
    args.KV_rows = problem->total_k;
    args.n_pages = problem->n_pages;
    args.page_rows = problem->page_rows;
    args.pages_of_sequence = problem->pages_of_sequence;
    if (problem->windowed) {
        args.window_left = problem->window_left;
        args.window_right = problem->window_right;
    }
    args.softcap = problem->softcap;
    args.d_head = problem->d_head;
    args.split_keys = problem->split_keys;
    args.scale_keys = problem->scale_keys;
    args.O_e4m3 = problem->o_dtype == FL_E4M3;
    return args;
}

static int32_t log2_of(int32_t number) {
    int32_t shift = 0;
    while (number >> shift > 1) shift++;
    return shift;
}

extended_args serving_of_problem(const fl_problem *problem, attention_args attention) {
    return (extended_args){
        .serving = lengths_of_problem(problem, attention),
        .bias_strides = {problem->bias.batch, problem->bias.seq, problem->bias.head},
        .alibi_batch_stride = problem->alibi_batch,
        .bias_type = problem->bias_dtype,
        .d_head_v = problem->d_head_v,
        .rng_seed = problem->rng_seed,
        .rng_offset = problem->rng_offset,
        .keep_from = dropout_keep_from((double)problem->dropout_p),
        .block_mask_strides = {problem->block_mask.batch, problem->block_mask.seq, problem->block_mask.head},
        .mask_query_shift = log2_of(problem->mask_queries),
        .mask_key_shift = log2_of(problem->mask_keys),
        .dropout_scale = (float)(1 / (1 - (double)problem->dropout_p))};
}

/* ---- what arrays of the host hold ---- */

/* They begin at 0 or later, do not decrease, and end within the tensor; no sequence has more rows than `most`. */
static fl_status check_offsets(const char *name, const int32_t *offsets, int32_t batch, int32_t total, int32_t most,
                               const char *seq, struct failure *failure) {
    if (offsets[0] < 0) return refuse(failure, FL_INVALID, "%s[0] %d: must be 0 or more", name, offsets[0]);
    for (int32_t b = 0; b < batch; b++) {
        if (offsets[b + 1] < offsets[b])
            return refuse(failure, FL_INVALID, "%s[%d] %d: must be at least %d, the offset before it", name, b + 1,
                          offsets[b + 1], offsets[b]);
        if (offsets[b + 1] - offsets[b] > most)
            return refuse(failure, FL_INVALID, "%s: sequence %d has %d rows, but %s is %d; raise it", name, b,
                          offsets[b + 1] - offsets[b], seq, most);
    }
    if (offsets[batch] > total)
        return refuse(failure, FL_INVALID, "%s[%d] %d: must be at most %d, the number of rows of the tensor", name,
                      batch, offsets[batch], total);
    return FL_OK;
}

static fl_status check_lengths(const char *name, const int32_t *lengths, const int32_t *offsets, int32_t batch,
                               int32_t most, struct failure *failure) {
    for (int32_t b = 0; b < batch; b++) {
        const int32_t rows = offsets ? offsets[b + 1] - offsets[b] : most;
        if (lengths[b] < 0 || lengths[b] > rows)
            return refuse(failure, FL_INVALID, "%s[%d] %d: must be from 0 to %d, the number of rows of the sequence",
                          name, b, lengths[b], rows);
    }
    return FL_OK;
}

/* Number of the pages in use. */
static fl_status check_table(const fl_problem *problem, const fl_tensors *tensors, struct failure *failure) {
    const int32_t *const lengths = tensors->seqlens_k;
    for (int32_t b = 0; b < problem->batch; b++) {
        const int32_t keys = lengths ? lengths[b] : problem->seq_k;
        const int32_t *const row = tensors->block_table + (int64_t)b * problem->pages_of_sequence;
        for (int32_t i = 0; (int64_t)i * problem->page_rows < keys; i++)
            if (row[i] < 0 || row[i] >= problem->n_pages)
                return refuse(failure, FL_INVALID,
                              "block_table[%d][%d] %d: must be from 0 to %d, the last page of the cache", b, i, row[i],
                              problem->n_pages - 1);
    }
    return FL_OK;
}

static fl_status check_scale_values(const char *name, const float *scales, int64_t count, struct failure *failure) {
    for (int64_t i = 0; scales && i < count; i++)
        if (!(scales[i] > 0) || isinf(scales[i]))
            return refuse(failure, FL_INVALID, "%s[%" PRId64 "] %g: must be positive and finite", name, i,
                          (double)scales[i]);
    return FL_OK;
}

static fl_status check_contents(const fl_problem *problem, const fl_tensors *t, struct failure *failure) {
    const int32_t batch = problem->batch;
    fl_status status = FL_OK;
    if (t->cu_seqlens_q)
        status =
            check_offsets("cu_seqlens_q", t->cu_seqlens_q, batch, problem->total_q, problem->seq_q, "seq_q", failure);
    if (!status && t->cu_seqlens_k)
        status =
            check_offsets("cu_seqlens_k", t->cu_seqlens_k, batch, problem->total_k, problem->seq_k, "seq_k", failure);
    if (!status && t->seqlens_q)
        status = check_lengths("seqlens_q", t->seqlens_q, t->cu_seqlens_q, batch, problem->seq_q, failure);
    if (!status && t->seqlens_k)
        status = check_lengths("seqlens_k", t->seqlens_k, t->cu_seqlens_k, batch, problem->seq_k, failure);
    if (!status) status = check_scale_values("k_scales", t->k_scales, key_scales(problem), failure);
    if (!status) status = check_scale_values("v_scales", t->v_scales, key_scales(problem), failure);
    if (!status) status = check_scale_values("q_scales", t->q_scales, problem->heads, failure);
    if (!status) status = check_scale_values("o_scales", t->o_scales, problem->heads, failure);
    return !status && t->block_table ? check_table(problem, t, failure) : status;
}

fl_status serving_check_arrays(const fl_problem *problem, const fl_tensors *tensors, struct failure *failure) {
    for (int i = 0; i < N_ARRAYS; i++) {
        const void *const address = serving_array(tensors, i);
        const bool named = problem->arrays >> i & 1;
        if (named != (address != NULL))
            return refuse(failure, FL_INVALID, "%s %p: must be %s, as problem.arrays %s %s", ARRAYS[i].name, address,
                          named ? "an address" : "NULL", named ? "has" : "lacks", ARRAYS[i].bit);
        const int unit = (int)(1u << i == FL_BIAS         ? bias_bytes(problem)
                               : 1u << i == FL_RNG_STATE  ? 8
                               : 1u << i == FL_BLOCK_MASK ? 1
                                                          : 4);
        if ((uintptr_t)address % (unsigned)unit)
            return refuse(failure, FL_INVALID, "%s %p: must be a multiple of %d bytes", ARRAYS[i].name, address, unit);
    }
    return problem->memory == FL_HOST_MEMORY ? check_contents(problem, tensors, failure) : FL_OK;
}

/* ---- which kernel ---- */

fl_status serving_check_kernel(const fl_problem *problem, const char *version, const struct kernel_config *config,
                               struct failure *failure) {
    const char *const asked = serving_asked(problem), *const wgmmas = asked_of_wgmma(problem),
                      *const decodes = asked_of_decode(problem);
    char text[CONFIG_TEXT_SIZE];
    if (serving_all_e4m3(problem) != config_has(config, E4M3_INPUTS))
        return refuse(failure, FL_UNSUPPORTED, "q_dtype %d: %s reads Q only %s", problem->q_dtype, version,
                      config_has(config, E4M3_INPUTS)
                          ? "as e4m3; pass FL_E4M3, in Python to attention_e4m3()"
                          : "in dtype; use attention/fp8 or attention/fp8_mma_sync for e4m3");
    if (config_has(config, E4M3_INPUTS) && asked && !config_has(config, SERVES))
        return refuse(failure, FL_UNSUPPORTED,
                      "%s: config %s of %s supports only scales; use a config with the flag serve", asked,
                      config_format(config, text), version);
    if (config_has(config, E4M3_INPUTS)) return FL_OK;
    const int32_t cache = serving_cache_dtype(config);
    if (!wgmmas && problem->kv_dtype != cache)
        return refuse(failure, FL_UNSUPPORTED, "kv_dtype %d: config %s of %s reads K and V only %s; %s",
                      problem->kv_dtype, config_format(config, text), version,
                      cache == FL_E4M3   ? "as e4m3"
                      : cache == FL_INT8 ? "as int8"
                                         : "in dtype",
                      cache == FL_E4M3   ? "pass FL_E4M3"
                      : cache == FL_INT8 ? "pass FL_INT8"
                                         : "use attention/decode with d_head 128 for e4m3 and int8");
    if (serving_ragged_bytes(problem) && !config_has(config, RAGGED_QUERIES))
        return refuse(failure, FL_UNSUPPORTED,
                      "kv_dtype %d: config %s of %s does not support it with cu_seqlens_q, cu_seqlens_k or seqlens_q; "
                      "use a config with the flag ragged",
                      problem->kv_dtype, config_format(config, text), version);
    if (asked && !config_has(config, SERVES))
        return refuse(failure, FL_UNSUPPORTED, "%s: %s does not support it; %s",
                      wgmmas    ? wgmmas
                      : decodes ? decodes
                                : asked,
                      version,
                      wgmmas    ? "use attention/wgmma, or attention/mma_sync with the flag serve"
                      : decodes ? "use attention/decode or attention/decode_mma_sync with d_head 64 or 128"
                                : "use attention/wgmma or attention/decode, or those with mma_sync on other GPUs");
    if (config_has(config, SERVES) && config_has(config, SHARES_KEYS) ? wgmmas != NULL : decodes != NULL)
        return refuse(failure, FL_UNSUPPORTED, "%s: %s does not support it; %s", wgmmas ? wgmmas : decodes, version,
                      wgmmas ? "use attention/wgmma or attention/mma_sync"
                             : "use attention/decode or attention/decode_mma_sync with d_head 64 or 128");
    if (problem->split_keys && !decodes && config_has(config, SHARES_KEYS))
        return refuse(failure, FL_UNSUPPORTED,
                      "split_keys: %s does not support it for so many rows; use attention/wgmma", version);
    if (serving_extended(problem) && !config_has(config, BIAS))
        return refuse(failure, FL_UNSUPPORTED, "%s: config %s does not support it; use one with the flag bias",
                      serving_extended(problem), config_format(config, text));
    if (!config_takes_dropout(config, problem->dropout_p > 0))
        return refuse(failure, FL_UNSUPPORTED, "dropout_p %g: config %s %s", (double)problem->dropout_p,
                      config_format(config, text),
                      config_has(config, DROPOUT) ? "requires it"
                                                  : "does not support it; use one with the flag dropout");
    const bool pages = problem->arrays & FL_BLOCK_TABLE;
    if (config_has(config, SERVES) && !config_has(config, SHARES_KEYS) && !config_takes(config, PAGED_KV, pages))
        return refuse(failure, FL_UNSUPPORTED, "block_table: config %s %s", config_format(config, text),
                      pages ? "does not support it; use one with the flag pages" : "requires it");
    if (!config_takes(config, CAP, problem->softcap > 0))
        return refuse(failure, FL_UNSUPPORTED, "softcap %g: config %s %s", (double)problem->softcap,
                      config_format(config, text),
                      config_has(config, CAP) ? "requires it" : "does not support it; use one with the flag cap");
    return FL_OK;
}

/* ---- the first parameter ---- */

static void stack_strides(tensor_strides *strides, int32_t group) {
    strides->seq = strides->head;
    strides->head *= group;
}

static void stack_heads(const struct kernel_config *config, const fl_problem *problem, extended_args *args) {
    /* All other arrays depend on the head or the query, and so do a window and dropout. */
    enum { STACKED = FL_CU_SEQLENS_K | FL_SEQLENS_K | FL_BLOCK_TABLE | FL_BIAS };
    attention_args *const attention = &args->serving.attention;
    const int32_t group = attention->heads / attention->KV_heads;
    if (!config_has(config, EXTENDED) || config_has(config, PACKED_HEADS) || group == 1 || attention->seq_q != 1 ||
        problem->arrays & ~(uint32_t)STACKED || problem->windowed || problem->dropout_p > 0)
        return;
    stack_strides(&attention->Q_strides, group);
    stack_strides(&attention->O_strides, group);
    stack_strides(&args->bias_strides, group);
    attention->seq_q = group;
    attention->heads = attention->KV_heads;
    attention->causal = 0; /* the query is the last position */
}

/* Keys that a row attends to, at most. */
static int64_t keys_of_row(const fl_problem *problem) {
    if (!problem->windowed || problem->window_left < 0) return problem->seq_k;
    const int64_t right = problem->causal || problem->window_right < 0 ? 0 : problem->window_right;
    const int64_t keys = (int64_t)problem->window_left + right + problem->seq_q;
    return keys < problem->seq_k ? keys : problem->seq_k;
}

/* Predicted time of the launch that adds up parts, in sixteenths of the time of a KV block, as if a warp had 128
 * columns of a row at a time, for which it waits FIRST and then 1 for each part. */
static int64_t time_of_sums(const struct kernel_config *config, const attention_args *args, int64_t parts,
                            int multiprocessors) {
    enum { COLUMNS = 128, START = 32, FIRST = 56 };
    const int64_t rows = (int64_t)args->batch * args->heads * args->seq_q;
    const int64_t work = rows * ((config_d_head_v(config) + COLUMNS - 1) / COLUMNS);
    const int64_t warps = (int64_t)multiprocessors * (launch_threads(config) / 32);
    return START + (work + warps - 1) / warps * (FIRST + parts);
}

/* Keys of a part for the shortest predicted time; 0 for no parts. The beginning and the end of a part take as long as
 * two KV blocks. All constants were fitted to an H200. A sequence whose length only the device knows may have fewer
 * parts.
 */
static int32_t keys_of_part(const struct kernel_config *config, const fl_problem *problem, int multiprocessors,
                            const attention_args *args) {
    enum { ENDS = 2, SIXTEENTHS = 16 };
    const int64_t Q_blocks = launch_Q_blocks(config, args);
    const int64_t at_once = multiprocessors / attention_cluster(&config->attention);
    const int64_t blocks = (keys_of_row(problem) + config->B_c - 1) / config->B_c;
    if (!config_has(config, SPLITS_KEYS) || problem->split_keys || problem->arrays & FL_BLOCK_MASK || Q_blocks < 1)
        return 0;
    int64_t best = 0, least = SIXTEENTHS * (blocks + ENDS);
    for (int64_t parts = 2; Q_blocks * parts <= 4 * at_once && Q_blocks < at_once; parts++) {
        const int64_t of_part = (blocks + parts - 1) / parts;
        const int64_t turns = (Q_blocks * parts + at_once - 1) / at_once;
        const int64_t sums = time_of_sums(config, args, parts, multiprocessors);
        const int64_t time = SIXTEENTHS * turns * (of_part + ENDS) + sums;
        if (time < least) least = time, best = of_part;
    }
    return (int32_t)(best * config->B_c);
}

void serving_fit(const struct kernel_config *config, const fl_problem *problem, int multiprocessors,
                 extended_args *args) {
    stack_heads(config, problem, args);
    if (config_has(config, EXTENDED))
        args->serving.split_keys = keys_of_part(config, problem, multiprocessors, &args->serving.attention);
}

static bool bias_in_pairs(const extended_args *args) {
    static const uintptr_t bytes[] = {[NO_BIAS] = 1, [BIAS_BYTES] = 1, [BIAS_HALVES] = 2, [BIAS_FLOATS] = 4};
    const tensor_strides *const strides = &args->bias_strides;
    return (strides->batch | strides->seq | strides->head) % 2 == 0 &&
           (uintptr_t)args->bias % (2 * bytes[args->bias_type]) == 0;
}

union kernel_args serving_kernel_args(const struct kernel_config *config, const extended_args *extended) {
    const serving_args *const args = &extended->serving;
    if (!config_has(config, E4M3_INPUTS) || config_has(config, SERVES)) {
        union kernel_args all = {.extended = *extended};
        all.extended.bias_pairs = bias_in_pairs(extended);
        return all;
    }
    return (union kernel_args){.fp8 = {.attention = args->attention,
                                       .Q_descale = 1,
                                       .K_descale = 1,
                                       .V_descale = 1,
                                       .Q_scales = args->Q_scales,
                                       .K_scales = args->K_scales,
                                       .V_scales = args->V_scales}};
}
