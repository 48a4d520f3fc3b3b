/* decode.c - an entry from statements to ops: each statement by the rule of its form; labels and dynamic shared memory
 * at the end. */
#include "decode.h"

#include "forms.h"

enum {
    FRAME_ALIGNMENT = 16,
    RECURSION_BYTES = 16 << 10, /* of a thread, for frames of functions that call themselves */
    MAX_STACK_BYTES = 512 << 20
};

/* ---- what is known at the end of the entry only ---- */

/* Dynamic shared memory begins after all static variables, the last of which is known at the end of the entry. */
static void place_dynamic(decoder *dec) {
    entry *code = dec->code;
    const int64_t base = code->dynamic_begin;
    for (size_t i = 0; i < dec->awaiting_count; i++) {
        const awaited *each = &dec->awaiting[i];
        if (each->what == AWAITING_REGISTER) {
            virtual_register *reg = &code->registers[each->index];
            reg->value += (uint64_t)base;
            if (reg->bits == 32) reg->value = (uint32_t)reg->value;
        } else if (each->what == AWAITING_ADDRESS) {
            code->ops[each->index].immediate += base;
        } else {
            op *o = &code->ops[each->index];
            if (o->target + base > INT32_MAX)
                emu_load_fail(dec->load, code->instructions[o->instruction].line,
                              "the offset does not fit shared memory");
            o->target += (int32_t)base;
        }
    }
}

/* The labels of an entry by name and scope: in each slot 1 + an index, or 0. */
typedef struct label_table {
    const entry_body *body;
    uint32_t *slots;
    size_t mask;
} label_table;

/* The slot of a label, or the free one where it belongs. */
static uint32_t *label_slot(const label_table *table, const char *name, uint32_t length, int scope) {
    uint32_t hash = (uint32_t)scope * 0x9e3779b9u;
    for (uint32_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)name[i]) * 16777619u;
    for (size_t at = hash ^ hash >> 15;; at++) {
        uint32_t *slot = &table->slots[at & table->mask];
        const label *known = *slot ? &table->body->labels[*slot - 1] : NULL;
        if (!known || (known->scope == scope && known->length == length && !memcmp(known->name, name, length)))
            return slot;
    }
}

static label_table index_labels(decoder *dec) {
    label_table table = {.body = dec->code->body, .mask = 15};
    while (table.mask < 2 * table.body->label_count) table.mask = 2 * table.mask + 1;
    table.slots = emu_load_alloc(dec->load, (table.mask + 1) * sizeof *table.slots);
    for (size_t i = 0; i < table.body->label_count; i++) {
        const label *each = &table.body->labels[i];
        uint32_t *slot = label_slot(&table, each->name, each->length, each->scope);
        if (*slot)
            emu_load_fail(dec->load, each->line, "label '%.*s' is defined twice: line %d has it too",
                          each->length > 60 ? 60 : (int)each->length, each->name, table.body->labels[*slot - 1].line);
        *slot = (uint32_t)i + 1;
    }
    return table;
}

/* From the scope of a branch outwards. */
static const label *find_label(const label_table *table, const operand *where) {
    for (int scope = (int)where->value; scope >= 0; scope = table->body->scope_parents[scope]) {
        uint32_t index = *label_slot(table, where->name, where->length, scope);
        if (index) return &table->body->labels[index - 1];
    }
    return NULL;
}

static void place_branches(decoder *dec) {
    entry *code = dec->code;
    const label_table labels = index_labels(dec);
    for (size_t i = 0; i < dec->branch_count; i++) {
        const operand *where = &dec->branches[i].label;
        op *o = &code->ops[dec->branches[i].op];
        const instruction *in = &code->instructions[o->instruction];
        const label *to = find_label(&labels, where);
        if (!to)
            emu_load_fail(dec->load, in->line, "label '%.*s' is not defined here, in '%.100s'",
                          where->length > 60 ? 60 : (int)where->length, where->name, in->text);
        o->target = (int32_t)to->op;
    }
}

/* ---- an entry ---- */

/* Shared memory is checked in units of the narrowest access to it; which barriers occur decides how order is kept. */
/* .volatile accesses and atomics without an order are flags only where the program has a fence: another makes none of
 * them. */
static void note_flags(const entry *code, op *o) {
    const bool access = o->kind == OP_LOAD || o->kind == OP_STORE || o->kind == OP_ATOMIC;
    if (code->has_fence && access && o->flags & FLAG_MAY_ORDER) o->flags |= FLAG_ORDERS;
}

/* A bar.warp.sync that may leave lanes out. */
static bool orders_some_lanes(const entry *code, const op *o) {
    if (o->kind != OP_WARP_BARRIER) return false;
    const virtual_register *mask = &code->registers[o->r[0]];
    return mask->kind != REGISTER_CONSTANT || (uint32_t)mask->value != ALL_LANES;
}

/* True if an access that orders threads only does so with a fence next to it. */
static bool needs_fence(const op *o) {
    const unsigned both = ORDER_ACQUIRE | ORDER_RELEASE;
    const unsigned wanted = o->kind == OP_LOAD ? ORDER_ACQUIRE : o->kind == OP_STORE ? ORDER_RELEASE : both;
    if (o->kind == OP_MBARRIER_ARRIVE) return o->detail & MBARRIER_RELAXED;
    if (o->kind == OP_MBARRIER_WAIT) return o->detail & MBARRIER_HEARS;
    return o->flags & FLAG_ORDERS && (o->order & wanted) != wanted;
}

static void note_shared_use(entry *code, const op *o) {
    bool shared = o->space == SPACE_SHARED || o->space == SPACE_GENERIC || o->space == SPACE_CLUSTER;
    const bool tells = o->kind == OP_LOAD || o->kind == OP_STORE || o->kind == OP_ATOMIC ||
                       o->kind == OP_MBARRIER_ARRIVE || o->kind == OP_MBARRIER_WAIT;
    if (tells && shared && code->has_fence) code->relaxed_flags |= needs_fence(o);
    if ((o->kind == OP_LOAD || o->kind == OP_STORE || o->kind == OP_ATOMIC) && shared &&
        o->bytes * o->vector < (int)code->granule_bytes) {
        code->granule_bytes = (uint32_t)(o->bytes * o->vector);
    }
    if ((o->kind == OP_WMMA_LOAD || o->kind == OP_WMMA_STORE) && shared && o->bytes < code->granule_bytes)
        code->granule_bytes = o->bytes; /* of an element */
    if (o->kind == OP_COPY_ASYNC && o->bytes < code->granule_bytes) code->granule_bytes = o->bytes;
    if (o->kind >= OP_MBARRIER_INIT && o->kind <= OP_MBARRIER_INVALIDATE && code->granule_bytes > 8)
        code->granule_bytes = 8;
    if ((o->kind >= OP_MBARRIER_INIT && o->kind <= OP_MBARRIER_INVALIDATE) || o->kind == OP_COPY_ARRIVE)
        code->needs_clocks = true;
    if (o->kind == OP_CANCEL) code->cancels = code->uses_async_proxy = code->needs_clocks = true;
    if (o->kind == OP_BULK) code->uses_async_proxy = code->needs_clocks = true;
    if (o->kind == OP_WGMMA) code->uses_wgmma = code->uses_async_proxy = code->needs_clocks = true;
    if (o->kind >= OP_TENSOR_ALLOC && o->kind <= OP_TENSOR_COMMIT)
        code->uses_tensor_memory = code->uses_async_proxy = code->needs_clocks = true;
    if (o->kind == OP_TENSOR_ALLOC && code->granule_bytes > 4) code->granule_bytes = 4;
    if (o->space == SPACE_CLUSTER || o->kind == OP_CLUSTER_BARRIER || o->kind == OP_MAP_ADDRESS ||
        (o->kind == OP_BULK && o->detail & (BULK_MULTICAST | BULK_BETWEEN_CTAS)))
        code->uses_cluster = code->needs_clocks = true;
    if (o->flags & FLAG_ORDERS && (o->kind == OP_STORE || o->kind == OP_ATOMIC) && shared) code->needs_clocks = true;
    if (o->kind == OP_BARRIER && (o->sources > 1 || o->detail == BARRIER_ARRIVE)) code->needs_clocks = true;
    if (orders_some_lanes(code, o)) code->needs_clocks = true;
}

decoder *emu_decode_begin(loader *load, entry *code) {
    static const statement nothing = {.text = "", .guard = NO_REGISTER};
    decoder *dec = emu_load_alloc(load, sizeof *dec);
    dec->load = load;
    dec->code = code;
    dec->in = &nothing;
    dec->carry = -1;
    dec->frame = NO_REGISTER;
    code->granule_bytes = 16;
    emu_scratch_register(dec, 32); /* register 0 means none in tables of registers */
    code->routines =
        load_grow(load, code->routines, code->routine_count, &code->routine_capacity, sizeof *code->routines);
    code->routines[code->routine_count++] = (routine){.name = code->info.name, .function = -1};
    return dec;
}

void emu_decode_routine(decoder *dec, int index) {
    entry *code = dec->code;
    routine *own = &code->routines[index];
    dec->routine = index;
    dec->carry = -1; /* of the routine's own */
    own->begin = (uint32_t)code->op_count;
    own->call_begin = code->call_count;
    own->register_begin = (uint32_t)code->register_count;
    own->predicate_begin = code->predicate_count;
    dec->frame = emu_scratch_register(dec, 64);
}

/* These ops belong to the first instruction, which follows. */
void emu_decode_entrance(decoder *dec) {
    static const statement nothing = {.text = "", .guard = NO_REGISTER};
    const routine *own = &dec->code->routines[dec->routine];
    const function *from = &dec->load->module.functions[own->function];
    dec->in = &nothing;
    dec->first = false;
    dec->index = (uint32_t)dec->code->instruction_count;
    add_dest(emu_emit(dec, OP_FRAME), (uint16_t)dec->frame);
    for (int i = own->results; i < own->formal_count; i++) {
        if (from->formals[i].in_register) emu_load_frame(dec, dec->formal_registers[i], &own->formals[i]);
    }
}

/* A body without instructions gets one for its ops. */
static void expect_instruction(decoder *dec) {
    entry *code = dec->code;
    if (dec->index < code->instruction_count) return;
    code->instructions = load_grow(dec->load, code->instructions, code->instruction_count, &code->instruction_capacity,
                                   sizeof *code->instructions);
    code->instructions[code->instruction_count++] =
        (instruction){.text = "(an empty body)", .group = "", .location = -1};
}

void emu_decode_statement(decoder *dec, const statement *in) {
    entry *code = dec->code;
    dec->in = in;
    dec->index = (uint32_t)code->instruction_count - 1;
    dec->first = true;
    if (!in->opcode->form) in->opcode->form = emu_find_form(dec->load, in, &in->opcode->match);
    const form *form = in->opcode->form;
    dec->lanes = emu_drawn(form->lanes, form->row.fidelity == EMU_EXACT);
    code->instructions[dec->index].group = form->row.group;
    form->decode(dec, &in->opcode->match);
    if (dec->first) emu_emit(dec, OP_NOTHING); /* such as a mov to nowhere */
}

void emu_decode_routine_end(decoder *dec) {
    entry *code = dec->code;
    static const statement end = {.text = "(end of the body)", .guard = NO_REGISTER};
    dec->in = &end;
    dec->first = false;
    if (dec->routine) expect_instruction(dec);
    if (dec->routine) /* falling off the end returns */
        emu_return_from_routine(dec);
    else
        emu_emit(dec, OP_EXIT);
    place_branches(dec);
    dec->branch_count = 0;
    routine *own = &code->routines[dec->routine];
    own->end = (uint32_t)code->op_count;
    own->call_end = code->call_count;
    own->frame_bytes = (code->local_bytes + FRAME_ALIGNMENT - 1) / FRAME_ALIGNMENT * FRAME_ALIGNMENT;
    own->register_end = (uint32_t)code->register_count;
    own->predicate_end = code->predicate_count;
}

/* ---- how deep calls go ---- */

/* A routine recurses when calls lead from it back to it. What any call by address may lead to is looked at once. */
static bool reaches_itself(const entry *code, int from, bool *reached, int *stack) {
    const int count = (int)code->routine_count;
    bool by_address = false;
    int depth = 0;
    memset(reached, 0, code->routine_count);
    stack[depth++] = from;
    while (depth) {
        const routine *caller = &code->routines[stack[--depth]];
        for (size_t i = caller->call_begin; i < caller->call_end; i++) {
            const int named = code->calls[i].callee;
            const bool all = named == CALLEE_BY_ADDRESS && !by_address;
            by_address |= all;
            for (int callee = all ? 1 : named; callee > 0 && callee < (all ? count : named + 1); callee++) {
                if (reached[callee] || (all && !code->routines[callee].address_taken)) continue;
                if (callee == from) return true;
                reached[callee] = true;
                stack[depth++] = callee;
            }
        }
    }
    return false;
}

/* The bytes of the frames from a routine on, without calls that lead back. known: 1 + those of a routine, or 0. */
static uint64_t stack_bytes(const entry *code, int index, bool *on_way, uint64_t *known) {
    const routine *caller = &code->routines[index];
    uint64_t most = 0;
    bool by_address = false;
    if (known[index]) return known[index] - 1;
    on_way[index] = true;
    for (size_t i = caller->call_begin; i < caller->call_end; i++) {
        const int named = code->calls[i].callee;
        const bool all = named == CALLEE_BY_ADDRESS && !by_address;
        by_address |= all;
        for (int callee = all ? 1 : named; callee > 0 && callee < (all ? (int)code->routine_count : named + 1);
             callee++) {
            if (on_way[callee] || (all && !code->routines[callee].address_taken)) continue;
            uint64_t more = stack_bytes(code, callee, on_way, known);
            if (more > most) most = more;
        }
    }
    on_way[index] = false;
    known[index] = most + caller->frame_bytes + 1;
    return known[index] - 1;
}

static void size_stack(decoder *dec) {
    entry *code = dec->code;
    bool *marks = emu_load_alloc(dec->load, code->routine_count);
    uint64_t *known = emu_load_alloc(dec->load, code->routine_count * sizeof *known);
    int *stack = emu_load_alloc(dec->load, code->routine_count * sizeof *stack);
    bool recursion = false;
    for (int i = 1; i < (int)code->routine_count; i++)
        recursion |= code->routines[i].recurses = reaches_itself(code, i, marks, stack);
    memset(marks, 0, code->routine_count);
    uint64_t bytes = stack_bytes(code, 0, marks, known) + (recursion ? RECURSION_BYTES : 0);
    if (bytes > MAX_STACK_BYTES)
        emu_load_fail(dec->load, 0,
                      "the frames of entry '%.100s' and its functions take more than %u bytes of a thread",
                      code->info.name, MAX_STACK_BYTES);
    code->local_bytes = (uint32_t)bytes;
}

/* Waits at mbarriers whose answer no op reads, but for branches that lead on either way. */
static void note_unheeded(decoder *dec) {
    entry *code = dec->code;
    bool *read = emu_load_alloc(dec->load, (size_t)code->predicate_count + 1);
    for (size_t i = 0; i < code->op_count; i++) {
        const op *o = &code->ops[i];
        const bool leads_on = o->kind == OP_BRANCH && (size_t)o->target == i + 1;
        const uint16_t reads[] = {leads_on ? NO_PREDICATE : o->guard, o->kind == OP_COMPARE ? NO_PREDICATE : o->p[1],
                                  o->p[2]};
        for (int k = 0; k < 3; k++)
            if (reads[k] != NO_PREDICATE) read[reads[k]] = true;
    }
    for (size_t i = 0; i < code->op_count; i++) {
        op *o = &code->ops[i];
        if (o->kind == OP_MBARRIER_WAIT && (o->p[0] == NO_PREDICATE || !read[o->p[0]])) o->flags |= FLAG_UNHEEDED;
    }
}

/* An atomic whose result no op reads asks nothing: compilers leave such, where a reduction would do. */
static void note_unread_results(decoder *dec) {
    entry *code = dec->code;
    bool *read = emu_load_alloc(dec->load, code->register_count + 1);
    for (size_t i = 0; i < code->op_count; i++) {
        const op *o = &code->ops[i];
        for (int k = o->dests; k < o->dests + o->sources; k++) read[o->r[k]] = true;
    }
    for (size_t i = 0; i < code->op_count; i++) {
        op *o = &code->ops[i];
        bool any = false;
        for (int k = 0; k < o->dests; k++) any |= read[o->r[k]];
        if (o->kind == OP_ATOMIC) o->asks &= any;
    }
}

/* Plain loads of what an atom.cas of the same address then compares with, as in the CUDA Programming Guide's atomicAdd
 * of double: a value that another thread has replaced by then is tried again. */
static void note_guesses(decoder *dec) {
    entry *code = dec->code;
    for (size_t i = 0; i < code->op_count; i++) {
        const op *cas = &code->ops[i];
        if (cas->kind != OP_ATOMIC || cas->detail != ATOMIC_CAS || cas->vector != 1) continue;
        const uint16_t *sources = cas->r + cas->dests; /* the address, what is compared with, the new value */
        for (size_t k = 0; k < code->op_count; k++) {
            op *load = &code->ops[k];
            if (load->kind == OP_LOAD && load->vector == 1 && load->bytes == cas->bytes && load->r[0] == sources[1] &&
                load->r[1] == sources[0] && load->immediate == cas->immediate)
                load->flags |= FLAG_GUESS;
        }
    }
}

void emu_decode_end(decoder *dec) {
    entry *code = dec->code;
    if (code->routine_count > 1) size_stack(dec);
    place_dynamic(dec);
    note_unheeded(dec);
    note_unread_results(dec);
    note_guesses(dec);
    for (size_t i = 0; i < code->op_count; i++) {
        note_flags(code, &code->ops[i]);
        note_shared_use(code, &code->ops[i]);
    }
}
