/* choice.h - which embedded kernel runs a problem: the one asked for by name, or the fastest that computes it.
 *
 *     struct choice choice;
 *     fl_status status = choose(library, &call, &target, &choice, failure);
 */
#ifndef FL_LIBRARY_CHOICE_H
#define FL_LIBRARY_CHOICE_H

#include "library/call.h"
#include "library/opened.h"
#include "runtime/gpu_kernel.h"

#include <stdbool.h>

struct choice {
    struct embedded *version;
    const struct instance *instance;
    bool best, measured;            /* chosen by rank; by a rank that was measured for this case */
    bool few_rows;                  /* chosen because a KV head has few rows */
    int ranked_major, ranked_minor; /* compute capability whose measured order was followed */
    int64_t workspace_bytes;        /* of a launch on the GPU that was asked for; 0 on the emulator */
};

/* target is NULL on the emulator. FL_INVALID for names that do not exist, FL_UNSUPPORTED and FL_UNAVAILABLE as
 * flashladder.h says. */
fl_status choose(const struct fl_library *library, const struct call *call, const struct gpu_target *target,
                 struct choice *choice, struct failure *failure);

/* The name in the 7 characters that the structs of FL_ABI 1 have for it: "mma_syn" of "attention/mma_sync". */
void short_name(const char *version, char name[8]);

/* The version's own config for this type and head size, NULL where it has none. */
const struct instance *own_instance(const struct embedded *version, enum dtype dtype, int d_head);

#endif
