/* progress.h - say how far a long piece of work has come: a line that is rewritten on a terminal, else one now and
 * then.
 *
 *     struct progress *progress = progress_start(&plan);
 *     work();
 *     progress_stop(progress);
 *
 * A thread of its own asks for the count and writes; the work only counts.
 */
#ifndef FL_PROGRESS_H
#define FL_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The unit that is counted, and the stream for messages. All pointers are borrowed until progress_stop(). */
struct progress_plan {
    FILE *file;
    bool terminal;     /* file is one: the line is rewritten, and cleared at the end */
    double interval_s; /* before the first line and between lines; work that ends sooner says nothing */
    const char *label; /* "v07: seq 16384" */
    const char *unit;  /* "CTAs" */
    uint64_t total;
    uint64_t (*done)(const void *context); /* called from another thread */
    const void *context;
};

struct progress; /* owned by the caller of progress_start() */

/* NULL where no thread can be started: then nothing is said. */
struct progress *progress_start(const struct progress_plan *plan);

/* NULL does nothing. When this returns, nothing more is written. */
void progress_stop(struct progress *progress);

/* "45 s", "2 min 10 s", "1 h 05 min". Returns text. */
char *duration_text(double seconds, char *text, size_t size);

/* "v07: seq 16384: 96 of 512 CTAs, 2 min 10 s, about 9 min 24 s left"; the time left follows from the time so far, and
 * is missing while nothing is done. Returns text. */
char *progress_text(const struct progress_plan *plan, uint64_t done, double elapsed_s, char *text, size_t size);

#endif
