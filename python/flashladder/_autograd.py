"""Derivatives for flashladder.torch: operators of their own, which torch.compile traces too.

    torch.ops.flashladder.attention_backward(dout, q, k, v, out, lse, causal, scale, deterministic) -> (dq, dk, dv)
    torch.ops.flashladder.varlen_backward(dout, q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
                                          max_seqlen_k, causal, scale, deterministic) -> (dq, dk, dv)

The kernels read the offsets of packed sequences, so the host does not wait and a graph may capture the call. Rows that
belong to no sequence have the gradient 0, whatever dout has there.

Log-sum-exp has a gradient: that of q is scale · dlse · attention(q, k, k), and that of k is what a backward pass with
dout = scale · dlse · q gives for v. A loss without log-sum-exp does not pay for it.

deterministic=True and torch.use_deterministic_algorithms(True) ask for gradients that have the same bits in every run;
deterministic="batch" for those, and for results that do not depend on the batch.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from flashladder import _launch
from flashladder._call import MOST_SEQUENCES, Call
from flashladder._frameworks import framework_of
from flashladder._library import ARRAYS

Tensor = Any  # torch.Tensor; this file is checked without PyTorch, too
DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16"}
NO_LSE = "the backward pass reads log-sum-exp, and return_lse is False: pass True, as flashladder.torch does"
NO_FORWARD_MODE = (
    "{} has a tangent, and attention has no forward-mode derivative (jvp, forward_ad): use reverse mode, or compute it "
    'with torch.nn.functional.scaled_dot_product_attention under sdpa_kernel("math")'
)
NO_BACKWARD = (
    "{0} requires a gradient, and {1} no backward: call it under torch.no_grad() or torch.inference_mode(), or pass "
    "{0}.detach()"
)
ONLY_ATTENTION = (
    "torch.func transforms attention without lengths, windows, sinks, soft caps and caches: for vmap put the axis into "
    "the batch; for gradients call .backward() or torch.autograd.grad()"
)


def are_transformed() -> bool:
    """True if torch.func transforms the call (vmap, grad, vjp), which only operators take part in."""
    if torch.compiler.is_compiling():
        return False
    functorch = getattr(getattr(torch, "_C", None), "_functorch", None)
    peek = getattr(functorch, "peek_interpreter_stack", None)
    return peek is not None and peek() is not None


def refuse_forward_mode(tensors: dict[str, Tensor]) -> None:
    """NotImplementedError where a tensor has a tangent, which an operator would lose in silence."""
    forward_ad: Any = getattr(torch.autograd, "forward_ad", None) if hasattr(torch, "autograd") else None
    if getattr(forward_ad, "_current_level", -1) < 0:
        return
    for name, tensor in tensors.items():
        if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:
            raise NotImplementedError(NO_FORWARD_MODE.format(name))


def wanted_by(tensors: dict[str, Tensor]) -> str:
    """The first tensor that autograd will ask a gradient for, or ""."""
    if not torch.is_grad_enabled():
        return ""
    return next((name for name, one in tensors.items() if one is not None and getattr(one, "requires_grad", False)), "")


def lies_well(tensor: Tensor) -> bool:
    """True if a kernel takes the strides of a tensor."""
    strides = [step for size, step in zip(tensor.shape[:-1], tensor.stride()[:-1]) if size > 1]
    return tensor.stride(-1) == 1 and all(step > 0 and step % 8 == 0 for step in strides)


def _like(tensor: Tensor) -> Tensor:
    """Room for a gradient, in the memory order of the tensor where kernels take that."""
    if tensor.is_contiguous():
        return torch.empty_like(tensor)
    made = torch.empty_like(tensor)
    return made if lies_well(made) else torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _strides(tensor: Tensor) -> tuple[int, ...]:
    """Strides of batch entries, rows and heads; a packed tensor is one batch entry."""
    return tensor.stride()[:3] if tensor.dim() == 4 else (tensor.shape[0] * tensor.stride(0), *tensor.stride()[:2])


def _problem(
    q: Tensor, k: Tensor, v: Tensor, of_out: Any, causal: bool, scale: float | None, sequences: int, most: Any
) -> _launch.Backward:
    """The backward pass of tensors [batch, seq, heads, d_head]; where there is a number of packed sequences, of
    [tokens, heads, d_head]. `of_out` are the strides of O."""
    packed = (("arrays", 3), ("total_q", q.shape[0]), ("total_k", k.shape[0])) if sequences else ()
    rows_q, rows_k = (max(1, most[0]), max(1, most[1])) if sequences else (q.shape[1], k.shape[1])
    return _launch.backward_problem(
        DTYPES[q.dtype],
        q.device.index if q.device.type == "cuda" else None,
        (sequences or q.shape[0], q.shape[-2], k.shape[-2], rows_q, rows_k, q.shape[-1]),
        (_strides(q), _strides(k), _strides(v), of_out),
        causal,
        scale,
        "best",
        None,
        packed,
    )


def plan(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None) -> _launch.Backward:
    """The backward pass of whole sequences with a contiguous result. NotImplementedError, Unavailable: no kernel
    computes the gradients, which is said before anything runs."""
    if q.shape[0] > MOST_SEQUENCES:
        q, k, v = q[:MOST_SEQUENCES], k[:MOST_SEQUENCES], v[:MOST_SEQUENCES]
    _, rows, heads, d_head = q.shape
    return _problem(q, k, v, (rows * heads * d_head, heads * d_head, d_head), causal, scale, 0, ())


def check_packed(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None) -> None:
    """The errors of plan() for packed sequences."""
    if q.dim() == k.dim() == v.dim() == 3 and q.dtype in DTYPES and k.shape[0]:
        _problem(q, k, v, _strides(q), causal, scale, 1, (1, 1))


def _compute_into(
    made: tuple[Tensor, ...],
    dout: Tensor,
    tensors: tuple[Tensor, ...],
    lse: Tensor,
    causal: bool,
    scale: float | None,
    deterministic: bool,
    offsets: tuple[Tensor, ...],
    most: tuple[int, ...],
    planned: _launch.Backward | None = None,
) -> None:
    """dq, dk and dv into `made`, in the current stream."""
    q, k, v, out = tensors
    if planned is None:
        sequences = offsets[0].shape[0] - 1 if offsets else 0
        planned = _problem(q, k, v, _strides(out), causal, scale, sequences, most)
    size, device = planned.workspace_bytes, q.device
    workspace = torch.empty(size, dtype=torch.uint8, device=device) if size else None
    addresses = [one.data_ptr() for one in (*tensors, lse)]
    _launch.backward(
        planned,
        (*addresses, 0 if workspace is None else workspace.data_ptr()),
        dout.data_ptr(),
        [one.data_ptr() for one in made],
        tuple([_strides(one) for one in made]),
        tuple([one.data_ptr() for one in offsets]),
        deterministic,
        framework_of("q", q).current_stream(device.index) if size else 0,
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
    offsets: tuple[Tensor, ...] = (),
    most: tuple[int, ...] = (),
    planned: _launch.Backward | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv, in the memory order of q, k and v. More than 65,535 sequences take several passes."""
    if dout.stride() != out.stride():
        dout = torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device=out.device).copy_(dout)
    made = _like(q), _like(k), _like(v)
    options = (causal, scale, deterministic)
    sequences = offsets[0].shape[0] - 1 if offsets else q.shape[0]
    if offsets and not k.shape[0]:
        return tuple(tensor.zero_() for tensor in made)
    if sequences <= MOST_SEQUENCES:
        _compute_into(made, dout, (q, k, v, out), lse, *options, offsets, most, planned)
        return made
    for first in range(0, sequences, MOST_SEQUENCES):
        some = slice(first, first + MOST_SEQUENCES)
        if not offsets:
            one = [tensor[some] for tensor in (dout, q, k, v, out, lse)]
            _compute_into(tuple(tensor[some] for tensor in made), one[0], tuple(one[1:5]), one[5], *options, (), ())
            continue
        part = tuple(tensor[first : first + MOST_SEQUENCES + 1] for tensor in offsets)
        room = made if not first else (_like(q), _like(k), _like(v))
        _compute_into(room, dout, (q, k, v, out), lse, *options, part, most)
        if first:  # a pass gives rows of other sequences the gradient 0
            for total, more in zip(made, room):
                total.add_(more)
    return made


# Their annotations become the operators' schemas, read by every Python.
def _attention_backward(
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


def _varlen_backward(
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
    offsets, most = (cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k)
    return compute(dout, q, k, v, out, lse, causal, scale, deterministic, offsets, most)


def _fake(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _like(q), _like(k), _like(v)


_of_whole = torch.library.custom_op("flashladder::attention_backward", _attention_backward, mutates_args=())
_of_packed = torch.library.custom_op("flashladder::varlen_backward", _varlen_backward, mutates_args=())
_of_whole.register_fake(_fake)
_of_packed.register_fake(_fake)


def folded(operator: Any, count: int) -> Any:
    """A rule of vmap for an operator whose first `count` arguments are [batch, …]: the mapped axis joins the batch."""

    def rule(info: Any, dims: tuple[Any, ...], *arguments: Any) -> Any:
        tensors = []
        for tensor, axis in zip(arguments[:count], dims):
            front = tensor.expand(info.batch_size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
            flat = front.reshape(-1, *front.shape[2:]) if front.dim() > 2 else front
            tensors.append(flat.contiguous() if axis is None else flat)  # kernels on a GPU take no stride of 0
        made = operator(*tensors, *arguments[count:])
        apart = [one.reshape(info.batch_size, -1, *one.shape[1:]) if one.dim() > 1 else one for one in made]
        return tuple(apart), tuple(0 if one.dim() > 1 else None for one in made)

    return rule


# ---- what torch.library.register_autograd() takes --------------------------------------------------------------------


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    """Save what the backward pass of torch.ops.flashladder.attention reads."""
    q, k, v, causal, scale, return_lse, _, ordered, _ = inputs
    out, lse = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, out, lse)
    ctx.options, ctx.refused = (causal, scale), None if return_lse else NO_LSE
    ctx.inputs, ctx.ordered = len(inputs), ordered


def setup_context_of_serve(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    """Save what the backward pass of torch.ops.flashladder.serve reads, of packed sequences and nothing else."""
    q, k, v, cu_seqlens_q, cu_seqlens_k, *others = inputs
    arrays, (most_q, most_k, causal, scale, left, right, softcap, _, return_lse, _, ordered) = others[:6], others[6:]
    out, lse = output
    ctx.set_materialize_grads(False)
    ctx.refused = None if return_lse else NO_LSE
    if (left, right, softcap) != (-1, -1, 0.0) or cu_seqlens_q is None or any(each is not None for each in arrays):
        ctx.refused = NO_BACKWARD.format("an argument", "used lengths, windows, sinks, soft caps and caches have")
    ctx.options, ctx.ordered = (most_q, most_k, causal, scale), ordered
    ctx.save_for_backward(q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k)
    ctx.inputs = len(inputs)


def backward(ctx: Any, dout: Any, dlse: Any) -> tuple[Any, ...]:
    """The gradients of q, k and v of either operator, and of Eager."""
    if ctx.refused:
        raise NotImplementedError(ctx.refused)
    if dout is None and dlse is None:
        return tuple([None] * ctx.inputs)
    (q, k, v, out, lse, *offsets), options = ctx.saved_tensors, ctx.options
    ordered = ctx.ordered or torch.are_deterministic_algorithms_enabled()
    operators = torch.ops.flashladder
    if offsets and dlse is not None:
        dlse = torch.where(_inside(q, offsets[0]), dlse, 0)

    def gradients(dout: Any, v: Any, out: Any, planned: Any = None) -> Any:
        if getattr(ctx, "eager", False):
            causal, scale = options[-2:]
            return compute(dout, q, k, v, out, lse, causal, scale, ordered, tuple(offsets), options[:-2], planned)
        if are_transformed():
            pass_of: Any = TransformedBackward.apply
        else:
            pass_of = operators.varlen_backward if offsets else operators.attention_backward
        return pass_of(dout, q, k, v, out, lse, *offsets, *options, ordered)

    dq, dk, dv = gradients(torch.zeros_like(q) if dout is None else dout, v, out, getattr(ctx, "planned", None))
    if dlse is not None:
        causal, scale = options[-2:]
        factor = (q.shape[-1] ** -0.5 if scale is None else scale) * dlse.transpose(-1, -2)[..., None]
        largest = factor.abs().amax().clamp_min(torch.finfo(torch.float32).tiny)  # keeps products of 16 bits in range
        if offsets:
            means = operators.serve(q, k, k, *offsets, *[None] * 6, *options[:2], causal, scale)[0]
        else:
            means = operators.attention(q, k, k, causal, scale)[0]
        of_v = gradients((factor / largest * q.float()).to(q.dtype), k, means)[2]
        dq = (dq.float() + factor * means.float()).to(q.dtype)
        dk = (dk.float() + largest * of_v.float()).to(k.dtype)
    return (dq, dk, dv, *[None] * (ctx.inputs - 3))


def _inside(rows: Any, starts: Any) -> Any:
    """The rows that belong to a sequence."""
    at = torch.arange(rows.shape[0], device=rows.device)
    return (at >= starts[:1]) & (at < starts[-1:])


_Function: Any = getattr(getattr(torch, "autograd", None), "Function", object)
_once: Any = getattr(
    getattr(getattr(torch, "autograd", None), "function", None), "once_differentiable", lambda one: one
)


_backward_once = _once(backward)


class Eager(_Function):  # type: ignore[misc]
    """A call with gradients outside of torch.compile and torch.func, without the time that an operator costs."""

    @staticmethod
    def forward(
        ctx: Any, q: Any, k: Any, v: Any, chosen: Any, offsets: tuple[Any, ...], most: tuple[int, int], planned: Any
    ) -> Any:
        call = Call(q, k, v, chosen._replace(return_lse=True), dict(zip(ARRAYS, offsets)), most)
        out, lse = call.run()
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, out, lse, *offsets)
        ctx.options = (*(most if offsets else ()), chosen.causal, chosen.scale)
        ctx.refused, ctx.inputs, ctx.ordered, ctx.eager, ctx.planned = None, 7, chosen.ordered, True, planned
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Any, dlse: Any) -> tuple[Any, ...]:
        """once_differentiable takes some microseconds, and only a second derivative needs it."""
        return (_backward_once if torch.is_grad_enabled() else backward)(ctx, dout, dlse)


# Eager.apply() without what it does for torch.func, which is_eager() has excluded.
_class_of_apply: Any = getattr(getattr(torch, "_C", None), "_FunctionBase", None)
apply_eagerly: Any = Eager.apply if _class_of_apply is None else super(_Function, Eager).apply


class Transformed(_Function):  # type: ignore[misc]
    """torch.ops.flashladder.attention as torch.func differentiates it, which asks for a class of this form."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> Any:
        return torch.ops.flashladder.attention(*inputs)

    setup_context = staticmethod(setup_context)
    backward = staticmethod(backward)


class TransformedBackward(_Function):  # type: ignore[misc]
    """torch.ops.flashladder.attention_backward in the same form."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> Any:
        return torch.ops.flashladder.attention_backward(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError("attention has no second derivative")
