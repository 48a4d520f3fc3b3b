/* posix.h - what the library takes from POSIX and Windows' C library lacks. make/hosts.mk includes it ahead of each
 * file.
 */
#if !defined(FL_WINDOWS_POSIX_H) && !defined(__ASSEMBLER__)
#define FL_WINDOWS_POSIX_H

#include <stddef.h>
#include <stdlib.h>

enum { _SC_NPROCESSORS_ONLN };

static inline long sysconf(int name) {
    const char *const processors = name == _SC_NPROCESSORS_ONLN ? getenv("NUMBER_OF_PROCESSORS") : NULL;
    return processors ? atol(processors) : 1;
}

/* malloc() gives multiples of 16 bytes there, all that SSE2 needs, and free() takes no memory of _aligned_malloc(). */
static inline void *aligned_alloc(size_t alignment, size_t size) {
    (void)alignment;
    return malloc(size);
}

static inline void *memrchr(const void *bytes, int byte, size_t size) {
    for (const unsigned char *at = bytes; size; size--)
        if (at[size - 1] == (unsigned char)byte) return (void *)(at + size - 1);
    return NULL;
}

#endif
