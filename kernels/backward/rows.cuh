/* rows.cuh - the two small kernels of a backward pass, the same in all versions.
 *
 *     row_sums   before: delta, the sum of dO ∘ O for each query row; with dQ_sums it sets the sums of dQ to 0
 *     round_dQ   after, with dQ_sums: dQ = scale * sums, rounded to 16 bits
 *
 * A row is d_head / 8 chunks of 16 bytes, each handled by one of as many neighboring lanes. Grid (seq / rows of a CTA,
 * heads, batch), 128 threads (common/backward.h).
 */
#ifndef FL_BACKWARD_ROWS_CUH
#define FL_BACKWARD_ROWS_CUH

#include "common/backward.h"
#include "common/ptx_sm80.cuh"

/* Two elements as floats, and two floats as a pair of elements, rounded to nearest even. */
template <backward_config cfg>
__device__ __forceinline__ void widen_pair(uint32_t pair, float &low, float &high) {
    low = cfg.dtype == FP16 ? cvt_f32_f16((uint16_t)pair) : __uint_as_float(pair << 16);
    high = cfg.dtype == FP16 ? cvt_f32_f16((uint16_t)(pair >> 16)) : __uint_as_float(pair & 0xffff0000);
}
template <backward_config cfg>
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
    return cfg.dtype == FP16 ? cvt_f16x2(low, high) : cvt_bf16x2(low, high);
}

/* The row and chunk of a thread, and where they are; row is -1 past the last. */
template <backward_config cfg>
struct row_chunk {
    static constexpr int lanes = cfg.d_head / 8;
    int row, chunk;
    int64_t number; /* of the row among the rows of all heads */

    __device__ __forceinline__ row_chunk(const backward_args &args) {
        const int first = blockIdx.x * (BACKWARD_SMALL_THREADS / lanes) + threadIdx.x / lanes;
        row = first < args.seq_q ? first : -1;
        chunk = threadIdx.x % lanes;
        number = ((int64_t)blockIdx.z * args.heads + blockIdx.y) * args.seq_q + row;
    }
    /* Offset in elements in a tensor with these strides. */
    __device__ __forceinline__ int64_t offset(const tensor_strides &strides) const {
        return blockIdx.z * strides.batch + row * strides.seq + blockIdx.y * strides.head + 8 * chunk;
    }
};

template <backward_config cfg>
__global__ void __launch_bounds__(BACKWARD_SMALL_THREADS) row_sums(const __grid_constant__ backward_args args) {
    const row_chunk<cfg> own(args);
    float sum = 0;
    if (own.row >= 0) {
        uint32_t O[4], dO[4];
        ld_global_v4(O, (const uint16_t *)args.O + own.offset(args.O_strides));
        ld_global_v4(dO, (const uint16_t *)args.dO + own.offset(args.O_strides));
        for (int i = 0; i < 4; i++) {
            float a, b, c, d;
            widen_pair<cfg>(O[i], a, b);
            widen_pair<cfg>(dO[i], c, d);
            sum += a * c + b * d;
        }
    }
    for (int distance = own.lanes / 2; distance; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
    if (own.row < 0) return;
    if (own.chunk == 0) args.delta[own.number] = sum;
    if constexpr (cfg.dQ_sums) {
        const uint32_t zeros[4] = {};
        float *const sums = args.sums + own.number * cfg.d_head;
        for (int half = 0; half < 2; half++) st_global_v4(sums + (half * own.lanes + own.chunk) * 4, zeros);
    }
}

template <backward_config cfg>
__global__ void __launch_bounds__(BACKWARD_SMALL_THREADS) round_dQ(const __grid_constant__ backward_args args) {
    const row_chunk<cfg> own(args);
    if (own.row < 0) return;
    const float *const sums = args.sums + own.number * cfg.d_head + 8 * own.chunk;
    uint32_t pairs[4];
    for (int i = 0; i < 4; i++)
        pairs[i] = round_pair<cfg>(args.softmax_scale * sums[2 * i], args.softmax_scale * sums[2 * i + 1]);
    st_global_v4((uint16_t *)args.dQ + own.offset(args.Q_strides), pairs);
}

#endif
