/* lexer.c - PTX text to tokens. Comments and white space fall away; nothing is copied. */
#include "lexer.h"

#include "braces.h"
#include "literals.h"

static int count_lines(const char *at, const char *end) {
    int lines = 0;
    while ((at = memchr(at, '\n', (size_t)(end - at)))) {
        lines++;
        at++;
    }
    return lines;
}

void emu_lexer_start(lexer *lex, loader *load, const char *text, size_t bytes) {
    *lex = (lexer){.at = text, .end = text + bytes, .line = 1, .load = load};
    if (bytes && (is(text[bytes - 1], START | PART) || text[bytes - 1] == '.'))
        emu_load_fail(load, 1 + count_lines(text, lex->end), "the text ends within a word");
    emu_lexer_next(lex);
}

static bool at_comment(const char *at, const char *end) {
    return *at == '/' && at + 1 < end && (at[1] == '/' || at[1] == '*');
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
    emu_load_fail(lex->load, begin_line, "comment without an end");
}

/* Past white space and comments, from at. */
static const char *skip_space(lexer *lex, const char *at) {
    lex->ragged = true;
    for (; at < lex->end; at++) {
        if (is(*at, SPACE)) {
            lex->line += *at == '\n';
        } else if (at_comment(at, lex->end)) {
            lex->at = at;
            skip_comment(lex);
            at = lex->at - 1;
        } else {
            break;
        }
    }
    return at;
}

/* The end of a name that begins before at; a number that ends the name of a register is noted. */
static const char *scan_name(token *tok, const char *at) {
    if (at[-1] == '%') {
        while (is(*at, LETTER)) at++;
        const char *number = at;
        uint64_t value = 0;
        for (unsigned digit; (digit = (unsigned)(*at - '0')) < 10; at++) value = value * 10 + digit;
        if (at > number && at - number < 8 && !is(*at, PART)) {
            tok->prefix = (uint32_t)(number - tok->begin);
            tok->value = value;
            return at;
        }
    }
    while (is(*at, PART)) at++;
    return at;
}

void emu_lexer_next(lexer *lex) {
    const char *at = lex->at, *end = lex->end;
    token *tok = &lex->now;
    if (at < end && *at == ' ') at++; /* one blank, then a token: nearly always */
    if (at < end && (is(*at, SPACE) || *at == '/')) at = skip_space(lex, at);
    if (at >= end) {
        *tok = (token){.kind = TOKEN_END, .begin = "", .line = lex->line};
        lex->at = end;
        return;
    }
    tok->line = lex->line;
    tok->begin = at;
    tok->prefix = 0;
    if (is(*at, START)) {
        tok->kind = TOKEN_NAME;
        at = scan_name(tok, at + 1);
    } else if (is(*at, DIGIT)) {
        lex->at = at;
        emu_scan_number(lex, tok);
        at = lex->at;
    } else if (*at == '"') {
        lex->at = at;
        emu_scan_string(lex, tok);
        return;
    } else if (*at == '.' && is(at[1], START)) { /* no text ends in a dot */
        tok->kind = TOKEN_DIRECTIVE;
        for (at++; is(*at, START | PART);) at++;
    } else {
        tok->kind = TOKEN_MARK;
        at++;
    }
    tok->length = (uint32_t)(at - tok->begin);
    lex->at = at;
}

bool emu_lexer_skip_braces(lexer *lex) {
    token string;
    int depth = 1;
    for (;;) {
        lex->at = emu_follow_braces(lex->at, lex->end, &depth, &lex->line);
        if (!depth || lex->at >= lex->end) break;
        if (at_comment(lex->at, lex->end))
            skip_comment(lex);
        else if (*lex->at == '"')
            emu_scan_string(lex, &string);
        else
            lex->at++; /* a slash alone */
    }
    emu_lexer_next(lex);
    return !depth;
}

void emu_lexer_skip_to(lexer *lex, char mark) {
    const char *found = memchr(lex->at, mark, (size_t)(lex->end - lex->at));
    if (!found) found = lex->end;
    lex->line += count_lines(lex->at, found);
    lex->at = found;
    emu_lexer_next(lex);
}

void emu_lexer_extend_opcode(lexer *lex) {
    for (;;) {
        const char *at = lex->at;
        while (is(*at, PART) || *at == '.') at++;
        lex->at = at;
        if (*at != ':' || peek(lex, 1) != ':') break;
        lex->at += 2;
        if (lex->at == lex->end) break;
    }
    lex->now.length = (uint32_t)(lex->at - lex->now.begin);
}

bool emu_lexer_at_label(const lexer *lex) {
    size_t ahead = 0;
    while (is(peek(lex, ahead), SPACE)) ahead++;
    return peek(lex, ahead) == ':' && peek(lex, ahead + 1) != ':';
}

bool emu_lexer_take_numbers(lexer *lex, uint32_t numbers[3]) {
    const char *at = lex->at;
    for (int i = 0; i < 3; i++) {
        while (at < lex->end && (*at == ' ' || *at == '\t')) at++;
        const char *begin = at;
        uint32_t value = 0;
        while (at < lex->end && is(*at, DIGIT)) value = value * 10 + (uint32_t)(*at++ - '0');
        bool octal = at - begin > 1 && *begin == '0';
        if (at == begin || at - begin > 8 || octal) return false;
        numbers[i] = value;
    }
    if (is(*at, PART)) return false;
    lex->at = at;
    return true;
}

bool emu_lexer_take_name(lexer *lex) {
    const char *at = lex->at;
    if (at >= lex->end || !is(*at, START)) return false;
    for (at++; is(*at, PART);) at++;
    lex->at = at;
    return true;
}

bool emu_lexer_take(lexer *lex, const char *text, size_t length) {
    if ((size_t)(lex->end - lex->at) < length || memcmp(lex->at, text, length)) return false;
    lex->at += length;
    return true;
}
