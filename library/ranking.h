/* ranking.h - the kernels by measured speed, for each compute capability, head size and mask.
 *
 * Made by `python3 -m analysis ladder --write` from logs/general/, logs/bench/ and the code hashes in regs/; edits here
 * are lost.
 */
#ifndef FL_LIBRARY_RANKING_H
#define FL_LIBRARY_RANKING_H

#include <stdbool.h>

struct ranking {
    int major, minor, d_head;
    bool causal;
    const char *versions; /* the fastest first */
};

/* clang-format off */
static const struct ranking RANKINGS[] = {
    {9, 0, 64, false,
     "attention/wgmma attention/mma_sync"},
    {9, 0, 64, true,
     "attention/wgmma attention/mma_sync"},
    {9, 0, 128, false,
     "attention/wgmma attention/mma_sync"},
    {9, 0, 128, true,
     "attention/wgmma attention/mma_sync"},
    {9, 0, 256, false,
     "attention/wgmma attention/mma_sync"},
    {9, 0, 256, true,
     "attention/wgmma attention/mma_sync"},
};
/* clang-format on */

#endif
