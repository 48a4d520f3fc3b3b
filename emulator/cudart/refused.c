/* refused.c - every other function of the runtime: it returns cudaErrorNotSupported, and one line on stderr names it.
 *
 * No header of CUDA is included here: for this file a function is its name.
 */
#include <stdio.h>

enum { NOT_SUPPORTED = 801 }; /* cudaErrorNotSupported */

int runtime_failed(int error);

static int refuse(const char *name, _Atomic int *said) {
    if (!(*said)++) fprintf(stderr, "emulated GPU: %s is not supported: it returns cudaErrorNotSupported\n", name);
    return runtime_failed(NOT_SUPPORTED);
}

#pragma GCC visibility push(default)
#define REFUSED(name)                                                                                                  \
    int name(void);                                                                                                    \
    int name(void) {                                                                                                   \
        static _Atomic int said;                                                                                       \
        return refuse(#name, &said);                                                                                   \
    }
#include "refused_table.h"
#undef REFUSED
#pragma GCC visibility pop
