/* backward_turns.cuh - with in_order, the turns in which CTAs add to dQ of a Q block.
 *
 *     wait_for_turn(turn, position_in_order<cfg>(args, of, first, last));
 *     st_release(turn, position + 1);
 *
 * A turn is the position of the KV block that adds next: 0 at first, and passed on by every CTA that has added.
 */
#ifndef FL_ATTENTION_BACKWARD_TURNS_CUH
#define FL_ATTENTION_BACKWARD_TURNS_CUH

#include "kernels/attention/backward_schedule.cuh"

/* Position of a KV block in the order in which CTAs add to a Q block: from the first KV block that a query attends to,
 * or with the mask from the last, down to the first. */
template <backward_config cfg>
__device__ __forceinline__ int first_in_order(const pass_args<cfg> &args, const work<cfg> &of, int Q_block) {
    if constexpr (cfg.serves) return first_seen<cfg.B_c>(key_range_of(args, of.seq), Q_block * cfg.B_r);
    return 0;
}
template <backward_config cfg>
__device__ __forceinline__ int position_in_order(const backward_args &args, const work<cfg> &of, int first_seen,
                                                 int last_seen) {
    return args.causal ? last_seen - of.KV_block : of.KV_block - first_seen;
}

/* Acquire and release: a CTA that observes the turn also observes everything that was added before the turn was passed
 * on (8.9). */
__device__ __forceinline__ int ld_acquire(const int *gmem) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(gmem) : "memory");
    return value;
}
__device__ __forceinline__ void st_release(int *gmem, int value) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(gmem), "r"(value) : "memory");
}

__device__ __forceinline__ void wait_for_turn(const int *turn, int own) {
    while (ld_acquire(turn) != own) {
    }
}

#endif
