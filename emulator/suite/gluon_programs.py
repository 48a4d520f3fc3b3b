# mypy: ignore-errors
"""Programs in Gluon, Triton's lower language: a product by tensor copies, mbarriers and wgmma."""

import numpy as np
from device import DeviceArray, report, start
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

rng = np.random.default_rng(3)


@gluon.jit
def product_kernel(c, a, b, K, BUFFERS: gl.constexpr, num_warps: gl.constexpr):
    BM: gl.constexpr = a.block_type.shape[0]
    BK: gl.constexpr = a.block_type.shape[1]
    BN: gl.constexpr = b.block_type.shape[1]
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    left = gl.allocate_shared_memory(a.dtype, [BUFFERS, BM, BK], a.layout)
    right = gl.allocate_shared_memory(b.dtype, [BUFFERS, BK, BN], b.layout)
    full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    for each in gl.static_range(BUFFERS):
        mbarrier.init(full.index(each), count=1)
    fence_async_shared()
    total = gl.zeros((BM, BN), gl.float32, gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, BN, 16]))
    for block in range(K // BK):
        i = block % BUFFERS
        mbarrier.expect(full.index(i), a.block_type.nbytes + b.block_type.nbytes)
        tma.async_load(a, [row, block * BK], full.index(i), left.index(i))
        tma.async_load(b, [block * BK, column], full.index(i), right.index(i))
        mbarrier.wait(full.index(i), (block // BUFFERS) & 1)
        total = warpgroup_mma(left.index(i), right.index(i), total, is_async=True)
        total = warpgroup_mma_wait(num_outstanding=0, deps=(total,))
    for each in gl.static_range(BUFFERS):
        mbarrier.invalidate(full.index(each))
    out = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    out.store(total.to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [row, column], out)
    tma.store_wait(pendings=0)


def product_by_tensor_copies():
    M, N, K, BM, BN, BK = 128, 128, 256, 64, 64, 64
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((M, K), (K, N)))
    c = DeviceArray(np.zeros((M, N), np.float16))

    def descriptor(array, block):
        layout = gl.NVMMASharedLayout.get_default_for(block, gl.float16)
        return TensorDescriptor(array, list(array.shape), [array.shape[1], 1], block, layout)

    given = [descriptor(c, [BM, BN]), descriptor(DeviceArray(a), [BM, BK]), descriptor(DeviceArray(b), [BK, BN])]
    product_kernel[(2, 2)](*given, K, 3, num_warps=4)
    return np.abs(c.numpy() - a.astype(float) @ b.astype(float)).max(), 0.05


if __name__ == "__main__":
    start()
    report([product_by_tensor_copies])
