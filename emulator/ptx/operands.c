/* operands.c - registers, special registers, numbers, addresses, vectors and lists. */
#include "operands.h"

#include "declarations.h"
#include "forms.h"

static bool parse_special(parser *p, const token *name, operand *out) {
    char text[40];
    token part = {0};
    if (name->length > 30) return false;
    if (name->prefix == 7 && !memcmp(name->begin, "%envreg", 7) && name->value < 32) {
        /* The driver's: a cooperative launch has the address of its barrier in 1 (high half) and 2; no other is used.
         */
        const int64_t value = name->value == 1 ? GRID_BARRIER >> 32 : name->value == 2 ? (uint32_t)GRID_BARRIER : 0;
        *out =
            (operand){.kind = OPERAND_INTEGER, .value = value, .reg = NO_REGISTER, .second = NO_REGISTER, .symbol = -1};
        return true;
    }
    if (now(p)->kind == TOKEN_DIRECTIVE && now(p)->length == 2 && now(p)->begin == name->begin + name->length)
        part = *now(p);
    snprintf(text, sizeof text, "%.*s%.*s", (int)name->length, name->begin, (int)part.length,
             part.begin ? part.begin : "");
    for (int i = 0; i < SPECIAL_COUNT; i++) {
        if (strcmp(text, emu_special_name((special_register)i))) continue;
        *out = (operand){.kind = OPERAND_SPECIAL, .value = i, .reg = NO_REGISTER, .second = NO_REGISTER, .symbol = -1};
        emu_expect_target(p->load, text, name->line);
        if (part.length) next(p);
        return true;
    }
    return false;
}

static int64_t parse_offset(parser *p) {
    int64_t offset = 0;
    for (;;) {
        bool minus = is_mark(now(p), '-');
        if (!minus && !is_mark(now(p), '+')) return offset;
        next(p);
        if (!minus) minus = accept(p, "-");
        uint64_t value = emu_expect_integer(p);
        offset = (int64_t)((uint64_t)offset + (minus ? 0 - value : value));
    }
}

/* The other predicate of "d|%p". */
static void parse_second(parser *p, operand *out) {
    next(p);
    token second = emu_expect_name(p, "a predicate");
    out->second = emu_lookup_register(p, &second);
    if (token_is(&second, "_") || out->kind == OPERAND_SINK) return;
    if (out->second == NO_REGISTER)
        emu_load_fail(p->load, second.line, "unknown register '%.*s'", shown_length(&second), second.begin);
}

/* "v.x", an element of a vector of registers. */
static bool parse_element(parser *p, const token *name, operand *out) {
    if (now(p)->kind != TOKEN_DIRECTIVE || now(p)->length != 2 || now(p)->begin != name->begin + name->length)
        return false;
    const token element = {.kind = TOKEN_NAME, .line = name->line, .begin = name->begin, .length = name->length + 2};
    out->reg = emu_lookup_register(p, &element);
    if (out->reg == NO_REGISTER) return false;
    out->kind = OPERAND_REGISTER;
    next(p);
    return true;
}

/* "v", a vector of registers: as "{v.x, v.y}". */
static bool parse_vector(parser *p, const token *name, operand *out) {
    const int elements = emu_lookup_vector(p, name);
    if (!elements) return false;
    if (p->item_count && out == &p->items[p->item_count - 1])
        emu_load_fail(p->load, name->line, "the vector '%.*s' is in a list: name its elements", shown_length(name),
                      name->begin);
    out->kind = OPERAND_VECTOR;
    out->items = &p->items[p->item_count];
    out->count = (uint8_t)elements;
    for (int i = 0; i < elements; i++) {
        char text[64];
        snprintf(text, sizeof text, "%.*s.%c", (int)name->length, name->begin, "xyzw"[i]);
        const token element = {.kind = TOKEN_NAME, .line = name->line, .begin = text, .length = name->length + 2};
        p->items[p->item_count++] = (operand){
            .kind = OPERAND_REGISTER, .reg = emu_lookup_register(p, &element), .second = NO_REGISTER, .symbol = -1};
    }
    return true;
}

/* "a[2]": the address of an element of an array. */
static int64_t parse_index(parser *p, const symbol *array) {
    if (!is_mark(now(p), '[') || !array->type) return 0;
    next(p);
    const uint64_t index = emu_expect_small(p, 1u << 28, "an index");
    expect_mark(p, ']');
    return (int64_t)(index * (emu_find_type(array->type)->bits / 8));
}

static void parse_other_name(parser *p, operand *out) {
    token name = *now(p);
    next(p);
    if (parse_element(p, &name, out) || parse_vector(p, &name, out)) return;
    out->symbol = emu_lookup_symbol(p, &name);
    if (out->symbol >= 0) {
        out->kind = OPERAND_SYMBOL;
        out->value = parse_index(p, &p->module->symbols[out->symbol]);
        out->value += parse_offset(p);
        return;
    }
    if (token_is(&name, "_")) {
        out->kind = OPERAND_SINK;
        if (is_mark(now(p), '|')) parse_second(p, out);
        return;
    }
    if (token_is(&name, "WARP_SZ")) {
        out->kind = OPERAND_INTEGER;
        out->value = LANES;
        return;
    }
    if (parse_special(p, &name, out)) return;
    if (name.begin[0] == '%')
        emu_load_fail(p->load, name.line, "unknown register '%.*s'", shown_length(&name), name.begin);
    out->kind = OPERAND_LABEL;
    out->name = name.begin;
    out->length = name.length;
    out->value = p->scope;
}

/* Most operands are registers with a comma right after them: no token is made of that one. */
static bool parse_named(parser *p, operand *out) {
    if (now(p)->kind != TOKEN_NAME) emu_unexpected(p, "an operand");
    out->reg = emu_lookup_register(p, now(p));
    if (out->reg == NO_REGISTER) {
        parse_other_name(p, out);
        return false;
    }
    out->kind = OPERAND_REGISTER;
    bool comma = lexer_take_comma(&p->lex);
    next(p);
    if (!comma && is_mark(now(p), '|')) parse_second(p, out);
    return comma;
}

/* The items are contiguous: none of them may be a list itself. */
static void parse_items(parser *p, operand *out, char close, int depth) {
    if (depth) emu_load_fail(p->load, now(p)->line, "operands nested too deep");
    next(p);
    out->items = &p->items[p->item_count];
    for (bool comma = true; !is_mark(now(p), close) || (out->count && comma);) {
        if (out->count == MAX_ITEMS) emu_load_fail(p->load, now(p)->line, "more than %d elements in a list", MAX_ITEMS);
        if (!comma) {
            if (!is_mark(now(p), ',')) emu_unexpected_mark(p, close);
            next(p);
        }
        out->count++;
        comma = emu_parse_operand(p, &p->items[p->item_count++], depth + 1);
    }
    next(p);
}

static void parse_address(parser *p, operand *out, int depth) {
    out->kind = OPERAND_ADDRESS;
    next(p);
    if (now(p)->kind == TOKEN_NAME) {
        token name = *now(p);
        out->reg = emu_lookup_register(p, &name);
        next(p);
        if (out->reg == NO_REGISTER) out->symbol = emu_lookup_symbol(p, &name);
        if (out->reg == NO_REGISTER && out->symbol < 0) {
            emu_load_fail(p->load, name.line, "unknown name '%.*s' in an address%s", shown_length(&name), name.begin,
                          p->references ? ": textures and surfaces by name are not supported, objects are" : "");
        }
        out->value = parse_offset(p);
    } else {
        bool minus = accept(p, "-");
        out->value = (int64_t)emu_expect_integer(p);
        if (minus) out->value = -out->value;
    }
    if (!depth && accept(p, ",")) { /* coordinates of a tensor */
        if (!is_mark(now(p), '{')) emu_unexpected_mark(p, '{');
        parse_items(p, out, '}', depth);
    }
    expect_mark(p, ']');
}

bool emu_parse_operand(parser *p, operand *out, int depth) {
    *out = (operand){.reg = NO_REGISTER, .second = NO_REGISTER, .symbol = -1};
    const token *tok = now(p);
    bool comma = false;
    if (tok->kind == TOKEN_NAME) {
        comma = parse_named(p, out);
    } else if (is_mark(tok, '[')) {
        parse_address(p, out, depth);
    } else if (is_mark(tok, '{')) {
        out->kind = OPERAND_VECTOR;
        parse_items(p, out, '}', depth);
    } else if (is_mark(tok, '(')) {
        out->kind = OPERAND_LIST;
        parse_items(p, out, ')', depth);
    } else if (is_mark(tok, '!')) {
        next(p);
        comma = parse_named(p, out);
        out->negated = true;
    } else {
        bool minus = accept(p, "-");
        if (tok->kind != TOKEN_INTEGER && tok->kind != TOKEN_FLOAT32 && tok->kind != TOKEN_FLOAT64)
            emu_unexpected(p, "an operand");
        out->kind = tok->kind == TOKEN_INTEGER   ? OPERAND_INTEGER
                    : tok->kind == TOKEN_FLOAT32 ? OPERAND_FLOAT32
                                                 : OPERAND_FLOAT64;
        out->value = (int64_t)tok->value;
        if (minus && out->kind == OPERAND_INTEGER) out->value = (int64_t)(0 - tok->value);
        if (minus && out->kind != OPERAND_INTEGER) {
            out->value ^= out->kind == OPERAND_FLOAT32 ? (int64_t)0x80000000 : INT64_MIN;
        }
        next(p);
    }
    return comma;
}
