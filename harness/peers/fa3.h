/* fa3.h - what fa3.c, the instantiations of FlashAttention-3's kernel (fa3_kernel.cu) and the call of one (fa3_call.cu)
 * share; C and C++.
 *
 *     const char *reason = fa3_call(kernel, &launch); // NULL: the launch is in the stream
 */
#ifndef FL_PEERS_FA3_H
#define FL_PEERS_FA3_H

#include "common/abi.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
struct Flash_fwd_params; /* FlashAttention-3's */

typedef const char *(*fa3_kernel)(struct Flash_fwd_params *params, struct CUstream_st *stream);

/* One launch. */
typedef struct {
    attention_args args; /* with LSE, which the kernel always writes */
    int d_head;
    bool bf16, e4m3; /* neither: fp16; of e4m3 O is bf16 */
    int *semaphore;  /* one zero: what a causal kernel's CTAs draw their tiles from */
    int sms;
    void *stream; /* CUstream */
} fa3_launch;

const char *fa3_call(fa3_kernel kernel, const fa3_launch *launch);

#ifdef __cplusplus
}
#endif

#endif
