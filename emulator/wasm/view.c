#include "view.h"

#include "../check/cells.h"
#include "../machine/machine.h"
#include "../machine/tensor_memory.h"
#include "watch.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static emu_view_state view;

emu_view_state *emu_view(void) {
    return &view;
}

/* ---- texts ---- */

static struct {
    char *bytes;
    size_t length, capacity;
} text;

__attribute__((format(printf, 1, 2))) static void add(const char *format, ...) {
    for (;;) {
        va_list arguments;
        va_start(arguments, format);
        const size_t room = text.capacity - text.length;
        const int length = vsnprintf(text.bytes ? text.bytes + text.length : NULL, room, format, arguments);
        va_end(arguments);
        if ((size_t)length < room) {
            text.length += (size_t)length;
            return;
        }
        text.capacity = 2 * (text.capacity + (size_t)length) + 4096;
        char *const grown = realloc(text.bytes, text.capacity);
        if (!grown) __builtin_trap();
        text.bytes = grown;
    }
}

static void add_quoted(const char *from) {
    add("\"");
    for (; *from; from++) {
        if (*from == '"' || *from == '\\')
            add("\\%c", *from);
        else if ((unsigned char)*from < ' ')
            add("\\u%04x", *from);
        else
            add("%c", *from);
    }
    add("\"");
}

/* Begin a new text; add_comma() between the elements of a list. */
static void begin(const char *with) {
    text.length = 0;
    add("%s", with);
}

static void add_comma(bool further) {
    if (further) add(",");
}

EMU_EXPORT(emu_view_text) const char *emu_view_text(void) {
    return text.bytes ? text.bytes : "";
}

EMU_EXPORT(emu_view_memory) void *emu_view_memory(uint32_t bytes) {
    return malloc(bytes);
}

/* ---- loading ---- */

/* Read PTX that stays where it is, and say which entries it has: -1 where it is refused natively. */
EMU_EXPORT(emu_view_load) int emu_view_load(const char *ptx, uint32_t bytes) {
    view.module = emu_load(ptx, bytes, &view.error);
    if (!view.module) return -1;
    view.without_lines = !strstr(ptx, ".loc ") && !strstr(ptx, ".loc\t");
    begin("[");
    for (int i = 0; i < emu_entry_count(view.module); i++) {
        add_comma(i > 0);
        add_quoted(emu_entry(view.module, i)->name);
    }
    add("]");
    return 0;
}

/* The last rejection, as {"line", "text"}: of the module, of an entry's body, or of the launch. */
EMU_EXPORT(emu_view_refusal) void emu_view_refusal(void) {
    const emu_error *found = &view.error;
    for (int i = 0; view.module && i < emu_entry_count(view.module); i++)
        if (view.module->entries[i].refusal.text[0]) found = &view.module->entries[i].refusal;
    begin("");
    add("{\"line\":%d,\"text\":", found->line);
    add_quoted(found->text);
    add("}");
}

/* The line of the source; PTX without .loc is a source itself. */
static int line_of(const emu_location *location) {
    return location->own ? location->own->line : view.without_lines ? location->ptx_line : 0;
}

static void add_location(const emu_location *location) {
    add("\"ptx_line\":%d,\"line\":%d,\"ptx\":", location->ptx_line, line_of(location));
    add_quoted(location->ptx ? location->ptx : "");
}

/* Every instruction of the entry: its position, its group, and the lines that its function was inlined at. */
EMU_EXPORT(emu_view_code) void emu_view_code(void) {
    const entry *code = &view.module->entries[view.launch.entry];
    begin("[");
    for (size_t i = 0; i < code->instruction_count; i++) {
        const emu_location location = emu_location_of(code, (uint32_t)i);
        add_comma(i > 0);
        add("{");
        add_location(&location);
        add(",\"group\":");
        add_quoted(code->instructions[i].group ? code->instructions[i].group : "");
        add(",\"callers\":[");
        for (const emu_frame *frame = location.own; frame; frame = frame->caller)
            add("%s%d", frame == location.own ? "" : ",", frame->line);
        add("]}");
    }
    add("]");
}

/* ---- running ---- */

/* Run until before step `stop`; an emu_status where the launch ends first. */
EMU_EXPORT(emu_view_run) int emu_view_run(uint32_t stop) {
    static char mark;
    emu_watch_start(stop, stop == UINT32_MAX);
    view.launch.trace.file = (FILE *)(void *)&mark; /* nobody writes to it: it makes the machine ask watch.c */
    view.launch.threads = 1;
    return (int)emu_run(view.device, view.module, &view.launch, &view.error);
}

/* Turns by hand of the launches that follow, from the next load on: pairs of a step and a warp, which stay there. */
EMU_EXPORT(emu_view_turns) void emu_view_turns(const uint32_t *turns, uint32_t count) {
    emu_watch_turns(turns, count);
}

EMU_EXPORT(emu_view_step_count) uint32_t emu_view_step_count(void) {
    return emu_watch_count();
}

EMU_EXPORT(emu_view_steps) const uint32_t *emu_view_steps(void) {
    return emu_watch_steps();
}

/* ---- what the launch left ---- */

EMU_EXPORT(emu_view_findings) void emu_view_findings(void) {
    size_t count;
    const emu_finding *found = emu_findings(view.device, &count);
    begin("[");
    for (size_t i = 0; i < count; i++) {
        add_comma(i > 0);
        add("{\"class\":");
        add_quoted(emu_class_name(found[i].class_));
        add(",\"count\":%" PRIu64 ",\"warp\":%d,\"lane\":%d,\"here\":{", found[i].count, found[i].warp, found[i].lane);
        add_location(&found[i].here);
        add("},\"other\":{");
        add_location(&found[i].other);
        add("},\"message\":");
        add_quoted(found[i].message);
        add("}");
    }
    add("]");
}

/* Sums, and for each PTX instruction its line, the line of the source, and executed, wavefronts, ideal, sectors. */
EMU_EXPORT(emu_view_counters) void emu_view_counters(void) {
    const emu_counters *counters = emu_counts(view.device);
    const emu_counter *total = &counters->total;
    begin("");
    add("{\"executed\":%" PRIu64 ",\"wavefronts\":%" PRIu64 ",\"ideal\":%" PRIu64 ",\"sectors\":%" PRIu64
        ",\"bytes\":%" PRIu64 ",\"rows\":[",
        total->executed, total->wavefronts, total->ideal, total->sectors, total->bytes);
    for (size_t i = 0; i < counters->count; i++) {
        const emu_counter *row = &counters->rows[i];
        add_comma(i > 0);
        add("[%d,%d,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", row->location.ptx_line, line_of(&row->location),
            row->executed, row->wavefronts, row->ideal, row->sectors);
    }
    add("]}");
}

/* ---- the machine before a step ---- */

static const char *const state_names[] = {
    [WARP_READY] = "ready",
    [WARP_AT_BARRIER] = "at a barrier",
    [WARP_AT_MBARRIER] = "at an mbarrier",
    [WARP_AT_WGMMA] = "at wgmma",
    [WARP_AT_REGISTERS] = "waits for registers",
    [WARP_AT_TENSOR] = "waits for tensor memory",
    [WARP_AT_CLUSTER] = "at the barrier of the cluster",
    [WARP_POLLING] = "polls",
    [WARP_DONE] = "done",
    [WARP_FAULT] = "at fault",
};

/* The next op of a warp, or the one that it waits in; NULL if it is done. */
static const op *op_of(const cta *m, const warp *w) {
    if (w->state == WARP_DONE) return NULL;
    const op *o = &m->code->ops[w->pc];
    if (w == &m->warps[emu_watch_warp()] || w->state == WARP_AT_BARRIER) o--; /* the machine has counted it already */
    while (o->kind == OP_JOIN) o++;
    return o;
}

static void add_warps(const cta *m) {
    add("\"warps\":[");
    for (uint32_t i = 0; i < m->warp_count; i++) {
        const warp *w = &m->warps[i];
        const op *o = op_of(m, w);
        add_comma(i > 0);
        add("{\"state\":\"%s\",\"active\":%u,\"instruction\":%d,\"copies\":%zu,\"products\":%zu}",
            state_names[w->state], w->active, o ? (int)o->instruction : -1, w->copy_count, w->wgmma_count);
    }
    add("]");
}

static void add_mbarriers(const cta *m) {
    add("\"mbarriers\":[");
    bool further = false;
    for (int i = 0; i < m->mbarrier_count; i++) {
        const mbarrier *each = &m->mbarriers[i];
        if (!each->live) continue;
        add_comma(further);
        further = true;
        add("{\"address\":%u,\"expected\":%u,\"pending\":%u,\"bytes\":%" PRId64 ",\"phase\":%" PRIu64 "}",
            each->address, each->expected, each->pending, each->bytes, each->phase);
    }
    add("]");
}

static void add_numbers(const char *name, const int64_t *numbers, uint32_t count) {
    add(",\"%s\":[", name);
    for (uint32_t i = 0; i < count; i++) add("%s%" PRId64, i ? "," : "", numbers[i]);
    add("]");
}

/* The copies of the engine that are under way; one by a tensor map has a box in a tensor. */
static void add_bulk(const cta *m) {
    add("\"bulk\":[");
    for (size_t i = 0; i < m->bulk_count; i++) {
        const bulk_copy *copy = &m->bulk[i];
        const emu_tensor_info *info = &copy->map.info;
        const buffer *of = emu_find_buffer(m->device, info->rank ? info->address : copy->address);
        int64_t sizes[EMU_TENSOR_RANK], box[EMU_TENSOR_RANK], corner[EMU_TENSOR_RANK];
        for (uint32_t k = 0; k < info->rank; k++)
            sizes[k] = info->sizes[k], box[k] = info->box[k], corner[k] = copy->corner[k];
        add_comma(i > 0);
        add("{\"of\":");
        add_quoted(of ? of->name : "");
        add(",\"warp\":%d,\"instruction\":%u,\"store\":%s,\"shared\":%u,\"bytes\":%u,\"mbarrier\":%u,\"swizzle\":%d",
            copy->warp, copy->instruction, copy->is_store ? "true" : "false", copy->shared - m->shared_base,
            copy->bytes, copy->mbarrier, (int)info->swizzle);
        add_numbers("sizes", sizes, info->rank);
        add_numbers("box", box, info->rank);
        add_numbers("corner", corner, info->rank);
        add("}");
    }
    add("]");
}

/* Tensor memory, which only tcgen05 has: each allocation as its first column and their number, and the jobs of the
 * tensor core that are not done. */
static void add_tensor(const cta *m) {
    const tensor_memory *t = m->tensor;
    bool further = false;
    add("\"tensor\":");
    if (!t) {
        add("null");
        return;
    }
    add("{\"allocated\":[");
    for (int first = 0, last; first < TENSOR_COLUMNS; first = last) {
        for (last = first + 1; last < TENSOR_COLUMNS && t->allocated[last] == t->allocated[first]; last++) continue;
        if (!t->allocated[first]) continue;
        add_comma(further);
        further = true;
        add("[%d,%d]", first, last - first);
    }
    add("],\"jobs\":[");
    for (size_t i = 0; i < t->job_count; i++) {
        add_comma(i > 0);
        add("{\"warp\":%d,\"instruction\":%u}", t->jobs[i].warp, t->jobs[i].o->instruction);
    }
    add("]}");
}

/* The registers that the op of a warp names, those that it writes first. `lanes` is the address of 32 values of `bits`
 * bits; 0 where the slot holds another register now. */
static void add_operands(const cta *m, const warp *w) {
    const op *o = op_of(m, w);
    add("\"operands\":[");
    for (int i = 0; o && i < o->dests + o->sources && i < MAX_OPERANDS; i++) {
        const uint16_t number = m->code->names[o - m->code->ops][i];
        const virtual_register *reg = &m->code->registers[number];
        char name[64];
        emu_register_name(reg, name, sizeof name);
        add_comma(i > 0);
        add("{\"name\":");
        add_quoted(name);
        add(",\"written\":%s,\"bits\":%d,\"lanes\":%" PRIuPTR "}", i < o->dests ? "true" : "false", reg->bits,
            emu_watch_holds(m, w, number) ? (uintptr_t)slot32(w, o->r[i]) : 0);
    }
    add("]");
}

/* True if the launch has a next step; then the state of its CTA, and the operands of a warp, -1: of the one
 * whose turn it is. */
EMU_EXPORT(emu_view_look) int emu_view_look(int chosen) {
    const cta *m = emu_watch_machine();
    begin("");
    if (!m) return 0;
    const int turn = emu_watch_warp(), shown = chosen >= 0 && (uint32_t)chosen < m->warp_count ? chosen : turn;
    add("{\"cta\":%" PRIu64 ",\"turn\":%d,\"shown\":%d,\"shared_base\":%u,", m->cta_index, turn, shown, m->shared_base);
    add_warps(m);
    add(",");
    add_mbarriers(m);
    add(",");
    add_bulk(m);
    add(",");
    add_tensor(m);
    add(",");
    add_operands(m, &m->warps[shown]);
    add("}");
    return 1;
}

/* A register by its name, "%r12": the address of its 32 values; 0 where there is none, or another is in its slot. */
EMU_EXPORT(emu_view_register) const uint32_t *emu_view_register(int warp_index, const char *name) {
    const cta *m = emu_watch_machine();
    for (size_t i = 0; m && i < m->code->register_count; i++) {
        char each[64];
        const virtual_register *reg = &m->code->registers[i];
        if (reg->bits == 1 || reg->kind != REGISTER_PLAIN) continue;
        emu_register_name(reg, each, sizeof each);
        const warp *w = &m->warps[warp_index];
        if (strcmp(each, name) == 0) return emu_watch_holds(m, w, (uint16_t)i) ? slot32(w, reg->slot) : NULL;
    }
    return NULL;
}

/* The addresses in shared memory that the lanes of a warp are about to touch, UINT32_MAX for a lane that is off;
 * returns the bytes of each lane, 0 where its instruction touches none. */
EMU_EXPORT(emu_view_addresses) int emu_view_addresses(int warp_index, uint32_t addresses[32]) {
    const cta *m = emu_watch_machine();
    const warp *w = &m->warps[warp_index];
    const op *o = op_of(m, w);
    if (!o) return 0;
    const bool matrix = o->kind == OP_LDMATRIX, copy = o->kind == OP_COPY_ASYNC;
    if (!matrix && !copy && !((o->kind == OP_LOAD || o->kind == OP_STORE) && o->space == SPACE_SHARED)) return 0;
    for (int lane = 0; lane < LANES; lane++)
        addresses[lane] = w->active >> lane & 1 ? (uint32_t)emu_lane_address(w, o, o->dests, lane) : UINT32_MAX;
    return matrix || copy ? 16 : o->bytes * (o->vector ? o->vector : 1);
}

/* The accumulators of a wgmma as a warp has them now: four registers for each eight columns, UINT32_MAX where a slot
 * holds another register. */
static void copy_sums(const cta *m, const warp *w, const op *o, uint32_t *to) {
    for (int j = 0; j < o->vector; j++) {
        for (int i = 0; i < 4; i++, to += LANES) {
            const bool held = i < o->dests && emu_watch_holds(m, w, m->code->names[&o[j] - m->code->ops][i]);
            if (held)
                memcpy(to, slot32(w, o[j].r[i]), LANES * sizeof *to);
            else
                memset(to, 0xff, LANES * sizeof *to);
        }
    }
}

/* The wgmma that is a warp's next instruction: 0 if it is another one. `out` takes the offsets in shared memory of
 * the rows of 16 bytes of the core matrices of A, 8 blocks of two times eight, then those of B, a block for each eight
 * columns, and the accumulators. */
EMU_EXPORT(emu_view_product) int emu_view_product(int warp_index, uint32_t *out) {
    const cta *m = emu_watch_machine();
    const warp *w = &m->warps[warp_index];
    const op *o = op_of(m, w);
    begin("");
    if (!o || o->kind != OP_WGMMA || o->immediate) return 0;
    const bool registers = o->detail & WGMMA_A_REGISTERS;
    if (!registers) emu_wgmma_chunks(m, o, true, slot64(w, o->r[o->dests + WGMMA_A])[0], out);
    emu_wgmma_chunks(m, o, false, slot64(w, o->r[o->dests + WGMMA_B])[0], out + 128);
    copy_sums(m, w, o, out + 128 + 16 * o->vector);
    add("{\"columns\":%d,\"registers\":%s,\"a_along_k\":%s,\"b_along_k\":%s,\"numbers\":%d}", 8 * o->vector,
        registers ? "true" : "false", o->detail & WGMMA_TRANSPOSE_A ? "false" : "true",
        o->detail & WGMMA_TRANSPOSE_B ? "false" : "true", o->bytes & 15);
    return 1;
}

EMU_EXPORT(emu_view_shared) const uint8_t *emu_view_shared(void) {
    return emu_watch_machine()->shared;
}

EMU_EXPORT(emu_view_shared_bytes) uint32_t emu_view_shared_bytes(void) {
    return emu_watch_machine()->shared_bytes;
}

/* Last writer of each word of shared memory: 0 none, 1 a copy in flight, else 2 + thread * 2^20 + instruction. Nothing
 * is known without checks: false. */
EMU_EXPORT(emu_view_writers) bool emu_view_writers(uint32_t *writers) {
    const cta *m = emu_watch_machine();
    const checks *k = m->checks;
    if (!k) return false;
    settle_cells(m, 0, k->cell_count - 1);
    for (uint32_t word = 0; word < m->shared_bytes / 4; word++) {
        const shadow_cell *cell = &k->cells[4 * word >> k->cell_shift];
        const bool written = cell->write_time && cell->write_time != TIME_NEVER;
        writers[word] = written ? 2 + (cell->write_who & ~(WHO_ATOMIC | WHO_UNDEFINED)) : 0;
        if (cell->write_time == TIME_IN_FLIGHT) writers[word] = 1;
    }
    return true;
}
