/* bulk.c - cp.async.bulk and cp.async.bulk.tensor: the copy engine, which works in parallel with the threads.
 *
 * A copy to shared memory lands when no warp can run without it, those that a warp waits for first; with a schedule
 * seed also earlier, and in any order. Its bytes count at its mbarrier as they land. A copy to global memory lands when
 * its thread waits for its group, or as the CTA ends. Both go through the async proxy: see the checks in shadow.c.
 */
#include "boxes.h"
#include "interleaving.h"
#include "machine.h"

#include <inttypes.h>
#include <string.h>

static bulk_copy *new_copy(cta *m) {
    bulk_copy *copies = cta_reserve(m, m->bulk, m->bulk_count + 1, &m->bulk_capacity, sizeof *copies);
    if (!copies) return NULL;
    m->bulk = copies;
    return &m->bulk[m->bulk_count++];
}

/* ---- addresses ---- */

static bool shared_range(cta *m, const warp *w, int lane, uint32_t address, uint32_t bytes, uint32_t alignment,
                         const char *what) {
    uint32_t offset = address - m->shared_base;
    if (address % alignment) {
        emu_report(m, EMU_MISALIGNED, UINT32_MAX, w, lane, -1, address,
                   "The %s in shared memory is 0x%x: it must be a multiple of %u.", what, address, alignment);
        return false;
    }
    if (offset < m->shared_bytes && m->shared_bytes - offset >= bytes) return true;
    emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, lane, -1, address,
               "The %s is %u bytes of shared memory at 0x%x, beyond the %u bytes of the CTA.", what, bytes, address,
               m->shared_bytes);
    return false;
}

/* The CTA of a pair whose mbarrier counts a copy to a CTA of the pair: of even or odd rank, as the address says. */
static cta *counter_of_pair(const cta *m, const cta *to, const cta *named) {
    const uint32_t rank = (to->rank & ~1u) | (named->rank & 1);
    return rank < m->cluster->count ? &m->cluster->ctas[rank] : NULL;
}

/* The target of a copy and its mbarrier, which must be of one CTA, or of one pair. */
static bool find_target(cta *m, const warp *w, int lane, uint64_t target, uint64_t mbarrier, bool pair,
                        bulk_copy *copy) {
    uint32_t local;
    target = relative_address(w, target);
    mbarrier = relative_address(w, mbarrier);
    copy->to = copy->counts_at = m;
    copy->shared = (uint32_t)target;
    if (copy->is_store) return true;
    copy->to = emu_expect_owner(m, w, lane, target, "copies to", &copy->shared);
    if (!copy->to) return false;
    cta *other = emu_expect_owner(m, w, lane, mbarrier, "counts bytes in", &local);
    copy->mbarrier = local;
    if (other && pair) other = counter_of_pair(m, copy->to, other);
    copy->counts_at = other;
    if (!other || other == copy->to || pair) return other != NULL;
    emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, w, lane, -1, mbarrier,
               "The target of this copy is in the CTA with rank %u, and its mbarrier in that with rank %u: both must "
               "be of one CTA.",
               copy->to->rank, other->rank);
    return false;
}

static uint8_t *global_range(cta *m, warp *w, int lane, uint64_t address, uint32_t bytes, const char *verb) {
    uint8_t *first = emu_translate(m, w, SPACE_GLOBAL, address, 16, lane, verb);
    return first && emu_translate(m, w, SPACE_GLOBAL, address + bytes - 16, 16, lane, verb) ? first : NULL;
}

static const tensor_map *map_at(cta *m, warp *w, int lane, uint64_t address) {
    if (address % 64) {
        emu_report(m, EMU_MISALIGNED, UINT32_MAX, w, lane, -1, address,
                   "The tensor map is at 0x%" PRIx64 ": it must be a multiple of 64.\n"
                   "A CUtensorMap has this alignment; as a parameter of the kernel it is __grid_constant__.",
                   address);
        return NULL;
    }
    const uint8_t *bytes = emu_translate(m, w, SPACE_GENERIC, address, 64, lane, "takes the tensor map from");
    if (!bytes || !emu_translate(m, w, SPACE_GENERIC, address + 64, 64, lane, "takes the tensor map from")) return NULL;
    const tensor_map *map = (const tensor_map *)(const void *)bytes;
    emu_error error;
    uint8_t valid[EMU_TENSOR_MAP_BYTES];
    if (map->magic == TENSOR_MAP_MAGIC) {
        if (emu_make_tensor_map(&map->info, valid, &error)) return map;
        emu_report(m, EMU_BAD_TENSOR_MAP, UINT32_MAX, w, lane, -1, address,
                   "The tensor map at 0x%" PRIx64 " was changed to one that no driver would make: %s.", address,
                   error.text);
        return NULL;
    }
    emu_report(m, EMU_BAD_TENSOR_MAP, UINT32_MAX, w, lane, -1, address,
               "The 128 bytes at 0x%" PRIx64 " are not a tensor map of this emulator.\n"
               "emu_make_tensor_map() makes one, as cuTensorMapEncodeTiled() does for a GPU.",
               address);
    return NULL;
}

/* ---- issue ---- */

enum { TENSOR_ALIGNMENT = 128, BULK_ALIGNMENT = 16, CHUNK = 16 };

/* A box begins at a multiple of 16 bytes of its row, and one that is written not before the tensor; a reduction needs
 * numbers that it knows. Else an H200 ends the kernel. False after a report. */
static bool check_box(cta *m, const warp *w, int lane, const bulk_copy *copy) {
    const emu_tensor_info *info = &copy->map.info;
    if (copy->reduces && info->numbers == ATOMIC_INTEGER && info->element_bytes < 4) {
        emu_report(m, EMU_BAD_TENSOR_MAP, UINT32_MAX, w, lane, -1, copy->map_at,
                   "The elements of this tensor map are integers of %u bytes: a reduction takes those of 4 or 8.",
                   info->element_bytes);
        return false;
    }
    const int64_t begin = (int64_t)copy->corner[0] * info->element_bytes;
    if (copy->gathers && (info->rank != 2 || info->box[1] != 1)) {
        emu_report(m, EMU_BAD_TENSOR_MAP, UINT32_MAX, w, lane, -1, copy->map_at,
                   "A copy of four rows takes a tensor map of two dimensions whose box is one row high.");
        return false;
    }
    if (begin % CHUNK) {
        emu_report(m, EMU_MISALIGNED, UINT32_MAX, w, lane, -1, copy->map_at,
                   "The box begins at column %" PRId32 ", byte %" PRId64 " of a row: it must be a multiple of %d.\n"
                   "An H200 ends the kernel here: illegal instruction.",
                   copy->corner[0], begin, CHUNK);
        return false;
    }
    for (uint32_t i = 0; copy->is_store && !info->im2col && i < info->rank; i++) {
        if (copy->corner[i] >= 0) continue;
        emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, lane, -1, copy->map_at,
                   "The box begins at %" PRId32 " in dimension %u: one that is written must not begin before the "
                   "tensor.\nAn H200 ends the kernel here: illegal instruction.",
                   copy->corner[i], i);
        return false;
    }
    return true;
}

/* Operands of an op: shared address, then the map and its coordinates or the global address and the bytes, then the
 * mbarrier of a load, and the offsets of im2col. */
static bool fill_copy(cta *m, warp *w, const op *o, int lane, bulk_copy *copy) {
    const bool tensor = o->detail & BULK_TENSOR, store = o->detail & BULK_STORE;
    *copy = (bulk_copy){.instruction = o->instruction,
                        .stamp = w->clock,
                        .group = w->bulk_commits[lane],
                        .warp = w->index,
                        .lane = (uint8_t)lane,
                        .reduces = o->detail & BULK_REDUCES ? o : NULL,
                        .is_store = store};
    const uint64_t other = slot64(w, o->r[1])[lane];
    if (tensor) {
        const tensor_map *map = map_at(m, w, lane, other);
        if (!map) return false;
        if (m->checks) emu_on_map_use(m, w, lane, other);
        copy->map = *map;
        copy->map_at = other;
        copy->gathers = o->detail & BULK_GATHERS;
        if (copy->map.info.rank != (copy->gathers ? 2u : o->vector)) {
            emu_report(m, EMU_BAD_TENSOR_MAP, UINT32_MAX, w, lane, -1, other,
                       "The tensor map has %u dimensions, the instruction names %d.", copy->map.info.rank,
                       copy->gathers ? 2 : o->vector);
            return false;
        }
        if (copy->map.info.im2col != (bool)o->immediate) {
            emu_report(m, EMU_BAD_TENSOR_MAP, UINT32_MAX, w, lane, -1, other,
                       "The tensor map is one of %s, the instruction one of %s.",
                       copy->map.info.im2col ? "pixels (im2col)" : "boxes (tile)",
                       copy->map.info.im2col ? "boxes (tile)" : "pixels (im2col)");
            return false;
        }
        for (int i = 0; i < o->vector; i++) copy->corner[i] = (int32_t)slot32(w, o->r[2 + i])[lane];
        for (int i = 0; i < o->bytes; i++)
            copy->offsets[i] = (int32_t)(slot32(w, o->r[3 + o->vector + i])[lane] & 0xffff);
        for (int i = 0; i < 4 && copy->gathers; i++) copy->rows[i] = copy->corner[1 + i];
        if (copy->gathers) copy->corner[2] = copy->corner[3] = copy->corner[4] = 0;
        if (copy->map.info.packing == EMU_FOURS) copy->corner[0] /= 2;
        copy->bytes = box_bytes(&copy->map.info) * (copy->gathers ? 4 : 1);
        if (!check_box(m, w, lane, copy)) return false;
    } else {
        copy->bytes = slot32(w, o->r[2])[lane];
        if (!copy->bytes || copy->bytes % BULK_ALIGNMENT) {
            emu_report(m, EMU_MISALIGNED, UINT32_MAX, w, lane, -1, 0,
                       "A bulk copy of %u bytes: it must be a multiple of 16, and not 0.", copy->bytes);
            return false;
        }
        copy->address = other;
        if (o->detail & BULK_BETWEEN_CTAS) {
            copy->source = (uint32_t)relative_address(w, other);
            if (!shared_range(m, w, lane, copy->source, copy->bytes, BULK_ALIGNMENT, "source of a bulk copy"))
                return false;
        } else {
            copy->memory = global_range(m, w, lane, other, copy->bytes, store ? "copies to" : "copies from");
            if (!copy->memory) return false;
        }
    }
    const uint64_t mbarrier = store ? 0 : slot64(w, o->r[2 + (tensor ? o->vector : 1)])[lane];
    return find_target(m, w, lane, slot64(w, o->r[0])[lane], mbarrier, o->detail & BULK_PAIR, copy) &&
           shared_range(m, w, lane, copy->shared, copy->bytes, tensor ? TENSOR_ALIGNMENT : BULK_ALIGNMENT,
                        store ? "source of a bulk copy" : "target of a bulk copy");
}

/* ---- boxes ---- */

/* ---- what is under way ---- */

/* The mbarrier that counts the bytes of a load; false after a report that there is none. */
static bool note_mbarrier(cta *m, warp *w, bulk_copy *copy) {
    const int lane = copy->lane;
    const bool own = copy->counts_at == m;
    mbarrier *bar = emu_find_mbarrier(copy->counts_at, copy->mbarrier);
    if (!bar) {
        emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, w, lane, -1, copy->mbarrier,
                   "There is no mbarrier at 0x%x%s for this copy to count its bytes: mbarrier.init must come first.",
                   copy->mbarrier, own ? "" : " of the other CTA");
        return false;
    }
    copy->phase = bar->phase;
    if (m->checks) emu_on_bulk_count(m, w, copy, bar);
    return true;
}

/* st.async and red.async. */
static bool fill_store(cta *m, const warp *w, const op *o, int lane, bulk_copy *copy) {
    const uint32_t size = o->bytes;
    *copy = (bulk_copy){.instruction = o->instruction,
                        .stamp = w->clock,
                        .warp = w->index,
                        .lane = (uint8_t)lane,
                        .bytes = size * o->vector,
                        .reduces = o->detail & BULK_REDUCES ? o : NULL,
                        .has_values = true};
    for (uint32_t i = 0; i < o->vector; i++) {
        const uint64_t value = size == 8 ? slot64(w, o->r[2 + i])[lane] : slot32(w, o->r[2 + i])[lane];
        memcpy(copy->values + i * size, &value, size);
    }
    return find_target(m, w, lane, slot64(w, o->r[0])[lane] & ~SHARED_WINDOW, slot64(w, o->r[1])[lane] & ~SHARED_WINDOW,
                       false, copy) &&
           shared_range(m, w, lane, copy->shared, copy->bytes, copy->bytes, "target of a store");
}

/* A copy to shared memory of one CTA. */
static void issue_load(cta *m, warp *w, bulk_copy *copy) {
    if (!note_mbarrier(m, w, copy)) return;
    if (m->checks) emu_on_bulk_issue(m, w, copy);
    m->counts[copy->instruction].bytes += copy->bytes;
    bulk_copy *kept = new_copy(m);
    if (kept) *kept = *copy;
}

/* Start the copy at the same addresses of several CTAs; each completes by itself. */
static void issue_multicast(cta *m, warp *w, const bulk_copy *copy, bool pair, uint32_t ranks) {
    const cluster *c = m->cluster;
    if (!ranks || ranks >> c->count) {
        emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, copy->lane, -1, copy->shared,
                   "The mask of this multicast is 0x%x: it must name some of the %u CTAs of the cluster, by rank.",
                   ranks, c->count);
        ranks &= (1u << c->count) - 1;
    }
    for (; ranks; ranks &= ranks - 1) {
        bulk_copy one = *copy;
        uint32_t local;
        const uint64_t address = copy->shared | (uint64_t)first_lane(ranks) << CTA_SHIFT;
        one.to = emu_expect_owner(m, w, copy->lane, relative_address(w, address), "copies to", &local);
        if (one.to) one.counts_at = pair ? counter_of_pair(m, one.to, copy->counts_at) : one.to;
        if (one.to && one.counts_at) issue_load(m, w, &one);
    }
}

/* The lanes without those that repeat the store of the first one. If all lanes of a warp name one copy, ptxas issues
 * one (the operands of UTMASTG are uniform), and the result is certain in any case. */
static uint32_t without_repeated(const warp *w, const op *o, uint32_t mask) {
    const int first = first_lane(mask), words = o->detail & BULK_TENSOR ? o->vector : 1;
    uint32_t left = mask;
    for (uint32_t rest = mask & (mask - 1); rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        bool same = true;
        for (int i = 0; i < 2; i++) same &= slot64(w, o->r[i])[lane] == slot64(w, o->r[i])[first];
        for (int i = 0; i < words; i++) same &= slot32(w, o->r[2 + i])[lane] == slot32(w, o->r[2 + i])[first];
        if (same) left &= ~(1u << lane);
    }
    return left;
}

void emu_exec_bulk(cta *m, warp *w, const op *o, uint32_t mask) {
    if (o->detail & BULK_STORE && !(o->detail & BULK_REDUCES)) mask = without_repeated(w, o, mask);
    for (; mask; mask &= mask - 1) {
        int lane = first_lane(mask);
        bulk_copy copy;
        if (o->detail & BULK_VALUES ? !fill_store(m, w, o, lane, &copy) : !fill_copy(m, w, o, lane, &copy)) continue;
        if (o->detail & BULK_MULTICAST) {
            issue_multicast(m, w, &copy, o->detail & BULK_PAIR, slot32(w, o->r[o->sources - 1])[lane] & 0xffff);
            continue;
        }
        if (!copy.is_store) {
            issue_load(m, w, &copy);
            continue;
        }
        if (m->checks) emu_on_bulk_issue(m, w, &copy);
        m->counts[o->instruction].bytes += copy.bytes;
        bulk_copy *kept = new_copy(m);
        if (!kept) return;
        *kept = copy;
    }
    if (m->checks) emu_on_epoch(m, w);
    if (m->explores) emu_delay_reductions(m, w);
}

/* ---- clusterlaunchcontrol ---- */

/* The next cluster of the grid that has not begun is cancelled: its first CTA, and 1. With a schedule seed the answer
 * is no at times. */
static bool cancel_next(const cta *m, uint32_t response[4]) {
    const cluster *c = m->cluster;
    if (m->launch->schedule && !(m->random >> 40 & 3)) return false;
    uint64_t rest = atomic_load(c->next);
    while (rest < c->total && !atomic_compare_exchange_weak(c->next, &rest, rest + 1)) continue;
    if (rest >= c->total) return false;
    for (int i = 0; i < 3; i++) {
        const uint32_t clusters = m->launch->grid[i] / c->size[i];
        response[i] = (uint32_t)(rest % clusters) * c->size[i];
        rest /= clusters;
    }
    response[3] = 1;
    atomic_fetch_add(&m->device->ctas_done, c->count);
    return true;
}

void emu_exec_cancel(cta *m, warp *w, const op *o, uint32_t mask) {
    for (; mask; mask &= mask - 1) {
        const int lane = first_lane(mask);
        uint32_t response[4] = {0};
        bulk_copy copy = {.instruction = o->instruction,
                          .stamp = w->clock,
                          .warp = w->index,
                          .lane = (uint8_t)lane,
                          .bytes = sizeof response,
                          .has_values = true};
        const uint64_t target = slot64(w, o->r[0])[lane] & ~SHARED_WINDOW;
        if (!find_target(m, w, lane, target, slot64(w, o->r[1])[lane] & ~SHARED_WINDOW, false, &copy) ||
            !shared_range(m, w, lane, copy.shared, copy.bytes, BULK_ALIGNMENT, "target of clusterlaunchcontrol"))
            continue;
        cancel_next(m, response);
        memcpy(copy.values, response, sizeof response);
        if (o->detail)
            issue_multicast(m, w, &copy, false, (uint32_t)((1ull << m->cluster->count) - 1));
        else
            issue_load(m, w, &copy);
    }
    if (m->checks) emu_on_epoch(m, w);
}

/* ---- landing ---- */

/* Object at an address of shared memory, now or earlier. */
static uint8_t *shared_bytes(const bulk_copy *copy, uint32_t address) {
    return copy->kept ? copy->kept + (address - copy->shared) : copy->to->shared + (address - copy->to->shared_base);
}

/* Value of elements outside of the tensor: zero, or the NaN that fma.oob recognizes. */
static void fill_outside(const emu_tensor_info *info, uint8_t *to, uint32_t bytes) {
    static const uint16_t outside = 0x7ff7;
    memset(to, 0, bytes);
    for (uint32_t i = 0; info->fills_NaN && i < bytes; i += sizeof outside) memcpy(to + i, &outside, sizeof outside);
}

/* To the nearest of 10 bits of fraction, of two the even one; every NaN becomes one. As an H200 does. */
static uint32_t rounded_to_tf32(uint32_t bits) {
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffe000u;
    return (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
}

static void round_to_tf32(uint8_t *at, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i += 4) {
        uint32_t each;
        memcpy(&each, at + i, sizeof each);
        each = rounded_to_tf32(each);
        memcpy(at + i, &each, sizeof each);
    }
}

/* Copy bytes of a row from or to `global`. NULL: they are outside of the tensor, so shared memory gets the fill value.
 */
static void move_bytes(const bulk_copy *copy, uint32_t shared, uint32_t bytes, uint8_t *global) {
    const emu_tensor_info *info = &copy->map.info;
    const bool stores = copy->is_store, plain = info->packing <= EMU_FOURS && (stores || !info->rounds);
    while (global && plain && bytes >= CHUNK && !(shared % CHUNK)) { /* of a size that compilers know */
        uint8_t *here = shared_bytes(copy, swizzled(info, shared));
        memcpy(stores ? global : here, stores ? here : global, CHUNK);
        shared += CHUNK, bytes -= CHUNK, global += CHUNK;
    }
    while (bytes) {
        const uint32_t piece = CHUNK - shared % CHUNK < bytes ? CHUNK - shared % CHUNK : bytes;
        uint8_t *here = shared_bytes(copy, swizzled(info, shared));
        const uint32_t dense = tensor_global_bytes(info, piece);
        if (global && dense < piece) { /* numbers of 4 or 6 bits, and zeros after 16 of them */
            memcpy(stores ? global : here, stores ? here : global, dense);
            if (!stores) memset(here + dense, 0, piece - dense);
        } else if (!global) {
            fill_outside(info, here, piece);
        } else {
            memcpy(stores ? global : here, stores ? here : global, piece);
        }
        if (global && !stores && info->rounds) round_to_tf32(here, piece);
        shared += piece, bytes -= piece, global += global ? dense : 0;
    }
}

/* The same, where elements are added to those there or the like; the map says what numbers they are. */
static void reduce_bytes(cta *m, const bulk_copy *copy, uint32_t shared, uint32_t bytes, uint8_t *global) {
    const emu_tensor_info *info = &copy->map.info;
    op reduction = *copy->reduces;
    reduction.bytes = (uint8_t)info->element_bytes;
    reduction.target = (reduction.target & ~0xff) | info->numbers;
    if (info->is_signed) reduction.flags |= FLAG_SIGNED;
    for (uint32_t piece; bytes; shared += piece, bytes -= piece, global += piece) {
        piece = CHUNK - shared % CHUNK < bytes ? CHUNK - shared % CHUNK : bytes;
        emu_reduce(m, &reduction, info->flushes, global, shared_bytes(copy, swizzled(info, shared)), piece);
    }
}

/* Rows to come of a box in memory: a host's processor does not guess their distance. */
static void expect_rows(const emu_tensor_info *info, const uint8_t *row, uint32_t bytes) {
    enum { ROWS = 8, LINE = 64 };
    const uintptr_t next = (uintptr_t)row + (uintptr_t)(ROWS * info->strides[0]);
    for (uint32_t i = 0; info->rank > 1 && i < bytes; i += LINE) __builtin_prefetch((const void *)(next + i));
}

static void move_row(cta *m, const bulk_copy *copy, const int32_t at[5], uint32_t shared, void *unused) {
    (void)unused;
    const emu_tensor_info *info = &copy->map.info;
    const uint32_t size = info->element_bytes, bytes = box_row_bytes(info);
    const char *verb = copy->is_store ? "copies to" : "copies from";
    uint64_t address = 0;
    uint32_t first = 0;
    const uint32_t moved = emu_bytes_inside(copy, at, &address, &first);
    if (!copy->is_store && moved < info->box[0] * size) move_bytes(copy, shared, bytes, NULL);
    if (!moved) return;
    warp *w = &m->warps[copy->warp];
    uint8_t *global = emu_translate(m, w, SPACE_GLOBAL, address, 1, copy->lane, verb);
    if (!global ||
        !emu_translate(m, w, SPACE_GLOBAL, address + tensor_global_bytes(info, moved) - 1, 1, copy->lane, verb))
        return;
    expect_rows(info, global, moved);
    if (copy->reduces)
        reduce_bytes(m, copy, shared + first * size, moved, global);
    else
        move_bytes(copy, shared + first * size, moved, global);
    if (m->checks && copy->is_store) emu_note_output(m, copy->instruction, address, tensor_global_bytes(info, moved));
}

/* Bytes side by side. */
static void move_run(cta *m, const bulk_copy *copy) {
    uint8_t *shared = shared_bytes(copy, copy->shared);
    const uint8_t *from = copy->is_store     ? shared
                          : copy->has_values ? copy->values
                          : copy->source     ? m->shared + (copy->source - m->shared_base)
                                             : copy->memory;
    uint8_t *to = copy->is_store ? copy->memory : shared;
    if (copy->reduces) {
        emu_reduce(m, copy->reduces, false, to, from, copy->bytes);
        return;
    }
    memmove(to, from, copy->bytes);
    if (m->checks && copy->is_store) emu_note_output(m, copy->instruction, copy->address, copy->bytes);
}

void emu_bulk_moves(cta *m, const bulk_copy *copy) {
    uint32_t here = m->here;
    m->here = copy->instruction;
    if (copy->map.info.rank)
        emu_each_row(m, copy, move_row, NULL);
    else
        move_run(m, copy);
    m->here = here;
}

static void remove_copy(cta *m, size_t index) {
    memmove(&m->bulk[index], &m->bulk[index + 1], (--m->bulk_count - index) * sizeof *m->bulk);
}

static void land_load(cta *m, size_t index) {
    const bulk_copy copy = m->bulk[index];
    cta *at = copy.counts_at;
    remove_copy(m, index);
    emu_bulk_moves(m, &copy);
    mbarrier *bar = emu_find_mbarrier(at, copy.mbarrier);
    if (m->checks) emu_on_bulk_complete(m, &copy, bar);
    if (!bar) return;
    const uint32_t here = at->here;
    at->here = copy.instruction;
    emu_mbarrier_bytes(at, bar, -(int64_t)tensor_global_bytes(&copy.map.info, copy.bytes));
    at->here = here;
}

static bool is_waited_for(const bulk_copy *copy) {
    for (uint32_t i = 0; i < copy->counts_at->warp_count; i++) {
        const warp *w = &copy->counts_at->warps[i];
        const bool sleeps = w->state == WARP_AT_MBARRIER || w->state == WARP_POLLING;
        if (sleeps && w->mbarrier_address == copy->mbarrier) return true;
    }
    return false;
}

/* The first load that a warp waits for, so that the others come as late as they may, else the first; with a schedule
 * seed any. */
bool emu_land_next_bulk(cta *m) {
    size_t loads = 0, chosen = 0, wanted = SIZE_MAX;
    for (size_t i = 0; i < m->bulk_count; i++) {
        if (m->bulk[i].is_store) continue;
        if (wanted == SIZE_MAX && is_waited_for(&m->bulk[i])) wanted = loads;
        loads++;
    }
    if (!loads) return false;
    if (m->launch->schedule)
        chosen = (size_t)((m->random >> 20) % loads);
    else if (wanted != SIZE_MAX)
        chosen = wanted;
    for (size_t i = 0; i < m->bulk_count; i++) {
        if (m->bulk[i].is_store || chosen--) continue;
        land_load(m, i);
        break;
    }
    return true;
}

static void land_store(cta *m, size_t index) {
    const bulk_copy copy = m->bulk[index];
    remove_copy(m, index);
    if (!copy.has_turn) emu_bulk_moves(m, &copy);
    if (m->checks) emu_on_bulk_store_read(m, &copy);
}

void emu_exec_bulk_commit(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m, (void)o;
    for (int i = 0; i < LANES; i++) w->bulk_commits[i] += mask >> i & 1;
}

/* In the order of issue; with a schedule seed in any. */
void emu_exec_bulk_wait(cta *m, warp *w, const op *o, uint32_t mask) {
    size_t count = 0;
    for (size_t i = 0; i < m->bulk_count; i++) count += bulk_waits_for(&m->bulk[i], w, o, mask);
    for (; count; count--) {
        size_t skipped = m->launch->schedule ? (size_t)((m->random >> 20) % count) : 0, i = 0;
        while (!bulk_waits_for(&m->bulk[i], w, o, mask) || skipped--) i++;
        land_store(m, i);
    }
    if (m->checks && !o->detail) emu_on_bulk_store_wait(m, w, o, mask);
    if (m->checks) emu_on_epoch(m, w);
}

void emu_check_no_bulk_left(cta *m) {
    for (size_t i = 0; i < m->bulk_count; i++) {
        const bulk_copy *copy = &m->bulk[i];
        m->here = copy->instruction;
        emu_report(
            m, EMU_ASYNC_IN_FLIGHT, UINT32_MAX, &m->warps[copy->warp], copy->lane, -1, copy->shared,
            copy->is_store
                ? "The CTA ends while this bulk copy may still read its shared memory at 0x%x.\n"
                  "Nothing promises that the memory is kept for it. The thread that copies waits before it ends: "
                  "cp.async.bulk.commit_group, then cp.async.bulk.wait_group.read 0."
                : "The CTA ends while this bulk copy may still write its shared memory at 0x%x.\n"
                  "Another CTA may have that memory then. A thread must wait for the phase of the mbarrier "
                  "before it ends.",
            copy->shared);
    }
}

void emu_land_stores(cta *m) {
    for (size_t i = 0; i < m->bulk_count;) {
        if (m->bulk[i].is_store)
            land_store(m, i);
        else
            i++;
    }
}
