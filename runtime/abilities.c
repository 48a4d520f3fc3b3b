#include "runtime/abilities.h"

#include "runtime/config.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

static const struct {
    const char *field, *lack, *first;
    size_t offset;
} ABILITIES[N_ABILITIES] = {
    [ABILITY_CAUSAL] = {"causal", "has no causal mask", "has one", offsetof(KernelConfig, causal)},
    [ABILITY_GROUPED] = {"grouped_heads", "has as many KV heads as heads", "shares them",
                         offsetof(KernelConfig, grouped_heads)},
    [ABILITY_KEYS] = {"any_length", "has as many keys as queries", "takes other numbers",
                      offsetof(KernelConfig, any_length)},
    [ABILITY_SCALE] = {"any_length", "multiplies scores by 1 / sqrt(d_head)", "takes a scale",
                       offsetof(KernelConfig, any_length)},
    [ABILITY_LSE] = {"any_length", "gives no log-sum-exp", "gives it", offsetof(KernelConfig, any_length)},
    [ABILITY_STRIDES] = {"any_length", "takes contiguous tensors (bshd)", "takes strides",
                         offsetof(KernelConfig, any_length)},
};

bool config_able(const KernelConfig *config, enum ability ability) {
    return *(const bool *)((const char *)config + ABILITIES[ability].offset);
}

/* "v39 is the first version", "v43 is the first version for sm_90a" */
static const char *first_version(enum ability ability, const char *exact, char text[80]) {
    snprintf(text, 80, "%s is the first version%s%s", config_field_since(ABILITIES[ability].field, exact != NULL),
             exact ? " for " : "", exact ? exact : "");
    return text;
}

enum status fail_ability(struct failure *failure, enum ability ability, const char *version, const char *exact,
                         const char *asked) {
    char first[80];
    return fail(failure, STATUS_USAGE, "%s: %s %s; %s that %s", asked, version, ABILITIES[ability].lack,
                first_version(ability, exact, first), ABILITIES[ability].first);
}

enum status check_blocks(const KernelConfig *config, const char *exact, const char *name, int64_t length,
                         struct failure *failure) {
    const struct {
        const char *name;
        int size;
    } blocks[] = {{"B_r", config->B_r}, {"B_c", config->B_c}};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks && !config->any_length; i++)
        if (length % blocks[i].size) {
            char text[CONFIG_TEXT_SIZE], first[80];
            const int64_t below = length / blocks[i].size * blocks[i].size;
            return fail(failure, STATUS_USAGE,
                        "%s %" PRId64 ": must be a multiple of %s = %d of %s; the nearest are %" PRId64 " and %" PRId64
                        "; %s that takes any length",
                        name, length, blocks[i].name, blocks[i].size, config_format(config, text),
                        (below ? below : blocks[i].size), (below ? below + blocks[i].size : 2 * blocks[i].size),
                        first_version(ABILITY_KEYS, exact, first));
        }
    return STATUS_OK;
}
