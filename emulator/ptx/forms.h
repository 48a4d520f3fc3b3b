/* forms.h - the table of PTX forms (forms_table.h), and the search in it. */
#ifndef FL_EMU_FORMS_H
#define FL_EMU_FORMS_H

#include "decode_rules.h"

typedef struct form {
    emu_form row;
    op_kind kind; /* of the op that does the work */
    decode_function *decode;
    lane_function *lanes; /* of a row that emu_decode_lanes() decodes, else NULL */
} form;

/* A TARGET_ROW: an instruction with one of the names and all of the modifiers needs one of the targets. */
typedef struct target_rule {
    const char *names, *modifiers, *targets;
} target_rule;

/* A rule by its number; NULL past the last. */
const target_rule *emu_target_rule(size_t index);
/* A row by its number, which is below that of the rows. */
const form *emu_form_row(size_t index);
/* True if a row has an opcode and its modifiers; complete: and needs no others. */
bool emu_form_has(size_t index, const opcode *in, bool complete);
/* True if a word is one of those between the bars. */
bool emu_is_alternative(const char *word, const char *alternatives);
/* Rows by opcode, for emu_find_form(). */
void emu_index_forms(loader *load);
/* Leaves by emu_load_fail() where no form has the opcode, so that operands of unknown ones need not be read. */
void emu_check_opcode(loader *load, const opcode *in, int line);
/* Leaves by emu_load_fail() if a target_rule has this name and the .target of the text is none of its targets. */
void emu_expect_target(loader *load, const char *name, int line);
/* The form of an instruction; leaves by emu_load_fail() with a reason when there is none, or none for the .target. */
const form *emu_find_form(loader *load, const statement *in, form_match *match);

#endif
