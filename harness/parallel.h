/* parallel.h - a loop whose iterations run on all cores.
 *
 *     parallel_for(n_heads, work_on_head, &context);
 */
#ifndef FL_PARALLEL_H
#define FL_PARALLEL_H

#include <stdint.h>

/* Call body(i, context) for every i in [0, count), each once, in any order and from several threads; returns when all
 * have returned. Runs on fewer threads, at least the caller's, where no more can be started. */
void parallel_for(int64_t count, void (*body)(int64_t i, void *context), void *context);

#endif
