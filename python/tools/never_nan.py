"""Never NaN: random problems with NaN in every location that no kernel may read, and with extreme values elsewhere.

    PYTHONPATH=python python python/tools/never_nan.py --cases 100000 --jobs 8 --write

A case is made from its number, so --first N --cases 1 repeats it. Its result must have the same bits as with zeros in
these locations, be finite, and be within the values of V. On a GPU with PyTorch, the three back ends of
scaled_dot_product_attention compute the cases that they have arguments for. Exit status 1: flashladder failed a case.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import flashladder

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]
RECORD = Path(__file__).resolve().parents[2] / "logs/library/never_nan.md"
FORMS = ("whole", "padded", "packed", "cache", "pages")
# Factors of the elements of Q and K in fp16 and in bf16: "beyond" gives scores above 3e8 and 1e9.
SIZES = {"usual": (1.0, 1.0), "large": (60.0, 60.0), "tiny": (1e-6, 1e-30), "beyond": (12000.0, 20000.0)}


Counts = dict[tuple[str, str], Counter[str]]  # outcomes by who computed the cases and by the size of their values


class Case(NamedTuple):
    """A problem in NumPy arrays; `hidden` has the locations that no kernel may read, for q, k and v."""

    form: str
    size: str
    arrays: dict[str, Any]
    hidden: tuple[Any, Any, Any]
    options: dict[str, Any]


def make_case(number: int, most: int) -> Case:
    """Case `number`, with at most so many queries and keys of a sequence."""
    random = np.random.default_rng(number)
    form, size = FORMS[number % len(FORMS)], str(random.choice(list(SIZES)))
    bf16, d_head = bool(random.integers(2)), int(random.choice((64, 128, 256), p=(0.6, 0.3, 0.1)))
    if form in ("cache", "pages") and d_head == 256:
        d_head = 128
    kv_heads, group, batch = int(random.integers(1, 3)), int(random.choice((1, 2, 4))), int(random.integers(1, 4))
    rows = int(random.integers(1, 5 if form in ("cache", "pages") else most // 2))
    keys = 16 * int(random.integers(1, most // 16))
    used_q = random.integers(0, rows + 1, batch) if form in ("padded", "packed") else np.full(batch, rows)
    used_k = random.integers(0, keys + 1, batch) if form != "whole" else np.full(batch, keys)

    def values(count: int, heads: int, factor: float) -> Any:
        made = np.clip(random.standard_normal((batch, count, heads, d_head)) * factor, -6e4, 6e4)
        return made.astype(ml_dtypes.bfloat16 if bf16 else np.float16)

    factor = SIZES[size][bf16]
    q, k, v = values(rows, kv_heads * group, factor), values(keys, kv_heads, factor), values(keys, kv_heads, 1)
    options: dict[str, Any] = {"causal": bool(random.integers(2))}
    if random.integers(3) == 0:
        options["window"] = (int(random.integers(0, keys)), int(random.integers(-1, 20)))
    if random.integers(4) == 0:
        options["softcap"] = float(random.choice((0.5, 30.0)))
    if random.integers(4) == 0:
        options["sinks"] = random.choice((-1e30, -5.0, 0.0, 40.0), kv_heads * group).astype(np.float32)
    if random.integers(4) == 0:
        options["deterministic"] = "batch"
    return _laid_out(form, size, (q, k, v), used_q, used_k, options, random)


def seen_keys(used_q: int, used_k: int, rows: int, keys: int, options: dict[str, Any]) -> Any:
    """Return the keys of a sequence that one of its queries attends to."""
    at, key = np.arange(rows)[:, None] + used_k - used_q, np.arange(keys)[None]
    left, right = options.get("window", (-1, -1))
    seen = (np.arange(rows)[:, None] < used_q) & (key < used_k)
    seen &= (key <= at) | (not options["causal"])
    seen &= (key >= at - left) | (left < 0)
    return (seen & ((key <= at + right) | (right < 0))).any(0)


def _laid_out(form: str, size: str, qkv: Any, used_q: Any, used_k: Any, options: dict[str, Any], random: Any) -> Case:
    q, k, v = qkv
    batch, keys = k.shape[:2]
    hide_q = np.arange(q.shape[1])[None] >= used_q[:, None]
    hide_k = ~np.stack([seen_keys(used_q[b], used_k[b], q.shape[1], keys, options) for b in range(batch)])
    # Scores of hidden keys are computed and dropped, and so NaN in K counts as hidden as NaN in V.
    lengths = {"seqlens_q": used_q, "seqlens_k": used_k}
    if form == "padded":
        more: dict[str, Any] = {name: x.astype(np.int32) for name, x in lengths.items()}
    elif form == "packed":
        gap = int(random.integers(0, 40))  # rows after the last sequence
        of_q, of_k = ([x[b, :n] for b, n in enumerate(used)] for x, used in ((q, used_q), (hide_k, used_k)))
        packed = [np.concatenate([*of_q, q[0, :1].repeat(gap, 0)])]
        packed += [np.concatenate([*[x[b, :n] for b, n in enumerate(used_k)], x[0, :1].repeat(gap, 0)]) for x in (k, v)]
        hide_q = np.arange(len(packed[0])) >= used_q.sum()
        hide_k = np.concatenate([*of_k, np.ones(gap, bool)])
        q, k, v = packed
        more = {"max_seqlen_q": max(1, int(used_q.max())), "max_seqlen_k": max(1, int(used_k.max()))}
        for name, used in (("cu_seqlens_q", used_q), ("cu_seqlens_k", used_k)):
            more[name] = np.concatenate([[0], used.cumsum()]).astype(np.int32)
    elif form == "pages":
        order = random.permutation(2 * batch * (keys // 16))[: batch * (keys // 16)]
        pools = []
        for x in (k, v, hide_k[..., None, None]):
            pool = np.ones((2 * batch * (keys // 16), 16, *x.shape[2:]), x.dtype)
            pool[order] = x.reshape(-1, 16, *x.shape[2:])
            pools.append(pool)
        (k, v, hide_k), more = pools, {"block_table": order.reshape(batch, -1).astype(np.int32)}
        hide_k = hide_k[..., 0, 0]
        more["seqlens_k"] = used_k.astype(np.int32)
    else:
        more = {"seqlens_k": used_k.astype(np.int32)} if form == "cache" else {}
    arrays = {"q": q, "k": k, "v": v} | more | ({"sinks": options.pop("sinks")} if "sinks" in options else {})
    return Case(form, size, arrays, (hide_q, hide_k, hide_k), options)


# ---- the calls -------------------------------------------------------------------------------------------------------


def on_device(array: Any) -> Any:
    """The array where it is computed: a GPU with PyTorch, else host memory."""
    if torch is None or not torch.cuda.is_available() or not isinstance(array, np.ndarray):
        return array
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).cuda().view(torch.bfloat16)
    return torch.from_numpy(array).cuda()


def with_hidden(case: Case, value: float) -> dict[str, Any]:
    """The arrays with this value in the hidden locations."""
    arrays = dict(case.arrays)
    for name, hidden in zip("qkv", case.hidden, strict=True):
        arrays[name] = arrays[name].copy()
        arrays[name][hidden] = value
    return {name: on_device(array) for name, array in arrays.items()}


def ours(case: Case, arrays: dict[str, Any]) -> Any:
    named = {"return_lse": True, **case.options, **arrays}
    if case.form in ("cache", "pages"):
        named["k_cache"], named["v_cache"] = named.pop("k"), named.pop("v")
        return flashladder.attention_with_cache(**named)
    function = flashladder.attention_varlen if case.form == "packed" else flashladder.attention
    return function(**named)


def plain(array: Any) -> Any:
    """In float32 of NumPy."""
    return array.float().cpu().numpy() if hasattr(array, "cpu") else np.asarray(array, np.float32)


def check(case: Case, compute: Callable[[Case, dict[str, Any]], Any]) -> str:
    """ "right", or what is wrong. `compute` returns O and, if it can, log-sum-exp; it raises for what it lacks."""
    found, expected = (compute(case, with_hidden(case, value)) for value in (np.nan, 0.0))
    used = ~case.hidden[0]
    for one, other in zip(map(plain, found), map(plain, expected), strict=True):
        of_lse = one.ndim < case.arrays["q"].ndim
        if of_lse:
            one, other = (x.swapaxes(-1, -2) for x in (one, other))
        one, other = one[used], other[used]
        if np.isnan(one).any():
            return "NaN although no NaN is seen" if not np.isnan(other).any() else "NaN from finite values"
        if not of_lse and not (np.abs(one) <= 1.01 * np.abs(plain(case.arrays["v"])).max(initial=0) + 1e-6).all():
            return "outside the values of V"
        if not np.array_equal(one, other):
            return "other bits than with zeros"
    return "right"


def back_end(name: str) -> Callable[[Case, dict[str, Any]], Any]:
    """One of PyTorch's: FLASH_ATTENTION, EFFICIENT_ATTENTION or CUDNN_ATTENTION."""

    def compute(case: Case, arrays: dict[str, Any]) -> Any:
        if case.form not in ("whole", "padded") or set(case.options) - {"causal"} or "sinks" in arrays:
            raise NotImplementedError("no argument for it")
        q, k, v = (arrays[x].transpose(1, 2) for x in "qkv")
        mask = None
        if case.form == "padded" or (case.options["causal"] and q.shape[2] != k.shape[2]):
            used_q = arrays.get("seqlens_q", torch.full((len(q),), q.shape[2], device="cuda"))
            used_k = arrays.get("seqlens_k", torch.full((len(q),), k.shape[2], device="cuda"))
            key, row = (torch.arange(x.shape[2], device="cuda") for x in (k, q))
            mask = (key[None, None] < used_k[:, None, None]) & (row[None, :, None] >= 0)
            if case.options["causal"]:
                mask &= key[None, None] <= row[None, :, None] + (used_k - used_q)[:, None, None]
            mask = mask[:, None]
        causal = case.options["causal"] and mask is None
        with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, name)):
            sdpa = torch.nn.functional.scaled_dot_product_attention
            return [sdpa(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=True).transpose(1, 2)]

    return compute


def table(counts: Counts) -> str:
    outcomes = sorted({outcome for counter in counts.values() for outcome in counter} - {"right", "not served"})
    lines = ["| " + " | ".join(["computed by", "values", "cases", "right", "not served", *outcomes]) + " |"]
    lines.append("|---" * (5 + len(outcomes)) + "|")
    for (name, size), counter in sorted(counts.items()):
        numbers = [counter.total(), counter["right"], counter["not served"], *(counter[one] for one in outcomes)]
        lines.append("| " + " | ".join(map(str, (name, size, *numbers))) + " |")
    return "\n".join(lines) + "\n"


def counted(numbers: range, most: int, sizes: list[str]) -> tuple[Counts, list[str]]:
    """How many of the cases ended how, by who computed them and by the size of values; the cases that we failed."""
    with_gpu = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION") if on_gpu() else ()
    computed_by = {"flashladder": ours, **{f"PyTorch, {name}": back_end(name) for name in with_gpu}}
    counts: Counts = {}
    failed = []
    for number in numbers:
        case = make_case(number, most)
        for name, compute in computed_by.items() if case.size in sizes else ():
            outcome = "not served"
            with contextlib.suppress(NotImplementedError, *(() if name == "flashladder" else (RuntimeError,))):
                outcome = check(case, compute)
            counts.setdefault((name, case.size), Counter())[outcome] += 1
            if name == "flashladder" and outcome not in ("right", "not served"):
                failed.append(f"case {number}: {outcome}: {case.form}, {case.size} values, {case.options}")
    return counts, failed


def on_gpu() -> bool:
    return torch is not None and bool(torch.cuda.is_available())


def spread(function: Callable[..., Any], numbers: range, jobs: int, *arguments: Any) -> Iterator[Any]:
    """The results of `function` for `jobs` parts of the numbers, each in a process of its own if there are several."""
    parts = [numbers[start::jobs] for start in range(jobs)]
    if jobs == 1:
        yield function(parts[0], *arguments)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(function, parts, *(itertools.repeat(one) for one in arguments))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--most", type=int, default=300, help="queries and keys of a sequence")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES), help="leave out cases of others")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the cases (1)")
    parser.add_argument("--write", action="store_true", help=f"the table into {RECORD.name}")
    asked = parser.parse_args(arguments)
    counts: Counts = {}
    failures = 0
    numbers = range(asked.first, asked.first + asked.cases)
    for part, failed in spread(counted, numbers, asked.jobs, asked.most, asked.sizes):
        for key, outcomes in part.items():
            counts.setdefault(key, Counter()).update(outcomes)
        failures += len(failed)
        print(*failed, sep="\n", end="\n" * bool(failed))
    where = torch.cuda.get_device_name() if on_gpu() else "the emulator"
    text = f"{datetime.date.today()}, flashladder {flashladder.backend().release}, {where}.\n\n{table(counts)}"
    if asked.write:
        RECORD.write_text(text)
    print(text)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
