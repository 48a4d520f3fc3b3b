/* report.h - what a replay shows: outputs, how the call touched memory, and the state that it left.
 *
 *     report_before(&r);               // after the setup and the inputs
 *     replay_call(&r);
 *     report_write(&r, "results", inputs); // result.json, NAME.out, NAME.touch
 */
#ifndef FL_JUDGE_REPORT_H
#define FL_JUDGE_REPORT_H

#include "replay.h"

/* Write a file of the folder: its name is name and kind together. */
bool report_save(replay *r, const char *folder, const char *name, const char *kind, const void *data, uint64_t bytes);
/* Keep the bytes of older memory, and begin to note how memory is touched. */
bool report_before(replay *r);
/* Write everything into a folder. given: the bytes of each input, in the order of the recording; NULL where they are
 * as recorded. Where the replay failed, result.json says why and holds no more. */
bool report_write(replay *r, const char *folder, uint8_t *const *given);

#endif
