"""Wrong arguments of the functions for PyTorch and JAX: an error that names the argument, as its caller does."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from wrong_arguments import ERRORS, unexplained

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed, and make check does without it")
import flashladder  # noqa: E402
from flashladder import flash_attn_interface as fa  # noqa: E402
from flashladder import torch as fl  # noqa: E402

Function = Callable[..., Any]


def half(*shape: int) -> Any:
    return torch.zeros(shape, dtype=torch.float16)


def int32(*values: Any) -> Any:
    return torch.tensor(values, dtype=torch.int32)


Q, K = half(2, 3, 4, 64), half(2, 5, 2, 64)
PAGES, TABLE, LENGTHS, STARTS = half(4, 16, 2, 64), int32([0], [1]), int32(5, 4), int32(0, 3, 6)
ROWS, KEYS = half(6, 4, 64), half(10, 2, 64)
OPTIONS: dict[str, Any] = {"causal": True, "scale": 0.5, "window": (3, 0), "softcap": 2.0, "deterministic": True}
OPTIONS |= {"return_lse": False, "version": "best", "sinks": torch.ones(4)}
FLASH: dict[str, Any] = {"dropout_p": 0.0, "softmax_scale": 0.5, "causal": True, "window_size": (3, 0), "softcap": 2.0}
FLASH |= {"deterministic": True, "return_attn_probs": False, "s_aux": torch.ones(4)}
PACKED: dict[str, Any] = {"q": ROWS, "cu_seqlens_q": STARTS, "max_seqlen_q": 3, "max_seqlen_k": 5}
PACKED_KEYS: dict[str, Any] = {"k": KEYS, "v": KEYS, "cu_seqlens_k": int32(0, 5, 10)}
PAGED = {"k": PAGES, "v": PAGES, "cu_seqlens_k": None, "block_table": TABLE}
THEIRS: dict[str, Any] = {"query": ROWS, "cu_seq_q": STARTS, "max_q": 3, "max_k": 5, "enable_gqa": True}
LEAF = Q.clone().requires_grad_()
BIASES: dict[str, Any] = {"bias": half(2, 4, 3, 5), "alibi_slopes": torch.ones(2, 4)}
LONGER_BIASES = {"bias": "dimensions", "alibi_slopes": "dimensions"}  # sizes that are repeated
# Right arguments, in which together all have a value, and what is no mistake.
CASES: dict[str, tuple[Function, dict[str, Any], dict[str, str]]] = {
    "attention": (
        fl.attention,
        {"q": Q, "k": K, "v": K, "seqlens_q": int32(3, 2), "seqlens_k": LENGTHS, **OPTIONS},
        {"q": "axis 1"},
    ),
    "attention, biases": (fl.attention, {"q": Q, "k": K, "v": K, **BIASES}, LONGER_BIASES),
    "attention, gradients": (fl.attention, {"q": LEAF, "k": K, "v": K, "causal": True, "scale": 0.5}, {"q": "axis 1"}),
    "attention, gradients and biases": (fl.attention, {"q": LEAF, "k": K, "v": K, **BIASES}, LONGER_BIASES),
    "attention_with_cache, biases": (
        fl.attention_with_cache,
        {"q": Q, "k_cache": K, "v_cache": K, "seqlens_k": LENGTHS, **BIASES},
        LONGER_BIASES | {"q": "axis 1"},
    ),
    "quantize_e4m3": (
        flashladder.quantize_e4m3,
        {"x": K, "scale": torch.ones(2)},
        {"x": "dtype, axis 0, axis 1, axis 3, dimensions, stride", "scale": "dtype"},
    ),
    "attention_varlen, gradients": (
        fl.attention_varlen,
        PACKED | PACKED_KEYS | OPTIONS | {"q": ROWS.clone().requires_grad_()},
        {"q": "axis 0"},
    ),
    "attention_varlen": (
        fl.attention_varlen,
        PACKED | PACKED_KEYS | OPTIONS | {"seqlens_q": int32(3, 2), "seqlens_k": LENGTHS},
        {"q": "axis 0"},
    ),
    "attention_varlen, pages": (
        fl.attention_varlen,
        PACKED | PAGED | {"seqlens_k": LENGTHS},
        {"q": "axis 0", "block_table": "axis 1"},
    ),
    "attention_with_cache": (
        fl.attention_with_cache,
        {"q": Q, "k_cache": PAGES, "v_cache": PAGES, "seqlens_k": LENGTHS, "block_table": TABLE}
        | {"k_new": half(2, 3, 2, 64), "v_new": half(2, 3, 2, 64), **OPTIONS},
        {"q": "axis 1", "block_table": "axis 1", "k_new": "stride", "v_new": "stride"},
    ),
    "varlen_attn": (
        fl.varlen_attn,
        THEIRS
        | {"key": KEYS, "value": KEYS, "cu_seq_k": int32(0, 5, 10), "seqused_k": LENGTHS, "scale": 0.5}
        | {"window_size": (3, 0), "num_splits": 1},
        {"query": "axis 0"},
    ),
    "varlen_attn, pages": (
        fl.varlen_attn,
        THEIRS | {"key": PAGES, "value": PAGES, "cu_seq_k": None, "seqused_k": LENGTHS, "block_table": TABLE},
        {"query": "axis 0, stride", "block_table": "axis 1"},
    ),
    "scaled_dot_product_attention": (
        fl.scaled_dot_product_attention,
        {"query": half(2, 4, 5, 64), "key": half(2, 2, 5, 64), "value": half(2, 2, 5, 64), "dropout_p": 0.0}
        | {"is_causal": True, "scale": 0.5, "enable_gqa": True},
        {},
    ),
    "scaled_dot_product_attention, mask": (
        fl.scaled_dot_product_attention,
        {"query": half(2, 4, 5, 64), "key": half(2, 4, 5, 64), "value": half(2, 4, 5, 64)}
        | {"attn_mask": torch.zeros(2, 4, 5, 5)},
        {"attn_mask": "dimensions"},
    ),
    "flash_attn_func": (
        fa.flash_attn_func,
        {"q": Q, "k": K, "v": K, "alibi_slopes": torch.ones(4), **FLASH},
        {"q": "axis 1", "v": "axis 3"},
    ),
    "flash_attn_kvpacked_func": (
        fa.flash_attn_kvpacked_func,
        {"q": Q, "kv": half(2, 5, 2, 2, 64)},
        {"q": "axis 1", "kv": "axis 1"},
    ),
    "flash_attn_qkvpacked_func": (
        fa.flash_attn_qkvpacked_func,
        {"qkv": half(2, 5, 3, 4, 64)},
        {"qkv": "axis 0, axis 1, axis 3, axis 4"},
    ),
    "flash_attn_qkvpacked_func, heads": (
        fa.flash_attn_qkvpacked_func,
        {"qkv": half(2, 5, 8, 64), "num_heads_q": 4},
        {"qkv": "axis 0, axis 1, axis 3"},
    ),
    "flash_attn_varlen_func": (
        fa.flash_attn_varlen_func,
        PACKED | PACKED_KEYS | FLASH | {"seqused_q": int32(3, 2), "seqused_k": LENGTHS},
        {"q": "axis 0", "v": "axis 2"},
    ),
    "flash_attn_varlen_func, pages": (
        fa.flash_attn_varlen_func,
        PACKED | PAGED | {"seqused_k": LENGTHS},
        {"q": "axis 0", "v": "axis 3", "block_table": "axis 1"},
    ),
    "flash_attn_varlen_kvpacked_func": (
        fa.flash_attn_varlen_kvpacked_func,
        PACKED | {"kv": half(10, 2, 2, 64), "cu_seqlens_k": int32(0, 5, 10)},
        {"q": "axis 0", "kv": "axis 0"},
    ),
    "flash_attn_varlen_qkvpacked_func": (
        fa.flash_attn_varlen_qkvpacked_func,
        {"qkv": half(6, 3, 4, 64), "cu_seqlens": STARTS, "max_seqlen": 3},
        {"qkv": "axis 0, axis 2, axis 3", "cu_seqlens": "axis 0"},
    ),
    "flash_attn_with_kvcache": (
        fa.flash_attn_with_kvcache,
        {"q": Q, "k_cache": half(4, 32, 2, 64), "v_cache": half(4, 32, 2, 64), "cache_seqlens": LENGTHS}
        | {"k": half(2, 3, 2, 64), "v": half(2, 3, 2, 64), "rotary_cos": torch.ones(32, 16), "causal": True}
        | {"rotary_sin": torch.ones(32, 16), "cache_batch_idx": int32(3, 1), "cache_leftpad": int32(1, 0)}
        | {"softmax_scale": 0.5, "window_size": (3, 0), "softcap": 2.0, "rotary_interleaved": True, "num_splits": 1}
        | {"return_softmax_lse": False, "rotary_seqlens": int32(5, 4), "s_aux": torch.ones(4)},
        {"q": "axis 1, stride", "k_cache": "axis 0, stride", "v_cache": "axis 0, stride", "k": "stride", "v": "stride"}
        | {"rotary_cos": "dtype", "rotary_sin": "dtype"},
    ),
    "flash_attn_with_kvcache, pages": (
        fa.flash_attn_with_kvcache,
        {"q": Q, "k_cache": PAGES, "v_cache": PAGES, "cache_seqlens": LENGTHS, "block_table": TABLE},
        {"q": "axis 1", "v_cache": "axis 3", "block_table": "axis 1"},
    ),
    "flash_attn_with_kvcache, packed": (
        fa.flash_attn_with_kvcache,
        {"q": ROWS, "k_cache": PAGES, "v_cache": PAGES, "cache_seqlens": LENGTHS, "page_table": TABLE}
        | {"cu_seqlens_q": STARTS, "max_seqlen_q": 3},
        {"q": "axis 0", "v_cache": "axis 3", "page_table": "axis 1"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_argument_is_explained(case: str) -> None:
    assert not unexplained(*CASES[case])


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (torch.nested.nested_tensor([Q[0], Q[1, :2]]), "q is a nested tensor: pass the rows of all sequences to"),
        (torch.nested.nested_tensor([Q[0]], layout=torch.jagged), "q is a nested tensor"),
        (Q.to_sparse(), "q has the layout torch.sparse_coo: a dense tensor is needed"),
    ],
)
def test_a_tensor_of_another_layout_is_named(made: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        fl.attention(made, K, K)


def arrays_of_jax(arguments: dict[str, Any]) -> dict[str, Any]:
    jax_numpy = pytest.importorskip("jax.numpy", reason="JAX is not installed")
    return {
        name: jax_numpy.asarray(one.numpy()) if isinstance(one, torch.Tensor) else one
        for name, one in arguments.items()
    }


@pytest.mark.parametrize("name", ["attention", "attention_varlen", "attention_with_cache"])
def test_a_wrong_argument_of_jax_is_explained(name: str) -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    from flashladder import jax as flj

    _, arguments, accepted = CASES[name]
    arguments = arrays_of_jax(arguments)
    for given in ("k_new", "v_new"):
        arguments.pop(given, None)  # arrays of JAX are not written
    errors = (*ERRORS, jax.errors.JaxRuntimeError)  # what a call finds when it runs
    if jax.default_backend() != "cpu":  # kernels read lengths and tables, and cut what is wrong
        lengths = [given for given, one in arguments.items() if str(getattr(one, "dtype", "")) == "int32"]
        accepted = accepted | {given: f"{accepted.get(given, '')}, value" for given in lengths}

    @functools.wraps(getattr(flj, name))
    def call(**given: Any) -> Any:
        return jax.block_until_ready(getattr(flj, name)(**given))

    assert not unexplained(call, arguments, accepted, errors)
