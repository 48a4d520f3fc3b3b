/* decode_blackwell.c - from statements to ops: tensor memory and tcgen05, of sm_100a and its like, mma.sync of narrow
 * numbers, of sm_120a, and clusterlaunchcontrol. */
#include "builder.h"
#include "decode_rules.h"
#include "forms.h"

#include <stdlib.h>

/* The value of [address] in tensor memory, of 32 bits. */
static uint16_t tensor_address(decoder *dec, const operand *from) {
    if (from->kind != OPERAND_ADDRESS || from->symbol >= 0) emu_refuse(dec, "an [address] in tensor memory is needed");
    operand base = *from;
    base.kind = from->reg == NO_REGISTER ? OPERAND_INTEGER : OPERAND_REGISTER;
    if (base.kind == OPERAND_REGISTER) base.value = 0;
    const uint16_t value = emu_source(dec, &base, 32, EXACT);
    if (from->reg == NO_REGISTER || !from->value) return value;
    const uint16_t offset = emu_constant_register(dec, (uint32_t)from->value, 32), sum = emu_scratch_register(dec, 32);
    op *o = emu_emit(dec, OP_LANES);
    o->run.lanes = emu_lanes_add_32;
    add_dest(o, sum);
    add_source(o, value);
    add_source(o, offset);
    return sum;
}

static uint8_t pair_of(decoder *dec, const form_match *match) {
    const int group = emu_chose(match, "cta_group::2") ? 2 : 1;
    if (!dec->group) dec->group = group, dec->group_line = dec->in->line;
    if (group != dec->group)
        emu_refuse(dec, "this is .cta_group::%d and line %d .cta_group::%d: all tcgen05 of a kernel have the same one",
                   group, dec->group_line, dec->group);
    if (group == 1) return 0;
    dec->code->uses_cluster = true;
    return TENSOR_PAIR;
}

/* ---- allocation ---- */

void emu_decode_tensor_alloc(decoder *dec, const form_match *match) {
    const bool allocates = emu_chose(match, "alloc"), frees = emu_chose(match, "dealloc");
    const int operands = allocates || frees ? 2 : 0;
    uint16_t first = 0, columns = 0;
    emu_expect_operands(dec, operands, operands);
    if (operands) {
        first = allocates ? emu_address_value(dec, operand_at(dec, 0)) : emu_source(dec, operand_at(dec, 0), 32, EXACT);
        columns = emu_source(dec, operand_at(dec, 1), 32, EXACT);
    }
    const uint8_t pair = pair_of(dec, match);
    op *o = emu_emit(dec, match->kind);
    o->detail = allocates ? TENSOR_ALLOC : frees ? TENSOR_DEALLOC : TENSOR_RELINQUISH;
    o->vector = pair;
    if (operands) add_source(o, first), add_source(o, columns);
}

/* ---- loads and stores ---- */

enum { MOST_IN_OP = 12, MOST_REGISTERS = 128 };

static enum tensor_shape shape_of(decoder *dec, const form_match *match, int *registers) {
    static const struct {
        const char *name;
        enum tensor_shape shape;
        int each; /* registers of .x1 */
    } all[] = {{"32x32b", SHAPE_32X32, 1},
               {"16x64b", SHAPE_16X64, 1},
               {"16x128b", SHAPE_16X128, 2},
               {"16x256b", SHAPE_16X256, 4},
               {"16x32bx2", SHAPE_16X32X2, 1}};
    int i = 0, times = 1;
    while (!emu_chose(match, all[i].name)) i++;
    for (int k = 0; k < match->chosen_count; k++)
        if (match->chosen[k] && match->chosen[k][0] == 'x') times = (int)strtol(match->chosen[k] + 1, NULL, 10);
    *registers = all[i].each * times;
    if (*registers > MOST_REGISTERS)
        emu_refuse(dec, "'.%s' of %d registers: the most are 128", all[i].name, *registers);
    return all[i].shape;
}

static const operand *registers_of(decoder *dec, const operand *list, int count) {
    const bool single = list->kind != OPERAND_VECTOR;
    if ((single ? 1 : list->count) != count)
        emu_refuse(dec, "%d register%s needed", count, count == 1 ? " is" : "s are");
    return single ? list : list->items;
}

/* The columns between the halves of 16x32bx2. */
static int64_t split_of(decoder *dec, enum tensor_shape shape, int index) {
    if (shape != SHAPE_16X32X2) return 0;
    const operand *split = operand_at(dec, index);
    if (split->kind != OPERAND_INTEGER || split->value < 0 || split->value >= TENSOR_COLUMNS)
        emu_refuse(dec, "the distance of the halves is a number of columns");
    return split->value;
}

/* One op for every 12 registers. */
static void emit_accesses(decoder *dec, op shape, const uint16_t *registers, int count, uint16_t address) {
    const bool stores = shape.kind == OP_TENSOR_STORE;
    for (int first = 0; first < count; first += MOST_IN_OP) {
        op *o = emu_emit(dec, (op_kind)shape.kind);
        o->detail = shape.detail;
        o->immediate = shape.immediate;
        o->target = first;
        o->vector = (uint8_t)(count - first < MOST_IN_OP ? count - first : MOST_IN_OP);
        for (int i = 0; i < o->vector && !stores; i++) add_dest(o, registers[first + i]);
        add_source(o, address);
        for (int i = 0; i < o->vector && stores; i++) add_source(o, registers[first + i]);
    }
}

/* The destinations of a load, whose address may be one of them. */
static void emit_load(decoder *dec, const form_match *match, int list, int at, uint16_t *registers, int *count) {
    const enum tensor_shape shape = shape_of(dec, match, count);
    const operand *items = registers_of(dec, operand_at(dec, list), *count);
    uint16_t address = tensor_address(dec, operand_at(dec, at));
    for (int i = 0; i < *count; i++) {
        registers[i] = emu_dest(dec, &items[i], 32);
        if (registers[i] != address) continue;
        address = emu_scratch_register(dec, 32);
        op *o = emu_emit(dec, OP_LANES);
        o->run.lanes = emu_lanes_mov_32;
        add_dest(o, address);
        add_source(o, registers[i]);
    }
    const op access = {.kind = OP_TENSOR_LOAD,
                       .detail = (uint8_t)(shape | (emu_chose(match, "pack::16b") ? TENSOR_PACKED : 0)),
                       .immediate = split_of(dec, shape, at + 1)};
    emit_accesses(dec, access, registers, *count, address);
}

void emu_decode_tensor_load(decoder *dec, const form_match *match) {
    uint16_t registers[MOST_REGISTERS];
    const int operands = emu_chose(match, "16x32bx2") ? 3 : 2;
    int count;
    emu_expect_operands(dec, operands, operands);
    emit_load(dec, match, 0, 1, registers, &count);
}

static lane_function *reduction_of(const form_match *match) {
    const bool most = emu_chose(match, "max"), nan = emu_chose(match, "NaN");
    switch (match->types[match->type_count - 1]->family) {
    case 'u':
        return most ? emu_lanes_max_u32 : emu_lanes_min_u32;
    case 's':
        return most ? emu_lanes_max_s32 : emu_lanes_min_s32;
    default:
        return nan ? (most ? emu_lanes_max_nan_f32 : emu_lanes_min_nan_f32)
                   : (most ? emu_lanes_max_f32 : emu_lanes_min_f32);
    }
}

/* A load, and a chain of minima or maxima over its registers. */
void emu_decode_tensor_load_red(decoder *dec, const form_match *match) {
    uint16_t registers[MOST_REGISTERS];
    const int operands = emu_chose(match, "16x32bx2") ? 4 : 3;
    const bool magnitudes = emu_chose(match, "abs");
    int count;
    emu_expect_operands(dec, operands, operands);
    const uint16_t result = emu_dest(dec, operand_at(dec, 1), 32);
    emit_load(dec, match, 0, 2, registers, &count);
    uint16_t sum = registers[0];
    for (int i = 0; i < count; i++) {
        uint16_t value = registers[i];
        if (magnitudes) {
            value = emu_scratch_register(dec, 32);
            op *o = emu_emit(dec, OP_LANES);
            o->run.lanes = emu_lanes_abs_f32;
            add_dest(o, value);
            add_source(o, registers[i]);
        }
        const uint16_t next = i == count - 1 ? result : emu_scratch_register(dec, 32);
        op *o = emu_emit(dec, OP_LANES);
        o->run.lanes = i ? reduction_of(match) : emu_lanes_mov_32;
        add_dest(o, next);
        add_source(o, i ? sum : value);
        if (i) add_source(o, value);
        sum = next;
    }
}

void emu_decode_tensor_store(decoder *dec, const form_match *match) {
    uint16_t registers[MOST_REGISTERS];
    int count;
    const enum tensor_shape shape = shape_of(dec, match, &count);
    const int list = shape == SHAPE_16X32X2 ? 2 : 1;
    emu_expect_operands(dec, list + 1, list + 1);
    const operand *items = registers_of(dec, operand_at(dec, list), count);
    const uint16_t address = tensor_address(dec, operand_at(dec, 0));
    for (int i = 0; i < count; i++) registers[i] = emu_source(dec, &items[i], 32, EXACT);
    const op access = {.kind = OP_TENSOR_STORE,
                       .detail = (uint8_t)(shape | (emu_chose(match, "unpack::16b") ? TENSOR_PACKED : 0)),
                       .immediate = split_of(dec, shape, 1)};
    emit_accesses(dec, access, registers, count, address);
}

/* ---- order ---- */

void emu_decode_tensor_wait(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 0, 0);
    emu_emit(dec, match->kind)->detail = emu_chose(match, "wait::st");
}

void emu_decode_tensor_fence(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 0, 0);
    emu_emit(dec, match->kind)->detail =
        emu_chose(match, "fence::after_thread_sync") ? FENCE_AFTER_SYNC : FENCE_BEFORE_SYNC;
}

void emu_decode_tensor_commit(decoder *dec, const form_match *match) {
    const bool multicast = emu_chose(match, "multicast::cluster");
    emu_expect_operands(dec, 1 + multicast, 1 + multicast);
    const uint16_t mbarrier = emu_address_value(dec, operand_at(dec, 0));
    const uint16_t mask = multicast ? emu_source(dec, operand_at(dec, 1), 16, EXACT) : 0;
    const uint8_t pair = pair_of(dec, match);
    op *o = emu_emit(dec, match->kind);
    o->detail = (uint8_t)(pair | (multicast ? TENSOR_MULTICAST : 0));
    add_source(o, mbarrier);
    if (multicast) add_source(o, mask);
    if (multicast) dec->code->uses_cluster = true;
}

/* ---- copies and shifts ---- */

void emu_decode_tensor_copy(decoder *dec, const form_match *match) {
    static const char *const shapes[] = {[COPY_128X256] = "128x256b",           [COPY_4X256] = "4x256b",
                                         [COPY_128X128] = "128x128b",           [COPY_64X128_02_13] = "warpx2::02_13",
                                         [COPY_64X128_01_23] = "warpx2::01_23", [COPY_32X128] = "warpx4"};
    const bool expands = emu_chose(match, "b8x16"), fours = emu_chose(match, "b4x16_p64"),
               sixes = emu_chose(match, "b6x16_p32");
    uint8_t shape = 0;
    emu_expect_operands(dec, 2, 2);
    if (expands != (fours || sixes))
        emu_refuse(dec, ".b8x16 is followed by .b6x16_p32 or .b4x16_p64, and these follow it");
    while (!emu_chose(match, shapes[shape])) shape++;
    const uint16_t to = tensor_address(dec, operand_at(dec, 0)), from = emu_source(dec, operand_at(dec, 1), 64, EXACT);
    const uint8_t pair = pair_of(dec, match);
    op *o = emu_emit(dec, match->kind);
    o->detail = pair;
    o->vector = shape;
    o->bytes = fours ? 4 : sixes ? 6 : 8;
    add_source(o, to);
    add_source(o, from);
}

void emu_decode_tensor_shift(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 1, 1);
    const uint16_t at = tensor_address(dec, operand_at(dec, 0));
    const uint8_t pair = pair_of(dec, match);
    op *o = emu_emit(dec, match->kind);
    o->detail = pair;
    add_source(o, at);
}

/* ---- products ---- */

/* Number of scales of a row of A and of a column of B. */
static uint8_t scales_of(decoder *dec, const form_match *match, enum tensor_kind kind) {
    const int wanted = emu_chose(match, "scale_vec::4X") || emu_chose(match, "block16")   ? 4
                       : emu_chose(match, "scale_vec::2X") || emu_chose(match, "block32") ? 2
                       : emu_chose(match, "scale_vec::1X")                                ? 1
                                                                                          : 0;
    if (kind == KIND_MXF8F6F4) {
        if (wanted > 1 && !emu_chose(match, "block32"))
            emu_refuse(dec, ".kind::mxf8f6f4 has .scale_vec::1X or .block32");
        return 1;
    }
    if (kind == KIND_MXF4) {
        if (wanted && wanted != 2) emu_refuse(dec, ".kind::mxf4 has .scale_vec::2X or .block32");
        return 2;
    }
    if (!wanted || wanted == 1) emu_refuse(dec, ".kind::mxf4nvf4 needs .scale_vec::2X, ::4X, .block16 or .block32");
    return (uint8_t)wanted;
}

/* ---- mma.sync of 8, 6 and 4 bits ---- */

/* The formats of A and B, in the order of the modifiers. */
static uint8_t formats_of(const form_match *match) {
    static const struct {
        const char *name;
        enum narrow_number format;
    } all[] = {{"e4m3", NARROW_E4M3},
               {"e5m2", NARROW_E5M2},
               {"e2m3", NARROW_E2M3},
               {"e3m2", NARROW_E3M2},
               {"e2m1", NARROW_E2M1}};
    int count = 0;
    uint8_t formats = 0;
    for (int i = 0; i < match->chosen_count; i++)
        for (size_t k = 0; match->chosen[i] && k < sizeof all / sizeof all[0]; k++)
            if (!strcmp(match->chosen[i], all[k].name)) formats |= (uint8_t)(all[k].format << 4 * count++);
    return formats;
}

static void take_words(decoder *dec, int index, int count, const type_info *type, op *o) {
    const operand *from = emu_elements(dec, operand_at(dec, index), count);
    for (int i = 0; i < count; i++) add_source(o, emu_source_of_type(dec, &from[i], type, EXACT));
}

/* A word of scales of A or B, and the byte and the lane that select `scales` of a row. */
static void take_scales(decoder *dec, int index, int scales, bool of_b, op *o) {
    const operand *selectors = emu_elements(dec, operand_at(dec, index + 1), 2);
    const int units[] = {scales, 1}, last[] = {4 - scales, of_b ? 3 : 1};
    const char *const values[] = {scales == 1 ? "0 to 3" : scales == 2 ? "0 or 2" : "0", of_b ? "0 to 3" : "0 or 1"};
    for (int i = 0; i < 2; i++) {
        const operand *from = &selectors[i];
        if (from->kind != OPERAND_INTEGER ||
            (from->value >= 0 && from->value <= last[i] && from->value % units[i] == 0))
            continue;
        emu_refuse(dec, "the %s of the scales of %c is %s", i ? "lane" : "byte", of_b ? 'B' : 'A', values[i]);
    }
    take_words(dec, index, 1, emu_find_type("b32"), o);
    for (int i = 0; i < 2; i++) add_source(o, emu_source(dec, &selectors[i], 16, EXACT));
}

/* D = A * B + C. A, B, the indices of a sparse A and the scales are sources of an op of its own, right before. */
void emu_decode_narrow(decoder *dec, const form_match *match) {
    const bool scaled = emu_chose(match, "block_scale"), sparse = emu_chose(match, "sp::ordered_metadata");
    const bool fours = emu_chose(match, sparse ? "m16n8k128" : "m16n8k64");
    const bool plain = emu_chose(match, "kind::f8f6f4"), half = emu_chose(match, "f16");
    const type_info *words = emu_find_type("b32"), *sums = emu_find_type(half ? "b32" : "f32");
    if (half && emu_chose(match, "f32")) emu_refuse(dec, "C and D are of one type");
    const uint8_t scales = plain   ? 0
                           : fours ? scales_of(dec, match, emu_chose(match, "kind::mxf4") ? KIND_MXF4 : KIND_MXF4NVF4)
                                   : 1;
    if (fours && emu_chose(match, "ue4m3") && scales != 4) emu_refuse(dec, ".ue4m3 needs .scale_vec::4X");
    const int dense = sparse ? 6 : 4, operands = dense + (scaled ? 4 : 0);
    emu_expect_operands(dec, operands, operands);
    op factors = {0}, product = {0};
    take_words(dec, 1, 4, words, &factors);
    take_words(dec, 2, sparse ? 4 : 2, words, &factors);
    if (sparse) {
        const operand *selector = operand_at(dec, 5);
        if (selector->kind != OPERAND_INTEGER || selector->value) emu_refuse(dec, "the selector of the indices is 0");
        take_words(dec, 4, 1, words, &factors);
    }
    for (int i = 0; i < 2 && scaled; i++) take_scales(dec, dense + 2 * i, scales, i, &factors);
    take_words(dec, 3, half ? 2 : 4, sums, &product);
    const operand *to = emu_elements(dec, operand_at(dec, 0), half ? 2 : 4);
    uint16_t dests[4];
    for (int i = 0; i < product.sources; i++) dests[i] = emu_dest(dec, &to[i], 32);
    const bool first = dec->first;
    op *o = emu_emit(dec, OP_FACTORS);
    o->flags &= (uint16_t)~FLAG_FIRST;
    for (int i = 0; i < factors.sources; i++) add_source(o, factors.r[i]);
    dec->first = first;
    o = emu_emit(dec, match->kind);
    o->detail = formats_of(match);
    o->bytes = fours;
    o->vector = scales;
    o->immediate = emu_chose(match, "ue8m0");
    o->target = sparse;
    for (int i = 0; i < product.sources; i++) add_dest(o, dests[i]);
    for (int i = 0; i < product.sources; i++) add_source(o, product.r[i]);
}

/* ---- products of tcgen05 ---- */

static uint8_t details_of(const form_match *match, bool a_there, bool masked) {
    return (uint8_t)((emu_chose(match, "cta_group::2") ? TENSOR_PAIR : 0) | (a_there ? TENSOR_A_THERE : 0) |
                     (emu_chose(match, "sp") ? TENSOR_SPARSE : 0) |
                     (emu_chose(match, "block_scale") ? TENSOR_SCALED : 0) | (masked ? TENSOR_MASKED : 0) |
                     (emu_chose(match, "ws") ? TENSOR_STATIONARY : 0) |
                     (emu_chose(match, "ashift") ? TENSOR_SHIFTED : 0));
}

/* Lanes of D that are left alone: a vector of words, which may be absent. */
static int lanes_off(decoder *dec, int index, uint8_t pair, uint16_t *sources) {
    const operand *list = operand_at(dec, index);
    const int words = pair ? 8 : 4;
    if (list->kind != OPERAND_VECTOR) return 0;
    if (list->count != words) emu_refuse(dec, "the lanes to leave alone are a vector of %d words", words);
    for (int i = 0; i < words; i++) sources[i] = emu_source(dec, &list->items[i], 32, EXACT);
    return words;
}

static int64_t scale_input(decoder *dec, int index) {
    const operand *scale = operand_at(dec, index);
    if (scale->kind != OPERAND_INTEGER || scale->value < 0 || scale->value > 15)
        emu_refuse(dec, "scale-input-d is a number from 0 to 15");
    return scale->value;
}

void emu_decode_tensor_mma(decoder *dec, const form_match *match) {
    static const char *const kinds[] = {[KIND_F16] = "kind::f16",           [KIND_TF32] = "kind::tf32",
                                        [KIND_F8F6F4] = "kind::f8f6f4",     [KIND_I8] = "kind::i8",
                                        [KIND_MXF8F6F4] = "kind::mxf8f6f4", [KIND_MXF4] = "kind::mxf4",
                                        [KIND_MXF4NVF4] = "kind::mxf4nvf4"};
    const bool scaled = emu_chose(match, "block_scale"), sparse = emu_chose(match, "sp"), ws = emu_chose(match, "ws");
    uint16_t sources[MAX_OPERANDS];
    int kind = 0, count = 0, at = 2;
    while (!emu_chose(match, kinds[kind])) kind++;
    const uint8_t pair = pair_of(dec, match);
    const operand *a = operand_at(dec, 1);
    const bool a_there = a->kind == OPERAND_ADDRESS;
    if (emu_chose(match, "ashift") && !a_there) emu_refuse(dec, ".ashift needs A in tensor memory");
    sources[count++] = tensor_address(dec, operand_at(dec, 0));
    sources[count++] = a_there ? tensor_address(dec, a) : emu_source(dec, a, 64, EXACT);
    sources[count++] = emu_source(dec, operand_at(dec, at++), 64, EXACT);
    const uint16_t indices = sparse ? tensor_address(dec, operand_at(dec, at++)) : 0;
    sources[count++] = emu_source(dec, operand_at(dec, at++), 32, EXACT);
    if (sparse) sources[count++] = indices;
    for (int i = 0; i < 2 && scaled; i++) sources[count++] = tensor_address(dec, operand_at(dec, at++));
    const int words = scaled || ws ? 0 : lanes_off(dec, at, pair, sources + count);
    count += words;
    at += words != 0;
    const uint16_t adds = emu_predicate_source(dec, operand_at(dec, at++));
    const bool more = at < dec->in->operand_count;
    if (more && ws) sources[count++] = emu_source(dec, operand_at(dec, at), 64, EXACT);
    if (more && !ws && kind != KIND_F16 && kind != KIND_TF32) emu_refuse(dec, "scale-input-d is for f16 and tf32 only");
    if (more && !ws) emu_expect_target(dec->load, "scale-input-d", dec->in->line);
    const int64_t scale = more && !ws ? scale_input(dec, at) : 0;
    emu_expect_operands(dec, at, at + more);
    const uint8_t scales = scaled ? scales_of(dec, match, (enum tensor_kind)kind) : 0;
    op *o = emu_emit(dec, match->kind);
    o->detail = details_of(match, a_there, words != 0);
    o->bytes = (uint8_t)kind;
    o->vector = scales;
    o->immediate = scale;
    o->p[2] = adds;
    for (int i = 0; i < count; i++) add_source(o, sources[i]);
}

/* ---- clusterlaunchcontrol ---- */

void emu_decode_try_cancel(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 2, 2);
    const uint16_t target = emu_address_value(dec, operand_at(dec, 0)),
                   mbarrier = emu_address_value(dec, operand_at(dec, 1));
    op *o = emu_emit(dec, match->kind);
    o->detail = emu_chose(match, "multicast::cluster::all");
    if (o->detail) dec->code->uses_cluster = true;
    add_source(o, target);
    add_source(o, mbarrier);
}

/* Words 0 to 3 of a response: the first CTA of the cluster, and whether one was cancelled. */
static void take_word(decoder *dec, uint16_t response, int which, uint16_t to) {
    const uint16_t half = emu_scratch_register(dec, 64);
    op *o = emu_emit(dec, OP_LANES);
    o->run.lanes = which < 2 ? emu_lanes_low_64 : emu_lanes_high_64;
    add_dest(o, half);
    add_source(o, response);
    o = emu_emit(dec, OP_LANES);
    o->run.lanes = which % 2 ? emu_lanes_high_32 : emu_lanes_low_32;
    add_dest(o, to);
    add_source(o, half);
}

void emu_decode_query_cancel(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 2, 2);
    const operand *to = operand_at(dec, 0);
    const uint16_t response = emu_source(dec, operand_at(dec, 1), 128, EXACT);
    if (emu_chose(match, "is_canceled")) {
        const uint16_t word = emu_scratch_register(dec, 32), zero = emu_constant_register(dec, 0, 32);
        uint8_t wanted;
        take_word(dec, response, 3, word);
        op *o = emu_emit(dec, OP_COMPARE);
        o->run.compare = emu_find_compare("ne", emu_find_type("b32"), false, &wanted);
        o->immediate = wanted;
        o->p[0] = emu_predicate(dec, to);
        add_source(o, word);
        add_source(o, zero);
    } else if (emu_chose(match, "v4")) {
        if (to->kind != OPERAND_VECTOR || to->count != 4) emu_refuse(dec, "a vector of 4 registers is needed");
        for (int i = 0; i < 3; i++)
            if (to->items[i].kind != OPERAND_SINK) take_word(dec, response, i, emu_dest(dec, &to->items[i], 32));
    } else {
        const int which = emu_chose(match, "get_first_ctaid::x") ? 0 : emu_chose(match, "get_first_ctaid::y") ? 1 : 2;
        take_word(dec, response, which, emu_dest(dec, to, 32));
    }
}
