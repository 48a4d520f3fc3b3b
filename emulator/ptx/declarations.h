/* declarations.h - what names mean: scopes, registers, variables. */
#ifndef FL_EMU_DECLARATIONS_H
#define FL_EMU_DECLARATIONS_H

#include "reader.h"

int emu_lookup_register(parser *p, const token *name);
int emu_lookup_symbol(const parser *p, const token *name);
/* Number of registers of the vector with this name, 0 if there is none. */
int emu_lookup_vector(const parser *p, const token *name);
void emu_open_scope(parser *p);
void emu_close_scope(parser *p);
/* A symbol of the parameter that an entry was declared with. */
void emu_declare_symbol(parser *p, const char *name, uint32_t length, uint32_t index);
/* Forget all but the first declarations. */
void emu_undeclare(parser *p, size_t first);
uint32_t emu_align_up(uint32_t value, uint32_t alignment);
/* The number after ".align". */
uint32_t emu_expect_alignment(parser *p);
const type_info *emu_expect_type(parser *p);
uint32_t emu_add_symbol(parser *p, const token *name, state_space space, uint32_t offset, uint64_t bytes);
/* The register of its own name that is a parameter of a function. */
int emu_declare_register(parser *p, const char *name, uint32_t length, uint8_t bits);
void emu_parse_reg(parser *p);
void emu_parse_variable(parser *p, state_space space, bool external);

#endif
