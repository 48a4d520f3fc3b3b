/* block_mask.h - blocks of scores that --block-mask hides, as kernels and the reference read them.
 *
 *     if (!block_mask_shows(&problem, batch, head, row, key)) continue;
 *
 * A block has MASK_ROWS queries and as many keys, counted from 0 in each sequence. The masks:
 *   causal     the blocks that a causal mask leaves, entirely: the last query's block attends to the last key's
 *   document   documents of 1, 2 and 3 blocks in turn, which attend to themselves
 *   random     one block in two, another one in each head and sequence
 * A value is an enum block_kind. Which of the visible blocks are partial has no effect, because there is no bias.
 */
#ifndef FL_BLOCK_MASK_H
#define FL_BLOCK_MASK_H

#include "harness/problem.h"

enum { MASK_ROWS = 128, MASK_SHIFT = 7 }; /* queries of a block, and keys; the least that kernels take */

/* Bytes of the mask, [batch, heads, blocks of queries, blocks of keys]; 0 without one. */
int64_t block_mask_bytes(const struct problem *problem);
void block_mask_fill(const struct problem *problem, uint8_t *mask);
tensor_strides block_mask_strides(const struct problem *problem);

/* True if the mask leaves this score. */
bool block_mask_shows(const struct problem *problem, int64_t batch, int64_t head, int64_t row, int64_t key);

/* Keys that a query attends to, also without a mask, and pairs of all queries, sequences and heads. */
int64_t block_mask_keys(const struct problem *problem, int64_t batch, int64_t head, int64_t row);
int64_t block_mask_pairs(const struct problem *problem);

/* "causal", "random:7". Returns text. */
enum { MASK_NAME_SIZE = 40 };
char *block_mask_name(const struct problem *problem, char text[MASK_NAME_SIZE]);

#endif
