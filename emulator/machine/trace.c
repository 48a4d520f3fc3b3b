/* trace.c - executed instructions with their values, for people who want to see a warp at work.
 *
 *     w1  v01_base.cu:210   add.s32 %r5, %r3, %r4;            %r5 = 00000020 | 00000010 00000010
 */
#include "machine.h"
#include "numbers.h"

#include <inttypes.h>
#include <string.h>

/* ---- what to show ---- */

/* A number of digits alone, with what follows it in *end; -1 where it is none or above INT32_MAX. */
static int64_t read_number(const char *text, const char **end) {
    int64_t number = 0;
    for (*end = text; **end >= '0' && **end <= '9'; ++*end) {
        number = 10 * number + (**end - '0');
        if (number > INT32_MAX) return -1;
    }
    return *end == text ? -1 : number;
}

enum { CTA, WARP, LANE, LINES, PARTS };
static const struct {
    const char *name;
    int64_t least, most;
    const char *expected;
} trace_parts[PARTS] = {{"cta=", 0, INT32_MAX, "cta=N, a number from 0"},
                        {"warp=", 0, INT32_MAX, "warp=N, a number from 0"},
                        {"lane=", 0, LANES - 1, "lane=N, a number from 0 to 31"},
                        {"lines=", 1, INT32_MAX, "lines=A or lines=A-B, from 1 and with B not below A"}};

/* One part, such as "lines=100-120", that ends at `end`: NULL, or what it should be. *named: a bit for each of before.
 */
static const char *set_part(const char *text, const char *end, unsigned *named, emu_trace *trace) {
    int part = 0;
    while (part < PARTS && strncmp(text, trace_parts[part].name, strlen(trace_parts[part].name)) != 0) part++;
    if (part == PARTS) return "one of cta=N, warp=N, lane=N and lines=A-B";
    if (*named >> part & 1) return "named once";
    *named |= 1u << part;
    const char *stop;
    int64_t first = read_number(text + strlen(trace_parts[part].name), &stop), last = first;
    if (part == LINES && *stop == '-') last = read_number(stop + 1, &stop);
    if (stop != end || first < trace_parts[part].least || last < first || last > trace_parts[part].most)
        return trace_parts[part].expected;
    switch (part) {
    case CTA:
        trace->cta = first;
        break;
    case WARP:
        trace->warp = (int32_t)first;
        break;
    case LANE:
        trace->lane = (int32_t)first;
        break;
    default:
        trace->line_first = (int32_t)first;
        trace->line_last = (int32_t)last;
    }
    return NULL;
}

bool emu_parse_trace(const char *text, emu_trace *trace, emu_error *error) {
    unsigned named = 0;
    *error = (emu_error){0};
    for (const char *part = text;; part++) {
        size_t length = strcspn(part, ",");
        const char *expected = set_part(part, part + length, &named, trace);
        if (expected) {
            snprintf(error->text, sizeof error->text, "'%.*s' should be %s, as in " EMU_TRACE_FORM,
                     (int)(length < 100 ? length : 100), part, expected);
            return false;
        }
        part += length;
        if (!*part) return true;
    }
}

bool emu_check_trace(const emu_launch *launch, emu_error *error) {
    const emu_trace *trace = &launch->trace;
    const uint64_t ctas = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    const uint64_t warps = ((uint64_t)launch->block[0] * launch->block[1] * launch->block[2] + LANES - 1) / LANES;
    *error = (emu_error){0};
    if (!trace->file) return true;
    if (trace->cta >= 0 && (uint64_t)trace->cta >= ctas) {
        snprintf(error->text, sizeof error->text, "no cta=%" PRId64 " in the launch: its CTAs are 0 to %" PRIu64,
                 trace->cta, ctas - 1);
    } else if (trace->warp >= 0 && (uint64_t)trace->warp >= warps) {
        snprintf(error->text, sizeof error->text, "no warp=%d in a CTA: its warps are 0 to %" PRIu64, trace->warp,
                 warps - 1);
    }
    return !error->text[0];
}

/* ---- showing it ---- */

static bool shows(const cta *m, const warp *w, const op *o) {
    const emu_trace *t = &m->launch->trace;
    if (!t->file) return false;
    if (t->cta >= 0 && (uint64_t)t->cta != m->cta_index) return false;
    if (t->warp >= 0 && t->warp != w->index) return false;
    if (!(o->flags & FLAG_FIRST) && o->kind != OP_LANES && o->kind != OP_ROUNDED) return false;
    if (!t->line_first && !t->line_last) return true;
    emu_location location = emu_location_of(m->code, o->instruction);
    for (const emu_frame *f = location.frame; f; f = f->caller) {
        bool own_file = f->file == location.own->file;
        if (own_file && f->line >= t->line_first && f->line <= t->line_last) return true;
    }
    return false;
}

bool emu_trace_wants(const cta *m, const warp *w, const op *o) {
    return (m->launch->trace.events && o->flags & FLAG_FIRST) || shows(m, w, o);
}

static uint64_t lane_value(const warp *w, const op *o, int i, int bits, int lane) {
    return bits >= 64 ? slot64(w, o->r[i])[lane] : slot32(w, o->r[i])[lane];
}

/* A register of every lane: one value when all agree, else the lanes in rows of eight. */
static void print_register(const cta *m, const warp *w, const op *o, int i, uint32_t mask) {
    FILE *out = m->launch->trace.file;
    const virtual_register *reg = &m->code->registers[m->code->names[o - m->code->ops][i]];
    char name[64];
    emu_register_name(reg, name, sizeof name);
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
            fprintf(out, " 0x%0*" PRIx64, digits, value);
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
            fprintf(out, " %0*" PRIx64, digits, each);
    }
    fprintf(out, "\n");
}

static void print_predicate(const cta *m, const warp *w, unsigned p, uint32_t mask) {
    if (p == NO_PREDICATE) return;
    char name[64];
    emu_register_name(&m->code->registers[m->code->predicate_names[p]], name, sizeof name);
    uint32_t value = w->predicates[p] & mask;
    FILE *out = m->launch->trace.file;
    if (value == mask || !value)
        fprintf(out, "        %s = %s in all lanes\n", name, value ? "true" : "false");
    else
        fprintf(out, "        %s = true in lanes 0x%08x of 0x%08x\n", name, value, mask);
}

static void show(const cta *m, const warp *w, const op *o, uint32_t mask) {
    FILE *out = m->launch->trace.file;
    emu_location location = emu_location_of(m->code, o->instruction);
    if (o->flags & FLAG_FIRST) {
        fprintf(out, "cta %" PRIu64 " warp %d  ", m->cta_index, w->index);
        if (location.own) {
            const char *slash = strrchr(location.own->file, '/');
            fprintf(out, "%s:%d  ", slash ? slash + 1 : location.own->file, location.own->line);
        }
        fprintf(out, "[%d]  %s", location.ptx_line, location.ptx);
        if (mask != ALL_LANES) fprintf(out, "   lanes 0x%08x", mask);
        fprintf(out, "\n");
    }
    bool own_memory = o->kind == OP_EXIT || o->kind == OP_CALL;
    for (int i = 0; i < o->dests && !own_memory; i++) print_register(m, w, o, i, mask);
    print_predicate(m, w, o->p[0], mask);
    if (o->kind == OP_COMPARE) print_predicate(m, w, o->p[1], mask);
}

bool emu_trace_op(const cta *m, const warp *w, const op *o, uint32_t mask) {
    const emu_trace *t = &m->launch->trace;
    if (t->events && o->flags & FLAG_FIRST) emu_note_instruction(t->events, m, w, o);
    if (shows(m, w, o)) show(m, w, o, mask);
    return false;
}

int emu_wanted_warp(const cta *m) {
    (void)m;
    return -1;
}
