#include "harness/fp8.h"

#include "harness/e4m3.h"
#include "harness/half.h"
#include "harness/parallel.h"

#include <math.h>

enum { STEP_KEYS = 32 };        /* of one wgmma */
enum { SPREAD_ROWS = 1 << 10 }; /* of one parallel iteration */

struct spread {
    const struct problem *problem;
    enum tensor tensor;
    const uint16_t *contiguous;
    uint8_t *memory;
};

static void spread_rows(int64_t n, void *context) {
    const struct spread *const spread = context;
    const struct problem *const problem = spread->problem;
    const int64_t rows = problem_rows(problem, spread->tensor), heads = problem_heads(problem, spread->tensor),
                  d = problem->d_head, all = problem->batch * rows * heads;
    const bool transposed = spread->tensor == TENSOR_V && problem->transposed_V;
    for (int64_t i = n * SPREAD_ROWS; i < all && i < (n + 1) * SPREAD_ROWS; i++) {
        const int64_t head = i % heads, row = i / heads % rows, batch = i / heads / rows;
        const int64_t first = transposed ? (batch * heads + head) * d * rows + row : i * d;
        for (int64_t c = 0; c < d; c++)
            spread->memory[first + c * (transposed ? rows : 1)] =
                e4m3_from_float(half_to_float(spread->contiguous[i * d + c], problem->dtype));
    }
}

void e4m3_spread(const struct problem *problem, enum tensor tensor, const uint16_t *contiguous, uint8_t *memory) {
    const int64_t rows = problem_elements(problem, tensor) / problem->d_head;
    struct spread spread = {problem, tensor, contiguous, memory};
    parallel_for((rows + SPREAD_ROWS - 1) / SPREAD_ROWS, spread_rows, &spread);
}

fp8_args e4m3_args(const struct problem *problem, attention_args attention) {
    return (fp8_args){.attention = attention,
                      .Q_descale = (float)problem->descale[TENSOR_Q],
                      .K_descale = (float)problem->descale[TENSOR_K],
                      .V_descale = (float)problem->descale[TENSOR_V]};
}

/* The largest that is added up in a score, times the scale. */
static double largest_in_scores(const struct problem *problem, const struct reference_row *row) {
    return fmax(row->largest, 6 * row->products / sqrt(problem->d_head));
}

static double exponent_error(const struct problem *problem, const struct reference_row *row) {
    return 8 * sqrt(33.0 * problem->d_head / STEP_KEYS) * 0x1p-13 * largest_in_scores(problem, row);
}

/* Rounding error of the accumulator of O. Kernels begin with the last key: what they have added up is the sum less
 * another one. */
static double cut_bound(const struct problem *problem, const struct reference_row *row, int column) {
    const double n = ceil((double)row->keys / STEP_KEYS), f = (double)problem->summed_keys / STEP_KEYS;
    const double sums = fmin(row->weight[column], fabs(row->output[column]) + row->largest_sum[column]);
    const double most = sums + row->largest_terms[column];
    const double never = 0x1p-13 * most * (fabs(row->signs[column]) + 2 * n + 8 * sqrt(33 * n));
    return f > 0 ? fmin(never, 0x1p-13 * row->weight[column] * (34 * f + 8 * sqrt(33 * f))) : never;
}

double e4m3_O_bound(const struct problem *problem, const struct reference_row *row, int column) {
    const double ref = fabs(row->output[column]), of_P = 0x1p-4 + exponent_error(problem, row);
    const double spread = sqrt(row->term_squares[column]) + ref * sqrt(row->p_squares);
    const double rounding = fmin(8 * of_P * spread, of_P * (row->weight[column] + ref));
    const double small_P = 8 * 0x1p-18 * sqrt(row->V_squares[column]);
    const double of_O = (problem->dtype == FP16 ? 0x1p-11 : 0x1p-8) * ref;
    return 1.05 * (rounding + small_P + cut_bound(problem, row, column) + of_O) + 1e-6;
}

double e4m3_lse_bound(const struct problem *problem, const struct reference_row *row) {
    const double of_sum = 8 * (0x1p-4 * sqrt(row->p_squares) + 0x1p-18 * sqrt((double)row->keys));
    return 1.05 * (exponent_error(problem, row) + (problem->rounded_sums_of_P ? of_sum : 0));
}
