/* test_backend.c - the emulator as a back end: what its operations do in their order, and that all memory is given
 * back, which the sanitizers see. */
#include "common/tests/tap.h"
#include "harness/about.h"
#include "harness/backend.h"
#include "harness/tests/problems.h"
#include "runtime/config.h"

#include <inttypes.h>
#include <stdlib.h>

static const struct emulation CHECKED = {.checks = true, .threads = 1};

static enum status take(struct backend *backend, struct inputs *inputs, int64_t seq, struct failure *failure) {
    const struct problem problem = square(1, 1, seq, FP16, DIST_NORMAL, 5);
    inputs_free(inputs);
    const enum status status = inputs_generate(inputs, &problem, failure);
    return status ? status : backend->ops->set_problem(backend, inputs, failure);
}

static bool all_poison(const unsigned char *bytes, size_t size) {
    size_t same = 0;
    while (same < size && bytes[same] == POISON_BYTE) same++;
    return same == size;
}

static void a_launch(struct backend *backend, const struct instance *instance, int64_t seq) {
    struct inputs inputs = {.problem = {.dtype = FP16}};
    struct failure failure;
    struct kernel_code code = {.registers = 7};
    struct counts counts;
    const size_t bytes = (size_t)(seq * 128) * sizeof(uint16_t);
    struct output output = {.O = malloc(bytes)};
    ok(!take(backend, &inputs, seq, &failure), "a problem of seq %" PRId64 " is taken", seq);
    ok(!backend->ops->set_instance(backend, instance, &code, &failure) && !code.registers,
       "an instance is taken; the emulator has no machine code");
    ok(!backend->ops->poison(backend, &failure) && !backend->ops->read_output(backend, &output, &failure) &&
           all_poison((unsigned char *)output.O, bytes),
       "a poisoned output is poison in all places");
    ok(!backend->ops->launch(backend, &failure) && !backend->ops->read_output(backend, &output, &failure), "a launch");
    size_t left = 0;
    for (size_t i = 0; i < bytes / sizeof *output.O; i++) left += output.O[i] == 0xffff;
    ok(left == 0, "a launch writes every element: %zu are left", left);
    backend->ops->counts(backend, &counts);
    ok(counts.findings == 0 && counts.mma == (uint64_t)(2 * 2 * seq * seq * 128 / (2 * 16 * 8 * 16)),
       "%" PRIu64 " matrix instructions, %" PRIu64 " findings", counts.mma, counts.findings);
    free(output.O);
    inputs_free(&inputs);
}

/* Of an instance whose CTAs are said to have twice the rows every other one is missing. */
static void rows_that_nobody_writes(struct backend *backend, struct instance instance) {
    struct inputs inputs = {.problem = {.dtype = FP16}};
    struct failure failure;
    struct kernel_code code;
    struct counts counts;
    instance.config.B_r *= 2;
    ok(!take(backend, &inputs, instance.config.B_r, &failure) &&
           !backend->ops->set_instance(backend, &instance, &code, &failure),
       "an instance that leaves rows out");
    ok(!backend->ops->launch(backend, &failure), "is launched");
    backend->ops->counts(backend, &counts);
    ok(counts.findings == 1, "%" PRIu64 " findings", counts.findings);
    inputs_free(&inputs);
}

/* What a kernel with dumps would write: here it stays as it was made. */
static void a_dump(struct backend *backend) {
    struct inputs inputs = {.problem = {.dtype = FP16}};
    struct failure failure;
    unsigned char part[40];
    ok(!take(backend, &inputs, 64, &failure) && !backend->ops->set_dump(backend, 100, &failure), "a dump is made");
    memset(part, 0, sizeof part);
    ok(!backend->ops->read_dump(backend, 60, part, sizeof part, &failure) && all_poison(part, sizeof part),
       "its last part is read, and is poison");
    inputs_free(&inputs);
}

int main(void) {
    struct emulation traced = CHECKED;
    struct backend *backend = NULL;
    struct failure failure;
    struct instance_table table = {0};
    struct kernel_code code;
    traced.trace = "cta=x";
    ok(emu_open(&backend, &traced, &failure) == STATUS_USAGE && !backend, "a bad --trace opens nothing");
    says(failure.text, "--trace 'cta=x'", "a bad trace");
    ok(!instance_table_read(&table, fl_images, fl_image_count, &failure) && table.count > 0, "the PTX holds instances");
    ok(!emu_open(&backend, &CHECKED, &failure) && backend && !strcmp(backend->ops->name, "emu"), "the emulator opens");
    if (!backend || !table.count) return 1;
    a_launch(backend, &table.instances[0], 64);
    a_launch(backend, &table.instances[0], 128);
    rows_that_nobody_writes(backend, table.instances[0]);
    a_dump(backend);
    struct instance other = table.instances[0];
    other.symbol = "another";
    ok(backend->ops->set_instance(backend, &other, &code, &failure) == STATUS_ERROR, "a symbol that is not there");
    says(failure.text, "does not find another in the PTX", "a symbol that is not there");
    other = table.instances[0];
    other.config.family = FAMILY_ATTENTION;
    ok(backend->ops->set_instance(backend, &other, &code, &failure) == STATUS_ERROR, "another struct of arguments");
    says(failure.text, " bytes of parameters: attention_args has ", "the arguments");

    backend->ops->close(backend);
    instance_table_free(&table);
    ok(!table.instances && !table.count, "a table that was given back is empty");
    return tap_done();
}
