/* flashladder.c - the functions of include/flashladder.h: arguments in, a status out, the sentence for fl_error(). */
#include "include/flashladder.h"

#include "library/call.h"
#include "library/choice.h"
#include "library/emulator.h"
#include "library/gpu.h"
#include "library/gradients.h"
#include "library/opened.h"
#include "runtime/config.h"

#include <revision.h>

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert(CONFIG_TEXT_SIZE <= FL_MAX_CONFIG, "every short form fits into the structs");

static _Thread_local char error_text[sizeof(struct failure)];

/* The status of a call; its sentence is kept for the thread. */
static fl_status ended(fl_status status, const struct failure *failure) {
    if (status) memcpy(error_text, failure->text, sizeof error_text);
    return status;
}

uint32_t fl_abi(void) {
    return FL_ABI;
}

const char *fl_release(void) {
    return FL_RELEASE " (revision " FL_REVISION ")";
}

const char *fl_error(void) {
    return error_text;
}

/* ---- opening ---- */

static fl_status read_own(struct embedded *version, struct failure *failure) {
    char text[CONFIG_TEXT_SIZE];
    if (config_parse(version->about->config, &version->own[0], failure)) return FL_ERROR;
    version->n_own = 1;
    for (const char *form = version->about->others; *form && version->n_own < MAX_OWN_CONFIGS;
         form += strcspn(form, ";") + 1) {
        snprintf(text, sizeof text, "%.*s", (int)strcspn(form, ";"), form);
        if (config_parse(text, &version->own[version->n_own], failure)) return FL_ERROR;
        version->n_own++;
    }
    return FL_OK;
}

static fl_status read_versions(struct fl_library *library, struct failure *failure) {
    while (backward_versions[library->backward_count]) library->backward_count++;
    const size_t all = version_count + library->backward_count;
    library->versions = calloc(all, sizeof *library->versions);
    if (!library->versions) return refuse_memory(failure, sizeof *library->versions, "the versions");
    library->count = version_count;
    library->backward = library->versions + version_count;
    for (size_t i = 0; i < all; i++) {
        struct embedded *const version = &library->versions[i];
        const struct version *const about = version->about =
            i < version_count ? versions[i] : backward_versions[i - version_count];
        version->code = (struct gpu_code){.images = about->images,
                                          .count = *about->image_count,
                                          .version = about->version,
                                          .arch = about->arch,
                                          .exact = about->arch[strlen(about->arch) - 1] == 'a' ? about->arch : NULL,
                                          .toolkit = about->toolkit,
                                          .holder = "this library",
                                          .goal = "lib",
                                          .instead = ""};
        if (instance_table_read(&version->table, about->images, *about->image_count, failure)) return FL_ERROR;
        const fl_status status = read_own(version, failure);
        if (status) return status;
        if (i < version_count) library->n_kernels += version->table.count;
    }
    return FL_OK;
}

static fl_status open_backend(struct fl_library *library, fl_backend backend, struct failure *failure) {
    library->backend = FL_EMULATOR;
    if (backend == FL_EMULATOR) return FL_OK;
    const fl_status status = gpus_open(library, failure);
    if (!status) library->backend = FL_GPU;
    if (status != FL_UNAVAILABLE || backend == FL_GPU) return status;
    snprintf(library->why_no_gpu, sizeof library->why_no_gpu, "%.*s", FL_MAX_TEXT - 1, failure->text);
    return FL_OK;
}

/* ---- fork ---- */

/* A child has only the thread that forked, so it would wait forever for a lock that another thread held. A fork
 * therefore takes all locks first. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fl_library *all_opened;

static void before_fork(void) {
    pthread_mutex_lock(&list_lock);
    for (struct fl_library *one = all_opened; one; one = one->next) pthread_mutex_lock(&one->lock);
}

static void after_fork(void) {
    for (struct fl_library *one = all_opened; one; one = one->next) pthread_mutex_unlock(&one->lock);
    pthread_mutex_unlock(&list_lock);
}

static void in_child(void) {
    for (struct fl_library *one = all_opened; one; one = one->next) one->forked = one->gpus != NULL;
    after_fork();
}

static void watch_forks(void) {
#ifndef _WIN32
    pthread_atfork(before_fork, after_fork, in_child);
#endif
}

static void list_library(struct fl_library *library) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&list_lock);
    library->next = all_opened;
    all_opened = library;
    pthread_mutex_unlock(&list_lock);
}

static void unlist_library(const struct fl_library *library) {
    pthread_mutex_lock(&list_lock);
    struct fl_library **one = &all_opened;
    while (*one && *one != library) one = &(*one)->next;
    if (*one) *one = library->next;
    pthread_mutex_unlock(&list_lock);
}

/* CUDA does not work in a child of the process that initialized it. */
static fl_status check_process(const fl_library *library, struct failure *failure) {
    if (!library->forked) return FL_OK;
    return refuse(
        failure, FL_UNAVAILABLE,
        "this process was forked after the library opened the GPUs, and CUDA does not work in a child process; "
        "start processes with spawn, or fork before the first call");
}

fl_status fl_open(fl_backend backend, fl_library **library) {
    static _Atomic uint64_t opened;
    struct failure failure;
    if (!library) return ended(refuse(&failure, FL_INVALID, "library: must not be NULL"), &failure);
    *library = NULL;
    if (backend != FL_AUTO && backend != FL_GPU && backend != FL_EMULATOR)
        return ended(refuse(&failure, FL_INVALID, "backend %d: must be FL_AUTO, FL_GPU or FL_EMULATOR", (int)backend),
                     &failure);
    fl_library *const made = calloc(1, sizeof *made);
    if (!made) return ended(refuse_memory(&failure, sizeof *made, "the library"), &failure);
    pthread_mutex_init(&made->lock, NULL);
    list_library(made);
    made->id = atomic_fetch_add(&opened, 1) + 1;
    fl_status status = read_versions(made, &failure);
    if (!status) status = open_backend(made, backend, &failure);
    if (status)
        fl_close(made);
    else
        *library = made;
    return ended(status, &failure);
}

void fl_close(fl_library *library) {
    if (!library) return;
    unlist_library(library);
    if (library->gpus) gpus_close(library);
    for (size_t i = 0; library->versions && i < all_embedded(library); i++) {
        instance_table_free(&library->versions[i].table);
        if (library->versions[i].module) emu_unload(library->versions[i].module);
    }
    free(library->versions);
    pthread_mutex_destroy(&library->lock);
    free(library);
}

/* ---- what there is ---- */

/* A struct that is filled for the caller: must be there, and say its size, that of FL_ABI 1 at least. */
static fl_status check_result(const fl_library *library, const void *result, size_t size, const char *name,
                              struct failure *failure) {
    size_t given = 0;
    if (!library) return refuse(failure, FL_INVALID, "library: must not be NULL");
    if (!result) return refuse(failure, FL_INVALID, "%s: must not be NULL", name);
    memcpy(&given, result, sizeof given);
    if (given >= size && given <= MOST_STRUCT_BYTES) return FL_OK;
    return refuse(failure, FL_INVALID, "%s.size %zu: must be sizeof(fl_%s), %zu", name, given, name, size);
}

fl_status fl_describe(fl_library *library, fl_description *description) {
    struct failure failure;
    const fl_status status = check_result(library, description, sizeof *description, "description", &failure);
    if (status) return ended(status, &failure);
    fl_description made = {
        .backend = (int32_t)library->backend, .devices = gpus_count(library), .kernels = (int32_t)library->n_kernels};
    memcpy(made.why_no_gpu, library->why_no_gpu, sizeof made.why_no_gpu);
    write_struct(description, &made, sizeof made);
    return FL_OK;
}

fl_status fl_device(fl_library *library, int32_t device, fl_device_info *info) {
    struct failure failure;
    fl_status status = check_result(library, info, sizeof *info, "device_info", &failure);
    if (!status && (device < 0 || device >= gpus_count(library)))
        status = refuse(&failure, FL_INVALID, "device %d: must be at least 0 and less than %d, the number of GPUs",
                        device, gpus_count(library));
    if (status) return ended(status, &failure);
    fl_device_info made;
    gpus_describe(library, device, &made);
    write_struct(info, &made, sizeof made);
    return FL_OK;
}

/* The number of an instance in its version. */
static const struct embedded *version_of_kernel(const fl_library *library, size_t *kernel) {
    const struct embedded *version = library->versions;
    for (; *kernel >= version->table.count; version++) *kernel -= version->table.count;
    return version;
}

fl_status fl_kernel(fl_library *library, int32_t kernel, fl_kernel_info *info) {
    struct failure failure;
    fl_status status = check_result(library, info, offsetof(fl_kernel_info, kernel), "kernel_info", &failure);
    if (!status && (kernel < 0 || (size_t)kernel >= library->n_kernels))
        status = refuse(&failure, FL_INVALID, "kernel %d: must be from 0 on and below %zu, the number of kernels",
                        kernel, library->n_kernels);
    if (status) return ended(status, &failure);
    size_t index = (size_t)kernel;
    const struct embedded *const version = version_of_kernel(library, &index);
    const struct instance *const instance = &version->table.instances[index];
    const struct kernel_config *const config = &instance->config;
    fl_kernel_info made = {.dtype = config->dtype == BF16 ? FL_BF16 : FL_FP16,
                           .d_head = config->d_head,
                           .features = (config_has(config, ANY_LENGTH) ? FL_ANY_LENGTH : 0u) |
                                       (config_has(config, CAUSAL) ? FL_CAUSAL : 0u) |
                                       (config_has(config, GROUPED_HEADS) ? FL_GROUPED : 0u) |
                                       (config_has(config, SERVES) ? FL_SERVING : 0u),
                           .own = own_instance(version, config->dtype, config->d_head) == instance};
    snprintf(made.kernel, sizeof made.kernel, "%s", version->about->version);
    short_name(version->about->version, made.version);
    snprintf(made.name, sizeof made.name, "%s", version->about->name);
    config_format(config, made.config);
    image_kinds(version->about->images, *version->about->image_count, made.archs, sizeof made.archs);
    write_struct(info, &made, sizeof made);
    return FL_OK;
}

/* ---- one problem ---- */

/* The part of a problem that the emulator does not support. */
static fl_status check_emulated(const fl_library *library, const struct call *call, struct failure *failure) {
    if (library->backend == FL_GPU) return FL_OK;
    if (call->problem.device > 0)
        return refuse(failure, FL_INVALID, "device %d: must be -1 or 0 on the emulator%s%s", call->problem.device,
                      library->why_no_gpu[0] ? ", which runs as " : "", library->why_no_gpu);
    if (call->problem.memory == FL_HOST_MEMORY) return FL_OK;
    return refuse(failure, FL_INVALID, "memory FL_DEVICE_MEMORY: must be FL_HOST_MEMORY on the emulator%s%s",
                  library->why_no_gpu[0] ? ", which runs as " : "", library->why_no_gpu);
}

static fl_status read_problem(const fl_library *library, const fl_problem *problem, struct call *call,
                              struct failure *failure) {
    if (!library) return refuse(failure, FL_INVALID, "library: must not be NULL");
    const fl_status status = call_read(problem, call, failure);
    return status ? status : check_emulated(library, call, failure);
}

/* Why this version, in a sentence. */
static void write_order(const struct choice *choice, bool emulated, fl_support *support) {
    const char *const name = choice->version->about->version;
    if (!choice->best)
        snprintf(support->order, sizeof support->order, "%s: requested by name", name);
    else if (emulated)
        snprintf(support->order, sizeof support->order, "%s: fastest on the emulator", name);
    else if (choice->few_rows)
        snprintf(support->order, sizeof support->order,
                 "%s: few rows per KV head, so the keys of each KV head are split across CTAs", name);
    else if (choice->measured)
        snprintf(support->order, sizeof support->order,
                 "%s: fastest measured kernel for this problem on compute capability %d.%d", name, choice->ranked_major,
                 choice->ranked_minor);
    else
        snprintf(support->order, sizeof support->order,
                 "%s: fastest kernel for the nearest measured problem on compute capability %d.%d; this one was "
                 "not measured",
                 name, choice->ranked_major, choice->ranked_minor);
}

fl_status fl_query(fl_library *library, const fl_problem *problem, fl_support *support) {
    struct failure failure;
    struct call call;
    struct choice choice;
    fl_status status = check_result(library, support, offsetof(fl_support, kernel), "support", &failure);
    if (!status) status = read_problem(library, problem, &call, &failure);
    if (!status)
        status = library->gpus ? gpu_query(library, &call, &choice, &failure)
                               : choose(library, &call, NULL, &choice, &failure);
    if (status) return ended(status, &failure);
    const struct kernel_config *const config = &choice.instance->config;
    fl_support made = {.measured = choice.measured,
                       .workspace_bytes = call.problem.memory == FL_DEVICE_MEMORY ? choice.workspace_bytes : 0};
    snprintf(made.kernel, sizeof made.kernel, "%s", choice.version->about->version);
    short_name(choice.version->about->version, made.version);
    config_format(config, made.config);
    write_order(&choice, !library->gpus, &made);
    write_struct(support, &made, sizeof made);
    return FL_OK;
}

fl_status fl_prepare(fl_library *library, const fl_problem *problem) {
    struct failure failure;
    struct call call;
    struct choice choice;
    fl_status status = read_problem(library, problem, &call, &failure);
    if (status || call_is_empty(&call)) return ended(status, &failure);
    if (library->gpus) return ended(gpu_prepare(library, &call, &failure), &failure);
    if (!(status = choose(library, &call, NULL, &choice, &failure)))
        status = emulator_prepare(library, &choice, &failure);
    return ended(status, &failure);
}

static fl_status emulated_forward(fl_library *library, const fl_problem *problem, const fl_tensors *tensors,
                                  const void *stream, struct failure *failure) {
    struct call call;
    struct choice choice;
    fl_status status = read_problem(library, problem, &call, failure);
    if (status || (status = call_read_tensors(tensors, &call, failure))) return status;
    if (stream)
        return refuse(failure, FL_INVALID, "stream %p: must be NULL on the emulator, where the call waits for O",
                      stream);
    if (call_is_empty(&call)) return FL_OK;
    if (!call.problem.seq_k) return call_clear(&call), FL_OK;
    status = choose(library, &call, NULL, &choice, failure);
    return status ? status : emulator_forward(library, &choice, &call, failure);
}

fl_status fl_forward(fl_library *library, const fl_problem *problem, const fl_tensors *tensors, void *stream) {
    struct failure failure;
    if (!library) return ended(refuse(&failure, FL_INVALID, "library: must not be NULL"), &failure);
    fl_status status = check_process(library, &failure);
    if (!status)
        status = library->gpus ? gpu_forward(library, problem, tensors, stream, &failure)
                               : emulated_forward(library, problem, tensors, stream, &failure);
    return ended(status, &failure);
}

/* ---- gradients ---- */

static fl_status read_backward(const fl_library *library, const fl_problem *problem, struct call *call,
                               struct failure *failure) {
    if (!library) return refuse(failure, FL_INVALID, "library: must not be NULL");
    const fl_status status = gradients_read_problem(problem, call, failure);
    return status ? status : check_emulated(library, call, failure);
}

fl_status fl_query_backward(fl_library *library, const fl_problem *problem, fl_support *support) {
    struct failure failure;
    struct call call;
    struct choice choice;
    fl_status status = check_result(library, support, offsetof(fl_support, kernel), "support", &failure);
    if (!status) status = read_backward(library, problem, &call, &failure);
    if (!status)
        status = library->gpus ? gpu_query_backward(library, &call, &choice, &failure)
                               : gradients_query(library, &call, NULL, &choice, &failure);
    if (status) return ended(status, &failure);
    const struct kernel_config *const config = &choice.instance->config;
    const bool device = call.problem.memory == FL_DEVICE_MEMORY;
    fl_support made = {.workspace_bytes = device ? choice.workspace_bytes : 0};
    snprintf(made.kernel, sizeof made.kernel, "%s", choice.version->about->version);
    short_name(choice.version->about->version, made.version);
    config_format(config, made.config);
    snprintf(made.order, sizeof made.order, "%s: the first kernel for gradients that the GPU runs", made.kernel);
    write_struct(support, &made, sizeof made);
    return FL_OK;
}

static fl_status emulated_backward(fl_library *library, const fl_problem *problem, const fl_tensors *tensors,
                                   const fl_gradients *gradients, const void *stream, struct failure *failure) {
    struct gradient_call asked;
    struct choice choice;
    fl_status status = read_backward(library, problem, &asked.call, failure);
    if (!status) status = gradients_read(problem, tensors, gradients, &asked, failure);
    if (status) return status;
    if (stream)
        return refuse(failure, FL_INVALID,
                      "stream %p: must be NULL on the emulator, where the call waits for the gradients", stream);
    status = gradients_choose(library, &asked.call, asked.gradients.deterministic, NULL, &choice, failure);
    if (status) return status;
    if (gradients_are_zero(&asked)) return gradients_clear(&asked), FL_OK;
    return emulator_backward(library, &choice, &asked, failure);
}

fl_status fl_backward(fl_library *library, const fl_problem *problem, const fl_tensors *tensors,
                      const fl_gradients *gradients, void *stream) {
    struct failure failure;
    if (!library) return ended(refuse(&failure, FL_INVALID, "library: must not be NULL"), &failure);
    fl_status status = check_process(library, &failure);
    if (!status)
        status = library->gpus ? gpu_backward(library, problem, tensors, gradients, stream, &failure)
                               : emulated_backward(library, problem, tensors, gradients, stream, &failure);
    return ended(status, &failure);
}
