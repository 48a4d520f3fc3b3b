/* program.h - a loaded program: what decoding leaves and the machine runs.
 *
 *     const op *first = &module->entries[0].ops[0];
 *     emu_location location = emu_location_of(&module->entries[0], first->instruction);
 *
 * The loader fills it in (loader.h), entry by entry; from then on nothing in it changes.
 */
#ifndef FL_EMU_PROGRAM_H
#define FL_EMU_PROGRAM_H

#include "../emu.h"

enum {
    LANES = 32,
    MAX_WARPS = 32,
    MAX_OPERANDS = 16, /* registers of one op */
    NO_REGISTER = -1,
    CTA_SHIFT = 24,  /* an address in shared memory: the rank of its CTA above, the address in that CTA below */
    MAX_CLUSTER = 16 /* CTAs */
};

static const uint32_t ALL_LANES = 0xffffffffu;

typedef enum state_space {
    SPACE_GENERIC,
    SPACE_GLOBAL,
    SPACE_SHARED,
    SPACE_LOCAL,
    SPACE_CONST,
    SPACE_PARAM,
    SPACE_FUNCTION, /* of addresses of functions only */
    SPACE_CLUSTER   /* shared memory of any CTA of the cluster */
} state_space;

/* ---- addresses as a program sees them: see memory.c ---- */

#define BUFFER_SHIFT 36
#define BUFFER_START 0x10000000ull
/* Memory of a cooperative launch for the barrier of its grid: a size and a count, of 4 bytes each. */
#define GRID_BARRIER 0x0fff0000ll
/* Generic addresses outside of global memory. */
#define FUNCTION_WINDOW (1ull << 58)
#define CONST_WINDOW (1ull << 59)
#define SHARED_WINDOW (1ull << 60)
#define LOCAL_WINDOW (1ull << 61)
#define PARAM_WINDOW (1ull << 62)

/* ---- registers and variables ---- */

typedef enum register_kind {
    REGISTER_PLAIN,
    REGISTER_CONSTANT,
    REGISTER_SHARED_ADDRESS, /* a constant to which each CTA adds its rank, from bit CTA_SHIFT on */
    REGISTER_SPECIAL
} register_kind;

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
    SPECIAL_CLUSTERID_X,
    SPECIAL_CLUSTERID_Y,
    SPECIAL_CLUSTERID_Z,
    SPECIAL_NCLUSTERID_X,
    SPECIAL_NCLUSTERID_Y,
    SPECIAL_NCLUSTERID_Z,
    SPECIAL_CLUSTER_CTAID_X,
    SPECIAL_CLUSTER_CTAID_Y,
    SPECIAL_CLUSTER_CTAID_Z,
    SPECIAL_CLUSTER_NCTAID_X,
    SPECIAL_CLUSTER_NCTAID_Y,
    SPECIAL_CLUSTER_NCTAID_Z,
    SPECIAL_CLUSTER_CTARANK,
    SPECIAL_CLUSTER_NCTARANK,
    SPECIAL_IS_EXPLICIT_CLUSTER, /* a predicate */
    /* those that change while a warp runs: see OP_CLOCK */
    SPECIAL_CLOCK,
    SPECIAL_CLOCK_HI,
    SPECIAL_CLOCK64,
    SPECIAL_GLOBALTIMER,
    SPECIAL_GLOBALTIMER_LO,
    SPECIAL_GLOBALTIMER_HI,
    /* constants of an entry: addresses in the memory that it keeps for the driver */
    SPECIAL_RESERVED_BEGIN,
    SPECIAL_RESERVED_END,
    SPECIAL_RESERVED_CAP,
    SPECIAL_RESERVED_0,
    SPECIAL_RESERVED_1,
    SPECIAL_COUNT
} special_register;

/* A virtual register of an entry, a constant, or a special register. bits: 1 for predicates, else 16, 32, 64, 128. */
typedef struct virtual_register {
    const char *prefix;
    uint64_t value; /* number in its name, bits of a constant, or special_register */
    uint16_t slot;
    uint8_t kind, bits;
} virtual_register;

typedef struct symbol {
    const char *name;
    state_space space;
    bool entry_param;
    uint32_t buffer; /* of a variable: that of its module */
    uint32_t offset; /* in its space, of the module, of the entry or of the frame of a function; of a function: index */
    uint64_t bytes;
    const char *type; /* of an element; NULL for a parameter */
} symbol;

/* ---- instructions ---- */

typedef struct location {
    emu_frame frame;
    const emu_frame *own; /* see emu_location */
    int column;
    int parent; /* location of the call this was inlined at, -1 for none */
    int older;  /* location of the same source line that was inlined elsewhere, -1 for none */
} location;

typedef struct instruction {
    const char *text, *group;
    int line;
    int location; /* -1 for none */
    int region;
} instruction;

/* ---- ops: what an instruction does ---- */

typedef void lane_function(void *d, const void *a, const void *b, const void *c);
typedef uint32_t compare_function(const void *a, const void *b, uint32_t wanted);

/* Operation of an op: those of forms_table.h. */
typedef enum op_kind {
#define OP_ROW(kind, lanes, handler, text) kind,
#include "forms_table.h"
    OP_KINDS
} op_kind;

/* The lanes that must come together before an operation is executed. */
enum op_lanes {
    LANES_EACH,      /* whichever are there */
    LANES_WARP,      /* all of the warp */
    LANES_WARPGROUP, /* likewise, and the op may wait for other warps */
    LANES_LIVE,      /* those of the warp that have not ended */
    LANES_ALIGNED,   /* likewise, unless `vector` of the op is set */
    LANES_NAMED      /* those in the member mask, which is the last source of the op */
};

enum { NO_PREDICATE = 0xffff };

enum op_flags {
    FLAG_GUARD_NEGATED = 1,
    FLAG_FIRST = 2,        /* first op of its instruction: this one counts */
    FLAG_WIDE_ADDRESS = 4, /* the address register has 64 bits */
    FLAG_SIGNED = 8,
    FLAG_TRANSPOSE = 16, /* of matrices */
    FLAG_PASSES = 32,    /* a parameter or result of a function */
    FLAG_PREDICATE_NEGATED = 64,
    FLAG_ORDERS = 128,    /* an access that is .relaxed, .acquire or .release: see check/flags.c */
    FLAG_MAY_ORDER = 256, /* an access that is .volatile, or an atomic without an order: FLAG_ORDERS with a fence */
    FLAG_UNHEEDED = 512,  /* a wait at an mbarrier whose answer nothing reads */
    FLAG_CONSTANT = 1024, /* a load that no fence orders after stores of the kernel: .nc, .const or of a texture */
    FLAG_GUESS = 2048     /* a plain load for an atom.cas there, which finds out if the value is an old one */
};

typedef struct op {
    union {
        lane_function *lanes;
        compare_function *compare;
    } run;
    uint8_t kind, order;      /* order: access_order, of accesses and fences */
    uint8_t dests, sources;   /* r[0 .. dests) are written, the next sources are read */
    uint8_t space, detail;    /* state_space; meaning by kind (enums below) */
    uint8_t bytes, vector;    /* memory: bytes of an element, elements; vector of a barrier: 1 without .aligned */
    uint16_t guard;           /* predicate or NO_PREDICATE */
    uint16_t p[3];            /* predicates, NO_PREDICATE where absent: p[0] is written, p[2] read; p[1] see op_kind */
    uint16_t r[MAX_OPERANDS]; /* virtual registers until flow.c gives slots */
    uint32_t instruction;
    int32_t target, join; /* branch: op indexes; join -1 for none; atomic: target is an atomic_numbers */
    bool asks;            /* gives what other threads may have written meanwhile: see schedule.c */
    uint16_t flags;       /* op_flags */
    int64_t immediate;    /* offset of an address, ... */
} op;

/* Meaning of a memory access to other threads. An atomic without an order is .relaxed, as .volatile is. */
enum access_order {
    ORDER_STRONG = 1,
    ORDER_ACQUIRE = 2,
    ORDER_RELEASE = 4,
    ORDER_CTA = 8,     /* in the CTA only */
    ORDER_SC = 16,     /* of a fence */
    ORDER_CLUSTER = 32 /* in the cluster only */
};
enum compare_combine { COMBINE_NONE, COMBINE_AND, COMBINE_OR, COMBINE_XOR };
enum rounding { ROUND_NEAREST, ROUND_ZERO, ROUND_DOWN, ROUND_UP };
enum carry_operation { CARRY_ADD, CARRY_SUB, CARRY_MAD_LO, CARRY_MAD_HI };
enum predicate_operation { PREDICATE_MOVE, PREDICATE_NOT, PREDICATE_AND, PREDICATE_OR, PREDICATE_XOR };
enum mma_detail { MMA_F16, MMA_BF16, MMA_F16_ACCUMULATE };
enum bulk_detail {
    BULK_STORE = 1, /* from shared memory to global */
    BULK_TENSOR = 2,
    BULK_MULTICAST = 4,    /* to the CTAs that a mask names, its last register */
    BULK_BETWEEN_CTAS = 8, /* from shared memory to that of a CTA of the cluster */
    BULK_VALUES = 16,      /* st.async and red.async: `vector` registers after the mbarrier */
    BULK_PAIR = 64,        /* .cta_group::2: the mbarrier may be in the other CTA of the pair */
    BULK_GATHERS = 128,    /* .tile::gather4 or ::scatter4: five coordinates, of four rows */
    BULK_REDUCES = 32      /* elements of `bytes`, by the atomic_numbers and atomic_operation in target */
};
enum texture_form { TEXTURE_1D, TEXTURE_2D, TEXTURE_3D, TEXTURE_A1D, TEXTURE_A2D, TEXTURE_CUBE };
enum texture_detail { TEXTURE_INDEXED = 1 /* coordinates are integers */ };
/* Beyond an edge: an error, the element at the edge, or zeros and no store. */
enum surface_detail { SURFACE_TRAPS, SURFACE_CLAMPS, SURFACE_ZEROS, SURFACE_STORES = 4 };
enum tensor_field {
    FIELD_ADDRESS,
    FIELD_RANK,
    FIELD_BOX,
    FIELD_SIZE,
    FIELD_STRIDE,
    FIELD_ELEMENT_STRIDE,
    FIELD_ELEMENT,
    FIELD_INTERLEAVE,
    FIELD_SWIZZLE,
    FIELD_FILL
};
enum { MATRIX_OF_BYTES = 16 /* detail of an OP_LDMATRIX or OP_STMATRIX: transposed bytes, not halves */ };
enum cluster_barrier_detail { CLUSTER_ARRIVE, CLUSTER_ARRIVE_RELAXED, CLUSTER_WAIT };
enum wgmma_detail {
    WGMMA_A_REGISTERS = 1, /* else a descriptor, as for B */
    WGMMA_TRANSPOSE_A = 2, /* the rows of M or N are contiguous, not those of K */
    WGMMA_TRANSPOSE_B = 4,
    WGMMA_NEGATE_A = 8,
    WGMMA_NEGATE_B = 16,
    WGMMA_ADDS = 32 /* to the accumulators, where no predicate says so */
};
/* An OP_WGMMA has the matrix_numbers of A and B in `bytes`, a half byte each. Its registers: the accumulators, four of
 * f32 or two of f16; B, A, and the accumulators once more if they are read. Sources are counted from 0. */
enum wgmma_source { WGMMA_B, WGMMA_A };
/* ---- tcgen05: tensor memory and the tensor core of sm_100 ---- */

enum { TENSOR_LANES = 128, TENSOR_COLUMNS = 512 };
enum tensor_alloc_detail { TENSOR_ALLOC, TENSOR_DEALLOC, TENSOR_RELINQUISH };
enum tensor_shape { SHAPE_32X32, SHAPE_16X64, SHAPE_16X128, SHAPE_16X256, SHAPE_16X32X2 };
/* An OP_TENSOR_LOAD or OP_TENSOR_STORE moves `vector` registers, from number `target` of its instruction on; its shape
 * in `detail`, and for the halves of 16x32bx2 how many columns they are apart in `immediate`. */
enum { TENSOR_PACKED = 8 /* in detail: a register holds 16 bits of two columns */ };
enum tensor_fence_detail { FENCE_BEFORE_SYNC, FENCE_AFTER_SYNC };
/* An OP_TENSOR_MMA: a tensor_kind in `bytes`, scales of a row in `vector`, scale-input-d in `immediate`, whether D is
 * added in p[2]. Its sources: D, A, B, the instruction descriptor, then as `detail` says. */
enum tensor_kind { KIND_F16, KIND_TF32, KIND_F8F6F4, KIND_I8, KIND_MXF8F6F4, KIND_MXF4, KIND_MXF4NVF4 };
enum tensor_detail {
    TENSOR_PAIR = 1,        /* .cta_group::2 */
    TENSOR_A_THERE = 2,     /* A is in tensor memory */
    TENSOR_SPARSE = 4,      /* a source: where the indices of the elements of A are */
    TENSOR_SCALED = 8,      /* two sources: where the scales of A and of B are */
    TENSOR_MASKED = 16,     /* four or eight sources: lanes of D that are left alone, by bit */
    TENSOR_STATIONARY = 32, /* .ws */
    TENSOR_SHIFTED = 64     /* .ashift: each row of A is that of the lane before */
};
/* An OP_TENSOR_COPY: a tensor_copy_shape in `vector`, bits of an element in `bytes`. */
enum tensor_copy_shape { COPY_128X256, COPY_4X256, COPY_128X128, COPY_64X128_02_13, COPY_64X128_01_23, COPY_32X128 };
enum { TENSOR_MULTICAST = 2 /* detail of an OP_TENSOR_COMMIT: its last source is a mask of CTAs */ };

/* Numbers of 8, 6 and 4 bits, as the descriptor of tcgen05.mma counts them. An OP_NARROW has those of A and B in
 * `detail`, a half byte each, 1 in `bytes` for m16n8k64, the scales of a row in `vector`, and 1 in `immediate` for
 * ue8m0. The OP_FACTORS before it has A, B, and for A and for B a word of scales, its first byte and its first lane. */
enum narrow_number { NARROW_E4M3, NARROW_E5M2, NARROW_E2M3 = 3, NARROW_E3M2, NARROW_E2M1 };

/* Operands of an OP_MATRIX: types of A and B in `detail`, of C and D in `bytes`, a half byte each; `vector` registers
 * are A's. An OP_WMMA_LOAD or OP_WMMA_STORE has its type in `detail` and a matrix_part in `vector`. All have the shape
 * in `target`. */
enum matrix_numbers {
    MATRIX_F16,
    MATRIX_BF16,
    MATRIX_TF32,
    MATRIX_F32,
    MATRIX_F64,
    MATRIX_S32,
    MATRIX_S8,
    MATRIX_U8,
    MATRIX_S4,
    MATRIX_U4,
    MATRIX_B1,
    MATRIX_E4M3,
    MATRIX_E5M2
};
typedef enum matrix_part { MATRIX_A, MATRIX_B, MATRIX_C, MATRIX_D } matrix_part;
typedef struct matrix_shape {
    uint16_t m, n, k;
} matrix_shape;
static inline int32_t matrix_pack_shape(matrix_shape shape) {
    return shape.m | shape.n << 8 | shape.k << 16;
}
static inline matrix_shape matrix_unpack_shape(int32_t packed) {
    return (matrix_shape){(uint16_t)(packed & 255), (uint16_t)(packed >> 8 & 255), (uint16_t)(packed >> 16)};
}

enum shuffle_mode { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_BFLY, SHUFFLE_IDX };
enum vote_mode { VOTE_ANY, VOTE_ALL, VOTE_UNI, VOTE_BALLOT };
enum redux_detail { REDUX_F32 = 1, REDUX_ABS = 2, REDUX_NAN = 4 }; /* immediate of an OP_REDUX */
enum match_mode { MATCH_ANY, MATCH_ALL };
enum barrier_mode { BARRIER_SYNC, BARRIER_ARRIVE, BARRIER_RED_AND, BARRIER_RED_OR, BARRIER_RED_POPC };
enum mbarrier_detail { MBARRIER_STATE, MBARRIER_PARITY, MBARRIER_BLOCKING = 2, MBARRIER_HEARS = 4 /* .relaxed */ };
enum mbarrier_arrival { MBARRIER_DROP = 1, MBARRIER_RELAXED = 2, MBARRIER_NO_COMPLETE = 4 };
/* A state of an mbarrier is the number of its phase, and from this bit on its pending arrivals. */
enum { MBARRIER_PENDING_SHIFT = 40 };
enum atomic_operation {
    ATOMIC_ADD,
    ATOMIC_MIN,
    ATOMIC_MAX,
    ATOMIC_AND,
    ATOMIC_OR,
    ATOMIC_XOR,
    ATOMIC_EXCH,
    ATOMIC_CAS,
    ATOMIC_INC,
    ATOMIC_DEC
};
/* Type that an atomic adds or compares; pairs are two in a register. */
enum atomic_numbers { ATOMIC_INTEGER, ATOMIC_F32, ATOMIC_F64, ATOMIC_F16, ATOMIC_BF16, ATOMIC_F16X2, ATOMIC_BF16X2 };
static inline int32_t reduction_pack(enum atomic_numbers numbers, enum atomic_operation operation) {
    return (int32_t)numbers | (int32_t)operation << 8;
}
enum fenced_memory { FENCED_SHARED = 1, FENCED_GLOBAL = 2 }; /* detail of an OP_PROXY_FENCE */
enum trap_detail { TRAP_MEANT, TRAP_NO_TARGET };
enum branch_detail { BRANCH_MAY_SPIN = 1 /* back to where a loop begins that may wait for other threads */ };
enum call_target { CALL_ROUTINE, CALL_PRINTF, CALL_ASSERT, CALL_MALLOC, CALL_FREE };

/* ---- functions ---- */

/* A parameter or a result, in the frame of the caller or of the function. */
typedef struct passed {
    uint32_t offset, bytes;
} passed;

/* Code with a frame of its own: the entry, which is number 0, and each function that it may call. */
typedef struct routine {
    const char *name;
    int function;                /* of the module; -1 for the entry */
    size_t call_begin, call_end; /* its calls */
    uint32_t begin, end;         /* ops */
    uint32_t frame_bytes;        /* in local memory: parameters, results and variables */
    const passed *formals;       /* results, then parameters */
    int results, formal_count;
    bool recurses;                                                         /* it may be called while it runs */
    bool address_taken;                                                    /* it may be called by address */
    uint32_t register_begin, register_end, predicate_begin, predicate_end; /* its own */
    uint32_t slot_begin, slot_end;
} routine;

enum callee { CALLEE_BY_ADDRESS = -1 /* whose address the op reads */, CALLEE_BUILT_IN = -2 };
typedef struct call_site {
    int caller, callee;    /* routines; or of these the callee */
    const passed *actuals; /* as the formals of the callee */
    int results, actual_count;
} call_site;

/* ---- entries and modules ---- */

typedef enum entry_state { ENTRY_UNREAD, ENTRY_READY, ENTRY_REFUSED } entry_state;

typedef struct entry {
    emu_entry_info info;
    uint32_t required_threads[3]; /* .reqntid, or 0 */
    uint32_t max_cluster_rank;    /* .maxclusterrank, or 0 */
    bool explicit_cluster;        /* .explicitcluster: it must be launched in clusters */
    entry_state state;
    emu_error refusal;       /* of an entry that was refused */
    struct entry_body *body; /* what emu_load leaves for emu_decode: see statement.h */
    /* parsed */
    instruction *instructions;
    size_t instruction_count, instruction_capacity;
    virtual_register *registers; /* those that occur in an instruction */
    size_t register_count, register_capacity;
    uint32_t local_bytes; /* of one thread, the frames of functions included; of a routine while it is decoded */
    routine *routines;
    size_t routine_count, routine_capacity;
    call_site *calls;
    size_t call_count, call_capacity;
    uint32_t shared_bytes;  /* static, its own and the module's */
    uint32_t dynamic_begin; /* offset of dynamic shared memory, which follows */
    location *locations;
    size_t location_count;
    const uint8_t *variables; /* initial bytes of .global and .const variables */
    uint32_t variable_bytes;
    /* decoded */
    op *ops;
    size_t op_count, op_capacity;
    uint16_t (*names)[16];     /* virtual registers of each op, for messages: ops hold slots */
    uint16_t *predicate_names; /* virtual register of each predicate */
    uint32_t *unset; /* registers that may be read before they are written; predicates after them, by number */
    uint32_t slot_count, constant_slots, predicate_count, unset_count, special_slots[SPECIAL_COUNT];
    uint32_t max_registers, min_ctas;  /* of .maxnreg and .minnctapersm, else 0 */
    uint32_t granule_bytes;            /* narrowest access to shared memory: unit of the shadow */
    bool uses_wgmma, uses_async_proxy; /* wgmma or bulk copies: stores must be fenced before these read */
    bool uses_tensor_memory;           /* tcgen05 */
    bool cancels;       /* clusterlaunchcontrol: clusters of the grid, in the order in which they begin */
    bool uses_f32x2;    /* half of a pair may be uninitialized: see check/undefined.c */
    bool uses_cluster;  /* touches shared memory of other CTAs, or waits for them */
    bool has_fence;     /* of threads: membar, fence.sc, fence.acq_rel and their like */
    bool relaxed_flags; /* flags in shared memory, or arrivals, that order threads with the help of a fence alone */
    bool needs_clocks;  /* has mbarriers, flags, barriers of a part of the CTA or a warp: threads have own clocks */
    emu_region *regions;
    size_t region_count;
} entry;

struct emu_module {
    struct loader *load;
    entry *entries;
    size_t entry_count;
    uint64_t serial; /* no other module has it */
    symbol *symbols;
    size_t symbol_count;
    struct function *functions; /* see statement.h */
    size_t function_count;
    uint32_t buffer;      /* number of the buffer that holds its variables; 0 where it shares that of other modules */
    uint32_t shared_base; /* address of the first byte of shared memory; the bytes below are out of bounds */
    uint8_t *variables;   /* of the module and of the bodies parsed so far; a launch sees those of its entry */
    uint32_t variable_bytes;
};

/* emu_load() for a module whose variables are in the buffer with this number. architecture: as of
 * emu_set_architecture().
 */
emu_module *emu_load_at(uint32_t buffer, unsigned architecture, const char *ptx, size_t bytes, emu_error *error);
/* The initial bytes of the variables that were declared so far. */
const uint8_t *emu_initial_variables(const emu_module *module, uint32_t *bytes);
emu_location emu_location_of(const entry *code, uint32_t instruction_index);
/* True if both instructions are of one own line, or are one where there are no lines. Indexes may be past the end. */
bool emu_same_line(const entry *code, uint32_t a, uint32_t b);
/* A copy of a text, owned; NULL when out of memory. (strdup() is POSIX, and this is plain C11.) */
char *emu_copy_text(const char *text);
/* An array with room for `wanted` elements, which is the old one or replaces it; NULL when out of memory, where the
 * old one stays as it is. */
void *emu_reserve(void *array, size_t wanted, size_t *capacity, size_t element_bytes);
/* "%tid.x" */
const char *emu_special_name(special_register which);
/* "%r12", "0x10", "%tid.x": the name of a register for messages. */
void emu_register_name(const virtual_register *reg, char *out, size_t bytes);

#endif
