/* block_mask.c - see block_mask.h */
#include "harness/block_mask.h"

#include "common/serving.h"
#include "harness/philox.h"

#include <inttypes.h>
#include <stdio.h>

static int64_t blocks_of(int64_t rows) {
    return (rows + MASK_ROWS - 1) / MASK_ROWS;
}

/* The document that a block belongs to. */
static int64_t document_of(int64_t block) {
    static const int64_t within[] = {0, 1, 1, 2, 2, 2};
    enum { PERIOD = sizeof within / sizeof *within, DOCUMENTS = 3 };
    return block / PERIOD * DOCUMENTS + within[block % PERIOD];
}

/* A kind for each number of two bits. */
static enum block_kind random_kind(const struct problem *problem, int64_t batch, int64_t head, int64_t row,
                                   int64_t key) {
    static const enum block_kind kinds[] = {BLOCK_HIDDEN, BLOCK_HIDDEN, BLOCK_PARTIAL, BLOCK_FULL};
    const uint32_t counter[4] = {(uint32_t)key, (uint32_t)row, (uint32_t)head, (uint32_t)batch};
    const uint32_t seed[2] = {(uint32_t)problem->mask_seed, (uint32_t)(problem->mask_seed >> 32)};
    uint32_t words[4];
    philox(counter, seed, words);
    return kinds[words[0] >> 30];
}

/* The kind of a block, by its numbers. Sequences end in the last block of their queries and of their keys. */
static enum block_kind kind_of(const struct problem *problem, int64_t batch, int64_t head, int64_t row, int64_t key) {
    const int64_t own = row + blocks_of(problem_length(problem, TENSOR_K, batch)) -
                        blocks_of(problem_length(problem, TENSOR_Q, batch)); /* the block of keys of a query block */
    switch (problem->block_mask) {
    case MASK_CAUSAL:
        return key < own ? BLOCK_FULL : key == own ? BLOCK_PARTIAL : BLOCK_HIDDEN;
    case MASK_DOCUMENT:
        return own < 0 || document_of(own) != document_of(key) ? BLOCK_HIDDEN : own == key ? BLOCK_PARTIAL : BLOCK_FULL;
    case MASK_RANDOM:
        return random_kind(problem, batch, head, row, key);
    case MASK_NONE:
        break;
    }
    return BLOCK_FULL;
}

tensor_strides block_mask_strides(const struct problem *problem) {
    const int64_t columns = blocks_of(problem->seq_k), head = blocks_of(problem->seq_q) * columns;
    return (tensor_strides){.batch = problem->heads * head, .seq = columns, .head = head};
}

int64_t block_mask_bytes(const struct problem *problem) {
    return problem->block_mask ? problem->batch * block_mask_strides(problem).batch : 0;
}

void block_mask_fill(const struct problem *problem, uint8_t *mask) {
    const int64_t rows = blocks_of(problem->seq_q), columns = blocks_of(problem->seq_k);
    for (int64_t batch = 0; batch < problem->batch; batch++)
        for (int64_t head = 0; head < problem->heads; head++)
            for (int64_t i = 0; i < rows * columns; i++)
                *mask++ = (uint8_t)kind_of(problem, batch, head, i / columns, i % columns);
}

bool block_mask_shows(const struct problem *problem, int64_t batch, int64_t head, int64_t row, int64_t key) {
    return kind_of(problem, batch, head, row / MASK_ROWS, key / MASK_ROWS) != BLOCK_HIDDEN;
}

/* Keys of a block, by its number, that a causal mask and a window leave to a row. */
static int64_t keys_in_block(struct key_span seen, int64_t block) {
    const int64_t first = seen.first > block * MASK_ROWS ? seen.first : block * MASK_ROWS,
                  end = seen.end < (block + 1) * MASK_ROWS ? seen.end : (block + 1) * MASK_ROWS;
    return end > first ? end - first : 0;
}

int64_t block_mask_keys(const struct problem *problem, int64_t batch, int64_t head, int64_t row) {
    const struct key_span seen = problem_seen_keys(problem, batch, row);
    int64_t keys = 0;
    if (!problem->block_mask) return seen.end - seen.first;
    for (int64_t block = seen.first / MASK_ROWS; block * MASK_ROWS < seen.end; block++)
        if (block_mask_shows(problem, batch, head, row, block * MASK_ROWS)) keys += keys_in_block(seen, block);
    return keys;
}

/* Pairs of a visible block. */
static int64_t pairs_in_block(const struct problem *problem, int64_t batch, int64_t row, int64_t key) {
    const int64_t rows = problem_length(problem, TENSOR_Q, batch);
    int64_t pairs = 0;
    for (int64_t i = row * MASK_ROWS; i < (row + 1) * MASK_ROWS && i < rows; i++)
        pairs += keys_in_block(problem_seen_keys(problem, batch, i), key);
    return pairs;
}

int64_t block_mask_pairs(const struct problem *problem) {
    const int64_t rows = blocks_of(problem->seq_q), columns = blocks_of(problem->seq_k);
    int64_t pairs = 0;
    for (int64_t i = 0; i < problem->batch * rows * columns; i++) {
        const int64_t batch = i / columns / rows, row = i / columns % rows, key = i % columns;
        int64_t heads = 0; /* that see the block */
        for (int64_t head = 0; head < problem->heads; head++)
            heads += kind_of(problem, batch, head, row, key) != BLOCK_HIDDEN;
        if (heads) pairs += heads * pairs_in_block(problem, batch, row, key);
    }
    return pairs;
}

char *block_mask_name(const struct problem *problem, char text[MASK_NAME_SIZE]) {
    static const char *const names[] = {"none", "causal", "document", "random"};
    const bool random = problem->block_mask == MASK_RANDOM;
    snprintf(text, MASK_NAME_SIZE, random ? "%s:%" PRIu64 : "%s", names[problem->block_mask], problem->mask_seed);
    return text;
}
