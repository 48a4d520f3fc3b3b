"""Arguments that the package passes to the library: addresses, strides, types, streams. The library writes it down."""

import ctypes
import gc
import math
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_frameworks
import numpy as np
import pytest
from fake_frameworks import Producer, Recorded, Stream, Tensor, fake_torch

SHAPE, STRIDES = (2, 5, 4, 64), (5 * 4 * 64, 4 * 64, 64)
KV_SHAPE = (2, 7, 2, 64)
FP16, BF16, DEVICE_MEMORY, HOST_MEMORY = 0, 1, 0, 1


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """While it is there, collections leave out what other tests keep: looking through that takes half a second."""
    gc.freeze()
    yield Recorded(tmp_path_factory.mktemp("fake"))
    gc.unfreeze()


@pytest.fixture(scope="module")
def torch() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        module = fake_torch()
        patch.setitem(sys.modules, "torch", module)
        yield module


def host(shape: tuple[int, ...] = SHAPE) -> Any:
    return np.zeros(shape, np.float16)


def test_numpy_arrays_are_host_memory(package: Recorded) -> None:
    q, k, v = host(), host(KV_SHAPE), host(KV_SHAPE)
    o, lse = package.attention(q, k, v, causal=True, scale=0.25, return_lse=True, version="v91")
    problem, tensors = package.last.problem, package.last.tensors
    assert (problem.memory, problem.device, problem.dtype) == (HOST_MEMORY, -1, FP16)
    sizes = (problem.batch, problem.heads, problem.kv_heads, problem.seq_q, problem.seq_k, problem.d_head)
    assert sizes == (2, 4, 2, 5, 7, 64)
    assert (problem.causal, problem.scale, package.last.version) == (1, 0.25, b"v91")
    assert [tensors.q, tensors.k, tensors.v, tensors.o, tensors.lse] == [a.ctypes.data for a in (q, k, v, o, lse)]
    assert package.last.stream is None and tensors.workspace is None
    assert (o.shape, o.dtype, lse.shape, lse.dtype) == (SHAPE, np.float16, (2, 4, 5), np.float32)


def test_strides_of_views(package: Recorded) -> None:
    """Arrays of [batch, heads, seq, d_head], a slice, packed q, k and v, and an array that is read backwards."""
    heads_first = host((2, 4, 5, 64)).swapaxes(1, 2)
    packed = host((2, 5, 3, 4, 64))
    package.attention(heads_first, packed[:, :, 1], host((2, 9, 4, 64))[:, 8:3:-1])
    assert package.steps("q") == (4 * 5 * 64, 64, 5 * 64)
    assert package.steps("k") == (5 * 3 * 4 * 64, 3 * 4 * 64, 64)
    assert package.steps("v") == (9 * 4 * 64, -4 * 64, 64)
    assert package.steps("o") == STRIDES


def test_out_is_used_and_returned(package: Recorded) -> None:
    out = host((2, 4, 5, 64)).swapaxes(1, 2)
    assert package.attention(host(), host(), host(), out=out) is out
    assert package.last.tensors.o == out.ctypes.data and package.steps("o") == (4 * 5 * 64, 64, 5 * 64)
    assert package.attention(host(), host(), host(), out=out, return_lse=True)[0] is out


def test_a_stride_that_is_not_read_is_never_zero(package: Recorded) -> None:
    """Three zeros mean a contiguous tensor to the library."""
    one = np.broadcast_to(np.zeros(64, np.float16), (1, 5, 1, 64))
    package.attention(host((1, 5, 1, 64)), one, one)
    assert package.steps("k") == (64, 0, 64)
    everywhere = np.broadcast_to(np.zeros(64, np.float16), (2, 5, 4, 64))
    with pytest.raises(ValueError, match="k has the strides 0, 0 and 0 along batch, seq and head"):
        package.attention(host(), everywhere, everywhere)


def test_a_call_like_the_last_one_is_not_planned_again(package: Recorded) -> None:
    package.call._plans.clear()
    arrays = [host() for _ in range(3)]
    for causal in (True, True, False, True):
        package.attention(*arrays, causal=causal)
        assert package.last.problem.causal == causal
    assert len(package.call._plans) == 2


def test_plans_do_not_pile_up(package: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package.call, "MOST_PLANS", 3)
    for seq in range(1, 9):
        package.attention(host(), host((2, seq, 4, 64)), host((2, seq, 4, 64)))
        assert package.last.problem.seq_k == seq and len(package.call._plans) <= 3


@pytest.mark.parametrize(
    ("status", "error"), [(1, RuntimeError), (2, ValueError), (3, NotImplementedError), (4, RuntimeError)]
)
def test_what_the_library_says_is_raised(package: Recorded, status: int, error: type[Exception]) -> None:
    with package.failing(status), pytest.raises(error, match="the fake library was told to fail") as raised:
        package.attention(host(), host(), host())
    assert raised.type is error or (status == 4 and issubclass(raised.type, error))


def test_a_problem_of_plain_numbers(package: Recorded) -> None:
    """The function that every front end calls in the end."""
    steps = ((1000, 100, 10), (2000, 200, 20), (3000, 300, 30), (4000, 400, 40))
    wanted = package.launch.problem("bf16", 3, (2, 8, 4, 6, 7, 128), steps, True, None, "best", "(BF16, 128)")
    package.launch.forward(ctypes.addressof(wanted), (16, 32, 48, 64, 80), package.launch.NO_ARRAYS, 0x77)
    problem, tensors = package.last.problem, package.last.tensors
    assert (problem.dtype, problem.memory, problem.device, problem.d_head) == (BF16, DEVICE_MEMORY, 3, 128)
    assert (problem.batch, problem.heads, problem.kv_heads, problem.seq_q, problem.seq_k) == (2, 8, 4, 6, 7)
    assert tuple(package.steps(name) for name in "qkvo") == steps
    assert (tensors.q, tensors.k, tensors.v, tensors.o, tensors.lse) == (16, 32, 48, 64, 80)
    assert package.last.stream == 0x77 and problem.config == b"(BF16, 128)"


def test_long_emulation_is_announced_once(package: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on a GPU, not for what takes a second, not twice."""

    def call(seq: int) -> list[str]:
        made = [Producer(package.dlpack, (1, seq, 32, 128), device=(1, 0), offset=i << 32) for i in range(4)]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            package.attention(*made[:3], out=made[3])
        assert all(one.filename == fake_frameworks.__file__ for one in caught)  # where attention() is called
        return [str(one.message) for one in caught]

    monkeypatch.setattr(package.call.os, "cpu_count", lambda: 2)
    assert call(8192) == []
    package.call._plans.clear()
    monkeypatch.setattr(package.call, "_emulates", lambda: True)
    assert call(512) == []
    (said,) = call(8192)  # 4 · 32 · 8192² · 128 operations, two cores
    assert "no GPU: the emulator computes this, which takes about 5 minutes" in said
    assert call(8192) == []
    package.call._plans.clear()
    monkeypatch.setattr(package.call, "_warned", False)
    monkeypatch.setattr(package.call.os, "cpu_count", lambda: None)
    (said,) = call(8192)  # as on one core
    assert "takes about 9 minutes" in said
    package.call._plans.clear()


def swapped(array: Any) -> Any:
    return array.astype(array.dtype.newbyteorder())


def read_only(array: Any) -> Any:
    array.setflags(write=False)
    return array


def strided(*strides: int) -> Any:
    """An array of SHAPE with these strides, in elements, in a buffer of its own."""
    return np.lib.stride_tricks.as_strided(host((8, 5, 4, 64)), SHAPE, [2 * step for step in (*strides, 1)])


IN_PLACE = host((4, 5, 4, 64))
PACKED = host((2, 5, 4, 4, 64))
FIELD = np.zeros(SHAPE, [("number", np.float16), ("odd", np.int8)])["number"]
BAD: list[tuple[str, tuple[Any, Any, Any], dict[str, Any], str]] = [
    ("bytes", (host(), host(), swapped(host())), {}, "v is float16 with its bytes swapped"),
    ("read-only", (host(), host(), host()), {"out": read_only(host())}, "out is read-only"),
    ("tiny scale", (host(), host(), host()), {"scale": 1e-60}, "scale is 1e-60: a finite number that float32 can hold"),
    ("-inf", (host(), host(), host()), {"scale": -math.inf}, "scale is -inf: a finite number"),
    ("soft cap", (host(), host(), host()), {"softcap": math.inf}, "softcap is inf: it must be positive and finite"),
    ("long", (host(), host(), host()), {"seqlens_k": 10**12}, r"seqlens_k is 1000000000000: it must be from 0"),
    ("heads first", (host((2, 3, 4, 64)), *[host((2, 2, 5, 64))] * 2), {},
     r"heads of k are 5 and of q 4: k must divide q; the axes are \[batch, seq, heads, d_head\]"),
    ("huge scale", (host(), host(), host()), {"scale": 10**400}, "scale is inf: a finite number that float32 can hold"),
    ("in place", (IN_PLACE[:2], host(), host()), {"out": IN_PLACE[:2]}, "out shares memory with q: it must not"),
    ("k in place", (host(), IN_PLACE[:2], host()), {"out": IN_PLACE[:2]}, "out shares memory with k"),
    ("v after it", (host(), host(), IN_PLACE[:2]), {"out": IN_PLACE[1:3]}, "out shares memory with v"),
    ("q before", (IN_PLACE[1:3], host(), host()), {"out": IN_PLACE[:2]}, "out shares memory with q"),
    ("part of a row", (PACKED[:, :, 1], host(), host()),
     {"out": PACKED.reshape(-1)[32:][: 2 * 5 * 4 * 64].reshape(SHAPE)}, "out shares memory with q"),
    ("one row", (host(), host(), host()), {"out": strided(5 * 4 * 64, 0, 64)}, r"strides \(1280, 0, 64, 1\), so"),
    ("rows meet", (host(), host(), host()), {"out": strided(5 * 4 * 64, 4 * 64, 56)}, "so that rows of it overlap"),
    ("heads in turn", (host(), host(), host()), {"out": strided(5 * 4 * 64, 64, 64)}, "so that rows of it overlap"),
    ("field", (host(), FIELD, host()), {}, r"k has strides of \(3840, 768, 192, 3\) bytes, which are not multiples of"),
    ("stream", (host(), host(), host()), {"stream": 1}, "stream is 1, but the arrays are in host memory"),
    ("no address", (host(), host(), host()), {"stream": -1}, "stream is -1: the address of a CUstream is needed"),
    ("long address", (host(), host(), host()), {"stream": 2**64}, "stream is 18446744073709551616: the address"),
    ("cut version", (host(), host(), host()), {"version": "v91\0x"}, r"version is 'v91\\x00x': \"best\" or a name"),
    ("no text", (host(), host(), host()), {"version": "\ud800"}, r"version is '\\ud800': \"best\""),
]  # fmt: skip


@pytest.mark.parametrize(("arrays", "options", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_wrong_argument_is_named(package: Recorded, arrays: Any, options: Any, message: str) -> None:
    calls = package.last.calls
    with pytest.raises(ValueError, match=message):
        package.attention(*arrays, **options)
    assert package.last.calls == calls


ONE = np.ones((), np.float32)
WRONG_TYPES: list[tuple[dict[str, Any], str]] = [
    ({"causal": None}, "causal is None: True or False is needed"),
    ({"causal": np.array([True, False])}, r"causal is array\(\[ True, False\]\): True"),
    ({"scale": True}, "scale is True"),
    ({"scale": np.ones(2)}, r"scale is array\(\[1., 1.\]\): a single number or None is needed"),
    ({"stream": True}, "stream is True: a stream of PyTorch or CuPy"),
    ({"out": np.ma.zeros(SHAPE, np.float16)}, "out is numpy.ma.MaskedArray, whose mask flashladder ignores: pass out"),
    ({"softmax_scale": 1}, r"attention\(\) got an unexpected keyword argument 'softmax_scale': here it is scale"),
    ({"window_size": (-1, -1)}, "'window_size': here it is window"),
    ({"device": 5}, "'device': the call runs on the device of the arrays"),
    ({"casual": True}, r"'casual': did you mean causal\?"),
    ({"tile": 4}, "'tile': it takes causal, scale, window, softcap, sinks, seqlens_k, "),
]


@pytest.mark.parametrize(("options", "message"), WRONG_TYPES, ids=[case[1][:20] for case in WRONG_TYPES])
def test_an_argument_of_a_wrong_type_is_named(package: Recorded, options: Any, message: str) -> None:
    calls = package.last.calls
    with pytest.raises(TypeError, match=message):
        package.attention(host(), host(), host(), **options)
    assert package.last.calls == calls


def test_what_would_run_is_false_with_the_sentence_that_attention_raises(package: Recorded) -> None:
    for options, message in (
        ({"version": "v91\0"}, "version is 'v91"),
        ({"softcap": -1.0}, "softcap is -1.0"),
        ({"seqlens_k": np.zeros(3, np.int32)}, "seqlens_k has the shape (3,)"),
        ({"is_causal": True}, "unexpected keyword argument 'is_causal': here it is causal"),
    ):
        found = package.package.supports(host(), host(), host(), **options)
        assert not found and message in found.reason
    assert not package.package.supports(*[host(())] * 3)
    assert package.package.supports(*[np.zeros((70000, 1, 1, 64), np.float16)] * 3)


def test_a_scale_that_is_not_positive_goes_into_q(package: Recorded) -> None:
    q = np.ones(SHAPE, np.float16)
    for scale, factor, positive in ((0, 0, 1.0), (0.0, 0, 1.0), (-0.5, -1, 0.5)):
        made, chosen = package.options.positive_scale(q, package.options.options(scale=scale))
        assert np.array_equal(made, factor * q) and made.dtype == q.dtype and chosen.scale == positive
    assert package.options.positive_scale(q, package.options.options(scale=2))[0] is q


def test_numbers_and_flags_of_other_types_are_taken(package: Recorded) -> None:
    """NumPy's, and zeros and ones."""
    for options, causal, scale in (
        ({"causal": np.True_, "scale": np.float32(0.25)}, 1, 0.25),
        ({"causal": 1, "scale": 2}, 1, 2.0),
        ({"causal": np.False_, "scale": ONE}, 0, 1.0),
        ({"causal": 0, "scale": None}, 0, 0.0),
    ):
        package.attention(host(), host(), host(), **options)
        assert (package.last.problem.causal, package.last.problem.scale) == (causal, scale)
    assert len(package.attention(host(), host(), host(), return_lse=np.True_)) == 2

    class Name(str):
        pass

    package.attention(host(), host(), host(), version=Name("v90"))
    assert package.last.version == b"v90"


def test_out_may_lie_between_the_inputs(package: Recorded) -> None:
    """As q, k, v and out of one packed buffer, and out after them."""
    package.attention(PACKED[:, :, 0], PACKED[:, :, 1], PACKED[:, :, 2], out=PACKED[:, :, 3])
    assert package.steps("o") == (5 * 4 * 4 * 64, 4 * 4 * 64, 64)
    package.attention(IN_PLACE[:2], IN_PLACE[:2], IN_PLACE[:2], out=IN_PLACE[2:])
    package.attention(IN_PLACE[2:], IN_PLACE[2:], IN_PLACE[2:], out=IN_PLACE[:2])
    backwards = IN_PLACE[:2, ::-1]
    package.attention(IN_PLACE[2:], IN_PLACE[2:], IN_PLACE[2:], out=backwards)
    assert package.last.tensors.o == backwards.ctypes.data and package.steps("o")[1] == -4 * 64


def test_where_out_lies_is_looked_at_in_each_call(package: Recorded) -> None:
    """Also where the facts of the arrays are known from a call before."""
    package.attention(IN_PLACE[2:], host(), host(), out=IN_PLACE[:2])
    with pytest.raises(ValueError, match="out shares memory with q"):
        package.attention(IN_PLACE[1:3], host(), host(), out=IN_PLACE[:2])


def test_no_elements_share_no_memory(package: Recorded) -> None:
    """The address of an array without rows has no meaning."""
    out = host()
    package.attention(host(), out[:, :0], out[:, :0], out=out)
    package.attention(out[:0], host((0, 7, 2, 64)), host((0, 7, 2, 64)), out=out[:0])


def test_the_last_stride_of_what_has_one_element_or_none_is_not_read(package: Recorded) -> None:
    narrow = host((2, 5, 4, 64))[..., :1]
    package.attention(narrow, narrow[..., ::-1], np.lib.stride_tricks.as_strided(narrow, narrow.shape, (0, 0, 8, 6)))
    assert package.last.problem.d_head == 1
    empty = host((2, 0, 4, 128))[..., ::2]
    assert package.attention(empty, host(), host()).shape == (2, 0, 4, 64)


def test_a_size_of_0_is_named_by_the_library(package: Recorded) -> None:
    """No strides are complained about where there are no elements."""
    package.attention(*[host((2, 5, 4, 0))] * 3)
    assert package.last.problem.d_head == 0


def test_a_gpu_that_is_not_there(package: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package.call, "_emulates", lambda: True)
    made = producers(package, device=(2, 5))
    with pytest.raises(ValueError, match=r"q is on cuda:5, but flashladder found no GPU .*: pass arrays in host"):
        package.attention(*made[:3], out=made[3])


def test_what_is_no_array_is_named(package: Recorded, torch: Any) -> None:
    for arrays, message in (
        (([1.0], host(), host()), "q is list: a PyTorch, JAX, CuPy or NumPy array is needed"),
        ((host(), None, host()), "k is NoneType: a PyTorch"),
        ((Tensor(SHAPE), host(), host()), r"k is numpy.ndarray and q torch.Tensor: pass arrays of one package"),
    ):
        with pytest.raises(TypeError, match=message):
            package.attention(*arrays)
    with pytest.raises(TypeError, match="stream is '0': a stream of PyTorch or CuPy"):
        package.attention(*[Tensor(SHAPE)] * 3, stream="0")


def test_a_size_that_int32_does_not_hold_is_refused(package: Recorded) -> None:
    producers = [Producer(package.dlpack, (1, 2**31, 1, 64)) for _ in range(4)]
    with pytest.raises(ValueError, match="seq_q is 2147483648: at most 2147483647"):
        package.attention(*producers[:3], out=producers[3])


def test_torch_tensors_run_where_they_lie(package: Recorded, torch: Any) -> None:
    q, k, v = (Tensor(shape, "bfloat16", "cuda:1") for shape in (SHAPE, KV_SHAPE, KV_SHAPE))
    o, lse = package.attention(q, k, v, return_lse=True)
    problem, tensors = package.last.problem, package.last.tensors
    assert (problem.memory, problem.device, problem.dtype) == (DEVICE_MEMORY, 1, BF16)
    assert [tensors.q, tensors.k, tensors.v, tensors.o, tensors.lse] == [a.data_ptr() for a in (q, k, v, o, lse)]
    assert package.last.stream == 0x5001  # the current one of GPU 1
    assert type(o) is type(q) and (o.shape, o.dtype, str(o.device)) == (SHAPE, q.dtype, "cuda:1")
    assert (lse.shape, lse.dtype, str(lse.device)) == ((2, 4, 5), "torch.float32", "cuda:1")


def test_torch_views_keep_their_strides(package: Recorded, torch: Any) -> None:
    """Also after a call with tensors that differ in nothing else."""
    package.attention(*[Tensor(SHAPE)] * 3)
    q, k, v = (Tensor((2, 4, 5, 64)).transpose(1, 2) for _ in range(3))
    o = package.attention(q, k, v)
    assert package.steps("q") == (4 * 5 * 64, 64, 5 * 64) and package.steps("o") == STRIDES == o.stride()[:3]


def test_a_stream_of_the_caller(package: Recorded, torch: Any) -> None:
    """As a number and as PyTorch's, CuPy's and cuda-python's: results are allocated in it, out is not."""
    kinds = {
        "ptr": type("CuPyStream", (), {"ptr": 0x900})(),
        "protocol": type("CoreStream", (), {"__cuda_stream__": lambda self: (0, 0x900)})(),
        "torch": Stream(0x900),
        "int": 0x900,
    }
    for stream in kinds.values():
        o = package.attention(*[Tensor(SHAPE)] * 3, stream=stream)
        assert package.last.stream == 0x900 and o.allocated_in == 0x900
    assert Stream.current == 0x5000


def test_a_stream_becomes_the_current_one_only_to_allocate(package: Recorded, torch: Any) -> None:
    """The check takes longer than the rest of the call."""
    q, out = Tensor(SHAPE), Tensor(SHAPE)
    for stream, options, times in (
        (0x900, {"out": out}, 0),
        (0x5000, {"return_lse": True}, 0),
        (0x900, {"out": out, "return_lse": True}, 1),
        (0x900, {}, 1),
    ):
        before = Stream.entered
        package.attention(q, q, q, stream=stream, **options)
        assert package.last.stream == stream and Stream.entered == before + times, (stream, options)


def test_the_current_stream_is_asked_the_short_way(package: Recorded, torch: Any) -> None:
    assert package.frameworks.Torch().current_stream(1) == 0x5001
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "_C", SimpleNamespace(_cuda_getCurrentRawStream=lambda gpu: 0x600 + gpu), raising=False)
        assert package.frameworks.Torch().current_stream(1) == 0x601


def test_there_is_no_backward(package: Recorded, torch: Any) -> None:
    tensors = [Tensor(SHAPE) for _ in range(4)]
    for i in range(4):
        package.attention(*tensors[:3], out=tensors[3])
        tensors[i].requires_grad = True
        with pytest.raises(NotImplementedError, match=r"has no backward: flashladder\.torch\.attention has one"):
            package.attention(*tensors[:3], out=tensors[3])
        torch.grad = False
        package.attention(*tensors[:3], out=tensors[3])
        torch.grad, tensors[i].requires_grad = True, False


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (("cuda:0", "cpu", "cuda:0"), "k is on host memory and q on cuda:0: pass both on one device"),
        (("cpu", "cpu", "cuda:0"), "v is on cuda:0 and q on host memory"),
        (("cuda:0", "cuda:1", "cuda:0"), "k is on cuda:1 and q on cuda:0"),
        (("meta", "meta", "meta"), "q is on meta: must be in host memory or on a CUDA GPU"),
    ],
)
def test_tensors_that_lie_apart(package: Recorded, torch: Any, devices: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        package.attention(*(Tensor(SHAPE, device=device) for device in devices))


def producers(package: Recorded, **options: Any) -> list[Producer]:
    return [Producer(package.dlpack, SHAPE, 0x7F0000000000 + (i << 20), **options) for i in range(4)]


@pytest.mark.parametrize("major", [None, 1])
@pytest.mark.parametrize(("stream", "asked"), [(None, 1), (0, 1), (0x900, 0x900)])
def test_dlpack_hands_on_addresses_and_the_stream(
    package: Recorded, major: int | None, stream: int | None, asked: int
) -> None:
    made = producers(package, major=major, device=(2, 3), offset=32, dtype=(4, 16, 1))
    assert package.attention(*made[:3], out=made[3], stream=stream) is made[3]
    problem, tensors = package.last.problem, package.last.tensors
    assert [tensors.q, tensors.k, tensors.v, tensors.o] == [0x7F0000000020 + (i << 20) for i in range(4)]
    assert (problem.memory, problem.device, problem.dtype) == (DEVICE_MEMORY, 3, BF16)
    assert (package.last.stream or 0) == (stream or 0)
    assert all(one.asked[-1]["stream"] == asked for one in made)
    gc.collect()
    assert [one.alive for one in made] == [0] * 4  # every capsule is gone, none was consumed


def test_dlpack_strides(package: Recorded) -> None:
    """Given, and left out for a compact array; also after a call with arrays that differ in nothing else."""
    q, k, v, out = producers(package)
    package.attention(q, k, v, out=out)
    heads_first = Producer(package.dlpack, SHAPE, strides=(4 * 5 * 64, 64, 5 * 64, 1))
    compact = Producer(package.dlpack, SHAPE, strides=None)
    package.attention(heads_first, compact, v, out=out)
    assert package.steps("q") == (4 * 5 * 64, 64, 5 * 64) and package.steps("k") == STRIDES


def test_dlpack_of_host_memory_has_no_stream(package: Recorded) -> None:
    for kind in (1, 3):  # the CPU's, and pinned
        made = producers(package, device=(kind, 0))
        package.attention(*made[:3], out=made[3])
        assert package.last.problem.memory == HOST_MEMORY and package.last.stream is None
        assert all(one.asked == [{"stream": None}] for one in made)


def test_dlpack_is_given_back_after_an_error(package: Recorded) -> None:
    made = producers(package)
    with package.failing(2), pytest.raises(ValueError, match="told to fail"):
        package.attention(*made[:3], out=made[3])
    gc.collect()
    assert [one.alive for one in made] == [0] * 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": (2, 32, 1)}, "q is float32"),
        ({"dtype": (0, 16, 1)}, "q is of DLPack type 0 and width 16"),
        ({"dtype": (2, 16, 4)}, "q is a vector of 4 elements"),
        ({"device": (10, 1)}, "q is on DLPack device 10:1: must be in host memory or on a CUDA GPU"),
        ({"major": 2}, "q has version 2 of DLPack: must be 1 or older"),
        ({"major": 1, "flags": 1}, "out is read-only, or its package hands out a copy: pass an array that"),
        ({"major": 1, "flags": 2}, "out is read-only, or its package hands out a copy"),
    ],
)
def test_dlpack_that_cannot_be_used(package: Recorded, options: Any, message: str) -> None:
    made = producers(package, **options)
    with pytest.raises(ValueError, match=message):
        package.attention(*made[:3], out=made[3])
    gc.collect()
    assert [one.alive for one in made] == [0] * 4


def test_dlpack_without_out(package: Recorded) -> None:
    made = producers(package)
    with pytest.raises(ValueError, match="no result can be made for arrays of this package: pass out="):
        package.attention(*made[:3])


def test_a_consumed_capsule_is_refused(package: Recorded) -> None:
    class Consumed(Producer):
        def __dlpack__(self, **asked: Any) -> Any:
            self._name = b"used_dltensor"
            return super().__dlpack__(**asked)

    with pytest.raises(ValueError, match=r"__dlpack__ of q returned .*, which is not an unconsumed DLPack capsule"):
        package.attention(*[Consumed(package.dlpack, SHAPE)] * 3)


def test_versions_of_the_library(package: Recorded) -> None:
    first, second = package.package.versions()
    assert (first.name, first.title, first.dtypes, first.d_heads) == ("v90", "one", ("float16", "bfloat16"), (64, 128))
    assert (first.causal, first.any_length, first.grouped) == (False, True, False)
    assert (
        second.causal and second.configs == ("(FP16, 64)", "(BF16, 128)") and second.machine_code == ("sm_80", "sm_90")
    )


def test_the_back_end(package: Recorded, tmp_path: Path) -> None:
    found = package.package.backend()
    assert (found.name, found.why_no_gpu, found.release) == ("gpu", "", "0.0.1 (fake)")
    assert found.devices == (("fake GPU", (9, 0), 132, 2**37, True),)
    assert found.library.endswith("libflashladder.so") and package.package.__version__ == "0.0.1"


def test_what_would_run(package: Recorded) -> None:
    found = package.package.supports(host(), host(), host(), causal=True)
    assert found and found == ("v91", "(FP16, 64)", True, "it is fake")
    for status in (3, 4):
        with package.failing(status):
            found = package.package.supports(host(), host(), host())
        assert not found and found.reason == "the fake library was told to fail"
    found = package.package.supports(*[host().astype(np.float32)] * 3)
    assert not found and found.reason.startswith("q is float32")
