/* peer.h - a kernel that a library launches instead of a version's own: what the executables of bin/peers/ link.
 *
 *     if (peer) return peer->enqueue(&launch, &failure);
 *
 * Inputs, reference, timing and records are the harness's. A peer runs on a GPU alone and has no configurations.
 */
#ifndef FL_PEER_H
#define FL_PEER_H

#include "common/backward.h"
#include "harness/problem.h"
#include "runtime/image.h"
#include "runtime/status.h"

#include <stdint.h>

/* One launch; the tensors and the scratch memory are on the GPU. */
struct peer_launch {
    const struct problem *problem;
    const void *Q, *K, *V;
    void *O, *scratch;
    float *lse;                    /* NULL: not wanted */
    const backward_args *backward; /* of a backward pass: all of its tensors; else NULL */
    int sms;
    void *stream; /* CUstream */
};

struct peer {
    const char *library; /* name and version, for records */
    bool e4m3;           /* it takes Q, K and V of e4m3, and no others */
    bool backward;       /* it computes gradients */
    int major, minor;    /* the one compute capability that its machine code is for */
    /* GPU memory that it needs in addition to the tensors. */
    int64_t (*scratch_bytes)(const struct problem *problem);
    int64_t cleared_bytes; /* the first of these: zero before each launch, which is not part of what is timed */
    /* Put one launch into the stream. STATUS_USAGE where it has no kernel for the problem. */
    enum status (*enqueue)(const struct peer_launch *launch, struct failure *failure);
};

/* An instance for each element type, for heads of d_head elements: what the rest of the harness chooses from. Only type
 * and head size mean anything. The peer itself refuses problems, in enqueue. */
enum status peer_instances(struct instance_table *table, int d_head, struct failure *failure);

#endif
