/* statement.h - one statement of a body between the parser, which resolves its names, and the decoder. */
#ifndef FL_EMU_STATEMENT_H
#define FL_EMU_STATEMENT_H

#include "lanes.h"
#include "token.h"
#include "types.h"

enum { MAX_PIECES = 16 /* of an opcode: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 has 9 */ };

typedef enum operand_kind {
    OPERAND_REGISTER,
    OPERAND_SPECIAL,
    OPERAND_INTEGER,
    OPERAND_FLOAT32,
    OPERAND_FLOAT64,
    OPERAND_SYMBOL,
    OPERAND_LABEL,
    OPERAND_ADDRESS,
    OPERAND_VECTOR,
    OPERAND_SINK,
    OPERAND_LIST
} operand_kind;

typedef struct operand {
    uint8_t kind;
    bool negated;   /* !%p */
    uint8_t count;  /* of items */
    int32_t reg;    /* register; base of an address or NO_REGISTER */
    int32_t second; /* %p of "d|%p", else NO_REGISTER */
    int32_t symbol; /* index, base of an address, or -1 */
    int64_t value;  /* bits of a literal, offset of an address, special_register, scope of a label */
    union {
        const char *name;      /* label or function, in the text */
        struct operand *items; /* of a vector or a parenthesised list */
    };
    uint32_t length; /* of the name */
} operand;

typedef struct form_match {
    const char *chosen[MAX_PIECES]; /* by token of the form's modifiers; NULL where an optional one is absent */
    int chosen_count;
    const type_info *types[4]; /* type modifiers in order */
    int type_count;
    state_space space;                      /* of the first modifier that names one */
    uint8_t vector;                         /* elements: 2, 4 and 8 with .v2, .v4 and .v8, else 1 */
    bool flushes;                           /* .ftz where the row has it as "ftz?": its function does not flush */
    uint8_t operand_count, operand_bits[5]; /* of a row with a lane function; 0 bits for the table of lop3 */
    op_kind kind;                           /* of the row, as are the operands */
    const char *operands;
} form_match;

/* An opcode with its modifiers, as written; instructions that read alike share one, and its form is looked up once. */
typedef struct opcode {
    const char **pieces; /* opcode and modifiers */
    const char *text;
    uint32_t length;
    uint8_t piece_count;
    const struct form *form;
    form_match match;
    conversion way; /* of a cvt, once it was looked up: else without steps */
    struct opcode *next;
} opcode;

/* One statement while it is decoded: what is kept of it are its ops and an instruction. */
typedef struct statement {
    int line;
    const char *text; /* with every run of white space as one blank */
    opcode *opcode;
    bool guard_negated;
    int32_t guard; /* predicate register or NO_REGISTER */
    const operand *operands;
    uint8_t operand_count;
} statement;

typedef struct label {
    const char *name; /* in the text */
    uint32_t length;
    int scope, line;
    uint32_t op;
} label;

/* A parameter or a result of a function, in its frame. */
typedef struct formal {
    const char *name; /* in the text */
    uint32_t length, offset, bytes;
    uint8_t bits;     /* of an element */
    bool in_register; /* .reg: it is copied from there or to there */
} formal;

/* A .func of a module. An entry that may call it decodes a copy of its own. */
typedef struct function {
    const char *name;
    formal *formals; /* results, then parameters */
    int results, formal_count;
    uint32_t formal_bytes;
    bool defined;   /* it has a body */
    bool in_data;   /* its address is an initial value */
    lexer text;     /* at its first brace */
    size_t visible; /* declarations of the module ahead of the body */
} function;

/* The labels of a .branchtargets, which has a label itself. */
typedef struct branch_table {
    label own;
    operand *targets; /* labels */
    int count;
    struct branch_table *next;
} branch_table;

/* A body while it is loaded: what emu_load leaves for emu_decode, and what decoding needs of it. */
typedef struct entry_body {
    lexer text; /* at its first brace */
    size_t bytes;
    size_t first_param; /* symbol */
    size_t visible;     /* declarations of the module ahead of the entry */
    uint32_t module_shared_bytes;
    label *labels;
    size_t label_count;
    branch_table *tables; /* the last one first */
    int *scope_parents;
    int scope_count;
} entry_body;

#endif
