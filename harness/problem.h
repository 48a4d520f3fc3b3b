/* problem.h - the attention problems to solve: their sizes.
 *
 *     struct problem problem = problem_square(16, 16, 4096);
 */
#ifndef FL_PROBLEM_H
#define FL_PROBLEM_H

#include "common/abi.h"
#include "harness/number_list.h"
#include "runtime/config.h"
#include "runtime/status.h"
#include "runtime/tensors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum distribution { DIST_NORMAL, DIST_UNIFORM, DIST_LARGE, DIST_RAMP };

/* Layout of the tensors in device memory. */
enum layout {
    LAYOUT_BSHD,   /* contiguous (batch, seq, heads, d_head) */
    LAYOUT_BHSD,   /* contiguous (batch, heads, seq, d_head) */
    LAYOUT_PADDED, /* as the first, with a gap after each row, each position and each sequence, another in each
                      tensor */
    LAYOUT_PACKED  /* contiguous (tokens, heads, d_head): the sequences packed, found by offsets */
};

/* Hidden blocks of scores: harness/block_mask.h. */
enum block_mask { MASK_NONE, MASK_CAUSAL, MASK_DOCUMENT, MASK_RANDOM };

/* On the host Q, K, V and O are contiguous (batch, seq, heads, d_head) tensors, K and V with seq_k and KV_heads. Rows
 * past the length of a sequence are NaN on the host and do not exist on the device. */
struct problem {
    int64_t batch, heads, KV_heads, seq_q, seq_k;
    int d_head;
    int d_head_v; /* elements of a row of V and O; 0: d_head */
    bool latent;  /* V is the first columns of K */
    bool drops;   /* the kernel always runs its dropout: it is given a probability of 0 */
    enum dtype dtype;
    enum distribution dist;
    uint64_t seed;
    bool backward; /* of O, log-sum-exp and dO the gradients dQ, dK and dV */
    bool causal;   /* query row i sees keys up to i + seq_k - seq_q */
    bool lse;      /* log-sum-exp is computed and checked too */
    double scale;  /* of the scores; 0 is 1 / sqrt(d_head) */
    enum layout layout;

    /* Fields that require serving_args. */
    const struct number_list *Q_lengths, *KV_lengths; /* of each sequence, at most seq_q and seq_k; NULL: these */
    bool
        windowed; /* query row i sees keys from i + keys - queries - window_left to i + keys - queries + window_right */
    int64_t window_left, window_right; /* -1: no end */
    double softcap;                    /* 0: none */
    bool sinks;                        /* each head has one: problem_sink() */
    int64_t page_rows;                 /* rows of a page of K and V; 0: not paged */
    int64_t split_keys;                /* keys of a part; 0: parts have no size */
    enum block_mask block_mask;
    uint64_t mask_seed; /* of MASK_RANDOM */

    /* K and V are of this type, with problem_cache_scale(); Q and O are of dtype. */
    bool cache_e4m3, cache_int8;

    /* Fields that require fp8_args (harness/fp8.h). */
    bool e4m3;                /* of Q, K and V; O is of dtype */
    bool e4m3_serves;         /* fields that use serving_args instead */
    double descale[N_INPUTS]; /* what an element of Q, K or V is multiplied by; 1 where nothing else is asked for */
    bool transposed_V;        /* on the device: [batch, heads, d_head, seq_k] */
    bool rounded_sums_of_P;   /* l sums P as it was rounded */
    int64_t summed_keys;      /* after which O is added up in fp32; 0: never */
};

/* As many keys as queries and as many KV heads as heads, fp16, d_head 128, inputs of seed 1. */
struct problem problem_square(int64_t batch, int64_t heads, int64_t seq);

/* "normal", ... */
const char *distribution_name(enum distribution dist);

bool problem_equal(const struct problem *a, const struct problem *b);

/* "bshd", ... */
const char *layout_name(enum layout layout);

/* True if the elements of a tensor are e4m3 or int8: a byte each on the device. */
bool problem_is_of_bytes(const struct problem *problem, enum tensor tensor);

/* True if K and V are e4m3 or int8, and Q is not. */
bool problem_has_cache_of_bytes(const struct problem *problem);

/* The scale of K or V of a KV head in such a cache: descale times 1 to 1.75, with int8 divided by INT8_ONE. */
enum { INT8_ONE = 32 }; /* the int8 value of an input of 1 */
float problem_cache_scale(const struct problem *problem, enum tensor tensor, int64_t KV_head);

/* Rows and heads of a tensor: queries and heads, or keys and KV heads. */
int64_t problem_rows(const struct problem *problem, enum tensor tensor);
int64_t problem_heads(const struct problem *problem, enum tensor tensor);

/* Elements and bytes of one tensor on the host, and of all four. */
int problem_d_head(const struct problem *problem, enum tensor tensor);
int64_t problem_elements(const struct problem *problem, enum tensor tensor);
int64_t problem_bytes(const struct problem *problem, enum tensor tensor);
int64_t problem_all_bytes(const struct problem *problem);

/* Bytes of log-sum-exp, float [batch, heads, seq_q]. */
int64_t problem_lse_bytes(const struct problem *problem);

/* Elements on the device: [heads, tokens] if the sequences are packed. */
int64_t problem_device_lse_bytes(const struct problem *problem);

/* Offset of element 0 of a row within a tensor on the host, in elements. `head` is one of the tensor's own. */
int64_t problem_row_offset(const struct problem *problem, enum tensor tensor, int64_t batch, int64_t head, int64_t row);

/* Strides of a tensor on the device, and its bytes there up to the end of its last row. */
tensor_strides problem_strides(const struct problem *problem, enum tensor tensor);
int64_t problem_device_bytes(const struct problem *problem, enum tensor tensor);

/* Rows of sequence number `batch` of a tensor, and the rows of the sequences before it. */
int64_t problem_length(const struct problem *problem, enum tensor tensor, int64_t batch);
int64_t problem_rows_before(const struct problem *problem, enum tensor tensor, int64_t batch);

/* Pages of a sequence in the table, pages of K and of V, and the one that has the rows of a sequence from a multiple of
 * page_rows on. Some pages are of no sequence. */
int64_t problem_pages_of_sequence(const struct problem *problem);
int64_t problem_pages(const struct problem *problem);
int64_t problem_page(const struct problem *problem, int64_t batch, int64_t number);

/* True if sequences have lengths of their own, and whether only kernels with serving_args compute the problem. */
bool problem_is_ragged(const struct problem *problem);
bool problem_is_served(const struct problem *problem);

/* Keys that a query row sees; none where end <= first. */
struct key_span {
    int64_t first, end;
};
struct key_span problem_seen_keys(const struct problem *problem, int64_t batch, int64_t row);

/* The sink of a head, -INFINITY where there are none. */
double problem_sink(const struct problem *problem, int64_t head);

/* Factor of the scores: 1 / sqrt(d_head), or the float that is passed to the kernel. */
double problem_scale(const struct problem *problem);

/* Batch that goes with a sequence length on a GPU: 16 up to 4096, 8 at 8192, 4 beyond. */
int64_t problem_default_batch(int64_t seq);

/* The first parameter of flash_forward, without the device addresses. */
attention_args problem_args(const struct problem *problem);

/* Check sizes, and that the configuration can run them; STATUS_USAGE with a message of its own for each. */
enum status problem_check(const struct problem *problem, const struct kernel_config *config, struct failure *failure);

#endif
