#include "library/choice.h"

#include "library/ranking.h"
#include "library/serving.h"
#include "runtime/abilities.h"
#include "runtime/config.h"
#include "runtime/launch.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what one version has for a problem ---- */

const struct instance *own_instance(const struct embedded *version, enum dtype dtype, int d_head) {
    for (int i = 0; i < version->n_own; i++) {
        struct kernel_config config = version->own[i];
        config.dtype = dtype;
        if (config.d_head == d_head) return instance_find(&version->table, &config);
    }
    return NULL;
}

/* True if the instance has the type and is for rows of these sizes. */
static bool fits(const struct kernel_config *config, const struct call *call) {
    return config->dtype == call_dtype(call) && config_fits(config, call->problem.d_head, call->problem.d_head_v);
}

/* d_head of the version's instances for the problem: its own, else the next larger of those whose rows may be shorter;
 * 0 if there is none. */
static int d_head_for(const struct embedded *version, const struct call *call) {
    int found = 0;
    for (size_t i = 0; i < version->table.count; i++) {
        const struct kernel_config *const config = &version->table.instances[i].config;
        const bool biased = !serving_extended(&call->problem) || config_has(config, BIAS);
        if (biased && fits(config, call) && (!found || config->d_head < found)) found = config->d_head;
    }
    return found;
}

static bool has_instance(const struct embedded *version, enum feature feature) {
    for (size_t i = 0; i < version->table.count; i++)
        if (config_has(&version->table.instances[i].config, feature)) return true;
    return false;
}

/* True if there are too few CTAs unless they share out the keys, and the heads of a group can be the rows of a Q block
 * without an instance that packs them. */
static bool decodes_alone(const fl_problem *problem) {
    enum { FEW_BLOCKS = 64, MANY_KEYS = 512 };
    return problem->seq_q == 1 && problem->seq_k >= MANY_KEYS && !problem->split_keys && !problem->windowed &&
           !problem->kv_dtype && !(problem->arrays & (FL_CU_SEQLENS_Q | FL_SEQLENS_Q | FL_SINKS)) &&
           (int64_t)problem->kv_heads * problem->batch <= FEW_BLOCKS;
}

/* True if the version has instances for rows of exactly this size. */
static bool has_size(const struct embedded *version, const struct call *call) {
    for (size_t i = 0; i < version->table.count; i++) {
        const struct kernel_config *const config = &version->table.instances[i].config;
        if (config->d_head == call->problem.d_head && !config_has(config, EXTENDED) && fits(config, call)) return true;
    }
    return false;
}

/* True if the version computes the problem only by an instance with the flag extend, or fastest. */
static bool needs_extended(const struct embedded *version, const struct call *call) {
    const fl_problem *const problem = &call->problem;
    return serving_extended(problem) || problem->d_head_v != problem->d_head || !has_size(version, call) ||
           (decodes_alone(problem) && has_instance(version, SPLITS_KEYS));
}

/* Largest numbers of elements of the rows of K, and of V, of instances whose rows may be shorter; 0 if there is none.
 */
struct most_elements {
    int d_head, d_head_v;
};

static struct most_elements most_extended(const struct embedded *version, struct most_elements most) {
    for (size_t i = 0; i < version->table.count; i++) {
        const struct kernel_config *const config = &version->table.instances[i].config;
        if (!config_has(config, EXTENDED)) continue;
        if (config->d_head > most.d_head) most.d_head = config->d_head;
        if (config_d_head_v(config) > most.d_head_v) most.d_head_v = config_d_head_v(config);
    }
    return most;
}

/* Rows have more elements than that, or a number of them that is no multiple of 8. */
static fl_status fail_rows(const fl_problem *problem, struct most_elements most, struct failure *failure) {
    const int d_head = problem->d_head, d_head_v = problem->d_head_v;
    if (d_head <= most.d_head && d_head % 8 == 0)
        return refuse(failure, FL_UNSUPPORTED, "d_head_v %d: must be a multiple of 8 up to %d%s", d_head_v,
                      most.d_head_v, d_head_v < most.d_head_v ? "; pad v with zeros" : "");
    return refuse(failure, FL_UNSUPPORTED, "d_head %d: must be a multiple of 8 up to %d%s", d_head, most.d_head,
                  d_head < most.d_head ? "; pad q, k and v with zeros and keep the scale" : "");
}

static bool is_fp8(const struct embedded *version) {
    return version->n_own && config_has(&version->own[0], E4M3_INPUTS);
}

/* An instance of an e4m3 kernel: that with the requested accumulation, else an accurate one, which may replace a fast
 * one. */
static const struct instance *fp8_instance(const struct embedded *version, const struct call *call) {
    const bool serves = serving_asked(&call->problem) != NULL, accurate = call->problem.sums == FL_SUMS_ACCURATE;
    const struct instance *found = NULL;
    for (size_t i = 0; i < version->table.count; i++) {
        const struct instance *const one = &version->table.instances[i];
        const struct kernel_config *const config = &one->config;
        if (config->dtype != call_dtype(call) || config->d_head != call->problem.d_head ||
            config_has(config, SERVES) != serves)
            continue;
        if ((config->fp8.flush_blocks > 0) == accurate) return one;
        if (!accurate) found = one;
    }
    return found;
}

/* "64, 128" */
static void own_sizes(const struct embedded *version, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < version->n_own && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%d", i ? ", " : "", version->own[i].d_head);
}

/* Rows of a KV head. */
static int64_t rows_of(const fl_problem *problem) {
    return (int64_t)problem->seq_q * (problem->heads / problem->kv_heads);
}

/* Rows for which there should be an instance. With bytes, 64 rows at a time take 2.5 times as long as 16, on an H200.
 * With queries of several numbers the average decides, and 16 rows are enough for all where the bits of a sequence must
 * not depend on the batch. */
static int64_t rows_at_a_time(const fl_problem *problem) {
    enum { FEW = 64 };
    if (!serving_ragged_bytes(problem)) return rows_of(problem);
    const int64_t group = problem->heads / problem->kv_heads, batch = problem->batch ? problem->batch : 1;
    const int64_t queries = problem->arrays & FL_CU_SEQLENS_Q ? problem->total_q / batch : problem->seq_q;
    return problem->split_keys || queries * group <= FEW ? 1 : queries * group;
}

static bool paged(const fl_problem *problem) {
    return problem->arrays & FL_BLOCK_TABLE;
}

/* Among the varlen instances, packing or not, the one with the smallest B_r that holds the rows of a KV head, else the
 * one with the largest; of those with one B_r, one for latent keys, else the one with the most shared memory. */
static const struct instance *find_serving(const struct embedded *version, const struct call *call, bool packs) {
    const struct instance *found = NULL;
    const int64_t rows = rows_at_a_time(&call->problem);
    const int d_head = d_head_for(version, call);
    const bool extended = needs_extended(version, call);
    for (size_t i = 0; i < version->table.count; i++) {
        const struct instance *const one = &version->table.instances[i];
        const struct kernel_config *const config = &one->config;
        if (!config_has(config, SERVES) || !fits(config, call) || config->d_head != d_head ||
            config_has(config, EXTENDED) != extended || !config_takes(config, CAP, call->problem.softcap > 0) ||
            !config_takes_dropout(config, call->problem.dropout_p > 0) ||
            !config_takes_bias(config, serving_extended(&call->problem) != NULL) ||
            (config_has(config, LATENT) && !(call->tensors.k && call_is_latent(call))) ||
            (!config_has(config, SHARES_KEYS) && !config_takes(config, PAGED_KV, paged(&call->problem))) ||
            config_has(config, PACKS) != packs || serving_cache_dtype(config) != call->problem.kv_dtype ||
            config_has(config, RAGGED_QUERIES) != serving_ragged_bytes(&call->problem))
            continue;
        const bool small = found && found->config.B_r < rows, smaller = !found || config->B_r < found->config.B_r;
        if (found && found->config.B_r == config->B_r) {
            const bool larger = launch_smem_bytes(config) > launch_smem_bytes(&found->config);
            if (config_has(config, LATENT) || (larger && !config_has(&found->config, LATENT))) found = one;
            continue;
        }
        if (!found || (small ? !smaller : smaller && config->B_r >= rows)) found = one;
    }
    return found;
}

/* One that packs, if there are heads to be packed and such an instance. */
static const struct instance *serving_instance(const struct embedded *version, const struct call *call) {
    const bool packs = packs_group(call->problem.heads, call->problem.kv_heads);
    const struct instance *const packing = packs ? find_serving(version, call, true) : NULL;
    return packing ? packing : find_serving(version, call, false);
}

/* True if its CTAs share out keys: for few rows it is the first, and for others the last. */
static bool shares_keys(const struct embedded *version) {
    return version->n_own && config_has(&version->own[0], SHARES_KEYS);
}

/* The version's own for the problem, or for the head size where it has none that serves. If keys are split, varlen
 * instances have the larger blocks of rows. */
static const struct instance *instance_for(const struct embedded *version, const struct call *call) {
    if (is_fp8(version) && serving_all_e4m3(&call->problem)) return fp8_instance(version, call);
    const bool serves = serving_asked(&call->problem) || needs_extended(version, call) ||
                        (shares_keys(version) && rows_of(&call->problem) > version->own[0].B_r);
    const struct instance *const serving = serves ? serving_instance(version, call) : NULL;
    if (serving || call->problem.d_head_v != call->problem.d_head) return serving;
    return own_instance(version, call_dtype(call), call->problem.d_head);
}

/* ---- kernels with configurations for several amounts of shared memory ---- */

/* True for attention/mma_sync. */
static bool fits_gpus(const struct embedded *version) {
    return version->n_own && version->own[0].family == FAMILY_ATTENTION && config_has(&version->own[0], SPLIT_TAIL);
}

/* Blocks of `count` rows, or on average of a sequence where these are the rows of `packed` sequences: half a block of
 * each is missing. */
static double blocks_of(int64_t count, int block, int packed) {
    const int64_t blocks = (count + block - 1) / block;
    return packed ? (double)count / packed / block + 0.5 : (double)blocks;
}

/* Predicted relative time of a sequence, fitted to an H200: each Q block costs its rows, missing ones included, and as
 * much as 512 rows for reading K and V; a KV block costs its keys, missing ones included, and as much as four more, and
 * warps that cannot drift apart lose a twentieth. With split_keys the choice must not depend on the batch, whatever the
 * lengths. */
static double predicted_time(const struct kernel_config *config, const struct call *call) {
    const fl_problem *const problem = &call->problem;
    const int packed_q = problem->arrays & FL_CU_SEQLENS_Q ? problem->batch : 0;
    const int packed_k = problem->arrays & FL_CU_SEQLENS_K ? problem->batch : 0;
    const int64_t rows = (int64_t)(packed_q ? problem->total_q : problem->seq_q) * (problem->heads / problem->kv_heads);
    const int64_t keys = packed_k ? problem->total_k : problem->seq_k;
    const double Q_blocks = problem->split_keys ? 1.0 / config->B_r : blocks_of(rows, config->B_r, packed_q);
    const double KV_blocks = problem->split_keys ? 1.0 / config->B_c : blocks_of(keys, config->B_c, packed_k);
    return Q_blocks * (config->B_r + 512) * KV_blocks * (config->B_c + 4) * (config->attention.stages < 4 ? 1.05 : 1);
}

static fl_status check_target(const struct embedded *version, const struct instance *instance,
                              const struct gpu_target *target, struct failure *failure);

/* The instance with the shortest predicted time that the GPU has shared memory for. If it has too little for each, the
 * one that needs least. The version's own is measured: where it fits, it comes first, but for varlen batches. */
static const struct instance *fitting_instance(const struct embedded *version, const struct call *call,
                                               const struct gpu_target *target) {
    const int d_head = d_head_for(version, call);
    const bool extended = needs_extended(version, call), serves = extended || serving_asked(&call->problem);
    const struct instance *const own = own_instance(version, call_dtype(call), call->problem.d_head);
    const struct instance *best = NULL, *least = NULL;
    struct failure ignored;
    if (!serves && own && (!target || !check_target(version, own, target, &ignored))) return own;
    for (size_t i = 0; i < version->table.count; i++) {
        const struct instance *const one = &version->table.instances[i];
        const struct kernel_config *const config = &one->config;
        if (!fits(config, call) || config->d_head != d_head || config_has(config, SERVES) != serves ||
            config_has(config, EXTENDED) != extended)
            continue;
        if (!least || launch_smem_bytes(config) < launch_smem_bytes(&least->config)) least = one;
        if (target && check_target(version, one, target, &ignored)) continue;
        if (!best || predicted_time(config, call) < predicted_time(&best->config, call)) best = one;
    }
    return best ? best : least;
}

static fl_status find_own(const struct embedded *version, const struct call *call, const struct gpu_target *target,
                          const struct instance **instance, struct failure *failure) {
    char sizes[100];
    *instance = fits_gpus(version) ? fitting_instance(version, call, target) : instance_for(version, call);
    if (*instance) return FL_OK;
    if (serving_extended(&call->problem) && !has_instance(version, BIAS))
        return refuse(failure, FL_UNSUPPORTED, "%s: %s does not support it; use attention/wgmma or attention/mma_sync",
                      serving_extended(&call->problem), version->about->version);
    const struct most_elements most = most_extended(version, (struct most_elements){0});
    const int d_head = call->problem.d_head, d_head_v = call->problem.d_head_v;
    if (call->problem.dropout_p > 0 && d_head <= most.d_head && d_head_v <= most.d_head_v &&
        (d_head | d_head_v) % 8 == 0)
        return refuse(failure, FL_UNSUPPORTED,
                      "dropout_p %g: %s does not support it with d_head %d and d_head_v %d; use attention/mma_sync",
                      (double)call->problem.dropout_p, version->about->version, d_head, d_head_v);
    if (d_head_v != d_head && most.d_head) return fail_rows(&call->problem, most, failure);
    if (d_head_v != d_head)
        return refuse(failure, FL_UNSUPPORTED,
                      "d_head_v %d: must be d_head, %d, with %s; use attention/wgmma or attention/mma_sync", d_head_v,
                      d_head, version->about->version);
    own_sizes(version, sizes, sizeof sizes);
    return refuse(failure, FL_UNSUPPORTED, "d_head %d: %s is for %s", d_head, version->about->version, sizes);
}

static fl_status find_config(const struct embedded *version, const struct call *call, const struct instance **instance,
                             struct failure *failure) {
    char text[CONFIG_TEXT_SIZE];
    struct kernel_config config;
    if (config_parse(call->problem.config, &config, failure)) return FL_INVALID;
    if (config.dtype != call_dtype(call))
        return refuse(failure, FL_INVALID, "config '%s': has type %s, but dtype is %s", call->problem.config,
                      dtype_name(config.dtype), dtype_name(call_dtype(call)));
    if (!fits(&config, call))
        return refuse(failure, FL_INVALID, "config '%s': has d_head %d, but d_head is %d and d_head_v %d",
                      call->problem.config, config.d_head, call->problem.d_head, call->problem.d_head_v);
    *instance = instance_find(&version->table, &config);
    if (*instance) return FL_OK;
    return refuse(failure, FL_UNSUPPORTED, "config '%s': not in this library's %s; fl_kernel() lists its configs",
                  config_format(&config, text), version->about->version);
}

/* The ability that the kernel lacks for the problem, in the harness's sentences. */
static fl_status check_abilities(const struct gpu_code *code, const struct kernel_config *config,
                                 const struct call *call, struct failure *failure) {
    const fl_problem *const problem = &call->problem;
    char KV_heads[60], lengths[60], scale[40], text[CONFIG_TEXT_SIZE];
    snprintf(KV_heads, sizeof KV_heads, "heads %d, kv_heads %d", problem->heads, problem->kv_heads);
    snprintf(lengths, sizeof lengths, "seq_q %d, seq_k %d", problem->seq_q, problem->seq_k);
    snprintf(scale, sizeof scale, "scale %g", (double)problem->scale);
    const struct {
        enum ability ability;
        bool asked;
        const char *what;
    } rules[] = {{ABILITY_CAUSAL, problem->causal, "causal"},
                 {ABILITY_GROUPED, problem->kv_heads != problem->heads, KV_heads},
                 {ABILITY_KEYS, problem->seq_q != problem->seq_k, lengths},
                 {ABILITY_SCALE, call->scaled, scale},
                 {ABILITY_LSE, call->tensors.lse != NULL, "lse"},
                 {ABILITY_STRIDES, call->strided && problem->memory == FL_DEVICE_MEMORY, "strides"}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].asked && !config_able(config, rules[i].ability))
            return fail_ability(failure, rules[i].ability, code->version, code->exact, rules[i].what), FL_UNSUPPORTED;
    const fl_status status = serving_check_kernel(problem, code->version, config, failure);
    if (status) return status;
    if (config_has(config, LATENT) && !call_is_latent(call))
        return refuse(failure, FL_UNSUPPORTED,
                      "config %s: requires that v is the first %d elements of the rows of k, with the same address and "
                      "strides, and no block_mask",
                      config_format(config, text), problem->d_head_v);
    return check_blocks(config, code->exact, "seq_q", problem->seq_q, failure) ? FL_UNSUPPORTED : FL_OK;
}

/* True if the GPU has machine code, and shared memory enough. */
static fl_status check_target(const struct embedded *version, const struct instance *instance,
                              const struct gpu_target *target, struct failure *failure) {
    const struct code_image *const image = gpu_code_find(&version->code, target, failure);
    return image ? status_of(gpu_smem_check(&version->code, image, target, instance, failure)) : FL_UNAVAILABLE;
}

static fl_status try_instance(struct embedded *version, const struct instance *instance, const struct call *call,
                              const struct gpu_target *target, struct choice *choice, struct failure *failure) {
    fl_status status = check_abilities(&version->code, &instance->config, call, failure);
    if (!status && target) status = check_target(version, instance, target, failure);
    if (status) return status;
    choice->version = version;
    choice->instance = instance;
    return FL_OK;
}

/* The version's own config, else another embedded one of the type and the head size that the GPU can hold. */
static fl_status try_version(struct embedded *version, const struct call *call, const struct gpu_target *target,
                             struct choice *choice, struct failure *failure) {
    const struct instance *instance;
    struct failure other;
    fl_status status = call->problem.config ? find_config(version, call, &instance, failure)
                                            : find_own(version, call, target, &instance, failure);
    if (status || !(status = try_instance(version, instance, call, target, choice, failure))) return status;
    if (status != FL_UNAVAILABLE || call->problem.config) return status;
    for (size_t i = 0; i < version->table.count; i++) {
        const struct instance *const one = &version->table.instances[i];
        if (fits(&one->config, call) && one->config.d_head == instance->config.d_head &&
            config_has(&one->config, SERVES) == config_has(&instance->config, SERVES) &&
            config_has(&one->config, EXTENDED) == config_has(&instance->config, EXTENDED) &&
            !try_instance(version, one, call, target, choice, &other))
            return FL_OK;
    }
    return status;
}

/* ---- by name ---- */

void short_name(const char *version, char name[8]) {
    const char *const folder = strrchr(version, '/');
    snprintf(name, 8, "%.7s", folder ? folder + 1 : version);
}

/* By its whole name, else by the one that a caller knows who has read it in the structs of FL_ABI 1. */
static struct embedded *version_named(const struct fl_library *library, const char *name) {
    struct embedded *by_short_name = NULL;
    for (size_t i = 0; i < library->count; i++) {
        const char *const whole = library->versions[i].about->version;
        char text[8];
        short_name(whole, text);
        if (!strcmp(whole, name)) return &library->versions[i];
        if (!strcmp(text, name)) by_short_name = &library->versions[i];
    }
    return by_short_name;
}

/* The kernel that replaces a version that the ladder no longer has; NULL for any other name. */
static const char *replacement_of(const char *name) {
    static const struct {
        int first, last;
        const char *kernel;
    } removed[] = {
#define REMOVED(first, last, replacement) {first, last, replacement},
#include "common/removed_versions.h"
    };
    char *end;
    const long number = name[0] == 'v' && strlen(name) == 3 ? strtol(name + 1, &end, 10) : -1;
    for (size_t i = 0; number >= 0 && !*end && i < sizeof removed / sizeof *removed; i++)
        if (removed[i].first <= number && number <= removed[i].last) return removed[i].kernel;
    return NULL;
}

static fl_status fail_version(const struct fl_library *library, const char *name, struct failure *failure) {
    char names[400];
    size_t used = 0;
    const char *const replacement = replacement_of(name);
    if (replacement)
        return refuse(failure, FL_INVALID, "version '%s': was removed from the ladder; use %s", name, replacement);
    for (size_t i = 0; i < library->count && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? " " : "",
                                 library->versions[i].about->version);
    return refuse(failure, FL_INVALID,
                  "version '%.40s': this library contains %s; build others in with: make lib VER=\"...\"", name, names);
}

/* ---- by rank ---- */

/* Distance of a measured case from the requested one: 0 if they are equal. A GPU of the same compute capability comes
 * before one of another, then the head size, then the mask. */
static int distance(const struct ranking *row, int major, int minor, const struct call *call) {
    return 1000000 * abs(10 * (row->major - major) + row->minor - minor) +
           1000 * (row->d_head != call->problem.d_head) + (row->causal != (call->problem.causal != 0));
}

static const struct ranking *nearest_ranking(int major, int minor, const struct call *call) {
    const struct ranking *nearest = &RANKINGS[0];
    for (size_t i = 1; i < sizeof RANKINGS / sizeof *RANKINGS; i++)
        if (distance(&RANKINGS[i], major, minor, call) < distance(nearest, major, minor, call)) nearest = &RANKINGS[i];
    return nearest;
}

/* Find a name in a list of names; NULL if it is not one of them. */
static const char *find_name(const char *names, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = names; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == length && !memcmp(at, name, length)) return at;
    return NULL;
}

/* Rank of a version in a measured order, after all of them if it was not measured: first the kernels that are
 * no version, of these the ones for one architecture, then the newest. */
static int place_of(const struct ranking *row, const struct embedded *version) {
    const char *const name = version->about->version, *const found = find_name(row->versions, name);
    if (found) return (int)(found - row->versions);
    return 100000 - (strchr(name, '/') ? 1000 + (version->code.exact != NULL) : (int)strtol(name + 1, NULL, 10));
}

/* True if such a kernel is the fastest: where one row block has the queries of all heads that share a KV head, and
 * where others have too few CTAs. Each row block reads its keys anew, with all CTAs and as fast as memory gives them; a
 * CTA of attention/wgmma takes as long for its keys as 79 row blocks together, on an H200. With the larger row blocks
 * of instances that serve there must be many keys, and heads that share them, which attention/wgmma reads for each. */
static bool has_few_rows(const struct embedded *version, const struct call *call) {
    enum { FEW_BLOCKS = 64, MANY_KEYS = 1024 };
    const fl_problem *const problem = &call->problem;
    const struct instance *const serving = serving_instance(version, call);
    const int64_t rows = rows_of(problem), most = serving ? serving->config.B_r : 0;
    const int64_t B_r = serving && serving_asked(problem) ? most : version->own[0].B_r;
    const int64_t blocks = (rows + B_r - 1) / B_r;
    if (blocks <= 1) return true;
    if (problem->seq_k < MANY_KEYS) return false;
    return (rows <= most && problem->heads > problem->kv_heads) ||
           blocks * problem->kv_heads <= FEW_BLOCKS / (problem->batch ? problem->batch : 1);
}

/* attention/decode serves pages first, whatever the rows: of attention/wgmma's they were not measured. The kernel for
 * other GPUs, attention/decode_mma_sync, has small blocks of rows. */
static int rank_of(const struct ranking *row, const struct embedded *version, const struct call *call) {
    if (!shares_keys(version)) return place_of(row, version);
    const bool first = (version->code.exact && paged(&call->problem)) || has_few_rows(version, call);
    return !first ? INT_MAX : version->code.exact ? -2 : -1;
}

/* True for versions that the emulator tries after the others: those for one architecture take more time there, and
 * those for other GPUs than Hopper come first only on GPUs where nothing else serves or multiplies e4m3. */
static bool is_late(const struct embedded *version, const struct call *call) {
    if (is_fp8(version)) return !config_has(&version->own[0], TENSOR_COPIES);
    return serving_asked(&call->problem) ? !version->code.exact : version->code.exact || shares_keys(version);
}

/* The versions in the order of a ranking, on the emulator with late ones at the end. */
static size_t ordered(const struct fl_library *library, const struct ranking *row, const struct call *call,
                      bool emulated, struct embedded **order) {
    size_t count = 0;
    for (size_t i = 0; i < library->count; i++) {
        struct embedded *const version = &library->versions[i];
        const bool late = emulated && is_late(version, call);
        const int rank = rank_of(row, version, call);
        size_t at = count++;
        for (; at > 0; at--) {
            const struct embedded *const before = order[at - 1];
            const bool before_late = emulated && is_late(before, call);
            if (before_late < late || (before_late == late && rank_of(row, before, call) < rank)) break;
            order[at] = order[at - 1];
        }
        order[at] = version;
    }
    return count;
}

/* No version has a config for the head size: all sizes that there are. */
static fl_status fail_size(const struct fl_library *library, const struct call *call, struct failure *failure) {
    char sizes[200] = "";
    size_t used = 0;
    bool there = false;
    for (size_t i = 0; i < library->count; i++)
        there = there || is_fp8(&library->versions[i]) == serving_all_e4m3(&call->problem);
    if (!there)
        return refuse(failure, FL_UNSUPPORTED,
                      "q_dtype %d: this library has no kernel for it; build the library with `make lib`, without VER",
                      call->problem.q_dtype);
    struct most_elements most = {0};
    for (size_t i = 0; i < library->count && !serving_all_e4m3(&call->problem); i++)
        most = most_extended(&library->versions[i], most);
    if (most.d_head) return fail_rows(&call->problem, most, failure);
    for (int size = 16; size <= MAX_D_HEAD && used < sizeof sizes; size += 16)
        for (size_t i = 0; i < library->count; i++)
            if (is_fp8(&library->versions[i]) == serving_all_e4m3(&call->problem) &&
                own_instance(&library->versions[i], call_dtype(call), size)) {
                used += (size_t)snprintf(sizes + used, sizeof sizes - used, "%s%d", used ? ", " : "", size);
                break;
            }
    return refuse(failure, FL_UNSUPPORTED, "d_head %d: the kernels of this library support %s", call->problem.d_head,
                  sizes);
}

static fl_status choose_best(const struct fl_library *library, const struct call *call, const struct gpu_target *target,
                             struct choice *choice, struct failure *failure) {
    enum { MAX_VERSIONS = 100 };
    const int major = target ? target->major : 8, minor = target ? target->minor : 0;
    const struct ranking *const row = nearest_ranking(major, minor, call);
    struct embedded *order[MAX_VERSIONS];
    const size_t count = library->count <= MAX_VERSIONS ? ordered(library, row, call, !target, order) : 0;
    struct failure one;
    fl_status kept = FL_OK;
    int kept_weight = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_fp8(order[i]) != serving_all_e4m3(&call->problem)) continue;
        const fl_status status = try_version(order[i], call, target, choice, &one);
        if (!status) {
            choice->best = true;
            choice->few_rows = target && shares_keys(order[i]) && has_few_rows(order[i], call);
            choice->measured = target && !distance(row, major, minor, call) && !serving_asked(&call->problem) &&
                               find_name(row->versions, order[i]->about->version);
            choice->ranked_major = row->major;
            choice->ranked_minor = row->minor;
            return FL_OK;
        }
        /* The most informative reason: what the GPU lacks for code that it has, then that it has none, then what the
         * fastest version lacks. A version that is not for the head size has nothing to say. */
        if (!d_head_for(order[i], call)) continue;
        const int weight = status != FL_UNAVAILABLE ? 1 : order[i]->code.exact ? 2 : 3;
        if (weight <= kept_weight) continue;
        kept_weight = weight;
        kept = status;
        *failure = one;
    }
    return kept ? kept : fail_size(library, call, failure);
}

fl_status choose(const struct fl_library *library, const struct call *call, const struct gpu_target *target,
                 struct choice *choice, struct failure *failure) {
    const char *const name = call->problem.version;
    *choice = (struct choice){0};
    if (!name || !strcmp(name, "best")) {
        if (call->problem.config)
            return refuse(failure, FL_INVALID,
                          "config '%.200s': needs a version; set version to the kernel that has this config",
                          call->problem.config);
        return choose_best(library, call, target, choice, failure);
    }
    struct embedded *const version = version_named(library, name);
    return version ? try_version(version, call, target, choice, failure) : fail_version(library, name, failure);
}
