/* page.h - the one thing that the module imports: a way out, past all frames, to whoever called in.
 *
 *     emu_page_leave(EMU_LEFT_STOPPED);     // the page catches it; memory stays as it is, to be looked at
 */
#ifndef FL_EMU_WASM_PAGE_H
#define FL_EMU_WASM_PAGE_H

enum emu_left {
    EMU_LEFT_STOPPED,  /* at the step that the view was asked to stop before */
    EMU_LEFT_REFUSED,  /* PTX is not accepted: emu_view_refusal() says why */
    EMU_LEFT_ROUNDING, /* the instruction at work rounds in a way that this host does not */
};

#if defined(__wasm__)
/* Throws. Neither frames nor the stack pointer are put back: whoever catches it does that. */
__attribute__((import_module("env"), import_name("leave"))) _Noreturn void emu_page_leave(int why);
#else
#include <stdlib.h>
/* A native build, for tests, runs whole launches only. */
static inline _Noreturn void emu_page_leave(int why) {
    (void)why;
    abort();
}
#endif

#endif
