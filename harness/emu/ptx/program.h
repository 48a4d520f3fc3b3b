/* program.h - a PTX text on its way to a program, and the program: types that the loading parts of the emulator share.
 *
 * lexer.c -> parser.c (statements with resolved names) -> decode.c by the table in forms.c (ops), one statement after
 * the other -> flow.c (reconvergence points, loops, register slots).
 */
#ifndef FL_EMU_PROGRAM_H
#define FL_EMU_PROGRAM_H

#include "../emu.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

enum {
    LANES = 32,
    MAX_WARPS = 32,
    MAX_PIECES = 16,   /* of an opcode: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 has 9 */
    MAX_OPERANDS = 16, /* registers of one op */
    NO_REGISTER = -1,
    SHARED_BASE = 1024 /* first byte of shared memory: what lies below is out of bounds, as on recent devices */
};

static const uint32_t ALL_LANES = 0xffffffffu;

typedef enum state_space {
    SPACE_GENERIC,
    SPACE_GLOBAL,
    SPACE_SHARED,
    SPACE_LOCAL,
    SPACE_CONST,
    SPACE_PARAM
} state_space;

/* ---- addresses as a program sees them: see memory.c ---- */

#define BUFFER_SHIFT 36
#define BUFFER_START 0x10000000ull
/* Generic addresses outside of global memory. */
#define CONST_WINDOW (1ull << 59)
#define SHARED_WINDOW (1ull << 60)
#define LOCAL_WINDOW (1ull << 61)
#define PARAM_WINDOW (1ull << 62)

/* ---- memory of a module: freed as a whole ---- */

typedef struct arena {
    struct arena_chunk *chunks;
    size_t used;
} arena;

/* Zeroed memory, of which only what is written takes pages where much is asked for; NULL when there is none. */
void *emu_arena_alloc(arena *memory, size_t bytes);
void emu_arena_free(arena *memory);

/* ---- loading: errors leave by longjmp to emu_load or emu_decode ---- */

typedef struct loader {
    emu_module *module;
    pthread_mutex_t lock; /* of what changes after emu_load: this loader and its parser, the arena, entries */
    emu_error *error;
    jmp_buf escape;
    struct parser *parser;
    uint16_t *first_form, *next_form; /* the table of forms by opcode */
} loader;

_Noreturn void emu_load_fail(loader *load, int line, const char *format, ...);
void *emu_load_alloc(loader *load, size_t bytes);
/* A larger copy of an array; the arena keeps the old one until the end. */
void *emu_load_larger(loader *load, const void *array, size_t count, size_t *capacity, size_t element_bytes);
/* The same once it is full. */
static inline void *load_grow(loader *load, void *array, size_t count, size_t *capacity, size_t element_bytes) {
    return count < *capacity ? array : emu_load_larger(load, array, count, capacity, element_bytes);
}
char *emu_load_text(loader *load, const char *begin, size_t length);

typedef enum token_kind {
    TOKEN_END,
    TOKEN_NAME,      /* identifiers, %registers */
    TOKEN_DIRECTIVE, /* .name */
    TOKEN_INTEGER,
    TOKEN_FLOAT32, /* 0f3F800000: value holds the bits */
    TOKEN_FLOAT64, /* 0d... or 1.5: value holds the bits of a double */
    TOKEN_STRING,
    TOKEN_MARK /* one character */
} token_kind;

typedef struct token {
    token_kind kind;
    const char *begin;
    uint32_t length;
    uint32_t prefix; /* of a name like "%r12": bytes ahead of the number that ends it, which value holds; else 0 */
    uint64_t value;
    int line;
} token;

typedef struct lexer {
    const char *at, *end;
    int line;
    bool ragged; /* white space was skipped that is not one blank */
    loader *load;
    token now;
} lexer;

void emu_lexer_start(lexer *lex, loader *load, const char *text, size_t bytes);
void emu_lexer_next(lexer *lex);
/* From the current "{" past the "}" that closes it; false at the end of the text where none does. */
bool emu_lexer_skip_braces(lexer *lex);
/* To the next mark of its kind, whatever stands before it, or to the end of the text. */
void emu_lexer_skip_to(lexer *lex, char mark);
/* Extend the current name to a whole opcode with its dots: "cp.async.cg.shared.global.L2::128B". */
void emu_lexer_extend_opcode(lexer *lex);
/* A comma right behind the current token, which is a name: no text ends in one. */
static inline bool lexer_take_comma(lexer *lex) {
    if (*lex->at != ',') return false;
    lex->at++;
    return true;
}
/* Behind the current token, without making tokens: three decimal numbers, a name, a text. False, and nothing is taken,
 * where something else stands there. emu_lexer_next() goes on behind them. */
bool emu_lexer_take_numbers(lexer *lex, uint32_t numbers[3]);
bool emu_lexer_take_name(lexer *lex);
bool emu_lexer_take(lexer *lex, const char *text, size_t length);
/* Whether a colon follows the current name: then it is a label; an opcode with :: has its dots first. */
bool emu_lexer_at_label(const lexer *lex);

static inline bool is_mark(const token *tok, char mark) {
    return tok->kind == TOKEN_MARK && *tok->begin == mark;
}
/* Inline, so that the length of a literal is known. */
static inline bool token_is(const token *tok, const char *text) {
    size_t length = strlen(text);
    if (tok->length != length || tok->kind == TOKEN_STRING || tok->kind == TOKEN_END) return false;
    return memcmp(tok->begin, text, length) == 0;
}

/* ---- parsed form ---- */

typedef enum register_kind { REGISTER_PLAIN, REGISTER_CONSTANT, REGISTER_SPECIAL } register_kind;

typedef enum special_register {
    SPECIAL_TID_X,
    SPECIAL_TID_Y,
    SPECIAL_TID_Z,
    SPECIAL_NTID_X,
    SPECIAL_NTID_Y,
    SPECIAL_NTID_Z,
    SPECIAL_CTAID_X,
    SPECIAL_CTAID_Y,
    SPECIAL_CTAID_Z,
    SPECIAL_NCTAID_X,
    SPECIAL_NCTAID_Y,
    SPECIAL_NCTAID_Z,
    SPECIAL_LANEID,
    SPECIAL_WARPID,
    SPECIAL_NWARPID,
    SPECIAL_LANEMASK_EQ,
    SPECIAL_LANEMASK_LE,
    SPECIAL_LANEMASK_LT,
    SPECIAL_LANEMASK_GE,
    SPECIAL_LANEMASK_GT,
    SPECIAL_SMID,
    SPECIAL_NSMID,
    SPECIAL_GRIDID,
    SPECIAL_DYNAMIC_SHARED,
    SPECIAL_TOTAL_SHARED,
    SPECIAL_COUNT
} special_register;

/* A virtual register of an entry, a constant, or a special register. bits: 1 for predicates, else 16, 32, 64, 128. */
typedef struct virtual_register {
    const char *prefix;
    uint64_t value; /* number in its name, bits of a constant, or special_register */
    uint16_t slot;
    uint8_t kind, bits;
    int16_t tracked; /* index of the word that knows its written lanes; -1: always written before it is read */
} virtual_register;

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

typedef struct symbol {
    const char *name;
    state_space space;
    bool entry_param;
    uint32_t offset; /* in its space, of the module or of the entry */
    uint64_t bytes;
} symbol;

typedef struct location {
    const char *file;
    int line, column;
    int parent; /* location of the call this was inlined at, -1 for none */
    int older;  /* location of the same place that was inlined elsewhere, -1 for none */
} location;

/* The space of a modifier such as "shared::cta"; generic where it names none. */
state_space emu_find_space(const char *modifier);

/* The type modifiers of PTX. */
typedef struct type_info {
    const char *name;
    uint8_t bits;
    char family; /* 'b', 'u', 's', 'f', 'p' (predicate), 'h' (f16), 'g' (bf16), 'H', 'G' (x2) */
} type_info;

const type_info *emu_find_type(const char *name);

typedef struct form_match {
    const char *chosen[MAX_PIECES]; /* by token of the form's modifiers; NULL where an optional one is absent */
    int chosen_count;
    const type_info *types[4]; /* type modifiers in order */
    int type_count;
    state_space space;                      /* of the first modifier that names one */
    uint8_t vector;                         /* elements: 2 and 4 with .v2 and .v4, else 1 */
    uint8_t operand_count, operand_bits[5]; /* of a row with a lane function; 0 bits for the table of lop3 */
} form_match;

typedef void lane_function(void *d, const void *a, const void *b, const void *c);

/* The steps of a cvt and the bits of what each gives. */
typedef struct conversion {
    lane_function *steps[3];
    uint8_t bits[3];
    int count;
} conversion;

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

typedef struct instruction {
    const char *text, *group;
    int line;
    int location; /* -1 for none */
    int region;
} instruction;

typedef struct label {
    const char *name; /* in the text */
    uint32_t length;
    int scope;
    uint32_t op;
} label;

struct op;

typedef enum entry_state { ENTRY_UNREAD, ENTRY_READY, ENTRY_REFUSED } entry_state;

typedef struct entry {
    emu_entry_info info;
    uint32_t required_threads[3]; /* .reqntid, or 0 */
    /* what emu_load leaves for emu_decode: where the body begins and what it sees of the module */
    entry_state state;
    emu_error refusal; /* of an entry that was refused */
    lexer body;
    size_t body_bytes;
    size_t first_param; /* symbol */
    size_t visible;     /* declarations of the module ahead of the entry */
    uint32_t module_shared_bytes;
    /* parsed */
    instruction *instructions;
    size_t instruction_count, instruction_capacity;
    label *labels;
    size_t label_count;
    int *scope_parents;
    int scope_count;
    virtual_register *registers; /* those that occur in an instruction */
    size_t register_count, register_capacity;
    uint32_t local_bytes;  /* of one thread */
    uint32_t shared_bytes; /* static, its own and the module's */
    location *locations;
    size_t location_count;
    const uint8_t *variables; /* initial bytes of .global and .const variables */
    uint32_t variable_bytes;
    /* decoded */
    struct op *ops;
    size_t op_count, op_capacity;
    uint16_t (*names)[16];       /* virtual registers of each op, for messages: ops hold slots */
    uint16_t *predicate_names;   /* virtual register of each predicate */
    int16_t *predicates_tracked; /* like virtual_register.tracked */
    uint32_t slot_count, constant_slots, predicate_count, tracked_count, special_slots[SPECIAL_COUNT];
    uint32_t granule_bytes; /* narrowest access to shared memory: unit of the shadow */
    bool needs_clocks;      /* has barriers of a part of the CTA: threads need their own clocks */
    emu_region *regions;
    size_t region_count;
} entry;

struct emu_module {
    arena memory;
    loader *load;
    entry *entries;
    size_t entry_count;
    symbol *symbols;
    size_t symbol_count;
    uint8_t *variables; /* of the module and of the bodies parsed so far; a launch sees those of its entry */
    uint32_t variable_bytes;
};

/* All but the bodies of entries. */
void emu_parse_module(loader *load, const char *text, size_t bytes);
/* The body, which is decoded on the way. */
void emu_parse_entry_body(loader *load, entry *code);
void emu_analyse_flow(loader *load, entry *code);
emu_place emu_place_of(const entry *code, uint32_t instruction_index);
/* A new register of an entry; refused by line where there are too many. */
uint16_t emu_add_register(loader *load, entry *code, int line, virtual_register reg);
/* "%r12", "0x10", "%tid.x": the name of a register for messages. */
void emu_register_name(const virtual_register *reg, char *out, size_t bytes);

/* ---- decoded form ---- */

typedef uint32_t compare_function(const void *a, const void *b, uint32_t wanted);

typedef enum op_kind {
    OP_LANES,     /* r[0] = lanes(r[1], r[2], r[3]) */
    OP_LANES_4,   /* r[0] = lanes(r[1], r[2], {r[3], r[4]}): the last two side by side */
    OP_COMPARE,   /* p[0] (and p[1], the opposite) = compare(r[0], r[1], immediate) combined with p[2] */
    OP_SELECT,    /* r[0] = p[2] ? r[1] : r[2] */
    OP_PREDICATE, /* p[0] = p[1] op p[2] */
    OP_BRANCH,
    OP_JOIN,
    OP_EXIT,
    OP_TRAP,
    OP_CALL,
    OP_LOAD,
    OP_STORE,
    OP_ATOMIC,
    OP_LDMATRIX,
    OP_MMA,
    OP_COPY_ASYNC,
    OP_COPY_COMMIT,
    OP_COPY_WAIT,
    OP_COPY_ARRIVE,
    OP_BARRIER,
    OP_WARP_BARRIER,
    OP_SHUFFLE,
    OP_VOTE,
    OP_ACTIVE_MASK,
    OP_REDUX,
    OP_MATCH,
    OP_MBARRIER_INIT,
    OP_MBARRIER_ARRIVE,
    OP_MBARRIER_WAIT,
    OP_MBARRIER_INVALIDATE,
    OP_NOTHING
} op_kind;

enum { NO_PREDICATE = 0xffff };

enum op_flags {
    FLAG_GUARD_NEGATED = 1,
    FLAG_FIRST = 2,        /* first op of its instruction: this one counts */
    FLAG_WIDE_ADDRESS = 4, /* the address register has 64 bits */
    FLAG_SIGNED = 8,
    FLAG_TRANSPOSE = 16,
    FLAG_TRACKED = 32, /* reads or writes a register whose written lanes are known at run time only */
    FLAG_PREDICATE_NEGATED = 64,
    FLAG_COPY = 128 /* moves a value without looking at it: not-written lanes pass through */
};

typedef struct op {
    union {
        lane_function *lanes;
        compare_function *compare;
    } run;
    uint8_t kind, flags;
    uint8_t dests, sources;   /* r[0 .. dests) are written, the next sources are read */
    uint8_t space, detail;    /* state_space; meaning by kind (enums below) */
    uint8_t bytes, vector;    /* memory: bytes of an element, elements */
    uint16_t guard;           /* predicate or NO_PREDICATE */
    uint16_t p[3];            /* predicates, NO_PREDICATE where absent: p[0] is written, p[2] read; p[1] see op_kind */
    uint16_t r[MAX_OPERANDS]; /* virtual registers until flow.c gives slots */
    uint32_t instruction;
    int32_t target, join; /* branch: op indexes; join -1 for none */
    int64_t immediate;    /* offset of an address, shape of an mma, ... */
} op;

enum compare_combine { COMBINE_NONE, COMBINE_AND, COMBINE_OR, COMBINE_XOR };
enum predicate_operation { PREDICATE_MOVE, PREDICATE_NOT, PREDICATE_AND, PREDICATE_OR, PREDICATE_XOR };
enum mma_detail { MMA_F16, MMA_BF16, MMA_F16_ACCUMULATE };
enum shuffle_mode { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_BFLY, SHUFFLE_IDX };
enum vote_mode { VOTE_ANY, VOTE_ALL, VOTE_UNI, VOTE_BALLOT };
enum barrier_mode { BARRIER_SYNC, BARRIER_ARRIVE, BARRIER_RED_AND, BARRIER_RED_OR, BARRIER_RED_POPC };
enum mbarrier_detail { MBARRIER_STATE, MBARRIER_PARITY, MBARRIER_BLOCKING = 2 };
enum atomic_operation {
    ATOMIC_ADD,
    ATOMIC_MIN,
    ATOMIC_MAX,
    ATOMIC_AND,
    ATOMIC_OR,
    ATOMIC_XOR,
    ATOMIC_EXCH,
    ATOMIC_CAS,
    ATOMIC_FLOAT_ADD
};
enum call_target { CALL_PRINTF, CALL_ASSERT };

/* ---- table of forms ---- */

struct decoder;
typedef void decode_function(struct decoder *dec, const form_match *match);

typedef struct form {
    emu_form row;
    decode_function *decode;
    lane_function *lanes;
} form;

extern const form emu_form_table[];
extern const size_t emu_form_count;
void emu_index_forms(loader *load);
/* The form of an instruction; leaves by load_fail with a reason when there is none. */
const form *emu_find_form(loader *load, const statement *in, form_match *match);

/* decode_*.c: what the table's rows name */
decode_function emu_decode_lanes, emu_decode_compare, emu_decode_select, emu_decode_predicate, emu_decode_move,
    emu_decode_convert, emu_decode_load, emu_decode_store, emu_decode_atomic, emu_decode_reduction, emu_decode_ldmatrix,
    emu_decode_mma, emu_decode_copy_async, emu_decode_copy_commit, emu_decode_copy_wait, emu_decode_copy_arrive,
    emu_decode_barrier, emu_decode_warp_barrier, emu_decode_shuffle, emu_decode_vote, emu_decode_active_mask,
    emu_decode_redux, emu_decode_match, emu_decode_mbarrier_init, emu_decode_mbarrier_arrive, emu_decode_mbarrier_wait,
    emu_decode_mbarrier_invalidate, emu_decode_branch, emu_decode_exit, emu_decode_trap, emu_decode_call,
    emu_decode_nothing, emu_decode_address_convert, emu_decode_is_space;

/* *wanted: what the function is called with, and what an OP_COMPARE keeps as its immediate. */
compare_function *emu_find_compare(const char *comparison, const type_info *type, bool ftz, uint8_t *wanted);

bool emu_find_conversion(const char *rounding, bool ftz, const type_info *to, const type_info *from, conversion *way);

/* alu.c, float.c, half.c: found by name in the table of forms, and used by decode_*.c */
#include "lanes.h"

#endif
