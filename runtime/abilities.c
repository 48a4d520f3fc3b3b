#include "runtime/abilities.h"

#include "runtime/config.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

static const struct {
    const char *lack, *has;
    size_t offset;
} ABILITIES[N_ABILITIES] = {
    [ABILITY_CAUSAL] = {"has no causal mask", "has one", offsetof(KernelConfig, causal)},
    [ABILITY_GROUPED] = {"requires as many KV heads as heads", "accepts fewer", offsetof(KernelConfig, grouped_heads)},
    [ABILITY_KEYS] = {"requires as many keys as queries", "accepts any numbers", offsetof(KernelConfig, any_length)},
    [ABILITY_SCALE] = {"multiplies scores by 1 / sqrt(d_head)", "accepts a scale", offsetof(KernelConfig, any_length)},
    [ABILITY_LSE] = {"returns no log-sum-exp", "returns it", offsetof(KernelConfig, any_length)},
    [ABILITY_STRIDES] = {"requires contiguous tensors (bshd)", "accepts strides", offsetof(KernelConfig, any_length)},
};

bool config_able(const KernelConfig *config, enum ability ability) {
    return *(const bool *)((const char *)config + ABILITIES[ability].offset);
}

const char *general_kernel(const char *exact) {
    return exact ? "attention/wgmma" : "attention/mma_sync";
}

enum status fail_ability(struct failure *failure, enum ability ability, const char *version, const char *exact,
                         const char *asked) {
    return fail(failure, STATUS_USAGE, "%s: %s %s; %s %s", asked, version, ABILITIES[ability].lack,
                general_kernel(exact), ABILITIES[ability].has);
}

enum status check_blocks(const KernelConfig *config, const char *exact, const char *name, int64_t length,
                         struct failure *failure) {
    const struct {
        const char *name;
        int size;
    } blocks[] = {{"B_r", config->B_r}, {"B_c", config->B_c}};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks && !config->any_length; i++)
        if (length % blocks[i].size) {
            char text[CONFIG_TEXT_SIZE];
            const int64_t below = length / blocks[i].size * blocks[i].size;
            return fail(failure, STATUS_USAGE,
                        "%s %" PRId64 ": must be a multiple of %s = %d of %s; the nearest are %" PRId64 " and %" PRId64
                        "; %s accepts any length",
                        name, length, blocks[i].name, blocks[i].size, config_format(config, text),
                        (below ? below : blocks[i].size), (below ? below + blocks[i].size : 2 * blocks[i].size),
                        general_kernel(exact));
        }
    return STATUS_OK;
}
