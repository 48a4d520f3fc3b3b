/* stale.h - earlier values that loads of an explored run may return: the explorer chooses them (explore.c).
 *
 *     const size_t found = emu_stale_list(m, w, o, lanes, addresses, values, 16);
 *     emu_stale_choose(m->stale, &values[0], transition); // the load that is granted now returns it
 */
#ifndef FL_EMU_STALE_H
#define FL_EMU_STALE_H

#include "../machine/interleaving.h"

/* The value that 4 bytes had before a strong write. */
typedef struct earlier_value {
    uint64_t key; /* of the bytes; 0: no earlier value */
    uint32_t version, transition;
} earlier_value;

/* Earlier values that the lanes of a load may return, of which `transition` wrote the next one; at most `room`. */
size_t emu_stale_list(cta *m, const warp *w, const op *o, uint32_t lanes, const uint64_t *addresses,
                      earlier_value *values, size_t room);
/* The next load returns this value, if it loads these bytes. Writes from here on belong to `transition`, from 1 on. */
void emu_stale_choose(struct stale_values *s, const earlier_value *value, uint32_t transition);

#endif
