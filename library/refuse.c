#include "library/refuse.h"

#include <stdarg.h>
#include <stdio.h>

fl_status refuse(struct failure *failure, fl_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->text, sizeof failure->text, format, arguments);
    va_end(arguments);
    return status;
}

fl_status status_of(enum status status) {
    return status == STATUS_OK ? FL_OK : status == STATUS_CANNOT_RUN ? FL_UNAVAILABLE : FL_ERROR;
}

fl_status refuse_memory(struct failure *failure, uint64_t bytes, const char *what) {
    fail_memory(failure, bytes, what);
    return FL_ERROR;
}
