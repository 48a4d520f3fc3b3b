/* lane_loop.h - how a lane function is written: a plain loop over all 32 lanes, which compilers vectorise.
 *
 *     LANES_32(emu_lanes_xor_32, a ^ b)
 *
 * Lanes that are switched off are computed too; the caller blends. A destination may be the very slot of a source: each
 * lane reads its inputs before it writes.
 */
#ifndef FL_EMU_LANE_LOOP_H
#define FL_EMU_LANE_LOOP_H

#include "../ptx/lanes.h"
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

/* min and max take the number where one source is NaN, and order -0 below +0. */
static inline float smaller(float x, float y) {
    float least = x < y ? x : y;
    least = x == y ? float_of(bits_of(x) | bits_of(y)) : least;
    least = x != x ? y : least;
    return y != y ? x : least;
}

static inline float larger(float x, float y) {
    float most = x > y ? x : y;
    most = x == y ? float_of(bits_of(x) & bits_of(y)) : most;
    most = x != x ? y : most;
    return y != y ? x : most;
}

/* The bits of an f32 instruction's result from its value() of x, y, z; FLUSHING takes and gives subnormals as zero. */
#define VALUE_F32(name, value)                                                                                         \
    static inline float name##_of(float x, float y, float z) {                                                         \
        (void)x, (void)y, (void)z;                                                                                     \
        return value;                                                                                                  \
    }
#define PLAIN(f) canonical(f(float_of(a), float_of(b), float_of(c)))
#define FLUSHING(f) flushed(canonical(f(flushed_value(a), flushed_value(b), flushed_value(c))))

/* frequent.c has these two of cvt for convert.c. */
lane_function emu_lanes_f16x2_rn, emu_lanes_bf16x2_rn;

#endif
