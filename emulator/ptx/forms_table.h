/* forms_table.h - the one table of the emulator's instructions: its operations, and the PTX forms that become them.
 *
 *     #define OP_ROW(kind, lanes, handler, text) op_handler handler;
 *     #include "forms_table.h"
 *
 * OP_ROW is an operation of the machine: `handler` executes an op of that kind once `lanes` are there (enum op_lanes in
 * program.h). FORM_ROW is a PTX form: `decode` turns its statement into ops, the main one of which has the kind of the
 * row. LANES_ROW is a form whose ops compute each lane by a lane function. An includer defines the rows that it needs:
 * the kinds and the dispatch of ops, the declarations of the handlers, decoding rules and lane functions, and the text
 * of `ptxrun --forms` and `ptxrun --explain` are all made from this text. The emulator rejects what no row accepts.
 * TARGET_ROW says which targets have an instruction with one of these names and all of these modifiers, in this order;
 * all targets have an instruction without such a row. A name may also be a directive, a special register, or what a
 * decoding rule tests (emu_expect_target). "sm_90 or later" means any later target; "sm_100f or later" means later
 * targets of the same family, which includes sm_100a. If a text breaks several rules, the message names the last one.
 * BLIND_ROW is something that the emulator does not see, with the opcodes where people look for it.
 *
 * modifiers: tokens in the order PTX writes them; alternatives are separated by bars, a token ending in '?' may be
 * absent. operands: d is the destination, p and q are predicates, [a] is an address, the others are sources. A register
 * has the width of the first type modifier unless ".16", ".32" or ".64" follows its name. Many rules read them from
 * this column. fidelity: an emu_fidelity (emu.h) without its prefix. note: "likewise" repeats the note of the row
 * before.
 */
#ifndef OP_ROW
#define OP_ROW(kind, lanes, handler, text)
#endif
#ifndef FORM_ROW
#define FORM_ROW(group, opcode, modifiers, operands, kind, fidelity, decode, note)
#endif
#ifndef BLIND_ROW
#define BLIND_ROW(opcodes, text)
#endif
#ifndef TARGET_ROW
#define TARGET_ROW(names, modifiers, targets)
#endif
#ifndef LANES_ROW
#define LANES_ROW(group, opcode, modifiers, operands, fidelity, function, note)
#endif

/* ---- operations ---- */

/* those on registers come first: emu_step_registers() and explore/ rely on it */
OP_ROW(OP_LANES, LANES_EACH, emu_exec_lanes, "r[0] = lanes(r[1], r[2], r[3])")
OP_ROW(OP_LANES_4, LANES_EACH, emu_exec_lanes,
       "r[0] = lanes(r[1], r[2], {r[3], r[4]}), the last two next to each other")
OP_ROW(OP_ROUNDED, LANES_EACH, emu_exec_rounded, "OP_LANES with the rounding `detail`, which is not to nearest")
OP_ROW(OP_CARRY, LANES_EACH, emu_exec_carry,
       "r[0] = r[1] op r[2] (r[3]) with the carry p[2], if any; p[0]: the carry out")
OP_ROW(OP_COMPARE, LANES_EACH, emu_exec_compare,
       "p[0] (and p[1], the opposite) = compare(r[0], r[1], immediate), combined with p[2]")
OP_ROW(OP_SELECT, LANES_EACH, emu_exec_select, "r[0] = p[2] ? r[1] : r[2]")
OP_ROW(OP_PREDICATE, LANES_EACH, emu_exec_predicate, "p[0] = p[1] op p[2]")
OP_ROW(OP_BRANCH, LANES_EACH, emu_exec_branch, "continue at op `target`; lanes that diverge meet again at `join`")
OP_ROW(OP_JOIN, LANES_EACH, emu_exec_nothing, "where diverged lanes meet again; emu_warp_run() executes it")
/* control */
OP_ROW(OP_EXIT, LANES_EACH, emu_exec_exit, "the lanes end")
OP_ROW(OP_TRAP, LANES_EACH, emu_exec_trap, "end the launch with a finding: a trap_detail")
OP_ROW(OP_CALL, LANES_EACH, emu_exec_call, "call function number `immediate` of the calls")
OP_ROW(OP_RETURN, LANES_EACH, emu_exec_return, "return from a function")
OP_ROW(OP_FRAME, LANES_EACH, emu_exec_frame, "r[0] = where the frame of the function begins in local memory")
/* memory */
OP_ROW(OP_LOAD, LANES_EACH, emu_exec_load, "r[0 .. dests) = memory")
OP_ROW(OP_STORE, LANES_EACH, emu_exec_store, "memory = the sources after the address")
OP_ROW(OP_ZEROS, LANES_EACH, emu_exec_zeros, "so many bytes of shared memory as the last source says = 0")
OP_ROW(OP_ATOMIC, LANES_EACH, emu_exec_atomic, "r[0 .. dests) = memory, which one lane after another changes")
OP_ROW(OP_ADDRESS, LANES_EACH, emu_exec_address, "check that the address is valid; nothing else")
OP_ROW(OP_TEXTURE, LANES_EACH, emu_exec_texture,
       "r[0 .. 4) = the texel of object r[4] at the coordinates that follow it, in the form `vector`")
OP_ROW(OP_SURFACE, LANES_EACH, emu_exec_surface,
       "load or store elements of a surface: `bytes` each, a surface_detail; a store has its values last")
/* matrices: all lanes of a warp or of a warpgroup */
OP_ROW(OP_LDMATRIX, LANES_WARP, emu_exec_ldmatrix, "r[0 .. dests) = matrices in shared memory")
OP_ROW(OP_STMATRIX, LANES_WARP, emu_exec_stmatrix, "matrices in shared memory = the sources after the address")
OP_ROW(OP_MOVMATRIX, LANES_WARP, emu_exec_movmatrix, "r[0] = the transposed matrix r[1]")
OP_ROW(OP_MMA, LANES_WARP, emu_exec_mma, "r[0 .. dests) = A * B + C in f16 or bf16 with f32 sums")
OP_ROW(OP_FACTORS, LANES_EACH, emu_exec_nothing,
       "the sources A and B of the OP_MATRIX after it, which has no room for them")
OP_ROW(OP_MATRIX, LANES_WARP, emu_exec_matrix, "r[0 .. dests) = factors and the sources, C")
OP_ROW(OP_NARROW, LANES_WARP, emu_exec_narrow, "likewise, of 8, 6 and 4 bits; the scales follow the factors")
OP_ROW(OP_WMMA_LOAD, LANES_WARP, emu_exec_wmma_load, "r[0 .. dests) = a fragment in memory")
OP_ROW(OP_WMMA_STORE, LANES_WARP, emu_exec_wmma_store, "a fragment in memory = the sources after the stride")
OP_ROW(OP_WGMMA, LANES_WARPGROUP, emu_exec_wgmma,
       "issue eight columns of a wgmma.mma_async, whose ops follow each other")
OP_ROW(OP_WGMMA_FENCE, LANES_WARPGROUP, emu_exec_wgmma_fence, "order accesses to registers before the next wgmma")
OP_ROW(OP_WGMMA_COMMIT, LANES_WARPGROUP, emu_exec_wgmma_commit, "end a group of the wgmmas issued so far")
OP_ROW(OP_WGMMA_WAIT, LANES_WARPGROUP, emu_exec_wgmma_wait, "wait until at most `immediate` groups are unfinished")
OP_ROW(OP_MAX_REGISTERS, LANES_WARPGROUP, emu_exec_max_registers, "setmaxnreg to `immediate` a thread; detail 1: .inc")
/* tensor memory and its tensor core */
OP_ROW(OP_TENSOR_ALLOC, LANES_WARP, emu_exec_tensor_alloc,
       "a tensor_alloc_detail: r[0] = the address of r[1] columns, or they are freed")
OP_ROW(OP_TENSOR_LOAD, LANES_WARP, emu_exec_tensor_load, "r[0 .. dests) = tensor memory")
OP_ROW(OP_TENSOR_STORE, LANES_WARP, emu_exec_tensor_store, "tensor memory = the sources after the address")
OP_ROW(OP_TENSOR_WAIT, LANES_WARP, emu_exec_tensor_wait, "wait for the loads of the warp; detail 1: its stores")
OP_ROW(OP_TENSOR_FENCE, LANES_EACH, emu_exec_tensor_fence, "a tensor_fence_detail")
OP_ROW(OP_TENSOR_MMA, LANES_EACH, emu_exec_tensor_mma, "issue a product: a tensor_kind and a tensor_detail")
OP_ROW(OP_TENSOR_COPY, LANES_EACH, emu_exec_tensor_copy, "issue a copy from shared to tensor memory at r[0]")
OP_ROW(OP_TENSOR_SHIFT, LANES_EACH, emu_exec_tensor_shift, "issue a shift of 32 lanes down by one row")
OP_ROW(OP_TENSOR_COMMIT, LANES_EACH, emu_exec_tensor_commit,
       "arrive at an mbarrier once what the thread has issued is done")
/* copies */
OP_ROW(OP_COPY_ASYNC, LANES_EACH, emu_exec_copy_async, "issue a cp.async")
OP_ROW(OP_COPY_COMMIT, LANES_EACH, emu_exec_copy_commit, "end a group of the thread's cp.async")
OP_ROW(OP_COPY_WAIT, LANES_EACH, emu_exec_copy_wait,
       "wait until at most `immediate` groups are unfinished; -1: all copies")
OP_ROW(OP_COPY_ARRIVE, LANES_EACH, emu_exec_copy_arrive,
       "arrive at an mbarrier once the thread's cp.async have completed")
OP_ROW(OP_BULK, LANES_EACH, emu_exec_bulk, "issue a bulk copy: a bulk_detail")
OP_ROW(OP_CANCEL, LANES_EACH, emu_exec_cancel, "cancel a cluster of the grid; detail 1: tell all CTAs of the cluster")
OP_ROW(OP_BULK_COMMIT, LANES_EACH, emu_exec_bulk_commit, "end a group of the thread's bulk copies")
OP_ROW(OP_BULK_WAIT, LANES_EACH, emu_exec_bulk_wait,
       "wait until at most `immediate` groups are unfinished; detail 1: .read")
OP_ROW(OP_TENSOR_FIELD, LANES_EACH, emu_exec_tensor_field,
       "field `detail`, of axis `immediate`, of the tensor map at r[0] = r[1]")
OP_ROW(OP_TENSOR_MAP_COPY, LANES_EACH, emu_exec_tensor_map_copy,
       "tensor map at r[0] in global memory = that at r[1] in shared")
OP_ROW(OP_TENSOR_MAP_FENCE, LANES_EACH, emu_exec_tensor_map_fence,
       "copies after it use the tensor map at r[0] as it is")
/* synchronization */
OP_ROW(OP_BARRIER, LANES_LIVE, emu_exec_barrier, "barrier r[0] of the CTA, for r[1] threads: a barrier_mode")
OP_ROW(OP_WARP_BARRIER, LANES_NAMED, emu_exec_warp_barrier, "the lanes named by r[0] wait for each other")
OP_ROW(OP_CLUSTER_BARRIER, LANES_ALIGNED, emu_exec_cluster_barrier, "a cluster_barrier_detail")
OP_ROW(OP_MBARRIER_INIT, LANES_EACH, emu_exec_mbarrier_init, "initialize an mbarrier")
OP_ROW(OP_MBARRIER_ARRIVE, LANES_EACH, emu_exec_mbarrier_arrive, "r[0] = the state before the arrival")
OP_ROW(OP_MBARRIER_WAIT, LANES_EACH, emu_exec_mbarrier_wait, "p[0] = whether the phase is complete: an mbarrier_detail")
OP_ROW(OP_MBARRIER_INVALIDATE, LANES_EACH, emu_exec_mbarrier_invalidate, "end an mbarrier")
OP_ROW(OP_MBARRIER_BYTES, LANES_EACH, emu_exec_mbarrier_bytes, "expect_tx; detail 1: complete_tx")
OP_ROW(OP_FENCE, LANES_EACH, emu_exec_fence, "order the thread's accesses for other threads")
OP_ROW(OP_PROXY_FENCE, LANES_EACH, emu_exec_proxy_fence, "order generic accesses before those of the async proxy")
OP_ROW(OP_INIT_FENCE, LANES_EACH, emu_exec_init_fence, "publish initialized mbarriers to the cluster")
OP_ROW(OP_GRID_WAIT, LANES_EACH, emu_exec_grid_wait, "wait until the launches before have ended")
OP_ROW(OP_MAP_ADDRESS, LANES_EACH, emu_exec_map_address, "r[0] = address r[1] in the CTA of rank r[2]")
OP_ROW(OP_CTA_RANK, LANES_EACH, emu_exec_cta_rank, "r[0] = the rank of the CTA of address r[1]")
/* lanes of a warp */
OP_ROW(OP_SHUFFLE, LANES_NAMED, emu_exec_shuffle, "r[0] = r[1] of another lane: a shuffle_mode")
OP_ROW(OP_VOTE, LANES_NAMED, emu_exec_vote, "r[0] or p[0] = p[2] over the lanes: a vote_mode")
OP_ROW(OP_REDUX, LANES_NAMED, emu_exec_redux, "r[0] = r[1] reduced over the lanes by an atomic_operation")
OP_ROW(OP_MATCH, LANES_NAMED, emu_exec_match, "r[0] = the lanes with the same r[1]: a match_mode")
OP_ROW(OP_ELECT, LANES_NAMED, emu_exec_elect, "p[0] = whether the lane is the elected one, r[0] = that lane")
OP_ROW(OP_ACTIVE_MASK, LANES_EACH, emu_exec_active_mask, "r[0] = the lanes that execute this op together")
OP_ROW(OP_CLOCK, LANES_EACH, emu_exec_clock, "r[0] = the special register `detail`")
OP_ROW(OP_NOTHING, LANES_EACH, emu_exec_nothing, "nothing")

/* ---- what the emulator does not see ---- */

BLIND_ROW("", "Two streams: kernels before the first cuStreamCreate are not compared.")
BLIND_ROW("griddepcontrol",
          "A dependent grid begins when the grid before it has ended. What it reads or writes before .wait is reported "
          "where that grid wrote memory of cuMemAlloc, not where it only read.")
BLIND_ROW("fence|membar",
          "A fence that is missing after a .relaxed load of a flag in shared memory of another CTA is not reported.")
BLIND_ROW("ld|ldu|ldmatrix",
          "The checks keep few earlier reads, so they can miss a race with one: in shared memory the lanes of "
          "each warp that read since it last synchronized, in global memory the last reads of two threads.")
BLIND_ROW("st", "Two threads that store or copy one value by one instruction are not reported: the result is certain.")
BLIND_ROW("ld|st|prefetch|createpolicy|applypriority|discard",
          "There are no caches, and hints change nothing. Only --orders all delays accesses; it and --stale return "
          "earlier values.")
BLIND_ROW("atom|red|cp",
          "Sums of floats depend on the order of the atomics; a run shows one order, --schedule SEED another.")
BLIND_ROW("mov", "%clock, %clock64 and %globaltimer count the warp instructions of the CTA, not time.")
BLIND_ROW("tex|tld4", "Textures have no mipmaps.")

/* ---- targets ---- */

#define FROM(number, names, modifiers) TARGET_ROW(names, modifiers, "sm_" #number " or later")
#define TENSOR_TARGETS "sm_100f, sm_110f or later in the family"
#define NARROW_TARGETS "sm_100f, sm_110f, sm_120f or later in the family"
#define FOUR_BYTES_TARGETS "sm_107f, sm_120f or later in the family"
#define SCALED_TARGETS "sm_100a, sm_103a, sm_107a or sm_110a"
FROM(53, "add|sub|mul|fma|abs|neg|setp|set", "f16|f16x2")
FROM(61, "dp4a|dp2a", "")
FROM(70, "bmsk|szext|match|nanosleep|wmma|fence", "")
FROM(70, "lop3", "and|or")
FROM(70, "cvta|isspacep", "param|param::entry")
FROM(70, "mov", "b128")
FROM(75, "tanh|ldmatrix|movmatrix|mma", "")
FROM(75, "ex2", "f16|f16x2")
FROM(80, "redux|createpolicy|applypriority|discard|mbarrier", "")
FROM(80, "fma|abs|neg|min|max", "bf16|bf16x2")
FROM(80, "fma", "relu")
FROM(80, "min|max", "NaN")
FROM(80, "min|max", "f16|f16x2")
FROM(86, "min|max", "xorsign")
FROM(90, "add|sub|mul|ex2|tanh|setp|set", "bf16|bf16x2")
FROM(90, "fma", "oob")
FROM(90, "add|min|max", "u16x2|s16x2")
FROM(90, "min|max", "relu")
FROM(100, "add|sub|mul|fma", "f32x2")
FROM(100, "add|sub|fma", "f32 f16|bf16")
FROM(100, "a min or max of three", "")
TARGET_ROW("add|sub|neg|min|max", "u8x4|s8x4", FOUR_BYTES_TARGETS)
/* conversions */
FROM(70, "cvt", "satfinite f16")
FROM(72, "cvt", "pack")
FROM(75, "cvt", "pack u4|s4|u2|s2")
FROM(80, "cvt", "f16x2|bf16|bf16x2|tf32")
FROM(80, "cvt", "relu")
FROM(89, "cvt", "e4m3x2|e5m2x2")
FROM(90, "cvt", "bf16 u16|s16|u32|s32|u64|s64|f16|bf16|f64")
FROM(90, "cvt", "u16|s16|u32|s32|u64|s64|f16|bf16|f64 bf16")
FROM(90, "cvt", "ftz f32 bf16")
FROM(90, "cvt", "rn|rz tf32")
FROM(100, "cvt", "rn|rz satfinite tf32")
TARGET_ROW("cvt", "e2m1x2|e2m3x2|e3m2x2|ue8m0x2", NARROW_TARGETS)
TARGET_ROW("cvt", "bf16x2 e4m3x2|e5m2x2", NARROW_TARGETS)
TARGET_ROW("cvt", "e4m3x2|e5m2x2 bf16x2", NARROW_TARGETS)
TARGET_ROW("cvt", "rs", "sm_100a, sm_103a or sm_107a")
/* memory */
FROM(60, "atom|red", "cta|gpu|sys")
FROM(60, "atom|red", "f64|f16x2")
FROM(70, "ld|st",
     "weak|relaxed|acquire|release|L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate")
FROM(70, "ld|st", "b128")
FROM(70, "atom|red", "relaxed|acquire|release|acq_rel")
FROM(70, "atom|red", "f16")
FROM(70, "atom", "cas b16")
FROM(75, "ld", "L2::64B|L2::128B")
FROM(80, "ld", "L2::256B")
FROM(80, "ld|st|atom|red", "L2::cache_hint")
FROM(80, "prefetch", "L2::evict_last|L2::evict_normal")
FROM(90, "prefetch", "tensormap")
FROM(90, "ld|st|atom|red|fence|mbarrier|cvta|isspacep|barrier", "cluster|shared::cluster")
FROM(90, "atom|red", "bf16|bf16x2|b128")
FROM(90, "atom|red", "v2|v4")
FROM(90, "st|red", "async")
FROM(100, "st", "bulk")
FROM(100, "ld|st", "v8 b32|u32|s32|f32")
FROM(100, "ld|st", "v4 b64|u64|s64|f64")
/* matrices */
FROM(72, "wmma", "s8|u8|s32")
FROM(75, "wmma", "m8n8k32|m8n8k128")
FROM(80, "wmma", "bf16|tf32|f64|m16n16k8|m8n8k4")
FROM(80, "wmma", "and")
FROM(80, "mma", "m8n8k4|m16n8k4|m16n8k16|m16n8k32|m16n8k64|m16n8k128|m16n8k256")
FROM(80, "mma", "bf16|tf32")
FROM(80, "mma", "and")
FROM(89, "mma", "e4m3|e5m2")
FROM(90, "mma", "m16n8k4|m16n8k8|m16n8k16 f64")
FROM(90, "stmatrix", "")
TARGET_ROW("ldmatrix", "m8n16|m16n16", NARROW_TARGETS)
TARGET_ROW("stmatrix", "m16n8", NARROW_TARGETS)
TARGET_ROW("mma", "kind::f8f6f4", NARROW_TARGETS)
TARGET_ROW("mma", "kind::f8f6f4 e3m2|e2m3|e2m1", "sm_120f or later in the family")
TARGET_ROW("mma", "kind::f8f6f4 sp::ordered_metadata f16", "sm_120f or later in the family")
TARGET_ROW("mma", "block_scale", "sm_120f or later in the family")
TARGET_ROW("mma", "kind::mxf4|kind::mxf4nvf4 sp::ordered_metadata", "sm_120a or sm_121a")
TARGET_ROW("wgmma", "", "sm_90a")
TARGET_ROW("tcgen05", "", TENSOR_TARGETS)
TARGET_ROW("tcgen05", "red", "sm_103f, sm_110f or later in the family")
TARGET_ROW("tcgen05", "kind::i8", "sm_100a or sm_110a")
TARGET_ROW("tcgen05", "shift", SCALED_TARGETS)
TARGET_ROW("tcgen05", "scale_vec::1X|scale_vec::2X|scale_vec::4X", SCALED_TARGETS)
TARGET_ROW("tcgen05", "sp kind::mxf4|kind::mxf4nvf4", SCALED_TARGETS)
TARGET_ROW("scale-input-d", "", "sm_100f or later in the family")
/* copies, barriers and control */
FROM(80, "cp", "async")
FROM(90, "cp", "bulk")
FROM(100, "cp", "tile::gather4")
TARGET_ROW("cp", "cta_group::1|cta_group::2", TENSOR_TARGETS)
TARGET_ROW("cp", "shared::cluster global tile::gather4", TENSOR_TARGETS)
TARGET_ROW("cp", "tile::scatter4|im2col::w|im2col::w::128", TENSOR_TARGETS)
TARGET_ROW("cp", "prefetch tensor tile::gather4", TENSOR_TARGETS)
FROM(90, "mbarrier", "try_wait|expect_tx|complete_tx")
FROM(90, "mbarrier", "relaxed")
FROM(90, "an mbarrier's arrival with a count", "")
FROM(90, "fence", "acquire|release")
FROM(90, "fence", "async")
FROM(90, ".explicitcluster|.reqnctapercluster|.maxclusterrank", "")
FROM(90, "elect|griddepcontrol|mapa|getctarank|tensormap", "")
TARGET_ROW("setmaxnreg", "", "sm_90a, " NARROW_TARGETS)
TARGET_ROW("tensormap", "replace", "sm_90a, " NARROW_TARGETS)
TARGET_ROW("redux", "f32", "sm_100f or later in the family")
FROM(100, "clusterlaunchcontrol", "")
TARGET_ROW("clusterlaunchcontrol", "multicast::cluster::all", NARROW_TARGETS)
FROM(80,
     "%reserved_smem_offset_begin|%reserved_smem_offset_end|%reserved_smem_offset_cap|%reserved_smem_offset_0|"
     "%reserved_smem_offset_1",
     "")
FROM(90,
     "%clusterid.x|%clusterid.y|%clusterid.z|%nclusterid.x|%nclusterid.y|%nclusterid.z|%cluster_ctaid.x|"
     "%cluster_ctaid.y|%cluster_ctaid.z|%cluster_nctaid.x|%cluster_nctaid.y|%cluster_nctaid.z|%cluster_ctarank|"
     "%cluster_nctarank|%is_explicit_cluster",
     "")
#undef FROM
#undef TENSOR_TARGETS
#undef NARROW_TARGETS
#undef FOUR_BYTES_TARGETS
#undef SCALED_TARGETS

/* ---- PTX forms ---- */

#define COMPARES "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan"
#define FLOAT_COMPARES "eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"
#define COMPARABLE "b16|u16|s16|b32|u32|s32|b64|u64|s64|f32|f64|f16|bf16|f16x2|bf16x2"
#define SELECTABLE "b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64"
#define INTEGERS "u8|s8|u16|s16|u32|s32|u64|s64"
#define ROUNDING "rn|rz|rm|rp"
#define LOAD_ORDER "weak|volatile|relaxed|acquire? mmio?"
#define STORE_ORDER "weak|volatile|relaxed|release? mmio?"
#define SCOPE "cta|cluster|gpu|sys?"
#define L1_HINT "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate?"
#define L2_HINT "L2::evict_normal|L2::evict_first|L2::evict_last? L2::64B|L2::128B|L2::256B?"
#define SHARED "shared|shared::cta"
#define RANK "1d|2d|3d|4d|5d"
#define WGMMA_SHAPES                                                                                                   \
    "m64n8k16|m64n16k16|m64n24k16|m64n32k16|m64n40k16|m64n48k16|m64n56k16|m64n64k16|m64n72k16|m64n80k16|m64n88k16|"    \
    "m64n96k16|m64n104k16|m64n112k16|m64n120k16|m64n128k16|m64n136k16|m64n144k16|m64n152k16|m64n160k16|m64n168k16|"    \
    "m64n176k16|m64n184k16|m64n192k16|m64n200k16|m64n208k16|m64n216k16|m64n224k16|m64n232k16|m64n240k16|m64n248k16|"   \
    "m64n256k16"
#define WGMMA_SHAPES_K8                                                                                                \
    "m64n8k8|m64n16k8|m64n24k8|m64n32k8|m64n40k8|m64n48k8|m64n56k8|m64n64k8|m64n72k8|m64n80k8|m64n88k8|m64n96k8|"      \
    "m64n104k8|m64n112k8|m64n120k8|m64n128k8|m64n136k8|m64n144k8|m64n152k8|m64n160k8|m64n168k8|m64n176k8|m64n184k8|"   \
    "m64n192k8|m64n200k8|m64n208k8|m64n216k8|m64n224k8|m64n232k8|m64n240k8|m64n248k8|m64n256k8"
#define WGMMA_SHAPES_K32                                                                                               \
    "m64n8k32|m64n16k32|m64n24k32|m64n32k32|m64n48k32|m64n64k32|m64n80k32|m64n96k32|m64n112k32|m64n128k32|m64n144k32|" \
    "m64n160k32|m64n176k32|m64n192k32|m64n208k32|m64n224k32|m64n240k32|m64n256k32"
#define WGMMA_SHAPES_BYTES                                                                                             \
    "m64n8k32|m64n16k32|m64n24k32|m64n32k32|m64n40k32|m64n48k32|m64n56k32|m64n64k32|m64n72k32|m64n80k32|m64n88k32|"    \
    "m64n96k32|m64n104k32|m64n112k32|m64n120k32|m64n128k32|m64n136k32|m64n144k32|m64n152k32|m64n160k32|m64n168k32|"    \
    "m64n176k32|m64n184k32|m64n192k32|m64n200k32|m64n208k32|m64n216k32|m64n224k32|m64n232k32|m64n240k32|m64n248k32|"   \
    "m64n256k32"
#define CACHE_HINT "L2::cache_hint?"
#define ATOMIC_SPACES "global|" SHARED "|shared::cluster?"
#define DATA "b8|u8|s8|b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64|b128"
#define LOAD_SPACES "global|shared|shared::cta|shared::cluster|local|const|param|param::entry?"
#define STORE_SPACES "global|shared|shared::cta|shared::cluster|local|param|param::func?"

#define INT(opcode, modifiers, operands, function)                                                                     \
    LANES_ROW("integer", opcode, modifiers, operands, EXACT, function, "")
#define BIT(opcode, modifiers, operands, function) LANES_ROW("logic", opcode, modifiers, operands, EXACT, function, "")
#define FLOAT(opcode, modifiers, operands, function)                                                                   \
    LANES_ROW("float", opcode, modifiers, operands, EXACT, function, "")
#define SPECIAL(opcode, modifiers, fidelity, function)                                                                 \
    LANES_ROW("special function", opcode, modifiers, "d, a", fidelity, function, "computed in f64 and rounded once")
#define H200(opcode, modifiers, operands, function)                                                                    \
    LANES_ROW("special function", opcode, modifiers, operands, RECORDED, function, "as an H200, bit for bit")

/* integer */
#define BY_WIDTH(opcode, modifiers, operands, name)                                                                    \
    INT(opcode, modifiers "u16|s16", operands, name##_16)                                                              \
    INT(opcode, modifiers "u32|s32", operands, name##_32)                                                              \
    INT(opcode, modifiers "u64|s64", operands, name##_64)
#define BY_TYPE(opcode, modifiers, operands, name)                                                                     \
    INT(opcode, modifiers "u16", operands, name##_u16)                                                                 \
    INT(opcode, modifiers "s16", operands, name##_s16)                                                                 \
    INT(opcode, modifiers "u32", operands, name##_u32)                                                                 \
    INT(opcode, modifiers "s32", operands, name##_s32)                                                                 \
    INT(opcode, modifiers "u64", operands, name##_u64)                                                                 \
    INT(opcode, modifiers "s64", operands, name##_s64)
BY_WIDTH("add", "", "d, a, b", emu_lanes_add)
BY_WIDTH("sub", "", "d, a, b", emu_lanes_sub)
INT("add", "sat s32", "d, a, b", emu_lanes_add_sat_s32)
INT("sub", "sat s32", "d, a, b", emu_lanes_sub_sat_s32)
INT("add", "u16x2|s16x2", "d, a, b", emu_lanes_add_16x2)
BY_WIDTH("mul", "lo ", "d, a, b", emu_lanes_mul_lo)
BY_TYPE("mul", "hi ", "d, a, b", emu_lanes_mul_hi)
INT("mul", "wide u16", "d.32, a, b", emu_lanes_mul_wide_u16)
INT("mul", "wide s16", "d.32, a, b", emu_lanes_mul_wide_s16)
INT("mul", "wide u32", "d.64, a, b", emu_lanes_mul_wide_u32)
INT("mul", "wide s32", "d.64, a, b", emu_lanes_mul_wide_s32)
BY_WIDTH("mad", "lo ", "d, a, b, c", emu_lanes_mad_lo)
BY_TYPE("mad", "hi ", "d, a, b, c", emu_lanes_mad_hi)
INT("mad", "hi sat s32", "d, a, b, c", emu_lanes_mad_hi_sat_s32)
INT("mad", "wide u16", "d.32, a, b, c.32", emu_lanes_mad_wide_u16)
INT("mad", "wide s16", "d.32, a, b, c.32", emu_lanes_mad_wide_s16)
INT("mad", "wide u32", "d.64, a, b, c.64", emu_lanes_mad_wide_u32)
INT("mad", "wide s32", "d.64, a, b, c.64", emu_lanes_mad_wide_s32)
INT("mul24", "lo u32", "d, a, b", emu_lanes_mul24_lo_u32)
INT("mul24", "lo s32", "d, a, b", emu_lanes_mul24_lo_s32)
INT("mul24", "hi u32", "d, a, b", emu_lanes_mul24_hi_u32)
INT("mul24", "hi s32", "d, a, b", emu_lanes_mul24_hi_s32)
INT("mad24", "lo u32", "d, a, b, c", emu_lanes_mad24_lo_u32)
INT("mad24", "lo s32", "d, a, b, c", emu_lanes_mad24_lo_s32)
INT("mad24", "hi u32", "d, a, b, c", emu_lanes_mad24_hi_u32)
INT("mad24", "hi s32", "d, a, b, c", emu_lanes_mad24_hi_s32)
INT("mad24", "hi sat s32", "d, a, b, c", emu_lanes_mad24_hi_sat_s32)
FORM_ROW("integer", "add", "cc u32|s32|u64|s64", "d, a, b", OP_CARRY, EXACT, emu_decode_carry,
         "cc: the carry of each lane, kept for addc")
FORM_ROW("integer", "sub", "cc u32|s32|u64|s64", "d, a, b", OP_CARRY, EXACT, emu_decode_carry,
         "the carry is the borrow")
FORM_ROW("integer", "addc", "u16|s16", "d, a, b", OP_CARRY, EXACT, emu_decode_carry, "")
FORM_ROW("integer", "addc", "cc? u32|s32|u64|s64", "d, a, b", OP_CARRY, EXACT, emu_decode_carry, "")
FORM_ROW("integer", "addc", "sat s32", "d, a, b", OP_CARRY, EXACT, emu_decode_carry, "")
FORM_ROW("integer", "subc", "u16|s16", "d, a, b", OP_CARRY, EXACT, emu_decode_carry, "")
FORM_ROW("integer", "subc", "cc? u32|s32|u64|s64", "d, a, b", OP_CARRY, EXACT, emu_decode_carry, "")
FORM_ROW("integer", "subc", "sat s32", "d, a, b", OP_CARRY, EXACT, emu_decode_carry, "")
FORM_ROW("integer", "mad", "lo|hi cc u32|s32|u64|s64", "d, a, b, c", OP_CARRY, EXACT, emu_decode_carry, "")
FORM_ROW("integer", "madc", "lo u16|s16", "d, a, b, c", OP_CARRY, EXACT, emu_decode_carry, "")
FORM_ROW("integer", "madc", "lo|hi cc? u32|s32|u64|s64", "d, a, b, c", OP_CARRY, EXACT, emu_decode_carry, "")
BY_TYPE("sad", "", "d, a, b, c", emu_lanes_sad)
BY_TYPE("div", "", "d, a, b", emu_lanes_div)
BY_TYPE("rem", "", "d, a, b", emu_lanes_rem)
INT("abs", "s16", "d, a", emu_lanes_abs_s16)
INT("abs", "s32", "d, a", emu_lanes_abs_s32)
INT("abs", "s64", "d, a", emu_lanes_abs_s64)
INT("neg", "s16", "d, a", emu_lanes_neg_16)
INT("neg", "s32", "d, a", emu_lanes_neg_32)
INT("neg", "s64", "d, a", emu_lanes_neg_64)
BY_TYPE("min", "", "d, a, b", emu_lanes_min)
BY_TYPE("max", "", "d, a, b", emu_lanes_max)
INT("min", "u16x2", "d, a, b", emu_lanes_min_u16x2)
INT("min", "s16x2", "d, a, b", emu_lanes_min_s16x2)
INT("min", "relu s32", "d, a, b", emu_lanes_min_relu_s32)
INT("min", "relu s16x2", "d, a, b", emu_lanes_min_relu_s16x2)
INT("max", "u16x2", "d, a, b", emu_lanes_max_u16x2)
INT("max", "s16x2", "d, a, b", emu_lanes_max_s16x2)
INT("max", "relu s32", "d, a, b", emu_lanes_max_relu_s32)
INT("max", "relu s16x2", "d, a, b", emu_lanes_max_relu_s16x2)
#define FOUR_BYTES(opcode, modifiers, name)                                                                            \
    INT(opcode, modifiers "u8x4", "d, a, b", name##_u8x4)                                                              \
    INT(opcode, modifiers "s8x4", "d, a, b", name##_s8x4)
FOUR_BYTES("min", "", emu_lanes_min)
FOUR_BYTES("max", "", emu_lanes_max)
FOUR_BYTES("add", "sat ", emu_lanes_add_sat)
FOUR_BYTES("sub", "sat ", emu_lanes_sub_sat)
INT("add", "u8x4|s8x4", "d, a, b", emu_lanes_add_8x4)
INT("sub", "u8x4|s8x4", "d, a, b", emu_lanes_sub_8x4)
INT("neg", "s8x4", "d, a", emu_lanes_neg_8x4)
#undef FOUR_BYTES
INT("dp4a", "u32 u32", "d, a, b, c", emu_lanes_dp4a_uu)
INT("dp4a", "u32 s32", "d, a, b, c", emu_lanes_dp4a_us)
INT("dp4a", "s32 u32", "d, a, b, c", emu_lanes_dp4a_su)
INT("dp4a", "s32 s32", "d, a, b, c", emu_lanes_dp4a_ss)
INT("dp2a", "lo u32 u32", "d, a, b, c", emu_lanes_dp2a_lo_uu)
INT("dp2a", "lo u32 s32", "d, a, b, c", emu_lanes_dp2a_lo_us)
INT("dp2a", "lo s32 u32", "d, a, b, c", emu_lanes_dp2a_lo_su)
INT("dp2a", "lo s32 s32", "d, a, b, c", emu_lanes_dp2a_lo_ss)
INT("dp2a", "hi u32 u32", "d, a, b, c", emu_lanes_dp2a_hi_uu)
INT("dp2a", "hi u32 s32", "d, a, b, c", emu_lanes_dp2a_hi_us)
INT("dp2a", "hi s32 u32", "d, a, b, c", emu_lanes_dp2a_hi_su)
INT("dp2a", "hi s32 s32", "d, a, b, c", emu_lanes_dp2a_hi_ss)
INT("popc", "b32", "d, a", emu_lanes_popc_32)
INT("popc", "b64", "d.32, a", emu_lanes_popc_64)
INT("clz", "b32", "d, a", emu_lanes_clz_32)
INT("clz", "b64", "d.32, a", emu_lanes_clz_64)
INT("brev", "b32", "d, a", emu_lanes_brev_32)
INT("brev", "b64", "d, a", emu_lanes_brev_64)
INT("bfind", "u32", "d, a", emu_lanes_bfind_u32)
INT("bfind", "s32", "d, a", emu_lanes_bfind_s32)
INT("bfind", "u64", "d.32, a", emu_lanes_bfind_u64)
INT("bfind", "s64", "d.32, a", emu_lanes_bfind_s64)
INT("bfind", "shiftamt u32", "d, a", emu_lanes_bfind_shiftamt_u32)
INT("bfind", "shiftamt s32", "d, a", emu_lanes_bfind_shiftamt_s32)
INT("bfind", "shiftamt u64", "d.32, a", emu_lanes_bfind_shiftamt_u64)
INT("bfind", "shiftamt s64", "d.32, a", emu_lanes_bfind_shiftamt_s64)
INT("fns", "b32", "d, a, b, c", emu_lanes_fns)
INT("bfe", "u32", "d, a, b.32, c.32", emu_lanes_bfe_u32)
INT("bfe", "s32", "d, a, b.32, c.32", emu_lanes_bfe_s32)
INT("bfe", "u64", "d, a, b.32, c.32", emu_lanes_bfe_u64)
INT("bfe", "s64", "d, a, b.32, c.32", emu_lanes_bfe_s64)
INT("bfi", "b32", "d, a, b, c.32, e.32", emu_lanes_bfi_32)
INT("bfi", "b64", "d, a, b, c.32, e.32", emu_lanes_bfi_64)
INT("bmsk", "clamp b32", "d, a, b", emu_lanes_bmsk_clamp)
INT("bmsk", "wrap b32", "d, a, b", emu_lanes_bmsk_wrap)
INT("szext", "clamp u32", "d, a, b", emu_lanes_szext_u32)
INT("szext", "clamp s32", "d, a, b", emu_lanes_szext_s32)
INT("szext", "wrap u32", "d, a, b", emu_lanes_szext_wrap_u32)
INT("szext", "wrap s32", "d, a, b", emu_lanes_szext_wrap_s32)
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
BIT("cnot", "b16", "d, a", emu_lanes_cnot_16)
BIT("cnot", "b32", "d, a", emu_lanes_cnot_32)
BIT("cnot", "b64", "d, a", emu_lanes_cnot_64)
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
FORM_ROW("logic", "lop3", "and|or b32", "d|p, a, b, c, immediate, q", OP_LANES_4, EXACT, emu_decode_lop3,
         "p: whether d is not 0, with q")
BIT("prmt", "b32", "d, a, b, c", emu_lanes_prmt)
BIT("prmt", "b32 f4e", "d, a, b, c", emu_lanes_prmt_f4e)
BIT("prmt", "b32 b4e", "d, a, b, c", emu_lanes_prmt_b4e)
BIT("prmt", "b32 rc8", "d, a, b, c", emu_lanes_prmt_rc8)
BIT("prmt", "b32 ecl", "d, a, b, c", emu_lanes_prmt_ecl)
BIT("prmt", "b32 ecr", "d, a, b, c", emu_lanes_prmt_ecr)
BIT("prmt", "b32 rc16", "d, a, b, c", emu_lanes_prmt_rc16)
/* floating point */
#define PLAIN_AND_FTZ(opcode, modifiers, tail, operands, name)                                                         \
    FLOAT(opcode, modifiers tail "f32", operands, name)                                                                \
    FLOAT(opcode, modifiers "ftz " tail "f32", operands, name##_ftz)
PLAIN_AND_FTZ("add", ROUNDING "? ", "sat? ", "d, a, b", emu_lanes_add_f32)
#define PAIRS(opcode, modifiers, operands, name)                                                                       \
    FLOAT(opcode, modifiers " f32x2", operands, name)                                                                  \
    FLOAT(opcode, modifiers " ftz f32x2", operands, name##_ftz)
PAIRS("add", ROUNDING "?", "d, a, b", emu_lanes_add_f32x2)
PAIRS("sub", ROUNDING "?", "d, a, b", emu_lanes_sub_f32x2)
PAIRS("mul", ROUNDING "?", "d, a, b", emu_lanes_mul_f32x2)
PAIRS("fma", ROUNDING, "d, a, b, c", emu_lanes_fma_f32x2)
#undef PAIRS
PLAIN_AND_FTZ("sub", ROUNDING "? ", "sat? ", "d, a, b", emu_lanes_sub_f32)
PLAIN_AND_FTZ("mul", ROUNDING "? ", "sat? ", "d, a, b", emu_lanes_mul_f32)
PLAIN_AND_FTZ("fma", ROUNDING " ", "sat? ", "d, a, b, c", emu_lanes_fma_f32)
PLAIN_AND_FTZ("mad", ROUNDING " ", "sat? ", "d, a, b, c", emu_lanes_fma_f32)
#define MIXED(type)                                                                                                    \
    FLOAT("add", ROUNDING "? sat? f32 " #type, "d, a.16, b", emu_lanes_add_f32_##type)                                 \
    FLOAT("sub", ROUNDING "? sat? f32 " #type, "d, a.16, b", emu_lanes_sub_f32_##type)                                 \
    FLOAT("fma", ROUNDING " sat? f32 " #type, "d, a.16, b.16, c", emu_lanes_fma_f32_##type)
MIXED(f16)
MIXED(bf16)
#undef MIXED
PLAIN_AND_FTZ("div", ROUNDING " ", "", "d, a, b", emu_lanes_div_f32)
H200("div", "approx f32", "d, a, b", emu_lanes_div_approx_f32)
H200("div", "approx ftz f32", "d, a, b", emu_lanes_div_approx_f32_ftz)
H200("div", "full f32", "d, a, b", emu_lanes_div_full_f32)
H200("div", "full ftz f32", "d, a, b", emu_lanes_div_full_f32_ftz)
PLAIN_AND_FTZ("min", "", "", "d, a, b", emu_lanes_min_f32)
PLAIN_AND_FTZ("max", "", "", "d, a, b", emu_lanes_max_f32)
FLOAT("min", "ftz? NaN f32", "d, a, b", emu_lanes_min_nan_f32)
FLOAT("max", "ftz? NaN f32", "d, a, b", emu_lanes_max_nan_f32)
FLOAT("min", "ftz? xorsign? abs f32", "d, a, b", emu_lanes_min_f32)
FLOAT("max", "ftz? xorsign? abs f32", "d, a, b", emu_lanes_max_f32)
FLOAT("min", "ftz? NaN xorsign? abs f32", "d, a, b", emu_lanes_min_nan_f32)
FLOAT("max", "ftz? NaN xorsign? abs f32", "d, a, b", emu_lanes_max_nan_f32)
PLAIN_AND_FTZ("abs", "", "", "d, a", emu_lanes_abs_f32)
PLAIN_AND_FTZ("neg", "", "", "d, a", emu_lanes_neg_f32)
FLOAT("copysign", "f32", "d, a, b", emu_lanes_copysign_f32)
FLOAT("copysign", "f64", "d, a, b", emu_lanes_copysign_f64)
#define SPECIAL_F32(opcode, modifiers, fidelity, name)                                                                 \
    SPECIAL(opcode, modifiers "f32", fidelity, name)                                                                   \
    SPECIAL(opcode, modifiers "ftz f32", fidelity, name##_ftz)
SPECIAL_F32("rcp", ROUNDING " ", EXACT, emu_lanes_rcp_f32)
H200("rcp", "approx f32", "d, a", emu_lanes_rcp_approx_f32)
H200("rcp", "approx ftz f32", "d, a", emu_lanes_rcp_approx_f32_ftz)
SPECIAL_F32("sqrt", ROUNDING " ", EXACT, emu_lanes_sqrt_f32)
SPECIAL_F32("sqrt", "approx ", FORMULA, emu_lanes_sqrt_f32)
SPECIAL_F32("rsqrt", "approx ", FORMULA, emu_lanes_rsqrt_f32)
H200("ex2", "approx f32", "d, a", emu_lanes_ex2_f32)
H200("ex2", "approx ftz f32", "d, a", emu_lanes_ex2_f32_ftz)
SPECIAL_F32("lg2", "approx ", FORMULA, emu_lanes_lg2_f32)
SPECIAL_F32("sin", "approx ", FORMULA, emu_lanes_sin_f32)
SPECIAL_F32("cos", "approx ", FORMULA, emu_lanes_cos_f32)
SPECIAL("tanh", "approx f32", FORMULA, emu_lanes_tanh_f32)
FLOAT("add", ROUNDING "? f64", "d, a, b", emu_lanes_add_f64)
FLOAT("sub", ROUNDING "? f64", "d, a, b", emu_lanes_sub_f64)
FLOAT("mul", ROUNDING "? f64", "d, a, b", emu_lanes_mul_f64)
FLOAT("fma", ROUNDING " f64", "d, a, b, c", emu_lanes_fma_f64)
FLOAT("mad", ROUNDING " f64", "d, a, b, c", emu_lanes_fma_f64)
FLOAT("div", ROUNDING " f64", "d, a, b", emu_lanes_div_f64)
FLOAT("min", "f64", "d, a, b", emu_lanes_min_f64)
FLOAT("max", "f64", "d, a, b", emu_lanes_max_f64)
FLOAT("abs", "f64", "d, a", emu_lanes_abs_f64)
FLOAT("neg", "f64", "d, a", emu_lanes_neg_f64)
LANES_ROW("float", "rcp", ROUNDING " ftz? f64", "d, a", EXACT, emu_lanes_rcp_f64,
          "ftz changes nothing, as in the machine code of ptxas")
FLOAT("sqrt", ROUNDING " f64", "d, a", emu_lanes_sqrt_f64)
SPECIAL("rsqrt", "approx f64", FORMULA, emu_lanes_rsqrt_f64)
LANES_ROW("special function", "rcp", "approx ftz f64", "d, a", RECORDED, emu_lanes_rcp_high_f64,
          "upper 32 bits in and out, as an H200, bit for bit")
LANES_ROW("special function", "rsqrt", "approx ftz f64", "d, a", FORMULA, emu_lanes_rsqrt_high_f64,
          "upper 32 bits in and out, the result is cut")
#define HALVES(type, ftz, sat)                                                                                         \
    FLOAT("add", "rn? " ftz sat #type, "d, a, b", emu_lanes_add_##type)                                                \
    FLOAT("sub", "rn? " ftz sat #type, "d, a, b", emu_lanes_sub_##type)                                                \
    FLOAT("mul", "rn? " ftz sat #type, "d, a, b", emu_lanes_mul_##type)                                                \
    FLOAT("min", ftz #type, "d, a, b", emu_lanes_min_##type)                                                           \
    FLOAT("max", ftz #type, "d, a, b", emu_lanes_max_##type)                                                           \
    FLOAT("min", ftz "NaN " #type, "d, a, b", emu_lanes_min_nan_##type)                                                \
    FLOAT("max", ftz "NaN " #type, "d, a, b", emu_lanes_max_nan_##type)                                                \
    FLOAT("min", ftz "xorsign abs " #type, "d, a, b", emu_lanes_min_##type)                                            \
    FLOAT("max", ftz "xorsign abs " #type, "d, a, b", emu_lanes_max_##type)                                            \
    FLOAT("min", ftz "NaN xorsign abs " #type, "d, a, b", emu_lanes_min_nan_##type)                                    \
    FLOAT("max", ftz "NaN xorsign abs " #type, "d, a, b", emu_lanes_max_nan_##type)                                    \
    FLOAT("neg", ftz #type, "d, a", emu_lanes_neg_##type)                                                              \
    FLOAT("abs", ftz #type, "d, a", emu_lanes_abs_##type)                                                              \
    SPECIAL("tanh", "approx " #type, FORMULA, emu_lanes_tanh_##type)
HALVES(f16, "ftz? ", "sat? ")
HALVES(f16x2, "ftz? ", "sat? ")
HALVES(bf16, "", "")
HALVES(bf16x2, "", "")
#define FMA_HALF(modifiers, type, fidelity, note)                                                                      \
    LANES_ROW("float", "fma", modifiers " " #type, "d, a, b, c", fidelity, emu_lanes_fma_##type, note)                 \
    LANES_ROW("float", "fma", modifiers " " #type "x2", "d, a, b, c", fidelity, emu_lanes_fma_##type##x2, note)
FMA_HALF("rn ftz? sat|relu?", f16, EXACT, "")
FMA_HALF("rn relu?", bf16, EXACT, "")
FMA_HALF("rn sat|relu? oob", f16, RECORDED, "0 where a or b is 0x7ff7 or 0xfff7, as on an H200")
FMA_HALF("rn relu? oob", bf16, RECORDED, "likewise")
SPECIAL("ex2", "approx f16", FORMULA, emu_lanes_ex2_f16)
SPECIAL("ex2", "approx f16x2", FORMULA, emu_lanes_ex2_f16x2)
SPECIAL("ex2", "approx ftz bf16", FORMULA, emu_lanes_ex2_bf16)
SPECIAL("ex2", "approx ftz bf16x2", FORMULA, emu_lanes_ex2_bf16x2)
/* predicates, moves, conversions */
FORM_ROW("compare", "setp", COMPARES " ftz? " COMPARABLE, "p|q, a, b", OP_COMPARE, EXACT, emu_decode_compare,
         "q may be absent: the opposite; of a packed type, the comparison of the upper half")
FORM_ROW("compare", "setp", COMPARES " and|or|xor ftz? " COMPARABLE, "p|q, a, b, c", OP_COMPARE, EXACT,
         emu_decode_compare, "c is a predicate")
#define SETS(compares, to, from, ftz)                                                                                  \
    FORM_ROW("compare", "set", compares ftz " " to " " from, "d, a, b", OP_SELECT, EXACT, emu_decode_set,              \
             "all ones or 1.0 where it holds")                                                                         \
    FORM_ROW("compare", "set", compares " and|or|xor" ftz " " to " " from, "d, a, b, c", OP_SELECT, EXACT,             \
             emu_decode_set, "c is a predicate")
SETS(COMPARES, "u32|s32", COMPARABLE, " ftz?")
SETS(COMPARES, "f32", "b16|u16|s16|b32|u32|s32|b64|u64|s64|f32|f64", " ftz?")
SETS(FLOAT_COMPARES, "u16|s16", "f16|bf16", " ftz?")
SETS(COMPARES, "f16", "b16|u16|s16|b32|u32|s32|b64|u64|s64|f16|f32|f64", " ftz?")
SETS(COMPARES, "bf16", "b16|u16|s16|b32|u32|s32|b64|u64|s64|bf16|f16|f32|f64", "")
SETS(FLOAT_COMPARES, "f16x2", "f16x2", " ftz?")
SETS(FLOAT_COMPARES, "bf16x2", "bf16x2", "")
FORM_ROW("compare", "testp", "finite|infinite|number|notanumber|normal|subnormal f32|f64", "p, a", OP_COMPARE, EXACT,
         emu_decode_test, "")
FORM_ROW("compare", "selp", SELECTABLE, "d, a, b, p", OP_SELECT, EXACT, emu_decode_select, "")
FORM_ROW("compare", "slct", SELECTABLE " s32", "d, a, b, c.32", OP_SELECT, EXACT, emu_decode_sign_select,
         "a where c is not negative")
FORM_ROW("compare", "slct", "ftz? " SELECTABLE " f32", "d, a, b, c.32", OP_SELECT, EXACT, emu_decode_sign_select,
         "b where c is NaN")
FORM_ROW("compare", "and", "pred", "p, a, b", OP_PREDICATE, EXACT, emu_decode_predicate, "")
FORM_ROW("compare", "or", "pred", "p, a, b", OP_PREDICATE, EXACT, emu_decode_predicate, "")
FORM_ROW("compare", "xor", "pred", "p, a, b", OP_PREDICATE, EXACT, emu_decode_predicate, "")
FORM_ROW("compare", "not", "pred", "p, a", OP_PREDICATE, EXACT, emu_decode_predicate, "")
FORM_ROW("compare", "mov", "pred", "p, a", OP_PREDICATE, EXACT, emu_decode_predicate, "")
FORM_ROW("move", "mov", "b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64|b128", "d, a", OP_LANES, EXACT, emu_decode_move,
         "a: register, number, special register, variable; either side may be a vector that is packed or unpacked")
FORM_ROW("move", "mov", "v2|v4 b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64", "d, a", OP_LANES, EXACT,
         emu_decode_move_vector,
         "d: a vector of at most 16 bytes; a: one of as many elements, or a number or register for each of them")
FORM_ROW("move", "cvta", "to? global|shared|shared::cta|shared::cluster|local|const|param|param::entry u64", "d, a",
         OP_LANES, EXACT, emu_decode_address_convert, "")
FORM_ROW("move", "isspacep", "global|shared|shared::cta|shared::cluster|local|const|param|param::entry", "p, a.64",
         OP_COMPARE, EXACT, emu_decode_is_space, "")
#define CONVERT(modifiers, operands, note)                                                                             \
    FORM_ROW("convert", "cvt", modifiers, operands, OP_LANES, EXACT, emu_decode_convert, note)
CONVERT("sat? " INTEGERS " " INTEGERS, "d, a", "registers may be wider than the types")
CONVERT("rni|rzi|rmi|rpi ftz? sat? " INTEGERS " f32", "d, a", "out of range gives the nearest value")
CONVERT("rni|rzi|rmi|rpi sat? " INTEGERS " f64|f16", "d, a", "likewise")
CONVERT("rni|rzi|rmi|rpi u16|s16|u32|s32|u64|s64 bf16", "d, a", "likewise")
CONVERT("rni|rzi|rmi|rpi ftz? sat? f32 f32", "d, a", "rounds to an integral value")
CONVERT("rni|rzi|rmi|rpi sat? f64 f64", "d, a", "likewise")
CONVERT("rni|rzi|rmi|rpi sat? f16 f16", "d, a", "likewise")
CONVERT("rni|rzi|rmi|rpi bf16 bf16", "d, a", "likewise")
CONVERT(ROUNDING " sat? f16|f64 " INTEGERS, "d, a", "")
CONVERT(ROUNDING " ftz? sat? f32 " INTEGERS, "d, a", "")
CONVERT(ROUNDING " bf16 u16|s16|u32|s32|u64|s64", "d, a", "")
CONVERT("ftz? sat? f32|f64 f32", "d, a", "")
CONVERT("sat? f64 f64", "d, a", "")
CONVERT(ROUNDING " ftz? sat? f32 f64", "d, a", "")
CONVERT("ftz? sat? f32 f16", "d, a", "")
CONVERT("sat? f16|f64 f16", "d, a", "")
CONVERT(ROUNDING "? bf16 f16", "d, a", "to nearest without a rounding")
CONVERT(ROUNDING "? ftz? f32 bf16", "d, a", "")
CONVERT(ROUNDING "? f16|f64 bf16", "d, a", "to nearest without a rounding")
CONVERT("bf16 bf16", "d, a", "")
CONVERT(ROUNDING " sat? f16 f64", "d, a", "")
CONVERT(ROUNDING " bf16 f64", "d, a", "")
CONVERT(ROUNDING " ftz? sat? f16 f32", "d, a", "")
CONVERT(ROUNDING " ftz? bf16 f32", "d, a", "")
CONVERT("rn|rz relu? satfinite? f16|bf16 f32", "d, a", "")
CONVERT("rn|rz relu? satfinite? f16x2|bf16x2 f32", "d, a, b", "a becomes the upper half")
CONVERT("rn satfinite relu? e4m3x2|e5m2x2 f32", "d, a, b", "a becomes the upper half")
CONVERT("rn satfinite relu? e2m1x2|e2m3x2|e3m2x2 f32", "d, a, b", "a becomes the upper half; NaN the largest number")
CONVERT("rn satfinite relu? e4m3x2|e5m2x2|e2m1x2|e2m3x2|e3m2x2 f16x2|bf16x2", "d, a", "")
CONVERT("rn relu? f16x2|bf16x2 e4m3x2|e5m2x2|e2m1x2|e2m3x2|e3m2x2", "d, a", "")
CONVERT("rz|rp satfinite? ue8m0x2 f32", "d, a, b", "of magnitudes; a becomes the upper half")
CONVERT("rz|rp satfinite? ue8m0x2 bf16x2", "d, a", "of magnitudes")
CONVERT("rn bf16x2 ue8m0x2", "d, a", "")
CONVERT("rna satfinite? tf32 f32", "d.32, a", "")
CONVERT("rn|rz satfinite? relu? tf32 f32", "d.32, a", "")
#define STOCHASTIC(modifiers, operands)                                                                                \
    FORM_ROW("convert", "cvt", "rs relu? " modifiers " f32", operands, OP_LANES, FORMULA, emu_decode_stochastic,       \
             "rounded up if the bits that are cut and those of r carry; a pair shares its bits of r")
STOCHASTIC("satfinite? f16x2|bf16x2", "d, a, b, r.32")
STOCHASTIC("satfinite e4m3x4|e5m2x4|e2m3x4|e3m2x4|e2m1x4", "d, {a, b, e, f}, r.32")
#undef STOCHASTIC
FORM_ROW("convert", "cvt", "pack sat u16|s16 s32", "d.32, a, b", OP_LANES, EXACT, emu_decode_pack,
         "a becomes the upper half")
FORM_ROW("convert", "cvt", "pack sat u8|s8|u4|s4|u2|s2 s32 b32", "d.32, a, b, c", OP_LANES, EXACT, emu_decode_pack,
         "a and b, a above b, below the low bits of c")
/* memory */
FORM_ROW("memory", "ld",
         LOAD_ORDER " " SCOPE " " LOAD_SPACES " ca|cg|cs|lu|cv? nc? " L1_HINT " " L2_HINT " " CACHE_HINT
                    " v2|v4|v8? " DATA,
         "d, [a], policy", OP_LOAD, EXACT, emu_decode_load,
         "d: a vector with v2 and v4; cache operators and hints change nothing here; policy with L2::cache_hint only")
FORM_ROW("memory", "ldu", "global? v2|v4? " DATA, "d, [a]", OP_LOAD, EXACT, emu_decode_load, "")
FORM_ROW("memory", "st",
         STORE_ORDER " " SCOPE " " STORE_SPACES " wb|cg|cs|wt? " L1_HINT " " L2_HINT " " CACHE_HINT " v2|v4|v8? " DATA,
         "[a], b, policy", OP_STORE, EXACT, emu_decode_store, "likewise")
FORM_ROW("memory", "st",
         "async weak? shared::cluster? mbarrier::complete_tx::bytes v2|v4? b32|u32|s32|f32|b64|u64|s64|f64",
         "[a], b, [mbarrier]", OP_BULK, EXACT, emu_decode_store_async, "lands as late as the mbarrier allows")
FORM_ROW("memory", "st", "bulk weak? shared::cta?", "[a], bytes, 0", OP_ZEROS, EXACT, emu_decode_store_bulk, "")
#define RED_ASYNC(operations)                                                                                          \
    FORM_ROW("memory", "red", "async relaxed cluster shared::cluster? mbarrier::complete_tx::bytes " operations,       \
             "[a], b, [mbarrier]", OP_BULK, EXACT, emu_decode_store_async, "likewise")
RED_ASYNC("add u32|s32|u64|s64")
RED_ASYNC("min|max u32|s32")
RED_ASYNC("inc|dec u32")
RED_ASYNC("and|or|xor b32")
#undef RED_ASYNC
#define ATOM(space, operations, note)                                                                                  \
    FORM_ROW("memory", "atom", "relaxed|acquire|release|acq_rel? " SCOPE " " space " " operations,                     \
             "d, [a], b, policy", OP_ATOMIC, EXACT, emu_decode_atomic, note)
#define ATOM_AND_RED(space, operations, note)                                                                          \
    ATOM(space, operations, note)                                                                                      \
    FORM_ROW("memory", "red", "relaxed|release? " SCOPE " " space " " operations, "[a], b, policy", OP_ATOMIC, EXACT,  \
             emu_decode_reduction, note)
ATOM_AND_RED(ATOMIC_SPACES, "add " CACHE_HINT " u32|s32|u64|f32|f64", "f32: subnormals are flushed in global memory")
ATOM_AND_RED(ATOMIC_SPACES, "min|max " CACHE_HINT " u32|s32|u64|s64", "")
ATOM_AND_RED(ATOMIC_SPACES, "and|or|xor " CACHE_HINT " b32|b64", "")
ATOM_AND_RED(ATOMIC_SPACES, "inc|dec " CACHE_HINT " u32", "")
ATOM_AND_RED(ATOMIC_SPACES, "add noftz " CACHE_HINT " f16|bf16|f16x2|bf16x2", "")
ATOM_AND_RED("global?", "add " CACHE_HINT " v2|v4 f32", "each element by itself")
ATOM_AND_RED("global?", "add|min|max noftz " CACHE_HINT " v2|v4 f16|bf16|f16x2|bf16x2", "likewise")
ATOM(ATOMIC_SPACES, "exch " CACHE_HINT " b32|b64|b128", "")
FORM_ROW("memory", "atom", "relaxed|acquire|release|acq_rel? " SCOPE " " ATOMIC_SPACES " cas b16|b32|b64|b128",
         "d, [a], b, c", OP_ATOMIC, EXACT, emu_decode_atomic, "")
#undef ATOM
#undef ATOM_AND_RED
FORM_ROW("memory", "prefetch", "global|local? L1|L2", "[a]", OP_NOTHING, NO_BITS, emu_decode_prefetch, "does nothing")
FORM_ROW("memory", "prefetch", "global L2::evict_last|L2::evict_normal", "[a]", OP_NOTHING, NO_BITS,
         emu_decode_prefetch, "likewise")
FORM_ROW("memory", "prefetchu", "L1", "[a]", OP_NOTHING, NO_BITS, emu_decode_prefetch, "likewise")
FORM_ROW("memory", "applypriority", "global? L2::evict_normal", "[a], 128", OP_ADDRESS, NO_BITS, emu_decode_cache_line,
         "the address is checked")
FORM_ROW("memory", "discard", "global? L2", "[a], 128", OP_ADDRESS, NO_BITS, emu_decode_cache_line,
         "likewise; the data stays")
FORM_ROW("memory", "createpolicy",
         "fractional L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged "
         "L2::evict_first|L2::evict_unchanged? b64",
         "d, fraction", OP_LANES, FORMULA, emu_decode_policy, "0, which cache hints ignore; fraction may be absent")
FORM_ROW("memory", "createpolicy",
         "range global? L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged "
         "L2::evict_first|L2::evict_unchanged? b64",
         "d, [a], primary, total", OP_LANES, FORMULA, emu_decode_policy, "likewise")
FORM_ROW("memory", "createpolicy", "cvt L2 b64", "d, a", OP_LANES, FORMULA, emu_decode_policy, "likewise")
FORM_ROW("ldmatrix", "ldmatrix", "sync aligned m8n8 x1|x2|x4 trans? " SHARED "? b16", "{d, ...}, [a]", OP_LDMATRIX,
         EXACT, emu_decode_ldmatrix, "")
FORM_ROW("ldmatrix", "ldmatrix", "sync aligned m8n16 x1|x2|x4 " SHARED "? b8x16 b6x16_p32|b4x16_p64", "{d, ...}, [a]",
         OP_LDMATRIX, EXACT, emu_decode_ldmatrix, "elements of 6 or 4 bits become the lower part of a byte each")
FORM_ROW("ldmatrix", "ldmatrix", "sync aligned m16n16 x1|x2 trans " SHARED "? b8", "{d, ...}, [a]", OP_LDMATRIX, EXACT,
         emu_decode_ldmatrix, "")
FORM_ROW("ldmatrix", "ldmatrix", "sync aligned m16n16 x1|x2 trans " SHARED "? b8x16 b6x16_p32|b4x16_p64",
         "{d, ...}, [a]", OP_LDMATRIX, EXACT, emu_decode_ldmatrix, "likewise as a byte each")
FORM_ROW("ldmatrix", "stmatrix", "sync aligned m8n8 x1|x2|x4 trans? " SHARED "? b16", "[a], {b, ...}", OP_STMATRIX,
         EXACT, emu_decode_stmatrix, "")
FORM_ROW("ldmatrix", "stmatrix", "sync aligned m16n8 x1|x2|x4 trans " SHARED "? b8", "[a], {b, ...}", OP_STMATRIX,
         EXACT, emu_decode_stmatrix, "")
FORM_ROW("ldmatrix", "movmatrix", "sync aligned m8n8 trans b16", "d.32, a.32", OP_MOVMATRIX, EXACT, emu_decode_plain,
         "")
FORM_ROW("mma", "mma", "sync aligned m16n8k16|m16n8k8 row col f32 f16 f16 f32", "{d0..3}, {a}, {b}, {c0..3}", OP_MMA,
         RECORDED, emu_decode_mma, "one sum of exact terms, cut as on an H200")
FORM_ROW("mma", "mma", "sync aligned m16n8k16|m16n8k8 row col f32 bf16 bf16 f32", "{d0..3}, {a}, {b}, {c0..3}", OP_MMA,
         RECORDED, emu_decode_mma, "likewise")
#define MATRIX(modifiers, fidelity, note)                                                                              \
    FORM_ROW("mma", "mma", modifiers, "{d, ...}, {a, ...}, {b, ...}, {c, ...}", OP_MATRIX, fidelity,                   \
             emu_decode_matrix, note)
MATRIX("sync aligned m16n8k16|m16n8k8 row col f16 f16 f16 f16", RECORDED, "the sum of f32, rounded to the nearest")
MATRIX("sync aligned m16n8k8|m16n8k4 row col f32 tf32 tf32 f32", RECORDED, "the lower 13 bits of a and b are ignored")
MATRIX("sync aligned m8n8k4|m16n8k4|m16n8k8|m16n8k16 row col f64 f64 f64 f64", FORMULA,
       "fused multiply-adds in the order of k")
MATRIX("sync aligned m16n8k32|m16n8k16 row col f32 e4m3|e5m2 e4m3|e5m2 f32", RECORDED,
       "two sums of f16 products, as on an H200")
MATRIX("sync aligned m16n8k32|m16n8k16 row col f16 e4m3|e5m2 e4m3|e5m2 f16", RECORDED, "likewise, each rounded")
#define NARROW(modifiers, operands, note)                                                                              \
    FORM_ROW("mma", "mma", "sync aligned " modifiers, "{d, ...}, {a, ...}, {b, ...}, {c, ...}" operands, OP_NARROW,    \
             FORMULA, emu_decode_narrow, note)
#define NARROWS "e4m3|e5m2|e3m2|e2m3|e2m1 e4m3|e5m2|e3m2|e2m3|e2m1"
#define SCALES ", a-scales, {a-byte, a-lanes}, b-scales, {b-byte, b-lane}"
#define SPARSE " sp::ordered_metadata "
NARROW("kind::f8f6f4 m16n8k32 row col f32|f16 " NARROWS " f32|f16", "",
       "sm_120a: one sum of exact terms, as MMA-Sim (arXiv 2511.10909) models it; not measured here")
NARROW("kind::mxf8f6f4 block_scale scale_vec::1X? m16n8k32 row col f32 " NARROWS " f32 ue8m0", SCALES, "likewise")
NARROW("kind::mxf4|kind::mxf4nvf4 block_scale scale_vec::2X|scale_vec::4X? m16n8k64 row col f32 e2m1 e2m1 f32 "
       "ue8m0|ue4m3",
       SCALES, "likewise")
NARROW("kind::f8f6f4" SPARSE "m16n8k64 row col f32|f16 " NARROWS " f32|f16", ", indices, 0", "likewise")
NARROW("kind::mxf8f6f4" SPARSE "block_scale scale_vec::1X? m16n8k64 row col f32 " NARROWS " f32 ue8m0",
       ", indices, 0" SCALES, "likewise")
NARROW("kind::mxf4|kind::mxf4nvf4" SPARSE
       "block_scale scale_vec::2X|scale_vec::4X? m16n8k128 row col f32 e2m1 e2m1 f32 "
       "ue8m0|ue4m3",
       ", indices, 0" SCALES, "likewise")
#undef SPARSE
#undef NARROW
#undef NARROWS
#undef SCALES
MATRIX("sync aligned m8n8k16|m16n8k16|m16n8k32 row col satfinite? s32 s8|u8 s8|u8 s32", EXACT, "exact")
MATRIX("sync aligned m8n8k32|m16n8k32|m16n8k64 row col satfinite? s32 s4|u4 s4|u4 s32", EXACT, "exact")
MATRIX("sync aligned m8n8k128|m16n8k128|m16n8k256 row col s32 b1 b1 s32 xor|and popc", EXACT, "exact")
#undef MATRIX
#define WMMA_SHAPES "m16n16k16|m32n8k16|m8n32k16"
#define WMMA_SPACES "global|" SHARED "?"
#define WMMA_LOAD(modifiers)                                                                                           \
    FORM_ROW("wmma", "wmma", modifiers, "{d, ...}, [a], stride", OP_WMMA_LOAD, EXACT, emu_decode_wmma_load,            \
             "stride may be absent")
WMMA_LOAD("load a|b sync aligned row|col " WMMA_SHAPES " " WMMA_SPACES " f16|bf16|s8|u8")
WMMA_LOAD("load a|b sync aligned row|col m16n16k8 " WMMA_SPACES " tf32")
WMMA_LOAD("load a|b sync aligned row|col m8n8k4 " WMMA_SPACES " f64")
WMMA_LOAD("load a sync aligned row m8n8k32 " WMMA_SPACES " s4|u4")
WMMA_LOAD("load b sync aligned col m8n8k32 " WMMA_SPACES " s4|u4")
WMMA_LOAD("load a sync aligned row m8n8k128 " WMMA_SPACES " b1")
WMMA_LOAD("load b sync aligned col m8n8k128 " WMMA_SPACES " b1")
WMMA_LOAD("load c sync aligned row|col " WMMA_SHAPES " " WMMA_SPACES " f16|f32|s32")
WMMA_LOAD("load c sync aligned row|col m16n16k8 " WMMA_SPACES " f32")
WMMA_LOAD("load c sync aligned row|col m8n8k4 " WMMA_SPACES " f64")
WMMA_LOAD("load c sync aligned row|col m8n8k32|m8n8k128 " WMMA_SPACES " s32")
#define WMMA_STORE(modifiers)                                                                                          \
    FORM_ROW("wmma", "wmma", modifiers, "[a], {b, ...}, stride", OP_WMMA_STORE, EXACT, emu_decode_wmma_store,          \
             "likewise")
WMMA_STORE("store d sync aligned row|col " WMMA_SHAPES " " WMMA_SPACES " f16|f32|s32")
WMMA_STORE("store d sync aligned row|col m16n16k8 " WMMA_SPACES " f32")
WMMA_STORE("store d sync aligned row|col m8n8k4 " WMMA_SPACES " f64")
WMMA_STORE("store d sync aligned row|col m8n8k32|m8n8k128 " WMMA_SPACES " s32")
#define WMMA(modifiers, fidelity, note)                                                                                \
    FORM_ROW("wmma", "wmma", modifiers, "{d, ...}, {a, ...}, {b, ...}, {c, ...}", OP_MATRIX, fidelity,                 \
             emu_decode_matrix, note)
WMMA("mma sync aligned row|col row|col " WMMA_SHAPES " f16|f32 f16|f32", RECORDED,
     "types of d and c; sums as those of mma")
WMMA("mma sync aligned row|col row|col " WMMA_SHAPES " f32 bf16 bf16 f32", RECORDED, "likewise")
WMMA("mma sync aligned row|col row|col " WMMA_SHAPES " satfinite? s32 s8|u8 s8|u8 s32", EXACT,
     "exact; a and b of one type")
WMMA("mma sync aligned row|col row|col m16n16k8 f32 tf32 tf32 f32", RECORDED,
     "the lower 13 bits of a and b are ignored")
WMMA("mma sync aligned row|col row|col m8n8k4 rn? f64 f64 f64 f64", FORMULA, "fused multiply-adds in the order of k")
WMMA("mma sync aligned row col m8n8k32 satfinite? s32 s4|u4 s4|u4 s32", EXACT, "exact; a and b of one type")
WMMA("mma xor|and popc sync aligned row col m8n8k128 s32 b1 b1 s32", EXACT, "exact")
#undef WMMA
#undef WMMA_LOAD
#undef WMMA_STORE
#undef WMMA_SHAPES
#undef WMMA_SPACES
/* asynchronous copies */
FORM_ROW(
    "cp.async", "cp", "async ca|cg shared|shared::cta global " CACHE_HINT " L2::64B|L2::128B|L2::256B?",
    "[d], [a], bytes, source-bytes, policy", OP_COPY_ASYNC, EXACT, emu_decode_copy_async,
    "bytes 4, 8 or 16 (cg: 16); source-bytes may be absent, or a predicate that makes them 0; the rest is filled with "
    "zeros")
FORM_ROW("cp.async", "cp", "async commit_group", "", OP_COPY_COMMIT, NO_BITS, emu_decode_plain, "")
FORM_ROW("cp.async", "cp", "async wait_group", "n", OP_COPY_WAIT, NO_BITS, emu_decode_copy_wait,
         "copies land here, as late as allowed")
FORM_ROW("cp.async", "cp", "async wait_all", "", OP_COPY_WAIT, NO_BITS, emu_decode_copy_wait, "")
FORM_ROW("cp.async", "cp", "async mbarrier arrive noinc? shared|shared::cta? b64", "[a]", OP_COPY_ARRIVE, NO_BITS,
         emu_decode_copy_arrive, "")
/* wgmma: of a warpgroup, sm_90a */
FORM_ROW("wgmma", "wgmma", "mma_async sync aligned " WGMMA_SHAPES " f32 f16 f16",
         "{d}, A, B, scale-d, scale-a, scale-b, trans-a, trans-b", OP_WGMMA, RECORDED, emu_decode_wgmma,
         "A: a descriptor, or {a0..3} without trans-a; one sum of exact terms, cut as on an H200")
FORM_ROW("wgmma", "wgmma", "mma_async sync aligned " WGMMA_SHAPES " f32 bf16 bf16",
         "{d}, A, B, scale-d, scale-a, scale-b, trans-a, trans-b", OP_WGMMA, RECORDED, emu_decode_wgmma, "likewise")
FORM_ROW("wgmma", "wgmma", "mma_async sync aligned " WGMMA_SHAPES " f16 f16 f16",
         "{d}, A, B, scale-d, scale-a, scale-b, trans-a, trans-b", OP_WGMMA, RECORDED, emu_decode_wgmma,
         "two sums in a register, rounded to the nearest")
FORM_ROW("wgmma", "wgmma", "mma_async sync aligned " WGMMA_SHAPES_K8 " f32 tf32 tf32",
         "{d}, A, B, scale-d, scale-a, scale-b", OP_WGMMA, RECORDED, emu_decode_wgmma,
         "the lower 13 bits of A and B are ignored")
FORM_ROW("wgmma", "wgmma", "mma_async sync aligned " WGMMA_SHAPES_BYTES " f32|f16 e4m3|e5m2 e4m3|e5m2",
         "{d}, A, B, scale-d, scale-a, scale-b", OP_WGMMA, RECORDED, emu_decode_wgmma,
         "one sum of exact terms, cut to 14 bits as on an H200")
FORM_ROW("wgmma", "wgmma", "mma_async sync aligned " WGMMA_SHAPES_K32 " satfinite? s32 s8|u8 s8|u8",
         "{d}, A, B, scale-d", OP_WGMMA, EXACT, emu_decode_wgmma, "exact")
FORM_ROW("wgmma", "wgmma", "fence sync aligned", "", OP_WGMMA_FENCE, NO_BITS, emu_decode_plain, "")
FORM_ROW("wgmma", "wgmma", "commit_group sync aligned", "", OP_WGMMA_COMMIT, NO_BITS, emu_decode_plain, "")
FORM_ROW("wgmma", "wgmma", "wait_group sync aligned", "n", OP_WGMMA_WAIT, NO_BITS, emu_decode_wgmma_wait, "")
/* tcgen05: sm_100a and its like */
#define GROUP "cta_group::1|cta_group::2"
#define TIMES "x1|x2|x4|x8|x16|x32|x64|x128"
#define COLLECTOR "collector::a::fill|collector::a::use|collector::a::lastuse|collector::a::discard?"
#define COLLECTOR_B                                                                                                    \
    "collector::b0::fill|collector::b0::use|collector::b0::lastuse|collector::b0::discard|collector::b1::fill|"        \
    "collector::b1::use|collector::b1::lastuse|collector::b1::discard|collector::b2::fill|collector::b2::use|"         \
    "collector::b2::lastuse|collector::b2::discard|collector::b3::fill|collector::b3::use|collector::b3::lastuse|"     \
    "collector::b3::discard?"
#define TENSOR(modifiers, operands, kind, fidelity, decode, note)                                                      \
    FORM_ROW("tcgen05", "tcgen05", modifiers, operands, kind, fidelity, decode, note)
TENSOR("alloc " GROUP " sync aligned shared::cta? b32", "[a], columns.32", OP_TENSOR_ALLOC, FORMULA,
       emu_decode_tensor_alloc, "waits until so many columns are free; first fit")
TENSOR("dealloc " GROUP " sync aligned b32", "a, columns.32", OP_TENSOR_ALLOC, NO_BITS, emu_decode_tensor_alloc, "")
TENSOR("relinquish_alloc_permit " GROUP " sync aligned", "", OP_TENSOR_ALLOC, NO_BITS, emu_decode_tensor_alloc, "")
TENSOR("ld sync aligned 32x32b|16x64b|16x128b|16x256b " TIMES " pack::16b? b32", "{d}, [a]", OP_TENSOR_LOAD, EXACT,
       emu_decode_tensor_load, "reads at once; .wait::ld follows before the registers are used")
TENSOR("ld sync aligned 16x32bx2 " TIMES " pack::16b? b32", "{d}, [a], split", OP_TENSOR_LOAD, EXACT,
       emu_decode_tensor_load, "likewise")
TENSOR("ld red sync aligned 32x32b|16x32bx2 " TIMES " min|max abs? NaN? f32|u32|s32", "{d}, e, [a], split",
       OP_TENSOR_LOAD, EXACT, emu_decode_tensor_load_red, "e: over all registers of a lane")
TENSOR("st sync aligned 32x32b|16x64b|16x128b|16x256b " TIMES " unpack::16b? b32", "[a], {b}", OP_TENSOR_STORE, EXACT,
       emu_decode_tensor_store, "")
TENSOR("st sync aligned 16x32bx2 " TIMES " unpack::16b? b32", "[a], split, {b}", OP_TENSOR_STORE, EXACT,
       emu_decode_tensor_store, "")
TENSOR("wait::ld|wait::st sync aligned", "", OP_TENSOR_WAIT, NO_BITS, emu_decode_tensor_wait, "")
TENSOR("fence::before_thread_sync|fence::after_thread_sync", "", OP_TENSOR_FENCE, NO_BITS, emu_decode_tensor_fence, "")
TENSOR("cp " GROUP " 128x256b|4x256b|128x128b b8x16? b6x16_p32|b4x16_p64?", "[a], descriptor", OP_TENSOR_COPY, FORMULA,
       emu_decode_tensor_copy, "b8x16: elements become bytes; where their bits are is a guess")
TENSOR("cp " GROUP " 64x128b warpx2::02_13|warpx2::01_23 b8x16? b6x16_p32|b4x16_p64?", "[a], descriptor",
       OP_TENSOR_COPY, FORMULA, emu_decode_tensor_copy, "likewise")
TENSOR("cp " GROUP " 32x128b warpx4 b8x16? b6x16_p32|b4x16_p64?", "[a], descriptor", OP_TENSOR_COPY, FORMULA,
       emu_decode_tensor_copy, "likewise")
TENSOR("shift " GROUP " down", "[a]", OP_TENSOR_SHIFT, FORMULA, emu_decode_tensor_shift,
       "32 bytes of each of 32 lanes go to the next lane; the first keeps its own")
TENSOR("commit " GROUP " mbarrier::arrive::one? shared::cluster? multicast::cluster? b64", "[mbarrier], mask.16",
       OP_TENSOR_COMMIT, NO_BITS, emu_decode_tensor_commit, "arrives as late as the mbarrier allows")
#define MMA_NOTE "one sum of exact terms, as MMA-Sim (arXiv 2511.10909) found for a B200; not measured here"
#define MMA(modifiers, operands, fidelity, note)                                                                       \
    TENSOR("mma " modifiers, operands, OP_TENSOR_MMA, fidelity, emu_decode_tensor_mma, note)
MMA("sp? " GROUP " kind::f16|kind::tf32|kind::f8f6f4 ashift? " COLLECTOR,
    "[d], A, B, [indices], idesc, {lanes off}, enable-d, scale-d", FORMULA, MMA_NOTE)
MMA("sp? " GROUP " kind::i8 ashift? " COLLECTOR, "[d], A, B, [indices], idesc, {lanes off}, enable-d", EXACT, "exact")
MMA("sp? " GROUP " kind::mxf8f6f4|kind::mxf4|kind::mxf4nvf4 block_scale "
    "scale_vec::1X|scale_vec::2X|scale_vec::4X|block16|block32? " COLLECTOR,
    "[d], A, B, [indices], idesc, [scales], [scales], enable-d", FORMULA, MMA_NOTE)
MMA("ws sp? cta_group::1 kind::f16|kind::tf32|kind::f8f6f4 " COLLECTOR_B,
    "[d], A, B, [indices], idesc, enable-d, zero-columns", FORMULA, MMA_NOTE)
MMA("ws sp? cta_group::1 kind::i8 " COLLECTOR_B, "[d], A, B, [indices], idesc, enable-d, zero-columns", EXACT, "exact")
#undef MMA
#undef MMA_NOTE
#undef TENSOR
#undef COLLECTOR
#undef COLLECTOR_B
#undef TIMES
#undef GROUP
/* synchronization */
FORM_ROW("barrier", "bar", "cta? sync", "a, b", OP_BARRIER, NO_BITS, emu_decode_barrier,
         "a: 0 to 15, may be absent; b: threads, may be absent")
FORM_ROW("barrier", "bar", "cta? arrive", "a, b", OP_BARRIER, NO_BITS, emu_decode_barrier, "")
FORM_ROW("barrier", "bar", "cta? red popc u32", "d, a, b, p", OP_BARRIER, EXACT, emu_decode_barrier, "b may be absent")
FORM_ROW("barrier", "bar", "cta? red and|or pred", "p, a, b, c", OP_BARRIER, EXACT, emu_decode_barrier,
         "b may be absent")
FORM_ROW("barrier", "barrier", "cta? sync aligned?", "a, b", OP_BARRIER, NO_BITS, emu_decode_barrier,
         "all lanes of a warp must arrive together")
FORM_ROW("barrier", "barrier", "cta? arrive aligned?", "a, b", OP_BARRIER, NO_BITS, emu_decode_barrier, "likewise")
FORM_ROW("barrier", "barrier", "cta? red popc aligned? u32", "d, a, b, p", OP_BARRIER, EXACT, emu_decode_barrier,
         "likewise")
FORM_ROW("barrier", "barrier", "cta? red and|or aligned? pred", "p, a, b, c", OP_BARRIER, EXACT, emu_decode_barrier,
         "likewise")
FORM_ROW("barrier", "barrier", "cluster arrive release|relaxed? aligned?", "", OP_CLUSTER_BARRIER, NO_BITS,
         emu_decode_cluster_barrier, "")
FORM_ROW("barrier", "barrier", "cluster wait acquire? aligned?", "", OP_CLUSTER_BARRIER, NO_BITS,
         emu_decode_cluster_barrier, "")
FORM_ROW("barrier", "bar", "warp sync", "mask.32", OP_WARP_BARRIER, NO_BITS, emu_decode_plain, "")
FORM_ROW("warp", "shfl", "sync? up|down|bfly|idx b32", "d|p, a, b, c, mask", OP_SHUFFLE, EXACT, emu_decode_shuffle,
         "p may be absent; without sync and mask before PTX 6.4")
FORM_ROW("warp", "vote", "sync? any|all|uni pred", "p, a, mask", OP_VOTE, EXACT, emu_decode_vote,
         "without sync and mask before PTX 6.4")
FORM_ROW("warp", "vote", "sync? ballot b32", "d, a, mask", OP_VOTE, EXACT, emu_decode_vote, "likewise")
FORM_ROW("warp", "activemask", "b32", "d", OP_ACTIVE_MASK, FORMULA, emu_decode_plain, "")
FORM_ROW("warp", "redux", "sync add|min|max u32|s32", "d, a, mask", OP_REDUX, EXACT, emu_decode_redux, "")
FORM_ROW("warp", "redux", "sync and|or|xor b32", "d, a, mask", OP_REDUX, EXACT, emu_decode_redux, "")
FORM_ROW("warp", "redux", "sync min|max abs? NaN? f32", "d, a, mask", OP_REDUX, EXACT, emu_decode_redux, "")
FORM_ROW("warp", "match", "any sync b32|b64", "d.32, a, mask.32", OP_MATCH, EXACT, emu_decode_match, "")
FORM_ROW("warp", "match", "all sync b32|b64", "d.32|p, a, mask.32", OP_MATCH, EXACT, emu_decode_match,
         "p may be absent")
FORM_ROW("mbarrier", "mbarrier", "init shared|shared::cta? b64", "[a], count.32", OP_MBARRIER_INIT, NO_BITS,
         emu_decode_plain, "")
FORM_ROW("mbarrier", "mbarrier", "inval shared|shared::cta? b64", "[a]", OP_MBARRIER_INVALIDATE, NO_BITS,
         emu_decode_plain, "")
#define ARRIVE(modifiers, operands, note)                                                                              \
    FORM_ROW("mbarrier", "mbarrier", "arrive|arrive_drop " modifiers " b64", operands, OP_MBARRIER_ARRIVE, NO_BITS,    \
             emu_decode_mbarrier_arrive, note)
ARRIVE("release|relaxed? cta|cluster? shared|shared::cta?", "state, [a], count", "count may be absent; state may be _")
ARRIVE("expect_tx release|relaxed? cta|cluster? shared|shared::cta?", "state, [a], bytes", "state may be _")
ARRIVE("noComplete release? cta? shared|shared::cta?", "state, [a], count", "the phase must not complete by it")
ARRIVE("release|relaxed? cta|cluster? shared::cluster", "_, [a], count",
       "of any CTA of the cluster; count may be absent")
ARRIVE("expect_tx release|relaxed? cta|cluster? shared::cluster", "_, [a], bytes", "likewise")
#undef ARRIVE
FORM_ROW("mbarrier", "mbarrier", "pending_count b64", "d.32, state", OP_LANES, EXACT, emu_decode_mbarrier_pending,
         "arrivals that were missing before the one that gave the state")
FORM_ROW("mbarrier", "mbarrier", "expect_tx|complete_tx relaxed? cta|cluster? shared|shared::cta|shared::cluster? b64",
         "[a], bytes.32", OP_MBARRIER_BYTES, NO_BITS, emu_decode_mbarrier_bytes, "")
FORM_ROW("mbarrier", "mbarrier", "test_wait|try_wait acquire|relaxed? cta|cluster? shared|shared::cta? b64",
         "p, [a], state", OP_MBARRIER_WAIT, NO_BITS, emu_decode_mbarrier_wait,
         "the warp sleeps until the phase is complete, or nothing else can run")
FORM_ROW("mbarrier", "mbarrier", "test_wait|try_wait parity acquire|relaxed? cta|cluster? shared|shared::cta? b64",
         "p, [a], parity", OP_MBARRIER_WAIT, NO_BITS, emu_decode_mbarrier_wait, "likewise")
/* bulk copies: by the copy engine, which tells an mbarrier or a group */
FORM_ROW(
    "bulk", "cp",
    "async bulk shared::cluster|shared::cta global mbarrier::complete_tx::bytes multicast::cluster? L2::cache_hint?",
    "[d], [a], bytes, [mbarrier], mask, policy", OP_BULK, EXACT, emu_decode_bulk,
    "lands as late as the mbarrier allows; mask: the CTAs of a multicast, 16 bits")
FORM_ROW("bulk", "cp", "async bulk shared::cluster shared::cta mbarrier::complete_tx::bytes",
         "[d], [a], bytes, [mbarrier]", OP_BULK, EXACT, emu_decode_bulk, "likewise")
FORM_ROW("bulk", "cp", "async bulk global shared::cta bulk_group L2::cache_hint?", "[d], [a], bytes, policy", OP_BULK,
         EXACT, emu_decode_bulk, "lands when its group is waited for")
FORM_ROW("bulk", "cp",
         "async bulk tensor " RANK " shared::cluster|shared::cta global tile|tile::gather4? "
         "mbarrier::complete_tx::bytes multicast::cluster? cta_group::1|cta_group::2? L2::cache_hint?",
         "[d], [map, {coordinates}], [mbarrier], mask, policy", OP_BULK, EXACT, emu_decode_bulk,
         "cta_group::2: the mbarrier may be in the other CTA of the pair")
FORM_ROW("bulk", "cp",
         "async bulk tensor 3d|4d|5d shared::cluster|shared::cta global im2col mbarrier::complete_tx::bytes "
         "multicast::cluster? cta_group::1|cta_group::2? L2::cache_hint?",
         "[d], [map, {coordinates}], [mbarrier], {offsets}, mask, policy", OP_BULK, EXACT, emu_decode_bulk, "likewise")
FORM_ROW("bulk", "cp", "async bulk tensor " RANK " global shared::cta tile|tile::scatter4? bulk_group L2::cache_hint?",
         "[map, {coordinates}], [a], policy", OP_BULK, EXACT, emu_decode_bulk, "")
FORM_ROW("bulk", "cp", "async bulk tensor 3d|4d|5d global shared::cta im2col_no_offs bulk_group L2::cache_hint?",
         "[map, {coordinates}], [a], policy", OP_BULK, EXACT, emu_decode_bulk, "")
#define REDUCE(target, operands, operations)                                                                           \
    FORM_ROW("bulk", "cp", "reduce async bulk " target " " operations, operands, OP_BULK, EXACT, emu_decode_bulk,      \
             "each element by itself")
#define REDUCE_IN_CTA(operations)                                                                                      \
    REDUCE("shared::cluster shared::cta mbarrier::complete_tx::bytes", "[d], [a], bytes, [mbarrier]", operations)
#define REDUCE_IN_GLOBAL(operations)                                                                                   \
    REDUCE("global shared::cta bulk_group L2::cache_hint?", "[d], [a], bytes, policy", operations)
REDUCE_IN_CTA("add u32|s32|u64")
REDUCE_IN_CTA("min|max u32|s32")
REDUCE_IN_CTA("inc|dec u32")
REDUCE_IN_CTA("and|or|xor b32")
REDUCE_IN_GLOBAL("add u32|s32|u64|f32|f64")
REDUCE_IN_GLOBAL("add noftz f16|bf16")
REDUCE_IN_GLOBAL("min|max u32|s32|u64|s64|f16|bf16")
REDUCE_IN_GLOBAL("inc|dec u32")
REDUCE_IN_GLOBAL("and|or|xor b32|b64")
FORM_ROW("bulk", "cp",
         "reduce async bulk tensor " RANK
         " global shared::cta add|min|max|inc|dec|and|or|xor tile|im2col_no_offs? bulk_group L2::cache_hint?",
         "[map, {coordinates}], [a], policy", OP_BULK, EXACT, emu_decode_bulk,
         "the tensor map names the type of the elements")
#undef REDUCE_IN_GLOBAL
#undef REDUCE_IN_CTA
#undef REDUCE
FORM_ROW("bulk", "cp", "async bulk commit_group", "", OP_BULK_COMMIT, NO_BITS, emu_decode_plain, "")
FORM_ROW("bulk", "cp", "async bulk wait_group read?", "n", OP_BULK_WAIT, NO_BITS, emu_decode_bulk_wait,
         "with .read the copies may still write global memory")
FORM_ROW("bulk", "cp",
         "async bulk prefetch tensor? " RANK "? L2 global tile|tile::gather4|im2col|im2col::w|im2col::w::128? "
         "L2::cache_hint?",
         "...", OP_NOTHING, NO_BITS, emu_decode_nothing, "changes nothing here")
FORM_ROW("bulk", "prefetch", "param|const? tensormap", "[map]", OP_NOTHING, NO_BITS, emu_decode_prefetch, "likewise")
#define REPLACE(field, type, operands)                                                                                 \
    FORM_ROW("bulk", "tensormap", "replace tile " field " global|shared::cta? b1024 " type, operands, OP_TENSOR_FIELD, \
             EXACT, emu_decode_tensor_field, "of 128 bytes of zeros, or of a tensor map")
REPLACE("global_address", "b64", "[map], a")
REPLACE("rank|elemtype|interleave_layout|swizzle_mode|fill_mode", "b32", "[map], a")
REPLACE("box_dim|global_dim|element_stride", "b32", "[map], axis, a")
REPLACE("global_stride", "b64", "[map], axis, a")
#undef REPLACE
FORM_ROW("bulk", "tensormap",
         "cp_fenceproxy global shared::cta tensormap::generic release cta|cluster|gpu|sys sync aligned",
         "[d], [a], 128", OP_TENSOR_MAP_COPY, EXACT, emu_decode_tensor_map_copy, "")
FORM_ROW("fence", "fence", "proxy tensormap::generic acquire cta|cluster|gpu|sys", "[map], 128", OP_TENSOR_MAP_FENCE,
         NO_BITS, emu_decode_tensor_map_fence, "for the checks: tensor maps are seen at once")
FORM_ROW("fence", "fence", "proxy tensormap::generic release cta|cluster|gpu|sys", "", OP_NOTHING, NO_BITS,
         emu_decode_nothing, "does nothing: the checks look for .acquire alone")
/* textures and surfaces */
FORM_ROW("texture", "tex", "level? 1d|2d|3d|a1d|a2d v4 f32|u32|s32 f32|s32", "{d}, [object, {coordinates}], level",
         OP_TEXTURE, FORMULA, emu_decode_texture,
         "a layer comes first; no mipmaps: level is ignored; linear filters are exact to 8 bits")
FORM_ROW("texture", "tex", "level? cube v4 f32|u32|s32 f32", "{d}, [object, {x, y, z}], level", OP_TEXTURE, FORMULA,
         emu_decode_texture, "likewise")
#define SURFACE "b 1d|2d|3d|a1d|a2d v2|v4? b8|b16|b32|b64 trap|clamp|zero"
FORM_ROW("texture", "suld", SURFACE, "{d}, [object, {coordinates}]", OP_SURFACE, EXACT, emu_decode_surface_load,
         "x counts bytes")
FORM_ROW("texture", "sust", SURFACE, "[object, {coordinates}], {a}", OP_SURFACE, EXACT, emu_decode_surface_store,
         "likewise")
#undef SURFACE
/* warps of sm_90 */
FORM_ROW("warp", "elect", "sync", "d.32|p, mask.32", OP_ELECT, FORMULA, emu_decode_plain,
         "the lowest lane of the mask; d may be _")
FORM_ROW("warp", "setmaxnreg", "inc|dec sync aligned u32", "n", OP_MAX_REGISTERS, NO_BITS, emu_decode_max_registers,
         "waits until the CTA has the registers")
FORM_ROW("fence", "fence", "mbarrier_init release cluster", "", OP_INIT_FENCE, NO_BITS, emu_decode_plain,
         "bulk copies can then count at the mbarriers of the thread")
FORM_ROW("control", "griddepcontrol", "launch_dependents", "", OP_NOTHING, NO_BITS, emu_decode_nothing, "does nothing")
FORM_ROW("control", "griddepcontrol", "wait", "", OP_GRID_WAIT, NO_BITS, emu_decode_nothing,
         "what the launch before wrote may be read from here on")
FORM_ROW("fence", "membar", "cta|gl|sys", "", OP_FENCE, NO_BITS, emu_decode_fence,
         "memory is sequentially consistent here")
FORM_ROW("fence", "fence", "sc|acq_rel|acquire|release? cta|cluster|gpu|sys", "", OP_FENCE, NO_BITS, emu_decode_fence,
         "likewise")
FORM_ROW("fence", "fence", "acquire sync_restrict::shared::cluster cluster", "", OP_FENCE, NO_BITS, emu_decode_fence,
         "as without sync_restrict: it orders by shared memory and by global memory")
FORM_ROW("fence", "fence", "release sync_restrict::shared::cta cluster", "", OP_FENCE, NO_BITS, emu_decode_fence,
         "likewise")
/* clusters */
FORM_ROW("cluster", "mapa", "shared::cluster? u32|u64", "d, a, rank.32", OP_MAP_ADDRESS, EXACT,
         emu_decode_cluster_address, "u32 with shared::cluster only; a: a register, or a variable with shared::cluster")
FORM_ROW("cluster", "getctarank", "shared::cluster? u32|u64", "d.32, a", OP_CTA_RANK, EXACT, emu_decode_cluster_address,
         "likewise")
FORM_ROW("cluster", "clusterlaunchcontrol",
         "try_cancel async shared::cta? mbarrier::complete_tx::bytes multicast::cluster::all? b128", "[d], [mbarrier]",
         OP_CANCEL, FORMULA, emu_decode_try_cancel,
         "cancels the next cluster that has not begun, on one thread of the host; with a seed it fails at times")
#define QUERY(modifiers, operands)                                                                                     \
    FORM_ROW("cluster", "clusterlaunchcontrol", "query_cancel " modifiers " b128", operands, OP_LANES, EXACT,          \
             emu_decode_query_cancel, "")
QUERY("is_canceled pred", "p, response")
QUERY("get_first_ctaid v4 b32", "{d}, response")
QUERY("get_first_ctaid::x|get_first_ctaid::y|get_first_ctaid::z b32", "d, response")
#undef QUERY
FORM_ROW("fence", "fence", "proxy alias", "", OP_NOTHING, NO_BITS, emu_decode_nothing, "does nothing")
FORM_ROW("fence", "fence", "proxy async global|shared::cta|shared::cluster?", "", OP_PROXY_FENCE, NO_BITS,
         emu_decode_proxy_fence, "stores of the thread can then be read by wgmma and bulk copies")
/* control */
FORM_ROW("control", "bra", "uni?", "label", OP_BRANCH, NO_BITS, emu_decode_branch, "")
FORM_ROW("control", "brx", "idx uni?", "a, targets", OP_BRANCH, NO_BITS, emu_decode_branch_indexed,
         "after their .branchtargets")
FORM_ROW("control", "ret", "uni?", "", OP_EXIT, NO_BITS, emu_decode_exit, "")
FORM_ROW("control", "exit", "", "", OP_EXIT, NO_BITS, emu_decode_exit, "")
FORM_ROW("control", "trap", "", "", OP_TRAP, NO_BITS, emu_decode_plain, "")
FORM_ROW("control", "brkpt", "", "", OP_NOTHING, NO_BITS, emu_decode_nothing, "does nothing")
FORM_ROW("control", "nanosleep", "u32", "a", OP_NOTHING, NO_BITS, emu_decode_nothing, "does nothing")
FORM_ROW("control", "call", "uni?", "(d), function, (a, ...), targets", OP_CALL, NO_BITS, emu_decode_call,
         "functions of the text, also by address; built in are vprintf, __assertfail, malloc and free")

#undef COMPARES
#undef FLOAT_COMPARES
#undef COMPARABLE
#undef LOAD_ORDER
#undef STORE_ORDER
#undef CACHE_HINT
#undef ATOMIC_SPACES
#undef SELECTABLE
#undef INTEGERS
#undef ROUNDING
#undef SCOPE
#undef L1_HINT
#undef L2_HINT
#undef DATA
#undef LOAD_SPACES
#undef STORE_SPACES
#undef SHARED
#undef WGMMA_SHAPES
#undef WGMMA_SHAPES_K8
#undef WGMMA_SHAPES_K32
#undef WGMMA_SHAPES_BYTES
#undef RANK
#undef INT
#undef BIT
#undef FLOAT
#undef SPECIAL
#undef H200
#undef HALVES
#undef FMA_HALF
#undef BY_WIDTH
#undef BY_TYPE
#undef PLAIN_AND_FTZ
#undef SPECIAL_F32
#undef SETS
#undef CONVERT
#undef OP_ROW
#undef FORM_ROW
#undef BLIND_ROW
#undef TARGET_ROW
#undef LANES_ROW
