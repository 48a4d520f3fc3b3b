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

/* State of the bursts that ended between two updates of the counter. */
struct sum {
    int64_t launches;
    double ns, idle_ns;
    double clock_ns, cycles; /* of bursts whose clock could be read */
};

static void add_burst(struct sum *sum, const struct burst *burst) {
    sum->launches += burst->launches;
    sum->ns += burst->ns;
    sum->idle_ns += burst->idle_ns;
    if (burst->sm_clock_hz <= 0) return;
    sum->clock_ns += burst->ns;
    sum->cycles += 1e-9 * burst->ns * burst->sm_clock_hz;
}

/* Energy of one launch: the power, by the counter and the host's clock, times its share of the GPU's time. */
static struct energy energy_of(const struct sum *sum, double joules, double seconds) {
    const double launch_s = 1e-9 * (sum->ns + sum->idle_ns) / (double)sum->launches;
    return (struct energy){.launches = sum->launches,
                           .seconds = seconds,
                           .launch_ns = sum->ns / (double)sum->launches,
                           .joules = joules / seconds * launch_s,
                           .watts = joules / seconds,
                           .idle = sum->idle_ns / (sum->ns + sum->idle_ns),
                           .sm_clock_hz = sum->clock_ns > 0 ? 1e9 * sum->cycles / sum->clock_ns : 0};
}

/* Take the bursts that have ended, and queue as many. */
static enum status keep_busy(struct backend *backend, int64_t launches, struct sum *sum, struct failure *failure) {
    for (int i = 0; i < MAX_BURSTS; i++) {
        struct burst burst;
        enum status status = backend->ops->take_burst(backend, &burst, failure);
        if (status || !burst.launches) return status;
        add_burst(sum, &burst);
        if ((status = backend->ops->queue_burst(backend, launches, failure))) return status;
    }
    return STATUS_OK;
}

/* Read the counter until it has moved twice, a second or more apart, while MAX_BURSTS bursts are queued all the time;
 * its moves count from the second when the GPU is as hot as it gets. energy->launches stays 0 where it does not move.
 */
static enum status between_moves(struct backend *backend, const struct nvml *nvml, int64_t launches,
                                 struct energy *energy, struct failure *failure) {
    const double heat_s = 2, least_s = 1, patience_s = heat_s + 3, begin = now_s();
    unsigned long long first = 0, last, millijoules;
    double start = 0;
    struct sum sum = {0};
    if (nvml->nvmlDeviceGetTotalEnergyConsumption(nvml->device, &last)) return STATUS_OK;
    for (double now = begin; now - begin < patience_s;) {
        const enum status status = keep_busy(backend, launches, &sum, failure);
        if (status) return status;
        if (nvml->nvmlDeviceGetTotalEnergyConsumption(nvml->device, &millijoules)) return STATUS_OK;
        now = now_s();
        if (millijoules == last) continue;
        last = millijoules;
        if (now - begin < heat_s) continue;
        if (!first) {
            first = millijoules;
            start = now;
            sum = (struct sum){0};
        } else if (now - start >= least_s && sum.launches) {
            const struct pace at_first = energy->first;
            *energy = energy_of(&sum, 1e-3 * (double)(last - first), now - start);
            energy->first = at_first;
            return STATUS_OK;
        }
    }
    return STATUS_OK;
}

static int64_t celsius_of(const struct nvml *nvml) {
    unsigned celsius;
    const bool known = nvml->nvmlDeviceGetTemperature(nvml->device, SENSOR_OF_THE_GPU, &celsius) == 0;
    return known ? (int64_t)celsius : -1;
}

/* A burst after a second of rest. */
static enum status first_burst(struct backend *backend, const struct nvml *nvml, int64_t launches, struct pace *first,
                               struct failure *failure) {
    const struct timespec rest = {.tv_sec = 1};
    struct burst burst = {0};
    nanosleep(&rest, NULL);
    first->celsius = celsius_of(nvml);
    enum status status = backend->ops->queue_burst(backend, launches, failure);
    while (!status && !burst.launches) status = backend->ops->take_burst(backend, &burst, failure);
    if (status) return status;
    first->launch_ns = burst.ns / (double)burst.launches;
    first->sm_clock_hz = burst.sm_clock_hz;
    return STATUS_OK;
}

/* Fill the queue, measure, and wait until the queue is empty. */
static enum status with_bursts(struct backend *backend, const struct nvml *nvml, int64_t launches,
                               struct energy *energy, struct failure *failure) {
    struct burst burst = {.launches = 1};
    enum status status = STATUS_OK;
    for (int i = 0; i < MAX_BURSTS && !status; i++) status = backend->ops->queue_burst(backend, launches, failure);
    if (!status) status = between_moves(backend, nvml, launches, energy, failure);
    for (int left = MAX_BURSTS; left > 0 && !status; left -= burst.launches > 0)
        status = backend->ops->take_burst(backend, &burst, failure);
    return status;
}

enum status energy_run(struct backend *backend, double launch_ns, struct energy *energy, struct failure *failure) {
    const double burst_ns = 5e7; /* the counter is read in a tenth of that */
    const int64_t most = 400;    /* launches: the driver queues some thousand before a launch waits */
    struct nvml nvml;
    *energy = (struct energy){0};
    if (!nvml_open(&nvml, backend->device.pci_bus_id)) return STATUS_OK;
    const int64_t fitting = launch_ns < burst_ns ? (int64_t)(burst_ns / launch_ns) : 1;
    const int64_t launches = fitting < most ? fitting : most;
    enum status status = first_burst(backend, &nvml, launches, &energy->first, failure);
    if (!status) status = with_bursts(backend, &nvml, launches, energy, failure);
    energy->celsius = celsius_of(&nvml);
    nvml_close(&nvml);
    return status;
}
