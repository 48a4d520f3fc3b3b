"""The versions of kernels/fp8/ on the emulator: right in any order of warps, races found where a barrier is gone.

Also what the cut sums of wgmma cost.

A launch with a finding raises. The reference is NumPy's float64 of the same e4m3 inputs (fp8.py), not the harness's.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import emu
import numpy as np
import pytest
from made_up_gpu import made_up
from made_up_gpu import run as run_on_made_up

from analysis.ladder.config import ConfigError, Dtype, KernelConfig
from analysis.ladder.headers import load_fp8, refusals
from analysis.measure.schema import fault_of
from harness.tests.fp8 import Problem, error, gain, run
from harness.tests.fp8_errors import KINDS, measured

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = load_fp8(ROOT)


def own_config(version: str) -> KernelConfig:
    config = VERSIONS[version].header.config
    assert config.e4m3_inputs
    return config


CASES = [
    pytest.param(name, own_config(name).replace(dtype=dtype), id=f"{name}-{dtype.name}")
    for name in VERSIONS
    for dtype in Dtype
]
ACCURATE = [name for name in VERSIONS if own_config(name).flush_blocks]
FAST = [name for name in VERSIONS if not own_config(name).flush_blocks]


def ptx_of(version: str) -> Path:
    path = ROOT / f"build/{version}/{version}.ptx"
    if not path.exists():
        pytest.skip(f"{path.name} is not built: make {version}")
    return path


@cache
def module_of(version: str) -> emu.Module:
    return emu.Module(ptx_of(version))


def assert_right(version: str, config: KernelConfig, problem: Problem, schedule: int = 0) -> None:
    """A rounding of P is off by up to 2^-4; of many, with signs of their own, far less is left."""
    got, LSE = run(module_of(version), config, problem, schedule=schedule)
    right, right_LSE = problem.exact
    assert error(got, right) < 0.05
    assert np.abs(LSE - right_LSE).max() < (0.05 if config.rounded_sums else 0.01)


def small(config: KernelConfig) -> Problem:
    """Two blocks, and with a flush one behind it.

    Where any length goes, queries and keys that fill no block, with the mask where there is one.
    """
    descale = (0.5, 4.0, 3.0)
    if not config.any_length:
        return Problem(config.B_r, max(2, config.flush_blocks + 1) * config.B_c, descale=descale)
    return Problem(70, 131, causal=bool(config.causal), descale=descale)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_small_problem_is_right(version: str) -> None:
    assert_right(version, own_config(version), small(own_config(version)), schedule=7)


@pytest.mark.long
@pytest.mark.parametrize(("version", "config"), CASES)
def test_every_shape_is_right(version: str, config: KernelConfig) -> None:
    """One block and several, and single rows."""
    problems = [small(config), Problem(config.B_r, config.B_c), Problem(2 * config.B_r, 3 * config.B_c)]
    problems += [Problem(1, 1), Problem(193, 97)] if config.any_length else []
    for problem in problems:
        assert_right(version, config, problem)


def test_rows_that_see_no_key_are_zero() -> None:
    """With 100 queries on 60 keys the first 40."""
    config = own_config("f06")
    got, LSE = run(module_of("f06"), config, Problem(100, 60, causal=True))
    assert (got[:40] == 0).all() and np.isneginf(LSE[:40]).all()
    assert (got[40:] != 0).any(axis=1).all() and np.isfinite(LSE[40:]).all()


@pytest.mark.long
@pytest.mark.parametrize(("version", "config"), CASES)
@pytest.mark.parametrize("seed", range(4))
def test_random_problems_are_right_in_any_order_of_warps(version: str, config: KernelConfig, seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries, keys = config.B_r * int(rng.integers(1, 3)), config.B_c * int(rng.integers(1, 6))
    if config.any_length:
        queries, keys = int(rng.integers(1, queries + 1)), int(rng.integers(1, keys + 1))
    causal = bool(config.causal and rng.integers(2))
    problem = Problem(queries, max(keys, queries) if causal else keys, float(rng.choice([0.5, 1, 2])), causal=causal)
    for schedule in (0, seed + 1):
        assert_right(version, config, problem, schedule)


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_bits_in_every_order(version: str) -> None:
    config = own_config(version)
    problem = Problem(config.B_r, 3 * config.B_c, seed=3)
    first, second = (run(module_of(version), config, problem, schedule=seed)[0] for seed in (0, 5))
    assert (first == second).all()


# ---- the cut sums (docs/emulator.md) ---------------------------------------------------------------------------------


def gain_of(version: str, keys: int) -> float:
    config = own_config(version)
    problem = (
        Problem(16, -(-keys // config.B_c) * config.B_c, V_mean=1)
        if config.any_length
        else Problem(config.B_r, keys, V_mean=1)
    )
    return gain(run(module_of(version), config, problem)[0], problem.exact[0])


def test_a_mean_of_V_shrinks_with_the_keys() -> None:
    """FlashAttention-3 and cuDNN lost 5.0 % at 4096 keys and 18.4 % at 16384 on an H200."""
    few, many = (gain_of("f01", keys) for keys in (128, 512))
    assert many < 2 * few < 0


@pytest.mark.long
@pytest.mark.parametrize("version", FAST)
def test_without_a_flush_the_loss_grows(version: str) -> None:
    few, many = (gain_of(version, keys) for keys in (512, 2048))
    assert many < 2 * few < 0 and many < -0.015


@pytest.mark.long
def test_the_loss_is_that_of_an_H200() -> None:
    """There FlashAttention-3 and prototypes lost 5.0 % at 4096 keys with V of N(1, 1): the same sums."""
    assert abs(gain_of("f02", 4096) + 0.05) < 0.001


@pytest.mark.long
@pytest.mark.parametrize("version", ACCURATE)
def test_with_a_flush_it_stays(version: str) -> None:
    few, many = (gain_of(version, keys) for keys in (512, 2048))
    assert abs(few) < 0.005 and abs(many) < 0.005


@pytest.mark.long
def test_the_page_has_the_errors_of_512_keys() -> None:
    """The first column of docs/fp8-accuracy.md; the others take a minute, by the command that stands there."""
    rows = re.findall(r"^\| (.*?) \| (f\d+) \| (.*?) \|", (ROOT / "docs/fp8-accuracy.md").read_text(), re.MULTILINE)
    assert {name for name, _, _ in rows} == set(KINDS)
    for name, version, figure in rows:
        ptx_of(version)
        assert measured(version, 512, **KINDS[name]) == figure


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_the_page_has_the_errors_that_a_gpu_gave(gpu: str) -> None:
    page = (ROOT / "docs/fp8-accuracy.md").read_text().partition("## Beside FlashAttention-3 and cuDNN")[2]
    shown = {(row[0], row[1]): row[2:] for line in page.splitlines() if len(row := line.strip("| ").split(" | ")) == 5}
    errors = json.loads((ROOT / f"logs/fp8/errors.{gpu}.json").read_text())["errors"]
    for inputs, of_kernels in errors.items():
        for kernel, by_keys in of_kernels.items():
            assert shown[inputs, kernel] == [f"{error:.2e} ({more:+.2%})" for error, more in by_keys.values()]
    assert len(shown) == 1 + sum(map(len, errors.values()))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_flag_that_a_version_does_not_act_on_is_refused(version: str) -> None:
    config = own_config(version)
    for name in ("V_transposed", "K_permuted", "rounded_sums", "any_length", "causal", "persistent"):
        try:
            flipped = config.replace(**{name: not getattr(config, name)})
        except ConfigError:
            continue  # a rule of common/fp8_fields.h
        switched = "off" if getattr(config, name) is False else "on"
        assert any(f"must be {switched}" in sentence for sentence in refusals(VERSIONS[version], flipped)), name
    other_flush = config.replace(flush_blocks=0 if config.flush_blocks else 4)
    assert any("flush_N must be" in sentence for sentence in refusals(VERSIONS[version], other_flush))


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
    """Classes of what the emulator reports: of four blocks, of scores so large that a P is lost, and of one or two."""
    found: set[str] = set()
    queries = config.B_r * (5 if config.persistent else 1)  # one CTA: Q has two places
    for schedule, (blocks, size) in product(schedules, ((4, 1), (4, 8), (1, 1), (2, 8))):
        problem = Problem(queries, blocks * config.B_c, size=size)
        try:
            run(emu.Module(text), config, problem, schedule=schedule, first_finding_only=True)
        except emu.FindingsError as raised:
            found |= {finding.kind for finding in raised.findings}
        if found:
            break
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_a_missing_barrier_is_reported(version: str) -> None:
    config = own_config(version)
    (text, *_) = broken(ptx_of(version).read_text(), config.symbol())
    assert findings_of(text, config, (1,))


# ---- the executable --------------------------------------------------------------------------------------------------


def executable(version: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = ROOT / f"bin/{version}"
    if not path.exists():
        pytest.skip(f"bin/{version} is not built: make {version}")
    command = [str(path), "--backend", "emu", "--heads", "1", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


# Warp instructions, wgmma and wavefronts of 128 queries on 256 keys, as for the versions of the ladder: a change is
# either meant or a mistake.
GOLDEN = {
    "f01": (11608, 128, 256, 256),
    "f02": (13935, 128, 1024, 768),
    "f03": (10789, 128, 256, 256),
    "f04": (24718, 252, 1344, 960),
    "f05": (18031, 128, 1024, 768),
    "f06": (25913, 252, 1344, 960),
    "f07": (23092, 252, 1361, 977),
    "f08": (24381, 252, 1373, 989),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_record_says_what_was_computed(version: str) -> None:
    rows = str(own_config(version).B_r)
    done = executable(version, "--seq-q", rows, "--seq-k", "256", "--lse", "--descale-v", "2", "--json", "-")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert not fault_of(record)
    problem, total = record["problem"], record["counters"]["total"]
    assert (problem["dtype"], problem["output_dtype"], problem["descale_v"]) == ("e4m3", "fp16", 2)
    assert record["check"]["pass"] and record["counters"]["findings"] == 0
    assert (total["executed"], total["wgmma"], total["wavefronts"], total["ideal"]) == GOLDEN[version]


@pytest.mark.parametrize("version", ["f07", "f08"])
def test_a_P_that_is_lost_is_computed_again(version: str) -> None:
    """Scores that rise behind the first maximum: by some bits, which is mended in place, and beyond what fp32 has."""
    copied = []
    for scale in ("0.01", "0.0884"):
        done = executable(
            version, "--seq-q", "192", "--seq-k", "480", "--dist", "large", "--scale", scale, "--json", "-"
        )
        assert done.returncode == 0, done.stderr
        copied.append(json.loads(done.stdout)["counters"]["total"]["copied"])
    Q, blocks = 192 * 128, 2 * 480 * 128  # bytes of Q, and of K and V; O has those of Q twice
    again = blocks if version == "f07" else blocks + Q
    assert copied == [3 * Q + blocks, 3 * Q + blocks + again]


@pytest.mark.parametrize("version", VERSIONS)
def test_one_run_stands_for_all_orders(version: str) -> None:
    rows = str(own_config(version).B_r)
    done = executable(version, "--seq-q", rows, "--seq-k", "384", "--dtype", "bf16")
    assert done.returncode == 0 and "orders: no race, no deadlock in any order" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--descale-q", "0"), "--descale-q '0': must be from 1e-30 to 1e+30"),
        (("--descale-k", "-1"), "--descale-k '-1': must be from"),
        (("--descale-v", "nan"), "--descale-v 'nan': must be a number"),
        (("--descale-v", "inf"), "--descale-v 'inf': must be a number"),
        (("--d-head", "64"), "--d-head 64: f01 supports 128"),
        (("--causal",), "--causal: take a config with the word causal"),
        (("--seq", "100"), "--seq 100: must be a multiple of 128"),
        (("--seq-q", "128", "--seq-k", "100"), "--seq-k 100: must be a multiple of 128"),
        (("--window", "3,0"), "--window: fp8 kernels do not take it"),
        (("--layout", "bhsd"), "--layout: fp8 kernels take contiguous tensors"),
        (("--kv-heads", "1", "--heads", "2"), "--kv-heads: take a config with the word grouped"),
    ],
)
def test_what_a_version_cannot_is_refused(arguments: tuple[str, ...], sentence: str) -> None:
    done = executable("f01", *arguments)
    assert done.returncode == 2 and sentence in done.stderr


def test_a_gpu_without_fp8_is_refused(driver: str) -> None:
    path = ROOT / "bin/f01"
    if not path.exists():
        pytest.skip("bin/f01 is not built: make f01")
    done = run_on_made_up("--backend", "gpu", program=path, **made_up(driver, "cc=80"))
    assert done.returncode == 77 and "f01 is for sm_90a alone: it needs a GPU of compute capability 9.0" in done.stderr
