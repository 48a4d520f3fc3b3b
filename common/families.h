/* families.h - the kinds of kernels: each has its configuration, its parameters and its launch.
 *
 *     #define FAMILY(id, name, type, prefix, mark, function, args, serving_args) FAMILY_##id,
 *     #include "common/families.h"
 *
 * A kind is one block: its row, the file with the rows of its fields, rules and features, and END_FAMILY. Macros that
 * are not defined count as empty, and all are undefined at the end.
 *
 * FAMILY(id, name, type, prefix, mark, function, args, serving_args)
 *   name, type    "attention", and the struct that its header below defines
 *   prefix        PREFIX_launch_shape() of that header returns the launch
 *   mark          the words, with | between them, one of which tells its short forms from those of another family with
 *                 the same instructions; else ""
 *   function      the kernel
 *   args, serving_args
 *                 the first parameter, and that of a configuration with the feature SERVES. The tensor maps follow with
 *                 TENSOR_COPIES
 */
#ifndef FL_FAMILIES_H
#define FL_FAMILIES_H
#include "common/attention_config.h"
#include "common/backward.h"
#include "common/config.h"
#include "common/decode_config.h"
#include "common/fp8.h"
#include "common/serving.h"
#endif

#ifndef FAMILY
#define FAMILY(id, name, type, prefix, mark, function, args, serving_args)
#endif
#ifndef END_FAMILY
#define END_FAMILY
#endif

/* clang-format off */
FAMILY(LADDER, ladder, KernelConfig, config, "", flash_forward, forward_args, forward_args)
#include "common/config_fields.h"
END_FAMILY
FAMILY(ATTENTION, attention, attention_config, attention, "", flash_forward, attention_args, serving_args)
#include "common/attention_fields.h"
END_FAMILY
FAMILY(DECODE, decode, decode_config, decode, "tensor|cp_async", flash_forward, attention_args, serving_args)
#include "common/decode_fields.h"
END_FAMILY
FAMILY(FP8, fp8, fp8_config, fp8, "", flash_forward, fp8_args, serving_args)
#include "common/fp8_fields.h"
END_FAMILY
FAMILY(BACKWARD, backward, backward_config, backward, "", flash_backward, backward_args, backward_serving_args)
#include "common/backward_fields.h"
END_FAMILY
/* clang-format on */

#undef FAMILY
#undef END_FAMILY
#undef FIELD
#undef RULE
#undef HAS
