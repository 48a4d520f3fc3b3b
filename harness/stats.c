#include "harness/stats.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value below which a share of the sorted values is. */
static double quantile(const double *sorted, size_t count, double share) {
    const double position = share * (double)(count - 1);
    const size_t below = (size_t)position;
    if (below + 1 >= count) return sorted[count - 1];
    return sorted[below] + (position - (double)below) * (sorted[below + 1] - sorted[below]);
}

double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare);
    return quantile(values, count, 0.5);
}

enum status summarize(const double *values, size_t count, struct summary *summary, struct failure *failure) {
    double *sorted = malloc(count * sizeof *sorted);
    if (!sorted) return fail_memory(failure, count * sizeof *sorted, "a summary of samples");
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    *summary = (struct summary){.least = sorted[0],
                                .q1 = quantile(sorted, count, 0.25),
                                .median = quantile(sorted, count, 0.5),
                                .q3 = quantile(sorted, count, 0.75),
                                .most = sorted[count - 1],
                                .noise = INFINITY};
    free(sorted);
    if (count >= 3 && summary->median > 0)
        summary->noise = 1.2533 * (summary->q3 - summary->q1) / 1.349 / sqrt((double)count) / summary->median;
    return STATUS_OK;
}

const char *stop_reason_name(enum stop_reason reason) {
    static const char *const names[] = {"going on", "runs", "converged", "timeout"};
    return names[reason];
}

enum stop_reason should_stop(const struct stopping_rule *rule, size_t count, double time_ns, double elapsed_s,
                             double noise) {
    const bool long_enough = time_ns >= rule->min_time_ns || count >= STOPPING_SAMPLES;
    if (rule->runs) return count >= rule->runs ? STOP_RUNS : GO_ON;
    if (count >= rule->min_samples && long_enough && noise <= rule->max_noise) return STOP_CONVERGED;
    return elapsed_s >= rule->timeout_s ? STOP_TIMEOUT : GO_ON;
}
