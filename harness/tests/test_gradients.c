/* test_gradients.c - the gradients in float64 against finite differences, and what the check of gradients lets pass. */
#include "common/tests/tap.h"
#include "harness/gradients.h"
#include "harness/half.h"
#include "harness/options.h"
#include "harness/tests/problems.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Q, K, V and dO of a problem as doubles, which a test may change a little. */
struct doubles {
    double *tensors[N_INPUTS], *dO;
};

static double *widen_all(const uint16_t *tensor, int64_t count, enum dtype dtype) {
    double *const out = malloc((size_t)count * sizeof *out);
    for (int64_t i = 0; i < count; i++) out[i] = half_to_float(tensor[i], dtype);
    return out;
}

static struct doubles doubles_of(const struct inputs *inputs) {
    const struct problem *problem = &inputs->problem;
    struct doubles made;
    for (int t = 0; t < N_INPUTS; t++)
        made.tensors[t] = widen_all(inputs->tensors[t], problem_elements(problem, (enum tensor)t), problem->dtype);
    made.dO = widen_all(inputs->dO, problem_elements(problem, TENSOR_O), problem->dtype);
    return made;
}

static void free_doubles(struct doubles *of) {
    for (int t = 0; t < N_INPUTS; t++) free(of->tensors[t]);
    free(of->dO);
}

/* The sum of dO O over one head of one sequence, by the formula as it is written. */
static double loss_of_head(const struct problem *problem, const struct doubles *of, int64_t batch, int64_t head) {
    const int64_t KV_head = head / (problem->heads / problem->KV_heads), seq = problem->seq_k;
    const int d = problem->d_head;
    double *const p = malloc((size_t)seq * sizeof *p), loss = 0;
    for (int64_t i = 0; i < problem->seq_q; i++) {
        const double *const q = of->tensors[TENSOR_Q] + problem_row_offset(problem, TENSOR_Q, batch, head, i);
        const double *const dO = of->dO + problem_row_offset(problem, TENSOR_O, batch, head, i);
        const int64_t end = problem->causal ? i + 1 : seq;
        double sum = 0;
        for (int64_t j = 0; j < end; j++) {
            const double *const k = of->tensors[TENSOR_K] + problem_row_offset(problem, TENSOR_K, batch, KV_head, j);
            double s = 0;
            for (int c = 0; c < d; c++) s += q[c] * k[c];
            sum += p[j] = exp(s * problem_scale(problem));
        }
        for (int64_t j = 0; j < end; j++) {
            const double *const v = of->tensors[TENSOR_V] + problem_row_offset(problem, TENSOR_V, batch, KV_head, j);
            for (int c = 0; c < d; c++) loss += dO[c] * v[c] * p[j] / sum;
        }
    }
    free(p);
    return loss;
}

static double loss_of(const struct problem *problem, const struct doubles *of) {
    double loss = 0;
    for (int64_t batch = 0; batch < problem->batch; batch++)
        for (int64_t head = 0; head < problem->heads; head++) loss += loss_of_head(problem, of, batch, head);
    return loss;
}

/* The slope of the loss along one element: the error of a central difference is of the order h^2. */
static double slope(const struct problem *problem, struct doubles *of, enum tensor tensor, int64_t element) {
    const double h = 1e-4;
    double *const x = &of->tensors[tensor][element], before = *x;
    *x = before + h;
    const double above = loss_of(problem, of);
    *x = before - h;
    const double below = loss_of(problem, of);
    *x = before;
    return (above - below) / (2 * h);
}

/* Some elements of a row of each gradient. */
static double worst_of_row(const struct inputs *inputs, struct doubles *of, int64_t batch, int64_t head, int64_t row,
                           struct gradient_scratch *scratch) {
    const struct problem *problem = &inputs->problem;
    const int64_t KV_head = head / (problem->heads / problem->KV_heads);
    struct gradient_row rows[N_INPUTS];
    double worst = 0;
    reference_dQ(inputs, batch, head, &row, 1, &rows[TENSOR_Q], scratch);
    reference_dKV(inputs, batch, KV_head, &row, 1, &rows[TENSOR_K], &rows[TENSOR_V], scratch);
    for (int t = 0; t < N_INPUTS; t++)
        for (int c = (int)(row % 7); c < problem->d_head; c += 23) {
            const int64_t at =
                problem_row_offset(problem, (enum tensor)t, batch, t == TENSOR_Q ? head : KV_head, row) + c;
            worst = fmax(worst, fabs(slope(problem, of, (enum tensor)t, at) - rows[t].value[c]));
        }
    return worst;
}

static void against_differences(struct problem problem, const char *what) {
    struct inputs inputs;
    struct failure failure;
    double worst = 0;
    problem.backward = true;
    if (!ok(!inputs_generate(&inputs, &problem, &failure) && !backward_inputs_generate(&inputs, INFINITY, &failure),
            "inputs"))
        return;
    struct doubles of = doubles_of(&inputs);
    struct gradient_scratch *const scratch = gradient_scratch_new();
    for (int64_t row = 0; row < problem.seq_q; row += 11)
        worst = fmax(worst, worst_of_row(&inputs, &of, problem.batch - 1, row % problem.heads, row, scratch));
    ok(worst < 1e-6, "%s: the slope of the loss differs by %.2g", what, worst);
    gradient_scratch_free(scratch);
    free_doubles(&of);
    inputs_free(&inputs);
}

static void finite_differences(void) {
    struct problem problem = square(2, 2, 34, FP16, DIST_NORMAL, 3);
    problem.d_head = 32;
    against_differences(problem, "two heads of two sequences");
    problem.causal = true;
    against_differences(problem, "causal");
    problem.KV_heads = 1;
    problem.scale = 0.3;
    against_differences(problem, "causal, grouped, another scale");
    problem = square(1, 1, 20, BF16, DIST_UNIFORM, 4);
    problem.d_head = 16;
    against_differences(problem, "bf16");
}

/* The reference's own gradients, rounded: what a perfect kernel leaves. */
static void fill_exact(const struct inputs *inputs, struct output *output) {
    const struct problem *problem = &inputs->problem;
    struct gradient_scratch *const scratch = gradient_scratch_new();
    for (int64_t head = 0; head < problem->heads; head++)
        for (int64_t row = 0; row < problem->seq_q; row++) {
            struct gradient_row rows[N_INPUTS];
            reference_dQ(inputs, 0, head, &row, 1, &rows[TENSOR_Q], scratch);
            reference_dKV(inputs, 0, head, &row, 1, &rows[TENSOR_K], &rows[TENSOR_V], scratch);
            for (int t = 0; t < N_INPUTS; t++)
                for (int c = 0; c < problem->d_head; c++)
                    output->gradients[t][problem_row_offset(problem, (enum tensor)t, 0, head, row) + c] =
                        half_from_float((float)rows[t].value[c], problem->dtype);
        }
    gradient_scratch_free(scratch);
}

static struct verdict judge(const struct inputs *inputs, const struct output *output) {
    struct verdict verdict;
    struct failure failure;
    ok(!verify_gradients(inputs, output, CHECK_ALL, &verdict, &failure), "judged");
    return verdict;
}

static bool make_backward(struct problem *problem, double most_flop, struct inputs *inputs, struct output *output) {
    struct failure failure;
    problem->d_head = 64;
    problem->backward = true;
    return ok(!inputs_generate(inputs, problem, &failure) && !backward_inputs_generate(inputs, most_flop, &failure) &&
                  !output_new(output, problem, &failure),
              "inputs");
}

static void what_passes(void) {
    struct problem problem = square(1, 2, 48, FP16, DIST_NORMAL, 5);
    struct inputs inputs;
    struct output output;
    if (!make_backward(&problem, INFINITY, &inputs, &output)) return;
    fill_exact(&inputs, &output);
    struct verdict verdict = judge(&inputs, &output);
    ok(verdict.pass && verdict.rows == 2 * 2 * 48 && verdict.elements == 3 * 2 * 48 * 64, "exact gradients pass: %s",
       verdict.first.gradient ? verdict.first.gradient : "all");
    ok(verdict.relative_error[TENSOR_Q] > 0 && verdict.relative_error[TENSOR_V] < 0x1p-11,
       "off by less than the roundoff: %g", verdict.relative_error[TENSOR_V]);
    static const char *const names[] = {"dQ", "dK", "dV"};
    for (int t = 0; t < N_INPUTS; t++) {
        uint16_t *const element = &output.gradients[t][problem_row_offset(&problem, (enum tensor)t, 0, 1, 17) + 5];
        const uint16_t before = *element;
        *element = half_from_float(half_to_float(before, FP16) + 0.5f, FP16);
        verdict = judge(&inputs, &output);
        ok(!verdict.pass && verdict.mismatches == 1 && !strcmp(verdict.first.gradient, names[t]) &&
               verdict.first.row == 17 && verdict.first.head == 1 && verdict.first.column == 5,
           "%s: an element that is off by 0.5 is found", names[t]);
        *element = HALF_NAN;
        verdict = judge(&inputs, &output);
        ok(!verdict.pass && verdict.specials == 1, "%s: NaN does not pass", names[t]);
        *element = before;
    }
    output.strays = 0;
    memset(output.gradients[TENSOR_K], 0, (size_t)problem_bytes(&problem, TENSOR_K));
    verdict = judge(&inputs, &output);
    ok(!verdict.pass && verdict.mismatches > 1000, "zeros are no gradient: %d mismatches", (int)verdict.mismatches);
    output_free(&output);
    inputs_free(&inputs);
}

/* Two of the four pairs of a sample and a KV head have a forward pass: what is elsewhere is not compared. */
static void some_heads(void) {
    struct problem problem = square(2, 2, 40, FP16, DIST_NORMAL, 6);
    struct inputs inputs;
    struct output output;
    const double of_pair = 4.0 * 40 * 40 * 64;
    if (!make_backward(&problem, 2.5 * of_pair, &inputs, &output)) return;
    ok(inputs.exact_pairs == 2 && backward_exact_pair(&inputs, 0) == 0 && backward_exact_pair(&inputs, 1) == 2,
       "the first head of both samples");
    fill_exact(&inputs, &output); /* of the first sample */
    struct verdict verdict = judge(&inputs, &output);
    ok(!verdict.pass && verdict.rows == 2 * 2 * 40 && verdict.first.batch == 1 && verdict.first.head == 0,
       "what is missing in the second sample is found");
    const double guess = inputs.lse[40 + 7], exact = inputs.lse[7];
    ok(isfinite(guess) && fabs(guess - exact) < 2, "another head has a log-sum-exp near those: %g, %g", guess, exact);
    for (int t = 0; t < N_INPUTS; t++) memset(output.gradients[t], 0, (size_t)problem_bytes(&problem, (enum tensor)t));
    output.gradients[TENSOR_Q][problem_row_offset(&problem, TENSOR_Q, 1, 1, 3)] = HALF_NAN;
    verdict = judge(&inputs, &output);
    ok(verdict.specials == 1, "a NaN is found in any head");
    output_free(&output);
    inputs_free(&inputs);
}

int main(void) {
    finite_differences();
    some_heads();
    what_passes();
    return tap_done();
}
