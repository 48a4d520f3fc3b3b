/* stamp.h - what stamp_clocks writes and the harness reads: one stamp for each SM.
 *
 *     double hz = 1e9 * (double)(after.cycles - before.cycles) / (double)(after.ns - before.ns);
 *
 * Both must carry the epoch of the sample.
 */
#ifndef FL_STAMP_H
#define FL_STAMP_H

#include <stdint.h>

enum { MAX_STAMPS = 512 }; /* SMs */

typedef struct clock_stamp {
    uint64_t epoch;  /* number of the sample */
    uint64_t cycles; /* of the SM's clock */
    uint64_t ns;     /* of the GPU's global timer, which ticks in steps of up to a microsecond */
} clock_stamp;

#endif
