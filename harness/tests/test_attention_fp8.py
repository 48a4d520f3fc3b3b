"""attention/fp8 on the emulator, which has the sums of an H200 bit for bit: every configuration, and what each is for.

The executable compares with the harness's float64 reference and fails on a finding; the sums are compared with NumPy's.
"""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import emu
import pytest

from analysis.ladder.config import ConfigError, KernelConfig
from analysis.ladder.headers import load, refusals
from harness.tests.fp8 import Problem, error, gain, run

ROOT = Path(__file__).resolve().parents[2]
KERNEL = load(ROOT, "attention/fp8")
CONFIGS = [each for each in (KERNEL.header.config, *KERNEL.header.beside) if each.e4m3_inputs]
ACCURATE = {each.d_head: each for each in CONFIGS if each.flush_blocks and not each.serves}
FAST = {each.d_head: each for each in CONFIGS if not each.flush_blocks and not each.serves}
NAMES = [
    f"{'accurate' if each.flush_blocks else 'fast'}-{each.d_head}{'-serve' if each.serves else ''}" for each in CONFIGS
]
SOME = [  # of both kinds of sums, with each kind of loop
    pytest.param(each, id=name, marks=[] if each.d_head == 128 else [pytest.mark.long])
    for each, name in zip(CONFIGS, NAMES, strict=True)
]


def executable(config: KernelConfig | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = ROOT / "bin/attention.fp8"
    if not path.exists():
        pytest.skip("bin/attention.fp8 is not built: make attention.fp8")
    own = () if config is None else ("--config", config.short_form())
    command = [str(path), "--backend", "emu", *own, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def record_of(config: KernelConfig, *arguments: str) -> dict[str, Any]:
    done = executable(config, "--check", "all", *arguments, "--json", "-")
    assert done.returncode == 0, done.stdout + done.stderr
    record: dict[str, Any] = json.loads(done.stdout)
    assert record["check"]["pass"] and record["counters"]["findings"] == 0
    return record


@cache
def module() -> emu.Module:
    path = ROOT / "build/attention.fp8/attention.fp8.ptx"
    if not path.exists():
        pytest.skip("attention.fp8.ptx is not built: make attention.fp8")
    return emu.Module(path)


@pytest.mark.parametrize("config", SOME)
def test_a_small_problem_is_right(config: KernelConfig) -> None:
    """Shared heads, the mask, lengths that fill no block, and warpgroups that skip a block."""
    sizes = ("--heads", "2", "--kv-heads", "1", "--seq-q", "200", "--seq-k", "330", "--causal", "--lse")
    assert record_of(config, *sizes, "--descale-q", "0.5", "--descale-v", "3")["problem"]["dtype"] == "e4m3"


@pytest.mark.long
@pytest.mark.parametrize("schedule", ["1", "3"])
@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
def test_lengths_in_any_order_of_warps(config: KernelConfig, schedule: str) -> None:
    for queries, keys in ((1, 1), (193, 97), (400, 400), (64, 700)):
        sizes = ("--heads", "1", "--seq-q", str(queries), "--seq-k", str(keys), "--schedule", schedule, "--lse")
        record_of(config, *sizes)
        if queries <= keys:
            record_of(config, *sizes, "--causal", "--dtype", "fp16")


@pytest.mark.parametrize("config", CONFIGS[:1] + CONFIGS[-1:], ids=NAMES[:1] + NAMES[-1:])
def test_scores_that_overflow_are_computed_again(config: KernelConfig) -> None:
    """Behind the first maximum by more than fp32 has: mma.sync is there for these alone."""
    sizes = ("--heads", "1", "--seq-q", "64", "--seq-k", "480", "--dist", "large")
    few, many = (record_of(config, *sizes, "--scale", scale)["counters"]["total"]["mma"] for scale in ("0.001", "0.5"))
    assert few == 0 < many


def test_a_mean_of_V_is_kept_in_accurate_sums_alone() -> None:
    for keys in (512, 1024):
        problem = Problem(64, keys, V_mean=1)
        fast, accurate = (run(module(), config, problem)[0] for config in (FAST[128], ACCURATE[128]))
        assert abs(gain(accurate, problem.exact[0])) < 0.005
    assert gain(fast, problem.exact[0]) < -0.007


def test_peaked_scores_are_right_in_accurate_sums() -> None:
    """One weight is nearly all of O, and l has it as it was rounded."""
    problem = Problem(64, 480, size=4.0)
    fast, accurate = (
        error(run(module(), config, problem)[0], problem.exact[0]) for config in (FAST[128], ACCURATE[128])
    )
    assert accurate < 0.006 < fast


def test_a_flag_that_it_does_not_act_on_is_refused() -> None:
    for config in CONFIGS:
        for name in ("V_transposed", "K_permuted", "any_length", "causal", "persistent", "tickets", "grouped_heads"):
            try:
                flipped = config.replace(**{name: not getattr(config, name)})
            except ConfigError:
                continue  # a rule of common/fp8_fields.h
            assert any("must be" in sentence for sentence in refusals(KERNEL, flipped)), name


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--descale-q", "0"), "--descale-q '0': must be from 1e-30 to 1e+30"),
        (("--d-head", "96"), "--d-head 96: attention/fp8 supports 128, 64, 256"),
        (("--window", "3,0"), "--window: fp8 kernels do not take it"),
        (("--layout", "bhsd"), "--layout: fp8 kernels take contiguous tensors"),
    ],
)
def test_what_it_cannot_is_refused(arguments: tuple[str, ...], sentence: str) -> None:
    done = executable(None, *arguments)
    assert done.returncode == 2 and sentence in done.stderr, done.stderr
