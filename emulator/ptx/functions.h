/* functions.h - the functions of a module: what they take and give, and where their bodies are. */
#ifndef FL_EMU_FUNCTIONS_H
#define FL_EMU_FUNCTIONS_H

#include "reader.h"

/* After ".func": a declaration, or a definition whose body waits until an entry calls it. */
void emu_parse_function(parser *p);
/* After ".calltargets": functions that may be called by address. */
void emu_parse_call_targets(parser *p);
/* In the scope of a body: its parameters and results. registers: of those that are registers, by number. */
void emu_declare_formals(parser *p, const function *from, uint16_t *registers);

#endif
