/* wgmma_peak.h - what the kernels of wgmma_peak.cu write and peak.c reads: one result for each CTA.
 *
 *     double cycles = (double)result.cycles / (double)(result.wgmma * warpgroups);
 */
#ifndef FL_WGMMA_PEAK_H
#define FL_WGMMA_PEAK_H

#include <stdint.h>

/* The instruction of a further warpgroup that runs concurrently with wgmma. */
enum wgmma_companion {
    COMPANION_NOTHING,
    COMPANION_EX2,
    COMPANION_FMA,
    COMPANION_ADD,
    COMPANION_MAX,
    COMPANION_PACK,
    N_COMPANIONS
};

enum { WGMMA_PER_ITERATION = 8, COMPANION_PER_ROUND = 2048, WGMMA_MOST_THREADS = 384 };

typedef struct wgmma_result {
    uint64_t cycles, ns;         /* from the first wgmma of a warpgroup to the end of its last one */
    uint64_t wgmma;              /* of this warpgroup */
    uint64_t own_cycles, others; /* of one warp of the further warpgroup, and its instructions */
} wgmma_result;

#endif
