#include "library/call.h"

#include "library/serving.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *const NAMES[N_TENSORS] = {"q", "k", "v", "o"};

/* ---- structs of other sizes ---- */

fl_status read_struct(const void *from, void *to, size_t size, size_t least, const char *name,
                      struct failure *failure) {
    size_t given;
    if (!from) return refuse(failure, FL_INVALID, "%s: must not be NULL", name);
    memcpy(&given, from, sizeof given);
    if (given < least || given > MOST_STRUCT_BYTES)
        return refuse(failure, FL_INVALID, "%s.size %zu: must be sizeof(fl_%s), %zu", name, given, name, size);
    for (size_t i = size; i < given; i++)
        if (((const unsigned char *)from)[i])
            return refuse(failure, FL_INVALID,
                          "%s.size %zu: this library supports %zu bytes, but byte %zu is not 0; use a newer library",
                          name, given, size, i);
    memset(to, 0, size);
    memcpy(to, from, given < size ? given : size);
    memcpy(to, &size, sizeof size);
    return FL_OK;
}

void write_struct(void *to, const void *from, size_t size) {
    size_t given;
    memcpy(&given, to, sizeof given);
    const size_t common = given < size ? given : size;
    if (common > sizeof given)
        memcpy((char *)to + sizeof given, (const char *)from + sizeof given, common - sizeof given);
    if (given > size) memset((char *)to + size, 0, given - size);
}

/* ---- a problem ---- */

static bool of_keys(enum tensor tensor) {
    return tensor == TENSOR_K || tensor == TENSOR_V;
}

int64_t call_samples(const struct call *call, enum tensor tensor) {
    const fl_problem *const problem = &call->problem;
    if (of_keys(tensor) && problem->arrays & FL_BLOCK_TABLE) return problem->n_pages;
    return problem->arrays & (of_keys(tensor) ? FL_CU_SEQLENS_K : FL_CU_SEQLENS_Q) ? 1 : problem->batch;
}

int64_t call_rows(const struct call *call, enum tensor tensor) {
    const fl_problem *const problem = &call->problem;
    if (!of_keys(tensor)) return problem->arrays & FL_CU_SEQLENS_Q ? problem->total_q : problem->seq_q;
    return problem->arrays & FL_BLOCK_TABLE    ? problem->page_rows
           : problem->arrays & FL_CU_SEQLENS_K ? problem->total_k
                                               : problem->seq_k;
}

int64_t call_heads(const struct call *call, enum tensor tensor) {
    return of_keys(tensor) ? call->problem.kv_heads : call->problem.heads;
}

int64_t call_d_head(const struct call *call, enum tensor tensor) {
    return tensor == TENSOR_V || tensor == TENSOR_O ? call->problem.d_head_v : call->problem.d_head;
}

int64_t call_elements(const struct call *call, enum tensor tensor) {
    return call_samples(call, tensor) * call_rows(call, tensor) * call_heads(call, tensor) * call_d_head(call, tensor);
}

bool call_is_latent(const struct call *call) {
    const fl_problem *const problem = &call->problem;
    const tensor_strides K = call_strides(call, TENSOR_K), V = call_strides(call, TENSOR_V);
    const bool one_sample = call_samples(call, TENSOR_K) == 1, one_row = call_rows(call, TENSOR_K) == 1;
    return problem->d_head_v < problem->d_head && call->tensors.k == call->tensors.v && problem->dropout_p == 0 &&
           !(problem->arrays & FL_BLOCK_MASK) && (K.batch == V.batch || one_sample) && (K.seq == V.seq || one_row) &&
           (K.head == V.head || problem->kv_heads == 1);
}

size_t call_element_bytes(const struct call *call, enum tensor tensor) {
    if (tensor == TENSOR_O) return call->problem.o_dtype == FL_E4M3 ? 1 : 2;
    return (of_keys(tensor) ? call->problem.kv_dtype : call->problem.q_dtype) ? 1 : 2;
}

size_t call_bytes(const struct call *call, enum tensor tensor) {
    return call_element_bytes(call, tensor) * (size_t)call_elements(call, tensor);
}

int64_t call_lse_elements(const struct call *call) {
    return call_samples(call, TENSOR_Q) * call->problem.heads * call_rows(call, TENSOR_Q);
}

bool call_is_empty(const struct call *call) {
    return !call->problem.batch || !call->problem.seq_q || !call_rows(call, TENSOR_Q);
}

enum dtype call_dtype(const struct call *call) {
    return call->problem.dtype == FL_BF16 ? BF16 : FP16;
}

static fl_strides *strides_field(struct call *call, enum tensor tensor) {
    fl_strides *const all[N_TENSORS] = {&call->problem.q, &call->problem.k, &call->problem.v, &call->problem.o};
    return all[tensor];
}

tensor_strides call_strides(const struct call *call, enum tensor tensor) {
    const fl_strides *const all[N_TENSORS] = {&call->problem.q, &call->problem.k, &call->problem.v, &call->problem.o};
    return (tensor_strides){all[tensor]->batch, all[tensor]->seq, all[tensor]->head};
}

const void *call_address(const struct call *call, enum tensor tensor) {
    const void *const all[N_TENSORS] = {call->tensors.q, call->tensors.k, call->tensors.v, call->tensors.o};
    return all[tensor];
}

static fl_status check_sizes(const fl_problem *problem, struct failure *failure) {
    const struct {
        const char *name;
        int64_t value, least, most;
    } sizes[] = {
        {"dtype", problem->dtype, FL_FP16, FL_BF16}, {"memory", problem->memory, FL_DEVICE_MEMORY, FL_HOST_MEMORY},
        {"device", problem->device, -1, INT32_MAX},  {"batch", problem->batch, 0, 65535},
        {"heads", problem->heads, 1, 65535},         {"kv_heads", problem->kv_heads, 1, 65535},
        {"seq_q", problem->seq_q, 0, 1 << 30},       {"seq_k", problem->seq_k, 0, 1 << 30},
        {"d_head", problem->d_head, 1, 65536},       {"d_head_v", problem->d_head_v, 0, 65536},
        {"causal", problem->causal, 0, 1},           {"unused", problem->unused, 0, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < sizes[i].least || sizes[i].value > sizes[i].most)
            return refuse(failure, FL_INVALID, "%s %" PRId64 ": must be from %" PRId64 " to %" PRId64, sizes[i].name,
                          sizes[i].value, sizes[i].least, sizes[i].most);
    if (problem->heads % problem->kv_heads)
        return refuse(failure, FL_INVALID,
                      "kv_heads %d: must divide heads, %d, because the same number of heads shares each KV head",
                      problem->kv_heads, problem->heads);
    if (!(problem->scale >= 0) || isinf(problem->scale))
        return refuse(failure, FL_INVALID, "scale %g: must be positive, or 0 for 1 / sqrt(d_head)",
                      (double)problem->scale);
    return FL_OK;
}

/* Elements of a tensor, and elements from its first to its last: no more than the address space takes. */
static fl_status check_extent(const struct call *call, enum tensor tensor, struct failure *failure) {
    static const int64_t most_elements = (int64_t)1 << 36, most_span = (int64_t)1 << 39; /* 2^40 bytes, of a map */
    const int64_t heads = call_heads(call, tensor), rows = call_rows(call, tensor);
    const tensor_strides strides = call_strides(call, tensor);
    const int64_t samples = call_samples(call, tensor);
    const int64_t steps[] = {strides.batch, strides.seq, strides.head}, sizes[] = {samples, rows, heads};
    int64_t elements = call_d_head(call, tensor), span = elements;
    for (int i = 0; i < 3; i++) {
        if (__builtin_mul_overflow(elements, sizes[i], &elements)) elements = INT64_MAX;
        int64_t step;
        const int64_t size = sizes[i] > 1 ? sizes[i] - 1 : 0, magnitude = steps[i] < 0 ? -(steps[i] + 1) : steps[i];
        if (__builtin_mul_overflow(size, magnitude, &step) || __builtin_add_overflow(span, step, &span))
            span = INT64_MAX;
    }
    if (elements > most_elements)
        return refuse(failure, FL_INVALID,
                      "%s: batch %" PRId64 " x heads %" PRId64 " x seq %" PRId64
                      " x d_head %d: the product must be at most %" PRId64 " elements",
                      NAMES[tensor], samples, heads, rows, (int)call_d_head(call, tensor), most_elements);
    if (span > most_span)
        return refuse(failure, FL_INVALID,
                      "%s.batch, seq, head %" PRId64 ", %" PRId64 ", %" PRId64
                      ": the last element must be at most %" PRId64 " elements after the first",
                      NAMES[tensor], strides.batch, strides.seq, strides.head, most_span);
    return FL_OK;
}

fl_status call_check_apart(const char *name, fl_strides strides, const int64_t sizes[3], int64_t d_head,
                           struct failure *failure) {
    static const char *const AXES[] = {"batch", "seq", "head"};
    const int64_t all[] = {strides.batch, strides.seq, strides.head};
    if (!sizes[0] || !sizes[1] || !sizes[2]) return FL_OK; /* nobody sets the strides of an empty tensor */
    for (int i = 0; i < 3; i++) {
        if (sizes[i] <= 1) continue;
        if (all[i] > -d_head && all[i] < d_head)
            return refuse(failure, FL_INVALID,
                          "%s.%s %" PRId64 ": must be at least %" PRId64 ", d_head, because rows must not overlap",
                          name, AXES[i], all[i], d_head);
        for (int j = 0; j < i; j++)
            if (sizes[j] > 1 && (all[i] == all[j] || (uint64_t)all[i] + (uint64_t)all[j] == 0))
                return refuse(failure, FL_INVALID,
                              "%s.%s %" PRId64 ": must not be that of %s, because rows must not overlap", name, AXES[i],
                              all[i], AXES[j]);
    }
    return FL_OK;
}

fl_status call_check_addresses(const struct named_address *all, size_t count, size_t first_result,
                               struct failure *failure) {
    for (size_t i = first_result; i < count; i++)
        for (size_t j = 0; j < i; j++)
            if (all[i].address && all[i].address == all[j].address)
                return refuse(failure, FL_INVALID,
                              "%s %p: must not be the address of %s, because results need memory of their own",
                              all[i].name, all[i].address, all[j].name);
    return FL_OK;
}

/* Fill in the strides of a tensor; those that are not read, and all of one without elements, become contiguous ones. */
static fl_status complete_strides(struct call *call, enum tensor tensor, struct failure *failure) {
    fl_strides *const strides = strides_field(call, tensor);
    const int64_t heads = call_heads(call, tensor), rows = call_rows(call, tensor), d_head = call_d_head(call, tensor);
    const fl_strides contiguous = {rows * heads * d_head, heads * d_head, d_head};
    const bool host = call->problem.memory == FL_HOST_MEMORY;
    const int unit = 16 / (int)call_element_bytes(call, tensor);
    if (!call_elements(call, tensor) || (!strides->batch && !strides->seq && !strides->head)) *strides = contiguous;
    const struct {
        const char *name;
        int64_t *stride, initial, size;
    } steps[] = {{"batch", &strides->batch, contiguous.batch, call_samples(call, tensor)},
                 {"seq", &strides->seq, contiguous.seq, rows},
                 {"head", &strides->head, contiguous.head, heads}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (steps[i].size <= 1) *steps[i].stride = steps[i].initial;
        const int64_t stride = *steps[i].stride;
        if (stride == steps[i].initial) continue;
        call->strided = true;
        if (!host && (stride <= 0 || stride % unit))
            return refuse(failure, FL_INVALID,
                          "%s.%s %" PRId64 ": must be a positive multiple of %d elements (16 bytes)", NAMES[tensor],
                          steps[i].name, stride, unit);
    }
    if (tensor == TENSOR_O) {
        const int64_t sizes[] = {steps[0].size, steps[1].size, steps[2].size};
        const fl_status status = call_check_apart(NAMES[tensor], *strides, sizes, d_head, failure);
        if (status) return status;
    }
    if (!host && strides->seq > INT32_MAX)
        return refuse(failure, FL_INVALID,
                      "%s.seq %" PRId64 ": must be at most %d elements, because kernels use 32-bit strides",
                      NAMES[tensor], strides->seq, INT32_MAX);
    return check_extent(call, tensor, failure);
}

fl_status call_read(const fl_problem *problem, struct call *call, struct failure *failure) {
    *call = (struct call){0};
    fl_status status =
        read_struct(problem, &call->problem, sizeof call->problem, offsetof(fl_problem, arrays), "problem", failure);
    if (status || (status = check_sizes(&call->problem, failure))) return status;
    if (!call->problem.d_head_v) call->problem.d_head_v = call->problem.d_head;
    if ((status = serving_check(&call->problem, failure))) return status;
    for (int t = 0; t < N_TENSORS; t++)
        if ((status = complete_strides(call, (enum tensor)t, failure))) return status;
    call->scaled = call->problem.scale > 0;
    if (!call->scaled) call->problem.scale = (float)(1 / sqrt(call->problem.d_head));
    const attention_args args = {.Q_strides = call_strides(call, TENSOR_Q),
                                 .seq_q = call->problem.seq_q,
                                 .heads = call->problem.heads,
                                 .batch = call->problem.batch,
                                 .seq_k = call->problem.seq_k,
                                 .K_strides = call_strides(call, TENSOR_K),
                                 .V_strides = call_strides(call, TENSOR_V),
                                 .O_strides = call_strides(call, TENSOR_O),
                                 .KV_heads = call->problem.kv_heads,
                                 .softmax_scale = call->problem.scale,
                                 .causal = call->problem.causal};
    call->args = serving_of_problem(&call->problem, args);
    return FL_OK;
}

/* ---- addresses ---- */

fl_status call_read_tensors(const fl_tensors *tensors, struct call *call, struct failure *failure) {
    const bool host = call->problem.memory == FL_HOST_MEMORY;
    const fl_status status = read_struct(tensors, &call->tensors, sizeof call->tensors,
                                         offsetof(fl_tensors, cu_seqlens_q), "tensors", failure);
    if (status || call_is_empty(call)) return status;
    const struct {
        const char *name;
        const void *address;
        bool needed;
        uintptr_t align;
    } all[] = {{"q", call->tensors.q, true, host ? call_element_bytes(call, TENSOR_Q) : 16},
               {"k", call->tensors.k, call->problem.seq_k > 0, host ? call_element_bytes(call, TENSOR_K) : 16},
               {"v", call->tensors.v, call->problem.seq_k > 0, host ? call_element_bytes(call, TENSOR_V) : 16},
               {"o", call->tensors.o, true, host ? call_element_bytes(call, TENSOR_O) : 16},
               {"lse", call->tensors.lse, false, 4},
               {"workspace", host ? NULL : call->tensors.workspace, false, 16}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i].address && all[i].needed) return refuse(failure, FL_INVALID, "%s: must not be NULL", all[i].name);
        if ((uintptr_t)all[i].address % all[i].align)
            return refuse(failure, FL_INVALID, "%s %p: must be a multiple of %d bytes", all[i].name, all[i].address,
                          (int)all[i].align);
    }
    const struct named_address addresses[] = {{"q", call->tensors.q},
                                              {"k", call->tensors.k},
                                              {"v", call->tensors.v},
                                              {"o", call->tensors.o},
                                              {"lse", call->tensors.lse}};
    const fl_status apart = call_check_addresses(addresses, 5, 3, failure);
    return apart ? apart : serving_check_arrays(&call->problem, &call->tensors, failure);
}

static tensor_strides contiguous_strides(const struct call *call, enum tensor tensor) {
    const int64_t heads = call_heads(call, tensor), d_head = call_d_head(call, tensor);
    return (tensor_strides){call_rows(call, tensor) * heads * d_head, heads * d_head, d_head};
}

bool call_is_contiguous(const struct call *call, enum tensor tensor) {
    const tensor_strides found = call_strides(call, tensor), wanted = contiguous_strides(call, tensor);
    return found.batch == wanted.batch && found.seq == wanted.seq && found.head == wanted.head;
}

/* ---- host memory ---- */

/* Offset of row number i of the contiguous order, in elements. */
static int64_t row_at(const struct call *call, enum tensor tensor, int64_t i) {
    const tensor_strides strides = call_strides(call, tensor);
    const int64_t heads = call_heads(call, tensor), rows = call_rows(call, tensor);
    return i / heads / rows * strides.batch + i / heads % rows * strides.seq + i % heads * strides.head;
}

void call_pack(const struct call *call, enum tensor tensor, void *contiguous) {
    const int64_t d_head = call_d_head(call, tensor), n_rows = call_elements(call, tensor) / d_head;
    const int64_t bytes = (int64_t)call_element_bytes(call, tensor);
    const char *const from = call_address(call, tensor);
    for (int64_t i = 0; i < n_rows; i++)
        memcpy((char *)contiguous + i * bytes * d_head, from + bytes * row_at(call, tensor, i),
               (size_t)(bytes * d_head));
}

void call_unpack(const struct call *call, const void *contiguous) {
    const int64_t d_head = call_d_head(call, TENSOR_O), n_rows = call_elements(call, TENSOR_O) / d_head;
    const int64_t bytes = (int64_t)call_element_bytes(call, TENSOR_O);
    char *const to = call->tensors.o;
    for (int64_t i = 0; i < n_rows; i++)
        memcpy(to + bytes * row_at(call, TENSOR_O, i), (const char *)contiguous + i * bytes * d_head,
               (size_t)(bytes * d_head));
}

void call_clear(const struct call *call) {
    const int64_t d_head = call_d_head(call, TENSOR_O), n_rows = call_elements(call, TENSOR_O) / d_head;
    const int64_t bytes = (int64_t)call_element_bytes(call, TENSOR_O);
    char *const to = call->tensors.o;
    for (int64_t i = 0; i < n_rows; i++) memset(to + bytes * row_at(call, TENSOR_O, i), 0, (size_t)(bytes * d_head));
    for (int64_t i = 0; call->tensors.lse && i < call_lse_elements(call); i++) call->tensors.lse[i] = -INFINITY;
}

void call_make_contiguous(struct call *call) {
    attention_args *const args = &call->args.serving.attention;
    tensor_strides *const all[N_TENSORS] = {&args->Q_strides, &args->K_strides, &args->V_strides, &args->O_strides};
    for (int t = 0; t < N_TENSORS; t++) *all[t] = contiguous_strides(call, (enum tensor)t);
    call->strided = false;
}
