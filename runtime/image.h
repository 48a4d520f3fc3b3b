/* image.h - the machine code that is linked into the executable, and the kernel instances found in it.
 *
 *     const struct code_image *image = image_find(fl_images, fl_image_count, "sm_80");
 *     instance_table_read(&table, fl_images, fl_image_count, &failure);
 *
 * make embeds the PTX of a version and one cubin per architecture (runtime/code.S). Instances are never listed
 * by hand: they are the entries of the PTX whose symbol spells a configuration.
 */
#ifndef FL_IMAGE_H
#define FL_IMAGE_H

#include "runtime/config.h"
#include "runtime/status.h"

#include <stddef.h>
#include <stdint.h>

struct code_image {
    const char *kind; /* "ptx", "sm_80", "sm_90", ... */
    const unsigned char *bytes;
    uint64_t size; /* of the PTX without the zero byte that follows it */
};

extern const struct code_image fl_images[]; /* the version */
extern const uint64_t fl_image_count;
extern const struct code_image fl_device_images[]; /* harness/device/ */
extern const uint64_t fl_device_image_count;

/* A kernel that is launched before or after another; symbol is NULL if there is none. */
struct small_kernel {
    const char *symbol; /* owned by the table */
    int entry;
};

/* One kernel that can be launched. */
struct instance {
    struct kernel_config config;
    const char *symbol;                /* owned by the table */
    int entry;                         /* position among the entries of the PTX, from 0 */
    struct small_kernel before, after; /* of a backward pass: row_sums and round_dQ */
};

struct instance_table {
    struct instance *instances; /* owned; in the order of the PTX */
    size_t count;
};

/* The data of one kernel in a cubin. */
struct kernel_code {
    int registers;      /* of one thread */
    int64_t code_bytes; /* instructions are 16 bytes */
    int static_smem;    /* bytes of shared memory of a CTA in addition to what the launch requests */
    char hash[17];      /* first 16 hexadecimal digits of the SHA-256 of code and constants, parameters not included */
};

/* The image of a kind, NULL where there is none. */
const struct code_image *image_find(const struct code_image *images, uint64_t count, const char *kind);

/* The cubin for a GPU of compute capability major.minor: same major number, the largest minor number that is not above.
 * NULL where there is none. */
const struct code_image *image_for_gpu(const struct code_image *images, uint64_t count, int major, int minor);

/* The kinds of all cubins, "sm_80 sm_90", cut where it does not fit. */
void image_kinds(const struct code_image *images, uint64_t count, char *text, size_t size);

/* Read the entries of the PTX. STATUS_ERROR where there is no PTX, no entry, or an entry other than flash_forward
 * and the kernels of a backward pass. */
enum status instance_table_read(struct instance_table *table, const struct code_image *images, uint64_t count,
                                struct failure *failure);
void instance_table_free(struct instance_table *table);

/* The instance of a configuration, NULL where it is not built. */
const struct instance *instance_find(const struct instance_table *table, const struct kernel_config *config);

/* Look a kernel up in a cubin (ELF64; registers from the attribute EIATTR_REGCOUNT of .nv.info). STATUS_ERROR where the
 * bytes are no cubin or hold no such kernel. */
enum status image_kernel_code(const struct code_image *cubin, const char *symbol, struct kernel_code *code,
                              struct failure *failure);

/* Read only the static shared memory, without computing the hash. */
enum status image_static_smem(const struct code_image *cubin, const char *symbol, int *bytes, struct failure *failure);

#endif
