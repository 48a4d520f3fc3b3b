/* parser.c - tokens to entries: declarations, scopes, instructions with resolved registers and symbols.
 *
 * Names follow PTX scoping: braces open a scope, inner declarations hide outer ones, labels are found from where they
 * are used outwards. What is not understood is refused by line.
 */
#include "machine.h"

#include <ctype.h>
#include <stdlib.h>

enum { HASH_SIZE = 4096, OPCODE_HASH = 256, MAX_SCOPE_DEPTH = 64, MAX_ITEMS = 32 };

typedef enum declared { DECLARED_REGISTER, DECLARED_RANGE, DECLARED_SYMBOL } declared;

typedef struct declaration {
    const char *name;
    uint32_t length;
    declared what;
    uint32_t index, count; /* first register of a range and how many; index of a symbol */
    uint32_t bucket;
    int next;
} declaration;

typedef struct parser {
    lexer lex;
    loader *load;
    emu_module *module;
    entry *code; /* the entry being read, or NULL at module scope */
    declaration *declarations;
    size_t declaration_count, declaration_capacity;
    int heads[HASH_SIZE];
    opcode *opcodes[OPCODE_HASH];
    size_t scope_marks[MAX_SCOPE_DEPTH];
    int scope_depth, scope;
    size_t entry_capacity, symbol_capacity, location_capacity, instruction_capacity, label_capacity, register_capacity,
        scope_capacity, variable_capacity;
    const char *files[256];
    int current_location;
    uint32_t module_shared_bytes;
} parser;

static token *now(parser *p) {
    return &p->lex.now;
}
static void next(parser *p) {
    lexer_next(&p->lex);
}

static int shown_length(const token *tok) {
    return tok->length > 60 ? 60 : (int)tok->length;
}

_Noreturn static void unexpected(parser *p, const char *wanted) {
    if (now(p)->kind == TOKEN_END) load_fail(p->load, now(p)->line, "the text ends where %s was expected", wanted);
    load_fail(p->load, now(p)->line, "'%.*s' where %s was expected", shown_length(now(p)), now(p)->begin, wanted);
}

static bool accept(parser *p, const char *text) {
    if (!token_is(now(p), text)) return false;
    next(p);
    return true;
}

static void expect(parser *p, const char *text) {
    if (!accept(p, text)) {
        char wanted[32];
        snprintf(wanted, sizeof wanted, "'%s'", text);
        unexpected(p, wanted);
    }
}

static uint64_t expect_integer(parser *p) {
    if (now(p)->kind != TOKEN_INTEGER) unexpected(p, "a number");
    uint64_t value = now(p)->value;
    next(p);
    return value;
}

static uint32_t expect_small(parser *p, uint64_t limit, const char *what) {
    int line = now(p)->line;
    uint64_t value = expect_integer(p);
    if (value > limit)
        load_fail(p->load, line, "%s is %llu, above %llu", what, (unsigned long long)value, (unsigned long long)limit);
    return (uint32_t)value;
}

static token expect_name(parser *p, const char *what) {
    if (now(p)->kind != TOKEN_NAME) unexpected(p, what);
    token name = *now(p);
    next(p);
    return name;
}

/* ---- names ---- */

static uint32_t hash_name(const char *name, uint32_t length) {
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)name[i]) * 16777619u;
    return hash % HASH_SIZE;
}

static void declare(parser *p, const char *name, uint32_t length, declared what, uint32_t index, uint32_t count) {
    p->declarations =
        load_grow(p->load, p->declarations, p->declaration_count, &p->declaration_capacity, sizeof *p->declarations);
    uint32_t bucket = hash_name(name, length);
    p->declarations[p->declaration_count] = (declaration){name, length, what, index, count, bucket, p->heads[bucket]};
    p->heads[bucket] = (int)p->declaration_count++;
}

static const declaration *lookup_kind(const parser *p, const char *name, uint32_t length, bool range) {
    for (int i = p->heads[hash_name(name, length)]; i >= 0; i = p->declarations[i].next) {
        const declaration *d = &p->declarations[i];
        if (d->length == length && (d->what == DECLARED_RANGE) == range && memcmp(d->name, name, length) == 0) return d;
    }
    return NULL;
}

/* A register by its own name or as number of a range ".reg .b32 %r<10>"; NO_REGISTER when there is none. */
static int lookup_register(const parser *p, const token *name) {
    const declaration *d = lookup_kind(p, name->begin, name->length, false);
    if (d) return d->what == DECLARED_REGISTER ? (int)d->index : NO_REGISTER;
    uint32_t digits = 0;
    while (digits < name->length && isdigit((unsigned char)name->begin[name->length - 1 - digits])) digits++;
    if (!digits || digits > 7) return NO_REGISTER;
    d = lookup_kind(p, name->begin, name->length - digits, true);
    if (!d) return NO_REGISTER;
    uint32_t number = 0;
    for (uint32_t i = name->length - digits; i < name->length; i++)
        number = number * 10 + (uint32_t)(name->begin[i] - '0');
    return number < d->count ? (int)(d->index + number) : NO_REGISTER;
}

static int lookup_symbol(const parser *p, const token *name) {
    const declaration *d = lookup_kind(p, name->begin, name->length, false);
    return d && d->what == DECLARED_SYMBOL ? (int)d->index : -1;
}

static void open_scope(parser *p) {
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

static void close_scope(parser *p) {
    size_t mark = p->scope_marks[--p->scope_depth];
    while (p->declaration_count > mark) {
        const declaration *d = &p->declarations[--p->declaration_count];
        p->heads[d->bucket] = d->next;
    }
    if (p->code) p->scope = p->code->scope_parents[p->scope];
}

/* ---- declarations ---- */

static const type_info *expect_type(parser *p) {
    if (now(p)->kind != TOKEN_DIRECTIVE || now(p)->length > 15) unexpected(p, "a type");
    char name[16] = {0};
    memcpy(name, now(p)->begin + 1, now(p)->length - 1);
    const type_info *type = find_type(name);
    if (!type) unexpected(p, "a type");
    next(p);
    return type;
}

static void parse_reg(parser *p) {
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

static uint32_t add_symbol(parser *p, const token *name, state_space space, uint32_t offset, uint64_t bytes) {
    emu_module *module = p->module;
    module->symbols =
        load_grow(p->load, module->symbols, module->symbol_count, &p->symbol_capacity, sizeof *module->symbols);
    uint32_t index = (uint32_t)module->symbol_count++;
    module->symbols[index] = (symbol){
        .name = load_text(p->load, name->begin, name->length), .space = space, .offset = offset, .bytes = bytes};
    declare(p, name->begin, name->length, DECLARED_SYMBOL, index, 1);
    return index;
}

static uint32_t align_up(uint32_t value, uint32_t alignment) {
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
static void parse_variable(parser *p, state_space space, bool external) {
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

static void parse_file(parser *p) {
    uint32_t index = expect_small(p, 255, "the file number");
    if (now(p)->kind != TOKEN_STRING) unexpected(p, "a file name");
    p->files[index] = load_text(p->load, now(p)->begin, now(p)->length);
    next(p);
    while (accept(p, ",")) expect_integer(p);
}

static int find_location(const parser *p, const char *file, int line, int column) {
    for (size_t i = p->module->location_count; i-- > 0 && p->module->location_count - i < 400;) {
        const location *at = &p->module->locations[i];
        if (at->file == file && at->line == line && at->column == column) return (int)i;
    }
    return -1;
}

static int add_location(parser *p, uint32_t file, int line, int column, int parent) {
    emu_module *module = p->module;
    /* the name comes later: .file follows the code, so the number stands in until the end */
    const char *stand_in = (const char *)(uintptr_t)(file + 1);
    module->locations =
        load_grow(p->load, module->locations, module->location_count, &p->location_capacity, sizeof *module->locations);
    module->locations[module->location_count] = (location){stand_in, line, column, parent};
    return (int)module->location_count++;
}

static void parse_loc(parser *p) {
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

static void name_files(parser *p) {
    for (size_t i = 0; i < p->module->location_count; i++) {
        location *at = &p->module->locations[i];
        const char *name = p->files[(uintptr_t)at->file - 1];
        at->file = name ? name : "";
    }
}

/* ---- operands ---- */

static const char *const special_names[SPECIAL_COUNT] = {
    "%tid.x",          "%tid.y",       "%tid.z",   "%ntid.x",      "%ntid.y",      "%ntid.z",
    "%ctaid.x",        "%ctaid.y",     "%ctaid.z", "%nctaid.x",    "%nctaid.y",    "%nctaid.z",
    "%laneid",         "%warpid",      "%nwarpid", "%lanemask_eq", "%lanemask_le", "%lanemask_lt",
    "%lanemask_ge",    "%lanemask_gt", "%smid",    "%nsmid",       "%gridid",      "%dynamic_smem_size",
    "%total_smem_size"};

static bool parse_special(parser *p, const token *name, operand *out) {
    char text[32];
    token part = {0};
    if (name->length > 20) return false;
    if (now(p)->kind == TOKEN_DIRECTIVE && now(p)->length == 2 && now(p)->begin == name->begin + name->length)
        part = *now(p);
    snprintf(text, sizeof text, "%.*s%.*s", (int)name->length, name->begin, (int)part.length,
             part.begin ? part.begin : "");
    for (int i = 0; i < SPECIAL_COUNT; i++) {
        if (strcmp(text, special_names[i])) continue;
        *out = (operand){.kind = OPERAND_SPECIAL, .value = i, .reg = NO_REGISTER, .second = NO_REGISTER, .symbol = -1};
        if (part.length) next(p);
        return true;
    }
    return false;
}

static int64_t parse_offset(parser *p) {
    int64_t offset = 0;
    for (;;) {
        bool minus = token_is(now(p), "-");
        if (!minus && !token_is(now(p), "+")) return offset;
        next(p);
        if (!minus) minus = accept(p, "-");
        uint64_t value = expect_integer(p);
        offset = (int64_t)((uint64_t)offset + (minus ? 0 - value : value));
    }
}

static void parse_named(parser *p, operand *out) {
    token name = expect_name(p, "an operand");
    out->reg = lookup_register(p, &name);
    if (out->reg != NO_REGISTER) {
        out->kind = OPERAND_REGISTER;
        if (accept(p, "|")) {
            token second = expect_name(p, "a predicate");
            out->second = lookup_register(p, &second);
            if (token_is(&second, "_")) return;
            if (out->second == NO_REGISTER)
                load_fail(p->load, second.line, "unknown register '%.*s'", shown_length(&second), second.begin);
        }
        return;
    }
    out->symbol = lookup_symbol(p, &name);
    if (out->symbol >= 0) {
        out->kind = OPERAND_SYMBOL;
        out->value = parse_offset(p);
        return;
    }
    if (token_is(&name, "_")) {
        out->kind = OPERAND_SINK;
        if (accept(p, "|")) {
            token second = expect_name(p, "a predicate");
            out->second = lookup_register(p, &second);
        }
        return;
    }
    if (token_is(&name, "WARP_SZ")) {
        out->kind = OPERAND_INTEGER;
        out->value = LANES;
        return;
    }
    if (parse_special(p, &name, out)) return;
    if (name.begin[0] == '%') load_fail(p->load, name.line, "unknown register '%.*s'", shown_length(&name), name.begin);
    out->kind = OPERAND_LABEL;
    out->name = load_text(p->load, name.begin, name.length);
    out->value = p->scope;
}

static void parse_operand(parser *p, operand *out, int depth);

static void parse_items(parser *p, operand *out, const char *close, int depth) {
    operand items[MAX_ITEMS];
    int count = 0;
    if (!accept(p, close)) {
        do {
            if (count == MAX_ITEMS) load_fail(p->load, now(p)->line, "more than %d elements in a list", MAX_ITEMS);
            parse_operand(p, &items[count++], depth + 1);
        } while (accept(p, ","));
        expect(p, close);
    }
    out->count = (uint8_t)count;
    out->items = load_alloc(p->load, (size_t)(count ? count : 1) * sizeof *items);
    if (count) memcpy(out->items, items, (size_t)count * sizeof *items);
}

static void parse_address(parser *p, operand *out) {
    out->kind = OPERAND_ADDRESS;
    if (now(p)->kind == TOKEN_NAME) {
        token name = expect_name(p, "an address");
        out->reg = lookup_register(p, &name);
        if (out->reg == NO_REGISTER) out->symbol = lookup_symbol(p, &name);
        if (out->reg == NO_REGISTER && out->symbol < 0) {
            load_fail(p->load, name.line, "unknown name '%.*s' in an address", shown_length(&name), name.begin);
        }
        out->value = parse_offset(p);
    } else {
        bool minus = accept(p, "-");
        out->value = (int64_t)expect_integer(p);
        if (minus) out->value = -out->value;
    }
    expect(p, "]");
}

static void parse_operand(parser *p, operand *out, int depth) {
    *out = (operand){.reg = NO_REGISTER, .second = NO_REGISTER, .symbol = -1};
    if (depth > 4) load_fail(p->load, now(p)->line, "operands nested too deep");
    if (now(p)->kind == TOKEN_NAME) {
        parse_named(p, out);
    } else if (accept(p, "[")) {
        parse_address(p, out);
    } else if (accept(p, "{")) {
        out->kind = OPERAND_VECTOR;
        parse_items(p, out, "}", depth);
    } else if (accept(p, "(")) {
        out->kind = OPERAND_LIST;
        parse_items(p, out, ")", depth);
    } else if (accept(p, "!")) {
        parse_named(p, out);
        out->negated = true;
    } else {
        bool minus = accept(p, "-");
        const token *tok = now(p);
        if (tok->kind != TOKEN_INTEGER && tok->kind != TOKEN_FLOAT32 && tok->kind != TOKEN_FLOAT64)
            unexpected(p, "an operand");
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
}

/* ---- instructions ---- */

/* The text from begin to end with every run of white space as one blank. */
static const char *tidy_text(parser *p, const char *begin, const char *end) {
    char *copy = load_alloc(p->load, (size_t)(end - begin) + 1);
    size_t length = 0;
    for (; begin < end; begin++) {
        bool space = isspace((unsigned char)*begin);
        if (!space)
            copy[length++] = *begin;
        else if (length && copy[length - 1] != ' ')
            copy[length++] = ' ';
    }
    while (length && copy[length - 1] == ' ') length--;
    copy[length] = 0;
    return copy;
}

static opcode *intern_opcode(parser *p, const token *head) {
    opcode **chain = &p->opcodes[hash_name(head->begin, head->length) % OPCODE_HASH];
    for (opcode *known = *chain; known; known = known->next) {
        if (known->length == head->length && !memcmp(known->text, head->begin, head->length)) return known;
    }
    opcode *added = load_alloc(p->load, sizeof *added);
    char *text = load_text(p->load, head->begin, head->length);
    size_t count = 1;
    for (const char *c = text; *c; c++) count += *c == '.';
    if (count > MAX_PIECES) load_fail(p->load, head->line, "'%.60s' has too many modifiers", text);
    added->pieces = load_alloc(p->load, count * sizeof *added->pieces);
    for (char *piece = text; piece;) {
        added->pieces[added->piece_count++] = piece;
        piece = strchr(piece, '.');
        if (piece) *piece++ = 0;
    }
    added->text = head->begin;
    added->length = head->length;
    added->next = *chain;
    return *chain = added;
}

static instruction *add_instruction(parser *p) {
    entry *code = p->code;
    code->instructions = load_grow(p->load, code->instructions, code->instruction_count, &p->instruction_capacity,
                                   sizeof *code->instructions);
    instruction *in = &code->instructions[code->instruction_count++];
    *in = (instruction){.line = now(p)->line, .location = p->current_location, .guard = NO_REGISTER, .scope = p->scope};
    return in;
}

static void parse_instruction(parser *p) {
    const char *begin = now(p)->begin;
    instruction *in = add_instruction(p);
    if (accept(p, "@")) {
        in->guard_negated = accept(p, "!");
        token name = expect_name(p, "a predicate");
        in->guard = lookup_register(p, &name);
        if (in->guard == NO_REGISTER)
            load_fail(p->load, name.line, "unknown predicate '%.*s'", shown_length(&name), name.begin);
    }
    if (now(p)->kind != TOKEN_NAME) unexpected(p, "an instruction");
    in->line = now(p)->line;
    lexer_extend_opcode(&p->lex);
    token head = *now(p);
    next(p);
    in->opcode = intern_opcode(p, &head);
    operand operands[MAX_OPERANDS];
    int count = 0;
    while (!token_is(now(p), ";")) {
        if (count == MAX_OPERANDS) load_fail(p->load, in->line, "more than %d operands", MAX_OPERANDS);
        if (count) expect(p, ",");
        parse_operand(p, &operands[count++], 0);
    }
    in->operand_count = (uint8_t)count;
    operand *kept = load_alloc(p->load, (size_t)(count ? count : 1) * sizeof *kept);
    if (count) memcpy(kept, operands, (size_t)count * sizeof *kept);
    in->operands = kept;
    in->text = tidy_text(p, begin, now(p)->begin + 1);
    next(p);
}

static void add_label(parser *p, const token *name) {
    entry *code = p->code;
    code->labels = load_grow(p->load, code->labels, code->label_count, &p->label_capacity, sizeof *code->labels);
    code->labels[code->label_count++] =
        (label){load_text(p->load, name->begin, name->length), p->scope, (uint32_t)code->instruction_count};
}

static void skip_statement(parser *p) {
    while (now(p)->kind != TOKEN_END && !token_is(now(p), ";")) next(p);
    expect(p, ";");
}

static void parse_body_directive(parser *p) {
    token head = *now(p);
    next(p);
    if (token_is(&head, ".reg"))
        parse_reg(p);
    else if (token_is(&head, ".loc"))
        parse_loc(p);
    else if (token_is(&head, ".pragma"))
        skip_statement(p);
    else if (token_is(&head, ".file"))
        parse_file(p);
    else if (token_is(&head, ".shared"))
        parse_variable(p, SPACE_SHARED, false);
    else if (token_is(&head, ".local"))
        parse_variable(p, SPACE_LOCAL, false);
    else if (token_is(&head, ".param"))
        parse_variable(p, SPACE_PARAM, false);
    else if (token_is(&head, ".global"))
        parse_variable(p, SPACE_GLOBAL, false);
    else if (token_is(&head, ".const"))
        parse_variable(p, SPACE_CONST, false);
    else
        load_fail(p->load, head.line, "directive '%.*s' is not supported inside a function", shown_length(&head),
                  head.begin);
}

static void parse_body(parser *p) {
    int depth = 0;
    expect(p, "{");
    open_scope(p);
    for (depth = 1; depth;) {
        if (now(p)->kind == TOKEN_NAME && lexer_at_label(&p->lex)) {
            token name = *now(p);
            next(p);
            next(p); /* the colon */
            add_label(p, &name);
        } else if (now(p)->kind == TOKEN_NAME) {
            parse_instruction(p);
        } else if (now(p)->kind == TOKEN_DIRECTIVE) {
            parse_body_directive(p);
        } else if (accept(p, "{")) {
            open_scope(p);
            depth++;
        } else if (token_is(now(p), "}")) {
            if (--depth) close_scope(p);
            next(p);
        } else if (token_is(now(p), "@")) {
            parse_instruction(p);
        } else {
            unexpected(p, "an instruction or '}'");
        }
    }
}

/* ---- entries and module ---- */

static void parse_entry_params(parser *p) {
    enum { MAX_PARAMS = 256 };
    uint32_t offsets[MAX_PARAMS], sizes[MAX_PARAMS], used = 0;
    int count = 0;
    if (accept(p, "(") && !accept(p, ")")) {
        do {
            if (count == MAX_PARAMS) load_fail(p->load, now(p)->line, "more than %d parameters", MAX_PARAMS);
            expect(p, ".param");
            uint32_t alignment = 0;
            if (accept(p, ".align")) alignment = expect_small(p, 1 << 16, "the alignment");
            const type_info *type = expect_type(p);
            if (type->bits < 8) load_fail(p->load, now(p)->line, "a parameter cannot be of type .pred");
            if (accept(p, ".ptr")) {
                while (now(p)->kind == TOKEN_DIRECTIVE) {
                    bool align = token_is(now(p), ".align");
                    next(p);
                    if (align) expect_integer(p);
                }
            }
            if (accept(p, ".align")) alignment = expect_small(p, 1 << 16, "the alignment");
            token name = expect_name(p, "a parameter name");
            uint32_t bytes = type->bits / 8;
            if (!alignment) alignment = bytes;
            if (accept(p, "[")) {
                bytes *= expect_small(p, 1 << 16, "the size of a parameter");
                expect(p, "]");
            }
            used = align_up(used, alignment);
            offsets[count] = used;
            sizes[count++] = bytes;
            uint32_t index = add_symbol(p, &name, SPACE_PARAM, used, bytes);
            p->module->symbols[index].entry_param = true;
            used += bytes;
        } while (accept(p, ","));
        expect(p, ")");
    }
    uint32_t *kept = load_alloc(p->load, (size_t)(count ? count : 1) * 2 * sizeof *kept);
    if (count) memcpy(kept, offsets, (size_t)count * sizeof *kept);
    if (count) memcpy(kept + count, sizes, (size_t)count * sizeof *kept);
    p->code->info.params = count;
    p->code->info.param_bytes = used;
    p->code->info.param_offsets = kept;
    p->code->info.param_sizes = kept + count;
}

static void parse_tuning(parser *p) {
    while (now(p)->kind == TOKEN_DIRECTIVE) {
        token head = *now(p);
        next(p);
        uint32_t sizes[3] = {1, 1, 1};
        if (token_is(&head, ".maxntid") || token_is(&head, ".reqntid")) {
            for (int i = 0; i < 3; i++) {
                sizes[i] = expect_small(p, 1024, "the number of threads");
                if (i < 2 && !accept(p, ",")) break;
            }
            p->code->info.max_threads = sizes[0] * sizes[1] * sizes[2];
            if (token_is(&head, ".reqntid")) memcpy(p->code->required_threads, sizes, sizeof sizes);
        } else if (token_is(&head, ".minnctapersm") || token_is(&head, ".maxnreg") ||
                   token_is(&head, ".maxnctapersm")) {
            expect_integer(p);
        } else if (token_is(&head, ".noreturn")) {
            continue;
        } else if (token_is(&head, ".pragma")) {
            skip_statement(p);
        } else {
            load_fail(p->load, head.line, "directive '%.*s' is not supported", shown_length(&head), head.begin);
        }
    }
}

/* Dynamic shared memory begins after the static variables of module and entry. */
static void place_shared(parser *p, size_t first_own_symbol) {
    entry *code = p->code;
    uint32_t total = align_up(p->module_shared_bytes, 16);
    for (size_t i = first_own_symbol; i < p->module->symbol_count; i++) {
        symbol *s = &p->module->symbols[i];
        if (s->space == SPACE_SHARED && s->offset != UINT32_MAX) s->offset += total;
    }
    code->shared_bytes += total;
    code->info.shared_bytes = code->shared_bytes;
}

static void parse_entry(parser *p) {
    emu_module *module = p->module;
    token name = expect_name(p, "the name of the entry");
    module->entries =
        load_grow(p->load, module->entries, module->entry_count, &p->entry_capacity, sizeof *module->entries);
    p->code = &module->entries[module->entry_count++];
    *p->code = (entry){.info.name = load_text(p->load, name.begin, name.length)};
    p->instruction_capacity = p->label_capacity = p->register_capacity = p->scope_capacity = 0;
    p->current_location = -1;
    p->scope = -1;
    open_scope(p);
    size_t first_own_symbol = module->symbol_count;
    parse_entry_params(p);
    parse_tuning(p);
    parse_body(p);
    place_shared(p, first_own_symbol);
    close_scope(p); /* of the body */
    close_scope(p); /* of the parameters */
    p->code->info.instructions = (uint32_t)p->code->instruction_count;
    p->code = NULL;
}

/* ".extern .func (...) vprintf (...);" is known by name at the call; a body is refused. */
static void parse_function(parser *p) {
    int line = now(p)->line;
    while (now(p)->kind != TOKEN_END && !token_is(now(p), ";") && !token_is(now(p), "{")) next(p);
    if (token_is(now(p), "{"))
        load_fail(p->load, line, "functions that are not inlined (.func with a body) are not supported");
    expect(p, ";");
}

/* Debug sections hold numbers only: the closing brace is looked for without making tokens of them. */
static void skip_section(parser *p) {
    if (now(p)->kind == TOKEN_DIRECTIVE) next(p);
    if (!token_is(now(p), "{")) unexpected(p, "'{'");
    lexer *lex = &p->lex;
    while (lex->at < lex->end && *lex->at != '}') lex->line += *lex->at++ == '\n';
    next(p);
    expect(p, "}");
}

static void parse_version(parser *p) {
    if (now(p)->kind != TOKEN_FLOAT64 && now(p)->kind != TOKEN_INTEGER) unexpected(p, "a version number");
    next(p);
}

static void parse_top(parser *p) {
    bool external = false;
    while (token_is(now(p), ".visible") || token_is(now(p), ".extern") || token_is(now(p), ".weak") ||
           token_is(now(p), ".common")) {
        external |= token_is(now(p), ".extern");
        next(p);
    }
    token head = *now(p);
    next(p);
    if (token_is(&head, ".entry"))
        parse_entry(p);
    else if (token_is(&head, ".func"))
        parse_function(p);
    else if (token_is(&head, ".global"))
        parse_variable(p, SPACE_GLOBAL, external);
    else if (token_is(&head, ".const"))
        parse_variable(p, SPACE_CONST, external);
    else if (token_is(&head, ".shared"))
        parse_variable(p, SPACE_SHARED, external);
    else if (token_is(&head, ".file"))
        parse_file(p);
    else if (token_is(&head, ".section"))
        skip_section(p);
    else if (token_is(&head, ".version"))
        parse_version(p);
    else if (token_is(&head, ".target")) {
        do {
            expect_name(p, "a target");
        } while (accept(p, ","));
    } else if (token_is(&head, ".address_size")) {
        if (expect_integer(p) != 64) load_fail(p->load, head.line, "only .address_size 64 is supported");
    } else {
        load_fail(p->load, head.line, "'%.*s' is not supported at module scope", shown_length(&head), head.begin);
    }
}

void parse_module(loader *load, const char *text, size_t bytes) {
    parser *p = load_alloc(load, sizeof *p);
    p->load = load;
    p->module = load->module;
    memset(p->heads, 0xff, sizeof p->heads);
    lexer_start(&p->lex, load, text, bytes);
    if (now(p)->kind == TOKEN_END) load_fail(load, 1, "the text holds no PTX");
    while (now(p)->kind != TOKEN_END) parse_top(p);
    name_files(p);
    if (!load->module->entry_count) load_fail(load, 0, "the text has no .entry");
}

void register_name(const virtual_register *reg, char *out, size_t bytes) {
    if (reg->kind == REGISTER_SPECIAL)
        snprintf(out, bytes, "%s", special_names[reg->value]);
    else if (reg->kind == REGISTER_CONSTANT)
        snprintf(out, bytes, "0x%llx", (unsigned long long)reg->value);
    else if (reg->value == UINT64_MAX)
        snprintf(out, bytes, "%s", reg->prefix);
    else
        snprintf(out, bytes, "%s%llu", reg->prefix, (unsigned long long)reg->value);
}
