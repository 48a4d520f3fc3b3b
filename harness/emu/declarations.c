/* declarations.c - what names mean: scopes, registers, variables; and where instructions come from: .file and .loc. */
#include "parser.h"

/* ---- names ---- */

uint32_t hash_name(const char *name, uint32_t length) {
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)name[i]) * 16777619u;
    return hash % HASH_SIZE;
}

void declare(parser *p, const char *name, uint32_t length, declared what, uint32_t index, uint32_t count) {
    p->declarations =
        load_grow(p->load, p->declarations, p->declaration_count, &p->declaration_capacity, sizeof *p->declarations);
    uint32_t bucket = hash_name(name, length);
    p->own_names |= what != DECLARED_RANGE && length && name[0] == '%';
    p->declarations[p->declaration_count] = (declaration){name, length, what, index, count, bucket, p->heads[bucket]};
    p->heads[bucket] = (int)p->declaration_count++;
}

void undeclare(parser *p, size_t first) {
    while (p->declaration_count > first) {
        const declaration *d = &p->declarations[--p->declaration_count];
        p->heads[d->bucket] = d->next;
    }
}

/* A body does not see what the module declares after its entry. */
static bool is_hidden(const parser *p, size_t index) {
    return p->code && index >= p->code->visible && index < p->module_declarations;
}

static const declaration *lookup_kind(const parser *p, const char *name, uint32_t length, bool range) {
    for (int i = p->heads[hash_name(name, length)]; i >= 0; i = p->declarations[i].next) {
        const declaration *d = &p->declarations[i];
        if (d->length == length && (d->what == DECLARED_RANGE) == range && memcmp(d->name, name, length) == 0 &&
            !is_hidden(p, (size_t)i))
            return d;
    }
    return NULL;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* A register by its own name or as number of a range ".reg .b32 %r<10>"; NO_REGISTER when there is none. */
int lookup_register(const parser *p, const token *name) {
    const declaration *d = NULL;
    /* nearly every name is that of a range: the other is looked for only where it may exist */
    if (p->own_names || name->begin[0] != '%') d = lookup_kind(p, name->begin, name->length, false);
    if (d) return d->what == DECLARED_REGISTER ? (int)d->index : NO_REGISTER;
    uint32_t prefix = name->length, number = 0;
    while (prefix && is_digit(name->begin[prefix - 1])) prefix--;
    if (prefix == name->length || name->length - prefix > 7) return NO_REGISTER;
    d = lookup_kind(p, name->begin, prefix, true);
    if (!d) return NO_REGISTER;
    for (uint32_t i = prefix; i < name->length; i++) number = number * 10 + (uint32_t)(name->begin[i] - '0');
    return number < d->count ? (int)(d->index + number) : NO_REGISTER;
}

int lookup_symbol(const parser *p, const token *name) {
    const declaration *d = lookup_kind(p, name->begin, name->length, false);
    return d && d->what == DECLARED_SYMBOL ? (int)d->index : -1;
}

void open_scope(parser *p) {
    if (p->scope_depth + 1 >= MAX_SCOPE_DEPTH) load_fail(p->load, now(p)->line, "scopes nested too deep");
    p->scope_marks[p->scope_depth++] = p->declaration_count;
    if (!p->code) return;
    size_t capacity = p->scope_capacity;
    p->code->scope_parents =
        load_grow(p->load, p->code->scope_parents, (size_t)p->code->scope_count, &capacity, sizeof(int));
    p->scope_capacity = capacity;
    p->code->scope_parents[p->code->scope_count] = p->scope;
    p->scope = p->code->scope_count++;
}

void close_scope(parser *p) {
    undeclare(p, p->scope_marks[--p->scope_depth]);
    if (p->code) p->scope = p->code->scope_parents[p->scope];
}

/* ---- declarations ---- */

const type_info *expect_type(parser *p) {
    if (now(p)->kind != TOKEN_DIRECTIVE || now(p)->length > 15) unexpected(p, "a type");
    char name[16] = {0};
    memcpy(name, now(p)->begin + 1, now(p)->length - 1);
    const type_info *type = find_type(name);
    if (!type) unexpected(p, "a type");
    next(p);
    return type;
}

void parse_reg(parser *p) {
    const type_info *type = expect_type(p);
    entry *code = p->code;
    do {
        token name = expect_name(p, "a register name");
        uint32_t count = 1;
        bool range = accept(p, "<");
        if (range) {
            count = expect_small(p, 60000, "the number of registers");
            expect(p, ">");
        }
        if (code->register_count + count > 60000)
            load_fail(p->load, name.line, "more than 60000 registers in one entry");
        declare(p, name.begin, name.length, range ? DECLARED_RANGE : DECLARED_REGISTER, (uint32_t)code->register_count,
                count);
        const char *prefix = load_text(p->load, name.begin, name.length);
        for (uint32_t i = 0; i < count; i++) {
            code->registers = load_grow(p->load, code->registers, code->register_count, &p->register_capacity,
                                        sizeof *code->registers);
            code->registers[code->register_count++] =
                (virtual_register){.prefix = prefix,
                                   .value = range ? i : UINT64_MAX,
                                   .kind = REGISTER_PLAIN,
                                   .bits = type->bits < 16 && type->bits > 1 ? 16 : type->bits,
                                   .tracked = -1};
        }
    } while (accept(p, ","));
    expect(p, ";");
}

uint32_t add_symbol(parser *p, const token *name, state_space space, uint32_t offset, uint64_t bytes) {
    emu_module *module = p->module;
    module->symbols =
        load_grow(p->load, module->symbols, module->symbol_count, &p->symbol_capacity, sizeof *module->symbols);
    uint32_t index = (uint32_t)module->symbol_count++;
    module->symbols[index] = (symbol){
        .name = load_text(p->load, name->begin, name->length), .space = space, .offset = offset, .bytes = bytes};
    declare(p, name->begin, name->length, DECLARED_SYMBOL, index, 1);
    return index;
}

uint32_t align_up(uint32_t value, uint32_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

/* Initial bytes of a variable: numbers and floats of its type, nested braces flattened. */
static void parse_initialiser(parser *p, const type_info *type, uint8_t *out, uint64_t bytes) {
    uint64_t at = 0;
    int depth = 0;
    uint32_t size = type->bits / 8;
    do {
        while (accept(p, "{")) depth++;
        bool negative = accept(p, "-");
        uint64_t value = now(p)->value;
        if (now(p)->kind != TOKEN_INTEGER && now(p)->kind != TOKEN_FLOAT32 && now(p)->kind != TOKEN_FLOAT64) {
            unexpected(p, "a number (addresses as initial values are not supported)");
        }
        if (negative) value = 0 - value;
        next(p);
        if (at + size > bytes) load_fail(p->load, now(p)->line, "more initial values than the variable holds");
        if (out) memcpy(out + at, &value, size > 8 ? 8 : size);
        at += size;
        while (depth && accept(p, "}")) depth--;
    } while (accept(p, ","));
    if (depth) unexpected(p, "'}'");
}

static uint32_t place_variable(parser *p, uint32_t *used, uint32_t alignment, uint64_t bytes, int line) {
    if (bytes > (1u << 28)) load_fail(p->load, line, "a variable of %llu bytes is too big", (unsigned long long)bytes);
    uint32_t offset = align_up(*used, alignment);
    if (offset + bytes > (1u << 29)) load_fail(p->load, line, "the variables take more than 512 MiB");
    *used = offset + (uint32_t)bytes;
    return offset;
}

/* .global .align 4 .b8 name[16] = {...}; and its likes for .const .shared .local .param */
void parse_variable(parser *p, state_space space, bool external) {
    uint32_t alignment = 0;
    if (accept(p, ".attribute")) load_fail(p->load, now(p)->line, "variable attributes are not supported");
    if (accept(p, ".align")) alignment = expect_small(p, 1 << 16, "the alignment");
    const type_info *type = expect_type(p);
    if (type->bits < 8) load_fail(p->load, now(p)->line, "a variable cannot be of type .pred");
    uint32_t element = type->bits / 8;
    if (!alignment) alignment = element;
    token name = expect_name(p, "a variable name");
    uint64_t bytes = element;
    bool unsized = false;
    while (accept(p, "[")) {
        unsized = token_is(now(p), "]");
        if (!unsized) bytes *= expect_small(p, 1u << 28, "an array length");
        if (bytes > (1u << 28))
            load_fail(p->load, name.line, "variable '%.*s' is too big", shown_length(&name), name.begin);
        expect(p, "]");
    }
    if (unsized && space != SPACE_SHARED && !token_is(now(p), "=")) {
        if (!external) load_fail(p->load, name.line, "only shared memory may have an array without length");
    }
    emu_module *module = p->module;
    uint32_t offset;
    if (space == SPACE_SHARED) {
        uint32_t *used = p->code ? &p->code->shared_bytes : &p->module_shared_bytes;
        /* dynamic shared memory follows all static variables: its offset is set when the entry is complete */
        offset = external || unsized ? UINT32_MAX : place_variable(p, used, alignment, bytes, name.line);
        if (external || unsized) bytes = 0;
    } else if (space == SPACE_LOCAL || space == SPACE_PARAM) {
        if (!p->code)
            load_fail(p->load, name.line, "a .local or .param variable outside of a function is not supported");
        offset = place_variable(p, &p->code->local_bytes, alignment, bytes, name.line);
        space = SPACE_LOCAL;
    } else {
        offset = place_variable(p, &module->variable_bytes, alignment, bytes, name.line);
        if (module->variable_bytes > p->variable_capacity) {
            size_t larger = align_up(module->variable_bytes * 2, 4096);
            uint8_t *copy = load_alloc(p->load, larger);
            if (p->variable_capacity) memcpy(copy, module->variables, p->variable_capacity);
            module->variables = copy;
            p->variable_capacity = larger;
        }
    }
    uint32_t index = add_symbol(p, &name, space, offset, bytes);
    (void)index;
    if (accept(p, "=")) {
        if (space != SPACE_GLOBAL && space != SPACE_CONST)
            load_fail(p->load, name.line, "only .global and .const variables have initial values");
        parse_initialiser(p, type, module->variables + offset, bytes);
    }
    expect(p, ";");
}

/* ---- line information ---- */

void parse_file(parser *p) {
    uint32_t index = expect_small(p, 255, "the file number");
    if (now(p)->kind != TOKEN_STRING) unexpected(p, "a file name");
    p->files[index] = load_text(p->load, now(p)->begin, now(p)->length);
    next(p);
    while (accept(p, ",")) expect_integer(p);
}

static int find_location(const parser *p, const char *file, int line, int column) {
    for (size_t i = p->code->location_count; i-- > 0 && p->code->location_count - i < 400;) {
        const location *at = &p->code->locations[i];
        if (at->file == file && at->line == line && at->column == column) return (int)i;
    }
    return -1;
}

static int add_location(parser *p, uint32_t file, int line, int column, int parent) {
    entry *code = p->code;
    /* a .file may stand in the body too: the number stands in until its end */
    const char *stand_in = (const char *)(uintptr_t)(file + 1);
    code->locations =
        load_grow(p->load, code->locations, code->location_count, &p->location_capacity, sizeof *code->locations);
    code->locations[code->location_count] = (location){stand_in, line, column, parent};
    return (int)code->location_count++;
}

void parse_loc(parser *p) {
    uint32_t file = expect_small(p, 255, "the file number");
    int line = (int)expect_small(p, 1 << 28, "the line"), column = (int)expect_small(p, 1 << 28, "the column");
    int parent = -1;
    while (accept(p, ",")) {
        if (accept(p, "function_name")) {
            expect_name(p, "a label");
            if (accept(p, "+")) expect_integer(p);
        } else if (accept(p, "inlined_at")) {
            uint32_t caller = expect_small(p, 255, "the file number");
            int caller_line = (int)expect_small(p, 1 << 28, "the line");
            int caller_column = (int)expect_small(p, 1 << 28, "the column");
            parent = find_location(p, (const char *)(uintptr_t)(caller + 1), caller_line, caller_column);
            if (parent < 0) parent = add_location(p, caller, caller_line, caller_column, -1);
        } else {
            unexpected(p, "function_name or inlined_at");
        }
    }
    if (line) p->current_location = add_location(p, file, line, column, parent);
}

void name_files(parser *p) {
    for (size_t i = 0; i < p->code->location_count; i++) {
        location *at = &p->code->locations[i];
        const char *name = p->files[(uintptr_t)at->file - 1];
        at->file = name ? name : "";
    }
}
