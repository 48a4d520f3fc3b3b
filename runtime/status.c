#include "runtime/status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum status fail(struct failure *failure, enum status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->text, sizeof failure->text, format, arguments);
    va_end(arguments);
    return status;
}

enum status fail_memory(struct failure *failure, uint64_t bytes, const char *what) {
    return fail(failure, STATUS_ERROR, "out of memory: could not allocate %" PRIu64 " bytes on the host for %s", bytes,
                what);
}
