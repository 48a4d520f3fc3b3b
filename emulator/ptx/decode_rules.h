/* decode_rules.h - the functions that the rows of the table of forms name: each decodes the statement of a decoder
 * (builder.h) into ops. decode_values.c, decode_memory.c and decode_control.c have them. */
#ifndef FL_EMU_DECODE_RULES_H
#define FL_EMU_DECODE_RULES_H

#include "statement.h"

struct decoder;
typedef void decode_function(struct decoder *dec, const form_match *match);

/* Kind of a type of matrix rows. */
enum matrix_numbers emu_numbers_of(const type_info *type);
/* The rows of lane functions are all decoded by this one. */
decode_function emu_decode_lanes;

#define FORM_ROW(group, opcode, modifiers, operands, kind, fidelity, decode, note) decode_function decode;
#include "forms_table.h"

#endif
