"""Batch-invariant results: a sequence gets the same bits alone and in any composition of a batch.

    PYTHONPATH=python python python/tools/batch_invariant.py --compositions 10000 --jobs 8 --write

A composition draws sequences from a pool in any order and number, and their layout: capacity, page size and pages, rows
behind the last sequence, and on a GPU with PyTorch whether a CUDA graph runs the call. Each sequence must have the bits
that it has alone, with deterministic="batch". Gradients of packed sequences need PyTorch. A composition is made from
its number. Exit status 1: bits differ.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib
import itertools
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from never_nan import on_device, plain, spread, torch

import flashladder

RECORD = Path(__file__).resolve().parents[2] / "logs/library/batch_invariant.md"
GPU = torch is not None and torch.cuda.is_available()


class Sequence(NamedTuple):
    """q, k and v [rows, heads, d_head]."""

    q: Any
    k: Any
    v: Any


def pool_of(kind: str, seed: int, most: int) -> list[Sequence]:
    """Eight sequences: "decode" has few queries, as many for each sequence; "prefill" as many as keys."""
    random = np.random.default_rng(seed)
    d_head, kv_heads, group = int(random.choice((64, 128))), int(random.integers(1, 3)), int(random.choice((1, 4)))
    rows, made = int(random.integers(1, 5)), []
    for _ in range(8):
        keys = int(random.integers(rows, most + 1))
        sizes = ((rows if kind == "decode" else keys, kv_heads * group), (keys, kv_heads), (keys, kv_heads))
        made.append(Sequence(*(random.standard_normal((*size, d_head)).astype(np.float16) for size in sizes)))
    return made


def int32(values: Any) -> Any:
    return on_device(np.asarray(values, np.int32))


def computed(function: Any, *arrays: Any, captured: bool, **options: Any) -> tuple[Any, ...]:
    """O and log-sum-exp in NumPy, from a CUDA graph where that is asked for."""
    call = functools.partial(function, *arrays, causal=True, deterministic="batch", return_lse=True, **options)
    found = call()
    if captured:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = call()
        graph.replay()
    return tuple(map(plain, found))


def cached(chosen: list[Sequence], random: Any, captured: bool) -> list[Any]:
    """Caches of a capacity, in which other values follow the keys."""
    capacity = max(len(one.k) for one in chosen) + int(random.integers(0, 200))
    caches = [random.standard_normal((len(chosen), capacity, *chosen[0].k.shape[1:])).astype(np.float16) for _ in "kv"]
    for b, one in enumerate(chosen):
        for cache, rows in zip(caches, one[1:], strict=True):
            cache[b, : len(rows)] = rows
    q = on_device(np.stack([one.q for one in chosen]))
    lengths = int32([len(one.k) for one in chosen])
    out, lse = computed(flashladder.attention_with_cache, q, *map(on_device, caches), lengths, captured=captured)
    return [(out[b], lse[b]) for b in range(len(chosen))]


def in_pages(chosen: list[Sequence], random: Any, rows: int) -> tuple[list[Any], Any, Any]:
    """Pages in a random order, the block table and the lengths."""
    most = -(-max(len(one.k) for one in chosen) // rows)
    order = random.permutation(len(chosen) * most + 3)[: len(chosen) * most].reshape(len(chosen), most)
    pools = []
    for name in "kv":
        pool = random.standard_normal((order.size + 3, rows, *chosen[0].k.shape[1:])).astype(np.float16)
        for b, one in enumerate(chosen):
            keys = getattr(one, name)
            padded = np.zeros((most * rows, *keys.shape[1:]), np.float16)
            padded[: len(keys)] = keys
            pool[order[b]] = padded.reshape(most, rows, *keys.shape[1:])
        pools.append(on_device(pool))
    return pools, int32(order), int32([len(one.k) for one in chosen])


def paged(chosen: list[Sequence], random: Any, captured: bool) -> list[Any]:
    pools, table, lengths = in_pages(chosen, random, int(random.choice((16, 32, 64, 48))))
    q = on_device(np.stack([one.q for one in chosen]))
    out, lse = computed(flashladder.attention_with_cache, q, *pools, lengths, table, captured=captured)
    return [(out[b], lse[b]) for b in range(len(chosen))]


def starts_of(chosen: list[Sequence], name: str) -> Any:
    return np.cumsum([0, *(len(getattr(one, name)) for one in chosen)])


def apart(chosen: list[Sequence], out: Any, lse: Any) -> list[Any]:
    starts = starts_of(chosen, "q")
    return [(out[a:b], lse[:, a:b]) for a, b in itertools.pairwise(starts)]


def packed(chosen: list[Sequence], random: Any, captured: bool) -> list[Any]:
    """Packed, followed by rows that belong to no sequence."""
    extra = int(random.integers(0, 100))
    rows = [np.concatenate([*x, x[0][:1].repeat(extra, 0)]) for x in zip(*chosen, strict=True)]
    starts = [int32(starts_of(chosen, name)) for name in "qk"]
    most = [max(len(getattr(one, name)) for one in chosen) + int(random.integers(0, 50)) for name in "qk"]
    found = computed(flashladder.attention_varlen, *map(on_device, rows), *starts, *most, captured=captured)
    return apart(chosen, *found)


def packed_over_pages(chosen: list[Sequence], random: Any, captured: bool) -> list[Any]:
    pools, table, lengths = in_pages(chosen, random, int(random.choice((16, 32, 64, 48))))
    q, starts = np.concatenate([one.q for one in chosen]), starts_of(chosen, "q")
    more = {"seqlens_k": lengths, "block_table": table}
    most = max(len(one.q) for one in chosen)
    found = computed(
        flashladder.attention_varlen, on_device(q), *pools, int32(starts), None, most, 0, captured=captured, **more
    )
    return apart(chosen, *found)


def chunked(chosen: list[Sequence], random: Any, captured: bool) -> list[Any]:
    """Prefill in two chunks, each over the keys up to its end."""
    cuts = [int(random.integers(1, len(one.q))) if len(one.q) > 1 else 1 for one in chosen]
    parts = []
    for first in (True, False):
        some = [
            Sequence(one.q[:cut], one.k[:cut], one.v[:cut]) if first else Sequence(one.q[cut:], one.k, one.v)
            for one, cut in zip(chosen, cuts, strict=True)
        ]
        parts.append(packed_over_pages(some, random, captured) if any(len(one.q) for one in some) else some)
    return [
        (np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]], axis=1)) if len(b[0]) else a
        for a, b in zip(*parts, strict=True)
    ]


def gradients(chosen: list[Sequence], random: Any, captured: bool) -> list[Any]:
    """dq, dk and dv of packed sequences, with dout = O."""
    call = importlib.import_module("flashladder.torch").attention_varlen
    rows = [np.concatenate(x) for x in zip(*chosen, strict=True)]
    leaves = [torch.from_numpy(x).to("cuda" if GPU else "cpu").requires_grad_() for x in rows]
    starts = [torch.from_numpy(starts_of(chosen, name).astype(np.int32)).to(leaves[0].device) for name in "qk"]
    most = [max(len(getattr(one, name)) for one in chosen) for name in "qk"]
    out = call(*leaves, *starts, *most, causal=True, deterministic="batch")
    found = [one.float().cpu().numpy() for one in torch.autograd.grad(out, leaves, out.detach())]
    at = [starts_of(chosen, name) for name in "qkk"]
    return [tuple(one[s[b] : s[b + 1]] for one, s in zip(found, at, strict=True)) for b in range(len(chosen))]


# Kind of the pool, the function, and the one whose bits a sequence alone has.
FORMS: dict[str, tuple[str, Any, Any]] = {
    "decoding, caches": ("decode", cached, cached),
    "decoding, pages": ("decode", paged, paged),
    "prefill, packed": ("prefill", packed, packed),
    "prefill over pages": ("prefill", packed_over_pages, packed_over_pages),
    "prefill over pages in chunks": ("prefill", chunked, packed_over_pages),
    "gradients, packed": ("prefill", gradients, gradients),
}


def compare(number: int, form: str, most: int) -> str:
    """ "same" or "other" bits of composition `number`."""
    kind, function, alone = FORMS[form]
    pool = pool_of(kind, number // 50, most)
    random = np.random.default_rng(number)
    chosen = [pool[i] for i in random.permutation(len(pool))[: random.integers(1, len(pool) + 1)]]
    captured = GPU and function is not gradients and bool(random.integers(2))
    found = function(chosen, random, captured)
    for one, results in zip(chosen, found, strict=True):
        expected = alone([one], np.random.default_rng(0), False)[0]
        if not all(np.array_equal(*pair) for pair in zip(results, expected, strict=True)):
            return "other"
    return "same"


def compared(numbers: range, form: str, most: int) -> Counter[str]:
    return Counter(compare(number, form, most) for number in numbers)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compositions", type=int, default=20, help="of each form")
    parser.add_argument("--most", type=int, default=300, help="keys of a sequence")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the compositions (1)")
    parser.add_argument("--write", action="store_true", help=f"the table into {RECORD.name}")
    asked = parser.parse_args(arguments)
    counts: dict[str, Counter[str]] = {}
    for form in FORMS:
        if form.startswith("gradients") and torch is None:
            continue
        numbers = range(asked.compositions)
        counts[form] = sum(spread(compared, numbers, asked.jobs, form, asked.most), Counter[str]())
    where = torch.cuda.get_device_name() if GPU else "the emulator"
    lines = [
        f"{datetime.date.today()}, flashladder {flashladder.backend().release}, {where}, up to {asked.most} keys.",
        "",
    ]
    lines += ["| form | compositions | same bits as alone | other bits |", "|---|---|---|---|"]
    lines += [f"| {form} | {one.total()} | {one['same']} | {one['other']} |" for form, one in counts.items()]
    if asked.write:
        RECORD.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return int(any(one["other"] for one in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
