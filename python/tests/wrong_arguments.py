"""Wrong values of every argument of a function, made from right ones, and what an error must say about each.

    found = unexplained(flashladder.attention, {"q": q, "k": k, "v": v, "causal": True})

A wrong value raises a TypeError, a ValueError or a NotImplementedError, which names the argument, or the axis that does
not fit, and has one of some words: the value, or the fact about an array that is wrong.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Arguments = dict[str, Any]
Wrong = tuple[str, Any, tuple[str, ...]]  # kind of mistake, value, words of which the error has one
ERRORS: tuple[type[Exception], ...] = (TypeError, ValueError, NotImplementedError)
NO_ARGUMENT: list[Any] = ["text", b"x", [1.5, object()], {}, object(), 3 + 4j]
# An error about these may name the axis or the other argument that does not fit.
TENSORS = ("q", "k", "v", "k_cache", "v_cache", "k_new", "v_new", "query", "key", "value", "qkv", "kv", "num_heads_q")
AXES = ("heads", "d_head", "d_head_v", "batch of", "queries")


def shown(value: Any) -> tuple[str, ...]:
    return (type(value).__name__, repr(value))


def wrong_values(right: Any) -> Iterator[Wrong]:
    """`right` is a value of the argument that the function computes with, or None."""
    for value in NO_ARGUMENT:
        if not (isinstance(right, str) and isinstance(value, str)):
            yield "type", value, shown(value)
    values: tuple[Any, ...] = ()
    if hasattr(right, "shape"):
        yield from _arrays(right)
    elif isinstance(right, bool):
        values = (2, -1, 0.5)
    elif isinstance(right, float):
        values = (math.nan, math.inf, -math.inf, 1e39)
    elif isinstance(right, int):
        values = (-1, 1.5, 2**31, True, 10**30)
    elif isinstance(right, tuple):
        values = ((1,), (1, 2, 3), (1.5, 2), ("a", 0), 3)
    elif isinstance(right, str):
        values = ("", "none such", "best\0", 7)
    yield from (("value", value, shown(value)) for value in values)


def _arrays(right: Any) -> Iterator[Wrong]:
    shape, dtype = tuple(right.shape), str(right.dtype).rpartition(".")[2]
    whole, of_torch = dtype == "int32", hasattr(right, "is_meta")
    for other in ("float64", "int64", "uint8") if of_torch or isinstance(right, np.ndarray) else ("int8", "uint8"):
        if dtype != other:
            yield "dtype", cast(right, other), (other,)
    for wrong in (right[None], right[0]):
        yield "dimensions", wrong, (*shapes(wrong), *shown(wrong)[:1])
    for axis in range(len(shape)):
        wrong = padded(right, axis, 1)
        yield f"axis {axis}", wrong, (*shapes(wrong), str(wrong.shape[axis]))
    if not whole and shape[-1] > 16 and (of_torch or isinstance(right, np.ndarray)):
        yield "stride", padded(right, len(shape) - 1, shape[-1])[..., ::2], ("stride",)
    if of_torch:
        yield "device", right.to("meta"), ("meta",)
        yield "package", np.zeros(shape, np.int32 if whole else np.float16), ("ndarray",)
    if whole:
        yield from (("value", right * 0 + value, (str(value),)) for value in (-1, 10**6))


def shapes(array: Any) -> tuple[str, ...]:
    return str(tuple(array.shape)), str(list(array.shape))


def cast(array: Any, dtype: str) -> Any:
    if not hasattr(array, "is_meta"):
        return array.astype(dtype)
    import torch

    return array.to(getattr(torch, dtype))


def padded(array: Any, axis: int, more: int) -> Any:
    """Zeros with so many more elements along an axis."""
    shape = [size + more * (i == axis) for i, size in enumerate(array.shape)]
    if hasattr(array, "is_meta"):
        return array.new_zeros(shape)
    made = np.zeros(shape, np.float32)
    if isinstance(array, np.ndarray):
        return made.astype(array.dtype)
    import jax.numpy as jnp

    return jnp.asarray(made).astype(array.dtype)


def parameters(function: Callable[..., Any]) -> list[str]:
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, one in inspect.signature(function).parameters.items() if one.kind in named]


def unexplained(
    function: Callable[..., Any],
    arguments: Arguments,
    accepted: dict[str, str] | None = None,
    errors: tuple[type[Exception], ...] = ERRORS,
) -> list[str]:
    """A line for each wrong value that is accepted or whose error does not explain it; `accepted` has exempt kinds."""
    function(**arguments)
    found = []
    for name in dict.fromkeys([*arguments, *parameters(function)]):
        names = (name, *AXES) if name in TENSORS else (name,)
        for kind, wrong, words in wrong_values(arguments.get(name)):
            if kind in (accepted or {}).get(name, "").split(", "):
                continue
            value = f"{name} = {shown(wrong)[0]} {getattr(wrong, 'shape', wrong)!r} {getattr(wrong, 'dtype', '')}: "
            try:
                function(**arguments | {name: wrong})
            except errors as error:
                said = str(error)
                if not any(re.search(rf"(?<!\w){one}(?!\w)", said) for one in names):
                    found.append(f"{value}the error does not name it: {type(error).__name__}: {said}")
                elif name in arguments and not any(one in said for one in words):  # else another rule may come first
                    found.append(f"{value}the error says none of {words}: {said}")
                elif not re.search(r": .", said):
                    found.append(f"{value}the error says no rule: {said}")
            except Exception as error:
                found.append(f"{value}{type(error).__name__}: {error}")
            else:
                found.append(f"{value}accepted ({kind})")
    return found
