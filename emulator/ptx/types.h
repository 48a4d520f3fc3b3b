/* types.h - the type modifiers and the state spaces of PTX by name. */
#ifndef FL_EMU_TYPES_H
#define FL_EMU_TYPES_H

#include "program.h"

/* The type modifiers of PTX. */
typedef struct type_info {
    const char *name;
    uint8_t bits;
    char family; /* 'b', 'u', 's', 'f', 'p' (predicate), 'h' (f16), 'g' (bf16), 'H', 'G' (x2), 't' (tf32), 'E' (two of
                  8 bits or fewer), 'F' (two f32), 'x' (two integers of 16) */
} type_info;

/* NULL for a modifier that is no type. */
const type_info *emu_find_type(const char *name);
/* The space of a modifier such as "shared::cta"; generic where it names none. */
state_space emu_find_space(const char *modifier);

#endif
