/* backward_results.cuh - stores gradients to global memory: the fp32 accumulator of dQ, and rounded dQ, dK and dV.
 *
 *     add_dQ(sums, dQ);                                     64 columns, atomically
 *     store_rows<cfg>(args.dK, strides, seq_k, all, dK, softmax_scale);
 */
#ifndef FL_ATTENTION_BACKWARD_RESULTS_CUH
#define FL_ATTENTION_BACKWARD_RESULTS_CUH

#include "common/ptx_backward.cuh"
#include "kernels/attention/backward_products.cuh"
#include "kernels/attention/backward_schedule.cuh"

/* Add 64 columns of dQ to the accumulator of a Q block. Without the pragma, nvcc 13.0 keeps the loop rolled and stores
 * dQ in local memory. */
__device__ __forceinline__ void add_dQ(float *sums, const tiles<8> &dQ) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int tile = 0; tile < 8; tile++) red_add_v4(sums + ((warp * 8 + tile) * 32 + lane) * 4, dQ[tile]);
}

/* The first CTA in order initializes the accumulator with its partial result, and the last one reads it. */
__device__ __forceinline__ void store_sums(float *sums, const tiles<8> &dQ) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int tile = 0; tile < 8; tile++)
        *(float4 *)(sums + ((warp * 8 + tile) * 32 + lane) * 4) =
            make_float4(dQ[tile][0], dQ[tile][1], dQ[tile][2], dQ[tile][3]);
}
__device__ __forceinline__ void take_sums(tiles<8> &dQ, const float *sums) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int tile = 0; tile < 8; tile++) {
        const float4 sum = *(const float4 *)(sums + ((warp * 8 + tile) * 32 + lane) * 4);
        dQ[tile][0] += sum.x, dQ[tile][1] += sum.y, dQ[tile][2] += sum.z, dQ[tile][3] += sum.w;
    }
}

/* Write 64 columns of dQ for the queries of a block. */
template <backward_config cfg>
__device__ __forceinline__ void store_dQ(const backward_args &args, const work<cfg> &of, int head, int block,
                                         int column, const tiles<8> &dQ) {
    const tensor_strides &strides = args.Q_strides;
    const int lane = threadIdx.x % 32, own = block * cfg.B_r + threadIdx.x / 32 * 16 + lane / 4;
    int row = own;
    if constexpr (cfg.serves) row += of.seq.first_q;
    uint16_t *const first = (uint16_t *)args.dQ + sample_of<cfg>(of) * strides.batch + head * strides.head +
                            row * strides.seq + column + lane % 4 * 2;
    for (int half = 0; half < 2; half++)
        for (int tile = 0; tile < 8 && own + 8 * half < queries_of<cfg>(args, of.seq); tile++)
            *(uint32_t *)(first + 8 * half * strides.seq + 8 * tile) = round_pair<cfg.dtype>(
                args.softmax_scale * dQ[tile][2 * half], args.softmax_scale * dQ[tile][2 * half + 1]);
}

/* Write the warp's 16 keys of a gradient, times a factor: all columns, or with d_head 256 half of them. */
template <backward_config cfg>
__device__ __forceinline__ void store_rows(void *gmem, const tensor_strides &strides, int seq_k, const work<cfg> &of,
                                           const key_sums<cfg> &sums, float factor) {
    const int lane = threadIdx.x % 32, warp = (threadIdx.x - WARPGROUP) / 32;
    const int row = of.KV_block * cfg.B_c + warp % (cfg.B_c / 16) * 16 + lane / 4;
    const int column = (cfg.d_head == 256 ? warp / 4 * 128 : 0) + lane % 4 * 2;
    int in_tensor = row;
    if constexpr (cfg.serves) in_tensor += of.seq.first_k;
    const int64_t first =
        sample_of<cfg>(of) * strides.batch + of.KV_head * strides.head + in_tensor * strides.seq + column;
    for (int half = 0; half < 2; half++)
        for (int tile = 0; tile < (int)(sizeof sums / sizeof *sums) && row + 8 * half < seq_k; tile++)
            *(uint32_t *)((uint16_t *)gmem + first + 8 * half * strides.seq + 8 * tile) =
                round_pair<cfg.dtype>(factor * sums[tile][2 * half], factor * sums[tile][2 * half + 1]);
}

#endif
