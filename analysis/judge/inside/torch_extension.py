# mypy: ignore-errors
"""torch.utils.cpp_extension.load_inline and load, for tensors of torch_tensors.

The sources are compiled by nvcc as one file, with torch_extension.h in place of PyTorch's headers. A function takes and
returns tensors and numbers.
"""

import ctypes
import hashlib
import os
from pathlib import Path
from types import ModuleType

import gpu
import torch
import torch_tensors

HERE = Path(__file__).resolve().parent
HEADERS = (
    *("torch/extension.h", "torch/types.h", "torch/torch.h", "torch/all.h", "torch/library.h", "ATen/ATen.h"),
    *("ATen/cuda/CUDAContext.h", "ATen/cuda/Exceptions.h", "ATen/Dispatch.h", "ATen/cuda/CUDABlas.h"),
    *("c10/cuda/CUDAException.h", "c10/cuda/CUDAGuard.h", "c10/cuda/CUDAStream.h", "c10/util/Half.h"),
    *("c10/util/BFloat16.h", "c10/util/Exception.h", "pybind11/pybind11.h", "ATen/native/cuda/KernelUtils.cuh"),
)
MOST_DIMENSIONS, MOST_VALUES = 8, 64
DTYPES = (  # by the numbers of ScalarType in torch_extension.h
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64),
    *(torch.bool, torch.bfloat16),
)
NOTHING, INTEGER, REAL, TENSOR = range(4)


class Form(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_uint64),
        ("room", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("dtype", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("sizes", ctypes.c_int64 * MOST_DIMENSIONS),
        ("strides", ctypes.c_int64 * MOST_DIMENSIONS),
    )


class Value(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("integer", ctypes.c_int64), ("real", ctypes.c_double), ("tensor", Form))


def as_value(argument):
    value = Value(NOTHING)
    if isinstance(argument, torch_tensors.DeviceTensor):
        value.kind, form = TENSOR, value.tensor
        form.base, form.room, form.offset = argument.base, argument.room, argument.storage_offset()
        form.dtype, form.dimensions = DTYPES.index(argument.dtype), argument.dim()
        for i in range(argument.dim()):
            form.sizes[i], form.strides[i] = argument.shape[i], argument.stride(i)
    elif isinstance(argument, (bool, int)):
        value.kind, value.integer, value.real = INTEGER, int(argument), float(argument)
    elif isinstance(argument, float):
        value.kind, value.real = REAL, argument
    elif argument is not None:
        raise TypeError(f"{type(argument).__name__}: a compiled function takes tensors on the GPU and numbers")
    return value


def from_value(value):
    if value.kind != TENSOR:
        return value.integer if value.kind == INTEGER else value.real if value.kind == REAL else None
    form, n = value.tensor, value.tensor.dimensions
    return torch_tensors.DeviceTensor(
        form.base, form.room, tuple(form.sizes[:n]), tuple(form.strides[:n]), form.offset, DTYPES[form.dtype]
    )


def load_inline(name, cpp_sources=(), cuda_sources=(), functions=None, extra_cflags=(), extra_cuda_cflags=(), **others):
    """A module with the functions of these sources."""
    parts = [
        part
        for given in (cuda_sources, cpp_sources)
        for part in ([given] if isinstance(given, str) else given or ())
        if part
    ]
    names = [functions] if isinstance(functions, str) else list(functions or ())
    binds = "".join(f'm.def("{each}", &{each});' for each in names)
    tail = f"static void judge_bind_named(judge::module &m) {{ {binds} }}\n" if names else ""
    tail += f"JUDGE_ENTRY({'judge_bind_named' if names else 'judge_bind_module'})\n"
    text = "\n".join(["#include <torch/extension.h>", *parts, tail])
    includes = others.get("extra_include_paths") or ()
    return compiled(name, text, [*flags_of(extra_cuda_cflags), *(f"-I{path}" for path in includes)])


def load(name, sources, extra_cuda_cflags=(), **others):
    """Compile and load an extension from files instead of strings."""
    paths = [sources] if isinstance(sources, str) else list(sources)
    text = "\n".join(["#include <torch/extension.h>", *(Path(path).read_text() for path in paths)])
    folders = {str(Path(path).resolve().parent) for path in paths}
    return compiled(
        name,
        text + "\nJUDGE_ENTRY(judge_bind_module)\n",
        [*flags_of(extra_cuda_cflags), *(f"-I{folder}" for folder in folders)],
    )


def flags_of(flags):
    """Flags of nvcc that concern the code, and not where it will run."""
    kept = [flags] if isinstance(flags, str) else list(flags or ())
    found, skipped = [], False
    for flag in kept:
        if skipped or flag.startswith(("-arch", "-gencode", "--generate-code", "-code", "-l", "-L", "-O", "-std")):
            skipped = not skipped and flag in ("-arch", "-gencode", "--generate-code", "-code")
            continue
        found.append(flag)
    return found


def compiled(name, text, flags):
    headers = HERE / "torch_headers"
    for header in HEADERS:
        path = headers / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('#include "torch_extension.h"\n')
    arch = gpu.compute()
    key = hashlib.sha256("\0".join((text, *flags, arch)).encode()).hexdigest()[:16]
    source = Path(f"extension_{key}.cu").absolute()
    source.write_text(text)
    flags = (
        *("-shared", "-Xcompiler", "-fPIC", "-cudart", "shared", f"-I{headers}", f"-I{HERE}"),
        *("-gencode", f"arch={arch},code={arch}", "--expt-relaxed-constexpr", "--extended-lambda", *flags),
    )
    library = ctypes.CDLL(str(Path(gpu.nvcc(source, source.with_suffix(".so"), *flags)).absolute()))
    library.judge_names.restype = ctypes.c_char_p
    library.judge_stream.argtypes = [ctypes.c_void_p]
    module = ModuleType(name)
    for each in library.judge_names().decode().split():
        setattr(module, each, function_of(library, each))
    return module


def function_of(library, name):
    def call(*arguments, **named):
        if named:
            raise TypeError(f"{name}: a compiled function takes no keyword arguments here")
        values = (Value * MOST_VALUES)(*map(as_value, arguments))
        results, error = (Value * MOST_VALUES)(), ctypes.create_string_buffer(1000)
        library.judge_stream(gpu.ctypes.c_void_p(torch_tensors.streams[-1].cuda_stream))
        count = library.judge_call(name.encode(), len(arguments), values, results, error, 1000)
        if count < 0:
            raise RuntimeError(error.value.decode(errors="replace"))
        returned = [from_value(results[i]) for i in range(count)]
        return returned[0] if len(returned) == 1 else (returned or None)

    return call


def start():
    """Take the place of PyTorch's compiler of extensions."""
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(Path.cwd()))
    import torch.utils.cpp_extension as extension

    extension.load_inline, extension.load = load_inline, load
