"""Arrays that lie nowhere, or on a GPU that is not there, and the package on a library that writes down its calls.

package = Recorded(folder)                  # compiles fake_library.c there
package.attention(q, k, v)
package.last.tensors.q, package.last.stream
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def compiled(folder: Path, *defines: str) -> Path:
    """fake_library.c as a shared library."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "libflashladder.so"
    source = ROOT / "python/tests/fake_library.c"
    command = ["cc", "-std=c11", "-O1", "-shared", "-fPIC", f"-I{ROOT / 'include'}", *defines, "-o", target, source]
    subprocess.run(command, check=True, timeout=60)
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
            self.arrays: Any = importlib.import_module("flashladder._arrays")
            self.call: Any = importlib.import_module("flashladder._call")
            self.dlpack: Any = importlib.import_module("flashladder._dlpack")
            self.library: Any = importlib.import_module("flashladder._library")
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
        self.status: Any = ctypes.c_int.in_dll(self.library.LIBRARY, "fake_status")

    def attention(self, *arrays: Any, **options: Any) -> Any:
        return self.package.attention(*arrays, **options)

    def steps(self, name: str) -> tuple[int, int, int]:
        """The strides of q, k, v or o in the last call."""
        strides = getattr(self.last.problem, name)
        return (strides.batch, strides.seq, strides.head)


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Those of a contiguous array, in elements."""
    steps = [1]
    for size in reversed(shape[1:]):
        steps.insert(0, steps[0] * size)
    return tuple(steps)


# ---- a producer of DLPack capsules -----------------------------------------------------------------------------------

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


# ---- packages that are not installed ---------------------------------------------------------------------------------


class Stream:
    """A stream of made-up PyTorch; as a context it is the current one."""

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
    """What the package reads of a torch.Tensor."""

    next_address = 0x7F1000000000

    def __init__(self, shape: Sequence[int], dtype: str = "float16", device: str = "cuda:0") -> None:
        self.shape, self._stride = tuple(shape), strides_of(shape)
        self.dtype = f"torch.{dtype.replace('torch.', '')}"
        kind, _, index = device.partition(":")
        self.device = _Device(kind, int(index) if index else None)
        self.requires_grad = False
        self.allocated_in = Stream.current
        self._address = Tensor.next_address
        Tensor.next_address += 1 << 20

    def stride(self) -> tuple[int, ...]:
        return self._stride

    def data_ptr(self) -> int:
        return self._address

    def new_empty(self, shape: Sequence[int], dtype: str) -> Tensor:
        return Tensor(shape, dtype, str(self.device))

    def transposed(self) -> Tensor:
        """As transpose(1, 2) is: the same memory."""
        view = Tensor(self.shape, self.dtype, str(self.device))
        swap = (0, 2, 1, 3)
        view.shape, view._stride = (tuple(values[i] for i in swap) for values in (self.shape, self._stride))
        view._address = self._address
        return view


class _Device(SimpleNamespace):
    def __init__(self, kind: str, index: int | None) -> None:
        super().__init__(type=kind, index=index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


def _empty_like(like: Tensor, memory_format: str = "as it is") -> Tensor:
    made = Tensor(like.shape, like.dtype, str(like.device))
    if memory_format != "contiguous":
        made._stride = like._stride
    return made


def made_up_torch() -> ModuleType:
    """A module with what the package uses of PyTorch, on made-up GPUs."""
    torch: Any = ModuleType("torch")
    Tensor.__module__ = "torch"
    torch.Tensor, torch.float32, torch.grad = Tensor, "float32", True
    torch.is_grad_enabled = lambda: torch.grad
    torch.contiguous_format = "contiguous"
    torch.empty_like = _empty_like
    torch.cuda = SimpleNamespace(
        current_stream=lambda gpu: SimpleNamespace(cuda_stream=Stream.current + gpu),
        stream=lambda stream: stream,
        ExternalStream=lambda handle, device: Stream(handle),
    )
    return torch
