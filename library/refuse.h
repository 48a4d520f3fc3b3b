/* refuse.h - a status of the library with its sentence.
 *
 *     if (batch < 0) return refuse(failure, FL_INVALID, "batch %d: must be at least 0", batch);
 */
#ifndef FL_LIBRARY_REFUSE_H
#define FL_LIBRARY_REFUSE_H

#include "include/flashladder.h"
#include "runtime/status.h"

#include <stdint.h>

/* Write the message and return the status. */
fl_status refuse(struct failure *failure, fl_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The library's status for a status of the harness. */
fl_status status_of(enum status status);

/* FL_ERROR: the host has no memory. */
fl_status refuse_memory(struct failure *failure, uint64_t bytes, const char *what);

#endif
