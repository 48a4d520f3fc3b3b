"""Loads that return earlier values (ptxrun --schedule SEED --stale), against the axioms of PTX's memory model.

Each litmus program runs under many seeds. What PTX forbids must never be seen; of what it allows, the rows say what the
emulator shows.
"""

from pathlib import Path

import emu
import numpy as np
import pytest
from support.emulation import entry, ptxrun
from support.litmus import LITMUS, READ, SHARED, in_one_cta, reads_constants, shape, text_of
from support.memory_model import Program, allowed
from test_litmus import made_up, small

SEEDS = 100


def seen(program: Program, space: str, seeds: int, folder: Path) -> set[tuple[int, ...]]:
    path = folder / "litmus.ptx"
    path.write_text(text_of(program, space))
    module, found = emu.Module(str(path)), set()
    for seed in range(1, seeds + 1):
        if reads_constants(program):  # which keep their values
            module = emu.Module(str(path))
        results = np.zeros(READ * len(program), np.uint32)
        module["test"][shape(program)](np.zeros(16, np.uint32), results, schedule=seed, stale=True, ignore="race")
        reads = ((n, i) for n, thread in enumerate(program) for i, step in enumerate(thread) if step.reads)
        found.add(tuple(int(results[READ * n + i]) for n, i in reads))
    return found


@pytest.mark.parametrize("name", LITMUS)
def test_a_known_program(name: str, tmp_path: Path) -> None:
    litmus = LITMUS[name]
    found = seen(litmus.program, "global", SEEDS * (5 if litmus.stale else 1), tmp_path)
    assert found <= allowed(litmus.program)
    assert (litmus.outcome in found) == bool(litmus.stale)


@pytest.mark.parametrize("space", ["shared", "global"])
def test_threads_of_a_cta(space: str, tmp_path: Path) -> None:
    """No run shows an outcome that PTX forbids, and a missing fence shows as a wrong result."""
    for name, litmus in (SHARED if space == "shared" else LITMUS).items():
        program = in_one_cta(litmus.program)
        found = seen(program, space, SEEDS, tmp_path)
        assert found <= allowed(program), name
        if name in ("MP", "SB", "WRC", "MP, fence of the reader alone"):
            assert litmus.outcome in found, name


def check_made_up(seed: int, folder: Path) -> None:
    program = made_up(seed)
    for tried, space in ((program, "global"), (in_one_cta(program), "shared")):
        assert seen(tried, space, 20, folder) <= allowed(tried), (seed, space)


def test_made_up_programs(tmp_path: Path) -> None:
    for seed in small(range(3, 9)):
        check_made_up(seed, tmp_path)


@pytest.mark.long
def test_many_made_up_programs(tmp_path: Path) -> None:
    for seed in small(range(9, 150)):
        check_made_up(seed, tmp_path)


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
