# mypy: ignore-errors
"""Programs in Taichi, Quadrants, Dr.Jit, SlangPy, PyCUDA, cuda.core, numba-cuda and PyTorch's CUDA build.

python framework_programs.py NAME
"""

import sys
import tempfile

import numpy as np
from device import report

N = 1000
x = np.random.default_rng(4).random(N, np.float32)


def of_taichi(module):
    """Quadrants is a fork with the same interface."""
    ti = __import__(module)
    ti.init(arch=ti.cuda, offline_cache=False, log_level=ti.ERROR)
    assert ti.lang.impl.current_cfg().arch == ti.cuda
    a, total, count = ti.field(ti.f32, N), ti.field(ti.f32, ()), ti.field(ti.i32, 8)

    @ti.kernel
    def double():
        for i in range(N):
            a[i] = 2 * a[i]

    @ti.kernel
    def add():
        for i in range(N):
            total[None] += a[i]

    @ti.kernel
    def sort():
        for i in range(N):
            count[int(a[i] * 8)] += 1

    def doubled():
        a.from_numpy(x)
        double()
        return np.abs(a.to_numpy() - 2 * x).max(), 0

    def sums():
        a.from_numpy(x)
        add()
        return abs(total[None] - x.sum()), 1e-2

    def histogram():
        a.from_numpy(x)
        sort()
        return np.abs(count.to_numpy() - np.bincount((x * 8).astype(int), minlength=8)).max(), 0

    return [doubled, sums, histogram]


def of_drjit():
    import drjit
    from drjit.cuda import Float, UInt32

    def sine():
        return np.abs(drjit.sin(Float(x)).numpy() - np.sin(x)).max(), 1e-6

    def sums():
        return abs(drjit.sum(Float(x)).numpy()[0] - x.sum()), 1e-2

    def gathered():
        index = drjit.arange(UInt32, N)
        return np.abs(drjit.gather(Float, Float(x), N - 1 - index).numpy() - x[::-1]).max(), 0

    def scattered():
        count = drjit.zeros(UInt32, 8)
        drjit.scatter_add(count, UInt32(1), UInt32(Float(x) * 8))
        return np.abs(count.numpy().astype(int) - np.bincount((x * 8).astype(int), minlength=8)).max(), 0

    def prefix_sums():
        return np.abs(drjit.cumsum(Float(x)).numpy() - x.cumsum()).max(), 1e-2

    return [sine, sums, gathered, scattered, prefix_sums]


def of_slangpy():
    import slangpy

    device = slangpy.create_device(type=slangpy.DeviceType.cuda)
    source = "float axpy(float a, float x, float y) { return a * x + y; } float root(float x) { return sqrt(x); }"
    module = slangpy.Module.load_from_source(device, "programs", source)

    def axpy():
        return np.abs(module.axpy(2.0, x, x[::-1].copy(), _result="numpy") - (2 * x + x[::-1])).max(), 1e-6

    def roots():
        return np.abs(module.root(x, _result="numpy") - np.sqrt(x)).max(), 1e-6

    return [axpy, roots]


def of_pycuda():
    import pycuda.autoinit  # noqa: F401
    from pycuda import compiler, cumath, driver, gpuarray
    from pycuda.elementwise import ElementwiseKernel
    from pycuda.scan import InclusiveScanKernel

    source = (
        "__global__ void doubled(float *a, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) a[i] *= 2; }"
    )
    kernel = compiler.SourceModule(source, cache_dir=tempfile.mkdtemp(), options=["-lineinfo"]).get_function("doubled")

    def doubled():
        a = x.copy()
        kernel(driver.InOut(a), np.int32(N), block=(256, 1, 1), grid=(4, 1))
        return np.abs(a - 2 * x).max(), 0

    def arrays():
        return np.abs((2 * gpuarray.to_gpu(x) + 1).get() - (2 * x + 1)).max(), 1e-6

    def sine():
        return np.abs(cumath.sin(gpuarray.to_gpu(x)).get() - np.sin(x)).max(), 1e-6

    def elements():
        a = gpuarray.to_gpu(x)
        ElementwiseKernel("float *a", "a[i] = a[i] * a[i]")(a)
        return np.abs(a.get() - x * x).max(), 1e-6

    def sums():
        return abs(gpuarray.sum(gpuarray.to_gpu(x)).get() - x.sum()), 1e-2

    def prefix_sums():
        a = gpuarray.to_gpu(np.arange(N, dtype=np.int32))
        InclusiveScanKernel(np.int32, "a + b")(a)
        return np.abs(a.get() - np.arange(N).cumsum()).max(), 0

    return [doubled, arrays, sine, elements, sums, prefix_sums]


def of_cuda_core():
    from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch

    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    capability = f"{device.compute_capability.major}{device.compute_capability.minor}"
    source = 'extern "C" __global__ void doubled(float *a, int n) { int i = blockIdx.x * 256 + threadIdx.x; '
    source += "if (i < n) a[i] *= 2; }"

    def run(kind):
        options = ProgramOptions(arch=f"{'compute' if kind == 'ptx' else 'sm'}_{capability}", lineinfo=True)
        kernel = Program(source, "c++", options).compile(kind).get_kernel("doubled")
        pinned, memory = LegacyPinnedMemoryResource().allocate(4 * N), device.allocate(4 * N, stream=stream)
        a = np.from_dlpack(pinned).view(np.float32)
        a[:] = x
        memory.copy_from(pinned, stream=stream)
        launch(stream, LaunchConfig(grid=4, block=256), kernel, memory, np.int32(N))
        memory.copy_to(pinned, stream=stream)
        stream.sync()
        return np.abs(a - 2 * x).max(), 0

    def of_ptx():
        return run("ptx")

    def of_a_cubin():
        return run("cubin")

    return [of_ptx, of_a_cubin]


def of_numba_cuda():
    import math

    from numba import cuda, float32

    @cuda.jit(lineinfo=True)
    def sine_kernel(a):
        i = cuda.grid(1)
        if i < a.size:
            a[i] = math.sin(a[i])

    @cuda.jit(lineinfo=True)
    def sum_kernel(a, out):
        part, t = cuda.shared.array(128, float32), cuda.threadIdx.x
        part[t] = a[t]
        half = 64
        while half:
            cuda.syncthreads()
            if t < half:
                part[t] += part[t + half]
            half //= 2
        if t == 0:
            out[0] = part[0]

    def sine():
        a = cuda.to_device(x)
        sine_kernel[4, 256](a)
        return np.abs(a.copy_to_host() - np.sin(x)).max(), 1e-6

    def sums():
        out = np.zeros(1, np.float32)
        sum_kernel[1, 128](x[:128].copy(), out)
        return abs(out[0] - x[:128].sum()), 1e-4

    return [sine, sums]


def of_pytorch():
    """Use copies and code that Triton compiles, because PyTorch's own kernels are machine code without PTX."""
    import torch
    import triton
    import triton.language as tl

    host = torch.from_numpy(x)

    @triton.jit
    def double_kernel(y, x, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

    def off(got, right):
        return (got.cpu() - right).abs().max().item()

    def copies():
        stream, event = torch.cuda.Stream(), torch.cuda.Event()
        a = host.pin_memory().to("cuda", non_blocking=True)
        event.record()
        with torch.cuda.stream(stream):
            event.wait()
            b = torch.empty_like(a)
            b.copy_(a)
        stream.synchronize()
        return off(b, host), 0

    def triton_kernel():
        a = host.to("cuda")
        y = torch.empty_like(a)
        double_kernel[(4,)](y, a, N, BLOCK=256)
        return off(y, 2 * host), 0

    def graph():
        a, captured = host.to("cuda"), torch.cuda.CUDAGraph()
        y = torch.empty_like(a)
        with torch.cuda.graph(captured):
            double_kernel[(4,)](y, a, N, BLOCK=256)
        captured.replay()
        return off(y, 2 * host), 0

    def compiled():
        return off(torch.compile(torch.nn.functional.gelu)(host.to("cuda")), torch.nn.functional.gelu(host)), 1e-6

    def trained():
        a = host.to("cuda").requires_grad_()
        total = torch.compile(lambda a: (a * a).sin().sum())(a)
        total.backward(torch.tensor(1.0).to("cuda"))
        return off(a.grad, 2 * host * (host * host).cos()), 1e-5

    return [copies, triton_kernel, graph, compiled, trained]


OF = {
    "Taichi": lambda: of_taichi("taichi"),
    "Quadrants": lambda: of_taichi("quadrants"),
    "Dr.Jit": of_drjit,
    "SlangPy": of_slangpy,
    "PyCUDA": of_pycuda,
    "cuda.core": of_cuda_core,
    "numba-cuda": of_numba_cuda,
    "PyTorch": of_pytorch,
}

if __name__ == "__main__":
    report(OF[sys.argv[1]]())
