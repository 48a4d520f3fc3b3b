"""A submission as GPU MODE's leaderboards receive it."""

import math

from numba import cuda, float32


@cuda.jit
def kernel(x, y):
    row, lane = cuda.blockIdx.x, cuda.threadIdx.x
    part = cuda.shared.array(32, float32)
    largest, has_nan = float32(-math.inf), False
    for i in range(lane, x.shape[1], 32):
        if x[row, i] != x[row, i]:
            has_nan = True
        if x[row, i] > largest:
            largest = x[row, i]
    part[lane] = float32(math.nan) if has_nan else largest
    cuda.syncthreads()
    largest = part[0]
    for i in range(1, 32):
        if part[i] != part[i] or part[i] > largest:
            largest = part[i]
        if largest != largest:
            break
    cuda.syncthreads()
    total = float32(0)
    for i in range(lane, x.shape[1], 32):
        total += math.exp(x[row, i] - largest)
    part[lane] = total
    cuda.syncthreads()
    total = float32(0)
    for i in range(32):
        total += part[i]
    for i in range(lane, x.shape[1], 32):
        y[row, i] = math.exp(x[row, i] - largest) / total


def custom_kernel(data):
    x, y = data
    kernel[x.shape[0], 32](x, y)
    return y
