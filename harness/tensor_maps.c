#include "harness/tensor_maps.h"

#include "harness/emu/emu.h"

enum { SPAN = 64 }; /* elements of 128 bytes, which the swizzle permutes */

static const char *const NAMES[N_TENSORS] = {"Q", "K", "V", "O"};

void tensor_layouts(const struct problem *problem, const KernelConfig *config, const uint64_t addresses[N_TENSORS],
                    struct tensor_layout layouts[N_TENSORS]) {
    enum { ELEMENT_BYTES = 2, WARPGROUP_ROWS = 64, WARP_ROWS = 16 };
    const uint32_t rows[N_TENSORS] = {WARPGROUP_ROWS, (uint32_t)config->B_c, (uint32_t)config->B_c, WARP_ROWS};
    const int64_t lengths[N_TENSORS] = {problem->seq_q, problem->seq_k, problem->seq_k, problem->seq_q};
    const int64_t heads[N_TENSORS] = {problem->heads, problem->KV_heads, problem->KV_heads, problem->heads};
    const uint32_t spans = (uint32_t)config->d_head / SPAN;
    for (int t = 0; t < N_TENSORS; t++) {
        const tensor_strides strides = problem_strides(problem, (enum tensor)t);
        layouts[t] = (struct tensor_layout){
            .address = addresses[t],
            .sizes = {SPAN, (uint64_t)lengths[t], spans, (uint64_t)heads[t], (uint64_t)problem->batch},
            .strides = {ELEMENT_BYTES * (uint64_t)strides.seq, ELEMENT_BYTES * SPAN,
                        ELEMENT_BYTES * (uint64_t)strides.head, ELEMENT_BYTES * (uint64_t)strides.batch},
            .box = {SPAN, rows[t], spans, 1, 1}};
    }
}

static tensor_map *map_of(tensor_maps *maps, int tensor) {
    tensor_map *const all[N_TENSORS] = {&maps->Q, &maps->K, &maps->V, &maps->O};
    return all[tensor];
}

enum status tensor_maps_of_driver(const struct cuda_driver *cuda, enum dtype dtype,
                                  const struct tensor_layout layouts[N_TENSORS], tensor_maps *maps,
                                  struct failure *failure) {
    static const uint32_t element_strides[TENSOR_RANK] = {1, 1, 1, 1, 1};
    for (int t = 0; t < N_TENSORS; t++) {
        const struct tensor_layout *layout = &layouts[t];
        const CUresult result = cuda->cuTensorMapEncodeTiled(
            map_of(maps, t), dtype == BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            TENSOR_RANK, layout->address, layout->sizes, layout->strides, layout->box, element_strides,
            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        const enum status status = cuda_check(cuda, result, failure, "cuTensorMapEncodeTiled of %s", NAMES[t]);
        if (status) return status;
    }
    return STATUS_OK;
}

enum status tensor_maps_of_emulator(const struct tensor_layout layouts[N_TENSORS], tensor_maps *maps,
                                    struct failure *failure) {
    for (int t = 0; t < N_TENSORS; t++) {
        const struct tensor_layout *layout = &layouts[t];
        emu_tensor_info info = {
            .address = layout->address, .rank = TENSOR_RANK, .element_bytes = 2, .swizzle = EMU_SWIZZLE_128B};
        for (int i = 0; i < TENSOR_RANK; i++) {
            info.sizes[i] = (uint32_t)layout->sizes[i];
            info.box[i] = layout->box[i];
            if (i) info.strides[i - 1] = layout->strides[i - 1];
        }
        emu_error error;
        if (!emu_make_tensor_map(&info, map_of(maps, t), &error))
            return fail(failure, STATUS_ERROR, "the tensor map of %s: %s", NAMES[t], error.text);
    }
    return STATUS_OK;
}
