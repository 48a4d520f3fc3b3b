/* files.c - see files.h */
#include "files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A device or growing file is read up to the limit, whatever its reported size. */
char *emu_read_file(const char *path, size_t limit, size_t *bytes, emu_error *error) {
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t size = 0, room = 0;
    bool right = file != NULL;
    while (right && size <= limit && !feof(file)) {
        if (room - size < 2) {
            room = room ? room * 2 : 64 * 1024;
            char *larger = realloc(text, room);
            right = larger != NULL;
            text = right ? larger : text;
        }
        size += right ? fread(text + size, 1, room - size - 1, file) : 0;
        right = right && !ferror(file);
    }
    if (right && size <= limit) {
        text[size] = 0;
        *bytes = size;
    } else {
        if (right)
            emu_fail(error, "%s: must have at most %zu bytes", path, limit);
        else
            emu_fail(error, "cannot read %s: %s", path, strerror(errno));
        free(text);
        text = NULL;
    }
    if (file) fclose(file);
    return text;
}

bool emu_write_file(const char *path, const void *bytes, size_t size, emu_error *error) {
    FILE *file = fopen(path, "wb");
    bool written = file && fwrite(bytes, 1, size, file) == size;
    if (file && fclose(file) != 0) written = false;
    return written || emu_fail(error, "cannot write %s: %s", path, strerror(errno));
}
