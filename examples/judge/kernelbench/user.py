"""A submission as KernelBench receives it, with the judge's arrays instead of tensors."""

import gpu
import numpy as np

SOURCE = r"""
#include <cuda_fp16.h>
extern "C" __global__ void product(const __half *a, const __half *b, __half *c, int M, int N, int K) {
    int n = blockIdx.x * 16 + threadIdx.x, m = blockIdx.y * 16 + threadIdx.y;
    if (m >= M || n >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += __half2float(a[m * K + k]) * __half2float(b[k * N + n]);
    c[m * N + n] = __float2half(sum);
}
"""


class ModelNew:
    def __init__(self):
        self.kernel = gpu.Module(SOURCE)["product"]

    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        c = gpu.empty((M, N), "f16")
        self.kernel((-(-N // 16), -(-M // 16)), (16, 16), a, b, c, *map(np.int32, (M, N, K)))
        return c
