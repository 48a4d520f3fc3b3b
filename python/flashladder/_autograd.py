"""The derivative of torch.ops.flashladder.attention: an operator of its own, which torch.compile traces too.

    torch.ops.flashladder.attention_backward(dout, q, k, v, out, lse, causal, scale, deterministic) -> (dq, dk, dv)

torch.use_deterministic_algorithms(True) asks for gradients that have the same bits in every run.
"""

from __future__ import annotations

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
    """What the backward pass reads. Log-sum-exp has no derivative of its own."""
    q, k, v, causal, scale, return_lse, _ = inputs
    out, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.save_for_backward(q, k, v, out, lse)
    ctx.options = causal, scale, return_lse


def derive(context: Any, dout: Any, _: Any) -> tuple[Any, ...]:
    causal, scale, return_lse = context.options
    if not return_lse:
        raise NotImplementedError(NO_LSE)
    q, k, v, out, lse = context.saved_tensors
    deterministic = torch.are_deterministic_algorithms_enabled()
    gradients = torch.ops.flashladder.attention_backward(dout, q, k, v, out, lse, causal, scale, deterministic)
    return (*gradients, None, None, None, None)
