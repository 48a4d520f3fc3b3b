/* parser.h - PTX text to the entries of a module, and the body of one entry to ops. */
#ifndef FL_EMU_PARSER_H
#define FL_EMU_PARSER_H

#include "loader.h"

/* All but the bodies of entries. */
void emu_parse_module(loader *load, const char *text, size_t bytes);
/* The body, which is decoded on the way. */
void emu_parse_entry_body(loader *load, entry *code);

#endif
