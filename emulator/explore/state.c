/* state.c - what a CTA remembers where its warps wait: registers, memory, barriers, and what the checks know. Two runs
 * of one CTA that remember the same go on alike, and the checks find the same: tile_counter.c relies on it. */
#include "state.h"
#include "ages.h"

#include <stddef.h>
#include <string.h>

static void add_bytes(uint64_t *sum, const void *bytes, size_t count) {
    const uint8_t *at = bytes;
    for (; count >= 8; count -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        add_word(sum, word);
    }
    for (; count; count--) add_word(sum, *at++);
}

/* ---- what all know ---- */

static bool is_live(const warp *w) {
    return w->state != WARP_DONE;
}

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}
static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* Lanes whose knowledge has a row of its own. */
static uint32_t rows_of(const warp *w) {
    return w->together ? 1 : live_lanes(w);
}

/* Epoch of another warp that happens before any lane of a warp. */
static uint32_t actor_known_to(const cta *m, const warp *w, uint32_t other) {
    uint32_t known = 0;
    for (uint32_t rest = rows_of(w); rest; rest &= rest - 1) {
        const uint32_t *row = row_of(m, w, first_lane(rest));
        known = larger(known, row[clock_of_progress(m, other)]);
        for (int i = 0; i < LANES; i++) known = larger(known, row[other * LANES + (uint32_t)i]);
    }
    return known;
}

/* Clocks of the live warps: their minimum happens before all of them. */
static void find_known(const cta *m, ages *a) {
    const checks *const shadow = m->checks;
    const uint32_t threads = m->warp_count * LANES, width = shadow->clocks ? shadow->clock_width : threads;
    for (uint32_t k = 0; k < width; k++) a->known[k] = shadow->clocks ? TIME_REMOTE - 1 : shadow->base;
    for (uint32_t k = 0; k < m->warp_count; k++) a->actors[k] = shadow->clocks ? TIME_REMOTE - 1 : shadow->base;
    for (uint32_t i = 0; shadow->clocks && i < m->warp_count; i++) {
        const warp *w = &m->warps[i];
        if (!is_live(w)) continue;
        for (uint32_t rest = rows_of(w); rest; rest &= rest - 1) {
            const uint32_t *row = row_of(m, w, first_lane(rest));
            for (uint32_t k = 0; k < width; k++) {
                const uint32_t own = k / LANES == i && k < threads ? w->synced : 0;
                a->known[k] = smaller(a->known[k], larger(row[k], own));
            }
        }
        for (uint32_t k = 0; k < m->warp_count; k++)
            if (k != i) a->actors[k] = smaller(a->actors[k], actor_known_to(m, w, k));
    }
    for (uint32_t k = 0; k < threads; k++) a->known[k] = larger(a->known[k], shadow->base);
    for (uint32_t k = 0; k < m->warp_count; k++) a->actors[k] = larger(a->actors[k], shadow->base);
}

static void add_clocks(const cta *m, const ages *a, uint64_t *sum, const uint32_t *clocks) {
    for (uint32_t k = 0; k < m->checks->clock_width; k++) add_word(sum, age_since(a, a->known[k], clocks[k]));
}

/* ---- warps ---- */

static bool is_at_work(const warp *w) {
    return w->copy_count || w->arrive_count || w->wgmma_issued != w->wgmma_landed || w->frame >= 0;
}

static void add_paths(const warp *w, uint64_t *sum) {
    for (int i = 0; i < w->depth; i++) {
        const path *p = &w->stack[i];
        add_word(sum, (uint64_t)(uint32_t)p->pc << 32 | (uint32_t)p->join);
        add_word(sum, (uint64_t)p->mask << 32 | p->state);
        add_word(sum, (uint64_t)p->turns << 32 | p->wanted);
    }
}

/* Registers that a path may still read, and which of their lanes are undefined. */
static void add_registers(const cta *m, const warp *w, const live_sets *live, int32_t pc, uint64_t *sum) {
    const uint64_t *set = live->sets + (size_t)pc * live->words;
    const uint32_t slots = m->code->slot_count;
    for (uint32_t i = 0; i < slots + m->code->predicate_count; i++) {
        if (!(set[i / 64] >> i % 64 & 1)) continue;
        if (i < slots)
            add_bytes(sum, slot32(w, i), LANES * sizeof(uint32_t));
        else
            add_word(sum, w->predicates[i - slots]);
        if (w->undefined_count) add_word(sum, w->undefined[i].lanes);
    }
}

static void add_all_registers(const cta *m, const warp *w, const live_sets *live, uint64_t *sum) {
    add_registers(m, w, live, w->pc, sum);
    if (w->join >= 0) add_registers(m, w, live, w->join, sum);
    for (int i = 0; i < w->depth; i++) {
        add_registers(m, w, live, w->stack[i].pc, sum);
        if (w->stack[i].join >= 0) add_registers(m, w, live, w->stack[i].join, sum);
    }
    for (size_t i = 0; w->wgmma_uses && i < m->code->register_count; i++)
        add_word(sum, w->wgmma_uses[i].touched == w->wgmma_fences + 1);
}

static void add_warp(const cta *m, const ages *a, const live_sets *live, const warp *w, uint64_t *sum) {
    add_word(sum, (uint64_t)w->state << 32 | w->exited);
    if (!is_live(w)) return;
    add_word(sum, (uint64_t)(uint32_t)w->pc << 32 | (uint32_t)w->join);
    add_word(sum, (uint64_t)w->active << 32 | w->held);
    add_word(sum, (uint64_t)w->depth << 32 | w->split << 2 | w->forced << 1 | w->together);
    add_word(sum, (uint64_t)w->spins << 32 | w->turns);
    add_word(sum, (uint64_t)w->wanted << 32 | w->barrier_id);
    add_word(sum, (uint64_t)w->mbarrier_address << 32 | w->registers);
    add_word(sum, (uint64_t)w->register_changes << 32 | (w->undefined_count != 0));
    add_word(sum, w->wgmma_issued - m->wgmma_done[w->index / 4]);
    add_paths(w, sum);
    add_all_registers(m, w, live, sum);
    add_word(sum, age_since(a, 0, w->clock));
    add_word(sum, age_since(a, a->known[w->index * LANES], w->synced));
    for (uint32_t rest = m->checks->clocks ? rows_of(w) : 0; rest; rest &= rest - 1)
        add_clocks(m, a, sum, row_of(m, w, first_lane(rest)));
}

/* ---- shared memory ---- */

/* True if every live warp may let the async proxy read what a thread stored. */
static bool seen_by_proxies(const cta *m, uint32_t thread, uint32_t stamp) {
    for (uint32_t i = 0; i < m->warp_count; i++) {
        const warp *w = &m->warps[i];
        for (uint32_t rest = is_live(w) ? rows_of(w) : 0; rest; rest &= rest - 1)
            if (!emu_proxy_sees(m, w, first_lane(rest), thread, stamp, false)) return false;
    }
    return true;
}

/* State of the cell before, because most are equal. */
typedef struct last_store {
    uint32_t time, thread;
    bool seen;
} last_store;

static uint64_t age_of_write(const cta *m, const ages *a, uint32_t index, last_store *last) {
    checks *const shadow = m->checks;
    const shadow_cell *cell = &shadow->cells[index];
    const uint32_t thread = who_thread(cell->write_who), time = cell->write_time;
    const unsigned landing = shadow->async_written ? shadow->async_written[index] : LANDED_NOTHING;
    const uint32_t actor = landing >= LANDED_BY ? m->warp_count * LANES + landing - LANDED_BY : thread;
    const uint64_t age = age_since(a, a->known[actor], time);
    if (age || !time || landing || !shadow->proxy_fences) return age;
    if (last->time != time || last->thread != thread)
        *last = (last_store){time, thread, seen_by_proxies(m, thread, time)};
    return last->seen ? 0 : age_since(a, 0, time);
}

static void add_access(uint64_t *sum, uint64_t cell, uint64_t age, uint32_t who) {
    add_word(sum, cell);
    add_word(sum, age);
    add_word(sum, who);
}

static void add_cells(const cta *m, const ages *a, uint64_t *sum, const bool *kept) {
    checks *const shadow = m->checks;
    last_store last = {0};
    settle_cells(m, 0, shadow->cell_count - 1);
    for (uint32_t i = 0; i < shadow->cell_count; i++) {
        const shadow_cell *cell = &shadow->cells[i];
        const uint64_t written = age_of_write(m, a, i, &last);
        if (written) add_access(sum, i, written, cell->write_who);
        if (written && shadow->async_written) add_word(sum, shadow->async_written[i]);
        if (shadow->undefined_cells) add_word(sum, cell->write_who & WHO_UNDEFINED);
        const uint64_t read = shadow->clocks ? 0 : age_since(a, shadow->base, cell->read_time);
        if (read) add_access(sum, i, read, cell->read_who);
        const size_t begin = (size_t)i << shadow->cell_shift, end = begin + ((size_t)1 << shadow->cell_shift);
        if (kept[i] && begin < m->shared_bytes)
            add_bytes(sum, m->shared + begin, (end < m->shared_bytes ? end : m->shared_bytes) - begin);
    }
}

static void add_reads(const cta *m, const ages *a, uint64_t *sum) {
    const checks *const shadow = m->checks;
    for (uint32_t k = 0; shadow->warp_reads && k < m->warp_count; k++) {
        const warp_read *reads = read_by(m, k, 0);
        const uint32_t *known = a->known + k * LANES;
        uint32_t all = UINT32_MAX; /* of any lane */
        for (int lane = 0; lane < LANES; lane++) all = smaller(all, known[lane]);
        for (uint32_t i = 0; shadow->last_reads[k] > all && i < shadow->cell_count; i++) {
            uint32_t least = UINT32_MAX; /* of those that read */
            if (reads[i].time <= all) continue;
            for (uint32_t rest = reads[i].lanes; rest; rest &= rest - 1)
                least = smaller(least, known[first_lane(rest)]);
            const uint64_t age = age_since(a, least, reads[i].time);
            if (age) add_access(sum, (uint64_t)k << 32 | i, age, reads[i].lanes);
        }
    }
}

/* Fences that some may not know of, and what their threads knew. */
static void add_fences(const cta *m, const ages *a, uint64_t *sum) {
    checks *const shadow = m->checks;
    const size_t threads = (size_t)m->warp_count * LANES;
    for (size_t i = 0; shadow->proxy_fences && i < 2 * threads; i++) {
        const proxy_fences *its = &shadow->proxy_fences[i];
        if (!its->next) continue;
        for (uint32_t k = 0; k < FENCES; k++)
            add_word(sum, age_since(a, a->known[i % threads], its->stamps[(its->next + k) % FENCES]));
        const uint32_t *knew = known_at_fence(m, (uint32_t)(i % threads), i >= threads);
        for (size_t k = 0; k < threads; k++) add_word(sum, age_since(a, 0, knew[k]));
    }
}

/* Bulk stores that nothing has waited for. Their bytes and targets were counted as work when they were issued, and no
 * other thread of the CTA accesses them: see ticket_work. */
static void add_store(const cta *m, const ages *a, uint64_t *sum, const bulk_copy *copy) {
    const warp *w = &m->warps[copy->warp];
    add_word(sum, (uint64_t)copy->instruction << 32 | (uint32_t)copy->warp << 5 | copy->lane);
    add_word(sum, (uint64_t)copy->shared << 32 | copy->bytes);
    add_word(sum, w->bulk_commits[copy->lane] - copy->group);
    add_word(sum, age_since(a, a->known[copy->warp * LANES + copy->lane], copy->stamp));
}

/* ---- barriers ---- */

static void add_mbarrier(const cta *m, const ages *a, uint64_t *sum, const mbarrier *bar) {
    add_word(sum, (uint64_t)bar->address << 32 | bar->live);
    if (!bar->live) return;
    add_word(sum, (uint64_t)bar->expected << 32 | bar->pending);
    add_word(sum, (uint64_t)bar->bytes ^ (uint64_t)bar->announced << 32);
    add_word(sum, bar->phase < 2 ? bar->phase : 2 | (bar->phase & 1)); /* the rules ask for the first two */
    add_word(sum, age_since(a, a->known[bar->init_thread], bar->init_stamp));
    add_word(sum, age_since(a, a->known[bar->init_thread], bar->fence_stamp));
    if (!m->checks->clocks) return;
    add_clocks(m, a, sum, bar->arriving);
    add_clocks(m, a, sum, bar->completed);
}

static void add_barrier(const cta *m, const ages *a, uint64_t *sum, const named_barrier *bar) {
    add_word(sum, (uint64_t)bar->arrived << 32 | bar->expected);
    add_word(sum, (uint64_t)bar->popcount << 32 | bar->any_true << 1 | bar->any_false);
    if (m->checks->clocks) add_clocks(m, a, sum, bar->clocks);
}

uint64_t emu_waits(const cta *m) {
    uint64_t sum = 1;
    for (uint32_t i = 0; i < m->warp_count; i++)
        add_word(&sum, (uint64_t)m->warps[i].state << 32 | (uint32_t)m->warps[i].pc);
    for (int i = 0; i < m->mbarrier_count; i++)
        add_word(&sum, (uint64_t)m->mbarriers[i].pending << 32 | (m->mbarriers[i].phase & 1));
    return sum;
}

uint64_t emu_state(const cta *m, uint32_t first, const bool *kept, const live_sets *live) {
    const checks *const shadow = m->checks;
    static const ages none;
    ages a = none;
    uint64_t sum = 1;
    bool at_work = shadow->flag_count || m->tensor || m->cluster->count > 1 || shadow->read_generic || shadow->covers;
    for (size_t i = 0; i < m->bulk_count; i++) at_work |= !m->bulk[i].is_store;
    for (uint32_t i = 0; i < m->warp_count; i++) at_work |= is_live(&m->warps[i]) && is_at_work(&m->warps[i]);
    if (at_work) return 0;
    a.now = shadow->now;
    a.first = first;
    find_known(m, &a);
    for (uint32_t i = 0; i < m->warp_count; i++) add_warp(m, &a, live, &m->warps[i], &sum);
    add_cells(m, &a, &sum, kept);
    add_reads(m, &a, &sum);
    add_fences(m, &a, &sum);
    for (size_t i = 0; i < m->bulk_count; i++) add_store(m, &a, &sum, &m->bulk[i]);
    add_word(&sum, shadow->undefined_cells);
    add_bytes(&sum, m->local, (size_t)m->warp_count * LANES * m->code->local_bytes);
    for (int i = 0; i < m->mbarrier_count; i++) add_mbarrier(m, &a, &sum, &m->mbarriers[i]);
    for (int i = 0; i < BARRIERS; i++) add_barrier(m, &a, &sum, &m->barriers[i]);
    emu_add_orders(m, &a, &sum);
    return sum | 1;
}
