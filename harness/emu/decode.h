/* decode.h - the state of decoding one entry, and helpers that the decode_ functions share.
 *
 * Operands are checked here against the widths of the instruction: source() and dest() refuse a register of another
 * width by name, and with WIDER allow a wider register as PTX does for ld, st and cvt.
 */
#ifndef FL_EMU_DECODE_H
#define FL_EMU_DECODE_H

#include "program.h"

typedef struct decoder {
    loader *load;
    entry *code;
    uint32_t index; /* of the instruction */
    const instruction *in;
    const form *form;
    bool first; /* no op of the instruction was emitted yet */
    size_t op_capacity, register_capacity;
    uint16_t constants[1024]; /* hash of constant registers, to share them */
} decoder;

enum width_rule { EXACT, WIDER };

_Noreturn void refuse(decoder *dec, const char *format, ...);
op *emit(decoder *dec, op_kind kind);
const operand *operand_at(decoder *dec, int index);
void expect_operands(decoder *dec, int least, int most);
uint16_t constant_register(decoder *dec, uint64_t value, int bits);
uint16_t special_register_of(decoder *dec, special_register which);
uint16_t scratch_register(decoder *dec, int bits);
/* The virtual register that holds an operand's value; literals and symbols become constants. */
uint16_t source(decoder *dec, const operand *from, int bits, enum width_rule rule);
uint16_t source_of_type(decoder *dec, const operand *from, const type_info *type, enum width_rule rule);
uint16_t dest(decoder *dec, const operand *to, int bits);
uint16_t predicate(decoder *dec, const operand *which);
uint16_t optional_predicate(decoder *dec, int reg);
/* Append a destination, then sources, to an op. */
void add_dest(op *o, uint16_t reg);
void add_source(op *o, uint16_t reg);
/* Fill space, offset and base register (as a source) of an op from [address]. */
void add_address(decoder *dec, op *o, const operand *address, state_space space);
state_space space_named(const char *name);
/* The address of a variable as an instruction sees it. */
uint64_t symbol_address(decoder *dec, const symbol *which);
bool chose(const form_match *match, const char *modifier);

#endif
