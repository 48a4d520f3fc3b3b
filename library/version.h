/* version.h - the kernels that are linked into the library, versions and those of kernels/attention/: what each says of
 * itself, its PTX and its machine code.
 *
 *     for (size_t i = 0; i < version_count; i++) puts(versions[i]->version);
 *
 * version.c is compiled once for each of them; make lists them in build/library/versions.c.
 */
#ifndef FL_LIBRARY_VERSION_H
#define FL_LIBRARY_VERSION_H

#include "runtime/image.h"

#include <stddef.h>
#include <stdint.h>

struct version {
    const char *version; /* "v37", "attention/wgmma" */
    const char *name;    /* "q in registers" */
    const char *config;  /* short form of the header's config */
    const char *others;  /* those of the header's other configs, each ended by ';' */
    const char *arch;    /* "sm_80", the least architecture; "sm_90a", the only one */
    const char *toolkit; /* "13.5.37" */
    const struct code_image *images;
    const uint64_t *image_count;
};

extern const struct version *const versions[];
extern const size_t version_count;
extern const struct version *const backward_versions[]; /* those that compute gradients, followed by NULL */

#endif
