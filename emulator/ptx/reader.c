/* reader.c - see reader.h */
#include "reader.h"

#include <inttypes.h>

_Noreturn void emu_unexpected(parser *p, const char *wanted) {
    if (now(p)->kind == TOKEN_END) emu_load_fail(p->load, now(p)->line, "the text ends where %s was expected", wanted);
    emu_load_fail(p->load, now(p)->line, "'%.*s' where %s was expected", shown_length(now(p)), now(p)->begin, wanted);
}

void emu_expect(parser *p, const char *text) {
    if (!accept(p, text)) {
        char wanted[32];
        snprintf(wanted, sizeof wanted, "'%s'", text);
        emu_unexpected(p, wanted);
    }
}

void emu_unexpected_mark(parser *p, char wanted) {
    const char quoted[] = {'\'', wanted, '\'', 0};
    emu_unexpected(p, quoted);
}

uint64_t emu_expect_integer(parser *p) {
    if (now(p)->kind != TOKEN_INTEGER) emu_unexpected(p, "a number");
    uint64_t value = now(p)->value;
    next(p);
    return value;
}

uint32_t emu_expect_small(parser *p, uint64_t limit, const char *what) {
    int line = now(p)->line;
    uint64_t value = emu_expect_integer(p);
    if (value > limit) emu_load_fail(p->load, line, "%s is %" PRIu64 ", above %" PRIu64, what, value, limit);
    return (uint32_t)value;
}

token emu_expect_name(parser *p, const char *what) {
    if (now(p)->kind != TOKEN_NAME) emu_unexpected(p, what);
    token name = *now(p);
    next(p);
    return name;
}
