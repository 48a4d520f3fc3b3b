/* lane_loop.h - how a lane function is written: a plain loop over all 32 lanes, which compilers vectorise.
 *
 *     LANES_32(lanes_xor_32, a ^ b)
 *     FREQUENT_32(lanes_add_32, a + b)            // also compiled for wider vectors
 *
 * Lanes that are switched off are computed too; the caller blends. A destination may be the very slot of a source: each
 * lane reads its inputs before it writes.
 */
#ifndef FL_EMU_LANE_LOOP_H
#define FL_EMU_LANE_LOOP_H

#include "machine.h"
#include "numbers.h"

/* One lane function: T is the type of destination lanes, A, B and C those of the sources, `value` their expression. */
#define LANE_LOOP(name, T, A, B, C, value)                                                                             \
    void name(void *vd, const void *va, const void *vb, const void *vc) {                                              \
        T *d = vd;                                                                                                     \
        const A *pa = va;                                                                                              \
        const B *pb = vb;                                                                                              \
        const C *pc = vc;                                                                                              \
        _Pragma("GCC ivdep")                                                                                           \
        for (int i = 0; i < LANES; i++) {                                                                              \
            const A a = pa[i];                                                                                         \
            const B b = pb[i];                                                                                         \
            const C c = pc[i];                                                                                         \
            (void)a, (void)b, (void)c;                                                                                 \
            d[i] = (T)(value);                                                                                         \
        }                                                                                                              \
    }
#define LANES_32(name, value) LANE_LOOP(name, uint32_t, uint32_t, uint32_t, uint32_t, value)
#define LANES_64(name, value) LANE_LOOP(name, uint64_t, uint64_t, uint64_t, uint64_t, value)
#define LANES_16(name, value) LANE_LOOP(name, uint32_t, uint32_t, uint32_t, uint32_t, (value) & 0xffffu)
#define FREQUENT_32(name, value) WIDE LANES_32(name, value)
#define FREQUENT_64(name, value) WIDE LANES_64(name, value)

#endif
