/* token.h - a token of PTX text, and how far the text was read. */
#ifndef FL_EMU_TOKEN_H
#define FL_EMU_TOKEN_H

#include "characters.h"
#include "loader.h"

#include <string.h>

typedef enum token_kind {
    TOKEN_END,
    TOKEN_NAME,      /* identifiers, %registers */
    TOKEN_DIRECTIVE, /* .name */
    TOKEN_INTEGER,
    TOKEN_FLOAT32, /* 0f3F800000: value holds the bits */
    TOKEN_FLOAT64, /* 0d... or 1.5: value holds the bits of a double */
    TOKEN_STRING,
    TOKEN_MARK /* one character */
} token_kind;

typedef struct token {
    token_kind kind;
    const char *begin;
    uint32_t length;
    uint32_t prefix; /* of a name like "%r12": bytes ahead of the number that ends it, which value holds; else 0 */
    uint64_t value;
    int line;
} token;

typedef struct lexer {
    const char *at, *end;
    int line;
    bool ragged; /* white space was skipped that is not one blank */
    loader *load;
    token now;
} lexer;

static inline bool is_mark(const token *tok, char mark) {
    return tok->kind == TOKEN_MARK && *tok->begin == mark;
}
/* Inline, so that the length of a literal is known. */
static inline bool token_is(const token *tok, const char *text) {
    size_t length = strlen(text);
    if (tok->length != length || tok->kind == TOKEN_STRING || tok->kind == TOKEN_END) return false;
    return memcmp(tok->begin, text, length) == 0;
}

static inline int peek(const lexer *lex, size_t ahead) {
    return (size_t)(lex->end - lex->at) > ahead ? (unsigned char)lex->at[ahead] : 0;
}

#endif
