/* files.h - whole files, and how a function of the tools says what is wrong.
 *
 *     char *text = emu_read_file(path, 1 << 20, &bytes, &error); // at most a megabyte
 *     if (!text) return false;                       // error.text says why
 *     if (bytes == 0) return emu_fail(&error, "%s is empty", path);
 *
 * A function that can fail returns false or NULL and has filled the error: one sentence with the value and what would
 * be right. Only main() prints it.
 */
#ifndef FL_EMU_FILES_H
#define FL_EMU_FILES_H

#include "../emu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fill the error, which is about no line; false, so that a caller can return it on. */
__attribute__((format(printf, 2, 3))) bool emu_fail(emu_error *error, const char *format, ...);
/* The bytes of a file, owned, with a zero byte after them. A file of more than `limit` is refused. */
char *emu_read_file(const char *path, size_t limit, size_t *bytes, emu_error *error);
bool emu_write_file(const char *path, const void *bytes, size_t size, emu_error *error);

#ifdef __cplusplus
}
#endif

#endif
