/* view.h - the emulator for a page: one module, one launch, which can be left before any warp instruction.
 *
 *     emu_view()->launch = launch;            // between the page's calls of emu_view_load() and emu_view_run()
 *
 * The page calls emu_view_load() with PTX, has a launch made (harness/browser/problem.c), and then emu_view_run(): with
 * UINT32_MAX for the whole launch, whose steps emu_view_steps() has; with 1000 it leaves before step 1000, and
 * emu_view_look() and the like see the machine.
 *
 * A launch is deterministic, so the state before a step is reached by running from the start. The page keeps a copy of
 * memory as it was before the launch, and puts it back first. Everything crosses as numbers and addresses of this
 * module's memory; texts are JSON.
 */
#ifndef FL_EMU_WASM_VIEW_H
#define FL_EMU_WASM_VIEW_H

#include "../emu.h"

#if defined(__wasm__)
#define EMU_EXPORT(name) __attribute__((export_name(#name)))
#else
#define EMU_EXPORT(name) __attribute__((visibility("default")))
#endif

typedef struct emu_view_state {
    emu_module *module;
    emu_device *device;
    emu_launch launch;
    emu_error error;    /* of what was refused last */
    bool without_lines; /* the module names no lines of a source */
} emu_view_state;

emu_view_state *emu_view(void);

#endif
