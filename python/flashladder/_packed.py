"""The derivative of torch.ops.flashladder.serve where its tensors are packed sequences and nothing else is asked for.

    torch.ops.flashladder.varlen_backward(dout, q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
                                          max_seqlen_k, causal, scale, deterministic) -> (dq, dk, dv)

Each sequence is a backward pass of its own. How long they are is read by the host, which waits for the GPU: a graph
cannot capture it. Rows of no sequence have the gradient 0.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from flashladder import _autograd, _serving

Tensor = Any  # torch.Tensor; this file is checked without PyTorch, too
INPUTS = 21  # of torch.ops.flashladder.serve
NO_BACKWARD = (
    "used lengths, windows, sinks, soft caps and caches have no backward: call it under torch.no_grad() or "
    "torch.inference_mode(), or detach() its arguments"
)
NO_LSE = "log-sum-exp is an input of the backward pass: pass return_lse=True to torch.ops.flashladder.serve"


def is_plain(arrays: dict[str, Any], chosen: _serving.Options) -> bool:
    """Whether a call asks for packed sequences alone, as fl_backward() computes each of them."""
    asked = {name for name, array in arrays.items() if array is not None}
    return asked == {"cu_seqlens_q", "cu_seqlens_k"} and chosen.window is None and not chosen.softcap


def check(q: Tensor, k: Tensor, v: Tensor, chosen: _serving.Options) -> None:
    """NotImplementedError, Unavailable: no kernel computes the gradients, which is said before anything runs."""
    if q.dim() == k.dim() == v.dim() == 3 and q.dtype in _autograd.DTYPES:
        _autograd.check(q[None], k[None], v[None], chosen.causal, chosen.scale)


def _room(tensor: Tensor) -> Tensor:
    return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _rows(offsets: Tensor, total: int, most: int) -> list[slice]:
    """The rows of each sequence, whatever the offsets hold those that the forward pass takes (lengths.cuh)."""
    starts = [min(max(start, 0), total) for start in offsets.tolist()]
    return [
        slice(first, min(max(end, first), first + most)) for first, end in zip(starts[:-1], starts[1:], strict=True)
    ]


# Its annotations become the operator's schema, read by every Python.
def _backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool,
    scale: Optional[float],  # noqa: UP045
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    made = _room(q), _room(k), _room(v)
    all_q, all_k = _rows(cu_seqlens_q, q.shape[0], max_seqlen_q), _rows(cu_seqlens_k, k.shape[0], max_seqlen_k)
    for of_q, of_k in zip(all_q, all_k, strict=True):
        dq, dk, dv = made[0][None, of_q], made[1][None, of_k], made[2][None, of_k]
        if dq.shape[1] and dk.shape[1]:
            given = dout[None, of_q], q[None, of_q], k[None, of_k], v[None, of_k], out[None, of_q]
            rows = lse[:, of_q].contiguous()[None]
            _autograd.compute_into((dq, dk, dv), *given, rows, causal, scale, deterministic)
    return made


def _fake(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _room(q), _room(k), _room(v)


_operator = torch.library.custom_op("flashladder::varlen_backward", _backward, mutates_args=())
_operator.register_fake(_fake)


# ---- what torch.library.register_autograd() takes --------------------------------------------------------------------


def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    """What the backward pass reads. Log-sum-exp has no derivative of its own."""
    q, k, v, cu_seqlens_q, cu_seqlens_k, *others = inputs
    arrays, (most_q, most_k, causal, scale, left, right, softcap, batch_invariant, return_lse, _) = (
        others[:6],
        others[6:],
    )
    out, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.refused = NO_LSE if not return_lse else None
    if (left, right, softcap) != (-1, -1, 0.0) or cu_seqlens_q is None or any(each is not None for each in arrays):
        ctx.refused = NO_BACKWARD
    ctx.options = (most_q, most_k, causal, scale), batch_invariant
    ctx.save_for_backward(q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k)


def derive(context: Any, dout: Any, _: Any) -> tuple[Any, ...]:
    if context.refused:
        raise NotImplementedError(context.refused)
    options, batch_invariant = context.options
    ordered = batch_invariant or torch.are_deterministic_algorithms_enabled()
    saved = context.saved_tensors
    gradients = torch.ops.flashladder.varlen_backward(dout, *saved, *options, ordered)
    return (*gradients, *[None] * (INPUTS - 3))
