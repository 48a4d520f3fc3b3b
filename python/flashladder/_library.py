"""The library through ctypes: where it is, the structs of include/flashladder.h, and errors as exceptions.

    description = Description(size=ctypes.sizeof(Description))
    check(LIBRARY.fl_describe(handle(), ctypes.addressof(description)))

The library is FLASHLADDER_LIBRARY where that is set, else the file next to this module (a wheel has it there), else
lib/libflashladder.so of the checkout that contains this module.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from pathlib import Path
from typing import Any

ABI = 10  # FL_ABI of the header that the structs below are written from
NAME = "flashladder.dll" if sys.platform == "win32" else "libflashladder.so"
MAX_CONFIG, MAX_TEXT, MAX_NAME = 1024, 512, 32

OK, ERROR, INVALID, UNSUPPORTED, UNAVAILABLE = range(5)


class Unavailable(RuntimeError):
    """No GPU, no machine code for it, or it cannot hold the kernel."""


EXCEPTIONS: dict[int, type[Exception]] = {
    ERROR: RuntimeError,
    INVALID: ValueError,
    UNSUPPORTED: NotImplementedError,
    UNAVAILABLE: Unavailable,
}
AUTO, GPU, EMULATOR = range(3)
DTYPES = {"fp16": 0, "bf16": 1}
E4M3, INT8 = 2, 3  # of Problem.kv_dtype alone, E4M3 also of q_dtype and o_dtype
DEVICE_MEMORY, HOST_MEMORY = range(2)
ANY_LENGTH, CAUSAL, GROUPED, SERVING = 1, 2, 4, 8
BIAS_BYTES, BIAS_DTYPE, BIAS_FLOAT = 1, 2, 3  # Problem.bias_dtype
# Arrays that say how rows make up sequences, sinks and biases: bit i of Problem.arrays is that of the i-th.
ARRAYS = (
    "cu_seqlens_q", "cu_seqlens_k", "seqlens_q", "seqlens_k", "block_table", "sinks",
    "k_scales", "v_scales", "q_scales", "o_scales", "bias", "alibi_slopes", "max_logits", "rng_state",
    "block_mask",
)  # fmt: skip


class Strides(ctypes.Structure):
    _fields_ = [("batch", ctypes.c_int64), ("seq", ctypes.c_int64), ("head", ctypes.c_int64)]


class Problem(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("version", ctypes.c_char_p),
        ("config", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("memory", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("batch", ctypes.c_int32),
        ("heads", ctypes.c_int32),
        ("kv_heads", ctypes.c_int32),
        ("seq_q", ctypes.c_int32),
        ("seq_k", ctypes.c_int32),
        ("d_head", ctypes.c_int32),
        ("causal", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("unused", ctypes.c_int32),
        ("q", Strides),
        ("k", Strides),
        ("v", Strides),
        ("o", Strides),
        ("arrays", ctypes.c_uint32),
        ("total_q", ctypes.c_int32),
        ("total_k", ctypes.c_int32),
        ("n_pages", ctypes.c_int32),
        ("page_rows", ctypes.c_int32),
        ("pages_of_sequence", ctypes.c_int32),
        ("windowed", ctypes.c_int32),
        ("window_left", ctypes.c_int32),
        ("window_right", ctypes.c_int32),
        ("softcap", ctypes.c_float),
        ("split_keys", ctypes.c_int32),
        ("kv_dtype", ctypes.c_int32),
        ("q_dtype", ctypes.c_int32),
        ("sums", ctypes.c_int32),
        ("scale_keys", ctypes.c_int32),
        ("o_dtype", ctypes.c_int32),
        ("bias_dtype", ctypes.c_int32),
        ("alibi_batch", ctypes.c_int32),
        ("bias", Strides),
        ("dropout_p", ctypes.c_float),
        ("d_head_v", ctypes.c_int32),
        ("rng_seed", ctypes.c_int64),
        ("rng_offset", ctypes.c_int64),
        ("mask_queries", ctypes.c_int32),
        ("mask_keys", ctypes.c_int32),
        ("block_mask", Strides),
    ]


class Tensors(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("q", ctypes.c_void_p),
        ("k", ctypes.c_void_p),
        ("v", ctypes.c_void_p),
        ("o", ctypes.c_void_p),
        ("lse", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("cu_seqlens_q", ctypes.c_void_p),
        ("cu_seqlens_k", ctypes.c_void_p),
        ("seqlens_q", ctypes.c_void_p),
        ("seqlens_k", ctypes.c_void_p),
        ("block_table", ctypes.c_void_p),
        ("sinks", ctypes.c_void_p),
        ("k_scales", ctypes.c_void_p),
        ("v_scales", ctypes.c_void_p),
        ("q_scales", ctypes.c_void_p),
        ("o_scales", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("alibi_slopes", ctypes.c_void_p),
        ("max_logits", ctypes.c_void_p),
        ("rng_state", ctypes.c_void_p),
        ("block_mask", ctypes.c_void_p),
    ]


class Gradients(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("dout", ctypes.c_void_p),
        ("dq", ctypes.c_void_p),
        ("dk", ctypes.c_void_p),
        ("dv", ctypes.c_void_p),
        ("dq_strides", Strides),
        ("dk_strides", Strides),
        ("dv_strides", Strides),
        ("deterministic", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("dsinks", ctypes.c_void_p),
    ]


class Support(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("version", ctypes.c_char * 8),
        ("config", ctypes.c_char * MAX_CONFIG),
        ("workspace_bytes", ctypes.c_int64),
        ("measured", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("order", ctypes.c_char * MAX_TEXT),
        ("kernel", ctypes.c_char * MAX_NAME),
    ]


class KernelInfo(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("version", ctypes.c_char * 8),
        ("name", ctypes.c_char * MAX_NAME),
        ("config", ctypes.c_char * MAX_CONFIG),
        ("archs", ctypes.c_char * 64),
        ("dtype", ctypes.c_int32),
        ("d_head", ctypes.c_int32),
        ("features", ctypes.c_uint32),
        ("own", ctypes.c_int32),
        ("kernel", ctypes.c_char * MAX_NAME),
    ]


class Description(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("backend", ctypes.c_int32),
        ("devices", ctypes.c_int32),
        ("kernels", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("why_no_gpu", ctypes.c_char * MAX_TEXT),
    ]


class DeviceInfo(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char * 128),
        ("major", ctypes.c_int32),
        ("minor", ctypes.c_int32),
        ("sms", ctypes.c_int32),
        ("usable", ctypes.c_int32),
        ("memory_bytes", ctypes.c_int64),
    ]


# Result and arguments of each function that is called. Addresses are plain ints on the way in.
_STATUS, _POINTER, _TEXT, _INT = ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "fl_abi": (ctypes.c_uint32, []),
    "fl_release": (_TEXT, []),
    "fl_error": (_TEXT, []),
    "fl_open": (_STATUS, [ctypes.c_int, ctypes.POINTER(_POINTER)]),
    "fl_describe": (_STATUS, [_POINTER, _POINTER]),
    "fl_device": (_STATUS, [_POINTER, _INT, _POINTER]),
    "fl_kernel": (_STATUS, [_POINTER, _INT, _POINTER]),
    "fl_query": (_STATUS, [_POINTER, _POINTER, _POINTER]),
    "fl_forward": (_STATUS, [_POINTER, _POINTER, _POINTER, _POINTER]),
    "fl_query_backward": (_STATUS, [_POINTER, _POINTER, _POINTER]),
    "fl_backward": (_STATUS, [_POINTER, _POINTER, _POINTER, _POINTER, _POINTER]),
}


def find() -> Path:
    """The path of the library. ImportError if it is at none of the paths."""
    chosen = os.environ.get("FLASHLADDER_LIBRARY")
    if chosen:
        if Path(chosen).is_file():
            return Path(chosen)
        raise ImportError(f"FLASHLADDER_LIBRARY names {chosen}, which is not a file: unset it, or name a {NAME}")
    folder = Path(__file__).resolve().parent
    paths = (folder / NAME, folder.parent.parent / "lib" / NAME)
    for path in paths:
        if path.is_file():
            return path
    raise ImportError(
        f"{NAME} was found neither at {paths[0]} nor at {paths[1]}: build it with `make lib` in a checkout, "
        "or set FLASHLADDER_LIBRARY to its path"
    )


def load(path: Path) -> Any:
    """The library at `path` with its functions typed. ImportError where it is another file or too old."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"{path} cannot be loaded: {error}") from error
    try:
        library.fl_abi.restype, library.fl_abi.argtypes = _FUNCTIONS["fl_abi"]
        abi = library.fl_abi()
        if abi < ABI:
            raise ImportError(
                f"{path} has ABI {abi}, and this package needs ABI {ABI} or newer: build the library and the package "
                "from one checkout, with `make lib`"
            )
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError as error:
        raise ImportError(f"{path} is not a {NAME} for this package: {error}") from error
    return library


PATH = find()
LIBRARY: Any = load(PATH)
RELEASE: str = LIBRARY.fl_release().decode()  # "0.22.0 (revision 4fd1b27)"

_lock = threading.Lock()
_handle: int | None = None


def _after_fork() -> None:
    """A child has no thread that would unlock what another one held."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def handle() -> int:
    """The opened back end: GPUs where there are any, else the emulator. Opened once for the process."""
    global _handle
    if _handle is None:
        with _lock:
            if _handle is None:
                made = ctypes.c_void_p()
                check(LIBRARY.fl_open(AUTO, ctypes.byref(made)))
                _handle = made.value
    assert _handle is not None
    return _handle


def check(status: int) -> None:
    """Raise the exception of a status, with the library's message; nothing for OK."""
    if status != OK:
        raise EXCEPTIONS.get(status, RuntimeError)(LIBRARY.fl_error().decode(errors="replace"))
