/* characters.c - see characters.h */
#include "characters.h"

#define S SPACE
#define D (DIGIT | PART)
#define P START
#define L (LETTER | START | PART)
const uint8_t emu_character_classes[256] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, S, S, S, S, S, 0, 0, /* tab, line feed and their kin */
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /**/
    S, 0, 0, 0, L, P, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* blank $ % */
    D, D, D, D, D, D, D, D, D, D, 0, 0, 0, 0, 0, 0, /* digits */
    0, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, /* A to O */
    L, L, L, L, L, L, L, L, L, L, L, 0, 0, 0, 0, L, /* P to Z, _ */
    0, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, /* a to o */
    L, L, L, L, L, L, L, L, L, L, L, 0, 0, 0, 0, 0, /* p to z */
};
#undef S
#undef D
#undef P
#undef L
