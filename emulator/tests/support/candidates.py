"""Instructions that PTX may have: opcodes with every choice of their modifiers and types, legal ones among others.

text = candidates()                        # "add.rn.ftz.f32 %f1, %f2, %f3;" and about sixty thousand more
refused = refused_by_ptxas(text, "sm_90", folder)
"""

import itertools
import random
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from support.emulation import ROOT

PTXAS = ROOT / ".venv/toolkit/bin/ptxas"
REGISTERS = (
    ".reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b128 %q<9>; .reg .f32 %f<9>; .reg .f64 %fd<9>; "
    ".reg .pred %p<9>;"
)
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
TYPES = (
    *INTEGERS, "b8", "b16", "b32", "b64", "u16x2", "s16x2", "f16", "f16x2", "bf16", "bf16x2", "f32", "f64", "tf32",
)  # fmt: skip
COMPARES = (
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
)  # fmt: skip
ROUNDINGS = ("", "rn", "rz", "rm", "rp", "rna")
FTZ, SAT = ("", "ftz"), ("", "sat")
Choice = tuple[str, ...]


def width(kind: str) -> int:
    if kind in ("f16x2", "bf16x2", "u16x2", "s16x2"):
        return 32
    return 16 if kind.endswith("m3x2") or kind.endswith("m2x2") else int(re.findall(r"\d+", kind)[-1])


def register(kind: str, number: int) -> str:
    if kind in ("pred", "f32", "f64"):
        return {"pred": "%p", "f32": "%f", "f64": "%fd"}[kind] + str(number)
    return {16: "%h", 32: "%r", 64: "%d", 128: "%q"}[max(width(kind), 16)] + str(number)


def wide(kind: str) -> str:
    return {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}.get(kind, kind)


Operands = Callable[[Choice, str], Sequence[str]]


def each(
    opcode: str, groups: Sequence[Sequence[str]], operands: Operands, kinds: Sequence[str] = TYPES
) -> Iterator[str]:
    for chosen in itertools.product(*groups):
        for kind in kinds:
            name = ".".join([opcode, *filter(None, chosen), kind])
            yield f"{name} {', '.join(operands(chosen, kind))};"


def registers(count: int) -> Operands:
    return lambda _, kind: [register(kind, i) for i in range(1, count + 1)]


def fixed(*names: str) -> Operands:
    return lambda chosen, kind: names


def product_operands(count: int) -> Operands:
    """Candidates of mul and mad, whose .wide forms have a result of twice the width."""

    def operands(chosen: Choice, kind: str) -> list[str]:
        outer = wide(kind) if "wide" in chosen else kind
        return [register(outer, 1), register(kind, 2), register(kind, 3), register(outer, 4)][:count]

    return operands


def arithmetic() -> Iterator[str]:
    for op in ("add", "sub", "addc", "subc"):
        yield from each(op, [("", "cc"), ROUNDINGS, FTZ, SAT], registers(3))
    parts = ("", "lo", "hi", "wide")
    yield from each("mul", [(*parts, "approx", "full", *ROUNDINGS[1:]), FTZ, SAT], product_operands(3))
    yield from each("div", [("approx", "full", *ROUNDINGS), FTZ, SAT], registers(3))
    for op in ("mad", "madc", "mad24"):
        yield from each(op, [(*parts, *ROUNDINGS[1:]), ("", "cc"), FTZ, SAT], product_operands(4))
    yield from each("mul24", [parts, SAT], product_operands(3))
    yield from each("fma", [ROUNDINGS, FTZ, SAT, ("", "relu"), ("", "oob")], registers(4))
    for op in ("rem", "copysign"):
        yield from each(op, [FTZ], registers(3))
    for op in ("abs", "neg"):
        yield from each(op, [FTZ, SAT], registers(2))
    for op in ("min", "max"):
        signs = (("", "xorsign"), ("", "abs"), ("", "relu"))
        yield from each(op, [FTZ, ("", "NaN"), *signs], registers(3))
    for op in ("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"):
        yield from each(op, [("approx", *ROUNDINGS), FTZ], registers(2))
    yield from each("sad", [()] * 0, registers(4))


def bits() -> Iterator[str]:
    kinds = (*TYPES, "pred")
    for op, count in (("and", 3), ("or", 3), ("xor", 3), ("not", 2), ("cnot", 2)):
        yield from each(op, [], registers(count), kinds)
    for op in ("popc", "clz"):
        yield from each(op, [], lambda _, kind: ["%r1", register(kind, 2)])
    yield from each("brev", [], registers(2))
    yield from each("bfind", [("", "shiftamt")], lambda _, kind: ["%r1", register(kind, 2)])
    yield from each("fns", [], lambda _, kind: [register(kind, 1), register(kind, 2), "%r3", "%r4"])
    yield from each("bfe", [], lambda _, kind: [register(kind, 1), register(kind, 2), "%r3", "%r4"])
    yield from each("bfi", [], lambda _, kind: [register(kind, i) for i in (1, 2, 3)] + ["%r4", "%r5"])
    for op in ("bmsk", "szext"):
        yield from each(op, [("", "clamp", "wrap")], registers(3))
    yield from each("shf", [("l", "r"), ("", "clamp", "wrap")], registers(4))
    for op in ("shl", "shr"):
        yield from each(op, [], lambda _, kind: [register(kind, 1), register(kind, 2), "%r3"])
    yield from each("lop3", [], lambda _, kind: [register(kind, i) for i in (1, 2, 3, 4)] + ["17"])
    yield from each("lop3", [("and", "or", "xor")], fixed("%r1|%p1", "%r2", "%r3", "%r4", "17", "%p2"))
    modes = ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    yield from each("prmt", [], fixed("%r1", "%r2", "%r3", "%r4"), ("b32", "u32", *(f"b32.{mode}" for mode in modes)))
    for op in ("dp4a", "dp2a"):
        yield from each(op, [("", "lo", "hi"), ("u32", "s32", "b32"), SAT], fixed("%r1", "%r2", "%r3", "%r4"))


def comparisons() -> Iterator[str]:
    yield from each("setp", [COMPARES, FTZ], lambda _, kind: ["%p1", register(kind, 2), register(kind, 3)])
    combines = ("and", "or", "xor")
    yield from each("setp", [("lt", "eq"), combines, FTZ],
                    lambda _, kind: ["%p1", register(kind, 2), register(kind, 3), "!%p3"])  # fmt: skip
    yield from each("setp", [("lt", "eq"), combines],
                    lambda _, kind: ["%p1|%p2", register(kind, 2), register(kind, 3), "%p3"])  # fmt: skip

    def set_operands(chosen: Choice, kind: str) -> list[str]:
        third = ["%p3"] if chosen[1] else []
        return [register(chosen[-1], 1), register(kind, 2), register(kind, 3), *third]

    yield from each("set", [COMPARES, ("", "and"), FTZ, ("u32", "f32", "f16", "bf16")], set_operands)
    yield from each("set", [("eq", "geu"), ("", "or", "xor"), FTZ, TYPES], set_operands)
    properties = ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    yield from each("testp", [properties, FTZ], lambda _, kind: ["%p1", register(kind, 1)])
    yield from each("selp", [], lambda _, kind: [register(kind, i) for i in (1, 2, 3)] + ["%p1"])
    for by in ("s32", "f32", "u32"):
        yield from each("slct", [FTZ], lambda _, kind, by=by: [*(register(kind.split(".")[0], i) for i in (1, 2, 3)),
                        register(by, 4)], [f"{kind}.{by}" for kind in TYPES])  # fmt: skip


def conversions() -> Iterator[str]:
    kinds = (*INTEGERS, "f16", "bf16", "f32", "f64", "tf32", "f16x2", "bf16x2", "e4m3x2", "e5m2x2")
    modes = (*ROUNDINGS, "rni", "rzi", "rmi", "rpi")

    def operands(chosen: Choice, kind: str) -> list[str]:
        pair = kind == "f32" and chosen[-1].endswith("x2")
        return [register(chosen[-1], 1), register(kind, 2), *([register(kind, 3)] if pair else [])]

    yield from each("cvt", [modes, FTZ, SAT, ("", "relu"), ("", "satfinite"), kinds], operands, kinds)
    for tail in ((), ("%r4",)):
        packs = ("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2", "u32")
        yield from each("cvt", [("pack",), SAT, packs], fixed("%r1", "%r2", "%r3", *tail), ("s32", "u32", "s32.b32"))


def votes() -> Iterator[str]:
    for mode, kind in itertools.product(("all", "any", "uni", "ballot"), ("pred", "b32")):
        yield f"vote.sync.{mode}.{kind} {register(kind, 1)}, %p2, -1;"
        yield f"vote.sync.{mode}.{kind} {register(kind, 1)}, !%p2, %r2;"
        yield f"vote.sync.{mode}.{kind} {register(kind, 1)}, 1, -1;"
    for mode, kind, p in itertools.product(("any", "all"), ("b32", "b64", "u32"), ("", "|%p1")):
        yield f"match.{mode}.sync.{kind} %r1{p}, {register(kind, 2)}, -1;"
    operations = ("add", "min", "max", "and", "or", "xor")
    yield from each("redux", [("sync",), operations, ("", "abs"), ("", "NaN")],
                    lambda _, kind: [register(kind, 1), register(kind, 2), "-1"])  # fmt: skip
    yield from each("activemask", [], fixed("%r1"))


ORDERED = """
add.rn.ftz.sat.f32 %f1, %f2, %f3;
fma.rn.relu.f16 %h1, %h2, %h3, %h4;
mad.lo.cc.u32 %r1, %r2, %r3, %r4;
mul.wide.u16 %r1, %h2, %h3;
setp.lt.and.ftz.f32 %p1, %f1, %f2, %p2;
cvt.rzi.sat.s32.f64 %r1, %fd1;
set.lt.and.ftz.u32.f32 %r1, %f1, %f2, %p2;
cvt.rn.ftz.sat.f16.f32 %h1, %f1;
vote.sync.any.pred %p1, 1, -1;
cvt.rn.satfinite.relu.e4m3x2.f32 %h1, %f1, %f2;
bfind.shiftamt.u32 %r1, %r2;
shf.l.wrap.b32 %r1, %r2, %r3, %r4;
match.all.sync.b32 %r1|%p1, %r2, -1;
redux.sync.add.u32 %r1, %r2, -1;
prmt.b32.f4e %r1, %r2, %r3, %r4;
szext.clamp.u32 %r1, %r2, %r3;
dp4a.u32.s32 %r1, %r2, %r3, %r4;
dp2a.lo.u32.s32 %r1, %r2, %r3, %r4;
testp.finite.f32 %p1, %f1;
slct.ftz.u32.f32 %r1, %r2, %r3, %f4;
min.ftz.NaN.xorsign.abs.f32 %f1, %f2, %f3;
div.approx.ftz.f32 %f1, %f2, %f3;
rcp.approx.ftz.f64 %fd1, %fd2;
lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 17, %p2;
mad.hi.sat.s32 %r1, %r2, %r3, %r4;
addc.cc.u32 %r1, %r2, %r3;
cvt.pack.sat.u8.s32.b32 %r1, %r2, %r3, %r4;
ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];
stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5], {%r1};
movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;
ld.relaxed.gpu.global.u32 %r1, [%d1];
ld.volatile.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d1];
ld.global.nc.L1::no_allocate.L2::128B.v2.b32 {%r1, %r2}, [%d1];
st.release.cta.global.u32 [%d1], %r1;
st.global.wt.v2.f32 [%d1], {%f1, %f2};
atom.relaxed.gpu.global.add.u32 %r1, [%d1], %r2;
atom.global.add.noftz.bf16x2 %r1, [%d1], %r2;
atom.global.add.v2.f32 {%f1, %f2}, [%d1], {%f3, %f4};
atom.shared.cas.b32 %r1, [%r5], %r2, %r3;
red.release.sys.global.add.f64 [%d1], %fd1;
mul.lo.s32 %r1, %r2, %r3;
mul.wide.u32 %d1, %r2, %r3;
mad.lo.s32 %r1, %r2, %r3, %r4;
fma.rn.ftz.sat.f32 %f1, %f2, %f3, %f4;
div.full.ftz.f32 %f1, %f2, %f3;
cvt.rn.ftz.f16.f32 %h1, %f1;
cvt.rzi.ftz.s32.f32 %r1, %f1;
cvt.rn.relu.bf16x2.f32 %r1, %f1, %f2;
cvta.to.shared.u64 %d1, %d2;
bar.cta.sync 0;
bar.red.popc.u32 %r1, 0, %p1;
barrier.cta.sync.aligned 0;
barrier.red.and.aligned.pred %p1, 0, %p2;
barrier.cta.arrive.aligned 0, 32;
shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1;
vote.sync.ballot.b32 %r1, %p1, -1;
redux.sync.add.s32 %r1, %r2, -1;
match.any.sync.b32 %r1, %r2, -1;
cp.async.cg.shared.global.L2::128B [%r5], [%d1], 16;
cp.async.mbarrier.arrive.noinc.shared.b64 [%r5];
cp.async.wait_group 0;
mbarrier.init.shared.b64 [%r5], 4;
mbarrier.try_wait.parity.acquire.cta.shared.b64 %p1, [%r5], %r1;
fence.acq_rel.gpu ;
fence.proxy.alias ;
prefetch.global.L2::evict_last [%d1];
applypriority.global.L2::evict_normal [%d1], 128;
createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %d1;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f5,%f6,%f7,%f8};
"""


def orders() -> Iterator[str]:
    """The modifiers of some instructions in every order, or in ten orders where there are many."""
    for text in ORDERED.strip().splitlines():
        name, operands = text.split(" ", 1)
        opcode, *modifiers = name.split(".")
        every = itertools.permutations(modifiers)
        rng = random.Random(text)
        some = [modifiers, *(rng.sample(modifiers, len(modifiers)) for _ in range(9))]
        for order in every if len(modifiers) < 5 else some:
            yield f"{'.'.join([opcode, *order])} {operands}"


def candidates() -> list[str]:
    groups = (arithmetic(), bits(), comparisons(), conversions(), votes(), orders())
    return list(dict.fromkeys(itertools.chain(*groups)))


def lines_refused_by_ptxas(path: Path) -> dict[int, str]:
    """The error of each line that ptxas rejects. It continues after one, and for compute_90 it generates no code."""
    (target,) = re.findall(r"\.target sm_(\w+)", path.read_text())
    arch = "75" if len(target) < 3 and int(target) < 75 else target
    command = [PTXAS, f"-arch=compute_{arch}", "-o", path.with_suffix(".cubin"), path]
    done = subprocess.run(command, capture_output=True, text=True)
    fatal = re.findall(r"fatal *: (?!.*aborted due to errors)(.*)", done.stderr)
    assert not fatal, fatal
    return {int(line): text for line, text in reversed(re.findall(r"line (\d+); error *: (.*)", done.stderr))}


def refused_by_ptxas(instructions: Sequence[str], arch: str, folder: Path) -> dict[str, str]:
    """The messages of ptxas for rejected instructions."""
    head = f".version 9.2\n.target {arch}\n.address_size 64\n.visible .entry test()\n{{\n{REGISTERS}\n"
    path = folder / f"{arch}.ptx"
    path.write_text(head + "\n".join(instructions) + "\nret;\n}\n")
    first = head.count("\n") + 1
    return {instructions[line - first]: text for line, text in lines_refused_by_ptxas(path).items()}
