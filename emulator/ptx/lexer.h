/* lexer.h - PTX text to tokens.
 *
 *     lexer lex;
 *     emu_lexer_start(&lex, load, text, bytes);          // lex.now is the first token
 *     while (lex.now.kind != TOKEN_END) emu_lexer_next(&lex);
 *
 * A text ends in no word: emu_lexer_start() refuses it otherwise. So a loop over the bytes of a word needs no other
 * end.
 */
#ifndef FL_EMU_LEXER_H
#define FL_EMU_LEXER_H

#include "token.h"

void emu_lexer_start(lexer *lex, loader *load, const char *text, size_t bytes);
void emu_lexer_next(lexer *lex);
/* From the current "{" past the "}" that closes it; false at the end of the text where none does. */
bool emu_lexer_skip_braces(lexer *lex);
/* To the next mark of its kind, whatever precedes it, or to the end of the text. */
void emu_lexer_skip_to(lexer *lex, char mark);
/* Extend the current name to a whole opcode with its dots: "cp.async.cg.shared.global.L2::128B". */
void emu_lexer_extend_opcode(lexer *lex);
/* A comma right after the current token, which is a name: no text ends in one. */
static inline bool lexer_take_comma(lexer *lex) {
    if (*lex->at != ',') return false;
    lex->at++;
    return true;
}
/* After the current token, without making tokens: three decimal numbers, a name, a text. False, and nothing is taken,
 * if something else follows. emu_lexer_next() continues after them. */
bool emu_lexer_take_numbers(lexer *lex, uint32_t numbers[3]);
bool emu_lexer_take_name(lexer *lex);
bool emu_lexer_take(lexer *lex, const char *text, size_t length);
/* True if a colon follows the current name: then it is a label; an opcode with :: has its dots first. */
bool emu_lexer_at_label(const lexer *lex);

#endif
