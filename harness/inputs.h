/* inputs.h - the inputs of a problem: every element is a function of seed, tensor and index, the same on every machine.
 *
 *     inputs_generate(&inputs, &problem, &failure);
 */
#ifndef FL_INPUTS_H
#define FL_INPUTS_H

#include "harness/problem.h"
#include "runtime/status.h"

#include <stdint.h>

/* Host copies, 16 bits per element, owned. */
struct inputs {
    struct problem problem;
    uint16_t *tensors[N_INPUTS];
    /* Only for a backward problem, else NULL: the results of the forward pass, and their reference
     * (harness/gradients.h). */
    uint16_t *dO, *O; /* like O */
    float *lse;       /* [batch, heads, seq_q] */
    struct query_row *query_rows;
    int64_t exact_pairs; /* of a sample and a KV head, whose gradients are known (backward_exact_pair()) */
};

/* The outputs of a launch, in the host's order. */
struct output {
    uint16_t *O;                   /* of problem_bytes(); NULL in a backward problem */
    float *lse;                    /* of problem_lse_bytes(); NULL where the problem does not ask for it */
    int64_t strays;                /* elements written between the rows of O */
    uint16_t *gradients[N_INPUTS]; /* dQ, dK and dV of a backward problem, else NULL */
    float *dsinks;                 /* [heads], of a backward problem with sinks, else NULL */
};

/* STATUS_ERROR when out of memory. */
enum status output_new(struct output *output, const struct problem *problem, struct failure *failure);
void output_free(struct output *output);

/* True if there is an output. */
bool output_is_there(const struct output *output);

/* Elements 4 * block ... 4 * block + 3 of a tensor, before they are rounded to 16 bits. normal: N(0,1); uniform: [0,1);
 * large: N(0,1)*8, whose scores overflow exp() without the running maximum; ramp: (index mod 251) / 256, exact in both
 * types. */
void input_block(enum distribution dist, uint64_t seed, enum tensor tensor, uint64_t block, float values[4]);

/* Fill all three tensors, on all cores. STATUS_ERROR when out of memory; inputs_free() in any case. */
enum status inputs_generate(struct inputs *inputs, const struct problem *problem, struct failure *failure);
void inputs_free(struct inputs *inputs);

/* Change the sign of every element. The scores stay, so log-sum-exp does too, and O changes its sign. */
void inputs_negate(struct inputs *inputs);

#endif
