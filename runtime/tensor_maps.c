#include "runtime/tensor_maps.h"

#include "runtime/config.h"

#include <string.h>

enum { ROW_BYTES = 128, SPAN = 64 }; /* of a tile's row, and its elements of 2 bytes */

static const char *const NAMES[N_TENSORS] = {"Q", "K", "V", "O"};

/* Samples, and rows of each. */
struct extent {
    int32_t batch, rows;
};

/* With offsets a tensor is one sample, with pages each page is. */
static struct extent extent_of(const attention_args *args, const struct kernel_config *config, bool keys) {
    const bool backward = config_has(config, BACKWARD_PASS);
    const serving_args *const serving = config_has(config, SERVES) && !backward ? (const serving_args *)args : NULL;
    if (backward && config_has(config, SERVES) && ((const backward_serving_args *)args)->Q_offsets)
        return (struct extent){1, keys ? args->all_KV_rows : args->all_Q_rows};
    if (serving && keys && serving->pages) return (struct extent){serving->n_pages, serving->page_rows};
    if (serving && keys && serving->KV_offsets) return (struct extent){1, serving->KV_rows};
    if (serving && !keys && serving->Q_offsets) return (struct extent){1, serving->Q_rows};
    return (struct extent){args->batch, keys ? args->seq_k : args->seq_q};
}

/* A pointer of the parameters has 64 bits also where the host's have 32, as in a page. */
static uint64_t address_in(const void *pointer) {
    uint64_t address;
    memcpy(&address, pointer, sizeof address);
    return address;
}

enum { WARPGROUP_ROWS = 64, WARP_ROWS = 16 };

/* V as [batch, heads, d_head, seq], contiguous: a box has the keys of a block of all columns. */
static void transpose_layout(struct tensor_layout *V, const attention_args *args, const struct kernel_config *config) {
    const uint64_t keys = (uint64_t)args->seq_k, d_head = (uint64_t)config->d_head;
    V->sizes[0] = keys;
    V->sizes[1] = d_head;
    V->strides[0] = keys;
    V->strides[2] = keys * d_head;
    V->strides[3] = keys * d_head * (uint64_t)args->KV_heads;
    V->box[0] = (uint32_t)config->B_c;
    V->box[1] = (uint32_t)config->d_head;
}

/* K with the rows of each 16 keys in another order; heads and samples count rows of 16 keys. */
static void permute_layout(struct tensor_layout *K, const attention_args *args, const struct kernel_config *config) {
    const uint64_t row = (uint64_t)args->K_strides.seq;
    const uint32_t d_head = (uint32_t)config->d_head;
    const struct tensor_layout permuted = {
        .address = K->address,
        .sizes = {d_head * (uint64_t)args->KV_heads, 2, 4, 2, (uint64_t)args->batch * (uint64_t)args->seq_k / 16},
        .strides = {row, 4 * row, 2 * row, 16 * row},
        .box = {d_head, 2, 4, 2, (uint32_t)config->B_c / 16},
        .element_bytes = 1,
        .row_bytes = ROW_BYTES,
        .L2_promotion = K->L2_promotion};
    *K = permuted;
}

/* K, V and, in kernels of fp8, Q are bytes. */
static void byte_layouts(const struct kernel_config *config, struct tensor_layout layouts[N_TENSORS]) {
    const int row_bytes = config->d_head < ROW_BYTES ? config->d_head : ROW_BYTES;
    for (int t = config_has(config, E4M3_INPUTS) ? TENSOR_Q : TENSOR_K; t <= TENSOR_V; t++) {
        struct tensor_layout *const layout = &layouts[t];
        layout->element_bytes = 1;
        layout->row_bytes = row_bytes;
        layout->sizes[0] = layout->box[0] = (uint32_t)row_bytes;
        layout->sizes[2] = layout->box[2] = (uint32_t)(config->d_head / row_bytes);
        for (int i = 0; i < TENSOR_RANK - 1; i++)
            if (i != 1) layout->strides[i] /= 2;
    }
}

static void fp8_layouts(const attention_args *args, const struct kernel_config *config,
                        struct tensor_layout layouts[N_TENSORS]) {
    byte_layouts(config, layouts);
    if (config->fp8.V_transposed) transpose_layout(&layouts[TENSOR_V], args, config);
    if (config->fp8.K_permuted) permute_layout(&layouts[TENSOR_K], args, config);
}

/* A box of a page with fewer rows than a KV block has one tile, because the rows of a block are not contiguous. */
static void page_layouts(int page_rows, const struct kernel_config *config, struct tensor_layout layouts[N_TENSORS]) {
    for (int t = TENSOR_K; t <= TENSOR_V && page_rows < config->B_c; t++) {
        layouts[t].box[1] = (uint32_t)page_rows;
        layouts[t].box[2] = 1;
    }
}

/* Q as groups of heads: a box has the rows of a warpgroup, of each query those of all heads of a group, and zeros up to
 * a power of two. */
static void group_layout(const attention_args *args, const struct kernel_config *config,
                         struct tensor_layout layouts[N_TENSORS]) {
    const struct tensor_layout *const Q = &layouts[TENSOR_Q];
    const uint32_t group = (uint32_t)(args->heads / args->KV_heads);
    uint32_t heads = 1;
    while (heads < group && heads < WARPGROUP_ROWS) heads *= 2;
    const struct tensor_layout groups = {
        .address = Q->address,
        .sizes = {(uint64_t)config->d_head, group, Q->sizes[1], (uint64_t)args->KV_heads, Q->sizes[4]},
        .strides = {Q->strides[2], Q->strides[0], group * Q->strides[2], Q->strides[3]},
        .box = {SPAN, heads, WARPGROUP_ROWS / heads, 1, 1},
        .element_bytes = Q->element_bytes,
        .row_bytes = Q->row_bytes,
        .L2_promotion = Q->L2_promotion};
    layouts[TENSOR_O] = groups;
}

/* The elements of a row in one dimension, past whose end a copy of one tile reads zeros. A box has the rows of one page
 * if a page has fewer than a KV block. */
static void row_layouts(const extended_args *extended, struct tensor_layout layouts[N_TENSORS]) {
    const serving_args *const args = &extended->serving;
    const bool of_pages = args->pages != NULL;
    const uint32_t page_rows = (uint32_t)args->page_rows;
    for (int t = 0; t <= TENSOR_V; t++) {
        struct tensor_layout *const layout = &layouts[t];
        const uint64_t seq = layout->strides[0], rows = layout->sizes[1];
        layout->sizes[0] = (uint64_t)(t == TENSOR_V ? extended->d_head_v : args->d_head);
        layout->sizes[1] = 1;
        layout->sizes[2] = rows;
        layout->strides[1] = seq;
        layout->box[2] = of_pages && t != TENSOR_Q && page_rows < layout->box[1] ? page_rows : layout->box[1];
        layout->box[1] = 1;
    }
}

void tensor_layouts(const attention_args *args, const struct kernel_config *config,
                    struct tensor_layout layouts[N_TENSORS]) {
    enum { ELEMENT_BYTES = 2 };
    const bool shares = config_has(config, SHARES_KEYS), backward = config_has(config, BACKWARD_PASS);
    const uint32_t queries = backward ? (uint32_t)config->B_r : shares ? 1 : WARPGROUP_ROWS;
    const struct extent of_Q = extent_of(args, config, false), of_KV = extent_of(args, config, true);
    const uint32_t keys = (uint32_t)(!shares                      ? config->B_c
                                     : config_has(config, SERVES) ? DECODE_PAGE_KEYS
                                                                  : decode_warp_keys(&config->decode));
    const struct {
        const void *pointer;
        tensor_strides strides;
        struct extent extent;
        int32_t heads;
        uint32_t box_rows;
    } tensors[N_TENSORS] = {{&args->Q, args->Q_strides, of_Q, args->heads, queries},
                            {&args->K, args->K_strides, of_KV, args->KV_heads, keys},
                            {&args->V, args->V_strides, of_KV, args->KV_heads, keys},
                            {backward ? &((const backward_args *)args)->dO : (const void *)&args->O, args->O_strides,
                             of_Q, args->heads, backward ? queries : WARP_ROWS}};
    const uint32_t spans = (uint32_t)config->d_head / SPAN;
    for (int t = 0; t < N_TENSORS; t++) {
        const tensor_strides strides = tensors[t].strides;
        layouts[t] = (struct tensor_layout){
            .address = address_in(tensors[t].pointer),
            .sizes = {SPAN, (uint64_t)tensors[t].extent.rows, spans, (uint64_t)tensors[t].heads,
                      (uint64_t)tensors[t].extent.batch},
            .strides = {ELEMENT_BYTES * (uint64_t)strides.seq, ELEMENT_BYTES * SPAN,
                        ELEMENT_BYTES * (uint64_t)strides.head, ELEMENT_BYTES * (uint64_t)strides.batch},
            .box = {SPAN, tensors[t].box_rows, spans, 1, 1},
            .element_bytes = ELEMENT_BYTES,
            .row_bytes = ROW_BYTES,
            .L2_promotion = shares ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_L2_256B};
    }
    if (config_has(config, PAGED_KV)) page_layouts(((const serving_args *)args)->page_rows, config, layouts);
    if (config_has(config, PACKS)) group_layout(args, config, layouts);
    if (config_has(config, EXTENDED)) row_layouts((const extended_args *)args, layouts);
    if (config_has(config, E4M3_INPUTS)) fp8_layouts(args, config, layouts);
    if (config_has(config, E4M3_CACHE) || config_has(config, INT8_CACHE)) byte_layouts(config, layouts);
}

static tensor_map *map_of(tensor_maps *maps, int tensor) {
    tensor_map *const all[N_TENSORS] = {&maps->Q, &maps->K, &maps->V, &maps->O};
    return all[tensor];
}

enum status tensor_maps_of_driver(const struct cuda_driver *cuda, enum dtype dtype,
                                  const struct tensor_layout layouts[N_TENSORS], tensor_maps *maps,
                                  struct failure *failure) {
    static const uint32_t element_strides[TENSOR_RANK] = {1, 1, 1, 1, 1};
    const int of_halves = dtype == BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    for (int t = 0; t < N_TENSORS; t++) {
        const struct tensor_layout *layout = &layouts[t];
        const CUresult result = cuda->cuTensorMapEncodeTiled(
            map_of(maps, t), layout->element_bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : of_halves, TENSOR_RANK,
            layout->address, layout->sizes, layout->strides, layout->box, element_strides,
            CU_TENSOR_MAP_INTERLEAVE_NONE,
            layout->row_bytes == ROW_BYTES ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
            layout->L2_promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        const enum status status = cuda_check(cuda, result, failure, "cuTensorMapEncodeTiled of %s", NAMES[t]);
        if (status) return status;
    }
    return STATUS_OK;
}
