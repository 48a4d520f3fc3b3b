/* gpu_kernel.h - machine code of a version on a GPU: found, loaded, looked up and launched, for harness and library.
 *
 *     const struct code_image *image = gpu_code_find(&code, &target, &failure);
 *     gpu_smem_check(&code, image, &target, instance, &failure);
 *     gpu_code_load(&cuda, &code, &target, image, &module, &failure);
 *     gpu_kernel_find(&cuda, module, instance, &kernel, &failure);
 *     gpu_kernel_launch(&cuda, &kernel, &shape, &args, &maps, stream, &failure);
 */
#ifndef FL_GPU_KERNEL_H
#define FL_GPU_KERNEL_H

#include "common/abi.h"
#include "common/config.h"
#include "runtime/cuda_driver.h"
#include "runtime/image.h"
#include "runtime/status.h"

#include <stdint.h>

/* The machine code of a version, as it is linked in. */
struct gpu_code {
    const struct code_image *images;
    uint64_t count;
    const char *version; /* "v07" */
    const char *arch;    /* "sm_80", the least architecture */
    const char *exact;   /* "sm_90a" or "sm_120a", where that architecture is the only one; else NULL */
    const char *toolkit; /* "13.5.37" */
    const char *holder;  /* "this executable" */
    const char *goal;    /* "v07": what `make ARCHS="80 90" GOAL` builds it again */
    const char *instead; /* "; the emulator runs it anywhere (--backend emu)", or "" */
};

/* The properties of a GPU that determine the code that it can run. */
struct gpu_target {
    const char *name;
    const char *driver; /* "570.86.15, CUDA 12.8" */
    int major, minor;   /* compute capability */
    int shared_bytes;   /* shared memory that a CTA may have */
};

struct gpu_kernel {
    CUfunction function;
    const char *symbol; /* borrowed from the instance */
};

/* The cubin for this GPU; NULL with a message where there is none, which is STATUS_CANNOT_RUN. The PTX is not compiled
 * by the driver, which may be older than the toolkit. */
const struct code_image *gpu_code_find(const struct gpu_code *code, const struct gpu_target *target,
                                       struct failure *failure);

/* STATUS_CANNOT_RUN where the dynamic and the static shared memory of an instance together are more than a CTA of the
 * GPU may have. */
enum status gpu_smem_check(const struct gpu_code *code, const struct code_image *image, const struct gpu_target *target,
                           const struct instance *instance, struct failure *failure);

/* Load a cubin into the current context. An emulated GPU runs no machine code and is given the PTX. */
enum status gpu_code_load(const struct cuda_driver *cuda, const struct gpu_code *code, const struct gpu_target *target,
                          const struct code_image *image, CUmodule *module, struct failure *failure);

/* Look an instance up and allow it the shared memory that it wants. */
enum status gpu_kernel_find(const struct cuda_driver *cuda, CUmodule module, const struct instance *instance,
                            struct gpu_kernel *kernel, struct failure *failure);

/* Put a launch into the stream. `maps` are those of a kernel with tensor copies, else not read; `args` are those at the
 * front of serving_args where the kernel serves. */
enum status gpu_kernel_launch(const struct cuda_driver *cuda, const struct gpu_kernel *kernel,
                              const launch_shape *shape, const attention_args *args, const tensor_maps *maps,
                              CUstream stream, struct failure *failure);

#endif
