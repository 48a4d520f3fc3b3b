/* setjmp.h - where an error leaves through the page: longjmp() throws there, past every frame, to whoever called in.
 *
 * The page then reads what happened, and takes a new instance: see emulator/wasm/view.h.
 */
#ifndef FL_EMU_WASM_SETJMP_H
#define FL_EMU_WASM_SETJMP_H

#include "../page.h"

typedef int jmp_buf[1];

#define setjmp(mark) ((void)(mark), 0)
#define longjmp(mark, value) ((void)(mark), emu_page_leave(EMU_LEFT_REFUSED))

#endif
