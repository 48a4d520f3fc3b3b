/* explain.c - what a PTX form does here, for people: `ptxrun --explain`. */
#include "errors.h"
#include "forms.h"

#include <string.h>

/* Limits and differences from a GPU, listed by opcode. */
static const struct {
    const char *opcodes, *text;
} blind_spots[] = {
#define BLIND_ROW(opcodes, text) {opcodes, text},
#include "forms_table.h"
};

static const struct {
    op_kind kind;
    const char *name, *text;
    enum op_lanes lanes;
} operations[] = {
#define OP_ROW(kind, lanes, handler, text) {kind, #kind, text, lanes},
#include "forms_table.h"
};

static const char *const lanes_text[] = {
    [LANES_EACH] = "each lane on its own",
    [LANES_WARP] = "all lanes of the warp together",
    [LANES_WARPGROUP] = "all lanes of the warp together; the warpgroup's other warps may have to come",
    [LANES_LIVE] = "all lanes of the warp that have not ended",
    [LANES_ALIGNED] = "all lanes of the warp that have not ended; without .aligned an arrival is of each lane",
    [LANES_NAMED] = "the lanes of the member mask together",
};

static const char *const fidelity_text[] = {
    [EMU_EXACT] = "exact: the PTX ISA defines every bit",
    [EMU_RECORDED] = "recorded: the PTX ISA leaves bits open, and these are the bits that an H200 gave",
    [EMU_FORMULA] = "by formula: the PTX ISA leaves bits open, and those of a GPU may differ",
    [EMU_NO_BITS] = "none: the form computes no value",
};

/* The pieces of "opcode.modifier.modifier", up to the first blank. */
typedef struct pieces {
    char text[256];
    const char *at[MAX_PIECES];
    opcode opcode;
} pieces;

static bool split_form(const char *form, pieces *out) {
    const size_t length = strcspn(form, " \t;");
    *out = (pieces){.opcode.pieces = out->at};
    if (!length || length >= sizeof out->text) return false;
    memcpy(out->text, form, length);
    char *at = out->text;
    while (at && out->opcode.piece_count < MAX_PIECES) {
        out->at[out->opcode.piece_count++] = at;
        at = strchr(at, '.');
        if (at) *at++ = 0;
    }
    return !at;
}

/* The note of a row; "likewise" repeats the note before it. */
static void print_note(FILE *to, size_t index) {
    size_t from = index;
    while (from && !strncmp(emu_form_at(from)->note, "likewise", 8)) from--;
    const char *note = emu_form_at(index)->note, *more = from == index ? "" : note + 8;
    if (*note) fprintf(to, "  note      %s%s\n", emu_form_at(from)->note, more);
}

static void print_form(FILE *to, size_t index) {
    const form *each = emu_form_row(index);
    fprintf(to, "%s %s\n", each->row.opcode, each->row.modifiers);
    if (each->row.operands[0]) fprintf(to, "  operands  %s\n", each->row.operands);
    fprintf(to, "  bits      %s\n", fidelity_text[each->row.fidelity]);
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        if (operations[i].kind != each->kind) continue;
        fprintf(to, "  operation %s: %s\n  lanes     %s\n", operations[i].name, operations[i].text,
                lanes_text[operations[i].lanes]);
    }
    print_note(to, index);
}

static void print_blind_spots(FILE *to, const char *opcode) {
    for (size_t i = 0; i < sizeof blind_spots / sizeof *blind_spots; i++) {
        if (opcode && emu_is_alternative(opcode, blind_spots[i].opcodes))
            fprintf(to, "limit: %s\n", blind_spots[i].text);
        if (!opcode) fprintf(to, "- %s\n", blind_spots[i].text);
    }
}

/* Print the targets that the forms of an opcode need. */
static void print_targets(FILE *to, const char *opcode) {
    const target_rule *rule;
    for (size_t i = 0; (rule = emu_target_rule(i)); i++)
        if (emu_is_alternative(opcode, rule->names))
            fprintf(to, "target: %s%s%s\n", rule->targets, *rule->modifiers ? ", with " : "", rule->modifiers);
}

bool emu_explain_form(FILE *to, const char *form, emu_error *error) {
    pieces of;
    size_t found = 0;
    if (!strcmp(form, "limits")) {
        print_blind_spots(to, NULL);
        return true;
    }
    if (!split_form(form, &of))
        return emu_fail(error, "--explain %.100s: should be an opcode, with or without modifiers: ex2.approx.f32",
                        form);
    /* the row that accepts it as it is, else all rows that have these modifiers */
    for (int complete = 1; complete >= 0 && !found; complete--) {
        for (size_t i = 0; emu_form_at(i) && !(complete && found); i++) {
            if (!emu_form_has(i, &of.opcode, complete)) continue;
            print_form(to, i);
            found++;
        }
    }
    if (!found)
        return emu_fail(error, "--explain %.100s: no form has this opcode and these modifiers; --forms lists all",
                        form);
    print_blind_spots(to, of.at[0]);
    print_targets(to, of.at[0]);
    return true;
}
