"""Litmus programs: a few threads, an outcome that no order of their steps has, and whether PTX allows it.

The programs and their names are those of the literature and of NVIDIA's models (github.com/NVlabs/mixedproxy,
ptxmemorymodel), written here by memory_model.py's steps.
"""

from dataclasses import dataclass, replace

from support.emulation import entry
from support.memory_model import Outcome, Program, parse, words_of

READ = 32  # words of the results of a thread
PARAMETERS = ".param .u64 memory, .param .u64 out"
FORMS = {
    "W": "st.relaxed.{scope}.{space}.u32 [%m+{at}], {value};",
    "W.rel": "st.release.{scope}.{space}.u32 [%m+{at}], {value};",
    "W.vol": "st.volatile.{space}.u32 [%m+{at}], {value};",
    "R": "ld.relaxed.{scope}.{space}.u32 %r{n}, [%m+{at}];",
    "R.acq": "ld.acquire.{scope}.{space}.u32 %r{n}, [%m+{at}];",
    "R.vol": "ld.volatile.{space}.u32 %r{n}, [%m+{at}];",
    "R.nc": "ld.global.nc.u32 %r{n}, [%m+{at}];",
    "R.const": "ld.const.u32 %r{n}, [%m+{at}];",
    "X": "atom.relaxed.{scope}.{space}.exch.b32 %r{n}, [%m+{at}], {value};",
    "X.rel": "atom.release.{scope}.{space}.exch.b32 %r{n}, [%m+{at}], {value};",
    "X.acq": "atom.acquire.{scope}.{space}.exch.b32 %r{n}, [%m+{at}], {value};",
    "X.ar": "atom.acq_rel.{scope}.{space}.exch.b32 %r{n}, [%m+{at}], {value};",
    "F": "fence.acq_rel.{scope};",
    "F.sc": "fence.sc.{scope};",
}


@dataclass(frozen=True)
class Litmus:
    threads: list[str]
    outcome: Outcome
    allowed: bool = False  # by PTX
    orders: bool | None = None  # shown by --orders all, if not as allowed
    stale: bool | None = None  # shown by --stale in some runs, likewise
    ctas: list[int] | None = None  # of the threads, if not one each

    @property
    def program(self) -> Program:
        return parse(self.threads, self.ctas)


def no(threads: list[str], outcome: Outcome, ctas: list[int] | None = None) -> Litmus:
    """PTX forbids the outcome."""
    return Litmus(threads, outcome, ctas=ctas)


def yes(
    threads: list[str], outcome: Outcome, orders: bool = True, stale: bool = True, ctas: list[int] | None = None
) -> Litmus:
    """PTX allows the outcome."""
    return Litmus(threads, outcome, True, orders, stale, ctas)


LITMUS: dict[str, Litmus] = {
    # store buffering
    "SB": yes(["W x 1; R y", "W y 1; R x"], (0, 0)),
    "SB, volatile": yes(["W.vol x 1; R.vol y", "W.vol y 1; R.vol x"], (0, 0)),
    "SB, release and acquire": yes(["W.rel x 1; R.acq y", "W.rel y 1; R.acq x"], (0, 0)),
    "SB, fence.acq_rel": yes(["W x 1; F; R y", "W y 1; F; R x"], (0, 0)),
    "SB, one fence.sc": yes(["W x 1; F.sc; R y", "W y 1; R x"], (0, 0)),
    "SB, fence.sc": no(["W x 1; F.sc; R y", "W y 1; F.sc; R x"], (0, 0)),
    "SB, fence.sc.cta in one CTA": no(["W x 1; F.sc.cta; R y", "W y 1; F.sc.cta; R x"], (0, 0), ctas=[0, 0]),
    "SB, two fence.sc": no(["W x 1; F.sc; W x 2; F.sc; R y", "W y 1; F.sc; W y 2; F.sc; R x"], (0, 0)),
    "SB, own loads": yes(["W x 1; R x; R y", "W y 1; R y; R x"], (1, 0, 1, 0)),
    "SB, exchanges": no(["X.ar x 1; X.ar y 1", "X.ar y 2; X.ar x 2"], (2, 0, 1, 0)),
    "SB, exchanges and a store": yes(["X.ar x 1; X.ar y 1", "W y 2; R x"], (0, 0, 0)),
    "SB, relaxed exchanges": yes(["X x 1; R y", "X y 1; R x"], (0, 0, 0, 0)),
    "RWC": yes(["W x 1", "R.acq x; R y", "W y 1; F.sc; R x"], (1, 0, 0)),
    "RWC, fence.sc": no(["W x 1", "R x; F.sc; R y", "W y 1; F.sc; R x"], (1, 0, 0)),
    # message passing
    "MP": yes(["W x 1; W y 1", "R y; R x"], (1, 0)),
    "MP, release and acquire": no(["W x 1; W.rel y 1", "R.acq y; R x"], (1, 0)),
    "MP, release and acquire of a CTA": no(["W x 1; W.rel.cta y 1", "R.acq.cta y; R x"], (1, 0), ctas=[0, 0]),
    "MP, scope .cta between CTAs": yes(["W x 1; W.rel.cta y 1", "R.acq.cta y; R x"], (1, 0)),
    "MP, acquire of scope .cta": yes(["W x 1; W.rel y 1", "R.acq.cta y; R x"], (1, 0)),
    "MP, scope .sys": no(["W x 1; W.rel.sys y 1", "R.acq.sys y; R x"], (1, 0)),
    "MP, fences": no(["W x 1; F; W y 1", "R y; F; R x"], (1, 0)),
    "MP, fences, and a load between": no(["W x 1; F; W y 1", "R y; R z; F; R x"], (1, 0, 0)),
    "MP, fence of the reader alone": yes(["W x 1; W y 1", "R y; F; R x"], (1, 0)),
    "MP, fence of the writer alone": yes(["W x 1; F; W y 1", "R y; R x"], (1, 0)),
    "MP, acquire alone": yes(["W x 1; W y 1", "R.acq y; R x"], (1, 0)),
    "MP, release alone": yes(["W x 1; W.rel y 1", "R y; R x"], (1, 0)),
    "MP, released by a later store": no(["W x 1; W.rel y 1; W y 2", "R.acq y; R x"], (2, 0)),
    "MP, released by an exchange": no(["W x 1; X.rel y 1", "R.acq y; R x"], (0, 1, 0)),
    "MP, exchanged": yes(["W x 1; X y 1", "R.acq y; R x"], (0, 1, 0)),
    "MP, exchanged after a fence": no(["W x 1; F; X y 1", "R.acq y; R x"], (0, 1, 0)),
    "MP, through an exchange": no(["W x 1; W.rel y 1", "X y 2", "R.acq y; R x"], (1, 2, 0)),
    "MP, two flags": no(["W x 1; W.rel y 1", "R.acq y; W x 2; W.rel z 1", "R.acq z; R x"], (1, 1, 1)),
    # loads that no fence orders after stores
    "CoWR, .nc": yes(["W x 1; F.sc; R.nc x"], (0,), orders=False),
    "CoRR, .nc": yes(["W x 1", "R.nc x; R.nc x"], (1, 0), orders=False),
    "MP, .nc": yes(["W x 1; W.rel y 1", "R.acq y; R.nc x"], (1, 0), orders=False),
    "CoWR, .const": yes(["W x 1; F.sc; R.const x"], (0,), orders=False),
    "CoRR, .const": yes(["W x 1", "R.const x; R.const x"], (1, 0), orders=False),
    "MP, .const": yes(["W x 1; W.rel y 1", "R.acq y; R.const x"], (1, 0), orders=False),
    "MP, a constant that the flag follows": no(["R.const x; W.rel y 1", "R.acq y; W x 1"], (1, 1)),
    # load buffering
    "LB": yes(["R x; W y 1", "R y; W x 1"], (1, 1), stale=False),
    "LB, volatile": yes(["R.vol x; W.vol y 1", "R.vol y; W.vol x 1"], (1, 1), stale=False),
    "LB, release": yes(["R x; W.rel y 1", "R y; W.rel x 1"], (1, 1), orders=False, stale=False),
    "LB, one acquire and release": yes(["R.acq x; W.rel y 1", "R y; W x 1"], (1, 1), stale=False),
    "LB, fences": no(["R x; F; W y 1", "R y; F; W x 1"], (1, 1)),
    "LB, acquire": yes(["R.acq x; W y 1", "R.acq y; W x 1"], (1, 1), orders=False, stale=False),
    "LB, acquire and release": no(["R.acq x; W.rel y 1", "R.acq y; W.rel x 1"], (1, 1)),
    "LB, relaxed exchanges": yes(["X x 1; X y 1", "X y 2; X x 2"], (2, 0, 1, 0), orders=False, stale=False),
    # coherence
    "CoRR": no(["W x 1; W x 2", "R x; R x"], (2, 1)),
    "CoRR, acquire": no(["W.rel x 1; W x 2", "R.acq x; R x"], (2, 1)),
    "CoRR, two readers": no(["W x 1", "W x 2", "R x; R x", "R x; R x"], (1, 2, 2, 1)),
    "CoWR": no(["W x 1; R x", "W x 2; R x"], (2, 1)),
    "CoRW": no(["R x; W x 1", "W x 2; R x"], (1, 2)),
    "CoRW, then a load": no(["W.rel x 1", "R.acq x; W x 2; R x"], (1, 1)),
    "2+2W": yes(["W x 1; W y 2; R.acq y", "W y 1; W x 2; R.acq x"], (1, 1), stale=False),
    "R": yes(["W x 1; W y 1", "W y 2; R y; R x"], (1, 0)),
    "two exchanges": no(["X x 1", "X x 2"], (0, 0)),
    # more threads
    "WRC": yes(["W x 1", "R x; W y 1", "R y; R x"], (1, 1, 0)),
    "WRC, acquire alone": yes(["W x 1", "R.acq x; W y 1", "R.acq y; R x"], (1, 1, 0)),
    "WRC, fence and acquire": no(["W x 1", "R x; F; W y 1", "R.acq y; R x"], (1, 1, 0)),
    "WRC, release and acquire": no(["W.rel x 1", "R.acq x; W.rel y 1", "R.acq y; R x"], (1, 1, 0)),
    "ISA2": yes(["W x 1; W y 1", "R y; W z 1", "R z; R x"], (1, 1, 0)),
    "ISA2, release and acquire": no(["W x 1; W.rel y 1", "R.acq y; W.rel z 1", "R.acq z; R x"], (1, 1, 0)),
    "ISA2, of scopes .cta and .gpu": no(
        ["W x 1; W.rel.cta y 1", "R.acq.cta y; W.rel z 1", "R.acq z; R x"], (1, 1, 0), ctas=[0, 0, 1]
    ),
    "IRIW": yes(["W x 1", "W y 1", "R x; R y", "R y; R x"], (1, 0, 1, 0)),
    "IRIW, acquire": yes(["W x 1", "W y 1", "R.acq x; R y", "R.acq y; R x"], (1, 0, 1, 0)),
    "IRIW, release and acquire": yes(["W.rel x 1", "W.rel y 1", "R.acq x; R.acq y", "R.acq y; R.acq x"], (1, 0, 1, 0)),
    "IRIW, fence.sc": no(["W x 1", "W y 1", "R x; F.sc; R y", "R y; F.sc; R x"], (1, 0, 1, 0)),
}


SHARED = {name: each for name, each in LITMUS.items() if all(s.is_generic for t in each.program for s in t)}


def body(program: Program, space: str, end: str) -> str:
    """The first lane of a warp is a thread, and jumps to `end`. Words are in global memory, or in shared memory."""
    words = words_of(program)
    text = ".reg .b64 %m, %o;\n.reg .b32 %t, %b, %v, %r<8>;\n.reg .pred %q, %all;\n.shared .align 4 .b8 words[64];\n"
    text += "mov.u32 %t, %tid.x;\nmov.u32 %b, %ctaid.x;\nld.param.u64 %o, [out];\n"
    start = "mov.u64 %m, words;" if space == "shared" else "ld.param.u64 %m, [memory];"
    text += f"{'mov.u64 %m, constants;' if reads_constants(program) else start}\n"
    if space == "shared":  # zeros, and a barrier before anything else
        text += "setp.lt.u32 %q, %t, 16;\nmad.lo.u32 %r0, %t, 4, words;\nmov.u32 %r1, 0;\n"
        text += "@%q st.shared.u32 [%r0], %r1;\nbar.sync 0;\n"
    text += "mad.lo.u32 %t, %b, 1024, %t;\n"
    for n, (cta, warp) in enumerate(places(program)):
        text += f"setp.eq.u32 %q, %t, {1024 * cta + 32 * warp};\n@%q bra thread{n};\n"
    text += "bra.uni end;\n"
    for n, thread in enumerate(program):
        text += f"thread{n}:\n"
        for i, step in enumerate(thread):
            form = FORMS[".".join(filter(None, (step.kind, step.order)))]
            at = 4 * words.index(step.word) if step.word else 0
            text += form.format(at=at, value=step.value, n=i, scope=step.scope, space=space) + "\n"
        for i in (i for i, step in enumerate(thread) if step.reads):
            text += f"st.global.u32 [%o+{4 * (READ * n + i)}], %r{i};\n"
        text += f"bra.uni {end};\n"
    return text


def reads_constants(program: Program) -> bool:
    """Then the words are constants, which the threads write by their addresses in global memory."""
    return any(step.order == "const" for thread in program for step in thread)


def directives(program: Program) -> str:
    return ".const .align 4 .b8 constants[64];" if reads_constants(program) else ""


def places(program: Program) -> list[tuple[int, int]]:
    """CTA and warp of each thread."""
    ctas = [thread[0].cta for thread in program]
    return [(cta, ctas[:n].count(cta)) for n, cta in enumerate(ctas)]


def shape(program: Program) -> tuple[int, int]:
    """CTAs and threads of the launch."""
    where = places(program)
    return 1 + max(cta for cta, _ in where), 32 * (1 + max(warp for _, warp in where))


def in_one_cta(program: Program) -> Program:
    """The program with its threads in one CTA, at that scope."""
    return [[replace(step, cta=0, scope="cta") for step in thread] for thread in program]


def text_of(program: Program, space: str = "global") -> str:
    """A kernel that runs the program and stores what each thread has read."""
    return entry(body(program, space, "end") + "end:", PARAMETERS, directives=directives(program))


def text_that_traps(program: Program, outcome: Outcome, space: str = "global") -> str:
    """The same; the last thread to end stops with a trap if the outcome is this one."""
    text = body(program, space, "last") + "last:\natom.acq_rel.gpu.global.add.u32 %v, [%o+1024], 1;\n"
    text += f"setp.ne.u32 %q, %v, {len(program) - 1};\n@%q bra end;\nsetp.eq.u32 %all, %v, %v;\n"
    reads = ((n, i) for n, thread in enumerate(program) for i, step in enumerate(thread) if step.reads)
    for (n, i), value in zip(reads, outcome, strict=True):
        text += f"ld.global.u32 %v, [%o+{4 * (READ * n + i)}];\nsetp.eq.and.u32 %all, %v, {value}, %all;\n"
    return entry(text + "@%all trap;\nend:", PARAMETERS, directives=directives(program))
