/* errors.c - see errors.h */
#include "errors.h"

#include <stdarg.h>

bool emu_fail(emu_error *error, const char *format, ...) {
    va_list arguments;
    error->line = 0;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return false;
}
