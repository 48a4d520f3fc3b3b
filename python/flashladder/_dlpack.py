"""The DLPack protocol, from the consumer's side: the address of another package's array, without a copy.

    borrowed = Borrowed(array, stream=0)
    borrowed.address, borrowed.shape, borrowed.strides        # strides in elements

The capsule is not consumed: it stays as the producer made it, and this object holds it. When the object goes, the
capsule goes, and the capsule's own destructor gives the memory back. The structs are those of dlpack.h, 0.x and 1.x.
"""

from __future__ import annotations

import ctypes
from typing import Any

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
FLOAT, BFLOAT = 2, 4  # DLDataTypeCode
READ_ONLY, COPIED = 1, 2  # of the flags
MAJOR = 1  # newest version of the structs that is read


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),  # NULL: compact, the last dimension first
        ("byte_offset", ctypes.c_uint64),
    ]


class ManagedTensor(ctypes.Structure):
    """DLManagedTensor, of capsules named "dltensor"."""

    _fields_ = [("tensor", Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class VersionedTensor(ctypes.Structure):
    """DLManagedTensorVersioned, of capsules named "dltensor_versioned"."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Borrowed:
    """The memory of the argument `name`, ready for use in a stream (0: the default one), as long as this object lives.

    read_only is also true for a copy that the producer made: what is written there, the array does not have.
    """

    __slots__ = ("_capsule", "address", "device", "dtype", "read_only", "shape", "strides")

    def __init__(self, name: str, array: Any, stream: int) -> None:
        kind, number = array.__dlpack_device__()
        kind = int(kind)  # an enum of the producer's, often
        self.device = (kind, int(number))
        # 1 is the default stream in this protocol; memory of the host has no stream
        ready_in = (stream or 1) if kind in (CUDA, CUDA_MANAGED) else None
        try:
            self._capsule = array.__dlpack__(stream=ready_in, max_version=(MAJOR, 0))
        except TypeError:  # a producer of version 0 does not know max_version
            self._capsule = array.__dlpack__(stream=ready_in)
        tensor, self.read_only = _read(name, self._capsule)
        rank = tensor.ndim
        self.shape = tuple(tensor.shape[:rank])
        self.strides = tuple(tensor.strides[:rank]) if tensor.strides else _compact(self.shape)
        self.address = (tensor.data or 0) + tensor.byte_offset
        name = {FLOAT: "float", BFLOAT: "bfloat"}.get(tensor.code, f"of DLPack type {tensor.code} and width ")
        self.dtype = f"{name}{tensor.bits}" if tensor.lanes == 1 else f"a vector of {tensor.lanes} elements"

    @property
    def gpu(self) -> int | None:
        """Ordinal of the GPU, None for memory of the host."""
        return self.device[1] if self.device[0] in (CUDA, CUDA_MANAGED) else None

    @property
    def device_name(self) -> str:
        kind, number = self.device
        if self.gpu is not None:
            return f"cuda:{number}"
        return "host memory" if kind in (CPU, CUDA_HOST) else f"DLPack device {kind}:{number}"


def _read(name: str, capsule: Any) -> tuple[Any, bool]:
    """The DLTensor of a capsule, and whether nothing should be written there."""
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = VersionedTensor.from_address(_pointer(capsule, b"dltensor_versioned"))
        if versioned.major > MAJOR:
            raise ValueError(f"{name} has version {versioned.major} of DLPack: must be {MAJOR} or older")
        return versioned.tensor, bool(versioned.flags & (READ_ONLY | COPIED))
    if _is_valid(capsule, b"dltensor"):
        return ManagedTensor.from_address(_pointer(capsule, b"dltensor")).tensor, False
    raise ValueError(f"__dlpack__ of {name} returned {capsule!r}, which is not an unconsumed DLPack capsule")


def _compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of an array without gaps."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
