"""The inputs that the peers get are the executables' own: inputs.c and inputs.py agree to the last bit."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy
import pytest

from analysis.measure import inputs

ROOT = Path(__file__).resolve().parents[3]
DISTRIBUTIONS = ("normal", "uniform", "large", "ramp")  # in the order of enum distribution


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc")
    assert compiler, "the tests need a C compiler"
    library = tmp_path_factory.mktemp("inputs") / "inputs.so"
    about = library.with_name("about.c")  # of a version: what refuses a problem names it
    about.write_text(
        '#include "harness/about.h"\nconst char *about_version(void) { return "v00"; }\n'
        "const char *about_exact(void) { return 0; }\n"
    )
    sources = [
        str(ROOT / f"{name}.c")
        for name in (
            *("harness/inputs", "harness/problem", "harness/parallel", "harness/philox"),
            *("runtime/abilities", "runtime/config", "runtime/json", "runtime/launch", "runtime/status"),
        )
    ]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-pthread", f"-I{ROOT}"]
    subprocess.run([compiler, *flags, "-o", str(library), str(about), *sources, "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.input_block.restype = None
    loaded.input_block.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p]
    return loaded


@pytest.mark.parametrize("dist", DISTRIBUTIONS)
@pytest.mark.parametrize(("seed", "first"), [(1, 0), (2**63 + 12345, 2**34)])
def test_equal_to_the_last_bit(harness: ctypes.CDLL, dist: str, seed: int, first: int) -> None:
    count = 2048
    for tensor in range(3):
        ours = inputs.elements(numpy, dist, seed, tensor, first, count).astype(numpy.float32)
        theirs = numpy.empty(count, dtype=numpy.float32)
        for at in range(0, count, 4):
            block = theirs[at : at + 4].ctypes.data
            harness.input_block(DISTRIBUTIONS.index(dist), seed, tensor, (first + at) // 4, block)
        numpy.testing.assert_array_equal(ours, theirs)


def test_normal_values_are_normal() -> None:
    values = inputs.elements(numpy, "normal", 3, 0, 0, 1 << 16)
    assert abs(values.mean()) < 0.02
    assert abs(values.std() - 1) < 0.02
    large = inputs.elements(numpy, "large", 3, 0, 0, 1 << 16)
    numpy.testing.assert_allclose(large, 8 * values, rtol=1e-15)


def test_tensors_and_seeds_differ() -> None:
    q, k, other = (inputs.elements(numpy, "normal", seed, which, 0, 64) for seed, which in ((1, 0), (1, 1), (2, 0)))
    assert not numpy.any(q == k)
    assert not numpy.any(q == other)
