/* lanes.h - what a program asks of the machine that runs it: the functions that ops point to. ptx/ names them, machine/
 * has them (alu.c, float.c, half.c, frequent.c, convert.c, noise.c).
 *
 * A lane function computes all 32 lanes of one instruction from the slots of its sources; see lane_loop.h.
 */
#ifndef FL_EMU_LANES_H
#define FL_EMU_LANES_H

#include "types.h"

/* Functions that the rows of the table of forms name. emu_lanes_lop3 and emu_lanes_bfi_* find a fourth source after the
 * third: see OP_LANES_4. */
#define LANES_ROW(group, opcode, modifiers, operands, fidelity, function, note) lane_function function;
#include "forms_table.h"

/* Functions of moves, packed vectors, special registers and .sat, which decoding rules choose. */
lane_function emu_lanes_mov_32, emu_lanes_mov_64, emu_lanes_mov_128, emu_lanes_truncate, emu_lanes_wide_u32,
    emu_lanes_pack_8, emu_lanes_low_8, emu_lanes_high_8, emu_lanes_pack_16, emu_lanes_low_16, emu_lanes_high_16,
    emu_lanes_pack_32, emu_lanes_low_32, emu_lanes_high_32, emu_lanes_pack_64, emu_lanes_low_64, emu_lanes_high_64;
/* Functions of modifiers and of cvt.pack, which decoding rules also choose. */
lane_function emu_lanes_flush_f32, emu_lanes_flush_f16x2, emu_lanes_xorsign_f32, emu_lanes_xorsign_16x2,
    emu_lanes_in_bounds_16x2, emu_lanes_saturate_f32, emu_lanes_saturate_f64, emu_lanes_saturate_f16x2,
    emu_lanes_positive_f16x2, emu_lanes_positive_bf16x2, emu_lanes_pack_u16, emu_lanes_pack_s16, emu_lanes_pack_u8,
    emu_lanes_pack_s8, emu_lanes_pack_u4, emu_lanes_pack_s4, emu_lanes_pack_u2, emu_lanes_pack_s2;

/* noise.c: the function that replaces another under noise, where PTX leaves bits of the instruction open.
 * exact: it does not, except for those of a NaN. */
lane_function *emu_drawn(lane_function *plain, bool exact);

/* Modifiers of a cvt: rounding such as "rn", "rzi" or "", its types, and others. */
typedef struct conversion_request {
    const char *rounding;
    bool ftz, sat, relu, finite;
    const type_info *to, *from;
} conversion_request;

/* The steps of a cvt and the bits of what each gives. */
typedef struct conversion {
    lane_function *steps[4];
    uint8_t bits[4];
    uint8_t rounding; /* enum rounding that the steps run under */
    int count;
} conversion;

/* False where the emulator has none. */
bool emu_find_conversion(const conversion_request *request, conversion *way);
/* Function of a cvt.rs, which rounds r[1] and r[2] by the random bits r[3] into the upper and lower half of r[0]; NULL
 * if there is none. */
lane_function *emu_find_stochastic(const char *to, bool relu, bool finite);
/* Function of a testp, as emu_find_compare(): it reads the first of its two sources. */
compare_function *emu_find_test(const char *property, const type_info *type, uint8_t *wanted);
/* Function of a setp, NULL if PTX has none. *wanted: what the function is called with, and what an OP_COMPARE keeps as
 * its immediate. */
compare_function *emu_find_compare(const char *comparison, const type_info *type, bool ftz, uint8_t *wanted);

#endif
