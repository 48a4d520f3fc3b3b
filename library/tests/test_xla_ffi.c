/* test_xla_ffi.c - the handlers as XLA calls them: a frame made here, with functions that keep what they are given. */
#include "common/tests/tap.h"
#include "include/flashladder.h"
#include "library/xla_ffi.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 64, KEYS = 80, HEADS = 2, D = 64 };

static char message[1024];
static int code;
static void *const stream_error = &code;
static uint16_t right[ROWS * HEADS * D]; /* O of fl_forward() */

static xla_error *make_error(xla_make_error *made) {
    snprintf(message, sizeof message, "%s", made->message);
    code = made->code;
    return (xla_error *)message;
}

/* There is no GPU here: XLA says so where it is asked for the stream. */
static xla_error *get_stream(xla_get_stream *asked) {
    (void)asked;
    return stream_error;
}

static const xla_api api = {.size = sizeof api, .make_error = make_error, .get_stream = get_stream};

/* One call: q [1, ROWS, HEADS, D], k and v [1, KEYS, 1, D]. */
typedef struct call {
    uint16_t q[ROWS * HEADS * D], k[KEYS * D], v[KEYS * D], o[ROWS * HEADS * D];
    float lse[HEADS * ROWS];
    int64_t q_dims[4], k_dims[4], lse_dims[3];
    xla_buffer buffers[5];
    int32_t causal;
    float scale;
    xla_scalar scalars[2];
    xla_bytes names[3], version;
    int kinds[8], attribute_kinds[3];
    void *arguments[8], *results[3], *attributes[3];
    xla_bytes *name_list[3];
    xla_frame frame;
} call;

static xla_bytes bytes_of(const char *text) {
    return (xla_bytes){.data = text, .size = strlen(text)};
}

static call *new_call(void) {
    call *c = calloc(1, sizeof *c);
    if (!c) abort();
    for (int i = 0; i < ROWS * HEADS * D; i++) c->q[i] = (uint16_t)(0x3000 + i * 37 % 2048);
    for (int i = 0; i < KEYS * D; i++) {
        c->k[i] = (uint16_t)((i % 3 ? 0x3000 : 0xb000) + i * 53 % 2048);
        c->v[i] = (uint16_t)(0x3400 + i * 29 % 2048);
    }
    memcpy(c->q_dims, (int64_t[]){1, ROWS, HEADS, D}, sizeof c->q_dims);
    memcpy(c->k_dims, (int64_t[]){1, KEYS, 1, D}, sizeof c->k_dims);
    memcpy(c->lse_dims, (int64_t[]){1, HEADS, ROWS}, sizeof c->lse_dims);
    void *const data[] = {c->q, c->k, c->v, c->o, c->lse};
    int64_t *const dims[] = {c->q_dims, c->k_dims, c->k_dims, c->q_dims, c->lse_dims};
    for (int i = 0; i < 5; i++)
        c->buffers[i] = (xla_buffer){.size = sizeof c->buffers[i],
                                     .type = i < 4 ? XLA_F16 : XLA_F32,
                                     .data = data[i],
                                     .rank = i < 4 ? 4 : 3,
                                     .dims = dims[i]};
    for (int i = 0; i < 8; i++) c->kinds[i] = XLA_BUFFER;
    for (int i = 0; i < 3; i++) {
        c->arguments[i] = &c->buffers[i];
        c->name_list[i] = &c->names[i];
    }
    c->results[0] = &c->buffers[3];
    c->results[1] = &c->buffers[4];
    c->causal = 1;
    c->scale = 0.25f;
    c->scalars[0] = (xla_scalar){.type = XLA_S32, .value = &c->causal};
    c->scalars[1] = (xla_scalar){.type = XLA_F32, .value = &c->scale};
    c->version = bytes_of("bestie");
    c->version.size = 4; /* strings of XLA have no zero byte */
    const char *const names[] = {"causal", "scale", "version"};
    void *const values[] = {&c->scalars[0], &c->scalars[1], &c->version};
    for (int i = 0; i < 3; i++) {
        c->names[i] = bytes_of(names[i]);
        c->attributes[i] = values[i];
        c->attribute_kinds[i] = i < 2 ? XLA_SCALAR : XLA_STRING;
    }
    c->frame =
        (xla_frame){.size = sizeof c->frame,
                    .api = &api,
                    .stage = XLA_EXECUTE,
                    .arguments = {.size = sizeof(xla_values), .count = 3, .kinds = c->kinds, .values = c->arguments},
                    .results = {.size = sizeof(xla_values), .count = 2, .kinds = c->kinds, .values = c->results},
                    .attributes = {.size = sizeof(xla_attributes),
                                   .count = 3,
                                   .kinds = c->attribute_kinds,
                                   .names = c->name_list,
                                   .values = c->attributes}};
    return c;
}

/* Pass these arrays after q, k and v. */
static void pass(call *c, xla_buffer *more, int count) {
    for (int i = 0; i < count; i++) c->arguments[3 + i] = &more[i];
    c->frame.arguments.count = 3 + count;
}

/* The call as fl_forward() takes it, up to what a test adds. */
static fl_problem problem_of(const call *c) {
    return (fl_problem){.size = sizeof(fl_problem),
                        .memory = FL_HOST_MEMORY,
                        .device = -1,
                        .batch = 1,
                        .heads = HEADS,
                        .kv_heads = 1,
                        .seq_q = ROWS,
                        .seq_k = KEYS,
                        .d_head = D,
                        .causal = c->causal,
                        .scale = c->scale};
}

static fl_tensors tensors_of(const call *c) {
    return (fl_tensors){.size = sizeof(fl_tensors), .q = c->q, .k = c->k, .v = c->v};
}

/* True if O and log-sum-exp of a handler equal what fl_forward() computes of the same; that O is kept in `right`. */
static void same_as_forward(const call *c, const fl_problem *problem, fl_tensors tensors) {
    static float lse[HEADS * ROWS];
    fl_library *library;
    tensors.o = right, tensors.lse = lse;
    memset(right, 0, sizeof right);
    ok(!fl_open(FL_AUTO, &library) && !fl_forward(library, problem, &tensors, NULL), "fl_forward: %s", fl_error());
    fl_close(library);
    bool same = !memcmp(right, c->o, 2 * (size_t)problem->seq_q * HEADS * (size_t)problem->d_head), any = false;
    for (int i = 0; i < HEADS * problem->seq_q; i++) same = same && lse[i] == c->lse[i];
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) any = any || right[i];
    ok(same && any, "both results are what fl_forward computes");
}

/* A call that is rejected with this sentence. */
static void rejects(xla_error *(*handler)(xla_frame *), call *c, const char *words) {
    message[0] = 0;
    ok(handler(&c->frame) && strstr(message, words), "%s: %s", words, message);
}

static void test_result(void) {
    call *c = new_call();
    const fl_problem problem = problem_of(c);
    ok(!fl_xla_ffi_attention_host(&c->frame), "a call in host memory succeeds: %s", message);
    same_as_forward(c, &problem, tensors_of(c));
    memset(c->o, 0, sizeof c->o);
    c->frame.results.count = 1;
    ok(!fl_xla_ffi_attention_host(&c->frame) && !memcmp(right, c->o, sizeof right), "log-sum-exp may be left out");
    free(c);
}

/* Call with one packed sequence: tensors without their first dimension, and where it begins and ends.
 * XLA gives the handler attributes in any order. */
static void test_packed_gradients(call *c, xla_buffer more[5], void *arguments[8], const uint16_t *right_dq) {
    enum { ATTRIBUTES = 5 };
    int32_t sizes[] = {ROWS, KEYS}, starts[2][2] = {{0, ROWS}, {0, KEYS}};
    int64_t two = 2, none = 0;
    xla_buffer offsets[2], *const buffers[] = {&c->buffers[0], &c->buffers[1], &c->buffers[2],
                                               &c->buffers[3], &c->buffers[4], &more[0],
                                               &more[1],       &more[2],       &more[3]};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) buffers[i]->rank--, buffers[i]->dims++;
    for (int i = 0; i < 2; i++) {
        offsets[i] =
            (xla_buffer){.size = sizeof offsets[i], .type = XLA_S32, .data = starts[i], .rank = 1, .dims = &two};
        arguments[6 + i] = &offsets[i];
    }
    xla_scalar scalars[] = {{.type = XLA_S32, .value = &sizes[0]}, {.type = XLA_S32, .value = &sizes[1]}};
    xla_bytes names[] = {bytes_of("seq_q"), bytes_of("seq_k")};
    xla_bytes *all_names[ATTRIBUTES] = {&names[0], &names[1], c->name_list[0], c->name_list[1], c->name_list[2]};
    void *values[ATTRIBUTES] = {&scalars[0], &scalars[1], c->attributes[0], c->attributes[1], c->attributes[2]};
    int kinds[ATTRIBUTES] = {XLA_SCALAR, XLA_SCALAR, XLA_SCALAR, XLA_SCALAR, XLA_STRING};
    c->frame.attributes = (xla_attributes){
        .size = sizeof(xla_attributes), .count = ATTRIBUTES, .kinds = kinds, .names = all_names, .values = values};
    c->frame.arguments.count = 8;
    memset(more[1].data, 0, ROWS * HEADS * D * sizeof(uint16_t));
    ok(!fl_xla_ffi_backward_host(&c->frame) && !memcmp(more[1].data, right_dq, ROWS * HEADS * D * sizeof(uint16_t)),
       "a pack of one sequence has the same gradients: %s", message);
    offsets[1].dims = &none;
    rejects(fl_xla_ffi_backward_host, c, "packed sequences need cu_seqlens_q");
    more[0].dims--;
    rejects(fl_xla_ffi_backward_host, c, "o must be [tokens, heads, d_head]");
}

/* The gradients of a call: what fl_backward() itself computes. */
static void test_gradients(void) {
    static uint16_t dout[ROWS * HEADS * D], dq[ROWS * HEADS * D], dk[KEYS * D], dv[KEYS * D];
    static uint16_t right_dq[ROWS * HEADS * D], right_dk[KEYS * D], right_dv[KEYS * D];
    static float room[1];
    call *c = new_call();
    if (fl_xla_ffi_attention_host(&c->frame)) abort();
    for (int i = 0; i < ROWS * HEADS * D; i++) dout[i] = (uint16_t)(0x2c00 + i * 41 % 2048);
    int64_t words = sizeof room / sizeof *room;
    xla_buffer more[] = {c->buffers[3], c->buffers[0], c->buffers[1], c->buffers[2], c->buffers[4]};
    void *const data[] = {dout, dq, dk, dv, room};
    for (int i = 0; i < 5; i++) more[i].data = data[i];
    more[4].rank = 1, more[4].dims = &words;
    void *arguments[8] = {&more[0], &c->buffers[0], &c->buffers[1], &c->buffers[2], &c->buffers[3], &c->buffers[4]};
    void *results[] = {&more[1], &more[2], &more[3], &more[4]};
    int kinds[8];
    for (int i = 0; i < 8; i++) kinds[i] = XLA_BUFFER;
    c->frame.arguments = (xla_values){.size = sizeof(xla_values), .count = 6, .kinds = kinds, .values = arguments};
    c->frame.results = (xla_values){.size = sizeof(xla_values), .count = 4, .kinds = kinds, .values = results};
    ok(!fl_xla_ffi_backward_host(&c->frame), "gradients of a call in host memory: %s", message);
    const fl_problem problem = problem_of(c);
    fl_tensors tensors = tensors_of(c);
    tensors.o = c->o, tensors.lse = c->lse;
    const fl_gradients gradients = {
        .size = sizeof gradients, .dout = dout, .dq = right_dq, .dk = right_dk, .dv = right_dv};
    fl_library *library;
    ok(!fl_open(FL_AUTO, &library) && !fl_backward(library, &problem, &tensors, &gradients, NULL), "fl_backward: %s",
       fl_error());
    fl_close(library);
    ok(!memcmp(dk, right_dk, sizeof dk) && !memcmp(dv, right_dv, sizeof dv), "they are what fl_backward computes");
    bool any = false;
    for (int i = 0; i < ROWS * HEADS * D; i++) any = any || dq[i];
    ok(any && !memcmp(dq, right_dq, sizeof dq), "dq, too");
    c->frame.results.count = 3;
    rejects(fl_xla_ffi_backward_host, c, "and a workspace");
    c->frame.results.count = 4;
    more[1].dims = c->k_dims;
    rejects(fl_xla_ffi_backward_host, c, "gradients must have the shapes");
    more[1].dims = c->q_dims;
    test_packed_gradients(c, more, arguments, right_dq);
    free(c);
}

/* The attributes of fl_xla_ffi_serve; the last five, of e4m3, dropout and block masks, may be missing. */
enum { NUMBERS = 7, OF_ALL = NUMBERS + 4, ATTRIBUTES = OF_ALL + 5 };

typedef struct attributes {
    int32_t numbers[NUMBERS], sums, scale_keys, mask_queries, mask_keys; /* numbers: from `arrays` to `split_keys` */
    float softcap, dropout_p;
    xla_scalar scalars[ATTRIBUTES];
    xla_bytes names[ATTRIBUTES], *name_list[ATTRIBUTES];
    int kinds[ATTRIBUTES];
    void *values[ATTRIBUTES];
} attributes;

static void set_attributes(call *c, attributes *a, int count) {
    static const char *const names[ATTRIBUTES] = {
        "arrays", "seq_q", "seq_k",   "windowed", "window_left", "window_right", "split_keys",   "softcap",
        "causal", "scale", "version", "sums",     "scale_keys",  "dropout_p",    "mask_queries", "mask_keys"};
    void *const pointers[] = {&a->softcap,    &c->causal,    &c->scale,        &c->version,  &a->sums,
                              &a->scale_keys, &a->dropout_p, &a->mask_queries, &a->mask_keys};
    const int types[] = {XLA_F32, XLA_S32, XLA_F32, 0, XLA_S32, XLA_S32, XLA_F32, XLA_S32, XLA_S32};
    for (int i = 0; i < ATTRIBUTES; i++) {
        const bool number = i < NUMBERS, string = i == OF_ALL - 1;
        a->scalars[i] = (xla_scalar){.type = number ? XLA_S32 : types[i - NUMBERS],
                                     .value = number ? &a->numbers[i] : pointers[i - NUMBERS]};
        a->names[i] = bytes_of(names[i]);
        a->name_list[i] = &a->names[i];
        a->kinds[i] = string ? XLA_STRING : XLA_SCALAR;
        a->values[i] = string ? (void *)&c->version : (void *)&a->scalars[i];
    }
    c->frame.attributes = (xla_attributes){
        .size = sizeof(xla_attributes), .count = count, .kinds = a->kinds, .names = a->name_list, .values = a->values};
}

/* A call with used keys and a window, as attributes and arguments of their own. */
static void test_serving(void) {
    attributes attributes = {.numbers = {FL_SEQLENS_K, 0, 0, 1, 5, -1, 0}};
    int32_t *const numbers = attributes.numbers, keys = 50;
    int64_t one = 1;
    call *c = new_call();
    set_attributes(c, &attributes, OF_ALL);
    xla_buffer used = {.size = sizeof used, .type = XLA_S32, .data = &keys, .rank = 1, .dims = &one};
    pass(c, &used, 1);
    ok(!fl_xla_ffi_serve_host(&c->frame), "a call with used keys and a window: %s", message);
    fl_problem problem = problem_of(c);
    fl_tensors tensors = tensors_of(c);
    problem.arrays = FL_SEQLENS_K, problem.windowed = 1, problem.window_left = 5, problem.window_right = -1;
    tensors.seqlens_k = &keys;
    same_as_forward(c, &problem, tensors);
    used.type = XLA_F32;
    rejects(fl_xla_ffi_serve_host, c, "seqlens_k must be int32, 1 elements");
    used.type = XLA_S32;
    c->frame.arguments.count = 3;
    rejects(fl_xla_ffi_serve_host, c, "seqlens_k must be int32");
    c->frame.arguments.count = 0;
    rejects(fl_xla_ffi_serve_host, c, "must have 4 dimensions, and 3");
    c->frame.arguments.count = 4;
    numbers[0] = 0;
    rejects(fl_xla_ffi_serve_host, c, "4 arguments: must be 3");
    numbers[0] = FL_K_SCALES;
    rejects(fl_xla_ffi_serve_host, c, "k_scales must be float32, 1 elements");
    float k_scale = 1;
    used.type = XLA_F32, used.data = &k_scale;
    rejects(fl_xla_ffi_serve_host, c, "k_scales: requires kv_dtype");
    used.type = XLA_S32, used.data = &keys;
    numbers[0] = FL_CU_SEQLENS_Q;
    rejects(fl_xla_ffi_serve_host, c, "must have 3 dimensions, and 2");
    numbers[0] = FL_SEQLENS_K;
    attributes.names[2] = bytes_of("keys");
    rejects(fl_xla_ffi_serve_host, c, "attribute seq_k (int32) is missing");
    free(c);
}

/* Q, K and V as bytes, with factors of Q and of blocks of keys, and O in bf16. */
static void test_e4m3(void) {
    enum { BLOCKS = 2 };
    attributes attributes = {.numbers = {FL_Q_SCALES | FL_K_SCALES}, .sums = FL_SUMS_ACCURATE, .scale_keys = 64};
    float q_scales[HEADS] = {0.5f, 2}, k_scales[BLOCKS] = {0.25f, 1};
    int64_t heads = HEADS, blocks = BLOCKS;
    call *c = new_call();
    set_attributes(c, &attributes, ATTRIBUTES);
    for (int i = 0; i < 4; i++) c->buffers[i].type = i < 3 ? XLA_F8E4M3FN : XLA_BF16;
    xla_buffer more[] = {{.type = XLA_F32, .data = k_scales, .rank = 1, .dims = &blocks},
                         {.type = XLA_F32, .data = q_scales, .rank = 1, .dims = &heads}};
    pass(c, more, 2);
    for (int i = 0; i < ROWS * HEADS * D; i++) c->q[i] &= 0x3f3f; /* no byte is NaN */
    for (int i = 0; i < KEYS * D; i++) c->k[i] &= 0x3f3f, c->v[i] &= 0x3f3f;
    ok(!fl_xla_ffi_serve_host(&c->frame), "a call in e4m3: %s", message);
    fl_problem problem = problem_of(c);
    fl_tensors tensors = tensors_of(c);
    problem.dtype = FL_BF16, problem.kv_dtype = problem.q_dtype = FL_E4M3;
    problem.arrays = FL_Q_SCALES | FL_K_SCALES, problem.sums = FL_SUMS_ACCURATE, problem.scale_keys = 64;
    tensors.q_scales = q_scales, tensors.k_scales = k_scales;
    same_as_forward(c, &problem, tensors);
    c->buffers[3].type = XLA_F8E4M3FN;
    ok(!fl_xla_ffi_serve_host(&c->frame) && memcmp(right, c->o, sizeof right / 2), "O may be e4m3: %s", message);
    attributes.sums = 7;
    rejects(fl_xla_ffi_serve_host, c, "sums 7");
    for (int i = 0; i < 3; i++) {
        c->buffers[i].type = XLA_BF16;
        rejects(fl_xla_ffi_serve_host, c, "or q, k and v, float8_e4m3fn");
    }
    free(c);
}

/* K and V as bytes with Q in fp16: pages with used keys, and scales after the table of pages. */
static void test_e4m3_cache(void) {
    enum { FEW = 3, WIDE = 2 * D, PAGE = 16, PAGES = KEYS / PAGE };
    attributes attributes = {.numbers = {FL_SEQLENS_K | FL_BLOCK_TABLE | FL_K_SCALES | FL_V_SCALES}};
    int32_t keys = 50, table[PAGES - 1] = {4, 0, 3, 1};
    float k_scale = 0.25f, v_scale = 2;
    int64_t one = 1, of_table[] = {1, PAGES - 1};
    call *c = new_call();
    set_attributes(c, &attributes, OF_ALL);
    memcpy(c->q_dims, (int64_t[]){1, FEW, HEADS, WIDE}, sizeof c->q_dims);
    memcpy(c->k_dims, (int64_t[]){PAGES, PAGE, 1, WIDE}, sizeof c->k_dims);
    c->lse_dims[2] = FEW;
    c->buffers[1].type = c->buffers[2].type = XLA_F8E4M3FN;
    for (int i = 0; i < KEYS * D; i++) c->k[i] &= 0xbf3f, c->v[i] &= 0x3f3f; /* no byte is NaN */
    xla_buffer more[] = {{.type = XLA_S32, .data = &keys, .rank = 1, .dims = &one},
                         {.type = XLA_S32, .data = table, .rank = 2, .dims = of_table},
                         {.type = XLA_F32, .data = &k_scale, .rank = 1, .dims = &one},
                         {.type = XLA_F32, .data = &v_scale, .rank = 1, .dims = &one}};
    pass(c, more, 4);
    ok(!fl_xla_ffi_serve_host(&c->frame), "a cache of e4m3: %s", message);
    fl_problem problem = problem_of(c);
    fl_tensors tensors = tensors_of(c);
    problem.seq_q = FEW, problem.seq_k = (PAGES - 1) * PAGE, problem.d_head = WIDE, problem.kv_dtype = FL_E4M3;
    problem.arrays = (uint32_t)attributes.numbers[0];
    problem.n_pages = PAGES, problem.page_rows = PAGE, problem.pages_of_sequence = PAGES - 1;
    tensors.seqlens_k = &keys, tensors.block_table = table, tensors.k_scales = &k_scale, tensors.v_scales = &v_scale;
    same_as_forward(c, &problem, tensors);
    c->buffers[1].type = c->buffers[2].type = XLA_S8, problem.kv_dtype = FL_INT8;
    ok(!fl_xla_ffi_serve_host(&c->frame), "a cache of int8: %s", message);
    same_as_forward(c, &problem, tensors);
    more[3].type = XLA_S32;
    rejects(fl_xla_ffi_serve_host, c, "v_scales must be float32, 1 elements");
    more[3].type = XLA_F32, of_table[0] = 2;
    rejects(fl_xla_ffi_serve_host, c, "block_table must be int32, [batch");
    of_table[0] = 1, c->buffers[3].type = XLA_BF16;
    rejects(fl_xla_ffi_serve_host, c, "float8_e4m3fn");
    c->buffers[3].type = c->buffers[2].type = XLA_F16;
    rejects(fl_xla_ffi_serve_host, c, "float8_e4m3fn");
    free(c);
}

/* Dropout and a block mask that hides one head, with the largest scores as a third result. */
static void test_extended(void) {
    enum { BLOCK = 128 };
    attributes attributes = {.numbers = {FL_MAX_LOGITS | FL_RNG_STATE | FL_BLOCK_MASK},
                             .dropout_p = 0.25f,
                             .mask_queries = BLOCK,
                             .mask_keys = BLOCK};
    int64_t state[] = {-3, (int64_t)1 << 40}, four = 4, of_blocks[] = {1, HEADS, 1, 1}, of_most[] = {1, HEADS};
    uint8_t blocks[HEADS] = {1, 0};
    float most[HEADS], right_most[HEADS];
    call *c = new_call();
    set_attributes(c, &attributes, ATTRIBUTES);
    xla_buffer more[] = {{.type = XLA_S32, .data = state, .rank = 1, .dims = &four},
                         {.type = XLA_U8, .data = blocks, .rank = 4, .dims = of_blocks},
                         {.type = XLA_F32, .data = most, .rank = 2, .dims = of_most}};
    pass(c, more, 2);
    c->results[2] = &more[2], c->frame.results.count = 3;
    ok(!fl_xla_ffi_serve_host(&c->frame), "dropout and a block mask: %s", message);
    fl_problem problem = problem_of(c);
    fl_tensors tensors = tensors_of(c);
    problem.arrays = (uint32_t)attributes.numbers[0], problem.dropout_p = attributes.dropout_p;
    problem.mask_queries = problem.mask_keys = BLOCK, problem.block_mask.head = 1;
    tensors.rng_state = state, tensors.block_mask = blocks, tensors.max_logits = right_most;
    same_as_forward(c, &problem, tensors);
    ok(most[0] == right_most[0] && most[0] > 0 && most[1] == right_most[1] && most[1] < -1e38f, "the largest scores");
    of_blocks[3] = 2;
    rejects(fl_xla_ffi_serve_host, c, "block_mask must be bool or uint8");
    attributes.mask_keys = 0;
    rejects(fl_xla_ffi_serve_host, c, "block_mask needs the attributes mask_queries");
    four = 2;
    rejects(fl_xla_ffi_serve_host, c, "rng_state must be int32, 4 elements");
    of_most[1] = 1;
    rejects(fl_xla_ffi_serve_host, c, "max_logits, the third result, must be");
    free(c);
}

/* The strings of XLA have no zero byte. Nothing is called between these calls, so what the first wrote on the stack is
 * still after the name of the second. */
static void test_end_of_version(void) {
    call *longest = new_call(), *after = new_call();
    longest->version = bytes_of("a name of thirty-one characters");
    const xla_error *const unknown = fl_xla_ffi_attention_host(&longest->frame);
    const xla_error *const wrong = fl_xla_ffi_attention_host(&after->frame);
    ok(unknown && !wrong, "a version is the bytes of its size and no more: %s", message);
    longest->version = bytes_of("a name of thirty-two characters.");
    ok(fl_xla_ffi_attention_host(&longest->frame) != NULL, "a name without room for its end");
    says(message, "version (a string shorter than 32)", "a name without room for its end");
    free(longest);
    free(after);
}

static void test_registration(void) {
    call *c = new_call();
    xla_metadata metadata = {.size = sizeof metadata, .traits = 7};
    xla_metadata_extension extension = {.base = {.size = sizeof extension, .kind = XLA_METADATA},
                                        .metadata = &metadata};
    xla_extension other = {.size = sizeof other, .kind = 99, .next = &extension.base};
    c->frame.extensions = &other;
    ok(!fl_xla_ffi_attention(&c->frame) && metadata.version.major == 0 && metadata.version.minor == 1 &&
           metadata.traits == 0,
       "a handler tells its version and computes nothing");
    c->frame.extensions = NULL;
    c->frame.stage = 0;
    ok(!fl_xla_ffi_attention(&c->frame), "stages before the execution do nothing");
    c->frame.stage = XLA_EXECUTE;
    ok(fl_xla_ffi_attention(&c->frame) == stream_error, "where XLA gives no stream, its error is the result");
    free(c);
}

/* A call of new_call() that a test has spoiled fails with this code. */
static void fails(call *c, int expected, const char *word, const char *what) {
    message[0] = '\0';
    code = 0;
    const xla_error *refused = fl_xla_ffi_attention_host(&c->frame);
    ok(refused && code == expected, "%s: code %d", what, code);
    says(message, word, what);
    free(c);
}

static void test_errors(void) {
    call *c = new_call();
    c->frame.arguments.count = 2;
    fails(c, XLA_INVALID_ARGUMENT, "q, k, v and o", "two arguments");
    (c = new_call())->buffers[0].rank = 3;
    fails(c, XLA_INVALID_ARGUMENT, "4 dimensions", "q of 3 dimensions");
    (c = new_call())->buffers[1].type = XLA_BF16;
    fails(c, XLA_INVALID_ARGUMENT, "float16", "k of another type");
    c = new_call();
    for (int i = 0; i < 4; i++) c->buffers[i].type = XLA_F32;
    fails(c, XLA_INVALID_ARGUMENT, "bfloat16", "float32");
    (c = new_call())->k_dims[3] = 32;
    fails(c, XLA_INVALID_ARGUMENT, "o must have the shape of q", "k of another d_head");
    (c = new_call())->k_dims[1] = (int64_t)1 << 33;
    fails(c, XLA_INVALID_ARGUMENT, "o must have the shape of q", "more keys than 32 bits count");
    (c = new_call())->lse_dims[1] = 1;
    fails(c, XLA_INVALID_ARGUMENT, "[batch, heads, seq_q]", "log-sum-exp of another shape");
    (c = new_call())->names[1] = bytes_of("scales");
    fails(c, XLA_INVALID_ARGUMENT, "scale", "no scale");
    (c = new_call())->scalars[1].type = XLA_S32;
    fails(c, XLA_INVALID_ARGUMENT, "scale (float32)", "a scale that is an integer");
    (c = new_call())->version = bytes_of("a name that is longer than any version's");
    fails(c, XLA_INVALID_ARGUMENT, "version", "a long version");
    (c = new_call())->version = bytes_of("v99");
    fails(c, XLA_INVALID_ARGUMENT, "v99", "a version that does not exist");
    c = new_call();
    c->q_dims[2] = c->lse_dims[1] = 1, c->k_dims[2] = 2;
    fails(c, XLA_INVALID_ARGUMENT, "heads", "more KV heads than heads");
    (c = new_call())->q_dims[3] = 44, c->k_dims[3] = 44;
    fails(c, XLA_UNIMPLEMENTED, "44", "a d_head that no version has");
}

int main(void) {
    test_registration();
    test_result();
    test_gradients();
    test_serving();
    test_e4m3();
    test_e4m3_cache();
    test_extended();
    test_end_of_version();
    test_errors();
    return tap_done();
}
