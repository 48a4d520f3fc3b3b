/* gpu_state.c - what NVML says of a GPU. The library is opened at run time and its functions are found by name. */
#include "gpu_state.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of nvml.h. */
enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, SENSOR_GPU = 0 };

struct gpu_state {
    void *library, *device;
    int (*clock)(void *device, int which, unsigned *MHz);
    int (*power)(void *device, unsigned *milliwatts);
    int (*temperature)(void *device, int sensor, unsigned *celsius);
    int (*slowdowns)(void *device, unsigned long long *reasons);
};

static void find(void *library, const char *name, void *function) {
    void *const found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
}

gpu_state *gpu_state_open(const char *bus_id) {
    int (*initialize)(void) = NULL;
    int (*device_of)(const char *bus_id, void **device) = NULL;
    gpu_state *gpu = calloc(1, sizeof *gpu);
    if (gpu) gpu->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (gpu && gpu->library) {
        find(gpu->library, "nvmlInit_v2", &initialize);
        find(gpu->library, "nvmlDeviceGetHandleByPciBusId_v2", &device_of);
        find(gpu->library, "nvmlDeviceGetClockInfo", &gpu->clock);
        find(gpu->library, "nvmlDeviceGetPowerUsage", &gpu->power);
        find(gpu->library, "nvmlDeviceGetTemperature", &gpu->temperature);
        find(gpu->library, "nvmlDeviceGetCurrentClocksThrottleReasons", &gpu->slowdowns);
        if (initialize && device_of && !initialize() && !device_of(bus_id, &gpu->device)) return gpu;
    }
    gpu_state_close(gpu);
    return NULL;
}

gpu_reading gpu_state_read(const gpu_state *gpu) {
    gpu_reading read = {-1, -1, -1, -1, 0};
    unsigned value;
    unsigned long long reasons;
    if (!gpu) return read;
    if (gpu->clock && !gpu->clock(gpu->device, CLOCK_SM, &value)) read.sm_MHz = (int)value;
    if (gpu->clock && !gpu->clock(gpu->device, CLOCK_MEMORY, &value)) read.memory_MHz = (int)value;
    if (gpu->power && !gpu->power(gpu->device, &value)) read.milliwatts = (int)value;
    if (gpu->temperature && !gpu->temperature(gpu->device, SENSOR_GPU, &value)) read.celsius = (int)value;
    if (gpu->slowdowns && !gpu->slowdowns(gpu->device, &reasons)) read.slowdowns = reasons;
    return read;
}

void gpu_state_close(gpu_state *gpu) {
    if (gpu && gpu->library) dlclose(gpu->library);
    free(gpu);
}
