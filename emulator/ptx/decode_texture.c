/* decode_texture.c - from statements to ops: textures and surfaces, by objects. */
#include "builder.h"
#include "decode_rules.h"

typedef struct shape {
    const char *name;
    uint8_t form, least, most; /* coordinates: of three ptxas takes a fourth, which means nothing */
} shape;

static const shape shapes[] = {{"1d", TEXTURE_1D, 1, 1},   {"2d", TEXTURE_2D, 2, 2},   {"3d", TEXTURE_3D, 3, 4},
                               {"a1d", TEXTURE_A1D, 2, 2}, {"a2d", TEXTURE_A2D, 3, 4}, {"cube", TEXTURE_CUBE, 3, 4}};

/* r: the object and the coordinates, a layer first, as sources; of integers but for those of a texture that are not. */
static int object_operand(decoder *dec, const form_match *match, int index, const type_info *type, uint8_t *form,
                          uint16_t sources[]) {
    const operand *object = operand_at(dec, index);
    const shape *of = shapes;
    while (!emu_chose(match, of->name)) of++;
    *form = of->form;
    if (object->kind != OPERAND_ADDRESS || object->reg == NO_REGISTER || object->value)
        emu_refuse(dec, "a register with a texture or surface object is needed: references by name are not supported");
    if (object->count < of->least || object->count > of->most)
        emu_refuse(dec, "%d coordinates are needed, not %d", of->least, object->count);
    operand whole = *object;
    whole.kind = OPERAND_REGISTER;
    int count = 0;
    sources[count++] = emu_source(dec, &whole, 64, EXACT);
    for (int i = 0; i < of->least; i++) {
        const bool layer = i == 0 && (of->form == TEXTURE_A1D || of->form == TEXTURE_A2D);
        sources[count++] = type && !layer ? emu_source_of_type(dec, &object->items[i], type, EXACT)
                                          : emu_source(dec, &object->items[i], 32, EXACT);
    }
    return count;
}

/* There are no mipmaps: each level is the texture itself. */
void emu_decode_texture(decoder *dec, const form_match *match) {
    const bool level = emu_chose(match, "level");
    const type_info *type = match->types[1];
    uint8_t form;
    uint16_t sources[8], dests[4];
    emu_expect_operands(dec, 2 + level, 2 + level);
    const operand *to = emu_elements(dec, operand_at(dec, 0), 4);
    const int count = object_operand(dec, match, 1, type, &form, sources);
    if (level) emu_source_of_type(dec, operand_at(dec, 2), type, EXACT);
    for (int i = 0; i < 4; i++) dests[i] = emu_dest(dec, &to[i], 32);
    op *o = emu_emit(dec, match->kind);
    o->flags |= FLAG_CONSTANT;
    o->vector = form;
    o->detail = type->family == 'f' ? 0 : TEXTURE_INDEXED;
    for (int i = 0; i < 4; i++) add_dest(o, dests[i]);
    for (int i = 0; i < count; i++) add_source(o, sources[i]);
}

static op *emit_surface(decoder *dec, const form_match *match, uint8_t form) {
    op *o = emu_emit(dec, match->kind);
    o->vector = form;
    o->bytes = match->types[0]->bits / 8;
    o->immediate = match->vector;
    o->detail = emu_chose(match, "clamp") ? SURFACE_CLAMPS : emu_chose(match, "zero") ? SURFACE_ZEROS : SURFACE_TRAPS;
    if (o->bytes * match->vector > 16) emu_refuse(dec, "an access moves at most 16 bytes");
    return o;
}

void emu_decode_surface_load(decoder *dec, const form_match *match) {
    const int bits = match->types[0]->bits < 16 ? 16 : match->types[0]->bits, elements = match->vector;
    uint8_t form;
    uint16_t sources[8], dests[4];
    emu_expect_operands(dec, 2, 2);
    const operand *to = emu_elements(dec, operand_at(dec, 0), elements);
    const int count = object_operand(dec, match, 1, NULL, &form, sources);
    for (int i = 0; i < elements; i++) dests[i] = emu_dest(dec, &to[i], bits);
    op *o = emit_surface(dec, match, form);
    for (int i = 0; i < elements; i++) add_dest(o, dests[i]);
    for (int i = 0; i < count; i++) add_source(o, sources[i]);
}

void emu_decode_surface_store(decoder *dec, const form_match *match) {
    const int elements = match->vector;
    uint8_t form;
    uint16_t sources[8], values[4];
    emu_expect_operands(dec, 2, 2);
    const int count = object_operand(dec, match, 0, NULL, &form, sources);
    const operand *from = emu_elements(dec, operand_at(dec, 1), elements);
    for (int i = 0; i < elements; i++) values[i] = emu_source_of_type(dec, &from[i], match->types[0], WIDER);
    op *o = emit_surface(dec, match, form);
    o->detail |= SURFACE_STORES;
    for (int i = 0; i < count; i++) add_source(o, sources[i]);
    for (int i = 0; i < elements; i++) add_source(o, values[i]);
}
