/* tensor_memory.h - the tensor memory of a CTA, and the jobs of its tensor core: products, copies, shifts, commits.
 *
 *     uint32_t *word = tensor_word(m->tensor, lane, column);
 *     const tensor_product p = emu_tensor_product(job);
 *
 * An address has the lane from bit 16 on and the column below. A job is issued by one thread and done later, see
 * tensor_jobs.c. The checks look at jobs through the functions below: which shared and tensor memory a job touches.
 */
#ifndef FL_EMU_TENSOR_MEMORY_H
#define FL_EMU_TENSOR_MEMORY_H

#include "machine.h"

enum { TENSOR_CHUNK = 16, MOST_TENSOR_CHUNKS = 2048, MOST_TENSOR_REGIONS = 5 };

typedef struct tensor_job {
    const op *o;
    uint32_t serial;     /* among the jobs of its warp, from 1 on */
    uint32_t stamp;      /* of the warp as it was issued */
    uint32_t d, a_there; /* addresses in tensor memory */
    uint64_t a, b;       /* descriptors; b: of the source of a copy */
    uint32_t how;        /* descriptor of the instruction */
    uint32_t indices, scales[2];
    uint32_t lanes_off[8];
    uint64_t zero_columns;    /* of .ws: the descriptor of a mask, 0: none */
    uint32_t mbarrier, ranks; /* of a commit: at this address of these CTAs */
    uint32_t *known;          /* what its thread knew, owned; NULL without checks */
    int warp;
    uint8_t lane;
    bool adds;
} tensor_job;

typedef struct tensor_memory {
    uint32_t *words;                    /* [lane][column] */
    uint16_t allocated[TENSOR_COLUMNS]; /* 1 + the first column of the allocation; 0: free */
    bool relinquished;
    tensor_job *jobs; /* under way, in the order of issue */
    size_t job_count, job_capacity;
    uint32_t issued[MAX_WARPS]; /* by each warp */
} tensor_memory;

static inline uint32_t tensor_lane(uint32_t address) {
    return address >> 16;
}
static inline uint32_t tensor_column(uint32_t address) {
    return address & 0xffff;
}
static inline uint32_t *tensor_word(const tensor_memory *t, uint32_t lane, uint32_t column) {
    return &t->words[(size_t)(lane % TENSOR_LANES) * TENSOR_COLUMNS + column % TENSOR_COLUMNS];
}

/* A CTA of the pair of one; 0: the one of even rank. */
static inline cta *cta_of_pair(const cta *m, uint32_t which) {
    return &m->cluster->ctas[(m->rank & ~1u) + which];
}
static inline bool is_pair_job(const tensor_job *job) {
    return job->o->detail & TENSOR_PAIR;
}
/* A CTA that a job works in: of both of a pair, or the own one. */
static inline cta *cta_of_job(cta *m, const tensor_job *job, uint32_t which) {
    return is_pair_job(job) ? cta_of_pair(m, which) : m;
}

/* ---- what a product is: its instruction and the descriptor of that ---- */

typedef struct tensor_product {
    enum tensor_kind kind;
    uint32_t m, n;
    uint32_t rows, columns_of_b; /* of D and A in a CTA; of B in the shared memory of one */
    uint32_t k;                  /* of B, which is twice what A stores where that is sparse */
    uint32_t a_bytes, b_bytes;   /* of a row along k in shared memory, or of an element where rows are contiguous */
    uint32_t element_bytes;
    uint32_t a_format, b_format, d_format; /* as the descriptor has them */
    uint32_t a_id, b_id;                   /* which bytes of a word are scales */
    uint32_t index_id;                     /* column of the indices of a sparse A, from their address on */
    bool ue8m0;                            /* scales are powers of two */
    uint64_t zero_columns;                 /* descriptor of a mask of columns of B */
    bool pair, stationary, sparse, transpose_a, transpose_b, negate_a, negate_b;
} tensor_product;

tensor_product emu_tensor_product(const tensor_job *job);
/* Write why there is no such product, and return true; false if there is one. */
bool emu_tensor_product_error(const tensor_job *job, const tensor_product *p, char *out, size_t bytes);
/* Position of element (row, n) of D in a CTA, relative to the address of D. */
void emu_tensor_position(const tensor_product *p, uint32_t row, uint32_t n, uint32_t *lane, uint32_t *column);
/* Number of parts of D in one CTA, one below the other, each with some of the columns: 1 unless rows are few. */
uint32_t emu_tensor_parts(const tensor_product *p);
/* The lane of a row of A in tensor memory. Each part of D is multiplied from a copy of A in its own lanes: FlashMLA has
 * another matrix in each. */
uint32_t emu_tensor_row_lane(const tensor_product *p, uint32_t row, uint32_t part);
/* The lanes, from the address of the indices on, that have those of a row of a sparse A. */
void emu_tensor_index_lanes(const tensor_product *p, uint32_t row, uint32_t lanes[2]);
/* Do it: read shared and tensor memory, and write tensor memory. */
void emu_tensor_multiply(cta *m, const tensor_job *job);

/* tensor_jobs.c: whether two jobs of a CTA are done in the order in which they were issued; strict: by what PTX
 * promises alone. */
bool emu_keeps_order(const tensor_job *first, const tensor_job *second, bool strict);

/* ---- what a job touches ---- */

/* Lanes and columns of tensor memory, of each CTA that it works in. lanes: one bit for each 16. */
typedef struct tensor_region {
    uint32_t column, columns;
    uint8_t lanes;
    bool reads, writes;
    const char *name; /* "D", "the scales of A" */
} tensor_region;
uint32_t emu_tensor_regions(const tensor_job *job, tensor_region out[MOST_TENSOR_REGIONS]);
/* The chunks of 16 bytes of shared memory that a job reads in a CTA: addresses of A (or of the source of a copy), or of
 * B. */
uint32_t emu_tensor_chunks(const tensor_job *job, bool of_a, uint32_t out[MOST_TENSOR_CHUNKS]);
/* The bytes of each such chunk that matter: 16 numbers of 6 or 4 bits are in the first 12 or 8, and padding follows. */
uint32_t emu_tensor_chunk_bytes_used(const tensor_job *job, bool of_a);
/* Row and column of a register of a load or store, from its address, in a lane. */
void emu_tensor_element(const op *o, uint32_t reg, uint32_t lane, uint32_t *row, uint32_t *column);

/* ---- shared memory as a descriptor has it ---- */

typedef struct tensor_layout {
    uint32_t start, leading, stride, row, mask, base, atom, element_bytes;
    bool along_k;         /* elements along k are contiguous */
    bool leading_is_next; /* `leading` is the address of the tile that follows along k, with K = 96 */
} tensor_layout;

tensor_layout emu_tensor_layout(uint64_t descriptor, bool transposed, uint32_t element_bytes);
/* Address of a chunk: along k number `chunk` of row `row`; else of row `row` of k, the chunk along M or N. */
uint32_t emu_tensor_chunk(const tensor_layout *l, uint32_t row, uint32_t chunk);
/* Its bytes; zeros outside of shared memory. */
const uint8_t *emu_tensor_chunk_bytes(const cta *at, uint32_t address);
static inline bool inside_shared(const cta *at, uint32_t address) {
    const uint32_t offset = address - at->shared_base;
    return offset < at->shared_bytes && at->shared_bytes - offset >= TENSOR_CHUNK;
}

/* ---- lifecycle ---- */

bool emu_tensor_create(cta *m);
void emu_tensor_start(cta *m);
void emu_tensor_free(cta *m);

#endif
