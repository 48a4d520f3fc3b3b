/* energy.h - joules of one launch, from the total energy counter of NVML (libnvidia-ml.so.1, opened at run time).
 *
 *     energy_run(backend, median_ns, &energy, &failure);
 *     if (energy.launches) printf("%.2f J per launch\n", energy.joules);
 *
 * The counter moves in steps of up to a tenth of a second, and reading it takes milliseconds. So what counts lies
 * between two moves of the counter that are at least a second apart, and launches are queued in bursts, the next one
 * before the counter is read: the GPU does not wait for the host. What it waits nevertheless is known.
 */
#ifndef FL_ENERGY_H
#define FL_ENERGY_H

#include "harness/backend.h"
#include "runtime/status.h"

#include <stdint.h>

struct energy {
    int64_t launches;   /* that the figures are of; 0: NVML is absent or has no such counter */
    double seconds;     /* between the moves of the counter */
    double joules;      /* per launch */
    double watts;       /* of the whole board */
    double idle;        /* share of the time in which no launch was queued: these watts count too */
    double sm_clock_hz; /* mean over the bursts whose clock could be read, 0 where there is none */
    int64_t celsius;    /* at the end; -1 where it could not be read */
};

/* Run the kernel that the back end holds for more than a second; launch_ns is the time of one launch. An absent NVML is
 * no failure. */
enum status energy_run(struct backend *backend, double launch_ns, struct energy *energy, struct failure *failure);

#endif
