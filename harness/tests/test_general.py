"""General attention on the emulator: random sizes, masks, scales, layouts and KV heads, every row checked.

The executables compare with the float64 reference, which test_reference_numpy.py compares with NumPy.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_gpu import ROOT, run

from analysis.ladder.config import KernelConfig
from analysis.ladder.headers import Version, load_all

GENERAL = [version for version in load_all(ROOT).values() if version.header.config.any_length]
# The last version of each family runs in every check, the others in check-long.
LAST = {version.one_arch: version.version for version in GENERAL}.values()
BY_NAME = pytest.mark.parametrize("version", GENERAL, ids=lambda version: version.version)
IN_CHECK = [
    pytest.param(version, id=version.version, marks=() if version.version in LAST else pytest.mark.long)
    for version in GENERAL
]
SEEDS = st.integers(0, 2**62)


def lengths(block: int) -> st.SearchStrategy[int]:
    """From 1 on; often about a whole block or two."""
    near = st.builds(lambda blocks, off: max(1, blocks * block + off), st.integers(0, 2), st.integers(-2, 2))
    return st.one_of(st.integers(1, 2 * block + 5), near)


@st.composite
def cases(draw: st.DrawFn, version: Version) -> list[str]:
    """Arguments of a small problem that the version takes."""
    header = version.header
    config: KernelConfig = draw(st.sampled_from((header.config, *header.others)))
    KV_heads = draw(st.integers(1, 2))
    heads = KV_heads * (draw(st.sampled_from((1, 2, 3, 8))) if config.grouped_heads else 1)
    sizes = {
        "seq-q": draw(lengths(config.B_r)),
        "seq-k": draw(lengths(config.B_c)),
        "batch": draw(st.integers(1, 2)),
        "heads": heads,
        "kv-heads": KV_heads,
        "d-head": config.d_head,
        "dtype": draw(st.sampled_from(("fp16", "bf16"))),
        "dist": draw(st.sampled_from(("normal", "normal", "uniform", "large"))),
        "layout": draw(st.sampled_from(("bshd", "bhsd", "padded"))),
        "seed": draw(SEEDS),
    }
    flags = ["--lse"] * draw(st.booleans()) + ["--causal"] * (config.causal and draw(st.booleans()))
    if scale := draw(st.sampled_from((0, 0, 0.01, 0.3))):
        sizes["scale"] = scale
    return [*(word for name, value in sizes.items() for word in (f"--{name}", str(value))), *flags]


def assert_right(version: Version, arguments: list[str]) -> None:
    program = ROOT / "bin" / version.version
    if not program.exists():
        pytest.skip(f"bin/{version.version} is not built: make {version.version}")
    fixed = ("--backend", "emu", "--check", "all", "--quiet", "--json", "-")
    done = run(*fixed, *arguments, program=program)
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}{done.stderr}"
    (record,) = (json.loads(line) for line in done.stdout.splitlines())
    assert record["check"]["pass"] and record["counters"]["findings"] == 0
    assert (record["check"]["lse_max_error"] is not None) == ("--lse" in arguments)


@pytest.mark.parametrize("version", IN_CHECK)
def test_random_cases_are_right(version: Version) -> None:
    @settings(max_examples=5)
    @given(arguments=cases(version))
    def each(arguments: list[str]) -> None:
        assert_right(version, arguments)

    each()


@pytest.mark.long
@BY_NAME
def test_many_random_cases_are_right(version: Version) -> None:
    @settings(max_examples=60)
    @given(arguments=cases(version))
    def each(arguments: list[str]) -> None:
        assert_right(version, arguments)

    each()


# Cases that random ones rarely meet: one query, one key, rows without a key, a group of 16 heads.
EDGES = (
    "--seq-q 1 --seq-k 1 --lse",
    "--seq-q 1 --seq-k 300 --causal --lse --layout padded",
    "--seq-q 200 --seq-k 70 --causal --lse",
    "--seq-q 5 --seq-k 1 --causal --lse",
    "--seq 65 --heads 16 --kv-heads 1 --causal --layout bhsd",
)


@pytest.mark.long
@pytest.mark.parametrize("edge", EDGES)
@BY_NAME
def test_edges(version: Version, edge: str) -> None:
    config = version.header.config
    if ("--causal" in edge and not config.causal) or ("--kv-heads" in edge and not config.grouped_heads):
        pytest.skip(f"{version.version} does not take it")
    for each in (config, *version.header.others):
        assert_right(version, ["--heads", "1", *edge.split(), "--d-head", str(each.d_head)])
