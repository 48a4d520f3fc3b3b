"""flashladder.jax on fake JAX: what it registers and hands to XLA. test_jax.py asks the real one for results."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_frameworks import Array, Recorded, fake_jax

from flashladder._options import Options

SHAPE, KV_SHAPE = (2, 5, 4, 64), (2, 7, 2, 64)


@pytest.fixture
def made(package: Recorded) -> Iterator[Any]:
    jax = fake_jax()
    with package.on(jax=jax) as load:
        ours = load("jax")
        yield SimpleNamespace(
            jax=jax,
            attention=ours.attention,
            attention_e4m3=ours.attention_e4m3,
            attention_varlen=ours.attention_varlen,
            attention_with_cache=ours.attention_with_cache,
        )


def arrays(dtype: Any = np.float16) -> list[Any]:
    return [np.zeros(shape, dtype).view(Array) for shape in (SHAPE, KV_SHAPE, KV_SHAPE)]


def test_both_back_ends_have_a_handler(package: Recorded, made: Any) -> None:
    library = package.library.LIBRARY
    assert made.jax.targets == {
        ("flashladder_attention", "CUDA"): ("capsule", library.fl_xla_ffi_attention),
        ("flashladder_attention", "cpu"): ("capsule", library.fl_xla_ffi_attention_host),
        ("flashladder_serve", "CUDA"): ("capsule", library.fl_xla_ffi_serve),
        ("flashladder_serve", "cpu"): ("capsule", library.fl_xla_ffi_serve_host),
        ("flashladder_backward", "CUDA"): ("capsule", library.fl_xla_ffi_backward),
        ("flashladder_backward", "cpu"): ("capsule", library.fl_xla_ffi_backward_host),
    }


def test_a_call_hands_everything_on(made: Any) -> None:
    given = arrays()
    out, lse = made.attention(*given, causal=True, scale=0.25, return_lse=True, version="v91")
    ((name, mapped, inputs, attributes),) = made.jax.calls
    assert (name, mapped) == ("flashladder_attention", "sequential")
    assert all(one is other for one, other in zip(inputs, given, strict=True))
    assert attributes == {"causal": 1, "scale": 0.25, "version": "v91"}
    assert (type(attributes["causal"]), type(attributes["scale"])) == (np.int32, np.float32)
    assert (out.shape, out.dtype, lse.shape, lse.dtype) == (SHAPE, np.float16, (2, 4, 5), np.float32)


def test_a_function_that_is_traced_may_use_arrays_on_a_gpu(made: Any) -> None:
    on_gpu = {"__module__": "jax", "devices": lambda _: [SimpleNamespace(id=0, platform="gpu")]}
    made.attention(*arrays(), sinks=np.zeros(4, np.float32).view(type("Array", (Array,), on_gpu)))
    assert made.jax.calls[0][2][3].view(np.ndarray).shape == (4,)


def test_what_is_not_asked_for_is_not_handed_on(made: Any) -> None:
    out = made.attention(*arrays())
    assert isinstance(out, Array) and out.shape == SHAPE
    assert made.jax.calls[0][3] == {"causal": 0, "scale": 0.0, "version": "best"}


def test_what_is_no_array_is_known_to_jit(made: Any) -> None:
    """The numbers of the arguments after q, k and v."""
    assert made.jax.static == {"jit": (3,), "vjp": (3,)}


def test_gradients_are_asked_of_an_operation_of_their_own(made: Any) -> None:
    shapes = (2, 70, 4, 64), (2, 90, 2, 64), (2, 90, 2, 64)
    q, k, v = (np.zeros(shape, np.float16).view(Array) for shape in shapes)
    chosen = Options(causal=True, scale=0.5, ordered=True)
    outputs, kept = made.jax.keep(q, k, v, chosen)
    assert [one.shape for one in outputs] == [q.shape]
    gradients = made.jax.backward(chosen, kept, [q])
    name, _, arrays, attributes = made.jax.calls[-1]
    assert name == "flashladder_backward" and [one.shape for one in gradients] == list(shapes)
    assert [one.shape for one in arrays] == [shapes[0], *shapes, shapes[0], (2, 4, 70)]
    assert attributes == {"causal": 1, "deterministic": 1, "scale": 0.5, "version": "best"}
    blocks = 2 * 70 // 128 + 2  # a kernel with serve has a block more for each sequence
    assert made.jax.results[-1][3].shape == (4 * blocks * (128 * 66 + 16) + 4,)


def test_gradients_of_packed_sequences_are_one_call_with_the_offsets(made: Any) -> None:
    """The workspace has a Q block of 128 rows for each sequence more than the rows have."""
    shapes = (150, 4, 64), (90, 2, 64), (90, 2, 64)
    given = [np.zeros(shape, np.float16).view(Array) for shape in shapes]
    starts = tuple(np.array([0, *ends], np.int32).view(Array) for ends in ((1, 1, 150), (3, 70, 90)))
    made.attention_varlen(*given, *starts, 149, 67, causal=True, scale=0.5)
    name, _, inputs, attributes = made.jax.calls[-1]
    assert name == "flashladder_serve" and attributes["arrays"] == 3 and inputs[3] is starts[0]
    (keep, backward), _ = made.jax.passes
    chosen = Options(causal=True, scale=0.5)
    (_, lse), kept = keep(*given, starts, chosen, (149, 67))
    *gradients, of_starts = backward(chosen, (149, 67), kept, [given[0], lse])
    name, mapped, arrays, attributes = made.jax.calls[-1]
    assert name == "flashladder_backward" and mapped == "sequential" and of_starts is None
    assert [one.shape for one in gradients] == list(shapes)
    assert [one.shape for one in arrays] == [shapes[0], *shapes, shapes[0], (4, 150), (4,), (4,)]
    assert arrays[6] is starts[0] and arrays[7] is starts[1]
    assert attributes == {"causal": 1, "deterministic": 0, "seq_q": 149, "seq_k": 67, "scale": 0.5, "version": "best"}
    assert made.jax.results[-1][3].shape == (4 * 4 * (128 * 66 + 16) + 4,)


def test_lengths_and_windows_are_handed_on_in_the_order_of_their_bits(made: Any) -> None:
    given, sinks = arrays(), np.zeros(4, np.float32).view(Array)
    lengths = np.array([5, 7], np.int32).view(Array)
    out, lse = made.attention(
        *given, sinks=sinks, seqlens_k=lengths, window=(3, -1), deterministic="batch", scale=0.5, return_lse=True
    )
    ((name, _, inputs, attributes),) = made.jax.calls
    assert name == "flashladder_serve" and inputs[3] is lengths and inputs[4] is sinks and len(inputs) == 5
    windowed = {"windowed": 1, "window_left": 3, "window_right": -1}
    numbers = {"causal": 0, "arrays": 8 | 32, "seq_q": 0, "seq_k": 0, "split_keys": 512} | windowed
    assert attributes == numbers | {"scale": 0.5, "softcap": 0.0, "version": "best"}
    assert all(type(attributes[number]) is np.int32 for number in numbers)
    assert (out.shape, lse.shape) == (SHAPE, (2, 4, 5))
    with pytest.raises(ValueError, match="seqlens_k is int64: int32 is needed"):
        made.attention(*given, seqlens_k=lengths.astype(np.int64))


def test_dropout_largest_scores_and_block_masks_are_handed_on(made: Any) -> None:
    state, blocks = np.array([-2, 5], np.int32).view(Array), np.ones((2, 1, 1, 1), bool).view(Array)
    given = {"dropout_p": 0.25, "block_mask": blocks, "block_size": (256, 128), "return_max_logits": True}
    _, largest = made.attention(*arrays(), rng_state=state, **given)
    made.attention(*arrays(), rng_state=(-2, 5 << 40), **given)
    assert [list(inputs[3]) for _, _, inputs, _ in made.jax.calls] == [[-2, -1, 5, 0], [-2, -1, 0, 5 << 8]]
    _, _, inputs, attributes = made.jax.calls[0]
    wanted = {"arrays": 7 << 12, "dropout_p": 0.25, "mask_queries": 256, "mask_keys": 128}
    assert inputs[4] is blocks and {name: attributes[name] for name in wanted} == wanted and largest.shape == (2, 4)
    assert (type(attributes["dropout_p"]), type(attributes["mask_keys"])) == (np.float32, np.int32)
    with pytest.raises(ValueError, match=r"rng_state is int32 of the shape \(4,\): int32, uint32 or int64 \(2,\) is"):
        made.attention(*arrays(), dropout_p=0.5, rng_state=np.zeros(4, np.int32).view(Array))


def test_scales_of_e4m3_are_handed_on(package: Recorded, made: Any) -> None:
    given, of_q = arrays(np.int8), np.arange(1, 5, dtype=np.float32).view(Array)
    options = {"q_scale": of_q, "v_scale": 0.5, "causal": True, "accurate": True, "dtype": "float16"}
    out, lse = made.attention_e4m3(*given, **options, return_lse=True)
    package.package.attention_e4m3(*given, **options)
    for name, _, inputs, attributes in made.jax.calls:
        assert name == "flashladder_serve" and all(one is other for one, other in zip(inputs[:3], given, strict=True))
        assert [list(scales) for scales in inputs[3:]] == [[0.5, 0.5], [1, 2, 3, 4]]
        wanted = {"causal": 1, "arrays": 128 | 256, "sums": 1, "scale_keys": 0, "windowed": 0, "split_keys": 0}
        assert {number: attributes[number] for number in wanted} == wanted
        assert type(attributes["sums"]) is type(attributes["scale_keys"]) is np.int32
    assert (out.shape, out.dtype, lse.shape, lse.dtype) == (SHAPE, np.float16, (2, 4, 5), np.float32)


def test_blocks_of_keys_have_scales_of_e4m3(made: Any) -> None:
    of_blocks = np.arange(4, dtype=np.float32).reshape(2, 2, 1).view(Array)
    made.attention_e4m3(*arrays(np.int8), scale_keys=32, k_scale=of_blocks)
    ((_, _, inputs, attributes),) = made.jax.calls
    assert list(inputs[3]) == [0, 1, 2, 3] and (attributes["scale_keys"], attributes["sums"]) == (32, 0)
    with pytest.raises(ValueError, match=r"k_scale has the shape \(2, 2, 1\): \(2, 2, 2\) is needed"):
        starts = np.zeros(3, np.int32).view(Array)
        q, k, v = (one[0] for one in arrays(np.int8))
        made.attention_e4m3(
            q, k, v, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=5, max_seqlen_k=33, scale_keys=32,
            k_scale=of_blocks,
        )  # fmt: skip


BYTES = np.int8  # float8_e4m3fn here


def test_a_cache_of_e4m3_is_handed_on_with_its_scales(made: Any) -> None:
    q, k, v = (one.astype(kind) for one, kind in zip(arrays(), (np.float16, BYTES, BYTES), strict=True))
    k, v = (np.repeat(one[:, :1], 16, axis=1) for one in (k, v))  # pages of 16 rows
    keys, table = np.array([5, 7], np.int32).view(Array), np.zeros((2, 3), np.int32).view(Array)
    of_k = np.array([0.25, 4], np.float32).view(Array)
    out, lse = made.attention_with_cache(q, k, v, keys, table, k_scale=of_k, v_scale=0.5, causal=True, return_lse=True)
    ((name, _, inputs, attributes),) = made.jax.calls
    assert name == "flashladder_serve"
    assert all(one is other for one, other in zip(inputs[:5], (q, k, v, keys, table), strict=True))
    assert [list(scales) for scales in inputs[5:]] == [[0.25, 4], [0.5, 0.5]]
    assert attributes["arrays"] == 8 | 16 | 64 | 128 and attributes["causal"] == 1 and "sums" not in attributes
    assert (out.shape, out.dtype, lse.shape) == (SHAPE, np.float16, (2, 4, 5))
    one_of_all = np.array([3], np.float32).view(Array)
    made.attention_with_cache(q, k, v, keys, v_scale=one_of_all)
    *_, inputs, attributes = made.jax.calls[-1]
    assert attributes["arrays"] == 8 | 128 and list(inputs[4]) == [3, 3]


def test_packed_sequences_of_e4m3_are_not_those_that_have_gradients(made: Any) -> None:
    q, k, v = (one[0].astype(kind) for one, kind in zip(arrays(), (np.float16, BYTES, BYTES), strict=True))
    starts = np.array([0, 5], np.int32).view(Array)
    made.attention_varlen(q, k, v, starts, starts, 5, 5)
    made.attention_varlen(q, k, v, starts, starts, 5, 5, v_scale=2.0)
    assert [attributes["arrays"] for *_, attributes in made.jax.calls] == [3, 3 | 128] and made.jax.differentiable == []
    made.attention_varlen(q, k.astype(np.float16), v.astype(np.float16), starts, starts, 5, 5)
    assert len(made.jax.differentiable) == 1


@pytest.mark.parametrize(
    ("error", "change", "options", "message"),
    [
        (ValueError, lambda q, k, v: (q[0], k, v), {}, r"q has the shape \(5, 4, 64\): four dimensions are needed"),
        (ValueError, lambda q, k, v: (q, k, v.astype(np.float32)), {}, "v is float32: float16 or bfloat16 is needed"),
        (ValueError, lambda q, k, v: (q, k, v[:, :3]), {}, "v has the shape"),
        (ValueError, lambda q, k, v: (q, k.astype(BYTES), v), {}, "v is float16 and k float8_e4m3fn"),
        (ValueError, lambda q, k, v: (q.astype(BYTES), k, v), {}, "q is float8_e4m3fn: float16 or bfloat16 is needed"),
        (ValueError, lambda q, k, v: (q, k, v), {"scale": float("inf")}, "scale is inf"),
        (TypeError, lambda q, k, v: (q, k, v), {"sm_scale": 1}, "'sm_scale': here it is scale"),
    ],
)
def test_what_is_wrong_is_named(made: Any, error: type[Exception], change: Any, options: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        made.attention(*change(*arrays()), **options)
    assert made.jax.calls == []


def test_the_package_hands_arrays_of_jax_over(package: Recorded, made: Any) -> None:
    given = arrays()
    out, lse = package.attention(*given, causal=True, scale=0.5, return_lse=True, version="v90")
    ((_, _, inputs, attributes),) = made.jax.calls
    assert all(one is other for one, other in zip(inputs, given, strict=True))
    assert attributes == {"causal": 1, "scale": 0.5, "version": "v90"} and (out.shape, lse.shape) == (SHAPE, (2, 4, 5))
    for options in ({"out": given[0]}, {"stream": 0}):
        with pytest.raises(ValueError, match="out or stream is given, but JAX has immutable arrays and its own stream"):
            package.attention(*given, **options)
