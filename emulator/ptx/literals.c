/* literals.c - numbers and strings of PTX. */
#include "literals.h"

#include <stdlib.h>

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
            emu_load_fail(lex->load, lex->line, "number does not fit 64 bits");
        *value = *value * (uint64_t)base + digit;
    }
    return digits;
}

static void scan_bits(lexer *lex, token *tok, int digits, token_kind kind) {
    lex->at += 2;
    if (scan_digits(lex, 16, &tok->value) != digits) {
        emu_load_fail(lex->load, lex->line, "a 0%c literal takes %d hexadecimal digits", digits == 8 ? 'f' : 'd',
                      digits);
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
    if (*rest) emu_load_fail(lex->load, lex->line, "malformed number '%s'", copy);
    memcpy(&tok->value, &value, sizeof value);
    tok->kind = TOKEN_FLOAT64;
    lex->at += length;
}

void emu_scan_number(lexer *lex, token *tok) {
    int second = peek(lex, 1) | 0x20;
    tok->kind = TOKEN_INTEGER;
    if (peek(lex, 0) == '0' && second == 'f') {
        scan_bits(lex, tok, 8, TOKEN_FLOAT32);
    } else if (peek(lex, 0) == '0' && second == 'd') {
        scan_bits(lex, tok, 16, TOKEN_FLOAT64);
    } else if (peek(lex, 0) == '0' && (second == 'x' || second == 'b')) {
        lex->at += 2;
        if (!scan_digits(lex, second == 'x' ? 16 : 2, &tok->value))
            emu_load_fail(lex->load, lex->line, "number without digits");
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
    if (is(peek(lex, 0), PART)) emu_load_fail(lex->load, lex->line, "malformed number");
}

void emu_scan_string(lexer *lex, token *tok) {
    tok->kind = TOKEN_STRING;
    tok->begin = ++lex->at;
    while (lex->at < lex->end && *lex->at != '"' && *lex->at != '\n')
        lex->at += *lex->at == '\\' && peek(lex, 1) ? 2 : 1;
    if (lex->at >= lex->end || *lex->at != '"') emu_load_fail(lex->load, lex->line, "string without an end");
    tok->length = (uint32_t)(lex->at - tok->begin);
    lex->at++;
}
