"""attention() on the emulator, through the library: results against float64, and what the library refuses."""

import os
import re
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from fake_frameworks import ROOT, Producer
from hypothesis import given, settings
from hypothesis import strategies as st

import flashladder
from analysis.emulate.online_softmax import attention, inputs, output_bound
from analysis.measure.records import Problem
from flashladder import _dlpack

pytestmark = pytest.mark.skipif(flashladder.backend().name != "emulator", reason="a GPU computes host memory here")

Arrays = tuple[Any, Any, Any]


def problem(**fields: Any) -> Problem:
    """One of 19 queries and 37 keys, 4 heads on 2, d_head 64."""
    sizes = {"seq": 19, "seq_k": 37, "heads": 4, "kv_heads": 2, "batch": 2, "d_head": 64, "causal": False} | fields
    return Problem("attention", sizes.pop("dtype", "fp16"), dist="normal", **sizes)


def arrays(problem: Problem, seed: int = 1) -> Arrays:
    """q, k and v as [batch, seq, heads, d_head], contiguous."""
    q, k, v = (np.ascontiguousarray(a.transpose(0, 2, 1, 3).astype(np.float16)) for a in inputs(problem, seed))
    return q, k, v


def right(o: Any, problem: Problem, seed: int = 1, scale: float = 0.0, lse: Any = None) -> None:
    """Fails unless every element of O is within the bound of the executables."""
    wanted, weight, wanted_lse = attention(problem, seed, scale)
    got = o.transpose(0, 2, 1, 3).astype(np.float64)
    assert got.shape == wanted.shape
    np.testing.assert_array_less(abs(got - wanted), output_bound(wanted, weight, problem.dtype, scale))
    if lse is not None:
        np.testing.assert_allclose(lse, wanted_lse, rtol=1e-6, atol=1e-5 * max(1, scale * problem.d_head))


@pytest.mark.parametrize("causal", [False, True])
def test_against_float64(causal: bool) -> None:
    case = problem(causal=causal)
    o, lse = flashladder.attention(*arrays(case), causal=causal, return_lse=True)
    assert (o.dtype, lse.dtype, o.flags.c_contiguous) == (np.float16, np.float32, True)
    right(o, case, lse=lse)


def test_the_mask_is_aligned_to_the_bottom_right() -> None:
    """With 6 queries and 4 keys the first 2 queries attend to none: O is 0 and log-sum-exp -infinity."""
    case = problem(seq=6, seq_k=4, causal=True)
    o, lse = flashladder.attention(*arrays(case), causal=True, return_lse=True)
    assert not o[:, :2].any() and (lse[:, :, :2] == -np.inf).all()
    right(o, case, lse=lse)


OF_16_BITS = [version for version in flashladder.versions() if "fp8" not in version.name]
MASKED = [version.name for version in OF_16_BITS if version.causal]


@pytest.mark.parametrize("version", MASKED)
@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_how_far_a_number_that_is_none_reaches(version: str, odd: float) -> None:
    """The promise of flashladder.h: 440 queries on 450 keys, one of two KV heads has a row with such a number."""
    case = problem(seq=440, seq_k=450, heads=2, batch=1, causal=True)
    q, k, v = arrays(case)
    config = flashladder.supports(q, k, v, causal=True, version=version).config
    B_r, B_c = (int(number) for number in config.split(",")[2:4])
    clean, clean_lse = flashladder.attention(q, k, v, causal=True, version=version, return_lse=True)
    key, first = 430, 430 - (450 - 440)
    assert 0 < first - (B_r + B_c) < first
    decodes = version.startswith("attention/decode")  # a block of rows goes through all keys, and rescales together
    for name, array, before in (("k", k, B_r if decodes else 0), ("v", v, first if decodes else B_r + B_c)):
        array = array.copy()
        array[:, key, 1, 7] = odd
        o, lse = flashladder.attention(
            *({"q": q, "k": k, "v": v} | {name: array}).values(), causal=True, version=version, return_lse=True
        )
        np.testing.assert_array_equal(o[:, :, 0], clean[:, :, 0])  # the other head
        np.testing.assert_array_equal(o[:, : first - before], clean[:, : first - before])
        if name == "k":
            np.testing.assert_allclose(o[:, :first], clean[:, :first], rtol=0, atol=2**-10)
        np.testing.assert_array_equal(lse[:, :, :first], clean_lse[:, :, :first])
        if name == "v" or np.isnan(odd):  # an infinite score may be the least one
            assert not np.isfinite(o[:, first:, 1, 7]).any()
        if name == "v":
            np.testing.assert_array_equal(lse, clean_lse)
            o[..., 1, 7] = clean[..., 1, 7]  # one column of V is one of O
            np.testing.assert_array_equal(o, clean)


@pytest.mark.parametrize("version", MASKED)
def test_a_query_that_is_no_number_reaches_its_own_row_alone(version: str) -> None:
    case = problem(seq=40, seq_k=50, causal=True)
    q, k, v = arrays(case)
    clean = flashladder.attention(q, k, v, causal=True, version=version)
    q[:, 20] = np.nan
    o = flashladder.attention(q, k, v, causal=True, version=version)
    assert np.isnan(o[:, 20]).all()
    o[:, 20] = clean[:, 20]
    right(o, case)


LAYOUTS = ("contiguous", "heads first", "packed", "padded", "backwards")


def laid_out(array: Any, layout: str) -> Any:
    """Return the same numbers in another memory layout, with NaN between them."""
    batch, seq, heads, d_head = array.shape
    if layout == "contiguous":
        return array
    if layout == "heads first":
        return np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2)
    if layout == "backwards":
        return np.ascontiguousarray(array[:, ::-1])[:, ::-1]
    shape = (batch, seq, 3, heads, d_head) if layout == "packed" else (batch, seq + 3, heads + 1, d_head + 8)
    memory = np.full(shape, np.nan, array.dtype)
    view = memory[:, :, 1] if layout == "packed" else memory[:, 1 : seq + 1, :heads, :d_head]
    view[...] = array
    return view


@st.composite
def cases(draw: st.DrawFn) -> tuple[Problem, int, float, tuple[str, ...]]:
    """A small problem, its seed, its scale (0: that of d_head) and the layouts of q, k, v and out."""
    kv_heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    case = problem(
        batch=draw(st.integers(1, 2)),
        heads=kv_heads * group,
        kv_heads=kv_heads,
        seq=draw(st.integers(1, 40)),
        seq_k=draw(st.integers(1, 40)),
        d_head=draw(st.sampled_from((64, 128))),
        causal=draw(st.booleans()),
    )
    layouts = tuple(draw(st.sampled_from(LAYOUTS)) for _ in range(4))
    return case, draw(st.integers(0, 2**32)), draw(st.sampled_from((0.0, 0.05, 0.5))), layouts


@settings(max_examples=25)
@given(case=cases())
def test_random_problems(case: tuple[Problem, int, float, tuple[str, ...]]) -> None:
    wanted, seed, scale, layouts = case
    q, k, v = (laid_out(a, layout) for a, layout in zip(arrays(wanted, seed), layouts, strict=False))
    out = laid_out(np.zeros(q.shape, q.dtype), layouts[3])
    between = np.isnan(out.base).sum() if out.base is not None else 0
    o, lse = flashladder.attention(q, k, v, causal=wanted.causal, scale=scale or None, return_lse=True, out=out)
    assert o is out
    right(o, wanted, seed, float(np.float32(scale)), lse)
    assert between == (np.isnan(out.base).sum() if out.base is not None else 0)  # nothing between the rows


def test_bf16_through_dlpack() -> None:
    """NumPy has no bfloat16: the bits travel as those of another package."""
    case = problem(dtype="bf16")
    bits = [
        (a.transpose(0, 2, 1, 3).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for a in inputs(case, 1)
    ]
    bits = [np.ascontiguousarray(a) for a in [*bits, np.zeros_like(bits[0])]]
    q, k, v, out = (Producer(_dlpack, a.shape, a.ctypes.data, device=(1, 0), dtype=(4, 16, 1)) for a in bits)
    assert flashladder.attention(q, k, v, out=out) is out
    right((bits[3].astype(np.uint32) << 16).view(np.float32), case)


def test_a_read_only_input_is_read() -> None:
    case = problem()
    q, k, v = arrays(case)
    for array in (q, k, v):
        array.setflags(write=False)
    right(flashladder.attention(q, k, v), case)


def test_every_version_that_is_embedded() -> None:
    """Each says what it is for: all compute a causal problem of its own d_head, or say what they lack."""
    for version in OF_16_BITS:
        case = problem(
            d_head=version.d_heads[0], causal=version.causal, seq=5, heads=2, kv_heads=1 + (not version.grouped)
        )
        assert flashladder.supports(*arrays(case), causal=version.causal, version=version.name).version == version.name
        right(flashladder.attention(*arrays(case), causal=version.causal, version=version.name), case)


TEST_OF_E4M3 = ROOT / "python/tests/test_e4m3.py"
PROGRAM = """import ml_dtypes, numpy as np, flashladder as fl
q = np.ones((1, 3, 1, 256), np.float16)
print(fl.backend().name, fl.attention(q, q, q).min(), fl.supports(q, q, q).config)
try: fl.attention_e4m3(*[q.astype(ml_dtypes.float8_e4m3fn)] * 3)
except Exception as error: print(error)"""


@pytest.mark.parametrize(
    ("arch", "words", "said"),
    [
        ("sm_86", ["-c", PROGRAM], r"gpu 1.0 \(FP16, 256, 64, 16, 4\).* needs at least 8.9, for mma.sync of e4m3"),
        *((arch, ["-m", "pytest", "-n0", TEST_OF_E4M3], " passed in ") for arch in ("sm_89", "sm_120a")),
    ],
)
@pytest.mark.skipif(not (ROOT / "bin/emulated-gpu").exists(), reason="bin/emulated-gpu is not built: make libcuda")
def test_an_emulated_gpu_runs_the_ptx_of_the_library(arch: str, words: list[Any], said: str) -> None:
    """It runs no machine code. The library chooses a configuration for 99 KB of shared memory."""
    command = [ROOT / "bin/emulated-gpu", "--arch", arch, sys.executable, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": f"{ROOT}/python"})
    assert not done.returncode and re.search(said, done.stdout, re.DOTALL), done.stdout + done.stderr


def test_eight_threads() -> None:
    """Each with problems of its own, all at once."""
    failures: list[str] = []

    def work(number: int) -> None:
        try:
            for round_ in range(3):
                case = problem(seq=8 + number, seq_k=9 + number + round_, batch=1, causal=number % 2 == 0)
                o, lse = flashladder.attention(*arrays(case, number), causal=case.causal, return_lse=True)
                right(o, case, number, lse=lse)
                with pytest.raises(NotImplementedError, match=str(584 + 8 * number)):  # errors are each thread's own
                    flashladder.attention(*arrays(problem(d_head=584 + 8 * number, seq=1, seq_k=1)))
        except BaseException as error:
            failures.append(f"thread {number}: {error!r}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, 19, 37), (2, 0, 37), (2, 3, 0)])
def test_without_queries_or_keys_there_is_nothing_to_add(batch: int, queries: int, keys: int) -> None:
    q, k = np.ones((batch, queries, 4, 64), np.float16), np.zeros((batch, keys, 2, 64), np.float16)
    o, lse = flashladder.attention(q, k, k, return_lse=True, out=np.ones_like(q))
    assert o.shape == q.shape and lse.shape == (batch, 4, queries) and not o.any() and (lse == -np.inf).all()


def test_what_the_library_refuses() -> None:
    q, k, v = arrays(problem())
    three = np.zeros((2, 37, 3, 64), np.float16)
    with pytest.raises(ValueError, match="heads"):
        flashladder.attention(q, three, three)
    with pytest.raises(ValueError, match="v99"):
        flashladder.attention(q, k, v, version="v99")
    with pytest.raises(ValueError, match="version 'v51': was removed from the ladder; use attention/mma_sync"):
        flashladder.attention(q, k, v, version="v51")
    odd = np.zeros((2, 5, 4, 70), np.float16)
    with pytest.raises(NotImplementedError, match="70"):
        flashladder.attention(odd, odd, odd)
    refused = flashladder.supports(odd, odd, odd)
    assert not refused and "70" in refused.reason
    with pytest.raises(ValueError, match="out shares memory with q"):
        flashladder.attention(q, k, v, out=q)


def test_the_documents_run() -> None:
    """Run the blocks of docs/library.md for NumPy, one after the other."""
    section = (ROOT / "docs/library.md").read_text().partition("## From Python")[2].partition("\n## ")[0]
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        exec(block, names)
    assert names["o"].shape == (1, 100, 8, 128) and names["lse"].shape == (1, 8, 100)


def test_the_back_end_says_why_it_emulates() -> None:
    found = flashladder.backend()
    assert found.devices == () and "libcuda" in found.why_no_gpu and found.release.startswith(flashladder.__version__)


def test_an_import_brings_no_other_package_along() -> None:
    """NumPy too is only used where an array of it comes in; 50 ms is the promise, of which most is Python's own."""
    program = "import sys, flashladder; print(*sorted({'numpy', 'torch', 'jax', 'cupy'} & set(sys.modules)), end='')"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT / "python", capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout == ""
