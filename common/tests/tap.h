/* tap.h - the Test Anything Protocol for C test programs: one line per check, the plan at the end.
 *
 *     ok(sum == 3, "sum is %d", sum);
 *     return tap_done();
 */
#ifndef FL_TAP_H
#define FL_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int tap_count, tap_failed;

/* One check; the text says what should hold. Returns the condition. */
static inline bool __attribute__((format(printf, 2, 3))) ok(bool condition, const char *format, ...) {
    va_list arguments;
    printf("%sok %d - ", condition ? "" : "not ", ++tap_count);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
    tap_failed += !condition;
    return condition;
}

/* A message of the code under test must contain a word; it is shown where it does not. */
static inline bool says(const char *message, const char *word, const char *what) {
    const bool found = strstr(message, word) != NULL;
    if (!found) printf("# expected '%s' in: %s\n", word, message);
    return ok(found, "%s: the message names '%s'", what, word);
}

/* Print the plan; the exit status of main(). */
static inline int tap_done(void) {
    printf("1..%d\n", tap_count);
    return tap_failed != 0;
}

#endif
