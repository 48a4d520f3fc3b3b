/* convert.c - cvt: one function for each pair of types and rounding, and find_convert() to choose it. */
#include "machine.h"
#include "numbers.h"

#define CONVERT_LOOP(name, D, A, value)                                                                                \
    WIDE static void name(void *vd, const void *va, const void *vb, const void *vc) {                                  \
        D *d = vd;                                                                                                     \
        const A *pa = va;                                                                                              \
        (void)vb, (void)vc;                                                                                            \
        _Pragma("GCC ivdep")                                                                                           \
        for (int i = 0; i < LANES; i++) {                                                                              \
            const A a = pa[i];                                                                                         \
            d[i] = (D)(value);                                                                                         \
        }                                                                                                              \
    }

/* ---- integer to integer: extend by the source's type, keep the low bits ---- */

#define FROM_u8(a) ((a) & 0xffu)
#define FROM_s8(a) ((int8_t)(a))
#define FROM_u16(a) ((a) & 0xffffu)
#define FROM_s16(a) ((int16_t)(a))
#define FROM_u32(a) ((uint32_t)(a))
#define FROM_s32(a) ((int32_t)(a))
#define FROM_u64(a) (a)
#define FROM_s64(a) ((int64_t)(a))
#define SLOT_u8 uint32_t
#define SLOT_s8 uint32_t
#define SLOT_u16 uint32_t
#define SLOT_s16 uint32_t
#define SLOT_u32 uint32_t
#define SLOT_s32 uint32_t
#define SLOT_u64 uint64_t
#define SLOT_s64 uint64_t

#define INTEGERS_FROM(from)                                                                                            \
    CONVERT_LOOP(u8_##from, uint32_t, SLOT_##from, (uint64_t)FROM_##from(a) & 0xffu)                                   \
    CONVERT_LOOP(s8_##from, uint32_t, SLOT_##from, (uint16_t)(int8_t)FROM_##from(a))                                   \
    CONVERT_LOOP(b16_##from, uint32_t, SLOT_##from, (uint64_t)FROM_##from(a) & 0xffffu)                                \
    CONVERT_LOOP(b32_##from, uint32_t, SLOT_##from, FROM_##from(a))                                                    \
    CONVERT_LOOP(b64_##from, uint64_t, SLOT_##from, FROM_##from(a))                                                    \
    CONVERT_LOOP(f32_##from, uint32_t, SLOT_##from, bits_of((float)FROM_##from(a)))                                    \
    CONVERT_LOOP(f64_##from, uint64_t, SLOT_##from, bits_of_double((double)FROM_##from(a)))

INTEGERS_FROM(u8)
INTEGERS_FROM(s8)
INTEGERS_FROM(u16)
INTEGERS_FROM(s16)
INTEGERS_FROM(u32)
INTEGERS_FROM(s32)
INTEGERS_FROM(u64)
INTEGERS_FROM(s64)

/* ---- float to integer: round, clamp to the range; NaN gives 0 below 64 bits and the top bit alone at 64 ---- */

static inline uint64_t to_signed(double x, int bits) {
    double limit = bits == 64 ? 0x1p63 : bits == 32 ? 0x1p31 : 0x1p15;
    if (x != x) return bits == 64 ? 1ull << 63 : 0;
    if (x >= limit) return (uint64_t)(bits == 64 ? INT64_MAX : (int64_t)(limit - 1));
    if (x < -limit) return (uint64_t)(bits == 64 ? INT64_MIN : (int64_t)-limit);
    return (uint64_t)(int64_t)x;
}

static inline uint64_t to_unsigned(double x, int bits) {
    double limit = bits == 64 ? 0x1p64 : bits == 32 ? 0x1p32 : 0x1p16;
    if (x != x) return bits == 64 ? 1ull << 63 : 0;
    if (x <= 0) return 0;
    return x >= limit ? (bits == 64 ? UINT64_MAX : (uint64_t)(limit - 1)) : (uint64_t)x;
}

#define FLOAT_TO_INTEGERS(rounding, round, from, A, value_of)                                                          \
    CONVERT_LOOP(u16_##rounding##_##from, uint32_t, A, to_unsigned(round((double)value_of(a)), 16))                    \
    CONVERT_LOOP(s16_##rounding##_##from, uint32_t, A, to_signed(round((double)value_of(a)), 16) & 0xffffu)            \
    CONVERT_LOOP(u32_##rounding##_##from, uint32_t, A, to_unsigned(round((double)value_of(a)), 32))                    \
    CONVERT_LOOP(s32_##rounding##_##from, uint32_t, A, to_signed(round((double)value_of(a)), 32))                      \
    CONVERT_LOOP(u64_##rounding##_##from, uint64_t, A, to_unsigned(round((double)value_of(a)), 64))                    \
    CONVERT_LOOP(s64_##rounding##_##from, uint64_t, A, to_signed(round((double)value_of(a)), 64))

#define FLOAT_ROUNDINGS(from, A, value_of)                                                                             \
    FLOAT_TO_INTEGERS(rni, rint, from, A, value_of)                                                                    \
    FLOAT_TO_INTEGERS(rzi, trunc, from, A, value_of)                                                                   \
    FLOAT_TO_INTEGERS(rmi, floor, from, A, value_of)                                                                   \
    FLOAT_TO_INTEGERS(rpi, ceil, from, A, value_of)

FLOAT_ROUNDINGS(f32, uint32_t, float_of)
FLOAT_ROUNDINGS(ftz, uint32_t, flushed_value)
FLOAT_ROUNDINGS(f64, uint64_t, double_of)
FLOAT_ROUNDINGS(f16, uint32_t, half_value)

/* ---- float to float ---- */

CONVERT_LOOP(f32_f32, uint32_t, uint32_t, canonical(float_of(a)))
CONVERT_LOOP(f32_ftz, uint32_t, uint32_t, flushed(canonical(float_of(a))))
CONVERT_LOOP(f32_rni, uint32_t, uint32_t, canonical(rintf(float_of(a))))
CONVERT_LOOP(f32_rzi, uint32_t, uint32_t, canonical(truncf(float_of(a))))
CONVERT_LOOP(f32_rmi, uint32_t, uint32_t, canonical(floorf(float_of(a))))
CONVERT_LOOP(f32_rpi, uint32_t, uint32_t, canonical(ceilf(float_of(a))))
CONVERT_LOOP(f32_rni_ftz, uint32_t, uint32_t, canonical(rintf(flushed_value(a))))
CONVERT_LOOP(f32_rzi_ftz, uint32_t, uint32_t, canonical(truncf(flushed_value(a))))
CONVERT_LOOP(f32_rmi_ftz, uint32_t, uint32_t, canonical(floorf(flushed_value(a))))
CONVERT_LOOP(f32_rpi_ftz, uint32_t, uint32_t, canonical(ceilf(flushed_value(a))))
CONVERT_LOOP(f32_f64, uint32_t, uint64_t, canonical((float)double_of(a)))
CONVERT_LOOP(f32_f64_ftz, uint32_t, uint64_t, flushed(canonical((float)double_of(a))))
CONVERT_LOOP(f64_f32, uint64_t, uint32_t, bits_of_double((double)float_of(a)))
CONVERT_LOOP(f64_f32_ftz, uint64_t, uint32_t, bits_of_double((double)flushed_value(a)))
CONVERT_LOOP(f64_f64, uint64_t, uint64_t, a)
CONVERT_LOOP(f32_f16, uint32_t, uint32_t, canonical(half_value(a)))
CONVERT_LOOP(f32_bf16, uint32_t, uint32_t, canonical(bfloat_value(a)))
CONVERT_LOOP(f32_bf16_ftz, uint32_t, uint32_t, flushed(canonical(bfloat_value(a))))
CONVERT_LOOP(f16_f32, uint32_t, uint32_t, half_bits(float_of(a)))
CONVERT_LOOP(f16_f32_rz, uint32_t, uint32_t, half_bits_rz(float_of(a)))
CONVERT_LOOP(bf16_f32, uint32_t, uint32_t, bfloat_bits(float_of(a)))
CONVERT_LOOP(bf16_f32_rz, uint32_t, uint32_t, bfloat_bits_rz(float_of(a)))
CONVERT_LOOP(f16_s32, uint32_t, uint32_t,
             half_bits((float)FROM_s32(a > 0x7fffffffu ? (a < 0xfffe0000u ? 0xfffe0000u : a)
                                                       : (a > 0x1ffffu ? 0x1ffffu : a))))
CONVERT_LOOP(f16_u32, uint32_t, uint32_t, half_bits((float)(a > 0x1ffffu ? 0x1ffffu : a)))
CONVERT_LOOP(f16_s16, uint32_t, uint32_t, half_bits((float)FROM_s16(a)))
CONVERT_LOOP(f16_u16, uint32_t, uint32_t, half_bits((float)FROM_u16(a)))

/* cvt.rn.f16x2.f32 d, a, b: a goes to the upper half */
#define PACK_LOOP(name, to_bits)                                                                                       \
    WIDE static void name(void *vd, const void *va, const void *vb, const void *vc) {                                  \
        uint32_t *d = vd;                                                                                              \
        const uint32_t *a = va, *b = vb;                                                                               \
        (void)vc;                                                                                                      \
        _Pragma("GCC ivdep")                                                                                           \
        for (int i = 0; i < LANES; i++) {                                                                              \
            d[i] = to_bits(float_of(a[i])) << 16 | to_bits(float_of(b[i]));                                            \
        }                                                                                                              \
    }
/* NaN becomes the canonical NaN, negative values become +0. */
static inline float positive(float x) {
    return x < 0.0f || x == 0.0f ? 0.0f : x;
}
#define HALF_RELU(x) half_bits(positive(x))
#define BFLOAT_RELU(x) bfloat_bits(positive(x))
PACK_LOOP(f16x2_rn, half_bits)
PACK_LOOP(f16x2_rz, half_bits_rz)
PACK_LOOP(f16x2_relu, HALF_RELU)
PACK_LOOP(bf16x2_rn, bfloat_bits)
PACK_LOOP(bf16x2_rz, bfloat_bits_rz)
PACK_LOOP(bf16x2_relu, BFLOAT_RELU)

/* ---- choice ---- */

typedef struct conversion {
    const char *rounding, *to, *from;
    lane_function *lanes, *flushing; /* flushing: with .ftz, NULL where it is not allowed */
} conversion;

#define INTEGER_ROWS(from)                                                                                             \
    {"", "u8", #from, u8_##from, NULL}, {"", "s8", #from, s8_##from, NULL}, {"", "u16", #from, b16_##from, NULL},      \
        {"", "s16", #from, b16_##from, NULL}, {"", "u32", #from, b32_##from, NULL},                                    \
        {"", "s32", #from, b32_##from, NULL}, {"", "u64", #from, b64_##from, NULL},                                    \
        {"", "s64", #from, b64_##from, NULL}, {"rn", "f32", #from, f32_##from, f32_##from}, {                          \
        "rn", "f64", #from, f64_##from, NULL                                                                           \
    }
#define ROUNDING_ROWS(rounding)                                                                                        \
    {#rounding, "u16", "f32", u16_##rounding##_f32, u16_##rounding##_ftz},                                             \
        {#rounding, "s16", "f32", s16_##rounding##_f32, s16_##rounding##_ftz},                                         \
        {#rounding, "u32", "f32", u32_##rounding##_f32, u32_##rounding##_ftz},                                         \
        {#rounding, "s32", "f32", s32_##rounding##_f32, s32_##rounding##_ftz},                                         \
        {#rounding, "u64", "f32", u64_##rounding##_f32, u64_##rounding##_ftz},                                         \
        {#rounding, "s64", "f32", s64_##rounding##_f32, s64_##rounding##_ftz},                                         \
        {#rounding, "u16", "f64", u16_##rounding##_f64, NULL}, {#rounding, "s16", "f64", s16_##rounding##_f64, NULL},  \
        {#rounding, "u32", "f64", u32_##rounding##_f64, NULL}, {#rounding, "s32", "f64", s32_##rounding##_f64, NULL},  \
        {#rounding, "u64", "f64", u64_##rounding##_f64, NULL}, {#rounding, "s64", "f64", s64_##rounding##_f64, NULL},  \
        {#rounding, "u16", "f16", u16_##rounding##_f16, NULL}, {#rounding, "s16", "f16", s16_##rounding##_f16, NULL},  \
        {#rounding, "u32", "f16", u32_##rounding##_f16, NULL}, {#rounding, "s32", "f16", s32_##rounding##_f16, NULL},  \
        {#rounding, "u64", "f16", u64_##rounding##_f16, NULL}, {#rounding, "s64", "f16", s64_##rounding##_f16, NULL},  \
    {                                                                                                                  \
        #rounding, "f32", "f32", f32_##rounding, f32_##rounding##_ftz                                                  \
    }

static const conversion conversions[] = {
    INTEGER_ROWS(u8),
    INTEGER_ROWS(s8),
    INTEGER_ROWS(u16),
    INTEGER_ROWS(s16),
    INTEGER_ROWS(u32),
    INTEGER_ROWS(s32),
    INTEGER_ROWS(u64),
    INTEGER_ROWS(s64),
    ROUNDING_ROWS(rni),
    ROUNDING_ROWS(rzi),
    ROUNDING_ROWS(rmi),
    ROUNDING_ROWS(rpi),
    {"", "f32", "f32", f32_f32, f32_ftz},
    {"rn", "f32", "f32", f32_f32, f32_ftz},
    {"rn", "f32", "f64", f32_f64, f32_f64_ftz},
    {"", "f64", "f32", f64_f32, f64_f32_ftz},
    {"", "f64", "f64", f64_f64, NULL},
    {"", "f32", "f16", f32_f16, f32_f16},
    {"", "f32", "bf16", f32_bf16, f32_bf16_ftz},
    {"rn", "f16", "f32", f16_f32, f16_f32},
    {"rz", "f16", "f32", f16_f32_rz, NULL},
    {"rn", "bf16", "f32", bf16_f32, NULL},
    {"rz", "bf16", "f32", bf16_f32_rz, NULL},
    {"rn", "f16", "s32", f16_s32, NULL},
    {"rn", "f16", "u32", f16_u32, NULL},
    {"rn", "f16", "s16", f16_s16, NULL},
    {"rn", "f16", "u16", f16_u16, NULL},
    {"rn", "f16x2", "f32", f16x2_rn, NULL},
    {"rz", "f16x2", "f32", f16x2_rz, NULL},
    {"rn.relu", "f16x2", "f32", f16x2_relu, NULL},
    {"rn", "bf16x2", "f32", bf16x2_rn, NULL},
    {"rz", "bf16x2", "f32", bf16x2_rz, NULL},
    {"rn.relu", "bf16x2", "f32", bf16x2_relu, NULL},
};

lane_function *find_convert(const char *rounding, bool ftz, const type_info *to, const type_info *from) {
    for (size_t i = 0; i < sizeof conversions / sizeof *conversions; i++) {
        const conversion *c = &conversions[i];
        if (c->to[0] != to->name[0] || c->from[0] != from->name[0]) continue;
        if (strcmp(c->to, to->name) || strcmp(c->from, from->name) || strcmp(c->rounding, rounding)) continue;
        return ftz ? c->flushing : c->lanes;
    }
    return NULL;
}

/* ---- comparisons: a bit per lane ---- */

#define COMPARE_LOOP(name, A, view, expression)                                                                        \
    static uint32_t name(const void *va, const void *vb) {                                                             \
        const A *pa = va, *pb = vb;                                                                                    \
        uint32_t result = 0;                                                                                           \
        for (int i = 0; i < LANES; i++) {                                                                              \
            __typeof__(view(pa[i])) x = view(pa[i]), y = view(pb[i]);                                                  \
            result |= (uint32_t)(expression) << i;                                                                     \
        }                                                                                                              \
        return result;                                                                                                 \
    }
#define ORDERED_SET(type, A, view)                                                                                     \
    COMPARE_LOOP(eq_##type, A, view, x == y)                                                                           \
    COMPARE_LOOP(ne_##type, A, view, x != y)                                                                           \
    COMPARE_LOOP(lt_##type, A, view, x < y)                                                                            \
    COMPARE_LOOP(le_##type, A, view, x <= y)                                                                           \
    COMPARE_LOOP(gt_##type, A, view, x > y)                                                                            \
    COMPARE_LOOP(ge_##type, A, view, x >= y)
/* ne is ordered for floats: false with a NaN; the ..u forms are true with one */
#define FLOAT_SET(type, A, view)                                                                                       \
    COMPARE_LOOP(eq_##type, A, view, x == y)                                                                           \
    COMPARE_LOOP(ne_##type, A, view, x<y || x> y)                                                                      \
    COMPARE_LOOP(lt_##type, A, view, x < y)                                                                            \
    COMPARE_LOOP(le_##type, A, view, x <= y)                                                                           \
    COMPARE_LOOP(gt_##type, A, view, x > y)                                                                            \
    COMPARE_LOOP(ge_##type, A, view, x >= y)                                                                           \
    COMPARE_LOOP(equ_##type, A, view, !(x < y || x > y))                                                               \
    COMPARE_LOOP(neu_##type, A, view, x != y)                                                                          \
    COMPARE_LOOP(ltu_##type, A, view, !(x >= y))                                                                       \
    COMPARE_LOOP(leu_##type, A, view, !(x > y))                                                                        \
    COMPARE_LOOP(gtu_##type, A, view, !(x <= y))                                                                       \
    COMPARE_LOOP(geu_##type, A, view, !(x < y))                                                                        \
    COMPARE_LOOP(num_##type, A, view, x == x && y == y)                                                                \
    COMPARE_LOOP(nan_##type, A, view, x != x || y != y)

#define HALF_VIEW(a) half_value((a) & 0xffffu)
#define BFLOAT_VIEW(a) bfloat_value((a) & 0xffffu)
ORDERED_SET(u16, uint32_t, FROM_u16)
ORDERED_SET(s16, uint32_t, FROM_s16)
ORDERED_SET(u32, uint32_t, FROM_u32)
ORDERED_SET(s32, uint32_t, FROM_s32)
ORDERED_SET(u64, uint64_t, FROM_u64)
ORDERED_SET(s64, uint64_t, FROM_s64)
FLOAT_SET(f32, uint32_t, float_of)
FLOAT_SET(f32_ftz, uint32_t, flushed_value)
FLOAT_SET(f64, uint64_t, double_of)
FLOAT_SET(f16, uint32_t, HALF_VIEW)
FLOAT_SET(bf16, uint32_t, BFLOAT_VIEW)

typedef struct comparison {
    const char *name, *type;
    compare_function *compare;
} comparison;

#define INTEGER_COMPARISONS(type)                                                                                      \
    {"eq", #type, eq_##type}, {"ne", #type, ne_##type}, {"lt", #type, lt_##type}, {"le", #type, le_##type},            \
        {"gt", #type, gt_##type}, {                                                                                    \
        "ge", #type, ge_##type                                                                                         \
    }
#define UNSIGNED_COMPARISONS(type, bits)                                                                               \
    INTEGER_COMPARISONS(type), {"lo", #type, lt_##type}, {"ls", #type, le_##type}, {"hi", #type, gt_##type},           \
        {"hs", #type, ge_##type}, {"eq", bits, eq_##type}, {                                                           \
        "ne", bits, ne_##type                                                                                          \
    }
#define FLOAT_COMPARISONS(type, name)                                                                                  \
    {"eq", name, eq_##type}, {"ne", name, ne_##type}, {"lt", name, lt_##type}, {"le", name, le_##type},                \
        {"gt", name, gt_##type}, {"ge", name, ge_##type}, {"equ", name, equ_##type}, {"neu", name, neu_##type},        \
        {"ltu", name, ltu_##type}, {"leu", name, leu_##type}, {"gtu", name, gtu_##type}, {"geu", name, geu_##type},    \
        {"num", name, num_##type}, {                                                                                   \
        "nan", name, nan_##type                                                                                        \
    }

static const comparison comparisons[] = {
    UNSIGNED_COMPARISONS(u16, "b16"),
    UNSIGNED_COMPARISONS(u32, "b32"),
    UNSIGNED_COMPARISONS(u64, "b64"),
    INTEGER_COMPARISONS(s16),
    INTEGER_COMPARISONS(s32),
    INTEGER_COMPARISONS(s64),
    FLOAT_COMPARISONS(f32, "f32"),
    FLOAT_COMPARISONS(f64, "f64"),
    FLOAT_COMPARISONS(f16, "f16"),
    FLOAT_COMPARISONS(bf16, "bf16"),
    FLOAT_COMPARISONS(f32_ftz, "f32.ftz"),
};

compare_function *find_compare(const char *name, const type_info *type, bool ftz) {
    const char *type_name = ftz ? "f32.ftz" : type->name;
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++) {
        if (!strcmp(comparisons[i].name, name) && !strcmp(comparisons[i].type, type_name))
            return comparisons[i].compare;
    }
    return NULL;
}
