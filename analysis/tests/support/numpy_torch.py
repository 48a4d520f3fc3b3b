"""Replaces PyTorch with a GPU: what peers_worker.py calls, computed by NumPy, on a clock of its own.

torch = NumpyTorch(); torch.attention_ms = 2.0
"""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np


class Tensor(np.ndarray[Any, Any]):
    """An array with the methods of a tensor."""

    clock = 0.0  # ms

    def numel(self) -> int:
        return self.size

    def to(self, dtype: Any) -> Any:
        if dtype is None:
            raise TypeError("to() needs a type")
        return self.astype(dtype)

    def double(self) -> Any:
        return self.astype(np.float64)

    def abs(self) -> Any:
        return np.abs(self)

    def transpose(self, one: Any, other: Any) -> Any:  # type: ignore[override]
        return self.swapaxes(one, other)

    def requires_grad_(self) -> Any:
        return self

    def zero_(self) -> None:
        Tensor.clock += 100
        self[...] = 0


class Event:
    """The time at which it was recorded; it can be read once it or a later one is reached."""

    recorded = reached = 0  # numbers of events

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        Event.recorded += 1
        self.at, self.number = Tensor.clock, Event.recorded

    def synchronize(self) -> None:
        Event.reached = max(Event.reached, self.number)

    def query(self) -> bool:
        self.synchronize()
        return True

    def elapsed_time(self, end: "Event") -> float:
        assert end.number <= Event.reached
        return end.at - self.at


def softmax(x: Any, axis: int) -> Any:
    weights = np.exp(x - x.max(axis, keepdims=True))
    return weights / weights.sum(axis, keepdims=True)


class NumpyTorch:
    """The module. Attention takes `attention_ms`, its gradients `gradients_ms`, a matmul 3 ms; `spoil` changes every
    output, of gradients dQ, dK and dV in one list."""

    __version__ = "0.1"
    float16, bfloat16, float32, float64, uint8 = np.float16, np.float32, np.float32, np.float64, np.uint8

    def __init__(self) -> None:
        self.attention_ms, self.gradients_ms, self.launches, self.backends = 2.0, 5.0, 0, list[str]()
        self.words: dict[str, bool] = {}
        self.inference: list[bool] = []
        self.autograd = SimpleNamespace(grad=self.gradients)
        self.spoil: Any = lambda out: out
        properties = SimpleNamespace(name="NumPy", major=9, minor=1, multi_processor_count=132, L2_cache_size=4096)
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            get_device_properties=lambda device: properties,
            synchronize=lambda: None,
            empty_cache=lambda: None,
            Event=Event,
        )
        functional = SimpleNamespace(scaled_dot_product_attention=self.attention)
        self.nn = SimpleNamespace(functional=functional)
        names = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")
        self.attention_module = SimpleNamespace(
            sdpa_kernel=self.chosen, SDPBackend=SimpleNamespace(**{name: name for name in names})
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @contextlib.contextmanager
    def chosen(self, backend: str) -> Iterator[None]:
        self.backends.append(backend)
        yield

    def attention(self, q: Any, k: Any, v: Any, is_causal: bool = False, enable_gqa: bool = False) -> Any:
        """(batch, heads, seq, d_head), in float64, rounded once."""
        Tensor.clock += self.attention_ms
        self.launches += 1
        self.words = {"is_causal": is_causal, "enable_gqa": enable_gqa}
        weights, v = self.weights(q, k, v)
        return self.spoil((weights @ v).to(q.dtype))

    def weights(self, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
        """Weights of the last attention, and V of each head."""
        if self.words["enable_gqa"]:
            k, v = (np.repeat(tensor, q.shape[1] // k.shape[1], axis=1) for tensor in (k, v))
        scores = q.double() @ k.double().transpose(2, 3) / np.sqrt(q.shape[-1])
        if self.words["is_causal"]:
            scores = np.where(np.tri(q.shape[2], dtype=bool), scores, -np.inf)
        return softmax(scores, -1), v.double()

    def gradients(self, out: Any, leaves: Any, dout: Any, retain_graph: bool) -> Any:
        """Gradients of the last attention, by the Jacobian of the softmax, in float64, rounded once."""
        assert retain_graph and not self.inference[-1], "gradients need a graph that stays"
        Tensor.clock += self.gradients_ms
        self.launches += 1
        q, k, v = leaves
        (p, values), dout = self.weights(q, k, v), dout.double()
        dp = dout @ values.transpose(2, 3)
        jacobian = p[..., :, None] * np.eye(p.shape[-1]) - p[..., :, None] * p[..., None, :]
        ds = (jacobian @ dp[..., None])[..., 0] / np.sqrt(q.shape[-1])
        heads = np.repeat(k.double(), q.shape[1] // k.shape[1], axis=1)
        of_heads = ds.swapaxes(2, 3) @ q.double(), p.swapaxes(2, 3) @ dout
        shape = (k.shape[0], k.shape[1], -1, *k.shape[2:])
        found = [ds @ heads, *(each.reshape(shape).sum(axis=2) for each in of_heads)]
        return self.spoil([each.view(Tensor).to(q.dtype) for each in found])

    def matmul(self, a: Any, b: Any) -> Any:
        Tensor.clock += 3.0
        return self.spoil((a.double() @ b.double()).to(a.dtype))

    def empty(self, count: int, dtype: Any, device: str) -> Any:
        assert device == "cuda"
        return np.zeros(count, dtype).view(Tensor)

    def stack(self, parts: Any, axis: int) -> Any:
        return np.stack(parts, axis).view(Tensor)

    def arange(self, first: int, end: int) -> Any:
        return np.arange(first, end, dtype=np.int64).view(Tensor)

    def device(self, name: str) -> Any:
        return contextlib.nullcontext(name)

    @contextlib.contextmanager
    def inference_mode(self, mode: bool = True) -> Iterator[None]:
        self.inference.append(mode)
        yield
        self.inference.pop()

    def softmax(self, x: Any, axis: int) -> Any:
        return softmax(x, axis)

    def Generator(self) -> Any:
        return SimpleNamespace(manual_seed=np.random.default_rng)

    def randint(self, below: int, shape: tuple[int, ...], generator: Any) -> Any:
        return generator.integers(below, size=shape)[0]
