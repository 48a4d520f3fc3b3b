/* reader.h - the state of reading one PTX text, and how tokens are taken from it.
 *
 *     token name = emu_expect_name(p, "a register name");
 *     if (accept(p, "=")) value = emu_expect_integer(p);
 *     expect_mark(p, ';');
 *
 * Whatever is not understood is refused by line: no function of the parser returns without what it is named for.
 */
#ifndef FL_EMU_READER_H
#define FL_EMU_READER_H

#include "lexer.h"
#include "statement.h"

enum {
    HASH_SIZE = 512,
    OPCODE_HASH = 256,
    LINE_HASH = 256,
    RECENT = 16,
    LOC_HASH = 64,
    MAX_SCOPE_DEPTH = 64,
    MAX_FILES = 256,
    MAX_ITEMS = 128,
    MAX_BRANCH_TARGETS = 1024,
    MAX_STATEMENT_OPERANDS = 16
};

typedef enum declared { DECLARED_REGISTER, DECLARED_VECTOR, DECLARED_RANGE, DECLARED_SYMBOL } declared;

typedef struct declaration {
    const char *name;
    uint32_t length;
    declared what;
    uint32_t index, count; /* of a symbol; how many registers or elements there are */
    uint8_t bits;          /* of a register */
    bool external;         /* a definition may follow */
    const char *prefix;    /* a copy of the name of registers */
    uint16_t *registers;   /* in the entry, by number in the range; 0 for those that have not occurred */
    uint32_t bucket;
    int next;
} declaration;

/* A range that was named lately by a prefix of two or three bytes, such as "%rd"; empty where the prefix is 0. */
typedef struct recent_range {
    const char *name;
    uint32_t prefix;
    int declaration;
} recent_range;

/* A line and column of a source file: the same line may be inlined at several calls. */
typedef struct source_line {
    uint32_t file, line, column;
    int newest, latest; /* locations: the one added last, and the one named last; or -1 */
    int next;           /* index in the same bucket, or -1 */
} source_line;

/* A line of .loc that was read before: it means the same again, as long as the call it was inlined at does. */
typedef struct known_loc {
    const char *text;
    size_t length;
    int location, line_index;
    int parent, caller; /* location and source line of the call, -1 for none */
} known_loc;

typedef struct parser {
    lexer lex;
    loader *load;
    emu_module *module;
    entry *code; /* the entry being read, or NULL at module scope */
    declaration *declarations;
    size_t declaration_count, declaration_capacity, module_declarations;
    int heads[HASH_SIZE];
    recent_range recent[RECENT];
    bool own_names; /* something other than a range has a name that begins with '%' */
    opcode *opcodes[OPCODE_HASH];
    size_t scope_marks[MAX_SCOPE_DEPTH];
    int scope_depth, scope;
    size_t entry_capacity, function_capacity, symbol_capacity, location_capacity, label_capacity, scope_capacity,
        variable_capacity, source_line_capacity;
    uint32_t declared_registers; /* of the entry */
    bool references;             /* the module uses .texref or .surfref */
    const char *files[MAX_FILES];
    source_line *source_lines;
    size_t source_line_count;
    int line_heads[LINE_HASH];
    known_loc locs[LOC_HASH];
    int current_location;
    uint32_t module_shared_bytes, dynamic_alignment; /* of all dynamic shared variables so far, as ptxas does it */
    struct decoder *decoder;                         /* of the entry */
    /* of the statement that is read */
    operand operands[MAX_STATEMENT_OPERANDS], items[MAX_STATEMENT_OPERANDS * MAX_ITEMS];
    size_t item_count;
} parser;

static inline token *now(parser *p) {
    return &p->lex.now;
}
static inline void next(parser *p) {
    emu_lexer_next(&p->lex);
}
static inline bool accept(parser *p, const char *text) {
    if (!token_is(now(p), text)) return false;
    next(p);
    return true;
}
static inline int shown_length(const token *tok) {
    return tok->length > 60 ? 60 : (int)tok->length;
}

_Noreturn void emu_unexpected(parser *p, const char *wanted);
_Noreturn void emu_unexpected_mark(parser *p, char wanted);
static inline void expect_mark(parser *p, char mark) {
    if (!is_mark(now(p), mark)) emu_unexpected_mark(p, mark);
    next(p);
}
void emu_expect(parser *p, const char *text);
uint64_t emu_expect_integer(parser *p);
/* `what` names the number in the refusal of one that is above the limit. */
uint32_t emu_expect_small(parser *p, uint64_t limit, const char *what);
token emu_expect_name(parser *p, const char *what);

#endif
