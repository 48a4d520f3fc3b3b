/* samples.h - times the last call of a recording, sample by sample.
 *
 *     time_samples(&r, 100, sets, given, "results");   // after the setup; writes times.json and the outputs
 *
 * The recorded program is not there to see the clock. Each sample has restored state, inputs of one of several sets,
 * poisoned outputs, a cold L2 cache and shared memory without residues. README.md describes the file.
 */
#ifndef FL_JUDGE_SAMPLES_H
#define FL_JUDGE_SAMPLES_H

#include "replay.h"

/* given: for each input of the recording its bytes of all sets, one after another; NULL where it stays as recorded.
 * False, and r->error says why, where the call failed. */
bool time_samples(replay *r, uint64_t samples, uint64_t sets, uint8_t *const *given, const char *folder);

#endif
