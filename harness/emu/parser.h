/* parser.h - the state of reading one PTX text, and what the parts of the parser share.
 *
 * parser.c reads statements and entries, declarations.c names, registers, variables and line information, operands.c
 * operands. Whatever is not understood is refused by line: no function here returns without what it is named for.
 */
#ifndef FL_EMU_PARSER_H
#define FL_EMU_PARSER_H

#include "program.h"

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
    size_t declaration_count, declaration_capacity, module_declarations;
    int heads[HASH_SIZE];
    bool own_names; /* something other than a range has a name that begins with '%' */
    opcode *opcodes[OPCODE_HASH];
    size_t scope_marks[MAX_SCOPE_DEPTH];
    int scope_depth, scope;
    size_t entry_capacity, symbol_capacity, location_capacity, instruction_capacity, label_capacity, register_capacity,
        scope_capacity, variable_capacity;
    const char *files[256];
    int current_location;
    uint32_t module_shared_bytes;
} parser;

static inline token *now(parser *p) {
    return &p->lex.now;
}
static inline void next(parser *p) {
    lexer_next(&p->lex);
}
static inline bool accept(parser *p, const char *text) {
    if (!token_is(now(p), text)) return false;
    next(p);
    return true;
}
static inline int shown_length(const token *tok) {
    return tok->length > 60 ? 60 : (int)tok->length;
}

/* parser.c */
_Noreturn void unexpected(parser *p, const char *wanted);
void expect(parser *p, const char *text);
uint64_t expect_integer(parser *p);
/* `what` names the number in the refusal of one that is above the limit. */
uint32_t expect_small(parser *p, uint64_t limit, const char *what);
token expect_name(parser *p, const char *what);

/* declarations.c */
uint32_t hash_name(const char *name, uint32_t length);
int lookup_register(const parser *p, const token *name);
int lookup_symbol(const parser *p, const token *name);
void open_scope(parser *p);
void close_scope(parser *p);
void declare(parser *p, const char *name, uint32_t length, declared what, uint32_t index, uint32_t count);
/* Forget all but the first declarations. */
void undeclare(parser *p, size_t first);
uint32_t align_up(uint32_t value, uint32_t alignment);
const type_info *expect_type(parser *p);
uint32_t add_symbol(parser *p, const token *name, state_space space, uint32_t offset, uint64_t bytes);
void parse_reg(parser *p);
void parse_variable(parser *p, state_space space, bool external);
void parse_file(parser *p);
void parse_loc(parser *p);
/* Until its end, the locations of a body hold the numbers of files. */
void name_files(parser *p);

/* operands.c: depth counts the vectors and lists around it. */
void parse_operand(parser *p, operand *out, int depth);

#endif
