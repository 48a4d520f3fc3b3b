"""The float64 reference of the harness against NumPy's matrix products, over random cases of general attention."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_gpu import ROOT

from analysis.emulate.online_softmax import attention
from analysis.measure.records import Problem


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """harness/tests/reference_of.c, with the objects that a test program is linked with."""
    target = tmp_path_factory.mktemp("reference") / "reference_of"
    build = ROOT / "build"
    objects = [path for path in (*build.glob("harness/*.o"), *build.glob("runtime/*.o"), *build.glob("emulator/*/*.o"))]
    objects = [path for path in objects if path.stem not in ("main", "ptxrun")]
    objects += [build / "v01/code.o", build / "v01/about.o", build / "device/code.o"]
    if not all(path.exists() for path in objects[-3:]):
        pytest.skip("the objects of v01 are not there: make v01")
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", f"-I{ROOT}"]
    source = ROOT / "harness/tests/reference_of.c"
    subprocess.run(["cc", *flags, "-o", target, source, *objects, "-pthread", "-ldl", "-lm"], check=True, timeout=600)
    return target


@st.composite
def problems(draw: st.DrawFn) -> tuple[Problem, float, int]:
    """A small problem, its scale (0: that of d_head) and its seed."""
    group, KV_heads = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    seq, seq_k = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    problem = Problem(
        "attention",
        draw(st.sampled_from(("fp16", "bf16"))),
        draw(st.integers(1, 2)),
        group * KV_heads,
        seq,
        draw(st.sampled_from((16, 64, 80, 128, 256))),
        "normal",
        causal=draw(st.booleans()),
        kv_heads=KV_heads if group > 1 else 0,
        seq_k=seq_k if seq_k != seq else 0,
    )
    return problem, draw(st.sampled_from((0.0, 0.0, 0.001, 0.25, 4.0))), draw(st.integers(0, 2**62))


def options(problem: Problem, scale: float, seed: int) -> list[str]:
    sizes = {
        "batch": problem.batch,
        "heads": problem.heads,
        "kv-heads": problem.kv_heads or problem.heads,
        "seq-q": problem.seq,
        "seq-k": problem.seq_k or problem.seq,
        "d-head": problem.d_head,
        "dtype": problem.dtype,
        "seed": seed,
    } | ({"scale": scale} if scale else {})
    words = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    return [*words, "--causal"] if problem.causal else words


@settings(max_examples=40)
@given(case=problems())
def test_the_reference_is_that_of_numpy(program: Path, case: tuple[Problem, float, int]) -> None:
    problem, scale, seed = case
    done = subprocess.run([program, *options(*case)], capture_output=True, check=True, timeout=600)
    got = np.frombuffer(done.stdout)
    wanted = attention(problem, seed, float(np.float32(scale)))
    shape = wanted[0].shape
    output, weight, lse = got[: np.prod(shape)], got[np.prod(shape) : -wanted[2].size], got[-wanted[2].size :]
    np.testing.assert_allclose(output.reshape(shape), wanted[0], rtol=0, atol=1e-11)
    np.testing.assert_allclose(weight.reshape(shape), wanted[1], rtol=0, atol=1e-11)
    np.testing.assert_allclose(lse.reshape(shape[:-1]), wanted[2], rtol=1e-12, atol=1e-11)
