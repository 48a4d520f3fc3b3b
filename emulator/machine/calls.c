/* calls.c - calls of functions: what is passed, frames in local memory, and where lanes continue after the return.
 *
 * A call pushes the position after it like the mark of a branch: there all lanes of the call continue together. The
 * function has registers of its own. In a recursive call they are saved, and restored at the return.
 */
#include "calls.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 1024, HEAP_BYTES = 8 << 20 /* the default of cudaLimitMallocHeapSize */ };

static uint8_t *frame_of(const cta *m, const warp *w, int lane) {
    return m->local + (size_t)(w->index * LANES + lane) * m->code->local_bytes + w->frame_base[lane];
}

/* ---- registers of functions that call themselves ---- */

static size_t saved_words(const routine *of) {
    return (size_t)(of->slot_end - of->slot_begin) * (LANES + 1) +
           2 * (size_t)(of->predicate_end - of->predicate_begin);
}

static uint32_t *save_registers(const entry *code, const warp *w, const routine *of) {
    const size_t slots = (size_t)(of->slot_end - of->slot_begin) * LANES;
    const size_t predicates = of->predicate_end - of->predicate_begin;
    uint32_t *saved = malloc((saved_words(of) + 1) * sizeof *saved);
    if (!saved) return NULL;
    memcpy(saved, slot32(w, of->slot_begin), slots * sizeof *saved);
    memcpy(saved + slots, w->predicates + of->predicate_begin, predicates * sizeof *saved);
    emu_save_undefined(code, w, of, saved + slots + predicates);
    return saved;
}

/* A 64-bit register is two slots, its lanes side by side: which words are a lane's depends on the register. */
static void restore_registers(const entry *code, warp *w, const routine *of, const uint32_t *saved, uint32_t mask) {
    for (uint32_t v = of->register_begin; v < of->register_end; v++) {
        const virtual_register *reg = &code->registers[v];
        if (reg->kind != REGISTER_PLAIN || reg->bits == 1) continue;
        if (reg->slot < of->slot_begin || reg->slot >= of->slot_end) continue; /* it occurs in no op */
        const uint32_t *from = saved + (size_t)(reg->slot - of->slot_begin) * LANES;
        for (uint32_t rest = mask; rest; rest &= rest - 1) {
            const int lane = first_lane(rest);
            if (reg->bits <= 32) {
                slot32(w, reg->slot)[lane] = from[lane];
                continue;
            }
            memcpy(&slot64(w, reg->slot)[lane], from + 2 * lane, 8);
            if (reg->bits == 128) memcpy(&slot64(w, reg->slot)[LANES + lane], from + 2 * (LANES + lane), 8);
        }
    }
    const uint32_t *predicates = saved + (size_t)(of->slot_end - of->slot_begin) * LANES;
    for (uint32_t p = of->predicate_begin; p < of->predicate_end; p++) {
        uint32_t *own = &w->predicates[p];
        *own = (*own & ~mask) | (predicates[p - of->predicate_begin] & mask);
    }
    emu_restore_undefined(code, w, of, predicates + (of->predicate_end - of->predicate_begin), mask);
}

/* ---- frames ---- */

static void release_lanes(call_frame *frame, uint32_t mask) {
    frame->lanes &= ~mask;
    if (frame->lanes) return;
    free(frame->saved);
    frame->saved = NULL;
}

/* The index of a frame without lanes, which is nearly always the last; -1 when out of memory. */
static int free_frame(warp *w) {
    const int first = w->frame_count < MAX_DEPTH ? w->frame_count - 1 : 0;
    for (int i = w->frame_count - 1; i >= 0 && i >= first; i--) {
        if (!w->frames[i].lanes) return i;
    }
    call_frame *frames = emu_reserve(w->frames, (size_t)w->frame_count + 1, &w->frame_capacity, sizeof *frames);
    if (!frames) return -1;
    w->frames = frames;
    w->frames[w->frame_count] = (call_frame){0};
    return w->frame_count++;
}

static bool reserve_paths(warp *w) {
    path *larger = emu_reserve(w->stack, (size_t)w->depth + MAX_PATHS, &w->stack_capacity, sizeof *larger);
    if (larger) w->stack = larger;
    return larger != NULL;
}

static void run_out(cta *m, bool memory) {
    m->out_of_memory |= memory;
    m->faulted = true;
}

/* ---- a call ---- */

/* The frames must fit the thread's local memory; false after a report. */
static bool frames_fit(cta *m, const warp *w, const call_site *site, const routine *to, uint32_t mask) {
    const uint32_t own = m->code->routines[site->caller].frame_bytes;
    const int depth = w->frame < 0 ? 0 : w->frames[w->frame].depth;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        const uint64_t end = (uint64_t)w->frame_base[lane] + own + to->frame_bytes;
        if (end <= m->code->local_bytes && depth < MAX_DEPTH) continue;
        emu_report(
            m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, lane, -1, 0,
            "This call of function '%.100s' is number %d of calls within calls, and its frame ends at byte %" PRIu64
            " of the thread's local memory.\n"
            "There are %u bytes of it, and at most %d calls within calls: the recursion may have no end.",
            to->name, depth + 1, end, m->code->local_bytes, MAX_DEPTH);
        m->faulted = true;
        return false;
    }
    return true;
}

/* By address: what is passed must be what the function takes. */
static bool passed_fits(cta *m, const warp *w, const call_site *site, const routine *to, int lane) {
    bool fits = site->results == to->results && site->actual_count == to->formal_count;
    for (int i = 0; fits && i < site->actual_count; i++) fits = site->actuals[i].bytes == to->formals[i].bytes;
    if (fits) return true;
    emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, lane, -1, 0,
               "Function '%.100s' takes other parameters or gives other results than this call passes.", to->name);
    m->faulted = true;
    return false;
}

/* The frame of a call of some lanes; -1 after a report. */
static int enter(cta *m, warp *w, const call_site *site, int callee, uint32_t mask) {
    const entry *code = m->code;
    const routine *to = &code->routines[callee];
    if (!frames_fit(m, w, site, to, mask) || !passed_fits(m, w, site, to, first_lane(mask))) return -1;
    const int index = free_frame(w);
    if (index < 0) {
        run_out(m, true);
        return -1;
    }
    call_frame *frame = &w->frames[index];
    *frame = (call_frame){.caller = w->frame,
                          .depth = w->frame < 0 ? 1 : w->frames[w->frame].depth + 1,
                          .routine = callee,
                          .return_pc = w->pc,
                          .site = site,
                          .instruction = m->here,
                          .apart = w->split,
                          .lanes = mask};
    if (to->recurses && !(frame->saved = save_registers(code, w, to))) run_out(m, true);
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        const uint8_t *from = frame_of(m, w, lane);
        frame->base[lane] = w->frame_base[lane];
        w->frame_base[lane] += code->routines[site->caller].frame_bytes;
        uint8_t *own = frame_of(m, w, lane);
        for (int i = site->results; i < site->actual_count; i++)
            memcpy(own + to->formals[i].offset, from + site->actuals[i].offset, site->actuals[i].bytes);
    }
    if (m->checks) emu_on_call(code, w, to, mask);
    return index;
}

/* The routine at an address, -1 after a report. */
static int find_routine(cta *m, const warp *w, uint64_t address, int lane) {
    for (size_t i = 1; i < m->code->routine_count; i++) {
        const routine *each = &m->code->routines[i];
        if (each->address_taken && FUNCTION_WINDOW + 16ull * (uint32_t)each->function == address) return (int)i;
    }
    emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, lane, -1, address,
               "This instruction calls 0x%" PRIx64 ", where no function begins.", address);
    m->faulted = true;
    return -1;
}

static uint32_t lanes_that_call(const uint64_t *addresses, uint64_t wanted, uint32_t mask) {
    uint32_t lanes = 0;
    for (int i = 0; i < LANES; i++) lanes |= (uint32_t)(addresses[i] == wanted) << i;
    return lanes & mask;
}

static void call_routine(cta *m, warp *w, const op *o, uint32_t mask) {
    const call_site *site = &m->code->calls[o->immediate];
    const uint64_t *addresses = o->sources ? slot64(w, o->r[0]) : NULL;
    const uint32_t stays = w->split ? w->active & ~mask : w->active;
    path callee = {0};
    if (!reserve_paths(w)) {
        run_out(m, true);
        return;
    }
    if (stays)
        w->stack[w->depth++] =
            (path){.pc = w->pc, .join = w->join, .mask = stays, .frame = w->frame, .turns = w->turns};
    for (uint32_t rest = mask; rest;) {
        const int lane = first_lane(rest);
        const uint32_t group = addresses ? lanes_that_call(addresses, addresses[lane], rest) : rest;
        const int to = addresses ? find_routine(m, w, addresses[lane], lane) : site->callee;
        const int frame = to < 0 ? -1 : enter(m, w, site, to, group);
        if (frame < 0) return;
        if (callee.mask) w->stack[w->depth++] = callee;
        callee = (path){
            .pc = (int32_t)m->code->routines[to].begin, .join = -1, .mask = group, .frame = frame, .turns = w->turns};
        rest &= ~group;
    }
    w->pc = callee.pc;
    w->join = -1;
    w->active = callee.mask;
    w->frame = callee.frame;
}

void emu_return_from_call(cta *m, warp *w, uint32_t mask) {
    call_frame *frame = &w->frames[w->frame];
    const routine *from = &m->code->routines[frame->routine];
    const call_site *site = frame->site;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        const uint8_t *own = frame_of(m, w, lane);
        w->frame_base[lane] = frame->base[lane];
        uint8_t *to = frame_of(m, w, lane);
        for (int i = 0; i < site->results; i++)
            memcpy(to + site->actuals[i].offset, own + from->formals[i].offset, site->actuals[i].bytes);
    }
    if (frame->saved) restore_registers(m->code, w, from, frame->saved, mask);
    const int32_t pc = frame->return_pc, caller = frame->caller;
    const uint32_t stay = w->active & ~mask;
    const bool apart = frame->apart;
    release_lanes(frame, mask);
    if (!apart) {
        w->active = stay;
        return;
    }
    if (!w->split && (stay || w->depth)) emu_split_warp(w);
    if (stay)
        w->stack[w->depth++] = (path){.pc = w->pc, .join = -1, .mask = stay, .frame = w->frame, .turns = w->turns};
    w->pc = pc;
    w->active = mask;
    w->frame = caller;
    w->join = -1;
    if (w->split) emu_next_path(m, w, PATH_RUNS);
}

void emu_exec_frame(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m;
    for (; mask; mask &= mask - 1) slot64(w, o->r[0])[first_lane(mask)] = w->frame_base[first_lane(mask)];
}

void emu_leave_calls(warp *w, uint32_t mask) {
    for (int i = 0; i < w->frame_count; i++) {
        if (w->frames[i].lanes & mask) release_lanes(&w->frames[i], mask);
    }
}

void emu_free_calls(warp *w) {
    for (int i = 0; i < w->frame_count; i++) free(w->frames[i].saved);
    free(w->frames);
}

/* ---- built in ---- */

static uint64_t argument(const call_site *site, const uint8_t *frame, int index) {
    const passed *where = &site->actuals[site->results + index];
    uint64_t value = 0;
    memcpy(&value, frame + where->offset, where->bytes < 8 ? where->bytes : 8);
    return value;
}

static void print(cta *m, const warp *w, const call_site *site, int lane) {
    const uint8_t *own = m->local + (size_t)(w->index * LANES + lane) * m->code->local_bytes;
    uint8_t *frame = frame_of(m, w, lane);
    const uint64_t format = argument(site, frame, 0), offset = argument(site, frame, 1) - LOCAL_WINDOW;
    const bool own_memory = offset < m->code->local_bytes;
    int32_t printed = -1; /* without a format */
    if (format)
        printed = emu_device_printf(m, emu_device_string(m, format), own_memory ? own + offset : NULL,
                                    own_memory ? m->code->local_bytes - (size_t)offset : 0);
    if (site->results && site->actuals[0].bytes >= sizeof printed)
        memcpy(frame + site->actuals[0].offset, &printed, sizeof printed);
}

static void fail_assertion(cta *m, const warp *w, const call_site *site, int lane) {
    const uint8_t *frame = frame_of(m, w, lane);
    emu_report(m, EMU_ASSERT, UINT32_MAX, w, lane, -1, 0, "Assertion '%s' failed, at %s:%u.",
               emu_device_string(m, argument(site, frame, 0)), emu_device_string(m, argument(site, frame, 1)),
               (unsigned)argument(site, frame, 2));
    m->faulted = true;
}

/* A buffer of its own, so that its bounds are checked. It is uninitialized, as on a device. */
static void allocate(cta *m, const warp *w, const call_site *site, int lane) {
    emu_device *device = m->device;
    uint8_t *frame = frame_of(m, w, lane);
    const uint64_t bytes = argument(site, frame, 0);
    uint64_t address = 0;
    if (bytes && bytes <= HEAP_BYTES && device->heap_bytes + bytes <= HEAP_BYTES) {
        char name[64];
        snprintf(name, sizeof name, "malloc at PTX line %d", emu_location_of(m->code, m->here).ptx_line);
        address = emu_alloc(device, name, bytes, EMU_BUFFER);
    }
    if (address) {
        buffer *made = emu_find_buffer(device, address);
        made->in_heap = true;
        if (!emu_mark_uninitialized(device, address)) m->out_of_memory = m->faulted = true;
        device->heap_bytes += bytes;
    }
    if (site->results) memcpy(frame + site->actuals[0].offset, &address, sizeof address);
}

static void release(cta *m, const warp *w, const call_site *site, int lane) {
    const uint64_t address = argument(site, frame_of(m, w, lane), 0);
    const buffer *which = emu_find_buffer(m->device, address);
    if (!address) return;
    if (which && which->in_heap && which->bytes) {
        const uint64_t bytes = which->size;
        if (emu_free(m->device, address)) {
            m->device->heap_bytes -= bytes;
            return;
        }
    }
    emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, lane, -1, address,
               "This call frees 0x%" PRIx64 ", %s.\nOnly what malloc() on the device gave may be freed, and once.",
               address,
               which && which->in_heap && !which->bytes ? "which was freed before" : "which malloc() did not give");
}

void emu_exec_call(cta *m, warp *w, const op *o, uint32_t mask) {
    const call_site *site = &m->code->calls[o->immediate];
    if (o->detail == CALL_ROUTINE) {
        call_routine(m, w, o, mask);
        return;
    }
    for (; mask; mask &= mask - 1) {
        if (o->detail == CALL_PRINTF)
            print(m, w, site, first_lane(mask));
        else if (o->detail == CALL_ASSERT)
            fail_assertion(m, w, site, first_lane(mask));
        else if (o->detail == CALL_MALLOC)
            allocate(m, w, site, first_lane(mask));
        else
            release(m, w, site, first_lane(mask));
    }
}
