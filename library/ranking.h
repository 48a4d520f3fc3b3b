/* ranking.h - the kernels by measured speed, for each compute capability, head size and mask.
 *
 * Made by `python3 -m analysis ladder --write` from logs/general/, logs/bench/ and the code hashes in regs/; edits here
 * are lost. make embeds these, unless VER names others:
 * embedded: attention/decode attention/fp8 attention/mma_sync attention/wgmma
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
     "v37 attention/wgmma v36 v35 v33 v34 v32 v31 v30 v29 v28 v27 v26 v25 "
     "attention/mma_sync v20 v23 v24 v19 v22 v21 v17 v18 v16 v10 v11 v12 v15 v09 v14 "
     "v13 v08 v06 v07 v03 v04 v05 v02 v01 v00b v00a v00"},
    {9, 0, 128, true,
     "attention/wgmma attention/mma_sync"},
    {9, 0, 256, false,
     "attention/wgmma attention/mma_sync"},
    {9, 0, 256, true,
     "attention/wgmma attention/mma_sync"},
};
/* clang-format on */

#endif
