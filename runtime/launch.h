/* launch.h - how an instance is launched, of the ladder or of kernels/attention/, and the memory that it needs.
 *
 *     const launch_shape shape = launch_of(&config, &args, multiprocessors);
 *     const int64_t bytes = launch_workspace_bytes(&config, &args, multiprocessors);
 */
#ifndef FL_LAUNCH_H
#define FL_LAUNCH_H

#include "common/abi.h"
#include "runtime/config.h"
#include "runtime/image.h"

#include <stdbool.h>
#include <stdint.h>

/* `args` is the front of a serving_args where the configuration serves, here and below. */
launch_shape launch_of(const struct kernel_config *config, const attention_args *args, int64_t multiprocessors);

/* Launches of a kernel, all with the shape of launch_of(): two if split_keys makes parts, which a launch with
 * extended_args.combines adds up. */
int launch_count(const struct kernel_config *config, const attention_args *args);

/* Memory of attention_args.tickets where it is two tickets. */
enum { TICKETS_BYTES = 2 * sizeof(int32_t) };

/* Threads and bytes of dynamic shared memory of a CTA. */
int launch_threads(const struct kernel_config *config);
int launch_smem_bytes(const struct kernel_config *config);

/* Q blocks of a launch, and KV blocks of a head, of which the causal mask may hide some; the last one of a head may be
 * partly filled. */
int64_t launch_Q_blocks(const struct kernel_config *config, const attention_args *args);
int64_t launch_KV_blocks(const struct kernel_config *config, const attention_args *args);

/* Bytes of device memory for attention_args.tickets, of those at its front that are zero before each launch and after
 * it, and the most that a launch of the configuration needs without parts of a size. */
int64_t launch_workspace_bytes(const struct kernel_config *config, const attention_args *args, int64_t multiprocessors);
int64_t launch_counter_bytes(const struct kernel_config *config);
int64_t launch_most_bytes(const struct kernel_config *config, int64_t multiprocessors);

/* The kernels of a backward pass in their order. */
enum { MOST_STEPS = 3 };
struct step {
    const char *symbol;
    int entry;
    launch_shape shape;
    bool main; /* the one that computes the gradients; false of the small ones */
};
int backward_steps(const struct instance *instance, const attention_args *args, int64_t multiprocessors,
                   struct step steps[MOST_STEPS]);

#endif
