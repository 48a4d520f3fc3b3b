#include "harness/e4m3.h"

#include "harness/half.h"

#include <math.h>
#include <string.h>

enum { BIAS = 7, FRACTION = 3, E4M3_NAN = 0x7f, LARGEST = 0x7e, STEP_KEYS = 32 };

float e4m3_to_float(uint8_t byte) {
    const int exponent = byte >> FRACTION & 15, fraction = byte & 7;
    const float size = exponent ? ldexpf((float)(8 + fraction), exponent - BIAS - FRACTION)
                                : ldexpf((float)fraction, 1 - BIAS - FRACTION);
    if ((byte & 0x7f) == E4M3_NAN) return NAN;
    return byte & 0x80 ? -size : size;
}

uint8_t e4m3_from_float(float value) {
    const uint8_t sign = signbit(value) ? 0x80 : 0;
    const float size = fabsf(value);
    int exponent;
    if (isnan(value)) return E4M3_NAN;
    if (size >= 448) return sign | LARGEST;
    frexpf(size, &exponent); /* size is below 2^exponent; of 0 that is 1 */
    if (size == 0 || exponent < 2 - BIAS) exponent = 2 - BIAS;
    /* in units of the last place; 16 of them are 8 of the next exponent, which the addition carries over */
    const int units = (int)nearbyintf(ldexpf(size, FRACTION + 1 - exponent));
    return sign | (uint8_t)(units + ((exponent - 2 + BIAS) << FRACTION));
}

void e4m3_spread(const struct problem *problem, enum tensor tensor, const uint16_t *contiguous, uint8_t *memory) {
    const int64_t rows = problem_rows(problem, tensor), heads = problem_heads(problem, tensor), d = problem->d_head;
    const bool transposed = tensor == TENSOR_V && problem->transposed_V;
    for (int64_t i = 0; i < problem_elements(problem, tensor); i++) {
        const int64_t column = i % d, head = i / d % heads, row = i / d / heads % rows, batch = i / d / heads / rows;
        const int64_t at = transposed ? ((batch * heads + head) * d + column) * rows + row : i;
        memory[at] = e4m3_from_float(half_to_float(contiguous[i], problem->dtype));
    }
}

fp8_args e4m3_args(const struct problem *problem, attention_args attention) {
    return (fp8_args){.attention = attention,
                      .Q_descale = (float)problem->descale[TENSOR_Q],
                      .K_descale = (float)problem->descale[TENSOR_K],
                      .V_descale = (float)problem->descale[TENSOR_V]};
}

void e4m3_add_block(struct reference_row *row, const double *p, int keys, int d_head, double (*values)[MAX_D_HEAD],
                    const double *weight_before) {
    for (int j = 0; j < keys; j++) {
        row->p_squares += p[j] * p[j];
        for (int c = 0; c < d_head; c++) {
            const double v = values[j][c];
            row->term_squares[c] += p[j] * p[j] * v * v;
            row->V_squares[c] += v * v;
            row->signs[c] += (v > 0) - (v < 0);
        }
    }
    for (int c = 0; c < d_head; c++) {
        const double terms = row->weight[c] - weight_before[c];
        row->largest_sum[c] = fmax(row->largest_sum[c], fabs(row->output[c]));
        row->largest_terms[c] = fmax(row->largest_terms[c], terms);
    }
}

/* The largest that is added up in a score, times the scale. */
static double largest_in_scores(const struct problem *problem, const struct reference_row *row) {
    return fmax(row->largest, 6 * row->products / sqrt(problem->d_head));
}

static double exponent_error(const struct problem *problem, const struct reference_row *row) {
    return 8 * sqrt(33.0 * problem->d_head / STEP_KEYS) * 0x1p-13 * largest_in_scores(problem, row);
}

/* Of the accumulator of O. Kernels begin with the last key: what they have added up is the sum less another one. */
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
