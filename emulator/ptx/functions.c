/* functions.c - see functions.h */
#include "functions.h"

#include "builder.h"
#include "declarations.h"

enum { MAX_FORMALS = 64 };

/* ".param .align 8 .b8 name[16]" or ".reg .b32 name" */
static formal parse_formal(parser *p, uint32_t *used) {
    formal each = {.in_register = token_is(now(p), ".reg")};
    uint32_t alignment = 0;
    if (!each.in_register) emu_expect(p, ".param");
    if (each.in_register) next(p);
    if (accept(p, ".align")) alignment = emu_expect_small(p, 1 << 16, "the alignment");
    const type_info *type = emu_expect_type(p);
    if (type->bits < 8) emu_load_fail(p->load, now(p)->line, "a parameter cannot be of type .pred");
    if (accept(p, ".ptr")) { /* .ptr .global .align 8 */
        while (now(p)->kind == TOKEN_DIRECTIVE) {
            bool align = token_is(now(p), ".align");
            next(p);
            if (align) emu_expect_integer(p);
        }
    }
    token name = emu_expect_name(p, "a parameter name");
    each.name = name.begin;
    each.length = name.length;
    each.bits = type->bits;
    each.bytes = type->bits / 8;
    if (!alignment) alignment = each.bytes;
    if (accept(p, "[")) {
        each.bytes *= token_is(now(p), "]") ? 0 : emu_expect_small(p, 1 << 16, "the size of a parameter");
        emu_expect(p, "]");
    }
    if (*used + each.bytes > 1 << 20) emu_load_fail(p->load, name.line, "parameters of more than 1 MiB");
    each.offset = *used = emu_align_up(*used, alignment);
    *used += each.bytes;
    return each;
}

static int parse_formals(parser *p, formal *out, int count, uint32_t *used) {
    if (!accept(p, "(") || accept(p, ")")) return count;
    do {
        if (count == MAX_FORMALS) emu_load_fail(p->load, now(p)->line, "more than %d parameters", MAX_FORMALS);
        out[count++] = parse_formal(p, used);
    } while (accept(p, ","));
    emu_expect(p, ")");
    return count;
}

/* The function of a name, which was declared before or is new. */
static function *enter_function(parser *p, const token *name) {
    emu_module *module = p->module;
    int known = emu_lookup_symbol(p, name);
    if (known >= 0 && module->symbols[known].space == SPACE_FUNCTION)
        return &module->functions[module->symbols[known].offset];
    module->functions =
        load_grow(p->load, module->functions, module->function_count, &p->function_capacity, sizeof *module->functions);
    function *added = &module->functions[module->function_count];
    *added = (function){.name = emu_load_text(p->load, name->begin, name->length)};
    emu_add_symbol(p, name, SPACE_FUNCTION, (uint32_t)module->function_count++, 0);
    return added;
}

static void check_same(parser *p, const token *name, const function *known, const function *again) {
    bool same = known->results == again->results && known->formal_count == again->formal_count;
    for (int i = 0; same && i < known->formal_count; i++)
        same =
            known->formals[i].bytes == again->formals[i].bytes && known->formals[i].offset == again->formals[i].offset;
    if (!same)
        emu_load_fail(p->load, name->line, "function '%.*s' was declared with other parameters", shown_length(name),
                      name->begin);
}

void emu_parse_function(parser *p) {
    formal formals[MAX_FORMALS];
    function again = {.formals = formals};
    again.results = parse_formals(p, formals, 0, &again.formal_bytes);
    token name = emu_expect_name(p, "the name of the function");
    again.formal_count = parse_formals(p, formals, again.results, &again.formal_bytes);
    function *known = enter_function(p, &name);
    if (known->formals) check_same(p, &name, known, &again);
    while (now(p)->kind == TOKEN_DIRECTIVE) { /* .noreturn, .unique, .pragma "..." */
        bool pragma = token_is(now(p), ".pragma");
        next(p);
        while (pragma && now(p)->kind == TOKEN_STRING) next(p);
        if (pragma) emu_expect(p, ";");
    }
    const bool body = token_is(now(p), "{");
    if (body && known->defined)
        emu_load_fail(p->load, name.line, "function '%.*s' is defined twice", shown_length(&name), name.begin);
    if (body || !known->formals) {
        known->results = again.results;
        known->formal_count = again.formal_count;
        known->formal_bytes = again.formal_bytes;
        known->formals = emu_load_alloc(p->load, (size_t)(again.formal_count + 1) * sizeof *formals);
        if (again.formal_count) memcpy(known->formals, formals, (size_t)again.formal_count * sizeof *formals);
    }
    if (!body) {
        emu_expect(p, ";");
        return;
    }
    known->defined = true;
    known->visible = p->declaration_count;
    known->text = p->lex;
    if (!emu_lexer_skip_braces(&p->lex)) emu_unexpected(p, "an instruction or '}'");
}

void emu_parse_call_targets(parser *p) {
    do {
        token name = emu_expect_name(p, "the name of a function");
        int index = emu_lookup_symbol(p, &name);
        if (index < 0 || p->module->symbols[index].space != SPACE_FUNCTION)
            emu_load_fail(p->load, name.line, "unknown function '%.*s'", shown_length(&name), name.begin);
        if (p->module->functions[p->module->symbols[index].offset].defined) {
            int needed = emu_need_routine(p->decoder, (int)p->module->symbols[index].offset);
            p->code->routines[needed].address_taken = true;
        }
    } while (accept(p, ","));
    emu_expect(p, ";");
}

void emu_declare_formals(parser *p, const function *from, uint16_t *registers) {
    for (int i = 0; i < from->formal_count; i++) {
        const formal *each = &from->formals[i];
        if (each->in_register) {
            registers[i] = (uint16_t)emu_declare_register(p, each->name, each->length, each->bits);
        } else {
            const token name = {.begin = each->name, .length = each->length};
            emu_add_symbol(p, &name, SPACE_LOCAL, each->offset, each->bytes);
        }
    }
}
