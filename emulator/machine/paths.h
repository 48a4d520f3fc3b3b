/* paths.h - the paths of a warp whose lanes have parted.
 *
 * As long as lanes meet where control flow says, the other paths of a warp are kept on a stack (warp.c). Lanes that
 * wait for each other elsewhere, at an instruction with a member mask or in a lock, make the warp split: then its paths
 * are a list, each of them can run, and those that come to the same instruction continue as one. See paths.c.
 */
#ifndef FL_EMU_PATHS_H
#define FL_EMU_PATHS_H

#include "machine.h"

/* The stack becomes a list of paths. */
void emu_split_warp(warp *w);
/* The path at work goes to the list, as one that waits or one that runs; another is chosen. */
void emu_next_path(cta *m, warp *w, path_state state);
/* After a branch whose loop may wait for other lanes: others get a turn where it took too many. */
void emu_take_turns(cta *m, warp *w);
/* Lanes that were to execute an op wait for others to come, and the op counts as not executed. False where no others
 * are left that could come: then the caller says so. */
bool emu_hold_lanes(cta *m, warp *w, const op *o, uint32_t mask);
/* Execute an instruction with a member mask for each group of lanes that is complete; the others wait. */
void emu_run_members(cta *m, warp *w, const op *o, uint32_t mask, op_handler *run);
/* A path sleeps until an mbarrier completes; others of the warp run meanwhile, if there are. */
void emu_path_sleeps(cta *m, warp *w);
void emu_wake_paths(warp *w);

#endif
