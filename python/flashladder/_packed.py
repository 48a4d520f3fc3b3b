"""The derivative of torch.ops.flashladder.serve where its tensors are packed sequences and nothing else is asked for.

    torch.ops.flashladder.varlen_backward(dout, q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
                                          max_seqlen_k, causal, scale, deterministic) -> (dq, dk, dv)

The kernels read the offsets: the host does not wait, and a graph may capture it. Rows before the first sequence and
behind the last have the gradient 0.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from flashladder import _autograd, _call, _gradients, _serving

Tensor = Any  # torch.Tensor; this file is checked without PyTorch, too
INPUTS = 21  # of torch.ops.flashladder.serve
NO_BACKWARD = (
    "used lengths, windows, sinks, soft caps and caches have no backward: call it under torch.no_grad() or "
    "torch.inference_mode(), or detach() its arguments"
)
NO_LSE = "log-sum-exp is an input of the backward pass: pass return_lse=True to torch.ops.flashladder.serve"


def is_plain(arrays: dict[str, Any], chosen: _serving.Options) -> bool:
    """Whether a call asks for packed sequences alone, whose gradients fl_backward() computes."""
    asked = {name for name, array in arrays.items() if array is not None}
    return asked == {"cu_seqlens_q", "cu_seqlens_k"} and chosen.window is None and not chosen.softcap


def check(q: Tensor, k: Tensor, v: Tensor, chosen: _serving.Options) -> None:
    """NotImplementedError, Unavailable: no kernel computes the gradients, which is said before anything runs."""
    if q.dim() == k.dim() == v.dim() == 3 and q.dtype in _autograd.DTYPES:
        _gradients.workspace_bytes(_problem(q, k, v, q, 1, 1, 1, chosen.causal, chosen.scale))


def _problem(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    sequences: int,
    most_q: int,
    most_k: int,
    causal: bool,
    scale: float | None,
) -> Any:
    """The problem of tensors [tokens, heads, d_head]."""
    return _call.problem(
        _autograd.DTYPES[q.dtype],
        q.device.index if q.device.type == "cuda" else None,
        (sequences, q.shape[1], k.shape[1], most_q, most_k, q.shape[2]),
        tuple((tensor.shape[0] * tensor.stride(0), *tensor.stride()[:2]) for tensor in (q, k, v, out)),
        causal,
        scale,
        "best",
        None,
        (("arrays", 3), ("total_q", q.shape[0]), ("total_k", k.shape[0])),
    )


def _room(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


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
    if dout.stride() != out.stride():
        dout = torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device=out.device).copy_(dout)
    sequences = cu_seqlens_q.shape[0] - 1
    wanted = _problem(q, k, v, out, sequences, max_seqlen_q, max_seqlen_k, causal, scale)
    cuda = q.device.type == "cuda"
    workspace = torch.empty(_gradients.workspace_bytes(wanted), dtype=torch.uint8, device=q.device)
    _gradients.backward(
        wanted,
        q=q.data_ptr(),
        k=k.data_ptr(),
        v=v.data_ptr(),
        o=out.data_ptr(),
        lse=lse.data_ptr(),
        dout=dout.data_ptr(),
        gradients=[tensor.data_ptr() for tensor in made],
        strides=[(tensor.shape[0] * tensor.stride(0), *tensor.stride()[:2]) for tensor in made],
        offsets=(cu_seqlens_q.data_ptr(), cu_seqlens_k.data_ptr()),
        workspace=workspace.data_ptr() if cuda else 0,
        deterministic=deterministic,
        stream=torch.cuda.current_stream(q.device).cuda_stream if cuda else 0,
    )
    return made


def _fake(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _room(q), _room(k), _room(v)


_operator = torch.library.custom_op("flashladder::varlen_backward", _backward, mutates_args=())
_operator.register_fake(_fake)


# ---- what torch.library.register_autograd() takes --------------------------------------------------------------------


def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    """What the backward pass reads."""
    q, k, v, cu_seqlens_q, cu_seqlens_k, *others = inputs
    arrays, (most_q, most_k, causal, scale, left, right, softcap, batch_invariant, return_lse, _) = (
        others[:6],
        others[6:],
    )
    out, lse = output
    ctx.set_materialize_grads(False)
    ctx.refused = NO_LSE if not return_lse else None
    if (left, right, softcap) != (-1, -1, 0.0) or cu_seqlens_q is None or any(each is not None for each in arrays):
        ctx.refused = NO_BACKWARD
    ctx.options = (most_q, most_k, causal, scale), batch_invariant
    ctx.save_for_backward(q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k)


def derive(context: Any, dout: Any, dlse: Any) -> tuple[Any, ...]:
    if context.refused:
        raise NotImplementedError(context.refused)
    options, batch_invariant = context.options
    ordered = batch_invariant or torch.are_deterministic_algorithms_enabled()
    q, k, v, out, lse, offsets, k_offsets = context.saved_tensors
    scale = options[-1]
    rows = torch.arange(q.shape[0], device=q.device)
    inside = (rows >= offsets[:1]) & (rows < offsets[-1:])

    # Blocks of the last sequence reach into rows of none: their P must be 0, and exp(S - inf) is.
    lse = torch.where(inside, lse, torch.full((), torch.inf, device=lse.device))

    def backward(dout: Tensor) -> Any:
        saved = (q, k, v, out, lse, offsets, k_offsets)
        return torch.ops.flashladder.varlen_backward(dout, *saved, *options, ordered)

    def forward() -> Any:
        return torch.ops.flashladder.serve(q, k, k, offsets, k_offsets, *[None] * 6, *options)[0]

    # A product with 0 would keep a NaN, so the gradients of rows that belong to no sequence are replaced.
    if dout is not None:
        dout = torch.where(inside[:, None, None], dout, torch.zeros((), dtype=dout.dtype, device=dout.device))
    if dlse is not None:
        dlse = torch.where(inside[:, None], dlse.transpose(0, 1), torch.zeros((), device=dlse.device))
    gradients = _autograd.gradients_of(q, dout, dlse, scale, forward, backward)
    return (*gradients, *[None] * (INPUTS - 3))
