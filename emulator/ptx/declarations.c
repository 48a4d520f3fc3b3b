/* declarations.c - what names mean: scopes, registers, variables. */
#include "declarations.h"

#include "builder.h"

#include <inttypes.h>

enum { MAX_VECTOR_NAME = 64 };

/* ---- names ---- */

static uint32_t hash_name(const char *name, uint32_t length) {
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)name[i]) * 16777619u;
    return hash % HASH_SIZE;
}

/* The declaration of a name in the current scope. */
static const declaration *in_scope(const parser *p, const char *name, uint32_t length, declared what) {
    const size_t first = p->scope_depth ? p->scope_marks[p->scope_depth - 1] : 0;
    for (int i = p->heads[hash_name(name, length)]; i >= (int)first; i = p->declarations[i].next) {
        const declaration *d = &p->declarations[i];
        bool same = (d->what == DECLARED_RANGE) == (what == DECLARED_RANGE);
        if (same && d->length == length && !memcmp(d->name, name, length)) return d;
    }
    return NULL;
}

static declaration *declare(parser *p, const char *name, uint32_t length, declared what) {
    const declaration *known = in_scope(p, name, length, what);
    if (known && !known->external)
        emu_load_fail(p->load, now(p)->line, "'%.*s' is declared twice in one scope", length > 60 ? 60 : (int)length,
                      name);
    p->declarations =
        load_grow(p->load, p->declarations, p->declaration_count, &p->declaration_capacity, sizeof *p->declarations);
    uint32_t bucket = hash_name(name, length);
    p->own_names |= what != DECLARED_RANGE && length && name[0] == '%';
    memset(p->recent, 0, sizeof p->recent);
    declaration *added = &p->declarations[p->declaration_count];
    *added = (declaration){.name = name, .length = length, .what = what, .bucket = bucket, .next = p->heads[bucket]};
    p->heads[bucket] = (int)p->declaration_count++;
    return added;
}

void emu_declare_symbol(parser *p, const char *name, uint32_t length, uint32_t index) {
    declare(p, name, length, DECLARED_SYMBOL)->index = index;
}

void emu_undeclare(parser *p, size_t first) {
    memset(p->recent, 0, sizeof p->recent);
    while (p->declaration_count > first) {
        const declaration *d = &p->declarations[--p->declaration_count];
        p->heads[d->bucket] = d->next;
    }
}

/* A body does not see what the module declares after its entry. */
static bool is_hidden(const parser *p, size_t index) {
    return p->code && index >= p->code->body->visible && index < p->module_declarations;
}

static declaration *lookup_kind(const parser *p, const char *name, uint32_t length, bool range) {
    for (int i = p->heads[hash_name(name, length)]; i >= 0; i = p->declarations[i].next) {
        declaration *d = &p->declarations[i];
        if (d->length == length && (d->what == DECLARED_RANGE) == range && memcmp(d->name, name, length) == 0 &&
            !is_hidden(p, (size_t)i))
            return d;
    }
    return NULL;
}

/* The innermost range of a prefix that has a number: an inner one may be shorter than an outer one. */
static declaration *lookup_range(const parser *p, const char *prefix, uint32_t length, uint32_t number) {
    for (int i = p->heads[hash_name(prefix, length)]; i >= 0; i = p->declarations[i].next) {
        declaration *d = &p->declarations[i];
        if (d->what == DECLARED_RANGE && d->count > number && d->length == length &&
            memcmp(d->name, prefix, length) == 0 && !is_hidden(p, (size_t)i))
            return d;
    }
    return NULL;
}

/* The register of a declaration: one that occurs for the first time is added to the entry. */
static int use_register(parser *p, declaration *d, uint32_t number) {
    if (d->registers[number]) return d->registers[number];
    entry *code = p->code;
    virtual_register reg = {.prefix = d->prefix,
                            .value = d->what == DECLARED_RANGE ? number : UINT64_MAX,
                            .kind = REGISTER_PLAIN,
                            .bits = d->bits};
    if (d->bits == 1) reg.slot = (uint16_t)code->predicate_count++;
    return d->registers[number] = emu_add_register(p->load, code, now(p)->line, reg);
}

/* A register by its own name or as number of a range ".reg .b32 %r<10>"; NO_REGISTER when there is none. *range: the
 * innermost range of the prefix, NULL for a register that is not in it. */
static int find_register(parser *p, const token *name, declaration **range) {
    declaration *d = NULL;
    *range = NULL;
    /* nearly every name is that of a range: the other is looked for only where it may exist */
    if (p->own_names || name->begin[0] != '%') d = lookup_kind(p, name->begin, name->length, false);
    if (d) return d->what == DECLARED_REGISTER ? use_register(p, d, 0) : NO_REGISTER;
    uint32_t prefix = name->length, number = 0;
    while (prefix && (unsigned)(name->begin[prefix - 1] - '0') < 10) prefix--;
    if (prefix == name->length || name->length - prefix > 7) return NO_REGISTER;
    d = lookup_kind(p, name->begin, prefix, true);
    if (!d) return NO_REGISTER;
    for (uint32_t i = prefix; i < name->length; i++) number = number * 10 + (uint32_t)(name->begin[i] - '0');
    if (number < d->count) {
        *range = d;
        return use_register(p, d, number);
    }
    d = lookup_range(p, name->begin, prefix, number);
    return d ? use_register(p, d, number) : NO_REGISTER;
}

/* ---- ranges that were named lately ----
 *
 * Nearly every operand is a register, and code names the same few ranges over and over: %r, %rd, %f, %p, %rs. So the
 * declaration of the last range of each prefix is kept in a table of 16 slots, found by two characters without a hash
 * over the name. The first character is always '%', so the two that follow, or the one twice, are the whole prefix of
 * two or three bytes: where they agree, the range is the same one. It stays so until something is declared or goes out
 * of scope, which empties the table; and where names other than ranges begin with '%', none is kept. */

/* Slot of the range of a name; NULL for a name without number or with a longer prefix. */
static recent_range *recent_slot(parser *p, const token *name) {
    if (name->prefix < 2 || name->prefix > 3) return NULL;
    return &p->recent[(unsigned)(name->begin[1] + name->begin[name->prefix - 1]) % RECENT];
}

static bool names_recent(const recent_range *recent, const token *name) {
    return recent->prefix == name->prefix && recent->name[1] == name->begin[1] &&
           recent->name[name->prefix - 1] == name->begin[name->prefix - 1];
}

int emu_lookup_register(parser *p, const token *name) {
    recent_range *recent = recent_slot(p, name);
    declaration *d;
    if (!recent || !names_recent(recent, name)) {
        int found = find_register(p, name, &d);
        if (recent && d && !p->own_names) *recent = (recent_range){d->name, name->prefix, (int)(d - p->declarations)};
        return found;
    }
    d = &p->declarations[recent->declaration];
    if (name->value >= d->count) return find_register(p, name, &d);
    int reg = d->registers[name->value];
    return reg ? reg : use_register(p, d, (uint32_t)name->value);
}

/* ---- symbols and scopes ---- */

int emu_lookup_symbol(const parser *p, const token *name) {
    const declaration *d = lookup_kind(p, name->begin, name->length, false);
    return d && d->what == DECLARED_SYMBOL ? (int)d->index : -1;
}

int emu_lookup_vector(const parser *p, const token *name) {
    const declaration *d = lookup_kind(p, name->begin, name->length, false);
    return d && d->what == DECLARED_VECTOR ? (int)d->count : 0;
}

void emu_open_scope(parser *p) {
    if (p->scope_depth + 1 >= MAX_SCOPE_DEPTH) emu_load_fail(p->load, now(p)->line, "scopes nested too deep");
    p->scope_marks[p->scope_depth++] = p->declaration_count;
    if (!p->code) return;
    size_t capacity = p->scope_capacity;
    p->code->body->scope_parents =
        load_grow(p->load, p->code->body->scope_parents, (size_t)p->code->body->scope_count, &capacity, sizeof(int));
    p->scope_capacity = capacity;
    p->code->body->scope_parents[p->code->body->scope_count] = p->scope;
    p->scope = p->code->body->scope_count++;
}

void emu_close_scope(parser *p) {
    emu_undeclare(p, p->scope_marks[--p->scope_depth]);
    if (p->code) p->scope = p->code->body->scope_parents[p->scope];
}

/* ---- declarations ---- */

const type_info *emu_expect_type(parser *p) {
    if (now(p)->kind != TOKEN_DIRECTIVE || now(p)->length > 15) emu_unexpected(p, "a type");
    char name[16] = {0};
    memcpy(name, now(p)->begin + 1, now(p)->length - 1);
    const type_info *type = emu_find_type(name);
    bool for_opcodes = type && (strchr("te", type->family) || (type->bits < 8 && type->family != 'p'));
    if (!type || for_opcodes) emu_unexpected(p, "a type");
    next(p);
    return type;
}

int emu_declare_register(parser *p, const char *name, uint32_t length, uint8_t bits) {
    declaration *d = declare(p, name, length, DECLARED_REGISTER);
    d->count = 1;
    d->bits = bits < 16 ? 16 : bits;
    d->prefix = emu_load_text(p->load, name, length);
    d->registers = emu_load_alloc(p->load, sizeof *d->registers);
    return use_register(p, d, 0);
}

/* ".reg .v2 .f32 v": the registers v.x and v.y, and v for both. */
static void declare_elements(parser *p, const char *name, uint32_t length, int elements, const type_info *type) {
    declare(p, name, length, DECLARED_VECTOR)->count = (uint32_t)elements;
    for (int i = 0; i < elements; i++) {
        char text[MAX_VECTOR_NAME];
        snprintf(text, sizeof text, "%.*s.%c", (int)length, name, "xyzw"[i]);
        const char *element = emu_load_text(p->load, text, length + 2);
        emu_declare_register(p, element, length + 2, (uint8_t)type->bits);
    }
}

/* ".reg .v2 .f32 v<3>": the vectors v0, v1 and v2. */
static void declare_vectors(parser *p, const token *name, uint32_t count, int elements, const type_info *type) {
    for (uint32_t i = 0; i < count; i++) {
        char text[MAX_VECTOR_NAME];
        const int length = snprintf(text, sizeof text, "%.*s%u", (int)name->length, name->begin, i);
        declare_elements(p, emu_load_text(p->load, text, (uint32_t)length), (uint32_t)length, elements, type);
    }
}

void emu_parse_reg(parser *p) {
    const int elements = token_is(now(p), ".v2") ? 2 : token_is(now(p), ".v4") ? 4 : 0;
    if (elements) next(p);
    const type_info *type = emu_expect_type(p);
    if (elements && type->bits == 1) emu_load_fail(p->load, now(p)->line, "predicates have no vectors");
    do {
        token name = emu_expect_name(p, "a register name");
        uint32_t count = elements ? (uint32_t)elements : 1;
        const bool range = accept(p, "<");
        if (range) {
            count *= emu_expect_small(p, 60000, "the number of registers");
            emu_expect(p, ">");
        }
        p->declared_registers += count;
        if (p->declared_registers > 60000) emu_load_fail(p->load, name.line, "more than 60000 registers in one entry");
        if (elements && name.length > MAX_VECTOR_NAME - 9)
            emu_load_fail(p->load, name.line, "the name of a vector is too long");
        if (elements && range)
            declare_vectors(p, &name, count / (uint32_t)elements, elements, type);
        else if (elements)
            declare_elements(p, name.begin, name.length, elements, type);
        if (elements) continue;
        declaration *d = declare(p, name.begin, name.length, range ? DECLARED_RANGE : DECLARED_REGISTER);
        d->count = count;
        d->bits = type->bits < 16 && type->bits > 1 ? 16 : type->bits;
        d->prefix = emu_load_text(p->load, name.begin, name.length);
        d->registers = emu_load_alloc(p->load, count * sizeof *d->registers);
    } while (accept(p, ","));
    emu_expect(p, ";");
}

uint32_t emu_add_symbol(parser *p, const token *name, state_space space, uint32_t offset, uint64_t bytes) {
    emu_module *module = p->module;
    module->symbols =
        load_grow(p->load, module->symbols, module->symbol_count, &p->symbol_capacity, sizeof *module->symbols);
    uint32_t index = (uint32_t)module->symbol_count++;
    module->symbols[index] = (symbol){
        .name = emu_load_text(p->load, name->begin, name->length), .space = space, .offset = offset, .bytes = bytes};
    emu_declare_symbol(p, name->begin, name->length, index);
    return index;
}

uint32_t emu_align_up(uint32_t value, uint32_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

uint32_t emu_expect_alignment(parser *p) {
    int line = now(p)->line;
    uint32_t alignment = emu_expect_small(p, 1 << 16, "the alignment");
    if (!alignment || (alignment & (alignment - 1)))
        emu_load_fail(p->load, line, "the alignment is %" PRIu32 " where a power of two is needed", alignment);
    return alignment;
}

/* The address of a function or a variable as an initial value: "name", "name+4", "generic(name)+4". */
static uint64_t parse_initial_address(parser *p) {
    bool generic = accept(p, "generic");
    if (generic) emu_expect(p, "(");
    token name = emu_expect_name(p, "a variable");
    int index = emu_lookup_symbol(p, &name);
    const symbol *which = index >= 0 ? &p->module->symbols[index] : NULL;
    if (which && which->space == SPACE_FUNCTION)
        p->module->functions[which->offset].in_data = true;
    else if (!which || (which->space != SPACE_GLOBAL && which->space != SPACE_CONST))
        emu_load_fail(p->load, name.line, "'%.*s' is not a variable whose address an initial value can be",
                      shown_length(&name), name.begin);
    if (generic) emu_expect(p, ")");
    uint64_t value = emu_symbol_address(p->module, which);
    if (generic && which->space == SPACE_CONST) value += CONST_WINDOW;
    for (bool minus; (minus = is_mark(now(p), '-')) || is_mark(now(p), '+');) {
        next(p);
        uint64_t distance = emu_expect_integer(p);
        value += minus ? 0 - distance : distance;
    }
    return value;
}

/* One number of an initializer. "0xff00(name)" is what the mask leaves of an address, at the bottom of the element. */
static uint64_t parse_initial_value(parser *p, const type_info *type) {
    bool negative = accept(p, "-");
    if (!negative && now(p)->kind == TOKEN_NAME) return parse_initial_address(p);
    const token number = *now(p);
    if (number.kind != TOKEN_INTEGER && number.kind != TOKEN_FLOAT32 && number.kind != TOKEN_FLOAT64)
        emu_unexpected(p, "a number or a variable");
    next(p);
    if (!negative && number.kind == TOKEN_INTEGER && number.value && accept(p, "(")) {
        uint64_t address = parse_initial_address(p);
        emu_expect(p, ")");
        return (address & number.value) >> __builtin_ctzll(number.value);
    }
    if (number.kind == TOKEN_FLOAT32) return number.value ^ (negative ? 0x80000000u : 0);
    if (number.kind == TOKEN_FLOAT64) {
        double value;
        memcpy(&value, &number.value, sizeof value);
        float narrow = (float)(negative ? -value : value);
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        return type->bits == 32 ? bits : number.value ^ (negative ? 1ull << 63 : 0);
    }
    return negative ? 0 - number.value : number.value;
}

/* Initial bytes of a variable: numbers and floats of its type, nested braces flattened. */
static void parse_initialiser(parser *p, const type_info *type, uint8_t *out, uint64_t bytes) {
    uint64_t at = 0;
    int depth = 0;
    uint32_t size = type->bits / 8;
    do {
        while (accept(p, "{")) depth++;
        uint64_t value = parse_initial_value(p, type);
        if (at + size > bytes) emu_load_fail(p->load, now(p)->line, "more initial values than the variable holds");
        if (out) memcpy(out + at, &value, size > 8 ? 8 : size);
        at += size;
        while (depth && accept(p, "}")) depth--;
    } while (accept(p, ","));
    if (depth) emu_unexpected(p, "'}'");
}

static uint32_t place_variable(parser *p, uint32_t *used, uint32_t alignment, uint64_t bytes, int line) {
    if (bytes > (1u << 28)) emu_load_fail(p->load, line, "a variable of %" PRIu64 " bytes is too big", bytes);
    uint32_t offset = emu_align_up(*used, alignment);
    if (offset + bytes > (1u << 29)) emu_load_fail(p->load, line, "the variables take more than 512 MiB");
    *used = offset + (uint32_t)bytes;
    return offset;
}

/* True if a definition takes the bytes that an external declaration of the name has: *offset. */
static bool is_declared_shared(const parser *p, const token *name, uint32_t alignment, uint64_t bytes,
                               uint32_t *offset) {
    const declaration *known = in_scope(p, name->begin, name->length, DECLARED_SYMBOL);
    if (!known || !known->external || known->what != DECLARED_SYMBOL) return false;
    const symbol *before = &p->module->symbols[known->index];
    *offset = before->offset;
    return before->space == SPACE_SHARED && before->bytes && before->bytes >= bytes && !(*offset % alignment);
}

/* .global .align 4 .b8 name[16] = {...}; and its likes for .const .shared .local .param */
void emu_parse_variable(parser *p, state_space space, bool external) {
    uint32_t alignment = 0;
    if (accept(p, ".attribute")) emu_load_fail(p->load, now(p)->line, "variable attributes are not supported");
    if (accept(p, ".align")) alignment = emu_expect_alignment(p);
    if (accept(p, ".texref") || accept(p, ".surfref") || accept(p, ".samplerref")) {
        p->references = true; /* of no use: instructions take objects alone */
        while (now(p)->kind != TOKEN_END && !token_is(now(p), ";")) next(p);
        emu_expect(p, ";");
        return;
    }
    const type_info *type = emu_expect_type(p);
    if (type->bits < 8) emu_load_fail(p->load, now(p)->line, "a variable cannot be of type .pred");
    uint32_t element = type->bits / 8;
    if (!alignment) alignment = element;
    token name = emu_expect_name(p, "a variable name");
    uint64_t bytes = element;
    bool unsized = false;
    while (accept(p, "[")) {
        unsized = token_is(now(p), "]");
        if (!unsized) bytes *= emu_expect_small(p, 1u << 28, "an array length");
        if (bytes > (1u << 28))
            emu_load_fail(p->load, name.line, "variable '%.*s' is too big", shown_length(&name), name.begin);
        emu_expect(p, "]");
    }
    if (unsized && space != SPACE_SHARED && !token_is(now(p), "=")) {
        if (!external) emu_load_fail(p->load, name.line, "only shared memory may have an array without length");
    }
    emu_module *module = p->module;
    uint32_t offset;
    if (space == SPACE_SHARED) {
        uint32_t *used = p->code ? &p->code->shared_bytes : &p->module_shared_bytes;
        /* dynamic shared memory follows all static variables: its offset is set when the entry is complete. A variable
         * with a size is static, though it is external: ptxas ignores .extern where it finds no definition */
        unsized |= !bytes;
        offset = UINT32_MAX;
        if (!unsized && !is_declared_shared(p, &name, alignment, bytes, &offset))
            offset = place_variable(p, used, alignment, bytes, name.line);
        if (unsized) bytes = 0;
        if (unsized && alignment > p->dynamic_alignment) p->dynamic_alignment = alignment;
    } else if (space == SPACE_LOCAL || space == SPACE_PARAM) {
        if (!p->code)
            emu_load_fail(p->load, name.line, "a .local or .param variable outside of a function is not supported");
        offset = place_variable(p, &p->code->local_bytes, alignment, bytes, name.line);
        space = SPACE_LOCAL;
    } else {
        offset = place_variable(p, &module->variable_bytes, alignment, bytes, name.line);
        if (module->variable_bytes > p->variable_capacity) {
            size_t larger = emu_align_up(module->variable_bytes * 2, 4096);
            uint8_t *copy = emu_load_alloc(p->load, larger);
            if (p->variable_capacity) memcpy(copy, module->variables, p->variable_capacity);
            module->variables = copy;
            p->variable_capacity = larger;
        }
    }
    uint32_t index = emu_add_symbol(p, &name, space, offset, bytes);
    module->symbols[index].type = type->name;
    module->symbols[index].buffer = module->buffer;
    p->declarations[p->declaration_count - 1].external = external;
    if (accept(p, "=")) {
        if (space != SPACE_GLOBAL && space != SPACE_CONST)
            emu_load_fail(p->load, name.line, "only .global and .const variables have initial values");
        parse_initialiser(p, type, module->variables + offset, bytes);
    }
    emu_expect(p, ";");
}
