#include "runtime/abilities.h"

#include <inttypes.h>
#include <stdio.h>

static const struct {
    enum feature feature;
    const char *lack, *has;
} ABILITIES[N_ABILITIES] = {
    [ABILITY_CAUSAL] = {CAUSAL, "has no causal mask", "has one"},
    [ABILITY_GROUPED] = {GROUPED_HEADS, "requires as many KV heads as heads", "accepts fewer"},
    [ABILITY_KEYS] = {ANY_LENGTH, "requires as many keys as queries", "accepts any numbers"},
    [ABILITY_SCALE] = {ANY_LENGTH, "multiplies scores by 1 / sqrt(d_head)", "accepts a scale"},
    [ABILITY_LSE] = {ANY_LENGTH, "returns no log-sum-exp", "returns it"},
    [ABILITY_STRIDES] = {ANY_LENGTH, "requires contiguous tensors (bshd)", "accepts strides"},
};

bool config_able(const struct kernel_config *config, enum ability ability) {
    return config_has(config, ABILITIES[ability].feature);
}

const char *general_kernel(const char *exact) {
    return exact ? "attention/wgmma" : "attention/mma_sync";
}

enum status fail_ability(struct failure *failure, enum ability ability, const char *version, const char *exact,
                         const char *asked) {
    return fail(failure, STATUS_USAGE, "%s: %s %s; %s %s", asked, version, ABILITIES[ability].lack,
                general_kernel(exact), ABILITIES[ability].has);
}

enum status check_blocks(const struct kernel_config *config, const char *exact, const char *name, int64_t length,
                         struct failure *failure) {
    const struct {
        const char *name;
        int size;
    } blocks[] = {{"B_r", config->B_r}, {"B_c", config->B_c}};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks && !config_has(config, ANY_LENGTH); i++)
        if (length % blocks[i].size) {
            char text[CONFIG_TEXT_SIZE];
            const int64_t below = length / blocks[i].size * blocks[i].size;
            return fail(failure, STATUS_USAGE,
                        "%s %" PRId64 ": must be a multiple of %s = %d of %s; use %" PRId64 " or %" PRId64
                        "; %s accepts any length",
                        name, length, blocks[i].name, blocks[i].size, config_format(config, text),
                        (below ? below : blocks[i].size), (below ? below + blocks[i].size : 2 * blocks[i].size),
                        general_kernel(exact));
        }
    return STATUS_OK;
}
