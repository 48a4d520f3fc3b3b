/* test_backward.c - fl_backward() on the emulator: gradients against the float64 reference, and what is refused. */
#include "common/tests/tap.h"
#include "harness/device/attention.h"
#include "harness/gradients.h"
#include "include/flashladder.h"

#include <math.h>

/* A problem with what its forward pass left, and room for its gradients. */
static const char MMA_SYNC_VERSION[] = "attention/backward_mma_sync";

struct backward {
    struct attention attention;
    fl_gradients gradients;
    struct output output;
    struct verdict verdict;
};

static struct problem problem_of(int64_t heads, int64_t KV_heads, int64_t seq_q, int64_t seq_k, int d_head) {
    struct problem problem = problem_square(1, heads, seq_q);
    problem.KV_heads = KV_heads;
    problem.seq_k = seq_k;
    problem.d_head = d_head;
    problem.backward = true;
    return problem;
}

static void backward_new(struct backward *made, struct problem problem) {
    struct failure failure;
    *made = (struct backward){0};
    attention_new(&made->attention, problem);
    struct inputs *const inputs = &made->attention.inputs;
    if (backward_inputs_generate(inputs, INFINITY, &failure) || output_new(&made->output, &problem, &failure)) abort();
    tensor_spread(&problem, TENSOR_O, inputs->O, made->attention.memory[TENSOR_O]);
    made->attention.tensors.lse = inputs->lse;
    made->gradients = (fl_gradients){.size = sizeof made->gradients,
                                     .dout = inputs->dO,
                                     .dq = made->output.gradients[TENSOR_Q],
                                     .dk = made->output.gradients[TENSOR_K],
                                     .dv = made->output.gradients[TENSOR_V],
                                     .dsinks = made->output.dsinks};
    for (int t = 0; t < N_INPUTS; t++)
        memset(made->output.gradients[t], POISON_BYTE, (size_t)problem_bytes(&problem, (enum tensor)t));
}

static void backward_free(struct backward *made) {
    output_free(&made->output);
    attention_free(&made->attention);
}

static fl_status compute(fl_library *library, struct backward *made) {
    const fl_status status =
        fl_backward(library, &made->attention.asked, &made->attention.tensors, &made->gradients, NULL);
    if (status) printf("# status %d: %s\n", status, fl_error());
    return status;
}

static bool is_right(struct backward *made) {
    struct failure failure;
    if (verify_gradients(&made->attention.inputs, &made->output, CHECK_ALL, &made->verdict, &failure)) abort();
    return made->verdict.pass;
}

/* By the kernel for other GPUs than Hopper, too. */
static void right(fl_library *library, struct problem problem, int deterministic, const char *what) {
    const char *const versions[] = {NULL, MMA_SYNC_VERSION};
    for (int i = 0; i < 2; i++) {
        struct backward made;
        backward_new(&made, problem);
        made.gradients.deterministic = deterministic;
        made.attention.asked.version = versions[i];
        const bool correct = !compute(library, &made) && is_right(&made);
        ok(correct, "%s%s: right, largest error %.2f of its bound", what, i ? ", mma.sync" : "",
           made.verdict.max_over_bound);
        backward_free(&made);
    }
}

static void results(fl_library *library) {
    struct problem problem = problem_of(2, 1, 70, 33, 64);
    right(library, problem, 0, "fp16, 2 heads on 1, 70 queries on 33 keys");
    problem.dtype = BF16;
    right(library, problem, 1, "bf16, in order");
    problem.d_head = 256;
    right(library, problem, 0, "bf16, d_head 256");
    right(library, problem, 1, "bf16, d_head 256, in order");
    problem = problem_of(2, 2, 20, 150, 128);
    problem.causal = true;
    problem.batch = 2;
    problem.scale = 0.05;
    right(library, problem, 0, "causal, 20 queries on 150 keys, a scale");
    problem.seq_q = 150;
    problem.seq_k = 20;
    right(library, problem, 1, "queries that see no key");
}

/* Windows, soft caps, sinks and used lengths. Rows past the lengths hold NaN, and their gradients are 0. */
static void served(fl_library *library) {
    static const struct number_list of_Q = {.values = {40, 0, 70}, .count = 3},
                                    of_K = {.values = {33, 90, 0}, .count = 3};
    struct problem problem = problem_of(2, 1, 70, 90, 64);
    problem.windowed = true, problem.window_left = 20, problem.window_right = 5;
    right(library, problem, 1, "a window");
    problem.softcap = 5, problem.sinks = true;
    right(library, problem, 0, "a window, a soft cap and sinks");
    problem.window_left = 0, problem.window_right = 0, problem.causal = true, problem.d_head = 128;
    right(library, problem, 1, "each query on one key, with sinks in order");
    problem.seq_q = 130;
    right(library, problem, 0, "queries on one key or none");
    problem.seq_q = 70, problem.window_left = 1000, problem.batch = 3;
    problem.Q_lengths = &of_Q, problem.KV_lengths = &of_K;
    right(library, problem, 0, "used lengths");
    right(library, problem, 1, "used lengths, in order");
}

/* Rows of dQ with gaps of 24 elements, in another order of dimensions; the gaps stay unchanged. */
static void strides(fl_library *library, const char *version) {
    enum { SEQ = 30, HEADS = 2, D = 64, ROW = D + 24 };
    static uint16_t dq[HEADS * SEQ * ROW];
    struct problem problem = problem_of(HEADS, 1, SEQ, SEQ, D);
    struct backward made;
    problem.layout = LAYOUT_BHSD;
    backward_new(&made, problem);
    made.attention.asked.version = version;
    memset(dq, POISON_BYTE, sizeof dq);
    uint16_t *const contiguous = made.gradients.dq;
    uint16_t dout[SEQ * HEADS * D];
    tensor_spread(&problem, TENSOR_O, made.attention.inputs.dO, dout);
    made.gradients.dout = dout;
    made.gradients.dq = dq;
    made.gradients.dq_strides = (fl_strides){HEADS * SEQ * ROW, ROW, SEQ * ROW};
    const fl_status status = compute(library, &made);
    int64_t strays = 0;
    for (int row = 0; row < SEQ * HEADS; row++) {
        const uint16_t *const from = dq + row % HEADS * SEQ * ROW + row / HEADS * ROW;
        memcpy(contiguous + row * D, from, 2 * D);
        for (int i = D; i < ROW; i++) strays += from[i] != (uint16_t)(POISON_BYTE * 0x101);
    }
    made.attention.inputs.problem.layout = LAYOUT_BSHD; /* as the gradients are laid out now */
    ok(!status && is_right(&made) && !strays, "inputs with heads first, dq with gaps: right, and the gaps stay");
    backward_free(&made);
}

static bool all_zero(const uint16_t *gradient, size_t count) {
    while (count && !gradient[count - 1]) count--;
    return !count;
}

/* The last sequence has a query and a key less than there are rows: their gradients become 0. */
static void packed(fl_library *library, int deterministic, const char *version) {
    enum { D = 64, HEADS = 2, QUERIES = 9 + 70, KEYS = 40 + 3 + 66 };
    static const struct number_list of_Q = {.values = {9, 0, 70}, .count = 3},
                                    of_K = {.values = {40, 3, 66}, .count = 3};
    static uint16_t dout[QUERIES * HEADS * D], dq[QUERIES * HEADS * D], dk[KEYS * D], dv[KEYS * D];
    static float lse[QUERIES * HEADS];
    uint16_t *const gradients[] = {dq, dk, dv};
    struct problem problem = problem_of(HEADS, 1, 70, 66, D);
    struct backward made;
    problem.batch = 3, problem.layout = LAYOUT_PACKED, problem.causal = true;
    problem.Q_lengths = &of_Q, problem.KV_lengths = &of_K;
    backward_new(&made, problem);
    made.attention.asked.version = version;
    tensor_spread(&problem, TENSOR_O, made.attention.inputs.dO, dout);
    lse_spread(&problem, made.attention.inputs.lse, lse);
    memset(dq, POISON_BYTE, sizeof dq), memset(dk, POISON_BYTE, sizeof dk), memset(dv, POISON_BYTE, sizeof dv);
    made.attention.tensors.lse = lse;
    made.gradients = (fl_gradients){
        .size = sizeof made.gradients, .dout = dout, .dq = dq, .dk = dk, .dv = dv, .deterministic = deterministic};
    bool done = !compute(library, &made);
    for (int t = 0; t < N_INPUTS; t++)
        made.output.strays += tensor_gather(&problem, (enum tensor)t, gradients[t], made.output.gradients[t]);
    done = done && is_right(&made);
    ok(done, "three sequences, one without a query, deterministic %d: largest error %.2f", deterministic,
       made.verdict.max_over_bound);
    ((int32_t *)(uintptr_t)made.attention.tensors.cu_seqlens_q)[3]--;
    ((int32_t *)(uintptr_t)made.attention.tensors.cu_seqlens_k)[3]--;
    memset(dq, POISON_BYTE, sizeof dq), memset(dk, POISON_BYTE, sizeof dk), memset(dv, POISON_BYTE, sizeof dv);
    done = !compute(library, &made);
    ok(done && all_zero(dq + (QUERIES - 1) * HEADS * D, HEADS * D) && all_zero(dk + (KEYS - 1) * D, D) &&
           all_zero(dv + (KEYS - 1) * D, D) && !all_zero(dq + (QUERIES - 2) * HEADS * D, HEADS * D),
       "rows of no sequence have the gradient 0");
    ((int32_t *)(uintptr_t)made.attention.tensors.cu_seqlens_k)[1] = 50;
    ok(compute(library, &made) == FL_INVALID &&
           !strcmp(fl_error(), "cu_seqlens_k[2] 43: must be at least 50, the offset before it"),
       "%s", fl_error());
    backward_free(&made);
}

static void zeros(fl_library *library) {
    enum { ROWS = 3, D = 64 };
    struct backward made;
    backward_new(&made, problem_of(1, 1, ROWS, ROWS, D));
    made.attention.asked.seq_k = 0;
    made.attention.tensors.k = made.attention.tensors.v = made.gradients.dk = made.gradients.dv = NULL;
    ok(!compute(library, &made) && all_zero(made.gradients.dq, ROWS * D), "no key: dq = 0");
    backward_free(&made);
    backward_new(&made, problem_of(1, 1, ROWS, ROWS, D));
    made.attention.asked.seq_q = 0;
    const bool done = !compute(library, &made);
    ok(done && all_zero(made.gradients.dk, ROWS * D) && all_zero(made.gradients.dv, ROWS * D), "no query: dk = dv = 0");
    made.attention.asked.batch = 0;
    ok(!compute(library, &made), "no sequence: nothing is done");
    backward_free(&made);
}

static void refused(fl_library *library, const struct backward *made, fl_status status, const char *sentence) {
    const fl_status got =
        fl_backward(library, &made->attention.asked, &made->attention.tensors, &made->gradients, NULL);
    ok(got == status && !strcmp(fl_error(), sentence), "%d: %s", got, fl_error());
}

#define REFUSED(change, status, sentence)                                                                              \
    do {                                                                                                               \
        struct backward made = right;                                                                                  \
        change;                                                                                                        \
        refused(library, &made, status, sentence);                                                                     \
    } while (0)

static void refusals(fl_library *library) {
    struct backward right;
    backward_new(&right, problem_of(2, 2, 3, 4, 64));
    REFUSED((made.attention.asked.split_keys = 128), FL_UNSUPPORTED, "split_keys: fl_backward() does not support it");
    REFUSED((made.gradients.dsinks = (float *)(uintptr_t)4), FL_INVALID,
            "dsinks: requires FL_SINKS in arrays; set it to NULL");
    REFUSED((made.attention.asked.arrays = FL_CU_SEQLENS_K, made.attention.asked.total_k = 4), FL_UNSUPPORTED,
            "cu_seqlens_k: requires cu_seqlens_q as well in fl_backward()");
    REFUSED((made.attention.asked.d_head = 96), FL_UNSUPPORTED,
            "d_head 96: attention/backward supports 64, 128, 256; pad q, k and v with zeros and keep the scale");
    REFUSED((made.attention.asked.version = "v37"), FL_UNSUPPORTED,
            "version 'v37': must be NULL, \"best\", \"attention/backward\" or \"attention/backward_mma_sync\", which "
            "compute gradients");
    REFUSED((made.attention.asked.version = MMA_SYNC_VERSION, made.attention.asked.d_head = 264), FL_UNSUPPORTED,
            "d_head 264: attention/backward_mma_sync supports 64, 128, 256");
    REFUSED((made.attention.tensors.lse = NULL), FL_INVALID, "lse: must not be NULL");
    REFUSED((made.attention.tensors.o = NULL), FL_INVALID, "o: must not be NULL");
    REFUSED((made.gradients.dout = NULL), FL_INVALID, "dout: must not be NULL");
    REFUSED((made.gradients.dv = NULL), FL_INVALID, "dv: must not be NULL");
    REFUSED((made.gradients.deterministic = 2), FL_INVALID, "deterministic 2: must be 0 or 1");
    REFUSED((made.gradients.unused = 1), FL_INVALID, "unused 1: must be 0");
    REFUSED((made.gradients.dk_strides = (fl_strides){512, 0, 64}), FL_INVALID,
            "dk_strides.seq 0: must be at least 64, d_head, because rows must not overlap");
    REFUSED((made.gradients.dk_strides = (fl_strides){512, 64, 64}), FL_INVALID,
            "dk_strides.head 64: must not be that of seq, because rows must not overlap");
    struct backward same = right;
    same.gradients.dv = right.gradients.dk;
    ok(fl_backward(library, &same.attention.asked, &same.attention.tensors, &same.gradients, NULL) == FL_INVALID &&
           strstr(fl_error(), "must not be the address of dk"),
       "%s", fl_error());
    REFUSED((made.attention.asked.memory = FL_DEVICE_MEMORY), FL_INVALID,
            "memory FL_DEVICE_MEMORY: must be FL_HOST_MEMORY on the emulator");
    ok(fl_backward(library, &right.attention.asked, &right.attention.tensors, NULL, NULL) == FL_INVALID &&
           !strcmp(fl_error(), "gradients: must not be NULL"),
       "%s", fl_error());
    ok(fl_backward(NULL, &right.attention.asked, &right.attention.tensors, &right.gradients, NULL) == FL_INVALID, "%s",
       fl_error());
    backward_free(&right);
}

int main(void) {
    fl_library *library;
    if (!ok(!fl_open(FL_EMULATOR, &library), "the emulator opens: %s", fl_error())) return tap_done();
    results(library);
    served(library);
    packed(library, 0, NULL);
    packed(library, 1, NULL);
    packed(library, 0, MMA_SYNC_VERSION);
    packed(library, 1, MMA_SYNC_VERSION);
    strides(library, NULL);
    strides(library, MMA_SYNC_VERSION);
    zeros(library);
    refusals(library);
    fl_close(library);
    return tap_done();
}
