/* warp.c - one warp runs: guards, lanes, divergence.
 *
 * At a branch that parts the lanes, one side runs on and the other is put on a stack; both run up to the JOIN mark of
 * the branch, where the whole group continues together. The stack entry below the two sides holds that group. Lanes
 * that need each other before they come to the mark split the warp: see paths.c.
 */
#include "calls.h"
#include "interleaving.h"

#include <inttypes.h>

/* ---- divergence ---- */

static void push_path(warp *w, int32_t pc, int32_t join, uint32_t mask) {
    w->stack[w->depth++] = (path){.pc = pc, .join = join, .mask = mask, .frame = w->frame};
}

/* The next path on the stack that still has lanes; without one the warp is done. */
static void pop_path(warp *w) {
    w->spins = 0;
    while (w->depth) {
        path next = w->stack[--w->depth];
        next.mask &= ~w->exited;
        if (!next.mask) continue;
        w->pc = next.pc;
        w->join = next.join;
        w->frame = next.frame;
        w->active = next.mask;
        return;
    }
    w->active = 0;
    w->state = WARP_DONE;
}

/* In a split warp both sides are paths like the others. */
static void part_split(cta *m, warp *w, const op *o, uint32_t taken) {
    w->stack[w->depth++] = (path){.pc = o->target, .join = -1, .mask = taken, .turns = w->turns, .frame = w->frame};
    w->active &= ~taken;
    emu_next_path(m, w, PATH_RUNS);
}

void emu_exec_branch(cta *m, warp *w, const op *o, uint32_t taken) {
    uint32_t stays = w->active & ~taken;
    int32_t next = w->pc;
    if (!taken) return;
    if (!stays) {
        w->pc = o->target;
        if (w->depth && (w->split || o->detail == BRANCH_MAY_SPIN)) emu_take_turns(m, w);
        return;
    }
    if (w->split) {
        part_split(m, w, o, taken);
        return;
    }
    if (w->join != o->join && o->join >= 0) push_path(w, o->join, w->join, w->active);
    bool same_group = o->join < 0;
    int32_t join = same_group ? w->join : o->join;
    path sides[2] = {{.pc = next, .join = join, .mask = stays}, {.pc = o->target, .join = join, .mask = taken}};
    int first = m->launch->schedule && (m->random >> 33 & 1) ? 1 : 0;
    if (!same_group && sides[first].pc == o->join) first = 1 - first;
    const path *runs = &sides[first], *waits = &sides[1 - first];
    if (same_group || waits->pc != o->join) push_path(w, waits->pc, join, waits->mask);
    w->pc = runs->pc;
    w->active = runs->mask;
    w->join = join;
}

void emu_exec_exit(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)o;
    w->exited |= mask;
    w->active &= ~mask;
    if (w->frame_count) emu_leave_calls(w, mask);
    for (int i = 0; w->split && i < w->depth; i++) { /* those that waited for these lanes look again */
        if (w->stack[i].state == PATH_WAITS) w->stack[i].state = PATH_RUNS;
    }
    if (!w->active && w->split) emu_next_path(m, w, PATH_RUNS);
    if (!w->active) pop_path(w);
    if (w->state == WARP_DONE) emu_barriers_after_exit(m);
    emu_cluster_after_exit(m);
}

/* ---- time ---- */

/* Time is the warp instructions that the CTA has run, so that runs repeat exactly: a clock cycle and a nanosecond each.
 */
void emu_exec_clock(cta *m, warp *w, const op *o, uint32_t mask) {
    bool upper = o->detail == SPECIAL_CLOCK_HI || o->detail == SPECIAL_GLOBALTIMER_HI;
    const uint64_t now = emu_drawn_time(m->steps);
    uint64_t time = upper ? now >> 32 : now;
    for (; mask; mask &= mask - 1) {
        int lane = first_lane(mask);
        if (o->bytes == 8)
            slot64(w, o->r[0])[lane] = time;
        else
            slot32(w, o->r[0])[lane] = (uint32_t)time;
    }
}

/* ---- operations of a few lines ---- */

void emu_exec_nothing(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m, (void)w, (void)o, (void)mask;
}

void emu_exec_trap(cta *m, warp *w, const op *o, uint32_t mask) {
    emu_report(m, EMU_TRAP, UINT32_MAX, w, first_lane(mask), -1, 0, "%s",
               o->detail == TRAP_NO_TARGET ? "The index of this branch is beyond its .branchtargets."
                                           : "The program stops itself here: trap.");
    m->faulted = true;
}

void emu_exec_return(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)o;
    emu_return_from_call(m, w, mask);
    if (!w->active) pop_path(w);
}

void emu_exec_active_mask(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)m;
    for (uint32_t rest = mask; rest; rest &= rest - 1) slot32(w, o->r[0])[first_lane(rest)] = mask;
}

void emu_exec_fence(cta *m, warp *w, const op *o, uint32_t mask) {
    if (m->explores) emu_delayed_fence(w);
    if (m->checks) emu_on_fence(m, w, o, mask);
}

void emu_exec_proxy_fence(cta *m, warp *w, const op *o, uint32_t mask) {
    if (m->checks) emu_on_proxy_fence(m, w, mask, o->detail);
}

void emu_exec_init_fence(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)o;
    if (m->checks) emu_on_init_fence(m, w, mask);
}

void emu_exec_grid_wait(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)o;
    if (m->checks) emu_on_grid_wait(m, w, mask);
}

/* ---- dispatch ---- */

#define WHEN_LANES_EACH(handler) handler(m, w, o, mask);
#define WHEN_LANES_WARP(handler)                                                                                       \
    if (mask == ALL_LANES || !emu_hold_lanes(m, w, o, mask)) {                                                         \
        emu_check_all_lanes(m, w, mask);                                                                               \
        handler(m, w, o, mask);                                                                                        \
    }
#define WHEN_LANES_WARPGROUP(handler) WHEN_LANES_WARP(handler)
#define WHEN_LANES_LIVE(handler)                                                                                       \
    if (mask == live_lanes(w) || !emu_hold_lanes(m, w, o, mask)) handler(m, w, o, mask);
#define WHEN_LANES_ALIGNED(handler)                                                                                    \
    if (o->vector || mask == live_lanes(w) || !emu_hold_lanes(m, w, o, mask)) handler(m, w, o, mask);
#define WHEN_LANES_NAMED(handler) emu_run_members(m, w, o, mask, handler);

/* The compiler makes one jump of this, and expands the handlers of this file in it. */
static void run_op(cta *m, warp *w, const op *o, uint32_t mask) {
    switch ((op_kind)o->kind) {
#define OP_ROW(kind, lanes, handler, text)                                                                             \
    case kind:                                                                                                         \
        WHEN_##lanes(handler) break;
#include "../ptx/forms_table.h"
    case OP_KINDS:
        break;
    }
}

/* ---- the loop ---- */

void emu_warp_run(cta *m, warp *w, uint64_t budget) {
    const op *ops = m->code->ops;
    const bool explores = m->explores;
    bool tracing = m->launch->trace.file || m->launch->trace.events;
    uint64_t limit = m->launch->step_limit ? m->launch->step_limit : 4000000000u;
    while (w->state == WARP_READY && !m->faulted) {
        const op *o = &ops[w->pc++];
        if (o->kind == OP_JOIN) {
            if (w->split)
                emu_next_path(m, w, PATH_RUNS);
            else if (w->pc - 1 == w->join)
                pop_path(w);
            continue;
        }
        uint32_t mask = lanes_on(w, o);
        m->here = o->instruction;
        if (o->flags & FLAG_FIRST) {
            m->steps++;
            op_counts *counts = &m->counts[o->instruction];
            counts->executed += mask != 0 || o->kind == OP_BRANCH;
            counts->lanes += population(mask);
            if (m->steps > limit) {
                emu_report(m, EMU_STEP_LIMIT, UINT32_MAX, w, -1, -1, 0,
                           "The CTA ran %" PRIu64
                           " warp instructions without coming to an end: an endless loop, or a limit too low.",
                           limit);
                m->faulted = true;
                return;
            }
        }
        if (w->undefined_count) emu_on_op(m, w, o, mask);
        if (!mask || (explores && emu_delayed_holds(m, w, o, mask))) continue;
        if (w->check_registers && o->kind != OP_WGMMA) w->check_registers(m, w, o);
        bool traced = tracing && emu_trace_wants(m, w, o);
        run_op(m, w, o, mask);
        bool ran = !w->tries_again;
        w->tries_again = false;
        if (traced && ran) {
            m->traced++;
            if (emu_trace_op(m, w, o, mask)) return;
        }
        if (w->poll_failed) return;
        if (!--budget) return;
    }
}
