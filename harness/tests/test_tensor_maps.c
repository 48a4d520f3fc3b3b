/* test_tensor_maps.c - what the maps of Q, K, V and O describe, and that driver and emulator are told the same. */
#include "common/tests/tap.h"
#include "harness/problem.h"
#include "runtime/config.h"
#include "runtime/parameters.h"
#include "runtime/tensor_maps.h"

#include <inttypes.h>
#include <stdalign.h>
#include <stddef.h>

static const struct problem PROBLEM = {
    .batch = 2, .heads = 3, .KV_heads = 3, .seq_q = 384, .seq_k = 384, .d_head = 128, .dtype = BF16};
static const struct kernel_config CONFIG = {.dtype = BF16, .d_head = 128, .B_r = 128, .B_c = 96, .n_warps = 8};
static const uint64_t ADDRESSES[N_TENSORS] = {0x10000, 0x20000, 0x30000, 0x40000};

static attention_args arguments(const struct problem *problem) {
    attention_args args = problem_args(problem);
    args.Q = (const void *)(uintptr_t)ADDRESSES[TENSOR_Q];
    args.K = (const void *)(uintptr_t)ADDRESSES[TENSOR_K];
    args.V = (const void *)(uintptr_t)ADDRESSES[TENSOR_V];
    args.O = (void *)(uintptr_t)ADDRESSES[TENSOR_O];
    return args;
}

static void layouts_of_a_problem(void) {
    const uint32_t rows[N_TENSORS] = {64, 96, 96, 16};
    const uint64_t sizes[TENSOR_RANK] = {64, 384, 2, 3, 2};
    const uint64_t strides[TENSOR_RANK - 1] = {3 * 256, 128, 256, 384 * 3 * 256};
    struct tensor_layout layouts[N_TENSORS];
    const attention_args args = arguments(&PROBLEM);
    tensor_layouts(&args, &CONFIG, layouts);
    for (int t = 0; t < N_TENSORS; t++) {
        const uint32_t box[TENSOR_RANK] = {64, rows[t], 2, 1, 1};
        ok(layouts[t].address == ADDRESSES[t], "tensor %d begins at 0x%" PRIx64, t, layouts[t].address);
        ok(!memcmp(layouts[t].sizes, sizes, sizeof sizes), "its sizes");
        ok(!memcmp(layouts[t].strides, strides, sizeof strides), "its strides");
        ok(!memcmp(layouts[t].box, box, sizeof box), "its box has %" PRIu32 " rows", layouts[t].box[1]);
    }
}

/* Each tensor's own rows, heads and strides. */
static void layouts_of_general_attention(void) {
    struct problem problem = PROBLEM;
    struct tensor_layout layouts[N_TENSORS];
    problem.heads = 4;
    problem.KV_heads = 2;
    problem.seq_q = 33;
    problem.seq_k = 70;
    problem.d_head = 256;
    problem.layout = LAYOUT_PADDED;
    struct kernel_config config = CONFIG;
    config.d_head = 256;
    const attention_args args = arguments(&problem);
    tensor_layouts(&args, &config, layouts);
    for (int t = 0; t < N_TENSORS; t++) {
        const bool keys = t == TENSOR_K || t == TENSOR_V;
        const uint64_t gap = 16 * (1 + (uint64_t)t), head = 512 + gap, seq = (keys ? 2 : 4) * head + gap;
        const uint64_t sizes[TENSOR_RANK] = {64, keys ? 70 : 33, 4, keys ? 2 : 4, 2};
        const uint64_t strides[TENSOR_RANK - 1] = {seq, 128, head, (keys ? 70 : 33) * seq + gap};
        ok(!memcmp(layouts[t].sizes, sizes, sizeof sizes), "general attention, tensor %d: its sizes", t);
        ok(!memcmp(layouts[t].strides, strides, sizeof strides), "its strides");
    }
}

static void parameter_block(void) {
    ok(sizeof(tensor_map) == 128 && alignof(tensor_map) == 64, "a map has 128 bytes at a multiple of 64");
    ok(sizeof(tensor_maps) == 4 * 128 && offsetof(tensor_maps, O) == 3 * 128, "four of them lie side by side");
}

static struct call {
    void *map;
    int data_type, interleave, swizzle, l2_promotion, fill;
    uint32_t rank;
    struct tensor_layout layout;
} calls[N_TENSORS];
static int n_calls, refused_call = -1;

static CUresult encode(void *map, int data_type, uint32_t rank, CUdeviceptr address, const uint64_t *sizes,
                       const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides, int interleave,
                       int swizzle, int l2_promotion, int fill) {
    struct call *call = &calls[n_calls];
    *call = (struct call){map, data_type, interleave, swizzle, l2_promotion, fill, rank, {.address = address}};
    memcpy(call->layout.sizes, sizes, sizeof call->layout.sizes);
    memcpy(call->layout.strides, strides, sizeof call->layout.strides);
    memcpy(call->layout.box, box, sizeof call->layout.box);
    for (uint32_t i = 0; i < rank; i++) ok(element_strides[i] == 1, "no element is left out in dimension %" PRIu32, i);
    *(uint32_t *)map = (uint32_t)address;
    return n_calls++ == refused_call ? 1 : CUDA_SUCCESS;
}

static bool same_layout(const struct tensor_layout *a, const struct tensor_layout *b) {
    return a->address == b->address && !memcmp(a->sizes, b->sizes, sizeof a->sizes) &&
           !memcmp(a->strides, b->strides, sizeof a->strides) && !memcmp(a->box, b->box, sizeof a->box);
}

static CUresult named(CUresult error, const char **name) {
    (void)error;
    *name = "CUDA_ERROR_INVALID_VALUE";
    return CUDA_SUCCESS;
}

static void the_driver(void) {
    const struct cuda_driver cuda = {
        .cuTensorMapEncodeTiled = encode, .cuGetErrorName = named, .cuGetErrorString = named};
    struct tensor_layout layouts[N_TENSORS];
    tensor_maps maps;
    struct failure failure;
    const attention_args args = arguments(&PROBLEM);
    tensor_layouts(&args, &CONFIG, layouts);
    ok(!tensor_maps_of_driver(&cuda, BF16, layouts, &maps, &failure) && n_calls == N_TENSORS, "the driver makes all");
    for (int t = 0; t < N_TENSORS; t++) {
        const struct call *call = &calls[t];
        ok(same_layout(&call->layout, &layouts[t]) && call->rank == 5, "map %d: the layout is passed on", t);
        ok(call->data_type == 9 && call->interleave == 0 && call->swizzle == 3 && call->l2_promotion == 3 &&
               !call->fill,
           "map %d: bf16, 128B swizzle, 256 bytes for the L2, zeros", t);
    }
    ok((uint32_t)maps.Q.words[0] == 0x10000 && (uint32_t)maps.K.words[0] == 0x20000 &&
           (uint32_t)maps.V.words[0] == 0x30000 && (uint32_t)maps.O.words[0] == 0x40000,
       "each map is that of its tensor");
    n_calls = 0;
    ok(!tensor_maps_of_driver(&cuda, FP16, layouts, &maps, &failure) && calls[0].data_type == 6, "fp16 has its number");
    n_calls = 0;
    refused_call = 2;
    ok(tensor_maps_of_driver(&cuda, FP16, layouts, &maps, &failure) == STATUS_ERROR, "a map that is refused");
    says(failure.text, "cuTensorMapEncodeTiled of V: CUDA_ERROR_INVALID_VALUE", "a map that is refused");
}

static void the_emulator(void) {
    struct tensor_layout layouts[N_TENSORS];
    tensor_maps maps;
    struct failure failure;
    const attention_args args = arguments(&PROBLEM);
    tensor_layouts(&args, &CONFIG, layouts);
    ok(!tensor_maps_of_emulator(layouts, &maps, &failure), "the emulator takes all layouts");
    ok(memcmp(&maps.Q, &maps.K, sizeof maps.Q) && memcmp(&maps.K, &maps.V, sizeof maps.K) &&
           memcmp(&maps.V, &maps.O, sizeof maps.V),
       "each map is one of its own");
    layouts[TENSOR_K].address += 8;
    ok(tensor_maps_of_emulator(layouts, &maps, &failure) == STATUS_ERROR, "an address that no map takes");
    says(failure.text, "the tensor map of K: the tensor starts at 0x20008, which is not a multiple of 16",
         "an address");
}

/* Rows and samples of Q and of K where the sequences lie one behind the other, or in pages. */
static void layouts_of_serving(void) {
    static const int32_t any = 0; /* only whether there is an array counts */
    const serving_args plain = serving_of_one_length(arguments(&PROBLEM));
    serving_args of_Q = plain, of_KV = plain, paged = plain, lengths = plain;
    of_Q.Q_offsets = &any, of_Q.Q_rows = 500;
    of_KV.KV_offsets = &any, of_KV.KV_rows = 700;
    paged.pages = &any, paged.page_rows = 64, paged.n_pages = 90;
    lengths.Q_lengths = lengths.KV_lengths = &any;
    const struct {
        const char *name;
        const serving_args *args;
        bool serves;
        uint64_t Q_rows, Q_batch, K_rows, K_batch;
    } cases[] = {
        {"one length", &plain, true, 384, 2, 384, 2},  {"lengths", &lengths, true, 384, 2, 384, 2},
        {"offsets of Q", &of_Q, true, 500, 1, 384, 2}, {"offsets of K", &of_KV, true, 384, 2, 700, 1},
        {"pages", &paged, true, 384, 2, 64, 90},       {"no serving_args", &of_Q, false, 384, 2, 384, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tensor_layout layouts[N_TENSORS];
        struct kernel_config config = CONFIG;
        config.family = FAMILY_ATTENTION;
        config.attention.serves = cases[i].serves;
        tensor_layouts(&cases[i].args->attention, &config, layouts);
        for (int t = 0; t < N_TENSORS; t++) {
            const bool keys = t == TENSOR_K || t == TENSOR_V;
            ok(layouts[t].sizes[1] == (keys ? cases[i].K_rows : cases[i].Q_rows) &&
                   layouts[t].sizes[4] == (keys ? cases[i].K_batch : cases[i].Q_batch),
               "%s: tensor %d is %" PRIu64 " x %" PRIu64, cases[i].name, t, layouts[t].sizes[4], layouts[t].sizes[1]);
        }
    }
}

/* Boxes of K and V in pages: a KV block, or of a smaller page its rows of one tile. */
static void boxes_of_pages(void) {
    static const int32_t any = 0;
    static const struct {
        int32_t page_rows;
        uint32_t rows, tiles;
    } cases[] = {{16, 16, 1}, {64, 64, 1}, {128, 128, 2}, {512, 128, 2}};
    struct kernel_config config;
    struct failure failure;
    struct tensor_layout layouts[N_TENSORS];
    serving_args args = serving_of_one_length(arguments(&PROBLEM));
    args.pages = &any, args.n_pages = 90;
    ok(!config_parse("(FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+serve+pages", &config, &failure) &&
           config_has(&config, PAGED_KV),
       "a config with pages");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        args.page_rows = cases[i].page_rows;
        tensor_layouts(&args.attention, &config, layouts);
        for (int t = TENSOR_K; t <= TENSOR_V; t++)
            ok(layouts[t].box[1] == cases[i].rows && layouts[t].box[2] == cases[i].tiles,
               "pages of %d: tensor %d has boxes of %" PRIu32 " rows, %" PRIu32 " tiles", cases[i].page_rows, t,
               layouts[t].box[1], layouts[t].box[2]);
        ok(layouts[TENSOR_Q].box[1] == 64 && layouts[TENSOR_Q].box[2] == 2, "Q as ever");
    }
    ok(!config_parse("(FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+serve", &config, &failure) &&
           !config_has(&config, PAGED_KV),
       "one without");
}

/* Q as groups of heads: a query has as many rows of a box as the next power of two. */
static void boxes_of_groups(void) {
    static const int32_t any = 0;
    static const struct {
        int32_t heads, KV_heads;
        uint32_t slots;
    } cases[] = {{4, 4, 1}, {8, 2, 4}, {14, 2, 8}, {64, 1, 64}, {65, 1, 64}};
    struct kernel_config config;
    struct failure failure;
    ok(!config_parse("(FP16, 128, 128, 128, 8): wgmma+stages_2+serve+pack", &config, &failure) &&
           config_has(&config, PACKS),
       "a config that packs");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tensor_layout layouts[N_TENSORS];
        serving_args args = serving_of_one_length(arguments(&PROBLEM));
        args.Q_offsets = &any, args.Q_rows = 500;
        args.attention.heads = cases[i].heads, args.attention.KV_heads = cases[i].KV_heads;
        args.attention.Q_strides = (tensor_strides){.batch = 0, .seq = 128 * cases[i].heads, .head = 128};
        tensor_layouts(&args.attention, &config, layouts);
        const struct tensor_layout *const Q = &layouts[TENSOR_O];
        const uint64_t group = (uint64_t)(cases[i].heads / cases[i].KV_heads);
        ok(Q->address == layouts[TENSOR_Q].address && Q->sizes[0] == 128 && Q->sizes[1] == group &&
               Q->sizes[2] == 500 && Q->sizes[3] == (uint64_t)cases[i].KV_heads && Q->sizes[4] == 1,
           "%d heads on %d: Q in groups", cases[i].heads, cases[i].KV_heads);
        ok(Q->strides[0] == 256 && Q->strides[1] == 256 * (uint64_t)cases[i].heads && Q->strides[2] == 256 * group,
           "from head to head, row to row and group to group");
        ok(Q->box[0] == 64 && Q->box[1] == cases[i].slots && Q->box[2] == 64 / cases[i].slots && Q->box[3] == 1,
           "boxes of %" PRIu32 " heads", Q->box[1]);
    }
}

/* What the emulator is passed: the arguments, and the maps at the next multiple of their alignment. */
static void the_emulators_block(void) {
    const attention_args args = arguments(&PROBLEM);
    struct kernel_config config = CONFIG;
    struct tensor_layout layouts[N_TENSORS];
    tensor_maps maps;
    struct parameter_block block;
    struct failure failure;
    ok(!parameters_of_emulator(&config, &args, &block, &failure) && block.size == sizeof(forward_args) &&
           !memcmp(block.bytes, &args, sizeof(forward_args)),
       "the arguments alone, %zu bytes", block.size);
    config.ladder.tensor_copies = true;
    tensor_layouts(&args, &config, layouts);
    ok(!tensor_maps_of_emulator(layouts, &maps, &failure), "maps");
    for (int any_length = 0; any_length < 2; any_length++) {
        const size_t bytes = any_length ? sizeof(attention_args) : sizeof(forward_args);
        size_t at = 0;
        while (at < bytes) at += alignof(tensor_maps);
        if (any_length)
            config = (struct kernel_config){FAMILY_ATTENTION, .attention = {BF16, 128, 128, 96, 8, WGMMA, .stages = 2}};
        ok(!parameters_of_emulator(&config, &args, &block, &failure) && block.size == at + sizeof maps &&
               !memcmp(block.bytes, &args, bytes) && !memcmp(block.bytes + at, &maps, sizeof maps),
           "%zu bytes of arguments, and maps at %zu", bytes, at);
    }
    serving_args serving = serving_of_one_length(args);
    serving.softcap = 50;
    config.attention.serves = true;
    serving_args found;
    ok(!parameters_of_emulator(&config, &serving.attention, &block, &failure) &&
           block.size == sizeof serving + sizeof maps && !memcmp(block.bytes + sizeof serving, &maps, sizeof maps),
       "serving_args, and maps right behind them");
    memcpy(&found, block.bytes, sizeof found);
    ok(found.attention.O == args.O && found.attention.seq_k == args.seq_k && found.softcap == 50 &&
           found.window_left == -1 && found.window_right == -1 && !found.pages,
       "what attention_args has, and what it lacks");
}

int main(void) {
    layouts_of_a_problem();
    layouts_of_general_attention();
    layouts_of_serving();
    boxes_of_pages();
    boxes_of_groups();
    parameter_block();
    the_driver();
    the_emulator();
    the_emulators_block();
    return tap_done();
}
