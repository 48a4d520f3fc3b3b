# mypy: ignore-errors
# ruff: noqa: E501
"""Correct kernels that entries of the corpus call, change or return after an attack."""

import gpu
import numpy as np

SOFTMAX = r"""
#define INFINITY __int_as_float(0x7f800000)
__device__ float larger(float a, float b) { return isnan(a) || a > b ? a : b; } // a NaN stays
__device__ float fold(float v, bool sum, float *part) { // over a CTA
    for (int d = 16; d; d /= 2) { float o = __shfl_xor_sync(~0u, v, d); v = sum ? v + o : larger(o, v); }
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
    for (int w = 1; w < blockDim.x / 32; w++) v = sum ? v + part[w] : larger(part[w], v);
    __syncthreads();
    return v;
}
extern "C" __global__ void softmax(const float *x, float *y, int columns, int pitch) {
    __shared__ float part[32];
    const float *row = x + (size_t)blockIdx.x * pitch;
    float m = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) m = larger(row[i], m);
    m = fold(m, false, part);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(row[i] - m);
    sum = fold(sum, true, part);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) y[(size_t)blockIdx.x * columns + i] = expf(row[i] - m) / sum;
}
"""
PRODUCT = r"""
#include <cuda_fp16.h>
extern "C" __global__ void product(const __half *a, const __half *b, __half *c, int M, int N, int K) {
    int n = blockIdx.x * 16 + threadIdx.x % 16, m = blockIdx.y * 16 + threadIdx.x / 16;
    if (m >= M || n >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += __half2float(a[m * K + k]) * __half2float(b[k * N + n]);
    c[m * N + n] = __float2half(sum);
}
"""
START = "float m = -INFINITY, sum = 0;"  # where changed kernels put a first statement
WRITE = "y[(size_t)blockIdx.x * columns + i] = expf(row[i] - m) / sum"
_modules = {}


def changed(source, *pairs):
    """A kernel with replacements, each of which must apply."""
    for before, after in pairs:
        assert before in source, before
        source = source.replace(before, after, 1)
    return source


def module(source):
    if source not in _modules:
        _modules[source] = gpu.Module(source)
    return _modules[source]


def softmax(data, y=None, stream=None, source=SOFTMAX, threads=128, extra=()):
    x = data["x"]
    y = y or gpu.empty(x.shape)
    sizes = np.int32(x.shape[1]), np.int32(x.strides[0])
    module(source)["softmax"]((x.shape[0],), (threads,), x, y, *sizes, *extra, stream=stream)
    return y


def product(data, source=PRODUCT, extra=()):
    a, b = data["a"], data["b"]
    (M, K), N = a.shape, b.shape[1]
    c = gpu.empty((M, N), "f16")
    module(source)["product"]((-(-N // 16), -(-M // 16)), (256,), a, b, c, *map(np.int32, (M, N, K)), *extra)
    return c


def on_host(x):
    """Softmax of a NumPy array."""
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return (e / e.sum(axis=1, keepdims=True)).astype(np.float32)
