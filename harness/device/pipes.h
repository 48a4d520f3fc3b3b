/* pipes.h - what the kernels of pipes.cu measure and pipes.c asks for: operations, jobs, results.
 *
 *     double cycles = (double)result.cycles[0] / (double)result.count[0];
 *
 * A job has warps that execute one operation a fixed number of times, and companion warps that execute another one
 * until those are done.
 */
#ifndef FL_PIPES_H
#define FL_PIPES_H

#include <stdint.h>

/* The instruction of a warp: its name in the record. "chain": each one uses the result of the one before. */
#define FL_PIPE_OPERATIONS(X)                                                                                          \
    X(NOTHING, "")                                                                                                     \
    X(FFMA, "FFMA")                                                                                                    \
    X(FADD, "FADD")                                                                                                    \
    X(FMUL, "FMUL")                                                                                                    \
    X(FMNMX, "FMNMX")                                                                                                  \
    X(IMAD, "IMAD")                                                                                                    \
    X(LOP, "LOP3")                                                                                                     \
    X(PACK, "F2FP")                                                                                                    \
    X(EX2, "MUFU.EX2")                                                                                                 \
    X(SHFL, "SHFL")                                                                                                    \
    X(LDSM, "LDSM.x4")                                                                                                 \
    X(LDSM_TRANS, "LDSM.x4.trans")                                                                                     \
    X(LDS, "LDS.32")                                                                                                   \
    X(STS, "STS.128")                                                                                                  \
    X(HMMA, "HMMA")                                                                                                    \
    X(HMMA_REUSE, "HMMA.reuse")                                                                                        \
    X(WGMMA, "HGMMA.64x128x16")                                                                                        \
    X(WGMMA_REGISTERS, "HGMMA.64x128x16, A in registers")                                                              \
    X(E4M3, "QGMMA.64x128x32")                                                                                         \
    X(E4M3_REGISTERS, "QGMMA.64x128x32, A in registers")                                                               \
    X(COPY, "LDGSTS.128")                                                                                              \
    X(BARRIER, "BAR")                                                                                                  \
    X(MBARRIER, "SYNCS, arrival and wait")                                                                             \
    X(FFMA_CHAIN, "FFMA, chain")                                                                                       \
    X(FMNMX_CHAIN, "FMNMX, chain")                                                                                     \
    X(LOP_CHAIN, "LOP3, chain")                                                                                        \
    X(IMAD_CHAIN, "IMAD, chain")                                                                                       \
    X(EX2_CHAIN, "MUFU.EX2, chain")                                                                                    \
    X(SHFL_CHAIN, "SHFL, chain")                                                                                       \
    X(LDSM_CHAIN, "LDSM.x4, chain")                                                                                    \
    X(COPY_CHAIN, "LDGSTS.128 and the wait for it")                                                                    \
    X(WGMMA_CHAIN, "HGMMA.64x128x16 and the wait for it")                                                              \
    X(E4M3_CHAIN, "QGMMA.64x128x32 and the wait for it")                                                               \
    X(LDS_CHAIN, "LDS.32, chain")                                                                                      \
    X(HMMA_CHAIN, "HMMA, chain")                                                                                       \
    X(ATOMIC_CHAIN, "ATOMG, chain")

#define FL_PIPE_NAME(name, text) PIPE_##name,
enum pipe_operation { FL_PIPE_OPERATIONS(FL_PIPE_NAME) N_PIPES };
#undef FL_PIPE_NAME

/* Columns of the products of e4m3 that have kernels of their own (pipes.cuh). */
#define FL_PIPE_WIDTHS(X) X(8) X(16) X(32) X(64) X(96) X(192) X(256)

enum {
    PIPE_ROUND = 512, /* operations between two looks at whether the others are done */
    PIPE_GROUP = 8,   /* products of a group of wgmma */
    PIPE_MOST_WARPS = 16,
    PIPE_WIDE_THREADS = 256,
    PIPE_GROUPS_THREADS = 384,
    PIPE_BOX_ROWS = 128, /* of a tensor copy: a K or V block of a head of 128 */
    PIPE_BOX_BYTES = PIPE_BOX_ROWS * 256,
    PIPE_STAGES = 4,
    PIPE_WINDOW = 2 * PIPE_BOX_BYTES, /* bytes that a multiprocessor copies again and again */
};

typedef struct pipe_job {
    int32_t operation, companion; /* enum pipe_operation */
    int32_t warps;                /* that execute `operation`; later ones execute `companion` */
    int32_t rounds;               /* of `operation` */
    uint64_t memory;              /* device address; for COPY and ATOMIC_CHAIN, zeros at first */
} pipe_job;

/* Results of the first warp of either kind: [0] operation, [1] concurrent. `ends`: when each warp of `operation` is
 * done. */
typedef struct pipe_result {
    uint64_t cycles[2], count[2], ns, ends[PIPE_MOST_WARPS];
} pipe_result;

#endif
