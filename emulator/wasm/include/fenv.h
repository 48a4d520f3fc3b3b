/* fenv.h - WebAssembly rounds to nearest only: whatever asks for another way leaves through the page, by name. */
#ifndef FL_EMU_WASM_FENV_H
#define FL_EMU_WASM_FENV_H

#include "../page.h"

enum { FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD };

static inline int fesetround(int mode) {
    if (mode != FE_TONEAREST) emu_page_leave(EMU_LEFT_ROUNDING);
    return 0;
}

#endif
