/* errors.h - how a function says what is wrong.
 *
 *     if (bytes == 0) return emu_fail(error, "%s is empty", path);
 *
 * A function that can fail returns false or NULL and has filled the error: one sentence with the value and what would
 * be right. Only main() prints it.
 */
#ifndef FL_EMU_ERRORS_H
#define FL_EMU_ERRORS_H

#include "../emu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fill the error, which is about no line; false, so that a caller can return it on. */
__attribute__((format(printf, 2, 3))) bool emu_fail(emu_error *error, const char *format, ...);

#ifdef __cplusplus
}
#endif

#endif
