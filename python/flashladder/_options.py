"""The arguments of a call that are no arrays, checked and in Python's own types.

chosen = options(causal=True, window=(127, 0), return_lse=True)
chosen.window
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, NoReturn

from flashladder._frameworks import DTYPES, E4M3

# Arguments of other packages, and what to use instead.
ELSEWHERE = {
    "softmax_scale": "here it is scale",
    "sm_scale": "here it is scale",
    "is_causal": "here it is causal, with the mask aligned to the bottom right",
    "return_attn_probs": "here it is return_lse",
    "return_softmax_lse": "here it is return_lse",
    "enable_gqa": "heads that share K and V are recognized by the shape: leave it out",
    "attn_mask": "here it is bias, which may be bool",
    "mask": "here it is bias, which may be bool; block_mask hides whole blocks",
    "window_size": "here it is window",
    "s_aux": "here it is sinks",
    "seqused_q": "here it is seqlens_q",
    "seqused_k": "here it is seqlens_k",
    "cache_seqlens": "here it is seqlens_k",
    "k": "here it is k_new, next to v_new",
    "rotary_cos": "nothing is rotated: rotate q and k_new before the call",
    "num_splits": "here it is deterministic='batch' for splits that the batch does not change",
    "generator": "flashladder.torch has it; here it is rng_state, seed and offset",
    "return_max_logit": "here it is return_max_logits",
    "device": "the call runs on the device of the arrays: leave it out",
}

BEYOND_SINGLE = (2 - 2.0**-24) * 2.0**127  # from here on fp32 rounds to infinity
BELOW_SINGLE = 2.0**-150  # and up to here to 0

ARGUMENT_ERRORS = (TypeError, ValueError, NotImplementedError)


class Options(NamedTuple):
    """The arguments that are no arrays, checked."""

    causal: bool = False
    scale: float | None = None
    window: tuple[int, int] | None = None  # left, right; -1: no end
    softcap: float = 0.0
    batch_invariant: bool = False
    return_lse: bool = False
    version: str = "best"
    accurate: bool = False  # this and the following belong to attention_e4m3()
    scale_keys: int = 0
    dtype: str | None = None  # of O where q is e4m3
    ordered: bool = False  # gradients have the same bits in every run
    return_max_logits: bool = False
    dropout_p: float = 0.0
    block_size: tuple[int, int] = (128, 128)  # queries and keys of a block of block_mask


def options(
    causal: Any = False,
    scale: Any = None,
    window: Any = None,
    softcap: Any = None,
    deterministic: Any = None,
    return_lse: Any = False,
    version: Any = "best",
    return_max_logits: Any = False,
    dropout_p: Any = 0.0,
    block_size: Any = (128, 128),
) -> Options:
    """Check the arguments of all calls but attention_e4m3(). TypeError or ValueError names the wrong one."""
    if not isinstance(version, str):
        raise TypeError(f'version is {version!r}: "best" or a name such as "attention/wgmma" is needed')
    known = isinstance(deterministic, (int, str)) and deterministic in (False, True, "batch")
    if deterministic is not None and not known:
        raise ValueError(
            f'deterministic is {deterministic!r}: "batch" is needed for bits that do not depend on the batch, or True '
            "for gradients that have the same bits in every run"
        )
    if type(causal) is not bool or type(return_lse) is not bool:
        causal, return_lse = flag("causal", causal), flag("return_lse", return_lse)
    if type(return_max_logits) is not bool:
        return_max_logits = flag("return_max_logits", return_max_logits)
    if dropout_p != 0.0 or type(dropout_p) is not float:
        dropout_p = _probability(dropout_p)
    if scale is not None and type(scale) is not float:
        scale = number("scale", scale)
    return Options(
        causal,
        scale,
        None if window is None else _window(window),
        0.0 if softcap is None else _softcap(softcap),
        deterministic == "batch",
        return_lse,
        str(version),
        ordered=bool(deterministic),
        return_max_logits=return_max_logits,
        dropout_p=dropout_p,
        block_size=block_size if block_size == (128, 128) else _block_size(block_size),
    )


def options_of_e4m3(
    causal: Any, scale: Any, accurate: Any, return_lse: Any, scale_keys: Any, dtype: Any, o_scale: Any
) -> Options:
    """Check the arguments of attention_e4m3()."""
    chosen = options(causal=causal, scale=scale, return_lse=return_lse)
    if not isinstance(dtype, str) or dtype not in (*DTYPES, E4M3):
        raise ValueError(f"dtype is {dtype!r}: bfloat16, float16 or float8_e4m3fn is needed")
    if o_scale is not None and dtype != E4M3:
        raise ValueError(f"o_scale is for O of float8_e4m3fn: dtype is {dtype!r}")
    keys = size("scale_keys", scale_keys)
    return Options(
        chosen.causal,
        chosen.scale,
        return_lse=chosen.return_lse,
        accurate=flag("accurate", accurate),
        scale_keys=keys,
        dtype=dtype,
    )


def sides(window: Any) -> tuple[int, int]:
    """The two numbers of a window, from -1 on; a TypeError or ValueError otherwise."""
    try:
        left, right = (operator.index(side) for side in window)
    except (TypeError, ValueError):
        raise TypeError(f"window is {window!r}: (left, right) is needed, two integers, -1 for no end") from None
    if left < -1 or right < -1:
        raise ValueError(f"window is {window!r}: both must be at least -1, which is no end")
    return left, right


def _window(window: Any) -> tuple[int, int] | None:
    found = sides(window)
    return None if found == (-1, -1) else found


def _softcap(softcap: Any) -> float:
    found = number("softcap", softcap)
    if found is None or found == 0.0:
        return 0.0
    try:
        return scale_of(found)
    except ValueError:
        raise ValueError(f"softcap is {softcap}: it must be positive and finite, or None for no cap") from None


def _block_size(block_size: Any) -> tuple[int, int]:
    try:
        queries, keys = (operator.index(one) for one in block_size)
    except (TypeError, ValueError):
        raise TypeError(f"block_size is {block_size!r}: (queries, keys) is needed, two integers") from None
    for one in (queries, keys):
        if one < 128 or one > 1 << 30 or one & (one - 1):
            raise ValueError(f"block_size is {block_size!r}: both must be powers of two, 128 or more")
    return queries, keys


def _probability(dropout_p: Any) -> float:
    found = number("dropout_p", dropout_p)
    if found is None or not 0 <= found < 1 - 2.0**-25:  # which float32 rounds to 1
        raise ValueError(f"dropout_p is {dropout_p!r}: it must be at least 0 and less than 1")
    return found


def flag(name: str, value: Any) -> bool:
    """Also NumPy's, and 0 and 1."""
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise TypeError(f"{name} is {value!r}: True or False is needed")


def number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, (str, bytes, bool)) or not hasattr(type(value), "__float__"):
        raise TypeError(f"{name} is {value!r}: a number or None is needed")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} is {value!r}: a single number or None is needed") from None


def refuse_unknown(function: Callable[..., Any], unknown: Collection[str]) -> NoReturn:
    """TypeError for keyword arguments that a function does not have, with what they are called here."""
    import difflib
    import inspect

    name = next(iter(unknown))
    arguments = inspect.signature(function).parameters.values()
    known = [one.name for one in arguments if one.default is not one.empty]
    near = difflib.get_close_matches(name, known, 1)
    hint = ELSEWHERE.get(name) or (f"did you mean {near[0]}?" if near else f"it takes {', '.join(known)}")
    raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}: {hint}")


def renamed(error: Exception, **names: str) -> Exception:
    """The error with the names that a caller has for arguments: renamed(error, k="k_cache"). Names that are English
    words are replaced only where the message begins with them."""
    anywhere = "|".join(name for name in names if len(name) == 1 or "_" in name)
    pattern = rf"(?<![\w.'])({anywhere or '(?!)'})(?![\w'=])|^({'|'.join(names)})\b"
    return type(error)(re.sub(pattern, lambda found: names[found[0]], str(error)))


def naming(**names: str) -> Callable[[Any], Any]:
    """Decorate a function whose arguments have other names than ours, naming(q="query"), so that errors have them."""

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def call(*arguments: Any, **given: Any) -> Any:
            try:
                return function(*arguments, **given)
            except ARGUMENT_ERRORS as error:
                raise renamed(error, **names) from None

        return call

    return decorate


def scale_of(scale: float | None) -> float:
    """The scale as the library takes it, 0 for 1 / sqrt(d_head). ValueError unless it is a positive number in fp32."""
    if scale is None:
        return 0.0
    single = _single(scale)
    if single <= 0:
        raise ValueError(f"scale is {scale}: it must be positive")
    return single


def _single(scale: float) -> float:
    """A scale that fp32 rounds to neither infinity nor 0. torch.compile traces this, so it calls no ctypes."""
    if not abs(scale) < BEYOND_SINGLE or (scale and abs(scale) <= BELOW_SINGLE):
        raise ValueError(f"scale is {scale}: a finite number that float32 can hold is needed, or None")
    return scale


def size(name: str, value: Any) -> int:
    try:
        found = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = None
    if found is None:
        raise TypeError(f"{name} is {value!r}: an integer is needed")
    if not 0 <= found <= 1 << 30:
        raise ValueError(f"{name} is {value}: it must be from 0 to 2^30")
    return found


def number_of_scale(name: str, scale: Any) -> float:
    try:
        return scale_of(number(name, scale))
    except ValueError:
        raise ValueError(f"{name} is {scale}: it must be a positive number that float32 can hold") from None


def positive_scale(q: Any, chosen: Options) -> tuple[Any, Options]:
    """Q and options whose scale is positive, as kernels take it: the sign of another one goes into Q."""
    scale = chosen.scale
    if scale is None or not scale <= 0:
        return q, chosen
    if chosen.dtype is not None:
        raise ValueError(f"scale is {scale}: with q of float8_e4m3fn it must be positive, or None")
    _single(scale)
    # Older versions of torch.compile trace no _replace(), and no starred arguments of a named tuple.
    return -q if scale else q * 0, Options(
        chosen.causal,
        -scale if scale else 1.0,
        chosen.window,
        chosen.softcap,
        chosen.batch_invariant,
        chosen.return_lse,
        chosen.version,
        ordered=chosen.ordered,
        return_max_logits=chosen.return_max_logits,
        dropout_p=chosen.dropout_p,
        block_size=chosen.block_size,
    )
