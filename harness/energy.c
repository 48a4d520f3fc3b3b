#include "harness/energy.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

/* The part of NVML that is used; names and numbers are those of its API reference. Every function returns 0 when it did
 * what it says. */
struct nvml {
    void *library, *device;
    int (*nvmlInit_v2)(void);
    int (*nvmlShutdown)(void);
    int (*nvmlDeviceGetHandleByPciBusId_v2)(const char *bus_id, void **device);
    int (*nvmlDeviceGetTotalEnergyConsumption)(void *device, unsigned long long *millijoules);
    int (*nvmlDeviceGetTemperature)(void *device, int sensor, unsigned *celsius);
};
enum { SENSOR_OF_THE_GPU = 0 };

static void nvml_close(struct nvml *nvml) {
    if (nvml->device) nvml->nvmlShutdown();
    if (nvml->library) dlclose(nvml->library);
    *nvml = (struct nvml){0};
}

/* False where there is no NVML or it does not know the device; then nothing is left open. */
static bool nvml_open(struct nvml *nvml, const char *bus_id) {
#define ENTRY(name)                                                                                                    \
    {                                                                                                                  \
        #name, offsetof(struct nvml, name)                                                                             \
    }
    static const struct {
        const char *name;
        size_t offset;
    } entries[] = {ENTRY(nvmlInit_v2), ENTRY(nvmlShutdown), ENTRY(nvmlDeviceGetHandleByPciBusId_v2),
                   ENTRY(nvmlDeviceGetTotalEnergyConsumption), ENTRY(nvmlDeviceGetTemperature)};
#undef ENTRY
    *nvml = (struct nvml){.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)};
    bool ready = nvml->library != NULL;
    for (size_t i = 0; ready && i < sizeof entries / sizeof *entries; i++) {
        void *address = dlsym(nvml->library, entries[i].name);
        ready = address != NULL;
        memcpy((char *)nvml + entries[i].offset, &address, sizeof address); /* as in cuda_driver.c */
    }
    if (ready && nvml->nvmlInit_v2() == 0) {
        if (nvml->nvmlDeviceGetHandleByPciBusId_v2(bus_id, &nvml->device) == 0) return true;
        nvml->device = NULL;
        nvml->nvmlShutdown();
    }
    nvml_close(nvml);
    return false;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Bursts until the counter has moved twice, a second or more apart; energy->launches stays 0 where it does not move. */
static enum status between_moves(struct backend *backend, const struct nvml *nvml, int64_t burst, struct energy *energy,
                                 struct failure *failure) {
    const double least_s = 1, patience_s = 3, begin = now_s();
    unsigned long long first = 0, last, millijoules;
    double start = 0, clocks = 0;
    int64_t launches = 0;
    if (nvml->nvmlDeviceGetTotalEnergyConsumption(nvml->device, &last)) return STATUS_OK;
    for (double now = begin; now - begin < patience_s;) {
        double clock_hz;
        const enum status status = backend->ops->burst(backend, burst, &clock_hz, failure);
        if (status) return status;
        now = now_s();
        launches += burst;
        clocks += clock_hz * (double)burst;
        if (nvml->nvmlDeviceGetTotalEnergyConsumption(nvml->device, &millijoules)) return STATUS_OK;
        if (millijoules == last) continue;
        last = millijoules;
        if (!first) {
            first = millijoules;
            start = now;
            launches = 0;
            clocks = 0;
        } else if (now - start >= least_s) {
            const double joules = 1e-3 * (double)(last - first);
            *energy = (struct energy){.launches = launches,
                                      .seconds = now - start,
                                      .joules = joules / (double)launches,
                                      .watts = joules / (now - start),
                                      .sm_clock_hz = clocks / (double)launches};
            return STATUS_OK;
        }
    }
    return STATUS_OK;
}

enum status energy_run(struct backend *backend, double launch_ns, struct energy *energy, struct failure *failure) {
    const double burst_ns = 5e6; /* half a percent of a second: how well the moves of the counter are known */
    struct nvml nvml;
    unsigned celsius;
    *energy = (struct energy){0};
    if (!nvml_open(&nvml, backend->device.pci_bus_id)) return STATUS_OK;
    const int64_t burst = launch_ns < burst_ns ? (int64_t)(burst_ns / launch_ns) : 1;
    const enum status status = between_moves(backend, &nvml, burst, energy, failure);
    const bool known = nvml.nvmlDeviceGetTemperature(nvml.device, SENSOR_OF_THE_GPU, &celsius) == 0;
    energy->celsius = known ? (int64_t)celsius : -1;
    nvml_close(&nvml);
    return status;
}
