"""ptxrun --orders all and the memory model of PTX: which values threads can read from each other in global memory."""

import random
import re
import subprocess
from pathlib import Path

import pytest
from support.emulation import entry, ptxrun
from support.litmus import LITMUS, PARAMETERS, SHARED, in_one_cta, shape, text_that_traps
from support.memory_model import Program, Step, allowed, outcomes, parse

START = """.reg .b64 %m;
.reg .b32 %t, %b, %v, %r<8>; .reg .pred %q, %all;
ld.param.u64 %m, [memory]; mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; setp.ne.u32 %q, %t, 0;
@%q bra end;
"""


def run(text: str, ctas: int, folder: Path, threads: int = 32, *options: str) -> subprocess.CompletedProcess[str]:
    path = folder / "litmus.ptx"
    path.write_text(text.replace(PARAMETERS, PARAMETERS + ", .param .u64 compared"))
    memory = ["--arg", "buf:u32:64", "--arg", "buf:u32:512"]
    memory += ["--arg", "out:u32:1", "--ignore", "output-never-written"]  # which alone is compared between the runs
    return ptxrun(path, "--grid", ctas, "--block", threads, *memory, "--orders", "all", "--runs", 20000, *options)


def is_seen(program: Program, outcome: tuple[int, ...], folder: Path, space: str = "global") -> bool:
    ctas, threads = shape(program)
    done = run(text_that_traps(program, outcome, space), ctas, folder, threads, "--ignore", "race")
    trapped = done.returncode == 3 and "1 finding: trap" in done.stderr
    assert trapped or (done.returncode == 0 and " left" not in done.stderr), done.stderr
    return trapped


MANY_ORDERS = ("CoRR, two readers",)


@pytest.mark.parametrize("name", [name for name in LITMUS if name not in MANY_ORDERS])
def test_known_programs(name: str, tmp_path: Path) -> None:
    litmus = LITMUS[name]
    assert (litmus.outcome in allowed(litmus.program)) == litmus.allowed
    assert is_seen(litmus.program, litmus.outcome, tmp_path) == bool(litmus.orders)


def test_membar_is_a_fence_sc(tmp_path: Path) -> None:
    text = text_that_traps(LITMUS["SB, fence.sc"].program, (0, 0))
    done = run(text.replace("fence.sc.gpu", "membar.gl"), 2, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("order", ["relaxed", "release"])
def test_a_barrier_of_the_CTA_orders_stores_for_who_acquires_them(order: str, tmp_path: Path) -> None:
    """Accesses of one warp before it, and of another after it. A barrier alone releases nothing to other CTAs."""
    text = START.replace("setp.ne.u32 %q, %t, 0;\n@%q bra end;\n", "") + "setp.eq.u32 %q, %b, 1;\n@%q bra reads;\n"
    text += "setp.eq.u32 %q, %t, 0;\n@%q st.relaxed.gpu.global.u32 [%m], 1;\nbar.sync 0;\nsetp.eq.u32 %q, %t, 32;\n"
    text += f"@%q st.{order}.gpu.global.u32 [%m+4], 1;\nbra.uni end;\nreads:\nsetp.ne.u32 %q, %t, 0;\n@%q bra end;\n"
    text += "ld.acquire.gpu.global.u32 %v, [%m+4];\nld.relaxed.gpu.global.u32 %r0, [%m];\nsetp.eq.u32 %all, %v, 1;\n"
    text += "setp.eq.and.u32 %all, %r0, 0, %all;\n@%all trap;\nend:"
    done = run(entry(text, PARAMETERS), 2, tmp_path, threads=64)
    assert done.returncode == (3 if order == "relaxed" else 0), done.stderr


SHARED_UNSEEN = {
    "LB",
    "LB, volatile",
    "LB, one acquire and release",
    "2+2W",
}  # stores and loads there take effect at once


@pytest.mark.long
@pytest.mark.parametrize("name", MANY_ORDERS)
def test_known_programs_with_many_orders(name: str, tmp_path: Path) -> None:
    test_known_programs(name, tmp_path)


@pytest.mark.long
def test_known_programs_in_shared_memory(tmp_path: Path) -> None:
    for name, litmus in SHARED.items():
        program = in_one_cta(litmus.program)
        seen = is_seen(program, litmus.outcome, tmp_path, "shared")
        forbidden = litmus.outcome not in allowed(program)
        assert seen == (not forbidden and bool(litmus.orders) and name not in SHARED_UNSEEN), name


OVERTAKEN = ["R y; W.rel x 1", "R.acq y; W x 1"]
COVERED = ["R y; R x", "R y; W x 1", "R y; X x 1", "R y; R.acq x", "R.acq y; R x", "R.acq y; W.rel x 1"]
IN_ORDER = ["R y; F; R x", "R.acq y; F; W x 1", "R y; F; W.rel x 1", "R y; R y", "R y; W y 1", "R y; W.rel y 1", "R y"]


@pytest.mark.parametrize("thread", [*OVERTAKEN, *COVERED, *IN_ORDER])
def test_loads_that_are_not_covered_are_named(thread: str, tmp_path: Path) -> None:
    program = parse(["W x 1; F; W y 1", thread + "; F"])
    never = tuple(7 for each in program[1] if each.reads)
    done = run(text_that_traps(program, never), 2, tmp_path)
    named = "; not covered: loads that later accesses may overtake\n" in done.stderr
    assert done.returncode == 0 and named == (thread in OVERTAKEN), done.stderr


def every_outcome(program: Program, folder: Path, space: str = "global") -> set[tuple[int, ...]]:
    return {each for each in outcomes(program) if is_seen(program, each, folder, space)}


@pytest.mark.parametrize("name", ["SB", "MP", "MP, fences", "CoWR"])
def test_every_outcome_of_known_programs(name: str, tmp_path: Path) -> None:
    program = LITMUS[name].program
    assert every_outcome(program, tmp_path) == allowed(program)


FLAG = (
    START.replace("setp.ne.u32 %q, %t, 0", "setp.eq.u32 %q, %b, 1;\n@%q bra reads;\nsetp.ne.u32 %q, %t, 0")
    + "st.global.u32 [%m], 7;\nSTORE [%m+4], 1;\nbra.uni end;\nreads:\nsetp.ne.u32 %q, %t, 0;\n@%q bra end;\n"
    + "again:\nLOAD %v, [%m+4];\nHEARS\nld.global.u32 %v, [%m];\nend:"
)
POLLS, LOOKS = "setp.eq.u32 %q, %v, 0;\n@%q bra again;", ""
MESSAGES = {
    "released, and waited for": ("st.release.gpu.global.u32", "ld.acquire.gpu.global.u32", POLLS, False),
    "relaxed, and no fence": ("st.relaxed.gpu.global.u32", "ld.acquire.gpu.global.u32", POLLS, True),
    "relaxed after a fence": (
        "fence.acq_rel.gpu;\nst.relaxed.gpu.global.u32", "ld.acquire.gpu.global.u32", POLLS, False,
    ),
    "heard, and no fence": ("st.release.gpu.global.u32", "ld.relaxed.gpu.global.u32", POLLS, True),
    "heard before a fence": (
        "st.release.gpu.global.u32", "ld.relaxed.gpu.global.u32", POLLS + "\nfence.acq_rel.gpu;", False,
    ),
    "not seen yet": ("st.release.gpu.global.u32", "ld.acquire.gpu.global.u32", LOOKS, True),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_by_ordinary_stores_is_a_race_without_order(name: str, tmp_path: Path) -> None:
    store, load, hears, races = MESSAGES[name]
    path = tmp_path / "message.ptx"
    path.write_text(
        entry(FLAG.replace("STORE", store).replace("LOAD", load).replace("HEARS", hears), ".param .u64 memory")
    )
    done = ptxrun(path, "--grid", 2, "--block", 32, "--arg", "buf:u32:2", "--orders", "all")
    assert done.returncode == int(races) and ("1 finding: race" in done.stderr) == races, done.stderr
    assert races or done.stderr == "orders: 1 class\n"


def test_a_load_that_a_wait_may_overtake(tmp_path: Path) -> None:
    """The wait is still one, and the load reads before it or after it."""
    body = FLAG.replace("st.global.u32 [%m], 7", "st.relaxed.gpu.global.u32 [%m], 7").replace("HEARS", POLLS)
    body = body.replace("again:", "ld.relaxed.gpu.global.u32 %r0, [%m];\nagain:")
    body = body.replace("ld.global.u32 %v, [%m];", "st.global.u32 [%m+64], %r0;")
    body = body.replace("STORE", "st.release.gpu.global.u32").replace("LOAD", "ld.acquire.gpu.global.u32")
    done = run(entry(body, PARAMETERS), 2, tmp_path)
    assert (done.returncode, done.stderr) == (0, "orders: 2 classes, all run\n")


def test_a_load_that_is_overtaken_hears_as_it_reads(tmp_path: Path) -> None:
    looks = "ld.relaxed.gpu.global.u32 %r1, [%m+8];\nsetp.eq.u32 %q, %v, 0;\n@%q bra end;\nfence.acq_rel.gpu;"
    body = FLAG.replace("STORE", "st.release.gpu.global.u32").replace("LOAD", "ld.relaxed.gpu.global.u32")
    body = body.replace("HEARS", looks).replace("\nend:", "\nst.global.u32 [%m+64], %r1;\nend:")
    done = run(entry(body, PARAMETERS), 2, tmp_path)
    assert (done.returncode, done.stderr) == (0, "orders: 2 classes, all run\n")


def test_a_load_whose_value_is_stored_is_not_overtaken(tmp_path: Path) -> None:
    """LB where each thread stores what it has read, plus 1, and one of them 1."""
    text = text_that_traps(parse(["R x; W y 1", "R y; W x 1"]), (1, 1))
    assert run(text, 2, tmp_path).returncode == 3
    text = text.replace("[%m+4], 1", "[%m+4], %r0").replace("[%m+0], 1", "[%m+0], %r0")
    done = run(text, 2, tmp_path)
    assert done.returncode == 0 and re.match(r"orders: \d+ classes, all run", done.stderr), done.stderr


def made_up(seed: int) -> Program:
    """Each store has a value of its own."""
    draw, value = random.Random(seed), 0
    kinds = ["W", "W", "W.rel", "R", "R", "R.acq", "F", "F.sc", "X", "X.rel"]
    program: Program = []
    for n in range(draw.choice((2, 2, 3))):
        program.append([])
        for _ in range(draw.randrange(1, 5 if n < 2 else 3)):
            kind, _, order = draw.choice(kinds).partition(".")
            value += kind in "WX"
            step = Step(n, kind, order, "" if kind == "F" else draw.choice("xy"), value if kind in "WX" else 0)
            program[-1].append(step)
    return program


@pytest.mark.parametrize("seed", range(3))
def test_made_up_programs(seed: int, tmp_path: Path) -> None:
    check_made_up(seed, tmp_path)


def check_made_up(seed: int, folder: Path) -> None:
    program = made_up(seed)
    assert every_outcome(program, folder) == allowed(program), seed


def small(seeds: range) -> list[int]:
    few = [seed for seed in seeds if len(outcomes(made_up(seed))) <= 24]
    assert len(few) > len(seeds) / 2
    return few


@pytest.mark.long
def test_many_made_up_programs(tmp_path: Path) -> None:
    for seed in small(range(3, 150)):
        check_made_up(seed, tmp_path)
