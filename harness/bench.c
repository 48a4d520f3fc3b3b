#include "harness/bench.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static enum status keep(struct measurement *measurement, size_t *capacity, struct sample sample,
                        struct failure *failure) {
    if (!measurement->samples || measurement->count == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 256;
        struct sample *grown = realloc(measurement->samples, *capacity * sizeof *grown);
        if (!grown) return fail_memory(failure, *capacity * sizeof *grown, "samples");
        measurement->samples = grown;
    }
    measurement->samples[measurement->count++] = sample;
    return STATUS_OK;
}

/* Fill in time and sm_clock_hz. */
static enum status summarize_samples(struct measurement *measurement, struct failure *failure) {
    const size_t count = measurement->count;
    double *values = calloc(count, sizeof *values);
    if (!values) return fail_memory(failure, count * sizeof *values, "a summary");
    for (size_t i = 0; i < count; i++) values[i] = measurement->samples[i].ns;
    const enum status status = summarize(values, count, &measurement->time, failure);
    for (size_t i = 0; i < count; i++) values[i] = measurement->samples[i].sm_clock_hz;
    measurement->sm_clock_hz = median(values, count);
    for (size_t i = 0; i < count; i++) values[i] = measurement->samples[i].stamps_ns;
    measurement->stamps_ns = median(values, count);
    free(values);
    return status;
}

enum status bench_run(struct backend *backend, const struct options *options, struct measurement *measurement,
                      struct failure *failure) {
    const struct stopping_rule rule = {.runs = (size_t)options->runs,
                                       .min_samples = (size_t)options->min_samples,
                                       .min_time_ns = 1e9 * options->min_time,
                                       .max_noise = options->max_noise / 100,
                                       .timeout_s = options->timeout};
    const double start = now_s();
    double time_ns = 0, peak_clock = backend->device.clock_hz, next_look = 0;
    size_t capacity = 0;
    struct sample sample;
    *measurement = (struct measurement){.cold = options->cold};
    for (int64_t i = 0; i < options->warmup; i++) {
        const enum status status = backend->ops->sample(backend, options->cold, &sample, failure);
        if (status) return status;
    }
    do {
        enum status status = backend->ops->sample(backend, options->cold, &sample, failure);
        if (status) return status;
        if (sample.sm_clock_hz > peak_clock) peak_clock = sample.sm_clock_hz;
        if (sample.sm_clock_hz > 0 && sample.sm_clock_hz < options->throttle_threshold / 100 * peak_clock) {
            measurement->discarded++;
        } else {
            if ((status = keep(measurement, &capacity, sample, failure))) return status;
            time_ns += sample.ns;
        }
        /* Sorting all samples after each one would cost more than measuring them: look when there are 5 % more. */
        const bool look = measurement->count > 0 && (double)measurement->count >= next_look;
        if (look) {
            if ((status = summarize_samples(measurement, failure))) return status;
            next_look = 1.05 * (double)measurement->count;
        }
        measurement->wall_s = now_s() - start;
        const size_t launches = measurement->count + measurement->discarded;
        measurement->stop_reason = should_stop(&rule, rule.runs ? launches : measurement->count, time_ns,
                                               measurement->wall_s, look ? measurement->time.noise : INFINITY);
    } while (measurement->stop_reason == GO_ON);
    return measurement->count ? summarize_samples(measurement, failure) : STATUS_OK;
}

void measurement_free(struct measurement *measurement) {
    free(measurement->samples);
    *measurement = (struct measurement){0};
}

bool measurement_converged(const struct measurement *measurement) {
    return measurement->count > 0 && measurement->stop_reason != STOP_TIMEOUT;
}

/* Everything between the stamps except the launch takes microseconds. Twice the peak: that of mma.sync is known, and
 * wgmma is less than twice as fast. */
enum { SLACK_NS = 100000, MOST_OF_PEAK = 2 };

enum status measurement_possible(const struct measurement *measurement, double flop, double peak_tflops,
                                 struct failure *failure) {
    const double ns = measurement->time.median, tflops = flop / ns / 1e3;
    if (measurement->stamps_ns > 0 && ns < 0.9 * measurement->stamps_ns - SLACK_NS)
        return fail(failure, STATUS_ERROR,
                    "not measured: CUDA events report %.3f ms per launch, but the GPU's global timer reports %.3f ms",
                    ns / 1e6, measurement->stamps_ns / 1e6);
    if (peak_tflops > 0 && !(tflops <= MOST_OF_PEAK * peak_tflops))
        return fail(failure, STATUS_ERROR,
                    "not measured: %.3f us per launch would be %.4g TFLOP/s, more than the GPU's measured peak of %.4g",
                    ns / 1e3, tflops, peak_tflops);
    return STATUS_OK;
}
