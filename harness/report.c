#include "harness/report.h"

#include "emulator/emu.h"
#include "harness/about.h"
#include "harness/block_mask.h"
#include "harness/flop.h"
#include "harness/peer.h"
#include "runtime/config.h"
#include "runtime/json.h"
#include "runtime/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bool to_stdout(const struct options *options) {
    return options->json && !strcmp(options->json, "-");
}

bool report_is_text(const struct options *options) {
    return !options->quiet && !options_print_records(options);
}

enum status report_open(struct report *report, const struct options *options, int argc, char **argv,
                        struct failure *failure) {
    *report = (struct report){.options = options, .argc = argc, .argv = argv, .json = -1};
    if (!options->json) return STATUS_OK;
    report->json =
        to_stdout(options) ? STDOUT_FILENO : open(options->json, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (report->json < 0)
        return fail(failure, STATUS_ERROR, "--json %s: cannot be opened: %s", options->json, strerror(errno));
    return STATUS_OK;
}

/* Totals of an emulated launch: the name in records and CSV, the words for people, where struct counts has it, and
 * whether it is printed for people where it is 0. */
static const struct {
    const char *field, *words;
    size_t offset;
    bool also_none;
} TOTALS[] = {
    {"executed", "PTX warp instructions", offsetof(struct counts, executed), true},
    {"mma", "  of them mma", offsetof(struct counts, mma), false},
    {"wgmma", "  of them wgmma", offsetof(struct counts, wgmma), false},
    {"ldmatrix", "  of them ldmatrix", offsetof(struct counts, ldmatrix), false},
    {"wavefronts", "shared-memory wavefronts, modeled", offsetof(struct counts, wavefronts), true},
    {"ideal", "  without bank conflicts", offsetof(struct counts, ideal), true},
    {"sectors", "global-memory sectors of 32 bytes", offsetof(struct counts, sectors), true},
    {"copied", "bytes moved by TMA", offsetof(struct counts, copied), false},
};
enum { N_TOTALS = sizeof TOTALS / sizeof *TOTALS };

static uint64_t total_of(const struct counts *counts, size_t i) {
    return *(const uint64_t *)((const char *)counts + TOTALS[i].offset);
}

/* ---- JSON ---- */

/* The description of the version or baseline, in a record and in --info. */
static void add_about(struct json *json) {
    if (about_peer()) {
        json_string(json, "peer", about_version());
        json_string(json, "library", about_peer()->library);
    } else {
        json_string(json, "version", about_version());
        json_string(json, "name", about_name());
        json_string(json, "parent", about_parent());
    }
    json_string(json, "revision", about_revision());
    json_bool(json, "dirty", about_dirty());
    json_string(json, "toolkit", about_toolkit());
}

static void add_device(struct json *json, const struct device_info *device) {
    char capability[16];
    snprintf(capability, sizeof capability, "%d.%d", device->major, device->minor);
    json_open(json, "device", '{');
    json_string(json, "name", device->name);
    json_string(json, "cc", capability);
    json_int(json, "sms", device->sms);
    json_int(json, "l2_bytes", device->l2_bytes);
    json_int(json, "memory_bytes", device->memory_bytes);
    json_number(json, "clock_hz", device->clock_hz, 10);
    json_string(json, "driver", device->driver);
    json_close(json, '}');
}

static void add_lengths(struct json *json, const char *name, const struct number_list *lengths) {
    if (!lengths) return;
    json_open(json, name, '[');
    for (int i = 0; i < lengths->count; i++) json_int(json, NULL, lengths->values[i]);
    json_close(json, ']');
}

/* Fields of problems that only kernels with serving_args compute. */
static void add_served(struct json *json, const struct problem *problem) {
    add_lengths(json, "seqlens_q", problem->Q_lengths);
    add_lengths(json, "seqlens_k", problem->KV_lengths);
    json_int(json, "window_left", problem->windowed ? problem->window_left : -1);
    json_int(json, "window_right", problem->windowed ? problem->window_right : -1);
    json_number(json, "softcap", problem->softcap, 9);
    json_bool(json, "sinks", problem->sinks);
    json_int(json, "page_rows", problem->page_rows);
    json_int(json, "split_keys", problem->split_keys);
    if (!problem->block_mask) return;
    char name[MASK_NAME_SIZE];
    json_string(json, "block_mask", block_mask_name(problem, name));
    json_int(json, "visible_pairs", block_mask_pairs(problem));
}

/* Fields of problems whose inputs, or K and V, are bytes. */
static void add_bytes(struct json *json, const struct problem *problem) {
    json_string(json, problem->e4m3 ? "output_dtype" : "cache_dtype",
                problem->e4m3         ? dtype_name(problem->dtype)
                : problem->cache_int8 ? "int8"
                                      : "e4m3");
    if (problem->e4m3) json_number(json, "descale_q", problem->descale[TENSOR_Q], 9);
    json_number(json, "descale_k", problem->descale[TENSOR_K], 9);
    json_number(json, "descale_v", problem->descale[TENSOR_V], 9);
}

static void add_problem(struct json *json, const struct problem *problem) {
    json_open(json, "problem", '{');
    json_int(json, "batch", problem->batch);
    json_int(json, "heads", problem->heads);
    json_int(json, "kv_heads", problem->KV_heads);
    json_int(json, "seq", problem->seq_q);
    json_int(json, "seq_k", problem->seq_k);
    json_int(json, "d_head", problem->d_head);
    if (problem->d_head_v) json_int(json, "d_head_v", problem->d_head_v);
    json_string(json, "dtype", problem->e4m3 ? "e4m3" : dtype_name(problem->dtype));
    if (problem->e4m3 || problem_has_cache_of_bytes(problem)) add_bytes(json, problem);
    json_string(json, "dist", distribution_name(problem->dist));
    json_int(json, "seed", (int64_t)problem->seed);
    if (problem->backward) json_string(json, "pass", "backward");
    json_bool(json, "causal", problem->causal);
    json_number(json, "scale", problem->scale > 0 ? problem->scale : NAN, 9);
    json_bool(json, "lse", problem->lse);
    json_string(json, "layout", layout_name(problem->layout));
    if (problem_is_served(problem)) add_served(json, problem);
    json_close(json, '}');
}

static void add_check(struct json *json, const struct verdict *verdict, const struct verdict *after) {
    if (!verdict) {
        json_null(json, "check");
        return;
    }
    json_open(json, "check", '{');
    json_int(json, "rows", verdict->rows);
    json_int(json, "mismatches", verdict->mismatches);
    json_number(json, "max_error", verdict->max_error, 6);
    json_number(json, "max_error_over_bound", verdict->max_over_bound, 6);
    json_number(json, "lse_max_error", verdict->has_lse ? verdict->lse_max_error : NAN, 6);
    json_number(json, "lse_max_error_over_bound", verdict->has_lse ? verdict->lse_max_over_bound : NAN, 6);
    static const char *const relative[N_INPUTS] = {"dq_relative_error", "dk_relative_error", "dv_relative_error"};
    for (int t = 0; t < N_INPUTS && verdict->has_gradients; t++)
        json_number(json, relative[t], verdict->relative_error[t], 6);
    json_int(json, "nan", verdict->specials);
    json_int(json, "strays", verdict->strays);
    json_bool(json, "pass", verdict->pass);
    if (after)
        json_bool(json, "pass_after", after->pass);
    else
        json_null(json, "pass_after");
    json_close(json, '}');
}

static void add_timing(struct json *json, const struct measurement *measurement) {
    if (!measurement) {
        json_null(json, "timing");
        return;
    }
    const struct summary *time = &measurement->time;
    json_open(json, "timing", '{');
    json_string(json, "mode", measurement->cold ? "cold" : "hot");
    json_open(json, "samples_ns", '[');
    for (size_t i = 0; i < measurement->count; i++) json_number(json, NULL, measurement->samples[i].ns, 9);
    json_close(json, ']');
    json_open(json, "sm_clock_hz", '[');
    for (size_t i = 0; i < measurement->count; i++) json_int(json, NULL, (int64_t)measurement->samples[i].sm_clock_hz);
    json_close(json, ']');
    json_int(json, "discarded", (int64_t)measurement->discarded);
    json_string(json, "stop_reason", stop_reason_name(measurement->stop_reason));
    const double none = NAN;
    const bool any = measurement->count > 0;
    json_number(json, "median", any ? time->median : none, 9);
    json_number(json, "q1", any ? time->q1 : none, 9);
    json_number(json, "q3", any ? time->q3 : none, 9);
    json_number(json, "min", any ? time->least : none, 9);
    json_number(json, "noise", any ? time->noise : none, 6);
    json_bool(json, "converged", measurement_converged(measurement));
    json_number(json, "wall_s", measurement->wall_s, 6);
    json_close(json, '}');
}

static void add_celsius(struct json *json, const char *name, int64_t celsius) {
    if (celsius < 0)
        json_null(json, name);
    else
        json_int(json, name, celsius);
}

static void add_energy(struct json *json, const struct energy *energy) {
    if (!energy || !energy->launches) {
        json_null(json, "energy");
        return;
    }
    json_open(json, "energy", '{');
    json_number(json, "first_ns", energy->first.launch_ns, 9);
    json_int(json, "first_sm_clock_hz", (int64_t)energy->first.sm_clock_hz);
    add_celsius(json, "first_celsius", energy->first.celsius);
    json_number(json, "launch_ns", energy->launch_ns, 9);
    json_number(json, "joules", energy->joules, 6);
    json_number(json, "watts", energy->watts, 6);
    json_int(json, "launches", energy->launches);
    json_number(json, "seconds", energy->seconds, 6);
    json_number(json, "idle", energy->idle, 4);
    json_int(json, "sm_clock_hz", (int64_t)energy->sm_clock_hz);
    add_celsius(json, "celsius", energy->celsius);
    json_close(json, '}');
}

static double tflops_in(const struct record *record, double ns) {
    return problem_flop(record->problem) / ns / 1e3;
}

/* TFLOP/s of the median. */
static double tflops_of(const struct record *record) {
    if (!record->measurement || !record->measurement->count) return NAN;
    return tflops_in(record, record->measurement->time.median);
}

static void add_derived(struct json *json, const struct record *record) {
    if (!record->measurement) {
        json_null(json, "derived");
        return;
    }
    const double tflops = tflops_of(record), attn = problem_attn_flop(record->problem) / problem_flop(record->problem);
    json_open(json, "derived", '{');
    json_number(json, "tflops", tflops, 7);
    json_number(json, "attn_tflops", tflops * attn, 7);
    json_number(json, "share_of_peak", record->peak_tflops > 0 ? tflops / record->peak_tflops : NAN, 6);
    json_number(json, "peak_tflops", record->peak_tflops > 0 ? record->peak_tflops : NAN, 6);
    json_close(json, '}');
}

static void add_tally(struct json *json, const emu_tally *tally, emu_tally_key key) {
    const emu_counter *sum = &tally->sum;
    json_open(json, NULL, '{');
    char name[512];
    snprintf(name, sizeof name, "%.*s", tally->name_bytes, tally->name);
    json_string(json, key == EMU_BY_LINE ? "file" : "name", name);
    if (key == EMU_BY_LINE) json_int(json, "line", tally->line);
    if (key == EMU_BY_REGION) json_int(json, "depth", tally->depth);
    json_int(json, "executed", (int64_t)sum->executed);
    json_int(json, "wavefronts", (int64_t)sum->wavefronts);
    json_int(json, "ideal", (int64_t)sum->ideal);
    json_int(json, "sectors", (int64_t)sum->sectors);
    json_int(json, "bytes", (int64_t)sum->bytes);
    json_close(json, '}');
}

/* The tables that --counters prints; null without it. */
static void add_table(struct json *json, const char *name, const emu_counters *tables, emu_tally_key key) {
    size_t count;
    emu_tally *tallies = tables ? emu_tally_counters(tables, key, &count) : NULL;
    if (!tables) {
        json_null(json, name);
        return;
    }
    json->failed |= !tallies;
    json_open(json, name, '[');
    for (size_t i = 0; tallies && i < count; i++) add_tally(json, &tallies[i], key);
    json_close(json, ']');
    free(tallies);
}

static void add_counts(struct json *json, const struct counts *counts) {
    if (!counts) {
        json_null(json, "counters");
        return;
    }
    json_open(json, "counters", '{');
    json_open(json, "total", '{');
    for (size_t i = 0; i < N_TOTALS; i++) json_int(json, TOTALS[i].field, (int64_t)total_of(counts, i));
    json_close(json, '}');
    add_table(json, "lines", counts->tables, EMU_BY_LINE);
    add_table(json, "regions", counts->tables, EMU_BY_REGION);
    add_table(json, "groups", counts->tables, EMU_BY_GROUP);
    add_table(json, "engines", counts->tables, EMU_BY_ENGINE);
    json_int(json, "findings", (int64_t)counts->findings);
    json_close(json, '}');
}

static void add_record(struct json *json, const struct report *report, const struct record *record) {
    char text[CONFIG_TEXT_SIZE], utc[32];
    const time_t now = time(NULL);
    struct tm parts;
    strftime(utc, sizeof utc, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    json_open(json, NULL, '{');
    json_int(json, "schema", SCHEMA);
    add_about(json);
    json_open(json, "argv", '[');
    for (int i = 0; i < report->argc; i++) json_string(json, NULL, report->argv[i]);
    json_close(json, ']');
    json_string(json, "utc", utc);
    json_string(json, "backend", record->backend->ops->name);
    if (!about_peer()) {
        json_string(json, "config", config_format(&record->instance->config, text));
        json_string(json, "symbol", record->instance->symbol);
    }
    if (record->code && record->code->hash[0]) {
        json_string(json, "code_hash", record->code->hash);
        json_int(json, "registers", record->code->registers);
    } else {
        json_null(json, "code_hash");
        json_null(json, "registers");
    }
    add_device(json, &record->backend->device);
    add_problem(json, record->problem);
    add_check(json, record->verdict, record->after);
    add_timing(json, record->measurement);
    add_energy(json, record->energy);
    add_derived(json, record);
    add_counts(json, record->counts);
    json_close(json, '}');
}

/* One write(); what a full disk took in part is cut off again, so that the file keeps whole lines. */
static enum status write_line(int file, const char *text, size_t length, const char *name, struct failure *failure) {
    struct stat before;
    const bool regular = !fstat(file, &before) && S_ISREG(before.st_mode);
    ssize_t written;
    do written = write(file, text, length);
    while (written < 0 && errno == EINTR);
    if (written == (ssize_t)length) return STATUS_OK;
    if (written < 0)
        return fail(failure, STATUS_ERROR, "--json %s: could not write a record of %zu bytes: %s", name, length,
                    strerror(errno));
    if (regular) {
        const bool cut = !ftruncate(file, before.st_size);
        return fail(failure, STATUS_ERROR, "--json %s: only %zd of %zu bytes of a record were written (disk full?)%s",
                    name, written, length, cut ? ", then removed" : "");
    }
    while ((size_t)written < length) { /* a pipe takes the rest later */
        const ssize_t more = write(file, text + written, length - (size_t)written);
        if (more < 0 && errno == EINTR) continue;
        if (more <= 0) return fail(failure, STATUS_ERROR, "--json %s: a record was cut off: %s", name, strerror(errno));
        written += more;
    }
    return STATUS_OK;
}

static enum status write_json(const struct report *report, const struct record *record, struct failure *failure) {
    struct json json = {0};
    add_record(&json, report, record);
    if (!json.failed) {
        /* The byte after the text is its end; the newline replaces it for this one write. */
        json.text[json.length] = '\n';
        const enum status status = write_line(report->json, json.text, json.length + 1, report->options->json, failure);
        json_free(&json);
        return status;
    }
    json_free(&json);
    return fail(failure, STATUS_ERROR, "out of memory for a JSON record");
}

/* ---- text and CSV ---- */

/* Short form of the config; of a peer its library. */
static const char *form_of(const struct record *record, char text[CONFIG_TEXT_SIZE]) {
    return about_peer() ? about_peer()->library : config_format(&record->instance->config, text);
}

enum status report_flush(struct failure *failure) {
    if (!fflush(stdout) && !ferror(stdout)) return STATUS_OK;
    return fail(failure, STATUS_ERROR, "standard output: cannot be written: %s", strerror(errno));
}

/* The check that is reported: that of the timed launches if it failed and that of the first launch did not. */
static const struct verdict *judged(const struct record *record) {
    const bool first = !record->verdict || !record->verdict->pass || !record->after || record->after->pass;
    return first ? record->verdict : record->after;
}

static void print_csv_header(void) {
    printf("version,config,backend,device,dtype,dist,batch,heads,kv_heads,seq,seq_k,d_head,causal,scale,lse,layout,"
           "mode,samples,discarded,stop_reason,"
           "median_ns,q1_ns,q3_ns,min_ns,sm_clock_mhz,tflops,share_of_peak,pass,max_error_over_bound,"
           "lse_max_error_over_bound");
    for (size_t i = 0; i < N_TOTALS; i++) printf(",%s", TOTALS[i].field);
    printf(",findings\n");
}

static enum status write_csv(struct report *report, const struct record *record, struct failure *failure) {
    char text[CONFIG_TEXT_SIZE];
    const struct problem *problem = record->problem;
    const struct measurement *m = record->measurement;
    const struct verdict *verdict = judged(record);
    if (!report->csv_header_done) print_csv_header();
    report->csv_header_done = true;
    printf("%s,\"%s\",%s,\"%s\",%s,%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%d,%s,%.9g,%s,%s",
           about_version(), form_of(record, text), record->backend->ops->name, record->backend->device.name,
           problem->e4m3 ? "e4m3" : dtype_name(problem->dtype), distribution_name(problem->dist), problem->batch,
           problem->heads, problem->KV_heads, problem->seq_q, problem->seq_k, problem->d_head,
           problem->causal ? "yes" : "no", problem_scale(problem), problem->lse ? "yes" : "no",
           layout_name(problem->layout));
    if (m && m->count)
        printf(",%s,%zu,%zu,%s,%.1f,%.1f,%.1f,%.1f,%.0f,%.3f,", m->cold ? "cold" : "hot", m->count, m->discarded,
               stop_reason_name(m->stop_reason), m->time.median, m->time.q1, m->time.q3, m->time.least,
               m->sm_clock_hz / 1e6, tflops_of(record));
    else
        printf(",,,,,,,,,,,");
    if (m && m->count && record->peak_tflops > 0) printf("%.4f", tflops_of(record) / record->peak_tflops);
    if (verdict)
        printf(",%s,%.4f,", verdict->pass ? "yes" : "no", verdict->max_over_bound);
    else
        printf(",,,");
    if (verdict && verdict->has_lse) printf("%.4f", verdict->lse_max_over_bound);
    for (size_t i = 0; i < N_TOTALS; i++)
        if (record->counts)
            printf(",%" PRIu64, total_of(record->counts, i));
        else
            printf(",");
    if (record->counts)
        printf(",%" PRIu64 "\n", record->counts->findings);
    else
        printf(",\n");
    return report_flush(failure);
}

/* The largest error relative to the tolerance, "27 % of the tolerance"; far beyond it "140 times the tolerance". */
static void print_error_share(FILE *out, double over_bound) {
    if (over_bound < 10)
        fprintf(out, "%.0f %% of the tolerance", 100 * over_bound);
    else
        fprintf(out, "%.3g times the tolerance", over_bound);
}

static void print_check(FILE *out, const struct record *record) {
    const struct verdict *verdict = judged(record);
    if (!verdict) {
        fprintf(out, "not checked");
    } else if (!verdict->pass) {
        fprintf(out, "WRONG%s: %" PRId64 " of %" PRId64 " elements in %" PRId64 " rows, %" PRId64 " NaN or Inf",
                record->verdict->pass ? " after timing" : "", verdict->mismatches, verdict->elements, verdict->rows,
                verdict->specials);
        if (verdict->strays) fprintf(out, ", %" PRId64 " written between the rows", verdict->strays);
    } else {
        fprintf(out, "correct: %" PRId64 " rows, largest error ", verdict->rows);
        print_error_share(out, verdict->max_over_bound);
        if (verdict->has_lse) {
            fprintf(out, ", of log-sum-exp ");
            print_error_share(out, verdict->lse_max_over_bound);
        }
        if (verdict->has_gradients)
            fprintf(out, "; relative error of dQ %.2g, dK %.2g, dV %.2g", verdict->relative_error[TENSOR_Q],
                    verdict->relative_error[TENSOR_K], verdict->relative_error[TENSOR_V]);
    }
}

static void print_first_wrong(FILE *out, const struct verdict *verdict) {
    const struct wrong_element *first = &verdict->first;
    fprintf(out,
            "  %" PRId64 " of %" PRId64 " compared elements differ (%.3f %%), %" PRId64
            " NaN or Inf in the whole output, largest error %.6g, ",
            verdict->mismatches, verdict->elements, 100.0 * (double)verdict->mismatches / (double)verdict->elements,
            verdict->specials, verdict->max_error);
    print_error_share(out, verdict->max_over_bound);
    putc('\n', out);
    if (verdict->has_lse)
        fprintf(out, "  log-sum-exp: largest error %.6g, %.3g times its tolerance\n", verdict->lse_max_error,
                verdict->lse_max_over_bound);
    if (!verdict->mismatches) return;
    char column[40] = "log-sum-exp";
    if (first->column != LSE_COLUMN) snprintf(column, sizeof column, "column %" PRId64, first->column);
    fprintf(out, "  first wrong: %s%s", first->gradient ? first->gradient : "", first->gradient ? ", " : "");
    fprintf(out, "batch %" PRId64 ", row %" PRId64 ", head %" PRId64 ", %s: %.8g, expected %.8g +- %.3g\n",
            first->batch, first->row, first->head, column, isnan(first->got) ? NAN : first->got, first->expected,
            first->bound);
}

static void print_counts(FILE *out, const struct counts *counts) {
    for (size_t i = 0; i < N_TOTALS; i++)
        if (TOTALS[i].also_none || total_of(counts, i))
            fprintf(out, "  %-36s %12" PRIu64 "\n", TOTALS[i].words, total_of(counts, i));
    char orders[600];
    if (!counts->findings) fprintf(out, "  orders: %s\n", emu_describe_orders(counts->orders, orders, sizeof orders));
    fprintf(out, "  %-36s %12" PRIu64 "\n", "findings", counts->findings);
}

/* Sizes and type, then what is not as in plain attention. */
static void print_problem(FILE *out, const struct problem *problem) {
    fprintf(out, "batch %" PRId64 " heads %" PRId64, problem->batch, problem->heads);
    if (problem->KV_heads != problem->heads) fprintf(out, " on %" PRId64, problem->KV_heads);
    fprintf(out, " seq %" PRId64, problem->seq_q);
    if (problem->seq_k != problem->seq_q) fprintf(out, " on %" PRId64, problem->seq_k);
    if (problem->d_head != 128) fprintf(out, " d_head %d", problem->d_head);
    if (problem->d_head_v) fprintf(out, " d_head_v %d", problem->d_head_v);
    fprintf(out, problem->e4m3 ? " e4m3 to %s" : " %s", dtype_name(problem->dtype));
    if (problem_has_cache_of_bytes(problem)) fprintf(out, " on %s", problem->cache_int8 ? "int8" : "e4m3");
    if (problem->dist != DIST_NORMAL) fprintf(out, " %s", distribution_name(problem->dist));
    if (problem->backward) fprintf(out, " backward");
    if (problem->causal) fprintf(out, " causal");
    if (problem->scale > 0) fprintf(out, " scale %g", problem->scale);
    if (problem->lse) fprintf(out, " lse");
    if (problem->layout != LAYOUT_BSHD) fprintf(out, " %s", layout_name(problem->layout));
    if (problem_is_ragged(problem)) fprintf(out, " ragged");
    if (problem->windowed) fprintf(out, " window %" PRId64 ",%" PRId64, problem->window_left, problem->window_right);
    if (problem->softcap > 0) fprintf(out, " softcap %g", problem->softcap);
    if (problem->sinks) fprintf(out, " sinks");
    char mask[MASK_NAME_SIZE];
    if (problem->block_mask) fprintf(out, " block mask %s", block_mask_name(problem, mask));
}

/* Launches that follow each other: on a cool GPU, and when it is as hot as it gets. */
static void print_energy(FILE *out, const struct record *record) {
    const struct energy *energy = record->energy;
    const struct pace *first = &energy->first;
    fprintf(out, "  at first %.1f TFLOP/s, SM %.0f MHz; sustained %.1f TFLOP/s, SM %.0f MHz\n",
            tflops_in(record, first->launch_ns), first->sm_clock_hz / 1e6, tflops_in(record, energy->launch_ns),
            energy->sm_clock_hz / 1e6);
    fprintf(out, "  %.4g J per launch at %.0f W, %.3f TFLOP/J, over %.1f s, %.1f %% idle\n", energy->joules,
            energy->watts, problem_flop(record->problem) / energy->joules / 1e12, energy->seconds, 100 * energy->idle);
}

static enum status write_text(FILE *out, const struct report *report, const struct record *record,
                              struct failure *failure) {
    char text[CONFIG_TEXT_SIZE];
    const struct measurement *m = record->measurement;
    fprintf(out, "%s %s  ", about_version(), form_of(record, text));
    print_problem(out, record->problem);
    fprintf(out, "\n  ");
    if (m && m->count) {
        fprintf(out, "%.*f TFLOP/s  %.1f us +-%.1f %%  %s  %zu samples", tflops_of(record) < 10 ? 3 : 1,
                tflops_of(record), m->time.median / 1e3, 50 * (m->time.q3 - m->time.q1) / m->time.median,
                m->cold ? "cold" : "hot", m->count);
        if (m->discarded) fprintf(out, " (%zu discarded)", m->discarded);
        if (m->sm_clock_hz > 0) fprintf(out, "  SM %.0f MHz", m->sm_clock_hz / 1e6);
        if (record->peak_tflops > 0)
            fprintf(out, "  %.1f %% of the measured %s peak %.0f", 100 * tflops_of(record) / record->peak_tflops,
                    about_exact() ? "wgmma" : "mma.sync", record->peak_tflops);
        fprintf(out, "  ");
    } else if (record->counts) {
        fprintf(out, "emulator: counts, no times  ");
    }
    print_check(out, record);
    putc('\n', out);
    if (record->energy && record->energy->launches) print_energy(out, record);
    if (record->counts) print_counts(out, record->counts);
    const struct verdict *verdict = judged(record);
    if (verdict && (report->options->diff || !verdict->pass)) print_first_wrong(out, verdict);
    return report_flush(failure);
}

enum status report_record(struct report *report, const struct record *record, struct failure *failure) {
    enum status status = STATUS_OK;
    if (report->options->csv) status = write_csv(report, record, failure);
    if (report_is_text(report->options))
        status = write_text(stdout, report, record, failure);
    else if (!options_print_records(report->options) && judged(record) && !judged(record)->pass)
        status = write_text(stderr, report, record, failure); /* an error, which --quiet does not hide */
    if (!status && report->json >= 0) status = write_json(report, record, failure);
    return status;
}

enum status report_close(struct report *report, struct failure *failure) {
    const int file = report->json;
    report->json = -1;
    if (file >= 0 && file != STDOUT_FILENO && close(file))
        return fail(failure, STATUS_ERROR, "--json %s: %s", report->options->json, strerror(errno));
    return report_flush(failure);
}

/* ---- --info and --list ---- */

static void add_instance(struct json *json, const struct instance *instance) {
    char text[CONFIG_TEXT_SIZE];
    json_open(json, NULL, '{');
    json_string(json, "config", config_format(&instance->config, text));
    config_json(json, "fields", &instance->config);
    json_string(json, "symbol", instance->symbol);
    json_int(json, "threads", launch_threads(&instance->config));
    json_int(json, "smem_bytes", launch_smem_bytes(&instance->config));
    json_open(json, "code", '[');
    for (uint64_t i = 0; i < fl_image_count; i++) {
        struct kernel_code code;
        struct failure ignored;
        if (!strcmp(fl_images[i].kind, "ptx") || image_kernel_code(&fl_images[i], instance->symbol, &code, &ignored))
            continue;
        json_open(json, NULL, '{');
        json_string(json, "arch", fl_images[i].kind);
        json_int(json, "registers", code.registers);
        json_int(json, "code_bytes", code.code_bytes);
        json_int(json, "static_smem_bytes", code.static_smem);
        json_string(json, "code_hash", code.hash);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_close(json, '}');
}

enum status report_info(const struct instance_table *table, struct failure *failure) {
    struct json json = {0};
    json_open(&json, NULL, '{');
    json_int(&json, "schema", SCHEMA);
    add_about(&json);
    json_string(&json, "title", about_title());
    json_string(&json, "idea", about_idea());
    json_string(&json, "config", about_config());
    json_string(&json, "arch", about_arch());
    json_bool(&json, "dumps", about_dumps());
    json_open(&json, "images", '[');
    for (uint64_t i = 0; i < fl_image_count; i++) {
        json_open(&json, NULL, '{');
        json_string(&json, "kind", fl_images[i].kind);
        json_int(&json, "bytes", (int64_t)fl_images[i].size);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_open(&json, "instances", '[');
    for (size_t i = 0; i < table->count; i++) add_instance(&json, &table->instances[i]);
    json_close(&json, ']');
    json_close(&json, '}');
    const bool failed = json.failed;
    if (!failed) puts(json.text);
    json_free(&json);
    return failed ? fail(failure, STATUS_ERROR, "out of memory for a JSON record") : report_flush(failure);
}

enum status report_list(const struct instance_table *table, struct failure *failure) {
    char text[CONFIG_TEXT_SIZE];
    printf("%-78s %8s", "config", "smem");
    for (uint64_t i = 0; i < fl_image_count; i++)
        if (strcmp(fl_images[i].kind, "ptx") != 0) printf(" %5s", fl_images[i].kind);
    printf("  symbol\n");
    for (size_t k = 0; k < table->count; k++) {
        const struct instance *instance = &table->instances[k];
        printf("%-78s %8d", config_format(&instance->config, text), launch_smem_bytes(&instance->config));
        for (uint64_t i = 0; i < fl_image_count; i++) {
            struct kernel_code code;
            if (!strcmp(fl_images[i].kind, "ptx")) continue;
            const enum status status = image_kernel_code(&fl_images[i], instance->symbol, &code, failure);
            if (status) return status;
            printf(" %5d", code.registers);
        }
        printf("  %s\n", instance->symbol);
    }
    puts("smem: bytes of dynamic shared memory per CTA; sm_NN: registers per thread");
    return report_flush(failure);
}
