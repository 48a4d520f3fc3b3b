"""The package on a library that writes down its calls, and arrays with __dlpack__ that lie nowhere.

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
from types import ModuleType
from typing import Any

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
            self.arrays: Any = importlib.import_module("flashladder._arrays")
            self.call: Any = importlib.import_module("flashladder._call")
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
        """This copy of the package as `flashladder`, beside made-up packages; gives what imports a module of it."""
        with pytest.MonkeyPatch.context() as patch, without_package():
            sys.modules.update(self._modules)
            for name, module in modules.items():
                patch.setitem(sys.modules, name, module)
                for inner in vars(module).values():
                    if isinstance(inner, ModuleType):
                        patch.setitem(sys.modules, inner.__name__, inner)
            yield lambda name: importlib.import_module(f"flashladder.{name}")

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
