"""Arrays of the frameworks: what each says of its memory, the checks between them, results of the same kind.

    result = attention(q, k, v, causal=True)

A framework is a class with `facts`, which is quick and hashable, and `layout`, which says the same in the terms of all.
What follows from the facts of a call is a `Plan`. It is made once: a call whose facts are known reads addresses, makes
its result and launches. No framework is imported here: arrays bring theirs along.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
import warnings
from typing import Any, NamedTuple, NoReturn

from flashladder import _call
from flashladder._dlpack import Borrowed
from flashladder._library import EMULATOR, LIBRARY, Description, Problem, check, handle
from flashladder._overlap import overlap, overlaps_itself, span

OPTIONS = (
    "causal", "scale", "window", "softcap", "sinks", "seqlens_k", "seqlens_q", "deterministic", "return_lse", "version",
    "out", "stream",
)  # fmt: skip
AXES = "[batch, seq, heads, d_head]"
DTYPES = {"float16": "fp16", "bfloat16": "bf16"}
CACHE_DTYPE = "float8_e4m3fn"  # that k_cache and v_cache may have beside those
HOST = "host memory"
MOST_PLANS = 1024
EMULATED = 2e9  # floating-point operations per second of the emulator on one core
LONG = 60.0  # seconds on the emulator from which a warning says so


class Layout(NamedTuple):
    """One array in the terms of all frameworks."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: str  # "float16"
    place: str  # HOST, "cuda:0", or what else the framework says
    gpu: int | None  # its ordinal; None for host memory


class Plan(NamedTuple):
    """What a call with known facts needs."""

    problem: Problem
    address: int  # of the problem, which this tuple keeps alive
    lse_shape: tuple[int, ...]
    gpu: int | None
    seconds: float  # that the emulator takes, roughly; 0 on a GPU
    inputs: tuple[Layout, ...]  # of q, k and v
    out: Layout | None


# ---- the frameworks --------------------------------------------------------------------------------------------------


class Torch:
    """torch.Tensor, on the CPU or a GPU."""

    def __init__(self) -> None:
        self.torch: Any = sys.modules["torch"]
        # Takes a tenth of the time of torch.cuda.current_stream(gpu).cuda_stream; not every PyTorch has it.
        self.raw_stream: Any = getattr(getattr(self.torch, "_C", None), "_cuda_getCurrentRawStream", None)

    def facts(self, array: Any) -> tuple[Any, ...]:
        return (array.shape, array.stride(), array.dtype, array.device)

    def address(self, array: Any) -> int:
        return array.data_ptr()  # type: ignore[no-any-return]

    def layout(self, array: Any) -> Layout:
        gpu = array.device.index if array.device.type == "cuda" else None
        place = HOST if array.device.type == "cpu" else str(array.device)
        dtype = str(array.dtype).replace("torch.", "")
        return Layout(tuple(array.shape), tuple(array.stride()), dtype, place, gpu)

    def refuse_transforms(self, *tensors: Any) -> None:
        """NotImplementedError inside torch.func's transforms, and where a tensor has a forward-mode tangent.

        The kernels read memory, which transforms and tangents cannot follow: a result would lack its derivative.
        """
        functorch = getattr(getattr(self.torch, "_C", None), "_functorch", None)
        if functorch is not None and functorch.peek_interpreter_stack() is not None:
            raise NotImplementedError(
                "flashladder cannot run inside torch.func transforms (vmap, grad, vjp, jvp): for vmap put the axis "
                "into the batch; for gradients call .backward() or torch.autograd.grad() on flashladder.torch.attention"
            )
        forward_ad = getattr(getattr(self.torch, "autograd", None), "forward_ad", None)
        if forward_ad is None or forward_ad._current_level < 0:
            return
        if any(tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
            raise NotImplementedError(
                "flashladder has no forward-mode derivative (torch.autograd.forward_ad): use reverse mode, .backward() "
                "or torch.autograd.grad(), through flashladder.torch.attention"
            )

    def refuse(self, q: Any, k: Any, v: Any, out: Any) -> None:
        """NotImplementedError where a derivative would be lost: autograd would need a backward, or a transform runs."""
        self.refuse_transforms(q, k, v)
        wanted = q.requires_grad or k.requires_grad or v.requires_grad or (out is not None and out.requires_grad)
        if wanted and self.torch.is_grad_enabled():
            raise NotImplementedError(
                "flashladder.attention has no backward: flashladder.torch.attention has one; or call it under "
                "torch.no_grad() or torch.inference_mode(), or detach() the tensors"
            )

    def current_stream(self, gpu: int) -> int:
        if self.raw_stream is not None:
            return self.raw_stream(gpu)  # type: ignore[no-any-return]
        return self.torch.cuda.current_stream(gpu).cuda_stream  # type: ignore[no-any-return]

    def results(self, q: Any, lse_shape: Any, out: Any, stream: int | None) -> tuple[Any, Any]:
        torch = self.torch
        if out is not None and not lse_shape:
            return out, None
        # What is allocated in a stream is not given to another before that one is done.
        if stream is not None and stream != self.current_stream(q.device.index):
            with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=q.device)):
                return self.results(q, lse_shape, out, None)
        lse = q.new_empty(lse_shape, dtype=torch.float32) if lse_shape else None
        return torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out, lse

    def fill(self, array: Any, value: float, stream: int | None) -> None:
        if stream is not None and stream != self.current_stream(array.device.index):
            with self.torch.cuda.stream(self.torch.cuda.ExternalStream(stream, device=array.device)):
                return self.fill(array, value, None)
        array.fill_(value)

    def package(self) -> Any:
        return self.torch

    def beside(self, array: Any) -> dict[str, Any]:
        """Arguments for a new array that lies where this one does."""
        return {"device": array.device}

    def readable(self, array: Any, as_float32: bool) -> Any:
        """The array as kernels read it: contiguous, and on request 16-bit numbers in float32."""
        if as_float32 and array.dtype in (self.torch.float16, self.torch.bfloat16):
            array = array.float()
        return array.contiguous()

    def is_traced(self) -> bool:
        """Whether torch.compile looks on, which reads no values."""
        return bool(self.torch.compiler.is_compiling())


class NumPy:
    """numpy.ndarray; its bfloat16 is that of the package ml_dtypes."""

    def __init__(self) -> None:
        self.numpy: Any = sys.modules["numpy"]

    def facts(self, array: Any) -> tuple[Any, ...]:
        return (array.shape, array.strides, array.dtype)

    def address(self, array: Any) -> int:
        return array.__array_interface__["data"][0]  # type: ignore[no-any-return]

    def layout(self, array: Any) -> Layout:
        dtype = array.dtype.name if array.dtype.isnative else f"{array.dtype.name} with its bytes swapped"
        return Layout(array.shape, _in_elements(array), dtype, HOST, None)

    def refuse(self, q: Any, k: Any, v: Any, out: Any) -> None:
        if out is not None and not out.flags.writeable:
            raise ValueError("out is read-only: pass an array that can be written")

    def current_stream(self, gpu: int) -> int:
        return 0

    def results(self, q: Any, lse_shape: Any, out: Any, stream: int | None) -> tuple[Any, Any]:
        empty = self.numpy.empty
        lse = empty(lse_shape, self.numpy.float32) if lse_shape else None
        return empty(q.shape, q.dtype) if out is None else out, lse

    def fill(self, array: Any, value: float, stream: int | None) -> None:
        array.fill(value)

    def package(self) -> Any:
        return self.numpy

    def beside(self, array: Any) -> dict[str, Any]:
        return {}

    def readable(self, array: Any, as_float32: bool) -> Any:
        return _readable(self.numpy, array, as_float32)

    def is_traced(self) -> bool:
        return False


class CuPy:
    """cupy.ndarray."""

    def __init__(self) -> None:
        self.cupy: Any = sys.modules["cupy"]

    def facts(self, array: Any) -> tuple[Any, ...]:
        return (array.shape, array.strides, array.dtype, array.data.device_id)

    def address(self, array: Any) -> int:
        return array.data.ptr  # type: ignore[no-any-return]

    def layout(self, array: Any) -> Layout:
        gpu = int(array.data.device_id)
        return Layout(array.shape, _in_elements(array), array.dtype.name, f"cuda:{gpu}", gpu)

    def refuse(self, q: Any, k: Any, v: Any, out: Any) -> None:
        pass

    def current_stream(self, gpu: int) -> int:
        return self.cupy.cuda.get_current_stream(gpu).ptr  # type: ignore[no-any-return]

    def results(self, q: Any, lse_shape: Any, out: Any, stream: int | None) -> tuple[Any, Any]:
        gpu = q.data.device_id
        if stream is not None:  # as in Torch.results()
            with self.cupy.cuda.Device(gpu), self.cupy.cuda.ExternalStream(stream, gpu):
                return self._empty(q, lse_shape, out)
        if gpu != self.cupy.cuda.runtime.getDevice():
            with self.cupy.cuda.Device(gpu):
                return self._empty(q, lse_shape, out)
        return self._empty(q, lse_shape, out)

    def fill(self, array: Any, value: float, stream: int | None) -> None:
        gpu = array.data.device_id
        chosen = self.current_stream(gpu) if stream is None else stream
        with self.cupy.cuda.Device(gpu), self.cupy.cuda.ExternalStream(chosen, gpu):
            array.fill(value)

    def package(self) -> Any:
        return self.cupy

    def beside(self, array: Any) -> dict[str, Any]:
        return {}

    def readable(self, array: Any, as_float32: bool) -> Any:
        return _readable(self.cupy, array, as_float32)

    def is_traced(self) -> bool:
        return False

    def _empty(self, q: Any, lse_shape: Any, out: Any) -> tuple[Any, Any]:
        lse = self.cupy.empty(lse_shape, "float32") if lse_shape else None
        return self.cupy.empty(q.shape, q.dtype) if out is None else out, lse


class DLPack:
    """Any other array with __dlpack__, as `Borrowed`. Its like cannot be made: it comes with `out`."""

    def facts(self, array: Borrowed) -> tuple[Any, ...]:
        return (array.shape, array.strides, array.dtype, array.device)

    def address(self, array: Borrowed) -> int:
        return array.address  # type: ignore[no-any-return]

    def layout(self, array: Borrowed) -> Layout:
        return Layout(array.shape, array.strides, array.dtype, array.place, array.gpu)

    def refuse(self, q: Any, k: Any, v: Any, out: Any) -> None:
        if out is not None and out.read_only:
            raise ValueError("out is read-only, or its package hands out a copy: pass an array that can be written")

    def current_stream(self, gpu: int) -> int:
        return 0

    def results(self, q: Any, lse_shape: Any, out: Any, stream: int | None) -> tuple[Any, Any]:
        if out is None or lse_shape:
            raise ValueError(
                "no result can be made for arrays of this package: pass out=, and ask for no log-sum-exp; or pass "
                "PyTorch, JAX, CuPy or NumPy arrays"
            )
        return out, None


class JAX:
    """jax.Array, also inside jax.jit: flashladder.jax has an operation of XLA."""

    def package(self) -> Any:
        return importlib.import_module("jax.numpy")


Framework = Any  # one of the classes above
KINDS: dict[tuple[str, str], type[Any]] = {
    ("torch", "Tensor"): Torch,
    ("numpy", "ndarray"): NumPy,
    ("cupy", "ndarray"): CuPy,
    ("jax", "Array"): JAX,
    ("jax", "Tracer"): JAX,
    ("jaxlib", "Array"): JAX,
    ("jaxlib", "ArrayImpl"): JAX,
}
_made: dict[type[Any], Framework] = {}
_of_type: dict[type[Any], Framework] = {}


def framework_of(name: str, array: Any) -> Framework:
    """The framework that an array is of. TypeError where it is no array."""
    kind = type(array)
    if kind not in _of_type:
        bases = [(base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__]
        if ("numpy", "MaskedArray") in bases:
            raise TypeError(f"{name} is {_a(array)}, and masks are not looked at: pass {name}.data")
        known = next((KINDS[base] for base in bases if base in KINDS), None)
        if known is None:
            if not hasattr(kind, "__dlpack__"):
                raise TypeError(f"{name} is {_a(array)}: a PyTorch, JAX, CuPy or NumPy array is needed, or __dlpack__")
            known = DLPack
        _of_type[kind] = _made.setdefault(known, known())
    return _of_type[kind]


def _common(q: Any, k: Any, v: Any, out: Any) -> Framework:
    """The framework of all these arrays; out may be None."""
    framework = _of_type.get(type(q)) or framework_of("q", q)
    for name, array in (("k", k), ("v", v)) if out is None else (("k", k), ("v", v), ("out", out)):
        if _of_type.get(type(array)) is not framework and framework_of(name, array) is not framework:
            raise TypeError(f"{name} is {_a(array)} and q {_a(q)}: arrays of one package are needed")
    return framework


def _a(array: Any) -> str:
    kind = type(array)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _readable(package: Any, array: Any, as_float32: bool) -> Any:
    """Torch.readable() for arrays of NumPy and CuPy."""
    if as_float32 and array.dtype.name in ("float16", "bfloat16"):
        array = array.astype("float32")
    return array if array.flags.c_contiguous else package.ascontiguousarray(array)


def _in_elements(array: Any) -> tuple[int, ...]:
    """The strides of an array that counts them in bytes. ValueError where they are no multiples of an element."""
    if any(step % array.itemsize for step in array.strides):
        raise ValueError(
            f"strides of {array.strides} bytes, which are no multiples of the {array.itemsize} of an element: "
            "copy it to a contiguous one"
        )
    return tuple(step // array.itemsize for step in array.strides)


# ---- plans -----------------------------------------------------------------------------------------------------------

_plans: dict[Any, Plan] = {}


def plan_of(
    framework: Framework, q: Any, k: Any, v: Any, out: Any, causal: bool, scale: float | None, version: str
) -> Plan:
    """What a call with these arrays needs. ValueError where they do not belong together."""
    facts = framework.facts
    key = (facts(q), facts(k), facts(v), None if out is None else facts(out), causal, scale, version)
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        plan = _plans[key] = _new_plan(framework, q, k, v, out, causal, scale, version)
    return plan


def _new_plan(
    framework: Framework, q: Any, k: Any, v: Any, out: Any, causal: bool, scale: float | None, version: str
) -> Plan:
    arrays = {"q": q, "k": k, "v": v} | ({} if out is None else {"out": out})
    layouts = {name: _layout(framework, name, array) for name, array in arrays.items()}
    for name, layout in layouts.items():
        _check(name, layout, layouts["q"])
    batch, seq_q, heads, d_head = layouts["q"].shape
    _, seq_k, kv_heads, _ = layouts["k"].shape
    _check_shapes(layouts)
    o_strides = (seq_q * heads * d_head, heads * d_head, d_head) if out is None else layouts["out"].strides[:3]
    problem = _call.problem(
        DTYPES[layouts["q"].dtype],
        layouts["q"].gpu,
        (batch, heads, kv_heads, seq_q, seq_k, d_head),
        (*(layouts[name].strides[:3] for name in "qkv"), o_strides),
        causal,
        scale,
        version,
    )
    gpu, lse_shape = layouts["q"].gpu, (batch, heads, seq_q)
    seconds = _seconds(problem) if gpu is None else 0.0
    inputs = (layouts["q"], layouts["k"], layouts["v"])
    return Plan(problem, ctypes.addressof(problem), lse_shape, gpu, seconds, inputs, layouts.get("out"))


def _layout(framework: Framework, name: str, array: Any) -> Layout:
    try:
        found: Layout = framework.layout(array)
    except ValueError as error:
        raise ValueError(f"{name} has {error}") from None
    return found


def _seconds(problem: Problem) -> float:
    """About how long the emulator computes; 0 where a GPU does."""
    if not _emulates():
        return 0.0
    pairs: int = problem.batch * problem.heads * problem.seq_q * problem.seq_k
    operations: int = 4 * pairs * problem.d_head // (2 if problem.causal else 1)
    return operations / EMULATED / (os.cpu_count() or 1)


@functools.lru_cache
def _emulates() -> bool:
    """Whether arrays in host memory are computed by the emulator."""
    found = Description(size=ctypes.sizeof(Description))
    check(LIBRARY.fl_describe(handle(), ctypes.addressof(found)))
    return bool(found.backend == EMULATOR)


_warned = False


def _warn(seconds: float, calls: int) -> None:
    """Say once that the emulator will take long, `calls` functions above this one."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"no GPU: the emulator computes this, which takes about {seconds / 60:.0f} minutes "
            "(flashladder.backend().why_no_gpu says more)",
            RuntimeWarning,
            stacklevel=calls + 1,
        )


def _check(name: str, layout: Layout, q: Layout, dtype: str = "") -> None:
    """What is wrong with one array, alone or beside q. `dtype` is what it must have; "" is that of q."""
    if layout.place != HOST and layout.gpu is None:
        raise ValueError(f"{name} lies on {layout.place}: host memory or a CUDA GPU is needed")
    if layout.gpu is not None and _emulates():
        raise ValueError(
            f"{name} lies on {layout.place}, and flashladder has no GPU (flashladder.backend().why_no_gpu says why): "
            "pass arrays in host memory"
        )
    if layout.place != q.place:
        raise ValueError(f"{name} lies on {layout.place} and q on {q.place}: they must lie together")
    if layout.dtype != dtype and layout.dtype not in DTYPES:
        raise ValueError(f"{name} is {layout.dtype}: float16 or bfloat16 is needed")
    if layout.dtype != (dtype or q.dtype):
        raise ValueError(f"{name} is {layout.dtype} and q {q.dtype}: they must be of one type")
    if len(layout.shape) != 4:
        raise ValueError(f"{name} has the shape {layout.shape}: four dimensions are needed, {AXES}")
    if layout.strides[3] != 1 and layout.shape[3] > 1 and 0 not in layout.shape:
        raise ValueError(
            f"{name} has the stride {layout.strides[3]} along d_head, its last dimension: the elements of a row must "
            "lie side by side"
        )


def _check_shapes(layouts: dict[str, Layout], same_batch: bool = True) -> None:
    q, k, v = (layouts[name].shape for name in "qkv")
    if v != k:
        raise ValueError(f"v has the shape {v} and k {k}: they must be alike, [batch, seq_k, kv_heads, d_head]")
    for axis in (0, 3) if same_batch else (3,):
        if k[axis] != q[axis]:
            what = ("batch", "", "", "d_head")[axis]
            raise ValueError(f"{what} of k is {k[axis]} and of q {q[axis]}: they must be alike; the axes are {AXES}")
    if "out" in layouts and layouts["out"].shape != q:
        raise ValueError(f"out has the shape {layouts['out'].shape} and q {q}: they must be alike")
    if "out" in layouts and overlaps_itself(layouts["out"].shape, layouts["out"].strides):
        raise ValueError(f"out has the strides {layouts['out'].strides}, so that rows of it overlap: pass another one")


def _check_apart(plan: Plan, o: int, inputs: tuple[int, ...]) -> None:
    """ValueError where out, at the address o, shares memory with an input."""
    out = plan.out
    assert out is not None
    first, last = span(out.shape, out.strides)
    for name, address, layout in zip("qkv", inputs, plan.inputs):
        distance = (address - o) // 2  # in elements; that an address is odd the library says
        low, high = span(layout.shape, layout.strides)
        if distance + low < last and first < distance + high and overlap(distance, out, layout):
            raise ValueError(f"out shares memory with {name}: it must not overlap q, k or v")


def problem_of(q: Any, k: Any, v: Any, *, causal: bool, scale: float | None, version: str) -> Problem:
    """The problem of a call with these arrays."""
    framework = _common(q, k, v, None)
    causal, scale, _, version = _call.options(causal, scale, False, version)
    if type(framework) in (DLPack, JAX):
        framework = _made.setdefault(DLPack, DLPack())
        q, k, v = (Borrowed(name, array, 0) for name, array in (("q", q), ("k", k), ("v", v)))
    return plan_of(framework, q, k, v, None, causal, scale, version).problem


# ---- the call --------------------------------------------------------------------------------------------------------


def stream_handle(stream: Any) -> int:
    """The CUstream of an int or of a stream of PyTorch, CuPy or cuda-python. TypeError for anything else."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        if not 0 <= stream < 2**64:
            raise ValueError(f"stream is {stream}: the address of a CUstream is needed, or 0")
        return stream
    for attribute in ("cuda_stream", "ptr"):
        found = getattr(stream, attribute, None)
        if isinstance(found, int):
            return found
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int(protocol()[1])
    raise TypeError(f"stream is {stream!r}: a stream of PyTorch or CuPy or the address of a CUstream is needed")


def _stream_of(framework: Framework, plan: Plan, chosen: int | None, stream: Any, calls: int = 2) -> int:
    """Where a call computes: `chosen`, the handle of `stream`, or the framework's; 0 for host memory. The function that
    people call is called `calls` functions above this one."""
    if plan.gpu is not None:
        return framework.current_stream(plan.gpu) if chosen is None else chosen
    if chosen is not None:
        raise ValueError(f"stream is {stream!r}, and the arrays lie in host memory, which has none: leave it out")
    if plan.seconds > LONG:
        _warn(plan.seconds, calls + 1)
    return 0


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    seqlens_k: Any = None,
    seqlens_q: Any = None,
    deterministic: Any = None,
    return_lse: bool = False,
    version: str = "best",
    out: Any = None,
    stream: Any = None,
    **unknown: NoReturn,
) -> Any:
    """softmax(scale · q kᵀ) v, without gradients: those are in flashladder.torch and flashladder.jax.

    q is [batch, seq_q, heads, d_head]; k and v are [batch, seq_k, kv_heads, d_head]. All are float16 or bfloat16, on
    one GPU or in host memory; kv_heads divides heads. Strides may be any multiples of 8 elements with the elements of
    a row side by side: q.transpose(1, 2) of [batch, heads, seq, d_head] will do.

    causal      row i sees the keys up to i + seq_k - seq_q: the mask is aligned to the bottom right
    scale       of the scores, of either sign; None: 1 / √d_head
    window      (left, right): row i sees keys from i + seq_k - seq_q - left to i + seq_k - seq_q + right; -1: no end
    softcap     scores are softcap · tanh(score / softcap)
    sinks       float32 [heads]: a score that each row of the head sees too, not scaled and without a value
    seqlens_k   int32 [batch]: keys that a sequence uses, from the first on; masks end at the last of them
    seqlens_q   int32 [batch]: the same of queries; the other rows of a new result are 0 and -infinity
    deterministic   "batch": the bits of a sequence do not depend on what else is in the batch
    return_lse  also return the natural logarithm of each row's sum of exponentials, float32 [batch, heads, seq_q]
    version     "best": the fastest for this GPU, by its records; or one of versions(), "attention/wgmma"
    out         where the result goes, like q; None: a new contiguous array
    stream      where a GPU computes; None: the framework's current stream

    Returns out, or (out, log-sum-exp): arrays of the framework of q. On a GPU they are ready when the stream is; from
    host memory when the call returns. ValueError, TypeError: an argument is wrong. NotImplementedError: no version
    computes this, or a backward is needed. RuntimeError: the GPU or the emulator fails.
    """
    if unknown:
        _call.refuse_unknown("attention", OPTIONS, unknown)
    q, scale = _call.with_positive_scale(q, scale)
    if any(one is not None for one in (window, softcap, sinks, seqlens_k, seqlens_q, deterministic)):
        serving = importlib.import_module("flashladder._serving")
        asked = serving.options(causal, scale, window, softcap, deterministic, return_lse, version)
        arrays = serving.present(seqlens_q=seqlens_q, seqlens_k=seqlens_k, sinks=sinks)
        made, lse = serving.serve(q, k, v, arrays, asked, out=out, stream=stream)
        return (made, lse) if return_lse else made
    framework = _common(q, k, v, out)
    causal, scale, return_lse, version = _call.options(causal, scale, return_lse, version)
    chosen = None if stream is None else stream_handle(stream)
    result = out
    if type(framework) is JAX:
        return _jax(q, k, v, causal, scale, return_lse, version, out, stream)
    if type(framework) is DLPack:
        q, k, v = (Borrowed(name, array, chosen or 0) for name, array in (("q", q), ("k", k), ("v", v)))
        out = None if out is None else Borrowed("out", out, chosen or 0)
    plan = plan_of(framework, q, k, v, out, causal, scale, version)
    framework.refuse(q, k, v, out)
    current = _stream_of(framework, plan, chosen, stream)
    made, lse = framework.results(q, return_lse and plan.lse_shape, out, chosen)
    address = framework.address
    o, inputs = address(made), (address(q), address(k), address(v))
    if out is not None:
        _check_apart(plan, o, inputs)
    _call.launch(plan.address, *inputs, o, address(lse) if return_lse else 0, current)
    if result is None:
        result = made
    return (result, lse) if return_lse else result


def _jax(
    q: Any, k: Any, v: Any, causal: bool, scale: float | None, return_lse: bool, version: str, out: Any, stream: Any
) -> Any:
    if out is not None or stream is not None:
        raise ValueError("out or stream is given, and JAX has immutable arrays and a stream of its own: leave them out")
    jax = importlib.import_module("flashladder.jax")
    return jax.attention(q, k, v, causal=causal, scale=scale, return_lse=return_lse, version=version)
