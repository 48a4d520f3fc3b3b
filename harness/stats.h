/* stats.h - order statistics of samples and the rule that says when there are enough of them.
 *
 *     struct summary summary;
 *     summarize(samples, count, &summary, &failure);
 */
#ifndef FL_STATS_H
#define FL_STATS_H

#include "runtime/status.h"

#include <stddef.h>

struct summary {
    double least, q1, median, q3, most;
    double noise; /* relative standard error of the median, not in percent */
};

/* Median; quartiles by linear interpolation between order statistics. count > 0; the order of values is not kept. */
double median(double *values, size_t count);

/* Summary of count > 0 samples, which stay as they are. The standard error of a median of n samples of a normal
 * distribution is 1.2533 * sigma / sqrt(n); sigma is taken from the interquartile range, IQR / 1.349, which single
 * outliers do not move. Noise is infinite for fewer than 3 samples. STATUS_ERROR when out of memory. */
enum status summarize(const double *values, size_t count, struct summary *summary, struct failure *failure);

/* This many samples are enough, however short they are. */
enum { STOPPING_SAMPLES = 1000 };

/* The limits that end a measurement. */
struct stopping_rule {
    size_t runs;        /* exactly this number of launches, however long; 0: the limits below decide */
    size_t min_samples; /* at least */
    double min_time_ns; /* of all samples together, at least; STOPPING_SAMPLES will do too */
    double max_noise;   /* not in percent */
    double timeout_s;   /* of wall time */
};

enum stop_reason { GO_ON, STOP_RUNS, STOP_CONVERGED, STOP_TIMEOUT };

/* "runs", "converged", "timeout". */
const char *stop_reason_name(enum stop_reason reason);

/* True if the measurement may stop after count samples (with `runs`, launches: discarded ones included) that took
 * time_ns together, elapsed_s seconds after the start. noise is read only when the other limits hold; summarize() gives
 * it. */
enum stop_reason should_stop(const struct stopping_rule *rule, size_t count, double time_ns, double elapsed_s,
                             double noise);

#endif
