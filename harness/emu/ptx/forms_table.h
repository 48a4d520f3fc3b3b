/* forms_table.h - the one table of PTX forms: what a row does not say is refused.
 *
 *     #define LANES_ROW(group, opcode, modifiers, operands, note, function) lane_function function;
 *     #define RULE_ROW(group, opcode, modifiers, operands, note, function)
 *     #include "forms_table.h"
 *
 * A row of LANES_ROW is done by a lane function of the machine, one of RULE_ROW is decoded by a function of its own.
 * The table of rows (forms.c), the declarations of the lane functions (lanes.h) and of the decoding functions
 * (decode_rules.h) are made from this text.
 *
 * modifiers: tokens in the order PTX writes them; alternatives stand between bars, a token ending in '?' may be absent.
 * operands: d is the destination, p and q are predicates, the others sources; a register has the width of the first
 * type modifier unless ".16", ".32", ".64" follows its letter. docs/emulator.md prints this table.
 */
#define COMPARES "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan"
#define COMPARABLE "b16|u16|s16|b32|u32|s32|b64|u64|s64|f32|f64|f16|bf16"
#define LOAD_ORDER "weak|volatile|relaxed|acquire? mmio?"
#define STORE_ORDER "weak|volatile|relaxed|release? mmio?"
#define SCOPE "cta|cluster|gpu|sys?"
#define L1_HINT "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate?"
#define L2_HINT "L2::evict_normal|L2::evict_first|L2::evict_last? L2::64B|L2::128B|L2::256B?"
#define SHARED "shared|shared::cta"
#define CACHE_HINT "L2::cache_hint?"
#define ATOMIC_SPACES "global|" SHARED "?"
#define DATA "b8|u8|s8|b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64|b128"
#define LOAD_SPACES "global|shared|shared::cta|local|const|param|param::entry?"
#define STORE_SPACES "global|shared|shared::cta|local|param|param::func?"

#define INT(opcode, modifiers, operands, function) LANES_ROW("integer", opcode, modifiers, operands, "", function)
#define BIT(opcode, modifiers, operands, function) LANES_ROW("logic", opcode, modifiers, operands, "", function)
#define FLOAT(opcode, modifiers, operands, function) LANES_ROW("float", opcode, modifiers, operands, "", function)
#define SPECIAL(opcode, modifiers, function)                                                                           \
    LANES_ROW("special function", opcode, modifiers, "d, a", "computed in f64 and rounded once", function)
#define H200(opcode, modifiers, operands, function)                                                                    \
    LANES_ROW("special function", opcode, modifiers, operands, "as an H200, bit for bit", function)
#define ROW(group, opcode, modifiers, operands, function, note)                                                        \
    RULE_ROW(group, opcode, modifiers, operands, note, function)

/* integer */
INT("add", "u16|s16", "d, a, b", emu_lanes_add_16)
INT("add", "u32|s32", "d, a, b", emu_lanes_add_32)
INT("add", "u64|s64", "d, a, b", emu_lanes_add_64)
INT("sub", "u16|s16", "d, a, b", emu_lanes_sub_16)
INT("sub", "u32|s32", "d, a, b", emu_lanes_sub_32)
INT("sub", "u64|s64", "d, a, b", emu_lanes_sub_64)
INT("mul", "lo u16|s16", "d, a, b", emu_lanes_mul_lo_16)
INT("mul", "lo u32|s32", "d, a, b", emu_lanes_mul_lo_32)
INT("mul", "lo u64|s64", "d, a, b", emu_lanes_mul_lo_64)
INT("mul", "hi u16", "d, a, b", emu_lanes_mul_hi_u16)
INT("mul", "hi s16", "d, a, b", emu_lanes_mul_hi_s16)
INT("mul", "hi u32", "d, a, b", emu_lanes_mul_hi_u32)
INT("mul", "hi s32", "d, a, b", emu_lanes_mul_hi_s32)
INT("mul", "hi u64", "d, a, b", emu_lanes_mul_hi_u64)
INT("mul", "hi s64", "d, a, b", emu_lanes_mul_hi_s64)
INT("mul", "wide u16", "d.32, a, b", emu_lanes_mul_wide_u16)
INT("mul", "wide s16", "d.32, a, b", emu_lanes_mul_wide_s16)
INT("mul", "wide u32", "d.64, a, b", emu_lanes_mul_wide_u32)
INT("mul", "wide s32", "d.64, a, b", emu_lanes_mul_wide_s32)
INT("mad", "lo u16|s16", "d, a, b, c", emu_lanes_mad_lo_16)
INT("mad", "lo u32|s32", "d, a, b, c", emu_lanes_mad_lo_32)
INT("mad", "lo u64|s64", "d, a, b, c", emu_lanes_mad_lo_64)
INT("mad", "hi u32", "d, a, b, c", emu_lanes_mad_hi_u32)
INT("mad", "hi s32", "d, a, b, c", emu_lanes_mad_hi_s32)
INT("mad", "wide u16", "d.32, a, b, c.32", emu_lanes_mad_wide_u16)
INT("mad", "wide s16", "d.32, a, b, c.32", emu_lanes_mad_wide_s16)
INT("mad", "wide u32", "d.64, a, b, c.64", emu_lanes_mad_wide_u32)
INT("mad", "wide s32", "d.64, a, b, c.64", emu_lanes_mad_wide_s32)
INT("mul24", "lo u32", "d, a, b", emu_lanes_mul24_u32)
INT("mul24", "lo s32", "d, a, b", emu_lanes_mul24_s32)
INT("sad", "u32", "d, a, b, c", emu_lanes_sad_u32)
INT("sad", "s32", "d, a, b, c", emu_lanes_sad_s32)
INT("div", "u16", "d, a, b", emu_lanes_div_u16)
INT("div", "s16", "d, a, b", emu_lanes_div_s16)
INT("div", "u32", "d, a, b", emu_lanes_div_u32)
INT("div", "s32", "d, a, b", emu_lanes_div_s32)
INT("div", "u64", "d, a, b", emu_lanes_div_u64)
INT("div", "s64", "d, a, b", emu_lanes_div_s64)
INT("rem", "u16", "d, a, b", emu_lanes_rem_u16)
INT("rem", "s16", "d, a, b", emu_lanes_rem_s16)
INT("rem", "u32", "d, a, b", emu_lanes_rem_u32)
INT("rem", "s32", "d, a, b", emu_lanes_rem_s32)
INT("rem", "u64", "d, a, b", emu_lanes_rem_u64)
INT("rem", "s64", "d, a, b", emu_lanes_rem_s64)
INT("abs", "s16", "d, a", emu_lanes_abs_s16)
INT("abs", "s32", "d, a", emu_lanes_abs_s32)
INT("abs", "s64", "d, a", emu_lanes_abs_s64)
INT("neg", "s16", "d, a", emu_lanes_neg_16)
INT("neg", "s32", "d, a", emu_lanes_neg_32)
INT("neg", "s64", "d, a", emu_lanes_neg_64)
INT("min", "u16", "d, a, b", emu_lanes_min_u16)
INT("min", "s16", "d, a, b", emu_lanes_min_s16)
INT("min", "u32", "d, a, b", emu_lanes_min_u32)
INT("min", "s32", "d, a, b", emu_lanes_min_s32)
INT("min", "u64", "d, a, b", emu_lanes_min_u64)
INT("min", "s64", "d, a, b", emu_lanes_min_s64)
INT("max", "u16", "d, a, b", emu_lanes_max_u16)
INT("max", "s16", "d, a, b", emu_lanes_max_s16)
INT("max", "u32", "d, a, b", emu_lanes_max_u32)
INT("max", "s32", "d, a, b", emu_lanes_max_s32)
INT("max", "u64", "d, a, b", emu_lanes_max_u64)
INT("max", "s64", "d, a, b", emu_lanes_max_s64)
INT("popc", "b32", "d, a", emu_lanes_popc_32)
INT("popc", "b64", "d.32, a", emu_lanes_popc_64)
INT("clz", "b32", "d, a", emu_lanes_clz_32)
INT("clz", "b64", "d.32, a", emu_lanes_clz_64)
INT("brev", "b32", "d, a", emu_lanes_brev_32)
INT("brev", "b64", "d, a", emu_lanes_brev_64)
INT("bfind", "u32", "d, a", emu_lanes_bfind_u32)
INT("bfind", "s32", "d, a", emu_lanes_bfind_s32)
INT("bfe", "u32", "d, a, b.32, c.32", emu_lanes_bfe_u32)
INT("bfe", "s32", "d, a, b.32, c.32", emu_lanes_bfe_s32)
INT("bfe", "u64", "d, a, b.32, c.32", emu_lanes_bfe_u64)
INT("bfe", "s64", "d, a, b.32, c.32", emu_lanes_bfe_s64)
INT("bfi", "b32", "d, a, b, c.32, e.32", emu_lanes_bfi_32)
INT("bfi", "b64", "d, a, b, c.32, e.32", emu_lanes_bfi_64)
INT("bmsk", "clamp b32", "d, a, b", emu_lanes_bmsk_clamp)
INT("szext", "clamp u32", "d, a, b", emu_lanes_szext_u32)
INT("szext", "clamp s32", "d, a, b", emu_lanes_szext_s32)
/* logic and shifts */
BIT("and", "b16", "d, a, b", emu_lanes_and_16)
BIT("and", "b32", "d, a, b", emu_lanes_and_32)
BIT("and", "b64", "d, a, b", emu_lanes_and_64)
BIT("or", "b16", "d, a, b", emu_lanes_or_16)
BIT("or", "b32", "d, a, b", emu_lanes_or_32)
BIT("or", "b64", "d, a, b", emu_lanes_or_64)
BIT("xor", "b16", "d, a, b", emu_lanes_xor_16)
BIT("xor", "b32", "d, a, b", emu_lanes_xor_32)
BIT("xor", "b64", "d, a, b", emu_lanes_xor_64)
BIT("not", "b16", "d, a", emu_lanes_not_16)
BIT("not", "b32", "d, a", emu_lanes_not_32)
BIT("not", "b64", "d, a", emu_lanes_not_64)
BIT("shl", "b16", "d, a, b.32", emu_lanes_shl_16)
BIT("shl", "b32", "d, a, b.32", emu_lanes_shl_32)
BIT("shl", "b64", "d, a, b.32", emu_lanes_shl_64)
BIT("shr", "u16|b16", "d, a, b.32", emu_lanes_shr_u16)
BIT("shr", "s16", "d, a, b.32", emu_lanes_shr_s16)
BIT("shr", "u32|b32", "d, a, b.32", emu_lanes_shr_u32)
BIT("shr", "s32", "d, a, b.32", emu_lanes_shr_s32)
BIT("shr", "u64|b64", "d, a, b.32", emu_lanes_shr_u64)
BIT("shr", "s64", "d, a, b.32", emu_lanes_shr_s64)
BIT("shf", "l wrap b32", "d, a, b, c", emu_lanes_shf_l_wrap)
BIT("shf", "l clamp b32", "d, a, b, c", emu_lanes_shf_l_clamp)
BIT("shf", "r wrap b32", "d, a, b, c", emu_lanes_shf_r_wrap)
BIT("shf", "r clamp b32", "d, a, b, c", emu_lanes_shf_r_clamp)
BIT("lop3", "b32", "d, a, b, c, immediate", emu_lanes_lop3)
BIT("prmt", "b32", "d, a, b, c", emu_lanes_prmt)
/* floating point */
FLOAT("add", "rn? sat? f32", "d, a, b", emu_lanes_add_f32)
FLOAT("add", "rn? ftz sat? f32", "d, a, b", emu_lanes_add_f32_ftz)
FLOAT("sub", "rn? sat? f32", "d, a, b", emu_lanes_sub_f32)
FLOAT("sub", "rn? ftz sat? f32", "d, a, b", emu_lanes_sub_f32_ftz)
FLOAT("mul", "rn? sat? f32", "d, a, b", emu_lanes_mul_f32)
FLOAT("mul", "rn? ftz sat? f32", "d, a, b", emu_lanes_mul_f32_ftz)
FLOAT("fma", "rn sat? f32", "d, a, b, c", emu_lanes_fma_f32)
FLOAT("fma", "rn ftz sat? f32", "d, a, b, c", emu_lanes_fma_f32_ftz)
FLOAT("mad", "rn f32", "d, a, b, c", emu_lanes_fma_f32)
FLOAT("mad", "rn ftz f32", "d, a, b, c", emu_lanes_fma_f32_ftz)
FLOAT("div", "rn f32", "d, a, b", emu_lanes_div_f32)
FLOAT("div", "rn ftz f32", "d, a, b", emu_lanes_div_f32_ftz)
H200("div", "approx f32", "d, a, b", emu_lanes_div_approx_f32)
H200("div", "approx ftz f32", "d, a, b", emu_lanes_div_approx_f32_ftz)
H200("div", "full f32", "d, a, b", emu_lanes_div_full_f32)
H200("div", "full ftz f32", "d, a, b", emu_lanes_div_full_f32_ftz)
FLOAT("min", "f32", "d, a, b", emu_lanes_min_f32)
FLOAT("min", "ftz f32", "d, a, b", emu_lanes_min_f32_ftz)
FLOAT("min", "NaN f32", "d, a, b", emu_lanes_min_nan_f32)
FLOAT("max", "f32", "d, a, b", emu_lanes_max_f32)
FLOAT("max", "ftz f32", "d, a, b", emu_lanes_max_f32_ftz)
FLOAT("max", "NaN f32", "d, a, b", emu_lanes_max_nan_f32)
FLOAT("abs", "f32", "d, a", emu_lanes_abs_f32)
FLOAT("abs", "ftz f32", "d, a", emu_lanes_abs_f32_ftz)
FLOAT("neg", "f32", "d, a", emu_lanes_neg_f32)
FLOAT("neg", "ftz f32", "d, a", emu_lanes_neg_f32_ftz)
FLOAT("copysign", "f32", "d, a, b", emu_lanes_copysign_f32)
SPECIAL("rcp", "rn f32", emu_lanes_rcp_f32)
SPECIAL("rcp", "rn ftz f32", emu_lanes_rcp_f32_ftz)
H200("rcp", "approx f32", "d, a", emu_lanes_rcp_approx_f32)
H200("rcp", "approx ftz f32", "d, a", emu_lanes_rcp_approx_f32_ftz)
SPECIAL("sqrt", "rn|approx f32", emu_lanes_sqrt_f32)
SPECIAL("sqrt", "rn|approx ftz f32", emu_lanes_sqrt_f32_ftz)
SPECIAL("rsqrt", "approx f32", emu_lanes_rsqrt_f32)
SPECIAL("rsqrt", "approx ftz f32", emu_lanes_rsqrt_f32_ftz)
H200("ex2", "approx f32", "d, a", emu_lanes_ex2_f32)
H200("ex2", "approx ftz f32", "d, a", emu_lanes_ex2_f32_ftz)
SPECIAL("lg2", "approx f32", emu_lanes_lg2_f32)
SPECIAL("lg2", "approx ftz f32", emu_lanes_lg2_f32_ftz)
SPECIAL("sin", "approx f32", emu_lanes_sin_f32)
SPECIAL("sin", "approx ftz f32", emu_lanes_sin_f32_ftz)
SPECIAL("cos", "approx f32", emu_lanes_cos_f32)
SPECIAL("cos", "approx ftz f32", emu_lanes_cos_f32_ftz)
SPECIAL("tanh", "approx f32", emu_lanes_tanh_f32)
FLOAT("add", "rn? f64", "d, a, b", emu_lanes_add_f64)
FLOAT("sub", "rn? f64", "d, a, b", emu_lanes_sub_f64)
FLOAT("mul", "rn? f64", "d, a, b", emu_lanes_mul_f64)
FLOAT("fma", "rn f64", "d, a, b, c", emu_lanes_fma_f64)
FLOAT("div", "rn f64", "d, a, b", emu_lanes_div_f64)
FLOAT("min", "f64", "d, a, b", emu_lanes_min_f64)
FLOAT("max", "f64", "d, a, b", emu_lanes_max_f64)
FLOAT("abs", "f64", "d, a", emu_lanes_abs_f64)
FLOAT("neg", "f64", "d, a", emu_lanes_neg_f64)
FLOAT("rcp", "rn f64", "d, a", emu_lanes_rcp_f64)
FLOAT("sqrt", "rn f64", "d, a", emu_lanes_sqrt_f64)
#define HALVES(type)                                                                                                   \
    FLOAT("add", "rn? " #type, "d, a, b", emu_lanes_add_##type)                                                        \
    FLOAT("sub", "rn? " #type, "d, a, b", emu_lanes_sub_##type)                                                        \
    FLOAT("mul", "rn? " #type, "d, a, b", emu_lanes_mul_##type)                                                        \
    FLOAT("fma", "rn " #type, "d, a, b, c", emu_lanes_fma_##type)                                                      \
    FLOAT("min", #type, "d, a, b", emu_lanes_min_##type)                                                               \
    FLOAT("max", #type, "d, a, b", emu_lanes_max_##type)                                                               \
    FLOAT("neg", #type, "d, a", emu_lanes_neg_##type)                                                                  \
    FLOAT("abs", #type, "d, a", emu_lanes_abs_##type)
HALVES(f16)
HALVES(f16x2)
HALVES(bf16)
HALVES(bf16x2)
SPECIAL("ex2", "approx f16", emu_lanes_ex2_f16)
SPECIAL("ex2", "approx f16x2", emu_lanes_ex2_f16x2)
/* predicates, moves, conversions */
ROW("compare", "setp", COMPARES " ftz? " COMPARABLE, "p|q, a, b", emu_decode_compare, "q, the opposite, may be absent")
ROW("compare", "setp", COMPARES " and|or|xor ftz? " COMPARABLE, "p|q, a, b, c", emu_decode_compare, "c is a predicate")
ROW("compare", "selp", "b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64", "d, a, b, p", emu_decode_select, "")
ROW("compare", "and", "pred", "p, a, b", emu_decode_predicate, "")
ROW("compare", "or", "pred", "p, a, b", emu_decode_predicate, "")
ROW("compare", "xor", "pred", "p, a, b", emu_decode_predicate, "")
ROW("compare", "not", "pred", "p, a", emu_decode_predicate, "")
ROW("compare", "mov", "pred", "p, a", emu_decode_predicate, "")
ROW("move", "mov", "b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64|b128", "d, a", emu_decode_move,
    "a: register, number, special register, variable; either side may be a vector that is packed or unpacked")
ROW("move", "cvta", "to? global|shared|shared::cta|local|const|param|param::entry u64", "d, a",
    emu_decode_address_convert, "")
ROW("move", "isspacep", "global|shared|shared::cta|local|const|param|param::entry", "p, a.64", emu_decode_is_space, "")
ROW("convert", "cvt", "u8|s8|u16|s16|u32|s32|u64|s64 u8|s8|u16|s16|u32|s32|u64|s64", "d, a", emu_decode_convert,
    "registers may be wider than the types")
ROW("convert", "cvt", "rni|rzi|rmi|rpi ftz? u16|s16|u32|s32|u64|s64 f32|f64|f16", "d, a", emu_decode_convert,
    "out of range gives the nearest value")
ROW("convert", "cvt", "rn f32|f64 u8|s8|u16|s16|u32|s32|u64|s64", "d, a", emu_decode_convert, "")
ROW("convert", "cvt", "rn f16 u16|s16|u32|s32", "d, a", emu_decode_convert, "")
ROW("convert", "cvt", "rni|rzi|rmi|rpi ftz? sat? f32 f32", "d, a", emu_decode_convert, "rounds to an integral value")
ROW("convert", "cvt", "rn? ftz? sat? f32 f32|f64", "d, a", emu_decode_convert, "")
ROW("convert", "cvt", "ftz? f32 f16|bf16", "d, a", emu_decode_convert, "")
ROW("convert", "cvt", "ftz? f64 f32|f64", "d, a", emu_decode_convert, "")
ROW("convert", "cvt", "rn ftz? f16 f32", "d, a", emu_decode_convert, "")
ROW("convert", "cvt", "rz f16 f32", "d, a", emu_decode_convert, "")
ROW("convert", "cvt", "rn|rz bf16 f32", "d, a", emu_decode_convert, "")
ROW("convert", "cvt", "rn|rz relu? f16x2|bf16x2 f32", "d, a, b", emu_decode_convert, "a becomes the upper half")
/* memory */
ROW("memory", "ld",
    LOAD_ORDER " " SCOPE " " LOAD_SPACES " ca|cg|cs|lu|cv? nc? " L1_HINT " " L2_HINT " " CACHE_HINT " v2|v4? " DATA,
    "d, [a], policy", emu_decode_load,
    "d: a vector with v2 and v4; cache operators and hints change nothing here; policy with L2::cache_hint only")
ROW("memory", "ldu", "global? v2|v4? " DATA, "d, [a]", emu_decode_load, "")
ROW("memory", "st",
    STORE_ORDER " " SCOPE " " STORE_SPACES " wb|cg|cs|wt? " L1_HINT " " L2_HINT " " CACHE_HINT " v2|v4? " DATA,
    "[a], b, policy", emu_decode_store, "likewise")
#define ATOM(space, operations, note)                                                                                  \
    ROW("memory", "atom", "relaxed|acquire|release|acq_rel? " SCOPE " " space " " operations, "d, [a], b, policy",     \
        emu_decode_atomic, note)
#define ATOM_AND_RED(space, operations, note)                                                                          \
    ATOM(space, operations, note)                                                                                      \
    ROW("memory", "red", "relaxed|release? " SCOPE " " space " " operations, "[a], b, policy", emu_decode_reduction,   \
        note)
ATOM_AND_RED(ATOMIC_SPACES, "add " CACHE_HINT " u32|s32|u64|f32|f64", "f32: subnormals are flushed in global memory")
ATOM_AND_RED(ATOMIC_SPACES, "min|max " CACHE_HINT " u32|s32|u64|s64", "")
ATOM_AND_RED(ATOMIC_SPACES, "and|or|xor " CACHE_HINT " b32|b64", "")
ATOM_AND_RED(ATOMIC_SPACES, "inc|dec " CACHE_HINT " u32", "")
ATOM_AND_RED(ATOMIC_SPACES, "add noftz " CACHE_HINT " f16|bf16|f16x2|bf16x2", "")
ATOM_AND_RED("global?", "add " CACHE_HINT " v2|v4 f32", "each element by itself")
ATOM_AND_RED("global?", "add|min|max noftz " CACHE_HINT " v2|v4 f16|bf16|f16x2|bf16x2", "likewise")
ATOM(ATOMIC_SPACES, "exch " CACHE_HINT " b32|b64|b128", "")
ROW("memory", "atom", "relaxed|acquire|release|acq_rel? " SCOPE " " ATOMIC_SPACES " cas b16|b32|b64|b128",
    "d, [a], b, c", emu_decode_atomic, "")
#undef ATOM
#undef ATOM_AND_RED
ROW("memory", "prefetch", "global|local? L1|L2", "[a]", emu_decode_prefetch, "does nothing")
ROW("memory", "prefetch", "global L2::evict_last|L2::evict_normal", "[a]", emu_decode_prefetch, "likewise")
ROW("memory", "prefetchu", "L1", "[a]", emu_decode_prefetch, "likewise")
ROW("memory", "applypriority", "global? L2::evict_normal", "[a], 128", emu_decode_cache_line, "the address is checked")
ROW("memory", "discard", "global? L2", "[a], 128", emu_decode_cache_line, "likewise; the data stays")
ROW("memory", "createpolicy",
    "fractional L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged "
    "L2::evict_first|L2::evict_unchanged? b64",
    "d, fraction", emu_decode_policy, "0, which cache hints ignore; fraction may be absent")
ROW("memory", "createpolicy",
    "range global? L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged "
    "L2::evict_first|L2::evict_unchanged? b64",
    "d, [a], primary, total", emu_decode_policy, "likewise")
ROW("memory", "createpolicy", "cvt L2 b64", "d, a", emu_decode_policy, "likewise")
ROW("ldmatrix", "ldmatrix", "sync aligned m8n8 x1|x2|x4 trans? " SHARED "? b16", "{d, ...}, [a]", emu_decode_ldmatrix,
    "")
ROW("ldmatrix", "stmatrix", "sync aligned m8n8 x1|x2|x4 trans? " SHARED "? b16", "[a], {b, ...}", emu_decode_stmatrix,
    "")
ROW("ldmatrix", "movmatrix", "sync aligned m8n8 trans b16", "d, a", emu_decode_movmatrix, "")
ROW("mma", "mma", "sync aligned m16n8k16|m16n8k8 row col f32 f16 f16 f32", "{d0..3}, {a}, {b}, {c0..3}", emu_decode_mma,
    "one sum of exact terms, cut as on an H200")
ROW("mma", "mma", "sync aligned m16n8k16|m16n8k8 row col f32 bf16 bf16 f32", "{d0..3}, {a}, {b}, {c0..3}",
    emu_decode_mma, "likewise")
/* asynchronous copies */
ROW("cp.async", "cp", "async ca|cg shared|shared::cta global " CACHE_HINT " L2::64B|L2::128B|L2::256B?",
    "[d], [a], bytes, source-bytes, policy", emu_decode_copy_async,
    "bytes 4, 8 or 16 (cg: 16); source-bytes may be absent, or a predicate that makes them 0; the rest is filled with "
    "zeros")
ROW("cp.async", "cp", "async commit_group", "", emu_decode_copy_commit, "")
ROW("cp.async", "cp", "async wait_group", "n", emu_decode_copy_wait, "copies land here, as late as allowed")
ROW("cp.async", "cp", "async wait_all", "", emu_decode_copy_wait, "")
ROW("cp.async", "cp", "async mbarrier arrive noinc? shared|shared::cta? b64", "[a]", emu_decode_copy_arrive, "")
/* synchronisation */
ROW("barrier", "bar", "cta? sync", "a, b", emu_decode_barrier, "a: 0 to 15, may be absent; b: threads, may be absent")
ROW("barrier", "bar", "cta? arrive", "a, b", emu_decode_barrier, "")
ROW("barrier", "bar", "cta? red popc u32", "d, a, b, p", emu_decode_barrier, "b may be absent")
ROW("barrier", "bar", "cta? red and|or pred", "p, a, b, c", emu_decode_barrier, "b may be absent")
ROW("barrier", "barrier", "cta? sync aligned?", "a, b", emu_decode_barrier, "all lanes of a warp must arrive together")
ROW("barrier", "barrier", "cta? arrive aligned?", "a, b", emu_decode_barrier, "likewise")
ROW("barrier", "barrier", "cta? red popc aligned? u32", "d, a, b, p", emu_decode_barrier, "likewise")
ROW("barrier", "barrier", "cta? red and|or aligned? pred", "p, a, b, c", emu_decode_barrier, "likewise")
ROW("barrier", "bar", "warp sync", "mask", emu_decode_warp_barrier, "")
ROW("warp", "shfl", "sync up|down|bfly|idx b32", "d|p, a, b, c, mask", emu_decode_shuffle, "p may be absent")
ROW("warp", "vote", "sync any|all|uni pred", "p, a, mask", emu_decode_vote, "")
ROW("warp", "vote", "sync ballot b32", "d, a, mask", emu_decode_vote, "")
ROW("warp", "activemask", "b32", "d", emu_decode_active_mask, "")
ROW("warp", "redux", "sync add|min|max u32|s32", "d, a, mask", emu_decode_redux, "")
ROW("warp", "redux", "sync and|or|xor b32", "d, a, mask", emu_decode_redux, "")
ROW("warp", "match", "any sync b32|b64", "d.32, a, mask", emu_decode_match, "")
ROW("mbarrier", "mbarrier", "init shared|shared::cta? b64", "[a], count", emu_decode_mbarrier_init, "")
ROW("mbarrier", "mbarrier", "inval shared|shared::cta? b64", "[a]", emu_decode_mbarrier_invalidate, "")
ROW("mbarrier", "mbarrier", "arrive release? cta? shared|shared::cta? b64", "state, [a], count",
    emu_decode_mbarrier_arrive, "count may be absent; state may be _")
ROW("mbarrier", "mbarrier", "test_wait|try_wait acquire? cta? shared|shared::cta? b64", "p, [a], state",
    emu_decode_mbarrier_wait, "the warp sleeps until the phase is complete; a time limit is ignored")
ROW("mbarrier", "mbarrier", "test_wait|try_wait parity acquire? cta? shared|shared::cta? b64", "p, [a], parity",
    emu_decode_mbarrier_wait, "likewise")
ROW("fence", "membar", "cta|gl|sys", "", emu_decode_nothing, "memory is sequentially consistent here")
ROW("fence", "fence", "sc|acq_rel|acquire|release? cta|cluster|gpu|sys", "", emu_decode_nothing, "likewise")
ROW("fence", "fence", "proxy alias", "", emu_decode_nothing, "likewise")
ROW("fence", "fence", "proxy async global|shared::cta?", "", emu_decode_nothing, "likewise")
/* control */
ROW("control", "bra", "uni?", "label", emu_decode_branch, "")
ROW("control", "ret", "uni?", "", emu_decode_exit, "")
ROW("control", "exit", "", "", emu_decode_exit, "")
ROW("control", "trap", "", "", emu_decode_trap, "")
ROW("control", "brkpt", "", "", emu_decode_nothing, "does nothing")
ROW("control", "nanosleep", "u32", "a", emu_decode_nothing, "does nothing")
ROW("control", "call", "uni?", "(d), function, (a, ...)", emu_decode_call, "vprintf and __assertfail only")

#undef COMPARES
#undef COMPARABLE
#undef LOAD_ORDER
#undef STORE_ORDER
#undef CACHE_HINT
#undef ATOMIC_SPACES
#undef SCOPE
#undef L1_HINT
#undef L2_HINT
#undef DATA
#undef LOAD_SPACES
#undef STORE_SPACES
#undef SHARED
#undef INT
#undef BIT
#undef FLOAT
#undef SPECIAL
#undef H200
#undef ROW
#undef HALVES
#undef LANES_ROW
#undef RULE_ROW
