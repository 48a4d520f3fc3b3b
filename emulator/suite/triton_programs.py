# mypy: ignore-errors
"""Programs in Triton: loads, reductions, products in every type, tensor descriptors, atomics, warp specialization."""

import numpy as np
import triton
import triton.language as tl
from device import DeviceArray, report, start
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor

rng = np.random.default_rng(0)
HOPPER = triton.runtime.driver.active.get_current_target().arch >= 90


def floats(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def halves(*shape):
    return rng.standard_normal(shape).astype(np.float16)


@triton.jit
def row_softmax(out, x, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    row = tl.load(x + at, mask=inside, other=-float("inf"))
    e = tl.exp(row - tl.max(row, 0))
    tl.store(out + at, e / tl.sum(e, 0), mask=inside)


def softmax():
    x = floats(9, 781)
    out = DeviceArray(np.zeros_like(x))
    row_softmax[(9,)](out, DeviceArray(x), 781, BLOCK=1024, num_warps=8)
    e = np.exp(x - x.max(1, keepdims=True))
    return np.abs(out.numpy() - e / e.sum(1, keepdims=True)).max(), 1e-6


@triton.jit
def product(c, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    kind: tl.constexpr = tl.int32 if a.dtype.element_ty == tl.int8 else tl.float32
    total = tl.zeros((BM, BN), dtype=kind)
    for first in range(0, K, BK):
        here = first + k
        left = tl.load(a + m[:, None] * K + here[None, :], mask=(m[:, None] < M) & (here[None, :] < K), other=0)
        right = tl.load(b + here[:, None] * N + n[None, :], mask=(here[:, None] < K) & (n[None, :] < N), other=0)
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=kind)
    tl.store(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


def multiply(a, b, kind=np.float32, precision="tf32", blocks=(64, 64, 32), bound=1e-3, **options):
    (M, K), N = a.shape, b.shape[1]
    c = DeviceArray(np.zeros((M, N), kind))
    grid = (triton.cdiv(M, blocks[0]), triton.cdiv(N, blocks[1]))
    BM, BN, BK = blocks
    product[grid](c, DeviceArray(a), DeviceArray(b), M, N, K, BM=BM, BN=BN, BK=BK, PRECISION=precision, **options)
    return np.abs(c.numpy() - a.astype(np.float64) @ b.astype(np.float64)).max(), bound


def product_f16():
    return multiply(halves(200, 136), halves(136, 144), bound=0.02)


def product_f16_eight_warps():
    return multiply(halves(256, 256), halves(256, 256), blocks=(128, 128, 64), num_warps=8, num_stages=4, bound=0.02)


def product_tf32():
    return multiply(floats(128, 96), floats(96, 128), bound=0.1)


def product_tf32x3():
    return multiply(floats(64, 96), floats(96, 64), precision="tf32x3", bound=1e-4)


def product_ieee():
    return multiply(floats(64, 96), floats(96, 64), precision="ieee", blocks=(32, 32, 32), bound=1e-4)


def product_int8():
    numbers = [rng.integers(-128, 128, (128, 128)).astype(np.int8) for _ in range(2)]
    return multiply(*numbers, kind=np.int32, blocks=(64, 64, 64), bound=0)


def product_in_clusters():
    return multiply(halves(128, 128), halves(128, 128), blocks=(128, 128, 64), num_ctas=2, bound=0.02)


@triton.jit
def eight_bits(c, a, b, SIZE: tl.constexpr, TYPE: tl.constexpr):
    i = tl.arange(0, SIZE)
    at = i[:, None] * SIZE + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at).to(TYPE), tl.trans(tl.load(b + at).to(TYPE))))


def multiply_eight_bits(kind, bound):
    a, b = rng.integers(-8, 9, (64, 64)).astype(np.float16), rng.integers(-8, 9, (64, 64)).astype(np.float16)
    c = DeviceArray(np.zeros((64, 64), np.float32))
    eight_bits[(1,)](c, DeviceArray(a), DeviceArray(b), SIZE=64, TYPE=kind)
    return np.abs(c.numpy() - a.astype(np.float64) @ b.T.astype(np.float64)).max(), bound


def product_e5m2():
    return multiply_eight_bits(tl.float8e5, 64)  # which has 3 bits: 7 becomes 8, 5 stays


def product_e4m3():
    return multiply_eight_bits(tl.float8e4nv, 0.01)


@triton.jit
def attend(o, q, k, v, scale, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
           WHERE: tl.constexpr, SPECIAL: tl.constexpr):  # fmt: skip
    first, head = tl.program_id(0) * BM, tl.program_id(1) * N
    rows, columns, d = first + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    if WHERE == "made":
        q = tl.make_tensor_descriptor(q, [2 * N, D], [D, 1], [BM, D])
        k = tl.make_tensor_descriptor(k, [2 * N, D], [D, 1], [BN, D])
        v = tl.make_tensor_descriptor(v, [2 * N, D], [D, 1], [BN, D])
        o = tl.make_tensor_descriptor(o, [2 * N, D], [D, 1], [BM, D])
    m = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    out = tl.zeros([BM, D], tl.float32)
    Q = tl.load(q + (head + rows)[:, None] * D + d[None, :]) if WHERE == "pointers" else q.load([head + first, 0])
    for block in tl.range(0, first + BM if CAUSAL else N, BN, warp_specialize=SPECIAL):
        if WHERE == "pointers":
            K = tl.load(k + (head + block + columns)[:, None] * D + d[None, :])
            V = tl.load(v + (head + block + columns)[:, None] * D + d[None, :])
        else:
            K = k.load([head + block, 0])
            V = v.load([head + block, 0])
        s = tl.dot(Q, tl.trans(K)) * scale
        if CAUSAL:
            s = tl.where(rows[:, None] >= (block + columns)[None, :], s, -1e30)
        larger = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - larger[:, None])
        shrink = tl.exp(m - larger)
        total = total * shrink + tl.sum(p, 1)
        out = tl.dot(p.to(tl.float16), V, out * shrink[:, None])
        m = larger
    result = (out / total[:, None]).to(tl.float16)
    if WHERE == "pointers":
        tl.store(o + (head + rows)[:, None] * D + d[None, :], result)
    else:
        o.store([head + first, 0], result)


def attention(causal, where, BM=64, BN=32, D=64, N=128, special=False, **options):
    q, k, v = (halves(2, N, D) for _ in range(3))
    arrays = [DeviceArray(np.zeros_like(q)), DeviceArray(q), DeviceArray(k), DeviceArray(v)]
    given = arrays
    if where == "host":
        rows = (BM, BM, BN, BN)
        given = [TensorDescriptor(a, [2 * N, D], [D, 1], [r, D]) for a, r in zip(arrays, rows, strict=True)]
    attend[(N // BM, 2)](*given, 0.125, N, D=D, BM=BM, BN=BN, CAUSAL=causal, WHERE=where, SPECIAL=special, **options)
    s = np.einsum("hnd,hmd->hnm", q.astype(float), k.astype(float)) * 0.125
    if causal:
        s = np.where(np.tril(np.ones((N, N))) > 0, s, -1e30)
    p = np.exp(s - s.max(-1, keepdims=True))
    expected = p / p.sum(-1, keepdims=True) @ v.astype(float)
    return np.abs(arrays[0].numpy() - expected).max(), 4e-3


def attention_pointers():
    return attention(False, "pointers")


def attention_pointers_causal():
    return attention(True, "pointers", 128, 64, 128, 256, num_warps=8, num_stages=2)


def attention_host_descriptors():
    return attention(True, "host", 128, 64, 64, 256, num_warps=8)


def attention_made_descriptors():
    return attention(True, "made")


def attention_specialised():
    return attention(False, "host", 128, 64, 128, 256, special=True, num_warps=8, num_stages=2)


NUMBERS = np.array([(8 + bits % 8) * 2.0 ** (bits // 8 - 10) if bits > 7 else bits / 512 for bits in range(127)])


def e4m3(x):
    """The nearest numbers in e4m3: their bits, their values."""
    bits = np.searchsorted((NUMBERS[1:] + NUMBERS[:-1]) / 2, np.abs(x))
    return (bits | np.signbit(x) << 7).astype(np.uint8), np.copysign(NUMBERS[bits], x)


@triton.jit
def attend_e4m3(o, q, k, v_turned, scale, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rows, columns, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    m = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    out = tl.zeros([BM, D], tl.float32)
    Q = tl.load(q + rows[:, None] * D + d[None, :])
    for block in range(0, N, BN):
        K = tl.load(k + (block + columns)[:, None] * D + d[None, :])
        V = tl.load(v_turned + d[:, None] * N + (block + columns)[None, :])
        s = tl.dot(Q, tl.trans(K)) * scale
        larger = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - larger[:, None])
        shrink = tl.exp(m - larger)
        total = total * shrink + tl.sum(p, 1)
        out = tl.dot(p.to(tl.float8e4nv), tl.trans(V), out * shrink[:, None])
        m = larger
    tl.store(o + rows[:, None] * D + d[None, :], out / total[:, None])


def attention_e4m3():
    """V has a mean of 1, so that sums grow from block to block; weights are rounded to e4m3 here, too."""
    N, D, BN = 512, 64, 64
    (q_bits, q), (k_bits, k), (v_bits, v) = e4m3(floats(N, D)), e4m3(floats(N, D)), e4m3(floats(N, D) + 1)
    o = DeviceArray(np.zeros((N, D), np.float32))
    given = [DeviceArray(bits, "fp8e4nv") for bits in (q_bits, k_bits, np.ascontiguousarray(v_bits.T))]
    attend_e4m3[(N // 128,)](o, *given, 0.125, N, D=D, BM=128, BN=BN, num_warps=8, num_stages=3)
    s = q @ k.T * 0.125
    largest = np.maximum.accumulate(s.reshape(N, -1, BN).max(2), 1).repeat(BN, 1)  # at each key's block
    p = e4m3(np.exp(s - largest))[1] * np.exp(largest - largest[:, -1:])
    total = np.exp(s - largest[:, -1:]).sum(1, keepdims=True)
    return np.abs(o.numpy() - p @ v / total).max(), 0.02


@triton.jit
def persistent(c, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CTAS: tl.constexpr,
               SPECIAL: tl.constexpr):  # fmt: skip
    a = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    c = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    wide = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * wide, CTAS, flatten=True, warp_specialize=SPECIAL):
        row, column = tile // wide * BM, tile % wide * BN
        total = tl.zeros((BM, BN), tl.float32)
        for k in range(tl.cdiv(K, BK)):
            total = tl.dot(a.load([row, k * BK]), b.load([column, k * BK]).T, total)
        c.store([row, column], total.to(tl.float16))


def persistent_product(special):
    a, b = halves(200, 160), halves(192, 160)
    c = DeviceArray(np.zeros((200, 192), np.float16))
    sizes = {"BM": 64, "BN": 64, "BK": 64, "CTAS": 4}
    persistent[(4,)](c, DeviceArray(a), DeviceArray(b), 200, 192, 160, **sizes, SPECIAL=special, num_stages=3)
    return np.abs(c.numpy() - a.astype(float) @ b.T.astype(float)).max(), 0.05


def product_persistent():
    return persistent_product(False)


def product_persistent_specialised():
    return persistent_product(True)


@triton.jit
def add_box(out, x, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.make_tensor_descriptor(out, [SIZE, SIZE], [SIZE, 1], [SIZE, SIZE]).atomic_add(
        [0, 0], tl.load(x + i[:, None] * SIZE + i[None, :])
    )


def descriptor_atomic_add():
    x = floats(32, 32)
    out = DeviceArray(np.ones_like(x))
    add_box[(1,)](out, DeviceArray(x), SIZE=32)
    return np.abs(out.numpy() - 1 - x).max(), 1e-6


@triton.jit
def order(sums, sorted_, turned, x, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    v = tl.load(x + i)
    tl.store(sums + i, tl.cumsum(v, 0))
    tl.store(sorted_ + i, tl.sort(v))
    tl.store(turned + i, tl.flip(v))


def scan_sort_flip():
    x = floats(512)
    out = [DeviceArray(np.zeros_like(x)) for _ in range(3)]
    order[(1,)](*out, DeviceArray(x), SIZE=512)
    expected = (np.cumsum(x.astype(float)), np.sort(x), x[::-1])
    return max(np.abs(a.numpy() - b).max() for a, b in zip(out, expected, strict=True)), 1e-4


@triton.jit
def count(out, x, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.atomic_add(out + tl.arange(0, 128), tl.histogram(tl.load(x + at), 128))


def histogram():
    x = rng.integers(0, 128, 2048).astype(np.int32)
    out = DeviceArray(np.zeros(128, np.int32))
    count[(4,)](out, DeviceArray(x), SIZE=512)
    return np.abs(out.numpy() - np.bincount(x, minlength=128)).max(), 0


@triton.jit
def finish(out, done, x, CTAS, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.atomic_add(out + i, tl.load(x + tl.program_id(0) * SIZE + i), sem="release")
    if tl.atomic_add(done, 1, sem="acq_rel") == CTAS - 1:
        tl.store(out + SIZE + i, tl.load(out + i, volatile=True) * 2)


def last_cta():
    x = rng.integers(0, 9, (6, 128)).astype(np.float32)
    out = DeviceArray(np.zeros(256, np.float32))
    finish[(6,)](out, DeviceArray(np.zeros(1, np.int32)), DeviceArray(x), 6, SIZE=128)
    return np.abs(out.numpy()[128:] - 2 * x.sum(0)).max(), 0


@triton.jit
def locked(out, lock, x, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + i, tl.load(out + i) + tl.load(x + tl.program_id(0) * SIZE + i))
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def sums_under_a_lock():
    x = rng.integers(0, 9, (12, 256)).astype(np.float32)
    out = DeviceArray(np.zeros(256, np.float32))
    locked[(12,)](out, DeviceArray(np.zeros(1, np.int32)), DeviceArray(x), SIZE=256)
    return np.abs(out.numpy() - x.sum(0)).max(), 0


@triton.jit
def functions(out, x, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    v = tl.load(x + i)
    tl.store(out + i, libdevice.asin(v) + libdevice.tanh(v) + libdevice.pow(tl.abs(v), 2.5) + tl.sin(v * 1e5))


def mathematics():
    x = rng.uniform(-1, 1, 256).astype(np.float32)
    out = DeviceArray(np.zeros_like(x))
    functions[(1,)](out, DeviceArray(x), SIZE=256)
    large = (x * np.float32(1e5)).astype(float)
    v = x.astype(float)
    return np.abs(out.numpy() - (np.arcsin(v) + np.tanh(v) + np.abs(v) ** 2.5 + np.sin(large))).max(), 1e-5


@triton.jit
def dependent(out, x, SIZE: tl.constexpr):
    tl.extra.cuda.gdc_wait()
    i = tl.arange(0, SIZE)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(out + i, tl.load(x + i) + 1)


def dependent_launch():
    x = floats(128)
    out = DeviceArray(np.zeros_like(x))
    dependent[(1,)](out, DeviceArray(x), SIZE=128, launch_pdl=True)
    return np.abs(out.numpy() - (x + 1)).max(), 0


@triton.jit
def say(out, x, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    v = tl.load(x + i)
    tl.device_print("v", v)
    tl.device_assert(v < 100, "too large")
    tl.store(
        out + i, tl.inline_asm_elementwise("shl.b32 $0, $1, 3;", "=r,r", [v], dtype=tl.int32, is_pure=True, pack=1)
    )


def print_assert_assembly():
    x = np.arange(4, dtype=np.int32)
    out = DeviceArray(np.zeros_like(x))
    say[(1,)](out, DeviceArray(x), SIZE=4, num_warps=1, debug=True)
    return np.abs(out.numpy() - (x << 3)).max(), 0


EVERYWHERE = [
    softmax, product_f16, product_f16_eight_warps, product_tf32, product_tf32x3, product_ieee, product_int8,
    product_e5m2, attention_pointers, attention_pointers_causal, attention_host_descriptors,
    attention_made_descriptors, product_persistent, descriptor_atomic_add, scan_sort_flip, histogram, last_cta,
    sums_under_a_lock, mathematics, print_assert_assembly,
]  # fmt: skip
ON_HOPPER = [
    product_in_clusters,
    product_e4m3,
    attention_e4m3,
    attention_specialised,
    product_persistent_specialised,
    dependent_launch,
]

if __name__ == "__main__":
    start()
    triton.set_allocator(lambda size, alignment, stream: DeviceArray(np.zeros(size, np.uint8)))
    report(EVERYWHERE + (ON_HOPPER if HOPPER else []))
