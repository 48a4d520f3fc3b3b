/* warp.c - one warp runs: guards, lanes, divergence.
 *
 * At a branch that parts the lanes, one side runs on and the other is put on a stack; both run up to the JOIN mark of
 * the branch, where the whole group continues together. The stack entry below the two sides holds that group. Lanes
 * that need each other before they come to the mark split the warp: see paths.c.
 */
#include "calls.h"
#include "interleaving.h"

#include <fenv.h>
#include <inttypes.h>
#include <string.h>

static const uint32_t lane_bit[LANES] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,  1u << 8,  1u << 9,  1u << 10,
    1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21,
    1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};

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

static void branch(cta *m, warp *w, const op *o, uint32_t taken) {
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

static void leave(cta *m, warp *w, uint32_t mask) {
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

/* ---- lanes ---- */

static void blend32(uint32_t *d, const uint32_t *from, uint32_t mask) {
    for (int i = 0; i < LANES; i++) d[i] = mask & lane_bit[i] ? from[i] : d[i];
}

static void blend64(uint64_t *d, const uint64_t *from, uint32_t mask) {
    for (int i = 0; i < LANES; i++) {
        if (mask >> i & 1) d[i] = from[i];
    }
}

static void run_lanes(warp *w, const op *o, uint32_t mask) {
    uint64_t scratch[2 * LANES];
    uint32_t last_two[2 * LANES];
    void *d = mask == ALL_LANES ? (void *)slot32(w, o->r[0]) : scratch;
    const void *c = slot32(w, o->r[3]);
    if (o->kind == OP_LANES_4) {
        memcpy(last_two, c, LANES * sizeof *last_two);
        memcpy(last_two + LANES, slot32(w, o->r[4]), LANES * sizeof *last_two);
        c = last_two;
    }
    o->run.lanes(d, slot32(w, o->r[1]), slot32(w, o->r[2]), c);
    if (mask == ALL_LANES) return;
    if (o->bytes == 4) {
        blend32(slot32(w, o->r[0]), (const uint32_t *)(const void *)scratch, mask);
    } else {
        blend64(slot64(w, o->r[0]), scratch, mask);
        if (o->bytes == 16) blend64(slot64(w, o->r[0]) + LANES, scratch + LANES, mask);
    }
}

/* Lane functions round as the host's floating-point unit does. */
static void run_rounded(warp *w, const op *o, uint32_t mask) {
    static const int modes[] = {[ROUND_NEAREST] = FE_TONEAREST,
                                [ROUND_ZERO] = FE_TOWARDZERO,
                                [ROUND_DOWN] = FE_DOWNWARD,
                                [ROUND_UP] = FE_UPWARD};
    fesetround(modes[o->detail]);
    run_lanes(w, o, mask);
    fesetround(FE_TONEAREST);
}

static void run_select(warp *w, const op *o, uint32_t mask) {
    uint32_t first = w->predicates[o->p[2]];
    if (o->bytes == 8) {
        uint64_t *d = slot64(w, o->r[0]);
        const uint64_t *a = slot64(w, o->r[1]), *b = slot64(w, o->r[2]);
        for (int i = 0; i < LANES; i++) d[i] = !(mask & lane_bit[i]) ? d[i] : first & lane_bit[i] ? a[i] : b[i];
        return;
    }
    uint32_t *d = slot32(w, o->r[0]);
    const uint32_t *a = slot32(w, o->r[1]), *b = slot32(w, o->r[2]);
    for (int i = 0; i < LANES; i++) d[i] = !(mask & lane_bit[i]) ? d[i] : first & lane_bit[i] ? a[i] : b[i];
}

static void set_predicate(warp *w, unsigned p, uint32_t value, uint32_t mask) {
    if (p != NO_PREDICATE) w->predicates[p] = (w->predicates[p] & ~mask) | (value & mask);
}

static void run_compare(warp *w, const op *o, uint32_t mask) {
    uint32_t value = o->run.compare(slot32(w, o->r[0]), slot32(w, o->r[1]), (uint32_t)o->immediate), opposite = ~value;
    if (o->detail) {
        uint32_t other = w->predicates[o->p[2]] ^ (o->flags & FLAG_PREDICATE_NEGATED ? ALL_LANES : 0);
        value = o->detail == COMBINE_AND ? value & other : o->detail == COMBINE_OR ? value | other : value ^ other;
        opposite = o->detail == COMBINE_AND  ? opposite & other
                   : o->detail == COMBINE_OR ? opposite | other
                                             : opposite ^ other;
    }
    set_predicate(w, o->p[0], value, mask);
    set_predicate(w, o->p[1], opposite, mask);
}

static void run_predicate(warp *w, const op *o, uint32_t mask) {
    uint32_t a = o->p[1] == NO_PREDICATE ? (o->immediate ? ALL_LANES : 0) : w->predicates[o->p[1]];
    uint32_t b = o->p[2] == NO_PREDICATE ? 0 : w->predicates[o->p[2]];
    uint32_t value = o->detail == PREDICATE_MOVE  ? a
                     : o->detail == PREDICATE_NOT ? ~a
                     : o->detail == PREDICATE_AND ? a & b
                     : o->detail == PREDICATE_OR  ? a | b
                                                  : a ^ b;
    set_predicate(w, o->p[0], value, mask);
}

/* ---- time ---- */

/* Time is the warp instructions that the CTA has run, so that runs repeat exactly: a clock cycle and a nanosecond each.
 */
static void run_clock(const cta *m, warp *w, const op *o, uint32_t mask) {
    bool upper = o->detail == SPECIAL_CLOCK_HI || o->detail == SPECIAL_GLOBALTIMER_HI;
    uint64_t time = upper ? m->steps >> 32 : m->steps;
    for (; mask; mask &= mask - 1) {
        int lane = first_lane(mask);
        if (o->bytes == 8)
            slot64(w, o->r[0])[lane] = time;
        else
            slot32(w, o->r[0])[lane] = (uint32_t)time;
    }
}

/* ---- the loop ---- */

/* The instructions on matrices that attention kernels do not use. */
static void run_matrix(cta *m, warp *w, const op *o, uint32_t mask) {
    if (mask != ALL_LANES && emu_hold_lanes(m, w, o, mask)) return;
    emu_check_all_lanes(m, w, mask);
    if (o->kind == OP_MATRIX)
        emu_exec_matrix(w, o);
    else if (o->kind == OP_WMMA_LOAD)
        emu_exec_wmma_load(m, w, o);
    else if (o->kind == OP_WMMA_STORE)
        emu_exec_wmma_store(m, w, o);
    else if (o->kind == OP_STMATRIX)
        emu_exec_stmatrix(m, w, o, mask);
    else
        emu_exec_movmatrix(m, w, o, mask);
}

static void run_warpgroup(cta *m, warp *w, const op *o, uint32_t mask) {
    if (mask != ALL_LANES && emu_hold_lanes(m, w, o, mask)) return;
    if (o->kind == OP_WGMMA)
        emu_exec_wgmma(m, w, o, mask);
    else if (o->kind == OP_MAX_REGISTERS)
        emu_exec_max_registers(m, w, o, mask);
    else if (o->kind == OP_WGMMA_FENCE)
        emu_exec_wgmma_fence(m, w, o, mask);
    else if (o->kind == OP_WGMMA_COMMIT)
        emu_exec_wgmma_commit(m, w, o, mask);
    else
        emu_exec_wgmma_wait(m, w, o, mask);
}

/* Lanes wait for those of their warp, except an arrival without .aligned. */
static void run_cluster_barrier(cta *m, warp *w, const op *o, uint32_t mask) {
    const bool apart = o->vector && o->detail != CLUSTER_WAIT;
    if (apart || mask == live_lanes(w) || !emu_hold_lanes(m, w, o, mask)) emu_exec_cluster_barrier(m, w, o, mask);
}

/* Lanes on for an op: active and, where there is a guard, allowed by it. */
static uint32_t lanes_on(const warp *w, const op *o) {
    if (o->guard == NO_PREDICATE) return w->active;
    uint32_t guard = w->predicates[o->guard];
    return w->active & (o->flags & FLAG_GUARD_NEGATED ? ~guard : guard);
}

bool emu_step_registers(const cta *m, warp *w) {
    const op *o = &m->code->ops[w->pc];
    const uint32_t mask = lanes_on(w, o);
    if (o->kind == OP_JOIN && w->pc == w->join) return false;
    if (o->kind == OP_BRANCH && mask && mask != w->active) return false;
    w->pc++;
    if (o->kind == OP_BRANCH && mask) w->pc = o->target;
    if (!mask || o->kind == OP_JOIN || o->kind == OP_BRANCH || o->kind == OP_NOTHING) return true;
    if (o->kind == OP_LANES || o->kind == OP_LANES_4)
        run_lanes(w, o, mask);
    else if (o->kind == OP_COMPARE)
        run_compare(w, o, mask);
    else if (o->kind == OP_SELECT)
        run_select(w, o, mask);
    else if (o->kind == OP_PREDICATE)
        run_predicate(w, o, mask);
    else
        w->pc--;
    return o->kind <= OP_PREDICATE && o->kind != OP_ROUNDED && o->kind != OP_CARRY;
}

/* Without a default: a kind of op that nothing runs does not compile. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch"
static void run_other(cta *m, warp *w, const op *o, uint32_t mask) {
    switch ((op_kind)o->kind) {
    case OP_ROUNDED:
        run_rounded(w, o, mask);
        break;
    case OP_CARRY:
        emu_exec_carry(w, o, mask);
        break;
    case OP_TRAP:
        emu_report(m, EMU_TRAP, UINT32_MAX, w, first_lane(mask), -1, 0, "%s",
                   o->detail == TRAP_NO_TARGET ? "The index of this branch is beyond its .branchtargets."
                                               : "The program stops itself here: trap.");
        m->faulted = true;
        break;
    case OP_CALL:
        emu_exec_call(m, w, o, mask);
        break;
    case OP_RETURN:
        emu_exec_return(m, w, mask);
        if (!w->active) pop_path(w);
        break;
    case OP_FRAME:
        emu_exec_frame(w, o, mask);
        break;
    case OP_ATOMIC:
        emu_exec_atomic(m, w, o, mask);
        break;
    case OP_MATRIX:
    case OP_WMMA_LOAD:
    case OP_WMMA_STORE:
    case OP_STMATRIX:
    case OP_MOVMATRIX:
        run_matrix(m, w, o, mask);
        break;
    case OP_ADDRESS:
        emu_exec_address(m, w, o, mask);
        break;
    case OP_TEXTURE:
        emu_exec_texture(m, w, o, mask);
        break;
    case OP_SURFACE:
        emu_exec_surface(m, w, o, mask);
        break;
    case OP_CLOCK:
        run_clock(m, w, o, mask);
        break;
    case OP_MBARRIER_BYTES:
        emu_exec_mbarrier_bytes(m, w, o, mask);
        break;
    case OP_BULK:
        emu_exec_bulk(m, w, o, mask);
        if (m->explores) emu_late_reductions(m, w);
        break;
    case OP_BULK_COMMIT:
        for (int i = 0; i < LANES; i++) w->bulk_commits[i] += mask >> i & 1;
        break;
    case OP_BULK_WAIT:
        emu_exec_bulk_wait(m, w, o, mask);
        break;
    case OP_TENSOR_FIELD:
        emu_exec_tensor_field(m, w, o, mask);
        break;
    case OP_TENSOR_MAP_COPY:
        emu_exec_tensor_map_copy(m, w, o, mask);
        break;
    case OP_ELECT:
        emu_run_members(m, w, o, mask, 1, emu_exec_elect);
        break;
    case OP_PROXY_FENCE:
        if (m->checks) emu_proxy_fence(m, w, mask, o->detail);
        if (m->checks) emu_global_proxy_fence(m, o->detail);
        break;
    case OP_INIT_FENCE:
        if (m->checks && m->proxy_fences) emu_init_fence(m, w, mask);
        if (w->released) emu_cluster_fence(m, w);
        break;
    case OP_MAX_REGISTERS:
    case OP_WGMMA_FENCE:
    case OP_WGMMA_COMMIT:
    case OP_WGMMA_WAIT:
        run_warpgroup(m, w, o, mask);
        break;
    case OP_COPY_ARRIVE:
        emu_exec_copy_arrive(m, w, o, mask);
        break;
    case OP_BARRIER:
        if (mask == live_lanes(w) || !emu_hold_lanes(m, w, o, mask)) emu_exec_barrier(m, w, o, mask);
        break;
    case OP_WARP_BARRIER:
        emu_run_members(m, w, o, mask, 0, emu_exec_warp_barrier);
        break;
    case OP_VOTE:
        emu_run_members(m, w, o, mask, o->dests, emu_exec_vote);
        break;
    case OP_REDUX:
        emu_run_members(m, w, o, mask, 2, emu_exec_redux);
        break;
    case OP_MATCH:
        emu_run_members(m, w, o, mask, 2, emu_exec_match);
        break;
    case OP_MBARRIER_INIT:
        emu_exec_mbarrier_init(m, w, o, mask);
        break;
    case OP_MBARRIER_ARRIVE:
        emu_exec_mbarrier_arrive(m, w, o, mask);
        break;
    case OP_MBARRIER_WAIT:
        if (m->orders) emu_orders_ask(m, w, o, mask, emu_step_registers);
        emu_exec_mbarrier_wait(m, w, o, mask);
        if (w->state != WARP_READY) emu_path_sleeps(m, w);
        break;
    case OP_MBARRIER_INVALIDATE:
        emu_exec_mbarrier_invalidate(m, w, o, mask);
        break;
    case OP_CLUSTER_BARRIER:
        run_cluster_barrier(m, w, o, mask);
        break;
    case OP_MAP_ADDRESS:
        emu_exec_map_address(m, w, o, mask);
        break;
    case OP_CTA_RANK:
        emu_exec_cta_rank(m, w, o, mask);
        break;
    case OP_FENCE:
        if (m->explores) emu_late_fence(w);
        if (m->checks) emu_flag_fence(m, w, mask);
        if (m->checks) emu_global_fence(m, w, mask, o->order);
        if (w->released && !(o->order & ORDER_CTA)) emu_cluster_fence(m, w);
        break;
    case OP_ACTIVE_MASK:
        for (int i = 0; i < LANES; i++) {
            if (mask >> i & 1) slot32(w, o->r[0])[i] = mask;
        }
        break;
    case OP_FACTORS: /* which the op behind it reads */
    case OP_NOTHING:
        return;
    case OP_LANES: /* run_op() has these, and emu_warp_run() the last */
    case OP_LANES_4:
    case OP_COMPARE:
    case OP_SELECT:
    case OP_PREDICATE:
    case OP_BRANCH:
    case OP_EXIT:
    case OP_LOAD:
    case OP_STORE:
    case OP_LDMATRIX:
    case OP_MMA:
    case OP_WGMMA:
    case OP_COPY_ASYNC:
    case OP_COPY_COMMIT:
    case OP_COPY_WAIT:
    case OP_SHUFFLE:
    case OP_JOIN:
        break;
    }
}
#pragma GCC diagnostic pop

static void run_op(cta *m, warp *w, const op *o, uint32_t mask) {
    switch ((op_kind)o->kind) {
    case OP_LANES:
    case OP_LANES_4:
        run_lanes(w, o, mask);
        break;
    case OP_COMPARE:
        run_compare(w, o, mask);
        break;
    case OP_SELECT:
        run_select(w, o, mask);
        break;
    case OP_PREDICATE:
        run_predicate(w, o, mask);
        break;
    case OP_BRANCH:
        branch(m, w, o, mask);
        break;
    case OP_EXIT:
        leave(m, w, mask);
        break;
    case OP_LOAD:
        emu_exec_load(m, w, o, mask);
        break;
    case OP_STORE:
        emu_exec_store(m, w, o, mask);
        break;
    case OP_LDMATRIX:
        if (mask == ALL_LANES || !emu_hold_lanes(m, w, o, mask)) emu_exec_ldmatrix(m, w, o, mask);
        break;
    case OP_MMA:
        if (mask != ALL_LANES && emu_hold_lanes(m, w, o, mask)) break;
        emu_check_all_lanes(m, w, mask);
        emu_exec_mma(w, o, mask);
        break;
    case OP_WGMMA:
        run_warpgroup(m, w, o, mask);
        break;
    case OP_COPY_ASYNC:
        emu_exec_copy_async(m, w, o, mask);
        break;
    case OP_COPY_COMMIT:
        for (int i = 0; i < LANES; i++) w->commits[i] += mask >> i & 1;
        break;
    case OP_COPY_WAIT:
        emu_exec_copy_wait(m, w, o, mask);
        break;
    case OP_SHUFFLE:
        emu_run_members(m, w, o, mask, 4, emu_exec_shuffle);
        break;
    default:
        run_other(m, w, o, mask);
        break;
    }
}

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
        if (w->undefined_count) emu_follow_undefined(m, w, o, mask);
        if (!mask || (explores && emu_late_holds(m, w, o, mask))) continue;
        if (w->wgmma_uses && o->kind != OP_WGMMA) emu_check_registers(m, w, o);
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
