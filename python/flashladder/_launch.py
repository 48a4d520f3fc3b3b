"""Problems of plain numbers and addresses, forward and backward: the last step before the library.

    wanted = problem("bf16", device, shape, strides, causal, scale, "best")
    forward(ctypes.addressof(wanted), (q, k, v, o, lse), arrays, stream)

Strides are (batch, seq, head) in elements. The caller keeps the tensors alive until the GPU is done with them.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from flashladder._library import (
    ARRAYS,
    DEVICE_MEMORY,
    DTYPES,
    HOST_MEMORY,
    LIBRARY,
    Gradients,
    Problem,
    Strides,
    Support,
    Tensors,
    check,
    handle,
)
from flashladder._options import scale_of

Steps = Sequence[int]
NO_ARRAYS = (0,) * len(ARRAYS)
SIZES = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "d_head")
LARGEST = 2**31 - 1

_forward = LIBRARY.fl_forward
_size = ctypes.sizeof(Tensors)
_size_of_gradients = ctypes.sizeof(Gradients)
_gradients = struct.Struct("5N9q2iN").pack
_tensors = struct.Struct("22N").pack  # struct Tensors as bytes: a third of the time that filling a ctypes struct takes


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
    d_head_v = fields.get("d_head_v", d_head)
    rows = ((of_q, d_head), (of_k, d_head), (of_k, d_head_v), (of_q, d_head_v))
    for name, (sizes, elements), steps in zip("qkvo", rows, strides):
        setattr(made, name, Strides(*read_steps(name, sizes, steps, elements)))
    for name, value in more:
        setattr(made, name, Strides(*value) if name in ("bias", "block_mask") else value)
    return made


def read_steps(name: str, sizes: Steps, steps: Steps, d_head: int) -> list[int]:
    """The steps with d_head for those that are not read. Three zeros would mean a contiguous tensor to the library."""
    read = [step if size > 1 else d_head for size, step in zip(sizes, steps)]
    if not any(read) and d_head:
        raise ValueError(f"{name} has the strides 0, 0 and 0 along batch, seq and head: copy it to a contiguous one")
    return read


def forward(problem: int, addresses: Sequence[int], arrays: Sequence[int], stream: int) -> None:
    """Run the problem at an address. `addresses` are those of q, k, v, O and log-sum-exp, `arrays` those of ARRAYS; an
    address of 0 means that there is none. ValueError: an argument is wrong. NotImplementedError: no version computes
    the problem. RuntimeError: the GPU or the emulator fails."""
    status = _forward(handle(), problem, _tensors(_size, *addresses, 0, *arrays), stream)
    if status:
        check(status)


class Backward(NamedTuple):
    """A backward pass: everything that does not depend on addresses."""

    problem: Problem
    address: int  # of the problem, which this tuple keeps alive
    workspace_bytes: int  # of device memory; 0 for host memory
    sizes: tuple[Steps, Steps]  # (batch, rows, heads) of q and of k, one sample where sequences are packed
    d_head: int


@functools.lru_cache(maxsize=1024)
def backward_problem(*arguments: Any) -> Backward:
    """The backward pass of problem(). NotImplementedError, Unavailable: no kernel computes it."""
    wanted, support = problem(*arguments), Support(size=ctypes.sizeof(Support))
    address = ctypes.addressof(wanted)
    check(LIBRARY.fl_query_backward(handle(), address, ctypes.addressof(support)))
    sizes = ((wanted.batch, wanted.seq_q, wanted.heads), (wanted.batch, wanted.seq_k, wanted.kv_heads))
    if wanted.total_k:
        sizes = ((1, wanted.total_q, wanted.heads), (1, wanted.total_k, wanted.kv_heads))
    return Backward(wanted, address, int(support.workspace_bytes), sizes, wanted.d_head)


@functools.lru_cache(maxsize=1024)
def _steps_of_gradients(sizes: tuple[Steps, Steps], strides: tuple[Steps, ...], d_head: int) -> list[int]:
    """Strides of dq, dk and dv, one after another. `sizes` are those of q and k."""
    named = zip(("dq", "dk", "dv"), (sizes[0], sizes[1], sizes[1]), strides)
    return [step for name, size, steps in named for step in read_steps(name, size, steps, d_head)]


def backward(
    wanted: Backward,
    tensors: Sequence[int],
    dout: int,
    gradients: Sequence[int],
    strides: tuple[Steps, ...],
    arrays: Sequence[int] = NO_ARRAYS,
    deterministic: bool = False,
    stream: int = 0,
) -> None:
    """dq, dk and dv, and with a fourth address dsinks, at the addresses `gradients`, with steps (batch, seq, head) in
    elements; dout has o's strides.

    `tensors` are the addresses of q, k, v, o, log-sum-exp and the workspace, `arrays` those of ARRAYS. ValueError: an
    argument is wrong. RuntimeError: the GPU or the emulator fails.
    """
    steps = _steps_of_gradients(wanted.sizes, strides, wanted.d_head)
    dsinks = gradients[3] if len(gradients) > 3 else 0
    made = _gradients(_size_of_gradients, dout, *gradients[:3], *steps, bool(deterministic), 0, dsinks)
    check(LIBRARY.fl_backward(handle(), wanted.address, _tensors(_size, *tensors, *arrays), made, stream))
