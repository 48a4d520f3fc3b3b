/* locations.c - where instructions come from: .file and .loc.
 *
 * Unrolled code names the same few locations again and again, so each is kept once. A call that code was inlined at is
 * the location that its own source line had last.
 */
#include "locations.h"

void emu_parse_file(parser *p) {
    uint32_t index = emu_expect_small(p, MAX_FILES - 1, "the file number");
    if (now(p)->kind != TOKEN_STRING) emu_unexpected(p, "a file name");
    p->files[index] = emu_load_text(p->load, now(p)->begin, now(p)->length);
    next(p);
    while (accept(p, ",")) emu_expect_integer(p);
}

void emu_forget_locations(parser *p) {
    p->source_line_count = 0;
    memset(p->line_heads, 0xff, sizeof p->line_heads);
    memset(p->locs, 0, sizeof p->locs);
    p->current_location = -1;
}

/* The index of a source line. */
static int find_line(parser *p, const uint32_t at[3]) {
    int *head = &p->line_heads[(at[0] ^ at[1] * 31 ^ at[2] * 7) % LINE_HASH];
    for (int i = *head; i >= 0; i = p->source_lines[i].next) {
        const source_line *known = &p->source_lines[i];
        if (known->file == at[0] && known->line == at[1] && known->column == at[2]) return i;
    }
    p->source_lines =
        load_grow(p->load, p->source_lines, p->source_line_count, &p->source_line_capacity, sizeof *p->source_lines);
    p->source_lines[p->source_line_count] = (source_line){at[0], at[1], at[2], -1, -1, *head};
    return *head = (int)p->source_line_count++;
}

/* The location of a source line inlined at another, or of one inlined nowhere, whose parent is -1. */
static int enter_location(parser *p, int index, int parent) {
    entry *code = p->code;
    source_line *line = &p->source_lines[index];
    for (int i = line->newest; i >= 0; i = code->locations[i].older) {
        if (code->locations[i].parent == parent) return line->latest = i;
    }
    code->locations =
        load_grow(p->load, code->locations, code->location_count, &p->location_capacity, sizeof *code->locations);
    /* a .file may also be in the body: use the number until the end of the body */
    const char *stand_in = (const char *)(uintptr_t)(line->file + 1);
    code->locations[code->location_count] =
        (location){{stand_in, (int)line->line, NULL}, NULL, (int)line->column, parent, line->newest};
    return line->latest = line->newest = (int)code->location_count++;
}

static int enter_call(parser *p, int line) {
    int latest = p->source_lines[line].latest;
    return latest >= 0 ? latest : enter_location(p, line, -1);
}

static void expect_place(parser *p, uint32_t at[3]) {
    at[0] = emu_expect_small(p, MAX_FILES - 1, "the file number");
    at[1] = emu_expect_small(p, 1 << 28, "the line");
    at[2] = emu_expect_small(p, 1 << 28, "the column");
}

/* Parse the operands of .loc as nvcc writes them, without making tokens: "1 442 0" or "1 332 5, function_name
 * $L__info_string0, inlined_at 1 446 9". False, and nothing is taken, where it is not so. */
static bool take_plain(lexer *lex, uint32_t at[3], uint32_t caller[3], bool *inlined) {
    static const char function[] = ", function_name ", call[] = ", inlined_at ";
    const char *begin = lex->at;
    if (emu_lexer_take_numbers(lex, at) && at[0] < MAX_FILES) {
        *inlined = emu_lexer_take(lex, function, sizeof function - 1);
        if (!*inlined) return true;
        if (emu_lexer_take_name(lex) && emu_lexer_take(lex, call, sizeof call - 1) &&
            emu_lexer_take_numbers(lex, caller) && caller[0] < MAX_FILES)
            return true;
    }
    lex->at = begin;
    return false;
}

/* ---- lines of .loc that were read before ----
 *
 * Half of the lines of a body may be .loc, and unrolled code repeats them letter by letter. A line that was read keeps
 * its location in a table of 64 slots, found by its first and its last eight bytes; the next that is equal takes it
 * from there. One thing can change what the same letters mean: "inlined_at" is the location that the line of the call
 * had last. So a kept line counts only while that is still the one it was read with. */

/* Find the entry of a .loc line; NULL if there is none, because it is short or the last. */
static known_loc *find_loc(parser *p, const char *text, size_t *length) {
    const char *end = memchr(text, '\n', (size_t)(p->lex.end - text));
    uint64_t head, tail;
    if (!end || end - text < 8) return NULL;
    *length = (size_t)(end - text);
    memcpy(&head, text, sizeof head);
    memcpy(&tail, end - sizeof tail, sizeof tail);
    return &p->locs[(head * 0x9e3779b97f4a7c15u ^ tail * 0xc2b2ae3d27d4eb4fu) >> 48 & (LOC_HASH - 1)];
}

/* Take a line that equals the kept one; false, and nothing is taken, where it differs or means something else now. */
static bool repeat_loc(parser *p, const known_loc *known, const char *text, size_t length) {
    if (known->length != length || memcmp(known->text, text, length)) return false;
    if (known->caller >= 0 && p->source_lines[known->caller].latest != known->parent) return false;
    lexer *lex = &p->lex;
    int line = lex->line;
    lex->at += length;
    next(p);
    if (is_mark(now(p), ',')) { /* it continues in the next line */
        lex->at = text;
        lex->line = line;
        return false;
    }
    p->source_lines[known->line_index].latest = p->current_location = known->location;
    return true;
}

void emu_parse_loc(parser *p) {
    uint32_t at[3], caller_at[3];
    bool inlined = false;
    const char *text = p->lex.at;
    size_t length = 0;
    known_loc *known = find_loc(p, text, &length);
    if (known && repeat_loc(p, known, text, length)) return;
    bool plain = take_plain(&p->lex, at, caller_at, &inlined);
    bool whole = plain && p->lex.at == text + length;
    next(p);
    if (!plain) expect_place(p, at);
    int caller = inlined ? find_line(p, caller_at) : -1;
    while (accept(p, ",")) {
        whole = false;
        if (accept(p, "function_name")) {
            emu_expect_name(p, "a label");
            if (accept(p, "+")) emu_expect_integer(p);
        } else if (accept(p, "inlined_at")) {
            expect_place(p, caller_at);
            caller = find_line(p, caller_at);
        } else {
            emu_unexpected(p, "function_name or inlined_at");
        }
    }
    int parent = caller >= 0 ? enter_call(p, caller) : -1;
    if (!at[1]) return;
    int line = find_line(p, at);
    p->current_location = enter_location(p, line, parent);
    if (known && whole) *known = (known_loc){text, length, p->current_location, line, parent, caller};
}

/* A caller precedes what is inlined at it, so that one pass links all frames. */
void emu_link_locations(parser *p) {
    location *all = p->code->locations;
    for (size_t i = 0; i < p->code->location_count; i++) {
        location *at = &all[i], *caller = at->parent >= 0 ? &all[at->parent] : NULL;
        const char *name = p->files[(uintptr_t)at->frame.file - 1];
        at->frame.file = name ? name : "";
        at->frame.caller = caller ? &caller->frame : NULL;
        /* the own frame of a caller is of the kernel's file */
        at->own = caller && at->frame.file != caller->own->file ? caller->own : &at->frame;
    }
}
