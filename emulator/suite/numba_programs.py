# mypy: ignore-errors
"""Programs in Numba: shared memory, atomics, warps, and the functions of its mathematical library."""

import math

import numpy as np
from device import report
from numba import cuda, float32

rng = np.random.default_rng(1)


@cuda.jit
def axpy_kernel(out, a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * x[i] + y[i]


def axpy():
    x, y = rng.random(1000, np.float32), rng.random(1000, np.float32)
    out = np.zeros_like(x)
    axpy_kernel[4, 256](out, 2.0, x, y)
    return np.abs(out - 2 * x - y).max(), 1e-6


@cuda.jit
def product_kernel(c, a, b):
    left, right = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    column, row = cuda.grid(2)
    i, j = cuda.threadIdx.y, cuda.threadIdx.x
    total = float32(0)
    for k in range(0, a.shape[1], 16):
        left[i, j] = a[row, k + j]
        right[i, j] = b[k + i, column]
        cuda.syncthreads()
        for each in range(16):
            total += left[i, each] * right[each, j]
        cuda.syncthreads()
    c[row, column] = total


def product_in_shared_memory():
    a, b = rng.random((64, 48), np.float32), rng.random((48, 32), np.float32)
    c = np.zeros((64, 32), np.float32)
    product_kernel[(2, 4), (16, 16)](c, a, b)
    return np.abs(c - a @ b).max(), 1e-4


@cuda.jit
def sum_kernel(out, x):
    part = cuda.shared.array(256, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    part[t] = x[i] if i < x.size else 0.0
    cuda.syncthreads()
    half = 128
    while half:
        if t < half:
            part[t] += part[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        cuda.atomic.add(out, 0, part[0])


def sum_in_a_tree():
    x = rng.random(1000, np.float32)
    out = np.zeros(1, np.float32)
    sum_kernel[4, 256](out, x)
    return abs(out[0] - x.sum()), 1e-3


@cuda.jit
def histogram_kernel(out, x):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, x[i], 1)


def histogram():
    x = rng.integers(0, 10, 1000)
    out = np.zeros(10, np.int32)
    histogram_kernel[4, 256](out, x)
    return np.abs(out - np.bincount(x, minlength=10)).max(), 0


@cuda.jit
def functions_kernel(out, x):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = math.sin(x[i]) + math.exp(-x[i]) + math.gamma(x[i] + 1.5) + x[i] % 0.7 + math.erf(x[i])


def mathematics_in_f64():
    x = rng.random(100)
    out = np.zeros(100)
    functions_kernel[1, 128](out, x)
    expected = [math.sin(v) + math.exp(-v) + math.gamma(v + 1.5) + v % 0.7 + math.erf(v) for v in x]
    return np.abs(out - expected).max(), 1e-13


@cuda.jit
def warp_kernel(out, x):
    i = cuda.grid(1)
    v = x[i]
    for distance in (16, 8, 4, 2, 1):
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, distance)
    out[i] = cuda.shfl_sync(0xFFFFFFFF, v, 0) + cuda.popc(cuda.ballot_sync(0xFFFFFFFF, x[i] > 3))


def sums_of_warps():
    x = rng.integers(0, 8, 64).astype(np.int32)
    out = np.zeros(64, np.int32)
    warp_kernel[1, 64](out, x)
    expected = np.repeat([half.sum() + (half > 3).sum() for half in (x[:32], x[32:])], 32)
    return np.abs(out - expected).max(), 0


def streams_and_pinned_memory():
    x = cuda.pinned_array(512, np.float32)
    x[:] = 1
    stream, start, end = cuda.stream(), cuda.event(), cuda.event()
    start.record(stream)
    device = cuda.to_device(x, stream=stream)
    axpy_kernel[2, 256, stream](device, 3.0, device, device)
    device.copy_to_host(x, stream=stream)
    end.record(stream)
    stream.synchronize()
    return np.abs(x - 4).max() + (start.elapsed_time(end) <= 0), 0


if __name__ == "__main__":
    report([
        axpy, product_in_shared_memory, sum_in_a_tree, histogram, mathematics_in_f64, sums_of_warps,
        streams_and_pinned_memory,
    ])  # fmt: skip
