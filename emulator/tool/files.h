/* files.h - whole files.
 *
 *     char *text = emu_read_file(path, 1 << 20, &bytes, &error); // at most a megabyte
 *     if (!text) return false;                       // error.text says why
 */
#ifndef FL_EMU_FILES_H
#define FL_EMU_FILES_H

#include "../ptx/errors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The bytes of a file, owned, with a zero byte after them. A file of more than `limit` is refused. */
char *emu_read_file(const char *path, size_t limit, size_t *bytes, emu_error *error);
bool emu_write_file(const char *path, const void *bytes, size_t size, emu_error *error);

#ifdef __cplusplus
}
#endif

#endif
