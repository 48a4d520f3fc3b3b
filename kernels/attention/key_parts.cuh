/* key_parts.cuh - results of parts of a Q block's keys, and their combination.
 *
 *     store_key_part(args, tile, O, m, l, row, lane, first_column);     a consumer, instead of O and log-sum-exp
 *     combine_key_parts<cfg>(args);                                     the launch after that of all parts
 *
 * With few queries and many keys there are fewer Q blocks than multiprocessors. The keys of each are then split into
 * parts (schedule.cuh), whose results are stored in fp32 after the tickets. With O = sum of P V / l and the log-sum-exp
 * of each part, the result is the sum of 2^(lse_part - lse) * O_part (FlashDecoding, Dao et al. 2023). A second launch
 * computes it, because it needs all multiprocessors: the parts of one Q block may take 17 MB.
 */
#ifndef FL_ATTENTION_KEY_PARTS_CUH
#define FL_ATTENTION_KEY_PARTS_CUH

#include "common/attention_config.h"
#include "common/ptx_sm80.cuh"
#include "common/serving.h"
#include "kernels/attention/fragments.cuh"
#include "kernels/attention/schedule.cuh"
#include "kernels/attention/softmax.cuh"

/* Elements of a row of O, behind which is its log-sum-exp to base 2. Floats to the next row, and to the next part. */
template <attention_config cfg>
constexpr int O_columns = attention_d_head_v(&cfg);
template <attention_config cfg>
constexpr int part_row_floats = O_columns<cfg> + ATTENTION_PART_PADDING;
template <attention_config cfg>
__device__ __forceinline__ int64_t floats_of_part(const extended_args &args) {
    return (int64_t)args.batch * args.heads * args.seq_q * part_row_floats<cfg>;
}
/* A row of the first part. */
template <attention_config cfg>
__device__ __forceinline__ float *find_part_row(const extended_args &args, int sample, int head, int row) {
    const int64_t rows = ((int64_t)sample * args.heads + head) * args.seq_q + row;
    return (float *)(args.tickets + ATTENTION_PART_OFFSET) + rows * part_row_floats<cfg>;
}

/* Store the lane's rows of O, already divided by l, and their log-sum-exp. `row` is the first of the lane's two rows.
 * O begins at column number `first_column`. */
template <attention_config cfg, int n_tiles>
__device__ __forceinline__ void store_key_part(const extended_args &args, const part_tile &tile,
                                               const tiles<n_tiles> &O, const row_values &m, const row_values &l,
                                               int row, int lane, int first_column) {
    for (int half = 0; half < 2; half++) {
        if (row + 8 * half >= tile.seq.seq_q) continue;
        float *const out =
            find_part_row<cfg>(args, tile.sample, tile.head, row + 8 * half) + tile.part * floats_of_part<cfg>(args);
        for (int n = 0; n < n_tiles; n++)
            *(float2 *)(out + first_column + 8 * n + lane % 4 * 2) = make_float2(O[n][2 * half], O[n][2 * half + 1]);
        if (lane % 4 == 0 && first_column == 0) out[O_columns<cfg>] = lg2_approx(l[half]) - m[half];
    }
}

/* The largest log-sum-exp of a row's parts, and of its sink. All lanes of the warp have it. */
__device__ __forceinline__ float find_largest_lse(const float *lse, int64_t to_next, int parts, float sink) {
    float most = sink;
    for (int part = threadIdx.x % 32; part < parts; part += 32) most = fmaxf(most, lse[part * to_next]);
    for (int distance = 16; distance > 0; distance /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, distance));
    return most;
}

/* Add up a row's parts: `chunks` of 128 / sets columns, from `first` on, and the sum of their weights, relative to
 * `reference`. A lane has four columns of each chunk. The lanes are in `sets`, each with every so many parts, of which
 * `at_once` are loaded together, because each load is a round trip to the L2 cache. `most` is the last column that may
 * be read. */
template <int sets, int chunks, int at_once>
__device__ __forceinline__ void add_key_parts(float (&O)[chunks][4], float &sum, const float *first, int most,
                                              const float *lse, int64_t to_next, int parts, float reference) {
    constexpr int columns = 128 / sets, lanes = 32 / sets;
    const int set = threadIdx.x % 32 / lanes;
    for (int from = set; from < parts; from += sets * at_once) {
        float4 of_part[at_once][chunks];
        float of_lse[at_once];
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            const int64_t at = min(from + sets * i, parts - 1) * to_next;
            of_lse[i] = lse[at];
#pragma unroll
            for (int chunk = 0; chunk < chunks; chunk++)
                of_part[i][chunk] = *(const float4 *)(first + at + min(columns * chunk, most));
        }
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            const float factor = from + sets * i < parts ? ex2_approx(of_lse[i] - reference) : 0;
            sum += factor;
            for (int chunk = 0; chunk < chunks; chunk++) {
                const float4 &of = of_part[i][chunk];
                const float values[] = {of.x, of.y, of.z, of.w};
                for (int n = 0; n < 4; n++) O[chunk][n] = fmaf(factor, values[n], O[chunk][n]);
            }
        }
    }
    for (int distance = lanes; distance < 32; distance *= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, distance);
        for (int chunk = 0; chunk < chunks; chunk++)
            for (int n = 0; n < 4; n++) O[chunk][n] += __shfl_xor_sync(0xffffffff, O[chunk][n], distance);
    }
}

/* A warp adds up and stores `chunks` of 128 / sets columns of a row. */
template <attention_config cfg, int sets, int chunks, int at_once>
__device__ __forceinline__ void combine_key_parts_of_row(const extended_args &args, const sequence &seq, int sample,
                                                         int head, int row, int first_column, int parts) {
    constexpr int columns = 128 / sets, lanes = 32 / sets;
    const int lane = threadIdx.x % 32, column = first_column + lane % lanes * 4;
    const int64_t to_next = floats_of_part<cfg>(args);
    const float *const first = find_part_row<cfg>(args, sample, head, row), *const lse = first + O_columns<cfg>;
    const float sink = args.sinks ? 1.44269504f * args.sinks[head] : -INFINITY;
    const float most = find_largest_lse(lse, to_next, parts, sink);
    const float reference = most == -INFINITY ? 0 : most; /* where the row attends to no key */
    float sum = 0, O[chunks][4] = {};
    add_key_parts<sets, chunks, at_once>(O, sum, first + column, O_columns<cfg> - 4 - column, lse, to_next, parts,
                                         reference);
    sum += ex2_approx(sink - reference);
    const float inverse = sum == 0 ? 0 : 1 / sum;
    uint16_t *const out = (uint16_t *)args.O + seq.Q_sample * args.O_strides.batch + head * args.O_strides.head +
                          (seq.first_q + row) * args.O_strides.seq + column;
    for (int chunk = 0; chunk < chunks; chunk++)
        if (lane < lanes && column + columns * chunk < args.d_head_v)
            *(uint2 *)(out + columns * chunk) =
                make_uint2(round_pair<cfg.dtype>(inverse * O[chunk][0], inverse * O[chunk][1]),
                           round_pair<cfg.dtype>(inverse * O[chunk][2], inverse * O[chunk][3]));
    if (args.LSE && first_column == 0 && lane == 0)
        args.LSE[((int64_t)seq.Q_sample * args.heads + head) * rows_of_Q(args) + seq.first_q + row] =
            0.69314718f * (lg2_approx(sum) + reference);
}

/* A warp takes a row, or with fewer rows than warps a part of its columns, and with many parts few of them. */
template <attention_config cfg>
__device__ __forceinline__ void combine_key_parts(const extended_args &args) {
    constexpr int many_parts = 32, chunks = (O_columns<cfg> + 127) / 128;
    const int warps = gridDim.x * (blockDim.x / 32), blocks = (args.seq_k + cfg.B_c - 1) / cfg.B_c;
    const int rows = args.batch * args.heads * args.seq_q;
    const bool many = blocks * cfg.B_c > many_parts * args.split_keys, whole = !many && rows >= warps;
    const int of_warp = many ? 32 : whole ? 128 * chunks : 128, steps = (args.d_head_v + of_warp - 1) / of_warp;
    const int work = rows * steps;
    for (int n = (blockIdx.x * blockDim.x + threadIdx.x) / 32; n < work; n += warps) {
        const int column = n % steps * of_warp, row = n / steps % args.seq_q, heads = n / steps / args.seq_q;
        const int head = heads % args.heads, sample = heads / args.heads;
        const sequence seq = find_sequence(args, sample);
        const int parts = count_key_parts<cfg>(args, seq);
        if (row >= seq.seq_q || parts == 1) continue; /* the consumers have stored O */
        if (many)
            combine_key_parts_of_row<cfg, 4, 1, 8>(args, seq, sample, head, row, column, parts);
        else if (whole)
            combine_key_parts_of_row<cfg, 1, chunks, 4>(args, seq, sample, head, row, column, parts);
        else
            combine_key_parts_of_row<cfg, 4, 4, 2>(args, seq, sample, head, row, column, parts);
    }
}

#endif
