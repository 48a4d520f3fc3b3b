/* test_verify.c - planted errors must be found, counted and named; right outputs must pass. */
#include "common/tests/tap.h"
#include "harness/backend.h"
#include "harness/half.h"
#include "harness/options.h"
#include "harness/reference.h"
#include "harness/tests/problems.h"
#include "harness/verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct fixture {
    struct inputs inputs;
    uint16_t *right, *output; /* the reference rounded, and a copy to spoil */
    float *lse;               /* the same of log-sum-exp, where the problem asks for it */
    int64_t strays;
    size_t bytes;
};

static bool set_up(struct fixture *fixture, struct problem problem) {
    struct failure failure;
    if (inputs_generate(&fixture->inputs, &problem, &failure)) return false;
    fixture->bytes = (size_t)problem_bytes(&problem, TENSOR_O);
    fixture->right = malloc(fixture->bytes);
    fixture->output = malloc(fixture->bytes);
    fixture->lse = problem.lse ? malloc((size_t)problem_lse_bytes(&problem)) : NULL;
    fixture->strays = 0;
    struct reference_scratch *scratch = reference_scratch_new(&problem);
    for (int64_t i = 0; i < problem.batch * problem.heads * problem.seq_q; i++) {
        const int64_t row = i % problem.seq_q, head = i / problem.seq_q % problem.heads,
                      batch = i / problem.seq_q / problem.heads;
        struct reference_row result;
        reference_rows(&fixture->inputs, batch, head, &row, 1, &result, scratch);
        if (fixture->lse) fixture->lse[i] = (float)result.lse;
        for (int c = 0; c < problem.d_head; c++)
            fixture->right[problem_row_offset(&problem, TENSOR_O, batch, head, row) + c] =
                half_from_float((float)result.output[c], problem.dtype);
    }
    reference_scratch_free(scratch);
    memcpy(fixture->output, fixture->right, fixture->bytes);
    return true;
}

static void tear_down(struct fixture *fixture) {
    inputs_free(&fixture->inputs);
    free(fixture->right);
    free(fixture->output);
    free(fixture->lse);
}

static struct verdict verify(struct fixture *fixture, int64_t rows) {
    struct verdict verdict;
    struct failure failure;
    const struct output output = {.O = fixture->output, .lse = fixture->lse, .strays = fixture->strays};
    if (verify_output(&fixture->inputs, &output, rows, &verdict, &failure)) printf("# %s\n", failure.text);
    return verdict;
}

/* Change one element, verify all rows, change it back. */
static struct verdict with_element(struct fixture *fixture, int64_t at, uint16_t bits) {
    fixture->output[at] = bits;
    const struct verdict verdict = verify(fixture, CHECK_ALL);
    fixture->output[at] = fixture->right[at];
    return verdict;
}

static void planted(enum dtype dtype) {
    const char *name = dtype == FP16 ? "fp16" : "bf16";
    const struct problem problem = square(2, 3, 64, dtype, DIST_NORMAL, 8);
    struct fixture fixture;
    if (!ok(set_up(&fixture, problem), "%s: inputs and reference", name)) return;
    struct verdict verdict = verify(&fixture, CHECK_ALL);
    ok(verdict.pass && verdict.rows == 384 && verdict.elements == 384 * 128 && !verdict.mismatches,
       "%s: the rounded reference passes", name);
    ok(verdict.max_over_bound > 0.05 && verdict.max_over_bound < 0.5, "%s: rounding takes %.2f of the bound", name,
       verdict.max_over_bound);

    const int64_t at = problem_row_offset(&problem, TENSOR_O, 1, 2, 33) + 77;
    const float good = half_to_float(fixture.right[at], dtype);
    verdict = with_element(&fixture, at, half_from_float(good + 0.02f, dtype));
    ok(!verdict.pass && verdict.mismatches == 1, "%s: one error of 0.02 fails", name);
    ok(verdict.first.batch == 1 && verdict.first.head == 2 && verdict.first.row == 33 && verdict.first.column == 77,
       "%s: and is named", name);
    ok(verdict.first.got == (double)half_to_float(half_from_float(good + 0.02f, dtype), dtype) &&
           fabs(verdict.first.expected - good) < 0.01 && verdict.max_over_bound > 1,
       "%s: with both values", name);
    verdict = with_element(&fixture, at, HALF_NAN);
    ok(!verdict.pass && verdict.specials == 1 && verdict.mismatches == 1 && isinf(verdict.max_error),
       "%s: a NaN fails and makes the largest error infinite", name);
    verdict = with_element(&fixture, at, dtype == FP16 ? 0x7c00 : 0x7f80);
    ok(!verdict.pass && verdict.specials == 1 && verdict.mismatches == 1, "%s: an infinity fails", name);
    verdict = with_element(&fixture, at, fixture.right[at] ^ 0x8000);
    ok(!verdict.pass || fabsf(good) < 1e-4f, "%s: a wrong sign fails", name);
    verdict = with_element(&fixture, at, fixture.right[at] + 1);
    ok(verdict.pass, "%s: a neighbor of the rounded value passes", name);

    memset(fixture.output, POISON_BYTE, fixture.bytes);
    verdict = verify(&fixture, 1);
    ok(!verdict.pass && verdict.specials == problem_elements(&problem, TENSOR_O) && verdict.rows == 1,
       "%s: an output that was never written fails, whatever is sampled", name);
    memcpy(fixture.output, fixture.right, fixture.bytes);
    memset(fixture.output + problem_elements(&problem, TENSOR_O) - 1, POISON_BYTE, sizeof *fixture.output);
    verdict = verify(&fixture, 1);
    ok(!verdict.pass && verdict.specials == 1, "%s: so does one element that was not, outside of the rows compared",
       name);
    memcpy(fixture.output, fixture.right, fixture.bytes);

    /* Rows of two heads exchanged: correct values in wrong positions. */
    const int64_t a = problem_row_offset(&problem, TENSOR_O, 0, 0, 5),
                  b = problem_row_offset(&problem, TENSOR_O, 0, 1, 5);
    memcpy(fixture.output + a, fixture.right + b, 2 * 128);
    memcpy(fixture.output + b, fixture.right + a, 2 * 128);
    verdict = verify(&fixture, CHECK_ALL);
    ok(!verdict.pass && verdict.mismatches > 200, "%s: two heads exchanged in one row fail", name);
    ok(verdict.first.batch == 0 && verdict.first.row == 5 && verdict.first.head == 0, "%s: the first wrong is named",
       name);
    memcpy(fixture.output, fixture.right, fixture.bytes);
    fixture.inputs.tensors[TENSOR_V][0] = HALF_NAN;
    verdict = verify(&fixture, CHECK_ALL);
    ok(!verdict.pass && verdict.mismatches == 64, "%s: a reference that is not a number fails", name);
    tear_down(&fixture);
}

/* One family of columns: what V holds in the even and in the odd rows, and what row 0 of the output holds. */
struct problem_family {
    const char *name;
    float even, odd;
    double (*output)(int column, double roundoff);
};

/* From 0.95 to 1.15 of what is allowed, were there no 1e-6: a weight of 1 and a reference of 0. */
static double about_the_roundoff(int column, double roundoff) {
    return roundoff * (1 + 0.002 * (column - 25));
}
/* A reference and a weight of 1 are allowed twice that. */
static double about_twice_the_roundoff(int column, double roundoff) {
    return 1 + 2 * roundoff * (column % 4);
}
/* From 0.7e-6 to 1.3e-6: with zeros alone that is all that is allowed. */
static double about_a_millionth(int column, double roundoff) {
    (void)roundoff;
    return 1e-6 * (1 + 0.005 * (column - 64));
}

/* |o - ref| may be u * (sum of p |v| + |ref|) * 1.05 + 1e-6, with u = 2^-11 for fp16 and 2^-8 for bf16: what is right
 * at this edge passes, what is beyond it does not. All scores are 0 here, so that p is 1 / seq. */
static void tolerance(enum dtype dtype) {
    static const struct problem_family families[] = {{"p |v| alone", 1, -1, about_the_roundoff},
                                                     {"p |v| and |ref|", 1, 1, about_twice_the_roundoff},
                                                     {"neither", 0, 0, about_a_millionth}};
    const struct problem problem = square(1, 1, 64, dtype, DIST_NORMAL, 1);
    const double roundoff = dtype == FP16 ? 1.0 / 2048 : 1.0 / 256;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        const struct problem_family *family = &families[f];
        struct fixture fixture;
        if (!ok(set_up(&fixture, problem), "inputs")) return;
        const double expected = (family->even + family->odd) / 2, weight = (fabs(family->even) + fabs(family->odd)) / 2;
        const double allowed = roundoff * (weight + fabs(expected)) * 1.05 + 1e-6;
        memset(fixture.inputs.tensors[TENSOR_Q], 0, fixture.bytes);
        int64_t wrong = 0, right = 0;
        double largest = 0;
        for (int row = 0; row < problem.seq_q; row++)
            for (int column = 0; column < 128; column++) {
                const int64_t at = problem_row_offset(&problem, TENSOR_O, 0, 0, row) + column;
                const double output = row ? expected : family->output(column, roundoff);
                fixture.inputs.tensors[TENSOR_V][at] = half_from_float(row % 2 ? family->odd : family->even, dtype);
                fixture.output[at] = half_from_float((float)output, dtype);
                const double error = fabs(half_to_float(fixture.output[at], dtype) - expected);
                wrong += error > allowed;
                right += error <= allowed && error > 0.9 * allowed;
                if (error / allowed > largest) largest = error / allowed;
            }
        const struct verdict verdict = verify(&fixture, CHECK_ALL);
        ok(wrong > 10 && right > 10, "%s, dtype %d: %" PRId64 " elements beyond the tolerance, %" PRId64 " at its edge",
           family->name, dtype, wrong, right);
        ok(verdict.mismatches == wrong && fabs(verdict.max_over_bound - largest) < 1e-9 * largest,
           "%s, dtype %d: %" PRId64 " are wrong, the largest error is %.3f of the tolerance", family->name, dtype,
           verdict.mismatches, verdict.max_over_bound);
        tear_down(&fixture);
    }
}

static void sampling(void) {
    const struct problem problem = square(4, 5, 256, FP16, DIST_NORMAL, 3);
    const int64_t heads = 20, seq = 256;
    static const int64_t wanted[] = {1, 7, 20, 64, 1000, 5119, 5120, 9999, CHECK_ALL};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int64_t *rows, covered = 0, rising = 1;
        const int64_t count = choose_rows(&problem, wanted[i], &rows);
        const int64_t expected = wanted[i] == CHECK_ALL || wanted[i] > heads * seq ? heads * seq : wanted[i];
        for (int64_t r = 0; r < count; r++) {
            covered += r == 0 || rows[r] / seq != rows[r - 1] / seq;
            rising &= rows[r] >= 0 && rows[r] < heads * seq && (r == 0 || rows[r] > rows[r - 1]);
        }
        ok(count == expected && rising, "%" PRId64 " rows: %" PRId64 ", in rising order", wanted[i], count);
        ok(covered == (expected < heads ? expected : heads), "%" PRId64 " rows reach %" PRId64 " heads", wanted[i],
           covered);
        free(rows);
    }
    int64_t *first, *again, *other, same = 0, moved = 0;
    struct problem seeded = problem;
    seeded.seed = 4;
    choose_rows(&problem, 64, &first);
    choose_rows(&problem, 64, &again);
    choose_rows(&seeded, 64, &other);
    for (int i = 0; i < 64; i++) {
        same += first[i] == again[i];
        moved += first[i] != other[i];
    }
    ok(same == 64 && moved > 32, "the rows depend on the seed alone");
    free(first);
    free(again);
    free(other);
}

/* Change one value of log-sum-exp, verify that many rows, change it back. */
static struct verdict with_lse(struct fixture *fixture, int64_t at, double value, int64_t rows) {
    const float right = fixture->lse[at];
    fixture->lse[at] = (float)value;
    const struct verdict verdict = verify(fixture, rows);
    fixture->lse[at] = right;
    return verdict;
}

static void log_sum_exp(void) {
    struct problem problem = square(1, 2, 24, FP16, DIST_NORMAL, 8);
    struct fixture fixture;
    problem.seq_k = 20; /* the first 4 rows see no key */
    problem.d_head = 64;
    problem.causal = problem.lse = true;
    if (!ok(set_up(&fixture, problem), "log-sum-exp: inputs and reference")) return;
    struct verdict verdict = verify(&fixture, CHECK_ALL);
    ok(verdict.pass && verdict.has_lse && verdict.elements == 48 * 65, "the rounded reference passes");
    ok(verdict.lse_max_over_bound > 0 && verdict.lse_max_over_bound < 0.2, "rounding takes %.2f of the bound",
       verdict.lse_max_over_bound);

    const int64_t at = 24 + 15; /* head 1, row 15 */
    const float right = fixture.lse[at];
    struct reference_scratch *scratch = reference_scratch_new(&problem);
    struct reference_row result;
    const int64_t row = 15;
    reference_rows(&fixture.inputs, 0, 1, &row, 1, &result, scratch);
    reference_scratch_free(scratch);
    const double bound = lse_bound(&problem, &result);
    ok(bound > 1e-6 && bound < 1e-4, "the bound of a row with 12 keys is %.2g", bound);
    ok(with_lse(&fixture, at, right + 0.9 * bound, CHECK_ALL).pass, "0.9 of it passes");
    verdict = with_lse(&fixture, at, right + 1.2 * bound, CHECK_ALL);
    ok(!verdict.pass && verdict.mismatches == 1 && !verdict.specials && verdict.max_over_bound < 1 &&
           verdict.lse_max_over_bound > 1,
       "1.2 of it fails");
    ok(verdict.first.head == 1 && verdict.first.row == 15 && verdict.first.column == LSE_COLUMN, "and is named");
    ok(!with_lse(&fixture, at, right + log(13.0 / 12), CHECK_ALL).pass, "one key more fails");
    ok(!with_lse(&fixture, at, right * 1.4426950408889634, CHECK_ALL).pass, "a logarithm to base 2 fails");
    ok(with_lse(&fixture, at, NAN, 1).specials == 1 && !with_lse(&fixture, at, NAN, 1).pass,
       "NaN fails, whatever is sampled");
    ok(!with_lse(&fixture, at, INFINITY, 1).pass && !with_lse(&fixture, at, -INFINITY, 1).pass,
       "so do infinities where a row sees keys");
    ok(!with_lse(&fixture, 3, 0, 1).pass && !with_lse(&fixture, 3, NAN, 1).pass &&
           !with_lse(&fixture, 3, INFINITY, 1).pass,
       "where it sees none, all but -infinity");
    fixture.output[problem_row_offset(&problem, TENSOR_O, 0, 1, 3)] = half_from_float(0.25f, FP16);
    verdict = verify(&fixture, CHECK_ALL);
    ok(!verdict.pass && verdict.mismatches == 1, "and O must be 0 there");
    memcpy(fixture.output, fixture.right, fixture.bytes);
    fixture.strays = 2;
    verdict = verify(&fixture, CHECK_ALL);
    ok(!verdict.pass && verdict.strays == 2 && !verdict.mismatches, "what is written between the rows fails");
    tear_down(&fixture);
}

/* With a scale above 1 / sqrt(d_head) the fp32 arithmetic may be that much worse. */
static void scaled(void) {
    struct problem problem = square(1, 1, 16, BF16, DIST_NORMAL, 2);
    struct fixture fixture;
    problem.scale = 2 / sqrt(128);
    if (!ok(set_up(&fixture, problem), "a scale: inputs and reference")) return;
    memset(fixture.inputs.tensors[TENSOR_Q], 0, fixture.bytes); /* p is 1 / 16, O is 1, its bound 2 / 256 * 1.1 */
    for (int64_t i = 0; i < 16 * 128; i++) {
        fixture.inputs.tensors[TENSOR_V][i] = half_from_float(1, BF16);
        fixture.output[i] = half_from_float(i % 2 ? 1 : 1 + 1.0f / 128, BF16);
    }
    const struct verdict verdict = verify(&fixture, CHECK_ALL);
    ok(verdict.pass && fabs(verdict.max_over_bound - 1 / 1.1) < 1e-3, "twice the usual scale: 10 %% for fp32");
    tear_down(&fixture);
}

int main(void) {
    planted(FP16);
    planted(BF16);
    tolerance(FP16);
    tolerance(BF16);
    sampling();
    log_sum_exp();
    scaled();
    return tap_done();
}
