/* dispatch.c - tells each of the checks what an event of the CTA means for it. */
#include "events.h"
#include "orders.h"
#include "races.h"

#include <stdlib.h>
#include <string.h>

/* ---- lifecycle ---- */

bool emu_checks_create(cta *m) {
    m->checks = calloc(1, sizeof *m->checks);
    if (m->checks) m->checks->follows = m->device->watches_touches;
    return m->checks && emu_shadow_create(m) && emu_flags_create(m) && emu_orders_create(m) &&
           emu_tensor_shadow_create(m) && emu_launches_create(m);
}

void emu_checks_start(cta *m) {
    m->checks->unfinished_count = 0;
    for (uint32_t i = 0; i < m->warp_count; i++) emu_start_undefined(m, &m->warps[i]);
    emu_shadow_start_cta(m);
    emu_tensor_shadow_start(m);
    emu_flags_start_cta(m);
    emu_launches_start_cta(m);
    emu_order_start_cta(m);
    emu_orders_start_cta(m);
}

void emu_checks_end(cta *m) {
    emu_order_free(m);
}

void emu_checks_free(cta *m) {
    if (!m->checks) return;
    emu_shadow_free(m);
    emu_tensor_shadow_free(m);
    emu_flags_free(m);
    emu_launches_free(m);
    emu_orders_free(m);
    emu_order_free(m);
    free(m->checks->unfinished);
    free(m->checks);
    m->checks = NULL;
}

uint64_t emu_checks_bytes(const entry *code, uint64_t threads, uint64_t shared_bytes) {
    const uint64_t cells = shared_bytes / code->granule_bytes + 1;
    uint64_t bytes = sizeof(checks) + cells * sizeof(shadow_cell);
    if (code->needs_clocks)
        bytes += 4 * threads * (threads + BARRIERS + 2 * MAX_MBARRIERS) + cells * threads / LANES * sizeof(warp_read);
    return bytes + (code->relaxed_flags ? 8 * threads * threads : 0);
}

/* ---- accesses ---- */

/* True if an access to shared memory orders threads, and the checks keep what each knows. */
static bool orders_threads(const cta *m, const op *o) {
    return o->flags & FLAG_ORDERS && m->checks->clocks;
}

uint32_t emu_on_cluster_read(cta *m, warp *w, int lane, cta *at, uint32_t address, uint32_t bytes, const op *o) {
    if (orders_threads(m, o)) return emu_flag_read(m, w, lane, at, address, bytes, o->order);
    return at == m ? emu_on_shared_read(m, w, lane, address, bytes) : emu_remote_read(m, w, lane, at, address, bytes);
}

void emu_on_cluster_write(cta *m, warp *w, int lane, cta *at, uint32_t address, uint32_t bytes, const op *o,
                          const void *data) {
    if (orders_threads(m, o))
        emu_flag_write(m, w, lane, at, address, bytes, o->order);
    else if (at == m)
        emu_on_shared_write(m, w, lane, address, bytes, data);
    else
        emu_remote_write(m, w, lane, at, address, bytes);
    if (w->undefined_stores >> lane & 1) emu_shadow_undefined(at, address, bytes);
}

void emu_on_cluster_atomic(cta *m, warp *w, int lane, cta *at, uint32_t address, uint32_t bytes, const op *o) {
    if (orders_threads(m, o))
        emu_flag_atomic(m, w, lane, at, address, bytes, o->order, o->asks);
    else if (at == m)
        emu_on_shared_atomic(m, w, lane, address, bytes, o->asks);
    else
        emu_remote_atomic(m, w, lane, at, address, bytes);
}

/* Strong accesses to global memory acquire what was published at their address before, and publish afterwards. */

uint32_t emu_on_global_read(cta *m, warp *w, int lane, uint64_t address, uint32_t bytes, const op *o) {
    const unsigned order = o ? o->order : 0;
    emu_check_launch_before(m, w, lane, address, bytes, "reads");
    lock_races(m);
    if (order & ORDER_STRONG && !(w->stale >> lane & 1)) emu_global_learn(m, w, lane, address, order);
    if (o && o->flags & FLAG_CONSTANT) emu_global_constant_read(m, w, lane, o, address, bytes);
    emu_global_read(m, w, lane, address, bytes, o && o->flags & FLAG_GUESS ? order | ORDER_STRONG : order);
    const uint32_t unwritten = emu_global_unwritten(m, address, bytes);
    unlock_races(m);
    return unwritten;
}

uint32_t emu_on_lanes_read(cta *m, const warp *w, int lane, uint32_t lanes, const uint64_t *addresses, uint32_t bytes,
                           const op *o) {
    const checks *const k = m->checks;
    const uint64_t first = addresses[lane];
    const uint32_t count = COARSE / bytes, own = count < LANES ? ((1u << count) - 1) << lane : ALL_LANES;
    if (first % COARSE || (uint32_t)lane + count > LANES || (lanes & own) != own) return 0;
    for (uint32_t i = 1; i < count; i++)
        if (addresses[(uint32_t)lane + i] != first + i * bytes) return 0;
    if (o->order || o->flags & FLAG_GUESS || k->follows || k->grid_waits) return 0;
    if (!emu_global_was_set(m, first, COARSE)) return 0;
    const buffer *b = emu_find_buffer(m->device, first);
    const uint64_t offset = (first & ((1ull << BUFFER_SHIFT) - 1)) - BUFFER_START;
    if (!b || !b->bytes || offset + COARSE > b->size) return 0;
    lock_races(m);
    const bool noted = emu_global_piece_read(m, w, lane, first, bytes);
    unlock_races(m);
    return noted ? own : 0;
}

uint32_t emu_on_lanes_write(cta *m, const warp *w, uint32_t lanes, const uint64_t *addresses, uint32_t bytes,
                            const op *o, stored_values data) {
    if (o->order || m->checks->follows || m->checks->grid_waits) return 0;
    lock_races(m);
    const uint32_t noted = emu_global_lanes_write(m, w, lanes, addresses, bytes, data);
    unlock_races(m);
    for (uint32_t rest = noted; rest; rest &= rest - 1)
        emu_note_output(m, o->instruction, addresses[first_lane(rest)], bytes);
    return noted;
}

void emu_on_global_write(cta *m, warp *w, int lane, uint64_t address, uint32_t bytes, const op *o, const uint8_t *data,
                         const uint8_t *there) {
    const unsigned order = o ? o->order : 0;
    emu_check_launch_before(m, w, lane, address, bytes, "writes");
    lock_races(m);
    emu_global_write(m, w, lane, address, bytes, order, data, there);
    if (order & ORDER_STRONG) emu_global_tell(m, w, lane, address, order);
    unlock_races(m);
    if (o) emu_note_output(m, o->instruction, address, bytes);
}

void emu_on_global_atomic(cta *m, warp *w, int lane, uint64_t address, uint32_t bytes, const op *o) {
    emu_note_output_update(m, address, bytes);
    emu_check_launch_before(m, w, lane, address, bytes, "updates");
    lock_races(m);
    emu_global_learn(m, w, lane, address, o->order);
    if (o->detail != ATOMIC_EXCH || o->asks) emu_check_update(m, w, lane, address, bytes);
    emu_global_update(m, w, lane, address, bytes, o->order, o->asks);
    emu_global_tell(m, w, lane, address, o->order);
    unlock_races(m);
}

void emu_on_access_end(cta *m, warp *w, const op *o) {
    const bool strong = o->kind == OP_ATOMIC || o->order;
    if (orders_threads(m, o) || (m->checks->order && strong)) emu_clock_tick(m, w);
}

uint32_t emu_on_epoch(cta *m, warp *w) {
    return emu_clock_tick(m, w);
}

/* ---- mbarriers ---- */

void emu_on_mbarrier_use(cta *m, warp *w, int lane, cta *at, uint32_t address) {
    if (at == m)
        emu_on_shared_read(m, w, lane, address, 8);
    else
        emu_remote_mbarrier(m, w, lane, at, address);
}

void emu_on_mbarrier_init(cta *m, const warp *w, int lane, mbarrier *bar) {
    const checks *const shadow = m->checks;
    const size_t bytes = shadow->clock_width * sizeof *bar->arriving;
    bar->init_thread = (uint32_t)(w->index * LANES + lane);
    bar->init_stamp = w->clock;
    bar->fence_stamp = 0;
    if (bar->arriving) memset(bar->arriving, 0, bytes);
    if (bar->completed) memset(bar->completed, 0, bytes);
    bar->told_by = 0;
    if (shadow->orders) emu_orders_init(m, bar);
}

void emu_on_mbarrier_arrive(cta *m, const warp *w, int lane, cta *at, mbarrier *bar, bool relaxed) {
    if (m->checks->orders) emu_orders_arrive(m, w, lane, at, bar, relaxed);
    if (relaxed) {
        emu_tell_fenced(m, w, lane, at, bar->arriving);
    } else if (at != m) {
        emu_remote_publish(m, w, 1u << lane, at, bar->arriving);
    } else if (m->checks->clocks && bar->told_by == (uint32_t)w->index + 1 && bar->told_at == w->clock) {
        bar->arriving[w->index * LANES + lane] = w->clock; /* the rest is there */
    } else {
        emu_clock_publish(m, w, 1u << lane, bar->arriving);
        bar->told_by = w->together ? (uint32_t)w->index + 1 : 0;
        bar->told_at = w->clock;
    }
}

void emu_on_mbarrier_bytes(cta *m, const warp *w, int lane, cta *at, const mbarrier *bar, bool completes) {
    if (!m->checks->orders) return;
    if (completes)
        emu_orders_arrive(m, w, lane, at, bar, false);
    else
        emu_orders_expect(m, w, lane, at, bar);
}

/* Clocks only grow: what completed before stays known. */
void emu_on_phase(cta *m, mbarrier *bar) {
    const checks *const shadow = m->checks;
    if (shadow->orders) emu_orders_complete(m, bar);
    bar->told_by = 0;
    if (!bar->arriving) return;
    uint32_t *done = bar->arriving;
    take_later(done, bar->completed, shadow->clock_width);
    bar->arriving = bar->completed;
    bar->completed = done;
    memset(bar->arriving, 0, shadow->clock_width * sizeof *done);
}

void emu_on_mbarrier_ask(cta *m, const warp *w, const op *o, uint32_t mask, register_step *step) {
    if (m->checks->orders) emu_orders_ask(m, w, o, mask, step);
}

/* Each mbarrier once. */
static void note_waits(cta *m, const warp *w, uint32_t mask, mbarrier *const *bars) {
    const mbarrier *last = NULL;
    for (; mask; mask &= mask - 1) {
        const int lane = first_lane(mask);
        if (bars[lane] && bars[lane] != last) emu_orders_wait(m, w, lane, bars[lane]);
        if (bars[lane]) last = bars[lane];
    }
}

static void note_seen(const cta *m, const warp *w, const mbarrier *bar) {
    seen_phase *seen = &w->seen[bar - m->mbarriers];
    seen->times = seen->phase == bar->phase ? seen->times + 1 : 1;
    seen->phase = bar->phase;
}

void emu_on_mbarrier_wait(cta *m, warp *w, uint32_t lanes, mbarrier *const *bars, bool relaxed) {
    const mbarrier *first = lanes ? bars[first_lane(lanes)] : NULL;
    if (m->checks->orders) note_waits(m, w, lanes, bars);
    while (lanes) { /* together where it is one mbarrier */
        const mbarrier *bar = bars[first_lane(lanes)];
        uint32_t same = 0;
        for (uint32_t rest = lanes; rest; rest &= rest - 1)
            if (bars[first_lane(rest)] == bar) same |= 1u << first_lane(rest);
        if (bar && relaxed) emu_hear(m, w, same, bar->completed);
        if (bar && !relaxed) emu_clock_acquire(m, w, same, bar->completed);
        lanes &= ~same;
    }
    if (w->seen && first) note_seen(m, w, first);
    emu_stale_synced(m, w);
}

/* ---- barriers and fences ---- */

void emu_on_barrier_arrive(cta *m, warp *w, uint32_t mask, uint32_t id, bool waits) {
    if (m->checks->orders) emu_orders_barrier(m, w, first_lane(mask), id);
    if (m->barriers[id].clocks) emu_clock_publish(m, w, mask, m->barriers[id].clocks);
    if (!waits) emu_clock_tick(m, w);
}

void emu_on_barrier_complete(cta *m, uint32_t id) {
    const checks *const shadow = m->checks;
    const named_barrier *bar = &m->barriers[id];
    if (shadow->orders) emu_orders_release(m, id);
    if (!bar->expected) emu_clock_full_barrier(m);
    for (uint32_t i = 0; bar->expected && i < m->warp_count; i++) {
        warp *w = &m->warps[i];
        if (w->state != WARP_AT_BARRIER || w->barrier_id != id) continue;
        emu_clock_acquire(m, w, live_lanes(w), bar->clocks);
        w->synced = w->clock;
        emu_clock_tick(m, w);
    }
    if (bar->clocks) memset(bar->clocks, 0, shadow->clock_width * sizeof *bar->clocks);
    for (uint32_t i = 0; i < m->warp_count; i++) emu_stale_synced(m, &m->warps[i]);
}

void emu_on_fence(cta *m, warp *w, const op *o, uint32_t mask) {
    emu_stale_fence(m, w, o);
    emu_flag_fence(m, w, mask);
    lock_races(m);
    emu_global_fence(m, w, mask, o->order);
    unlock_races(m);
    if (w->released && !(o->order & ORDER_CTA)) emu_cluster_fence(m, w);
}

void emu_on_proxy_fence(cta *m, warp *w, uint32_t mask, unsigned memory) {
    emu_proxy_fence(m, w, mask, memory);
    emu_global_proxy_fence(m, memory);
}

void emu_on_map_fence(cta *m, warp *w, int lane, uint64_t address) {
    lock_races(m);
    emu_global_map_fence(m, w, lane, address);
    unlock_races(m);
}

void emu_on_map_use(cta *m, warp *w, int lane, uint64_t address) {
    lock_races(m);
    emu_global_map_use(m, w, lane, address);
    unlock_races(m);
}

void emu_on_init_fence(cta *m, warp *w, uint32_t mask) {
    if (m->checks->proxy_fences) emu_init_fence(m, w, mask);
    if (w->released) emu_cluster_fence(m, w);
}

/* ---- warpgroups ---- */

void emu_on_product_issue(cta *m, warp *w) {
    if (m->checks->orders) emu_orders_product(m, w);
}

void emu_on_product_known(cta *m, const warp *w, uint32_t reader, uint32_t stamp) {
    emu_clock_learn(m, w, reader * LANES, stamp);
}

void emu_on_product_wait(cta *m, warp *w, uint32_t count, uint32_t wanted, uint32_t mask) {
    if (m->checks->orders && count) emu_orders_product_wait(m, w, wanted);
    emu_on_warp_barrier(m, w, mask);
}

void emu_on_registers(cta *m, const warp *w, bool more) {
    if (m->checks->orders) emu_orders_registers(m, w, more);
}
