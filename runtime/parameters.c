#include "runtime/parameters.h"

#include "emulator/emu.h"
#include "runtime/config.h"
#include "runtime/tensor_maps.h"

#include <string.h>

/* Offset of the tensor maps. */
static size_t maps_offset(const struct kernel_config *config) {
    const size_t align = alignof(tensor_maps);
    return (config_args(config)->bytes + align - 1) / align * align;
}

size_t parameters_bytes(const struct kernel_config *config) {
    return config_has(config, TENSOR_COPIES) ? maps_offset(config) + sizeof(tensor_maps) : config_args(config)->bytes;
}

/* The second parameter as the emulator reads it. STATUS_ERROR where a map is refused. */
static enum status tensor_maps_of_emulator(const struct tensor_layout layouts[N_TENSORS], tensor_maps *maps,
                                           struct failure *failure) {
    static const char *const names[N_TENSORS] = {"Q", "K", "V", "O"};
    tensor_map *const all[N_TENSORS] = {&maps->Q, &maps->K, &maps->V, &maps->O};
    for (int t = 0; t < N_TENSORS; t++) {
        const struct tensor_layout *layout = &layouts[t];
        emu_tensor_info info = {.address = layout->address,
                                .rank = TENSOR_RANK,
                                .element_bytes = layout->element_bytes,
                                .swizzle = layout->row_bytes == 128 ? EMU_SWIZZLE_128B : EMU_SWIZZLE_64B};
        for (int i = 0; i < TENSOR_RANK; i++) {
            info.sizes[i] = (uint32_t)layout->sizes[i];
            info.box[i] = layout->box[i];
            if (i) info.strides[i - 1] = layout->strides[i - 1];
        }
        emu_error error;
        if (!emu_make_tensor_map(&info, all[t], &error))
            return fail(failure, STATUS_ERROR, "the tensor map of %s: %s", names[t], error.text);
    }
    return STATUS_OK;
}

enum status parameters_of_emulator(const struct kernel_config *config, const attention_args *args,
                                   struct parameter_block *block, struct failure *failure) {
    struct tensor_layout layouts[N_TENSORS];
    tensor_maps maps;
    *block = (struct parameter_block){.size = parameters_bytes(config)};
    memcpy(block->bytes, args, config_args(config)->bytes);
    if (!config_has(config, TENSOR_COPIES)) return STATUS_OK;
    tensor_layouts(args, config, layouts);
    const enum status status = tensor_maps_of_emulator(layouts, &maps, failure);
    if (!status) memcpy(block->bytes + maps_offset(config), &maps, sizeof maps);
    return status;
}
