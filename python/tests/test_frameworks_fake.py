"""What the tests make up of PyTorch, JAX and transformers is so in the real ones: both are asked the same.

The real ones are asked by `make check-frameworks`, or where they are installed.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import numpy as np
import pytest
from fake_frameworks import fake_jax, fake_torch, fake_transformers

FAKES = {"torch": fake_torch, "jax": fake_jax, "transformers": fake_transformers}


def asked(name: str, which: str) -> Any:
    if which == "fake":
        return FAKES[name]()
    return pytest.importorskip(name, reason=f"{name} is not installed: make check-frameworks")


both = pytest.fixture(params=["fake", "real"])


@both
def torch(request: pytest.FixtureRequest) -> Any:
    return asked("torch", request.param)


@both
def jax(request: pytest.FixtureRequest) -> Any:
    return asked("jax", request.param)


@both
def transformers(request: pytest.FixtureRequest) -> Any:
    return asked("transformers", request.param)


def keywords(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


def test_what_a_tensor_says(torch: Any) -> None:
    tensor = torch.empty((2, 5, 4, 64), dtype=torch.float16, device="cpu")
    assert (tensor.shape, tensor.stride(), tensor.stride(1)) == ((2, 5, 4, 64), (1280, 256, 64, 1), 256)
    assert tensor.ndim == tensor.dim() == 4 and not tensor.requires_grad
    assert tensor.dtype == torch.float16 and tensor.dtype in {torch.float16: 0}
    assert (str(tensor.dtype), f"{tensor.dtype}") == ("torch.float16", "torch.float16")
    assert (tensor.device.type, tensor.device.index, f"{tensor.device}") == ("cpu", None, "cpu")
    other = torch.empty((2, 5, 4, 64), dtype=torch.float16, device=tensor.device)
    assert tensor.data_ptr() != other.data_ptr() and tensor.device == other.device
    assert hash(tensor.device) == hash(other.device)
    assert type(tensor) is torch.Tensor and torch.Tensor.__module__ == "torch"
    far = torch.empty((1,), dtype=torch.bfloat16, device="meta").device
    assert (far.type, far.index, str(far)) == ("meta", None, "meta") and far != tensor.device


def test_views_and_new_tensors(torch: Any) -> None:
    tensor = torch.empty((2, 5, 4, 64), dtype=torch.float16, device="cpu")
    view = tensor.transpose(1, 2)
    assert (view.shape, view.stride(), view.data_ptr()) == ((2, 4, 5, 64), (1280, 64, 256, 1), tensor.data_ptr())
    assert torch.empty_like(view).stride() == view.stride()
    like = torch.empty_like(view, memory_format=torch.contiguous_format)
    assert (like.stride(), like.dtype) == ((1280, 320, 64, 1), torch.float16)
    sums = tensor.new_empty((2, 4, 5), dtype=torch.float32)
    assert (sums.shape, sums.dtype, sums.device) == ((2, 4, 5), torch.float32, tensor.device)
    assert torch.empty(0, dtype=torch.float32, device="cpu").shape == (0,)
    assert torch.empty((), dtype=torch.uint64, device="cpu").shape == ()
    strided = tensor.as_strided((2, 5), (3, 7))
    assert (strided.shape, strided.stride(), strided.data_ptr()) == ((2, 5), (3, 7), tensor.data_ptr())


def test_modes(torch: Any) -> None:
    assert torch.is_grad_enabled() and not torch.compiler.is_compiling()


def test_operators(torch: Any) -> None:
    def fake(q: Any, causal: bool = False) -> Any:
        return torch.empty_like(q)

    fake.__annotations__ = {"q": torch.Tensor, "causal": bool, "return": torch.Tensor}
    operator = torch.library.custom_op("flashladder_tests::fake", fake, mutates_args=())
    operator.register_fake(fake)
    operator.register_autograd(lambda context, gradient: None)
    tensor = torch.empty((2, 3), dtype=torch.float16, device="cpu")
    for result in (
        torch.ops.flashladder_tests.fake(tensor),
        torch.ops.flashladder_tests.fake(tensor, causal=True),
    ):
        assert result.shape == (2, 3) and result.data_ptr() != tensor.data_ptr()


def test_what_puts_a_kernel_behind_pytorchs_own(torch: Any) -> None:
    assert callable(torch.library.get_kernel("aten::add.Tensor", "CPU").call_boxed)
    assert {"with_keyset"} <= keywords(torch.library.Library.impl)
    assert {"register_fn"} <= keywords(torch.nn.attention.register_flash_attention_impl)


def test_streams(torch: Any) -> None:
    """Both take a device; there is no GPU to ask."""
    assert len(keywords(torch.cuda.current_stream)) == 1
    assert {"device"} <= keywords(torch.cuda.ExternalStream)


def test_the_operator_behind_pytorchs_own_has_our_arguments() -> None:
    torch = asked("torch", "real")
    fl = importlib.import_module("flashladder.torch")
    schema = torch.ops.aten._scaled_dot_product_flash_attention.default._schema
    ours = list(inspect.signature(fl._Registration.forward).parameters.values())[2:]
    assert [(one.name, one.kwarg_only) for one in schema.arguments] == [
        (one.name, one.kind is inspect.Parameter.KEYWORD_ONLY) for one in ours
    ]
    assert len(schema.returns) == 9  # out, log-sum-exp, two for packed sequences, two lengths, seed, offset, debug mask
    schema = torch.ops.aten._flash_attention_forward.default._schema
    read = ["key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal", "return_debug_mask"]
    assert [one.name for one in schema.arguments if not one.kwarg_only] == ["query", *read]
    options = ["scale", "window_size_left", "window_size_right", "seqused_k", "alibi_slopes", "block_table"]
    assert [one.name for one in schema.arguments if one.kwarg_only] == [*options, "num_splits"]
    assert len(schema.returns) == 5  # out, log-sum-exp, seed, offset, debug mask


# ---- JAX -------------------------------------------------------------------------------------------------------------


def test_what_the_foreign_function_is_made_with(jax: Any) -> None:
    assert {"platform"} <= keywords(jax.ffi.register_ffi_target)
    results = [jax.ShapeDtypeStruct((2, 3), jax.numpy.float16)]
    assert (results[0].shape, results[0].dtype) == ((2, 3), np.float16)
    assert callable(jax.ffi.ffi_call("flashladder_tests", results, vmap_method="sequential"))


def test_functions_with_arguments_that_are_no_arrays(jax: Any) -> None:
    function = jax.custom_vjp(lambda x, times: x * times, nondiff_argnums=(1,))
    function.defvjp(lambda x, times: (x * times, None), lambda times, kept, by: (by * times,))
    compiled = jax.jit(function, static_argnums=(1,))
    assert compiled(np.float32(3), 2) == 6


def test_types_of_arrays(jax: Any) -> None:
    known = (jax.numpy.float16, jax.numpy.bfloat16)
    assert np.dtype(np.float16) in known and np.dtype(np.float32) not in known
    assert np.dtype(known[1]) in known and jax.numpy.float32 == np.float32


# ---- transformers ----------------------------------------------------------------------------------------------------


def test_where_an_implementation_is_registered(transformers: Any) -> None:
    for interface in (transformers.AttentionInterface, transformers.AttentionMaskInterface):
        interface.register("flashladder tests", test_where_an_implementation_is_registered)
    load = transformers.modeling_utils.lazy_import_flash_attention
    assert next(iter(inspect.signature(load).parameters)) == "implementation"


def test_layers_and_masks_are_asked_with_our_arguments() -> None:
    asked("torch", "real")
    asked("transformers", "real")
    ours = importlib.import_module("flashladder.transformers")
    theirs = importlib.import_module("transformers.integrations.sdpa_attention").sdpa_attention_forward
    assert keywords(theirs) <= keywords(ours.attention_forward) | set(ours.UNSERVED)
    sdpa_mask = importlib.import_module("transformers.masking_utils").sdpa_mask
    assert keywords(ours.attention_mask) - {"kwargs"} <= keywords(sdpa_mask)
