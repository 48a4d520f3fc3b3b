/* operands.h - registers, special registers, numbers, addresses, vectors and lists. */
#ifndef FL_EMU_OPERANDS_H
#define FL_EMU_OPERANDS_H

#include "reader.h"

/* depth counts the vectors and lists around it. True if the comma after the operand was consumed too. */
bool emu_parse_operand(parser *p, operand *out, int depth);

#endif
