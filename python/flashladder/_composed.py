"""The gradients of attention with a bias, ALiBi slopes or dropout, composed of operations of PyTorch in float32.

    dq, dk, dv, dbias = gradients(dout, (q, k, v, out), lse, asked, {"bias": bias})

No kernel has this backward pass. It recomputes the scores of some rows at a time from q and k, so that memory stays
within MOST_SCORES, and nothing waits for the device.
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

import torch

Tensor = Any  # torch.Tensor; this file is checked without PyTorch, too
MOST_SCORES = 1 << 25  # at a time


class Rows(NamedTuple):
    """The rows of all sequences, [batch, most of a sequence]."""

    count: Tensor  # [batch]: the rows that a sequence has
    used: Tensor  # [batch, rows]: true where a sequence has the row
    at: Tensor | None  # [batch, rows]: its number in a packed tensor

    def taken(self, tensor: Tensor) -> Tensor:
        """[batch, heads, rows, d_head] of float32, 0 where a sequence has no row."""
        each = tensor if self.at is None else tensor[self.at]
        return torch.where(self.used[..., None, None], each.float(), 0).transpose(1, 2)

    def put_back(self, made: Tensor, like: Tensor) -> Tensor:
        """The inverse of taken(), with the shape of a tensor."""
        each = torch.where(self.used[..., None, None], made.transpose(1, 2), 0)
        if self.at is None:
            return each
        rows = torch.zeros(like.shape, dtype=torch.float32, device=like.device)
        return rows.index_add_(0, self.at.flatten(), each.flatten(0, 1))


def _rows(tensor: Tensor, starts: Tensor | None, lengths: Tensor | None, most: int) -> Rows:
    device = tensor.device
    if starts is None:
        count, rows = torch.full((tensor.shape[0],), tensor.shape[1], device=device), tensor.shape[1]
    else:
        count, rows = starts.diff().clamp(0, most), max(1, most)
    count = count if lengths is None else torch.minimum(count, lengths.clamp(min=0))
    number = torch.arange(rows, device=device)
    at = None if starts is None else (starts[:-1, None] + number).clamp(0, max(0, tensor.shape[0] - 1)).long()
    return Rows(count, number < count[:, None], at)


def _summed(gradient: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The sum over the axes that have the size 1."""
    axes = [axis for axis, size in enumerate(shape) if size == 1]
    return gradient.sum(axes, keepdim=True) if axes else gradient


def _philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> Tensor:
    """The four words of Philox 4x32-10 along a new last axis, as int64."""
    word = (1 << 32) - 1
    (a, b, c, d), (low, high) = counter, key
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c  # modulo 2^64
        a, c = (second >> 32 & word) ^ b ^ low, (first >> 32 & word) ^ d ^ high
        b, d = second & word, first & word
        low, high = low + 0x9E3779B9 & word, high + 0xBB67AE85 & word
    return torch.stack(torch.broadcast_tensors(a, b, c, d), -1)


def kept(state: Tensor, probability: float, sequences: int, heads: int, rows: Tensor, keys: int) -> Tensor:
    """The weights [sequences, heads, rows, keys] that dropout keeps, as kernels/attention/dropout.cuh describes it.
    `rows` are numbers of queries in their sequences."""
    word, device = (1 << 32) - 1, rows.device
    seed, offset = state.to(torch.int64)
    own = torch.arange(sequences * heads, device=device).view(sequences, heads, 1, 1)
    counter = (torch.arange(-(-keys // 64) * 4, device=device), rows[:, None], own, offset & word)
    words = _philox(counter, (seed & word, (seed >> 32 ^ offset >> 32) & word))
    key = torch.arange(keys, device=device)
    words = words.flatten(-2)[..., key // 64 * 16 + key % 8 // 2 * 4 + key // 16 % 4]
    byte = (1 - key // 8 % 2) + 2 * (key % 2)
    upper, lower = (words >> 8 * one & 127 for one in (byte, (byte + 3) % 4))
    single = struct.unpack("f", struct.pack("f", probability))[0]
    return upper * 128 + lower >= min(max(int(single * 16384 + 0.5), 1), 16383)


def gradients(
    dout: Tensor, tensors: tuple[Tensor, ...], lse: Tensor, asked: Any, arrays: dict[str, Tensor]
) -> tuple[Tensor, ...]:
    """dq, dk, dv, and those of sinks, bias and alibi_slopes that are in `arrays`; None for a mask."""
    q, k, v, out = tensors
    if not q.numel() or not k.numel():
        floats = [arrays[name] for name in ("sinks", "bias", "alibi_slopes") if name in arrays]
        return tuple(torch.zeros_like(one) if one.is_floating_point() else None for one in (q, k, v, *floats))
    of_q = _rows(q, arrays.get("cu_seqlens_q"), arrays.get("seqlens_q"), asked.most[0])
    of_k = _rows(k, arrays.get("cu_seqlens_k"), arrays.get("seqlens_k"), asked.most[1])
    queries, keys, values, douts, outs = (
        rows.taken(one) for rows, one in ((of_q, q), (of_k, k), (of_k, v), (of_q, dout), (of_q, out))
    )
    (batch, heads, n, d_head), (_, kv_heads, m, _) = queries.shape, keys.shape
    scale = d_head**-0.5 if asked.scale is None else asked.scale
    sums = lse if of_q.at is None else lse[:, of_q.at].transpose(0, 1)
    sums = torch.where(of_q.used[:, None], sums, -math.inf)
    delta = (douts * outs).sum(-1)
    bias, slopes, sinks = (arrays.get(name) for name in ("bias", "alibi_slopes", "sinks"))
    dq, dk, dv = (torch.zeros_like(one) for one in (queries, keys, values))
    dbias: Any = None
    if bias is not None and bias.is_floating_point():
        dbias = torch.zeros(bias.shape, dtype=torch.float32, device=q.device)
    dslopes = torch.zeros(batch, heads, device=q.device)
    key = torch.arange(m, device=q.device)
    blocks = arrays["block_mask"] > 0 if "block_mask" in arrays else None

    def together(rows: Tensor) -> Tensor:
        """Rows of the heads that share a head of K and V as rows of that one."""
        return rows.reshape(batch, kv_heads, -1, rows.shape[-1])

    step = max(1, MOST_SCORES // (4 if asked.dropout_p else 1) // max(1, batch * heads * m))
    for first in range(0, n, step):
        some = slice(first, min(n, first + step))
        row = torch.arange(first, some.stop, device=q.device)
        own = row + (of_k.count - of_q.count)[:, None]
        ahead = (key - own[..., None])[:, None]  # [batch, 1, rows, keys]
        left, right = asked.window or (-1, -1)
        right = 0 if asked.causal else right
        seen = (of_q.used[:, some, None] & of_k.used[:, None])[:, None]
        seen = (
            seen if blocks is None else seen & blocks[:, :, row // asked.block_size[0]][..., key // asked.block_size[1]]
        )
        seen = seen & (ahead >= -left) if left >= 0 else seen
        seen = seen & (ahead <= right) if right >= 0 else seen
        of_rows, of_douts = together(queries[:, :, some]), together(douts[:, :, some])
        scores = (of_rows @ keys.transpose(-1, -2)).view(batch, heads, -1, m) * scale
        inner = torch.tanh(scores / asked.softcap) if asked.softcap else None
        scores = scores if inner is None else inner * asked.softcap
        if slopes is not None:
            scores = scores - (slopes[..., None, None] if slopes.dim() == 2 else slopes[:, None, None]) * ahead.abs()
        if bias is not None:
            of_bias = bias[:, :, some] if bias.shape[2] > 1 else bias
            seen, scores = (seen & of_bias, scores) if bias.dtype == torch.bool else (seen, scores + of_bias.float())
        total = sums[:, :, some, None]
        seen = seen & (total > -math.inf)
        p = torch.where(seen, (scores - total).exp(), 0)
        dp = (of_douts @ values.transpose(-1, -2)).view_as(p)
        used = p
        if asked.dropout_p:
            weights = kept(arrays["rng_state"], asked.dropout_p, batch, heads, row, m) / (1 - asked.dropout_p)
            used, dp = p * weights, dp * weights
        ds = torch.where(seen, p * (dp - delta[:, :, some, None]), 0)
        if slopes is not None:
            dslopes -= (ds * ahead.abs()).sum((-1, -2))
        if dbias is not None:
            part = dbias[:, :, some] if dbias.shape[2] > 1 else dbias
            part += _summed(ds, dbias.shape)
        ds = together(ds if inner is None else ds * (1 - inner * inner)) * scale
        dq[:, :, some] = (ds @ keys).view(batch, heads, -1, d_head)
        dk += ds.transpose(-1, -2) @ of_rows
        dv += together(used).transpose(-1, -2) @ of_douts
    made = [of_q.put_back(dq, q), of_k.put_back(dk, k), of_k.put_back(dv, v)]
    if sinks is not None:
        of_sink = torch.where(sums > -math.inf, (sinks[:, None] - sums).exp(), 0)
        made.append(-(of_sink * delta).sum((0, 2)))
    if bias is not None:
        made.append(None if dbias is None else dbias.to(bias.dtype))
    if slopes is not None:
        made.append(dslopes if slopes.dim() == 2 else dslopes.sum(0))
    return tuple(made)
