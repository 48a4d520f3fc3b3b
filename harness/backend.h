/* backend.h - what runs a kernel: a GPU through the driver, or the emulator.
 *
 *     backend->ops->set_problem(backend, &inputs, &failure);
 *     backend->ops->set_instance(backend, instance, &code, &failure);
 *     backend->ops->poison(backend, &failure);
 *     backend->ops->launch(backend, &failure);
 *     backend->ops->read_output(backend, &output, &failure);
 */
#ifndef FL_BACKEND_H
#define FL_BACKEND_H

#include "harness/inputs.h"
#include "runtime/image.h"
#include "runtime/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct device_info {
    char name[128];
    int major, minor; /* compute capability; 8.0 for the emulator */
    int sms;          /* multiprocessors, 0 for the emulator */
    int64_t l2_bytes, memory_bytes;
    double clock_hz; /* of an SM at its peak */
    char driver[64];
    char pci_bus_id[32]; /* "0000:1b:00.0", by which NVML knows a GPU; "" where it is not known */
};

/* One timed launch. */
struct sample {
    double ns;
    double sm_clock_hz; /* mean over the launch; 0 where it could not be read */
    double stamps_ns;   /* by the GPU's own timer, from before the first event to after the second; 0 as above */
};

/* Launches that were queued together and have ended. */
struct burst {
    int64_t launches;
    double ns;          /* from the first launch to the end of the last */
    double idle_ns;     /* before them, since the end of the burst that was queued before; 0 where there was none */
    double sm_clock_hz; /* mean; 0 where it could not be read */
};
enum { MAX_BURSTS = 2 }; /* queued at a time */

/* Totals of one emulated launch: warp instructions of the PTX, modeled wavefronts of shared memory, 32-byte sectors of
 * global memory. A wgmma counts once for each of its four warps. */
struct counts {
    uint64_t executed, mma, wgmma, ldmatrix;
    uint64_t wavefronts, ideal; /* ideal: of the same accesses without bank conflicts */
    uint64_t sectors;
    uint64_t copied;                   /* bytes that the copy engine moved */
    uint64_t findings;                 /* races, unset data, ... */
    unsigned orders;                   /* whether no other order has any: emu_describe_orders() */
    const struct emu_counters *tables; /* by instruction, borrowed until the next launch; NULL without --counters */
};

/* The value of a byte that a kernel has not written: floats and 16-bit elements of such bytes are NaN. */
enum { POISON_BYTE = 0xff };

struct backend {
    const struct backend_ops *ops;
    struct device_info device;
};

/* Optional operations are NULL where a back end lacks them. set_problem comes first, then set_instance, then the rest;
 * both may be called again. A status that is not STATUS_OK comes with a message. */
struct backend_ops {
    const char *name; /* "gpu", "emu" */
    void (*close)(struct backend *backend);
    /* True if the command line fits a launch; STATUS_USAGE where it names a part that the launch lacks. Comes before
     * any set_problem. */
    enum status (*check_launch)(const struct backend *backend, const struct problem *problem,
                                const struct instance *instance, struct failure *failure);
    /* GPU: true if a CTA may have the shared memory that an instance needs. */
    bool (*fits)(const struct backend *backend, const struct instance *instance);
    /* Take the problem: allocate the tensors and copy the inputs, which are borrowed until the next call. */
    enum status (*set_problem)(struct backend *backend, const struct inputs *inputs, struct failure *failure);
    /* GPU: copy inputs of the same problem whose values have changed. */
    enum status (*renew_inputs)(struct backend *backend, const struct inputs *inputs, struct failure *failure);
    /* Take the kernel: refuse what the device can't run. `code` says what the machine code is; all zero on the
     * emulator. */
    enum status (*set_instance)(struct backend *backend, const struct instance *instance, struct kernel_code *code,
                                struct failure *failure);
    /* Fill the outputs with NaN. */
    enum status (*poison)(struct backend *backend, struct failure *failure);
    /* One launch, to its end. STATUS_WRONG where the emulator stopped the kernel. */
    enum status (*launch)(struct backend *backend, struct failure *failure);
    enum status (*read_output)(struct backend *backend, struct output *output, struct failure *failure);
    /* Allocate a dump buffer, which later launches write; read a part of it. */
    enum status (*set_dump)(struct backend *backend, int64_t bytes, struct failure *failure);
    enum status (*read_dump)(struct backend *backend, int64_t offset, void *bytes, int64_t size,
                             struct failure *failure);
    /* GPU: one timed launch, with the L2 flushed before it or not. */
    enum status (*sample)(struct backend *backend, bool cold, struct sample *sample, struct failure *failure);
    /* GPU: queue launches one after another, after the bursts that are queued, and do not wait for them. */
    enum status (*queue_burst)(struct backend *backend, int64_t launches, struct failure *failure);
    /* GPU: take the oldest burst if it has ended; burst->launches is 0 where it still runs. It does not wait. */
    enum status (*take_burst)(struct backend *backend, struct burst *burst, struct failure *failure);
    /* GPU: measured peak in TFLOP/s of mma.sync m16n8k16, of wgmma m64n128k16 for a version that is for sm_90a alone.
     */
    enum status (*peak)(struct backend *backend, enum dtype dtype, double *tflops, struct failure *failure);
    /* Emulator, both or none: totals of the last launch; what it found, in words, and tables of counters. False when
     * out of memory. */
    void (*counts)(const struct backend *backend, struct counts *counts);
    bool (*explain)(const struct backend *backend, FILE *file, bool counters);
};

/* Open the driver's library and a GPU; `timed`: launches will be timed, which takes helper kernels and a first launch
 * of each. STATUS_CANNOT_RUN where there is none that can run the version's code. */
enum status gpu_open(struct backend **backend, int device, bool timed, struct failure *failure);

/* Options of the emulator for a launch. */
struct emulation {
    bool checks;              /* look for races and uninitialised data */
    bool wgmma_wait_per_warp; /* as in emu_launch */
    bool tables;              /* struct counts has them by instruction */
    bool progress;            /* say on standard error how far a launch has come */
    int threads;              /* 0: one per core */
    uint64_t schedule;        /* seed of the order of warps; 0 runs each warp until it must wait */
    const char *ptx;          /* file with PTX to run instead of the executable's, borrowed; NULL: none */
    const char *trace;        /* as emu_parse_trace() reads it, borrowed; NULL: none */
    FILE *trace_to;           /* borrowed */
    const char *events;       /* file for the events of a launch, borrowed; NULL: none */
};

/* Open the emulator on the embedded PTX. STATUS_USAGE where a trace is asked for and is none. */
enum status emu_open(struct backend **backend, const struct emulation *how, struct failure *failure);

#endif
