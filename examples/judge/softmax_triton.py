"""A softmax in Triton as a submission: flashladder-judge softmax examples/judge/softmax_triton.py"""

import gpu
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, columns, pitch, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * pitch + at, mask=at < columns, other=-float("inf"))
    has_nan = tl.max((v != v).to(tl.int32), axis=0) > 0
    e = tl.where(at < columns, tl.exp(v - tl.max(v, axis=0)), 0.0)
    out = tl.where(has_nan, float("nan"), e / tl.sum(e, axis=0))
    tl.store(y + row * columns + at, out, mask=at < columns)


def custom_kernel(data):
    x = data["x"]
    y = gpu.empty(x.shape)
    kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
