/* flow.c - control flow of an entry: where divergent lanes meet again, and which loops there are.
 *
 * Lanes that part at a branch meet at its immediate post-dominator. An early return is no path for that purpose: its
 * lanes are gone, and the others meet as if it did not exist. Dominators follow Lengauer and Tarjan, "A fast
 * algorithm for finding dominators in a flowgraph": a body may have tens of thousands of branches.
 */
#include "flow.h"

#include "registers.h"

#include <string.h>

static bool ends_block(const op *o) {
    bool ends = o->kind == OP_EXIT || o->kind == OP_RETURN || o->kind == OP_TRAP;
    return o->kind == OP_BRANCH || (ends && o->guard == NO_PREDICATE);
}

static void find_blocks(flow *f) {
    entry *code = f->code;
    bool *leader = emu_load_alloc(f->load, code->op_count + 1);
    for (size_t r = 0; r < code->routine_count; r++) leader[code->routines[r].begin] = true;
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
static int neighbor(const graph *g, int node, int k, bool reverse) {
    if (!reverse) return k < 2 ? g->next[node][k] : -1;
    int at = g->first_edge[node] + k;
    return at < g->first_edge[node + 1] ? g->edges[at] : -1;
}

static int degree(const graph *g, int node, bool reverse) {
    return reverse ? g->first_edge[node + 1] - g->first_edge[node] : 2;
}

/* A depth-first walk of a graph. Nodes have numbers in the order in which it finds them, from the root, 0. */
typedef struct walk {
    int count;
    int *node, *number; /* number -1: not reached */
    int *parent;        /* what follows is by number */
    int *above;         /* an ancestor in the part of the tree that was linked, or -1 */
    int *least;         /* on the way there: the number whose semidominator is least */
    int *semi;          /* semidominator */
} walk;

static walk walk_graph(flow *f, const graph *g, bool reverse) {
    const size_t bytes = (size_t)(g->count + 1) * sizeof(int);
    walk w = {.count = 0};
    int **arrays[] = {&w.node, &w.number, &w.parent, &w.above, &w.least, &w.semi};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) *arrays[i] = emu_load_alloc(f->load, bytes);
    int *tried = emu_load_alloc(f->load, bytes);
    for (int n = 0; n < g->count; n++) w.number[n] = -1;
    w.number[g->root] = w.count;
    w.node[w.count++] = g->root;
    for (int at = 0; at >= 0;) {
        if (tried[at] == degree(g, w.node[at], reverse)) {
            at = at ? w.parent[at] : -1;
            continue;
        }
        int to = neighbor(g, w.node[at], tried[at]++, reverse);
        if (to < 0 || w.number[to] >= 0) continue;
        w.parent[w.count] = at;
        at = w.number[to] = w.count;
        w.node[w.count++] = to;
    }
    for (int i = 0; i < w.count; i++) {
        w.above[i] = -1;
        w.least[i] = w.semi[i] = i;
    }
    return w;
}

/* The number of least semidominator on the linked path above. The path is shortened for the next time. */
static int least_above(walk *w, int at, int *stack) {
    int depth = 0;
    if (w->above[at] < 0) return at;
    for (int i = at; w->above[w->above[i]] >= 0; i = w->above[i]) stack[depth++] = i;
    while (depth) {
        int i = stack[--depth], up = w->above[i];
        if (w->semi[w->least[up]] < w->semi[w->least[i]]) w->least[i] = w->least[up];
        w->above[i] = w->above[up];
    }
    return w->least[at];
}

/* Immediate dominators, or post-dominators with reverse; -1 for the root and what it does not reach. */
static int *dominators(flow *f, const graph *g, bool reverse) {
    const size_t bytes = (size_t)(g->count + 1) * sizeof(int);
    walk w = walk_graph(f, g, reverse);
    int *by_number = emu_load_alloc(f->load, bytes), *dominator = emu_load_alloc(f->load, bytes),
        *stack = emu_load_alloc(f->load, bytes);
    int *waiting = emu_load_alloc(f->load, bytes), *next = emu_load_alloc(f->load, bytes); /* lists of 1 + number */
    for (int i = w.count - 1; i > 0; i--) {
        for (int k = 0; k < degree(g, w.node[i], !reverse); k++) {
            int from = neighbor(g, w.node[i], k, !reverse);
            if (from < 0 || w.number[from] < 0) continue;
            int least = least_above(&w, w.number[from], stack);
            if (w.semi[least] < w.semi[i]) w.semi[i] = w.semi[least];
        }
        next[i] = waiting[w.semi[i]];
        waiting[w.semi[i]] = i + 1;
        const int up = w.above[i] = w.parent[i];
        for (int each = waiting[up] - 1; each >= 0; each = next[each] - 1) {
            int least = least_above(&w, each, stack);
            by_number[each] = w.semi[least] < w.semi[each] ? least : up;
        }
        waiting[up] = 0;
    }
    for (int n = 0; n < g->count; n++) dominator[n] = -1;
    for (int i = 1; i < w.count; i++) {
        if (by_number[i] != w.semi[i]) by_number[i] = by_number[by_number[i]];
        dominator[w.node[i]] = w.node[by_number[i]];
    }
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

/* True if an exit can be reached from a block without passing another. */
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

/* A dominator tree in pre-order: a node dominates those from its own number to `last`. */
typedef struct tree {
    int *number, *last; /* by node; number -1 for those that the root does not reach */
} tree;

/* Children of a node are a list through `sibling`; a node is left when its list is at the end. */
static tree number_tree(flow *f, const graph *g, const int *dominator) {
    const size_t bytes = (size_t)g->count * sizeof(int);
    tree t = {.number = emu_load_alloc(f->load, bytes), .last = emu_load_alloc(f->load, bytes)};
    int *child = emu_load_alloc(f->load, bytes), *sibling = emu_load_alloc(f->load, bytes), next = 0;
    for (int n = 0; n < g->count; n++) child[n] = sibling[n] = t.number[n] = -1;
    for (int n = g->count - 1; n >= 0; n--) {
        if (dominator[n] < 0) continue;
        sibling[n] = child[dominator[n]];
        child[dominator[n]] = n;
    }
    for (int node = g->root; node >= 0;) {
        if (t.number[node] < 0) t.number[node] = next++;
        int down = child[node];
        if (down >= 0) {
            child[node] = sibling[down];
            node = down;
        } else {
            t.last[node] = next - 1;
            node = dominator[node];
        }
    }
    return t;
}

static bool dominates(const tree *t, int above, int node) {
    return t->number[node] >= t->number[above] && t->number[node] <= t->last[above];
}

static int outermost(const flow *f, int l) {
    while (f->loops[l].parent >= 0) l = f->loops[l].parent;
    return l;
}

/* The blocks from which a latch is reached without passing the header. Inner loops are complete: the walk continues
 * from their headers. */
static void add_loop_body(flow *f, const graph *g, const tree *t, int l, int *stack) {
    int depth = 0;
    const int header = f->loops[l].header;
    for (int node = header;;) {
        for (int k = g->first_edge[node]; k < g->first_edge[node + 1]; k++) {
            int up = g->edges[k];
            bool reached = t->number[up] >= 0 && (node != header || dominates(t, header, up));
            int known = reached ? f->blocks[up].loop : l;
            if (known >= 0) known = outermost(f, known);
            if (known == l || up == header) continue;
            if (known >= 0)
                f->loops[known].parent = l;
            else
                f->blocks[up].loop = l;
            stack[depth++] = known >= 0 ? f->loops[known].header : up;
        }
        if (!depth) break;
        node = stack[--depth];
    }
    if (f->blocks[header].loop < 0) f->blocks[header].loop = l;
}

/* Natural loops: a back edge goes to a block that dominates where it comes from. */
static void find_loops(flow *f) {
    /* more than one routine: after the blocks, a chain of nodes leads to the first block of each */
    const int routines = f->code->routine_count > 1 ? (int)f->code->routine_count : 0;
    graph g = {.count = f->count + routines, .root = routines ? f->count : 0};
    g.next = emu_load_alloc(f->load, (size_t)g.count * sizeof *g.next);
    for (int b = 0; b < f->count; b++) memcpy(g.next[b], f->blocks[b].next, sizeof g.next[b]);
    for (int r = 0; r < routines; r++) {
        g.next[f->count + r][0] = f->block_of[f->code->routines[r].begin];
        g.next[f->count + r][1] = r + 1 < routines ? f->count + r + 1 : -1;
    }
    link_predecessors(f, &g);
    const tree t = number_tree(f, &g, dominators(f, &g, false));
    int *stack = emu_load_alloc(f->load, (size_t)g.count * sizeof(int));
    int *headed = emu_load_alloc(f->load, (size_t)g.count * sizeof(int)); /* 1 + loop, by number of the header */
    f->loops = emu_load_alloc(f->load, (size_t)g.count * sizeof *f->loops);
    for (int header = 0; header < f->count; header++) {
        for (int k = g.first_edge[header]; k < g.first_edge[header + 1]; k++) {
            int latch = g.edges[k];
            if (t.number[latch] < 0 || !dominates(&t, header, latch)) continue;
            if (!headed[t.number[header]]) {
                f->loops[f->loop_count++] = (loop){.header = header, .parent = -1, .depth = 1};
                headed[t.number[header]] = f->loop_count;
            }
            f->loops[headed[t.number[header]] - 1].latch_instruction =
                f->code->ops[f->blocks[latch].end - 1].instruction;
        }
    }
    for (int n = g.count - 1; n >= 0; n--) { /* inner loops first */
        if (headed[n]) add_loop_body(f, &g, &t, headed[n] - 1, stack);
    }
    for (int n = 0; n < g.count; n++) { /* outer loops first */
        loop *l = headed[n] ? &f->loops[headed[n] - 1] : NULL;
        if (l && l->parent >= 0) l->depth = f->loops[l->parent].depth + 1;
    }
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *routine_region(flow *f, const routine *of) {
    char name[160];
    snprintf(name, sizeof name, "function %.140s", of->name);
    return emu_load_text(f->load, name, strlen(name));
}

/* Regions: every loop, the code of the entry outside of loops cut at the outermost ones, and that of each function. */
static void find_regions(flow *f) {
    entry *code = f->code;
    code->regions = emu_load_alloc(f->load, ((size_t)f->loop_count + 3 + code->routine_count) * sizeof *code->regions);
    int first_loop = f->count, last_loop = -1;
    const uint32_t entry_end = code->routines[0].end;
    for (int b = 0; b < f->count && f->blocks[b].begin < entry_end; b++) {
        if (f->blocks[b].loop >= 0 && b < first_loop) first_loop = b;
        if (f->blocks[b].loop >= 0) last_loop = b;
    }
    for (int i = 0; i < f->loop_count; i++) {
        emu_location location = emu_location_of(code, f->loops[i].latch_instruction);
        char name[160];
        if (location.own)
            snprintf(name, sizeof name, "loop at %.100s:%d", base_name(location.own->file), location.own->line);
        else
            snprintf(name, sizeof name, "loop at PTX line %d", location.ptx_line);
        code->regions[i] = (emu_region){emu_load_text(f->load, name, strlen(name)), f->loops[i].depth};
    }
    code->region_count = (size_t)f->loop_count;
    const char *names[3] = {last_loop >= 0 ? "before the loops" : "straight code", "between the loops",
                            "after the loops"};
    int index[3] = {-1, -1, -1}, of_routine = -1;
    size_t r = 0;
    for (int b = 0; b < f->count; b++) {
        int region = f->blocks[b].loop;
        while (f->blocks[b].begin >= code->routines[r].end) {
            r++;
            of_routine = -1;
        }
        if (region < 0 && r > 0) {
            if (of_routine < 0) {
                of_routine = (int)code->region_count;
                code->regions[code->region_count++] = (emu_region){routine_region(f, &code->routines[r]), 0};
            }
            region = of_routine;
        }
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
        watching[i + 1] = watching[i] + (o->kind == OP_ATOMIC || o->kind == OP_CALL || o->asks);
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
    if (o->kind == OP_LANES || o->kind == OP_LANES_4 || o->kind == OP_ROUNDED)
        o->bytes = (uint8_t)(4 << emu_slot_class(&code->registers[o->r[0]]));
    for (int k = 0; k < o->dests + o->sources; k++) o->r[k] = code->registers[o->r[k]].slot;
}

/* The ops move up to make room for a mark at each block where lanes meet: from the last to the first, in the same
 * array. */
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
            const uint32_t next = code->ops[at].instruction;
            code->ops[--at] = (op){.kind = OP_JOIN,
                                   .guard = NO_PREDICATE,
                                   .p = {NO_PREDICATE, NO_PREDICATE, NO_PREDICATE},
                                   .instruction = next};
        }
    }
    for (size_t r = 0; r < code->routine_count; r++) {
        routine *each = &code->routines[r];
        each->end = (uint32_t)begin[f->block_of[each->end - 1] + 1];
        each->begin = (uint32_t)begin[f->block_of[each->begin]];
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
    emu_find_unset(&f);
    emu_assign_slots(&f);
    name_predicates(code, load);
    place_joins(&f);
}
