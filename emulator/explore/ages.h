/* ages.h - how long ago something was, and whether it still matters: for state.c, and for what keeps times.
 *
 *     if (!age_since(&now, now.known[thread], stamp)) puts("all warps know of it");
 *
 * Times are counted back from now, as only their order matters. An event that happens before all warps has no age,
 * because each check passes it. Events before the CTA's first transition are the same in all runs.
 */
#ifndef FL_EMU_AGES_H
#define FL_EMU_AGES_H

#include "../check/cells.h"

typedef struct ages {
    uint32_t now, first;
    uint32_t known[MAX_WARPS * LANES + MOST_ENGINES]; /* by index in a row of clocks: up to when all warps know it */
    uint32_t actors[MAX_WARPS];                       /* of synchronization by a warp, likewise */
} ages;

static inline uint64_t age_since(const ages *a, uint32_t known, uint32_t stamp) {
    enum { EARLY = 1, LATE, MARKED };
    if (stamp >= TIME_REMOTE) return (uint64_t)MARKED << 32 | stamp;
    if (stamp <= known) return 0;
    return stamp <= a->first ? (uint64_t)EARLY << 32 | stamp : (uint64_t)LATE << 32 | (a->now - stamp);
}

/* orders.c: what is kept of mbarriers and barriers. */
void emu_add_orders(const cta *m, const ages *a, uint64_t *sum);

#endif
