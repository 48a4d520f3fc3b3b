/* energy.h - time and joules of launches that follow each other: at first, on a cool GPU, and sustained.
 *
 *     energy_run(backend, median_ns, &energy, &failure);
 *     if (energy.launches) printf("%.2f J per launch\n", energy.joules);
 *
 * A GPU at its power limit lowers its clock within tenths of a second. So a burst of launches after a second of rest
 * shows the first state; then launches follow each other for two seconds before the sustained one is measured. Joules
 * are from the total energy counter of NVML (libnvidia-ml.so.1, opened at run time). The counter moves in steps of up
 * to a tenth of a second, and reading it takes milliseconds. So only the time between two moves of the counter counts
 * that are at least a second apart, and launches are queued in bursts, the next one before the counter is read: the GPU
 * does not wait for the host. The remaining waiting time is known.
 */
#ifndef FL_ENERGY_H
#define FL_ENERGY_H

#include "harness/backend.h"
#include "runtime/status.h"

#include <stdint.h>

/* Launches of one burst. */
struct pace {
    double launch_ns;   /* of one */
    double sm_clock_hz; /* 0 where it could not be read */
    int64_t celsius;    /* before them; -1 where it could not be read */
};

struct energy {
    struct pace first;  /* after a second without work */
    int64_t launches;   /* that the figures below are of; 0: NVML is absent or has no such counter */
    double seconds;     /* between the moves of the counter */
    double launch_ns;   /* of one, without the waits between bursts */
    double joules;      /* per launch */
    double watts;       /* of the whole board */
    double idle;        /* share of the time in which no launch was queued: these watts count too */
    double sm_clock_hz; /* mean over the bursts whose clock could be read, 0 where there is none */
    int64_t celsius;    /* at the end; -1 where it could not be read */
};

/* Run the kernel that the back end holds for more than three seconds; launch_ns is the time of one launch. An absent
 * NVML is no failure. */
enum status energy_run(struct backend *backend, double launch_ns, struct energy *energy, struct failure *failure);

#endif
