"""The rows of a causal sequence that each of N ranks holds, and the combination of attention to two sets of keys.

The sequence is cut into 2 N chunks. Rank r holds the chunks r and 2 N - 1 - r, an early one and a late one. So all
ranks have the same work under the causal mask: in the first step the mask itself, then half of all pairs, without one.
"""

from __future__ import annotations

from typing import Any

ALL = slice(None)


def rows_of(rank: int, ranks: int, seq: int) -> tuple[slice, slice]:
    """The two chunks of a rank, as rows of the whole sequence. `seq` is a multiple of 2 * ranks."""
    chunk = seq // (2 * ranks)
    early, late = rank, 2 * ranks - 1 - rank
    return slice(early * chunk, (early + 1) * chunk), slice(late * chunk, (late + 1) * chunk)


def visible(rank: int, source: int, rows: int) -> tuple[slice, slice]:
    """The pairs of the `rows` queries of a rank and the `rows` keys of another rank, `source`, that attend.

    An earlier rank's early chunk lies before both of ours, and its late one behind both. A later rank's chunks lie
    between our two.
    """
    half = rows // 2
    return (ALL, slice(0, half)) if source < rank else (slice(half, rows), ALL)


def needed(rank: int, source: int, ranks: int, seq: int) -> tuple[slice, ...]:
    """The chunks of another rank, `source`, that some row of a rank sees, as rows of the whole sequence."""
    early, late = rows_of(source, ranks, seq)
    return (early, late) if source > rank else (early,)


def combine(xp: Any, out: Any, lse: Any, part: Any, part_lse: Any) -> None:
    """Adds attention to more keys, `part` and `part_lse`, to `out` and `lse`, in place. `xp` is numpy or torch.

    `out` is fp32, [batch, seq, heads, d_head]; log-sum-exps are natural logarithms, finite, [batch, heads, seq].
    """
    total = xp.logaddexp(lse, part_lse)
    out *= xp.exp(lse - total).swapaxes(1, 2)[..., None]
    out += part * xp.exp(part_lse - total).swapaxes(1, 2)[..., None]
    lse[...] = total
