/* pipes.cu - what one instruction costs: alone, one after another, and together with others on the same scheduler.
 *
 * pipes.c launches `pipes` with one CTA per multiprocessor; warps w, w + 4, ... share a scheduler. The operands are
 * random, because zeros need less power. `pipes_copy` has copies by the tensor copy engine, `pipes_chase` loads whose
 * address is the result of the one before, `pipes_empty` nothing.
 */
#include "common/ptx_fp8.cuh"
#include "harness/device/pipes.h"

enum { UNROLLED = 64 };

struct operands {
    uint16_t a[64 * 64], b[128 * 64]; /* K-major, rows of 128 bytes */
    uint16_t copied[PIPE_MOST_WARPS][256];
    uint32_t rows[128]; /* what ldmatrix gives a lane is the address of the lane's row: loads that follow each other */
    uint16_t turned[256]; /* the same of its transposed form */
    uint64_t mbarriers[PIPE_MOST_WARPS];
    uint32_t done;
};

__device__ uint32_t random_bits(uint32_t seed) {
    seed = (seed ^ seed >> 16) * 0x7feb352du;
    seed = (seed ^ seed >> 15) * 0x846ca68bu;
    return seed ^ seed >> 16;
}
/* Two fp16 with random signs and fractions, 1/2 <= |x| < 1. */
__device__ uint32_t random_halves(uint32_t seed) {
    return (random_bits(seed) & 0x83ff83ffu) | 0x38003800u;
}
/* Four e4m3, likewise, 1 <= |x| < 2. */
__device__ uint32_t random_e4m3(uint32_t seed) {
    return (random_bits(seed) & 0x87878787u) | 0x38383838u;
}
__device__ uint64_t read_clock() {
    uint64_t cycles;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
    return cycles;
}
__device__ uint64_t read_timer() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}
__device__ uint32_t smem_address(const void *pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}
__host__ __device__ constexpr bool is_e4m3(int operation) {
    return operation == PIPE_E4M3 || operation == PIPE_E4M3_REGISTERS || operation == PIPE_E4M3_CHAIN;
}
/* Products of a whole warpgroup, of which the last two groups are under way. */
__host__ __device__ constexpr bool is_stream(int operation) {
    return operation == PIPE_WGMMA || operation == PIPE_WGMMA_REGISTERS || operation == PIPE_E4M3 ||
           operation == PIPE_E4M3_REGISTERS;
}

/* The operands of a warp. */
struct state {
    float x[8], c, d[16][4];
    uint32_t r[8], row[8], a[8][4], b[8][2], address, word, threads, mbarrier, phase;
    uint64_t a_matrix, b_matrix, memory;
    uint32_t copies;
};

#define TIMES(count, ...)                                                                                              \
    _Pragma("unroll")                                                                                                  \
    for (int i = 0; i < UNROLLED / (count); i++) {                                                                     \
        __VA_ARGS__;                                                                                                   \
    }
#define ON_FLOAT(text) TIMES(1, asm volatile(text : "+f"(s.x[i % 8]) : "f"(s.c)))
#define ON_WORD(text) TIMES(1, asm volatile(text : "+r"(s.r[i % 8]) : "r"(s.a[0][0]), "r"(s.a[0][1])))
#define ON_ONE_FLOAT(text) TIMES(1, asm volatile(text : "+f"(s.x[0]) : "f"(s.c)))
#define ON_ONE_WORD(text) TIMES(1, asm volatile(text : "+r"(s.r[0]) : "r"(s.a[0][0]), "r"(s.a[0][1])))

#define ON_ROW(row_, trans)                                                                                            \
    TIMES(1, asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans                                                        \
                          ".shared.b16 {%0, %1, %2, %3}, [%0];" : "+r"(s.row[row_]),                                   \
                          "=r"(s.r[1]), "=r"(s.r[2]), "=r"(s.r[3])))

/* UNROLLED instructions of a kind; nothing may be left out. Copies write the same address again and again, which
 * nothing reads it. */
template <int operation>
__device__ __forceinline__ void execute(state &s) {
    if constexpr (operation == PIPE_FFMA) ON_FLOAT("fma.rn.ftz.f32 %0, %0, %1, %1;");
    if constexpr (operation == PIPE_FADD) ON_FLOAT("add.rn.ftz.f32 %0, %0, %1;");
    if constexpr (operation == PIPE_FMUL) ON_FLOAT("mul.rn.ftz.f32 %0, %0, %1;");
    if constexpr (operation == PIPE_FMNMX) ON_FLOAT("max.ftz.f32 %0, %0, %1;");
    if constexpr (operation == PIPE_PACK) ON_FLOAT("{ .reg .b32 p; cvt.rn.f16x2.f32 p, %0, %1; mov.b32 %0, p; }");
    if constexpr (operation == PIPE_EX2) ON_FLOAT("ex2.approx.ftz.f32 %0, %0;");
    if constexpr (operation == PIPE_IMAD) ON_WORD("mad.lo.u32 %0, %0, %1, %2;");
    if constexpr (operation == PIPE_LOP) ON_WORD("lop3.b32 %0, %0, %1, %2, 0x96;");
    if constexpr (operation == PIPE_SHFL) ON_WORD("shfl.sync.bfly.b32 %0, %0, 1, 31, -1;");
    if constexpr (operation == PIPE_FFMA_CHAIN) ON_ONE_FLOAT("fma.rn.ftz.f32 %0, %0, %1, %1;");
    if constexpr (operation == PIPE_FMNMX_CHAIN) ON_ONE_FLOAT("max.ftz.f32 %0, %0, %1;");
    if constexpr (operation == PIPE_EX2_CHAIN) ON_ONE_FLOAT("ex2.approx.ftz.f32 %0, %0;");
    if constexpr (operation == PIPE_LOP_CHAIN) ON_ONE_WORD("lop3.b32 %0, %0, %1, %2, 0x96;");
    if constexpr (operation == PIPE_IMAD_CHAIN) ON_ONE_WORD("mad.lo.u32 %0, %0, %1, %2;");
    if constexpr (operation == PIPE_SHFL_CHAIN) ON_ONE_WORD("shfl.sync.bfly.b32 %0, %0, 1, 31, -1;");
    if constexpr (operation == PIPE_LDSM) ON_ROW(i % 8, "");
    if constexpr (operation == PIPE_LDSM_TRANS) ON_ROW(i % 8, ".trans");
    if constexpr (operation == PIPE_LDSM_CHAIN) ON_ROW(0, "");
    if constexpr (operation == PIPE_LDS)
        TIMES(1, asm volatile("ld.volatile.shared.b32 %0, [%1];" : "=r"(s.r[i % 8]) : "r"(s.word) : "memory"));
    if constexpr (operation == PIPE_LDS_CHAIN)
        TIMES(1, asm volatile("ld.volatile.shared.b32 %0, [%0];" : "+r"(s.row[0])::"memory"));
    if constexpr (operation == PIPE_STS)
        TIMES(1, asm volatile("st.volatile.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(s.address), "r"(s.a[i % 8][0]),
                              "r"(s.a[i % 8][1]), "r"(s.a[i % 8][2]), "r"(s.a[i % 8][3]) : "memory"));
    if constexpr (operation == PIPE_HMMA)
        TIMES(1, mma_m16n8k16_f16(s.d[i % 8], s.a[i % 8], s.b[i % 8][0], s.b[i % 8][1]));
    if constexpr (operation == PIPE_HMMA_REUSE)
        TIMES(1, mma_m16n8k16_f16(s.d[i % 8], s.a[i / 8 % 8], s.b[i % 8][0], s.b[i % 8][1]));
    if constexpr (operation == PIPE_HMMA_CHAIN) TIMES(1, mma_m16n8k16_f16(s.d[0], s.a[0], s.b[0][0], s.b[0][1]));
    if constexpr (is_stream(operation))
        for (int group = 0; group < UNROLLED / PIPE_GROUP; group++) {
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < PIPE_GROUP; k++) {
                const uint64_t a = s.a_matrix + 2 * (k % 4), b = s.b_matrix + 2 * (k % 4);
                if constexpr (operation == PIPE_WGMMA) wgmma_m64n128k16_f16(s.d, a, b, 1);
                if constexpr (operation == PIPE_WGMMA_REGISTERS) wgmma_m64n128k16_f16(s.d, s.a[0], b, 1);
                if constexpr (operation == PIPE_E4M3) wgmma_m64n128k32_e4m3(s.d, a, b, 1);
                if constexpr (operation == PIPE_E4M3_REGISTERS) wgmma_m64n128k32_e4m3(s.d, s.a[0], b, 1);
            }
            wgmma_commit_group();
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        }
    if constexpr (operation == PIPE_COPY)
        for (int group = 0; group < UNROLLED / 8; group++) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                cp_async_16(s.address, (const void *)(s.memory + s.copies % PIPE_WINDOW));
                s.copies += 512 * PIPE_MOST_WARPS;
            }
            cp_async_commit_group();
            cp_async_wait_group<3>();
        }
    if constexpr (operation == PIPE_COPY_CHAIN)
        TIMES(1, {
            cp_async_16(s.address, (const void *)(s.memory + s.copies % PIPE_WINDOW));
            s.copies += 512 * PIPE_MOST_WARPS;
            cp_async_commit_group();
            cp_async_wait_group<0>();
        });
    if constexpr (operation == PIPE_WGMMA_CHAIN || operation == PIPE_E4M3_CHAIN)
        TIMES(1, {
            wgmma_fence();
            if constexpr (operation == PIPE_WGMMA_CHAIN) wgmma_m64n128k16_f16(s.d, s.a_matrix, s.b_matrix, 1);
            if constexpr (operation == PIPE_E4M3_CHAIN) wgmma_m64n128k32_e4m3(s.d, s.a_matrix, s.b_matrix, 1);
            wgmma_commit_group();
            wgmma_wait_group<0>(s.d);
        });
    if constexpr (operation == PIPE_BARRIER) TIMES(1, bar_sync(1, (int)s.threads));
    if constexpr (operation == PIPE_MBARRIER)
        TIMES(1, {
            if (threadIdx.x % 32 == 0) mbarrier_arrive(s.mbarrier);
            while (!mbarrier_try_wait_parity(s.mbarrier, s.phase)) {
            }
            s.phase ^= 1;
        });
    if constexpr (operation == PIPE_ATOMIC_CHAIN)
        TIMES(1, asm volatile(
                     "{ .reg .b64 p; cvt.u64.u32 p, %0; add.u64 p, p, %1; atom.global.add.u32 %0, [p], 0; }" : "+r"(
                         s.copies) : "l"(s.memory) : "memory"));
}

__device__ bool is_done(const uint32_t *done) {
    uint32_t value;
    asm volatile("ld.relaxed.cta.shared.u32 %0, [%1];" : "=r"(value) : "r"(smem_address(done)) : "memory");
    return value;
}
/* One answer for the four warps of a warpgroup: wgmma without one of them is an illegal instruction. */
__device__ bool is_done_for_warpgroup(const uint32_t *done) {
    uint32_t value;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; barrier.cta.red.or.aligned.pred p, %2, 128, p;"
                 " selp.u32 %0, 1, 0, p; }"
                 : "=r"(value)
                 : "r"((uint32_t)is_done(done)), "r"(2 + threadIdx.x / 128)
                 : "memory");
    return value;
}

__device__ void begin(state &s, operands &smem, const pipe_job &job, bool companion) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int operation = companion ? job.companion : job.operation;
    const bool turned = operation == PIPE_LDSM_TRANS, bytes = is_e4m3(operation);
    for (int i = 0; i < 8; i++) s.x[i] = 1.0f + (float)(threadIdx.x + i) * 0x1p-12f;
    for (int i = 0; i < 8; i++) s.r[i] = random_bits(threadIdx.x * 8 + i);
    for (int i = 0; i < 32; i++)
        s.a[i / 4][i % 4] = bytes ? random_e4m3(threadIdx.x * 32 + i) : random_halves(threadIdx.x * 32 + i);
    for (int i = 0; i < 16; i++) s.b[i / 2][i % 2] = random_halves(threadIdx.x * 48 + i);
    for (int i = 0; i < 64; i++) s.d[i / 4][i % 4] = 0;
    s.c = 0.999f;
    s.address = smem_address(smem.copied[warp]) + lane * 16;
    for (int i = 0; i < 8; i++) s.row[i] = smem_address(turned ? (void *)smem.turned : (void *)smem.rows) + lane * 16;
    s.word = smem_address(smem.copied[warp]) + lane * 4;
    s.threads = (uint32_t)job.warps * 32;
    s.mbarrier = smem_address(&smem.mbarriers[warp]);
    s.phase = 0;
    s.a_matrix = wgmma_descriptor(smem_address(smem.a), 0);
    s.b_matrix = wgmma_descriptor(smem_address(smem.b), 0);
    s.memory = job.memory + (job.operation == PIPE_ATOMIC_CHAIN ? 0 : (uint64_t)blockIdx.x * PIPE_WINDOW + lane * 16);
    s.copies = job.operation == PIPE_ATOMIC_CHAIN ? 0 : warp * 512;
}

/* Executes rounds, or, as the companion, until the others are done. */
template <int operation>
__device__ void run(operands &smem, const pipe_job &job, bool companion, pipe_result *result, float *sum) {
    state s;
    begin(s, smem, job, companion);
    uint64_t rounds = 0;
    const uint64_t start = read_clock(), start_ns = read_timer();
    do {
#pragma unroll 1
        for (int i = 0; i < PIPE_ROUND / UNROLLED; i++) execute<operation>(s);
        rounds++;
    } while (companion ? !(is_stream(operation) ? is_done_for_warpgroup(&smem.done) : is_done(&smem.done))
                       : rounds < (uint64_t)job.rounds);
    if constexpr (is_stream(operation)) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if constexpr (operation == PIPE_COPY) cp_async_wait_group<0>();
    const uint64_t cycles = read_clock() - start, ns = read_timer() - start_ns;
    const int first = companion ? 32 * job.warps : 0;
    if ((int)threadIdx.x == first) {
        if (!companion) {
            asm volatile("st.relaxed.cta.shared.u32 [%0], 1;" ::"r"(smem_address(&smem.done)) : "memory");
            result->ns = ns;
        }
        result->cycles[companion] = cycles;
        result->count[companion] = rounds * PIPE_ROUND;
    }
    if (!companion && threadIdx.x % 32 == 0) result->ends[threadIdx.x / 32] = cycles;
    for (int i = 0; i < 8; i++) *sum += s.x[i] + (float)(s.r[i] ^ s.a[i][i % 4] ^ s.row[i] ^ s.copies);
    for (int i = 0; i < 16; i++) *sum += s.d[i][0] + s.d[i][1] + s.d[i][2] + s.d[i][3];
}

/* results: one per CTA. sums: a float for each thread, so that nothing is left out. */
extern "C" __global__ void __launch_bounds__(32 * PIPE_MOST_WARPS, 1)
    pipes(pipe_result *results, float *sums, const pipe_job job) {
    __shared__ alignas(1024) operands smem;
    for (int i = (int)threadIdx.x; i < (int)(sizeof smem.a + sizeof smem.b) / 4; i += (int)blockDim.x) {
        const uint32_t seed = blockIdx.x * 65536 + i;
        ((uint32_t *)smem.a)[i] = is_e4m3(job.operation) ? random_e4m3(seed) : random_halves(seed); /* b follows a */
    }
    for (int i = (int)threadIdx.x; i < (int)sizeof smem.copied / 4; i += (int)blockDim.x)
        ((uint32_t *)smem.copied)[i] = 0;
    for (int i = (int)threadIdx.x; i < 256; i += (int)blockDim.x) {
        const int row = i / 8, column = i % 8;
        if (i < 128) smem.rows[i] = smem_address(smem.rows) + i % 32 * 16;
        const int lane = column * 4 + row / 2;
        smem.turned[i] = row < 8 && row % 2 == 0 ? (uint16_t)(smem_address(smem.turned) + lane * 16) : 0;
    }
    if (threadIdx.x < PIPE_MOST_WARPS) mbarrier_init(smem_address(&smem.mbarriers[threadIdx.x]), 1);
    if (threadIdx.x == 0) {
        smem.done = 0;
        results[blockIdx.x] = {};
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const bool companion = (int)threadIdx.x >= 32 * job.warps;
    float sum = 0;
    switch (companion ? job.companion : job.operation) {
#define CASE(name, text)                                                                                               \
    case PIPE_##name:                                                                                                  \
        run<PIPE_##name>(smem, job, companion, &results[blockIdx.x], &sum);                                            \
        break;
        FL_PIPE_OPERATIONS(CASE)
#undef CASE
    }
    sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

/* One thread copies `copies` boxes of PIPE_BOX_ROWS rows of 256 bytes, up to `ahead` of them under way. After each it
 * waits for `pause` cycles and some, which do not count. */
extern "C" __global__ void pipes_copy(pipe_result *results, const __grid_constant__ tensor_map map, int copies,
                                      int ahead, int pause) {
    extern __shared__ __align__(1024) uint8_t stages[];
    __shared__ alignas(8) uint64_t mbarriers[PIPE_STAGES];
    for (int i = 0; i < PIPE_STAGES; i++) mbarrier_init(smem_address(&mbarriers[i]), 1);
    fence_mbarrier_init();
    fence_proxy_async();
    const int boxes = PIPE_WINDOW / PIPE_BOX_BYTES;
    uint64_t paused = 0;
    const uint64_t start = read_clock(), start_ns = read_timer();
    for (int i = 0; i < copies + ahead; i++) {
        if (i >= ahead) {
            const int old = i - ahead;
            while (!mbarrier_try_wait_parity(smem_address(&mbarriers[old % PIPE_STAGES]), old / PIPE_STAGES % 2)) {
            }
            if (pause) {
                const uint64_t there = read_clock(), more = (blockIdx.x * 37 + i * 61) % 1024;
                while (read_clock() < there + pause + more) {
                }
                paused += read_clock() - there;
            }
        }
        if (i < copies) {
            const uint32_t mbarrier = smem_address(&mbarriers[i % PIPE_STAGES]);
            const int row = (int)(blockIdx.x * boxes + i % boxes) * PIPE_BOX_ROWS;
            mbarrier_arrive_expect_tx(mbarrier, PIPE_BOX_BYTES);
            copy_tensor_to_smem(smem_address(stages) + i % PIPE_STAGES * PIPE_BOX_BYTES, map, mbarrier, row, 0, 0);
        }
    }
    results[blockIdx.x] = {{read_clock() - start - paused, 0}, {(uint64_t)copies, 0}, read_timer() - start_ns};
}

/* One thread: `count` loads through addresses that are `stride` bytes apart, written first. */
extern "C" __global__ void pipes_link(uint64_t *memory, uint64_t stride, uint64_t nodes) {
    const uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
    if (i < nodes) memory[i * (stride / 8)] = (uint64_t)memory + (i + 1) % nodes * stride;
}
extern "C" __global__ void pipes_chase(pipe_result *results, uint64_t memory, int loads) {
    uint64_t at = memory;
    const uint64_t start = read_clock(), start_ns = read_timer();
#pragma unroll 1
    for (int i = 0; i < loads; i++) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at)::"memory");
    const uint64_t cycles = read_clock() - start;
    results[0] = {{cycles + (at == 0), 0}, {(uint64_t)loads, 0}, read_timer() - start_ns};
}

extern "C" __global__ void pipes_empty() {}

#include "harness/device/pipes.cuh"
