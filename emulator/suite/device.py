# mypy: ignore-errors
"""Arrays on the emulated GPU as Triton takes them, and how a program of the suite says what it computed."""

import ctypes
import sys
import traceback

import numpy as np

cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuMemcpyHtoD_v2.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t]
cuda.cuMemcpyDtoH_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t]
cuda.cuMemAlloc_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
TYPES = {"float32": "fp32", "float16": "fp16", "int32": "i32", "int64": "i64", "int8": "i8", "uint8": "u8"}


class TypeName(str):
    itemsize = 0


class DeviceArray:
    """A copy of a NumPy array in memory of the GPU; type: "bf16" for the upper halves of floats, as uint16."""

    device = "cuda"

    def __init__(self, array, type=None):
        array = np.ascontiguousarray(array)
        self.shape, self.numpy_type, self.bytes = array.shape, array.dtype, array.nbytes
        self.dtype = TypeName(type or TYPES[array.dtype.name])
        self.dtype.itemsize = array.itemsize
        self.steps = [each // array.itemsize for each in array.strides]
        address = ctypes.c_uint64()
        check(cuda.cuMemAlloc_v2(ctypes.byref(address), array.nbytes))
        self.address = address.value
        check(cuda.cuMemcpyHtoD_v2(self.address, array.ctypes.data, array.nbytes))

    def data_ptr(self):
        return self.address

    def stride(self, index=None):
        return self.steps if index is None else self.steps[index]

    def size(self, index):
        return self.shape[index]

    def numpy(self):
        array = np.empty(self.shape, self.numpy_type)
        check(cuda.cuMemcpyDtoH_v2(array.ctypes.data, self.address, self.bytes))
        return array


def check(status):
    if status:
        raise RuntimeError(f"the driver returned [{status}]")


def start():
    context = ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))


def report(programs):
    """Runs each program, a function that gives its largest error and what it may be; prints a line for each."""
    for program in programs:
        try:
            error, bound = program()
            verdict = "right" if error <= bound else "wrong"
        except Exception as exception:
            traceback.print_exc(file=sys.stderr)
            error, verdict = exception, "refused" if refused(exception) else "failed"
        print(f"SUITE {program.__name__} {verdict} {error}".splitlines()[0], flush=True)


def refused(exception):
    """True if the emulator rejected a module: CUDA_ERROR_INVALID_PTX by its number or its text."""
    text = f"{exception} {exception.__cause__ or ''}".lower()
    return any(word in text for word in ("invalid ptx", "invalid_ptx", "[218]", "no binary"))
