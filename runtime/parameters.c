#include "runtime/parameters.h"

#include "runtime/config.h"
#include "runtime/tensor_maps.h"

#include <string.h>

size_t parameters_args_bytes(const KernelConfig *config) {
    if (config_is_backward(config)) return config->serves ? sizeof(backward_serving_args) : sizeof(backward_args);
    if (config_is_fp8(config) && !config->serves) return sizeof(fp8_args);
    return config->serves ? sizeof(serving_args) : config->any_length ? sizeof(attention_args) : sizeof(forward_args);
}

/* Where the tensor maps begin. */
static size_t maps_offset(const KernelConfig *config) {
    const size_t align = alignof(tensor_maps);
    return (parameters_args_bytes(config) + align - 1) / align * align;
}

size_t parameters_bytes(const KernelConfig *config) {
    return config->tensor_copies ? maps_offset(config) + sizeof(tensor_maps) : parameters_args_bytes(config);
}

enum status parameters_of_emulator(const KernelConfig *config, const attention_args *args,
                                   struct parameter_block *block, struct failure *failure) {
    struct tensor_layout layouts[N_TENSORS];
    tensor_maps maps;
    *block = (struct parameter_block){.size = parameters_bytes(config)};
    memcpy(block->bytes, args, parameters_args_bytes(config));
    if (!config->tensor_copies) return STATUS_OK;
    tensor_layouts(args, config, layouts);
    const enum status status = tensor_maps_of_emulator(layouts, &maps, failure);
    if (!status) memcpy(block->bytes + maps_offset(config), &maps, sizeof maps);
    return status;
}
