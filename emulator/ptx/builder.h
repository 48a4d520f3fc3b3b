/* builder.h - the state of decoding one entry, and how the rules of decoding append ops to it.
 *
 *     uint16_t a = emu_source(dec, operand_at(dec, 1), 32, EXACT);
 *     op *o = emu_emit(dec, OP_LANES);
 *     add_source(o, a);
 *
 * Operands are checked here against the widths of the instruction: emu_source() and emu_dest() refuse a register of
 * another width by name, and with WIDER allow a wider register as PTX does for ld, st and cvt.
 */
#ifndef FL_EMU_BUILDER_H
#define FL_EMU_BUILDER_H

#include "statement.h"

/* A branch whose label is looked up at the end of the entry. */
typedef struct branch {
    operand label;
    uint32_t op;
} branch;

/* A use of the address of dynamic shared memory, resolved later: the value of a register, the address of an op, or the
 * second address of a cp.async. */
enum awaiting { AWAITING_REGISTER, AWAITING_ADDRESS, AWAITING_TARGET };
typedef struct awaited {
    enum awaiting what;
    uint32_t index;
} awaited;

typedef struct decoder {
    loader *load;
    entry *code;
    uint32_t index; /* of the instruction */
    const statement *in;
    lane_function *lanes; /* of the form, for emu_decode_lanes() */
    bool first;           /* no op of the instruction was emitted yet */
    int carry;            /* the predicate that holds the carry of each lane, or -1 */
    int routine;          /* whose body this is */
    int frame;            /* register: where its frame begins in local memory; NO_REGISTER in the entry */
    bool calls_by_address;
    uint16_t formal_registers[64]; /* of those of the function that are registers */
    branch *branches;
    awaited *awaiting;
    size_t branch_count, branch_capacity, awaiting_count, awaiting_capacity;
    uint16_t constants[1024]; /* hash of constant registers, to share them */
    int group, group_line;    /* .cta_group of the first tcgen05 that has one, 0: none, and its line */
    uint32_t reserved;        /* address of the memory that is kept for the driver; 0 where nothing asks for it */
} decoder;

/* A new register of an entry; refused by line where there are too many. */
uint16_t emu_add_register(loader *load, entry *code, int line, virtual_register reg);

enum width_rule { EXACT, WIDER };

/* Refuse the statement: the reason, and its text. */
_Noreturn void emu_refuse(decoder *dec, const char *format, ...) __attribute__((format(printf, 2, 3)));
op *emu_emit(decoder *dec, op_kind kind);
/* The op of a form with the operands that its row names: destinations, predicate, address and sources. */
op *emu_emit_operands(decoder *dec, const form_match *match);
static inline const operand *operand_at(decoder *dec, int index) {
    if (index >= dec->in->operand_count) emu_refuse(dec, "operand %d is missing", index + 1);
    return &dec->in->operands[index];
}
void emu_expect_operands(decoder *dec, int least, int most);
uint16_t emu_constant_register(decoder *dec, uint64_t value, int bits);
/* Add an address in the CTA's own shared memory, which contains the CTA's rank. */
uint16_t emu_shared_register(decoder *dec, uint64_t address, int bits);
/* Base of an address without a register: 0, or the rank for shared memory. */
uint16_t emu_base_register(decoder *dec, const operand *address, state_space space);
uint16_t emu_scratch_register(decoder *dec, int bits);
/* The virtual register that holds an operand's value; literals and symbols become constants. */
uint16_t emu_source(decoder *dec, const operand *from, int bits, enum width_rule rule);
uint16_t emu_source_of_type(decoder *dec, const operand *from, const type_info *type, enum width_rule rule);
uint16_t emu_dest(decoder *dec, const operand *to, int bits);
uint16_t emu_predicate(decoder *dec, const operand *which);
uint16_t emu_optional_predicate(decoder *dec, int reg);
/* A predicate that is read: !p and numbers go through a predicate of their own. */
uint16_t emu_predicate_source(decoder *dec, const operand *from);
uint16_t emu_scratch_predicate(decoder *dec);
uint16_t emu_carry_predicate(decoder *dec);
/* Append a destination, then sources, to an op. */
static inline void add_dest(op *o, uint16_t reg) {
    o->r[o->dests++] = reg;
}
static inline void add_source(op *o, uint16_t reg) {
    o->r[o->dests + o->sources++] = reg;
}
/* The address of a variable as an instruction sees it; in dynamic shared memory, its distance from there: the code that
 * uses that calls emu_await_dynamic() too. */
uint64_t emu_symbol_address(const emu_module *module, const symbol *which);
static inline bool is_dynamic(const symbol *which) {
    return which->space == SPACE_SHARED && which->offset == UINT32_MAX;
}
/* The routine of the entry for a function of the module. Refused where that has no body. */
int emu_need_routine(decoder *dec, int function);
/* A return: results that are registers go to the frame first. */
void emu_return_from_routine(decoder *dec);
/* Move a register to the frame or from it. */
void emu_store_frame(decoder *dec, uint16_t reg, const passed *where);
void emu_load_frame(decoder *dec, uint16_t reg, const passed *where);
void emu_await_dynamic(decoder *dec, enum awaiting what, uint32_t index);
/* Fill space, offset and base register (as a source) of an op from [address]. */
void emu_add_address(decoder *dec, op *o, const operand *address, state_space space);
/* decode_hopper.c: the value of [address] as a register of 64 bits. */
uint16_t emu_address_value(decoder *dec, const operand *address);
/* The elements of a vector operand, or the one operand itself. */
const operand *emu_elements(decoder *dec, const operand *whole, int count);
/* An operand of a wait: how many of the last groups need not be complete. */
int64_t emu_group_count(decoder *dec, int index, int64_t most);
bool emu_chose(const form_match *match, const char *modifier);
/* decode_memory.c: the operation that a form names, and what it adds or compares. */
uint8_t emu_atomic_operation(const form_match *match);
enum atomic_numbers emu_atomic_numbers(const type_info *type);

#endif
