/* convert.c - cvt and setp: the lane functions, and emu_find_conversion() and emu_find_compare() to choose among them.
 *
 * A function for each pair of types would be hundreds. Integers pass through 64 bits instead and floats on their way to
 * integers through f64, both without loss, so a conversion is one to three steps:
 *
 *     cvt.u8.s16:      s16 -> 64 bits -> u8
 *     cvt.rn.f16.s32:  s32 -> 64 bits -> f32 -> f16
 *     cvt.rzi.s32.f32: f32 -> f64 -> an integral f64 -> s32
 */
#include "lane_loop.h"

#include <string.h>

#define CONVERT_LOOP(name, D, A, value)                                                                                \
    static void name(void *vd, const void *va, const void *vb, const void *vc) {                                       \
        D *d = vd;                                                                                                     \
        const A *pa = va;                                                                                              \
        (void)vb, (void)vc;                                                                                            \
        _Pragma("GCC ivdep")                                                                                           \
        for (int i = 0; i < LANES; i++) {                                                                              \
            const A a = pa[i];                                                                                         \
            d[i] = (D)(value);                                                                                         \
        }                                                                                                              \
    }

/* ---- integers to 64 bits by their type, and back to the low bits ---- */

CONVERT_LOOP(wide_u8, uint64_t, uint32_t, a & 0xffu)
CONVERT_LOOP(wide_s8, uint64_t, uint32_t, (int64_t)(int8_t)a)
CONVERT_LOOP(wide_u16, uint64_t, uint32_t, a & 0xffffu)
CONVERT_LOOP(wide_s16, uint64_t, uint32_t, (int64_t)(int16_t)a)
CONVERT_LOOP(wide_s32, uint64_t, uint32_t, (int64_t)(int32_t)a)
CONVERT_LOOP(low_u8, uint32_t, uint64_t, a & 0xffu)
CONVERT_LOOP(low_s8, uint32_t, uint64_t, (uint16_t)(int8_t)a)
CONVERT_LOOP(low_16, uint32_t, uint64_t, a & 0xffffu)
CONVERT_LOOP(f32_u64, uint32_t, uint64_t, bits_of((float)a))
CONVERT_LOOP(f32_s64, uint32_t, uint64_t, bits_of((float)(int64_t)a))
CONVERT_LOOP(f64_u64, uint64_t, uint64_t, bits_of_double((double)a))
CONVERT_LOOP(f64_s64, uint64_t, uint64_t, bits_of_double((double)(int64_t)a))

/* ---- f64 to integers: round, clamp to the range; NaN gives 0 below 64 bits and the top bit alone at 64 ---- */

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

CONVERT_LOOP(f64_rni, uint64_t, uint64_t, bits_of_double(rint(double_of(a))))
CONVERT_LOOP(f64_rzi, uint64_t, uint64_t, bits_of_double(trunc(double_of(a))))
CONVERT_LOOP(f64_rmi, uint64_t, uint64_t, bits_of_double(floor(double_of(a))))
CONVERT_LOOP(f64_rpi, uint64_t, uint64_t, bits_of_double(ceil(double_of(a))))
CONVERT_LOOP(u16_f64, uint32_t, uint64_t, to_unsigned(double_of(a), 16))
CONVERT_LOOP(s16_f64, uint32_t, uint64_t, to_signed(double_of(a), 16) & 0xffffu)
CONVERT_LOOP(u32_f64, uint32_t, uint64_t, to_unsigned(double_of(a), 32))
CONVERT_LOOP(s32_f64, uint32_t, uint64_t, to_signed(double_of(a), 32))
CONVERT_LOOP(u64_f64, uint64_t, uint64_t, to_unsigned(double_of(a), 64))
CONVERT_LOOP(s64_f64, uint64_t, uint64_t, to_signed(double_of(a), 64))

/* ---- float to float ---- */

CONVERT_LOOP(f32_f32, uint32_t, uint32_t, canonical(float_of(a)))
CONVERT_LOOP(f32_f32_ftz, uint32_t, uint32_t, flushed(canonical(float_of(a))))
CONVERT_LOOP(f32_f64, uint32_t, uint64_t, canonical((float)double_of(a)))
CONVERT_LOOP(f32_f64_ftz, uint32_t, uint64_t, flushed(canonical((float)double_of(a))))
CONVERT_LOOP(f64_f32, uint64_t, uint32_t, bits_of_double((double)float_of(a)))
CONVERT_LOOP(f64_f32_ftz, uint64_t, uint32_t, bits_of_double((double)flushed_value(a)))
CONVERT_LOOP(f64_f16, uint64_t, uint32_t, bits_of_double((double)half_value(a)))
CONVERT_LOOP(f32_f16, uint32_t, uint32_t, canonical(half_value(a)))
CONVERT_LOOP(f32_bf16, uint32_t, uint32_t, canonical(bfloat_value(a)))
CONVERT_LOOP(f32_bf16_ftz, uint32_t, uint32_t, flushed(canonical(bfloat_value(a))))
CONVERT_LOOP(f16_f32, uint32_t, uint32_t, half_bits(float_of(a)))
CONVERT_LOOP(f16_f32_rz, uint32_t, uint32_t, half_bits_rz(float_of(a)))
CONVERT_LOOP(bf16_f32, uint32_t, uint32_t, bfloat_bits(float_of(a)))
CONVERT_LOOP(bf16_f32_rz, uint32_t, uint32_t, bfloat_bits_rz(float_of(a)))

/* cvt.rn.f16x2.f32 d, a, b: a goes to the upper half; frequent.c has the plain .rn */
#define PACK_LOOP(name, to_bits)                                                                                       \
    static void name(void *vd, const void *va, const void *vb, const void *vc) {                                       \
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
PACK_LOOP(f16x2_rz, half_bits_rz)
PACK_LOOP(f16x2_relu, HALF_RELU)
PACK_LOOP(bf16x2_rz, bfloat_bits_rz)
PACK_LOOP(bf16x2_relu, BFLOAT_RELU)

/* ---- choice ---- */

typedef struct named_function {
    const char *name;
    lane_function *lanes;
} named_function;

static const named_function to_wide[] = {{"u8", wide_u8},
                                         {"s8", wide_s8},
                                         {"u16", wide_u16},
                                         {"s16", wide_s16},
                                         {"u32", emu_lanes_wide_u32},
                                         {"s32", wide_s32},
                                         {"u64", emu_lanes_mov_64},
                                         {"s64", emu_lanes_mov_64}};
static const named_function from_wide[] = {{"u8", low_u8},
                                           {"s8", low_s8},
                                           {"u16", low_16},
                                           {"s16", low_16},
                                           {"u32", emu_lanes_truncate},
                                           {"s32", emu_lanes_truncate},
                                           {"u64", emu_lanes_mov_64},
                                           {"s64", emu_lanes_mov_64}};
static const named_function clamps[] = {{"u16", u16_f64}, {"s16", s16_f64}, {"u32", u32_f64},
                                        {"s32", s32_f64}, {"u64", u64_f64}, {"s64", s64_f64}};
static const named_function roundings[] = {{"rni", f64_rni}, {"rzi", f64_rzi}, {"rmi", f64_rmi}, {"rpi", f64_rpi}};

#define NAMED(table, name) find_named(table, sizeof(table) / sizeof *(table), name)
static lane_function *find_named(const named_function *table, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(table[i].name, name)) return table[i].lanes;
    }
    return NULL;
}

typedef struct float_conversion {
    const char *rounding, *to, *from;
    lane_function *lanes, *flushing; /* flushing: with .ftz, NULL where it is not allowed */
} float_conversion;

static const float_conversion float_conversions[] = {
    {"", "f32", "f32", f32_f32, f32_f32_ftz},
    {"rn", "f32", "f32", f32_f32, f32_f32_ftz},
    {"rn", "f32", "f64", f32_f64, f32_f64_ftz},
    {"", "f64", "f32", f64_f32, f64_f32_ftz},
    {"", "f64", "f64", emu_lanes_mov_64, NULL},
    {"", "f64", "f16", f64_f16, NULL},
    {"", "f32", "f16", f32_f16, f32_f16},
    {"", "f32", "bf16", f32_bf16, f32_bf16_ftz},
    {"rn", "f16", "f32", f16_f32, f16_f32},
    {"rz", "f16", "f32", f16_f32_rz, NULL},
    {"rn", "bf16", "f32", bf16_f32, NULL},
    {"rz", "bf16", "f32", bf16_f32_rz, NULL},
    {"rn", "f16x2", "f32", emu_lanes_f16x2_rn, NULL},
    {"rz", "f16x2", "f32", f16x2_rz, NULL},
    {"rn.relu", "f16x2", "f32", f16x2_relu, NULL},
    {"rn", "bf16x2", "f32", emu_lanes_bf16x2_rn, NULL},
    {"rz", "bf16x2", "f32", bf16x2_rz, NULL},
    {"rn.relu", "bf16x2", "f32", bf16x2_relu, NULL},
};

static lane_function *find_float(const char *rounding, bool ftz, const char *to, const char *from) {
    for (size_t i = 0; i < sizeof float_conversions / sizeof *float_conversions; i++) {
        const float_conversion *c = &float_conversions[i];
        if (!strcmp(c->to, to) && !strcmp(c->from, from) && !strcmp(c->rounding, rounding))
            return ftz ? c->flushing : c->lanes;
    }
    return NULL;
}

/* Append a step whose result has that many bits; a step that is not there makes the whole conversion unknown. */
static void add_step(conversion *way, lane_function *lanes, int bits) {
    way->steps[way->count] = lanes;
    way->bits[way->count++] = (uint8_t)bits;
}

static void integer_steps(conversion *way, const type_info *to, const type_info *from) {
    bool is_signed = from->family == 's';
    if (from->bits < 64) add_step(way, NAMED(to_wide, from->name), 64);
    if (to->family == 'f') {
        bool single = to->bits == 32;
        add_step(way, single ? is_signed ? f32_s64 : f32_u64 : is_signed ? f64_s64 : f64_u64, to->bits);
    } else if (to->family == 'h') {
        add_step(way, is_signed ? f32_s64 : f32_u64, 32);
        add_step(way, f16_f32, 16);
    } else if (to->bits < 64 || from->bits == 64) {
        add_step(way, NAMED(from_wide, to->name), to->bits < 16 ? 16 : to->bits);
    }
}

static void rounding_steps(conversion *way, lane_function *rounding, bool ftz, const type_info *to,
                           const type_info *from) {
    if (from->bits < 64 || ftz) add_step(way, find_float("", ftz, "f64", from->name), 64);
    add_step(way, rounding, 64);
    bool to_float = to->family == 'f';
    add_step(way, to_float ? find_float("rn", ftz, to->name, "f64") : NAMED(clamps, to->name), to->bits);
}

bool emu_find_conversion(const char *rounding, bool ftz, const type_info *to, const type_info *from, conversion *way) {
    *way = (conversion){0};
    lane_function *integral = NAMED(roundings, rounding);
    if (integral)
        rounding_steps(way, integral, ftz, to, from);
    else if (strchr("us", from->family))
        integer_steps(way, to, from);
    else
        add_step(way, find_float(rounding, ftz, to->name, from->name), to->bits);
    for (int i = 0; i < way->count; i++) {
        if (!way->steps[i]) return false;
    }
    return true;
}

/* ---- comparisons: a bit per lane where the relation of the two values is one of the wanted ---- */

enum { LESS = 1, EQUAL = 2, GREATER = 4, UNORDERED = 8 };

#define COMPARE_LOOP(name, A, T, view)                                                                                 \
    static uint32_t name(const void *va, const void *vb, uint32_t wanted) {                                            \
        const A *pa = va, *pb = vb;                                                                                    \
        uint32_t result = 0;                                                                                           \
        for (int i = 0; i < LANES; i++) {                                                                              \
            const T x = view(pa[i]), y = view(pb[i]);                                                                  \
            uint32_t relation = x < y ? LESS : x > y ? GREATER : x == y ? EQUAL : UNORDERED;                           \
            result |= (uint32_t)((relation & wanted) != 0) << i;                                                       \
        }                                                                                                              \
        return result;                                                                                                 \
    }
#define LOW_16(a) (uint16_t)(a)
COMPARE_LOOP(compare_u16, uint32_t, uint16_t, LOW_16)
COMPARE_LOOP(compare_s16, uint32_t, int16_t, (int16_t))
COMPARE_LOOP(compare_u32, uint32_t, uint32_t, )
COMPARE_LOOP(compare_s32, uint32_t, int32_t, (int32_t))
COMPARE_LOOP(compare_u64, uint64_t, uint64_t, )
COMPARE_LOOP(compare_s64, uint64_t, int64_t, (int64_t))
COMPARE_LOOP(compare_f32, uint32_t, float, float_of)
COMPARE_LOOP(compare_f32_ftz, uint32_t, float, flushed_value)
COMPARE_LOOP(compare_f64, uint64_t, double, double_of)
COMPARE_LOOP(compare_f16, uint32_t, float, half_value)
COMPARE_LOOP(compare_bf16, uint32_t, float, bfloat_value)

static const struct {
    const char *type;
    compare_function *compare;
} compare_functions[] = {
    {"b16", compare_u16}, {"b32", compare_u32}, {"b64", compare_u64},   {"u16", compare_u16}, {"u32", compare_u32},
    {"u64", compare_u64}, {"s16", compare_s16}, {"s32", compare_s32},   {"s64", compare_s64}, {"f32", compare_f32},
    {"f64", compare_f64}, {"f16", compare_f16}, {"bf16", compare_bf16},
};

/* ne is ordered for floats: false with a NaN; the ..u forms are true with one. */
static const struct {
    const char *name, *families; /* of type_info */
    uint8_t wanted;
} comparisons[] = {
    {"eq", "busfhg", EQUAL},
    {"ne", "busfhg", LESS | GREATER},
    {"lt", "usfhg", LESS},
    {"le", "usfhg", LESS | EQUAL},
    {"gt", "usfhg", GREATER},
    {"ge", "usfhg", GREATER | EQUAL},
    {"lo", "u", LESS},
    {"ls", "u", LESS | EQUAL},
    {"hi", "u", GREATER},
    {"hs", "u", GREATER | EQUAL},
    {"equ", "fhg", EQUAL | UNORDERED},
    {"neu", "fhg", LESS | GREATER | UNORDERED},
    {"ltu", "fhg", LESS | UNORDERED},
    {"leu", "fhg", LESS | EQUAL | UNORDERED},
    {"gtu", "fhg", GREATER | UNORDERED},
    {"geu", "fhg", GREATER | EQUAL | UNORDERED},
    {"num", "fhg", LESS | EQUAL | GREATER},
    {"nan", "fhg", UNORDERED},
};

compare_function *emu_find_compare(const char *name, const type_info *type, bool ftz, uint8_t *wanted) {
    *wanted = 0;
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++) {
        if (!strcmp(comparisons[i].name, name) && strchr(comparisons[i].families, type->family))
            *wanted = comparisons[i].wanted;
    }
    if (!*wanted) return NULL;
    if (ftz) return strcmp(type->name, "f32") ? NULL : compare_f32_ftz;
    for (size_t i = 0; i < sizeof compare_functions / sizeof *compare_functions; i++) {
        if (!strcmp(compare_functions[i].type, type->name)) return compare_functions[i].compare;
    }
    return NULL;
}
