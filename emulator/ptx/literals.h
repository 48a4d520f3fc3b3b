/* literals.h - numbers and strings of PTX: read at lex->at, which moves past them. Malformed ones are rejected. */
#ifndef FL_EMU_LITERALS_H
#define FL_EMU_LITERALS_H

#include "token.h"

void emu_scan_number(lexer *lex, token *tok);
void emu_scan_string(lexer *lex, token *tok);

#endif
