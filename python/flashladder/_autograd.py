"""Derivatives for flashladder.torch: operators of their own, which torch.compile traces too.

    torch.ops.flashladder.attention_backward(dout, q, k, v, out, lse, causal, scale, deterministic) -> (dq, dk, dv)
    torch.ops.flashladder.serve_backward(dout, q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, seqlens_q, seqlens_k,
                                         sinks, bias, alibi_slopes, max_seqlen_q, max_seqlen_k, causal, scale,
                                         window_left, window_right, softcap, deterministic, dropout_p, rng_state,
                                         block_mask, mask_queries, mask_keys)
        -> (dq, dk, dv, dsinks, dbias, dalibi_slopes)

The kernels read offsets and lengths, so the host does not wait and a graph may capture the call. Rows that no sequence
uses have the gradient 0, whatever dout has there.

Log-sum-exp has a gradient: with v = e and dout = dlse · e for a unit vector e, and out = 0, a backward pass computes
what it adds to dq and dk. A loss without log-sum-exp does not pay for it.

deterministic=True and torch.use_deterministic_algorithms(True) ask for gradients that have the same bits in every run;
deterministic="batch" for those, and for results that do not depend on the batch.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch

from flashladder import _composed, _launch
from flashladder._call import MOST_SEQUENCES, Call, present
from flashladder._frameworks import framework_of
from flashladder._library import ARRAYS
from flashladder._options import Options

Tensor = Any  # torch.Tensor; this file is checked without PyTorch, too
DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16"}
FLOATS = ("sinks", "bias", "alibi_slopes")  # arrays with gradients
BIASES = FLOATS[1:]
# Arrays of a backward pass.
DIFFERENTIABLE = ("cu_seqlens_q", "cu_seqlens_k", "seqlens_q", "seqlens_k", *FLOATS, "rng_state", "block_mask")
RESULTS = ("max_logits",)  # arrays that are results
KERNEL_SIZES = (64, 128, 256)  # elements of the rows of q, k and v for which there are kernels
NO_LSE = "the backward pass reads log-sum-exp, and return_lse is False: pass True, as flashladder.torch does"
NO_FORWARD_MODE = (
    "{} has a tangent, and attention has no forward-mode derivative (jvp, forward_ad): use reverse mode, or compute it "
    'with torch.nn.functional.scaled_dot_product_attention under sdpa_kernel("math")'
)
NO_BACKWARD = (
    "{0} requires a gradient, and {1} no backward: call it under torch.no_grad() or torch.inference_mode(), or pass "
    "{0}.detach()"
)
CACHES = "caches have"  # pages and factors of K and V, too
NO_BATCH = (
    "deterministic='batch' with {0}: gradients with {0} may depend on the batch; pass deterministic=True for the same "
    "bits in every run"
)
ONLY_ATTENTION = (
    "torch.func transforms attention without lengths, windows, sinks, soft caps, biases and caches: for vmap put the "
    "axis into the batch; for gradients call .backward() or torch.autograd.grad()"
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
    for name, one in tensors.items():
        if one is not None and isinstance(one, torch.Tensor) and one.requires_grad:
            return name
    return ""


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


class Asked(NamedTuple):
    """The arguments of a pass that are no tensors."""

    causal: bool = False
    scale: float | None = None
    window: tuple[int, int] | None = None
    softcap: float = 0.0
    most: tuple[int, int] = (0, 0)  # rows of a packed sequence
    dropout_p: float = 0.0
    block_size: tuple[int, int] = (128, 128)


def asked_for(chosen: Options, most: tuple[int, int]) -> Asked:
    return Asked(chosen.causal, chosen.scale, chosen.window, chosen.softcap, most, chosen.dropout_p, chosen.block_size)


def is_composed(arrays: dict[str, Any]) -> bool:
    """True if no kernel has the backward pass: with biases, dropout and block masks."""
    return any(name in arrays for name in (*BIASES, "rng_state", "block_mask"))


@functools.lru_cache(maxsize=1024)
def _fields(names: tuple[str, ...], window: tuple[int, int] | None, softcap: float) -> tuple[tuple[str, Any], ...]:
    """Fields of a problem with these arrays."""
    fields: dict[str, Any] = {"arrays": sum(1 << ARRAYS.index(name) for name in names)} if names else {}
    if window is not None:
        left, right = (min(side, 1 << 30) for side in window)
        fields |= {"windowed": 1, "window_left": left, "window_right": right}
    return tuple((fields | ({"softcap": softcap} if softcap else {})).items())


def _problem(
    q: Tensor, k: Tensor, v: Tensor, of_out: Any, asked: Asked, names: tuple[str, ...] = (), sequences: int = 0
) -> _launch.Backward:
    """The backward pass of tensors [batch, seq, heads, d_head]; with a number of packed sequences of [tokens, heads,
    d_head]. `of_out` are the strides of O, `names` those of the arrays."""
    more = _fields(names, asked.window, asked.softcap)
    if sequences:
        more = (*more, ("total_q", q.shape[0]), ("total_k", k.shape[0]))
    rows_q, rows_k = (max(1, asked.most[0]), max(1, asked.most[1])) if sequences else (q.shape[1], k.shape[1])
    return _launch.backward_problem(
        DTYPES[q.dtype],
        q.device.index if q.device.type == "cuda" else None,
        (sequences or q.shape[0], q.shape[-2], k.shape[-2], rows_q, rows_k, q.shape[-1]),
        (_strides(q), _strides(k), _strides(v), of_out),
        asked.causal,
        asked.scale,
        "best",
        None,
        more,
    )


def plan(q: Tensor, k: Tensor, v: Tensor, asked: Asked, names: tuple[str, ...] = ()) -> _launch.Backward:
    """The backward pass of sequences in a batch with a contiguous result. NotImplementedError, Unavailable: no kernel
    computes the gradients, which is said before anything runs."""
    if q.shape[0] > MOST_SEQUENCES:
        q, k, v = q[:MOST_SEQUENCES], k[:MOST_SEQUENCES], v[:MOST_SEQUENCES]
    _, rows, heads, d_head = q.shape
    return _problem(q, k, v, (rows * heads * d_head, heads * d_head, d_head), asked, names)


@functools.lru_cache(maxsize=1024)
def _kernel_size(dtype: Any, gpu: int | None, most: int) -> int:
    for size in KERNEL_SIZES:
        if size < most:
            continue
        try:
            row = (size, size, size)
            _launch.backward_problem(DTYPES[dtype], gpu, (1, 1, 1, 1, 1, size), (row,) * 4, False, None, "best")
        except NotImplementedError:
            continue
        return size
    return 0


def kernel_size(q: Tensor, v: Tensor) -> int:
    """Elements of a row of the kernel that computes the gradients. Shorter rows are padded with zeros, in copies of all
    tensors. 0: no kernel does, and PyTorch's operations compose them."""
    if q.dtype not in DTYPES:
        return 0
    return _kernel_size(q.dtype, q.device.index if q.device.type == "cuda" else None, max(q.shape[-1], v.shape[-1]))


def is_exact(q: Tensor, v: Tensor) -> bool:
    """True if a kernel computes the gradients of the tensors as they are."""
    return bool(q.shape[-1] == v.shape[-1] == kernel_size(q, v))


def refuse_batch(q: Tensor, v: Tensor, arrays: dict[str, Tensor], chosen: Options) -> None:
    """NotImplementedError where composed gradients would have to be the same in every batch."""
    if not chosen.batch_invariant:
        return
    asked, most = [name for name in BIASES if name in arrays], max(q.shape[-1], v.shape[-1])
    asked += ["dropout_p"] * bool(chosen.dropout_p) + ["block_mask"] * ("block_mask" in arrays)
    if most > KERNEL_SIZES[-1] or not (torch.compiler.is_compiling() or kernel_size(q, v)):
        asked.append(f"d_head {most}")
    if asked:
        raise NotImplementedError(NO_BATCH.format(asked[0]))


def check(q: Tensor, k: Tensor, v: Tensor, asked: Asked, arrays: dict[str, Tensor]) -> None:
    """The errors of plan() for sequences with arrays; the call itself reports wrong tensors."""
    packed = "cu_seqlens_q" in arrays
    if is_composed(arrays) or not is_exact(q, v):
        return
    if not q.dim() == k.dim() == v.dim() == (3 if packed else 4) or q.dtype not in DTYPES or not k.shape[-3]:
        return
    if packed:
        _problem(q, k, v, _strides(q), asked._replace(most=(1, 1)), tuple(arrays), 1)
    else:
        plan(q, k, v, asked, tuple(arrays))


def _compute_into(
    made: tuple[Tensor, ...],
    dout: Tensor,
    tensors: tuple[Tensor, ...],
    lse: Tensor,
    asked: Asked,
    deterministic: bool,
    arrays: dict[str, Tensor],
    planned: _launch.Backward | None = None,
) -> None:
    """dq, dk, dv and with sinks dsinks into `made`, in the current stream."""
    q, k, v, out = tensors
    if planned is None:
        sequences = arrays["cu_seqlens_q"].shape[0] - 1 if "cu_seqlens_q" in arrays else 0
        planned = _problem(q, k, v, _strides(out), asked, tuple(arrays), sequences)
    size, device = planned.workspace_bytes, q.device
    workspace = torch.empty(size, dtype=torch.uint8, device=device) if size else None
    addresses = [one.data_ptr() for one in (*tensors, lse)]
    _launch.backward(
        planned,
        (*addresses, 0 if workspace is None else workspace.data_ptr()),
        dout.data_ptr(),
        [one.data_ptr() for one in made],
        tuple([_strides(one) for one in made[:3]]),
        [arrays[name].data_ptr() if name in arrays else 0 for name in ARRAYS] if arrays else _launch.NO_ARRAYS,
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
    asked: Asked,
    deterministic: bool,
    arrays: dict[str, Tensor] = {},  # noqa: B006, nobody writes to it
    planned: _launch.Backward | None = None,
) -> tuple[Tensor, ...]:
    """dq, dk and dv, in the memory order of q, k and v, and the gradients of FLOATS that are there. More than 65,535
    sequences take several passes."""
    size = kernel_size(q, v)
    if not size or is_composed(arrays):
        composed = _composed.gradients(dout, (q, k, v, out), lse, asked, arrays)
        return (*[_like(one).copy_(gradient) for one, gradient in zip((q, k, v), composed)], *composed[3:])
    if not q.shape[-1] == v.shape[-1] == size:
        dout, *wide, out = [torch.nn.functional.pad(one, (0, size - one.shape[-1])) for one in (dout, q, k, v, out)]
        scale = q.shape[-1] ** -0.5 if asked.scale is None else asked.scale
        asked = asked._replace(scale=scale)
        found = compute(dout, wide[0], wide[1], wide[2], out, lse, asked, deterministic, arrays)
        narrow = [_like(one).copy_(gradient[..., : one.shape[-1]]) for one, gradient in zip((q, k, v), found)]
        return (*narrow, *found[3:])
    if dout.stride() != out.stride():
        dout = torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device=out.device).copy_(dout)
    packed = "cu_seqlens_q" in arrays

    def room() -> tuple[Tensor, ...]:
        sinks = (torch.empty_like(arrays["sinks"]),) if "sinks" in arrays else ()
        return (_like(q), _like(k), _like(v), *sinks)

    made = room()
    sequences = arrays["cu_seqlens_q"].shape[0] - 1 if packed else q.shape[0]
    if not k.shape[-3] and arrays:
        return tuple(tensor.zero_() for tensor in made)
    if sequences <= MOST_SEQUENCES:
        _compute_into(made, dout, (q, k, v, out), lse, asked, deterministic, arrays, planned)
        return made
    for first in range(0, sequences, MOST_SEQUENCES):
        some = slice(first, first + MOST_SEQUENCES)
        part = {
            name: array[first : first + MOST_SEQUENCES + 1]
            if name.startswith("cu_")
            else array
            if name == "sinks"
            else array[some]
            for name, array in arrays.items()
        }
        into = made if not first else room()
        if packed:
            _compute_into(into, dout, (q, k, v, out), lse, asked, deterministic, part)
        else:
            one = [tensor[some] for tensor in (dout, q, k, v, out, lse)]
            into = (*(tensor[some] for tensor in made[:3]), *into[3:])
            _compute_into(into, one[0], tuple(one[1:5]), one[5], asked, deterministic, part)
        if first:  # a pass gives rows of other sequences the gradient 0
            for total, more in list(zip(made, into))[0 if packed else 3 :]:
                total.add_(more)
    return made


def define(name: str, function: Any, arguments: str, results: int) -> Any:
    """torch.ops.flashladder.NAME. Its schema is given, because PyTorch 2.4 derives none from postponed annotations."""
    schema = f"({arguments}) -> ({', '.join(['Tensor'] * results)})"
    return torch.library.custom_op(f"flashladder::{name}", function, mutates_args=(), schema=schema)


def _attention_backward(
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
    return compute(dout, q, k, v, out, lse, Asked(causal, scale), deterministic)


def _serve_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    seqlens_q: Tensor | None,
    seqlens_k: Tensor | None,
    sinks: Tensor | None,
    bias: Tensor | None,
    alibi_slopes: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool,
    scale: float | None,
    window_left: int,
    window_right: int,
    softcap: float,
    deterministic: bool,
    dropout_p: float = 0.0,
    rng_state: Tensor | None = None,
    block_mask: Tensor | None = None,
    mask_queries: int = 128,
    mask_keys: int = 128,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    window = None if window_left == window_right == -1 else (window_left, window_right)
    asked = Asked(causal, scale, window, softcap, (max_seqlen_q, max_seqlen_k), dropout_p, (mask_queries, mask_keys))
    given = (cu_seqlens_q, cu_seqlens_k, seqlens_q, seqlens_k, sinks, bias, alibi_slopes, rng_state, block_mask)
    arrays = present(**dict(zip(DIFFERENTIABLE, given)))
    dq, dk, dv, *others = compute(dout, q, k, v, out, lse, asked, deterministic, arrays)
    of_name = dict(zip([name for name in FLOATS if name in arrays], others))
    floats = [of_name.get(name) for name in FLOATS]
    dsinks, dbias, dslopes = (_nothing(q) if one is None else one for one in floats)
    return dq, dk, dv, dsinks, dbias, dslopes


def _nothing(q: Tensor) -> Tensor:
    """An operator returns tensors only: the gradient of a tensor that is not there."""
    return torch.empty(0, dtype=torch.float32, device=q.device)


def _fake(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _like(q), _like(k), _like(v)


def _fake_serve(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Any) -> tuple[Tensor, ...]:
    floats = [_nothing(q) if one is None or one.dtype == torch.bool else torch.empty_like(one) for one in others[6:9]]
    return _like(q), _like(k), _like(v), *floats


_GIVEN = "Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
_of_whole = define(
    "attention_backward", _attention_backward, f"{_GIVEN}bool causal, float? scale, bool deterministic", results=3
)
_of_served = define(
    "serve_backward",
    _serve_backward,
    f"{_GIVEN}Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? seqlens_q, Tensor? seqlens_k, Tensor? sinks, "
    "Tensor? bias, Tensor? alibi_slopes, SymInt max_seqlen_q, SymInt max_seqlen_k, bool causal, float? scale, "
    "SymInt window_left, SymInt window_right, float softcap, bool deterministic, float dropout_p=0.0, "
    "Tensor? rng_state=None, Tensor? block_mask=None, int mask_queries=128, int mask_keys=128",
    results=6,
)
_of_whole.register_fake(_fake)
_of_served.register_fake(_fake_serve)


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


def _keep(ctx: Any, tensors: tuple[Any, ...], asked: Asked, arrays: dict[str, Any], ordered: bool) -> None:
    """Save what backward() reads."""
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *arrays.values())
    ctx.asked, ctx.names, ctx.ordered = asked, tuple(arrays), ordered


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    """Save what the backward pass of torch.ops.flashladder.attention reads."""
    q, k, v, causal, scale, return_lse, _, ordered, _ = inputs
    _keep(ctx, (q, k, v, *output), Asked(causal, scale), {}, ordered)
    ctx.refused, ctx.inputs = None if return_lse else NO_LSE, len(inputs)


def setup_context_of_serve(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    """Save what the backward pass of torch.ops.flashladder.serve reads."""
    tensors, given, others = inputs[:3], dict(zip(ARRAYS[:8], inputs[3:11])), inputs[11:22]
    most_q, most_k, causal, scale, left, right, softcap, _, return_lse, _, ordered = others
    window = None if left == right == -1 else (left, right)
    more = inputs[24:] or (0.0, None, False, None, 128, 128)
    dropout_p, rng_state, _, block_mask, queries, keys = more
    asked = Asked(causal, scale, window, softcap, (most_q, most_k), dropout_p, (queries, keys))
    arrays = present(**given, **dict(zip(BIASES, inputs[22:24])), rng_state=rng_state, block_mask=block_mask)
    _keep(ctx, (*tensors, *output[:2]), asked, arrays, ordered)
    if len(output) > 2:
        ctx.mark_non_differentiable(output[2])
    ctx.refused = None if return_lse else NO_LSE
    if without_gradients(arrays):
        ctx.refused = NO_BACKWARD.format("an argument", CACHES)
    ctx.inputs, ctx.of_floats = len(inputs), (3 + ARRAYS.index("sinks"), 22, 23)


def without_gradients(arrays: dict[str, Any]) -> bool:
    """True if these are arrays of a cache."""
    return any(name not in (*DIFFERENTIABLE, *RESULTS) for name in arrays)


def backward(ctx: Any, dout: Any, dlse: Any, *of_results: Any) -> tuple[Any, ...]:
    """The gradients of q, k, v and FLOATS of either operator, and of Eager."""
    if ctx.refused:
        raise NotImplementedError(ctx.refused)
    if dout is None and dlse is None:
        return tuple([None] * ctx.inputs)
    (q, k, v, out, lse, *arrays), asked = ctx.saved_tensors, ctx.asked
    named = dict(zip(ctx.names, arrays))
    ordered = ctx.ordered or torch.are_deterministic_algorithms_enabled()

    def gradients(dout: Any, v: Any, out: Any, planned: Any = None, asked: Asked = asked) -> Any:
        if getattr(ctx, "eager", False):
            return compute(dout, q, k, v, out, lse, asked, ordered, named, planned)
        if not named and asked == Asked(asked.causal, asked.scale):
            operator = TransformedBackward.apply if are_transformed() else torch.ops.flashladder.attention_backward
            return operator(dout, q, k, v, out, lse, asked.causal, asked.scale, ordered)
        given = [named.get(name) for name in DIFFERENTIABLE]
        left, right = asked.window or (-1, -1)
        *given, rng_state, block_mask = given
        options = (*asked.most, asked.causal, asked.scale, left, right, asked.softcap, ordered, asked.dropout_p)
        more = (rng_state, block_mask, *asked.block_size)
        return torch.ops.flashladder.serve_backward(dout, q, k, v, out, lse, *given, *options, *more)

    of_out = torch.zeros_like(out) if dout is None else dout
    found = list(gradients(of_out, v, out, getattr(ctx, "planned", None)))
    if dlse is not None:
        dlse = torch.where(lse == -float("inf"), 0, dlse)  # rows without keys, and of no sequence
        largest = dlse.abs().amax().clamp_min(torch.finfo(torch.float32).tiny)  # keeps products of 16 bits in range
        unit, of_lse = torch.zeros_like(v), torch.zeros_like(out)
        unit[..., 0] = 1
        of_lse[..., 0] = (dlse / largest).transpose(-1, -2)
        more = gradients(of_lse, unit, torch.zeros_like(out), None, asked._replace(dropout_p=0.0))
        for i in (*range(2), *range(3, len(found))):
            if found[i] is not None:
                found[i] = (found[i].float() + largest * more[i].float()).to(found[i].dtype)
        if "sinks" in named:
            p = torch.where(lse == -float("inf"), 0, (named["sinks"][:, None] - lse).exp())
            found[3] = found[3] + (dlse * p).sum(dim=[axis for axis in range(p.dim()) if axis != p.dim() - 2])
    made: list[Any] = [*found[:3], *[None] * (ctx.inputs - 3)]
    given = [name for name in FLOATS if name in named]
    of_name = dict(zip(given if len(found) < 3 + len(FLOATS) else FLOATS, found[3:]))
    for name, place in zip(FLOATS, getattr(ctx, "of_floats", ())):
        gradient = of_name.get(name) if name in named else None
        if gradient is not None and gradient.shape == named[name].shape:  # a mask has none
            made[place] = gradient
    return tuple(made)


_Function: Any = getattr(getattr(torch, "autograd", None), "Function", object)
_once: Any = getattr(
    getattr(getattr(torch, "autograd", None), "function", None), "once_differentiable", lambda one: one
)


_backward_once = _once(backward)


class Eager(_Function):  # type: ignore[misc]
    """A call with gradients outside of torch.compile and torch.func, without the time that an operator costs."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Any,
        k: Any,
        v: Any,
        sinks: Any,
        bias: Any,
        alibi_slopes: Any,
        chosen: Options,
        arrays: dict[str, Any],
        most: Any,
        planned: Any,
    ) -> Any:
        """`arrays` has FLOATS, too: as arguments autograd knows of them."""
        out, lse = Call(q, k, v, chosen._replace(return_lse=True), arrays, most).run()
        kept = {name: array for name, array in arrays.items() if name not in RESULTS}
        _keep(ctx, (q, k, v, out, lse), asked_for(chosen, most), kept, chosen.ordered)
        ctx.refused, ctx.inputs, ctx.of_floats, ctx.eager, ctx.planned = None, 10, range(3, 6), True, planned
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

    @staticmethod
    def forward(*inputs: Any) -> Any:
        return torch.ops.flashladder.attention(*inputs)

    @staticmethod
    def vmap(info: Any, dims: tuple[Any, ...], *inputs: Any) -> Any:
        return folded(Transformed.apply, 3)(info, dims, *inputs)

    setup_context = staticmethod(setup_context)
    backward = staticmethod(backward)


class TransformedBackward(_Function):  # type: ignore[misc]
    """torch.ops.flashladder.attention_backward in the same form."""

    @staticmethod
    def forward(*inputs: Any) -> Any:
        return torch.ops.flashladder.attention_backward(*inputs)

    @staticmethod
    def vmap(info: Any, dims: tuple[Any, ...], *inputs: Any) -> Any:
        return folded(TransformedBackward.apply, 6)(info, dims, *inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError("attention has no second derivative")
