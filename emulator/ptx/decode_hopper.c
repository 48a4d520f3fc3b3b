/* decode_hopper.c - from statements to ops: what sm_90 and sm_90a add. */
#include "builder.h"
#include "decode_rules.h"

#include <stdlib.h>

/* An operand that must be one of two numbers. */
static bool is_second(decoder *dec, int index, int64_t first, int64_t second, const char *name) {
    const operand *which = operand_at(dec, index);
    if (which->kind != OPERAND_INTEGER || (which->value != first && which->value != second))
        emu_refuse(dec, "%s is %d or %d", name, (int)first, (int)second);
    return which->value == second;
}

static uint16_t widen(decoder *dec, uint16_t narrow) {
    uint16_t wide = emu_scratch_register(dec, 64);
    op *o = emu_emit(dec, OP_LANES);
    o->run.lanes = emu_lanes_wide_u32;
    add_dest(o, wide);
    add_source(o, narrow);
    return wide;
}

uint16_t emu_address_value(decoder *dec, const operand *address) {
    if (address->kind != OPERAND_ADDRESS) emu_refuse(dec, "an [address] is needed");
    operand base = *address;
    base.kind = address->reg != NO_REGISTER ? OPERAND_REGISTER
                : address->symbol >= 0      ? OPERAND_SYMBOL
                                            : OPERAND_INTEGER;
    if (base.kind != OPERAND_REGISTER) return emu_source(dec, &base, 64, EXACT);
    base.value = 0;
    uint16_t value = (uint16_t)address->reg;
    const int bits = dec->code->registers[value].bits;
    if (bits != 32 && bits != 64) emu_refuse(dec, "the register of an address has 32 or 64 bits");
    if (bits == 32) value = widen(dec, value);
    if (!address->value) return value;
    uint16_t offset = emu_constant_register(dec, (uint64_t)address->value, 64), sum = emu_scratch_register(dec, 64);
    op *o = emu_emit(dec, OP_LANES);
    o->run.lanes = emu_lanes_add_64;
    add_dest(o, sum);
    add_source(o, value);
    add_source(o, offset);
    return sum;
}

/* ---- bulk copies ---- */

/* Bits of a bulk_detail. */
static uint8_t bulk_detail_of(const form_match *match) {
    bool between = emu_chose(match, "shared::cluster") && emu_chose(match, "shared::cta");
    return (uint8_t)((emu_chose(match, "tensor") ? BULK_TENSOR : 0) |
                     (emu_chose(match, "bulk_group") ? BULK_STORE : 0) |
                     (emu_chose(match, "multicast::cluster") ? BULK_MULTICAST : 0) | (between ? BULK_BETWEEN_CTAS : 0) |
                     (emu_chose(match, "cta_group::2") ? BULK_PAIR : 0) |
                     (emu_chose(match, "tile::gather4") || emu_chose(match, "tile::scatter4") ? BULK_GATHERS : 0) |
                     (emu_chose(match, "reduce") ? BULK_REDUCES : 0));
}

static void name_elements(op *o, const form_match *match) {
    const type_info *type = match->types[0];
    if (o->detail & BULK_TENSOR) { /* the tensor map names the type */
        o->target = reduction_pack(ATOMIC_INTEGER, (enum atomic_operation)emu_atomic_operation(match));
        return;
    }
    o->bytes = type->bits / 8;
    if (type->family == 's') o->flags |= FLAG_SIGNED;
    if (o->detail & BULK_REDUCES)
        o->target = reduction_pack(emu_atomic_numbers(type), (enum atomic_operation)emu_atomic_operation(match));
}

/* r: the address in shared memory; the map and coordinates, or the other address and the bytes; the mbarrier; `bytes`
 * offsets of im2col; the mask of a multicast. */
void emu_decode_bulk(decoder *dec, const form_match *match) {
    const uint8_t detail = bulk_detail_of(match);
    const bool tensor = detail & BULK_TENSOR, store = detail & BULK_STORE, multicast = detail & BULK_MULTICAST;
    const bool moves = emu_chose(match, "im2col"), pixels = moves || emu_chose(match, "im2col_no_offs");
    const int hints = emu_chose(match, "L2::cache_hint"),
              wanted = (tensor ? 2 : 3) + !store + moves + multicast + hints;
    emu_expect_operands(dec, wanted, wanted);
    if (hints) emu_source(dec, operand_at(dec, wanted - 1), 64, EXACT);
    const operand *in_shared = operand_at(dec, store ? 1 : 0), *other = operand_at(dec, store ? 0 : 1);
    uint16_t sources[MAX_OPERANDS];
    int count = 0;
    sources[count++] = emu_address_value(dec, in_shared);
    sources[count++] = emu_address_value(dec, other);
    int rank = 0;
    if (tensor) {
        while (!(dec->in->opcode->pieces[rank][0] >= '1' && dec->in->opcode->pieces[rank][0] <= '5')) rank++;
        rank = dec->in->opcode->pieces[rank][0] - '0';
        if (detail & BULK_GATHERS) {
            if (rank != 2) emu_refuse(dec, "four rows are those of a tensor of two dimensions");
            rank = 5;
        }
        if (detail & BULK_PAIR) dec->code->uses_cluster = true;
        if (other->count != rank) emu_refuse(dec, "%d coordinates are needed, not %d", rank, other->count);
        for (int i = 0; i < rank; i++) sources[count++] = emu_source(dec, &other->items[i], 32, EXACT);
    } else {
        sources[count++] = emu_source(dec, operand_at(dec, 2), 32, EXACT);
    }
    if (!store) sources[count++] = emu_address_value(dec, operand_at(dec, tensor ? 2 : 3));
    const int offsets = moves ? rank - 2 : 0;
    if (moves) {
        const operand *from = emu_elements(dec, operand_at(dec, 3), offsets);
        for (int i = 0; i < offsets; i++) sources[count++] = emu_source(dec, &from[i], 16, EXACT);
    }
    if (multicast) sources[count++] = emu_source(dec, operand_at(dec, wanted - hints - 1), 16, EXACT);
    op *o = emu_emit(dec, match->kind);
    o->detail = detail;
    o->vector = (uint8_t)rank;
    o->bytes = (uint8_t)offsets;
    o->immediate = pixels;
    if (detail & BULK_REDUCES) name_elements(o, match);
    for (int i = 0; i < count; i++) add_source(o, sources[i]);
}

/* st.async and red.async. r: the address in shared memory, the mbarrier, the values. */
void emu_decode_store_async(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 3, 3);
    const type_info *type = match->types[0];
    const int count = match->vector;
    if (type->bits / 8 * count > 16) emu_refuse(dec, "an access moves at most 16 bytes");
    const operand *from = emu_elements(dec, operand_at(dec, 1), count);
    uint16_t values[4], target = emu_address_value(dec, operand_at(dec, 0)),
                        mbarrier = emu_address_value(dec, operand_at(dec, 2));
    for (int i = 0; i < count; i++) values[i] = emu_source_of_type(dec, &from[i], type, EXACT);
    op *o = emu_emit(dec, match->kind);
    o->detail = BULK_VALUES;
    if (!strcmp(dec->in->opcode->pieces[0], "red")) o->detail |= BULK_REDUCES;
    o->vector = (uint8_t)count;
    name_elements(o, match);
    add_source(o, target);
    add_source(o, mbarrier);
    for (int i = 0; i < count; i++) add_source(o, values[i]);
}

/* ---- tensor maps ---- */

static const char *const fields[] = {
    [FIELD_ADDRESS] = "global_address",
    [FIELD_RANK] = "rank",
    [FIELD_BOX] = "box_dim",
    [FIELD_SIZE] = "global_dim",
    [FIELD_STRIDE] = "global_stride",
    [FIELD_ELEMENT_STRIDE] = "element_stride",
    [FIELD_ELEMENT] = "elemtype",
    [FIELD_INTERLEAVE] = "interleave_layout",
    [FIELD_SWIZZLE] = "swizzle_mode",
    [FIELD_FILL] = "fill_mode",
};

static bool has_axis(int field) {
    return field >= FIELD_BOX && field <= FIELD_ELEMENT_STRIDE;
}

/* tensormap.replace: the address, the axis of a field that has one, the value. */
void emu_decode_tensor_field(decoder *dec, const form_match *match) {
    int field = 0;
    while (!emu_chose(match, fields[field])) field++;
    const int operands = has_axis(field) ? 3 : 2, axes = field == FIELD_STRIDE ? EMU_TENSOR_RANK - 1 : EMU_TENSOR_RANK;
    const int bits = match->types[match->type_count - 1]->bits;
    emu_expect_operands(dec, operands, operands);
    const operand *axis = operand_at(dec, 1);
    if (has_axis(field) && (axis->kind != OPERAND_INTEGER || axis->value < 0 || axis->value >= axes))
        emu_refuse(dec, "the axis is a number from 0 to %d", axes - 1);
    const uint16_t address = emu_address_value(dec, operand_at(dec, 0));
    uint16_t value = emu_source(dec, operand_at(dec, operands - 1), bits, EXACT);
    if (bits == 32) value = widen(dec, value);
    op *o = emu_emit(dec, match->kind);
    o->detail = (uint8_t)field;
    o->space = emu_chose(match, "shared::cta") ? SPACE_SHARED
               : emu_chose(match, "global")    ? SPACE_GLOBAL
                                               : SPACE_GENERIC;
    o->immediate = has_axis(field) ? axis->value : 0;
    add_source(o, address);
    add_source(o, value);
}

static void expect_map_bytes(decoder *dec, int index) {
    const operand *bytes = operand_at(dec, index);
    if (bytes->kind != OPERAND_INTEGER || bytes->value != EMU_TENSOR_MAP_BYTES)
        emu_refuse(dec, "a tensor map has %d bytes", EMU_TENSOR_MAP_BYTES);
}

void emu_decode_tensor_map_copy(decoder *dec, const form_match *match) {
    (void)match;
    emu_expect_operands(dec, 3, 3);
    expect_map_bytes(dec, 2);
    const uint16_t to = emu_address_value(dec, operand_at(dec, 0)), from = emu_address_value(dec, operand_at(dec, 1));
    op *o = emu_emit(dec, match->kind);
    add_source(o, to);
    add_source(o, from);
}

void emu_decode_tensor_map_fence(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 2, 2);
    expect_map_bytes(dec, 1);
    const uint16_t map = emu_address_value(dec, operand_at(dec, 0));
    add_source(emu_emit(dec, match->kind), map);
}

void emu_decode_bulk_wait(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 1, 1);
    op *o = emu_emit(dec, match->kind);
    o->immediate = emu_group_count(dec, 0, INT32_MAX);
    o->detail = emu_chose(match, "read");
}

/* ---- clusters ---- */

void emu_decode_cluster_barrier(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 0, 0);
    op *o = emu_emit(dec, match->kind);
    o->detail = emu_chose(match, "wait")      ? CLUSTER_WAIT
                : emu_chose(match, "relaxed") ? CLUSTER_ARRIVE_RELAXED
                                              : CLUSTER_ARRIVE;
    o->vector = o->detail != CLUSTER_WAIT && !emu_chose(match, "aligned"); /* lanes may arrive apart */
}

/* mapa and getctarank: an address of 32 bits is one of shared::cluster; a generic one has 64. */
void emu_decode_cluster_address(decoder *dec, const form_match *match) {
    const bool cluster = emu_chose(match, "shared::cluster");
    if (match->types[0]->bits == 32 && !cluster) emu_refuse(dec, "a generic address has 64 bits");
    op *o = emu_emit_operands(dec, match);
    o->bytes = match->types[0]->bits / 8;
    o->space = cluster ? SPACE_CLUSTER : SPACE_GENERIC;
}

void emu_decode_fence(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 0, 0);
    dec->code->has_fence = true;
    const bool sc = emu_chose(match, "sc") || !strcmp(dec->in->opcode->pieces[0], "membar");
    emu_emit(dec, match->kind)->order = (uint8_t)((emu_chose(match, "cta") ? ORDER_CTA : 0) | (sc ? ORDER_SC : 0));
}

/* ---- warps ---- */

void emu_decode_max_registers(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 1, 1);
    const operand *count = operand_at(dec, 0);
    if (count->kind != OPERAND_INTEGER || count->value < 24 || count->value > 256 || count->value % 8)
        emu_refuse(dec, "a multiple of 8 from 24 to 256 is needed");
    op *o = emu_emit(dec, match->kind);
    o->immediate = count->value;
    o->detail = emu_chose(match, "inc");
}

void emu_decode_proxy_fence(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 0, 0);
    const bool shared = emu_chose(match, "shared::cta") || emu_chose(match, "shared::cluster");
    emu_emit(dec, match->kind)->detail = emu_chose(match, "global") ? FENCED_GLOBAL
                                         : shared                   ? FENCED_SHARED
                                                                    : FENCED_SHARED | FENCED_GLOBAL;
}

/* ---- wgmma ---- */

/* True if the products are added to the accumulators: a predicate or a number. */
static uint16_t scale_d(decoder *dec, const operand *which, uint8_t *detail) {
    if (which->kind == OPERAND_INTEGER) {
        if (is_second(dec, 3, 0, 1, "scale-d")) *detail |= WGMMA_ADDS;
        return NO_PREDICATE;
    }
    uint16_t predicate = emu_predicate(dec, which);
    if (predicate == NO_PREDICATE || which->negated) emu_refuse(dec, "scale-d is a predicate, 0 or 1");
    return predicate;
}

static int columns_of(const form_match *match) {
    for (int i = 0; i < match->chosen_count; i++) {
        if (match->chosen[i] && !strncmp(match->chosen[i], "m64n", 4))
            return (int)strtol(match->chosen[i] + 4, NULL, 10);
    }
    return 0;
}

/* One op for every eight columns, as many registers fit into one. The first does the work of all. */
void emu_decode_wgmma(decoder *dec, const form_match *match) {
    const type_info *sum = match->types[0], *factor = match->types[1];
    const bool narrow = factor->bits == 16 /* and may be transposed */, integers = strchr("us", factor->family);
    emu_expect_operands(dec, 4, 8);
    const int columns = columns_of(match), in_op = sum->bits / 8, accumulators = columns / 8 * in_op;
    const operand *to = operand_at(dec, 0), *from = operand_at(dec, 1);
    const bool registers = from->kind == OPERAND_VECTOR;
    const int operands = integers ? 4 : !narrow ? 6 : registers ? 7 : 8;
    emu_expect_operands(dec, operands, operands);
    if (to->kind != OPERAND_VECTOR || to->count != accumulators)
        emu_refuse(dec, "D is a vector of %d registers for %d columns", accumulators, columns);
    if (registers && from->count != 4) emu_refuse(dec, "A is a descriptor or a vector of 4 registers");
    uint8_t detail = 0;
    uint16_t a[4], b = emu_source(dec, operand_at(dec, 2), 64, EXACT);
    for (int i = 0; i < (registers ? 4 : 1); i++)
        a[i] = registers ? emu_source(dec, &from->items[i], 32, EXACT) : emu_source(dec, from, 64, EXACT);
    const uint16_t adds = scale_d(dec, operand_at(dec, 3), &detail);
    if (registers) detail |= WGMMA_A_REGISTERS;
    if (!integers && is_second(dec, 4, 1, -1, "scale-a")) detail |= WGMMA_NEGATE_A;
    if (!integers && is_second(dec, 5, 1, -1, "scale-b")) detail |= WGMMA_NEGATE_B;
    if (narrow && !registers && is_second(dec, 6, 0, 1, "trans-a")) detail |= WGMMA_TRANSPOSE_A;
    if (narrow && is_second(dec, registers ? 6 : 7, 0, 1, "trans-b")) detail |= WGMMA_TRANSPOSE_B;
    for (int j = 0; j < columns / 8; j++) {
        op *o = emu_emit(dec, match->kind);
        o->detail = detail;
        o->bytes = (uint8_t)(emu_numbers_of(factor) | emu_numbers_of(match->types[2]) << 4);
        if (emu_chose(match, "satfinite")) o->flags |= FLAG_SIGNED;
        o->vector = (uint8_t)(columns / 8);
        o->immediate = j;
        o->p[2] = adds;
        for (int i = 0; i < in_op; i++) add_dest(o, emu_dest(dec, &to->items[in_op * j + i], 32));
        add_source(o, b);
        for (int i = 0; i < (registers ? 4 : 1); i++) add_source(o, a[i]);
        for (int i = 0; i < in_op && (detail & WGMMA_ADDS || adds != NO_PREDICATE); i++) add_source(o, o->r[i]);
    }
}

void emu_decode_wgmma_wait(decoder *dec, const form_match *match) {
    emu_expect_operands(dec, 1, 1);
    emu_emit(dec, match->kind)->immediate = emu_group_count(dec, 0, 7);
}
