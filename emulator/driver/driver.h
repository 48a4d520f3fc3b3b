/* driver.h - libcuda.so.1 over the emulator: what its parts share.
 *
 *     CUresult cuStreamSynchronize(CUstream stream) {
 *         CUresult status = driver_enter();              // the lock, and whether cuInit() was called
 *         if (status == CUDA_SUCCESS) status = check_device(0);
 *         return driver_leave(status);
 *     }
 *
 * Whatever is put on a stream runs at once, in the call that puts it there, on the emulator's one device: an order that
 * CUDA allows for every program. So a stream has never anything left to do, and an event has always happened.
 *
 *   functions_table.h  every function of the driver: served, another name of one, or refused by name
 *   entry_points.c     their addresses, and the refusals        module.c   modules, libraries, variables, cuLink
 *   names.c            functions and results by name            image.c    PTX in fatbins
 *   device.c           the device and its attributes            launch.c   kernels, occupancy, tensor maps
 *   context.c          contexts                                 stream.c   streams, events, capture
 *   memory.c           memory of all kinds, copies, pointers    graph.c    graphs, whose nodes are in graph_nodes.c
 *   operation.c        what a stream or a graph's node does     notes.c    findings and sentences for the user
 *   texture.c          arrays, textures, surfaces        record.c   recordings of all that, for the judge
 *   overlap.c          races of operations that may overlap watch.c    what replays of them ask
 *   legacy_entry_points.c  functions of earlier releases with other arguments, or without successor
 *   launch_by_steps.c  launches whose sizes and parameters are set one by one
 */
#ifndef FL_EMU_DRIVER_H
#define FL_EMU_DRIVER_H

#include "../emu.h"

#pragma GCC visibility push(default)
#include <cuda.h>
/* Functions of earlier releases that programs still ask for; cuda.h declares their successors alone. */
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned flags, CUdevice device);
CUresult cuGraphInstantiate_v2(CUgraphExec *executable, CUgraph graph, CUgraphNode *error, char *log, size_t bytes);
#undef cuGetProcAddress
CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags);
CUresult cuProfilerStart(void); /* of cudaProfiler.h, as the next */
CUresult cuProfilerStop(void);
#pragma GCC visibility pop

/* ---- the one device, and the lock around all ---- */

enum { DRIVER_VERSION = 13050 };
#define DEVICE_MEMORY (16ull << 30) /* bytes: the most that one buffer of the emulator may have */

/* Shared memory of an architecture, in bytes; CUDA C++ Programming Guide, "Technical Specifications". */
typedef struct architecture {
    const char *name; /* "sm_90a" */
    int major, minor;
    int shared_per_block, shared_per_multiprocessor, warps;
    bool specific; /* PTX of .target sm_90a runs, too */
} architecture;

/* A GPU whose attributes programs see: they choose grids, splits and tiles by them. */
typedef struct gpu_model {
    const char *name, *architecture;
    int multiprocessors, l2_KiB, bus_bits;
} gpu_model;

typedef struct driver {
    emu_device *device; /* NULL before cuInit() */
    const architecture *architecture;
    const gpu_model *model;
    uint64_t used;  /* bytes of device memory */
    uint64_t steps; /* warp instructions that all launches executed: the clock of events */
    uint64_t schedule, step_limit, sample,
        orders;       /* orders: the most runs of a launch in other orders, 0 for one run */
    CUresult failure; /* of a kernel that was stopped: all later work fails with it until the context is destroyed */
} driver;

/* Take the lock. CUDA_SUCCESS, or why no call can do anything: cuInit() was not called, or this is the child of a fork
 * of a process that had called it. The lock is taken in each case. */
CUresult driver_enter(void);
/* Release the lock; the status again. */
CUresult driver_leave(CUresult status);
/* driver_enter() for work on the device, which fails after a kernel was stopped there. */
CUresult driver_enter_work(void);
/* Between the two. */
driver *the_driver(void);
/* CUDA_ERROR_INVALID_DEVICE with a sentence for all but device 0. */
CUresult check_device(CUdevice device);

/* ---- notes.c ---- */

/* One sentence for the user, of this call: on stderr, and in the file of notes that emulated-gpu prints. */
void driver_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The findings of the last launch, each cause once. */
void note_findings(const emu_device *device, const char *kernel);
/* One finding, likewise. */
void note_finding_of(const emu_finding *finding, const char *kernel);

/* ---- watch.c ---- */

/* With EMULATED_GPU_COUNTERS=FILE: add a line of JSON about a launch to that file. */
void write_counts(const char *kernel, const emu_counters *counts, const emu_exploration *seen);

/* ---- modules ---- */

typedef struct CUmod_st driver_module;

struct CUfunc_st {
    driver_module *module;
    int entry;
    bool decoded, recorded; /* recorded: a recording has its parameters */
    int dynamic_shared;     /* bytes that a launch may ask for */
    int cluster[3], must_cluster;
    struct launch_by_steps *steps; /* owned, NULL where nothing was set: see launch_by_steps.c */
};

struct CUmod_st {
    emu_module *module;
    char *text;
    struct CUfunc_st *functions; /* [entries] */
    int count, references;
    int id; /* in a recording */
};

/* PTX of an image, which is PTX, a fatbin or what nvcc wraps around one: ended by a zero byte. Owned: free(). NULL with
 * the sentence said where there is none; `status` then says how CUDA calls that. */
char *image_ptx(const void *image, CUresult *status);
/* Append a text to those of a module, which takes it over. False when out of memory. */
bool image_join(char **text, size_t *bytes, char *more);
/* From LZ4's block format; false where the bytes are none, or make more or fewer. */
bool image_expand(const uint8_t *from, size_t bytes, uint8_t *to, size_t wanted);

/* Decode a function's body: CUDA_ERROR_INVALID_PTX with the sentence said where that is refused. */
CUresult prepare_function(CUfunction function);

/* ---- memory ---- */

/* The host's bytes of a device address; NULL if some of them are not device memory. */
void *device_bytes(CUdeviceptr address, size_t bytes);
/* Find the memory of an address that may be the host's, as with unified addressing. */
void *any_bytes(CUdeviceptr address, size_t bytes);
/* The device address of memory that a copy names by this one; 0 where it is neither the device's nor pinned. */
uint64_t device_address(uint64_t address, size_t bytes);
/* cuMemAlloc and cuMemFree, between driver_enter() and driver_leave(). */
CUresult allocate_memory(CUdeviceptr *address, size_t bytes);
CUresult release_memory(CUdeviceptr address);
/* Address of the rows of an array, and their number in a plane; false for NULL. */
bool array_memory(CUarray array, uint64_t *address, size_t *pitch, size_t *rows);

/* True if these bytes are a whole allocation of device memory, whose bytes are uninitialized until something writes
 * them. */
bool is_uninitialized_whole(CUdeviceptr address, size_t bytes);

/* ---- operations ---- */

typedef struct kernel_launch {
    CUfunction function;
    uint32_t grid[3], block[3], cluster[3], dynamic_shared;
    bool overlaps;       /* by programmatic stream serialization */
    uint8_t *parameters; /* owned */
    void **pointers;     /* to each of them, owned; NULL until a program asks for them */
} kernel_launch;

typedef struct memory_set {
    CUdeviceptr address;
    size_t pitch, width, height; /* width in elements */
    unsigned value, element;     /* bytes of an element: 1, 2 or 4 */
} memory_set;

typedef enum operation_kind {
    DO_NOTHING,
    DO_KERNEL,
    DO_COPY,
    DO_SET,
    DO_HOST,
    DO_GRAPH,
    DO_RECORD,
    DO_WAIT
} operation_kind;

/* Operation of a stream or of a graph node. */
typedef struct operation {
    operation_kind kind;
    kernel_launch kernel;
    CUDA_MEMCPY3D copy;
    memory_set set;
    CUDA_HOST_NODE_PARAMS host;
    CUgraph graph; /* owned */
    CUevent event;
} operation;

CUresult run_operation(const operation *o);
CUresult copy_operation(const operation *from, operation *to);
void free_operation(operation *o);

/* Fill an operation; errors as of the functions of CUDA that do it. */
CUresult fill_kernel(operation *o, CUfunction function, const unsigned grid[3], const unsigned block[3],
                     unsigned dynamic_shared, void **parameters, void **extra);
CUresult fill_kernel_node(operation *o, const CUDA_KERNEL_NODE_PARAMS *parameters);
/* Set an attribute of a launch; those that change no result are ignored. */
CUresult apply_attribute(operation *o, const CUlaunchAttribute *attribute);
CUresult fill_set(operation *o, CUdeviceptr address, size_t pitch, unsigned value, unsigned element, size_t width,
                  size_t height);
/* Run it now, as the next of a stream. */
CUresult run_on_stream(CUstream stream, const operation *o);
/* Put it on a stream, which takes it over: run it, or make it a node of the graph that the stream is captured into. */
CUresult submit(CUstream stream, operation *o);

/* ---- streams and graphs ---- */

typedef struct node_list {
    CUgraphNode *nodes; /* owned, the nodes borrowed */
    size_t count, capacity;
} node_list;
bool list_add(node_list *list, CUgraphNode node);

/* The last operation of each lane that happened before, see overlap.c; owned. */
typedef struct order_clock {
    uint64_t *times;
    unsigned count;
} order_clock;

struct CUstream_st {
    unsigned flags;
    int priority;
    unsigned long long id;
    unsigned lane;    /* 0 before its first operation */
    CUgraph captured; /* owned until cuStreamEndCapture(); NULL where nothing is captured */
    bool joined;      /* by an event: the capture is another stream's */
    unsigned long long capture_id;
    node_list last; /* what the next node of the capture depends on */
    CUstream next;
};

struct CUevent_st {
    unsigned flags;
    unsigned long long id; /* in a recording */
    bool recorded;
    uint64_t steps; /* of the driver when it was recorded */
    order_clock clock;
    CUgraph captured;
    unsigned long long capture_id;
    node_list last;
};

/* A stream by its handle, of which three are numbers; NULL where there is none. */
CUstream find_stream(CUstream handle);

CUresult new_graph(CUgraph *graph);
void delete_graph(CUgraph graph);
/* A node that depends on others; the graph takes the operation over. */
CUresult add_node(CUgraph graph, const CUgraphNode *needs, size_t count, operation *o, CUgraphNode *node);
CUresult run_graph(CUgraph graph);
/* True if a node is one of these, or one that they depend on. */
bool comes_before(CUgraphNode node, const node_list *last);
CUresult copy_graph(CUgraph from, CUgraph *to);

/* ---- overlap.c: what happens before what ---- */

/* There is more than the legacy stream, or a graph branches: kernels from now on are compared. A stream is destroyed.
 */
void overlap_streams_exist(void);
void overlap_stream_ends(CUstream stream);
bool overlap_is_watched(void);
/* The operation that follows is of this stream. */
void overlap_enter(CUstream stream);
/* It has these accesses: note races with what may overlap it. The footprint is taken over, and may be NULL. */
void overlap_note(emu_footprint *footprint, const char *name);
/* Copy the clock of the running operation. A stream waits for such a clock, or for all work enqueued so far. */
void overlap_snapshot(order_clock *clock);
void overlap_wait(CUstream stream, const order_clock *clock);
void overlap_wait_for_all(CUstream stream);
void free_clock(order_clock *clock);
/* The host waits: for a clock, a stream, the operation at work, or all of them. */
void overlap_host_waits(const order_clock *clock);
void overlap_host_waits_for_stream(CUstream stream);
void overlap_host_waits_for_current(void);
void overlap_host_waits_for_all(void);
/* Branches of a graph: the lane at work; a new one, which happens after nothing; what follows is of a lane; it happens
 * after a clock; a branch has ended. */
unsigned overlap_current(void);
unsigned overlap_branch(void);
void overlap_continue(unsigned lane);
void overlap_join(const order_clock *clock);
void overlap_branch_ends(unsigned lane);

/* ---- record.c: with EMULATED_GPU_RECORD=FILE, what reaches the device; else these functions do nothing ---- */

bool is_recording(void);
/* Find what the host changed in memory that it shares with the device; forget what an operation changed there. */
void record_shared_changes(void);
void forget_shared_changes(void);
void record_allocation(CUdeviceptr address, size_t bytes, int kind);
void record_release(CUdeviceptr address);
void record_write(CUdeviceptr to, const void *data, size_t bytes);
/* A copy of bytes, which the host finds at `data`; each side may be the host's. */
void record_copy(CUdeviceptr to, CUdeviceptr from, const void *data, size_t bytes);
void record_set(const memory_set *s);
void record_module(CUmodule module);
void record_unload(CUmodule module);
/* Something that no recording can hold. */
void record_refused(const char *sentence);
void record_launch(const kernel_launch *k);
/* The stream of what follows; an event is recorded there ("event"), or waited for ("wait"). */
void record_stream(uint64_t id);
void record_event(const char *kind, uint64_t id);
void record_host_function(void);
/* A race of the operation that was recorded last with one of another stream. */
void record_race(const char *name, const char *message);

/* Arguments of cuTensorMapEncodeTiled. */
typedef struct tensor_map_request {
    CUtensorMapDataType type;
    unsigned rank;
    const void *address;
    const cuuint64_t *sizes, *strides;
    const cuuint32_t *box;
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
    CUtensorMapFloatOOBfill fill;
} tensor_map_request;
void record_tensor_map(const CUtensorMap *map, const tensor_map_request *request);

#endif
