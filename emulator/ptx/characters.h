/* characters.h - what a byte of PTX may be: a table, as ctype.h asks the locale at every character.
 *
 *     while (is(*at, DIGIT)) at++;
 */
#ifndef FL_EMU_CHARACTERS_H
#define FL_EMU_CHARACTERS_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes from 128 on are nothing. */
enum lexer_class {
    SPACE = 1,
    DIGIT = 2,
    LETTER = 4,
    START = 8, /* of a name */
    PART = 16, /* of a name after its start */
};
extern const uint8_t emu_character_classes[256];

static inline bool is(int c, int what) {
    return (emu_character_classes[(uint8_t)c] & what) != 0;
}

#endif
