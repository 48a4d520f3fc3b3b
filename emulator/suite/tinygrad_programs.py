# mypy: ignore-errors
"""Programs in tinygrad, whose renderer writes PTX: products, reductions, convolutions, gradients, and a graph."""

import numpy as np
from device import report
from tinygrad import Device, Tensor, TinyJit

rng = np.random.default_rng(2)
a, b = rng.standard_normal((64, 96), np.float32), rng.standard_normal((96, 48), np.float32)


def distance(tensor, expected):
    return np.abs(tensor.numpy() - expected).max()


def product():
    return distance(Tensor(a) @ Tensor(b), a @ b), 1e-4


def product_f16():
    halves = a[:, :64].astype(np.float16)
    return distance(Tensor(halves) @ Tensor(halves), halves.astype(float) @ halves.astype(float)), 0.1


def softmax():
    e = np.exp(a)
    return distance(Tensor(a).softmax(), e / e.sum(1, keepdims=True)), 1e-6


def layer_norm():
    expected = (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5)
    return distance(Tensor(a).layernorm(), expected), 1e-5


def convolution():
    x, w = rng.standard_normal((2, 3, 16, 16), np.float32), rng.standard_normal((4, 3, 3, 3), np.float32)
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    expected = np.maximum(np.einsum("bchwij,ocij->bohw", windows, w), 0).reshape(2, 4, 8, 2, 8, 2).max((3, 5))
    return distance(Tensor(x).conv2d(Tensor(w), padding=1).relu().max_pool2d(), expected), 1e-4


def attention():
    q, k, v = (rng.standard_normal((1, 2, 32, 16), np.float32) for _ in range(3))
    p = np.exp(q @ k.transpose(0, 1, 3, 2) / 4)
    tensor = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v))
    return distance(tensor, p / p.sum(-1, keepdims=True) @ v), 1e-5


def gradient():
    weights = Tensor(a.copy())
    (weights.relu() @ Tensor(b)).square().mean().backward()
    expected = (2 / (64 * 48) * (np.maximum(a, 0) @ b) @ b.T) * (a > 0)
    return distance(weights.grad, expected), 1e-6


def sums():
    return distance(Tensor(a).cumsum(1), a.cumsum(1)), 1e-4


def sort():
    return distance(Tensor(a).sort(1)[0], np.sort(a, 1)), 0


def random_numbers():
    return abs(float(Tensor.rand(1000).mean().numpy()) - 0.5), 0.1


def graph():
    @TinyJit
    def step(x):
        return ((x + 1).contiguous() * 2).contiguous().realize()

    return max(distance(step(Tensor(a + i).realize()), (a + i + 1) * 2) for i in range(5)), 1e-6


if __name__ == "__main__":
    assert Device.DEFAULT == "CUDA", Device.DEFAULT
    report(
        [product, product_f16, softmax, layer_norm, convolution, attention, gradient, sums, sort, random_numbers, graph]
    )
