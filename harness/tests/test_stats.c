/* test_stats.c - order statistics and the stopping rule on samples whose answers are known. */
#include "common/tests/tap.h"
#include "harness/inputs.h"
#include "harness/stats.h"
#include "harness/tests/element.h"

#include <math.h>
#include <stdlib.h>

static void order(void) {
    double values[] = {5, 1, 4, 2, 3}, even[] = {4, 1, 3, 2}, one[] = {7};
    struct summary summary;
    struct failure failure;
    ok(!summarize(values, 5, &summary, &failure) && summary.least == 1 && summary.q1 == 2 && summary.median == 3 &&
           summary.q3 == 4 && summary.most == 5,
       "quartiles of 1 ... 5");
    ok(values[0] == 5 && values[4] == 3, "the samples stay in their order");
    ok(!summarize(even, 4, &summary, &failure) && summary.median == 2.5 && summary.q1 == 1.75 && summary.q3 == 3.25,
       "quartiles of 1 ... 4 are interpolated");
    ok(!summarize(one, 1, &summary, &failure) && summary.median == 7 && summary.q1 == 7 && summary.q3 == 7 &&
           isinf(summary.noise),
       "one sample has a median and no noise");
    ok(median(values, 5) == 3 && median(even, 4) == 2.5 && median(one, 1) == 7, "medians");
}

/* Normal samples: the noise must be near the true error of the median, which repeated medians show. */
static void noise(void) {
    enum { COUNT = 101, ROUNDS = 400 };
    double medians[ROUNDS], mean_noise = 0, spread = 0, mean = 0;
    for (int r = 0; r < ROUNDS; r++) {
        double values[COUNT];
        struct summary summary;
        struct failure failure;
        for (int i = 0; i < COUNT; i++)
            values[i] = 1000 + 10 * (double)element(DIST_NORMAL, 77, TENSOR_Q, (int64_t)r * COUNT + i);
        summarize(values, COUNT, &summary, &failure);
        medians[r] = summary.median;
        mean_noise += summary.noise / ROUNDS;
        mean += summary.median / ROUNDS;
    }
    for (int r = 0; r < ROUNDS; r++) spread += (medians[r] - mean) * (medians[r] - mean) / ROUNDS;
    ok(fabs(mean_noise / (sqrt(spread) / 1000) - 1) < 0.15, "noise %.6f, true error of the median %.6f", mean_noise,
       sqrt(spread) / 1000);
    ok(fabs(mean - 1000) < 0.5, "medians are not shifted: %.3f", mean);

    double steady[100], spiky[100];
    struct summary a, b;
    struct failure failure;
    for (int i = 0; i < 100; i++) spiky[i] = steady[i] = 1000 + i % 7;
    spiky[50] = 1e6;
    summarize(steady, 100, &a, &failure);
    summarize(spiky, 100, &b, &failure);
    ok(b.noise < 1.2 * a.noise && fabs(a.median - b.median) <= 1, "one outlier does not raise the noise");
    double drift[100];
    for (int i = 0; i < 100; i++) drift[i] = 1000 + 10 * i;
    summarize(drift, 100, &b, &failure);
    ok(b.noise > 20 * a.noise, "a drift does");
}

/* 1.2533 times the standard deviation that the quartiles tell, over the root of the number of samples. */
static void noise_of_few(void) {
    const double samples[] = {1, 2, 3}, zeros[] = {-1, 0, 0, 0, 1};
    struct summary summary;
    struct failure failure;
    ok(!summarize(samples, 3, &summary, &failure) && fabs(summary.noise - 1.2533 / 1.349 / sqrt(3) / 2) < 1e-12,
       "three samples have noise");
    ok(!summarize(samples, 2, &summary, &failure) && isinf(summary.noise), "two have none");
    ok(!summarize(zeros, 5, &summary, &failure) && summary.median == 0 && isinf(summary.noise),
       "around a median of 0 there is none");
}

static void stopping(void) {
    const struct stopping_rule rule = {.min_samples = 10, .min_time_ns = 1e6, .max_noise = 0.005, .timeout_s = 15};
    const struct stopping_rule runs = {
        .runs = 5, .min_samples = 10, .min_time_ns = 1e6, .max_noise = 0.005, .timeout_s = 15};
    ok(should_stop(&rule, 9, 2e6, 1, 0.001) == GO_ON, "continues below the least number of samples");
    ok(should_stop(&rule, 10, 9e5, 1, 0.001) == GO_ON, "continues below the least time");
    ok(should_stop(&rule, 10, 2e6, 1, 0.006) == GO_ON, "continues while noisy");
    ok(should_stop(&rule, 10, 2e6, 1, NAN) == GO_ON, "continues while the noise is not a number");
    ok(should_stop(&rule, 10, 2e6, 1, 0.005) == STOP_CONVERGED, "converges at its limits");
    ok(should_stop(&rule, STOPPING_SAMPLES, 1, 1, 0.001) == STOP_CONVERGED, "many short samples will do");
    ok(should_stop(&rule, 3, 1, 15, 1) == STOP_TIMEOUT, "gives up after the timeout");
    ok(should_stop(&rule, 10, 2e6, 16, 0.001) == STOP_CONVERGED, "converged is converged, however late");
    ok(should_stop(&rule, 0, 0, 16, NAN) == STOP_TIMEOUT, "gives up without any sample");
    ok(should_stop(&runs, 4, 1e9, 1, 0) == GO_ON && should_stop(&runs, 5, 0, 1, INFINITY) == STOP_RUNS,
       "a number of runs is exact");
    ok(should_stop(&runs, 4, 0, 16, INFINITY) == GO_ON, "however long they take");
}

int main(void) {
    order();
    noise();
    noise_of_few();
    stopping();
    return tap_done();
}
