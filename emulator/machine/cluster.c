/* cluster.c - what the CTAs of a cluster share: addresses in each other's shared memory, and a barrier.
 *
 * A shared address holds the rank of its CTA from bit 24 on, in every CTA of a cluster, as on a GPU: so a program may
 * compute the address of a peer (`address ^ 1 << 24`) or of the first CTA of a pair (`address & 0xfeffffff`). The bits
 * below are the address in that CTA. Inside the machine addresses are relative to the CTA that uses them: see
 * relative_address().
 */
#include "machine.h"

#include <inttypes.h>
#include <string.h>

static const uint32_t LOCAL_PART = (1u << CTA_SHIFT) - 1;

/* ---- addresses ---- */

static uint64_t rank_in(const cta *m, uint64_t address) {
    return address >> CTA_SHIFT ^ m->rank;
}

cta *emu_owner(cta *m, uint64_t address, uint32_t *local) {
    *local = (uint32_t)address & LOCAL_PART;
    if (!(address >> CTA_SHIFT)) return m;
    const uint64_t rank = rank_in(m, address);
    return rank < m->cluster->count ? &m->cluster->ctas[rank] : NULL;
}

cta *emu_expect_owner(cta *m, const warp *w, int lane, uint64_t address, const char *verb, uint32_t *local) {
    cta *at = emu_owner(m, address, local);
    if (!at) {
        emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, lane, -1, address,
                   "This instruction %s shared memory at 0x%" PRIx64 ", of the CTA with rank %" PRIu64
                   ": the cluster has %u CTAs.\nmapa makes addresses of other CTAs.",
                   verb, address, rank_in(m, address), m->cluster->count);
    } else if (at->ended) {
        emu_report(m, EMU_CTA_EXITED, UINT32_MAX, w, lane, -1, address,
                   "This instruction %s shared memory at 0x%" PRIx64
                   " of the CTA with rank %u, all threads of which have ended.\n"
                   "A CTA must not end before the others are done with its memory: let all of them pass a "
                   "barrier.cluster first.",
                   verb, address, at->rank);
        return NULL;
    }
    return at;
}

/* An operand of mapa or getctarank; false after a report. */
static bool shared_address(cta *m, const warp *w, const op *o, int lane, uint64_t *address) {
    *address = o->bytes == 8 ? slot64(w, o->r[1])[lane] : slot32(w, o->r[1])[lane];
    if (o->space == SPACE_CLUSTER) return true;
    if (*address & SHARED_WINDOW) {
        *address -= SHARED_WINDOW;
        return true;
    }
    emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, lane, -1, *address,
               "The generic address 0x%" PRIx64 " is not one of shared memory.", *address);
    return false;
}

void emu_exec_map_address(cta *m, warp *w, const op *o, uint32_t mask) {
    for (; mask; mask &= mask - 1) {
        const int lane = first_lane(mask);
        const uint32_t rank = slot32(w, o->r[2])[lane];
        uint64_t address;
        if (!shared_address(m, w, o, lane, &address)) continue;
        if (rank >= m->cluster->count) {
            emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, lane, -1, address,
                       "mapa names the CTA of rank %u, and the cluster has %u CTAs.", rank, m->cluster->count);
            continue;
        }
        address = (address & LOCAL_PART) | rank << CTA_SHIFT;
        if (o->space == SPACE_GENERIC) address |= SHARED_WINDOW;
        if (o->bytes == 8)
            slot64(w, o->r[0])[lane] = address;
        else
            slot32(w, o->r[0])[lane] = (uint32_t)address;
    }
}

void emu_exec_cta_rank(cta *m, warp *w, const op *o, uint32_t mask) {
    for (; mask; mask &= mask - 1) {
        const int lane = first_lane(mask);
        uint64_t address;
        if (shared_address(m, w, o, lane, &address)) slot32(w, o->r[0])[lane] = (uint32_t)(address >> CTA_SHIFT);
    }
}

/* ---- the barrier ---- */

/* All threads that have not ended have arrived: those that wait continue. */
static void complete_if_all_arrived(cluster *c) {
    uint32_t arrived = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        const cta *m = &c->ctas[i];
        for (uint32_t k = 0; k < m->warp_count; k++) {
            const warp *w = &m->warps[k];
            if (w->state != WARP_DONE && live_lanes(w) & ~w->cluster_arrived) return;
            arrived |= w->cluster_arrived;
        }
    }
    if (!arrived) return;
    c->phase++;
    if (c->ctas->checks) emu_on_cluster_complete(c);
    for (uint32_t i = 0; i < c->count; i++) {
        cta *m = &c->ctas[i];
        m->changes++;
        m->vain_polls = 0;
        for (uint32_t k = 0; k < m->warp_count; k++) {
            m->warps[k].cluster_arrived = 0;
            if (m->warps[k].state == WARP_AT_CLUSTER) m->warps[k].state = WARP_READY;
        }
    }
}

void emu_cluster_after_exit(cta *m) {
    if (m->code->uses_cluster) complete_if_all_arrived(m->cluster);
}

static void arrive(cta *m, warp *w, const op *o, uint32_t mask) {
    cluster *c = m->cluster;
    if (w->cluster_arrived & mask || (w->cluster_waits && w->cluster_phase != c->phase)) {
        emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, w, first_lane(mask), -1, 0,
                   "This thread arrives at the barrier of the cluster a second time without barrier.cluster.wait in "
                   "between.");
        return;
    }
    w->cluster_arrived |= mask;
    w->cluster_phase = c->phase;
    w->cluster_waits = true;
    if (m->checks) emu_on_cluster_arrive(m, w, mask, o->detail == CLUSTER_ARRIVE_RELAXED);
    complete_if_all_arrived(c);
}

void emu_exec_cluster_barrier(cta *m, warp *w, const op *o, uint32_t mask) {
    if (!o->vector && mask != live_lanes(w)) {
        emu_report_divergent(m, w, live_lanes(w), mask);
        m->faulted = true;
        return;
    }
    if (o->detail != CLUSTER_WAIT) {
        arrive(m, w, o, mask);
        return;
    }
    if (!w->cluster_waits) {
        emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, w, first_lane(mask), -1, 0,
                   "This thread waits at the barrier of the cluster without barrier.cluster.arrive before it.");
        return;
    }
    if (w->cluster_phase == m->cluster->phase) {
        emu_try_again(m, w, o, mask);
        w->state = WARP_AT_CLUSTER;
        return;
    }
    w->cluster_waits = false;
    if (m->checks) emu_on_cluster_wait(m, w, mask);
}
