/* cells.h - what the checks of a CTA's own shared memory (shadow.c) and of a cluster's have in common.
 *
 *     const uint32_t who = pack_who(m, w, lane);
 */
#ifndef FL_EMU_CELLS_H
#define FL_EMU_CELLS_H

#include "checks.h"

enum { WHO_THREAD_SHIFT = 20, WHO_INSTRUCTIONS = 1 << 20 };

static inline uint32_t pack_who(const cta *m, const warp *w, int lane) {
    return (m->here & (WHO_INSTRUCTIONS - 1)) | (uint32_t)(w->index * LANES + lane) << WHO_THREAD_SHIFT;
}
static inline uint32_t who_thread(uint32_t who) {
    return who >> WHO_THREAD_SHIFT & 1023;
}
static inline uint32_t who_instruction(uint32_t who) {
    return who & (WHO_INSTRUCTIONS - 1);
}

/* ---- clocks ---- */

/* A lane's vector clock over every thread. As long as all lanes of a warp know the same, it stands in the row of lane
 * 0. */
static inline uint32_t *row_of(const cta *m, const warp *w, int lane) {
    return m->checks->clocks + (size_t)(w->index * LANES + (w->together ? 0 : lane)) * m->checks->clock_width;
}

/* A row continues with what the lane knows of the engines: of bulk copies that have landed, by mbarrier; of cp.async
 * that have, by warp; how far each warp has come, which says nothing of its data; and with tcgen05 of the jobs of
 * each warp. In a cluster it continues with
 * each warp of each CTA, then with the engines of each. */
enum {
    LANDINGS = 32,
    MOST_ENGINES = LANDINGS + 3 * MAX_WARPS,
    MOST_TAIL = MAX_CLUSTER * (MAX_WARPS + MOST_ENGINES),
    MOST_CLOCKS = MAX_WARPS * LANES + MOST_ENGINES + MOST_TAIL
};
static inline uint32_t clock_of_copies(const cta *m, uint32_t warp) {
    return m->warp_count * LANES + LANDINGS + warp;
}
static inline uint32_t clock_of_progress(const cta *m, uint32_t warp) {
    return m->warp_count * LANES + LANDINGS + m->warp_count + warp;
}
static inline uint32_t *tail_of(const cta *m, uint32_t *row) {
    return row + m->warp_count * LANES + m->checks->engines;
}

static inline uint32_t tail_count(const cta *m) {
    return m->checks->clock_width - m->warp_count * LANES - m->checks->engines;
}

/* In a tail, the engines of the CTA of some rank. */
static inline uint32_t *engines_of(const cta *m, uint32_t *tail, uint32_t rank) {
    return tail + m->cluster->count * m->warp_count + rank * m->checks->engines;
}

/* A lane's vector clock over the async proxies of a CTA in the cluster. */
static inline const uint32_t *known_engines(const cta *m, const warp *w, int lane, const cta *at) {
    uint32_t *row = row_of(m, w, lane);
    return at == m ? row + m->warp_count * LANES : engines_of(m, tail_of(m, row), at->rank);
}

/* True if an access of a thread of this CTA lies before what an observer does now. */
static inline bool ordered(const cta *m, const warp *w, int lane, uint32_t other_thread, uint32_t stamp) {
    uint32_t thread = (uint32_t)(w->index * LANES + lane);
    if (stamp <= m->checks->base || thread == other_thread) return true;
    if (other_thread / LANES == (uint32_t)w->index && stamp <= w->synced) return true;
    return m->checks->clocks && row_of(m, w, lane)[other_thread] >= stamp;
}

/* The clock of a thread in the CTA of some rank. */
static inline bool ordered_in_cluster(const cta *m, const warp *w, int lane, uint32_t rank, uint32_t who,
                                      uint32_t stamp) {
    if (rank == m->rank) return ordered(m, w, lane, who_thread(who), stamp);
    return tail_of(m, row_of(m, w, lane))[rank * m->warp_count + who_thread(who) / LANES] >= stamp;
}

/* The vector clock of a thread at its last fence.proxy.async for global or for shared memory: over the threads of its
 * CTA, then, in a cluster, over all warps. All lanes of a warp may share one row; the entry for the thread itself is
 * then older than its time in proxy_fences. */
static inline uint32_t *known_at_fence(const cta *m, uint32_t thread, bool global) {
    const size_t threads = (size_t)m->warp_count * LANES;
    if (m->checks->fenced_together[global] >> thread / LANES & 1) thread -= thread % LANES;
    return m->checks->fence_knows + (global * threads + thread) * (threads + tail_count(m));
}

static inline void take_later(uint32_t *own, const uint32_t *clocks, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) own[i] = own[i] > clocks[i] ? own[i] : clocks[i];
}

/* ---- cells ---- */

static inline uint32_t first_cell(const cta *m, uint32_t address) {
    return (address - m->shared_base) >> m->checks->cell_shift;
}
static inline uint32_t last_cell(const cta *m, uint32_t address, uint32_t bytes) {
    return (address - m->shared_base + bytes - 1) >> m->checks->cell_shift;
}
/* Store in cells what their units keep of copies and products. Call it before anything else uses these cells. */
static inline void settle_cells(const cta *m, uint32_t first, uint32_t last) {
    const checks *const shadow = m->checks;
    if (!shadow->async_units) return;
    const uint32_t end = (((last + 1) << shadow->cell_shift) - 1) / ASYNC_UNIT;
    for (uint32_t i = (first << shadow->cell_shift) / ASYNC_UNIT; i <= end; i++)
        if (shadow->async_units[i].written.time | shadow->async_units[i].ended[0].time) emu_settle_unit(m, i);
}
/* Time of the last write of a cell, which its unit may keep. */
static inline uint32_t write_time(const cta *m, uint32_t index) {
    const checks *const shadow = m->checks;
    const async_unit *unit =
        shadow->async_units ? &shadow->async_units[(index << shadow->cell_shift) / ASYNC_UNIT] : NULL;
    return unit && unit->written.time ? unit->written.time : shadow->cells[index].write_time;
}
/* The last read of a cell by a warp, if the machine has clocks. */
static inline warp_read *read_by(const cta *m, uint32_t warp, uint32_t index) {
    return &m->checks->warp_reads[(size_t)warp * m->checks->cell_count + index];
}

enum write_kind { WRITE, UPDATE, UPDATE_AND_ASK /* and something uses the result */ };

/* The bytes of an access that lie in a cell, by bit. */
static inline uint32_t bytes_in_cell(const cta *m, uint32_t address, uint32_t bytes, uint32_t cell_address) {
    uint32_t of_cell = (1u << (1u << m->checks->cell_shift)) - 1, whole = (1u << bytes) - 1;
    return whole & (cell_address < address ? of_cell >> (address - cell_address) : of_cell << (cell_address - address));
}

/* Adds a word to a hash. */
static inline void add_word(uint64_t *sum, uint64_t word) {
    *sum = (*sum ^ word) * 0x9e3779b97f4a7c15ull;
    *sum ^= *sum >> 29;
}

/* shadow.c: the clock of what lands at an mbarrier, and its time now: who waits for the phase knows it. */
unsigned emu_landing_of(const cta *m, const mbarrier *bar);
uint32_t emu_engine_ticks(cta *m, mbarrier *bar);

/* cluster.c: what a warp knew at its last fence, to clocks of another CTA. */
void emu_remote_tell_fenced(const warp *w, const cta *at, uint32_t *clocks);

/* remote.c: the room for a cluster's clocks; false when out of memory. */
bool emu_cluster_create(cta *m);
void emu_cluster_start_cta(cta *m);
void emu_cluster_free(cta *m);
/* Another CTA touches the memory of one for the first time; false when out of memory. */
bool emu_make_remote_cells(cta *m, cta *at);
/* cluster.c: a thread uses the memory of another CTA, which must not end before it knows of that. */
void emu_remote_use(cta *m, const warp *w, int lane, cta *at);
/* The relation of a write or read of a cell by other CTAs to an access by this one. */
void emu_check_remote_writer(cta *m, const warp *w, int lane, cta *at, uint32_t index, const char *verb);
void emu_check_remote_readers(cta *m, const warp *w, int lane, cta *at, uint32_t index);
void emu_report_remote_race(cta *m, const warp *w, int lane, const cta *at, uint32_t index, uint32_t rank, uint32_t who,
                            const char *now, const char *before);
/* After a barrier of the whole CTA all know what each knew of copies and of other CTAs. */
void emu_join_tails(cta *m);
/* shadow.c: whether the async proxy sees a store of a thread of the CTA, to global memory or to shared. */
bool emu_proxy_sees(const cta *m, const warp *w, int lane, uint32_t thread, uint32_t stamp, bool global);
/* shadow.c: of the memory of any CTA */
void emu_check_writer(cta *m, const warp *w, int lane, cta *at, uint32_t index, const char *verb);
void emu_report_in_flight(cta *m, const warp *w, int lane, const cta *at, uint32_t index, const char *verb);
void emu_check_mbarrier_bytes(cta *m, const warp *w, int lane, const cta *at, uint32_t address, uint32_t bytes);
bool emu_check_async_readers(cta *m, const warp *w, int lane, const cta *at, uint32_t address, uint32_t bytes);

#endif
