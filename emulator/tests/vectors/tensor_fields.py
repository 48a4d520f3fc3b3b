"""A kernel that makes its tensor map: tensormap.replace, its copy to global memory, and reductions through it."""

HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"
SCOPES = ("cta", "cluster", "gpu", "sys")

# A warp: zeros, the fields, the copy to `maps`; then a box of 4 x 8 floats, its lane's number + 1 each, is added to the
# tensor of 6 x 12 at column 8 and row 4. Data past the tensor is dropped.
MADE = (
    HEADER
    + """.shared .align 128 .b8 map[128];
.shared .align 128 .b8 box[128];
.visible .entry made(.param .u64 tensor, .param .u64 maps)
{
.reg .b32 %r<12>; .reg .b64 %rd<8>; .reg .f32 %f<2>; .reg .pred %p<2>;
ld.param.u64 %rd1, [tensor]; ld.param.u64 %rd2, [maps]; mov.u32 %r0, %tid.x; mov.u32 %r1, map;
mov.u32 %r2, box; shl.b32 %r3, %r0, 2; add.u32 %r4, %r1, %r3; mov.b32 %r5, 0;
st.shared.b32 [%r4], %r5; add.u32 %r6, %r0, 1; cvt.rn.f32.u32 %f0, %r6; add.u32 %r7, %r2, %r3;
st.shared.f32 [%r7], %f0;
bar.warp.sync -1;
setp.ne.u32 %p0, %r0, 0; cvt.u64.u32 %rd3, %r1; mov.u64 %rd4, 48; mov.u32 %r8, 12;
mov.u32 %r9, 6;
@%p0 bra MADE;
tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%rd3], %rd1;
tensormap.replace.tile.rank.shared::cta.b1024.b32 [%rd3], 1;
tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%rd3], 0, 8;
tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%rd3], 1, 4;
tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%rd3], 0, %r8;
tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%rd3], 1, %r9;
tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%rd3], 0, %rd4;
tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%rd3], 0, 1;
tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%rd3], 1, 1;
tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%rd3], 7;
tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%rd3], 0;
tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%rd3], 0;
tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%rd3], 0;
MADE:
bar.warp.sync -1;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd2], [%rd3], 128;
fence.proxy.tensormap::generic.acquire.gpu [%rd2], 128; fence.proxy.async.shared::cta;
bar.warp.sync -1;
@%p0 bra DONE;
mov.u32 %r10, 8; mov.u32 %r11, 4;
cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%rd2, {%r10, %r11}], [%r2];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
DONE:
ret;
}
"""
)


def every_form() -> str:
    """Each form and each alternative, for decoding alone."""
    lines = [
        f"tensormap.replace.tile.{field}.global.b1024.b{bits} [%m], {axis}%v{bits};"
        for field, axis, bits in (
            ("global_address", "", 64), ("rank", "", 32), ("elemtype", "", 32), ("interleave_layout", "", 32),
            ("swizzle_mode", "", 32), ("fill_mode", "", 32), ("box_dim", "4, ", 32), ("global_dim", "4, ", 32),
            ("element_stride", "4, ", 32), ("global_stride", "3, ", 64),
        )
    ]  # fmt: skip
    lines = [line.replace("%v32", "1") if ", %v32" in line and "_dim" not in line else line for line in lines]
    for scope in SCOPES:
        copy = f"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.{scope}.sync.aligned"
        lines += [f"{copy} [%m], [%s], 128;", f"fence.proxy.tensormap::generic.acquire.{scope} [%m], 128;",
            f"fence.proxy.tensormap::generic.release.{scope};"]  # fmt: skip
    for rank, operation in enumerate(("add", "min", "max", "inc", "dec", "and", "or", "xor")):
        at = ", ".join(["%c"] * (rank % 5 + 1))
        tile, hint, policy = (".tile", ".L2::cache_hint", ", %v64") if rank % 2 else ("", "", "")
        lines.append(
            f"cp.reduce.async.bulk.tensor.{rank % 5 + 1}d.global.shared::cta.{operation}{tile}.bulk_group{hint} "
            f"[%m, {{{at}}}], [%t]{policy};"
        )
    registers = ".reg .b64 %m, %s, %v64;\n.reg .b32 %v32, %c, %t;\n"
    return f"{HEADER}.visible .entry forms()\n{{\n{registers}" + "\n".join(lines) + "\nret;\n}\n"
