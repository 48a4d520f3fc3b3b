/* test_serving.c - lengths, packed sequences, pages, windows, sinks and soft caps through the library on the emulator:
 * results against the float64 reference with NaN past every length, and what is rejected. */
#include "common/tests/tap.h"
#include "harness/device/attention.h"

#include <math.h>

static const struct number_list QUERIES = {3, {5, 0, 9}}, KEYS = {3, {40, 17, 0}};

static struct problem problem_of(int64_t batch, int64_t seq_q, int64_t seq_k, int d_head) {
    struct problem problem = problem_square(batch, 2, seq_q);
    problem.KV_heads = 1;
    problem.seq_k = seq_k;
    problem.d_head = d_head;
    problem.lse = true;
    return problem;
}

/* ---- results ---- */

/* version: asked for by name, or NULL. */
static void right_by(fl_library *library, struct problem problem, const char *version, const char *kernel,
                     const char *what) {
    struct attention attention;
    fl_support support = {.size = sizeof support};
    attention_new(&attention, problem);
    attention.asked.version = version;
    const fl_status status = fl_forward(library, &attention.asked, &attention.tensors, NULL);
    if (status) printf("# status %d: %s\n", status, fl_error());
    const bool correct = !status && attention_right(&attention);
    ok(correct, "%s: right, largest error %.2f of its bound", what, attention.verdict.max_over_bound);
    ok(!fl_query(library, &attention.asked, &support) && !strcmp(support.kernel, kernel), "%s: by %s", what,
       support.kernel);
    attention_free(&attention);
}

static void right(fl_library *library, struct problem problem, const char *kernel, const char *what) {
    right_by(library, problem, NULL, kernel, what);
}

static void results(fl_library *library) {
    struct problem problem = problem_of(3, 9, 40, 64);
    problem.Q_lengths = &QUERIES, problem.KV_lengths = &KEYS, problem.causal = true;
    right(library, problem, "attention/wgmma", "lengths of queries and keys, some 0, causal");
    problem.layout = LAYOUT_PACKED, problem.windowed = problem.sinks = true;
    problem.window_left = 7, problem.window_right = -1;
    right(library, problem, "attention/wgmma", "packed, causal, a window, sinks");
    right_by(library, problem, "attention/mma_sync", "attention/mma_sync", "packed, causal, a window, sinks");
    problem.d_head = 96;
    right(library, problem, "attention/wgmma", "a head size that attention/wgmma computes in rows of 128");
    for (problem.d_head = 80; problem.d_head <= 144; problem.d_head += 64)
        right_by(library, problem, "attention/wgmma", "attention/wgmma", "rows of 80 and 144 elements");
    problem.windowed = problem.causal = problem.sinks = false;
    problem.d_head = 64, problem.page_rows = 16, problem.split_keys = 128;
    right(library, problem, "attention/wgmma", "packed queries, keys in pages, parts of 128 keys");
    problem = problem_of(3, 1, 40, 64);
    problem.KV_lengths = &KEYS;
    problem.page_rows = 16, problem.split_keys = 128;
    problem.dtype = BF16;
    right(library, problem, "attention/decode", "a cache in pages, parts of 128 keys");
    right_by(library, problem, "attention/decode_mma_sync", "attention/decode_mma_sync", "the same by cp.async");
    problem = problem_of(1, 70, 90, 64), problem.causal = true;
    right_by(library, problem, "attention/decode", "attention/decode", "140 rows, causal, of a plain problem");
    problem = problem_of(3, 2, 40, 128);
    problem.cache_e4m3 = true, problem.KV_heads = 2, problem.descale[TENSOR_V] = 3, problem.layout = LAYOUT_PADDED;
    right(library, problem, "attention/decode", "a cache of e4m3 with gaps, scales of two KV heads");
    right_by(library, problem, "attention/decode_mma_sync", "attention/decode_mma_sync", "the same by cp.async");
    problem.cache_e4m3 = false, problem.cache_int8 = true, problem.dtype = BF16;
    right(library, problem, "attention/decode", "a cache of int8 with gaps, scales of two KV heads");
    right_by(library, problem, "attention/decode_mma_sync", "attention/decode_mma_sync", "the same by cp.async");
}

/* Each instance of attention/decode by the rows of a KV head. */
static void configs(fl_library *library) {
    static const struct {
        int32_t seq_q;
        const char *config;
    } cases[] = {{8, "(FP16, 128, 16,"},
                 {9, "(FP16, 128, 32,"},
                 {17, "(FP16, 128, 64,"},
                 {32, "(FP16, 128, 64,"},
                 {33, "wgmma"}};
    struct attention attention;
    fl_support support = {.size = sizeof support};
    attention_new(&attention, problem_of(1, 1, 300, 128));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attention.asked.seq_q = cases[i].seq_q, attention.asked.split_keys = 128;
        ok(!fl_query(library, &attention.asked, &support) && strstr(support.config, cases[i].config) &&
               strstr(support.config, "+serve"),
           "%d queries of 2 heads: %s", cases[i].seq_q, support.config);
        attention.asked.split_keys = 0, attention.asked.version = "attention/decode";
        ok(!fl_query(library, &attention.asked, &support) && strstr(support.config, cases[i].config) &&
               !strstr(support.config, "+serve") == (i == 0),
           "the same of a plain problem: %s", support.config);
        attention.asked.version = NULL;
    }
    attention_free(&attention);
}

/* The instance of attention/wgmma by the heads of a group. */
static void packed_heads(fl_library *library) {
    static const struct {
        int32_t heads, kv_heads, page_rows;
        float softcap;
        const char *ends;
    } cases[] = {{8, 2, 16, 0, "+serve+pages+pack"}, {8, 2, 0, 0, "+serve+pack"},     {8, 8, 16, 0, "+serve+pages"},
                 {64, 1, 0, 0, "+serve+pack"},       {128, 1, 16, 0, "+serve+pages"}, {8, 2, 0, 5, "+serve+cap"}};
    fl_support support = {.size = sizeof support};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct problem problem = problem_of(2, 100, 300, 128);
        struct attention attention;
        problem.heads = cases[i].heads, problem.KV_heads = cases[i].kv_heads;
        problem.page_rows = cases[i].page_rows, problem.softcap = cases[i].softcap;
        problem.KV_lengths = &KEYS;
        attention_new(&attention, problem);
        attention.asked.version = "attention/wgmma";
        const fl_status status = fl_query(library, &attention.asked, &support);
        const size_t length = strlen(support.config), end = strlen(cases[i].ends);
        ok(!status && length > end && !strcmp(support.config + length - end, cases[i].ends),
           "%d heads on %d, pages of %d, cap %g: %s", cases[i].heads, cases[i].kv_heads, cases[i].page_rows,
           (double)cases[i].softcap, support.config);
        attention_free(&attention);
    }
}

/* ---- what is refused ---- */

static void refused(fl_library *library, const struct attention *attention, const fl_problem *problem,
                    const char *word) {
    const fl_status status = fl_forward(library, problem, &attention->tensors, NULL);
    ok(status == FL_INVALID || status == FL_UNSUPPORTED, "%s: status %d", word, status);
    says(fl_error(), word, word);
}

/* Contents of the arrays; one is wrong at a time. */
static void contents(fl_library *library) {
    struct problem problem = problem_of(3, 9, 40, 64);
    struct attention packed, paged, bytes;
    problem.Q_lengths = &QUERIES, problem.KV_lengths = &KEYS, problem.layout = LAYOUT_PACKED;
    attention_new(&packed, problem);
    problem = problem_of(3, 1, 40, 64), problem.KV_lengths = &KEYS, problem.page_rows = 16;
    attention_new(&paged, problem);
    problem = problem_of(1, 1, 40, 128);
    problem.cache_e4m3 = true;
    attention_new(&bytes, problem);
    int32_t *const k_scale = (int32_t *)(uintptr_t)bytes.tensors.k_scales, *const v_scale = (int32_t *)(uintptr_t)
                                                                                                bytes.tensors.v_scales;
    int32_t *const q = (int32_t *)(uintptr_t)packed.tensors.cu_seqlens_q,
                   *const k = (int32_t *)(uintptr_t)packed.tensors.cu_seqlens_k,
                   *const lengths = (int32_t *)(uintptr_t)paged.tensors.seqlens_k,
                   *const table = (int32_t *)(uintptr_t)paged.tensors.block_table;
    const struct {
        struct attention *attention;
        int32_t *at, value;
        const char *words;
    } cases[] = {{&packed, q + 1, -3, "cu_seqlens_q[1] -3: must be at least 0, the offset before it"},
                 {&packed, q, -1, "cu_seqlens_q[0] -1: must be 0 or more"},
                 {&packed, q + 3, 15, "cu_seqlens_q: sequence 2 has 10 rows, but seq_q is 9"},
                 {&packed, k + 3, 58, "cu_seqlens_k[3] 58: must be at most 57, the number of rows of the tensor"},
                 {&paged, lengths, 41, "seqlens_k[0] 41: must be from 0 to 40, the number of rows of the sequence"},
                 {&paged, lengths + 1, -1, "seqlens_k[1] -1: must be from 0"},
                 {&paged, table + 3, -1, "block_table[1][0] -1: must be from 0 to"},
                 {&paged, table + 2, paged.asked.n_pages, "must be from 0 to"},
                 {&bytes, k_scale, 0, "k_scales[0] 0: must be positive and finite"},
                 {&bytes, k_scale, 0x7fc00000, "k_scales[0] nan: must be positive and finite"},
                 {&bytes, v_scale, 0x7f800000, "v_scales[0] inf: must be positive and finite"},
                 {&bytes, v_scale, INT32_MIN | 0x3f800000, "v_scales[0] -1: must be positive and finite"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int32_t before = *cases[i].at;
        *cases[i].at = cases[i].value;
        refused(library, cases[i].attention, &cases[i].attention->asked, cases[i].words);
        *cases[i].at = before;
    }
    attention_free(&packed);
    attention_free(&paged);
    attention_free(&bytes);
}

/* Fields of a problem; the one that is changed is wrong. */
#define WRONG(change, words)                                                                                           \
    do {                                                                                                               \
        fl_problem wrong = attention.asked;                                                                            \
        change;                                                                                                        \
        refused(library, &attention, &wrong, words);                                                                   \
    } while (0)

static void bytes_refused(fl_library *library) {
    struct problem problem = problem_of(1, 1, 40, 128);
    struct attention attention;
    problem.cache_e4m3 = true;
    attention_new(&attention, problem);
    WRONG(wrong.kv_dtype = FL_BF16, "kv_dtype 1: must be FL_E4M3, 2, FL_INT8, 3, or 0");
    WRONG(wrong.kv_dtype = 0, "k_scales: requires kv_dtype FL_E4M3 or FL_INT8");
    WRONG(wrong.d_head = 64, "d_head 64: must be 128 for a cache of e4m3 or int8");
    WRONG(wrong.version = "attention/wgmma", "use attention/decode with d_head 128 for e4m3 and int8");
    attention.tensors.sinks = attention.tensors.k_scales;
    WRONG(wrong.arrays |= FL_SINKS, "sinks: cannot be combined with kv_dtype");
    attention_free(&attention);
}

static void fields(fl_library *library) {
    struct problem problem = problem_of(3, 1, 40, 64);
    struct attention attention;
    problem.KV_lengths = &KEYS;
    problem.page_rows = 16;
    attention_new(&attention, problem);
    WRONG(wrong.dropout_p = 1, "dropout_p 1: must be at least 0 and less than 1");
    WRONG(wrong.dropout_p = -1, "dropout_p -1: must be at least 0");
    WRONG(wrong.rng_seed = 7, "rng_seed 7: must be 0 without dropout_p");
    WRONG(wrong.arrays |= FL_RNG_STATE, "rng_state: requires dropout_p");
    WRONG((wrong.arrays |= FL_BLOCK_MASK, wrong.mask_keys = 128), "mask_queries 0: must be from 128");
    WRONG((wrong.arrays |= FL_BLOCK_MASK, wrong.mask_keys = wrong.mask_queries = 128),
          "block_mask: cannot be combined with block_table");
    WRONG(wrong.arrays = 1u << 16, "arrays 0x10000: must be a combination of");
    WRONG(wrong.total_q = 4, "total_q 4: must be 0 without FL_CU_SEQLENS_Q in arrays");
    WRONG(wrong.n_pages = 0, "n_pages 0: must be from 1");
    WRONG(wrong.page_rows = 24, "page_rows 24: must be a power of two, 16 or more");
    WRONG(wrong.page_rows = 8, "page_rows 8: must be from 16");
    WRONG(wrong.seq_k = 49, "seq_k 49: must be at most 48, pages_of_sequence 3 times page_rows 16");
    WRONG(wrong.windowed = 2, "windowed 2: must be from 0 to 1");
    WRONG(wrong.window_left = 3, "window_left 3: must be 0 without windowed");
    WRONG((wrong.windowed = 1, wrong.window_right = -2), "window_right -2: must be from -1");
    WRONG(wrong.softcap = -1, "softcap -1: must be positive, or 0 to disable it");
    WRONG(wrong.split_keys = 64, "split_keys 64: must be a multiple of 128");
    WRONG(wrong.seq_k = 0, "seq_k 0: must be from 1");
    WRONG((wrong.windowed = 1, wrong.version = "attention/decode"),
          "window: attention/decode does not support it; use attention/wgmma");
    WRONG(wrong.arrays = FL_BLOCK_TABLE, "seqlens_k 0x");
    WRONG((wrong.d_head = 256, wrong.version = "attention/decode"), "d_head 256: attention/decode is for 128, 64");
    WRONG((wrong.version = "attention/mma_sync", wrong.config = "(FP16, 64, 256, 128, 8): mma_sync+stages_4"),
          "does not support it; use attention/wgmma or attention/decode");
    attention.asked.version = "attention/wgmma";
    WRONG(wrong.config = "(FP16, 64, 256, 64, 16): wgmma+stages_4+exp_16+serve", "use one with the flag pages");
    attention.asked.config = "(FP16, 64, 192, 64, 12): wgmma+stages_4+exp_16+serve+extend+bias";
    WRONG(wrong.dropout_p = 0.5f, "use one with the flag dropout");
    attention.asked.config = "(FP16, 64, 192, 64, 12): wgmma+stages_4+exp_16+serve+extend+dropout+bias";
    WRONG(wrong.dropout_p = 0, "+dropout+bias requires it");
    attention.asked.config = "(FP16, 64, 256, 64, 16): wgmma+stages_4+exp_16+serve+pages";
    attention.tensors.block_table = NULL;
    attention.asked.arrays = FL_SEQLENS_K;
    attention.asked.n_pages = attention.asked.page_rows = 0;
    WRONG(wrong.pages_of_sequence = 0, "+serve+pages requires it");
    attention_free(&attention);
}

/* The instance of each kernel of e4m3 for a type of O, a head size and sums, which are always accurate by mma.sync. */
static void all_e4m3_instances(fl_library *library) {
    static const struct {
        int32_t dtype, d_head, sums, scale_keys, o_dtype;
        uint32_t arrays;
        const char *begins;
    } cases[] = {{FL_FP16, 128, FL_SUMS_FAST, 0, 0, 0, "(FP16, 128, "},
                 {FL_BF16, 128, FL_SUMS_ACCURATE, 0, 0, FL_Q_SCALES, "(BF16, 128, "},
                 {FL_FP16, 64, FL_SUMS_ACCURATE, 0, 0, 0, "(FP16, 64, "},
                 {FL_BF16, 64, FL_SUMS_FAST, 0, 0, 0, "(BF16, 64, "},
                 {FL_BF16, 64, FL_SUMS_FAST, 0, FL_E4M3, 0, "(BF16, 64, "},
                 {FL_BF16, 128, FL_SUMS_ACCURATE, 64, 0, FL_K_SCALES, "(BF16, 128, "},
                 {FL_FP16, 128, FL_SUMS_FAST, 0, 0, FL_SEQLENS_K, "(FP16, 128, "},
                 {FL_FP16, 256, FL_SUMS_FAST, 0, 0, 0, "(FP16, 256, "},
                 {FL_BF16, 256, FL_SUMS_ACCURATE, 0, 0, FL_SEQLENS_K, "(BF16, 256, "}};
    struct attention attention;
    fl_support support = {.size = sizeof support};
    attention_new(&attention, problem_of(1, 3, 5, 64));
    for (size_t n = 0; n < 3 * sizeof cases / sizeof *cases; n++) {
        const size_t i = n / 3;
        const char *const kernel =
            (const char *[]){"attention/fp8", "attention/fp8_mma_sync", "attention/fp8_mma_scaled"}[n % 3];
        fl_problem asked = attention.asked;
        asked.version = n % 3 ? kernel : NULL;
        asked.kv_dtype = asked.q_dtype = FL_E4M3, asked.arrays = cases[i].arrays;
        asked.scale_keys = cases[i].scale_keys, asked.o_dtype = cases[i].o_dtype;
        asked.dtype = cases[i].dtype, asked.d_head = cases[i].d_head, asked.sums = cases[i].sums;
        asked.q = asked.k = asked.v = asked.o = (fl_strides){0};
        const bool accurate = n % 3 || cases[i].sums == FL_SUMS_ACCURATE,
                   serves = asked.scale_keys || asked.o_dtype || asked.arrays == FL_SEQLENS_K;
        ok(!fl_query(library, &asked, &support) && !strcmp(support.kernel, kernel) &&
               strstr(support.config, cases[i].begins) == support.config &&
               (strstr(support.config, "rounded_l") != NULL) == accurate &&
               (strstr(support.config, "+serve") != NULL) == serves,
           "%s, %s sums: %s", kernel, accurate ? "accurate" : "fast", support.config);
    }
    attention_free(&attention);
}

/* Callers of FL_ABI 2 have shorter structs. Memory past these is not read. */
static void older_callers(fl_library *library) {
    struct attention attention;
    attention_new(&attention, problem_of(1, 3, 5, 64));
    attention.asked.size = offsetof(fl_problem, arrays);
    attention.tensors.size = offsetof(fl_tensors, cu_seqlens_q);
    memset(&attention.asked.arrays, 0xff, sizeof attention.asked - offsetof(fl_problem, arrays));
    memset(&attention.tensors.cu_seqlens_q, 0xff, sizeof attention.tensors - offsetof(fl_tensors, cu_seqlens_q));
    ok(attention.asked.size == 168 && attention.tensors.size == 56, "the sizes of FL_ABI 2");
    ok(offsetof(fl_problem, q_dtype) == 216 && offsetof(fl_tensors, k_scales) == 104, "those of FL_ABI 3");
    ok(!fl_forward(library, &attention.asked, &attention.tensors, NULL) && attention_right(&attention),
       "a caller of "
       "FL_ABI 2: %s",
       fl_error());
    attention_free(&attention);
}

int main(void) {
    fl_library *library;
    if (!ok(!fl_open(FL_EMULATOR, &library), "the emulator opens: %s", fl_error())) return tap_done();
    results(library);
    configs(library);
    packed_heads(library);
    contents(library);
    fields(library);
    bytes_refused(library);
    all_e4m3_instances(library);
    older_callers(library);
    fl_close(library);
    return tap_done();
}
