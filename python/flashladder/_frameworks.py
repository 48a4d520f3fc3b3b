"""Arrays of the frameworks: what each reports of its memory, and results of the same kind.

    framework = common(q, k, v, out)
    framework.layout(q).strides

A framework is a class with `facts`, which are quick to read and hashable, and `layout`, which states the same in terms
that all frameworks share. No framework is imported here, because arrays bring theirs along.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from flashladder._dlpack import Borrowed

DTYPES = {"float16": "fp16", "bfloat16": "bf16"}
E4M3, INT8 = "float8_e4m3fn", "int8"
HOST = "host memory"
TRACED = "a device that jax.jit has not chosen yet"


class Layout(NamedTuple):
    """One array in the terms of all frameworks."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: str  # "float16"
    device: str  # HOST, TRACED, "cuda:0", or what else the framework says
    gpu: int | None  # its ordinal; None for host memory


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
        if attribute(array, "layout", None) is not getattr(self.torch, "strided", None):
            raise ValueError(f"the layout {array.layout}: a dense tensor is needed")
        gpu = array.device.index if array.device.type == "cuda" else None
        device = HOST if array.device.type == "cpu" else str(array.device)
        dtype = str(array.dtype).replace("torch.", "")
        return Layout(tuple(array.shape), tuple(array.stride()), dtype, device, gpu)

    def refuse(self, q: Any, k: Any, v: Any, out: Any, arrays: dict[str, Any]) -> None:
        """NotImplementedError where autograd or forward-mode differentiation would need a derivative."""
        torch = self.torch
        if not torch.is_grad_enabled():
            return
        tensors = {"q": q, "k": k, "v": v, "out": out, **arrays}
        for name, tensor in tensors.items():
            if tensor is not None and tensor.requires_grad:
                raise NotImplementedError(
                    f"{name} requires a gradient, and flashladder.attention has no backward: "
                    "flashladder.torch.attention has one for q, k and v; or call it under torch.no_grad() or "
                    f"torch.inference_mode(), or detach() {name}"
                )

    def current_stream(self, gpu: int) -> int:
        if self.raw_stream is not None:
            return self.raw_stream(gpu)  # type: ignore[no-any-return]
        return self.torch.cuda.current_stream(gpu).cuda_stream  # type: ignore[no-any-return]

    def results(
        self, q: Any, d_head_v: int, lse_shape: Any, out: Any, stream: int | None, dtype: str | None = None
    ) -> tuple[Any, Any]:
        torch = self.torch
        if out is not None and not lse_shape:
            return out, None
        # Memory that is allocated on a stream is not reused on another before that stream is done.
        if stream is not None and stream != self.current_stream(q.device.index):
            with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=q.device)):
                return self.results(q, d_head_v, lse_shape, out, None, dtype)
        lse = q.new_empty(lse_shape, dtype=torch.float32) if lse_shape else None
        if out is None and dtype is not None:
            return torch.empty_like(q, dtype=getattr(torch, dtype), memory_format=torch.contiguous_format), lse
        if out is None and d_head_v != q.shape[-1]:
            return q.new_empty((*q.shape[:-1], d_head_v)), lse
        return torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out, lse

    def fill(self, array: Any, value: float, stream: int | None) -> None:
        if stream is not None and stream != self.current_stream(array.device.index):
            with self.torch.cuda.stream(self.torch.cuda.ExternalStream(stream, device=array.device)):
                return self.fill(array, value, None)
        array.fill_(value)

    def view(self, array: Any, shape: tuple[int, ...], step: int) -> Any:
        """The memory of a tensor with another shape, whose first axis has this step in elements."""
        return array.as_strided(shape, (step, *array.stride()[1:]))

    def package(self) -> Any:
        return self.torch

    def same_device(self, array: Any) -> dict[str, Any]:
        """Arguments for a new array on the same device."""
        return {"device": array.device}

    def is_traced(self) -> bool:
        """True if torch.compile looks on, which reads no values."""
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

    def refuse(self, q: Any, k: Any, v: Any, out: Any, arrays: dict[str, Any]) -> None:
        if out is not None and not out.flags.writeable:
            raise ValueError("out is read-only: pass an array that can be written")

    def current_stream(self, gpu: int) -> int:
        return 0

    def results(
        self, q: Any, d_head_v: int, lse_shape: Any, out: Any, stream: int | None, dtype: str | None = None
    ) -> tuple[Any, Any]:
        empty = self.numpy.empty
        lse = empty(lse_shape, self.numpy.float32) if lse_shape else None
        kind = q.dtype if dtype is None else self.numpy.dtype(self._kind(dtype))
        return empty((*q.shape[:-1], d_head_v), kind) if out is None else out, lse

    def _kind(self, dtype: str) -> Any:
        return dtype if dtype == "float16" else getattr(importlib.import_module("ml_dtypes"), dtype)

    def view(self, array: Any, shape: tuple[int, ...], step: int) -> Any:
        """The memory of an array with another shape, whose first axis has this step in elements."""
        strides = (step * array.itemsize, *array.strides[1:])
        return self.numpy.lib.stride_tricks.as_strided(array, shape, strides)

    def fill(self, array: Any, value: float, stream: int | None) -> None:
        array.fill(value)

    def package(self) -> Any:
        return self.numpy

    def same_device(self, array: Any) -> dict[str, Any]:
        return {}

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

    def refuse(self, q: Any, k: Any, v: Any, out: Any, arrays: dict[str, Any]) -> None:
        pass

    def current_stream(self, gpu: int) -> int:
        return self.cupy.cuda.get_current_stream(gpu).ptr  # type: ignore[no-any-return]

    def results(
        self, q: Any, d_head_v: int, lse_shape: Any, out: Any, stream: int | None, dtype: str | None = None
    ) -> tuple[Any, Any]:
        gpu = q.data.device_id
        if stream is not None:  # as in Torch.results()
            with self.cupy.cuda.Device(gpu), self.cupy.cuda.ExternalStream(stream, gpu):
                return self._empty(q, d_head_v, lse_shape, out)
        if gpu != self.cupy.cuda.runtime.getDevice():
            with self.cupy.cuda.Device(gpu):
                return self._empty(q, d_head_v, lse_shape, out)
        return self._empty(q, d_head_v, lse_shape, out)

    def fill(self, array: Any, value: float, stream: int | None) -> None:
        gpu = array.data.device_id
        chosen = self.current_stream(gpu) if stream is None else stream
        with self.cupy.cuda.Device(gpu), self.cupy.cuda.ExternalStream(chosen, gpu):
            array.fill(value)

    def view(self, array: Any, shape: tuple[int, ...], step: int) -> Any:
        """The memory of an array with another shape, whose first axis has this step in elements."""
        strides = (step * array.itemsize, *array.strides[1:])
        return self.cupy.lib.stride_tricks.as_strided(array, shape, strides)

    def package(self) -> Any:
        return self.cupy

    def same_device(self, array: Any) -> dict[str, Any]:
        return {}

    def is_traced(self) -> bool:
        return False

    def _empty(self, q: Any, d_head_v: int, lse_shape: Any, out: Any) -> tuple[Any, Any]:
        lse = self.cupy.empty(lse_shape, "float32") if lse_shape else None
        return self.cupy.empty((*q.shape[:-1], d_head_v), q.dtype) if out is None else out, lse


class DLPack:
    """Any other array with __dlpack__, as `Borrowed`. Its like cannot be made: it comes with `out`."""

    def facts(self, array: Borrowed) -> tuple[Any, ...]:
        return (array.shape, array.strides, array.dtype, array.device)

    def address(self, array: Borrowed) -> int:
        return array.address  # type: ignore[no-any-return]

    def layout(self, array: Borrowed) -> Layout:
        return Layout(array.shape, array.strides, array.dtype, array.device_name, array.gpu)

    def refuse(self, q: Any, k: Any, v: Any, out: Any, arrays: dict[str, Any]) -> None:
        if out is not None and out.read_only:
            raise ValueError("out is read-only, or its package hands out a copy: pass an array that can be written")

    def current_stream(self, gpu: int) -> int:
        return 0

    def results(
        self, q: Any, d_head_v: int, lse_shape: Any, out: Any, stream: int | None, dtype: str | None = None
    ) -> tuple[Any, Any]:
        if out is None or lse_shape:
            raise ValueError(
                "no result can be made for arrays of this package: pass out=, and ask for no log-sum-exp; or pass "
                "PyTorch, JAX, CuPy or NumPy arrays"
            )
        return out, None


class JAX:
    """jax.Array, also inside jax.jit: flashladder.jax has operations of XLA, whose arrays are contiguous."""

    in_xla: Callable[[Any], tuple[Any, Any]]  # runs a Call; set by the package, as this module is below that one

    def facts(self, array: Any) -> tuple[Any, ...]:
        return (array.shape, array.dtype, *self._device(array))

    def layout(self, array: Any) -> Layout:
        strides = [1]
        for size in reversed(array.shape[1:]):
            strides.insert(0, strides[0] * size)
        dtype = E4M3 if array.dtype == self.package().float8_e4m3fn else array.dtype.name
        shape = tuple(array.shape)
        return Layout(shape, tuple(strides[: len(shape)]), dtype, *self._device(array))

    def _device(self, array: Any) -> tuple[str, int | None]:
        """A device, and the ordinal of a GPU."""
        try:
            devices = array.devices()
        except Exception:  # jax.errors.ConcretizationTypeError
            return TRACED, None
        found = [device.id for device in devices if device.platform in ("gpu", "cuda")]
        return (f"cuda:{min(found)}", min(found)) if found else (HOST, None)

    def run(self, call: Any, stream: Any) -> tuple[Any, Any]:
        if call.out is not None or stream is not None:
            raise ValueError("out or stream is given, but JAX has immutable arrays and its own stream: leave them out")
        return JAX.in_xla(call)

    def state(self, layout: Layout) -> Layout:
        """The layout of seed and offset in int64, which JAX has only with jax_enable_x64."""
        if (layout.dtype, layout.shape) not in (("int64", (2,)), ("int32", (2,)), ("uint32", (2,)), ("uint32", (4,))):
            raise ValueError(
                f"rng_state is {layout.dtype} of the shape {layout.shape}: int32, uint32 or int64 (2,) is needed, seed "
                "and offset, or uint32 (4,), the low and the high word of both"
            )
        return layout._replace(shape=(2,), strides=(1,), dtype="int64")

    def view(self, array: Any, shape: tuple[int, ...], step: int) -> Any:
        return array.reshape(shape)

    def package(self) -> Any:
        return importlib.import_module("jax.numpy")

    def same_device(self, array: Any) -> dict[str, Any]:
        return {}


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
            raise TypeError(f"{name} is {kind_of(array)}, whose mask flashladder ignores: pass {name}.data")
        known = next((KINDS[base] for base in bases if base in KINDS), None)
        if known is None:
            if not hasattr(kind, "__dlpack__"):
                raise TypeError(
                    f"{name} is {kind_of(array)}: a PyTorch, JAX, CuPy or NumPy array is needed, or __dlpack__"
                )
            known = DLPack
        _of_type[kind] = _made.setdefault(known, known())
    return _of_type[kind]


def common(q: Any, k: Any, v: Any, out: Any) -> Framework:
    """The framework of all these arrays; out may be None."""
    framework = _of_type.get(type(q)) or framework_of("q", q)
    for name, array in (("k", k), ("v", v)) if out is None else (("k", k), ("v", v), ("out", out)):
        if _of_type.get(type(array)) is not framework and framework_of(name, array) is not framework:
            raise TypeError(f"{name} is {kind_of(array)} and q {kind_of(q)}: pass arrays of one package")
    return framework


def attribute(array: Any, name: str, default: Any) -> Any:
    """getattr() with a default, also of None and numbers, as older versions of torch.compile trace it."""
    if array is None or type(array) in (int, float):
        return default
    try:
        return getattr(array, name)
    except AttributeError:
        return default


def kind_of(array: Any) -> str:
    kind = type(array)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _in_elements(array: Any) -> tuple[int, ...]:
    """The strides of an array that counts them in bytes. ValueError where they are no multiples of an element."""
    if any(step % array.itemsize for step in array.strides):
        raise ValueError(
            f"strides of {array.strides} bytes, which are not multiples of the {array.itemsize} of an element: "
            "copy it to a contiguous one"
        )
    return tuple(step // array.itemsize for step in array.strides)


def layout_of(framework: Framework, name: str, array: Any) -> Layout:
    try:
        found: Layout = framework.layout(array)
    except ValueError as error:
        raise ValueError(f"{name} has {error}") from None
    return found


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
