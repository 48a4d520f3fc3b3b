/* gpu_state.h - clock, power and temperature of a GPU, by NVML.
 *
 *     gpu_state *gpu = gpu_state_open("0000:3b:00.0");     // NULL without libnvidia-ml.so.1
 *     gpu_reading now = gpu_state_read(gpu);
 *     gpu_state_close(gpu);
 */
#ifndef FL_JUDGE_GPU_STATE_H
#define FL_JUDGE_GPU_STATE_H

#include <stdint.h>

typedef struct gpu_state gpu_state;

/* -1 and 0 where a value cannot be read. */
typedef struct gpu_reading {
    int sm_MHz, memory_MHz, milliwatts, celsius;
    uint64_t slowdowns; /* reasons for a lower clock, bits of NVML's nvmlClocksEventReasons */
} gpu_reading;

gpu_state *gpu_state_open(const char *bus_id);
/* All unknown for NULL. */
gpu_reading gpu_state_read(const gpu_state *gpu);
void gpu_state_close(gpu_state *gpu);

#endif
