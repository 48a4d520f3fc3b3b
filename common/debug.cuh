/* debug.cuh - one-line hooks that dump what a kernel holds in registers, block by block.
 *
 *     dump_S<cfg>(args, block, S);
 *
 * Built with -DFA_DEBUG (make DUMP=1) a hook writes into args.debug, laid out as debug_layout.h says; else it is empty
 * and leaves no trace in the machine code. All lanes of a warp call a hook together. The arrays are accumulators of
 * mma.m16n8k16: array[i][n] is rows 16i to 16i + 15 of the warp and columns 8n to 8n + 7, and a lane holds columns
 * 2 * (lane % 4) and the next, first of row lane / 4, then of row lane / 4 + 8. A value per row is [i][0] and [i][1],
 * the same two rows, held by the four lanes of a quad.
 */
#ifndef FL_DEBUG_CUH
#define FL_DEBUG_CUH

#include "common/abi.h"
#include "common/attention_config.h"
#include "common/debug_layout.h"

#ifdef FA_DEBUG
constexpr bool debug_dumps = true;
#else
constexpr bool debug_dumps = false;
#endif

/* Keys of a sequence, by the type of a kernel's parameters. */
__device__ inline int64_t debug_keys(const forward_args &args) {
    return args.seq;
}
__device__ inline int64_t debug_keys(const attention_args &args) {
    return args.seq_k;
}

/* KV blocks of a sequence. */
template <auto cfg, typename kernel_args>
__device__ int debug_KV_blocks(const kernel_args &args) {
    return (debug_keys(args) + cfg.B_c - 1) / cfg.B_c;
}

/* The `block` argument of a hook in a persistent kernel: a build with hooks is launched with one CTA, which has all Q
 * blocks. They are numbered along the length, then heads, then batch. Blocks past the last one, which are all masked,
 * share its record. */
template <auto cfg>
__device__ __forceinline__ int debug_block(const attention_args &args, int Q_block, int block) {
    const int n_blocks = debug_KV_blocks<cfg>(args);
    return Q_block * n_blocks + min(block, n_blocks - 1);
}

/* The position that a hook dumps: a KV block by its position in the sequence, or as debug_block names it, and the
 * warp's first row in the Q block, which is -1 if warps own the rows in order. */
struct debug_position {
    int block, first_row;
    __device__ debug_position(int block, int first_row = -1) : block(block), first_row(first_row) {}
};

/* The record of this CTA and KV block. */
template <auto cfg, typename kernel_args>
__device__ float *debug_record_of(const kernel_args &args, const debug_position &at) {
    const int64_t cta = blockIdx.x + gridDim.x * (int64_t)(blockIdx.y + gridDim.y * (int64_t)blockIdx.z);
    const int64_t record = debug_record(cta, at.block, debug_KV_blocks<cfg>(args), cfg.B_r, cfg.B_c, cfg.d_head);
    return (float *)args.debug + record;
}

/* True if the first warpgroup of a CTA has no rows. */
__device__ constexpr bool has_producer(const KernelConfig &cfg) {
    return cfg.producer;
}
__device__ constexpr bool has_producer(const attention_config &cfg) {
    return cfg.instruction == WGMMA;
}

/* First row of this lane within the Q block: row lane / 4 of the warp's rows. */
template <auto cfg>
__device__ int debug_lane_row(const debug_position &at) {
    const int warp = threadIdx.x / 32 - (has_producer(cfg) ? 4 : 0);
    return (at.first_row < 0 ? warp * (cfg.B_r / cfg.n_warps) : at.first_row) + threadIdx.x % 32 / 4;
}

/* Write a (B_r, 8 * tiles) array of accumulators, row-major. */
template <auto cfg, int row_tiles, int tiles>
__device__ void debug_write_tiles(float *array, const debug_position &at, const float (&value)[row_tiles][tiles][4]) {
    const int row = debug_lane_row<cfg>(at), column = 2 * (threadIdx.x % 4);
    for (int i = 0; i < row_tiles; i++)
        for (int n = 0; n < tiles; n++)
            for (int e = 0; e < 4; e++)
                array[(row + 16 * i + e / 2 * 8) * (8 * tiles) + column + 8 * n + e % 2] = value[i][n][e];
}

/* Write one value a row. The four lanes of a quad write the same value to the same address. */
template <auto cfg, int row_tiles>
__device__ void debug_write_rows(float *array, const debug_position &at, const float (&value)[row_tiles][2],
                                 float factor) {
    for (int i = 0; i < row_tiles; i++)
        for (int half = 0; half < 2; half++)
            array[debug_lane_row<cfg>(at) + 16 * i + 8 * half] = value[i][half] * factor;
}

/* Raw scores of this block, after the mask: -infinity where a row does not attend to a key. */
template <auto cfg, int row_tiles, int tiles, typename kernel_args>
__device__ __forceinline__ void dump_S(const kernel_args &args, const debug_position &at,
                                       const float (&S)[row_tiles][tiles][4]) {
    if constexpr (debug_dumps) debug_write_tiles<cfg>(debug_record_of<cfg>(args, at) + debug_S(), at, S);
}

/* Row maxima after this block; a kernel that keeps maxima of S * scale passes that scale. */
template <auto cfg, int row_tiles, typename kernel_args>
__device__ __forceinline__ void dump_m(const kernel_args &args, const debug_position &at,
                                       const float (&m)[row_tiles][2], float scale) {
    if constexpr (debug_dumps)
        debug_write_rows<cfg>(debug_record_of<cfg>(args, at) + debug_m(cfg.B_r, cfg.B_c), at, m, 1.0f / scale);
}

/* Exponentials as the second matmul sees them: A fragments of mma.m16n8k16, columns 16k to 16k + 15 in P[i][k]. */
template <auto cfg, int row_tiles, int steps, typename kernel_args>
__device__ __forceinline__ void dump_P(const kernel_args &args, const debug_position &at,
                                       const uint32_t (&P)[row_tiles][steps][4]) {
    if constexpr (debug_dumps) {
        float wide[row_tiles][2 * steps][4];
        for (int i = 0; i < row_tiles; i++)
            for (int k = 0; k < steps; k++)
                for (int r = 0; r < 4; r++)
                    for (int e = 0; e < 2; e++) {
                        const uint32_t bits = P[i][k][r] >> (16 * e) & 0xffff;
                        float *value = &wide[i][2 * k + r / 2][r % 2 * 2 + e];
                        if constexpr (cfg.dtype == FP16)
                            asm("{ .reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h; }" : "=f"(*value) : "r"(bits));
                        else
                            *value = __uint_as_float(bits << 16);
                    }
        debug_write_tiles<cfg>(debug_record_of<cfg>(args, at) + debug_P(cfg.B_r, cfg.B_c), at, wide);
    }
}

/* Row sums after this block, from the lanes' partial sums. */
template <auto cfg, int row_tiles, typename kernel_args>
__device__ __forceinline__ void dump_l(const kernel_args &args, const debug_position &at,
                                       const float (&l)[row_tiles][2]) {
    if constexpr (debug_dumps) {
        float sum[row_tiles][2];
        for (int i = 0; i < row_tiles; i++)
            for (int half = 0; half < 2; half++) {
                sum[i][half] = l[i][half] + __shfl_xor_sync(0xffffffff, l[i][half], 1);
                sum[i][half] += __shfl_xor_sync(0xffffffff, sum[i][half], 2);
            }
        debug_write_rows<cfg>(debug_record_of<cfg>(args, at) + debug_l(cfg.B_r, cfg.B_c), at, sum, 1.0f);
    }
}

/* Output accumulator after this block. */
template <auto cfg, int row_tiles, int tiles, typename kernel_args>
__device__ __forceinline__ void dump_O(const kernel_args &args, const debug_position &at,
                                       const float (&O)[row_tiles][tiles][4]) {
    if constexpr (debug_dumps)
        debug_write_tiles<cfg>(debug_record_of<cfg>(args, at) + debug_O(cfg.B_r, cfg.B_c), at, O);
}

/* A warp of 16 rows may leave out the first index. */
template <auto cfg, int tiles, typename kernel_args>
__device__ __forceinline__ void dump_S(const kernel_args &args, const debug_position &at, const float (&S)[tiles][4]) {
    if constexpr (debug_dumps) dump_S<cfg>(args, at, reinterpret_cast<const float (&)[1][tiles][4]>(S));
}
template <auto cfg, typename kernel_args>
__device__ __forceinline__ void dump_m(const kernel_args &args, const debug_position &at, const float (&m)[2],
                                       float scale) {
    if constexpr (debug_dumps) dump_m<cfg>(args, at, reinterpret_cast<const float (&)[1][2]>(m), scale);
}
template <auto cfg, int steps, typename kernel_args>
__device__ __forceinline__ void dump_P(const kernel_args &args, const debug_position &at,
                                       const uint32_t (&P)[steps][4]) {
    if constexpr (debug_dumps) dump_P<cfg>(args, at, reinterpret_cast<const uint32_t (&)[1][steps][4]>(P));
}
template <auto cfg, typename kernel_args>
__device__ __forceinline__ void dump_l(const kernel_args &args, const debug_position &at, const float (&l)[2]) {
    if constexpr (debug_dumps) dump_l<cfg>(args, at, reinterpret_cast<const float (&)[1][2]>(l));
}
template <auto cfg, int tiles, typename kernel_args>
__device__ __forceinline__ void dump_O(const kernel_args &args, const debug_position &at, const float (&O)[tiles][4]) {
    if constexpr (debug_dumps) dump_O<cfg>(args, at, reinterpret_cast<const float (&)[1][tiles][4]>(O));
}

#endif
