"""The derivative of torch.ops.flashladder.attention: an operator of its own, which torch.compile traces too.

    torch.ops.flashladder.attention_backward(dout, q, k, v, out, lse, causal, scale, deterministic) -> (dq, dk, dv)

torch.use_deterministic_algorithms(True) asks for gradients that have the same bits in every run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch

from flashladder import _call, _gradients

Tensor = Any  # torch.Tensor; this file is checked without PyTorch, too
NO_LSE = "the backward pass reads log-sum-exp, and return_lse is False: pass True, as flashladder.torch.attention does"


DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


def problem_of(q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool, scale: float | None) -> Any:
    """The problem of tensors [batch, seq, heads, d_head]."""
    return _call.problem(
        DTYPES[q.dtype],
        q.device.index if q.device.type == "cuda" else None,
        (q.shape[0], q.shape[2], k.shape[2], q.shape[1], k.shape[1], q.shape[3]),
        tuple(tensor.stride()[:3] for tensor in (q, k, v, out)),
        causal,
        scale,
        "best",
    )


def is_wanted(*tensors: Tensor) -> bool:
    """Whether autograd will ask for gradients."""
    return bool(torch.is_grad_enabled()) and any(tensor.requires_grad for tensor in tensors)


def check(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None) -> None:
    """NotImplementedError, Unavailable: no kernel computes the gradients, which is said before anything runs."""
    _gradients.workspace_bytes(problem_of(q, k, v, q, causal, scale))


def lies_well(tensor: Tensor) -> bool:
    """Whether a kernel takes the steps of a tensor."""
    strides = [step for size, step in zip(tensor.shape[:3], tensor.stride()[:3]) if size > 1]
    return tensor.stride(3) == 1 and all(step > 0 and step % 8 == 0 for step in strides)


def _like(tensor: Tensor) -> Tensor:
    """Room for a gradient, in the memory order of the tensor where kernels take that."""
    made = torch.empty_like(tensor)
    return made if lies_well(made) else torch.empty_like(tensor, memory_format=torch.contiguous_format)


def compute_into(
    made: tuple[Tensor, Tensor, Tensor],
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    causal: bool,
    scale: float | None,
    deterministic: bool,
) -> None:
    """dq, dk and dv of tensors [batch, seq, heads, d_head] into `made`, in the current stream."""
    if dout.stride() != out.stride():
        dout = torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device=out.device).copy_(dout)
    wanted = problem_of(q, k, v, out, causal, scale)
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
        strides=[tensor.stride()[:3] for tensor in made],
        workspace=workspace.data_ptr() if cuda else 0,
        deterministic=deterministic,
        stream=torch.cuda.current_stream(q.device).cuda_stream if cuda else 0,
    )


def compute(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    causal: bool,
    scale: float | None,
    deterministic: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv, which lie as q, k and v do."""
    made = _like(q), _like(k), _like(v)
    compute_into(made, dout, q, k, v, out, lse, causal, scale, deterministic)
    return made


# Its annotations become the operator's schema, read by every Python.
def _backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    causal: bool,
    scale: Optional[float],  # noqa: UP045
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return compute(dout, q, k, v, out, lse, causal, scale, deterministic)


def _fake(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *others: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return _like(q), _like(k), _like(v)


_operator = torch.library.custom_op("flashladder::attention_backward", _backward, mutates_args=())
_operator.register_fake(_fake)


# ---- what torch.library.register_autograd() takes --------------------------------------------------------------------


def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    """What the backward pass reads."""
    q, k, v, causal, scale, return_lse, _ = inputs
    out, lse = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, out, lse)
    ctx.options = causal, scale, return_lse


def derive(context: Any, dout: Any, dlse: Any) -> tuple[Any, ...]:
    causal, scale, return_lse = context.options
    if not return_lse:
        raise NotImplementedError(NO_LSE)
    q, k, v, out, lse = context.saved_tensors
    deterministic = torch.are_deterministic_algorithms_enabled()

    def backward(dout: Tensor) -> Any:
        return torch.ops.flashladder.attention_backward(dout, q, k, v, out, lse, causal, scale, deterministic)

    def forward() -> Any:
        return torch.ops.flashladder.attention(q, k, k, causal, scale, False, "best")[0]

    rows = None if dlse is None else dlse.transpose(1, 2)
    return (*gradients_of(q, dout, rows, scale, forward, backward), None, None, None, None)


def gradients_of(
    q: Tensor,
    dout: Any,
    dlse: Any,
    scale: float | None,
    forward: Callable[[], Tensor],
    backward: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv of a loss that uses the result, log-sum-exp or both; None for the gradient of one not used.

    The derivative of log-sum-exp with respect to the scores is P. So dlse, one number for each row of q, adds
    scale · dlse · (P K) to dq and scale · Pᵀ (dlse · q) to dk. forward() gives P K, attention with K in place of V, and
    the gradient of V for the output gradient dlse · q is the other product.
    """
    found = backward(torch.zeros_like(q) if dout is None else dout)
    if dlse is None:
        return found
    dq, dk, dv = found
    factor = (q.shape[-1] ** -0.5 if scale is None else scale) * dlse.unsqueeze(-1)
    largest = factor.abs().amax().clamp_min(torch.finfo(torch.float32).tiny)  # keeps 16-bit products in range
    weighted = (factor / largest * q.float()).to(q.dtype)
    dq = (dq.float() + factor * forward().float()).to(q.dtype)
    dk = (dk.float() + largest * backward(weighted)[2].float()).to(dk.dtype)
    return dq, dk, dv
