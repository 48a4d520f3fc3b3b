/* parts.cuh - partial results of a row, each over some of its keys, and their combination.
 *
 *     store_part(parts, slot, row, lane, sum);
 *     const row_part<n> whole = combine_parts<n>(parts, slots, row, lane);
 *     store_row<FP16>(args, whole, rows, query, head, sample, lane);
 *
 * A warp holds a row's d_head columns, n = d_head / 32 in each lane. With O = sum of P V / l and the log-sum-exp of the
 * keys of each part, the result is O = sum of 2^(lse_part - lse) * O_part (FlashDecoding, Dao et al. 2023).
 */
#ifndef FL_ATTENTION_PARTS_CUH
#define FL_ATTENTION_PARTS_CUH

#include "common/abi.h"
#include "common/decode_config.h"
#include "common/ptx_cache.cuh"
#include "kernels/attention/fragments.cuh"

/* Columns n * lane and the n - 1 next of O, and the base-2 logarithm of the sum of exponentials, -inf without a key. */
template <int n>
struct row_part {
    float O[n], lse;
};

/* Sum of rows that are multiplied by exponentials relative to m: the state of a combination. */
template <int n>
struct row_sum {
    float O[n] = {}, l = 0;

    __device__ __forceinline__ void add(const float (&row)[n], float l_of_row, float factor) {
        l = fmaf(factor, l_of_row, l);
        for (int i = 0; i < n; i++) O[i] = fmaf(factor, row[i], O[i]);
    }
    /* m is minus the maximum that l and O are relative to, as in softmax.cuh. */
    __device__ __forceinline__ row_part<n> result(float m) const {
        const float inverse = l == 0 ? 0 : 1 / l; /* 0 where the row attends to no key */
        row_part<n> whole;
        whole.lse = lg2_approx(l) - m;
        for (int i = 0; i < n; i++) whole.O[i] = O[i] * inverse;
        return whole;
    }
};

/* The workspace that follows attention_args.tickets (common/decode_config.h): two slots for each CTA, because its range
 * begins and ends within a row block, or one for each part if split_keys fixes their size. */
struct part_slots {
    int *arrived; /* number of CTAs that have stored their part, in the slot of the first of them */
    float *lse, *O;
    int rows;
};

template <decode_config cfg>
__device__ __forceinline__ part_slots find_slots(const attention_args &args, int64_t slots, int all_rows) {
    const int rows = min(cfg.B_r, all_rows);
    float *const O = (float *)(args.tickets + DECODE_COUNTERS);
    return {args.tickets, O + slots * rows * cfg.d_head, O, rows};
}

template <int n>
__device__ __forceinline__ void store_part(const part_slots &slots, int64_t slot, int row, int lane,
                                           const row_part<n> &part) {
    float *const O = slots.O + (slot * slots.rows + row) * (32 * n) + n * lane;
    for (int i = 0; i < n; i++) O[i] = part.O[i];
    if (lane == 0) slots.lse[slot * slots.rows + row] = part.lse;
}

/* The slots of a row block's parts in the order of its keys, `step` apart: the last slot of the CTA that begins it,
 * then the first slot of each following CTA. */
struct slot_range {
    int64_t first, step;
    int parts, less;
    __device__ __forceinline__ int64_t slot(int part) const { return first + part * step - (part > 0 ? less : 0); }
};

/* Add up a row's parts in the order of their keys. Several loads are in flight at a time, because a combination takes
 * as long as its round trips to the L2 cache. */
template <int n>
__device__ __forceinline__ row_part<n> combine_parts(const part_slots &slots, const slot_range &range, int row,
                                                     int lane) {
    constexpr int at_once = 16;
    row_sum<n> sum;
    float m = 0x1p127f;
    for (int first = 0; first < range.parts; first += at_once) {
        float lse[at_once][1], O[at_once][n], m_new = m;
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            const int64_t at = range.slot(min(first + i, range.parts - 1)) * slots.rows + row;
            load_past_L1(lse[i], slots.lse + at);
            load_past_L1(O[i], slots.O + at * (32 * n) + n * lane);
        }
#pragma unroll
        for (int i = 0; i < at_once; i++) m_new = fminf(m_new, -lse[i][0]);
        const float factor = ex2_approx(m_new - m);
        sum.l *= factor;
        for (int i = 0; i < n; i++) sum.O[i] *= factor;
        m = m_new;
#pragma unroll
        for (int i = 0; i < at_once; i++)
            if (first + i < range.parts) sum.add(O[i], 1, ex2_approx(lse[i][0] + m));
    }
    return sum.result(m);
}

/* ---- parts of a fixed size: whoever adds them up, the bits are the same ---- */

/* Factors of O in the sum of the parts so far, `a`, and the next one, and its base-2 logarithm. The functions __f..._rn
 * keep the compiler from fusing operations in one caller alone. A part without keys leaves the sum as it is. */
struct part_factors {
    float a, b, lse;
    bool has_b;

    __device__ __forceinline__ part_factors(float lse_a, float lse_b) {
        const float most = fmaxf(lse_a, lse_b);
        const float of_a = ex2_approx(__fsub_rn(lse_a, most)), of_b = ex2_approx(__fsub_rn(lse_b, most));
        const float sum = __fadd_rn(of_a, of_b), inverse = __fdividef(1, sum);
        a = __fmul_rn(of_a, inverse), b = __fmul_rn(of_b, inverse), has_b = lse_b != -INFINITY;
        lse = has_b ? __fadd_rn(most, lg2_approx(sum)) : lse_a;
    }
    __device__ __forceinline__ float add(float O_a, float O_b) const {
        return has_b ? __fmaf_rn(O_b, b, __fmul_rn(O_a, a)) : O_a;
    }
};

template <int n>
__device__ __forceinline__ void add_part(row_part<n> &sum, const row_part<n> &next) {
    const part_factors factors(sum.lse, next.lse);
    for (int i = 0; i < n; i++) sum.O[i] = factors.add(sum.O[i], next.O[i]);
    sum.lse = factors.lse;
}

template <int n>
__device__ __forceinline__ row_part<n> load_part(const part_slots &slots, int64_t slot, int row, int lane) {
    const int64_t at = slot * slots.rows + row;
    row_part<n> part;
    float lse[1];
    load_past_L1(lse, slots.lse + at), load_past_L1(part.O, slots.O + at * (32 * n) + n * lane);
    part.lse = lse[0];
    return part;
}

/* Sum of all parts of a row. The CTA that has the first of them has added up its own: the slots of the others have a
 * log-sum-exp of -inf, and O is not used. */
template <int n>
__device__ __forceinline__ row_part<n> add_parts_in_order(const part_slots &slots, const slot_range &range, int row,
                                                          int lane) {
    constexpr int at_once = 8;
    row_part<n> sum = load_part<n>(slots, range.slot(0), row, lane);
    for (int first = 1; first < range.parts; first += at_once) {
        row_part<n> parts[at_once];
#pragma unroll
        for (int i = 0; i < at_once; i++)
            parts[i] = load_part<n>(slots, range.slot(min(first + i, range.parts - 1)), row, lane);
#pragma unroll
        for (int i = 0; i < at_once; i++)
            if (first + i < range.parts) add_part(sum, parts[i]);
    }
    return sum;
}

/* Addresses of a row of O and of its log-sum-exp, which is stored if requested. A batch entry has `rows` queries. */
__device__ __forceinline__ uint16_t *find_O_row(const attention_args &args, int query, int head, int sample) {
    return (uint16_t *)args.O + sample * args.O_strides.batch + head * args.O_strides.head + query * args.O_strides.seq;
}
__device__ __forceinline__ void store_lse(const attention_args &args, float lse, int rows, int query, int head,
                                          int sample) {
    if (args.LSE) args.LSE[((int64_t)sample * args.heads + head) * rows + query] = 0.69314718f * lse;
}

/* Round O and store an entire row, and its log-sum-exp if requested. */
template <enum dtype type, int n>
__device__ __forceinline__ void store_row(const attention_args &args, const row_part<n> &whole, int rows, int query,
                                          int head, int sample, int lane) {
    uint16_t *const O = (uint16_t *)args.O + sample * args.O_strides.batch + head * args.O_strides.head +
                        query * args.O_strides.seq + n * lane;
    uint32_t pairs[n / 2];
    for (int i = 0; i < n / 2; i++) pairs[i] = round_pair<type>(whole.O[2 * i], whole.O[2 * i + 1]);
    if constexpr (n == 4)
        *(uint2 *)O = make_uint2(pairs[0], pairs[1]);
    else
        *(uint32_t *)O = pairs[0];
    if (args.LSE && lane == 0) args.LSE[((int64_t)sample * args.heads + head) * rows + query] = 0.69314718f * whole.lse;
}

#endif
