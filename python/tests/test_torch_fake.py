"""flashladder.torch on fake PyTorch: what it hands to the library, rejects, and registers with PyTorch's own function.

test_torch.py asks the real one for results, where it is installed.
"""

import contextlib
import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fake_frameworks import Recorded, Stream, Tensor

SHAPE, KV_SHAPE = (2, 5, 4, 64), (2, 7, 2, 64)
FP16, BF16, DEVICE_MEMORY, HOST_MEMORY = 0, 1, 0, 1


@pytest.fixture(params=["eager", "compiling"])
def way(request: pytest.FixtureRequest, made: Any) -> Iterator[str]:
    """Called from Python, or while torch.compile traces."""
    made.torch.compiling = request.param == "compiling"
    yield request.param
    made.torch.compiling = False


def tensors(device: str = "cuda:1", dtype: str = "bfloat16") -> tuple[Tensor, Tensor, Tensor]:
    return Tensor(SHAPE, dtype, device), Tensor(KV_SHAPE, dtype, device), Tensor(KV_SHAPE, dtype, device)


def heads_first(device: str = "cuda:1") -> tuple[Any, Any, Any]:
    """query, key and value as PyTorch has them, contiguous."""
    shapes = ((2, 4, 5, 64), (2, 2, 7, 64), (2, 2, 7, 64))
    query, key, value = (Tensor(shape, "bfloat16", device) for shape in shapes)
    return query, key, value


def test_a_call_hands_everything_on(package: Recorded, made: Any, way: str) -> None:
    q, k, v = tensors()
    out, lse = made.fl.attention(q, k, v, causal=True, scale=0.25, return_lse=True, version="v91")
    problem, given = package.last.problem, package.last.tensors
    sizes = (problem.batch, problem.heads, problem.kv_heads, problem.seq_q, problem.seq_k, problem.d_head)
    assert sizes == (2, 4, 2, 5, 7, 64)
    assert (problem.memory, problem.device, problem.dtype) == (DEVICE_MEMORY, 1, BF16)
    assert (problem.causal, problem.scale, package.last.version) == (1, 0.25, b"v91")
    assert [given.q, given.k, given.v, given.o, given.lse] == [one.data_ptr() for one in (q, k, v, out, lse)]
    assert package.last.stream == 0x5001  # the current one of GPU 1
    assert (out.shape, out.dtype, str(out.device)) == (SHAPE, "torch.bfloat16", "cuda:1")
    assert (lse.shape, lse.dtype, str(lse.device)) == ((2, 4, 5), "torch.float32", "cuda:1")


def test_strides_of_all_four(package: Recorded, made: Any, way: str) -> None:
    """Each its own: of heads before rows, of a slice, of a packed tensor, and of the contiguous result."""
    q = Tensor((2, 4, 5, 64)).transpose(1, 2)
    k = Tensor(KV_SHAPE).as_strided(KV_SHAPE, (9 * 128, 128, 64, 1))
    v = Tensor(KV_SHAPE).as_strided(KV_SHAPE, (21 * 128, 3 * 128, 64, 1))
    made.fl.attention(q, k, v)
    assert [package.steps(name) for name in "qkvo"] == [
        (4 * 5 * 64, 64, 5 * 64), (9 * 128, 128, 64), (21 * 128, 3 * 128, 64), (5 * 4 * 64, 4 * 64, 64)
    ]  # fmt: skip
    narrow = Tensor((1, 5, 4, 1)).as_strided((1, 5, 4, 1), (20, 4, 1, 7))  # a single element may have any stride
    made.operator(narrow, narrow, narrow)
    assert package.last.problem.d_head == 1


def test_what_is_not_asked_for_is_not_handed_on(package: Recorded, made: Any, way: str) -> None:
    out = made.fl.attention(*tensors())
    assert type(out) is Tensor and package.last.tensors.lse is None
    assert (package.last.problem.causal, package.last.problem.scale, package.last.version) == (0, 0, b"best")


def test_host_memory_has_no_stream(package: Recorded, made: Any, way: str) -> None:
    made.fl.attention(*tensors("cpu", "float16"))
    problem = package.last.problem
    assert (problem.memory, problem.device, problem.dtype) == (HOST_MEMORY, -1, FP16)
    assert package.last.stream is None


def test_the_operator_returns_an_empty_log_sum_exp(package: Recorded, made: Any) -> None:
    """An operator has one number of results."""
    out, lse = made.operator(*tensors())
    assert (out.shape, lse.shape, package.last.tensors.lse) == (SHAPE, (0,), None)
    out, lse = made.operator(*tensors(), return_lse=True)
    assert (lse.shape, package.last.tensors.lse) == ((2, 4, 5), lse.data_ptr())


def test_the_operator_changes_no_argument_and_knows_its_results_without_memory(package: Recorded, made: Any) -> None:
    assert made.operator.name == "flashladder::attention" and tuple(made.operator.mutates_args) == ()
    calls = package.last.calls
    for device in ("meta", "cuda:1"):
        out, lse = made.operator.fake(*tensors(device), return_lse=True)
        assert (out.shape, out.dtype, lse.shape, lse.dtype) == (SHAPE, "torch.bfloat16", (2, 4, 5), "torch.float32")
        assert str(out.device) == str(lse.device) == device
        assert made.operator.fake(*tensors(device))[1].shape == (0,)
    with pytest.raises(ValueError, match="k is float16 and q bfloat16: they must be of one type"):
        made.operator.fake(tensors()[0], *tensors(dtype="float16")[1:])
    assert package.last.calls == calls
    parameters = inspect.signature(made.operator.fake).parameters.values()
    assert [(one.name, one.default) for one in parameters] == [
        (one.name, one.default) for one in inspect.signature(made.operator.function).parameters.values()
    ]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"q": Tensor((5, 4, 64), "bfloat16", "cuda:1")}, ValueError, r"q has the shape \(5, 4, 64\): four dimensions"),
        ({"v": Tensor(KV_SHAPE, "float32", "cuda:1")}, ValueError, "v is float32: float16 or bfloat16 is needed"),
        ({"k": Tensor(KV_SHAPE, "bfloat16", "cuda:0")}, ValueError, "k is on cuda:0 and q on cuda:1"),
        ({"v": Tensor(KV_SHAPE, "bfloat16", "cpu")}, ValueError, "v is on cpu and q on cuda:1"),
        ({"q": Tensor(SHAPE, "bfloat16", "cuda:1").as_strided(SHAPE, (2560, 512, 128, 2))}, ValueError,
         r"q has the stride 2 along d_head"),
        ({"v": Tensor(KV_SHAPE, "bfloat16", "cuda:1").as_strided(KV_SHAPE, (2560, 512, 128, 2))}, ValueError,
         "v has the stride 2 along d_head"),
        ({"scale": -1.0}, ValueError, "scale is -1.0"),
        ({"version": "v91\0"}, ValueError, "version is 'v91"),
    ],
)  # fmt: skip
def test_the_operator_names_what_is_wrong(
    package: Recorded, made: Any, change: Any, error: type[Exception], message: str
) -> None:
    calls = package.last.calls
    arguments = dict(zip("qkv", tensors(), strict=True)) | change
    with pytest.raises(error, match=message):
        made.operator(**arguments)
    assert package.last.calls == calls


def test_tensors_that_lie_nowhere_are_named(made: Any) -> None:
    with pytest.raises(ValueError, match="q is on xpu:0: must be in host memory or on a CUDA GPU"):
        made.operator(*tensors("xpu:0"))


def test_arguments_are_named(made: Any, way: str) -> None:
    q, k, v = tensors()
    for error, arrays, options, message in (
        (TypeError, (q, k, v), {"causal": "no"}, "causal is 'no': True or False is needed"),
        (TypeError, (q, k, v), {"scale": "x"}, "scale is 'x'"),
        (TypeError, (q, k, v), {"return_lse": 2}, "return_lse is 2"),
        (TypeError, (q, k, v), {"version": 3}, "version is 3"),
        (TypeError, (q, k, v), {"softmax_scale": 0.1}, "'softmax_scale': here it is scale"),
        (TypeError, ([1.0], k, v), {}, "q is list: a torch.Tensor is needed"),
        (TypeError, (q, k, 1), {}, "v is int: a "),
    ):
        with pytest.raises(error, match=message):
            made.fl.attention(*arrays, **options)


def test_sdpa_swaps_heads_and_rows(package: Recorded, made: Any) -> None:
    query, key, value = heads_first()
    out = made.fl.scaled_dot_product_attention(query, key, value, scale=0.5, enable_gqa=True)
    problem, given = package.last.problem, package.last.tensors
    assert (problem.seq_q, problem.heads, problem.seq_k, problem.kv_heads, problem.causal) == (5, 4, 7, 2, 0)
    assert problem.scale == 0.5 and package.steps("q") == (4 * 5 * 64, 64, 5 * 64)
    assert package.steps("k") == (2 * 7 * 64, 64, 7 * 64) == package.steps("v")
    assert [given.q, given.k, given.v, given.o] == [one.data_ptr() for one in (query, key, value, out)]
    assert out.shape == (2, 4, 5, 64) and out.stride() == (5 * 4 * 64, 64, 4 * 64, 1)


def test_sdpa_masks_from_the_first_key_on(package: Recorded, made: Any) -> None:
    """It is the kernels' mask only where there are as many keys as queries; without the mask lengths are free."""
    query, key, value = heads_first()
    sdpa = made.fl.scaled_dot_product_attention
    with pytest.raises(NotImplementedError, match="is_causal with 5 queries and 7 keys: here the mask begins at"):
        sdpa(query, key, value, is_causal=True, enable_gqa=True)
    sdpa(query, key, value, enable_gqa=True)
    assert package.last.problem.causal == 0
    with pytest.raises(ValueError, match="query has 4 heads and key has 2: set enable_gqa=True"):
        sdpa(query, key, value)
    sdpa(query, query, query, is_causal=True)
    assert package.last.problem.causal == 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"attn_mask": 1, "is_causal": True}, ValueError, "attn_mask and is_causal=True: pass one of them"),
        ({"dropout_p": 1.0}, ValueError, r"dropout_p is 1\.0: it must be at least 0 and less than 1"),
    ],
)
def test_sdpa_refuses_by_name(made: Any, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        made.fl.scaled_dot_product_attention(*heads_first(), **({"enable_gqa": True} | options))


@pytest.fixture
def registration(made: Any) -> Any:
    made.fl.register()
    made.torch.originals.clear()
    return made.torch.implementations["flashladder"]()


def test_it_takes_the_place_of_flash_attention(made: Any, registration: Any) -> None:
    assert registration.library.about == ("aten", "IMPL", "CUDA")
    function, key, with_keyset = registration.library.functions["_scaled_dot_product_flash_attention"]
    assert (function, key, with_keyset) == (registration.forward, "CUDA", True)
    registration.remove()
    assert registration.library is None


def test_it_computes_what_the_kernels_do(package: Recorded, made: Any, registration: Any) -> None:
    query, key, value = heads_first()
    out, lse, *rest = registration.forward("keys", query, key, value, 0.0, True, False, scale=0.5)
    problem, given = package.last.problem, package.last.tensors
    assert (problem.causal, problem.scale, problem.seq_q, problem.seq_k, problem.heads) == (1, 0.5, 5, 7, 4)
    assert [given.q, given.k, given.v, given.o, given.lse] == [one.data_ptr() for one in (query, key, value, out, lse)]
    assert out.stride() == query.stride() and package.steps("o") == (4 * 5 * 64, 64, 5 * 64)
    assert (lse.shape, lse.dtype, str(lse.device)) == ((2, 4, 5), "torch.float32", "cuda:1")
    assert rest[:4] == [None, None, 5, 7]
    seed, offset, debug_mask = rest[4:]
    assert (seed.shape, seed.dtype, offset.shape) == ((2,), "torch.uint64", ())
    assert (debug_mask.shape, debug_mask.dtype) == ((0,), "torch.bfloat16")
    assert package.last.stream == Stream.current + 1 and not made.torch.originals


def test_it_hands_the_rest_back(package: Recorded, made: Any, registration: Any) -> None:
    query, key, value = heads_first()
    calls = package.last.calls
    odd = Tensor((2, 4, 5, 64), "float32", "cuda:1")
    for arrays, options in (((query, key, value), {"return_debug_mask": True}), ((odd, odd, odd), {})):
        assert registration.forward("keys", *arrays, **options, scale=0.5) == "PyTorch's own"
        name, key_, keyset, given, last = made.torch.originals.pop()
        wanted = {"dropout_p": 0.0, "is_causal": False, "return_debug_mask": False} | options
        assert (name, key_, keyset) == ("aten::_scaled_dot_product_flash_attention", "CUDA", "keys")
        assert given == (*arrays, *wanted.values()) and last == {"scale": 0.5}
    assert package.last.calls == calls


@pytest.mark.parametrize(("status", "own"), [(1, False), (2, True), (3, True), (4, True)])
def test_it_hands_back_what_the_library_refuses_and_no_failure(
    package: Recorded, made: Any, registration: Any, status: int, own: bool
) -> None:
    expected = contextlib.nullcontext() if own else pytest.raises(RuntimeError, match="told to fail")
    with package.failing(status), expected:
        assert registration.forward(None, *heads_first()) == "PyTorch's own"
    assert len(made.torch.originals) == own


def test_an_older_pytorch_is_named(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made.torch.nn, "attention", SimpleNamespace())
    with pytest.raises(RuntimeError, match=r"PyTorch 0\.1 has no register_flash_attention_impl: 2\.11 or newer"):
        made.fl.register()
