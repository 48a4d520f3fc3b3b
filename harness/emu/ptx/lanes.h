/* lanes.h - lane functions of alu.c, float.c, half.c and frequent.c: each computes all 32 lanes of one instruction. */
#ifndef FL_EMU_LANES_H
#define FL_EMU_LANES_H

lane_function emu_lanes_add_16, emu_lanes_add_32, emu_lanes_add_64, emu_lanes_sub_16, emu_lanes_sub_32,
    emu_lanes_sub_64, emu_lanes_mul_lo_16, emu_lanes_mul_lo_32, emu_lanes_mul_lo_64, emu_lanes_mul_hi_u16,
    emu_lanes_mul_hi_s16, emu_lanes_mul_hi_u32, emu_lanes_mul_hi_s32, emu_lanes_mul_hi_u64, emu_lanes_mul_hi_s64,
    emu_lanes_mul_wide_u16, emu_lanes_mul_wide_s16, emu_lanes_mul_wide_u32, emu_lanes_mul_wide_s32, emu_lanes_mad_lo_16,
    emu_lanes_mad_lo_32, emu_lanes_mad_lo_64, emu_lanes_mad_hi_u32, emu_lanes_mad_hi_s32, emu_lanes_mad_wide_u16,
    emu_lanes_mad_wide_s16, emu_lanes_mad_wide_u32, emu_lanes_mad_wide_s32, emu_lanes_mul24_u32, emu_lanes_mul24_s32,
    emu_lanes_sad_u32, emu_lanes_sad_s32;
lane_function emu_lanes_div_u16, emu_lanes_div_s16, emu_lanes_div_u32, emu_lanes_div_s32, emu_lanes_div_u64,
    emu_lanes_div_s64, emu_lanes_rem_u16, emu_lanes_rem_s16, emu_lanes_rem_u32, emu_lanes_rem_s32, emu_lanes_rem_u64,
    emu_lanes_rem_s64, emu_lanes_abs_s16, emu_lanes_abs_s32, emu_lanes_abs_s64, emu_lanes_neg_16, emu_lanes_neg_32,
    emu_lanes_neg_64, emu_lanes_min_u16, emu_lanes_min_s16, emu_lanes_min_u32, emu_lanes_min_s32, emu_lanes_min_u64,
    emu_lanes_min_s64, emu_lanes_max_u16, emu_lanes_max_s16, emu_lanes_max_u32, emu_lanes_max_s32, emu_lanes_max_u64,
    emu_lanes_max_s64;
lane_function emu_lanes_and_16, emu_lanes_and_32, emu_lanes_and_64, emu_lanes_or_16, emu_lanes_or_32, emu_lanes_or_64,
    emu_lanes_xor_16, emu_lanes_xor_32, emu_lanes_xor_64, emu_lanes_not_16, emu_lanes_not_32, emu_lanes_not_64,
    emu_lanes_shl_16, emu_lanes_shl_32, emu_lanes_shl_64, emu_lanes_shr_u16, emu_lanes_shr_s16, emu_lanes_shr_u32,
    emu_lanes_shr_s32, emu_lanes_shr_u64, emu_lanes_shr_s64, emu_lanes_shf_l_wrap, emu_lanes_shf_l_clamp,
    emu_lanes_shf_r_wrap, emu_lanes_shf_r_clamp, emu_lanes_bfe_u32, emu_lanes_bfe_s32, emu_lanes_bfe_u64,
    emu_lanes_bfe_s64, emu_lanes_popc_32, emu_lanes_popc_64, emu_lanes_clz_32, emu_lanes_clz_64, emu_lanes_brev_32,
    emu_lanes_brev_64, emu_lanes_bfind_u32, emu_lanes_bfind_s32, emu_lanes_bmsk_clamp, emu_lanes_szext_u32,
    emu_lanes_szext_s32;
lane_function emu_lanes_mov_32, emu_lanes_mov_64, emu_lanes_mov_128, emu_lanes_truncate, emu_lanes_pack_16,
    emu_lanes_low_16, emu_lanes_high_16, emu_lanes_pack_32, emu_lanes_low_32, emu_lanes_high_32, emu_lanes_pack_64,
    emu_lanes_low_64, emu_lanes_high_64, emu_lanes_address, emu_lanes_wide_u32;
/* Take a fourth operand packed in the second: see decode_lanes. */
lane_function emu_lanes_lop3, emu_lanes_prmt, emu_lanes_bfi_32, emu_lanes_bfi_64, emu_lanes_dp4a_u32,
    emu_lanes_dp4a_s32;

/* f32; _ftz flushes subnormal inputs and results to zero of the same sign */
lane_function emu_lanes_add_f32, emu_lanes_add_f32_ftz, emu_lanes_sub_f32, emu_lanes_sub_f32_ftz, emu_lanes_mul_f32,
    emu_lanes_mul_f32_ftz, emu_lanes_fma_f32, emu_lanes_fma_f32_ftz, emu_lanes_div_f32, emu_lanes_div_f32_ftz,
    emu_lanes_min_f32, emu_lanes_min_f32_ftz, emu_lanes_max_f32, emu_lanes_max_f32_ftz, emu_lanes_min_nan_f32,
    emu_lanes_max_nan_f32, emu_lanes_abs_f32, emu_lanes_abs_f32_ftz, emu_lanes_neg_f32, emu_lanes_neg_f32_ftz,
    emu_lanes_rcp_f32, emu_lanes_rcp_f32_ftz, emu_lanes_sqrt_f32, emu_lanes_sqrt_f32_ftz, emu_lanes_rsqrt_f32,
    emu_lanes_rsqrt_f32_ftz, emu_lanes_ex2_f32, emu_lanes_ex2_f32_ftz, emu_lanes_lg2_f32, emu_lanes_lg2_f32_ftz,
    emu_lanes_sin_f32, emu_lanes_sin_f32_ftz, emu_lanes_cos_f32, emu_lanes_cos_f32_ftz, emu_lanes_tanh_f32,
    emu_lanes_copysign_f32, emu_lanes_saturate_f32, emu_lanes_f16x2_rn, emu_lanes_bf16x2_rn;
lane_function emu_lanes_add_f64, emu_lanes_sub_f64, emu_lanes_mul_f64, emu_lanes_fma_f64, emu_lanes_div_f64,
    emu_lanes_min_f64, emu_lanes_max_f64, emu_lanes_abs_f64, emu_lanes_neg_f64, emu_lanes_rcp_f64, emu_lanes_sqrt_f64;
lane_function emu_lanes_add_f16, emu_lanes_sub_f16, emu_lanes_mul_f16, emu_lanes_fma_f16, emu_lanes_min_f16,
    emu_lanes_max_f16, emu_lanes_neg_f16, emu_lanes_abs_f16, emu_lanes_ex2_f16, emu_lanes_add_bf16, emu_lanes_sub_bf16,
    emu_lanes_mul_bf16, emu_lanes_fma_bf16, emu_lanes_min_bf16, emu_lanes_max_bf16, emu_lanes_neg_bf16,
    emu_lanes_abs_bf16, emu_lanes_add_f16x2, emu_lanes_sub_f16x2, emu_lanes_mul_f16x2, emu_lanes_fma_f16x2,
    emu_lanes_min_f16x2, emu_lanes_max_f16x2, emu_lanes_neg_f16x2, emu_lanes_abs_f16x2, emu_lanes_ex2_f16x2,
    emu_lanes_add_bf16x2, emu_lanes_sub_bf16x2, emu_lanes_mul_bf16x2, emu_lanes_fma_bf16x2, emu_lanes_min_bf16x2,
    emu_lanes_max_bf16x2, emu_lanes_neg_bf16x2, emu_lanes_abs_bf16x2;

#endif
