/* locations.c - where instructions come from: .file and .loc.
 *
 * Unrolled code names the same few locations again and again, so each is kept once. A call that code was inlined at is
 * the location that its own place had last.
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
    p->place_count = 0;
    memset(p->place_heads, 0xff, sizeof p->place_heads);
    memset(p->locs, 0, sizeof p->locs);
    p->current_location = -1;
}

/* The index of a place. */
static int find_place(parser *p, const uint32_t at[3]) {
    int *head = &p->place_heads[(at[0] ^ at[1] * 31 ^ at[2] * 7) % PLACE_HASH];
    for (int i = *head; i >= 0; i = p->places[i].next) {
        const source_place *known = &p->places[i];
        if (known->file == at[0] && known->line == at[1] && known->column == at[2]) return i;
    }
    p->places = load_grow(p->load, p->places, p->place_count, &p->place_capacity, sizeof *p->places);
    p->places[p->place_count] = (source_place){at[0], at[1], at[2], -1, -1, *head};
    return *head = (int)p->place_count++;
}

/* The location of a place inlined at another, or of one inlined nowhere, whose parent is -1. */
static int enter_location(parser *p, int index, int parent) {
    entry *code = p->code;
    source_place *place = &p->places[index];
    for (int i = place->newest; i >= 0; i = code->locations[i].older) {
        if (code->locations[i].parent == parent) return place->latest = i;
    }
    code->locations =
        load_grow(p->load, code->locations, code->location_count, &p->location_capacity, sizeof *code->locations);
    /* a .file may stand in the body too: the number stands in until its end */
    const char *stand_in = (const char *)(uintptr_t)(place->file + 1);
    code->locations[code->location_count] =
        (location){{stand_in, (int)place->line, NULL}, NULL, (int)place->column, parent, place->newest};
    return place->latest = place->newest = (int)code->location_count++;
}

static int enter_call(parser *p, int place) {
    int latest = p->places[place].latest;
    return latest >= 0 ? latest : enter_location(p, place, -1);
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
 * its location in a table of 64 places, found by its first and its last eight bytes; the next that is equal takes it
 * from there. One thing can change what the same letters mean: "inlined_at" is the location that the place of the call
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
    if (known->caller >= 0 && p->places[known->caller].latest != known->parent) return false;
    lexer *lex = &p->lex;
    int line = lex->line;
    lex->at += length;
    next(p);
    if (is_mark(now(p), ',')) { /* it continues in the next line */
        lex->at = text;
        lex->line = line;
        return false;
    }
    p->places[known->place].latest = p->current_location = known->location;
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
    int caller = inlined ? find_place(p, caller_at) : -1;
    while (accept(p, ",")) {
        whole = false;
        if (accept(p, "function_name")) {
            emu_expect_name(p, "a label");
            if (accept(p, "+")) emu_expect_integer(p);
        } else if (accept(p, "inlined_at")) {
            expect_place(p, caller_at);
            caller = find_place(p, caller_at);
        } else {
            emu_unexpected(p, "function_name or inlined_at");
        }
    }
    int parent = caller >= 0 ? enter_call(p, caller) : -1;
    if (!at[1]) return;
    int place = find_place(p, at);
    p->current_location = enter_location(p, place, parent);
    if (known && whole) *known = (known_loc){text, length, p->current_location, place, parent, caller};
}

/* A caller stands before what is inlined at it, so that one pass links all frames. */
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
