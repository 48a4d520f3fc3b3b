/* debug_layout.h - where a kernel built with -DFA_DEBUG writes its dumps and where the tools read them.
 *
 *     const float *S = dump + debug_record(cta, block, n_blocks, B_r, B_c, d_head) + debug_S();
 *
 * The buffer is an array of floats: for every CTA (linear index x + grid_x * (y + grid_y * z)) and every KV block (its
 * position in the sequence, whatever the order of the loop) one record of five row-major arrays, as they are after that
 * block:
 *     S[B_r][B_c]     raw scores Q.K^T, before any scaling; -infinity where a mask hides a key
 *     m[B_r]          largest raw score of the row in the blocks seen so far
 *     P[B_r][B_c]     exponentials, rounded to 16 bits and widened again
 *     l[B_r]          sum of the row's exponentials so far, relative to m
 *     O[B_r][d_head]  output accumulator, not yet divided by l
 */
#ifndef FL_DEBUG_LAYOUT_H
#define FL_DEBUG_LAYOUT_H

#include <stdint.h>

#if defined(__CUDACC__)
#define FL_DEBUG_FN __host__ __device__ constexpr
#elif defined(__cplusplus)
#define FL_DEBUG_FN constexpr
#else
#define FL_DEBUG_FN static inline
#endif

/* Offsets of the five arrays within a record, in floats. */
FL_DEBUG_FN int64_t debug_S(void) {
    return 0;
}
FL_DEBUG_FN int64_t debug_m(int64_t B_r, int64_t B_c) {
    return debug_S() + B_r * B_c;
}
FL_DEBUG_FN int64_t debug_P(int64_t B_r, int64_t B_c) {
    return debug_m(B_r, B_c) + B_r;
}
FL_DEBUG_FN int64_t debug_l(int64_t B_r, int64_t B_c) {
    return debug_P(B_r, B_c) + B_r * B_c;
}
FL_DEBUG_FN int64_t debug_O(int64_t B_r, int64_t B_c) {
    return debug_l(B_r, B_c) + B_r;
}

/* Floats of one record. */
FL_DEBUG_FN int64_t debug_record_floats(int64_t B_r, int64_t B_c, int64_t d_head) {
    return debug_O(B_r, B_c) + B_r * d_head;
}

/* Offset of the record of one CTA and KV block, in floats. n_blocks = seq / B_c, rounded up. */
FL_DEBUG_FN int64_t debug_record(int64_t cta, int64_t block, int64_t n_blocks, int64_t B_r, int64_t B_c,
                                 int64_t d_head) {
    return (cta * n_blocks + block) * debug_record_floats(B_r, B_c, d_head);
}

/* Floats of the entire buffer. */
FL_DEBUG_FN int64_t debug_buffer_floats(int64_t ctas, int64_t n_blocks, int64_t B_r, int64_t B_c, int64_t d_head) {
    return ctas * n_blocks * debug_record_floats(B_r, B_c, d_head);
}

#endif
