"""The package on a library that writes down its calls, and arrays with __dlpack__ but no memory.

package = Recorded(folder)                  # compiles fake_library.c there
package.attention(q, k, v)
package.last.tensors.q, package.last.stream
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import importlib
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def compiled(folder: Path, *defines: str) -> Path:
    """fake_library.c as a shared library."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "libflashladder.so"
    source = ROOT / "python/tests/fake_library.c"
    command = ["cc", "-std=c11", "-O1", "-shared", "-fPIC", f"-I{ROOT / 'include'}", *defines, "-o", target, source]
    subprocess.run(command, check=True, timeout=600)
    return target


@contextlib.contextmanager
def without_package() -> Iterator[None]:
    """The package as if it had never been imported; afterwards as before."""
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "flashladder"}
    for name in before:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "flashladder"]:
            del sys.modules[name]
        sys.modules.update(before)


class Recorded:
    """A second copy of the package, on the library of fake_library.c."""

    def __init__(self, folder: Path) -> None:
        path = compiled(folder)
        with pytest.MonkeyPatch.context() as patch, without_package():
            patch.setenv("FLASHLADDER_LIBRARY", str(path))
            self.package: Any = importlib.import_module("flashladder")
            self.frameworks: Any = importlib.import_module("flashladder._frameworks")
            self.call: Any = importlib.import_module("flashladder._call")
            self.options: Any = importlib.import_module("flashladder._options")
            self.launch: Any = importlib.import_module("flashladder._launch")
            self.dlpack: Any = importlib.import_module("flashladder._dlpack")
            self.library: Any = importlib.import_module("flashladder._library")
            self._modules = {name: module for name, module in sys.modules.items() if name.startswith("flashladder")}
        library = self.library

        class Call(ctypes.Structure):
            _fields_ = [
                ("problem", library.Problem),
                ("tensors", library.Tensors),
                ("stream", ctypes.c_void_p),
                ("calls", ctypes.c_int64),
                ("version", ctypes.c_char * 8),
            ]

        self.last: Any = Call.in_dll(self.library.LIBRARY, "fake_last")
        self.gradients: Any = library.Gradients.in_dll(self.library.LIBRARY, "fake_gradients")
        self.status: Any = ctypes.c_int.in_dll(self.library.LIBRARY, "fake_status")

    @contextlib.contextmanager
    def on(self, **modules: Any) -> Iterator[Any]:
        """This copy of the package as `flashladder`, with fake packages; returns what imports a module of it."""
        with pytest.MonkeyPatch.context() as patch, without_package():
            sys.modules.update(self._modules)
            for name, module in modules.items():
                patch.setitem(sys.modules, name, module)
                for inner in vars(module).values():
                    if isinstance(inner, ModuleType):
                        patch.setitem(sys.modules, inner.__name__, inner)
            yield lambda name: importlib.import_module(f"flashladder.{name}")

    @contextlib.contextmanager
    def failing(self, status: int) -> Iterator[None]:
        """The library returns this status."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.status, "value", status)
            yield

    def attention(self, *arrays: Any, **options: Any) -> Any:
        return self.package.attention(*arrays, **options)

    def steps(self, name: str) -> tuple[int, int, int]:
        """The strides of q, k, v or o in the last call."""
        strides = getattr(self.last.problem, name)
        return (strides.batch, strides.seq, strides.head)


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous array, in elements."""
    steps = [1]
    for size in reversed(shape[1:]):
        steps.insert(0, steps[0] * size)
    return tuple(steps)


_api = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", _api))
_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_FLOAT, _BFLOAT = 2, 4


class Producer:
    """An array with __dlpack__. It writes down what it is asked for and how many capsules are alive."""

    def __init__(
        self,
        structs: Any,
        shape: Sequence[int],
        address: int = 0x7F0000000000,
        *,
        strides: Sequence[int] | None = (),
        device: tuple[int, int] = (2, 0),
        dtype: tuple[int, int, int] = (_FLOAT, 16, 1),
        offset: int = 0,
        major: int | None = None,
        flags: int = 0,
    ) -> None:
        self.device, self.major, self.alive = device, major, 0
        self.asked: list[dict[str, Any]] = []
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        steps = strides_of(shape) if strides == () else strides
        self._strides = None if steps is None else (ctypes.c_int64 * len(steps))(*steps)
        pointer = ctypes.POINTER(ctypes.c_int64)
        tensor = structs.Tensor(address, *device, len(shape), *dtype, ctypes.cast(self._shape, pointer))
        if self._strides is not None:
            tensor.strides = ctypes.cast(self._strides, pointer)
        tensor.byte_offset = offset
        if major is None:
            self._managed, self._name = structs.ManagedTensor(tensor), b"dltensor"
        else:
            self._managed = structs.VersionedTensor(major, 0, None, None, flags, tensor)
            self._name = b"dltensor_versioned"
        self._destructor = _DESTRUCTOR(self._gone)  # kept alive with this object

    def _gone(self, capsule: int) -> None:
        if _valid(capsule, self._name):  # nobody has consumed it: the memory is to be given back
            self.alive -= 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **asked: Any) -> Any:
        if self.major is None and "max_version" in asked:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.asked.append(asked)
        self.alive += 1
        return _new(ctypes.addressof(self._managed), self._name, ctypes.cast(self._destructor, ctypes.c_void_p))


class Stream:
    """A stream; as a context it is the current one."""

    current = 0x5000
    entered = 0  # how often one became the current stream

    def __init__(self, handle: int) -> None:
        self.cuda_stream = handle

    def __enter__(self) -> None:
        self.before, Stream.current = Stream.current, self.cuda_stream
        Stream.entered += 1

    def __exit__(self, *_: object) -> None:
        Stream.current = self.before


class Tensor:
    """The attributes of a torch.Tensor that the package reads."""

    next_address = 0x7F1000000000

    def __init__(self, shape: Sequence[int], dtype: str = "float16", device: str = "cuda:0") -> None:
        self.shape, self._stride = tuple(shape), strides_of(shape) if shape else ()
        self.dtype = f"torch.{dtype.replace('torch.', '')}"
        kind, _, index = device.partition(":")
        self.device = _Device(kind, int(index) if index else None)
        self.requires_grad = self.is_nested = False
        self.values: list[int] = []
        self.allocated_in = Stream.current
        self._address = Tensor.next_address
        Tensor.next_address += 1 << 20

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        return len(self.shape)

    def stride(self, axis: int | None = None) -> Any:
        return self._stride if axis is None else self._stride[axis]

    def data_ptr(self) -> int:
        return self._address

    def new_empty(self, shape: Sequence[int], dtype: str) -> Tensor:
        return Tensor(shape, dtype, str(self.device))

    def transpose(self, one: int, other: int) -> Tensor:
        """The same memory."""
        swap = list(range(self.ndim))
        swap[one], swap[other] = other, one
        return self.as_strided([self.shape[i] for i in swap], [self._stride[i] for i in swap])

    def copy_(self, other: Tensor) -> Tensor:
        assert self.shape == other.shape
        self.copied = other
        return self

    def is_contiguous(self) -> bool:
        return self._stride == strides_of(self.shape)

    def contiguous(self) -> Tensor:
        return self if self.is_contiguous() else Tensor(self.shape, self.dtype, str(self.device))

    def tolist(self) -> list[int]:
        return self.values

    def fill_(self, value: float) -> Tensor:
        self.filled = value
        return self

    def __ge__(self, other: Tensor) -> Tensor:
        return self

    __lt__ = __and__ = __ge__

    def __getitem__(self, places: Any) -> Tensor:
        """Slices of elements of 16 bits, and None for a new dimension."""
        shape, stride, address, axis = [], [], self._address, 0
        for index in places if isinstance(places, tuple) else (places,):
            if index is None:
                shape.append(1)
                stride.append(1)
                continue
            first, end, _ = index.indices(self.shape[axis])
            shape.append(max(end - first, 0))
            stride.append(self._stride[axis])
            address, axis = address + 2 * first * self._stride[axis], axis + 1
        view = self.as_strided([*shape, *self.shape[axis:]], [*stride, *self._stride[axis:]])
        view._address = address
        return view

    def as_strided(self, shape: Sequence[int], stride: Sequence[int]) -> Tensor:
        view = Tensor(self.shape, self.dtype, str(self.device))
        view.shape, view._stride, view._address = tuple(shape), tuple(stride), self._address
        return view


Tensor.__module__ = "torch"


class _Device(SimpleNamespace):
    def __init__(self, kind: str, index: int | None) -> None:
        super().__init__(type=kind, index=index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


def _empty(size: int | Sequence[int], *, dtype: str, device: Any) -> Tensor:
    return Tensor((size,) if isinstance(size, int) else size, dtype, str(device))


def _empty_like(like: Tensor, *, memory_format: str = "as it is") -> Tensor:
    made = Tensor(like.shape, like.dtype, str(like.device))
    if memory_format != "contiguous":
        made._stride = like._stride
    return made


class Operator:
    """Result of torch.library.custom_op(); as torch.ops.flashladder.attention it calls the function."""

    running = 0

    def __init__(self, name: str, function: Callable[..., Any], mutates_args: Sequence[str], schema: str) -> None:
        self.name, self.function, self.mutates_args = name, function, mutates_args
        self.fake: Any = None
        self.backward: Any = None
        self.setup_context: Any = None
        written = [one.split()[1].partition("=") for one in schema[1 : schema.index(")")].split(", ")]
        theirs = [
            (name, ast.literal_eval(value) if equals else inspect.Parameter.empty) for name, equals, value in written
        ]
        ours = inspect.signature(function).parameters.values()
        assert theirs == [(one.name, one.default) for one in ours], f"{name}: its schema has other arguments"

    def register_fake(self, fake: Any) -> None:
        self.fake = fake

    def register_autograd(self, backward: Any, *, setup_context: Any = None) -> None:
        self.backward, self.setup_context = backward, setup_context

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        Operator.running += 1  # autograd is over
        try:
            return self.function(*arguments, **options)
        finally:
            Operator.running -= 1


class _Library:
    """torch.library.Library: what was put instead of which operator."""

    def __init__(self, namespace: str, kind: str, key: str) -> None:
        self.about, self.functions = (namespace, kind, key), dict[str, Any]()

    def impl(self, name: str, function: Any, key: str, *, with_keyset: bool) -> None:
        self.functions[name] = (function, key, with_keyset)


class _Function:
    """torch.autograd.Function, which runs without gradients."""

    @classmethod
    def apply(cls: Any, *arguments: Any) -> Any:
        cls.last, Operator.running = Mock(), True
        try:
            return cls.forward(cls.last, *arguments)
        finally:
            Operator.running = False


def fake_torch() -> Any:
    """A module with what the package uses of PyTorch, on fake GPUs. `grad` and `compiling` are its state."""
    torch: Any = ModuleType("torch")
    torch.__version__ = "0.1"
    torch.Tensor, torch.grad, torch.compiling = Tensor, True, False
    for name in ("float16", "bfloat16", "float32", "int32", "uint8", "uint64"):
        setattr(torch, name, f"torch.{name}")
    torch.is_grad_enabled = lambda: torch.grad and not Operator.running
    torch.is_autocast_enabled = lambda kind: False
    torch.arange = lambda count, *, device: Tensor((count,), "int64", str(device))
    torch.where = lambda condition, one, other: one
    torch.ordered = False
    torch.are_deterministic_algorithms_enabled = lambda: torch.ordered
    torch.contiguous_format = "contiguous"
    torch.empty, torch.empty_like, torch.zeros = _empty, _empty_like, _empty
    torch.empty_strided = lambda shape, stride, *, dtype, device: _empty(shape, dtype=dtype, device=device).as_strided(
        shape, stride
    )
    torch.autograd = SimpleNamespace(Function=_Function)
    torch.compiler = SimpleNamespace(is_compiling=lambda: torch.compiling)
    torch.cuda = SimpleNamespace(
        current_stream=lambda gpu: SimpleNamespace(cuda_stream=Stream.current + getattr(gpu, "index", gpu)),
        stream=lambda stream: stream,
        ExternalStream=lambda handle, device: Stream(handle),
    )
    torch.ops = SimpleNamespace(aten=SimpleNamespace(_flash_attention_forward_no_dropout_inplace=None))

    def custom_op(name: str, function: Any, *, mutates_args: Sequence[str], schema: str) -> Operator:
        namespace, _, own = name.partition("::")
        operator = Operator(name, function, mutates_args, schema)
        if not hasattr(torch.ops, namespace):
            setattr(torch.ops, namespace, SimpleNamespace())
        setattr(getattr(torch.ops, namespace), own, operator)
        return operator

    torch.originals = []

    def get_kernel(name: str, key: str) -> Any:
        def call_boxed(keyset: Any, *arguments: Any, **options: Any) -> Any:
            torch.originals.append((name, key, keyset, arguments, options))
            return "PyTorch's own"

        return SimpleNamespace(call_boxed=call_boxed)

    torch.library = SimpleNamespace(custom_op=custom_op, get_kernel=get_kernel, Library=_Library)
    torch.implementations = {}

    def register_flash_attention_impl(name: str, *, register_fn: Any) -> None:
        torch.implementations[name] = register_fn

    torch.nn = SimpleNamespace(attention=SimpleNamespace(register_flash_attention_impl=register_flash_attention_impl))
    torch.nn.Parameter = lambda tensor: tensor
    return torch


class Array(np.ndarray[Any, Any]):
    """jax.Array, with the memory of NumPy's."""


Array.__module__ = "jax"


def fake_jax() -> Any:
    """A module with what flashladder.jax uses. `targets` and `calls` are what it registered and called;
    `differentiable` has the arguments of calls that have gradients."""
    jax: Any = ModuleType("jax")
    jnp: Any = ModuleType("jax.numpy")
    jnp.float16, jnp.bfloat16, jnp.float32 = np.float16, np.int16, np.float32  # NumPy lacks bfloat16
    jnp.int32, jnp.uint32, jnp.float8_e4m3fn = np.int32, np.uint32, np.int8
    for function in ("arange", "broadcast_to", "clip", "inf", "minimum", "searchsorted", "where", "zeros_like"):
        setattr(jnp, function, getattr(np, function))
    jnp.full = lambda *given, **named: np.full(*given, **named).view(Array)
    jnp.stack, jnp.array = np.stack, lambda *given, **named: np.array(*given, **named).view(Array)
    jax.numpy, jax.Array = jnp, Array
    jax.targets, jax.calls, jax.results, jax.static, jax.passes, jax.differentiable = {}, [], [], {}, [], []

    def register_ffi_target(name: str, capsule: Any, *, platform: str) -> None:
        jax.targets[name, platform] = capsule

    def ffi_call(name: str, results: Sequence[Any], *, vmap_method: str) -> Any:
        def call(*arrays: Any, **attributes: Any) -> Any:
            jax.calls.append((name, vmap_method, arrays, attributes))
            jax.results.append(results)
            return [np.zeros(one.shape, one.dtype).view(Array) for one in results]

        return call

    def jit(function: Any, *, static_argnums: Sequence[int]) -> Any:
        jax.static["jit"] = tuple(static_argnums)
        return function

    class custom_vjp:
        def __init__(self, function: Any, *, nondiff_argnums: Sequence[int]) -> None:
            self.function, jax.static["vjp"] = function, tuple(nondiff_argnums)

        def defvjp(self, keep: Any, backward: Any) -> None:
            jax.keep, jax.backward = keep, backward
            jax.passes.append((keep, backward))

        def __call__(self, *arguments: Any) -> Any:
            jax.differentiable.append(arguments)
            return self.function(*arguments)

    class custom_jvp:
        def __init__(self, function: Any, *, nondiff_argnums: Sequence[int]) -> None:
            self.function = function

        def defjvp(self, rule: Any) -> None:
            jax.rule = rule

        def __call__(self, *arguments: Any) -> Any:
            return self.function(*arguments)

    jax.ffi = SimpleNamespace(
        register_ffi_target=register_ffi_target, pycapsule=lambda function: ("capsule", function), ffi_call=ffi_call
    )
    jax.ShapeDtypeStruct = lambda shape, dtype: SimpleNamespace(shape=shape, dtype=dtype)
    jax.jit, jax.custom_vjp, jax.custom_jvp = jit, custom_vjp, custom_jvp
    return jax


def fake_transformers() -> Any:
    """A module with what flashladder.transformers uses: `attention` and `masks` hold what is registered."""
    transformers: Any = ModuleType("transformers")
    transformers.attention, transformers.masks = {}, {}
    register = transformers.attention.__setitem__, transformers.masks.__setitem__
    transformers.AttentionInterface = SimpleNamespace(register=register[0])
    transformers.AttentionMaskInterface = SimpleNamespace(register=register[1])
    modeling = ModuleType("transformers.modeling_utils")
    modeling.lazy_import_flash_attention = (  # type: ignore[attr-defined]
        lambda implementation, *more, **options: ("imported", implementation, more, options)
    )
    transformers.modeling_utils = modeling
    transformers.masking_utils = ModuleType("transformers.masking_utils")
    return transformers


class CupyArray:
    """A fake cupy.ndarray. `allocated` is the GPU and the stream that it was made in."""

    def __init__(self, shape: Sequence[int], dtype: Any = "float16", gpu: int = 0, allocated: Any = None) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.itemsize = self.dtype.itemsize
        self.strides = tuple(self.itemsize * step for step in strides_of(shape))
        self.data = SimpleNamespace(ptr=Tensor(shape).data_ptr(), device_id=gpu)
        self.allocated = allocated


CupyArray.__module__, CupyArray.__name__ = "cupy", "ndarray"


class _Current:
    """A GPU or a stream of CuPy as a context: `what` of the module's state is it meanwhile."""

    def __init__(self, state: Any, **what: Any) -> None:
        self.state, self.what = state, what

    def __enter__(self) -> None:
        self.before = {name: getattr(self.state, name) for name in self.what}
        vars(self.state).update(self.what)
        self.state.entered += 1

    def __exit__(self, *_: object) -> None:
        vars(self.state).update(self.before)


def fake_cupy() -> Any:
    """A module with what the package uses of CuPy, on fake GPUs. `state` is the current GPU and stream."""
    cupy: Any = ModuleType("cupy")
    cupy.state = state = SimpleNamespace(gpu=0, stream=None, entered=0)
    cupy.ndarray = CupyArray
    cupy.empty = lambda shape, dtype: CupyArray(shape, dtype, state.gpu, (state.gpu, state.stream))
    cupy.cuda = SimpleNamespace(
        get_current_stream=lambda gpu: SimpleNamespace(ptr=0x6000 + gpu),
        Device=lambda gpu: _Current(state, gpu=gpu),
        ExternalStream=lambda handle, gpu: _Current(state, stream=(handle, gpu)),
        runtime=SimpleNamespace(getDevice=lambda: state.gpu),
    )
    return cupy
