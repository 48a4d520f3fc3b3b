/* fa3.h - what fa3.c and the instantiations of FlashAttention-3's kernel (fa3_kernel.cu) share; C and C++.
 *
 *     const char *reason = kernel(&launch); // NULL: the launch is in the stream
 */
#ifndef FL_PEERS_FA3_H
#define FL_PEERS_FA3_H

/* One launch. Tensors are contiguous (batch, seq, heads, d_head) on the GPU. */
typedef struct {
    const void *Q, *K, *V;
    void *O;
    float *lse;     /* log-sum-exp, (batch, heads, seq): the kernel always writes it */
    int *semaphore; /* one zero: tickets of a causal kernel's CTAs; NULL for the others */
    int batch, heads, seq;
    float scale; /* of the scores */
    int sms;
    void *stream; /* CUstream */
} fa3_launch;

#endif
