/* attention.h - one attention problem for programs that call the library, with inputs and layouts as the harness makes
 * them, and the comparison of what came back with the float64 reference.
 *
 *     struct attention attention;
 *     attention_new(&attention, problem);
 *     fl_status status = fl_forward(library, &attention.asked, &attention.tensors, NULL);
 *     ok(attention_right(&attention), "O and log-sum-exp are right");
 *     attention_free(&attention);
 */
#ifndef FL_ATTENTION_PROBLEM_H
#define FL_ATTENTION_PROBLEM_H

#include "harness/backend.h"
#include "harness/options.h"
#include "harness/serving.h"
#include "harness/tensor_memory.h"
#include "harness/verify.h"
#include "include/flashladder.h"

#include <stdlib.h>
#include <string.h>

struct attention {
    fl_problem asked;   /* host memory; the version is NULL */
    fl_tensors tensors; /* of the host */
    struct inputs inputs;
    struct output output;
    uint16_t *memory[N_TENSORS]; /* as the layout says; those of O are poison at first */
    float *lse;                  /* likewise; NULL where it is not wanted */
    int32_t *served;             /* lengths, pages and sinks */
    uint64_t on_gpu;             /* where on_gpu.h has put these */
    struct verdict verdict;
};

static inline fl_strides attention_strides(const struct problem *problem, enum tensor tensor) {
    const tensor_strides strides = problem_strides(problem, tensor);
    return (fl_strides){strides.batch, strides.seq, strides.head};
}

/* The fields since FL_ABI 3; the arrays are at an address. */
static inline void attention_serve(struct attention *attention, uint64_t served) {
    const struct problem *const problem = &attention->inputs.problem;
    const serving_args args = serving_args_of(problem, problem_args(problem), served);
    fl_problem *const asked = &attention->asked;
    fl_tensors *const tensors = &attention->tensors;
    tensors->cu_seqlens_q = args.Q_offsets, tensors->cu_seqlens_k = args.KV_offsets;
    tensors->seqlens_q = args.Q_lengths, tensors->seqlens_k = args.KV_lengths;
    tensors->block_table = args.pages, tensors->sinks = args.sinks;
    tensors->k_scales = args.K_scales, tensors->v_scales = args.V_scales;
    asked->arrays = (args.Q_offsets ? FL_CU_SEQLENS_Q : 0u) | (args.KV_offsets ? FL_CU_SEQLENS_K : 0u) |
                    (args.Q_lengths ? FL_SEQLENS_Q : 0u) | (args.KV_lengths ? FL_SEQLENS_K : 0u) |
                    (args.pages ? FL_BLOCK_TABLE : 0u) | (args.sinks ? FL_SINKS : 0u) |
                    (args.K_scales ? FL_K_SCALES : 0u) | (args.V_scales ? FL_V_SCALES : 0u);
    asked->kv_dtype = problem->cache_e4m3 ? FL_E4M3 : problem->cache_int8 ? FL_INT8 : 0;
    asked->total_q = args.Q_rows, asked->total_k = args.KV_rows;
    asked->n_pages = args.n_pages, asked->page_rows = args.page_rows;
    asked->pages_of_sequence = args.pages_of_sequence;
    asked->windowed = problem->windowed;
    asked->window_left = problem->windowed ? args.window_left : 0;
    asked->window_right = problem->windowed ? args.window_right : 0;
    asked->softcap = args.softcap, asked->split_keys = args.split_keys;
}

static inline void attention_new(struct attention *attention, struct problem problem) {
    struct failure failure;
    *attention = (struct attention){0};
    if (inputs_generate(&attention->inputs, &problem, &failure) || output_new(&attention->output, &problem, &failure))
        abort();
    for (int t = 0; t < N_TENSORS; t++) {
        const size_t bytes = (size_t)problem_device_bytes(&problem, (enum tensor)t);
        if (!(attention->memory[t] = malloc(bytes))) abort();
        memset(attention->memory[t], POISON_BYTE, bytes);
        if (t != TENSOR_O) tensor_spread(&problem, (enum tensor)t, attention->inputs.tensors[t], attention->memory[t]);
    }
    const size_t lse_bytes = (size_t)problem_device_lse_bytes(&problem);
    if (problem.lse && !(attention->lse = malloc(lse_bytes))) abort();
    if (problem.lse) memset(attention->lse, POISON_BYTE, lse_bytes);
    attention->asked = (fl_problem){.size = sizeof attention->asked,
                                    .dtype = problem.dtype == BF16 ? FL_BF16 : FL_FP16,
                                    .memory = FL_HOST_MEMORY,
                                    .device = -1,
                                    .batch = (int32_t)problem.batch,
                                    .heads = (int32_t)problem.heads,
                                    .kv_heads = (int32_t)problem.KV_heads,
                                    .seq_q = (int32_t)problem.seq_q,
                                    .seq_k = (int32_t)problem.seq_k,
                                    .d_head = problem.d_head,
                                    .causal = problem.causal,
                                    .scale = (float)problem.scale};
    if (problem.layout != LAYOUT_BSHD) {
        attention->asked.q = attention_strides(&problem, TENSOR_Q);
        attention->asked.k = attention_strides(&problem, TENSOR_K);
        attention->asked.v = attention_strides(&problem, TENSOR_V);
        attention->asked.o = attention_strides(&problem, TENSOR_O);
    }
    attention->tensors = (fl_tensors){.size = sizeof attention->tensors,
                                      .q = attention->memory[TENSOR_Q],
                                      .k = attention->memory[TENSOR_K],
                                      .v = attention->memory[TENSOR_V],
                                      .o = attention->memory[TENSOR_O],
                                      .lse = attention->lse};
    if (!problem_is_served(&problem)) return;
    if (!(attention->served = malloc((size_t)serving_bytes(&problem)))) abort();
    serving_fill(&problem, attention->served);
    attention_serve(attention, (uintptr_t)attention->served);
}

/* The newest embedded version for heads of d_head elements that share KV heads: with machine code for one architecture
 * alone, or for several. "" where there is none. */
static inline const char *attention_version(fl_library *library, int d_head, bool exact, char version[32]) {
    fl_kernel_info info = {.size = sizeof info};
    version[0] = 0;
    for (int32_t i = 0; !fl_kernel(library, i, &info); i++)
        if (info.own && info.d_head == d_head && info.features & FL_GROUPED && exact == !strchr(info.archs, ' '))
            memcpy(version, info.kernel, sizeof info.kernel);
    return version;
}

/* Compare all rows in the memory of O; `verdict` receives the errors. */
static inline bool attention_right(struct attention *attention) {
    struct failure failure;
    attention->output.strays =
        tensor_gather(&attention->inputs.problem, TENSOR_O, attention->memory[TENSOR_O], attention->output.O);
    if (attention->lse)
        attention->output.strays += lse_gather(&attention->inputs.problem, attention->lse, attention->output.lse);
    if (verify_output(&attention->inputs, &attention->output, CHECK_ALL, &attention->verdict, &failure)) abort();
    return attention->verdict.pass;
}

static inline void attention_free(struct attention *attention) {
    for (int t = 0; t < N_TENSORS; t++) free(attention->memory[t]);
    free(attention->lse);
    free(attention->served);
    inputs_free(&attention->inputs);
    output_free(&attention->output);
}

#endif
