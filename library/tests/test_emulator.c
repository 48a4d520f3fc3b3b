/* test_emulator.c - the library on the emulator: results against the float64 reference, and what it refuses. */
#include "common/tests/tap.h"
#include "harness/device/attention.h"
#include "include/flashladder.h"

#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

static struct problem problem_of(int64_t heads, int64_t KV_heads, int64_t seq_q, int64_t seq_k, int d_head) {
    struct problem problem = problem_square(1, heads, seq_q);
    problem.KV_heads = KV_heads;
    problem.seq_k = seq_k;
    problem.d_head = d_head;
    return problem;
}

/* ---- results ---- */

static void right(fl_library *library, const char *version, struct problem problem, const char *what) {
    struct attention attention;
    attention_new(&attention, problem);
    attention.asked.version = version;
    const fl_status status = fl_forward(library, &attention.asked, &attention.tensors, NULL);
    if (status) printf("# status %d: %s\n", status, fl_error());
    const bool correct = !status && attention_right(&attention);
    ok(correct, "%s: right, largest error %.2f of its bound", what, attention.verdict.max_over_bound);
    attention_free(&attention);
}

static void results(fl_library *library) {
    struct problem problem = problem_of(2, 1, 70, 33, 64);
    right(library, NULL, problem, "fp16, 2 heads on 1, 70 queries on 33 keys");
    problem.causal = problem.lse = true;
    problem.dtype = BF16;
    right(library, "best", problem, "bf16, causal, rows that see no key, log-sum-exp");
    problem = problem_of(2, 2, 20, 40, 128);
    problem.batch = 2;
    problem.layout = LAYOUT_PADDED;
    problem.scale = 0.05;
    right(library, "attention/wgmma", problem, "attention/wgmma, gaps between the rows, a scale");
    problem.layout = LAYOUT_BHSD;
    right(library, "attention/mma_sync", problem, "attention/mma_sync, heads before positions");
    right(library, NULL, problem_of(1, 1, 5, 40, 256), "d_head 256");
}

/* Dropout: the seed and the offset are fields, or an array instead of them. */
static void seeds(fl_library *library) {
    static const int64_t states[][2] = {{5, 1LL << 40}, {5, 1LL << 40}, {6, 1LL << 40}, {5, 2LL << 40}};
    enum { CALLS = 4, IN_ARRAY = 1 };
    struct attention calls[CALLS];
    bool same[CALLS];
    for (int i = 0; i < CALLS; i++) {
        attention_new(&calls[i], problem_of(1, 1, 16, 64, 64));
        fl_problem *const asked = &calls[i].asked;
        asked->dropout_p = 0.5F;
        if (i == IN_ARRAY)
            asked->arrays |= FL_RNG_STATE, calls[i].tensors.rng_state = states[i];
        else
            asked->rng_seed = states[i][0], asked->rng_offset = states[i][1];
        ok(!fl_forward(library, asked, &calls[i].tensors, NULL), "dropout %d: %s", i, fl_error());
        same[i] = !memcmp(calls[0].tensors.o, calls[i].tensors.o, 16 * 64 * 2);
    }
    ok(same[IN_ARRAY] && !same[2] && !same[3], "seed and offset decide which weights are dropped");
    for (int i = 0; i < CALLS; i++) attention_free(&calls[i]);
}

/* Makes this thread round up and, where C has words for it, take subnormal numbers for 0, as threads of XLA do. */
static void change_arithmetic(void) {
    fesetround(FE_UPWARD);
#ifdef __SSE2__
    enum { FLUSH_RESULTS = 0x8000, FLUSH_OPERANDS = 0x40 };
    _mm_setcsr(_mm_getcsr() | FLUSH_RESULTS | FLUSH_OPERANDS);
#endif
}

/* All elements of V are a subnormal number in fp16, and so are those of O. */
static void arithmetic_of_the_caller(fl_library *library) {
    enum { ROWS = 3, KEYS = 20, D = 64, SUBNORMAL = 0x0010 };
    uint16_t o[ROWS * D];
    struct attention attention;
    attention_new(&attention, problem_of(1, 1, ROWS, KEYS, D));
    for (int i = 0; i < KEYS * D; i++) attention.memory[TENSOR_V][i] = SUBNORMAL;
    fenv_t kept;
    fegetenv(&kept);
    change_arithmetic();
    const fl_status status = fl_forward(library, &attention.asked, &attention.tensors, NULL);
    const int rounds = fegetround();
    fesetenv(&kept);
    ok(!status && rounds == FE_UPWARD, "a thread that rounds up goes on so: %s", fl_error());
    memcpy(o, attention.memory[TENSOR_O], sizeof o);
    ok(!fl_forward(library, &attention.asked, &attention.tensors, NULL) && o[0] == SUBNORMAL, "0x%04x: must be 0x%04x",
       o[0], SUBNORMAL);
    ok(!memcmp(o, attention.memory[TENSOR_O], sizeof o), "it gets the bits of another thread");
    attention_free(&attention);
}

/* Strides that only host memory may have: K is V backwards, and all heads of Q are one. */
static void strides_of_the_host(fl_library *library) {
    enum { ROWS = 10, D = 64 };
    uint16_t q[ROWS * D], kv[ROWS * D], plain[2 * ROWS * D], o[2 * ROWS * D];
    struct problem problem = problem_of(2, 2, ROWS, ROWS, D);
    struct attention attention;
    attention_new(&attention, problem);
    for (int i = 0; i < ROWS; i++) {
        memcpy(q + i * D, attention.memory[TENSOR_Q] + i * 2 * D, 2 * D);
        memcpy(kv + i * D, attention.memory[TENSOR_K] + i * 2 * D, 2 * D);
        for (int head = 0; head < 2; head++) {
            memcpy(attention.memory[TENSOR_Q] + (2 * i + head) * D, q + i * D, 2 * D);
            memcpy(attention.memory[TENSOR_K] + (2 * (ROWS - 1 - i) + head) * D, kv + i * D, 2 * D);
            memcpy(attention.memory[TENSOR_V] + (2 * i + head) * D, kv + i * D, 2 * D);
        }
    }
    attention.tensors.o = plain;
    ok(!fl_forward(library, &attention.asked, &attention.tensors, NULL), "contiguous copies");
    fl_problem asked = attention.asked;
    asked.q = (fl_strides){0, D, 0};
    asked.k = (fl_strides){0, -D, 0};
    asked.v = (fl_strides){0, D, 0};
    asked.o = (fl_strides){0, D, ROWS * D};
    const fl_tensors tensors = {.size = sizeof tensors, .q = q, .k = kv + (ROWS - 1) * D, .v = kv, .o = o};
    ok(!fl_forward(library, &asked, &tensors, NULL), "strides of 0 and below 0: %s", fl_error());
    int equal = 0;
    for (int i = 0; i < ROWS; i++)
        for (int head = 0; head < 2; head++)
            equal += !memcmp(o + (head * ROWS + i) * D, plain + (2 * i + head) * D, 2 * D);
    ok(equal == 2 * ROWS, "they read the same rows as the copies: %d of %d", equal, 2 * ROWS);
    attention_free(&attention);
}

static void nothing_to_do(fl_library *library) {
    struct problem problem = problem_of(1, 1, 3, 4, 64);
    problem.lse = true;
    struct attention attention;
    attention_new(&attention, problem);
    fl_problem asked = attention.asked;
    asked.seq_k = 0;
    fl_tensors tensors = attention.tensors;
    tensors.k = tensors.v = NULL;
    ok(!fl_forward(library, &asked, &tensors, NULL), "no key: %s", fl_error());
    int zeros = 0, infinities = 0;
    for (int i = 0; i < 3 * 64; i++) zeros += attention.memory[TENSOR_O][i] == 0;
    for (int i = 0; i < 3; i++) infinities += isinf(tensors.lse[i]) && tensors.lse[i] < 0;
    ok(zeros == 3 * 64 && infinities == 3, "O is 0 and log-sum-exp -infinity");
    tensors = (fl_tensors){.size = sizeof tensors};
    asked.seq_q = 0;
    ok(!fl_forward(library, &asked, &tensors, NULL), "no query: %s", fl_error());
    asked.seq_q = 3;
    asked.batch = 0;
    ok(!fl_forward(library, &asked, &tensors, NULL), "no sequence: %s", fl_error());
    attention_free(&attention);
}

/* ---- what is refused ---- */

static void refused(fl_library *library, const fl_problem *problem, const fl_tensors *tensors, fl_status expected,
                    const char *word) {
    const fl_status status = fl_forward(library, problem, tensors, NULL);
    ok(status == expected, "%s: status %d", word, status);
    says(fl_error(), word, word);
}

/* One field of a problem is wrong. */
#define WRONG(change, status, words)                                                                                   \
    do {                                                                                                               \
        fl_problem problem = attention->asked;                                                                         \
        problem.change;                                                                                                \
        refused(library, &problem, &attention->tensors, status, words);                                                \
    } while (0)

static void sizes(fl_library *library, const struct attention *attention) {
    WRONG(dtype = 2, FL_INVALID, "dtype 2: must be from 0 to 1");
    WRONG(device = -2, FL_INVALID, "device -2: must be from -1");
    WRONG(device = 5, FL_INVALID, "device 5: must be -1 or 0 on the emulator");
    WRONG(batch = -1, FL_INVALID, "batch -1: must be from 0 to 65535");
    WRONG(heads = problem.kv_heads = 70000, FL_INVALID, "heads 70000: must be from 1 to 65535");
    WRONG(kv_heads = 3, FL_INVALID, "kv_heads 3: must divide heads, 2");
    WRONG(seq_q = -5, FL_INVALID, "seq_q -5: must be from 0");
    WRONG(d_head = 84, FL_UNSUPPORTED, "d_head 84: must be a multiple of 8 up to 576; pad q, k and v with zeros");
    WRONG(d_head = 584, FL_UNSUPPORTED, "d_head 584: must be a multiple of 8 up to 576");
    WRONG(d_head_v = 7, FL_UNSUPPORTED, "d_head_v 7: must be a multiple of 8 up to 512; pad v with zeros");
    WRONG(d_head_v = -8, FL_INVALID, "d_head_v -8: must be from 0 to 65536");
    WRONG(bias_dtype = 2, FL_INVALID, "bias_dtype 2: must be 0 without FL_BIAS in arrays");
    WRONG(alibi_batch = 2, FL_INVALID, "alibi_batch 2: must be 0 without FL_ALIBI_SLOPES in arrays");
    WRONG(arrays = (problem.alibi_batch = 1, FL_ALIBI_SLOPES), FL_INVALID, "alibi_batch 1: must be 0, or 2, heads");
    WRONG(d_head = -1, FL_INVALID, "d_head -1: must be from 1");
    WRONG(causal = 2, FL_INVALID, "causal 2: must be from 0 to 1");
    WRONG(scale = -1, FL_INVALID, "scale -1: must be positive");
    WRONG(scale = NAN, FL_INVALID, "scale nan: must be positive");
    WRONG(seq_k = 65535 * (problem.batch = 1 << 14), FL_INVALID, "the product must be at most 68719476736 elements");
    WRONG(o = ((fl_strides){0, 0, 64}), FL_INVALID, "o.seq 0: must be at least 64, d_head, because rows");
    WRONG(o = ((fl_strides){0, -63, 64}), FL_INVALID, "o.seq -63: must be at least 64, d_head, because rows");
    WRONG(o = ((fl_strides){0, 64, -64}), FL_INVALID, "o.head -64: must not be that of seq, because rows must not");
    WRONG(k = ((fl_strides){0, INT64_MAX / 2, 64}), FL_INVALID, "elements after the first");
    WRONG(memory = FL_DEVICE_MEMORY, FL_INVALID, "must be FL_HOST_MEMORY on the emulator");
}

static void strides_and_addresses(fl_library *library, const struct attention *attention) {
    fl_problem problem = attention->asked;
    fl_tensors tensors = attention->tensors;
    tensors.v = NULL;
    refused(library, &problem, &tensors, FL_INVALID, "v: must not be NULL");
    tensors = attention->tensors;
    tensors.q = (const char *)tensors.q + 1;
    refused(library, &problem, &tensors, FL_INVALID, "must be a multiple of 2 bytes");
    tensors = attention->tensors;
    tensors.o = (void *)tensors.q;
    refused(library, &problem, &tensors, FL_INVALID, "must not be the address of q, because results need");
    tensors = attention->tensors;
    tensors.lse = tensors.o;
    refused(library, &problem, &tensors, FL_INVALID, "must not be the address of o");
    ok(fl_forward(library, &attention->asked, &attention->tensors, (void *)8) == FL_INVALID, "a stream");
    says(fl_error(), "stream 0x8: must be NULL on the emulator", "a stream");
}

static void structs_of_other_sizes(fl_library *library, const struct attention *attention) {
    struct {
        fl_problem known;
        int64_t later;
    } problem = {attention->asked, 0};
    problem.known.size = 8;
    refused(library, &problem.known, &attention->tensors, FL_INVALID, "problem.size 8: must be sizeof(fl_problem)");
    problem.known.size = (size_t)1 << 40;
    refused(library, &problem.known, &attention->tensors, FL_INVALID, "problem.size 1099511627776: must be sizeof(");
    problem.known.size = sizeof problem;
    ok(!fl_forward(library, &problem.known, &attention->tensors, NULL), "a longer problem whose new bytes are 0");
    problem.later = 1;
    refused(library, &problem.known, &attention->tensors, FL_INVALID, "use a newer library");
    refused(library, NULL, &attention->tensors, FL_INVALID, "problem: must not be NULL");
    refused(library, &attention->asked, NULL, FL_INVALID, "tensors: must not be NULL");
    refused(NULL, &attention->asked, &attention->tensors, FL_INVALID, "library: must not be NULL");
    ok(fl_prepare(NULL, &attention->asked) == FL_INVALID, "nothing to prepare");
    says(fl_error(), "library: must not be NULL", "a library that is not there");
    struct {
        fl_support known;
        char later[8];
    } support = {.known.size = sizeof support, .later = "unknown"};
    ok(!fl_query(library, &attention->asked, &support.known) && !support.later[0] &&
           support.known.size == sizeof support,
       "bytes of a longer result that the library does not know become 0");
    support.known.size = (size_t)1 << 40;
    ok(fl_query(library, &attention->asked, &support.known) == FL_INVALID, "a result whose size was never set");
    strcpy(support.known.kernel, "not the caller's");
    support.known.size = offsetof(fl_support, kernel);
    ok(!fl_query(library, &attention->asked, &support.known) && !strcmp(support.known.kernel, "not the caller's"),
       "a result of FL_ABI 1: %s", support.known.version);
    support.known.size = 16;
    ok(fl_query(library, &attention->asked, &support.known) == FL_INVALID, "a result that is too short");
    says(fl_error(), "support.size 16: must be sizeof(fl_support)", "a short result");
}

static void versions_and_configs(fl_library *library, const struct attention *attention) {
    static const char other[] = "(FP16, 64, 64, 64, 4): wgmma+stages_2";
    fl_problem problem = attention->asked;
    problem.version = "v99";
    refused(library, &problem, &attention->tensors, FL_INVALID,
            "version 'v99': this library contains attention/decode ");
    problem.version = "attention/wgmma";
    problem.d_head = 84;
    refused(library, &problem, &attention->tensors, FL_UNSUPPORTED, "d_head 84: attention/wgmma is for 128, 64, 256");
    problem.d_head = 64;
    problem.version = NULL;
    problem.config = other;
    refused(library, &problem, &attention->tensors, FL_INVALID, "needs a version; set version");
    problem.version = "attention/wgmma";
    refused(library, &problem, &attention->tensors, FL_UNSUPPORTED, "not in this library's attention/wgmma");
    problem.config = "(FP16, 64, 256, 64, 16): wgmma+stages_4+exp_16+serve+cap";
    refused(library, &problem, &attention->tensors, FL_UNSUPPORTED, "softcap 0: config");
    problem.config = "(FP16, 64, 256, 64, 16): wgmma+stages_4+exp_16+serve";
    ok(!fl_forward(library, &problem, &attention->tensors, NULL), "a config that serves, without lengths: %s",
       fl_error());
    problem.config = "(FP16, 64";
    refused(library, &problem, &attention->tensors, FL_INVALID, "config '(FP16, 64'");
    problem.config = other;
    problem.dtype = FL_BF16;
    refused(library, &problem, &attention->tensors, FL_INVALID, "has type fp16, but dtype is bf16");
    problem.dtype = FL_FP16;
    problem.d_head = 128;
    refused(library, &problem, &attention->tensors, FL_INVALID, "has d_head 64, but d_head is 128");
}

/* ---- what there is ---- */

static void description(fl_library *library) {
    fl_description description = {.size = sizeof description};
    fl_kernel_info info = {.size = sizeof info};
    fl_device_info device = {.size = sizeof device};
    ok(!fl_describe(library, &description) && description.backend == FL_EMULATOR && !description.devices,
       "the emulator, no GPU");
    int own = 0, exact = 0;
    for (int32_t i = 0; i < description.kernels; i++) {
        const fl_status status = fl_kernel(library, i, &info);
        own += !status && info.own;
        exact += !status && !strcmp(info.archs, "sm_90a");
        if (status || !(info.features & FL_ANY_LENGTH) || info.config[0] != '(')
            ok(false, "kernel %d: %s %s", i, info.kernel, fl_error());
    }
    ok(description.kernels >= 18 && own >= 18 && own < description.kernels && exact > 0 && exact < description.kernels,
       "%d kernels, %d with their version's own config, %d for sm_90a alone", description.kernels, own, exact);
    ok(fl_kernel(library, description.kernels, &info) == FL_INVALID, "past the last");
    says(fl_error(), "the number of kernels", "past the last");
    ok(fl_device(library, 0, &device) == FL_INVALID, "no GPU to describe");
    says(fl_error(), "device 0: must be at least 0 and less than 0, the number of GPUs", "no GPU to describe");
    ok(fl_abi() == FL_ABI && strstr(fl_release(), FL_RELEASE), "%s", fl_release());
}

static void query(fl_library *library, const struct attention *attention) {
    fl_support support = {.size = sizeof support};
    fl_problem problem = attention->asked;
    char version[32];
    attention_version(library, problem.d_head, false, version);
    ok(!fl_query(library, &problem, &support) && !strcmp(support.kernel, version) && !support.measured,
       "best on the emulator: %s", support.order);
    says(support.order, "fastest on the emulator", "why");
    problem.d_head = 192;
    ok(!fl_query(library, &problem, &support) && strstr(support.config, ", 192, "), "best with d_head 192: %s %s",
       support.kernel, support.config);
    problem.d_head = 256;
    problem.version = "attention/wgmma";
    ok(!fl_query(library, &problem, &support) && strstr(support.order, "by name") && support.workspace_bytes == 0,
       "by name: %s; no workspace for host memory", support.order);
    ok(!fl_prepare(library, &problem), "prepared: %s", fl_error());
}

static void opening(void) {
    fl_library *library = NULL;
    ok(fl_open(FL_AUTO, NULL) == FL_INVALID, "nowhere to put the library");
    ok(fl_open((fl_backend)7, &library) == FL_INVALID && !library, "no such back end");
    says(fl_error(), "backend 7", "no such back end");
    fl_close(NULL);
}

/* ---- threads ---- */

struct worker {
    fl_library *library;
    struct attention attention;
    fl_status status;
    char text[200];
};

static void *work(void *context) {
    struct worker *const worker = context;
    fl_problem wrong = worker->attention.asked;
    worker->status = fl_forward(worker->library, &worker->attention.asked, &worker->attention.tensors, NULL);
    wrong.batch = -worker->attention.asked.seq_q;
    if (fl_forward(worker->library, &wrong, &worker->attention.tensors, NULL) == FL_INVALID)
        snprintf(worker->text, sizeof worker->text, "%s", fl_error());
    return NULL;
}

/* Each has its own problem, and fl_error() is each thread's own. */
static void eight_threads(fl_library *library) {
    enum { THREADS = 8 };
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.library = library};
        attention_new(&workers[i].attention, problem_of(1, 1, 3 + i, 20, 64));
    }
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, &workers[i])) abort();
    for (int i = 0; i < THREADS; i++) {
        char expected[40];
        pthread_join(threads[i], NULL);
        snprintf(expected, sizeof expected, "batch %d: must be", -(3 + i));
        ok(!workers[i].status && attention_right(&workers[i].attention), "thread %d: right", i);
        says(workers[i].text, expected, "its own error");
        attention_free(&workers[i].attention);
    }
}

int main(void) {
    fl_library *library;
    opening();
    if (!ok(!fl_open(FL_EMULATOR, &library), "the emulator opens: %s", fl_error())) return tap_done();
    description(library);
    eight_threads(library);
    results(library);
    seeds(library);
    arithmetic_of_the_caller(library);
    strides_of_the_host(library);
    nothing_to_do(library);
    struct attention attention;
    attention_new(&attention, problem_of(2, 2, 3, 4, 64));
    query(library, &attention);
    sizes(library, &attention);
    strides_and_addresses(library, &attention);
    structs_of_other_sizes(library, &attention);
    versions_and_configs(library, &attention);
    attention_free(&attention);
    fl_close(library);
    return tap_done();
}
