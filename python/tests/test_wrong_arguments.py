"""Wrong types, values, shapes and strides of every argument: an error that names the argument and the value."""

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from wrong_arguments import NO_ARGUMENT, parameters, unexplained

import flashladder

Function = Callable[..., Any]
E4M3 = ml_dtypes.float8_e4m3fn


def half(*shape: int) -> Any:
    return np.zeros(shape, np.float16)


def int32(*values: Any) -> Any:
    return np.array(values, np.int32)


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def e4m3(*shape: int) -> Any:
    return half(*shape).astype(E4M3)


Q, K = half(2, 3, 4, 64), half(2, 5, 2, 64)
PAGES, TABLE, LENGTHS = half(4, 16, 2, 64), int32([0], [1]), int32(5, 4)
OPTIONS: dict[str, Any] = {"causal": True, "scale": 0.5, "window": (3, 0), "softcap": 2.0, "deterministic": True}
OPTIONS |= {"return_lse": False, "version": "best", "return_max_logits": False, "dropout_p": 0.0}
OFFSETS: dict[str, Any] = {"cu_seqlens_q": int32(0, 3, 6), "max_seqlen_q": 3, "max_seqlen_k": 5}
PACKED = {"q": half(6, 4, 64), "k": half(10, 2, 64), "v": half(10, 2, 64), "cu_seqlens_k": int32(0, 5, 10)} | OFFSETS
LONGER = {"q": "axis 1"}  # sequences may have any number of queries
SCALES = {"q_scale": "dimensions", "k_scale": "dimensions", "v_scale": "dimensions", "o_scale": "dimensions"}
# Right arguments of each function, in which together all have a value, and what is no mistake.
CASES: dict[str, tuple[Function, dict[str, Any], dict[str, str]]] = {
    "attention": (flashladder.attention, {"q": Q, "k": K, "v": K, "out": half(2, 3, 4, 64), **OPTIONS}, {}),
    "lengths": (
        flashladder.attention,
        {"q": Q, "k": K, "v": K, "seqlens_q": int32(3, 2), "seqlens_k": LENGTHS, "sinks": ones(4)},
        LONGER,
    ),
    "biases": (
        flashladder.attention,
        {"q": Q, "k": K, "v": K, "bias": half(2, 4, 3, 5), "alibi_slopes": ones(2, 4)}
        | {"dropout_p": 0.5, "rng_state": np.array([1, 2], np.int64)}
        | {"block_mask": np.ones((2, 4, 1, 1), bool), "block_size": (128, 256)},
        {"alibi_slopes": "dimensions", "bias": "dimensions", "block_mask": "dtype, dimensions"},
    ),
    "packed": (
        flashladder.attention_varlen,
        PACKED | OPTIONS | {"seqlens_q": int32(3, 2), "seqlens_k": LENGTHS, "sinks": ones(4), "out": half(6, 4, 64)},
        {},
    ),
    "packed pages": (
        flashladder.attention_varlen,
        {"q": half(6, 4, 64), "k": PAGES, "v": PAGES, "seqlens_k": LENGTHS, "block_table": TABLE}
        | OFFSETS
        | {"cu_seqlens_k": None},
        {"q": "axis 0", "block_table": "axis 1"},
    ),
    "pages": (
        flashladder.attention_with_cache,
        {"q": Q, "k_cache": PAGES, "v_cache": PAGES, "seqlens_k": LENGTHS, "block_table": TABLE}
        | {"k_new": half(2, 3, 2, 64), "v_new": half(2, 3, 2, 64), "sinks": ones(4), "out": half(2, 3, 4, 64)}
        | OPTIONS,
        {"block_table": "axis 1", "k_new": "stride", "v_new": "stride"},
    ),
    "cache of e4m3": (
        flashladder.attention_with_cache,
        {"q": half(2, 3, 4, 128), "k_cache": e4m3(2, 16, 2, 128), "v_cache": e4m3(2, 16, 2, 128)}
        | {"seqlens_k": LENGTHS, "k_scale": ones(2), "v_scale": ones(2)},
        LONGER | SCALES,
    ),
    "e4m3": (
        flashladder.attention_e4m3,
        {"q": e4m3(2, 3, 4, 64), "k": e4m3(2, 5, 2, 64), "v": e4m3(2, 5, 2, 64), "seqlens_q": int32(3, 2)}
        | {"seqlens_k": LENGTHS, "causal": True, "scale": 0.5, "accurate": False, "return_lse": False}
        | {"q_scale": ones(4), "k_scale": ones(2), "v_scale": ones(2), "o_scale": ones(4), "dtype": "float8_e4m3fn"},
        LONGER | SCALES,
    ),
    "packed e4m3": (
        flashladder.attention_e4m3,
        {name: e4m3(*one.shape) if name in "qkv" else one for name, one in PACKED.items()},
        {"q": "axis 0"},
    ),
    "quantize": (
        flashladder.quantize_e4m3,
        {"x": K, "scale": ones(2)},
        {"x": "dtype, axis 0, axis 1, axis 3, dimensions, stride", "scale": "dtype"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_argument_is_explained(case: str) -> None:
    assert not unexplained(*CASES[case])


def test_what_would_run_is_false_with_a_reason_that_names_the_argument() -> None:
    for name in parameters(flashladder.supports):
        for wrong in NO_ARGUMENT:
            found = flashladder.supports(**{"q": Q, "k": K, "v": K} | {name: wrong})
            assert not found and name in found.reason, (name, wrong, found)


def test_what_would_run_has_the_arguments_of_the_call() -> None:
    of_call = set(parameters(flashladder.attention)) - {"out", "stream", "return_lse"}
    assert set(parameters(flashladder.supports)) == of_call
    masked = {"q": Q, "k": K, "v": K, "bias": np.ones((3, 5), bool), "alibi_slopes": ones(4)}
    assert (
        flashladder.supports(**masked).version
        and "(1, 1, 3, 6)" in flashladder.supports(**masked | {"bias": half(3, 6)}).reason
    )


def test_help_documents_every_argument() -> None:
    for function in (flashladder.attention, flashladder.attention_varlen, flashladder.attention_with_cache):
        said = f"{function.__doc__} {flashladder.attention.__doc__}"
        assert not [name for name in parameters(function) if not re.search(rf"\b{name}\b", said)], function.__name__


def test_the_longest_sequence_has_the_number_that_the_caller_gave() -> None:
    with pytest.raises(ValueError, match=r"cu_seqlens_k: sequence 0 has 5 rows, but max_seqlen_k is 0; raise it"):
        flashladder.attention_varlen(**PACKED | {"max_seqlen_k": 0})
    with pytest.raises(ValueError, match=r"cu_seqlens_q has the shape \(1, 3\): one dimension is needed"):
        flashladder.attention_varlen(**PACKED | {"cu_seqlens_q": int32([0, 3, 6])})
