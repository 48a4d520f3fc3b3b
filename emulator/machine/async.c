/* async.c - cp.async: copies land as late as the program allows, when their thread waits for them.
 *
 * The bytes are read from global memory at that time too. Copies that no wait covers never land. An asynchronous arrive
 * on an mbarrier happens when no warp can run otherwise, and brings the copies issued before it by its lane.
 */
#include "machine.h"

#include <inttypes.h>
#include <string.h>

/* The source of a copy that takes fewer bytes than it writes: aligned like a whole one, and only those bytes are read.
 */
static const uint8_t *partial_source(cta *m, warp *w, uint64_t address, uint32_t bytes, uint32_t taken, int lane) {
    if (address & (bytes - 1)) return emu_translate(m, w, SPACE_GLOBAL, address, bytes, lane, "copies from");
    const uint8_t *from = emu_translate(m, w, SPACE_GLOBAL, address, 1, lane, "copies from");
    return from && emu_translate(m, w, SPACE_GLOBAL, address + taken - 1, 1, lane, "copies from") ? from : NULL;
}

static void add_source(warp *w, const uint8_t *from, uint32_t bytes) {
    if (!w->copies_begin || from < w->copies_begin) w->copies_begin = from;
    if (!w->copies_end || from + bytes > w->copies_end) w->copies_end = from + bytes;
}

void emu_exec_copy_async(cta *m, warp *w, const op *o, uint32_t mask) {
    uint64_t sources[LANES] = {0};
    uint32_t targets[LANES] = {0}, takes[LANES], whole = 0, noted = 0;
    async_copy *copies = cta_reserve(m, w->copies, w->copy_count + LANES, &w->copy_capacity, sizeof *copies);
    if (!copies) return;
    w->copies = copies;
    if (!w->copy_count) w->copies_begin = w->copies_end = NULL;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        takes[lane] = o->sources > 2 ? slot32(w, o->r[2])[lane] : o->bytes;
        if (takes[lane] >= o->bytes) takes[lane] = o->bytes, whole |= 1u << lane;
        sources[lane] = emu_lane_address(w, o, 0, lane);
    }
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        const uint32_t taken = takes[lane];
        uint64_t base = o->detail ? slot64(w, o->r[1])[lane] : slot32(w, o->r[1])[lane];
        uint64_t target = relative_address(w, base + (uint64_t)(int64_t)o->target);
        targets[lane] = (uint32_t)target;
        const uint8_t *from = NULL;
        /* with no bytes taken the address may be anything */
        if (taken == o->bytes)
            from = emu_translate(m, w, SPACE_GLOBAL, sources[lane], o->bytes, lane, "copies from");
        else if (taken)
            from = partial_source(m, w, sources[lane], o->bytes, taken, lane);
        if (!emu_translate(m, w, SPACE_SHARED, target, o->bytes, lane, "copies to") || (taken && !from)) continue;
        if (m->checks && !(noted >> lane & 1)) noted |= emu_on_lanes_read(m, w, lane, whole, sources, o->bytes, o);
        if (m->checks)
            emu_on_copy_issue(m, w, lane, targets[lane], o->bytes, sources[lane], from, taken, noted >> lane & 1);
        if (taken) add_source(w, from, taken);
        if (taken) __builtin_prefetch(from);
        w->copies[w->copy_count++] = (async_copy){from,           targets[lane], w->commits[lane], w->copy_serial++,
                                                  o->instruction, (uint8_t)lane, o->bytes,         (uint8_t)taken};
    }
    /* the write to shared memory and the read from global memory are both counted, at the instruction that asks */
    uint64_t bytes = m->counts[o->instruction].bytes;
    emu_count_global(m, o, sources, o->bytes, mask);
    emu_count_shared(m, o, targets, o->bytes, mask);
    m->counts[o->instruction].bytes = bytes + (uint64_t)population(mask) * o->bytes;
    m->counts[o->instruction].requests--;
}

static void land(cta *m, warp *w, const async_copy *copy, uint32_t stamp, unsigned by) {
    uint8_t *to = m->shared + (copy->target - m->shared_base);
    m->changes++;
    if (copy->source_bytes == 16) {
        memcpy(to, copy->source, 16); /* of a size that compilers know */
    } else {
        if (copy->source_bytes) memcpy(to, copy->source, copy->source_bytes);
        memset(to + copy->source_bytes, 0, (size_t)(copy->bytes - copy->source_bytes));
    }
    if (m->checks) emu_on_copy_complete(m, w, copy, stamp, by);
}

/* The clock of a copy that a wait lets land: where an arrive on an mbarrier is under way that brings it, the arrive's.
 * A thread that observes the arrival may read the copy, whether or not the copying thread has waited for it. */
static uint32_t landing_stamp(const warp *w, const async_copy *copy) {
    for (size_t i = 0; i < w->arrive_count; i++)
        if (w->arrives[i].lane == copy->lane && copy->serial < w->arrives[i].serial) return w->arrives[i].stamp;
    return w->clock;
}

void emu_exec_copy_commit(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m, (void)o;
    for (int i = 0; i < LANES; i++) w->commits[i] += mask >> i & 1;
}

void emu_exec_copy_wait(cta *m, warp *w, const op *o, uint32_t mask) {
    size_t kept = 0;
    for (size_t i = 0; i < w->copy_count; i++) {
        const async_copy *copy = &w->copies[i];
        bool mine = mask >> copy->lane & 1;
        /* groups that may stay in flight: the last `immediate` committed; wait_all takes what is not committed too */
        bool done = o->immediate < 0 || (int64_t)copy->group < (int64_t)w->commits[copy->lane] - o->immediate;
        if (mine && done)
            land(m, w, copy, landing_stamp(w, copy), 0);
        else
            w->copies[kept++] = *copy;
    }
    w->copy_count = kept;
    if (m->checks) emu_on_copy_wait(m, w, mask);
}

/* ---- cp.async.mbarrier.arrive ---- */

void emu_exec_copy_arrive(cta *m, warp *w, const op *o, uint32_t mask) {
    for (; mask; mask &= mask - 1) {
        int lane = first_lane(mask);
        uint64_t address = emu_lane_address(w, o, 0, lane);
        if (o->space == SPACE_GENERIC) address -= SHARED_WINDOW;
        mbarrier *bar = emu_find_mbarrier(m, (uint32_t)address);
        if (!bar) {
            emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, w, lane, -1, address,
                       "There is no mbarrier at 0x%" PRIx64 ": mbarrier.init must come first.", address);
            continue;
        }
        async_arrive *arrives = cta_reserve(m, w->arrives, w->arrive_count + 1, &w->arrive_capacity, sizeof *arrives);
        if (!arrives) return;
        w->arrives = arrives;
        if (o->detail) bar->pending++;
        if (m->checks) emu_on_copy_arrive_issue(m, w, lane, bar);
        w->arrives[w->arrive_count++] =
            (async_arrive){(uint32_t)address, o->instruction, w->copy_serial, w->clock, (uint8_t)lane, o->detail};
    }
    if (m->checks) emu_on_epoch(m, w);
}

bool emu_land_next_arrive(cta *m, warp *w) {
    if (!w->arrive_count) return false;
    async_arrive arrive = w->arrives[0];
    memmove(w->arrives, w->arrives + 1, --w->arrive_count * sizeof *w->arrives);
    mbarrier *bar = emu_find_mbarrier(m, arrive.address);
    const unsigned by = m->checks ? emu_on_copies_complete(m, w, bar, &arrive) : 0;
    size_t kept = 0;
    for (size_t i = 0; i < w->copy_count; i++) {
        const async_copy *copy = &w->copies[i];
        if (copy->lane == arrive.lane && copy->serial < arrive.serial)
            land(m, w, copy, arrive.stamp, by);
        else
            w->copies[kept++] = *copy;
    }
    w->copy_count = kept;
    if (!bar) return true;
    m->here = arrive.instruction;
    if (m->checks) emu_on_copy_arrive(m, w, bar, &arrive);
    emu_mbarrier_arrive(m, bar, 1);
    return true;
}
