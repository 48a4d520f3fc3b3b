/* abilities.h - what a configuration computes beyond attention as v00 has it, and the sentence where it does not.
 *
 *     if (causal && !config_able(&config, ABILITY_CAUSAL))
 *         return fail_ability(&failure, ABILITY_CAUSAL, "v07", NULL, "--causal");
 *
 * Each sentence names a kernel that computes the problem. It needs the architecture, "sm_90a", of a version that is
 * built for one only, or NULL for any other version.
 */
#ifndef FL_ABILITIES_H
#define FL_ABILITIES_H

#include "runtime/config.h"
#include "runtime/status.h"

#include <stdbool.h>
#include <stdint.h>

enum ability {
    ABILITY_CAUSAL,  /* the causal mask */
    ABILITY_GROUPED, /* heads that share KV heads */
    ABILITY_KEYS,    /* other numbers of keys than of queries */
    ABILITY_SCALE,   /* a scale of the scores */
    ABILITY_LSE,     /* log-sum-exp */
    ABILITY_STRIDES, /* tensors that are not contiguous (batch, seq, heads, d_head) */
    N_ABILITIES
};

bool config_able(const struct kernel_config *config, enum ability ability);

/* The kernel that computes every problem of these abilities: attention/wgmma for "sm_90a", else attention/mma_sync. */
const char *general_kernel(const char *exact);

/* "ASKED: v07 has no causal mask; attention/mma_sync has one", STATUS_USAGE. */
enum status fail_ability(struct failure *failure, enum ability ability, const char *version, const char *exact,
                         const char *asked);

/* True if a length is one that the kernel takes: any, or a multiple of B_r and of B_c. STATUS_USAGE names the nearest;
 * `name` is what the length is called. */
enum status check_blocks(const struct kernel_config *config, const char *exact, const char *name, int64_t length,
                         struct failure *failure);

#endif
