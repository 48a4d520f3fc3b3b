/* entry_points.c - every function of the driver by its address, and the functions that are refused.
 *
 * cuda.h is not included here: for this file a function is its name and its address.
 */
#include "entry_points.h"

#include <string.h>

void driver_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

enum { NOT_SUPPORTED = 801 }; /* CUDA_ERROR_NOT_SUPPORTED */

#pragma GCC visibility push(default)
#define SERVED(name, since) extern int name(void);
#define ALIAS(name, target, since) extern int name(void);
#define REFUSED(name, since) int name(void);
#include "functions_table.h"
#undef SERVED
#undef ALIAS
#undef REFUSED
#pragma GCC visibility pop

/* One line the first time. */
static int refuse(const char *name, _Atomic int *said) {
    if (!(*said)++) driver_say("%s is not supported: it returns CUDA_ERROR_NOT_SUPPORTED", name);
    return NOT_SUPPORTED;
}

#define SERVED(name, since)
#define ALIAS(name, target, since)
#define REFUSED(name, since)                                                                                           \
    int name(void) {                                                                                                   \
        static _Atomic int said;                                                                                       \
        return refuse(#name, &said);                                                                                   \
    }
#include "functions_table.h"
#undef SERVED
#undef ALIAS
#undef REFUSED

typedef struct function {
    const char *name;
    int since; /* as cuDriverGetVersion() counts */
    int (*address)(void);
} function;

static const function functions[] = {
#define SERVED(name, since) {#name, since, name},
#define ALIAS(name, target, since) {#name, since, name},
#define REFUSED(name, since) {#name, since, name},
#include "functions_table.h"
#undef SERVED
#undef ALIAS
#undef REFUSED
};

enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

/* The length of a name without the number of its variant: "cuMemAlloc" of "cuMemAlloc_v2". */
static size_t base_length(const char *name) {
    const size_t length = strlen(name);
    return length > 3 && name[length - 3] == '_' && name[length - 2] == 'v' ? length - 3 : length;
}

void *find_entry_point(const char *name, int version, bool *too_new) {
    const function *best = NULL;
    *too_new = false;
    for (int i = 0; i < FUNCTIONS; i++) {
        const function *f = &functions[i];
        const bool whole = !strcmp(f->name, name);
        if (!whole && (base_length(f->name) != strlen(name) || strncmp(f->name, name, strlen(name)) != 0)) continue;
        if (f->since > version)
            *too_new = true;
        else if (!best || f->since >= best->since)
            best = f;
    }
    void *address = NULL;
    if (best) memcpy(&address, &best->address, sizeof address);
    return address;
}
