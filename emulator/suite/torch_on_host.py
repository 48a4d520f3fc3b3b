# mypy: ignore-errors
"""PyTorch whose CUDA tensors are the host's: for programs that call Triton kernels on tensors of PyTorch.

    import torch_on_host              # before Triton; under bin/emulated-gpu

The kernels of PyTorch's CUDA build are machine code, which does not run on the emulated GPU. With this module
torch.randn(..., device="cuda") gives a tensor in memory of the host, and PyTorch's operations on it run on the CPU.
If a Triton kernel takes it, its entire storage is registered with the emulated driver, so that an out-of-bounds access
is a finding. Each tensor says that it is on the device cuda:0.
"""

import contextlib
import ctypes

import torch
from torch.overrides import TorchFunctionMode

driver = ctypes.CDLL("libcuda.so.1")
driver.cuMemHostRegister_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
driver.cuMemHostUnregister.argtypes = [ctypes.c_void_p]
driver.cuMemHostGetDevicePointer_v2.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
CUDA = torch.device("cuda", 0)
registered = {}  # address of a storage: the device's, bytes
plain_data_ptr = torch.Tensor.data_ptr


def register(host, size):
    """The device's address of a storage. One that overlaps older ones, which must have been freed, replaces them."""
    if host in registered and registered[host][1] == size:
        return registered[host][0]
    for first in [first for first, (_, bytes_) in registered.items() if first < host + size and host < first + bytes_]:
        del registered[first]
        driver.cuMemHostUnregister(first)
    at = ctypes.c_uint64()
    status = driver.cuMemHostRegister_v2(host, size, 0)
    status = status or driver.cuMemHostGetDevicePointer_v2(ctypes.byref(at), host, 0)
    if status:
        raise RuntimeError(f"a storage of {size} bytes cannot be registered: the driver returned {status}")
    registered[host] = at.value, size
    return at.value


def data_ptr(tensor):
    """The device's address of a tensor."""
    with torch._C.DisableTorchFunction():
        here, storage = plain_data_ptr(tensor), tensor.untyped_storage()
        host, size = storage.data_ptr(), storage.nbytes()
    return register(host, size) + here - host if size else here


def on_host(value):
    """Replace a device in an argument by the CPU."""
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    return "cpu" if isinstance(value, str) and value.split(":")[0] == "cuda" else value


class OnHost(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), named=None):
        named = named or {}
        name = getattr(function, "__name__", "")
        if function == torch.Tensor.device.__get__:
            return CUDA
        if function == torch.Tensor.is_cuda.__get__:
            return True
        if name == "data_ptr":
            return data_ptr(arguments[0])
        if name == "cuda" and arguments and isinstance(arguments[0], torch.Tensor):
            return arguments[0]
        if function is torch.device:
            return function(*arguments, **named)
        if "device" in named:
            named = {**named, "device": on_host(named["device"])}
        if named.get("pin_memory"):
            named = {**named, "pin_memory": False}
        return function(*map(on_host, arguments), **named)


class Properties:
    name, multi_processor_count, warp_size, total_memory = "emulated GPU", 8, 32, 16 << 30
    shared_memory_per_block_optin = 232448
    regs_per_multiprocessor = 65536
    L2_cache_size = 50 << 20


class Stream:
    cuda_stream = 0
    stream_id = 0

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def synchronize(self):
        pass

    wait_stream = wait_event = record_event = synchronize


class Event:
    """Nothing is timed: a millisecond passes between any two."""

    def __init__(self, *_, **__):
        pass

    def record(self, *_):
        pass

    def elapsed_time(self, _):
        return 1.0

    synchronize = query = wait = record


def capability(_=None):
    major, minor = ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGetAttribute(ctypes.byref(major), 75, 0)
    driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, 0)
    return major.value, minor.value


def start():
    context = ctypes.c_void_p()
    for status in (
        driver.cuInit(0),
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        driver.cuCtxSetCurrent(context),
    ):
        if status:
            raise RuntimeError(f"the emulated GPU does not start: the driver returned {status}")
    cuda = torch.cuda
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda _: None,
        "get_device_capability": capability,
        "get_device_name": lambda *_: Properties.name,
        "get_device_properties": lambda *_: Properties,
        "current_stream": lambda *_: Stream(),
        "default_stream": lambda *_: Stream(),
        "stream": lambda *_: Stream(),
        "device": lambda _: contextlib.nullcontext(),
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "manual_seed": lambda seed: torch.manual_seed(seed),
        "manual_seed_all": lambda _: None,
        "is_initialized": lambda: True,
        "_lazy_init": lambda: None,
        "Stream": Stream,
        "Event": Event,
    }.items():
        setattr(cuda, name, value)
    torch._C._cuda_getCurrentRawStream = lambda _: 0
    torch.Tensor.data_ptr = data_ptr
    torch.set_num_threads(1)
    OnHost().__enter__()


start()
