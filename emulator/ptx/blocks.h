/* blocks.h - the blocks and loops of an entry: what flow.c (control) and registers.c (liveness, slots) share. */
#ifndef FL_EMU_BLOCKS_H
#define FL_EMU_BLOCKS_H

#include "loader.h"

typedef struct block {
    uint32_t begin, end; /* ops */
    int next[2];         /* successors, -1 for none */
    bool exits;          /* ends in an unguarded exit */
    int join;            /* block where lanes meet that part at the end of this one, or -1 */
    int loop;            /* innermost, or -1 */
    /* sets of exposed variables: reads holds those read before a write of the block, writes those surely written */
    uint64_t *live_in, *live_out, *unset_in, *reads, *writes;
} block;

typedef struct loop {
    int header, parent, depth;
    uint32_t latch_instruction;
} loop;

typedef struct flow {
    loader *load;
    entry *code;
    block *blocks;
    int count;
    int *block_of; /* by op */
    loop *loops;
    int loop_count;
    size_t variables;        /* registers, then predicates */
    uint32_t *exposed;       /* those that some block may read before it writes them */
    uint32_t *exposed_index; /* by variable: 1 + its index among these, or 0 */
    uint32_t exposed_count;
    size_t words; /* of a set of them */
} flow;

#endif
