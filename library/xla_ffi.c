#include "library/xla_ffi.h"
#include "include/flashladder.h"
#include "library/serving.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { DIMS = 4, MESSAGE = 1024 };

/* The one library of all calls, opened by the first. XLA gives a handler no state to keep it in and calls handlers from
 * any thread, also while the process ends, so nothing closes it. */
static struct {
    pthread_once_t once;
    fl_library *library; /* NULL: it could not be opened, see `why` */
    char why[MESSAGE];
} shared = {.once = PTHREAD_ONCE_INIT};

static void open_shared(void) {
    if (fl_open(FL_AUTO, &shared.library)) snprintf(shared.why, sizeof shared.why, "%s", fl_error());
}

static xla_error *__attribute__((format(printf, 3, 4))) error(const xla_frame *frame, xla_code code, const char *format,
                                                              ...) {
    char message[MESSAGE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return frame->api->make_error(&(xla_make_error){.size = sizeof(xla_make_error), .message = message, .code = code});
}

static xla_error *failed(const xla_frame *frame, fl_status status) {
    static const xla_code codes[] = {[FL_ERROR] = XLA_INTERNAL,
                                     [FL_INVALID] = XLA_INVALID_ARGUMENT,
                                     [FL_UNSUPPORTED] = XLA_UNIMPLEMENTED,
                                     [FL_UNAVAILABLE] = XLA_UNAVAILABLE};
    return error(frame, codes[status], "flashladder: %s", fl_error());
}

/* The attribute of that name and kind, or NULL. */
static void *attribute(const xla_frame *frame, const char *name, int kind) {
    const xla_attributes *all = &frame->attributes;
    for (int64_t i = 0; i < all->count; i++) {
        const xla_bytes *given = all->names[i];
        if (given->size == strlen(name) && !memcmp(given->data, name, given->size))
            return all->kinds[i] == kind ? all->values[i] : NULL;
    }
    return NULL;
}

static void *scalar(const xla_frame *frame, const char *name, xla_type type) {
    const xla_scalar *found = attribute(frame, name, XLA_SCALAR);
    return found && found->type == (int)type ? found->value : NULL;
}

/* Tensor i of a list, NULL unless it is an array of `rank` dimensions. */
static const xla_buffer *tensor(const xla_values *list, int64_t i, int64_t rank) {
    const xla_buffer *buffer = i >= 0 && i < list->count && list->kinds[i] == XLA_BUFFER ? list->values[i] : NULL;
    return buffer && buffer->rank == rank ? buffer : NULL;
}

static bool same_dims(const xla_buffer *a, const xla_buffer *b) {
    return a->rank == b->rank && !memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims);
}

/* True if the dimensions are equal but for the last one. */
static bool same_rows(const xla_buffer *a, const xla_buffer *b) {
    return a->rank == b->rank && !memcmp(a->dims, b->dims, (size_t)(a->rank - 1) * sizeof *a->dims);
}

static bool fits(const xla_buffer *buffer) {
    for (int64_t i = 0; i < buffer->rank; i++)
        if (buffer->dims[i] < 0 || buffer->dims[i] > INT32_MAX) return false;
    return true;
}

/* One call, as the frame says it. */
typedef struct call {
    fl_problem problem;
    fl_tensors tensors;
    char version[32];
} call;

/* From q, k, v, o and log-sum-exp, which may be NULL. */
static xla_error *read_shapes(const xla_frame *frame, const xla_buffer *q, const xla_buffer *k, const xla_buffer *v,
                              const xla_buffer *o, const xla_buffer *lse, call *call) {
    if ((q->type != XLA_F16 && q->type != XLA_BF16) || k->type != q->type || v->type != q->type || o->type != q->type)
        return error(frame, XLA_INVALID_ARGUMENT, "q, k, v and o must be all float16 or all bfloat16");
    if (!same_rows(k, v) || !same_rows(q, o) || q->dims[0] != k->dims[0] || q->dims[3] != k->dims[3] ||
        o->dims[3] != v->dims[3] || !fits(q) || !fits(k) || !fits(v))
        return error(frame, XLA_INVALID_ARGUMENT,
                     "o must have the shape of q and v that of k, but the last dimension of o is that of v; q and k "
                     "must agree in batch and d_head");
    if (lse && (lse->type != XLA_F32 || lse->dims[0] != q->dims[0] || lse->dims[1] != q->dims[2] ||
                lse->dims[2] != q->dims[1]))
        return error(frame, XLA_INVALID_ARGUMENT, "log-sum-exp must be float32 [batch, heads, seq_q]");
    call->problem = (fl_problem){.size = sizeof call->problem,
                                 .dtype = q->type == XLA_F16 ? FL_FP16 : FL_BF16,
                                 .device = -1,
                                 .batch = (int32_t)q->dims[0],
                                 .heads = (int32_t)q->dims[2],
                                 .kv_heads = (int32_t)k->dims[2],
                                 .seq_q = (int32_t)q->dims[1],
                                 .seq_k = (int32_t)k->dims[1],
                                 .d_head = (int32_t)q->dims[3],
                                 .d_head_v = (int32_t)v->dims[3]};
    call->tensors = (fl_tensors){.size = sizeof call->tensors,
                                 .q = q->data,
                                 .k = k->data,
                                 .v = v->data,
                                 .o = o->data,
                                 .lse = lse ? lse->data : NULL};
    return NULL;
}

static xla_error *read_tensors(const xla_frame *frame, call *call) {
    const xla_buffer *q = tensor(&frame->arguments, 0, DIMS), *k = tensor(&frame->arguments, 1, DIMS),
                     *v = tensor(&frame->arguments, 2, DIMS), *o = tensor(&frame->results, 0, DIMS),
                     *lse = tensor(&frame->results, 1, DIMS - 1);
    if (!q || !k || !v || !o || frame->arguments.count != 3 || frame->results.count != (lse ? 2 : 1))
        return error(frame, XLA_INVALID_ARGUMENT,
                     "q, k, v and o must have 4 dimensions, and the optional log-sum-exp 3");
    return read_shapes(frame, q, k, v, o, lse, call);
}

/* Operands of a backward call in addition to those of the forward call. */
static xla_error *read_gradients(const xla_frame *frame, call *call, fl_gradients *gradients, int64_t *workspace) {
    const xla_buffer *in[5], *out[3], *lse = tensor(&frame->arguments, 5, DIMS - 1),
                                      *room = tensor(&frame->results, 3, 1);
    bool there = lse && room && room->type == XLA_F32 && frame->arguments.count == 6 && frame->results.count == 4;
    for (int i = 0; i < 5; i++) there = (in[i] = tensor(&frame->arguments, i, DIMS)) && there;
    for (int i = 0; i < 3; i++) there = (out[i] = tensor(&frame->results, i, DIMS)) && there;
    if (!there)
        return error(frame, XLA_INVALID_ARGUMENT,
                     "dout, q, k, v and o must have 4 dimensions and log-sum-exp 3; the results are dq, dk, dv "
                     "and a workspace of float32");
    xla_error *const wrong = read_shapes(frame, in[1], in[2], in[3], in[4], lse, call);
    if (wrong) return wrong;
    for (int i = 0; i < 3; i++) there = same_dims(in[1 + i], out[i]) && in[1]->type == out[i]->type && there;
    if (!there || !same_dims(in[0], in[4]) || in[0]->type != in[4]->type)
        return error(frame, XLA_INVALID_ARGUMENT, "gradients must have the shapes and the type of q, k, v and o");
    *gradients = (fl_gradients){
        .size = sizeof *gradients, .dout = in[0]->data, .dq = out[0]->data, .dk = out[1]->data, .dv = out[2]->data};
    call->tensors.workspace = room->data;
    *workspace = (int64_t)sizeof(float) * room->dims[0];
    return NULL;
}

/* Number of operands for packed sequences: offsets of queries and of keys follow log-sum-exp. */
enum { PACKED_ARGUMENTS = 8 };

static xla_error *read_packed_sizes(const xla_frame *frame, call *call, const xla_buffer *q, const xla_buffer *k) {
    const int32_t *const seq_q = scalar(frame, "seq_q", XLA_S32), *const seq_k = scalar(frame, "seq_k", XLA_S32);
    const xla_buffer *const of_q = tensor(&frame->arguments, 6, 1), *const of_k = tensor(&frame->arguments, 7, 1);
    if (!seq_q || !seq_k || !of_q || !of_k || of_q->type != XLA_S32 || of_k->type != XLA_S32 || !fits(of_q) ||
        !same_dims(of_q, of_k) || of_q->dims[0] < 1)
        return error(frame, XLA_INVALID_ARGUMENT,
                     "packed sequences need cu_seqlens_q and cu_seqlens_k, int32 [batch + 1], and the attributes seq_q "
                     "and seq_k (int32)");
    call->problem.batch = (int32_t)(of_q->dims[0] - 1);
    call->problem.arrays = FL_CU_SEQLENS_Q | FL_CU_SEQLENS_K;
    call->problem.total_q = (int32_t)q->dims[0], call->problem.total_k = (int32_t)k->dims[0];
    call->problem.seq_q = *seq_q, call->problem.seq_k = *seq_k;
    call->tensors.cu_seqlens_q = of_q->data, call->tensors.cu_seqlens_k = of_k->data;
    return NULL;
}

static xla_error *read_packed_gradients(const xla_frame *frame, call *call, fl_gradients *gradients,
                                        int64_t *workspace) {
    enum { RANK = DIMS - 1 };
    const xla_buffer *in[5], *out[3], *lse = tensor(&frame->arguments, 5, RANK - 1),
                                      *room = tensor(&frame->results, 3, 1);
    bool there = lse && room && lse->type == XLA_F32 && room->type == XLA_F32 && frame->results.count == 4;
    for (int i = 0; i < 5; i++) there = (in[i] = tensor(&frame->arguments, i, RANK)) && fits(in[i]) && there;
    for (int i = 0; i < 3; i++) there = (out[i] = tensor(&frame->results, i, RANK)) && there;
    const xla_buffer *const q = in[1], *const k = in[2];
    for (int i = 0; i < 3 && there; i++) there = same_dims(in[1 + i], out[i]) && out[i]->type == q->type;
    if (!there || !same_dims(in[0], q) || !same_dims(in[4], q) || !same_dims(k, in[3]) || k->dims[2] != q->dims[2] ||
        in[0]->type != q->type || k->type != q->type || in[3]->type != q->type || in[4]->type != q->type ||
        (q->type != XLA_F16 && q->type != XLA_BF16) || lse->dims[0] != q->dims[1] || lse->dims[1] != q->dims[0])
        return error(
            frame, XLA_INVALID_ARGUMENT,
            "dout, q, k, v and o must be [tokens, heads, d_head], all float16 or all bfloat16, and log-sum-exp "
            "[heads, tokens]; the results are dq, dk, dv and a float32 workspace");
    *call = (struct call){.problem = {.size = sizeof call->problem,
                                      .dtype = q->type == XLA_F16 ? FL_FP16 : FL_BF16,
                                      .device = -1,
                                      .heads = (int32_t)q->dims[1],
                                      .kv_heads = (int32_t)k->dims[1],
                                      .d_head = (int32_t)q->dims[2]},
                          .tensors = {.size = sizeof call->tensors,
                                      .q = q->data,
                                      .k = k->data,
                                      .v = in[3]->data,
                                      .o = in[4]->data,
                                      .lse = lse->data,
                                      .workspace = room->data}};
    *gradients = (fl_gradients){
        .size = sizeof *gradients, .dout = in[0]->data, .dq = out[0]->data, .dk = out[1]->data, .dv = out[2]->data};
    *workspace = (int64_t)sizeof(float) * room->dims[0];
    return read_packed_sizes(frame, call, q, k);
}

static xla_error *read_attributes(const xla_frame *frame, call *call) {
    const int32_t *causal = scalar(frame, "causal", XLA_S32);
    const float *scale = scalar(frame, "scale", XLA_F32);
    const xla_bytes *version = attribute(frame, "version", XLA_STRING);
    if (!causal || !scale || !version || version->size >= sizeof call->version)
        return error(frame, XLA_INVALID_ARGUMENT,
                     "flashladder needs the attributes causal (int32), scale (float32) and version (a string shorter "
                     "than %zu)",
                     sizeof call->version);
    memcpy(call->version, version->data, version->size);
    call->version[version->size] = '\0';
    call->problem.version = call->version;
    call->problem.causal = *causal;
    call->problem.scale = *scale;
    return NULL;
}

/* ---- several lengths, pages, windows, sinks and soft caps ---- */

enum { SCALES = FL_Q_SCALES | FL_K_SCALES | FL_V_SCALES | FL_O_SCALES };

/* Set the strides of an array with these sizes, of which the first `free` may be 1: these elements count for all. */
static bool broadcasts(const xla_buffer *array, const int64_t sizes[DIMS], int free, fl_strides *strides) {
    int64_t last = 1, *const of_dim[] = {&strides->batch, &strides->head, &strides->seq, &last}, step = 1;
    for (int d = DIMS - 1; d >= 0; d--) {
        if (array->dims[d] != sizes[d] && (array->dims[d] != 1 || d >= free)) return false;
        *of_dim[d] = array->dims[d] == 1 ? 0 : step;
        step *= array->dims[d];
    }
    return true;
}

static xla_error *read_bias(const xla_frame *frame, const xla_buffer *bias, call *call) {
    fl_problem *const problem = &call->problem;
    const int64_t sizes[] = {problem->batch, problem->heads, problem->seq_q, problem->seq_k};
    const int dtype = problem->dtype == FL_FP16 ? XLA_F16 : XLA_BF16;
    if (!bias || (bias->type != XLA_PRED && bias->type != dtype && bias->type != XLA_F32) ||
        !broadcasts(bias, sizes, DIMS - 1, &problem->bias))
        return error(frame, XLA_INVALID_ARGUMENT,
                     "bias must be bool, float32 or of the type of o, [batch or 1, heads or 1, seq_q or 1, "
                     "seq_k]");
    problem->bias_dtype = bias->type == XLA_PRED  ? FL_BIAS_BYTES
                          : bias->type == XLA_F32 ? FL_BIAS_FLOAT
                                                  : FL_BIAS_DTYPE;
    call->tensors.bias = bias->data;
    return NULL;
}

static xla_error *read_block_mask(const xla_frame *frame, const xla_buffer *mask, call *call) {
    fl_problem *const problem = &call->problem;
    const int64_t of_rows = problem->mask_queries, of_keys = problem->mask_keys;
    if (of_rows < 1 || of_keys < 1)
        return error(frame, XLA_INVALID_ARGUMENT, "block_mask needs the attributes mask_queries and mask_keys (int32)");
    const int64_t sizes[] = {problem->batch, problem->heads, (problem->seq_q + of_rows - 1) / of_rows,
                             (problem->seq_k + of_keys - 1) / of_keys};
    if (!mask || (mask->type != XLA_PRED && mask->type != XLA_U8) || !broadcasts(mask, sizes, 2, &problem->block_mask))
        return error(frame, XLA_INVALID_ARGUMENT,
                     "block_mask must be bool or uint8, [batch or 1, heads or 1, %lld blocks of queries, %lld blocks "
                     "of keys]",
                     (long long)sizes[2], (long long)sizes[3]);
    call->tensors.block_mask = mask->data;
    return NULL;
}

static xla_error *read_max_logits(const xla_frame *frame, call *call) {
    const xla_buffer *const most = tensor(&frame->results, 2, 2);
    if (!most || most->type != XLA_F32 || most->dims[0] != call->problem.batch || most->dims[1] != call->problem.heads)
        return error(frame, XLA_INVALID_ARGUMENT, "max_logits, the third result, must be float32 [batch, heads]");
    call->tensors.max_logits = most->data;
    return NULL;
}

/* An array that is a list of numbers of 4 bytes: seed and offset are four. */
static xla_error *read_list(const xla_frame *frame, int64_t at, int i, call *call) {
    const int64_t elements = serving_array_bytes(&call->problem, i) / 4;
    const bool table = 1 << i == FL_BLOCK_TABLE, floats = 1 << i & (FL_SINKS | SCALES | FL_ALIBI_SLOPES);
    const xla_buffer *const array = tensor(&frame->arguments, at, table ? 2 : 1);
    if (!array || array->type != (floats ? XLA_F32 : XLA_S32) ||
        array->dims[0] * (table ? array->dims[1] : 1) != elements)
        return error(frame, XLA_INVALID_ARGUMENT, "%s must be %s, %s%lld elements", serving_array_name(i),
                     floats ? "float32" : "int32", table ? "[batch, pages of a sequence], " : "", (long long)elements);
    serving_set_array(&call->tensors, i, (uint64_t)(uintptr_t)array->data);
    return NULL;
}

/* The arrays after q, k and v, which the attribute `arrays` names, and the largest scores among the results. */
static xla_error *read_arrays(const xla_frame *frame, call *call) {
    int64_t next = 3;
    for (int i = 0; i < N_ARRAYS; i++) {
        if (!(call->problem.arrays >> i & 1)) continue;
        const xla_buffer *const wide = tensor(&frame->arguments, next, DIMS);
        xla_error *const wrong = 1 << i == FL_BIAS         ? read_bias(frame, wide, call)
                                 : 1 << i == FL_BLOCK_MASK ? read_block_mask(frame, wide, call)
                                 : 1 << i == FL_MAX_LOGITS ? read_max_logits(frame, call)
                                                           : read_list(frame, next, i, call);
        if (wrong) return wrong;
        next += 1 << i != FL_MAX_LOGITS;
    }
    if (next == frame->arguments.count) return NULL;
    return error(frame, XLA_INVALID_ARGUMENT,
                 "%lld arguments: must be %lld: q, k, v and the arrays that `arrays` names",
                 (long long)frame->arguments.count, (long long)next);
}

/* The numbers of a call that are attributes of its own. */
static xla_error *read_numbers(const xla_frame *frame, call *call) {
    fl_problem *const problem = &call->problem;
    const struct {
        const char *name;
        int32_t *value;
        bool optional;
    } numbers[] = {{"seq_q", &problem->seq_q, false},
                   {"seq_k", &problem->seq_k, false},
                   {"windowed", &problem->windowed, false},
                   {"window_left", &problem->window_left, false},
                   {"window_right", &problem->window_right, false},
                   {"split_keys", &problem->split_keys, false},
                   {"sums", &problem->sums, true},
                   {"scale_keys", &problem->scale_keys, true},
                   {"alibi_batch", &problem->alibi_batch, true},
                   {"mask_queries", &problem->mask_queries, true},
                   {"mask_keys", &problem->mask_keys, true}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const int32_t *const given = scalar(frame, numbers[i].name, XLA_S32);
        if (!given && !numbers[i].optional)
            return error(frame, XLA_INVALID_ARGUMENT, "the attribute %s (int32) is missing", numbers[i].name);
        if (given) *numbers[i].value = *given;
    }
    const int32_t *const arrays = scalar(frame, "arrays", XLA_S32);
    const float *const softcap = scalar(frame, "softcap", XLA_F32), *const dropout =
                                                                        scalar(frame, "dropout_p", XLA_F32);
    if (!arrays || !softcap)
        return error(frame, XLA_INVALID_ARGUMENT, "the attributes arrays (int32) and softcap (float32) are required");
    problem->arrays = (uint32_t)*arrays;
    problem->softcap = *softcap;
    if (dropout) problem->dropout_p = *dropout;
    return NULL;
}

/* True if the types belong together: Q and O of one type of 16 bits, K and V of it, too, or of e4m3 or int8; or Q, K
 * and V of e4m3 and O of any type. */
static bool read_types(const xla_buffer *q, const xla_buffer *k, const xla_buffer *v, const xla_buffer *o,
                       fl_problem *problem) {
    const bool Q_e4m3 = q->type == XLA_F8E4M3FN, O_e4m3 = o->type == XLA_F8E4M3FN;
    const int32_t of_keys = k->type == XLA_F8E4M3FN ? FL_E4M3 : k->type == XLA_S8 ? FL_INT8 : 0;
    if (v->type != k->type || (!of_keys && k->type != q->type) || (!Q_e4m3 && o->type != q->type)) return false;
    problem->q_dtype = Q_e4m3 ? FL_E4M3 : 0;
    problem->kv_dtype = of_keys;
    problem->o_dtype = O_e4m3 ? FL_E4M3 : 0;
    problem->dtype = o->type == XLA_F16 ? FL_FP16 : FL_BF16;
    return o->type == XLA_F16 || o->type == XLA_BF16 || O_e4m3;
}

/* The table of pages, after q, k, v and the arrays of lower bits. */
static const xla_buffer *table_of_pages(const xla_frame *frame, uint32_t arrays) {
    int64_t i = 3;
    for (uint32_t bit = 1; bit < FL_BLOCK_TABLE; bit <<= 1) i += (arrays & bit) != 0;
    return tensor(&frame->arguments, i, 2);
}

/* From tensors of 4 dimensions, or of 3 if sequences are packed: the most rows are given then, of K
 * and V where they are not in pages. */
static xla_error *read_served(const xla_frame *frame, call *call) {
    *call = (struct call){.problem = {.size = sizeof call->problem, .device = -1},
                          .tensors = {.size = sizeof call->tensors}};
    xla_error *const wrong = read_numbers(frame, call);
    if (wrong) return wrong;
    fl_problem *const problem = &call->problem;
    const bool packed = problem->arrays & FL_CU_SEQLENS_Q, paged = problem->arrays & FL_BLOCK_TABLE;
    const int64_t rank = packed ? DIMS - 1 : DIMS, rank_k = paged ? DIMS : rank;
    const xla_buffer *q = tensor(&frame->arguments, 0, rank), *k = tensor(&frame->arguments, 1, rank_k),
                     *v = tensor(&frame->arguments, 2, rank_k), *o = tensor(&frame->results, 0, rank),
                     *lse = tensor(&frame->results, 1, rank - 1), *first = tensor(&frame->arguments, 3, 1),
                     *table = table_of_pages(frame, problem->arrays);
    if (!q || !k || !v || !o || !lse || (packed && !(first && fits(first))) || (paged && !(table && fits(table))) ||
        !fits(q) || !fits(k) || !fits(v))
        return error(frame, XLA_INVALID_ARGUMENT, "q, k, v, o and log-sum-exp must have %d dimensions, and %d",
                     (int)rank, (int)rank - 1);
    /* Rows, heads, d_head. */
    const int64_t *const sizes = q->dims + (rank - 3), *const of_keys = k->dims + (rank_k - 3);
    if (!same_rows(k, v) || !same_rows(q, o) || of_keys[2] != sizes[2] || o->dims[rank - 1] != v->dims[rank_k - 1] ||
        !read_types(q, k, v, o, problem) || (!packed && !paged && k->dims[0] != q->dims[0]))
        return error(
            frame, XLA_INVALID_ARGUMENT,
            "o must have the shape of q and v that of k, but the last dimension of o is that of v; q and k must agree "
            "in batch and d_head; all float16 or all bfloat16, or k and v, or q, k and v, float8_e4m3fn; or k and v "
            "int8");
    if (lse->type != XLA_F32 || lse->dims[rank - 3] != sizes[1] || lse->dims[rank - 2] != sizes[0] ||
        (!packed && lse->dims[0] != q->dims[0]))
        return error(frame, XLA_INVALID_ARGUMENT, "log-sum-exp must be float32 [batch, heads, seq_q]");
    problem->batch = (int32_t)(packed ? first->dims[0] - 1 : q->dims[0]);
    problem->heads = (int32_t)sizes[1];
    problem->kv_heads = (int32_t)of_keys[1];
    problem->d_head = (int32_t)sizes[2];
    problem->d_head_v = (int32_t)v->dims[rank_k - 1];
    if (packed) {
        problem->total_q = (int32_t)sizes[0];
        if (!paged) problem->total_k = (int32_t)of_keys[0];
    } else {
        problem->seq_q = (int32_t)sizes[0];
        problem->seq_k = (int32_t)of_keys[0];
    }
    if (paged) {
        problem->n_pages = (int32_t)k->dims[0];
        problem->page_rows = (int32_t)k->dims[1];
        problem->pages_of_sequence = (int32_t)table->dims[1];
        const int64_t keys = (int64_t)problem->page_rows * problem->pages_of_sequence;
        problem->seq_k = keys < INT32_MAX ? (int32_t)keys : INT32_MAX;
    }
    call->tensors.q = q->data;
    call->tensors.k = k->data;
    call->tensors.v = v->data;
    call->tensors.o = o->data;
    call->tensors.lse = lse->data;
    return read_arrays(frame, call);
}

/* The context of a call: the library, and the stream of XLA for device memory. */
static xla_error *begin(const xla_frame *frame, fl_memory memory, xla_get_stream *stream) {
    *stream = (xla_get_stream){.size = sizeof *stream, .context = frame->context};
    xla_error *const wrong = memory == FL_DEVICE_MEMORY ? frame->api->get_stream(stream) : NULL;
    if (wrong) return wrong;
    pthread_once(&shared.once, open_shared);
    return shared.library ? NULL : error(frame, XLA_UNAVAILABLE, "flashladder: %s", shared.why);
}

static xla_error *attend_with(const xla_frame *frame, fl_memory memory,
                              xla_error *(*read)(const xla_frame *, struct call *)) {
    call call;
    xla_get_stream stream;
    xla_error *wrong = read(frame, &call);
    if (!wrong) wrong = read_attributes(frame, &call);
    if (!wrong) wrong = begin(frame, memory, &stream);
    if (wrong) return wrong;
    call.problem.memory = memory;
    const fl_status status = fl_forward(shared.library, &call.problem, &call.tensors, stream.stream);
    return status ? failed(frame, status) : NULL;
}

static xla_error *attend(const xla_frame *frame, fl_memory memory) {
    return attend_with(frame, memory, read_tensors);
}

static xla_error *serve(const xla_frame *frame, fl_memory memory) {
    return attend_with(frame, memory, read_served);
}

static xla_error *differentiate(const xla_frame *frame, fl_memory memory) {
    call call;
    fl_gradients gradients;
    fl_support support = {.size = sizeof support};
    xla_get_stream stream;
    int64_t workspace = 0;
    const int32_t *const ordered = scalar(frame, "deterministic", XLA_S32);
    xla_error *wrong = frame->arguments.count == PACKED_ARGUMENTS
                           ? read_packed_gradients(frame, &call, &gradients, &workspace)
                           : read_gradients(frame, &call, &gradients, &workspace);
    if (!wrong) wrong = read_attributes(frame, &call);
    if (!wrong) wrong = begin(frame, memory, &stream);
    if (wrong) return wrong;
    call.problem.memory = memory;
    call.problem.version = NULL; /* it chose what computed O */
    gradients.deterministic = ordered && *ordered;
    fl_status status = fl_query_backward(shared.library, &call.problem, &support);
    if (!status && workspace < support.workspace_bytes)
        return error(frame, XLA_INVALID_ARGUMENT, "workspace of %lld bytes: must have %lld bytes", (long long)workspace,
                     (long long)support.workspace_bytes);
    if (!status) status = fl_backward(shared.library, &call.problem, &call.tensors, &gradients, stream.stream);
    return status ? failed(frame, status) : NULL;
}

/* Answer to XLA's query when the handler is registered. */
static bool tell_version(const xla_frame *frame) {
    for (xla_extension *extension = frame->extensions; extension; extension = extension->next)
        if (extension->kind == XLA_METADATA) {
            xla_metadata *metadata = ((xla_metadata_extension *)extension)->metadata;
            metadata->version.major = XLA_API_MAJOR;
            metadata->version.minor = XLA_API_MINOR;
            /* Not part of CUDA graphs: XLA captures a graph again each time addresses change, and the library keeps
             * memory for each captured launch. */
            metadata->traits = 0;
            return true;
        }
    return false;
}

static xla_error *handle(const xla_frame *frame, fl_memory memory,
                         xla_error *(*compute)(const xla_frame *, fl_memory)) {
    if (tell_version(frame) || frame->stage != XLA_EXECUTE) return NULL;
    return compute(frame, memory);
}

xla_error *fl_xla_ffi_attention(xla_frame *frame) {
    return handle(frame, FL_DEVICE_MEMORY, attend);
}

xla_error *fl_xla_ffi_attention_host(xla_frame *frame) {
    return handle(frame, FL_HOST_MEMORY, attend);
}

xla_error *fl_xla_ffi_backward(xla_frame *frame) {
    return handle(frame, FL_DEVICE_MEMORY, differentiate);
}

xla_error *fl_xla_ffi_backward_host(xla_frame *frame) {
    return handle(frame, FL_HOST_MEMORY, differentiate);
}

xla_error *fl_xla_ffi_serve(xla_frame *frame) {
    return handle(frame, FL_DEVICE_MEMORY, serve);
}

xla_error *fl_xla_ffi_serve_host(xla_frame *frame) {
    return handle(frame, FL_HOST_MEMORY, serve);
}
