/* fa3_backward.h - what fa3_backward.c, the instantiations of FlashAttention-3's backward pass
 * (fa3_backward_kernel.cu) and the call of one (fa3_backward_call.cu) share; C and C++.
 *
 *     const char *reason = fa3_backward_call(fa3_bf16_d64_full_any, &launch); // NULL: the pass is in the stream
 */
#ifndef FL_PEERS_FA3_BACKWARD_H
#define FL_PEERS_FA3_BACKWARD_H

#include "common/backward.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
struct Flash_bwd_params; /* FlashAttention-3's */

typedef const char *(*fa3_backward_kernel)(struct Flash_bwd_params *params, struct CUstream_st *stream);

/* One pass. */
typedef struct {
    backward_args args;
    int d_head, B_r;     /* B_r: queries of a Q block of the kernel */
    bool bf16, in_order; /* in_order: its deterministic kernel */
    void *scratch;       /* fa3_backward_bytes() */
    int sms;
    void *stream; /* CUstream */
} fa3_backward_launch;

int64_t fa3_backward_bytes(const attention_args *args, int d_head, int B_r);
const char *fa3_backward_call(fa3_backward_kernel kernel, const fa3_backward_launch *launch);

#ifdef __cplusplus
}
#endif

#endif
