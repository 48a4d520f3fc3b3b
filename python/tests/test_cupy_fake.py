"""attention() of CuPy's arrays, faked: addresses, streams, and where results are allocated.

gpu_arrays.py asks the real one, on a GPU.
"""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_frameworks import CupyArray, Recorded, fake_cupy

SHAPE, KV_SHAPE = (2, 5, 4, 64), (2, 7, 2, 64)


@pytest.fixture(scope="module")
def module() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        made = fake_cupy()
        patch.setitem(sys.modules, "cupy", made)
        yield made


@pytest.fixture
def cupy(module: Any) -> Any:
    module.state.gpu, module.state.stream, module.state.entered = 0, None, 0
    return module


def arrays(gpu: int = 0) -> list[Any]:
    return [CupyArray(shape, gpu=gpu) for shape in (SHAPE, KV_SHAPE, KV_SHAPE)]


@pytest.mark.parametrize("gpu", [0, 1])
def test_arrays_run_where_they_lie(package: Recorded, cupy: Any, gpu: int) -> None:
    """In the current stream of their GPU; results are made there, too, and the current GPU is the same afterwards."""
    q, k, v = arrays(gpu)
    o, lse = package.attention(q, k, v, causal=True, return_lse=True)
    problem, given = package.last.problem, package.last.tensors
    assert (problem.memory, problem.device, problem.dtype, package.last.stream) == (0, gpu, 0, 0x6000 + gpu)
    assert [given.q, given.k, given.v, given.o, given.lse] == [one.data.ptr for one in (q, k, v, o, lse)]
    assert (type(o), o.shape, o.dtype, lse.shape, lse.dtype) == (CupyArray, SHAPE, np.float16, (2, 4, 5), np.float32)
    assert o.allocated == lse.allocated == (gpu, None)
    assert cupy.state.gpu == 0 and cupy.state.entered == gpu


def test_a_stream_of_the_caller(package: Recorded, cupy: Any) -> None:
    """Its allocations are not reused before that one is done."""
    o, lse = package.attention(*arrays(1), return_lse=True, stream=0x900)
    assert package.last.stream == 0x900
    assert o.allocated == lse.allocated == (1, (0x900, 1))
    assert (cupy.state.gpu, cupy.state.stream) == (0, None)


def test_out_is_used_and_only_what_is_missing_is_made(package: Recorded, cupy: Any) -> None:
    out = CupyArray(SHAPE)
    assert package.attention(*arrays(), out=out) is out and package.last.tensors.o == out.data.ptr
    again, lse = package.attention(*arrays(), out=out, return_lse=True)
    assert again is out and lse.allocated == (0, None)
    assert package.last.tensors.lse == lse.data.ptr


def test_strides_are_those_of_elements(package: Recorded, cupy: Any) -> None:
    q, k, v = arrays()
    q.strides = (2 * 5000, 2 * 64, 2 * 320, 2)
    package.attention(q, k, v)
    assert package.steps("q") == (5000, 64, 320) and package.steps("k") == (7 * 2 * 64, 2 * 64, 64)
    q.strides = (10000, 128, 641, 2)
    with pytest.raises(
        ValueError, match=r"q has strides of \(10000, 128, 641, 2\) bytes, which are not multiples of the 2"
    ):
        package.attention(q, k, v)


def test_arrays_that_differ_in_their_gpu_alone(package: Recorded, cupy: Any) -> None:
    package.attention(*arrays(0))
    package.attention(*arrays(1))
    assert package.last.problem.device == 1
    with pytest.raises(ValueError, match="k is on cuda:0 and q on cuda:1: pass both on one device"):
        package.attention(arrays(1)[0], *arrays(0)[1:])


def test_out_on_an_input_is_refused(package: Recorded, cupy: Any) -> None:
    q, k, v = arrays()
    out = CupyArray(SHAPE)
    out.data.ptr = q.data.ptr + 64
    with pytest.raises(ValueError, match="out shares memory with q"):
        package.attention(q, k, v, out=out)
