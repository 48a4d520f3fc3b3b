/* watch.h - follows a launch: which warp runs which instruction, which register a slot holds, and when to leave.
 *
 *     emu_watch_start(1000, true);           // leave before step 1000, and remember every step until then
 */
#ifndef FL_EMU_WASM_WATCH_H
#define FL_EMU_WASM_WATCH_H

#include "../machine/machine.h"

/* Before step `stop`, counted from 0, the launch is left; UINT32_MAX: never. */
void emu_watch_start(uint32_t stop, bool remember);

/* Turns by hand, in order: pairs of a step and the warp that has it, if it can run. Borrowed; they hold for every start
 * that follows. */
void emu_watch_turns(const uint32_t *turns, uint32_t count);

/* The CTA and warp of the step that was left out, NULL and -1 where the launch ended. */
const cta *emu_watch_machine(void);
int emu_watch_warp(void);

/* True if a slot of a warp holds this virtual register: none that shares the slot was written since. */
bool emu_watch_holds(const cta *m, const warp *w, uint16_t name);

/* Steps so far, and what each was: CTA (7 bits), warp (5 bits) and instruction (20 bits). */
uint32_t emu_watch_count(void);
const uint32_t *emu_watch_steps(void);

#endif
