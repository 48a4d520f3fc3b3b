/* flow.c - control flow of an entry: where divergent lanes meet again, and which loops there are.
 *
 * Lanes that part at a branch meet at its immediate post-dominator. An early return is no path for that purpose: its
 * lanes are gone, and the others meet as if it did not exist. Dominators follow Cooper, Harvey and Kennedy, "A simple,
 * fast dominance algorithm".
 */
#include "flow.h"

#include "registers.h"

#include <string.h>

static bool ends_block(const op *o) {
    return o->kind == OP_BRANCH || (o->kind == OP_EXIT && o->guard == NO_PREDICATE) || o->kind == OP_TRAP;
}

static void find_blocks(flow *f) {
    entry *code = f->code;
    bool *leader = emu_load_alloc(f->load, code->op_count + 1);
    leader[0] = true;
    for (size_t i = 0; i < code->op_count; i++) {
        if (code->ops[i].kind == OP_BRANCH) leader[code->ops[i].target] = true;
        if (ends_block(&code->ops[i])) leader[i + 1] = true;
    }
    for (size_t i = 0; i < code->op_count; i++) f->count += leader[i];
    f->blocks = emu_load_alloc(f->load, (size_t)f->count * sizeof *f->blocks);
    f->block_of = emu_load_alloc(f->load, code->op_count * sizeof *f->block_of);
    int at = -1;
    for (size_t i = 0; i < code->op_count; i++) {
        if (leader[i]) f->blocks[++at].begin = (uint32_t)i;
        f->block_of[i] = at;
        f->blocks[at].end = (uint32_t)i + 1;
    }
    for (int b = 0; b < f->count; b++) {
        block *each = &f->blocks[b];
        const op *last = &code->ops[each->end - 1];
        bool branch = last->kind == OP_BRANCH;
        each->exits = ends_block(last) && !branch;
        each->next[0] = each->exits || (branch && last->guard == NO_PREDICATE) || b + 1 == f->count ? -1 : b + 1;
        each->next[1] = branch ? f->block_of[last->target] : -1;
        each->join = each->loop = -1;
    }
}

/* ---- dominators of a graph given by successor pairs; node `root` has no dominator ---- */

typedef struct graph {
    int count, root;
    int (*next)[2];
    int *first_edge, *edges; /* predecessors, by node */
} graph;

static void link_predecessors(flow *f, graph *g) {
    g->first_edge = emu_load_alloc(f->load, (size_t)(g->count + 2) * sizeof(int));
    g->edges = emu_load_alloc(f->load, (size_t)(2 * g->count + 1) * sizeof(int));
    for (int n = 0; n < g->count; n++) {
        for (int k = 0; k < 2; k++) {
            if (g->next[n][k] >= 0) g->first_edge[g->next[n][k] + 2]++;
        }
    }
    for (int n = 0; n < g->count; n++) g->first_edge[n + 2] += g->first_edge[n + 1];
    for (int n = 0; n < g->count; n++) {
        for (int k = 0; k < 2; k++) {
            if (g->next[n][k] >= 0) g->edges[g->first_edge[g->next[n][k] + 1]++] = n;
        }
    }
}

/* Successor number k of a node, against or along the edges; -1 past the last. */
static int neighbour(const graph *g, int node, int k, bool reverse) {
    if (!reverse) return k < 2 ? g->next[node][k] : -1;
    int at = g->first_edge[node] + k;
    return at < g->first_edge[node + 1] ? g->edges[at] : -1;
}

static int degree(const graph *g, int node, bool reverse) {
    return reverse ? g->first_edge[node + 1] - g->first_edge[node] : 2;
}

/* Nodes in post-order of a depth-first walk from the root; the number of them. */
static int post_order(flow *f, const graph *g, bool reverse, int *order, int *number) {
    int *stack = emu_load_alloc(f->load, (size_t)(g->count + 1) * sizeof(int));
    int *tried = emu_load_alloc(f->load, (size_t)g->count * sizeof(int));
    int depth = 0, done = 0;
    for (int n = 0; n < g->count; n++) number[n] = -1;
    stack[depth++] = g->root;
    number[g->root] = -2;
    while (depth) {
        int node = stack[depth - 1];
        if (tried[node] == degree(g, node, reverse)) {
            number[node] = done;
            order[done++] = node;
            depth--;
            continue;
        }
        int to = neighbour(g, node, tried[node]++, reverse);
        if (to >= 0 && number[to] == -1) {
            number[to] = -2;
            stack[depth++] = to;
        }
    }
    return done;
}

/* Immediate dominators, or post-dominators with reverse; -1 for the root and what it does not reach. */
static int *dominators(flow *f, const graph *g, bool reverse) {
    int *order = emu_load_alloc(f->load, (size_t)g->count * sizeof(int));
    int *number = emu_load_alloc(f->load, (size_t)g->count * sizeof(int));
    int *dominator = emu_load_alloc(f->load, (size_t)g->count * sizeof(int));
    int count = post_order(f, g, reverse, order, number);
    for (int n = 0; n < g->count; n++) dominator[n] = -1;
    dominator[g->root] = g->root;
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = count - 2; i >= 0; i--) {
            int node = order[i], best = -1;
            for (int k = 0; k < degree(g, node, !reverse); k++) {
                int a = neighbour(g, node, k, !reverse);
                if (a < 0 || dominator[a] < 0) continue;
                for (int b = best; best >= 0 && a != b;) {
                    while (number[a] < number[b]) a = dominator[a];
                    while (number[b] < number[a]) b = dominator[b];
                }
                best = a;
            }
            changed |= dominator[node] != best;
            dominator[node] = best;
        }
    }
    dominator[g->root] = -1;
    return dominator;
}

/* ---- where lanes meet ---- */

static bool only_exits(const flow *f, int b) {
    if (b < 0 || !f->blocks[b].exits) return false;
    for (uint32_t i = f->blocks[b].begin; i + 1 < f->blocks[b].end; i++) {
        if (f->code->ops[i].kind != OP_NOTHING) return false;
    }
    return true;
}

/* Whether an exit can be reached from a block without passing another. */
static bool reaches_exit(const flow *f, int from, int avoid, int *stack, int *seen, int stamp) {
    int depth = 0;
    stack[depth++] = from;
    seen[from] = stamp;
    while (depth) {
        const block *each = &f->blocks[stack[--depth]];
        if (each->exits) return true;
        for (int k = 0; k < 2; k++) {
            int to = each->next[k];
            if (to < 0 || to == avoid || seen[to] == stamp) continue;
            seen[to] = stamp;
            stack[depth++] = to;
        }
    }
    return false;
}

static void find_joins(flow *f) {
    graph g = {.count = f->count + 1, .root = f->count};
    g.next = emu_load_alloc(f->load, (size_t)g.count * sizeof *g.next);
    int *stack = emu_load_alloc(f->load, (size_t)g.count * sizeof(int)),
        *seen = emu_load_alloc(f->load, (size_t)g.count * sizeof(int));
    for (int b = 0; b < f->count; b++) {
        const block *each = &f->blocks[b];
        int next[2] = {each->next[0], each->next[1]};
        for (int k = 0; k < 2 && next[0] >= 0 && next[1] >= 0; k++) {
            bool early = only_exits(f, next[k]) && next[1 - k] != b &&
                         reaches_exit(f, next[1 - k], b, stack, seen, 2 * b + k + 1);
            if (early) next[k] = -1;
        }
        g.next[b][0] = each->exits ? g.root : next[0];
        g.next[b][1] = each->exits ? -1 : next[1];
    }
    g.next[g.root][0] = g.next[g.root][1] = -1;
    link_predecessors(f, &g);
    int *post = dominators(f, &g, true);
    for (int b = 0; b < f->count; b++) f->blocks[b].join = post[b] == g.root ? -1 : post[b];
}

/* ---- loops and regions ---- */

static void add_loop_body(flow *f, const graph *g, loop *l, int latch, int *stack) {
    int depth = 0;
    if (!l->body[l->header]) l->size++;
    l->body[l->header] = true;
    if (!l->body[latch]) stack[depth++] = latch;
    l->body[latch] = true;
    while (depth) {
        int node = stack[--depth];
        l->size++;
        for (int k = g->first_edge[node]; k < g->first_edge[node + 1]; k++) {
            if (l->body[g->edges[k]]) continue;
            l->body[g->edges[k]] = true;
            stack[depth++] = g->edges[k];
        }
    }
    (void)f;
}

static void find_loops(flow *f) {
    graph g = {.count = f->count, .root = 0};
    g.next = emu_load_alloc(f->load, (size_t)g.count * sizeof *g.next);
    for (int b = 0; b < f->count; b++) memcpy(g.next[b], f->blocks[b].next, sizeof g.next[b]);
    link_predecessors(f, &g);
    int *dominator = dominators(f, &g, false);
    int *stack = emu_load_alloc(f->load, (size_t)g.count * sizeof(int));
    f->loops = emu_load_alloc(f->load, (size_t)g.count * sizeof *f->loops);
    for (int header = 0; header < f->count; header++) {
        loop *l = NULL;
        for (int k = g.first_edge[header]; k < g.first_edge[header + 1]; k++) {
            int up = g.edges[k], latch = up;
            while (up >= 0 && up != header) up = dominator[up];
            if (up != header) continue;
            if (!l) {
                l = &f->loops[f->loop_count++];
                *l = (loop){
                    .header = header, .parent = -1, .depth = 1, .body = emu_load_alloc(f->load, (size_t)f->count)};
            }
            l->latch_instruction = f->code->ops[f->blocks[latch].end - 1].instruction;
            add_loop_body(f, &g, l, latch, stack);
        }
    }
    for (int i = 0; i < f->loop_count; i++) {
        for (int j = 0; j < f->loop_count; j++) {
            loop *inner = &f->loops[i], *outer = &f->loops[j];
            if (i == j || !outer->body[inner->header] || outer->size <= inner->size) continue;
            inner->depth++;
            if (inner->parent < 0 || outer->size < f->loops[inner->parent].size) inner->parent = j;
        }
        for (int b = 0; b < f->count; b++) {
            int known = f->blocks[b].loop;
            if (f->loops[i].body[b] && (known < 0 || f->loops[i].size < f->loops[known].size)) f->blocks[b].loop = i;
        }
    }
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Regions: every loop, and the code outside of loops cut at the outermost ones. */
static void find_regions(flow *f) {
    entry *code = f->code;
    code->regions = emu_load_alloc(f->load, (size_t)(f->loop_count + 3) * sizeof *code->regions);
    int first_loop = f->count, last_loop = -1;
    for (int b = 0; b < f->count; b++) {
        if (f->blocks[b].loop >= 0 && b < first_loop) first_loop = b;
        if (f->blocks[b].loop >= 0) last_loop = b;
    }
    for (int i = 0; i < f->loop_count; i++) {
        emu_place place = emu_place_of(code, f->loops[i].latch_instruction);
        char name[160];
        if (place.own)
            snprintf(name, sizeof name, "loop at %.100s:%d", base_name(place.own->file), place.own->line);
        else
            snprintf(name, sizeof name, "loop at PTX line %d", place.ptx_line);
        code->regions[i] = (emu_region){emu_load_text(f->load, name, strlen(name)), f->loops[i].depth};
    }
    code->region_count = (size_t)f->loop_count;
    const char *names[3] = {f->loop_count ? "before the loops" : "straight code", "between the loops",
                            "after the loops"};
    int index[3] = {-1, -1, -1};
    for (int b = 0; b < f->count; b++) {
        int region = f->blocks[b].loop;
        if (region < 0) {
            int part = b < first_loop ? 0 : b > last_loop ? 2 : 1;
            if (index[part] < 0) {
                index[part] = (int)code->region_count;
                code->regions[code->region_count++] = (emu_region){names[part], 0};
            }
            region = index[part];
        }
        for (uint32_t i = f->blocks[b].begin; i < f->blocks[b].end; i++)
            code->instructions[code->ops[i].instruction].region = region;
    }
}

/* ---- loops that may wait for other threads ---- */

/* Backward branches over an atomic or over a load that watches memory. */
static void mark_spinning_loops(flow *f) {
    entry *code = f->code;
    bool any = false;
    for (size_t i = 0; i < code->op_count && !any; i++)
        any = code->ops[i].kind == OP_BRANCH && (size_t)code->ops[i].target <= i;
    if (!any) return;
    uint32_t *watching = emu_load_alloc(f->load, (code->op_count + 1) * sizeof *watching); /* ops ahead of each */
    for (size_t i = 0; i < code->op_count; i++) {
        const op *o = &code->ops[i];
        watching[i + 1] = watching[i] + (o->kind == OP_ATOMIC || o->asks);
    }
    for (size_t i = 0; i < code->op_count; i++) {
        op *o = &code->ops[i];
        if (o->kind == OP_BRANCH && (size_t)o->target <= i && watching[i] > watching[o->target])
            o->detail = BRANCH_MAY_SPIN;
    }
}

/* ---- last: ops with slots and join marks ---- */

/* Registers become slots; messages know them by name. */
static void give_slots(const entry *code, op *o, uint16_t names[MAX_OPERANDS]) {
    memcpy(names, o->r, sizeof o->r);
    if (o->kind == OP_LANES || o->kind == OP_LANES_4)
        o->bytes = (uint8_t)(4 << emu_slot_class(&code->registers[o->r[0]]));
    for (int k = 0; k < o->dests + o->sources; k++) o->r[k] = code->registers[o->r[k]].slot;
}

/* The ops move up to make room for a mark at each block where lanes meet: from the last to the first, in place. */
static void place_joins(flow *f) {
    entry *code = f->code;
    bool *joins = emu_load_alloc(f->load, (size_t)f->count);
    int32_t *begin = emu_load_alloc(f->load, ((size_t)f->count + 1) * sizeof *begin);
    for (int b = 0; b < f->count; b++) {
        const op *last = &code->ops[f->blocks[b].end - 1];
        bool splits = last->kind == OP_BRANCH && last->guard != NO_PREDICATE && f->blocks[b].join >= 0;
        if (splits) joins[f->blocks[b].join] = true;
    }
    for (int b = 0; b < f->count; b++)
        begin[b + 1] = begin[b] + joins[b] + (int32_t)(f->blocks[b].end - f->blocks[b].begin);
    size_t count = (size_t)begin[f->count];
    if (count > code->op_capacity) {
        op *more = emu_load_alloc(f->load, count * sizeof *more);
        memcpy(more, code->ops, code->op_count * sizeof *more);
        code->ops = more;
    }
    code->names = emu_load_alloc(f->load, count * sizeof *code->names);
    for (int b = f->count - 1; b >= 0; b--) {
        const block *each = &f->blocks[b];
        size_t at = (size_t)begin[b + 1];
        for (uint32_t i = each->end; i-- > each->begin;) {
            code->ops[--at] = code->ops[i];
            give_slots(code, &code->ops[at], code->names[at]);
        }
        op *last = &code->ops[begin[b + 1] - 1];
        if (last->kind == OP_BRANCH) {
            last->target = begin[each->next[1]];
            last->join = each->join >= 0 && last->guard != NO_PREDICATE ? begin[each->join] : -1;
        }
        if (joins[b]) {
            code->ops[--at] = (op){.kind = OP_JOIN,
                                   .guard = NO_PREDICATE,
                                   .p = {NO_PREDICATE, NO_PREDICATE, NO_PREDICATE},
                                   .instruction = code->ops[at + 1].instruction};
        }
    }
    code->op_count = count;
}

static void name_predicates(entry *code, loader *load) {
    code->predicate_names = emu_load_alloc(load, (code->predicate_count + 1) * sizeof *code->predicate_names);
    for (size_t v = 0; v < code->register_count; v++) {
        if (code->registers[v].bits == 1 && code->registers[v].kind == REGISTER_PLAIN) {
            code->predicate_names[code->registers[v].slot] = (uint16_t)v;
        }
    }
}

void emu_analyse_flow(loader *load, entry *code) {
    flow f = {.load = load, .code = code};
    find_blocks(&f);
    mark_spinning_loops(&f);
    f.variables = code->register_count + code->predicate_count;
    find_joins(&f);
    find_loops(&f);
    find_regions(&f);
    emu_find_exposed(&f);
    emu_find_liveness(&f);
    emu_find_tracked(&f);
    emu_assign_slots(&f);
    name_predicates(code, load);
    place_joins(&f);
}
