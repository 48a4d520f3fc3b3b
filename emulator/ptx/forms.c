/* forms.c - see forms.h */
#include "forms.h"

#include "builder.h"

#include <stdlib.h>
#include <string.h>

static const form form_table[] = {
#define LANES_ROW(group, opcode, modifiers, operands, fidelity, function, note)                                        \
    {{opcode, modifiers, operands, group, note, EMU_##fidelity}, OP_LANES, emu_decode_lanes, function},
#define FORM_ROW(group, opcode, modifiers, operands, kind, fidelity, decode, note)                                     \
    {{opcode, modifiers, operands, group, note, EMU_##fidelity}, kind, decode, NULL},
#include "forms_table.h"
};

static const size_t form_count = sizeof form_table / sizeof *form_table;

static const target_rule target_rules[] = {
#define TARGET_ROW(names, modifiers, targets) {names, modifiers, targets},
#include "forms_table.h"
};

const emu_form *emu_form_at(size_t index) {
    return index < form_count ? &form_table[index].row : NULL;
}

const form *emu_form_row(size_t index) {
    return &form_table[index];
}

const target_rule *emu_target_rule(size_t index) {
    return index < sizeof target_rules / sizeof *target_rules ? &target_rules[index] : NULL;
}

/* ---- matching ---- */

enum { FORM_HASH = 256 };

static unsigned hash_opcode(const char *opcode) {
    unsigned hash = 0;
    for (; *opcode; opcode++) hash = hash * 31 + (uint8_t)*opcode;
    return hash % FORM_HASH;
}

/* True if the piece is one of the alternatives between token and end. */
static bool one_of(const char *piece, const char *token, const char *end) {
    size_t length = strlen(piece);
    while (token < end) {
        const char *bar = memchr(token, '|', (size_t)(end - token));
        size_t alternative = (size_t)((bar ? bar : end) - token);
        if (alternative == length && !memcmp(token, piece, length)) return true;
        token += alternative + 1;
    }
    return false;
}

/* Modifiers that belong to the name of an opcode: they directly follow it, in the order of the row. */
static const struct {
    const char *opcode, *words;
} name_words[] = {
    {"bar", "cta|warp|sync|arrive|red"},
    {"barrier", "cta|cluster|arrive|wait|red"},
    {"clusterlaunchcontrol", "try_cancel|query_cancel"},
    {"cp", "reduce|async|bulk|tensor|prefetch|commit_group|wait_group|wait_all|mbarrier|arrive"},
    {"createpolicy", "fractional|range|cvt"},
    {"cvt", "pack"},
    {"cvta", "to"},
    {"div", "full"},
    {"dp2a", "lo|hi"},
    {"fence", "proxy"},
    {"mad", "lo|hi|wide"},
    {"mad24", "lo|hi"},
    {"madc", "lo|hi"},
    {"mbarrier", "init|inval|arrive|arrive_drop|noComplete|pending_count|expect_tx|test_wait|try_wait|parity"},
    {"mul", "lo|hi|wide"},
    {"mul24", "lo|hi"},
    {"shf", "l|r"},
    {"tcgen05", "alloc|dealloc|relinquish_alloc_permit|ld|red|st|cp|shift|commit|mma|sp|ws"},
    {"wgmma", "mma_async|fence|commit_group|wait_group"},
    {"wmma", "load|store|mma|a|b|c|d"},
};

/* ptxas takes the modifiers in any order, but that those of the name come first and those of one kind keep their order:
 * both types of a cvt, the layouts of A and B, the spaces of a copy. */
enum kind { KIND_ANY, KIND_NAME, KIND_TYPE, KIND_SPACE, KIND_LAYOUT, KIND_PRIORITY, KINDS };

static enum kind kind_of(const char *opcode, const char *piece) {
    for (size_t i = 0; i < sizeof name_words / sizeof *name_words; i++) {
        const char *words = name_words[i].words;
        if (!strcmp(name_words[i].opcode, opcode) && one_of(piece, words, words + strlen(words))) return KIND_NAME;
    }
    if (emu_find_type(piece)) return KIND_TYPE;
    if (emu_find_space(piece) != SPACE_GENERIC) return KIND_SPACE;
    if (!strcmp(piece, "row") || !strcmp(piece, "col")) return KIND_LAYOUT;
    return strncmp(piece, "L2::evict_", 10) ? KIND_ANY : KIND_PRIORITY;
}

/* The tokens of a row's modifiers. */
typedef struct tokens {
    const char *begin[MAX_PIECES], *end[MAX_PIECES];
    bool optional[MAX_PIECES];
    int count;
} tokens;

static void split_modifiers(const char *at, tokens *out) {
    for (out->count = 0; *at; out->count++) {
        const char *end = strchr(at, ' ');
        if (!end) end = at + strlen(at);
        out->optional[out->count] = end[-1] == '?';
        out->begin[out->count] = at;
        out->end[out->count] = end - out->optional[out->count];
        at = *end ? end + 1 : end;
    }
}

/* Match the pieces of an opcode against a row; *reached is the first piece that did not fit. */
static bool match_row(const form *row, const opcode *in, form_match *match, int *reached) {
    tokens of;
    int first[KINDS] = {0}; /* token that the next piece of a kind may be */
    split_modifiers(row->row.modifiers, &of);
    *match = (form_match){.vector = 1, .chosen_count = of.count};
    for (int piece = 1; piece < in->piece_count; piece++) {
        const char *word = in->pieces[piece];
        enum kind kind = kind_of(in->pieces[0], word), before = kind_of(in->pieces[0], in->pieces[piece - 1]);
        int at = kind == KIND_ANY ? 0 : first[kind];
        while (at < of.count && (match->chosen[at] || !one_of(word, of.begin[at], of.end[at]))) at++;
        *reached = piece;
        if (at == of.count || (kind == KIND_NAME && piece > 1 && before != KIND_NAME)) return false;
        match->chosen[at] = word;
        first[kind] = at + 1;
        const type_info *type = emu_find_type(word);
        if (type && match->type_count < 4) match->types[match->type_count++] = type;
        if (!strcmp(word, "v2")) match->vector = 2;
        if (!strcmp(word, "v4")) match->vector = 4;
        if (!strcmp(word, "v8")) match->vector = 8;
        if (match->space == SPACE_GENERIC) match->space = emu_find_space(word);
    }
    *reached = in->piece_count;
    for (int at = 0; at < of.count; at++) {
        if (!of.optional[at] && !match->chosen[at]) return false;
    }
    return true;
}

/* Widths of the operands as the row's text has them: "a.32" or that of the type. */
static void read_operands(const form *row, form_match *match) {
    const char *at = row->row.operands;
    for (match->operand_count = 0; at; match->operand_count++) {
        const char *comma = strchr(at, ','), *dot = strchr(at, '.');
        int bits = *at == 'i' ? 0 : match->types[0]->bits;
        if (dot && (!comma || dot < comma)) bits = dot[1] == '1' ? 16 : dot[1] == '3' ? 32 : 64;
        match->operand_bits[match->operand_count] = (uint8_t)bits;
        at = comma ? comma + 2 : NULL;
    }
}

bool emu_form_has(size_t index, const opcode *in, bool complete) {
    form_match match;
    int reached = 0;
    if (strcmp(form_table[index].row.opcode, in->pieces[0])) return false;
    return match_row(&form_table[index], in, &match, &reached) || (!complete && reached == in->piece_count);
}

bool emu_is_alternative(const char *word, const char *alternatives) {
    return one_of(word, alternatives, alternatives + strlen(alternatives));
}

/* Rows by opcode: first[hash] is 1 + the first row of a chain, next[row] likewise. */
void emu_index_forms(loader *load) {
    load->first_form = emu_load_alloc(load, FORM_HASH * sizeof *load->first_form);
    load->next_form = emu_load_alloc(load, form_count * sizeof *load->next_form);
    for (size_t i = form_count; i-- > 0;) {
        uint16_t *head = &load->first_form[hash_opcode(form_table[i].row.opcode)];
        load->next_form[i] = *head;
        *head = (uint16_t)(i + 1);
    }
}

/* The opcode as it was written. */
static const char *whole_opcode(const opcode *in, char *out, size_t bytes) {
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < in->piece_count && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%.40s", i ? "." : "", in->pieces[i]);
    return out;
}

void emu_check_opcode(loader *load, const opcode *in, int line) {
    static const struct {
        const char *opcode, *subject;
    } refused[] = {
        {"tld4", "gathers of textures"},     {"txq", "questions about textures"},
        {"suq", "questions about surfaces"}, {"istypep", "questions about objects"},
        {"sured", "reductions in surfaces"},
    };
    const char *name = in->pieces[0];
    char whole[128];
    for (unsigned at = load->first_form[hash_opcode(name)]; at; at = load->next_form[at - 1])
        if (!strcmp(form_table[at - 1].row.opcode, name)) return;
    whole_opcode(in, whole, sizeof whole);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!strcmp(refused[i].opcode, name))
            emu_load_fail(load, line, "%s are not supported: '%s'", refused[i].subject, whole);
    emu_load_fail(load, line, "opcode '%.40s' of '%s' is not supported", name, whole);
}

/* ---- targets ---- */

/* True if the words of a rule are among those of an instruction, in their order. */
static bool concerns(const target_rule *rule, const form_match *match) {
    tokens of;
    int at = 0;
    split_modifiers(rule->modifiers, &of);
    for (int i = 0; i < of.count; i++, at++) {
        while (at < match->chosen_count && !(match->chosen[at] && one_of(match->chosen[at], of.begin[i], of.end[i])))
            at++;
        if (at >= match->chosen_count) return false;
    }
    return true;
}

/* True if the text's .target is one of those that a rule names: later ones are, too, but for sm_100a, and those of
 * other families for sm_100f. */
static bool is_among(const loader *load, const char *targets) {
    while ((targets = strstr(targets, "sm_"))) {
        char *letter;
        const unsigned number = (unsigned)strtoul(targets + 3, &letter, 10);
        const bool later = load->target >= number, family = load->target / 10 == number / 10 && load->target_letter;
        if (*letter == 'a' ? load->target == number && load->target_letter == 'a' : later && (*letter != 'f' || family))
            return true;
        targets = letter;
    }
    return false;
}

static void expect_target(loader *load, const char *name, const form_match *match, const char *shown, int line) {
    for (size_t i = sizeof target_rules / sizeof *target_rules; i-- > 0;) {
        const target_rule *rule = &target_rules[i];
        if (!emu_is_alternative(name, rule->names) || is_among(load, rule->targets) || !concerns(rule, match)) continue;
        const char letter[] = {load->target_letter, 0};
        const int first = 3 + (int)strspn(rule->targets + 3, "0123456789");
        const char after = rule->targets[first];
        emu_load_fail(load, line, "%s needs .target %s, not sm_%u%s: nvcc -arch=%.*s%s", shown, rule->targets,
                      load->target, letter, first, rule->targets, after == 'a' || after == 'f' ? "a" : "");
    }
}

void emu_expect_target(loader *load, const char *name, int line) {
    expect_target(load, name, &(form_match){0}, name, line);
}

const form *emu_find_form(loader *load, const statement *where, form_match *match) {
    const opcode *in = where->opcode;
    int best = 0;
    char whole[128];
    for (unsigned at = load->first_form[hash_opcode(in->pieces[0])]; at; at = load->next_form[at - 1]) {
        size_t i = at - 1;
        int reached;
        if (strcmp(form_table[i].row.opcode, in->pieces[0])) continue;
        if (match_row(&form_table[i], in, match, &reached)) {
            if (form_table[i].lanes) read_operands(&form_table[i], match);
            match->kind = form_table[i].kind;
            match->operands = form_table[i].row.operands;
            match->flushes = emu_chose(match, "ftz") && strstr(form_table[i].row.modifiers, "ftz?");
            expect_target(load, in->pieces[0], match, whole_opcode(in, whole, sizeof whole), where->line);
            return &form_table[i];
        }
        if (reached > best) best = reached;
    }
    whole_opcode(in, whole, sizeof whole);
    if (best < in->piece_count && !strcmp(in->pieces[0], "wgmma") && !strncmp(in->pieces[best], "m64n", 4))
        emu_load_fail(load, where->line,
                      "shape '.%.40s' of '%s' is not supported: n is a multiple of 8 from 8 to 256, and k is 16, or 8 "
                      "of tf32",
                      in->pieces[best], whole);
    if (best >= in->piece_count)
        emu_load_fail(load, where->line, "'%s' is not supported: a modifier is missing", whole);
    emu_load_fail(load, where->line, "modifier '.%.40s' of '%s' is not supported in this position", in->pieces[best],
                  whole);
}
