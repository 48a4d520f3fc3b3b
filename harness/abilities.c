#include "harness/abilities.h"

#include "harness/config.h"

#include <inttypes.h>
#include <stddef.h>

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

enum status fail_ability(struct failure *failure, enum ability ability, const char *version, const char *asked) {
    return fail(failure, STATUS_USAGE, "%s: %s %s; %s is the first version that %s", asked, version,
                ABILITIES[ability].lack, config_field_since(ABILITIES[ability].field), ABILITIES[ability].first);
}

enum status check_blocks(const KernelConfig *config, const char *name, int64_t length, struct failure *failure) {
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
                        "; %s is the first version that takes any length",
                        name, length, blocks[i].name, blocks[i].size, config_format(config, text),
                        (below ? below : blocks[i].size), (below ? below + blocks[i].size : 2 * blocks[i].size),
                        config_field_since("any_length"));
        }
    return STATUS_OK;
}
