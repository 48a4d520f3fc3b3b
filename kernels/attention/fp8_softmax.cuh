/* fp8_softmax.cuh - from scores to P in e4m3, with m and l of each row.
 *
 *     raise_m(S, sum, m, factor, scale);             P with the maximum of all blocks so far
 *     take_exponentials(S, sum, m, scale);           P with the m of an earlier block
 *     if (may_be_too_large(sum)) lower_P<cfg>(...);  P again between 0 and 8
 *     round_P<cfg>(P, S);
 *
 * Elements 0 and 1 of a tile belong to the first of a lane's two rows, g and g + 8.
 */
#ifndef FL_ATTENTION_FP8_SOFTMAX_CUH
#define FL_ATTENTION_FP8_SOFTMAX_CUH

#include "common/ptx_fp8.cuh"
#include "kernels/attention/fp8_products.cuh"
#include "kernels/attention/mask.cuh"

/* m: base-2 logarithm of the score that maps to P = 1, 2^3 times less than the maximum; l: the lane's part of the sum.
 */
struct row_state {
    float m[2], l[2];
};

enum { P_BITS = 3, P_LARGEST = 448 }; /* P begins at 2^3 */

/* Mask the keys of the block that the warp's 16 rows do not attend to. */
template <int tiles>
__device__ __forceinline__ void mask_keys(const auto &rows, float (&S)[tiles][4], int first_key, int first_row) {
    if (first_key + 8 * tiles <= seen_keys(rows, first_row + 1)) return;
    const int lane = threadIdx.x % 32, own = lane % 4 * 2;
    for (int half = 0; half < 2; half++) {
        const int end = seen_keys(rows, first_row + lane / 4 + 8 * half + 1) - first_key - own;
        for (int tile = 0; tile < tiles; tile++)
            for (int i = 0; i < 2; i++)
                if (8 * tile + i >= end) S[tile][2 * half + i] = -INFINITY;
    }
}

/* The largest score of each row; all four lanes of it get it. */
template <int tiles>
__device__ __forceinline__ void find_maxima(float (&most)[2], const float (&S)[tiles][4]) {
    for (int half = 0; half < 2; half++) {
        most[half] = -INFINITY;
        for (int tile = 0; tile < tiles; tile++)
            most[half] = fmaxf(most[half], fmaxf(S[tile][2 * half], S[tile][2 * half + 1]));
        most[half] = fmaxf(most[half], __shfl_xor_sync(0xffffffff, most[half], 1));
        most[half] = fmaxf(most[half], __shfl_xor_sync(0xffffffff, most[half], 2));
    }
}

/* Turn S into P in place and add up the lane's sums: one span of exponentials is computed while the span before is
 * added up. */
template <int tiles>
__device__ __forceinline__ void take_exponentials(float (&S)[tiles][4], float (&sum)[2], const float (&m)[2],
                                                  float exponent_scale) {
    constexpr int span = 4;
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int first = 0; first <= tiles; first += span) {
#pragma unroll
        for (int tile = first; tile < min(tiles, first + span); tile++)
            for (int i = 0; i < 4; i++) S[tile][i] = ex2_approx(S[tile][i] * exponent_scale - m[i / 2]);
#pragma unroll
        for (int tile = max(0, first - span); tile < first; tile += 2)
            for (int half = 0; half < 2; half++)
                sum[half] +=
                    S[tile][2 * half] + S[tile][2 * half + 1] + (S[tile + 1][2 * half] + S[tile + 1][2 * half + 1]);
    }
}

/* Turn S into P with the maximum of all blocks up to this one, which maps to 2^bits. `factor` is what is left of l and
 * O, which have the one of the blocks before. A row that has attended to no key has no maximum, and its scores of
 * -infinity become 0 with any.
 */
template <int bits = P_BITS, int tiles>
__device__ __forceinline__ void raise_m(float (&S)[tiles][4], float (&sum)[2], float (&m)[2], float (&factor)[2],
                                        float exponent_scale) {
    float most[2], finite[2];
    find_maxima(most, S);
    for (int half = 0; half < 2; half++) {
        const float before = m[half];
        m[half] = fmaxf(before, most[half] * exponent_scale - bits);
        finite[half] = m[half] == -INFINITY ? 0 : m[half];
        factor[half] = ex2_approx(before - finite[half]);
    }
    take_exponentials(S, sum, finite, exponent_scale);
}

/* True if a P of the warp may exceed the range of e4m3, judging by the sums. All lanes return the same. Sums of numbers
 * up to 2^3 are smaller. */
__device__ __forceinline__ bool may_be_too_large(const float (&sum)[2]) {
    return __any_sync(0xffffffff, !(sum[0] < P_LARGEST && sum[1] < P_LARGEST)); /* NaN is not */
}

/* P so that its largest is at most 2^3 again; `factor` is for l and O. A NaN stays one. Rows of other sequences are not
 * changed. */
template <fp8_config cfg>
__device__ __forceinline__ void lower_P(scores<cfg> &P, float (&sum)[2], float (&m)[2], float (&factor)[2],
                                        float exponent_scale, const auto &keep_own, const auto &find_S_again) {
    float most[2];
    find_maxima(most, P);
    keep_own(most);
    if (__any_sync(0xffffffff, most[0] == INFINITY || most[1] == INFINITY)) {
        find_S_again();
        raise_m(P, sum, m, factor, exponent_scale);
        return;
    }
    for (int half = 0; half < 2; half++) {
        const float rise = fmaxf(lg2_approx(most[half]) - P_BITS, 0);
        factor[half] = ex2_approx(-rise);
        m[half] += rise;
        sum[half] *= factor[half];
        for (int tile = 0; tile < cfg.B_c / 8; tile++)
            for (int i = 2 * half; i < 2 * half + 2; i++) P[tile][i] *= factor[half];
    }
}

/* The lane's pairs of two tiles of 8 keys are its four bytes of 16 keys. */
template <fp8_config cfg>
__device__ __forceinline__ void round_P(weights<cfg> &P, const scores<cfg> &S) {
    for (int chunk = 0; chunk < cfg.B_c / 16; chunk++)
        for (int half = 0; half < 2; half++) {
            const float (&first)[4] = S[2 * chunk], (&second)[4] = S[2 * chunk + 1];
            P[chunk / 2][chunk % 2 * 2 + half] =
                cvt_e4m3x4(first[2 * half], first[2 * half + 1], second[2 * half], second[2 * half + 1]);
        }
}

/* The lane's sums of rounded P: pairs in fp16, of up to 32 numbers up to 448. */
template <fp8_config cfg>
__device__ __forceinline__ void sum_rounded(float (&sum)[2], const weights<cfg> &P) {
    for (int half = 0; half < 2; half++) {
        uint32_t pair = 0;
        for (int chunk = 0; chunk < cfg.B_c / 16; chunk++) {
            const uint32_t four = P[chunk / 2][chunk % 2 * 2 + half];
            const uint32_t two = add_f16x2(cvt_f16x2_e4m3x2(four), cvt_f16x2_e4m3x2(four >> 16));
            pair = chunk ? add_f16x2(pair, two) : two;
        }
        sum[half] = cvt_f32_f16((uint16_t)pair) + cvt_f32_f16((uint16_t)(pair >> 16));
    }
}

template <fp8_config cfg>
__device__ __forceinline__ void scale_O(sums_of_V<cfg> &O, const float (&factor)[2]) {
#pragma unroll
    for (int tile = 0; tile < cfg.d_head / 8; tile++)
        for (int i = 0; i < 4; i++) O[tile][i] *= factor[i / 2];
}

#endif
