/* fp8_epilogue.cuh - O and log-sum-exp to global memory, and O in fp32 in shared memory while it is added up.
 *
 *     flush_O<cfg>(O_addr, O, first);       every flush_blocks KV blocks
 *     finish_rows<cfg>(args, maps, O_addr, O, row, first_row, here, flushed);
 */
#ifndef FL_ATTENTION_FP8_EPILOGUE_CUH
#define FL_ATTENTION_FP8_EPILOGUE_CUH

#include "common/ptx_fp8.cuh"
#include "kernels/attention/fp8_scales.cuh"
#include "kernels/attention/fp8_softmax.cuh"

/* ---- O in fp32: each lane has 16 bytes of a tile, next to those of the lanes before it ---- */

/* Add O to the warp's accumulator in shared memory; the first time, store it. */
template <fp8_config cfg>
__device__ __forceinline__ void flush_O(uint32_t O_addr, const sums_of_V<cfg> &O, bool first) {
    const uint32_t own = O_addr + threadIdx.x % 32 * 16;
#pragma unroll
    for (int tile = 0; tile < cfg.d_head / 8; tile++) {
        float kept[4] = {};
        if (!first) load_floats(own + 512 * tile, kept);
        for (int i = 0; i < 4; i++) kept[i] += O[tile][i];
        store_floats(own + 512 * tile, kept);
    }
}

template <fp8_config cfg>
__device__ __forceinline__ void scale_flushed(uint32_t O_addr, const float (&factor)[2]) {
    const uint32_t own = O_addr + threadIdx.x % 32 * 16;
#pragma unroll 1
    for (int tile = 0; tile < cfg.d_head / 8; tile++) {
        float kept[4];
        load_floats(own + 512 * tile, kept);
        for (int i = 0; i < 4; i++) kept[i] *= factor[i / 2];
        store_floats(own + 512 * tile, kept);
    }
}

template <fp8_config cfg>
__device__ __forceinline__ void add_flushed(sums_of_V<cfg> &O, uint32_t O_addr) {
    const uint32_t own = O_addr + threadIdx.x % 32 * 16;
#pragma unroll
    for (int tile = 0; tile < cfg.d_head / 8; tile++) {
        float kept[4];
        load_floats(own + 512 * tile, kept);
        for (int i = 0; i < 4; i++) O[tile][i] += kept[i];
    }
}

/* ---- results ---- */

/* TMA has read what the warp stored before. */
__device__ __forceinline__ void wait_for_store() {
    if (threadIdx.x % 32 == 0) bulk_wait_group_read<0>();
    __syncwarp();
}

/* The warp's 16 rows: through its own part of shared memory, tiles of 64 elements, to the tensor. Lane 4g + q has
 * columns 4q ... 4q + 3 of rows g and g + 8: the even ones in the first of two tiles. Stores of two rows meet in the
 * banks: twice the least wavefronts, once in a Q block. */
template <fp8_config cfg>
__device__ __forceinline__ void store_O(const tensor_maps &maps, uint32_t O_addr, const sums_of_V<cfg> &O,
                                        const float (&factor)[2], int first_row, int head, int sample) {
    const int lane = threadIdx.x % 32, q = lane % 4;
    for (int u = 0; u < cfg.d_head / 16; u++)
        for (int half = 0; half < 2; half++) {
            const float (&even)[4] = O[2 * u], (&odd)[4] = O[2 * u + 1];
            const int row = lane / 4 + 8 * half, chunk = 2 * u + q / 2;
            const uint32_t tile_row = O_addr + chunk / 8 * 16 * TILE_ROW + row * TILE_ROW;
            store_pair(tile_row + (chunk % 8 ^ row % 8) * 16 + q % 2 * 8,
                       round_pair<cfg.dtype>(even[2 * half] * factor[half], odd[2 * half] * factor[half]),
                       round_pair<cfg.dtype>(even[2 * half + 1] * factor[half], odd[2 * half + 1] * factor[half]));
        }
    fence_proxy_async(); /* make this thread's stores visible to TMA */
    __syncwarp();        /* all lanes have stored */
    if (lane == 0) {
        copy_smem_to_tensor(maps.O, O_addr, first_row, head, sample);
        bulk_commit_group();
    }
}

/* ---- O in global memory ---- */

/* Number of the sequence's rows, and the first of them in the tensor. */
__device__ __forceinline__ int rows_of(const fp8_args &args, const work_tile &) {
    return args.seq_q;
}
__device__ __forceinline__ int rows_of(const serving_args &, const varlen_tile &here) {
    return here.seq.seq_q;
}
__device__ __forceinline__ Q_origin find_O_origin(const work_tile &here) {
    return {0, here.sample};
}
__device__ __forceinline__ Q_origin find_O_origin(const varlen_tile &here) {
    return {here.seq.first_q, here.seq.Q_sample};
}

/* True if O is e4m3, and the factor of its elements then. */
__device__ __forceinline__ bool has_e4m3_O(const fp8_args &) {
    return false;
}
__device__ __forceinline__ bool has_e4m3_O(const serving_args &args) {
    return args.O_e4m3;
}
__device__ __forceinline__ float find_e4m3_factor(const fp8_args &, const work_tile &) {
    return 1;
}
__device__ __forceinline__ float find_e4m3_factor(const serving_args &args, const varlen_tile &here) {
    return args.O_e4m3 && args.O_scales ? 1 / args.O_scales[here.head] : 1;
}

/* Offset of the lane's first element of a row in O. Four lanes have 16 columns. */
__device__ __forceinline__ int64_t find_O_offset(const auto &args, const auto &here, int row) {
    const Q_origin of_O = find_O_origin(here);
    return of_O.sample * args.O_strides.batch + here.head * args.O_strides.head +
           (of_O.row + row) * args.O_strides.seq + 4 * (threadIdx.x % 4);
}

/* Store the lane's four of 16 columns, tiles 2u and 2u + 1, of its row g (half 0) or g + 8. */
template <fp8_config cfg>
__device__ __forceinline__ void store_columns(const auto &args, const sums_of_V<cfg> &O, int u, int half,
                                              const float (&factor)[2], float of_head, int64_t at) {
    const float (&even)[4] = O[2 * u], (&odd)[4] = O[2 * u + 1];
    const float x = even[2 * half] * factor[half], y = odd[2 * half] * factor[half],
                z = even[2 * half + 1] * factor[half], w = odd[2 * half + 1] * factor[half];
    if (has_e4m3_O(args))
        *(uint32_t *)((uint8_t *)args.O + at + 16 * u) = cvt_e4m3x4(x * of_head, y * of_head, z * of_head, w * of_head);
    else
        *(uint2 *)((uint16_t *)args.O + at + 16 * u) = {round_pair<cfg.dtype>(x, y), round_pair<cfg.dtype>(z, w)};
}

/* Store without TMA: each lane writes its elements of its rows, in e4m3 after a division by the scale of the head. */
template <fp8_config cfg>
__device__ __forceinline__ void store_own_rows(const serving_args &args, const sums_of_V<cfg> &O,
                                               const float (&factor)[2], int first_row, const varlen_tile &here) {
    const float of_head = find_e4m3_factor(args, here);
    for (int half = 0; half < 2; half++) {
        const int row = first_row + threadIdx.x % 32 / 4 + 8 * half;
        if (row >= rows_of(args, here)) continue;
        const int64_t at = find_O_offset(args, here, row);
        for (int u = 0; u < cfg.d_head / 16; u++) store_columns<cfg>(args, O, u, half, factor, of_head, at);
    }
}

/* The first row of log-sum-exp of a head. */
__device__ __forceinline__ int64_t first_LSE(const fp8_args &args, const work_tile &here) {
    return ((int64_t)here.sample * args.heads + here.head) * args.seq_q;
}
__device__ __forceinline__ int64_t first_LSE(const serving_args &args, const varlen_tile &here) {
    return ((int64_t)here.seq.Q_sample * args.heads + here.head) * rows_of_Q(args) + here.seq.first_q;
}

__device__ __forceinline__ void store_LSE(const auto &args, const row_state &row, int first_row, const auto &here) {
    const int lane = threadIdx.x % 32;
    float *const LSE = args.LSE + first_LSE(args, here) + first_row + lane / 4;
    if (lane % 4 == 0)
        for (int half = 0; half < 2; half++)
            if (first_row + lane / 4 + 8 * half < rows_of(args, here))
                LSE[8 * half] = 0.69314718f * (row.m[half] + lg2_approx(row.l[half]));
}

/* Add up the four lanes' parts of l; `factor` is what O is multiplied by. */
__device__ __forceinline__ void find_O_factors(float (&factor)[2], row_state &row, float V_descale) {
    for (int half = 0; half < 2; half++) {
        row.l[half] += __shfl_xor_sync(0xffffffff, row.l[half], 1);
        row.l[half] += __shfl_xor_sync(0xffffffff, row.l[half], 2);
        factor[half] = row.l[half] == 0 ? 0 : V_descale / row.l[half];
    }
}

template <fp8_config cfg>
__device__ __forceinline__ void finish_rows(const args_for<cfg> &args, const tensor_maps &maps, uint32_t O_addr,
                                            sums_of_V<cfg> &O, row_state &row, int first_row, const tile_for<cfg> &here,
                                            bool flushed) {
    float factor[2];
    const float V_descale = find_V_descale(args, here);
    if (flushed) {
        add_flushed<cfg>(O, O_addr);
        __syncwarp(); /* all lanes have read */
    } else {
        wait_for_store();
    }
    find_O_factors(factor, row, V_descale);
    if constexpr (cfg.serves) {
        if (args.O_e4m3 || first_row + 16 > here.seq.seq_q)
            store_own_rows<cfg>(args, O, factor, first_row, here);
        else
            store_O<cfg>(maps, O_addr, O, factor, here.seq.first_q + first_row, here.head, here.seq.Q_sample);
    } else
        store_O<cfg>(maps, O_addr, O, factor, first_row, here.head, here.sample);
    if (args.LSE) store_LSE(args, row, first_row, here);
}

#endif
