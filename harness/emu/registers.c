/* registers.c - which registers live where: those that share a slot, and those that might be read before they are
 * written. */
#include "flow.h"

/* ---- what an op reads and writes, as variables: registers, then predicates ---- */

typedef struct uses {
    int reads[MAX_OPERANDS + 4], writes[MAX_OPERANDS + 2];
    int read_count, write_count;
} uses;

static void list_uses(const flow *f, const op *o, uses *u) {
    int predicates = (int)f->code->register_count;
    u->read_count = u->write_count = 0;
    for (int i = 0; i < o->dests; i++) u->writes[u->write_count++] = o->r[i];
    for (int i = 0; i < o->sources; i++) u->reads[u->read_count++] = o->r[o->dests + i];
    if (o->guard != NO_PREDICATE) u->reads[u->read_count++] = predicates + o->guard;
    if (o->p[0] != NO_PREDICATE) u->writes[u->write_count++] = predicates + o->p[0];
    if (o->p[2] != NO_PREDICATE) u->reads[u->read_count++] = predicates + o->p[2];
    if (o->p[1] != NO_PREDICATE) {
        if (o->kind == OP_COMPARE)
            u->writes[u->write_count++] = predicates + o->p[1];
        else
            u->reads[u->read_count++] = predicates + o->p[1];
    }
}

static bool get_bit(const uint64_t *set, int bit) {
    return set[bit / 64] >> (bit % 64) & 1;
}
static void set_bit(uint64_t *set, int bit) {
    set[bit / 64] |= 1ull << (bit % 64);
}
static void clear_bit(uint64_t *set, int bit) {
    set[bit / 64] &= ~(1ull << (bit % 64));
}

static bool is_variable(const flow *f, int v) {
    return v >= (int)f->code->register_count || f->code->registers[v].kind == REGISTER_PLAIN;
}

/* ---- liveness ---- */

static void block_live_in(const flow *f, const block *b, uint64_t *live) {
    memcpy(live, b->live_out, f->words * sizeof *live);
    for (uint32_t i = b->end; i-- > b->begin;) {
        const op *o = &f->code->ops[i];
        uses u;
        list_uses(f, o, &u);
        for (int k = 0; k < u.write_count && o->guard == NO_PREDICATE; k++) clear_bit(live, u.writes[k]);
        for (int k = 0; k < u.read_count; k++) set_bit(live, u.reads[k]);
    }
}

void find_liveness(flow *f) {
    uint64_t *live = load_alloc(f->load, f->words * sizeof *live);
    for (bool changed = true; changed;) {
        changed = false;
        for (int b = f->count - 1; b >= 0; b--) {
            block *each = &f->blocks[b];
            for (int k = 0; k < 2; k++) {
                if (each->next[k] < 0) continue;
                const uint64_t *from = f->blocks[each->next[k]].live_in;
                for (size_t w = 0; w < f->words; w++) each->live_out[w] |= from[w];
            }
            block_live_in(f, each, live);
            if (!memcmp(live, each->live_in, f->words * sizeof *live)) continue;
            memcpy(each->live_in, live, f->words * sizeof *live);
            changed = true;
        }
    }
}

/* ---- registers that may be read before they are written ---- */

/* Walk a block with the set of variables that may be unset; note reads of such in found. */
static void walk_unset(const flow *f, const block *b, uint64_t *unset, uint64_t *found) {
    for (uint32_t i = b->begin; i < b->end; i++) {
        const op *o = &f->code->ops[i];
        uses u;
        list_uses(f, o, &u);
        for (int k = 0; found && k < u.read_count; k++) {
            if (get_bit(unset, u.reads[k]) && is_variable(f, u.reads[k])) set_bit(found, u.reads[k]);
        }
        for (int k = 0; k < u.write_count && o->guard == NO_PREDICATE; k++) clear_bit(unset, u.writes[k]);
    }
}

/* A copy of a tracked register is tracked too: what was not written passes through until it matters. */
static void spread_tracking(const flow *f, uint64_t *tracked) {
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < f->code->op_count; i++) {
            const op *o = &f->code->ops[i];
            if (!(o->flags & FLAG_COPY) && o->kind != OP_SELECT) continue;
            bool any = false;
            for (int k = 0; k < o->sources; k++) any |= get_bit(tracked, o->r[o->dests + k]);
            if (any && !get_bit(tracked, o->r[0])) {
                set_bit(tracked, o->r[0]);
                changed = true;
            }
        }
    }
}

void find_tracked(flow *f) {
    entry *code = f->code;
    uint64_t *unset = load_alloc(f->load, f->words * sizeof *unset),
             *tracked = load_alloc(f->load, f->words * sizeof *tracked);
    memset(f->blocks[0].unset_in, 0xff, f->words * sizeof *unset);
    for (bool changed = true; changed;) {
        changed = false;
        for (int b = 0; b < f->count; b++) {
            memcpy(unset, f->blocks[b].unset_in, f->words * sizeof *unset);
            walk_unset(f, &f->blocks[b], unset, NULL);
            for (int k = 0; k < 2; k++) {
                if (f->blocks[b].next[k] < 0) continue;
                uint64_t *to = f->blocks[f->blocks[b].next[k]].unset_in;
                for (size_t w = 0; w < f->words; w++) {
                    changed |= (unset[w] & ~to[w]) != 0;
                    to[w] |= unset[w];
                }
            }
        }
    }
    for (int b = 0; b < f->count; b++) {
        memcpy(unset, f->blocks[b].unset_in, f->words * sizeof *unset);
        walk_unset(f, &f->blocks[b], unset, tracked);
    }
    spread_tracking(f, tracked);
    code->predicates_tracked = load_alloc(f->load, (code->predicate_count + 1) * sizeof *code->predicates_tracked);
    for (size_t v = 0; v < f->variables; v++) {
        int index = get_bit(tracked, (int)v) && code->tracked_count < INT16_MAX ? (int)code->tracked_count++ : -1;
        if (v < code->register_count)
            code->registers[v].tracked = (int16_t)index;
        else
            code->predicates_tracked[v - code->register_count] = (int16_t)index;
    }
    for (size_t i = 0; i < code->op_count; i++) {
        uses u;
        list_uses(f, &code->ops[i], &u);
        bool any = false;
        for (int k = 0; k < u.read_count; k++) any |= get_bit(tracked, u.reads[k]);
        for (int k = 0; k < u.write_count; k++) any |= get_bit(tracked, u.writes[k]);
        if (any) code->ops[i].flags |= FLAG_TRACKED;
    }
}

/* ---- slots: linear scan over [first write or entry, last read or exit] in program order ---- */

typedef struct interval {
    uint32_t begin, end;
    uint16_t reg;
} interval;

static void widen(interval *in, uint32_t position) {
    if (position < in->begin) in->begin = position;
    if (position > in->end) in->end = position;
}

/* The intervals of the registers in a set, most of whose words are empty. */
static void widen_members(interval *all, size_t registers, const uint64_t *set, uint32_t position) {
    for (size_t word = 0; 64 * word < registers; word++) {
        uint64_t rest = set[word];
        for (size_t v = 64 * word; rest && v < registers; v++, rest >>= 1) {
            if (rest & 1) widen(&all[v], position);
        }
    }
}

static interval *find_intervals(flow *f) {
    size_t registers = f->code->register_count;
    interval *all = load_alloc(f->load, (registers + 1) * sizeof *all);
    for (size_t v = 0; v < registers; v++) all[v] = (interval){UINT32_MAX, 0, (uint16_t)v};
    for (int b = 0; b < f->count; b++) {
        const block *each = &f->blocks[b];
        widen_members(all, registers, each->live_in, 2 * each->begin);
        widen_members(all, registers, each->live_out, 2 * each->end);
        for (uint32_t i = each->begin; i < each->end; i++) {
            const op *o = &f->code->ops[i];
            for (int k = 0; k < o->sources; k++) widen(&all[o->r[o->dests + k]], 2 * i);
            for (int k = 0; k < o->dests; k++) widen(&all[o->r[k]], 2 * i + 1);
        }
    }
    return all;
}

int slot_class(const virtual_register *reg) {
    return reg->bits == 128 ? 2 : reg->bits == 64 ? 1 : 0;
}

/* Sort by begin: positions are small numbers, so count them. */
static interval *sort_intervals(flow *f, const interval *all, size_t count) {
    size_t positions = 2 * f->code->op_count + 2;
    uint32_t *start = load_alloc(f->load, (positions + 1) * sizeof *start);
    interval *sorted = load_alloc(f->load, (count + 1) * sizeof *sorted);
    for (size_t i = 0; i < count; i++) start[all[i].begin + 1]++;
    for (size_t i = 0; i < positions; i++) start[i + 1] += start[i];
    for (size_t i = 0; i < count; i++) sorted[start[all[i].begin]++] = all[i];
    return sorted;
}

void assign_slots(flow *f) {
    entry *code = f->code;
    uint32_t next_slot = 0;
    for (size_t v = 0; v < code->register_count; v++) {
        virtual_register *reg = &code->registers[v];
        if (reg->kind == REGISTER_PLAIN) continue;
        uint32_t width = 1u << slot_class(reg);
        next_slot = (next_slot + width - 1) / width * width;
        reg->slot = (uint16_t)next_slot;
        next_slot += width;
    }
    code->constant_slots = next_slot;
    const interval *all = find_intervals(f);
    interval *used = load_alloc(f->load, (code->register_count + 1) * sizeof *used);
    size_t count = 0;
    for (size_t v = 0; v < code->register_count; v++) {
        bool plain = code->registers[v].kind == REGISTER_PLAIN && code->registers[v].bits > 1;
        if (plain && all[v].begin != UINT32_MAX) used[count++] = all[v];
    }
    used = sort_intervals(f, used, count);
    /* active intervals end by bucket: a list of registers to free at each position */
    size_t positions = 2 * code->op_count + 2;
    int32_t *ending = load_alloc(f->load, positions * sizeof *ending),
            *link = load_alloc(f->load, (count + 1) * sizeof *link);
    uint16_t *free_slots[3];
    size_t free_count[3] = {0, 0, 0};
    for (int c = 0; c < 3; c++) free_slots[c] = load_alloc(f->load, (count + 1) * sizeof **free_slots);
    uint32_t position = 0;
    for (size_t i = 0; i < count; i++) {
        for (; position < used[i].begin; position++) {
            for (int32_t k = ending[position]; k; k = link[k - 1]) {
                const virtual_register *reg = &code->registers[used[k - 1].reg];
                free_slots[slot_class(reg)][free_count[slot_class(reg)]++] = reg->slot;
            }
        }
        virtual_register *reg = &code->registers[used[i].reg];
        int class_ = slot_class(reg);
        if (free_count[class_]) {
            reg->slot = free_slots[class_][--free_count[class_]];
        } else {
            uint32_t width = 1u << class_;
            next_slot = (next_slot + width - 1) / width * width;
            if (next_slot + width > UINT16_MAX)
                load_fail(f->load, 0, "entry '%.100s' needs too many registers at once", code->info.name);
            reg->slot = (uint16_t)next_slot;
            next_slot += width;
        }
        link[i] = ending[used[i].end];
        ending[used[i].end] = (int32_t)i + 1;
    }
    code->slot_count = next_slot + 8; /* a lane function may look past the operands that it has */
}
