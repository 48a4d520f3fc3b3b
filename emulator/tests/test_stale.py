"""Loads that return earlier values (ptxrun --schedule SEED --stale), against the axioms of PTX's memory model.

Each litmus program runs under many seeds. What PTX forbids must never be seen; of what it allows, the rows say what the
emulator shows.
"""

from __future__ import annotations

from pathlib import Path

import emu
import numpy as np
import pytest
from support.emulation import entry, ptxrun
from support.memory_model import Program, allowed, parse, words_of
from test_litmus import PTX, made_up, small

SEEDS = 100
READ = 32  # words of the results of a thread

# The program (scope .gpu, threads of several CTAs), an outcome, whether PTX allows it, and whether it is seen.
LITMUS: dict[str, tuple[list[str], tuple[int, ...], bool, bool]] = {
    "MP": (["W x 1; W y 1", "R y; R x"], (1, 0), True, True),
    "MP, acquire alone": (["W x 1; W y 1", "R.acq y; R x"], (1, 0), True, True),
    "MP, release alone": (["W x 1; W.rel y 1", "R y; R x"], (1, 0), True, True),
    "MP, fence of the reader alone": (["W x 1; W y 1", "R y; F; R x"], (1, 0), True, True),
    "MP, fence of the writer alone": (["W x 1; F; W y 1", "R y; R x"], (1, 0), True, True),
    "MP, release and acquire": (["W x 1; W.rel y 1", "R.acq y; R x"], (1, 0), False, False),
    "MP, fences": (["W x 1; F; W y 1", "R y; F; R x"], (1, 0), False, False),
    "MP, released by a later store": (["W x 1; W.rel y 1; W y 2", "R.acq y; R x"], (2, 0), False, False),
    "MP, exchanged": (["W x 1; X y 1", "R.acq y; R x"], (0, 1, 0), True, True),
    "MP, released by an exchange": (["W x 1; X.rel y 1", "R.acq y; R x"], (0, 1, 0), False, False),
    "SB": (["W x 1; R y", "W y 1; R x"], (0, 0), True, True),
    "SB, release and acquire": (["W.rel x 1; R.acq y", "W.rel y 1; R.acq x"], (0, 0), True, True),
    "SB, fence.acq_rel": (["W x 1; F; R y", "W y 1; F; R x"], (0, 0), True, True),
    "SB, fence.sc": (["W x 1; F.sc; R y", "W y 1; F.sc; R x"], (0, 0), False, False),
    "LB": (["R x; W y 1", "R y; W x 1"], (1, 1), True, False),
    "LB, acquire and release": (["R.acq x; W.rel y 1", "R.acq y; W.rel x 1"], (1, 1), False, False),
    "CoRR": (["W x 1; W x 2", "R x; R x"], (2, 1), False, False),
    "CoWR": (["W x 1; R x", "W x 2; R x"], (2, 1), False, False),
    "R": (["W x 1; W y 1", "W y 2; R y; R x"], (1, 0), True, True),
    "2+2W": (["W x 1; W y 2; R.acq y", "W y 1; W x 2; R.acq x"], (1, 1), True, False),
    "WRC": (["W x 1", "R x; W y 1", "R y; R x"], (1, 1, 0), True, True),
    "WRC, fence and acquire": (["W x 1", "R x; F; W y 1", "R.acq y; R x"], (1, 1, 0), False, False),
    "ISA2": (["W x 1; W y 1", "R y; W z 1", "R z; R x"], (1, 1, 0), True, True),
    "ISA2, release and acquire": (
        ["W x 1; W.rel y 1", "R.acq y; W.rel z 1", "R.acq z; R x"], (1, 1, 0), False, False,
    ),
    "IRIW": (["W x 1", "W y 1", "R x; R y", "R y; R x"], (1, 0, 1, 0), True, True),
    "IRIW, acquire": (["W x 1", "W y 1", "R.acq x; R y", "R.acq y; R x"], (1, 0, 1, 0), True, True),
    "IRIW, fence.sc": (["W x 1", "W y 1", "R x; F.sc; R y", "R y; F.sc; R x"], (1, 0, 1, 0), False, False),
    "RWC, fence.sc": (["W x 1", "R x; F.sc; R y", "W y 1; F.sc; R x"], (1, 0, 0), False, False),
    "two exchanges": (["X x 1", "X x 2"], (0, 0), False, False),
}  # fmt: skip
SPACES = {"global, CTAs": ("global", 1), "shared, warps": ("shared", 32), "global, warps": ("global", 32)}


def text_of(program: Program, space: str, scope: str, each: int) -> str:
    """A thread is a CTA, or (each: 32) the first lane of a warp. Words are in global or in shared memory."""
    words, number = words_of(program), "%ctaid.x" if each == 1 else "%tid.x"
    text = ".reg .b64 %m, %o;\n.reg .b32 %t, %r<8>;\n.reg .pred %q;\n.shared .align 4 .b8 words[64];\n"
    text += f"mov.u32 %t, {number};\nld.param.u64 %o, [out];\n"
    text += "mov.u64 %m, words;\n" if space == "shared" else "ld.param.u64 %m, [memory];\n"
    if space == "shared":  # zeros, and a barrier before anything else
        text += "setp.lt.u32 %q, %t, 16;\nmad.lo.u32 %r0, %t, 4, words;\nmov.u32 %r1, 0;\n"
        text += "@%q st.shared.u32 [%r0], %r1;\nbar.sync 0;\n"
    for n in range(len(program)):
        text += f"setp.eq.u32 %q, %t, {n * each};\n@%q bra thread{n};\n"
    text += "bra.uni end;\n"
    for n, thread in enumerate(program):
        text += f"thread{n}:\n"
        for i, step in enumerate(thread):
            form = PTX[".".join(filter(None, (step.kind, step.order)))].replace(".gpu", f".{scope}")
            form = form.replace(".global", f".{space}")
            text += form.format(at=4 * words.index(step.word) if step.word else 0, value=step.value, n=i) + "\n"
        for i in (i for i, step in enumerate(thread) if step.reads):
            text += f"st.global.u32 [%o+{4 * (READ * n + i)}], %r{i};\n"
        text += "bra.uni end;\n"
    return entry(text + "end:", ".param .u64 memory, .param .u64 out")


def seen(program: Program, where: str, scope: str, seeds: int, folder: Path) -> set[tuple[int, ...]]:
    space, each = SPACES[where]
    path = folder / "litmus.ptx"
    path.write_text(text_of(program, space, scope, each))
    kernel = emu.Module(str(path))["test"]
    grid, block = (len(program), 1) if each == 1 else (1, 32 * len(program))
    found = set()
    for seed in range(1, seeds + 1):
        results = np.zeros(READ * len(program), np.uint32)
        kernel[grid, block](np.zeros(16, np.uint32), results, schedule=seed, stale=True, ignore="race")
        reads = ((n, i) for n, thread in enumerate(program) for i, step in enumerate(thread) if step.reads)
        found.add(tuple(int(results[READ * n + i]) for n, i in reads))
    return found


@pytest.mark.parametrize("name", LITMUS)
def test_a_known_program(name: str, tmp_path: Path) -> None:
    threads, outcome, by_PTX, shown = LITMUS[name]
    program = parse(threads)
    assert (outcome in allowed(program)) == by_PTX
    found = seen(program, "global, CTAs", "gpu", SEEDS * (5 if shown else 1), tmp_path)
    assert found <= allowed(program)
    assert (outcome in found) == shown


@pytest.mark.parametrize("where", ["shared, warps", "global, warps"])
def test_threads_of_a_cta(where: str, tmp_path: Path) -> None:
    """No run shows an outcome that PTX forbids, and a missing fence shows as a wrong result."""
    for name, (threads, outcome, by_PTX, _) in LITMUS.items():
        program = parse(threads)
        found = seen(program, where, "cta", SEEDS, tmp_path)
        assert found <= allowed(program), name
        if by_PTX and name in ("MP", "SB", "WRC", "MP, fence of the reader alone"):
            assert outcome in found, name


def test_a_scope_that_leaves_out_the_other_thread(tmp_path: Path) -> None:
    threads, outcome, *_ = LITMUS["MP, release and acquire"]
    assert outcome in seen(parse(threads), "global, CTAs", "cta", 5 * SEEDS, tmp_path)
    assert outcome not in seen(parse(threads), "global, CTAs", "sys", SEEDS, tmp_path)


def check_made_up(seed: int, where: str, scope: str, folder: Path) -> None:
    program = made_up(seed)
    assert seen(program, where, scope, 20, folder) <= allowed(program), (seed, where)


def test_made_up_programs(tmp_path: Path) -> None:
    for seed in small(range(3, 9)):
        check_made_up(seed, "global, CTAs", "gpu", tmp_path)
        check_made_up(seed, "shared, warps", "cta", tmp_path)


@pytest.mark.long
def test_many_made_up_programs(tmp_path: Path) -> None:
    for seed in small(range(9, 150)):
        check_made_up(seed, "global, CTAs", "gpu", tmp_path)
        check_made_up(seed, "shared, warps", "cta", tmp_path)


REVERSED = """
extern "C" __global__ void reversed(const int *x, int *y) {
    __shared__ int s[64];
    for (int i = 0; i < 4; i++) {
        s[threadIdx.x] = x[64 * i + threadIdx.x];
        BARRIER
        y[64 * i + threadIdx.x] = s[63 - threadIdx.x];
        BARRIER
    }
}
"""


@pytest.mark.parametrize("barrier", [True, False])
def test_a_missing_barrier_gives_wrong_results_in_some_runs(barrier: bool, tmp_path: Path) -> None:
    path = tmp_path / "reversed.cu"
    path.write_text(REVERSED.replace("BARRIER", "__syncthreads();" if barrier else ""))
    kernel = emu.Module(str(path))["reversed"]
    x, wrong = np.arange(256, dtype=np.int32), 0
    for seed in range(1, 6):
        y = np.zeros_like(x)
        kernel[1, 64](x, y, schedule=seed, stale=True, ignore="" if barrier else "race,uninitialised-shared")
        wrong += bool((y.reshape(4, 64) != x.reshape(4, 64)[:, ::-1]).any())
    assert wrong == (0 if barrier else 5)


def test_stale_values_need_a_seed(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(entry("ret;"))
    done = ptxrun(path, "--block", 32, "--stale")
    assert (done.returncode, "stale values need checks and the seed of a schedule" in done.stderr) == (2, True)
