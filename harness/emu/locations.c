/* locations.c - where instructions come from: .file and .loc.
 *
 * Unrolled code names the same few locations again and again, so each is kept once. A call that code was inlined at is
 * the location that its own place had last.
 */
#include "parser.h"

void parse_file(parser *p) {
    uint32_t index = expect_small(p, MAX_FILES - 1, "the file number");
    if (now(p)->kind != TOKEN_STRING) unexpected(p, "a file name");
    p->files[index] = load_text(p->load, now(p)->begin, now(p)->length);
    next(p);
    while (accept(p, ",")) expect_integer(p);
}

void forget_locations(parser *p) {
    p->place_count = 0;
    memset(p->place_heads, 0xff, sizeof p->place_heads);
    p->current_location = -1;
}

static source_place *find_place(parser *p, const uint32_t at[3]) {
    int *head = &p->place_heads[(at[0] ^ at[1] * 31 ^ at[2] * 7) % PLACE_HASH];
    for (int i = *head; i >= 0; i = p->places[i].next) {
        source_place *known = &p->places[i];
        if (known->file == at[0] && known->line == at[1] && known->column == at[2]) return known;
    }
    p->places = load_grow(p->load, p->places, p->place_count, &p->place_capacity, sizeof *p->places);
    p->places[p->place_count] = (source_place){at[0], at[1], at[2], -1, -1, *head};
    *head = (int)p->place_count;
    return &p->places[p->place_count++];
}

/* The location of a place inlined at another, or of one inlined nowhere, whose parent is -1. */
static int enter_location(parser *p, const uint32_t at[3], int parent) {
    entry *code = p->code;
    source_place *place = find_place(p, at);
    for (int i = place->newest; i >= 0; i = code->locations[i].older) {
        if (code->locations[i].parent == parent) return place->latest = i;
    }
    code->locations =
        load_grow(p->load, code->locations, code->location_count, &p->location_capacity, sizeof *code->locations);
    /* a .file may stand in the body too: the number stands in until its end */
    const char *stand_in = (const char *)(uintptr_t)(at[0] + 1);
    code->locations[code->location_count] = (location){stand_in, (int)at[1], (int)at[2], parent, place->newest};
    return place->latest = place->newest = (int)code->location_count++;
}

static int enter_call(parser *p, const uint32_t at[3]) {
    int latest = find_place(p, at)->latest;
    return latest >= 0 ? latest : enter_location(p, at, -1);
}

static void expect_place(parser *p, uint32_t at[3]) {
    at[0] = expect_small(p, MAX_FILES - 1, "the file number");
    at[1] = expect_small(p, 1 << 28, "the line");
    at[2] = expect_small(p, 1 << 28, "the column");
}

/* What follows .loc as nvcc writes it, without making tokens: "1 442 0" or
 * "1 332 5, function_name $L__info_string0, inlined_at 1 446 9". False, and nothing is taken, where it is not so. */
static bool take_plain(lexer *lex, uint32_t at[3], uint32_t caller[3], bool *inlined) {
    static const char function[] = ", function_name ", call[] = ", inlined_at ";
    const char *begin = lex->at;
    if (lexer_take_numbers(lex, at) && at[0] < MAX_FILES) {
        *inlined = lexer_take(lex, function, sizeof function - 1);
        if (!*inlined) return true;
        if (lexer_take_name(lex) && lexer_take(lex, call, sizeof call - 1) && lexer_take_numbers(lex, caller) &&
            caller[0] < MAX_FILES)
            return true;
    }
    lex->at = begin;
    return false;
}

void parse_loc(parser *p) {
    uint32_t at[3], caller[3];
    bool inlined = false;
    bool plain = take_plain(&p->lex, at, caller, &inlined);
    next(p);
    if (!plain) expect_place(p, at);
    int parent = inlined ? enter_call(p, caller) : -1;
    while (accept(p, ",")) {
        if (accept(p, "function_name")) {
            expect_name(p, "a label");
            if (accept(p, "+")) expect_integer(p);
        } else if (accept(p, "inlined_at")) {
            expect_place(p, caller);
            parent = enter_call(p, caller);
        } else {
            unexpected(p, "function_name or inlined_at");
        }
    }
    if (at[1]) p->current_location = enter_location(p, at, parent);
}

void name_files(parser *p) {
    for (size_t i = 0; i < p->code->location_count; i++) {
        location *at = &p->code->locations[i];
        const char *name = p->files[(uintptr_t)at->file - 1];
        at->file = name ? name : "";
    }
}
