"""Some of the problems of the tests of other libraries and engines on the emulator, in fp16, against float64.

gpu_serving.py computes all of them on a GPU. Rows past every length and unused pages are NaN.
"""

import re
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_lengths import HALF, RNG, cumulated, lengths, padded, paged, reference, right, sequence

import flashladder

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))
from peer_cases import Case, all_cases, servers


def three_of_each_test() -> list[Case]:
    """Choose from each test the problem with least work, and others evenly from the first 60 of little work."""
    by_origin: dict[str, list[Case]] = defaultdict(list)
    for case in all_cases():
        by_origin[case.origin].append(case)
    chosen = []
    for cases in by_origin.values():
        least = sorted(cases, key=lambda case: case.work)[:60]
        least = [case for case in least if case.work <= max(20_000_000, least[0].work)]
        chosen += least[:: max(1, len(least) // 3)][:3]
    return chosen


def check(case: Case) -> None:
    rng = RNG(case.work)
    q = [sequence(rng, n, case.heads, case.d_head) for n in case.rows]
    k, v = ([sequence(rng, n, case.kv_heads, case.d_head) for n in case.keys] for _ in "kv")
    old = [[x[: len(x) - case.new] for x in xs] for xs in (k, v)]
    options = dict(case.options) | {"return_lse": True}
    if case.sinks:
        options["sinks"] = rng.standard_normal(case.heads).astype(np.float32)
    caches, table = old, None
    if case.page:
        keys_then = max(case.keys) + case.page
        caches, tables = zip(*(paged(RNG(1), k_or_v, case.page, keys_then) for k_or_v in (k, v)), strict=True)
        table = tables[0]
        for cache, tensor in zip(caches, (k, v), strict=True):  # the keys that come with the call are not there yet
            for b, x in enumerate(tensor):
                for row in range(len(x) - case.new, len(x)):
                    cache[table[b, row // case.page], row % case.page] = np.nan
    if case.cached:
        new: dict[str, Any] = {}
        if case.new:
            new = {"k_new": np.stack([x[-case.new :] for x in k]), "v_new": np.stack([x[-case.new :] for x in v])}
        if not case.page:
            caches = [padded(xs, max(case.keys)) for xs in old]
        o, lse = flashladder.attention_with_cache(np.stack(q), *caches, lengths(old[0]), table, **new, **options)
        found = [(o[b], lse[b]) for b in range(len(q))]
    elif case.packed:
        starts = cumulated(q)
        by_page = {"seqlens_k": lengths(k), "block_table": table}
        keys = caches if case.page else [np.concatenate(x) for x in (k, v)]
        o, lse = flashladder.attention_varlen(
            np.concatenate(q), *keys, starts, None if case.page else cumulated(k), max(case.rows), max(case.keys),
            **(by_page if case.page else {}), **options,
        )  # fmt: skip
        found = [(o[a:e], lse[:, a:e]) for a, e in pairwise(starts)]
    else:
        o, lse = flashladder.attention(*(np.stack(x) for x in (q, k, v)), **options)
        found = [(o[b], lse[b]) for b in range(len(q))]
    assert o.dtype == HALF
    for b, (one, of_one) in enumerate(found):
        right(one, of_one, reference(q[b], k[b], v[b], options))


@pytest.mark.parametrize("case", three_of_each_test(), ids=lambda case: f"{case.origin} {case.work}")
def test_problems_of_other_libraries(case: Case) -> None:
    check(case)


SIZES = (64, 96, 128, 192, 256)  # of heads that are never rejected


def computed_or_refused(case: Case) -> None:
    """Right, or refused by the size of heads or pages, with those that are computed."""
    try:
        check(case)
    except (NotImplementedError, ValueError) as error:
        said = str(error)
        if 0 < case.page < 16:
            assert re.search(rf"page_rows {case.page}: .*16", said), said
            return
        words = "must be a multiple of|the kernels of this library support"
        found = re.search(rf"d_head {case.d_head}: ({words}) ([\d, or]+)", said)
        assert found and case.d_head not in SIZES and str(case.d_head) not in re.findall(r"\d+", found[2]), said


def test_small_problems_of_servers_of_each_kind() -> None:
    """One of each test, size of heads and size of pages."""
    for case in {(case.origin, case.d_head, case.page): case for case in servers()}.values():
        computed_or_refused(case.small())


@pytest.mark.long
def test_all_small_problems_of_servers() -> None:
    for case in dict.fromkeys(case.small()._replace(dtype="float16") for case in servers()):
        computed_or_refused(case)
