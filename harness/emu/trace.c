/* trace.c - executed instructions with their values, for people who want to see a warp at work.
 *
 *     w1  v01_base.cu:210   add.s32 %r5, %r3, %r4;            %r5 = 00000020 | 00000010 00000010
 */
#include "machine.h"
#include "numbers.h"

bool trace_wants(const machine *m, const warp *w, const op *o) {
    const emu_trace *t = &m->launch->trace;
    if (t->cta >= 0 && (uint64_t)t->cta != m->cta_index) return false;
    if (t->warp >= 0 && t->warp != w->index) return false;
    if (!(o->flags & FLAG_FIRST) && o->kind != OP_LANES) return false;
    if (!t->line_first && !t->line_last) return true;
    emu_place place = place_of(m->code, o->instruction);
    bool here = place.line >= t->line_first && place.line <= t->line_last;
    return here || (place.caller_line >= t->line_first && place.caller_line <= t->line_last);
}

static uint64_t lane_value(const warp *w, const op *o, int i, int bits, int lane) {
    return bits >= 64 ? slot64(w, o->r[i])[lane] : slot32(w, o->r[i])[lane];
}

/* A register of every lane: one value when all agree, else the lanes in rows of eight. */
static void print_register(const machine *m, const warp *w, const op *o, int i, uint32_t mask) {
    FILE *out = m->launch->trace.file;
    const virtual_register *reg = &m->code->registers[m->code->names[o - m->code->ops][i]];
    char name[64];
    register_name(reg, name, sizeof name);
    int digits = reg->bits >= 64 ? 16 : reg->bits / 4, chosen = m->launch->trace.lane;
    bool is_float = strncmp(name, "%f", 2) == 0 && reg->bits == 32;
    int first = chosen >= 0 ? chosen : first_lane(mask);
    uint64_t value = lane_value(w, o, i, reg->bits, first);
    bool same = true;
    for (int lane = 0; lane < LANES; lane++) {
        same &= !(mask >> lane & 1) || lane_value(w, o, i, reg->bits, lane) == value;
    }
    fprintf(out, "        %s =", name);
    if (chosen >= 0 || same) {
        if (is_float)
            fprintf(out, " %.9g", (double)float_of((uint32_t)value));
        else
            fprintf(out, " 0x%0*llx", digits, (unsigned long long)value);
        fprintf(out, chosen >= 0 ? " in lane %d\n" : " in all lanes\n", chosen);
        return;
    }
    for (int lane = 0; lane < LANES; lane++) {
        if (lane % 8 == 0) fprintf(out, "\n          lanes %2d..%2d ", lane, lane + 7);
        uint64_t each = lane_value(w, o, i, reg->bits, lane);
        if (!(mask >> lane & 1))
            fprintf(out, " %*s", digits, "-");
        else if (is_float)
            fprintf(out, " %8.5g", (double)float_of((uint32_t)each));
        else
            fprintf(out, " %0*llx", digits, (unsigned long long)each);
    }
    fprintf(out, "\n");
}

static void print_predicate(const machine *m, const warp *w, unsigned p, uint32_t mask) {
    if (p == NO_PREDICATE) return;
    char name[64];
    register_name(&m->code->registers[m->code->predicate_names[p]], name, sizeof name);
    uint32_t value = w->predicates[p] & mask;
    FILE *out = m->launch->trace.file;
    if (value == mask || !value)
        fprintf(out, "        %s = %s in all lanes\n", name, value ? "true" : "false");
    else
        fprintf(out, "        %s = true in lanes 0x%08x of 0x%08x\n", name, value, mask);
}

void trace_op(const machine *m, const warp *w, const op *o, uint32_t mask) {
    FILE *out = m->launch->trace.file;
    emu_place place = place_of(m->code, o->instruction);
    if (o->flags & FLAG_FIRST) {
        const char *slash = strrchr(place.file, '/');
        fprintf(out, "cta %llu warp %d  ", (unsigned long long)m->cta_index, w->index);
        if (place.line) fprintf(out, "%s:%d  ", slash ? slash + 1 : place.file, place.line);
        fprintf(out, "[%d]  %s", place.ptx_line, place.ptx);
        if (mask != ALL_LANES) fprintf(out, "   lanes 0x%08x", mask);
        fprintf(out, "\n");
    }
    bool own_memory = o->kind == OP_EXIT || o->kind == OP_CALL;
    for (int i = 0; i < o->dests && !own_memory; i++) print_register(m, w, o, i, mask);
    print_predicate(m, w, o->p[0], mask);
    if (o->kind == OP_COMPARE) print_predicate(m, w, o->p[1], mask);
}
