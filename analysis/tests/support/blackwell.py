"""PTX with every form of tcgen05 that registers take part in, and with the matrix instructions of sm_120a.

path = assembled("forms", every_tcgen05(), "sm_103a")
"""

_REGISTERS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}  # of one repetition
_COPIES = ("128x256b", "4x256b", "128x128b", "64x128b.warpx2::02_13", "64x128b.warpx2::01_23", "32x128b.warpx4")
_SCALED = (("mxf8f6f4", "block32"), ("mxf4", "block32"), ("mxf4nvf4", "block16"))

_HEAD = """.version 9.0
.target {arch}
.address_size 64
.visible .entry forms(.param .u64 out, .param .u32 tmem, .param .u64 desc, .param .u32 idesc)
{{
.reg .pred p;
.reg .b16 %m;
.reg .b32 %r<128>, %t, %a, %i, %b, %s;
.reg .b64 %o, %d;
.shared .align 8 .b8 bar[16];
ld.param.u64 %o, [out];
ld.param.u32 %t, [tmem];
ld.param.u64 %d, [desc];
ld.param.u32 %i, [idesc];
add.u32 %a, %t, 128;
mov.u16 %m, 3;
mov.u32 %b, bar;
setp.ne.u32 p, %i, 7;
"""


def every_tcgen05(arch: str = "sm_103a") -> str:
    """A kernel with tcgen05 in all shapes, kinds and modes."""
    lines = ["tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [bar], 512;"]
    for shape, words in _REGISTERS.items():
        for times in (1, 2, 16, 128):
            lines += _load_and_store(shape, times, min(words * times, 128)) if words * times <= 128 else []
    for modifier in ("", ".b8x16.b6x16_p32"):
        lines += [f"tcgen05.cp.cta_group::1.{shape}{modifier} [%t], %d;" for shape in _COPIES]
    for a in ("%d", "[%a]"):
        for kind in ("f16", "tf32", "f8f6f4"):
            lines.append(f"tcgen05.mma.cta_group::1.kind::{kind} [%t], {a}, %d, %i, p;")
            lines.append(f"tcgen05.mma.sp.cta_group::1.kind::{kind} [%t], {a}, %d, [%a], %i, p;")
            lines.append(f"tcgen05.mma.ws.cta_group::1.kind::{kind} [%t], {a}, %d, %i, p;")
        lines += [
            f"tcgen05.mma.cta_group::1.kind::{kind}.block_scale.{block} [%t], {a}, %d, %i, [%a], [%a], p;"
            for kind, block in _SCALED
        ]
    lines += [
        "tcgen05.mma.cta_group::1.kind::f16.collector::a::fill [%t], %d, %d, %i, {%r0, %r1, %r2, %r3}, p, 3;",
        "tcgen05.shift.cta_group::1.down [%t];",
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%b];",
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%b], %m;",
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 512;",
    ]
    return "\n".join([_HEAD.format(arch=arch), *lines, "ret;", "}"]) + "\n"


def _load_and_store(shape: str, times: int, words: int) -> list[str]:
    registers = "{" + ", ".join(f"%r{i}" for i in range(words)) + "}"
    second = ", 32" if shape == "16x32bx2" else ""
    lines = []
    for mode in ("", ".pack::16b"):
        lines.append(f"tcgen05.ld.sync.aligned.{shape}.x{times}{mode}.b32 {registers}, [%t]{second};")
        lines += ["tcgen05.wait::ld.sync.aligned;", "st.global.b32 [%o], %r0;", f"st.global.b32 [%o], %r{words - 1};"]
        stored = mode.replace("pack", "unpack")
        lines.append(f"tcgen05.st.sync.aligned.{shape}.x{times}{stored}.b32 [%t]{second}, {registers};")
    if "32x" in shape and times > 1:
        lines.append(f"tcgen05.ld.red.sync.aligned.{shape}.x{times}.max.f32 {registers}, %s, [%t]{second};")
        lines += ["tcgen05.wait::ld.sync.aligned;", "st.global.b32 [%o], %s;", f"st.global.b32 [%o], %r{words - 1};"]
    return lines


_A, _B = "{%r0, %r1, %r2, %r3}", "{%r4, %r5}"
_WARP = (  # shape and types, registers of B, of D, and what follows C
    ("m16n8k32.row.col.kind::f8f6f4.f32.e3m2.e2m3.f32", 2, 4, ""),
    ("m16n8k32.row.col.kind::f8f6f4.f16.e4m3.e4m3.f16", 2, 2, ""),
    ("m16n8k32.row.col.f32.e4m3.e5m2.f32", 2, 4, ""),
    ("m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e2m1.f32.ue8m0", 2, 4, "SCALES"),
    ("m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", 2, 4, "SCALES"),
    ("m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", 2, 4, "SCALES"),
    ("m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32", 4, 4, ", %r10, 0"),
    ("m16n8k64.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e2m1.f32.ue8m0", 4, 4, ", %r10, 0SCALES"),
    ("m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", 4, 4, ", %r10, 0SCALES"),
)


def every_warp_product() -> str:
    """A kernel of sm_120a with mma.sync of 8, 6 and 4 bits, scaled and sparse, and with ldmatrix of bytes."""
    lines = [f"ld.global.b32 %r{i}, [%o+{4 * i}];" for i in range(24)]
    for form, of_b, of_d, rest in _WARP:
        name = "mma.sp::ordered_metadata.sync.aligned" if of_b == 4 else "mma.sync.aligned"
        b = _B if of_b == 2 else "{%r4, %r5, %r6, %r7}"
        d = "{" + ", ".join(f"%r{20 + i}" for i in range(of_d)) + "}"
        scales = rest.replace("SCALES", ", %r8, {0, 0}, %r9, {0, 0}")
        lines.append(f"{name}.{form} {d}, {_A}, {b}, {d}{scales};")
    lines += [
        "ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b6x16_p32 {%r30, %r31, %r32, %r33}, [%r0];",
        "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {%r34, %r35, %r36, %r37}, [%r0];",
        "stmatrix.sync.aligned.m16n8.x4.trans.shared.b8 [%r0], {%r30, %r34, %r36, %r37};",
        *(f"st.global.b32 [%o], %r{20 + i};" for i in range(4)),
    ]
    return "\n".join([_HEAD.format(arch="sm_120a"), *lines, "ret;", "}"]) + "\n"
