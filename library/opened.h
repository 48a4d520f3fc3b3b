/* opened.h - what fl_open() makes: the embedded versions with their instances, and the back end in use.
 *
 *     for (size_t i = 0; i < library->count; i++) puts(library->versions[i].about->version);
 */
#ifndef FL_LIBRARY_OPENED_H
#define FL_LIBRARY_OPENED_H

#include "emulator/emu.h"
#include "include/flashladder.h"
#include "library/version.h"
#include "runtime/gpu_kernel.h"
#include "runtime/image.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_OWN_CONFIGS = 8 }; /* head sizes that one version has a config for */

/* One embedded version. */
struct embedded {
    const struct version *about;
    struct instance_table table;
    struct kernel_config own[MAX_OWN_CONFIGS]; /* its own config for each head size, of one type */
    int n_own;
    struct gpu_code code;
    emu_module *module; /* on the emulator, from the first use on; under the library's lock */
};

struct gpus; /* library/gpu.h */

struct fl_library {
    uint64_t id; /* of all libraries that the process opened */
    fl_backend backend;
    char why_no_gpu[FL_MAX_TEXT];
    struct embedded *versions; /* in the order of their numbers, followed by those that compute gradients */
    size_t count;              /* without those of gradients */
    struct embedded *backward; /* the first of those */
    size_t backward_count;
    size_t n_kernels;
    struct gpus *gpus; /* NULL on the emulator */
    pthread_mutex_t lock;
    struct fl_library *next; /* of all that are open */
    bool forked;             /* the process is a child of the one that opened the GPUs */
};

/* Number of `versions`, including those that compute gradients. */
static inline size_t all_embedded(const struct fl_library *library) {
    return library->count + library->backward_count;
}

#endif
