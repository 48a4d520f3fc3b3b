/* problem.h - the attention problems to solve: sizes, what they cost, and the lists and ranges people type.
 *
 *     struct problem problem = {.batch = 16, .heads = 16, .seq = 4096, .d_head = 128, .dtype = FP16, .seed = 1};
 *     double tflops = problem_flop(&problem) / seconds / 1e12;
 */
#ifndef FL_PROBLEM_H
#define FL_PROBLEM_H

#include "common/abi.h"
#include "common/config.h"
#include "harness/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { D_HEAD = 128 }; /* elements of a head's row in every version so far */
enum { MAX_NUMBERS = 256 };

enum distribution { DIST_NORMAL, DIST_UNIFORM, DIST_LARGE, DIST_RAMP };

/* Q, K, V and O are contiguous (batch, seq, heads, d_head) tensors. */
struct problem {
    int64_t batch, heads, seq;
    int d_head;
    enum dtype dtype;
    enum distribution dist;
    uint64_t seed;
};

/* Numbers read from lists such as `512,1024` and ranges such as `512:16384:*2` and `128:1024:+128`. */
struct number_list {
    int count;
    int64_t values[MAX_NUMBERS];
};

/* "normal", ... */
const char *distribution_name(enum distribution dist);

bool problem_equal(const struct problem *a, const struct problem *b);

/* Elements and bytes of one tensor. */
int64_t problem_elements(const struct problem *problem);
int64_t problem_bytes(const struct problem *problem);

/* Offset of element 0 of a row within a tensor, in elements. */
int64_t problem_row_offset(const struct problem *problem, int64_t batch, int64_t head, int64_t row);

/* Floating-point operations of the two matmuls, 4 * batch * heads * seq^2 * d_head: what FlashAttention-2,
 * FlashAttention-3 and cuDNN quote. */
double problem_flop(const struct problem *problem);

/* The published ladder's count, which adds 6 * seq^2 per head for the softmax. */
double problem_attn_flop(const struct problem *problem);

/* Batch that goes with a sequence length on a GPU: 16 up to 4096, 8 at 8192, 4 beyond. */
int64_t problem_default_batch(int64_t seq);

/* The first parameter of flash_forward, without the device addresses. */
forward_args problem_args(const struct problem *problem);

/* Check sizes, and that the configuration can run them; STATUS_USAGE with a message of its own for each. */
enum status problem_check(const struct problem *problem, const KernelConfig *config, struct failure *failure);

/* Read a list of positive numbers and ranges; STATUS_USAGE names the option and the part that is wrong. */
enum status number_list_parse(const char *option, const char *text, struct number_list *list, struct failure *failure);

#endif
