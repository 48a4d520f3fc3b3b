/* tensor_copies.cu - what TMA makes of the elements of a tensor map, and of boxes at odd corners, as CSV.
 *
 * On an H200 it wrote records/tensor_copies.h200.csv.
 * The tensor has 8 rows of 64 bytes, the box 4. test_tensor_values.py does the same on the emulator. A line for each
 * copy: what it does, the type of the elements (CUtensorMapDataType), the fill mode, the word that all of a target
 * holds before, the corner of the box, how it ended, and the words of the target: those of the box where it is shared
 * memory, else those of the tensor's first four rows. Each runs in a process of its own, as an illegal instruction ends
 * all of a process. Exit status 1: the GPU could not be used.
 */
#include <cuda.h>
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

enum operation { LOAD, STORE, ADD, BULK_ADD };
static const char *const names[] = {"load", "store", "add", "bulk add"};
struct trial {
    operation does;
    int type, fill;
    uint32_t before;
    int column, row;
};
constexpr int WORDS = 64, ROW_BYTES = 64, ROWS = 8, BOX_ROWS = 4;

/* Ties, NaN, infinities, the largest and the smallest numbers; then steps of a quarter of a digit of tf32. */
static const uint32_t chosen[] = {0x9a75502b, 0x3f801000, 0x3f803000, 0x3f800fff, 0x3f801001, 0x3f803001, 0xbf801000,
                                  0xbf803000, 0x7f7fffff, 0x7f7ff000, 0x7f7fefff, 0xff7fffff, 0x7f800000, 0xff800000,
                                  0x7f800001, 0x7fc00000, 0x7fffffff, 0xffc12345, 0xff812345, 0x7f801000, 0x7f801001,
                                  0x00000001, 0x80000001, 0x007fffff, 0x807fffff, 0x007ff000, 0x007fefff, 0x00001000,
                                  0x00003000, 0x00800000, 0x80800000, 0x00000fff, 0x00001001, 0x80001000, 0x80003000,
                                  0x00000000, 0x80000000, 0x00801000, 0x00803000, 0x3f7ff000, 0x3f7fefff, 0x7fbfffff,
                                  0x7fa00000, 0x7ff77ff7, 0xfff77ff7, 0x33800000, 0x477fe000, 0x477ff000};

static uint32_t value(int i) {
    constexpr int first = sizeof chosen / sizeof chosen[0];
    return i < first ? chosen[i] : 0x40000000u + 0x800u * (uint32_t)(i - first);
}

__global__ void copy_box(const __grid_constant__ CUtensorMap map, trial t, const uint32_t *values, uint32_t *tensor,
                         uint32_t *box) {
    __shared__ __align__(1024) uint32_t smem[WORDS];
    __shared__ __align__(8) uint64_t mbarrier;
    const uint32_t s = (uint32_t)__cvta_generic_to_shared(smem), bar = (uint32_t)__cvta_generic_to_shared(&mbarrier);
    for (int i = threadIdx.x; i < WORDS; i += 32) smem[i] = t.does == LOAD ? t.before : values[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(bar));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        if (t.does == LOAD) {
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(4 * WORDS) : "memory");
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                         "[%1, {%2, %3}], [%4];" ::"r"(s),
                         "l"(&map), "r"(t.column), "r"(t.row), "r"(bar)
                         : "memory");
            asm volatile(
                "{ .reg .pred p; wait: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra wait; }" ::"r"(bar)
                : "memory");
        }
        if (t.does == STORE)
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
                         "r"(t.column), "r"(t.row), "r"(s)
                         : "memory");
        if (t.does == ADD)
            asm volatile(
                "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
                "r"(t.column), "r"(t.row), "r"(s)
                : "memory");
        if (t.does == BULK_ADD)
            asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(tensor),
                         "r"(s), "r"(4 * WORDS)
                         : "memory");
        asm volatile("cp.async.bulk.commit_group;");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    __syncwarp();
    for (int i = threadIdx.x; i < WORDS; i += 32) box[i] = t.does == LOAD ? smem[i] : tensor[i];
}

typedef CUresult encode(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                        const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                        CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static void need(cudaError_t error) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "tensor_copies: %s\n", cudaGetErrorString(error));
    exit(1);
}

/* In a process of its own. */
static void measure(trial t) {
    static const int bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    uint32_t values[ROWS * ROW_BYTES / 4], *tensor, *given, *out;
    for (int i = 0; i < ROWS * ROW_BYTES / 4; i++) values[i] = i < WORDS ? value(i) : t.before;
    need(cudaMalloc(&tensor, sizeof values));
    need(cudaMalloc(&given, sizeof values));
    need(cudaMalloc(&out, 4 * WORDS));
    need(cudaMemcpy(given, values, sizeof values, cudaMemcpyHostToDevice));
    for (uint32_t &each : values) each = t.does == LOAD ? each : t.before;
    need(cudaMemcpy(tensor, values, sizeof values, cudaMemcpyHostToDevice));
    void *function;
    cudaDriverEntryPointQueryResult found;
    need(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
    CUtensorMap map;
    const cuuint64_t sizes[] = {(cuuint64_t)(ROW_BYTES / bytes[t.type]), ROWS}, strides[] = {ROW_BYTES};
    const cuuint32_t box[] = {(cuuint32_t)(ROW_BYTES / bytes[t.type]), BOX_ROWS}, ones[] = {1, 1};
    printf("%s,%d,%d,%08x,%d,%d,", names[t.does], t.type, t.fill, t.before, t.column, t.row);
    if (((encode *)function)(&map, (CUtensorMapDataType)t.type, 2, tensor, sizes, strides, box, ones,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                             (CUtensorMapFloatOOBfill)t.fill)) {
        printf("refused,\n");
        return;
    }
    copy_box<<<1, 32>>>(map, t, given, tensor, out);
    const cudaError_t error = cudaDeviceSynchronize();
    if (error == cudaErrorIllegalInstruction) {
        printf("illegal instruction,\n");
        return;
    }
    if (error == cudaErrorLaunchTimeout) { /* the emulator reports the instruction, then a wait for its copy */
        printf("launch timeout,\n");
        return;
    }
    need(error);
    uint32_t got[WORDS];
    need(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
    printf("done,");
    for (int i = 0; i < WORDS; i++) printf("%s%08x", i ? " " : "", got[i]);
    printf("\n");
}

static void try_it(trial t) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        measure(t);
        exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) < 0 || status) exit(1);
}

int main() {
    static const uint32_t before[] = {0, 0x00800000, 0x80000001, 0x3f800000};
    static const int floats[] = {7, 10, 11, 12},
                     corners[][2] = {{0, -1}, {-16, 0}, {0, -4}, {-16, -1}, {16, 0}, {0, 6}, {64, 0},
                                     {0, 8},  {8, 0},   {-8, 0}, {4, 1},    {2, 0},  {1, 0}};
    printf("operation,type,fill,before,column,row,end,words\n");
    for (int type : floats) {
        try_it({LOAD, type, 0, 0, 0, 0});
        try_it({STORE, type, 0, 0, 0, 0});
        for (uint32_t each : before) try_it({ADD, type, 0, each, 0, 0});
    }
    for (uint32_t each : before) try_it({BULK_ADD, 7, 0, each, 0, 0});
    for (int type = 0; type < 13; type++) try_it({LOAD, type, 1, 0xeeeeeeee, 0, 6});
    try_it({LOAD, 7, 2, 0, 0, 0});
    for (operation does : {LOAD, STORE, ADD})
        for (int type : {1, 7}) /* of 2 and 4 bytes */
            for (auto &corner : corners) {
                const int size = type == 1 ? 2 : 4;
                if (corner[0] % size == 0) try_it({does, type, 0, 0, corner[0] / size, corner[1]});
            }
}
