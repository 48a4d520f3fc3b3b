/* replay.h - runs the records of a recording on a GPU, or on the emulator.
 *
 *     replay r;
 *     bool done = replay_start(&r, &recorded, &cuda, poison) && replay_setup(&r) && replay_call(&r);
 *     if (!done) puts(r.error);
 *     replay_free(&r);
 *
 * Nothing that a recording says is believed: every range of memory must lie in memory that the recording allocated.
 */
#ifndef FL_JUDGE_REPLAY_H
#define FL_JUDGE_REPLAY_H

#include "driver_api.h"
#include "recording.h"

/* The exit status of judge-replay, too. */
typedef enum replay_status {
    REPLAYED = 0,
    REPLAY_USAGE = 2,
    REPLAY_MALFORMED = 3, /* the recording is none, or its numbers make no sense */
    REPLAY_REFUSED = 4,   /* the driver refused an operation */
    REPLAY_STOPPED = 5,   /* a kernel was stopped */
    REPLAY_NO_MEMORY = 6, /* out of memory, or a file could not be written */
} replay_status;

/* Memory of a recording; the first four are the numbers that a recording has for them. */
typedef enum memory_kind {
    MEMORY_DEVICE = 1,
    MEMORY_PINNED,
    MEMORY_MANAGED,
    MEMORY_REGISTERED,
    MEMORY_VARIABLE
} memory_kind;

typedef struct memory {
    uint64_t address, bytes; /* as the recording has them */
    memory_kind kind;
    bool live, in_call;                  /* in_call: the call allocated it */
    void *host;                          /* owned, of registered and pinned memory */
    uint64_t module;                     /* of a variable */
    char *name;                          /* of a variable, owned */
    CUdeviceptr there;                   /* its address on this device */
    uint8_t *before;                     /* owned: its bytes before the call, NULL where nobody asks */
    CUmemGenericAllocationHandle handle; /* on a GPU, as the next */
    size_t mapped, reserved;             /* bytes of whole pages, and of addresses */
} memory;

/* A tensor map as the emulator made it for the recording, and as this driver makes it. */
typedef struct moved_map {
    uint8_t recorded[sizeof(CUtensorMap)], made[sizeof(CUtensorMap)];
} moved_map;

typedef struct loaded_module {
    uint64_t id;
    CUmodule module; /* NULL after it was unloaded */
} loaded_module;

/* What was found at some bytes of memory, and the first of them. */
typedef struct observation {
    memory of; /* a copy without what it owns; the name is borrowed from the replay */
    uint64_t bytes, first;
} observation;

/* Machine code that a GPU runs in place of the PTX of a module. */
typedef struct module_cubin {
    uint64_t id;
    const void *data; /* borrowed */
} module_cubin;

typedef struct replay {
    const recording *recorded;
    const driver_api *cuda;
    uint32_t poison; /* four bytes that repeat from the first byte of each memory on */
    memory *memories;
    size_t memory_count;
    loaded_module *modules;
    size_t module_count;
    const module_cubin *cubins; /* borrowed */
    size_t cubin_count;
    moved_map *maps;
    size_t map_count;
    uint64_t allocated;  /* bytes that are live */
    bool in_call, keeps; /* keeps: what the call frees stays, as it runs again */
    bool is_timed;       /* its operations are queued: nothing waits for the host */
    CUstream stream;     /* of all work; NULL: the legacy default stream */
    CUdeviceptr *staged; /* owned: for each record of the call, where the bytes of a write are on the device */
    uint64_t launches, host_functions, host_reads; /* of the last call */
    const record **launched;                       /* [launches] borrowed */
    observation *unset;                            /* [unset_count] new memory of the call that it read first */
    size_t unset_count;
    replay_status status;
    char error[400];
    char device[100];
} replay;

bool replay_start(replay *r, const recording *recorded, const driver_api *cuda, uint32_t poison);
/* Everything before the call; then the call. */
bool replay_setup(replay *r);
bool replay_call(replay *r);
/* Make the call ready to run again without the host: on a stream of its own. */
bool replay_prepare_again(replay *r);
/* Queue the operations of the call on that stream. */
bool replay_again(replay *r);
void replay_free(replay *r);
/* Fail with a sentence: returns false. */
bool replay_fail(replay *r, replay_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* False, as after replay_fail(), for all but CUDA_SUCCESS. */
bool replay_check(replay *r, CUresult result, const char *of);
/* The live memory that holds a range; NULL where there is none. */
memory *replay_find(replay *r, uint64_t address, uint64_t bytes);
/* Where a range of such memory is on this device. */
CUdeviceptr replay_address(const memory *m, uint64_t address);
bool replay_write(replay *r, uint64_t address, const void *data, uint64_t bytes);
bool replay_read(replay *r, uint64_t address, void *data, uint64_t bytes);
/* relocate.c: put the addresses and the tensor maps of this GPU into data of a recording. Nothing changes on the
 * emulator. */
void relocate(const replay *r, uint8_t *data, size_t bytes);
/* Where each parameter of a launch is in its block, for a function of this device: to `places`, which is owned. False
 * where the recording says nothing of the kernel, or says what does not fit the function. */
bool relocate_parameters(const replay *r, const record *launch, const char *name, CUfunction function, uint8_t *block,
                         void ***places);
bool relocate_tensor_map(replay *r, const record *at);
/* Fill memory as if nothing had written it. */
bool replay_poison(replay *r, const memory *m, uint64_t address, uint64_t bytes);

#endif
