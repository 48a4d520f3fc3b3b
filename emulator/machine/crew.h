/* crew.h - one launch at work: what those share that run it, and device.c, which collects what it leaves. */
#ifndef FL_EMU_CREW_H
#define FL_EMU_CREW_H

#include "machine.h"

typedef struct crew {
    long threads; /* of the host */
    emu_device *device;
    const emu_module *module;
    const entry *code;
    const emu_launch *launch;
    uint32_t cluster[3]; /* CTAs of a cluster */
    uint64_t cta_total, cluster_total;
    uint64_t turns;                             /* clusters to run: all, or those of a sample */
    _Atomic uint64_t next_cluster, first_fault; /* first_fault: smallest cluster that could not continue */
    char **outputs;                             /* of each CTA that printed */
    ignored_list ignored;
    struct races *races;         /* NULL without checks */
    explorer *explorer;          /* NULL for a run in one order */
    bool unfinished;             /* the explorer has left this run before its end */
    bool is_explicit;            /* the launch or the entry names clusters */
    bool polls, in_turns;        /* the program polls memory; its CTAs tell each other, and run in turns */
    bool only_draws;             /* they communicate by relaxed atomics, perhaps with fences */
    struct stale_values *stale;  /* owned; NULL unless the launch or an explorer asks for it */
    struct lookahead *lookahead; /* then, on more than one thread of the host */
} crew;

/* Rounds in which whatever can run polls, and no store changes memory. */
typedef struct quiet {
    uint64_t changes, begin, checked; /* changes of memory before, and warp instructions */
} quiet;

typedef struct worker {
    crew *crew;
    cluster cluster;
    bool runs;          /* a cluster that is resident, where clusters run in turns */
    bool drew;          /* a ticket, in its last turn */
    bool begun;         /* its next turn runs before it has come */
    bool is_early;      /* likewise, and it is its first */
    quiet before;       /* its last turn that has begun */
    uint64_t polled_at; /* 1 + the changes of memory when it had polled in vain; 0 where it can continue */
} worker;

/* cta.c: the CTAs of a worker, which run one cluster after another; false when out of memory. */
bool emu_hire(crew *c, worker *self);
void emu_free_cluster(cluster *c);
void emu_start_cluster(cluster *c, uint64_t index);
void emu_end_cluster(crew *c, cluster *ended);
/* State of any of its CTAs. */
bool emu_has_faulted(const cluster *c);
bool emu_is_out_of_memory(const cluster *c);
/* Progress of its CTAs. */
quiet emu_progress_of(const cluster *c);

/* launch.c: emu_run() in an order that an explorer chooses, NULL for none */
emu_status emu_run_with(emu_device *device, const emu_module *module, const emu_launch *launch, explorer *explorer,
                        emu_error *error);

/* device.c; false when out of memory */
void emu_free_findings(emu_device *device);
bool emu_merge_findings(crew *c, worker *workers, int count);
void emu_merge_counts(crew *c, worker *workers, int count);
/* With checks a record for each granule of an output; emu_finish_outputs() reports what was not written exactly once.
 */
bool emu_prepare_outputs(emu_device *device, bool checks);
bool emu_finish_outputs(crew *c);

#endif
