/* fake_nvml.c - a libnvidia-ml.so.1 next to the libcuda.so.1 of faulty_cuda.c: a GPU that draws constant power by its
 * clock.
 *
 *     cc -shared -fPIC -o DIR/libnvidia-ml.so.1 harness/tests/fake_nvml.c
 *
 * 700 W; the energy counter moves every 100 ms. FAKE_NVML holds words separated by commas:
 *     broken      nvmlInit fails             elsewhere   the GPU is at another PCI address
 *     still       the counter never moves    uncounted   the GPU has no counter
 *     step=MS     it moves every MS ms       numb        the GPU has no thermometer
 *     read=MS     reading it takes MS ms, in which the GPU continues
 *     open        what is not shut down is named on stderr at the end
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int opened;

/* Clock of faulty_cuda.c, which the host reads. */
void fake_host_works(double ns);

static int mode(const char *word) {
    const char *text = getenv("FAKE_NVML");
    return text && strstr(text, word) != NULL;
}

static void __attribute__((destructor)) say_what_is_open(void) {
    if (mode("open")) fprintf(stderr, "NVML is open %d times\n", opened);
}

int nvmlInit_v2(void) {
    if (mode("broken")) return 9; /* NVML_ERROR_DRIVER_NOT_LOADED */
    return opened++, 0;
}
int nvmlShutdown(void) {
    return opened--, 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device) {
    *device = &opened;
    return strcmp(bus_id, mode("elsewhere") ? "0000:9a:00.0" : "0000:1b:00.0") ? 6 : 0; /* NVML_ERROR_NOT_FOUND */
}
/* The seconds after "word=", which are written in ms. */
static double setting_s(const char *word, double initial) {
    const char *text = getenv("FAKE_NVML"), *at = text ? strstr(text, word) : NULL;
    return at ? 1e-3 * strtod(at + strlen(word), NULL) : initial;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    const double step_s = setting_s("step=", 0.1);
    struct timespec now;
    (void)device;
    fake_host_works(1e9 * setting_s("read=", 0));
    if (mode("uncounted")) return 3; /* NVML_ERROR_NOT_SUPPORTED */
    clock_gettime(CLOCK_MONOTONIC, &now);
    const double steps = floor(((double)now.tv_sec + 1e-9 * (double)now.tv_nsec) / step_s);
    *millijoules = 5000000 + (mode("still") ? 0 : (unsigned long long)(steps * step_s * 700e3));
    return 0;
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
    (void)device;
    *celsius = 54;
    return mode("numb") || sensor ? 3 : 0;
}
