# mypy: ignore-errors
"""PyTorch tensors in memory of the emulated GPU, for submissions that import torch.

    import torch_tensors                      # before anything of the submission is imported
    x = torch_tensors.wrap(array)             # a torch.Tensor on cuda:0 with the memory of a gpu.Array

PyTorch's own kernels are machine code, which no recording can hold. So a tensor here has an address and a form, but
no storage of PyTorch's. Views only change the form. Creating, filling, copying and converting tensors, and arithmetic
by elements, run as PTX of this module. Any other operation on such a tensor raises an error that names it.
torch.utils.cpp_extension.load_inline compiles for the tensors of torch_extension.h.
"""

import contextlib
import itertools
import math

import gpu
import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

CUDA = torch.device("cuda", 0)
are_given = True  # the submission receives such tensors
KINDS = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "e4m3",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.uint8: "u8",
}
DTYPES = {kind: dtype for dtype, kind in KINDS.items()}
aten = torch.ops.aten


class Unsupported(NotImplementedError):
    """An operation whose kernel is PyTorch's own."""

    def __init__(self, what):
        gpu.cuda.cuEmulatedGpuMark(f"library {what}".encode())
        super().__init__(f"{what}: PyTorch's own kernels are machine code, which cannot be judged; write a kernel")


class DeviceTensor(torch.Tensor):
    """A tensor at an address of the emulated GPU. `base` and `room` are those of its allocation."""

    @staticmethod
    def __new__(cls, base, room, size, stride, offset, dtype):
        made = torch.Tensor._make_wrapper_subclass(
            cls, size, strides=stride, storage_offset=offset, dtype=dtype, device=CUDA
        )
        made.base, made.room = base, room
        return made

    def data_ptr(self):
        return self.base + self.storage_offset() * self.element_size()

    @property
    def __cuda_array_interface__(self):
        kind = KINDS.get(self.dtype, "u8")
        item = self.element_size()
        return {
            "shape": tuple(self.shape),
            "strides": tuple(each * item for each in self.stride()),
            "data": (self.data_ptr(), False),
            "typestr": np.dtype(gpu.TYPES[kind][1]).str,
            "version": 3,
        }

    def __repr__(self):
        return f"tensor({tuple(self.shape)}, dtype={self.dtype}, device=cuda:0)"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


def wrap(array):
    """The tensor of a gpu.Array."""
    return DeviceTensor(array.address, array.nbytes, array.shape, array.strides, 0, DTYPES[array.kind])


def allocate(size, stride, dtype):
    span = sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1 if math.prod(size) else 0
    room = span * dtype.itemsize
    address = gpu.allocate(max(room, 1))
    return DeviceTensor(address, room, size, stride, 0, dtype)


# ---- kernels ---------------------------------------------------------------------------------------------------------

LOADED = {  # PTX that loads an element as f32 (%f) or s64 (%d); $a: address, $n: number of the operand
    torch.float32: "ld.global.f32 %f$n, [$a];",
    torch.float64: "ld.global.f64 %g0, [$a]; cvt.rn.f32.f64 %f$n, %g0;",
    torch.float16: "ld.global.b16 %h0, [$a]; cvt.f32.f16 %f$n, %h0;",
    torch.bfloat16: "ld.global.b16 %h0, [$a]; mov.b32 %f$n, {%hz, %h0};",
    torch.int64: "ld.global.s64 %d$n, [$a];",
    torch.int32: "ld.global.s32 %r1, [$a]; cvt.s64.s32 %d$n, %r1;",
    torch.uint8: "ld.global.u8 %h0, [$a]; cvt.u64.u16 %d$n, %h0;",
    torch.bool: "ld.global.u8 %h0, [$a]; cvt.u64.u16 %d$n, %h0;",
}
STORED = {
    torch.float32: "st.global.f32 [$a], %f0;",
    torch.float64: "cvt.f64.f32 %g0, %f0; st.global.f64 [$a], %g0;",
    torch.float16: "cvt.rn.f16.f32 %h0, %f0; st.global.b16 [$a], %h0;",
    torch.bfloat16: "cvt.rn.bf16.f32 %h0, %f0; st.global.b16 [$a], %h0;",
    torch.int64: "st.global.s64 [$a], %d0;",
    torch.int32: "cvt.u32.u64 %r1, %d0; st.global.u32 [$a], %r1;",
    torch.uint8: "cvt.u16.u64 %h0, %d0; st.global.u8 [$a], %h0;",
}
ONE = "mov.f32 %f9, 0f3F800000;"
LOG2_E = "0f3FB8AA3B"
ARITHMETIC = {  # f32, of %f1 and %f2 to %f0
    "copy": "mov.f32 %f0, %f1;",
    "add": "add.f32 %f0, %f1, %f2;",
    "sub": "sub.f32 %f0, %f1, %f2;",
    "rsub": "sub.f32 %f0, %f2, %f1;",
    "mul": "mul.f32 %f0, %f1, %f2;",
    "div": "div.rn.f32 %f0, %f1, %f2;",
    "maximum": "max.NaN.f32 %f0, %f1, %f2;",
    "minimum": "min.NaN.f32 %f0, %f1, %f2;",
    "neg": "neg.f32 %f0, %f1;",
    "abs": "abs.f32 %f0, %f1;",
    "relu": "mov.f32 %f9, 0f00000000; max.NaN.f32 %f0, %f1, %f9;",
    "sqrt": "sqrt.rn.f32 %f0, %f1;",
    "rsqrt": f"{ONE} sqrt.rn.f32 %f0, %f1; div.rn.f32 %f0, %f9, %f0;",
    "reciprocal": "rcp.rn.f32 %f0, %f1;",
    "exp": f"mul.f32 %f0, %f1, {LOG2_E}; ex2.approx.f32 %f0, %f0;",
    "sigmoid": f"{ONE} neg.f32 %f0, %f1; mul.f32 %f0, %f0, {LOG2_E}; ex2.approx.f32 %f0, %f0; add.f32 %f0, %f0, %f9; "
    "rcp.rn.f32 %f0, %f0;",
}
INTEGERS = {
    "copy": "mov.b64 %d0, %d1;",
    "add": "add.s64 %d0, %d1, %d2;",
    "sub": "sub.s64 %d0, %d1, %d2;",
    "mul": "mul.lo.s64 %d0, %d1, %d2;",
    "neg": "neg.s64 %d0, %d1;",
}
TYPES_OF_WORDS = {1: "u8", 2: "b16", 4: "b32", 8: "b64"}
modules = {}


def elementwise(operation, target, *sources):
    """target = operation(sources), each a tensor that broadcasts to the target's shape."""
    size = tuple(target.shape)
    if not math.prod(size):
        return target
    sources = [view(aten.expand.default, (each, size), {}) if tuple(each.shape) != size else each for each in sources]
    dtypes = (target.dtype, *(each.dtype for each in sources))
    moves = operation == "copy" and dtypes[0] == dtypes[1]
    if not moves and any(each not in LOADED for each in dtypes):
        raise Unsupported(f"{operation} of {', '.join(map(str, dtypes))}")
    tensors = (target, *sources)
    text = kernel_text(operation, moves, size, [each.stride() for each in tensors], dtypes)
    if text not in modules:
        modules[text] = gpu.Module(text.encode())["judge_elementwise"]
    count = math.prod(size)
    blocks = min(-(-count // 256), 1024)
    modules[text]((blocks,), (256,), *(each.data_ptr() for each in tensors), stream=streams[-1].cuda_stream or None)
    return target


def kernel_text(operation, moves, size, strides, dtypes):
    """PTX of one operation, with sizes and strides as constants."""
    addresses = [f"mov.u64 %a{n}, %b{n};" for n in range(len(strides))]
    addresses.append("mov.u64 %d6, %d5;")
    for i in reversed(range(len(size))):
        if size[i] == 1:
            continue
        addresses.append(f"rem.u64 %d7, %d6, {size[i]}; div.u64 %d6, %d6, {size[i]};")
        for n, stride in enumerate(strides):
            if stride[i]:
                addresses.append(f"mad.lo.u64 %a{n}, %d7, {stride[i] * dtypes[n].itemsize}, %a{n};")
    parameters = ", ".join(f".param .u64 p{n}" for n in range(len(strides)))
    bases = [f"ld.param.u64 %b{n}, [p{n}]; cvta.to.global.u64 %b{n}, %b{n};" for n in range(len(strides))]
    if moves:
        kind = TYPES_OF_WORDS[dtypes[0].itemsize]
        word = {"u8": "%h0", "b16": "%h0", "b32": "%r1", "b64": "%d0"}[kind]
        body = [f"ld.global.{kind} {word}, [%a1];", f"st.global.{kind} [%a0], {word};"]
    else:
        is_float = any(each.is_floating_point for each in dtypes)
        body = []
        for n, dtype in enumerate(dtypes[1:], 1):
            body.append(LOADED[dtype].replace("$a", f"%a{n}").replace("$n", str(n)))
            if is_float and not dtype.is_floating_point:
                body.append(f"cvt.rn.f32.s64 %f{n}, %d{n};")
        table = ARITHMETIC if is_float else INTEGERS
        if operation not in table or dtypes[0] not in STORED:
            raise Unsupported(f"{operation} of {', '.join(map(str, dtypes))}")
        body.append(table[operation])
        if is_float and not dtypes[0].is_floating_point:
            body.append("cvt.rzi.s64.f32 %d0, %f0;")
        body.append(STORED[dtypes[0]].replace("$a", "%a0"))
    lines = [
        ".version 7.1",
        ".target sm_80",
        ".address_size 64",
        f".visible .entry judge_elementwise({parameters})",
        "{",
        ".reg .b64 %a<4>, %b<4>, %d<10>;",
        ".reg .f64 %g<2>;",
        ".reg .f32 %f<10>;",
        ".reg .b32 %r<8>;",
        ".reg .b16 %h<2>, %hz;",
        ".reg .pred %p;",
        "mov.b16 %hz, 0;",
        *bases,
        "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r4, %r2, %r3, %r4;",
        "cvt.u64.u32 %d5, %r4; mov.u32 %r5, %nctaid.x; mul.lo.u32 %r5, %r5, %r3; cvt.u64.u32 %d8, %r5;",
        "AGAIN:",
        f"setp.ge.u64 %p, %d5, {math.prod(size)};",
        "@%p bra DONE;",
        *addresses,
        *body,
        "add.u64 %d5, %d5, %d8;",
        "bra AGAIN;",
        "DONE:",
        "ret;",
        "}",
    ]
    return "\n".join(lines) + "\n"


# ---- between host and device -----------------------------------------------------------------------------------------


def upload(tensor, target=None):
    """A tensor of the host in memory of the GPU."""
    plain = tensor.detach().contiguous()
    target = allocate(plain.shape, plain.stride(), plain.dtype) if target is None else target
    size = plain.numel() * plain.element_size()
    if size:
        gpu.check(gpu.cuda.cuMemcpyHtoD_v2(target.data_ptr(), plain.data_ptr(), size))
    return target


def download(tensor):
    """A copy on the host."""
    dense = tensor if tensor.is_contiguous() else contiguous(tensor)
    made = torch.empty(tuple(dense.shape), dtype=dense.dtype, device="cpu")
    size = made.numel() * made.element_size()
    if size:
        gpu.check(gpu.cuda.cuMemcpyDtoH_v2(made.data_ptr(), dense.data_ptr(), size))
    return made


def contiguous(tensor):
    stride = [math.prod(tensor.shape[i + 1 :]) for i in range(tensor.dim())]
    return elementwise("copy", allocate(tuple(tensor.shape), stride, tensor.dtype), tensor)


def fill(tensor, value):
    """Set all elements."""
    if not tensor.numel():
        return tensor
    one = torch.tensor(value, dtype=tensor.dtype)
    item = tensor.element_size()
    words = one.reshape(1).view(torch.uint8).tolist()
    pattern, width = int.from_bytes(bytes(words), "little"), item
    if len(set(words)) == 1:
        pattern, width = words[0], 1
    if tensor.is_contiguous() and width in (1, 4):
        count = tensor.numel() * item // width
        name = "cuMemsetD8_v2" if width == 1 else "cuMemsetD32_v2"
        gpu.check(getattr(gpu.cuda, name)(tensor.data_ptr(), pattern, count))
        return tensor
    return elementwise("copy", tensor, upload(one))


# ---- operations of PyTorch -------------------------------------------------------------------------------------------


def as_meta(value):
    if isinstance(value, DeviceTensor):
        whole = torch.empty(value.room // max(value.element_size(), 1) + 1, dtype=value.dtype, device="meta")
        return whole.as_strided(tuple(value.shape), value.stride(), value.storage_offset())
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    return torch.device("meta") if isinstance(value, torch.device) else value


def form_of(func, args, kwargs):
    """Return the shape and the dtype of the result, as a tensor without data."""
    with torch._C._DisableTorchDispatch():
        return func(*tree_map(as_meta, args), **tree_map(as_meta, kwargs))


def view(func, args, kwargs):
    """Return a tensor with another shape or other strides over the same memory."""
    source = args[0]

    def wrapped(meta):
        if not isinstance(meta, torch.Tensor):
            return meta
        return DeviceTensor(
            source.base, source.room, tuple(meta.shape), meta.stride(), meta.storage_offset(), meta.dtype
        )

    return tree_map(wrapped, form_of(func, args, kwargs))


def created(func, args, kwargs):
    """New memory of the form that the operation returns."""
    meta = form_of(func, args, {**kwargs, "device": torch.device("meta"), "pin_memory": False})
    return allocate(tuple(meta.shape), meta.stride(), meta.dtype)


def to_copy(tensor, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
    dtype, device = dtype or tensor.dtype, torch.device(device or tensor.device)
    if not isinstance(tensor, DeviceTensor):
        return upload(tensor.to(dtype))
    if tensor.dtype != dtype:
        dense = [math.prod(tensor.shape[i + 1 :]) for i in range(tensor.dim())]
        tensor = elementwise("copy", allocate(tuple(tensor.shape), dense, dtype), tensor)
    elif device.type == "cuda":
        tensor = contiguous(tensor)
    return tensor if device.type == "cuda" else download(tensor)


def copy_(target, source, non_blocking=False):
    if isinstance(target, DeviceTensor):
        if isinstance(source, DeviceTensor):
            return elementwise("copy", target, source)
        source = source.to(target.dtype)
        if tuple(source.shape) == tuple(target.shape) and target.is_contiguous():
            return upload(source, target)
        return elementwise("copy", target, upload(source))
    return target.copy_(download(source))


def arithmetic(name, func, args, kwargs):
    """An operation by elements, of tensors and numbers."""
    if kwargs.get("alpha", 1) != 1:
        raise Unsupported(f"{func} with alpha")
    target = args[0] if func._schema.name.endswith("_") else kwargs.get("out")
    if target is None:
        meta = form_of(func, args, {})
        dense = [math.prod(meta.shape[i + 1 :]) for i in range(meta.dim())]
        target = allocate(tuple(meta.shape), dense, meta.dtype)
    kind = target.dtype if target.dtype.is_floating_point else None
    sources = [
        each if isinstance(each, DeviceTensor) else upload(torch.as_tensor(each, dtype=kind)) for each in args[:2]
    ]
    return elementwise(name, target, *sources)


IGNORED = {"record_stream", "is_pinned", "_pin_memory", "lift_fresh"}
FILLS = {"zeros": 0, "ones": 1, "zeros_like": 0, "ones_like": 1, "new_zeros": 0, "new_ones": 1}


def run(func, args, kwargs):
    """Any operation that involves memory of the GPU."""
    name = func._schema.name.partition("::")[2]
    if func.is_view and args and isinstance(args[0], DeviceTensor):
        return view(func, args, kwargs)
    if name in ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"):
        return created(func, args, kwargs)
    if name in FILLS:
        return fill(created(func, args, kwargs), FILLS[name])
    if name in ("full", "full_like", "new_full"):
        return fill(created(func, args, kwargs), args[2] if name == "new_full" else args[1])
    if name == "zero_":
        return fill(args[0], 0)
    if name == "fill_":
        if isinstance(args[1], torch.Tensor):
            return copy_(args[0], args[1])
        return fill(args[0], args[1])
    if name == "_to_copy":
        return to_copy(*args, **kwargs)
    if name == "clone":
        return contiguous(args[0])
    if name == "copy_":
        return copy_(*args, **kwargs)
    if name == "_local_scalar_dense":
        return download(args[0]).item()
    if name in IGNORED:
        return args[0]
    if name == "sym_size" or name == "dim":
        return func(*args, **kwargs)
    plain = name.rstrip("_")
    if plain in ARITHMETIC and plain != "copy":
        return arithmetic(plain, func, args, kwargs)
    tensors = [each for each in itertools.chain(args, kwargs.values()) if isinstance(each, DeviceTensor)]
    if not tensors and "device" in kwargs:  # a table that the host makes: arange, randn
        return upload(func(*args, **{**kwargs, "device": torch.device("cpu"), "pin_memory": False}))
    raise Unsupported(f"aten::{name}")


class OnDevice(TorchDispatchMode):
    """Takes the operations that make tensors on the GPU from none that are there."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if (device is not None and torch.device(device).type == "cuda") or any(
            isinstance(each, DeviceTensor) for each in args
        ):
            return run(func, args, kwargs)
        return func(*args, **kwargs)


# ---- torch.cuda ------------------------------------------------------------------------------------------------------


class Properties:
    """Properties that torch.cuda.get_device_properties returns."""

    def __init__(self):
        name = gpu.ctypes.create_string_buffer(100)
        gpu.cuda.cuDeviceGetName(name, 100, 0)
        self.name = name.value.decode()
        self.major, self.minor = attribute(75), attribute(76)
        self.multi_processor_count, self.warp_size = attribute(16), 32
        self.total_memory, self.L2_cache_size = 80 << 30, attribute(38)
        self.shared_memory_per_block, self.shared_memory_per_block_optin = attribute(8), attribute(97)
        self.shared_memory_per_multiprocessor, self.regs_per_multiprocessor = attribute(81), attribute(82)
        self.max_threads_per_multi_processor = attribute(39)
        self.gcnArchName = ""


def attribute(number):
    value = gpu.ctypes.c_int()
    gpu.cuda.cuDeviceGetAttribute(gpu.ctypes.byref(value), number, 0)
    return value.value


class Stream:
    """A stream of the emulated driver."""

    def __init__(self, device=None, priority=0, handle=None):
        made = gpu.ctypes.c_void_p(handle or 0)
        if handle is None:
            gpu.check(gpu.cuda.cuStreamCreate(gpu.ctypes.byref(made), 1))
        self.cuda_stream, self.stream_id, self.device = made.value or 0, made.value or 0, CUDA

    def __enter__(self):
        streams.append(self)
        return self

    def __exit__(self, *_):
        streams.pop()

    def synchronize(self):
        gpu.check(gpu.cuda.cuStreamSynchronize(gpu.ctypes.c_void_p(self.cuda_stream)))

    def query(self):
        return True

    def wait_event(self, event):
        event.block(self)

    def wait_stream(self, other):
        event = Event()
        event.record(other)
        event.block(self)

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event


class Event:
    """An event of the emulated driver, whose time is the work that was done between two."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False, external=False):
        self.handle = gpu.ctypes.c_void_p()
        gpu.check(gpu.cuda.cuEventCreate(gpu.ctypes.byref(self.handle), 0))

    def record(self, stream=None):
        stream = stream or streams[-1]
        gpu.check(gpu.cuda.cuEventRecord(self.handle, gpu.ctypes.c_void_p(stream.cuda_stream)))

    def block(self, stream):
        gpu.check(gpu.cuda.cuStreamWaitEvent(gpu.ctypes.c_void_p(stream.cuda_stream), self.handle, 0))

    wait = block

    def elapsed_time(self, other):
        return gpu.milliseconds(self.handle, other.handle)

    def synchronize(self):
        gpu.check(gpu.cuda.cuEventSynchronize(self.handle))

    def query(self):
        return True


streams = []


def synchronize(_=None):
    gpu.check(gpu.cuda.cuCtxSynchronize())


def start():
    """Give torch.cuda what programs ask it for, and take over the tensors that they make there."""
    streams.append(Stream(handle=0))
    properties = Properties()
    cuda = torch.cuda
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda _: None,
        "get_device_capability": lambda *_: (properties.major, properties.minor),
        "get_device_name": lambda *_: properties.name,
        "get_device_properties": lambda *_: properties,
        "current_stream": lambda *_: streams[-1],
        "default_stream": lambda *_: streams[0],
        "stream": lambda stream: stream or contextlib.nullcontext(),
        "set_stream": lambda stream: streams.__setitem__(-1, stream),
        "device": lambda _: contextlib.nullcontext(),
        "synchronize": synchronize,
        "empty_cache": lambda: None,
        "manual_seed": lambda seed: torch.manual_seed(seed),
        "manual_seed_all": lambda seed: torch.manual_seed(seed),
        "is_initialized": lambda: True,
        "is_current_stream_capturing": lambda: False,
        "_lazy_init": lambda: None,
        "Stream": Stream,
        "Event": Event,
    }.items():
        setattr(cuda, name, value)
    torch._C._cuda_getCurrentRawStream = lambda _: streams[-1].cuda_stream
    torch.set_num_threads(1)
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # parameters become tensors of this module
    OnDevice().__enter__()
    import torch_extension

    torch_extension.start()


start()
