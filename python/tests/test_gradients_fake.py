"""flashladder.torch on fake PyTorch: what its gradients hand to the library, and what has none.

test_torch.py asks the real one for results, where it is installed.
"""

import importlib
from typing import Any

import pytest
from fake_frameworks import Recorded, Tensor

SHAPE, KV_SHAPE = (2, 5, 4, 64), (2, 7, 2, 64)
UNSUPPORTED = 3


def tensors(device: str = "cuda:1") -> list[Tensor]:
    return [Tensor(shape, "bfloat16", device) for shape in (SHAPE, KV_SHAPE, KV_SHAPE)]


class Context:
    """State that autograd keeps from the forward to the backward pass."""

    def set_materialize_grads(self, value: bool) -> None:
        self.materialized = value

    def save_for_backward(self, *saved: Tensor) -> None:
        self.saved_tensors = saved


def differentiated(made: Any, arrays: list[Tensor], *options: Any) -> tuple[Context, Tensor, Tensor, Tensor]:
    """The operator as autograd calls it, its results and a gradient by the first."""
    context, inputs = Context(), (*arrays, *options)
    out, lse = made.operators.attention(*inputs)
    made.operators.attention.setup_context(ctx=context, inputs=inputs, output=(out, lse))
    return context, out, lse, Tensor(SHAPE, "bfloat16", str(arrays[0].device))


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("compiling", [False, True])
def test_a_call_that_is_differentiated_keeps_log_sum_exp(
    package: Recorded, made: Any, index: int, compiling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = tensors()
    arrays[index].requires_grad = True
    with monkeypatch.context() as patch:
        patch.setattr(made.torch, "compiling", compiling)
        out = made.fl.attention(*arrays)
    assert type(out) is Tensor and package.last.tensors.lse
    monkeypatch.setattr(made.torch, "grad", False)
    made.fl.attention(*arrays)
    assert not package.last.tensors.lse


@pytest.fixture(autouse=True)
def sizes_of_kernels(package: Recorded, made: Any) -> None:
    autograd, (q, _, v) = importlib.import_module("flashladder._autograd"), tensors()
    autograd._kernel_size.cache_clear()  # none may be asked for while the library fails
    assert autograd.kernel_size(q, v)
    package.launch.backward_problem.cache_clear()


def test_what_has_no_gradients_is_said_before_anything_runs(package: Recorded, made: Any) -> None:
    arrays, calls = tensors(), package.last.calls
    arrays[0].requires_grad = True
    with package.failing(UNSUPPORTED), pytest.raises(NotImplementedError, match="told to fail"):
        made.fl.attention(*arrays)
    assert package.last.calls == calls
    with pytest.raises(NotImplementedError, match=r"q requires a gradient, and caches have no backward"):
        made.fl.attention_with_cache(*arrays, Tensor((2,), "int32", "cuda:1"))
    context, _ = served(made, tensors(), table=Tensor((2, 1), "int32", "cuda:1"))
    with pytest.raises(NotImplementedError, match="caches have no backward"):
        made.operators.serve.backward(context, None, None)


def served(
    made: Any, arrays: list[Tensor], left: int = -1, ordered: bool = False, table: Any = None, sinks: Any = None
) -> tuple[Context, Tensor]:
    """The operator of packed sequences as autograd calls it, and O."""
    starts = [Tensor((3,), "int32", str(arrays[0].device)) for _ in "qk"]
    starts[0].values, starts[1].values = [-1, 2, 5], [0, 0, 70]
    others = (None, None, table, sinks, None, None)
    inputs = (*arrays, *starts, *others, 3, 6, True, 0.25, left, -1, 0.0, False, True, "best", ordered)
    context, output = Context(), (arrays[0], Tensor((4, 5), "float32", str(arrays[0].device)))
    made.operators.serve.setup_context(ctx=context, inputs=inputs, output=output)
    return context, output[0]


@pytest.mark.parametrize("ordered_by", ["", "PyTorch", "the call"])
def test_a_backward_call_hands_everything_on(
    package: Recorded, made: Any, ordered_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = tensors()
    context, out, lse, dout = differentiated(made, arrays, True, 0.25, True, "best", ordered_by == "the call", False)
    monkeypatch.setattr(made.torch, "ordered", ordered_by == "PyTorch")
    *gradients, _, _, _, _, _, _ = given_back = made.operators.attention.backward(context, dout, None)
    problem, given, asked = package.last.problem, package.last.tensors, package.gradients
    assert (problem.causal, problem.scale, problem.heads, problem.kv_heads) == (1, 0.25, 4, 2)
    inputs = [given.q, given.k, given.v, given.o, given.lse, asked.dout]
    assert inputs == [one.data_ptr() for one in (*arrays, out, lse, dout)]
    assert [asked.dq, asked.dk, asked.dv] == [one.data_ptr() for one in gradients]
    assert [one.shape for one in gradients] == [SHAPE, KV_SHAPE, KV_SHAPE]
    assert (asked.dk_strides.batch, asked.dk_strides.seq, asked.dk_strides.head) == (7 * 128, 128, 64)
    assert asked.deterministic == bool(ordered_by) and given.workspace and package.last.stream == 0x5001
    assert given_back[3:] == (None,) * 6 and not context.materialized


PACKED = (5, 4, 64), (7, 2, 64), (7, 2, 64)


@pytest.mark.parametrize("ordered_by", ["", "PyTorch", "the call"])
def test_packed_sequences_are_one_call(
    package: Recorded, made: Any, ordered_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host reads no offset: it hands on where they are."""
    arrays = [Tensor(shape, "bfloat16", "cuda:1") for shape in PACKED]
    context, out = served(made, arrays, ordered=ordered_by == "the call")
    calls, dout = package.last.calls, Tensor(PACKED[0], "bfloat16", "cuda:1")
    monkeypatch.setattr(made.torch, "ordered", ordered_by == "PyTorch")
    dq, dk, dv, *rest = made.operators.serve.backward(context, dout, None)
    problem, given, asked = package.last.problem, package.last.tensors, package.gradients
    assert package.last.calls == calls + 1 and rest == [None] * 19
    assert (problem.batch, problem.seq_q, problem.seq_k, problem.causal, problem.scale) == (2, 3, 6, 1, 0.25)
    assert (problem.arrays, problem.total_q, problem.total_k) == (3, 5, 7)
    assert [given.q, given.o, asked.dout, asked.dq] == [one.data_ptr() for one in (arrays[0], out, dout, dq)]
    assert [given.k, given.v, asked.dk, asked.dv] == [one.data_ptr() for one in (*arrays[1:], dk, dv)]
    starts = context.saved_tensors[5:7]
    assert [given.cu_seqlens_q, given.cu_seqlens_k] == [one.data_ptr() for one in starts]
    assert asked.deterministic == bool(ordered_by) and [one.shape for one in (dq, dk, dv)] == list(PACKED)
    assert given.workspace and (asked.dk_strides.seq, asked.dk_strides.head) == (2 * 64, 64)


def test_a_call_on_packed_sequences_is_checked_and_keeps_log_sum_exp(package: Recorded, made: Any) -> None:
    arrays = [Tensor(shape, "bfloat16", "cuda:1") for shape in PACKED]
    starts = [Tensor((3,), "int32", "cuda:1") for _ in "qk"]
    arrays[1].requires_grad = True
    made.fl.attention_varlen(*arrays, *starts, 3, 7)
    assert package.last.tensors.lse
    package.launch.backward_problem.cache_clear()
    calls, package.status.value = package.last.calls, UNSUPPORTED
    try:
        with pytest.raises(NotImplementedError, match="told to fail"):
            made.fl.attention_varlen(*arrays, *starts, 3, 7)
    finally:
        package.status.value = 0
    assert package.last.calls == calls
    made.fl.attention_varlen(*arrays, *starts, 3, 7, window=(3, 0))
    assert package.last.tensors.lse and package.last.problem.window_left == 3
    context, _ = served(made, arrays)
    context.refused = "reads log-sum-exp"
    with pytest.raises(NotImplementedError, match="reads log-sum-exp"):
        made.operators.serve.backward(context, None, None)


def test_windows_soft_caps_lengths_and_sinks_are_handed_on(package: Recorded, made: Any) -> None:
    """A gradient of sinks is at the position of sinks, by both ways."""
    arrays, sinks = [Tensor(shape, "bfloat16", "cuda:1") for shape in PACKED], Tensor((4,), "float32", "cuda:1")
    context, out = served(made, arrays, 5, sinks=sinks)
    found = made.operators.serve.backward(context, Tensor(PACKED[0], "bfloat16", "cuda:1"), None)
    gradients, dsinks = found[:3], found[8]
    problem, given, asked = package.last.problem, package.last.tensors, package.gradients
    assert (problem.windowed, problem.window_left, problem.window_right, problem.arrays) == (1, 5, -1, 3 + 32)
    assert given.sinks == sinks.data_ptr() and asked.dsinks == dsinks.data_ptr() and given.o == out.data_ptr()
    assert [asked.dq, asked.dk, asked.dv] == [one.data_ptr() for one in gradients]
    q, k, v = tensors()
    q.requires_grad, lengths = True, Tensor((2,), "int32", "cuda:1")
    made.fl.attention(q, k, v, seqlens_k=lengths, softcap=30.0, window=(4, -1))
    problem = package.last.problem
    assert (problem.arrays, problem.softcap, problem.window_left) == (8, 30.0, 4) and package.last.tensors.lse


def test_host_memory_has_no_workspace(package: Recorded, made: Any) -> None:
    context, _, _, dout = differentiated(made, tensors("cpu"), False, None, True, "best", False, False)
    made.operators.attention.backward(context, dout, None)
    assert package.last.tensors.workspace is None and package.last.stream is None


def test_log_sum_exp_is_needed(made: Any) -> None:
    context, _, _, dout = differentiated(made, tensors(), False, None, False, "best", False, False)
    with pytest.raises(NotImplementedError, match="the backward pass reads log-sum-exp, and return_lse is False"):
        made.operators.attention.backward(context, dout, None)


def test_strides(package: Recorded, made: Any) -> None:
    """A gradient has its tensor's layout if a kernel takes that; dout is copied if its layout differs from O's."""
    q = Tensor((2, 4, 5, 64), "bfloat16", "cuda:1").transpose(1, 2)
    k = Tensor(KV_SHAPE, "bfloat16", "cuda:1").as_strided(KV_SHAPE, (0, 128, 64, 1))
    context, out, _, _ = differentiated(made, [q, k, tensors()[2]], False, None, True, "best", False, False)
    dout = Tensor((2, 4, 5, 64), "bfloat16", "cuda:1").transpose(1, 2)
    dq, dk, *_ = made.operators.attention.backward(context, dout, None)
    assert dq.stride() == q.stride() and dk.stride() == (7 * 128, 128, 64, 1)
    assert package.gradients.dq_strides.seq == 64 and package.gradients.dk_strides.batch == 7 * 128
    assert package.gradients.dout != dout.data_ptr() and out.stride() == (5 * 256, 256, 64, 1)


def test_the_operator_of_the_gradients_knows_its_results_without_memory(package: Recorded, made: Any) -> None:
    calls, operator = package.last.calls, made.operators.attention_backward
    arrays = tensors("meta")
    found = operator.fake(arrays[0], *arrays, arrays[0], Tensor((2, 4, 5), "float32", "meta"), False, None, False)
    assert [one.shape for one in found] == [SHAPE, KV_SHAPE, KV_SHAPE] and package.last.calls == calls
    assert operator.name == "flashladder::attention_backward" and tuple(operator.mutates_args) == ()


def test_it_takes_the_place_of_the_backward_pass_of_flash_attention(package: Recorded, made: Any) -> None:
    made.fl.register()
    made.torch.originals.clear()
    registration = made.torch.implementations["flashladder"]()
    name = "_scaled_dot_product_flash_attention_backward"
    assert registration.library.functions[name] == (registration.backward, "CUDA", True)
    query, key, value, out, dout = (
        Tensor((2, heads, rows, 64), "bfloat16", "cuda:1") for heads, rows in ((4, 5), (2, 7), (2, 7), (4, 5), (4, 5))
    )
    lse = Tensor((2, 4, 5), "float32", "cuda:1")
    more = (None, None, 5, 7, 0.0, True, "seed", "offset")
    gradients = registration.backward("keys", dout, query, key, value, out, lse, *more, scale=0.5)
    assert [one.shape for one in gradients] == [query.shape, key.shape, value.shape] and not made.torch.originals
    problem = package.last.problem
    assert (problem.causal, problem.scale, problem.seq_q, problem.seq_k, problem.heads) == (1, 0.5, 5, 7, 4)
    assert package.gradients.dq_strides.head == 5 * 64
    dropped = (None, None, 5, 7, 0.1, True, "seed", "offset")
    assert registration.backward("keys", dout, query, key, value, out, lse, *dropped, scale=0.5) == "PyTorch's own"
    package.status.value = UNSUPPORTED
    try:
        assert registration.backward("keys", dout, query, key, value, out, lse, *more) == "PyTorch's own"
    finally:
        package.status.value = 0
    assert [one[0] for one in made.torch.originals] == [f"aten::{name}"] * 2
