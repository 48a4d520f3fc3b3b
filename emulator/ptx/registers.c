/* registers.c - which registers live where: those that share a slot, and those that might be read before they are
 * written. */
#include "registers.h"

#include <string.h>

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

static bool is_variable(const flow *f, int v) {
    return v >= (int)f->code->register_count || f->code->registers[v].kind == REGISTER_PLAIN;
}

/* ---- variables that a block may read before it writes them: only these live from block to block ---- */

/* Registers that each block reads before it writes them, and registers that it writes: block after block in one list.
 */
typedef struct accesses {
    uint32_t *variables;
    size_t count, capacity;
    size_t *ends; /* by block */
} accesses;

static accesses start_accesses(flow *f) {
    return (accesses){.variables = emu_load_alloc(f->load, f->variables * sizeof(uint32_t)),
                      .capacity = f->variables,
                      .ends = emu_load_alloc(f->load, (size_t)f->count * sizeof(size_t))};
}

static inline void add_access(flow *f, accesses *to, int variable) {
    to->variables = load_grow(f->load, to->variables, to->count, &to->capacity, sizeof *to->variables);
    to->variables[to->count++] = (uint32_t)variable;
}

/* A guarded write may leave the old value: it hides nothing from the reads that follow. */
static void list_accesses(flow *f, accesses *reads, accesses *writes) {
    uint32_t *writer =
        emu_load_alloc(f->load, 2 * f->variables * sizeof *writer); /* 1 + the last block that wrote it */
    uint32_t *reader = writer + f->variables;
    for (int b = 0; b < f->count; b++) {
        const uint32_t self = (uint32_t)b + 1;
        for (uint32_t i = f->blocks[b].begin; i < f->blocks[b].end; i++) {
            const op *o = &f->code->ops[i];
            uses u;
            list_uses(f, o, &u);
            for (int k = 0; k < u.read_count; k++) {
                int v = u.reads[k];
                if (writer[v] == self || reader[v] == self) continue;
                reader[v] = self;
                if (is_variable(f, v)) add_access(f, reads, v);
            }
            for (int k = 0; k < u.write_count && o->guard == NO_PREDICATE; k++) {
                int v = u.writes[k];
                if (writer[v] == self) continue;
                writer[v] = self;
                add_access(f, writes, v);
            }
        }
        reads->ends[b] = reads->count;
        writes->ends[b] = writes->count;
    }
}

static void number_exposed(flow *f, const accesses *reads) {
    f->exposed = emu_load_alloc(f->load, (reads->count + 1) * sizeof *f->exposed);
    f->exposed_index = emu_load_alloc(f->load, f->variables * sizeof *f->exposed_index);
    for (size_t i = 0; i < reads->count; i++) {
        uint32_t v = reads->variables[i];
        if (f->exposed_index[v]) continue;
        f->exposed[f->exposed_count] = v;
        f->exposed_index[v] = ++f->exposed_count;
    }
}

/* The accesses of a block to exposed variables, as a set. */
static void fill_set(const flow *f, const accesses *from, int b, uint64_t *set) {
    for (size_t i = b ? from->ends[b - 1] : 0; i < from->ends[b]; i++) {
        uint32_t index = f->exposed_index[from->variables[i]];
        if (index) set[(index - 1) / 64] |= 1ull << (index - 1) % 64;
    }
}

void emu_find_exposed(flow *f) {
    accesses reads = start_accesses(f), writes = start_accesses(f);
    list_accesses(f, &reads, &writes);
    number_exposed(f, &reads);
    f->words = (f->exposed_count + 63) / 64;
    if ((uint64_t)f->words * (uint64_t)f->count > (1u << 23))
        emu_load_fail(f->load, 0, "entry '%.100s' is too big", f->code->info.name);
    uint64_t *sets = emu_load_alloc(f->load, 5 * f->words * (size_t)f->count * sizeof *sets);
    for (int b = 0; b < f->count; b++, sets += 5 * f->words) {
        block *each = &f->blocks[b];
        each->live_in = sets;
        each->live_out = sets + f->words;
        each->unset_in = sets + 2 * f->words;
        each->reads = sets + 3 * f->words;
        each->writes = sets + 4 * f->words;
        fill_set(f, &reads, b, each->reads);
        fill_set(f, &writes, b, each->writes);
    }
}

/* ---- liveness ---- */

void emu_find_liveness(flow *f) {
    for (bool changed = true; changed;) {
        changed = false;
        for (int b = f->count - 1; b >= 0; b--) {
            block *each = &f->blocks[b];
            for (size_t w = 0; w < f->words; w++) {
                for (int k = 0; k < 2; k++) {
                    if (each->next[k] >= 0) each->live_out[w] |= f->blocks[each->next[k]].live_in[w];
                }
                uint64_t live = each->reads[w] | (each->live_out[w] & ~each->writes[w]);
                changed |= live != each->live_in[w];
                each->live_in[w] = live;
            }
        }
    }
}

/* ---- registers that may be read before they are written ---- */

/* Registers that may be uninitialized at the start of a block. */
static void find_unset(flow *f) {
    for (size_t r = 0; r < f->code->routine_count; r++)
        memset(f->blocks[f->block_of[f->code->routines[r].begin]].unset_in, 0xff, f->words * sizeof(uint64_t));
    for (bool changed = true; changed;) {
        changed = false;
        for (int b = 0; b < f->count; b++) {
            const block *each = &f->blocks[b];
            for (int k = 0; k < 2; k++) {
                if (each->next[k] < 0) continue;
                uint64_t *to = f->blocks[each->next[k]].unset_in;
                for (size_t w = 0; w < f->words; w++) {
                    uint64_t unset = each->unset_in[w] & ~each->writes[w];
                    changed |= (unset & ~to[w]) != 0;
                    to[w] |= unset;
                }
            }
        }
    }
}

void emu_find_unset(flow *f) {
    entry *code = f->code;
    uint64_t *unset = emu_load_alloc(f->load, (f->words + 1) * sizeof *unset);
    find_unset(f);
    for (int b = 0; b < f->count; b++) {
        for (size_t word = 0; word < f->words; word++)
            unset[word] |= f->blocks[b].unset_in[word] & f->blocks[b].reads[word];
    }
    for (size_t word = 0; word < f->words; word++) code->unset_count += (uint32_t)__builtin_popcountll(unset[word]);
    code->unset = emu_load_alloc(f->load, (code->unset_count + 1) * sizeof *code->unset);
    uint32_t count = 0;
    for (size_t word = 0; word < f->words; word++) {
        for (uint64_t rest = unset[word]; rest; rest &= rest - 1)
            code->unset[count++] = f->exposed[64 * word + (size_t)__builtin_ctzll(rest)];
    }
}

/* ---- slots: linear scan over [first write or entry, last read or exit] in program order ---- */

typedef struct interval {
    uint32_t begin, end;
} interval;

static inline void widen(interval *in, uint32_t position) {
    if (position < in->begin) in->begin = position;
    if (position > in->end) in->end = position;
}

/* The intervals of the registers in a set of exposed variables, except those that were seen before. */
static void widen_new(const flow *f, interval *all, uint64_t *seen, const uint64_t *set, uint32_t position) {
    for (size_t word = 0; word < f->words; word++) {
        uint64_t rest = set[word] & ~seen[word];
        for (seen[word] |= rest; rest; rest &= rest - 1) {
            uint32_t v = f->exposed[64 * word + (size_t)__builtin_ctzll(rest)];
            if (v < f->code->register_count) widen(&all[v], position);
        }
    }
}

/* First and last entry to or exit from a block at which a register is live. */
static void widen_live(const flow *f, interval *all) {
    uint64_t *first = emu_load_alloc(f->load, 2 * f->words * sizeof *first), *last = first + f->words;
    for (int b = 0; b < f->count; b++) {
        widen_new(f, all, first, f->blocks[b].live_in, 2 * f->blocks[b].begin);
        widen_new(f, all, first, f->blocks[b].live_out, 2 * f->blocks[b].end);
    }
    for (int b = f->count - 1; b >= 0; b--) {
        widen_new(f, all, last, f->blocks[b].live_out, 2 * f->blocks[b].end);
        widen_new(f, all, last, f->blocks[b].live_in, 2 * f->blocks[b].begin);
    }
}

/* A wgmma writes when it is waited for: accumulators that nothing reads afterwards share their slot with nobody. */
static void widen_accumulators(const flow *f, interval *all) {
    bool *read = emu_load_alloc(f->load, f->code->register_count + 1);
    for (uint32_t i = 0; i < f->code->op_count; i++) {
        const op *o = &f->code->ops[i];
        for (int k = o->dests; k < o->dests + o->sources && o->kind != OP_WGMMA; k++) read[o->r[k]] = true;
    }
    const routine *in = f->code->routines;
    for (uint32_t i = 0; i < f->code->op_count; i++) {
        const op *o = &f->code->ops[i];
        while (i >= in->end) in++;
        for (int k = 0; k < o->dests && o->kind == OP_WGMMA; k++) {
            if (read[o->r[k]]) continue;
            widen(&all[o->r[k]], 2 * in->begin);
            widen(&all[o->r[k]], 2 * in->end - 1);
        }
    }
}

static interval *find_intervals(flow *f) {
    size_t registers = f->code->register_count;
    interval *all = emu_load_alloc(f->load, (registers + 1) * sizeof *all);
    for (size_t v = 0; v < registers; v++) all[v] = (interval){UINT32_MAX, 0};
    widen_live(f, all);
    for (uint32_t i = 0; i < f->code->op_count; i++) {
        const op *o = &f->code->ops[i];
        for (int k = 0; k < o->dests; k++) widen(&all[o->r[k]], 2 * i + 1);
        for (int k = o->dests; k < o->dests + o->sources; k++) widen(&all[o->r[k]], 2 * i);
    }
    if (f->code->uses_wgmma) widen_accumulators(f, all);
    return all;
}

static inline bool needs_slot(const entry *code, const interval *all, size_t v) {
    const virtual_register *reg = &code->registers[v];
    return all[v].begin != UINT32_MAX && reg->kind == REGISTER_PLAIN && reg->bits > 1;
}

int emu_slot_class(const virtual_register *reg) {
    return reg->bits == 128 ? 2 : reg->bits == 64 ? 1 : 0;
}

/* The registers that need a slot, sorted by where their interval begins: positions are small numbers, so count them. */
static uint16_t *sort_registers(flow *f, const interval *all, size_t *count) {
    const entry *code = f->code;
    size_t positions = 2 * code->op_count + 2;
    uint16_t *start = emu_load_alloc(f->load, (positions + 1) * sizeof *start);
    uint16_t *sorted = emu_load_alloc(f->load, code->register_count * sizeof *sorted);
    *count = 0;
    for (size_t v = 0; v < code->register_count; v++) {
        if (!needs_slot(code, all, v)) continue;
        start[all[v].begin + 1]++;
        ++*count;
    }
    for (size_t i = 0; i < positions; i++) start[i + 1] = (uint16_t)(start[i + 1] + start[i]);
    for (size_t v = 0; v < code->register_count; v++) {
        if (needs_slot(code, all, v)) sorted[start[all[v].begin]++] = (uint16_t)v;
    }
    return sorted;
}

void emu_assign_slots(flow *f) {
    entry *code = f->code;
    uint32_t next_slot = 0;
    for (size_t v = 0; v < code->register_count; v++) {
        virtual_register *reg = &code->registers[v];
        if (reg->kind == REGISTER_PLAIN) continue;
        uint32_t width = 1u << emu_slot_class(reg);
        next_slot = (next_slot + width - 1) / width * width;
        reg->slot = (uint16_t)next_slot;
        next_slot += width;
    }
    code->constant_slots = next_slot;
    const interval *all = find_intervals(f);
    size_t count;
    const uint16_t *sorted = sort_registers(f, all, &count);
    /* active intervals end by bucket: a list of registers to free at each position, which 0 ends */
    uint16_t *ending = emu_load_alloc(f->load, (2 * code->op_count + 2) * sizeof *ending),
             *link = emu_load_alloc(f->load, code->register_count * sizeof *link);
    uint16_t *free_slots[3];
    size_t free_count[3] = {0, 0, 0};
    for (int c = 0; c < 3; c++) free_slots[c] = emu_load_alloc(f->load, (count + 1) * sizeof **free_slots);
    uint32_t position = 0;
    size_t r = 0;
    code->routines[0].slot_begin = next_slot;
    for (size_t i = 0; i < count; i++) {
        const interval *each = &all[sorted[i]];
        while (each->begin >= 2 * code->routines[r].end) { /* no slot is shared with another routine */
            code->routines[r++].slot_end = next_slot;
            code->routines[r].slot_begin = next_slot = (next_slot + 3) / 4 * 4;
            memset(free_count, 0, sizeof free_count);
            position = 2 * code->routines[r].begin;
        }
        for (; position < each->begin; position++) {
            for (uint16_t v = ending[position]; v; v = link[v]) {
                int freed = emu_slot_class(&code->registers[v]);
                free_slots[freed][free_count[freed]++] = code->registers[v].slot;
            }
        }
        virtual_register *reg = &code->registers[sorted[i]];
        int class_ = emu_slot_class(reg);
        if (free_count[class_]) {
            reg->slot = free_slots[class_][--free_count[class_]];
        } else {
            uint32_t width = 1u << class_;
            next_slot = (next_slot + width - 1) / width * width;
            if (next_slot + width > UINT16_MAX)
                emu_load_fail(f->load, 0, "entry '%.100s' needs too many registers at once", code->info.name);
            reg->slot = (uint16_t)next_slot;
            next_slot += width;
        }
        link[sorted[i]] = ending[each->end];
        ending[each->end] = sorted[i];
    }
    for (code->routines[r].slot_end = next_slot; ++r < code->routine_count;)
        code->routines[r].slot_begin = code->routines[r].slot_end = next_slot;
    code->slot_count = next_slot + 8; /* a lane function may look past the operands that it has */
}
