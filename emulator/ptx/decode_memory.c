/* decode_memory.c - from statements to ops: memory, matrices, asynchronous copies, barriers, warps. */
#include "builder.h"
#include "decode_rules.h"
#include "forms.h"

static void access_shape(decoder *dec, op *o, const form_match *match) {
    const type_info *type = match->types[match->type_count - 1];
    o->bytes = type->bits / 8;
    o->vector = match->vector;
    const int most = match->space == SPACE_GLOBAL || match->space == SPACE_GENERIC ? 32 : 16;
    if (o->bytes * o->vector > most) emu_refuse(dec, "an access moves at most 16 bytes, of global memory 32");
    if (type->family == 's') o->flags |= FLAG_SIGNED;
}

/* The policy of .L2::cache_hint: a value of createpolicy that changes nothing here. */
static int policy_operands(decoder *dec, const form_match *match, int index) {
    if (!emu_chose(match, "L2::cache_hint")) return 0;
    emu_source(dec, operand_at(dec, index), 64, EXACT);
    return 1;
}

/* An order between threads names the scope in which it holds, and no other access has one. */
static void check_order(decoder *dec, const form_match *match) {
    bool ordered = emu_chose(match, "relaxed") || emu_chose(match, "acquire") || emu_chose(match, "release");
    bool scope =
        emu_chose(match, "cta") || emu_chose(match, "cluster") || emu_chose(match, "gpu") || emu_chose(match, "sys");
    if (ordered != scope)
        emu_refuse(dec, ordered ? "a scope is missing: .cta, .cluster, .gpu or .sys" : "a scope without an order");
}

/* Memory order of an access that can order others, perhaps together with a fence: an atomic without an order is
 * .relaxed, as is .volatile. */
static uint16_t orders(const form_match *match, bool atomic) {
    if (emu_chose(match, "relaxed") || emu_chose(match, "acquire") || emu_chose(match, "release") ||
        emu_chose(match, "acq_rel"))
        return FLAG_ORDERS;
    return atomic || emu_chose(match, "volatile") ? FLAG_MAY_ORDER : 0;
}

static uint8_t access_order(const form_match *match, bool atomic) {
    unsigned order = orders(match, atomic) || emu_chose(match, "cv") ? ORDER_STRONG : 0;
    if (emu_chose(match, "acquire") || emu_chose(match, "acq_rel")) order |= ORDER_ACQUIRE;
    if (emu_chose(match, "release") || emu_chose(match, "acq_rel")) order |= ORDER_RELEASE;
    if (emu_chose(match, "cta")) order |= ORDER_CTA;
    if (emu_chose(match, "cluster")) order |= ORDER_CLUSTER;
    return (uint8_t)order;
}

/* An address of which a register must survive the first of two loads, which has so many targets: a copy of it. */
static const operand *apart(decoder *dec, const operand *address, const uint16_t *targets, int count) {
    for (int i = 0; i < count; i++) {
        if (address->reg == NO_REGISTER || targets[i] != address->reg) continue;
        const int bits = dec->code->registers[targets[i]].bits;
        operand *copy = emu_load_alloc(dec->load, sizeof *copy);
        *copy = *address;
        copy->reg = emu_scratch_register(dec, bits);
        op *o = emu_emit(dec, OP_LANES);
        o->run.lanes = bits == 64 ? emu_lanes_mov_64 : emu_lanes_mov_32;
        add_dest(o, (uint16_t)copy->reg);
        add_source(o, targets[i]);
        return copy;
    }
    return address;
}

/* A loaded element goes to a register of its width or, extended, to a wider one. */
void emu_decode_load(decoder *dec, const form_match *match) {
    int wanted = 2 + policy_operands(dec, match, 2);
    emu_expect_operands(dec, wanted, wanted);
    check_order(dec, match);
    op shape = {0};
    access_shape(dec, &shape, match);
    state_space space = match->space;
    if (!strcmp(dec->in->opcode->pieces[0], "ldu")) space = SPACE_GLOBAL;
    const operand *to = emu_elements(dec, operand_at(dec, 0), shape.vector);
    uint16_t targets[8];
    int bits = shape.bytes * 8, count = shape.vector;
    if (shape.bytes * count > 16) shape.vector /= 2;
    for (int i = 0; i < count; i++) {
        int own = to[i].kind == OPERAND_REGISTER ? dec->code->registers[to[i].reg].bits : bits;
        targets[i] = emu_dest(dec, &to[i], own > bits && own <= 64 ? own : bits);
        own = dec->code->registers[targets[i]].bits;
        if (own == 64) shape.detail |= (uint8_t)(1 << i % shape.vector);
        if (own == 16) shape.detail |= (uint8_t)(16 << i % shape.vector);
    }
    const operand *from = apart(dec, operand_at(dec, 1), targets, shape.vector < count ? shape.vector : 0);
    for (int first = 0; first < count; first += shape.vector) { /* 32 bytes are two accesses */
        op *o = emu_emit(dec, match->kind);
        o->bytes = shape.bytes;
        o->vector = shape.vector;
        o->flags |= shape.flags | orders(match, false);
        o->order = access_order(match, false);
        if (emu_chose(match, "nc") || space == SPACE_CONST) o->flags |= FLAG_CONSTANT;
        o->detail = shape.detail; /* bits 0 to 3: destinations of 64 bits; bits 4 to 7: of 16 bits */
        o->asks = emu_chose(match, "volatile") || emu_chose(match, "relaxed") || emu_chose(match, "acquire") ||
                  emu_chose(match, "cv");
        for (int i = 0; i < shape.vector; i++) add_dest(o, targets[first + i]);
        operand at = *from;
        at.value += first * shape.bytes;
        emu_add_address(dec, o, &at, space);
    }
}

void emu_decode_store(decoder *dec, const form_match *match) {
    int wanted = 2 + policy_operands(dec, match, 2);
    emu_expect_operands(dec, wanted, wanted);
    check_order(dec, match);
    op shape = {0};
    access_shape(dec, &shape, match);
    const type_info *type = match->types[match->type_count - 1];
    const operand *from = emu_elements(dec, operand_at(dec, 1), shape.vector);
    uint16_t values[8];
    const int count = shape.vector;
    bool skips = false; /* '_' in 32 bytes: not stored */
    for (int i = 0; i < count; i++) {
        if (shape.bytes * count == 32 && from[i].kind == OPERAND_SINK)
            skips = true;
        else
            values[i] = emu_source_of_type(dec, &from[i], type, WIDER);
    }
    if (shape.bytes * count > 16) shape.vector = skips ? 1 : shape.vector / 2;
    for (int first = 0; first < count; first += shape.vector) { /* 32 bytes are several accesses */
        if (from[first].kind == OPERAND_SINK) continue;
        op *o = emu_emit(dec, match->kind);
        o->bytes = shape.bytes;
        o->vector = shape.vector;
        o->flags |= orders(match, false);
        o->order = access_order(match, false);
        operand at = *operand_at(dec, 0);
        at.value += first * shape.bytes;
        emu_add_address(dec, o, &at, match->space);
        for (int i = 0; i < shape.vector; i++) add_source(o, values[first + i]);
    }
}

void emu_decode_store_bulk(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 3, 3);
    const operand *value = operand_at(dec, 2);
    if (value->kind != OPERAND_INTEGER || value->value) emu_refuse(dec, "st.bulk stores zeros");
    const uint16_t bytes = emu_source(dec, operand_at(dec, 1), 64, EXACT);
    op *o = emu_emit(dec, match->kind);
    o->bytes = 8;
    emu_add_address(dec, o, operand_at(dec, 0), match->space);
    add_source(o, bytes);
}

uint8_t emu_atomic_operation(const form_match *match) {
    static const char *const names[] = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"};
    uint8_t i = 0;
    while (!emu_chose(match, names[i])) i++; /* every row has one of them */
    return i;
}

enum atomic_numbers emu_atomic_numbers(const type_info *type) {
    switch (type->family) {
    case 'f':
        return type->bits == 64 ? ATOMIC_F64 : ATOMIC_F32;
    case 'h':
        return ATOMIC_F16;
    case 'g':
        return ATOMIC_BF16;
    case 'H':
        return ATOMIC_F16X2;
    case 'G':
        return ATOMIC_BF16X2;
    default:
        return ATOMIC_INTEGER;
    }
}

/* r: the old elements, the address, the values and, with cas, what they become. */
static void decode_atomic_at(decoder *dec, const form_match *match, int first, bool has_result) {
    const type_info *type = match->types[0];
    uint8_t operation = emu_atomic_operation(match);
    int count = match->vector, swaps = operation == ATOMIC_CAS, wanted = first + 2 + swaps;
    wanted += policy_operands(dec, match, wanted);
    emu_expect_operands(dec, wanted, wanted);
    const operand *values = emu_elements(dec, operand_at(dec, first + 1), count), *to = NULL;
    uint16_t sources[5], dests[4];
    for (int i = 0; i < count; i++) sources[i] = emu_source_of_type(dec, &values[i], type, EXACT);
    if (swaps) sources[count] = emu_source_of_type(dec, operand_at(dec, first + 2), type, EXACT);
    if (has_result) to = emu_elements(dec, operand_at(dec, 0), count);
    for (int i = 0; i < count; i++)
        dests[i] = to ? emu_dest(dec, &to[i], type->bits) : emu_scratch_register(dec, type->bits);
    op *o = emu_emit(dec, match->kind);
    o->detail = operation;
    o->target = emu_atomic_numbers(type);
    o->asks = has_result;
    o->flags |= orders(match, true);
    o->order = access_order(match, true);
    o->bytes = type->bits / 8;
    o->vector = (uint8_t)count;
    if (o->bytes * count > 16) emu_refuse(dec, "an access moves at most 16 bytes");
    if (type->family == 's') o->flags |= FLAG_SIGNED;
    for (int i = 0; i < count; i++) add_dest(o, dests[i]);
    emu_add_address(dec, o, operand_at(dec, first), match->space);
    for (int i = 0; i < count + swaps; i++) add_source(o, sources[i]);
}

void emu_decode_atomic(decoder *dec, const form_match *match) {
    decode_atomic_at(dec, match, 1, true);
}
void emu_decode_reduction(decoder *dec, const form_match *match) {
    decode_atomic_at(dec, match, 0, false);
}

/* ---- hints: they change nothing here ---- */

/* A prefetch of a bad address is no fault. */
void emu_decode_prefetch(decoder *dec, const form_match *match) {
    (void)match;
    emu_expect_operands(dec, 1, 1);
    if (operand_at(dec, 0)->kind != OPERAND_ADDRESS) emu_refuse(dec, "an [address] is needed");
    emu_emit(dec, OP_NOTHING);
}

/* applypriority and discard name a line of the cache, which must exist. */
void emu_decode_cache_line(decoder *dec, const form_match *match) {
    enum { LINE_BYTES = 128 };
    emu_expect_operands(dec, 2, 2);
    const operand *size = operand_at(dec, 1);
    if (size->kind != OPERAND_INTEGER || size->value != LINE_BYTES) emu_refuse(dec, "the size is %d bytes", LINE_BYTES);
    op *o = emu_emit(dec, match->kind);
    o->bytes = 16;
    o->vector = LINE_BYTES / 16;
    emu_add_address(dec, o, operand_at(dec, 0), match->space);
}

/* A policy is a number that only cache hints take. */
void emu_decode_policy(decoder *dec, const form_match *match) {
    bool range = emu_chose(match, "range"), fraction = emu_chose(match, "fractional");
    emu_expect_operands(dec, range ? 4 : fraction ? 1 : 2, range ? 4 : 2);
    if (range && operand_at(dec, 1)->kind != OPERAND_ADDRESS) emu_refuse(dec, "an [address] is needed");
    for (int i = 2; range && i < 4; i++) emu_source(dec, operand_at(dec, i), 32, EXACT);
    if (fraction && dec->in->operand_count == 2)
        emu_source_of_type(dec, operand_at(dec, 1), emu_find_type("f32"), EXACT);
    if (!range && !fraction) emu_source(dec, operand_at(dec, 1), 64, EXACT);
    uint16_t none = emu_constant_register(dec, 0, 64), to = emu_dest(dec, operand_at(dec, 0), 64);
    op *o = emu_emit(dec, OP_LANES);
    o->run.lanes = emu_lanes_mov_64;
    add_dest(o, to);
    add_source(o, none);
}

/* ---- matrices ---- */

void emu_decode_ldmatrix(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 2, 2);
    const bool square = emu_chose(match, "m16n16"); /* a matrix has 16 rows, and two registers */
    int count = (emu_chose(match, "x1") ? 1 : emu_chose(match, "x2") ? 2 : 4) << square;
    const operand *to = emu_elements(dec, operand_at(dec, 0), count);
    op *o = emu_emit(dec, match->kind);
    o->vector = (uint8_t)count;
    o->bytes = 16;
    o->detail = emu_chose(match, "b6x16_p32") ? 6 : emu_chose(match, "b4x16_p64") ? 4 : 0;
    if (square) o->detail |= MATRIX_OF_BYTES;
    if (emu_chose(match, "trans")) o->flags |= FLAG_TRANSPOSE;
    for (int i = 0; i < count; i++) add_dest(o, emu_dest(dec, &to[i], 32));
    emu_add_address(dec, o, operand_at(dec, 1), match->space);
}

void emu_decode_stmatrix(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 2, 2);
    int count = emu_chose(match, "x1") ? 1 : emu_chose(match, "x2") ? 2 : 4;
    const operand *from = emu_elements(dec, operand_at(dec, 1), count);
    uint16_t sources[4];
    for (int i = 0; i < count; i++) sources[i] = emu_source(dec, &from[i], 32, EXACT);
    op *o = emu_emit(dec, match->kind);
    o->vector = (uint8_t)count;
    o->bytes = 16;
    if (emu_chose(match, "m16n8")) o->detail = MATRIX_OF_BYTES;
    if (emu_chose(match, "trans")) o->flags |= FLAG_TRANSPOSE;
    emu_add_address(dec, o, operand_at(dec, 0), match->space);
    for (int i = 0; i < count; i++) add_source(o, sources[i]);
}

void emu_decode_mma(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 4, 4);
    bool deep = emu_chose(match, "m16n8k16");
    int counts[4] = {4, deep ? 4 : 2, deep ? 2 : 1, 4};
    const operand *parts[4];
    for (int i = 0; i < 4; i++) parts[i] = emu_elements(dec, operand_at(dec, i), counts[i]);
    uint16_t sources[10];
    int used = 0;
    static const type_info single = {"f32", 32, 'f'};
    for (int part = 1; part < 4; part++) {
        for (int i = 0; i < counts[part]; i++) {
            sources[used++] = part == 3 ? emu_source_of_type(dec, &parts[part][i], &single, EXACT)
                                        : emu_source(dec, &parts[part][i], 32, EXACT);
        }
    }
    op *o = emu_emit(dec, match->kind);
    o->detail = emu_chose(match, "bf16") ? MMA_BF16 : MMA_F16;
    o->vector = deep ? 2 : 1; /* steps of 8 along k */
    for (int i = 0; i < 4; i++) add_dest(o, emu_dest(dec, &parts[0][i], 32));
    for (int i = 0; i < used; i++) add_source(o, sources[i]);
}

/* ---- asynchronous copies ---- */

/* The source-bytes of a cp.async, or the predicate that ignores the source: then none. */
static uint16_t copied_bytes(decoder *dec, const operand *from, int64_t bytes) {
    bool predicate = from->kind == OPERAND_REGISTER && dec->code->registers[from->reg].bits == 1;
    if (!predicate) return emu_source(dec, from, 32, EXACT);
    uint16_t none = emu_constant_register(dec, 0, 32), all = emu_constant_register(dec, (uint64_t)bytes, 32);
    uint16_t result = emu_scratch_register(dec, 32);
    op *o = emu_emit(dec, OP_SELECT);
    o->bytes = 4;
    add_dest(o, result);
    add_source(o, from->negated ? all : none);
    add_source(o, from->negated ? none : all);
    o->p[2] = emu_optional_predicate(dec, from->reg);
    return result;
}

void emu_decode_copy_async(decoder *dec, const form_match *match) {
    const int hints = emu_chose(match, "L2::cache_hint");
    emu_expect_operands(dec, 3 + hints, 4 + hints);
    policy_operands(dec, match, dec->in->operand_count - 1);
    const operand *size = operand_at(dec, 2), *target = operand_at(dec, 0);
    bool whole_only = emu_chose(match, "cg");
    int64_t bytes = size->value;
    if (size->kind != OPERAND_INTEGER || (bytes != 16 && (whole_only || (bytes != 4 && bytes != 8)))) {
        emu_refuse(dec, whole_only ? "cp.async.cg copies 16 bytes" : "cp.async copies 4, 8 or 16 bytes");
    }
    uint16_t source_bytes = 0;
    bool partial = dec->in->operand_count == 4 + hints;
    if (partial) source_bytes = copied_bytes(dec, operand_at(dec, 3), bytes);
    op *o = emu_emit(dec, match->kind);
    o->bytes = (uint8_t)bytes;
    o->vector = 1;
    emu_add_address(dec, o, operand_at(dec, 1), SPACE_GLOBAL);
    if (target->kind != OPERAND_ADDRESS) emu_refuse(dec, "an [address] is needed");
    /* the second address: its own register and, in target, its offset */
    int64_t offset = target->value;
    if (target->symbol >= 0) {
        const symbol *which = &dec->load->module.symbols[target->symbol];
        offset += (int64_t)emu_symbol_address(&dec->load->module, which);
        if (is_dynamic(which)) emu_await_dynamic(dec, AWAITING_TARGET, (uint32_t)(o - dec->code->ops));
    }
    if (offset < INT32_MIN || offset > INT32_MAX) emu_refuse(dec, "the offset does not fit shared memory");
    o->target = (int32_t)offset;
    if (target->reg == NO_REGISTER) {
        add_source(o, emu_base_register(dec, target, SPACE_SHARED));
    } else {
        int bits = dec->code->registers[target->reg].bits;
        if (bits != 32 && bits != 64) emu_refuse(dec, "the register of an address has 32 or 64 bits");
        o->detail = bits == 64;
        add_source(o, (uint16_t)target->reg);
    }
    if (partial) add_source(o, source_bytes);
}

void emu_decode_copy_wait(decoder *dec, const form_match *match) {
    bool all = emu_chose(match, "wait_all");
    emu_expect_operands(dec, all ? 0 : 1, all ? 0 : 1);
    op *o = emu_emit(dec, match->kind);
    o->immediate = -1;
    if (all) return;
    o->immediate = emu_group_count(dec, 0, INT32_MAX);
}

void emu_decode_copy_arrive(decoder *dec, const form_match *match) {
    emu_emit_operands(dec, match)->detail = !emu_chose(match, "noinc");
}

/* ---- barriers ---- */

void emu_decode_barrier(decoder *dec, const form_match *match) {
    bool red = emu_chose(match, "red"), arrive = emu_chose(match, "arrive"), popcount = emu_chose(match, "popc");
    int first = red ? 1 : 0, last = dec->in->operand_count - (red ? 1 : 0);
    emu_expect_operands(dec, red ? 3 : arrive ? 2 : 0, red ? 4 : 2);
    uint16_t id = first < last ? emu_source(dec, operand_at(dec, first), 32, EXACT) : emu_constant_register(dec, 0, 32);
    int count = first + 1 < last ? emu_source(dec, operand_at(dec, first + 1), 32, EXACT) : -1;
    op *o = emu_emit(dec, match->kind);
    o->detail = arrive ? BARRIER_ARRIVE : BARRIER_SYNC;
    o->vector = !strcmp(dec->in->opcode->pieces[0], "barrier") && !emu_chose(match, "aligned");
    if (red) {
        o->detail = popcount ? BARRIER_RED_POPC : emu_chose(match, "and") ? BARRIER_RED_AND : BARRIER_RED_OR;
        if (popcount)
            add_dest(o, emu_dest(dec, operand_at(dec, 0), 32));
        else
            o->p[0] = emu_predicate(dec, operand_at(dec, 0));
        o->p[2] = emu_predicate(dec, operand_at(dec, last));
        if (operand_at(dec, last)->negated) o->flags |= FLAG_PREDICATE_NEGATED;
    }
    add_source(o, id);
    if (count >= 0) add_source(o, (uint16_t)count);
}

/* ---- instructions of a warp ---- */

/* The member mask of an instruction of a warp. One without .sync, of PTX before 6.4, takes the lanes that are here. */
static uint16_t member_mask(decoder *dec, const form_match *match, int at) {
    bool sync = emu_chose(match, "sync");
    int count = sync ? at + 1 : at;
    emu_expect_operands(dec, count, count);
    if (sync) return emu_source(dec, operand_at(dec, at), 32, EXACT);
    if (dec->load->version >= 6.4) emu_refuse(dec, ".sync is missing: PTX has had no other form since version 6.4");
    uint16_t mask = emu_scratch_register(dec, 32);
    add_dest(emu_emit(dec, OP_ACTIVE_MASK), mask);
    return mask;
}

void emu_decode_shuffle(decoder *dec, const form_match *match) {
    uint16_t sources[4];
    sources[3] = member_mask(dec, match, 4);
    for (int i = 0; i < 3; i++) sources[i] = emu_source(dec, operand_at(dec, i + 1), 32, EXACT);
    const operand *to = operand_at(dec, 0);
    op *o = emu_emit(dec, match->kind);
    o->detail = emu_chose(match, "up")     ? SHUFFLE_UP
                : emu_chose(match, "down") ? SHUFFLE_DOWN
                : emu_chose(match, "bfly") ? SHUFFLE_BFLY
                                           : SHUFFLE_IDX;
    add_dest(o, emu_dest(dec, to, 32));
    o->p[0] = emu_optional_predicate(dec, to->second);
    for (int i = 0; i < 4; i++) add_source(o, sources[i]);
}

void emu_decode_vote(decoder *dec, const form_match *match) {
    uint16_t mask = member_mask(dec, match, 2), vote = emu_predicate_source(dec, operand_at(dec, 1));
    op *o = emu_emit(dec, match->kind);
    o->detail = emu_chose(match, "any")   ? VOTE_ANY
                : emu_chose(match, "all") ? VOTE_ALL
                : emu_chose(match, "uni") ? VOTE_UNI
                                          : VOTE_BALLOT;
    if (o->detail == VOTE_BALLOT)
        add_dest(o, emu_dest(dec, operand_at(dec, 0), 32));
    else
        o->p[0] = emu_predicate(dec, operand_at(dec, 0));
    o->p[2] = vote;
    add_source(o, mask);
}

void emu_decode_redux(decoder *dec, const form_match *match) {
    op *o = emu_emit_operands(dec, match);
    o->detail = emu_atomic_operation(match);
    if (match->types[0]->family == 's') o->flags |= FLAG_SIGNED;
    if (match->types[0]->family == 'f')
        o->immediate =
            REDUX_F32 | (emu_chose(match, "abs") ? REDUX_ABS : 0) | (emu_chose(match, "NaN") ? REDUX_NAN : 0);
}

void emu_decode_match(decoder *dec, const form_match *match) {
    op *o = emu_emit_operands(dec, match);
    o->detail = emu_chose(match, "all") ? MATCH_ALL : MATCH_ANY;
    o->bytes = match->types[0]->bits / 8;
}

/* ---- mbarrier ---- */

/* With expect_tx the third operand counts bytes, and one arrival is made. */
void emu_decode_mbarrier_arrive(decoder *dec, const form_match *match) {
    const bool bytes = emu_chose(match, "expect_tx"), whole = !emu_chose(match, "noComplete");
    emu_expect_operands(dec, bytes || !whole ? 3 : 2, 3);
    if (!bytes && whole && dec->in->operand_count == 3)
        emu_expect_target(dec->load, "an mbarrier's arrival with a count", dec->in->line);
    uint16_t last = dec->in->operand_count == 3 ? emu_source(dec, operand_at(dec, 2), 32, EXACT)
                                                : emu_constant_register(dec, 1, 32);
    uint16_t count = bytes ? emu_constant_register(dec, 1, 32) : last;
    if (match->space == SPACE_CLUSTER && operand_at(dec, 0)->kind != OPERAND_SINK)
        emu_refuse(dec, "an arrival in shared::cluster gives no state: _ is needed");
    uint16_t state = emu_dest(dec, operand_at(dec, 0), 64);
    op *o = emu_emit(dec, match->kind);
    add_dest(o, state);
    emu_add_address(dec, o, operand_at(dec, 1), match->space);
    add_source(o, count);
    if (bytes) add_source(o, last);
    o->detail = (uint8_t)((emu_chose(match, "arrive_drop") ? MBARRIER_DROP : 0) |
                          (emu_chose(match, "relaxed") ? MBARRIER_RELAXED : 0) | (whole ? 0 : MBARRIER_NO_COMPLETE));
}

void emu_decode_mbarrier_pending(decoder *dec, const form_match *match) {
    (void)match;
    emu_expect_operands(dec, 2, 2);
    uint16_t state = emu_source(dec, operand_at(dec, 1), 64, EXACT), high = emu_scratch_register(dec, 64),
             shift = emu_constant_register(dec, MBARRIER_PENDING_SHIFT, 32), to = emu_dest(dec, operand_at(dec, 0), 32);
    op *o = emu_emit(dec, OP_LANES);
    o->run.lanes = emu_lanes_shr_u64;
    add_dest(o, high);
    add_source(o, state);
    add_source(o, shift);
    o = emu_emit(dec, OP_LANES);
    o->run.lanes = emu_lanes_truncate;
    add_dest(o, to);
    add_source(o, high);
}

void emu_decode_mbarrier_bytes(decoder *dec, const form_match *match) {
    emu_emit_operands(dec, match)->detail = emu_chose(match, "complete_tx");
}

void emu_decode_mbarrier_wait(decoder *dec, const form_match *match) {
    bool parity = emu_chose(match, "parity"), blocking = emu_chose(match, "try_wait");
    emu_expect_operands(dec, 3, blocking ? 4 : 3);
    uint16_t phase = emu_source(dec, operand_at(dec, 2), parity ? 32 : 64, EXACT);
    op *o = emu_emit(dec, match->kind);
    o->detail = (uint8_t)((parity ? MBARRIER_PARITY : MBARRIER_STATE) | (blocking ? MBARRIER_BLOCKING : 0) |
                          (emu_chose(match, "relaxed") ? MBARRIER_HEARS : 0));
    o->p[0] = emu_predicate(dec, operand_at(dec, 0));
    emu_add_address(dec, o, operand_at(dec, 1), match->space);
    add_source(o, phase);
}
