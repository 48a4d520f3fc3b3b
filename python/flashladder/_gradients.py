"""Gradients with plain numbers and addresses, as _call has the forward pass.

    bytes = workspace_bytes(wanted)                   # of the workspace on a GPU; what the library lacks is raised
    backward(wanted, q=address, ..., dout=address, dq=address, ..., workspace=address)

`wanted` is a _call.problem(). The caller keeps the tensors alive until the GPU is done with them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from flashladder import _call
from flashladder._library import LIBRARY, Gradients, Problem, Strides, Support, Tensors, check, handle


def workspace_bytes(wanted: Problem) -> int:
    """Bytes of device memory; 0 for host memory. NotImplementedError, Unavailable: no kernel computes them."""
    support = Support(size=ctypes.sizeof(Support))
    check(LIBRARY.fl_query_backward(handle(), ctypes.addressof(wanted), ctypes.addressof(support)))
    return int(support.workspace_bytes)


def backward(
    wanted: Problem,
    *,
    q: int,
    k: int,
    v: int,
    o: int,
    lse: int,
    dout: int,
    gradients: Sequence[int],
    strides: Sequence[Sequence[int]],
    offsets: tuple[int, int] = (0, 0),
    workspace: int = 0,
    deterministic: bool = False,
    stream: int = 0,
) -> None:
    """dq, dk and dv at the addresses `gradients`, with steps (batch, seq, head) in elements; dout lies as o does.

    `offsets` are the addresses of cu_seqlens_q and cu_seqlens_k, where sequences are packed.

    ValueError: an argument is wrong. RuntimeError: the GPU or the emulator fails.
    """
    tensors = Tensors(size=ctypes.sizeof(Tensors), q=q, k=k, v=v, o=o, lse=lse, workspace=workspace)
    tensors.cu_seqlens_q, tensors.cu_seqlens_k = offsets
    dq, dk, dv = gradients
    made = Gradients(size=ctypes.sizeof(Gradients), dout=dout, dq=dq, dk=dk, dv=dv, deterministic=bool(deterministic))
    packed = bool(offsets[0])
    of_q = (1, wanted.total_q, wanted.heads) if packed else (wanted.batch, wanted.seq_q, wanted.heads)
    of_k = (1, wanted.total_k, wanted.kv_heads) if packed else (wanted.batch, wanted.seq_k, wanted.kv_heads)
    for name, sizes, steps in zip(("dq", "dk", "dv"), (of_q, of_k, of_k), strides):
        setattr(made, f"{name}_strides", Strides(*_call.read_steps(name, sizes, steps, wanted.d_head)))
    check(
        LIBRARY.fl_backward(
            handle(), ctypes.addressof(wanted), ctypes.addressof(tensors), ctypes.addressof(made), stream
        )
    )
