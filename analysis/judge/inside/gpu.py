# mypy: ignore-errors
"""Arrays in memory of the GPU, nvcc and launches, over the driver API alone: what a submission may use.

    import gpu

    kernel = gpu.Module(SOURCE)["softmax"]        # CUDA C++, or PTX as bytes

    def custom_kernel(data):                      # {"x": gpu.Array, ...} and the scalars of the problem
        x = data["x"]
        y = gpu.empty(x.shape, "f32")
        kernel((x.shape[0],), (128,), x, y, np.int32(x.shape[1]), shared=0, stream=None)
        return y                                  # or {"dQ": ..., "dK": ...} where a problem has several outputs

Triton and Numba take a gpu.Array as an argument. Any object with __cuda_array_interface__ can be returned.
"""

import ctypes
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

cuda = ctypes.CDLL("libcuda.so.1")
_U64, _POINTER, _SIZE = ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t
for _name, _types in {
    "cuMemcpyHtoD_v2": [_U64, _POINTER, _SIZE],
    "cuMemcpyDtoH_v2": [_POINTER, _U64, _SIZE],
    "cuMemcpyDtoD_v2": [_U64, _U64, _SIZE],
    "cuMemAlloc_v2": [_POINTER, _SIZE],
    "cuMemFree_v2": [_U64],
    "cuMemsetD32_v2": [_U64, ctypes.c_uint, _SIZE],
    "cuMemsetD8_v2": [_U64, ctypes.c_ubyte, _SIZE],
    "cuEventRecord": [_POINTER, _POINTER],
    "cuEventElapsedTime": [_POINTER, _POINTER, _POINTER],
    "cuStreamWaitEvent": [_POINTER, _POINTER, ctypes.c_uint],
    "cuStreamSynchronize": [_POINTER],
}.items():
    getattr(cuda, _name).argtypes = _types
# The name of a type here: that of Triton, and that of NumPy, which has none for bf16 and e4m3.
TYPES = {
    "f64": ("fp64", np.float64),
    "f32": ("fp32", np.float32),
    "f16": ("fp16", np.float16),
    "bf16": ("bf16", np.uint16),
    "e4m3": ("fp8e4nv", np.uint8),
    "i64": ("i64", np.int64),
    "i32": ("i32", np.int32),
    "u8": ("u8", np.uint8),
}


def check(status):
    """Raise an error unless a function of the driver succeeded."""
    if status:
        raise RuntimeError(f"the driver returned error {status}")


def start():
    """Make the primary context of the device current."""
    context = _POINTER()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))


class _TypeName(str):
    itemsize = 0


class Array:
    """A tensor in memory of the GPU; strides count elements."""

    device = "cuda"

    def __init__(self, address, shape, kind="f32", strides=None):
        self.address, self.shape, self.kind = address, tuple(shape), kind
        name, self.numpy_type = TYPES[kind]
        self.dtype = _TypeName(name)
        self.dtype.itemsize = np.dtype(self.numpy_type).itemsize
        if strides is None:
            strides = [int(np.prod(self.shape[i + 1 :])) for i in range(len(self.shape))]
        self.strides = tuple(strides)

    def data_ptr(self):
        return self.address

    def stride(self, index=None):
        return self.strides if index is None else self.strides[index]

    def size(self, index=None):
        return self.shape if index is None else self.shape[index]

    @property
    def span(self):
        """Number of elements from the first to the last, gaps included."""
        return sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True)) + 1

    @property
    def nbytes(self):
        return self.span * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self):
        strides = tuple(stride * self.dtype.itemsize for stride in self.strides)
        typestr = np.dtype(self.numpy_type).str
        return {
            "shape": self.shape,
            "strides": strides,
            "data": (self.address, False),
            "typestr": typestr,
            "version": 3,
        }

    def numpy(self):
        """A copy on the host."""
        flat = np.empty(self.span, self.numpy_type)
        check(cuda.cuMemcpyDtoH_v2(flat.ctypes.data, self.address, flat.nbytes))
        strides = [stride * flat.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(flat, self.shape, strides).copy()

    def write(self, values):
        """Copy a contiguous array of the host, or bytes, to the buffer."""
        data = values if isinstance(values, bytes) else np.ascontiguousarray(values, self.numpy_type).tobytes()
        check(cuda.cuMemcpyHtoD_v2(self.address, data, len(data)))


def allocate(size):
    """Address of new memory of so many bytes."""
    address = _U64()
    check(cuda.cuMemAlloc_v2(ctypes.byref(address), size))
    return address.value


def empty(shape, kind="f32", strides=None):
    array = Array(0, shape, kind, strides)
    array.address = allocate(max(array.nbytes, 1))
    return array


def tensor(array):
    """Return the object that a submission receives for an array: a PyTorch tensor if it imports torch."""
    torch_tensors = sys.modules.get("torch_tensors")
    return torch_tensors.wrap(array) if torch_tensors and torch_tensors.are_given else array


def zeros(shape, kind="f32"):
    array = empty(shape, kind)
    check(cuda.cuMemsetD8_v2(array.address, 0, array.nbytes))
    return array


def from_numpy(values, kind="f32"):
    array = empty(values.shape, kind)
    array.write(values)
    return array


def milliseconds(begin, end):
    """Time between two events, which the emulator derives from the work."""
    found = ctypes.c_float()
    check(cuda.cuEventElapsedTime(ctypes.byref(found), begin, end))
    return found.value


def time_once(function, *_, quantiles=None, **__):
    """In place of triton.testing.do_bench, by which autotuners choose: a second run of the same work takes as long."""
    events = _POINTER(), _POINTER()
    for event in events:
        check(cuda.cuEventCreate(ctypes.byref(event), 0))
    check(cuda.cuEventRecord(events[0], None))
    function()
    check(cuda.cuEventRecord(events[1], None))
    taken = milliseconds(*events)
    return [taken] * len(quantiles) if quantiles else taken


def compute(arch=None):
    """The virtual architecture for nvcc: compute_80."""
    return (arch or os.environ.get("JUDGE_ARCH", "sm_80")).replace("sm_", "compute_")


def nvcc(source, output, *flags):
    """Compile a file, unless its output exists: the folder is kept between the cases of a problem."""
    if not Path(output).exists():
        if "-shared" in flags:  # NVIDIA's wheels have no libcudart.so, by which linkers find the runtime
            runtime, link = Path(os.environ["LD_LIBRARY_PATH"]) / "libcudart.so.13", Path("libcudart.so")
            link.unlink(missing_ok=True)
            link.symlink_to(runtime)
            flags = (*flags, "-L.")
        command = [os.environ.get("JUDGE_NVCC", "nvcc"), "-O3", "-lineinfo", "-std=c++20", *flags]
        done = subprocess.run([*command, str(source), "-o", str(output)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"nvcc: {(done.stderr or done.stdout).strip()[-2000:]}")
    return output


def compile(source, *flags, arch=None):
    """PTX of CUDA C++."""
    name = hashlib.sha256("\0".join((source, *flags, compute(arch))).encode()).hexdigest()[:16]
    path = Path(f"{name}.cu")
    path.write_text(source)
    return Path(nvcc(path, f"{name}.ptx", "-ptx", f"-arch={compute(arch)}", *flags)).read_bytes()


class Module:
    """A module of PTX (bytes) or CUDA C++ (str); module["kernel"] is a function that launches that kernel."""

    def __init__(self, source, *flags, arch=None):
        self.handle = _POINTER()
        ptx = source if isinstance(source, bytes) else compile(source, *flags, arch=arch)
        check(cuda.cuModuleLoadData(ctypes.byref(self.handle), ptx + b"\0"))

    def __getitem__(self, name):
        function = _POINTER()
        check(cuda.cuModuleGetFunction(ctypes.byref(function), self.handle, name.encode()))

        def launch_it(grid, block, *arguments, shared=0, stream=None):
            launch(function, grid, block, arguments, shared, stream)

        return launch_it

    def variable(self, name):
        """Address and bytes of a variable of the module."""
        address, size = _U64(), _SIZE()
        check(cuda.cuModuleGetGlobal_v2(ctypes.byref(address), ctypes.byref(size), self.handle, name.encode()))
        return address.value, size.value


def launch(function, grid, block, arguments, shared=0, stream=None):
    """Launch a kernel. An argument is an Array, an address (int), a NumPy scalar or the bytes of a struct."""
    boxes = []
    for each in arguments:
        if isinstance(each, (Array, int)):
            boxes.append(_U64(each.address if isinstance(each, Array) else each))
        else:
            data = each if isinstance(each, bytes) else each.tobytes()
            boxes.append(ctypes.create_string_buffer(data, len(data)))
    pointers = (_POINTER * max(len(boxes), 1))(*[ctypes.cast(ctypes.byref(box), _POINTER) for box in boxes])
    if shared > 48 << 10:
        check(cuda.cuFuncSetAttribute(function, 8, int(shared)))
    grid, block = [*grid, 1, 1][:3], [*block, 1, 1][:3]
    check(cuda.cuLaunchKernel(function, *map(int, grid), *map(int, block), int(shared), stream, pointers, None))
