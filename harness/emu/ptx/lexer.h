/* lexer.h - what lexer.c and literals.c share: classes of bytes, and tokens that are seldom read.
 *
 * A text ends in no word: emu_lexer_start() refuses it otherwise. So a loop over the bytes of a word needs no other
 * end.
 */
#ifndef FL_EMU_LEXER_H
#define FL_EMU_LEXER_H

#include "program.h"

/* What a byte may be: a table, as ctype.h asks the locale at every character. Bytes from 128 on are nothing. */
enum lexer_class {
    SPACE = 1,
    DIGIT = 2,
    LETTER = 4,
    START = 8, /* of a name */
    PART = 16, /* of a name behind its start */
};
extern const uint8_t emu_lexer_classes[256];

static inline bool is(int c, int what) {
    return (emu_lexer_classes[(uint8_t)c] & what) != 0;
}

static inline int peek(const lexer *lex, size_t ahead) {
    return (size_t)(lex->end - lex->at) > ahead ? (unsigned char)lex->at[ahead] : 0;
}

/* literals.c: at lex->at, which moves behind it. */
void emu_scan_number(lexer *lex, token *tok);
void emu_scan_string(lexer *lex, token *tok);

#endif
