"""Wrong arguments of every public function: an error that names the argument, and never one of Python itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import flashladder

Q, K = (np.zeros((2, rows, 2, 64), np.float16) for rows in (3, 5))
STARTS = np.array([0, 3, 6], np.int32)
BYTES = np.zeros((2, 5, 2, 64), ml_dtypes.float8_e4m3fn)
PACKED: dict[str, Any] = {"max_seqlen_q": 3, "max_seqlen_k": 3, "cu_seqlens_q": STARTS, "cu_seqlens_k": STARTS}
FUNCTIONS: dict[Callable[..., Any], dict[str, Any]] = {
    flashladder.attention: {"q": Q, "k": K, "v": K},
    flashladder.attention_varlen: {name: Q.reshape(6, 2, 64) for name in "qkv"} | PACKED,
    flashladder.attention_with_cache: {"q": Q, "k_cache": K, "v_cache": K, "seqlens_k": np.array([5, 4], np.int32)},
    flashladder.attention_e4m3: {"q": BYTES, "k": BYTES, "v": BYTES},
    flashladder.quantize_e4m3: {"x": K},
}
WRONG = ["text", b"x", [1.5, object()], {}, object(), np.zeros((1, 1, 1, 1, 1)), np.zeros(2, np.complex64)]
# These are checked with the arrays that they describe, which the message names instead.
INSTEAD = {"k_cache": "k", "v_cache": "v", "block_table": "k"}
ARGUMENTS = [
    (function, name)
    for function in FUNCTIONS
    for name, one in inspect.signature(function).parameters.items()
    if one.kind is not one.VAR_KEYWORD
]


@pytest.mark.parametrize(("function", "name"), ARGUMENTS, ids=[f"{one[0].__name__}-{one[1]}" for one in ARGUMENTS])
def test_a_wrong_argument_is_named(function: Callable[..., Any], name: str) -> None:
    for wrong in WRONG:
        with pytest.raises((TypeError, ValueError, NotImplementedError)) as raised:
            function(**FUNCTIONS[function] | {name: wrong})
        said = str(raised.value)
        assert name in said or said.startswith(INSTEAD.get(name, name)), (wrong, said)


def test_what_would_run_is_false_with_a_reason_that_names_the_argument() -> None:
    for name, one in inspect.signature(flashladder.supports).parameters.items():
        for wrong in WRONG if one.kind is not one.VAR_KEYWORD else ():
            found = flashladder.supports(**{"q": Q, "k": K, "v": K} | {name: wrong})
            assert not found and name in found.reason, (name, wrong, found)


def test_q_is_named_where_lengths_or_sinks_are_given() -> None:
    for more in ({"seqlens_k": 3}, {"sinks": np.zeros(2, np.float32)}):
        with pytest.raises(TypeError, match="q is str"):
            flashladder.attention("text", K, K, **more)


def test_the_arguments_are_right_otherwise() -> None:
    for function, arguments in FUNCTIONS.items():
        function(**arguments)
