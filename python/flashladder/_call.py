"""Forward with plain numbers and addresses: what every front end of the package calls in the end.

    forward(q=address, k=..., v=..., o=..., lse=0, dtype="bf16", device=0, causal=True, scale=None,
            shape=(batch, heads, kv_heads, seq_q, seq_k, d_head), strides=(q_steps, k_steps, v_steps, o_steps))

Steps are (batch, seq, head) in elements. The caller keeps the tensors alive until the GPU is done with them.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from flashladder._library import DEVICE_MEMORY, DTYPES, HOST_MEMORY, LIBRARY, Problem, Strides, Tensors, check, handle

Steps = Sequence[int]
SIZES = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "d_head")
LARGEST = 2**31 - 1

# What other packages call an argument, or have beside ours, and what to do here.
ELSEWHERE = {
    "softmax_scale": "here it is scale",
    "sm_scale": "here it is scale",
    "is_causal": "here it is causal, with the mask aligned to the bottom right",
    "return_attn_probs": "here it is return_lse",
    "return_softmax_lse": "here it is return_lse",
    "enable_gqa": "heads that share K and V are recognised by the shape: leave it out",
    "attn_mask": "there is no mask but the causal one and windows",
    "window_size": "here it is window",
    "s_aux": "here it is sinks",
    "seqused_q": "here it is seqlens_q",
    "seqused_k": "here it is seqlens_k",
    "cache_seqlens": "here it is seqlens_k",
    "k": "here it is k_new, beside v_new",
    "rotary_cos": "nothing is rotated: rotate q and k_new before the call",
    "num_splits": "here it is deterministic='batch' for splits that the batch does not change",
    "alibi_slopes": "scores have no bias",
    "dropout_p": "there is no dropout",
    "device": "the arrays are computed where they lie: leave it out",
}

_forward = LIBRARY.fl_forward
_size = Tensors.cu_seqlens_q.offset  # of FL_ABI 2: without arrays
_size_served = ctypes.sizeof(Tensors)
_tensors_served = struct.Struct("17N").pack
_tensors = struct.Struct("7N").pack  # struct Tensors as bytes: a third of the time that filling a ctypes struct takes


def check_arrays(q: Any, k: Any, v: Any, dtypes: Collection[Any]) -> None:
    """What the shapes and types of three arrays say, which are known before there is memory. ValueError."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        if array.ndim != 4:
            raise ValueError(f"{name} has {array.ndim} dimensions, not 4: [batch, seq, heads, d_head]")
        if array.dtype not in dtypes:
            raise ValueError(f"{name} is {array.dtype}, not float16 or bfloat16")
        if array.dtype != q.dtype:
            raise ValueError(f"q is {q.dtype} and {name} is {array.dtype}: they must be of one type")
    if k.shape != v.shape:
        raise ValueError(f"k is {list(k.shape)} and v is {list(v.shape)}: they must have one shape")
    if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(f"q is {list(q.shape)} and k is {list(k.shape)}: batch and d_head must be the same")


def options(causal: Any, scale: Any, return_lse: Any, version: Any) -> tuple[bool, float | None, bool, str]:
    """The arguments that are no arrays, as Python's own types. TypeError for what is none of theirs."""
    if type(causal) is type(return_lse) is bool and type(version) is str and (scale is None or type(scale) is float):
        return causal, scale, return_lse, version
    if not isinstance(version, str):
        raise TypeError(f'version is {version!r}: "best" or a name such as "attention/wgmma" is needed')
    return _flag("causal", causal), _number("scale", scale), _flag("return_lse", return_lse), str(version)


def _flag(name: str, value: Any) -> bool:
    """Also NumPy's, and 0 and 1."""
    numpys = type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")
    if numpys or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise TypeError(f"{name} is {value!r}: True or False is needed")


def _number(name: str, value: Any) -> float | None:
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


def refuse_unknown(function: str, known: Collection[str], unknown: Collection[str]) -> NoReturn:
    """TypeError for keyword arguments that a function does not have, with what they are called here."""
    import difflib

    name = next(iter(unknown))
    near = difflib.get_close_matches(name, known, 1)
    hint = ELSEWHERE.get(name) or (f"did you mean {near[0]}?" if near else f"it takes {', '.join(known)}")
    raise TypeError(f"{function}() got an unexpected keyword argument {name!r}: {hint}")


def with_positive_scale(q: Any, scale: Any) -> tuple[Any, Any]:
    """q and a scale above 0 that give the same scores, because the kernels find maxima before they scale."""
    if not isinstance(scale, (int, float)) or not -math.inf < scale <= 0 or not hasattr(q, "__neg__"):
        return q, scale
    return (-q, -scale) if scale else (q * 0, 1.0)


def scale_of(scale: float | None) -> float:
    """The scale as the library takes it, 0 for 1 / sqrt(d_head). ValueError unless it is a positive number in fp32."""
    if scale is None:
        return 0.0
    single = ctypes.c_float(scale).value
    if not (single > 0 and math.isfinite(single)):
        raise ValueError(f"scale is {scale}: it must be a positive number that float32 can hold, or None")
    return single


@functools.lru_cache(maxsize=1024)
def problem(
    dtype: str,
    device: int | None,
    shape: tuple[int, ...],
    strides: tuple[Steps, ...],
    causal: bool,
    scale: float | None,
    version: str,
    config: str | None = None,
    more: tuple[tuple[str, Any], ...] = (),
) -> Problem:
    """The struct of a problem, which all calls with these arguments share: nobody writes to it.

    `more` has fields by name, those since FL_ABI 3.
    """
    for name, size in zip(SIZES, shape):
        if size > LARGEST:
            raise ValueError(f"{name} is {size}: at most {LARGEST}")
    if not version.isprintable():  # a zero byte would end it
        raise ValueError(f'version is {version!r}: "best" or a name such as "attention/wgmma" is needed')
    made = Problem(
        size=ctypes.sizeof(Problem),
        version=version.encode(),
        config=None if config is None else config.encode(),
        dtype=DTYPES[dtype],
        memory=HOST_MEMORY if device is None else DEVICE_MEMORY,
        device=-1 if device is None else device,
        causal=bool(causal),
        scale=scale_of(scale),
    )
    for name, size in zip(SIZES, shape):
        setattr(made, name, size)
    batch, heads, kv_heads, seq_q, seq_k, d_head = shape
    fields = dict(more)  # pages are samples of K and V, and packed sequences are rows of one
    of_q = (batch, fields.get("total_q", seq_q), heads)
    of_k = (fields.get("n_pages", batch), fields.get("page_rows", fields.get("total_k", seq_k)), kv_heads)
    for name, sizes, steps in zip("qkvo", (of_q, of_k, of_k, of_q), strides):
        setattr(made, name, Strides(*read_steps(name, sizes, steps, d_head)))
    for name, value in more:
        setattr(made, name, value)
    return made


def read_steps(name: str, sizes: Steps, steps: Steps, d_head: int) -> list[int]:
    """The steps with d_head for those that are not read. Three zeros would mean a contiguous tensor to the library."""
    read = [step if size > 1 else d_head for size, step in zip(sizes, steps)]
    if not any(read) and d_head:
        raise ValueError(f"{name} has the strides 0, 0 and 0 along batch, seq and head: copy it to a contiguous one")
    return read


def launch(problem: int, q: int, k: int, v: int, o: int, lse: int, stream: int) -> None:
    """Run the problem at an address. `lse` is 0 where it is not wanted, `stream` 0 for the default stream."""
    status = _forward(handle(), problem, _tensors(_size, q, k, v, o, lse, 0), stream)
    if status:
        check(status)


def launch_served(problem: int, addresses: Sequence[int], arrays: Sequence[int], stream: int) -> None:
    """The same with the addresses of q, k, v, o and log-sum-exp, and those of ARRAYS, 0 for none."""
    status = _forward(handle(), problem, _tensors_served(_size_served, *addresses, 0, *arrays), stream)
    if status:
        check(status)


def forward(
    *,
    q: int,
    k: int,
    v: int,
    o: int,
    lse: int,
    dtype: str,
    device: int | None,
    shape: tuple[int, ...],
    strides: tuple[Steps, ...],
    causal: bool,
    scale: float | None,
    version: str = "best",
    config: str | None = None,
    stream: int = 0,
) -> None:
    """O, and log-sum-exp where `lse` is an address. `device` is the ordinal of a GPU, or None for host memory.

    ValueError for a wrong argument, NotImplementedError where no version computes the problem, RuntimeError where the
    GPU or the emulator fails.
    """
    wanted = problem(dtype, device, shape, strides, causal, scale, version, config)
    launch(ctypes.addressof(wanted), q, k, v, o, lse, stream)
