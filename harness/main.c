/* main.c - one version of flash_forward as a program: check it, time it, report it. */
#include "common/debug_layout.h"
#include "emulator/emu.h"
#include "harness/about.h"
#include "harness/backend.h"
#include "harness/backward.h"
#include "harness/bench.h"
#include "harness/energy.h"
#include "harness/flop.h"
#include "harness/gradients.h"
#include "harness/options.h"
#include "harness/peer.h"
#include "harness/progress.h"
#include "harness/report.h"
#include "harness/select.h"
#include "harness/verify.h"
#include "runtime/config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CHOSEN = 1024 };

/* Everything one run of the program holds. */
struct session {
    struct options options;
    struct instance_table table;
    const struct instance *chosen[MAX_CHOSEN];
    size_t n_chosen;
    struct backend *backend;
    struct report report;
    struct inputs inputs;
    struct problem made;  /* what inputs and output have room for; the problem of inputs may be smaller */
    struct output output; /* of the problem of inputs */
    double peak[2];       /* measured peak of mma.sync for fp16 and bf16, 0 before it is measured */
    enum status verdict;  /* STATUS_OK, or the worst of wrong and untrusted */
    struct failure failure;
};

/* A line for people on stderr. */
static void warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void warn(const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "%s: ", about_version());
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

/* A wrong result outranks an untrusted time. */
static void lower_verdict(struct session *session, enum status status) {
    if (session->verdict != STATUS_WRONG) session->verdict = status;
}

/* ---- what runs ---- */

/* A peer has no configurations, no PTX and no debug hooks. */
static enum status check_peer_options(const struct options *options, struct failure *failure) {
    const struct {
        bool given;
        const char *name;
    } refused[] = {{options->n_configs > 0, "--config"},
                   {options->list, "--list"},
                   {options->dump != NULL, "--dump"},
                   {options->info, "--info"},
                   {options->backend == BACKEND_EMU, "--backend emu"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].given)
            return fail(failure, STATUS_USAGE, "%s: %s is %s, GPU machine code, which has no configs", refused[i].name,
                        about_version(), about_peer()->library);
    return STATUS_OK;
}

/* The instances that the command line asks for; of a peer the one of the element type. */
static enum status choose_instances(struct session *session) {
    const struct options *options = &session->options;
    struct failure *failure = &session->failure;
    if (!about_peer())
        return select_instances(options, &session->table, session->chosen, MAX_CHOSEN, &session->n_chosen, failure);
    const enum dtype dtype = options->dtype == ANY_DTYPE ? FP16 : options->dtype;
    for (size_t i = 0; i < session->table.count; i++)
        if (session->table.instances[i].config.dtype == dtype)
            session->chosen[session->n_chosen++] = &session->table.instances[i];
    return STATUS_OK;
}

/* ---- the back end ---- */

static enum status open_emulator(struct session *session) {
    const struct options *options = &session->options;
    const struct emulation how = {.checks = options->checks,
                                  .wgmma_wait_per_warp = options->wgmma_wait_per_warp,
                                  .tables = options->counters,
                                  .progress = !options->quiet,
                                  .threads = (int)options->threads,
                                  .schedule = (uint64_t)options->schedule,
                                  .ptx = options->ptx,
                                  .trace = options->trace,
                                  .trace_to = options_print_records(options) ? stderr : stdout,
                                  .events = options->trace_events};
    return emu_open(&session->backend, &how, &session->failure);
}

/* A profile is one launch and nothing else. */
static enum status open_backend(struct session *session) {
    const struct options *options = &session->options;
    if (options->backend == BACKEND_EMU) return open_emulator(session);
    const enum status status = gpu_open(&session->backend, (int)options->device, !options->profile, &session->failure);
    if (status != STATUS_CANNOT_RUN || options->backend == BACKEND_GPU || about_peer()) return status;
    const struct failure no_gpu = session->failure;
    const enum status emulated = open_emulator(session);
    if (emulated) return emulated;
    if (!options->quiet)
        fprintf(stderr, "No GPU: running on the emulator, which counts but does not time; the reason: %s\n",
                no_gpu.text);
    return STATUS_OK;
}

/* The first instance like this one that fits the GPU; itself where there is none. */
static const struct instance *fitting(const struct session *session, const struct instance *one) {
    const unsigned kind = (1u << PERSISTENT) - 1; /* the features after these say how a kernel works */
    for (size_t i = 0; i < session->table.count; i++) {
        const struct instance *const other = &session->table.instances[i];
        const struct family *const family = &FAMILIES[one->config.family];
        if (other->config.dtype == one->config.dtype && other->config.d_head == one->config.d_head &&
            !((family->features(&other->config) ^ family->features(&one->config)) & kind) &&
            session->backend->ops->fits(session->backend, other))
            return other;
    }
    return one;
}

/* On a GPU with too little shared memory for the version's own instance, another one computes the same. Of all
 * instances, those that do not fit are left out, unless none fits. */
static void choose_fitting(struct session *session) {
    const struct options *const options = &session->options;
    const bool all = options->n_configs == 1 && !strcmp(options->configs[0], "all");
    size_t kept = 0;
    if (!session->backend->ops->fits || about_peer() || (options->n_configs && !all)) return;
    for (size_t i = 0; i < session->n_chosen; i++) {
        const struct instance *const one = session->chosen[i];
        const bool fits = session->backend->ops->fits(session->backend, one);
        if (fits || !all) session->chosen[kept++] = fits ? one : fitting(session, one);
    }
    if (kept) session->n_chosen = kept;
}

/* Options that only the other back end acts on are errors, not ignored. */
static enum status check_options(struct session *session) {
    const struct options *options = &session->options;
    const bool gpu = session->backend->ops->sample != NULL;
    char names[300];
    const int count = options_only_for(options, gpu ? BACKEND_EMU : BACKEND_GPU, names, sizeof names);
    if (count && gpu)
        return fail(&session->failure, STATUS_USAGE, "%s: %s only on the emulator; add --backend emu", names,
                    count > 1 ? "act" : "acts");
    if (count && options->backend == BACKEND_EMU)
        return fail(&session->failure, STATUS_USAGE, "%s: %s only on a GPU, because the emulator does not measure time",
                    names, count > 1 ? "act" : "acts");
    if (count) warn("%s: no effect on the emulator", names);
    if (options->dump && !about_dumps())
        return fail(&session->failure, STATUS_USAGE,
                    "--dump %s: this executable was built without dumps; run `make DUMP=1 %s`, then bin/dump/%s",
                    options->dump, about_version(), about_version());
    if (options->dump && options_problem_count(options) * (int64_t)session->n_chosen > 1)
        return fail(&session->failure, STATUS_USAGE,
                    "--dump %s: requires a single problem and config; give each option one value", options->dump);
    if (options->trace_events && options_problem_count(options) * (int64_t)session->n_chosen > 1)
        return fail(&session->failure, STATUS_USAGE,
                    "--trace-events %s: requires a single problem and config; give each option one value",
                    options->trace_events);
    return STATUS_OK;
}

/* Kilobytes of memory that the host can give; 0 where that is unknown. */
static int64_t host_memory_kb(void) {
    char line[200];
    long long kb = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    if (!file) return 0;
    while (!kb && fgets(line, sizeof line, file))
        if (!strncmp(line, "MemAvailable:", 13)) kb = strtoll(line + 13, NULL, 10);
    fclose(file);
    return kb;
}

/* True if the tensors at hand begin with this problem's: a value depends on seed, tensor and index alone. */
static bool inputs_at_hand(const struct session *session, const struct problem *problem) {
    const struct problem *made = &session->made;
    return output_is_there(&session->output) && !made->backward && !problem->backward &&
           made->dtype == problem->dtype && made->e4m3 == problem->e4m3 && made->cache_e4m3 == problem->cache_e4m3 &&
           made->cache_int8 == problem->cache_int8 && made->dist == problem->dist && made->seed == problem->seed &&
           made->lse == problem->lse && made->d_head == problem->d_head && !made->latent && !problem->latent &&
           problem_elements(problem, TENSOR_Q) <= problem_elements(made, TENSOR_Q) &&
           problem_elements(problem, TENSOR_K) <= problem_elements(made, TENSOR_K) &&
           problem_elements(problem, TENSOR_V) <= problem_elements(made, TENSOR_V);
}

/* Memory of a backward problem: inputs, gradients, the statistics of each query row, and all of it again in the
 * emulator. */
static int64_t backward_host_bytes(const struct session *session, const struct problem *problem) {
    const int64_t rows = problem->batch * problem->heads * problem->seq_q;
    const int64_t gradients = problem_all_bytes(problem) - problem_bytes(problem, TENSOR_O);
    int64_t bytes = problem_all_bytes(problem) + problem_bytes(problem, TENSOR_O) + problem_lse_bytes(problem);
    for (int i = 0; i < N_BACKWARD && !session->backend->ops->sample; i++)
        bytes += backward_bytes(problem, (enum backward_memory)i);
    if (!session->backend->ops->sample) bytes += problem_all_bytes(problem) + problem_lse_bytes(problem);
    return bytes + gradients * (session->backend->ops->sample ? 2 : 1) + rows * (int64_t)sizeof(struct query_row);
}

/* Host memory of a problem: Q, K, V and what a launch leaves. On a GPU the latter is read again after timing. The
 * emulator's device is host memory too, and its checks keep who wrote an output, where gaps do not part its rows. */
static int64_t host_bytes(const struct session *session, const struct problem *problem) {
    const struct options *options = &session->options;
    if (problem->backward) return backward_host_bytes(session, problem);
    const int64_t O = problem_bytes(problem, TENSOR_O), lse = problem->lse ? problem_lse_bytes(problem) : 0;
    const int64_t tensors = problem_all_bytes(problem) + lse;
    if (session->backend->ops->sample)
        return tensors + (options->profile || options->check_rows == CHECK_NONE ? 0 : O + lse);
    const bool gaps = problem->layout == LAYOUT_PADDED || problem_is_ragged(problem);
    const int64_t watched = !options->checks ? 0 : gaps ? lse : O + lse;
    return 2 * tensors + EMU_OUTPUT_COST * watched;
}

/* Make Q, K, V and hand them over, unless this problem's are at hand. */
static enum status take_problem(struct session *session, const struct problem *problem) {
    struct failure *failure = &session->failure;
    const int64_t available = 1024 * host_memory_kb();
    const int64_t bytes = host_bytes(session, problem);
    if (output_is_there(&session->output) && problem_equal(&session->inputs.problem, problem)) return STATUS_OK;
    if (inputs_at_hand(session, problem)) {
        session->inputs.problem = *problem;
        return session->backend->ops->set_problem(session->backend, &session->inputs, failure);
    }
    inputs_free(&session->inputs);
    output_free(&session->output);
    if (available > 0 && bytes > available)
        return fail(
            failure, STATUS_ERROR,
            "batch %" PRId64 ", heads %" PRId64 ", seq %" PRId64
            " needs %.2f GB of host memory, but only %.2f GB are available; use a smaller --batch, --heads or --seq",
            problem->batch, problem->heads, problem->seq_q, (double)bytes / 1e9, (double)available / 1e9);
    /* of the reference, which takes a core a second for a tenth of it */
    const double most_flop = session->options.check_rows == CHECK_ALL ? INFINITY : 2e10;
    enum status status = inputs_generate(&session->inputs, problem, failure);
    if (!status && problem->backward) status = backward_inputs_generate(&session->inputs, most_flop, failure);
    if (status) return status;
    if ((status = output_new(&session->output, problem, failure))) return status;
    session->made = *problem;
    return session->backend->ops->set_problem(session->backend, &session->inputs, failure);
}

/* ---- one problem with one instance ---- */

static int64_t dump_bytes(const struct problem *problem, const struct kernel_config *config) {
    const attention_args args = problem_args(problem);
    return (int64_t)sizeof(float) * debug_buffer_floats(launch_Q_blocks(config, &args), launch_KV_blocks(config, &args),
                                                        config->B_r, config->B_c, config->d_head);
}

static enum status write_dump(struct session *session, int64_t bytes) {
    enum { PART = 1 << 22 };
    const char *const name = session->options.dump;
    enum status status = STATUS_OK;
    char *part = malloc(PART);
    FILE *file = part ? fopen(name, "wb") : NULL;
    if (!file) {
        free(part);
        return fail(&session->failure, STATUS_ERROR, "--dump %s: cannot be written: %s", name, strerror(errno));
    }
    for (int64_t at = 0; at < bytes && !status; at += PART) {
        const int64_t size = bytes - at < PART ? bytes - at : PART;
        status = session->backend->ops->read_dump(session->backend, at, part, size, &session->failure);
        if (!status && fwrite(part, 1, (size_t)size, file) != (size_t)size)
            status = fail(&session->failure, STATUS_ERROR, "--dump %s: %s", name, strerror(errno));
    }
    if (fclose(file) && !status) status = fail(&session->failure, STATUS_ERROR, "--dump %s: %s", name, strerror(errno));
    free(part);
    return status;
}

static enum status write_file(const char *name, const void *bytes, int64_t size, struct failure *failure) {
    FILE *file = fopen(name, "wb");
    const bool written = file && fwrite(bytes, 1, (size_t)size, file) == (size_t)size;
    const bool closed = file && !fclose(file);
    if (written && closed) return STATUS_OK;
    return fail(failure, STATUS_ERROR, "--output %s: cannot be written: %s", name, strerror(errno));
}

/* dQ, then dK and dV. */
static enum status write_gradients(struct session *session, const struct problem *problem) {
    static const char *const endings[N_INPUTS] = {"", ".dK", ".dV"};
    enum status status = STATUS_OK;
    for (int t = 0; t < N_INPUTS && !status; t++) {
        char name[PATH_MAX];
        snprintf(name, sizeof name, "%s%s", session->options.output, endings[t]);
        status =
            write_file(name, session->output.gradients[t], problem_bytes(problem, (enum tensor)t), &session->failure);
    }
    return status;
}

/* O, then log-sum-exp if there is one. */
static enum status write_output(struct session *session, const struct problem *problem) {
    const char *const name = session->options.output;
    char lse_name[PATH_MAX];
    if (problem->backward) return write_gradients(session, problem);
    const enum status status = write_file(name, session->output.O, problem_bytes(problem, TENSOR_O), &session->failure);
    if (status || !session->output.lse) return status;
    snprintf(lse_name, sizeof lse_name, "%s.lse", name);
    return write_file(lse_name, session->output.lse, problem_lse_bytes(problem), &session->failure);
}

static enum status verify(struct session *session, const struct inputs *inputs, const struct output *output,
                          struct verdict *verdict) {
    return (inputs->problem.backward ? verify_gradients : verify_output)(inputs, output, session->options.check_rows,
                                                                         verdict, &session->failure);
}

/* One launch into a poisoned output, compared with the reference. */
static enum status check(struct session *session, struct record *record, struct verdict *verdict) {
    const struct backend_ops *ops = session->backend->ops;
    struct failure *failure = &session->failure;
    enum status status;
    if ((status = ops->poison(session->backend, failure))) return status;
    if ((status = ops->launch(session->backend, failure))) return status;
    if (session->options.check_rows == CHECK_NONE) return STATUS_OK;
    if ((status = ops->read_output(session->backend, &session->output, failure))) return status;
    if (session->options.output && (status = write_output(session, record->problem))) return status;
    if ((status = verify(session, &session->inputs, &session->output, verdict))) return status;
    if (!verdict->pass) lower_verdict(session, STATUS_WRONG);
    record->verdict = verdict;
    return STATUS_OK;
}

/* Q, K and V with their signs changed, or as they were, on the host and the GPU: values that no launch before has seen,
 * at the same addresses. A backward problem keeps its inputs, among which are O and log-sum-exp of the forward pass. */
static enum status change_signs(struct session *session) {
    if (session->inputs.problem.backward) return STATUS_OK;
    inputs_negate(&session->inputs);
    return session->backend->ops->renew_inputs(session->backend, &session->inputs, &session->failure);
}

/* Another seed for the rows to compare, one that no kernel can know. */
static uint64_t fresh_seed(void) {
    uint64_t seed = 0;
    return getentropy(&seed, sizeof seed) ? 0 : seed;
}

/* The output of a timed launch must also be correct: one more sample, which is indistinguishable from the others,
 * writes into outputs full of NaN. The rows to compare are others than in the first check. */
static enum status check_again(struct session *session, struct record *record, struct verdict *after) {
    struct backend *backend = session->backend;
    struct failure *failure = &session->failure;
    struct inputs inputs = session->inputs;
    struct sample sample;
    struct output output;
    enum status status = output_new(&output, record->problem, failure);
    if (status) return status;
    inputs.problem.seed = fresh_seed();
    status = backend->ops->poison(backend, failure);
    if (!status) status = backend->ops->sample(backend, session->options.cold, &sample, failure);
    if (!status) status = backend->ops->read_output(backend, &output, failure);
    if (!status) status = verify(session, &inputs, &output, after);
    output_free(&output);
    if (status) return status;
    if (!after->pass) lower_verdict(session, STATUS_WRONG);
    record->after = after;
    return STATUS_OK;
}

static void warn_untrusted(const struct session *session, const struct measurement *measurement) {
    if (!measurement->count)
        warn("not measured: all %zu samples ran below %.0f %% of the peak SM clock; let the GPU cool or lower "
             "--throttle-threshold",
             measurement->discarded, session->options.throttle_threshold);
    else
        warn("not converged after %.1f s: noise %.2f %% of the median, %zu samples (--max-noise, --timeout)",
             measurement->wall_s, 100 * measurement->time.noise, measurement->count);
}

/* Times, and joules where they are asked for. */
static enum status time_it(struct session *session, struct record *record, struct measurement *measurement,
                           struct energy *energy) {
    struct backend *backend = session->backend;
    struct failure *failure = &session->failure;
    enum status status;
    if ((status = backend->ops->poison(backend, failure))) return status;
    if ((status = bench_run(backend, &session->options, measurement, failure))) return status;
    if (measurement->count)
        status = measurement_possible(measurement, problem_flop(record->problem), record->peak_tflops, failure);
    if (status) return status;
    record->measurement = measurement;
    if (!measurement_converged(measurement)) {
        warn_untrusted(session, measurement);
        if (session->options.strict) lower_verdict(session, STATUS_UNTRUSTED);
    }
    if (!session->options.energy || !measurement->count) return STATUS_OK;
    if ((status = energy_run(backend, measurement->time.median, energy, failure))) return status;
    record->energy = energy;
    if (!energy->launches)
        warn("--energy: NVML is missing or its energy counter does not advance; install NVML or remove --energy");
    return STATUS_OK;
}

/* The timed launches get other inputs than the checked one: a result that was kept is a wrong one. */
static enum status measure(struct session *session, struct record *record, struct measurement *measurement,
                           struct energy *energy, struct verdict *after) {
    struct backend *backend = session->backend;
    double *const peak = &session->peak[record->problem->dtype == BF16];
    enum status status = STATUS_OK;
    if (!*peak) status = backend->ops->peak(backend, record->problem->dtype, peak, &session->failure);
    /* wgmma of e4m3 multiplies twice as many elements in its time */
    record->peak_tflops = *peak * (record->problem->e4m3 ? 2 : 1);
    if (!status && record->verdict) status = change_signs(session);
    if (!status) status = time_it(session, record, measurement, energy);
    if (status || !record->verdict) return status;
    if ((status = check_again(session, record, after))) return status;
    return change_signs(session);
}

/* Totals of an emulated launch; what was found makes its result wrong. */
static void take_counts(struct session *session, struct record *record, struct counts *counts) {
    session->backend->ops->counts(session->backend, counts);
    record->counts = counts;
    if (counts->findings) lower_verdict(session, STATUS_WRONG);
}

/* Findings in words and, with --counters, the tables, unless these are in a JSON record. */
static enum status explain(struct session *session) {
    const struct options *options = &session->options;
    const bool text = report_is_text(options) && !options->profile;
    const bool tables = options->counters && (text || !options->json);
    if (session->backend->ops->explain(session->backend, text ? stdout : stderr, tables)) return STATUS_OK;
    return fail(&session->failure, STATUS_ERROR, "out of memory for the tables of counters");
}

/* --profile: one launch and no report but what the emulator found. */
static enum status launch_only(struct session *session, struct record *record, struct counts *counts) {
    const struct backend_ops *ops = session->backend->ops;
    const enum status status = ops->launch(session->backend, &session->failure);
    if (status || !ops->counts) return status;
    take_counts(session, record, counts);
    return explain(session);
}

/* ---- how long the emulator takes ---- */

static double processor_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Processor time of a short launch, the second because the first decodes the PTX, divided by its operations; 0 where it
 * fails. */
static double seconds_per_flop(struct session *session, const struct problem *problem,
                               const struct instance *instance) {
    const struct backend_ops *const ops = session->backend->ops;
    const struct kernel_config *const config = &instance->config;
    struct problem small = *problem;
    struct inputs inputs = {.problem = small};
    struct kernel_code code;
    struct failure failure;
    double seconds = 0;
    small.batch = small.heads = small.KV_heads = 1;
    small.seq_q = small.seq_k = 4 * (config->B_r > config->B_c ? config->B_r : config->B_c);
    if (!inputs_generate(&inputs, &small, &failure) && !ops->set_problem(session->backend, &inputs, &failure) &&
        !ops->set_instance(session->backend, instance, &code, &failure) && !ops->launch(session->backend, &failure)) {
        const double start = processor_s();
        if (!ops->launch(session->backend, &failure)) seconds = processor_s() - start;
    }
    inputs_free(&inputs);
    return seconds / problem_flop(&small);
}

/* State beforehand about how long a launch takes that keeps the emulator busy for more than half a minute or so. */
static void announce_time(struct session *session, const struct problem *problem, const struct instance *instance) {
    static const double long_flop = 3e10;
    char text[40];
    const struct options *const options = &session->options;
    if (!session->backend->ops->counts || options->quiet || options->trace || options->trace_events ||
        (output_is_there(&session->output) && problem_equal(&session->inputs.problem, problem)) || problem->backward ||
        problem_is_served(problem) || problem_flop(problem) < long_flop)
        return;
    const int64_t threads = options->threads ? options->threads : sysconf(_SC_NPROCESSORS_ONLN);
    const double seconds = seconds_per_flop(session, problem, instance) * problem_flop(problem) / (double)threads;
    if (seconds > 0)
        fprintf(stderr, "%s: batch %" PRId64 ", heads %" PRId64 ", seq %" PRId64 ": about %s on %" PRId64 " threads\n",
                about_version(), problem->batch, problem->heads, problem->seq_q,
                duration_text(seconds, text, sizeof text), threads);
}

static enum status run_one(struct session *session, const struct problem *problem, const struct instance *instance) {
    struct backend *backend = session->backend;
    struct failure *failure = &session->failure;
    struct kernel_code code;
    struct verdict verdict, after;
    struct measurement measurement = {0};
    struct energy energy;
    struct counts counts;
    struct record record = {.backend = backend, .instance = instance, .problem = problem, .code = &code};
    const int64_t dumped = about_dumps() ? dump_bytes(problem, &instance->config) : 0;
    announce_time(session, problem, instance);
    enum status status = take_problem(session, problem);
    if (status || (status = backend->ops->set_instance(backend, instance, &code, failure))) return status;
    if (dumped && (status = backend->ops->set_dump(backend, dumped, failure))) return status;
    if (session->options.profile) return launch_only(session, &record, &counts);
    if ((status = check(session, &record, &verdict))) return status;
    if (session->options.dump && (status = write_dump(session, dumped))) return status;
    if (backend->ops->counts) take_counts(session, &record, &counts);
    const bool correct = !record.verdict || verdict.pass;
    if (backend->ops->sample && correct && !dumped) status = measure(session, &record, &measurement, &energy, &after);
    if (!status) status = report_record(&session->report, &record, failure);
    if (!status && backend->ops->explain) status = explain(session);
    measurement_free(&measurement);
    return status;
}

/* ---- the whole run ---- */

static enum status for_each_problem(struct session *session,
                                    enum status (*body)(struct session *, const struct problem *,
                                                        const struct instance *)) {
    const bool gpu = session->backend->ops->sample != NULL;
    for (int64_t i = 0; i < options_problem_count(&session->options); i++)
        for (size_t k = 0; k < session->n_chosen; k++) {
            struct problem problem;
            options_problem_at(&session->options, gpu, i, &session->chosen[k]->config, &problem);
            const enum status status = body(session, &problem, session->chosen[k]);
            if (status) return status;
        }
    return STATUS_OK;
}

static enum status check_one(struct session *session, const struct problem *problem, const struct instance *instance) {
    const struct backend *backend = session->backend;
    const struct options *options = &session->options;
    const bool of_keys = options->seq_k.count && !options->seq.count; /* then there are as many queries */
    if (options->tokens % problem->seq_q)
        return fail(&session->failure, STATUS_USAGE,
                    "--tokens %" PRId64 ": must be a multiple of the queries per sequence, %s %" PRId64,
                    options->tokens,
                    options->seq_q.count ? "--seq-q"
                    : of_keys            ? "--seq-k"
                                         : "--seq",
                    problem->seq_q);
    const enum status status = problem_check(problem, &instance->config, &session->failure);
    if (status || !backend->ops->check_launch) return status;
    return backend->ops->check_launch(backend, problem, instance, &session->failure);
}

static void print_device(const struct session *session) {
    const struct device_info *device = &session->backend->device;
    if (!report_is_text(&session->options) || session->options.profile) return;
    if (session->backend->ops->sample)
        printf("%s, compute capability %d.%d, %d SMs, driver %s; seed %" PRId64 "\n", device->name, device->major,
               device->minor, device->sms, device->driver, session->options.seed);
    else
        printf("%s: runs the PTX on the CPU; reports counts, not times; seed %" PRId64 "\n", device->name,
               session->options.seed);
}

/* The abilities of this executable's kernels, combined; a library's kernels may have any. */
static unsigned features_of(const struct instance_table *table) {
    unsigned features = about_peer() ? ~0u : 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct kernel_config *const config = &table->instances[i].config;
        features |= FAMILIES[config->family].features(config);
    }
    return features;
}

static enum status run(struct session *session, int argc, char **argv) {
    struct failure *failure = &session->failure;
    const struct options *options = &session->options;
    enum status status = options_parse(&session->options, argc, argv, failure);
    if (status || (status = options_check(options, failure))) return status;
    if (options->version) {
        printf("%s %s (revision %s%s, toolkit %s)\n", about_version(), about_name(), about_revision(),
               about_dirty() ? ", changed" : "", about_toolkit());
        return STATUS_OK;
    }
    if (about_peer() && (status = check_peer_options(options, failure))) return status;
    status = about_peer() ? peer_instances(&session->table, options->d_head ? (int)options->d_head : 128, failure)
                          : instance_table_read(&session->table, fl_images, fl_image_count, failure);
    if (status) return status;
    if (options->help) {
        options_help(stdout, argv[0], features_of(&session->table));
        return STATUS_OK;
    }
    if (options->info) return report_info(&session->table, failure);
    if (options->list) return report_list(&session->table, failure);
    if ((status = choose_instances(session))) return status;
    if ((status = open_backend(session))) return status;
    choose_fitting(session);
    if ((status = check_options(session))) return status;
    if ((status = for_each_problem(session, check_one))) return status;
    if ((status = report_open(&session->report, options, argc, argv, failure))) return status;
    print_device(session);
    status = for_each_problem(session, run_one);
    struct failure closing;
    const enum status closed = report_close(&session->report, &closing);
    if (!status && closed) {
        *failure = closing;
        status = closed;
    }
    return status;
}

/* A file that is opened must not get the number of a standard stream that the caller closed: a report would go into it.
 * A write to a closed stdout is an error, as on a full disk; a write to a closed stderr is lost. */
static void occupy_standard_streams(void) {
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++)
        if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", stream == STDOUT_FILENO ? O_RDONLY : O_RDWR) < 0) return;
}

int main(int argc, char **argv) {
    occupy_standard_streams();
    struct session *session = calloc(1, sizeof *session);
    if (!session) {
        fprintf(stderr, "%s: out of memory\n", argv[0]);
        return STATUS_ERROR;
    }
    enum status status = run(session, argc, argv);
    if (!status) status = report_flush(&session->failure);
    if (status) {
        fflush(stdout);
        fprintf(stderr, "%s: %s\n", about_version(), session->failure.text);
    } else {
        status = session->verdict;
    }
    if (session->backend) session->backend->ops->close(session->backend);
    inputs_free(&session->inputs);
    output_free(&session->output);
    instance_table_free(&session->table);
    free(session);
    return (int)status;
}
