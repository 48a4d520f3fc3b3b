/* status.h - how functions of the harness say that something went wrong.
 *
 *     return fail(failure, STATUS_USAGE, "--device %d: must be below %d", device, count);
 *
 * A function that can fail returns a status and, unless that is STATUS_OK, has written one message. Only main() prints
 * the message and exits; the numbers are the exit statuses of the executable.
 */
#ifndef FL_STATUS_H
#define FL_STATUS_H

#include <stdint.h>

enum status {
    STATUS_OK = 0,
    STATUS_WRONG = 1,      /* the kernel's result is wrong */
    STATUS_USAGE = 2,      /* the command line asks for something that does not exist or makes no sense */
    STATUS_ERROR = 3,      /* CUDA, emulator or system error: memory, full disk */
    STATUS_UNTRUSTED = 4,  /* with --strict: measured, but not to be trusted */
    STATUS_CANNOT_RUN = 77 /* the back end asked for can't run here */
};

/* The error, the value, and the allowed values. Several lines are allowed. */
struct failure {
    char text[2000];
};

/* Write the message and return the status. A message that does not fit is cut. */
enum status fail(struct failure *failure, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "out of memory for BYTES bytes of WHAT", STATUS_ERROR. */
enum status fail_memory(struct failure *failure, uint64_t bytes, const char *what);

#endif
