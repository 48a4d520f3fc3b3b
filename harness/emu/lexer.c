/* lexer.c - PTX text to tokens. Comments and white space fall away; nothing is copied. */
#include "program.h"

#include <stdlib.h>

void lexer_start(lexer *lex, loader *load, const char *text, size_t bytes) {
    *lex = (lexer){.at = text, .end = text + bytes, .line = 1, .load = load};
    lexer_next(lex);
}

/* Plain comparisons: ctype.h asks the locale at every character. */
static inline bool is_letter(int c) {
    return (unsigned)((c | 0x20) - 'a') < 26;
}
static inline bool is_digit(int c) {
    return (unsigned)(c - '0') < 10;
}
static inline bool is_space(int c) {
    return c == ' ' || (unsigned)(c - '\t') < 5;
}
static inline bool name_start(int c) {
    return is_letter(c) || c == '_' || c == '$' || c == '%';
}
/* A bit for each character of ASCII: letters, digits, '_' and '$'. */
static inline bool name_part(int c) {
    static const uint64_t members[2] = {0x03ff001000000000u, 0x07fffffe87fffffeu};
    return (unsigned)c < 128 && members[c >> 6] >> (c & 63) & 1;
}

static int peek(const lexer *lex, size_t ahead) {
    return (size_t)(lex->end - lex->at) > ahead ? (unsigned char)lex->at[ahead] : 0;
}

static void skip_comment(lexer *lex) {
    if (lex->at[1] == '/') {
        const char *end = memchr(lex->at, '\n', (size_t)(lex->end - lex->at));
        lex->at = end ? end : lex->end;
        return;
    }
    int begin_line = lex->line;
    for (lex->at += 2; lex->at < lex->end; lex->at++) {
        if (*lex->at == '\n') lex->line++;
        if (*lex->at == '*' && peek(lex, 1) == '/') {
            lex->at += 2;
            return;
        }
    }
    load_fail(lex->load, begin_line, "comment without an end");
}

static void skip_space(lexer *lex) {
    while (lex->at < lex->end) {
        if (*lex->at == '\n') {
            lex->line++;
            lex->at++;
        } else if (is_space((unsigned char)*lex->at)) {
            lex->at++;
        } else if (*lex->at == '/' && (peek(lex, 1) == '/' || peek(lex, 1) == '*')) {
            skip_comment(lex);
        } else {
            return;
        }
    }
}

static int digit_value(int c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 99;
}

/* Digits of a base at lex->at; the number of them. */
static int scan_digits(lexer *lex, int base, uint64_t *value) {
    int digits = 0;
    for (*value = 0; digit_value(peek(lex, 0)) < base; lex->at++, digits++) {
        uint64_t digit = (uint64_t)digit_value(peek(lex, 0));
        if (*value > (UINT64_MAX - digit) / (uint64_t)base)
            load_fail(lex->load, lex->line, "number does not fit 64 bits");
        *value = *value * (uint64_t)base + digit;
    }
    return digits;
}

static void scan_bits(lexer *lex, token *tok, int digits, token_kind kind) {
    lex->at += 2;
    if (scan_digits(lex, 16, &tok->value) != digits) {
        load_fail(lex->load, lex->line, "a 0%c literal takes %d hexadecimal digits", digits == 8 ? 'f' : 'd', digits);
    }
    tok->kind = kind;
}

static void scan_decimal(lexer *lex, token *tok) {
    char copy[64];
    size_t length = 0;
    while (length + 1 < sizeof copy) {
        int c = peek(lex, length);
        bool sign = (c == '+' || c == '-') && length && (copy[length - 1] == 'e' || copy[length - 1] == 'E');
        if (!is_digit(c) && c != '.' && c != 'e' && c != 'E' && !sign) break;
        copy[length++] = (char)c;
    }
    copy[length] = 0;
    char *rest;
    double value = strtod(copy, &rest);
    if (*rest) load_fail(lex->load, lex->line, "malformed number '%s'", copy);
    memcpy(&tok->value, &value, sizeof value);
    tok->kind = TOKEN_FLOAT64;
    lex->at += length;
}

static void scan_number(lexer *lex, token *tok) {
    int second = peek(lex, 1) | 0x20;
    tok->kind = TOKEN_INTEGER;
    if (peek(lex, 0) == '0' && second == 'f') {
        scan_bits(lex, tok, 8, TOKEN_FLOAT32);
    } else if (peek(lex, 0) == '0' && second == 'd') {
        scan_bits(lex, tok, 16, TOKEN_FLOAT64);
    } else if (peek(lex, 0) == '0' && (second == 'x' || second == 'b')) {
        lex->at += 2;
        if (!scan_digits(lex, second == 'x' ? 16 : 2, &tok->value))
            load_fail(lex->load, lex->line, "number without digits");
    } else {
        size_t length = 0;
        while (is_digit(peek(lex, length))) length++;
        int after = peek(lex, length);
        if (after == '.' || after == 'e' || after == 'E') {
            scan_decimal(lex, tok);
            return;
        }
        scan_digits(lex, peek(lex, 0) == '0' && length > 1 ? 8 : 10, &tok->value);
    }
    if (peek(lex, 0) == 'U') lex->at++;
    if (name_part(peek(lex, 0))) load_fail(lex->load, lex->line, "malformed number");
}

static void scan_string(lexer *lex, token *tok) {
    tok->kind = TOKEN_STRING;
    tok->begin = ++lex->at;
    while (lex->at < lex->end && *lex->at != '"' && *lex->at != '\n')
        lex->at += *lex->at == '\\' && peek(lex, 1) ? 2 : 1;
    if (lex->at >= lex->end || *lex->at != '"') load_fail(lex->load, lex->line, "string without an end");
    tok->length = (uint32_t)(lex->at - tok->begin);
    lex->at++;
}

void lexer_next(lexer *lex) {
    skip_space(lex);
    token *tok = &lex->now;
    *tok = (token){.kind = TOKEN_END, .begin = lex->at < lex->end ? lex->at : "", .line = lex->line};
    if (lex->at >= lex->end) return;
    int c = (unsigned char)*lex->at;
    if (c == '"') {
        scan_string(lex, tok);
        return;
    }
    if (is_digit(c)) {
        scan_number(lex, tok);
    } else if (name_start(c) || (c == '.' && name_start(peek(lex, 1)))) {
        tok->kind = c == '.' ? TOKEN_DIRECTIVE : TOKEN_NAME;
        const char *at = lex->at + 1;
        while (at < lex->end && (name_part((unsigned char)*at) || (c == '.' && *at == '%'))) at++;
        lex->at = at;
    } else {
        tok->kind = TOKEN_MARK;
        lex->at++;
    }
    tok->length = (uint32_t)(lex->at - tok->begin);
}

bool lexer_skip_braces(lexer *lex) {
    token string;
    int depth = 1;
    while (depth) {
        lex->at += strcspn(lex->at, "\n\"/{}"); /* the zero behind the text ends it */
        if (lex->at >= lex->end) break;
        switch (*lex->at) {
        case '"':
            scan_string(lex, &string);
            continue;
        case '/':
            if (peek(lex, 1) == '/' || peek(lex, 1) == '*') {
                skip_comment(lex);
                continue;
            }
            break;
        case '\n':
            lex->line++;
            break;
        case '{':
            depth++;
            break;
        case '}':
            depth--;
            break;
        default: /* a zero within the text */
            break;
        }
        lex->at++;
    }
    lexer_next(lex);
    return !depth;
}

void lexer_extend_opcode(lexer *lex) {
    for (;;) {
        while (lex->at < lex->end && (name_part((unsigned char)*lex->at) || *lex->at == '.')) lex->at++;
        if (peek(lex, 0) != ':' || peek(lex, 1) != ':') break;
        lex->at += 2;
    }
    lex->now.length = (uint32_t)(lex->at - lex->now.begin);
}

bool lexer_at_label(const lexer *lex) {
    size_t ahead = 0;
    while (is_space(peek(lex, ahead))) ahead++;
    return peek(lex, ahead) == ':' && peek(lex, ahead + 1) != ':';
}
