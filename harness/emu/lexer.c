/* lexer.c - PTX text to tokens. Comments and white space fall away; nothing is copied. */
#include "program.h"

#include <stdlib.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

void lexer_start(lexer *lex, loader *load, const char *text, size_t bytes) {
    *lex = (lexer){.at = text, .end = text + bytes, .line = 1, .load = load};
    lexer_next(lex);
}

/* What a byte may be: a table, as ctype.h asks the locale at every character. Bytes from 128 on are nothing. */
enum { SPACE = 1, DIGIT = 2, LETTER = 4, START = 8, PART = 16, BRACED = 32 };
#define S SPACE
#define B BRACED /* what skipping to a brace stops at */
#define D (DIGIT | PART)
#define P START
#define L (LETTER | START | PART)
static const uint8_t classes[256] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, S, S | B, S, S, S, 0, 0, /* tab, line feed and their kin */
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,     0, 0, 0, 0, 0, /**/
    S, 0, B, 0, L, P, 0, 0, 0, 0, 0,     0, 0, 0, 0, B, /* blank " $ % / */
    D, D, D, D, D, D, D, D, D, D, 0,     0, 0, 0, 0, 0, /* digits */
    0, L, L, L, L, L, L, L, L, L, L,     L, L, L, L, L, /* A to O */
    L, L, L, L, L, L, L, L, L, L, L,     0, 0, 0, 0, L, /* P to Z, _ */
    0, L, L, L, L, L, L, L, L, L, L,     L, L, L, L, L, /* a to o */
    L, L, L, L, L, L, L, L, L, L, L,     B, 0, B, 0, 0, /* p to z, braces */
};
#undef S
#undef B
#undef D
#undef P
#undef L

static inline bool is(int c, int what) {
    return (classes[(uint8_t)c] & what) != 0;
}

static int peek(const lexer *lex, size_t ahead) {
    return (size_t)(lex->end - lex->at) > ahead ? (unsigned char)lex->at[ahead] : 0;
}

static void skip_comment(lexer *lex) {
    lex->ragged = true;
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
    const char *at = lex->at, *end = lex->end;
    if (at < end && *at == ' ') { /* one blank, then a token: nearly always */
        at++;
        if (at < end && !is(*at, SPACE) && *at != '/') {
            lex->at = at;
            return;
        }
    }
    for (;; at++) {
        if (at < end && *at == '/' && at + 1 < end && (at[1] == '/' || at[1] == '*')) {
            lex->at = at;
            skip_comment(lex);
            at = lex->at - 1;
            continue;
        }
        if (at >= end || !is(*at, SPACE)) break;
        lex->line += *at == '\n';
    }
    lex->ragged |= at != lex->at;
    lex->at = at;
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
        if (!is(c, DIGIT) && c != '.' && c != 'e' && c != 'E' && !sign) break;
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
        while (is(peek(lex, length), DIGIT)) length++;
        int after = peek(lex, length);
        if (after == '.' || after == 'e' || after == 'E') {
            scan_decimal(lex, tok);
            return;
        }
        scan_digits(lex, peek(lex, 0) == '0' && length > 1 ? 8 : 10, &tok->value);
    }
    if (peek(lex, 0) == 'U') lex->at++;
    if (is(peek(lex, 0), PART)) load_fail(lex->load, lex->line, "malformed number");
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

/* A name at lex->at; a number at its end is noted, as registers have one. */
static void scan_name(lexer *lex, token *tok) {
    const char *at = lex->at + 1, *end = lex->end;
    tok->kind = TOKEN_NAME;
    if (at[-1] == '%') {
        while (at < end && is(*at, LETTER)) at++;
        const char *number = at;
        uint64_t value = 0;
        while (at < end && is(*at, DIGIT)) value = value * 10 + (uint64_t)(*at++ - '0');
        if (at - number > 0 && at - number < 8) {
            tok->prefix = (uint32_t)(number - lex->at);
            tok->value = value;
        }
    }
    if (at < end && is(*at, PART)) tok->prefix = 0; /* such as %r1x2, which no range holds; %r1x may be one */
    while (at < end && is(*at, PART)) at++;
    lex->at = at;
}

static void scan_directive(lexer *lex, token *tok) {
    const char *at = lex->at + 1, *end = lex->end;
    tok->kind = TOKEN_DIRECTIVE;
    while (at < end && (is(*at, PART) || *at == '%')) at++;
    lex->at = at;
}

void lexer_next(lexer *lex) {
    skip_space(lex);
    token *tok = &lex->now;
    tok->kind = TOKEN_END;
    tok->line = lex->line;
    tok->begin = "";
    tok->length = tok->prefix = 0;
    if (lex->at >= lex->end) return;
    tok->begin = lex->at;
    int c = *lex->at;
    if (is(c, START)) {
        scan_name(lex, tok);
    } else if (is(c, DIGIT)) {
        scan_number(lex, tok);
    } else if (c == '.' && is(peek(lex, 1), START)) {
        scan_directive(lex, tok);
    } else if (c == '"') {
        scan_string(lex, tok);
        return;
    } else {
        tok->kind = TOKEN_MARK;
        lex->at++;
    }
    tok->length = (uint32_t)(lex->at - tok->begin);
}

/* The first byte from at on that skipping to a brace must look at. */
static const char *find_braced(const char *at, const char *end) {
#ifdef __SSE2__
    for (; end - at >= 16; at += 16) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        __m128i found = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\n'));
        found = _mm_or_si128(found, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')));
        found = _mm_or_si128(found, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('/')));
        found = _mm_or_si128(found, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('{')));
        found = _mm_or_si128(found, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('}')));
        const int mask = _mm_movemask_epi8(found);
        if (mask) return at + __builtin_ctz((unsigned)mask);
    }
#endif
    while (at < end && !is(*at, BRACED)) at++;
    return at;
}

bool lexer_skip_braces(lexer *lex) {
    token string;
    int depth = 1;
    for (;;) {
        lex->at = find_braced(lex->at, lex->end);
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
        default:
            depth--;
        }
        lex->at++;
        if (!depth) break;
    }
    lexer_next(lex);
    return !depth;
}

void lexer_extend_opcode(lexer *lex) {
    for (;;) {
        const char *at = lex->at, *end = lex->end;
        while (at < end && (is(*at, PART) || *at == '.')) at++;
        lex->at = at;
        if (peek(lex, 0) != ':' || peek(lex, 1) != ':') break;
        lex->at += 2;
    }
    lex->now.length = (uint32_t)(lex->at - lex->now.begin);
}

bool lexer_at_label(const lexer *lex) {
    size_t ahead = 0;
    while (is(peek(lex, ahead), SPACE)) ahead++;
    return peek(lex, ahead) == ':' && peek(lex, ahead + 1) != ':';
}

bool lexer_take_numbers(lexer *lex, uint32_t numbers[3]) {
    const char *at = lex->at, *end = lex->end;
    for (int i = 0; i < 3; i++) {
        while (at < end && (*at == ' ' || *at == '\t')) at++;
        const char *begin = at;
        uint32_t value = 0;
        while (at < end && is(*at, DIGIT)) value = value * 10 + (uint32_t)(*at++ - '0');
        bool octal = at - begin > 1 && *begin == '0';
        if (at == begin || at - begin > 8 || octal) return false;
        numbers[i] = value;
    }
    if (at < end && is(*at, PART)) return false;
    lex->at = at;
    return true;
}

bool lexer_take_name(lexer *lex) {
    const char *at = lex->at, *end = lex->end;
    if (at >= end || !is(*at, START)) return false;
    for (at++; at < end && is(*at, PART);) at++;
    lex->at = at;
    return true;
}

bool lexer_take(lexer *lex, const char *text, size_t length) {
    if ((size_t)(lex->end - lex->at) < length || memcmp(lex->at, text, length)) return false;
    lex->at += length;
    return true;
}
