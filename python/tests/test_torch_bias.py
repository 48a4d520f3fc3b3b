"""Masks, biases and other sizes of heads from PyTorch, on the CPU or a GPU."""

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed, and make check does without it")
import flashladder.torch as fl  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def made(d_head: int, heads: int = 2, kv_heads: int = 2, keys: int = 50) -> Any:
    """query, key and value, [batch, heads, seq, d_head]."""
    torch.manual_seed(d_head)
    shapes = ((2, heads, 40, d_head), (2, kv_heads, keys, d_head), (2, kv_heads, keys, d_head))
    return tuple(torch.randn(shape).to(DEVICE, torch.bfloat16) for shape in shapes)


def pytorchs(query: Any, key: Any, value: Any, attn_mask: Any = None, enable_gqa: bool = False, **more: Any) -> Any:
    """PyTorch's function, also of a release without enable_gqa."""
    if enable_gqa:
        key, value = (one.repeat_interleave(query.shape[1] // key.shape[1], 1) for one in (key, value))
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask, **more)


def near(ours: Any, query: Any, key: Any, value: Any, **options: Any) -> bool:
    """Compared with PyTorch's function in float64."""
    mask = options.get("attn_mask")
    if mask is not None and mask.dtype != torch.bool:
        options["attn_mask"] = mask.double()
    expected = pytorchs(*(one.double() for one in (query, key, value)), **options)
    return bool((ours.double() - expected).abs().max() < 0.03)


@pytest.mark.parametrize("d_head", [40, 72, 80])
@torch.no_grad()
def test_sizes_of_heads(d_head: int) -> None:
    tensors = made(d_head, keys=40)
    for causal in (False, True):
        assert near(fl.scaled_dot_product_attention(*tensors, is_causal=causal), *tensors, is_causal=causal)


@pytest.mark.parametrize("d_head", [72, 264])
def test_gradients_of_other_sizes(d_head: int) -> None:
    """By a kernel with longer rows, and by operations of PyTorch, whose bits may depend on the batch."""
    inputs = [one.requires_grad_() for one in made(d_head)]
    twins = [one.detach().double().requires_grad_() for one in inputs]
    found = torch.autograd.grad(fl.scaled_dot_product_attention(*inputs).sum(), inputs)
    expected = torch.autograd.grad(pytorchs(*twins).sum(), twins)
    assert all((one.double() - other).norm() < 0.01 * other.norm() for one, other in zip(found, expected, strict=True))
    if d_head == 264:
        with pytest.raises(NotImplementedError, match="'batch' with d_head 264: gradients"):
            fl.attention(*inputs, deterministic="batch")


@pytest.mark.parametrize("shape", [(2, 4, 40, 50), (2, 1, 1, 50), (40, 50)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float32])
@torch.no_grad()
def test_masks_of_all_types_and_shapes(dtype: Any, shape: tuple[int, ...]) -> None:
    tensors = made(64, heads=4)
    mask = (torch.rand(shape) > 0.4 if dtype == torch.bool else torch.randn(shape)).to(DEVICE, dtype)
    options = {"attn_mask": mask, "enable_gqa": True}
    assert near(fl.scaled_dot_product_attention(*tensors, **options), *tensors, **options)


@torch.no_grad()
def test_torch_compile_traces_a_mask() -> None:
    tensors = made(72)
    mask = torch.rand(40, 50, device=DEVICE) > 0.4
    compiled = torch.compile(fl.scaled_dot_product_attention, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*tensors, mask), fl.scaled_dot_product_attention(*tensors, mask))


@torch.no_grad()
def test_a_mask_for_packed_sequences_and_caches() -> None:
    query, key, value = (one.transpose(1, 2) for one in made(64))
    bias = torch.randn(2, 1, 40, 50, device=DEVICE, dtype=torch.bfloat16)
    expected = fl.attention(query, key, value, bias=bias)
    lengths = torch.tensor([50, 50], dtype=torch.int32, device=DEVICE)
    assert torch.equal(fl.attention_with_cache(query, key, value, lengths, bias=bias), expected)
    starts = [torch.tensor([0, n, 2 * n], dtype=torch.int32, device=DEVICE) for n in (40, 50)]
    rows = [one.flatten(0, 1) for one in (query, key, value)]
    packed = fl.attention_varlen(*rows, *starts, 40, 50, bias=bias)
    assert torch.equal(packed, expected.flatten(0, 1))


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16])
def test_gradients_with_a_mask(dtype: Any) -> None:
    """Those of PyTorch, also in torch.compile, for sizes of heads that no backward kernel has."""
    leaves = [one.requires_grad_() for one in made(40, heads=4)]
    torch.manual_seed(1)
    mask = (torch.rand(2, 1, 40, 50) > 0.4 if dtype == torch.bool else torch.randn(4, 40, 50)).to(DEVICE, dtype)
    if dtype != torch.bool:
        leaves.append(mask.requires_grad_())
    weights = torch.randn(2, 4, 40, 40, device=DEVICE)

    def learn(function: Any, *inputs: Any) -> Any:
        given = mask if dtype == torch.bool else inputs[3]
        return torch.autograd.grad((function(*inputs[:3], given, enable_gqa=True) * weights).sum(), inputs)

    found = learn(fl.scaled_dot_product_attention, *leaves)
    twins = [one.detach().double().requires_grad_() for one in leaves]
    expected = learn(pytorchs, *twins)
    for one, other in zip(found, expected, strict=True):
        assert (one.double() - other).norm() < 8e-3 * other.norm()
    compiled = torch.compile(fl.scaled_dot_product_attention, fullgraph=True, backend="aot_eager")
    assert all(torch.equal(*pair) for pair in zip(learn(compiled, *leaves), found, strict=True))


def test_gradients_with_a_bias_that_must_not_depend_on_the_batch_are_refused() -> None:
    query, key, value = (one.transpose(1, 2).requires_grad_() for one in made(64))
    given = {"bias": torch.ones(40, 50, device=DEVICE), "deterministic": "batch"}
    with pytest.raises(NotImplementedError, match=r"deterministic='batch' with bias: .* pass deterministic=True"):
        fl.attention(query, key, value, **given)
