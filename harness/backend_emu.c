/* backend_emu.c - the emulator as a back end: it runs the embedded PTX on the CPU, checks it and counts. */
#include "emulator/emu.h"
#include "harness/about.h"
#include "harness/arguments.h"
#include "harness/backend.h"
#include "harness/backward.h"
#include "harness/progress.h"
#include "harness/serving.h"
#include "harness/tensor_memory.h"
#include "runtime/config.h"
#include "runtime/launch.h"
#include "runtime/parameters.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct emu {
    struct backend backend;
    struct emulation how;
    char *text; /* owned: the PTX of a file; NULL for that of the executable */
    emu_module *module;
    emu_device *device;
    emu_trace trace;
    struct problem problem;
    const struct inputs *inputs;
    uint64_t tensors[N_TENSORS];
    uint64_t lse, tickets; /* lse is 0 where it is not wanted */
    uint64_t serving;
    uint64_t dump;
    uint64_t backward[N_BACKWARD];
    const struct instance *instance;
    size_t findings;     /* of all kernels of the last launch */
    emu_counters tables; /* likewise */
    emu_counter *rows;   /* of the tables, owned */
    emu_region *regions; /* likewise */
};

static void emu_close(struct backend *backend) {
    struct emu *emu = (struct emu *)backend;
    if (emu->device) emu_device_free(emu->device);
    if (emu->module) emu_unload(emu->module);
    free(emu->rows);
    free(emu->regions);
    free(emu->text);
    free(emu);
}

/* Buffers of a backward problem besides the tensors, and the results of the forward pass. */
static enum status set_backward(struct emu *emu, struct failure *failure) {
    const struct problem *problem = &emu->problem;
    const size_t lse_bytes = (size_t)problem_device_lse_bytes(problem);
    for (int i = 0; i < N_BACKWARD; i++) {
        const uint64_t bytes = (uint64_t)backward_bytes(problem, (enum backward_memory)i);
        emu->backward[i] = emu_alloc(emu->device, backward_name((enum backward_memory)i), bytes, EMU_BUFFER);
        if (!emu->backward[i]) return fail_memory(failure, bytes, "a gradient in the emulator");
        memset(emu_host_bytes(emu->device, emu->backward[i]), 0, (size_t)bytes);
    }
    if (!(emu->lse = emu_alloc(emu->device, "LSE", lse_bytes, EMU_BUFFER)))
        return fail_memory(failure, lse_bytes, "log-sum-exp in the emulator");
    lse_spread(problem, emu->inputs->lse, emu_host_bytes(emu->device, emu->lse));
    tensor_spread(problem, TENSOR_O, emu->inputs->O, emu_host_bytes(emu->device, emu->tensors[TENSOR_O]));
    tensor_spread(problem, TENSOR_O, emu->inputs->dO, emu_host_bytes(emu->device, emu->backward[OF_DO]));
    return STATUS_OK;
}

/* The arrays that serving_args name. */
static enum status set_serving(struct emu *emu, struct failure *failure) {
    const uint64_t bytes = (uint64_t)serving_bytes(&emu->problem);
    if (!(emu->serving = emu_alloc(emu->device, "lengths and sinks", bytes, EMU_BUFFER)))
        return fail_memory(failure, bytes, "lengths and sinks in the emulator");
    serving_fill(&emu->problem, emu_host_bytes(emu->device, emu->serving));
    return STATUS_OK;
}

/* The emulator's buffers live as long as its device: a new problem takes a new device. */
static enum status emu_set_problem(struct backend *backend, const struct inputs *inputs, struct failure *failure) {
    static const char *const names[N_TENSORS] = {"Q", "K", "V", "O"};
    struct emu *emu = (struct emu *)backend;
    const struct problem *problem = &emu->problem;
    if (emu->device) emu_device_free(emu->device);
    emu->lse = emu->dump = 0;
    emu->problem = inputs->problem;
    emu->inputs = inputs;
    if (!(emu->device = emu_device_new())) return fail(failure, STATUS_ERROR, "out of memory for the emulator");
    /* Every byte of an output must be written, or every row if it has gaps; unwritten ones are found as NaN. Parts of
     * the keys may be added up by a second launch. */
    const bool all_of_lse = (problem->layout == LAYOUT_PACKED || !problem_is_ragged(problem)) && !problem->split_keys;
    const bool all_of_O = problem->layout != LAYOUT_PADDED && all_of_lse && !problem->backward;
    for (int t = 0; t < N_TENSORS; t++) {
        const int64_t bytes = problem_device_bytes(problem, (enum tensor)t);
        const bool output = t == TENSOR_O && all_of_O;
        emu->tensors[t] = emu_alloc(emu->device, names[t], (uint64_t)bytes, output ? EMU_OUTPUT : EMU_BUFFER);
        if (!emu->tensors[t]) return fail_memory(failure, (uint64_t)bytes, "a tensor of the emulator");
        if (t != TENSOR_O)
            tensor_spread(problem, (enum tensor)t, inputs->tensors[t], emu_host_bytes(emu->device, emu->tensors[t]));
    }
    const enum status status = set_serving(emu, failure);
    if (status || problem->backward) return status ? status : set_backward(emu, failure);
    const uint64_t lse_bytes = (uint64_t)problem_device_lse_bytes(problem);
    if (problem->lse && !(emu->lse = emu_alloc(emu->device, "LSE", lse_bytes, all_of_lse ? EMU_OUTPUT : EMU_BUFFER)))
        return fail_memory(failure, lse_bytes, "log-sum-exp in the emulator");
    return STATUS_OK;
}

/* Few, so that a small problem has whole waves of CTAs and a part of one; a split tail leaves no dump. */
static int multiprocessors(void) {
    return about_dumps() ? 1 : 16;
}

/* Memory that CTAs share: zeros, followed by bytes that no kernel reads before it writes them. */
static enum status set_tickets(struct emu *emu, struct failure *failure) {
    const serving_args args = serving_args_of(&emu->problem, problem_args(&emu->problem), emu->serving);
    const struct kernel_config *const config = &emu->instance->config;
    const size_t bytes = (size_t)launch_workspace_bytes(config, &args.attention, multiprocessors());
    const size_t counters = (size_t)launch_counter_bytes(config);
    if (!(emu->tickets = emu_alloc(emu->device, "tickets", bytes, EMU_BUFFER)))
        return fail_memory(failure, bytes, "the tickets in the emulator");
    unsigned char *const memory = emu_host_bytes(emu->device, emu->tickets);
    memset(memory, 0, counters);
    memset(memory + counters, POISON_BYTE, bytes - counters);
    return STATUS_OK;
}

static enum status fail_load(const emu_error *error, struct failure *failure) {
    return fail(failure, STATUS_ERROR, "the emulator cannot load the PTX: line %d: %s", error->line, error->text);
}

static enum status emu_set_instance(struct backend *backend, const struct instance *instance, struct kernel_code *code,
                                    struct failure *failure) {
    struct emu *emu = (struct emu *)backend;
    const emu_entry_info *entry = emu_entry(emu->module, instance->entry);
    *code = (struct kernel_code){0};
    emu->instance = instance;
    if (!entry || strcmp(entry->name, instance->symbol) != 0)
        return fail(failure, STATUS_ERROR, "%s: not in the PTX of this executable; build it again with make",
                    instance->symbol);
    if (entry->param_bytes != parameters_bytes(&instance->config))
        return fail(failure, STATUS_ERROR, "%s takes %u bytes of parameters: %s%s %zu", instance->symbol,
                    entry->param_bytes, config_args(&instance->config)->type,
                    config_has(&instance->config, TENSOR_COPIES) ? " and tensor_maps have" : " has",
                    parameters_bytes(&instance->config));
    emu_error error;
    const int entries[] = {instance->entry, instance->before.symbol ? instance->before.entry : instance->entry,
                           instance->after.symbol ? instance->after.entry : instance->entry};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (!emu_decode(emu->module, entries[i], &error)) return fail_load(&error, failure);
    return config_has(&instance->config, TICKETS) ? set_tickets(emu, failure) : STATUS_OK;
}

static void poison_gradients(const struct emu *emu) {
    for (int i = 0; i < N_BACKWARD; i++)
        if (backward_is_written((enum backward_memory)i))
            memset(emu_host_bytes(emu->device, emu->backward[i]), POISON_BYTE,
                   (size_t)backward_bytes(&emu->problem, (enum backward_memory)i));
}

static enum status emu_poison(struct backend *backend, struct failure *failure) {
    struct emu *emu = (struct emu *)backend;
    (void)failure;
    if (emu->problem.backward) {
        poison_gradients(emu);
        return STATUS_OK;
    }
    memset(emu_host_bytes(emu->device, emu->tensors[TENSOR_O]), POISON_BYTE,
           (size_t)problem_device_bytes(&emu->problem, TENSOR_O));
    if (emu->lse)
        memset(emu_host_bytes(emu->device, emu->lse), POISON_BYTE, (size_t)problem_device_lse_bytes(&emu->problem));
    return STATUS_OK;
}

/* The launch of an instance on a problem, without its parameters. */
static emu_launch make_launch(const struct emu *emu, const struct problem *problem, const struct instance *instance) {
    const serving_args args = serving_args_of(problem, problem_args(problem), emu->serving);
    const launch_shape shape = launch_of(&instance->config, &args.attention, multiprocessors());
    return (emu_launch){.entry = instance->entry,
                        .grid = {shape.grid_x, shape.grid_y, shape.grid_z},
                        .block = {shape.threads, 1, 1},
                        .dynamic_shared = shape.smem_bytes,
                        .checks = emu->how.checks,
                        .wgmma_wait_per_warp = emu->how.wgmma_wait_per_warp,
                        .schedule = emu->how.schedule,
                        .threads = emu->how.threads,
                        .output = stderr,
                        .trace = emu->trace};
}

static enum status emu_check_launch(const struct backend *backend, const struct problem *problem,
                                    const struct instance *instance, struct failure *failure) {
    const struct emu *emu = (const struct emu *)backend;
    const emu_launch launch = make_launch(emu, problem, instance);
    emu_error error;
    if (emu_check_trace(&launch, &error)) return STATUS_OK;
    return fail(failure, STATUS_USAGE, "--trace '%s': %s (batch %" PRId64 ", heads %" PRId64 ", seq %" PRId64 ")",
                emu->how.trace, error.text, problem->batch, problem->heads, problem->seq_q);
}

static uint64_t ctas_done(const void *device) {
    return emu_ctas_done(device);
}

/* Say how far a launch has come, unless it is traced: then that is seen. */
static struct progress *start_progress(const struct emu *emu, const emu_launch *launch, char *label, size_t size) {
    const struct problem *problem = &emu->problem;
    const bool terminal = isatty(STDERR_FILENO);
    if (!emu->how.progress || emu->trace.file) return NULL;
    snprintf(label, size, "%s: batch %" PRId64 ", heads %" PRId64 ", seq %" PRId64, about_version(), problem->batch,
             problem->heads, problem->seq_q);
    return progress_start(
        &(struct progress_plan){.file = stderr,
                                .terminal = terminal,
                                .interval_s = terminal ? 1 : 10,
                                .label = label,
                                .unit = "CTAs",
                                .total = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2],
                                .done = ctas_done,
                                .context = emu->device});
}

static union kernel_args arguments_of(const struct emu *emu) {
    attention_args args = problem_args(&emu->problem);
    args.Q = (const void *)(uintptr_t)emu->tensors[TENSOR_Q];
    args.K = (const void *)(uintptr_t)emu->tensors[TENSOR_K];
    args.V = (const void *)(uintptr_t)emu->tensors[TENSOR_V];
    args.O = (void *)(uintptr_t)emu->tensors[TENSOR_O];
    args.debug = (void *)(uintptr_t)emu->dump;
    args.LSE = (float *)(uintptr_t)emu->lse;
    args.tickets = config_has(&emu->instance->config, TICKETS) ? (int32_t *)(uintptr_t)emu->tickets : NULL;
    return problem_arguments(&emu->problem, args, emu->backward, emu->serving);
}

static enum status fail_events(const struct emu *emu, struct failure *failure) {
    return fail(failure, STATUS_ERROR, "--trace-events %s: cannot be written: %s", emu->how.events,
                errno ? strerror(errno) : "out of memory");
}

/* Run a launch, with its events in the file that was asked for. */
static enum status run_launch(struct emu *emu, emu_launch *launch, emu_status *ended, emu_error *error,
                              struct failure *failure) {
    if (!emu->how.events) {
        *ended = emu_run(emu->device, emu->module, launch, error);
        return STATUS_OK;
    }
    FILE *const file = fopen(emu->how.events, "w");
    if (!file) return fail_events(emu, failure);
    launch->trace.events = emu_events_begin(file);
    if (!launch->trace.events) {
        fclose(file);
        return fail(failure, STATUS_ERROR, "--trace-events %s: out of memory", emu->how.events);
    }
    *ended = emu_run(emu->device, emu->module, launch, error);
    errno = 0;
    const bool complete = emu_events_end(launch->trace.events);
    const bool closed = !fclose(file);
    return complete && closed ? STATUS_OK : fail_events(emu, failure);
}

/* Append the rows of a kernel's counters, and its regions, which the rows name by their index. */
static bool append_rows(struct emu *emu, const emu_counters *new) {
    emu_counters *const all = &emu->tables;
    const size_t count = all->count + new->count, region_count = all->region_count + new->region_count;
    emu_counter *const rows = realloc(emu->rows, (count + 1) * sizeof *rows);
    if (rows) emu->rows = rows;
    emu_region *const regions = realloc(emu->regions, (region_count + 1) * sizeof *regions);
    if (regions) emu->regions = regions;
    if (!rows || !regions) return false;
    for (size_t i = 0; i < new->count; i++) {
        rows[all->count + i] = new->rows[i];
        rows[all->count + i].region += (int)all->region_count;
    }
    memcpy(regions + all->region_count, new->regions, new->region_count * sizeof *regions);
    all->rows = rows, all->count = count;
    all->regions = regions, all->region_count = region_count;
    return true;
}

/* Add the counters of the kernel that ran last to those of the launch. */
static enum status add_counters(struct emu *emu, struct failure *failure) {
    const emu_counters *const new = emu_counts(emu->device);
    emu_counter *const total = &emu->tables.total;
    size_t findings;
    if (!append_rows(emu, new)) return fail_memory(failure, new->count * sizeof *new->rows, "counters");
    emu_findings(emu->device, &findings);
    total->executed += new->total.executed;
    total->lanes += new->total.lanes;
    total->wavefronts += new->total.wavefronts;
    total->ideal += new->total.ideal;
    total->sectors += new->total.sectors;
    total->requests += new->total.requests;
    total->bytes += new->total.bytes;
    emu->tables.steps += new->steps;
    emu->tables.traced += new->traced;
    emu->tables.races_unseen |= new->races_unseen;
    emu->tables.orders |= new->orders;
    emu->findings += findings;
    return STATUS_OK;
}

/* Run one kernel with the parameters that a launch has. The small ones of a backward pass leave no events. */
static enum status run_kernel(struct emu *emu, emu_launch *launch, bool small, struct failure *failure) {
    emu_error error = {0};
    emu_status ended = EMU_OK;
    char label[120];
    struct progress *const progress = start_progress(emu, launch, label, sizeof label);
    enum status status = STATUS_OK;
    if (small)
        ended = emu_run(emu->device, emu->module, launch, &error);
    else
        status = run_launch(emu, launch, &ended, &error, failure);
    progress_stop(progress);
    if (status) return status;
    if (ended != EMU_REFUSED) return add_counters(emu, failure);
    return fail(failure, STATUS_ERROR, "the emulator rejects %s: line %d of the PTX: %s", emu->instance->symbol,
                error.line, error.text);
}

/* The kernels of a backward pass one after the other, up to the first in which something was found: explain() has the
 * findings of the last. The small ones take no tensor maps. */
static enum status run_backward(struct emu *emu, emu_launch launch, const attention_args *args,
                                struct failure *failure) {
    struct step steps[MOST_STEPS];
    struct parameter_block block;
    const int count = backward_steps(emu->instance, args, multiprocessors(), steps);
    const enum status made = parameters_of_emulator(&emu->instance->config, args, &block, failure);
    if (made) return made;
    launch.params = block.bytes;
    for (int i = 0; i < count && !emu->findings; i++) {
        const launch_shape shape = steps[i].shape;
        launch.entry = steps[i].entry;
        launch.param_bytes = (uint32_t)(steps[i].main ? block.size : config_args(&emu->instance->config)->bytes);
        memcpy(launch.grid, (const uint32_t[]){shape.grid_x, shape.grid_y, shape.grid_z}, sizeof launch.grid);
        launch.block[0] = shape.threads;
        launch.dynamic_shared = shape.smem_bytes;
        launch.trace.events = NULL; /* those of the kernel before have ended */
        const enum status status = run_kernel(emu, &launch, !steps[i].main, failure);
        if (status) return status;
    }
    return STATUS_OK;
}

/* The launches of a kernel one after the other, up to the first in which something was found. */
static enum status run_forward(struct emu *emu, emu_launch launch, union kernel_args args, struct failure *failure) {
    struct parameter_block block;
    for (int i = 0; i < launch_count(&emu->instance->config, &args.attention) && !emu->findings; i++) {
        if (i > 0) args.extended.combines = 1;
        enum status status = parameters_of_emulator(&emu->instance->config, &args.attention, &block, failure);
        launch.params = block.bytes;
        launch.param_bytes = (uint32_t)block.size;
        if (i > 0) launch.trace.events = NULL; /* those of the kernel before have ended */
        if (!status) status = run_kernel(emu, &launch, false, failure);
        if (status) return status;
    }
    return STATUS_OK;
}

/* A finding is reported by explain() and counted in counts; only a kernel that could not continue is a failure here. */
static enum status emu_launch_once(struct backend *backend, struct failure *failure) {
    struct emu *emu = (struct emu *)backend;
    const emu_launch launch = make_launch(emu, &emu->problem, emu->instance);
    const union kernel_args args = arguments_of(emu);
    emu->findings = 0;
    emu->tables = (emu_counters){0};
    const enum status status = emu->problem.backward ? run_backward(emu, launch, &args.attention, failure)
                                                     : run_forward(emu, launch, args, failure);
    if (!status && !emu->findings && emu->trace.file && !emu->tables.traced)
        return fail(failure, STATUS_USAGE, "--trace '%s': no such instruction ran; --counters lists the lines that ran",
                    emu->how.trace);
    return status;
}

static enum status emu_read_output(struct backend *backend, struct output *output, struct failure *failure) {
    struct emu *emu = (struct emu *)backend;
    (void)failure;
    output->strays = 0;
    for (int t = 0; t < N_INPUTS && emu->problem.backward; t++)
        output->strays += tensor_gather(&emu->problem, (enum tensor)t,
                                        emu_host_bytes(emu->device, emu->backward[OF_DQ + t]), output->gradients[t]);
    if (output->dsinks)
        memcpy(output->dsinks, emu_host_bytes(emu->device, emu->backward[OF_DSINKS]),
               (size_t)backward_bytes(&emu->problem, OF_DSINKS));
    if (emu->problem.backward) return STATUS_OK;
    output->strays =
        tensor_gather(&emu->problem, TENSOR_O, emu_host_bytes(emu->device, emu->tensors[TENSOR_O]), output->O);
    if (emu->lse) output->strays += lse_gather(&emu->problem, emu_host_bytes(emu->device, emu->lse), output->lse);
    return STATUS_OK;
}

static enum status emu_set_dump(struct backend *backend, int64_t bytes, struct failure *failure) {
    struct emu *emu = (struct emu *)backend;
    emu->dump = emu_alloc(emu->device, "dump", (uint64_t)bytes, EMU_BUFFER);
    if (!emu->dump) return fail_memory(failure, (uint64_t)bytes, "the dump");
    memset(emu_host_bytes(emu->device, emu->dump), POISON_BYTE, (size_t)bytes);
    return STATUS_OK;
}

static enum status emu_read_dump(struct backend *backend, int64_t offset, void *bytes, int64_t size,
                                 struct failure *failure) {
    struct emu *emu = (struct emu *)backend;
    (void)failure;
    memcpy(bytes, (const char *)emu_host_bytes(emu->device, emu->dump) + offset, (size_t)size);
    return STATUS_OK;
}

static void emu_totals(const struct backend *backend, struct counts *counts) {
    const struct emu *emu = (const struct emu *)backend;
    const emu_counters *const counters = &emu->tables;
    *counts = (struct counts){.executed = counters->total.executed,
                              .wavefronts = counters->total.wavefronts,
                              .ideal = counters->total.ideal,
                              .sectors = counters->total.sectors,
                              .findings = emu->findings,
                              .orders = emu->tables.orders,
                              .tables = emu->how.tables ? counters : NULL};
    for (size_t i = 0; i < counters->count; i++) {
        const emu_counter *row = &counters->rows[i];
        if (!strcmp(row->group, "mma")) counts->mma += row->executed;
        if (!strcmp(row->group, "ldmatrix")) counts->ldmatrix += row->executed;
        if (strstr(row->location.ptx, "wgmma.mma_async.")) counts->wgmma += row->executed;
        if (strstr(row->location.ptx, "cp.async.bulk.")) counts->copied += row->bytes;
    }
}

static bool emu_explain(const struct backend *backend, FILE *file, bool counters) {
    const struct emu *emu = (const struct emu *)backend;
    emu_print_findings(file, emu->device);
    return !counters || emu_print_counters(file, &emu->tables);
}

static const struct backend_ops EMU_OPS = {
    .name = "emu",
    .close = emu_close,
    .check_launch = emu_check_launch,
    .set_problem = emu_set_problem,
    .set_instance = emu_set_instance,
    .poison = emu_poison,
    .launch = emu_launch_once,
    .read_output = emu_read_output,
    .set_dump = emu_set_dump,
    .read_dump = emu_read_dump,
    .counts = emu_totals,
    .explain = emu_explain,
};

/* --trace does not restrict what it does not name, except that the lane is 0. */
static enum status set_trace(emu_trace *trace, const struct emulation *how, struct failure *failure) {
    emu_error error;
    *trace = (emu_trace){.file = how->trace_to, .cta = -1, .warp = -1, .lane = 0};
    if (emu_parse_trace(how->trace, trace, &error)) return STATUS_OK;
    return fail(failure, STATUS_USAGE, "--trace '%s': %s", how->trace, error.text);
}

/* Read a text file, which the caller frees; NULL, and errno says why, if that fails. */
static char *read_text(const char *path, size_t *bytes) {
    errno = 0;
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t room = 0;
    const ssize_t length = file ? getdelim(&text, &room, 0, file) : -1;
    if (file) fclose(file);
    *bytes = length < 0 ? 0 : (size_t)length;
    if (length >= 0) return text;
    free(text);
    return NULL;
}

/* Load the PTX of the executable, or of the file that --ptx names. */
static enum status load_module(struct emu *emu, const struct code_image *ptx, struct failure *failure) {
    emu_error error = {0};
    size_t bytes = ptx->size;
    if (emu->how.ptx && !(emu->text = read_text(emu->how.ptx, &bytes)))
        return fail(failure, STATUS_USAGE, "--ptx %s: %s", emu->how.ptx, errno ? strerror(errno) : "the file is empty");
    const char *text = emu->text ? emu->text : (const char *)ptx->bytes;
    return (emu->module = emu_load(text, bytes, &error)) ? STATUS_OK : fail_load(&error, failure);
}

enum status emu_open(struct backend **backend, const struct emulation *how, struct failure *failure) {
    const struct code_image *ptx = image_find(fl_images, fl_image_count, "ptx");
    if (!ptx) return fail(failure, STATUS_ERROR, "this executable contains no PTX; build it again with make");
    struct emu *emu = malloc(sizeof *emu);
    if (!emu) return fail_memory(failure, sizeof *emu, "the emulator's state");
    *emu = (struct emu){
        .backend = {.ops = &EMU_OPS, .device = {.name = "PTX emulator", .major = 8, .minor = 0, .driver = "none"}},
        .how = *how};
    enum status status = how->trace ? set_trace(&emu->trace, how, failure) : STATUS_OK;
    if (!status) status = load_module(emu, ptx, failure);
    if (status)
        emu_close(&emu->backend);
    else
        *backend = &emu->backend;
    return status;
}
