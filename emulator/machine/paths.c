/* paths.c - the paths of a warp whose lanes have parted for longer than control flow says.
 *
 * Compilers thread a branch that all lanes take alike through one that they do not: lanes part early and meet again
 * after an instruction that needs them together. Devices let the lanes that come first wait there (WARPSYNC, BSYNC).
 * So do we: the warp is split, its stack becomes a list of paths with disjoint lanes, and the lanes that wait are one
 * of them. A split warp runs one path up to its next branch or mark, joins those that have come to the same op, and
 * runs the one that is furthest behind. Nobody starves: a path that had many turns lets those with fewer go first, as
 * lanes that spin in a lock need the one that holds it. When all lanes are in one path again, the warp is whole.
 *
 * When every path waits, nobody can come any more: that is a finding, and the instruction runs with the lanes it has.
 */
#include "paths.h"

#include <string.h>

enum {
    MAX_SPINS = 256, /* turns of a loop with atomics or volatile loads before other lanes of the warp get theirs */
    TURNS = 64       /* of a path, before others go first */
};

/* ---- the list ---- */

/* Every lane is in the topmost entry of the stack that names it; those that reached the mark of their branch are in
 * that of the group. */
void emu_split_warp(warp *w) {
    for (int i = 0; i < w->frame_count; i++) w->frames[i].apart = true;
    uint32_t taken = w->active | w->exited;
    int kept = w->depth;
    for (int i = w->depth - 1; i >= 0; i--) {
        path each = w->stack[i];
        each.mask &= ~taken;
        taken |= each.mask;
        each.join = -1;
        each.state = PATH_RUNS;
        each.turns = each.wanted = 0;
        if (each.mask) w->stack[--kept] = each;
    }
    memmove(w->stack, w->stack + kept, (size_t)(w->depth - kept) * sizeof *w->stack);
    w->depth -= kept;
    w->split = true;
    w->join = -1;
    w->turns = 0;
    w->wanted = 0;
}

static void add_path(warp *w, int32_t pc, uint32_t mask, path_state state) {
    w->stack[w->depth++] = (path){.pc = pc,
                                  .join = -1,
                                  .mask = mask,
                                  .state = state,
                                  .turns = w->turns,
                                  .frame = w->frame,
                                  .wanted = state == PATH_WAITS ? w->wanted : 0};
}

/* Paths without lanes go, and those at the same op become one, which looks again whether it is complete. */
static void merge_paths(const cta *m, warp *w) {
    int kept = 0;
    for (int i = 0; i < w->depth; i++) {
        path each = w->stack[i];
        each.mask &= ~w->exited;
        if (!each.mask) continue;
        while (m->code->ops[each.pc].kind == OP_JOIN) each.pc++;
        int same = 0;
        while (same < kept && (w->stack[same].pc != each.pc || w->stack[same].frame != each.frame)) same++;
        if (same == kept) {
            w->stack[kept++] = each;
            continue;
        }
        path *with = &w->stack[same];
        with->mask |= each.mask;
        with->wanted |= each.wanted;
        with->state = PATH_RUNS;
        if (each.turns > with->turns) with->turns = each.turns;
    }
    w->depth = kept;
}

/* ---- when every path waits ---- */

static uint32_t lanes_that_name(const uint32_t *members, uint32_t named, uint32_t mask) {
    uint32_t lanes = 0;
    for (int i = 0; i < LANES; i++) lanes |= (uint32_t)(members[i] == named) << i;
    return lanes & mask;
}

/* The lanes of a path pass the instruction at which they wait. */
static void pass(cta *m, path *each) {
    op_counts *counts = &m->counts[m->code->ops[each->pc].instruction];
    m->steps++;
    counts->executed++;
    counts->lanes += population(each->mask);
    each->pc++;
    each->state = PATH_RUNS;
}

/* The lanes that an operation needs, and what executes it where several paths may do so together. */
#define NOT_TOGETHER(handler) NULL
#define TOGETHER(handler) handler
#define RUN_LANES_EACH NOT_TOGETHER
#define RUN_LANES_LIVE NOT_TOGETHER
#define RUN_LANES_ALIGNED NOT_TOGETHER
#define RUN_LANES_WARPGROUP NOT_TOGETHER
#define RUN_LANES_WARP TOGETHER
#define RUN_LANES_NAMED TOGETHER
static const struct {
    op_handler *run;
    enum op_lanes lanes;
} operations[] = {
#define OP_ROW(kind, lanes, handler, text) [kind] = {RUN_##lanes(handler), lanes},
#include "../ptx/forms_table.h"
};

/* The member masks of an instruction of LANES_NAMED, by lane. */
static const uint32_t *members_of(const warp *w, const op *o) {
    return slot32(w, o->r[o->dests + o->sources - 1]);
}

/* The waiting lanes of all paths that could take part in an op and name these lanes. Calls of a function may have come
 * to it apart; and bar.warp.sync may be several instructions. */
static uint32_t lanes_that_wait(const cta *m, const warp *w, const op *o, uint32_t named) {
    uint32_t lanes = 0;
    for (int k = 0; k < w->depth; k++) {
        const op *other = &m->code->ops[w->stack[k].pc];
        if (other != o && !(o->kind == OP_WARP_BARRIER && other->kind == OP_WARP_BARRIER)) continue;
        if (operations[other->kind].lanes == LANES_NAMED)
            lanes |= lanes_that_name(members_of(w, other), named, w->stack[k].mask);
        else if (operations[other->kind].lanes == LANES_WARP)
            lanes |= w->stack[k].mask;
    }
    return lanes;
}

static void pass_lanes(cta *m, warp *w, uint32_t lanes) {
    for (int k = w->depth - 1; k >= 0; k--) {
        path *each = &w->stack[k];
        if (!(each->mask & lanes)) continue;
        if (each->mask & ~lanes) { /* the others stay */
            w->stack[w->depth] = *each;
            w->stack[w->depth++].mask &= ~lanes;
            each->mask &= lanes;
        }
        pass(m, each);
    }
}

/* Paths that cannot become one, but whose lanes are complete together. */
static bool release_together(cta *m, warp *w) {
    for (int i = 0; i < w->depth; i++) {
        const op *o = &m->code->ops[w->stack[i].pc];
        const bool names = operations[o->kind].lanes == LANES_NAMED;
        if (!operations[o->kind].run) continue;
        uint32_t named = names ? members_of(w, o)[first_lane(w->stack[i].mask)] : ALL_LANES;
        uint32_t here = lanes_that_wait(m, w, o, named);
        if ((names ? named & live_lanes(w) : ALL_LANES) & ~here) continue;
        m->here = o->instruction;
        operations[o->kind].run(m, w, o, here);
        pass_lanes(m, w, here);
        return true;
    }
    return false;
}

/* barrier.sync without .aligned: lanes may come to it at different instructions. Instructions with .aligned must be
 * executed together, but calls of a function may reach them separately. */
static bool release_barrier_apart(cta *m, warp *w) {
    const op *first = &m->code->ops[w->stack[0].pc];
    const int lane = first_lane(w->stack[0].mask);
    for (int i = 0; i < w->depth; i++) {
        const op *o = &m->code->ops[w->stack[i].pc];
        if (o->kind != OP_BARRIER || o->detail != BARRIER_SYNC || o->sources != first->sources) return false;
        if (o != first && !o->vector) return false;
        for (uint32_t rest = w->stack[i].mask; rest; rest &= rest - 1)
            for (int k = 0; k < o->sources; k++) /* the barrier, and how many threads meet at it */
                if (slot32(w, o->r[k])[first_lane(rest)] != slot32(w, first->r[k])[lane]) return false;
    }
    for (int i = 0; i < w->depth; i++) pass(m, &w->stack[i]);
    m->here = first->instruction;
    emu_arrive_at_barrier(m, w, first, live_lanes(w), lane);
    return true;
}

/* ---- choice ---- */

static int calls_within(const warp *w, const path *each) {
    return each->frame < 0 ? 0 : w->frames[each->frame].depth;
}

/* Lanes in functions go first, then those that are behind, so that they catch up. */
static bool goes_first(const warp *w, const path *a, const path *b) {
    uint32_t had = a->turns / TURNS, other = b->turns / TURNS;
    int depth = calls_within(w, a), other_depth = calls_within(w, b);
    return had != other ? had < other : depth != other_depth ? depth > other_depth : a->pc < b->pc;
}

/* The path in this state to run next, -1 for none; with a seed sometimes any. */
static int choose_path(cta *m, const warp *w, path_state state) {
    int best = -1, count = 0, candidates[LANES];
    for (int i = 0; i < w->depth; i++) {
        if (w->stack[i].state != state) continue;
        candidates[count++] = i;
        if (best < 0 || goes_first(w, &w->stack[i], &w->stack[best])) best = i;
    }
    if (!m->launch->schedule || count < 2) return best;
    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    return m->random >> 62 ? best : candidates[(m->random >> 33) % (unsigned)count];
}

/* The path that reports that its lanes cannot be complete: one at a barrier of the CTA last, as that ends the run. */
static int choose_stuck(const cta *m, const warp *w) {
    int best = -1;
    bool best_ends = true;
    for (int i = 0; i < w->depth; i++) {
        if (w->stack[i].state != PATH_WAITS) continue;
        bool ends = m->code->ops[w->stack[i].pc].kind == OP_BARRIER;
        if (best < 0 || (ends != best_ends ? best_ends : w->stack[i].pc < w->stack[best].pc)) {
            best = i;
            best_ends = ends;
        }
    }
    return best;
}

static void run_path(warp *w, int index) {
    const path chosen = w->stack[index];
    w->stack[index] = w->stack[--w->depth];
    w->pc = chosen.pc;
    w->active = chosen.mask;
    w->frame = chosen.frame;
    w->turns = chosen.turns + 1;
    w->wanted = chosen.wanted;
    if (w->depth) return;
    w->split = false;
    w->spins = 0;
}

void emu_next_path(cta *m, warp *w, path_state state) {
    if (w->active) add_path(w, w->pc, w->active, state);
    w->active = 0;
    merge_paths(m, w);
    if (!w->depth) {
        w->split = false;
        w->state = WARP_DONE;
        return;
    }
    int chosen = choose_path(m, w, PATH_RUNS);
    if (chosen < 0) {
        bool asleep = choose_path(m, w, PATH_SLEEPS) >= 0;
        if (asleep) {
            run_path(w, choose_path(m, w, PATH_SLEEPS));
            w->state = WARP_AT_MBARRIER;
            return;
        }
        if (release_together(m, w) || release_barrier_apart(m, w)) {
            merge_paths(m, w);
            chosen = choose_path(m, w, PATH_RUNS);
        } else {
            chosen = choose_stuck(m, w);
            w->forced = true;
        }
    }
    run_path(w, chosen);
}

void emu_take_turns(cta *m, warp *w) {
    if (!w->split) {
        if (++w->spins < MAX_SPINS) return;
        emu_split_warp(w);
    }
    emu_next_path(m, w, PATH_RUNS);
}

/* ---- lanes that wait for others ---- */

bool emu_hold_lanes(cta *m, warp *w, const op *o, uint32_t mask) {
    bool forced = w->forced;
    w->forced = false;
    if (forced || !(live_lanes(w) & ~mask)) return false;
    if (!w->split) emu_split_warp(w);
    uint32_t passing = w->active & ~mask; /* its guard lets them pass */
    if (passing) add_path(w, w->pc, passing, PATH_RUNS);
    emu_try_again(m, w, o, mask);
    w->active = mask;
    emu_next_path(m, w, PATH_WAITS);
    return true;
}

/* True if a group must wait for lanes it names; what is wrong with it is reported. */
static bool group_waits(cta *m, const warp *w, const uint32_t *members, uint32_t group, uint32_t mask) {
    uint32_t named = members[first_lane(group)], live = named & live_lanes(w), wanted = live | (w->wanted & named);
    uint32_t strangers = group & ~named, others = live & ~group & mask;
    if (strangers) {
        emu_report(m, EMU_DIVERGENT_SYNC, UINT32_MAX, w, first_lane(strangers), -1, 0,
                   "Lane %d executes this instruction, but its member mask 0x%08x does not name it.\n"
                   "Every lane that gets here must be in the mask.",
                   first_lane(strangers), named);
        return false;
    }
    if (others) {
        emu_report(m, EMU_DIVERGENT_SYNC, UINT32_MAX, w, first_lane(group), -1, 0,
                   "Lane %d names the lanes 0x%08x, but lane %d, which is one of them, names 0x%08x.\n"
                   "Lanes that take part together must give the same member mask.",
                   first_lane(group), named, first_lane(others), members[first_lane(others)]);
        return false;
    }
    if (live & ~group && !w->forced) return true;
    if (wanted & ~group) emu_report_divergent(m, w, wanted, group);
    return false;
}

static void run_groups(cta *m, warp *w, const op *o, uint32_t mask, const uint32_t *members, op_handler *run) {
    uint32_t waiting = 0, wanted = 0, masks[LANES];
    memcpy(masks, members, sizeof masks); /* the op may overwrite them */
    for (uint32_t rest = mask; rest;) {
        uint32_t group = lanes_that_name(masks, masks[first_lane(rest)], mask);
        rest &= ~group;
        if (group_waits(m, w, masks, group, mask)) {
            waiting |= group;
            wanted |= (masks[first_lane(group)] & live_lanes(w)) | (w->wanted & masks[first_lane(group)]);
        } else {
            run(m, w, o, group);
        }
    }
    w->forced = false;
    w->wanted = wanted;
    if (waiting) {
        const uint32_t passing = w->active & ~waiting;
        if (!w->split) emu_split_warp(w);
        w->wanted = wanted;
        if (passing) add_path(w, w->pc, passing, PATH_RUNS);
        if (waiting == mask)
            emu_try_again(m, w, o, mask);
        else
            w->pc--; /* it ran for the others */
        w->active = waiting;
        emu_next_path(m, w, PATH_WAITS);
    }
}

void emu_run_members(cta *m, warp *w, const op *o, uint32_t mask, op_handler *run) {
    const uint32_t *members = members_of(w, o);
    uint32_t first = members[first_lane(mask)], differs = 0;
    if (mask == ALL_LANES) {
        for (int i = 0; i < LANES; i++) differs |= members[i] ^ first;
    } else {
        for (int i = 0; i < LANES; i++) differs |= (members[i] ^ first) & (0 - (mask >> i & 1));
    }
    if (!differs && mask == (first & live_lanes(w)) && !(w->wanted & first & ~mask)) {
        w->forced = false;
        w->wanted = 0;
        run(m, w, o, mask);
        return;
    }
    run_groups(m, w, o, mask, members, run);
}

/* ---- mbarriers ---- */

void emu_path_sleeps(cta *m, warp *w) {
    if (!w->depth) return;
    if (!w->split) emu_split_warp(w);
    warp_state state = w->state;
    w->state = WARP_READY;
    emu_next_path(m, w, PATH_SLEEPS);
    if (w->state == WARP_AT_MBARRIER) w->state = state;
}

void emu_wake_paths(warp *w) {
    for (int i = 0; w->split && i < w->depth; i++) {
        if (w->stack[i].state == PATH_SLEEPS) w->stack[i].state = PATH_RUNS;
    }
}
