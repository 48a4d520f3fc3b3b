/* attention_config.h - the configuration of the kernels in kernels/attention/: their shape.
 *
 *     flash_forward<attention_config{FP16, 128, 128, 128, 8, WGMMA, 2, 32, true}>
 *
 * Each field is a row of common/attention_fields.h.
 */
#ifndef FL_ATTENTION_CONFIG_H
#define FL_ATTENTION_CONFIG_H

#include "common/config.h"

#ifndef __cplusplus
/* In C a configuration is a KernelConfig, which has no fields of these names: they take fields that these kernels do
 * not set. */
#define paged_kv mma_double_buffer_loads
#define packs early_release
#endif

typedef struct attention_config {
#define FIELD(type, name, word, help) type name;
#include "common/attention_fields.h"
} attention_config;

#endif
