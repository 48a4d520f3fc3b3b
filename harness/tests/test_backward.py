"""The versions of the backward pass on the emulator: right in any order of warps, races found where a barrier is gone.

A launch with a finding raises. The reference is NumPy's float64 (passes.py), not the harness's.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import emu
import numpy as np
import pytest

from analysis.ladder.config import Dtype, KernelConfig
from analysis.ladder.headers import GRADIENTS, load_backward, stem_of
from harness.tests.passes import ROUNDOFF, Problem, errors, run

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = load_backward(ROOT)


def configs(version: str) -> Iterator[KernelConfig]:
    """What is built by default."""
    header = VERSIONS[version].header
    for config in (header.config, *header.beside):
        assert config.backward_pass
        for dtype in Dtype:
            yield config.replace(dtype=dtype)  # type: ignore[misc]


CASES = [pytest.param(name, config, id=f"{name}-{config}") for name in VERSIONS for config in configs(name)]


def ptx_of(version: str) -> Path:
    stem = stem_of(version)
    path = ROOT / f"build/{stem}/{stem}.ptx"
    if not path.exists():
        pytest.skip(f"{path.name} is not built: make {stem}")
    return path


@cache
def module_of(version: str) -> emu.Module:
    return emu.Module(ptx_of(version))


def assert_right(version: str, config: KernelConfig, problem: Problem, schedule: int = 0) -> None:
    """Two roundings of coefficients and one of the result, each at most the roundoff: far less in the mean."""
    got = run(module_of(version), config, problem, schedule=schedule)
    assert errors(config, problem, got) < 1.2 * ROUNDOFF[Dtype(config.dtype)]


@pytest.mark.parametrize(("version", "config"), CASES)
def test_two_blocks_are_right(version: str, config: KernelConfig) -> None:
    assert_right(version, config, Problem(seq=2 * max(config.B_r, config.B_c)), schedule=7)


@pytest.mark.long
@pytest.mark.parametrize(("version", "config"), CASES)
@pytest.mark.parametrize("seed", range(3))
def test_random_problems_are_right_in_any_order_of_warps(version: str, config: KernelConfig, seed: int) -> None:
    rng = np.random.default_rng(seed)
    block = max(config.B_r, config.B_c)
    heads = int(rng.choice([1, 2, 4]))
    problem = Problem(
        seq=block * int(rng.integers(1, 4)),
        heads=heads,
        KV_heads=int(rng.choice([1, heads])) if config.grouped_heads else 0,
        batch=int(rng.integers(1, 3)),
        causal=bool(config.causal and rng.integers(2)),
        scale=float(rng.choice([0.0, 0.2])),
        seed=seed,
    )
    for schedule in (0, seed + 1):
        assert_right(version, config, problem, schedule)


LIVING = [case for case in CASES if case.values[0] == GRADIENTS]


def random_problem(config: KernelConfig, seed: int, most: int = 300) -> Problem:
    """Lengths around the blocks and far from them, with rows that see no key where queries are more than keys."""
    rng = np.random.default_rng(seed)
    heads = int(rng.choice([1, 2, 3]))
    lengths = [1, 2, 63, 64, 65, 127, 128, 129, *rng.integers(1, most, 4).tolist()]
    return Problem(
        seq=int(rng.choice(lengths)),
        seq_k=int(rng.choice(lengths)),
        heads=heads,
        KV_heads=int(rng.choice([1, heads])),
        batch=int(rng.integers(1, 3)),
        causal=bool(rng.integers(2)),
        scale=float(rng.choice([0.0, 0.2])),
        seed=seed,
    )


@pytest.mark.parametrize(("version", "config"), LIVING)
@pytest.mark.parametrize(
    ("seq", "seq_k", "causal"),
    [
        (70, 130, True),
        pytest.param(130, 65, True, marks=pytest.mark.long),
        pytest.param(1, 129, False, marks=pytest.mark.long),
    ],
)
def test_any_length_is_right(version: str, config: KernelConfig, seq: int, seq_k: int, causal: bool) -> None:
    assert_right(version, config, Problem(seq, heads=2, KV_heads=1, causal=causal, seq_k=seq_k), schedule=seq)


ORDERED = [case for case in LIVING if case.values[1].in_order and case.values[1].serves]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("version", "config"), [case for case in ORDERED if case.values[1].dtype == Dtype.BF16])
def test_sections_of_heads_are_right(version: str, config: KernelConfig, causal: bool) -> None:
    """In order few heads of long sequences make a section: here 3 and 2, with the mask 2, 2 and 1."""
    longest = 10000 * 128 // config.d_head
    assert_right(version, config, Problem(seq=9, heads=5, causal=causal, seq_k=129, longest=longest), schedule=2)


@pytest.mark.long
@pytest.mark.parametrize(("version", "config"), LIVING)
@pytest.mark.parametrize("seed", range(15))
def test_random_lengths_are_right(version: str, config: KernelConfig, seed: int) -> None:
    assert_right(version, config, random_problem(config, seed), seed % 3)


def test_the_same_bits_in_every_run_where_the_order_is_fixed() -> None:
    for version in VERSIONS:
        for config in configs(version):
            if config.in_order or not config.dQ_sums:
                problem = Problem(seq=2 * max(config.B_r, config.B_c), seed=3)
                first, second = (run(module_of(version), config, problem, schedule=seed) for seed in (0, 5))
                assert all((a == b).all() for a, b in zip(first, second, strict=True)), config


SERVING = [case for case in LIVING if case.values[1].serves]


@pytest.mark.parametrize("config", [case.values[1] for case in SERVING if case.values[1].dtype == Dtype.BF16], ids=str)
def test_sequences_of_several_lengths_are_right(config: KernelConfig) -> None:
    """No query, no key, both, and queries that see no key: all rows are compared, and no other is written."""
    lengths = ["--layout", "packed", "--seqlens-q", "70,0,3,0,9", "--seqlens-k", "66,5,0,0,2", "--causal"]
    done = executable(GRADIENTS, *lengths, "--config", str(config), "--check", "all", "--json", "-")
    assert done.returncode == 0, done.stdout + done.stderr
    check = json.loads(done.stdout)["check"]
    assert check["pass"] and check["rows"] == 70 + 3 + 9 + 66 + 5 + 2


@pytest.mark.long
@pytest.mark.parametrize("config", [case.values[1] for case in SERVING], ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_random_sequences_are_right(config: KernelConfig, seed: int) -> None:
    rng = np.random.default_rng(seed)
    heads, count = int(rng.choice([1, 2, 4])), int(rng.integers(1, 7))
    lengths = [rng.choice([0, 1, 63, 64, 65, 127, 128, 129, *rng.integers(1, 300, 4)], count) for _ in "qk"]
    lengths[0][0], lengths[1][-1] = max(1, lengths[0][0]), max(1, lengths[1][-1])
    asked = [",".join(map(str, each)) for each in lengths]
    arguments = ["--layout", "packed", "--seqlens-q", asked[0], "--seqlens-k", asked[1], "--heads", str(heads)]
    arguments += ["--kv-heads", str(int(rng.choice([1, heads]))), "--seed", str(seed + 1), "--config", str(config)]
    done = executable(GRADIENTS, *arguments, *["--causal"] * int(rng.integers(2)), "--check", "all")
    assert done.returncode == 0, done.stdout + done.stderr


# ---- planted mistakes ------------------------------------------------------------------------------------------------

BARRIERS = r"\n\tbar(?:rier)?\.sync[^\n;]*;|\n\tfence\.proxy\.async[^\n;]*;"
WAITS = r"mbarrier\.try_wait\.parity\.shared\.b64 p,[^;]*;"


def broken(text: str, symbol: str) -> Iterator[str]:
    """The PTX without one barrier or fence of a kernel, and with one wait that is over at once."""
    start = text.index(f".entry {symbol}(")
    end = text.find(".entry ", start + 1)
    body = text[start : end if end >= 0 else len(text)]
    for pattern, instead in ((BARRIERS, ""), (WAITS, "setp.eq.u32 p, 0, 0;")):
        for found in re.finditer(pattern, body):
            yield text[: start + found.start()] + instead + text[start + found.end() :]


def findings_of(text: str, config: KernelConfig, schedules: tuple[int, ...]) -> set[str]:
    """Classes of what the emulator reports. In order CTAs have two tiles each."""
    problem = Problem(seq=3 * max(config.B_r, config.B_c), heads=1 + config.in_order)
    found: set[str] = set()
    for schedule in schedules:
        try:
            run(emu.Module(text), config, problem, schedule=schedule, first_finding_only=True)
        except emu.FindingsError as error:
            found |= {finding.kind for finding in error.findings}
    return found


def own_config(version: str) -> KernelConfig:
    config = VERSIONS[version].header.config
    assert config.backward_pass
    return config


@pytest.mark.parametrize("version", VERSIONS)
def test_a_missing_barrier_is_reported(version: str) -> None:
    config = own_config(version)
    (text, *_) = broken(ptx_of(version).read_text(), config.symbol())
    assert findings_of(text, config, (1,))


# The others have mbarriers: test_hopper_mutations.py.
WITH_BARRIERS = [name for name in VERSIONS if not own_config(name).tensor_copies]


@pytest.mark.long
@pytest.mark.parametrize("version", WITH_BARRIERS)
def test_every_barrier_is_missed(version: str) -> None:
    config = own_config(version)
    found = [findings_of(text, config, (0, 1, 2, 3)) for text in broken(ptx_of(version).read_text(), config.symbol())]
    assert all(found), found


def in_order(version: str) -> KernelConfig:
    return next(config for config in configs(version) if config.in_order)


def test_a_turn_that_is_not_passed_on_is_reported() -> None:
    text = ptx_of(GRADIENTS).read_text()
    kept = re.sub(r"st\.release\.gpu\.global\.s32 [^;]*;", "", text)
    assert kept != text and findings_of(kept, in_order(GRADIENTS), (1,)) == {"livelock"}


# Waits whose end follows from others: a tile's first dS finds an empty stage, and so do two of the three stages that
# are told that there are no more turns.
IMPLIED_IN_ORDER = 3


@pytest.mark.long
def test_every_barrier_and_every_wait_is_missed_in_order() -> None:
    config = in_order(GRADIENTS)
    found = [findings_of(text, config, (0, 1, 2, 3)) for text in broken(ptx_of(GRADIENTS).read_text(), config.symbol())]
    assert found.count(set()) == IMPLIED_IN_ORDER, found


# ---- the executables -------------------------------------------------------------------------------------------------


def executable(version: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = ROOT / f"bin/{stem_of(version)}"
    if not path.exists():
        pytest.skip(f"{path} is not built: make {path.name}")
    command = [str(path), "--backend", "emu", "--heads", "1", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def test_a_record_says_that_it_is_of_the_backward_pass(tmp_path: Path) -> None:
    """Counters are sums over the three kernels, events those of flash_backward alone."""
    events = tmp_path / "events.json"
    done = executable("b03", "--seq", "64", "--json", "-", "--counters", "--trace-events", str(events))
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["problem"]["pass"] == "backward" and record["check"]["pass"]
    assert all(0 < record["check"][f"d{name}_relative_error"] < 2**-11 for name in "qkv")
    lines = record["counters"]["lines"]
    assert {"rows.cuh", "b03_one_pass.cu"} <= {Path(line["file"]).name for line in lines}
    assert sum(line["executed"] for line in lines) == record["counters"]["total"]["executed"]
    assert json.loads(events.read_text())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--lse",), "--lse: log-sum-exp is an input of the backward pass"),
        (("--causal",), "--causal: take a config with the word causal"),
        (("--seq", "100"), "--seq 100: must be a multiple of 64"),
        (("--window", "3,0"), "--window: the backward pass does not take it"),
        (("--layout", "bhsd"), "--layout: the backward pass takes contiguous tensors"),
    ],
)
def test_what_a_version_cannot_is_refused(arguments: tuple[str, ...], sentence: str) -> None:
    done = executable("b03", *arguments)
    assert done.returncode == 2 and sentence in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--seqlens-q", "3,4"), "takes sequences that lie one behind the other (packed)"),
        (("--layout", "packed", "--seqlens-q", "3,4", "--seqlens-k", "3"), "--seqlens-k: 1 lengths for 2 sequences"),
        (("--layout", "packed", "--seqlens-q", "3", "--window", "3,0"), "--window: the backward pass does not take it"),
    ],
)
def test_which_sequences_are_refused(arguments: tuple[str, ...], sentence: str) -> None:
    done = executable(GRADIENTS, *arguments)
    assert done.returncode == 2 and sentence in done.stderr
    done = executable("b07", "--layout", "packed", "--seqlens-q", "64,64")
    assert done.returncode == 2 and "take a config of attention/backward with the word serve" in done.stderr
