/* test_report.c - JSON text and records: complete, whole lines or none, errors on a full disk. */
#include "common/tests/tap.h"
#include "harness/report.h"
#include "harness/tests/problems.h"
#include "runtime/config.h"
#include "runtime/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void texts(void) {
    static const struct {
        const char *value, *expected;
    } cases[] = {
        {"plain", "\"plain\""},
        {"a \"b\" \\ c", "\"a \\\"b\\\" \\\\ c\""},
        {"tab\tline\n\x01\x7f", "\"tab\\u0009line\\u000a\\u0001\\u007f\""},
        {"\x1f", "\"\\u001f\""},
        {"Q·Kᵀ", "\"Q·Kᵀ\""},
        {"\xf0\x9f\x98\x80", "\"\xf0\x9f\x98\x80\""},
        {"\xff", "\"\\ufffd\""},
        {"\xc3", "\"\\ufffd\""},
        {"\xc0\xaf", "\"\\ufffd\\ufffd\""},
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},
        {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""},
        {"\xe2\x82", "\"\\ufffd\\ufffd\""},
        {"\x90\x90", "\"\\ufffd\\ufffd\""},
        {"\xf8\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""},
        {"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf", "\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json json = {0};
        json_string(&json, NULL, cases[i].value);
        ok(!json.failed && !strcmp(json.text, cases[i].expected), "text %zu: %s", i, json.text);
        json_free(&json);
    }
    struct json json = {0};
    json_open(&json, NULL, '[');
    json_number(&json, NULL, NAN, 6);
    json_number(&json, NULL, INFINITY, 6);
    json_number(&json, NULL, 0.1, 6);
    json_number(&json, NULL, 1e300, 6);
    json_int(&json, NULL, INT64_MIN);
    json_open(&json, NULL, '{');
    json_close(&json, '}');
    json_close(&json, ']');
    ok(!strcmp(json.text, "[null,null,0.1,1e+300,-9223372036854775808,{}]"), "numbers: %s", json.text);
    json_free(&json);
}

static const struct backend_ops FAKE_OPS = {.name = "gpu"};

/* A record of everything, with three samples. */
static struct record make_record(void) {
    static struct backend backend = {.ops = &FAKE_OPS,
                                     .device = {.name = "Made \"up\" GPU",
                                                .major = 9,
                                                .sms = 132,
                                                .l2_bytes = 52428800,
                                                .memory_bytes = 1LL << 37,
                                                .clock_hz = 1.98e9,
                                                .driver = "580.1, CUDA 13.0"}};
    static const struct instance instance = {
        .config = {FAMILY_LADDER, .ladder = {FP16, 128, .B_r = 64, .B_c = 64, .n_warps = 4, .async_copy = true}},
        .symbol = "symbol"};
    static struct problem problem;
    problem = square(16, 16, 4096, FP16, DIST_NORMAL, 1);
    static const struct kernel_code code = {.registers = 202, .code_bytes = 16000, .hash = "0123456789abcdef"};
    static const struct verdict verdict = {
        .pass = true, .rows = 256, .elements = 32768, .max_error = 0.0025, .max_over_bound = 0.35};
    static struct sample samples[3] = {
        {.ns = 1000000, .sm_clock_hz = 1.8e9}, {.ns = 1100000, .sm_clock_hz = 1.7e9}, {.ns = 1050000}};
    static struct measurement measurement = {.cold = true,
                                             .samples = samples,
                                             .count = 3,
                                             .discarded = 1,
                                             .stop_reason = STOP_CONVERGED,
                                             .time = {1e6, 1.025e6, 1.05e6, 1.075e6, 1.1e6, 0.01},
                                             .sm_clock_hz = 1.75e9,
                                             .wall_s = 0.5};
    return (struct record){.backend = &backend,
                           .instance = &instance,
                           .problem = &problem,
                           .code = &code,
                           .verdict = &verdict,
                           .after = &verdict,
                           .measurement = &measurement,
                           .peak_tflops = 640};
}

static char *read_file(const char *name) {
    char *text = calloc(1, 1 << 16);
    FILE *file = fopen(name, "r");
    if (file) {
        const size_t length = fread(text, 1, (1 << 16) - 1, file);
        text[length] = 0;
        fclose(file);
    }
    return text;
}

/* Write `records` records to a file by a report of its own; the status of the first failure. */
static enum status write_records(const char *name, const struct record *record, int records, struct failure *failure) {
    static char *argv[] = {"bin/v01", "--json", "x\ny"};
    struct options options;
    struct report report;
    options_parse(&options, 1, argv, failure);
    options.json = name;
    options.quiet = true;
    enum status status = report_open(&report, &options, 3, argv, failure);
    for (int i = 0; i < records && !status; i++) status = report_record(&report, record, failure);
    struct failure closing;
    report_close(&report, &closing);
    return status;
}

static void records(const char *name) {
    static const char *const parts[] = {
        "{\"schema\":1,\"version\":\"v", "\"argv\":[\"bin/v01\",\"--json\",\"x\\u000ay\"]", "\"backend\":\"gpu\"",
        "\"config\":\"(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles\"", "\"code_hash\":\"0123456789abcdef\"",
        "\"device\":{\"name\":\"Made \\\"up\\\" GPU\",\"cc\":\"9.0\",\"sms\":132",
        "\"problem\":{\"batch\":16,\"heads\":16,\"kv_heads\":16,\"seq\":4096,\"seq_k\":4096,\"d_head\":128,"
        "\"dtype\":\"fp16\",\"dist\":\"normal\",\"seed\":1,\"causal\":false,\"scale\":null,\"lse\":false,"
        "\"layout\":\"bshd\"}",
        "\"check\":{\"rows\":256,\"mismatches\":0,\"max_error\":0.0025,\"max_error_over_bound\":0.35,"
        "\"lse_max_error\":null,\"lse_max_error_over_bound\":null,\"nan\":0,\"strays\":0,\"pass\":true,\"pass_after\":"
        "true}",
        "\"samples_ns\":[1000000,1100000,1050000]", "\"sm_clock_hz\":[1800000000,1700000000,0]",
        "\"discarded\":1,\"stop_reason\":\"converged\",\"median\":1050000,\"q1\":1025000,"
        "\"q3\":1075000,\"min\":1000000,\"noise\":0.01,\"converged\":true,\"wall_s\":0.5}",
        /* 4 * 256 * 4096^2 * 128 operations in 1.05 ms; attn counts 6 * 256 * 4096^2 more */
        "\"derived\":{\"tflops\":2094.308", "\"attn_tflops\":2118.851,\"share_of_peak\":3.27236,\"peak_tflops\":640}",
        "\"counters\":null}"};
    struct record record = make_record();
    struct failure failure;
    ok(!write_records(name, &record, 1, &failure), "a record is written");
    char *text = read_file(name);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!ok(strstr(text, parts[i]) != NULL, "it holds %s", parts[i])) printf("# %s\n", text);
    const size_t length = strlen(text);
    free(text);

    record.code = NULL;
    record.verdict = NULL;
    record.after = NULL;
    record.measurement = NULL;
    const struct counts counts = {
        .executed = 46240, .mma = 8192, .wgmma = 64, .wavefronts = 144384, .sectors = 20480, .copied = 4096};
    record.counts = &counts;
    ok(!write_records(name, &record, 2, &failure), "two more are appended");
    text = read_file(name);
    char *second = strchr(text, '\n') + 1, *third = strchr(second, '\n') + 1;
    ok(strlen(text) > length && (size_t)(second - text) == length && third[strlen(third) - 1] == '\n', "three lines");
    ok(strstr(third, "\"check\":null,\"timing\":null,\"energy\":null,\"derived\":null") &&
           strstr(third, "\"code_hash\":null") &&
           strstr(third, "\"counters\":{\"total\":{\"executed\":46240,\"mma\":8192,\"wgmma\":64,\"ldmatrix\":0,"
                         "\"wavefronts\":144384,\"ideal\":0,\"sectors\":20480,\"copied\":4096}"),
       "what does not apply is null");
    free(text);

    record = make_record();
    const struct verdict wrong = {
        .rows = 256, .elements = 32768, .mismatches = 7, .specials = 3, .max_error = 0.5, .max_over_bound = 40};
    record.verdict = &wrong;
    record.after = &wrong;
    record.peak_tflops = 0;
    unlink(name);
    ok(!write_records(name, &record, 1, &failure), "a record of a wrong result is written");
    text = read_file(name);
    ok(strstr(text, "\"mismatches\":7,\"max_error\":0.5,\"max_error_over_bound\":40,\"lse_max_error\":null,"
                    "\"lse_max_error_over_bound\":null,\"nan\":3,\"strays\":0,\"pass\":false,"
                    "\"pass_after\":false}") != NULL,
       "with the figures of its check");
    ok(strstr(text, "\"share_of_peak\":null,\"peak_tflops\":null}") != NULL, "a peak that is unknown is null");
    free(text);

    record = make_record();
    struct measurement none = {.stop_reason = STOP_TIMEOUT, .discarded = 9};
    record.measurement = &none;
    unlink(name);
    ok(!write_records(name, &record, 1, &failure), "a record without samples is written");
    text = read_file(name);
    ok(strstr(text, "\"samples_ns\":[]") && strstr(text, "\"median\":null") && strstr(text, "\"converged\":false"),
       "and its median is null");
    free(text);
    unlink(name);
}

static void full_disk(const char *name) {
    const struct record record = make_record();
    struct failure failure = {""};
    ok(write_records("/dev/full", &record, 1, &failure) == STATUS_ERROR, "/dev/full is an error");
    says(failure.text, "/dev/full", "a full disk");
    says(failure.text, strerror(ENOSPC), "a full disk");
    ok(write_records("/no/such/folder/x.jsonl", &record, 1, &failure) == STATUS_ERROR, "a missing folder is an error");
    says(failure.text, strerror(ENOENT), "a missing folder");

    /* A disk that takes a part of a record: the limit on the size of files ends within the third. */
    ok(!write_records(name, &record, 2, &failure), "two records fit");
    struct stat before, after;
    stat(name, &before);
    struct rlimit limit, old;
    getrlimit(RLIMIT_FSIZE, &old);
    limit = old;
    limit.rlim_cur = (rlim_t)before.st_size + 100;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    const enum status status = write_records(name, &record, 1, &failure);
    setrlimit(RLIMIT_FSIZE, &old);
    ok(status == STATUS_ERROR, "a record that fits in part only is an error");
    says(failure.text, "only 100 of", "a record cut off");
    stat(name, &after);
    ok(after.st_size == before.st_size, "and leaves whole lines: %" PRId64 " bytes, %" PRId64 " before", after.st_size,
       before.st_size);
    unlink(name);
}

/* A write that failed is told at the end, also where the last bytes can be written. */
static void a_write_that_failed(void) {
    struct failure failure;
    fflush(stdout);
    const int kept = dup(STDOUT_FILENO), full = open("/dev/full", O_WRONLY);
    dup2(full, STDOUT_FILENO);
    printf("# written twice, where the first does not go away\n");
    const bool lost = fflush(stdout) != 0;
    dup2(kept, STDOUT_FILENO);
    const enum status status = report_flush(&failure);
    clearerr(stdout);
    close(kept);
    close(full);
    ok(lost && status == STATUS_ERROR, "a write that failed before the last one");
    says(failure.text, "standard output: cannot be written", "a write that failed");
    ok(!report_flush(&failure), "without one all is well");
}

int main(void) {
    char name[] = P_tmpdir "/flashladder-report-XXXXXX";
    const int file = mkstemp(name);
    if (file >= 0) close(file);
    unlink(name);
    texts();
    a_write_that_failed();
    records(name);
    full_disk(name);
    return tap_done();
}
