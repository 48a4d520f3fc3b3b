#include "library/gradients.h"

#include "library/serving.h"
#include "runtime/config.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *const NAMES[] = {"attention/backward", "attention/backward_mma_sync"};

/* ---- dQ, dK and dV ---- */

static const struct {
    const char *name;
    enum tensor of;
    size_t address, strides;
} GRADIENTS[N_GRADIENTS] = {
    {"dq", TENSOR_Q, offsetof(fl_gradients, dq), offsetof(fl_gradients, dq_strides)},
    {"dk", TENSOR_K, offsetof(fl_gradients, dk), offsetof(fl_gradients, dk_strides)},
    {"dv", TENSOR_V, offsetof(fl_gradients, dv), offsetof(fl_gradients, dv_strides)},
};

const char *gradient_name(int i) {
    return GRADIENTS[i].name;
}

enum tensor gradient_of(int i) {
    return GRADIENTS[i].of;
}

void *gradient_address(const struct gradient_call *asked, int i) {
    void *address;
    memcpy(&address, (const char *)&asked->gradients + GRADIENTS[i].address, sizeof address);
    return address;
}

static fl_strides *strides_of(struct gradient_call *asked, int i) {
    return (fl_strides *)((char *)&asked->gradients + GRADIENTS[i].strides);
}

tensor_strides gradient_strides(const struct gradient_call *asked, int i) {
    const fl_strides *const strides = (const fl_strides *)((const char *)&asked->gradients + GRADIENTS[i].strides);
    return (tensor_strides){strides->batch, strides->seq, strides->head};
}

size_t gradients_dsinks_bytes(const struct gradient_call *asked) {
    return asked->gradients.dsinks ? sizeof(float) * (size_t)asked->call.problem.heads : 0;
}

/* ---- arguments ---- */

/* Arrays of serving_args that the kernels read. */
enum {
    OFFSETS = FL_CU_SEQLENS_Q | FL_CU_SEQLENS_K,
    SERVED = OFFSETS | FL_SEQLENS_Q | FL_SEQLENS_K | FL_SINKS,
};

static fl_status check_served(const fl_problem *problem, struct failure *failure) {
    fl_problem others = *problem;
    others.arrays &= ~(uint32_t)SERVED;
    others.windowed = 0;
    others.softcap = 0;
    const uint32_t offsets = problem->arrays & OFFSETS;
    const char *const served = serving_asked(&others);
    if (problem->d_head_v != problem->d_head)
        return refuse(failure, FL_UNSUPPORTED, "d_head_v %d: must be d_head, %d, in fl_backward()", problem->d_head_v,
                      problem->d_head);
    if (served) return refuse(failure, FL_UNSUPPORTED, "%s: fl_backward() does not support it", served);
    if (offsets && offsets != OFFSETS)
        return refuse(failure, FL_UNSUPPORTED, "%s: requires %s as well in fl_backward()",
                      offsets & FL_CU_SEQLENS_Q ? "cu_seqlens_q" : "cu_seqlens_k",
                      offsets & FL_CU_SEQLENS_Q ? "cu_seqlens_k" : "cu_seqlens_q");
    return FL_OK;
}

fl_status gradients_read_problem(const fl_problem *problem, struct call *call, struct failure *failure) {
    fl_status status = call_read(problem, call, failure);
    if (status) return status;
    const char *const version = call->problem.version;
    if ((status = check_served(&call->problem, failure))) return status;
    if (version && strcmp(version, "best") != 0 && strcmp(version, NAMES[0]) != 0 && strcmp(version, NAMES[1]) != 0)
        return refuse(failure, FL_UNSUPPORTED,
                      "version '%.100s': must be NULL, \"best\", \"%s\" or \"%s\", which compute gradients", version,
                      NAMES[0], NAMES[1]);
    if (call->problem.config)
        return refuse(failure, FL_UNSUPPORTED, "config '%.200s': must be NULL, because fl_backward() chooses it",
                      call->problem.config);
    return FL_OK;
}

/* Fill in the strides of a gradient; those that are not read become contiguous ones. */
static fl_status complete_strides(struct gradient_call *asked, int i, struct failure *failure) {
    const struct call *const call = &asked->call;
    const enum tensor tensor = gradient_of(i);
    const int64_t rows = call_rows(call, tensor), heads = call_heads(call, tensor), d_head = call->problem.d_head;
    const fl_strides contiguous = {rows * heads * d_head, heads * d_head, d_head};
    const bool host = call->problem.memory == FL_HOST_MEMORY;
    fl_strides *const strides = strides_of(asked, i);
    if (!call_elements(call, tensor) || (!strides->batch && !strides->seq && !strides->head)) *strides = contiguous;
    const struct {
        const char *name;
        int64_t *stride, initial, size;
    } steps[] = {{"batch", &strides->batch, contiguous.batch, call_samples(call, tensor)},
                 {"seq", &strides->seq, contiguous.seq, rows},
                 {"head", &strides->head, contiguous.head, heads}};
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        if (steps[s].size <= 1) *steps[s].stride = steps[s].initial;
        const int64_t stride = *steps[s].stride;
        if (host || stride == steps[s].initial || (stride > 0 && stride % 8 == 0)) continue;
        return refuse(failure, FL_INVALID,
                      "%s_strides.%s %" PRId64 ": must be a positive multiple of 8 elements (16 bytes)",
                      gradient_name(i), steps[s].name, stride);
    }
    char name[sizeof "dq_strides"];
    snprintf(name, sizeof name, "%s_strides", gradient_name(i));
    const int64_t sizes[] = {steps[0].size, steps[1].size, steps[2].size};
    return call_check_apart(name, *strides, sizes, d_head, failure);
}

static fl_status check_addresses(const struct gradient_call *asked, struct failure *failure) {
    const fl_tensors *const tensors = &asked->call.tensors;
    const fl_gradients *const gradients = &asked->gradients;
    const bool host = asked->call.problem.memory == FL_HOST_MEMORY;
    const struct {
        const char *name;
        const void *address;
        int64_t rows;
        uintptr_t align;
    } all[] = {{"lse", tensors->lse, call_rows(&asked->call, TENSOR_Q), 4},
               {"dout", asked->gradients.dout, call_rows(&asked->call, TENSOR_Q), host ? 2 : 16},
               {"dq", asked->gradients.dq, call_rows(&asked->call, TENSOR_Q), host ? 2 : 16},
               {"dk", asked->gradients.dk, call_rows(&asked->call, TENSOR_K), host ? 2 : 16},
               {"dv", asked->gradients.dv, call_rows(&asked->call, TENSOR_V), host ? 2 : 16},
               {"dsinks", asked->gradients.dsinks, 0, 4}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i].address && all[i].rows && asked->call.problem.batch)
            return refuse(failure, FL_INVALID, "%s: must not be NULL", all[i].name);
        if ((uintptr_t)all[i].address % all[i].align)
            return refuse(failure, FL_INVALID, "%s %p: must be a multiple of %d bytes", all[i].name, all[i].address,
                          (int)all[i].align);
    }
    const struct named_address addresses[] = {{"q", tensors->q},     {"k", tensors->k},
                                              {"v", tensors->v},     {"o", tensors->o},
                                              {"lse", tensors->lse}, {"dout", gradients->dout},
                                              {"dq", gradients->dq}, {"dk", gradients->dk},
                                              {"dv", gradients->dv}, {"dsinks", gradients->dsinks}};
    return call_check_addresses(addresses, 10, 6, failure);
}

fl_status gradients_read(const fl_problem *problem, const fl_tensors *tensors, const fl_gradients *gradients,
                         struct gradient_call *asked, struct failure *failure) {
    fl_status status = gradients_read_problem(problem, &asked->call, failure);
    if (!status) status = call_read_tensors(tensors, &asked->call, failure);
    if (!status)
        status = read_struct(gradients, &asked->gradients, sizeof asked->gradients, offsetof(fl_gradients, dsinks),
                             "gradients", failure);
    if (status) return status;
    if (asked->gradients.deterministic != 0 && asked->gradients.deterministic != 1)
        return refuse(failure, FL_INVALID, "deterministic %d: must be 0 or 1", asked->gradients.deterministic);
    if (asked->gradients.dsinks && !(asked->call.problem.arrays & FL_SINKS))
        return refuse(failure, FL_INVALID, "dsinks: requires FL_SINKS in arrays; set it to NULL");
    if (asked->gradients.unused) return refuse(failure, FL_INVALID, "unused %d: must be 0", asked->gradients.unused);
    for (int i = 0; i < N_GRADIENTS; i++)
        if ((status = complete_strides(asked, i, failure))) return status;
    return check_addresses(asked, failure);
}

bool gradients_are_zero(const struct gradient_call *asked) {
    return call_is_empty(&asked->call) || !asked->call.problem.seq_k;
}

/* ---- the kernel ---- */

/* The first version with code for the GPU, or any on the emulator; only the one asked for, if there is a name. */
static struct embedded *find_version(const struct fl_library *library, const char *asked,
                                     const struct gpu_target *target, struct failure *failure) {
    const bool any = !asked || strcmp(asked, "best") == 0;
    refuse(failure, FL_UNSUPPORTED,
           "this library has no %s; build it with `make lib`, without VER or with attention.backward in it",
           any ? NAMES[0] : asked);
    for (size_t i = 0; i < library->backward_count; i++) {
        struct embedded *const version = &library->backward[i];
        if (!any && strcmp(asked, version->about->version) != 0) continue;
        if (!target || gpu_code_find(&version->code, target, failure)) return version;
    }
    return NULL;
}

/* True if the problem needs what only kernels with backward_serving_args have. */
static bool needs_serving(const struct call *call) {
    const serving_args *const args = &call->args.serving;
    const bool right = args->window_right >= 0 && !args->attention.causal;
    return call->problem.arrays & SERVED || args->window_left >= 0 || right || args->softcap > 0;
}

static bool computes(const struct kernel_config *config, const struct call *call, bool deterministic, bool serves) {
    return config->dtype == call_dtype(call) && config->d_head == call->problem.d_head &&
           config->backward.in_order == deterministic && config_has(config, SERVES) == serves;
}

static fl_status refuse_gradients(const struct embedded *version, const struct call *call, struct failure *failure) {
    return refuse(failure, FL_UNSUPPORTED, "d_head %d: %s supports 64, 128, 256%s", call->problem.d_head,
                  version->about->version,
                  call->problem.d_head < 256 ? "; pad q, k and v with zeros and keep the scale" : "");
}

/* The first instance that fits, with or without the flag serve. Instances are in the order of their speed, from the
 * most shared memory to the least, so that a failure names the bytes of the last. */
static fl_status find_instance(struct embedded *version, const struct call *call, bool deterministic, bool serves,
                               const struct gpu_target *target, struct choice *choice, struct failure *failure) {
    const struct code_image *const image = target ? gpu_code_find(&version->code, target, failure) : NULL;
    fl_status status = FL_UNSUPPORTED;
    for (size_t i = 0; i < version->table.count && !choice->instance; i++) {
        const struct instance *const one = &version->table.instances[i];
        if (!computes(&one->config, call, deterministic, serves)) continue;
        status = target ? status_of(gpu_smem_check(&version->code, image, target, one, failure)) : FL_OK;
        if (!status) choice->instance = one;
    }
    return status;
}

/* Instances with the flag serve also compute problems that do not need it. */
fl_status gradients_choose(const struct fl_library *library, const struct call *call, bool deterministic,
                           const struct gpu_target *target, struct choice *choice, struct failure *failure) {
    struct embedded *const version = find_version(library, call->problem.version, target, failure);
    if (!version) return library->backward_count && target ? FL_UNAVAILABLE : FL_UNSUPPORTED;
    *choice = (struct choice){.version = version};
    fl_status status = FL_UNSUPPORTED;
    for (int serves = needs_serving(call); serves <= 1 && status == FL_UNSUPPORTED; serves++)
        status = find_instance(version, call, deterministic, serves, target, choice, failure);
    return status == FL_UNSUPPORTED ? refuse_gradients(version, call, failure) : status;
}

/* Without `deterministic`; the workspace is enough with it, too. */
fl_status gradients_query(const struct fl_library *library, const struct call *call, const struct gpu_target *target,
                          struct choice *choice, struct failure *failure) {
    struct choice ordered;
    struct failure ignored;
    const fl_status status = gradients_choose(library, call, false, target, choice, failure);
    if (status) return status;
    choice->workspace_bytes = gradients_workspace_bytes(&choice->instance->config, call);
    if (gradients_choose(library, call, true, target, &ordered, &ignored)) return FL_OK;
    const int64_t bytes = gradients_workspace_bytes(&ordered.instance->config, call);
    if (bytes > choice->workspace_bytes) choice->workspace_bytes = bytes;
    return FL_OK;
}

/* Copy of the problem with the rows of all sequences: at most 2^30, because a tensor has at most 2^36 elements. */
static attention_args shape_of(const struct call *call) {
    attention_args args = call->args.serving.attention;
    args.all_Q_rows = (int32_t)(call_samples(call, TENSOR_Q) * call_rows(call, TENSOR_Q));
    args.all_KV_rows = (int32_t)(call_samples(call, TENSOR_K) * call_rows(call, TENSOR_K));
    return args;
}

/* The parts of the workspace are delta, sums and turns, one after another. */
int64_t gradients_workspace_bytes(const struct kernel_config *config, const struct call *call) {
    const backward_config *const backward = &config->backward;
    const attention_args args = shape_of(call);
    return backward_delta_bytes(backward, &args) + backward_sums_bytes(backward, &args) +
           backward_turns_bytes(backward, &args);
}

backward_strided_args gradients_args(const struct gradient_call *asked, const struct kernel_config *config,
                                     uint64_t workspace) {
    const fl_tensors *const tensors = &asked->call.tensors;
    const fl_gradients *const gradients = &asked->gradients;
    attention_args attention = shape_of(&asked->call);
    attention.Q = tensors->q, attention.K = tensors->k, attention.V = tensors->v;
    attention.O = tensors->o, attention.LSE = tensors->lse;
    const uint64_t sums = workspace + (uint64_t)backward_delta_bytes(&config->backward, &attention);
    const uint64_t turns = sums + (uint64_t)backward_sums_bytes(&config->backward, &attention);
    const backward_args backward = {.attention = attention,
                                    .dO = gradients->dout,
                                    .dQ = gradients->dq,
                                    .dK = gradients->dk,
                                    .dV = gradients->dv,
                                    .delta = (float *)(uintptr_t)workspace,
                                    .sums = (float *)(uintptr_t)sums,
                                    .turns = (int32_t *)(uintptr_t)turns};
    return (backward_strided_args){.serving = {.backward = backward,
                                               .Q_offsets = tensors->cu_seqlens_q,
                                               .KV_offsets = tensors->cu_seqlens_k,
                                               .Q_lengths = tensors->seqlens_q,
                                               .KV_lengths = tensors->seqlens_k,
                                               .sinks = tensors->sinks,
                                               .dsinks = tensors->sinks ? gradients->dsinks : NULL,
                                               .window_left = asked->call.args.serving.window_left,
                                               .window_right = asked->call.args.serving.window_right,
                                               .softcap = asked->call.args.serving.softcap},
                                   .dQ_strides = gradient_strides(asked, 0),
                                   .dK_strides = gradient_strides(asked, 1),
                                   .dV_strides = gradient_strides(asked, 2)};
}

void gradients_write_strides(const struct kernel_config *config, backward_strided_args *args) {
    if (config_has(config, OWN_STRIDES)) return;
    attention_args *const attention = &args->serving.backward.attention;
    attention->Q_strides = args->dQ_strides;
    attention->K_strides = args->dK_strides;
    attention->V_strides = args->dV_strides;
}

/* ---- host memory ---- */

/* Offset of row number i of the contiguous order, in elements. */
static int64_t row_at(const struct call *call, enum tensor tensor, tensor_strides strides, int64_t i) {
    const int64_t heads = call_heads(call, tensor), rows = call_rows(call, tensor);
    return i / heads / rows * strides.batch + i / heads % rows * strides.seq + i % heads * strides.head;
}

void gradients_pack(const struct gradient_call *asked, uint16_t *contiguous) {
    const int64_t d_head = asked->call.problem.d_head, n_rows = call_elements(&asked->call, TENSOR_O) / d_head;
    const uint16_t *const from = asked->gradients.dout;
    const tensor_strides strides = call_strides(&asked->call, TENSOR_O);
    for (int64_t i = 0; i < n_rows; i++)
        memcpy(contiguous + i * d_head, from + row_at(&asked->call, TENSOR_O, strides, i), 2 * (size_t)d_head);
}

/* `contiguous` NULL: zeros. */
static void write_rows(const struct gradient_call *asked, int i, const uint16_t *contiguous) {
    const enum tensor tensor = gradient_of(i);
    const int64_t d_head = asked->call.problem.d_head, n_rows = call_elements(&asked->call, tensor) / d_head;
    const tensor_strides strides = gradient_strides(asked, i);
    for (int64_t row = 0; row < n_rows; row++) {
        uint16_t *const to = (uint16_t *)gradient_address(asked, i) + row_at(&asked->call, tensor, strides, row);
        if (contiguous)
            memcpy(to, contiguous + row * d_head, 2 * (size_t)d_head);
        else
            memset(to, 0, 2 * (size_t)d_head);
    }
}

void gradients_unpack(const struct gradient_call *asked, int i, const uint16_t *contiguous) {
    write_rows(asked, i, contiguous);
}

void gradients_clear(const struct gradient_call *asked) {
    for (int i = 0; i < N_GRADIENTS; i++) write_rows(asked, i, NULL);
    if (asked->gradients.dsinks) memset(asked->gradients.dsinks, 0, gradients_dsinks_bytes(asked));
}

void gradients_make_contiguous(struct gradient_call *asked) {
    call_make_contiguous(&asked->call);
    for (int i = 0; i < N_GRADIENTS; i++) {
        const enum tensor tensor = gradient_of(i);
        const int64_t heads = call_heads(&asked->call, tensor), d_head = asked->call.problem.d_head;
        *strides_of(asked, i) = (fl_strides){call_rows(&asked->call, tensor) * heads * d_head, heads * d_head, d_head};
    }
}
