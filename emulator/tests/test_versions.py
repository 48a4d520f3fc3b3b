"""Every landed version on the emulator: right results, no report in any order of warps, counters as recorded."""

from __future__ import annotations

from pathlib import Path

import golden
import pytest
from support import general
from support.general import General
from support.versions import DTYPES, Launch, Version, first_in_check, kernels, versions, with_fp8

from analysis.tests.support.kinds import marks_of

VERSIONS = versions()
ANY_LENGTH = [version for version in kernels() if version.config.any_length]
WITH_TICKETS = [version for version in ANY_LENGTH if version.config.tickets]
WITH_MATRICES = [version for version in VERSIONS if version.name != "v00"]
ONE_OF_EACH_KIND = [pytest.param(version, id=version.name, marks=marks_of(version.name)) for version in VERSIONS]
BY_NAME = pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)


def problem(version: Version, dtype: str, seq: int, heads: int = 1, batch: int = 1, row_heads: int = 0) -> Launch:
    """A problem of at least seq rows, a multiple of the version's blocks; at most 128 rows for the slow v00."""
    symbol = version.entry(dtype)
    config = Launch(symbol).config
    seq = seq if version in WITH_MATRICES else min(seq, 128)
    return Launch(symbol, max(seq, config.B_r, config.B_c), heads, batch, row_heads=row_heads)


@pytest.mark.parametrize(
    ("version", "dtype"),
    [
        pytest.param(
            version, dtype, marks=marks_of(version.name) if dtype == "bf16" else [], id=f"{dtype}-{version.name}"
        )
        for version in VERSIONS
        for dtype in DTYPES
    ],
)
def test_version_is_right(version: Version, dtype: str, tmp_path: Path) -> None:
    worst, text = problem(version, dtype, 256, 2, 2).worst(version.ptx, tmp_path, "--orders")
    assert worst <= 1, f"largest error over bound {worst}\n{text}"
    assert "no race, no deadlock in any order" in text, text


@pytest.mark.parametrize("version", ONE_OF_EACH_KIND)
@pytest.mark.parametrize("dtype", ["fp16", pytest.param("bf16", marks=pytest.mark.long)])
@pytest.mark.parametrize(("seq", "heads"), [(128, 2), (512, 1)])
def test_version_is_right_at_other_lengths(version: Version, dtype: str, seq: int, heads: int, tmp_path: Path) -> None:
    worst, text = problem(version, dtype, seq, heads, heads).worst(version.ptx, tmp_path)
    assert worst <= 1, f"largest error over bound {worst}\n{text}"


@pytest.mark.parametrize("version", ONE_OF_EACH_KIND)
def test_version_is_right_with_rows_of_16_heads(version: Version, tmp_path: Path) -> None:
    """A version may have a copy of the code for the row stride of 16 heads. Two of them are enough to run it."""
    worst, text = problem(version, "fp16", 128, 2, row_heads=16).worst(version.ptx, tmp_path)
    assert worst <= 1, f"largest error over bound {worst}\n{text}"


@pytest.mark.parametrize("version", WITH_TICKETS, ids=lambda version: version.name)
def test_tickets_are_0_after_a_launch(version: Version, tmp_path: Path) -> None:
    """With more Q blocks than CTAs, so that each of these draws, and without a mask or with one."""
    symbol = version.entry("fp16")
    for causal in (False, True):
        launch = General(symbol, 40, heads=6, KV_heads=2, batch=2, seq_k=70, causal=causal, lse=True, ctas=3)
        error, findings = launch.worst(version.ptx, tmp_path)
        assert error <= 1, findings


@pytest.mark.long
@pytest.mark.parametrize("version", ANY_LENGTH, ids=lambda version: version.name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_problems_of_mutants_are_right(version: Version, dtype: str, tmp_path: Path) -> None:
    for launch in general.problems(version.entry(dtype)):
        error, findings = launch.worst(version.ptx, tmp_path)
        assert error <= 1, f"{launch}\n{findings}"


def test_shared_keys_give_the_same_bits_in_any_order(tmp_path: Path) -> None:
    """The last CTA to store a part combines all of them, in the order of the keys, whichever CTA it is."""
    (decode,) = (version for version in ANY_LENGTH if version.config.shares_keys)
    for launch in general.shared(decode.entry("fp16")):
        error, findings = launch.worst(decode.ptx, tmp_path)
        assert error <= 1, findings
        of_first = b""
        for schedule in range(3):
            out = tmp_path / "out.bin"
            done = launch.run(decode.ptx, "--schedule", schedule, "--dump", f"0.3={out}")
            assert done.returncode == 0, done.stderr
            of_first = of_first or out.read_bytes()
            assert out.read_bytes() == of_first, f"{launch}: schedule {schedule} gives other bits than schedule 0"


@pytest.mark.parametrize("version", first_in_check(WITH_MATRICES, and_last=True))
def test_version_is_right_with_16_heads(version: Version, tmp_path: Path) -> None:
    worst, text = problem(version, "fp16", 128, 16).worst(version.ptx, tmp_path)
    assert worst <= 1, f"largest error over bound {worst}\n{text}"


def run_schedules(version: Version, dtype: str, seq: int, orders: dict[int, list[int]], folder: Path) -> None:
    """No report in any order, and every order gives the same bits; `orders`: schedules for each seed of the inputs."""
    launch = problem(version, dtype, seq)
    for seed, schedules in orders.items():
        first = b""
        for schedule in schedules:
            out = folder / "out.bin"
            done = launch.run(version.ptx, "--schedule", schedule, "--seed", seed, "--dump", f"0.3={out}")
            assert (done.returncode, done.stderr) == (0, ""), f"schedule {schedule}, seed {seed}\n{done.stderr}"
            first = first or out.read_bytes()
            assert out.read_bytes() == first, f"schedule {schedule}, seed {seed}: other results than schedule 0"


@pytest.mark.parametrize("version", ONE_OF_EACH_KIND)
def test_three_schedules(version: Version, tmp_path: Path) -> None:
    run_schedules(version, "fp16", 128, {1: [0, 1, 2]}, tmp_path)


@pytest.mark.long
@BY_NAME
def test_twenty_schedules_and_five_seeds(version: Version, tmp_path: Path) -> None:
    """Each seed with the first order and a fifth of the others, as data decide little of what an order may break.

    The element type decides nothing of it: the second seed is of the other one.
    """
    for seed in range(1, 6):
        orders = {seed: [0, *range(seed, 21, 5)]}
        run_schedules(version, "bf16" if seed == 2 else "fp16", 256, orders, tmp_path)


@pytest.mark.parametrize("version", with_fp8(), ids=lambda version: version.name)
def test_golden_counters(version: Version, tmp_path: Path) -> None:
    recorded = golden.read()
    again = f"if the change is meant, run `.venv/bin/python emulator/tests/golden.py {version.name}`"
    assert version.name in recorded, f"{golden.GOLDEN.name} has no {version.name}: run `make adopt`"
    assert golden.counters(version, tmp_path) == recorded[version.name], again


def test_golden_counters_name_no_other_version() -> None:
    assert set(golden.read()) <= {version.name for version in with_fp8()}


@pytest.mark.parametrize("version", [WITH_MATRICES[0], WITH_MATRICES[-1]], ids=lambda version: version.name)
def test_threads_change_no_counter(version: Version, tmp_path: Path) -> None:
    texts = set()
    for options in (["--threads", 1], ["--threads", 2], ["--threads", 5]):
        path = tmp_path / "counters.csv"
        done = problem(version, "fp16", 128, 3, 2).run(version.ptx, "--counters-csv", path, *options)
        assert done.returncode == 0, done.stderr
        texts.add(path.read_text())
    assert len(texts) == 1
