"""Gradients of attention in float64 for the peers, and how far a library may be from them: harness/gradients.h.

    for wanted, got in zip(of_kv_head(torch, q, k, v, dout, limits), found): share = wanted.share(got)

`torch` is the module, or its replacement in tests. A head of K and V at a time: q and dout are [group, seq, d_head],
the queries of all heads that share it, k and v [keys, d_head].
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

BLOCK = 1024  # queries at a time
FP32 = 2.0**-24  # unit roundoff


@dataclass(frozen=True)
class Limits:
    """The type of the tensors and the mask."""

    unit: float  # roundoff
    least: float  # half of the least number
    causal: bool


@dataclass
class Gradient:
    """A sum, and the largest errors of its elements before they are rounded."""

    value: Any
    error: Any

    def add(self, factors: Any, errors: Any, other: Any, terms: int) -> None:
        """factors @ other, whose factors have errors, in a sum of so many terms."""
        self.value = self.value + factors @ other
        self.error = self.error + (errors + FP32 * 8 * math.sqrt(terms) * abs(factors)) @ abs(other)

    def shares(self, got: Any, limits: Limits) -> Any:
        """Each element's error, divided by the bound."""
        bound = 1.05 * (self.error + limits.unit * abs(self.value) + limits.least)
        return abs(got.double() - self.value) / bound


def length(torch: Any, rows: Any) -> Any:
    return torch.sqrt((rows * rows).sum(-1))


@dataclass(frozen=True)
class Block:
    """Probabilities of some queries and all keys, and scale times their gradient, with errors; 0 where masked."""

    p: Any
    p_error: Any
    ds: Any
    ds_error: Any

    @classmethod
    def of(cls, torch: Any, q: Any, dout: Any, k: Any, v: Any, seen: Any, limits: Limits) -> "Block":
        unit, least, d = limits.unit, limits.least, k.shape[-1]
        scale = 1 / math.sqrt(d)
        scores = scale * (q @ k.T)
        most = torch.amax(torch.where(seen, scores, -math.inf), -1)[:, None]
        weights = torch.where(seen, torch.exp(scores - most), 0.0)
        lse = most + torch.log(weights.sum(-1)[:, None])
        p = weights / weights.sum(-1)[:, None]
        products = dout * (p @ v)
        difference = dout @ v.T - products.sum(-1)[:, None]
        ds = p * difference
        lengths = length(torch, q)[:, None] * length(torch, k)[None, :]
        x = FP32 * (d * scale * lengths + 8 * (abs(scores) + abs(lse)) + 8)
        a = FP32 * d * length(torch, dout)[:, None] * length(torch, v)[None, :]
        a = a + ((unit + FP32 * d) * abs(products).sum(-1) + least * abs(dout).sum(-1))[:, None]
        p_error = p * (unit + x) + least
        ds_error = p * ((unit + x) * abs(difference) + a) + least * abs(difference) + unit * abs(ds) + least
        return cls(p, torch.where(seen, p_error, 0.0), scale * ds, torch.where(seen, scale * ds_error, 0.0))


def of_kv_head(
    torch: Any, q: Any, k: Any, v: Any, dout: Any, limits: Limits
) -> tuple[list[Gradient], Gradient, Gradient]:
    """dQ of each head, dK and dV."""
    k, v = k.double(), v.double()
    group, seq, keys = q.shape[0], q.shape[1], k.shape[0]
    dq, dk, dv = [list[Gradient]() for _ in range(group)], Gradient(0 * k, 0 * k), Gradient(0 * v, 0 * v)
    for head, first in blocks(group, seq):
        own_q, own_dout = (x[head, first : first + BLOCK].double() for x in (q, dout))
        numbers = torch.arange(first, min(first + BLOCK, seq))[:, None] if limits.causal else keys
        found = Block.of(torch, own_q, own_dout, k, v, torch.arange(0, keys)[None, :] <= numbers, limits)
        dq[head].append(Gradient(0 * own_q, 0 * own_q))
        dq[head][-1].add(found.ds, found.ds_error, k, keys)
        dk.add(found.ds.T, found.ds_error.T, own_q, seq * group)
        dv.add(found.p.T, found.p_error.T, own_dout, seq * group)
    return [joined(torch, parts) for parts in dq], dk, dv


def joined(torch: Any, parts: list[Gradient]) -> Gradient:
    """The rows of one head, one after another."""
    return Gradient(torch.concatenate([one.value for one in parts]), torch.concatenate([one.error for one in parts]))


def blocks(group: int, seq: int) -> Iterator[tuple[int, int]]:
    """Each head, and the first of BLOCK queries."""
    return ((head, first) for head in range(group) for first in range(0, seq, BLOCK))


@dataclass
class Comparison:
    """The result of comparing elements."""

    rows: int = 0
    worst: float = 0.0
    off: float = 0.0  # sum of squares of the differences
    size: float = 0.0  # of the reference

    def add(self, wanted: Gradient, got: Any, limits: Limits) -> None:
        share = float(wanted.shares(got, limits).max())
        self.rows += got.shape[0]
        self.worst = max(self.worst, share if math.isfinite(share) else 0.0)
        difference = got.double() - wanted.value
        self.off += float((difference * difference).sum())
        self.size += float((wanted.value * wanted.value).sum())

    def relative(self) -> float:
        return math.sqrt(self.off / self.size) if self.size and math.isfinite(self.off) else 0.0


def check(torch: Any, inputs: Any, found: Any, kv_heads: int, limits: Limits, wanted_rows: int) -> dict[str, Any]:
    """Gradients [batch, heads, seq, d_head] compared with float64: one KV head for each 32 rows, all of its rows.

    `inputs` are Q, K, V and dO as [batch, seq, heads, d_head].
    """
    q, k, v, dout = (tensor.transpose(1, 2) for tensor in inputs)
    batch, group = q.shape[0], q.shape[1] // kv_heads
    pairs = batch * kv_heads
    count = max(1, min(pairs, wanted_rows // 32))
    of_q, of_k, of_v = Comparison(), Comparison(), Comparison()
    for pair in (i * pairs // count for i in range(count)):
        sample, head = divmod(pair, kv_heads)
        own = slice(head * group, (head + 1) * group)
        dq, dk, dv = of_kv_head(torch, q[sample, own], k[sample, head], v[sample, head], dout[sample, own], limits)
        for i, one in enumerate(dq):
            of_q.add(one, found[0][sample, head * group + i], limits)
        of_k.add(dk, found[1][sample, head], limits)
        of_v.add(dv, found[2][sample, head], limits)
    finite = all(bool(torch.isfinite(gradient).all()) for gradient in found)
    worst = max(one.worst for one in (of_q, of_k, of_v))
    errors = {f"d{name}_relative_error": one.relative() for name, one in (("q", of_q), ("k", of_k), ("v", of_v))}
    about = {"rows": of_q.rows + of_k.rows, "max_error_over_bound": worst, **errors, "nan": not finite}
    return about | {"pass": finite and worst <= 1.0}
