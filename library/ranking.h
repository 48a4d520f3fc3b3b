/* ranking.h - the versions by measured speed, for each compute capability, head size and mask.
 *
 * Made by `python3 -m analysis ladder --write` from logs/general/ and logs/bench/; edits here are lost.
 */
#ifndef FL_LIBRARY_RANKING_H
#define FL_LIBRARY_RANKING_H

#include <stdbool.h>

struct ranking {
    int major, minor, d_head;
    bool causal;
    const char *versions; /* fastest first */
};

static const struct ranking RANKINGS[] = {
    {9, 0, 128, false, "v42 v43 v44 v46 v41 v38"},
    {9, 0, 128, true, "v46 v44 v43 v41"},
};

#endif
