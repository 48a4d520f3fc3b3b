/* alu.c - integer, logic and move instructions, all 32 lanes at once; float.c and half.c have those of floats,
 * frequent.c those that kernels run most. */
#include "lane_loop.h"

#include <string.h>

/* Signed views; conversion to a narrower signed type keeps the low bits on every compiler this builds with. */
#define S16(x) ((int32_t)(int16_t)(x))
#define S32(x) ((int32_t)(x))
#define S64(x) ((int64_t)(x))

static inline uint64_t high_u64(uint64_t a, uint64_t b) {
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32), cross = a0 * b1 + (uint32_t)middle;
    return a1 * b1 + (middle >> 32) + (cross >> 32);
}

static inline uint64_t high_s64(uint64_t a, uint64_t b) {
    return high_u64(a, b) - (S64(a) < 0 ? b : 0) - (S64(b) < 0 ? a : 0);
}

LANES_16(emu_lanes_add_16, a + b)
LANES_16(emu_lanes_sub_16, a - b)
LANES_32(emu_lanes_sub_32, a - b)
LANES_64(emu_lanes_sub_64, a - b)
LANES_16(emu_lanes_mul_lo_16, (a * b))
LANES_32(emu_lanes_mul_lo_32, (a * b))
LANES_64(emu_lanes_mul_lo_64, (a * b))
LANES_16(emu_lanes_mul_hi_u16, (a * b) >> 16)
LANES_16(emu_lanes_mul_hi_s16, (uint32_t)(S16(a) * S16(b)) >> 16)
LANES_32(emu_lanes_mul_hi_u32, ((uint64_t)a * b) >> 32)
LANES_32(emu_lanes_mul_hi_s32, (uint64_t)((int64_t)S32(a) * S32(b)) >> 32)
LANES_64(emu_lanes_mul_hi_u64, high_u64(a, b))
LANES_64(emu_lanes_mul_hi_s64, high_s64(a, b))
LANES_32(emu_lanes_mul_wide_u16, (a * b))
LANES_32(emu_lanes_mul_wide_s16, S16(a) * S16(b))
LANE_LOOP(emu_lanes_mul_wide_u32, uint64_t, uint32_t, uint32_t, uint32_t, ((uint64_t)a * b))
LANE_LOOP(emu_lanes_mul_wide_s32, uint64_t, uint32_t, uint32_t, uint32_t, (int64_t)S32(a) * S32(b))
LANES_16(emu_lanes_mad_lo_16, (a * b) + c)
LANES_32(emu_lanes_mad_lo_32, (a * b) + c)
LANES_64(emu_lanes_mad_lo_64, (a * b) + c)
LANES_32(emu_lanes_mad_hi_u32, ((uint64_t)a * b >> 32) + c)
LANES_32(emu_lanes_mad_hi_s32, ((uint64_t)((int64_t)S32(a) * S32(b)) >> 32) + c)
LANES_32(emu_lanes_mad_wide_u16, (a * b) + c)
LANES_32(emu_lanes_mad_wide_s16, (uint32_t)(S16(a) * S16(b)) + c)
LANE_LOOP(emu_lanes_mad_wide_u32, uint64_t, uint32_t, uint32_t, uint64_t, ((uint64_t)a * b) + c)
LANE_LOOP(emu_lanes_mad_wide_s32, uint64_t, uint32_t, uint32_t, uint64_t, (uint64_t)((int64_t)S32(a) * S32(b)) + c)
LANES_32(emu_lanes_mul24_u32, (a & 0xffffffu) * (b & 0xffffffu))
LANES_32(emu_lanes_mul24_s32, (uint32_t)(S32(a << 8) >> 8) * (uint32_t)(S32(b << 8) >> 8))
LANES_32(emu_lanes_sad_u32, c + (a > b ? a - b : b - a))
LANES_32(emu_lanes_sad_s32, c + (S32(a) > S32(b) ? a - b : b - a))

/* Division by zero gives all ones, the remainder then is the dividend, as observed on devices. */
LANES_16(emu_lanes_div_u16, b ? a / b : 0xffffu)
LANES_16(emu_lanes_div_s16, b ? (uint32_t)(S16(a) / S16(b)) : 0xffffu)
LANES_32(emu_lanes_div_u32, b ? a / b : 0xffffffffu)
LANES_32(emu_lanes_div_s32, b ? (b == 0xffffffffu ? 0 - a : (uint32_t)(S32(a) / S32(b))) : 0xffffffffu)
LANES_64(emu_lanes_div_u64, b ? a / b : UINT64_MAX)
LANES_64(emu_lanes_div_s64, b ? (b == UINT64_MAX ? 0 - a : (uint64_t)(S64(a) / S64(b))) : UINT64_MAX)
LANES_16(emu_lanes_rem_u16, b ? a % b : a)
LANES_16(emu_lanes_rem_s16, b ? (uint32_t)(S16(a) % S16(b)) : a)
LANES_32(emu_lanes_rem_u32, b ? a % b : a)
LANES_32(emu_lanes_rem_s32, b ? (b == 0xffffffffu ? 0 : (uint32_t)(S32(a) % S32(b))) : a)
LANES_64(emu_lanes_rem_u64, b ? a % b : a)
LANES_64(emu_lanes_rem_s64, b ? (b == UINT64_MAX ? 0 : (uint64_t)(S64(a) % S64(b))) : a)

LANES_16(emu_lanes_abs_s16, S16(a) < 0 ? 0 - a : a)
LANES_32(emu_lanes_abs_s32, S32(a) < 0 ? 0 - a : a)
LANES_64(emu_lanes_abs_s64, S64(a) < 0 ? 0 - a : a)
LANES_16(emu_lanes_neg_16, 0 - a)
LANES_32(emu_lanes_neg_32, 0 - a)
LANES_64(emu_lanes_neg_64, 0 - a)
LANES_16(emu_lanes_min_u16, a < b ? a : b)
LANES_16(emu_lanes_min_s16, S16(a) < S16(b) ? a : b)
LANES_32(emu_lanes_min_u32, a < b ? a : b)
LANES_32(emu_lanes_min_s32, S32(a) < S32(b) ? a : b)
LANES_64(emu_lanes_min_u64, a < b ? a : b)
LANES_64(emu_lanes_min_s64, S64(a) < S64(b) ? a : b)
LANES_16(emu_lanes_max_u16, a > b ? a : b)
LANES_16(emu_lanes_max_s16, S16(a) > S16(b) ? a : b)
LANES_32(emu_lanes_max_u32, a > b ? a : b)
LANES_32(emu_lanes_max_s32, S32(a) > S32(b) ? a : b)
LANES_64(emu_lanes_max_u64, a > b ? a : b)
LANES_64(emu_lanes_max_s64, S64(a) > S64(b) ? a : b)

LANES_32(emu_lanes_and_16, (a & b))
LANES_32(emu_lanes_and_32, (a & b))
LANES_64(emu_lanes_and_64, (a & b))
LANES_32(emu_lanes_or_16, a | b)
LANES_32(emu_lanes_or_32, a | b)
LANES_64(emu_lanes_or_64, a | b)
LANES_32(emu_lanes_xor_16, a ^ b)
LANES_32(emu_lanes_xor_32, a ^ b)
LANES_64(emu_lanes_xor_64, a ^ b)
LANES_16(emu_lanes_not_16, ~a)
LANES_32(emu_lanes_not_32, ~a)
LANES_64(emu_lanes_not_64, ~a)

/* Shifts clamp: an amount of the width or more shifts everything out. */
LANES_16(emu_lanes_shl_16, b > 15 ? 0 : a << (b & 15))
LANES_32(emu_lanes_shl_32, b > 31 ? 0 : a << (b & 31))
LANE_LOOP(emu_lanes_shl_64, uint64_t, uint64_t, uint32_t, uint32_t, b > 63 ? 0 : a << (b & 63))
LANES_16(emu_lanes_shr_u16, b > 15 ? 0 : a >> (b & 15))
LANES_16(emu_lanes_shr_s16, S16(a) >> (b > 15 ? 15 : b))
LANES_32(emu_lanes_shr_u32, b > 31 ? 0 : a >> (b & 31))
LANES_32(emu_lanes_shr_s32, S32(a) >> (b > 31 ? 31 : b))
LANE_LOOP(emu_lanes_shr_u64, uint64_t, uint64_t, uint32_t, uint32_t, b > 63 ? 0 : a >> (b & 63))
LANE_LOOP(emu_lanes_shr_s64, uint64_t, uint64_t, uint32_t, uint32_t, S64(a) >> (b > 63 ? 63 : b))

/* shf: a holds the low, b the high half. */
#define FUNNEL ((uint64_t)b << 32 | a)
#define CLAMPED (c > 32 ? 32 : c)
LANES_32(emu_lanes_shf_l_wrap, (FUNNEL << (c & 31)) >> 32)
LANES_32(emu_lanes_shf_l_clamp, (FUNNEL << CLAMPED) >> 32)
LANES_32(emu_lanes_shf_r_wrap, FUNNEL >> (c & 31))
LANES_32(emu_lanes_shf_r_clamp, FUNNEL >> CLAMPED)

static inline uint64_t extract(uint64_t value, uint32_t position, uint32_t length, uint32_t width, bool is_signed) {
    position &= 0xff, length &= 0xff;
    uint32_t top = position + length - 1 < width - 1 ? position + length - 1 : width - 1;
    uint64_t sign = is_signed && length ? value >> top & 1 : 0;
    uint64_t field = position < width ? value >> position : 0;
    uint32_t kept = position < width ? width - position : 0;
    if (length < kept) kept = length;
    uint64_t mask = kept >= 64 ? UINT64_MAX : (1ull << kept) - 1;
    return (field & mask) | (sign ? ~mask : 0);
}

LANES_32(emu_lanes_bfe_u32, extract(a, b, c, 32, false))
LANES_32(emu_lanes_bfe_s32, extract(a, b, c, 32, true))
LANE_LOOP(emu_lanes_bfe_u64, uint64_t, uint64_t, uint32_t, uint32_t, extract(a, b, c, 64, false))
LANE_LOOP(emu_lanes_bfe_s64, uint64_t, uint64_t, uint32_t, uint32_t, extract(a, b, c, 64, true))

static inline uint64_t reversed(uint64_t value, int bits) {
    uint64_t result = 0;
    for (int i = 0; i < bits; i++) result |= (value >> i & 1) << (bits - 1 - i);
    return result;
}

LANES_32(emu_lanes_popc_32, __builtin_popcount(a))
LANE_LOOP(emu_lanes_popc_64, uint32_t, uint64_t, uint64_t, uint64_t, __builtin_popcountll(a))
LANES_32(emu_lanes_clz_32, a ? __builtin_clz(a) : 32)
LANE_LOOP(emu_lanes_clz_64, uint32_t, uint64_t, uint64_t, uint64_t, a ? __builtin_clzll(a) : 64)
LANES_32(emu_lanes_brev_32, reversed(a, 32))
LANES_64(emu_lanes_brev_64, reversed(a, 64))
LANES_32(emu_lanes_bfind_u32, a ? 31 - __builtin_clz(a) : -1)
LANES_32(emu_lanes_bfind_s32, (S32(a) < 0 ? ~a : a) ? 31 - __builtin_clz(S32(a) < 0 ? ~a : a) : -1)
LANES_32(emu_lanes_bmsk_clamp, a > 31 ? 0 : (b > 31 ? 0xffffffffu : (1u << b) - 1) << a)
LANES_32(emu_lanes_szext_u32, b > 31 ? a : extract(a, 0, b, 32, false))
LANES_32(emu_lanes_szext_s32, b > 31 ? a : extract(a, 0, b, 32, true))

LANE_LOOP(emu_lanes_truncate, uint32_t, uint64_t, uint64_t, uint64_t, a)
LANE_LOOP(emu_lanes_wide_u32, uint64_t, uint32_t, uint32_t, uint32_t, a)
LANES_32(emu_lanes_pack_16, (a & 0xffffu) | b << 16)
LANES_32(emu_lanes_low_16, a & 0xffffu)
LANES_32(emu_lanes_high_16, a >> 16)
LANE_LOOP(emu_lanes_pack_32, uint64_t, uint32_t, uint32_t, uint32_t, a | (uint64_t)b << 32)
LANE_LOOP(emu_lanes_low_32, uint32_t, uint64_t, uint64_t, uint64_t, a)
LANE_LOOP(emu_lanes_high_32, uint32_t, uint64_t, uint64_t, uint64_t, a >> 32)

/* A 128-bit register is 32 low halves followed by 32 high halves. */
void emu_lanes_mov_128(void *d, const void *a, const void *b, const void *c) {
    (void)b, (void)c;
    memmove(d, a, 2 * LANES * sizeof(uint64_t));
}
void emu_lanes_pack_64(void *d, const void *a, const void *b, const void *c) {
    (void)c;
    memcpy(d, a, LANES * sizeof(uint64_t));
    memcpy((uint64_t *)d + LANES, b, LANES * sizeof(uint64_t));
}
void emu_lanes_low_64(void *d, const void *a, const void *b, const void *c) {
    (void)b, (void)c;
    memcpy(d, a, LANES * sizeof(uint64_t));
}
void emu_lanes_high_64(void *d, const void *a, const void *b, const void *c) {
    (void)b, (void)c;
    memcpy(d, (const uint64_t *)a + LANES, LANES * sizeof(uint64_t));
}

/* ---- instructions of four sources: the fourth follows the third in memory, see OP_LANES_4 ---- */

#define FOURTH(type) const type *fourth = (const type *)vc + LANES

/* a, b, c and the 8-bit truth table: bit (a*4 + b*2 + c) of the table is the result. */
static inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t result = 0;
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t term = (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
        result |= table >> i & 1 ? term : 0;
    }
    return result;
}

static inline uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t pick = selector >> (4 * i) & 15, byte = (uint32_t)(bytes >> (8 * (pick & 7)) & 0xff);
        if (pick & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}

static inline uint64_t insert(uint64_t field, uint64_t into, uint32_t position, uint32_t length, uint32_t width) {
    position &= 0xff, length &= 0xff;
    if (position >= width || !length) return into;
    uint64_t mask = length >= 64 ? UINT64_MAX : (1ull << length) - 1;
    return (into & ~(mask << position)) | (field & mask) << position;
}

LANES_32(emu_lanes_prmt, permute(a, b, c))

void emu_lanes_lop3(void *vd, const void *va, const void *vb, const void *vc) {
    uint32_t *d = vd;
    const uint32_t *a = va, *b = vb, *c = vc;
    FOURTH(uint32_t);
    uint32_t table = fourth[0];
    _Pragma("GCC ivdep")
    for (int i = 0; i < LANES; i++) d[i] = lop3(a[i], b[i], c[i], table);
}

void emu_lanes_bfi_32(void *vd, const void *va, const void *vb, const void *vc) {
    uint32_t *d = vd;
    const uint32_t *a = va, *b = vb, *c = vc;
    FOURTH(uint32_t);
    for (int i = 0; i < LANES; i++) d[i] = (uint32_t)insert(a[i], b[i], c[i], fourth[i], 32);
}

void emu_lanes_bfi_64(void *vd, const void *va, const void *vb, const void *vc) {
    uint64_t *d = vd;
    const uint64_t *a = va, *b = vb;
    const uint32_t *c = vc;
    FOURTH(uint32_t);
    for (int i = 0; i < LANES; i++) d[i] = insert(a[i], b[i], c[i], fourth[i], 64);
}
