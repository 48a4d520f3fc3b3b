/* forms.c - the one table of PTX forms: what a row does not say is refused.
 *
 * modifiers: tokens in the order PTX writes them; alternatives stand between bars, a token ending in '?' may be absent.
 * operands: d is the destination, p and q are predicates, the others sources; a register has the width of the first
 * type modifier unless ".16", ".32", ".64" follows its letter. docs/emulator.md prints this table.
 */
#include "program.h"

static const type_info types[] = {
    {"pred", 1, 'p'}, {"b8", 8, 'b'},   {"u8", 8, 'u'},   {"s8", 8, 's'},     {"b16", 16, 'b'},
    {"u16", 16, 'u'}, {"s16", 16, 's'}, {"f16", 16, 'h'}, {"bf16", 16, 'g'},  {"b32", 32, 'b'},
    {"u32", 32, 'u'}, {"s32", 32, 's'}, {"f32", 32, 'f'}, {"f16x2", 32, 'H'}, {"bf16x2", 32, 'G'},
    {"b64", 64, 'b'}, {"u64", 64, 'u'}, {"s64", 64, 's'}, {"f64", 64, 'f'},   {"b128", 128, 'b'},
};

const type_info *emu_find_type(const char *name) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (*types[i].name == *name && !strcmp(types[i].name, name)) return &types[i];
    }
    return NULL;
}

state_space emu_find_space(const char *modifier) {
    static const struct {
        const char *name;
        state_space space;
    } spaces[] = {{"global", SPACE_GLOBAL},      {"shared", SPACE_SHARED},    {"shared::cta", SPACE_SHARED},
                  {"local", SPACE_LOCAL},        {"const", SPACE_CONST},      {"param", SPACE_PARAM},
                  {"param::entry", SPACE_PARAM}, {"param::func", SPACE_PARAM}};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        if (!strcmp(spaces[i].name, modifier)) return spaces[i].space;
    }
    return SPACE_GENERIC;
}

#define COMPARES "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan"
#define COMPARABLE "b16|u16|s16|b32|u32|s32|b64|u64|s64|f32|f64|f16|bf16"
#define ORDER "weak|volatile|relaxed|acquire|release?"
#define SCOPE "cta|cluster|gpu|sys?"
#define L1_HINT "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate?"
#define L2_HINT "L2::evict_normal|L2::evict_first|L2::evict_last? L2::64B|L2::128B|L2::256B?"
#define DATA "b8|u8|s8|b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64|b128"
#define LOAD_SPACES "global|shared|shared::cta|local|const|param|param::entry?"
#define STORE_SPACES "global|shared|shared::cta|local|param|param::func?"
#define SHARED "shared|shared::cta"

#define INT(opcode, modifiers, operands, function)                                                                     \
    {{opcode, modifiers, operands, "integer", ""}, emu_decode_lanes, function}
#define BIT(opcode, modifiers, operands, function)                                                                     \
    {{opcode, modifiers, operands, "logic", ""}, emu_decode_lanes, function}
#define FLOAT(opcode, modifiers, operands, function)                                                                   \
    {{opcode, modifiers, operands, "float", ""}, emu_decode_lanes, function}
#define SPECIAL(opcode, modifiers, function)                                                                           \
    {{opcode, modifiers, "d, a", "special function", "computed in f64 and rounded once"}, emu_decode_lanes, function}
#define ROW(group, opcode, modifiers, operands, decode, note) {{opcode, modifiers, operands, group, note}, decode, NULL}

const form emu_form_table[] = {
    /* integer */
    INT("add", "u16|s16", "d, a, b", emu_lanes_add_16),
    INT("add", "u32|s32", "d, a, b", emu_lanes_add_32),
    INT("add", "u64|s64", "d, a, b", emu_lanes_add_64),
    INT("sub", "u16|s16", "d, a, b", emu_lanes_sub_16),
    INT("sub", "u32|s32", "d, a, b", emu_lanes_sub_32),
    INT("sub", "u64|s64", "d, a, b", emu_lanes_sub_64),
    INT("mul", "lo u16|s16", "d, a, b", emu_lanes_mul_lo_16),
    INT("mul", "lo u32|s32", "d, a, b", emu_lanes_mul_lo_32),
    INT("mul", "lo u64|s64", "d, a, b", emu_lanes_mul_lo_64),
    INT("mul", "hi u16", "d, a, b", emu_lanes_mul_hi_u16),
    INT("mul", "hi s16", "d, a, b", emu_lanes_mul_hi_s16),
    INT("mul", "hi u32", "d, a, b", emu_lanes_mul_hi_u32),
    INT("mul", "hi s32", "d, a, b", emu_lanes_mul_hi_s32),
    INT("mul", "hi u64", "d, a, b", emu_lanes_mul_hi_u64),
    INT("mul", "hi s64", "d, a, b", emu_lanes_mul_hi_s64),
    INT("mul", "wide u16", "d.32, a, b", emu_lanes_mul_wide_u16),
    INT("mul", "wide s16", "d.32, a, b", emu_lanes_mul_wide_s16),
    INT("mul", "wide u32", "d.64, a, b", emu_lanes_mul_wide_u32),
    INT("mul", "wide s32", "d.64, a, b", emu_lanes_mul_wide_s32),
    INT("mad", "lo u16|s16", "d, a, b, c", emu_lanes_mad_lo_16),
    INT("mad", "lo u32|s32", "d, a, b, c", emu_lanes_mad_lo_32),
    INT("mad", "lo u64|s64", "d, a, b, c", emu_lanes_mad_lo_64),
    INT("mad", "hi u32", "d, a, b, c", emu_lanes_mad_hi_u32),
    INT("mad", "hi s32", "d, a, b, c", emu_lanes_mad_hi_s32),
    INT("mad", "wide u16", "d.32, a, b, c.32", emu_lanes_mad_wide_u16),
    INT("mad", "wide s16", "d.32, a, b, c.32", emu_lanes_mad_wide_s16),
    INT("mad", "wide u32", "d.64, a, b, c.64", emu_lanes_mad_wide_u32),
    INT("mad", "wide s32", "d.64, a, b, c.64", emu_lanes_mad_wide_s32),
    INT("mul24", "lo u32", "d, a, b", emu_lanes_mul24_u32),
    INT("mul24", "lo s32", "d, a, b", emu_lanes_mul24_s32),
    INT("sad", "u32", "d, a, b, c", emu_lanes_sad_u32),
    INT("sad", "s32", "d, a, b, c", emu_lanes_sad_s32),
    INT("div", "u16", "d, a, b", emu_lanes_div_u16),
    INT("div", "s16", "d, a, b", emu_lanes_div_s16),
    INT("div", "u32", "d, a, b", emu_lanes_div_u32),
    INT("div", "s32", "d, a, b", emu_lanes_div_s32),
    INT("div", "u64", "d, a, b", emu_lanes_div_u64),
    INT("div", "s64", "d, a, b", emu_lanes_div_s64),
    INT("rem", "u16", "d, a, b", emu_lanes_rem_u16),
    INT("rem", "s16", "d, a, b", emu_lanes_rem_s16),
    INT("rem", "u32", "d, a, b", emu_lanes_rem_u32),
    INT("rem", "s32", "d, a, b", emu_lanes_rem_s32),
    INT("rem", "u64", "d, a, b", emu_lanes_rem_u64),
    INT("rem", "s64", "d, a, b", emu_lanes_rem_s64),
    INT("abs", "s16", "d, a", emu_lanes_abs_s16),
    INT("abs", "s32", "d, a", emu_lanes_abs_s32),
    INT("abs", "s64", "d, a", emu_lanes_abs_s64),
    INT("neg", "s16", "d, a", emu_lanes_neg_16),
    INT("neg", "s32", "d, a", emu_lanes_neg_32),
    INT("neg", "s64", "d, a", emu_lanes_neg_64),
    INT("min", "u16", "d, a, b", emu_lanes_min_u16),
    INT("min", "s16", "d, a, b", emu_lanes_min_s16),
    INT("min", "u32", "d, a, b", emu_lanes_min_u32),
    INT("min", "s32", "d, a, b", emu_lanes_min_s32),
    INT("min", "u64", "d, a, b", emu_lanes_min_u64),
    INT("min", "s64", "d, a, b", emu_lanes_min_s64),
    INT("max", "u16", "d, a, b", emu_lanes_max_u16),
    INT("max", "s16", "d, a, b", emu_lanes_max_s16),
    INT("max", "u32", "d, a, b", emu_lanes_max_u32),
    INT("max", "s32", "d, a, b", emu_lanes_max_s32),
    INT("max", "u64", "d, a, b", emu_lanes_max_u64),
    INT("max", "s64", "d, a, b", emu_lanes_max_s64),
    INT("popc", "b32", "d, a", emu_lanes_popc_32),
    INT("popc", "b64", "d.32, a", emu_lanes_popc_64),
    INT("clz", "b32", "d, a", emu_lanes_clz_32),
    INT("clz", "b64", "d.32, a", emu_lanes_clz_64),
    INT("brev", "b32", "d, a", emu_lanes_brev_32),
    INT("brev", "b64", "d, a", emu_lanes_brev_64),
    INT("bfind", "u32", "d, a", emu_lanes_bfind_u32),
    INT("bfind", "s32", "d, a", emu_lanes_bfind_s32),
    INT("bfe", "u32", "d, a, b.32, c.32", emu_lanes_bfe_u32),
    INT("bfe", "s32", "d, a, b.32, c.32", emu_lanes_bfe_s32),
    INT("bfe", "u64", "d, a, b.32, c.32", emu_lanes_bfe_u64),
    INT("bfe", "s64", "d, a, b.32, c.32", emu_lanes_bfe_s64),
    INT("bfi", "b32", "d, a, b, c.32, e.32", emu_lanes_bfi_32),
    INT("bfi", "b64", "d, a, b, c.32, e.32", emu_lanes_bfi_64),
    INT("bmsk", "clamp b32", "d, a, b", emu_lanes_bmsk_clamp),
    INT("szext", "clamp u32", "d, a, b", emu_lanes_szext_u32),
    INT("szext", "clamp s32", "d, a, b", emu_lanes_szext_s32),
    /* logic and shifts */
    BIT("and", "b16", "d, a, b", emu_lanes_and_16),
    BIT("and", "b32", "d, a, b", emu_lanes_and_32),
    BIT("and", "b64", "d, a, b", emu_lanes_and_64),
    BIT("or", "b16", "d, a, b", emu_lanes_or_16),
    BIT("or", "b32", "d, a, b", emu_lanes_or_32),
    BIT("or", "b64", "d, a, b", emu_lanes_or_64),
    BIT("xor", "b16", "d, a, b", emu_lanes_xor_16),
    BIT("xor", "b32", "d, a, b", emu_lanes_xor_32),
    BIT("xor", "b64", "d, a, b", emu_lanes_xor_64),
    BIT("not", "b16", "d, a", emu_lanes_not_16),
    BIT("not", "b32", "d, a", emu_lanes_not_32),
    BIT("not", "b64", "d, a", emu_lanes_not_64),
    BIT("shl", "b16", "d, a, b.32", emu_lanes_shl_16),
    BIT("shl", "b32", "d, a, b.32", emu_lanes_shl_32),
    BIT("shl", "b64", "d, a, b.32", emu_lanes_shl_64),
    BIT("shr", "u16|b16", "d, a, b.32", emu_lanes_shr_u16),
    BIT("shr", "s16", "d, a, b.32", emu_lanes_shr_s16),
    BIT("shr", "u32|b32", "d, a, b.32", emu_lanes_shr_u32),
    BIT("shr", "s32", "d, a, b.32", emu_lanes_shr_s32),
    BIT("shr", "u64|b64", "d, a, b.32", emu_lanes_shr_u64),
    BIT("shr", "s64", "d, a, b.32", emu_lanes_shr_s64),
    BIT("shf", "l wrap b32", "d, a, b, c", emu_lanes_shf_l_wrap),
    BIT("shf", "l clamp b32", "d, a, b, c", emu_lanes_shf_l_clamp),
    BIT("shf", "r wrap b32", "d, a, b, c", emu_lanes_shf_r_wrap),
    BIT("shf", "r clamp b32", "d, a, b, c", emu_lanes_shf_r_clamp),
    BIT("lop3", "b32", "d, a, b, c, immediate", emu_lanes_lop3),
    BIT("prmt", "b32", "d, a, b, c", emu_lanes_prmt),
    /* floating point */
    FLOAT("add", "rn? sat? f32", "d, a, b", emu_lanes_add_f32),
    FLOAT("add", "rn? ftz sat? f32", "d, a, b", emu_lanes_add_f32_ftz),
    FLOAT("sub", "rn? sat? f32", "d, a, b", emu_lanes_sub_f32),
    FLOAT("sub", "rn? ftz sat? f32", "d, a, b", emu_lanes_sub_f32_ftz),
    FLOAT("mul", "rn? sat? f32", "d, a, b", emu_lanes_mul_f32),
    FLOAT("mul", "rn? ftz sat? f32", "d, a, b", emu_lanes_mul_f32_ftz),
    FLOAT("fma", "rn sat? f32", "d, a, b, c", emu_lanes_fma_f32),
    FLOAT("fma", "rn ftz sat? f32", "d, a, b, c", emu_lanes_fma_f32_ftz),
    FLOAT("mad", "rn f32", "d, a, b, c", emu_lanes_fma_f32),
    FLOAT("mad", "rn ftz f32", "d, a, b, c", emu_lanes_fma_f32_ftz),
    FLOAT("div", "rn|full|approx f32", "d, a, b", emu_lanes_div_f32),
    FLOAT("div", "rn|full|approx ftz f32", "d, a, b", emu_lanes_div_f32_ftz),
    FLOAT("min", "f32", "d, a, b", emu_lanes_min_f32),
    FLOAT("min", "ftz f32", "d, a, b", emu_lanes_min_f32_ftz),
    FLOAT("min", "NaN f32", "d, a, b", emu_lanes_min_nan_f32),
    FLOAT("max", "f32", "d, a, b", emu_lanes_max_f32),
    FLOAT("max", "ftz f32", "d, a, b", emu_lanes_max_f32_ftz),
    FLOAT("max", "NaN f32", "d, a, b", emu_lanes_max_nan_f32),
    FLOAT("abs", "f32", "d, a", emu_lanes_abs_f32),
    FLOAT("abs", "ftz f32", "d, a", emu_lanes_abs_f32_ftz),
    FLOAT("neg", "f32", "d, a", emu_lanes_neg_f32),
    FLOAT("neg", "ftz f32", "d, a", emu_lanes_neg_f32_ftz),
    FLOAT("copysign", "f32", "d, a, b", emu_lanes_copysign_f32),
    SPECIAL("rcp", "rn|approx f32", emu_lanes_rcp_f32),
    SPECIAL("rcp", "rn|approx ftz f32", emu_lanes_rcp_f32_ftz),
    SPECIAL("sqrt", "rn|approx f32", emu_lanes_sqrt_f32),
    SPECIAL("sqrt", "rn|approx ftz f32", emu_lanes_sqrt_f32_ftz),
    SPECIAL("rsqrt", "approx f32", emu_lanes_rsqrt_f32),
    SPECIAL("rsqrt", "approx ftz f32", emu_lanes_rsqrt_f32_ftz),
    SPECIAL("ex2", "approx f32", emu_lanes_ex2_f32),
    SPECIAL("ex2", "approx ftz f32", emu_lanes_ex2_f32_ftz),
    SPECIAL("lg2", "approx f32", emu_lanes_lg2_f32),
    SPECIAL("lg2", "approx ftz f32", emu_lanes_lg2_f32_ftz),
    SPECIAL("sin", "approx f32", emu_lanes_sin_f32),
    SPECIAL("sin", "approx ftz f32", emu_lanes_sin_f32_ftz),
    SPECIAL("cos", "approx f32", emu_lanes_cos_f32),
    SPECIAL("cos", "approx ftz f32", emu_lanes_cos_f32_ftz),
    SPECIAL("tanh", "approx f32", emu_lanes_tanh_f32),
    FLOAT("add", "rn? f64", "d, a, b", emu_lanes_add_f64),
    FLOAT("sub", "rn? f64", "d, a, b", emu_lanes_sub_f64),
    FLOAT("mul", "rn? f64", "d, a, b", emu_lanes_mul_f64),
    FLOAT("fma", "rn f64", "d, a, b, c", emu_lanes_fma_f64),
    FLOAT("div", "rn f64", "d, a, b", emu_lanes_div_f64),
    FLOAT("min", "f64", "d, a, b", emu_lanes_min_f64),
    FLOAT("max", "f64", "d, a, b", emu_lanes_max_f64),
    FLOAT("abs", "f64", "d, a", emu_lanes_abs_f64),
    FLOAT("neg", "f64", "d, a", emu_lanes_neg_f64),
    FLOAT("rcp", "rn f64", "d, a", emu_lanes_rcp_f64),
    FLOAT("sqrt", "rn f64", "d, a", emu_lanes_sqrt_f64),
#define HALVES(type)                                                                                                   \
    FLOAT("add", "rn? " #type, "d, a, b", emu_lanes_add_##type),                                                       \
        FLOAT("sub", "rn? " #type, "d, a, b", emu_lanes_sub_##type),                                                   \
        FLOAT("mul", "rn? " #type, "d, a, b", emu_lanes_mul_##type),                                                   \
        FLOAT("fma", "rn " #type, "d, a, b, c", emu_lanes_fma_##type),                                                 \
        FLOAT("min", #type, "d, a, b", emu_lanes_min_##type), FLOAT("max", #type, "d, a, b", emu_lanes_max_##type),    \
        FLOAT("neg", #type, "d, a", emu_lanes_neg_##type), FLOAT("abs", #type, "d, a", emu_lanes_abs_##type)
    HALVES(f16),
    HALVES(f16x2),
    HALVES(bf16),
    HALVES(bf16x2),
    SPECIAL("ex2", "approx f16", emu_lanes_ex2_f16),
    SPECIAL("ex2", "approx f16x2", emu_lanes_ex2_f16x2),
    /* predicates, moves, conversions */
    ROW("compare", "setp", COMPARES " ftz? " COMPARABLE, "p|q, a, b", emu_decode_compare,
        "q, the opposite, may be absent"),
    ROW("compare", "setp", COMPARES " and|or|xor ftz? " COMPARABLE, "p|q, a, b, c", emu_decode_compare,
        "c is a predicate"),
    ROW("compare", "selp", "b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64", "d, a, b, p", emu_decode_select, ""),
    ROW("compare", "and", "pred", "p, a, b", emu_decode_predicate, ""),
    ROW("compare", "or", "pred", "p, a, b", emu_decode_predicate, ""),
    ROW("compare", "xor", "pred", "p, a, b", emu_decode_predicate, ""),
    ROW("compare", "not", "pred", "p, a", emu_decode_predicate, ""),
    ROW("compare", "mov", "pred", "p, a", emu_decode_predicate, ""),
    ROW("move", "mov", "b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64|b128", "d, a", emu_decode_move,
        "a: register, number, special register, variable; either side may be a vector that is packed or unpacked"),
    ROW("move", "cvta", "to? global|shared|local|const|param u64", "d, a", emu_decode_address_convert, ""),
    ROW("move", "isspacep", "global|shared|local|const", "p, a.64", emu_decode_is_space, ""),
    ROW("convert", "cvt", "u8|s8|u16|s16|u32|s32|u64|s64 u8|s8|u16|s16|u32|s32|u64|s64", "d, a", emu_decode_convert,
        "registers may be wider than the types"),
    ROW("convert", "cvt", "rni|rzi|rmi|rpi ftz? u16|s16|u32|s32|u64|s64 f32|f64|f16", "d, a", emu_decode_convert,
        "out of range gives the nearest value"),
    ROW("convert", "cvt", "rn f32|f64 u8|s8|u16|s16|u32|s32|u64|s64", "d, a", emu_decode_convert, ""),
    ROW("convert", "cvt", "rn f16 u16|s16|u32|s32", "d, a", emu_decode_convert, ""),
    ROW("convert", "cvt", "rni|rzi|rmi|rpi ftz? sat? f32 f32", "d, a", emu_decode_convert,
        "rounds to an integral value"),
    ROW("convert", "cvt", "rn? ftz? sat? f32 f32|f64", "d, a", emu_decode_convert, ""),
    ROW("convert", "cvt", "ftz? f32 f16|bf16", "d, a", emu_decode_convert, ""),
    ROW("convert", "cvt", "ftz? f64 f32|f64", "d, a", emu_decode_convert, ""),
    ROW("convert", "cvt", "rn ftz? f16 f32", "d, a", emu_decode_convert, ""),
    ROW("convert", "cvt", "rz f16 f32", "d, a", emu_decode_convert, ""),
    ROW("convert", "cvt", "rn|rz bf16 f32", "d, a", emu_decode_convert, ""),
    ROW("convert", "cvt", "rn|rz relu? f16x2|bf16x2 f32", "d, a, b", emu_decode_convert, "a becomes the upper half"),
    /* memory */
    ROW("memory", "ld", ORDER " " SCOPE " " LOAD_SPACES " ca|cg|cs|lu|cv? nc? " L1_HINT " " L2_HINT " v2|v4? " DATA,
        "d, [a]", emu_decode_load, "d: a vector with v2 and v4; cache operators change nothing here"),
    ROW("memory", "ldu", "global? v2|v4? " DATA, "d, [a]", emu_decode_load, ""),
    ROW("memory", "st", ORDER " " SCOPE " " STORE_SPACES " wb|cg|cs|wt? " L1_HINT " " L2_HINT " v2|v4? " DATA, "[a], b",
        emu_decode_store, ""),
    ROW("memory", "atom",
        "relaxed|acquire|release|acq_rel? " SCOPE " global|" SHARED "? add|min|max|and|or|xor|exch|cas "
        "b32|u32|s32|f32|b64|u64|s64",
        "d, [a], b, c", emu_decode_atomic, "c with cas only; f32 with add only"),
    ROW("memory", "red",
        "relaxed|release? " SCOPE " global|" SHARED "? add|min|max|and|or|xor "
        "b32|u32|s32|f32|b64|u64|s64",
        "[a], b", emu_decode_reduction, "f32 with add only"),
    ROW("memory", "prefetch", "global|local? L1|L2", "[a]", emu_decode_nothing, "does nothing"),
    ROW("memory", "prefetchu", "L1", "[a]", emu_decode_nothing, "does nothing"),
    ROW("ldmatrix", "ldmatrix", "sync aligned m8n8 x1|x2|x4 trans? " SHARED "? b16", "{d, ...}, [a]",
        emu_decode_ldmatrix, ""),
    ROW("mma", "mma", "sync aligned m16n8k16|m16n8k8 row col f32 f16 f16 f32", "{d0..3}, {a}, {b}, {c0..3}",
        emu_decode_mma, "one sum of exact terms, cut as on an H200"),
    ROW("mma", "mma", "sync aligned m16n8k16|m16n8k8 row col f32 bf16 bf16 f32", "{d0..3}, {a}, {b}, {c0..3}",
        emu_decode_mma, "likewise"),
    /* asynchronous copies */
    ROW("cp.async", "cp", "async ca|cg shared|shared::cta global L2::64B|L2::128B|L2::256B?",
        "[d], [a], bytes, source-bytes", emu_decode_copy_async,
        "bytes 4, 8 or 16 (cg: 16); source-bytes may be absent; the rest is filled with zeros"),
    ROW("cp.async", "cp", "async commit_group", "", emu_decode_copy_commit, ""),
    ROW("cp.async", "cp", "async wait_group", "n", emu_decode_copy_wait, "copies land here, as late as allowed"),
    ROW("cp.async", "cp", "async wait_all", "", emu_decode_copy_wait, ""),
    ROW("cp.async", "cp", "async mbarrier arrive noinc? shared|shared::cta? b64", "[a]", emu_decode_copy_arrive, ""),
    /* synchronisation */
    ROW("barrier", "bar", "cta? sync", "a, b", emu_decode_barrier,
        "a: 0 to 15, may be absent; b: threads, may be absent"),
    ROW("barrier", "bar", "cta? arrive", "a, b", emu_decode_barrier, ""),
    ROW("barrier", "bar", "cta? red popc u32", "d, a, b, p", emu_decode_barrier, "b may be absent"),
    ROW("barrier", "bar", "cta? red and|or pred", "p, a, b, c", emu_decode_barrier, "b may be absent"),
    ROW("barrier", "barrier", "cta? sync aligned?", "a, b", emu_decode_barrier,
        "all lanes of a warp must arrive together"),
    ROW("barrier", "barrier", "cta? arrive aligned?", "a, b", emu_decode_barrier, "likewise"),
    ROW("barrier", "barrier", "cta? red popc aligned? u32", "d, a, b, p", emu_decode_barrier, "likewise"),
    ROW("barrier", "barrier", "cta? red and|or aligned? pred", "p, a, b, c", emu_decode_barrier, "likewise"),
    ROW("barrier", "bar", "warp sync", "mask", emu_decode_warp_barrier, ""),
    ROW("warp", "shfl", "sync up|down|bfly|idx b32", "d|p, a, b, c, mask", emu_decode_shuffle, "p may be absent"),
    ROW("warp", "vote", "sync any|all|uni pred", "p, a, mask", emu_decode_vote, ""),
    ROW("warp", "vote", "sync ballot b32", "d, a, mask", emu_decode_vote, ""),
    ROW("warp", "activemask", "b32", "d", emu_decode_active_mask, ""),
    ROW("warp", "redux", "sync add|min|max u32|s32", "d, a, mask", emu_decode_redux, ""),
    ROW("warp", "redux", "sync and|or|xor b32", "d, a, mask", emu_decode_redux, ""),
    ROW("warp", "match", "any sync b32|b64", "d.32, a, mask", emu_decode_match, ""),
    ROW("mbarrier", "mbarrier", "init shared|shared::cta? b64", "[a], count", emu_decode_mbarrier_init, ""),
    ROW("mbarrier", "mbarrier", "inval shared|shared::cta? b64", "[a]", emu_decode_mbarrier_invalidate, ""),
    ROW("mbarrier", "mbarrier", "arrive release? cta? shared|shared::cta? b64", "state, [a], count",
        emu_decode_mbarrier_arrive, "count may be absent; state may be _"),
    ROW("mbarrier", "mbarrier", "test_wait|try_wait acquire? cta? shared|shared::cta? b64", "p, [a], state",
        emu_decode_mbarrier_wait, "try_wait blocks until the phase is complete; a time limit is ignored"),
    ROW("mbarrier", "mbarrier", "test_wait|try_wait parity acquire? cta? shared|shared::cta? b64", "p, [a], parity",
        emu_decode_mbarrier_wait, "likewise"),
    ROW("fence", "membar", "cta|gl|sys", "", emu_decode_nothing, "memory is sequentially consistent here"),
    ROW("fence", "fence", "sc|acq_rel? cta|cluster|gpu|sys", "", emu_decode_nothing, "likewise"),
    ROW("fence", "fence", "proxy async", "", emu_decode_nothing, "likewise"),
    /* control */
    ROW("control", "bra", "uni?", "label", emu_decode_branch, ""),
    ROW("control", "ret", "uni?", "", emu_decode_exit, ""),
    ROW("control", "exit", "", "", emu_decode_exit, ""),
    ROW("control", "trap", "", "", emu_decode_trap, ""),
    ROW("control", "brkpt", "", "", emu_decode_nothing, "does nothing"),
    ROW("control", "nanosleep", "u32", "a", emu_decode_nothing, "does nothing"),
    ROW("control", "call", "uni?", "(d), function, (a, ...)", emu_decode_call, "vprintf and __assertfail only"),
};

const size_t emu_form_count = sizeof emu_form_table / sizeof *emu_form_table;

const emu_form *emu_form_at(size_t index) {
    return index < emu_form_count ? &emu_form_table[index].row : NULL;
}

/* ---- matching ---- */

enum { FORM_HASH = 256 };

static unsigned hash_opcode(const char *opcode) {
    unsigned hash = 0;
    for (; *opcode; opcode++) hash = hash * 31 + (uint8_t)*opcode;
    return hash % FORM_HASH;
}

/* Whether the piece is one of the alternatives between token and end. */
static bool one_of(const char *piece, const char *token, const char *end) {
    size_t length = strlen(piece);
    while (token < end) {
        const char *bar = memchr(token, '|', (size_t)(end - token));
        size_t alternative = (size_t)((bar ? bar : end) - token);
        if (alternative == length && !memcmp(token, piece, length)) return true;
        token += alternative + 1;
    }
    return false;
}

/* Match the pieces of an opcode against a row; *reached is the first piece that did not fit. */
static bool match_row(const form *row, const opcode *in, form_match *match, int *reached) {
    const char *at = row->row.modifiers;
    int piece = 1, count = 0;
    *match = (form_match){.vector = 1};
    while (*at) {
        const char *end = strchr(at, ' ');
        if (!end) end = at + strlen(at);
        bool optional = end[-1] == '?';
        if (piece < in->piece_count && one_of(in->pieces[piece], at, optional ? end - 1 : end)) {
            match->chosen[count] = in->pieces[piece++];
            const type_info *type = emu_find_type(match->chosen[count]);
            if (type && match->type_count < 4) match->types[match->type_count++] = type;
            if (!strcmp(match->chosen[count], "v2")) match->vector = 2;
            if (!strcmp(match->chosen[count], "v4")) match->vector = 4;
            if (match->space == SPACE_GENERIC) match->space = emu_find_space(match->chosen[count]);
        } else if (!optional) {
            *reached = piece;
            return false;
        }
        match->chosen_count = ++count;
        at = *end ? end + 1 : end;
    }
    *reached = piece;
    return piece == in->piece_count;
}

/* Widths of the operands as the row's text has them: "a.32" or that of the type. */
static void read_operands(const form *row, form_match *match) {
    const char *at = row->row.operands;
    for (match->operand_count = 0; at; match->operand_count++) {
        const char *comma = strchr(at, ','), *dot = strchr(at, '.');
        int bits = *at == 'i' ? 0 : match->types[0]->bits;
        if (dot && (!comma || dot < comma)) bits = dot[1] == '1' ? 16 : dot[1] == '3' ? 32 : 64;
        match->operand_bits[match->operand_count] = (uint8_t)bits;
        at = comma ? comma + 2 : NULL;
    }
}

/* Rows by opcode: first[hash] is 1 + the first row of a chain, next[row] likewise. */
void emu_index_forms(loader *load) {
    load->first_form = emu_load_alloc(load, FORM_HASH * sizeof *load->first_form);
    load->next_form = emu_load_alloc(load, emu_form_count * sizeof *load->next_form);
    for (size_t i = emu_form_count; i-- > 0;) {
        uint16_t *head = &load->first_form[hash_opcode(emu_form_table[i].row.opcode)];
        load->next_form[i] = *head;
        *head = (uint16_t)(i + 1);
    }
}

const form *emu_find_form(loader *load, const statement *where, form_match *match) {
    const opcode *in = where->opcode;
    int best = 0;
    char whole[128] = "";
    for (unsigned at = load->first_form[hash_opcode(in->pieces[0])]; at; at = load->next_form[at - 1]) {
        size_t i = at - 1;
        int reached;
        if (strcmp(emu_form_table[i].row.opcode, in->pieces[0])) continue;
        if (match_row(&emu_form_table[i], in, match, &reached)) {
            if (emu_form_table[i].lanes) read_operands(&emu_form_table[i], match);
            return &emu_form_table[i];
        }
        if (reached > best) best = reached;
    }
    for (int i = 0; i < in->piece_count; i++) {
        size_t used = strlen(whole);
        snprintf(whole + used, sizeof whole - used, "%s%.40s", i ? "." : "", in->pieces[i]);
    }
    if (!best) emu_load_fail(load, where->line, "opcode '%.40s' of '%s' is not supported", in->pieces[0], whole);
    if (best >= in->piece_count)
        emu_load_fail(load, where->line, "'%s' is not supported: a modifier is missing after it", whole);
    emu_load_fail(load, where->line, "modifier '.%.40s' of '%s' is not supported in this place", in->pieces[best],
                  whole);
}
