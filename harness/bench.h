/* bench.h - time one kernel on one problem until the median is known well enough.
 *
 *     bench_run(backend, &options, &measurement, &failure);
 *     printf("%.1f us\n", measurement.time.median / 1e3);
 */
#ifndef FL_BENCH_H
#define FL_BENCH_H

#include "harness/backend.h"
#include "harness/options.h"
#include "harness/stats.h"
#include "runtime/status.h"

#include <stdbool.h>
#include <stddef.h>

struct measurement {
    bool cold;
    struct sample *samples; /* kept ones in the order of measuring, owned */
    size_t count;
    size_t discarded; /* samples left out because the SM clock was too low */
    enum stop_reason stop_reason;
    struct summary time; /* of the samples' ns; valid when count > 0 */
    double sm_clock_hz;  /* median, 0 where it could not be read */
    double stamps_ns;    /* median of the samples' */
    double wall_s;
};

/* Measure the problem and instance that the back end holds. *measurement is to be freed in any case. */
enum status bench_run(struct backend *backend, const struct options *options, struct measurement *measurement,
                      struct failure *failure);
void measurement_free(struct measurement *measurement);

/* True if the stopping rule's limits were met. */
bool measurement_converged(const struct measurement *measurement);

/* True if the time can be one of a launch of so many floating-point operations: the GPU's own timer says the same as
 * the events, and the speed is at most twice the measured peak, in TFLOP/s, 0 where it is not known. STATUS_ERROR,
 * where it cannot. */
enum status measurement_possible(const struct measurement *measurement, double flop, double peak_tflops,
                                 struct failure *failure);

#endif
