/* launches.c - races between a launch and the one before it, where the two may overlap (emu_launch.overlaps).
 *
 * A grid that is launched by programmatic stream serialization may begin before the grid before it has ended. Only
 * griddepcontrol.wait orders the two: for the thread that executes it, and for those that are ordered after it.
 */
#include "races.h"

#include <stdlib.h>
#include <string.h>

bool emu_launches_create(cta *m) {
    if (!m->launch->overlaps) return true;
    m->checks->grid_waits = calloc(m->warp_count, sizeof *m->checks->grid_waits);
    return m->checks->grid_waits != NULL;
}

void emu_launches_start_cta(cta *m) {
    if (m->checks->grid_waits) memset(m->checks->grid_waits, 0, m->warp_count * sizeof *m->checks->grid_waits);
}

void emu_launches_free(cta *m) {
    free(m->checks->grid_waits);
}

void emu_on_grid_wait(cta *m, warp *w, uint32_t mask) {
    if (!m->checks->grid_waits) return;
    grid_wait *own = &m->checks->grid_waits[w->index];
    if (!own->lanes) own->time = w->clock;
    own->lanes |= mask;
    emu_clock_tick(m, w);
}

/* True if a thread has waited, or is ordered after one of the cluster that has. */
static bool has_waited(const cta *m, const warp *w, int lane) {
    if (m->checks->grid_waits[w->index].lanes >> lane & 1) return true;
    for (uint32_t rank = 0; rank < m->cluster->count; rank++) {
        const grid_wait *waits = m->cluster->ctas[rank].checks->grid_waits;
        for (uint32_t k = 0; k < m->warp_count; k++) {
            if (!waits[k].lanes) continue;
            const uint32_t thread = k * LANES + (uint32_t)first_lane(waits[k].lanes);
            if (rank == m->rank ? ordered(m, w, lane, thread, waits[k].time)
                                : ordered_in_cluster(m, w, lane, rank, thread << WHO_THREAD_SHIFT, waits[k].time))
                return true;
        }
    }
    return false;
}

void emu_check_launch_before(cta *m, const warp *w, int lane, uint64_t address, uint32_t bytes, const char *verb) {
    if (!m->checks->grid_waits || !emu_written_by_last(m, address, bytes) || has_waited(m, w, lane)) return;
    char where[160];
    emu_describe_global(m, address, where, sizeof where);
    emu_report(m, EMU_RACE, UINT32_MAX, w, lane, -1, address,
               "A race in global memory at %s: this thread %s what the kernel launched before wrote, and the two may "
               "overlap (programmatic stream serialization).\n"
               "Execute griddepcontrol.wait (cudaGridDependencySynchronize()) first, in this thread or in one that a "
               "barrier orders before it.",
               where, verb);
}
