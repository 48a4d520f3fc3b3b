/* parser.c - tokens to entries: statements with resolved registers and symbols, each decoded at once.
 *
 * Names follow PTX scoping: braces open a scope, inner declarations hide outer ones, labels are found from where they
 * are used outwards. Unsupported lines are rejected by number.
 */
#include "parser.h"

#include "declarations.h"
#include "decode.h"
#include "forms.h"
#include "functions.h"
#include "locations.h"
#include "operands.h"

/* ---- instructions ---- */

/* The text from begin to end with every run of white space as one blank. */
static const char *tidy_text(parser *p, const char *begin, const char *end) {
    char *copy = emu_load_alloc(p->load, (size_t)(end - begin) + 1);
    size_t length = 0;
    for (; begin < end; begin++) {
        bool space = *begin == ' ' || (unsigned)(*begin - '\t') < 5; /* isspace() asks the locale */
        if (!space)
            copy[length++] = *begin;
        else if (length && copy[length - 1] != ' ')
            copy[length++] = ' ';
    }
    while (length && copy[length - 1] == ' ') length--;
    copy[length] = 0;
    return copy;
}

/* Read a line in which only the space between head and operands matters. */
static const char *join_text(parser *p, const char *head, size_t head_bytes, const char *tail, size_t tail_bytes) {
    char *copy = emu_load_alloc(p->load, head_bytes + tail_bytes + 2);
    memcpy(copy, head, head_bytes);
    copy[head_bytes] = ' ';
    memcpy(copy + head_bytes + 1, tail, tail_bytes);
    return copy;
}

/* Opcodes are long and alike: their ends and length tell them apart well enough. */
static uint32_t hash_opcode(const char *text, uint32_t length) {
    uint64_t first = 0, last = 0;
    if (length >= 8) {
        memcpy(&first, text, 8);
        memcpy(&last, text + length - 8, 8);
    } else {
        memcpy(&first, text, length);
    }
    return (uint32_t)((first * 0x9e3779b97f4a7c15ull ^ last * 0xc2b2ae3d27d4eb4full ^ length * 0x165667b1ull) >> 40);
}

static opcode *intern_opcode(parser *p, const token *head) {
    opcode **chain = &p->opcodes[hash_opcode(head->begin, head->length) % OPCODE_HASH];
    for (opcode *known = *chain; known; known = known->next) {
        if (known->length == head->length && !memcmp(known->text, head->begin, head->length)) return known;
    }
    opcode *added = emu_load_alloc(p->load, sizeof *added);
    char *text = emu_load_text(p->load, head->begin, head->length);
    size_t count = 1;
    for (const char *c = text; *c; c++) count += *c == '.';
    if (count > MAX_PIECES) emu_load_fail(p->load, head->line, "'%.60s' has too many modifiers", text);
    added->pieces = emu_load_alloc(p->load, count * sizeof *added->pieces);
    for (char *piece = text; piece;) {
        added->pieces[added->piece_count++] = piece;
        piece = strchr(piece, '.');
        if (piece) *piece++ = 0;
    }
    emu_check_opcode(p->load, added, head->line);
    added->text = head->begin;
    added->length = head->length;
    added->next = *chain;
    return *chain = added;
}

static void keep_instruction(parser *p, const statement *in) {
    entry *code = p->code;
    code->instructions = load_grow(p->load, code->instructions, code->instruction_count, &code->instruction_capacity,
                                   sizeof *code->instructions);
    code->instructions[code->instruction_count++] =
        (instruction){.text = in->text, .group = "", .line = in->line, .location = p->current_location};
}

static void parse_guard(parser *p, statement *in) {
    next(p);
    in->guard_negated = accept(p, "!");
    token name = emu_expect_name(p, "a predicate");
    in->guard = emu_lookup_register(p, &name);
    if (in->guard == NO_REGISTER)
        emu_load_fail(p->load, name.line, "unknown predicate '%.*s'", shown_length(&name), name.begin);
}

static void parse_instruction(parser *p) {
    const char *begin = now(p)->begin;
    statement in = {.guard = NO_REGISTER, .operands = p->operands};
    if (is_mark(now(p), '@')) parse_guard(p, &in);
    if (now(p)->kind != TOKEN_NAME) emu_unexpected(p, "an instruction");
    in.line = now(p)->line;
    emu_lexer_extend_opcode(&p->lex);
    in.opcode = intern_opcode(p, now(p));
    const char *head_end = p->lex.at;
    next(p);
    const char *tail = now(p)->begin;
    p->lex.ragged = false;
    p->item_count = 0;
    for (bool comma = true; !is_mark(now(p), ';') || (in.operand_count && comma);) {
        if (in.operand_count == MAX_STATEMENT_OPERANDS)
            emu_load_fail(p->load, in.line, "more than %d operands", MAX_STATEMENT_OPERANDS);
        if (!comma) expect_mark(p, ',');
        comma = emu_parse_operand(p, &p->operands[in.operand_count++], 0);
    }
    const char *end = now(p)->begin + 1;
    in.text = p->lex.ragged || in.guard != NO_REGISTER || !in.operand_count
                  ? tidy_text(p, begin, end)
                  : join_text(p, begin, (size_t)(head_end - begin), tail, (size_t)(end - tail));
    keep_instruction(p, &in);
    emu_decode_statement(p->decoder, &in);
    next(p);
}

static void add_label(parser *p, const token *name) {
    entry *code = p->code;
    code->body->labels =
        load_grow(p->load, code->body->labels, code->body->label_count, &p->label_capacity, sizeof *code->body->labels);
    code->body->labels[code->body->label_count++] =
        (label){name->begin, name->length, p->scope, name->line, (uint32_t)code->op_count};
}

static void skip_statement(parser *p) {
    while (now(p)->kind != TOKEN_END && !token_is(now(p), ";")) next(p);
    emu_expect(p, ";");
}

/* "ts: .branchtargets L1, L2;" for a later brx.idx. */
static void parse_branch_targets(parser *p, int line) {
    entry_body *body = p->code->body;
    branch_table *table = emu_load_alloc(p->load, sizeof *table);
    if (!body->label_count) emu_load_fail(p->load, line, ".branchtargets needs a label");
    table->own = body->labels[body->label_count - 1];
    table->targets = emu_load_alloc(p->load, MAX_BRANCH_TARGETS * sizeof *table->targets);
    do {
        if (table->count == MAX_BRANCH_TARGETS)
            emu_load_fail(p->load, line, "more than %d branch targets", MAX_BRANCH_TARGETS);
        token name = emu_expect_name(p, "a label");
        table->targets[table->count++] = (operand){.kind = OPERAND_LABEL,
                                                   .reg = NO_REGISTER,
                                                   .second = NO_REGISTER,
                                                   .symbol = -1,
                                                   .name = name.begin,
                                                   .length = name.length,
                                                   .value = p->scope};
    } while (accept(p, ","));
    emu_expect(p, ";");
    table->next = body->tables;
    body->tables = table;
}

static void parse_body_directive(parser *p) {
    if (token_is(now(p), ".loc")) {
        emu_parse_loc(p);
        return;
    }
    token head = *now(p);
    next(p);
    if (token_is(&head, ".reg"))
        emu_parse_reg(p);
    else if (token_is(&head, ".pragma") || token_is(&head, ".callprototype"))
        skip_statement(p); /* a call says what it passes */
    else if (token_is(&head, ".file"))
        emu_parse_file(p);
    else if (token_is(&head, ".shared"))
        emu_parse_variable(p, SPACE_SHARED, false);
    else if (token_is(&head, ".local"))
        emu_parse_variable(p, SPACE_LOCAL, false);
    else if (token_is(&head, ".param"))
        emu_parse_variable(p, SPACE_PARAM, false);
    else if (token_is(&head, ".global"))
        emu_parse_variable(p, SPACE_GLOBAL, false);
    else if (token_is(&head, ".const"))
        emu_parse_variable(p, SPACE_CONST, false);
    else if (token_is(&head, ".calltargets"))
        emu_parse_call_targets(p);
    else if (token_is(&head, ".branchtargets"))
        parse_branch_targets(p, head.line);
    else
        emu_load_fail(p->load, head.line, "directive '%.*s' is not supported inside a function", shown_length(&head),
                      head.begin);
}

static void parse_body(parser *p) {
    expect_mark(p, '{');
    emu_open_scope(p);
    for (int depth = 1; depth;) {
        const token *tok = now(p);
        if (tok->kind == TOKEN_DIRECTIVE) {
            parse_body_directive(p);
        } else if (tok->kind == TOKEN_NAME && emu_lexer_at_label(&p->lex)) {
            token name = *tok;
            next(p);
            next(p); /* the colon */
            add_label(p, &name);
        } else if (tok->kind == TOKEN_NAME || is_mark(tok, '@')) {
            parse_instruction(p);
        } else if (is_mark(tok, '{')) {
            next(p);
            emu_open_scope(p);
            depth++;
        } else if (is_mark(tok, '}')) {
            if (--depth) emu_close_scope(p);
            next(p);
        } else {
            emu_unexpected(p, "an instruction or '}'");
        }
    }
}

/* ---- entries and module ---- */

static void parse_entry_params(parser *p) {
    enum { MAX_PARAMS = 256 };
    uint32_t offsets[MAX_PARAMS], sizes[MAX_PARAMS], used = 0;
    const char *types[MAX_PARAMS];
    int count = 0;
    if (accept(p, "(") && !accept(p, ")")) {
        do {
            if (count == MAX_PARAMS) emu_load_fail(p->load, now(p)->line, "more than %d parameters", MAX_PARAMS);
            emu_expect(p, ".param");
            uint32_t alignment = 0;
            if (accept(p, ".align")) alignment = emu_expect_alignment(p);
            const type_info *type = emu_expect_type(p);
            if (type->bits < 8) emu_load_fail(p->load, now(p)->line, "a parameter cannot be of type .pred");
            if (accept(p, ".ptr")) {
                while (now(p)->kind == TOKEN_DIRECTIVE) {
                    bool align = token_is(now(p), ".align");
                    next(p);
                    if (align) emu_expect_alignment(p);
                }
            }
            if (accept(p, ".align")) alignment = emu_expect_alignment(p);
            token name = emu_expect_name(p, "a parameter name");
            uint32_t bytes = type->bits / 8;
            if (!alignment) alignment = bytes;
            if (accept(p, "[")) {
                bytes *= emu_expect_small(p, 1 << 16, "the size of a parameter");
                emu_expect(p, "]");
            }
            used = emu_align_up(used, alignment);
            offsets[count] = used;
            types[count] = type->name;
            sizes[count++] = bytes;
            uint32_t index = emu_add_symbol(p, &name, SPACE_PARAM, used, bytes);
            p->module->symbols[index].entry_param = true;
            used += bytes;
        } while (accept(p, ","));
        emu_expect(p, ")");
    }
    uint32_t *kept = emu_load_alloc(p->load, (size_t)(count ? count : 1) * 2 * sizeof *kept);
    if (count) memcpy(kept, offsets, (size_t)count * sizeof *kept);
    if (count) memcpy(kept + count, sizes, (size_t)count * sizeof *kept);
    const char **kept_types = emu_load_alloc(p->load, (size_t)(count ? count : 1) * sizeof *kept_types);
    if (count) memcpy(kept_types, types, (size_t)count * sizeof *kept_types);
    p->code->info.params = count;
    p->code->info.param_bytes = used;
    p->code->info.param_offsets = kept;
    p->code->info.param_sizes = kept + count;
    p->code->info.param_types = kept_types;
}

static void parse_tuning(parser *p) {
    char name[32];
    while (now(p)->kind == TOKEN_DIRECTIVE) {
        token head = *now(p);
        next(p);
        uint32_t sizes[3] = {1, 1, 1};
        snprintf(name, sizeof name, "%.*s", shown_length(&head), head.begin);
        emu_expect_target(p->load, name, head.line);
        if (token_is(&head, ".maxntid") || token_is(&head, ".reqntid")) {
            for (int i = 0; i < 3; i++) {
                sizes[i] = emu_expect_small(p, 1024, "the number of threads");
                if (i < 2 && !accept(p, ",")) break;
            }
            p->code->info.max_threads = sizes[0] * sizes[1] * sizes[2];
            if (token_is(&head, ".reqntid")) memcpy(p->code->required_threads, sizes, sizeof sizes);
        } else if (token_is(&head, ".minnctapersm")) {
            p->code->min_ctas = emu_expect_small(p, 32, "the number of CTAs");
        } else if (token_is(&head, ".maxnreg")) {
            p->code->max_registers = emu_expect_small(p, 256, "the number of registers");
        } else if (token_is(&head, ".maxnctapersm")) {
            emu_expect_integer(p);
        } else if (token_is(&head, ".reqnctapercluster")) {
            for (int i = 0; i < 3; i++) {
                sizes[i] = emu_expect_small(p, MAX_CLUSTER, "the number of CTAs of a cluster");
                if (i < 2 && !accept(p, ",")) break;
            }
            memcpy(p->code->info.cluster, sizes, sizeof sizes);
        } else if (token_is(&head, ".maxclusterrank")) {
            p->code->max_cluster_rank = emu_expect_small(p, 16, "the largest number of CTAs of a cluster");
        } else if (token_is(&head, ".explicitcluster")) {
            p->code->explicit_cluster = true;
        } else if (token_is(&head, ".noreturn")) {
            continue;
        } else if (token_is(&head, ".pragma")) {
            skip_statement(p);
        } else {
            emu_load_fail(p->load, head.line, "directive '%.*s' is not supported", shown_length(&head), head.begin);
        }
    }
}

/* All but the body, which waits until the entry is asked for. */
static void parse_entry(parser *p) {
    emu_module *module = p->module;
    token name = emu_expect_name(p, "the name of the entry");
    for (size_t i = 0; i < module->entry_count; i++) {
        const char *known = module->entries[i].info.name;
        if (strlen(known) == name.length && !memcmp(known, name.begin, name.length))
            emu_load_fail(p->load, name.line, "entry '%.*s' is defined twice", shown_length(&name), name.begin);
    }
    module->entries =
        load_grow(p->load, module->entries, module->entry_count, &p->entry_capacity, sizeof *module->entries);
    p->code = &module->entries[module->entry_count++];
    size_t visible = p->declaration_count;
    *p->code = (entry){.info.name = emu_load_text(p->load, name.begin, name.length),
                       .body = emu_load_alloc(p->load, sizeof *p->code->body)};
    *p->code->body = (entry_body){
        .first_param = module->symbol_count, .visible = visible, .module_shared_bytes = p->module_shared_bytes};
    p->scope_marks[p->scope_depth++] = visible; /* parameters may hide what the module declares */
    parse_entry_params(p);
    p->scope_depth--;
    parse_tuning(p);
    emu_undeclare(p, visible);
    if (!token_is(now(p), "{")) emu_unexpected(p, "'{'");
    p->code->body->text = p->lex;
    const char *begin = p->lex.at;
    if (!emu_lexer_skip_braces(&p->lex)) emu_unexpected(p, "an instruction or '}'");
    p->code->body->bytes = (size_t)(p->lex.at - begin);
    p->code = NULL;
}

/* Room for what a body of this length is likely to hold: what is not used takes no pages. */
static void reserve_instructions(parser *p) {
    entry *code = p->code;
    code->instruction_capacity = code->op_capacity = code->register_capacity = code->body->bytes / 100 + 64;
    code->instructions = emu_load_alloc(p->load, code->instruction_capacity * sizeof *code->instructions);
    code->ops = emu_load_alloc(p->load, code->op_capacity * sizeof *code->ops);
    code->registers = emu_load_alloc(p->load, code->register_capacity * sizeof *code->registers);
}

/* The body of a function, as a routine of the entry. */
static void parse_routine(parser *p, int index) {
    entry *code = p->code;
    const function *from = &p->module->functions[code->routines[index].function];
    emu_undeclare(p, p->module_declarations);
    code->body = emu_load_alloc(p->load, sizeof *code->body);
    code->body->visible = from->visible;
    p->lex = from->text;
    p->label_capacity = p->scope_capacity = 0;
    p->declared_registers = 0;
    p->scope = -1;
    p->scope_depth = 0;
    p->current_location = -1;
    emu_open_scope(p);
    emu_decode_routine(p->decoder, index);
    emu_declare_formals(p, from, p->decoder->formal_registers);
    code->local_bytes = from->formal_bytes;
    emu_decode_entrance(p->decoder);
    parse_body(p);
    emu_decode_routine_end(p->decoder);
}

/* Functions that are called, and those that may be called by address: each body may name others. */
static void parse_routines(parser *p) {
    entry *code = p->code;
    bool added_data = false;
    for (int done = 1; done < (int)code->routine_count || (p->decoder->calls_by_address && !added_data);) {
        if (done < (int)code->routine_count) {
            parse_routine(p, done++);
            continue;
        }
        added_data = true;
        for (size_t i = 0; i < p->module->function_count; i++) {
            if (p->module->functions[i].in_data && p->module->functions[i].defined)
                code->routines[emu_need_routine(p->decoder, (int)i)].address_taken = true;
        }
    }
}

/* The parser may have been left in the middle of another body, which was refused. */
void emu_parse_entry_body(loader *load, entry *code) {
    parser *p = load->parser;
    emu_undeclare(p, p->module_declarations);
    p->code = code;
    p->lex = code->body->text;
    p->label_capacity = p->scope_capacity = p->location_capacity = 0;
    p->declared_registers = 0;
    p->scope = -1;
    p->scope_depth = 0;
    emu_forget_locations(p);
    emu_open_scope(p);
    for (size_t i = code->body->first_param; i < code->body->first_param + (size_t)code->info.params; i++) {
        const char *name = p->module->symbols[i].name;
        emu_declare_symbol(p, name, (uint32_t)strlen(name), (uint32_t)i);
    }
    /* static variables follow those of the module, dynamic shared memory follows all of them */
    code->shared_bytes = emu_align_up(code->body->module_shared_bytes, 16);
    reserve_instructions(p);
    p->decoder = emu_decode_begin(load, code);
    parse_body(p);
    emu_decode_routine_end(p->decoder);
    entry_body *own = code->body;
    parse_routines(p);
    code->dynamic_begin = emu_align_up(code->shared_bytes, p->dynamic_alignment);
    emu_decode_end(p->decoder);
    code->body = own;
    emu_link_locations(p);
    code->info.shared_bytes = code->shared_bytes;
    code->variables = p->module->variables;
    code->variable_bytes = p->module->variable_bytes;
    code->info.instructions = (uint32_t)code->instruction_count;
}

/* Debug sections hold numbers only: the closing brace is looked for without making tokens of them. */
static void skip_section(parser *p) {
    if (now(p)->kind == TOKEN_DIRECTIVE) next(p);
    if (!token_is(now(p), "{")) emu_unexpected(p, "'{'");
    emu_lexer_skip_to(&p->lex, '}');
    expect_mark(p, '}');
}

static void parse_version(parser *p) {
    if (now(p)->kind != TOKEN_FLOAT64 && now(p)->kind != TOKEN_INTEGER) emu_unexpected(p, "a version number");
    uint64_t bits = now(p)->value;
    if (now(p)->kind == TOKEN_FLOAT64)
        memcpy(&p->load->version, &bits, sizeof bits);
    else
        p->load->version = (double)bits;
    next(p);
}

/* Read "sm_90a" as 90 and 'a', and ignore options such as "debug". Joined texts have the highest of their targets. */
static void take_target(loader *load, const token *target) {
    unsigned number = 0;
    if (target->length < 4 || memcmp(target->begin, "sm_", 3) != 0) return;
    const char last = target->begin[target->length - 1], letter = (unsigned)(last - '0') < 10 ? '\0' : last;
    for (uint32_t i = 3; i < target->length && (unsigned)(target->begin[i] - '0') < 10; i++)
        number = 10 * number + (unsigned)(target->begin[i] - '0');
    if (!load->architecture) load->architecture = number;
    if (number < load->target || (number == load->target && !letter)) return;
    load->target = number;
    load->target_letter = letter;
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
        emu_parse_function(p);
    else if (token_is(&head, ".global"))
        emu_parse_variable(p, SPACE_GLOBAL, external);
    else if (token_is(&head, ".const"))
        emu_parse_variable(p, SPACE_CONST, external);
    else if (token_is(&head, ".shared"))
        emu_parse_variable(p, SPACE_SHARED, external);
    else if (token_is(&head, ".file"))
        emu_parse_file(p);
    else if (token_is(&head, ".section"))
        skip_section(p);
    else if (token_is(&head, ".version"))
        parse_version(p);
    else if (token_is(&head, ".target")) {
        do {
            const token target = emu_expect_name(p, "a target");
            take_target(p->load, &target);
        } while (accept(p, ","));
    } else if (token_is(&head, ".address_size")) {
        if (emu_expect_integer(p) != 64) emu_load_fail(p->load, head.line, "only .address_size 64 is supported");
    } else {
        emu_load_fail(p->load, head.line, "'%.*s' is not supported at module scope", shown_length(&head), head.begin);
    }
}

/* Text begins with a letter, a space or a mark; a byte-order mark is none of PTX. */
static void refuse_binary(loader *load, const char *text, size_t bytes) {
    const unsigned char first = bytes ? (unsigned char)text[0] : ' ';
    if (bytes >= 4 && !memcmp(text, "\177ELF", 4))
        emu_load_fail(load, 1,
                      "this is an ELF file, such as a cubin or a program, not PTX: cuobjdump -ptx shows what "
                      "PTX is in it");
    if (bytes >= 4 && !memcmp(text, "\x50\xed\x55\xba", 4))
        emu_load_fail(load, 1, "this is a fat binary, not PTX: cuobjdump -ptx shows what PTX is in it");
    if (first > '~' || (first < ' ' && (first < '\t' || first > '\r')))
        emu_load_fail(load, 1, "this begins with byte 0x%02x: it is no text of PTX", first);
}

void emu_parse_module(loader *load, const char *text, size_t bytes) {
    parser *p = emu_load_alloc(load, sizeof *p);
    load->parser = p;
    p->load = load;
    p->module = &load->module;
    memset(p->heads, 0xff, sizeof p->heads);
    p->dynamic_alignment = 16; /* at least */
    refuse_binary(load, text, bytes);
    emu_lexer_start(&p->lex, load, text, bytes);
    if (now(p)->kind == TOKEN_END) emu_load_fail(load, 1, "the text holds no PTX");
    while (now(p)->kind != TOKEN_END) parse_top(p);
    p->module_declarations = p->declaration_count;
    if (!load->module.entry_count) emu_load_fail(load, 0, "the text has no .entry");
    if (load->version == 0)
        emu_load_fail(load, 1, "the text has no .version, with which PTX begins, such as .version 8.0");
    if (!load->target) emu_load_fail(load, 1, "the text has no .target, such as .target sm_90");
}
