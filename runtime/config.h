/* config.h - text forms of a KernelConfig: the short form people type and the symbol the compiler writes.
 *
 *     config_parse("(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles", &config, &failure);
 *
 * Everything comes from the rows of common/config_fields.h, as in analysis/ladder/config.py; tests give both the same
 * texts. A short form that names an instruction, and a symbol of an attention_config, have the rows of
 * common/attention_fields.h: what is read is a KernelConfig too, the words that follow, and `instruction` is not 0.
 */
#ifndef FL_HARNESS_CONFIG_H
#define FL_HARNESS_CONFIG_H

#include "common/config.h"
#include "runtime/json.h"
#include "runtime/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Enough for every short form: the word of each field, its number and what parts it from the next. */
enum {
    CONFIG_TEXT_SIZE = 1
#define FIELD(type, name, word, mma_sync, wgmma, help) +sizeof word + sizeof "-2147483648, "
#include "common/config_fields.h"
};

/* Read a short form, up to the first '|' so that a row of a table works. dtype is a name in any case or its number;
 * features may stand in any order, each once. STATUS_USAGE names the part that is wrong, or field, value and rule of
 * the first broken rule. */
enum status config_parse(const char *text, KernelConfig *config, struct failure *failure);

/* Write the short form into text, which holds CONFIG_TEXT_SIZE bytes; returns text. */
char *config_format(const KernelConfig *config, char *text);

/* Decode the mangled name of flash_forward (Itanium C++ ABI 5.1.5, braced list `tl`). Fields behind the parenthesis
 * may be missing, and are zero; those that are not known here must be zero. The first parameter is
 * that of the configuration: serving_args with `serves`, else attention_args with any_length, else forward_args. False
 * for any other symbol. */
bool config_from_symbol(const char *symbol, size_t length, KernelConfig *config);

/* Which of the kernels of a backward pass a symbol is of, with the configuration: row_sums, flash_backward, round_dQ.
 * A flash_forward is PART_MAIN, what is none of ours PART_NONE. */
enum kernel_part { PART_NONE, PART_BEFORE, PART_MAIN, PART_BEHIND };
enum kernel_part config_part_from_symbol(const char *symbol, size_t length, KernelConfig *config);

/* Add an object with every field under its name, for a reader that does not want to parse short forms. */
void config_json(struct json *json, const char *name, const KernelConfig *config);

/* Whether CTAs share out the keys of a KV head: the configuration is a decode_config. */
bool config_shares_keys(const KernelConfig *config);

/* Whether the configuration is a backward_config: it names its instruction and takes no attention_args alone. */
bool config_is_backward(const KernelConfig *config);

/* Whether the configuration is an fp8_config. */
bool config_is_fp8(const KernelConfig *config);

/* Whether it is an attention_config whose K and V lie in pages. A decode_config that serves takes both. */
bool config_has_pages(const KernelConfig *config);

/* Whether it is an attention_config whose Q blocks may have the queries of several heads, and whether that is of use: a
 * tensor copy has 64 rows. With KV_heads 0 there are as many as heads. */
bool config_packs(const KernelConfig *config);
static inline bool packs_group(int64_t heads, int64_t KV_heads) {
    return KV_heads > 0 && heads > KV_heads && heads <= 64 * KV_heads;
}

/* Whether it is a decode_config whose K and V are e4m3, and whether its sequences have queries of several numbers. */
bool config_has_e4m3_cache(const KernelConfig *config);
bool config_has_ragged_queries(const KernelConfig *config);

bool config_equal(const KernelConfig *a, const KernelConfig *b);

/* "fp16" or "bf16". */
const char *dtype_name(enum dtype dtype);

#endif
