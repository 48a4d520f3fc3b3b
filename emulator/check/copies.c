/* copies.c - asynchronous copies, as the checks see them: cp.async, cp.async.bulk, st.async and red.async.
 *
 * A copy touches shared memory from its issue to its completion, on behalf of the lane that issued it. It reads global
 * memory when it is issued. It may write global memory from its issue until its thread has waited for more than the
 * read of its source.
 */
#include "../machine/boxes.h"
#include "orders.h"
#include "races.h"

#include <inttypes.h>

/* ---- cp.async ---- */

/* True if another lane copies the same bytes to there by this instruction, as CUTLASS's example 87a does for scales:
 * the result is certain. */
static bool is_copied_alike(const cta *m, const warp *w, uint32_t target, uint32_t bytes, const uint8_t *from,
                            uint32_t taken) {
    if (write_time(m, first_cell(m, target)) != TIME_IN_FLIGHT) return false;
    for (size_t i = w->copy_count; i-- > 0 && i + LANES >= w->copy_count;) {
        const async_copy *other = &w->copies[i];
        if (other->instruction != m->here) return false;
        if (other->target == target && other->bytes == bytes && other->source == from && other->source_bytes == taken)
            return true;
    }
    return false;
}

void emu_on_copy_issue(cta *m, warp *w, int lane, uint32_t target, uint32_t bytes, uint64_t source, const uint8_t *from,
                       uint32_t taken, bool noted) {
    if (!is_copied_alike(m, w, target, bytes, from, taken)) emu_shadow_issue(m, w, lane, target, bytes);
    if (!taken || noted) return;
    emu_check_launch_before(m, w, lane, source, taken, "copies");
    lock_races(m);
    emu_global_read(m, w, lane, source, taken, 0);
    unlock_races(m);
}

void emu_on_copy_wait(cta *m, warp *w, uint32_t mask) {
    if (m->checks->copies_arrive) emu_copies_waited(m, w, mask);
}

void emu_on_copy_arrive_issue(cta *m, warp *w, int lane, const mbarrier *bar) {
    if (m->checks->orders) emu_orders_issue(m, w, lane, m, bar, true);
}

unsigned emu_on_copies_complete(cta *m, const warp *w, mbarrier *bar, const async_arrive *arrive) {
    return bar && m->checks->copies_arrive ? emu_copies_land(m, w, bar, arrive) : LANDED_NOTHING;
}

/* An mbarrier learns the epoch of the copies, not what the thread did after them. */
static void publish_epoch(const cta *m, const mbarrier *bar, int warp, int lane, uint32_t stamp) {
    uint32_t *known = &bar->arriving[warp * LANES + lane];
    if (m->checks->clocks && *known < stamp) *known = stamp;
}

void emu_on_copy_arrive(cta *m, const warp *w, mbarrier *bar, const async_arrive *arrive) {
    if (m->checks->orders) emu_orders_land(m, w, arrive->lane, m, bar, arrive->instruction);
    publish_epoch(m, bar, w->index, arrive->lane, arrive->stamp);
}

void emu_on_copy_complete(cta *m, const warp *w, const async_copy *copy, uint32_t stamp, unsigned by) {
    emu_shadow_land(m, w, copy->lane, copy->target, copy->bytes, stamp, copy->instruction, by);
}

/* ---- bulk copies: global memory ---- */

static void note_run(cta *m, const bulk_copy *copy, uint64_t address, uint32_t bytes, const uint8_t *data, bool ends) {
    const warp *w = &m->warps[copy->warp];
    if (!ends) emu_check_launch_before(m, w, copy->lane, address, bytes, copy->is_store ? "copies to" : "copies");
    lock_races(m);
    if (!copy->is_store)
        emu_global_copy_read(m, w, copy->lane, address, bytes);
    else if (ends)
        emu_global_write_ends(m, w, copy->lane, address, bytes);
    else
        emu_global_write_begins(m, w, copy->lane, address, bytes, copy->reduces ? NULL : data);
    unlock_races(m);
}

/* *context: whether the copy ends. */
static void note_row(cta *m, const bulk_copy *copy, const int32_t at[5], uint32_t shared, void *context) {
    const bool *ends = context;
    uint8_t data[MAX_ROW_BYTES];
    uint64_t address = 0;
    uint32_t first = 0;
    const uint32_t bytes = tensor_global_bytes(&copy->map.info, emu_bytes_inside(copy, at, &address, &first));
    const uint32_t begin = shared + first * copy->map.info.element_bytes;
    for (uint32_t i = 0; copy->is_store && i < bytes; i++)
        data[i] = m->shared[swizzled(&copy->map.info, begin + i) - m->shared_base];
    if (bytes) note_run(m, copy, address, bytes, data, *ends);
}

/* The read or the write of a copy: a read as it is issued, a write as it begins and as it ends. */
static void note_global(cta *m, const bulk_copy *copy, bool ends) {
    if (copy->source || copy->has_values) return;
    if (copy->map.info.rank)
        emu_each_row(m, copy, note_row, &ends);
    else
        note_run(m, copy, copy->address, copy->bytes, m->shared + (copy->shared - m->shared_base), ends);
}

/* ---- bulk copies: issue ---- */

void emu_on_bulk_count(cta *m, warp *w, const bulk_copy *copy, mbarrier *bar) {
    const checks *const shadow = m->checks;
    cta *at = copy->counts_at;
    if (shadow->orders) emu_orders_issue(m, w, copy->lane, at, bar, false);
    if (shadow->orders && at != m) emu_remote_tell_progress(m, w, copy->lane, at, bar->arriving);
    if (at == m)
        emu_check_init_fence(m, w, copy->lane, bar);
    else
        emu_remote_mbarrier(m, w, copy->lane, at, copy->mbarrier);
    /* The phase completes after the copy, which begins after all that its thread knows. */
    if (at != m) emu_remote_publish(m, w, 1u << copy->lane, at, bar->arriving);
}

/* Mark of the target's cells until the bytes arrive. A reduction is one with others, as an atomic is. */
static void mark_target(cta *m, const warp *w, const bulk_copy *copy) {
    cta *at = copy->to;
    if (copy->reduces && at == m)
        emu_on_shared_atomic(m, w, copy->lane, copy->shared, copy->bytes, false);
    else if (copy->reduces)
        emu_remote_atomic(m, w, copy->lane, at, copy->shared, copy->bytes);
    else if (at == m)
        emu_shadow_issue(m, w, copy->lane, copy->shared, copy->bytes);
    else
        emu_remote_issue(m, w, copy->lane, at, copy->shared, copy->bytes);
}

/* Check the bytes of a row that the tensor has; a store drops the others. A box that is stored begins in the tensor. */
static void check_stored_row(cta *m, const bulk_copy *copy, const int32_t at[5], uint32_t shared, void *context) {
    enum { CHUNK = 16 };
    uint64_t address = 0;
    uint32_t first = 0;
    const uint32_t bytes = emu_bytes_inside(copy, at, &address, &first);
    for (uint32_t i = 0; i < bytes; i += CHUNK)
        emu_check_async_source(m, context, copy->lane, swizzled(&copy->map.info, shared + i),
                               bytes - i < CHUNK ? bytes - i : CHUNK);
}

void emu_on_bulk_issue(cta *m, warp *w, const bulk_copy *copy) {
    const uint32_t source = copy->is_store ? copy->shared : copy->source;
    const bool by_row = copy->is_store && copy->map.info.rank;
    if (by_row) emu_each_row(m, copy, check_stored_row, w);
    if (copy->is_store) emu_async_read_begins(m, w, copy->lane, source, copy->bytes, by_row);
    note_global(m, copy, false);
    if (copy->is_store) return;
    if (source) emu_async_read_begins(m, w, copy->lane, source, copy->bytes, false);
    if (copy->to == m && !copy->has_values) emu_check_async_write(m, w, copy->lane, copy->shared, copy->bytes);
    mark_target(m, w, copy);
}

/* ---- bulk copies: completion ---- */

static void complete_cells(cta *m, const warp *w, const bulk_copy *copy, mbarrier *bar) {
    if (copy->to == m && copy->counts_at == m && bar && m->checks->engines && !copy->has_values)
        emu_engine_lands(m, w, copy, bar);
    else if (copy->to == m && copy->counts_at == m)
        emu_shadow_land(m, w, copy->lane, copy->shared, copy->bytes, copy->stamp, copy->instruction,
                        copy->has_values ? LANDED_NOTHING : LANDED);
    else
        emu_remote_land(m, w, copy, bar);
}

/* As long as bytes are missing that were announced, a phase does not complete. */
static void check_phase(cta *m, const bulk_copy *copy, const mbarrier *bar) {
    if (bar->phase == copy->phase) return;
    const uint32_t here = m->here;
    m->here = copy->instruction;
    emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, &m->warps[copy->warp], copy->lane, -1, bar->address,
               "Phase %" PRIu64 " of the mbarrier at 0x%x completed while this copy of %u bytes was still under way.\n"
               "expect_tx announced fewer bytes than the copies of that phase bring, or came after the last arrival.",
               copy->phase, bar->address, copy->bytes);
    m->here = here;
}

void emu_on_bulk_complete(cta *m, const bulk_copy *copy, mbarrier *bar) {
    const warp *w = &m->warps[copy->warp];
    if (copy->source) emu_async_read_ends(m, w, copy->lane, copy->source, copy->bytes, copy->stamp);
    if (!copy->reduces) complete_cells(m, w, copy, bar);
    if (!bar) return;
    check_phase(m, copy, bar);
    if (m->checks->orders) emu_orders_land(m, w, copy->lane, copy->counts_at, bar, copy->instruction);
    if (copy->counts_at == m)
        publish_epoch(m, bar, copy->warp, copy->lane, copy->stamp);
    else
        emu_remote_tell(m, w, copy->counts_at, bar->arriving, copy->stamp);
}

void emu_on_bulk_store_read(cta *m, const bulk_copy *copy) {
    const warp *w = &m->warps[copy->warp];
    checks *k = m->checks;
    bulk_copy *kept = m->cluster->races ? cta_reserve(m, k->unfinished, k->unfinished_count + 1,
                                                      &k->unfinished_capacity, sizeof *kept)
                                        : NULL;
    if (kept) {
        k->unfinished = kept;
        k->unfinished[k->unfinished_count++] = *copy;
    }
    emu_async_read_ends(m, w, copy->lane, copy->shared, copy->bytes, w->clock);
}

void emu_on_bulk_store_wait(cta *m, warp *w, const op *o, uint32_t mask) {
    checks *k = m->checks;
    size_t kept = 0;
    for (size_t i = 0; i < k->unfinished_count; i++) {
        const bulk_copy *copy = &k->unfinished[i];
        if (bulk_waits_for(copy, w, o, mask))
            note_global(m, copy, true);
        else
            k->unfinished[kept++] = *copy;
    }
    k->unfinished_count = kept;
}
