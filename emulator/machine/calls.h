/* calls.h - calls of functions and returns from them, and the functions that are built in. */
#ifndef FL_EMU_CALLS_H
#define FL_EMU_CALLS_H

#include "paths.h"

/* Lanes return; without any left the path is at its end, unless the warp is split: then another continues. */
void emu_return_from_call(cta *m, warp *w, uint32_t mask);
/* Lanes ended in functions. */
void emu_leave_calls(warp *w, uint32_t mask);
void emu_free_calls(warp *w);

#endif
